#include "cuda/run/cuda_delta.h"

#include "base/memory.h"
#include "cuda/run/cuda_memory.h"
#include "kernels/delta_layout.h"
#include "plan/plan_layout.h"

static void fill_gates(const struct delta_layout *d, const struct layer_weights *w, float *row,
                       uint16_t *to) {
    const struct matrix *const both[] = { &w->delta.a, &w->delta.b };
    for (int head = 0; head < d->value_heads; head++)
        for (int is_b = 0; is_b < 2; is_b++) {
            uint16_t *gate = to + delta_gate(d, w->nth, head, is_b);
            matrix_row_f32(both[is_b], head, row);
            for (int i = 0; i < d->hidden; i++)
                gate[i] = bf16_from_f32(row[i]);
        }
}

static void fill_constants(const struct delta_layout *d, const struct layer_weights *w,
                           float *all) {
    const int channels = delta_channels(d);
    float *to = all + (size_t)w->nth * (size_t)delta_constants(d);
    for (int head = 0; head < d->value_heads; head++) {
        to[head] = -w->delta.rate[head];
        to[delta_bias_offset(d) + head] = w->delta.dt_bias[head];
    }
    for (int i = 0; i < d->value_dim; i++)
        to[delta_norm_offset(d) + i] = w->delta.out_norm[i];
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < d->taps; i++)
            to[delta_taps_offset(d) + c * d->taps + i] =
                w->delta.taps[(size_t)i * (size_t)channels + (size_t)c];
}

static enum reel_status upload_table(struct backend *b, enum gpu_part part, cu_address *to,
                                     const void *from, struct reel_error *err) {
    enum reel_status status = cuda_part_alloc(&b->gpu, &b->memory, part, to, err);
    if (status != REEL_OK) return status;
    return cuda_upload(&b->gpu, *to, from, (size_t)b->memory.bytes[part], NULL, err);
}

enum reel_status cuda_delta_open(struct backend *b, struct reel_error *err) {
    const struct delta_layout d = plan_delta_layout(&b->plan);
    const uint64_t *bytes = b->memory.bytes;
    const struct weights *w = &b->model->weights;
    uint16_t *gates = NULL;
    float *constants = NULL, *row = NULL;
    if (b->plan.delta.n_layers == 0) return REEL_OK;
    enum reel_status status =
        mem_zeroed(&gates, (size_t)bytes[GPU_DELTA_GATES], 1, "the DeltaNets' gates", err);
    if (status == REEL_OK)
        status = mem_zeroed(&constants, (size_t)bytes[GPU_DELTA_CONSTANTS], 1,
                            "the DeltaNets' constants", err);
    if (status == REEL_OK) status = mem_zeroed(&row, (size_t)d.hidden, sizeof *row, "a row", err);
    for (int i = 0; i < w->n_layers && status == REEL_OK; i++) {
        if (w->layers[i].kind != LAYER_DELTA) continue;
        fill_gates(&d, &w->layers[i], row, gates);
        fill_constants(&d, &w->layers[i], constants);
    }
    if (status == REEL_OK) status = upload_table(b, GPU_DELTA_GATES, &b->delta_gates, gates, err);
    if (status == REEL_OK)
        status = upload_table(b, GPU_DELTA_CONSTANTS, &b->delta_constants, constants, err);
    mem_free(gates), mem_free(constants), mem_free(row);
    return status;
}
