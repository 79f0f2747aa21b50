/* The arithmetic of mel_frames.h, for one instruction set: the file that includes it defines
 * MEL_FRAMES, the function's name.
 *
 * The 400 real samples are transformed as 200 complex ones, by Stockham's algorithm (no
 * reordering): passes of radix 5, 5, 4 and 2, between two arrays. */
#include "audio/mel_frames.h"

typedef double lanes __attribute__((vector_size(MEL_LANES * 8)));
typedef float float_lanes __attribute__((vector_size(MEL_LANES * 4)));
typedef int32_t int_lanes __attribute__((vector_size(MEL_LANES * 4)));

enum { HALF = MEL_WINDOW / 2 };

struct complex_lanes {
    lanes re, im;
};

/* One pass over n points that are `stride` apart: n / radix butterflies on each of `stride` groups.
 */
struct pass {
    const struct mel_tables *tables;
    const struct complex_lanes *in;
    struct complex_lanes *out;
    int n, stride;
};

#define PART static inline __attribute__((always_inline))

PART void add(struct complex_lanes *a, const struct complex_lanes *b,
              const struct complex_lanes *c) {
    a->re = b->re + c->re;
    a->im = b->im + c->im;
}

PART void subtract(struct complex_lanes *a, const struct complex_lanes *b,
                   const struct complex_lanes *c) {
    a->re = b->re - c->re;
    a->im = b->im - c->im;
}

/* out[k * stride] = a * exp(-2 pi i * k * p / n) */
PART void put(const struct pass *pass, struct complex_lanes *out, int p, int k,
              const struct complex_lanes *a) {
    int turn = p * k * (MEL_WINDOW / pass->n);
    double c = pass->tables->cosine[turn], s = pass->tables->sine[turn];
    struct complex_lanes *to = out + (size_t)k * (size_t)pass->stride;
    to->re = a->re * c + a->im * s;
    to->im = a->im * c - a->re * s;
}

PART void butterfly5(const struct pass *pass, const struct complex_lanes *in, size_t apart,
                     struct complex_lanes *out, int p) {
    /* cos and sin of 1/5 and 2/5 of a turn */
    const double *cosine = pass->tables->cosine, *sine = pass->tables->sine;
    const double c1 = cosine[MEL_WINDOW / 5], c2 = cosine[MEL_WINDOW / 5 * 2];
    const double s1 = sine[MEL_WINDOW / 5], s2 = sine[MEL_WINDOW / 5 * 2];
    struct complex_lanes near_sum, near, far_sum, far, all, one, two, y;
    add(&near_sum, in + apart, in + 4 * apart);
    subtract(&near, in + apart, in + 4 * apart);
    add(&far_sum, in + 2 * apart, in + 3 * apart);
    subtract(&far, in + 2 * apart, in + 3 * apart);
    add(&all, &near_sum, &far_sum);
    add(&all, &all, in);
    one.re = in->re + near_sum.re * c1 + far_sum.re * c2;
    one.im = in->im + near_sum.im * c1 + far_sum.im * c2;
    two.re = in->re + near_sum.re * c2 + far_sum.re * c1;
    two.im = in->im + near_sum.im * c2 + far_sum.im * c1;
    put(pass, out, p, 0, &all);
    lanes re = near.im * s1 + far.im * s2, im = near.re * s1 + far.re * s2;
    y = (struct complex_lanes){ one.re + re, one.im - im };
    put(pass, out, p, 1, &y);
    y = (struct complex_lanes){ one.re - re, one.im + im };
    put(pass, out, p, 4, &y);
    re = near.im * s2 - far.im * s1, im = near.re * s2 - far.re * s1;
    y = (struct complex_lanes){ two.re + re, two.im - im };
    put(pass, out, p, 2, &y);
    y = (struct complex_lanes){ two.re - re, two.im + im };
    put(pass, out, p, 3, &y);
}

PART void butterfly4(const struct pass *pass, const struct complex_lanes *in, size_t apart,
                     struct complex_lanes *out, int p) {
    struct complex_lanes even, even_less, odd, odd_less, y;
    add(&even, in, in + 2 * apart);
    subtract(&even_less, in, in + 2 * apart);
    add(&odd, in + apart, in + 3 * apart);
    subtract(&odd_less, in + apart, in + 3 * apart);
    add(&y, &even, &odd);
    put(pass, out, p, 0, &y);
    subtract(&y, &even, &odd);
    put(pass, out, p, 2, &y);
    y = (struct complex_lanes){ even_less.re + odd_less.im, even_less.im - odd_less.re };
    put(pass, out, p, 1, &y);
    y = (struct complex_lanes){ even_less.re - odd_less.im, even_less.im + odd_less.re };
    put(pass, out, p, 3, &y);
}

PART void butterfly2(const struct pass *pass, const struct complex_lanes *in, size_t apart,
                     struct complex_lanes *out) {
    (void)pass; /* the last pass: no turns */
    add(out, in, in + apart);
    subtract(out + apart, in, in + apart);
}

PART void run_pass(const struct pass *pass, int radix) {
    int groups = pass->n / radix;
    size_t stride = (size_t)pass->stride, apart = (size_t)groups * stride;
    for (int p = 0; p < groups; p++)
        for (size_t q = 0; q < stride; q++) {
            const struct complex_lanes *in = pass->in + q + stride * (size_t)p;
            struct complex_lanes *out = pass->out + q + stride * (size_t)(radix * p);
            if (radix == 5) butterfly5(pass, in, apart, out, p);
            if (radix == 4) butterfly4(pass, in, apart, out, p);
            if (radix == 2) butterfly2(pass, in, apart, out);
        }
}

/* The transform of z, back in z. */
static void transform(const struct mel_tables *t, struct complex_lanes *z) {
    struct complex_lanes other[HALF];
    run_pass(&(struct pass){ t, z, other, HALF, 1 }, 5);
    run_pass(&(struct pass){ t, other, z, HALF / 5, 5 }, 5);
    run_pass(&(struct pass){ t, z, other, HALF / 25, 25 }, 4);
    run_pass(&(struct pass){ t, other, z, HALF / 100, 100 }, 2);
}

/* One windowed sample of each frame. */
PART void gather(lanes *out, const float *samples, double window) {
    lanes all = { (double)samples[0], (double)samples[MEL_HOP], (double)samples[2 * MEL_HOP],
                  (double)samples[3 * MEL_HOP] };
    *out = all * window;
}

/* Even samples as real parts, odd ones as imaginary parts. */
static void load(const struct mel_tables *t, const float *samples, struct complex_lanes *z) {
    for (int i = 0; i < HALF; i++) {
        gather(&z[i].re, samples + 2 * i, t->window[2 * i]);
        gather(&z[i].im, samples + 2 * i + 1, t->window[2 * i + 1]);
    }
}

/* With Z the transform of even + i odd samples, twice the real samples' transform is
 * X[k] = E - i w O and X[200 - k] = conj(E + i w O), where E = Z[k] + conj Z[200 - k],
 * O = Z[k] - conj Z[200 - k] and w = exp(-2 pi i k / 400). */
static void powers_of(const struct mel_tables *t, const struct complex_lanes *z, lanes *powers) {
    lanes first = z[0].re + z[0].im, last = z[0].re - z[0].im;
    powers[0] = first * first;
    powers[HALF] = last * last;
    for (int k = 1; k <= HALF / 2; k++) {
        const struct complex_lanes *a = z + k, *b = z + HALF - k;
        lanes even_re = a->re + b->re, even_im = a->im - b->im;
        lanes odd_re = a->re - b->re, odd_im = a->im + b->im;
        double c = t->cosine[k], s = t->sine[k];
        lanes re = odd_im * c - odd_re * s, im = -(odd_re * c + odd_im * s);
        lanes x_re = even_re + re, x_im = even_im + im, y_re = even_re - re, y_im = even_im - im;
        powers[k] = (x_re * x_re + x_im * x_im) * 0.25;
        powers[HALF - k] = (y_re * y_re + y_im * y_im) * 0.25;
    }
}

/* log10 of positive normal numbers, within 3e-7 or 1e-7 of the result. x = 2^e y with y in
 * [sqrt 1/2, sqrt 2), and ln y = 2 atanh((y - 1) / (y + 1)). */
PART float_lanes log10_lanes(float_lanes x) {
    const int32_t root = 0x3f3504f3; /* sqrt 1/2 */
    int_lanes e = ((int_lanes)x - root) >> 23;
    float_lanes y = (float_lanes)((int_lanes)x - (e << 23));
    float_lanes t = (y - 1.0f) / (y + 1.0f), q = t * t;
    float_lanes series = q * (1 / 9.0f) + 1 / 7.0f;
    series = series * q + 1 / 5.0f;
    series = series * q + 1 / 3.0f;
    series = series * q + 1.0f;
    return __builtin_convertvector(e, float_lanes) * 0.301029996f + t * series * 0.868588964f;
}

static void bins_of(const struct mel_tables *t, const lanes *powers, float *logs) {
    const float_lanes floor = (float_lanes){ 0 } + MEL_POWER_FLOOR;
    for (int bin = 0; bin < MEL_BINS; bin++) {
        const struct mel_filter *filter = t->filters + bin;
        const double *weights = t->weights + filter->at;
        lanes sum = { 0 };
        for (int k = 0; k < filter->n; k++)
            sum += powers[filter->first + k] * weights[k];
        float_lanes value = __builtin_convertvector(sum, float_lanes);
        int_lanes above = value > floor;
        value = (float_lanes)((above & (int_lanes)value) | (~above & (int_lanes)floor));
        float_lanes l = log10_lanes(value);
        for (int lane = 0; lane < MEL_LANES; lane++)
            logs[lane * MEL_BINS + bin] = l[lane];
    }
}

void MEL_FRAMES(const struct mel_tables *t, const float *samples, float *logs) {
    struct complex_lanes z[HALF];
    lanes powers[MEL_POWERS];
    load(t, samples, z);
    transform(t, z);
    powers_of(t, z, powers);
    bins_of(t, powers, logs);
}
