/* The public interface over the demo model and the real CPU backend. */
#include "base/file_map.h"
#include "reel.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char demo[] = "models/demo";
static struct reel_model *model;
static int32_t prompt[64];
static int n_prompt;

static int open_demo(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    const char text[] = "The morning after the ball, Elizabeth walked to the village";
    size_t n = 0;
    const struct reel_model_options on_cpu = { .size = sizeof on_cpu, .device = "cpu" };
    if (reel_model_open(&model, demo, &on_cpu, &err) != REEL_OK ||
        reel_encode(reel_model_tokenizer(model), text, sizeof text - 1, 0, prompt, 64, &n, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    n_prompt = (int)n;
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    reel_model_close(model);
    return 0;
}

static struct reel_session *open_session(int max_context) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = max_context };
    struct reel_session *s = NULL;
    struct reel_error err;
    if (reel_session_open(&s, model, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    return s;
}

static void generate(struct reel_session *s, int n, const struct reel_sampling *sampling) {
    struct reel_error err;
    struct reel_generation g = { .size = sizeof g, .sampling = sampling, .max_tokens = n };
    g.ignore_stop_ids = true;
    if (reel_generate(s, &g, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
}

static void sync_to(struct reel_session *s, const int32_t *ids, int n) {
    struct reel_error err;
    if (reel_session_sync(s, ids, n, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
}

/* ---- opening ---- */

static void options_are_checked_and_messages_say_what_is_allowed(void **state) {
    (void)state;
    const struct {
        struct reel_model_options options;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { { .size = 0 }, REEL_E_ARGUMENT, "sizeof(struct reel_model_options)" },
        { { .size = 1 << 20 }, REEL_E_ARGUMENT, "1048576" },
        { { .size = sizeof cases[0].options, .device = "gpu", .cuda_dir = "tests" },
          REEL_E_UNSUPPORTED,
          "no NVIDIA driver" },
        { { .size = sizeof cases[0].options, .device = "gpu:1", .cuda_dir = "tests" },
          REEL_E_UNSUPPORTED,
          "gpu:1" },
        { { .size = sizeof cases[0].options, .device = "tpu" }, REEL_E_ARGUMENT, "\"auto\"" },
        { { .size = sizeof cases[0].options, .cpu_path = "z80" }, REEL_E_ARGUMENT, "z80" },
        { { .size = sizeof cases[0].options, .n_threads = -1 }, REEL_E_ARGUMENT, "-1" },
        { { .size = sizeof cases[0].options, .rounding = (enum reel_rounding)7 },
          REEL_E_ARGUMENT,
          "7" },
        { { .size = sizeof cases[0].options, .chat_template = "no such" },
          REEL_E_ARGUMENT,
          "no such" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reel_error err = { 0 };
        struct reel_model *none = model;
        assert_int_equal(reel_model_open(&none, demo, &cases[i].options, &err), cases[i].status);
        assert_null(none);
        if (!strstr(err.text, cases[i].says)) fail_msg("case %zu says: %s", i, err.text);
    }
    struct reel_error err;
    struct reel_model *none;
    assert_int_equal(reel_model_open(&none, "no/such/model", NULL, &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such/model"));
    assert_int_equal(reel_model_open(&none, NULL, NULL, &err), REEL_E_ARGUMENT);
    struct reel_tokenizer *tok;
    size_t n_ids = 0;
    assert_int_equal(reel_tokenizer_open(&tok, NULL, NULL, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_encode(reel_model_tokenizer(model), NULL, 5, 0, NULL, 0, &n_ids, &err),
                     REEL_E_ARGUMENT);
    reel_model_close(NULL);
    reel_session_close(NULL);
}

static bool stop_at_once(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)done, (void)total;
    ++*(int *)user;
    return false;
}

static void progress_may_end_the_opening(void **state) {
    (void)state;
    int calls = 0;
    struct reel_error err = { 0 };
    struct reel_model *none = NULL;
    const struct reel_model_options options = { .size = sizeof options,
                                                .progress = stop_at_once,
                                                .progress_user = &calls };
    enum reel_status status = reel_model_open(&none, demo, &options, &err);
    if (calls == 0) { /* opening so small a model reports nothing */
        assert_int_equal(status, REEL_OK);
        reel_model_close(none);
        return;
    }
    assert_int_equal(status, REEL_E_CANCELLED);
    assert_null(none);
}

static void a_model_in_memory_is_the_same_model(void **state) {
    (void)state;
    static const char *const names[] = { "config.json", "generation_config.json",
                                         "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json" };
    struct file_map maps[5];
    struct reel_memory_file files[5];
    struct reel_model *copy = NULL;
    struct reel_session *a = open_session(100), *b = NULL;
    struct reel_error err = { 0 };
    int n = 0;
    for (int i = 0; i < 5; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", demo, names[i]);
        if (file_map_open(&maps[n], path, NULL) != REEL_OK) continue; /* an optional one */
        files[n] = (struct reel_memory_file){ names[i], maps[n].bytes, maps[n].size };
        n++;
    }
    if (reel_model_open_memory(&copy, "demo", files, n, NULL, &err) != REEL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(reel_session_open(&b, copy, NULL, &err), REEL_OK);
    sync_to(a, prompt, n_prompt);
    sync_to(b, prompt, n_prompt);
    generate(a, 20, NULL);
    generate(b, 20, NULL);
    assert_memory_equal(reel_session_ids(a), reel_session_ids(b),
                        (size_t)(n_prompt + 20) * sizeof *prompt);
    size_t bytes = reel_session_snapshot_bytes(a); /* and each takes the other's snapshots */
    void *snapshot = malloc(bytes);
    assert_int_equal(reel_session_snapshot(a, snapshot, bytes, &err), REEL_OK);
    assert_int_equal(reel_session_restore(b, snapshot, bytes, &err), REEL_OK);
    free(snapshot);
    reel_session_close(a);
    reel_session_close(b);
    reel_model_close(copy);
    for (int i = 0; i < n; i++)
        file_map_close(&maps[i]);
    assert_int_equal(reel_model_open_memory(&copy, NULL, NULL, 0, NULL, &err), REEL_E_ARGUMENT);
}

/* ---- looking ---- */

static void info_and_sampling_respect_the_size_they_are_given(void **state) {
    (void)state;
    struct reel_model_info info = { .size = sizeof info };
    struct reel_sampling sampling = { .size = sizeof sampling };
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    assert_string_equal(info.family, "qwen3");
    assert_string_equal(info.weight_type, "bf16");
    assert_string_equal(info.backend, "cpu");
    assert_true(info.n_parameters > 1000000 && info.weight_bytes >= info.token_bytes);
    assert_true(info.kv_token_bytes > 0 && info.n_threads > 0 && info.vocab > 256);
    assert_int_equal(reel_model_default_sampling(model, &sampling, NULL), REEL_OK);
    assert_int_equal(sampling.size, sizeof sampling);

    struct reel_model_info old;
    memset(&old, 0x55, sizeof old);
    old.size = offsetof(struct reel_model_info, weight_type); /* an older program */
    assert_int_equal(reel_model_get_info(model, &old, NULL), REEL_OK);
    assert_string_equal(old.family, "qwen3");
    unsigned char untouched[8];
    memset(untouched, 0x55, sizeof untouched);
    assert_memory_equal(&old.weight_type, untouched, sizeof untouched);
}

static void a_result_without_its_size_is_refused(void **state) {
    (void)state;
    struct reel_error err;
    struct reel_model_info info = { .size = 0 };
    struct reel_sampling sampling = { .size = 0 };
    struct reel_generation_result result = { .size = 0 };
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 2 };
    assert_int_equal(reel_model_get_info(model, &info, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sizeof(struct reel_model_info)"));
    assert_null(info.family);
    assert_int_equal(reel_model_default_sampling(model, &sampling, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "reel_sampling"));
    struct reel_session *s = open_session(64);
    sync_to(s, prompt, n_prompt);
    assert_int_equal(reel_generate(s, &g, &result, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_length(s), n_prompt); /* nothing was generated for nothing */
    assert_int_equal(reel_generation_start(s, &g, &err), REEL_OK);
    assert_int_equal(reel_generation_finish(s, &result, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_truncate(s, 0, &err), REEL_OK); /* it ended all the same */
    reel_session_close(s);
}

static void newer_options_are_read_unless_one_would_be_lost(void **state) {
    (void)state;
    struct {
        struct reel_session_options known;
        long more[4];
    } newer = { .known = { .size = sizeof newer, .max_context = 77 } };
    struct reel_session *s = NULL;
    struct reel_error err;
    assert_int_equal(reel_session_open(&s, model, &newer.known, &err), REEL_OK);
    assert_int_equal(reel_session_max_context(s), 77);
    reel_session_close(s);
    newer.more[1] = 1;
    assert_int_equal(reel_session_open(&s, model, &newer.known, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "struct reel_session_options: byte 56 of its 80 "));
    assert_null(s);
}

static void devices_are_described_as_json(void **state) {
    (void)state;
    char *text = NULL;
    struct reel_error err;
    assert_int_equal(reel_devices(NULL, &text, &err), REEL_OK);
    json_t *root = json_loads(text, 0, NULL), *cpu = json_object_get(root, "cpu");
    assert_true(json_integer_value(json_object_get(cpu, "cores")) > 0);
    assert_true(json_integer_value(json_object_get(cpu, "memory_bytes")) > 1 << 24);
    assert_true(json_array_size(json_object_get(cpu, "paths")) >= 2);
    assert_true(json_is_array(json_object_get(root, "gpus")));
    assert_true(json_array_size(json_object_get(root, "notes")) > 0);
    json_decref(root);
    reel_free(text);
}

static void conversations_need_a_template_or_an_override(void **state) {
    (void)state;
    const struct reel_model_options options = { .size = sizeof options, .chat_template = "chatml" };
    const struct reel_message hello = { .size = sizeof hello, .role = "user", .content = "hello" };
    struct reel_model *chatty = NULL;
    struct reel_error err = { 0 };
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(reel_model_open(&chatty, demo, &options, &err), REEL_OK);
    assert_int_equal(reel_chat_text(chatty, &hello, 1, NULL, &text, &n, &err), REEL_OK);
    assert_string_equal(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(n, strlen(text));
    reel_free(text);
    assert_int_equal(reel_chat_ids(chatty, &hello, 1, NULL, &ids, &n, &err), REEL_OK);
    assert_true(n > 3);
    reel_free(ids);
    struct {
        struct reel_message known;
        const char *more;
    } newer[2] = { { .known = hello }, { .known = hello } }; /* a step of 48 bytes */
    newer[0].known.size = newer[1].known.size = sizeof *newer;
    assert_int_equal(reel_chat_text(chatty, &newer->known, 2, NULL, &text, NULL, &err), REEL_OK);
    assert_string_equal(text,
                        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
                        "<|im_start|>assistant\n");
    reel_free(text);
    newer[1].more = "x";
    assert_int_equal(reel_chat_text(chatty, &newer->known, 2, NULL, &text, &n, &err),
                     REEL_E_UNSUPPORTED);
    const struct reel_message sizeless = { .role = "user", .content = "hello" };
    assert_int_equal(reel_chat_ids(chatty, &sizeless, 1, NULL, &ids, &n, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "reel_message"));
    const struct reel_chat_options bad = { .size = 0 };
    assert_int_equal(reel_chat_text(chatty, &hello, 1, &bad, &text, &n, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_chat_text(chatty, NULL, 1, NULL, &text, &n, &err), REEL_E_ARGUMENT);
    const struct reel_chat_options odd = { .size = sizeof odd, .thinking = (enum reel_thinking)9 };
    assert_int_equal(reel_chat_text(chatty, &hello, 1, &odd, &text, &n, &err), REEL_E_ARGUMENT);
    assert_null(text);
    reel_model_close(chatty);
}

static void answers_are_taken_apart_as_the_template_says(void **state) {
    (void)state;
    const struct reel_model_options options = { .size = sizeof options,
                                                .chat_template = "qwen3.5" };
    const struct reel_chat_options on = { .size = sizeof on, .thinking = REEL_THINKING_ON };
    const struct reel_chat_options odd = { .size = sizeof odd, .thinking = (enum reel_thinking)9 };
    static const char text[] = "why\n</think>\n\nBecause.";
    struct reel_model *chatty = NULL;
    struct reel_model_info info = { .size = sizeof info };
    struct reel_answer answer = { .size = sizeof answer }, small = { .size = 8 };
    struct reel_error err = { 0 };
    assert_int_equal(reel_model_open(&chatty, demo, &options, &err), REEL_OK);
    assert_int_equal(reel_model_get_info(chatty, &info, NULL), REEL_OK);
    assert_true(info.chat_thinks);
    assert_true(reel_chat_opens_thinking(chatty, &on));
    assert_false(reel_chat_opens_thinking(chatty, NULL));
    assert_false(reel_chat_opens_thinking(chatty, &odd));
    assert_int_equal(reel_chat_read_answer(chatty, &on, text, strlen(text), &answer, &err),
                     REEL_OK);
    assert_string_equal(answer.reasoning, "why");
    assert_string_equal(answer.content, "Because.");
    assert_null(answer.tool_calls);
    reel_answer_release(&answer);
    assert_int_equal(reel_chat_read_answer(chatty, NULL, NULL, 0, &answer, &err), REEL_OK);
    assert_null(answer.reasoning);
    assert_string_equal(answer.content, "");
    reel_answer_release(&answer);
    reel_answer_release(NULL);
    assert_int_equal(reel_chat_read_answer(chatty, &on, text, 3, &small, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_chat_read_answer(chatty, &odd, text, 3, &answer, &err), REEL_E_ARGUMENT);
    reel_model_close(chatty);
}

/* ---- sessions on the real backend ---- */

static void every_way_to_the_same_ids_goes_on_the_same(void **state) {
    (void)state;
    struct reel_error err;
    struct reel_session *fresh = open_session(200), *other = open_session(200);
    sync_to(fresh, prompt, n_prompt);
    generate(fresh, 30, NULL);
    int32_t want[100];
    memcpy(want, reel_session_ids(fresh), (size_t)(n_prompt + 30) * sizeof *want);

    assert_int_equal(reel_session_truncate(fresh, n_prompt, &err), REEL_OK);
    generate(fresh, 30, NULL);
    assert_memory_equal(reel_session_ids(fresh), want, (size_t)(n_prompt + 30) * sizeof *want);

    sync_to(other, prompt, n_prompt / 2);
    generate(other, 5, NULL);
    sync_to(other, prompt, n_prompt);
    generate(other, 30, NULL);
    assert_memory_equal(reel_session_ids(other), want, (size_t)(n_prompt + 30) * sizeof *want);

    assert_int_equal(reel_session_truncate(fresh, n_prompt + 10, &err), REEL_OK);
    assert_int_equal(reel_session_copy(other, fresh, &err), REEL_OK);
    generate(other, 20, NULL);
    assert_memory_equal(reel_session_ids(other), want, (size_t)(n_prompt + 30) * sizeof *want);

    size_t bytes = reel_session_snapshot_bytes(fresh);
    void *snapshot = malloc(bytes);
    assert_int_equal(reel_session_snapshot(fresh, snapshot, bytes, &err), REEL_OK);
    assert_int_equal(reel_session_restore(other, snapshot, bytes, &err), REEL_OK);
    generate(other, 20, NULL);
    assert_memory_equal(reel_session_ids(other), want, (size_t)(n_prompt + 30) * sizeof *want);
    free(snapshot);
    reel_session_close(fresh);
    reel_session_close(other);
}

static void embeddings_stand_in_for_ids(void **state) {
    (void)state;
    /* the same hidden state twice: positions fed as embeddings are evaluated like any other */
    struct reel_model_info info = { .size = sizeof info };
    struct reel_error err;
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    size_t hidden = (size_t)info.hidden;
    float *vectors = calloc(3 * hidden, sizeof *vectors), *out = calloc(6 * hidden, sizeof *out);
    for (size_t i = 0; i < 3 * hidden; i++)
        vectors[i] = (float)(i % 17) / 100 - 0.08f;
    for (int round = 0; round < 2; round++) {
        struct reel_session *s = open_session(50);
        struct reel_eval eval = { .size = sizeof eval,
                                  .n = 3,
                                  .embeddings = vectors,
                                  .output = REEL_OUTPUT_ALL_HIDDEN,
                                  .out = out + (size_t)round * 3 * hidden,
                                  .out_floats = 3 * hidden };
        assert_int_equal(reel_session_eval(s, &eval, &err), REEL_OK);
        assert_int_equal(reel_session_ids(s)[2], -1);
        reel_session_close(s);
    }
    assert_memory_equal(out, out + 3 * hidden, 3 * hidden * sizeof *out);
    assert_true(out[0] != 0.0f);
    free(vectors);
    free(out);
}

struct worker {
    struct reel_session *session;
    int32_t ids[100];
    int first;
};

static void run_worker(struct worker *w) {
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = 0.8f,
                                            .top_k = 40,
                                            .top_p = 0.95f,
                                            .seed = (uint64_t)w->first };
    struct reel_generation g = { .size = sizeof g, .sampling = &sampling, .max_tokens = 40 };
    g.ignore_stop_ids = true;
    if (reel_session_sync(w->session, prompt + w->first, 5, NULL, NULL) != REEL_OK) return;
    if (reel_generate(w->session, &g, NULL, NULL) != REEL_OK) return;
    memcpy(w->ids, reel_session_ids(w->session), 45 * sizeof *w->ids);
}

static void *work(void *user) {
    run_worker(user);
    return NULL;
}

static void sessions_in_threads_give_what_they_give_alone(void **state) {
    (void)state;
    struct worker alone[3], together[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        alone[i] = (struct worker){ .session = open_session(50), .first = i };
        together[i] = (struct worker){ .session = open_session(50), .first = i };
        run_worker(&alone[i]);
        assert_int_not_equal(alone[i].ids[44] + alone[i].ids[43], 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, &together[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_memory_equal(alone[i].ids, together[i].ids, sizeof alone[i].ids);
        reel_session_close(alone[i].session);
        reel_session_close(together[i].session);
    }
}

static void *cancel_soon(void *session) {
    const struct timespec t = { 0, 10000000 };
    nanosleep(&t, NULL);
    reel_session_cancel(session);
    return NULL;
}

static void a_running_generation_is_cancelled_from_another_thread(void **state) {
    (void)state;
    struct reel_session *s = open_session(0);
    struct reel_error err;
    struct reel_generation g = { .size = sizeof g, .ignore_stop_ids = true };
    struct reel_generation_result result = { .size = sizeof result };
    pthread_t thread;
    sync_to(s, prompt, n_prompt);
    pthread_create(&thread, NULL, cancel_soon, s);
    assert_int_equal(reel_generate(s, &g, &result, &err), REEL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(result.reason, REEL_STOP_CANCELLED);
    assert_int_equal(reel_session_length(s), n_prompt + result.n_tokens);
    assert_true(result.total_ms >= result.first_token_ms);
    reel_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked_and_messages_say_what_is_allowed),
        cmocka_unit_test(progress_may_end_the_opening),
        cmocka_unit_test(a_model_in_memory_is_the_same_model),
        cmocka_unit_test(info_and_sampling_respect_the_size_they_are_given),
        cmocka_unit_test(a_result_without_its_size_is_refused),
        cmocka_unit_test(newer_options_are_read_unless_one_would_be_lost),
        cmocka_unit_test(devices_are_described_as_json),
        cmocka_unit_test(conversations_need_a_template_or_an_override),
        cmocka_unit_test(answers_are_taken_apart_as_the_template_says),
        cmocka_unit_test(every_way_to_the_same_ids_goes_on_the_same),
        cmocka_unit_test(embeddings_stand_in_for_ids),
        cmocka_unit_test(sessions_in_threads_give_what_they_give_alone),
        cmocka_unit_test(a_running_generation_is_cancelled_from_another_thread),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
