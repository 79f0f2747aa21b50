#include "support/joins.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 2,
    LOOKS_A_HEAP = 16, /* the heap is looked at less often: all threads wait meanwhile */
    TELL_SECONDS = 10,
    SLOW_MS = 3 /* of a callback that takes its time */
};

/* A prompt with its sampling, and what they give alone. */
struct story {
    int32_t *prompt; /* [n_prompt] */
    int n_prompt;
    struct reel_sampling sampling;
    int32_t *alone; /* [most_tokens] */
};

struct joins {
    const struct joins_plan *plan;
    struct story *stories;
    struct worker *workers;
    int context;
    atomic_ullong n_joins, n_tokens, n_sessions, n_cancelled, n_wrong, n_drafted, n_accepted;
    int n_kinds; /* of speculation: 1 where the model takes no drafts, 4 with a draft layer */
    atomic_bool stop;
    pthread_mutex_t mutex;    /* guards what follows */
    char wrong[240];          /* the first */
    enum reel_status failure; /* likewise */
    char failed[500];
};

struct worker {
    struct joins *joins;
    uint64_t random;
    pthread_t thread;
    pthread_mutex_t mutex; /* the session may be cancelled while it is held */
    struct reel_session *session;
    /* The visit at hand. */
    const struct story *story;
    int made;             /* ids so far */
    int in_call, stop_at; /* ids of this call, and after how many a callback ends it; 0: never */
    bool cancels;         /* by reel_session_cancel */
    bool moved;           /* what the session holds came from another one */
    enum reel_speculation kind;
};

static uint64_t draw(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int n) { return (int)(draw(state) % (uint64_t)n); }

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(int ms) {
    const struct timespec t = { 0, ms * 1000000L };
    nanosleep(&t, NULL);
}

static size_t resident_bytes(void) {
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &all, &resident) != 2) resident = 0;
    fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t in_use_bytes(void) {
#if defined(__GLIBC__)
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return 0;
#endif
}

/* ---- what goes wrong ---- */

static void differ(struct worker *w, const char *what, long long found, long long wanted) {
    struct joins *j = w->joins;
    pthread_mutex_lock(&j->mutex);
    if (atomic_fetch_add(&j->n_wrong, 1) == 0)
        snprintf(
            j->wrong, sizeof j->wrong,
            "session of thread %d, story %d with a prompt of %d: %s %lld instead of %lld after "
            "%d ids, speculation %d%s",
            (int)(w - j->workers), (int)(w->story - j->stories), w->story->n_prompt, what, found,
            wanted, w->made, (int)w->kind, w->moved ? ", moved" : "");
    pthread_mutex_unlock(&j->mutex);
    atomic_store(&j->stop, true);
}

static void fail(struct joins *j, enum reel_status status, const char *text) {
    pthread_mutex_lock(&j->mutex);
    if (j->failure == REEL_OK) {
        j->failure = status;
        snprintf(j->failed, sizeof j->failed, "%s", text);
    }
    pthread_mutex_unlock(&j->mutex);
    atomic_store(&j->stop, true);
}

/* ---- a session's way ---- */

static bool hear_id(struct worker *w, int32_t id) {
    if (w->made >= w->joins->plan->most_tokens) {
        differ(w, "an id too many,", id, 0);
        return false;
    }
    if (id != w->story->alone[w->made]) differ(w, "id", id, w->story->alone[w->made]);
    w->made++;
    w->in_call++;
    atomic_fetch_add_explicit(&w->joins->n_tokens, 1, memory_order_relaxed);
    return true;
}

static bool on_token(void *user, const struct reel_token *token) {
    struct worker *w = user;
    if (!hear_id(w, token->id)) return false;
    if (below(&w->random, 64) == 0) nap(below(&w->random, SLOW_MS));
    if (w->in_call != w->stop_at) return true;
    if (w->cancels) reel_session_cancel(w->session);
    return w->cancels;
}

/* Takes ids out one by one, up to n of them. */
static enum reel_status pull(struct worker *w, const struct reel_generation *g, int n,
                             struct reel_generation_result *result, struct reel_error *err) {
    const struct reel_token *token = NULL;
    enum reel_status status = reel_generation_start(w->session, g, err);
    if (status != REEL_OK) return status;
    while (status == REEL_OK && w->in_call < n) {
        status = reel_generation_next(w->session, &token, err);
        if (status != REEL_OK || !token || !hear_id(w, token->id)) break;
    }
    struct reel_error other;
    const enum reel_status finished = reel_generation_finish(w->session, result, &other);
    return status == REEL_OK ? finished : status;
}

/* The session holds the prompt and the ids heard. */
static void check_held(struct worker *w) {
    const struct story *s = w->story;
    const int32_t *ids = reel_session_ids(w->session);
    const int n = reel_session_length(w->session);
    if (n != s->n_prompt + w->made) {
        differ(w, "length", n, s->n_prompt + w->made);
        return;
    }
    for (int i = 0; i < n; i++) {
        const int32_t wanted = i < s->n_prompt ? s->prompt[i] : s->alone[i - s->n_prompt];
        if (ids[i] != wanted) differ(w, "held id", ids[i], wanted);
    }
}

/* One call that generates n ids, ended in one of four ways. *left: it was cancelled. */
static enum reel_status join_once(struct worker *w, int n, bool *left, struct reel_error *err) {
    const int how = below(&w->random, 4);
    struct reel_generation_result result = { .size = sizeof result };
    struct reel_generation g = { .size = sizeof g,
                                 .sampling = &w->story->sampling,
                                 .max_tokens = w->joins->plan->most_tokens - w->made,
                                 .ignore_stop_ids = true,
                                 .on_token = on_token,
                                 .user = w };
    g.speculation = w->kind = (enum reel_speculation)below(&w->random, w->joins->n_kinds);
    w->in_call = 0;
    w->stop_at = how == 1 || how == 3 ? n : 0;
    w->cancels = how == 3;
    if (how == 0) g.max_tokens = n;
    if (how == 2) g.on_token = NULL;
    enum reel_status status =
        how == 2 ? pull(w, &g, n, &result, err) : reel_generate(w->session, &g, &result, err);
    atomic_fetch_add(&w->joins->n_joins, 1);
    if (status != REEL_OK) return status;
    atomic_fetch_add(&w->joins->n_drafted, (uint64_t)result.n_drafted);
    atomic_fetch_add(&w->joins->n_accepted, (uint64_t)result.n_accepted);
    *left = result.reason == REEL_STOP_CANCELLED;
    if (*left) atomic_fetch_add(&w->joins->n_cancelled, 1);
    if (result.n_tokens != w->in_call) differ(w, "count", result.n_tokens, w->in_call);
    if (!*left && how != 3 && w->in_call != n) differ(w, "number of ids", w->in_call, n);
    check_held(w);
    return REEL_OK;
}

static void hold(struct worker *w, struct reel_session *session) {
    pthread_mutex_lock(&w->mutex);
    struct reel_session *old = w->session;
    w->session = session;
    pthread_mutex_unlock(&w->mutex);
    reel_session_close(old);
}

static enum reel_status open_session(struct worker *w, struct reel_session **session,
                                     struct reel_error *err) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = w->joins->context };
    atomic_fetch_add(&w->joins->n_sessions, 1);
    return reel_session_open(session, w->joins->plan->model, &options, err);
}

/* What the session holds goes to a new one, which takes its place. */
static enum reel_status move(struct worker *w, struct reel_error *err) {
    struct reel_session *other = NULL;
    enum reel_status status = open_session(w, &other, err);
    if (status == REEL_OK && below(&w->random, 2) == 0) {
        status = reel_session_copy(other, w->session, err);
    } else if (status == REEL_OK) {
        const size_t n = reel_session_snapshot_bytes(w->session);
        void *bytes = malloc(n);
        if (!bytes) abort();
        status = reel_session_snapshot(w->session, bytes, n, err);
        if (status == REEL_OK) status = reel_session_restore(other, bytes, n, err);
        free(bytes);
    }
    if (status == REEL_OK)
        hold(w, other);
    else
        reel_session_close(other);
    return status;
}

/* A session reads a story's prompt, generates some of it in one call or several, and leaves. Its
 * prompt is read in one call from nothing on, as alone: cuts may round otherwise. */
static enum reel_status visit(struct worker *w, struct reel_error *err) {
    struct joins *j = w->joins;
    enum reel_status status = REEL_OK;
    w->story = &j->stories[below(&w->random, j->plan->n_stories)];
    w->made = 0;
    if (!w->session || below(&w->random, 2) == 0) {
        struct reel_session *session = NULL;
        status = open_session(w, &session, err);
        if (status == REEL_OK) hold(w, session);
    }
    if (status == REEL_OK) status = reel_session_truncate(w->session, 0, err);
    if (status == REEL_OK)
        status = reel_session_sync(w->session, w->story->prompt, w->story->n_prompt, NULL, err);
    w->moved = status == REEL_OK && j->plan->copies && below(&w->random, 8) == 0;
    if (w->moved) status = move(w, err);
    const int n = 1 + below(&w->random, j->plan->most_tokens);
    bool left = false;
    while (status == REEL_OK && !left && w->made < n && !atomic_load(&j->stop))
        status = join_once(w, 1 + below(&w->random, n - w->made), &left, err);
    if (status != REEL_E_CANCELLED) return status;
    atomic_fetch_add(&j->n_cancelled, 1); /* in its prompt */
    return REEL_OK;
}

static void *work(void *of) {
    struct worker *w = of;
    struct reel_error err = { 0 };
    while (!atomic_load(&w->joins->stop)) {
        const enum reel_status status = visit(w, &err);
        if (status != REEL_OK) fail(w->joins, status, err.text);
    }
    hold(w, NULL);
    return NULL;
}

/* ---- stories ---- */

/* Every other prompt begins as the one before it, for a while. */
static enum reel_status tell_story(struct joins *j, int index, uint64_t *random, int vocab,
                                   struct reel_error *err) {
    const struct joins_plan *plan = j->plan;
    struct story *s = &j->stories[index];
    struct reel_session *session = NULL;
    struct worker w = { .joins = j, .story = s };
    s->n_prompt = 1 + below(random, plan->longest_prompt);
    s->prompt = calloc((size_t)s->n_prompt, sizeof *s->prompt);
    s->alone = calloc((size_t)plan->most_tokens, sizeof *s->alone);
    if (!s->prompt || !s->alone) abort();
    for (int i = 0; i < s->n_prompt; i++)
        s->prompt[i] = below(random, vocab);
    if (index % 2 == 1) {
        const struct story *before = s - 1;
        const int most = before->n_prompt < s->n_prompt ? before->n_prompt : s->n_prompt;
        memcpy(s->prompt, before->prompt, (size_t)(1 + below(random, most)) * sizeof *s->prompt);
    }
    s->sampling = (struct reel_sampling){ .size = sizeof s->sampling, .seed = draw(random) };
    if (index % 4 >= 1) s->sampling.temperature = 0.8f;
    if (index % 4 == 2) s->sampling.top_k = 20;
    if (index % 4 == 3) s->sampling.repetition_penalty = 1.2f;
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = &s->sampling,
                                       .max_tokens = plan->most_tokens,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_OFF };
    enum reel_status status = open_session(&w, &session, err);
    if (status == REEL_OK) status = reel_session_sync(session, s->prompt, s->n_prompt, NULL, err);
    if (status == REEL_OK) status = reel_generate(session, &g, NULL, err);
    if (status == REEL_OK)
        memcpy(s->alone, reel_session_ids(session) + s->n_prompt,
               (size_t)plan->most_tokens * sizeof *s->alone);
    reel_session_close(session);
    return status;
}

static enum reel_status tell_stories(struct joins *j, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    uint64_t random = j->plan->seed;
    enum reel_status status = reel_model_get_info(j->plan->model, &info, err);
    j->n_kinds = info.most_drafts == 0 ? 1 : info.draft_layers == 0 ? 3 : 4;
    if (j->plan->n_kinds > 0 && j->plan->n_kinds < j->n_kinds) j->n_kinds = j->plan->n_kinds;
    for (int i = 0; i < j->plan->n_stories && status == REEL_OK; i++)
        status = tell_story(j, i, &random, info.vocab, err);
    return status;
}

/* ---- watching ---- */

static void cancel_somebody(struct joins *j, uint64_t *random) {
    struct worker *w = &j->workers[below(random, j->plan->n_threads)];
    pthread_mutex_lock(&w->mutex);
    reel_session_cancel(w->session);
    pthread_mutex_unlock(&w->mutex);
}

/* How much of the joins or of the time is over: 1 is all. */
static double part_done(const struct joins *j, double seconds) {
    const struct joins_plan *plan = j->plan;
    double part = 0;
    if (plan->n_joins > 0) part = (double)atomic_load(&j->n_joins) / (double)plan->n_joins;
    if (plan->seconds > 0 && seconds / plan->seconds > part) part = seconds / plan->seconds;
    return part;
}

/* A mean that is being made of one of struct joins_memory's thirds. */
struct mean {
    double sum;
    uint64_t n;
};

struct thirds {
    struct mean of[3];
};

static void look(struct joins_memory *m, struct thirds *thirds, double part, size_t bytes) {
    struct mean *mean = &thirds->of[part < 1.0 / 3 ? 0 : part < 2.0 / 3 ? 1 : 2];
    mean->sum += (double)bytes;
    mean->n++;
    if ((double)bytes > m->most) m->most = (double)bytes;
}

static double mean_of(const struct mean *mean) { return mean->n ? mean->sum / (double)mean->n : 0; }

/* A run may be so short that nobody looked in its second third. */
static void conclude_memory(struct joins_memory *m, const struct thirds *thirds) {
    const int early = thirds->of[1].n ? 1 : 2;
    m->early = mean_of(&thirds->of[early]);
    m->late = mean_of(&thirds->of[2]);
}

static void watch(struct joins *j, struct joins_result *result) {
    struct thirds resident = { 0 }, in_use = { 0 };
    const double start = now_s();
    double told = start, part = 0;
    uint64_t random = j->plan->seed + 1;
    for (int i = 0; part < 1 && !atomic_load(&j->stop); i++) {
        const double now = now_s();
        const size_t bytes = resident_bytes();
        part = part_done(j, now - start);
        look(&result->resident, &resident, part, bytes);
        if (i % LOOKS_A_HEAP == 0 || part >= 1)
            look(&result->in_use, &in_use, part, in_use_bytes());
        if (j->plan->tell && now - told >= TELL_SECONDS) {
            told = now;
            j->plan->tell(atomic_load(&j->n_joins), atomic_load(&j->n_tokens), now - start, bytes);
        }
        if (below(&random, 8) == 0 && !j->plan->calm) cancel_somebody(j, &random);
        nap(LOOK_MS);
    }
    result->seconds = now_s() - start;
    conclude_memory(&result->resident, &resident);
    conclude_memory(&result->in_use, &in_use);
    atomic_store(&j->stop, true);
}

static void run_workers(struct joins *j, struct joins_result *result) {
    const int n = j->plan->n_threads;
    uint64_t random = j->plan->seed + 2;
    int started = 0;
    for (int i = 0; i < n; i++) {
        struct worker *w = &j->workers[i];
        *w = (struct worker){ .joins = j, .random = draw(&random) };
        pthread_mutex_init(&w->mutex, NULL);
    }
    for (; started < n; started++)
        if (pthread_create(&j->workers[started].thread, NULL, work, &j->workers[started]) != 0) {
            fail(j, REEL_E_MEMORY, "a thread cannot be started");
            break;
        }
    watch(j, result);
    for (int i = 0; i < started; i++)
        pthread_join(j->workers[i].thread, NULL);
    for (int i = 0; i < n; i++)
        pthread_mutex_destroy(&j->workers[i].mutex);
}

static enum reel_status conclude(struct joins *j, struct joins_result *result,
                                 struct reel_error *err) {
    result->n_joins = atomic_load(&j->n_joins);
    result->n_tokens = atomic_load(&j->n_tokens);
    result->n_sessions = atomic_load(&j->n_sessions);
    result->n_cancelled = atomic_load(&j->n_cancelled);
    result->n_drafted = atomic_load(&j->n_drafted);
    result->n_accepted = atomic_load(&j->n_accepted);
    result->n_wrong = atomic_load(&j->n_wrong);
    memcpy(result->wrong, j->wrong, sizeof result->wrong);
    if (result->n_wrong > 0) {
        snprintf(err->text, sizeof err->text, "%s", j->wrong);
        return err->status = REEL_E_MISMATCH;
    }
    if (j->failure != REEL_OK) snprintf(err->text, sizeof err->text, "%s", j->failed);
    return err->status = j->failure;
}

enum reel_status joins_run(const struct joins_plan *plan, struct joins_result *result,
                           struct reel_error *err) {
    struct joins j = { .plan = plan,
                       .mutex = PTHREAD_MUTEX_INITIALIZER,
                       .context = plan->longest_prompt + plan->most_tokens + 2,
                       .stories = calloc((size_t)plan->n_stories, sizeof *j.stories),
                       .workers = calloc((size_t)plan->n_threads, sizeof *j.workers) };
    *result = (struct joins_result){ 0 };
    if (!j.stories || !j.workers) abort();
    enum reel_status status = tell_stories(&j, err);
    if (status == REEL_OK) {
        run_workers(&j, result);
        status = conclude(&j, result, err);
    }
    for (int i = 0; i < plan->n_stories; i++) {
        free(j.stories[i].prompt);
        free(j.stories[i].alone);
    }
    free(j.stories);
    free(j.workers);
    return status;
}
