/* The kernel checks of every path this processor has, without a test framework: what
 * tools/check_neon.sh cross-compiles and runs under an emulator. */
#include "cpu/cpu_path.h"
#include "support/kernel_checks.h"

#include <stdio.h>
#include <string.h>

int main(void) {
    char here[CPU_PATH_TEXT], why[200];
    int failed = 0, passed = 0;
    cpu_path_list(here);
    for (char *name = strtok(here, ", "); name; name = strtok(NULL, ", ")) {
        struct kernels kernels;
        if (cpu_path_choose(&kernels, name, NULL) != REEL_OK) continue;
        for (int i = 0; i < N_KERNEL_CHECKS; i++) {
            bool good = kernel_checks[i].run(&kernels, why);
            good ? passed++ : failed++;
            if (!good) printf("FAIL %s: %s: %s\n", name, kernel_checks[i].name, why);
        }
        printf("%s checked\n", name);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
