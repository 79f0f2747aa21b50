#include "audio/live_resample.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum {
    RATE_OUT = 16000,
    LEAST_HALF = 48, /* samples on each side of the one that is made */
    ROOM = 1024      /* samples taken at once */
};
#define HALF_SECONDS 0.0025
#define EDGE         0.97 /* where the filter is 6 dB down, of the lower of both half rates */
#define BETA         7.86 /* of the window: 80 dB (Kaiser's formula, 0.1102 * (80 - 8.7)) */
#define PI           3.14159265358979323846

struct live_resample {
    uint64_t up, down; /* 16000 / rate, reduced */
    size_t half;
    float *taps; /* [up, 2 * half]: the filter at each of `up` places between two samples */
    float *held; /* [capacity]: samples from first on; those before the first one are zeros */
    size_t n_held, capacity;
    uint64_t first;       /* of the padded input: half - 1 zeros stand before it */
    uint64_t n_in, n_out; /* samples so far, without padding */
    bool ended;
};

/* Modified Bessel function of the first kind, order 0: its power series. */
static double bessel(double x) {
    double sum = 1, term = 1;
    for (int k = 1; k < 60; k++) {
        term *= x / (2 * k) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

/* The filter at t samples from its middle. */
static double filter_at(double t, double half, double cutoff) {
    const double u = t / half;
    if (u <= -1 || u >= 1) return 0;
    const double x = PI * cutoff * t;
    return (x == 0 ? 1 : sin(x) / x) * bessel(BETA * sqrt(1 - u * u)) / bessel(BETA);
}

/* Each phase sums to 1, so that a constant stays one. */
static void fill_taps(struct live_resample *r, int rate) {
    const double cutoff = EDGE * (rate < RATE_OUT ? 1 : (double)RATE_OUT / rate);
    const size_t n = 2 * r->half;
    for (uint64_t phase = 0; phase < r->up; phase++) {
        float *taps = r->taps + phase * n;
        double sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < n; i++) {
                const double t = (double)i - (double)(r->half - 1) - (double)phase / (double)r->up;
                const double value = filter_at(t, (double)r->half, cutoff);
                if (pass == 0)
                    sum += value;
                else
                    taps[i] = (float)(value / sum);
            }
    }
}

static bool is_usual(int rate) {
    static const int rates[] = { 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000 };
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i] == rate) return true;
    return false;
}

enum reel_status live_resample_open(struct live_resample **out, int rate, struct reel_error *err) {
    struct live_resample *r = NULL;
    *out = NULL;
    if (!is_usual(rate))
        return err_set(err, REEL_E_ARGUMENT,
                       "rate is %d; allowed are 8000, 11025, 12000, 16000, 22050, 24000, 32000, "
                       "44100 and 48000",
                       rate);
    enum reel_status status = mem_zeroed(&r, 1, sizeof *r, "a resampler", err);
    if (status != REEL_OK) return status;
    int a = RATE_OUT, b = rate;
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    r->up = (uint64_t)(RATE_OUT / a);
    r->down = (uint64_t)(rate / a);
    r->half = (size_t)(rate * HALF_SECONDS);
    if (r->half < LEAST_HALF) r->half = LEAST_HALF;
    r->capacity = 3 * r->half + ROOM;
    r->n_held = r->half - 1;
    status = mem_zeroed(&r->taps, (size_t)r->up * 2 * r->half, sizeof *r->taps, "a filter", err);
    if (status == REEL_OK)
        status = mem_zeroed(&r->held, r->capacity, sizeof *r->held, "samples", err);
    if (status != REEL_OK) {
        live_resample_close(r);
        return status;
    }
    fill_taps(r, rate);
    *out = r;
    return REEL_OK;
}

/* Room for more: forgets what no later sample is made of. */
static void forget(struct live_resample *r) {
    const uint64_t begin = r->n_out * r->down / r->up;
    const size_t n = (size_t)(begin - r->first);
    if (begin <= r->first || n > r->n_held) return;
    memmove(r->held, r->held + n, (r->n_held - n) * sizeof *r->held);
    r->n_held -= n;
    r->first = begin;
}

static size_t make(struct live_resample *r, float *out, size_t n_out) {
    const size_t n = 2 * r->half;
    size_t made = 0;
    for (; made < n_out; made++) {
        const uint64_t at = r->n_out * r->down;
        const size_t begin = (size_t)(at / r->up - r->first);
        if (begin + n > r->n_held) break;
        if (r->ended && r->n_out * r->down >= r->n_in * r->up) break;
        const float *taps = r->taps + at % r->up * n, *x = r->held + begin;
        float sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += taps[i] * x[i];
        out[made] = sum;
        r->n_out++;
    }
    return made;
}

void live_resample_run(struct live_resample *r, const float *in, size_t n_in, size_t *n_taken,
                       float *out, size_t n_out, size_t *n_given) {
    *n_taken = *n_given = 0;
    if (!in && !r->ended) {
        forget(r);
        r->ended = true;
        memset(r->held + r->n_held, 0, r->half * sizeof *r->held); /* there is room for it */
        r->n_held += r->half;
    }
    while (true) {
        *n_given += make(r, out + *n_given, n_out - *n_given);
        if (*n_given == n_out || !in || *n_taken == n_in) return;
        forget(r);
        size_t n = r->capacity - r->half - r->n_held; /* with room for the end's zeros */
        if (n > n_in - *n_taken) n = n_in - *n_taken;
        memcpy(r->held + r->n_held, in + *n_taken, n * sizeof *in);
        r->n_held += n;
        r->n_in += n;
        *n_taken += n;
    }
}

void live_resample_close(struct live_resample *r) {
    if (!r) return;
    mem_free(r->taps);
    mem_free(r->held);
    mem_free(r);
}
