/* The fake GPU for tests of kernels by themselves: opens the libraries of tests/sim, compiles one
 * .cu with the headers of kernels/, launches and reads back. Everything it finds wrong fails the
 * test. */
#ifndef REEL_TESTS_SIM_GPU_H
#define REEL_TESTS_SIM_GPU_H

#include "sim/fake_cuda.h"

struct sim_gpu {
    struct fake_cuda *cuda;
    struct fake_nvrtc *nvrtc;
};

/* The controls alone, reset: what a test of src/cuda needs. */
struct sim_gpu sim_gpu_controls(void);
/* The same without the reset. */
struct sim_gpu sim_gpu_current(void);
/* The folder the libraries lie in. */
const char *sim_gpu_folder(void);

/* With a context and a stream. */
struct sim_gpu sim_gpu_open(void);
void sim_gpu_close(void);

/* options: "-DNAME=VALUE" ..., NULL at the end. */
void sim_gpu_compile(const char *cu, const char *const *options);
/* As sim_gpu_compile, with the source in hand. */
void sim_gpu_compile_text(const char *name, const char *source, const char *const *options);

unsigned long long sim_gpu_alloc(size_t bytes);
void sim_gpu_put(unsigned long long to, const void *from, size_t bytes);
void sim_gpu_get(void *to, unsigned long long from, size_t bytes);
void *sim_gpu_mapped(size_t bytes);

/* Cooperative; returns the driver's status of the launch and of waiting for it. */
int sim_gpu_launch(const char *kernel, unsigned grid, unsigned threads, unsigned shared_bytes,
                   void **params);

#endif
