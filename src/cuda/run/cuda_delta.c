/* The Gated DeltaNets on the GPU, besides their tapes: constants of the model, and the states of
 * sessions, of which a few earlier ones are kept (plan/checkpoints.h). */
#include "cuda/run/cuda_delta.h"

#include "base/memory.h"
#include "cuda/run/cuda_memory.h"
#include "kernels/delta_layout.h"
#include "plan/plan_layout.h"

/* ---- of the model ---- */

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

/* ---- of a session ---- */

/* One state: the matrices, then the convolutions' windows. */
static uint64_t state_bytes(const struct backend *b) {
    return b->plan.delta.state_bytes + b->plan.delta.window_bytes;
}

static cu_address slot_address(const struct backend_state *s, int slot) {
    return s->recurrent + (cu_address)(gpu_state_stride(&s->backend->plan) * (1 + (uint64_t)slot));
}

void cuda_recurrent_args(const struct backend_state *s, struct delta_args *args) {
    const struct backend *b = s->backend;
    if (b->plan.delta.n_layers == 0) return;
    *args = (struct delta_args){
        .gates = cuda_pointer(b->delta_gates),
        .constants = cuda_pointer(b->delta_constants),
        .state = cuda_pointer(s->recurrent),
        .window = cuda_pointer(s->recurrent + (cu_address)b->plan.delta.state_bytes),
    };
}

int cuda_resume(const struct backend_state *s, int n) {
    if (n > s->n_positions) n = s->n_positions;
    return s->backend->plan.delta.n_layers ? checkpoints_resume(&s->checkpoints, n) : n;
}

enum reel_status cuda_recurrent_rewind(struct backend_state *s, int position,
                                       struct reel_error *err) {
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const uint64_t n = state_bytes(s->backend);
    if (n == 0) return REEL_OK;
    if (cuda_resume(s, position) != position)
        return err_set(err, REEL_E_STATE,
                       "the recurrent state of position %d is gone; that of %d is held", position,
                       cuda_resume(s, position));
    const int from = checkpoints_go(&s->checkpoints, position);
    enum reel_status status = REEL_OK;
    if (from == CHECKPOINT_ZERO) status = cuda_fill(gpu, s->recurrent, 0, n, NULL, err);
    if (from >= 0) status = cuda_copy(gpu, s->recurrent, slot_address(s, from), n, NULL, err);
    if (status != REEL_OK) s->checkpoints.n_positions = -1;
    return status;
}

enum reel_status cuda_recurrent_checkpoint(struct backend_state *s, int position, int spared,
                                           struct reel_error *err) {
    const uint64_t n = state_bytes(s->backend);
    if (n == 0) return REEL_OK;
    const int slot = checkpoints_keep(&s->checkpoints, position, spared);
    if (slot < 0) return REEL_OK;
    enum reel_status status =
        cuda_copy(&s->backend->gpu, slot_address(s, slot), s->recurrent, n, NULL, err);
    if (status != REEL_OK) s->checkpoints.position[slot] = 0;
    return status;
}

int cuda_recurrent_reserve_slot(struct backend_state *s, int position, int spared,
                                struct prefill_delta *args) {
    const struct backend *b = s->backend;
    if (b->plan.delta.n_layers == 0 || position == 0 ||
        checkpoints_find(&s->checkpoints, position) >= 0)
        return CHECKPOINT_NONE;
    const int slot = checkpoints_take(&s->checkpoints, position, spared);
    const cu_address at = slot_address(s, slot);
    args->keep_state = cuda_pointer(at);
    args->keep_window = cuda_pointer(at + (cu_address)b->plan.delta.state_bytes);
    return slot;
}

void cuda_recurrent_commit_slot(struct backend_state *s, int slot, int position) {
    if (slot >= 0) s->checkpoints.position[slot] = position;
}

void cuda_recurrent_invalidate(struct backend_state *s) { s->checkpoints.n_positions = -1; }

enum reel_status cuda_recurrent_advance(struct backend_state *s, int position,
                                        struct reel_error *err) {
    s->checkpoints.n_positions = position;
    return position % CHECKPOINT_STEP ? REEL_OK : cuda_recurrent_checkpoint(s, position, 0, err);
}

/* ---- copies ---- */

/* With the state of the last position goes the one before it: who goes on from a prompt gives its
 * last token again, and whether its row serves instead shows only then. */
bool cuda_recurrent_has_before(const struct backend_state *s, int n) {
    return state_bytes(s->backend) > 0 && n > 1 && checkpoints_find(&s->checkpoints, n - 1) >= 0;
}

size_t cuda_recurrent_saved_bytes(const struct backend_state *s, int n, bool before) {
    return n > 0 ? (size_t)state_bytes(s->backend) * (before ? 2 : 1) : 0;
}

static cu_address state_address(const struct backend_state *s, int n) {
    if (s->checkpoints.n_positions == n) return s->recurrent;
    return slot_address(s, checkpoints_find(&s->checkpoints, n));
}

/* The slot of an emptied session that takes the state before the last position. */
enum { BEFORE = 0 };
static void set_restored(struct backend_state *s, int n, bool before) {
    s->checkpoints.n_positions = n;
    if (before) s->checkpoints.position[BEFORE] = n - 1;
}

enum reel_status cuda_recurrent_save(const struct backend_state *s, int n, void *bytes,
                                     struct reel_error *err) {
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const size_t one = cuda_recurrent_saved_bytes(s, n, false);
    if (one == 0) return REEL_OK;
    enum reel_status status = cuda_download(gpu, bytes, state_address(s, n), one, NULL, err);
    if (status != REEL_OK || !cuda_recurrent_has_before(s, n)) return status;
    return cuda_download(gpu, (unsigned char *)bytes + one, state_address(s, n - 1), one, NULL,
                         err);
}

enum reel_status cuda_recurrent_restore(struct backend_state *s, int n, const void *bytes,
                                        bool before, struct reel_error *err) {
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const size_t one = cuda_recurrent_saved_bytes(s, n, false);
    checkpoints_reset(&s->checkpoints, -1);
    if (one == 0) return REEL_OK;
    enum reel_status status = cuda_upload(gpu, s->recurrent, bytes, one, NULL, err);
    if (status == REEL_OK && before)
        status = cuda_upload(gpu, slot_address(s, BEFORE), (const unsigned char *)bytes + one, one,
                             NULL, err);
    if (status == REEL_OK) set_restored(s, n, before);
    return status;
}

enum reel_status cuda_recurrent_copy(struct backend_state *dst, const struct backend_state *src,
                                     int n, struct reel_error *err) {
    const struct cuda_gpu *gpu = &dst->backend->gpu;
    const size_t one = cuda_recurrent_saved_bytes(src, n, false);
    const bool before = cuda_recurrent_has_before(src, n);
    checkpoints_reset(&dst->checkpoints, -1);
    if (one == 0) return REEL_OK;
    enum reel_status status = cuda_copy(gpu, dst->recurrent, state_address(src, n), one, NULL, err);
    if (status == REEL_OK && before)
        status =
            cuda_copy(gpu, slot_address(dst, BEFORE), state_address(src, n - 1), one, NULL, err);
    if (status == REEL_OK) set_restored(dst, n, before);
    return status;
}
