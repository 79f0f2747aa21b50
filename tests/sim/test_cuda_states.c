/* Recurrent states on the fake GPU: sessions that share them, and a pool that is full. */
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4,poison=1"

enum { N_FIRST = 9, N_PROMPT = 23, N_NEW = 8, CONTEXT = 64 };

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

static struct cuda_pool *pool_of(const struct fixture *f) { return &f->m.gpu->backend->states; }
static struct cuda_recurrent *states_of(const struct reel_session *s) {
    return &s->state->recurrent;
}

static struct reel_session *open_session(struct fixture *f) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    return s;
}

/* Reads the prompt up to n; how many positions of it were there already. */
static int sync_to(struct fixture *f, struct reel_session *s, int n) {
    int n_reused = 0;
    good(reel_session_sync(s, f->prompt, n, &n_reused, &f->err), f);
    return n_reused;
}

static struct reel_session *open_with_prompt(struct fixture *f) {
    struct reel_session *s = open_session(f);
    sync_to(f, s, N_FIRST);
    sync_to(f, s, N_PROMPT);
    return s;
}

static struct reel_session *open_copy(struct fixture *f, const struct reel_session *of) {
    struct reel_session *s = open_session(f);
    good(reel_session_copy(s, of, &f->err), f);
    return s;
}

struct listener {
    int32_t ids[N_NEW];
    int n;
};

static bool listen(void *user, const struct reel_token *token) {
    struct listener *l = user;
    l->ids[l->n++] = token->id;
    return true;
}

static enum reel_status generate(struct fixture *f, struct reel_session *s, struct listener *l) {
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = listen,
                                       .user = l };
    *l = (struct listener){ .n = 0 };
    return reel_generate(s, &g, NULL, &f->err);
}

/* What a session that holds the prompt generates is what one alone does. */
static void assert_generates(struct fixture *f, struct reel_session *s) {
    struct listener l;
    good(generate(f, s, &l), f);
    assert_int_equal(l.n, N_NEW);
    assert_memory_equal(l.ids, f->expected, sizeof l.ids);
}

static int start_with(void **state, const char *model, const char *options) {
    static struct fixture f;
    struct listener l;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = 4;
    for (int i = 0; i < N_PROMPT; i++)
        f.prompt[i] = (i * 37 + i * i) % 250;
    sim_model_open(&f.m, model);
    good(sim_model_load(&f.m, options, &f.err), &f);
    struct reel_session *s = open_with_prompt(&f);
    good(generate(&f, s, &l), &f);
    memcpy(f.expected, l.ids, sizeof f.expected);
    reel_session_close(s);
    *state = &f;
    return 0;
}

static int start(void **state) { return start_with(state, "q35-a", SMALL); }
/* One whose prompts other kernels read, from 2 positions on, which round otherwise. */
static int start_reading(void **state) {
    return start_with(state, "q35-p", SMALL ",prefill_from=2");
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

/* ---- sharing ---- */

static void a_session_takes_states_as_it_needs_them(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_session(f);
    assert_int_equal(pool_of(f)->n_pieces, 0);
    sync_to(f, s, N_FIRST);
    assert_int_equal(pool_of(f)->n_used, 2); /* the live one, and that before the last position */
    sync_to(f, s, N_PROMPT);
    assert_int_equal(pool_of(f)->n_used, 4); /* that where the second reading began, too */
    assert_generates(f, s);
    assert_in_range(pool_of(f)->n_used, 4, 1 + MEMORY_PLAN_CHECKPOINTS);
    good(reel_session_truncate(s, N_FIRST, &f->err), f);
    sync_to(f, s, N_FIRST + 1);
    assert_in_range(pool_of(f)->n_used, 2, 3); /* what lies beyond is over */
    good(reel_session_truncate(s, 0, &f->err), f);
    assert_int_equal(pool_of(f)->n_used, 0);
    reel_session_close(s);
    assert_int_equal(pool_of(f)->n_pieces, 0);
}

static void copies_share_states_until_they_move_on(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f);
    const size_t n = reel_session_snapshot_bytes(s);
    unsigned char *bytes = malloc(n), *now = malloc(n);
    assert_non_null(bytes);
    assert_non_null(now);
    good(reel_session_snapshot(s, bytes, n, &f->err), f);
    const int n_used = pool_of(f)->n_used;
    struct reel_session *copy = open_copy(f, s), *third = open_copy(f, copy);
    assert_int_equal(pool_of(f)->n_used, n_used);
    assert_generates(f, copy);
    assert_int_equal(pool_of(f)->n_used, n_used + 1);
    good(reel_session_snapshot(s, now, n, &f->err), f);
    assert_memory_equal(bytes, now, n);
    assert_generates(f, s);
    good(reel_session_snapshot(third, now, n, &f->err), f);
    assert_memory_equal(bytes, now, n);
    reel_session_close(s);
    assert_generates(f, third);
    reel_session_close(copy);
    reel_session_close(third);
    assert_int_equal(pool_of(f)->n_used, 0);
    free(bytes), free(now);
}

/* Whoever goes back to a kept state and on from there leaves it to the others as it was. */
static void a_copy_goes_back_as_far_as_its_source(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f), *copy = open_copy(f, s);
    for (int i = 0; i < 2; i++) {
        good(reel_session_truncate(copy, N_FIRST, &f->err), f);
        assert_int_equal(sync_to(f, copy, N_PROMPT), N_FIRST);
        assert_generates(f, copy);
        good(reel_session_truncate(s, N_PROMPT - 1, &f->err), f);
        assert_int_equal(sync_to(f, s, N_PROMPT), N_PROMPT - 1);
        good(reel_session_truncate(copy, 0, &f->err), f);
        good(reel_session_copy(copy, s, &f->err), f);
    }
    /* not beyond what was copied: only positions up to there are the same text */
    good(reel_session_truncate(s, N_FIRST, &f->err), f);
    good(reel_session_copy(copy, s, &f->err), f);
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        assert_in_range(states_of(copy)->checkpoints.position[i], 0, N_FIRST);
    assert_int_equal(sync_to(f, copy, N_PROMPT), N_FIRST);
    reel_session_close(copy);
    reel_session_close(s);
}

/* ---- ids that were made ahead ---- */

/* Stops behind some ids. */
struct stopper {
    struct listener *l;
    int stop_at;
    bool cancels;
    struct reel_session *s;
};

static bool stop_behind(void *user, const struct reel_token *token) {
    struct stopper *t = user;
    listen(t->l, token);
    if (t->l->n != t->stop_at) return true;
    if (t->cancels) reel_session_cancel(t->s);
    return t->cancels;
}

/* Generates until l has n ids: pulls them one by one, or stops by the callback or by cancelling. */
static void generate_until(struct fixture *f, struct reel_session *s, int how, int n,
                           struct listener *l) {
    struct stopper t = { .l = l, .stop_at = n, .cancels = how == 2, .s = s };
    const struct reel_token *token = NULL;
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW - l->n,
                                       .ignore_stop_ids = true,
                                       .on_token = how > 0 ? stop_behind : NULL,
                                       .user = &t };
    if (how > 0) {
        good(reel_generate(s, &g, NULL, &f->err), f);
        return;
    }
    good(reel_generation_start(s, &g, &f->err), f);
    while (l->n < n) {
        good(reel_generation_next(s, &token, &f->err), f);
        listen(l, token);
    }
    good(reel_generation_finish(s, NULL, &f->err), f);
}

/* A launch is ahead of who stops, and its state with it. The positions in between are evaluated
 * once more, as they were the first time: all bits are those of a session that was never stopped.
 */
static void who_stops_and_goes_on_has_the_bits_of_who_never_stopped(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f);
    struct listener l;
    good(generate(f, s, &l), f);
    const size_t n = reel_session_snapshot_bytes(s);
    unsigned char *bytes = malloc(n), *now = malloc(n);
    assert_non_null(bytes);
    assert_non_null(now);
    good(reel_session_snapshot(s, bytes, n, &f->err), f);
    reel_session_close(s);
    for (int how = 0; how < 3; how++) {
        s = open_with_prompt(f);
        l.n = 0;
        for (int at = 2; at < N_NEW; at += 3) {
            generate_until(f, s, how, at, &l);
            assert_true(s->n_evaluated >= N_PROMPT); /* no prompt is read again */
        }
        generate_until(f, s, how, N_NEW, &l);
        assert_memory_equal(l.ids, f->expected, sizeof l.ids);
        assert_int_equal(reel_session_snapshot_bytes(s), n);
        good(reel_session_snapshot(s, now, n, &f->err), f);
        if (memcmp(bytes, now, n) != 0) fail_msg("other bits behind stops of kind %d", how);
        reel_session_close(s);
    }
    free(bytes), free(now);
}

/* ---- a full pool ---- */

/* Takes all of the pool but n pieces, and the GPU has no memory for more. */
struct hog {
    int numbers[SLAB_PIECES], n;
    size_t memory_bytes;
};

static void leave(struct fixture *f, struct hog *h, int n) {
    struct cuda_pool *pool = pool_of(f);
    h->n = 0;
    while (pool->n_pieces - pool->n_used > n) {
        struct cuda_piece piece;
        good(cuda_pool_take(pool, &piece, &f->err), f);
        h->numbers[h->n++] = piece.number;
    }
    h->memory_bytes = f->gpu.cuda->gpu.memory_bytes;
    f->gpu.cuda->gpu.memory_bytes = f->gpu.cuda->live.bytes;
}

static void let_go(struct fixture *f, struct hog *h) {
    f->gpu.cuda->gpu.memory_bytes = h->memory_bytes;
    cuda_pool_give_back(pool_of(f), h->numbers, h->n);
}

static void a_full_pool_refuses_who_has_no_state(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f), *copy = open_copy(f, s);
    struct listener l;
    struct hog hog;
    leave(f, &hog, 0);
    /* the state that both hold is nobody's own */
    assert_int_equal(generate(f, copy, &l), REEL_E_MEMORY);
    assert_int_equal(l.n, 0);
    if (!strstr(f->err.text, "the pool of recurrent states is full: it holds 32 states, "))
        fail_msg("%s", f->err.text);
    assert_null(strstr(f->err.text, "kv_pool_mb"));
    good(reel_session_truncate(copy, 0, &f->err), f);
    assert_generates(f, s); /* now it is its own */
    let_go(f, &hog);
    sync_to(f, copy, N_PROMPT);
    assert_generates(f, copy);
    reel_session_close(copy);
    reel_session_close(s);
}

/* Kept states save work, a live one is needed. */
static void with_a_full_pool_kept_states_go_first(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f);
    struct hog hog;
    good(cuda_recurrent_rewind(s->state, N_PROMPT - 1, &f->err), f); /* live and kept are one */
    leave(f, &hog, 0);
    assert_true(cuda_pool_is_shared(pool_of(f), states_of(s)->live.number));
    assert_generates(f, s);
    assert_int_equal(pool_of(f)->n_used, hog.n + 1);
    /* a prompt is read though the state before its last position cannot be kept */
    good(reel_session_truncate(s, 0, &f->err), f);
    let_go(f, &hog);
    leave(f, &hog, 1);
    assert_int_equal(sync_to(f, s, N_PROMPT), 0);
    assert_int_equal(pool_of(f)->n_used, hog.n + 1);
    assert_generates(f, s);
    let_go(f, &hog);
    reel_session_close(s);
}

/* A copy that fails leaves the session where it was. */
static void a_state_that_cannot_be_copied_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_with_prompt(f), *copy = open_copy(f, s);
    const int n_used = pool_of(f)->n_used, length = reel_session_length(copy);
    struct listener l;
    sync_to(f, copy, N_PROMPT); /* its pages are its own before the call that fails */
    good(cuda_pages_reach_all(copy->state, N_PROMPT - 1, N_PROMPT, &f->err), f);
    f->gpu.cuda->only = "cuMemcpyDtoDAsync_v2";
    f->gpu.cuda->fail_call = f->gpu.cuda->fail_with = 1;
    assert_int_equal(generate(f, copy, &l), REEL_E_DEVICE);
    f->gpu.cuda->only = NULL;
    f->gpu.cuda->fail_call = 0;
    assert_int_equal(pool_of(f)->n_used, n_used);
    assert_int_equal(reel_session_length(copy), length);
    assert_generates(f, copy);
    assert_generates(f, s);
    reel_session_close(copy);
    reel_session_close(s);
}

/* ---- several columns ---- */

static bool never(void *user) {
    (void)user;
    return false;
}

static bool take_id(void *user, int32_t id) {
    struct listener *l = user;
    l->ids[l->n++] = id;
    return true;
}

/* A column whose state cannot be had ends alone: the others' are as they were. */
static void one_column_without_memory_costs_the_others_nothing(void **state) {
    struct fixture *f = *state;
    struct reel_session *s[3] = { open_with_prompt(f), open_with_prompt(f), NULL };
    s[2] = open_copy(f, s[1]);
    static const struct backend_sampling greedy = { .set = { .size = sizeof greedy.set } };
    struct backend_decode decode[3];
    struct backend_column columns[3] = { 0 };
    struct listener l[3] = { 0 };
    struct hog hog;
    for (int i = 0; i < 3; i++) {
        /* where decoding begins: the second and its copy hold one state */
        good(cuda_recurrent_rewind(s[i]->state, N_PROMPT - 1, &f->err), f);
        decode[i] = (struct backend_decode){ .position = N_PROMPT - 1,
                                             .id = f->prompt[N_PROMPT - 1],
                                             .max_tokens = N_NEW,
                                             .sampling = &greedy,
                                             .on_id = take_id,
                                             .enough = never,
                                             .user = &l[i] };
        columns[i].state = s[i]->state;
        columns[i].decode = &decode[i];
    }
    struct cuda_program *program = NULL; /* takes memory, too */
    good(cuda_program_open(f->m.gpu->backend, &f->m.gpu->backend->step, 3, &program, &f->err), f);
    leave(f, &hog, 1); /* for the first of them; the third is the second's copy */
    const struct backend_batch batch = { .columns = columns, .n = 3 };
    cuda_backend.step(f->m.gpu->backend, &batch);
    int n_refused = 0;
    for (int i = 0; i < 3; i++) {
        n_refused += columns[i].over && columns[i].status == REEL_E_MEMORY;
        assert_int_equal(l[i].n, 0);
        assert_int_equal(states_of(s[i])->checkpoints.n_positions, N_PROMPT - 1);
    }
    assert_int_equal(n_refused, 1);
    let_go(f, &hog);
    for (int i = 0; i < 3; i++) {
        sync_to(f, s[i], N_PROMPT);
        reel_session_close(s[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_takes_states_as_it_needs_them),
        cmocka_unit_test(copies_share_states_until_they_move_on),
        cmocka_unit_test(a_copy_goes_back_as_far_as_its_source),
        cmocka_unit_test(a_full_pool_refuses_who_has_no_state),
        cmocka_unit_test(with_a_full_pool_kept_states_go_first),
        cmocka_unit_test(a_state_that_cannot_be_copied_changes_nothing),
        cmocka_unit_test(one_column_without_memory_costs_the_others_nothing),
    };
    const struct CMUnitTest reading[] = {
        cmocka_unit_test(who_stops_and_goes_on_has_the_bits_of_who_never_stopped),
    };
    return cmocka_run_group_tests(tests, start, stop) +
           cmocka_run_group_tests(reading, start_reading, stop);
}
