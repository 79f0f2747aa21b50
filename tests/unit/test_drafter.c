/* Guesses from what stands in a session, and how many of them a pass is worth. */
#include "runtime/drafter.h"
#include "runtime/pass_costs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_IDS = 300 };

static struct drafter opened(void) {
    struct drafter d;
    assert_int_equal(drafter_open(&d, MAX_IDS, NULL), REEL_OK);
    return d;
}

static void assert_guess(struct drafter *d, int most, const int32_t *ids, int n) {
    struct guess guess;
    drafter_guess(d, &guess, most);
    assert_int_equal(guess.n, n);
    assert_memory_equal(guess.ids, ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        assert_true(guess.chance[i] > 0 && guess.chance[i] <= 1);
}

#define FOLLOW(d, ...)                                                                             \
    do {                                                                                           \
        const int32_t list[] = { __VA_ARGS__ };                                                    \
        drafter_follow(d, list, (int)(sizeof list / sizeof *list));                                \
    } while (0)

static void what_followed_before_is_the_guess(void **state) {
    (void)state;
    struct drafter d = opened();
    FOLLOW(&d, 1, 2);
    assert_guess(&d, 7, NULL, 0);
    FOLLOW(&d, 1, 2, 3, 4, 5, 1, 2);
    assert_guess(&d, 3, (const int32_t[]){ 3, 4, 5 }, 3);
    FOLLOW(&d, 9, 2, 8, 7, 1, 2, 3, 9, 2); /* two ids have to be the same */
    assert_guess(&d, 2, (const int32_t[]){ 8, 7 }, 2);
    FOLLOW(&d, 3, 1, 2, 5, 6, 4, 1, 2, 7, 6, 3, 1, 2); /* the longer place, not the last */
    assert_guess(&d, 2, (const int32_t[]){ 5, 6 }, 2);
    FOLLOW(&d, 1, 2, 5, 6, 1, 2, 7, 6, 1, 2); /* of places of one length the last */
    assert_guess(&d, 2, (const int32_t[]){ 7, 6 }, 2);
    FOLLOW(&d, 4, 5, 4, 5); /* what would follow the end */
    assert_guess(&d, 7, (const int32_t[]){ 4, 5, 4, 5, 4, 5, 4 }, 7);
    FOLLOW(&d, 1, 2, 6, -1, 7, 1, 2); /* an embedding is no id */
    assert_guess(&d, 7, (const int32_t[]){ 6 }, 1);
    FOLLOW(&d, -1, -1, 7, -1, -1);
    assert_guess(&d, 7, NULL, 0);
    drafter_close(&d);
}

static void a_session_that_was_cut_has_no_places_behind_the_cut(void **state) {
    (void)state;
    struct drafter d = opened();
    FOLLOW(&d, 1, 2, 3, 1, 2, 4, 1, 2);
    assert_guess(&d, 1, (const int32_t[]){ 4 }, 1);
    FOLLOW(&d, 1, 2, 3, 1, 2);
    assert_guess(&d, 1, (const int32_t[]){ 3 }, 1);
    FOLLOW(&d, 5, 6, 7, 1, 2);
    assert_guess(&d, 1, NULL, 0);
    for (int n = 9; n >= 0; n--) { /* each pair is the last one once */
        const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
        drafter_follow(&d, ids, n);
        assert_guess(&d, 7, NULL, 0);
    }
    drafter_close(&d);
}

/* The last of the places with the most ids the same, by looking at all of them. */
static int place_of(const int32_t *ids, int n) {
    int best = 0, longest = 1;
    for (int end = n - 2; end >= 1; end--) {
        int same = 0;
        while (same <= end && same < 24 && ids[end - same] == ids[n - 1 - same])
            same++;
        if (same > longest) {
            longest = same;
            best = end + 1;
        }
    }
    return best;
}

static void guesses_are_those_of_a_plain_search(void **state) {
    (void)state;
    struct drafter d = opened();
    int n_guesses = 0;
    srand(7);
    for (int round = 0; round < 400; round++) {
        int32_t ids[MAX_IDS];
        const int kinds = 2 + round % 30, n_prompt = 1 + rand() % 60;
        for (int i = 0; i < n_prompt; i++)
            ids[i] = rand() % kinds;
        drafter_follow(&d, ids, n_prompt);
        for (int n = n_prompt; n < 64; n++) { /* no more than the places that are looked at */
            struct guess guess;
            const int place = n < 3 ? 0 : place_of(ids, n);
            d.followed = 0; /* the search alone */
            drafter_guess(&d, &guess, 1);
            assert_int_equal(guess.n, place > 0);
            if (place > 0) assert_int_equal(guess.ids[0], ids[place]);
            n_guesses += guess.n;
            ids[n] = rand() % kinds;
            drafter_saw(&d, ids[n]);
        }
    }
    assert_true(n_guesses > 2000);
    drafter_close(&d);
}

static float chance_of_next(struct drafter *d, int n_right) {
    struct guess guess;
    FOLLOW(d, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2);
    drafter_guess(d, &guess, 3);
    assert_int_equal(guess.n, 3);
    drafter_takes(d, &guess, 3);
    for (int i = 0; i < 3; i++) { /* behind a wrong one nothing is a draft */
        const bool right = drafter_saw(d, i < n_right ? 3 + i : 99);
        assert_int_equal(right, i < n_right);
    }
    return guess.chance[0];
}

static void chances_follow_what_became_of_guesses(void **state) {
    (void)state;
    struct drafter d = opened();
    const float first = chance_of_next(&d, 0);
    for (int i = 0; i < 300; i++)
        chance_of_next(&d, 0);
    const float low = chance_of_next(&d, 3);
    for (int i = 0; i < 300; i++)
        chance_of_next(&d, 3);
    const float high = chance_of_next(&d, 0);
    assert_true(low < 0.05f && low < first && high > 0.7f);
    drafter_close(&d);
}

/* The guess behind `id`, which comes next. */
static void see(struct drafter *d, int32_t id, const int32_t *next, int n) {
    (void)drafter_saw(d, id);
    assert_guess(d, 2, next, n);
}

static void a_text_with_another_word_is_followed(void **state) {
    (void)state;
    struct drafter d = opened();
    FOLLOW(&d, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 2, 3, 4);
    assert_guess(&d, 2, (const int32_t[]){ 5, 6 }, 2);
    see(&d, 99, (const int32_t[]){ 6, 7 }, 2); /* in place of 5 */
    see(&d, 6, (const int32_t[]){ 7, 8 }, 2);
    see(&d, 98, (const int32_t[]){ 8, 9 }, 2);
    for (int i = 0; i < 5; i++) /* it was too long ago */
        (void)drafter_saw(&d, 50 + i);
    assert_guess(&d, 2, NULL, 0);
    FOLLOW(&d, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 99); /* nothing is known of what was followed */
    assert_guess(&d, 2, NULL, 0);
    FOLLOW(&d, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3);
    assert_guess(&d, 2, (const int32_t[]){ 4, 5 }, 2);
    see(&d, 99, NULL, 0); /* three ids the same are too few */
    drafter_close(&d);
}

static void a_full_session_takes_no_more_ids(void **state) {
    (void)state;
    struct drafter d = opened();
    for (int i = 0; i < MAX_IDS + 10; i++)
        drafter_saw(&d, i % 5);
    assert_int_equal(d.n, MAX_IDS);
    assert_guess(&d, 2, (const int32_t[]){ 0, 1 }, 2);
    drafter_close(&d);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static const float sure[GUESS_MOST] = { 1, 1, 1, 1, 1, 1, 1 };
static const float doubtful[GUESS_MOST] = { 0.2f, 0.2f, 0.2f, 0.2f, 0.2f, 0.2f, 0.2f };

static int worth_taking(const struct pass_costs *c, int n_columns, double expected,
                        const float *chance, int n) {
    return pass_costs_choose(c, n_columns, expected, chance, n, NULL, 0).n;
}

static void drafts_are_taken_where_they_pay(void **state) {
    (void)state;
    struct pass_costs c = { .column_share = 0.35 };
    assert_int_equal(worth_taking(&c, 1, 1, sure, 7), 0); /* nothing is known yet */
    pass_costs_saw(&c, 1, 1, 1, 1);
    assert_int_equal(worth_taking(&c, 1, 1, sure, 7), 7);
    assert_int_equal(worth_taking(&c, 1, 1, sure, 3), 3);
    assert_int_equal(worth_taking(&c, 1, 1, doubtful, 7), 0);
    assert_int_equal(worth_taking(&c, 1, 1, sure, 0), 0);
    /* six columns or more cost as much as they bring, four cost little */
    for (int i = 2; i <= 8; i++)
        pass_costs_saw(&c, i, 1, i, i <= 4 ? 1.2 : i + 0.5);
    assert_int_equal(worth_taking(&c, 1, 1, sure, 7), 3);
    /* beside others: what they make counts, too */
    assert_int_equal(worth_taking(&c, 2, 2, sure, 6), 2);
    assert_int_equal(worth_taking(&c, 4, 4, sure, 4), 0);
}

static void drafts_that_lose_are_given_up(void **state) {
    (void)state;
    struct pass_costs c = { .column_share = 0.35 };
    double lost = 0, spent = 0;
    int n_tried = 0;
    for (int i = 0; i < 5000; i++) {
        const int n = worth_taking(&c, 1, 1, sure, 7); /* which promise all, and never are */
        const double ms = 1 + 0.3 * n;
        pass_costs_saw(&c, 1 + n, 1, 1, ms);
        lost += ms - 1;
        spent += ms;
        n_tried += n > 0;
    }
    assert_true(n_tried > 1); /* now and then it is tried again */
    assert_true(lost < 0.02 * spent);
}

/* Passes with drafts gain a little each time, and it costs more to go on without them. */
static void drafts_pay_for_the_change(void **state) {
    (void)state;
    struct pass_costs c = { .column_share = 0.08 };
    double lost = 0, spent = 0;
    int n_changes = 0;
    for (int i = 0; i < 5000; i++) {
        pass_costs_saw_some(&c, 1, 8, 8, 8);
        spent += 8;
        if (worth_taking(&c, 1, 1, sure, 7) == 0) continue;
        pass_costs_saw_some(&c, 8, 1, 2, 1.9);
        pass_costs_saw_some(&c, 1, 0, 1, 1.5);
        lost += 1.9 + 1.5 - 3, spent += 1.9 + 1.5;
        n_changes++;
    }
    assert_true(n_changes > 1);
    assert_true(lost < 0.02 * spent);
}

/* A text that drafts suit is followed by one that they do not. */
static void what_was_saved_is_not_lost_again(void **state) {
    (void)state;
    for (int begins = 0; begins < 2; begins++) {
        struct pass_costs c = { .column_share = 0.08 };
        double lost = 0;
        pass_costs_saw(&c, 1, 1, 1, 1);
        for (int i = 0; i < 200; i++)
            pass_costs_saw(&c, 8, 1, 8, 2);
        if (begins) pass_costs_begin(&c);
        for (int i = 0; i < 400; i++) {
            const int n = worth_taking(&c, 1, 1, sure, 7);
            pass_costs_saw(&c, n ? 8 : 1, 1, 1, n ? 2 : 1);
            lost += n ? 1 : 0;
        }
        assert_true(lost >= 1);
        assert_true(lost < (begins ? 10 : 30));
    }
}

static void what_a_pass_cost_is_learned_again(void **state) {
    (void)state;
    struct pass_costs c = { .column_share = 0.35 };
    pass_costs_saw(&c, 1, 1, 1, 1);
    pass_costs_saw(&c, 2, 1, 2, 100); /* something disturbed it */
    c.lead_ms = 0;
    assert_true(worth_taking(&c, 1, 1, sure, 1) == 0);
    for (int i = 0; i < 600; i++)
        pass_costs_saw(&c, 1, 1, 1, 1);
    assert_int_equal(worth_taking(&c, 1, 1, sure, 1), 1);
    for (int i = 0; i < 100; i++)
        pass_costs_saw(&c, 2, 1, 2, 3); /* a longer context, say */
    assert_true(fabs(c.ms[2] - 3) < 0.1);
}

/* A draft model takes time for each guess. */
static void guesses_that_cost_are_made_where_they_pay(void **state) {
    (void)state;
    struct pass_costs c = { .column_share = 0.02 };
    const float likely[7] = { 0.8F, 0.8F, 0.8F, 0.8F, 0.8F, 0.8F, 0.8F };
    const struct guess_cost cheap = { .ms = 0.1 }, dear = { .ms = 0.9 }, unknown = { .share = 0.1 };
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 0).n, 0);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 1).n, 1);
    pass_costs_saw(&c, 1, 1, 1, 1);
    const struct pass_choice best = pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 0);
    /* 1 + 0.8 + ... + 0.8^5 ids in 1 + 5 * (0.02 + 0.1) ms, less what is not known exactly */
    assert_int_equal(best.n, 5);
    assert_true(fabs(best.speed - 0.97 * 3.68928 / 1.6) < 1e-4);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &unknown, 0).n, 5);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, NULL, 0).n, 7);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &dear, 0).n, 0);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &dear, 1).n, 1);
    pass_costs_pay(&c, 2); /* for guesses that came to nothing */
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 0).n, 0);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 1).n, 5);
    for (int i = 0; i < 120; i++) /* a hundredth of the time pays for it */
        pass_costs_saw(&c, 1, 1, 1, 1);
    assert_int_equal(pass_costs_choose(&c, 1, 1, likely, 7, &cheap, 0).n, 5);
}

static void a_model_that_was_wrong_is_asked_again(void **state) {
    (void)state;
    struct drafter d = opened();
    const struct guess wrong = { .n = 3, .source = GUESS_BY_MODEL, .ids = { 7, 7, 7 } };
    FOLLOW(&d, 1, 2, 3);
    const float before = drafter_step_chance(&d, GUESS_BY_MODEL, 0);
    const float later = drafter_step_chance(&d, GUESS_BY_MODEL, 1);
    const float layer = drafter_step_chance(&d, GUESS_BY_LAYER, 0);
    for (int i = 0; i < 8; i++) {
        drafter_takes(&d, &wrong, 3);
        assert_false(drafter_saw(&d, 5));
        assert_false(drafter_saw(&d, 7)); /* behind a wrong one nothing is a draft */
    }
    const float after = drafter_step_chance(&d, GUESS_BY_MODEL, 0);
    assert_true(after < before / 2);
    assert_true(drafter_step_chance(&d, GUESS_BY_MODEL, 1) == later);
    assert_true(drafter_step_chance(&d, GUESS_BY_LAYER, 0) == layer);
    for (int i = 0; i < 400; i++)
        drafter_hope(&d, GUESS_BY_MODEL, 1 / 32.0F);
    assert_true(drafter_step_chance(&d, GUESS_BY_MODEL, 0) > (before + after) / 2);
    assert_true(drafter_step_chance(&d, GUESS_BY_MODEL, 0) < before);
    drafter_takes(&d, &wrong, 3);
    assert_true(drafter_saw(&d, 7));
    drafter_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_is_the_guess),
        cmocka_unit_test(a_session_that_was_cut_has_no_places_behind_the_cut),
        cmocka_unit_test(guesses_are_those_of_a_plain_search),
        cmocka_unit_test(chances_follow_what_became_of_guesses),
        cmocka_unit_test(a_text_with_another_word_is_followed),
        cmocka_unit_test(a_full_session_takes_no_more_ids),
        cmocka_unit_test(drafts_are_taken_where_they_pay),
        cmocka_unit_test(drafts_pay_for_the_change),
        cmocka_unit_test(what_was_saved_is_not_lost_again),
        cmocka_unit_test(drafts_that_lose_are_given_up),
        cmocka_unit_test(what_a_pass_cost_is_learned_again),
        cmocka_unit_test(guesses_that_cost_are_made_where_they_pay),
        cmocka_unit_test(a_model_that_was_wrong_is_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
