/* What bounds a job, and its failures. */
#include "jinja/value.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

/* C frames that a template's nesting can pile up: at most 1 KiB each, in all 1.5 MiB of stack. */
enum { DEPTH_MAX = 1500 };

struct jinja_limits jinja_default_limits(void) {
    return (struct jinja_limits){
        .source_bytes = 1 << 20,
        .parse_depth = 200,
        .steps = 8 << 20,
        .memory_bytes = (size_t)256 << 20,
        .output_bytes = 64 << 20,
        .call_depth = 200,
        .value_depth = 200,
    };
}

struct value fail(struct job *job, enum reel_status status, const char *format, ...) {
    if (job->failed) return v_failed();
    job->failed = true;
    char words[400];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (job->line > 0)
        (void)err_set(&job->error, status, "%s:%d: %s", job->name, job->line, words);
    else
        (void)err_set(&job->error, status, "%s: %s", job->name, words);
    return v_failed();
}

struct value fail_limit(struct job *job, const char *what, size_t limit) {
    return fail(job, REEL_E_LIMIT, "more than %zu %s, which is the limit", limit, what);
}

bool job_too_many_steps(struct job *job) {
    fail_limit(job, "steps", job->limits.steps);
    return false;
}

bool job_enter(struct job *job) {
    if (job->depth >= DEPTH_MAX) {
        fail_limit(job, "levels of evaluation inside each other", DEPTH_MAX);
        return false;
    }
    job->depth++;
    return true;
}

static bool no_memory(struct job *job, size_t bytes) {
    if (job->arena->over)
        fail_limit(job, "bytes of memory", job->arena->limit);
    else
        fail(job, REEL_E_MEMORY, "no memory for %zu bytes of values", bytes);
    return false;
}

void *job_raw(struct job *job, size_t n, size_t size) {
    size_t bytes = 0;
    if (job->failed) return NULL;
    if (!size_mul(n, size, &bytes)) bytes = SIZE_MAX;
    void *p = arena_raw(job->arena, bytes);
    if (!p) no_memory(job, bytes);
    return p;
}

void *job_take(struct job *job, size_t n, size_t size) {
    size_t bytes = 0;
    if (job->failed) return NULL;
    if (!size_mul(n, size, &bytes)) bytes = SIZE_MAX;
    void *p = arena_take(job->arena, bytes);
    if (!p) no_memory(job, bytes);
    return p;
}
