/* The handler's side of a request. */
#include "server/exchange_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/api_error.h"

#include <string.h>
#include <strings.h>
#include <sys/socket.h>
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

/* A suspended connection stays until it is resumed, and only who set `suspended` to false resumes
 * it: so the library is called without the lock, which it wants in the other order when it says
 * that a WebSocket is completed. */
void exchange_unlock_and_wake(struct exchange *x) {
    struct MHD_Connection *connection = x->suspended ? x->connection : NULL;
    if (connection) x->suspended = false;
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
    size_t left = x->out.size - x->out_taken;
    if (x->out_taken < left) return;
    memmove(x->out.bytes, x->out.bytes + x->out_taken, left);
    x->out.size = left;
    x->out_taken = 0;
}

bool exchange_put(struct exchange *x, const void *bytes, size_t n_bytes) {
    pthread_mutex_lock(&x->lock);
    bool good = !x->gone && !x->ended;
    if (good && x->out_taken) forget_taken(x);
    if (good && x->out.size - x->out_taken + n_bytes > STREAM_MOST) good = false;
    if (good) good = buffer_append(&x->out, bytes, n_bytes, NULL) == REEL_OK;
    if (!good) x->gone = true;
    exchange_unlock_and_wake(x);
    return good;
}

void exchange_end(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    exchange_unlock_and_wake(x);
}
