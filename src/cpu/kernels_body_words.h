/* Many vectors against block formats, as whole numbers: part of kernels_body.h, which includes this
 * file. The products of a block are added up in 32 bits, exactly: 32 of 15 and 8 bits. Then its
 * sums become floats, and both scales multiply them. */

/* sum += the products of both pairs in each lane. */
#ifndef HAVE_V_DOT_WORDS
ALWAYS_INLINE vi v_dot_words(vi sum, vi a, vi b) {
    const vi low = ((vi)((vu)a << 16) >> 16) * ((vi)((vu)b << 16) >> 16);
    return sum + low + (a >> 16) * (b >> 16);
}
#endif

/* Rows of A that pass together, and panels; their sums stay in registers. */
#ifndef WORDS_ROWS
#define WORDS_ROWS   2
#define WORDS_PANELS 1
#endif
#define WORDS_VECTORS (WORDS_PANELS * PANEL_VECTORS)

/* Sums of pairs first to last - 1 of K. */
ALWAYS_INLINE void words_sums(const struct gemm_words *g, int m, int panel, int first, int last,
                              const int rows, const int panels, vi sum[WORDS_ROWS][WORDS_VECTORS]) {
    const int16_t *b = g->panels + (size_t)panel * g->panel_stride;
    const int16_t *a = g->a + (size_t)m * g->a_stride;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++)
            sum[r][v] = (vi){ 0 };
    for (int s = first; s < last; s++) {
        vi w[WORDS_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++)
            memcpy(&w[v],
                   b + (size_t)(v / PANEL_VECTORS) * g->panel_stride +
                       (size_t)(s * 2 * PANEL_LANES + v % PANEL_VECTORS * 2 * LANES),
                   sizeof w[v]);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, a + (size_t)r * g->a_stride + 2 * (size_t)s, sizeof pair);
            const vi x = (vi){ 0 } + pair;
#pragma GCC unroll 4
            for (int v = 0; v < panels * PANEL_VECTORS; v++)
                sum[r][v] = v_dot_words(sum[r][v], w[v], x);
        }
    }
}

/* rows and panels are constants at every call. */
ALWAYS_INLINE void words_rows(const struct gemm_words *g, int m, int panel, const int rows,
                              const int panels) {
    const int pairs = g->scale_block / 2, lanes = panel * PANEL_LANES;
    float *c = g->c + (size_t)m * g->c_stride + lanes;
    vf total[WORDS_ROWS][WORDS_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++)
            total[r][v] =
                g->accumulate ? v_load(c + (size_t)r * g->c_stride + v * LANES) : v_set(0);
    for (int k = 0; k < g->k / 2; k += pairs) {
        const size_t block = (size_t)k / (BLOCK / 2);
        const float *scales = g->scales + (size_t)(k / pairs) * TILE_ROWS + lanes;
        const float *mins =
            g->mins && k % (BLOCK / 2) == 0 ? g->mins + block * TILE_ROWS + lanes : NULL;
        const float *factors = g->factors + 2 * block * g->factors_stride + m;
        const float *x_sums = factors + g->factors_stride;
        vi sum[WORDS_ROWS][WORDS_VECTORS];
        words_sums(g, m, panel, k, k + pairs, rows, panels, sum);
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++) {
            const vf scale = v_load(scales + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                total[r][v] = v_fma(__builtin_convertvector(sum[r][v], vf) * scale,
                                    v_set(factors[r]), total[r][v]);
        }
        if (!mins) continue;
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++) {
            const vf min = v_load(mins + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                total[r][v] = v_fma(min, v_set(x_sums[r]), total[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < panels * PANEL_VECTORS; v++)
            v_store(c + (size_t)r * g->c_stride + v * LANES, total[r][v]);
}

ALWAYS_INLINE void words_panels(const struct gemm_words *g, int m, const int rows) {
    int panel = 0;
    for (; panel + WORDS_PANELS <= g->n_panels; panel += WORDS_PANELS)
        words_rows(g, m, panel, rows, WORDS_PANELS);
    for (; panel < g->n_panels; panel++)
        words_rows(g, m, panel, rows, 1);
}

BODY void body_gemm_words(const struct gemm_words *g) {
    int m = 0;
    for (; m + WORDS_ROWS <= g->m; m += WORDS_ROWS)
        words_panels(g, m, WORDS_ROWS);
    for (; WORDS_ROWS > 2 && m + 2 <= g->m; m += 2)
        words_panels(g, m, 2);
    for (; m < g->m; m++)
        words_panels(g, m, 1);
}
