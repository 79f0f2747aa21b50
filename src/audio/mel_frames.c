/* mel_frames.h for any machine, and the tables of all. */
#define MEL_FRAMES mel_frames_portable
#include "audio/mel_frames_body.h"

#include "base/cpu_features.h"

#include <assert.h>
#include <math.h>

/* Slaney's scale: linear below 1 kHz, 27 steps for each factor of 6.4 above. */
static double mel_of_hz(double hz) {
    return hz < 1000 ? hz * 3 / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double hz_of_mel(double mel) {
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

/* Triangles over 130 points that are equally far apart in mel, each of area 1 in Hz. */
static void make_filters(struct mel_tables *t) {
    double points[MEL_BINS + 2];
    double top = mel_of_hz(MEL_RATE / 2.0);
    int n_weights = 0;
    for (int i = 0; i < MEL_BINS + 2; i++)
        points[i] = hz_of_mel(top * i / (MEL_BINS + 1));
    for (int bin = 0; bin < MEL_BINS; bin++) {
        const double *p = points + bin;
        struct mel_filter *filter = t->filters + bin;
        *filter = (struct mel_filter){ .at = n_weights };
        for (int k = 0; k < MEL_POWERS; k++) {
            double hz = k * (double)MEL_RATE / MEL_WINDOW;
            double side = fmin((hz - p[0]) / (p[1] - p[0]), (p[2] - hz) / (p[2] - p[1]));
            if (side <= 0) continue;
            if (filter->n++ == 0) filter->first = k;
            assert(n_weights < MEL_WEIGHTS);
            t->weights[n_weights++] = (double)(float)(side * 2 / (p[2] - p[0]));
        }
    }
}

void mel_tables_make(struct mel_tables *t) {
    double turn = 2 * acos(-1.0) / MEL_WINDOW;
    for (int i = 0; i < MEL_WINDOW; i++) {
        t->cosine[i] = cos(turn * i);
        t->sine[i] = sin(turn * i);
        t->window[i] = 0.5 - 0.5 * t->cosine[i];
    }
    make_filters(t);
}

mel_frames_fn *mel_frames_pick(void) {
#ifdef __x86_64__
    struct cpu_features features;
    cpu_features_detect(&features);
    if (features.avx2) return mel_frames_avx2;
#endif
    return mel_frames_portable;
}
