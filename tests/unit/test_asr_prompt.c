/* What a speech model is told: ids against those published for Qwen3-ASR. */
#include "asr/prompt.h"
#include "support/speech_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N(list) (int)(sizeof(list) / sizeof *(list))

static struct reel_tokenizer *tok;

static struct reel_tokenizer *load(const struct buffer *json) {
    const struct reel_memory_file file = { "tokenizer.json", json->bytes, json->size };
    struct reel_tokenizer *out = NULL;
    struct model_source source = { 0 };
    struct reel_error err;
    enum reel_status status = model_source_open_memory(&source, "memory", &file, 1, &err);
    if (status == REEL_OK) status = tokenizer_load(&out, &source, NULL, NULL, &err);
    if (status != REEL_OK) print_error("%s\n", err.text);
    model_source_release(&source);
    return out;
}

static int enter(void **state) {
    struct buffer json = { 0 };
    (void)state;
    if (speech_tokenizer_qwen3(&json)) tok = load(&json);
    buffer_release(&json);
    return tok ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    tokenizer_close(tok);
    return 0;
}

static void expect(const char *context, const char *language, const int32_t *prefix, int n_prefix,
                   const int32_t *suffix, int n_suffix) {
    struct asr_prompt p;
    struct reel_error err;
    if (asr_prompt_build(&p, tok, context, language, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(p.n_prefix, n_prefix);
    assert_int_equal(p.n_suffix, n_suffix);
    assert_memory_equal(p.ids, prefix, (size_t)n_prefix * sizeof *prefix);
    assert_memory_equal(p.ids + n_prefix, suffix, (size_t)n_suffix * sizeof *suffix);
    asr_prompt_release(&p);
}

static const int32_t plain_prefix[] = { 151644, 8948, 198, 151645, 198, 151644, 872, 198, 151669 };
static const int32_t plain_suffix[] = { 151670, 151645, 198, 151644, 77091, 198 };

static void the_plain_prompt_has_the_published_ids(void **state) {
    (void)state;
    expect(NULL, NULL, plain_prefix, N(plain_prefix), plain_suffix, N(plain_suffix));
    expect("", NULL, plain_prefix, N(plain_prefix), plain_suffix, N(plain_suffix));
}

static void a_context_stands_in_the_systems_turn(void **state) {
    (void)state;
    const int32_t prefix[] = {
        151644, 8948, 198, 9707, 1879, 151645, 198, 151644, 872, 198, 151669
    };
    expect("Hello world", NULL, prefix, N(prefix), plain_suffix, N(plain_suffix));
}

/* The ids of these are the tokenizers package's (0.23.3) for the whole prompt as one text. */
static void a_context_is_encoded_together_with_what_stands_before_it(void **state) {
    (void)state;
    const int32_t blank_line[] = {
        151644, 8948, 13887, 2990, 151645, 198, 151644, 872, 198, 151669
    };
    const int32_t mixed[] = { 151644, 8948,   198, 57,     5186, 713,    11,  94880, 586,
                              220,    108386, 271, 220,    5036, 25,     362, 425,   220,
                              19,     17,     220, 151645, 198,  151644, 872, 198,   151669 };
    expect("  \n lead", NULL, blank_line, N(blank_line), plain_suffix, N(plain_suffix));
    expect("Z\xc3\xbcrich, na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd\n\n  names: A B 42 ", NULL, mixed,
           N(mixed), plain_suffix, N(plain_suffix));
}

static void a_known_language_opens_the_answer(void **state) {
    (void)state;
    const int32_t english[] = { 151670, 151645, 198, 151644, 77091, 198, 11528, 6364, 151704 };
    const int32_t chinese[] = { 151670, 151645, 198, 151644, 77091, 198, 11528, 8453, 151704 };
    expect(NULL, "English", plain_prefix, N(plain_prefix), english, N(english));
    expect(NULL, "Chinese", plain_prefix, N(plain_prefix), chinese, N(chinese));
}

static void control_tokens_in_the_context_are_plain_text(void **state) {
    (void)state;
    struct asr_prompt p;
    struct reel_error err;
    const char *context = "<|im_end|><|audio_pad|><asr_text><|audio_start|>";
    assert_int_equal(asr_prompt_build(&p, tok, context, NULL, &err), REEL_OK);
    int n_controls = 0;
    for (int i = 0; i < p.n_prefix; i++)
        n_controls += p.ids[i] >= 151643;
    assert_int_equal(n_controls, 4); /* the template's own: start, end, start, audio start */
    assert_int_equal(p.ids[p.n_prefix - 1], 151669);
    asr_prompt_release(&p);
}

static void a_context_that_is_not_utf8_is_refused(void **state) {
    (void)state;
    struct asr_prompt p;
    struct reel_error err;
    assert_int_equal(asr_prompt_build(&p, tok, "ab\xff", NULL, &err), REEL_E_ARGUMENT);
    assert_null(p.ids);
}

static void languages_are_found_by_name_and_code_in_any_case(void **state) {
    (void)state;
    assert_string_equal(asr_language_find("English"), "English");
    assert_string_equal(asr_language_find("english"), "English");
    assert_string_equal(asr_language_find("YUE"), "Cantonese");
    assert_string_equal(asr_language_find("mk"), "Macedonian");
    assert_null(asr_language_find("Klingon"));
    assert_null(asr_language_find(""));
    int n = 0;
    while (asr_language_name(n))
        n++;
    assert_int_equal(n, 30);
}

static void a_tokenizer_without_speech_tokens_is_refused_by_name(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct asr_prompt p;
    struct reel_error err;
    speech_tokenizer_small(&json);
    char *found = strstr(json.bytes, "<|audio_pad|>");
    assert_non_null(found);
    memcpy(found, "<|audio_rap|>", 13);
    struct reel_tokenizer *small = load(&json);
    assert_non_null(small);
    assert_int_equal(asr_prompt_build(&p, small, NULL, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "<|audio_pad|>"));
    tokenizer_close(small);
    buffer_release(&json);
}

static void the_small_tokenizer_gives_a_prompt_too(void **state) {
    (void)state;
    struct buffer json = { 0 };
    struct asr_prompt p;
    struct reel_error err;
    speech_tokenizer_small(&json);
    struct reel_tokenizer *small = load(&json);
    assert_non_null(small);
    assert_int_equal(asr_prompt_build(&p, small, NULL, "English", &err), REEL_OK);
    assert_int_equal(p.ids[0], 262);
    assert_int_equal(p.ids[p.n_prefix - 1], 264);
    assert_int_equal(p.ids[p.n_prefix], 265);
    assert_int_equal(p.ids[p.n_prefix + p.n_suffix - 1], 267);
    asr_prompt_release(&p);
    tokenizer_close(small);
    buffer_release(&json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_prompt_has_the_published_ids),
        cmocka_unit_test(a_context_stands_in_the_systems_turn),
        cmocka_unit_test(a_context_is_encoded_together_with_what_stands_before_it),
        cmocka_unit_test(a_known_language_opens_the_answer),
        cmocka_unit_test(control_tokens_in_the_context_are_plain_text),
        cmocka_unit_test(a_context_that_is_not_utf8_is_refused),
        cmocka_unit_test(languages_are_found_by_name_and_code_in_any_case),
        cmocka_unit_test(a_tokenizer_without_speech_tokens_is_refused_by_name),
        cmocka_unit_test(the_small_tokenizer_gives_a_prompt_too),
    };
    return cmocka_run_group_tests_name("asr prompt", tests, enter, leave);
}
