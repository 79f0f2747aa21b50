#include "cpu/kv_cache.h"

#include "base/checked.h"

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
    if (!size_mul(heads, kv->k_values + kv->v_values, &values) || !size_mul(values, 2, &bytes))
        return err_memory(err, "the KV cache", SIZE_MAX);
    enum reel_status status = lazy_open(&kv->memory, bytes, "the KV cache", err);
    if (status == REEL_OK) kv->values = (uint16_t *)(void *)kv->memory.bytes;
    return status;
}

void kv_cache_release(struct kv_cache *kv) {
    if (!kv) return;
    lazy_release(&kv->memory);
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
    kv_cache_begin(kv, 0, n);
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

/* ---- memory ---- */

void kv_cache_begin(struct kv_cache *kv, int position, int end) {
    if (position < kv->shared) kv->shared = position;
    if (end > kv->end) kv->end = end;
}

/* Calls `of` for the bytes of each layer's and head's K and V from position `from` to end - 1, both
 * of them even multiples of whole panels: where they begin in the cache's memory, and how many. */
typedef bool range_fn(void *user, size_t at, size_t n_bytes);
static bool each_range(const struct kv_cache *kv, size_t from, size_t end, range_fn *of,
                       void *user) {
    const size_t k_row = (size_t)kv->head_dim * sizeof(uint16_t);
    const size_t v_row = (size_t)kv->v_width * sizeof(uint16_t);
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            const size_t k = (size_t)(kv_cache_k(kv, layer, head) - kv->values) * sizeof(uint16_t);
            const size_t v = (size_t)(kv_cache_v(kv, layer, head) - kv->values) * sizeof(uint16_t);
            if (!of(user, k + from * k_row, (end - from) * k_row) ||
                !of(user, v + from * v_row, (end - from) * v_row))
                return false;
        }
    return true;
}

static bool give_back(void *user, size_t at, size_t n_bytes) {
    lazy_give_back(user, at, at + n_bytes);
    return true;
}

void kv_cache_keep(struct kv_cache *kv, int n) {
    const size_t from = round_up(n, KV_CHUNK), all = round_up(kv->max_positions, PANEL_LANES);
    const size_t end = round_up(kv->end, PANEL_LANES);
    if (from >= end) return;
    each_range(kv, from, end < all ? end : all, give_back, &kv->memory);
    kv->end = (int)from;
}

/* ---- copies ---- */

struct freezing {
    struct lazy_file *file;
    const struct lazy_memory *memory;
};

static bool freeze(void *user, size_t at, size_t n_bytes) {
    const struct freezing *f = user;
    return lazy_file_write(f->file, at, f->memory->bytes + at, n_bytes);
}

/* The first n positions, which are all that the cache holds, go into a file, and the cache becomes
 * a view of it. */
static bool make_shared(struct kv_cache *kv, int n) {
    struct freezing f = { lazy_file_open(&kv->memory), &kv->memory };
    const bool good = f.file && each_range(kv, 0, round_up(n, PANEL_LANES), freeze, &f) &&
                      lazy_view(&kv->memory, f.file);
    lazy_file_release(f.file);
    if (!good) return false;
    kv->values = (uint16_t *)(void *)kv->memory.bytes;
    kv->shared = kv->end = n;
    return true;
}

/* dst becomes a view of what src has shared, perhaps for this. Returns how many of the first n
 * positions dst holds then. */
static int share(struct kv_cache *dst, struct kv_cache *src, int held, int n) {
    if (n < KV_CHUNK || dst->max_positions != src->max_positions) return 0;
    if (src->shared + KV_CHUNK <= n && !make_shared(src, held)) return 0;
    if (src->shared == 0 || !lazy_view(&dst->memory, src->memory.file)) return 0;
    dst->values = (uint16_t *)(void *)dst->memory.bytes;
    dst->shared = src->shared < n ? src->shared : n;
    dst->end = dst->shared;
    return dst->shared;
}

static void copy_rest(struct kv_cache *dst, const struct kv_cache *src, int first, int n) {
    /* Whole panels and pairs: what lies beyond n in them is finite and masked. */
    const size_t from = (size_t)(first / PANEL_LANES) * PANEL_LANES;
    const size_t k_bytes = (round_up(n, PANEL_LANES) - from) * (size_t)src->head_dim * 2;
    const size_t v_bytes = (round_up(n, 2) - from) * (size_t)src->v_width * 2;
    const size_t k = from * (size_t)src->head_dim, v = from * (size_t)src->v_width;
    for (int layer = 0; layer < src->n_layers; layer++)
        for (int head = 0; head < src->n_kv_heads; head++) {
            memcpy(kv_cache_k(dst, layer, head) + k, kv_cache_k(src, layer, head) + k, k_bytes);
            memcpy(kv_cache_v(dst, layer, head) + v, kv_cache_v(src, layer, head) + v, v_bytes);
        }
}

void kv_cache_copy(struct kv_cache *dst, struct kv_cache *src, int held, int n) {
    const int shared = share(dst, src, held, n);
    if (shared == n) return;
    kv_cache_begin(dst, shared, n);
    copy_rest(dst, src, shared, n);
}
