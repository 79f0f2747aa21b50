/* The kernel checks of every path this processor has, without a test framework: what
 * tools/check_neon.sh cross-compiles and runs under an emulator. */
#include "cpu/cpu_path.h"
#include "support/planes_checks.h"

#include <stdio.h>
#include <string.h>

static int failed, passed;

static void run(const char *path, const struct kernel_check *checks, int n) {
    struct kernels kernels;
    char why[200] = "";
    if (cpu_path_choose(&kernels, path, NULL) != REEL_OK) return;
    for (int i = 0; i < n; i++) {
        bool good = checks[i].run(&kernels, why);
        good ? passed++ : failed++;
        if (!good) printf("FAIL %s: %s: %s\n", path, checks[i].name, why);
    }
}

/* Every path, or the one that is named. */
int main(int n_args, char **args) {
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (char *name = strtok(here, ", "); name; name = strtok(NULL, ", ")) {
        if (n_args > 1 && strcmp(name, args[1]) != 0) continue;
        run(name, kernel_checks, N_KERNEL_CHECKS);
        run(name, planes_checks, N_PLANES_CHECKS);
        printf("%s checked\n", name);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
