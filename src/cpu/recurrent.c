#include "cpu/recurrent.h"

#include "base/memory.h"

#include <string.h>

static void measure(struct recurrent *r, const struct model_config *c) {
    *r = (struct recurrent){ .n_layers = model_layer_count(c, LAYER_DELTA) };
    if (r->n_layers == 0) return;
    r->n_heads = c->delta.value_heads;
    r->key_dim = c->delta.key_dim;
    r->value_dim = c->delta.value_dim;
    r->value_stride = recurrent_value_stride(c);
    r->channels = model_delta_channels(c);
    r->window = c->delta.conv_width - 1;
    /* config limits keep these far below 2^64; whole cache lines, as layers have several writers */
    r->layer_floats = (size_t)r->n_heads * (size_t)r->key_dim * (size_t)r->value_stride +
                      (size_t)r->window * (size_t)r->channels;
    r->layer_floats = (r->layer_floats + RECURRENT_PAD - 1) / RECURRENT_PAD * RECURRENT_PAD;
    r->floats = r->layer_floats * (size_t)r->n_layers;
}

size_t recurrent_bytes(const struct model_config *config) {
    struct recurrent r;
    measure(&r, config);
    return r.floats * sizeof(float) * (1 + MEMORY_PLAN_CHECKPOINTS);
}

enum reel_status recurrent_open(struct recurrent *r, const struct model_config *config,
                                struct reel_error *err) {
    measure(r, config);
    if (r->n_layers == 0) return REEL_OK;
    /* Not mem_aligned: it writes every byte, and checkpoints should cost nothing until used. */
    enum reel_status status =
        mem_zeroed(&r->memory, recurrent_bytes(config) + 64, 1, "the recurrent state", err);
    if (status != REEL_OK) return status;
    float *values = (float *)(((uintptr_t)r->memory + 63) & ~(uintptr_t)63);
    r->live = values;
    r->keep = CHECKPOINT_NONE;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        r->checkpoints[i] = values + (size_t)(i + 1) * r->floats;
    return REEL_OK;
}

static size_t drafts_bytes(const struct recurrent *r) {
    return (size_t)r->n_layers * RECURRENT_DRAFTS * recurrent_draft_floats(r) * sizeof(float);
}

size_t recurrent_drafts_bytes(const struct model_config *config) {
    struct recurrent r;
    measure(&r, config);
    return drafts_bytes(&r);
}

enum reel_status recurrent_open_drafts(struct recurrent *r, struct reel_error *err) {
    if (r->n_layers == 0) return REEL_OK;
    return mem_zeroed(&r->drafts, drafts_bytes(r), 1, "the inputs of drafts", err);
}

void recurrent_release(struct recurrent *r) {
    if (!r) return;
    mem_free(r->memory);
    mem_free(r->drafts);
    *r = (struct recurrent){ 0 };
}

/* ---- evaluating ------------------------------------------------------------------------------ */

/* Whether the state of n positions is `live` and what is owed. */
static bool is_at_hand(const struct recurrent *r, int n) {
    const int end = r->positions.n_positions;
    return n <= end && n >= end - r->n_owed;
}

int recurrent_resume(const struct recurrent *r, int n) {
    if (r->n_layers == 0 || is_at_hand(r, n)) return n;
    return checkpoints_resume(&r->positions, n);
}

int recurrent_owed_before(const struct recurrent *r, int n) {
    return r->n_owed > 0 && is_at_hand(r, n) ? n - (r->positions.n_positions - r->n_owed) : 0;
}

void recurrent_paid(struct recurrent *r, int n) {
    r->positions.n_positions -= r->n_owed - n;
    r->n_owed = 0;
}

void recurrent_owe(struct recurrent *r, int n) {
    if (r->n_layers == 0) return;
    r->positions.n_positions += n;
    r->n_owed = n;
}

static void keep_live(struct recurrent *r, int position, int spared) {
    const int slot = checkpoints_keep(&r->positions, position, spared);
    if (slot >= 0) memcpy(r->checkpoints[slot], r->live, r->floats * sizeof *r->live);
}

void recurrent_keep_live(struct recurrent *r, int position) { keep_live(r, position, 0); }

void recurrent_begin(struct recurrent *r, int position, int n) {
    if (r->n_layers == 0) return;
    if (is_at_hand(r, position)) {
        r->n_owed -= r->positions.n_positions - position;
        r->positions.n_positions = position;
    }
    const int from = checkpoints_go(&r->positions, position);
    if (from != CHECKPOINT_NONE) r->n_owed = 0;
    if (from == CHECKPOINT_ZERO) memset(r->live, 0, r->floats * sizeof *r->live);
    if (from >= 0) memcpy(r->live, r->checkpoints[from], r->floats * sizeof *r->live);
    r->keep = CHECKPOINT_NONE;
    if (n == 1) return;
    keep_live(r, position, position);
    r->keep_at = position + n - 1;
    r->keep = checkpoints_take(&r->positions, r->keep_at, position);
}

void recurrent_run_begin(struct recurrent *r) {
    if (r->n_layers) r->positions.n_positions = -1;
}

float *recurrent_keep(const struct recurrent *r, int layer, int first, int n, int *after) {
    if (r->n_layers == 0 || r->keep < 0) return NULL;
    *after = r->keep_at - first;
    return *after > 0 && *after <= n ? recurrent_layer(r, r->checkpoints[r->keep], layer) : NULL;
}

void recurrent_run_end(struct recurrent *r, int position, int n) {
    if (r->n_layers == 0) return;
    const int end = position + n;
    r->positions.n_positions = end;
    r->n_owed = 0;
    if (r->keep >= 0 && r->keep_at <= end) {
        r->positions.position[r->keep] = r->keep_at;
        r->keep = CHECKPOINT_NONE;
    } else if (n == 1 && end % CHECKPOINT_STEP == 0) {
        keep_live(r, end, 0);
    }
}

/* ---- moving ---------------------------------------------------------------------------------- */

static const float *state_at(const struct recurrent *r, int n) {
    if (is_at_hand(r, n)) return r->live;
    return r->checkpoints[checkpoints_find(&r->positions, n)];
}

static void set_live(struct recurrent *r, int n, const void *from) {
    if (r->n_layers == 0) return;
    checkpoints_reset(&r->positions, n);
    r->keep = CHECKPOINT_NONE;
    r->n_owed = 0;
    if (n > 0)
        memcpy(r->live, from, r->floats * sizeof *r->live);
    else
        memset(r->live, 0, r->floats * sizeof *r->live);
}

size_t recurrent_save_bytes(const struct recurrent *r, int n) {
    return n > 0 ? r->floats * sizeof(float) : 0;
}

void recurrent_save(const struct recurrent *r, int n, void *bytes) {
    if (recurrent_save_bytes(r, n)) memcpy(bytes, state_at(r, n), recurrent_save_bytes(r, n));
}

void recurrent_load(struct recurrent *r, int n, const void *bytes) { set_live(r, n, bytes); }

void recurrent_copy(struct recurrent *dst, const struct recurrent *src, int n) {
    if (src->n_layers) set_live(dst, n, n > 0 ? state_at(src, n) : NULL);
}
