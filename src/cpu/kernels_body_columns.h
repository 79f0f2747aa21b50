/* Several vectors against rows that are read once: part of kernels_body.h, which includes this
 * file.
 *
 * Every column's sums are those that body_dot_plain or body_dot_blocks adds up for it alone: the
 * same products, in the same lanes, in the same order. What differs is which sum is worked on
 * when. Registers hold one kind of sum of all columns at a time (of plain weights one or two of the
 * four, of blocks one half or both), and a row is passed as often as that takes. Vectors are gone
 * through in pieces that stay in the first-level cache while a few rows pass; between pieces the
 * sums of these rows wait in memory. */

enum {
    COLUMNS_ROWS = 4,     /* that pass a piece together */
    COLUMNS_FLOATS = 6144 /* of all columns in one piece: 24 KB */
};

/* The values of a column, `i` elements behind those that `values` points to. Unsigned, so that the
 * division is a shift. */
ALWAYS_INLINE const float *column_values(const float *values, int slots, int column, unsigned i) {
    return values + (size_t)(i / BLOCK) * (size_t)(slots * BLOCK) + column * BLOCK + i % BLOCK;
}

/* How many of n units make a piece when at most `most` fit: pieces of about one size. */
ALWAYS_INLINE int column_piece(int n, int most) {
    const int pieces = (n + most - 1) / most;
    return pieces > 1 ? (n + pieces - 1) / pieces : n;
}

/* out[c] = v_sum(v[c]); v has MOST_COLUMNS entries, of which `slots` count. */
ALWAYS_INLINE void column_sums(const vf *v, const int slots, float *out) {
#ifdef HAVE_V_SUMS
    _Static_assert(MOST_COLUMNS == 8, "v_sums_of_8 takes them all");
    (void)slots;
    v_sums_of_8(v, out);
#else
#pragma GCC unroll 8
    for (int c = 0; c < slots; c++)
        out[c] = v_sum(v[c]);
#endif
}

/* ---- blocks ---- */

/* What a few rows have added up so far. */
struct column_block_sums {
    vf halves[COLUMNS_ROWS][2][MOST_COLUMNS];
    float minima[COLUMNS_ROWS][COLUMN_SUMS];
};

#define MINIMA_VECTORS ((MOST_COLUMNS + LANES - 1) / LANES)

/* Blocks first to last - 1 of a row: halves half to half + halves - 1 of each, and with the last of
 * them the minima. The first piece of a row, which begins at block 0, finds no sums. */
ALWAYS_INLINE void body_columns_halves(enum dtype type, const unsigned char *row, int first,
                                       int last, const struct cpu_columns *x, const int slots,
                                       const int half, const int halves, vf (*to)[MOST_COLUMNS],
                                       float *minima) {
    const size_t bytes = block_stride(type);
    const bool with_min = block_has_min(type) && half + halves == 2;
    vf sum[2][MOST_COLUMNS], low[MINIMA_VECTORS];
#pragma GCC unroll 2
    for (int h = 0; h < halves; h++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            sum[h][c] = first > 0 ? to[half + h][c] : v_set(0);
#pragma GCC unroll 2
    for (int v = 0; v < MINIMA_VECTORS; v++)
        low[v] = first > 0 ? v_load(minima + v * LANES) : v_set(0);
    for (int b = first; b < last; b++) {
        const float *values = x->values + (size_t)b * (size_t)(slots * BLOCK);
        struct block block;
        if (half == 0) __builtin_prefetch(row + (size_t)b * bytes + T_PREFETCH);
        block_unpack(type, row, b, &block);
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            const vf scale = v_set(block.scale[half + h]);
            vf q[16 / LANES];
#pragma GCC unroll 4
            for (int i = 0; i < 16 / LANES; i++)
                q[i] = v_from_i8(block.q + 16 * (half + h) + i * LANES);
#pragma GCC unroll 8
            for (int c = 0; c < slots; c++) {
                vf part = { 0 };
#pragma GCC unroll 4
                for (int i = 0; i < 16 / LANES; i++)
                    part =
                        v_fma(q[i], v_load(values + c * BLOCK + 16 * (half + h) + i * LANES), part);
                sum[h][c] = v_fma(part, scale, sum[h][c]);
                if (type == DTYPE_Q2_K) {
                    vf own = { 0 };
#pragma GCC unroll 4
                    for (int i = 0; i < 16 / LANES; i++)
                        own += v_load(values + c * BLOCK + 16 * (half + h) + i * LANES);
                    sum[h][c] = v_fma(own, v_set(block.min[half + h]), sum[h][c]);
                }
            }
        }
        if (with_min)
#pragma GCC unroll 2
            for (int v = 0; v < MINIMA_VECTORS; v++)
                low[v] +=
                    v_set(block.min[0]) * v_load(x->sums + (size_t)b * COLUMN_SUMS + v * LANES);
    }
#pragma GCC unroll 2
    for (int h = 0; h < halves; h++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            to[half + h][c] = sum[h][c];
    if (half + halves == 2)
#pragma GCC unroll 2
        for (int v = 0; v < MINIMA_VECTORS; v++)
            v_store(minima + v * LANES, low[v]);
}

ALWAYS_INLINE void body_columns_blocks(enum dtype type, const struct matrix *w,
                                       const struct cpu_columns *x, int first, int last,
                                       float *const *y, const int slots) {
    const int n = w->columns / BLOCK, piece = column_piece(n, COLUMNS_FLOATS / (slots * BLOCK));
    const int halves = slots <= 4 && LANES >= 8 ? 2 : 1;
    for (int r = first; r < last; r += COLUMNS_ROWS) {
        const int rows = last - r < COLUMNS_ROWS ? last - r : COLUMNS_ROWS;
        struct column_block_sums s;
        for (int b = 0; b < n; b += piece) {
            const int end = n - b < piece ? n : b + piece;
            for (int i = 0; i < rows; i++) {
                const unsigned char *row = w->data + (size_t)(r + i) * w->row_bytes;
#pragma GCC unroll 2
                for (int half = 0; half < 2; half += halves)
                    body_columns_halves(type, row, b, end, x, slots, half, halves, s.halves[i],
                                        s.minima[i]);
            }
        }
        for (int i = 0; i < rows; i++) {
            vf both[MOST_COLUMNS] = { 0 };
            float total[MOST_COLUMNS];
#pragma GCC unroll 8
            for (int c = 0; c < slots; c++)
                both[c] = s.halves[i][0][c] + s.halves[i][1][c];
            column_sums(both, slots, total);
            for (int c = 0; c < x->n; c++) {
                y[c][r + i] = total[c] + s.minima[i][c];
                if (type == DTYPE_NVFP4 && w->factor != 0) y[c][r + i] *= w->factor;
            }
        }
    }
}

/* ---- plain weights ---- */

/* Elements first to last - 1 of a row, whole steps of 4 LANES: sums from to from + some - 1 of the
 * four. Those of element 0 on find no sums. */
ALWAYS_INLINE void body_columns_sums(enum dtype type, const unsigned char *row, int first, int last,
                                     const struct cpu_columns *x, const int slots, const int from,
                                     const int some, vf (*to)[MOST_COLUMNS]) {
    const size_t size = type == DTYPE_F32 ? 4 : 2;
    vf sum[4][MOST_COLUMNS];
#pragma GCC unroll 4
    for (int j = 0; j < some; j++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            sum[j][c] = first > 0 ? to[from + j][c] : v_set(0);
    for (int i = first; i < last; i += 4 * LANES) {
        /* A constant but for the narrowest vectors. */
        const unsigned within = 4 * LANES < BLOCK ? (unsigned)i % BLOCK : 0;
        const float *values = column_values(x->values, slots, 0, (unsigned)i - within);
        if (from == 0)
            for (size_t line = 0; line < 4 * LANES * size; line += 64)
                __builtin_prefetch(row + size * (size_t)i + line + T_PREFETCH);
#pragma GCC unroll 4
        for (int j = 0; j < some; j++) {
            const unsigned at = within + (unsigned)((from + j) * LANES);
            const vf weights = body_elements(type, row + size * (size_t)(i + (from + j) * LANES));
#pragma GCC unroll 8
            for (int c = 0; c < slots; c++)
                sum[j][c] = v_fma(weights, v_load(column_values(values, slots, c, at)), sum[j][c]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < some; j++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++)
            to[from + j][c] = sum[j][c];
}

/* What row r comes to: its four sums of each column, and the elements behind the n that they have.
 */
ALWAYS_INLINE void body_columns_rest(enum dtype type, const struct matrix *w,
                                     const struct cpu_columns *x, int r, int n,
                                     vf (*sums)[MOST_COLUMNS], float *const *y, const int slots) {
    const unsigned char *row = w->data + (size_t)r * w->row_bytes;
    vf all[MOST_COLUMNS] = { 0 };
    float total[MOST_COLUMNS];
#pragma GCC unroll 8
    for (int c = 0; c < slots; c++)
        all[c] = (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]);
    column_sums(all, slots, total);
    for (int c = 0; c < x->n; c++) {
        for (int k = n; k < w->columns; k++)
            total[c] +=
                body_element(type, row, k) * *column_values(x->values, slots, c, (unsigned)k);
        y[c][r] = total[c];
    }
}

ALWAYS_INLINE void body_columns_plain(enum dtype type, const struct matrix *w,
                                      const struct cpu_columns *x, int first, int last,
                                      float *const *y, const int slots) {
    const int step = 4 * LANES, n = w->columns / step * step;
    const int piece = column_piece(n / step, COLUMNS_FLOATS / (slots * step)) * step;
    const int some = slots <= 2 ? 4 : slots <= 4 ? 2 : 1;
    for (int r = first; r < last; r += COLUMNS_ROWS) {
        const int rows = last - r < COLUMNS_ROWS ? last - r : COLUMNS_ROWS;
        vf sums[COLUMNS_ROWS][4][MOST_COLUMNS];
        for (int k = 0, end = 0; k < n || k == 0; k = end) {
            end = n - k < piece ? n : k + piece;
            for (int i = 0; i < rows; i++) {
                const unsigned char *row = w->data + (size_t)(r + i) * w->row_bytes;
#pragma GCC unroll 4
                for (int from = 0; from < 4; from += some)
                    body_columns_sums(type, row, k, end, x, slots, from, some, sums[i]);
            }
            if (n == 0) break; /* a row shorter than a step */
        }
        for (int i = 0; i < rows; i++)
            body_columns_rest(type, w, x, r + i, n, sums[i], y, slots);
    }
}

/* ---- the table's entries ---- */

ALWAYS_INLINE void body_dot_columns(enum dtype type, const struct matrix *w,
                                    const struct cpu_columns *x, int first, int last,
                                    float *const *y) {
#define CALL(slots)                                                                                \
    (block_format(type) ? body_columns_blocks(type, w, x, first, last, y, slots)                   \
                        : body_columns_plain(type, w, x, first, last, y, slots))
    SLOTS_SWITCH(x->slots, CALL);
#undef CALL
}

#define BODY_COLUMNS(type, text, elements, bytes)                                                  \
    BODY void body_dot_columns_##type(const struct matrix *w, const struct cpu_columns *x,         \
                                      int first, int last, float *const *y) {                      \
        body_dot_columns(type, w, x, first, last, y);                                              \
    }
DTYPE_LIST(BODY_COLUMNS)
#undef BODY_COLUMNS

BODY void body_spread_column(const struct cpu_vector *v, int n, struct cpu_columns *x, int column) {
    const int last =
        column == x->n - 1 ? x->slots : column + 1; /* and what fills up an odd count */
    for (int b = 0; b * BLOCK < n; b++)
        for (int c = column; c < last; c++) {
            memcpy(x->values + ((size_t)b * (size_t)x->slots + (size_t)c) * BLOCK,
                   v->values + (size_t)b * BLOCK, BLOCK * sizeof *v->values);
            x->sums[(size_t)b * COLUMN_SUMS + (size_t)c] = v->sums[b];
        }
}

#define BODY_COLUMNS_ENTRY(type, text, elements, bytes) [type] = body_dot_columns_##type,
