/* The file of a chat's lines: which it takes up, how long it grows, what is no such file. That
 * lines are saved as they are entered is in test_line_editor.c. */
#define _XOPEN_SOURCE 700 /* mkdtemp */

#include "cli/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/reel-history-XXXXXX";
static char history_path[64];

static void write_history(const char *text, size_t n) {
    FILE *f = fopen(history_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void a_history_of_libedit_is_read(void **state) {
    static const char old[] = "_HiStOrY_V2_\nhello\\040world\nwith\\134backslash\n";
    struct history h;
    (void)state;
    write_history(old, strlen(old));
    assert_int_equal(history_open(&h, history_path, NULL), REEL_OK);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.entries[0], "hello world");
    assert_string_equal(h.entries[1], "with\\backslash");
    history_close(&h);
}

static void a_history_that_has_grown_long_is_cut_to_what_is_new(void **state) {
    const size_t n = HISTORY_FILE_BYTES + 1000;
    struct history h;
    struct stat st;
    char *text = malloc(n + 1);
    (void)state;
    assert_non_null(text);
    for (size_t at = 0, i = 0; at < n; i++)
        at += (size_t)snprintf(text + at, n + 1 - at, "line %zu of some length\n", i);
    text[n - 1] = '\n';
    write_history(text, n);
    assert_int_equal(history_open(&h, history_path, NULL), REEL_OK);
    assert_int_equal(h.n, HISTORY_ENTRIES);
    assert_int_equal(strncmp(h.entries[0], "line ", 5), 0);
    assert_int_equal(history_add(&h, "the newest", NULL), REEL_OK);
    assert_int_equal(stat(history_path, &st), 0);
    assert_true((size_t)st.st_size < HISTORY_FILE_BYTES / 2 + 100);
    history_close(&h);
    assert_int_equal(history_open(&h, history_path, NULL), REEL_OK);
    assert_string_equal(h.entries[h.n - 1], "the newest");
    history_close(&h);
    free(text);
}

static void a_history_that_cannot_be_used_is_none(void **state) {
    char target[80];
    struct history h;
    struct stat st;
    (void)state;
    (void)unlink(history_path);
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(symlink(target, history_path), 0);
    assert_int_equal(history_open(&h, history_path, NULL), REEL_OK);
    assert_int_equal(history_add(&h, "secret", NULL), REEL_OK);
    assert_int_equal(h.n, 1);
    history_close(&h);
    assert_int_not_equal(stat(target, &st), 0);
    assert_int_equal(unlink(history_path), 0);
    assert_int_equal(mkfifo(history_path, 0600), 0);
    assert_int_equal(history_open(&h, history_path, NULL), REEL_OK);
    history_close(&h);
    assert_int_equal(unlink(history_path), 0);
}

static int enter(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(history_path, sizeof history_path, "%s/history", folder);
    return 0;
}

static int leave(void **state) {
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_history_of_libedit_is_read),
        cmocka_unit_test(a_history_that_has_grown_long_is_cut_to_what_is_new),
        cmocka_unit_test(a_history_that_cannot_be_used_is_none),
    };
    return cmocka_run_group_tests_name("the file of lines", tests, enter, leave);
}
