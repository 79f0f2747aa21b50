#include "cpu/attention.h"

#include <math.h>
#include <string.h>

/* Few rows use each key and value once, straight from memory; many find them in cache. */
static bool streams(const struct attention *a) { return a->rows <= 2 * a->group; }

/* Scores of positions first .. first + n - 1; whole panels are computed, masked in the softmax. */
static void score(const struct attention *a, int first, int n) {
    const struct kv_cache *kv = a->kv;
    const size_t panel = (size_t)kv->head_dim * PANEL_LANES;
    a->kernels->gemm(&(struct gemm){
        .m = a->rows,
        .n_panels = (n + PANEL_LANES - 1) / PANEL_LANES,
        .k_pairs = kv->head_dim / 2,
        .a = a->q,
        .a_stride = (size_t)kv->head_dim,
        .panels = kv_cache_k(kv, a->layer, a->kv_head) + (size_t)(first / PANEL_LANES) * panel,
        .panel_stride = panel,
        .step_stride = 2 * PANEL_LANES,
        .ahead = streams(a) ? PANELS * panel : 0,
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
        .panels = kv_cache_v(kv, a->layer, a->kv_head) + (size_t)first * (size_t)kv->v_width,
        .panel_stride = 2 * PANEL_LANES,
        .step_stride = 2 * (size_t)kv->v_width,
        .ahead = streams(a) ? T_PREFETCH / sizeof(uint16_t) : 0,
        .c = a->out,
        .c_stride = (size_t)kv->v_width,
        .accumulate = true,
    });
}

static void softmax_rows(const struct attention *a, int first, int n) {
    for (int r = 0; r < a->rows; r++) {
        float *scores = a->scores + (size_t)r * ATTENTION_STEP;
        uint16_t *p = a->p + (size_t)r * ATTENTION_STEP;
        int seen = a->position + r / a->group + 1 - first;
        if (seen > n) seen = n;
        if (seen < 0) seen = 0;
        if (seen > 0) {
            float correction =
                a->kernels->softmax(scores, seen, a->scale, p, &a->max[r], &a->sum[r]);
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
