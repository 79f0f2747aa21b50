/* reel bench --plot: what measured rows look like, in Unicode and in ASCII. */
#include "cli/bench_plot.h"
#include "cli/chart.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct bench_row row(int n_prompt, int n_gen, int depth, double per_s) {
    return (struct bench_row){ .test = { .n_prompt = n_prompt, .n_gen = n_gen, .depth = depth },
                               .tokens_per_s = per_s };
}

static void assert_plot(const struct bench_row *rows, int n, struct plot_style style,
                        const char *wanted) {
    struct buffer out = { 0 };
    assert_int_equal(bench_plot(&out, rows, n, &style, NULL), REEL_OK);
    assert_string_equal(out.bytes, wanted);
    buffer_release(&out);
}

static void bars_have_a_scale_for_each_kind(void **state) {
    const struct bench_row rows[] = { row(512, 0, 0, 1000), row(0, 8, 0, 10), row(0, 8, 0, 5) };
    (void)state;
    assert_plot(rows, 3, (struct plot_style){ .columns = 33 },
                "\ntokens/s, reading prompts\n"
                "pp512      1,000 ################\n"
                "\ntokens/s, generating\n"
                "tg8       10.0 ##################\n"
                "tg8       5.00 #########\n");
    assert_plot(rows + 1, 2, (struct plot_style){ .columns = 23, .unicode = true, .dims = true },
                "\n\033[2mtokens/s, generating\033[0m\n"
                "tg8       10.0 \u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\n"
                "tg8       5.00 \u2588\u2588\u2588\u2588\n");
}

/* Depths may be typed in any order; the curve goes from left to right. */
static void several_depths_are_a_curve(void **state) {
    const struct bench_row rows[] = { row(0, 8, 100, 50), row(0, 8, 0, 100) };
    (void)state;
    assert_plot(rows, 2, (struct plot_style){ .columns = 40 },
                "\ntokens/s, generating\n"
                "tg8 @ d100       50.0 #########\n"
                "tg8               100 ##################\n"
                "\ntokens/s of tg8 against depth\n"
                "     100 |o....\n"
                "         |     ........\n"
                "         |             ........\n"
                "         |                     ........o\n"
                "         |\n"
                "         |\n"
                "         |\n"
                "       0 |\n"
                "         +------------------------------\n"
                "          0                          100\n");
}

static void one_depth_is_no_curve(void **state) {
    const struct bench_row rows[] = { row(0, 8, 100, 50), row(0, 8, 100, 60), row(4, 0, 0, 7) };
    struct buffer out = { 0 };
    (void)state;
    assert_int_equal(bench_plot(&out, rows, 3, &(struct plot_style){ .columns = 80 }, NULL),
                     REEL_OK);
    assert_null(strstr(out.bytes, "against"));
    buffer_release(&out);
}

static void several_sessions_are_bars(void **state) {
    const struct parallel_row rows[] = {
        { .test = { .n_prompt = 4, .n_gen = 8, .n_sessions = 1 }, .gen_per_s = 50 },
        { .test = { .n_prompt = 4, .n_gen = 8, .depth = 9, .n_sessions = 2 }, .gen_per_s = 100 },
    };
    struct buffer out = { 0 };
    (void)state;
    assert_int_equal(parallel_plot(&out, rows, 2, &(struct plot_style){ .columns = 50 }, NULL),
                     REEL_OK);
    assert_string_equal(out.bytes, "\ngenerated tokens/s of all sessions\n"
                                   "1 session, pp4 tg8             50.0 #######\n"
                                   "2 sessions, pp4 tg8 @ d9        100 ##############\n");
    buffer_release(&out);
}

static void numbers_are_read_at_a_glance(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = { { 0, "0" },          { 0.5, "0.50" },    { 9.99, "9.99" },      { 9.996, "10.0" },
                  { 99.96, "100" },    { 999.6, "1,000" }, { 123456, "123,456" }, { -1, "0" },
                  { 1e6, "1,000,000" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[48];
        chart_number(cases[i].value, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void the_locale_says_what_can_be_shown(void **state) {
    (void)state;
    setenv("LC_ALL", "", 1);
    setenv("LC_CTYPE", "de_DE.utf8", 1);
    setenv("LANG", "C", 1);
    assert_true(chart_is_unicode());
    setenv("LC_ALL", "POSIX", 1);
    assert_false(chart_is_unicode());
    setenv("LC_ALL", "de_DE.ISO-8859-1", 1);
    assert_false(chart_is_unicode());
}

static void the_command_draws_under_its_table(void **state) {
    (void)state;
    struct result r = shell("LC_ALL=C reel bench demo --device cpu -p 0 -n 4 -d 0,8 -r 1 --plot");
    assert_int_equal(r.status, 0);
    const char *table = strstr(r.out, "| tg4 @ d8 |"),
               *plot = strstr(r.out, "tokens/s, generating");
    assert_true(table && plot && table < plot);
    assert_non_null(strstr(plot, "tokens/s of tg4 against depth"));
    assert_null(strchr(r.out, '\033'));
    done(r);
    expect("reel bench demo --plot -o csv", 2, "-o md");
    expect("reel bench --limits --plot", 2, "--limits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_have_a_scale_for_each_kind),
        cmocka_unit_test(several_depths_are_a_curve),
        cmocka_unit_test(one_depth_is_no_curve),
        cmocka_unit_test(several_sessions_are_bars),
        cmocka_unit_test(numbers_are_read_at_a_glance),
        cmocka_unit_test(the_locale_says_what_can_be_shown),
        cmocka_unit_test(the_command_draws_under_its_table),
    };
    return cmocka_run_group_tests(tests, shell_enter, shell_leave);
}
