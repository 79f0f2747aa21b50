/* What src/base does when memory, files or disks fail. */
#include "base/buffer.h"
#include "base/file_map.h"
#include "base/json.h"
#include "support/faults.h"

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
static char path[64];
static const char old_text[] = "the old content";
static const char new_text[] = "the new content, somewhat longer";

static int make_folder(void **state) {
    (void)state;
    faults_install();
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static enum reel_status read_back(char *text, size_t room) {
    struct file_map map = { 0 };
    enum reel_status status = file_map_open(&map, path, NULL);
    if (status == REEL_OK && map.size < room) {
        memcpy(text, map.bytes, map.size);
        text[map.size] = '\0';
    }
    file_map_close(&map);
    return status;
}

static int files_in_folder(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    if (!dir) return -1;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.') n++;
    closedir(dir);
    return n;
}

static enum reel_status replace(void *context, struct reel_error *err) {
    (void)context;
    enum reel_status status = file_write_atomic(path, new_text, sizeof new_text - 1, err);
    if (status == REEL_OK) return status;
    const char *named = strstr(err->text, path); /* and not what it is called until it is whole */
    assert_true(named && named[strlen(path)] != '.');
    return status;
}

/* Either the old file or the whole new one, and nothing beside it. Then back to the old one. */
static void check_replaced(void *context, enum reel_status status) {
    (void)context;
    char text[64] = "";
    assert_int_equal(read_back(text, sizeof text), REEL_OK);
    assert_string_equal(text, status == REEL_OK ? new_text : old_text);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(file_write_atomic(path, old_text, sizeof old_text - 1, NULL), REEL_OK);
}

static void replacing_a_file_fails_whole_or_not_at_all(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "file_write_atomic",
                                  .run = replace,
                                  .check = check_replaced };
    assert_int_equal(file_write_atomic(path, old_text, sizeof old_text - 1, NULL), REEL_OK);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    assert_int_equal(file_write_atomic(path, old_text, sizeof old_text - 1, NULL), REEL_OK);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
    assert_int_equal(file_write_atomic(path, old_text, sizeof old_text - 1, NULL), REEL_OK);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
}

static void short_and_interrupted_writes_are_continued(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "file_write_atomic",
                                  .run = replace,
                                  .check = check_replaced };
    faults_sweep(&sweep, FAULT_IO, FAULT_SHORT);
    faults_sweep(&sweep, FAULT_IO, FAULT_INTERRUPT);
}

static enum reel_status map_file(void *context, struct reel_error *err) {
    (void)context;
    struct file_map map = { 0 };
    enum reel_status status = file_map_open(&map, path, err);
    file_map_close(&map);
    return status;
}

static void mapping_a_file_reports_every_failing_call(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "file_map_open", .run = map_file };
    assert_int_equal(file_write_atomic(path, old_text, sizeof old_text - 1, NULL), REEL_OK);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

static enum reel_status parse(void *context, struct reel_error *err) {
    (void)context;
    static const char text[] = "{\"a\": [1, 2.5, \"three\", null], \"b\": {\"c\": true}}";
    json_t *root = NULL;
    enum reel_status status = json_read(&root, "test.json", text, sizeof text - 1, err);
    json_decref(root);
    return status;
}

static void parsing_json_survives_every_failing_allocation(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "json_read", .run = parse };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static enum reel_status fill(void *context, struct reel_error *err) {
    (void)context;
    struct buffer b = { 0 };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < 200 && status == REEL_OK; i++)
        status = buffer_printf(&b, err, "line %d of a text that grows\n", i);
    buffer_release(&b);
    return status;
}

static void a_growing_buffer_survives_every_failing_allocation(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "buffer", .run = fill };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
}

static void the_guard_counts_allocations_and_only_those(void **state) {
    (void)state;
    char local[64] = "";
    faults_guard_begin();
    snprintf(local, sizeof local, "%d", 42);
    assert_int_equal(faults_guard_end(), 0);
    faults_guard_begin();
    struct buffer b = { 0 };
    assert_int_equal(buffer_text(&b, local, NULL), REEL_OK);
    assert_int_equal(faults_guard_end(), 1);
    buffer_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replacing_a_file_fails_whole_or_not_at_all),
        cmocka_unit_test(short_and_interrupted_writes_are_continued),
        cmocka_unit_test(mapping_a_file_reports_every_failing_call),
        cmocka_unit_test(parsing_json_survives_every_failing_allocation),
        cmocka_unit_test(a_growing_buffer_survives_every_failing_allocation),
        cmocka_unit_test(the_guard_counts_allocations_and_only_those),
    };
    return cmocka_run_group_tests_name("base under failing calls", tests, make_folder, drop_folder);
}
