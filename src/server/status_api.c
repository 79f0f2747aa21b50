/* /health, /ready, /v1/models. */
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/server_state.h"

#include "server/api_error.h"

#include <inttypes.h>
#include <string.h>

static int count_ready(struct server *server, int *n) {
    const struct served_model *models = server_models(server, n);
    int ready = 0;
    for (int i = 0; i < *n; i++)
        ready += atomic_load(&models[i].state) == SERVED_READY;
    return ready;
}

void handle_ready(struct exchange *x) {
    struct server *server = exchange_server(x);
    int n = 0;
    const int ready = count_ready(server, &n);
    if (ready == n && !atomic_load(&server->draining)) {
        static const char body[] = "{\"status\":\"ready\"}";
        exchange_reply(x, 200, "application/json", body, sizeof body - 1);
        return;
    }
    api_error(x, 503, NULL, NULL, "%d of %d models are ready%s", ready, n,
              atomic_load(&server->draining) ? "; the server is shutting down" : "");
}

/* As llama.cpp's server: 503 until all is loaded, then 200. Anybody may ask: it says no more. With
 * ?ready it answers what /ready does, for balancers and probes that have no key. */
void handle_health(struct exchange *x) {
    if (exchange_query(x, "ready")) {
        handle_ready(x);
        return;
    }
    static const char body[] = "{\"status\":\"ok\"}";
    int n = 0;
    if (count_ready(exchange_server(x), &n) == n)
        exchange_reply(x, 200, "application/json", body, sizeof body - 1);
    else
        api_error(x, 503, NULL, "loading", "the server is loading");
}

static const char *state_name(int state) {
    if (state == SERVED_READY) return "ready";
    return state == SERVED_LOADING ? "loading" : "failed";
}

static enum reel_status model_object(struct buffer *out, const struct served_model *m) {
    int state = atomic_load(&m->state);
    enum reel_status status = buffer_text(out, "{\"id\":", NULL);
    if (status == REEL_OK) status = json_out_string(out, m->name, NULL);
    if (status == REEL_OK)
        status = buffer_printf(out, NULL,
                               ",\"object\":\"model\",\"created\":%" PRId64
                               ",\"owned_by\":\"reel\",\"status\":\"%s\"",
                               state == SERVED_READY ? m->created : 0, state_name(state));
    if (status == REEL_OK && state == SERVED_READY)
        status = buffer_printf(
            out, NULL,
            ",\"max_model_len\":%d,\"capabilities\":[%s],\"family\":\"%s\",\"device\":\"%s\"",
            m->context,
            m->hears                ? "\"transcription\",\"realtime\""
            : m->embeds             ? "\"completion\",\"embedding\""
            : m->info.chat_template ? "\"completion\",\"chat\""
                                    : "\"completion\"",
            m->info.family, m->info.backend);
    return status == REEL_OK ? buffer_text(out, "}", NULL) : status;
}

void handle_models(struct exchange *x) {
    int n = 0;
    struct served_model *models = server_models(exchange_server(x), &n);
    struct buffer body = { 0 };
    enum reel_status status = buffer_text(&body, "{\"object\":\"list\",\"data\":[", NULL);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        if (i) status = buffer_text(&body, ",", NULL);
        if (status == REEL_OK) status = model_object(&body, &models[i]);
    }
    if (status == REEL_OK) status = buffer_text(&body, "]}", NULL);
    exchange_reply_buffer(x, status == REEL_OK ? 200 : 500, "application/json", &body);
}

void handle_model(struct exchange *x) {
    const char *name = strstr(exchange_path(x), "/models/") + strlen("/models/");
    struct served_model *m = server_find_model(exchange_server(x), name, false);
    struct buffer body = { 0 };
    if (!m) {
        api_error(x, 404, "model", "model_not_found", "there is no model '%.100s'", name);
        return;
    }
    enum reel_status status = model_object(&body, m);
    exchange_reply_buffer(x, status == REEL_OK ? 200 : 500, "application/json", &body);
}
