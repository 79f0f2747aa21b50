/* Bodies of requests of every dialect, through their routes' own handlers up to where a session
 * would be taken: the first byte chooses the route, the rest is the body. The server is ending, so
 * who is let that far is told so; all others get a client's error, as JSON. */
#include "base/memory.h"
#include "cli/demo_model.h"
#include "runtime/model_handle.h"
#include "server/exchange_state.h"
#include "server/handlers.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static enum reel_status open_model(void *user, struct reel_model **model, struct reel_error *err) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    const struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .n_threads = 1, .chat_template = "chatml"
    };
    (void)user;
    enum reel_status status = reel_model_open_memory(model, "demo", files, n, &options, err);
    if (status == REEL_OK)
        (*model)->model.embed.stated = true; /* or /v1/embeddings reads nothing */
    return status;
}

static const struct server_model models[] = { { .name = "demo", .open = open_model } };
static struct server server = {
    .options = { .models = models, .n_models = 1, .sessions = 1, .queue = 1, .context = 256 }
};

static void start(void) {
    if (models_open(&server, NULL) != REEL_OK || server_load(&server, NULL) != REEL_OK) abort();
    models_end(&server);
}

static void check_answer(const struct exchange *x) {
    if (!x->begun || x->streaming) abort();
    json_t *json = json_loadb(x->out.bytes, x->out.size, JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *text = json_string_value(json_object_get(error, "message"));
    if (!json_is_object(json)) abort();
    if (x->code != 200 && !text) abort();
    if (x->code != 200 && x->code / 100 != 4 &&
        (x->code != 500 || strcmp(text, "the server is ending") != 0))
        abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const struct {
        const char *path;
        void (*handle)(struct exchange *x);
    } routes[] = {
        { "/v1/completions", handle_completions },
        { "/v1/messages", handle_messages },
        { "/v1/messages/count_tokens", handle_count_tokens },
        { "/v1/responses", handle_responses },
        { "/v1/embeddings", handle_embeddings },
        { "/v1/rerank", handle_rerank },
        { "/v1/chat/completions", handle_chat },
    };
    if (!server.models) start();
    if (n < 1) return 0;
    const size_t which = data[0] % (sizeof routes / sizeof *routes);
    const char *path = routes[which].path;
    struct exchange *x = exchange_new(&server, NULL);
    if (!x || mem_text(&x->method, "POST", 4, "a method", NULL) != REEL_OK ||
        mem_text(&x->path, path, strlen(path), "a path", NULL) != REEL_OK ||
        buffer_append(&x->body, data + 1, n - 1, NULL) != REEL_OK)
        abort();
    routes[which].handle(x);
    check_answer(x);
    exchange_let_go(x);
    return 0;
}
