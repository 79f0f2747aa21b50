/* The largest magnitude of samples, wherever it stands. */
#include "audio/pcm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MOST = 67 };

static void the_peak_is_found_wherever_it_stands(void **state) {
    (void)state;
    for (size_t n = 1; n <= MOST; n++)
        for (size_t at = 0; at < n; at++) {
            float samples[MOST + 1];
            for (size_t i = 0; i < n; i++)
                samples[i] = i % 2 ? 0.25f : -0.25f;
            samples[n] = 9; /* beyond the end */
            samples[at] = at % 2 ? -0.75f : 0.75f;
            assert_true(pcm_peak(samples, n) == 0.75f);
        }
    assert_true(pcm_peak(NULL, 0) == 0);
}

static void what_is_no_finite_number_is_the_peak(void **state) {
    (void)state;
    for (size_t at = 0; at < MOST; at++) {
        float samples[MOST] = { 3e38f };
        samples[at] = at % 2 ? -INFINITY : INFINITY;
        assert_true(isinf(pcm_peak(samples, MOST)));
        samples[at] = at % 2 ? -NAN : NAN;
        assert_true(isnan(pcm_peak(samples, MOST)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_found_wherever_it_stands),
        cmocka_unit_test(what_is_no_finite_number_is_the_peak),
    };
    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
