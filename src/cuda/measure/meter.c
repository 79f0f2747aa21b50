/* Energy and power of the GPU that a model runs on. */
#include "base/memory.h"
#include "base/struct_size.h"
#include "cuda/driver/nvml.h"
#include "reel_measure.h"
#include "runtime/model_handle.h"

struct reel_meter {
    struct nvml nvml;
};

enum reel_status reel_meter_open(struct reel_meter **out, const struct reel_model *model,
                                 const char *cuda_dir, struct reel_error *err) {
    struct reel_meter *meter = NULL;
    uint64_t mj = 0;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out model", (const void *const[]){ out, model });
    if (status != REEL_OK) return status;
    if (!model->backend_info.uuid)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: runs on the CPU, whose energy is not measured",
                       model->model.name);
    status = mem_zeroed(&meter, 1, sizeof *meter, "a meter", err);
    if (status != REEL_OK) return status;
    status = nvml_open(&meter->nvml, cuda_dir, model->backend_info.uuid, err);
    if (status == REEL_OK) status = nvml_energy(&meter->nvml, &mj, err); /* whether it counts */
    if (status == REEL_OK)
        *out = meter;
    else
        reel_meter_close(meter);
    return status;
}

enum reel_status reel_meter_read(const struct reel_meter *meter, struct reel_meter_reading *reading,
                                 struct reel_error *err) {
    struct reel_meter_reading own = { .size = sizeof own };
    uint64_t mj = 0;
    err_clear(err);
    enum reel_status status = err_if_null(err, "meter", (const void *const[]){ meter });
    if (status == REEL_OK) status = struct_check(reading, sizeof own, "reel_meter_reading", err);
    if (status == REEL_OK) status = nvml_energy(&meter->nvml, &mj, err);
    if (status == REEL_OK) status = nvml_power(&meter->nvml, &own.watts, err);
    own.joules = (double)mj * 1e-3;
    return status == REEL_OK ? struct_write(reading, &own, sizeof own, "reel_meter_reading", err)
                             : status;
}

void reel_meter_close(struct reel_meter *meter) {
    if (!meter) return;
    nvml_close(&meter->nvml);
    mem_free(meter);
}
