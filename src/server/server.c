/* A server's life: listening, loading, draining, ending. */
#include "server/exchange_state.h"
#include "server/prefixes.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define SAVE_AFTER_MS                                                                              \
    1000 /* a session idles before it is saved: a conversation's next turn comes first */
#define OTHER_THREADS 64 /* handlers beside those that wait for a session or have one */

void server_log(const struct server *server, enum server_log_kind kind, const char *format, ...) {
    char line[2048];
    va_list list;
    if (!server->options.log) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    server->options.log(server->options.log_user, kind, line);
}

static void set_defaults(struct server_options *o) {
    if (!o->host) o->host = "127.0.0.1";
    if (!o->max_connections) o->max_connections = 2048;
    if (!o->max_body) o->max_body = (size_t)64 << 20;
    if (!(o->max_audio_seconds > 0)) o->max_audio_seconds = 4 * 3600.0;
    if (!o->queue) o->queue = 64;
    if (!o->timeout_s) o->timeout_s = 60;
    if (!o->sessions) o->sessions = 4;
    if (!o->prefix_bytes) o->prefix_bytes = (size_t)4 << 30;
}

/* A connection is a descriptor; the soft limit is often 1,024. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void server_limit_heaps(void) {
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

static void client_left(void *user) {
    struct exchange *x = user;
    exchange_left(x);
}

static bool client_reads(void *user) {
    struct exchange *x = user;
    return exchange_room(x);
}

static void save_idle(void *user) { models_save_idle(user, SAVE_AFTER_MS); }

static void log_prefix(void *user, const char *line) {
    server_log(user, SERVER_LOG_WARNING, "%s", line);
}

static enum reel_status open_prefixes(struct server *s, struct reel_error *err) {
    const struct prefixes_options options = { .folder = s->options.prefix_dir,
                                              .most_bytes = s->options.prefix_bytes,
                                              .look = save_idle,
                                              .log = log_prefix,
                                              .user = s };
    return options.folder ? prefixes_open(&s->prefixes, &options, err) : REEL_OK;
}

static enum reel_status prepare(struct server *s, struct reel_error *err) {
    static const struct watch_calls calls = { .left = client_left, .room = client_reads };
    const struct server_options *o = &s->options;
    enum reel_status status = keys_set(&s->keys, o->keys, o->n_keys, err);
    if (status == REEL_OK) status = models_open(s, err);
    if (status == REEL_OK) status = open_prefixes(s, err);
    if (status == REEL_OK) status = metrics_open(&s->metrics, err);
    if (status == REEL_OK)
        status = crew_open(
            &s->crew, (o->queue + o->sessions) * o->n_models + OTHER_THREADS + SERVER_MOST_LIVE,
            err);
    if (status == REEL_OK) status = watch_open(&s->watch, o->timeout_s * 1e3, &calls, err);
    return status;
}

enum reel_status server_open(struct server **out, const struct server_options *options,
                             struct reel_error *err) {
    struct server *s = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "a server", err);
    if (status != REEL_OK) return status;
    s->options = *options;
    s->listener = -1;
    set_defaults(&s->options);
    keys_init(&s->keys);
    allow_descriptors();
    if (getrandom(&s->born, sizeof s->born, 0) != sizeof s->born) s->born = (uint64_t)time(NULL);
    status = prepare(s, err);
    if (status == REEL_OK) status = http_start(s, err);
    if (status != REEL_OK) {
        server_close(s, NULL);
        return status;
    }
    *out = s;
    return REEL_OK;
}

int server_port(const struct server *server) { return server->port; }

enum reel_status server_set_keys(struct server *server, const char *const *keys, int n_keys,
                                 struct reel_error *err) {
    if (n_keys == 0 && !server->loopback && !server->options.insecure)
        return err_set(err, REEL_E_ARGUMENT, "no key is left; others can reach this address");
    return keys_set(&server->keys, keys, n_keys, err);
}

bool server_drain(struct server *server, double seconds) {
    const struct timespec while_ms = { .tv_nsec = 5000000 };
    double until = clock_ms() + seconds * 1e3;
    /* It goes on listening, and refuses: in the queue of a socket that nobody accepts from, a
     * balancer's request would wait for the end of the drain. */
    atomic_store(&server->draining, true);
    while (atomic_load(&server->n_active) > 0 && clock_ms() < until &&
           !atomic_load(&server->ending))
        nanosleep(&while_ms, NULL);
    return atomic_load(&server->n_active) == 0;
}

void server_close(struct server *s, void (*close)(void *user, struct reel_model *model)) {
    if (!s) return;
    atomic_store(&s->draining, true);
    atomic_store(&s->ending, true);
    models_end(s);
    if (s->watch) watch_end(s->watch);
    /* The HTTP side may still receive requests: it asks the crew, which takes none any more. Only
     * now is no connection suspended, which the library insists on when it stops. */
    crew_end(s->crew);
    http_stop(s);
    prefixes_end(s->prefixes);
    if (s->prefixes) models_save_idle(s, 0);
    prefixes_close(s->prefixes);
    crew_close(s->crew);
    watch_close(s->watch);
    metrics_close(s->metrics);
    models_close(s, close);
    keys_release(&s->keys);
    mem_free(s);
}
