/* `reel transcribe --mic` with fake sound libraries (tests/mic) that hear a spoken clip. */
#include "support/sanitized.h"
#include "support/shell.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAID "go left"
/* $FAKE/alsa and $FAKE/pulse hold the libraries; a folder without one has a file in its place that
 * is none, so that the machine's own is not found. */
#define WITH(folders)                                                                              \
    "FAKE_MIC=spoken.pcm LD_LIBRARY_PATH=" folders "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
#define PULSE   WITH("$FAKE/pulse:$PWD/none")
#define ALSA    WITH("$FAKE/alsa:$PWD/none")
#define NONE    WITH("$PWD/none")
#define SECONDS (SANITIZED ? "5" : "1.5")
#define HEAR    "reel transcribe -m demo-speech --device cpu --threads 2 --mic"

static int enter(void **state) {
    struct spoken spoken;
    char fake[400];
    if (shell_enter(state) != 0) return -1;
    struct result r = shell("dirname \"$(command -v reel)\"");
    snprintf(fake, sizeof fake, "%.*s/fake-mic", (int)strcspn(r.out, "\n"), r.out);
    done(r);
    setenv("FAKE", fake, 1);
    spoken_open(&spoken);
    int16_t *samples = spoken_integers(&spoken.clips[0]);
    shell_file("spoken.pcm", samples, spoken.clips[0].n * sizeof *samples);
    free(samples);
    spoken_close(&spoken);
    expect("mkdir none && for l in libasound.so.2 libpulse-simple.so.0 libpulse.so.0; do "
           "head -c 100 spoken.pcm >none/$l; done",
           0, "");
    return 0;
}

/* Until Ctrl-C, after so long. In the foreground timeout sends one, else two: to its group as well.
 */
static struct result hear(const char *with, const char *more) {
    char line[500];
    snprintf(line, sizeof line, "%s timeout --foreground --preserve-status -s INT %s " HEAR "%s",
             with, SECONDS, more);
    return shell(line);
}

static void what_is_heard_is_written_down_until_ctrl_c(void **state) {
    (void)state;
    static const char *const libraries[] = { PULSE, ALSA };
    for (int i = 0; i < 2; i++) {
        struct result r = hear(libraries[i], " --chunk 0.5");
        if (r.status != 0 || strcmp(r.out, SAID "\n") != 0)
            fail_msg("status %d, \"%s\"\n%s", r.status, r.out, r.err);
        assert_non_null(strstr(r.err, "microphone: "));
        assert_non_null(strstr(r.err, " step"));
        done(r);
    }
    struct result r = hear(ALSA, " --chunk 0.5 -o heard.txt; cat heard.txt");
    assert_string_equal(r.out, SAID "\n");
    done(r);
}

static void a_device_is_taken_by_its_name(void **state) {
    (void)state;
    struct result r = hear(WITH("$FAKE/pulse:$FAKE/alsa"), "=alsa:hw:1,0");
    assert_string_equal(r.out, SAID "\n");
    done(r);
    r = hear(WITH("$FAKE/pulse:$FAKE/alsa"), "=usb-headset");
    assert_string_equal(r.out, SAID "\n");
    done(r);
    expect(WITH("$FAKE/pulse:$FAKE/alsa") HEAR "=pulse:none", 3,
           "no microphone: PulseAudio: none: No such entity");
    expect(WITH("$FAKE/pulse:$FAKE/alsa") HEAR "=none", 3,
           "ALSA: \"none\": No such file or directory");
}

static void devices_are_listed(void **state) {
    (void)state;
    struct result r = shell(WITH("$FAKE/pulse:$FAKE/alsa") "reel transcribe --list-mics");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "pulse:usb-headset"));
    assert_non_null(strstr(r.out, "alsa:hw:1,0"));
    assert_non_null(strstr(r.out, "The usual one of the desktop\n"));
    assert_null(strstr(r.out, "monitor"));
    assert_null(strstr(r.out, "hdmi"));
    done(r);
    expect(WITH("$FAKE/pulse:$PWD/none") "FAKE_MIC_SAYS=refused reel transcribe --list-mics", 3,
           "there is no microphone");
}

static void without_a_library_or_a_device_it_says_so(void **state) {
    (void)state;
    expect(NONE HEAR, 3,
           "no microphone: libpulse-simple.so.0 is not installed; libasound.so.2 is "
           "not installed");
    expect(NONE "reel transcribe --list-mics", 3, "no microphone can be heard");
    expect(WITH("$FAKE/pulse:$FAKE/alsa") "FAKE_MIC_SAYS=refused " HEAR, 3,
           "PulseAudio: Connection refused; ALSA: \"default\": No such device");
}

static void a_device_that_fails_leaves_what_was_heard(void **state) {
    (void)state;
    expect("head -c 40000 /dev/zero >>spoken.pcm; " ALSA "FAKE_MIC_SAYS=error " HEAR
           " -o part; code=$?; grep -qx '" SAID "' part && exit $code",
           4, "microphone: ALSA: Input/output error");
    expect(PULSE "FAKE_MIC_SAYS=error " HEAR " -o part", 4, "PulseAudio: Input/Output error");
}

static void it_excludes_files(void **state) {
    (void)state;
    expect(HEAR " spoken.pcm", 2, "--mic excludes files");
    expect(HEAR " --raw s16le", 2, "--mic excludes files");
    expect(HEAR " --segment 56", 2, "at most 55 s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_heard_is_written_down_until_ctrl_c),
        cmocka_unit_test(a_device_is_taken_by_its_name),
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(without_a_library_or_a_device_it_says_so),
        cmocka_unit_test(a_device_that_fails_leaves_what_was_heard),
        cmocka_unit_test(it_excludes_files),
    };
    return cmocka_run_group_tests_name("the microphone", tests, enter, shell_leave);
}
