/* Bodies of requests, read as the routes do but without a network: the first byte chooses the
 * reader, the rest is the body. What a reader takes is answered by nobody; what it refuses is
 * answered with a client's error, as JSON. */
#include "base/memory.h"
#include "cli/demo_model.h"
#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/exchange_state.h"
#include "server/handlers.h"
#include "server/text_request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct served_model model = { .name = "demo", .context = 256 };
static struct server server = { .models = &model };

static void open_model(void) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    const struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .n_threads = 1, .chat_template = "chatml"
    };
    model.info.size = sizeof model.info;
    if (reel_model_open_memory(&model.model, "demo", files, n, &options, NULL) != REEL_OK ||
        reel_model_get_info(model.model, &model.info, NULL) != REEL_OK)
        abort();
    server.options.n_models = 1;
    atomic_store(&model.state, SERVED_READY);
}

/* As chat_api.c reads; false: it was refused. */
static bool read_chat(struct exchange *x) {
    struct text_request r = { .x = x, .model = &model };
    struct chat_prompt p = { 0 };
    json_t *json = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (!fields_body(x, &json)) return false;
    const bool taken = text_request_read(&r, x, json) && chat_prompt_read(&p, x, json) &&
                       chat_prompt_ids(&p, x, &model, &ids, &n_ids) && text_fits(&r, n_ids);
    if (taken && (r.n < 1 || r.n > TEXT_MOST_CHOICES || r.max_tokens < 0)) abort();
    reel_free(ids);
    chat_prompt_release(&p);
    text_request_release(&r);
    json_decref(json);
    return taken;
}

static void check_answer(const struct exchange *x) {
    if (!x->begun || (x->code != 200 && x->code / 100 != 4)) abort();
    json_t *json = json_loadb(x->out.bytes, x->out.size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(json)) abort();
    if (x->code != 200 && !json_object_get(json, "error")) abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static void (*const handlers[])(struct exchange *) = { handle_tokenize, handle_detokenize,
                                                           handle_apply_template };
    if (!model.model) open_model();
    if (n < 1) return 0;
    struct exchange *x = exchange_new(&server, NULL);
    if (!x || mem_text(&x->method, "POST", 4, "a method", NULL) != REEL_OK ||
        mem_text(&x->path, "/v1/x", 5, "a path", NULL) != REEL_OK ||
        buffer_append(&x->body, data + 1, n - 1, NULL) != REEL_OK)
        abort();
    const int which = data[0] % 4;
    if (which == 3) {
        if (read_chat(x) == x->begun) abort();
        if (x->begun) check_answer(x);
    } else {
        handlers[which](x);
        check_answer(x);
    }
    exchange_let_go(x);
    return 0;
}
