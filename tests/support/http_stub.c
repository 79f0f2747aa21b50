#include "tests/support/http_stub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct http_stub {
    int listener;
    int port;
    atomic_int requests, open, most_open;
    atomic_size_t sent;
    atomic_bool closing;
    bool many;
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

static void send_body(struct http_stub *stub, int fd, const struct http_reply *reply,
                      const char *body, size_t n) {
    size_t first = reply->pause_ms && n ? 1 : 0;
    send_all(fd, body, first);
    for (int left = reply->pause_ms; left > 0 && !atomic_load(&stub->closing); left -= 20)
        poll(NULL, 0, left < 20 ? left : 20);
    send_all(fd, body + first, n - first);
    atomic_fetch_add(&stub->sent, n);
}

static void respond(struct http_stub *stub, int fd, struct http_reply reply, bool ranged,
                    size_t from, size_t last) {
    if (reply.hang_up) return;
    if (reply.code == 0) reply.code = 200;
    bool partial = ranged && reply.code == 200 && !reply.ignore_range;
    if (!partial) from = 0;
    if (ranged && partial && from >= reply.n_body) {
        static const char none[] = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n"
                                   "Connection: close\r\n\r\n";
        send_all(fd, none, sizeof none - 1);
        return;
    }
    char head[1024];
    size_t n = reply.n_body - from;
    if (partial && last < reply.n_body && last >= from) n = last + 1 - from;
    int size = snprintf(head, sizeof head,
                        "HTTP/1.1 %d Stub\r\nContent-Length: %zu\r\nConnection: close\r\n%s%s%s%s",
                        partial ? 206 : reply.code, n + reply.lie,
                        reply.location ? "Location: " : "", reply.location ? reply.location : "",
                        reply.location ? "\r\n" : "", reply.headers ? reply.headers : "");
    send_all(fd, head, (size_t)size);
    if (partial) {
        size = snprintf(head, sizeof head, "Content-Range: bytes %zu-%zu/%zu\r\n", from,
                        from + n - 1, reply.n_body);
        send_all(fd, head, (size_t)size);
    }
    send_all(fd, "\r\n", 2);
    if (reply.cut_after && reply.cut_after < n) n = reply.cut_after;
    send_body(stub, fd, &reply, reply.body + from, n);
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
    size_t from = 0, last = SIZE_MAX;
    bool ranged = range && sscanf(range, "bytes=%zu-%zu", &from, &last) >= 1;
    atomic_fetch_add(&stub->requests, 1);
    respond(stub, fd, stub->answer(stub->user, path, authorization, from), ranged, from, last);
}

struct connection {
    struct http_stub *stub;
    int fd;
};

static void *serve_one(void *user) {
    struct connection c = *(struct connection *)user;
    free(user);
    int open = atomic_load(&c.stub->open), most = atomic_load(&c.stub->most_open);
    while (open > most && !atomic_compare_exchange_weak(&c.stub->most_open, &most, open)) {
    }
    serve(c.stub, c.fd);
    close(c.fd);
    atomic_fetch_sub(&c.stub->open, 1);
    return NULL;
}

/* Hands the connection to a thread of its own, which nobody joins: closing waits for the count. */
static bool serve_aside(struct http_stub *stub, int fd) {
    pthread_t thread;
    pthread_attr_t aside;
    struct connection *c = malloc(sizeof *c);
    if (!c) return false;
    *c = (struct connection){ stub, fd };
    pthread_attr_init(&aside);
    pthread_attr_setdetachstate(&aside, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&stub->open, 1);
    bool started = pthread_create(&thread, &aside, serve_one, c) == 0;
    pthread_attr_destroy(&aside);
    if (!started) {
        free(c);
        atomic_fetch_sub(&stub->open, 1);
    }
    return started;
}

static void *run(void *user) {
    struct http_stub *stub = user;
    for (;;) {
        int fd = accept(stub->listener, NULL, NULL);
        if (fd < 0) return NULL;
        if (stub->many && serve_aside(stub, fd)) continue;
        serve(stub, fd);
        close(fd);
    }
}

static struct http_stub *open_stub(http_stub_fn answer, void *user, bool many) {
    struct http_stub *stub = calloc(1, sizeof *stub);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    if (!stub) return NULL;
    stub->answer = answer;
    stub->many = many;
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

struct http_stub *http_stub_open(http_stub_fn answer, void *user) {
    return open_stub(answer, user, false);
}
struct http_stub *http_stub_open_many(http_stub_fn answer, void *user) {
    return open_stub(answer, user, true);
}

int http_stub_port(const struct http_stub *stub) { return stub->port; }
int http_stub_requests(const struct http_stub *stub) { return atomic_load(&stub->requests); }

size_t http_stub_sent(const struct http_stub *stub) { return atomic_load(&stub->sent); }
int http_stub_most_at_once(const struct http_stub *stub) { return atomic_load(&stub->most_open); }

void http_stub_close(struct http_stub *stub) {
    if (!stub) return;
    atomic_store(&stub->closing, true);
    shutdown(stub->listener, SHUT_RDWR);
    pthread_join(stub->thread, NULL);
    while (atomic_load(&stub->open) > 0)
        poll(NULL, 0, 5);
    close(stub->listener);
    free(stub);
}
