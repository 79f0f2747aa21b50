/* Any text: json_read and json_read_lenient must give the verdict and the tree that jansson's own
 * parser gives. Allowed differences, two of them stated limits of ours: nesting deeper than 512
 * (jansson: 2048), numbers longer than 128 characters (jansson: no limit), integers beyond 64 bits,
 * which are real numbers here and refused there, and a zero byte outside of strings, always refused
 * here, which jansson 2.14 passes over after a number. What is accepted must survive being written
 * and read again. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef enum reel_status (*read_fn)(json_t **out, const char *name, const void *bytes, size_t n,
                                    struct reel_error *err);

static bool own_limit(const struct reel_error *err) {
    return strstr(err->text, "nested more than 512 deep") ||
           strstr(err->text, "a number of more than 128 characters");
}

/* Not compared with the first tree: reals are written with 15 digits. */
static void write_and_read(const json_t *tree) {
    char *text = NULL;
    json_t *again = NULL;
    if (json_write(&text, tree, "fuzz", NULL) != REEL_OK) abort();
    if (json_read_lenient(&again, "fuzz", text, strlen(text), NULL) != REEL_OK) abort();
    if (json_typeof(again) != json_typeof(tree) && !json_is_integer(tree)) abort();
    json_decref(again);
    free(text);
}

static void compare(read_fn read, size_t flags, const uint8_t *data, size_t n) {
    json_t *ours = NULL;
    struct reel_error err = { 0 };
    json_error_t error = { 0 };
    enum reel_status status = read(&ours, "fuzz", data, n, &err);
    json_t *theirs = json_loadb((const char *)data, n, flags, &error);
    const bool large = !theirs && strstr(error.text, "integer"); /* "too big integer" */
    if ((status == REEL_OK) != (ours != NULL)) abort();
    if (ours && !large && !(theirs && json_equal(ours, theirs))) abort();
    if (!ours && theirs && !own_limit(&err) && !memchr(data, 0, n)) abort();
    if (!ours && (err.status != status || !err.text[0])) abort();
    if (ours) write_and_read(ours);
    json_decref(ours);
    json_decref(theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t strict = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    compare(json_read, strict, data, n);
    compare(json_read_request, strict | JSON_ALLOW_NUL, data, n);
    compare(json_read_lenient, strict | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, data, n);
    return 0;
}
