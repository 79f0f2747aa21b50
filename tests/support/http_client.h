/* A small HTTP/1.1 client on loopback for tests: whole answers, streams as they come, and plain
 * bytes for what no good client sends. */
#ifndef REEL_TESTS_HTTP_CLIENT_H
#define REEL_TESTS_HTTP_CLIENT_H

#include "base/buffer.h"

#include <stdbool.h>

struct http_answer {
    int code;           /* 0: there was no whole answer */
    struct buffer head; /* status line and headers, with the empty line */
    struct buffer body; /* without the marks of chunks; empty where on_bytes took it */
    bool whole;         /* the body came to its end as its headers say */
};

/* Bytes of a body as they come; false closes the connection. */
typedef bool (*http_bytes_fn)(void *user, const char *bytes, size_t n);

struct http_request {
    const char *method;     /* NULL: POST where there is a body, else GET */
    const char *path;       /* with its query */
    const char *headers;    /* more of them, each with its "\r\n"; or NULL */
    const char *body;       /* or NULL */
    size_t n_body;          /* 0: body is a text */
    http_bytes_fn on_bytes; /* or NULL */
    void *user;
};

/* Asks 127.0.0.1 on a connection of its own. Whether an answer came whole; release it either way.
 */
bool http_ask(struct http_answer *answer, int port, const struct http_request *request);

/* The same in steps, for connections that stay or behave badly. http_connect gives a socket, or -1;
 * its reads give up after 60 seconds. http_receive reads one answer; no bytes behind it. */
int http_connect(int port);
bool http_send(int fd, const void *bytes, size_t n);
bool http_send_request(int fd, const struct http_request *request);
bool http_receive(int fd, struct http_answer *answer, const struct http_request *request);

/* A header's value in `out`, or NULL: there is none. */
const char *http_header(const struct http_answer *answer, const char *name, char out[256]);

void http_answer_release(struct http_answer *answer);

#endif
