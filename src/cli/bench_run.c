#include "cli/bench_run.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/open_model.h"
#include "reel_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 0x5eedu
/* Some GPUs count energy in steps of a tenth of a second. */
#define ENERGY_SECONDS 1.0

/* What one repeat needs; the arrays are for all repeats together. */
struct run {
    const struct reel_model *model;
    struct reel_model_info info;
    struct reel_session *session;
    const struct bench_test *test;
    const struct bench_how *how;
    int32_t *ids;     /* [depth + n_prompt + 1] */
    float *logits;    /* [vocab] */
    double *token_ms; /* [repeats, n_gen] */
    int n_token_ms;
    double last_s;             /* when the previous token came */
    int n_generated, n_passes; /* tokens, and passes over the weights that made them */
    int n_drafted, n_accepted; /* as in reel_generation_result */
};

static void fill_ids(struct run *run, int n) {
    uint64_t state = SEED;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        run->ids[i] = (int32_t)((state >> 33) % (uint64_t)run->info.vocab);
    }
}

static bool on_token(void *user, const struct reel_token *token) {
    struct run *run = user;
    (void)token;
    double t = clock_s();
    run->token_ms[run->n_token_ms++] = (t - run->last_s) * 1e3;
    run->last_s = t;
    return true;
}

/* Reads n ids behind what the session holds: up to the last one's logits, or where tokens follow as
 * programs do who want those. */
static enum reel_status prompt(struct run *run, int n, struct reel_error *err) {
    const struct bench_test *test = run->test;
    if (test->n_gen > 0)
        return reel_session_sync(run->session, run->ids, test->depth + n, NULL, err);
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = run->ids + test->depth,
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = run->logits,
                              .out_floats = (size_t)run->info.vocab };
    return reel_session_eval(run->session, &eval, err);
}

/* Generates n tokens after whatever the session holds, in one call. */
static enum reel_status generate(struct run *run, int n, reel_token_fn listener,
                                 struct reel_error *err) {
    struct reel_generation_result result = { .size = sizeof result };
    struct reel_generation generation = { .size = sizeof generation,
                                          .sampling = &run->how->sampling,
                                          .max_tokens = n,
                                          .ignore_stop_ids = true,
                                          .on_token = listener,
                                          .user = run,
                                          .speculation = run->how->speculation,
                                          .most_drafts = run->how->most_drafts };
    enum reel_status status = reel_generate(run->session, &generation, &result, err);
    if (status == REEL_OK && result.n_tokens != n)
        status = err_set(err, REEL_E_STATE, "%d of %d tokens were generated", result.n_tokens, n);
    if (listener) {
        run->n_generated += result.n_tokens;
        run->n_passes += result.n_passes;
        run->n_drafted += result.n_drafted;
        run->n_accepted += result.n_accepted;
    }
    return status;
}

static enum reel_status generate_all(struct run *run, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (!run->how->one_at_a_time) return generate(run, run->test->n_gen, on_token, err);
    for (int i = 0; i < run->test->n_gen && status == REEL_OK; i++)
        status = generate(run, 1, on_token, err);
    return status;
}

/* What the session holds when the clock starts: `depth` positions, evaluated once for all repeats.
 * A test without a prompt needs an id that is not yet evaluated, so that n_gen ids cost n_gen
 * evaluations, as in llama-bench: one drawn after them, or after one where depth is 0. */
static enum reel_status start_timeline(struct run *run, struct reel_error *err) {
    const struct bench_test *test = run->test;
    int n = test->n_prompt == 0 && test->depth == 0 ? 1 : test->depth;
    enum reel_status status = reel_session_sync(run->session, run->ids, n, NULL, err);
    if (status == REEL_OK && test->n_prompt == 0) status = generate(run, 1, NULL, err);
    return status;
}

/* One repeat: seconds in *s, time to the first id in *first_s. */
static enum reel_status repeat(struct run *run, double *s, double *first_s,
                               struct reel_error *err) {
    const struct bench_test *test = run->test;
    int n_before = run->n_token_ms;
    enum reel_status status = start_timeline(run, err);
    double start = clock_s();
    run->last_s = start;
    if (status == REEL_OK && test->n_prompt > 0) status = prompt(run, test->n_prompt, err);
    *first_s = clock_s() - start;
    if (status == REEL_OK && test->n_gen > 0) status = generate_all(run, err);
    *s = clock_s() - start;
    if (run->n_token_ms == n_before) return status;
    *first_s = run->token_ms[n_before] * 1e-3;
    if (test->n_prompt > 0) { /* the first id belongs to the prompt's time, not to decoding's */
        run->n_token_ms--;
        memmove(run->token_ms + n_before, run->token_ms + n_before + 1,
                (size_t)(run->n_token_ms - n_before) * sizeof *run->token_ms);
    }
    return status;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts in place. */
static double quantile(double *values, int n, double q) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_double);
    return values[(int)ceil(q * (n - 1))];
}

/* Bytes that a pass of one token reads, averaged over the test. */
static double pass_bytes(const struct run *run) {
    double positions = run->test->depth + run->test->n_prompt + 0.5 * run->test->n_gen;
    return (double)run->info.token_bytes + positions * (double)run->info.kv_token_bytes;
}

/* What decoding reads in a second. A pass with drafts (reel_speculation) reads for several tokens.
 */
static double bytes_per_s(const struct run *run, const struct bench_row *row) {
    const double passes = run->n_generated > 0 ? (double)run->n_passes / run->n_generated : 0;
    double ms = 0;
    if (run->test->n_prompt == 0) return pass_bytes(run) * passes * row->median_per_s;
    if (passes >= 1 && row->p50_ms > 0) return pass_bytes(run) / (row->p50_ms * 1e-3);
    for (int i = 0; i < run->n_token_ms; i++)
        ms += run->token_ms[i];
    return ms > 0 ? pass_bytes(run) * passes * run->n_token_ms / (ms * 1e-3) : 0;
}

static void summarise(struct run *run, double *seconds, double *first_s, int repeats,
                      struct bench_row *row) {
    int n = run->test->n_prompt + run->test->n_gen;
    double sum = 0, squares = 0;
    for (int i = 0; i < repeats; i++) {
        double rate = n / seconds[i];
        sum += rate;
        squares += rate * rate;
    }
    double mean = sum / repeats;
    double variance = repeats > 1 ? (squares - sum * mean) / (repeats - 1) : 0;
    *row = (struct bench_row){ .test = *run->test, .repeats = repeats, .tokens_per_s = mean };
    row->tokens_per_s_sd = variance > 0 ? sqrt(variance) : 0;
    row->median_per_s = n / quantile(seconds, repeats, 0.5);
    row->first_token_ms = quantile(first_s, repeats, 0.5) * 1e3;
    row->p50_ms = quantile(run->token_ms, run->n_token_ms, 0.5);
    row->p99_ms = quantile(run->token_ms, run->n_token_ms, 0.99);
    row->prompt_per_s = run->test->n_prompt / (row->first_token_ms * 1e-3);
    row->decode_per_s = row->p50_ms > 0 ? 1e3 / row->p50_ms : 0;
    row->bytes_per_s = bytes_per_s(run, row);
    row->n_drafted = run->n_drafted, row->n_accepted = run->n_accepted;
}

int bench_positions(const struct bench_test *test) {
    return test->depth + test->n_prompt + test->n_gen + 2;
}

static enum reel_status prepare(struct run *run, int repeats, struct reel_error *err) {
    const struct bench_test *test = run->test;
    int n = test->depth + test->n_prompt + 1;
    struct reel_session_options options = { .size = sizeof options,
                                            .max_context = bench_positions(test),
                                            .speculation = run->how->speculation,
                                            .draft_model = run->how->draft };
    enum reel_status status = mem_zeroed(&run->ids, (size_t)n, sizeof *run->ids, "ids", err);
    if (status == REEL_OK)
        status =
            mem_zeroed(&run->logits, (size_t)run->info.vocab, sizeof *run->logits, "logits", err);
    if (status == REEL_OK) /* one run more: the warm-up */
        status = mem_zeroed(&run->token_ms, (size_t)test->n_gen * (size_t)(repeats + 1),
                            sizeof *run->token_ms, "token times", err);
    if (status == REEL_OK) fill_ids(run, n);
    if (status == REEL_OK) status = reel_session_open(&run->session, run->model, &options, err);
    return status;
}

/* Energy over whole repeats, after the timed ones: as many as fill a second. The ids that a repeat
 * makes before its clock starts cost energy like any other. */
static enum reel_status measure_energy(struct run *run, struct bench_row *row,
                                       struct reel_error *err) {
    const struct bench_test *test = run->test;
    const int extra = test->n_prompt == 0, n = test->n_prompt + test->n_gen + extra;
    struct reel_meter_reading from = { .size = sizeof from }, to = { .size = sizeof to };
    enum reel_status status = reel_meter_read(run->how->meter, &from, err);
    double start = clock_s(), seconds = 0, tokens = 0;
    while (status == REEL_OK && seconds < ENERGY_SECONDS) {
        double s = 0, first = 0;
        run->n_token_ms = 0;
        status = repeat(run, &s, &first, err);
        tokens += n;
        seconds = clock_s() - start;
    }
    if (status == REEL_OK) status = reel_meter_read(run->how->meter, &to, err);
    if (status != REEL_OK) return status;
    row->joules_a_token = (to.joules - from.joules) / tokens;
    row->watts = (to.joules - from.joules) / seconds;
    return REEL_OK;
}

enum reel_status bench_measure(const struct reel_model *model, const struct bench_test *test,
                               const struct bench_how *how, reel_progress_fn progress,
                               void *progress_user, struct bench_row *row, struct reel_error *err) {
    struct run run = { .model = model, .info.size = sizeof run.info, .test = test, .how = how };
    int repeats = how->repeats;
    double *seconds = NULL, *first_s = NULL;
    run.info = cli_model_info(model);
    enum reel_status status = prepare(&run, repeats, err);
    if (status == REEL_OK)
        status = mem_zeroed(&seconds, (size_t)repeats, sizeof *seconds, "run times", err);
    if (status == REEL_OK)
        status = mem_zeroed(&first_s, (size_t)repeats, sizeof *first_s, "run times", err);
    for (int i = -1; i < repeats && status == REEL_OK; i++) {
        double s = 0, first = 0;
        status = repeat(&run, &s, &first, err);
        if (i < 0)
            run.n_token_ms = run.n_generated = run.n_passes = run.n_drafted = run.n_accepted =
                0; /* the warm-up leaves no trace */
        if (status == REEL_OK && i >= 0) seconds[i] = s, first_s[i] = first;
        if (status == REEL_OK && progress &&
            !progress(progress_user, "measuring", (uint64_t)(i + 2), (uint64_t)repeats + 1))
            status = err_set(err, REEL_E_CANCELLED, "cancelled");
    }
    if (status == REEL_OK) summarise(&run, seconds, first_s, repeats, row);
    if (status == REEL_OK && how->meter) status = measure_energy(&run, row, err);
    reel_session_close(run.session);
    mem_free(run.ids);
    mem_free(run.logits);
    mem_free(run.token_ms);
    mem_free(seconds);
    mem_free(first_s);
    return status;
}
