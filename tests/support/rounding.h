/* How far two evaluations of a model may be apart that round at different places: what tests allow
 * where the GPU's kernels stand beside the CPU's engine, both rounding to bf16.
 *
 * One rounding. bf16 has 8 significant bits, so rounding moves a value by up to 2^-8 / m of itself,
 * evenly, where m in [1, 2) is its mantissa. That is 2^-8 / sqrt(3) * sqrt(mean of 1 / m^2) of it
 * RMS, and the mean is 0.541 for mantissas as they occur: 1.66e-3.
 *
 * Many roundings. Those of many values are independent, so the errors of what a vector is made of
 * add up in quadrature, and a sum (the residual stream) is relatively no further off than its terms
 * are. In a layer, from h to h, these roundings count, once for each factor of a product that they
 * reach (scores are q times k, what goes down is gate times up):
 *
 *   CPU  normed h as it reaches q, k and v, 3; q, k, v themselves, 3; attention's result, 1;
 *        normed h as it reaches gate and up, 2; silu(gate) * up, 1: 10 (and the head's normed h, 1)
 *   GPU  q, k, v as they come out of qkv, 3; q and k once more, normed and turned, 2;
 *        probabilities, 1; attention's result, 1; silu(gate) * up, 1: 8 (normed h has 16 bits)
 *
 * 18 n_layers + 1 in all. None is weighed by its share of h, so this is an upper estimate.
 *
 * One position. The RMS over d independent directions differs by 1 / sqrt(2 d) of itself from one
 * position to the next. A random square matrix stretches directions so unevenly that `hidden` of
 * them count as half as many: of its squared singular values, the mean squared is half the mean
 * square. 4 standard deviations are more than a thousand positions meet. */
#ifndef REEL_TESTS_ROUNDING_H
#define REEL_TESTS_ROUNDING_H

/* RMS of made - want over RMS of want. */
double relative_difference(const float *made, const float *want, int n);

/* What that may be over many positions, RMS, of a model of so many layers. */
double rounding_allowed(int n_layers);
/* What it may be at any one position of a model so wide. */
double rounding_allowed_once(int n_layers, int hidden);

#endif
