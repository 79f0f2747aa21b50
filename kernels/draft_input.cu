/* Makes what goes into a draft layer (docs/MODEL_qwen35.md, "The draft layer"). Its launches take that as embeddings.
 *
 *   draft_halves    vectors of n positions: of the ids behind them, and of what is known of them
 *   draft_product   matrices times those
 *
 * Of a layer of multi-token prediction these are the layer's inputs. Of an EAGLE-3 head they are its inputs, and what
 * ids add to its q, k and v. */
#include "draft_args.h"
#include "mma.cuh"
#include "phase_embed.cuh"

#include "draft_head.cuh"

enum { DRAFT_WARPS = DRAFT_THREADS / LANES, HALF_PAIRS = M_HIDDEN / 2 };
/* Pairs of a half that a thread has: all are on their way at once. */
enum { HALF_TURNS = (HALF_PAIRS + DRAFT_THREADS - 1) / DRAFT_THREADS };

/* One part of a position's vector. */
struct half {
    const struct worker *w;
    u32 id;
    const u32 *row;      /* the id's embedding, where it is not the model's, or NULL */
    const float *hidden; /* NULL: the id's embedding is meant */
    const float *before; /* gains of the final norm, where hidden lacks it, or NULL */
    const float *gain;   /* of the norm; NULL: there is none */
    float eps;
};
/* Loads a pair of it, and adds to *raw the squares of what the final norm has not seen. */
DEV void half_two(const struct half *h, int pair, float two[2], float *raw) {
    if (h->row) {
        const u32 both = const_load32(h->row + pair);
        two[0] = bf16_low(both), two[1] = bf16_high(both);
        return;
    }
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
DEV float half_scale(float sum, float eps) { return rsqrt_approx(sum * (1.0f / M_HIDDEN) + eps); }

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

/* A block makes a part: the norm, times its gains. What the final norm would have scaled the hidden state by is part of
 * the scale. The next part's sums may take the same place: of the two barriers here one lies between a number's last
 * reading and its next writing. */
DEV void half_make(const struct half *h, u32 *to, int lane, int warp) {
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
    float scale = h->before ? half_scale(raw, M_RMS_EPS) : 1;
    scale *= h->gain ? half_scale(sum * scale * scale, h->eps) : 1;
    UNROLL
    for (int n = 0; n < HALF_TURNS; n++) {
        const int pair = n * DRAFT_THREADS + warp * LANES + lane;
        if (pair >= HALF_PAIRS) continue;
        const float low = two[n][0] * scale * (h->gain ? const_loadf(h->gain + 2 * pair) : 1);
        const float high = two[n][1] * scale * (h->gain ? const_loadf(h->gain + 2 * pair + 1) : 1);
        const u32 both = bf16_pair(low, high);
        plain_store32(to + 2 * pair, both);
        plain_store32(to + 2 * pair + 1, bf16_pair(low - bf16_low(both), high - bf16_high(both)));
    }
}

/* The id of a position. */
DEV u32 half_id(const struct draft_args *args, int t) {
    u32 id = args->ids ? const_load32((const u32 *)args->ids + t) : (u32)args->few[t % DRAFT_FEW];
    if (args->word) id = guess_means(plain_load32(args->word), args->meant, args->n_meant);
    return id < M_VOCAB ? id : 0;
}

/* Each block makes one part of one position at a time. */
KERNEL(DRAFT_THREADS) draft_halves(const PARAMETER struct draft_args args) {
    const int lane = (int)(thread_index() % LANES), warp = (int)(thread_index() / LANES);
    const float *final_gains = args.model.norms + (size_t)2 * M_LAYERS * M_HIDDEN;
    struct worker w;
    w.a = &args.model;
    NO_UNROLL
    for (int i = (int)block_index(); i < args.parts * args.n; i += (int)block_count()) {
        const int t = i / args.parts, part = i % args.parts;
        struct half h = { &w, part ? 0 : half_id(&args, t), 0, 0, 0, args.gains, args.eps };
        if (!part && args.embedding) h.row = (const u32 *)args.embedding + (size_t)h.id * HALF_PAIRS;
        if (part) {
            h.hidden = args.hidden + (size_t)(t * (args.parts - 1) + part - 1) * M_HIDDEN;
            h.before = !P_TAPS && (args.raw >> (t < 31 ? t : 31) & 1) ? final_gains : 0;
            h.gain = P_TAPS ? 0 : args.gains + M_HIDDEN;
        }
        half_make(&h, args.halves + (size_t)i * M_HIDDEN, lane, warp);
    }
}

/* A block has 16 rows of a matrix and every so many 8 positions; its warps share k. */
KERNEL(DRAFT_THREADS) draft_product(const PARAMETER struct draft_args args) {
    const int lane = (int)(thread_index() % LANES), warp = (int)(thread_index() / LANES);
    const int row_tiles = args.matrix[0].row_tiles + args.matrix[1].row_tiles;
    const int mine = (int)block_index() % row_tiles, turns = (int)block_count() / row_tiles;
    const int second = mine >= args.matrix[0].row_tiles;
    const struct draft_matrix m = second ? args.matrix[1] : args.matrix[0];
    const int row_tile = second ? mine - args.matrix[0].row_tiles : mine;
    const size_t rows = (size_t)m.row_tiles * 16;
    float *sums = (float *)shared_base(); /* [DRAFT_WARPS][LANES][4] */
    NO_UNROLL
    for (int first = (int)block_index() / row_tiles * 8; first < args.n; first += turns * 8) {
        const int t = first + lane / 4;
        const u32 *half =
            args.halves + ((size_t)(t < args.n ? t : first) * args.parts + m.part) * M_HIDDEN + lane % 4 * 2;
        const u8 *tile = m.tiles + ((size_t)row_tile * m.k_tiles * LANES + (size_t)lane) * 16;
        float d[4] = { 0, 0, 0, 0 };
        UNROLL_BY(8)
        for (int k = warp; k < m.k_tiles; k += DRAFT_WARPS) {
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
            const int row = i / 16 + i % 4 / 2 * 8, at = first + i / 4 % 4 * 2 + i % 2;
            float sum = 0;
            UNROLL
            for (int j = 0; j < DRAFT_WARPS; j++)
                sum += sums[j * LANES * 4 + i];
            if (at < args.n) plain_store32((u32 *)m.out + (size_t)at * rows + row_tile * 16 + row, float_bits(sum));
        }
        block_sync();
    }
}
