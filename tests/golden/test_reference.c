/* The reference against Hugging Face transformers on miniature models: each phase, logits over 576
 * positions, cuts, and far positions. REEL_SOAK=1 adds 32,800 positions in one run. */
#include "tests/support/golden.h"
#include "tests/support/sanitized.h"

#include "cpu/reference_model.h"
#include "support/shares.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_POSITIONS 576
/* Sanitizers and unoptimised builds look for other mistakes; fewer positions serve them. */
#if SANITIZED || !defined(__OPTIMIZE__)
#define N_TEACHER_FORCED 34
#define LONG_LIMIT       102
#define N_CUT_MODELS     2
#else
#define N_TEACHER_FORCED N_POSITIONS
#define LONG_LIMIT       4100
#define N_CUT_MODELS     5
#endif
#define PHASE_TOKENS 130
#define PHASE_ROWS   3
#define DEEPEST      4
#define EXACT_BOUND  1e-4 /* of the tensor's largest value */

static const int phase_positions[PHASE_ROWS] = { 0, 5, 129 };

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

static struct ref_state *open_state(const struct golden_model *m, enum ref_rounding mode,
                                    int max_positions) {
    struct ref_options options = { .mode = mode, .max_positions = max_positions };
    struct ref_state *state = NULL;
    struct reel_error err = { 0 };
    require(ref_state_open(&state, &m->config, &m->weights, &options, &err), &err);
    return state;
}

/* Evaluates ids [n] from `position` on. */
static void evaluate(struct ref_state *state, int position, const int32_t *ids, int n,
                     enum reel_output output, float *out) {
    struct reel_error err = { 0 };
    struct backend_eval eval = {
        .position = position, .n = n, .ids = ids, .output = output, .out = out
    };
    require(ref_state_eval(state, &eval, &err), &err);
}

static float *new_floats(size_t n) {
    float *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- phases ---------------------------------------------------------------------------------- */

#define MAX_PHASES 200

/* What was seen of one phase, over its rows. */
struct phase {
    char name[60];
    int depth; /* layers it has gone through, its own included */
    int n_rows, n_entries, n_far;
    double worst, largest; /* error and value */
    double dot, made_squares, stored_squares;
};

struct phase_check {
    const struct golden *golden;
    enum ref_rounding mode;
    int n_layers;
    int deepest;     /* phases that have gone through more layers are not judged by bf16's steps */
    int far_percent; /* of a phase's entries that may be far off */
    double cosine;   /* that its rows must reach */
    struct phase phases[MAX_PHASES];
    int n_phases;
};

static struct phase *find_phase(struct phase_check *c, const char *name, int depth) {
    for (int i = 0; i < c->n_phases; i++)
        if (strcmp(c->phases[i].name, name) == 0) return &c->phases[i];
    assert_true(c->n_phases < MAX_PHASES);
    struct phase *p = &c->phases[c->n_phases++];
    *p = (struct phase){ .depth = depth };
    snprintf(p->name, sizeof p->name, "%s", name);
    return p;
}

/* Two implementations that round at the same points still add up in different orders, so now and
 * then one rounds up where the other rounds down, and what follows inherits the difference. An
 * entry is therefore measured in bf16 steps of the row's typical size (or its own, when larger),
 * and each layer may add 2. FAST, which rounds elsewhere, misses this for 10 to 40 % of entries.
 * test_phases.c looks at each phase alone and is strict. */
static bool is_far(double error, double value, double rms, int depth) {
    double size = fabs(value) > rms ? fabs(value) : rms;
    int exponent = 0;
    frexp(size, &exponent);
    double step = ldexp(1, exponent - 8);
    return !(error <= 2 * step * depth);
}

/* One row of a phase [width] against its samples. */
static void add_row(struct phase *p, const float *made, int width, const float *stored,
                    int entries) {
    double squares = 0;
    for (int i = 0; i < entries; i++)
        squares += (double)stored[i] * (double)stored[i];
    double rms = sqrt(squares / entries);
    p->n_rows++;
    for (int i = 0; i < entries; i++) {
        double a = (double)made[(int64_t)i * width / entries], b = (double)stored[i];
        double error = fabs(a - b);
        p->n_entries++;
        p->n_far += is_far(error, b, rms, p->depth);
        if (!(error <= p->worst)) p->worst = error; /* NaN stays */
        if (fabs(b) > p->largest) p->largest = fabs(b);
        p->dot += a * b;
        p->made_squares += a * a;
        p->stored_squares += b * b;
    }
}

static void see_phase(void *user, const char *phase, int layer, int position, const float *values,
                      int n) {
    struct phase_check *c = user;
    int row = -1;
    for (int i = 0; i < PHASE_ROWS; i++)
        if (phase_positions[i] == position) row = i;
    if (row < 0) return;
    char name[60];
    const char *set = c->mode == REF_EXACT ? "f32" : "bf16";
    if (layer < 0)
        snprintf(name, sizeof name, "%s.%s", set, phase);
    else
        snprintf(name, sizeof name, "%s.%d.%s", set, layer, phase);
    float *stored = golden_f32(c->golden, name);
    int entries = golden_count(c->golden, name) / PHASE_ROWS;
    int depth = layer < 0 ? c->n_layers : layer + 1;
    add_row(find_phase(c, name, depth), values, n, stored + row * entries, entries);
    free(stored);
}

static void judge_phases(const struct phase_check *c, const char *id) {
    for (int i = 0; i < c->n_phases; i++) {
        const struct phase *p = &c->phases[i];
        assert_int_equal(p->n_rows, PHASE_ROWS);
        if (c->mode == REF_EXACT && !(p->worst <= EXACT_BOUND * p->largest))
            fail_msg("%s %s: error %g of a largest value of %g", id, p->name, p->worst, p->largest);
        /* Further down, differences handed on by the layers before say nothing of a phase's own. */
        if (c->mode == REF_EXACT || (p->depth > c->deepest)) continue;
        double cosine = p->dot / sqrt(p->made_squares * p->stored_squares);
        if (p->n_far * 100 > p->n_entries * c->far_percent || !(cosine >= c->cosine))
            fail_msg("%s %s: %d of %d entries are far off, cosine %.6f", id, p->name, p->n_far,
                     p->n_entries, cosine);
    }
}

static void check_phases(enum ref_rounding mode) {
    for (int i = 0; golden_ids[i]; i++) {
        struct golden golden;
        struct golden_model model;
        if (SANITIZED && !strstr(golden_ids[i], "-b")) continue; /* one of each family */
        golden_open(&golden, golden_ids[i]);
        golden_model_open(&model, golden_ids[i]);
        struct phase_check check = { .golden = &golden,
                                     .mode = mode,
                                     .n_layers = model.config.n_layers,
                                     .deepest = model.config.n_layers,
                                     .far_percent = 1,
                                     .cosine = 0.9999 };
        if (model_layer_count(&model.config, LAYER_DELTA)) {
            /* their norms enlarge what may be a small difference */
            check.deepest = DEEPEST;
            check.far_percent = 5;
            check.cosine = 0.9995;
        }
        struct ref_options options = {
            .mode = mode, .max_positions = PHASE_TOKENS, .tap = see_phase, .tap_user = &check
        };
        struct ref_state *state = NULL;
        struct reel_error err = { 0 };
        require(ref_state_open(&state, &model.config, &model.weights, &options, &err), &err);
        int32_t *ids = golden_int(&golden, "ids");
        float *logits = new_floats((size_t)PHASE_TOKENS * (size_t)model.config.vocab);
        evaluate(state, 0, ids, PHASE_TOKENS, REEL_OUTPUT_ALL_LOGITS, logits);
        /* of either kind; a gate adds one to attention, the DeltaNet has as many */
        int in_layer = (model.config.qk_norm ? 17 : 15) + model.config.gated_attention;
        assert_int_equal(check.n_phases, in_layer * model.config.n_layers + 3);
        judge_phases(&check, golden_ids[i]);
        free(logits);
        free(ids);
        ref_state_close(state);
        golden_model_close(&model);
        golden_close(&golden);
    }
}

static void every_phase_equals_the_float32_run(void **state) {
    (void)state;
    check_phases(REF_EXACT);
}

static void every_faithful_phase_equals_the_bf16_run(void **state) {
    (void)state;
    check_phases(REF_FAITHFUL);
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* EXACT against the stored logits; then FAST against EXACT, held to the bf16 run's own error. */
static void check_logits(const char *id, const struct golden_logits *l, const float *exact,
                         const float *fast, int first, int vocab) {
    for (int i = 0; i < l->n; i++) {
        size_t row = (size_t)(l->at[i] - first) * (size_t)vocab;
        double error = golden_logits_error(l, i, exact + row, vocab);
        if (!(error <= EXACT_BOUND))
            fail_msg("%s: logits at %d differ by %g from the float32 run", id, l->at[i], error);
        struct golden_ratio ratio = golden_logits_ratio(l, i, fast + row, exact + row, vocab);
        if (!(ratio.rms <= GOLDEN_BOUND && ratio.max <= GOLDEN_BOUND))
            fail_msg("%s: at %d the error of FAST is %.2f (rms) and %.2f (max) times that of "
                     "the bf16 run",
                     id, l->at[i], ratio.rms, ratio.max);
    }
}

/* All positions of one miniature of each family, or in a soak of every one; 150 of the others,
 * which test_cpu_paths.c evaluates whole on the paths that compute fast. */
static void logits_over_576_positions_are_within_the_bound(void **state) {
    (void)state;
    for (int i = 0; golden_ids[i]; i++) {
        struct golden golden;
        struct golden_model model;
        struct golden_logits stored;
        golden_open(&golden, golden_ids[i]);
        golden_model_open(&model, golden_ids[i]);
        golden_logits_read(&stored, &golden, "");
        assert_int_equal(stored.n, N_POSITIONS);
        const bool whole = soaking_in_full() || strstr("q3-b ll-b mi-a qw2-b q35-b", golden_ids[i]);
        const int n = whole || N_TEACHER_FORCED < 150 ? N_TEACHER_FORCED : 150;
        stored.n = n;
        int32_t *ids = golden_int(&golden, "ids");
        float *exact = golden_exact_logits(&model, ids, n, 0);
        float *fast = new_floats((size_t)n * (size_t)model.config.vocab);
        struct ref_state *run = open_state(&model, REF_FAST, n);
        evaluate(run, 0, ids, n, REEL_OUTPUT_ALL_LOGITS, fast);
        check_logits(golden_ids[i], &stored, exact, fast, 0, model.config.vocab);
        ref_state_close(run);
        free(fast);
        free(exact);
        free(ids);
        golden_logits_release(&stored);
        golden_model_close(&model);
        golden_close(&golden);
    }
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* The logits of `position` after evaluating pieces (0 ends) and then one token at a time must be
 * the bits of the one run, at the end of the pieces and after each of 8 steps. */
static void check_pieces(const struct golden_model *m, enum ref_rounding mode, const int32_t *ids,
                         const float *whole, const int *pieces) {
    size_t vocab = (size_t)m->config.vocab;
    float *logits = new_floats(vocab);
    struct ref_state *run = open_state(m, mode, 300);
    int position = 0;
    for (int i = 0; pieces[i]; position += pieces[i++])
        evaluate(run, position, ids + position, pieces[i], REEL_OUTPUT_LAST_LOGITS, logits);
    for (int step = 0; step <= 8; step++) {
        assert_memory_equal(logits, whole + (size_t)(position - 1) * vocab, vocab * sizeof(float));
        evaluate(run, position, ids + position, 1, REEL_OUTPUT_LAST_LOGITS, logits);
        position++;
    }
    ref_state_close(run);
    free(logits);
}

static void lengths_and_cuts_give_the_bits_of_one_run(void **state) {
    (void)state;
    static const int all[][5] = { { 1 },  { 2 },  { 3 },   { 4 },   { 5 },   { 63 },
                                  { 64 }, { 65 }, { 127 }, { 130 }, { 257 }, { 1, 63, 2, 64 } };
    static const char *const models[] = { "q35-b", "q3-b", "ll-b", "qw2-b", "q3-a", "ll-c" };
    for (int i = 0; i < N_CUT_MODELS; i++) {
        struct golden golden;
        struct golden_model model;
        golden_open(&golden, models[i]);
        golden_model_open(&model, models[i]);
        int32_t *ids = golden_int(&golden, "ids");
        for (enum ref_rounding mode = REF_FAITHFUL; mode <= REF_EXACT; mode++) {
            float *whole = new_floats((size_t)300 * (size_t)model.config.vocab);
            struct ref_state *run = open_state(&model, mode, 300);
            evaluate(run, 0, ids, 300, REEL_OUTPUT_ALL_LOGITS, whole);
            /* every other one, by turns, unless in a soak */
            const size_t step = sanitized_briefly() ? 4 : getenv("REEL_SOAK") ? 1 : 2;
            for (size_t j = (size_t)i % step; j < sizeof all / sizeof all[0]; j += step)
                check_pieces(&model, mode, ids, whole, all[j]);
            ref_state_close(run);
            free(whole);
        }
        free(ids);
        golden_model_close(&model);
        golden_close(&golden);
    }
}

static void a_restored_state_goes_on_with_the_same_bits(void **state) {
    (void)state;
    struct golden golden;
    struct golden_model model;
    golden_open(&golden, "q3-a");
    golden_model_open(&model, "q3-a");
    int32_t *ids = golden_int(&golden, "ids");
    size_t vocab = (size_t)model.config.vocab;
    float *straight = new_floats(vocab), *restored = new_floats(vocab);
    struct reel_error err = { 0 };

    struct ref_state *a = open_state(&model, REF_FAST, 100), *b = open_state(&model, REF_FAST, 90);
    evaluate(a, 0, ids, 70, REEL_OUTPUT_NONE, NULL);
    size_t n = ref_state_save_bytes(a, 65);
    void *bytes = malloc(n);
    assert_non_null(bytes);
    require(ref_state_save(a, 65, bytes, &err), &err);
    require(ref_state_restore(b, 65, bytes, n, &err), &err);
    evaluate(a, 65, ids + 100, 20, REEL_OUTPUT_LAST_LOGITS, straight); /* over 65 to 69 */
    evaluate(b, 65, ids + 100, 20, REEL_OUTPUT_LAST_LOGITS, restored);
    assert_memory_equal(straight, restored, vocab * sizeof(float));

    assert_int_equal(ref_state_save(a, 86, bytes, &err), REEL_E_STATE);
    assert_int_equal(ref_state_restore(b, 91, bytes, n, &err), REEL_E_CONTEXT);
    assert_int_equal(ref_state_restore(b, 65, bytes, n - 1, &err), REEL_E_FORMAT);
    struct backend_eval past = { .position = 86, .n = 1, .ids = ids };
    assert_int_equal(ref_state_eval(a, &past, &err), REEL_E_STATE);
    struct backend_eval full = { .position = 85, .n = 16, .ids = ids };
    assert_int_equal(ref_state_eval(a, &full, &err), REEL_E_CONTEXT);

    free(bytes);
    free(straight);
    free(restored);
    free(ids);
    ref_state_close(a);
    ref_state_close(b);
    golden_model_close(&model);
    golden_close(&golden);
}

static void embeddings_in_and_hidden_out_meet_ids_in_and_logits_out(void **state) {
    (void)state;
    struct golden_model model;
    golden_model_open(&model, "ll-b");
    size_t hidden = (size_t)model.config.hidden, vocab = (size_t)model.config.vocab;
    const int32_t ids[3] = { 5, 300, 17 };
    float *embeddings = new_floats(3 * hidden), *states = new_floats(3 * hidden);
    float *logits = new_floats(vocab), *row = new_floats(hidden), *made = new_floats(vocab);
    for (int i = 0; i < 3; i++)
        cpu_embed(&model.weights.embedding, REF_AS_STORED, ids[i], embeddings + (size_t)i * hidden);

    struct reel_error err = { 0 };
    struct ref_state *run = open_state(&model, REF_FAST, 3);
    evaluate(run, 0, ids, 3, REEL_OUTPUT_LAST_LOGITS, logits);
    struct backend_eval eval = {
        .n = 3, .embeddings = embeddings, .output = REEL_OUTPUT_ALL_HIDDEN, .out = states
    };
    require(ref_state_eval(run, &eval, &err), &err);
    cpu_product(&model.weights.head, REF_AS_STORED, states + 2 * hidden, 1, row, made, REF_FAST);
    assert_memory_equal(made, logits, vocab * sizeof(float));

    ref_state_close(run);
    free(embeddings);
    free(states);
    free(logits);
    free(row);
    free(made);
    golden_model_close(&model);
}

static void a_cancelled_run_says_so_and_can_be_repeated(void **state) {
    (void)state;
    struct golden_model model;
    golden_model_open(&model, "q3-a");
    atomic_bool cancel = true;
    struct reel_error err = { 0 };
    const int32_t id = 1;
    struct ref_state *run = open_state(&model, REF_FAST, 4);
    struct backend_eval eval = { .n = 1, .ids = &id, .cancel = &cancel };
    assert_int_equal(ref_state_eval(run, &eval, &err), REEL_E_CANCELLED);
    atomic_store(&cancel, false);
    assert_int_equal(ref_state_eval(run, &eval, &err), REEL_OK);
    ref_state_close(run);
    golden_model_close(&model);
}

/* ---- far positions --------------------------------------------------------------------------- */

static void check_far(const char *id, int offset) {
    struct golden golden;
    struct golden_model model;
    struct golden_logits stored;
    char prefix[40];
    snprintf(prefix, sizeof prefix, "far.%d.", offset);
    golden_open(&golden, id);
    golden_model_open(&model, id);
    golden_logits_read(&stored, &golden, prefix);
    int n = stored.n;
    int32_t *ids = golden_int(&golden, "ids");
    float *exact = golden_exact_logits(&model, ids, n, offset);
    float *fast = new_floats((size_t)n * (size_t)model.config.vocab);
    struct ref_options options = { .mode = REF_FAST,
                                   .max_positions = n,
                                   .rotation_offset = offset };
    struct ref_state *run = NULL;
    struct reel_error err = { 0 };
    require(ref_state_open(&run, &model.config, &model.weights, &options, &err), &err);
    evaluate(run, 0, ids, n, REEL_OUTPUT_ALL_LOGITS, fast);
    check_logits(id, &stored, exact, fast, 0, model.config.vocab);
    ref_state_close(run);
    free(fast);
    free(exact);
    free(ids);
    golden_logits_release(&stored);
    golden_model_close(&model);
    golden_close(&golden);
}

static void angles_far_out_are_right(void **state) {
    (void)state;
    check_far("q3-a", 4090);
    check_far("q3-a", 32760);
    check_far("ll-b", 4090);
    check_far("ll-b", 32760);
    check_far("ll-b", 130000);
}

/* Logits of both modes at the stored positions below `limit`, one run each. */
static void long_runs(int limit) {
    struct golden golden;
    struct golden_model model;
    struct golden_logits stored;
    golden_open(&golden, "q3-long");
    golden_model_open(&model, "q3-long");
    golden_logits_read(&stored, &golden, "");
    int32_t *ids = golden_int(&golden, "ids");
    size_t vocab = (size_t)model.config.vocab;
    float *logits[2] = { new_floats(vocab), new_floats(vocab) };
    struct ref_state *runs[2] = { open_state(&model, REF_EXACT, limit),
                                  open_state(&model, REF_FAST, limit) };
    int done = 0;
    for (int i = 0; i < stored.n && stored.at[i] < limit; i++) {
        int next = stored.at[i] + 1;
        for (int j = 0; j < 2; j++)
            evaluate(runs[j], done, ids + done, next - done, REEL_OUTPUT_LAST_LOGITS, logits[j]);
        done = next;
        struct golden_logits one = stored;
        one.n = 1;
        one.at += i;
        one.logits += i * GOLDEN_COLUMNS;
        one.largest += i;
        one.rms += i;
        one.max += i;
        check_logits("q3-long", &one, logits[0], logits[1], done - 1, model.config.vocab);
    }
    assert_true(done > limit - 5);
    for (int j = 0; j < 2; j++) {
        ref_state_close(runs[j]);
        free(logits[j]);
    }
    free(ids);
    golden_logits_release(&stored);
    golden_model_close(&model);
    golden_close(&golden);
}

static void a_long_run_stays_right(void **state) {
    (void)state;
    long_runs(soaking_in_full() ? 32800 : LONG_LIMIT);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(every_phase_equals_the_float32_run),
        in_turn(every_faithful_phase_equals_the_bf16_run),
        in_turn(logits_over_576_positions_are_within_the_bound),
        in_turn(lengths_and_cuts_give_the_bits_of_one_run),
        in_turn(a_restored_state_goes_on_with_the_same_bits),
        in_turn(embeddings_in_and_hidden_out_meet_ids_in_and_logits_out),
        in_turn(a_cancelled_run_says_so_and_can_be_repeated),
        in_turn(angles_far_out_are_right),
        in_turn(a_long_run_stays_right),
    };
    SHARE_TESTS("reference", 3, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
