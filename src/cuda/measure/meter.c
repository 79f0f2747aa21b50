/* Energy and power of a GPU. */
#include "cuda/measure/meter.h"

#include "base/memory.h"
#include "cuda/driver/nvml.h"

struct backend_meter {
    struct nvml nvml;
};

enum reel_status cuda_meter_open(struct backend_meter **out, const char *uuid, const char *cuda_dir,
                                 struct reel_error *err) {
    struct backend_meter *meter = NULL;
    uint64_t mj = 0;
    *out = NULL;
    enum reel_status status = mem_zeroed(&meter, 1, sizeof *meter, "a meter", err);
    if (status != REEL_OK) return status;
    status = nvml_open(&meter->nvml, cuda_dir, uuid, err);
    if (status == REEL_OK) status = nvml_energy(&meter->nvml, &mj, err); /* whether it counts */
    if (status == REEL_OK)
        *out = meter;
    else
        cuda_meter_close(meter);
    return status;
}

enum reel_status cuda_meter_read(const struct backend_meter *meter, double *joules, double *watts,
                                 struct reel_error *err) {
    uint64_t mj = 0;
    enum reel_status status = nvml_energy(&meter->nvml, &mj, err);
    if (status == REEL_OK) status = nvml_power(&meter->nvml, watts, err);
    *joules = (double)mj * 1e-3;
    return status;
}

void cuda_meter_close(struct backend_meter *meter) {
    if (!meter) return;
    nvml_close(&meter->nvml);
    mem_free(meter);
}
