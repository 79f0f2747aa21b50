#include "cli/check.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "cli/input.h"
#include "cli/open_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIE_ULPS 2.0
/* Models whose logits a check holds side by side: the one in question and three references. */
#define N_SAMPLED 4

static int argmax(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static double log_probability(const float *logits, int n, int id) {
    double max = logits[argmax(logits, n)], sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return logits[id] - max - log(sum);
}

/* The spacing of bf16 values around x: 8 bits of precision. */
static double bf16_ulp(double x) {
    int exponent = 0;
    frexp(x, &exponent);
    return ldexp(1.0, exponent - 8);
}

/* One continuation of a golden, taken apart. */
struct continuation {
    int n_prompt, n_ids;
    int32_t *ids; /* prompt and continuation together, [n_prompt + n_ids] */
    const json_t *logprobs, *margins;
};

static enum reel_status read_ids(const char *name, const json_t *list, int vocab, int32_t *out,
                                 struct reel_error *err) {
    size_t i = 0;
    const json_t *value = NULL;
    json_array_foreach(list, i, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= vocab)
            return err_set(err, REEL_E_FORMAT, "%s: entry %zu of a list of ids is not in 0 to %d",
                           name, i, vocab - 1);
        out[i] = (int32_t)id;
    }
    return REEL_OK;
}

static enum reel_status read_continuation(const char *name, const json_t *entry, int vocab,
                                          struct continuation *c, struct reel_error *err) {
    const json_t *prompt = json_object_get(entry, "prompt_ids");
    const json_t *ids = json_object_get(entry, "ids");
    c->logprobs = json_object_get(entry, "logprobs");
    c->margins = json_object_get(entry, "margin_ulps");
    size_t n = json_array_size(ids);
    if (json_array_size(prompt) == 0 || n == 0 || json_array_size(c->logprobs) != n ||
        json_array_size(c->margins) != n || json_array_size(prompt) + n > 1u << 20)
        return err_set(err, REEL_E_FORMAT,
                       "%s: a continuation needs \"prompt_ids\" and \"ids\", \"logprobs\", "
                       "\"margin_ulps\" of one length",
                       name);
    c->n_prompt = (int)json_array_size(prompt);
    c->n_ids = (int)n;
    enum reel_status status =
        mem_zeroed(&c->ids, (size_t)(c->n_prompt + c->n_ids), sizeof *c->ids, "golden ids", err);
    if (status == REEL_OK) status = read_ids(name, prompt, vocab, c->ids, err);
    if (status == REEL_OK) status = read_ids(name, ids, vocab, c->ids + c->n_prompt, err);
    return status;
}

/* Compares the logits after n_prompt + i positions with the golden's id number i. */
static enum reel_status compare_position(const char *name, const struct continuation *c, int i,
                                         const float *logits, int vocab,
                                         struct golden_result *result, struct reel_error *err) {
    int wanted = c->ids[c->n_prompt + i], found = argmax(logits, vocab);
    double margin = json_number_value(json_array_get(c->margins, (size_t)i));
    double logprob = json_number_value(json_array_get(c->logprobs, (size_t)i));
    double difference = fabs(log_probability(logits, vocab, wanted) - logprob);
    result->n_positions++;
    if (!(difference <= result->worst_logprob)) result->worst_logprob = difference; /* NaN too */
    if (found != wanted && margin <= TIE_ULPS) result->n_ties++;
    if (found != wanted && margin > TIE_ULPS) {
        result->n_unexplained++;
        return err_set(err, REEL_E_MISMATCH,
                       "%s: position %d: id %d wins, the golden has %d by %.1f bf16 ulp", name,
                       c->n_prompt + i, found, wanted, margin);
    }
    if (difference <= result->logprob_bound) return REEL_OK;
    return err_set(err, REEL_E_MISMATCH,
                   "%s: position %d: the log-probability differs by %g, allowed is %g", name,
                   c->n_prompt + i, difference, result->logprob_bound);
}

/* Evaluates ids[from, from + n) and compares every position the golden says something about. */
static enum reel_status step(struct reel_session *session, const char *name,
                             const struct continuation *c, int from, int n, float *logits,
                             int vocab, struct golden_result *result, struct reel_error *err) {
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = c->ids + from,
                              .output = REEL_OUTPUT_ALL_LOGITS,
                              .out = logits,
                              .out_floats = (size_t)n * (size_t)vocab };
    enum reel_status status = reel_session_eval(session, &eval, err);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        int golden = from + i + 1 - c->n_prompt; /* position p predicts id p + 1 */
        if (golden >= 0 && golden < c->n_ids)
            status = compare_position(name, c, golden, logits + (size_t)i * (size_t)vocab, vocab,
                                      result, err);
    }
    return status;
}

static enum reel_status run_continuation(const struct reel_model *model, const char *name,
                                         const struct continuation *c, int vocab,
                                         struct golden_result *result, struct reel_error *err) {
    int n = c->n_prompt + c->n_ids - 1; /* the last id predicts nothing we know */
    struct reel_session_options options = { .size = sizeof options, .max_context = n };
    struct reel_session *session = NULL;
    float *logits = NULL;
    enum reel_status status = cli_check_positions(model, n, name, err);
    if (status == REEL_OK) status = reel_session_open(&session, model, &options, err);
    if (status == REEL_OK)
        status = mem_zeroed(&logits, (size_t)n * (size_t)vocab, sizeof *logits, "logits", err);
    if (status == REEL_OK)
        status = step(session, name, c, 0, c->n_prompt, logits, vocab, result, err);
    for (int i = c->n_prompt; i < n && status == REEL_OK; i++)
        status = step(session, name, c, i, 1, logits, vocab, result, err);
    if (status == REEL_OK) status = reel_session_truncate(session, 0, err);
    if (status == REEL_OK) status = step(session, name, c, 0, n, logits, vocab, result, err);
    mem_free(logits);
    reel_session_close(session);
    return status;
}

static enum reel_status check_text(const struct reel_model *model, const char *name,
                                   const json_t *entry, struct golden_result *result,
                                   struct reel_error *err) {
    const json_t *ids = json_object_get(entry, "ids");
    const char *text = json_string_value(json_object_get(entry, "text"));
    if (!text || !json_is_array(ids))
        return err_set(err, REEL_E_FORMAT, "%s: a tokenizer entry needs \"text\" and \"ids\"",
                       name);
    size_t n_bytes = strlen(text), n = 0;
    int32_t *found = NULL;
    enum reel_status status =
        input_encode(reel_model_tokenizer(model), text, n_bytes, 0, &found, &n, err);
    bool same = status == REEL_OK && n == json_array_size(ids);
    for (size_t i = 0; same && i < n; i++)
        same = json_integer_value(json_array_get(ids, i)) == found[i];
    mem_free(found);
    if (status != REEL_OK) return status;
    result->n_texts++;
    if (same) return REEL_OK;
    return err_set(err, REEL_E_MISMATCH, "%s: \"%.60s\" is not tokenised as in the golden", name,
                   text);
}

enum reel_status golden_check(const struct reel_model *model, const char *name, const void *json,
                              size_t n_bytes, struct golden_result *result,
                              struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct json_real_rule bound = { "logprob_bound", 0, 1, 0, true };
    const char *made_with = NULL;
    json_t *root = NULL;
    *result = (struct golden_result){ 0 };
    info = cli_model_info(model);
    enum reel_status status = json_read(&root, name, json, n_bytes, err);
    if (status == REEL_OK) status = json_get_text(root, name, "made_with", &made_with, err);
    if (status == REEL_OK) status = json_get_real(root, name, &bound, &result->logprob_bound, err);
    if (made_with) {
        strncpy(result->made_with, made_with, sizeof result->made_with - 1);
    }
    size_t i = 0;
    const json_t *entry = NULL;
    json_array_foreach(json_object_get(root, "tokenizer"), i, entry) {
        if (status == REEL_OK) status = check_text(model, name, entry, result, err);
    }
    json_array_foreach(json_object_get(root, "continuations"), i, entry) {
        struct continuation c = { 0 };
        if (status == REEL_OK) status = read_continuation(name, entry, info.vocab, &c, err);
        if (status == REEL_OK) status = run_continuation(model, name, &c, info.vocab, result, err);
        mem_free(c.ids);
    }
    if (status == REEL_OK && result->n_positions == 0)
        status = err_set(err, REEL_E_FORMAT, "%s: holds no continuations", name);
    json_decref(root);
    return status;
}

static enum reel_status all_logits(const struct reel_model *model, const int32_t *ids, int n,
                                   float *logits, size_t n_floats, struct reel_error *err) {
    struct reel_session_options options = { .size = sizeof options, .max_context = n };
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = ids,
                              .output = REEL_OUTPUT_ALL_LOGITS,
                              .out = logits,
                              .out_floats = n_floats };
    struct reel_session *session = NULL;
    enum reel_status status = reel_session_open(&session, model, &options, err);
    if (status == REEL_OK) status = reel_session_eval(session, &eval, err);
    reel_session_close(session);
    return status;
}

static void compare_logits(const float *a, const float *b, int n_positions, int vocab,
                           struct reference_result *result) {
    double error = 0, power = 0, worst = 0;
    for (size_t i = 0; i < (size_t)n_positions * (size_t)vocab; i++) {
        double d = fabs((double)a[i] - b[i]);
        error += d * d;
        power += (double)b[i] * b[i];
        if (!(d <= worst)) worst = d; /* lets NaN through, which then fails every bound */
    }
    double rms = sqrt(power / ((double)n_positions * vocab));
    result->n_positions = n_positions;
    result->rms = sqrt(error / ((double)n_positions * vocab)) / rms;
    result->worst = worst / rms;
    for (int p = 0; p < n_positions; p++) {
        const float *x = a + (size_t)p * (size_t)vocab, *y = b + (size_t)p * (size_t)vocab;
        int i = argmax(x, vocab), j = argmax(y, vocab);
        if (i == j)
            result->n_same_winner++;
        else if (y[j] - y[i] <= TIE_ULPS * bf16_ulp(y[j]))
            result->n_ties++;
    }
}

/* What rounding may do. All runs here have the same weights, so they differ only in where their
 * arithmetic rounds, and how much that matters is the model's own affair: rounding at the same
 * points moves the logits of models/demo by rms 0.004 and those of SmolLM2-135M by 0.05. So it is
 * measured, on the same ids. The exact run rounds nowhere. The faithful run rounds to bf16 wherever
 * the code of Hugging Face does, the fast one where reel's engines store something. The one that is
 * further from the exact run is the yardstick: two, because a model may turn all roundings into one
 * number, which one of them can have near zero by chance.
 *
 * How far the AVX2 path was from the exact run, in yardsticks, over 100 random lists of 4 ids; it
 * rounds at about as many points as a GPU:
 *
 *                                  rms: median, most    one logit: median, most
 *   models/demo                        0.36  0.47            0.36  0.51
 *   ll-a                               0.60  0.73            0.61  0.93
 *   q3-a                               0.59  0.85            0.59  1.13
 *   models/hybrid (DeltaNet)           0.38  0.61            0.38  0.80
 *   q35-a (DeltaNet)                   0.59  1.01            0.62  1.04
 *
 * The bounds leave half as much again, and are never below what float32 sums in another order do.
 */
static void set_bounds(struct reference_result *result, const struct reference_result *fast,
                       const struct reference_result *faithful) {
    const double rms_share = 1.5, worst_share = 2, float32_rms = 1e-4, float32_worst = 1e-3;
    result->rounding_rms = fmax(fast->rms, faithful->rms);
    result->rms_bound = fmax(rms_share * result->rounding_rms, float32_rms);
    result->worst_bound = fmax(worst_share * fmax(fast->worst, faithful->worst), float32_worst);
}

struct sample {
    struct thread_pool *pool;
    int n_models, n_positions, vocab;
    const struct reel_model *models[N_SAMPLED];
    int32_t *ids;
    float *logits[N_SAMPLED]; /* f32 [n_positions, vocab] */
    enum reel_status status[N_SAMPLED];
    struct reel_error err[N_SAMPLED];
};

static void sample_part(void *user, int thread, int n_threads) {
    struct sample *s = user;
    const size_t n = (size_t)s->n_positions * (size_t)s->vocab;
    (void)n_threads;
    for (int m; (m = thread_pool_take(s->pool, thread, s->n_models)) >= 0;)
        s->status[m] =
            all_logits(s->models[m], s->ids, s->n_positions, s->logits[m], n, &s->err[m]);
}

/* The logits of the first n_models models, all at once: the reference has one thread. */
static enum reel_status sample_take(struct sample *s, int n_models, int n_positions,
                                    struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    info = cli_model_info(s->models[0]);
    const size_t n = (size_t)n_positions * (size_t)info.vocab;
    s->n_models = n_models;
    s->n_positions = n_positions;
    s->vocab = info.vocab;
    enum reel_status status = mem_zeroed(&s->ids, (size_t)n_positions, sizeof *s->ids, "ids", err);
    for (int i = 0; i < n_positions && status == REEL_OK; i++)
        s->ids[i] = (int32_t)(((int64_t)i * 7919 + 17) % info.vocab);
    for (int m = 0; m < n_models && status == REEL_OK; m++)
        status = mem_zeroed(&s->logits[m], n, sizeof *s->logits[m], "logits", err);
    if (status == REEL_OK) status = thread_pool_open(&s->pool, n_models, err);
    if (status == REEL_OK) thread_pool_run(s->pool, sample_part, s);
    thread_pool_close(s->pool);
    s->pool = NULL;
    for (int m = 0; m < n_models && status == REEL_OK; m++)
        if (s->status[m] != REEL_OK) status = err_set(err, s->status[m], "%s", s->err[m].text);
    return status;
}

static void sample_release(struct sample *s) {
    mem_free(s->ids);
    for (int m = 0; m < N_SAMPLED; m++)
        mem_free(s->logits[m]);
}

enum reel_status reference_distance(const struct reel_model *model,
                                    const struct reel_model *reference, int n_positions,
                                    struct reference_result *result, struct reel_error *err) {
    struct sample s = { .models = { model, reference } };
    *result = (struct reference_result){ 0 };
    enum reel_status status = sample_take(&s, 2, n_positions, err);
    if (status == REEL_OK) compare_logits(s.logits[0], s.logits[1], n_positions, s.vocab, result);
    sample_release(&s);
    return status;
}

enum reel_status reference_check(const struct reel_model *model, const struct references *all,
                                 int n_positions, struct reference_result *result,
                                 struct reel_error *err) {
    struct sample s = { .models = { model, all->exact, all->fast, all->faithful } };
    struct reel_model_info info = { .size = sizeof info };
    struct reference_result fast = { 0 }, faithful = { 0 };
    *result = (struct reference_result){ 0 };
    enum reel_status status = sample_take(&s, N_SAMPLED, n_positions, err);
    if (status == REEL_OK) {
        compare_logits(s.logits[0], s.logits[1], n_positions, s.vocab, result);
        compare_logits(s.logits[2], s.logits[1], n_positions, s.vocab, &fast);
        compare_logits(s.logits[3], s.logits[1], n_positions, s.vocab, &faithful);
        set_bounds(result, &fast, &faithful);
    }
    sample_release(&s);
    if (status != REEL_OK) return status;
    int explained = result->n_same_winner + result->n_ties;
    if (result->rms <= result->rms_bound && result->worst <= result->worst_bound &&
        explained == n_positions)
        return REEL_OK;
    info = cli_model_info(model);
    return err_set(err, REEL_E_MISMATCH,
                   "%s: output differs from the float32 reference: rms %.2g (allowed %.2g), worst "
                   "%.2g (allowed %.2g), %d of %d winners unexplained",
                   info.name, result->rms, result->rms_bound, result->worst, result->worst_bound,
                   n_positions - explained, n_positions);
}

void references_close(struct references *all) {
    reel_model_close(all->exact);
    reel_model_close(all->fast);
    reel_model_close(all->faithful);
    *all = (struct references){ 0 };
}

enum reel_status reference_check_named(const struct reel_model *model, const struct cli_args *args,
                                       const char *name, int n_positions,
                                       struct reference_result *result, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct references all = { 0 };
    *result = (struct reference_result){ 0 };
    info = cli_model_info(model);
    const char *type = info.device_weight_type;
    enum reel_status status =
        cli_model_open_reference(&all.exact, args, name, type, REEL_ROUNDING_EXACT, err);
    if (status == REEL_OK)
        status = cli_model_open_reference(&all.fast, args, name, type, REEL_ROUNDING_FAST, err);
    if (status == REEL_OK)
        status =
            cli_model_open_reference(&all.faithful, args, name, type, REEL_ROUNDING_FAITHFUL, err);
    if (status == REEL_OK) status = reference_check(model, &all, n_positions, result, err);
    references_close(&all);
    return status;
}

void weights_text(const struct reel_model_info *info, char text[WEIGHTS_TEXT]) {
    const char *stored = info->weight_type, *device = info->device_weight_type;
    if (!device || strcmp(stored, device) == 0)
        snprintf(text, WEIGHTS_TEXT, "%s", stored);
    else
        snprintf(text, WEIGHTS_TEXT, "%s in the file, %s on the GPU", stored, device);
}
