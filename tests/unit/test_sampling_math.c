/* The arithmetic that host and device share, against double precision and published numbers. */
#include "kernels/sampling.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint64_t random_state;

static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double random_unit(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

static void philox_gives_the_published_numbers(void **state) {
    (void)state;
    unsigned r[4];
    sampling_philox(0, 0, 0, 0, 0, 0, &r[0], &r[1], &r[2], &r[3]);
    assert_int_equal(r[0], 0x6627e8d5u);
    assert_int_equal(r[1], 0xe169c58du);
    assert_int_equal(r[2], 0xbc57ac4cu);
    assert_int_equal(r[3], 0x9b00dbd8u);
    sampling_philox(~0u, ~0u, ~0u, ~0u, ~0u, ~0u, &r[0], &r[1], &r[2], &r[3]);
    assert_int_equal(r[0], 0x408f276du);
    assert_int_equal(r[1], 0x41c83b0eu);
    assert_int_equal(r[2], 0xa20bc7c6u);
    assert_int_equal(r[3], 0x6d5451fdu);
    sampling_philox(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u,
                    &r[0], &r[1], &r[2], &r[3]);
    assert_int_equal(r[0], 0xd16cfe09u);
    assert_int_equal(r[1], 0x94fdcceb);
    assert_int_equal(r[2], 0x5001e420u);
    assert_int_equal(r[3], 0x24126ea1u);
}

static void exp_and_log_stay_within_three_ulp(void **state) {
    (void)state;
    double worst_exp = 0, worst_log = 0;
    for (int i = 0; i < 200000; i++) {
        float x = (float)(-87.0 * random_unit());
        double want = exp((double)x);
        worst_exp = fmax(worst_exp, fabs((double)sampling_exp(x) - want) / (want * FLT_EPSILON));
        float y = (float)exp(-60 + 120 * random_unit());
        want = log((double)y);
        worst_log = fmax(worst_log, fabs((double)sampling_log(y) - want) /
                                        (fmax(fabs(want), 1e-3) * FLT_EPSILON));
    }
    assert_true(worst_exp < 3);
    assert_true(worst_log < 3);
    assert_true(sampling_exp(0.0f) == 1.0f);
    assert_true(sampling_exp(-88.0f) == 0.0f);
    assert_true(sampling_exp(-INFINITY) == 0.0f);
    assert_true(sampling_exp(NAN) == 0.0f);
    assert_true(sampling_log(1.0f) == 0.0f);
}

static void noise_is_exponential_and_bounded(void **state) {
    (void)state;
    for (int i = 0; i < 200000; i++) {
        unsigned r = (unsigned)random_bits() >> (random_bits() % 32);
        if (i & 1) r = ~r;
        double v = ((double)(r >> 1) + 0.5) / 2147483648.0, want = -log1p(-v);
        assert_true(fabs((double)sampling_exponential(r) - want) < 4 * FLT_EPSILON * want);
    }
    assert_true(sampling_gumbel(0) < SAMPLING_GUMBEL_MAX);
    assert_true(sampling_gumbel(0) > 22.1f);
    assert_true(sampling_gumbel(~0u) > -3.2f && sampling_gumbel(~0u) < -3.0f);
}

static void order_keys_sort_like_numbers(void **state) {
    (void)state;
    const float rising[] = { -INFINITY, -FLT_MAX, -1, -FLT_MIN, 0, FLT_MIN, 1, FLT_MAX, INFINITY };
    for (size_t i = 0; i + 1 < sizeof rising / sizeof *rising; i++) {
        assert_true(sampling_order(rising[i]) < sampling_order(rising[i + 1]));
        assert_true(sampling_from_order(sampling_order(rising[i])) == rising[i]);
    }
    assert_int_equal(sampling_order(-0.0f), sampling_order(0.0f));
}

static void top_p_sums_are_rounded_up(void **state) {
    (void)state;
    random_state = 17;
    for (int i = 0; i < 100000; i++) {
        uint64_t total = (random_bits() >> (3 + random_bits() % 24)) | (uint64_t)1 << 40;
        float top_p = (float)random_unit();
        if (i % 3 == 0) top_p = ldexpf(1, -(int)(random_bits() % 40) - 1);
        uint64_t p = (uint64_t)((double)top_p * 4294967296.0);
        unsigned __int128 product = (unsigned __int128)total * p + 0xffffffffu;
        uint64_t want = (uint64_t)(product >> 32);
        assert_true(sampling_top_p_need(total, top_p) == (want ? want : 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(exp_and_log_stay_within_three_ulp),
        cmocka_unit_test(noise_is_exponential_and_bounded),
        cmocka_unit_test(order_keys_sort_like_numbers),
        cmocka_unit_test(top_p_sums_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
