/* Kernels on matrices with planes: every path this machine has, every form, groups of all kinds,
 * odd lengths. */
#include "cpu/cpu_path.h"
#include "tests/support/planes_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void check_path(void **state) {
    const char *path = *state;
    char here[CPU_PATH_TEXT], why[200] = "";
    struct kernels kernels;
    cpu_path_list(here);
    if (!strstr(here, path)) {
        print_message("%s: not of this machine and build, which have %s\n", path, here);
        skip();
    }
    assert_int_equal(cpu_path_choose(&kernels, path, NULL), REEL_OK);
    for (int i = 0; i < N_PLANES_CHECKS; i++)
        if (!planes_checks[i].run(&kernels, why))
            fail_msg("%s: %s: %s", path, planes_checks[i].name, why);
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = "codes_on_" path "_are_worth_what_the_reference_says", .test_func = check_path,    \
        .initial_state = (char[]) {                                                                \
            path                                                                                   \
        }                                                                                          \
    }

int main(void) {
    const struct CMUnitTest tests[] = { ON_PATH("portable"), ON_PATH("avx2"), ON_PATH("avx512"),
                                        ON_PATH("amx"), ON_PATH("neon") };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
