#define _DEFAULT_SOURCE
#include "support/sim_gpu.h"

#include "cuda/compile/kernel_sources.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef unsigned long long device;

static void *libcuda, *libnvrtc, *context, *stream, *module;
static device allocations[64];
static void *mapped[16];
static int n_allocations, n_mapped;

static void *library(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", sim_gpu_folder(), name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    return handle;
}

#define CALL(result, from, name, types, ...)                                                       \
    do {                                                                                           \
        int(*fn) types = NULL;                                                                     \
        *(void **)&fn = dlsym(from, #name);                                                        \
        if (!fn) fail_msg("%s: missing", #name);                                                   \
        result = fn(__VA_ARGS__);                                                                  \
    } while (0)
#define MUST(from, name, types, ...)                                                               \
    do {                                                                                           \
        int must;                                                                                  \
        CALL(must, from, name, types, __VA_ARGS__);                                                \
        if (must) fail_msg("%s: %d", #name, must);                                                 \
    } while (0)

const char *sim_gpu_folder(void) {
    static char folder[256];
    const char *build = getenv("REEL_BUILD");
    snprintf(folder, sizeof folder, "%s/fake", build ? build : "build/release");
    return folder;
}

struct sim_gpu sim_gpu_current(void) {
    fake_cuda_control_fn *cuda;
    fake_nvrtc_control_fn *nvrtc;
    if (!libcuda) libcuda = library("libcuda.so.1");
    if (!libnvrtc) libnvrtc = library("libnvrtc.so.13");
    *(void **)&cuda = dlsym(libcuda, "fake_cuda_control");
    *(void **)&nvrtc = dlsym(libnvrtc, "fake_nvrtc_control");
    return (struct sim_gpu){ cuda(), nvrtc() };
}

struct sim_gpu sim_gpu_controls(void) {
    struct sim_gpu gpu = sim_gpu_current();
    void (*reset)(void);
    *(void **)&reset = dlsym(libcuda, "fake_cuda_reset");
    reset();
    *(void **)&reset = dlsym(libnvrtc, "fake_nvrtc_reset");
    reset();
    return gpu;
}

struct sim_gpu sim_gpu_open(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    MUST(libcuda, cuInit, (unsigned), 0);
    MUST(libcuda, cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    MUST(libcuda, cuCtxSetCurrent, (void *), context);
    MUST(libcuda, cuStreamCreate, (void **, unsigned), &stream, 1);
    return gpu;
}

void sim_gpu_close(void) {
    int ignored; /* after a failed launch every call says so, and closes all the same */
    while (n_allocations)
        CALL(ignored, libcuda, cuMemFree_v2, (device), allocations[--n_allocations]);
    while (n_mapped)
        CALL(ignored, libcuda, cuMemFreeHost, (void *), mapped[--n_mapped]);
    if (module) CALL(ignored, libcuda, cuModuleUnload, (void *), module);
    module = NULL;
    CALL(ignored, libcuda, cuStreamDestroy_v2, (void *), stream);
    CALL(ignored, libcuda, cuDevicePrimaryCtxRelease_v2, (int), 0);
    (void)ignored;
}

static char *file_text(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s: cannot be read", path);
    char *text = calloc(1, 1 << 20);
    if (!text || !fread(text, 1, (1 << 20) - 1, f)) fail_msg("%s: empty", path);
    fclose(f);
    return text;
}

/* The kernels' sources are its headers, but for one of its own name. */
void sim_gpu_compile_text(const char *name, const char *source, const char *const *options) {
    enum { MOST = 128 };
    const char *headers[MOST], *texts[MOST];
    int n_headers = 0;
    void *program;
    int n = 0, status;
    for (int i = 0; i < n_kernel_sources; i++) {
        if (strcmp(kernel_sources[i].name, name) == 0) continue;
        assert_true(n_headers < MOST);
        headers[n_headers] = kernel_sources[i].name, texts[n_headers++] = kernel_sources[i].text;
    }
    while (options && options[n])
        n++;
    MUST(libnvrtc, nvrtcCreateProgram,
         (void **, const char *, const char *, int, const char *const *, const char *const *),
         &program, source, name, n_headers, texts, headers);
    CALL(status, libnvrtc, nvrtcCompileProgram, (void *, int, const char *const *), program, n,
         options);
    if (status) {
        size_t bytes;
        MUST(libnvrtc, nvrtcGetProgramLogSize, (void *, size_t *), program, &bytes);
        char *log = calloc(1, bytes + 1);
        MUST(libnvrtc, nvrtcGetProgramLog, (void *, char *), program, log);
        fail_msg("%s: %d\n%s", name, status, log);
    }
    char image[2048];
    MUST(libnvrtc, nvrtcGetCUBIN, (void *, char *), program, image);
    MUST(libnvrtc, nvrtcDestroyProgram, (void **), &program);
    if (module) MUST(libcuda, cuModuleUnload, (void *), module);
    MUST(libcuda, cuModuleLoadData, (void **, const char *), &module, image);
}

void sim_gpu_compile(const char *cu, const char *const *options) {
    char *source = file_text("tests/sim/kernels", cu);
    sim_gpu_compile_text(cu, source, options);
    free(source);
}

device sim_gpu_alloc(size_t bytes) {
    device p;
    MUST(libcuda, cuMemAlloc_v2, (device *, size_t), &p, bytes);
    allocations[n_allocations++] = p;
    return p;
}

void sim_gpu_put(device to, const void *from, size_t bytes) {
    MUST(libcuda, cuMemcpyHtoD_v2, (device, const void *, size_t), to, from, bytes);
}

void sim_gpu_get(void *to, device from, size_t bytes) {
    MUST(libcuda, cuMemcpyDtoH_v2, (void *, device, size_t), to, from, bytes);
}

void *sim_gpu_mapped(size_t bytes) {
    void *p;
    MUST(libcuda, cuMemHostAlloc, (void **, size_t, unsigned), &p, bytes, 2);
    mapped[n_mapped++] = p;
    return p;
}

int sim_gpu_launch(const char *kernel, unsigned grid, unsigned threads, unsigned shared_bytes,
                   void **params) {
    void *function;
    int status;
    MUST(libcuda, cuModuleGetFunction, (void **, void *, const char *), &function, module, kernel);
    MUST(libcuda, cuFuncSetAttribute, (void *, int, int), function, 8, (int)shared_bytes);
    CALL(status, libcuda, cuLaunchCooperativeKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
          void **),
         function, grid, 1, 1, threads, 1, 1, shared_bytes, stream, params);
    if (status) return status;
    CALL(status, libcuda, cuStreamSynchronize, (void *), stream);
    return status;
}
