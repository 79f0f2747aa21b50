#include "cuda/run/cuda_recurrent.h"

#include "base/memory.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "kernels/delta_layout.h"
#include "plan/plan_layout.h"

#include <string.h>

#include <stdio.h>

static const struct cuda_piece none = { .number = -1 };

enum reel_status cuda_recurrent_open_pool(struct backend *b, struct reel_error *err) {
    struct cuda_pool_use use = { .name = "recurrent states",
                                 .pieces = "states",
                                 .memory = gpu_part_text(GPU_STATES),
                                 .advice = "",
                                 .piece_bytes = gpu_state_stride(&b->plan),
                                 .poison = b->tuning.poison };
    return cuda_pool_open(&b->states, &b->gpu, &use, err);
}

/* ---- pieces ---- */

/* One state: the matrices, then the convolutions' windows. */
static uint64_t state_bytes(const struct backend *b) {
    return b->plan.delta.state_bytes + b->plan.delta.window_bytes;
}

static bool has_states(const struct backend_state *s) { return state_bytes(s->backend) > 0; }

static void give_back(struct backend_state *s, struct cuda_piece *piece) {
    if (piece->number >= 0) cuda_pool_give_back(&s->backend->states, &piece->number, 1);
    *piece = none;
}

static void hold(struct backend_state *s, struct cuda_piece *piece, const struct cuda_piece *held) {
    const struct cuda_piece next = *held;
    cuda_pool_share(&s->backend->states, &next.number, 1);
    give_back(s, piece);
    *piece = next;
}

/* What slots without a position hold. */
static void give_back_unused(struct backend_state *s) {
    struct cuda_recurrent *r = &s->recurrent;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (r->checkpoints.position[i] == 0) give_back(s, &r->kept[i]);
}

static void forget_kept(struct backend_state *s) {
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        s->recurrent.checkpoints.position[i] = 0;
    give_back_unused(s);
}

void cuda_recurrent_clear(struct backend_state *s) {
    checkpoints_reset(&s->recurrent.checkpoints, -1); /* the live state is of no position */
    give_back_unused(s);
    give_back(s, &s->recurrent.live);
}

void cuda_recurrent_open(struct backend_state *s) {
    s->recurrent.live = none;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        s->recurrent.kept[i] = none;
    checkpoints_reset(&s->recurrent.checkpoints, -1);
}

void cuda_recurrent_close(struct backend_state *s) {
    if (has_states(s)) cuda_recurrent_clear(s);
}

static bool owns_live(const struct backend_state *s) {
    const int number = s->recurrent.live.number;
    return number >= 0 && !cuda_pool_is_shared(&s->backend->states, number);
}

/* The live state gets a piece that nobody else holds, with what it has where it `goes_on`. Where
 * memory is short, kept states go: they only save work. */
static enum reel_status own_live(struct backend_state *s, bool goes_on, struct reel_error *err) {
    struct backend *b = s->backend;
    struct cuda_recurrent *r = &s->recurrent;
    struct cuda_piece own = none;
    if (owns_live(s)) return REEL_OK;
    enum reel_status status = cuda_pool_take(&b->states, &own, err);
    if (status == REEL_E_MEMORY) {
        err_clear(err);
        forget_kept(s);
        if (owns_live(s)) return REEL_OK;
        status = cuda_pool_take(&b->states, &own, err);
    }
    if (status == REEL_OK && goes_on && r->live.number >= 0)
        status = cuda_queue_copy(&b->gpu, own.at, r->live.at, (size_t)state_bytes(b), err);
    if (status == REEL_OK) hold(s, &r->live, &own);
    give_back(s, &own);
    return status;
}

/* ---- launches ---- */

int cuda_resume(const struct backend_state *s, int n) {
    if (n > s->n_positions) n = s->n_positions;
    return has_states(s) ? checkpoints_resume(&s->recurrent.checkpoints, n) : n;
}

enum reel_status cuda_recurrent_rewind(struct backend_state *s, int position,
                                       struct reel_error *err) {
    struct cuda_recurrent *r = &s->recurrent;
    enum reel_status status = REEL_OK;
    if (!has_states(s)) return REEL_OK;
    if (cuda_resume(s, position) != position)
        return err_set(err, REEL_E_STATE,
                       "the recurrent state of position %d is gone; that of %d is held", position,
                       cuda_resume(s, position));
    const int from = checkpoints_go(&r->checkpoints, position);
    if (from >= 0) hold(s, &r->live, &r->kept[from]);
    give_back_unused(s);
    if (from == CHECKPOINT_ZERO) status = own_live(s, false, err);
    if (from == CHECKPOINT_ZERO && status == REEL_OK)
        status =
            cuda_fill(&s->backend->gpu, r->live.at, 0, (size_t)state_bytes(s->backend), NULL, err);
    if (status != REEL_OK) r->checkpoints.n_positions = -1;
    return status;
}

enum reel_status cuda_recurrent_begin(struct backend_state *s, struct delta_args *args,
                                      struct reel_error *err) {
    struct cuda_recurrent *r = &s->recurrent;
    if (!has_states(s)) return REEL_OK;
    enum reel_status status = own_live(s, true, err);
    if (status != REEL_OK) return status;
    args->state = cuda_pointer(r->live.at);
    args->window = cuda_pointer(r->live.at + (cu_address)s->backend->plan.delta.state_bytes);
    r->checkpoints.n_positions = -1;
    return REEL_OK;
}

void cuda_recurrent_moved(struct backend_state *s, int position) {
    s->recurrent.checkpoints.n_positions = position;
}

void cuda_recurrent_advance(struct backend_state *s, int position) {
    cuda_recurrent_moved(s, position);
    if (position % CHECKPOINT_STEP == 0) cuda_recurrent_checkpoint(s, position, 0);
}

void cuda_recurrent_checkpoint(struct backend_state *s, int position, int spared) {
    struct cuda_recurrent *r = &s->recurrent;
    if (!has_states(s)) return;
    const int slot = checkpoints_keep(&r->checkpoints, position, spared);
    if (slot >= 0) hold(s, &r->kept[slot], &r->live);
}

int cuda_recurrent_reserve_slot(struct backend_state *s, int position, int spared,
                                struct prefill_delta *args) {
    const struct backend *b = s->backend;
    struct cuda_recurrent *r = &s->recurrent;
    if (!has_states(s) || position == 0 || checkpoints_find(&r->checkpoints, position) >= 0)
        return CHECKPOINT_NONE;
    const int slot = checkpoints_take(&r->checkpoints, position, spared);
    struct cuda_piece *piece = &r->kept[slot];
    give_back(s, piece);
    if (cuda_pool_take(&s->backend->states, piece, NULL) != REEL_OK) return CHECKPOINT_NONE;
    args->keep_state = cuda_pointer(piece->at);
    args->keep_window = cuda_pointer(piece->at + (cu_address)b->plan.delta.state_bytes);
    return slot;
}

void cuda_recurrent_commit_slot(struct backend_state *s, int slot, int position) {
    if (slot >= 0) s->recurrent.checkpoints.position[slot] = position;
}

/* ---- copies ---- */

/* With the state of the last position goes the one before it: who goes on from a prompt gives its
 * last token again, and whether its row serves instead shows only then. */
bool cuda_recurrent_has_before(const struct backend_state *s, int n) {
    return has_states(s) && n > 1 && checkpoints_find(&s->recurrent.checkpoints, n - 1) >= 0;
}

size_t cuda_recurrent_saved_bytes(const struct backend_state *s, int n, bool before) {
    return n > 0 ? (size_t)state_bytes(s->backend) * (before ? 2 : 1) : 0;
}

static const struct cuda_piece *state_of(const struct backend_state *s, int n) {
    const struct cuda_recurrent *r = &s->recurrent;
    if (r->checkpoints.n_positions == n) return &r->live;
    return &r->kept[checkpoints_find(&r->checkpoints, n)];
}

/* From float `first` on there are n of each of `heads`: copies GPU g's share of the heads. */
static void take_heads(unsigned char *to, const unsigned char *from, size_t first, size_t n,
                       int heads, int g, int n_gpus) {
    const size_t own = n * (size_t)(heads / n_gpus) * sizeof(float);
    const size_t at = first * sizeof(float) + (size_t)g * own;
    memcpy(to + at, from + at, own);
}

/* Each GPU keeps room for the whole state (delta_layout.h), in which its own heads' part counts. */
static void take_gpu(const struct backend *b, unsigned char *to, const unsigned char *from, int g) {
    const struct plan_delta *d = &b->plan.delta;
    const struct delta_layout at = plan_delta_layout(&b->plan);
    const size_t windows = (size_t)d->state_bytes / sizeof(float), past = (size_t)d->taps - 1;
    const size_t key = (size_t)d->key_dim * past, value = (size_t)d->value_dim * past;
    const int n = b->gpu.n;
    for (int nth = 0; nth < d->n_layers; nth++) {
        const size_t state = delta_state(&at, nth, 0, 0), q = windows + delta_window(&at, nth, 0);
        const size_t k = q + key * (size_t)d->key_heads, v = k + key * (size_t)d->key_heads;
        take_heads(to, from, state, (size_t)(d->value_dim * d->key_dim), d->value_heads, g, n);
        take_heads(to, from, q, key, d->key_heads, g, n);
        take_heads(to, from, k, key, d->key_heads, g, n);
        take_heads(to, from, v, value, d->value_heads, g, n);
    }
}

static enum reel_status save_state(const struct backend *b, const struct cuda_piece *piece,
                                   unsigned char *bytes, size_t n, struct reel_error *err) {
    unsigned char *others = NULL;
    enum reel_status status = cuda_download(&b->gpu, bytes, piece->at, n, NULL, err);
    if (status == REEL_OK && b->gpu.n > 1)
        status = mem_zeroed(&others, n, 1, "another GPU's states", err);
    for (int g = 1; g < b->gpu.n && status == REEL_OK; g++) {
        status = cuda_download_of(&b->gpu, g, others, piece->at, n, err);
        if (status == REEL_OK) take_gpu(b, bytes, others, g);
    }
    mem_free(others);
    return status;
}

enum reel_status cuda_recurrent_save(const struct backend_state *s, int n, void *bytes,
                                     struct reel_error *err) {
    const struct backend *b = s->backend;
    const size_t one = cuda_recurrent_saved_bytes(s, n, false);
    if (one == 0) return REEL_OK;
    enum reel_status status = save_state(b, state_of(s, n), bytes, one, err);
    if (status != REEL_OK || !cuda_recurrent_has_before(s, n)) return status;
    return save_state(b, state_of(s, n - 1), (unsigned char *)bytes + one, one, err);
}

enum reel_status cuda_recurrent_restore(struct backend_state *s, int n, const void *bytes,
                                        bool before, struct reel_error *err) {
    enum { BEFORE = 0 }; /* the slot of the state before the last position */
    const struct cuda_gpu *gpu = &s->backend->gpu;
    struct cuda_recurrent *r = &s->recurrent;
    const size_t one = cuda_recurrent_saved_bytes(s, n, false);
    if (!has_states(s)) return REEL_OK;
    cuda_recurrent_clear(s);
    if (one == 0) return REEL_OK;
    enum reel_status status = own_live(s, false, err);
    if (status == REEL_OK) status = cuda_upload(gpu, r->live.at, bytes, one, NULL, err);
    if (status == REEL_OK && before)
        status = cuda_pool_take(&s->backend->states, &r->kept[BEFORE], err);
    if (status == REEL_OK && before)
        status = cuda_upload(gpu, r->kept[BEFORE].at, (const unsigned char *)bytes + one, one, NULL,
                             err);
    if (status == REEL_OK && before) r->checkpoints.position[BEFORE] = n - 1;
    if (status != REEL_OK) {
        cuda_recurrent_clear(s);
        return status;
    }
    r->checkpoints.n_positions = n;
    cuda_recurrent_checkpoint(s, n, 0);
    return REEL_OK;
}

void cuda_recurrent_share(struct backend_state *dst, const struct backend_state *src, int n) {
    const struct cuda_recurrent *from = &src->recurrent;
    struct cuda_recurrent *to = &dst->recurrent;
    if (!has_states(dst)) return;
    cuda_recurrent_clear(dst);
    if (n == 0) return;
    hold(dst, &to->live, state_of(src, n));
    to->checkpoints.n_positions = n;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        const int position = from->checkpoints.position[i];
        if (position == 0 || position > n) continue;
        hold(dst, &to->kept[i], &from->kept[i]);
        to->checkpoints.position[i] = position;
    }
    cuda_recurrent_checkpoint(dst, n, 0);
}
