/* One session's keys and values, laid out as the panels that kernels.gemm reads, so that attention
 * is two matrix products over memory in the order it lies:
 *   K  bf16 [positions / 16, head_dim / 2, 16 positions, 2]   scores = q . K
 *   V  bf16 [positions / 2, v_width, 2 positions]             out = p . V
 * for each layer and KV head. In the forms of 8 bits (model/kv_form.h) codes lie in the same order,
 * a byte each, and behind them two scales of each position; attention widens the codes of some
 * positions at a time to bf16. What is written is rounded to bf16 first in every form, as all
 * backends do.
 *
 * Pages never written are never touched, so a long context costs memory
 * only as it fills, and truncating gives back what whole KV_CHUNKs of positions took.
 *
 * A copy of KV_CHUNK positions or more shares their memory with what it was copied from: both
 * become views of a file (base/lazy_memory.h), and take memory of their own for the pages that they
 * write from then on. Nothing of that shows to who reads keys and values. */
#ifndef REEL_CPU_KV_CACHE_H
#define REEL_CPU_KV_CACHE_H

#include "base/error.h"
#include "base/lazy_memory.h"
#include "cpu/kernels.h"
#include "model/kv_form.h"

enum { KV_CHUNK = 256 };

struct kv_cache {
    int n_layers, n_kv_heads, head_dim;
    enum kv_form form;
    int v_width;         /* head_dim, up to whole panels */
    int max_positions;   /* up to whole tiles */
    size_t k_row, v_row; /* bytes of a position's K and V, of one KV head */
    size_t scale_row;    /* bytes of one of its two scales; 0 in bf16 */
    const float *given;  /* f32 [layers, kv_heads, 2] scales of K and V that the model's file has, 0
                            where it has none; NULL: it has none at all; borrowed */
    struct lazy_memory memory;
    int end;    /* from here on nothing was written, or all was given back */
    int shared; /* the first positions, which are as in memory.file */
};

struct kv_shape {
    int n_layers, n_kv_heads, head_dim; /* head_dim is even */
    enum kv_form form;
    const float *given; /* as in kv_cache */
};

enum reel_status kv_cache_open(struct kv_cache *kv, const struct kv_shape *shape, int max_positions,
                               struct reel_error *err);
void kv_cache_release(struct kv_cache *kv);

/* Bytes of one position in all layers. */
size_t kv_cache_position_bytes(const struct kv_shape *shape);

static inline int kv_cache_v_width(int head_dim) {
    return (head_dim + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES;
}

/* The first byte of a layer's and KV head's keys, values, and scales: f32 [2, max_positions], those
 * of K first. */
static inline unsigned char *kv_cache_k(const struct kv_cache *kv, int layer, int head) {
    return kv->memory.bytes + ((size_t)layer * (size_t)kv->n_kv_heads + (size_t)head) *
                                  (size_t)kv->max_positions *
                                  (kv->k_row + kv->v_row + 2 * kv->scale_row);
}
static inline unsigned char *kv_cache_v(const struct kv_cache *kv, int layer, int head) {
    return kv_cache_k(kv, layer, head) + (size_t)kv->max_positions * kv->k_row;
}
static inline float *kv_cache_scales(const struct kv_cache *kv, int layer, int head, int which) {
    unsigned char *scales = kv_cache_v(kv, layer, head) + (size_t)kv->max_positions * kv->v_row;
    return (float *)(void *)(scales + (size_t)which * (size_t)kv->max_positions * kv->scale_row);
}

/* Before positions from `position` to end - 1 are written. */
void kv_cache_begin(struct kv_cache *kv, int position, int end);
/* Positions from n on are not needed any more. */
void kv_cache_keep(struct kv_cache *kv, int n);

/* Stores one position of one layer and head, bf16 [head_dim] each. Positions are written in
 * ascending order: an even one clears its odd neighbour in V, which the product reads. */
void kv_cache_write(struct kv_cache *kv, int layer, int head, int position, const uint16_t *k,
                    const uint16_t *v);

/* The first n positions as bf16 or codes [layers, kv_heads, n, 2, head_dim], whatever the layout
 * here; behind each position's codes are its two scales. */
size_t kv_cache_save_bytes(const struct kv_cache *kv, int n);
void kv_cache_save(const struct kv_cache *kv, int n, void *bytes);
void kv_cache_load(struct kv_cache *kv, int n, const void *bytes);
/* Both caches have the same shape but for max_positions; n fits both. src goes on holding its first
 * `held` positions, n or more, but they may lie elsewhere. */
void kv_cache_copy(struct kv_cache *dst, struct kv_cache *src, int held, int n);

#endif
