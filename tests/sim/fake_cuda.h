/* A GPU driver and compiler for machines that have neither: libcuda.so.1 and libnvrtc.so.13 in
 * build/<config>/fake/, opened like the real ones. "Compiling" makes a shared object of the kernels
 * with the host's compiler; launching runs it under the simulator (sim.h) on a thread of the
 * stream. A test finds the controls by dlsym in the libraries that the code under test opens.
 *
 * Device memory is host memory, every byte 0xff when new (NaN in every float type). Everything that
 * is opened is counted until it is closed. */
#ifndef REEL_TESTS_FAKE_CUDA_H
#define REEL_TESTS_FAKE_CUDA_H

#include "sim.h"

enum { FAKE_REPORT_BYTES = 16384 };

struct fake_gpu {
    char name[64];
    int n_devices;
    int compute; /* 90 */
    int n_sms;
    int shared_bytes; /* a block may have, opt-in */
    int registers, max_threads;
    size_t memory_bytes, taken_bytes; /* taken: that others have of it */
    int driver_version;               /* 13000 */
    bool unlinked;                    /* no device reaches another one's memory */
    bool slow_links;                  /* or does so, but its atomics do not */
};

struct fake_live {
    int contexts, streams, events, modules, allocations, host_allocations, registrations;
    size_t bytes, host_bytes; /* asked for: of the device's memory, of pinned memory */
};

struct fake_cuda {
    struct fake_gpu gpu;
    /* The next launch's; the seed changes by itself from launch to launch. */
    struct sim_settings settings;
    const char
        *missing_in; /* its missing_block is missing in kernels of that name alone; NULL: all */

    /* Launches of this kernel begin on one GPU, of number late_gpu, only once another one waits for
     * an event, so has done all that it may before that; or after 300 ms. NULL: none */
    const char *late;
    int late_gpu;

    /* The n-th call from now returns this status instead of doing its work, 0: none. With `only`,
     * calls of that name are counted: "cuMemAlloc_v2". */
    int fail_call, fail_with;
    const char *only;
    bool fail_onwards; /* and all that follow it */

    int n_calls, n_launches; /* since the reset; so is what follows: */
    int n_host_copies;       /* copies from the host or to it that were asked for */
    const char *failed_call;
    struct fake_live live;
    size_t most_bytes, most_host_bytes; /* that were live at a time; a test may set them back */
    struct fake_live leaked; /* what was live when the primary context was last released */
    enum sim_result result;  /* of the last launch that ended */
    struct sim_counts counts;
    char report[FAKE_REPORT_BYTES]; /* why a launch or a copy was refused or failed */
};

/* Exported by libcuda.so.1 as fake_cuda_control and fake_cuda_reset. The reset gives the settings
 * their first values and forgets errors; it expects nothing to be live. */
typedef struct fake_cuda *fake_cuda_control_fn(void);
typedef void fake_cuda_reset_fn(void);

/* Replaces the text `from` in source or header `file`: where it stands, which must be one place, or
 * `everywhere`. */
struct fake_patch {
    const char *file, *from, *to;
    bool everywhere;
};

struct fake_nvrtc {
    const char *folder;   /* of compiled objects; NULL: beside the library */
    const char *compiler; /* "cc" */
    const char *flags;    /* of what is patched -O0 */
    const struct fake_patch *patches;
    int n_patches;
    int fail_call, fail_with; /* as above, for NVRTC's calls */
    int n_calls, n_compiled, n_cached;
    int version;    /* 13000: what nvrtcVersion says */
    int catches_ms; /* compiling begins with so long a time in which an interrupt ends the process
                     */
    const char *failed_call;
};

/* Exported by libnvrtc.so.13. */
typedef struct fake_nvrtc *fake_nvrtc_control_fn(void);
typedef void fake_nvrtc_reset_fn(void);

struct fake_nvml {
    int fail_call, fail_with; /* as above, for NVML's calls */
    int n_calls;
    int live; /* nvmlInit less nvmlShutdown */
    unsigned power_mw;
    unsigned long long energy_mj; /* 1 J more at every question */
};

/* Exported by libnvidia-ml.so.1. */
typedef struct fake_nvml *fake_nvml_control_fn(void);
typedef void fake_nvml_reset_fn(void);

#endif
