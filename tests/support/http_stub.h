/* An HTTP server on loopback for tests: serves what a callback says, and misbehaves on request. */
#ifndef REEL_TESTS_HTTP_STUB_H
#define REEL_TESTS_HTTP_STUB_H

#include <stdbool.h>
#include <stddef.h>

struct http_reply {
    int code; /* 200 unless set; 206 is made from 200 when a range was asked for */
    const char *body;
    size_t n_body;
    const char *location; /* for redirects */
    bool ignore_range;    /* answer 200 with everything */
    size_t cut_after;     /* 0: never; else close the connection after this many body bytes */
    size_t lie;           /* announce this many bytes more than are sent... and send them as 'x' */
    const char *headers;  /* more of them, each with its "\r\n"; or NULL */
    bool hang_up;         /* close the connection without a word */
    int pause_ms;         /* before the body, but for its first byte */
};

/* `authorization` is the header's value or NULL; `range_from` the first byte asked for, or 0. */
typedef struct http_reply (*http_stub_fn)(void *user, const char *path, const char *authorization,
                                          size_t range_from);

struct http_stub;

/* Serves on 127.0.0.1 at a free port until closed. */
struct http_stub *http_stub_open(http_stub_fn answer, void *user);
/* The same with a thread for each connection: the callback is called by several at once. */
struct http_stub *http_stub_open_many(http_stub_fn answer, void *user);
int http_stub_port(const struct http_stub *stub);
int http_stub_requests(const struct http_stub *stub);
size_t http_stub_sent(const struct http_stub *stub);      /* bytes of bodies */
int http_stub_most_at_once(const struct http_stub *stub); /* connections */
void http_stub_close(struct http_stub *stub);

#endif
