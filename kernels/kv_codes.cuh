/* Codes of a cache in 8 bits (kv_layout.h, model/kv_form.h) as operands, and vectors as codes. In bf16 all of this is
 * what it would be without this file.
 *
 * A code's value is a bf16 number, so products take codes as they are: K's scale multiplies the score of its position,
 * V's the weight. P_KV_FORM is 0 for bf16, else one of enum kv_codes. */
#ifndef REEL_KERNELS_KV_CODES_CUH
#define REEL_KERNELS_KV_CODES_CUH

#include "kv_layout.h"
#include "maths.cuh"
#include "memory.cuh"
#include "mma.cuh"
#include "reduce.cuh"

STATIC_ASSERT(M_HEAD_DIM / TILE_K * 2 * (P_KV_FORM ? (int)KV_CODE_TILE_BYTES : (int)BF16_TILE_BYTES) +
                      (P_KV_FORM ? (int)KV_SCALES_BYTES : 0) ==
                  P_KV_PIECE,
              "kv_piece: not what kv_piece_bytes says");

#if !P_KV_FORM

#define KV_TILE struct quad /* a lane's share of a tile */
DEV struct quad kv_operand(KV_TILE t) { return t; }
DEV u32 kv_tile_last(KV_TILE t) { return t.w; }
DEV void kv_tile_clear(KV_TILE *t) { t->x = t->y = t->z = t->w = 0; }

#else

#define KV_TILE struct pair

/* Two codes of a word, those that the mask 0x00ff00ff takes, as bf16. */
DEV u32 kv_codes_pair(u32 w) {
#if P_KV_FORM == 1 /* KV_CODES_INT8: 128 + the low bits, less 128 or, of a negative code, 256 */
    return bf16_less((w & 0x007f007fu) | 0x43004300u, (w & 0x00800080u) | 0x43004300u);
#else              /* KV_CODES_E4M3: the exponents differ by 120 */
    return bf16_scaled((w & 0x00800080u) << 8 | (w & 0x007f007fu) << 4, 1.329227995784916e36f, -0.0f);
#endif
}
DEV struct quad kv_operand(KV_TILE t) {
    struct quad a;
    a.x = kv_codes_pair(t.low), a.y = kv_codes_pair(t.high);
    a.z = kv_codes_pair(t.low >> 8), a.w = kv_codes_pair(t.high >> 8);
    return a;
}
DEV u32 kv_tile_last(KV_TILE t) { return t.high; }
DEV void kv_tile_clear(KV_TILE *t) { t->low = t->high = 0; }

/* ---- making codes ---- */

/* a / b as it is rounded, where b has no more bits than a bf16 number and r is nearly 1 / b. A division of its own
 * would be a call, around which registers are put aside. The remainder is exact, and no quotient lies so near the
 * middle of two floats that the rest could decide otherwise. */
DEV float quotient(float a, float b, float r) {
    const float q = a * r;
    return fmaf(fmaf(-q, b, a), r, q);
}

/* Of a vector whose largest element has these bits without its sign, as bf16: the scale, and what elements are
 * multiplied with to become codes. An infinity or a NaN makes the scale a NaN. given: the scale of the model's file, or
 * 0 where it has none; elements are divided by it, and inverse is 0. */
struct kv_scale {
    float scale, inverse;
};
DEV struct kv_scale kv_scale_of(u32 largest, float given) {
    const float most = bits_float(largest << 16), top = P_KV_FORM == 1 ? 127.0f : 448.0f;
    const float mantissa =
        bits_float(0x3f800000u | (largest & 0x7fu) << 16); /* most is this times 2^(exponent - 127) */
    const u32 exponent = largest >> 7;
    struct kv_scale s;
    s.scale = s.inverse = 0;
    if (exponent >= 8) { /* 2^-119 */
        s.scale = quotient(most, top, 1.0f / top);
        s.inverse = quotient(top, mantissa, rcp_approx(mantissa)) * 0.5f * bits_float((255 - exponent) << 23);
    }
    if (P_KV_GIVEN && given > 0) s.scale = given, s.inverse = 0;
    if (largest >= 0x7f80u) s.scale = bits_float(0x7fc00000u), s.inverse = 0;
    return s;
}
DEV u32 kv_largest(u32 a, u32 pair) {
    const u32 low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu, most = low > high ? low : high;
    return a > most ? a : most;
}
/* The largest of some lanes' values: those that differ in the bits from `from` to below `to`. */
DEV u32 kv_largest_of(u32 a, int from, int to) {
    UNROLL
    for (int i = from; i < to; i *= 2) {
        const u32 other = shuffle_xor(a, i);
        a = a > other ? a : other;
    }
    return a;
}

/* The nearest code of x, even at halves. */
DEV u32 kv_code(float x) {
#if P_KV_FORM == 1
    x = x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x;
    return float_bits(x + 12582912.0f) & 0xffu; /* 1.5 * 2^23: its last bits hold the integer */
#else
    const u32 bits = float_bits(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    const u32 small = float_bits(bits_float(size) * 512.0f + 12582912.0f) & 0xffu; /* steps of 2^-9 */
    const u32 large = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - 960u;
    return sign | (size < 0x3c800000u ? small : large > 0x7eu ? 0x7eu : large); /* below 2^-6; at most 448 */
#endif
}
/* Both values of a bf16 pair as codes, each in 16 bits. */
DEV u32 kv_codes_of(u32 pair, struct kv_scale s) {
    const int divide = P_KV_GIVEN && s.inverse == 0 && s.scale > 0;
    const float low = bf16_low(pair), high = bf16_high(pair);
    return kv_code(divide ? low / s.scale : low * s.inverse) | kv_code(divide ? high / s.scale : high * s.inverse)
                                                                   << 16;
}
/* Those of a pair that holds codes. */
DEV u32 kv_codes_again(u32 pair) { return kv_code(bf16_low(pair)) | kv_code(bf16_high(pair)) << 16; }

/* The scale that the model's file has for K or V of a KV head, or 0; nth: of the layers that attend. */
DEV float kv_given(const float *qkv_vectors, int nth, int kv_head, int is_v) {
    const int layers = M_LAYERS - M_DELTA;
    const int before = (M_QK_NORM ? 2 : 0) * M_HEAD_DIM + (M_QKV_BIAS ? (M_HEADS + 2 * M_KV_HEADS) * M_HEAD_DIM : 0);
    return P_KV_GIVEN ? const_loadf(qkv_vectors + layers * before + (nth * M_KV_HEADS + kv_head) * 2 + is_v) : 0;
}

/* Such codes as bf16 again. */
DEV u32 kv_codes_bf16(u32 codes) { return kv_codes_pair(codes); }

/* A lane's share of a tile of codes from the four words of its A operand, whose codes have 16 bits each. */
DEV struct pair kv_codes_pack(struct quad v) {
    struct pair p;
    p.low = v.x | v.z << 8, p.high = v.y | v.w << 8;
    return p;
}
#endif

/* ---- scales of a piece ---- */

/* Those of this lane's positions, lane / 4 and + 8. */
struct piece_scales {
#if P_KV_FORM
    float k[2], v[2];
#else
    int none;
#endif
};

/* tiles: this lane's share of the piece's first tile. V's from position `left` on are 0: what lies there may be NaN. */
DEV void piece_scales_read(struct piece_scales *x, const KV_TILE *tiles, int lane, int left) {
#if P_KV_FORM
    const float *from = (const float *)((const u8 *)(tiles - lane) + kv_scale_byte(M_HEAD_DIM, 0, 0)) + lane / 4;
    UNROLL
    for (int i = 0; i < 2; i++) {
        x->k[i] = from[8 * i];
        x->v[i] = lane / 4 + 8 * i < left ? from[KV_POSITIONS + 8 * i] : 0;
    }
#else
    x->none = 0;
#endif
    (void)tiles, (void)lane, (void)left;
}

DEV void piece_scales_clear(struct piece_scales *x) {
#if P_KV_FORM
    x->k[0] = x->k[1] = x->v[0] = x->v[1] = 0;
#else
    x->none = 0;
#endif
}

/* A score of position lane / 4 + 8 i, and two weights of it as a pair. */
DEV float score_scaled(float s, const struct piece_scales *x, int i) {
#if P_KV_FORM
    return s * x->k[i];
#else
    (void)x, (void)i;
    return s;
#endif
}
DEV u32 weights_scaled(const float *w, const struct piece_scales *x, int i) {
#if P_KV_FORM
    return bf16_pair(w[0] * x->v[i], w[1] * x->v[i]);
#else
    (void)x, (void)i;
    return bf16_pair(w[0], w[1]);
#endif
}
/* Something that depends on all of them. */
DEV u32 piece_scales_seen(const struct piece_scales *x) {
#if P_KV_FORM
    return float_bits(x->k[0]) ^ float_bits(x->k[1]) ^ float_bits(x->v[0]) ^ float_bits(x->v[1]);
#else
    (void)x;
    return 0;
#endif
}

/* Clears a tile of V from position `left` on: what lies there may be NaN, which a weight of 0 would not silence. */
DEV KV_TILE value_trim(KV_TILE v, int lane, int left) {
    const int j = lane % 4 * 2;
#if P_KV_FORM
    const u32 first = (j < left ? 0xffu : 0) | (j + 1 < left ? 0xff0000u : 0);
    const u32 second = (j + 8 < left ? 0xff00u : 0) | (j + 9 < left ? 0xff000000u : 0);
    v.low &= first | second, v.high &= first | second;
#else
    const u32 low = (j < left ? 0xffffu : 0) | (j + 1 < left ? 0xffff0000u : 0);
    const u32 high = (j + 8 < left ? 0xffffu : 0) | (j + 9 < left ? 0xffff0000u : 0);
    v.x &= low, v.y &= low, v.z &= high, v.w &= high;
#endif
    return v;
}

#endif
