/* A server with a draft model: it guesses for the models that have its vocabulary, and changes no
 * text. */
#include "tests/support/asking.h"
#include "tests/support/fixtures.h"
#include "tests/support/golden.h"
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct golden_model stranger; /* a model with another tokenizer */
static char embedder[1024];          /* the folder of a model that is made for embedding */
static struct buffer log_lines;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(void *user, enum server_log_kind kind, const char *line) {
    (void)user;
    if (kind == SERVER_LOG_ACCESS) return;
    pthread_mutex_lock(&lock);
    (void)buffer_printf(&log_lines, NULL, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

static void open_server(struct served *s, bool drafts, enum reel_speculation speculation) {
    *s = (struct served){
        .options = { .speculation = speculation, .sessions = 2, .context = 200, .log = on_log },
        .sources = { { .name = "demo", .folder = "models/demo" },
                     { .name = "stranger", .folder = stranger.folder },
                     { .name = "embedder", .folder = embedder } }
    };
    if (drafts) s->draft = (struct served_source){ .name = "hybrid", .folder = "models/hybrid" };
    buffer_release(&log_lines);
    if (!served_open(s)) fail_msg("%s", s->err.text);
}

static json_t *complete(const struct served *s, const char *model) {
    char body[300];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"It is a truth\",\"max_tokens\":40,\"temperature\":0.7,"
             "\"seed\":5,\"ignore_eos\":true}",
             model);
    return ask(s->port, "/v1/completions", body, 200);
}

static const char *text_of(const json_t *answer) {
    return field_of(json_array_get(json_object_get(answer, "choices"), 0), "text");
}

static double kv_total(const struct served *s) {
    struct http_answer page;
    assert_true(http_ask(&page, s->port, &(struct http_request){ .path = "/metrics" }));
    const char *at = strstr(page.body.bytes, "reel_kv_total_bytes{model=\"demo\"} ");
    assert_non_null(at);
    const double bytes = atof(strchr(at, '}') + 1);
    http_answer_release(&page);
    return bytes;
}

static void answers_are_those_without(void **state) {
    (void)state;
    struct served with, without;
    open_server(&without, false, REEL_SPECULATION_OFF);
    json_t *plain[] = { complete(&without, "demo"), complete(&without, "stranger") };
    const double bytes = kv_total(&without);
    served_close(&without);
    open_server(&with, true, REEL_SPECULATION_DRAFT);
    assert_non_null(strstr(log_lines.bytes, "hybrid guesses for demo: "));
    assert_non_null(strstr(log_lines.bytes, "stranger: hybrid cannot guess for "));
    assert_non_null(strstr(log_lines.bytes, "; it goes without a draft model"));
    assert_null(strstr(log_lines.bytes, "embedder: "));
    assert_null(strstr(log_lines.bytes, "guesses for embedder"));
    json_decref(complete(&with, "embedder")); /* nothing guesses for it, and that is no error */
    json_t *drafted[] = { complete(&with, "demo"), complete(&with, "stranger") };
    assert_true(kv_total(&with) > bytes);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(text_of(drafted[i]), text_of(plain[i]));
        const json_t *timings = json_object_get(drafted[i], "timings");
        if (i == 0) assert_true(number_of(timings, "draft_n") > 0);
        json_decref(plain[i]);
        json_decref(drafted[i]);
    }
    served_close(&with);
}

static void a_draft_model_that_is_not_there_ends_the_loading(void **state) {
    (void)state;
    struct served s = { .sources = { { .name = "demo", .folder = "models/demo" } },
                        .draft = { .name = "none", .folder = "models/none" } };
    assert_false(served_open(&s));
    assert_non_null(strstr(s.err.text, "the draft model: "));
    served_close(&s);
}

static int open_all(void **state) {
    (void)state;
    static const char *const files[] = { "config.json",
                                         "model.safetensors",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "modules.json",
                                         "1_Pooling/config.json",
                                         "config_sentence_transformers.json" };
    golden_model_open(&stranger, "q3-a");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[256];
        snprintf(name, sizeof name, "embed/qwen3-embedding/%s", files[i]);
        const char *path = fixture_path(name);
        if (!path) return -1;
        if (i == 0)
            snprintf(embedder, sizeof embedder, "%.*s", (int)(strrchr(path, '/') - path), path);
    }
    return 0;
}
static int close_all(void **state) {
    (void)state;
    golden_model_close(&stranger);
    buffer_release(&log_lines);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_without),
        cmocka_unit_test(a_draft_model_that_is_not_there_ends_the_loading),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
