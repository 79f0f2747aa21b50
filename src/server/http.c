/* libmicrohttpd's side of a request. Its one thread calls everything here but run_handler: it reads
 * requests, and sends what handlers have left in their exchanges. While a handler works the
 * connection is suspended, which takes it out of the library's sight; watch.c looks instead, and a
 * stream's chunks go out beside the library (exchange.c). */
#include "server/exchange_state.h"

#include "base/clock.h"
#include "base/memory.h"

#include "server/admit.h"
#include "server/api_error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_BYTES ((size_t)32 << 10) /* of one connection, request line included */
#define STREAM_BLOCK ((size_t)16 << 10) /* bytes of a stream that go out at once, at most */
#define MS_PER_BYTE  0.0625             /* 16 KB a second: slower is shut */
#define DISCARD_MOST                                                                               \
    ((size_t)8 << 20) /* of a refused request's body, so that its client reads why */

/* ---- the handler's thread ---- */

static void account(struct exchange *x) {
    int code = x->begun ? x->code : 499;
    double ms = clock_ms() - x->start_ms;
    metrics_request(x->server->metrics, x->route ? x->route->path : "unknown", code, ms,
                    &x->figures);
    admit_log(x, code, ms);
}

static void run_handler(struct crew_task *task) {
    struct exchange *x = (struct exchange *)task;
    struct server *server = x->server;
    x->route->handle(x);
    exchange_on_gone(x, NULL, NULL);
    if (!exchange_is_gone(x) && !x->begun && !x->upgraded)
        api_error(x, 500, NULL, NULL, "%s %s gave no answer", x->method, x->path);
    if (x->streaming) exchange_end(x);
    exchange_socket_close(x);
    account(x);
    pthread_mutex_lock(&x->lock);
    x->over = true;
    const double left = (double)(x->out.size - x->out_taken);
    const bool gone = x->gone;
    exchange_unlock_and_wake(x); /* a client that has gone is let go */
    if (gone)
        watch_shut(server->watch, x->fd, x); /* the library waits for it to read */
    else
        watch_answered(server->watch, x->fd, x, left * MS_PER_BYTE);
    exchange_let_go(x);
    atomic_fetch_sub(&server->n_active, 1);
}

/* ---- sending ---- */

static ssize_t send_more(void *user, uint64_t position, char *out, size_t most) {
    struct exchange *x = user;
    (void)position;
    pthread_mutex_lock(&x->lock);
    size_t n = x->out.size - x->out_taken;
    ssize_t sent = 0;
    if (n > most) n = most;
    if (x->gone) {
        sent = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        memcpy(out, x->out.bytes + x->out_taken, n);
        x->out_taken += n;
        sent = (ssize_t)n;
    } else if (x->ended) {
        sent = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->suspended = true;
        x->lent = x->lends;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return sent;
}

static void release_sender(void *user) { exchange_let_go(user); }

static void add_headers(struct exchange *x, struct MHD_Response *response) {
    MHD_add_response_header(response, "X-Request-Id", x->id);
    if (x->type) MHD_add_response_header(response, "Content-Type", x->type);
    if (x->streaming) {
        MHD_add_response_header(response, "Cache-Control", "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    for (int i = 0; i < x->n_more; i++)
        MHD_add_response_header(response, x->more[i][0], x->more[i][1]);
    admit_cors(x, response);
    if (atomic_load(&x->server->draining)) MHD_add_response_header(response, "Connection", "close");
}

/* Chunks that are put beside the library must not wait for others. */
static void send_at_once(int fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static enum MHD_Result queue_answer(struct exchange *x) {
    struct MHD_Response *response = NULL;
    if (x->streaming) {
        if (x->lends) send_at_once(x->fd);
        exchange_hold(x);
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, send_more, x,
                                                     release_sender);
        if (!response) exchange_let_go(x); /* the library has another */
    } else {
        size_t n = x->out.size;
        response = MHD_create_response_from_buffer(n, n ? x->out.bytes : (char *)"",
                                                   MHD_RESPMEM_MUST_COPY);
    }
    if (!response) return MHD_NO;
    add_headers(x, response);
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)x->code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- a WebSocket ---- */

static void take_socket(void *user, struct MHD_Connection *connection, void *request,
                        const char *extra, size_t n_extra, MHD_socket fd,
                        struct MHD_UpgradeResponseHandle *upgrade) {
    struct exchange *x = user;
    (void)connection;
    (void)request;
    send_at_once(x->fd); /* with TLS the handler's socket is another one, which cannot ask for it */
    /* Without TLS the handler sees that the client leaves. With it the library (0.9.75) does not
     * tell the handler's socket, until it cannot send: so the client's socket stays in the watch.
     */
    if (!x->server->options.tls_cert) watch_upgraded(x->server->watch, x->fd);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    if (x->abandoned || x->gone) {
        pthread_mutex_unlock(&x->lock);
        watch_close_of(x->server->watch, x->fd);
        MHD_upgrade_action(upgrade, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    if (n_extra) x->extra = mem_alloc(n_extra);
    if (x->extra) memcpy(x->extra, extra, n_extra);
    x->socket = (struct exchange_socket){ fd, x->extra, x->extra ? n_extra : 0 };
    x->upgrade = upgrade;
    x->upgraded = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static enum MHD_Result queue_upgrade(struct exchange *x) {
    struct MHD_Response *response = MHD_create_response_for_upgrade(take_socket, x);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Upgrade", "websocket");
    MHD_add_response_header(response, "Sec-WebSocket-Accept", x->accept);
    if (x->protocol) MHD_add_response_header(response, "Sec-WebSocket-Protocol", x->protocol);
    MHD_add_response_header(response, "X-Request-Id", x->id);
    enum MHD_Result result =
        MHD_queue_response(x->connection, MHD_HTTP_SWITCHING_PROTOCOLS, response);
    MHD_destroy_response(response);
    return result;
}

enum reel_status exchange_upgrade_now(struct exchange *x, const char *accept, const char *protocol,
                                      struct exchange_socket *socket, struct reel_error *err) {
    pthread_mutex_lock(&x->lock);
    snprintf(x->accept, sizeof x->accept, "%s", accept);
    x->protocol = protocol;
    x->code = MHD_HTTP_SWITCHING_PROTOCOLS;
    x->begun = true;
    exchange_unlock_and_wake(x);
    pthread_mutex_lock(&x->lock);
    while (!x->upgraded && !x->gone)
        pthread_cond_wait(&x->changed, &x->lock);
    bool here = x->upgraded;
    x->abandoned = !here;
    *socket = x->socket;
    pthread_mutex_unlock(&x->lock);
    return here ? REEL_OK : err_set(err, REEL_E_CANCELLED, "the client left");
}

void exchange_socket_close(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    struct MHD_UpgradeResponseHandle *upgrade = x->upgrade;
    x->upgrade = NULL;
    pthread_mutex_unlock(&x->lock);
    if (!upgrade) return;
    watch_close_of(x->server->watch, x->fd); /* nobody hears of this exchange any more */
    /* With TLS libmicrohttpd 0.9.75 sometimes sees only that one side has ended, and keeps the
     * connection until the client's does. This ends that side, too; nothing goes over the wire. */
    if (x->server->options.tls_cert) (void)shutdown(x->fd, SHUT_RD);
    MHD_upgrade_action(upgrade, MHD_UPGRADE_ACTION_CLOSE);
}

/* ---- receiving ---- */

static size_t field_bytes(const char *text) { return text ? strlen(text) + 1 : 1; }

struct field_walk {
    struct exchange *x;
    size_t bytes;
    bool query;
};

static enum MHD_Result measure_field(void *user, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    struct field_walk *walk = user;
    (void)kind;
    walk->bytes += field_bytes(name) + field_bytes(value);
    return MHD_YES;
}

static const char *keep_text(struct exchange *x, const char *text) {
    const size_t n = field_bytes(text);
    char *copy = x->fields_text.bytes + x->fields_text.size;
    memcpy(copy, text ? text : "", n);
    x->fields_text.size += n;
    return copy;
}

static enum MHD_Result keep_field(void *user, enum MHD_ValueKind kind, const char *name,
                                  const char *value) {
    struct field_walk *walk = user;
    struct exchange *x = walk->x;
    (void)kind;
    if (x->n_fields == EXCHANGE_FIELDS) {
        x->more_fields = true;
        return MHD_NO;
    }
    struct exchange_field *f = &x->fields[x->n_fields++];
    f->name = keep_text(x, name);
    f->value = keep_text(x, value);
    f->query = walk->query;
    return MHD_YES;
}

/* The library's own are gone when the client is. */
static bool keep_fields(struct exchange *x) {
    struct field_walk walk = { .x = x };
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, measure_field, &walk);
    MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, measure_field, &walk);
    /* all at once: later ones must not move the earlier */
    x->fields_text.bytes = mem_alloc(walk.bytes + 1);
    if (!x->fields_text.bytes) return false;
    x->fields_text.capacity = walk.bytes + 1;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, keep_field, &walk);
    walk.query = true;
    MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, keep_field, &walk);
    return true;
}

static int socket_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static struct exchange *first_line(struct server *server, struct MHD_Connection *connection,
                                   const char *path, const char *method, const char *version) {
    struct exchange *x = exchange_new(server, NULL);
    if (!x) return NULL;
    x->connection = connection;
    x->fd = socket_of(connection);
    x->lends = !server->options.tls_cert && strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
    x->body.limit = server->options.max_body;
    if (mem_text(&x->method, method, strlen(method), "a method", NULL) != REEL_OK ||
        mem_text(&x->path, path, strlen(path), "a path", NULL) != REEL_OK || !keep_fields(x)) {
        exchange_let_go(x);
        return NULL;
    }
    admit_name(x);
    admit_target(x);
    admit_check(x);
    return x;
}

/* A body is counted with those of all requests: four of the largest at once are taken. False: the
 * connection is to be closed, nothing can be answered in the middle of a body. */
static bool take_body(struct exchange *x, const char *bytes, size_t n) {
    struct server *server = x->server;
    const size_t most = server->options.max_body;
    if (x->refuse_code) {
        x->discarded += n;
        return x->discarded <= DISCARD_MOST;
    }
    watch_more(server->watch, x->fd, (double)n * MS_PER_BYTE);
    if (atomic_fetch_add(&server->body_bytes, n) + n > 4 * most) {
        atomic_fetch_sub(&server->body_bytes, n);
        admit_refuse(x, 503, NULL, "the bodies of other requests fill the memory that there is");
        return true;
    }
    x->body_counted += n;
    const enum reel_status status = buffer_append(&x->body, bytes, n, NULL);
    if (status == REEL_OK) return true;
    if (status == REEL_E_LIMIT) {
        admit_refuse(x, 413, NULL, "the body is longer than %zu bytes (--max-body)", most);
    } else {
        admit_refuse(x, 503, NULL, "out of memory");
    }
    buffer_release(&x->body);
    return true;
}

/* What its Content-Length says; the library has refused what is no number. */
static void check_length(struct exchange *x) {
    const char *length = exchange_header(x, "Content-Length");
    const size_t most = x->server->options.max_body;
    const unsigned long long n = length ? strtoull(length, NULL, 10) : 0;
    if (n > most) {
        admit_refuse(x, 413, NULL, "the body has %.20s bytes; allowed are %zu (--max-body)", length,
                     most);
        x->refuse_now = true;
    }
    if (x->refuse_code && (n > DISCARD_MOST || exchange_header(x, "Expect"))) x->refuse_now = true;
}

static void start_handler(struct exchange *x) {
    struct server *server = x->server;
    x->handling = true;
    if (x->refuse_code) {
        admit_answer(x);
        account(x);
        return;
    }
    watch_handling(server->watch, x->fd, x);
    atomic_fetch_add(&server->n_active, 1);
    exchange_hold(x);
    x->task.run = run_handler;
    if (crew_take(server->crew, &x->task)) return;
    atomic_fetch_sub(&server->n_active, 1);
    admit_refuse(x, 503, NULL, "too many requests at once");
    admit_answer(x);
    account(x);
    exchange_let_go(x);
}

/* After the whole request, and again whenever something woke the connection. An answer that was
 * begun changes no more but for a stream's bytes, so it is queued without the lock: the library has
 * locks of its own that it holds when it asks for those bytes. */
static enum MHD_Result go_on(struct exchange *x) {
    enum MHD_Result result = MHD_YES;
    if (!x->handling) start_handler(x);
    pthread_mutex_lock(&x->lock);
    const bool queues = x->begun && !x->queued;
    if (queues) {
        x->queued = true;
    } else if (x->gone && !x->begun) {
        result = MHD_NO;
    } else if (!x->begun) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    if (queues) result = x->accept[0] ? queue_upgrade(x) : queue_answer(x);
    return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *n_body, void **own) {
    struct server *server = user;
    struct exchange *x = *own;
    if (!x) {
        x = first_line(server, connection, path, method, version);
        if (!x) return MHD_NO;
        *own = x;
        check_length(x);
        watch_receiving(server->watch, x->fd);
        return x->refuse_now ? go_on(x) : MHD_YES;
    }
    if (*n_body) {
        bool good = x->handling || take_body(x, body, *n_body);
        *n_body = 0;
        return good ? MHD_YES : MHD_NO;
    }
    return go_on(x);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode how) {
    struct server *server = user;
    struct exchange *x = *own;
    (void)connection;
    if (!x) return;
    *own = NULL;
    /* Of a WebSocket this is said while the library holds a lock that it takes in the other order
     * elsewhere; take_socket has done all but this. */
    if (!x->connection) {
        exchange_let_go(x);
        return;
    }
    watch_receiving(server->watch, x->fd);
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK) exchange_left(x);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    pthread_mutex_unlock(&x->lock);
    exchange_let_go(x);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode what) {
    struct server *server = user;
    (void)own;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        watch_receiving(server->watch, socket_of(connection));
    } else {
        watch_close_of(server->watch, socket_of(connection));
    }
}

/* ---- starting ---- */

static enum reel_status bind_to(struct server *server, const struct addrinfo *address,
                                struct reel_error *err) {
    const struct server_options *o = &server->options;
    int one = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_set(err, REEL_E_IO, "a socket: %s", strerror(errno));
    server->listener = fd;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, 1024) != 0)
        return err_set(err, REEL_E_IO, "%s port %d: %s", o->host, o->port, strerror(errno));
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &n) != 0)
        return err_set(err, REEL_E_IO, "%s port %d: %s", o->host, o->port, strerror(errno));
    server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port);
    return REEL_OK;
}

static enum reel_status listen_at(struct server *server, struct reel_error *err) {
    const struct server_options *o = &server->options;
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *addresses = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    int code = getaddrinfo(o->host, port, &hints, &addresses);
    if (code != 0)
        return err_set(err, REEL_E_NOT_FOUND, "--host %s: %s", o->host, gai_strerror(code));
    enum reel_status status = admit_address(server, addresses->ai_addr, err);
    if (status == REEL_OK) status = bind_to(server, addresses, err);
    freeaddrinfo(addresses);
    return status;
}

static void library_says(void *user, const char *format, va_list list) {
    (void)user;
    (void)format;
    (void)list; /* what clients do wrong is no news */
}

enum reel_status http_start(struct server *server, struct reel_error *err) {
    const struct server_options *o = &server->options;
    enum reel_status status = listen_at(server, err);
    if (status != REEL_OK) return status;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE |
                     MHD_USE_ERROR_LOG | MHD_USE_TURBO;
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->tls_key },
                                    { MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->tls_cert },
                                    { MHD_OPTION_END, 0, NULL } };
    if (o->tls_key) flags |= MHD_USE_TLS;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, library_says, NULL,
        MHD_OPTION_LISTEN_SOCKET, server->listener, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)o->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADER_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->timeout_s, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, o->tls_key ? tls : tls + 2,
        MHD_OPTION_END);
    if (!server->daemon)
        return err_set(err, REEL_E_IO, "%s",
                       o->tls_key ? "the HTTP library did not start: look at --tls-cert and "
                                    "--tls-key"
                                  : "the HTTP library did not start");
    server->listener = -1; /* the daemon's from now on */
    return REEL_OK;
}

void http_stop(struct server *server) {
    if (server->daemon) MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
    if (server->listener >= 0) close(server->listener);
    server->listener = -1;
}
