#include "server/websocket.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

#define PING_SILENCE  20000.0           /* ms */
#define MOST_MESSAGES ((size_t)1 << 20) /* bytes taken in before they are asked for */

struct message {
    struct message *next;
    size_t n;
    char text[]; /* [n], terminated */
};

struct websocket {
    wslay_event_context_ptr frames;
    int fd;
    const unsigned char *extra;
    size_t n_extra;
    struct message *first, *last; /* received, not asked for yet */
    struct message *given;        /* the one that _receive gave last */
    size_t n_waiting;             /* bytes of first ... last */
    bool only_one;                /* no more bytes are taken in once there is a message */
    bool blocked;                 /* there was nothing more to take in, or to send */
    bool gone;                    /* nothing can be sent or received any more */
    bool closing;                 /* the client has sent its close frame, or was sent one */
    double heard_ms, pinged_ms;   /* when a byte came last, and a ping went out */
    double silence_ms;
};

/* ---- what wslay calls ---- */

static ssize_t would_block(struct websocket *ws, wslay_event_context_ptr frames) {
    ws->blocked = true;
    wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t on_read(wslay_event_context_ptr frames, uint8_t *out, size_t n, int flags,
                       void *user) {
    struct websocket *ws = user;
    (void)flags;
    if (ws->first && (ws->only_one || ws->n_waiting > MOST_MESSAGES))
        return would_block(ws, frames);
    if (ws->n_extra > 0) {
        if (n > ws->n_extra) n = ws->n_extra;
        memcpy(out, ws->extra, n);
        ws->extra += n;
        ws->n_extra -= n;
        return (ssize_t)n;
    }
    ssize_t got;
    do {
        got = recv(ws->fd, out, n, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return would_block(ws, frames);
    if (got <= 0) {
        ws->gone = true;
        wslay_event_set_error(frames, WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    ws->heard_ms = clock_ms();
    return got;
}

static ssize_t on_write(wslay_event_context_ptr frames, const uint8_t *bytes, size_t n, int flags,
                        void *user) {
    struct websocket *ws = user;
    ssize_t put;
    do {
        put = send(ws->fd, bytes, n,
                   MSG_DONTWAIT | MSG_NOSIGNAL | (flags & WSLAY_MSG_MORE ? MSG_MORE : 0));
    } while (put < 0 && errno == EINTR);
    if (put >= 0) return put;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return would_block(ws, frames);
    ws->gone = true;
    wslay_event_set_error(frames, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void fail(struct websocket *ws, enum websocket_code code) {
    ws->closing = true;
    wslay_event_queue_close(ws->frames, (uint16_t)code, NULL, 0);
    wslay_event_shutdown_read(ws->frames);
}

static void on_message(wslay_event_context_ptr frames,
                       const struct wslay_event_on_msg_recv_arg *arg, void *user) {
    struct websocket *ws = user;
    (void)frames;
    if (arg->opcode == WSLAY_CONNECTION_CLOSE) ws->closing = true; /* wslay answers it */
    if (arg->opcode == WSLAY_BINARY_FRAME) fail(ws, WEBSOCKET_UNSUPPORTED);
    if (arg->opcode != WSLAY_TEXT_FRAME || ws->closing) return;
    struct message *m = mem_alloc(sizeof *m + arg->msg_length + 1);
    if (!m) {
        fail(ws, WEBSOCKET_SERVER_FAULT);
        return;
    }
    m->next = NULL;
    m->n = arg->msg_length;
    if (m->n) memcpy(m->text, arg->msg, m->n);
    m->text[m->n] = '\0';
    *(ws->first ? &ws->last->next : &ws->first) = m;
    ws->last = m;
    ws->n_waiting += sizeof *m + m->n;
}

/* ---- opening and closing ---- */

enum reel_status websocket_open(struct websocket **out, int fd, const void *extra, size_t n_extra,
                                struct reel_error *err) {
    static const struct wslay_event_callbacks calls = { .recv_callback = on_read,
                                                        .send_callback = on_write,
                                                        .on_msg_recv_callback = on_message };
    struct websocket *ws = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&ws, 1, sizeof *ws, "a WebSocket", err);
    if (status != REEL_OK) return status;
    ws->fd = fd;
    ws->extra = extra;
    ws->n_extra = n_extra;
    ws->heard_ms = ws->pinged_ms = clock_ms();
    ws->silence_ms = PING_SILENCE;
    if (wslay_event_context_server_init(&ws->frames, &calls, ws) != 0) {
        mem_free(ws);
        return err_memory(err, "a WebSocket's frames", 0);
    }
    wslay_event_config_set_max_recv_msg_length(ws->frames, WEBSOCKET_MOST_MESSAGE);
    const int on = 1; /* words are small and have to leave at once */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails where it is not TCP */
    *out = ws;
    return REEL_OK;
}

void websocket_close(struct websocket *ws) {
    if (!ws) return;
    while (ws->first) {
        struct message *m = ws->first;
        ws->first = m->next;
        mem_free(m);
    }
    mem_free(ws->given);
    wslay_event_context_free(ws->frames);
    mem_free(ws);
}

void websocket_set_ping(struct websocket *ws, double silence_ms) { ws->silence_ms = silence_ms; }

/* ---- moving bytes ---- */

static bool over(const struct websocket *ws) {
    return ws->gone || (ws->closing && !wslay_event_want_write(ws->frames));
}

/* Sends what the socket takes. */
static void write_some(struct websocket *ws) {
    if (!ws->gone && wslay_event_want_write(ws->frames) && wslay_event_send(ws->frames) != 0)
        ws->gone = true;
    /* Pongs count, too: a flood of pings that reads no answer ends here. */
    if (wslay_event_get_queued_msg_length(ws->frames) > WEBSOCKET_MOST_QUEUED ||
        wslay_event_get_queued_msg_count(ws->frames) > WEBSOCKET_MOST_QUEUED / 64)
        ws->gone = true;
}

static void read_some(struct websocket *ws, bool only_one) {
    if (ws->gone) return;
    ws->only_one = only_one;
    /* After a violation wslay reads no more and has queued its close frame, which carries 1002 or
     * 1007, or no code where the frame's header made no sense. */
    for (ws->blocked = false; !ws->blocked && wslay_event_want_read(ws->frames);)
        if (wslay_event_recv(ws->frames) != 0) wslay_event_shutdown_read(ws->frames);
    if (!wslay_event_want_read(ws->frames)) ws->closing = true;
}

/* Pings a client that has been silent, and gives up one that stays so. */
static void look_alive(struct websocket *ws) {
    const double now = clock_ms();
    if (now - ws->heard_ms > 3 * ws->silence_ms) ws->gone = true;
    if (ws->closing || now - ws->heard_ms < ws->silence_ms || now - ws->pinged_ms < ws->silence_ms)
        return;
    const struct wslay_event_msg ping = { .opcode = WSLAY_PING };
    ws->pinged_ms = now;
    wslay_event_queue_msg(ws->frames, &ping);
}

static bool take_message(struct websocket *ws, const char **text, size_t *n_bytes) {
    struct message *m = ws->first;
    mem_free(ws->given);
    ws->given = NULL;
    if (!m) return false;
    ws->first = m->next;
    if (!ws->first) ws->last = NULL;
    ws->n_waiting -= sizeof *m + m->n;
    ws->given = m;
    *text = m->text;
    *n_bytes = m->n;
    return true;
}

enum websocket_event websocket_receive(struct websocket *ws, int wait_ms, const char **text,
                                       size_t *n_bytes) {
    const double until = clock_ms() + wait_ms;
    *text = "";
    *n_bytes = 0;
    while (true) {
        if (take_message(ws, text, n_bytes)) return WEBSOCKET_TEXT;
        read_some(ws, true);
        if (!ws->first) look_alive(ws);
        write_some(ws);
        if (take_message(ws, text, n_bytes)) return WEBSOCKET_TEXT;
        if (over(ws)) return WEBSOCKET_GONE;
        double left = until - clock_ms();
        if (left <= 0) return WEBSOCKET_NOTHING;
        if (left > ws->silence_ms / 4) left = ws->silence_ms / 4;
        struct pollfd wait = { .fd = ws->fd };
        if (wslay_event_want_read(ws->frames)) wait.events |= POLLIN;
        if (wslay_event_want_write(ws->frames)) wait.events |= POLLOUT;
        (void)poll(&wait, 1, (int)left + 1);
        /* With nothing to be read poll still tells that the client hung up. */
        if (wait.revents & (POLLERR | POLLNVAL) ||
            (wait.revents & POLLHUP && !(wait.events & POLLIN)))
            ws->gone = true;
    }
}

bool websocket_send(struct websocket *ws, const char *text, size_t n_bytes) {
    const struct wslay_event_msg message = { .opcode = WSLAY_TEXT_FRAME,
                                             .msg = (const uint8_t *)text,
                                             .msg_length = n_bytes };
    if (ws->gone || ws->closing) return false;
    if (wslay_event_queue_msg(ws->frames, &message) != 0) ws->gone = true;
    write_some(ws);
    return !ws->gone;
}

bool websocket_is_gone(struct websocket *ws) {
    read_some(ws, false);
    write_some(ws);
    return ws->gone || ws->closing;
}

/* Waits until the socket can be read or written; false at the end of the time. */
static bool wait_until(struct websocket *ws, double until, short events) {
    struct pollfd wait = { .fd = ws->fd, .events = events };
    const double left = until - clock_ms();
    return left > 0 && poll(&wait, 1, (int)left + 1) > 0;
}

void websocket_finish(struct websocket *ws, enum websocket_code code, const char *reason,
                      int wait_ms) {
    const double until = clock_ms() + wait_ms;
    if (!ws->closing)
        wslay_event_queue_close(ws->frames, (uint16_t)code, (const uint8_t *)reason,
                                strlen(reason));
    while (!ws->gone && wslay_event_want_write(ws->frames)) {
        write_some(ws);
        if (ws->gone || !wslay_event_want_write(ws->frames)) break;
        if (!wait_until(ws, until, POLLOUT)) return;
    }
    /* The client's own close frame; what comes before it is of no use any more. */
    unsigned char dropped[4096];
    const char *text;
    size_t n;
    while (take_message(ws, &text, &n))
        continue;
    while (!ws->gone && !wslay_event_get_close_received(ws->frames)) {
        if (!wslay_event_want_read(ws->frames)) {
            /* It broke the protocol: its bytes mean nothing, but unread ones would make the kernel
             * throw away the close frame that it is to read. */
            if (recv(ws->fd, dropped, sizeof dropped, MSG_DONTWAIT) == 0) return;
        } else {
            read_some(ws, false);
            while (take_message(ws, &text, &n))
                continue;
        }
        if (ws->gone || wslay_event_get_close_received(ws->frames)) return;
        if (!wait_until(ws, until, POLLIN)) return;
    }
}
