/* stem: the first convolution, written where the second one reads it.
 *   reads    features, zeros around them
 *   writes   taps2: each value once for each neighbourhood that it belongs to. Taps that lie outside are never
 *            written: they hold zeros from the start, whatever chunk has the place
 *   split    a bin of the second convolution in a chunk over blocks, two channels a thread */
#ifndef REEL_KERNELS_ENCODER_STEM_CUH
#define REEL_KERNELS_ENCODER_STEM_CUH

#include "encoder_product.cuh"
#include "mma.cuh"

enum {
    CHANNEL_PAIRS = (A_CHANNELS + 1) / 2,
    NEAR_BINS = 7,                /* bins of features around 4 n, which bin n of the second convolution is made of */
    NEAR_FRAMES = ENC_FRAMES + 2, /* frames of a chunk, a zero before and behind */
    NEAR_PLACES = NEAR_BINS * NEAR_FRAMES
};

/* Loads the chunk's features around `bin` of the second convolution into shared memory, zeros outside. */
DEV void near_load(struct prompt_worker *r, int chunk, int bin) {
    const struct encoder_args *a = encoder_of(r);
    for (int i = r->w.warp * LANES + r->w.lane; i < NEAR_PLACES; i += READ_CONSUMERS) {
        const int from = 4 * bin - NEAR_BINS / 2 + i / NEAR_FRAMES, frame = i % NEAR_FRAMES - 1;
        const int at = chunk * ENC_FRAMES + frame;
        const int there = from >= 0 && from < A_BINS && frame >= 0 && frame < ENC_FRAMES && at < a->n_frames;
        r->s->exchange[i] = there ? const_loadf(a->features + (size_t)from * (size_t)a->n_frames + at) : 0;
    }
}

/* Computes all frames of one bin of the first convolution from the three rows of features at `near`. Writes them as
 * tap `tap_bin` of the second one's row of positions from to_row on. */
DEV void stem_row(const struct encoder_args *a, const float *near, int tap_bin, int to_row, int channel,
                  const float (*weights)[ENC_TAPS], const float *bias) {
    float x[3][3]; /* [bin][frame] */
    UNROLL
    for (int i = 0; i < 3; i++)
        x[i][2] = near[i * NEAR_FRAMES];
    NO_UNROLL
    for (int frame = 0; frame < FRAMES1; frame++) {
        float v[2] = { bias[0], bias[1] };
        UNROLL
        for (int i = 0; i < 3; i++) {
            x[i][0] = x[i][2], x[i][1] = near[i * NEAR_FRAMES + 2 * frame + 1];
            x[i][2] = near[i * NEAR_FRAMES + 2 * frame + 2];
            UNROLL
            for (int j = 0; j < 3; j++)
                v[0] += weights[0][3 * i + j] * x[i][j], v[1] += weights[1][3 * i + j] * x[i][j];
        }
        const u32 both = bf16_pair(gelu(v[0]), gelu(v[1]));
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int tap_frame = frame % 2 ? 2 - 2 * j : 1, to_frame = (frame + 1 - tap_frame) / 2;
            if ((j && frame % 2 == 0) || to_frame >= FRAMES2) continue;
            const int column = (tap_bin * 3 + tap_frame) * TAP_COLUMNS + channel;
            plain_store32((u32 *)(a->taps2 + activation_at(a->room2, to_row + to_frame, column)), both);
        }
    }
}

/* Computes, of a pair of channels, all values that one bin of the second convolution reads. */
DEV void stem_pair(struct prompt_worker *r, int pair, int bin, int to_row) {
    float weights[2][ENC_TAPS], bias[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int channel = 2 * pair + i, there = channel < A_CHANNELS;
        const float *from = encoder_numbers(r, ENC_CONV1_WEIGHTS, 0) + channel * ENC_TAPS;
        bias[i] = there ? const_loadf(encoder_numbers(r, ENC_CONV1_BIAS, 0) + channel) : 0;
        UNROLL
        for (int tap = 0; tap < ENC_TAPS; tap++)
            weights[i][tap] = there ? const_loadf(from + tap) : 0;
    }
    NO_UNROLL
    for (int tap = 0; tap < 3; tap++) {
        const int bin1 = 2 * bin + tap - 1;
        if (bin1 < 0 || bin1 >= BINS1) continue;
        stem_row(encoder_of(r), r->s->exchange + 2 * tap * NEAR_FRAMES, tap, to_row, 2 * pair, weights, bias);
    }
}

DEV void stem_phase(struct prompt_worker *r) {
    const struct encoder_args *a = encoder_of(r);
    const int n_rows = r->n_tokens / FRAMES2; /* chunks times bins */
    NO_UNROLL
    for (int row = r->w.block; row < n_rows; row += (int)block_count()) {
        const int bin = row % BINS2;
        readers_sync(); /* the row before is over */
        near_load(r, a->first_chunk + row / BINS2, bin);
        readers_sync();
        NO_UNROLL
        for (int pair = r->w.warp * LANES + r->w.lane; pair < CHANNEL_PAIRS; pair += READ_CONSUMERS)
            stem_pair(r, pair, bin, row * FRAMES2);
    }
}

#endif
