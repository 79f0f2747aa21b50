/* Runs one fuzz target without libFuzzer: program test_NAME gives fuzz_NAME.c every file of
 * tests/fuzz/corpus/NAME, each truncated everywhere (small files) and with seeded damage. A crash
 * names the input. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_INPUT = 1 << 22, TRUNCATE_EVERYWHERE = 2048 };
/* A target's share of `make test`; more of `make soak`. */
static double seconds_of_damage(void) { return getenv("REEL_SOAK") ? 10.0 : 0.5; }

static char corpus[256];
static char current[600]; /* what runs now, for the message of a crash */

static void crashed(int signal_number) {
    static const char words[] = "crash on input ";
    ssize_t ignored = write(2, words, sizeof words - 1);
    ignored += write(2, current, strlen(current));
    ignored += write(2, "\n", 1);
    (void)ignored;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* An exact-sized copy, so that a sanitizer sees one byte too far. */
static void try(const uint8_t *data, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static uint32_t draw(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void damage(uint8_t *data, size_t n, uint32_t *seed) {
    static const uint8_t favourites[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', '9', '-' };
    unsigned n_changes = 1 + draw(seed) % 4;
    for (unsigned i = 0; i < n_changes && n; i++) {
        uint8_t *byte = data + draw(seed) % n;
        if (draw(seed) & 1)
            *byte ^= (uint8_t)(1u << (draw(seed) & 7));
        else
            *byte = favourites[draw(seed) % sizeof favourites];
    }
}

static void try_file(const char *name, double until) {
    char path[540];
    snprintf(path, sizeof path, "%s/%s", corpus, name);
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MAX_INPUT), *worse = malloc(MAX_INPUT);
    assert_non_null(file);
    assert_non_null(data);
    assert_non_null(worse);
    size_t n = fread(data, 1, MAX_INPUT, file);
    fclose(file);
    snprintf(current, sizeof current, "%s", path);
    try(data, n);
    for (size_t cut = 0; n <= TRUNCATE_EVERYWHERE && cut < n && now_s() < until; cut++) {
        snprintf(current, sizeof current, "%s, first %zu bytes", path, cut);
        try(data, cut);
    }
    uint32_t seed = 1;
    while (now_s() < until) {
        snprintf(current, sizeof current, "%s, damage seed %u", path, seed);
        memcpy(worse, data, n);
        damage(worse, n, &seed);
        try(worse, n);
    }
    free(data);
    free(worse);
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void the_corpus_and_damaged_copies_of_it_are_survived(void **state) {
    (void)state;
    struct dirent **entries = NULL;
    int n = scandir(corpus, &entries, visible, alphasort);
    if (n <= 0) fail_msg("%s: no inputs", corpus);
    double begin = now_s();
    for (int i = 0; i < n; i++) {
        try_file(entries[i]->d_name, begin + seconds_of_damage() * (i + 1) / n);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv) {
    (void)argc;
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    if (strncmp(name, "test_", 5) == 0) name += 5;
    snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", name);
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    signal(SIGABRT, crashed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus_and_damaged_copies_of_it_are_survived),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
