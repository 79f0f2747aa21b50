/* What several GPUs have once on each: looked up by what it is on the first. */
#include "cuda/driver/twins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 200, GPUS = 3, BYTES = 64 };

static struct cuda_twin twin_of(int i) {
    const uint64_t from = 4096 + (uint64_t)i * 100;
    return (struct cuda_twin){ .from = from,
                               .n = BYTES,
                               .on = { from, from + 1000000, from + 2000000 } };
}

static void places_are_found_on_each_gpu(void **state) {
    (void)state;
    struct cuda_twins t;
    struct reel_error err = { 0 };
    assert_int_equal(cuda_twins_open(&t, &err), REEL_OK);
    for (int i = 0; i < N; i++) { /* in no order */
        const struct cuda_twin twin = twin_of(i * 77 % N);
        assert_int_equal(cuda_twins_add(&t, &twin, &err), REEL_OK);
    }
    for (int i = 0; i < N; i++)
        for (int g = 0; g < GPUS; g++) {
            const struct cuda_twin twin = twin_of(i);
            assert_true(cuda_twins_find(&t, twin.from, g) == twin.on[g]);
            assert_true(cuda_twins_find(&t, twin.from + BYTES - 1, g) == twin.on[g] + BYTES - 1);
            /* behind it there is nothing */
            assert_true(cuda_twins_find(&t, twin.from + BYTES, g) == twin.from + BYTES);
        }
    assert_true(cuda_twins_find(&t, 0, 1) == 0);
    cuda_twins_close(&t);
}

static void what_is_taken_out_is_no_more(void **state) {
    (void)state;
    struct cuda_twins t;
    struct cuda_twin out;
    struct reel_error err = { 0 };
    assert_int_equal(cuda_twins_open(&t, &err), REEL_OK);
    for (int i = 0; i < N; i++) {
        const struct cuda_twin twin = twin_of(i);
        assert_int_equal(cuda_twins_add(&t, &twin, &err), REEL_OK);
    }
    for (int i = 0; i < N; i += 2) {
        const struct cuda_twin twin = twin_of(i);
        assert_false(cuda_twins_take(&t, twin.from + 1, &out));
        assert_true(cuda_twins_take(&t, twin.from, &out));
        assert_memory_equal(&out, &twin, sizeof out);
        assert_false(cuda_twins_take(&t, twin.from, &out));
        assert_true(cuda_twins_find(&t, twin.from, 1) == twin.from);
        assert_true(cuda_twins_find(&t, twin_of(i + 1).from, 2) == twin_of(i + 1).on[2]);
    }
    assert_int_equal(t.n, N / 2);
    cuda_twins_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_found_on_each_gpu),
        cmocka_unit_test(what_is_taken_out_is_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
