#include "server/api_error.h"

#include "server/json_out.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *type_of(int code) {
    switch (code) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return code < 500 ? "invalid_request_error" : "api_error";
    }
}

/* OpenAI's clients know fewer. */
static const char *openai_type(int code) {
    if (code == 401 || code == 403 || code == 404 || code == 413) return "invalid_request_error";
    if (code == 503) return "server_error";
    return code >= 500 ? "server_error" : type_of(code);
}

static const char *openai_code(int code, const char *given) {
    if (given) return given;
    if (code == 401) return "invalid_api_key";
    return code == 404 ? "not_found" : NULL;
}

enum reel_status api_error_json(struct buffer *out, int http_code, const char *param,
                                const char *code, const char *message, struct reel_error *err) {
    enum reel_status status = buffer_text(out, "{\"message\":", err);
    if (status == REEL_OK) status = json_out_string(out, message, err);
    if (status == REEL_OK)
        status = buffer_printf(out, err, ",\"type\":\"%s\",\"param\":", openai_type(http_code));
    if (status == REEL_OK) status = json_out_string(out, param, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"code\":", err);
    if (status == REEL_OK) status = json_out_string(out, openai_code(http_code, code), err);
    return status == REEL_OK ? buffer_text(out, "}", err) : status;
}

static bool is_anthropic(const struct exchange *x) {
    const char *path = exchange_path(x);
    return strncmp(path, "/v1/messages", 12) == 0 || strncmp(path, "/messages", 9) == 0;
}

static enum reel_status write_body(struct buffer *out, const struct exchange *x, int http_code,
                                   const char *param, const char *code, const char *message) {
    enum reel_status status = REEL_OK;
    if (is_anthropic(x)) {
        status = buffer_printf(out, NULL,
                               "{\"type\":\"error\",\"error\":{\"type\":\"%s\","
                               "\"message\":",
                               type_of(http_code));
        if (status == REEL_OK) status = json_out_string(out, message, NULL);
        return status == REEL_OK ? buffer_text(out, "}}", NULL) : status;
    }
    status = buffer_text(out, "{\"error\":", NULL);
    if (status == REEL_OK) status = api_error_json(out, http_code, param, code, message, NULL);
    return status == REEL_OK ? buffer_text(out, "}", NULL) : status;
}

void api_error(struct exchange *x, int http_code, const char *param, const char *code,
               const char *format, ...) {
    char message[600];
    struct buffer body = { 0 };
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    bool inside = exchange_begun(x);
    enum reel_status status = REEL_OK;
    if (inside)
        status = buffer_text(&body, is_anthropic(x) ? "event: error\ndata: " : "data: ", NULL);
    if (status == REEL_OK) status = write_body(&body, x, http_code, param, code, message);
    if (status == REEL_OK && inside) status = buffer_text(&body, "\n\n", NULL);
    if (inside) {
        if (status == REEL_OK) exchange_put(x, body.bytes, body.size);
        buffer_release(&body);
        return;
    }
    if (http_code == 503) exchange_set_header(x, "Retry-After", "1");
    exchange_reply_buffer(x, http_code, "application/json", &body);
}

static int code_of(enum reel_status status) {
    switch (status) {
    case REEL_E_ARGUMENT:
    case REEL_E_FORMAT:
    case REEL_E_UNSUPPORTED:
    case REEL_E_CONTEXT:
        return 400;
    case REEL_E_NOT_FOUND:
        return 404;
    case REEL_E_LIMIT:
    case REEL_E_MEMORY:
        return 503;
    default:
        return 500;
    }
}

void api_error_from(struct exchange *x, const struct reel_error *err) {
    if (err->status == REEL_E_CANCELLED && exchange_is_gone(x)) return;
    api_error(x, code_of(err->status), NULL,
              err->status == REEL_E_CONTEXT ? "context_length_exceeded" : NULL, "%s",
              err->text[0] ? err->text : reel_status_text(err->status));
}
