/* Every path this machine has, every type, odd sizes, misaligned weights that end at a page without
 * access. */
#include "cpu/cpu_path.h"
#include "tests/support/kernel_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void run_check(const struct kernel_check *check) {
    static const char *const names[] = { "portable", "avx2", "avx512", "amx", "neon" };
    char here[CPU_PATH_TEXT], why[200];
    cpu_path_list(here);
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct kernels kernels;
        if (!strstr(here, names[i])) continue;
        assert_int_equal(cpu_path_choose(&kernels, names[i], NULL), REEL_OK);
        if (!check->run(&kernels, why)) fail_msg("%s: %s", names[i], why);
        n++;
    }
    assert_true(n >= 1);
}

#define CHECK(i)                                                                                   \
    static void check_##i(void **state) {                                                          \
        (void)state;                                                                               \
        run_check(&kernel_checks[i]);                                                              \
    }
CHECK(0)
CHECK(1)
CHECK(2)
CHECK(3)
CHECK(4)
CHECK(5)

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
        { kernel_checks[0].name, check_0, NULL, NULL, NULL },
        { kernel_checks[1].name, check_1, NULL, NULL, NULL },
        { kernel_checks[2].name, check_2, NULL, NULL, NULL },
        { kernel_checks[3].name, check_3, NULL, NULL, NULL },
        { kernel_checks[4].name, check_4, NULL, NULL, NULL },
        { kernel_checks[5].name, check_5, NULL, NULL, NULL },
        cmocka_unit_test(unknown_path_is_refused),
        cmocka_unit_test(a_path_the_machine_lacks_is_refused_in_words),
        cmocka_unit_test(the_fastest_path_is_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
