/* Makes weights from a counter: every element is a function of (seed, tensor name, index), so the same
 * bits come from the host (src/model/synthetic.c), a GPU and Python (tools/synthetic.py), in any
 * order and on any number of threads.
 *
 *   key     = mix(seed ^ mix(FNV-1a of the tensor's name))
 *   draw    = twice the sum of the four 16-bit fields of mix(key + (index + 1) * golden), centred
 *             and odd, so never zero; nearly normal, deviation SYNTHETIC_DEVIATION
 *   element = bf16(offset + draw * scale), one float32 product and sum, rounded to nearest even
 *
 * The compiler may fuse product and sum without changing a bit: either the offset is 0, or (norm
 * gains) the product is exact. */
#ifndef REEL_KERNELS_SYNTHETIC_H
#define REEL_KERNELS_SYNTHETIC_H

#ifdef __CUDACC__
#define SYNTHETIC_FN __host__ __device__ static inline
#else
#define SYNTHETIC_FN static inline
#endif

typedef unsigned long long synthetic_u64;

#define SYNTHETIC_DEVIATION  75674.0             /* of a draw: 2 * sqrt((2^32 - 1) / 3) */
#define SYNTHETIC_GAIN_SCALE (1.5f / 1048576.0f) /* deviation 0.108; 2 significant bits: products are exact */

/* The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014; constants by Stafford, variant 13). */
SYNTHETIC_FN synthetic_u64 synthetic_mix(synthetic_u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

SYNTHETIC_FN synthetic_u64 synthetic_key(synthetic_u64 seed, const char *name) {
    synthetic_u64 hash = 0xcbf29ce484222325ull; /* FNV-1a, 64 bits */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
    return synthetic_mix(seed ^ synthetic_mix(hash));
}

/* Returns a draw: an odd number in [-262139, 262141]. */
SYNTHETIC_FN int synthetic_draw(synthetic_u64 key, synthetic_u64 index) {
    synthetic_u64 x = synthetic_mix(key + (index + 1) * 0x9e3779b97f4a7c15ull);
    int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) + (int)(x >> 48);
    return 2 * sum - 262139;
}

/* Returns the element's bf16 bits. */
SYNTHETIC_FN unsigned short synthetic_bf16(synthetic_u64 key, synthetic_u64 index, float offset, float scale) {
    union {
        float value;
        unsigned bits;
    } u;
    u.value = offset + (float)synthetic_draw(key, index) * scale;
    return (unsigned short)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}

#endif
