/* Errors as OpenAI's and Anthropic's clients read them. */
#ifndef REEL_SERVER_API_ERROR_H
#define REEL_SERVER_API_ERROR_H

#include "server/exchange.h"

/* Answers {"error": {"message", "type", "param", "code"}}; for paths of Anthropic's API
 * {"type": "error", "error": {"type", "message"}}. The type follows from the HTTP code: 400
 * invalid_request_error, 401 authentication_error, 404 not_found_error, 503 and 429
 * rate_limit_error, others server_error. param, code: or NULL. Inside a stream that was begun, the
 * error goes out as an event. */
void api_error(struct exchange *x, int http_code, const char *param, const char *code,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same from a call's error: REEL_E_ARGUMENT and the like 400, REEL_E_CONTEXT 400 with code
 * context_length_exceeded, REEL_E_LIMIT of a queue 503 with Retry-After, REEL_E_MEMORY 503, others
 * 500. */
void api_error_from(struct exchange *x, const struct reel_error *err);

/* The error object alone, as JSON: for events of a WebSocket. */
enum reel_status api_error_json(struct buffer *out, int http_code, const char *param,
                                const char *code, const char *message, struct reel_error *err);

#endif
