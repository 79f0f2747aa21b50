#include "cuda/run/cuda_memory.h"

#include "cuda/run/cuda_backend.h"

void cuda_memory_plan(struct gpu_memory_plan *m, const struct backend *b, int context) {
    const struct cuda_tuning *t = &b->tuning;
    const struct gpu_memory_use use = { .prompts = t->prefill_from > 0,
                                        .short_prompts = t->short_positions > 0,
                                        .stage_kb = t->stage_kb,
                                        .profile_tokens = t->profile };
    gpu_memory_plan_fill(m, &b->plan, &b->model->config, context, &use);
}

static enum reel_status refuse_size(const struct gpu_memory_plan *m, enum gpu_part part,
                                    struct reel_error *err) {
    if ((size_t)m->bytes[part] == m->bytes[part]) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s does not fit in an address", gpu_part_text(part));
}

enum reel_status cuda_part_alloc(const struct cuda_gpu *gpu, const struct gpu_memory_plan *m,
                                 enum gpu_part part, cu_address *address, struct reel_error *err) {
    *address = 0;
    if (m->bytes[part] == 0) return REEL_OK;
    const enum reel_status status = refuse_size(m, part, err);
    if (status != REEL_OK) return status;
    return cuda_alloc(gpu, address, (size_t)m->bytes[part], gpu_part_text(part), err);
}

enum reel_status cuda_part_host_alloc(const struct cuda_gpu *gpu, const struct gpu_memory_plan *m,
                                      enum gpu_part part, void **host, cu_address *address,
                                      struct reel_error *err) {
    *host = NULL;
    if (m->bytes[part] == 0) return REEL_OK;
    const enum reel_status status = refuse_size(m, part, err);
    if (status != REEL_OK) return status;
    return cuda_host_alloc(gpu, host, address, (size_t)m->bytes[part], gpu_part_text(part), err);
}
