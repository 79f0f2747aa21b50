#include "cli/profile_run.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/open_model.h"
#include "reel_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 0x5eedu

/* A launch's first and last token are not measured. */
enum { LEFT_OUT = 2 };

/* One of the two kernels at work. */
struct decoder {
    const struct profile_plan *plan;
    struct reel_model *model;
    struct reel_session *session;
    int32_t *ids; /* [n_ids] */
    int n_ids, n_prompt, n_new;
    int32_t *made; /* [n_new] */
    int n_made;
    double *us;               /* [repeats] of a token, or of the prompt */
    struct progress progress; /* of the prompt's evaluation */
};

static bool on_token(void *user, const struct reel_token *token) {
    struct decoder *d = user;
    if (d->n_made < d->n_new) d->made[d->n_made++] = token->id;
    return true;
}

static enum reel_status generate(struct decoder *d, int n, reel_token_fn listener,
                                 struct reel_error *err) {
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation generation = { .size = sizeof generation,
                                                .max_tokens = n,
                                                .ignore_stop_ids = true,
                                                .on_token = listener,
                                                .user = d,
                                                .speculation = REEL_SPECULATION_OFF };
    enum reel_status status = reel_generate(d->session, &generation, &result, err);
    if (status == REEL_OK && result.n_tokens != n)
        status = err_set(err, REEL_E_STATE, "%d of %d tokens were generated", result.n_tokens, n);
    return status;
}

/* Drawing one id first leaves the timed call with nothing but decoding: one launch. */
static enum reel_status repeat(struct decoder *d, double *us, struct reel_error *err) {
    enum reel_status status = reel_session_sync(d->session, d->ids, d->n_prompt, NULL, err);
    if (status == REEL_OK) status = generate(d, 1, NULL, err);
    d->n_made = 0;
    const double start = clock_ms();
    if (status == REEL_OK) status = generate(d, d->n_new, on_token, err);
    *us = (clock_ms() - start) * 1e3 / d->n_new;
    return status;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A prompt behind those `depth` tokens. No output is asked for: nothing but reading is timed. */
static enum reel_status read_prompt(struct decoder *d, double *us, struct reel_error *err) {
    const int depth = d->plan->depth;
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = d->plan->n_prompt,
                                    .ids = d->ids + depth };
    enum reel_status status = reel_session_sync(d->session, d->ids, depth, NULL, err);
    const double start = clock_ms();
    if (status == REEL_OK) status = reel_session_eval(d->session, &eval, err);
    *us = (clock_ms() - start) * 1e3;
    return status;
}

typedef enum reel_status measured_fn(struct decoder *d, double *us, struct reel_error *err);

static enum reel_status often(struct decoder *d, measured_fn *measured, double *median_us,
                              struct reel_error *err) {
    const int n = d->plan->repeats;
    enum reel_status status = measured(d, median_us, err); /* untimed */
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = measured(d, &d->us[i], err);
    qsort(d->us, (size_t)n, sizeof *d->us, compare_double);
    *median_us = (d->us[(n - 1) / 2] + d->us[n / 2]) / 2;
    return status;
}

static enum reel_status decoder_open(struct decoder *d, const struct cli_args *args,
                                     const char *gpu_options, struct reel_error *err) {
    const struct profile_plan *plan = d->plan;
    struct reel_model_info info = { .size = sizeof info };
    progress_start(&d->progress);
    d->n_prompt = plan->depth > 0 ? plan->depth : 1;
    d->n_new = plan->n_tokens + LEFT_OUT;
    d->n_ids =
        plan->depth + plan->n_prompt > d->n_prompt ? plan->depth + plan->n_prompt : d->n_prompt;
    const int for_decoding = d->n_prompt + 1 + d->n_new;
    enum reel_status status =
        cli_model_open_gpu(&d->model, args, args->arguments[0], gpu_options, err);
    if (status != REEL_OK) return status;
    info = cli_model_info(d->model);
    const size_t n_ids = (size_t)d->n_ids, n_new = (size_t)d->n_new;
    status = mem_zeroed(&d->ids, n_ids, sizeof *d->ids, "ids", err);
    if (status == REEL_OK) status = mem_zeroed(&d->made, n_new, sizeof *d->made, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->us, (size_t)plan->repeats, sizeof *d->us, "token times", err);
    if (status != REEL_OK) return status;
    uint64_t state = SEED;
    for (int i = 0; i < d->n_ids; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        d->ids[i] = (int32_t)((state >> 33) % (uint64_t)info.vocab);
    }
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = d->n_ids > for_decoding
                                                                     ? d->n_ids
                                                                     : for_decoding,
                                                  .progress = progress_update,
                                                  .progress_user = &d->progress };
    status = cli_check_positions(d->model, options.max_context, "-d, -p and -n", err);
    if (status != REEL_OK) return status;
    return reel_session_open(&d->session, d->model, &options, err);
}

static void decoder_release(struct decoder *d) {
    mem_free(d->ids);
    mem_free(d->made);
    mem_free(d->us);
}

/* Whether the prompt that was asked for is the chunk that the profile tells of. */
static enum reel_status check_prompt(struct profile_result *r, const struct profile_plan *plan,
                                     struct reel_error *err) {
    const json_t *prefill = json_object_get(r->json, "prefill");
    const json_int_t most = json_integer_value(json_object_get(prefill, "most_tokens"));
    if (plan->n_prompt == 0) {
        (void)json_object_del(r->json, "prefill"); /* how `depth` came to be: read once */
        return REEL_OK;
    }
    if (json_integer_value(json_object_get(prefill, "tokens")) == plan->n_prompt &&
        json_integer_value(json_object_get(prefill, "position")) == plan->depth)
        return REEL_OK;
    if (most > 0 && plan->n_prompt > most)
        return err_set(err, REEL_E_ARGUMENT,
                       "-p %d: that prompt is read in chunks of at most %lld tokens; a profile is "
                       "of one chunk, with -d N for those before it",
                       plan->n_prompt, (long long)most);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "-p %d: the decode kernel reads that prompt token by token, as it decodes; "
                   "`reel inspect MODEL --plan` says which prompts have kernels of their own",
                   plan->n_prompt);
}

static enum reel_status ask(struct profile_result *r, const struct decoder *d,
                            struct reel_error *err) {
    const struct reel_profile_options options = { .size = sizeof options,
                                                  .trace_sms = d->plan->trace_sms,
                                                  .trace_tokens = d->plan->trace_tokens };
    struct reel_model_info info = { .size = sizeof info };
    char *text = NULL;
    info = cli_model_info(d->model);
    (void)snprintf(r->model, sizeof r->model, "%s", info.name);
    enum reel_status status =
        reel_session_profile(d->session, &options, &text, d->plan->trace ? &r->trace : NULL, err);
    if (status == REEL_OK) status = json_read(&r->json, "the profile", text, strlen(text), err);
    reel_free(text);
    return status == REEL_OK ? check_prompt(r, d->plan, err) : status;
}

/* Launches as long as the kernels allow, so that what is measured is one of them. */
static enum reel_status run_one(struct profile_result *r, struct decoder *d,
                                const struct cli_args *args, bool stamps, struct reel_error *err) {
    char options[64] = "launch_ms=10000";
    if (stamps)
        (void)snprintf(options, sizeof options, "launch_ms=10000,profile=%d",
                       d->plan->n_tokens + LEFT_OUT);
    enum reel_status status = decoder_open(d, args, options, err);
    if (status == REEL_OK && d->plan->n_prompt > 0) /* first: what is asked is the last decoding */
        status = often(d, read_prompt, stamps ? &r->timed_prompt_us : &r->plain_prompt_us, err);
    if (status == REEL_OK) status = often(d, repeat, stamps ? &r->stamped_us : &r->plain_us, err);
    if (status == REEL_OK && stamps) status = ask(r, d, err);
    progress_end(&d->progress);
    reel_session_close(d->session);
    reel_model_close(d->model);
    d->session = NULL;
    d->model = NULL;
    return status;
}

enum reel_status profile_measure(struct profile_result *result, const struct cli_args *args,
                                 const struct profile_plan *plan, struct reel_error *err) {
    struct decoder plain = { .plan = plan }, stamped = { .plan = plan };
    *result = (struct profile_result){ 0 };
    enum reel_status status = run_one(result, &plain, args, false, err);
    if (status == REEL_OK) status = run_one(result, &stamped, args, true, err);
    for (int i = 0; status == REEL_OK && i < plain.n_new; i++)
        if (plain.made[i] != stamped.made[i])
            status = err_set(err, REEL_E_MISMATCH,
                             "token %d is %d without time stamps and %d with them: one of the two "
                             "kernels is wrong",
                             i, (int)plain.made[i], (int)stamped.made[i]);
    decoder_release(&plain);
    decoder_release(&stamped);
    if (status != REEL_OK) profile_result_release(result);
    return status;
}

void profile_result_release(struct profile_result *result) {
    json_decref(result->json);
    reel_free(result->trace);
    result->json = NULL;
    result->trace = NULL;
}
