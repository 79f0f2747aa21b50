#include "cuda/measure/cuda_machine.h"

#include "base/memory.h"
#include "cuda/driver/gpu_info.h"
#include "cuda/measure/limits.h"
#include "cuda/measure/meter.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/tuned.h"

#include <sys/stat.h>

/* ---- the machine ---- */

static struct cuda_folders folders_of(const struct backend_folders *folders) {
    return (struct cuda_folders){ folders->cuda_dir, folders->nvrtc_dir };
}

_Static_assert((int)BACKEND_MOST_DEVICES == (int)CUDA_MOST_GPUS, "as many as share a model");

static enum reel_status choose(struct backend_devices *devices, const char *name,
                               const struct backend_folders *given, struct reel_error *err) {
    const struct cuda_folders folders = folders_of(given);
    return gpu_choose(devices->index, &devices->n, name, &folders, err);
}

static bool has_driver(const struct backend_folders *given) {
    struct cuda_driver driver;
    if (cuda_driver_open(&driver, given->cuda_dir, NULL) != REEL_OK) return false;
    cuda_driver_close(&driver);
    return true;
}

static enum reel_status describe(json_t **devices, json_t **notes,
                                 const struct backend_folders *given, struct reel_error *err) {
    const struct cuda_folders folders = folders_of(given);
    return gpu_describe(devices, notes, &folders, err);
}

static enum reel_status facts_of(struct gpu_limits *limits, const struct backend_devices *devices,
                                 const struct backend_folders *given, struct reel_error *err) {
    struct cuda_driver driver;
    struct cuda_gpu_facts facts;
    enum reel_status status = cuda_driver_open(&driver, given->cuda_dir, err);
    if (status != REEL_OK) return status;
    status = cuda_gpu_facts(&facts, &driver, devices->index[0], err);
    if (status == REEL_OK) gpu_limits_fill(limits, &facts, devices->n);
    cuda_driver_close(&driver);
    return status;
}

static enum reel_status measure(json_t **out, const struct backend_devices *devices,
                                const struct reel_limits_options *options, struct reel_error *err) {
    struct limits_sizes sizes;
    limits_sizes_full(&sizes);
    if (options->only_read) sizes.repeats = 3, sizes.read_ms = 15;
    return limits_measure(out, devices, options, &sizes, err);
}

static enum reel_status wishes_of(struct plan_options *wishes, int *narrow, const char *gpu_options,
                                  struct reel_error *err) {
    struct cuda_tuning tuning;
    cuda_tuning_defaults(&tuning);
    enum reel_status status = cuda_tuning_parse(&tuning, gpu_options, err);
    *wishes = tuning.plan, *narrow = tuning.narrow;
    return status;
}

const struct machine_ops cuda_machine = {
    .choose = choose,
    .has_driver = has_driver,
    .describe = describe,
    .gpu_limits = facts_of,
    .wishes = wishes_of,
    .option = cuda_tuning_option,
    .measure = measure,
    .meter_open = cuda_meter_open,
    .meter_read = cuda_meter_read,
    .meter_close = cuda_meter_close,
};

/* ---- tuning: bytes in flight, and where attention is split ---- */

enum { SPLIT_FROM, CAP_LAYERS, CAP_KV, CAP_HEAD, N_SETTINGS, SPLIT_LEAST = 64 };

static int settings(const struct backend *b, struct backend_setting list[BACKEND_MOST_SETTINGS],
                    int longest) {
    const struct plan *p = &b->plan;
    list[SPLIT_FROM] = (struct backend_setting){ .name = "split_from",
                                                 .value = p->split_from,
                                                 .least = SPLIT_LEAST,
                                                 .most = 2 * longest,
                                                 .doubles = true };
    list[CAP_LAYERS] =
        (struct backend_setting){ "cap_layers", p->cap_layers, 1, p->ring_slots, false };
    list[CAP_KV] = (struct backend_setting){ "cap_kv", p->cap_kv, 1, p->kv_slots, false };
    list[CAP_HEAD] = (struct backend_setting){ "cap_head", p->cap_head, 1, p->ring_slots, false };
    if (p->tape.group_sms == 1) /* there is nobody to split attention with */
        list[SPLIT_FROM].least = list[SPLIT_FROM].most = p->split_from;
    return N_SETTINGS;
}

static void set(struct backend *b, int setting, int value) {
    int *const all[N_SETTINGS] = { [SPLIT_FROM] = &b->plan.split_from,
                                   [CAP_LAYERS] = &b->plan.cap_layers,
                                   [CAP_KV] = &b->plan.cap_kv,
                                   [CAP_HEAD] = &b->plan.cap_head };
    *all[setting] = value;
}

static enum reel_status remember(const struct backend *b, const char *cache_dir,
                                 const char *gpu_options, double before, double after,
                                 struct buffer *path, struct reel_error *err) {
    mkdir(cache_dir, 0777); /* may exist; if it cannot be made, writing fails below */
    enum reel_status status =
        tuned_path(path, cache_dir, &b->gpu, &b->model->config, b->tuning.plan.formats, err);
    return status == REEL_OK ? tuned_write(path->bytes, gpu_options, before, after, err) : status;
}

const struct tuning_ops cuda_tuning_ops = { settings, set, remember };
