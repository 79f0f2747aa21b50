/* --weights, reel quantize, reel synthesize --weights and --kv, as a user meets them. */
#include "reel.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of one layer and 0.1 million parameters. */
static const char tiny[] =
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":64,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
    "\"intermediate_size\":96,\"vocab_size\":1000,\"tie_word_embeddings\":true,"
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":64,"
    "\"eos_token_id\":256}";
static const char text[] = "The morning after the ball, Elizabeth walked to the village.";

static int enter(void **state) {
    const int failed = shell_enter(state);
    if (failed) return failed;
    shell_file("tiny.json", tiny, sizeof tiny - 1);
    shell_file("text", text, sizeof text - 1);
    return 0;
}

static void prints(const char *line, const char *says) {
    struct result r = shell(line);
    if (r.status != 0 || !strstr(r.out, says))
        fail_msg("%s: %d\n%s%s", line, r.status, r.out, r.err);
    done(r);
}

static void a_folder_is_written_and_what_it_holds_is_said(void **state) {
    (void)state;
    prints("reel quantize $DEMO narrow --weights int4",
           "56 as int4, 4.125 bits a weight, 2.433 MB, rms error 10.1");
    prints("ls narrow", "config.json\ngeneration_config.json\nmodel.safetensors\ntokenizer.json\n");
    prints("ls -d narrow*", "narrow\n");
    prints("grep -o pack-quantized narrow/config.json", "pack-quantized");
    prints("reel quantize demo narrow8 --weights fp8 | tail -n 1", "narrow8\n");
    prints("reel quantize demo scored --weights int8 --text text -c 16 | grep -c "
           "'^perplexity [0-9.]* before, [0-9.]* after, [+-][0-9]\\.[0-9]* %'",
           "1\n");
    expect("reel verify narrow -n 4", 0, "");
    expect("reel quantize narrow new --weights int8", REEL_E_UNSUPPORTED, "quantised already");
    prints("grep -o float-quantized narrow8/config.json", "float-quantized");
}

#define PLAN "reel inspect narrow --plan --gpu h200 --gpu-option narrow="
static void a_plan_says_how_weights_lie_that_stay_narrow(void **state) {
    (void)state;
    prints(PLAN "1 | grep '^  gate_up'", "  4.25  int4, a scale (bf16) for 128 columns\n");
    prints(PLAN "1 | grep '^  head '", " 16.00  bf16\n"); /* as the folder has it */
    prints(PLAN "0 | grep '^  gate_up'", " 16.00  bf16\n");
    expect("reel inspect narrow --gpu-option narrow=1", 2, "goes with --plan");
    expect("reel inspect narrow --plan --gpu h200 --gpu-option narow=1", 2, "did you mean narrow");
}

static void what_cannot_be_written_is_refused_in_words(void **state) {
    (void)state;
    expect("reel quantize demo new", 2, "--weights int8, int4 or fp8");
    expect("reel quantize demo new --weights bf16", 2, "bf16; allowed is int8, int4 or fp8");
    expect("reel quantize demo new --weights q4_0", 2, "not one of: bf16 int8 int4 fp8");
    expect("mkdir there && reel quantize demo there --weights int4", 2, "exists already");
    expect("reel quantize demo new --weights int4 --text nowhere", REEL_E_NOT_FOUND, "nowhere");
    expect("reel quantize demo no/such/parent --weights int4", REEL_E_IO, "no/such/parent");
    expect("test ! -e new && rmdir there", 0, "");
}

static double perplexity_of(const char *options) {
    char line[300];
    snprintf(line, sizeof line, "reel score demo text --cpu-path reference %s", options);
    struct result r = shell(line);
    if (r.status != 0) fail_msg("%s: %s", line, r.err);
    const double x = strtod(r.out + strlen("perplexity "), NULL);
    done(r);
    return x;
}

static void a_model_is_quantised_while_it_is_loaded(void **state) {
    (void)state;
    const double wide = perplexity_of(""), eight = perplexity_of("--weights int8"),
                 four = perplexity_of("--weights int4");
    print_message("perplexity %.4f, int8 %.4f, int4 %.4f\n", wide, eight, four);
    assert_true(wide > 1 && eight != wide && four != eight);
    assert_true(eight < wide * 1.02 && eight > wide / 1.02);
    assert_true(four < wide * 1.2 && four > wide / 1.2);
    expect("reel score demo text --weights bf16", 2, "take no more bits already");
    expect("reel perplexity demo text", 2, "did you mean score?");
}

static void keys_and_values_take_a_form(void **state) {
    (void)state;
    const double wide = perplexity_of(""), eight = perplexity_of("--kv int8"),
                 floats = perplexity_of("--kv fp8");
    print_message("perplexity %.4f, int8 %.4f, fp8 %.4f\n", wide, eight, floats);
    assert_true(perplexity_of("--kv bf16") == wide);
    assert_true(eight != wide && floats != wide && floats != eight);
    assert_true(eight < wide * 1.02 && eight > wide / 1.02);
    assert_true(floats < wide * 1.05 && floats > wide / 1.05);
    expect("reel score demo text --kv int4", 2, "\"int4\" is not one of: bf16 int8 fp8");
    expect("reel verify demo -n 4 --kv int8", 0, "");
}

static void synthetic_weights_can_be_narrow(void **state) {
    (void)state;
    prints("reel synthesize s8 tiny.json --weights int8", "s8\n");
    prints("reel synthesize s4 tiny.json --weights int4", "s4\n");
    prints("reel synthesize again tiny.json --weights int4", "again\n");
    expect("cmp s4/model.safetensors again/model.safetensors", 0, "");
    prints("ls -d s4* s8*", "s4\ns8\n");
    /* 64 columns and 96 have groups of 64 and 32 */
    prints("grep -o '\"group_size\":64' s4/config.json", "64");
    prints("grep -o '\"group_size\":32' s4/config.json", "32");
    expect("reel synthesize s4 tiny.json --weights int4", 2, "exists already");
    expect("reel synthesize new nothing --weights int4", REEL_E_NOT_FOUND, "known shape");
    expect("test ! -e new", 0, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_written_and_what_it_holds_is_said),
        cmocka_unit_test(a_plan_says_how_weights_lie_that_stay_narrow),
        cmocka_unit_test(what_cannot_be_written_is_refused_in_words),
        cmocka_unit_test(a_model_is_quantised_while_it_is_loaded),
        cmocka_unit_test(keys_and_values_take_a_form),
        cmocka_unit_test(synthetic_weights_can_be_narrow),
    };
    return cmocka_run_group_tests(tests, enter, shell_leave);
}
