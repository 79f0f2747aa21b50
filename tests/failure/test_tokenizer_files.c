/* Tokenizers and their cache when memory or files fail. */
#include "model/model.h"
#include "reel_measure.h"
#include "support/faults.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SHAPE "tests/golden/models/q3-a.json"

static char root[] = "/tmp/reel-faults-XXXXXX";
static char folder[64];
static char cache[64];

static void remove_tree(const char *path) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) print_message("%s stays\n", path);
}

static int entries(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir) return -1;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) n++;
    closedir(dir);
    return n;
}

static int make_files(void **state) {
    (void)state;
    faults_install();
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/model", root);
    snprintf(cache, sizeof cache, "%s/cache", root);
    if (mkdir(cache, 0755) != 0) return -1;
    return reel_synthesize(folder, SHAPE, 1, NULL, NULL, NULL) == REEL_OK ? 0 : -1;
}

static int drop_files(void **state) {
    (void)state;
    remove_tree(root);
    return 0;
}

static void sweep_all(const struct faults_sweep *sweep) {
    faults_sweep(sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(sweep, FAULT_IO, FAULT_ONWARD);
}

static enum reel_status load_tokenizer(void *context, struct reel_error *err) {
    const char *cache_dir = context;
    struct model_source source = { 0 };
    struct reel_tokenizer *tok = NULL;
    enum reel_status status = model_source_open(&source, folder, err);
    if (status == REEL_OK) status = tokenizer_load(&tok, &source, NULL, cache_dir, err);
    tokenizer_close(tok);
    model_source_release(&source);
    return status;
}

static void a_tokenizer_survives_every_failing_call(void **state) {
    (void)state;
    sweep_all(&(struct faults_sweep){ .name = "tokenizer", .run = load_tokenizer });
}

/* A run that fails may leave a cache file, never half of one: the next start must do without error,
 * and what is there must be the file or nothing. */
static void check_cache(void *context, enum reel_status status) {
    (void)status;
    const char *cache_dir = context;
    assert_true(entries(cache_dir) <= 1);
    struct reel_error err = { 0 };
    if (load_tokenizer(context, &err) != REEL_OK) fail_msg("after a failing run: %s", err.text);
    remove_tree(cache_dir);
    assert_int_equal(mkdir(cache_dir, 0755), 0);
}

static void a_tokenizer_cache_is_written_whole_or_not_at_all(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "tokenizer with an empty cache",
                                  .run = load_tokenizer,
                                  .context = cache,
                                  .check = check_cache,
                                  .may_succeed = true };
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_SHORT);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
}

static void a_tokenizer_cache_is_read_or_done_without(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "tokenizer with a full cache",
                                  .run = load_tokenizer,
                                  .context = cache,
                                  .may_succeed = true };
    assert_int_equal(load_tokenizer(cache, NULL), REEL_OK);
    sweep_all(&sweep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tokenizer_survives_every_failing_call),
        cmocka_unit_test(a_tokenizer_cache_is_written_whole_or_not_at_all),
        cmocka_unit_test(a_tokenizer_cache_is_read_or_done_without),
    };
    return cmocka_run_group_tests_name("tokenizer files under failing calls", tests, make_files,
                                       drop_files);
}
