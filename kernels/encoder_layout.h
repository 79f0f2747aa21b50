/* How an audio tower's weights and numbers lie in memory, and how its input is cut into chunks.
 * Host and device compile this. Sources: docs/MODEL_qwen3_asr.md.
 *
 * A clip is cut into chunks of 100 frames. Three convolutions halve bins and frames, so that a
 * chunk becomes 13 tokens. Then the tokens go through layers of attention, in windows of whole
 * chunks.
 *
 * Weights are tiles of 16 rows by 16 columns (tile_format.h); the tiles of 16 rows follow one
 * another. Columns are padded to blocks of 64 with zeros. Columns of a product:
 *
 *   conv2, conv3   [tap][channel, padded to 64]: the 3 x 3 neighbourhood of a position, bins before
 *                  frames
 *   conv_out       [bin][channel]
 *   the rest       as in the model; q, k and v rows follow one another */
#ifndef REEL_KERNELS_ENCODER_LAYOUT_H
#define REEL_KERNELS_ENCODER_LAYOUT_H

#include "prefill_args.h"

enum encoder_product {
    ENC_CONV2,
    ENC_CONV3,
    ENC_CONV_OUT,
    ENC_QKV, /* of a layer, as are the next three */
    ENC_OUT,
    ENC_FC1,
    ENC_FC2,
    ENC_PROJ1,
    ENC_PROJ2,
    ENC_PRODUCTS
};

enum { ENC_FRAMES = 100, ENC_TOKENS = 13, ENC_TAPS = 9 };

struct encoder_shape {
    int bins, channels, hidden, heads, intermediate, out, layers;
    int window; /* tokens */
    int format; /* enum tile_format of the weights */
};

/* What is left of n bins or frames after one convolution. */
TAPE_FN int enc_half(int n) { return (n - 1) / 2 + 1; }
TAPE_FN int enc_blocks(int n) { return (n + ATOM_COLUMNS - 1) / ATOM_COLUMNS * ATOM_COLUMNS; }

/* Positions of a chunk, bins by frames, behind the second or third convolution. */
TAPE_FN int enc_bins(const struct encoder_shape *s, int convolutions) {
    int n = s->bins;
    for (int i = 0; i < convolutions; i++)
        n = enc_half(n);
    return n;
}
TAPE_FN int enc_frames(int convolutions) {
    int n = ENC_FRAMES;
    for (int i = 0; i < convolutions; i++)
        n = enc_half(n);
    return n;
}

/* Tokens of a clip of n frames. */
TAPE_FN int enc_tokens(int n) {
    const int rest = n % ENC_FRAMES;
    return n / ENC_FRAMES * ENC_TOKENS + (rest ? enc_half(enc_half(enc_half(rest))) : 0);
}

TAPE_FN int enc_rows(const struct encoder_shape *s, int product) {
    switch (product) {
    case ENC_CONV2:
    case ENC_CONV3: return s->channels;
    case ENC_QKV: return 3 * s->hidden;
    case ENC_FC1: return s->intermediate;
    case ENC_PROJ2: return s->out;
    default: return s->hidden;
    }
}

/* Columns of a product, padding included. */
TAPE_FN int enc_columns(const struct encoder_shape *s, int product) {
    switch (product) {
    case ENC_CONV2:
    case ENC_CONV3: return ENC_TAPS * enc_blocks(s->channels);
    case ENC_CONV_OUT: return enc_blocks(enc_bins(s, 3) * s->channels);
    case ENC_FC2: return enc_blocks(s->intermediate);
    default: return enc_blocks(s->hidden);
    }
}

TAPE_FN unsigned long long enc_product_bytes(const struct encoder_shape *s, int product) {
    const int row_tiles = (enc_rows(s, product) + TILE_ROWS - 1) / TILE_ROWS;
    return (unsigned long long)row_tiles * (unsigned)(enc_columns(s, product) / TILE_K) * tile_bytes(s->format);
}

/* Byte of all weights at which a product's begin. `layer` counts for the four products of layers
 * alone. With ENC_PRODUCTS: bytes of all weights. */
TAPE_FN unsigned long long enc_weights_at(const struct encoder_shape *s, int product, int layer) {
    unsigned long long at = 0, layer_bytes = 0;
    for (int p = ENC_QKV; p <= ENC_FC2; p++)
        layer_bytes += enc_product_bytes(s, p);
    for (int p = 0; p < product; p++)
        if (p < ENC_QKV || p > ENC_FC2) at += enc_product_bytes(s, p);
    if (product < ENC_QKV) return at;
    if (product > ENC_FC2) return at + (unsigned)s->layers * layer_bytes;
    at += (unsigned)layer * layer_bytes;
    for (int p = ENC_QKV; p < product; p++)
        at += enc_product_bytes(s, p);
    return at;
}

/* Float32 numbers, in this order: conv1's weights [channel][tap] and bias; biases of conv2, conv3;
 * positions [13][hidden]; of each layer: norm gain and bias before attention, bias of q, k and v,
 * of out, norm gain and bias before fc1, bias of fc1, of fc2; gain and bias of the last norm;
 * biases of proj1, proj2. */
enum encoder_numbers {
    ENC_CONV1_WEIGHTS,
    ENC_CONV1_BIAS,
    ENC_CONV2_BIAS,
    ENC_CONV3_BIAS,
    ENC_POSITIONS,
    ENC_NORM1, /* gain, then bias */
    ENC_QKV_BIAS,
    ENC_OUT_BIAS,
    ENC_NORM2,
    ENC_FC1_BIAS,
    ENC_FC2_BIAS,
    ENC_LAST_NORM,
    ENC_PROJ1_BIAS,
    ENC_PROJ2_BIAS,
    ENC_NUMBERS
};

TAPE_FN int enc_numbers_of(const struct encoder_shape *s, int which) {
    switch (which) {
    case ENC_CONV1_WEIGHTS: return ENC_TAPS * s->channels;
    case ENC_CONV1_BIAS:
    case ENC_CONV2_BIAS:
    case ENC_CONV3_BIAS: return s->channels;
    case ENC_POSITIONS: return ENC_TOKENS * s->hidden;
    case ENC_NORM1:
    case ENC_NORM2:
    case ENC_LAST_NORM: return 2 * s->hidden;
    case ENC_QKV_BIAS: return 3 * s->hidden;
    case ENC_FC1_BIAS: return s->intermediate;
    case ENC_PROJ2_BIAS: return s->out;
    default: return s->hidden;
    }
}

/* Place at which one kind of numbers begins. `layer` counts for the kinds of layers alone. With
 * ENC_NUMBERS: how many numbers there are in all. */
TAPE_FN int enc_numbers_at(const struct encoder_shape *s, int which, int layer) {
    int at = 0, layer_numbers = 0;
    for (int n = ENC_NORM1; n <= ENC_FC2_BIAS; n++)
        layer_numbers += enc_numbers_of(s, n);
    for (int n = 0; n < which; n++)
        if (n < ENC_NORM1 || n > ENC_FC2_BIAS) at += enc_numbers_of(s, n);
    if (which < ENC_NORM1) return at;
    if (which > ENC_FC2_BIAS) return at + s->layers * layer_numbers;
    at += layer * layer_numbers;
    for (int n = ENC_NORM1; n < which; n++)
        at += enc_numbers_of(s, n);
    return at;
}

/* Arguments of one launch. */
struct encoder_args {
    /* Used of base.decode: n_tokens, the columns of this launch's product or tokens of the clip;
     * patience, mailbox, abort. Used of base itself: room, of the activations that a product
     * reads. The rest is not used. */
    struct prefill_args base;
    const unsigned char *weights;
    const float *numbers;
    const float *features; /* f32 [bins][n_frames] */
    int n_frames;
    int first_chunk;                /* of the clip: stem, conv2 and conv3 take a few chunks at a time */
    unsigned char *taps2;           /* activations that conv2 reads; taps outside stay 0 */
    unsigned char *taps3;           /* those that conv3 reads, likewise */
    int room2, room3;               /* positions that taps2 and taps3 have room for */
    int room;                       /* tokens that the following have room for */
    unsigned char *binned;          /* what conv_out reads */
    float *h;                       /* f32 [tokens][hidden]: the residual stream */
    unsigned char *x;               /* normed; what qkv, fc1, proj1 and proj2 read */
    unsigned short *qkv;            /* bf16 [tokens][q, k, v] */
    unsigned char *attended, *wide; /* what out and fc2 read */
    float *out;                     /* f32 [tokens][out] */
};

#endif
