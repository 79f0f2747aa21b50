/* Clients that read slowly, leave, or are too many, against a model that makes tokens by the clock:
 * what they cost, whom they keep waiting, and in what order. */
#include "base/clock.h"
#include "server/server_state.h"
#include "tests/support/fake_backend.h"
#include "tests/support/http_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/served.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH  "/v1/completions"
#define GO_ON "\"ignore_eos\":true,\"stream\":true"

static void wait_ms(int ms) {
    nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

/* ---- a server, and what its log says ---- */

/* One line for each answer, in the order in which they ended. */
struct journal {
    pthread_mutex_t lock;
    int n;
    struct {
        char id[24];
        int code, n_generated;
    } lines[64];
};

static void on_log(void *user, enum server_log_kind kind, const char *line) {
    struct journal *j = user;
    const char *made = strstr(line, "generated ");
    char id[24];
    int code = 0;
    if (kind != SERVER_LOG_ACCESS || !made) return;
    if (sscanf(line, "%*s %23s %*s %*s %d", id, &code) != 2) return;
    pthread_mutex_lock(&j->lock);
    if (j->n < 64) {
        snprintf(j->lines[j->n].id, sizeof j->lines[j->n].id, "%s", id);
        j->lines[j->n].code = code;
        (void)sscanf(made, "generated %d", &j->lines[j->n].n_generated);
        j->n++;
    }
    pthread_mutex_unlock(&j->lock);
}

/* The place of this request's line, waited for; -1: none came. */
static int line_of(struct journal *j, const char *id, int most_ms) {
    int at = -1;
    for (int ms = 0; ms <= most_ms && at < 0; ms += 5, wait_ms(5)) {
        pthread_mutex_lock(&j->lock);
        for (int i = 0; i < j->n; i++)
            if (strcmp(j->lines[i].id, id) == 0) at = i;
        pthread_mutex_unlock(&j->lock);
    }
    return at;
}

/* Every token is the letter a. */
static int32_t letters[FAKE_CONTEXT];

static void open_fake(struct served *s, struct fake_settings *set, struct journal *j) {
    set->script = letters;
    set->n_script = FAKE_CONTEXT;
    *j = (struct journal){ .n = 0 };
    pthread_mutex_init(&j->lock, NULL);
    s->sources[0] = (struct served_source){ .name = "fake", .fake = set };
    s->options.log = on_log;
    s->options.log_user = j;
    if (!served_open(s)) fail_msg("%s", s->err.text);
}

static void close_fake(struct served *s, struct journal *j) {
    served_close(s);
    pthread_mutex_destroy(&j->lock);
}

static int send_named(const struct served *s, const char *id, const char *body) {
    char headers[60];
    int fd = http_connect(s->port);
    assert_true(fd >= 0);
    snprintf(headers, sizeof headers, "X-Request-Id: %s\r\n", id);
    assert_true(http_send_request(
        fd, &(struct http_request){ .path = PATH, .headers = headers, .body = body }));
    return fd;
}

static int code_of(const struct served *s, const char *body) {
    struct http_answer answer;
    http_ask(&answer, s->port, &(struct http_request){ .path = PATH, .body = body });
    const int code = answer.code;
    http_answer_release(&answer);
    return code;
}

static int count(const char *in, const char *what) {
    int n = 0;
    for (const char *at = in; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Until so many events have come; how many came. */
static int read_events(int fd, int least) {
    char bytes[4096];
    int n = 0;
    while (n < least) {
        const ssize_t got = recv(fd, bytes, sizeof bytes - 1, 0);
        assert_true(got > 0);
        bytes[got] = '\0';
        n += count(bytes, "data: ");
    }
    return n;
}

static void wait_for_line(const struct served *s, int n_waiting) {
    struct pool_figures figures = { 0 };
    for (int ms = 0; ms < 5000; ms++, wait_ms(1)) {
        session_pool_figures(server_find_model(s->server, "fake", false), &figures);
        if (figures.n_waiting == n_waiting) return;
    }
    fail_msg("%d wait instead of %d", figures.n_waiting, n_waiting);
}

/* ---- who leaves ---- */

/* Events that have come already. */
static int drop_events(int fd) {
    char bytes[4096];
    int n = 0;
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes - 1, MSG_DONTWAIT)) > 0;) {
        bytes[got] = '\0';
        n += count(bytes, "data: ");
    }
    return n;
}

/* Leaves a stream in the middle; how many tokens were made that it did not read. A machine that
 * stops this thread at the wrong moment makes the round worth nothing: -1. */
static int made_after_leaving(const struct served *s, struct fake_settings *set, struct journal *j,
                              int round, double pace_ms) {
    char id[20];
    snprintf(id, sizeof id, "left-%d", round);
    int fd = send_named(s, id, "{\"prompt\":[1,2],\"max_tokens\":1000," GO_ON "}");
    int n_read = read_events(fd, 3);
    const double start = clock_ms();
    n_read += drop_events(fd);
    const int before = atomic_load(&set->n_positions);
    close(fd);
    const bool stopped = clock_ms() - start > pace_ms / 4;
    /* stands in line behind the one that was left */
    assert_int_equal(code_of(s, "{\"prompt\":[3,4],\"max_tokens\":1}"), 200);
    const int after = atomic_load(&set->n_positions), at = line_of(j, id, 2000);
    assert_true(at >= 0);
    /* two of the next prompt, its token and the one that it runs ahead */
    if (!stopped && after - before > 1 + 2 + 2) fail_msg("%d positions more", after - before);
    return stopped ? -1 : j->lines[at].n_generated - n_read;
}

/* What is made after the client has left is at most the token that was being made. */
static void a_place_is_free_within_one_token(void **state) {
    enum { PACE_MS = 50 };
    (void)state;
    for (int way = 0; way < 3; way++) { /* eval by eval, in passes, by a decode that runs ahead */
        struct fake_settings set = { .eval_ms = PACE_MS,
                                     .columns = way == 1 ? 8 : 0,
                                     .decodes = way == 2 };
        struct served s = { .options = { .sessions = 1 } };
        struct journal j;
        int n_good = 0;
        open_fake(&s, &set, &j);
        for (int round = 0; round < 20 && n_good < 2; round++) {
            const int n = made_after_leaving(&s, &set, &j, round, PACE_MS);
            if (n > 1) fail_msg("%d tokens were made for nobody", n);
            n_good += n >= 0;
        }
        assert_int_equal(n_good, 2);
        close_fake(&s, &j);
    }
}

/* ---- who reads slowly ---- */

static long resident_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int slow_connection(int port) {
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int small = 2048;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A stream of some 15 MB. The client is cut off when more than STREAM_MOST wait for it, not after
 * the time that it would take to read them. */
static void a_reader_of_one_byte_a_second_is_cut_off(void **state) {
    enum { N = 8 * 1900 };
    static const char body[] =
        "{\"prompt\":[1,2],\"max_tokens\":1900,\"n\":8,\"logprobs\":20," GO_ON "}";
    struct fake_settings set = { .eval_ms = 0 };
    struct served s = { .options = { .sessions = 1 } };
    struct journal j;
    char bytes[16384], byte;
    size_t n = 0;
    ssize_t got;
    bool whole = false;
    (void)state;
    open_fake(&s, &set, &j);
    const long before = resident_kb();
    int fd = slow_connection(s.port);
    const struct http_request request = { .path = PATH,
                                          .headers = "X-Request-Id: slow\r\n",
                                          .body = body };
    assert_true(http_send_request(fd, &request));
    for (int i = 0; i < 2; i++, wait_ms(1000))
        assert_int_equal(recv(fd, &byte, 1, 0), 1);
    const int at = line_of(&j, "slow", 30000);
    assert_true(at >= 0);
    assert_in_range(j.lines[at].n_generated, 1000, N - 1);
    const long more = resident_kb() - before;
    assert_int_equal(code_of(&s, "{\"prompt\":[3,4],\"max_tokens\":1}"),
                     200); /* its place is free */
    for (int ms = 0; ms < 2000 && watch_connections(s.server->watch) > 0; ms += 10)
        wait_ms(10);
    assert_int_equal(watch_connections(s.server->watch), 0); /* and its connection is */
    while ((got = recv(fd, bytes, sizeof bytes - 1, 0)) > 0) {
        bytes[got] = '\0';
        n += (size_t)got;
        whole = whole || strstr(bytes, "[DONE]");
    }
    assert_false(whole);
    assert_true(n < ((size_t)12 << 20));
    close(fd);
    close_fake(&s, &j);
    /* a sanitizer's own memory says nothing */
    if (!SANITIZED && more > 24 << 10) fail_msg("%ld kB more", more);
}

/* One that reads as slowly, but of which no more than that waits, reads all of it. */
static void a_slow_reader_of_a_short_answer_is_not(void **state) {
    struct fake_settings set = { .eval_ms = 1 };
    struct served s = { .options = { .timeout_s = 2 } };
    struct journal j;
    char bytes[65536];
    size_t n = 0;
    ssize_t got = 1;
    (void)state;
    open_fake(&s, &set, &j);
    int fd = slow_connection(s.port);
    const struct http_request request = { .path = PATH,
                                          .headers = "Connection: close\r\n",
                                          .body =
                                              "{\"prompt\":[1,2],\"max_tokens\":100," GO_ON "}" };
    assert_true(http_send_request(fd, &request));
    for (int i = 0; i < 20; i++, wait_ms(50)) {
        assert_int_equal(recv(fd, bytes + n, 1, 0), 1);
        n++;
    }
    while (got > 0 && n < sizeof bytes - 1) {
        got = recv(fd, bytes + n, sizeof bytes - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
    }
    bytes[n] = '\0';
    assert_non_null(strstr(bytes, "[DONE]"));
    assert_int_equal(count(bytes, "\"text\":\"a\""), 100);
    close(fd);
    close_fake(&s, &j);
}

/* ---- who is too many ---- */

static void who_finds_the_line_full_is_told_to_come_back(void **state) {
    static const char body[] = "{\"prompt\":[1,2],\"max_tokens\":1500," GO_ON "}";
    struct fake_settings set = { .eval_ms = 5 };
    struct served s = { .options = { .sessions = 1, .queue = 2 } };
    struct journal j;
    char value[256];
    int fds[3];
    (void)state;
    open_fake(&s, &set, &j);
    fds[0] = send_named(&s, "runs", body);
    read_events(fds[0], 1);
    for (int i = 1; i < 3; i++)
        fds[i] = send_named(&s, "waits", body);
    wait_for_line(&s, 2);
    struct http_answer answer;
    const double start = clock_ms();
    http_ask(&answer, s.port, &(struct http_request){ .path = PATH, .body = body });
    const double ms = clock_ms() - start;
    assert_int_equal(answer.code, 503);
    assert_non_null(http_header(&answer, "Retry-After", value));
    if (!strstr(answer.body.bytes, "2 requests wait for fake already (--queue)"))
        fail_msg("%s", answer.body.bytes);
    if (!SANITIZED && ms > 500) fail_msg("it waited for %.0f ms", ms);
    http_answer_release(&answer);
    close(fds[1]); /* there is room again */
    wait_for_line(&s, 1);
    close(fds[0]);
    close(fds[2]);
    assert_int_equal(code_of(&s, "{\"prompt\":[1],\"max_tokens\":1}"), 200);
    close_fake(&s, &j);
}

/* Requests that share nothing and all of their prompt with the session in turn: neither goes first.
 */
static void who_comes_first_is_served_first(void **state) {
    enum { N = 10 };
    static const char *const bodies[] = { "{\"prompt\":[1,2,1,1,1,1],\"max_tokens\":15}",
                                          "{\"prompt\":[9,8,7],\"max_tokens\":15}" };
    struct fake_settings set = { .eval_ms = 2 };
    struct served s = { .options = { .sessions = 1 } };
    struct journal j;
    int fds[N], first, last = -1;
    (void)state;
    open_fake(&s, &set, &j);
    first = send_named(&s, "runs", "{\"prompt\":[1,2,1,1],\"max_tokens\":1500," GO_ON "}");
    read_events(first, 1);
    for (int i = 0; i < N; i++) {
        char id[20];
        snprintf(id, sizeof id, "in-line-%d", i);
        fds[i] = send_named(&s, id, bodies[i * 7 % 3 == 0]);
        wait_for_line(&s, i + 1);
    }
    close(first);
    for (int i = 0; i < N; i++) {
        char id[20];
        snprintf(id, sizeof id, "in-line-%d", i);
        const int at = line_of(&j, id, 5000);
        assert_true(at >= 0);
        assert_int_equal(j.lines[at].code, 200);
        if (at <= last) fail_msg("%s was served too early", id);
        last = at;
        close(fds[i]);
    }
    close_fake(&s, &j);
}

/* The bodies of four of the largest requests are held at once. */
static void bodies_of_all_clients_together_are_bounded(void **state) {
    enum { MOST = 65536, PART = MOST - 500 };
    static char part[PART];
    struct fake_settings set = { .eval_ms = 0 };
    struct served s = { .options = { .max_body = MOST } };
    struct journal j;
    char head[200];
    int fds[4];
    (void)state;
    open_fake(&s, &set, &j);
    memset(part, ' ', sizeof part);
    snprintf(head, sizeof head,
             "POST " PATH " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", MOST);
    for (int i = 0; i < 4; i++) {
        fds[i] = http_connect(s.port);
        assert_true(http_send(fds[i], head, strlen(head)));
        assert_true(http_send(fds[i], part, sizeof part));
    }
    for (int ms = 0; ms < 5000 && atomic_load(&s.server->body_bytes) < 4 * PART; ms++)
        wait_ms(1);
    assert_int_equal(atomic_load(&s.server->body_bytes), 4 * PART);
    struct http_answer answer;
    const struct http_request request = { .path = PATH, .body = part, .n_body = 4000 };
    http_ask(&answer, s.port, &request);
    assert_int_equal(answer.code, 503);
    assert_non_null(strstr(answer.body.bytes, "bodies of other requests"));
    http_answer_release(&answer);
    close(fds[0]);
    for (int ms = 0; ms < 5000 && atomic_load(&s.server->body_bytes) > 3 * PART; ms++)
        wait_ms(1);
    http_ask(&answer, s.port, &request); /* it is read again: blanks are no JSON */
    assert_int_equal(answer.code, 400);
    http_answer_release(&answer);
    for (int i = 1; i < 4; i++)
        close(fds[i]);
    for (int ms = 0; ms < 5000 && atomic_load(&s.server->body_bytes) > 0; ms++)
        wait_ms(1);
    assert_int_equal(atomic_load(&s.server->body_bytes), 0);
    close_fake(&s, &j);
}

/* Whether a client that comes now is answered within so long. */
static bool is_answered(const struct served *s, int most_ms) {
    char bytes[500];
    int fd = http_connect(s->port);
    if (fd < 0) return false;
    (void)http_send_request(fd, &(struct http_request){ .path = "/health" });
    struct pollfd p = { .fd = fd, .events = POLLIN };
    const bool answered = poll(&p, 1, most_ms) > 0 && recv(fd, bytes, sizeof bytes, 0) > 0;
    close(fd);
    return answered;
}

static void connections_are_bounded(void **state) {
    enum { MOST = 5 };
    struct fake_settings set = { .eval_ms = 0 };
    struct served s = { .options = { .max_connections = MOST } };
    struct journal j;
    int fds[MOST];
    (void)state;
    open_fake(&s, &set, &j);
    for (int i = 0; i < MOST; i++) {
        assert_true(is_answered(&s, 2000));
        for (int ms = 0; ms < 2000 && watch_connections(s.server->watch) > i; ms++)
            wait_ms(1);
        fds[i] = http_connect(s.port);
        assert_true(fds[i] >= 0);
        for (int ms = 0; ms < 2000 && watch_connections(s.server->watch) <= i; ms++)
            wait_ms(1);
    }
    assert_int_equal(watch_connections(s.server->watch), MOST);
    assert_false(is_answered(&s, 300));
    assert_int_equal(watch_connections(s.server->watch), MOST);
    close(fds[0]);
    bool answered = false;
    for (int i = 0; i < 20 && !answered; i++)
        answered = is_answered(&s, 200);
    assert_true(answered);
    for (int i = 1; i < MOST; i++)
        close(fds[i]);
    close_fake(&s, &j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_is_free_within_one_token),
        cmocka_unit_test(a_reader_of_one_byte_a_second_is_cut_off),
        cmocka_unit_test(a_slow_reader_of_a_short_answer_is_not),
        cmocka_unit_test(who_finds_the_line_full_is_told_to_come_back),
        cmocka_unit_test(who_comes_first_is_served_first),
        cmocka_unit_test(bodies_of_all_clients_together_are_bounded),
        cmocka_unit_test(connections_are_bounded),
    };
    return cmocka_run_group_tests_name("clients at the server's limits", tests, NULL, NULL);
}
