/* Preloaded: makes the libcuda.so.1 of tests/sim a driver of CUDA 12.4. */
#include "sim/fake_cuda.h"

#include <dlfcn.h>

__attribute__((constructor)) static void make_old(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    fake_cuda_control_fn *control =
        driver ? (fake_cuda_control_fn *)dlsym(driver, "fake_cuda_control") : 0;
    if (control) control()->gpu.driver_version = 12040;
}
