/* A person at a terminal: reel on a pseudo-terminal, typed at and read. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */

#include "base/error.h"
#include "reel_measure.h"
#include "support/pty.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char home[300];

/* Starts `reel transcribe` with these words on a terminal of its own. */
static void transcribe(struct pty *t, const char *words) {
    char line[1500];
    snprintf(line, sizeof line,
             "exec \"${REEL_BUILD:-build/release}/reel\" transcribe --device cpu %s", words);
    pty_start(t, line);
}

static int enter(void **state) {
    (void)state;
    const char *build = getenv("REEL_BUILD");
    snprintf(home, sizeof home, "%s/tests/cli/home-XXXXXX", build ? build : "build/release");
    if (!mkdtemp(home)) return -1;
    setenv("XDG_STATE_HOME", "relative: counts as unset", 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    char *absolute = realpath(home, NULL);
    if (!absolute) return -1;
    setenv("HOME", absolute, 1);
    free(absolute);
    return 0;
}

static int leave(void **state) {
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    return system(command);
}

/* An hour of noise, so that there is something to see and to interrupt: silence is passed over. */
static void write_noise(const char *path) {
    static int16_t samples[60 * REEL_AUDIO_RATE];
    uint32_t seed = 1;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (int16_t)((int)(seed >> 18) - 8192);
    }
    for (int minute = 0; minute < 60; minute++)
        assert_int_equal(fwrite(samples, sizeof samples, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void transcribing_shows_how_far_it_is_and_can_be_interrupted(void **state) {
    (void)state;
    char model[400], recording[400], words[1300];
    struct reel_error err;
    struct pty t;
    snprintf(model, sizeof model, "%s/speech", home);
    snprintf(recording, sizeof recording, "%s/hour", home);
    if (reel_synthesize(model, "tests/golden/models/asr-a.json", 1, NULL, NULL, &err) != REEL_OK)
        fail_msg("%s", err.text);
    write_noise(recording);
    snprintf(words, sizeof words, "-m %s -n 4 -o %s/text --raw s16le %s", model, home, recording);
    transcribe(&t, words);
    pty_see(&t, "transcribing [");
    pty_see(&t, " of 3600");
    pty_see(&t, "x real time");
    pty_type(&t, "\x03");
    pty_see(&t, "cancelled");
    assert_int_equal(pty_finish(&t), REEL_E_CANCELLED);
}

static void a_stream_shows_what_may_still_change_dimmed(void **state) {
    (void)state;
    char path[400], words[600];
    struct spoken spoken;
    struct pty t;
    spoken_open(&spoken);
    snprintf(path, sizeof path, "%s/spoken", home);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 4; i < 7; i++)
        assert_int_equal(fwrite(spoken.clips[i].samples, sizeof(float), spoken.clips[i].n, f),
                         spoken.clips[i].n);
    assert_int_equal(fclose(f), 0);
    snprintf(words, sizeof words, "-m demo-speech --stream --chunk 0.5 --raw f32le %s", path);
    transcribe(&t, words);
    pty_see(&t, "\033[2m");
    pty_see(&t, "zero six");
    pty_see(&t, "\033[0m\033[?7h\0338");
    pty_see(&t, "\033[Kzero");
    pty_see(&t, " steps, median ");
    assert_int_equal(pty_finish(&t), 0);
    assert_null(strstr(t.seen, "transcribing [")); /* the text has the line */
    spoken_close(&spoken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transcribing_shows_how_far_it_is_and_can_be_interrupted),
        cmocka_unit_test(a_stream_shows_what_may_still_change_dimmed),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, enter, leave);
}
