/* models/hybrid, a small Qwen3.5 that tools/train_hybrid.py trained: its greedy ids are those of
 * transformers in float32, and it recalls pairs of words over 1,000 positions. REEL_HYBRID names
 * another folder. */
#include "base/file_map.h"
#include "base/json.h"
#include "cli/check.h"
#include "reel.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *folder(void) {
    const char *given = getenv("REEL_HYBRID");
    return given ? given : "models/hybrid";
}

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

static struct file_map map_file(const char *name) {
    struct file_map map = { 0 };
    struct reel_error err = { 0 };
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    require(file_map_open(&map, path, &err), &err);
    return map;
}

static struct reel_model *open_model(const char *cpu_path) {
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = cpu_path, .n_threads = 2
    };
    require(reel_model_open(&model, folder(), &options, &err), &err);
    return model;
}

static void greedy_ids_are_those_of_transformers_under_the_tie_rule(void **state) {
    (void)state;
    static const char *const paths[] = { "auto", "portable" };
    struct file_map golden = map_file("golden.json");
    /* test_cpu_paths.c has sanitizers look at all paths */
    for (int i = 0; i < (SANITIZED ? 1 : 2); i++) {
        struct reel_model *model = open_model(paths[i]);
        struct golden_result r;
        struct reel_error err = { 0 };
        require(golden_check(model, "golden.json", golden.bytes, golden.size, &r, &err), &err);
        printf("%s: %d ids, %d ties, log-probability off by %.4f at most\n", paths[i],
               r.n_positions, r.n_ties, r.worst_logprob);
        /* 1,000 ids of two prompts and 24 of each question, decoded and as one prompt */
        if (!getenv("REEL_HYBRID")) assert_true(r.n_positions >= 4576);
        assert_int_equal(r.n_unexplained, 0);
        reel_model_close(model);
    }
    file_map_close(&golden);
}

/* The id that follows the ids of a question: the first after evaluating them as one prompt. */
static int32_t answer_to(struct reel_session *session, int vocab, const json_t *prompt) {
    int32_t ids[4096], best = 0;
    struct reel_error err = { 0 };
    int n = (int)json_array_size(prompt);
    assert_in_range(n, 1, 4096);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    float *logits = calloc((size_t)vocab, sizeof *logits);
    assert_non_null(logits);
    require(reel_session_truncate(session, 0, &err), &err);
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = ids,
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = logits,
                              .out_floats = (size_t)vocab };
    require(reel_session_eval(session, &eval, &err), &err);
    for (int32_t id = 1; id < vocab; id++)
        if (logits[id] > logits[best]) best = id;
    free(logits);
    return best;
}

static void pairs_are_recalled_over_a_thousand_positions(void **state) {
    (void)state;
    struct file_map file = map_file("recall.json");
    struct reel_error err = { 0 };
    json_error_t json_err;
    json_t *questions = json_loadb((const char *)file.bytes, file.size, 0, &json_err);
    assert_true(json_array_size(questions) > 0);
    struct reel_model *model = open_model("auto");
    struct reel_session *session = NULL;
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    struct reel_session_options options = { .size = sizeof options, .max_context = 4096 };
    require(reel_session_open(&session, model, &options, &err), &err);
    int n = 0, right = 0, farthest = 0;
    size_t i = 0;
    const json_t *question = NULL;
    json_array_foreach(questions, i, question) {
        int distance = (int)json_integer_value(json_object_get(question, "distance"));
        if (distance > farthest) farthest = distance;
        right += answer_to(session, info.vocab, json_object_get(question, "prompt_ids")) ==
                 (int32_t)json_integer_value(json_object_get(question, "answer"));
        n++;
    }
    printf("%d of %d pairs recalled, over up to %d tokens\n", right, n, farthest);
    if (!getenv("REEL_HYBRID")) {
        assert_true(farthest >= 1000);
        assert_true(10 * right >= 9 * n);
    }
    reel_session_close(session);
    reel_model_close(model);
    json_decref(questions);
    file_map_close(&file);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(greedy_ids_are_those_of_transformers_under_the_tie_rule),
        in_turn(pairs_are_recalled_over_a_thousand_positions),
    };
    SHARE_TESTS("trained-hybrid", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
