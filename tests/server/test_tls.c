/* HTTPS and WebSockets over TLS, with a certificate of the server's own. The clients of the other
 * tests speak without TLS, so a tunnel in this process encrypts what they say, by libcurl, which
 * also checks the certificate. */
#include "base/clock.h"
#include "base/json.h"
#include "server/base64.h"
#include "tests/support/http_client.h"
#include "tests/support/served.h"
#include "tests/support/spoken.h"
#include "tests/support/ws_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* For "localhost" and 127.0.0.1, from 2020 to 2120. The key has no use but this. */
static const char certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBeTCCASCgAwIBAgIUe2MGKbH6l3xGWe+MZUrr2DS9trMwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAx\n"
    "MDAwMDAwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAAS3k52gMkJy5d1sDNi8TvEdiZA3HAxiZgAT+P2aoGNd2kMgNFfUFHhp\n"
    "yo5IHsF/nWYDBf3l4jZVWP6qR6nP7REzo04wTDAaBgNVHREEEzARgglsb2NhbGhv\n"
    "c3SHBH8AAAEwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4EFgQUwNeilHhJ2NEk0TKo\n"
    "MK2AsdxVUw4wCgYIKoZIzj0EAwIDRwAwRAIgOkSAEdcsKYaKx3jUtTD604+C+Bll\n"
    "aXO8HcY+R+4wCtQCIGn3fKytxfK6SBm6xM17Pb6AVV3yTdwpqqH7RKeerfZz\n"
    "-----END CERTIFICATE-----\n";
static const char private_key[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZY66E7NB7tBdeqLJ\n"
    "ZfOz3jNYh2SudKZdR2xVMkYOlmOhRANCAAS3k52gMkJy5d1sDNi8TvEdiZA3HAxi\n"
    "ZgAT+P2aoGNd2kMgNFfUFHhpyo5IHsF/nWYDBf3l4jZVWP6qR6nP7REz\n"
    "-----END PRIVATE KEY-----\n";

/* ---- the tunnel ------------------------------------------------------------------------------ */

enum { MOST_LINKS = 100 };

struct link {
    pthread_t thread;
    int fd; /* the plain side */
};

static struct tunnel {
    int server, port; /* where it leads, and where it is entered */
    int listener;
    pthread_t thread;
    char trusted[40]; /* a file with the certificate */
    struct link links[MOST_LINKS];
    int n_links;
} tunnel;

/* What the server has sent goes to the plain side. False: it has ended. */
static bool pass_answers(CURL *tls, int fd) {
    char bytes[16384];
    for (;;) {
        size_t n = 0;
        const CURLcode code = curl_easy_recv(tls, bytes, sizeof bytes, &n);
        if (code == CURLE_AGAIN) return true;
        if (code != CURLE_OK || n == 0 || !http_send(fd, bytes, n)) return false;
    }
}

static bool pass_request(CURL *tls, int tls_fd, int fd) {
    char bytes[16384];
    const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    for (size_t at = 0; n > 0 && at < (size_t)n;) {
        size_t here = 0;
        const CURLcode code = curl_easy_send(tls, bytes + at, (size_t)n - at, &here);
        struct pollfd room = { .fd = tls_fd, .events = POLLOUT };
        if (code == CURLE_AGAIN) (void)poll(&room, 1, 1000);
        if (code != CURLE_OK && code != CURLE_AGAIN) return false;
        at += here;
    }
    return n > 0;
}

static void pass_both_ways(CURL *tls, int fd) {
    curl_socket_t tls_fd = CURL_SOCKET_BAD;
    if (curl_easy_getinfo(tls, CURLINFO_ACTIVESOCKET, &tls_fd) != CURLE_OK) return;
    struct pollfd both[2] = { { .fd = fd, .events = POLLIN }, { .fd = tls_fd, .events = POLLIN } };
    while (pass_answers(tls, fd) && poll(both, 2, 10000) > 0)
        if (both[0].revents && !pass_request(tls, tls_fd, fd)) break;
}

static void *run_link(void *user) {
    struct link *link = user;
    CURL *tls = curl_easy_init();
    char url[60];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", tunnel.server);
    if (tls) {
        curl_easy_setopt(tls, CURLOPT_URL, url);
        curl_easy_setopt(tls, CURLOPT_PROXY, "");
        curl_easy_setopt(tls, CURLOPT_CONNECT_ONLY, 1L);
        curl_easy_setopt(tls, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(tls, CURLOPT_CAINFO, tunnel.trusted);
        curl_easy_setopt(tls, CURLOPT_CAPATH, NULL);
        if (curl_easy_perform(tls) == CURLE_OK) pass_both_ways(tls, link->fd);
    }
    shutdown(link->fd, SHUT_RDWR);
    curl_easy_cleanup(tls);
    return NULL;
}

static void *run_tunnel(void *user) {
    (void)user;
    for (;;) {
        const int fd = accept(tunnel.listener, NULL, NULL);
        if (fd < 0) return NULL;
        struct link *link = &tunnel.links[tunnel.n_links];
        link->fd = fd;
        if (tunnel.n_links == MOST_LINKS || pthread_create(&link->thread, NULL, run_link, link))
            close(fd);
        else
            tunnel.n_links++;
    }
}

static bool open_tunnel(int server) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof here;
    tunnel = (struct tunnel){ .server = server, .trusted = "/tmp/reel-tls-XXXXXX" };
    const int file = mkstemp(tunnel.trusted);
    const ssize_t size = (ssize_t)strlen(certificate);
    const bool kept = file >= 0 && write(file, certificate, strlen(certificate)) == size;
    if (file >= 0) close(file);
    tunnel.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (!kept || bind(tunnel.listener, (struct sockaddr *)&here, n) != 0 ||
        listen(tunnel.listener, 16) != 0 ||
        getsockname(tunnel.listener, (struct sockaddr *)&here, &n) != 0)
        return false;
    tunnel.port = ntohs(here.sin_port);
    return pthread_create(&tunnel.thread, NULL, run_tunnel, NULL) == 0;
}

/* After the server has ended, which ends the links. */
static void close_tunnel(void) {
    shutdown(tunnel.listener, SHUT_RDWR);
    pthread_join(tunnel.thread, NULL);
    close(tunnel.listener);
    for (int i = 0; i < tunnel.n_links; i++) {
        shutdown(tunnel.links[i].fd, SHUT_RDWR);
        pthread_join(tunnel.links[i].thread, NULL);
        close(tunnel.links[i].fd);
    }
    unlink(tunnel.trusted);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static struct spoken spoken;
static struct served served;
static struct reel_error err;

static int get(int port, const char *path) {
    struct http_answer a;
    http_ask(&a, port, &(struct http_request){ .path = path });
    const int code = a.code;
    http_answer_release(&a);
    return code;
}

static void requests_are_answered_over_tls_alone(void **state) {
    (void)state;
    assert_int_equal(get(tunnel.port, "/health"), 200);
    assert_int_equal(get(tunnel.port, "/v1/models"), 200);
    assert_int_equal(get(served.port, "/health"), 0);
}

static void say(int fd, const char *text) { assert_true(ws_send(fd, text, strlen(text))); }

static json_t *hear(int fd) {
    struct buffer text = { 0 };
    json_t *json = NULL;
    assert_true(ws_receive(fd, &text, NULL));
    assert_int_equal(json_read(&json, "an event", text.bytes, text.size, &err), REEL_OK);
    buffer_release(&text);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void expect_event(int fd, const char *type) {
    json_t *event = hear(fd);
    assert_string_equal(text_of(event, "type"), type);
    json_decref(event);
}

#define APPEND "{\"type\":\"input_audio_buffer.append\",\"audio\":\""
#define COMMIT "{\"type\":\"input_audio_buffer.commit\"}"
#define UPDATE                                                                                     \
    "{\"type\":\"session.update\",\"session\":{\"type\":\"transcription\",\"audio\":{\"input\":{"  \
    "\"format\":{\"type\":\"audio/pcm\",\"rate\":16000},\"transcription\":{\"model\":\"speech\"}," \
    "\"turn_detection\":null}}}}"

static int open_session(void) {
    const int fd = ws_connect(tunnel.port, "/v1/realtime?intent=transcription", NULL, NULL);
    assert_true(fd >= 0);
    expect_event(fd, "session.created");
    say(fd, UPDATE);
    expect_event(fd, "session.updated");
    return fd;
}

/* In messages of so many samples. */
static void append_clip(int fd, const struct spoken_clip *clip, size_t most) {
    int16_t *samples = spoken_integers(clip);
    for (size_t at = 0; at < clip->n; at += most) {
        struct buffer m = { 0 };
        const size_t n = clip->n - at < most ? clip->n - at : most;
        assert_int_equal(buffer_text(&m, APPEND, &err), REEL_OK);
        assert_int_equal(base64_write(&m, samples + at, n * 2, &err), REEL_OK);
        assert_int_equal(buffer_text(&m, "\"}", &err), REEL_OK);
        assert_true(ws_send(fd, m.bytes, m.size));
        buffer_release(&m);
    }
    free(samples);
}

/* What the deltas joined and the end said of the item that is committed now. */
static void expect_said(int fd, const char *said) {
    char joined[500] = "";
    json_t *event = hear(fd);
    for (; strstr(text_of(event, "type"), "completed") == NULL; event = hear(fd)) {
        assert_string_not_equal(text_of(event, "type"), "error");
        assert_true(strlen(joined) + strlen(text_of(event, "delta")) < sizeof joined);
        strcat(joined, text_of(event, "delta"));
        json_decref(event);
    }
    assert_string_equal(text_of(event, "transcript"), said);
    assert_string_equal(joined, said);
    json_decref(event);
}

/* In small messages, several to a record of TLS, and in one that takes many records. */
static void live_audio_is_heard_over_tls(void **state) {
    static const size_t sizes[] = { 20, 320, 1 << 20 };
    (void)state;
    const int fd = open_session();
    for (int i = 0; i < 3; i++) {
        append_clip(fd, &spoken.clips[i], sizes[i]);
        say(fd, COMMIT);
        expect_said(fd, spoken.clips[i].said);
    }
    close(fd);
}

/* Two transcribers: those of clients that have left must come free for the next ones. */
static void who_leaves_makes_room_over_tls(void **state) {
    (void)state;
    for (int round = 0; round < 10; round++) {
        const int fd = open_session();
        append_clip(fd, &spoken.clips[3], 320);
        if (round < 8) shutdown(fd, SHUT_RDWR); /* in the middle of an item */
        if (round >= 8) {
            say(fd, COMMIT);
            expect_said(fd, spoken.clips[3].said);
        }
        close(fd);
    }
}

/* Last: the server drains. Clients are told, and their connections end. */
static void sessions_are_closed_over_tls(void **state) {
    struct buffer text = { 0 };
    int fds[4], code = 0;
    (void)state;
    for (int i = 0; i < 4; i++)
        fds[i] = open_session();
    const double start = clock_ms();
    assert_true(server_drain(served.server, 10));
    assert_true(clock_ms() - start < 8000);
    for (int i = 0; i < 4; i++) {
        assert_false(ws_receive(fds[i], &text, &code));
        assert_int_equal(code, 1001);
        close(fds[i]);
    }
    buffer_release(&text);
}

static int enter(void **state) {
    (void)state;
    spoken_open(&spoken);
    served.sources[0] = (struct served_source){ .name = "speech", .folder = "models/speech" };
    served.options.sessions = 2;
    served.options.tls_cert = certificate;
    served.options.tls_key = private_key;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) return -1;
    if (served_open(&served)) return open_tunnel(served.port) ? 0 : -1;
    fprintf(stderr, "%s\n", served.err.text);
    return -1;
}

static int leave(void **state) {
    (void)state;
    served_close(&served);
    close_tunnel();
    spoken_close(&spoken);
    curl_global_cleanup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered_over_tls_alone),
        cmocka_unit_test(live_audio_is_heard_over_tls),
        cmocka_unit_test(who_leaves_makes_room_over_tls),
        cmocka_unit_test(sessions_are_closed_over_tls),
    };
    return cmocka_run_group_tests_name("TLS", tests, enter, leave);
}
