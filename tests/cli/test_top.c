/* reel top: its parser on pages of its own, its figures, and the program at a server and a
 * terminal.
 */
#include "base/json.h"
#include "cli/metrics_text.h"
#include "cli/top_view.h"
#include "support/http_stub.h"
#include "support/pty.h"
#include "support/sanitized.h"
#include "support/screen.h"
#include "support/shell.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/without_curl.h"

/* ---- Prometheus' text ------------------------------------------------------------------------ */

static void samples_are_read_whatever_names_hold(void **state) {
    static const char text[] = "# HELP a nothing\n"
                               "a{model=\"x \\\"y\\\"\\\\\\nz\",le=\"+Inf\"} 12.5\n"
                               "\n"
                               "b 3e3 1700000000\n"
                               "c{open=\"never closed\n"
                               "d{no_value} 1\n"
                               "e{a=\"1\",b=\"2\",c=\"3\",d=\"4\",e=\"5\"} 7\n"
                               "f \n"
                               "9 nine\n"
                               "g{} -1";
    struct metric m;
    const char *at = text;
    (void)state;
    assert_true(metric_next(&at, &m));
    assert_true(metric_is(&m, "a") && m.number == 12.5 && m.n_labels == 2);
    assert_string_equal(metric_label(&m, "model"), "x \"y\"\\\nz");
    assert_string_equal(metric_label(&m, "le"), "+Inf");
    assert_null(metric_label(&m, "mod"));
    assert_true(metric_next(&at, &m));
    assert_true(metric_is(&m, "b") && m.number == 3000 && m.n_labels == 0);
    assert_true(metric_next(&at, &m)); /* c and d are none */
    assert_true(metric_is(&m, "e") && m.number == 7 && m.n_labels == METRIC_LABELS);
    assert_true(metric_next(&at, &m)); /* f has no number, 9 is one */
    assert_true(metric_is(&m, "g") && m.number == -1);
    assert_false(metric_next(&at, &m));
}

static void a_label_that_is_too_long_is_cut(void **state) {
    char text[2000];
    struct metric m;
    const char *at = text;
    (void)state;
    snprintf(text, sizeof text, "a{x=\"%01000d\"} 1\n", 0);
    assert_true(metric_next(&at, &m));
    assert_int_equal(strlen(metric_label(&m, "x")), METRIC_VALUE_SIZE - 1);
}

/* ---- figures --------------------------------------------------------------------------------- */

#define PAGE                                                                                       \
    "reel_build_info{version=\"1.2.3\"} 1\nreel_requests_in_flight 3\nreel_connections 5\n"        \
    "reel_resident_bytes 1240000000\n"                                                             \
    "reel_model_ready{model=\"one\"} 1\nreel_model_ready{model=\"t\\\"wo\\n\"} 0\n"                \
    "reel_sessions{model=\"one\"} 4\nreel_sessions_busy{model=\"one\"} 2\n"                        \
    "reel_requests_queued{model=\"one\"} 7\nreel_kv_used_bytes{model=\"one\"} 250\n"               \
    "reel_kv_total_bytes{model=\"one\"} 1000\n"                                                    \
    "reel_gpu_energy_joules_total{gpu=\"H100\"} %d\nreel_gpu_power_watts{gpu=\"H100\"} 412\n"      \
    "reel_tokens_made_total{model=\"one\"} %d\nreel_prompt_tokens_total{model=\"one\"} %d\n"       \
    "reel_reused_tokens_total{model=\"one\"} %d\nreel_queue_seconds_count{model=\"one\"} %d\n"     \
    "reel_prefix_hits_total{model=\"one\"} %d\n"                                                   \
    "reel_time_to_first_token_seconds_bucket{model=\"one\",le=\"0.01\"} %d\n"                      \
    "reel_time_to_first_token_seconds_bucket{model=\"one\",le=\"0.02\"} %d\n"                      \
    "reel_time_to_first_token_seconds_bucket{model=\"one\",le=\"+Inf\"} %d\n"
#define MODELS                                                                                     \
    "{\"data\":[{\"id\":\"one\",\"status\":\"ready\",\"device\":\"cuda\"},"                        \
    "{\"id\":\"t\\\"wo\\n\",\"status\":\"loading\",\"device\":null}]}"

static void read_pages(struct top_reading *r, int joules, int made, int requests) {
    char page[4000];
    snprintf(page, sizeof page, PAGE, joules, made, 10 * made, 5 * made, requests, requests / 2,
             requests / 2, requests, requests);
    assert_int_equal(top_read_pages(r, "url", page, MODELS, NULL), REEL_OK);
}

static void two_readings_make_figures(void **state) {
    static struct top_reading a, b;
    struct top_figures f;
    (void)state;
    read_pages(&a, 1000, 100, 10);
    read_pages(&b, 1050, 300, 30);
    b.at_ms = a.at_ms + 2000;
    assert_int_equal(b.n_models, 2);
    assert_string_equal(b.models[0].device, "cuda");
    assert_string_equal(b.models[1].status, "loading");
    assert_true(top_made_per_s(&a, &b) == 100);
    assert_true(top_made_per_joule(&a, &b) == 4);
    top_model_figures(&f, &a, &b, 0);
    assert_true(f.made_per_s == 100 && f.prompt_per_s == 1000);
    assert_true(f.reused_share == 0.5 && f.hit_share == 0.5);
    /* Of 20 more requests half took up to 10 ms, the others up to 20. */
    assert_true(f.first_p50_ms > 9.99 && f.first_p50_ms < 10.01);
    assert_true(f.first_p99_ms > 19.79 && f.first_p99_ms < 19.81);
    top_model_figures(&f, NULL, &b, 0);
    assert_true(f.made_per_s < 0 && f.reused_share == 0.5);
    top_model_figures(&f, &a, &b, 1);
    assert_true(f.made_per_s == 0 && f.first_p50_ms < 0 && f.hit_share < 0);
    /* A server that began anew: its counters count from 0. */
    read_pages(&b, 1100, 60, 4);
    b.at_ms = a.at_ms + 1000;
    assert_true(top_made_per_s(&a, &b) == 60);
    top_model_figures(&f, &a, &b, 0);
    assert_true(f.made_per_s == 60 && f.reused_share == 0.5);
}

static void another_program_s_page_is_refused(void **state) {
    static struct top_reading r;
    struct reel_error err;
    (void)state;
    assert_int_equal(top_read_pages(&r, "http://x", "vllm_tokens 3\n", NULL, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "http://x/metrics"));
}

/* Rows never are wider than the window, however narrow, and names do not steer it. */
static void rows_fit_every_window(void **state) {
    static struct top_reading a, b;
    const double made[] = { 1, 2, 3, -1, 5 };
    (void)state;
    read_pages(&a, 1000, 100, 10);
    read_pages(&b, 1050, 300, 30);
    b.at_ms = a.at_ms + 2000;
    for (int columns = 20; columns <= 200; columns++) {
        const struct top_view view = { .url = "http://127.0.0.1:8080",
                                       .now = &b,
                                       .before = &a,
                                       .since = &a,
                                       .made_per_s = made,
                                       .n_made = 5,
                                       .live = true,
                                       .columns = columns,
                                       .rows = 24 };
        struct buffer out = { 0 };
        assert_int_equal(top_view_rows(&out, &view, NULL), REEL_OK);
        int width = 0, rows = 0;
        for (const char *c = out.bytes; *c; c++) {
            assert_true(*c == '\n' || (*c >= 0x20 && *c < 0x7f));
            width = *c == '\n' ? 0 : width + 1;
            rows += *c == '\n';
            assert_true(width <= columns);
        }
        assert_int_equal(rows, 10);
        buffer_release(&out);
    }
}

static void what_does_not_fit_is_counted(void **state) {
    static struct top_reading r;
    (void)state;
    read_pages(&r, 0, 1, 1);
    r.n_models = 40;
    for (int i = 2; i < 40; i++) {
        r.models[i] = r.models[0];
        snprintf(r.models[i].name, sizeof r.models[i].name, "model %d", i);
    }
    const struct top_view view = { .url = "u", .now = &r, .columns = 80, .rows = 24 };
    struct buffer out = { 0 };
    int rows = 0;
    assert_int_equal(top_view_rows(&out, &view, NULL), REEL_OK);
    for (const char *c = out.bytes; *c; c++)
        rows += *c == '\n';
    assert_int_equal(rows, 24);
    assert_non_null(strstr(out.bytes, "and 25 more models"));
    buffer_release(&out);
}

/* ---- the program ----------------------------------------------------------------------------- */

struct fake {
    struct http_stub *stub;
    atomic_int n, wants_key, gone;
};

static struct http_reply answer(void *user, const char *path, const char *authorization,
                                size_t range_from) {
    struct fake *fake = user;
    static _Thread_local char page[4000];
    (void)range_from;
    if (atomic_load(&fake->gone)) return (struct http_reply){ .hang_up = true };
    if (strcmp(path, "/health") == 0) return (struct http_reply){ .body = "{}", .n_body = 2 };
    if (atomic_load(&fake->wants_key) &&
        (!authorization || strcmp(authorization, "Bearer the key") != 0))
        return (struct http_reply){ .code = 401, .body = "" };
    if (strcmp(path, "/v1/models") == 0)
        return (struct http_reply){ .body = MODELS, .n_body = sizeof MODELS - 1 };
    if (strcmp(path, "/metrics") != 0) return (struct http_reply){ .code = 404, .body = "" };
    const int n = atomic_fetch_add(&fake->n, 1) + 1;
    snprintf(page, sizeof page, PAGE, 100 * n, 1000 * n, 10 * n, 5 * n, 2 * n, n, n, 2 * n, 2 * n);
    return (struct http_reply){ .body = page, .n_body = strlen(page) };
}

static struct fake *fake;
static char line[400];

static const char *top(const char *options) {
    snprintf(line, sizeof line, "reel top http://127.0.0.1:%d/v1/ %s", http_stub_port(fake->stub),
             options);
    return line;
}

static int setup(void **state) {
    (void)state;
    fake = calloc(1, sizeof *fake);
    if (!fake) return -1;
    fake->stub = http_stub_open_many(answer, fake);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    http_stub_close(fake->stub);
    free(fake);
    return 0;
}

static void once_is_a_table_or_json(void **state) {
    json_t *json = NULL;
    (void)state;
    struct result r = shell(top("--once --interval 0.1"));
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "reel 1.2.3  http://127.0.0.1:"));
    assert_non_null(strstr(r.out, "2   running, 7 queued, 4 other connections\n"));
    assert_non_null(strstr(r.out, "1.24 GB   resident\n"));
    assert_non_null(strstr(r.out, "412 W   10.0 tokens/J, H100\n"));
    assert_null(strstr(r.out, "q quits"));
    assert_null(strchr(r.out, '\033'));
    done(r);
    r = shell(top("--once --interval 0.1 -o json"));
    assert_int_equal(r.status, 0);
    assert_int_equal(json_read(&json, "top", r.out, strlen(r.out), NULL), REEL_OK);
    const json_t *one = json_array_get(json_object_get(json, "models"), 0);
    const double made = json_number_value(json_object_get(json, "tokens_per_s"));
    const double interval_s = json_number_value(json_object_get(json, "interval_s"));
    assert_true(interval_s > 0.02 && fabs(made * interval_s - 1000) < 40); /* rounded to 1 ms */
    assert_true(json_is_null(json_object_get(json, "window_s")));
    assert_int_equal(json_integer_value(json_object_get(one, "requests_queued")), 7);
    assert_int_equal(json_integer_value(json_object_get(one, "kv_used_bytes")), 250);
    json_decref(json);
    done(r);
}

/* A line for each interval, each an object, until the reader has enough. */
static void json_goes_on(void **state) {
    (void)state;
    struct result r = shell(top("-o json --interval 0.1 | head -n 3"));
    int n = 0;
    for (char *at = r.out, *end; (end = strchr(at, '\n')); at = end + 1, n++) {
        json_t *json = NULL;
        assert_int_equal(json_read(&json, "top", at, (size_t)(end - at), NULL), REEL_OK);
        assert_true(json_number_value(json_object_get(json, "window_s")) > 0.05);
        json_decref(json);
    }
    assert_int_equal(n, 3);
    done(r);
}

static void what_is_wrong_is_said(void **state) {
    (void)state;
    expect("reel top --once http://127.0.0.1:1", 12, "http://127.0.0.1:1/metrics: ");
    expect("reel top --once ftp://here", 2, "http://HOST:PORT");
    expect("reel top", 2, "--once");
    expect(top("--once --api-key-file missing"), 3, "missing");
    atomic_store(&fake->wants_key, true);
    expect(top("--once"), 2, "--api-key-file FILE");
    shell_file("wrong", "no\n", 3);
    expect(top("--once --api-key-file wrong"), 2, "does not know this key");
    shell_file("empty", "\nno\n", 4);
    expect(top("--once --api-key-file empty"), 5, "is no key");
    shell_file("right", "the key\nanother\n", 16);
    expect(top("--once --interval 0.1 --api-key-file right"), 0, "");
}

static void the_screen_follows_the_server(void **state) {
    struct screen s;
    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    screen_open(&s, 24, 80,
                (char *[]){ "sh", "-c", (char *)(uintptr_t)top("--interval 0.1"), NULL });
    screen_see(&s, "q quits");
    screen_see(&s, "one");
    screen_see(&s, "\xe2\x96\x88"); /* a column of the speed */
    assert_true(screen_is_bold(&s, 0, 0));
    screen_resize(&s, 12, 60);
    screen_see(&s, "t\"wo?");
    atomic_store(&fake->gone, true);
    screen_see(&s, "mpty reply");
    atomic_store(&fake->gone, false);
    screen_see_no(&s, "mpty reply");
    screen_type(&s, "xyz\033[A");
    screen_resize(&s, 24, 80); /* still there, and draws */
    screen_see(&s, "q quits");
    assert_false(s.ended);
    screen_type(&s, "q");
    assert_int_equal(screen_close(&s), 0);
}

#define SCREEN_ON  "\033[?1049h"
#define SCREEN_OFF "\033[?25h\033[?1049l"

/* However it ends, the terminal is as it was. */
static void the_terminal_is_given_back(void **state) {
    static const struct {
        const char *keys;
        int signal;
    } ends[] = { { "q", 0 },      { "\x03", 0 },  { "\x04", 0 },
                 { "", SIGTERM }, { "", SIGHUP }, { "", SIGSEGV } };
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (SANITIZED && ends[i].signal == SIGSEGV) continue; /* the sanitizer's own */
        static struct pty t;
        char command[1000];
        snprintf(command, sizeof command,
                 "b=$(stty -g); trap : INT; sh -c 'echo pid $$.; exec %s'; "
                 "[ \"$b\" = \"$(stty -g)\" ] && echo as it was",
                 top("--interval 0.1"));
        pty_start(&t, command);
        pty_see(&t, "pid ");
        pty_see(&t, SCREEN_ON);
        pty_see(&t, "tokens/s");
        pty_type(&t, ends[i].keys);
        if (ends[i].signal)
            assert_int_equal(kill(atoi(strstr(t.seen, "pid ") + 4), ends[i].signal), 0);
        pty_see(&t, SCREEN_OFF);
        pty_see(&t, "as it was");
        (void)pty_finish(&t);
    }
}

int main(void) {
    const struct CMUnitTest parts[] = {
        cmocka_unit_test(samples_are_read_whatever_names_hold),
        cmocka_unit_test(a_label_that_is_too_long_is_cut),
        cmocka_unit_test(two_readings_make_figures),
        cmocka_unit_test(another_program_s_page_is_refused),
        cmocka_unit_test(rows_fit_every_window),
        cmocka_unit_test(what_does_not_fit_is_counted),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(once_is_a_table_or_json, setup, teardown),
        cmocka_unit_test_setup_teardown(json_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(the_screen_follows_the_server, setup, teardown),
        cmocka_unit_test_setup_teardown(the_terminal_is_given_back, setup, teardown),
    };
    const int failed = cmocka_run_group_tests_name("reel top, parts", parts, NULL, NULL);
    if (!BUILT_WITH_CURL) return failed + without_curl();
    return failed + cmocka_run_group_tests_name("reel top", tests, shell_enter, shell_leave);
}
