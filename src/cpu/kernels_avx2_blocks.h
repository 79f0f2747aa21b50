/* One vector or several against rows of block formats: part of kernels_avx2.c, which includes this
 * file.
 *
 * A vector is whole numbers here: x = X 2^k with one k for all of it, and X = 2^15 high + low with
 * two digits of 16 bits. The largest |x| has 29 bits, so an element keeps float32's 24 bits down to
 * a 32nd of the largest, and 16 bits down to an 8192nd. Weights are words of 16 bits; a product
 * with a digit and the sum of the four in a lane are exact in 32 bits. Both digits' sums become
 * floats once a block, are added up and multiplied with the block's scale.
 *
 * dot_rows and dot_columns are one function, so a column has the bits that it has alone. */

enum {
    DIGITS = 64,         /* int16_t of a block: 32 high digits, then 32 low ones */
    DIGIT_BITS = 15,     /* of the low one */
    BLOCKS_OF_256 = 8,   /* in a superblock */
    BLOCK_MOST_ROWS = 4, /* that pass a piece of the vectors together */
    BLOCK_PIECE = 6144   /* values of all columns in one piece: 24 KB */
};

/* ---- the vector ---- */

/* The largest exponent field of n floats, n a multiple of 8; 255 where one is no number. */
static uint32_t largest_exponent(const float *x, int n) {
    __m256i most = _mm256_setzero_si256();
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < n; i += LANES) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
    }
    uint32_t lanes[LANES], best = 0;
    memcpy(lanes, &most, sizeof lanes);
    for (int i = 0; i < LANES; i++)
        if (lanes[i] > best) best = lanes[i];
    return best >> 23;
}

static float power_of_two(uint32_t exponent_field) {
    const uint32_t bits = exponent_field << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 16 whole numbers as their high and their low digits. */
ALWAYS_INLINE void put_digits(const float *x, __m256 factor, int16_t *high, int16_t *low) {
    __m256i h[2], l[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m256i whole = _mm256_cvtps_epi32(_mm256_loadu_ps(x + i * LANES) * factor);
        const __m256i half = _mm256_set1_epi32(1 << (DIGIT_BITS - 1));
        h[i] = _mm256_srai_epi32(_mm256_add_epi32(whole, half), DIGIT_BITS);
        l[i] = _mm256_sub_epi32(whole, _mm256_slli_epi32(h[i], DIGIT_BITS));
    }
    _mm256_storeu_si256((__m256i *)(void *)high,
                        _mm256_permute4x64_epi64(_mm256_packs_epi32(h[0], h[1]), 0xd8));
    _mm256_storeu_si256((__m256i *)(void *)low,
                        _mm256_permute4x64_epi64(_mm256_packs_epi32(l[0], l[1]), 0xd8));
}

/* Besides what body_round_vector fills: digits, and block sums of x as it is. A vector with an
 * infinity or a NaN has digits 0 and the scale NaN. */
static void round_vector(const float *x, int n, struct cpu_vector *out) {
    enum { BITS = 29, BIAS = 127, LEAST = 28 }; /* below 2^(28 - 126) all have the same factor */
    body_round_vector(x, n, out);
    const int padded = (n + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    float last[VECTOR_PAD] = { 0 };
    const int whole = n / VECTOR_PAD * VECTOR_PAD;
    memcpy(last, x + whole, (size_t)(n - whole) * sizeof *x);
    uint32_t exponent = largest_exponent(x, whole), of_last = largest_exponent(last, VECTOR_PAD);
    if (of_last > exponent) exponent = of_last;
    const bool finite = exponent < 255;
    if (exponent < LEAST) exponent = LEAST;
    const float factor = finite ? power_of_two(2 * BIAS - 1 + BITS - exponent) : 0;
    out->digit_scale = finite ? power_of_two(exponent + DIGIT_BITS - BITS + 1) : NAN;
    for (int b = 0; b < padded / BLOCK; b++) {
        const float *from = b * BLOCK < whole ? x + b * BLOCK : last + (b * BLOCK - whole);
        int16_t *to = out->digits + (size_t)b * DIGITS;
        vf total = v_load(from);
        for (int i = LANES; i < BLOCK; i += LANES)
            total += v_load(from + i);
        out->digit_sums[b] = v_sum(total);
        if (!finite) {
            memset(to, 0, DIGITS * sizeof *to);
            continue;
        }
        for (int i = 0; i < BLOCK; i += 16)
            put_digits(from + i, _mm256_set1_ps(factor), to + i, to + BLOCK + i);
    }
}

static void spread_column(const struct cpu_vector *v, int n, struct cpu_columns *x, int column) {
    const int last = column == x->n - 1 ? x->slots : column + 1;
    body_spread_column(v, n, x, column);
    for (int c = column; c < last; c++) {
        x->digit_scales[c] = v->digit_scale;
        for (int b = 0; b * BLOCK < n; b++) {
            x->digit_sums[(size_t)b * COLUMN_SUMS + (size_t)c] = v->digit_sums[b];
            memcpy(x->digits + ((size_t)b * (size_t)x->slots + (size_t)c) * DIGITS,
                   v->digits + (size_t)b * DIGITS, DIGITS * sizeof *v->digits);
        }
    }
}

/* ---- a block of weights ---- */

struct block_words {
    __m256i words[2]; /* 16 weights each */
    __m256 scale[2];  /* in every lane; of each half where block_halves says so, or [0] for both */
    __m256 min;       /* in every lane, where block_has_min */
};

/* What a superblock's eight blocks share, taken apart once. */
struct super_scales {
    _Alignas(32) float scales[BLOCKS_OF_256], mins[BLOCKS_OF_256];
    __m256 d;
};

ALWAYS_INLINE __m128i bytes_at(const unsigned char *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* d of fp16 in every lane. */
ALWAYS_INLINE __m256 half_everywhere(const unsigned char *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16(h));
}

ALWAYS_INLINE uint32_t four_bytes(const unsigned char *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

ALWAYS_INLINE __m256 bytes_to_floats(uint64_t bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)));
}

/* Q4_K and Q5_K: the eight scales and minima, each its six bits times d or -dmin. */
ALWAYS_INLINE void take_super(enum dtype type, const unsigned char *p, struct super_scales *out) {
    if (type == DTYPE_Q6_K) out->d = half_everywhere(p + 208);
    if (type != DTYPE_Q4_K && type != DTYPE_Q5_K) return;
    const uint32_t a = four_bytes(p + 4), b = four_bytes(p + 8), c = four_bytes(p + 12);
    const uint64_t scales =
        (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4) << 32;
    const uint64_t mins =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4) << 32;
    _mm256_store_ps(out->scales, bytes_to_floats(scales) * half_everywhere(p));
    _mm256_store_ps(out->mins, bytes_to_floats(mins) * -half_everywhere(p + 2));
}

ALWAYS_INLINE void nibble_words(const unsigned char *qs, __m256i *low, __m256i *high) {
    const __m256i both = _mm256_cvtepu8_epi16(bytes_at(qs));
    *low = _mm256_and_si256(both, _mm256_set1_epi16(15));
    *high = _mm256_srli_epi16(both, 4);
}

/* Sub-blocks of 16 with a whole scale of 8 bits, which goes into the words: at most 32 * 128. */
ALWAYS_INLINE void q6_k_words(const unsigned char *p, int j, struct block_words *out) {
    const __m256i ql =
        _mm256_loadu_si256((const __m256i *)(const void *)(p + 64 * (j / 4) + 32 * (j & 1)));
    const __m256i qh = _mm256_loadu_si256((const __m256i *)(const void *)(p + 128 + 32 * (j / 4)));
    const signed char *scales = (const signed char *)p + 192 + 2 * j;
    const __m256i high = (j & 3) == 3   ? _mm256_srli_epi16(qh, 2)
                         : (j & 3) == 2 ? qh
                         : (j & 3) == 1 ? _mm256_slli_epi16(qh, 2)
                                        : _mm256_slli_epi16(qh, 4);
    const __m256i low = j & 2 ? _mm256_srli_epi16(ql, 4) : ql;
    const __m256i q =
        _mm256_sub_epi8(_mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
                                        _mm256_and_si256(high, _mm256_set1_epi8(0x30))),
                        _mm256_set1_epi8(32));
    out->words[0] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)),
                                       _mm256_set1_epi16(scales[0]));
    out->words[1] = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)),
                                       _mm256_set1_epi16(scales[1]));
}

/* Block j of a superblock (j is a constant at every call) that begins at p. */
ALWAYS_INLINE struct block_words load_super(enum dtype type, const unsigned char *p, const int j,
                                            const struct super_scales *s) {
    struct block_words out;
    if (type == DTYPE_Q6_K) {
        q6_k_words(p, j, &out);
        out.scale[0] = s->d;
        return out;
    }
    if (type == DTYPE_Q4_K) {
        const unsigned char *qs = p + 16 + 32 * (j / 2);
        for (int i = 0; i < 2; i++) {
            const __m256i both = _mm256_cvtepu8_epi16(bytes_at(qs + 16 * i));
            out.words[i] =
                j & 1 ? _mm256_srli_epi16(both, 4) : _mm256_and_si256(both, _mm256_set1_epi16(15));
        }
        out.scale[0] = _mm256_broadcast_ss(&s->scales[j]);
        out.min = _mm256_broadcast_ss(&s->mins[j]);
        return out;
    }
    struct block block;
    block_unpack_k(type, p, j, &block);
    for (int i = 0; i < 2; i++) {
        out.words[i] = _mm256_cvtepi8_epi16(bytes_at((unsigned char *)block.q + 16 * i));
        out.scale[i] = _mm256_set1_ps(block.scale[i]);
    }
    if (type == DTYPE_Q5_K) {
        out.scale[0] = _mm256_broadcast_ss(&s->scales[j]);
        out.min = _mm256_broadcast_ss(&s->mins[j]);
    }
    return out;
}

/* Block b of a row. */
ALWAYS_INLINE struct block_words load_block(enum dtype type, const unsigned char *row, int b) {
    const unsigned char *p = row + (size_t)b * block_file_bytes(type);
    struct block_words out;
    if (type == DTYPE_Q8_0) {
        out.words[0] = _mm256_cvtepi8_epi16(bytes_at(p + 2));
        out.words[1] = _mm256_cvtepi8_epi16(bytes_at(p + 18));
        out.scale[0] = half_everywhere(p);
        return out;
    }
    if (type == DTYPE_Q4_0) {
        const __m256i eight = _mm256_set1_epi16(8);
        nibble_words(p + 2, &out.words[0], &out.words[1]);
        out.words[0] = _mm256_sub_epi16(out.words[0], eight);
        out.words[1] = _mm256_sub_epi16(out.words[1], eight);
        out.scale[0] = half_everywhere(p);
        return out;
    }
    if (type == DTYPE_Q4_1) {
        nibble_words(p + 4, &out.words[0], &out.words[1]);
    } else {
        struct block block;
        block_unpack(type, row, b, &block);
        for (int i = 0; i < 2; i++) {
            out.words[i] = _mm256_cvtepi8_epi16(bytes_at((unsigned char *)block.q + 16 * i));
            out.scale[i] = _mm256_set1_ps(block.scale[i]);
        }
    }
    if (block_has_min(type)) {
        const __m256 both = _mm256_cvtph_ps(_mm_set1_epi32((int)four_bytes(p)));
        out.scale[0] = _mm256_moveldup_ps(both);
        out.min = _mm256_movehdup_ps(both);
    }
    return out;
}

/* ---- products ---- */

/* What a few rows have added up so far. */
struct block_sums {
    vf sums[BLOCK_MOST_ROWS][MOST_COLUMNS];
    vf minima[BLOCK_MOST_ROWS]; /* of column c in lane c */
};

struct block_input {
    const int16_t *digits; /* [blocks, slots, DIGITS] */
    const float *sums;     /* [blocks, COLUMN_SUMS], or [blocks] of one vector */
};

/* high + low / 2^15 */
ALWAYS_INLINE vf join_digits(__m256i high, __m256i low) {
    return v_fma((vf)_mm256_cvtepi32_ps(low), v_set(1.0f / (1 << DIGIT_BITS)),
                 (vf)_mm256_cvtepi32_ps(high));
}

ALWAYS_INLINE void multiply_block(enum dtype type, const struct block_words *w,
                                  const struct block_input *x, int b, const int slots, vf *sum,
                                  vf *minima) {
    const bool halves = block_halves(type) && type != DTYPE_Q6_K;
#pragma GCC unroll 8
    for (int c = 0; c < slots; c++) {
        const __m256i *d =
            (const __m256i *)(const void *)(x->digits +
                                            ((size_t)b * (size_t)slots + (size_t)c) * DIGITS);
        __m256i high[2], low[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            high[i] = _mm256_madd_epi16(w->words[i], _mm256_loadu_si256(d + i));
            low[i] = _mm256_madd_epi16(w->words[i], _mm256_loadu_si256(d + 2 + i));
        }
        if (halves) {
            sum[c] = v_fma(join_digits(high[0], low[0]), (vf)w->scale[0], sum[c]);
            sum[c] = v_fma(join_digits(high[1], low[1]), (vf)w->scale[1], sum[c]);
        } else {
            const vf part =
                join_digits(_mm256_add_epi32(high[0], high[1]), _mm256_add_epi32(low[0], low[1]));
            sum[c] = v_fma(part, (vf)w->scale[0], sum[c]);
        }
    }
    if (block_has_min(type)) {
        const vf sums = slots == 1 ? v_set(x->sums[b]) : v_load(x->sums + (size_t)b * COLUMN_SUMS);
        *minima = v_fma((vf)w->min, sums, *minima);
    }
}

/* Blocks [first, last) of a row; first is a multiple of 8 for superblocks. */
ALWAYS_INLINE void multiply_piece(enum dtype type, const unsigned char *row, int first, int last,
                                  const struct block_input *x, const int slots, vf *sums,
                                  vf *minima) {
    vf sum[MOST_COLUMNS], low = *minima;
#pragma GCC unroll 8
    for (int c = 0; c < slots; c++)
        sum[c] = sums[c];
    if (block_of_256(type)) {
        const size_t bytes = block_file_bytes(type);
        for (int b = first; b < last; b += BLOCKS_OF_256) {
            const unsigned char *p = row + (size_t)(b / BLOCKS_OF_256) * bytes;
            struct super_scales scales;
            take_super(type, p, &scales);
            for (size_t line = 0; line < bytes; line += 64)
                __builtin_prefetch(p + line + T_PREFETCH);
#pragma GCC unroll 8
            for (int j = 0; j < BLOCKS_OF_256; j++) {
                const struct block_words w = load_super(type, p, j, &scales);
                multiply_block(type, &w, x, b + j, slots, sum, &low);
            }
        }
    } else {
        const size_t bytes = block_stride(type);
        for (int b = first; b < last; b++) {
            const struct block_words w = load_block(type, row, b);
            if (bytes > 32 || b % 2 == 0) __builtin_prefetch(row + (size_t)b * bytes + T_PREFETCH);
            multiply_block(type, &w, x, b, slots, sum, &low);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < slots; c++)
        sums[c] = sum[c];
    *minima = low;
}

/* One rounding or two must not depend on the compiler: vectors of one and of several columns. */
ALWAYS_INLINE float with_minimum(float sum, float scale, float minimum) {
    return sum * scale + minimum;
}

ALWAYS_INLINE float with_factor(enum dtype type, const struct matrix *w, float y) {
    return type == DTYPE_NVFP4 && w->factor != 0 ? y * w->factor : y;
}

ALWAYS_INLINE void dot_rows_blocks(enum dtype type, const struct matrix *w,
                                   const struct cpu_vector *v, int first, int last, float *y) {
    const struct block_input x = { v->digits, v->digit_sums };
    for (int r = first; r < last; r++) {
        vf sum[MOST_COLUMNS] = { { 0 } }, minima = { 0 };
        multiply_piece(type, w->data + (size_t)r * w->row_bytes, 0, w->columns / BLOCK, &x, 1, sum,
                       &minima);
        y[r] = with_factor(type, w, with_minimum(v_sum(sum[0]), v->digit_scale, minima[0]));
    }
}

ALWAYS_INLINE void dot_columns_of(enum dtype type, const struct matrix *w,
                                  const struct cpu_columns *v, int first, int last, float *const *y,
                                  const int slots) {
    const struct block_input x = { v->digits, v->digit_sums };
    const int n = w->columns / BLOCK;
    const int fits = column_piece(n, BLOCK_PIECE / (slots * BLOCK));
    const int piece = (fits + BLOCKS_OF_256 - 1) / BLOCKS_OF_256 * BLOCKS_OF_256;
    for (int r = first; r < last; r += BLOCK_MOST_ROWS) {
        const int rows = last - r < BLOCK_MOST_ROWS ? last - r : BLOCK_MOST_ROWS;
        struct block_sums s = { 0 };
        for (int b = 0; b < n; b += piece)
            for (int i = 0; i < rows; i++)
                multiply_piece(type, w->data + (size_t)(r + i) * w->row_bytes, b,
                               n - b < piece ? n : b + piece, &x, slots, s.sums[i], &s.minima[i]);
        for (int i = 0; i < rows; i++) {
            float total[MOST_COLUMNS];
            column_sums(s.sums[i], slots, total);
            for (int c = 0; c < v->n; c++)
                y[c][r + i] = with_factor(
                    type, w, with_minimum(total[c], v->digit_scales[c], s.minima[i][c]));
        }
    }
}

ALWAYS_INLINE void dot_columns_blocks(enum dtype type, const struct matrix *w,
                                      const struct cpu_columns *x, int first, int last,
                                      float *const *y) {
#define CALL(slots) dot_columns_of(type, w, x, first, last, y, slots)
    SLOTS_SWITCH(x->slots, CALL);
#undef CALL
}

/* Not Q2_K, whose minima are of 16: it has no use for sums of 32. */
ALWAYS_INLINE bool takes_digits(enum dtype type) {
    return block_format(type) && type != DTYPE_Q2_K;
}

#define DOT(type, text, elements, bytes)                                                           \
    static void dot_rows_##type(const struct matrix *w, const struct cpu_vector *x, int first,     \
                                int last, float *y) {                                              \
        if (takes_digits(type))                                                                    \
            dot_rows_blocks(type, w, x, first, last, y);                                           \
        else                                                                                       \
            body_dot_rows_##type(w, x, first, last, y);                                            \
    }                                                                                              \
    static void dot_columns_##type(const struct matrix *w, const struct cpu_columns *x, int first, \
                                   int last, float *const *y) {                                    \
        if (takes_digits(type))                                                                    \
            dot_columns_blocks(type, w, x, first, last, y);                                        \
        else                                                                                       \
            body_dot_columns_##type(w, x, first, last, y);                                         \
    }
DTYPE_LIST(DOT)
#undef DOT

#define DOT_ROWS_ENTRY(type, text, elements, bytes)    [type] = dot_rows_##type,
#define DOT_COLUMNS_ENTRY(type, text, elements, bytes) [type] = dot_columns_##type,
