/* Streams to clients that read late, slowly or as HTTP/1.0 does: every byte comes, in order and in
 * whole chunks, whoever put it on the socket. */
#include "server/exchange_state.h"
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define BODY                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}],\"temperature\":0,"      \
    "\"ignore_eos\":true,\"max_tokens\":400,\"stream\":true}"
enum { N_TOKENS = 400 };

static void wait_ms(int ms) {
    nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

static int count(const struct buffer *in, const char *what) {
    int n = 0;
    for (const char *at = in->bytes; at && (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* A test whose bytes do not come fails soon. */
static void give_up_after(int fd, int seconds) {
    const struct timeval most = { .tv_sec = seconds };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most), 0);
}

/* ---- a socket that takes a part of a chunk ---- */

static void client_left(void *user) { exchange_left(user); }
static bool client_reads(void *user) { return exchange_room(user); }

/* An exchange in the middle of a stream, whose socket the library has lent; no library is there. */
struct lent_socket {
    struct server server;
    struct exchange *x;
    int client;
};

static void lend(struct lent_socket *l) {
    const struct watch_calls calls = { .left = client_left, .room = client_reads };
    const int little = 4096;
    int pair[2];
    *l = (struct lent_socket){ 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    assert_int_equal(watch_open(&l->server.watch, 60e3, &calls, NULL), REEL_OK);
    l->x = exchange_new(&l->server, NULL);
    assert_non_null(l->x);
    l->x->fd = pair[0];
    l->x->begun = l->x->streaming = l->x->queued = true;
    l->x->suspended = l->x->lends = l->x->lent = true;
    l->client = pair[1];
    give_up_after(l->client, 10);
    watch_handling(l->server.watch, pair[0], l->x);
}

static void take_back(struct lent_socket *l) {
    watch_close_of(l->server.watch, l->x->fd);
    watch_close(l->server.watch);
    close(l->x->fd);
    close(l->client);
    exchange_let_go(l->x);
}

/* Reads until this many bytes are there. */
static void read_bytes(int fd, struct buffer *out, size_t n) {
    char bytes[1000];
    while (out->size < n) {
        const size_t left = n - out->size;
        ssize_t got = recv(fd, bytes, left < sizeof bytes ? left : sizeof bytes, 0);
        assert_true(got > 0);
        assert_int_equal(buffer_append(out, bytes, (size_t)got, NULL), REEL_OK);
    }
}

static void a_put_is_one_chunk_on_the_socket(void **state) {
    struct lent_socket l;
    struct buffer got = { 0 };
    (void)state;
    lend(&l);
    assert_true(exchange_put(l.x, "data: {}\n\n", 10));
    assert_true(exchange_put(l.x, "", 0)); /* a chunk of nothing would end the stream */
    assert_true(exchange_put(l.x, "x", 1));
    read_bytes(l.client, &got, 21);
    assert_string_equal(got.bytes, "a\r\ndata: {}\n\n\r\n1\r\nx\r\n");
    assert_int_equal(l.x->out.size, 0);
    buffer_release(&got);
    take_back(&l);
}

static size_t rest_of(struct exchange *x) {
    pthread_mutex_lock(&x->lock);
    const size_t n = x->n_rest;
    pthread_mutex_unlock(&x->lock);
    return n;
}

/* What comes behind the chunk is left for the library, without marks of chunks. */
static void the_rest_of_a_chunk_comes_first(void **state) {
    enum { N = 100000 };
    static char much[N];
    struct lent_socket l;
    struct buffer got = { 0 };
    (void)state;
    lend(&l);
    for (int i = 0; i < N; i++)
        much[i] = (char)('a' + i % 23);
    assert_true(exchange_put(l.x, much, N));
    assert_in_range(rest_of(l.x), 1, N - 1);
    assert_true(exchange_put(l.x, "behind", 6));
    read_bytes(l.client, &got, 7 + N + 2);
    assert_memory_equal(got.bytes, "186a0\r\n", 7);
    assert_memory_equal(got.bytes + 7, much, N);
    assert_memory_equal(got.bytes + 7 + N, "\r\n", 2);
    assert_int_equal(recv(l.client, much, 1, MSG_DONTWAIT), -1);
    for (int i = 0; i < 1000 && rest_of(l.x); i++)
        wait_ms(1);
    pthread_mutex_lock(&l.x->lock);
    assert_int_equal(l.x->n_rest, 0);
    assert_int_equal(l.x->out.size - l.x->out_taken, 6);
    assert_memory_equal(l.x->out.bytes + l.x->out_taken, "behind", 6);
    pthread_mutex_unlock(&l.x->lock);
    buffer_release(&got);
    take_back(&l);
}

static void a_client_that_leaves_with_a_rest_is_gone(void **state) {
    static const char much[100000];
    struct lent_socket l;
    (void)state;
    lend(&l);
    assert_true(exchange_put(l.x, much, sizeof much));
    close(l.client);
    for (int i = 0; i < 1000 && !exchange_is_gone(l.x); i++)
        wait_ms(1);
    assert_true(exchange_is_gone(l.x));
    assert_false(exchange_put(l.x, "x", 1));
    l.client = dup(l.x->fd);
    take_back(&l);
}

/* ---- the whole server ---- */

/* A connection that holds little: the client's buffer is small, and the server's is made for small
 * segments. */
static int connect_narrow(int port) {
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int segment = 536, buffer = 4096;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    give_up_after(fd, 20);
    return fd;
}

/* Of answers that differ in their times alone. */
static void hide_times(struct buffer *body) {
    for (char *at = body->bytes; at && (at = strstr(at, "\"created\":"));)
        for (at += 10; *at >= '0' && *at <= '9'; at++)
            *at = '0';
    char *timings = strstr(body->bytes, "\"timings\":"); /* in the last event with a choice */
    assert_non_null(timings);
    assert_string_equal(body->bytes + body->size - 14, "data: [DONE]\n\n");
    *timings = '\0';
}

struct pace {
    int pauses;
    struct buffer got;
};

/* Lets the server run into a full socket, then reads on, again and again. */
static bool take_slowly(void *user, const char *bytes, size_t n) {
    struct pace *p = user;
    if (p->pauses > 0) wait_ms(p->pauses-- % 7);
    return buffer_append(&p->got, bytes, n, NULL) == REEL_OK;
}

static void a_client_that_reads_late_has_the_whole_stream(void **state) {
    struct served *s = *state;
    struct buffer fast = { 0 };
    for (int round = 0; round < 8; round++) {
        struct pace pace = { .pauses = round * 20 };
        struct http_answer answer;
        const struct http_request request = { .path = "/v1/chat/completions",
                                              .headers = "X-Request-Id: same\r\n",
                                              .body = BODY,
                                              .on_bytes = take_slowly,
                                              .user = &pace };
        int fd = connect_narrow(s->port);
        assert_true(http_send_request(fd, &request));
        if (round) wait_ms(round * 30);
        assert_true(http_receive(fd, &answer, &request));
        assert_true(answer.whole);
        http_answer_release(&answer);
        assert_int_equal(count(&pace.got, "data: {"), N_TOKENS);
        hide_times(&pace.got);
        if (round) assert_string_equal(pace.got.bytes, fast.bytes);
        if (!round) fast = pace.got;
        if (round) buffer_release(&pace.got);
        close(fd);
    }
    buffer_release(&fast);
}

static void a_stream_to_http_1_0_has_no_chunks(void **state) {
    struct served *s = *state;
    struct buffer got = { 0 };
    char text[1000], bytes[4096];
    ssize_t n = 0;
    snprintf(
        text, sizeof text,
        "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(BODY), BODY);
    int fd = http_connect(s->port);
    assert_true(http_send(fd, text, strlen(text)));
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        assert_int_equal(buffer_append(&got, bytes, (size_t)n, NULL), REEL_OK);
    const char *body = got.bytes ? strstr(got.bytes, "\r\n\r\n") : NULL;
    assert_non_null(body);
    assert_memory_equal(body + 4, "data: {", 7);
    assert_null(strstr(body + 4, "\r\n"));
    assert_int_equal(count(&got, "data: {"), N_TOKENS);
    assert_string_equal(got.bytes + got.size - 14, "data: [DONE]\n\n");
    buffer_release(&got);
    close(fd);
}

static int open_it(void **state) {
    static struct served s;
    *state = &s;
    return served_open(&s) ? 0 : -1;
}
static int close_it(void **state) {
    served_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_is_one_chunk_on_the_socket),
        cmocka_unit_test(the_rest_of_a_chunk_comes_first),
        cmocka_unit_test(a_client_that_leaves_with_a_rest_is_gone),
        cmocka_unit_test(a_client_that_reads_late_has_the_whole_stream),
        cmocka_unit_test(a_stream_to_http_1_0_has_no_chunks),
    };
    return cmocka_run_group_tests(tests, open_it, close_it);
}
