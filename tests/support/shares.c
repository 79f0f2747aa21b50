#include "support/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int turn_next(const char *name) {
    const char *build = getenv("REEL_BUILD");
    char path[300];
    long turn = (long)(time(NULL) / 86400);
    snprintf(path, sizeof path, "%s/tests/%s.turn", build ? build : "build/release", name);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%ld", &turn) != 1) turn = 0;
    if (f) fclose(f);
    f = fopen(path, "w");
    if (f) fprintf(f, "%ld\n", turn + 1);
    if (f) fclose(f);
    return (int)(turn % 5040); /* which any number of shares up to 10 divides */
}

struct share share_of(const char *name, int n) {
    const char *wanted = getenv("REEL_TURN");
    const bool mutations = getenv("REEL_MUTATION") || getenv("REEL_MUTATION_TURN");
    if (getenv("REEL_SOAK") || (wanted ? strcmp(wanted, "all") == 0 : mutations))
        return (struct share){ -1, n };
    const int turn = (wanted ? atoi(wanted) : turn_next(name)) % n;
    printf("%s: share %d of %d of what rotates; REEL_TURN=%d repeats it\n", name, turn, n, turn);
    return (struct share){ turn, n };
}

int turned(void **state) {
    (void)state;
    return 0;
}

void share_tests(const char *name, int n, struct CMUnitTest *tests, size_t n_tests) {
    const struct share share = share_of(name, n);
    int n_turned = 0;
    for (size_t i = 0; i < n_tests; i++) {
        if (tests[i].teardown_func != turned || share_has(share, n_turned++)) continue;
        printf("left for another run: %s\n", tests[i].name);
        tests[i].name = NULL; /* cmocka passes over it */
    }
}
