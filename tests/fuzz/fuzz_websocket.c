/* What a client sends on a WebSocket: all of it with the handshake, and once more cut in two. */
#include "server/websocket.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A sum over all messages, and whether it was the client that ended. */
static uint64_t hear(const uint8_t *data, size_t n, size_t cut) {
    struct websocket *ws = NULL;
    struct reel_error err;
    const char *text;
    size_t n_text;
    uint64_t sum = 1;
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) abort();
    if (websocket_open(&ws, fds[0], data, cut, &err) != REEL_OK) abort();
    if (n > cut && send(fds[1], data + cut, n - cut, MSG_NOSIGNAL) < 0) abort();
    for (enum websocket_event e;
         (e = websocket_receive(ws, 0, &text, &n_text)) == WEBSOCKET_TEXT;) {
        if (strnlen(text, n_text + 1) > n_text) abort();
        for (size_t i = 0; i < n_text; i++)
            sum = (sum ^ (uint8_t)text[i]) * 1099511628211u;
        sum = sum * 31 + n_text;
    }
    websocket_finish(ws, WEBSOCKET_DONE, "", 0);
    websocket_close(ws);
    close(fds[0]);
    close(fds[1]);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 100000) return 0; /* what a socket holds */
    if (hear(data, n, n) != hear(data, n, n ? data[n - 1] % n : 0)) abort();
    return 0;
}
