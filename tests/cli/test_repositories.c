/* Repositories in the layouts of published ones (tests/fixtures/repositories), with random weights
 * made from their config.json: every command that reads a model is typed for each of them, and ends
 * with its result or with one line that says why not. What transformers makes of the same weights
 * stands beside each. */
#define _XOPEN_SOURCE 700

#include "reel_measure.h"
#include "support/sanitized.h"
#include "support/shards.h"
#include "support/shell.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char root[400]; /* of this repository */

static const struct repository {
    const char *name;
    bool reranks;   /* its tokenizer has what the reranker's prompt is made of */
    bool is_gguf;   /* made of the folder of the same name */
    int max_tokens; /* that a session may have */
    bool sharded;   /* published as several files of weights */
} repositories[] = {
    { .name = "qwen3", .max_tokens = 40960, .reranks = true },
    { .name = "qwen2.5", .max_tokens = 32768, .reranks = true },
    { .name = "llama-3.2-1b", .max_tokens = 131072 },
    { .name = "llama-3.2-3b", .max_tokens = 131072, .sharded = true },
    { .name = "tinyllama", .max_tokens = 2048 },
    /* its window, not its 32768 positions */
    { .name = "mistral", .max_tokens = 4096, .sharded = true },
    { .name = "smollm2", .max_tokens = 8192, .reranks = true },
    { .name = "qwen3-embedding", .max_tokens = 40960, .reranks = true },
    { .name = "qwen3-reranker", .max_tokens = 40960, .reranks = true },
    { .name = "qwen3.5", .max_tokens = 262144, .reranks = true },
    { .name = "qwen2.5", .max_tokens = 32768, .reranks = true, .is_gguf = true },
    { .name = "llama-3.2-1b", .max_tokens = 131072, .is_gguf = true },
    /* llama.cpp's converter does not write the window */
    { .name = "mistral", .max_tokens = 32768, .is_gguf = true },
    { .name = "qwen3-embedding", .max_tokens = 40960, .reranks = true, .is_gguf = true },
};
enum { N_REPOSITORIES = sizeof repositories / sizeof repositories[0] };

/* ---- a line at a shell ----------------------------------------------------------------------- */

/* A line that ends well. The model is $M. */
static struct result typed(const char *line) {
    struct result r = shell(line);
    if (r.status != 0)
        fail_msg("%s\nM=%s\nstatus %d\n%s%s", line, getenv("M"), r.status, r.out, r.err);
    return r;
}

static json_t *object(const char *line) {
    struct result r = typed(line);
    json_error_t error;
    json_t *root_value = json_loads(r.out, 0, &error);
    if (!root_value) fail_msg("%s\nM=%s\n%s\n%s", line, getenv("M"), error.text, r.out);
    done(r);
    return root_value;
}

/* This status and one line on stderr that holds the text, nothing on stdout. */
static void says_why_not(const char *line, int status, const char *text) {
    struct result r = shell(line);
    size_t lines = 0;
    for (const char *c = r.err; *c; c++)
        lines += *c == '\n';
    if (r.status != status || lines != 1 || r.out[0] || !strstr(r.err, text))
        fail_msg("%s\nM=%s\nstatus %d (expected %d), %zu lines (expected \"%s\")\n%s%s", line,
                 getenv("M"), r.status, status, lines, text, r.out, r.err);
    done(r);
}

static double number(const json_t *from, const char *key) {
    const json_t *value = json_object_get(from, key);
    if (!json_is_number(value)) fail_msg("%s: \"%s\" is no number", getenv("M"), key);
    return json_number_value(value);
}

static json_t *expected_of(const char *name) {
    char path[600];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/fixtures/repositories/expected.json", root);
    json_t *all = json_load_file(path, 0, &error);
    if (!all) fail_msg("%s: %s", path, error.text);
    json_t *one = json_incref(json_object_get(all, name));
    if (!one) fail_msg("%s: nothing about %s", path, name);
    json_decref(all);
    return one;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void command(const char *line) {
    if (system(line) != 0) fail_msg("%s", line);
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t n) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void shard(const char *folder) {
    char path[800];
    struct shards shards;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    shards_deal(&shards, path);
    for (int i = 0; i < 2; i++)
        write_file(folder, shard_names[i], shards.files[i].data, shards.files[i].n);
    write_file(folder, "model.safetensors.index.json", shards.index, strlen(shards.index));
    shards_release(&shards);
    assert_int_equal(unlink(path), 0);
}

/* Puts the repository's files into the group's folder, and names them $M. */
static void make(const struct repository *r) {
    struct result where = shell("pwd");
    char line[3000], folder[600], config[700], made[700];
    struct reel_error err = { 0 };
    snprintf(folder, sizeof folder, "%.*s/%s%s", (int)strcspn(where.out, "\n"), where.out, r->name,
             r->is_gguf ? ".gguf" : "");
    done(where);
    setenv("M", folder, 1);
    if (access(folder, F_OK) == 0) return;
    if (r->is_gguf) {
        snprintf(line, sizeof line, "xz -dc '%s/tests/fixtures/repositories/gguf/%s.gguf.xz' >'%s'",
                 root, r->name, folder);
        command(line);
        return;
    }
    snprintf(line, sizeof line,
             "cp -r '%s/tests/fixtures/repositories/%s' '%s' && "
             "find '%s' -name '*.xz' -exec xz -d {} +",
             root, r->name, folder, folder);
    command(line);
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(made, sizeof made, "%s.made", folder);
    if (reel_synthesize(made, config, 1, NULL, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    snprintf(line, sizeof line, "mv '%s/model.safetensors' '%s' && rm -r '%s'", made, folder, made);
    command(line);
    if (r->sharded) shard(folder);
}

/* ---- what each command does ------------------------------------------------------------------ */

#define TEXT "'The cat sat on 12 mats, and then it went.'"

/* Ids of an answer, as text; the caller frees. */
static char *answer(const char *line) {
    json_t *o = object(line);
    const json_t *ids = json_object_get(o, "ids");
    if (json_array_size(ids) == 0) fail_msg("%s\nM=%s: no ids", line, getenv("M"));
    char *text = json_dumps(ids, JSON_COMPACT);
    json_decref(o);
    return text;
}

static void inspected(const struct repository *r) {
    json_t *o = object("reel inspect \"$M\" --json");
    if (!json_is_true(json_object_get(o, "runs"))) fail_msg("%s: does not run", getenv("M"));
    if (json_object_get(o, "unknown_keys")) fail_msg("%s: unknown keys", getenv("M"));
    assert_int_equal((int)number(json_object_get(o, "config"), "max_context"), r->max_tokens);
    json_decref(o);
    struct result words = typed("reel inspect \"$M\"");
    if (!strstr(words.out, "chat template   evaluated") || words.err[0])
        fail_msg("%s\n%s%s", getenv("M"), words.out, words.err);
    done(words);
}

/* A text's ids and its score are transformers'. */
static void scored(const json_t *expected) {
    json_t *o =
        object("printf %s " TEXT " >text; reel score \"$M\" text --rounding exact --json -c 512");
    const double nats = number(o, "nats_per_token"), wanted = number(expected, "nats");
    assert_int_equal((int)number(o, "tokens"),
                     (int)json_array_size(json_object_get(expected, "ids")));
    if (fabs(nats - wanted) > 1e-4 * wanted)
        fail_msg("%s: %.6f nats a token, transformers %.6f", getenv("M"), nats, wanted);
    json_decref(o);
}

/* The template's text, as ids, and greedy ids behind it. Llama 3.2's template says today's date. */
static void answered(const json_t *expected) {
    json_t *o = object("reel run \"$M\" -p Hello -n 4 --temp 0 -c 512 --rounding exact "
                       "--ignore-eos --json -q");
    static const char *const keys[][2] = { { "prompt_ids", "prompt_ids" }, { "ids", "answer" } };
    for (int i = 0; i < 2; i++) {
        const json_t *made = json_object_get(o, keys[i][0]);
        const json_t *wanted = json_object_get(expected, keys[i][1]);
        if (json_array_size(made) == 0 || (wanted && !json_equal(made, wanted)))
            fail_msg("%s: \"%s\" is %s, transformers' is %s", getenv("M"), keys[i][0],
                     json_dumps(made, JSON_COMPACT), json_dumps(wanted, JSON_COMPACT));
    }
    json_decref(o);
}

static void embedded(const json_t *expected) {
    json_t *o = object("reel embed \"$M\" --rounding exact -c 512 " TEXT " 2>/dev/null");
    const json_t *row = json_array_get(json_object_get(o, "embeddings"), 0);
    const json_t *made = json_object_get(row, "embedding");
    const json_t *wanted = json_object_get(expected, "embedding");
    double both = 0;
    assert_int_equal(json_array_size(made), json_array_size(wanted));
    for (size_t i = 0; i < json_array_size(made); i++)
        both += json_number_value(json_array_get(made, i)) *
                json_number_value(json_array_get(wanted, i));
    if (!(both > 0.9999)) fail_msg("%s: cosine %.6f", getenv("M"), both);
    json_decref(o);
}

static void reranked(const struct repository *r) {
    static const char line[] =
        "printf 'a cat\\na dog\\n' | reel rerank \"$M\" -q 'who barks' -c 512";
    if (!r->reranks) {
        says_why_not(line, 6, "this is not a Qwen3-Reranker");
        return;
    }
    struct result result = typed(line);
    if (!strstr(result.out, "line 1: a cat\n") || !strstr(result.out, "line 2: a dog\n") ||
        result.err[0])
        fail_msg("%s\n%s%s", getenv("M"), result.out, result.err);
    done(result);
}

static void chatted(void) {
    struct result r = typed("printf 'Hello\\nAnd then?\\n' | "
                            "reel chat \"$M\" -n 3 --temp 0 -c 512");
    if (!strstr(r.err, "[token limit]")) fail_msg("%s\n%s", getenv("M"), r.err);
    done(r);
}

/* A GGUF file gives what the folder gives that it was made of. */
static void same_as_the_folder(const struct repository *r) {
    static const char line[] =
        "reel run \"$M\" --raw -p " TEXT " -n 8 --temp 0 --ignore-eos -c 512 --json -q";
    const struct repository folder = { .name = r->name };
    char *made = answer(line);
    make(&folder);
    char *wanted = answer(line);
    if (strcmp(made, wanted) != 0) fail_msg("%s: GGUF %s, folder %s", r->name, made, wanted);
    free(made), free(wanted);
}

/* A sanitizer makes each start of the program slow: of the folders those whose files differ most.
 */
static bool left_out(const struct repository *r) {
    return sanitized_briefly() && !r->is_gguf && strcmp(r->name, "mistral") != 0 &&
           strcmp(r->name, "qwen2.5") != 0 && strcmp(r->name, "qwen3.5") != 0;
}

/* On a GPU, here the simulated one, logits are the reference's within the bound of rounding. It
 * takes seconds for each, so that only a soak does it for all. */
static void verified_on_a_gpu(void) {
    struct result r = typed("LD_LIBRARY_PATH=\"$FAKE${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" "
                            "reel verify \"$M\" -n 2 --device gpu");
    if (!strstr(r.out, "on cuda Fake GPU") || !strstr(r.out, "reference  ok: 2 positions"))
        fail_msg("%s\n%s%s", getenv("M"), r.out, r.err);
    done(r);
}

static void every_command(void **state) {
    const struct repository *r = *state;
    if (left_out(r)) skip();
    json_t *expected = expected_of(r->name);
    make(r);
    inspected(r);
    scored(expected);
    answered(expected);
    embedded(expected);
    reranked(r);
    chatted();
    if (!SANITIZED && (getenv("REEL_SOAK") || (strcmp(r->name, "qwen2.5") == 0 && !r->is_gguf)))
        verified_on_a_gpu();
    if (r->is_gguf) same_as_the_folder(r);
    json_decref(expected);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* What a repository's config.json says becomes something else, and its weights are not there: who
 * reads weights before the config is whole says another thing. */
static const struct refusal {
    const char *name, *from, *to;
    const char *says[3];
} refusals[] = {
    { "llama-3.2-1b", "\"silu\"", "\"gelu\"", { "\"hidden_act\" is \"gelu\"", "\"silu\"" } },
    { "qwen3.5", "\"silu\"", "\"relu\"", { "\"hidden_act\" is \"relu\"", "\"silu\"" } },
    { "qwen2.5",
      "\"use_sliding_window\": false",
      "\"use_sliding_window\": false, \"num_experts\": 8",
      { "\"num_experts\" is 8", "null" } },
    { "qwen3.5",
      "\"qwen3_5_text\"",
      "\"qwen3_5_moe_text\"",
      { "\"model_type\" of \"text_config\" is \"qwen3_5_moe_text\"", "\"qwen3_5_text\"" } },
    { "qwen3.5", "\"default\"", "\"yarn\"", { "\"rope_type\" is \"yarn\"", "\"llama3\"" } },
    { "llama-3.2-3b", "\"llama3\"", "\"linear\"", { "is \"linear\"", "\"llama3\"" } },
    { "llama-3.2-3b",
      "\"factor\": 32.0,",
      "\"factor\": 32.0, \"beta_fast\": 32,",
      { "\"rope_scaling\" has \"beta_fast\", which is 32" } },
    { "tinyllama",
      "\"rope_scaling\": null",
      "\"rope_scaling\": {\"factor\": 2.0}",
      { "a \"factor\" of 2 and no \"rope_type\", allowed is 1" } },
    { "mistral", "\"mistral\"", "\"mixtral\"", { "\"model_type\" is \"mixtral\"", "\"mistral\"" } },
};

static void refused_before_weights_are_read(void **state) {
    (void)state;
    static const char *const lines[] = {
        "reel run bad -p Hello -n 4 -q",
        "printf 'Hello\\n' | reel chat bad -n 4",
        "reel score bad text",
        "reel embed bad hello",
        "printf 'a\\n' | reel rerank bad -q b",
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *f = &refusals[i];
        const struct repository folder = { .name = f->name };
        char line[1000];
        make(&folder);
        snprintf(line, sizeof line,
                 "rm -rf bad && cp -r \"$M\" bad && rm bad/model*.safetensors && printf x >text && "
                 "sed -i 's/%s/%s/' bad/config.json && ! cmp -s bad/config.json \"$M\"/config.json",
                 f->from, f->to);
        done(typed(line));
        for (size_t l = 0; l < (sanitized_briefly() ? 1 : sizeof lines / sizeof *lines); l++)
            for (int s = 0; s < 3 && f->says[s]; s++)
                says_why_not(lines[l], 6, f->says[s]);
        struct result r = shell("cp \"$M\"/model*.safetensors bad && reel inspect bad");
        if (r.status != 6 || !strstr(r.err, f->says[0]) || strstr(r.out, "fits"))
            fail_msg("inspect %s\nstatus %d\n%s%s", f->name, r.status, r.out, r.err);
        done(r);
    }
}

/* At the top, and in the language model's part of a larger one. */
static void keys_that_no_one_knows_are_listed(void **state) {
    (void)state;
    static const char *const names[][2] = {
        { "llama-3.2-1b", "\"mlp_bias\": false" },
        { "qwen3.5", "\"attention_dropout\": 0.0" },
    };
    for (int i = 0; i < 2; i++) {
        const struct repository folder = { .name = names[i][0] };
        char line[600];
        make(&folder);
        snprintf(line, sizeof line,
                 "rm -rf odd && cp -r \"$M\" odd && "
                 "sed -i 's/%s/\"wavelet_depth\": 3, \"unused_depth\": 0/' odd/config.json",
                 names[i][1]);
        done(typed(line));
        json_t *o = object("reel inspect odd --json");
        const char *keys = json_string_value(json_object_get(o, "unknown_keys"));
        if (!keys || strcmp(keys, "wavelet_depth") != 0)
            fail_msg("%s: unknown are \"%s\"", names[i][0], keys ? keys : "none");
        json_decref(o);
        struct result r = typed("reel inspect odd");
        if (!strstr(r.out, "unknown keys    wavelet_depth")) fail_msg("%s", r.out);
        done(r);
    }
}

static int enter(void **state) {
    const char *build = getenv("REEL_BUILD");
    char fake[600];
    if (!getcwd(root, sizeof root)) return -1;
    build = build ? build : "build/release";
    snprintf(fake, sizeof fake, "%s%s%s/fake", build[0] == '/' ? "" : root,
             build[0] == '/' ? "" : "/", build);
    setenv("FAKE", fake, 1); /* the fake driver's folder */
    return shell_enter(state);
}

int main(void) {
    struct CMUnitTest tests[N_REPOSITORIES + 2];
    static char names[N_REPOSITORIES][60];
    for (int i = 0; i < N_REPOSITORIES; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", repositories[i].name,
                 repositories[i].is_gguf ? ".gguf" : "");
        tests[i] = (struct CMUnitTest){ .name = names[i],
                                        .test_func = every_command,
                                        .initial_state = (void *)(uintptr_t)&repositories[i] };
    }
    tests[N_REPOSITORIES] = (struct CMUnitTest)cmocka_unit_test(refused_before_weights_are_read);
    tests[N_REPOSITORIES + 1] =
        (struct CMUnitTest)cmocka_unit_test(keys_that_no_one_knows_are_listed);
    return cmocka_run_group_tests(tests, enter, shell_leave);
}
