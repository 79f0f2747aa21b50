/* Opening model files when memory or disks fail: an error in words, nothing leaked. */
#include "model/safetensors.h"
#include "model/weights.h"
#include "support/faults.h"
#include "support/model_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/reel-model-files-XXXXXX";
static char gguf_path[64];
static const char *const names[] = { "config.json", "generation_config.json", "first.safetensors",
                                     "model.safetensors.index.json", "m.gguf" };

static void write_file(const char *name, const void *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(file_write_atomic(path, bytes, n, NULL), REEL_OK);
}

static int make_files(void **state) {
    (void)state;
    faults_install();
    if (!mkdtemp(folder)) return -1;
    struct bytes b = { 0 };
    static const char generation[] = "{\"eos_token_id\":[1,2],\"do_sample\":true}";
    static const char index[] = "{\"weight_map\":{\"lm_head.weight\":\"first.safetensors\"}}";
    mini_safetensors(&b, &(struct mini){ .head = true });
    write_file(names[0], mini_llama_config, strlen(mini_llama_config));
    write_file(names[1], generation, strlen(generation));
    write_file(names[2], b.data, b.n);
    write_file(names[3], index, strlen(index));
    bytes_release(&b);
    mini_gguf(&b, &(struct mini){ .head = true });
    write_file(names[4], b.data, b.n);
    bytes_release(&b);
    snprintf(gguf_path, sizeof gguf_path, "%s/m.gguf", folder);
    return 0;
}

static int drop_files(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* All that src/model reads of a checkpoint, but tokenizer and template. */
static enum reel_status open_model(void *context, struct reel_error *err) {
    struct model_source source = { 0 };
    struct gguf gguf = { 0 };
    struct tensor_file file = { 0 };
    struct model_config config;
    struct weights weights = { 0 };
    enum reel_status status = model_source_open(&source, context, err);
    if (status == REEL_OK && source.is_gguf) {
        status = gguf_open(&gguf, &file, &source, err);
        if (status == REEL_OK) status = model_config_from_gguf(&config, &gguf, &file, err);
    } else if (status == REEL_OK) {
        status = model_config_read(&config, &source, err);
        if (status == REEL_OK) status = safetensors_open(&file, &source, err);
    }
    if (status == REEL_OK) status = weights_map(&weights, &config, &file, source.is_gguf, err);
    weights_release(&weights);
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    return status;
}

static void a_folder_opens_whole_or_not_at_all(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "a folder", .run = open_model, .context = folder };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

static void a_gguf_file_opens_whole_or_not_at_all(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "a GGUF file", .run = open_model, .context = gguf_path };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_opens_whole_or_not_at_all),
        cmocka_unit_test(a_gguf_file_opens_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
