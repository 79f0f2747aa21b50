#include "cpu/cpu_path.h"

#include "cpu/kernels_amx.h"

#include <string.h>

struct path {
    const char *name;
    const struct kernels *kernels;
    bool here;
};

#define MAX_PATHS 5

/* Slowest first. */
static int list_paths(struct path paths[MAX_PATHS]) {
    struct cpu_features have;
    int n = 0;
    cpu_features_detect(&have);
    paths[n++] = (struct path){ "portable", &kernels_portable, true };
#if defined(__x86_64__)
    paths[n++] = (struct path){ "avx2", &kernels_avx2, have.avx2 };
    paths[n++] = (struct path){ "avx512", &kernels_avx512, have.avx512 };
    paths[n++] = (struct path){ "amx", &kernels_avx512, have.amx };
#elif defined(__aarch64__)
    paths[n++] = (struct path){ "neon", &kernels_neon, have.neon };
#endif
    return n;
}

void cpu_path_list(char text[CPU_PATH_TEXT]) {
    struct path paths[MAX_PATHS];
    int n = list_paths(paths);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (!paths[i].here) continue;
        if (text[0]) strcat(text, " ");
        strcat(text, paths[i].name);
    }
}

bool cpu_path_is_reference(const char *name) {
    return name && (strcmp(name, "reference") == 0 || strcmp(name, CPU_PATH_REFERENCE_BF16) == 0);
}

enum reel_status cpu_path_choose(struct kernels *out, const char *name, struct reel_error *err) {
    struct path paths[MAX_PATHS];
    int n = list_paths(paths), found = -1;
    bool automatic = !name || strcmp(name, "auto") == 0;
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (int i = 0; i < n; i++)
        if (automatic ? paths[i].here : strcmp(name, paths[i].name) == 0) found = i;
    if (found < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "CPU path \"%s\" does not exist here; there are: auto reference %s", name,
                       here);
    if (!paths[found].here)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "CPU path \"%s\" needs what this machine lacks; it has: reference %s", name,
                       here);
    *out = *paths[found].kernels;
    out->name = paths[found].name;
#if defined(__x86_64__)
    if (strcmp(out->name, "amx") == 0) kernels_amx_set(out);
#endif
    return REEL_OK;
}
