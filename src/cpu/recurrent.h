/* What the DeltaNet layers of one session remember: for each layer and value head a matrix, and the
 * last inputs of its convolution; and the earlier states that are kept beside it
 * (plan/checkpoints.h), which a session shares with its copies. A session without such layers has
 * an empty struct, and nothing here does anything. */
#ifndef REEL_CPU_RECURRENT_H
#define REEL_CPU_RECURRENT_H

#include "model/model_config.h"
#include "plan/checkpoints.h"

#define RECURRENT_PAD 16 /* value_stride is a multiple of this */

/* Memory for a state that is kept. Copies of a session hold it together, until one of them writes
 * its slot: who came later brought memory of its own along, so that none is allocated then. */
struct kept_state {
    float *values;            /* as `live` */
    int holders;              /* sessions */
    struct kept_state *spare; /* what the holders brought along, but for one: a list */
};

struct recurrent {
    int n_layers, n_heads, key_dim, value_dim;
    int value_stride;     /* of a matrix's rows; beyond value_dim they are 0 */
    int channels, window; /* of the convolution; positions before the current one */
    size_t layer_floats, floats;
    struct checkpoints positions;
    float *live; /* f32 [layers, matrices and window], see recurrent_matrix, _window */
    struct kept_state *kept[MEMORY_PLAN_CHECKPOINTS]; /* of the slots of `positions` */
    int keep, keep_at; /* slot filled by the run that passes keep_at, or CHECKPOINT_NONE */
    void *memory;
    /* Drafts of the last pass that were right: the last n_owed positions that the state is said to
     * have seen. `live` is that before them, until a run goes on from there (delta_drafts.h). */
    int n_owed;
    float *drafts; /* what recurrent_draft_input and _row point to; NULL: no drafts are taken */
};

/* Drafts of a state in one pass at most: it has a column itself. */
enum { RECURRENT_DRAFTS = 7 };

enum reel_status recurrent_open(struct recurrent *r, const struct model_config *config,
                                struct reel_error *err);
void recurrent_release(struct recurrent *r);
/* Memory for drafts, untouched before there are any; its size. */
enum reel_status recurrent_open_drafts(struct recurrent *r, struct reel_error *err);
size_t recurrent_drafts_bytes(const struct model_config *config);

/* Floats from one row of a matrix to the next. */
static inline int recurrent_value_stride(const struct model_config *c) {
    return (c->delta.value_dim + RECURRENT_PAD - 1) / RECURRENT_PAD * RECURRENT_PAD;
}

/* Bytes of a session's states. */
size_t recurrent_bytes(const struct model_config *config);

/* The last position up to n from which evaluation can go on. */
int recurrent_resume(const struct recurrent *r, int n);

/* How many of the owed positions lie before n; 0 also where n is none of them. */
int recurrent_owed_before(const struct recurrent *r, int n);
/* The first n owed positions are of `live` now, and no other is owed. */
void recurrent_paid(struct recurrent *r, int n);
/* Of the drafts of the run that has ended n were right: they are owed. */
void recurrent_owe(struct recurrent *r, int n);
/* The live state, of so many positions of which none is owed, becomes a checkpoint. */
void recurrent_keep_live(struct recurrent *r, int position);

/* Goes to `position`, one that resume gives, before n positions are evaluated from there. */
void recurrent_begin(struct recurrent *r, int position, int n);
/* Around each run of these positions; one that breaks off is not ended. */
void recurrent_run_begin(struct recurrent *r);
void recurrent_run_end(struct recurrent *r, int position, int n);

/* One layer's part of `values` (live, or a checkpoint's); in it f32 [key_dim, value_stride] of a
 * head, and f32 [window, channels], oldest first. */
static inline float *recurrent_layer(const struct recurrent *r, float *values, int layer) {
    return values + (size_t)layer * r->layer_floats;
}
static inline float *recurrent_matrix(const struct recurrent *r, float *layer, int head) {
    return layer + (size_t)head * (size_t)r->key_dim * (size_t)r->value_stride;
}
static inline float *recurrent_window(const struct recurrent *r, float *layer) {
    return recurrent_matrix(r, layer, r->n_heads);
}

/* Of draft i in a layer: the inputs of the convolution, f32 [channels]; and what came of them, with
 * the inputs of the gates, f32 [channels, heads (b), heads (a)]. */
static inline size_t recurrent_draft_floats(const struct recurrent *r) {
    return 2 * ((size_t)r->channels + (size_t)r->n_heads);
}
static inline float *recurrent_draft_input(const struct recurrent *r, int layer, int i) {
    return r->drafts + (size_t)(layer * RECURRENT_DRAFTS + i) * recurrent_draft_floats(r);
}
static inline float *recurrent_draft_row(const struct recurrent *r, int layer, int i) {
    return recurrent_draft_input(r, layer, i) + r->channels;
}

/* The layer's part of the checkpoint that a run of positions first .. first + n - 1 fills when
 * *after of them have passed; NULL: none. */
float *recurrent_keep(const struct recurrent *r, int layer, int first, int n, int *after);

/* The state after n positions, one that resume gives, without those that are owed: the caller pays
 * them. */
size_t recurrent_save_bytes(const struct recurrent *r, int n);
void recurrent_save(const struct recurrent *r, int n, void *bytes);
void recurrent_load(struct recurrent *r, int n, const void *bytes);
/* The copy shares the states that src has kept of its first n positions. */
void recurrent_copy(struct recurrent *dst, const struct recurrent *src, int n);

#endif
