/* Prompts through the prefill kernel on the fake GPU: what the backend makes of it, whatever a
 * prompt is cut into and whoever else is at work. */
#include "cuda/run/cuda_backend.h"
#include "runtime/model_handle.h"
#include "support/rounding.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The prefill kernel has a block on each of the GPU's SMs, the decode kernel on those of its plan.
 */
#define SMALL "n_groups=1,group_sms=6,warps=4,prefill_tokens=128,launch_tokens=0,"
enum { N_SMS = 7, N_PROMPT = 40, N_NEW = 4, CONTEXT = 256 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    int32_t prompt[CONTEXT];
    float *want; /* [N_PROMPT, vocab] of the CPU */
    int n_layers, hidden;
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static void reload(struct fixture *f, const char *options) {
    char all[300];
    if (f->m.gpu) sim_model_unload(&f->m);
    snprintf(all, sizeof all, SMALL "%s", options);
    good(sim_model_load(&f->m, all, &f->err), f);
}

static int start(void **state) {
    static struct fixture f;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = N_SMS;
    sim_model_open(&f.m, "ll-a");
    f.n_layers = f.m.cpu->model.config.n_layers;
    f.hidden = f.m.cpu->model.config.hidden;
    for (int i = 0; i < CONTEXT; i++)
        f.prompt[i] = (i * 37 + 11) % f.m.vocab;
    f.want = sim_model_logits(f.m.cpu, f.prompt, N_PROMPT);
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    free(f->want);
    sim_model_close(&f->m);
    assert_int_equal(f->gpu.cuda->leaked.allocations + f->gpu.cuda->leaked.modules, 0);
    return 0;
}

static struct reel_session *open_session(struct fixture *f) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    return s;
}

/* The output of the last of n positions, which the caller frees. */
static float *last_of(struct fixture *f, struct reel_session *s, const int32_t *ids,
                      const float *embeddings, int n, enum reel_output output) {
    const int width = output == REEL_OUTPUT_LAST_LOGITS ? f->m.vocab : f->hidden;
    struct reel_eval e = { .size = sizeof e,
                           .n = n,
                           .ids = ids,
                           .embeddings = embeddings,
                           .output = output,
                           .out_floats = (size_t)width };
    e.out = malloc(e.out_floats * sizeof *e.out);
    assert_non_null(e.out);
    good(reel_session_eval(s, &e, &f->err), f);
    return e.out;
}

/* made is as far from want as roundings make it (support/rounding.h), no further. */
static bool within_rounding(const struct fixture *f, const float *made, const float *want, int n) {
    const double off = relative_difference(made, want, n);
    const double allowed = rounding_allowed_once(f->n_layers, f->hidden);
    if (!(off <= allowed)) print_message("off by %g, %g is allowed\n", off, allowed);
    return off <= allowed;
}

static void assert_logits(struct fixture *f, struct reel_session *s, int from, int n) {
    float *made = last_of(f, s, f->prompt + from, NULL, n, REEL_OUTPUT_LAST_LOGITS);
    if (!within_rounding(f, made, f->want + (size_t)((from + n - 1) * f->m.vocab), f->m.vocab))
        fail_msg("positions %d to %d", from, from + n - 1);
    free(made);
}

static void a_prompt_gives_the_references_logits_however_it_is_cut(void **state) {
    static const char *const options[] = { "prefill_from=4,short_from=4",
                                           "prefill_from=1,launch_tokens=7",
                                           "prefill_from=4,launch_tokens=16",
                                           "prefill_from=4,short_positions=0",
                                           "prefill_from=1,launch_tokens=7,short_positions=5" };
    struct fixture *f = *state;
    const size_t step = sanitized_briefly() ? 2 : 1;
    for (size_t i = 0; i < sizeof options / sizeof *options; i += step) {
        reload(f, options[i]);
        struct reel_session *s = open_session(f);
        assert_logits(f, s, 0, 5);
        assert_logits(f, s, 5, 1);
        assert_logits(f, s, 6, 17);
        assert_logits(f, s, 23, N_PROMPT - 23);
        good(reel_session_truncate(s, 9, &f->err), f);
        assert_logits(f, s, 9, N_PROMPT - 9);
        reel_session_close(s);
    }
}

static void decoding_goes_on_where_the_prompt_ends(void **state) {
    struct fixture *f = *state;
    int32_t want[N_NEW], made[N_NEW];
    reload(f, "prefill_from=0");
    good(sim_model_generate(f->m.gpu, f->prompt, N_PROMPT, NULL, want, N_NEW, &f->err), f);
    reload(f, "prefill_from=4,short_from=4");
    good(sim_model_generate(f->m.gpu, f->prompt, N_PROMPT, NULL, made, N_NEW, &f->err), f);
    assert_memory_equal(made, want, sizeof want);
    reload(f, "prefill_from=4,launch_tokens=10"); /* short prompts, one after the other */
    good(sim_model_generate(f->m.gpu, f->prompt, N_PROMPT, NULL, made, N_NEW, &f->err), f);
    assert_memory_equal(made, want, sizeof want);
}

static void few_positions_go_through_the_decode_kernel(void **state) {
    struct fixture *f = *state;
    const int launches =
        6 * f->m.cpu->model.config.n_layers + 2; /* the steps; the first and last */
    reload(f, "prefill_from=4,short_positions=0");
    struct reel_session *s = open_session(f);
    f->gpu.cuda->n_launches = 0;
    assert_logits(f, s, 0, 3);
    assert_int_equal(f->gpu.cuda->n_launches, 1);
    assert_logits(f, s, 3, 4); /* the prompt's, then the head */
    assert_int_equal(f->gpu.cuda->n_launches, 1 + launches + 1);
    const struct reel_eval none = { .size = sizeof none, .n = 6, .ids = f->prompt + 7 };
    good(reel_session_eval(s, &none, &f->err), f);
    assert_int_equal(f->gpu.cuda->n_launches, 2 + 2 * launches);
    reel_session_close(s);
}

/* One, and the one that tells the host. */
static void a_short_prompt_is_one_launch(void **state) {
    enum { SHORT = 2, HEAD = 1 };
    struct fixture *f = *state;
    const int queue = 6 * f->m.cpu->model.config.n_layers + 2;
    reload(f, "prefill_from=4,short_from=3,short_positions=4"); /* 16 positions before 16 tokens */
    const int most = f->m.gpu->backend->plan.short_tokens;
    assert_in_range(most, 8, 16);
    struct reel_session *s = open_session(f);
    f->gpu.cuda->n_launches = 0;
    assert_logits(f, s, 0, most);
    assert_int_equal(f->gpu.cuda->n_launches, SHORT + HEAD);
    good(reel_session_truncate(s, 0, &f->err), f);
    assert_logits(f, s, 0, most + 1);
    assert_int_equal(f->gpu.cuda->n_launches, SHORT + queue + 2 * HEAD);
    good(reel_session_truncate(s, 14, &f->err), f);
    assert_logits(f, s, 14, 2); /* too few */
    assert_int_equal(f->gpu.cuda->n_launches, SHORT + queue + 3 * HEAD);
    assert_logits(f, s, 16, 3);
    assert_int_equal(f->gpu.cuda->n_launches, 2 * SHORT + queue + 4 * HEAD);
    good(reel_session_truncate(s, 17, &f->err), f);
    assert_logits(f, s, 17, 4); /* a position too many before them */
    assert_int_equal(f->gpu.cuda->n_launches, 2 * SHORT + 2 * queue + 5 * HEAD);
    reel_session_close(s);
}

/* Words that a launch beginning with epoch 1 would take for its own: of x, and those with 32 bits
 * of epoch. */
static void leave_old_words(struct fixture *f) {
    const struct backend *b = f->m.gpu->backend;
    const size_t n = b->plan.short_words;
    uint64_t *words = malloc(n * sizeof *words);
    assert_non_null(words);
    for (size_t i = 0; i < n; i++)
        words[i] = 1ull << 32 | 0x3f803f80ull;
    good(cuda_upload(&b->gpu, b->scratch + b->plan.scratch.bytes, words, n * sizeof *words, NULL,
                     &f->err),
         f);
    free(words);
}

/* Then they are cleared. */
static void epochs_of_short_prompts_may_come_round(void **state) {
    struct fixture *f = *state;
    reload(f, "prefill_from=4,short_from=4");
    struct backend *b = f->m.gpu->backend;
    const uint32_t n = (uint32_t)b->plan.tape.n_layers + 2;
    struct reel_session *s = open_session(f);
    assert_int_equal(b->short_epoch, 1);
    assert_logits(f, s, 0, 16);
    assert_logits(f, s, 16, 7);
    assert_int_equal(b->short_epoch, 1 + 2 * n);
    b->short_epoch = 256 - n;
    leave_old_words(f);
    assert_logits(f, s, 23, 8); /* the last before */
    assert_int_equal(b->short_epoch, 256);
    leave_old_words(f);
    assert_logits(f, s, 31, 9);
    assert_int_equal(b->short_epoch, 1 + n);
    reel_session_close(s);
    reload(f, "prefill_from=4,short_from=4,epoch=255");
    b = f->m.gpu->backend;
    s = open_session(f);
    assert_logits(f, s, 0, 7);
    assert_int_equal(b->short_epoch, 1 + n);
    f->gpu.cuda->only = "cuMemsetD8Async", f->gpu.cuda->fail_call = 1, f->gpu.cuda->fail_with = 2;
    b->short_epoch = 256;
    assert_int_equal(reel_session_sync(s, f->prompt, 20, NULL, &f->err), REEL_E_MEMORY);
    f->gpu.cuda->only = NULL;
    good(reel_session_truncate(s, 7, &f->err), f);
    assert_logits(f, s, 7, 8);
    assert_int_equal(b->short_epoch, 1 + n);
    reel_session_close(s);
}

static void hidden_states_and_embeddings_go_the_same_way(void **state) {
    struct fixture *f = *state;
    enum { N = 20 };
    float *rows = malloc((size_t)(N * f->hidden) * sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < N; i++)
        matrix_row_f32(&f->m.cpu->model.weights.embedding, f->prompt[i], rows + i * f->hidden);
    reload(f, "prefill_from=4,short_from=4");
    struct reel_session *s = open_session(f);
    float *a = last_of(f, s, f->prompt, NULL, N, REEL_OUTPUT_LAST_HIDDEN);
    good(reel_session_truncate(s, 0, &f->err), f);
    float *b = last_of(f, s, NULL, rows, N, REEL_OUTPUT_LAST_HIDDEN);
    assert_memory_equal(a, b, (size_t)f->hidden * sizeof *a);
    reel_session_close(s);
    reload(f, "prefill_from=4,launch_tokens=10"); /* by launches of short prompts */
    s = open_session(f);
    float *d = last_of(f, s, f->prompt, NULL, N, REEL_OUTPUT_LAST_HIDDEN);
    good(reel_session_truncate(s, 0, &f->err), f);
    float *e = last_of(f, s, NULL, rows, N, REEL_OUTPUT_LAST_HIDDEN);
    assert_memory_equal(d, e, (size_t)f->hidden * sizeof *a);
    assert_true(within_rounding(f, a, d, f->hidden));
    reel_session_close(s);
    reload(f, "prefill_from=0");
    s = open_session(f);
    float *c = last_of(f, s, f->prompt, NULL, N, REEL_OUTPUT_LAST_HIDDEN);
    assert_true(within_rounding(f, a, c, f->hidden));
    reel_session_close(s);
    free(a), free(b), free(c), free(d), free(e), free(rows);
}

static bool stop_evaluating(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)total;
    return done < *(uint64_t *)user;
}

static void a_cancelled_prompt_holds_its_first_chunks(void **state) {
    struct fixture *f = *state;
    uint64_t most = 128;
    reload(f, "prefill_from=4,short_from=4");
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = CONTEXT,
                                                  .progress = stop_evaluating,
                                                  .progress_user = &most };
    struct reel_session *s = NULL;
    int n_reused = 0;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    assert_int_equal(reel_session_sync(s, f->prompt, 140, NULL, &f->err), REEL_E_CANCELLED);
    assert_int_equal(reel_session_length(s), 128);
    most = CONTEXT;
    good(reel_session_sync(s, f->prompt, 140, &n_reused, &f->err), f);
    assert_int_equal(n_reused, 128);
    reel_session_close(s);
}

struct other {
    struct fixture *f;
    struct reel_session *s;
    float *logits[4];
};

static void *evaluate_often(void *user) {
    struct other *o = user;
    for (int i = 0; i < 4; i++) {
        o->logits[i] = last_of(o->f, o->s, o->f->prompt + i, NULL, 12, REEL_OUTPUT_LAST_LOGITS);
        (void)!reel_session_truncate(o->s, 0, NULL);
    }
    return NULL;
}

/* They share the scratch memory, out of which each takes what its own prompt left. */
static void check_threads(struct fixture *f, const char *options) {
    struct other others[2] = { { .f = f }, { .f = f } }, alone = { .f = f };
    pthread_t threads[2];
    reload(f, options);
    alone.s = open_session(f);
    evaluate_often(&alone);
    for (int i = 0; i < 2; i++)
        others[i].s = open_session(f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, evaluate_often, &others[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            assert_memory_equal(others[i].logits[j], alone.logits[j],
                                (size_t)f->m.vocab * sizeof(float));
            free(others[i].logits[j]);
        }
    for (int j = 0; j < 4; j++)
        free(alone.logits[j]);
    for (int i = 0; i < 2; i++)
        reel_session_close(others[i].s);
    reel_session_close(alone.s);
}

static void sessions_on_threads_do_not_mix(void **state) {
    check_threads(*state, "prefill_from=4,short_from=4");
    if (!sanitized_briefly()) check_threads(*state, "prefill_from=4,short_positions=0");
}

/* ---- the first id ---- */

static int32_t likeliest(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static bool keep_id(void *user, const struct reel_token *token) {
    *(int32_t *)user = token->id;
    return true;
}

/* The id that the session makes next, and how many launches that takes. */
static int32_t next_id(struct fixture *f, struct reel_session *s, int *launches) {
    int32_t id = -1;
    const struct reel_generation g = {
        .size = sizeof g, .max_tokens = 1, .ignore_stop_ids = true, .on_token = keep_id, .user = &id
    };
    struct reel_generation_result result = { .size = sizeof result };
    f->gpu.cuda->n_launches = 0;
    good(reel_generate(s, &g, &result, &f->err), f);
    *launches = f->gpu.cuda->n_launches;
    return id;
}

static int32_t id_after(struct fixture *f, const int32_t *ids, int n) {
    float *logits = sim_model_logits(f->m.cpu, ids, n);
    const int32_t id = likeliest(logits + (size_t)(n - 1) * (size_t)f->m.vocab, f->m.vocab);
    free(logits);
    return id;
}

/* A prompt's last token has been through the layers when decoding begins, whoever has read another
 * prompt since; that is forgotten when another token takes its place. More in test_cuda_last_row.c.
 */
static void the_first_id_comes_from_the_prompts_own_way(void **state) {
    enum { N = 9, OTHER = 7 };
    struct fixture *f = *state;
    static const char *const ways[] = { "", "short_positions=0,prefill_from=4" };
    for (size_t way = 0; way < 2; way++) {
        int launches = 0;
        reload(f, ways[way]);
        struct reel_session *a = open_session(f), *b = open_session(f);
        const int32_t want = id_after(f, f->prompt, N);
        good(reel_session_sync(a, f->prompt, N, NULL, &f->err), f);
        assert_int_equal(next_id(f, a, &launches), want);
        assert_int_equal(launches, 1);
        good(reel_session_truncate(a, 0, &f->err), f);
        good(reel_session_sync(a, f->prompt, N, NULL, &f->err), f);
        good(reel_session_sync(b, f->prompt + N, OTHER, NULL, &f->err), f);
        assert_int_equal(next_id(f, a, &launches), want);
        assert_int_equal(launches, 1);
        assert_int_equal(next_id(f, b, &launches), id_after(f, f->prompt + N, OTHER));
        /* another last token, which goes through the decode kernel */
        int32_t changed[N];
        memcpy(changed, f->prompt, sizeof changed);
        changed[N - 1] ^= 1;
        good(reel_session_truncate(a, 0, &f->err), f);
        good(reel_session_sync(a, f->prompt, N, NULL, &f->err), f);
        good(reel_session_sync(a, changed, N, NULL, &f->err), f);
        assert_int_equal(next_id(f, a, &launches), id_after(f, changed, N));
        good(reel_session_sync(a, f->prompt, N, NULL, &f->err), f);
        assert_int_equal(next_id(f, a, &launches), want);
        reel_session_close(a);
        reel_session_close(b);
    }
}

/* ---- failures ---- */

/* A call that is not missed may fail unnoticed: looking whether a launch is over, for one. */
static void calls_of_the_driver_may_fail(void **state) {
    static const struct {
        const char *options, *name;
        int n;
    } calls[] = { { "prefill_from=4,short_positions=0", "cuLaunchKernel", 1 },
                  { "prefill_from=4,short_positions=0", "cuLaunchKernelEx", 5 },
                  { "prefill_from=4,short_positions=0", "cuLaunchCooperativeKernel", 1 },
                  { "prefill_from=4,short_positions=0", "cuMemcpyDtoDAsync_v2", 1 },
                  { "prefill_from=4,short_from=4", "cuLaunchCooperativeKernel", 1 },
                  { "prefill_from=4,short_from=4", "cuLaunchKernel", 1 } };
    struct fixture *f = *state;
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
        reload(f, calls[call].options);
        struct reel_session *s = open_session(f);
        f->gpu.cuda->only = calls[call].name;
        f->gpu.cuda->fail_call = calls[call].n, f->gpu.cuda->fail_with = 2;
        float *logits = malloc((size_t)f->m.vocab * sizeof *logits);
        const struct reel_eval last = { .size = sizeof last,
                                        .n = 6,
                                        .ids = f->prompt,
                                        .output = REEL_OUTPUT_LAST_LOGITS,
                                        .out = logits,
                                        .out_floats = (size_t)f->m.vocab };
        const enum reel_status status = reel_session_eval(s, &last, &f->err);
        free(logits);
        assert_int_equal(f->gpu.cuda->fail_call, 0);
        f->gpu.cuda->only = NULL;
        assert_int_equal(status, REEL_E_MEMORY);
        reel_session_close(s);
    }
}

static void gives_up(struct fixture *f, const char *options, const struct fake_patch *patch,
                     const char *words) {
    f->gpu.nvrtc->patches = patch, f->gpu.nvrtc->n_patches = 1;
    struct sim_settings *settings = &f->gpu.cuda->settings;
    const struct sim_settings before = *settings;
    settings->idle_limit = 0, settings->host_wait_ms = 0;
    reload(f, options);
    f->gpu.nvrtc->n_patches = 0;
    struct reel_session *s = open_session(f);
    const struct reel_eval none = { .size = sizeof none, .n = 6, .ids = f->prompt };
    assert_int_equal(reel_session_eval(s, &none, &f->err), REEL_E_DEVICE);
    if (!strstr(f->err.text, words)) fail_msg("%s", f->err.text);
    *settings = before;
    f->m.gpu->backend->tuning.patience = 1u << 22;
    int32_t few[3] = { 1, 2, 3 };
    good(reel_session_sync(s, few, 3, NULL, &f->err), f); /* by the decode kernel */
    reel_session_close(s);
}

static void a_kernel_that_gives_up_is_named(void **state) {
    static const struct fake_patch stages = { .file = "prefill.cu",
                                              .from = "        product_produce(r, phase);\n",
                                              .to = "" };
    static const struct fake_patch weights = { .file = "short.cuh",
                                               .from = "short_produce(&b.w);",
                                               .to = ";" };
    gives_up(*state, "prefill_from=4,short_positions=0,patience=2000", &stages,
             "the prefill kernel gave up waiting for a stage of activations");
    if (sanitized_briefly()) return;
    gives_up(*state, "prefill_from=4,short_from=4,patience=2000", &weights,
             "the prefill kernel gave up waiting for a slot of the weight ring");
}

/* A block leaves at once: the others miss what it makes of its part of the residual stream. They
 * leave when they look at the abort word, which is long for the simulator. */
static void a_block_that_leaves_is_missed_by_name(void **state) {
    struct fixture *f = *state;
    if (sanitized_briefly()) return; /* the host's way is that of a kernel that gives up */
    struct sim_settings *settings = &f->gpu.cuda->settings;
    const struct sim_settings before = *settings;
    settings->idle_limit = 0, settings->host_wait_ms = 0;
    reload(f, "prefill_from=4,short_from=4,patience=3000,absent=1");
    struct reel_session *s = open_session(f);
    const struct reel_eval none = { .size = sizeof none, .n = 6, .ids = f->prompt };
    assert_int_equal(reel_session_eval(s, &none, &f->err), REEL_E_DEVICE);
    if (!strstr(f->err.text, "the prefill kernel gave up waiting for the norm") ||
        !strstr(f->err.text, "; epoch 1 wanted, "))
        fail_msg("%s\n%s", f->err.text, f->gpu.cuda->report);
    reel_session_close(s);
    *settings = before;
}

/* What an aborted launch left in the words is not there for the next one. */
static void a_short_prompt_after_one_that_gave_up_is_right(void **state) {
    struct fixture *f = *state;
    reload(f, "prefill_from=4,short_from=4");
    struct backend *b = f->m.gpu->backend;
    const unsigned patience = b->tuning.patience;
    struct reel_session *s = open_session(f);
    assert_logits(f, s, 0, 7);
    struct sim_settings *settings = &f->gpu.cuda->settings;
    const struct sim_settings before = *settings;
    settings->idle_limit = 0, settings->host_wait_ms = 0, settings->missing_block = 1;
    b->tuning.patience = 3000;
    const struct reel_eval none = { .size = sizeof none, .n = 9, .ids = f->prompt + 20 };
    assert_int_equal(reel_session_eval(s, &none, &f->err), REEL_E_DEVICE);
    if (!strstr(f->err.text, "the prefill kernel gave up")) fail_msg("%s", f->err.text);
    b->tuning.patience = patience;
    *settings = before;
    assert_true(b->short_dirty && b->dirty);
    good(reel_session_truncate(s, 7, &f->err), f);
    assert_logits(f, s, 7, 2); /* by the decode kernel, whose words are others */
    assert_true(b->short_dirty && !b->dirty);
    b->short_epoch = 1;
    leave_old_words(f);
    assert_logits(f, s, 9, 8);
    assert_false(b->short_dirty);
    reel_session_close(s);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_prompt_gives_the_references_logits_however_it_is_cut),
        in_turn(decoding_goes_on_where_the_prompt_ends),
        in_turn(few_positions_go_through_the_decode_kernel),
        in_turn(a_short_prompt_is_one_launch),
        in_turn(epochs_of_short_prompts_may_come_round),
        in_turn(hidden_states_and_embeddings_go_the_same_way),
        in_turn(a_cancelled_prompt_holds_its_first_chunks),
        in_turn(sessions_on_threads_do_not_mix),
        in_turn(the_first_id_comes_from_the_prompts_own_way),
        in_turn(calls_of_the_driver_may_fail),
        in_turn(a_kernel_that_gives_up_is_named),
        in_turn(a_block_that_leaves_is_missed_by_name),
        in_turn(a_short_prompt_after_one_that_gave_up_is_right),
    };
    SHARE_TESTS("cuda-prefill", 4, tests);
    return cmocka_run_group_tests(tests, start, stop);
}
