/* qkv: this SM's rows of the q, gate, k and v projections times the normed h, plus biases where the model has them.
 *   reads    h (registers)
 *   writes   bf16 pairs to the group, X_QKV, one word for two rows (group, word: docs/GLOSSARY.md)
 *
 * The norm's scale is applied to the finished sums, and biases are added before these are rounded (publish.cuh). */
#ifndef REEL_KERNELS_PHASE_QKV_CUH
#define REEL_KERNELS_PHASE_QKV_CUH

#include "exchange.cuh"
#include "mma.cuh"
#include "product.cuh"
#include "publish.cuh"

DEV u64 *qkv_words(const struct worker *w) { return w->a->words + X_QKV + w->group * (QKV_GROUP_ROWS / 2); }

/* Loads a norm's gains for this warp's slice, while there is time. */
DEV void gains_load(const struct worker *w, const float *norm, float *gain) {
#if LONG_SLICES
    const float *mine = norm + 2 * (w->warp * SLICE_WORDS + w->lane);
    UNROLL
    for (int i = 0; i < SLICE; i++)
        gain[2 * i] = const_loadf(mine + 2 * i * LANES), gain[2 * i + 1] = const_loadf(mine + 2 * i * LANES + 1);
#else
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        const int have = word < SLICE_WORDS && pair < M_HIDDEN / 2;
        gain[2 * i] = have ? const_loadf(norm + 2 * pair) : 0;
        gain[2 * i + 1] = have ? const_loadf(norm + 2 * pair + 1) : 0;
    }
#endif
}

/* Makes this warp's slice of h times gain, 0 where the slice reaches beyond h. */
DEV void slice_normed(const float *h, const float *gain, float *v) {
    UNROLL
    for (int i = 0; i < 2 * SLICE; i++)
        v[i] = h[i] * gain[i];
}

#if P_COLUMNS == 1
/* Stores this warp's slice of h times gain in shared memory as B fragments: rounded to bf16, and from X_LOW on what
 * rounding left over. Other warps may read it after a barrier. */
DEV void fragments_store(const struct worker *w, const float *h, const float *gain) {
    u32 *x = w->s->x + w->warp * P_QKV_WARP_K * 8;
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, at = word / 8 * 8 + word % 4 * 2 + word % 8 / 4;
        const float a = h[2 * i] * gain[2 * i], b = h[2 * i + 1] * gain[2 * i + 1];
        const u32 both = bf16_pair(a, b);
        if (word >= SLICE_WORDS) continue;
        x[at] = both;
        x[X_LOW + at] = bf16_pair(a - bf16_low(both), b - bf16_high(both));
    }
    warp_sync();
}

/* Stores the digits of this warp's slice of h times gain where fragments_store stores halves; returns their first word.
 * Each warp of the block has a place of its own. */
DEV u32 *slice_digits(struct worker *w, const float *h, const float *gain, float *unit) {
    u32 *x = w->s->x + w->warp * (P_QKV_WARP_K / 2) * DIGIT_STEP;
    float v[2 * SLICE];
    slice_normed(h, gain, v);
    const u32 most = digits_most(v, 2 * SLICE);
    digits_store(x, v, SLICE, SLICE_WORDS, digits_factor(most), w->lane, LANES);
    *unit = digits_unit(most);
    warp_sync();
    return x;
}

/* A phase over the whole hidden vector, from h to this warp's partial sums. */
#define NORMED_PRODUCT(w, t, S, h, gain, ssq)                                                                          \
    do {                                                                                                               \
        if (DIGITS(P_##S##_FORMAT)) {                                                                                  \
            float unit;                                                                                                \
            const u32 *x = slice_digits(w, h, gain, &unit);                                                            \
            PHASE_DIGITS(w, t, S, x, unit, (w)->s->part[0], h, ssq);                                                   \
        } else {                                                                                                       \
            fragments_store(w, h, gain);                                                                               \
            phase_product(w, t, PRELOAD(S), 0, (w)->s->part[0], P_##S##_WARP_ROWS, P_##S##_HALF, P_##S##_WARP_K,       \
                          P_##S##_K_PARTS, P_##S##_FORMAT, h, ssq);                                                    \
        }                                                                                                              \
    } while (0)

/* bias: of the row that the thread publishes (publish.cuh). */
DEV void qkv_consume(struct worker *w, const struct held *t, const float *h, const float *gain, float bias) {
    NORMED_PRODUCT(w, t, QKV, h, gain, w->s->ssq[0]);
    qkv_publish(w, bias);
}
#endif

#endif
