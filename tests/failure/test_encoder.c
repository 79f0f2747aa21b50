/* Speech models and the audio encoder when memory, files or threads fail: an error in words,
 * nothing leaked. */
#include "cpu/encoder.h"
#include "support/faults.h"
#include "tests/support/golden.h"

#include "model/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BINS   128
#define FRAMES 130

static struct golden_model model;

static int open_model(void **state) {
    (void)state;
    faults_install();
    golden_model_open(&model, "asr-a");
    return 0;
}

static int close_model(void **state) {
    (void)state;
    golden_model_close(&model);
    return 0;
}

static enum reel_status read_model(void *context, struct reel_error *err) {
    struct model_source source = { 0 };
    struct tensor_file file = { 0 };
    struct model_config config;
    struct weights weights = { 0 };
    (void)context;
    enum reel_status status = model_source_open(&source, model.folder, err);
    if (status == REEL_OK) status = model_config_read(&config, &source, err);
    if (status == REEL_OK) status = safetensors_open(&file, &source, err);
    if (status == REEL_OK) status = weights_map(&weights, &config, &file, false, err);
    weights_release(&weights);
    tensor_file_release(&file);
    model_source_release(&source);
    return status;
}

static enum reel_status encode(void *context, struct reel_error *err) {
    static const float features[BINS * FRAMES];
    static float out[64 * 17];
    const struct encoder_options options = { .cpu_path = context, .n_threads = 2 };
    struct encoder *e = NULL;
    enum reel_status status =
        encoder_open(&e, &model.config.audio, &model.weights.audio, &options, err);
    if (status == REEL_OK) status = encoder_run(e, features, FRAMES, out, err);
    encoder_close(e);
    return status;
}

static void a_speech_model_opens_whole_or_not_at_all(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "a speech model", .run = read_model };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

static void an_encoder_opens_and_runs_or_says_why(void **state) {
    (void)state;
    char reference[] = "reference";
    struct faults_sweep fast = { .name = "an encoder", .run = encode };
    struct faults_sweep plain = { .name = "its reference", .run = encode, .context = reference };
    faults_sweep(&fast, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&fast, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&fast, FAULT_THREAD, FAULT_ONCE);
    faults_sweep(&plain, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&plain, FAULT_ALLOC, FAULT_ONWARD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_speech_model_opens_whole_or_not_at_all),
        cmocka_unit_test(an_encoder_opens_and_runs_or_says_why),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
