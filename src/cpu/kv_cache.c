#include "cpu/kv_cache.h"

#include "base/checked.h"

#include <string.h>

static size_t round_up(int n, int unit) { return (size_t)((n + unit - 1) / unit) * (size_t)unit; }

enum reel_status kv_cache_open(struct kv_cache *kv, const struct kv_shape *shape, int max_positions,
                               struct reel_error *err) {
    const size_t code = kv_form_code_bytes(shape->form);
    size_t positions = round_up(max_positions, TILE_ROWS);
    *kv = (struct kv_cache){
        .n_layers = shape->n_layers,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
        .form = shape->form,
        .v_width = kv_cache_v_width(shape->head_dim),
        .max_positions = (int)positions,
        .k_row = (size_t)shape->head_dim * code,
        .v_row = (size_t)kv_cache_v_width(shape->head_dim) * code,
        .scale_row = shape->form == KV_BF16 ? 0 : sizeof(float),
        .given = shape->given,
    };
    size_t bytes = 0;
    if (!size_mul(positions, kv_cache_position_bytes(shape), &bytes))
        return err_memory(err, "the KV cache", SIZE_MAX);
    return lazy_open(&kv->memory, bytes, "the KV cache", err);
}

void kv_cache_release(struct kv_cache *kv) {
    if (!kv) return;
    lazy_release(&kv->memory);
    *kv = (struct kv_cache){ 0 };
}

size_t kv_cache_position_bytes(const struct kv_shape *s) {
    const size_t width = (size_t)s->head_dim + (size_t)kv_cache_v_width(s->head_dim);
    return (size_t)s->n_layers * (size_t)s->n_kv_heads *
           (width * kv_form_code_bytes(s->form) + (s->form == KV_BF16 ? 0 : 2 * sizeof(float)));
}

/* Where elements 2 pair and 2 pair + 1 of a position's K, and element d of its V, lie: counted in
 * elements. */
static size_t k_at(const struct kv_cache *kv, int position, int pair) {
    return (size_t)(position / PANEL_LANES) * PANEL_LANES * (size_t)kv->head_dim +
           (size_t)pair * 2 * PANEL_LANES + (size_t)(position % PANEL_LANES) * 2;
}
static size_t v_at(const struct kv_cache *kv, int position, int d) {
    return (size_t)(position / 2) * 2 * (size_t)kv->v_width + (size_t)d * 2 +
           (size_t)(position & 1);
}

static void put_values(struct kv_cache *kv, int layer, int head, int position, const uint16_t *k,
                       const uint16_t *v) {
    uint16_t *to_k = (uint16_t *)(void *)kv_cache_k(kv, layer, head) + k_at(kv, position, 0);
    for (int i = 0; i < kv->head_dim / 2; i++)
        memcpy(to_k + (size_t)i * 2 * PANEL_LANES, k + 2 * (size_t)i, 4);
    uint16_t *to_v = (uint16_t *)(void *)kv_cache_v(kv, layer, head) + v_at(kv, position, 0);
    for (int d = 0; d < kv->head_dim; d++) {
        to_v[2 * d] = v[d];
        if (!(position & 1)) to_v[2 * d + 1] = 0;
    }
}

static void put_codes(struct kv_cache *kv, int layer, int head, int position, const uint8_t *k,
                      const uint8_t *v) {
    uint8_t *to_k = kv_cache_k(kv, layer, head) + k_at(kv, position, 0);
    for (int i = 0; i < kv->head_dim / 2; i++)
        memcpy(to_k + (size_t)i * 2 * PANEL_LANES, k + 2 * (size_t)i, 2);
    uint8_t *to_v = kv_cache_v(kv, layer, head) + v_at(kv, position, 0);
    for (int d = 0; d < kv->head_dim; d++) {
        to_v[2 * d] = v[d];
        if (!(position & 1)) to_v[2 * d + 1] = 0; /* in both forms */
    }
}

/* The codes of a position's K or V, `which`; its scale goes to its place. */
static void quantise(struct kv_cache *kv, int layer, int head, int position, int which,
                     const uint16_t *x, uint8_t *codes) {
    const size_t row = (size_t)layer * (size_t)kv->n_kv_heads + (size_t)head;
    float wide[MODEL_MAX_HEAD_DIM];
    for (int d = 0; d < kv->head_dim; d++)
        wide[d] = bf16_to_f32(x[d]);
    kv_cache_scales(kv, layer, head, which)[position] = kv_quantise(
        kv->form, wide, kv->head_dim, kv->given ? kv->given[2 * row + (size_t)which] : 0, codes);
}

void kv_cache_write(struct kv_cache *kv, int layer, int head, int position, const uint16_t *k,
                    const uint16_t *v) {
    uint8_t k_codes[MODEL_MAX_HEAD_DIM], v_codes[MODEL_MAX_HEAD_DIM];
    if (kv->form == KV_BF16) {
        put_values(kv, layer, head, position, k, v);
        return;
    }
    quantise(kv, layer, head, position, 0, k, k_codes);
    quantise(kv, layer, head, position, 1, v, v_codes);
    put_codes(kv, layer, head, position, k_codes, v_codes);
}

size_t kv_cache_save_bytes(const struct kv_cache *kv, int n) {
    const size_t vectors = 2 * (size_t)kv->head_dim * kv_form_code_bytes(kv->form);
    return (size_t)kv->n_layers * (size_t)kv->n_kv_heads * (size_t)n *
           (vectors + 2 * kv->scale_row);
}

/* One position of one layer and KV head; returns where the next one goes. */
static unsigned char *save_position(const struct kv_cache *kv, int layer, int head, int position,
                                    unsigned char *out) {
    const size_t code = kv_form_code_bytes(kv->form);
    const unsigned char *k = kv_cache_k(kv, layer, head), *v = kv_cache_v(kv, layer, head);
    for (int i = 0; i < kv->head_dim / 2; i++, out += 2 * code)
        memcpy(out, k + k_at(kv, position, i) * code, 2 * code);
    for (int d = 0; d < kv->head_dim; d++, out += code)
        memcpy(out, v + v_at(kv, position, d) * code, code);
    for (int which = 0; which < 2 && kv->form != KV_BF16; which++, out += sizeof(float))
        memcpy(out, kv_cache_scales(kv, layer, head, which) + position, sizeof(float));
    return out;
}

void kv_cache_save(const struct kv_cache *kv, int n, void *bytes) {
    unsigned char *out = bytes;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int position = 0; position < n; position++)
                out = save_position(kv, layer, head, position, out);
}

static const unsigned char *load_position(struct kv_cache *kv, int layer, int head, int position,
                                          const unsigned char *in) {
    const size_t row = (size_t)kv->head_dim * kv_form_code_bytes(kv->form);
    uint16_t k[MODEL_MAX_HEAD_DIM], v[MODEL_MAX_HEAD_DIM];
    memcpy(k, in, row);
    memcpy(v, in + row, row);
    in += 2 * row;
    if (kv->form == KV_BF16) {
        put_values(kv, layer, head, position, k, v);
        return in;
    }
    put_codes(kv, layer, head, position, (const uint8_t *)k, (const uint8_t *)v);
    for (int which = 0; which < 2; which++, in += sizeof(float))
        memcpy(kv_cache_scales(kv, layer, head, which) + position, in, sizeof(float));
    return in;
}

void kv_cache_load(struct kv_cache *kv, int n, const void *bytes) {
    kv_cache_begin(kv, 0, n);
    const unsigned char *in = bytes;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int position = 0; position < n; position++)
                in = load_position(kv, layer, head, position, in);
}

/* ---- memory ---- */

void kv_cache_begin(struct kv_cache *kv, int position, int end) {
    if (position < kv->shared) kv->shared = position;
    if (end > kv->end) kv->end = end;
}

/* Calls `of` for the bytes of each layer's and head's K, V and scales from position `from` to end -
 * 1, both of them even multiples of whole panels: where they begin in the cache's memory, and how
 * many. */
typedef bool range_fn(void *user, size_t at, size_t n_bytes);
static bool each_range(const struct kv_cache *kv, size_t from, size_t end, range_fn *of,
                       void *user) {
    const size_t rows[] = { kv->k_row, kv->v_row, kv->scale_row, kv->scale_row };
    const size_t all = (size_t)kv->max_positions;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            size_t at = (size_t)(kv_cache_k(kv, layer, head) - kv->memory.bytes);
            for (int i = 0; i < 4; at += all * rows[i++])
                if (rows[i] && !of(user, at + from * rows[i], (end - from) * rows[i])) return false;
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
    kv->shared = kv->end = n;
    return true;
}

/* dst becomes a view of what src has shared, perhaps for this. Returns how many of the first n
 * positions dst holds then. */
static int share(struct kv_cache *dst, struct kv_cache *src, int held, int n) {
    if (n < KV_CHUNK || dst->max_positions != src->max_positions) return 0;
    if (src->shared + KV_CHUNK <= n && !make_shared(src, held)) return 0;
    if (src->shared == 0 || !lazy_view(&dst->memory, src->memory.file)) return 0;
    dst->shared = src->shared < n ? src->shared : n;
    dst->end = dst->shared;
    return dst->shared;
}

static void copy_rest(struct kv_cache *dst, const struct kv_cache *src, int first, int n) {
    /* Whole panels and pairs: what lies beyond n in them is finite and masked. */
    const size_t from = (size_t)(first / PANEL_LANES) * PANEL_LANES;
    const size_t k_bytes = (round_up(n, PANEL_LANES) - from) * src->k_row;
    const size_t v_bytes = (round_up(n, 2) - from) * src->v_row;
    const size_t k = from * src->k_row, v = from * src->v_row;
    for (int layer = 0; layer < src->n_layers; layer++)
        for (int head = 0; head < src->n_kv_heads; head++) {
            memcpy(kv_cache_k(dst, layer, head) + k, kv_cache_k(src, layer, head) + k, k_bytes);
            memcpy(kv_cache_v(dst, layer, head) + v, kv_cache_v(src, layer, head) + v, v_bytes);
            for (int which = 0; which < 2 && src->form != KV_BF16; which++)
                memcpy(kv_cache_scales(dst, layer, head, which) + from,
                       kv_cache_scales(src, layer, head, which) + from,
                       ((size_t)n - from) * sizeof(float));
        }
}

void kv_cache_copy(struct kv_cache *dst, struct kv_cache *src, int held, int n) {
    const int shared = share(dst, src, held, n);
    if (shared == n) return;
    kv_cache_begin(dst, shared, n);
    copy_rest(dst, src, shared, n);
}
