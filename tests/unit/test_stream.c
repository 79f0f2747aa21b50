/* What of an answer to a growing segment is fixed: with the tokenizer of models/speech, and answers
 * that no model gave. */
#include "asr/stream.h"
#include "runtime/model_handle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_IDS = 600, UNFIXED = 5 };

static struct reel_model *model;
static const struct reel_tokenizer *tok;
static struct reel_error err;

static int enter(void **state) {
    const struct reel_model_options cpu = { .size = sizeof cpu, .device = "cpu", .n_threads = 1 };
    (void)state;
    if (reel_model_open(&model, "models/speech", &cpu, &err) != REEL_OK) return -1;
    tok = model->model.tokenizer;
    return 0;
}

static int leave(void **state) {
    (void)state;
    reel_model_close(model);
    return 0;
}

/* An answer with its ids, as the recognizer fills it in. */
struct answer {
    struct recognized heard;
    char raw[6000];
    int32_t ids[MOST_IDS];
    size_t ends[MOST_IDS];
    bool whole[MOST_IDS + 1]; /* whether the first k ids end with a character */
};

static struct answer *answer_of(const char *text, bool stopped) {
    static struct answer a;
    struct detokenizer characters = { 0 };
    const struct text_piece piece = { text, strlen(text), true };
    int32_t *ids = NULL;
    size_t n = 0;
    memset(&a, 0, sizeof a);
    if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_true(n + 1 < MOST_IDS);
    a.whole[0] = true;
    for (size_t i = 0; i < n; i++) {
        size_t size = 0;
        const char *bytes = tokenizer_bytes(tok, ids[i], &size);
        a.heard.n_bytes += detokenizer_push(&characters, bytes, size, a.raw + a.heard.n_bytes);
        a.ids[i] = ids[i];
        a.ends[i] = a.heard.n_bytes;
        a.whole[i + 1] = characters.n_held == 0;
    }
    if (stopped) {
        a.ids[n] = tokenizer_find_added(tok, "<|im_end|>");
        a.ends[n++] = a.heard.n_bytes;
    }
    free(ids);
    a.heard.raw = a.raw;
    a.heard.ids = a.ids;
    a.heard.ends = a.ends;
    a.heard.n_ids = (int)n;
    a.heard.cut_short = !stopped;
    assert_memory_equal(a.raw, text, strlen(text));
    return &a;
}

static int fixed_ids(const struct answer *a, bool forced) {
    const int k = stream_fixed_ids(&a->heard, tok, forced, 0);
    assert_in_range(k, 0, a->heard.n_ids);
    assert_true(a->whole[k]);
    return k;
}

static void expect_fixed(const char *text, bool stopped, bool forced, const char *fixed) {
    const struct answer *a = answer_of(text, stopped);
    const int k = fixed_ids(a, forced);
    const size_t n = k ? a->ends[k - 1] : 0;
    if (n != strlen(fixed) || memcmp(a->raw, fixed, n) != 0)
        fail_msg("of \"%s\" is fixed \"%.*s\"", text, (int)n, a->raw);
    if (k) assert_true(k <= a->heard.n_ids - UNFIXED - stopped);
}

#define ENGLISH "language English<asr_text>"

static void the_last_ids_are_not_fixed_nor_half_a_word(void **state) {
    (void)state;
    const char *text = ENGLISH "one two three four five six seven eight nine";
    for (int stopped = 0; stopped < 2; stopped++) {
        const struct answer *a = answer_of(text, stopped);
        const int k = fixed_ids(a, false), most = a->heard.n_ids - stopped - UNFIXED;
        assert_in_range(k, 5, most);
        assert_int_equal(a->raw[a->ends[k - 1]], ' ');
        for (int more = k + 1; more <= most; more++)
            assert_int_not_equal(a->raw[a->ends[more - 1]], ' ');
    }
}

static void the_language_is_fixed_before_the_text(void **state) {
    (void)state;
    const char *text = ENGLISH "go left zero one";
    bool alone = false;
    for (size_t n = strlen(ENGLISH); n <= strlen(text); n++) {
        char part[100];
        snprintf(part, sizeof part, "%.*s", (int)n, text);
        const struct answer *a = answer_of(part, true);
        const int k = fixed_ids(a, false);
        assert_true(k == 0 || a->ends[k - 1] >= strlen(ENGLISH));
        alone = alone || (k > 0 && a->ends[k - 1] == strlen(ENGLISH));
    }
    assert_true(alone);
    expect_fixed(ENGLISH "go left", true, false, "");
    expect_fixed("language None<asr_text>", true, false, "");
    expect_fixed("no tag as far as one can see and none to come", true, false, "");
}

static void with_a_language_given_there_is_no_tag(void **state) {
    (void)state;
    const struct answer *a = answer_of("one two three four five six", true);
    const int k = fixed_ids(a, true);
    assert_true(k > 0 && a->raw[a->ends[k - 1]] == ' ');
}

static void a_repetition_is_not_fixed(void **state) {
    (void)state;
    for (int copies = 3; copies < 50; copies++) {
        char text[1000] = ENGLISH "and";
        for (int i = 0; i < copies; i++)
            strcat(text, " go left");
        const struct answer *a = answer_of(text, false);
        const int k = fixed_ids(a, false);
        assert_true(!k || a->ends[k - 1] <= strlen(ENGLISH "and go left"));
    }
}

static void what_is_fixed_stays_fixed(void **state) {
    (void)state;
    const struct answer *a = answer_of(ENGLISH "one two", true);
    assert_int_equal(stream_fixed_ids(&a->heard, tok, false, 4), 4);
    char loop[1000] = ENGLISH;
    for (int i = 0; i < 60; i++)
        strcat(loop, "nine ");
    a = answer_of(loop, false);
    assert_int_equal(stream_fixed_ids(&a->heard, tok, false, 6), 6);
}

static void scripts_without_spaces_are_fixed_by_characters(void **state) {
    (void)state;
    const char *texts[] = {
        "language Chinese<asr_text>\xe4\xbb\x8a\xe5\xa4\xa9\xe5\xa4\xa9\xe6\xb0\x94\xe5\xbe\x88"
        "\xe5\xa5\xbd\xe6\x88\x91\xe4\xbb\xac\xe5\x8e\xbb\xe5\x85\xac\xe5\x9b\xad",
        "language Japanese<asr_text>\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf"
        "\xe4\xb8\x96\xe7\x95\x8c\xe3\x81\xae\xe7\x9a\x86\xe3\x81\x95\xe3\x82\x93",
    };
    for (size_t i = 0; i < 2; i++) {
        const struct answer *a = answer_of(texts[i], true);
        int n_inside = 0;
        for (int k = 0; k < a->heard.n_ids; k++)
            n_inside += !a->whole[k];
        assert_true(n_inside > 5); /* this tokenizer has few such characters */
        const int k = fixed_ids(a, false);
        assert_true(k > 5 && a->ends[k - 1] > strlen("language Chinese<asr_text>"));
        assert_true(k + UNFIXED + 4 > a->heard.n_ids - 1 - UNFIXED);
    }
}

/* Emoji and accents that this tokenizer knows as bytes only, and words that they stand in. */
static void nothing_is_fixed_in_the_middle_of_a_character(void **state) {
    (void)state;
    static const char *const parts[] = {
        " na\xc3\xafve", " \xf0\x9f\x98\x80",
        " caf\xc3\xa9",  "\xe4\xb8\x96",
        " go",           " \xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82"
    };
    uint32_t seed = 1;
    int n_fixed = 0;
    for (int round = 0; round < 200; round++) {
        char text[1000] = "language Russian<asr_text>";
        for (int i = 0; i < 12; i++) {
            seed = seed * 1664525u + 1013904223u;
            strcat(text, parts[(seed >> 16) % 6]);
        }
        n_fixed += fixed_ids(answer_of(text, round % 2), false) > 0;
    }
    assert_true(n_fixed > 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_ids_are_not_fixed_nor_half_a_word),
        cmocka_unit_test(the_language_is_fixed_before_the_text),
        cmocka_unit_test(with_a_language_given_there_is_no_tag),
        cmocka_unit_test(a_repetition_is_not_fixed),
        cmocka_unit_test(what_is_fixed_stays_fixed),
        cmocka_unit_test(scripts_without_spaces_are_fixed_by_characters),
        cmocka_unit_test(nothing_is_fixed_in_the_middle_of_a_character),
    };
    return cmocka_run_group_tests_name("what a stream fixes", tests, enter, leave);
}
