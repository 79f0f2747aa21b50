/* A program's arguments from the second on, KEY=VALUE each. */
#ifndef REEL_BENCH_ARGUMENTS_H
#define REEL_BENCH_ARGUMENTS_H

#include <stdlib.h>
#include <string.h>

/* The value behind "key=" among the arguments, or NULL. */
static inline const char *text_of(int argc, char **argv, const char *key) {
    const size_t n = strlen(key);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], key, n) == 0 && argv[i][n] == '=') return argv[i] + n + 1;
    return NULL;
}

static inline double number_of(int argc, char **argv, const char *key, double standard) {
    const char *text = text_of(argc, argv, key);
    return text ? strtod(text, NULL) : standard;
}

#endif
