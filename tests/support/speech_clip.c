#include "tests/support/speech_clip.h"

#include "kernels/synthetic.h"

#include <stdint.h>
#include <stdlib.h>

/* Period 65536, from -16384 to 16384. */
static int64_t triangle(int64_t phase) { return llabs((phase & 0xffff) - 32768) - 16384; }

void speech_clip(int seed, int n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t loudness = triangle(i * (8 + seed % 7)) + 16384;
        int64_t glide = triangle(i * (3 + seed % 5)) >> 4;
        int64_t low = triangle(i * (480 + 37 * (seed % 11)) + glide * 16);
        int64_t high = triangle(i * (2900 + 211 * (seed % 13)) - glide * 64) >> 1;
        uint64_t x =
            synthetic_mix((uint64_t)seed + (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        int64_t noise = (int64_t)(x >> 52) - 2048;
        out[i] = (float)(((low + high) * loudness >> 15) + (noise >> 2)) / 32768.0f;
    }
}
