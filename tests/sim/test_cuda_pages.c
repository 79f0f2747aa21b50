/* Pages of K and V on the fake GPU: sessions whose pages lie anywhere and are shared, and a pool
 * that is full. */
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4,poison=1"

enum {
    PAGE = 128,          /* positions; the least that prompts of this model allow */
    N_PROMPT = PAGE - 4, /* generating goes on into the next page */
    N_NEW = 12,
    POOL_PAGES = 16 /* of kv_pool_mb=1 */
};

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    int32_t prompt[N_PROMPT], expected[N_NEW]; /* of a session alone */
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static struct reel_session *open_session(struct fixture *f) {
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, NULL, &f->err), f);
    return s;
}

static void load(struct fixture *f, const char *options) {
    char all[200];
    if (f->m.gpu) sim_model_unload(&f->m);
    snprintf(all, sizeof all, SMALL "%s%s", *options ? "," : "", options);
    good(sim_model_load(&f->m, all, &f->err), f);
}

static const struct cuda_pool *pool_of(const struct fixture *f) { return &f->m.gpu->backend->pool; }
static const struct cuda_pages *pages_of(const struct reel_session *s) { return &s->state->pages; }

struct listener {
    int32_t ids[N_NEW];
    int n;
};

static bool listen(void *user, const struct reel_token *token) {
    struct listener *l = user;
    l->ids[l->n++] = token->id;
    return true;
}

static enum reel_stop_reason generate(struct fixture *f, struct reel_session *s, int n,
                                      struct listener *l) {
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation g = {
        .size = sizeof g, .max_tokens = n, .ignore_stop_ids = true, .on_token = listen, .user = l
    };
    good(reel_generate(s, &g, &result, &f->err), f);
    return result.reason;
}

static void sync_to(struct fixture *f, struct reel_session *s, int n) {
    good(reel_session_sync(s, f->prompt, n, NULL, &f->err), f);
}

/* What a session that holds the prompt generates is what one alone does. */
static void assert_generates(struct fixture *f, struct reel_session *s) {
    struct listener l = { .n = 0 };
    assert_int_equal(generate(f, s, N_NEW, &l), REEL_STOP_MAX_TOKENS);
    assert_memory_equal(l.ids, f->expected, sizeof l.ids);
}

/* A session of that many positions of zeros. */
static struct reel_session *fill_pages(struct fixture *f, int n_pages) {
    struct reel_session *s = open_session(f);
    const size_t n = f->m.gpu->ops->save_bytes(s->state, n_pages * PAGE);
    void *zeros = calloc(1, n);
    assert_non_null(zeros);
    good(f->m.gpu->ops->restore(s->state, n_pages * PAGE, zeros, n, &f->err), f);
    free(zeros);
    return s;
}

static int start(void **state) {
    static struct fixture f;
    struct listener l = { .n = 0 };
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = 4;
    for (int i = 0; i < N_PROMPT; i++)
        f.prompt[i] = (i * 37 + i * i) % 250;
    sim_model_open(&f.m, "q3-a");
    load(&f, "");
    struct reel_session *s = open_session(&f);
    sync_to(&f, s, N_PROMPT);
    generate(&f, s, N_NEW, &l);
    memcpy(f.expected, l.ids, sizeof f.expected);
    reel_session_close(s);
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

/* ---- tests ---- */

static void a_session_takes_pages_as_it_grows(void **state) {
    struct fixture *f = *state;
    load(f, "");
    struct reel_session *s = open_session(f);
    assert_true(reel_session_max_context(s) > 100 * PAGE);
    assert_int_equal(pool_of(f)->n_pieces, 0);
    sync_to(f, s, 10);
    assert_int_equal(pool_of(f)->n_used, 1);
    sync_to(f, s, N_PROMPT);
    assert_int_equal(pool_of(f)->n_used, 1);
    assert_generates(f, s);
    assert_int_equal(pool_of(f)->n_used, 2);
    good(reel_session_truncate(s, PAGE, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, 1);
    good(reel_session_truncate(s, 0, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, 0);
    reel_session_close(s);
    assert_int_equal(pool_of(f)->n_pieces, 0);
}

static void pages_may_lie_anywhere(void **state) {
    struct fixture *f = *state;
    load(f, "");
    struct reel_session *before = fill_pages(f, 2), *s = open_session(f);
    sync_to(f, s, N_PROMPT);
    struct reel_session *behind = fill_pages(f, 1);
    reel_session_close(before);
    assert_generates(f, s);
    assert_int_equal(pages_of(s)->n, 2);
    assert_true(pages_of(s)->page[1] < pages_of(s)->page[0]);
    reel_session_close(behind);
    reel_session_close(s);
}

static void copies_share_pages_until_they_write(void **state) {
    struct fixture *f = *state;
    load(f, "");
    struct reel_session *s = open_session(f), *copy = open_session(f), *third = open_session(f);
    sync_to(f, s, N_PROMPT);
    const size_t n = reel_session_snapshot_bytes(s);
    unsigned char *bytes = malloc(n), *now = malloc(n);
    assert_non_null(bytes);
    assert_non_null(now);
    good(reel_session_snapshot(s, bytes, n, &f->err), f);
    good(reel_session_copy(copy, s, &f->err), f);
    good(reel_session_copy(third, copy, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, 1);
    assert_generates(f, copy);
    assert_int_equal(pool_of(f)->n_used, 3); /* its own first page, and a second one */
    good(reel_session_snapshot(s, now, n, &f->err), f);
    assert_memory_equal(bytes, now, n);
    assert_generates(f, s);
    good(reel_session_snapshot(third, now, n, &f->err), f);
    assert_memory_equal(bytes, now, n);
    assert_generates(f, third);
    assert_int_equal(pool_of(f)->n_used, 6);
    reel_session_close(copy);
    assert_int_equal(pool_of(f)->n_used, 4);
    /* whole pages stay shared */
    good(reel_session_truncate(s, PAGE + 1, &f->err), f);
    good(reel_session_copy(third, s, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, 2);
    sync_to(f, third, 1); /* rewrites its only token's position at most */
    reel_session_close(third);
    reel_session_close(s);
    assert_int_equal(pool_of(f)->n_used, 0);
    free(bytes), free(now);
}

/* A session with the prompt, and one that has all other pages of the pool. */
static struct reel_session *fill_pool(struct fixture *f, struct reel_session **s) {
    struct reel_session *large = fill_pages(f, POOL_PAGES - 1);
    *s = open_session(f);
    sync_to(f, *s, N_PROMPT);
    assert_int_equal(pool_of(f)->n_used, POOL_PAGES);
    return large;
}

static void a_full_pool_ends_a_generation(void **state) {
    static const char *const launches[] = { "kv_pool_mb=1", "kv_pool_mb=1,launch_tokens=1" };
    enum { LEFT = PAGE - N_PROMPT + 1 }; /* ids: the last one is not evaluated */
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        struct listener l = { .n = 0 };
        struct reel_session *s = NULL;
        load(f, launches[i]);
        struct reel_session *large = fill_pool(f, &s);
        assert_int_equal(generate(f, s, N_NEW, &l), REEL_STOP_MEMORY);
        assert_string_equal(f->err.text, "");
        assert_int_equal(l.n, LEFT);
        assert_int_equal(reel_session_length(s), N_PROMPT + LEFT);
        reel_session_close(large);
        assert_int_equal(generate(f, s, N_NEW - LEFT, &l), REEL_STOP_MAX_TOKENS);
        assert_memory_equal(l.ids, f->expected, sizeof l.ids);
        reel_session_close(s);
    }
}

static void a_full_pool_refuses_who_has_nothing(void **state) {
    struct fixture *f = *state;
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation g = { .size = sizeof g, .max_tokens = N_NEW };
    struct reel_session *s = NULL;
    load(f, "kv_pool_mb=1");
    struct reel_session *late = open_session(f), *large = fill_pool(f, &s);
    assert_int_equal(reel_session_sync(late, f->prompt, 3, NULL, &f->err), REEL_E_MEMORY);
    if (!strstr(f->err.text, "the pool of K and V is full: it holds 16 pages of 128 positions"))
        fail_msg("%s", f->err.text);
    assert_non_null(strstr(f->err.text, "kv_pool_mb"));
    /* not one id: that is a failure, too */
    good(reel_session_copy(late, s, &f->err), f);
    assert_int_equal(reel_generate(late, &g, &result, &f->err), REEL_E_MEMORY);
    assert_int_equal(result.n_tokens, 0);
    good(reel_session_truncate(late, 0, &f->err), f);
    /* some pages are there, but not all: it takes none */
    reel_session_close(s);
    const size_t n = f->m.gpu->ops->save_bytes(late->state, 2 * PAGE);
    void *zeros = calloc(1, n);
    assert_non_null(zeros);
    assert_int_equal(f->m.gpu->ops->restore(late->state, 2 * PAGE, zeros, n, &f->err),
                     REEL_E_MEMORY);
    assert_int_equal(pages_of(late)->n, 0);
    assert_int_equal(pool_of(f)->n_used, POOL_PAGES - 1);
    free(zeros);
    reel_session_close(large);
    sync_to(f, late, N_PROMPT);
    assert_generates(f, late);
    reel_session_close(late);
}

/* Whoever writes has all pages from there on to himself, also those that he held already. */
static void what_is_written_is_not_shared(void **state) {
    enum { PAGES = 4, FROM = PAGE + 10 };
    struct fixture *f = *state;
    load(f, "");
    struct reel_session *s = fill_pages(f, PAGES), *copy = open_session(f);
    good(f->m.gpu->ops->copy(copy->state, s->state, PAGES * PAGE, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, PAGES);
    f->gpu.cuda->only = "cuMemcpyDtoDAsync_v2"; /* the page's copy fails: nothing has changed */
    f->gpu.cuda->fail_call = f->gpu.cuda->fail_with = 1;
    assert_int_equal(cuda_pages_reach_all(copy->state, FROM, PAGES * PAGE, &f->err), REEL_E_DEVICE);
    f->gpu.cuda->only = NULL;
    f->gpu.cuda->fail_call = 0;
    assert_int_equal(pages_of(s)->n, PAGES);
    assert_int_equal(pool_of(f)->n_used, PAGES);
    f->m.gpu->ops->keep(copy->state, 0);
    assert_int_equal(pool_of(f)->n_used, PAGES);
    good(f->m.gpu->ops->copy(copy->state, s->state, PAGES * PAGE, &f->err), f);
    good(cuda_pages_reach_all(copy->state, FROM, PAGES * PAGE, &f->err), f);
    assert_int_equal(pages_of(copy)->page[0], pages_of(s)->page[0]);
    for (int i = 1; i < PAGES; i++)
        for (int j = 0; j < PAGES; j++)
            assert_int_not_equal(pages_of(copy)->page[i], pages_of(s)->page[j]);
    assert_int_equal(pool_of(f)->n_used, 2 * PAGES - 1);
    reel_session_close(copy);
    reel_session_close(s);
}

/* ---- what the pool may take ---- */

/* As if so much of the GPU's memory were free, in pages and a rest, of `total` bytes. */
static void leave_free(struct fixture *f, size_t total, size_t n_free) {
    f->gpu.cuda->gpu.memory_bytes = total;
    f->gpu.cuda->gpu.taken_bytes = total - n_free - f->gpu.cuda->live.bytes;
}

/* Without a limit it leaves a reserve: a sixteenth of a small GPU, 256 MB of a large one. With a
 * limit it takes what there is up to that. */
static void a_pool_takes_what_it_may(void **state) {
    static const size_t small = 512u << 20, large = (size_t)64 << 30, page = 64 << 10;
    static const struct {
        const char *options;
        size_t total, reserve;
        int n_free, n; /* pages */
    } cases[] = {
        { "", small, small / 16, 3, 3 },      { "", large, 256u << 20, 5, 5 },
        { "", small, small / 16, 0, 0 },      { "", small, 0, 3, 0 },
        { "kv_pool_mb=1", small, 0, 3, 3 },   { "kv_pool_mb=1", small, 0, 99, 16 },
        { "kv_pool_mb=3", small, 0, 99, 48 }, { "kv_page=256,kv_pool_mb=1", small, 0, 99, 1 },
    };
    struct fixture *f = *state;
    struct fake_cuda *cuda = f->gpu.cuda;
    const size_t bytes = cuda->gpu.memory_bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load(f, cases[i].options);
        assert_int_equal(pool_of(f)->n_pieces, 0);
        struct reel_session *s = open_session(f);
        const bool large_pages = strstr(cases[i].options, "kv_page") != NULL;
        int reached = 0;
        leave_free(f, cases[i].total, cases[i].reserve + (size_t)cases[i].n_free * page + page / 2);
        const enum reel_status status =
            cuda_pages_reach(s->state, 0, reel_session_max_context(s), &reached, &f->err);
        const int n = pool_of(f)->n_used;
        print_message("%s, %d pages free: %d\n", cases[i].options, cases[i].n_free, n);
        assert_int_equal(n, cases[i].n);
        assert_int_equal(pool_of(f)->n_pieces, n);
        assert_int_equal(status, n > 0 ? REEL_OK : REEL_E_MEMORY);
        assert_int_equal(reached, n * PAGE * (large_pages ? 32 : 1));
        cuda->gpu.memory_bytes = bytes, cuda->gpu.taken_bytes = 0;
        reel_session_close(s);
        assert_int_equal(pool_of(f)->n_pieces, 0);
    }
}

/* More slabs than the list of them has room for at first. */
static void a_pool_has_many_slabs(void **state) {
    enum { N = 6, PAGES = 100, FIRST_ROOM = 16 };
    struct fixture *f = *state;
    struct reel_session *many[N];
    load(f, "");
    struct reel_session *s = open_session(f);
    sync_to(f, s, N_PROMPT);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            many[i] = open_session(f);
            good(cuda_pages_reach_all(many[i]->state, 0, PAGES * PAGE, &f->err), f);
        }
        assert_int_equal(pool_of(f)->n_used, N * PAGES + 1);
        assert_in_range(pool_of(f)->n_pieces, N * PAGES + 1, N * PAGES + SLAB_PIECES);
        assert_int_equal(pool_of(f)->room, 2 * FIRST_ROOM); /* places are taken again */
        for (int i = 0; i < N; i++)
            reel_session_close(many[i]);
        assert_int_equal(pool_of(f)->n_used, 1);
        assert_int_equal(pool_of(f)->n_pieces, 2 * SLAB_PIECES); /* and one slab for the next */
    }
    assert_generates(f, s);
    reel_session_close(s);
    assert_int_equal(pool_of(f)->n_pieces, 0);
}

/* ---- waiting for memory ---- */

enum { N_SHORT = 3 };

/* A session that decodes, slowly and again and again, on a thread of its own. */
struct decoder {
    struct fixture *f;
    struct reel_session *session;
    pthread_t thread;
    enum reel_status status;
    atomic_int n;
    atomic_bool stop;
};

static bool hear(void *user, const struct reel_token *token) {
    struct decoder *d = user;
    const struct timespec t = { 0, 2000000 };
    (void)token;
    nanosleep(&t, NULL);
    atomic_fetch_add(&d->n, 1);
    return !atomic_load(&d->stop);
}

static void *decode(void *of) {
    struct decoder *d = of;
    struct reel_error err;
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = PAGE - 2 * N_SHORT, /* no second page */
                                       .ignore_stop_ids = true,
                                       .on_token = hear,
                                       .user = d };
    do {
        d->status = reel_session_truncate(d->session, N_SHORT, &err);
        if (d->status == REEL_OK) d->status = reel_generate(d->session, &g, NULL, &err);
    } while (d->status == REEL_OK && !atomic_load(&d->stop));
    return NULL;
}

/* A session that reads a prompt of a few ids on a thread of its own, for which there is no page. */
struct newcomer {
    struct fixture *f;
    struct reel_session *session;
    pthread_t thread;
    enum reel_status status;
    struct reel_error err;
    atomic_bool over;
};

static void *read_prompt(void *of) {
    struct newcomer *n = of;
    n->status = reel_session_sync(n->session, n->f->prompt, N_SHORT, NULL, &n->err);
    atomic_store(&n->over, true);
    return NULL;
}

static void wait_for_ids(struct decoder *d, int n) {
    const struct timespec t = { 0, 1000000 };
    const int enough = atomic_load(&d->n) + n;
    while (atomic_load(&d->n) < enough)
        nanosleep(&t, NULL);
}

enum ends { GIVEN_BACK, OTHERS_STOP, CANCELLED };

/* While another session decodes, who reads a prompt waits for a page. */
static void wait_for_a_page(struct fixture *f, enum ends ends) {
    struct decoder d = { .f = f, .session = open_session(f) };
    struct newcomer n = { .f = f, .session = open_session(f) };
    sync_to(f, d.session, N_SHORT);
    struct reel_session *large = fill_pages(f, POOL_PAGES - 1);
    assert_int_equal(pthread_create(&d.thread, NULL, decode, &d), 0);
    wait_for_ids(&d, 2);
    assert_int_equal(pthread_create(&n.thread, NULL, read_prompt, &n), 0);
    wait_for_ids(&d, 4);
    assert_false(atomic_load(&n.over));
    if (ends == GIVEN_BACK) f->m.gpu->ops->keep(large->state, 0);
    if (ends == OTHERS_STOP) atomic_store(&d.stop, true);
    if (ends == CANCELLED) reel_session_cancel(n.session);
    pthread_join(n.thread, NULL);
    atomic_store(&d.stop, true);
    pthread_join(d.thread, NULL);
    good(d.status, f);
    static const enum reel_status expected[] = {
        [GIVEN_BACK] = REEL_OK, [OTHERS_STOP] = REEL_E_MEMORY, [CANCELLED] = REEL_E_CANCELLED
    };
    if (n.status != expected[ends]) fail_msg("%d: %s", ends, n.err.text);
    assert_int_equal(reel_session_length(n.session), ends == GIVEN_BACK ? N_SHORT : 0);
    assert_int_equal(pages_of(n.session)->n, ends == GIVEN_BACK ? 1 : 0);
    reel_session_close(large);
    sync_to(f, n.session, 2 * N_SHORT); /* it can go on, whatever has come before */
    assert_int_equal(reel_session_length(n.session), 2 * N_SHORT);
    reel_session_close(n.session);
    reel_session_close(d.session);
    assert_int_equal(pool_of(f)->n_used, 0);
}

static void a_prompt_waits_for_memory_while_others_compute(void **state) {
    struct fixture *f = *state;
    load(f, "kv_pool_mb=1");
    wait_for_a_page(f, GIVEN_BACK);
    wait_for_a_page(f, OTHERS_STOP);
    wait_for_a_page(f, CANCELLED);
}

/* ---- as bytes ---- */

struct saved {
    unsigned char *bytes;
    size_t n;
};

/* *n_copies: between host and device. */
static struct saved save(struct fixture *f, const struct reel_session *s, int *n_copies) {
    struct saved saved = { NULL, reel_session_snapshot_bytes(s) };
    saved.bytes = malloc(saved.n);
    assert_non_null(saved.bytes);
    f->gpu.cuda->n_host_copies = 0;
    good(reel_session_snapshot(s, saved.bytes, saved.n, &f->err), f);
    *n_copies = f->gpu.cuda->n_host_copies;
    return saved;
}

static struct reel_session *restore(struct fixture *f, const struct saved *saved, int *n_copies) {
    struct reel_session *s = open_session(f);
    f->gpu.cuda->n_host_copies = 0;
    good(reel_session_restore(s, saved->bytes, saved->n, &f->err), f);
    *n_copies = f->gpu.cuda->n_host_copies;
    return s;
}

/* A page goes in one copy, whatever the number of its rows, or in few where it is larger than the
 * buffer; the last row goes in one more. What is saved does not depend on how. */
static void a_page_is_saved_and_restored_in_one_copy(void **state) {
    static const struct {
        const char *options;
        int n_copies;
    } ways[] = { { "", 2 }, /* pages */
                 { "kv_page=32,stage_kb=1024", 1 },
                 { "kv_page=32,stage_kb=64", 4 }, /* rows of 64 KB, each in a copy */
                 { "kv_page=32,stage_kb=128", 2 },
                 { "kv_page=32,stage_kb=192", 2 } }; /* three rows, and one */
    enum { N_SAVED = PAGE + 9 };
    struct fixture *f = *state;
    struct saved first = { NULL, 0 };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += sanitized_briefly() ? 2 : 1) {
        struct listener l = { .n = 0 };
        int32_t ids[N_SAVED];
        int n_saved = 0, n_restored = 0;
        load(f, ways[i].options);
        for (int j = 0; j < N_SAVED; j++)
            ids[j] = f->prompt[j % N_PROMPT];
        struct reel_session *s = open_session(f);
        good(reel_session_sync(s, ids, N_SAVED, NULL, &f->err), f);
        const struct saved saved = save(f, s, &n_saved);
        struct reel_session *again = restore(f, &saved, &n_restored);
        print_message("%s: %d and %d copies\n", ways[i].options, n_saved, n_restored);
        const int last_row = s->state->last_row_end > 0;
        assert_int_equal(n_saved, ways[i].n_copies + last_row);
        assert_int_equal(n_restored, ways[i].n_copies + last_row);
        int n_again = 0;
        const struct saved same = save(f, again, &n_again);
        assert_memory_equal(saved.bytes, same.bytes, saved.n);
        free(same.bytes);
        if (i == 0)
            first = saved;
        else
            assert_memory_equal(saved.bytes, first.bytes, first.n);
        generate(f, again, 1, &l);
        generate(f, s, 1, &l);
        assert_int_equal(l.ids[0], l.ids[1]);
        if (i > 0) free(saved.bytes);
        reel_session_close(again);
        reel_session_close(s);
    }
    free(first.bytes);
}

/* ---- what is left behind ---- */

/* What malloc has handed out: the fake GPU's memory is among it. Zero under the sanitizers. */
static size_t malloced_bytes(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* One that opens, reads, is copied and saved, and leaves; every other one decodes, too. */
static void come_and_go(struct fixture *f, int i) {
    struct reel_session *s = open_session(f), *copy = open_session(f), *restored = open_session(f);
    struct listener l = { .n = 0 };
    sync_to(f, s, 1 + i % 7);
    good(reel_session_copy(copy, s, &f->err), f);
    const size_t n = reel_session_snapshot_bytes(copy);
    void *bytes = malloc(n);
    assert_non_null(bytes);
    good(reel_session_snapshot(copy, bytes, n, &f->err), f);
    reel_session_close(s);
    good(reel_session_restore(restored, bytes, n, &f->err), f);
    if (i % 2 == 0) generate(f, restored, 2, &l);
    free(bytes);
    reel_session_close(copy);
    reel_session_close(restored);
}

static void sessions_that_come_and_go_leave_nothing(void **state) {
    enum { WARMS_UP = 4, MANY = 30, BYTES = 20000 }; /* threads keep some freed blocks */
    struct fixture *f = *state;
    struct fake_live before = { 0 };
    size_t malloced = 0;
    load(f, "");
    for (int i = 0; i < WARMS_UP + MANY; i++) {
        if (i == WARMS_UP) before = f->gpu.cuda->live, malloced = malloced_bytes();
        come_and_go(f, i);
    }
    assert_memory_equal(&f->gpu.cuda->live, &before, sizeof before);
    assert_int_equal(pool_of(f)->n_used, 0);
    const size_t now = malloced_bytes();
    if (!SANITIZED && now > malloced + BYTES)
        fail_msg("%d sessions left %zu bytes", 3 * MANY, now - malloced);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_session_takes_pages_as_it_grows),
        in_turn(pages_may_lie_anywhere),
        in_turn(copies_share_pages_until_they_write),
        in_turn(a_full_pool_ends_a_generation),
        in_turn(a_full_pool_refuses_who_has_nothing),
        in_turn(what_is_written_is_not_shared),
        in_turn(a_pool_takes_what_it_may),
        in_turn(a_pool_has_many_slabs),
        in_turn(a_prompt_waits_for_memory_while_others_compute),
        in_turn(a_page_is_saved_and_restored_in_one_copy),
        in_turn(sessions_that_come_and_go_leave_nothing),
    };
    SHARE_TESTS("pages", 3, tests);
    return cmocka_run_group_tests(tests, start, stop);
}
