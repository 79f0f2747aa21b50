/* Passes of several sessions on the fake GPU: each session's ids, and what it can go on with, are
 * those that it has alone. */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4,poison=1"

enum { MOST = 8, N_NEW = 9, CONTEXT = 64, MOST_VOCAB = 1024 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
};

/* One session: its prompt, its settings, the ids that came. */
struct story {
    struct reel_session *session;
    struct backend_sampling sampling;
    struct backend_decode decode;
    int32_t prompt[20], ids[N_NEW];
    int n_prompt, n, stop_after;
    int n_drawn;                     /* on the host, */
    int n_beside;                    /* while a launch was under way, */
    float logits[N_NEW][MOST_VOCAB]; /* from these */
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static bool on_id(void *user, int32_t id) {
    struct story *s = user;
    assert_true(s->n < N_NEW);
    s->ids[s->n++] = id;
    return s->n != s->stop_after;
}

static bool never(void *user) {
    (void)user;
    return false;
}

static int32_t no_draw(void *user, const float *logits, int64_t position) {
    (void)user, (void)logits, (void)position;
    fail_msg("the device draws these");
    return -1;
}

/* The best, of logits that are kept. Some time passes, in which others go on. */
static int32_t draw_best(void *user, const float *logits, int64_t position) {
    struct story *s = user;
    const int vocab = s->session->model->model.config.vocab;
    const struct timespec nap = { 0, 2000000 };
    int32_t best = 0;
    assert_int_equal(position, s->n_prompt + s->n);
    assert_true(s->n_drawn < N_NEW && vocab <= MOST_VOCAB);
    s->n_beside += s->session->model->backend->in_flight > 0;
    memcpy(s->logits[s->n_drawn++], logits, (size_t)vocab * sizeof *logits);
    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    nanosleep(&nap, NULL);
    return best;
}

/* A session of its own kind for each i: prompts of several lengths, some draw. */
static void begin(struct fixture *f, struct story *s, int i) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    *s = (struct story){ .n_prompt = 3 + i * 5 % 17, .stop_after = i == 2 ? 5 : 0 };
    for (int k = 0; k < s->n_prompt; k++)
        s->prompt[k] = (i * 71 + k * 37 + k * k) % 250;
    good(reel_session_open(&s->session, f->m.gpu, &options, &f->err), f);
    good(reel_session_sync(s->session, s->prompt, s->n_prompt, NULL, &f->err), f);
    s->sampling.set = (struct reel_sampling){ .size = sizeof s->sampling.set,
                                              .temperature = i % 3 == 1 ? 0.9f : 0,
                                              .seed = (uint64_t)i };
    s->decode = (struct backend_decode){ .position = s->n_prompt - 1,
                                         .id = s->prompt[s->n_prompt - 1],
                                         .max_tokens = i == 1 ? N_NEW - 3 : N_NEW,
                                         .sampling = &s->sampling,
                                         .on_id = on_id,
                                         .enough = never,
                                         .draw = no_draw,
                                         .user = s };
}

/* What is left to decode after some ids; false: nothing. */
static bool go_on(struct story *s, int n_before) {
    const int made = s->n - n_before;
    s->decode.position += made, s->decode.max_tokens -= made;
    if (made > 0) s->decode.id = s->ids[s->n - 1];
    return s->decode.max_tokens > 0 && s->n != s->stop_after;
}

struct few {
    int calls, allowed; /* passes until the caller has enough */
};
static bool enough_after(void *user) {
    struct few *few = user;
    return ++few->calls > few->allowed;
}

/* All columns to their ends, in steps that end as soon as one is over or the caller has enough. */
static int decode_together(struct fixture *f, struct story *stories, int n, int allowed) {
    bool left[MOST];
    int steps = 0;
    for (int i = 0; i < n; i++)
        left[i] = true;
    for (;; steps++) {
        struct backend_column columns[MOST] = { 0 };
        struct few few = { .allowed = allowed };
        int who[MOST], before[MOST], m = 0;
        for (int i = 0; i < n; i++) {
            if (!left[i]) continue;
            who[m] = i, before[m] = stories[i].n;
            columns[m].state = stories[i].session->state;
            columns[m++].decode = &stories[i].decode;
        }
        if (m == 0) return steps;
        const struct backend_batch batch = {
            .columns = columns, .n = m, .enough = enough_after, .user = &few
        };
        cuda_backend.step(f->m.gpu->backend, &batch);
        for (int k = 0; k < m; k++) {
            if (columns[k].over && columns[k].status != REEL_OK)
                fail_msg("column %d: %s\n%s", who[k], columns[k].err.text, f->gpu.cuda->report);
            left[who[k]] = go_on(&stories[who[k]], before[k]);
            if (left[who[k]] && columns[k].over) fail_msg("column %d is not over", who[k]);
        }
    }
}

/* The last position from which both go on. A session with a recurrent state that stops early holds
 * that of its prompt, or of its last id, as the stop came late or in time. */
static int both_hold(const struct story *a, const struct story *b) {
    int end = a->n_prompt + a->n - 1, before = -1;
    while (end != before) {
        before = end;
        end = cuda_backend.resume(a->session->state, end);
        end = cuda_backend.resume(b->session->state, end);
    }
    assert_true(end >= a->n_prompt - 1);
    return end;
}

static void assert_as_alone(struct fixture *f, int n, int allowed) {
    struct story together[MOST], alone;
    for (int i = 0; i < n; i++)
        begin(f, &together[i], i);
    decode_together(f, together, n, allowed);
    for (int i = 0; i < n; i++) {
        begin(f, &alone, i);
        good(cuda_backend.decode(alone.session->state, &alone.decode, &f->err), f);
        assert_int_equal(together[i].n, alone.n);
        for (int k = 0; k < alone.n; k++)
            if (together[i].ids[k] != alone.ids[k])
                fail_msg("%d sessions: id %d of session %d is %d, alone it is %d", n, k, i,
                         (int)together[i].ids[k], (int)alone.ids[k]);
        /* what is held is the same to the bit */
        const int end = both_hold(&alone, &together[i]);
        const size_t bytes = cuda_backend.save_bytes(alone.session->state, end);
        unsigned char *a = malloc(bytes), *b = malloc(bytes);
        assert_non_null(a);
        assert_non_null(b);
        good(cuda_backend.save(alone.session->state, end, a, &f->err), f);
        good(cuda_backend.save(together[i].session->state, end, b, &f->err), f);
        assert_memory_equal(a, b, bytes);
        free(a), free(b);
        reel_session_close(alone.session);
    }
    for (int i = 0; i < n; i++)
        reel_session_close(together[i].session);
}

/* ---- ids that the host draws ---- */

/* One position after the other, as the runtime does without a backend that decodes. */
static void draw_alone(struct fixture *f, struct story *s) {
    for (bool left = true; left;) {
        static float logits[MOST_VOCAB];
        const struct backend_eval eval = { .position = s->decode.position,
                                           .n = 1,
                                           .ids = &s->decode.id,
                                           .output = REEL_OUTPUT_LAST_LOGITS,
                                           .out = logits };
        good(cuda_backend.eval(s->session->state, &eval, &f->err), f);
        const int before = s->n;
        (void)on_id(s, draw_best(s, logits, s->decode.position + 1));
        left = go_on(s, before);
    }
}

/* All its ids, or those that the device's sampler cannot settle: more ids are wanted than its lists
 * hold. */
static void host_draws(struct story *s, bool all) {
    s->decode.host_draws = all;
    s->decode.draw = draw_best;
    if (all) return;
    s->sampling.set.temperature = 1;
    s->sampling.set.top_k = 280;
}

/* Among others or among their like, a session has the logits and ids that it has alone, and so have
 * the others. which: a bit for each session that the host draws for. */
static void assert_drawn_as_alone(struct fixture *f, int n, unsigned which, bool all, int allowed) {
    static struct story together[MOST], alone;
    for (int i = 0; i < n; i++) {
        begin(f, &together[i], i);
        if (which >> i & 1) host_draws(&together[i], all);
    }
    decode_together(f, together, n, allowed);
    for (int i = 0; i < n; i++) {
        begin(f, &alone, i);
        if (which >> i & 1) host_draws(&alone, all);
        if (alone.decode.host_draws)
            draw_alone(f, &alone);
        else
            good(cuda_backend.decode(alone.session->state, &alone.decode, &f->err), f);
        assert_int_equal(together[i].n, alone.n);
        assert_int_equal(together[i].n_drawn, alone.n_drawn);
        if (allowed > N_NEW) assert_int_equal(together[i].n_beside > 1, which >> i & 1);
        assert_memory_equal(together[i].ids, alone.ids, (size_t)alone.n * sizeof *alone.ids);
        const size_t row = (size_t)f->m.gpu->model.config.vocab * sizeof(float);
        for (int k = 0; k < alone.n_drawn; k++)
            assert_memory_equal(together[i].logits[k], alone.logits[k], row);
        reel_session_close(alone.session);
        reel_session_close(together[i].session);
    }
}

static void the_host_draws_while_others_go_on(void **state) {
    struct fixture *f = *state;
    assert_drawn_as_alone(f, 2, 1, true, 1 << 20);
    assert_drawn_as_alone(f, 3, 5, true, 1 << 20);
    assert_drawn_as_alone(f, 2, 3, true, 1 << 20);
    assert_drawn_as_alone(f, 3, 2, true, 3);
    assert_drawn_as_alone(f, 3, 3, false, 1 << 20);
    assert_drawn_as_alone(f, 2, 2, false, 3);
}

static struct fixture shared;

/* Four SMs, on one GPU or on two. */
static int start_model(void **state, const char *id, int n_gpus) {
    struct fixture *f = &shared;
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->settings.in_order = true;
    f->gpu.cuda->gpu.n_sms = 4 / n_gpus, f->gpu.cuda->gpu.n_devices = n_gpus;
    sim_model_open(&f->m, id);
    if (n_gpus > 1) f->m.device = "gpu:all";
    good(sim_model_load(&f->m, SMALL, &f->err), f);
    *state = f;
    return 0;
}
static int start(void **state) { return start_model(state, "q3-a", 1); }
static int start_pair(void **state) { return start_model(state, "q3-a", 2); }
static int start_halves(void **state) { return start_model(state, "qw2-a", 2); }
static int start_hybrid(void **state) { return start_model(state, "q35-w", 1); }

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

static void sessions_make_the_ids_that_they_make_alone(void **state) {
    struct fixture *f = *state;
    assert_int_equal(f->m.gpu->backend_info.most_columns, 8);
    assert_as_alone(f, 3, 1 << 20);
    if (getenv("REEL_SOAK")) assert_as_alone(f, MOST, 1 << 20);
}

static void a_batch_that_has_enough_goes_on_later(void **state) {
    struct fixture *f = *state;
    assert_as_alone(f, 3, 2);
}

/* What is ahead in the queue, a slice of a prompt, say, is not waited for. */
static void passes_are_put_into_the_queue(void **state) {
    struct fixture *f = *state;
    struct story s[2];
    begin(f, &s[0], 0), begin(f, &s[1], 1);
    struct backend_column columns[2] = { { .state = s[0].session->state, .decode = &s[0].decode },
                                         { .state = s[1].session->state, .decode = &s[1].decode } };
    const struct backend_batch batch = { .columns = columns, .n = 2 };
    f->gpu.cuda->only = "cuStreamSynchronize", f->gpu.cuda->fail_call = 1;
    f->gpu.cuda->fail_with = 2;
    cuda_backend.step(f->m.gpu->backend, &batch);
    f->gpu.cuda->only = NULL, f->gpu.cuda->fail_call = 0;
    for (int i = 0; i < 2; i++) {
        good(columns[i].status, f);
        reel_session_close(s[i].session);
    }
}

/* Where the kernel cannot be made the sessions are told to go on by themselves. */
static void without_its_kernel_nobody_is_lost(void **state) {
    struct fixture *f = *state;
    struct story s[2];
    sim_model_unload(&f->m);
    good(sim_model_load(&f->m, SMALL, &f->err), f);
    begin(f, &s[0], 0), begin(f, &s[1], 1);
    f->gpu.nvrtc->fail_call = 3; /* after the library was found */
    f->gpu.nvrtc->fail_with = 11;
    struct backend_column columns[2] = { { .state = s[0].session->state, .decode = &s[0].decode },
                                         { .state = s[1].session->state, .decode = &s[1].decode } };
    const struct backend_batch batch = { .columns = columns, .n = 2 };
    cuda_backend.step(f->m.gpu->backend, &batch);
    for (int i = 0; i < 2; i++) {
        assert_true(columns[i].over);
        assert_int_equal(columns[i].status, REEL_E_UNSUPPORTED);
        assert_int_equal(s[i].n, 0);
        good(cuda_backend.decode(s[i].session->state, &s[i].decode, &f->err), f);
        reel_session_close(s[i].session);
    }
}

/* ---- before their program is there ---- */

static void reload(struct fixture *f, const char *options) {
    sim_model_unload(&f->m);
    good(sim_model_load(&f->m, options, &f->err), f);
}

static bool on_id_without_program(void *user, int32_t id) {
    const struct story *s = user;
    assert_int_equal(atomic_load(&s->session->model->backend->step.made), 0);
    return on_id(user, id);
}

/* They take turns of a few tokens while it is compiled. */
static void sessions_decode_before_their_program_is_there(void **state) {
    struct fixture *f = *state;
    struct story together[2], alone;
    reload(f, SMALL ",columns_wait=0");
    f->m.gpu->backend->step.begun = true; /* as if they were being made, for ever */
    for (int i = 0; i < 2; i++) {
        begin(f, &together[i], i);
        together[i].decode.on_id = on_id_without_program;
    }
    decode_together(f, together, 2, 1 << 20);
    for (int i = 0; i < 2; i++) {
        begin(f, &alone, i);
        good(cuda_backend.decode(alone.session->state, &alone.decode, &f->err), f);
        assert_int_equal(together[i].n, alone.n);
        assert_memory_equal(together[i].ids, alone.ids, (size_t)alone.n * sizeof *alone.ids);
        reel_session_close(alone.session);
        reel_session_close(together[i].session);
    }
    reload(f, SMALL);
}

/* The one for 4 columns, which is there already. */
static void a_larger_program_does_for_fewer_columns(void **state) {
    struct fixture *f = *state;
    struct cuda_program *program = NULL;
    reload(f, SMALL ",columns_wait=0");
    struct cuda_programs *programs = &f->m.gpu->backend->step;
    good(cuda_program_open(f->m.gpu->backend, programs, 3, &program, &f->err), f);
    programs->begun = true; /* as if the others were being made */
    assert_ptr_equal(cuda_programs_fitting(programs, 2), program);
    assert_null(cuda_programs_fitting(programs, 5));
    assert_as_alone(f, 2, 1 << 20);
    assert_true(program->function.handle && !programs->of[0].plan);
    assert_int_equal(atomic_load(&programs->made), 2);
    reload(f, SMALL);
}

static void without_any_program_sessions_are_told_why(void **state) {
    struct fixture *f = *state;
    struct story s[2];
    reload(f, SMALL ",columns_wait=0");
    begin(f, &s[0], 0), begin(f, &s[1], 1);
    f->gpu.nvrtc->compiler = "false";
    cuda_programs_make(f->m.gpu->backend, &f->m.gpu->backend->step, true);
    f->gpu.nvrtc->compiler = "cc";
    struct backend_column columns[2] = { { .state = s[0].session->state, .decode = &s[0].decode },
                                         { .state = s[1].session->state, .decode = &s[1].decode } };
    cuda_backend.step(f->m.gpu->backend, &(struct backend_batch){ .columns = columns, .n = 2 });
    for (int i = 0; i < 2; i++) {
        assert_int_equal(columns[i].status, REEL_E_UNSUPPORTED);
        assert_non_null(
            strstr(columns[i].err.text, "no program for 2 columns: a pass of 2 columns: "));
        reel_session_close(s[i].session);
    }
    reload(f, SMALL);
}

/* ---- kept programs ---- */

static int times_compiled(const struct fixture *f) {
    return f->gpu.nvrtc->n_compiled + f->gpu.nvrtc->n_cached;
}

/* Those of the model, and those for several columns, which are made later. */
static void programs_are_compiled_once(void **state) {
    struct fixture *f = *state;
    char cache[] = "/tmp/reel-step-XXXXXX", command[100];
    int n[3] = { times_compiled(f) };
    assert_non_null(mkdtemp(cache));
    for (int round = 0; round < 2; round++) {
        f->m.cache_dir = cache;
        reload(f, SMALL);
        cuda_programs_make(f->m.gpu->backend, &f->m.gpu->backend->step, true);
        assert_true(atomic_load(&f->m.gpu->backend->step.made) != 0);
        n[1 + round] = times_compiled(f);
    }
    assert_true(n[1] > n[0]);
    assert_int_equal(n[2], n[1]);
    f->m.cache_dir = NULL;
    reload(f, SMALL);
    snprintf(command, sizeof command, "rm -r %s", cache);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_make_the_ids_that_they_make_alone),
        cmocka_unit_test(a_batch_that_has_enough_goes_on_later),
        cmocka_unit_test(the_host_draws_while_others_go_on),
        cmocka_unit_test(passes_are_put_into_the_queue),
        cmocka_unit_test(without_its_kernel_nobody_is_lost),
        cmocka_unit_test(sessions_decode_before_their_program_is_there),
        cmocka_unit_test(a_larger_program_does_for_fewer_columns),
        cmocka_unit_test(without_any_program_sessions_are_told_why),
    };
    const struct CMUnitTest hybrid[] = {
        cmocka_unit_test(programs_are_compiled_once),
        cmocka_unit_test(sessions_make_the_ids_that_they_make_alone),
        cmocka_unit_test(a_batch_that_has_enough_goes_on_later),
        cmocka_unit_test(the_host_draws_while_others_go_on),
    };
    const struct CMUnitTest pair[] = {
        cmocka_unit_test(sessions_make_the_ids_that_they_make_alone),
        cmocka_unit_test(the_host_draws_while_others_go_on),
    };
    const struct CMUnitTest halves[] = { cmocka_unit_test(a_batch_that_has_enough_goes_on_later) };
    int failed = cmocka_run_group_tests(tests, start, stop);
    failed += cmocka_run_group_tests(hybrid, start_hybrid, stop);
    failed += cmocka_run_group_tests(pair, start_pair, stop);
    return failed + cmocka_run_group_tests(halves, start_halves, stop);
}
