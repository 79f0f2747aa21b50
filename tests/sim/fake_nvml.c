/* libnvidia-ml.so.1 for tests: one GPU, found by the UUID that the fake driver gives its first. */
#include "fake_cuda.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_UNINITIALIZED = 1 };

struct memory {
    unsigned long long total, free, used;
};

static struct fake_nvml fake;
static int gpu; /* its address is the handle */

EXPORT fake_nvml_control_fn fake_nvml_control;
EXPORT fake_nvml_reset_fn fake_nvml_reset;
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *mw);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
EXPORT const char *nvmlErrorString(int error);

void fake_nvml_reset(void) { fake = (struct fake_nvml){ .power_mw = 77500 }; }
__attribute__((constructor)) static void first_reset(void) { fake_nvml_reset(); }
struct fake_nvml *fake_nvml_control(void) {
    return &fake;
}

static int enter(void) {
    fake.n_calls++;
    if (fake.fail_call > 0 && --fake.fail_call == 0) return fake.fail_with;
    return fake.live > 0 ? NVML_OK : NVML_UNINITIALIZED;
}

int nvmlInit_v2(void) {
    fake.live++;
    int status = enter();
    if (status != NVML_OK) fake.live--;
    return status;
}

int nvmlShutdown(void) {
    fake.live--;
    return NVML_OK;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.00.fake");
    return enter();
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &gpu;
    int status = enter();
    return status == NVML_OK && strncmp(uuid, "GPU-", 4) != 0 ? NVML_NOT_FOUND : status;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    *mj = fake.energy_mj += 1000;
    return device == &gpu ? enter() : NVML_NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
    *mw = fake.power_mw;
    return device == &gpu ? enter() : NVML_NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    *memory = (struct memory){ .total = 1000000, .free = 900000, .used = 100000 };
    return device == &gpu ? enter() : NVML_NOT_FOUND;
}

const char *nvmlErrorString(int error) {
    return error == NVML_NOT_SUPPORTED ? "Not Supported" : "an error of the fake";
}
