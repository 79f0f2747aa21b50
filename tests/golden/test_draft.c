/* The draft layer of a miniature Qwen3.5 against PyTorch (tools/make_draft_golden.py): the
 * reference, and every CPU path however the session's positions were evaluated. */
#include "cpu/reference_model.h"
#include "model/draft_model.h"
#include "tests/support/golden.h"
#include "tests/support/told_pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_IDS       96
#define EXACT_BOUND 1e-4 /* of a position's largest logit */

static struct golden golden;
static struct golden_model files;
static struct golden_logits first, second;
static int32_t *ids, *told; /* told [second.n]: what the first step says */
static size_t vocab, hidden;
/* By the reference without rounding: of each slot; of second's. */
static float *exact_first, *exact_second;

/* ---- the reference --------------------------------------------------------------------------- */

static struct ref_state *open_state(const struct model_config *config,
                                    const struct weights *weights) {
    const struct ref_options options = { .mode = REF_EXACT, .max_positions = N_IDS };
    struct ref_state *state = NULL;
    struct reel_error err = { 0 };
    golden_require(ref_state_open(&state, config, weights, &options, &err), &err);
    return state;
}

static void evaluate(struct ref_state *state, const struct backend_eval *eval) {
    struct reel_error err = { 0 };
    golden_require(ref_state_eval(state, eval, &err), &err);
}

/* What goes into a slot. */
static void make_input(const float *state, int32_t next, float *out) {
    float *scratch = golden_floats(5 * hidden), *embedding = scratch + 2 * hidden;
    cpu_embed(&files.weights.embedding, REF_AS_STORED, next, embedding);
    float *row = scratch + 3 * hidden;
    cpu_draft_input(&files.weights.draft, REF_AS_STORED, embedding, state, (int)hidden,
                    files.config.rms_eps, scratch, row, out, REF_EXACT);
    free(scratch);
}

static void compute_exact(void) {
    struct draft_model draft;
    draft_model_fill(&draft, &files.config, &files.weights);
    const int n = N_IDS - 1;
    float *states = golden_floats((size_t)N_IDS * hidden), *inputs = golden_floats(N_IDS * hidden);
    float *made = golden_floats((size_t)n * hidden);
    exact_first = golden_floats((size_t)n * vocab);
    exact_second = golden_floats((size_t)second.n * vocab);
    struct ref_state *model = open_state(&files.config, &files.weights);
    evaluate(model, &(struct backend_eval){
                        .n = N_IDS, .ids = ids, .output = REEL_OUTPUT_ALL_HIDDEN, .out = states });
    ref_state_close(model);
    for (int t = 0; t < n; t++)
        make_input(states + (size_t)t * hidden, ids[t + 1], inputs + (size_t)t * hidden);
    struct ref_state *layer = open_state(&draft.config, &draft.weights);
    evaluate(layer,
             &(struct backend_eval){
                 .n = n, .embeddings = inputs, .output = REEL_OUTPUT_ALL_HIDDEN, .out = made });
    evaluate(layer, &(struct backend_eval){ .n = n,
                                            .embeddings = inputs,
                                            .output = REEL_OUTPUT_ALL_LOGITS,
                                            .out = exact_first });
    for (int i = second.n - 1; i >= 0; i--) { /* the slots before stay */
        const int t = second.at[i];
        float *input = golden_floats(hidden);
        make_input(made + (size_t)t * hidden, told[i], input);
        evaluate(layer, &(struct backend_eval){ .position = t + 1,
                                                .n = 1,
                                                .embeddings = input,
                                                .output = REEL_OUTPUT_LAST_LOGITS,
                                                .out = exact_second + (size_t)i * vocab });
        free(input);
    }
    ref_state_close(layer);
    free(states);
    free(inputs);
    free(made);
}

static int open_all(void **state) {
    (void)state;
    golden_open(&golden, "q35-d");
    golden_model_open(&files, "q35-d");
    golden_logits_read(&first, &golden, "");
    golden_logits_read(&second, &golden, "second.");
    ids = golden_int(&golden, "ids");
    told = golden_int(&golden, "second.first");
    vocab = (size_t)files.config.vocab;
    hidden = (size_t)files.config.hidden;
    compute_exact();
    return 0;
}

static int close_all(void **state) {
    (void)state;
    free(exact_first);
    free(exact_second);
    free(ids);
    free(told);
    golden_logits_release(&first);
    golden_logits_release(&second);
    golden_model_close(&files);
    golden_close(&golden);
    return 0;
}

static void the_reference_tells_what_pytorch_does(void **state) {
    (void)state;
    double worst[2] = { 0 };
    for (int i = 0; i < first.n + second.n; i++) {
        const bool again = i >= first.n;
        const int at = again ? i - first.n : i;
        const double error =
            again ? golden_logits_error(&second, at, exact_second + (size_t)at * vocab, (int)vocab)
                  : golden_logits_error(&first, at, exact_first + (size_t)at * vocab, (int)vocab);
        if (!(error <= worst[again])) worst[again] = error;
    }
    print_message("logits are off by %.1e of the largest at most, those of second steps by %.1e\n",
                  worst[0], worst[1]);
    assert_true(first.n == N_IDS - 1 && second.n == 16);
    assert_true(worst[0] <= EXACT_BOUND && worst[1] <= EXACT_BOUND);
}

/* Of a large vocabulary the first ids alone are guessed, so that a guess stays cheap. */
static void only_the_first_ids_of_many_are_guessed(void **state) {
    (void)state;
    struct draft_model draft;
    struct model_config config = files.config;
    struct weights weights = files.weights;
    draft_model_fill(&draft, &config, &weights);
    assert_int_equal(draft.weights.head.rows, vocab);
    config.vocab = weights.head.rows = weights.embedding.rows = 248320;
    draft_model_fill(&draft, &config, &weights);
    assert_int_equal(draft.config.vocab, DRAFT_IDS);
    assert_int_equal(draft.weights.head.rows, DRAFT_IDS);
    assert_int_equal(draft.weights.embedding.rows, 248320); /* any id may go in */
}

/* ---- the fast paths -------------------------------------------------------------------------- */

struct guessing {
    struct backend *b;
    struct backend_state *s;
    float *logits;
    double worst;
};

static void eval_some(struct guessing *g, int from, int n) {
    const struct backend_eval eval = { .position = from, .n = n, .ids = ids + from };
    assert_int_equal(cpu_backend.eval(g->s, &eval, NULL), REEL_OK);
}

static void judge(struct guessing *g, const struct golden_logits *stored, int i,
                  const float *exact) {
    const struct golden_ratio r =
        golden_logits_ratio(stored, i, g->logits, exact + (size_t)i * vocab, (int)vocab);
    if (!(r.rms <= GOLDEN_BOUND && r.max <= GOLDEN_BOUND))
        fail_msg("at %d of %d: the error is %.2f (rms) and %.2f (max) times the bf16 run's", i,
                 stored->n, r.rms, r.max);
    if (r.rms > g->worst) g->worst = r.rms;
}

/* Slot t, when positions 0 .. t have been evaluated. */
static void judge_slot(struct guessing *g, int t) {
    int32_t guess[1];
    assert_int_equal(cpu_backend.guess(g->s, t + 1, ids[t + 1], guess, 1, g->logits), 1);
    judge(g, &first, t, exact_first);
    for (size_t i = 0; i < vocab; i++)
        assert_true(g->logits[i] <= g->logits[guess[0]]);
}

/* In pieces of so many positions; 1 is decoding. */
static void in_pieces(struct guessing *g, int piece, int step) {
    for (int at = 0, next = step - 1; at < N_IDS - 1; at += piece) {
        const int n = at + piece < N_IDS - 1 ? piece : N_IDS - 1 - at;
        eval_some(g, at, n);
        if (at + n - 1 < next) continue;
        judge_slot(g, at + n - 1);
        next = at + n - 1 + step;
    }
}

/* Steps behind the first one leave nothing behind: the session goes on with other ids. */
static void judge_second_steps(struct guessing *g) {
    for (int i = 0; i < second.n; i++) {
        int32_t guess[2];
        const int t = second.at[i], before = i ? second.at[i - 1] + 1 : 0;
        eval_some(g, before, t + 1 - before);
        assert_int_equal(cpu_backend.guess(g->s, t + 1, ids[t + 1], guess, 2, g->logits), 2);
        if (guess[0] != told[i]) continue; /* a near tie: it went on from another id */
        judge(g, &second, i, exact_second);
    }
}

/* ---- in passes with drafts ---- */

/* The golden's ids come, whatever the logits say; `step`: how many passes before one is judged. */
static void in_passes(struct guessing *g, int step) {
    struct told_pass t = { .ids = ids, .n = N_IDS, .vocab = (int)vocab, .position = 3 };
    eval_some(g, 0, t.position);
    for (int n = 1; t.position < N_IDS - 2; n++) {
        told_pass(&t, g->b, g->s, (3 * n) % 8);
        if (n % step == 0) judge_slot(g, t.position - 1);
    }
}

static void forget(struct guessing *g) {
    cpu_backend.state_close(g->s);
    assert_int_equal(cpu_backend.state_open(&g->s, g->b, N_IDS, NULL), REEL_OK);
    assert_int_equal(cpu_backend.guess_begin(g->s, NULL), REEL_OK);
}

static void a_path_guesses_as_pytorch_does(void **state) {
    const char *path = *state;
    static const int pieces[][2] = {
        { 1, 1 }, { 1, 5 }, { 1, 40 }, { 7, 7 }, { 33, 1 }, { 95, 95 }
    };
    struct guessing g = { .logits = golden_floats(vocab) };
    struct reel_error err = { 0 };
    struct model model = { .config = files.config, .weights = files.weights };
    const struct backend_options options = { .cpu_path = path, .n_threads = 2 };
    const enum reel_status status = cpu_backend.open(&g.b, &model, &options, &err);
    if (status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT) {
        print_message("%s\n", err.text);
        free(g.logits);
        skip();
    }
    golden_require(status, &err);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        forget(&g);
        in_pieces(&g, pieces[i][0], pieces[i][1]);
    }
    for (int step = 1; step <= 5; step += 2) {
        forget(&g);
        in_passes(&g, step);
    }
    forget(&g);
    judge_second_steps(&g);
    print_message("%s: an error of %.2f of that of the bf16 run at most\n", path, g.worst);
    cpu_backend.state_close(g.s);
    cpu_backend.close(g.b);
    free(g.logits);
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = "guesses_are_those_of_pytorch_on_" path,                                           \
        .test_func = a_path_guesses_as_pytorch_does, .initial_state = (char[]) {                   \
            path                                                                                   \
        }                                                                                          \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_tells_what_pytorch_does),
        cmocka_unit_test(only_the_first_ids_of_many_are_guessed),
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
