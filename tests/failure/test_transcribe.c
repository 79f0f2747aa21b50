/* From a sound file to its transcript with memory or files failing, and without memory taken for
 * each token. */
#include "reel_measure.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char root[40], folder[64], recording[64];
static struct reel_model *model;

/* 1.3 s of 16-bit noise as raw samples. */
static bool write_recording(void) {
    FILE *f = fopen(recording, "wb");
    uint32_t state = 7;
    if (!f) return false;
    for (int i = 0; i < 20800; i++) {
        state = state * 1664525u + 1013904223u;
        unsigned char bytes[2] = { (unsigned char)(state >> 16), (unsigned char)(state >> 26) };
        if (fwrite(bytes, 2, 1, f) != 1) break;
    }
    return fclose(f) == 0;
}

static int enter(void **state) {
    (void)state;
    faults_install();
    strcpy(root, "/tmp/reel-faults-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/model", root);
    snprintf(recording, sizeof recording, "%s/recording", root);
    struct reel_model_options options = { .size = sizeof options, .device = "cpu", .n_threads = 1 };
    struct reel_error err = { 0 };
    enum reel_status status =
        reel_synthesize(folder, "tests/golden/models/asr-a.json", 1, NULL, NULL, &err);
    if (status == REEL_OK) status = reel_model_open(&model, folder, &options, &err);
    if (status != REEL_OK) print_error("%s\n", err.text);
    return status == REEL_OK && write_recording() ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    char command[100];
    reel_model_close(model);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

static struct reel_transcriber_options options(int max_tokens) {
    return (struct reel_transcriber_options){ .size = sizeof(struct reel_transcriber_options),
                                              .context = "names",
                                              .segment_seconds = 1,
                                              .past_text = true,
                                              .max_tokens = max_tokens };
}

static enum reel_status push_file(struct reel_transcriber *t, struct reel_error *err) {
    static float samples[16000];
    const struct reel_audio_options raw = { .size = sizeof raw, .encoding = REEL_AUDIO_S16LE };
    struct reel_audio *audio = NULL;
    size_t n = 1;
    enum reel_status status = reel_audio_open(&audio, recording, &raw, err);
    while (status == REEL_OK && n > 0) {
        status = reel_audio_read(audio, samples, 16000, &n, err);
        if (status == REEL_OK && n > 0) status = reel_transcriber_push(t, samples, n, err);
    }
    reel_audio_close(audio);
    return status;
}

static bool take_text(void *user, const char *text, size_t n, int segment) {
    (void)user, (void)text, (void)n, (void)segment;
    return true;
}

/* context: not NULL for steps while it is spoken. */
static enum reel_status file_to_text(void *context, struct reel_error *err) {
    struct reel_transcriber *t = NULL;
    struct reel_transcript made = { .size = sizeof made };
    struct reel_transcriber_options set = options(5);
    char *text = NULL;
    size_t n = 0;
    if (context) {
        set.stream_seconds = 0.5;
        set.on_text = set.on_partial = take_text;
        set.skip_silence = true;
        set.language = "en"; /* so that there is text without a tag */
    }
    enum reel_status status = reel_transcriber_open(&t, model, &set, err);
    if (status == REEL_OK) status = push_file(t, err);
    if (status == REEL_OK) status = reel_transcriber_finish(t, &made, err);
    for (int format = REEL_TRANSCRIPT_TEXT; format <= REEL_TRANSCRIPT_VTT && status == REEL_OK;
         format++) {
        status = reel_transcript_text(&made, (enum reel_transcript_format)format, &text, &n, err);
        reel_free(text);
        text = NULL;
    }
    reel_transcriber_close(t);
    return status;
}

static void every_failing_allocation_ends_in_words(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "allocations", .run = file_to_text, .most = 400 };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static void every_failing_allocation_of_a_stream_ends_in_words(void **state) {
    (void)state;
    bool steps = true;
    struct faults_sweep sweep = {
        .name = "allocations of a stream", .run = file_to_text, .context = &steps, .most = 400
    };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static void every_failing_file_call_ends_in_words(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "files", .run = file_to_text, .may_succeed = true };
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

#define N_TOKENS 40

/* The progress callback comes once a token, and last of all for the last one. */
struct watch {
    int n_calls, begin, end;
    long n_allocations;
};

static bool watch_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct watch *w = user;
    (void)stage, (void)done, (void)total;
    w->n_calls++;
    if (w->n_calls == w->begin) faults_guard_begin();
    if (w->n_calls == w->end) w->n_allocations = faults_guard_end();
    return true;
}

static void a_segments_tokens_take_no_memory(void **state) {
    (void)state;
    struct watch watch = { .n_allocations = -1 };
    struct reel_transcriber_options set = options(N_TOKENS);
    struct reel_transcriber *t = NULL;
    struct reel_error err = { 0 };
    static float samples[12000];
    for (int i = 0; i < 12000; i++)
        samples[i] = (float)(i * 7919 % 1000 - 500) / 1000;
    set.on_text = take_text;
    set.progress = watch_progress;
    set.progress_user = set.user = &watch;
    if (reel_transcriber_open(&t, model, &set, &err) != REEL_OK) fail_msg("%s", err.text);
    for (int round = 0; round < 3; round++) { /* the first reads the prompt's beginning, too */
        struct reel_transcript made = { .size = sizeof made };
        enum reel_status status = reel_transcriber_push(t, samples, 12000, &err);
        if (status == REEL_OK) status = reel_transcriber_finish(t, &made, &err);
        if (status != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(made.n_tokens, N_TOKENS);
        watch.begin = round == 1 ? watch.n_calls - N_TOKENS + 1 : 0;
        watch.end = round == 1 ? watch.n_calls : 0;
        watch.n_calls = 0;
    }
    assert_int_equal(watch.n_allocations, 0);
    reel_transcriber_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_ends_in_words),
        cmocka_unit_test(every_failing_allocation_of_a_stream_ends_in_words),
        cmocka_unit_test(every_failing_file_call_ends_in_words),
        cmocka_unit_test(a_segments_tokens_take_no_memory),
    };
    return cmocka_run_group_tests_name("transcribing under failing calls", tests, enter, leave);
}
