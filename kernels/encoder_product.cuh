/* The matrix products of the audio tower. This file defines the functions that prefill_items.cuh leaves to the one
 * that includes it. */
#ifndef REEL_KERNELS_ENCODER_PRODUCT_CUH
#define REEL_KERNELS_ENCODER_PRODUCT_CUH

#include "encoder_layout.h"
#include "mma.cuh"
#include "prefill_items.cuh"

DEV struct encoder_shape encoder_here(void) {
    struct encoder_shape s;
    s.bins = A_BINS, s.channels = A_CHANNELS, s.hidden = A_HIDDEN, s.heads = A_HEADS;
    s.intermediate = A_INTERMEDIATE, s.out = A_OUT, s.layers = A_LAYERS, s.window = A_WINDOW, s.format = A_FORMAT;
    return s;
}
/* A launch's own arguments: what `a` points at is the first member of struct encoder_args, `base`. */
DEV const struct encoder_args *encoder_of(const struct prompt_worker *r) {
    return (const struct encoder_args *)(const void *)r->a;
}
DEV const float *encoder_numbers(const struct prompt_worker *r, int which, int layer) {
    const struct encoder_shape s = encoder_here();
    return encoder_of(r)->numbers + enc_numbers_at(&s, which, layer);
}

enum {
    BINS1 = (A_BINS - 1) / 2 + 1,
    BINS2 = (BINS1 - 1) / 2 + 1,
    BINS3 = (BINS2 - 1) / 2 + 1,
    FRAMES1 = (ENC_FRAMES - 1) / 2 + 1,
    FRAMES2 = (FRAMES1 - 1) / 2 + 1,
    TAP_COLUMNS = (A_CHANNELS + ATOM_COLUMNS - 1) / ATOM_COLUMNS * ATOM_COLUMNS
};

/* ---- what a product is ---- */

DEV int product_row_tiles(int phase) {
    const struct encoder_shape s = encoder_here();
    return (enc_rows(&s, phase) + TILE_ROWS - 1) / TILE_ROWS;
}
DEV int product_k_tiles(int phase) {
    const struct encoder_shape s = encoder_here();
    return enc_columns(&s, phase) / TILE_K;
}
DEV int product_format(int phase) { return (void)phase, A_FORMAT; }
DEV const u8 *activations_of(const struct prompt_worker *r, int phase) {
    const struct encoder_args *a = encoder_of(r);
    switch (phase) {
    case ENC_CONV2: return a->taps2;
    case ENC_CONV3: return a->taps3;
    case ENC_CONV_OUT: return a->binned;
    case ENC_OUT:
    case ENC_PROJ2: return a->attended;
    case ENC_FC2: return a->wide;
    default: return a->x;
    }
}
DEV const u8 *item_weights(const struct prompt_worker *r, int phase, int layer, int row) {
    const struct encoder_shape s = encoder_here();
    const int tile = row < product_row_tiles(phase) ? row : 0;
    return encoder_of(r)->weights + enc_weights_at(&s, phase, layer) +
           (u64)((u32)tile * (u32)product_k_tiles(phase)) * tile_bytes(A_FORMAT) + (u64)tile_lane(A_FORMAT, r->w.lane);
}
/* Columns come in blocks of four tiles, a stage has eight: tiles beyond the last column are 0. */
DEV void item_tiles(const struct prompt_worker *r, int phase, struct held *t, const u8 *row, int k, const int n,
                    const int format) {
    const int there = k < r->k_tiles;
    (void)phase;
    UNROLL
    for (int i = 0; i < n; i++)
        t[i].codes = const_load128(row + (u64)(u32)(k + i) * tile_bytes(format), there && k + i < r->k_tiles);
}
DEV void item_halves(struct held *t, const u8 *row, int k, const int step, const int n) {
    (void)t, (void)row, (void)k, (void)step, (void)n;
}
DEV int product_doubled(int phase, const int format) { return (void)phase, (void)format, 0; }
DEV int product_run(const int doubled, const int format) { return (void)doubled, TILE_RUN(format); }
DEV void item_begin(struct prompt_worker *r, int phase, const struct item *it, int first_token, const int tokens) {
    (void)r, (void)phase, (void)it, (void)first_token, (void)tokens;
}
DEV void item_end(struct prompt_worker *r, int phase, const struct item *it, int from, int to) {
    (void)r, (void)phase, (void)it, (void)from, (void)to;
}

/* ---- where results go ---- */

/* The error function by Abramowitz and Stegun 7.1.26: off by 1.5e-7 at most. */
DEV float erf_approx(float x) {
    const float size = x < 0 ? -x : x, t = rcp_approx(1.0f + 0.3275911f * size);
    const float sum =
        ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float y = 1.0f - sum * exp2_approx(size * size * -1.44269504f);
    return x < 0 ? -y : y;
}
DEV float gelu(float x) { return 0.5f * x * (1.0f + erf_approx(x * 0.70710678f)); }

/* Writes two channels of one position of conv2's result, once for each neighbourhood of conv3 that has this position:
 * up to four. */
DEV void conv2_store(const struct encoder_args *a, int position, int channel, u32 both) {
    const int frame = position % FRAMES2, bin = position / FRAMES2 % BINS2, chunk = position / FRAMES2 / BINS2;
    UNROLL
    for (int i = 0; i < 2; i++) {
        /* an even bin is the middle of one neighbourhood, an odd one the end of one and the begin of the next */
        const int tap_bin = bin % 2 ? 2 - 2 * i : 1, to_bin = (bin + 1 - tap_bin) / 2;
        if ((i && bin % 2 == 0) || to_bin >= BINS3) continue;
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int tap_frame = frame % 2 ? 2 - 2 * j : 1, to_frame = (frame + 1 - tap_frame) / 2;
            if ((j && frame % 2 == 0) || to_frame >= ENC_TOKENS) continue;
            const int to = (chunk * BINS3 + to_bin) * ENC_TOKENS + to_frame;
            const int column = (tap_bin * 3 + tap_frame) * TAP_COLUMNS + channel;
            plain_store32((u32 *)(a->taps3 + activation_at(a->room3, to, column)), both);
        }
    }
}

/* Writes two channels of one position of conv3's result to the token that it belongs to. */
DEV void conv3_store(const struct encoder_args *a, int position, int channel, u32 both) {
    const int frame = position % ENC_TOKENS, bin = position / ENC_TOKENS % BINS3;
    const int chunk = a->first_chunk + position / ENC_TOKENS / BINS3, token = chunk * ENC_TOKENS + frame;
    if (token >= enc_tokens(a->n_frames)) return;
    const int column = bin * A_CHANNELS + channel;
    u8 *to = a->binned + activation_at(a->room, token, column);
    if (A_CHANNELS % 2 == 0) {
        plain_store32((u32 *)to, both);
        return;
    }
    plain_store16((u16 *)to, (u16)both);
    if (channel + 1 < A_CHANNELS)
        plain_store16((u16 *)(a->binned + activation_at(a->room, token, column + 1)), (u16)(both >> 16));
}

/* Stores rows `row` and row + 1 of column `token` of a product. */
DEV void pair_store(struct prompt_worker *r, int phase, int row, int token, u32 both) {
    const struct encoder_args *a = encoder_of(r);
    if (phase == ENC_CONV2)
        conv2_store(a, token, row, both);
    else if (phase == ENC_CONV3)
        conv3_store(a, token, row, both);
    else if (phase == ENC_QKV)
        plain_store32((u32 *)(a->qkv + (size_t)token * (3 * A_HIDDEN) + row), both);
    else
        plain_store32((u32 *)((phase == ENC_FC1 ? a->wide : a->attended) + activation_at(a->room, token, row)), both);
}

DEV float number_at(const float *from, int row, int rows) { return from && row < rows ? const_loadf(from + row) : 0; }

/* Finishes a product whose results are activations: adds the bias, and takes gelu but for q, k and v. */
DEV void activations_finish(struct prompt_worker *r, int phase, const struct item *it, const float *d, int block,
                            int from, const int n, const float *bias, int rows) {
    const int lane = r->w.lane, first = it->row * TILE_ROWS, pair = lane % 4 * 2;
    const float low = number_at(bias, first + lane / 4, rows), high = number_at(bias, first + lane / 4 + 8, rows);
    UNROLL
    for (int j = 0; j < n; j++) {
        const int token = it->token + block * BLOCK_TOKENS + 8 * (from + j) + lane / 4;
        float v[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = d[4 * j + i] + (i < 2 ? low : high);
            if (phase != ENC_QKV) v[i] = gelu(v[i]);
        }
        const u32 a = transpose8(bf16_pair(v[0], v[1])), b = transpose8(bf16_pair(v[2], v[3]));
        if (token >= r->n_tokens) continue;
        if (first + pair < rows) pair_store(r, phase, first + pair, token, a);
        if (first + pair + 8 < rows) pair_store(r, phase, first + pair + 8, token, b);
    }
}

/* Finishes a product whose results stay float32: the residual stream, and the vectors that the tower returns. */
DEV void floats_finish(struct prompt_worker *r, int phase, const struct item *it, const float *d, int block, int from,
                       const int n, const float *bias, int rows) {
    const struct encoder_args *a = encoder_of(r);
    const int lane = r->w.lane, adds = phase == ENC_OUT || phase == ENC_FC2;
    const float *places = phase == ENC_CONV_OUT ? encoder_numbers(r, ENC_POSITIONS, 0) : 0;
    float *to = phase == ENC_PROJ2 ? a->out : a->h;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = it->row * TILE_ROWS + lane / 4 + i / 2 * 8;
        const float more = number_at(bias, row, rows);
        UNROLL
        for (int j = 0; j < n; j++) {
            const int token = it->token + block * BLOCK_TOKENS + 8 * (from + j) + lane % 4 * 2 + i % 2;
            if (row >= rows || token >= r->n_tokens) continue;
            u32 *at = (u32 *)to + (size_t)token * (size_t)rows + row;
            float v = d[4 * j + i] + more;
            if (places) v += const_loadf(places + token % ENC_TOKENS * A_HIDDEN + row);
            if (adds) v += bits_float(plain_load32(at));
            plain_store32(at, float_bits(v));
        }
    }
}

DEV const float *bias_of(const struct prompt_worker *r, int phase, int layer) {
    switch (phase) {
    case ENC_CONV2: return encoder_numbers(r, ENC_CONV2_BIAS, 0);
    case ENC_CONV3: return encoder_numbers(r, ENC_CONV3_BIAS, 0);
    case ENC_CONV_OUT: return 0;
    case ENC_QKV: return encoder_numbers(r, ENC_QKV_BIAS, layer);
    case ENC_OUT: return encoder_numbers(r, ENC_OUT_BIAS, layer);
    case ENC_FC1: return encoder_numbers(r, ENC_FC1_BIAS, layer);
    case ENC_FC2: return encoder_numbers(r, ENC_FC2_BIAS, layer);
    case ENC_PROJ1: return encoder_numbers(r, ENC_PROJ1_BIAS, 0);
    default: return encoder_numbers(r, ENC_PROJ2_BIAS, 0);
    }
}

DEV void item_finish(struct prompt_worker *r, int phase, int layer, const struct item *it, const float *d, int block,
                     int from, const int n, const float (*early)[4]) {
    const struct encoder_shape s = encoder_here();
    const float *bias = bias_of(r, phase, layer);
    const int rows = enc_rows(&s, phase);
    (void)early;
    if (phase == ENC_CONV_OUT || phase == ENC_OUT || phase == ENC_FC2 || phase == ENC_PROJ2)
        floats_finish(r, phase, it, d, block, from, n, bias, rows);
    else
        activations_finish(r, phase, it, d, block, from, n, bias, rows);
}

#endif
