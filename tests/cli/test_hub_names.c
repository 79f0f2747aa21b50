/* What the names of repositories and of the files in them mean. */
#include "cli/hub_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_name_is_a_repository_and_what_to_take_of_it(void **state) {
    (void)state;
    struct hub_name name;
    assert_true(hub_name_parse(&name, "Qwen/Qwen3-0.6B"));
    assert_string_equal(name.repo, "Qwen/Qwen3-0.6B");
    assert_null(name.what);
    assert_true(hub_name_parse(&name, "a/b:Q4_K_M"));
    assert_string_equal(name.repo, "a/b");
    assert_string_equal(name.what, "Q4_K_M");
    assert_true(hub_name_parse(&name, "a/b:sub/x.gguf"));
    static const char *const bad[] = { "",         "a",       "a/",     "/b",     "a/b/c",
                                       "../b",     "a/..",    ".a/b",   "a/b:",   "a/b:../x",
                                       "a/b:/x",   "a b/c",   "a/b:x/", "a/b:.x", "a/b:x//y",
                                       "a/b:x\ny", "a\\b/c:x" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_name_parse(&name, bad[i])) fail_msg("\"%s\" was taken", bad[i]);
}

static void paths_of_repositories_stay_inside(void **state) {
    (void)state;
    char longest[900];
    static const char *const good[] = { "a", "a/b/c.gguf", "a b/c+d.gguf", "x..y", "(1)/[2]@3" };
    static const char *const bad[] = { "",    "/",    "/a",       "a/",          "a//b",
                                       ".",   "..",   "a/../b",   "a/.b",        "a\\b",
                                       "a:b", "a\tb", "a\x1b[2J", "caf\xc3\xa9", "%2e%2e/x" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hub_path_is_safe(good[i])) fail_msg("\"%s\" was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_path_is_safe(bad[i])) fail_msg("\"%s\" was taken", bad[i]);
    memset(longest, 'a', sizeof longest);
    longest[201] = '\0';
    assert_false(hub_path_is_safe(longest));
}

static void the_end_of_a_name_is_its_quantisation(void **state) {
    (void)state;
    static const char *const names[][2] = {
        { "Qwen3-0.6B-Q4_K_M.gguf", "Q4_K_M" },
        { "qwen3-0.6b.q8_0.gguf", "q8_0" },
        { "sub/Qwen3-0.6B-UD-Q4_K_XL.gguf", "Q4_K_XL" },
        { "SmolLM2-135M-Instruct.i1-IQ4_XS.gguf", "IQ4_XS" },
        { "BF16/Qwen3-BF16-00001-of-00003.gguf", "BF16" },
        { "model-f16.gguf", "f16" },
        { "Qwen3-0.6B.gguf", "Qwen3-0.6B" },
        { "ggml-model.gguf", "ggml-model" },
        { "gpt-oss-mxfp4.gguf", "mxfp4" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char label[HUB_MAX_LABEL];
        hub_label(names[i][0], label);
        assert_string_equal(label, names[i][1]);
    }
    assert_int_equal(hub_parts("BF16/Qwen3-BF16-00001-of-00003.gguf"), 3);
    assert_int_equal(hub_parts("Qwen3-00001-of-3.gguf"), 1);
    assert_int_equal(hub_parts("Qwen3.gguf"), 1);
}

static void the_better_match_wins(void **state) {
    (void)state;
    const char *path = "sub/Qwen3-0.6B-UD-Q4_K_XL.gguf";
    assert_int_equal(hub_match(path, "sub/Qwen3-0.6B-UD-Q4_K_XL.gguf"), 5);
    assert_int_equal(hub_match(path, "Qwen3-0.6B-UD-Q4_K_XL.gguf"), 4);
    assert_int_equal(hub_match(path, "q4_k_xl"), 3);
    assert_int_equal(hub_match(path, "qwen3-0.6b-ud-q4_k_xl"), 2);
    assert_int_equal(hub_match(path, "UD-Q4_K_XL"), 1);
    assert_int_equal(hub_match(path, "K_XL"), 1);
    assert_int_equal(hub_match(path, "4_K_XL"), 0);
    assert_int_equal(hub_match(path, "Q4_K_M"), 0);
    assert_int_equal(hub_match("Q4_K_M.bin", "Q4_K_M"), 0);
    assert_true(hub_is_companion("sub/mmproj-model-f16.gguf"));
    assert_true(hub_is_companion("model-imatrix.gguf"));
    assert_false(hub_is_companion(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_a_repository_and_what_to_take_of_it),
        cmocka_unit_test(paths_of_repositories_stay_inside),
        cmocka_unit_test(the_end_of_a_name_is_its_quantisation),
        cmocka_unit_test(the_better_match_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
