/* reel_devices: what this machine has, as its backends describe it. */
#include "base/struct_size.h"
#include "runtime/device.h"

enum reel_status reel_devices(const struct reel_devices_options *given, char **json,
                              struct reel_error *err) {
    struct reel_devices_options options;
    json_t *cpus = NULL, *gpus = NULL, *notes = NULL, *none = NULL;
    err_clear(err);
    enum reel_status status = err_if_null(err, "json", (const void *const[]){ json });
    if (status != REEL_OK) return status;
    *json = NULL;
    status = struct_read(&options, sizeof options, given, "reel_devices_options", err);
    if (status != REEL_OK) return status;
    const struct backend_folders folders = { options.cuda_dir, options.nvrtc_dir };
    status = device_gpus()->describe(&gpus, &notes, &folders, err);
    if (status == REEL_OK) status = device_processors()->describe(&cpus, &none, &folders, err);
    if (status != REEL_OK) {
        json_decref(gpus);
        json_decref(notes);
        return status;
    }
    json_t *root =
        json_pack("{s:O, s:o, s:o}", "cpu", json_array_get(cpus, 0), "gpus", gpus, "notes", notes);
    json_decref(cpus);
    status = root ? json_write(json, root, "the list of devices", err)
                  : err_memory(err, "the list of devices", 0);
    json_decref(root);
    return status;
}
