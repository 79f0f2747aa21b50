/* Sessions on the fake GPU: what the GPU backend promises to the runtime, whatever a launch is cut
 * into and whenever it is stopped. */
#include "runtime/session.h"
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
#include <time.h>

#include <cmocka.h>

/* One group, which takes half as long to simulate as two: what they exchange is in
 * test_cuda_epochs, test_cuda_step and test_cuda_pages. */
#define SMALL "n_groups=1,group_sms=2,warps=4"

static const int32_t prompt[] = {
    5, 17, 250, 3, 99, 41, 7, 128, 12, 200, 31, 77, 2, 64, 150, 19, 8
};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 12, CONTEXT = 64 };

/* One model, loaded with other options for each test. */
struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    int32_t expected[N_NEW]; /* greedy, after the prompt */
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static struct reel_session *open_session(struct fixture *f) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    return s;
}

static void sync_to(struct fixture *f, struct reel_session *s, const int32_t *ids, int n) {
    good(reel_session_sync(s, ids, n, NULL, &f->err), f);
}

static void reload(struct fixture *f, const char *options) {
    char all[300];
    if (f->m.gpu) sim_model_unload(&f->m);
    snprintf(all, sizeof all, SMALL "%s%s", options ? "," : "", options ? options : "");
    good(sim_model_load(&f->m, all, &f->err), f);
}

static struct fixture shared;

static int start_with(void **state, const char *model) {
    struct fixture *f = &shared;
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->settings.in_order = true;
    f->gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f->m, model);
    reload(f, NULL);
    good(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, f->expected, N_NEW, &f->err), f);
    *state = f;
    return 0;
}

static int start(void **state) { return start_with(state, "q3-a"); }
static int start_hybrid(void **state) { return start_with(state, "q35-a"); }
/* whose prompts are read in chunks, all but for the last position */
static int start_chunked(void **state) { return start_with(state, "q35-p"); }

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

/* ---- generating --------------------------------------------------------------------------------
 */

struct listener {
    int32_t ids[300];
    int n, stop_after, nap_us;
    struct reel_session *cancel;
};

static bool listen(void *user, const struct reel_token *token) {
    struct listener *l = user;
    l->ids[l->n++] = token->id;
    const struct timespec nap = { 0, l->nap_us * 1000L };
    if (l->nap_us) nanosleep(&nap, NULL);
    if (l->cancel && l->n == l->stop_after) reel_session_cancel(l->cancel);
    return l->cancel || l->n != l->stop_after;
}

static struct reel_generation_result generate(struct fixture *f, struct reel_session *s, int n,
                                              struct listener *l,
                                              const struct reel_sampling *sampling) {
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = sampling,
                                       .max_tokens = n,
                                       .ignore_stop_ids = true,
                                       .on_token = listen,
                                       .user = l };
    good(reel_generate(s, &g, &result, &f->err), f);
    return result;
}

static void assert_greedy(struct fixture *f, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] != f->expected[i])
            fail_msg("id %d is %d, %d is expected", i, (int)ids[i], (int)f->expected[i]);
}

/* What a session that holds the prompt generates, and what it holds then. */
static void assert_generates(struct fixture *f, struct reel_session *s) {
    struct listener l = { 0 };
    sync_to(f, s, prompt, N_PROMPT);
    generate(f, s, N_NEW, &l, NULL);
    assert_int_equal(l.n, N_NEW);
    assert_greedy(f, l.ids, N_NEW);
    assert_int_equal(reel_session_length(s), N_PROMPT + N_NEW);
    assert_greedy(f, reel_session_ids(s) + N_PROMPT, N_NEW);
}

static bool is_hybrid(const struct fixture *f) {
    return f->m.cpu->model.config.delta.key_heads > 0;
}

static void launches_of_any_length_give_the_same_ids(void **state) {
    static const char *const options[] = { "launch_tokens=1", "launch_tokens=2", "launch_tokens=5",
                                           "launch_tokens=16,lead=1", "spin_us=0" };
    struct fixture *f = *state;
    /* a recurrent state is another one after launches of other lengths; the rest is as without */
    size_t n = is_hybrid(f) && !getenv("REEL_SOAK") ? 3 : sizeof options / sizeof *options;
    for (size_t i = 0; i < n; i += sanitized_briefly() ? 2 : 1) {
        reload(f, options[i]);
        struct reel_session *s = open_session(f);
        assert_generates(f, s);
        reel_session_close(s);
    }
}

static void many_tokens_take_one_launch(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    struct listener l = { 0 };
    sync_to(f, s, prompt, N_PROMPT);
    f->gpu.cuda->n_launches = 0;
    generate(f, s, N_NEW, &l, NULL);
    assert_in_range(f->gpu.cuda->n_launches, 1,
                    2); /* the first id is drawn from the prompt's logits */
    reel_session_close(s);
}

static void epochs_may_come_round(void **state) {
    struct fixture *f = *state;
    static const char *const options[] = { "epoch=4294967196", "epoch=65535", "epoch=65530" };
    for (size_t i = 0; i < (sanitized_briefly() ? 1 : sizeof options / sizeof *options); i++) {
        reload(f, options[i]);
        struct reel_session *s = open_session(f);
        for (int j = 0; j < 3; j++) {
            assert_generates(f, s);
            good(reel_session_truncate(s, 0, &f->err), f);
        }
        reel_session_close(s);
    }
}

static void a_slow_reader_loses_nothing(void **state) {
    struct fixture *f = *state;
    reload(f, "lead=2");
    struct reel_session *s = open_session(f);
    struct listener l = { .nap_us = 20000 };
    sync_to(f, s, prompt, N_PROMPT);
    generate(f, s, N_NEW, &l, NULL);
    assert_int_equal(l.n, N_NEW);
    assert_greedy(f, l.ids, N_NEW);
    reel_session_close(s);
}

static void after_a_stop_the_session_holds_what_was_delivered(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    for (int n = 1; n < N_NEW; n += 3) {
        struct listener l = { .stop_after = n }, rest = { 0 };
        sync_to(f, s, prompt, N_PROMPT);
        assert_int_equal(generate(f, s, 0, &l, NULL).reason, REEL_STOP_CALLBACK);
        assert_int_equal(l.n, n);
        assert_int_equal(reel_session_length(s), N_PROMPT + n);
        generate(f, s, N_NEW - n, &rest, NULL);
        assert_greedy(f, l.ids, n);
        assert_int_equal(rest.n, N_NEW - n);
        for (int i = 0; i < rest.n; i++)
            assert_int_equal(rest.ids[i], f->expected[n + i]);
        good(reel_session_truncate(s, N_PROMPT, &f->err), f);
    }
    reel_session_close(s);
}

static void a_cancelled_generation_ends_there(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    struct listener l = { .stop_after = 4, .cancel = s };
    sync_to(f, s, prompt, N_PROMPT);
    assert_int_equal(generate(f, s, 0, &l, NULL).reason, REEL_STOP_CANCELLED);
    assert_int_equal(l.n, 4);
    assert_int_equal(reel_session_length(s), N_PROMPT + 4);
    assert_generates(f, s);
    reel_session_close(s);
}

static void a_stop_id_ends_the_launch(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    struct listener l = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .stop_ids = &f->expected[2],
                                       .n_stop_ids = 1,
                                       .on_token = listen,
                                       .user = &l };
    struct reel_generation_result result = { .size = sizeof result };
    int first = 0;
    while (f->expected[first] != f->expected[2])
        first++;
    sync_to(f, s, prompt, N_PROMPT);
    good(reel_generate(s, &g, &result, &f->err), f);
    assert_int_equal(result.reason, REEL_STOP_ID);
    assert_int_equal(l.n, first + 1);
    reel_session_close(s);
}

/* ---- giving way --------------------------------------------------------------------------------
 */

/* Decodes as the runtime does when others wait: each call ends after some of its ids. */
struct giving_way {
    struct reel_session *s;
    int32_t ids[200];
    int n, before; /* ids in all, and when this call began */
    int calls;
};

static bool keep_id(void *user, int32_t id) {
    struct giving_way *g = user;
    g->ids[g->n++] = id;
    sampler_saw_generated(g->s->sampler, id);
    return true;
}

static bool has_enough(void *user) {
    const struct giving_way *g = user;
    return g->n - g->before >= g->calls % 3;
}

static int32_t draw_here(void *user, const float *logits, int64_t position) {
    const struct giving_way *g = user;
    return sampler_draw(g->s->sampler, logits, position);
}

static void decode_some(struct fixture *f, struct giving_way *g, int max_tokens) {
    const struct backend_ops *ops = f->m.gpu->ops;
    const int first = N_PROMPT - 1 + g->n;
    const struct backend_decode decode = { .position = first,
                                           .id = g->n ? g->ids[g->n - 1] : prompt[N_PROMPT - 1],
                                           .max_tokens = max_tokens,
                                           .sampling = sampler_sampling(g->s->sampler),
                                           .on_id = keep_id,
                                           .enough = has_enough,
                                           .draw = draw_here,
                                           .user = g };
    g->before = g->n;
    g->calls++;
    good(ops->decode(g->s->state, &decode, &f->err), f);
    assert_true(g->n > g->before);
    const int end = N_PROMPT - 1 + g->n;
    assert_int_equal(ops->resume ? ops->resume(g->s->state, end) : end, end);
}

/* Whatever a launch had made when it was told to end, the next one goes on from there: the ids are
 * those of one launch, also where the host has to draw one, and no state is lost. */
static void a_launch_that_gives_way_loses_nothing(void **state) {
    struct fixture *f = *state;
    enum { N = N_NEW };
    const struct reel_sampling all[] = {
        { .size = sizeof *all },
        { .size = sizeof *all, .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 8 },
        { .size = sizeof *all, .temperature = 1.3f, .top_k = 110, .seed = 10 },
    };
    reload(f, "launch_tokens=1000");
    for (size_t i = 0; i < sizeof all / sizeof *all; i += sanitized_briefly() ? 2 : 1) {
        int32_t expected[N];
        struct giving_way g = { .s = open_session(f) };
        good(sim_model_generate(f->m.gpu, prompt, N_PROMPT, &all[i], expected, N, &f->err), f);
        sync_to(f, g.s, prompt, N_PROMPT);
        good(sampler_start(g.s->sampler, &all[i], &f->err), f);
        for (int j = 0; j < N_PROMPT; j++)
            sampler_saw_prompt(g.s->sampler, prompt[j]);
        while (g.n < N)
            decode_some(f, &g, N - g.n);
        assert_memory_equal(g.ids, expected, sizeof expected);
        if (g.calls < 3) fail_msg("%d calls were enough", g.calls);
        reel_session_close(g.s);
    }
}

static void a_context_is_filled_to_its_end(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    struct listener l = { 0 };
    sync_to(f, s, prompt, N_PROMPT);
    assert_int_equal(generate(f, s, 0, &l, NULL).reason, REEL_STOP_CONTEXT);
    assert_int_equal(reel_session_length(s), CONTEXT);
    assert_greedy(f, l.ids, N_NEW);
    reel_session_close(s);
}

/* ---- sampling: the device or, where it cannot, the host
 * --------------------------------------------
 */

static void assert_samples_as_the_host(struct fixture *f, const struct reel_sampling *sampling) {
    int32_t ids[N_NEW];
    struct reel_session *s = open_session(f);
    float *logits = malloc((size_t)f->m.vocab * sizeof *logits);
    assert_non_null(logits);
    good(sim_model_generate(f->m.gpu, prompt, N_PROMPT, sampling, ids, N_NEW, &f->err), f);
    /* log-probabilities keep the runtime's own loop: logits of one position, a draw on the host */
    struct listener l = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = sampling,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .logprobs = true,
                                       .on_token = listen,
                                       .user = &l };
    struct reel_generation_result result = { .size = sizeof result };
    sync_to(f, s, prompt, N_PROMPT);
    good(reel_generate(s, &g, &result, &f->err), f);
    assert_memory_equal(ids, l.ids, sizeof ids);
    free(logits);
    reel_session_close(s);
}

static void drawn_ids_are_those_of_the_host(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    const struct reel_logit_bias bias[] = { { 11, 3.0f }, { f->expected[0], -INFINITY } };
    const struct reel_logit_bias twice[] = { { 11, 3.0f }, { 11, 0.1f } };
    const struct reel_sampling all[] = {
        { .size = sizeof *all, .temperature = 0.8f, .seed = 7 },
        { .size = sizeof *all, .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 8 },
        { .size = sizeof *all, .temperature = 1.3f, .min_p = 0.05f, .seed = 9 },
        { .size = sizeof *all, .bias = bias, .n_bias = 2 },
        { .size = sizeof *all, .bias = twice, .n_bias = 2 },
        { .size = sizeof *all, .repetition_penalty = 1.3f },
        { .size = sizeof *all, .presence_penalty = 0.5f, .frequency_penalty = 0.3f },
        { .size = sizeof *all,
          .temperature = 0.7f,
          .top_p = 0.95f,
          .repetition_penalty = 1.1f,
          .frequency_penalty = 0.4f,
          .seed = 10 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i += sanitized_briefly() ? 3 : 1)
        assert_samples_as_the_host(f, &all[i]);
}

/* ---- evaluating ---------------------------------------------------------------------------------
 */

static float *eval(struct fixture *f, struct reel_session *s, const struct reel_eval *given) {
    struct reel_eval e = *given;
    const struct reel_model_info info = { .size = sizeof info };
    struct reel_model_info model = info;
    assert_int_equal(reel_model_get_info(f->m.gpu, &model, NULL), REEL_OK);
    const bool logits = e.output == REEL_OUTPUT_ALL_LOGITS || e.output == REEL_OUTPUT_LAST_LOGITS;
    e.size = sizeof e;
    e.out_floats = (size_t)(logits ? model.vocab : model.hidden) * (size_t)e.n;
    e.out = malloc(e.out_floats * sizeof *e.out);
    assert_non_null(e.out);
    good(reel_session_eval(s, &e, &f->err), f);
    return e.out;
}

/* The last row of `all` is `last`, bit for bit. */
static void assert_last_row(const float *all, const float *last, int n, int width) {
    assert_memory_equal(all + (size_t)(n - 1) * (size_t)width, last, (size_t)width * sizeof *last);
}

/* The kernel traps where it begins with the output matrix; 17 tokens go through the kernels for
 * prompts, 3 and 1 through the decode kernel. */
static void no_output_leaves_the_output_matrix_alone(void **state) {
    static const struct fake_patch trap = {
        .file = "decode.cu",
        .from = "if (head) head_consume(",
        .to = "if (head) __builtin_trap(); if (head) head_consume("
    };
    static float vectors[3 * 64];
    struct fixture *f = *state;
    f->gpu.nvrtc->patches = &trap, f->gpu.nvrtc->n_patches = 1;
    reload(f, NULL);
    f->gpu.nvrtc->n_patches = 0;
    const struct reel_eval evals[] = { { .size = sizeof *evals, .n = N_PROMPT, .ids = prompt },
                                       { .size = sizeof *evals, .n = 3, .ids = prompt },
                                       { .size = sizeof *evals, .n = 1, .ids = prompt },
                                       { .size = sizeof *evals, .n = 3, .embeddings = vectors } };
    struct reel_session *s = open_session(f);
    for (size_t i = 0; i < sizeof evals / sizeof *evals; i++)
        good(reel_session_eval(s, &evals[i], &f->err), f);
    assert_int_equal(reel_session_length(s), N_PROMPT + 7);
    reel_session_close(s);
    reload(f, NULL);
}

static void outputs_do_not_depend_on_what_else_is_asked_for(void **state) {
    struct fixture *f = *state;
    enum { HIDDEN = 64 };
    static const struct {
        enum reel_output all, last;
    } pairs[] = { { REEL_OUTPUT_ALL_LOGITS, REEL_OUTPUT_LAST_LOGITS },
                  { REEL_OUTPUT_ALL_HIDDEN, REEL_OUTPUT_LAST_HIDDEN } };
    reload(f, "launch_tokens=6");
    for (int i = 0; i < 2; i++) {
        struct reel_session *s = open_session(f);
        float *all =
            eval(f, s, &(struct reel_eval){ .n = N_PROMPT, .ids = prompt, .output = pairs[i].all });
        good(reel_session_truncate(s, 0, &f->err), f);
        float *last = eval(
            f, s, &(struct reel_eval){ .n = N_PROMPT, .ids = prompt, .output = pairs[i].last });
        assert_last_row(all, last, N_PROMPT, i == 0 ? f->m.vocab : HIDDEN);
        for (int j = 0; j < (i == 0 ? f->m.vocab : HIDDEN) * N_PROMPT; j++)
            assert_true(isfinite(all[j]));
        free(last);
        good(reel_session_truncate(s, N_PROMPT - 1, &f->err), f);
        last = eval(
            f, s,
            &(struct reel_eval){ .n = 1, .ids = prompt + N_PROMPT - 1, .output = pairs[i].last });
        assert_last_row(all, last, N_PROMPT, i == 0 ? f->m.vocab : HIDDEN);
        free(all), free(last);
        reel_session_close(s);
    }
}

static void embeddings_are_as_good_as_ids(void **state) {
    struct fixture *f = *state;
    const struct model *model = &f->m.cpu->model;
    const size_t hidden = (size_t)model->config.hidden;
    float *rows = malloc(N_PROMPT * hidden * sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < N_PROMPT; i++)
        matrix_row_f32(&model->weights.embedding, prompt[i], rows + (size_t)i * hidden);
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    const enum reel_output all = REEL_OUTPUT_ALL_LOGITS;
    float *a = eval(f, s, &(struct reel_eval){ .n = N_PROMPT, .ids = prompt, .output = all });
    good(reel_session_truncate(s, 0, &f->err), f);
    float *b = eval(f, s, &(struct reel_eval){ .n = N_PROMPT, .embeddings = rows, .output = all });
    assert_memory_equal(a, b, (size_t)(N_PROMPT * f->m.vocab) * sizeof *a);
    free(a), free(b), free(rows);
    reel_session_close(s);
}

static void positions_are_overwritten_after_a_truncation(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    int32_t other[CONTEXT - 4];
    for (int i = 0; i < CONTEXT - 4; i++)
        other[i] = (int32_t)(i * 31 % 256);
    for (int keep = 0; keep < N_PROMPT; keep += getenv("REEL_SOAK") ? 5 : 10) {
        memcpy(other, prompt, (size_t)keep * sizeof *other);
        sync_to(f, s, other, CONTEXT - 4);
        assert_generates(f, s);
    }
    reel_session_close(s);
}

static bool stop_evaluating(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)total;
    return done < *(uint64_t *)user;
}

static void a_cancelled_evaluation_holds_a_prefix(void **state) {
    struct fixture *f = *state;
    uint64_t most = 6;
    reload(f, "launch_tokens=3");
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = CONTEXT,
                                                  .progress = stop_evaluating,
                                                  .progress_user = &most };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    assert_int_equal(reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err), REEL_E_CANCELLED);
    most = 100;
    assert_generates(f, s);
    reel_session_close(s);
}

/* ---- snapshots, copies, several sessions
 * ---------------------------------------------------------- */

static void a_snapshot_is_a_function_of_what_is_held(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f), *other = open_session(f);
    int32_t noise[CONTEXT - 1];
    for (int i = 0; i < CONTEXT - 1; i++)
        noise[i] = (int32_t)(i * 7 % 256);
    sync_to(f, s, prompt, N_PROMPT);
    sync_to(f, other, noise, CONTEXT - 1); /* rows beyond differ */
    sync_to(f, other, prompt, N_PROMPT);
    size_t n = reel_session_snapshot_bytes(s);
    assert_int_equal(reel_session_snapshot_bytes(other), n);
    unsigned char *a = malloc(n), *b = malloc(n);
    assert_non_null(a);
    assert_non_null(b);
    good(reel_session_snapshot(s, a, n, &f->err), f);
    good(reel_session_snapshot(other, b, n, &f->err), f);
    assert_memory_equal(a, b, n);
    struct reel_session *fresh = open_session(f);
    good(reel_session_restore(fresh, a, n, &f->err), f);
    assert_int_equal(reel_session_length(fresh), N_PROMPT);
    assert_generates(f, fresh);
    free(a), free(b);
    reel_session_close(fresh), reel_session_close(other), reel_session_close(s);
}

static void a_copy_goes_on_by_itself(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f), *copy = NULL;
    const struct reel_session_options wide = { .size = sizeof wide, .max_context = 3 * CONTEXT };
    good(reel_session_open(&copy, f->m.gpu, &wide, &f->err), f);
    sync_to(f, s, prompt, N_PROMPT);
    good(reel_session_copy(copy, s, &f->err), f);
    struct listener l = { 0 };
    generate(f, copy, N_NEW, &l, NULL);
    assert_greedy(f, l.ids, N_NEW);
    reel_session_close(copy);
    assert_generates(f, s);
    reel_session_close(s);
}

struct nested {
    struct fixture *f;
    struct reel_session *inner;
    struct listener outer;
    bool done;
};

static bool generate_inside(void *user, const struct reel_token *token) {
    struct nested *n = user;
    n->outer.ids[n->outer.n++] = token->id;
    if (n->outer.n == 3) assert_generates(n->f, n->inner);
    return true;
}

static void a_session_may_generate_inside_another_ones_callback(void **state) {
    struct fixture *f = *state;
    reload(f, NULL);
    struct reel_session *s = open_session(f);
    struct nested n = { .f = f, .inner = open_session(f) };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = generate_inside,
                                       .user = &n };
    sync_to(f, s, prompt, N_PROMPT);
    good(reel_generate(s, &g, NULL, &f->err), f);
    assert_int_equal(n.outer.n, N_NEW);
    assert_greedy(f, n.outer.ids, N_NEW);
    reel_session_close(n.inner), reel_session_close(s);
}

struct thread {
    struct fixture *f;
    struct listener l;
    enum reel_status status;
    struct reel_error err;
};

static void *generate_beside(void *of) {
    struct thread *t = of;
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = listen,
                                       .user = &t->l };
    struct reel_session *s = NULL;
    t->status = reel_session_open(&s, t->f->m.gpu, &options, &t->err);
    if (t->status == REEL_OK) t->status = reel_session_sync(s, prompt, N_PROMPT, NULL, &t->err);
    if (t->status == REEL_OK) t->status = reel_generate(s, &g, NULL, &t->err);
    reel_session_close(s);
    return NULL;
}

static void assert_threads_do_not_mix(struct fixture *f, const char *launches) {
    enum { N = 4 };
    pthread_t id[N];
    struct thread t[N] = { 0 };
    reload(f, launches);
    for (int i = 0; i < N; i++) {
        t[i].f = f;
        assert_int_equal(pthread_create(&id[i], NULL, generate_beside, &t[i]), 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(id[i], NULL);
    for (int i = 0; i < N; i++) {
        if (t[i].status != REEL_OK) fail_msg("thread %d: %s", i, t[i].err.text);
        assert_int_equal(t[i].l.n, N_NEW);
        assert_greedy(f, t[i].l.ids, N_NEW);
    }
}

static void sessions_of_many_threads_do_not_mix(void **state) {
    /* whether states are recurrent makes no difference to launches that nobody tells to end */
    if (!is_hybrid(*state)) assert_threads_do_not_mix(*state, "launch_tokens=3");
    assert_threads_do_not_mix(*state, NULL); /* launches that others wait for are told to end */
}

/* ---- log-probabilities ---- */

struct scored {
    struct thread of;
    struct reel_session *session;
    float logprobs[N_NEW], second[N_NEW]; /* of the id; of the second of the likeliest */
    int n_joined;                         /* ids that came of passes */
};

static bool listen_to_scores(void *user, const struct reel_token *token) {
    struct scored *s = user;
    const int n = s->of.l.n;
    assert_int_equal(token->n_top, 2);
    assert_true(token->top[0].id == token->id && token->top[0].logprob == token->logprob);
    s->logprobs[n] = token->logprob, s->second[n] = token->top[1].logprob;
    s->n_joined += s->session->generation.joined;
    return listen(&s->of.l, token);
}

static void *score_beside(void *of) {
    struct scored *s = of;
    struct thread *t = &s->of;
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .n_top_logprobs = 2,
                                       .on_token = listen_to_scores,
                                       .user = s };
    t->status = reel_session_open(&s->session, t->f->m.gpu, &options, &t->err);
    if (t->status == REEL_OK)
        t->status = reel_session_sync(s->session, prompt, N_PROMPT, NULL, &t->err);
    if (t->status == REEL_OK) t->status = reel_generate(s->session, &g, NULL, &t->err);
    reel_session_close(s->session);
    return NULL;
}

/* They have columns as others do, and what they are told is what they are told alone. */
static void log_probabilities_are_told_beside_others(void **state) {
    struct fixture *f = *state;
    enum { N = 2 };
    struct scored alone = { .of.f = f }, scored[N] = { 0 };
    struct thread other = { .f = f };
    pthread_t id[N], third;
    reload(f, NULL);
    (void)score_beside(&alone);
    assert_int_equal(alone.of.status, REEL_OK);
    assert_int_equal(pthread_create(&third, NULL, generate_beside, &other), 0);
    for (int i = 0; i < N; i++) {
        scored[i].of.f = f;
        assert_int_equal(pthread_create(&id[i], NULL, score_beside, &scored[i]), 0);
    }
    pthread_join(third, NULL);
    assert_greedy(f, other.l.ids, N_NEW);
    for (int i = 0; i < N; i++) {
        pthread_join(id[i], NULL);
        if (scored[i].of.status != REEL_OK) fail_msg("thread %d: %s", i, scored[i].of.err.text);
        assert_greedy(f, scored[i].of.l.ids, N_NEW);
        assert_memory_equal(scored[i].logprobs, alone.logprobs, sizeof alone.logprobs);
        assert_memory_equal(scored[i].second, alone.second, sizeof alone.second);
        assert_true(scored[i].n_joined > 0);
    }
}

/* ---- recurrent states --------------------------------------------------------------------------
 */

/* How much of the first n tokens a session evaluates again. */
static int evaluated_again(struct fixture *f, struct reel_session *s, int n) {
    int32_t ids[300];
    int n_reused = 0;
    memcpy(ids, reel_session_ids(s), (size_t)n * sizeof *ids);
    good(reel_session_truncate(s, n, &f->err), f);
    good(reel_session_sync(s, ids, n, &n_reused, &f->err), f);
    return n - n_reused;
}

/* Before a prompt, before its last position, every 256 while decoding; a stop that the device did
 * not see coming costs what lies behind the last of them. */
static void a_state_is_kept_where_it_is_due(void **state) {
    struct fixture *f = *state;
    reload(f, "launch_tokens=1000");
    const struct reel_session_options wide = { .size = sizeof wide, .max_context = 300 };
    struct reel_session *s = NULL;
    struct listener l = { 0 };
    good(reel_session_open(&s, f->m.gpu, &wide, &f->err), f);
    sync_to(f, s, prompt, N_PROMPT);
    assert_int_equal(evaluated_again(f, s, N_PROMPT), 0);
    generate(f, s, N_NEW, &l, NULL); /* from the last position of the prompt */
    assert_int_equal(evaluated_again(f, s, N_PROMPT + N_NEW - 1), 0);
    assert_int_equal(evaluated_again(f, s, N_PROMPT - 1), 0);
    l = (struct listener){ .stop_after = 5 };
    sync_to(f, s, prompt, N_PROMPT);
    generate(f, s, 0, &l, NULL);
    assert_greedy(f, l.ids, 5);
    assert_int_equal(evaluated_again(f, s, N_PROMPT + 4), 5);
    if (getenv("REEL_SOAK")) {
        static struct listener many;
        many.n = 0;
        generate(f, s, 270, &many, NULL);
        assert_int_equal(evaluated_again(f, s, 270), 270 - 256);
    }
    reel_session_close(s);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(launches_of_any_length_give_the_same_ids),
        in_turn(many_tokens_take_one_launch),
        in_turn(epochs_may_come_round),
        in_turn(a_slow_reader_loses_nothing),
        in_turn(after_a_stop_the_session_holds_what_was_delivered),
        in_turn(a_cancelled_generation_ends_there),
        in_turn(a_stop_id_ends_the_launch),
        in_turn(a_launch_that_gives_way_loses_nothing),
        in_turn(a_context_is_filled_to_its_end),
        in_turn(drawn_ids_are_those_of_the_host),
        cmocka_unit_test(no_output_leaves_the_output_matrix_alone),
        in_turn(outputs_do_not_depend_on_what_else_is_asked_for),
        in_turn(embeddings_are_as_good_as_ids),
        in_turn(positions_are_overwritten_after_a_truncation),
        in_turn(a_cancelled_evaluation_holds_a_prefix),
        in_turn(a_snapshot_is_a_function_of_what_is_held),
        in_turn(a_copy_goes_on_by_itself),
        cmocka_unit_test(a_session_may_generate_inside_another_ones_callback),
        cmocka_unit_test(sessions_of_many_threads_do_not_mix),
        cmocka_unit_test(log_probabilities_are_told_beside_others),
    };
    /* what a recurrent state makes different */
    struct CMUnitTest again[] = {
        in_turn(launches_of_any_length_give_the_same_ids),
        in_turn(after_a_stop_the_session_holds_what_was_delivered),
        in_turn(a_cancelled_generation_ends_there),
        in_turn(a_stop_id_ends_the_launch),
        in_turn(a_launch_that_gives_way_loses_nothing),
        in_turn(a_cancelled_evaluation_holds_a_prefix),
        in_turn(a_snapshot_is_a_function_of_what_is_held),
        in_turn(a_copy_goes_on_by_itself),
        in_turn(a_session_may_generate_inside_another_ones_callback),
        in_turn(sessions_of_many_threads_do_not_mix),
        in_turn(a_state_is_kept_where_it_is_due),
    };
    /* what is decoded first and read as a prompt later differs by rounding: not here */
    struct CMUnitTest prompts[] = {
        in_turn(a_snapshot_is_a_function_of_what_is_held),
        in_turn(a_state_is_kept_where_it_is_due),
    };
    /* A run has one half of what one of the models has. */
    const struct share share = share_of("sessions", 4);
    int failed = 0;
    if (share_has(share, 0) || share_has(share, 1)) {
        SHARE_TESTS("sessions-attention", 2, tests);
        failed += cmocka_run_group_tests_name("attention", tests, start, stop);
    }
    if (share_has(share, 2) || share_has(share, 3)) {
        SHARE_TESTS("sessions-hybrid", 2, again);
        failed += cmocka_run_group_tests_name("hybrid", again, start_hybrid, stop);
        if (sanitized_briefly()) return failed;
        SHARE_TESTS("sessions-in-chunks", 2, prompts);
        failed += cmocka_run_group_tests_name("chunked", prompts, start_chunked, stop);
    }
    return failed;
}
