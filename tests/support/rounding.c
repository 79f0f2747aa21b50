#include "support/rounding.h"

#include "runtime/model_handle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define BF16_RMS        1.66e-3 /* of a value, by one rounding */
#define LAYER_ROUNDINGS 18
#define HEAD_ROUNDINGS  1

/* Of an embedding, by a nudge: small beside it, and large beside roundings of the CPU's engine. */
#define NUDGE_RMS 0.03
/* Each position's amplification is then known to 0.17 / sqrt(NUDGES) of itself. */
enum { NUDGES = 16 };

double relative_difference(const float *made, const float *want, int n) {
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        const double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

double rounding_allowed(int n_layers) {
    return BF16_RMS * sqrt(LAYER_ROUNDINGS * n_layers + HEAD_ROUNDINGS);
}

double rounding_allowed_once(int n_layers, int hidden) {
    return rounding_allowed(n_layers) * (1 + 4 / sqrt((double)hidden));
}

double rounding_allowed_apart(int n_layers) { return 4 * sqrt(2) * rounding_allowed(n_layers); }

/* In (-1, 1), evenly. */
static double random_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*state >> 32) / 2147483648.0;
}

static float *embeddings_of(const struct reel_model *cpu, const int32_t *ids, int n) {
    const size_t hidden = (size_t)cpu->model.config.hidden;
    float *all = malloc((size_t)n * hidden * sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < n; i++)
        matrix_row_f32(&cpu->model.weights.embedding, ids[i], all + (size_t)i * hidden);
    return all;
}

/* Logits [n, vocab]; the caller frees. */
static float *logits_of(struct reel_model *cpu, const float *embeddings, int n) {
    const struct reel_session_options o = { .size = sizeof o, .max_context = n };
    const size_t n_logits = (size_t)n * (size_t)cpu->model.config.vocab;
    struct reel_session *session = NULL;
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .embeddings = embeddings,
                              .output = REEL_OUTPUT_ALL_LOGITS,
                              .out = malloc(n_logits * sizeof(float)),
                              .out_floats = n_logits };
    assert_non_null(eval.out);
    assert_int_equal(reel_session_open(&session, cpu, &o, NULL), REEL_OK);
    assert_int_equal(reel_session_eval(session, &eval, NULL), REEL_OK);
    reel_session_close(session);
    return eval.out;
}

double *rounding_amplifications(struct reel_model *cpu, const int32_t *ids, int n) {
    const int vocab = cpu->model.config.vocab;
    const size_t n_values = (size_t)n * (size_t)cpu->model.config.hidden;
    double *squares = calloc((size_t)n, sizeof *squares), all = 0;
    float *right = embeddings_of(cpu, ids, n), *nudged = malloc(n_values * sizeof *nudged);
    float *want = logits_of(cpu, right, n);
    uint64_t state = 1;
    assert_true(squares && nudged);
    for (int nudge = 0; nudge < NUDGES; nudge++) {
        for (size_t i = 0; i < n_values; i++)
            nudged[i] = right[i] * (float)(1 + NUDGE_RMS * sqrt(3) * random_next(&state));
        float *made = logits_of(cpu, nudged, n);
        for (int i = 0; i < n; i++) {
            const size_t at = (size_t)i * (size_t)vocab;
            const double moved = relative_difference(made + at, want + at, vocab);
            squares[i] += moved * moved, all += moved * moved;
        }
        free(made);
    }
    for (int i = 0; i < n; i++)
        squares[i] = sqrt(squares[i] * n / all);
    free(right), free(nudged), free(want);
    return squares;
}
