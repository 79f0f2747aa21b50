/* A person at a terminal: reel on a pseudo-terminal, typed at and read. */
#define _XOPEN_SOURCE 700 /* posix_openpt */

#include "base/error.h"
#include "reel_measure.h"
#include "support/spoken.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 10000

struct terminal {
    int fd;
    pid_t child;
    char seen[1 << 16]; /* all that was shown */
    size_t n_seen;
    size_t n_matched; /* of it, what `see` has gone past */
};

static char home[300];

/* Starts reel with these arguments on a terminal of its own. */
static void start(struct terminal *t, char *const *arguments) {
    char program[300];
    const char *build = getenv("REEL_BUILD");
    snprintf(program, sizeof program, "%s/reel", build ? build : "build/release");
    memset(t, 0, sizeof *t);
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    t->child = fork();
    assert_true(t->child >= 0);
    if (t->child == 0) {
        setsid();
        int side = open(ptsname(t->fd), O_RDWR); /* becomes the controlling terminal */
        for (int i = 0; i < 3; i++)
            dup2(side, i);
        close(t->fd);
        execv(program, arguments);
        _exit(127);
    }
}

/* Reads once; false at the end or when nothing came in time. */
static bool read_some(struct terminal *t) {
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    if (poll(&p, 1, PATIENCE_MS) <= 0 || t->n_seen + 1 >= sizeof t->seen) return false;
    ssize_t n = read(t->fd, t->seen + t->n_seen, sizeof t->seen - 1 - t->n_seen);
    if (n <= 0) return false;
    t->n_seen += (size_t)n;
    return true;
}

/* Waits until text is shown after what was matched before. */
static void see(struct terminal *t, const char *text) {
    char *found;
    while (!(found = strstr(t->seen + t->n_matched, text)))
        if (!read_some(t)) fail_msg("\"%s\" was not shown; all that was:\n%s", text, t->seen);
    t->n_matched = (size_t)(found - t->seen) + strlen(text);
}

static void type(struct terminal *t, const char *keys) {
    assert_int_equal(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* The exit status, once the program has closed the terminal. */
static int finish(struct terminal *t) {
    int status = 0;
    while (read_some(t)) {
    }
    struct pollfd p = { .fd = t->fd };
    bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
    if (!ended) kill(t->child, SIGKILL);
    waitpid(t->child, &status, 0);
    close(t->fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
    char model[400], recording[400], output[400];
    struct reel_error err;
    struct terminal t;
    snprintf(model, sizeof model, "%s/speech", home);
    snprintf(recording, sizeof recording, "%s/hour", home);
    snprintf(output, sizeof output, "%s/text", home);
    if (reel_synthesize(model, "tests/golden/models/asr-a.json", 1, NULL, NULL, &err) != REEL_OK)
        fail_msg("%s", err.text);
    write_noise(recording);
    start(&t, (char *[]){ "reel", "transcribe", "-m", model, "--device", "cpu", "-n", "4", "-o",
                          output, "--raw", "s16le", recording, NULL });
    see(&t, "transcribing [");
    see(&t, " of 3600");
    see(&t, "x real time");
    type(&t, "\x03");
    see(&t, "cancelled");
    assert_int_equal(finish(&t), REEL_E_CANCELLED);
}

static void a_stream_shows_what_may_still_change_dimmed(void **state) {
    (void)state;
    char path[400];
    struct spoken spoken;
    struct terminal t;
    spoken_open(&spoken);
    snprintf(path, sizeof path, "%s/spoken", home);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 4; i < 7; i++)
        assert_int_equal(fwrite(spoken.clips[i].samples, sizeof(float), spoken.clips[i].n, f),
                         spoken.clips[i].n);
    assert_int_equal(fclose(f), 0);
    start(&t, (char *[]){ "reel", "transcribe", "-m", "demo-speech", "--device", "cpu", "--stream",
                          "--chunk", "0.5", "--raw", "f32le", path, NULL });
    see(&t, "\033[2m");
    see(&t, "zero six");
    see(&t, "\033[0m\033[?7h\0338");
    see(&t, "\033[Kzero");
    see(&t, " steps, median ");
    assert_int_equal(finish(&t), 0);
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
