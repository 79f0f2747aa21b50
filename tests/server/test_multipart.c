/* Forms as clients send them, and as nobody should; the fields of a transcription. */
#include "base/clock.h"
#include "server/multipart.h"
#include "server/transcription_form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct reel_error err;
static struct multipart form;

#define TYPE "multipart/form-data; boundary=xyz"

static enum reel_status read_form(const char *type, const char *body) {
    return multipart_read(&form, type, body, strlen(body), &err);
}

static void expect_part(int index, const char *name, const char *bytes) {
    assert_true(index < form.n_parts);
    assert_string_equal(form.parts[index].name, name);
    assert_int_equal(form.parts[index].n_bytes, strlen(bytes));
    assert_memory_equal(form.parts[index].bytes, bytes, strlen(bytes));
}

static void what_clients_send_is_read(void **state) {
    (void)state;
    /* curl 7.88 */
    assert_int_equal(
        read_form("multipart/form-data; boundary=------------------------d74496d66958873e",
                  "--------------------------d74496d66958873e\r\n"
                  "Content-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\n"
                  "Content-Type: audio/wav\r\n\r\nRIFF\r\n--\r\n\r\n"
                  "--------------------------d74496d66958873e\r\n"
                  "Content-Disposition: form-data; name=\"model\"\r\n\r\ndemo\r\n"
                  "--------------------------d74496d66958873e--\r\n"),
        REEL_OK);
    assert_int_equal(form.n_parts, 2);
    expect_part(0, "file", "RIFF\r\n--\r\n");
    assert_string_equal(form.parts[0].filename, "a \"b\".wav");
    assert_string_equal(form.parts[0].type, "audio/wav");
    assert_true(form.parts[0].is_file && !form.parts[1].is_file);
    expect_part(1, "model", "demo");
    /* httpx and requests: no line behind the end; names beyond ASCII */
    assert_int_equal(read_form("multipart/form-data; boundary=0f",
                               "--0f\r\nContent-Disposition: form-data; name=\"include[]\"\r\n\r\n"
                               "logprobs\r\n--0f\r\nContent-Disposition: form-data; name=\"file\"; "
                               "filename*=utf-8''%e2%82%ac.wav\r\n\r\n\r\n--0f--"),
                     REEL_OK);
    expect_part(0, "include[]", "logprobs");
    expect_part(1, "file", "");
    assert_true(form.parts[1].is_file);
    /* browsers; a quoted boundary, small letters, and further parameters */
    assert_int_equal(read_form("Multipart/Form-Data; charset=utf-8; boundary=\"----WebKit Form?\";",
                               "------WebKit Form?\r\ncontent-disposition: Form-Data; name=file; "
                               "filename=\"C:\\x\\y.wav\"\r\n\r\nab\r\n------WebKit Form?--\r\n"),
                     REEL_OK);
    expect_part(0, "file", "ab");
    assert_string_equal(form.parts[0].filename, "C:\\x\\y.wav");
    assert_int_equal(read_form(TYPE, "\r\n--xyz--"), REEL_OK); /* empty */
    assert_int_equal(form.n_parts, 0);
}

#define HEAD "Content-Disposition: form-data; name=\"a\"\r\n"

static void what_is_ambiguous_is_refused(void **state) {
    static const struct {
        const char *type, *body, *says;
    } bad[] = {
        { NULL, "", "has to be multipart/form-data" },
        { "application/json", "{}", "has to be multipart/form-data" },
        { "multipart/form-datax; boundary=a", "", "has to be multipart/form-data" },
        { "multipart/form-data", "--\r\n", "names no boundary" },
        { "multipart/form-data; boundary=", "--\r\n", "cannot be read" },
        { "multipart/form-data; boundary=\"\"", "--\r\n", "not allowed" },
        { "multipart/form-data; boundary=\"a", "--a--", "cannot be read" },
        { "multipart/form-data; boundary=a; boundary=b", "--a--", "two boundaries" },
        { "multipart/form-data; boundary=\"a\tb\"", "--a--", "not allowed" },
        { "multipart/form-data; boundary=\"a \"", "--a --", "not allowed" },
        { "multipart/form-data; boundary="
          "01234567890123456789012345678901234567890123456789012345678901234567890",
          "", "longer than 70" },
        { TYPE, "", "does not begin" },
        { TYPE, "hello\r\n--xyz--", "does not begin" },
        { TYPE, "--xyz", "its end is missing" },
        { TYPE, "--xyzz\r\n" HEAD "\r\n\r\n--xyz--", "not followed by" },
        { TYPE, "--xyz\n" HEAD "\r\nx\r\n--xyz--", "not followed by" },
        { TYPE, "--xyz--more", "behind the last" },
        { TYPE, "--xyz\r\n" HEAD, "ends inside its headers" },
        { TYPE, "--xyz\r\n" HEAD "\r\nx", "no boundary ends it" },
        { TYPE, "--xyz\r\n" HEAD "\r\nx\n--xyz--", "no boundary ends it" },
        { TYPE, "--xyz\r\n" HEAD "\r\nx\r\n--xyz", "its end is missing" },
        { TYPE, "--xyz\r\n" HEAD "\r\nx\r\n--xyzz--", "not followed by" },
        { TYPE, "--xyz\r\n\r\nx\r\n--xyz--", "has no Content-Disposition" },
        { TYPE, "--xyz\r\n" HEAD HEAD "\r\nx\r\n--xyz--", "two of one header" },
        { TYPE, "--xyz\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n\r\n--xyz--",
          "two of name" },
        { TYPE, "--xyz\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--xyz--",
          "cannot be read" },
        { TYPE, "--xyz\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--xyz--",
          "has to be form-data" },
        { TYPE, "--xyz\r\nContent-Disposition: form-data\r\n\r\n\r\n--xyz--", "has no name" },
        { TYPE, "--xyz\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n\r\n--xyz--",
          "has no name" },
        { TYPE, "--xyz\r\n" HEAD " folded\r\n\r\nx\r\n--xyz--", "no name and colon" },
        { TYPE, "--xyz\r\n" HEAD "X: \x01\r\n\r\nx\r\n--xyz--", "control characters" },
        { TYPE, "--xyz\r\n" HEAD "Content-Transfer-Encoding: base64\r\n\r\nx\r\n--xyz--",
          "as they are" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const enum reel_status status = read_form(bad[i].type, bad[i].body);
        if ((status != REEL_E_ARGUMENT && status != REEL_E_LIMIT) || !strstr(err.text, bad[i].says))
            fail_msg("form %zu: %d, \"%s\"; wanted \"%s\"", i, (int)status, err.text, bad[i].says);
    }
}

/* libmicrohttpd read behind such a boundary (CVE-2023-27371). */
static void a_boundary_at_the_very_end_of_the_header_is_read(void **state) {
    char *type = strdup("multipart/form-data; boundary=\"");
    (void)state;
    assert_non_null(type);
    for (size_t n = strlen("multipart/form-data"); n <= strlen("multipart/form-data; boundary=\"");
         n++) {
        char *cut = strndup(type, n); /* a sanitizer sees one byte too far */
        assert_non_null(cut);
        assert_int_not_equal(read_form(cut, "--\r\n"), REEL_OK);
        free(cut);
    }
    free(type);
}

/* cpp-httplib went as deep as a file's name is long (CVE-2026-29076). */
static void a_file_name_of_a_megabyte_costs_neither_stack_nor_time(void **state) {
    const size_t n = (size_t)1 << 20;
    char *body = malloc(n + 200);
    (void)state;
    assert_non_null(body);
    size_t at =
        (size_t)sprintf(body, "--xyz\r\nContent-Disposition: form-data; name=a; filename=\"");
    memset(body + at, 'a', n);
    sprintf(body + at + n, "\"\r\n\r\nx\r\n--xyz--");
    assert_int_equal(read_form(TYPE, body), REEL_E_LIMIT);
    assert_non_null(strstr(err.text, "longer than 8192"));
    free(body);
    char name[600], small[1000];
    memset(name, 'b', 126);
    strcpy(name + 126, "\xc3\xa9\xc3\xa9"); /* cut between two characters */
    snprintf(small, sizeof small,
             "--xyz\r\nContent-Disposition: form-data; name=a; filename=\"%s\"\r\n\r\nx\r\n--xyz--",
             name);
    assert_int_equal(read_form(TYPE, small), REEL_OK);
    assert_int_equal(strlen(form.parts[0].filename), 126);
}

static void parts_are_counted_and_searching_is_linear(void **state) {
    const size_t most = (size_t)32 << 20;
    char *body = malloc(most);
    size_t at = 0;
    (void)state;
    assert_non_null(body);
    for (int i = 0; i < MULTIPART_MOST_PARTS; i++)
        at += (size_t)sprintf(body + at, "--xyz\r\n" HEAD "\r\n%d\r\n", i);
    strcpy(body + at, "--xyz--");
    assert_int_equal(read_form(TYPE, body), REEL_OK);
    assert_int_equal(form.n_parts, MULTIPART_MOST_PARTS);
    expect_part(63, "a", "63");
    strcpy(body + at, "--xyz\r\n" HEAD "\r\n\r\n--xyz--");
    assert_int_equal(read_form(TYPE, body), REEL_E_LIMIT);
    /* nearly a boundary at every byte */
    at = (size_t)sprintf(body, "--xyz\r\n" HEAD "\r\n");
    while (at + 20 < most) {
        memcpy(body + at, "\r\n--xy\r\n-", 9);
        at += 9;
    }
    const double start = clock_ms();
    assert_int_equal(multipart_read(&form, TYPE, body, at, &err), REEL_E_ARGUMENT);
    assert_true(clock_ms() - start < 3000);
    free(body);
}

/* ---- the fields of a transcription ---- */

static struct transcription_form fields;
static const char *param;

/* One part for each of name, value, ..., NULL, and a file. */
static enum reel_status read_fields(const char *name, ...) {
    static char values[16][200];
    va_list list;
    va_start(list, name);
    form = (struct multipart){ .n_parts = 1 };
    form.parts[0] = (struct multipart_part){ .name = "file", .bytes = "x", .n_bytes = 1 };
    for (int i = 0; name; i++, name = va_arg(list, const char *)) {
        struct multipart_part *part = &form.parts[form.n_parts++];
        *part = (struct multipart_part){ 0 };
        snprintf(part->name, sizeof part->name, "%s", name);
        snprintf(values[i], sizeof *values, "%s", va_arg(list, const char *));
        part->bytes = values[i];
        part->n_bytes = strlen(values[i]);
    }
    va_end(list);
    param = NULL;
    return transcription_form_read(&fields, &form, &param, &err);
}

static void fields_are_read_and_unknown_ones_pass(void **state) {
    (void)state;
    assert_int_equal(read_fields(NULL), REEL_OK);
    assert_int_equal(fields.format, REEL_TRANSCRIPT_JSON);
    assert_false(fields.stream || fields.chunks);
    assert_int_equal(read_fields("model", "m", "language", "pt-BR", "prompt",
                                 "r\xc3\xa9sum\xc3\xa9", "response_format", "srt", "temperature",
                                 "0.0", "timestamp_granularities[]", "segment", "include[]",
                                 "logprobs", "include[]", "logprobs", "unknown", "\xff", NULL),
                     REEL_OK);
    assert_string_equal(fields.model, "m");
    assert_string_equal(fields.language, "pt");
    assert_string_equal(fields.prompt, "r\xc3\xa9sum\xc3\xa9");
    assert_int_equal(fields.format, REEL_TRANSCRIPT_SRT);
    assert_int_equal(read_fields("stream", "True", "stream_include_usage", "True",
                                 "stream_continuous_usage_stats", "True", NULL),
                     REEL_OK);
    assert_true(fields.stream && fields.chunks && fields.usage_chunk);
    assert_int_equal(read_fields("stream", "false", "stream_include_usage", "False", NULL),
                     REEL_OK);
    assert_false(fields.stream || fields.usage_chunk);
    assert_int_equal(read_fields("language", "English", "temperature", "1", NULL), REEL_OK);
    assert_string_equal(fields.language, "English");
}

static void impossible_fields_are_named(void **state) {
    static const struct {
        const char *name, *value, *param, *says;
    } bad[] = {
        { "response_format", "diarized_json", "response_format", "allowed are json, text" },
        { "temperature", "1.01", "temperature", "0 to 1" },
        { "temperature", "-1", "temperature", "0 to 1" },
        { "temperature", "nan", "temperature", "0 to 1" },
        { "temperature", "1e309", "temperature", "0 to 1" },
        { "temperature", "0x", "temperature", "0 to 1" },
        { "temperature", "", "temperature", "0 to 1" },
        { "stream", "maybe", "stream", "true or false" },
        { "timestamp_granularities[]", "word", "timestamp_granularities", "words" },
        { "timestamp_granularities", "letter", "timestamp_granularities", "segment" },
        { "include[]", "everything", "include", "logprobs" },
        { "prompt", "\xff", "prompt", "UTF-8" },
        { "language", "a language whose name is longer than any language's name is in the world",
          "language", "at most 63" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const enum reel_status status = read_fields(bad[i].name, bad[i].value, NULL);
        if (status != REEL_E_ARGUMENT || !param || strcmp(param, bad[i].param) != 0 ||
            !strstr(err.text, bad[i].says))
            fail_msg("field %zu: %d, %s, \"%s\"", i, (int)status, param ? param : "-", err.text);
    }
    assert_int_equal(read_fields("model", "a", "model", "b", NULL), REEL_E_ARGUMENT);
    assert_string_equal(param, "model");
    assert_int_equal(read_fields("stream", "true", "response_format", "srt", NULL),
                     REEL_E_ARGUMENT);
    assert_string_equal(param, "response_format");
    form.n_parts = 0;
    assert_int_equal(transcription_form_read(&fields, &form, &param, &err), REEL_E_ARGUMENT);
    assert_string_equal(param, "file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_clients_send_is_read),
        cmocka_unit_test(what_is_ambiguous_is_refused),
        cmocka_unit_test(a_boundary_at_the_very_end_of_the_header_is_read),
        cmocka_unit_test(a_file_name_of_a_megabyte_costs_neither_stack_nor_time),
        cmocka_unit_test(parts_are_counted_and_searching_is_linear),
        cmocka_unit_test(fields_are_read_and_unknown_ones_pass),
        cmocka_unit_test(impossible_fields_are_named),
    };
    return cmocka_run_group_tests_name("forms", tests, NULL, NULL);
}
