/* A small WebSocket client on loopback for tests: text messages both ways. */
#ifndef REEL_TESTS_WS_CLIENT_H
#define REEL_TESTS_WS_CLIENT_H

#include "base/buffer.h"

#include <stdbool.h>

/* The socket after the handshake, or -1; *code (or NULL): of the answer. `headers`: more of them,
 * each with its "\r\n", or NULL. Reads give up after 60 seconds. */
int ws_connect(int port, const char *path, const char *headers, int *code);

bool ws_send(int fd, const char *text, size_t n_bytes);

/* The next text message, terminated, in place of what is in *out; answers pings. False: closed,
 * with its *code (0: without one, or no close frame), or given up. */
bool ws_receive(int fd, struct buffer *out, int *code);

#endif
