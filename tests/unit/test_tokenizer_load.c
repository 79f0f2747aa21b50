/* Loading: the three forms of files, and what each of them may not hold. */
#include "model/tokenizer.h"
#include "model/tokenizer_tables.h"
#include "support/small_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum reel_status load(struct reel_tokenizer **tok, const struct reel_memory_file *files,
                             int n_files, struct reel_error *err) {
    struct model_source source = { 0 };
    *tok = NULL;
    enum reel_status status = model_source_open_memory(&source, "memory", files, n_files, err);
    if (status == REEL_OK) status = tokenizer_load(tok, &source, NULL, NULL, err);
    model_source_release(&source);
    return status;
}

static enum reel_status load_json(struct reel_tokenizer **tok, const char *text, size_t n,
                                  struct reel_error *err) {
    const struct reel_memory_file file = { "tokenizer.json", text, n };
    return load(tok, &file, 1, err);
}

static void expect_ids(const struct reel_tokenizer *tok, const char *text, const int32_t *wanted,
                       size_t n_wanted) {
    const struct text_piece piece = { text, strlen(text), true };
    int32_t *ids;
    size_t n;
    struct reel_error err;
    if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(n, n_wanted);
    if (n) assert_memory_equal(ids, wanted, n * sizeof *ids);
    free(ids);
}

static void the_small_tokenizer_loads_and_encodes(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    small_tokenizer_json(&json);
    if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(tokenizer_size(tok), 263);
    expect_ids(tok, "hello hello<|end|>he<think>", (int32_t[]){ 259, 260, 261, 256, 262 }, 5);
    expect_ids(tok, "hellhe", (int32_t[]){ 258, 256 }, 2);
    tokenizer_close(tok);
    buffer_release(&json);
}

/* One change to the small file, and what must be said about it. */
struct change {
    const char *from, *to;
    enum reel_status status;
    const char *said;
};

static void check_change(const struct change *change) {
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err = { 0 };
    small_tokenizer_json(&json);
    replace_once(&json, change->from, change->to);
    enum reel_status status = load_json(&tok, json.bytes, json.size, &err);
    if (status != change->status)
        fail_msg("\"%s\" -> \"%s\": %s, \"%s\"", change->from, change->to, reel_status_name(status),
                 err.text);
    if (status == REEL_OK)
        tokenizer_close(tok);
    else if (!strstr(err.text, change->said) || !strstr(err.text, "tokenizer.json"))
        fail_msg("\"%s\" -> \"%s\": the message is \"%s\"", change->from, change->to, err.text);
    buffer_release(&json);
}

static void check_changes(const struct change *changes, size_t n) {
    for (size_t i = 0; i < n; i++)
        check_change(&changes[i]);
}

static void settings_that_reel_lacks_are_refused_by_name(void **state) {
    (void)state;
    static const struct change changes[] = {
        { "\"NFC\"", "\"NFKC\"", REEL_E_UNSUPPORTED, "NFKC" },
        { "{\"type\": \"NFC\"}", "{\"type\": \"Sequence\", \"normalizers\": []}", REEL_OK, "" },
        { "{\"type\": \"NFC\"}", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}",
          REEL_OK, "" },
        { "{\"type\": \"NFC\"}",
          "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
          "\"Lowercase\"}]}",
          REEL_E_UNSUPPORTED, "Lowercase" },
        { "\"type\": \"Split\"", "\"type\": \"Whitespace\"", REEL_E_UNSUPPORTED, "Whitespace" },
        { "(?i:'s", "(?<=z)(?i:'s", REEL_E_UNSUPPORTED, "(?<=z)" },
        { "Isolated", "Joined", REEL_E_UNSUPPORTED, "Joined" },
        { "\"Regex\"", "\"regex\"", REEL_E_FORMAT, "Regex" },
        { "\"type\": \"ByteLevel\", \"add", "\"type\": \"Digits\", \"add", REEL_E_UNSUPPORTED,
          "no ByteLevel" },
        { "{\"type\": \"ByteLevel\", \"add",
          "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}, {\"type\": \"ByteLevel\", \"add",
          REEL_E_UNSUPPORTED, "second ByteLevel" },
        { "\"add_prefix_space\": false", "\"add_prefix_space\": true", REEL_E_UNSUPPORTED,
          "add_prefix_space" },
        { "\"use_regex\": false", "\"use_regex\": true", REEL_OK, "" },
        { "\"post_processor\": {\"type\": \"ByteLevel\"}",
          "\"post_processor\": {\"type\": \"BertProcessing\"}", REEL_E_UNSUPPORTED,
          "BertProcessing" },
        { "\"post_processor\": {\"type\": \"ByteLevel\"}", "\"post_processor\": null", REEL_OK,
          "" },
        { "\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": {\"type\": \"Metaspace\"}",
          REEL_E_UNSUPPORTED, "Metaspace" },
        { "\"normalized\": false", "\"normalized\": true", REEL_OK, "" },
        { "<|end|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
          "\"normalized\": false",
          "\xe2\x84\xab\", \"normalized\": true", REEL_E_UNSUPPORTED, "not in NFC" },
        { "\"type\": \"BPE\"", "\"type\": \"Unigram\"", REEL_E_UNSUPPORTED, "Unigram" },
        { "\"dropout\": null", "\"dropout\": 0.1", REEL_E_LIMIT, "dropout" },
        { "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"", REEL_E_UNSUPPORTED,
          "</w>" },
        { "\"byte_fallback\": false", "\"byte_fallback\": true", REEL_E_UNSUPPORTED,
          "byte_fallback" },
    };
    check_changes(changes, sizeof changes / sizeof changes[0]);
}

/* The small tokenizer with one change, and the ids of one text. */
static void check_ids(const char *from, const char *to, const char *text, const int32_t *wanted,
                      size_t n) {
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    small_tokenizer_json(&json);
    replace_once(&json, from, to);
    if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
    expect_ids(tok, text, wanted, n);
    tokenizer_close(tok);
    buffer_release(&json);
}

static void a_word_that_is_a_token_needs_no_merges_where_the_file_says_so(void **state) {
    (void)state;
    /* no merge gives "hello" any more: h and o are bytes 71 and 78 in the order of the alphabet */
    check_ids("\"h e\", ", "", "hello", (int32_t[]){ 71, 68, 257, 78 }, 4);
    check_ids("\"ignore_merges\": false", "\"ignore_merges\": true", "hellohe",
              (int32_t[]){ 259, 256 }, 2); /* no whole word: merged as always */
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    small_tokenizer_json(&json);
    replace_once(&json, "\"h e\", ", "");
    replace_once(&json, "\"ignore_merges\": false", "\"ignore_merges\": true");
    assert_int_equal(load_json(&tok, json.bytes, json.size, NULL), REEL_OK);
    expect_ids(tok, "hello hello he", (int32_t[]){ 259, 260, 220, 71, 68 }, 5);
    expect_ids(tok, "hellohe", (int32_t[]){ 71, 68, 257, 78, 71, 68 }, 6);
    tokenizer_close(tok);
    buffer_release(&json);
}

static void byte_level_alone_may_put_a_space_in_front(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    small_tokenizer_json(&json);
    replace_once(&json, "{\"type\": \"Split\"",
                 "{\"type\": \"ByteLevel\"}], \"was\": [{\"type\": \"Split\"");
    if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
    expect_ids(tok, "hello", (int32_t[]){ 260 }, 1);
    expect_ids(tok, " hello", (int32_t[]){ 260 }, 1);
    expect_ids(tok, "hello<|end|>hello", (int32_t[]){ 260, 261, 260 }, 3);
    expect_ids(tok, "<|end|>", (int32_t[]){ 261 }, 1);
    tokenizer_close(tok);
    buffer_release(&json);
}

/* The ids are those of tokenizers 0.23.3. */
static void added_tokens_keep_their_conditions(void **state) {
    (void)state;
    static const struct {
        const char *condition, *text;
        int32_t ids[12];
        size_t n;
    } cases[] = {
        { "lstrip", "hello \n <|end|> hello", { 259, 261, 260 }, 3 },
        { "lstrip", " <|end|><|end|> <|end|>", { 261, 261, 261 }, 3 },
        { "lstrip", "<think>  <|end|>", { 262, 261 }, 2 },
        { "rstrip", "hello <|end|> \n\xe3\x80\x80 hello", { 259, 220, 261, 259 }, 4 },
        { "rstrip", "<|end|> <think>", { 261, 262 }, 2 },
        { "rstrip", "<|end|>  ", { 261 }, 1 },
        { "single_word", "hello<|end|>", { 259, 27, 91, 68, 77, 67, 91, 29 }, 8 },
        { "single_word", "hello <|end|>", { 259, 220, 261 }, 3 },
        { "single_word", "<|end|>hello", { 27, 91, 68, 77, 67, 91, 29, 259 }, 8 },
        { "single_word", "<|end|>.", { 261, 13 }, 2 },
        { "single_word", "_<|end|> <|end|>", { 62, 27, 91, 68, 77, 67, 91, 29, 220, 261 }, 10 },
        { "single_word", "<|end|><|end|>", { 261, 261 }, 2 },
        { "single_word", "\xcc\x81<|end|>", { 136, 223, 27, 91, 68, 77, 67, 91, 29 }, 9 },
        { "normalized", "<|end|>hello<|end|><think>", { 261, 259, 261, 262 }, 4 },
        /* NFC makes one character of the last one and the stroke behind it */
        { "normalized",
          "<|end|>\xcc\xb8 hello",
          { 27, 91, 68, 77, 67, 91, 158, 231, 107, 260 },
          10 },
        { "normalized", "e\xcc\x81<|end|>e\xcc\x81", { 127, 102, 261, 127, 102 }, 5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char from[40], to[40];
        snprintf(from, sizeof from, "\"%s\": false", cases[i].condition);
        snprintf(to, sizeof to, "\"%s\": true", cases[i].condition);
        check_ids(from, to, cases[i].text, cases[i].ids, cases[i].n);
    }
}

/* White space that a token takes along may lie in the piece before or behind its own. */
static void conditions_reach_across_pieces(void **state) {
    (void)state;
    const struct text_piece pieces[] = {
        { "hello \n", 7, false }, { " <|end|> ", 9, true }, { " ", 1, false }, { " hello", 6, true }
    };
    static const char *const conditions[] = { "lstrip", "rstrip" };
    for (int i = 0; i < 2; i++) {
        struct buffer json = { 0 };
        struct reel_tokenizer *tok;
        struct reel_error err;
        char from[40], to[40];
        int32_t *ids;
        size_t n;
        snprintf(from, sizeof from, "\"%s\": false", conditions[i]);
        snprintf(to, sizeof to, "\"%s\": true", conditions[i]);
        small_tokenizer_json(&json);
        replace_once(&json, from, to);
        if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
        if (tokenizer_encode(tok, pieces, 4, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
        tokenizer_close(tok);
        if (i == 0) { /* hello, the token, then its two spaces and hello */
            assert_true(n >= 3);
            assert_int_equal(ids[0], 259);
            assert_int_equal(ids[1], 261);
            assert_int_equal(ids[n - 1], 260);
        } else { /* the token, and hello without a space */
            assert_true(n >= 3);
            assert_int_equal(ids[n - 2], 261);
            assert_int_equal(ids[n - 1], 259);
        }
        free(ids);
        buffer_release(&json);
    }
}

#define BYTE_LEVEL_POST "\"post_processor\": {\"type\": \"ByteLevel\"}"
#define TEMPLATE(single, ids)                                                                      \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single "], \"special_tokens\": {\"E\": "    \
    "{\"id\": \"E\", \"ids\": [" ids "], \"tokens\": [\"<|end|>\"]}}}"
#define SPECIAL "{\"SpecialToken\": {\"id\": \"E\", \"type_id\": 0}}"
#define TEXT_A  "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"

static void check_around(const char *post, const char *wanted) {
    struct buffer json = { 0 }, found = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    const int32_t *side[2];
    size_t n[2];
    small_tokenizer_json(&json);
    replace_once(&json, BYTE_LEVEL_POST, post);
    if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
    tokenizer_single(tok, &side[0], &n[0], &side[1], &n[1]);
    for (int after = 0; after < 2; after++) {
        if (after) assert_int_equal(buffer_text(&found, " |", NULL), REEL_OK);
        for (size_t i = 0; i < n[after]; i++)
            assert_int_equal(buffer_printf(&found, NULL, " %d", (int)side[after][i]), REEL_OK);
    }
    assert_string_equal(found.bytes, wanted);
    tokenizer_close(tok);
    buffer_release(&found);
    buffer_release(&json);
}

static void a_post_processor_says_what_stands_around_a_text(void **state) {
    (void)state;
    check_around(BYTE_LEVEL_POST, " |");
    check_around("\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A, "261"), " 261 |");
    check_around("\"post_processor\": " TEMPLATE(TEXT_A ", " SPECIAL, "262"), " | 262");
    check_around(
        "\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A ", " SPECIAL ", " SPECIAL, "261, 262"),
        " 261 262 | 261 262 261 262");
    /* as Llama 3's and Qwen3-Embedding's are written */
    check_around("\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
                 "\"ByteLevel\"}, " TEMPLATE(SPECIAL ", " TEXT_A, "261") "]}",
                 " 261 |");
    /* a second template stands outside the first one */
    check_around(
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [" TEMPLATE(
            SPECIAL ", " TEXT_A, "261") ", " TEMPLATE(SPECIAL ", " TEXT_A ", " SPECIAL, "262") "]}",
        " 262 261 | 262");
}

static void templates_that_do_not_hold_together_are_refused(void **state) {
    (void)state;
#define NINE                                                                                       \
    SPECIAL ", " SPECIAL ", " SPECIAL ", " SPECIAL ", " SPECIAL ", " SPECIAL ", " SPECIAL          \
            ", " SPECIAL ", " SPECIAL
    static const struct change changes[] = {
        { BYTE_LEVEL_POST, "\"post_processor\": {\"type\": \"TemplateProcessing\"}", REEL_E_FORMAT,
          "the text A" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(SPECIAL, "261"), REEL_E_FORMAT,
          "the text A" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(TEXT_A ", " TEXT_A, "261"),
          REEL_E_FORMAT, "the text A once" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A, "263"),
          REEL_E_FORMAT, "263" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A, "-1"), REEL_E_LIMIT,
          "-1" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A, "\"261\""),
          REEL_E_FORMAT, "integers" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(SPECIAL ", " TEXT_A, ""), REEL_E_FORMAT,
          "\"E\"" },
        { BYTE_LEVEL_POST, "\"post_processor\": " TEMPLATE(NINE ", " TEXT_A, "261"), REEL_E_LIMIT,
          "more than 8" },
    };
    check_changes(changes, sizeof changes / sizeof changes[0]);
}

static void vocabularies_that_do_not_hold_together_are_refused(void **state) {
    (void)state;
    static const struct change changes[] = {
        { "\"he\": 256", "\"he\": 400", REEL_E_FORMAT, "no token has id 256" },
        { "\"he\": 256", "\"he\": 257", REEL_E_FORMAT, "257 is given twice" },
        { "\"he\": 256", "\"he\": 1048576", REEL_E_LIMIT, "1048576" },
        { "\"he\": 256", "\"he\": -1", REEL_E_LIMIT, "-1" },
        { "\"he\": 256", "\"he\": 99999999999", REEL_E_LIMIT, "99999999999" },
        { "\"he\": 256", "\"he\": 256.5", REEL_E_FORMAT, "must be an integer" },
        { "\"he\": 256", "\"he\": \"256\"", REEL_E_FORMAT, "must be an integer" },
        { "\"he\": 256", "\"\": 256", REEL_E_FORMAT, "empty text" },
        { "\"he\": 256", "\"ll\": 256", REEL_E_FORMAT, "" },
        { "\"h e\"", "\"h\\u00e5 e\"", REEL_E_FORMAT, "merge 0" },
        { "\"h e\"", "\"h x\"", REEL_E_FORMAT, "merge 0" },
        { "\"h e\"", "\"he\"", REEL_E_FORMAT, "two tokens" },
        { "\"h e\"", "\"h e l\"", REEL_E_FORMAT, "two tokens" },
        { "\"h e\"", "\" he\"", REEL_E_FORMAT, "merge 0" },
        { "\"h e\"", "\"\\u4e00 e\"", REEL_E_FORMAT, "merge 0" },
        { "\"h e\"", "7", REEL_E_FORMAT, "merge 0" },
        { "\"l l\"", "\"h e\"", REEL_E_FORMAT, "merge 1 repeats merge 0" },
        { "[\"he\", \"ll\"]", "[\"he\"]", REEL_E_FORMAT, "merge 2" },
        { "[\"he\", \"ll\"]", "[\"he\", 3]", REEL_E_FORMAT, "merge 2" },
        { "\"id\": 261", "\"id\": 259", REEL_E_FORMAT, "259 is given twice" },
        { "\"id\": 261", "\"id\": 263", REEL_E_FORMAT, "no token has id 261" },
        { "\"id\": 261", "\"id\": 2000000000", REEL_E_LIMIT, "2000000000" },
        { "\"id\": 261", "\"ID\": 261", REEL_E_FORMAT, "\"id\"" },
        { "\"<|end|>\"", "\"\"", REEL_E_FORMAT, "empty text" },
        { "\"<|end|>\"", "\"<think>\"", REEL_E_FORMAT, "are the same" },
        { "\"<|end|>\"", "null", REEL_E_FORMAT, "content" },
        { "\"added_tokens\": [", "\"added_tokens\": 1, \"x\": [", REEL_E_FORMAT, "added_tokens" },
        { "\"merges\": [", "\"merges\": 1, \"x\": [", REEL_E_FORMAT, "merges" },
        { "\"vocab\": {", "\"vocab\": [], \"x\": {", REEL_E_FORMAT, "vocabulary" },
        { "\"model\": {", "\"model\": 3, \"x\": {", REEL_E_FORMAT, "model" },
        { "\"unk_token\": null", "\"unk_token\": \"he\"", REEL_OK, "" },
    };
    check_changes(changes, sizeof changes / sizeof changes[0]);
}

/* A byte without a token vanishes when there is no unk_token, and is refused when there is. */
static void a_missing_byte_is_allowed_only_without_an_unknown_token(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    small_tokenizer_json(&json);
    replace_once(&json, "\"\\u0078\"", "\"xx\""); /* the letter x */
    if (load_json(&tok, json.bytes, json.size, &err) != REEL_OK) fail_msg("%s", err.text);
    expect_ids(tok, "xhxe", (int32_t[]){ 256 }, 1);
    tokenizer_close(tok);
    replace_once(&json, "\"unk_token\": null", "\"unk_token\": \"he\"");
    assert_int_equal(load_json(&tok, json.bytes, json.size, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "byte 0x78"));
    buffer_release(&json);
}

static void a_file_cut_at_any_byte_is_refused(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    small_tokenizer_json(&json);
    for (size_t n = 0; n + 2 < json.size; n++) {
        struct reel_error err = { 0 };
        char *cut = malloc(n ? n : 1); /* exactly n bytes, so that reading past them shows */
        assert_non_null(cut);
        memcpy(cut, json.bytes, n);
        assert_int_equal(load_json(&tok, cut, n, &err), REEL_E_FORMAT);
        free(cut);
    }
    buffer_release(&json);
}

static void tokenizer_config_adds_the_tokens_that_the_other_file_lacks(void **state) {
    (void)state;
    static const char config[] = "{\"added_tokens_decoder\": {"
                                 "\"261\": {\"content\": \"<|end|>\", \"special\": false},"
                                 "\"263\": {\"content\": \"<|audio|>\", \"special\": true}}}";
    struct buffer json = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    small_tokenizer_json(&json);
    const struct reel_memory_file files[] = {
        { "tokenizer.json", json.bytes, json.size },
        { "tokenizer_config.json", config, sizeof config - 1 },
    };
    if (load(&tok, files, 2, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(tokenizer_size(tok), 264);
    assert_int_equal(tokenizer_find_added(tok, "<|audio|>"), 263);
    assert_true(tokenizer_is_control(tok, 261)); /* tokenizer.json says so, and it comes first */
    tokenizer_close(tok);
    buffer_release(&json);
}

/* The vocabulary and merges of the small tokenizer in the older form. */
static void write_older_form(struct buffer *vocab, struct buffer *merges, const char *newline) {
    struct buffer json = { 0 };
    small_tokenizer_json(&json);
    const char *start = strstr(json.bytes, "\"vocab\": ") + strlen("\"vocab\": ");
    const char *end = strchr(start, '}') + 1;
    assert_int_equal(buffer_append(vocab, start, (size_t)(end - start), NULL), REEL_OK);
    assert_int_equal(buffer_printf(merges, NULL,
                                   "#version: 0.2%sh e%sl l%she ll%shell o%s\xc4\xa0 hello%s",
                                   newline, newline, newline, newline, newline, newline),
                     REEL_OK);
    buffer_release(&json);
}

static enum reel_status load_older_form(struct reel_tokenizer **tok, const char *config,
                                        const char *newline, struct reel_error *err) {
    struct buffer vocab = { 0 }, merges = { 0 };
    write_older_form(&vocab, &merges, newline);
    const struct reel_memory_file files[] = {
        { "vocab.json", vocab.bytes, vocab.size },
        { "merges.txt", merges.bytes, merges.size },
        { "tokenizer_config.json", config, strlen(config) },
    };
    enum reel_status status = load(tok, files, 3, err);
    buffer_release(&vocab);
    buffer_release(&merges);
    return status;
}

static void vocab_and_merges_load_without_tokenizer_json(void **state) {
    (void)state;
    static const char config[] =
        "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": {"
        "\"261\": {\"content\": \"<|end|>\", \"special\": true},"
        "\"262\": {\"content\": \"<think>\", \"special\": false}}}";
    static const char *const newlines[] = { "\n", "\r\n" };
    for (int i = 0; i < 2; i++) {
        struct reel_tokenizer *tok;
        struct reel_error err;
        if (load_older_form(&tok, config, newlines[i], &err) != REEL_OK) fail_msg("%s", err.text);
        expect_ids(tok, "hello hello<|end|>he<think>", (int32_t[]){ 259, 260, 261, 256, 262 }, 5);
        tokenizer_close(tok);
    }
}

#define ADDED                                                                                      \
    "\"added_tokens_decoder\": {\"261\": {\"content\": \"<|end|>\"}, "                             \
    "\"262\": {\"content\": \"<think>\"}}"

static void the_older_form_splits_as_its_class_or_its_own_regex_says(void **state) {
    (void)state;
    static const struct {
        const char *class, *regex;
        const char *wanted;
    } cases[] = {
        { "Qwen2Tokenizer", NULL, split_regex_qwen2 },
        { "Qwen2TokenizerFast", NULL, split_regex_qwen2 },
        { "Qwen3_5Tokenizer", NULL, split_regex_qwen35 },
        { "Qwen2Tokenizer", split_regex_qwen35, split_regex_qwen35 }, /* as Qwen3.5 is published */
        { "Qwen2Tokenizer", "\\p{L}+", "\\p{L}+" },
        { "Qwen2Tokenizer", "\\p{L}*", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer config = { 0 };
        struct reel_tokenizer *tok;
        struct reel_error err = { 0 };
        assert_int_equal(
            buffer_printf(&config, NULL, "{\"tokenizer_class\": \"%s\", " ADDED, cases[i].class),
            REEL_OK);
        if (cases[i].regex) {
            assert_int_equal(buffer_text(&config, ", \"pretokenize_regex\": \"", NULL), REEL_OK);
            for (const char *p = cases[i].regex; *p; p++)
                assert_int_equal(buffer_printf(&config, NULL, *p == '\\' ? "\\%c" : "%c", *p),
                                 REEL_OK);
            assert_int_equal(buffer_text(&config, "\"", NULL), REEL_OK);
        }
        assert_int_equal(buffer_text(&config, "}", NULL), REEL_OK);
        enum reel_status status = load_older_form(&tok, config.bytes, "\n", &err);
        if (!cases[i].wanted) {
            assert_int_equal(status, REEL_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "\\p{L}*"));
        } else {
            if (status != REEL_OK) fail_msg("%s", err.text);
            assert_string_equal(tok->plan_text + 3, cases[i].wanted);
            assert_true(tok->head.nfc);
        }
        tokenizer_close(tok);
        buffer_release(&config);
    }
}

static void the_older_form_takes_its_ends_from_two_flags(void **state) {
    (void)state;
    struct reel_tokenizer *tok;
    struct reel_error err;
    const int32_t *before, *after;
    size_t n_before, n_after;
    if (load_older_form(&tok,
                        "{\"tokenizer_class\": \"Qwen2Tokenizer\", " ADDED
                        ", \"add_bos_token\": true, \"bos_token\": {\"content\": \"<|end|>\"}, "
                        "\"add_eos_token\": true, \"eos_token\": \"<think>\"}",
                        "\n", &err) != REEL_OK)
        fail_msg("%s", err.text);
    tokenizer_single(tok, &before, &n_before, &after, &n_after);
    assert_int_equal(n_before, 1);
    assert_int_equal(before[0], 261);
    assert_int_equal(n_after, 1);
    assert_int_equal(after[0], 262);
    tokenizer_close(tok);
    assert_int_equal(load_older_form(&tok,
                                     "{\"tokenizer_class\": \"Qwen2Tokenizer\", " ADDED
                                     ", \"add_bos_token\": true, \"bos_token\": \"<s>\"}",
                                     "\n", &err),
                     REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "add_bos_token"));
}

static void the_older_form_needs_a_known_class(void **state) {
    (void)state;
    struct reel_tokenizer *tok;
    struct reel_error err;
    assert_int_equal(load_older_form(&tok, "{\"tokenizer_class\": \"XTokenizer\"}", "\n", &err),
                     REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "XTokenizer"));
    assert_int_equal(load_older_form(&tok,
                                     "{\"tokenizer_class\": \"Qwen2Tokenizer\", "
                                     "\"added_tokens_decoder\": {\"26x\": {}}}",
                                     "\n", &err),
                     REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "26x"));
}

static void a_model_without_tokenizer_files_is_refused(void **state) {
    (void)state;
    const struct reel_memory_file file = { "config.json", "{}", 2 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    assert_int_equal(load(&tok, &file, 1, &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "tokenizer.json"));
}

/* The largest two ids make the key that an empty place begins with. */
static void no_merge_of_the_largest_ids_is_found_in_an_empty_place(void **state) {
    (void)state;
    const uint64_t empty[2] = { MERGE_EMPTY, MERGE_EMPTY };
    struct reel_tokenizer tok = { .merge_slots = empty };
    tok.head.merge_bits = 1;
    assert_int_equal(tables_rank(&tok, 0xfffff, 0xfffff), TOKENIZER_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_tokenizer_loads_and_encodes),
        cmocka_unit_test(settings_that_reel_lacks_are_refused_by_name),
        cmocka_unit_test(a_word_that_is_a_token_needs_no_merges_where_the_file_says_so),
        cmocka_unit_test(byte_level_alone_may_put_a_space_in_front),
        cmocka_unit_test(added_tokens_keep_their_conditions),
        cmocka_unit_test(conditions_reach_across_pieces),
        cmocka_unit_test(a_post_processor_says_what_stands_around_a_text),
        cmocka_unit_test(templates_that_do_not_hold_together_are_refused),
        cmocka_unit_test(vocabularies_that_do_not_hold_together_are_refused),
        cmocka_unit_test(a_missing_byte_is_allowed_only_without_an_unknown_token),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(tokenizer_config_adds_the_tokens_that_the_other_file_lacks),
        cmocka_unit_test(vocab_and_merges_load_without_tokenizer_json),
        cmocka_unit_test(the_older_form_splits_as_its_class_or_its_own_regex_says),
        cmocka_unit_test(the_older_form_takes_its_ends_from_two_flags),
        cmocka_unit_test(the_older_form_needs_a_known_class),
        cmocka_unit_test(a_model_without_tokenizer_files_is_refused),
        cmocka_unit_test(no_merge_of_the_largest_ids_is_found_in_an_empty_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
