/* Public structs begin with their size, so that they can grow: the headers are read, and programs
 * of an older and of a newer header are played. */
#include "base/memory.h"
#include "base/struct_size.h"
#include "reel_measure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the headers ---- */

/* Those that will not grow, as reel.h's conventions say. */
static const char *const fixed[] = { "reel_error", "reel_memory_file", "reel_logit_bias",
                                     "reel_top_logprob" };
enum { N_FIXED = sizeof fixed / sizeof *fixed };

/* What each has in 0.3 on 64-bit machines. Whoever adds a member changes the row, and has read that
 * it begins at or after the size there was: padding of older programs may hold anything. */
#define SIZED(name, bytes, last)                                                                   \
    { #name, sizeof(struct name), bytes, #last }
static const struct sized {
    const char *name;
    size_t now, bytes;
    const char *last;
} sized[] = {
    SIZED(reel_allocator, 40, user),
    SIZED(reel_model_options, 144, draft_head),
    SIZED(reel_model_info, 224, draft_layers),
    SIZED(reel_plan_options, 40, n_gpus),
    SIZED(reel_quantize_options, 48, progress_user),
    SIZED(reel_quantize_result, 48, error),
    SIZED(reel_devices_options, 24, nvrtc_dir),
    SIZED(reel_message, 56, tool_call_id),
    SIZED(reel_chat_options, 40, continue_final_message),
    SIZED(reel_answer, 32, tool_calls),
    SIZED(reel_answer_piece, 40, broken),
    SIZED(reel_answer_reader_options, 40, user),
    SIZED(reel_session_options, 48, draft_model),
    SIZED(reel_eval, 56, out_floats),
    SIZED(reel_embed_info, 24, default_prompt),
    SIZED(reel_embed, 56, out_floats),
    SIZED(reel_rerank, 56, truncated),
    SIZED(reel_sampling, 64, n_bias),
    SIZED(reel_token, 48, top),
    SIZED(reel_generation, 88, most_drafts),
    SIZED(reel_generation_result, 64, draft_problem),
    SIZED(reel_audio_options, 48, wait_user),
    SIZED(reel_transcriber_options, 104, pause_seconds),
    SIZED(reel_segment, 56, cut_short),
    SIZED(reel_transcript, 112, stream_worst_ms),
    SIZED(reel_limits_options, 80, log_user),
    SIZED(reel_meter_reading, 24, watts),
    SIZED(reel_gpu_option, 48, standard),
    SIZED(reel_profile_options, 16, trace_tokens),
    SIZED(reel_tune_trial, 48, kept),
    SIZED(reel_tune_options, 80, apply),
    SIZED(reel_tune_result, 688, path),
};
enum { N_SIZED = sizeof sized / sizeof *sized };

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 17);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 17) - 1, file);
    fclose(file);
    assert_true(n > 1000 && n < (1 << 17) - 1);
    return text;
}

static void blank_comments(char *text) {
    for (char *at = text; (at = strstr(at, "/*"));) {
        char *end = strstr(at, "*/");
        assert_non_null(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
}

/* The last member's name is what stands before the last semicolon, without an array's length. */
static void check_last(const struct sized *s, const char *body, const char *end) {
    while (*end != ';')
        end--;
    if (end[-1] == ']')
        while (*end != '[')
            end--;
    const size_t n = strlen(s->last);
    assert_true(end - body > (long)n);
    if (memcmp(end - n, s->last, n) != 0 || (*(end - n - 1) != ' ' && *(end - n - 1) != '*'))
        fail_msg("struct %s does not end with %s", s->name, s->last);
}

/* name: n characters; body: behind the brace. */
static void check_struct(const char *name, size_t n, const char *body, bool *seen) {
    char own[64];
    snprintf(own, sizeof own, "%.*s", (int)n, name);
    for (int i = 0; i < N_FIXED; i++)
        if (strcmp(own, fixed[i]) == 0) return;
    if (strncmp(body + strspn(body, " \n"), "size_t size;", 12) != 0)
        fail_msg("struct %s does not begin with its size", own);
    for (int i = 0; i < N_SIZED; i++) {
        if (strcmp(own, sized[i].name) != 0) continue;
        seen[i] = true;
        check_last(&sized[i], body, strstr(body, "\n};"));
        return;
    }
    fail_msg("struct %s has no row here", own);
}

static void every_public_struct_that_can_grow_has_its_size(void **state) {
    (void)state;
    static const char *const headers[] = { "include/reel.h", "include/reel_speech.h",
                                           "include/reel_measure.h" };
    bool seen[N_SIZED] = { false };
    for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
        char *text = read_text(headers[h]);
        blank_comments(text);
        for (char *at = text; (at = strstr(at, "\nstruct reel_"));) {
            char *name = at + 8, *brace = name + strcspn(name, " ;");
            at = brace;
            if (*brace == ' ') check_struct(name, (size_t)(brace - name), brace + 2, seen);
        }
        free(text);
    }
    for (int i = 0; i < N_SIZED; i++)
        if (!seen[i]) fail_msg("no header has struct %s", sized[i].name);
}

static void the_conventions_name_those_without(void **state) {
    (void)state;
    char *text = read_text("include/reel.h");
    char *list = strstr(text, "Without a size");
    assert_non_null(list);
    *strstr(list, "\n * - ") = '\0';
    for (int i = 0; i < N_FIXED; i++)
        if (!strstr(list, fixed[i])) fail_msg("the conventions do not name %s", fixed[i]);
    int n = 0;
    for (char *at = list; (at = strstr(at, "reel_")); at++)
        n++;
    assert_int_equal(n, N_FIXED);
    free(text);
}

static void no_struct_has_changed_where_others_read_it(void **state) {
    (void)state;
    if (sizeof(void *) != 8) skip();
    for (int i = 0; i < N_SIZED; i++)
        if (sized[i].now != sized[i].bytes)
            fail_msg("struct %s has %zu bytes, had %zu", sized[i].name, sized[i].now,
                     sized[i].bytes);
}

/* ---- older and newer programs ---- */

struct small {
    size_t size;
    int a;
    int b;
};
struct large {
    struct small known;
    int more[6];
};

static void what_is_missing_is_zero(void **state) {
    (void)state;
    struct small own, given = { offsetof(struct small, b), 5, 6 };
    assert_int_equal(struct_read(&own, sizeof own, &given, "small", NULL), REEL_OK);
    assert_true(own.size == sizeof own && own.a == 5 && own.b == 0);
    assert_int_equal(struct_read(&own, sizeof own, NULL, "small", NULL), REEL_OK);
    assert_true(own.size == sizeof own && own.a == 0 && own.b == 0);
}

static void an_option_that_would_be_lost_is_refused_with_its_place(void **state) {
    (void)state;
    struct reel_error err;
    struct small own;
    struct large newer = { .known = { sizeof newer, 5, 6 } };
    assert_int_equal(struct_read(&own, sizeof own, &newer, "small", &err), REEL_OK);
    assert_int_equal(own.b, 6);
    for (size_t i = sizeof own; i < sizeof newer; i++) {
        char says[100];
        ((char *)&newer)[i] = 1;
        assert_int_equal(struct_read(&own, sizeof own, &newer, "small", &err), REEL_E_UNSUPPORTED);
        snprintf(says, sizeof says, "struct small: byte %zu of its %zu is not zero", i,
                 sizeof newer);
        assert_non_null(strstr(err.text, says));
        assert_non_null(strstr(err.text, "knows the first 16"));
        ((char *)&newer)[i] = 0;
    }
}

static void a_size_that_was_never_set_is_refused(void **state) {
    (void)state;
    static const size_t sizes[] = { 0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX };
    struct reel_error err;
    struct small own = { .a = 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct small given = { sizes[i], 5, 6 };
        assert_int_equal(struct_read(&own, sizeof own, &given, "small", &err), REEL_E_ARGUMENT);
        assert_non_null(strstr(err.text, "sizeof(struct small)"));
        assert_int_equal(struct_write(&given, &own, sizeof own, "small", &err), REEL_E_ARGUMENT);
        assert_true(given.a == 5 && given.b == 6);
    }
    assert_int_equal(struct_write(NULL, &own, sizeof own, "small", &err), REEL_E_ARGUMENT);
}

static void of_a_result_what_both_know_is_written(void **state) {
    (void)state;
    const struct small own = { sizeof own, 5, 6 };
    struct small older = { offsetof(struct small, b), 1, 2 };
    struct large newer = { .known = { sizeof newer, 1, 2 }, .more = { 3 } };
    assert_int_equal(struct_write(&older, &own, sizeof own, "small", NULL), REEL_OK);
    assert_true(older.size == offsetof(struct small, b) && older.a == 5 && older.b == 2);
    assert_int_equal(struct_write(&newer, &own, sizeof own, "small", NULL), REEL_OK);
    assert_true(newer.known.size == sizeof newer && newer.known.b == 6 && newer.more[0] == 3);
}

static void lists_go_by_the_step_of_their_first(void **state) {
    (void)state;
    struct reel_error err;
    struct large newer[3] = { { .known = { sizeof *newer, 1, 2 } },
                              { .known = { sizeof *newer, 3, 4 } },
                              { .known = { sizeof *newer, 5, 6 } } };
    struct small *own = NULL;
    assert_int_equal(struct_read_list(&own, sizeof *own, newer, 3, "small", &err), REEL_OK);
    for (int i = 0; i < 3; i++)
        assert_true(own[i].size == sizeof *own && own[i].a == 2 * i + 1 && own[i].b == 2 * i + 2);
    mem_free(own);
    newer[2].more[0] = 1;
    assert_int_equal(struct_read_list(&own, sizeof *own, newer, 3, "small", &err),
                     REEL_E_UNSUPPORTED);
    mem_free(own);
    newer[1].known.size = sizeof(struct small);
    assert_int_equal(struct_read_list(&own, sizeof *own, newer, 3, "small", &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "number 1"));
    mem_free(own);
    newer[0].known.size = 0;
    assert_int_equal(struct_read_list(&own, sizeof *own, newer, 3, "small", &err), REEL_E_ARGUMENT);
    mem_free(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_public_struct_that_can_grow_has_its_size),
        cmocka_unit_test(the_conventions_name_those_without),
        cmocka_unit_test(no_struct_has_changed_where_others_read_it),
        cmocka_unit_test(what_is_missing_is_zero),
        cmocka_unit_test(an_option_that_would_be_lost_is_refused_with_its_place),
        cmocka_unit_test(a_size_that_was_never_set_is_refused),
        cmocka_unit_test(of_a_result_what_both_know_is_written),
        cmocka_unit_test(lists_go_by_the_step_of_their_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
