/* reel embed and reel rerank as they are typed: where texts come from, what comes out, what is
 * refused. */
#include "support/fake_hub.h"
#include "support/fixtures.h"
#include "support/shell.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HIDDEN = 48 };

static int enter(void **state) {
    static const char *const files[][2] = {
        { "E", "qwen3-embedding/config.json" },
        { NULL, "qwen3-embedding/model.safetensors" },
        { NULL, "qwen3-embedding/tokenizer.json" },
        { NULL, "qwen3-embedding/tokenizer_config.json" },
        { NULL, "qwen3-embedding/modules.json" },
        { NULL, "qwen3-embedding/1_Pooling/config.json" },
        { NULL, "qwen3-embedding/config_sentence_transformers.json" },
        { "R", "qwen3-reranker/config.json" },
        { NULL, "qwen3-reranker/model.safetensors" },
        { NULL, "qwen3-reranker/tokenizer.json" },
        { NULL, "qwen3-reranker/tokenizer_config.json" },
    };
    char name[200], folder[1024], here[512];
    if (!getcwd(here, sizeof here)) return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "embed/%s", files[i][1]);
        const char *path = fixture_path(name);
        if (!path) return -1;
        snprintf(folder, sizeof folder, "%s%s%.*s", path[0] == '/' ? "" : here,
                 path[0] == '/' ? "" : "/", (int)(strrchr(path, '/') - path), path);
        if (files[i][0]) setenv(files[i][0], folder, 1); /* $E and $R in the lines below */
    }
    return shell_enter(state);
}

/* What a line that succeeds prints; the caller frees. */
static char *printed(const char *line) {
    struct result r = shell(line);
    if (r.status != 0) fail_msg("%s\nstatus %d\n%s", line, r.status, r.err);
    char *out = strdup(r.out);
    done(r);
    return out;
}

static json_t *object(const char *line) {
    char *out = printed(line);
    json_error_t error;
    json_t *root = json_loads(out, 0, &error);
    if (!root) fail_msg("%s\n%s\n%s", line, error.text, out);
    free(out);
    return root;
}

static void expect_same(const char *line, const char *other) {
    char *a = printed(line), *b = printed(other);
    if (strcmp(a, b) != 0) fail_msg("%s\n%s\n%s\n%s", line, a, other, b);
    free(a), free(b);
}

static void expect_different(const char *line, const char *other) {
    char *a = printed(line), *b = printed(other);
    if (strcmp(a, b) == 0) fail_msg("%s\n%s\n%s", line, other, a);
    free(a), free(b);
}

static void texts_come_from_arguments_files_and_lines(void **state) {
    (void)state;
    shell_file("two", "a text\nanother\r\n", 16);
    shell_file("one", "a text", 6);
    expect_same("reel embed $E 'a text' another", "reel embed $E --lines two");
    expect_same("reel embed $E 'a text' another", "reel embed $E - <two");
    expect_same("reel embed $E 'a text' another", "reel embed $E <two");
    expect_same("reel embed $E 'a text' 'a text'", "reel embed $E --file one -f one");
    expect_same("reel embed $E 'a text\nanother\r\n'", "reel embed $E -f two");
    expect_same("reel embed $E x 'a text'", "reel embed $E x -f one");
}

static void every_form_holds_the_same_values(void **state) {
    (void)state;
    json_t *root = object("reel embed $E one 'two words' -d 7");
    json_t *list = json_object_get(root, "embeddings");
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(json_object_get(root, "dimensions")), 7);
    assert_true(json_is_true(json_object_get(root, "normalised")));
    char *lines = printed("reel embed $E one 'two words' -d 7 --format text"), *at = lines;
    free(printed("reel embed $E one 'two words' -d 7 -o v.npy && test -s v.npy"));
    free(printed("reel embed $E one 'two words' -d 7 --format npy | cmp - v.npy"));
    char *bytes = printed("od -An -v -tx1 v.npy | tr -d ' \\n'");
    assert_int_equal(strlen(bytes), 2 * (128 + 2 * 7 * 4));
    for (size_t i = 0; i < 2; i++) {
        const json_t *values = json_object_get(json_array_get(list, i), "embedding");
        double squares = 0;
        assert_int_equal(json_array_size(values), 7);
        for (size_t j = 0; j < 7; j++) {
            const float want = (float)json_number_value(json_array_get(values, j));
            unsigned int b[4];
            float npy;
            squares += (double)want * want;
            assert_true(strtof(at, &at) == want);
            assert_int_equal(
                sscanf(bytes + 2 * (128 + (i * 7 + j) * 4), "%2x%2x%2x%2x", b, b + 1, b + 2, b + 3),
                4);
            const unsigned int word = b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24;
            memcpy(&npy, &word, sizeof npy);
            assert_true(npy == want);
        }
        assert_true(fabs(squares - 1) < 1e-5);
    }
    json_decref(root);
    root = object("reel embed $E one 'two words' -d 7 --format jsonl | tail -n 1");
    assert_int_equal(json_integer_value(json_object_get(root, "index")), 1);
    json_decref(root);
    free(bytes), free(lines);
}

static void queries_have_their_prompt(void **state) {
    (void)state;
    static const char query[] = "reel embed $E --query 'what is it'";
    expect_different(query, "reel embed $E 'what is it'");
    expect_same(query, "reel embed $E --prompt-name query 'what is it'");
    expect_same(query, "reel embed $E 'Instruct: Given a web search query, retrieve relevant "
                       "passages that answer the query\nQuery:what is it'");
    expect_same("reel embed $E --instruct 'Find it' 'what is it'",
                "reel embed $E 'Instruct: Find it\nQuery:what is it'");
    expect_same("reel embed $E --prompt-name document x", "reel embed $E x");
    expect("reel embed $E --prompt-name quary x", 2, "has query, document");
    expect("reel embed $R --prompt-name query x", 2, "has no named prompts");
    expect("reel embed $E --prompt-name query --query x", 2, "exclude each other");
}

static void long_texts_are_cut_only_when_asked_to(void **state) {
    (void)state;
    shell_file("long", "short\nmuch longer than eight tokens are\n", 40);
    expect("reel embed $E -c 8 -l long", 9, "long, line 2: ");
    expect("reel embed $E -c 8 'much longer than eight tokens are'", 9, "text 1 after the model: ");
    expect("reel embed $E -c 8 -l long --truncate", 0, "note: 1 of 2 texts were cut to 8 tokens");
    json_t *root = object("reel embed $E -c 8 -l long --truncate");
    const json_t *cut = json_array_get(json_object_get(root, "embeddings"), 1);
    assert_int_equal(json_integer_value(json_object_get(cut, "tokens")), 8);
    assert_true(json_is_true(json_object_get(cut, "truncated")));
    json_decref(root);
    /* what ends a text is kept: the vector is that of the first 7 ids and the end */
    expect_same("reel embed $E -c 8 'aaaa bbbb cccc dddd' --truncate --format text 2>/dev/null",
                "reel embed $E -c 8 'aaaa bbbb cccc dddd eeee' --truncate --format text 2>&1 | "
                "grep -v note");
}

static void what_cannot_be_embedded_says_why(void **state) {
    (void)state;
    expect("reel embed $E </dev/null", 2, "no text at all");
    expect("printf 'good\\n\\377\\n' | reel embed $E", 2, "standard input, line 2: not UTF-8");
    expect("reel embed $E -f nowhere", 3, "nowhere: ");
    expect("reel embed $E x -d 49", 2, "--dimensions: 49 is above the 48 that qwen3-embedding has");
    expect("reel embed demo ''", 2, "text 1 after the model: an empty text has no tokens");
    expect("reel embed demo it", 0, "note: demo does not say that it was made for embedding");
    expect("reel embed no-model x -o nowhere/v.npy", 4, "nowhere/: there is no such folder");
    expect("reel embed no-model x -o .", 2, ". is a folder");
    expect("reel embed $E - -f - <two", 2, "standard input (-) is named 2 times");
    expect("reel embed $E - \"$(printf '\\377')\" <two", 2, "text 2 after the model: not UTF-8");
    expect("reel embed no-model x --instruct \"$(printf '\\377')\"", 2, "--instruct: not UTF-8");
    expect_same("reel embed $E x", "reel embed $E x -o /dev/stdout");
    free(printed("mkdir mean mean/1_Pooling && cp $E/*.json $E/model.safetensors mean && "
                 "sed 's/lasttoken/lost/;s/mean_tokens\": false/mean_tokens\": true/' "
                 "$E/1_Pooling/config.json >mean/1_Pooling/config.json"));
    expect("reel embed mean x", 6, "pooling_mode_mean_tokens is true");
    expect("reel run mean x -n 1", 0, "");
}

static void a_pulled_model_brings_its_pooling_and_prompts(void **state) {
    (void)state;
    static const char *const names[] = { "config.json",
                                         "model.safetensors",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "modules.json",
                                         "1_Pooling/config.json",
                                         "config_sentence_transformers.json",
                                         NULL };
    struct fake_hub *hub = fake_hub_open();
    fake_hub_add_folder(hub, "some/embedder", getenv("E"), names);
    setenv("HF_ENDPOINT", fake_hub_url(hub), 1);
    expect_same("reel embed some/embedder --pull --prompt-name query x --format text",
                "reel embed $E --prompt-name query x --format text");
    expect("reel embed some/embedder x", 0, "");
    struct result r = shell("reel embed some/embedder x");
    assert_null(strstr(r.err, "note:"));
    done(r);
    unsetenv("HF_ENDPOINT");
    fake_hub_close(hub);
}

/* ---- rerank ---- */

static void documents_are_ranked(void **state) {
    (void)state;
    shell_file("a", "The capital of China is Beijing.", 32);
    shell_file("b", "Gravity is a force", 18);
    json_t *root = object("reel rerank $R -q 'What is the capital of China?' a b --json");
    json_t *list = json_object_get(root, "results");
    assert_int_equal(json_array_size(list), 2);
    double before = 1;
    for (size_t i = 0; i < 2; i++) {
        const double score = json_number_value(json_object_get(json_array_get(list, i), "score"));
        assert_true(score > 0 && score <= before);
        before = score;
    }
    json_decref(root);
    shell_file("docs", "The capital of China is Beijing.\nGravity is a force\n", 52);
    root = object("reel rerank $R -q 'What is the capital of China?' --top 1 --json <docs");
    list = json_object_get(root, "results");
    assert_int_equal(json_array_size(list), 1);
    const json_t *best = json_array_get(list, 0);
    assert_true(json_number_value(json_object_get(best, "score")) > before);
    assert_string_equal(json_string_value(json_object_get(best, "source")), "standard input");
    json_decref(root);
    struct result r = shell("reel rerank $R -q 'What is the capital of China?' -l docs");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, "   1  0.", 8);
    assert_non_null(strstr(r.out, "docs, line 2: Gravity is a force\n"));
    done(r);
    r = shell("reel rerank $R -q gravity -l docs --max-tokens 130");
    assert_non_null(strstr(r.out, "(its end was cut off)"));
    done(r);
    expect_different("reel rerank $R -q gravity -l docs",
                     "reel rerank $R -q gravity -l docs --instruct 'Find what is heavy'");
}

static void what_cannot_be_ranked_says_why(void **state) {
    (void)state;
    expect("reel rerank $R a", 2, "no query: --query TEXT");
    expect("reel rerank $R -q x </dev/null", 2, "no documents at all");
    expect("reel rerank demo -q x README", 3, "README: ");
    expect("reel rerank no-model a -q \"$(printf '\\377')\"", 2, "--query: not UTF-8");
    expect_same("reel rerank $R a -q x --json | sed 's/: .a.$/: null/'",
                "cp a \"$(printf 'a\\351')\"; reel rerank $R a?* -q x --json");
    expect("reel rerank $R -q x a --max-tokens 100000", 2, "the session allows 1 to ");
    expect("reel rerank $R -q x a --max-tokens 20", 7, "nothing is left for a document");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_from_arguments_files_and_lines),
        cmocka_unit_test(every_form_holds_the_same_values),
        cmocka_unit_test(queries_have_their_prompt),
        cmocka_unit_test(long_texts_are_cut_only_when_asked_to),
        cmocka_unit_test(what_cannot_be_embedded_says_why),
        cmocka_unit_test(a_pulled_model_brings_its_pooling_and_prompts),
        cmocka_unit_test(documents_are_ranked),
        cmocka_unit_test(what_cannot_be_ranked_says_why),
    };
    return cmocka_run_group_tests(tests, enter, shell_leave);
}
