/* /tokenize, /detokenize, /tokenizer_info and /apply-template, as llama.cpp's server and vLLM have
 * them. */
#include "server/chat_prompt.h"
#include "server/handlers.h"
#include "server/id_lists.h"
#include "server/json_out.h"

#include "server/api_error.h"

#include <string.h>

/* The model that the request's JSON names; answers the request where there is none. */
static struct served_model *model_of(struct exchange *x, const json_t *json) {
    const char *name = NULL;
    if (!field_text(x, json, "model", &name)) return NULL;
    return exchange_need_model(x, name, false);
}

static void reply(struct exchange *x, enum reel_status status, struct buffer *body) {
    if (status == REEL_OK) {
        exchange_reply_buffer(x, 200, "application/json", body);
        return;
    }
    buffer_release(body);
    api_error(x, 503, NULL, NULL, "out of memory");
}

/* ---- /tokenize ---- */

/* Text, or what is not whole characters as a list of bytes. */
static enum reel_status put_piece(struct buffer *out, const struct reel_tokenizer *tok,
                                  int32_t id) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    if (json_out_is_text(bytes, n)) return json_out_text(out, bytes ? bytes : "", n, NULL);
    enum reel_status status = buffer_text(out, "[", NULL);
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = buffer_printf(out, NULL, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    return status == REEL_OK ? buffer_text(out, "]", NULL) : status;
}

struct tokenize {
    bool pieces, strings;
    const struct served_model *model;
    const int32_t *ids;
    size_t n;
};

static enum reel_status put_tokens(struct buffer *out, const struct tokenize *t) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(t->model->model);
    enum reel_status status = buffer_text(out, "\"tokens\":[", NULL);
    for (size_t i = 0; i < t->n && status == REEL_OK; i++) {
        const char *comma = i ? "," : "";
        status = buffer_printf(out, NULL, t->pieces ? "%s{\"id\":%d,\"piece\":" : "%s%d", comma,
                               (int)t->ids[i]);
        if (!t->pieces) continue;
        if (status == REEL_OK) status = put_piece(out, tok, t->ids[i]);
        if (status == REEL_OK) status = buffer_text(out, "}", NULL);
    }
    return status == REEL_OK ? buffer_text(out, "]", NULL) : status;
}

static enum reel_status put_strings(struct buffer *out, const struct tokenize *t) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(t->model->model);
    enum reel_status status = buffer_text(out, ",\"token_strs\":[", NULL);
    for (size_t i = 0; i < t->n && status == REEL_OK; i++) {
        size_t n = 0;
        const char *bytes = reel_token_bytes(tok, t->ids[i], &n);
        if (i) status = buffer_text(out, ",", NULL);
        if (status == REEL_OK) status = json_out_text(out, bytes ? bytes : "", n, NULL);
    }
    return status == REEL_OK ? buffer_text(out, "]", NULL) : status;
}

static void reply_tokens(struct exchange *x, const struct tokenize *t) {
    struct buffer out = { 0 };
    enum reel_status status =
        buffer_printf(&out, NULL, "{\"count\":%zu,\"max_model_len\":%d,", t->n, t->model->context);
    if (status == REEL_OK) status = put_tokens(&out, t);
    if (status == REEL_OK && t->strings) status = put_strings(&out, t);
    if (status == REEL_OK) status = buffer_text(&out, "}", NULL);
    reply(x, status, &out);
}

static void tokenize_chat(struct exchange *x, const json_t *json, struct tokenize *t) {
    struct chat_prompt prompt = { 0 };
    int32_t *ids = NULL;
    if (chat_prompt_read(&prompt, x, json) && chat_prompt_ids(&prompt, x, t->model, &ids, &t->n)) {
        t->ids = ids;
        reply_tokens(x, t);
    }
    reel_free(ids);
    chat_prompt_release(&prompt);
}

/* llama.cpp's "content" is the text alone unless add_special says otherwise; vLLM's "prompt" gets
 * what the model puts around a text, unless add_special_tokens does. */
static void tokenize_text(struct exchange *x, const json_t *json, struct tokenize *t) {
    struct id_lists lists = { 0 };
    const bool is_content = json_object_get(json, "content") != NULL;
    const char *key = is_content ? "content" : "prompt", *text = NULL;
    bool special = !is_content, control = true;
    if (!field_text(x, json, key, &text) || !field_bool(x, json, "add_special", &special) ||
        !field_bool(x, json, "add_special_tokens", &special) ||
        !field_bool(x, json, "parse_special", &control))
        return;
    if (!text) {
        field_refuse(x, key, "is missing; allowed are 'content', 'prompt' and 'messages'");
        return;
    }
    if (id_lists_add_text(&lists, x, key, text, strlen(text), t->model,
                          (control ? REEL_ENCODE_CONTROL : 0u) |
                              (special ? REEL_ENCODE_SPECIAL : 0u))) {
        t->ids = lists.ids;
        t->n = lists.n_ids;
        reply_tokens(x, t);
    }
    id_lists_release(&lists);
}

void handle_tokenize(struct exchange *x) {
    struct tokenize t = { 0 };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    t.model = model_of(x, json);
    if (t.model && field_bool(x, json, "with_pieces", &t.pieces) &&
        field_bool(x, json, "return_token_strs", &t.strings)) {
        if (json_object_get(json, "messages"))
            tokenize_chat(x, json, &t);
        else
            tokenize_text(x, json, &t);
    }
    json_decref(json);
}

/* ---- /detokenize ---- */

static void detokenize(struct exchange *x, const struct served_model *m, const struct id_lists *l) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(m->model);
    struct buffer text = { 0 }, out = { 0 };
    enum reel_status status = buffer_text(&text, "", NULL);
    for (size_t i = 0; i < l->n_ids && status == REEL_OK; i++) {
        size_t n = 0;
        const char *bytes = reel_token_bytes(tok, l->ids[i], &n);
        if (bytes) status = buffer_append(&text, bytes, n, NULL);
    }
    if (status == REEL_OK) status = buffer_text(&out, "{\"content\":", NULL);
    if (status == REEL_OK) status = json_out_text(&out, text.bytes, text.size, NULL);
    if (status == REEL_OK) status = buffer_text(&out, ",\"prompt\":", NULL);
    if (status == REEL_OK) status = json_out_text(&out, text.bytes, text.size, NULL);
    if (status == REEL_OK) status = buffer_text(&out, "}", NULL);
    buffer_release(&text);
    reply(x, status, &out);
}

void handle_detokenize(struct exchange *x) {
    struct id_lists lists = { 0 };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    const struct served_model *m = model_of(x, json);
    const json_t *tokens = json_object_get(json, "tokens");
    if (m && (!json_is_array(tokens) || json_is_string(json_array_get(tokens, 0)) ||
              json_is_array(json_array_get(tokens, 0)))) {
        field_refuse(x, "tokens", "must be a list of token ids");
    } else if (m && json_array_size(tokens) == 0) {
        detokenize(x, m, &lists);
    } else if (m && id_lists_read(&lists, x, json, "tokens", m, 0)) {
        detokenize(x, m, &lists);
    }
    id_lists_release(&lists);
    json_decref(json);
}

/* ---- /tokenizer_info ---- */

/* The control token that stands before every text; -1: none does. */
static int32_t first_token(const struct reel_tokenizer *tok) {
    int32_t ids[32];
    size_t n = 0;
    enum reel_status status = reel_encode(tok, "a", 1, REEL_ENCODE_SPECIAL, ids, 32, &n, NULL);
    return status == REEL_OK && n && reel_token_is_control(tok, ids[0]) ? ids[0] : -1;
}

static enum reel_status put_token(struct buffer *out, const char *key,
                                  const struct reel_tokenizer *tok, int32_t id) {
    size_t n = 0;
    const char *bytes = id >= 0 ? reel_token_bytes(tok, id, &n) : NULL;
    enum reel_status status = buffer_printf(out, NULL, ",\"%s\":", key);
    return status == REEL_OK ? json_out_text(out, bytes, n, NULL) : status;
}

/* What lm-evaluation-harness asks vLLM, to tokenize by the server: the end-of-text token is the
 * first of those that end an answer. */
void handle_tokenizer_info(struct exchange *x) {
    const struct served_model *m = exchange_need_model(x, exchange_query(x, "model"), false);
    struct buffer out = { 0 };
    if (!m) return;
    const struct reel_tokenizer *tok = reel_model_tokenizer(m->model);
    enum reel_status status = buffer_text(&out, "{\"model\":", NULL);
    if (status == REEL_OK) status = json_out_string(&out, m->name, NULL);
    if (status == REEL_OK)
        status = put_token(&out, "eos_token", tok, m->info.n_stop_ids ? m->info.stop_ids[0] : -1);
    if (status == REEL_OK) status = put_token(&out, "bos_token", tok, first_token(tok));
    if (status == REEL_OK)
        status = buffer_printf(&out, NULL, ",\"vocab_size\":%d,\"model_max_length\":%d}",
                               reel_tokenizer_size(tok), m->context);
    reply(x, status, &out);
}

/* ---- /apply-template ---- */

static void apply_template(struct exchange *x, const struct served_model *m,
                           const struct chat_prompt *p) {
    struct buffer out = { 0 };
    struct reel_error err = { 0 };
    char *text = NULL;
    size_t n = 0;
    enum reel_status status =
        reel_chat_text(m->model, p->messages, p->n, &p->options, &text, &n, &err);
    if (status != REEL_OK) {
        api_error_from(x, &err);
        return;
    }
    status = buffer_text(&out, "{\"prompt\":", NULL);
    if (status == REEL_OK) status = json_out_text(&out, text, n, NULL);
    if (status == REEL_OK) status = buffer_text(&out, "}", NULL);
    reel_free(text);
    reply(x, status, &out);
}

void handle_apply_template(struct exchange *x) {
    struct chat_prompt prompt = { 0 };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    const struct served_model *m = model_of(x, json);
    if (m && chat_prompt_read(&prompt, x, json)) apply_template(x, m, &prompt);
    chat_prompt_release(&prompt);
    json_decref(json);
}
