/* One vector or several against rows of block formats: part of kernels_avx512.c, which includes
 * this file.
 *
 * A vector is whole numbers of 24 bits for each block, in three digits of 8, and a scale
 * (round_vector). A group of four blocks is two registers of codes: the first 16 of each block, and
 * its last 16. Codes are made unsigned, and vpdpbusd takes 64 products of them at a time, exactly:
 * a block has four lanes, and both registers go to the same. What codes have too much, and minima,
 * are multiplied with the sums of the numbers. */

/* ---- the vector ---- */

/* The largest magnitude of a block; NaN where there is one: its bits are the largest. */
ALWAYS_INLINE float largest(__m512 a, __m512 b) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    const __m512i both = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), sign),
                                          _mm512_and_si512(_mm512_castps_si512(b), sign));
    const uint32_t bits = _mm512_reduce_max_epu32(both);
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* The digits of 16 whole numbers, places `at` of half `half`; returns the numbers. */
ALWAYS_INLINE __m512i round_half(__m512 x, __m512 inverse, struct cpu_group *g, int half,
                                 size_t at) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    const __m512i middle = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x80)), 8);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x8080)), 16);
    const __m512i digits[] = { high, middle, q };
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        _mm_storeu_si128((__m128i *)(void *)(g->digits[i][half] + at),
                         _mm512_cvtepi32_epi8(digits[i]));
    return q;
}

/* Sums of each four of 16 numbers, as lanes of vpdpbusd have them. */
ALWAYS_INLINE __m128 sums_of_4(__m512i q) {
    const __m512i pairs = _mm512_add_epi32(q, _mm512_shuffle_epi32(q, _MM_PERM_CDAB));
    const __m512i fours = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm_cvtepi32_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(first, fours)));
}

/* Block b: numbers of up to MOST for the largest of 32 values. */
static void round_block(const float *x, int b, struct cpu_vector *out) {
    enum { MOST = 0x7f7f00 }; /* three digits of 127, less what rounding may add */
    struct cpu_group *g = &out->groups[b / 4];
    const size_t at = (size_t)(b % 4) * 16;
    const __m512 a = _mm512_loadu_ps(x), c = _mm512_loadu_ps(x + 16);
    const float most = largest(a, c), bound = most < 0x1p-100f ? 0x1p-100f : most;
    const __m512 inverse = _mm512_set1_ps(MOST / bound);
    const float scale = bound / MOST;
    const __m128 first = sums_of_4(round_half(a, inverse, g, 0, at));
    const __m128 second = sums_of_4(round_half(c, inverse, g, 1, at));
    const __m128 all = _mm_add_ps(first, second);
    _mm_storeu_ps(g->half_sums[0] + at / 4, first);
    _mm_storeu_ps(g->half_sums[1] + at / 4, second);
    _mm_storeu_ps(g->sums + at / 4, all);
    _mm_storeu_ps(g->scales + at / 4, _mm_set1_ps(scale));
    float four[4];
    _mm_storeu_ps(four, all);
    out->byte_sums[b] = (four[0] + four[1] + (four[2] + four[3])) * scale;
}

/* ---- blocks, four at a time ---- */

struct group {
    __m512i codes[2];
};

/* 16 bytes for the blocks of a group that `lanes` has. */
ALWAYS_INLINE __m512i bytes16(__m512i to, __mmask16 lanes, const unsigned char *p) {
    return _mm512_mask_broadcast_i32x4(to, lanes,
                                       _mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE uint32_t load_bits(const unsigned char *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Lanes that each hold one number for a block of the group. */
ALWAYS_INLINE __m512i of_blocks(int a, int b, int c, int d) {
    return _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
}

ALWAYS_INLINE __m512i low_bits(__m512i codes) {
    return _mm512_and_si512(codes, _mm512_set1_epi8(15));
}

/* What codes of up to 63 and the numbers of four lanes' values, or codes of up to 31 and those of
 * eight, come to: below 2^31. Each digit goes on from the sum of those above it. */
ALWAYS_INLINE __m512 half_products(__m512i codes, const struct cpu_group *x, const int half) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++) {
        if (digit > 0) sum = _mm512_slli_epi32(sum, 8);
        sum = _mm512_dpbusd_epi32(sum, codes, load(x->digits[digit][half]));
    }
    return _mm512_cvtepi32_ps(sum);
}

ALWAYS_INLINE __m512 group_products(const struct group *g, const struct cpu_group *x,
                                    const bool bytes) {
    __m512i sum = _mm512_setzero_si512();
    __m512 upper = _mm512_setzero_ps();
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++) {
        if (bytes && digit == 2) { /* which would not fit */
            upper = _mm512_cvtepi32_ps(sum);
            sum = _mm512_setzero_si512();
        } else if (digit > 0)
            sum = _mm512_slli_epi32(sum, 8);
        sum = _mm512_dpbusd_epi32(sum, g->codes[0], load(x->digits[digit][0]));
        sum = _mm512_dpbusd_epi32(sum, g->codes[1], load(x->digits[digit][1]));
    }
    const __m512 lower = _mm512_cvtepi32_ps(sum);
    return bytes ? _mm512_fmadd_ps(upper, _mm512_set1_ps(256), lower) : lower;
}

/* ---- blocks of 32 ---- */

/* What differs between the formats, all constant after inlining. */
struct block_layout {
    int bytes; /* of one block */
    int codes; /* offset of the codes */
    int bits;  /* offset of the 32 fifth bits, or 0 */
    int over;  /* what the codes, made unsigned, are too large by */
};

ALWAYS_INLINE struct block_layout block_layout(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
        return (struct block_layout){ 18, 2, 0, 8 };
    case DTYPE_Q4_1:
        return (struct block_layout){ 20, 4, 0, 0 };
    case DTYPE_Q5_0:
        return (struct block_layout){ 22, 6, 2, 16 };
    case DTYPE_Q5_1:
        return (struct block_layout){ 24, 8, 4, 0 };
    default:
        return (struct block_layout){ 34, 2, 0, 128 };
    }
}

/* 16 bytes of each of n blocks, the first block's at p. */
ALWAYS_INLINE __m512i bytes_of_blocks(const unsigned char *p, size_t distance, const int n) {
    __m512i all = bytes16(_mm512_setzero_si512(), 0x000f, p);
    if (n > 1) all = bytes16(all, 0x00f0, p + distance);
    if (n > 2) all = bytes16(all, 0x0f00, p + 2 * distance);
    if (n > 3) all = bytes16(all, 0xf000, p + 3 * distance);
    return all;
}

/* Half `half` of the fifth bits of n blocks: 16 of each. */
ALWAYS_INLINE __mmask64 fifth_bits(const unsigned char *p, size_t distance, int half, const int n) {
    uint64_t all = 0;
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, p + (size_t)i * distance + 2 * half, sizeof bits);
        all |= (uint64_t)bits << 16 * i;
    }
    return all;
}

ALWAYS_INLINE struct group load_group(enum dtype type, const unsigned char *p, const int n) {
    const struct block_layout f = block_layout(type);
    const size_t bytes = (size_t)f.bytes;
    struct group g;
    if (type == DTYPE_Q8_0) {
        const __m512i sign = _mm512_set1_epi8((char)0x80);
        g.codes[0] = _mm512_xor_si512(bytes_of_blocks(p + f.codes, bytes, n), sign);
        g.codes[1] = _mm512_xor_si512(bytes_of_blocks(p + f.codes + 16, bytes, n), sign);
        return g;
    }
    const __m512i both = bytes_of_blocks(p + f.codes, bytes, n);
    g.codes[0] = low_bits(both);
    g.codes[1] = low_bits(_mm512_srli_epi16(both, 4));
    if (f.bits)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            g.codes[half] =
                _mm512_mask_add_epi8(g.codes[half], fifth_bits(p + f.bits, bytes, half, n),
                                     g.codes[half], _mm512_set1_epi8(16));
    return g;
}

/* Halves that stand at `at` of each of n blocks, in the four lanes of each. */
ALWAYS_INLINE __m512 halves_of_blocks(const unsigned char *p, size_t distance, const int n) {
    uint64_t all = 0;
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + (size_t)i * distance, sizeof h);
        all |= (uint64_t)h << 16 * i;
    }
    const __m512 four = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)all)));
    return _mm512_permutexvar_ps(of_blocks(0, 1, 2, 3), four);
}

/* The scales and the minima, or what `over` makes of the scales, of the first four blocks. */
struct header {
    __m512 scales, low;
};

ALWAYS_INLINE struct header load_header(enum dtype type, const unsigned char *p, const int n) {
    const struct block_layout f = block_layout(type);
    struct header h;
    if (n == 4 && 3 * f.bytes + 4 <= 64) {
        /* Halves 0 to 15: the scale of each lane's block; 16 to 31: its minimum. */
        uint8_t at[64];
        for (int i = 0; i < 64; i++)
            at[i] = (uint8_t)(i % 32 / 8 * f.bytes + (i / 32) * 2 + i % 2);
        const __m512i all = _mm512_permutexvar_epi8(_mm512_loadu_si512(at), _mm512_loadu_si512(p));
        h.scales = _mm512_cvtph_ps(_mm512_castsi512_si256(all));
        if (block_has_min(type)) h.low = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1));
    } else {
        h.scales = halves_of_blocks(p, (size_t)f.bytes, n);
        if (block_has_min(type)) h.low = halves_of_blocks(p + 2, (size_t)f.bytes, n);
    }
    if (!block_has_min(type)) h.low = _mm512_mul_ps(h.scales, _mm512_set1_ps((float)-f.over));
    return h;
}

/* The n blocks at p, a constant number, times those of each column. */
ALWAYS_INLINE void multiply_group(enum dtype type, const unsigned char *p, const int blocks, int at,
                                  const struct cpu_vector *const *x, __m512 *sum, const int n) {
    const struct group g = load_group(type, p, blocks);
    const struct header h = load_header(type, p, blocks);
#pragma GCC unroll 8
    for (int c = 0; c < n; c++) {
        const struct cpu_group *v = x[c]->groups + at;
        __m512 part = _mm512_mul_ps(group_products(&g, v, type == DTYPE_Q8_0), h.scales);
        part = _mm512_fmadd_ps(h.low, _mm512_loadu_ps(v->sums), part);
        sum[c] = _mm512_fmadd_ps(part, _mm512_loadu_ps(v->scales), sum[c]);
    }
}

ALWAYS_INLINE void multiply_blocks(enum dtype type, const struct matrix *w,
                                   const struct cpu_vector *const *x, int first, int last,
                                   float *const *y, const int n) {
    const size_t bytes = 4 * (size_t)block_layout(type).bytes;
    const int whole = w->columns / (4 * BLOCK), rest = w->columns / BLOCK % 4;
    for (int r = first; r < last; r++) {
        const unsigned char *p = w->data + (size_t)r * w->row_bytes;
        __m512 sum[MOST_COLUMNS];
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            sum[c] = _mm512_setzero_ps();
        for (int i = 0; i < whole; i++, p += bytes) {
#pragma GCC unroll 3
            for (size_t line = 0; line < bytes; line += 64)
                _mm_prefetch((const char *)p + T_PREFETCH + line, _MM_HINT_T0);
            multiply_group(type, p, 4, i, x, sum, n);
        }
        if (rest == 1) multiply_group(type, p, 1, whole, x, sum, n);
        if (rest == 2) multiply_group(type, p, 2, whole, x, sum, n);
        if (rest == 3) multiply_group(type, p, 3, whole, x, sum, n);
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            y[c][r] = _mm512_reduce_add_ps(sum[c]);
    }
}

/* ---- superblocks of 256 ------------------------------------------------------------------------
 */

/* The eight scales and eight minima of Q4_K and Q5_K as floats, not yet times d and dmin. */
ALWAYS_INLINE void k_scales(const unsigned char *packed, __m256 *scales, __m256 *mins) {
    uint32_t a = load_bits(packed), b = load_bits(packed + 4), c = load_bits(packed + 8);
    uint64_t low = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4)
                                          << 32;
    uint64_t high =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4) << 32;
    *scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)low)));
    *mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)high)));
}

/* 16 bytes for the first two blocks of a group, and 16 for the others. */
ALWAYS_INLINE __m512i two_pairs(const unsigned char *first, const unsigned char *second) {
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)first));
    return bytes16(both, 0xff00, second);
}

/* Half `half` of blocks 4 i to 4 i + 3: two blocks are the low and high bits of the same bytes. */
ALWAYS_INLINE __m512i k_codes(bool five, const unsigned char *p, const int i, const int half) {
    const unsigned char *qs = p + 16 + (five ? 32 : 0) + 64 * i + 16 * half;
    __m512i q = low_bits(_mm512_srlv_epi32(two_pairs(qs, qs + 32), of_blocks(0, 4, 0, 4)));
    if (five) {
        const __m512i bits =
            _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(p + 16 + 16 * half)));
        const __m512i own = of_blocks(0x01010101 << 4 * i, 0x02020202 << 4 * i, 0x04040404 << 4 * i,
                                      (int)(0x08080808u << 4 * i));
        q = _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(bits, own), q, _mm512_set1_epi8(16));
    }
    return q;
}

ALWAYS_INLINE void multiply_q4_q5_k(enum dtype type, const struct matrix *w,
                                    const struct cpu_vector *const *x, int first, int last,
                                    float *const *y, const int n) {
    const bool five = type == DTYPE_Q5_K;
    const size_t bytes = five ? 176 : 144;
    for (int r = first; r < last; r++) {
        const unsigned char *p = w->data + (size_t)r * w->row_bytes;
        __m512 sum[MOST_COLUMNS];
        __m256 minima[MOST_COLUMNS];
#pragma GCC unroll 8
        for (int c = 0; c < n; c++) {
            sum[c] = _mm512_setzero_ps();
            minima[c] = _mm256_setzero_ps();
        }
        for (int i = 0; i < w->columns / 256; i++, p += bytes) {
            __m256 scales8, mins;
            k_scales(p + 4, &scales8, &mins);
            scales8 = _mm256_mul_ps(scales8, _mm256_set1_ps(block_half(p)));
            mins = _mm256_mul_ps(mins, _mm256_set1_ps(block_half(p + 2)));
            const __m512 scales = _mm512_castps256_ps512(scales8);
#pragma GCC unroll 3
            for (size_t line = 0; line < bytes; line += 64)
                _mm_prefetch((const char *)p + T_PREFETCH + line, _MM_HINT_T0);
#pragma GCC unroll 8
            for (int c = 0; c < n; c++)
                minima[c] =
                    _mm256_fmadd_ps(mins, _mm256_loadu_ps(x[c]->byte_sums + 8 * i), minima[c]);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const int f = 4 * half;
                const struct group g = { { k_codes(five, p, half, 0), k_codes(five, p, half, 1) } };
                const __m512 scale =
                    _mm512_permutexvar_ps(of_blocks(f, f + 1, f + 2, f + 3), scales);
#pragma GCC unroll 8
                for (int c = 0; c < n; c++) {
                    const struct cpu_group *v = x[c]->groups + 2 * i + half;
                    const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(v->scales));
                    sum[c] = _mm512_fmadd_ps(group_products(&g, v, false), both, sum[c]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            y[c][r] =
                _mm512_reduce_add_ps(_mm512_sub_ps(sum[c], _mm512_zextps256_ps512(minima[c])));
    }
}

/* Half `half` of blocks 4 i to 4 i + 3: the low bits of two blocks, the high bits of two more, and
 * two more bits of each. */
ALWAYS_INLINE __m512i q6_codes(const unsigned char *p, const int i, const int half) {
    const unsigned char *ql = p + 64 * i + 16 * half, *qh = p + 128 + 32 * i + 16 * half;
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)ql));
    const __m512i low = _mm512_srlv_epi32(bytes16(both, 0xf0f0, ql + 32), of_blocks(0, 0, 4, 4));
    const __m512i high = _mm512_rolv_epi32(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)qh)), of_blocks(4, 2, 0, 30));
    enum { OR_AND = 0xf8 }; /* a | (b & c) */
    return _mm512_ternarylogic_epi32(low_bits(low), high, _mm512_set1_epi8(0x30), OR_AND);
}

ALWAYS_INLINE void multiply_q6_k(enum dtype type, const struct matrix *w,
                                 const struct cpu_vector *const *x, int first, int last,
                                 float *const *y, const int n) {
    const __m512 over = _mm512_set1_ps(-32);
    (void)type;
    for (int r = first; r < last; r++) {
        const unsigned char *p = w->data + (size_t)r * w->row_bytes;
        __m512 sum[MOST_COLUMNS];
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            sum[c] = _mm512_setzero_ps();
        for (int i = 0; i < w->columns / 256; i++, p += 210) {
            __m512 scales = _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 192))));
            scales = _mm512_mul_ps(scales, _mm512_set1_ps(block_half(p + 208)));
#pragma GCC unroll 4
            for (size_t line = 0; line < 210; line += 64)
                _mm_prefetch((const char *)p + T_PREFETCH + line, _MM_HINT_T0);
#pragma GCC unroll 4
            for (int part = 0; part < 4; part++) { /* each half of each group has its scales */
                const int g = part / 2, half = part % 2, f = 8 * g + half;
                const __m512i codes = q6_codes(p, g, half);
                const __m512 scale =
                    _mm512_permutexvar_ps(of_blocks(f, f + 2, f + 4, f + 6), scales);
#pragma GCC unroll 8
                for (int c = 0; c < n; c++) {
                    const struct cpu_group *v = x[c]->groups + 2 * i + g;
                    __m512 own = half_products(codes, v, half);
                    own = _mm512_fmadd_ps(_mm512_loadu_ps(v->half_sums[half]), over, own);
                    const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(v->scales));
                    sum[c] = _mm512_fmadd_ps(own, both, sum[c]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            y[c][r] = _mm512_reduce_add_ps(sum[c]);
    }
}
