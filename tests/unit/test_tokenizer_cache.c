/* The binary cache: the same tokenizer, fast, and nothing from a file that is not what it should
 * be. */
#include "model/tokenizer.h"
#include "model/tokenizer_tables.h"
#include "support/fixtures.h"
#include "support/small_tokenizer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char cache[] = "/tmp/reel-cache-XXXXXX";
static struct buffer json;

static int open_cache(void **state) {
    (void)state;
    small_tokenizer_json(&json);
    return mkdtemp(cache) ? 0 : -1;
}

/* Path of the only file in the cache, or "" when it is empty. */
static void cache_file(char *path, size_t room) {
    DIR *folder = opendir(cache);
    int found = 0;
    path[0] = '\0';
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            snprintf(path, room, "%s/%.200s", cache, entry->d_name);
            found++;
        }
    closedir(folder);
    assert_true(found <= 1);
}

static void empty_cache(void) {
    char path[256];
    cache_file(path, sizeof path);
    if (path[0]) unlink(path);
}

static int close_cache(void **state) {
    (void)state;
    empty_cache();
    buffer_release(&json);
    return rmdir(cache);
}

static struct reel_tokenizer *load(const char *folder) {
    const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
    struct model_source source = { 0 };
    struct reel_tokenizer *tok = NULL;
    struct reel_error err;
    if (model_source_open_memory(&source, "memory", &file, 1, &err) != REEL_OK ||
        tokenizer_load(&tok, &source, NULL, folder, &err) != REEL_OK)
        fail_msg("%s", err.text);
    model_source_release(&source);
    return tok;
}

static void expect_hello(const struct reel_tokenizer *tok) {
    int32_t ids[8];
    size_t n;
    struct reel_error err;
    const char text[] = "hello hello<|end|>\xc3\xa9";
    assert_int_equal(reel_encode(tok, text, sizeof text - 1, REEL_ENCODE_CONTROL, ids, 8, &n, &err),
                     REEL_OK);
    assert_int_equal(n, 5);
    assert_int_equal(ids[0], 259);
    assert_int_equal(ids[1], 260);
    assert_int_equal(ids[2], 261);
}

static bool from_cache(const struct reel_tokenizer *tok) { return tok->file.mapped; }

static void the_second_start_comes_from_the_cache_and_is_the_same(void **state) {
    (void)state;
    struct reel_tokenizer *first = load(cache), *second = load(cache);
    assert_false(from_cache(first));
    assert_true(from_cache(second));
    assert_memory_equal(first->block, second->file.bytes, second->file.size);
    expect_hello(first);
    expect_hello(second);
    tokenizer_close(first);
    tokenizer_close(second);
    empty_cache();
}

static void a_changed_source_is_not_answered_from_the_cache(void **state) {
    (void)state;
    tokenizer_close(load(cache));
    replace_once(&json, "<|end|>", "<|fin|>");
    struct reel_tokenizer *tok = load(cache);
    assert_false(from_cache(tok));
    assert_int_equal(tokenizer_find_added(tok, "<|fin|>"), 261);
    tokenizer_close(tok);
    replace_once(&json, "<|fin|>", "<|end|>");
    DIR *folder = opendir(cache); /* two sources, two files */
    for (struct dirent *entry; (entry = readdir(folder));)
        unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_file_is_ignored_and_replaced(void **state) {
    (void)state;
    struct reel_tokenizer *good = load(cache);
    size_t n = good->block_bytes;
    unsigned char *bytes = malloc(n);
    char path[256];
    assert_non_null(bytes);
    memcpy(bytes, good->block, n);
    tokenizer_close(good);
    cache_file(path, sizeof path);
    const size_t stride = n / 25 + 1;
    for (size_t at = 0; at < n; at += at < sizeof(struct tables_header) ? 1 : stride) {
        bytes[at] ^= 0x10;
        write_file(path, bytes, n);
        bytes[at] ^= 0x10;
        struct reel_tokenizer *tok = load(cache);
        assert_false(from_cache(tok));
        expect_hello(tok);
        tokenizer_close(tok);
    }
    for (size_t cut = 0; cut < n; cut += cut < 4 ? 1 : stride) {
        write_file(path, bytes, cut);
        struct reel_tokenizer *tok = load(cache);
        assert_false(from_cache(tok));
        expect_hello(tok);
        tokenizer_close(tok);
    }
    struct reel_tokenizer *tok = load(cache); /* each of them was replaced by a good one */
    assert_true(from_cache(tok));
    tokenizer_close(tok);
    free(bytes);
    empty_cache();
}

/* A file written to deceive has a right checksum. Whatever is in it, nothing may be read outside,
 * and every look-up must end. */
static void a_forged_file_is_refused_or_harmless(void **state) {
    (void)state;
    struct reel_tokenizer *good = load(NULL);
    size_t n = good->block_bytes;
    unsigned char *bytes = malloc(n);
    uint64_t random = 1;
    assert_non_null(bytes);
    int accepted = 0;
    for (int round = 0; round < 3000; round++) {
        memcpy(bytes, good->block, n);
        struct tables_header *head = (struct tables_header *)(void *)bytes;
        for (int k = 0; k < 1 + round % 3; k++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            size_t at = (size_t)(random >> 33) % n;
            if (round % 4 == 0) at = offsetof(struct tables_header, nfc) + at % 40;
            bytes[at] = (unsigned char)(random >> 24);
        }
        head->total_bytes = n;
        tables_sign(head, good->head.source);
        struct reel_tokenizer forged = { 0 };
        if (!tables_attach(&forged, bytes, n, good->head.source) ||
            tables_compile(&forged, "forged", NULL) != REEL_OK)
            continue;
        accepted++;
        int32_t ids[64];
        size_t n_ids;
        struct reel_error err;
        const char text[] = "hello hello he ll<|end|> \xc3\xa9 <think>";
        enum reel_status status =
            reel_encode(&forged, text, sizeof text - 1, REEL_ENCODE_CONTROL, ids, 64, &n_ids, &err);
        assert_int_equal(status, REEL_OK);
        for (int32_t id = 0; id < tokenizer_size(&forged); id++) {
            size_t n_bytes;
            const char *text_of = tokenizer_bytes(&forged, id, &n_bytes);
            if (text_of && n_bytes) tokenizer_find(&forged, text_of, n_bytes);
        }
        split_plan_release(&forged.plan);
    }
    assert_true(accepted > 0); /* or the test above would look at nothing */
    free(bytes);
    tokenizer_close(good);
}

static void tables_without_an_empty_slot_are_refused(void **state) {
    (void)state;
    struct reel_tokenizer *tok = load(NULL), forged = { 0 };
    struct tables_header *head = tok->block;
    uint64_t *words = (uint64_t *)(uintptr_t)tok->word_slots;
    for (size_t i = 0; i < (size_t)1 << head->word_bits; i++)
        if (words[i] == 0) words[i] = 1;
    tables_sign(head, tok->head.source);
    assert_false(tables_attach(&forged, tok->block, tok->block_bytes, tok->head.source));
    tokenizer_close(tok);
}

static void a_cache_that_cannot_be_written_fails_nothing(void **state) {
    (void)state;
    struct reel_tokenizer *tok = load("/proc/no/such/folder");
    expect_hello(tok);
    tokenizer_close(tok);
}

static double open_ms(const char *path) {
    struct timespec a, b;
    struct reel_tokenizer *tok;
    struct reel_error err;
    clock_gettime(CLOCK_MONOTONIC, &a);
    if (reel_tokenizer_open(&tok, path, cache, &err) != REEL_OK) fail_msg("%s", err.text);
    clock_gettime(CLOCK_MONOTONIC, &b);
    reel_tokenizer_close(tok);
    return (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
}

static void a_cached_start_of_qwen3_takes_a_fraction_of_the_first(void **state) {
    (void)state;
    const char *path = fixture_tokenizer("qwen3");
    assert_non_null(path);
    double first = open_ms(path), best = first;
    for (int i = 0; i < 5; i++) {
        double ms = open_ms(path);
        if (ms < best) best = ms;
    }
    print_message("first start %.1f ms, cached %.1f ms\n", first, best);
    assert_true(best < first / 2);
    empty_cache();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_start_comes_from_the_cache_and_is_the_same),
        cmocka_unit_test(a_changed_source_is_not_answered_from_the_cache),
        cmocka_unit_test(a_damaged_file_is_ignored_and_replaced),
        cmocka_unit_test(a_forged_file_is_refused_or_harmless),
        cmocka_unit_test(tables_without_an_empty_slot_are_refused),
        cmocka_unit_test(a_cache_that_cannot_be_written_fails_nothing),
        cmocka_unit_test(a_cached_start_of_qwen3_takes_a_fraction_of_the_first),
    };
    return cmocka_run_group_tests(tests, open_cache, close_cache);
}
