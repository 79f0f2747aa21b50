/* One HTTP request and what is answered to it.
 *
 * A handler runs on a thread of its own and may block. It answers in one of two ways: whole with
 * exchange_reply, or as a stream with exchange_begin, any number of exchange_put and exchange_end.
 * What it leaves unanswered is answered with 500. Everything here but exchange_on_gone's callback
 * belongs to the handler's thread. */
#ifndef REEL_SERVER_EXCHANGE_H
#define REEL_SERVER_EXCHANGE_H

#include "base/buffer.h"

struct server;
struct exchange;

/* What the request is. Texts are borrowed and live as long as the exchange. */
struct server *exchange_server(const struct exchange *x);
const char *exchange_id(const struct exchange *x); /* of the request, also in its answer's header */
const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x); /* without what follows a question mark */
const char *exchange_body(const struct exchange *x, size_t *n_bytes); /* terminated; never NULL */
/* NULL where the request has none; capitals of a header's name do not count. */
const char *exchange_header(const struct exchange *x, const char *name);
const char *exchange_query(const struct exchange *x, const char *name);
double exchange_start_ms(const struct exchange *x); /* when its headers were there, as clock_ms */

/* A whole answer; the bytes are copied. `type` is its Content-Type. */
void exchange_reply(struct exchange *x, int code, const char *type, const void *bytes,
                    size_t n_bytes);
/* The same, and the buffer's bytes become the answer's: it is empty afterwards. */
void exchange_reply_buffer(struct exchange *x, int code, const char *type, struct buffer *body);
/* One more header of the answer; before it begins. */
void exchange_set_header(struct exchange *x, const char *name, const char *value);

/* A stream. _put copies the bytes and never waits: they go out as the client reads. It answers
 * false when the client is gone, or so slow that more than STREAM_MOST bytes wait for it; the
 * stream is over then. _begin may be called before there is anything to put. */
#define STREAM_MOST ((size_t)4 << 20)
void exchange_begin(struct exchange *x, int code, const char *type);
bool exchange_put(struct exchange *x, const void *bytes, size_t n_bytes);
void exchange_end(struct exchange *x);
bool exchange_begun(const struct exchange *x); /* an answer was given, or a stream was begun */

/* Whether the client has left. `gone` is called once when it leaves, on another thread, at once if
 * it has left already; NULL takes the callback back, and afterwards it does not run any more. */
bool exchange_is_gone(const struct exchange *x);
void exchange_on_gone(struct exchange *x, void (*gone)(void *user), void *user);

/* For routes that are WebSockets: the connection's socket after the handshake, and the bytes that
 * came with it. The handler talks on it, and closes it with exchange_socket_close. */
struct exchange_socket {
    int fd; /* not blocking */
    const void *extra;
    size_t n_extra;
};
/* REEL_E_ARGUMENT, answered already, when the request is no handshake. */
enum reel_status exchange_upgrade(struct exchange *x, struct exchange_socket *socket,
                                  struct reel_error *err);
void exchange_socket_close(struct exchange *x);

/* What the access log and the metrics say of the request, beside its code and time. */
struct exchange_figures {
    const char *model; /* borrowed from the server's list, or NULL */
    int n_prompt, n_reused, n_generated;
    double queue_ms;       /* waited for a session */
    double first_token_ms; /* from the request's headers to the first token; 0: none */
    double generate_ms;    /* from the first token to the last */
};
struct exchange_figures *exchange_figures(struct exchange *x);

#endif
