/* draft_bench MODEL DRAFT [DEVICE [GPU_OPTIONS [CACHE [IDS [POSITION]]]]]: what a draft model is
 * worth, of which a given share of the guesses is right; with a DRAFT of "-", the model's own draft
 * layer; with one of "head:FOLDER", an EAGLE-3 head. All run as they do for anybody who generates
 * so: the draft model decodes, or the layer guesses, and the model checks. But each guess is then
 * replaced, by the id that comes there with the chance given and by another else: models of
 * synthetic weights guess nothing right. A table of tab-separated values; exit status 1 where ids
 * differ from those without drafts.
 *
 *   position    how long the prompt is: POSITION, or 32 and 4,000
 *   ids         greedy, or drawn: then none repeat, and auto has nothing else to guess from
 *   guesses     of a pass; "auto": as many as are measured to be fastest; "-": none
 *   right       the chance of a guess
 *   us a round  of the guesses and the pass that checks them; of "-": of a pass
 *   us a guess  of that for one guess, with its share of the launch; 0: nobody waits for it alone
 *
 * Each line is the best of three runs of IDS (160) ids. Those of 0.75 come first, as time may be
 * over before the others have come. */
#include "base/clock.h"
#include "base/memory.h"
#include "cuda/run/cuda_backend.h"
#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, WARM = 16, MOST_IDS = 4000 };

static struct bench {
    struct reel_model *model, *draft; /* draft: NULL where the model's draft layer guesses */
    struct reel_model oracle;         /* whichever guesses, with calls of its own */
    struct backend_ops ops;
    double right;
    struct reel_sampling sampling;
    int n, n_prompt, position; /* position: of all, or 0 */
    int32_t *prompt, *ids;     /* what comes behind the prompt: [WARM + n] */
    double alone_us;
    double layer_ms; /* that the draft layer took for n_layer guesses */
    int n_layer;
    bool differs;
} b;

/* ---- the oracle ---- */

static int32_t oracle(int64_t position) {
    static uint64_t seed = 88172645463325252u;
    const int64_t at = position - b.n_prompt;
    const int32_t id = at >= 0 && at < WARM + b.n ? b.ids[at] : 0;
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0 < b.right ? id : id ^ 1;
}

/* A backend that decodes by itself: its ids are replaced as they come. */
struct replaced {
    const struct backend_decode *decode;
    int64_t position; /* of the next id */
};

static bool replace_id(void *user, int32_t id) {
    struct replaced *r = user;
    (void)id;
    return r->decode->on_id(r->decode->user, oracle(r->position++));
}

static int32_t draw(void *user, const float *logits, int64_t position) {
    const struct replaced *r = user;
    return r->decode->draw(r->decode->user, logits, position);
}

static enum reel_status oracle_decode(struct backend_state *state,
                                      const struct backend_decode *decode, struct reel_error *err) {
    struct replaced r = { decode, decode->position + 1 };
    struct backend_decode told = *decode;
    told.on_id = replace_id;
    told.draw = draw;
    told.user = &r;
    return b.draft->ops->decode(state, &told, err);
}

/* One that evaluates: the largest logit is another one. */
static enum reel_status oracle_eval(struct backend_state *state, const struct backend_eval *eval,
                                    struct reel_error *err) {
    const enum reel_status status = b.draft->ops->eval(state, eval, err);
    if (status == REEL_OK && eval->out && eval->output == REEL_OUTPUT_LAST_LOGITS)
        eval->out[oracle(eval->position + eval->n)] = 1e30F;
    return status;
}

/* A backend that decodes by itself asks its draft layer itself, too. */
static int32_t oracle_of_layer(int position) { return oracle(position); }

static int oracle_guess(struct backend_state *state, int position, int32_t id, int32_t *ids,
                        int most, float *logits) {
    const double start = clock_ms();
    const int n = b.model->ops->guess(state, position, id, ids, most, logits);
    b.layer_ms += clock_ms() - start, b.n_layer += n;
    for (int i = 0; i < n; i++)
        ids[i] = oracle(position + 1 + i);
    return n;
}

/* ---- runs ---- */

struct figures {
    double ms;
    double guess_ms;
    struct reel_generation_result result;
};

static enum reel_status generate(struct reel_session *s, int n, enum reel_speculation speculation,
                                 int most, struct reel_generation_result *result,
                                 struct reel_error *err) {
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = &b.sampling,
                                       .max_tokens = n,
                                       .ignore_stop_ids = true,
                                       .speculation = speculation,
                                       .most_drafts = most };
    result->size = sizeof *result;
    enum reel_status status = reel_generate(s, &g, result, err);
    if (status == REEL_OK && result->draft_problem)
        status = err_set(err, REEL_E_STATE, "%s", result->draft_problem);
    if (status == REEL_OK && result->n_tokens != n)
        status = err_set(err, REEL_E_STATE, "%d of %d ids were made", result->n_tokens, n);
    return status;
}

/* The clock starts when both models have read the prompt and made some ids: what they take longer
 * for once, such as compiling, is over then. */
static enum reel_status run_once(struct reel_session *s, enum reel_speculation speculation,
                                 int most, struct figures *f, struct reel_error *err) {
    struct reel_generation_result warm;
    enum reel_status status = reel_session_truncate(s, 0, err);
    if (status == REEL_OK) status = reel_session_sync(s, b.prompt, b.n_prompt, NULL, err);
    if (status == REEL_OK) status = generate(s, WARM, speculation, most, &warm, err);
    b.layer_ms = b.n_layer = 0;
    if (status == REEL_OK) status = generate(s, b.n, speculation, most, &f->result, err);
    f->ms = f->result.total_ms;
    f->guess_ms = s->draft ? s->draft->step_ms : b.n_layer ? b.layer_ms / b.n_layer : 0;
    if (status != REEL_OK) return status;
    const size_t n_bytes = (size_t)(WARM + b.n) * sizeof *b.ids;
    const int32_t *made = reel_session_ids(s) + b.n_prompt;
    if (speculation == REEL_SPECULATION_OFF)
        memcpy(b.ids, made, n_bytes);
    else if (memcmp(b.ids, made, n_bytes) != 0)
        b.differs = true;
    return REEL_OK;
}

static enum reel_status run(enum reel_speculation speculation, int most, double right,
                            struct reel_error *err) {
    const bool speculates = speculation != REEL_SPECULATION_OFF;
    const struct reel_model *model = speculates && !b.draft ? &b.oracle : b.model;
    const struct reel_session_options o = { .size = sizeof o,
                                            .max_context = b.n_prompt + WARM + b.n + 8,
                                            .draft_model =
                                                speculates && b.draft ? &b.oracle : NULL };
    struct reel_session *s = NULL;
    struct figures best = { .ms = 1e30 };
    char guesses[12] = "auto", chance[12] = "-";
    b.right = right;
    enum reel_status status = reel_session_open(&s, model, &o, err);
    for (int round = 0; round < ROUNDS && status == REEL_OK; round++) {
        struct figures f = { 0 };
        status = run_once(s, speculation, most, &f, err);
        if (f.ms < best.ms) best = f;
    }
    reel_session_close(s);
    if (status != REEL_OK) return status;
    const struct reel_generation_result *r = &best.result;
    const double us = best.ms * 1e3 / r->n_tokens;
    if (speculation == REEL_SPECULATION_OFF) {
        b.alone_us = us;
        snprintf(guesses, sizeof guesses, "-");
    } else {
        if (most > 0) snprintf(guesses, sizeof guesses, "%d", most);
        snprintf(chance, sizeof chance, "%.2f", right);
    }
    printf("%d\t%s\t%s\t%s\t%d\t%d\t%.1f\t%.1f\t%.3f\t%.1f\t%.3f\t%s\n", b.n_prompt,
           b.sampling.temperature > 0 ? "drawn" : "greedy", guesses, chance, r->n_drafted,
           r->n_accepted, best.ms * 1e3 / r->n_passes, best.guess_ms * 1e3,
           (double)r->n_tokens / r->n_passes, 1e6 / us, b.alone_us / us,
           speculation == REEL_SPECULATION_OFF ? "-"
           : b.differs                         ? "OTHER IDS"
                                               : "yes");
    fflush(stdout);
    return REEL_OK;
}

/* How many guesses are tried; 0: auto. */
static const int greedy_guesses[] = { 3, 1, 2, 5, 7 }, drawn_guesses[] = { 3, 0 };
enum { N_GREEDY = 5, N_DRAWN = 2 };

static enum reel_status bench_from(int n_prompt, double right, bool drawn, struct reel_error *err) {
    const int n = drawn ? N_DRAWN : N_GREEDY, *guesses = drawn ? drawn_guesses : greedy_guesses;
    const bool head = b.model->model.weights.draft.kind == DRAFT_EAGLE3;
    const enum reel_speculation kind = b.draft ? REEL_SPECULATION_DRAFT
                                       : head  ? REEL_SPECULATION_EAGLE3
                                               : REEL_SPECULATION_MTP;
    b.n_prompt = n_prompt;
    b.sampling = (struct reel_sampling){ .size = sizeof b.sampling,
                                         .temperature = drawn ? 1.0F : 0.0F,
                                         .seed = 7 };
    enum reel_status status = run(REEL_SPECULATION_OFF, 0, 0, err);
    for (int i = 0; i < n && status == REEL_OK; i++)
        if (guesses[i] || b.draft || head) /* a layer of its own is not asked by auto on a GPU */
            status = run(guesses[i] ? kind : REEL_SPECULATION_AUTO, guesses[i], right, err);
    return status;
}

static enum reel_status bench_all(struct reel_error *err) {
    const int prompts[] = { b.position ? b.position : 32, b.position ? b.position : 4000 };
    static const double shares[] = { 0.75, 0.5, 0.9, 1, 0 };
    const int most = prompts[sizeof prompts / sizeof *prompts - 1];
    enum reel_status status = mem_zeroed(&b.prompt, (size_t)most, sizeof *b.prompt, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&b.ids, (size_t)(WARM + b.n), sizeof *b.ids, "ids", err);
    for (int i = 0; i < most && status == REEL_OK; i++)
        b.prompt[i] = (i * 37 + 11) % b.model->model.config.vocab;
    puts("position\tids\tguesses\tright\tdrafted\taccepted\tus a round\tus a guess\tids a pass\t"
         "tok/s\ttimes\tsame");
    for (size_t i = 0; i < 4 * sizeof shares / sizeof *shares && status == REEL_OK; i++) {
        const int n_prompt = prompts[i % 4 / 2];
        if (b.position && i % 4 / 2) continue;
        if (n_prompt + WARM + b.n + 8 <= b.model->model.config.max_context)
            status = bench_from(n_prompt, shares[i / 4], i % 2, err);
    }
    return status;
}

static void replace_guesses(void) {
    b.oracle = b.draft ? *b.draft : *b.model;
    b.ops = *b.oracle.ops;
    if (!b.draft && b.ops.decode)
        b.model->backend->draft_oracle = oracle_of_layer;
    else if (!b.draft)
        b.ops.guess = oracle_guess;
    else if (b.ops.decode)
        b.ops.decode = oracle_decode;
    else
        b.ops.eval = oracle_eval;
    b.oracle.ops = &b.ops;
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    if (argc < 3) {
        fprintf(stderr,
                "usage: draft_bench MODEL DRAFT [DEVICE [GPU_OPTIONS [CACHE [IDS [POSITION]]]]]\n");
        return 2;
    }
    const char *head = strncmp(argv[2], "head:", 5) == 0 ? argv[2] + 5 : NULL;
    const bool has_draft = !head && strcmp(argv[2], "-") != 0;
    const struct reel_model_options o = { .size = sizeof o,
                                          .draft_head = head,
                                          .device = argc > 3 ? argv[3] : "gpu",
                                          .gpu_options = argc > 4 && argv[4][0] ? argv[4] : NULL,
                                          .cache_dir = argc > 5 && argv[5][0] ? argv[5] : NULL };
    b.n = argc > 6 ? atoi(argv[6]) : 160;
    b.position = argc > 7 ? atoi(argv[7]) : 0;
    if (b.position < 0 || b.position > MOST_IDS) {
        fprintf(stderr, "draft_bench: POSITION is %s; allowed are 1 to %d, or 0 for 32 and 4000\n",
                argv[7], MOST_IDS);
        return 2;
    }
    if (b.n < 1 || b.n > MOST_IDS) {
        fprintf(stderr, "draft_bench: IDS is %s; allowed are 1 to %d\n", argv[6], MOST_IDS);
        return 2;
    }
    enum reel_status status = REEL_OK;
    if (has_draft) status = reel_model_open(&b.draft, argv[2], &o, &err);
    if (status == REEL_OK) status = reel_model_open(&b.model, argv[1], &o, &err);
    if (status == REEL_OK) {
        replace_guesses();
        status = bench_all(&err);
    }
    if (status != REEL_OK) fprintf(stderr, "draft_bench: %s\n", err.text);
    reel_model_close(b.model);
    reel_model_close(b.draft);
    mem_free(b.prompt);
    mem_free(b.ids);
    return status != REEL_OK || b.differs;
}
