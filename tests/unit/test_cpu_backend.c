/* The fast engine against the reference on small random models: odd shapes, every weight type,
 * every path of this machine. */
#include "cpu/cpu_path.h"
#include "runtime/backend.h"
#include "support/random_model.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- running it --------------------------------------------------------------------------------
 */

#define MAX_TOKENS 600

static int32_t token_ids[MAX_TOKENS];

static void choose_ids(int vocab) {
    for (int i = 0; i < MAX_TOKENS; i++)
        token_ids[i] = (int32_t)(random_bits() % (uint64_t)vocab);
}

struct running {
    struct backend *backend;
    struct backend_state *state;
    int vocab;
};

static enum kv_form form; /* of the caches of all backends that are opened */

/* How many shapes a loop goes on by. Shapes differ in their weights, of which 8-bit keys and values
 * know nothing: a sanitizer sees all there is of them in every third. How threads share the work is
 * the same for every other shape. */
static int shape_step(void) {
    if (!sanitized_briefly()) return 1;
    return (form != KV_BF16 ? 3 : 1) * (THREAD_SANITIZED ? 2 : 1);
}

static struct running open_running(const struct small_model *m, const char *path, int n_threads) {
    struct running r = { .vocab = m->model.config.vocab };
    struct backend_options options = { .cpu_path = path, .n_threads = n_threads, .kv = form };
    assert_int_equal(cpu_backend.open(&r.backend, &m->model, &options, NULL), REEL_OK);
    assert_int_equal(cpu_backend.state_open(&r.state, r.backend, MAX_TOKENS, NULL), REEL_OK);
    return r;
}

static void close_running(struct running *r) {
    cpu_backend.state_close(r->state);
    cpu_backend.close(r->backend);
}

/* Logits of positions first .. first + n - 1 go to their rows of `logits`. */
static void evaluate(const struct running *r, int first, int n, float *logits) {
    struct backend_eval eval = {
        .position = first,
        .n = n,
        .ids = token_ids + first,
        .output = n == 1 ? REEL_OUTPUT_LAST_LOGITS : REEL_OUTPUT_ALL_LOGITS,
        .out = logits + (size_t)first * (size_t)r->vocab,
    };
    assert_int_equal(cpu_backend.eval(r->state, &eval, NULL), REEL_OK);
}

static float *new_logits(int n, int vocab) {
    float *logits = malloc((size_t)n * (size_t)vocab * sizeof *logits);
    assert_non_null(logits);
    memset(logits, 0xff, (size_t)n * (size_t)vocab * sizeof *logits);
    return logits;
}

/* RMS of the difference over RMS of the wanted values. */
static double difference(const float *got, const float *want, size_t n) {
    double d = 0, w = 0;
    for (size_t i = 0; i < n; i++) {
        d += pow((double)got[i] - (double)want[i], 2);
        w += pow((double)want[i], 2);
    }
    return sqrt(d / w);
}

/* The fast path also rounds softmax's probabilities to bf16, as fused attention does everywhere,
 * and from there on values near a rounding border fall on either side, a step of 2^-8 in one of few
 * inputs of these small models. A wrong row, scale or position shows as 0.1 and more. */
#define POSITION_BOUND 3e-2
#define WHOLE_BOUND    1e-2

/* A cache of 8 bits makes a larger step of that, so bounds are wider by as much: where keys differ
 * by a step of bf16 beside a border between two codes, they come back a step of codes apart. Of
 * int8 that is 2^-7 of the largest element; of e4m3 2^-3 of the element itself. */
static const double form_factor[KV_FORMS] = { 1, 2, 4 };

static void assert_close(const char *what, const float *got, const float *want, int first, int last,
                         int vocab) {
    const size_t width = (size_t)vocab;
    for (int i = first; i < last; i++) {
        double d = difference(got + (size_t)i * width, want + (size_t)i * width, width);
        if (!(d <= POSITION_BOUND * form_factor[form])) fail_msg("%s, position %d: %g", what, i, d);
    }
    double d = difference(got + (size_t)first * width, want + (size_t)first * width,
                          (size_t)(last - first) * width);
    if (!(d <= WHOLE_BOUND * form_factor[form])) fail_msg("%s, all positions: %g", what, d);
}

/* Weights, ids and so the reference's logits are the same on every path. */
enum { COMPARED = 70, LARGEST_VOCAB = 131 };
static const float *reference_logits(const struct small_model *m, const struct shape *shape) {
    static float all[KV_FORMS][N_SHAPES][COMPARED * LARGEST_VOCAB];
    static bool made[KV_FORMS][N_SHAPES];
    const ptrdiff_t s = shape - random_shapes;
    assert_true(shape->vocab <= LARGEST_VOCAB);
    if (!made[form][s]) {
        struct running reference = open_running(m, "reference", 1);
        evaluate(&reference, 0, COMPARED, all[form][s]);
        close_running(&reference);
    }
    made[form][s] = true;
    return all[form][s];
}

static void compare_with_reference(const struct shape *shape, const char *path) {
    enum { N = COMPARED, PREFILL = 61 };
    struct small_model *m = random_model(shape);
    choose_ids(shape->vocab);
    struct running fast = open_running(m, path, 2);
    const float *want = reference_logits(m, shape);
    float *got = new_logits(N, shape->vocab);
    evaluate(&fast, 0, PREFILL, got);
    for (int i = PREFILL; i < N; i++)
        evaluate(&fast, i, 1, got);
    char what[64];
    snprintf(what, sizeof what, "%s, %s, %s", shape->name, path, kv_form_name(form));
    assert_close(what, got, want, 0, N, shape->vocab);
    free(got);
    close_running(&fast);
    free_model(m);
}

/* The path is named in *state. */
static void path_agrees_with_reference(void **state) {
    const char *path = *state;
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    if (!strstr(here, path)) {
        print_message("%s: not of this machine and build, which have %s\n", path, here);
        skip();
    }
    for (form = KV_BF16; form < KV_FORMS; form++)
        for (int i = 0; i < N_SHAPES; i += shape_step())
            compare_with_reference(&random_shapes[i], path);
    form = KV_BF16;
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = path "_agrees_with_the_reference", .test_func = path_agrees_with_reference,        \
        .initial_state = (char[]) {                                                                \
            path                                                                                   \
        }                                                                                          \
    }

/* Cuts of a prompt must not matter beyond rounding, wherever they fall. */
static void prefill_equals_decode_whatever_the_cuts(void **state) {
    (void)state;
    static const int cuts[][5] = { { 1, 63, 2, 64, 0 }, { 63, 1, 66, 0 },    { 64, 66, 0 },
                                   { 65, 65, 0 },       { 127, 3, 0 },       { 128, 2, 0 },
                                   { 129, 1, 0 },       { 2, 14, 16, 98, 0 } };
    enum { N = 130 };
    struct small_model *m = random_model(&random_shapes[1]);
    const int vocab = random_shapes[1].vocab;
    choose_ids(vocab);
    float *whole = new_logits(N, vocab), *parts = new_logits(N, vocab);
    struct running r = open_running(m, NULL, 2);
    for (int i = 0; i < N; i++)
        evaluate(&r, i, 1, whole);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        int at = 0;
        for (int i = 0; cuts[c][i]; at += cuts[c][i++])
            evaluate(&r, at, cuts[c][i], parts);
        assert_int_equal(at, N);
        char what[32];
        snprintf(what, sizeof what, "cuts %zu", c);
        assert_close(what, parts, whole, 0, N, vocab);
    }
    free(whole), free(parts);
    close_running(&r);
    free_model(m);
}

/* The logits of the last of n positions that are read in pieces of so many steps, then the rest. */
static void read_pieces(const struct running *r, const int *steps, int step, int n, float *out) {
    for (int at = 0; at < n;) {
        const int piece = *steps * step, left = n - at;
        const bool last = !piece || piece + 2 > left;
        const struct backend_eval eval = {
            .position = at,
            .n = last ? left : piece,
            .ids = token_ids + at,
            .output = last ? REEL_OUTPUT_LAST_LOGITS : REEL_OUTPUT_NONE,
            .out = last ? out : NULL,
        };
        assert_int_equal(cpu_backend.eval(r->state, &eval, NULL), REEL_OK);
        at += eval.n;
        steps += !last;
    }
}

static void compare_pieces(const struct shape *shape, const char *path) {
    static const int cuts[][4] = { { 1, 1, 2 }, { 4, 3 }, { 9 }, { 2, 1 } };
    enum { N = 307 };
    struct small_model *m = random_model(shape);
    struct running r = open_running(m, path, 2);
    struct backend_info info;
    float *whole = new_logits(1, shape->vocab), *parts = new_logits(1, shape->vocab);
    choose_ids(shape->vocab);
    cpu_backend.info(r.backend, &info);
    assert_true(info.cut_step > 0);
    read_pieces(&r, (const int[]){ 0 }, info.cut_step, N, whole);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        read_pieces(&r, cuts[c], info.cut_step, N, parts);
        if (memcmp(whole, parts, (size_t)shape->vocab * sizeof *whole) != 0)
            fail_msg("%s, %s: cuts %zu change bits", shape->name, path, c);
    }
    free(whole), free(parts);
    close_running(&r);
    free_model(m);
}

/* As the runtime cuts a prompt beside other sessions (backend_info.cut_step). */
static void pieces_of_whole_steps_give_the_same_bits(void **state) {
    (void)state;
    static const char *const paths[] = { "portable", "avx2", "avx512", "amx", "neon" };
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (int s = 0; s < N_SHAPES && strstr(here, paths[p]); s += shape_step())
            compare_pieces(&random_shapes[s], paths[p]);
}

/* Beyond ATTENTION_STEP the context is attended to in pieces, beyond T_CHUNK it is evaluated in
 * several. */
static void long_contexts_agree_with_the_reference(void **state) {
    (void)state;
    enum { N = 560, TAIL = 24 };
    struct small_model *m = random_model(&random_shapes[1]);
    const int vocab = random_shapes[1].vocab;
    choose_ids(vocab);
    float *want = new_logits(N, vocab), *got = new_logits(N, vocab);
    struct running reference = open_running(m, "reference", 1);
    struct running fast = open_running(m, NULL, 2);
    evaluate(&reference, 0, N, want);
    evaluate(&fast, 0, 250, got);
    for (int i = 250; i < 260; i++)
        evaluate(&fast, i, 1, got);
    assert_close("one piece to two", got, want, 0, 260, vocab);
    evaluate(&fast, 0, N - TAIL, got);
    for (int i = N - TAIL; i < N; i++)
        evaluate(&fast, i, 1, got);
    assert_close("three pieces", got, want, 0, N, vocab);
    free(want), free(got);
    close_running(&reference);
    close_running(&fast);
    free_model(m);
}

static void the_same_input_gives_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    enum { N = 300, PREFILL = 290 };
    for (int s = 0; s < N_SHAPES; s += 4) {
        struct small_model *m = random_model(&random_shapes[s]);
        const int vocab = random_shapes[s].vocab;
        const size_t bytes = (size_t)N * (size_t)vocab * sizeof(float);
        choose_ids(vocab);
        float *first = new_logits(N, vocab), *again = new_logits(N, vocab);
        for (int turn = 0; turn < 4; turn++) {
            struct running r = open_running(m, NULL, turn == 0 ? 2 : turn);
            float *logits = turn ? again : first;
            evaluate(&r, 0, PREFILL, logits);
            for (int i = PREFILL; i < N; i++)
                evaluate(&r, i, 1, logits);
            if (turn) assert_memory_equal(first, again, bytes);
            close_running(&r);
        }
        free(first), free(again);
        free_model(m);
    }
}

static void saved_restored_and_copied_states_go_on_alike(void **state) {
    (void)state;
    enum { HELD = 37, N = 45 };
    struct small_model *m = random_model(&random_shapes[2]);
    const int vocab = random_shapes[2].vocab;
    choose_ids(vocab);
    struct running r = open_running(m, NULL, 2);
    struct backend_state *restored, *copied;
    assert_int_equal(cpu_backend.state_open(&restored, r.backend, N, NULL), REEL_OK);
    assert_int_equal(cpu_backend.state_open(&copied, r.backend, MAX_TOKENS, NULL), REEL_OK);
    float *want = new_logits(N, vocab), *got = new_logits(N, vocab);
    evaluate(&r, 0, N, want); /* more than is saved: the rest must not travel */
    size_t n_bytes = cpu_backend.save_bytes(r.state, HELD);
    unsigned char *bytes = malloc(n_bytes);
    assert_non_null(bytes);
    assert_int_equal(cpu_backend.save(r.state, HELD, bytes, NULL), REEL_OK);
    assert_int_equal(cpu_backend.restore(restored, HELD, bytes, n_bytes, NULL), REEL_OK);
    assert_int_equal(cpu_backend.copy(copied, r.state, HELD, NULL), REEL_OK);
    for (int i = HELD; i < N; i++)
        evaluate(&r, i, 1, want);
    struct backend_state *others[] = { restored, copied };
    for (int o = 0; o < 2; o++) {
        struct running other = { r.backend, others[o], vocab };
        for (int i = HELD; i < N; i++)
            evaluate(&other, i, 1, got);
        assert_memory_equal(got + HELD * vocab, want + HELD * vocab,
                            (size_t)(N - HELD) * (size_t)vocab * sizeof(float));
    }
    struct reel_error err;
    assert_int_equal(cpu_backend.restore(restored, HELD, bytes, n_bytes - 1, &err), REEL_E_FORMAT);
    assert_int_equal(cpu_backend.restore(restored, N + 1, bytes, n_bytes, &err), REEL_E_CONTEXT);
    assert_int_equal(cpu_backend.copy(restored, r.state, N + 1, &err), REEL_E_CONTEXT);
    cpu_backend.state_close(restored);
    cpu_backend.state_close(copied);
    free(bytes), free(want), free(got);
    close_running(&r);
    free_model(m);
}

/* A long copy shares memory with its source, which then goes back and on otherwise, and is copied
 * again: each has its own positions. */
static void copies_that_share_memory_stay_apart(void **state) {
    (void)state;
    enum { HELD = 500, BACK = 100, OTHERS = 50, N = HELD + 6 };
    struct small_model *m = random_model(&random_shapes[2]);
    const int vocab = random_shapes[2].vocab;
    choose_ids(vocab);
    struct running r = open_running(m, NULL, 2), copied = r, second = r;
    assert_int_equal(cpu_backend.state_open(&copied.state, r.backend, MAX_TOKENS, NULL), REEL_OK);
    assert_int_equal(cpu_backend.state_open(&second.state, r.backend, MAX_TOKENS, NULL), REEL_OK);
    float *want = new_logits(N, vocab), *got = new_logits(N, vocab);
    const size_t rest = (size_t)(N - HELD) * (size_t)vocab * sizeof(float);
    evaluate(&r, 0, HELD, want);
    assert_int_equal(cpu_backend.copy(copied.state, r.state, HELD, NULL), REEL_OK);
    for (int i = HELD; i < N; i++)
        evaluate(&r, i, 1, want);
    const struct backend_eval others = { .position = BACK,
                                         .n = HELD - BACK,
                                         .ids = token_ids + OTHERS };
    assert_int_equal(cpu_backend.eval(r.state, &others, NULL), REEL_OK);
    assert_int_equal(cpu_backend.copy(second.state, r.state, HELD, NULL), REEL_OK);
    for (int i = HELD; i < N; i++)
        evaluate(&copied, i, 1, got);
    assert_memory_equal(got + HELD * vocab, want + HELD * vocab, rest);
    for (int i = HELD; i < N; i++) {
        evaluate(&r, i, 1, want);
        evaluate(&second, i, 1, got);
    }
    assert_memory_equal(got + HELD * vocab, want + HELD * vocab, rest);
    cpu_backend.state_close(copied.state);
    cpu_backend.state_close(second.state);
    free(want), free(got);
    close_running(&r);
    free_model(m);
}

/* Positions that were evaluated to NaN and then dropped must not reach later results. */
static void dropped_positions_leave_no_trace(void **state) {
    (void)state;
    enum { HELD = 20, BAD = 30, N = 45 };
    struct small_model *m = random_model(&random_shapes[1]);
    const struct shape *s = &random_shapes[1];
    choose_ids(s->vocab);
    float *want = new_logits(N, s->vocab), *got = new_logits(N, s->vocab);
    float *nan = new_logits(BAD, s->hidden);
    struct running clean = open_running(m, NULL, 2), dirty = open_running(m, NULL, 2);
    for (int turn = 0; turn < 2; turn++) {
        int held = HELD + turn; /* an even and an odd length */
        struct backend_eval bad = { .position = held, .n = BAD, .embeddings = nan };
        evaluate(&clean, 0, held, want);
        evaluate(&dirty, 0, held, got);
        assert_int_equal(cpu_backend.eval(dirty.state, &bad, NULL), REEL_OK);
        for (int i = held; i < N; i++) {
            evaluate(&clean, i, 1, want);
            evaluate(&dirty, i, 1, got);
        }
        assert_memory_equal(got, want, (size_t)N * (size_t)s->vocab * sizeof(float));
        assert_true(isfinite(got[(N - 1) * s->vocab]));
    }
    free(want), free(got), free(nan);
    close_running(&clean);
    close_running(&dirty);
    free_model(m);
}

static void outputs_are_rows_of_one_another(void **state) {
    (void)state;
    enum { N = 19 };
    struct small_model *m = random_model(&random_shapes[0]);
    const struct shape *s = &random_shapes[0];
    choose_ids(s->vocab);
    struct running r = open_running(m, NULL, 2);
    float *all = new_logits(N, s->vocab), *hidden = new_logits(N, s->hidden);
    float last_logits[131], last_hidden[74];
    struct backend_eval eval = { .n = N, .ids = token_ids };
    float *embeddings = new_logits(N, s->hidden);
    for (int i = 0; i < N; i++)
        matrix_row_f32(&m->model.weights.embedding, token_ids[i], embeddings + i * s->hidden);
    const struct {
        enum reel_output output;
        float *out;
    } runs[] = { { REEL_OUTPUT_NONE, NULL },
                 { REEL_OUTPUT_ALL_LOGITS, all },
                 { REEL_OUTPUT_LAST_LOGITS, last_logits },
                 { REEL_OUTPUT_ALL_HIDDEN, hidden },
                 { REEL_OUTPUT_LAST_HIDDEN, last_hidden } };
    for (int i = 0; i < 5; i++) {
        eval.ids = i % 2 ? token_ids : NULL;
        eval.embeddings = i % 2 ? NULL : embeddings;
        eval.output = runs[i].output;
        eval.out = runs[i].out;
        assert_int_equal(cpu_backend.eval(r.state, &eval, NULL), REEL_OK);
    }
    assert_memory_equal(last_hidden, hidden + (N - 1) * s->hidden, sizeof last_hidden);
    /* Paths without AVX-512 multiply one vector with 16 significant bits and many with bf16's 8
     * (struct cpu_vector), so their two rows differ by one rounding of the input, 2^-9 an entry. */
    assert_true(difference(last_logits, all + (N - 1) * s->vocab, (size_t)s->vocab) < 4e-3);
    free(all), free(hidden), free(embeddings);
    close_running(&r);
    free_model(m);
}

/* ---- several texts in one pass ---- */

static void embed(const struct running *r, const int *lengths, int n_texts, float *out) {
    const struct backend_embed embed = {
        .ids = token_ids, .lengths = lengths, .n_texts = n_texts, .out = out
    };
    assert_int_equal(cpu_backend.embed(r->state, &embed, NULL), REEL_OK);
}

/* What the state held before are NaNs, which must not reach any text. */
static void fill_with_nans(const struct running *r, int hidden) {
    float *nan = new_logits(MAX_TOKENS, hidden);
    const struct backend_eval bad = { .n = MAX_TOKENS, .embeddings = nan };
    assert_int_equal(cpu_backend.eval(r->state, &bad, NULL), REEL_OK);
    free(nan);
}

/* Each text's vector against that of the text alone, bit for bit, and against evaluation. */
static void compare_texts(const struct shape *shape, const char *path, const int *lengths, int n) {
    struct small_model *m = random_model(shape);
    const size_t hidden = (size_t)shape->hidden;
    choose_ids(shape->vocab);
    struct running r = open_running(m, path, 2);
    float *packed = new_logits(n, shape->hidden), *one = new_logits(2, shape->hidden);
    fill_with_nans(&r, shape->hidden);
    embed(&r, lengths, n, packed);
    for (int i = 0, at = 0; i < n; at += lengths[i++]) {
        struct backend_eval eval = {
            .n = lengths[i], .ids = token_ids + at, .output = REEL_OUTPUT_LAST_HIDDEN, .out = one
        };
        const struct backend_embed alone = {
            .ids = token_ids + at, .lengths = lengths + i, .n_texts = 1, .out = one + hidden
        };
        assert_int_equal(cpu_backend.eval(r.state, &eval, NULL), REEL_OK);
        assert_int_equal(cpu_backend.embed(r.state, &alone, NULL), REEL_OK);
        if (memcmp(one + hidden, packed + (size_t)i * hidden, hidden * sizeof *one) != 0)
            fail_msg("%s, %s: text %d differs from itself alone", shape->name, path, i);
        const double d = difference(one + hidden, one, hidden);
        if (!(d <= POSITION_BOUND * form_factor[form]))
            fail_msg("%s, %s, text %d: %g", shape->name, path, i, d);
    }
    free(packed), free(one);
    close_running(&r);
    free_model(m);
}

/* Where only threads are looked at: one shape of a path. */
static void packed_texts_are_what_they_are_alone(void **state) {
    (void)state;
    static const char *const paths[] = { "portable", "avx2", "avx512", "amx", "neon" };
    static const int many[] = { 1, 5, 16, 17, 1, 31, 2, 64, 3, 33, 15, 48, 1, 200, 7, 9 };
    static const int longer[] = { 9, 520, 30, 7 };
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (!strstr(here, paths[p])) continue;
        for (int i = 0; i < N_SHAPES && !THREAD_SANITIZED; i += (1 + (i > 0)) * shape_step())
            compare_texts(&random_shapes[i], paths[p], many, sizeof many / sizeof *many);
        compare_texts(&random_shapes[1], paths[p], longer, sizeof longer / sizeof *longer);
    }
}

/* Texts begin at panels of the cache, so fewer fit at a time than their lengths say. */
static void a_pass_that_fills_a_short_state_is_cut(void **state) {
    (void)state;
    static const int lengths[] = { 1, 1, 17, 1, 30, 2, 33, 1 };
    enum { N = sizeof lengths / sizeof *lengths, HIDDEN = 128, SUM = 86 };
    struct small_model *m = random_model(&random_shapes[1]);
    struct running r = open_running(m, NULL, 2), small = r;
    float want[N * HIDDEN], got[N * HIDDEN];
    choose_ids(random_shapes[1].vocab);
    assert_int_equal(cpu_backend.state_open(&small.state, r.backend, SUM, NULL), REEL_OK);
    embed(&r, lengths, N, want);
    embed(&small, lengths, N, got);
    assert_memory_equal(got, want, sizeof want);
    cpu_backend.state_close(small.state);
    close_running(&r);
    free_model(m);
}

static void a_pass_is_cancelled_and_the_reference_takes_none(void **state) {
    (void)state;
    static const int length = 5;
    struct small_model *m = random_model(&random_shapes[1]);
    struct running r = open_running(m, NULL, 2), reference = open_running(m, "reference", 1);
    atomic_bool cancel = true;
    float out[128];
    const struct backend_embed one = {
        .ids = token_ids, .lengths = &length, .n_texts = 1, .out = out, .cancel = &cancel
    };
    choose_ids(random_shapes[1].vocab);
    assert_int_equal(cpu_backend.embed(r.state, &one, NULL), REEL_E_CANCELLED);
    assert_int_equal(cpu_backend.embed(reference.state, &one, NULL), REEL_E_UNSUPPORTED);
    close_running(&r);
    close_running(&reference);
    free_model(m);
}

static void evaluate_for(struct running *r, int first, int n, enum reel_output output, float *out) {
    const struct backend_eval eval = {
        .position = first, .n = n, .ids = token_ids + first, .output = output, .out = out
    };
    assert_int_equal(cpu_backend.eval(r->state, &eval, NULL), REEL_OK);
}

/* In the last layer only what is asked for is made of a row; what follows must not notice. */
static void assert_rows_are_not_missed(const struct shape *shape, int before, int n) {
    static const enum reel_output outputs[] = { REEL_OUTPUT_ALL_HIDDEN, REEL_OUTPUT_LAST_HIDDEN,
                                                REEL_OUTPUT_NONE };
    struct small_model *m = random_model(shape);
    const size_t hidden = (size_t)shape->hidden, logits = (size_t)shape->vocab * sizeof(float);
    float *made[3], *next[3];
    choose_ids(shape->vocab);
    for (int i = 0; i < 3; i++) {
        struct running r = open_running(m, NULL, 2);
        made[i] = new_logits(n, shape->hidden);
        next[i] = new_logits(1, shape->vocab);
        if (before) evaluate_for(&r, 0, before, REEL_OUTPUT_NONE, NULL);
        evaluate_for(&r, before, n, outputs[i], made[i]);
        evaluate_for(&r, before + n, 1, REEL_OUTPUT_LAST_LOGITS, next[i]);
        close_running(&r);
    }
    const bool same =
        memcmp(made[1], made[0] + (size_t)(n - 1) * hidden, hidden * sizeof(float)) == 0 &&
        memcmp(next[1], next[0], logits) == 0 && memcmp(next[2], next[0], logits) == 0;
    for (int i = 0; i < 3; i++)
        free(made[i]), free(next[i]);
    free_model(m);
    if (!same) fail_msg("%s, %d positions behind %d", shape->name, n, before);
}

static void rows_that_nothing_is_asked_of_are_not_missed(void **state) {
    (void)state;
    static const int lengths[] = { 2, 16, 33, 70 };
    for (int i = 0; i < N_SHAPES; i++)
        for (int j = 0; j < 4; j++)
            assert_rows_are_not_missed(&random_shapes[i], j % 2 * 21, lengths[j]);
}

/* The last layer's matrices but those of keys and values cannot be read, so whoever multiplies by
 * them dies. */
static void no_output_leaves_the_end_of_the_last_layer_alone(void **state) {
    (void)state;
    struct small_model *m = random_model(&random_shapes[0]);
    choose_ids(random_shapes[0].vocab);
    struct running r = open_running(m, NULL, 2);
    struct layer_weights *last = &m->layers[N_LAYERS - 1];
    struct matrix *const parts[] = { &last->q, &last->o, &last->gate, &last->up, &last->down };
    const unsigned char *data[5];
    for (int i = 0; i < 5; i++) {
        data[i] = parts[i]->data;
        parts[i]->data = NULL;
    }
    evaluate_for(&r, 0, 19, REEL_OUTPUT_NONE, NULL);
    for (int i = 0; i < 5; i++)
        parts[i]->data = data[i];
    close_running(&r);
    free_model(m);
}

/* The output matrix cannot be read, so whoever multiplies by it dies. */
static void no_output_leaves_the_output_matrix_alone(void **state) {
    (void)state;
    static const char *const paths[] = { NULL, "reference" };
    for (int i = 0; i < 2; i++) {
        struct small_model *m = random_model(&random_shapes[0]);
        choose_ids(random_shapes[0].vocab);
        struct running r = open_running(m, paths[i], 2);
        const unsigned char *head = m->model.weights.head.data;
        m->model.weights.head.data = NULL;
        for (int n = 1; n <= 19; n += 18) {
            const struct backend_eval eval = { .n = n, .ids = token_ids };
            assert_int_equal(cpu_backend.eval(r.state, &eval, NULL), REEL_OK);
        }
        m->model.weights.head.data = head;
        close_running(&r);
        free_model(m);
    }
}

static bool stop_at_512(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage;
    assert_int_equal(total, 600);
    *(uint64_t *)user = done;
    return done < 512;
}

static void cancelled_runs_say_so_and_keep_whole_chunks(void **state) {
    (void)state;
    struct small_model *m = random_model(&random_shapes[0]);
    choose_ids(random_shapes[0].vocab);
    struct running r = open_running(m, NULL, 2);
    struct reel_error err;
    atomic_bool cancel = true;
    uint64_t seen = 0;
    struct backend_eval eval = { .n = 600, .ids = token_ids, .cancel = &cancel };
    assert_int_equal(cpu_backend.eval(r.state, &eval, &err), REEL_E_CANCELLED);
    eval.cancel = NULL;
    eval.progress = stop_at_512;
    eval.progress_user = &seen;
    assert_int_equal(cpu_backend.eval(r.state, &eval, &err), REEL_E_CANCELLED);
    assert_int_equal(seen, 512);
    eval = (struct backend_eval){ .position = 512, .n = 1, .ids = token_ids };
    assert_int_equal(cpu_backend.eval(r.state, &eval, &err), REEL_OK);
    eval.position = 514;
    assert_int_equal(cpu_backend.eval(r.state, &eval, &err), REEL_E_STATE);
    eval = (struct backend_eval){ .position = 513, .n = MAX_TOKENS, .ids = token_ids };
    assert_int_equal(cpu_backend.eval(r.state, &eval, &err), REEL_E_CONTEXT);
    close_running(&r);
    free_model(m);
}

static void faithful_rounding_refuses_a_fast_path(void **state) {
    (void)state;
    struct small_model *m = random_model(&random_shapes[0]);
    struct backend *backend;
    struct reel_error err;
    struct backend_options options = { .cpu_path = "portable", .rounding = REEL_ROUNDING_FAITHFUL };
    assert_int_equal(cpu_backend.open(&backend, &m->model, &options, &err), REEL_E_ARGUMENT);
    options.cpu_path = NULL;
    assert_int_equal(cpu_backend.open(&backend, &m->model, &options, &err), REEL_OK);
    struct backend_info info;
    cpu_backend.info(backend, &info);
    assert_string_equal(info.path, "reference");
    cpu_backend.close(backend);
    free_model(m);
}

static void round_matrix(struct small_model *m, struct matrix *w) {
    uint16_t *rows = own(m, (size_t)w->rows * (size_t)w->columns * sizeof *rows);
    float row[512];
    assert_true(w->columns <= 512);
    for (int r = 0; r < w->rows; r++) {
        matrix_row_f32(w, r, row);
        for (int c = 0; c < w->columns; c++)
            rows[r * w->columns + c] = bf16_from_f32(row[c]);
    }
    *w = (struct matrix){ .dtype = DTYPE_BF16,
                          .rows = w->rows,
                          .columns = w->columns,
                          .row_bytes = 2 * (size_t)w->columns,
                          .data = (const unsigned char *)rows };
}

static void reference_bf16_is_the_reference_on_rounded_weights(void **state) {
    (void)state;
    enum { N = 5 };
    struct small_model *m = random_model(&random_shapes[4]);
    const int vocab = random_shapes[4].vocab;
    const size_t bytes = (size_t)N * (size_t)vocab * sizeof(float);
    float *stored = new_logits(N, vocab), *as_bf16 = new_logits(N, vocab);
    float *rounded = new_logits(N, vocab);
    choose_ids(vocab);
    const char *const paths[] = { "reference", "reference-bf16", "reference" };
    float *const logits[] = { stored, as_bf16, rounded };
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            round_matrix(m, &m->model.weights.embedding);
            round_matrix(m, &m->model.weights.head);
            for (int l = 0; l < N_LAYERS; l++) {
                struct layer_weights *w = &m->layers[l];
                struct matrix *const all[] = { &w->q,    &w->k,  &w->v,   &w->o,
                                               &w->gate, &w->up, &w->down };
                for (size_t k = 0; k < sizeof all / sizeof *all; k++)
                    round_matrix(m, all[k]);
            }
        }
        struct running r = open_running(m, paths[i], 1);
        struct backend_info info;
        cpu_backend.info(r.backend, &info);
        assert_string_equal(info.path, paths[i]);
        evaluate(&r, 0, N, logits[i]);
        close_running(&r);
    }
    assert_memory_equal(as_bf16, rounded, bytes);
    assert_memory_not_equal(as_bf16, stored, bytes);
    free(stored), free(as_bf16), free(rounded);
    free_model(m);
}

/* Bytes of this process that are in memory. */
static size_t resident_bytes(void) {
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &all, &pages), 2);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A hundred whose keys and values would take 6 GB; then one of them takes what it uses, and gives
 * it back when it is closed. */
static void sessions_take_memory_as_they_are_used(void **state) {
    (void)state;
    enum { SESSIONS = 100, POSITIONS = 32768, USED = 600, LITTLE = 4 << 20 };
    if (SANITIZED) skip(); /* its own bookkeeping grows with what is asked for */
    struct small_model *m = random_model(&random_shapes[7]);
    choose_ids(random_shapes[7].vocab);
    struct running r = open_running(m, NULL, 1);
    struct backend_state *states[SESSIONS];
    struct backend_info info;
    const struct backend_eval eval = { .n = USED, .ids = token_ids };
    cpu_backend.info(r.backend, &info);
    assert_true(info.state_position_bytes * POSITIONS * SESSIONS > 1ull << 32);
    assert_int_equal(cpu_backend.eval(r.state, &eval, NULL), REEL_OK); /* the scratch's share */
    const size_t before = resident_bytes();
    for (int i = 0; i < SESSIONS; i++)
        assert_int_equal(cpu_backend.state_open(&states[i], r.backend, POSITIONS, NULL), REEL_OK);
    assert_true(resident_bytes() < before + LITTLE);
    for (int i = 0; i < 10; i++)
        assert_int_equal(cpu_backend.eval(states[i], &eval, NULL), REEL_OK);
    assert_true(resident_bytes() > before + 9 * USED * info.state_position_bytes);
    for (int i = 0; i < SESSIONS; i++)
        cpu_backend.state_close(states[i]);
    assert_true(resident_bytes() < before + LITTLE);
    close_running(&r);
    free_model(m);
}

/* The largest of a head's elements is some 2.5 times their RMS. So int8 rounds to steps of 2.5 /
 * 127 of that, which is off by a step / sqrt(12), 0.6 %, and fp8 is off by 2.6 %: of keys and of
 * values, in each of two layers, twice as much in all. The bounds are less and more than that by a
 * factor of two. */
static void forms_of_the_cache_differ_by_their_rounding(void **state) {
    enum { N = 40 };
    (void)state;
    struct small_model *m = random_model(&random_shapes[1]);
    const int vocab = random_shapes[1].vocab;
    float *logits[KV_FORMS];
    choose_ids(vocab);
    for (form = KV_BF16; form < KV_FORMS; form++) {
        struct running r = open_running(m, "reference", 1);
        logits[form] = new_logits(N, vocab);
        evaluate(&r, 0, N, logits[form]);
        close_running(&r);
    }
    form = KV_BF16;
    const size_t n = (size_t)N * (size_t)vocab;
    const double int8 = difference(logits[KV_INT8], logits[KV_BF16], n);
    const double fp8 = difference(logits[KV_FP8], logits[KV_BF16], n);
    print_message("logits are off by %g in int8 and by %g in fp8\n", int8, fp8);
    assert_true(int8 > 0.5 * 0.012 && int8 < 2 * 0.012);
    assert_true(fp8 > 0.5 * 0.052 && fp8 < 2 * 0.052);
    for (int i = 0; i < KV_FORMS; i++)
        free(logits[i]);
    free_model(m);
}

/* As the file's keys and values are scaled: a scale that is far too small cuts off most of them,
 * one that is far too large leaves little, and the form int8 takes none. */
static void scales_of_the_file_are_used_in_fp8(void **state) {
    enum { N = 40, MOST = 64 };
    (void)state;
    struct small_model *m = random_model(&random_shapes[1]);
    const int vocab = random_shapes[1].vocab, heads = random_shapes[1].kv_heads;
    const size_t n = (size_t)N * (size_t)vocab;
    float scales[MOST], *plain = new_logits(N, vocab), *scaled = new_logits(N, vocab);
    assert_true(N_LAYERS * heads * 2 <= MOST);
    choose_ids(vocab);
    for (int path = 0; path < 2; path++)
        for (form = KV_INT8; form <= KV_FP8; form++) {
            struct running r = open_running(m, path ? NULL : "reference", 1);
            evaluate(&r, 0, N, plain);
            close_running(&r);
            for (int much = 0; much < 3; much++) {
                for (int i = 0; i < MOST; i++)
                    scales[i] = much == 0 ? 0x1p-16f : much == 1 ? 0x1p-7f : 0x1p12f;
                m->model.weights.kv_scales = scales;
                r = open_running(m, path ? NULL : "reference", 1);
                evaluate(&r, 0, N, scaled);
                close_running(&r);
                m->model.weights.kv_scales = NULL;
                const double off = difference(scaled, plain, n);
                if (form == KV_INT8)
                    assert_true(off == 0);
                else
                    assert_true(much == 1 ? off > 0 && off < 0.1 : off > 0.1);
            }
        }
    form = KV_BF16;
    free(plain), free(scaled);
    free_model(m);
}

#define IN_FORM(test, is)                                                                          \
    static void test##_in_##is(void **state) {                                                     \
        form = kv_form_of(#is);                                                                    \
        test(state);                                                                               \
        form = KV_BF16;                                                                            \
    }
#define IN_8_BITS(test) IN_FORM(test, int8) IN_FORM(test, fp8)
#define THE_SAME(test)  in_turn(test##_in_int8), in_turn(test##_in_fp8)
IN_8_BITS(prefill_equals_decode_whatever_the_cuts)
IN_8_BITS(pieces_of_whole_steps_give_the_same_bits)
IN_8_BITS(long_contexts_agree_with_the_reference)
IN_8_BITS(the_same_input_gives_the_same_bits_on_any_number_of_threads)
IN_8_BITS(saved_restored_and_copied_states_go_on_alike)
IN_8_BITS(copies_that_share_memory_stay_apart)
IN_8_BITS(dropped_positions_leave_no_trace)
IN_8_BITS(packed_texts_are_what_they_are_alone)

int main(void) {
    struct CMUnitTest tests[] = {
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
        cmocka_unit_test(prefill_equals_decode_whatever_the_cuts),
        cmocka_unit_test(pieces_of_whole_steps_give_the_same_bits),
        cmocka_unit_test(long_contexts_agree_with_the_reference),
        cmocka_unit_test(the_same_input_gives_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(saved_restored_and_copied_states_go_on_alike),
        cmocka_unit_test(copies_that_share_memory_stay_apart),
        cmocka_unit_test(dropped_positions_leave_no_trace),
        cmocka_unit_test(outputs_are_rows_of_one_another),
        cmocka_unit_test(packed_texts_are_what_they_are_alone),
        cmocka_unit_test(a_pass_that_fills_a_short_state_is_cut),
        cmocka_unit_test(a_pass_is_cancelled_and_the_reference_takes_none),
        cmocka_unit_test(rows_that_nothing_is_asked_of_are_not_missed),
        cmocka_unit_test(no_output_leaves_the_end_of_the_last_layer_alone),
        cmocka_unit_test(no_output_leaves_the_output_matrix_alone),
        cmocka_unit_test(cancelled_runs_say_so_and_keep_whole_chunks),
        cmocka_unit_test(faithful_rounding_refuses_a_fast_path),
        cmocka_unit_test(reference_bf16_is_the_reference_on_rounded_weights),
        cmocka_unit_test(sessions_take_memory_as_they_are_used),
        cmocka_unit_test(forms_of_the_cache_differ_by_their_rounding),
        cmocka_unit_test(scales_of_the_file_are_used_in_fp8),
        THE_SAME(prefill_equals_decode_whatever_the_cuts),
        THE_SAME(pieces_of_whole_steps_give_the_same_bits),
        THE_SAME(long_contexts_agree_with_the_reference),
        THE_SAME(the_same_input_gives_the_same_bits_on_any_number_of_threads),
        THE_SAME(saved_restored_and_copied_states_go_on_alike),
        THE_SAME(copies_that_share_memory_stay_apart),
        THE_SAME(dropped_positions_leave_no_trace),
        THE_SAME(packed_texts_are_what_they_are_alone),
    };
    SHARE_TESTS("cpu-backend", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
