/* Which states of a session are kept: plan/checkpoints.h. */
#include "plan/checkpoints.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void keep(struct checkpoints *c, int position, int spared) {
    assert_true(checkpoints_keep(c, position, spared) >= 0);
    assert_true(checkpoints_find(c, position) >= 0);
    c->n_positions = position;
}

/* Decodes up to `end`. */
static void decode_to(struct checkpoints *c, int end) {
    for (int at = (c->n_positions / CHECKPOINT_STEP + 1) * CHECKPOINT_STEP; at <= end;
         at += CHECKPOINT_STEP)
        keep(c, at, 0);
    c->n_positions = end;
}

/* However short the prompt is behind a long text, three states of it are kept: where it begins,
 * before its last position, and behind it. */
static void a_short_prompt_keeps_what_it_needs(void **state) {
    (void)state;
    for (int n = 3; n < 40; n++) {
        struct checkpoints c;
        checkpoints_reset(&c, 0);
        decode_to(&c, 5000);
        keep(&c, 5000, 5000);
        const int slot = checkpoints_take(&c, 5000 + n - 1, 5000);
        assert_int_equal(c.position[slot], 0);
        c.position[slot] = 5000 + n - 1;
        keep(&c, 5000 + n, 5000);
        for (int i = 0; i < 3; i++)
            assert_true(checkpoints_find(&c, (int[]){ 5000, 5000 + n - 1, 5000 + n }[i]) >= 0);
    }
}

/* Who goes back by so many positions finds a state at most eight times as far back. */
static void states_are_kept_at_all_distances(void **state) {
    (void)state;
    struct checkpoints c;
    checkpoints_reset(&c, 0);
    for (int end = CHECKPOINT_STEP; end <= 64 * CHECKPOINT_STEP; end += CHECKPOINT_STEP) {
        decode_to(&c, end);
        assert_int_equal(checkpoints_resume(&c, end), end);
        assert_true(checkpoints_find(&c, end) >= 0);
        for (int back = CHECKPOINT_STEP; back < end; back += CHECKPOINT_STEP)
            assert_true(end - checkpoints_resume(&c, end - back) <= 8 * back);
    }
}

static void going_back_forgets_what_lies_beyond(void **state) {
    (void)state;
    struct checkpoints c;
    checkpoints_reset(&c, 0);
    decode_to(&c, 1000);
    assert_int_equal(checkpoints_resume(&c, 999), 768);
    const int slot = checkpoints_find(&c, 512);
    assert_int_equal(checkpoints_resume(&c, 600), 512);
    assert_int_equal(checkpoints_go(&c, 512), slot);
    assert_int_equal(checkpoints_find(&c, 768), CHECKPOINT_NONE);
    assert_int_equal(checkpoints_resume(&c, 1000), 512);
    assert_int_equal(checkpoints_go(&c, 512), CHECKPOINT_NONE); /* it is the live one */
    assert_int_equal(checkpoints_go(&c, 0), CHECKPOINT_ZERO);
    assert_int_equal(checkpoints_keep(&c, 0, 0), CHECKPOINT_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_prompt_keeps_what_it_needs),
        cmocka_unit_test(states_are_kept_at_all_distances),
        cmocka_unit_test(going_back_forgets_what_lies_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
