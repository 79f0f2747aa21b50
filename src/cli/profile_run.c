#include "cli/profile_run.h"

#include "base/memory.h"
#include "cli/open_model.h"

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
    int32_t *ids; /* [n_prompt] */
    int n_prompt, n_new;
    int32_t *made; /* [n_new] */
    int n_made;
    double *us;               /* [repeats] of a token */
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
                                                .user = d };
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

static enum reel_status decode(struct decoder *d, double *median_us, struct reel_error *err) {
    const int n = d->plan->repeats;
    enum reel_status status = repeat(d, median_us, err); /* untimed */
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = repeat(d, &d->us[i], err);
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
    enum reel_status status =
        cli_model_open_gpu(&d->model, args, args->arguments[0], gpu_options, err);
    if (status != REEL_OK) return status;
    reel_model_get_info(d->model, &info);
    const size_t n_prompt = (size_t)d->n_prompt, n_new = (size_t)d->n_new;
    status = mem_zeroed(&d->ids, n_prompt, sizeof *d->ids, "ids", err);
    if (status == REEL_OK) status = mem_zeroed(&d->made, n_new, sizeof *d->made, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->us, (size_t)plan->repeats, sizeof *d->us, "token times", err);
    if (status != REEL_OK) return status;
    uint64_t state = SEED;
    for (int i = 0; i < d->n_prompt; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        d->ids[i] = (int32_t)((state >> 33) % (uint64_t)info.vocab);
    }
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = d->n_prompt + 1 + d->n_new,
                                                  .progress = progress_update,
                                                  .progress_user = &d->progress };
    return reel_session_open(&d->session, d->model, &options, err);
}

static void decoder_release(struct decoder *d) {
    free(d->ids);
    free(d->made);
    free(d->us);
}

static enum reel_status ask(struct profile_result *r, const struct decoder *d,
                            struct reel_error *err) {
    const struct reel_profile_options options = { .size = sizeof options,
                                                  .trace_sms = d->plan->trace_sms,
                                                  .trace_tokens = d->plan->trace_tokens };
    struct reel_model_info info = { .size = sizeof info };
    char *text = NULL;
    reel_model_get_info(d->model, &info);
    (void)snprintf(r->model, sizeof r->model, "%s", info.name);
    enum reel_status status =
        reel_session_profile(d->session, &options, &text, d->plan->trace ? &r->trace : NULL, err);
    if (status == REEL_OK) status = json_read(&r->json, "the profile", text, strlen(text), err);
    reel_free(text);
    return status;
}

/* Launches as long as the kernels allow, so that what is measured is one of them. */
static enum reel_status run_one(struct profile_result *r, struct decoder *d,
                                const struct cli_args *args, bool stamps, struct reel_error *err) {
    char options[64] = "launch_ms=10000";
    if (stamps)
        (void)snprintf(options, sizeof options, "launch_ms=10000,profile=%d",
                       d->plan->n_tokens + LEFT_OUT);
    enum reel_status status = decoder_open(d, args, options, err);
    if (status == REEL_OK) status = decode(d, stamps ? &r->stamped_us : &r->plain_us, err);
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
