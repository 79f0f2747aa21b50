/* What bench/busy.sh times: prompts and decoding of one model on the CPU, for at least SECONDS
 * each, through the public API alone, so that one program measures any build's libreel.so.
 *
 *   busy MODEL THREADS PROMPT TOKENS SECONDS
 *
 * Prints "PROMPT_PER_S DECODE_PER_S HASH": tokens a second, and a hash of the ids made, which must
 * not depend on the number of threads. */
#include "reel.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(enum reel_status status, const struct reel_error *err) {
    if (status == REEL_OK) return;
    fprintf(stderr, "busy: %s\n", err->text);
    exit(1);
}

static bool take_token(void *user, const struct reel_token *token) {
    uint64_t *hash = user;
    *hash = (*hash ^ (uint64_t)token->id) * 1099511628211u;
    return true;
}

struct run {
    struct reel_session *session;
    int32_t *ids;
    int n_prompt, n_gen;
    uint64_t hash;
};

/* Tokens a second of prompts, each from an empty session. */
static double time_prompts(struct run *r, double seconds) {
    struct reel_error err;
    int n = 0;
    double start = now_s(), s = 0;
    do {
        struct reel_eval eval = {
            .size = sizeof eval, .n = r->n_prompt, .ids = r->ids, .output = REEL_OUTPUT_NONE
        };
        need(reel_session_truncate(r->session, 0, &err), &err);
        need(reel_session_eval(r->session, &eval, &err), &err);
        n += r->n_prompt;
        s = now_s() - start;
    } while (s < seconds);
    return n / s;
}

/* Tokens a second of answers, each behind the same few ids. */
static double time_answers(struct run *r, double seconds) {
    struct reel_error err;
    int n = 0;
    double s = 0;
    do {
        struct reel_sampling greedy = { .size = sizeof greedy };
        struct reel_generation generation = { .size = sizeof generation,
                                              .sampling = &greedy,
                                              .max_tokens = r->n_gen,
                                              .ignore_stop_ids = true,
                                              .on_token = take_token,
                                              .user = &r->hash };
        struct reel_generation_result result = { .size = sizeof result };
        r->hash = 14695981039346656037u;
        need(reel_session_truncate(r->session, 0, &err), &err);
        need(reel_session_sync(r->session, r->ids, 8, NULL, &err), &err);
        double start = now_s();
        need(reel_generate(r->session, &generation, &result, &err), &err);
        s += now_s() - start;
        n += result.n_tokens;
    } while (s < seconds);
    return n / s;
}

int main(int argc, char **argv) {
    struct reel_error err;
    struct reel_model *model;
    if (argc != 6) {
        fprintf(stderr, "usage: busy MODEL THREADS PROMPT TOKENS SECONDS\n");
        return 1;
    }
    struct run r = { .n_prompt = atoi(argv[3]), .n_gen = atoi(argv[4]) };
    const double seconds = atof(argv[5]);
    struct reel_model_options options = { .size = sizeof options,
                                          .device = "cpu",
                                          .n_threads = atoi(argv[2]) };
    need(reel_model_open(&model, argv[1], &options, &err), &err);
    const int longest = r.n_prompt > r.n_gen + 8 ? r.n_prompt : r.n_gen + 8;
    struct reel_session_options room = { .size = sizeof room, .max_context = longest };
    need(reel_session_open(&r.session, model, &room, &err), &err);
    r.ids = calloc((size_t)longest, sizeof *r.ids);
    if (!r.ids) return 1;
    uint64_t state = 1;
    for (int i = 0; i < longest; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        r.ids[i] = (int32_t)(state >> 33) % 250;
    }
    time_prompts(&r, 0); /* pages and caches are warm afterwards */
    const double prompt = time_prompts(&r, seconds);
    time_answers(&r, 0);
    const double decode = time_answers(&r, seconds);
    printf("%.1f %.1f %016llx\n", prompt, decode, (unsigned long long)r.hash);
    free(r.ids);
    reel_session_close(r.session);
    reel_model_close(model);
    return 0;
}
