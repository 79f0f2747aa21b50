/* The arithmetic of sampling, compiled for host and device: the same logits, seed and position give the same id on
 * both, bit for bit.
 *
 *   scaled   (logit - largest logit) / temperature, so at most 0
 *   weight   exp(scaled) as a fixed-point integer; sums of integers do not depend on their order, so one thread may
 *            add up top-p, or thousands
 *   draw     the largest scaled + Gumbel noise over the ids that are kept (Gumbel-max); it needs no normalising
 *            constant, so each id is judged alone
 *   noise    a pure function of (seed, position, id)
 *
 * This file includes no libc and no toolkit header. Every float operation is a call that rounds once: device compilers
 * may not fuse such calls, and host files are compiled with -ffp-contract=off. No path depends on subnormal numbers. */
#ifndef REEL_KERNELS_SAMPLING_H
#define REEL_KERNELS_SAMPLING_H

#if defined(__CUDACC__)
#define SAMPLING_FN __device__ static __forceinline__
SAMPLING_FN float sampling_mul(float a, float b) { return __fmul_rn(a, b); }
SAMPLING_FN float sampling_add(float a, float b) { return __fadd_rn(a, b); }
SAMPLING_FN float sampling_div(float a, float b) { return __fdiv_rn(a, b); }
#else
#define SAMPLING_FN static inline
SAMPLING_FN float sampling_mul(float a, float b) { return a * b; }
SAMPLING_FN float sampling_add(float a, float b) { return a + b; }
SAMPLING_FN float sampling_div(float a, float b) { return a / b; }
#endif

SAMPLING_FN unsigned sampling_bits(float x) {
    union {
        float value;
        unsigned bits;
    } u;
    u.value = x;
    return u.bits;
}

SAMPLING_FN float sampling_float(unsigned bits) {
    union {
        unsigned bits;
        float value;
    } u;
    u.bits = bits;
    return u.value;
}

/* Returns yes ? a : b, by masks: a choice between computed values would keep compilers that respect
 * floating point traps from turning loops over this file into vectors. */
SAMPLING_FN float sampling_select(int yes, float a, float b) {
    unsigned mask = 0u - (unsigned)yes;
    return sampling_float((sampling_bits(a) & mask) | (sampling_bits(b) & ~mask));
}

/* Returns e^x for x <= 0, within 2 units in the last place; 0 below -87 and for NaN. It splits x = n ln 2 + r,
 * |r| <= ln 2 / 2, and has a polynomial fitted to (e^r - 1 - r) / r^2. */
SAMPLING_FN float sampling_exp(float x) {
    const float low = -87.0f;                                       /* e^low is still a normal number */
    const float round = 12582912.0f;                                /* 1.5 * 2^23: adding it rounds to an integer */
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f; /* high part has 10 bits */
    int inside = x > low;
    float c = sampling_select(inside, x, low);
    float shifted = sampling_add(sampling_mul(c, 1.44269504f), round);
    float n = sampling_add(shifted, -round);
    float r = sampling_add(c, -sampling_mul(n, ln2_high));
    r = sampling_add(r, -sampling_mul(n, ln2_low));
    float p = 0.001392637612298131f;
    p = sampling_add(sampling_mul(p, r), 0.008363333530724049f);
    p = sampling_add(sampling_mul(p, r), 0.04166655242443085f);
    p = sampling_add(sampling_mul(p, r), 0.16666576266288757f);
    p = sampling_add(sampling_mul(p, r), 0.5f);
    p = sampling_add(sampling_mul(p, sampling_mul(r, r)), r);
    p = sampling_add(p, 1.0f);
    float scale = sampling_float((sampling_bits(shifted) - 0x4b400000u + 127u) << 23);
    return sampling_select(inside, sampling_mul(p, scale), 0.0f);
}

/* Returns log(1 + f) + e ln 2, by log(1 + f) = 2 atanh(s) with s = f / (2 + f), |s| < 0.172. */
SAMPLING_FN float sampling_log_parts(float f, float two_plus_f, float e) {
    float s = sampling_div(f, two_plus_f);
    float z = sampling_mul(s, s);
    float p = 0.11668405681848526f;
    p = sampling_add(sampling_mul(p, z), 0.14275293052196503f);
    p = sampling_add(sampling_mul(p, z), 0.2000006139278412f);
    p = sampling_add(sampling_mul(p, z), 0.3333333432674408f);
    float two_s = sampling_add(s, s);
    float tail = sampling_mul(two_s, sampling_mul(z, p));
    tail = sampling_add(tail, sampling_mul(e, -2.12194440e-4f));
    return sampling_add(sampling_add(two_s, tail), sampling_mul(e, 0.693359375f));
}

/* Splits a positive normal x into m * 2^e, m in [sqrt(1/2), sqrt(2)). */
SAMPLING_FN float sampling_split(float x, float *e) {
    const unsigned sqrt_half = 0x3f3504f3u;
    int exponent = (int)(sampling_bits(x) - sqrt_half) >> 23;
    *e = (float)exponent;
    return sampling_float(sampling_bits(x) - ((unsigned)exponent << 23));
}

/* Returns the natural logarithm of a positive normal number. */
SAMPLING_FN float sampling_log(float x) {
    float e;
    float m = sampling_split(x, &e);
    return sampling_log_parts(sampling_add(m, -1.0f), sampling_add(m, 1.0f), e);
}

/* Returns an exponential variate, -log(1 - v) with v = (k + 1/2) / 2^31, k the upper 31 bits. Small results
 * decide who wins a draw, so they come from v itself and keep their full precision. */
SAMPLING_FN float sampling_exponential(unsigned random) {
    const float unit = 4.656612873077393e-10f; /* 2^-31 */
    const float half = 2.3283064365386963e-10f;
    int k = (int)(random >> 1);
    float v = sampling_add(sampling_mul((float)k, unit), half);
    float rest = sampling_add(sampling_mul((float)(0x7fffffff - k), unit), half); /* 1 - v */
    float e;
    float m = sampling_split(rest, &e);
    int small = v < 0.25f;
    float f = sampling_select(small, -v, sampling_add(m, -1.0f));
    float two_plus_f = sampling_select(small, sampling_add(2.0f, -v), sampling_add(m, 1.0f));
    return -sampling_log_parts(f, two_plus_f, sampling_select(small, 0.0f, e));
}

/* Standard Gumbel noise: in (-3.1, SAMPLING_GUMBEL_MAX). */
#define SAMPLING_GUMBEL_MAX 22.2f
SAMPLING_FN float sampling_gumbel(unsigned random) { return -sampling_log(sampling_exponential(random)); }

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
SAMPLING_FN void sampling_philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0, unsigned k1,
                                 unsigned *r0, unsigned *r1, unsigned *r2, unsigned *r3) {
    for (int round = 0; round < 10; round++) {
        unsigned long long a = (unsigned long long)c0 * 0xd2511f53u;
        unsigned long long b = (unsigned long long)c2 * 0xcd9e8d57u;
        c0 = (unsigned)(b >> 32) ^ c1 ^ k0;
        c1 = (unsigned)b;
        c2 = (unsigned)(a >> 32) ^ c3 ^ k1;
        c3 = (unsigned)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    *r0 = c0;
    *r1 = c1;
    *r2 = c2;
    *r3 = c3;
}

/* Makes the random words of the ids 4 * group to 4 * group + 3 at a position. The last counter word keeps
 * these apart from anything else that may be drawn from the same seed. */
#define SAMPLING_STREAM_IDS 1u
SAMPLING_FN void sampling_random(unsigned long long seed, unsigned long long position, unsigned group, unsigned *r0,
                                 unsigned *r1, unsigned *r2, unsigned *r3) {
    sampling_philox(group, (unsigned)position, (unsigned)(position >> 32), SAMPLING_STREAM_IDS, (unsigned)seed,
                    (unsigned)(seed >> 32), r0, r1, r2, r3);
}

/* Applies the penalties to a logit, after its bias. held: the session holds the id, prompt or generated; count: how
 * often this call generated it. */
SAMPLING_FN float sampling_penalise(float logit, int held, int count, float repetition, float presence,
                                    float frequency) {
    if (held) logit = logit > 0.0f ? sampling_div(logit, repetition) : sampling_mul(logit, repetition);
    if (count > 0) {
        logit = sampling_add(logit, -presence);
        logit = sampling_add(logit, -sampling_mul(frequency, (float)count));
    }
    return logit;
}

/* Scales a logit. +infinity counts as the largest finite number, so that differences stay numbers. NaN stays NaN. */
#define SAMPLING_LARGEST 3.4028234663852886e38f
SAMPLING_FN float sampling_scale(float logit, float largest, float temperature) {
    float l = sampling_select(logit > SAMPLING_LARGEST, SAMPLING_LARGEST, logit);
    float m = sampling_select(largest > SAMPLING_LARGEST, SAMPLING_LARGEST, largest);
    return sampling_div(sampling_add(l, -m), temperature);
}

/* Returns the weight of an id for top-p. What is less than 2^-40 of the most likely id's weight counts as nothing. Sums
 * over 2^20 ids stay below 2^61. */
#define SAMPLING_WEIGHT_ONE 1099511627776.0f /* 2^40 */
SAMPLING_FN unsigned long long sampling_weight(float exp_scaled) {
    return (unsigned long long)(long long)sampling_mul(exp_scaled, SAMPLING_WEIGHT_ONE);
}

/* Returns the sum that top-p has to reach: ceil(top_p * total) for top_p in (0, 1), with top_p as a
 * fraction of 2^32; at least 1. */
SAMPLING_FN unsigned long long sampling_top_p_need(unsigned long long total, float top_p) {
    unsigned long long p = (unsigned long long)(long long)sampling_mul(top_p, 4294967296.0f);
    unsigned long long high = (total >> 32) * p, low = (total & 0xffffffffu) * p;
    unsigned long long need = high + ((low + 0xffffffffu) >> 32);
    return need ? need : 1;
}

/* Returns the order key of a number: unsigned order of the keys is the order of the numbers. -0 and 0 have the same
 * key; NaN has none. */
SAMPLING_FN unsigned sampling_order(float x) {
    unsigned bits = sampling_bits(sampling_add(x, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

SAMPLING_FN float sampling_from_order(unsigned order) {
    return sampling_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

#endif
