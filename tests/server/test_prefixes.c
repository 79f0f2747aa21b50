/* Prefixes that are kept in files: found again, bounded, and never trusted. */
#include "base/memory.h"
#include "server/models.h"
#include "server/prefixes.h"
#include "tests/support/fake_backend.h"
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a folder ---- */

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/reel-prefixes-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* The path of the index-th *.prefix, in no order; false: there is none. */
static bool file_at(int index, char path[400]) {
    DIR *dir = opendir(folder);
    bool found = false;
    for (struct dirent *d; !found && (d = readdir(dir));) {
        if (!strstr(d->d_name, ".prefix") || index-- > 0) continue;
        snprintf(path, 400, "%s/%s", folder, d->d_name);
        found = true;
    }
    closedir(dir);
    return found;
}
static int n_files(void) {
    char path[400];
    int n = 0;
    while (file_at(n, path))
        n++;
    return n;
}
static int remove_folder(void **state) {
    (void)state;
    char path[400];
    while (file_at(0, path))
        unlink(path);
    return rmdir(folder);
}

static size_t read_file(const char *path, char *out, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, room);
    close(fd);
    assert_true(n > 0 && (size_t)n < room);
    return (size_t)n;
}
static void write_file(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

/* ---- on a model without weights ---- */

struct fixture {
    struct fake_settings settings;
    struct served_model served;
    struct reel_session *session;
    struct prefixes *prefixes;
    int32_t ids[1500];
};

static void open_prefixes(struct fixture *f, size_t most) {
    const struct prefixes_options options = { .folder = folder, .most_bytes = most };
    struct reel_error err = { 0 };
    if (prefixes_open(&f->prefixes, &options, &err) != REEL_OK) fail_msg("%s", err.text);
}

static void open_fixture(struct fixture *f, size_t most) {
    struct reel_error err = { 0 };
    struct reel_session_options options = { .size = sizeof options, .max_context = 1600 };
    *f = (struct fixture){ .served = { .name = "fake" } };
    f->served.model = fake_model_open(&f->settings, &err);
    assert_non_null(f->served.model);
    f->served.info.size = sizeof f->served.info;
    assert_int_equal(reel_model_get_info(f->served.model, &f->served.info, &err), REEL_OK);
    assert_int_equal(reel_session_open(&f->session, f->served.model, &options, &err), REEL_OK);
    open_prefixes(f, most);
}
static void close_fixture(struct fixture *f) {
    prefixes_close(f->prefixes);
    reel_session_close(f->session);
    fake_model_close(f->served.model);
}

/* Ids that are the same up to `same` for every seed. */
static void make_ids(struct fixture *f, int same, int seed) {
    for (int i = 0; i < 1500; i++)
        f->ids[i] = (i * 7 + i / 11 + (i >= same ? seed : 0)) % 26;
}
static void hold(struct fixture *f, int n) {
    int reused = 0;
    assert_int_equal(reel_session_sync(f->session, f->ids, n, &reused, NULL), REEL_OK);
}
static int held(const struct fixture *f) { return reel_session_length(f->session); }
static bool restore(struct fixture *f, int n) {
    return prefixes_restore(f->prefixes, &f->served, f->session, 0, f->ids, (size_t)n);
}
static void save(struct fixture *f) { prefixes_save(f->prefixes, &f->served, f->session); }

static void what_is_saved_is_found_after_a_restart(void **state) {
    (void)state;
    struct fixture f;
    struct stat about;
    char path[400];
    open_fixture(&f, 1 << 20);
    make_ids(&f, 0, 1);
    hold(&f, PREFIX_LEAST - 1);
    save(&f);
    assert_int_equal(n_files(), 0); /* too short */
    hold(&f, 700);
    save(&f);
    assert_int_equal(n_files(), 1);
    assert_true(file_at(0, path));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    prefixes_close(f.prefixes);
    open_prefixes(&f, 1 << 20);
    assert_int_equal(reel_session_truncate(f.session, 0, NULL), REEL_OK);
    assert_false(restore(&f, 255)); /* too little is common */
    assert_int_equal(held(&f), 0);
    assert_true(restore(&f, 1000));
    assert_int_equal(held(&f), 700);
    assert_memory_equal(reel_session_ids(f.session), f.ids, 700 * sizeof *f.ids);
    assert_false(prefixes_restore(f.prefixes, &f.served, f.session, 445, f.ids, 1000)); /* + 255 */
    assert_true(prefixes_restore(f.prefixes, &f.served, f.session, 444, f.ids, 1000));
    f.served.name = "another";
    assert_false(restore(&f, 1000));
    close_fixture(&f);
}

/* On a fast GPU a prompt may be evaluated sooner than its file is read. */
static void a_file_that_saves_no_time_is_not_read(void **state) {
    (void)state;
    static char bytes[1 << 20];
    struct fixture f;
    char path[400];
    open_fixture(&f, 1 << 20);
    make_ids(&f, 0, 1);
    hold(&f, 700);
    f.served.eval_ns = 1;
    save(&f);
    assert_int_equal(n_files(), 0);
    f.served.eval_ns = 1000000;
    save(&f);
    assert_true(file_at(0, path));
    assert_true(restore(&f, 1000));
    f.served.eval_ns = 1;
    assert_false(restore(&f, 1000));
    f.served.eval_ns = 0; /* a server that has just started takes the file's word */
    assert_true(restore(&f, 1000));
    prefixes_close(f.prefixes);
    const size_t n = read_file(path, bytes, sizeof bytes);
    const uint32_t fast = 1;
    memcpy(bytes + 28, &fast, sizeof fast);
    write_file(path, bytes, n);
    open_prefixes(&f, 1 << 20);
    assert_false(restore(&f, 1000));
    f.served.eval_ns = 1000000; /* and what it has seen is worth more */
    assert_true(restore(&f, 1000));
    close_fixture(&f);
}

static void a_longer_prefix_takes_the_place_of_its_beginning(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f, 1 << 20);
    make_ids(&f, 600, 1);
    hold(&f, 700);
    save(&f);
    hold(&f, 900);
    save(&f); /* 200 more are not worth a file */
    assert_true(restore(&f, 1500));
    assert_int_equal(held(&f), 700);
    hold(&f, 1000);
    save(&f);
    assert_int_equal(n_files(), 1);
    assert_true(restore(&f, 1500));
    assert_int_equal(held(&f), 1000);
    make_ids(&f, 600, 2); /* another that shares 600 */
    hold(&f, 1000);
    save(&f);
    assert_int_equal(n_files(), 2);
    close_fixture(&f);
}

static void files_take_no_more_than_they_may(void **state) {
    (void)state;
    struct fixture f;
    struct stat about;
    char path[400];
    open_fixture(&f, 1 << 20);
    make_ids(&f, 0, 1);
    hold(&f, 600);
    save(&f);
    assert_true(file_at(0, path));
    assert_int_equal(stat(path, &about), 0);
    const size_t one = (size_t)about.st_size;
    prefixes_close(f.prefixes);
    open_prefixes(&f, 3 * one + one / 2);
    for (int seed = 2; seed < 8; seed++) {
        make_ids(&f, 0, seed);
        hold(&f, 600);
        save(&f);
        make_ids(&f, 0, 1); /* used again and again: it stays */
        assert_true(restore(&f, 600));
    }
    assert_int_equal(n_files(), 3);
    prefixes_close(f.prefixes);
    open_prefixes(&f, one + one / 2); /* less than lies there */
    assert_int_equal(n_files(), 1);
    prefixes_close(f.prefixes);
    open_prefixes(&f, one / 2);
    assert_int_equal(n_files(), 0);
    make_ids(&f, 0, 9);
    hold(&f, 600);
    save(&f);
    assert_int_equal(n_files(), 0);
    close_fixture(&f);
}

/* Opens the folder with the file as it is, and restores. It gives what was saved, or nothing. */
static void try_damaged(struct fixture *f, bool must_go) {
    prefixes_close(f->prefixes);
    open_prefixes(f, 1 << 20);
    assert_int_equal(reel_session_truncate(f->session, 0, NULL), REEL_OK);
    if (restore(f, 1000)) {
        assert_false(must_go);
        assert_int_equal(held(f), 600);
        assert_memory_equal(reel_session_ids(f->session), f->ids, 600 * sizeof *f->ids);
    } else if (must_go) {
        assert_int_equal(n_files(), 0);
    }
}

static void cve_2026_43629_damaged_files_are_refused_and_removed(void **state) {
    (void)state;
    static char whole[1 << 20], bad[1 << 20];
    struct fixture f;
    char path[400];
    open_fixture(&f, 1 << 20);
    make_ids(&f, 0, 1);
    hold(&f, 600);
    save(&f);
    assert_true(file_at(0, path));
    const size_t n = read_file(path, whole, sizeof whole);
    const size_t snapshot = 40 + 600 * sizeof(int32_t);
    for (size_t cut = 0; cut < n; cut += cut < 64 || cut + 64 > n ? 1 : 97) {
        write_file(path, whole, cut);
        try_damaged(&f, true);
    }
    memcpy(bad, whole, n);
    write_file(path, bad, n + 1); /* and longer */
    try_damaged(&f, true);
    for (size_t at = 0; at < n; at += at < 48 ? 1 : at < snapshot ? 131 : 37)
        for (int bit = 0; bit < 8; bit += 3) {
            memcpy(bad, whole, n);
            bad[at] ^= (char)(1 << bit);
            write_file(path, bad, n);
            try_damaged(&f, at >= snapshot || at < 8);
        }
    for (int field = 24; field < 40; field += 4) { /* sizes whose products would wrap */
        if (field == 28) continue;                 /* a time, which may be any */
        static const uint32_t odd[] = { 0, 1, 0x40000000, 0x80000000, 0xfffffff0, 0xffffffff };
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            memcpy(bad, whole, n);
            memcpy(bad + field, &odd[i], 4);
            if (memcmp(bad, whole, n) == 0) continue;
            write_file(path, bad, n);
            try_damaged(&f, true);
        }
    }
    write_file(path, whole, n); /* the test is able to see a good one */
    prefixes_close(f.prefixes);
    open_prefixes(&f, 1 << 20);
    assert_true(restore(&f, 1000));
    close_fixture(&f);
}

static void links_and_other_files_are_not_followed(void **state) {
    (void)state;
    struct fixture f;
    char path[400], other[400];
    open_fixture(&f, 1 << 20);
    prefixes_close(f.prefixes);
    snprintf(other, sizeof other, "%s/notes.txt", folder);
    write_file(other, "mine", 4);
    snprintf(path, sizeof path, "%s/0123.prefix", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/half.prefix.part", folder);
    write_file(path, "x", 1);
    open_prefixes(&f, 1 << 20);
    assert_int_equal(n_files(), 0);
    assert_int_equal(access("/etc/passwd", R_OK), 0);
    assert_int_equal(unlink(other), 0); /* it was left alone */
    close_fixture(&f);
}

static void a_folder_that_others_may_enter_is_refused(void **state) {
    (void)state;
    const struct prefixes_options options = { .folder = folder, .most_bytes = 1 << 20 };
    struct prefixes *p = NULL;
    struct reel_error err = { 0 };
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(prefixes_open(&p, &options, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "chmod 700"));
    assert_int_equal(chmod(folder, 0700), 0);
    const struct prefixes_options nowhere = { .folder = "/nonexistent/a", .most_bytes = 1 << 20 };
    assert_int_equal(prefixes_open(&p, &nowhere, &err), REEL_E_IO);
}

/* ---- in the server ---- */

static int cached_tokens(const struct served *s, const char *body, char text[400]) {
    struct http_answer answer;
    http_ask(&answer, s->port, &(struct http_request){ .path = "/v1/completions", .body = body });
    assert_int_equal(answer.code, 200);
    const char *at = strstr(answer.body.bytes, "\"cached_tokens\":");
    const char *said = strstr(answer.body.bytes, "\"text\":");
    assert_non_null(at);
    assert_non_null(said);
    snprintf(text, 400, "%.*s", (int)strcspn(said, "}"), said);
    const int n = atoi(at + 16);
    http_answer_release(&answer);
    return n;
}

static void a_server_that_starts_again_has_the_prompt(void **state) {
    (void)state;
    struct buffer body = { 0 };
    char first[400], second[400];
    assert_int_equal(buffer_text(&body, "{\"max_tokens\":8,\"temperature\":0,\"prompt\":\"", NULL),
                     REEL_OK);
    for (int i = 0; i < 60; i++)
        assert_int_equal(buffer_printf(&body, NULL, "Once upon a time there were %d of them. ", i),
                         REEL_OK);
    assert_int_equal(buffer_text(&body, "\"}", NULL), REEL_OK);
    for (int round = 0; round < 2; round++) {
        struct served s = { .options = { .prefix_dir = folder } };
        if (!served_open(&s)) fail_msg("%s", s.err.text);
        const int n = cached_tokens(&s, body.bytes, round ? second : first);
        if (round == 0) assert_int_equal(n, 0);
        if (round == 1) assert_true(n >= PREFIX_LEAST);
        served_close(&s);
        assert_int_equal(n_files(), 1);
    }
    assert_string_equal(first, second);
    buffer_release(&body);
}

/* What a session holds may be rounded otherwise, as where a prompt was evaluated in other pieces.
 */
static void a_prompt_is_evaluated_whole_where_that_is_asked_for(void **state) {
    (void)state;
    struct served s = { 0 };
    char text[400], first[400];
    if (!served_open(&s)) fail_msg("%s", s.err.text);
#define STORY "{\"max_tokens\":8,\"temperature\":0,\"prompt\":\"Once upon a time there was a\""
    assert_int_equal(cached_tokens(&s, STORY "}", first), 0);
    assert_true(cached_tokens(&s, STORY ",\"cache_prompt\":true}", text) > 3);
    assert_int_equal(cached_tokens(&s, STORY ",\"cache_prompt\":false}", text), 0);
    assert_string_equal(text, first);
    assert_true(cached_tokens(&s, STORY "}", text) > 3);
    struct http_answer answer;
    http_ask(&answer, s.port,
             &(struct http_request){ .path = "/v1/completions",
                                     .body = STORY ",\"cache_prompt\":\"no\"}" });
    assert_int_equal(answer.code, 400);
    assert_non_null(strstr(answer.body.bytes, "cache_prompt"));
    http_answer_release(&answer);
    served_close(&s);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_saved_is_found_after_a_restart),
        IN_FOLDER(a_file_that_saves_no_time_is_not_read),
        IN_FOLDER(a_longer_prefix_takes_the_place_of_its_beginning),
        IN_FOLDER(files_take_no_more_than_they_may),
        IN_FOLDER(cve_2026_43629_damaged_files_are_refused_and_removed),
        IN_FOLDER(links_and_other_files_are_not_followed),
        IN_FOLDER(a_folder_that_others_may_enter_is_refused),
        IN_FOLDER(a_server_that_starts_again_has_the_prompt),
        cmocka_unit_test(a_prompt_is_evaluated_whole_where_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
