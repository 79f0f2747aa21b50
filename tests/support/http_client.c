#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { WAIT_S = 60 };

int http_connect(int port) {
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval wait = { .tv_sec = WAIT_S };
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool http_send(int fd, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static size_t body_bytes(const struct http_request *r) {
    if (r->n_body || !r->body) return r->n_body;
    return strlen(r->body);
}

bool http_send_request(int fd, const struct http_request *r) {
    struct buffer text = { 0 };
    const char *method = r->method ? r->method : r->body ? "POST" : "GET";
    enum reel_status status = buffer_printf(&text, NULL, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s",
                                            method, r->path, r->headers ? r->headers : "");
    if (status == REEL_OK && r->body)
        status =
            buffer_printf(&text, NULL, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                          body_bytes(r));
    if (status == REEL_OK) status = buffer_text(&text, "\r\n", NULL);
    if (status == REEL_OK && r->body) status = buffer_append(&text, r->body, body_bytes(r), NULL);
    bool sent = status == REEL_OK && http_send(fd, text.bytes, text.size);
    buffer_release(&text);
    return sent;
}

/* ---- reading ---- */

struct reader {
    int fd;
    char bytes[16384];
    size_t at, n;
    struct http_answer *answer;
    const struct http_request *request;
};

static bool more(struct reader *r) {
    ssize_t n = recv(r->fd, r->bytes, sizeof r->bytes, 0);
    r->at = 0;
    r->n = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static bool read_head(struct reader *r) {
    struct buffer *head = &r->answer->head;
    while (head->size < 4 || memcmp(head->bytes + head->size - 4, "\r\n\r\n", 4) != 0) {
        if (r->at == r->n && !more(r)) return false;
        if (buffer_append(head, &r->bytes[r->at++], 1, NULL) != REEL_OK) return false;
    }
    if (strncmp(head->bytes, "HTTP/1.", 7) != 0 || head->size < 13) return false;
    r->answer->code = (int)strtol(head->bytes + 9, NULL, 10);
    return r->answer->code >= 100;
}

static bool take(struct reader *r, const char *bytes, size_t n) {
    if (r->request && r->request->on_bytes) return r->request->on_bytes(r->request->user, bytes, n);
    return buffer_append(&r->answer->body, bytes, n, NULL) == REEL_OK;
}

/* The next n bytes of the body. */
static bool read_bytes(struct reader *r, size_t n) {
    while (n > 0) {
        if (r->at == r->n && !more(r)) return false;
        size_t here = r->n - r->at < n ? r->n - r->at : n;
        r->at += here;
        n -= here;
        if (!take(r, r->bytes + r->at - here, here)) return false;
    }
    return true;
}

static bool read_line(struct reader *r, char line[64]) {
    size_t n = 0;
    for (;;) {
        if (r->at == r->n && !more(r)) return false;
        char c = r->bytes[r->at++];
        if (c == '\n') break;
        if (c != '\r' && n < 63) line[n++] = c;
    }
    line[n] = '\0';
    return true;
}

static bool read_chunks(struct reader *r) {
    char line[64];
    for (;;) {
        if (!read_line(r, line)) return false;
        char *end = NULL;
        unsigned long n = strtoul(line, &end, 16);
        if (end == line) return false;
        if (n > 0 && !read_bytes(r, n)) return false;
        if (!read_line(r, line)) return false;
        if (n == 0) return true;
    }
}

static bool read_to_close(struct reader *r) {
    for (;;) {
        if (r->at < r->n && !take(r, r->bytes + r->at, r->n - r->at)) return false;
        if (!more(r)) return true;
    }
}

bool http_receive(int fd, struct http_answer *answer, const struct http_request *request) {
    struct reader r = { .fd = fd, .answer = answer, .request = request };
    char value[256];
    *answer = (struct http_answer){ 0 };
    do { /* "100 Continue" is not the answer */
        answer->head.size = 0;
        if (!read_head(&r)) return false;
    } while (answer->code == 100);
    if (buffer_text(&answer->body, "", NULL) != REEL_OK) return false;
    bool none = request && request->method && strcmp(request->method, "HEAD") == 0;
    if (none || answer->code == 204 || answer->code == 304 || answer->code < 200) {
        answer->whole = true;
    } else if (http_header(answer, "Transfer-Encoding", value)) {
        answer->whole = strcasecmp(value, "chunked") == 0 && read_chunks(&r);
    } else if (http_header(answer, "Content-Length", value)) {
        answer->whole = read_bytes(&r, strtoul(value, NULL, 10));
    } else {
        answer->whole = read_to_close(&r);
    }
    return answer->whole;
}

bool http_ask(struct http_answer *answer, int port, const struct http_request *request) {
    *answer = (struct http_answer){ 0 };
    int fd = http_connect(port);
    if (fd < 0) return false;
    bool good = http_send_request(fd, request);
    /* a server may answer before it has read all, and close */
    good = http_receive(fd, answer, request) && good;
    close(fd);
    return good;
}

const char *http_header(const struct http_answer *answer, const char *name, char out[256]) {
    const size_t n = strlen(name);
    const char *line = answer->head.bytes ? strstr(answer->head.bytes, "\r\n") : NULL;
    for (; line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        const char *value = line + n + 1 + strspn(line + n + 1, " ");
        snprintf(out, 256, "%.*s", (int)strcspn(value, "\r"), value);
        return out;
    }
    return NULL;
}

void http_answer_release(struct http_answer *answer) {
    buffer_release(&answer->head);
    buffer_release(&answer->body);
    *answer = (struct http_answer){ 0 };
}
