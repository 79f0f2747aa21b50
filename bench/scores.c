/* What log-probabilities cost sessions that decode together, and those beside them.
 *
 *   scores MODEL [KEY=VALUE ...]
 *
 *   device=D      as --device of reel; default gpu      cache=FOLDER   of compiled kernels
 *   sessions=N    8, a thread each, which opens one after the other
 *   scored=N      1: those with log-probabilities
 *   tokens=N      200: of a session
 *   seconds=S     5, after all have made one and two seconds more
 *   options=TEXT  gpu_options of the model
 *
 * Prints CSV lines: what,value,unit. Every session of a thread must make the ids of its first one;
 * `ids` is a hash of these, the same whatever is scored. */
#include "arguments.h"
#include "base/clock.h"
#include "reel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, PROMPT = 8 };

struct talk {
    struct reel_model *model;
    int nth, n_tokens;
    bool scored;
    int n_generation;          /* ids of the generation at hand */
    uint64_t hash, first;      /* of its ids; of the first one's */
    bool whole, differs;       /* the first is there; a later one was another */
    long n_counted;            /* ids while it counts */
    double last_ms, worst_gap; /* between two ids of a generation */
};

static atomic_bool counts, over;

static void need(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "scores: %s\n", err->text);
    exit(1);
}

static bool on_token(void *user, const struct reel_token *token) {
    struct talk *t = user;
    const double now = clock_ms();
    t->hash = (t->hash ^ (uint64_t)token->id) * 1099511628211u;
    if (atomic_load(&counts)) {
        t->n_counted++;
        if (t->n_generation > 0 && now - t->last_ms > t->worst_gap) t->worst_gap = now - t->last_ms;
    }
    t->last_ms = now;
    t->n_generation++;
    return !atomic_load(&over);
}

static void *talk(void *of) {
    struct talk *t = of;
    struct reel_error err = { 0 };
    struct reel_session *s = NULL;
    int32_t ids[PROMPT];
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = PROMPT + t->n_tokens };
    const struct reel_generation set = { .size = sizeof set,
                                         .max_tokens = t->n_tokens,
                                         .ignore_stop_ids = true,
                                         .n_top_logprobs = t->scored ? 5 : 0,
                                         .on_token = on_token,
                                         .user = t };
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (t->nth * 977 + i * 331 + 1) % 1000;
    while (!atomic_load(&over)) {
        need(reel_session_open(&s, t->model, &options, &err), &err);
        need(reel_session_sync(s, ids, PROMPT, NULL, &err), &err);
        t->n_generation = 0, t->hash = 0;
        need(reel_generate(s, &set, NULL, &err), &err);
        reel_session_close(s);
        if (t->n_generation < t->n_tokens) break;
        if (!t->whole) t->first = t->hash, t->whole = true;
        t->differs = t->differs || t->hash != t->first;
    }
    return NULL;
}

static void sleep_s(double s) {
    const struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };
    nanosleep(&t, NULL);
}

static void print(const char *what, const struct talk *talks, int n, bool scored, double seconds) {
    long made = 0;
    double gap = 0;
    int of = 0;
    for (int i = 0; i < n; i++) {
        if (talks[i].scored != scored) continue;
        of++, made += talks[i].n_counted;
        if (talks[i].worst_gap > gap) gap = talks[i].worst_gap;
    }
    if (of == 0) return;
    printf("%s sessions,%d,\n%s: a session,%.1f,tok/s\n%s: worst gap,%.3f,ms\n", what, of, what,
           (double)made / seconds / of, what, gap);
}

int main(int argc, char **argv) {
    static struct talk talks[MOST];
    pthread_t threads[MOST];
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    if (argc < 2) {
        fputs("usage: scores MODEL [KEY=VALUE ...]\n", stderr);
        return 2;
    }
    const char *device = text_of(argc, argv, "device");
    const int n = (int)number_of(argc, argv, "sessions", 8);
    const int n_scored = (int)number_of(argc, argv, "scored", 1);
    const int n_tokens = (int)number_of(argc, argv, "tokens", 200);
    const double seconds = number_of(argc, argv, "seconds", 5);
    if (n < 1 || n > MOST) {
        fprintf(stderr, "scores: sessions is %d; allowed is 1 to %d\n", n, MOST);
        return 2;
    }
    if (n_scored < 0 || n_scored > n || n_tokens < 1) {
        fprintf(stderr, "scores: scored is %d, tokens is %d; allowed are 0 to %d, and 1 or more\n",
                n_scored, n_tokens, n);
        return 2;
    }
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = device ? device : "gpu",
                                                .cache_dir = text_of(argc, argv, "cache"),
                                                .gpu_options = text_of(argc, argv, "options") };
    need(reel_model_open(&model, argv[1], &options, &err), &err);
    for (int i = 0; i < n; i++) {
        talks[i] =
            (struct talk){ .model = model, .nth = i, .n_tokens = n_tokens, .scored = i < n_scored };
        if (pthread_create(&threads[i], NULL, talk, &talks[i]) != 0) abort();
    }
    for (int i = 0; i < n; i++) /* programs may have to be compiled first */
        for (int waited = 0; !talks[i].whole && waited < 600; waited++)
            sleep_s(0.1);
    sleep_s(2);
    const double start = clock_ms();
    atomic_store(&counts, true);
    sleep_s(seconds);
    atomic_store(&counts, false);
    const double took = (clock_ms() - start) / 1000;
    atomic_store(&over, true);
    uint64_t ids = 0;
    bool differs = false;
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        ids = (ids ^ talks[i].first) * 1099511628211u;
        differs = differs || talks[i].differs || !talks[i].whole;
    }
    reel_model_close(model);
    printf("ids,%016llx,\n", (unsigned long long)ids);
    if (differs) {
        puts("ids differ");
        return 1;
    }
    print("plain", talks, n, false, took);
    print("scored", talks, n, true, took);
    return 0;
}
