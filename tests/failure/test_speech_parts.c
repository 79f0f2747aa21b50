/* Features, answers and subtitles when memory runs out. */
#include "asr/answer.h"
#include "asr/subtitles.h"
#include "audio/mel.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static int install(void **state) {
    (void)state;
    faults_install();
    return 0;
}

static void sweep(const char *name,
                  enum reel_status (*run)(void *context, struct reel_error *err)) {
    struct faults_sweep s = { .name = name, .run = run };
    faults_sweep(&s, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&s, FAULT_ALLOC, FAULT_ONWARD);
}

static enum reel_status make_features(void *context, struct reel_error *err) {
    static const float samples[5000];
    struct mel *m = NULL;
    (void)context;
    enum reel_status status = mel_open(&m, 2, err);
    for (int i = 0; i < 50 && status == REEL_OK; i++)
        status = mel_push(m, samples, 5000, err);
    if (status == REEL_OK) status = mel_finish(m, 0, err);
    mel_close(m);
    return status;
}

static void features_fail_whole(void **state) {
    (void)state;
    sweep("mel", make_features);
}

static enum reel_status read_answers(void *context, struct reel_error *err) {
    static const char raw[] = "language English<asr_text> again and again";
    const char *const languages[] = { "English",
                                      "a language with a name that no buffer begins with", "Thai" };
    struct asr_answer a;
    char *all = NULL;
    (void)context;
    enum reel_status status = asr_answer_read(&a, raw, sizeof raw - 1, NULL, err);
    asr_answer_release(&a);
    if (status == REEL_OK) status = asr_answer_read(&a, raw, sizeof raw - 1, "Thai", err);
    if (status == REEL_OK) status = asr_answer_languages(&all, languages, 3, err);
    asr_answer_release(&a);
    free(all);
    return status;
}

static void answers_fail_whole(void **state) {
    (void)state;
    sweep("asr_answer", read_answers);
}

static enum reel_status write_subtitles(void *context, struct reel_error *err) {
    const struct subtitle segments[] = { { 0, 1, "one -->\n\n & <two>" },
                                         { 1, 2, "" },
                                         { 2, 3, "c" } };
    const struct subtitles_whole whole = { "one c", "English", 3 };
    struct subtitles s;
    char *out = NULL;
    enum reel_status status = subtitles_start(&s, *(enum subtitle_format *)context, err);
    for (int i = 0; i < 30 && status == REEL_OK; i++)
        status = subtitles_add(&s, segments + i % 3, err);
    if (status == REEL_OK) status = subtitles_finish(&s, &whole, &out, NULL, err);
    subtitles_release(&s);
    free(out);
    return status;
}

static void subtitles_fail_whole(void **state) {
    (void)state;
    for (int i = 0; i < SUBTITLES_FORMATS; i++) {
        enum subtitle_format format = (enum subtitle_format)i;
        struct faults_sweep s = { .name = subtitles_format_name(format),
                                  .run = write_subtitles,
                                  .context = &format };
        faults_sweep(&s, FAULT_ALLOC, FAULT_ONCE);
        faults_sweep(&s, FAULT_ALLOC, FAULT_ONWARD);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_fail_whole),
        cmocka_unit_test(answers_fail_whole),
        cmocka_unit_test(subtitles_fail_whole),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
