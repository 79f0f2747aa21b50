#include "support/rounding.h"

#include <math.h>

#define BF16_RMS        1.66e-3 /* of a value, by one rounding */
#define LAYER_ROUNDINGS 18
#define HEAD_ROUNDINGS  1

double relative_difference(const float *made, const float *want, int n) {
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        const double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

double rounding_allowed(int n_layers) {
    return BF16_RMS * sqrt(LAYER_ROUNDINGS * n_layers + HEAD_ROUNDINGS);
}

double rounding_allowed_once(int n_layers, int hidden) {
    return rounding_allowed(n_layers) * (1 + 4 / sqrt((double)hidden));
}
