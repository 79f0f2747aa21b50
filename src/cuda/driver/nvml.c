#include "cuda/driver/nvml.h"

#include "cuda/driver/library.h"

#include <stddef.h>

static const char *const library_names[] = {
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    NULL,
};

/* Needed only to open. */
struct start_calls {
    int (*init)(void);
    int (*find)(const char *uuid, struct nvml_device **device);
    int (*driver)(char *text, unsigned size);
};
static const struct library_symbol start_symbols[] = {
    { "nvmlInit_v2", offsetof(struct start_calls, init) },
    { "nvmlDeviceGetHandleByUUID", offsetof(struct start_calls, find) },
    { "nvmlSystemGetDriverVersion", offsetof(struct start_calls, driver) },
};
static const struct library_symbol symbols[] = {
    { "nvmlShutdown", offsetof(struct nvml, shutdown) },
    { "nvmlDeviceGetTotalEnergyConsumption", offsetof(struct nvml, read_energy) },
    { "nvmlDeviceGetPowerUsage", offsetof(struct nvml, read_power) },
    { "nvmlDeviceGetMemoryInfo", offsetof(struct nvml, read_memory) },
    { "nvmlErrorString", offsetof(struct nvml, error_text) },
};

static enum reel_status fail_call(const struct nvml *nvml, int error, const char *call,
                                  struct reel_error *err) {
    const char *text = nvml->error_text(error);
    return err_set(err, REEL_E_UNSUPPORTED, "NVML: %s: %s (%d)", call, text ? text : "no text",
                   error);
}

static enum reel_status init_nvml(struct nvml *nvml, const struct start_calls *call,
                                  const char *uuid, struct reel_error *err) {
    int error = call->init();
    if (error != 0) return fail_call(nvml, error, "nvmlInit_v2", err);
    error = call->find(uuid, &nvml->device);
    if (error != 0) {
        nvml->shutdown();
        return fail_call(nvml, error, "nvmlDeviceGetHandleByUUID", err);
    }
    if (call->driver(nvml->driver, sizeof nvml->driver - 1) != 0) nvml->driver[0] = '\0';
    return REEL_OK;
}

enum reel_status nvml_open(struct nvml *nvml, const char *folder, const char *uuid,
                           struct reel_error *err) {
    struct start_calls call = { 0 };
    char why[LIBRARY_WHY];
    *nvml = (struct nvml){ 0 };
    nvml->library = library_open(folder, library_names, why);
    if (!nvml->library)
        return err_set(err, REEL_E_UNSUPPORTED, "no NVML, so neither energy nor power: %s", why);
    const char *missing =
        library_bind(nvml->library, nvml, symbols, (int)(sizeof symbols / sizeof *symbols));
    if (!missing)
        missing = library_bind(nvml->library, &call, start_symbols,
                               (int)(sizeof start_symbols / sizeof *start_symbols));
    enum reel_status status =
        missing ? err_set(err, REEL_E_UNSUPPORTED, "NVML lacks %s: the driver is too old", missing)
                : init_nvml(nvml, &call, uuid, err);
    if (status == REEL_OK) return REEL_OK;
    library_close(nvml->library);
    *nvml = (struct nvml){ 0 };
    return status;
}

void nvml_close(struct nvml *nvml) {
    if (!nvml || !nvml->library) return;
    nvml->shutdown();
    library_close(nvml->library);
    *nvml = (struct nvml){ 0 };
}

enum reel_status nvml_energy(const struct nvml *nvml, uint64_t *mj, struct reel_error *err) {
    unsigned long long value = 0;
    *mj = 0;
    int error = nvml->read_energy(nvml->device, &value);
    if (error != 0) return fail_call(nvml, error, "nvmlDeviceGetTotalEnergyConsumption", err);
    *mj = value;
    return REEL_OK;
}

enum reel_status nvml_power(const struct nvml *nvml, double *w, struct reel_error *err) {
    unsigned mw = 0;
    *w = 0;
    int error = nvml->read_power(nvml->device, &mw);
    if (error != 0) return fail_call(nvml, error, "nvmlDeviceGetPowerUsage", err);
    *w = mw / 1e3;
    return REEL_OK;
}

enum reel_status nvml_memory_free(const struct nvml *nvml, uint64_t *n_bytes,
                                  struct reel_error *err) {
    struct nvml_memory memory = { 0 };
    *n_bytes = 0;
    int error = nvml->read_memory(nvml->device, &memory);
    if (error != 0) return fail_call(nvml, error, "nvmlDeviceGetMemoryInfo", err);
    *n_bytes = memory.free;
    return REEL_OK;
}
