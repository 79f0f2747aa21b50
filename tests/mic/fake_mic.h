/* What the fake sound libraries hear: the file of 16-bit samples that FAKE_MIC names, as fast as it
 * is read, and then silence, as fast as time goes. FAKE_MIC_SAYS=error lets reading fail after the
 * file, =refused lets opening fail. */
#ifndef REEL_TESTS_FAKE_MIC_H
#define REEL_TESTS_FAKE_MIC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

static FILE *fake_file;

static inline bool fake_says(const char *what) {
    const char *says = getenv("FAKE_MIC_SAYS");
    return says && strcmp(says, what) == 0;
}

static inline bool fake_open(void) {
    const char *name = getenv("FAKE_MIC");
    fake_file = name && !fake_says("refused") ? fopen(name, "rb") : NULL;
    return fake_file != NULL;
}

/* n samples; false: reading fails. */
static inline bool fake_read(int16_t *out, size_t n) {
    const size_t got = fread(out, sizeof *out, n, fake_file);
    if (got == n) return true;
    if (fake_says("error")) return false;
    memset(out + got, 0, (n - got) * sizeof *out);
    const struct timespec pause = { .tv_nsec = (long)(n - got) * 62500 };
    nanosleep(&pause, NULL);
    return true;
}

static inline void fake_close(void) { fclose(fake_file); }

#endif
