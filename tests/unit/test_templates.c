/* Chat templates as published (tests/fixtures/templates) against jinja2 with the settings of
 * Hugging Face transformers, over generated conversations. tools/make_template_hashes.py keeps a
 * hash for each 50 of 1,000; a run compares a share of them, REEL_SOAK all.
 *
 *   test_templates conversations N    prints N conversations, for that program
 *   test_templates texts FILE         compares with its texts, one by one: which differs, and where
 */
#include "base/buffer.h"
#include "base/sha256.h"
#include "jinja/jinja.h"
#include "support/conversations.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER   "tests/fixtures/templates/"
#define BLOCK    50
#define N_BLOCKS 20

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be read", path);
    size_t cap = (size_t)1 << 20;
    char *bytes = malloc(cap);
    assert_non_null(bytes);
    *n = fread(bytes, 1, cap - 1, f);
    assert_true(*n < cap - 1);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

static struct jinja_template *open_template(const char *name) {
    char path[300];
    size_t n;
    struct jinja_template *template = NULL;
    struct reel_error err = { 0 };
    snprintf(path, sizeof path, FOLDER "%s.jinja", name);
    char *text = read_file(path, &n);
    if (jinja_template_open(&template, name, text, n, NULL, &err) != REEL_OK)
        fail_msg("%s", err.text);
    free(text);
    return template;
}

/* False, with the reason in err, where the template fails. */
static bool render(struct jinja_output *out, const struct jinja_template *template,
                   const json_t *conversation, struct reel_error *err) {
    /* 26 July 2024, a Friday, 12:34:56 */
    static const struct tm now = { .tm_year = 124,
                                   .tm_mon = 6,
                                   .tm_mday = 26,
                                   .tm_hour = 12,
                                   .tm_min = 34,
                                   .tm_sec = 56,
                                   .tm_wday = 5,
                                   .tm_yday = 207 };
    static const char *const own[] = { "bos_token", "eos_token" };
    struct jinja_values *values = NULL;
    const char *key;
    json_t *item;
    assert_int_equal(jinja_values_open(&values, NULL, err), REEL_OK);
    json_object_foreach((json_t *)conversation, key, item)
        jinja_variable(values, key, jinja_json(values, item));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const char *text = json_string_value(json_object_get(conversation, own[i]));
        jinja_variable(values, own[i], jinja_text(values, text, strlen(text), JINJA_OWN));
    }
    if (!json_object_get(conversation, "tools"))
        jinja_variable(values, "tools", jinja_none(values));
    jinja_variable(values, "documents", jinja_none(values));
    enum reel_status status = jinja_render(out, template, values, &now, err);
    jinja_values_close(values);
    assert_true(status != REEL_E_MEMORY);
    return status == REEL_OK;
}

/* All of a conversation but its tokens' names is foreign: a character that is not ASCII is the
 * conversation's, where the template has none. */
static void check_marks(const char *name, const struct jinja_output *out) {
    size_t at = 0;
    for (int i = 0; i < out->n_runs; at += out->runs[i++].n_bytes)
        for (size_t k = 0; out->runs[i].own && k < out->runs[i].n_bytes; k++)
            if (out->text[at + k] & 0x80)
                fail_msg("%s: \"%.20s\" counts as the template's", name, out->text + at + k);
}

/* Whether the template's text, with its escapes, is ASCII. */
static bool writes_ascii(const char *name) {
    char path[300];
    size_t n;
    snprintf(path, sizeof path, FOLDER "%s.jinja", name);
    char *text = read_file(path, &n);
    bool ascii = !strstr(text, "\\u") && !strstr(text, "\\x");
    for (size_t i = 0; i < n; i++)
        ascii = ascii && !(text[i] & 0x80);
    free(text);
    return ascii;
}

static void hash_block(const char *name, const struct jinja_template *template, unsigned block,
                       char hex[SHA256_HEX]) {
    struct buffer all = { 0 };
    const bool ascii = writes_ascii(name);
    for (unsigned i = block * BLOCK; i < (block + 1) * BLOCK; i++) {
        json_t *conversation = conversation_make(i);
        struct jinja_output out = { 0 };
        struct reel_error err = { 0 };
        if (render(&out, template, conversation, &err)) {
            if (ascii) check_marks(name, &out);
            assert_int_equal(buffer_printf(&all, NULL, "%zu:", out.n_bytes), REEL_OK);
            assert_int_equal(buffer_append(&all, out.text, out.n_bytes, NULL), REEL_OK);
            jinja_output_release(&out);
        } else {
            assert_true(err.text[0]);
            assert_int_equal(buffer_text(&all, "error:", NULL), REEL_OK);
        }
        json_decref(conversation);
    }
    sha256_hex(all.bytes, all.size, hex);
    buffer_release(&all);
}

/* A line of the file of hashes: a template's name, how many of its conversations fail, and the
 * first 16 digits of the SHA-256 of each block. */
static int check_line(char *line, unsigned first, unsigned step) {
    char *save = NULL, *name = strtok_r(line, " ", &save), *errors = strtok_r(NULL, " ", &save);
    int wrong = 0;
    assert_non_null(errors);
    struct jinja_template *template = open_template(name);
    for (unsigned block = 0; block < N_BLOCKS; block++) {
        char hex[SHA256_HEX];
        const char *wanted = strtok_r(NULL, " ", &save);
        assert_non_null(wanted);
        if (block % step != first % step) continue;
        hash_block(name, template, block, hex);
        if (strncmp(hex, wanted, 16) == 0) continue;
        print_error("%s: conversations %u to %u differ\n", name, block * BLOCK,
                    (block + 1) * BLOCK - 1);
        wrong++;
    }
    jinja_template_close(template);
    return wrong;
}

static void every_template_renders_as_jinja2_renders_it(void **state) {
    (void)state;
    const char *soak = getenv("REEL_SOAK");
    unsigned step = soak && *soak ? 1 : 5;
    size_t n;
    char *all = read_file(FOLDER "hashes.txt", &n), *save = NULL;
    int wrong = 0;
    unsigned lines = 0;
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (*line != '#') wrong += check_line(line, lines++, step);
    free(all);
    print_message("%u templates, %u conversations each\n", lines, N_BLOCKS * BLOCK / step);
    assert_true(lines >= 40);
    assert_int_equal(wrong, 0);
}

static void no_template_is_without_hashes(void **state) {
    (void)state;
    size_t n;
    char *all = read_file(FOLDER "hashes.txt", &n);
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char wanted[300];
        char *dot = strstr(entry->d_name, ".jinja");
        if (!dot || dot[6]) continue;
        snprintf(wanted, sizeof wanted, "\n%.*s ", (int)(dot - entry->d_name), entry->d_name);
        if (!strstr(all, wanted)) fail_msg("%s is not in hashes.txt", entry->d_name);
    }
    closedir(folder);
    free(all);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static int print_conversations(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        json_t *conversation = conversation_make(i);
        char *text = json_dumps(conversation, JSON_COMPACT | JSON_ENSURE_ASCII);
        puts(text);
        free(text);
        json_decref(conversation);
    }
    return 0;
}

static bool compare_text(const char *line, struct jinja_template **template, char last[200]) {
    json_t *golden = json_loads(line, JSON_ALLOW_NUL, NULL);
    const char *name = json_string_value(json_object_get(golden, "template"));
    const json_t *text = json_object_get(golden, "text");
    unsigned number = (unsigned)json_integer_value(json_object_get(golden, "number"));
    struct jinja_output out = { 0 };
    struct reel_error err = { 0 };
    if (strcmp(last, name) != 0) {
        jinja_template_close(*template);
        *template = open_template(name);
        snprintf(last, 200, "%s", name);
    }
    json_t *conversation = conversation_make(number);
    bool rendered = render(&out, *template, conversation, &err);
    bool same = rendered ? json_is_string(text) && json_string_length(text) == out.n_bytes &&
                               memcmp(json_string_value(text), out.text, out.n_bytes) == 0
                         : json_is_null(text);
    if (!same) {
        const char *wanted = json_string_value(text), *found = rendered ? out.text : err.text;
        size_t at = 0;
        while (wanted && found[at] && found[at] == wanted[at])
            at++;
        at = at > 60 ? at - 60 : 0;
        printf("==== %s, conversation %u\n---- jinja2%s\n%.200s\n---- reel%s\n%.200s\n", name,
               number, wanted ? "" : " fails",
               wanted ? wanted + at : json_string_value(json_object_get(golden, "error")),
               rendered ? "" : " fails", rendered ? found + at : found);
    }
    jinja_output_release(&out);
    json_decref(conversation);
    json_decref(golden);
    return same;
}

static int compare_texts(const char *path) {
    FILE *f = fopen(path, "rb");
    struct jinja_template *template = NULL;
    char *line = NULL, last[200] = "";
    size_t cap = 0;
    int wrong = 0, n = 0;
    if (!f) return 2;
    for (; getline(&line, &cap, f) > 0; n++)
        wrong += !compare_text(line, &template, last);
    free(line);
    fclose(f);
    jinja_template_close(template);
    printf("%d of %d differ\n", wrong, n);
    return wrong != 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_renders_as_jinja2_renders_it),
        cmocka_unit_test(no_template_is_without_hashes),
    };
    if (argc == 3 && strcmp(argv[1], "conversations") == 0)
        return print_conversations((unsigned)strtoul(argv[2], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "texts") == 0) return compare_texts(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
