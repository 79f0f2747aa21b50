/* Which backend runs a model, and on which device: the one place that knows the backends, and turns
 * the text of reel_model_options.device into one of them. */
#ifndef REEL_RUNTIME_DEVICE_H
#define REEL_RUNTIME_DEVICE_H

#include "runtime/backend.h"

/* The machine's GPUs and its processors, whatever a model runs on. */
const struct machine_ops *device_gpus(void);
const struct machine_ops *device_processors(void);

struct device {
    const struct backend_ops *ops;
    struct backend_devices devices; /* of the backend */
    /* Of "auto" that came to the CPU: why no GPU can be used; without text where that was not asked
     * or where there is no driver, as on most machines. */
    struct reel_error why_not;
};

/* name: NULL or "auto" (the first GPU that can be used, else the CPU), "cpu", "gpu", "gpu:N",
 * "gpu:N,M", "gpu:all". REEL_E_ARGUMENT for others and for a GPU there is none of. */
enum reel_status device_choose(struct device *device, const char *name,
                               const struct backend_folders *folders, struct reel_error *err);

bool device_is_auto(const char *name);

#endif
