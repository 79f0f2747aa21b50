#include "tests/support/http_stub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct http_stub {
    int listener;
    int port;
    atomic_int requests;
    http_stub_fn answer;
    void *user;
    pthread_t thread;
};

static void send_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL);
        if (done <= 0) return;
        bytes += done;
        n -= (size_t)done;
    }
}

/* The value of a header in a terminated request, or NULL; it is terminated in place. */
static char *header(char *request, const char *name) {
    for (char *line = strstr(request, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        size_t n = strlen(name);
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        char *value = line + n + 1 + strspn(line + n + 1, " ");
        value[strcspn(value, "\r")] = '\0';
        return value;
    }
    return NULL;
}

static void respond(int fd, struct http_reply reply, bool ranged, size_t from) {
    if (reply.code == 0) reply.code = 200;
    bool partial = ranged && reply.code == 200 && !reply.ignore_range;
    if (!partial) from = 0;
    if (from > reply.n_body) {
        static const char none[] = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n"
                                   "Connection: close\r\n\r\n";
        send_all(fd, none, sizeof none - 1);
        return;
    }
    char head[512];
    size_t n = reply.n_body - from;
    int size = snprintf(
        head, sizeof head, "HTTP/1.1 %d Stub\r\nContent-Length: %zu\r\nConnection: close\r\n%s%s%s",
        partial ? 206 : reply.code, n + reply.lie, reply.location ? "Location: " : "",
        reply.location ? reply.location : "", reply.location ? "\r\n" : "");
    send_all(fd, head, (size_t)size);
    if (partial) {
        size = snprintf(head, sizeof head, "Content-Range: bytes %zu-%zu/%zu\r\n", from,
                        reply.n_body - 1, reply.n_body);
        send_all(fd, head, (size_t)size);
    }
    send_all(fd, "\r\n", 2);
    if (reply.cut_after && reply.cut_after < n) n = reply.cut_after;
    send_all(fd, reply.body + from, n);
    for (size_t i = 0; i < reply.lie; i++)
        send_all(fd, "x", 1);
}

static void serve(struct http_stub *stub, int fd) {
    char request[8192];
    size_t n = 0;
    while (n < sizeof request - 1) {
        ssize_t got = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (got <= 0) return;
        n += (size_t)got;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n")) break;
    }
    char path[1024] = "";
    if (sscanf(request, "GET %1023s", path) != 1) return;
    char copy[8192];
    memcpy(copy, request, n + 1);
    const char *authorization = header(copy, "Authorization");
    char other[8192];
    memcpy(other, request, n + 1);
    const char *range = header(other, "Range");
    size_t from = 0;
    bool ranged = range && sscanf(range, "bytes=%zu-", &from) == 1;
    atomic_fetch_add(&stub->requests, 1);
    respond(fd, stub->answer(stub->user, path, authorization, from), ranged, from);
}

static void *run(void *user) {
    struct http_stub *stub = user;
    for (;;) {
        int fd = accept(stub->listener, NULL, NULL);
        if (fd < 0) return NULL;
        serve(stub, fd);
        close(fd);
    }
}

struct http_stub *http_stub_open(http_stub_fn answer, void *user) {
    struct http_stub *stub = calloc(1, sizeof *stub);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    if (!stub) return NULL;
    stub->answer = answer;
    stub->user = user;
    stub->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (stub->listener < 0 || bind(stub->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(stub->listener, 8) != 0 ||
        getsockname(stub->listener, (struct sockaddr *)&at, &n) != 0 ||
        pthread_create(&stub->thread, NULL, run, stub) != 0) {
        if (stub->listener >= 0) close(stub->listener);
        free(stub);
        return NULL;
    }
    stub->port = ntohs(at.sin_port);
    return stub;
}

int http_stub_port(const struct http_stub *stub) { return stub->port; }
int http_stub_requests(const struct http_stub *stub) { return atomic_load(&stub->requests); }

void http_stub_close(struct http_stub *stub) {
    if (!stub) return;
    shutdown(stub->listener, SHUT_RDWR);
    pthread_join(stub->thread, NULL);
    close(stub->listener);
    free(stub);
}
