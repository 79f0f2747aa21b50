#define _DEFAULT_SOURCE
/* The search over launch settings, and the file in which its result is remembered. */
#include "cuda/run/tuned.h"
#include "runtime/tune_search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- searching ---- */

struct hill {
    int best[2];   /* where the score is highest */
    int forbidden; /* of axis 0; -1: none */
    double noise;  /* one measurement in three is this much higher */
    int n_measured, n_kept, fail_at, most;
};

static int value_of(const struct tune_search *s, int axis) {
    return s->axes[axis].values[s->axes[axis].at];
}

static enum reel_status measure(void *user, const struct tune_search *s, double *score,
                                struct reel_error *err) {
    struct hill *h = user;
    if (++h->n_measured == h->fail_at) return err_set(err, REEL_E_DEVICE, "broken");
    *score = 1000;
    for (int i = 0; i < 2; i++)
        *score -= 50 * abs(value_of(s, i) - h->best[i]);
    *score *= 1 + (h->n_measured % 3 ? 0 : h->noise);
    if (value_of(s, 0) == h->forbidden) *score = 0;
    return REEL_OK;
}

static void tried(void *user, const struct tune_search *s, int axis, double score, double best,
                  bool kept) {
    struct hill *h = user;
    (void)s, (void)axis, (void)score, (void)best;
    h->n_kept += kept;
}

static bool time_over(void *user) {
    const struct hill *h = user;
    return h->most && h->n_measured >= h->most;
}

static struct tune_search search_of(struct hill *h, int now) {
    struct tune_search s = {
        .n_axes = 2, .measure = measure, .tried = tried, .time_over = time_over, .user = h
    };
    tune_axis_steps(&s.axes[0], "a", 1, 8, now);
    tune_axis_steps(&s.axes[1], "b", 1, 8, now);
    return s;
}

static void the_highest_place_of_a_hill_is_found(void **state) {
    struct reel_error err = { 0 };
    (void)state;
    for (int now = 1; now <= 8; now++)
        for (int a = 1; a <= 8; a++) {
            struct hill h = { .best = { a, 9 - a }, .forbidden = -1 };
            struct tune_search s = search_of(&h, now);
            assert_int_equal(tune_search(&s, &err), REEL_OK);
            assert_int_equal(value_of(&s, 0), a);
            assert_int_equal(value_of(&s, 1), 9 - a);
            assert_int_equal(h.n_kept, abs(now - a) + abs(now - (9 - a)));
        }
}

static void noise_moves_nothing(void **state) {
    struct reel_error err = { 0 };
    struct hill h = { .best = { 4, 4 }, .forbidden = -1, .noise = 0.2 };
    struct tune_search s = search_of(&h, 4);
    (void)state;
    assert_int_equal(tune_search(&s, &err), REEL_OK);
    assert_int_equal(value_of(&s, 0), 4);
    assert_int_equal(value_of(&s, 1), 4);
}

static void values_out_of_the_question_are_not_taken(void **state) {
    struct reel_error err = { 0 };
    struct hill h = { .best = { 5, 3 }, .forbidden = 5 };
    struct tune_search s = search_of(&h, 3);
    (void)state;
    assert_int_equal(tune_search(&s, &err), REEL_OK);
    assert_int_equal(value_of(&s, 0), 4);
}

static void the_search_ends_in_time_and_with_failures(void **state) {
    struct reel_error err = { 0 };
    struct hill h = { .best = { 8, 8 }, .forbidden = -1, .most = 5 };
    struct tune_search s = search_of(&h, 1);
    (void)state;
    assert_int_equal(tune_search(&s, &err), REEL_OK);
    assert_true(h.n_measured <= 8);
    for (int n = 1; n < 12; n++) {
        h = (struct hill){ .best = { 8, 8 }, .forbidden = -1, .fail_at = n };
        s = search_of(&h, 1);
        assert_int_equal(tune_search(&s, &err), REEL_E_DEVICE);
        assert_int_equal(h.n_measured, n);
    }
}

static void axes_hold_the_value_of_now_in_order(void **state) {
    struct tune_axis a;
    (void)state;
    tune_axis_powers(&a, "split", 64, 8192, 700);
    assert_int_equal(a.n, 9);
    assert_int_equal(a.values[a.at], 700);
    tune_axis_powers(&a, "split", 64, 8192, 1 << 30);
    assert_int_equal(a.values[a.at], 1 << 30);
    assert_int_equal(a.at, a.n - 1);
    tune_axis_steps(&a, "many", 1, 300, 77);
    assert_true(a.n <= TUNE_MOST_VALUES);
    assert_int_equal(a.values[a.at], 77);
    for (int i = 1; i < a.n; i++)
        assert_true(a.values[i] > a.values[i - 1]);
    tune_axis_steps(&a, "one", 1, 1, 1);
    assert_int_equal(a.n, 1);
}

/* ---- remembering ---- */

static const struct cuda_gpu gpu = {
    .n = 1, .facts = { .name = "NVIDIA H200/x", .compute = 90, .n_sms = 132 }
};
static const struct model_config shape = { .n_layers = 28, .hidden = 1024, .vocab = 151936 };

static void spoil(const char *path, const char *from, const char *to) {
    char text[2000] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    char *at = strstr(text, from);
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static void what_was_found_is_read_back_and_damage_is_seen(void **state) {
    char folder[] = "/tmp/reel-tuned-XXXXXX";
    struct buffer path = { 0 }, other = { 0 };
    struct reel_error err = { 0 };
    struct plan_options o;
    struct model_config wider = shape;
    const char *damage = NULL;
    int formats[TAPE_N_PHASES] = { TILE_BF16 };
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tuned_path(&path, folder, &gpu, &shape, formats, &err), REEL_OK);
    wider.hidden++;
    assert_int_equal(tuned_path(&other, folder, &gpu, &wider, formats, &err), REEL_OK);
    assert_string_not_equal(path.bytes, other.bytes);
    for (int i = 0; i < TAPE_N_PHASES; i++) { /* weights that stay narrow, in each phase */
        struct buffer narrow = { 0 };
        formats[i] = TILE_FORMAT(TILE_INT8, TILE_GROUP_ROW, TILE_SCALE_BF16, TILE_NO_OFFSETS);
        assert_int_equal(tuned_path(&narrow, folder, &gpu, &shape, formats, &err), REEL_OK);
        assert_string_not_equal(path.bytes, narrow.bytes);
        formats[i] = TILE_BF16;
        buffer_release(&narrow);
    }
    assert_null(strstr(path.bytes, "H200/x"));

    assert_int_equal(tuned_read(&o, &damage, path.bytes, &err), REEL_OK);
    assert_null(damage);
    assert_int_equal(o.cap_layers, 0);
    assert_int_equal(tuned_write(path.bytes, "cap_layers=5,split_from=512", 1, 2, &err), REEL_OK);
    assert_int_equal(tuned_read(&o, &damage, path.bytes, &err), REEL_OK);
    assert_null(damage);
    assert_int_equal(o.cap_layers, 5);
    assert_int_equal(o.split_from, 512);

    /* under another name: another GPU's */
    assert_int_equal(rename(path.bytes, other.bytes), 0);
    assert_int_equal(tuned_read(&o, &damage, other.bytes, &err), REEL_OK);
    assert_non_null(damage);
    assert_int_equal(o.cap_layers, 0);
    assert_int_equal(rename(other.bytes, path.bytes), 0);

    spoil(path.bytes, "cap_layers=5", "cap_layers=6");
    assert_int_equal(tuned_read(&o, &damage, path.bytes, &err), REEL_OK);
    assert_non_null(damage);
    assert_int_equal(o.cap_layers, 0);
    spoil(path.bytes, "{", "[");
    assert_int_equal(tuned_read(&o, &damage, path.bytes, &err), REEL_OK);
    assert_non_null(damage);
    assert_int_equal(tuned_write(path.bytes, "cap_layers=five", 1, 2, &err), REEL_OK);
    assert_int_equal(tuned_read(&o, &damage, path.bytes, &err), REEL_OK);
    assert_non_null(damage);
    unlink(path.bytes);
    rmdir(folder);
    assert_int_not_equal(tuned_write(path.bytes, "cap_layers=5", 1, 2, &err), REEL_OK);
    buffer_release(&path);
    buffer_release(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_place_of_a_hill_is_found),
        cmocka_unit_test(noise_moves_nothing),
        cmocka_unit_test(values_out_of_the_question_are_not_taken),
        cmocka_unit_test(the_search_ends_in_time_and_with_failures),
        cmocka_unit_test(axes_hold_the_value_of_now_in_order),
        cmocka_unit_test(what_was_found_is_read_back_and_damage_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
