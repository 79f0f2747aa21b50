/* Rotary frequencies against Hugging Face transformers (fixtures/rope). */
#include "model/model_config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FIXTURE "tests/fixtures/rope/frequencies.txt"

static bool next_config(FILE *f, struct model_config *c) {
    *c = (struct model_config){ 0 };
    if (fscanf(f, "%lf %d %lf %lf %lf %d", &c->rope_theta, &c->head_dim, &c->rope_factor,
               &c->rope_low_freq_factor, &c->rope_high_freq_factor, &c->rope_original_context) != 6)
        return false;
    c->rotary_dim = c->head_dim;
    if (c->rope_factor != 0) c->rope = ROPE_LLAMA3;
    return true;
}

/* torch's vectorised pow is not correctly rounded; ours is, so the last bit may differ. */
static void frequencies_equal_the_reference_within_one_ulp(void **state) {
    (void)state;
    FILE *f = fopen(FIXTURE, "r");
    struct model_config config;
    int n = 0, different = 0;
    assert_non_null(f);
    while (next_config(f, &config)) {
        float inv[MODEL_MAX_HEAD_DIM / 2];
        model_rope_frequencies(&config, inv);
        for (int i = 0; i < config.head_dim / 2; i++, n++) {
            double expected = 0;
            assert_int_equal(fscanf(f, "%lf", &expected), 1);
            float x = (float)expected;
            if (inv[i] == x) continue;
            different++;
            if (inv[i] != nextafterf(x, 0) && inv[i] != nextafterf(x, 2))
                fail_msg("theta %g, head_dim %d, i %d: %a, expected %a", config.rope_theta,
                         config.head_dim, i, (double)inv[i], (double)x);
        }
    }
    fclose(f);
    assert_true(n > 400);
    assert_true(different * 50 < n);
}

static void stored_divisors_divide(void **state) {
    (void)state;
    struct model_config plain = { .head_dim = 4, .rotary_dim = 4, .rope_theta = 10000 },
                        divided = plain;
    float a[2], b[2];
    divided.rope = ROPE_FACTORS;
    divided.rope_factors[0] = 1;
    divided.rope_factors[1] = 32;
    model_rope_frequencies(&plain, a);
    model_rope_frequencies(&divided, b);
    assert_true(b[0] == a[0] && b[1] == a[1] / 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_equal_the_reference_within_one_ulp),
        cmocka_unit_test(stored_divisors_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
