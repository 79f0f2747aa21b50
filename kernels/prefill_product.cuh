/* The matrix products of prefill. A warp loads weights straight from the tapes (docs/GLOSSARY.md) into registers.
 * They do not pass through shared memory.
 *
 *   qkv, mix, gate_up   in: x, scaled by the norm afterwards   out: qkv; gated
 *   out, down           in: attention; gated                   out: h, and x and ssq for the next norm
 *
 * Items are wide or halves (prefill_items.cuh). For few tokens they are thin: 1 row tile by up to 64 tokens, and each
 * warp has an eighth of k. */
#ifndef REEL_KERNELS_PREFILL_PRODUCT_CUH
#define REEL_KERNELS_PREFILL_PRODUCT_CUH

#include "draft_head.cuh"
#include "mma.cuh"
#include "phase_gate_up.cuh"
#include "prefill_items.cuh"

/* ---- which weights ---- */

#define BY_COMMON_PHASE(phase, f)                                                                                      \
    ((phase) == TAPE_QKV ? f(QKV) : (phase) == TAPE_OUT ? f(OUT) : (phase) == TAPE_GATE_UP ? f(GATE_UP) : f(DOWN))
#if M_DELTA
#define BY_PHASE(phase, f) ((phase) == TAPE_MIX ? f(MIX) : BY_COMMON_PHASE(phase, f))
#else
#define BY_PHASE BY_COMMON_PHASE
#endif
#define ROW_TILES_OF(S) P_##S##_ROW_TILES
#define K_TILES_OF(S)   P_##S##_K_TILES
#define FORMAT_OF(S)    P_##S##_FORMAT

/* Whether a product sums over the groups (docs/GLOSSARY.md). In out and down the groups' slices of k follow one
 * another, and the SMs of all groups have the same rows. */
DEV int sums_groups(int phase) { return phase == TAPE_OUT || phase == TAPE_DOWN; }
/* Whether it has the sums of all groups then. Those of one of several GPUs are parts, which a join adds up. */
DEV int completes_sums(int phase) { return P_GPUS == 1 && sums_groups(phase); }
DEV int product_row_tiles(int phase) {
    return (sums_groups(phase) ? P_GROUP_SMS : GPU_SMS) * BY_PHASE(phase, ROW_TILES_OF);
}
/* x comes twice, rounded to bf16 and then what rounding left over: together 16 significant bits, as in decoding. */
enum { X_TILES = X_BLOCKS * ATOM_COLUMNS / TILE_K };
DEV int product_k_tiles(int phase) {
    return sums_groups(phase) ? GPU_GROUPS * BY_PHASE(phase, K_TILES_OF) : 2 * X_TILES;
}

DEV int product_format(int phase) { return BY_PHASE(phase, FORMAT_OF); }

/* Bytes from a layer's place on the first tape (layer_begin) to row tile `row` of a phase, k tile 0. */
#define ROW_AT(S)                                                                                                      \
    ((u64)(row / P_##S##_ROW_TILES) * P_SM_BYTES + P_##S##_OFFSET +                                                    \
     (u64)((row % P_##S##_ROW_TILES % P_##S##_WARP_ROWS * (ROW_HALF(S) ? 2 : 1) * P_WARPS +                            \
            row % P_##S##_ROW_TILES / P_##S##_WARP_ROWS * P_##S##_K_PARTS) *                                           \
           (int)tile_bytes(P_##S##_FORMAT)) +                                                                          \
     (u64)ROW_HALF(S))
/* Whether it is of half tiles. */
#define ROW_HALF(S) (P_##S##_HALF && row % P_##S##_ROW_TILES == P_##S##_ROW_TILES - 1)
#define HALVES      (P_QKV_HALF || P_MIX_HALF || P_OUT_HALF || P_DOWN_HALF)
/* Where a layer begins on a tape, for the offset of this phase. The offsets of the phases after the first are those
 * behind qkv. In a Gated DeltaNet these phases follow mix instead, and begin later by `more` bytes. */
DEV u64 layer_begin(int phase, int layer) {
#if M_DELTA
    struct tape_shape s;
    s.delta_layers[0] = M_DELTA_LOW, s.delta_layers[1] = M_DELTA_HIGH;
    s.layer_bytes = P_LAYER_BYTES, s.delta_bytes = P_DELTA_BYTES;
    const u64 more = (u64)P_DELTA_BYTES - (u64)P_LAYER_BYTES; /* perhaps below 0: the sum wraps round and is right */
    return tape_layer_offset(&s, layer) + (phase != TAPE_MIX && layer_is_delta(layer) ? more : 0);
#else
    (void)phase;
    return (u64)layer * P_LAYER_BYTES;
#endif
}
DEV const u8 *weights_row(const struct prompt_worker *r, int phase, int layer, int row) {
    return r->w.a->tape + layer_begin(phase, layer) + BY_PHASE(phase, ROW_AT) +
           (u64)tile_lane(product_format(phase), r->w.lane);
}
/* Tiles from k tile 0 of a row tile to its k tile k. */
#define K_WARP(S) (k % P_##S##_K_TILES % P_##S##_WARP_K)
#define K_AT(S)                                                                                                        \
    ((u32)((P_##S##_HALF ? K_WARP(S) * P_##S##_WARP_ROWS - (K_WARP(S) + 1) / 2                                         \
                         : K_WARP(S) / TILE_PARTS(P_##S##_FORMAT) * P_##S##_WARP_ROWS) *                               \
               P_WARPS +                                                                                               \
           k % P_##S##_K_TILES / P_##S##_WARP_K) +                                                                     \
     (u32)(k / P_##S##_K_TILES) * (u32)(P_GROUP_SMS * (P_SM_BYTES / tile_bytes(P_##S##_FORMAT))))

/* The consumers make K_AT once for all k tiles, since a warp asks for a tile every few dozen cycles. Places beyond the
 * last k tile, to a multiple of STAGE_TILES, are NO_PLACE. All places are there after readers_sync. */
DEV void k_places_make(struct prompt_worker *r, int phase) {
    const int n = product_k_tiles(phase);
    NO_UNROLL
    for (int i = r->w.warp * LANES + r->w.lane; i < P_PREFILL_K_PLACES; i += READ_CONSUMERS) {
        const int k = sums_groups(phase) ? i : i % X_TILES;
        const int there = i < n && (sums_groups(phase) || k < P_QKV_K_TILES);
        r->s->k_place[i] = there ? BY_PHASE(phase, K_AT) : NO_PLACE;
    }
}

/* Whether the tiles of a row are half tiles, and its address without that bit. */
DEV int row_halves(const u8 *row) { return HALVES && ((u64)row & 1); }
DEV const u8 *row_begin(const u8 *row) { return HALVES ? (const u8 *)((u64)row & ~(u64)1) : row; }

DEV void item_tiles(const struct prompt_worker *r, int phase, struct held *t, const u8 *row, int k, const int n,
                    const int format) {
    const int parts = TILE_PARTS(format);
    const u8 *begin = row_begin(row);
    (void)phase;
    UNROLL
    for (int i = 0; i < n / parts; i++) {
        const int odd = (n == 1 ? k : i) % 2; /* of several tiles the first is even */
        const u32 place = r->s->k_place[k + i * parts - (odd ? row_halves(row) : 0)];
        held_load(&t[i], begin + (u64)place * tile_bytes(format), place != NO_PLACE, r->w.lane, format);
    }
}
DEV void item_halves(struct held *t, const u8 *row, int k, const int step, const int n) {
    const u32 whole = (u32)row_halves(row) - 1; /* a mask, as wgmma must not stand behind a branch of some lanes */
    UNROLL
    for (int i = 0; HALVES && i < n; i++) {
        struct quad *c = &t[i].codes;
        const struct quad a = half_operand(*c, (k + i * step) % 2);
        c->x = (c->x & whole) | (a.x & ~whole), c->y = (c->y & whole) | (a.y & ~whole);
        c->z = (c->z & whole) | (a.z & ~whole), c->w = (c->w & whole) | (a.w & ~whole);
    }
}

DEV int product_doubled(int phase, const int format) { return !sums_groups(phase) && TILE_NARROW(format); }

/* Only products with coarse scales ask, of 64 columns or more: those are of all that a stage has of x where it has it
 * twice. Scales of 128 columns or more are those of a whole stage where every product's k tiles fill stages, without
 * padding between the groups' slices. */
DEV int product_run(const int doubled, const int format) {
    if (doubled) return STAGE_TILES / 2;
    const int whole = X_TILES % STAGE_TILES == 0 && P_QKV_K_TILES % STAGE_TILES == 0 &&
                      P_OUT_K_TILES % STAGE_TILES == 0 && P_DOWN_K_TILES % STAGE_TILES == 0 &&
                      P_GROUP_Q == P_OUT_K_TILES * TILE_K && P_GROUP_INTERMEDIATE == P_DOWN_K_TILES * TILE_K &&
                      (!M_DELTA || P_GROUP_VALUE == P_GROUP_Q);
    return whole && TILE_GROUP(format) >= 3 ? STAGE_TILES : TILE_RUN(format);
}

/* Calls f(format) with the format of a phase's weights, so that the compiler knows it in each of the calls. */
#define BY_FORMAT(phase, f)                                                                                            \
    do {                                                                                                               \
        const int of_phase = product_format(phase);                                                                    \
        if (of_phase == P_QKV_FORMAT)                                                                                  \
            f(P_QKV_FORMAT);                                                                                           \
        else if (P_OUT_FORMAT != P_QKV_FORMAT && of_phase == P_OUT_FORMAT)                                             \
            f(P_OUT_FORMAT);                                                                                           \
        else if (P_GATE_UP_FORMAT != P_QKV_FORMAT && P_GATE_UP_FORMAT != P_OUT_FORMAT && of_phase == P_GATE_UP_FORMAT) \
            f(P_GATE_UP_FORMAT);                                                                                       \
        else if (P_DOWN_FORMAT != P_QKV_FORMAT && P_DOWN_FORMAT != P_OUT_FORMAT &&                                     \
                 P_DOWN_FORMAT != P_GATE_UP_FORMAT && of_phase == P_DOWN_FORMAT)                                       \
            f(P_DOWN_FORMAT);                                                                                          \
        else if (MIX_IS_OTHER && of_phase == P_MIX_FORMAT)                                                             \
            f(P_MIX_FORMAT);                                                                                           \
    } while (0)
#define MIX_IS_OTHER                                                                                                   \
    (M_DELTA && P_MIX_FORMAT != P_QKV_FORMAT && P_MIX_FORMAT != P_OUT_FORMAT && P_MIX_FORMAT != P_GATE_UP_FORMAT &&    \
     P_MIX_FORMAT != P_DOWN_FORMAT)

DEV const u8 *activations_of(const struct prompt_worker *r, int phase) {
    return phase == TAPE_OUT ? r->a->attention : phase == TAPE_DOWN ? r->a->gated : r->a->x;
}

/* ---- where results go ---- */

/* Column of qkv for local row `local` of row tile `row`; -1: padding. */
DEV int qkv_column(int row, int local) {
    const int sm = row / P_QKV_ROW_TILES, group = sm / P_GROUP_SMS;
    int at = row % P_QKV_ROW_TILES * TILE_ROWS + local;
    if (at >= P_QKV_ROWS || group >= GPU_GROUPS) return -1;
    at += sm % P_GROUP_SMS * P_QKV_ROWS;
    if (at < P_GROUP_Q) return group * P_GROUP_Q + at;
    at -= P_GROUP_Q;
    if (at < P_GROUP_GATE) return GPU_HEADS * M_HEAD_DIM + group * P_GROUP_GATE + at;
    at -= P_GROUP_GATE;
    if (at >= 2 * P_GROUP_KV) return -1;
    return GPU_HEADS * (1 + M_GATED) * M_HEAD_DIM + at / P_GROUP_KV * GPU_KV_HEADS * M_HEAD_DIM + group * P_GROUP_KV +
           at % P_GROUP_KV;
}

#if M_DELTA
/* Column of mix: q, k, v, z of all groups of this GPU. */
DEV int mix_column(int row, int local) {
    const int sm = row / P_MIX_ROW_TILES, group = sm / P_GROUP_SMS;
    int at = row % P_MIX_ROW_TILES * TILE_ROWS + local;
    if (at >= P_MIX_ROWS || group >= GPU_GROUPS) return -1;
    at += sm % P_GROUP_SMS * P_MIX_ROWS;
    if (at < 2 * P_GROUP_KEY)
        return at / P_GROUP_KEY * GPU_KEY_HEADS * M_KEY_DIM + group * P_GROUP_KEY + at % P_GROUP_KEY;
    at -= 2 * P_GROUP_KEY;
    if (at >= 2 * P_GROUP_VALUE) return -1;
    return 2 * GPU_KEY_HEADS * M_KEY_DIM + at / P_GROUP_VALUE * GPU_VALUE_HEADS * M_VALUE_DIM + group * P_GROUP_VALUE +
           at % P_GROUP_VALUE;
}
#endif

/* Column of gated for pair `pair` (below 8) of row tile `row`; -1: padding. */
DEV int gated_column(int row, int pair) {
    const int sm = row / P_GATE_UP_ROW_TILES, group = sm / P_GROUP_SMS;
    int at = row % P_GATE_UP_ROW_TILES * 8 + pair;
    if (at >= GATE_UP_PAIRS) return -1;
    at += sm % P_GROUP_SMS * GATE_UP_PAIRS;
    if (at >= P_GROUP_INTERMEDIATE || group * P_GROUP_INTERMEDIATE + at >= M_INTERMEDIATE) return -1;
    return group * P_DOWN_K_TILES * TILE_K + at;
}

/* Hidden index of local row `local` of row tile `row` of out or down; -1: padding. */
DEV int hidden_row(int row, int local) {
    const int at = row % P_OUT_ROW_TILES * TILE_ROWS + local;
    const int hidden = row / P_OUT_ROW_TILES * P_OUT_ROWS + at;
    return at < P_OUT_ROWS && hidden < M_HIDDEN ? hidden : -1;
}
#if P_OUT_ROWS != P_DOWN_ROWS || P_OUT_ROW_TILES != P_DOWN_ROW_TILES
#error "out and down have the same rows"
#endif

/* ---- one item ---- */

/* The consumers make the scales of the norm for `tokens` (8, 64 or 128) of the item's tokens from `first_token` on.
 * All warps may read them after the next barrier. */
DEV void scales_make(struct prompt_worker *r, const struct item *it, int first_token, const int tokens) {
    const int parts = READ_CONSUMERS / tokens, across = LANES / parts; /* tokens of a warp */
    const int mine = first_token + r->w.warp * across + r->w.lane % across, n = ssq_slots(r);
    const u32 *from = (const u32 *)r->a->ssq + it->token + mine;
    float sum = 0;
    NO_UNROLL
    for (int first = r->w.lane / across; first < n; first += 16 * parts) {
        u32 some[16]; /* on their way together */
        UNROLL
        for (int i = 0; i < 16; i++) {
            const int slot = first + i * parts;
            some[i] = slot < n ? plain_load32(from + (size_t)slot * P_PREFILL_TOKENS) : 0;
        }
        UNROLL
        for (int i = 0; i < 16; i++)
            sum += bits_float(some[i]);
    }
    sum = xor_sum(sum, across, LANES);
    if (r->w.lane < across) r->s->scale[it->which][mine] = rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS);
}

DEV void item_begin(struct prompt_worker *r, int phase, const struct item *it, int first_token, const int tokens) {
    if (!sums_groups(phase)) scales_make(r, it, first_token, tokens);
}

#if M_QKV_BIAS
/* The model's row of q, k and v that this GPU has as column `column` of qkv. */
DEV int qkv_row_of(const struct prompt_worker *r, int column) {
#if P_GPUS > 1
    enum { Q = GPU_HEADS * M_HEAD_DIM, KV = GPU_KV_HEADS * M_HEAD_DIM };
    const int gpu = r->a->gpus.gpu, kv = column - Q;
    if (kv < 0) return gpu * Q + column;
    return P_GPUS * (Q + kv / KV * KV) + gpu * KV + kv % KV;
#else
    return (void)r, column;
#endif
}
#endif

/* Loads the biases, for tokens `token` and the next, of the two rows of a row tile of qkv whose sums this lane has; 0
 * for padding. */
DEV void row_biases_load(const struct prompt_worker *r, int row, int token, struct row_biases *bias) {
#if M_QKV_BIAS
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int column = qkv_column(row, r->w.lane / 4 + 8 * i);
        const int have = column >= 0 && (!M_GIVEN_BIASES || token < r->n_tokens), of = have ? qkv_row_of(r, column) : 0;
        bias[i].low = bias[i].high = have ? qkv_bias_load(r->w.a, r->w.layer, token, of) : 0;
        if (M_GIVEN_BIASES && have && token + 1 < r->n_tokens)
            bias[i].high = qkv_bias_load(r->w.a, r->w.layer, token + 1, of);
    }
#else
    (void)r, (void)row, (void)token, (void)bias;
#endif
}

DEV void qkv_finish(struct prompt_worker *r, const struct item *it, const float *d, int block, int from, const int n) {
    const int lane = r->w.lane, pair = lane % 4 * 2;
    const int low = qkv_column(it->row, pair), high = qkv_column(it->row, pair + 8);
    struct row_biases bias[2] = { { 0, 0 }, { 0, 0 } };
    if (!M_GIVEN_BIASES) row_biases_load(r, it->row, 0, bias);
    UNROLL
    for (int j = 0; j < n; j++) {
        const int local = block * BLOCK_TOKENS + 8 * (from + j), token = it->token + local + lane / 4;
        if (M_GIVEN_BIASES) row_biases_load(r, it->row, it->token + local + pair, bias);
        const float *scale = r->s->scale[it->which] + local + pair;
        const u32 a = transpose8(biased_pair(d[4 * j] * scale[0], d[4 * j + 1] * scale[1], bias[0]));
        const u32 b = transpose8(biased_pair(d[4 * j + 2] * scale[0], d[4 * j + 3] * scale[1], bias[1]));
        if (token >= r->n_tokens) continue;
        u16 *to_row = r->a->qkv + (size_t)token * QKV_COLUMNS;
        if (low >= 0) plain_store32((u32 *)(to_row + low), a);
        if (high >= 0) plain_store32((u32 *)(to_row + high), b);
    }
}

#if M_DELTA
/* Stores q, k, v and z of mix. The convolution reads q, k and v; for these, what rounding left over lies MIX_COLUMNS
 * further on. A head's norm, and sums that come out near 0, would show the rounding of bf16 alone. */
DEV void mix_finish(struct prompt_worker *r, const struct item *it, const float *d, int block, int from, const int n) {
    const int lane = r->w.lane, pair = lane % 4 * 2;
    const int column[2] = { mix_column(it->row, pair), mix_column(it->row, pair + 8) };
    UNROLL
    for (int j = 0; j < n; j++) {
        const int local = block * BLOCK_TOKENS + 8 * (from + j), token = it->token + local + lane / 4;
        const float *scale = r->s->scale[it->which] + local + pair;
        u16 *to_row = r->a->qkv + (size_t)token * MIX_WIDTH;
        UNROLL
        for (int i = 0; i < 2; i++) {
            const float low = d[4 * j + 2 * i] * scale[0], high = d[4 * j + 2 * i + 1] * scale[1];
            const u32 both = bf16_pair(low, high), rest = transpose8(bf16_rest(both, low, high));
            const u32 rounded = transpose8(both);
            if (token >= r->n_tokens || column[i] < 0) continue;
            plain_store32((u32 *)(to_row + column[i]), rounded);
            if (column[i] < CHANNELS) plain_store32((u32 *)(to_row + MIX_COLUMNS + column[i]), rest);
        }
    }
}
#endif

DEV void gate_up_finish(struct prompt_worker *r, const struct item *it, const float *d, int block, int from,
                        const int n) {
    const int lane = r->w.lane, pair = lane % 4 * 2, column = gated_column(it->row, pair);
    UNROLL
    for (int j = 0; j < n; j++) {
        const int local = block * BLOCK_TOKENS + 8 * (from + j), token = it->token + local + lane / 4;
        const float *scale = r->s->scale[it->which] + local + pair;
        const float a = silu(d[4 * j] * scale[0]) * (d[4 * j + 2] * scale[0]);
        const float b = silu(d[4 * j + 1] * scale[1]) * (d[4 * j + 3] * scale[1]);
        const u32 both = transpose8(bf16_pair(a, b));
        if (token < r->n_tokens && column >= 0) activation_store(r, r->a->gated, token, column, both);
    }
}

/* Loads the values of the residual stream to which a warp's products [first, first + n), of 8 tokens each, are
 * added. */
DEV void residual_load(const struct prompt_worker *r, const struct item *it, int first, const int n, float (*h)[4]) {
    const int lane = r->w.lane, pair = lane % 4 * 2;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = hidden_row(it->row, lane / 4 + i / 2 * 8);
        UNROLL
        for (int j = 0; j < n; j++) {
            const int token = it->token + 8 * (first + j) + pair + i % 2;
            const u32 *at = (const u32 *)r->a->h + (size_t)token * M_HIDDEN + row;
            h[j][i] = token < r->n_tokens && row >= 0 ? bits_float(plain_load32(at)) : 0;
        }
    }
}

/* Adds products of out or down to the residual stream h and stores it, and x for the next norm. The sums of h^2 over
 * the warp's rows go to shared memory. early: the h of the first 8 tokens, or NULL, and then this function loads h
 * itself. */
DEV void sums_finish(struct prompt_worker *r, int phase, const struct item *it, const float *d, int block, int from,
                     const int n, const float *norm, const float (*early)[4]) {
#if P_TAPS
    const int next = r->w.layer + 1, taps = phase == TAPE_DOWN && r->w.a->taps && tap_is(next);
#endif
    (void)phase;
    const int lane = r->w.lane, pair = lane % 4 * 2, n_tokens = r->n_tokens;
    const int some = n < 4 ? n : 4;
    int row[2], column[2];
    float gain[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        row[i] = hidden_row(it->row, lane / 4 + 8 * i), column[i] = hidden_row(it->row, pair + 8 * i);
        gain[i] = row[i] >= 0 ? const_loadf(norm + row[i]) : 0;
    }
    UNROLL
    for (int first = 0; first < n; first += some) {
        const int atom = block * (BLOCK_TOKENS / ATOM_TOKENS) + from + first;
        float h[4][4];
        if (!early) residual_load(r, it, atom, some, h);
        UNROLL
        for (int j = 0; j < some; j++) {
            const int local = 8 * (atom + j);
            float square[2] = { 0, 0 };
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int token = it->token + local + pair + i % 2;
                if (early) h[j][i] = early[j][i];
                if (row[i / 2] < 0) continue;
                h[j][i] += d[4 * (first + j) + i];
                square[i % 2] += h[j][i] * h[j][i];
                if (token < n_tokens)
                    plain_store32((u32 *)r->a->h + (size_t)token * M_HIDDEN + row[i / 2], float_bits(h[j][i]));
#if P_TAPS
                if (taps && token < n_tokens)
                    tap_store(r->w.a->taps + (size_t)token * ARGS_TAPS * M_HIDDEN, next, row[i / 2], h[j][i]);
#endif
            }
            UNROLL
            for (int i = 0; i < 2; i++) {
                const float a = h[j][2 * i] * gain[i], b = h[j][2 * i + 1] * gain[i];
                const u32 rounded = bf16_pair(a, b), rest = transpose8(bf16_rest(rounded, a, b));
                const u32 both = transpose8(rounded);
                const int token = it->token + local + lane / 4;
                if (column[i] >= 0 && token < n_tokens) {
                    activation_store(r, r->a->x, token, column[i], both);
                    activation_store(r, r->a->x, token, X_LOW_COLUMN + column[i], rest);
                }
                square[i] = xor_sum(square[i], 4, LANES);
                if (lane < 4) r->s->ssq[r->w.warp][local + pair + i] = square[i];
            }
        }
    }
}

#if P_GPUS > 1
/* Where GPU `part`'s products of out or down begin among those of all GPUs, for the warp's row tile and an atom of
 * tokens. */
DEV u64 part_at(const struct prompt_worker *r, int phase, int part, int row, int atom) {
    const u64 floats = PREFILL_PART_FLOATS(P_GROUP_SMS * P_OUT_ROW_TILES, P_PREFILL_TOKENS);
    const u64 tile = (u64)(u32)row * (P_PREFILL_TOKENS / ATOM_TOKENS) + (u32)atom;
    return (u64)(u32)((phase == TAPE_DOWN) * P_GPUS + part) * floats + tile * 128 + (u32)r->w.lane * 4;
}

/* Stores this GPU's products on all GPUs. */
DEV void parts_give(struct prompt_worker *r, int phase, const struct item *it, const float *d, int block, int from,
                    const int n) {
    if (it->row >= product_row_tiles(phase)) return;
    UNROLL
    for (int j = 0; j < n; j++) {
        const int atom = it->token / ATOM_TOKENS + block * (BLOCK_TOKENS / ATOM_TOKENS) + from + j;
        if (atom * ATOM_TOKENS >= r->n_tokens) continue;
        const u64 at = part_at(r, phase, r->a->gpus.gpu, it->row, atom);
        struct quad q;
        q.x = float_bits(d[4 * j]), q.y = float_bits(d[4 * j + 1]);
        q.z = float_bits(d[4 * j + 2]), q.w = float_bits(d[4 * j + 3]);
        UNROLL
        for (int g = 0; g < P_GPUS; g++)
            plain_store128((struct quad *)(r->a->parts[g] + at), q);
    }
}

/* Loads the products of all GPUs for the block of 64 tokens at hand, and adds them up. Beyond the last row tile, or the
 * last token, they may be any. */
DEV void parts_take(const struct prompt_worker *r, int phase, const struct item *it, float *d) {
    const int row = it->row < product_row_tiles(phase) ? it->row : 0, last = (r->n_tokens - 1) / ATOM_TOKENS;
    UNROLL
    for (int j = 0; j < BLOCK_TOKENS / ATOM_TOKENS; j++) {
        const int atom = it->token / ATOM_TOKENS + j < last ? it->token / ATOM_TOKENS + j : last;
        d[4 * j] = d[4 * j + 1] = d[4 * j + 2] = d[4 * j + 3] = 0;
        UNROLL
        for (int g = 0; g < P_GPUS; g++) {
            const float *from = r->a->parts[r->a->gpus.gpu] + part_at(r, phase, g, row, atom);
            const struct quad q = own_load128((const struct quad *)from);
            d[4 * j] += bits_float(q.x), d[4 * j + 1] += bits_float(q.y);
            d[4 * j + 2] += bits_float(q.z), d[4 * j + 3] += bits_float(q.w);
        }
    }
}
#endif

/* Adds up the sums of squares of four warps, for tokens [from, to) of the item, and stores them to their slot of
 * ssq. */
DEV void ssq_finish(struct prompt_worker *r, const struct item *it, int from, int to) {
    const int half = r->w.warp / 4, slot = it->row / 4;
    barrier_wait(HALF_BARRIER + half, READ_CONSUMERS / 2);
    for (int i = from + r->w.warp % 4 * LANES + r->w.lane; i < to; i += READ_CONSUMERS / 2) {
        float sum = 0;
        UNROLL
        for (int warp = 0; warp < 4; warp++)
            sum += r->s->ssq[half * 4 + warp][i];
        if (slot < SSQ_SLOTS)
            plain_store32((u32 *)r->a->ssq + (size_t)slot * P_PREFILL_TOKENS + it->token + i, float_bits(sum));
    }
}

DEV void item_end(struct prompt_worker *r, int phase, const struct item *it, int from, int to) {
    if (completes_sums(phase)) ssq_finish(r, it, from, to);
}

/* The gains of the norm behind out or down. */
DEV const float *norm_after(const struct prompt_worker *r, int phase, int layer) {
    return r->w.a->norms + (size_t)(2 * layer + (phase == TAPE_OUT ? 1 : 2)) * M_HIDDEN;
}

DEV void item_finish(struct prompt_worker *r, int phase, int layer, const struct item *it, const float *d, int block,
                     int from, const int n, const float (*early)[4]) {
#if M_DELTA
    if (phase == TAPE_MIX) {
        mix_finish(r, it, d, block, from, n);
        return;
    }
#endif
    if (phase == TAPE_QKV)
        qkv_finish(r, it, d, block, from, n);
    else if (phase == TAPE_GATE_UP)
        gate_up_finish(r, it, d, block, from, n);
    else
#if P_GPUS > 1
        parts_give(r, phase, it, d, block, from, n), (void)layer, (void)early;
#else
        sums_finish(r, phase, it, d, block, from, n, norm_after(r, phase, layer), early);
#endif
}

#if P_GPUS > 1
/* join: the products that all GPUs have made of out or down (phase) become h, x and ssq. A block has one item of 8 row
 * tiles, one for each warp, by 64 tokens: PREFILL_JOIN_BLOCKS. */
DEV void join_item(struct prompt_worker *r, int phase, int layer) {
    const int across = (r->n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    struct item it;
    float d[32];
    it.which = 0;
    it.row = r->w.block / across * READ_WARPS + r->w.warp, it.token = r->w.block % across * BLOCK_TOKENS;
    parts_take(r, phase, &it, d);
    sums_finish(r, phase, &it, d, 0, 0, 8, norm_after(r, phase, layer), 0);
    ssq_finish(r, &it, 0, BLOCK_TOKENS);
}
#endif

/* Adds up the eight warps' shares of k. Each warp gets the sums of one of the block's 8 atoms of tokens, in d[0 .. 4).
 * Two rounds of four atoms need half the shared memory of one. */
DEV void eighths_meet(struct prompt_worker *r, float *d, int atoms) {
    float sum[4] = { 0, 0, 0, 0 };
    UNROLL
    for (int round = 0; round < 2; round++) {
        if (round * 4 >= atoms) break;
        UNROLL
        for (int i = 0; i < 16; i++)
            r->s->exchange[(r->w.warp * 16 + i) * LANES + r->w.lane] = d[16 * round + i];
        readers_sync();
        if (r->w.warp / 4 == round) {
            UNROLL
            for (int share = 0; share < READ_WARPS; share++) {
                UNROLL
                for (int i = 0; i < 4; i++)
                    sum[i] += r->s->exchange[(share * 16 + r->w.warp % 4 * 4 + i) * LANES + r->w.lane];
            }
        }
        if (round == 0 && atoms > 4) readers_sync();
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        d[i] = sum[i];
}

/* Where the weights of row tile `row` begin. Beyond the last row tile it gives row tile 0, as any will do. */
DEV const u8 *item_weights(const struct prompt_worker *r, int phase, int layer, int row) {
    return weights_row(r, phase, layer, row < product_row_tiles(phase) ? row : 0);
}

/* ---- few tokens ---- */

/* Blocks of 64 columns in a stage. The host lays out up to 64 tokens for just as many atoms of 8, so that a stage is
 * one run of such blocks. Their number is even. */
DEV int thin_blocks(const struct prompt_worker *r) { return STAGE_BYTES / (r->a->room * 128) / 2 * 2; }

/* The part that a warp has of each of its tiles. Eight warps have a stage's k tiles, so it is always the same one;
 * where a tile has two or four, as many warps load it. */
DEV int thin_part(const struct prompt_worker *r, const int format) { return r->w.warp % TILE_PARTS(format); }

/* Loads a tile but for scales of other parts where those can be left out. Registers are few: a warp holds 16 tiles. */
DEV void thin_load_tile(const struct prompt_worker *r, struct held *t, const u8 *from, u32 place, const int format) {
    const int run = thin_part(r, format) / TILE_RUN(format);
    held_load_alone(t, from + (u64)place * tile_bytes(format), place != NO_PLACE, r->w.lane, run, format);
}
/* Loads 8 tiles of a warp, or `left` if fewer are left. A warp's eighth of k is every eighth tile of a row tile. */
DEV void thin_load(const struct prompt_worker *r, struct held *t, const u8 *row, const u32 *places, int left,
                   const int format) {
    const u8 *from = row_begin(row);
    places -= row_halves(row) & r->w.warp;
    if (left >= 8) {
        UNROLL
        for (int i = 0; i < 8; i++)
            thin_load_tile(r, t + i, from, places[i * STAGE_TILES], format);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        if (i < left) thin_load_tile(r, t + i, from, places[i * STAGE_TILES], format);
}

/* Multiplies the warp's part of a tile that has scales. */
DEV void thin_multiply(const struct prompt_worker *r, float *d, const struct held *t, smem b, int atoms,
                       const int format) {
#if TILES_NARROW
    const int part = thin_part(r, format);
    if (TILE_ROUNDED(format)) {
        const struct factors f = held_worth_alone(t, format, part / TILE_RUN(format));
        warp_panel_mma(d, part_rounded(format, t->codes, &f, part), b, r->w.warp % 4, atoms);
        return;
    }
    const struct factors f = held_factors(t, format, 0);
    struct quad a = tile_part(format, t->codes, 0);
    float sum[32];
    UNROLL
    for (int i = 1; i < TILE_PARTS(format); i++)
        if (part == i) a = tile_part(format, t->codes, i);
    UNROLL
    for (int i = 0; i < 32; i++)
        sum[i] = 0;
    warp_panel_mma(sum, a, b, r->w.warp % 4, atoms);
    UNROLL
    for (int i = 0; i < 32; i++) {
        if (i / 4 >= atoms) break;
        d[i] += f.scale[i % 4 / 2] * sum[i];
    }
#else
    (void)r, (void)d, (void)t, (void)b, (void)atoms, (void)format;
#endif
}

/* A consumer warp makes all thin items of one phase. What counts is how much of the weights is on its way. So a warp
 * asks for 8 of its tiles at once, and for the first 8 while the launch before this one still runs. */
DEV void thin_items(struct prompt_worker *r, int phase, int layer, const int format) {
    enum { BATCH = 8 };
    const int n_turns = (product_k_tiles(phase) + STAGE_TILES - 1) / STAGE_TILES; /* tiles of a warp */
    const int n_items = product_row_tiles(phase), step = (int)block_count();
    const int atoms = r->a->room / ATOM_TOKENS, stage_turns = thin_blocks(r) / 2;
    const u32 *places = r->s->k_place + r->w.warp;
    const u8 *from = item_weights(r, phase, layer, r->w.block);
    struct held t[BATCH], next[BATCH];
    struct item it;
    it.which = 0, it.token = 0;
    thin_load(r, t, from, places, n_turns, format);
    previous_over();
    item_halves(t, from, r->w.warp, STAGE_TILES, BATCH);
    if (!sums_groups(phase)) scales_make(r, &it, 0, BLOCK_TOKENS);
    NO_UNROLL
    for (int item = r->w.block; item < n_items; item += step) {
        const u8 *from_next = item_weights(r, phase, layer, item + step);
        float d[32], h[1][4];
        int turn = 0; /* in the stage */
        u32 seen = 0;
        smem b = 0;
        it.row = item;
        if (completes_sums(phase) && r->w.warp < atoms) residual_load(r, &it, r->w.warp, 1, h);
        UNROLL
        for (int i = 0; i < 32; i++)
            d[i] = 0;
        NO_UNROLL
        for (int first = 0; first < n_turns; first += BATCH) {
            const int more = first + BATCH < n_turns;
            const u8 *then = more ? from : from_next;
            thin_load(r, next, then, places + (more ? (first + BATCH) * STAGE_TILES : 0),
                      more ? n_turns - first - BATCH : n_turns, format);
            UNROLL
            for (int i = 0; i < BATCH; i++) {
                if (first + i >= n_turns) break;
                if (turn == 0) b = smem_of(stage_take(r)) + (u32)(r->w.warp / 4 * r->a->room * 128);
                if (TILE_NARROW(format))
                    thin_multiply(r, d, &t[i], b, atoms, format);
                else
                    warp_panel_mma(d, tile_operand(format, t[i].codes), b, r->w.warp % 4, atoms);
                b += (u32)(2 * r->a->room * 128);
                if (++turn < stage_turns && first + i + 1 < n_turns) continue;
                UNROLL
                for (int j = 0; j < 8; j++)
                    seen ^= float_bits(d[j * 4]);
                stage_give(r, seen);
                turn = 0;
            }
            UNROLL
            for (int i = 0; i < BATCH; i++)
                t[i] = next[i];
            item_halves(t, then, r->w.warp, STAGE_TILES, BATCH);
        }
        from = from_next;
        readers_sync(); /* the scales are there, and everyone is done with the item before */
        eighths_meet(r, d, atoms);
        if (r->w.warp < atoms) item_finish(r, phase, layer, &it, d, 0, r->w.warp, 1, h);
        warp_sync(); /* the sums of squares */
        if (completes_sums(phase) && r->w.warp < atoms && r->w.lane < 8 && it.row < SSQ_SLOTS)
            plain_store32((u32 *)r->a->ssq + (size_t)it.row * P_PREFILL_TOKENS + 8 * r->w.warp + r->w.lane,
                          float_bits(r->s->ssq[r->w.warp][8 * r->w.warp + r->w.lane]));
    }
}

DEV void thin_produce(struct prompt_worker *r, int phase) {
    const int n_blocks = (product_k_tiles(phase) + 3) / 4, stage_blocks = thin_blocks(r);
    const int n_items = product_row_tiles(phase);
    const u8 *from = activations_of(r, phase);
    const u32 block_bytes = (u32)r->a->room * 128;
    NO_UNROLL
    for (int item = r->w.block; item < n_items; item += (int)block_count()) {
        NO_UNROLL
        for (int i = 0; i < n_blocks; i += stage_blocks) {
            const int n = n_blocks - i < stage_blocks ? n_blocks - i : stage_blocks;
            /* an odd block at the end is there twice: half of the warps have no tile for the second */
            stage_fill(r, from + (u64)((u32)i * block_bytes), (u32)n * block_bytes,
                       from + (u64)((u32)(i + n - 1) * block_bytes), n % 2 ? block_bytes : 0, (u32)n * block_bytes);
        }
    }
}

DEV void product_produce(struct prompt_worker *r, int phase) {
    const struct prefill_cut *cut = &r->a->cut[phase];
    previous_over();
    fence_copies();
    if (r->w.lane >= FILL_LANES) return;
    if (cut->split_k == 8)
        thin_produce(r, phase);
    else
        wide_produce(r, phase, cut->split_k ? 1 : cut->blocks, cut->split_k ? 4 : 8,
                     product_doubled(phase, product_format(phase)));
}

#endif
