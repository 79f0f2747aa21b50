/* SentencePiece's files, made here piece by piece: what is refused, the order of merges, and what
 * the files beside tokenizer.model change. */
#include "base/memory.h"
#include "model/tokenizer.h"
#include "model/tokenizer_bpe.h"
#include "support/small_tokenizer.h"
#include "support/spm_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* ---- writing protobuf ---- */

static void put(struct buffer *out, const void *bytes, size_t n) {
    assert_int_equal(buffer_append(out, bytes, n, NULL), REEL_OK);
}

static void put_varint(struct buffer *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put(out, (const unsigned char[]){ (unsigned char)(value | 0x80) }, 1);
    put(out, (const unsigned char[]){ (unsigned char)value }, 1);
}

static void put_number(struct buffer *out, unsigned field, uint64_t value) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

static void put_bytes(struct buffer *out, unsigned field, const void *bytes, size_t n) {
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    put(out, bytes, n);
}

static void put_piece(struct buffer *out, const char *text, float score, unsigned type) {
    struct buffer piece = { 0 };
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    put(&piece, &score, 4);
    if (type != NORMAL) put_number(&piece, 3, type);
    put_bytes(out, 1, piece.bytes, piece.size);
    buffer_release(&piece);
}

/* Ids 0 to 2 and then the 256 bytes: the first piece of a test is id 259. */
static void put_first_pieces(struct buffer *out) {
    char text[8];
    put_piece(out, "<unk>", 0, UNKNOWN);
    put_piece(out, "<s>", 0, CONTROL);
    put_piece(out, "</s>", 0, CONTROL);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        put_piece(out, text, 0, BYTE);
    }
}

struct settings {
    int model_type, byte_fallback, suffix, dummy_prefix, extra_spaces, escape;
    const char *charsmap;
};

static const struct settings usual = { 2, 1, 0, 1, 0, 1, "" };

static void put_settings(struct buffer *out, const struct settings *set) {
    struct buffer trainer = { 0 }, normalizer = { 0 };
    put_number(&trainer, 3, (uint64_t)set->model_type);
    put_number(&trainer, 35, (uint64_t)set->byte_fallback);
    put_number(&trainer, 24, (uint64_t)set->suffix);
    put_bytes(out, 2, trainer.bytes, trainer.size);
    put_bytes(&normalizer, 1, "nmt_nfkc", 8);
    put_bytes(&normalizer, 2, set->charsmap, strlen(set->charsmap));
    put_number(&normalizer, 3, (uint64_t)set->dummy_prefix);
    put_number(&normalizer, 4, (uint64_t)set->extra_spaces);
    put_number(&normalizer, 5, (uint64_t)set->escape);
    put_bytes(out, 3, normalizer.bytes, normalizer.size);
    buffer_release(&trainer);
    buffer_release(&normalizer);
}

/* a 259, b 260, c 261, a space 262, bc 263, ab 264, " a" 265, "  " 266. */
static void put_letters(struct buffer *out) {
    put_first_pieces(out);
    put_piece(out, "a", -10, NORMAL);
    put_piece(out, "b", -11, NORMAL);
    put_piece(out, "c", -12, NORMAL);
    put_piece(out, "\u2581", -13, NORMAL);
    put_piece(out, "bc", -5, NORMAL);
    put_piece(out, "ab", -5, NORMAL);
    put_piece(out, "\u2581a", -6, NORMAL);
    put_piece(out, "\u2581\u2581", -7, NORMAL);
}

/* ---- loading ---- */

static enum reel_status load(struct reel_tokenizer **tok, const struct reel_memory_file *files,
                             int n_files, struct reel_error *err) {
    struct model_source source = { 0 };
    struct tensor_file tensors = { 0 };
    struct gguf gguf = { 0 };
    *tok = NULL;
    enum reel_status status = model_source_open_memory(&source, "memory", files, n_files, err);
    if (status == REEL_OK && source.is_gguf) status = gguf_open(&gguf, &tensors, &source, err);
    if (status == REEL_OK)
        status = tokenizer_load(tok, &source, source.is_gguf ? &gguf : NULL, NULL, err);
    tensor_file_release(&tensors);
    gguf_release(&gguf);
    model_source_release(&source);
    return status;
}

static struct reel_tokenizer *load_model(const struct buffer *model, const char *config,
                                         const char *added) {
    struct reel_memory_file files[3] = { { "tokenizer.model", model->bytes, model->size } };
    struct reel_tokenizer *tok;
    struct reel_error err;
    int n = 1;
    if (config)
        files[n++] = (struct reel_memory_file){ "tokenizer_config.json", config, strlen(config) };
    if (added) files[n++] = (struct reel_memory_file){ "added_tokens.json", added, strlen(added) };
    if (load(&tok, files, n, &err) != REEL_OK) fail_msg("%s", err.text);
    return tok;
}

static void expect_refused(const char *name, const struct buffer *bytes, enum reel_status wanted,
                           const char *said) {
    const struct reel_memory_file file = { name, bytes->bytes, bytes->size };
    struct reel_tokenizer *tok;
    struct reel_error err = { 0 };
    enum reel_status status = load(&tok, &file, 1, &err);
    if (status != wanted || !strstr(err.text, said) || !strstr(err.text, "memory"))
        fail_msg("not \"%s\" but %s: \"%s\"", said, reel_status_name(status), err.text);
}

static void expect_ids(const struct reel_tokenizer *tok, const char *text, const int32_t *wanted,
                       size_t n_wanted) {
    const struct text_piece piece = { text, strlen(text), true };
    int32_t *ids;
    size_t n;
    struct reel_error err;
    if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
    if (n != n_wanted || (n && memcmp(ids, wanted, n * sizeof *ids) != 0)) {
        for (size_t i = 0; i < n; i++)
            print_message("%d ", ids[i]);
        fail_msg("\"%s\": other ids", text);
    }
    mem_free(ids);
}

#define EXPECT(tok, text, ...)                                                                     \
    expect_ids(tok, text, (const int32_t[]){ __VA_ARGS__ },                                        \
               sizeof(const int32_t[]){ __VA_ARGS__ } / sizeof(int32_t))

/* ---- tests ---- */

/* "bc" and "ab" have one score, and so the leftmost is merged although "bc" has the lower id. */
static void tokens_of_one_score_merge_from_left_to_right(void **state) {
    (void)state;
    struct buffer model = { 0 };
    put_letters(&model);
    put_settings(&model, &usual);
    struct reel_tokenizer *tok = load_model(&model, NULL, NULL);
    EXPECT(tok, "abc", 262, 264, 261);
    EXPECT(tok, "bc", 262, 263);
    EXPECT(tok, "ac", 265, 261);
    EXPECT(tok, "  a", 266, 265);
    EXPECT(tok, "\u00e9", 262, 3 + 0xc3, 3 + 0xa9);
    /* a word long enough for the heap */
    EXPECT(tok, "abcabcabcabcabcabcabcabcabcabcabcabc", 262, 264, 261, 264, 261, 264, 261, 264, 261,
           264, 261, 264, 261, 264, 261, 264, 261, 264, 261, 264, 261, 264, 261, 264, 261);
    tokenizer_close(tok);
    buffer_release(&model);
}

static void what_is_not_supported_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        struct settings set;
        const char *said;
    } cases[] = {
        { { 1, 1, 0, 1, 0, 1, "" }, "unigram" },
        { { 3, 1, 0, 1, 0, 1, "" }, "model_type is 3" },
        { { 2, 0, 0, 1, 0, 1, "" }, "byte_fallback false" },
        { { 2, 1, 1, 1, 0, 1, "" }, "treat_whitespace_as_suffix" },
        { { 2, 1, 0, 1, 1, 1, "" }, "remove_extra_whitespaces" },
        { { 2, 1, 0, 1, 0, 0, "" }, "escape_whitespaces" },
        { { 2, 1, 0, 1, 0, 1, "abcd" }, "nmt_nfkc" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer model = { 0 };
        put_letters(&model);
        put_settings(&model, &cases[i].set);
        expect_refused("tokenizer.model", &model, REEL_E_UNSUPPORTED, cases[i].said);
        buffer_release(&model);
    }
}

static void broken_vocabularies_are_refused_with_what_was_found(void **state) {
    (void)state;
    static const struct {
        const char *text;
        float score;
        unsigned type;
        enum reel_status status;
        const char *said;
    } cases[] = {
        { "abc", NAN, NORMAL, REEL_E_FORMAT, "the score of token 267, \"abc\", is NaN" },
        { "ab", -9, NORMAL, REEL_E_FORMAT, "tokens 264 and 267 are the same: \"ab\"; each" },
        { "<unk2>", 0, UNKNOWN, REEL_E_FORMAT, "pieces 0 and 267 both have type unknown" },
        { "<0x4x>", 0, BYTE, REEL_E_FORMAT, "piece 267 \"<0x4x>\" has type byte: its text must" },
        { "<0x41>", 0, BYTE, REEL_E_FORMAT, "both byte 0x41" },
        { "abc", -9, UNUSED, REEL_E_UNSUPPORTED, "unused" },
        { "abc", -9, 77, REEL_E_UNSUPPORTED, "type 77" },
        { "", -9, NORMAL, REEL_E_FORMAT, "token id 267 has an empty text: at least one" },
        { "\xff", -9, CONTROL, REEL_E_FORMAT, "not UTF-8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer model = { 0 };
        put_letters(&model);
        put_piece(&model, cases[i].text, cases[i].score, cases[i].type);
        put_settings(&model, &usual);
        expect_refused("tokenizer.model", &model, cases[i].status, cases[i].said);
        buffer_release(&model);
    }
    struct buffer model = { 0 };
    char longest[2000] = "";
    memset(longest, 'a', sizeof longest - 1);
    put_letters(&model);
    put_piece(&model, longest, -9, NORMAL);
    put_settings(&model, &usual);
    expect_refused("tokenizer.model", &model, REEL_E_LIMIT, "1999 bytes; at most 1024");
    buffer_release(&model);
    put_piece(&model, "<unk>", 0, UNKNOWN);
    put_piece(&model, "<0x00>", 0, BYTE);
    put_settings(&model, &usual);
    expect_refused("tokenizer.model", &model, REEL_E_UNSUPPORTED, "byte 0x01 (\"<0x01>\")");
    buffer_release(&model);
    put_piece(&model, "a", 0, NORMAL);
    put_settings(&model, &usual);
    expect_refused("tokenizer.model", &model, REEL_E_FORMAT,
                   "not one of 1 pieces has type unknown");
    buffer_release(&model);
    put_settings(&model, &usual);
    expect_refused("tokenizer.model", &model, REEL_E_FORMAT, "it has no pieces: 1 to ");
    buffer_release(&model);
}

/* Each beginning of a file lies in memory of its own length, so that a sanitizer sees a byte read
 * beyond it. */
static void every_beginning_of_a_file_is_refused(void **state) {
    (void)state;
    struct buffer model = { 0 };
    put_letters(&model);
    put_settings(&model, &usual);
    for (size_t n = 0; n < model.size; n++) {
        struct reel_tokenizer *tok;
        struct reel_error err = { 0 };
        char *bytes = malloc(n + 1);
        assert_non_null(bytes);
        memcpy(bytes, model.bytes, n);
        bytes = realloc(bytes, n ? n : 1);
        const struct reel_memory_file file = { "tokenizer.model", bytes, n };
        assert_int_not_equal(load(&tok, &file, 1, &err), REEL_OK);
        assert_true(err.text[0]);
        free(bytes);
    }
    /* after one piece, a length of nearly 2^64; then a number of more than ten bytes */
    struct buffer hostile = { 0 };
    put_piece(&hostile, "<unk>", 0, UNKNOWN);
    put(&hostile, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    expect_refused("tokenizer.model", &hostile, REEL_E_FORMAT,
                   "the field at byte 16, behind 1 piece, is broken: it must end within the file's "
                   "27 bytes");
    buffer_release(&hostile);
    put(&hostile, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
    expect_refused("tokenizer.model", &hostile, REEL_E_FORMAT,
                   "the field at byte 0, behind 0 pieces");
    buffer_release(&hostile);
    put_piece(&hostile, "<unk>", 0, UNKNOWN);
    put_bytes(&hostile, 1, "\x0a\x7f", 2); /* a text of 127 bytes in a piece of 2 */
    expect_refused("tokenizer.model", &hostile, REEL_E_FORMAT,
                   "piece 1 is broken: a text, a score and a type must lie within its 2 bytes");
    buffer_release(&hostile);
    buffer_release(&model);
}

static void expect_start(const struct reel_tokenizer *tok, int32_t id) {
    const int32_t *before, *after;
    size_t n_before, n_after;
    tokenizer_single(tok, &before, &n_before, &after, &n_after);
    assert_int_equal(n_after, 0);
    assert_int_equal(n_before, id >= 0);
    if (id >= 0) assert_int_equal(before[0], id);
}

static void the_configuration_decides_about_spaces_and_the_first_token(void **state) {
    (void)state;
    struct buffer model = { 0 };
    put_letters(&model);
    put_settings(&model, &usual);
    struct reel_tokenizer *tok = load_model(&model, NULL, NULL);
    EXPECT(tok, "a</s>a", 265, 2, 265);
    expect_start(tok, 1);
    tokenizer_close(tok);
    tok = load_model(&model, "{\"legacy\": false, \"add_bos_token\": false}", NULL);
    EXPECT(tok, "a</s>a", 265, 2, 259);
    EXPECT(tok, "<s>a", 1, 259);
    expect_start(tok, -1);
    tokenizer_close(tok);
    tok = load_model(&model,
                     "{\"add_prefix_space\": false, \"bos_token\": {\"content\": \"</s>\"}}", NULL);
    EXPECT(tok, "a</s> a", 259, 2, 265);
    expect_start(tok, 2);
    tokenizer_close(tok);
    tok = load_model(&model, NULL, "{\"<pad>\": 267}");
    EXPECT(tok, "<pad>a", 267, 265);
    assert_false(tokenizer_is_control(tok, 267));
    tokenizer_close(tok);
    buffer_release(&model);
}

/* The message names the file that is wrong, not tokenizer.model beside it. */
static void files_beside_tokenizer_model_are_judged_too(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        enum reel_status status;
        const char *said;
    } cases[] = {
        { "added_tokens.json", "[]", REEL_E_FORMAT, "must be an object of texts and ids" },
        { "added_tokens.json", "{\"<pad>\": \"267\"}", REEL_E_FORMAT,
          "the id of \"<pad>\" must be an integer" },
        { "added_tokens.json", "{\"<pad>\": 1099511627776}", REEL_E_LIMIT,
          "token id 1099511627776, allowed are 0 to 1048575" },
        { "added_tokens.json", "{\"<pad>\": -1}", REEL_E_LIMIT, "token id -1, allowed are" },
        { "added_tokens.json", "{\"<pad>\": 259}", REEL_E_FORMAT,
          "token id 259 is given twice, the second time to \"<pad>\"" },
        { "added_tokens.json", "{", REEL_E_FORMAT, "added_tokens.json" },
        { "tokenizer_config.json", "{\"legacy\": 3}", REEL_E_FORMAT, "\"legacy\"" },
        { "tokenizer_config.json", "{\"add_bos_token\": true, \"bos_token\": \"<a>\"}",
          REEL_E_FORMAT, "its token is not an added token" },
    };
    struct buffer model = { 0 };
    put_letters(&model);
    put_settings(&model, &usual);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct reel_memory_file files[] = {
            { "tokenizer.model", model.bytes, model.size },
            { cases[i].name, cases[i].text, strlen(cases[i].text) },
        };
        struct reel_tokenizer *tok;
        struct reel_error err = { 0 };
        enum reel_status status = load(&tok, files, 2, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].said) ||
            !strstr(err.text, cases[i].name))
            fail_msg("%s: %s, \"%s\"", cases[i].text, reel_status_name(status), err.text);
    }
    buffer_release(&model);
}

/* An answer's first space goes, and only that one. */
static void the_space_in_front_of_an_answer_is_not_shown(void **state) {
    (void)state;
    struct buffer model = { 0 };
    char out[64];
    size_t n, made = 0;
    put_letters(&model);
    put_settings(&model, &usual);
    struct reel_tokenizer *tok = load_model(&model, NULL, NULL);
    struct detokenizer d = detokenizer_start(tok);
    for (int i = 0; i < 3; i++) {
        const char *bytes = tokenizer_bytes(tok, 265, &n);
        assert_int_equal(n, 2);
        made += detokenizer_push(&d, bytes, n, out + made);
    }
    made += detokenizer_finish(&d, out + made);
    assert_int_equal(made, 5);
    assert_memory_equal(out, "a a a", 5);
    tokenizer_close(tok);
    buffer_release(&model);
}

/* Texts of 100,000 characters without a place to cut: one letter, two in turn, letters and spaces
 * in random order, rows of spaces, digits, characters that are no token, and a Fibonacci word,
 * whose pairs repeat at every length. */
enum { N_LONG = 100000, N_LONG_KINDS = 8 };

static void put_long(struct buffer *out, int kind) {
    static const char *const units[] = { "a", "ab", "abc", " ", "0123456789", "\U0001f9d1", "the" };
    uint32_t state = 1;
    if (kind == N_LONG_KINDS - 1) { /* a, ab, aba, abaab: each of the last two */
        size_t before = 1, now = 2;
        put(out, "ab", 2);
        while (now < N_LONG) {
            char *copy = malloc(before);
            assert_non_null(copy);
            memcpy(copy, out->bytes, before);
            put(out, copy, before);
            free(copy);
            now += before;
            before = now - before;
        }
        return;
    }
    while (out->size < N_LONG) {
        state = state * 1664525u + 1013904223u;
        if (kind == 2)
            put(out, &"abcdet aho rnis "[state >> 28], 1);
        else
            put(out, units[kind], strlen(units[kind]));
    }
}

/* The most is 42 steps a character, for Mistral's rows of spaces. Looking at all pairs for every
 * merge would take 100,000. */
static void check_work(const struct reel_tokenizer *tok, int kind) {
    struct buffer text = { 0 };
    struct bpe_scratch scratch = { 0 };
    struct reel_error err;
    size_t n;
    put_long(&text, kind);
    int32_t *ids = malloc(text.size * sizeof *ids);
    assert_non_null(ids);
    const unsigned char *word = (const unsigned char *)text.bytes;
    assert_int_equal(bpe_word(tok, &scratch, word, text.size, ids, &n, &err), REEL_OK);
    if (scratch.work < text.size || scratch.work > 64 * text.size)
        fail_msg("text %d: %llu steps for %zu bytes", kind, (unsigned long long)scratch.work,
                 text.size);
    bpe_scratch_release(&scratch);
    buffer_release(&text);
    free(ids);
}

static void a_long_word_takes_work_for_its_length_and_no_more(void **state) {
    (void)state;
    struct spm_model m;
    struct buffer letters = { 0 };
    struct reel_tokenizer *tok;
    put_letters(&letters);
    put_piece(&letters, "a\u2581", -4, NORMAL); /* a space behind something: no cut is safe */
    put_settings(&letters, &usual);
    for (int i = 0; i < 3; i++) {
        struct reel_error err;
        assert_true(spm_model_open(&m, i == 0 ? "mistral" : "spm-small"));
        struct reel_memory_file file = { "tokenizer.model", m.file.bytes, m.file.size };
        if (i == 2)
            file = (struct reel_memory_file){ "tokenizer.model", letters.bytes, letters.size };
        if (load(&tok, &file, 1, &err) != REEL_OK) fail_msg("%s", err.text);
        for (int kind = 0; kind < N_LONG_KINDS; kind++)
            check_work(tok, kind);
        tokenizer_close(tok);
        spm_model_close(&m);
    }
    buffer_release(&letters);
}

static void a_long_text_that_cannot_be_cut_is_merged_whole(void **state) {
    (void)state;
    struct buffer model = { 0 }, text = { 0 };
    put_letters(&model);
    put_piece(&model, "a\u2581", -4, NORMAL);
    put_piece(&model, "bca\u2581", -8, NORMAL);
    put_settings(&model, &usual);
    struct reel_tokenizer *tok = load_model(&model, NULL, NULL);
    for (int i = 0; i < 1 << 16; i++)
        put(&text, "a bc", 4);
    const struct text_piece piece = { text.bytes, text.size, false };
    struct reel_error err;
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(tok, &piece, 1, &ids, &n, &err), REEL_OK);
    assert_int_equal(n, (1 << 16) + 2);
    tokenizer_close(tok);
    mem_free(ids);
    buffer_release(&model);
    buffer_release(&text);
}

struct change {
    const char *from, *to;
    enum reel_status status;
    const char *said;
};

static void settings_of_tokenizer_json_that_reel_lacks_are_refused_by_name(void **state) {
    (void)state;
    static const struct change changes[] = {
        { "\"prepend_scheme\": \"first\"", "\"prepend_scheme\": \"last\"", REEL_E_UNSUPPORTED,
          "last" },
        { "\"prepend_scheme\": \"first\"", "\"add_prefix_space\": true", REEL_OK, "" },
        { "\"replacement\": \"\u2581\"", "\"replacement\": \"_\"", REEL_E_UNSUPPORTED,
          "Metaspace" },
        { "\"Metaspace\"", "\"ByteLevel\"", REEL_E_UNSUPPORTED, "ByteLevel" },
        { "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}", REEL_E_UNSUPPORTED,
          "NFKC" },
        { "\"normalizer\": null",
          "\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"\u2581\"}", REEL_E_UNSUPPORTED,
          "Replace" },
        { "{\"type\": \"ByteFallback\"}, ", "", REEL_E_UNSUPPORTED, "decoder" },
        { "\"type\": \"Sequence\", \"decoders\"", "\"type\": \"Metaspace\", \"decoders\"",
          REEL_E_UNSUPPORTED, "Metaspace" },
        { "\"start\": 1", "\"start\": 2", REEL_E_LIMIT, "start" },
        { "\"byte_fallback\": true", "\"byte_fallback\": true, \"ignore_merges\": true",
          REEL_E_UNSUPPORTED, "ignore_merges" },
        { "\"<0x41>\"", "\"<0x4x>\"", REEL_E_UNSUPPORTED, "byte 0x41" },
    };
    struct spm_model m;
    assert_true(spm_model_open(&m, "spm-small"));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct buffer json = { 0 };
        struct reel_tokenizer *tok;
        struct reel_error err = { 0 };
        spm_model_json(&m, "first", &json);
        replace_once(&json, changes[i].from, changes[i].to);
        const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
        enum reel_status status = load(&tok, &file, 1, &err);
        if (status != changes[i].status || !strstr(err.text, changes[i].said))
            fail_msg("\"%s\": %s, \"%s\"", changes[i].to, reel_status_name(status), err.text);
        tokenizer_close(tok);
        buffer_release(&json);
    }
    spm_model_close(&m);
}

/* The normalizers would change the text in which such a token is looked for. */
static void normalized_tokens_behind_normalizers_are_refused(void **state) {
    (void)state;
    struct spm_model m;
    struct buffer json = { 0 };
    assert_true(spm_model_open(&m, "spm-small"));
    spm_model_json(&m, "prepend", &json);
    replace_once(&json, "\"normalized\": false", "\"normalized\": true");
    expect_refused("tokenizer.json", &json, REEL_E_UNSUPPORTED, "\"normalized\" true");
    buffer_release(&json);
    spm_model_close(&m);
}

static void gguf_metadata_must_hold_together(void **state) {
    (void)state;
    struct spm_model m;
    struct buffer gguf = { 0 };
    struct reel_tokenizer *tok;
    struct reel_error err;
    assert_true(spm_model_open(&m, "spm-small"));
    spm_model_gguf(&m, &gguf);
    const struct reel_memory_file file = { "model.gguf", gguf.bytes, gguf.size };
    if (load(&tok, &file, 1, &err) != REEL_OK) fail_msg("%s", err.text);
    expect_start(tok, 1);
    tokenizer_close(tok);
    /* The key's name is as long, so that the file stays sound. */
    size_t at = 0;
    while (at + 11 < gguf.size && memcmp(gguf.bytes + at, "ggml.scores", 11) != 0)
        at++;
    gguf.bytes[at + 5] = 'S';
    expect_refused("model.gguf", &gguf, REEL_E_FORMAT,
                   "tokenizer.ggml.scores must be a list of 32-bit floats");
    buffer_release(&gguf);
    m.pieces[300].score = NAN;
    spm_model_gguf(&m, &gguf);
    expect_refused("model.gguf", &gguf, REEL_E_FORMAT, "the score of token 300, ");
    buffer_release(&gguf);
    spm_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_one_score_merge_from_left_to_right),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(broken_vocabularies_are_refused_with_what_was_found),
        cmocka_unit_test(every_beginning_of_a_file_is_refused),
        cmocka_unit_test(the_configuration_decides_about_spaces_and_the_first_token),
        cmocka_unit_test(files_beside_tokenizer_model_are_judged_too),
        cmocka_unit_test(the_space_in_front_of_an_answer_is_not_shown),
        cmocka_unit_test(a_long_word_takes_work_for_its_length_and_no_more),
        cmocka_unit_test(a_long_text_that_cannot_be_cut_is_merged_whole),
        cmocka_unit_test(settings_of_tokenizer_json_that_reel_lacks_are_refused_by_name),
        cmocka_unit_test(normalized_tokens_behind_normalizers_are_refused),
        cmocka_unit_test(gguf_metadata_must_hold_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
