/* What the server adds to the library: a model that makes tokens by the clock, and clients on
 * loopback that note when each arrives.
 *
 * server_load latency [TOKENS] [MS]: one stream of a token every millisecond, or every MS, beside
 *     reel_generate.
 * server_load streams [N] [SECONDS]: N streams of 50 tokens a second, each with a clock of its own;
 *     1,000 idle connections.
 * server_load batched [N] [SECONDS]: N streams (8) through the runtime's turns and passes, as users
 *     have them: 50 passes a second, of up to 8 columns each.
 *
 * Clients that are rude are server_soak.c's. The server's threads share one core; the clients have
 * the others. Tokens are made by tests/support/paced_model.h behind the demo model's tokenizer and
 * template. Prints CSV lines: what,value,unit. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/clock.h"
#include "base/memory.h"
#include "runtime/model_handle.h"
#include "server/server.h"

#include "cli/demo_model.h"
#include "tests/support/paced_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- a model that keeps time ---- */

enum { MOST_TOKENS = 20000 };

static double made_ms[MOST_TOKENS]; /* when each of the last answer was made */
static bool note_made;
static _Atomic double pass_ms; /* when the last pass was made */

static double monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void on_made(int i) {
    const double now = monotonic_ms();
    if (note_made && i < MOST_TOKENS) made_ms[i] = now;
    atomic_store(&pass_ms, now);
}

static struct paced paced = { .token_ms = 1, .max_context = MOST_TOKENS + 100, .on_made = on_made };

static enum reel_status open_model(void *user, struct reel_model **model, struct reel_error *err) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .chat_template = "chatml", .n_threads = 1
    };
    (void)user;
    enum reel_status status = reel_model_open_memory(model, "demo", files, n, &options, err);
    return status == REEL_OK ? paced_model_make(*model, &paced, err) : status;
}
static void close_model(void *user, struct reel_model *model) {
    (void)user;
    reel_model_close(model);
}

/* ---- threads and cores ---- */

/* Of the calling thread and those it makes: one core, or all but that one. */
static void stay(bool on_first) {
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    for (size_t i = 0; i < (size_t)n && i < CPU_SETSIZE; i++)
        if ((i == 0) == on_first || n == 1) CPU_SET(i, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double thread_cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double process_cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long all = 0, resident = 0;
    if (f && fscanf(f, "%lu %lu", &all, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double part_of(double *values, int n, double part) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n ? values[(int)((n - 1) * part)] : 0;
}

static void say(const char *what, double value, const char *unit) {
    printf("%s,%.6g,%s\n", what, value, unit);
    fflush(stdout);
}

static void fail(const char *what) {
    fprintf(stderr, "server_load: %s\n", what);
    exit(1);
}

/* ---- clients ---- */

static int server_port_number;

static int connect_to_server(void) {
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)server_port_number),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("cannot connect");
    return fd;
}

static void send_chat(int fd, int n_tokens, bool stream) {
    char body[300], text[600];
    int n = snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}],"
                     "\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":0,\"stream\":%s}",
                     n_tokens, stream ? "true" : "false");
    int all = snprintf(text, sizeof text,
                       "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                       "Content-Length: %d\r\n\r\n%s",
                       n, body);
    if (send(fd, text, (size_t)all, MSG_NOSIGNAL) != all) fail("cannot send");
}

/* Counts "data: " in what comes, across pieces; true once the stream has ended. */
struct counter {
    int n_events;
    char tail[16];
    size_t n_tail;
    bool done;
};

static int count_events(struct counter *c, const char *bytes, size_t n) {
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        if (c->n_tail == sizeof c->tail - 1) memmove(c->tail, c->tail + 1, --c->n_tail);
        c->tail[c->n_tail++] = bytes[i];
        c->tail[c->n_tail] = '\0';
        if (bytes[i] == '{' && c->n_tail >= 7 && memcmp(c->tail + c->n_tail - 7, "data: {", 7) == 0)
            found++;
        if (bytes[i] == ']' && c->n_tail >= 6 && memcmp(c->tail + c->n_tail - 6, "[DONE]", 6) == 0)
            c->done = true;
    }
    c->n_events += found;
    return found;
}

/* ---- latency ---- */

static double read_ms[MOST_TOKENS];

/* Reads one stream; when its i-th event came stands in read_ms. */
static int read_stream(int fd) {
    struct counter c = { 0 };
    char bytes[16384];
    while (!c.done) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        double now = monotonic_ms();
        if (n <= 0) fail("the stream broke off");
        int before = c.n_events;
        count_events(&c, bytes, (size_t)n);
        for (int i = before; i < c.n_events && i < MOST_TOKENS; i++)
            read_ms[i] = now;
    }
    return c.n_events;
}

static int library_tokens;
static bool on_library_token(void *user, const struct reel_token *token) {
    (void)user;
    (void)token;
    if (library_tokens < MOST_TOKENS) read_ms[library_tokens++] = monotonic_ms();
    return true;
}

static void report_times(const char *name, double start, int n) {
    static double intervals[MOST_TOKENS], ways[MOST_TOKENS];
    char what[100];
    for (int i = 1; i < n; i++)
        intervals[i - 1] = read_ms[i] - read_ms[i - 1];
    for (int i = 0; i < n; i++)
        ways[i] = (read_ms[i] - made_ms[i]) * 1e3;
    snprintf(what, sizeof what, "%s: time to first token", name);
    say(what, read_ms[0] - start, "ms");
    snprintf(what, sizeof what, "%s: between tokens, median", name);
    say(what, part_of(intervals, n - 1, 0.5) * 1e3, "us");
    snprintf(what, sizeof what, "%s: between tokens, mean", name);
    say(what, (read_ms[n - 1] - read_ms[0]) / (n - 1) * 1e3, "us");
    snprintf(what, sizeof what, "%s: between tokens, p99", name);
    say(what, part_of(intervals, n - 1, 0.99) * 1e3, "us");
    snprintf(what, sizeof what, "%s: from made to read, median", name);
    say(what, part_of(ways, n, 0.5), "us");
    snprintf(what, sizeof what, "%s: from made to read, p99", name);
    say(what, part_of(ways, n, 0.99), "us");
}

/* Time to first token of short answers, median of some: one token each. */
static double first_token_over_http(int rounds) {
    double *times = calloc((size_t)rounds, sizeof *times);
    int fd = connect_to_server();
    for (int i = 0; i < rounds; i++) {
        double start = monotonic_ms();
        send_chat(fd, 1, true);
        read_stream(fd);
        times[i] = read_ms[0] - start;
        struct pollfd more = { .fd = fd, .events = POLLIN };
        char rest[100];
        while (poll(&more, 1, 5) > 0 && recv(fd, rest, sizeof rest, 0) > 0) {
        }
    }
    close(fd);
    double median = part_of(times, rounds, 0.5);
    free(times);
    return median;
}

/* A thread of the server's core that has neither HTTP nor a model: it answers each request with an
 * event, a token's time later. */
static void *answer_bare(void *user) {
    static const char event[] = "data: {}\n\ndata: [DONE]\n\n";
    const int listener = *(const int *)user;
    char request[1000];
    stay(true);
    const int fd = accept(listener, NULL, NULL);
    while (recv(fd, request, sizeof request, 0) > 0) {
        paced_wait_until(monotonic_ms() + paced.token_ms);
        if (send(fd, event, sizeof event - 1, MSG_NOSIGNAL) < 0) break;
    }
    close(fd);
    return NULL;
}

/* What the kernel alone takes: two cores that wake, and the way there and back. */
static double first_token_of_bare_sockets(int rounds) {
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof address;
    const int server = server_port_number;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t thread;
    if (bind(listener, (struct sockaddr *)&address, n) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &n) != 0 ||
        pthread_create(&thread, NULL, answer_bare, (void *)&listener) != 0)
        fail("no bare server");
    server_port_number = ntohs(address.sin_port);
    const double median = first_token_over_http(rounds);
    pthread_join(thread, NULL);
    close(listener);
    server_port_number = server;
    return median;
}

static double first_token_of_library(struct reel_model *model, struct reel_session *session,
                                     int rounds) {
    double *times = calloc((size_t)rounds, sizeof *times);
    struct reel_message message = { .size = sizeof message,
                                    .role = "user",
                                    .content = "Once upon a time" };
    struct reel_chat_options chat = { .size = sizeof chat };
    for (int i = 0; i < rounds; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        struct reel_error err;
        double start = monotonic_ms();
        library_tokens = 0;
        struct reel_generation g = {
            .size = sizeof g, .max_tokens = 1, .ignore_stop_ids = true, .on_token = on_library_token
        };
        if (reel_chat_ids(model, &message, 1, &chat, &ids, &n, &err) != REEL_OK ||
            reel_session_sync(session, ids, (int)n, NULL, &err) != REEL_OK ||
            reel_generate(session, &g, NULL, &err) != REEL_OK)
            fail(err.text);
        times[i] = read_ms[0] - start;
        reel_free(ids);
    }
    double median = part_of(times, rounds, 0.5);
    free(times);
    return median;
}

static void run_latency(int n_tokens) {
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    struct reel_session_options options = { .size = sizeof options };
    struct reel_error err;
    note_made = true;
    if (open_model(NULL, &model, &err) != REEL_OK ||
        reel_session_open(&session, model, &options, &err) != REEL_OK)
        fail(err.text);
    say("library: first token, median", first_token_of_library(model, session, 201), "ms");
    struct reel_generation g = { .size = sizeof g,
                                 .max_tokens = n_tokens,
                                 .ignore_stop_ids = true,
                                 .on_token = on_library_token };
    double start = monotonic_ms();
    library_tokens = 0;
    if (reel_generate(session, &g, NULL, &err) != REEL_OK) fail(err.text);
    report_times("library", start, library_tokens);
    reel_session_close(session);
    reel_model_close(model);
    say("bare sockets: first token, median", first_token_of_bare_sockets(201), "ms");
    say("server: first token, median", first_token_over_http(201), "ms");
    int fd = connect_to_server();
    start = monotonic_ms();
    send_chat(fd, n_tokens, true);
    if (read_stream(fd) != n_tokens) fail("not every token came as an event");
    report_times("server", start, n_tokens);
    close(fd);
}

/* ---- many streams ---- */

enum { IDLE = 1000 };

/* Of streams in passes, how long ago the last pass was made is also known for each event. */
static void run_streams(int n_streams, double seconds) {
    int n_tokens = (int)(seconds * 50);
    int *idle = calloc(IDLE, sizeof *idle);
    struct counter *counters = calloc((size_t)n_streams, sizeof *counters);
    struct pollfd *fds = calloc((size_t)n_streams, sizeof *fds);
    double *last = calloc((size_t)n_streams, sizeof *last);
    double *intervals = calloc((size_t)n_streams * (size_t)n_tokens, sizeof *intervals);
    double *ways = calloc((size_t)n_streams * (size_t)n_tokens, sizeof *ways);
    int n_intervals = 0, n_ways = 0, left = n_streams;
    char bytes[65536];
    paced.token_ms = 20;
    for (int i = 0; i < IDLE; i++)
        idle[i] = connect_to_server();
    size_t before = resident_bytes();
    for (int i = 0; i < n_streams; i++) {
        fds[i] = (struct pollfd){ connect_to_server(), POLLIN, 0 };
        send_chat(fds[i].fd, n_tokens, true);
    }
    double start = monotonic_ms(), cpu = process_cpu_s(), own = thread_cpu_s();
    while (left > 0) {
        if (poll(fds, (nfds_t)n_streams, 10000) <= 0) fail("no token for ten seconds");
        double now = monotonic_ms();
        for (int i = 0; i < n_streams; i++) {
            if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            ssize_t n = recv(fds[i].fd, bytes, sizeof bytes, 0);
            if (n <= 0) fail("a stream broke off");
            int found = count_events(&counters[i], bytes, (size_t)n);
            if (found && last[i] > 0 && n_intervals < n_streams * n_tokens)
                intervals[n_intervals++] = now - last[i];
            if (found) last[i] = now;
            if (found && n_ways < n_streams * n_tokens)
                ways[n_ways++] = monotonic_ms() - atomic_load(&pass_ms);
            if (!counters[i].done) continue;
            if (counters[i].n_events != n_tokens) fail("a stream lost tokens");
            fds[i].fd = -fds[i].fd - 1; /* poll passes it over */
            left--;
        }
    }
    double wall = (monotonic_ms() - start) / 1e3;
    say("streams", n_streams, "");
    say("idle connections beside", IDLE, "");
    say("tokens each", n_tokens, "");
    say("tokens a second, all", n_streams * n_tokens / wall, "1/s");
    say("between tokens, median", part_of(intervals, n_intervals, 0.5), "ms");
    say("between tokens, p99", part_of(intervals, n_intervals, 0.99), "ms");
    say("between tokens, worst", part_of(intervals, n_intervals, 1), "ms");
    if (paced.batched) {
        say("from made to read, median", part_of(ways, n_ways, 0.5) * 1e3, "us");
        say("from made to read, p99", part_of(ways, n_ways, 0.99) * 1e3, "us");
    }
    say("server's cores", (process_cpu_s() - cpu - (thread_cpu_s() - own)) / wall, "");
    say("resident, before the streams", (double)before / 1e6, "MB");
    say("resident, after", (double)resident_bytes() / 1e6, "MB");
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    for (int i = 0; i < n_streams; i++)
        close(-fds[i].fd - 1);
    free(idle);
    free(counters);
    free(fds);
    free(last);
    free(intervals);
    free(ways);
}

/* ---- */

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "latency";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    struct reel_error err = { 0 };
    struct server *server = NULL;
    const struct server_model model = { .name = "demo", .open = open_model };
    struct server_options options = { .models = &model,
                                      .n_models = 1,
                                      .sessions = 64,
                                      .context = MOST_TOKENS + 100,
                                      .timeout_s = 600,
                                      .queue = 256 };
    server_limit_heaps();
    paced.batched = strcmp(what, "batched") == 0;
    stay(true);
    if (server_open(&server, &options, &err) != REEL_OK || server_load(server, &err) != REEL_OK)
        fail(err.text);
    server_port_number = server_port(server);
    stay(false);
    if (strcmp(what, "latency") == 0) {
        if (argc > 3) paced.token_ms = atof(argv[3]);
        run_latency(n ? n : 2000);
    } else if (strcmp(what, "streams") == 0 || paced.batched) {
        run_streams(n ? n : paced.batched ? PACED_COLUMNS : 64, argc > 3 ? atof(argv[3]) : 10);
    } else {
        fail("latency, streams or batched");
    }
    server_close(server, close_model);
    return 0;
}
