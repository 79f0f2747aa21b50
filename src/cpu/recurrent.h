/* What the DeltaNet layers of one session remember: for each layer and value head a matrix, and the
 * last inputs of its convolution; and the earlier states that are kept beside it
 * (plan/checkpoints.h). A session without such layers has an empty struct, and nothing here does
 * anything. */
#ifndef REEL_CPU_RECURRENT_H
#define REEL_CPU_RECURRENT_H

#include "model/model_config.h"
#include "plan/checkpoints.h"

#define RECURRENT_PAD 16 /* value_stride is a multiple of this */

struct recurrent {
    int n_layers, n_heads, key_dim, value_dim;
    int value_stride;     /* of a matrix's rows; beyond value_dim they are 0 */
    int channels, window; /* of the convolution; positions before the current one */
    size_t layer_floats, floats;
    struct checkpoints positions;
    float *live; /* f32 [layers, matrices and window], see recurrent_matrix, _window */
    float *checkpoints[MEMORY_PLAN_CHECKPOINTS];
    int keep, keep_at; /* slot filled by the run that passes keep_at, or CHECKPOINT_NONE */
    void *memory;
};

enum reel_status recurrent_open(struct recurrent *r, const struct model_config *config,
                                struct reel_error *err);
void recurrent_release(struct recurrent *r);

/* Floats from one row of a matrix to the next. */
static inline int recurrent_value_stride(const struct model_config *c) {
    return (c->delta.value_dim + RECURRENT_PAD - 1) / RECURRENT_PAD * RECURRENT_PAD;
}

/* Bytes of a session's states. */
size_t recurrent_bytes(const struct model_config *config);

/* The last position up to n from which evaluation can go on. */
int recurrent_resume(const struct recurrent *r, int n);

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

/* The layer's part of the checkpoint that a run of positions first .. first + n - 1 fills when
 * *after of them have passed; NULL: none. */
float *recurrent_keep(const struct recurrent *r, int layer, int first, int n, int *after);

/* The state after n positions, one that resume gives. */
size_t recurrent_save_bytes(const struct recurrent *r, int n);
void recurrent_save(const struct recurrent *r, int n, void *bytes);
void recurrent_load(struct recurrent *r, int n, const void *bytes);
void recurrent_copy(struct recurrent *dst, const struct recurrent *src, int n);

#endif
