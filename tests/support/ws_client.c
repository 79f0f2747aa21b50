#include "tests/support/ws_client.h"

#include "tests/support/http_client.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int ws_connect(int port, const char *path, const char *headers, int *code) {
    char all[1000], c;
    char answer[2000];
    size_t n = 0;
    int fd = http_connect(port);
    if (code) *code = 0;
    if (fd < 0) return -1;
    snprintf(all, sizeof all,
             "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n",
             path, headers ? headers : "");
    bool good = http_send(fd, all, strlen(all));
    while (good && n + 1 < sizeof answer && recv(fd, &c, 1, 0) == 1) {
        answer[n++] = c;
        if (n >= 4 && memcmp(answer + n - 4, "\r\n\r\n", 4) == 0) break;
    }
    answer[n] = '\0';
    if (code && n > 12) *code = atoi(answer + 9);
    if (n > 12 && atoi(answer + 9) == 101 && strstr(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
        return fd;
    close(fd);
    return -1;
}

/* Masked with zeros, which are as good as any. */
bool ws_send(int fd, const char *text, size_t n) {
    unsigned char head[14] = { 0x81 };
    size_t n_head = 2;
    if (n < 126) {
        head[1] = (unsigned char)(0x80 | n);
    } else if (n < 65536) {
        head[1] = 0x80 | 126;
        head[2] = (unsigned char)(n >> 8);
        head[3] = (unsigned char)n;
        n_head = 4;
    } else {
        head[1] = 0x80 | 127;
        for (int i = 0; i < 8; i++)
            head[2 + i] = (unsigned char)((uint64_t)n >> (56 - 8 * i));
        n_head = 10;
    }
    return http_send(fd, head, n_head + 4) && http_send(fd, text, n);
}

static bool read_exactly(int fd, void *out, size_t n) {
    return n == 0 || recv(fd, out, n, MSG_WAITALL) == (ssize_t)n;
}

bool ws_receive(int fd, struct buffer *out, int *code) {
    unsigned char head[2], length[8] = { 0 };
    if (code) *code = 0;
    for (;;) {
        if (!read_exactly(fd, head, 2)) return false;
        uint64_t n = head[1];
        const size_t wide = n == 126 ? 2 : n == 127 ? 8 : 0;
        if (!read_exactly(fd, length, wide)) return false;
        for (size_t i = 0; i < wide; i++)
            n = (i ? n << 8 : 0) | length[i];
        char *bytes = malloc((size_t)n + 1);
        if (!bytes || !read_exactly(fd, bytes, (size_t)n)) {
            free(bytes);
            return false;
        }
        out->size = 0;
        const bool good = buffer_append(out, bytes, (size_t)n, NULL) == REEL_OK;
        free(bytes);
        switch (head[0] & 15) {
        case 1:
            return good;
        case 8:
            if (code && n >= 2)
                *code = (unsigned char)out->bytes[0] << 8 | (unsigned char)out->bytes[1];
            return false;
        case 9: { /* pong */
            const unsigned char pong[6] = { 0x8a, 0x80 };
            if (!http_send(fd, pong, sizeof pong)) return false;
            break;
        }
        default:
            break;
        }
    }
}
