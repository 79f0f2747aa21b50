/* SmolLM2-135M-Instruct from its GGUF file against transformers on the same weights, dequantised,
 * in float32. Every test runs on a slice of the model that stands beside the goldens (two layers,
 * 128 of the 1,536 rows of gate and up, 512 tokens: tools/make_smollm2_slice.py), 6 prompts of 60
 * tokens; and on the whole model, 20 prompts of 200 greedy tokens (tools/make_smollm2_goldens.py),
 * when REEL_SMOLLM2 names its file. Slow paths take fewer prompts of the whole model; REEL_SOAK=1
 * gives every path all of them.
 *
 * The golden's ids are given and each next id is predicted: that is greedy decoding in which, after
 * an accepted tie, one goes on with the golden's id. A tie is accepted when the golden's logit of
 * the id predicted is at most 2 bf16 steps of the best logit behind it. */
#include "cpu/reference_model.h"
#include "tests/support/golden.h"
#include "tests/support/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_TOKENS 200
#define N_NEAR     3
#define MAX_IDS    300 /* a prompt and its continuation */

struct subject {
    const char *name;
    const char *path;   /* of the GGUF file */
    const char *golden; /* its goldens, in tests/golden */
    int n_prompts, n_tokens;
    double bound; /* of the distance of log-probabilities, where the CPU's paths round */
    bool whole;   /* the whole model; else the slice, whose continuations are not its greedy ids */
};

struct golden_prompt {
    int n_prompt, n_tokens;
    int32_t ids[MAX_IDS];   /* prompt, then continuation */
    int32_t *best;          /* [n_tokens] the id with the largest logit, of which the rest tells */
    float *logprob, *logit; /* [n_tokens] */
    int32_t *near;          /* [n_tokens, N_NEAR] the ids behind the best, in order */
    float *margin;          /* [n_tokens, N_NEAR] how far behind */
};

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

static void prompt_read(struct golden_prompt *p, const struct golden *golden, int i) {
    char name[7][30];
    static const char *const parts[] = { "prompt", "ids",    "near", "logprob",
                                         "logit",  "margin", "best" };
    for (int j = 0; j < 7; j++)
        snprintf(name[j], sizeof name[j], "%d.%s", i, parts[j]);
    p->n_prompt = golden_count(golden, name[0]);
    p->n_tokens = golden_count(golden, name[1]);
    assert_true(p->n_tokens <= MAX_TOKENS && p->n_prompt + p->n_tokens <= MAX_IDS);
    int32_t *prompt = golden_int(golden, name[0]), *ids = golden_int(golden, name[1]);
    memcpy(p->ids, prompt, (size_t)p->n_prompt * sizeof *prompt);
    memcpy(p->ids + p->n_prompt, ids, (size_t)p->n_tokens * sizeof *ids);
    free(prompt);
    /* Greedy continuations have their best ids as they are. */
    p->best = golden_count(golden, name[6]) ? golden_int(golden, name[6]) : ids;
    if (p->best != ids) free(ids);
    p->near = golden_int(golden, name[2]);
    p->logprob = golden_f32(golden, name[3]);
    p->logit = golden_f32(golden, name[4]);
    p->margin = golden_f32(golden, name[5]);
}

static void prompt_release(struct golden_prompt *p) {
    free(p->best);
    free(p->near);
    free(p->logprob);
    free(p->logit);
    free(p->margin);
}

/* ---- judging --------------------------------------------------------------------------------- */

struct verdict {
    int n_tokens, n_ties, n_unexplained;
    double worst_logprob; /* distance of the log-probability of the golden's id */
    double sum_logprob;
};

static double logprob_of(const float *logits, int vocab, int32_t id) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < vocab; i++)
        if ((double)logits[i] > top) top = (double)logits[i];
    for (int i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return (double)logits[id] - top - log(sum);
}

/* Whether the golden has `best` at most 2 bf16 steps of its own winner behind it at token t. */
static bool is_tie(const struct golden_prompt *p, int t, int32_t best) {
    int exponent = 0;
    frexp((double)p->logit[t], &exponent);
    for (int i = t * N_NEAR; i < (t + 1) * N_NEAR; i++)
        if (best == p->near[i]) return (double)p->margin[i] <= 2 * ldexp(1, exponent - 8);
    return false;
}

/* Token t of a prompt, predicted by logits [vocab]. */
static void judge(struct verdict *v, const struct golden_prompt *p, int t, const float *logits,
                  int vocab) {
    int32_t best = 0, expected = p->best[t];
    for (int32_t i = 0; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    v->n_tokens++;
    if (best != expected && is_tie(p, t, best)) {
        v->n_ties++;
    } else if (best != expected) {
        v->n_unexplained++;
        print_message("token %d is %d, expected %d, best logit %g, next %g behind\n", t, best,
                      expected, (double)p->logit[t], (double)p->margin[t * N_NEAR]);
    }
    double distance = fabs(logprob_of(logits, vocab, expected) - (double)p->logprob[t]);
    if (!(distance <= v->worst_logprob)) v->worst_logprob = distance;
    v->sum_logprob += distance;
}

static void conclude(const char *what, const struct verdict *v, double logprob_bound) {
    print_message("%s: %d tokens, %d ties, %d unexplained; log-probability off by at most %.4f, "
                  "%.5f on average\n",
                  what, v->n_tokens, v->n_ties, v->n_unexplained, v->worst_logprob,
                  v->sum_logprob / v->n_tokens);
    assert_true(v->n_tokens > 0);
    assert_int_equal(v->n_unexplained, 0);
    assert_true(v->worst_logprob <= logprob_bound);
}

/* Whole: over 4,000 tokens the largest distance seen was 0.068 on the reference and 0.050 on the
 * fastest path, 0.0065 and 0.0036 on average. Slice: over 360 tokens 0.027 and 0.011, 0.0035 and
 * 0.0016. */
#define WHOLE_BOUND 0.1
#define SLICE_BOUND 0.04

/* ---- the reference --------------------------------------------------------------------------- */

struct gguf_model {
    struct model_source source;
    struct gguf gguf;
    struct tensor_file tensors;
    struct model_config config;
    struct weights weights;
};

static void model_open(struct gguf_model *m, const char *path) {
    struct reel_error err = { 0 };
    *m = (struct gguf_model){ 0 };
    require(model_source_open(&m->source, path, &err), &err);
    require(gguf_open(&m->gguf, &m->tensors, &m->source, &err), &err);
    require(model_config_from_gguf(&m->config, &m->gguf, &m->tensors, &err), &err);
    require(weights_map(&m->weights, &m->config, &m->tensors, true, &err), &err);
}

static void model_close(struct gguf_model *m) {
    weights_release(&m->weights);
    tensor_file_release(&m->tensors);
    gguf_release(&m->gguf);
    model_source_release(&m->source);
}

static char slice_path[200];

/* The slice, which is packed, as a file that can be opened. */
static int unpack_slice(void **state) {
    (void)state;
    size_t n = 0;
    void *bytes = golden_unpack("tests/golden/smollm2/slice.gguf.xz", &n);
    snprintf(slice_path, sizeof slice_path, "%s/reel-slice-%ld.gguf",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    FILE *f = fopen(slice_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    return 0;
}

static int remove_slice(void **state) {
    (void)state;
    return remove(slice_path);
}

/* What a test is about: the slice or, where `whole`, the model that REEL_SMOLLM2 names. */
static struct subject subject_of(bool whole) {
    if (!whole)
        return (struct subject){ "slice",     slice_path, "smollm2/slice-tokens", 6, 60,
                                 SLICE_BOUND, false };
    const char *path = getenv("REEL_SMOLLM2");
    if (!path || !*path) {
        print_message("REEL_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf\n");
        skip();
    }
    return (struct subject){ "whole", path, "smollm2/tokens", 20, 200, WHOLE_BOUND, true };
}

/* Prompts that a test takes: all of the slice (one under the sanitizers) and of a soak, else
 * `some`. */
static int n_taken(const struct subject *s, int some) {
    if (SANITIZED && !s->whole) return 1;
    return !s->whole || getenv("REEL_SOAK") || some > s->n_prompts ? s->n_prompts : some;
}

static void check_reference(const struct subject *s, enum ref_rounding mode, const char *what,
                            double logprob_bound) {
    struct golden golden;
    struct gguf_model model;
    struct verdict verdict = { 0 };
    struct reel_error err = { 0 };
    golden_open(&golden, s->golden);
    model_open(&model, s->path);
    int vocab = model.config.vocab;
    float *logits = calloc((size_t)s->n_tokens * (size_t)vocab, sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < n_taken(s, 1); i++) {
        struct golden_prompt p;
        struct ref_options options = { .mode = mode, .max_positions = MAX_IDS };
        struct ref_state *state = NULL;
        prompt_read(&p, &golden, i);
        require(ref_state_open(&state, &model.config, &model.weights, &options, &err), &err);
        struct backend_eval prompt = { .n = p.n_prompt - 1, .ids = p.ids };
        require(ref_state_eval(state, &prompt, &err), &err);
        struct backend_eval rest = { .position = p.n_prompt - 1,
                                     .n = s->n_tokens,
                                     .ids = p.ids + p.n_prompt - 1,
                                     .output = REEL_OUTPUT_ALL_LOGITS,
                                     .out = logits };
        require(ref_state_eval(state, &rest, &err), &err);
        for (int t = 0; t < s->n_tokens; t++)
            judge(&verdict, &p, t, logits + (size_t)t * (size_t)vocab, vocab);
        ref_state_close(state);
        prompt_release(&p);
    }
    free(logits);
    model_close(&model);
    golden_close(&golden);
    conclude(what, &verdict, logprob_bound);
}

static void the_exact_reference_gives_the_ids_of_transformers(void **state) {
    const struct subject s = subject_of(*state != NULL);
    check_reference(&s, REF_EXACT, "exact reference", 1e-3);
}

static void the_fast_rounding_reference_gives_the_ids_of_transformers(void **state) {
    const struct subject s = subject_of(*state != NULL);
    check_reference(&s, REF_FAST, "fast-rounding reference", s.bound);
}

/* ---- the public interface -------------------------------------------------------------------- */

static struct reel_model *open_public(const struct subject *s, const char *cpu_path) {
    struct reel_model_options options = { .size = sizeof options,
                                          .device = "cpu",
                                          .cpu_path = cpu_path };
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    enum reel_status status = reel_model_open(&model, s->path, &options, &err);
    if (status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT) return NULL;
    require(status, &err);
    return model;
}

static struct reel_session *open_session(const struct reel_model *model) {
    struct reel_session_options options = { .size = sizeof options, .max_context = MAX_IDS };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    require(reel_session_open(&session, model, &options, &err), &err);
    return session;
}

static int vocab_of(const struct reel_model *model) {
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    return info.vocab;
}

static void evaluate(struct reel_session *session, const int32_t *ids, int n, float *logits,
                     size_t vocab) {
    struct reel_error err = { 0 };
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = ids,
                              .output = logits ? REEL_OUTPUT_ALL_LOGITS : REEL_OUTPUT_NONE,
                              .out = logits,
                              .out_floats = logits ? (size_t)n * vocab : 0 };
    require(reel_session_eval(session, &eval, &err), &err);
}

/* The continuation of one prompt, `step` tokens a call. */
static void judge_prompt(struct verdict *v, const struct golden_prompt *p,
                         const struct reel_model *model, int step, float *logits) {
    int vocab = vocab_of(model);
    struct reel_session *session = open_session(model);
    evaluate(session, p->ids, p->n_prompt - 1, NULL, 0);
    for (int t = 0; t < p->n_tokens; t += step) {
        evaluate(session, p->ids + p->n_prompt - 1 + t, step, logits, (size_t)vocab);
        for (int i = 0; i < step; i++)
            judge(v, p, t + i, logits + (size_t)i * (size_t)vocab, vocab);
    }
    reel_session_close(session);
}

/* The first n_whole prompts in one call each, the first n_steps token by token. */
static void check_path(const struct subject *s, const char *path, int n_whole, int n_steps) {
    struct reel_model *model = open_public(s, path);
    if (!model) return;
    struct golden golden;
    struct verdict whole = { 0 }, steps = { 0 };
    char what[60];
    golden_open(&golden, s->golden);
    float *logits = calloc((size_t)s->n_tokens * (size_t)vocab_of(model), sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < n_taken(s, n_whole); i++) {
        struct golden_prompt p;
        prompt_read(&p, &golden, i);
        judge_prompt(&whole, &p, model, s->n_tokens, logits);
        if (i < n_taken(s, n_steps)) judge_prompt(&steps, &p, model, 1, logits);
        prompt_release(&p);
    }
    snprintf(what, sizeof what, "%s, %d tokens a call", path, s->n_tokens);
    conclude(what, &whole, s->bound);
    snprintf(what, sizeof what, "%s, 1 token a call", path);
    conclude(what, &steps, s->bound);
    free(logits);
    golden_close(&golden);
    reel_model_close(model);
}

static void the_fastest_path_gives_the_ids_of_transformers(void **state) {
    const struct subject s = subject_of(*state != NULL);
    check_path(&s, "auto", s.n_prompts, s.n_prompts);
}

static void every_other_path_gives_the_ids_of_transformers(void **state) {
    const struct subject s = subject_of(*state != NULL);
    check_path(&s, "portable", 1, 1);
    check_path(&s, "avx2", 2, 1);
    check_path(&s, "avx512", 2, 1);
    check_path(&s, "amx", 2, 1);
    check_path(&s, "neon", 2, 1);
}

static void the_template_gives_the_prompt_ids_of_the_golden(void **state) {
    const struct subject s = subject_of(*state != NULL);
    struct reel_model *model = open_public(&s, "auto");
    struct golden golden;
    struct reel_error err = { 0 };
    char line[200];
    golden_open(&golden, s.golden);
    FILE *f = fopen("tests/golden/smollm2/prompts.txt", "r");
    assert_non_null(f);
    for (int i = 0; i < s.n_prompts; i++) {
        struct golden_prompt p;
        prompt_read(&p, &golden, i);
        assert_non_null(fgets(line, sizeof line, f));
        line[strcspn(line, "\n")] = '\0';
        struct reel_message message = { .size = sizeof message, .role = "user", .content = line };
        int32_t *ids = NULL;
        size_t n = 0;
        require(reel_chat_ids(model, &message, 1, NULL, &ids, &n, &err), &err);
        assert_int_equal(n, p.n_prompt);
        assert_memory_equal(ids, p.ids, n * sizeof *ids);
        reel_free(ids);
        prompt_release(&p);
    }
    fclose(f);
    golden_close(&golden);
    reel_model_close(model);
}

struct listener {
    const struct golden_prompt *prompt;
    double bound;
    int t;       /* tokens heard */
    bool parted; /* after a tie the two go their own ways */
};

static bool hear(void *user, const struct reel_token *token) {
    struct listener *l = user;
    const struct golden_prompt *p = l->prompt;
    if (token->id != p->best[l->t]) {
        if (!is_tie(p, l->t, token->id))
            fail_msg("token %d is %d, expected %d", l->t, token->id, p->best[l->t]);
        l->parted = true;
        return false;
    }
    assert_true(fabs((double)(token->logprob - p->logprob[l->t])) <= l->bound);
    l->t++;
    return true;
}

/* Generates max_tokens behind the first t tokens of a continuation. */
static void generate(struct reel_session *session, struct listener *l, int max_tokens) {
    struct reel_error err = { 0 };
    struct reel_generation generation = { .size = sizeof generation,
                                          .max_tokens = max_tokens,
                                          .ignore_stop_ids = true,
                                          .logprobs = true,
                                          .on_token = hear,
                                          .user = l };
    require(reel_session_sync(session, l->prompt->ids, l->prompt->n_prompt + l->t, NULL, &err),
            &err);
    require(reel_generate(session, &generation, NULL, &err), &err);
}

static void greedy_generation_follows_the_golden(void **state) {
    const struct subject s = subject_of(*state != NULL);
    struct reel_model *model = open_public(&s, "auto");
    struct golden golden;
    golden_open(&golden, s.golden);
    for (int i = 0; i < n_taken(&s, 4) && i < 4; i++) {
        struct golden_prompt p;
        prompt_read(&p, &golden, i);
        struct listener l = { .prompt = &p, .bound = s.bound };
        struct reel_session *session = open_session(model);
        if (s.whole) generate(session, &l, s.n_tokens);
        /* What follows is the golden's, not what was generated: one token at a time. */
        for (int t = 0; !s.whole && t < s.n_tokens; t++) {
            l.t = t;
            generate(session, &l, 1);
        }
        assert_true(l.parted || l.t == s.n_tokens);
        print_message("prompt %d: %d tokens%s\n", i, l.t, l.parted ? ", a tie" : "");
        reel_session_close(session);
        prompt_release(&p);
    }
    golden_close(&golden);
    reel_model_close(model);
}

#define ON_SLICE(test)                                                                             \
    { "slice: " #test, test, NULL, NULL, NULL }
#define ON_WHOLE(test)                                                                             \
    { "whole model: " #test, test, NULL, NULL, &whole }
#define ON_BOTH(test) ON_SLICE(test), ON_WHOLE(test)

int main(void) {
    static bool whole = true;
    const struct CMUnitTest tests[] = {
        ON_BOTH(the_exact_reference_gives_the_ids_of_transformers),
        ON_BOTH(the_fast_rounding_reference_gives_the_ids_of_transformers),
        ON_BOTH(the_fastest_path_gives_the_ids_of_transformers),
        ON_BOTH(every_other_path_gives_the_ids_of_transformers),
        ON_BOTH(the_template_gives_the_prompt_ids_of_the_golden),
        ON_BOTH(greedy_generation_follows_the_golden),
    };
    return cmocka_run_group_tests(tests, unpack_slice, remove_slice);
}
