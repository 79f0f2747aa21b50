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
 * square. 4 standard deviations are more than a thousand positions meet. (Of q3-p, drawn 300 times
 * in float64: one position's RMS differs by 0.17 of itself, not by 0.125. Its errors are smaller
 * than the estimate above, 0.79 % instead of 1.01, which makes up for that.)
 *
 * Amplification. All this is about a position that carries errors on as positions do on average.
 * Where the terms of h nearly cancel, or attention averages many values to a small one, h is small
 * beside what it is made of: relative errors grow, and all roundings before reach the output larger
 * than elsewhere. How much is a property of the model and the text alone, so the CPU measures it:
 * rounding_amplifications() nudges all embeddings at random, as roundings would, and looks at how
 * far each position's logits move. What is allowed at a position is as many times as much. */
#ifndef REEL_TESTS_ROUNDING_H
#define REEL_TESTS_ROUNDING_H

#include "reel.h"

/* RMS of made - want over RMS of want. */
double relative_difference(const float *made, const float *want, int n);

/* What that may be over many positions, RMS, of a model of so many layers. */
double rounding_allowed(int n_layers);
/* What it may be at any one position of a model so wide, of average amplification. */
double rounding_allowed_once(int n_layers, int hidden);
/* What two logits of a position, one of which each evaluation takes for the best, may be apart in
 * the reference: of the RMS of its logits, at average amplification. */
double rounding_allowed_apart(int n_layers);

/* For each of n positions of a text, how much further than on average errors move its logits: RMS 1
 * over all. The caller frees. */
double *rounding_amplifications(struct reel_model *cpu, const int32_t *ids, int n);

#endif
