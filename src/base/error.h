/* Filling the caller's struct reel_error. */
#ifndef REEL_BASE_ERROR_H
#define REEL_BASE_ERROR_H

#include "reel.h"

/* Writes status and text into err (may be NULL) and returns status, so that a failure reads
 * `return err_set(err, REEL_E_FORMAT, "%s: ...", path)`. Control characters become '?': the text
 * may quote hostile files. */
enum reel_status err_set(struct reel_error *err, enum reel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* REEL_E_ARGUMENT when one of the pointers is NULL, and names it. `names` has one word for each,
 * with spaces between them: err_if_null(err, "out path", (const void *const[]){ out, path }). */
enum reel_status err_if_null(struct reel_error *err, const char *names,
                             const void *const *pointers);

/* What a public call that succeeds leaves behind. */
static inline void err_clear(struct reel_error *err) {
    if (!err) return;
    err->status = REEL_OK;
    err->text[0] = '\0';
}

/* The message every failed allocation gives; `what` names what the bytes were for. */
enum reel_status err_memory(struct reel_error *err, const char *what, size_t n_bytes);

#endif
