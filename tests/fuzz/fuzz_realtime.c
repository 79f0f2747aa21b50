/* A client's messages in /v1/realtime, a line each; the first byte chooses the dialect that the
 * client has said, and whether others wait for its transcriber. Every event is JSON with a type,
 * and a transcriber that was taken is given back. */
#include "server/realtime.h"

#include "cli/demo_model.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct reel_model *model;

struct world {
    int n_taken;
    bool wanted;
};

static void open_model(void) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo-speech", &n);
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = 1 };
    if (reel_model_open_memory(&model, "speech", files, n, &options, NULL) != REEL_OK) abort();
}

static bool on_send(void *user, const char *text, size_t n) {
    json_t *json = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    (void)user;
    if (!json_is_string(json_object_get(json, "type"))) abort();
    json_decref(json);
    return true;
}

static bool on_gone(void *user) {
    (void)user;
    return false;
}

static enum reel_status on_find(void *user, const char **name, const struct reel_model **out,
                                struct reel_transcriber_options *options, struct reel_error *err) {
    (void)user;
    if (**name && strcmp(*name, "speech") != 0)
        return err_set(err, REEL_E_NOT_FOUND, "there is no model '%.100s'", *name);
    *name = "speech";
    *out = model;
    *options = (struct reel_transcriber_options){
        .size = sizeof *options, .segment_seconds = 8, .pause_seconds = 0.45, .stream_seconds = 0.5
    };
    return REEL_OK;
}

static enum reel_status on_take(void *user, struct reel_error *err) {
    struct world *w = user;
    (void)err;
    if (w->n_taken++ != 0) abort();
    return REEL_OK;
}

static void on_give(void *user) {
    struct world *w = user;
    if (w->n_taken-- != 1) abort();
}

static bool on_wanted(void *user) { return ((struct world *)user)->wanted; }

static void on_spent(void *user, const struct reel_transcript *t) {
    (void)user;
    if (!t->text) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct realtime *r = NULL;
    if (!model) open_model();
    if (n < 1) return 0;
    struct world w = { .wanted = data[0] & 2 };
    const struct realtime_host host = { .user = &w,
                                        .id = "1",
                                        .most_seconds = 1,
                                        .quiet_seconds = data[0] & 4 ? 0 : 60,
                                        .send = on_send,
                                        .gone = on_gone,
                                        .find = on_find,
                                        .take = on_take,
                                        .give = on_give,
                                        .wanted = on_wanted,
                                        .spent = on_spent };
    if (realtime_open(&r, &host, data[0] & 1, NULL, NULL) != REEL_OK) abort();
    for (const uint8_t *at = data + 1, *end = data + n, *line; at < end; at = line + 1) {
        line = memchr(at, '\n', (size_t)(end - at));
        if (!line) line = end;
        if (!realtime_message(r, (const char *)at, (size_t)(line - at))) break;
        realtime_rest(r);
        if (w.wanted && realtime_is_idle(r) && w.n_taken) abort();
    }
    realtime_close(r);
    if (w.n_taken) abort();
    return 0;
}
