/* Recordings through ffmpeg: how the program is called, what it says in which case, and that it is
 * gone afterwards. Most tests have a script in its place; one has the program itself, where it is
 * installed. */
#include "support/shell.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAID   "go left"
#define LISTEN "reel transcribe -m demo-speech --device cpu --threads 2 "
#define FAKED  "PATH=\"$PWD/bin:$PATH\" " LISTEN
/* Nothing is found by its name. */
#define WITHOUT                                                                                    \
    "R=$(command -v reel); PATH=/nonexistent \"$R\" transcribe -m demo-speech --device cpu "

/* ffmpeg by another name: says what it was called with, and does as a file in the folder says. */
static const char script[] = "#!/bin/sh\n"
                             "printf '%s\\n' \"$@\" >called\n"
                             "echo $$ >pid\n"
                             ". ./how\n";

static int enter(void **state) {
    struct spoken spoken;
    if (shell_enter(state) != 0) return -1;
    spoken_open(&spoken);
    shell_file("spoken.f32", spoken.clips[0].samples, spoken.clips[0].n * sizeof(float));
    spoken_close(&spoken);
    expect("mkdir bin", 0, "");
    shell_file("bin/ffmpeg", script, sizeof script - 1);
    expect("chmod 755 bin/ffmpeg; printf 'ftypM4A and some bytes that nobody reads' >talk.m4a", 0,
           "");
    return 0;
}

static void how(const char *does) { shell_file("how", does, strlen(does)); }

static void what_ffmpeg_gives_is_transcribed(void **state) {
    (void)state;
    how("cat spoken.f32\n");
    struct result r = shell(FAKED "talk.m4a");
    assert_string_equal(r.out, SAID "\n");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.err, "talk.m4a: 0.9 s of audio"));
    done(r);
    how("head -c 20001 spoken.f32; sleep 0.1; tail -c +20002 spoken.f32\n"); /* not by samples */
    r = shell(FAKED "--format json talk.m4a");
    assert_non_null(strstr(r.out, SAID));
    done(r);
}

static void the_name_is_neither_an_option_nor_an_address(void **state) {
    (void)state;
    static const char *const names[] = { "talk.m4a", "-y.m4a", "http:x.m4a", "concat:a|b",
                                         "a b;echo $HOME" };
    how("cat spoken.f32\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[300], wanted[300];
        snprintf(line, sizeof line, "cp talk.m4a './%s' 2>/dev/null; " FAKED "-- '%s'", names[i],
                 names[i]);
        expect(line, 0, "");
        snprintf(wanted, sizeof wanted,
                 "-nostdin\n-v\nerror\n-protocol_whitelist\nfile\n-i\nfile:%s\n-vn\n-sn\n-dn\n-f\n"
                 "f32le\n-ar\n16000\n-ac\n1\n-\n",
                 names[i]);
        /* the list of containers stands in one place */
        struct result r = shell("sed '/^-format_whitelist$/,+1d' called");
        assert_string_equal(r.out, wanted);
        done(r);
    }
}

static void a_file_that_reel_reads_is_not_given_to_it(void **state) {
    (void)state;
    expect("rm -f called; printf 'RIFF....WAVEfmt and nothing right' >bad.wav; " FAKED "bad.wav", 5,
           "bad.wav");
    expect(FAKED "none.m4a", 3, "none.m4a: cannot open");
    expect(FAKED "--raw f32le spoken.f32 -q", 0, "");
    expect("test ! -e called", 0, "");
}

static void its_errors_are_said_in_words(void **state) {
    (void)state;
    how("echo 'file:talk.m4a: Invalid data found when processing input' >&2; exit 183\n");
    expect(FAKED "talk.m4a", 5, "nor does ffmpeg: talk.m4a: ffmpeg: file:talk.m4a: Invalid data");
    how("exit 0\n");
    expect(FAKED "talk.m4a", 5, "ffmpeg: there is no sound in it");
    how("kill -9 $$\n");
    expect(FAKED "talk.m4a", 5, "ffmpeg: it was ended by a signal");
    how("cat spoken.f32; echo 'moov atom is short' >&2; exit 1\n"); /* what it gave is used */
    struct result r = shell(FAKED "talk.m4a");
    assert_string_equal(r.out, SAID "\n");
    assert_non_null(strstr(r.err, "0.870 s of audio were read; ffmpeg: moov atom is short"));
    done(r);
    how("yes 'a long complaint' | head -c 300000 >&2; cat spoken.f32\n"); /* nobody waits */
    r = shell(FAKED "talk.m4a");
    assert_string_equal(r.out, SAID "\n");
    done(r);
}

static void without_it_the_error_says_what_to_install(void **state) {
    (void)state;
    expect(WITHOUT "talk.m4a", 5,
           "through ffmpeg, which is not installed (Debian and Ubuntu: apt "
           "install ffmpeg)");
    how("cat spoken.f32\n");
    expect(FAKED "none.m4a talk.m4a --format json >list", 3, "1 of 2 recordings failed");
}

static void ctrl_c_ends_it(void **state) {
    (void)state;
    how("cat spoken.f32; exec sleep 20\n");
    expect(
        "rm -f pid; timeout --preserve-status -s INT 1 sh -c 'PATH=\"$PWD/bin:$PATH\"; exec " LISTEN
        "talk.m4a'",
        13, "cancelled");
    expect("! kill -0 $(cat pid) 2>/dev/null", 0, "");
    expect("rm -f pid; timeout --preserve-status -s TERM 1 sh -c 'PATH=\"$PWD/bin:$PATH\"; "
           "exec " LISTEN "talk.m4a'",
           13, "cancelled");
    expect("! kill -0 $(cat pid) 2>/dev/null", 0, "");
}

static void the_program_itself_reads_what_it_wrote(void **state) {
    (void)state;
    struct result r = shell("command -v ffmpeg");
    const bool there = r.status == 0;
    done(r);
    if (!there) {
        print_message("ffmpeg is not installed\n");
        skip();
    }
    static const char *const names[] = { "x.m4a", "x.mp4", "x.webm", "-x.mka", "http:x.m4a" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[400];
        snprintf(line, sizeof line,
                 "ffmpeg -v error -nostdin -y -f f32le -ar 16000 -ac 1 -i spoken.f32 'file:%s' "
                 "&& " LISTEN "-q -- '%s' >heard; cat heard >&2; grep -qx '" SAID "' heard",
                 names[i], names[i]);
        r = shell(line);
        if (strstr(r.err, "Unknown encoder") || strstr(r.err, "Automatic encoder"))
            print_message("this ffmpeg does not write %s\n", names[i]);
        else if (r.status != 0)
            fail_msg("%s: %s", names[i], r.err);
        done(r);
    }
    expect("printf '#EXTM3U\\n#EXT-X-TARGETDURATION:1\\n#EXTINF:1,\\nhttp://127.0.0.1:9/x.ts\\n' "
           ">list.m3u8; timeout 20 " LISTEN "list.m3u8",
           5, "nor does ffmpeg"); /* it asks nobody on a network, and not for a minute either */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ffmpeg_gives_is_transcribed),
        cmocka_unit_test(the_name_is_neither_an_option_nor_an_address),
        cmocka_unit_test(a_file_that_reel_reads_is_not_given_to_it),
        cmocka_unit_test(its_errors_are_said_in_words),
        cmocka_unit_test(without_it_the_error_says_what_to_install),
        cmocka_unit_test(ctrl_c_ends_it),
        cmocka_unit_test(the_program_itself_reads_what_it_wrote),
    };
    return cmocka_run_group_tests_name("ffmpeg", tests, enter, shell_leave);
}
