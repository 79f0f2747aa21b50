/* Energy and power of GPUs. */
#include "cuda/measure/meter.h"

#include "base/memory.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/nvml.h"

#include <string.h>

struct backend_meter {
    struct nvml nvml[CUDA_MOST_GPUS];
    int n;
};

static enum reel_status open_one(struct nvml *nvml, const char *cuda_dir, const char *uuid,
                                 struct reel_error *err) {
    uint64_t mj = 0;
    enum reel_status status = nvml_open(nvml, cuda_dir, uuid, err);
    return status == REEL_OK ? nvml_energy(nvml, &mj, err) : status; /* whether it counts */
}

enum reel_status cuda_meter_open(struct backend_meter **out, const char *uuids,
                                 const char *cuda_dir, struct reel_error *err) {
    struct backend_meter *meter = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&meter, 1, sizeof *meter, "a meter", err);
    while (status == REEL_OK && *uuids && meter->n < CUDA_MOST_GPUS) {
        char uuid[CUDA_UUID];
        const size_t length = strcspn(uuids, ","),
                     n = length < sizeof uuid ? length : sizeof uuid - 1;
        memcpy(uuid, uuids, n);
        uuid[n] = '\0';
        status = open_one(&meter->nvml[meter->n++], cuda_dir, uuid, err);
        uuids += length + (uuids[length] == ',');
    }
    if (status == REEL_OK)
        *out = meter;
    else
        cuda_meter_close(meter);
    return status;
}

enum reel_status cuda_meter_read(const struct backend_meter *meter, double *joules, double *watts,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *joules = *watts = 0;
    for (int i = 0; i < meter->n && status == REEL_OK; i++) {
        uint64_t mj = 0;
        double w = 0;
        status = nvml_energy(&meter->nvml[i], &mj, err);
        if (status == REEL_OK) status = nvml_power(&meter->nvml[i], &w, err);
        *joules += (double)mj * 1e-3, *watts += w;
    }
    return status;
}

void cuda_meter_close(struct backend_meter *meter) {
    if (!meter) return;
    for (int i = 0; i < meter->n; i++)
        nvml_close(&meter->nvml[i]);
    mem_free(meter);
}
