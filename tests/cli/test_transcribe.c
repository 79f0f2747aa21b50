/* reel transcribe as a user meets it, on a miniature model of random weights, whose words mean
 * nothing. Recordings are bytes of the demo model: noise. */
#include "base/json.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The header of one second of 16-bit mono at 16,000 Hz, for printf. */
#define WAV_HEADER                                                                                 \
    "'RIFF\\044\\175\\000\\000WAVEfmt \\020\\000\\000\\000\\001\\000\\001\\000"                    \
    "\\200\\076\\000\\000\\000\\175\\000\\000\\002\\000\\020\\000data\\000\\175\\000\\000'"
#define REEL "reel transcribe -m speech -n 6 --device cpu "

/* The first clip of models/speech's golden as raw 16-bit samples. */
enum { SPOKEN = 13916 };
#define SAID   "go left"
#define LISTEN "reel transcribe -m demo-speech --device cpu --raw s16le "

static bool read_spoken(int16_t *samples) {
    FILE *in = fopen("models/speech/golden.ulaw", "rb");
    unsigned char codes[SPOKEN];
    const size_t n = in ? fread(codes, 1, SPOKEN, in) : 0;
    if (in) fclose(in);
    for (size_t i = 0; i < n; i++) { /* mu-law of 14 bits */
        const int bits = codes[i] ^ 0xff, size = ((2 * (bits & 15) + 33) << (bits >> 4 & 7)) - 33;
        samples[i] = (int16_t)(4 * (bits & 0x80 ? -size : size));
    }
    return n == SPOKEN;
}

static int enter(void **state) {
    char shape[500], line[1500];
    int16_t spoken[SPOKEN];
    if (!read_spoken(spoken) || !getcwd(shape, sizeof shape) || shell_enter(state) != 0) return -1;
    shell_file("spoken.pcm", spoken, sizeof spoken);
    snprintf(line, sizeof line,
             "reel synthesize speech '%.400s/tests/golden/models/asr-a.json' --seed 1 && "
             "head -c 96000 \"$DEMO\"/model.safetensors >noise && "
             "head -c 32000 noise >one.pcm && tail -c 32000 noise >two.pcm && "
             "{ printf " WAV_HEADER "; cat one.pcm; } >one.wav && "
             "{ printf " WAV_HEADER "; cat two.pcm; } >two.wav",
             shape);
    expect(line, 0, "");
    return 0;
}

static void the_model_inside_the_program_writes_down_what_is_said(void **state) {
    (void)state;
    struct result r = shell(LISTEN "spoken.pcm");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, SAID "\n");
    done(r);
}

static void text_goes_to_standard_output_and_figures_do_not(void **state) {
    (void)state;
    struct result r = shell(REEL "one.wav");
    assert_int_equal(r.status, 0);
    assert_true(strlen(r.out) > 1);
    assert_ptr_equal(strchr(r.out, '\n'), r.out + strlen(r.out) - 1);
    assert_non_null(strstr(r.err, "one.wav: 1.0 s of audio in "));
    assert_non_null(strstr(r.err, "x real time"));
    assert_null(strstr(r.err, "\r"));
    done(r);
    r = shell(REEL "-q one.wav");
    assert_null(strstr(r.err, "real time"));
    done(r);
}

static void a_file_standard_input_and_raw_samples_give_the_same_text(void **state) {
    (void)state;
    expect(REEL "one.wav >a && cat one.wav | " REEL "- >b && " REEL "--raw s16le one.pcm >c && cat "
                "one.pcm | " REEL
                "--raw s16le --rate 16000 --channels 1 - >d && cmp a b && cmp a c "
                "&& cmp a d",
           0, "-: 1.0 s of audio");
    expect(REEL "--raw f32le one.pcm", 2, "");
}

static json_t *json_of(const char *line) {
    struct result r = shell(line);
    json_t *object = json_loads(r.out, 0, NULL);
    assert_int_equal(r.status, 0);
    assert_non_null(object);
    done(r);
    return object;
}

static void formats_are_what_their_names_say(void **state) {
    (void)state;
    json_t *plain = json_of(REEL "--format json one.wav");
    assert_true(json_is_string(json_object_get(plain, "text")));
    json_decref(plain);
    json_t *verbose = json_of(REEL "--format verbose_json one.wav --language fr");
    assert_string_equal(json_string_value(json_object_get(verbose, "language")), "french");
    assert_true(json_number_value(json_object_get(verbose, "duration")) == 1);
    assert_int_equal(json_array_size(json_object_get(verbose, "segments")), 1);
    json_decref(verbose);
    struct result r = shell(REEL "--format srt one.wav");
    assert_non_null(strstr(r.out, "1\n00:00:00,000 --> 00:00:01,000\n"));
    done(r);
    r = shell(REEL "--format vtt one.wav");
    assert_memory_equal(r.out, "WEBVTT\n", 7);
    done(r);
}

static void long_recordings_are_cut_into_segments(void **state) {
    (void)state;
    json_t *all = json_of(REEL "--format verbose_json --raw s16le --segment 1 noise");
    size_t n = json_array_size(json_object_get(all, "segments"));
    assert_in_range(n, 2, 6);
    json_decref(all);
}

static void output_goes_to_a_file_when_one_is_named(void **state) {
    (void)state;
    struct result r = shell(REEL "one.wav two.wav >direct 2>/dev/null; " REEL
                                 "-o text one.wav two.wav && cmp text direct && ls");
    assert_int_equal(r.status, 0);
    assert_null(strstr(r.out, "text.")); /* nothing half written beside it */
    done(r);
    expect(REEL "-o no/such/folder/text one.wav", 4, "no/such/folder");
}

static void a_recording_that_cannot_be_read_does_not_stop_the_others(void **state) {
    (void)state;
    struct result r = shell(REEL "one.wav none.wav two.wav");
    assert_int_equal(r.status, 3);
    assert_non_null(strstr(r.err, "reel: none.wav: "));
    assert_non_null(strstr(r.err, "two.wav: 1.0 s of audio"));
    assert_non_null(strstr(r.out, "==> one.wav <==\n"));
    assert_null(strstr(r.out, "none.wav"));
    assert_non_null(strstr(r.out, "\n\n==> two.wav <==\n"));
    assert_non_null(strstr(r.err, "1 of 3 recordings failed"));
    done(r);
    expect(REEL "none.wav", 3, "none.wav");
    expect("echo hello >hello.wav; " REEL "hello.wav", 5, "hello.wav");
}

static void empty_and_truncated_recordings_have_results(void **state) {
    (void)state;
    struct result r = shell("head -c 0 one.pcm | " REEL "--raw s16le -");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "\n");
    done(r);
    expect("head -c 20000 one.wav >short.wav; " REEL "short.wav", 0, "short.wav: 0.6 s of audio");
    expect(REEL "short.wav", 0, "reel: short.wav");
}

static void a_stream_says_what_the_whole_recording_says(void **state) {
    (void)state;
    const char *const lines[] = {
        LISTEN "--stream --chunk 0.5 spoken.pcm",
        "cat spoken.pcm | " LISTEN "--stream -",
        "{ head -c 20001 spoken.pcm; sleep 0.2; tail -c +20002 spoken.pcm; } | " LISTEN
        "--stream --chunk 0.5 -",
        LISTEN "--stream --skip-silence spoken.pcm",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct result r = shell(lines[i]);
        assert_int_equal(r.status, 0);
        assert_string_equal(r.out, SAID "\n");
        assert_non_null(strstr(r.err, " step"));
        assert_null(strchr(r.err, '\033'));
        done(r);
    }
    expect(LISTEN "--stream --format srt spoken.pcm >srt && grep -q '" SAID "' srt && "
                  "grep -q '00:00:00,000 --> 00:00:00,870' srt",
           0, "");
}

/* What was said before the silence is written while the input is still open. */
static void text_comes_before_the_input_ends(void **state) {
    (void)state;
    expect("mkfifo sound && { { cat spoken.pcm; head -c 96000 /dev/zero; sleep 1; cp early seen; } "
           ">sound & } && " LISTEN "--stream --skip-silence --chunk 0.5 - <sound >early && wait && "
           "test \"$(cat seen)\" = '" SAID "'",
           0, ", median ");
}

static void silence_is_left_out_when_asked(void **state) {
    (void)state;
    expect("{ head -c 160000 /dev/zero; cat spoken.pcm; head -c 160000 /dev/zero; } >long.pcm", 0,
           "");
    json_t *all = json_of(LISTEN "--format verbose_json --skip-silence long.pcm");
    const json_t *segments = json_object_get(all, "segments");
    assert_int_equal(json_array_size(segments), 1);
    const json_t *one = json_array_get(segments, 0);
    assert_string_equal(json_string_value(json_object_get(one, "text")), SAID);
    const double start = json_number_value(json_object_get(one, "start")),
                 end = json_number_value(json_object_get(one, "end"));
    assert_true(start > 4.6 && start < 5.2 && end > 5.8 && end < 6.5);
    assert_true(json_number_value(json_object_get(all, "duration")) > 10.8);
    json_decref(all);
    expect("head -c 64000 /dev/zero | " LISTEN
           "--skip-silence - >none && test \"$(wc -c <none)\" = 1",
           0, "2.0 s of audio");
}

static void mistakes_are_answered_in_words(void **state) {
    (void)state;
    expect("reel transcribe", 2, "usage: reel transcribe FILE...");
    expect("reel transcribe one.wav", 3, "reel pull Qwen/Qwen3-ASR-0.6B");
    expect("reel transcribe -m demo one.wav", 6, "does not hear");
    expect(REEL "- -", 2, "standard input (-) is given 2 times");
    expect(REEL "--format srt one.wav two.wav", 2, "subtitles are of one recording");
    expect(REEL "--rate 8000 one.wav", 2, "--raw");
    expect(REEL "--language Klingon one.wav", 2, "none of Chinese, English");
    expect(REEL "--segment 0 one.wav", 2, "--segment");
    expect(REEL "--stream --segment 56 one.wav", 2, "at most 55 s");
    expect(REEL "--stream --chunk 0.4 one.wav", 2, "--chunk");
    expect(REEL "--chunk 2 one.wav", 2, "--chunk is for --stream");
    expect(REEL "--format xml one.wav", 2, "text json verbose_json srt vtt");
    expect("reel run speech -p x -n 1 --device cpu", 0, "");
}

static void ctrl_c_ends_the_wait_for_a_live_input(void **state) {
    (void)state;
    expect("sleep 1 | timeout --foreground --preserve-status -s INT 0.5 " REEL "--raw s16le -", 13,
           "cancelled");
}

static void ctrl_c_ends_a_live_stream_and_its_text_is_written(void **state) {
    (void)state;
    /* In the foreground: else timeout signals the program and its group, which is the program
     * twice, and the second Ctrl-C cancels. */
    struct result r = shell(
        "{ cat spoken.pcm; sleep 10; } | timeout --foreground --preserve-status -s INT 8 " LISTEN
        "--stream --format json -");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, SAID));
    assert_non_null(strstr(r.err, "0.9 s of audio"));
    done(r);
}

static void an_output_that_fails_is_reported(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    expect(REEL "one.wav >/dev/full", REEL_E_IO, "writing to standard output failed");
    expect(LISTEN "--stream spoken.pcm >/dev/full", REEL_E_IO, "writing to standard output failed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_inside_the_program_writes_down_what_is_said),
        cmocka_unit_test(text_goes_to_standard_output_and_figures_do_not),
        cmocka_unit_test(a_file_standard_input_and_raw_samples_give_the_same_text),
        cmocka_unit_test(formats_are_what_their_names_say),
        cmocka_unit_test(long_recordings_are_cut_into_segments),
        cmocka_unit_test(output_goes_to_a_file_when_one_is_named),
        cmocka_unit_test(a_recording_that_cannot_be_read_does_not_stop_the_others),
        cmocka_unit_test(empty_and_truncated_recordings_have_results),
        cmocka_unit_test(a_stream_says_what_the_whole_recording_says),
        cmocka_unit_test(text_comes_before_the_input_ends),
        cmocka_unit_test(silence_is_left_out_when_asked),
        cmocka_unit_test(mistakes_are_answered_in_words),
        cmocka_unit_test(ctrl_c_ends_the_wait_for_a_live_input),
        cmocka_unit_test(ctrl_c_ends_a_live_stream_and_its_text_is_written),
        cmocka_unit_test(an_output_that_fails_is_reported),
    };
    return cmocka_run_group_tests_name("reel transcribe", tests, enter, shell_leave);
}
