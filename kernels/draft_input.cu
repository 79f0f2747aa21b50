/* Makes what goes into a draft layer (docs/MODEL_qwen35.md, "The draft layer"). Its launches take that as embeddings.
 *
 *   draft_halves    norms of the embeddings of n ids, and of the hidden states before them
 *   draft_product   W_fc times both */
#include "draft_args.h"
#include "mma.cuh"
#include "phase_embed.cuh"

enum { DRAFT_WARPS = DRAFT_THREADS / LANES, HALF_PAIRS = M_HIDDEN / 2 };

/* One half of a position's vector. */
struct half {
    const struct worker *w;
    u32 id;
    const float *hidden; /* NULL: the id's embedding is meant */
    const float *before; /* gains of the final norm, where hidden lacks it, or NULL */
};
DEV void half_two(const struct half *h, int pair, float two[2]) {
    if (!h->hidden) {
        embedding_two(h->w, h->w->a, h->id, pair, two);
        return;
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        two[i] = bits_float(plain_load32((const u32 *)h->hidden + 2 * pair + i));
        if (h->before) two[i] *= const_loadf(h->before + 2 * pair + i);
    }
}
/* The sum of squares of n numbers becomes the scale of their norm. */
DEV float half_scale(float sum) { return rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS); }

/* One warp makes a half: the norm, times its gains. What the final norm would have scaled the hidden state by is part
 * of the scale. */
DEV void half_make(const struct half *h, const float *gain, u32 *to, int lane) {
    float raw = 0, sum = 0, two[2], scale = 1;
    NO_UNROLL
    for (int pair = lane; pair < HALF_PAIRS; pair += LANES) {
        half_two(h, pair, two);
        sum += two[0] * two[0] + two[1] * two[1];
        if (!h->before) continue;
        const float low = bits_float(plain_load32((const u32 *)h->hidden + 2 * pair));
        const float high = bits_float(plain_load32((const u32 *)h->hidden + 2 * pair + 1));
        raw += low * low + high * high;
    }
    sum = xor_sum(sum, 1, LANES), raw = xor_sum(raw, 1, LANES);
    if (h->before) scale = half_scale(raw);
    scale *= half_scale(sum * scale * scale);
    NO_UNROLL
    for (int pair = lane; pair < HALF_PAIRS; pair += LANES) {
        half_two(h, pair, two);
        const float low = two[0] * scale * const_loadf(gain + 2 * pair);
        const float high = two[1] * scale * const_loadf(gain + 2 * pair + 1);
        const u32 both = bf16_pair(low, high);
        plain_store32(to + 2 * pair, both);
        plain_store32(to + 2 * pair + 1, bf16_pair(low - bf16_low(both), high - bf16_high(both)));
    }
}

/* Each warp makes one half of one position at a time. */
KERNEL(DRAFT_THREADS) draft_halves(const PARAMETER struct draft_args args) {
    const int lane = (int)(thread_index() % LANES), warps = (int)block_count() * DRAFT_WARPS;
    const float *before = args.model.norms + (size_t)2 * M_LAYERS * M_HIDDEN;
    struct worker w;
    w.a = &args.model;
    NO_UNROLL
    for (int i = (int)block_index() * DRAFT_WARPS + (int)(thread_index() / LANES); i < 2 * args.n; i += warps) {
        const int t = i / 2, of_hidden = i % 2;
        const u32 id = args.word  ? (u32)mapped_load64(args.word)
                       : args.ids ? const_load32((const u32 *)args.ids + t)
                                  : (u32)args.few[t % DRAFT_FEW];
        const struct half h = { &w, id < M_VOCAB ? id : 0, of_hidden ? args.hidden + (size_t)t * M_HIDDEN : 0,
                                of_hidden && (args.raw >> (t < 31 ? t : 31) & 1) ? before : 0 };
        half_make(&h, args.gains + of_hidden * M_HIDDEN, args.halves + (size_t)(2 * t + of_hidden) * M_HIDDEN, lane);
    }
}

/* A block has 16 rows of W_fc and every so many 8 positions; its warps share k. */
KERNEL(DRAFT_THREADS) draft_product(const PARAMETER struct draft_args args) {
    enum { ROW_TILES = M_HIDDEN / 16, K_TILES = 2 * M_HIDDEN / 16 };
    const int lane = (int)(thread_index() % LANES), warp = (int)(thread_index() / LANES);
    const int row_tile = (int)block_index() % ROW_TILES, turns = (int)block_count() / ROW_TILES;
    float *sums = (float *)shared_base(); /* [DRAFT_WARPS][LANES][4] */
    NO_UNROLL
    for (int first = (int)block_index() / ROW_TILES * 8; first < args.n; first += turns * 8) {
        const int mine = first + lane / 4;
        const u32 *half = args.halves + (size_t)(mine < args.n ? mine : first) * 2 * M_HIDDEN + lane % 4 * 2;
        const u8 *tile = args.fc + ((size_t)row_tile * K_TILES * LANES + (size_t)lane) * 16;
        float d[4] = { 0, 0, 0, 0 };
        UNROLL_BY(4)
        for (int k = warp; k < K_TILES; k += DRAFT_WARPS) {
            const struct quad a = const_load128(tile + (size_t)k * LANES * 16, 1);
            const struct pair b0 = cached_load64((const struct pair *)(half + k * 16));
            const struct pair b1 = cached_load64((const struct pair *)(half + k * 16 + 8));
            tile_mma(d, a, b0.low, b1.low);
            tile_mma(d, a, b0.high, b1.high);
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            sums[(warp * LANES + lane) * 4 + i] = d[i];
        block_sync();
        for (int i = (int)thread_index(); i < LANES * 4; i += DRAFT_THREADS) {
            const int row = i / 16 + i % 4 / 2 * 8, t = first + i / 4 % 4 * 2 + i % 2;
            float sum = 0;
            UNROLL
            for (int j = 0; j < DRAFT_WARPS; j++)
                sum += sums[j * LANES * 4 + i];
            if (t < args.n)
                plain_store32((u32 *)args.inputs + (size_t)t * M_HIDDEN + row_tile * 16 + row, float_bits(sum));
        }
        block_sync();
    }
}
