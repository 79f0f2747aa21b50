#include "cuda/driver/driver_error.h"

#include <stdio.h>

#define NAME(name, symbol, parameters) .name = #symbol,
const struct cu_names cu_names = { CU_CALLS(NAME) };
#undef NAME

static const struct {
    int error;
    const char *advice;
} advices[] = {
    { CU_ERROR_OUT_OF_MEMORY, "close other programs on the GPU, or run on the CPU" },
    { CU_ERROR_STUB_LIBRARY,
      "the libcuda.so.1 that was found is the CUDA toolkit's stub: put the driver's before it" },
    { CU_ERROR_DEVICES_UNAVAILABLE,
      "another program holds the GPU for itself (nvidia-smi shows its compute mode)" },
    { CU_ERROR_NO_DEVICE, "the driver sees no GPU: does nvidia-smi list one? CUDA_VISIBLE_DEVICES "
                          "hides GPUs; a container must be started with them (--gpus all)" },
    { CU_ERROR_INVALID_IMAGE,
      "the compiled kernels are not for this driver: empty reel's cache folder" },
    { CU_ERROR_NO_BINARY_FOR_GPU,
      "the kernels were compiled for another GPU: empty reel's cache folder" },
    { CU_ERROR_ECC_UNCORRECTABLE, "the GPU's memory has a fault: reset the GPU or restart" },
    { CU_ERROR_UNSUPPORTED_PTX_VERSION,
      "the driver is older than the compiler (NVRTC): update the driver" },
    { CU_ERROR_ILLEGAL_ADDRESS, "a kernel reached outside its memory; this process cannot use the "
                                "GPU any more: start again" },
    { CU_ERROR_LAUNCH_OUT_OF_RESOURCES,
      "the kernel needs more registers or shared memory than a block may have" },
    { CU_ERROR_LAUNCH_TIMEOUT, "the system stopped a kernel that ran too long: a GPU that also "
                               "drives a screen has such a limit" },
    { CU_ERROR_LAUNCH_FAILED,
      "a kernel failed; this process cannot use the GPU any more: start again" },
    { CU_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
      "its blocks cannot all be on the GPU at once: another program or a GPU partition (MPS, MIG) "
      "leaves fewer SMs than planned" },
    { CU_ERROR_SYSTEM_NOT_READY, "the system is not ready: on machines with NVSwitch the fabric "
                                 "manager must be running" },
    { CU_ERROR_SYSTEM_DRIVER_MISMATCH, "libcuda and the kernel's driver module are of different "
                                       "versions: restart after a driver update" },
    { CU_ERROR_UNKNOWN, "does nvidia-smi work? After sleep or an update a restart helps" },
};

static const char *advice_for(int error) {
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].error == error) return advices[i].advice;
    return NULL;
}

enum reel_status driver_fail(const struct cuda_driver *driver, int error, const char *call,
                             const char *what, struct reel_error *err) {
    const char *name = NULL, *text = NULL, *advice = advice_for(error);
    enum reel_status status = error == CU_ERROR_OUT_OF_MEMORY ? REEL_E_MEMORY : REEL_E_DEVICE;
    char words[160];
    if (driver->call.error_name(error, &name) != 0 || !name ||
        driver->call.error_text(error, &text) != 0 || !text)
        snprintf(words, sizeof words, "error %d", error);
    else
        snprintf(words, sizeof words, "%s (%d, %s)", name, error, text);
    return err_set(err, status, "%s%s%s: %s%s%s", call, what ? " for " : "", what ? what : "",
                   words, advice ? "; " : "", advice ? advice : "");
}
