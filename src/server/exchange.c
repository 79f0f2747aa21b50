/* The handler's side of a request. */
#include "server/exchange_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/api_error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct exchange *exchange_new(struct server *server, struct reel_error *err) {
    struct exchange *x = NULL;
    if (mem_zeroed(&x, 1, sizeof *x, "a request", err) != REEL_OK) return NULL;
    x->server = server;
    atomic_init(&x->references, 1);
    x->fd = -1;
    x->socket.fd = -1;
    x->start_ms = clock_ms();
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    return x;
}

void exchange_hold(struct exchange *x) { atomic_fetch_add(&x->references, 1); }

void exchange_let_go(struct exchange *x) {
    if (atomic_fetch_sub(&x->references, 1) > 1) return;
    for (int i = 0; i < x->n_more; i++)
        mem_free((void *)x->more[i][1]);
    if (x->body_counted) atomic_fetch_sub(&x->server->body_bytes, x->body_counted);
    buffer_release(&x->fields_text);
    buffer_release(&x->body);
    buffer_release(&x->out);
    mem_free(x->extra);
    mem_free(x->method);
    mem_free(x->path);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

/* ---- the request ---- */

struct server *exchange_server(const struct exchange *x) {
    return x->server;
}
const char *exchange_id(const struct exchange *x) { return x->id; }
const char *exchange_method(const struct exchange *x) { return x->method; }
const char *exchange_path(const struct exchange *x) { return x->path; }
double exchange_start_ms(const struct exchange *x) { return x->start_ms; }
struct exchange_figures *exchange_figures(struct exchange *x) {
    return &x->figures;
}

const char *exchange_body(const struct exchange *x, size_t *n_bytes) {
    *n_bytes = x->body.size;
    return x->body.bytes ? x->body.bytes : "";
}

static const char *field(const struct exchange *x, const char *name, bool query) {
    for (int i = 0; i < x->n_fields; i++) {
        const struct exchange_field *f = &x->fields[i];
        if (f->query != query) continue;
        if ((query ? strcmp(f->name, name) : strcasecmp(f->name, name)) == 0) return f->value;
    }
    return NULL;
}

const char *exchange_header(const struct exchange *x, const char *name) {
    return field(x, name, false);
}
const char *exchange_query(const struct exchange *x, const char *name) {
    return field(x, name, true);
}

/* ---- the client ---- */

static size_t waiting(const struct exchange *x) { return x->out.size - x->out_taken; }

/* Whether the library would do more than be suspended again. */
static bool has_news(const struct exchange *x) {
    if (x->gone) return true;
    return x->begun && !x->n_rest && (!x->queued || x->ended || waiting(x) > 0);
}

/* A suspended connection stays until it is resumed, and only who set `suspended` to false resumes
 * it: so the library is called without the lock, which it wants in the other order when it says
 * that a WebSocket is completed. */
void exchange_unlock_and_wake(struct exchange *x) {
    struct MHD_Connection *connection = x->suspended && has_news(x) ? x->connection : NULL;
    if (connection) x->suspended = x->lent = false;
    pthread_mutex_unlock(&x->lock);
    if (connection) MHD_resume_connection(connection);
}

void exchange_left(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    if (!x->gone) {
        x->gone = true;
        if (x->on_gone) x->on_gone(x->on_gone_user);
        if (x->upgrade) shutdown(x->socket.fd, SHUT_RDWR); /* wakes a handler that reads */
        pthread_cond_broadcast(&x->changed);
    }
    exchange_unlock_and_wake(x);
}

bool exchange_is_gone(const struct exchange *x) {
    struct exchange *own = (struct exchange *)x; /* for the lock */
    pthread_mutex_lock(&own->lock);
    bool gone = x->gone;
    pthread_mutex_unlock(&own->lock);
    return gone;
}

void exchange_on_gone(struct exchange *x, void (*gone)(void *user), void *user) {
    pthread_mutex_lock(&x->lock);
    x->on_gone = gone;
    x->on_gone_user = user;
    if (gone && x->gone) gone(user);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the answer ---- */

void exchange_set_header(struct exchange *x, const char *name, const char *value) {
    char *copy = NULL;
    if (mem_text(&copy, value, strlen(value), "a header", NULL) != REEL_OK) return;
    pthread_mutex_lock(&x->lock);
    if (x->begun || x->n_more == EXCHANGE_MORE_HEADERS) {
        mem_free(copy);
    } else {
        x->more[x->n_more][0] = name;
        x->more[x->n_more++][1] = copy;
    }
    pthread_mutex_unlock(&x->lock);
}

bool exchange_begun(const struct exchange *x) { return x->begun; }

static void begin(struct exchange *x, int code, const char *type, struct buffer *body,
                  bool streaming) {
    pthread_mutex_lock(&x->lock);
    if (!x->begun) {
        x->begun = true;
        x->code = code;
        x->type = type;
        x->streaming = streaming;
        x->ended = !streaming;
        if (body) {
            x->out = *body;
            *body = (struct buffer){ 0 };
        }
    }
    exchange_unlock_and_wake(x);
}

void exchange_reply_buffer(struct exchange *x, int code, const char *type, struct buffer *body) {
    begin(x, code, type, body, false);
    buffer_release(body);
}

void exchange_reply(struct exchange *x, int code, const char *type, const void *bytes,
                    size_t n_bytes) {
    struct buffer body = { 0 };
    if (buffer_append(&body, bytes, n_bytes, NULL) != REEL_OK) code = 500;
    exchange_reply_buffer(x, code, type, &body);
}

void exchange_begin(struct exchange *x, int code, const char *type) {
    begin(x, code, type, NULL, true);
}

/* What the client has read is given up once it is more than what waits. */
static void forget_taken(struct exchange *x) {
    size_t left = waiting(x);
    if (x->out_taken < left) return;
    memmove(x->out.bytes, x->out.bytes + x->out_taken, left);
    x->out.size = left;
    x->out_taken = 0;
}

/* Puts a chunk (RFC 9112, section 7.1) on a socket that is lent. The library would do the same, but
 * its thread would have to wake for it. A socket that takes nothing is the library's to wait for,
 * or to find broken; one that takes a part must have the rest before anything else. */
static bool put_chunk(struct exchange *x, const void *bytes, size_t n_bytes) {
    char size[24];
    const int n_size = snprintf(size, sizeof size, "%zx\r\n", n_bytes);
    struct iovec parts[] = { { size, (size_t)n_size }, { (void *)bytes, n_bytes }, { "\r\n", 2 } };
    const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    const ssize_t sent = sendmsg(x->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return buffer_append(&x->out, bytes, n_bytes, NULL) == REEL_OK;
    size_t taken = (size_t)sent;
    for (int i = 0; i < 3; i++) {
        const size_t here = taken < parts[i].iov_len ? taken : parts[i].iov_len;
        const char *rest = (const char *)parts[i].iov_base + here;
        taken -= here;
        if (buffer_append(&x->out, rest, parts[i].iov_len - here, NULL) != REEL_OK) return false;
    }
    x->n_rest = waiting(x);
    return true;
}

bool exchange_put(struct exchange *x, const void *bytes, size_t n_bytes) {
    pthread_mutex_lock(&x->lock);
    const size_t rest_before = x->n_rest;
    bool good = !x->gone && !x->ended;
    if (good && x->out_taken) forget_taken(x);
    if (good && waiting(x) + n_bytes > STREAM_MOST) good = false;
    if (good && x->lent && waiting(x) == 0 && n_bytes > 0)
        good = put_chunk(x, bytes, n_bytes);
    else if (good)
        good = buffer_append(&x->out, bytes, n_bytes, NULL) == REEL_OK;
    if (!good) x->gone = true;
    const bool full = x->n_rest > rest_before;
    exchange_unlock_and_wake(x);
    if (full && !watch_room(x->server->watch, x->fd, x)) exchange_left(x);
    return good;
}

bool exchange_room(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    if (x->lent && x->n_rest) {
        const ssize_t sent =
            send(x->fd, x->out.bytes + x->out_taken, x->n_rest, MSG_DONTWAIT | MSG_NOSIGNAL);
        const size_t taken = sent > 0 ? (size_t)sent : 0; /* of a broken one the watch hears */
        x->out_taken += taken;
        x->n_rest -= taken;
    }
    const bool done = !x->lent || !x->n_rest;
    exchange_unlock_and_wake(x);
    return done;
}

void exchange_end(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    exchange_unlock_and_wake(x);
}
