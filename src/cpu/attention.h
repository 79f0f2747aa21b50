/* Attention of the query heads that share one KV head, over a range of positions: two matrix
 * products with an online softmax between them (Milakov and Gimelshein 2018; Dao et al. 2022). Of a
 * cache in 8 bits the products take codes; K's scale multiplies the score, V's the weight. */
#ifndef REEL_CPU_ATTENTION_H
#define REEL_CPU_ATTENTION_H

#include "cpu/kv_cache.h"

/* Positions whose scores are held at once. Results depend on it (order of sums), not on threads. */
#define ATTENTION_STEP 256

struct attention {
    const struct kernels *kernels;
    const struct kv_cache *kv;
    int layer, kv_head;
    float scale;
    int rows;          /* tokens * group: row r belongs to token r / group */
    int group;         /* query heads of this KV head */
    int position;      /* of token 0 in the cache: token t sees nothing behind position + t */
    const uint16_t *q; /* bf16 [rows, head_dim], normed and rotated */
    float *out;        /* f32 [rows, v_width]: not yet divided by sum */
    float *max, *sum;  /* [rows] */
    float *scores;     /* scratch [rows, ATTENTION_STEP] */
    uint16_t *p;       /* scratch [rows, ATTENTION_STEP] */
    uint16_t *wide;    /* scratch [ATTENTION_STEP, v_width]; a cache in bf16 needs none */
};

/* Fills out, max and sum for positions first .. last - 1 (of those that each row sees; for row 0 at
 * least one). `first` is a multiple of PANEL_LANES. */
void attention_run(const struct attention *a, int first, int last);

#endif
