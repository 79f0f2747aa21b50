/* /v1/realtime: a session's socket. One thread reads the client's messages, hears, and sends; while
 * it hears, what comes waits in the socket, and the client is slowed down by that. */
#include "server/realtime.h"

#include "server/handlers.h"
#include "server/server_state.h"
#include "server/speech.h"
#include "server/websocket.h"

#include "server/api_error.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>

enum {
    LOOK_MS = 500,   /* how often a quiet session looks whether the server ends */
    CLOSE_MS = 2000, /* given to a client for its close frame */
};
#define LOOK_GONE_MS 5.0 /* how often long work looks for the client */

#define STEP_FAST 0.5 /* seconds of audio from step to step, where answers are cheap */
#define STEP_SLOW 2.0
#define SMALL     100000000 /* parameters that a CPU is fast enough for */

struct call {
    struct exchange *x;
    struct server *server;
    struct websocket *ws;
    struct served_model *model; /* found last */
    struct served_model *leased;
    struct session_lease lease;
    double looked_ms;
    bool gone, said;
};

static bool send_event(void *user, const char *json, size_t n) {
    struct call *c = user;
    if (!websocket_send(c->ws, json, n)) c->gone = true;
    return !c->gone;
}

static bool is_ending(const struct call *c) {
    return atomic_load(&c->server->ending) || (c->model && session_pool_is_over(c->model));
}

static bool is_gone(void *user) {
    struct call *c = user;
    const double now = clock_ms();
    if (now - c->looked_ms < LOOK_GONE_MS) return c->gone;
    c->looked_ms = now;
    c->gone = c->gone || is_ending(c) || websocket_is_gone(c->ws);
    return c->gone;
}

static enum reel_status find(void *user, const char **name, const struct reel_model **model,
                             struct reel_transcriber_options *options, struct reel_error *err) {
    struct call *c = user;
    struct served_model *m = server_find_model(c->server, *name, true);
    if (!m)
        return err_set(err, REEL_E_NOT_FOUND,
                       (*name)[0] ? "there is no model '%.100s'" : "name a model%.0s", *name);
    if (atomic_load(&m->state) != SERVED_READY)
        return err_set(err, REEL_E_STATE, "the model %s is not ready", m->name);
    if (!m->hears) return err_set(err, REEL_E_ARGUMENT, "%s is a text model", m->name);
    const bool fast = strcmp(m->info.backend, "cpu") != 0 || m->info.n_parameters < SMALL;
    speech_options(options, m);
    options->stream_seconds = fast ? STEP_FAST : STEP_SLOW;
    *name = m->name;
    *model = m->model;
    c->model = m;
    exchange_figures(c->x)->model = m->name;
    return REEL_OK;
}

/* A client that waits for its turn has its pings answered. */
static bool look_after(void *user) { return !is_gone(user); }

static enum reel_status take(void *user, struct reel_error *err) {
    struct call *c = user;
    enum reel_status status =
        session_lease_take_looking(&c->lease, c->model, c->x, look_after, c, err);
    if (status == REEL_OK) c->leased = c->model;
    return status;
}

static void give(void *user) {
    struct call *c = user;
    session_lease_give(&c->lease, c->leased, c->x);
    c->leased = NULL;
}

static bool wanted(void *user) {
    const struct call *c = user;
    struct pool_figures figures;
    session_pool_figures(c->leased, &figures);
    return figures.n_waiting > 0;
}

static void spent(void *user, const struct reel_transcript *transcript) {
    const struct call *c = user;
    speech_note_figures(c->x, transcript);
}

static void talk(struct call *c, struct realtime *r) {
    const char *text;
    size_t n;
    for (;;) {
        const enum websocket_event event = websocket_receive(c->ws, LOOK_MS, &text, &n);
        const bool busy = !realtime_is_idle(r);
        if (event == WEBSOCKET_GONE) return;
        if (event == WEBSOCKET_TEXT && !realtime_message(r, text, n)) break;
        realtime_rest(r);
        /* A server that drains lets an utterance come to its end, also one whose first message is
         * on its way. */
        const bool done = realtime_is_idle(r) && (busy || event == WEBSOCKET_NOTHING);
        if (is_ending(c) || (done && atomic_load(&c->server->draining))) break;
    }
    const bool ends = is_ending(c) || atomic_load(&c->server->draining);
    websocket_finish(c->ws, ends ? WEBSOCKET_LEAVING : WEBSOCKET_TRY_LATER,
                     ends ? "the server ends" : "", CLOSE_MS);
}

static void serve(struct call *c, const struct exchange_socket *socket, bool openai,
                  const char *model) {
    struct reel_error err = { 0 };
    struct realtime *r = NULL;
    const struct realtime_host host = {
        .user = c,
        .id = exchange_id(c->x),
        .most_seconds = c->server->options.max_audio_seconds,
        .quiet_seconds = c->server->options.timeout_s,
        .send = send_event,
        .gone = is_gone,
        .find = find,
        .take = take,
        .give = give,
        .wanted = wanted,
        .spent = spent,
    };
    if (websocket_open(&c->ws, socket->fd, socket->extra, socket->n_extra, &err) != REEL_OK) return;
    if (realtime_open(&r, &host, openai, model, &err) == REEL_OK)
        talk(c, r);
    else
        websocket_finish(c->ws, WEBSOCKET_SERVER_FAULT, "", CLOSE_MS);
    realtime_close(r);
    websocket_close(c->ws);
}

static void upgrade_and_serve(struct exchange *x, bool openai, const char *model) {
    struct reel_error err = { 0 };
    struct exchange_socket socket = { .fd = -1 };
    struct call c = { .x = x, .server = exchange_server(x) };
    if (exchange_upgrade(x, &socket, &err) == REEL_OK) {
        serve(&c, &socket, openai, model);
        exchange_socket_close(x);
    } else if (!exchange_begun(x)) {
        api_error_from(x, &err);
    }
}

void handle_realtime(struct exchange *x) {
    const char *intent = exchange_query(x, "intent"), *model = exchange_query(x, "model");
    atomic_int *n_live = &exchange_server(x)->n_live;
    if (intent && strcmp(intent, "transcription") != 0) {
        api_error(x, 400, "intent", NULL, "intent is \"%.60s\"; allowed is transcription", intent);
        return;
    }
    if (model && model[0] && !exchange_need_model(x, model, true)) return;
    if (atomic_fetch_add(n_live, 1) < SERVER_MOST_LIVE)
        upgrade_and_serve(x, intent != NULL, model);
    else
        api_error(x, 503, NULL, "overloaded", "%d live sessions are open already",
                  SERVER_MOST_LIVE);
    atomic_fetch_sub(n_live, 1);
}
