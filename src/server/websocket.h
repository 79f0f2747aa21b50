/* The server's side of a WebSocket (RFC 6455) on a socket that does not block: frames by wslay.
 *
 * One thread works on it. Messages come whole, fragments joined; pings and the closing handshake
 * are answered here. A client that breaks the protocol is told the reason's code and dropped; so
 * are one that does not read what it is sent, and one that answers no ping. */
#ifndef REEL_SERVER_WEBSOCKET_H
#define REEL_SERVER_WEBSOCKET_H

#include "base/error.h"

#define WEBSOCKET_MOST_MESSAGE                                                                     \
    ((size_t)16 << 20)                          /* bytes received; a longer one ends with 1009     \
                                                 */
#define WEBSOCKET_MOST_QUEUED ((size_t)1 << 20) /* bytes that wait for the client to read */

enum websocket_code {
    WEBSOCKET_DONE = 1000,
    WEBSOCKET_LEAVING = 1001,      /* the server ends */
    WEBSOCKET_UNSUPPORTED = 1003,  /* a message that is not text */
    WEBSOCKET_POLICY = 1008,       /* not allowed */
    WEBSOCKET_SERVER_FAULT = 1011, /* the server could not go on */
    WEBSOCKET_TRY_LATER = 1013
};

struct websocket;

/* extra: bytes that came with the handshake, borrowed while they last (the caller keeps them until
 * websocket_close). The socket stays the caller's. */
enum reel_status websocket_open(struct websocket **out, int fd, const void *extra, size_t n_extra,
                                struct reel_error *err);
void websocket_close(struct websocket *ws);

enum websocket_event { WEBSOCKET_NOTHING, WEBSOCKET_TEXT, WEBSOCKET_GONE };

/* Waits up to wait_ms (0: not at all) for a message. Of WEBSOCKET_TEXT: *text (UTF-8, terminated),
 * valid until the next call. WEBSOCKET_GONE: the client has left, or was dropped. */
enum websocket_event websocket_receive(struct websocket *ws, int wait_ms, const char **text,
                                       size_t *n_bytes);

/* Queues a text message and sends what the socket takes at once. False: the client is gone, or is
 * dropped since more than WEBSOCKET_MOST_QUEUED wait for it. */
bool websocket_send(struct websocket *ws, const char *text, size_t n_bytes);

/* Whether the client has left, for use in the middle of long work: takes in what has come (up to a
 * limit), answers pings, sends what waits. */
bool websocket_is_gone(struct websocket *ws);

/* Sends what waits, then a close frame, and waits for the client's: all of it at most wait_ms. */
void websocket_finish(struct websocket *ws, enum websocket_code code, const char *reason,
                      int wait_ms);

/* For tests: pings after so long without a byte from the client; it is dead after three times that.
 */
void websocket_set_ping(struct websocket *ws, double silence_ms);

#endif
