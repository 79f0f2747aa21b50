/* Where transcripts go: what is looked at before the work, what is kept when it is stopped, and how
 * several recordings stand in one file or in a folder. The model is the one inside the program. */
#include "base/json.h"
#include "support/sanitized.h"
#include "support/shell.h"
#include "support/spoken.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RATE = 16000 };
#define SAID   "go left"
#define LISTEN "reel transcribe -m demo-speech --device cpu --threads 2 -q --raw s16le "

/* a.pcm and b.pcm say it once; two.pcm twice, with a second of nothing behind each; broken.f32 the
 * same, and then a sample that is no number. */
static int enter(void **state) {
    struct spoken spoken;
    if (shell_enter(state) != 0) return -1;
    spoken_open(&spoken);
    const size_t n = spoken.clips[0].n, n_two = 2 * (n + RATE), n_broken = n_two + RATE;
    int16_t *said = spoken_integers(&spoken.clips[0]), *two = calloc(n_two, sizeof *two);
    float *broken = calloc(n_broken, sizeof *broken);
    assert_true(two && broken);
    for (size_t i = 0; i < 2; i++)
        memcpy(two + i * (n + RATE), said, n * sizeof *said);
    for (size_t i = 0; i < n_two; i++)
        broken[i] = (float)two[i] / 32768.0f;
    broken[n_broken - 1] = NAN;
    shell_file("a.pcm", said, n * sizeof *said);
    shell_file("b.pcm", said, n * sizeof *said);
    shell_file("two.pcm", two, n_two * sizeof *two);
    shell_file("broken.f32", broken, n_broken * sizeof *broken);
    free(said), free(two), free(broken);
    spoken_close(&spoken);
    return 0;
}

/* ---- before the work ---- */

/* The model is none, so that whoever looks at it first says so. */
static void what_cannot_be_written_is_refused_before_the_work(void **state) {
    (void)state;
#define NO_MODEL "reel transcribe -m no/such/model --raw s16le "
    expect(NO_MODEL "a.pcm -o no/such/folder/text", 4, "no/such/folder/: there is no such folder");
    expect("mkdir -p there; " NO_MODEL "a.pcm -o there", 2, "there is a folder; name a file in it");
    expect(NO_MODEL "a.pcm -o there/", 2, "is a folder");
    expect(NO_MODEL "a.pcm -o a.pcm/text", 4, "there is no such folder");
    expect(NO_MODEL "a.pcm -o ''", 2, "--output needs a file's name");
    expect(NO_MODEL "a.pcm b.pcm -o ./b.pcm", 2, "./b.pcm is one of the recordings");
    expect("ln -f b.pcm linked; " NO_MODEL "a.pcm b.pcm -o linked", 2, "one of the recordings");
    expect(NO_MODEL "- -o b.pcm <b.pcm", 2, "b.pcm is one of the recordings");
    expect("cmp a.pcm b.pcm", 0, "");
    if (access("/proc/self", F_OK) == 0)
        expect(NO_MODEL "a.pcm -o /proc/text", 4, "/proc/: no file can be made there");
    expect("ls -A | grep -c '^\\.reel' || true", 0, "");  /* nothing is left of trying */
    expect(NO_MODEL "a.pcm -o good", 3, "no/such/model"); /* and what can be written is not made */
    expect("test ! -e good", 0, "");
}

static void a_folder_for_transcripts_is_looked_at_before_the_work(void **state) {
    (void)state;
    expect(NO_MODEL "a.pcm -o x --output-dir y", 2, "--output and --output-dir exclude each other");
    expect(NO_MODEL "a.pcm --output-dir b.pcm", 4, "b.pcm");
    expect(NO_MODEL "a.pcm --output-dir no/such/folder", 4, "no/such/folder");
    expect("mkdir -p x && cp a.pcm x/a.raw; " NO_MODEL "a.pcm x/a.raw --output-dir texts", 2,
           "a.pcm and x/a.raw would both be written to texts/a.txt");
    expect("cp a.pcm x/a.txt; " NO_MODEL "x/a.txt --output-dir x", 2,
           "x/a.txt is one of the recordings");
    expect("mkdir -p x/a.srt; " NO_MODEL "a.pcm --format srt --output-dir x/", 2,
           "x/a.srt is a folder");
}

/* ---- what is stopped ---- */

static json_t *json_file(const char *name) {
    char line[100];
    snprintf(line, sizeof line, "cat %s", name);
    struct result r = shell(line);
    json_t *json = json_loads(r.out, 0, NULL);
    if (!json) fail_msg("%s is no JSON: %s", name, r.out);
    done(r);
    return json;
}

static void assert_file(const char *name, const char *text) {
    char line[100];
    snprintf(line, sizeof line, "cat %s", name);
    struct result r = shell(line);
    assert_string_equal(r.out, text);
    done(r);
}

/* All at once, for each has to wait until the two segments are surely transcribed. */
static void signals_leave_the_finished_segments_in_the_file(void **state) {
    (void)state;
    char line[2500];
    const char *const wait = SANITIZED ? "12" : "2.5";
    static const char run[] =
        "{ { cat two.pcm; sleep %s; } | timeout --preserve-status -s %s %s " LISTEN
        "--format %s -o part.%d - 2>said.%d; echo $? >status.%d; } & ";
    static const struct {
        const char *format, *signal;
    } runs[] = { { "text", "INT" },
                 { "json", "TERM" },
                 { "verbose_json", "HUP" },
                 { "srt", "TERM" },
                 { "vtt", "INT" } };
    size_t n = 0;
    for (int i = 0; i < 5; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, run, SANITIZED ? "13" : "4",
                              runs[i].signal, wait, runs[i].format, i, i, i);
    snprintf(line + n, sizeof line - n,
             "wait; cat status.* said.* >&2; test \"$(cat status.*)\" = "
             "\"$(printf '13\\n13\\n13\\n13\\n13')\"");
    expect(line, 0, "reel: part.0 holds a part of standard input: 2 segments, up to ");
    assert_file("part.0", SAID " " SAID "\n");
    json_t *json = json_file("part.1");
    assert_string_equal(json_string_value(json_object_get(json, "text")), SAID " " SAID);
    json_decref(json);
    json = json_file("part.2");
    assert_int_equal(json_array_size(json_object_get(json, "segments")), 2);
    json_decref(json);
    expect("grep -c -- '-->' part.3 | grep -qx 2 && tail -n 2 part.3 | grep -qx '" SAID "' && "
           "head -n 1 part.4 | grep -qx WEBVTT && grep -c -- '-->' part.4 | grep -qx 2",
           0, "");
}

#define LISTEN_F32 "reel transcribe -m demo-speech --device cpu --threads 2 -q --raw f32le "

static void a_failure_leaves_the_finished_segments_in_the_file(void **state) {
    (void)state;
    expect(LISTEN_F32 "broken.f32 -o part", 5, "reel: part holds a part of broken.f32: 2 segments");
    expect(LISTEN_F32 "broken.f32 -o part", 5, "not a finite number");
    assert_file("part", SAID " " SAID "\n");
    expect(LISTEN_F32 "broken.f32 --format srt >part.srt", 5, "standard output holds a part");
    expect("grep -c -- '-->' part.srt | grep -qx 2", 0, "");
}

static void where_nothing_is_finished_the_old_file_stays(void **state) {
    (void)state;
    expect("echo old >kept; " LISTEN "none.pcm -o kept", 3, "kept is left as it was");
    assert_file("kept", "old\n");
    expect(LISTEN "a.pcm -o kept", 0, "");
    assert_file("kept", SAID "\n");
}

static void what_is_no_file_is_written_to(void **state) {
    (void)state;
    struct result r = shell(LISTEN "a.pcm -o /dev/stdout | cat");
    assert_string_equal(r.out, SAID "\n");
    assert_int_equal(r.status, 0);
    done(r);
    /* standard output is a file here, which /dev/stdout leads to */
    r = shell(LISTEN "a.pcm -o /dev/stdout; test -L /dev/stdout");
    assert_string_equal(r.out, SAID "\n");
    assert_int_equal(r.status, 0);
    done(r);
    r = shell(LISTEN "a.pcm -o -");
    assert_string_equal(r.out, SAID "\n");
    done(r);
}

/* ---- several recordings ---- */

static const char both[] = "==> a.pcm <==\n" SAID "\n\n==> b.pcm <==\n" SAID "\n";

static void several_recordings_stand_under_their_names(void **state) {
    (void)state;
    struct result r = shell(LISTEN "a.pcm b.pcm");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, both);
    done(r);
    r = shell(LISTEN "--stream a.pcm b.pcm");
    assert_string_equal(r.out, both);
    done(r);
    expect(LISTEN "a.pcm b.pcm -o text", 0, "");
    assert_file("text", both);
}

static void several_recordings_are_one_list_in_json(void **state) {
    (void)state;
    expect(LISTEN "a.pcm none.pcm b.pcm --format json >list", 3, "1 of 3 recordings failed");
    expect(LISTEN "a.pcm none.pcm b.pcm --format json -o file", 3, "none.pcm: cannot open");
    expect("cmp list file", 0, "");
    json_t *list = json_file("list");
    assert_int_equal(json_array_size(list), 3);
    static const char *const names[] = { "a.pcm", "none.pcm", "b.pcm" };
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(one, "file")), names[i]);
        if (i == 1) {
            assert_null(json_object_get(one, "text"));
            assert_non_null(strstr(json_string_value(json_object_get(one, "error")), "none.pcm"));
        } else {
            assert_string_equal(json_string_value(json_object_get(one, "text")), SAID);
            assert_null(json_object_get(one, "error"));
        }
    }
    json_decref(list);
    expect(LISTEN "a.pcm b.pcm --format verbose_json -o file", 0, "");
    list = json_file("file");
    assert_int_equal(json_array_size(json_object_get(json_array_get(list, 1), "segments")), 1);
    json_decref(list);
    expect(LISTEN "a.pcm --format json -o file", 0, ""); /* one alone is what it is */
    list = json_file("file");
    assert_string_equal(json_string_value(json_object_get(list, "text")), SAID);
    assert_null(json_object_get(list, "file"));
    json_decref(list);
}

static void a_recording_that_fails_halfway_does_not_stop_the_others(void **state) {
    (void)state;
    expect("cp broken.f32 other.f32; " LISTEN_F32 "--format json broken.f32 other.f32 >list", 5,
           "2 of 2 recordings failed");
    json_t *list = json_file("list");
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(one, "text")), SAID " " SAID);
        assert_non_null(json_object_get(one, "error"));
    }
    json_decref(list);
}

static void a_folder_gets_a_file_for_each(void **state) {
    (void)state;
    expect("mkdir -p in.d && cp a.pcm in.d/.hidden && cp a.pcm in.d/c && " LISTEN
           "a.pcm none.pcm in.d/c in.d/.hidden - --output-dir texts <b.pcm >stdout",
           3, "1 of 5 recordings failed");
    expect("test \"$(ls -A texts | sort | tr '\\n' ' ')\" = '.hidden.txt a.txt c.txt "
           "standard-input.txt ' && test ! -s stdout && ls -A texts >&2",
           0, "");
    assert_file("texts/a.txt", SAID "\n");
    assert_file("texts/standard-input.txt", SAID "\n");
    expect(LISTEN "a.pcm b.pcm --format srt --output-dir texts", 0, "");
    expect("grep -q '^" SAID "' texts/a.srt && grep -q -- '-->' texts/b.srt", 0, "");
    expect(LISTEN_F32 "broken.f32 --format vtt --output-dir texts", 5,
           "texts/broken.vtt holds a part of broken.f32: 2 segments");
    expect("grep -c -- '-->' texts/broken.vtt | grep -qx 2", 0, "");
}

/* ---- several at once ---- */

/* What goes to standard output, standard error and `file` is the same for both lines. */
static void same_at_once(const char *listen, const char *words, int status) {
    char line[1000];
    snprintf(line, sizeof line,
             "rm -f file; %s%s >one 2>one.err; a=$?; cat file >>one 2>&1; rm -f file; "
             "%s--parallel 3 %s >three 2>three.err; b=$?; cat file >>three 2>&1; "
             "cmp one three >&2 && cmp one.err three.err >&2 && test $a = $b && exit $a; exit 99",
             listen, words, listen, words);
    expect(line, status, "");
}

static void several_at_once_come_out_as_one_after_the_other(void **state) {
    (void)state;
    same_at_once(LISTEN, "two.pcm none.pcm a.pcm b.pcm two.pcm a.pcm", 3);
    same_at_once(LISTEN, "two.pcm a.pcm b.pcm -o file", 0);
    expect("grep -c '" SAID "' file | grep -qx 3", 0, "");
    same_at_once(LISTEN_F32, "broken.f32 broken.f32", 5);
    if (sanitized_briefly()) return; /* the same way in other forms */
    same_at_once(LISTEN, "two.pcm none.pcm a.pcm b.pcm --format verbose_json", 3);
    same_at_once(LISTEN_F32, "broken.f32 broken.f32 --format json -o file", 5);
    same_at_once(LISTEN, "two.pcm none.pcm - b.pcm <a.pcm", 3);
    expect(LISTEN "--parallel 3 a.pcm b.pcm two.pcm --format srt --output-dir at-once", 0, "");
    expect("grep -c -- '-->' at-once/*.srt | tr '\n' ' ' | "
           "grep -qx 'at-once/a.srt:1 at-once/b.srt:1 at-once/two.srt:2 '",
           0, "");
    expect(LISTEN "--parallel 2 --stream a.pcm b.pcm", 2, "not for --stream and --mic");
}

/* The first recording never ends. */
static void what_is_finished_behind_the_first_one_is_kept(void **state) {
    (void)state;
    char line[500];
    snprintf(line, sizeof line,
             "{ cat two.pcm; sleep %s; } | timeout --preserve-status -s INT %s " LISTEN
             "--parallel 2 - a.pcm b.pcm -o kept",
             SANITIZED ? "13" : "4", SANITIZED ? "12" : "2.5");
    expect(line, REEL_E_CANCELLED, "reel: kept holds a part of standard input: 2 segments");
    assert_file("kept", "==> standard input <==\n" SAID " " SAID "\n\n==> a.pcm <==\n" SAID
                        "\n\n==> b.pcm <==\n" SAID "\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_written_is_refused_before_the_work),
        cmocka_unit_test(a_folder_for_transcripts_is_looked_at_before_the_work),
        cmocka_unit_test(signals_leave_the_finished_segments_in_the_file),
        cmocka_unit_test(a_failure_leaves_the_finished_segments_in_the_file),
        cmocka_unit_test(where_nothing_is_finished_the_old_file_stays),
        cmocka_unit_test(what_is_no_file_is_written_to),
        cmocka_unit_test(several_recordings_stand_under_their_names),
        cmocka_unit_test(several_recordings_are_one_list_in_json),
        cmocka_unit_test(a_recording_that_fails_halfway_does_not_stop_the_others),
        cmocka_unit_test(a_folder_gets_a_file_for_each),
        cmocka_unit_test(several_at_once_come_out_as_one_after_the_other),
        cmocka_unit_test(what_is_finished_behind_the_first_one_is_kept),
    };
    return cmocka_run_group_tests_name("where transcripts go", tests, enter, shell_leave);
}
