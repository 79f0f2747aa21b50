#include "runtime/device.h"

#include <string.h>

const struct machine_ops *device_gpus(void) { return cuda_backend.machine; }
const struct machine_ops *device_processors(void) { return cpu_backend.machine; }

bool device_is_auto(const char *name) { return !name || strcmp(name, "auto") == 0; }

enum reel_status device_choose(struct device *device, const char *name,
                               const struct backend_folders *folders, struct reel_error *err) {
    const struct machine_ops *gpus = device_gpus();
    *device = (struct device){ .ops = &cpu_backend };
    if (name && strcmp(name, "cpu") == 0) return REEL_OK;
    if (!device_is_auto(name)) {
        device->ops = &cuda_backend;
        return gpus->choose(&device->devices, name, folders, err);
    }
    if (gpus->choose(&device->devices, "auto", folders, &device->why_not) == REEL_OK)
        device->ops = &cuda_backend;
    else if (gpus->has_driver(folders))
        return REEL_OK;
    device->why_not = (struct reel_error){ 0 };
    return REEL_OK;
}
