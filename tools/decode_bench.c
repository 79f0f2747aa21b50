/* decode_bench MODEL DEVICE CACHE [GPU_OPTIONS [CAPS [REPEATS [TOKENS [POSITION]]]]]: how long a
 * token takes behind a prompt of POSITION tokens, with each of a list of values of cap_layers, and
 * whether all repeats make the same ids. For trying plans: a model is opened once for all values.
 * The output is not compared with the plain reference; `reel bench` does that, and takes longer.
 *
 * A line for each value: cap (0: the plan's), median, least and most microseconds a token of TOKENS
 * (200) ids in REPEATS (5) answers, milliseconds of the prompt (median of 6), a hash of the ids.
 * With REPEATS of 0 the model is opened alone, which compiles its kernels into the folder CACHE.
 * Exit status 1 where an answer differs from the first. */
#include "base/clock.h"
#include "base/numbers.h"
#include "runtime/model_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 2000, PROMPTS = 6, LONG_PROMPT = 8192 };

struct bench {
    struct reel_model *model;
    struct reel_session *session;
    int repeats, tokens, position;
    int32_t *prompt; /* [n_prompt] */
    int n_prompt;
    double prompt_ms;
    bool differs;
};

static bool hash_id(void *user, const struct reel_token *token) {
    uint64_t *hash = user;
    *hash = (*hash ^ (uint32_t)token->id) * 0x100000001b3u;
    return true;
}

static enum reel_status read_prompt(struct bench *b, struct reel_error *err) {
    const struct reel_eval eval = { .size = sizeof eval, .n = b->n_prompt, .ids = b->prompt };
    const int n = b->n_prompt > LONG_PROMPT ? 1 : PROMPTS;
    double ms[PROMPTS];
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++) {
        status = reel_session_truncate(b->session, 0, err);
        const double start = clock_ms();
        if (status == REEL_OK) status = reel_session_eval(b->session, &eval, err);
        ms[i] = clock_ms() - start;
    }
    b->prompt_ms = status == REEL_OK ? median(ms, n) : 0;
    return status;
}

static enum reel_status answer(struct bench *b, double *ms, uint64_t *hash,
                               struct reel_error *err) {
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = b->tokens,
                                       .ignore_stop_ids = true,
                                       .on_token = hash_id,
                                       .user = hash,
                                       .speculation = REEL_SPECULATION_OFF };
    *hash = 0xcbf29ce484222325u;
    enum reel_status status = reel_session_truncate(b->session, b->n_prompt, err);
    const double start = clock_ms();
    if (status == REEL_OK) status = reel_generate(b->session, &g, NULL, err);
    *ms = clock_ms() - start;
    return status;
}

static enum reel_status time_answers(struct bench *b, int cap, struct reel_error *err) {
    static double us[MOST_REPEATS];
    uint64_t first = 0, hash = 0;
    double least = 1e30, most = 0, ms;
    bool differs = false;
    enum reel_status status = answer(b, &ms, &first, err); /* warms up */
    for (int i = 0; i < b->repeats && status == REEL_OK; i++) {
        status = answer(b, &ms, &hash, err);
        us[i] = ms * 1e3 / b->tokens;
        if (us[i] < least) least = us[i];
        if (us[i] > most) most = us[i];
        differs = differs || hash != first;
    }
    if (status != REEL_OK) return status;
    printf("%d\t%.2f\t%.2f\t%.2f\t%.2f\t%016llx%s\n", cap, median(us, b->repeats), least, most,
           b->prompt_ms, (unsigned long long)first, differs ? "\tother ids" : "");
    b->differs = b->differs || differs;
    return REEL_OK;
}

/* 0: leaves the plan's. */
static void set_cap(const struct bench *b, int cap) {
    struct backend_setting list[BACKEND_MOST_SETTINGS];
    const struct tuning_ops *tuning = b->model->ops->tuning;
    const int n = tuning ? tuning->settings(b->model->backend, list, b->position + b->tokens) : 0;
    for (int i = 0; i < n && cap; i++)
        if (strcmp(list[i].name, "cap_layers") == 0) tuning->set(b->model->backend, i, cap);
}

static enum reel_status bench_all(struct bench *b, const char *caps, struct reel_error *err) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = b->n_prompt + b->tokens + 16 };
    enum reel_status status = reel_session_open(&b->session, b->model, &options, err);
    if (status == REEL_OK) status = read_prompt(b, err);
    if (status == REEL_OK) printf("cap\tus\tleast\tmost\tprompt ms\tids\n");
    for (const char *at = caps; *at && status == REEL_OK;) {
        char *end = NULL;
        const long cap = strtol(at, &end, 10);
        if (end == at) break;
        set_cap(b, (int)cap);
        status = time_answers(b, (int)cap, err);
        at = *end ? end + 1 : end;
    }
    reel_session_close(b->session);
    return status;
}

static int number(int argc, char **argv, int at, int otherwise, int most) {
    const long n = at < argc ? strtol(argv[at], NULL, 10) : otherwise;
    return (int)(n < 0 ? 0 : n > most ? most : n);
}

int main(int argc, char **argv) {
    struct bench b = { .repeats = number(argc, argv, 6, 5, MOST_REPEATS),
                       .tokens = number(argc, argv, 7, 200, 1 << 20),
                       .position = number(argc, argv, 8, 0, 1 << 20) };
    struct reel_error err = { 0 };
    if (argc < 4 || b.tokens < 1) {
        fprintf(stderr, "usage: decode_bench MODEL DEVICE CACHE [GPU_OPTIONS [CAPS [REPEATS "
                        "[TOKENS [POSITION]]]]]\n");
        return 2;
    }
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = argv[2],
                                                .cache_dir = argv[3],
                                                .gpu_options =
                                                    argc > 4 && *argv[4] ? argv[4] : NULL };
    enum reel_status status = reel_model_open(&b.model, argv[1], &options, &err);
    b.n_prompt = b.position ? b.position : 1;
    b.prompt = calloc((size_t)b.n_prompt, sizeof *b.prompt);
    for (int i = 0; i < b.n_prompt && b.prompt && b.model; i++)
        b.prompt[i] = (i * 37 + 11) % b.model->model.config.vocab;
    if (status == REEL_OK && b.prompt && b.repeats > 0)
        status = bench_all(&b, argc > 5 ? argv[5] : "0", &err);
    if (status != REEL_OK) fprintf(stderr, "decode_bench: %s\n", err.text);
    free(b.prompt);
    reel_model_close(b.model);
    return status != REEL_OK || b.differs;
}
