#include "cpu/kv_cache.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

static size_t round_up(int n, int unit) { return (size_t)((n + unit - 1) / unit) * (size_t)unit; }

enum reel_status kv_cache_open(struct kv_cache *kv, int n_layers, int n_kv_heads, int head_dim,
                               int max_positions, struct reel_error *err) {
    size_t positions = round_up(max_positions, TILE_ROWS);
    *kv = (struct kv_cache){
        .n_layers = n_layers,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .v_width = kv_cache_v_width(head_dim),
        .max_positions = (int)positions,
    };
    kv->k_values = positions * (size_t)head_dim;
    kv->v_values = positions * (size_t)kv->v_width;
    size_t heads = (size_t)n_layers * (size_t)n_kv_heads, values = 0, bytes = 0;
    if (!size_mul(heads, kv->k_values + kv->v_values, &values) || !size_mul(values, 2, &bytes) ||
        !size_add(bytes, 64, &bytes))
        return err_memory(err, "the KV cache", SIZE_MAX);
    /* Not mem_aligned: it writes every byte, and these pages should stay untouched until used. */
    enum reel_status status = mem_zeroed(&kv->memory, bytes, 1, "the KV cache", err);
    if (status != REEL_OK) return status;
    kv->values = (uint16_t *)(((uintptr_t)kv->memory + 63) & ~(uintptr_t)63);
    return REEL_OK;
}

void kv_cache_release(struct kv_cache *kv) {
    if (!kv) return;
    mem_free(kv->memory);
    *kv = (struct kv_cache){ 0 };
}

size_t kv_cache_position_bytes(int n_layers, int n_kv_heads, int head_dim) {
    return (size_t)n_layers * (size_t)n_kv_heads *
           ((size_t)head_dim + (size_t)kv_cache_v_width(head_dim)) * sizeof(uint16_t);
}

/* Where element 2 d of a position's K, and element d of its V, lie. */
static size_t k_at(const struct kv_cache *kv, int position, int pair) {
    return (size_t)(position / PANEL_LANES) * PANEL_LANES * (size_t)kv->head_dim +
           (size_t)pair * 2 * PANEL_LANES + (size_t)(position % PANEL_LANES) * 2;
}
static size_t v_at(const struct kv_cache *kv, int position, int d) {
    return (size_t)(position / 2) * 2 * (size_t)kv->v_width + (size_t)d * 2 +
           (size_t)(position & 1);
}

void kv_cache_write(struct kv_cache *kv, int layer, int head, int position, const uint16_t *k,
                    const uint16_t *v) {
    uint16_t *to_k = kv_cache_k(kv, layer, head) + k_at(kv, position, 0);
    for (int i = 0; i < kv->head_dim / 2; i++)
        memcpy(to_k + (size_t)i * 2 * PANEL_LANES, k + 2 * (size_t)i, 4);
    uint16_t *to_v = kv_cache_v(kv, layer, head) + v_at(kv, position, 0);
    for (int d = 0; d < kv->head_dim; d++) {
        to_v[2 * d] = v[d];
        if (!(position & 1)) to_v[2 * d + 1] = 0;
    }
}

size_t kv_cache_save_bytes(const struct kv_cache *kv, int n) {
    return (size_t)kv->n_layers * (size_t)kv->n_kv_heads * (size_t)n * 2 * (size_t)kv->head_dim *
           sizeof(uint16_t);
}

void kv_cache_save(const struct kv_cache *kv, int n, void *bytes) {
    unsigned char *out = bytes;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int position = 0; position < n; position++) {
                const uint16_t *k = kv_cache_k(kv, layer, head);
                const uint16_t *v = kv_cache_v(kv, layer, head);
                for (int i = 0; i < kv->head_dim / 2; i++, out += 4)
                    memcpy(out, k + k_at(kv, position, i), 4);
                for (int d = 0; d < kv->head_dim; d++, out += 2)
                    memcpy(out, v + v_at(kv, position, d), 2);
            }
}

void kv_cache_load(struct kv_cache *kv, int n, const void *bytes) {
    const unsigned char *in = bytes;
    const size_t row = (size_t)kv->head_dim * sizeof(uint16_t);
    uint16_t k[MODEL_MAX_HEAD_DIM], v[MODEL_MAX_HEAD_DIM];
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int position = 0; position < n; position++, in += 2 * row) {
                memcpy(k, in, row);
                memcpy(v, in + row, row);
                kv_cache_write(kv, layer, head, position, k, v);
            }
}

void kv_cache_copy(struct kv_cache *dst, const struct kv_cache *src, int n) {
    /* Whole panels and pairs: what lies beyond n in them is finite and masked. */
    size_t k_bytes = round_up(n, PANEL_LANES) * (size_t)src->head_dim * sizeof(uint16_t);
    size_t v_bytes = round_up(n, 2) * (size_t)src->v_width * sizeof(uint16_t);
    for (int layer = 0; layer < src->n_layers; layer++)
        for (int head = 0; head < src->n_kv_heads; head++) {
            memcpy(kv_cache_k(dst, layer, head), kv_cache_k(src, layer, head), k_bytes);
            memcpy(kv_cache_v(dst, layer, head), kv_cache_v(src, layer, head), v_bytes);
        }
}
