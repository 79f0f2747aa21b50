/* /metrics and the access log: what an operator sees. */
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include <ctype.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define NAME "a \"model\"\\of\nmine"

static const char chat_body[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}],\"temperature\":0,"
    "\"ignore_eos\":true,\"max_tokens\":5}";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer log_lines;

static void on_log(void *user, enum server_log_kind kind, const char *line) {
    (void)user;
    if (kind != SERVER_LOG_ACCESS) return;
    pthread_mutex_lock(&lock);
    (void)buffer_printf(&log_lines, NULL, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

static int ask(const struct served *s, const char *method, const char *path, const char *body,
               struct buffer *out) {
    struct http_answer answer;
    http_ask(&answer, s->port,
             &(struct http_request){ .method = method, .path = path, .body = body });
    const int code = answer.code;
    if (out) {
        *out = answer.body;
        answer.body = (struct buffer){ 0 };
    }
    http_answer_release(&answer);
    return code;
}

/* The number of the line that begins so; -1: there is none. */
static double value_of(const struct buffer *page, const char *begin) {
    const size_t n = strlen(begin);
    for (const char *at = page->bytes; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : "")
        if (strncmp(at, begin, n) == 0 && at[n] == ' ') return atof(at + n);
    return -1;
}

/* A request is counted when its answer has gone out, so maybe a moment after it was read. */
static void read_until(const struct served *s, const char *line, double number,
                       struct buffer *page) {
    for (int i = 0; i < 200; i++) {
        buffer_release(page);
        assert_int_equal(ask(s, NULL, "/metrics", NULL, page), 200);
        if (value_of(page, line) >= number && value_of(page, "reel_requests_in_flight") == 1)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    fail_msg("%s is not %g:\n%s", line, number, page->bytes);
}

#define OF_MODEL "{model=\"a \\\"model\\\"\\\\of\\nmine\"}"

static void counters_follow_requests(void **state) {
    struct served *s = *state;
    struct buffer before = { 0 }, after = { 0 };
    assert_int_equal(ask(s, NULL, "/metrics", NULL, &before), 200);
    assert_true(value_of(&before, "reel_generated_tokens_total" OF_MODEL) == -1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(s, NULL, "/v1/chat/completions", chat_body, NULL), 200);
    assert_int_equal(ask(s, NULL, "/v1/chat/completions", "{}", NULL), 400);
    assert_int_equal(ask(s, NULL, "/nowhere", NULL, NULL), 404);
    read_until(s, "reel_requests_total{route=\"/v1/chat/completions\",code=\"200\"}", 3, &after);
    assert_true(
        value_of(&after, "reel_requests_total{route=\"/v1/chat/completions\",code=\"200\"}") == 3);
    assert_true(
        value_of(&after, "reel_requests_total{route=\"/v1/chat/completions\",code=\"400\"}") == 1);
    assert_true(value_of(&after, "reel_requests_total{route=\"unknown\",code=\"404\"}") == 1);
    assert_true(value_of(&after, "reel_generated_tokens_total" OF_MODEL) == 15);
    assert_true(value_of(&after, "reel_tokens_made_total" OF_MODEL) == 15);
    assert_true(value_of(&after, "reel_prompt_tokens_total" OF_MODEL) > 15);
    assert_true(value_of(&after, "reel_prefix_hits_total" OF_MODEL) == 2);
    assert_true(value_of(&after, "reel_time_to_first_token_seconds_count" OF_MODEL) == 3);
    assert_true(value_of(&after, "reel_time_per_output_token_seconds_count" OF_MODEL) == 3);
    assert_true(value_of(&after, "reel_queue_seconds_count" OF_MODEL) == 3);
    assert_true(value_of(&after, "reel_requests_queued" OF_MODEL) == 0);
    assert_true(value_of(&after, "reel_sessions_busy" OF_MODEL) == 0);
    assert_true(value_of(&after, "reel_sessions" OF_MODEL) == 4);
    assert_true(value_of(&after, "reel_model_ready" OF_MODEL) == 1);
    assert_true(value_of(&after, "reel_requests_in_flight") == 1); /* this one */
    const double resident = value_of(&after, "reel_resident_bytes");
    assert_true(resident > 1e6 && resident < 64e9);
    const double used = value_of(&after, "reel_kv_used_bytes" OF_MODEL);
    const double total = value_of(&after, "reel_kv_total_bytes" OF_MODEL);
    const double share = value_of(&after, "reel_kv_utilisation" OF_MODEL);
    assert_true(used > 0 && used < total);
    assert_true(share > used / total * 0.999 && share < used / total * 1.001);
    buffer_release(&before);
    buffer_release(&after);
}

static bool is_name(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    return n > 5 && strncmp(text, "reel_", 5) == 0;
}

/* Past the closing brace of labels; NULL: they are not well formed. */
static const char *after_labels(const char *at) {
    bool inside = false;
    for (at++; *at && *at != '\n'; at++) {
        if (inside && *at == '\\') {
            if (!strchr("\\\"n", *++at)) return NULL;
        } else if (*at == '"') {
            inside = !inside;
        } else if (!inside && *at == '}') {
            return at + 1;
        }
    }
    return NULL;
}

static void check_line(const char *line, const char *whole) {
    char *end = NULL;
    if (*line == '#') {
        assert_true(strncmp(line, "# HELP reel_", 12) == 0 ||
                    strncmp(line, "# TYPE reel_", 12) == 0);
        return;
    }
    const size_t n = strcspn(line, "{ ");
    if (!is_name(line, n)) fail_msg("no name: %.80s", line);
    const char *at = line[n] == '{' ? after_labels(line + n) : line + n;
    if (!at || *at != ' ') fail_msg("no labels: %.80s", line);
    (void)strtod(at + 1, &end);
    if (end == at + 1 || *end != '\n') fail_msg("no number: %.80s", line);
    /* its type was said before */
    char type[100];
    snprintf(type, sizeof type, "# TYPE %.*s", (int)n, line);
    for (const char *tail = "_bucket\0_sum\0_count\0"; *tail; tail += strlen(tail) + 1) {
        const size_t t = strlen(tail), all = strlen(type);
        if (all > t && strcmp(type + all - t, tail) == 0) type[all - t] = '\0';
    }
    const char *said = strstr(whole, type);
    if (!said || said > line) fail_msg("%s is not said before %.60s", type, line);
}

static void every_line_is_prometheus_text(void **state) {
    struct served *s = *state;
    struct buffer page = { 0 };
    double last = 0;
    assert_int_equal(ask(s, NULL, "/v1/chat/completions", chat_body, NULL), 200);
    assert_int_equal(ask(s, NULL, "/metrics", NULL, &page), 200);
    for (const char *at = page.bytes; *at; at = strchr(at, '\n') + 1) {
        check_line(at, page.bytes);
        if (!strstr(at, "_bucket{") || strstr(at, "_bucket{") > strchr(at, '\n')) {
            last = 0;
            continue;
        }
        const double n = atof(strstr(at, "} ") + 2);
        assert_true(n >= last); /* buckets hold those before them */
        last = n;
    }
    buffer_release(&page);
}

static void the_access_log_is_json_whatever_a_request_holds(void **state) {
    struct served *s = *state;
    assert_int_equal(ask(s, NULL, "/v1/chat/completions?secret=1", chat_body, NULL), 200);
    (void)ask(s, "GE\"T", "/a\"b\\c%0a%22", NULL, NULL);
    (void)ask(s, "G\x1b[31mT", "/\x1b[2J", NULL, NULL);
    pthread_mutex_lock(&lock);
    int n = 0, named = 0;
    for (char *line = strtok(log_lines.bytes, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *json = json_loads(line, 0, NULL);
        if (!json) fail_msg("no JSON: %s", line);
        const char *model = json_string_value(json_object_get(json, "model"));
        named += strcmp(model, NAME) == 0;
        for (const char *c = line; *c; c++)
            assert_true((unsigned char)*c >= 0x20);
        assert_null(strstr(line, "secret"));
        assert_null(strstr(line, "Once"));
        json_decref(json);
    }
    assert_true(n >= 3);
    assert_true(named >= 1);
    buffer_release(&log_lines);
    pthread_mutex_unlock(&lock);
}

static int open_all(void **state) {
    static struct served s = { .options = { .log = on_log, .log_json = true, .context = 256 },
                               .sources = { { .name = NAME, .chat_template = "chatml" } } };
    *state = &s;
    return served_open(&s) ? 0 : -1;
}
static int close_all(void **state) {
    served_close(*state);
    buffer_release(&log_lines);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_follow_requests),
        cmocka_unit_test(every_line_is_prometheus_text),
        cmocka_unit_test(the_access_log_is_json_whatever_a_request_holds),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
