#include "cpu/recurrent.h"

#include "base/memory.h"

#include <pthread.h>
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

/* `front` bytes, and behind them room for a state. Not mem_aligned: it writes every byte, and what
 * is kept should cost nothing until used. */
static enum reel_status open_values(void *memory, float **values, const struct recurrent *r,
                                    size_t front, struct reel_error *err) {
    enum { LINE = 64 };
    char *block = NULL;
    enum reel_status status = mem_zeroed(&block, front + r->floats * sizeof **values + LINE, 1,
                                         "the recurrent state", err);
    if (status != REEL_OK) return status;
    memcpy(memory, &block, sizeof block);
    *values = (float *)(((uintptr_t)block + front + LINE - 1) & ~(uintptr_t)(LINE - 1));
    return REEL_OK;
}

/* ---- kept states ----------------------------------------------------------------------------- */

static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER; /* all holders and spares */

static enum reel_status open_kept(struct kept_state **out, const struct recurrent *r,
                                  struct reel_error *err) {
    float *values = NULL;
    enum reel_status status = open_values(out, &values, r, sizeof **out, err);
    if (status == REEL_OK) **out = (struct kept_state){ .values = values, .holders = 1 };
    return status;
}

/* One holder less: what it may write or free instead. The mutex is held. */
static struct kept_state *let_go(struct kept_state *kept) {
    struct kept_state *mine = kept;
    if (kept->holders > 1) {
        mine = kept->spare;
        kept->spare = mine->spare;
        mine->spare = NULL;
        kept->holders--;
    }
    return mine;
}

/* The values of a slot, to be written: a state that others hold too stays as it is. */
static float *own(struct recurrent *r, int slot) {
    pthread_mutex_lock(&holding);
    struct kept_state *mine = r->kept[slot] = let_go(r->kept[slot]);
    pthread_mutex_unlock(&holding);
    return mine->values;
}

/* dst holds what src has kept of its first n positions. */
static void share(struct recurrent *dst, const struct recurrent *src, int n) {
    pthread_mutex_lock(&holding);
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        const int position = src->positions.position[i];
        if (position == 0 || position > n) continue;
        struct kept_state *mine = let_go(dst->kept[i]), *kept = src->kept[i];
        mine->spare = kept->spare;
        kept->spare = mine;
        kept->holders++;
        dst->kept[i] = kept;
        dst->positions.position[i] = position;
    }
    pthread_mutex_unlock(&holding);
}

static void release_kept(struct recurrent *r) {
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        pthread_mutex_lock(&holding);
        struct kept_state *mine = r->kept[i] ? let_go(r->kept[i]) : NULL;
        pthread_mutex_unlock(&holding);
        mem_free(mine);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

enum reel_status recurrent_open(struct recurrent *r, const struct model_config *config,
                                struct reel_error *err) {
    measure(r, config);
    if (r->n_layers == 0) return REEL_OK;
    r->keep = CHECKPOINT_NONE;
    enum reel_status status = open_values(&r->memory, &r->live, r, 0, err);
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS && status == REEL_OK; i++)
        status = open_kept(&r->kept[i], r, err);
    if (status != REEL_OK) recurrent_release(r);
    return status;
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
    release_kept(r);
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
    if (slot >= 0) memcpy(own(r, slot), r->live, r->floats * sizeof *r->live);
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
    if (from >= 0) memcpy(r->live, r->kept[from]->values, r->floats * sizeof *r->live);
    r->keep = CHECKPOINT_NONE;
    if (n == 1) return;
    keep_live(r, position, position);
    r->keep_at = position + n - 1;
    r->keep = checkpoints_take(&r->positions, r->keep_at, position);
    own(r, r->keep);
}

void recurrent_run_begin(struct recurrent *r) {
    if (r->n_layers) r->positions.n_positions = -1;
}

float *recurrent_keep(const struct recurrent *r, int layer, int first, int n, int *after) {
    if (r->n_layers == 0 || r->keep < 0) return NULL;
    *after = r->keep_at - first;
    return *after > 0 && *after <= n ? recurrent_layer(r, r->kept[r->keep]->values, layer) : NULL;
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
    return r->kept[checkpoints_find(&r->positions, n)]->values;
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
    if (src->n_layers == 0) return;
    set_live(dst, n, n > 0 ? state_at(src, n) : NULL);
    share(dst, src, n);
}
