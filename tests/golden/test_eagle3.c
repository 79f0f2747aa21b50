/* An EAGLE-3 head of random weights against its definition (tools/make_eagle3_golden.py): every CPU
 * path however the session's positions were evaluated, ids with it and without, and heads that
 * cannot be read. */
#include "model/draft_head.h"
#include "reel.h"
#include "runtime/backend.h"
#include "tests/support/golden.h"
#include "tests/support/told_pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_IDS 64
#define IDS   300 /* that the head guesses among */

static const char config_text[] =
    "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\",\n"
    " \"hidden_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 2, \"head_dim\": 32, \"intermediate_size\": 160,\n"
    " \"vocab_size\": 1003, \"draft_vocab_size\": 300, \"tie_word_embeddings\": false,\n"
    " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, \"max_position_embeddings\": 4096,\n"
    " \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [0, 0, 1]}}\n";

static struct golden golden;
static struct golden_model files;
static struct draft_head head;
static char folder[64];
static int32_t *ids, *steps_at;
static int n_steps;
static float *exact, *exact_steps, *allowed; /* [N_IDS - 1, IDS], [n_steps, 2, IDS], [2] */

/* ---- files ----------------------------------------------------------------------------------- */

static void path_of(char path[100], const char *name) {
    snprintf(path, 100, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *bytes, size_t n) {
    char path[100];
    path_of(path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void make_folder(void) {
    size_t n = 0;
    strcpy(folder, "/tmp/reel-eagle3-XXXXXX");
    assert_non_null(mkdtemp(folder));
    void *bytes = golden_unpack("tests/golden/eagle3.safetensors.xz", &n);
    write_file("model.safetensors", bytes, n);
    write_file("config.json", config_text, strlen(config_text));
    free(bytes);
}

static enum reel_status open_head(struct draft_head *out, struct draft_weights *draft,
                                  struct reel_error *err) {
    struct model_source source;
    golden_require(model_source_open(&source, folder, err), err);
    return draft_head_open(out, draft, &source, &files.config, err);
}

static int open_all(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    golden_open(&golden, "eagle3");
    golden_model_open(&files, "q3-b");
    make_folder();
    golden_require(open_head(&head, &files.weights.draft, &err), &err);
    ids = golden_int(&golden, "golden.ids");
    steps_at = golden_int(&golden, "golden.at");
    n_steps = golden_count(&golden, "golden.at");
    exact = golden_f32(&golden, "golden.logits");
    exact_steps = golden_f32(&golden, "golden.steps");
    allowed = golden_f32(&golden, "golden.error");
    return 0;
}

static int close_all(void **state) {
    (void)state;
    char path[100];
    free(ids);
    free(steps_at);
    free(exact);
    free(exact_steps);
    free(allowed);
    draft_head_release(&head);
    golden_model_close(&files);
    golden_close(&golden);
    path_of(path, "model.safetensors");
    unlink(path);
    path_of(path, "config.json");
    unlink(path);
    return rmdir(folder);
}

/* ---- the fast paths -------------------------------------------------------------------------- */

struct guessing {
    struct backend *b;
    struct backend_state *s;
    float *logits;
    double squares[2];
    int n[2]; /* logits of a first step, of those behind it */
};

static void eval_some(struct guessing *g, int from, int n) {
    const struct backend_eval eval = { .position = from, .n = n, .ids = ids + from };
    assert_int_equal(cpu_backend.eval(g->s, &eval, NULL), REEL_OK);
}

static int likeliest(const float *logits) {
    int best = 0;
    for (int i = 1; i < IDS; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void judge(struct guessing *g, const float *wanted, bool further) {
    double squares = 0;
    for (int i = 0; i < IDS; i++)
        squares += pow((double)g->logits[i] - (double)wanted[i], 2);
    const double most = 3 * (double)allowed[further]; /* of one slot */
    if (!(sqrt(squares / IDS) <= most))
        fail_msg("a slot's logits are off by %.4f rms", sqrt(squares / IDS));
    g->squares[further] += squares;
    g->n[further] += IDS;
}

/* Slot t, when positions 0 .. t have been evaluated. */
static void judge_slot(struct guessing *g, int t) {
    int32_t guess[1];
    assert_int_equal(cpu_backend.guess(g->s, t + 1, ids[t + 1], guess, 1, g->logits), 1);
    judge(g, exact + (size_t)t * IDS, false);
    assert_int_equal(guess[0], files.weights.draft.ids[likeliest(g->logits)]);
}

static void forget(struct guessing *g) {
    cpu_backend.state_close(g->s);
    /* three guesses behind the last position have places, as drafts have in a pass */
    assert_int_equal(cpu_backend.state_open(&g->s, g->b, N_IDS + 3, NULL), REEL_OK);
    assert_int_equal(cpu_backend.guess_begin(g->s, NULL), REEL_OK);
}

/* In pieces of so many positions; 1 is decoding. */
static void in_pieces(struct guessing *g, int piece, int step) {
    forget(g);
    for (int at = 0, next = step - 1; at < N_IDS - 1; at += piece) {
        const int n = at + piece < N_IDS - 1 ? piece : N_IDS - 1 - at;
        eval_some(g, at, n);
        if (at + n - 1 < next) continue;
        judge_slot(g, at + n - 1);
        next = at + n - 1 + step;
    }
}

/* The ids of near ties may be others than the golden's, and what follows them then, too. */
static void judge_further_steps(struct guessing *g, int n) {
    int judged = 0;
    forget(g);
    for (int i = 0; i < n_steps; i++) {
        int32_t guess[3];
        const int t = steps_at[i], before = i ? steps_at[i - 1] + 1 : 0;
        const float *wanted = exact_steps + (size_t)(2 * i + n - 2) * IDS;
        const float *known[] = { exact + (size_t)t * IDS, exact_steps + (size_t)(2 * i) * IDS };
        bool same = true;
        eval_some(g, before, t + 1 - before);
        assert_int_equal(cpu_backend.guess(g->s, t + 1, ids[t + 1], guess, n, g->logits), n);
        for (int k = 0; k < n - 1; k++)
            same = same && guess[k] == files.weights.draft.ids[likeliest(known[k])];
        if (!same) continue;
        judge(g, wanted, true);
        judged++;
    }
    assert_true(judged > n_steps / 2);
}

/* ---- in passes with drafts ---- */

/* The golden's ids come, whatever the logits say. Every step-th pass is judged. */
static void in_passes(struct guessing *g, int step) {
    struct told_pass t = { .ids = ids, .n = N_IDS, .vocab = files.config.vocab, .position = 3 };
    forget(g);
    eval_some(g, 0, t.position);
    for (int n = 1; t.position < N_IDS - 2; n++) {
        told_pass(&t, g->b, g->s, (3 * n) % 8);
        if (n % step == 0) judge_slot(g, t.position - 1);
    }
}

/* ---- prompts of more than a chunk ---- */

enum { LONG = 525 }; /* more than a chunk behind those that wait */

/* What is told behind LONG positions, of which the first are evaluated one by one, the others in
 * pieces. */
static void tell_behind(struct guessing *g, int singles, int piece, float *out) {
    int32_t text[LONG + 1], guess[1];
    for (int i = 0; i <= LONG; i++)
        text[i] = (ids[i % N_IDS] + 7 * i) % files.config.vocab;
    cpu_backend.state_close(g->s);
    assert_int_equal(cpu_backend.state_open(&g->s, g->b, LONG + 8, NULL), REEL_OK);
    assert_int_equal(cpu_backend.guess_begin(g->s, NULL), REEL_OK);
    for (int at = 0, n; at < LONG; at += n) {
        n = at < singles ? 1 : piece < LONG - at ? piece : LONG - at;
        const struct backend_eval eval = { .position = at, .n = n, .ids = text + at };
        assert_int_equal(cpu_backend.eval(g->s, &eval, NULL), REEL_OK);
    }
    assert_int_equal(cpu_backend.guess(g->s, LONG, text[LONG], guess, 1, out), 1);
}

/* A prompt in one piece differs from single positions by rounding, and by hardly more where eight
 * positions waited to become slots when it came. */
static void judge_long_prompts(struct guessing *g) {
    float *wanted = golden_floats(IDS);
    double rms[2];
    tell_behind(g, LONG, 1, wanted);
    for (int waits = 0; waits < 2; waits++) {
        double squares = 0;
        tell_behind(g, 8 * waits, LONG, g->logits);
        for (int i = 0; i < IDS; i++)
            squares += pow((double)g->logits[i] - (double)wanted[i], 2);
        rms[waits] = sqrt(squares / IDS);
    }
    assert_true(rms[0] <= 2 * (double)allowed[0]);
    assert_true(rms[1] <= 2 * rms[0]);
    free(wanted);
}

static void a_path_guesses_as_is_defined(void **state) {
    const char *path = *state;
    static const int pieces[][2] = {
        { 1, 1 }, { 1, 5 }, { 1, 40 }, { 7, 7 }, { 33, 1 }, { 63, 63 }
    };
    struct guessing g = { .logits = golden_floats(IDS) };
    struct reel_error err = { 0 };
    struct model model = { .config = files.config, .weights = files.weights };
    const struct backend_options options = { .cpu_path = path, .n_threads = 2 };
    const enum reel_status status = cpu_backend.open(&g.b, &model, &options, &err);
    if (status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT) {
        print_message("%s\n", err.text);
        free(g.logits);
        skip();
    }
    golden_require(status, &err);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        in_pieces(&g, pieces[i][0], pieces[i][1]);
    for (int step = 1; step <= 5; step += 2)
        in_passes(&g, step);
    judge_long_prompts(&g);
    judge_further_steps(&g, 2);
    judge_further_steps(&g, 3);
    for (int further = 0; further < 2; further++) {
        const double rms = sqrt(g.squares[further] / g.n[further]);
        print_message("%s: %s steps are off by %.4f rms, %.2f of what bf16 is\n", path,
                      further ? "further" : "first", rms, rms / (double)allowed[further]);
        assert_true(rms <= GOLDEN_BOUND * (double)allowed[further]);
    }
    cpu_backend.state_close(g.s);
    cpu_backend.close(g.b);
    free(g.logits);
}

/* ---- through the public API ------------------------------------------------------------------ */

static struct reel_model *open_model(bool with_head, const char *path) {
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .cpu_path = path,
                                                .n_threads = 2,
                                                .draft_head = with_head ? folder : NULL };
    golden_require(reel_model_open(&model, files.folder, &options, &err), &err);
    return model;
}

struct tale {
    int32_t ids[200];
    int n;
};

static bool keep_id(void *user, const struct reel_token *token) {
    struct tale *t = user;
    t->ids[t->n++] = token->id;
    return true;
}

static struct reel_generation_result tell(struct reel_model *model, enum reel_speculation kind,
                                          const struct reel_sampling *sampling, struct tale *t) {
    struct reel_session *s = NULL;
    struct reel_error err = { 0 };
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = 300,
                                                  .speculation = kind };
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_eval eval = { .size = sizeof eval, .n = 40, .ids = ids };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 200,
                                       .ignore_stop_ids = true,
                                       .sampling = sampling,
                                       .speculation = kind,
                                       .on_token = keep_id,
                                       .user = t };
    t->n = 0;
    golden_require(reel_session_open(&s, model, &options, &err), &err);
    golden_require(reel_session_eval(s, &eval, &err), &err);
    golden_require(reel_generate(s, &g, &result, &err), &err);
    reel_session_close(s);
    return result;
}

static void ids_are_those_without_a_head(void **state) {
    (void)state;
    static const struct reel_sampling drawn = { .size = sizeof drawn,
                                                .temperature = 0.8F,
                                                .top_k = 50,
                                                .top_p = 0.9F,
                                                .repetition_penalty = 1,
                                                .seed = 7 };
    static const struct reel_sampling greedy = { .size = sizeof greedy,
                                                 .top_p = 1,
                                                 .repetition_penalty = 1 };
    struct reel_model *plain = open_model(false, NULL), *with = open_model(true, NULL);
    for (int i = 0; i < 2; i++) {
        const struct reel_sampling *sampling = i ? &drawn : &greedy;
        struct tale a = { .n = 0 }, b = a, c = a;
        tell(plain, REEL_SPECULATION_OFF, sampling, &a);
        const struct reel_generation_result r = tell(with, REEL_SPECULATION_EAGLE3, sampling, &b);
        tell(with, REEL_SPECULATION_AUTO, sampling, &c);
        assert_int_equal(a.n, 200);
        assert_int_equal(b.n, 200);
        assert_int_equal(c.n, 200);
        assert_memory_equal(a.ids, b.ids, sizeof a.ids);
        assert_memory_equal(a.ids, c.ids, sizeof a.ids);
        assert_true(r.n_drafted > 300); /* three before every pass */
    }
    reel_model_close(plain);
    reel_model_close(with);
}

static void refuses(struct reel_model *model, enum reel_speculation kind, const char *words) {
    struct reel_session *s = NULL;
    struct reel_error err = { 0 };
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = 300,
                                                  .speculation = kind };
    assert_int_equal(reel_session_open(&s, model, &options, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, words));
    assert_null(s);
}

static void kinds_that_are_not_there_are_refused(void **state) {
    (void)state;
    struct reel_model *plain = open_model(false, NULL), *with = open_model(true, NULL);
    struct reel_model *reference = open_model(true, "reference");
    struct reel_model_info info = { .size = sizeof info };
    refuses(plain, REEL_SPECULATION_EAGLE3, "was opened without an EAGLE-3 head");
    refuses(with, REEL_SPECULATION_MTP, "was opened with an EAGLE-3 head");
    refuses(reference, REEL_SPECULATION_EAGLE3, "does not run on this device");
    assert_int_equal(reel_model_get_info(with, &info, NULL), REEL_OK);
    assert_int_equal(info.draft_layers, 1);
    reel_model_close(plain);
    reel_model_close(with);
    reel_model_close(reference);
}

/* ---- heads that cannot be read --------------------------------------------------------------- */

/* The file with one name in its header changed for another of the same length. */
static void rename_tensor(const char *from, const char *to) {
    size_t n = 0;
    char *bytes = golden_unpack("tests/golden/eagle3.safetensors.xz", &n);
    const size_t length = strlen(from);
    char *at = bytes;
    assert_int_equal(length, strlen(to));
    while (at + length < bytes + n && memcmp(at, from, length) != 0)
        at++;
    assert_true(at + length < bytes + n);
    memcpy(at, to, length);
    write_file("model.safetensors", bytes, n);
    free(bytes);
}

static void is_refused(enum reel_status wanted, const char *words) {
    struct draft_head other;
    struct draft_weights draft = { 0 };
    struct reel_error err = { 0 };
    const enum reel_status status = open_head(&other, &draft, &err);
    if (status != wanted || !strstr(err.text, words))
        fail_msg("%s: %s, not \"%s\"", reel_status_name(status), err.text, words);
    assert_int_equal(draft.n_parameters, 0);
}

static void is_refused_with(const char *from, const char *to, const char *words) {
    char text[sizeof config_text + 100];
    const char *at = strstr(config_text, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config_text), config_text, to,
             at + strlen(from));
    write_file("config.json", text, strlen(text));
    struct draft_head other;
    struct draft_weights draft = { 0 };
    struct reel_error err = { 0 };
    assert_int_not_equal(open_head(&other, &draft, &err), REEL_OK);
    if (!strstr(err.text, words)) fail_msg("%s, not \"%s\"", err.text, words);
    write_file("config.json", config_text, strlen(config_text));
}

static void heads_that_do_not_fit_are_refused_in_words(void **state) {
    (void)state;
    is_refused_with("LlamaForCausalLMEagle3", "LlamaForCausalLM", "supported is an EAGLE-3 head");
    is_refused_with("\"model_type\"", "\"speculators_model_type\": \"eagle3\", \"model_type\"",
                    "in the form of \"speculators\"");
    is_refused_with("\"hidden_size\": 96", "\"hidden_size\": 64", "hidden size of 64");
    is_refused_with("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", "a head of 2 layers");
    is_refused_with("\"vocab_size\": 1003", "\"vocab_size\": 1004", "the model has 1003");
    is_refused_with("\"draft_vocab_size\": 300", "\"draft_vocab_size\": 2000", "draft_vocab_size");
    is_refused_with("\"draft_vocab_size\": 300", "\"draft_vocab_size\": 299", "lm_head.weight");
    is_refused_with("\"intermediate_size\": 160", "\"intermediate_size\": 161", "gate_proj.weight");
    is_refused_with("[0, 0, 1]", "[0, 1]", "a list of 3");
    is_refused_with("[0, 0, 1]", "[0, 0, 2]", "entry 2 must be a layer of 0 to 1");
    is_refused_with("\"eagle_config\"", "\"eagle\"", "needs at least 6");
    is_refused_with("}}", "}", "config.json");
    rename_tensor("\"d2t\"", "\"d2u\"");
    is_refused(REEL_E_FORMAT, "no tensor \"d2t\"");
    rename_tensor("\"fc.weight\"", "\"fd.weight\"");
    is_refused(REEL_E_FORMAT, "fc.weight");
    rename_tensor("\"norm.weight\"", "\"morn.weight\"");
    is_refused(REEL_E_FORMAT, "norm.weight");
    rename_tensor("midlayer.hidden_norm", "midlayer.hiddem_norm");
    is_refused(REEL_E_FORMAT, "hidden_norm.weight");
    rename_tensor("midlayer.mlp.down_proj", "midlayer.mlp.dowm_proj");
    is_refused(REEL_E_FORMAT, "down_proj.weight");
}

static void ids_that_the_model_does_not_have_are_refused(void **state) {
    (void)state;
    size_t n = 0;
    char *bytes = golden_unpack("tests/golden/eagle3.safetensors.xz", &n);
    const struct tensor_ignored *d2t = tensor_find_ignored(&golden.file, "d2t");
    assert_non_null(d2t);
    const size_t at = (size_t)(d2t->data - (const unsigned char *)golden.bytes);
    static const int64_t wrong[] = { -8, 1003 - 7, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(bytes + at + 7 * sizeof(int64_t), &wrong[i], sizeof wrong[i]);
        write_file("model.safetensors", bytes, n);
        is_refused(REEL_E_FORMAT, "\"d2t\": entry 7");
    }
    free(bytes);
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = "guesses_are_those_of_the_definition_on_" path,                                    \
        .test_func = a_path_guesses_as_is_defined, .initial_state = (char[]) {                     \
            path                                                                                   \
        }                                                                                          \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
        cmocka_unit_test(ids_are_those_without_a_head),
        cmocka_unit_test(kinds_that_are_not_there_are_refused),
        cmocka_unit_test(heads_that_do_not_fit_are_refused_in_words),
        cmocka_unit_test(ids_that_the_model_does_not_have_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
