#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum reel_status err_set(struct reel_error *err, enum reel_status status, const char *format, ...) {
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n < 0) err->text[0] = '\0';
    if ((size_t)n >= sizeof err->text) memcpy(err->text + sizeof err->text - 4, "...", 4);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return status;
}

enum reel_status err_memory(struct reel_error *err, const char *what, size_t n_bytes) {
    return err_set(err, REEL_E_MEMORY, "out of memory: %s needs %zu bytes", what, n_bytes);
}

enum reel_status err_if_null(struct reel_error *err, const char *names,
                             const void *const *pointers) {
    for (int i = 0; *names; i++) {
        const int n = (int)strcspn(names, " ");
        if (!pointers[i]) return err_set(err, REEL_E_ARGUMENT, "%.*s is NULL", n, names);
        names += n;
        names += strspn(names, " ");
    }
    return REEL_OK;
}

const char *reel_status_name(enum reel_status status) {
    switch (status) {
#define NAME(name, value, text)                                                                    \
    case name:                                                                                     \
        return #name;
        REEL_STATUS_LIST(NAME)
#undef NAME
    }
    return "unknown status";
}

const char *reel_status_text(enum reel_status status) {
    switch (status) {
#define TEXT(name, value, text)                                                                    \
    case name:                                                                                     \
        return text;
        REEL_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "unknown status";
}
