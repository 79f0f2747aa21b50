#include "cli/token_json.h"

json_t *token_object(const struct reel_tokenizer *tok, int32_t id) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    json_t *text = bytes ? json_stringn(bytes, n) : json_null();
    if (text) return json_pack("{s:i, s:o}", "id", (int)id, "text", text);
    json_t *list = json_array(); /* a part of a character */
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_integer((unsigned char)bytes[i])) != 0) break;
    if (json_array_size(list) == n) return json_pack("{s:i, s:o}", "id", (int)id, "bytes", list);
    json_decref(list);
    return NULL;
}

/* JSON has no infinity: an id that cannot come has null. */
static json_t *logprob_value(float logprob) {
    json_t *value = json_real((double)logprob);
    return value ? value : json_null();
}

static json_t *with_logprob(const struct reel_tokenizer *tok, int32_t id, float logprob) {
    json_t *object = token_object(tok, id);
    if (object && json_object_set_new(object, "logprob", logprob_value(logprob)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *token_with_logprobs(const struct reel_tokenizer *tok, const struct reel_token *token) {
    json_t *object = with_logprob(tok, token->id, token->logprob);
    if (!object || token->n_top == 0) return object;
    json_t *top = json_array();
    int n = 0;
    while (top && n < token->n_top &&
           json_array_append_new(top, with_logprob(tok, token->top[n].id, token->top[n].logprob)) ==
               0)
        n++;
    if (n == token->n_top && json_object_set(object, "top", top) == 0) {
        json_decref(top);
        return object;
    }
    json_decref(top);
    json_decref(object);
    return NULL;
}
