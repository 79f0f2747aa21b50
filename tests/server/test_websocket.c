/* Both ends of a WebSocket: the server's, and frames as a client writes them, or should not. */
#include "base/clock.h"
#include "server/websocket.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10, FIN = 0x80, MASKED = 0x80 };

static struct reel_error err;

struct pair {
    int client, server;
    struct websocket *ws;
};

static struct pair open_pair_with(const void *extra, size_t n_extra) {
    int fds[2];
    struct pair p = { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    p.client = fds[0];
    p.server = fds[1];
    assert_int_equal(fcntl(p.server, F_SETFL, O_NONBLOCK), 0);
    const struct timeval patience = { .tv_sec = 2 };
    assert_int_equal(setsockopt(p.client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(websocket_open(&p.ws, p.server, extra, n_extra, &err), REEL_OK);
    return p;
}

static struct pair open_pair(void) { return open_pair_with(NULL, 0); }

static void close_pair(struct pair *p) {
    websocket_close(p->ws);
    close(p->server);
    if (p->client >= 0) close(p->client);
}

/* A client's frame into out; its length. */
static size_t frame(unsigned char *out, int first, const void *bytes, size_t n) {
    static const unsigned char mask[4] = { 0x12, 0x34, 0x56, 0x78 };
    size_t at = 0;
    out[at++] = (unsigned char)first;
    if (n < 126) {
        out[at++] = (unsigned char)(MASKED | n);
    } else if (n < 65536) {
        out[at++] = MASKED | 126;
        out[at++] = (unsigned char)(n >> 8);
        out[at++] = (unsigned char)n;
    } else {
        out[at++] = MASKED | 127;
        for (int i = 7; i >= 0; i--)
            out[at++] = (unsigned char)((uint64_t)n >> (8 * i));
    }
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < n; i++)
        out[at + i] = (unsigned char)(((const unsigned char *)bytes)[i] ^ mask[i % 4]);
    return at + n;
}

static void put(const struct pair *p, const void *bytes, size_t n) {
    assert_int_equal(send(p->client, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void put_frame(const struct pair *p, int first, const char *text) {
    unsigned char bytes[1000];
    put(p, bytes, frame(bytes, first, text, strlen(text)));
}

static void expect_text(struct pair *p, const char *wanted) {
    const char *text;
    size_t n;
    assert_int_equal(websocket_receive(p->ws, 1000, &text, &n), WEBSOCKET_TEXT);
    assert_int_equal(n, strlen(wanted));
    assert_string_equal(text, wanted);
}

static void expect_nothing(struct pair *p) {
    const char *text;
    size_t n;
    assert_int_equal(websocket_receive(p->ws, 20, &text, &n), WEBSOCKET_NOTHING);
}

static void expect_gone(struct pair *p) {
    const char *text;
    size_t n;
    assert_int_equal(websocket_receive(p->ws, 1000, &text, &n), WEBSOCKET_GONE);
    assert_false(websocket_send(p->ws, "x", 1));
    assert_true(websocket_is_gone(p->ws));
}

/* The next frame that the server sent, not longer than 125 bytes. */
static void expect_frame(struct pair *p, int first, const void *bytes, size_t n) {
    unsigned char got[200];
    assert_int_equal(recv(p->client, got, 2, MSG_WAITALL), 2);
    assert_int_equal(got[0], FIN | first);
    assert_int_equal(got[1], n); /* a server masks nothing */
    if (n) assert_int_equal(recv(p->client, got, n, MSG_WAITALL), (ssize_t)n);
    if (n) assert_memory_equal(got, bytes, n);
}

static void expect_close(struct pair *p, int code) {
    const unsigned char bytes[2] = { (unsigned char)(code >> 8), (unsigned char)code };
    expect_frame(p, CLOSE, bytes, 2);
}

static void messages_come_whole_however_they_are_cut(void **state) {
    unsigned char bytes[4000];
    size_t n = 0;
    (void)state;
    n += frame(bytes + n, FIN | TEXT, "one", 3);
    n += frame(bytes + n, TEXT, "tw", 2);
    n += frame(bytes + n, FIN | PING, "in between", 10);
    n += frame(bytes + n, 0, "", 0);
    n += frame(bytes + n, FIN, "o", 1);
    n += frame(bytes + n, FIN | TEXT, "", 0);
    n += frame(bytes + n, FIN | TEXT, "\xc3\xa9", 2);
    n += frame(bytes + n, TEXT, "\xc3", 1); /* half a character in each frame */
    n += frame(bytes + n, FIN, "\xa9", 1);
    for (size_t piece = 1; piece <= n; piece = piece < 8 ? piece + 1 : piece * 2) {
        /* what came with the handshake is the first piece */
        struct pair p = open_pair_with(bytes, piece);
        static const char *const wanted[] = { "one", "two", "", "\xc3\xa9", "\xc3\xa9" };
        int got = 0;
        for (size_t at = piece; got < 5;) {
            const char *text;
            size_t n_text;
            const enum websocket_event e = websocket_receive(p.ws, 0, &text, &n_text);
            assert_int_not_equal(e, WEBSOCKET_GONE);
            if (e == WEBSOCKET_TEXT) assert_string_equal(text, wanted[got++]);
            const size_t more = n - at < piece ? n - at : piece;
            if (more) put(&p, bytes + at, more);
            at += more;
        }
        expect_nothing(&p);
        expect_frame(&p, PONG, "in between", 10);
        close_pair(&p);
    }
}

static void a_long_message_comes_whole_and_a_longer_one_ends_it(void **state) {
    const size_t n = 300000;
    char *text = malloc(n);
    unsigned char *bytes = malloc(n + 20);
    (void)state;
    assert_non_null(text);
    assert_non_null(bytes);
    memset(text, 'a', n);
    struct pair p = open_pair();
    const size_t n_bytes = frame(bytes, FIN | TEXT, text, n);
    const char *got = NULL;
    size_t n_got = 0;
    enum websocket_event e = WEBSOCKET_NOTHING;
    for (size_t at = 0; e == WEBSOCKET_NOTHING;) {
        const ssize_t sent = send(p.client, bytes + at, n_bytes - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) at += (size_t)sent;
        e = websocket_receive(p.ws, 0, &got, &n_got);
    }
    assert_int_equal(e, WEBSOCKET_TEXT);
    assert_int_equal(n_got, n);
    assert_memory_equal(got, text, n);
    /* A header that announces 16 MiB and a byte more. */
    static const unsigned char huge[] = "\x81\xff\0\0\0\0\x01\0\0\x01....x";
    put(&p, huge, sizeof huge - 1);
    expect_gone(&p);
    expect_close(&p, 1009);
    close_pair(&p);
    free(bytes);
    free(text);
}

static void nonsense_is_told_by_its_code(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
        int code; /* 0: closed without one */
    } bad[] = {
        { "\x81\x02hi", 4, 1002 },                   /* not masked */
        { "\xc1\x80....", 6, 1002 },                 /* a reserved bit */
        { "\x83\x80....", 6, 1002 },                 /* a kind that is none */
        { "\x80\x80....", 6, 1002 },                 /* goes on with nothing */
        { "\x09\x80....", 6, 0 },                    /* a ping in pieces */
        { "\x89\xfe\x00\x7e....", 8, 0 },            /* a ping of 126 bytes */
        { "\x01\x80....\x81\x80....", 12, 1002 },    /* a message inside another */
        { "\x81\xfe\x00\x01....x", 9, 0 },           /* a length written too long */
        { "\x81\xff\x80\0\0\0\0\0\0\0....", 14, 0 }, /* a negative one */
        { "\x81\x81\0\0\0\0\xff", 7, 1007 },         /* no UTF-8 */
        { "\x81\x82\0\0\0\0\xc0\x80", 8, 1007 },     /* likewise */
        { "\x81\x83\0\0\0\0\xed\xa0\x80", 9, 1007 }, /* half a pair */
        { "\x82\x81\0\0\0\0x", 7, 1003 },            /* binary */
        { "\x88\x81\0\0\0\0x", 7, 0 },               /* half a code */
        { "\x88\x82\0\0\0\0\x03\xed", 8, 1002 },     /* 1005, which may not be sent */
        { "\x88\x83\0\0\0\0\x03\xe8\xff", 9, 1007 }, /* a reason that is no UTF-8 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pair p = open_pair();
        put(&p, bad[i].bytes, bad[i].n);
        expect_gone(&p);
        unsigned char got[4] = { 0 };
        const ssize_t n = bad[i].code ? 4 : 2;
        if (recv(p.client, got, (size_t)n, MSG_WAITALL) != n || got[0] != (FIN | CLOSE) ||
            got[1] != n - 2 || (got[2] << 8 | got[3]) != bad[i].code)
            fail_msg("nonsense %zu: frame %02x %02x, code %d, wanted %d", i, got[0], got[1],
                     got[2] << 8 | got[3], bad[i].code);
        close_pair(&p);
    }
}

static void both_sides_can_close(void **state) {
    struct pair p = open_pair();
    (void)state;
    put_frame(&p, FIN | TEXT, "last words");
    put_frame(&p, FIN | CLOSE,
              "\x03\xe8"
              "bye");
    expect_text(&p, "last words");
    expect_gone(&p);
    expect_frame(&p, CLOSE,
                 "\x03\xe8"
                 "bye",
                 5);
    close_pair(&p);

    p = open_pair();
    put_frame(&p, FIN | CLOSE, "\x03\xe9"); /* it is there when the server asks for it */
    assert_true(websocket_send(p.ws, "result", 6));
    websocket_finish(p.ws, WEBSOCKET_DONE, "", 1000);
    expect_frame(&p, TEXT, "result", 6);
    expect_close(&p, 1000);
    close_pair(&p);

    p = open_pair(); /* a client that never answers costs the time that was given */
    const double start = clock_ms();
    websocket_finish(p.ws, WEBSOCKET_LEAVING, "the server ends", 50);
    assert_true(clock_ms() - start >= 49 && clock_ms() - start < 1000);
    expect_frame(&p, CLOSE, "\x03\xe9the server ends", 17);
    close_pair(&p);

    p = open_pair(); /* gone without a word */
    close(p.client);
    p.client = -1;
    expect_gone(&p);
    close_pair(&p);
}

static void who_leaves_during_long_work_is_noticed(void **state) {
    struct pair p = open_pair();
    (void)state;
    assert_false(websocket_is_gone(p.ws));
    put_frame(&p, FIN | TEXT, "kept");
    put_frame(&p, FIN | PING, "there?");
    assert_false(websocket_is_gone(p.ws));
    expect_frame(&p, PONG, "there?", 6);
    put_frame(&p, FIN | TEXT, "kept, too");
    put_frame(&p, FIN | CLOSE, "");
    assert_true(websocket_is_gone(p.ws));
    expect_text(&p, "kept");
    expect_text(&p, "kept, too");
    close_pair(&p);
}

static void a_client_that_does_not_read_is_dropped(void **state) {
    static char text[10000];
    struct pair p = open_pair();
    size_t sent = 0;
    (void)state;
    memset(text, 'x', sizeof text);
    while (sent < 100 * sizeof text * 10 && websocket_send(p.ws, text, sizeof text))
        sent += sizeof text;
    assert_true(sent > WEBSOCKET_MOST_QUEUED / 2 && sent < 4 * WEBSOCKET_MOST_QUEUED);
    expect_gone(&p);
    close_pair(&p);

    p = open_pair(); /* nor can it make the server keep answers to pings */
    bool gone = false;
    unsigned char ping[200];
    const size_t n = frame(ping, FIN | PING, text, 100);
    for (int i = 0; i < 200000 && !gone; i++) {
        const ssize_t put_bytes = send(p.client, ping, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put_bytes != (ssize_t)n || i % 100 == 0) gone = websocket_is_gone(p.ws);
        if (put_bytes > 0 && put_bytes != (ssize_t)n) break; /* the stream is cut */
    }
    assert_true(gone);
    close_pair(&p);
}

static void a_silent_client_is_pinged_and_then_dropped(void **state) {
    struct pair p = open_pair();
    const char *text;
    size_t n;
    (void)state;
    websocket_set_ping(p.ws, 40);
    assert_int_equal(websocket_receive(p.ws, 60, &text, &n), WEBSOCKET_NOTHING);
    expect_frame(&p, PING, "", 0);
    put_frame(&p, FIN | PONG, "");
    const double start = clock_ms();
    expect_gone(&p);
    assert_true(clock_ms() - start > 100 && clock_ms() - start < 900);
    close_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_whole_however_they_are_cut),
        cmocka_unit_test(a_long_message_comes_whole_and_a_longer_one_ends_it),
        cmocka_unit_test(nonsense_is_told_by_its_code),
        cmocka_unit_test(both_sides_can_close),
        cmocka_unit_test(who_leaves_during_long_work_is_noticed),
        cmocka_unit_test(a_client_that_does_not_read_is_dropped),
        cmocka_unit_test(a_silent_client_is_pinged_and_then_dropped),
    };
    return cmocka_run_group_tests_name("WebSockets", tests, NULL, NULL);
}
