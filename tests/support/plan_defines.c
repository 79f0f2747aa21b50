#include "support/plan_defines.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

struct gpu_limits plan_defines_gpu(int n_sms) {
    struct gpu_limits gpu = *plan_known_gpu("h200");
    gpu.n_sms = n_sms;
    return gpu;
}

/* The override of the line "NAME=VALUE", or -1. */
static int override_of(const char *line, const struct plan_override *overrides, int n) {
    const size_t length = strcspn(line, "=");
    for (int i = 0; i < n; i++)
        if (strlen(overrides[i].name) == length && memcmp(overrides[i].name, line, length) == 0)
            return i;
    return -1;
}

/* "-DNAME=VALUE" for each line of `constants`, a NUL behind each; returns how many. */
static int write_options(struct buffer *text, const char *constants,
                         const struct plan_override *overrides, int n_overrides) {
    struct reel_error err = { 0 };
    bool *used = calloc((size_t)n_overrides + 1, sizeof *used);
    int n = 0;
    assert_non_null(used);
    for (const char *line = constants; *line; n++) {
        const int length = (int)strcspn(line, "\n"), i = override_of(line, overrides, n_overrides);
        if (i >= 0)
            require(buffer_printf(text, &err, "-D%s=%lld", overrides[i].name, overrides[i].value),
                    &err);
        else
            require(buffer_printf(text, &err, "-D%.*s", length, line), &err);
        require(buffer_append(text, "", 1, &err), &err);
        if (i >= 0) used[i] = true;
        line += length;
        line += *line == '\n';
    }
    for (int i = 0; i < n_overrides; i++)
        if (!used[i]) fail_msg("%s: the plan has no such constant", overrides[i].name);
    free(used);
    return n;
}

void plan_defines_of(struct plan_defines *d, const struct plan *plan,
                     const struct plan_override *overrides, int n_overrides) {
    struct reel_error err = { 0 };
    struct buffer constants = { 0 }, text = { 0 };
    *d = (struct plan_defines){ .plan = *plan };
    require(plan_constants(plan, &constants, &err), &err);
    const int n = write_options(&text, constants.bytes, overrides, n_overrides);
    buffer_release(&constants);
    d->text = buffer_detach(&text, NULL);
    const char *at = d->text;
    d->list = calloc((size_t)n + 1, sizeof *d->list);
    assert_non_null(d->list);
    for (int i = 0; i < n; i++, at += strlen(at) + 1)
        d->list[i] = at;
}

void plan_defines_make(struct plan_defines *d, const struct model_config *config,
                       const struct gpu_limits *gpu, const struct plan_options *options,
                       const struct plan_override *overrides, int n_overrides) {
    struct reel_error err = { 0 };
    struct plan plan;
    require(plan_make(&plan, config, gpu, options, &err), &err);
    plan_defines_of(d, &plan, overrides, n_overrides);
}

void plan_defines_release(struct plan_defines *d) {
    mem_free(d->text);
    free(d->list);
    *d = (struct plan_defines){ 0 };
}
