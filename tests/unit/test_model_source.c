/* Where model files come from: folders, .gguf files, memory; and the names that may be asked for.
 */
#include "base/clock.h"
#include "model/model_source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/reel-source-XXXXXX";
static char gguf_path[64], text_path[64], pipe_path[64];

static int make_files(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(gguf_path, sizeof gguf_path, "%s/m.gguf", folder);
    snprintf(text_path, sizeof text_path, "%s/a.safetensors", folder);
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    if (file_write_atomic(gguf_path, "GGUF....", 8, NULL) != REEL_OK) return -1;
    if (file_write_atomic(text_path, "GGU", 3, NULL) != REEL_OK) return -1;
    return mkfifo(pipe_path, 0600);
}

static int drop_files(void **state) {
    (void)state;
    unlink(gguf_path);
    unlink(text_path);
    unlink(pipe_path);
    return rmdir(folder);
}

static void a_folder_gives_its_files(void **state) {
    (void)state;
    struct model_source source;
    struct file_map map;
    struct reel_error err = { 0 };
    char *shown = NULL;
    assert_int_equal(model_source_open(&source, folder, &err), REEL_OK);
    assert_false(source.is_gguf);
    assert_true(model_source_has(&source, "a.safetensors"));
    assert_false(model_source_has(&source, "b.safetensors"));
    assert_int_equal(model_source_map(&source, "a.safetensors", &map, &shown, &err), REEL_OK);
    assert_int_equal(map.size, 3);
    assert_string_equal(shown, text_path);
    free(shown);
    file_map_close(&map);
    assert_int_equal(model_source_map(&source, NULL, &map, NULL, &err), REEL_E_NOT_FOUND);
    assert_int_equal(model_source_map(&source, "pipe", &map, NULL, &err), REEL_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
    model_source_release(&source);
}

static void a_gguf_file_is_its_own_only_file(void **state) {
    (void)state;
    struct model_source source;
    struct file_map map;
    struct reel_error err = { 0 };
    char *shown = NULL;
    assert_int_equal(model_source_open(&source, gguf_path, &err), REEL_OK);
    assert_true(source.is_gguf);
    assert_int_equal(model_source_map(&source, NULL, &map, &shown, &err), REEL_OK);
    assert_int_equal(map.size, 8);
    assert_string_equal(shown, gguf_path);
    free(shown);
    file_map_close(&map);
    assert_false(model_source_has(&source, "config.json"));
    assert_int_equal(model_source_map(&source, "config.json", &map, NULL, &err), REEL_E_NOT_FOUND);
    model_source_release(&source);
}

static void what_is_no_model_is_refused_in_words(void **state) {
    (void)state;
    struct model_source source;
    struct reel_error err = { 0 };
    assert_int_equal(model_source_open(&source, "/nowhere/at/all", &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_int_equal(model_source_open(&source, text_path, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "give the folder that holds it"));
    assert_int_equal(model_source_open(&source, pipe_path, &err), REEL_E_IO);
    assert_int_equal(model_source_open(&source, "", &err), REEL_E_NOT_FOUND);
    model_source_release(&source);
}

static void names_cannot_leave_the_folder(void **state) {
    (void)state;
    static const char *const names[] = { "",          ".",   "..",      "../a", "/etc/passwd",
                                         "a/../../b", "a/b", ".hidden", "a\\b", "./a" };
    struct model_source source;
    struct file_map map;
    assert_int_equal(model_source_open(&source, folder, NULL), REEL_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct reel_error err = { 0 };
        assert_int_equal(model_source_map(&source, names[i], &map, NULL, &err), REEL_E_FORMAT);
        assert_non_null(strstr(err.text, "is not a plain file name"));
        assert_false(model_source_has(&source, names[i]));
    }
    model_source_release(&source);
}

static void memory_files_are_found_by_name(void **state) {
    (void)state;
    const struct reel_memory_file files[] = { { "config.json", "{}", 2 }, { "empty", NULL, 0 } };
    struct model_source source;
    struct file_map map;
    struct reel_error err = { 0 };
    char *shown = NULL;
    assert_int_equal(model_source_open_memory(&source, "demo", files, 2, &err), REEL_OK);
    assert_false(source.is_gguf);
    assert_true(model_source_has(&source, "empty"));
    assert_int_equal(model_source_map(&source, "config.json", &map, &shown, &err), REEL_OK);
    assert_string_equal(shown, "demo/config.json");
    assert_ptr_equal(map.bytes, files[0].bytes);
    free(shown);
    file_map_close(&map);
    assert_int_equal(model_source_map(&source, "other", &map, &shown, &err), REEL_E_NOT_FOUND);
    assert_null(shown);
    assert_non_null(strstr(err.text, "demo/other"));
    model_source_release(&source);
    const struct reel_memory_file bad[] = { { NULL, "", 0 }, { "x", NULL, 3 } };
    for (int i = 0; i < 2; i++)
        assert_int_equal(model_source_open_memory(&source, "demo", &bad[i], 1, &err),
                         REEL_E_ARGUMENT);
    assert_int_equal(model_source_open_memory(&source, "demo", files, 0, &err), REEL_E_ARGUMENT);
}

/* A sparse file takes no room on the disk. To map 1 TB costs nothing, to hash or to parse it an
 * hour. */
static void a_text_file_of_a_terabyte_is_refused_at_once(void **state) {
    (void)state;
    static const char *const names[] = { "tokenizer.json",
                                         "tokenizer.model",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "tokenizer_config.json",
                                         "chat_template.jinja",
                                         "config.json",
                                         "generation_config.json",
                                         "model.safetensors.index.json" };
    char sparse[] = "/tmp/reel-sparse-XXXXXX", path[100];
    struct model_source source;
    struct file_map map;
    struct reel_error err = { 0 };
    assert_non_null(mkdtemp(sparse));
    assert_int_equal(model_source_open(&source, sparse, &err), REEL_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", sparse, names[i]);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(truncate(path, (off_t)1 << 40), 0);
        assert_int_equal(model_source_map(&source, names[i], &map, NULL, &err), REEL_E_LIMIT);
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, ": 1099511627776 bytes, at most "));
        if (i == 0) { /* by the way that people take */
            struct reel_tokenizer *tok = NULL;
            const double begin = clock_ms();
            assert_int_equal(reel_tokenizer_open(&tok, sparse, sparse, &err), REEL_E_LIMIT);
            assert_true(clock_ms() - begin < 2000);
        }
        assert_int_equal(truncate(path, 1 << 20), 0);
        assert_int_equal(model_source_map(&source, names[i], &map, NULL, &err), REEL_OK);
        file_map_close(&map);
        unlink(path);
    }
    rmdir(sparse);
    model_source_release(&source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_file_of_a_terabyte_is_refused_at_once),
        cmocka_unit_test(a_folder_gives_its_files),
        cmocka_unit_test(a_gguf_file_is_its_own_only_file),
        cmocka_unit_test(what_is_no_model_is_refused_in_words),
        cmocka_unit_test(names_cannot_leave_the_folder),
        cmocka_unit_test(memory_files_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
