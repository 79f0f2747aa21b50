/* Every path this machine has, every type, odd sizes, misaligned weights that end at a page without
 * access. */
#include "cpu/cpu_path.h"
#include "tests/support/emulated_amx.h"
#include "tests/support/kernel_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check_all(const struct kernels *kernels, const char *path) {
    char why[200];
    for (int i = 0; i < N_KERNEL_CHECKS; i++)
        if (!kernel_checks[i].run(kernels, why))
            fail_msg("%s: %s: %s", path, kernel_checks[i].name, why);
}

/* Every check, by the path named in *state. */
static void check_path(void **state) {
    const char *path = *state;
    char here[CPU_PATH_TEXT];
    struct kernels kernels;
    cpu_path_list(here);
    if (!strstr(here, path)) {
        print_message("%s: not of this machine and build, which have %s\n", path, here);
        skip();
    }
    assert_int_equal(cpu_path_choose(&kernels, path, NULL), REEL_OK);
    check_all(&kernels, path);
}

/* What AMX makes of tiles, on a machine that has AVX-512 and need not have them. */
static void tiles_that_are_emulated_give_the_exact_result(void **state) {
    (void)state;
#if defined(__x86_64__)
    char here[CPU_PATH_TEXT];
    struct kernels kernels;
    cpu_path_list(here);
    if (strstr(here, "avx512")) {
        assert_int_equal(cpu_path_choose(&kernels, "avx512", NULL), REEL_OK);
        emulated_amx_set(&kernels);
        check_all(&kernels, "amx, emulated");
        return;
    }
#endif
    print_message("not of this machine and build: AVX-512\n");
    skip();
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = "every_kernel_of_" path "_gives_the_exact_result", .test_func = check_path,        \
        .initial_state = (char[]) {                                                                \
            path                                                                                   \
        }                                                                                          \
    }

static void unknown_path_is_refused(void **state) {
    (void)state;
    struct kernels kernels;
    struct reel_error err;
    assert_int_equal(cpu_path_choose(&kernels, "mmx", &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "\"mmx\""));
    assert_non_null(strstr(err.text, "portable"));
}

/* Whatever the machine: each name either opens or says what there is instead. */
static void a_path_the_machine_lacks_is_refused_in_words(void **state) {
    (void)state;
    static const char *const names[] = { "portable", "avx2", "avx512", "amx", "neon" };
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct kernels kernels;
        struct reel_error err;
        enum reel_status status = cpu_path_choose(&kernels, names[i], &err);
        if (strstr(here, names[i])) {
            assert_int_equal(status, REEL_OK);
            assert_string_equal(kernels.name, names[i]);
        } else {
            assert_true(status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT);
            assert_non_null(strstr(err.text, names[i]));
            assert_non_null(strstr(err.text, here));
        }
    }
}

static void the_fastest_path_is_the_default(void **state) {
    (void)state;
    struct kernels chosen, automatic;
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    const char *last = strrchr(here, ' ');
    assert_int_equal(cpu_path_choose(&chosen, NULL, NULL), REEL_OK);
    assert_int_equal(cpu_path_choose(&automatic, "auto", NULL), REEL_OK);
    assert_string_equal(chosen.name, last ? last + 1 : here);
    assert_string_equal(automatic.name, chosen.name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
        cmocka_unit_test(tiles_that_are_emulated_give_the_exact_result),
        cmocka_unit_test(unknown_path_is_refused),
        cmocka_unit_test(a_path_the_machine_lacks_is_refused_in_words),
        cmocka_unit_test(the_fastest_path_is_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
