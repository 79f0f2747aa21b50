/* stem: the first convolution, written where the second one reads it.
 *   reads    features, zeros around them
 *   writes   taps2: each value with all neighbourhoods that it belongs to. Taps that lie outside are never written:
 *            they hold zeros from the start, whatever chunk has the place
 *   split    a bin of the second convolution in a chunk over blocks, two channels a thread */
#ifndef REEL_KERNELS_ENCODER_STEM_CUH
#define REEL_KERNELS_ENCODER_STEM_CUH

#include "encoder_product.cuh"

enum { CHANNEL_PAIRS = (A_CHANNELS + 1) / 2 };

DEV float feature_at(const struct encoder_args *a, int bin, int frame, int chunk) {
    const int at = chunk * ENC_FRAMES + frame;
    const int there = bin >= 0 && bin < A_BINS && frame >= 0 && frame < ENC_FRAMES && at < a->n_frames;
    return there ? const_loadf(a->features + (size_t)bin * (size_t)a->n_frames + at) : 0;
}

/* One row of the first convolution's frames, to the tap `tap_bin` of row `bin` of the second one's. */
DEV void stem_row(const struct encoder_args *a, int chunk, int bin1, int tap_bin, int to_row, int channel,
                  const float (*weights)[ENC_TAPS], const float *bias) {
    NO_UNROLL
    for (int frame = 0; frame < FRAMES1; frame++) {
        float v[2] = { bias[0], bias[1] };
        UNROLL
        for (int tap = 0; tap < ENC_TAPS; tap++) {
            const float x = feature_at(a, 2 * bin1 + tap / 3 - 1, 2 * frame + tap % 3 - 1, chunk);
            v[0] += weights[0][tap] * x, v[1] += weights[1][tap] * x;
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

DEV void stem_phase(struct reader *r) {
    const struct encoder_args *a = encoder_of(r);
    const int n_rows = r->n_tokens / FRAMES2; /* chunks times bins */
    NO_UNROLL
    for (int row = r->w.block; row < n_rows; row += (int)block_count()) {
        const int chunk = a->first_chunk + row / BINS2, bin = row % BINS2;
        NO_UNROLL
        for (int pair = r->w.warp * LANES + r->w.lane; pair < CHANNEL_PAIRS; pair += READ_CONSUMERS) {
            float weights[2][ENC_TAPS], bias[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                const int channel = 2 * pair + i, there = channel < A_CHANNELS;
                bias[i] = there ? const_loadf(encoder_numbers(r, ENC_CONV1_BIAS, 0) + channel) : 0;
                UNROLL
                for (int tap = 0; tap < ENC_TAPS; tap++)
                    weights[i][tap] = there ? const_loadf(encoder_numbers(r, ENC_CONV1_WEIGHTS, 0) + channel * ENC_TAPS + tap) : 0;
            }
            NO_UNROLL
            for (int tap = 0; tap < 3; tap++) {
                const int bin1 = 2 * bin + tap - 1;
                if (bin1 >= 0 && bin1 < BINS1) stem_row(a, chunk, bin1, tap, row * FRAMES2, 2 * pair, weights, bias);
            }
        }
    }
}

#endif
