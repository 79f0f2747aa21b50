/* What only audio towers need of kernels_body.h, which includes this file. */

/* erfc(z), z >= 0, to 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
ALWAYS_INLINE vf v_erfc(vf z) {
    vf t = 1.0f / v_fma(z, v_set(0.3275911f), v_set(1));
    vf p = v_set(1.061405429f);
    p = v_fma(p, t, v_set(-1.453152027f));
    p = v_fma(p, t, v_set(1.421413741f));
    p = v_fma(p, t, v_set(-0.284496736f));
    p = v_fma(p, t, v_set(0.254829592f));
    return p * t * v_exp(-(z * z));
}

/* x (1 + erf(x / sqrt(2))) / 2 is max(x, 0) less |x| / 2 of what erf lacks to 1: no cancellation.
 */
ALWAYS_INLINE vf v_gelu(vf x) {
    vf size = v_max(x, -x);
    return v_max(x, v_set(0)) - 0.5f * size * v_erfc(size * 0.70710678f);
}

BODY void body_gelu(const float *x, const float *bias, int n, float *out) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(out + i, v_gelu(v_load(x + i) + v_load(bias + i)));
    for (; i < n; i++)
        out[i] = v_gelu(v_set(x[i] + bias[i]))[0];
}

BODY void body_layer_norm(const float *x, const float *weight, const float *bias, int n, float eps,
                          float *out) {
    vf total = { 0 }, squares = { 0 };
    float mean = 0, variance = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        total += v_load(x + i);
    for (int j = i; j < n; j++)
        mean += x[j];
    mean = (mean + v_sum(total)) / (float)n;
    for (i = 0; i + LANES <= n; i += LANES) {
        vf d = v_load(x + i) - mean;
        squares = v_fma(d, d, squares);
    }
    for (int j = i; j < n; j++)
        variance += (x[j] - mean) * (x[j] - mean);
    float r = 1.0f / sqrtf((variance + v_sum(squares)) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        v_store(out + i, (v_load(x + i) - mean) * r * v_load(weight + i) + v_load(bias + i));
    for (; i < n; i++)
        out[i] = (x[i] - mean) * r * weight[i] + bias[i];
}

#define BODY_AUDIO .gelu = body_gelu, .layer_norm = body_layer_norm
