/* Makes what goes into a draft layer (docs/MODEL_qwen35.md, "The draft layer"). Its launches take that as embeddings.
 *
 *   draft_halves    norms of the embeddings of n ids, and of the hidden states before them
 *   draft_product   W_fc times both */
#include "draft_args.h"
#include "mma.cuh"
#include "phase_embed.cuh"

enum { DRAFT_WARPS = DRAFT_THREADS / LANES, HALF_PAIRS = M_HIDDEN / 2 };
/* Pairs of a half that a thread has: all are on their way at once. */
enum { HALF_TURNS = (HALF_PAIRS + DRAFT_THREADS - 1) / DRAFT_THREADS };

/* One half of a position's vector. */
struct half {
    const struct worker *w;
    u32 id;
    const float *hidden; /* NULL: the id's embedding is meant */
    const float *before; /* gains of the final norm, where hidden lacks it, or NULL */
};
/* Loads a pair of it, and adds to *raw the squares of what the final norm has not seen. */
DEV void half_two(const struct half *h, int pair, float two[2], float *raw) {
    if (!h->hidden) {
        embedding_two(h->w, h->w->a, h->id, pair, two);
        return;
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        two[i] = bits_float(plain_load32((const u32 *)h->hidden + 2 * pair + i));
        *raw += two[i] * two[i];
        if (h->before) two[i] *= const_loadf(h->before + 2 * pair + i);
    }
}
/* The sum of squares of n numbers becomes the scale of their norm. */
DEV float half_scale(float sum) { return rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS); }

/* The sum of all threads' numbers; parts: [DRAFT_WARPS] in shared memory. */
DEV float block_sum(float v, float *parts, int lane, int warp) {
    v = xor_sum(v, 1, LANES);
    if (lane == 0) parts[warp] = v;
    block_sync();
    float sum = 0;
    UNROLL
    for (int i = 0; i < DRAFT_WARPS; i++)
        sum += parts[i];
    return sum;
}

/* A block makes a half: the norm, times its gains. What the final norm would have scaled the hidden state by is part of
 * the scale. The next half's sums may take the same place: of the two barriers here one lies between a number's last
 * reading and its next writing. */
DEV void half_make(const struct half *h, const float *gain, u32 *to, int lane, int warp) {
    float *parts = (float *)shared_base(); /* [sum, raw][DRAFT_WARPS] */
    float two[HALF_TURNS][2], raw = 0, sum = 0;
    UNROLL
    for (int n = 0; n < HALF_TURNS; n++) {
        const int pair = n * DRAFT_THREADS + warp * LANES + lane;
        two[n][0] = two[n][1] = 0;
        if (pair < HALF_PAIRS) half_two(h, pair, two[n], &raw);
    }
    UNROLL
    for (int n = 0; n < HALF_TURNS; n++)
        sum += two[n][0] * two[n][0] + two[n][1] * two[n][1];
    sum = block_sum(sum, parts, lane, warp), raw = block_sum(raw, parts + DRAFT_WARPS, lane, warp);
    float scale = h->before ? half_scale(raw) : 1;
    scale *= half_scale(sum * scale * scale);
    UNROLL
    for (int n = 0; n < HALF_TURNS; n++) {
        const int pair = n * DRAFT_THREADS + warp * LANES + lane;
        if (pair >= HALF_PAIRS) continue;
        const float low = two[n][0] * scale * const_loadf(gain + 2 * pair);
        const float high = two[n][1] * scale * const_loadf(gain + 2 * pair + 1);
        const u32 both = bf16_pair(low, high);
        plain_store32(to + 2 * pair, both);
        plain_store32(to + 2 * pair + 1, bf16_pair(low - bf16_low(both), high - bf16_high(both)));
    }
}

/* The id of a position. */
DEV u32 half_id(const struct draft_args *args, int t, int lane) {
    u32 id = args->ids ? const_load32((const u32 *)args->ids + t) : (u32)args->few[t % DRAFT_FEW];
    if (args->word && lane == 0) id = (u32)mapped_load64(args->word);
    id = shuffle(id, 0);
    return id < M_VOCAB ? id : 0;
}

/* Each block makes one half of one position at a time. */
KERNEL(DRAFT_THREADS) draft_halves(const PARAMETER struct draft_args args) {
    const int lane = (int)(thread_index() % LANES), warp = (int)(thread_index() / LANES);
    const float *before = args.model.norms + (size_t)2 * M_LAYERS * M_HIDDEN;
    struct worker w;
    w.a = &args.model;
    NO_UNROLL
    for (int i = (int)block_index(); i < 2 * args.n; i += (int)block_count()) {
        const int t = i / 2, of_hidden = i % 2;
        const struct half h = { &w, of_hidden ? 0 : half_id(&args, t, lane),
                                of_hidden ? args.hidden + (size_t)t * M_HIDDEN : 0,
                                of_hidden && (args.raw >> (t < 31 ? t : 31) & 1) ? before : 0 };
        half_make(&h, args.gains + of_hidden * M_HIDDEN, args.halves + (size_t)(2 * t + of_hidden) * M_HIDDEN, lane,
                  warp);
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
        UNROLL_BY(8)
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
