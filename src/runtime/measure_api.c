/* The public calls that measure a device: they belong to its backend. */
#include "base/memory.h"
#include "base/struct_size.h"
#include "reel_measure.h"
#include "runtime/device.h"
#include "runtime/model_handle.h"

enum reel_status reel_gpu_limits(const struct reel_limits_options *given, char **json,
                                 struct reel_error *err) {
    struct reel_limits_options options;
    struct device device;
    json_t *all = NULL;
    err_clear(err);
    enum reel_status status = err_if_null(err, "json", (const void *const[]){ json });
    if (status != REEL_OK) return status;
    *json = NULL;
    status = struct_read(&options, sizeof options, given, "reel_limits_options", err);
    if (status != REEL_OK) return status;
    const struct backend_folders folders = { options.cuda_dir, options.nvrtc_dir };
    status = device_choose(&device, device_is_auto(options.device) ? "gpu" : options.device,
                           &folders, err);
    if (status != REEL_OK) return status;
    const struct machine_ops *machine = device.ops->machine;
    if (!machine->measure)
        return err_set(err, REEL_E_ARGUMENT,
                       "device \"%s\": only GPUs are measured; allowed are \"gpu\", \"gpu:N\", "
                       "\"gpu:N,M\" and \"gpu:all\"",
                       options.device);
    status = machine->measure(&all, &device.devices, &options, err);
    if (status == REEL_OK) status = json_write(json, all, "the GPU's limits", err);
    json_decref(all);
    return status;
}

enum reel_status reel_gpu_option(int index, struct reel_gpu_option *option,
                                 struct reel_error *err) {
    struct reel_gpu_option own;
    err_clear(err);
    enum reel_status status = device_gpus()->option(&own, index, err);
    return status == REEL_OK ? struct_write(option, &own, sizeof own, "reel_gpu_option", err)
                             : status;
}

/* ---- energy ---- */

struct reel_meter {
    const struct machine_ops *machine;
    struct backend_meter *meter;
};

enum reel_status reel_meter_open(struct reel_meter **out, const struct reel_model *model,
                                 const char *cuda_dir, struct reel_error *err) {
    struct reel_meter *meter = NULL;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out model", (const void *const[]){ out, model });
    if (status != REEL_OK) return status;
    const struct machine_ops *machine = model->ops->machine;
    if (!machine || !machine->meter_open)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: runs on the CPU, whose energy is not measured",
                       model->model.name);
    status = mem_zeroed(&meter, 1, sizeof *meter, "a meter", err);
    if (status != REEL_OK) return status;
    meter->machine = machine;
    status = machine->meter_open(&meter->meter, model->backend_info.uuids, cuda_dir, err);
    if (status == REEL_OK)
        *out = meter;
    else
        mem_free(meter);
    return status;
}

enum reel_status reel_meter_read(const struct reel_meter *meter, struct reel_meter_reading *reading,
                                 struct reel_error *err) {
    struct reel_meter_reading own = { .size = sizeof own };
    err_clear(err);
    enum reel_status status = err_if_null(err, "meter", (const void *const[]){ meter });
    if (status == REEL_OK) status = struct_check(reading, sizeof own, "reel_meter_reading", err);
    if (status == REEL_OK)
        status = meter->machine->meter_read(meter->meter, &own.joules, &own.watts, err);
    return status == REEL_OK ? struct_write(reading, &own, sizeof own, "reel_meter_reading", err)
                             : status;
}

void reel_meter_close(struct reel_meter *meter) {
    if (!meter) return;
    meter->machine->meter_close(meter->meter);
    mem_free(meter);
}
