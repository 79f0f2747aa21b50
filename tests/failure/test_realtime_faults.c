/* A live session with memory failing: nothing is lost, and nothing is said to
 * be done that is not. */
#include "reel_measure.h"
#include "server/realtime.h"
#include "support/faults.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char root[40], folder[64], append[20000];
static struct reel_model *model;

/* 0.3 s of noise at 16,000 Hz, as a message. */
static void write_append(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t state = 7;
    size_t n = (size_t)sprintf(append, "{\"type\":\"input_audio_buffer.append\",\"audio\":\"");
    for (int i = 0; i < 4800 * 8 / 3; i++) {
        state = state * 1664525u + 1013904223u;
        append[n++] = digits[state >> 26];
    }
    strcpy(append + n, "\"}");
}

static int enter(void **state) {
    (void)state;
    faults_install();
    strcpy(root, "/tmp/reel-faults-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/model", root);
    struct reel_model_options options = { .size = sizeof options, .device = "cpu", .n_threads = 1 };
    struct reel_error err = { 0 };
    enum reel_status status =
        reel_synthesize(folder, "tests/golden/models/asr-a.json", 1, NULL, NULL, &err);
    if (status == REEL_OK) status = reel_model_open(&model, folder, &options, &err);
    if (status != REEL_OK) print_error("%s\n", err.text);
    write_append();
    return status == REEL_OK ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    char command[100];
    reel_model_close(model);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

struct world {
    int n_completed, n_updated, n_taken;
};

static bool on_send(void *user, const char *json, size_t n) {
    struct world *w = user;
    assert_true(n > 0 && json[0] == '{' && json[n - 1] == '}');
    w->n_completed += strstr(json, "transcription.completed\"") != NULL;
    w->n_updated += strstr(json, "session.updated\"") != NULL;
    return true;
}

static bool on_gone(void *user) {
    (void)user;
    return false;
}

static enum reel_status on_find(void *user, const char **name, const struct reel_model **out,
                                struct reel_transcriber_options *options, struct reel_error *err) {
    (void)user, (void)err;
    *name = "model";
    *out = model;
    *options = (struct reel_transcriber_options){
        .size = sizeof *options, .segment_seconds = 1, .stream_seconds = 0.5, .max_tokens = 3
    };
    return REEL_OK;
}

static enum reel_status on_take(void *user, struct reel_error *err) {
    (void)err;
    ((struct world *)user)->n_taken++;
    return REEL_OK;
}

static void on_give(void *user) { ((struct world *)user)->n_taken--; }

static void on_spent(void *user, const struct reel_transcript *t) { (void)user, (void)t; }

/* Two items, of which both must come. */
static enum reel_status talk(void *context, struct reel_error *err) {
    static const char update[] = "{\"type\":\"session.update\",\"session\":{\"audio\":{\"input\":{"
                                 "\"transcription\":{\"language\":\"en\",\"prompt\":\"names\"},"
                                 "\"turn_detection\":null}},\"reel\":{\"partials\":true}}}";
    static const char commit[] = "{\"type\":\"input_audio_buffer.commit\"}";
    struct world w = { 0 };
    const struct realtime_host host = { .user = &w,
                                        .id = "1",
                                        .most_seconds = 60,
                                        .send = on_send,
                                        .gone = on_gone,
                                        .find = on_find,
                                        .take = on_take,
                                        .give = on_give,
                                        .wanted = on_gone,
                                        .spent = on_spent };
    const char *const messages[] = { update, append, append, commit, append, append, commit };
    struct realtime *r = NULL;
    (void)context;
    enum reel_status status = realtime_open(&r, &host, true, NULL, err);
    if (status != REEL_OK) return status;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (!realtime_message(r, messages[i], strlen(messages[i]))) break;
    realtime_close(r);
    assert_int_equal(w.n_taken, 0);
    assert_true(w.n_completed <= 2);
    if (w.n_completed == 2 && w.n_updated == 1) return REEL_OK;
    return err_set(err, REEL_E_MEMORY, "%d items came", w.n_completed);
}

static void a_session_without_memory_loses_none(void **state) {
    (void)state;
    const struct faults_sweep sweep = {
        .name = "a live session", .run = talk, .may_succeed = true, .most = 150
    };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_without_memory_loses_none),
    };
    return cmocka_run_group_tests_name("live sessions without memory", tests, enter, leave);
}
