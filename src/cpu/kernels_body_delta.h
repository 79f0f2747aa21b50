/* What only DeltaNet layers need of kernels_body.h, which includes this file. Columns come in
 * multiples of PANEL_LANES. */

BODY void body_sigmoid_gate(float *x, const float *gate, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, v_load(x + i) / (1.0f + v_exp(-v_load(gate + i))));
    for (; i < n; i++)
        x[i] /= 1.0f + exp_one(-gate[i]);
}

BODY void body_convolve(const float *const *inputs, const float *taps, size_t taps_stride,
                        int width, int n, float *out) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf sum = v_set(0);
        for (int j = 0; j < width; j++)
            sum = v_fma(v_load(taps + (size_t)j * taps_stride + i), v_load(inputs[j] + i), sum);
        v_store(out + i, sum / (1.0f + v_exp(-sum)));
    }
    for (; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < width; j++)
            sum += taps[(size_t)j * taps_stride + (size_t)i] * inputs[j][i];
        out[i] = sum / (1.0f + exp_one(-sum));
    }
}

/* rows and vectors are constants at every call. */
ALWAYS_INLINE void body_gemm_f32_tile(const struct gemm_f32 *g, int m, int n, const int rows,
                                      const int vectors) {
    const float *a = g->a + (size_t)m * g->a_stride, *b = g->b + n;
    float *c = g->c + (size_t)m * g->c_stride + n;
    vf sum[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[r][v] = g->accumulate ? v_load(c + (size_t)r * g->c_stride + v * LANES) : v_set(0);
    for (int k = 0; k < g->k; k++) {
        vf weights[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            weights[v] = v_load(b + (size_t)k * g->b_stride + v * LANES);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vf x = v_set(a[(size_t)r * g->a_stride + (size_t)k]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[r][v] = v_fma(weights[v], x, sum[r][v]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            v_store(c + (size_t)r * g->c_stride + v * LANES, sum[r][v]);
}

ALWAYS_INLINE void body_gemm_f32_rows(const struct gemm_f32 *g, int m, const int rows) {
    int n = 0;
    for (; n + 2 * LANES <= g->n; n += 2 * LANES)
        body_gemm_f32_tile(g, m, n, rows, 2);
    for (; n < g->n; n += LANES)
        body_gemm_f32_tile(g, m, n, rows, 1);
}

BODY void body_gemm_f32(const struct gemm_f32 *g) {
    int m = 0;
    for (; m + 4 <= g->m; m += 4)
        body_gemm_f32_rows(g, m, 4);
    for (; m < g->m; m++)
        body_gemm_f32_rows(g, m, 1);
}

/* The old state is read once for both k and q: S^T q is had from it by o = alpha (S_old^T q) +
 * (k . q) d. */
BODY void body_delta_step(const struct delta_step *d) {
    for (int n = 0; n < d->columns; n += LANES) {
        vf said = v_set(0), asked = v_set(0);
        float *s = d->state + n;
        for (int i = 0; i < d->key_dim; i++, s += d->stride) {
            vf row = v_load(s);
            said = v_fma(row, v_set(d->k[i]), said);
            asked = v_fma(row, v_set(d->q[i]), asked);
        }
        vf delta = (v_load(d->v + n) - said * d->alpha) * d->beta;
        v_store(d->out + n, v_fma(delta, v_set(d->kq), asked * d->alpha));
        s = d->state + n;
        for (int i = 0; i < d->key_dim; i++, s += d->stride)
            v_store(s, v_fma(delta, v_set(d->k[i]), v_load(s) * d->alpha));
    }
}

#define BODY_DELTA                                                                                 \
    .sigmoid_gate = body_sigmoid_gate, .convolve = body_convolve, .gemm_f32 = body_gemm_f32,       \
    .delta_step = body_delta_step
