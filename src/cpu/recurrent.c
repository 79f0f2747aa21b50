#include "cpu/recurrent.h"

#include "base/memory.h"

#include <stdlib.h>
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
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        r->checkpoints[i].values = values + (size_t)(i + 1) * r->floats;
    return REEL_OK;
}

void recurrent_release(struct recurrent *r) {
    if (!r) return;
    free(r->memory);
    *r = (struct recurrent){ 0 };
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static float *find(const struct recurrent *r, int position) {
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (r->checkpoints[i].position == position) return r->checkpoints[i].values;
    return NULL;
}

int recurrent_resume(const struct recurrent *r, int n) {
    if (r->n_layers == 0) return n;
    int best = r->n_positions >= 0 && r->n_positions <= n ? r->n_positions : 0;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        int position = r->checkpoints[i].position;
        if (position <= n && position > best) best = position;
    }
    return best;
}

/* What losing checkpoint i costs: so many positions would begin so much earlier, which matters less
 * the further they lie from `end`. Those kept lie about evenly on a logarithm's scale. */
static double worth(const struct recurrent *r, int i, int end) {
    int at = r->checkpoints[i].position, before = 0, after = end;
    for (int j = 0; j < MEMORY_PLAN_CHECKPOINTS; j++) {
        int other = r->checkpoints[j].position;
        if (other < at && other > before) before = other;
        if (other > at && other < after) after = other;
    }
    return (double)(after - at) * (double)(at - before) / (double)(end - at + 1);
}

/* Room for a checkpoint of `end`, beyond all others, free until it is filled. The one at `spared`
 * stays. */
static struct recurrent_checkpoint *take(struct recurrent *r, int end, int spared) {
    struct recurrent_checkpoint *best = NULL;
    double least = 0;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        struct recurrent_checkpoint *c = &r->checkpoints[i];
        if (c->position && c->position == spared) continue;
        double value = c->position ? worth(r, i, end) : -1;
        if (best && value >= least) continue;
        best = c;
        least = value;
    }
    best->position = 0;
    return best;
}

static void keep_live(struct recurrent *r, int position, int spared) {
    if (position == 0 || find(r, position)) return;
    struct recurrent_checkpoint *c = take(r, position, spared);
    memcpy(c->values, r->live, r->floats * sizeof *r->live);
    c->position = position;
}

/* ---- evaluating ------------------------------------------------------------------------------ */

void recurrent_begin(struct recurrent *r, int position, int n) {
    if (r->n_layers == 0) return;
    const float *held = find(r, position);
    if (r->n_positions != position && position == 0)
        memset(r->live, 0, r->floats * sizeof *r->live);
    else if (r->n_positions != position && held)
        memcpy(r->live, held, r->floats * sizeof *r->live);
    r->n_positions = position;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (r->checkpoints[i].position > position) r->checkpoints[i].position = 0;
    r->keep = NULL;
    if (n == 1) return;
    keep_live(r, position, position);
    r->keep_at = position + n - 1;
    r->keep = take(r, r->keep_at, position);
}

void recurrent_run_begin(struct recurrent *r) {
    if (r->n_layers) r->n_positions = -1;
}

float *recurrent_keep(const struct recurrent *r, int layer, int first, int n, int *after) {
    if (!r->keep) return NULL;
    *after = r->keep_at - first;
    return *after > 0 && *after <= n ? recurrent_layer(r, r->keep->values, layer) : NULL;
}

void recurrent_run_end(struct recurrent *r, int position, int n) {
    if (r->n_layers == 0) return;
    const int end = position + n;
    r->n_positions = end;
    if (r->keep && r->keep_at <= end) {
        r->keep->position = r->keep_at;
        r->keep = NULL;
    } else if (n == 1 && end % RECURRENT_STEP == 0) {
        keep_live(r, end, 0);
    }
}

/* ---- moving ---------------------------------------------------------------------------------- */

static const float *state_at(const struct recurrent *r, int n) {
    return r->n_positions == n ? r->live : find(r, n);
}

static void set_live(struct recurrent *r, int n, const void *from) {
    if (r->n_layers == 0) return;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        r->checkpoints[i].position = 0;
    r->keep = NULL;
    r->n_positions = n;
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
    set_live(dst, n, n > 0 ? state_at(src, n) : NULL);
}
