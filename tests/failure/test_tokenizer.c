/* Loading and encoding when memory or files fail. */
#include "base/file_map.h"
#include "model/tokenizer.h"
#include "support/faults.h"
#include "support/small_tokenizer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/reel-faults-XXXXXX";
static char cache[64];
static struct reel_tokenizer *small;

static void empty_cache(void) {
    DIR *d = opendir(cache);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));)
        unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
}

static int make_folder(void **state) {
    (void)state;
    char path[64];
    struct buffer json = { 0 };
    struct reel_error err;
    faults_install();
    if (!mkdtemp(folder)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    small_tokenizer_json(&json);
    enum reel_status status = file_write_atomic(path, json.bytes, json.size, &err);
    if (status == REEL_OK) status = reel_tokenizer_open(&small, folder, NULL, &err);
    buffer_release(&json);
    return status == REEL_OK ? 0 : -1;
}

static int drop_folder(void **state) {
    (void)state;
    char path[64];
    reel_tokenizer_close(small);
    empty_cache();
    rmdir(cache);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    unlink(path);
    return rmdir(folder);
}

static enum reel_status open_fresh(void *context, struct reel_error *err) {
    struct reel_tokenizer *tok;
    const char *cache_dir = context;
    if (cache_dir) empty_cache();
    enum reel_status status = reel_tokenizer_open(&tok, folder, cache_dir, err);
    if (status == REEL_OK) reel_tokenizer_close(tok);
    return status;
}

static enum reel_status open_cached(void *context, struct reel_error *err) {
    struct reel_tokenizer *tok;
    enum reel_status status = reel_tokenizer_open(&tok, folder, context, err);
    if (status == REEL_OK) reel_tokenizer_close(tok);
    return status;
}

/* Crosses every place that allocates: joined pieces, composing, a long word, many ids. */
static enum reel_status encode(void *context, struct reel_error *err) {
    (void)context;
    static const char word[] = "hellohellohellohellohellohellohellohellohellohellohellohello";
    const struct text_piece pieces[] = {
        { "hello e\xcc\x81 e\xcc\x81\xcc\xa7 ", 15, false },
        { word, sizeof word - 1, true },
        { "<|end|> 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9", 45, true },
    };
    int32_t *ids;
    size_t n;
    enum reel_status status = tokenizer_encode(small, pieces, 3, &ids, &n, err);
    if (status == REEL_OK) free(ids);
    return status;
}

static void loading_survives_every_failing_allocation(void **state) {
    (void)state;
    const struct faults_sweep sweep = { .name = "open a tokenizer", .run = open_fresh };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static void loading_survives_every_failing_read(void **state) {
    (void)state;
    const struct faults_sweep sweep = { .name = "open a tokenizer", .run = open_fresh };
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
}

static void a_cache_that_fails_at_any_call_is_only_slower(void **state) {
    (void)state;
    const struct faults_sweep fresh = {
        .name = "open a tokenizer and write its cache",
        .run = open_fresh,
        .context = cache,
        .may_succeed = true,
    };
    const struct faults_sweep cached = {
        .name = "open a cached tokenizer",
        .run = open_cached,
        .context = cache,
        .may_succeed = true,
    };
    faults_sweep(&fresh, FAULT_IO, FAULT_ONCE);
    faults_sweep(&fresh, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&cached, FAULT_IO, FAULT_ONCE);
    faults_sweep(&cached, FAULT_ALLOC, FAULT_ONCE);
}

static void encoding_survives_every_failing_allocation(void **state) {
    (void)state;
    const struct faults_sweep sweep = { .name = "encode", .run = encode };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_survives_every_failing_allocation),
        cmocka_unit_test(loading_survives_every_failing_read),
        cmocka_unit_test(a_cache_that_fails_at_any_call_is_only_slower),
        cmocka_unit_test(encoding_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
