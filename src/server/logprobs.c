#include "server/logprobs.h"

#include "server/json_out.h"

enum reel_status logprobs_number(struct buffer *out, float logprob, struct reel_error *err) {
    return buffer_printf(out, err, "%.6g", logprob > -9999 ? (double)logprob : -9999.0);
}

/* "token", "logprob" and "bytes" of one id; the object stays open. */
static enum reel_status put_token(struct buffer *out, const struct reel_tokenizer *tok, int32_t id,
                                  float logprob, struct reel_error *err) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    enum reel_status status = buffer_text(out, "{\"token\":", err);
    if (status == REEL_OK) status = json_out_text(out, bytes ? bytes : "", n, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"logprob\":", err);
    if (status == REEL_OK) status = logprobs_number(out, logprob, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"bytes\":[", err);
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = buffer_printf(out, err, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    return status == REEL_OK ? buffer_text(out, "]", err) : status;
}

enum reel_status logprobs_chat_token(struct buffer *out, const struct reel_tokenizer *tok,
                                     const struct reel_token *token, struct reel_error *err) {
    enum reel_status status = out->size ? buffer_text(out, ",", err) : REEL_OK;
    if (status == REEL_OK) status = put_token(out, tok, token->id, token->logprob, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"top_logprobs\":[", err);
    for (int i = 0; i < token->n_top && status == REEL_OK; i++) {
        if (i) status = buffer_text(out, ",", err);
        if (status == REEL_OK)
            status = put_token(out, tok, token->top[i].id, token->top[i].logprob, err);
        if (status == REEL_OK) status = buffer_text(out, "}", err);
    }
    return status == REEL_OK ? buffer_text(out, "]}", err) : status;
}
