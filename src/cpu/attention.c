#include "cpu/attention.h"

#include <math.h>
#include <string.h>

/* Few rows use each key and value once, straight from memory; many find them in cache. */
static bool streams(const struct attention *a) { return a->rows <= 2 * a->group; }

/* As the products read it: n of a KV head's codes from `at` on, or bf16 as it lies. */
static const uint16_t *operand(const struct attention *a, const unsigned char *first, size_t at,
                               size_t n) {
    if (a->kv->form == KV_BF16) return (const uint16_t *)(const void *)first + at;
    a->kernels->widen_kv(a->kv->form, first + at, n, a->wide);
    return a->wide;
}

/* Elements ahead of their use that the products ask memory for them. */
static size_t ahead_of(const struct attention *a, size_t n) {
    return streams(a) && a->kv->form == KV_BF16 ? n : 0;
}

/* Scores of positions first .. first + n - 1; whole panels are computed, masked in the softmax. */
static void score(const struct attention *a, int first, int n) {
    const struct kv_cache *kv = a->kv;
    const size_t panel = (size_t)kv->head_dim * PANEL_LANES;
    const int n_panels = (n + PANEL_LANES - 1) / PANEL_LANES;
    a->kernels->gemm(&(struct gemm){
        .m = a->rows,
        .n_panels = n_panels,
        .k_pairs = kv->head_dim / 2,
        .a = a->q,
        .a_stride = (size_t)kv->head_dim,
        .panels = operand(a, kv_cache_k(kv, a->layer, a->kv_head),
                          (size_t)(first / PANEL_LANES) * panel, (size_t)n_panels * panel),
        .panel_stride = panel,
        .step_stride = 2 * PANEL_LANES,
        .ahead = ahead_of(a, PANELS * panel),
        .c = a->scores,
        .c_stride = ATTENTION_STEP,
    });
}

/* out += p . V */
static void gather(const struct attention *a, int first, int n) {
    const struct kv_cache *kv = a->kv;
    a->kernels->gemm(&(struct gemm){
        .m = a->rows,
        .n_panels = kv->v_width / PANEL_LANES,
        .k_pairs = (n + 1) / 2,
        .a = a->p,
        .a_stride = ATTENTION_STEP,
        .panels =
            operand(a, kv_cache_v(kv, a->layer, a->kv_head), (size_t)first * (size_t)kv->v_width,
                    (size_t)((n + 1) & ~1) * (size_t)kv->v_width),
        .panel_stride = 2 * PANEL_LANES,
        .step_stride = 2 * (size_t)kv->v_width,
        .ahead = ahead_of(a, T_PREFETCH / sizeof(uint16_t)),
        .c = a->out,
        .c_stride = (size_t)kv->v_width,
        .accumulate = true,
    });
}

/* The weights of row r's first n positions from `first` on. */
static float softmax_row(const struct attention *a, int r, int first, int n) {
    const struct kernels *k = a->kernels;
    float *scores = a->scores + (size_t)r * ATTENTION_STEP;
    uint16_t *p = a->p + (size_t)r * ATTENTION_STEP;
    if (a->kv->form == KV_BF16) return k->softmax(scores, n, a->scale, p, &a->max[r], &a->sum[r]);
    return k->softmax_scaled(scores, kv_cache_scales(a->kv, a->layer, a->kv_head, 0) + first,
                             kv_cache_scales(a->kv, a->layer, a->kv_head, 1) + first, n, a->scale,
                             p, &a->max[r], &a->sum[r]);
}

static void softmax_rows(const struct attention *a, int first, int n) {
    for (int r = 0; r < a->rows; r++) {
        uint16_t *p = a->p + (size_t)r * ATTENTION_STEP;
        int seen = a->position + r / a->group + 1 - first;
        if (seen > n) seen = n;
        if (seen < 0) seen = 0;
        if (seen > 0) {
            float correction = softmax_row(a, r, first, seen);
            if (first > 0 && correction != 1.0f)
                a->kernels->scale(a->out + (size_t)r * (size_t)a->kv->v_width, correction,
                                  a->kv->v_width);
        }
        int even = (n + 1) & ~1;
        memset(p + seen, 0, (size_t)(even - seen) * sizeof *p);
    }
}

void attention_run(const struct attention *a, int first, int last) {
    memset(a->out, 0, (size_t)a->rows * (size_t)a->kv->v_width * sizeof *a->out);
    for (int r = 0; r < a->rows; r++) {
        a->max[r] = -INFINITY;
        a->sum[r] = 0;
    }
    for (int at = first; at < last; at += ATTENTION_STEP) {
        int n = last - at < ATTENTION_STEP ? last - at : ATTENTION_STEP;
        score(a, at, n);
        softmax_rows(a, at, n);
        gather(a, at, n);
    }
}
