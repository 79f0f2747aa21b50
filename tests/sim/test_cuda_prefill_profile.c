/* Times of a prompt's launches on the fake GPU: what is timed, and that failing events end in
 * words and leave nothing behind. */
#include "base/json.h"
#include "cuda/run/cuda_backend.h"
#include "reel_measure.h"
#include "runtime/model_handle.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define SHORTS   "n_groups=1,group_sms=6,warps=4,prefill_tokens=128,prefill_from=4,launch_tokens=0"
#define SMALL    SHORTS ",short_positions=0"
#define PROFILED SMALL ",profile=8"
enum { N_SMS = 7, CONTEXT = 160, FIRST = 10, N = 12 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    int32_t prompt[CONTEXT];
    int n_launches; /* of a prompt */
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static int start(void **state) {
    static struct fixture f;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = N_SMS;
    sim_model_open(&f.m, "ll-a");
    f.n_launches = 6 * f.m.cpu->model.config.n_layers + 2;
    for (int i = 0; i < CONTEXT; i++)
        f.prompt[i] = (i * 37 + 11) % f.m.vocab;
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    assert_int_equal(f->gpu.cuda->leaked.events + f->gpu.cuda->leaked.allocations, 0);
    return 0;
}

static enum reel_status try_session(struct fixture *f, struct reel_session **s) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    return reel_session_open(s, f->m.gpu, &options, &f->err);
}

static struct reel_session *open_session(struct fixture *f) {
    struct reel_session *s = NULL;
    good(try_session(f, &s), f);
    return s;
}

static enum reel_status read_at(struct fixture *f, struct reel_session *s, int position, int n) {
    const struct reel_eval e = { .size = sizeof e, .n = n, .ids = f->prompt + position };
    good(reel_session_truncate(s, position, &f->err), f);
    return reel_session_eval(s, &e, &f->err);
}

/* A profile needs decoding, which needs logits. NULL: it has no such member. */
static json_t *prefill_of(struct fixture *f, struct reel_session *s) {
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 6, .ignore_stop_ids = true };
    json_t *json = NULL;
    char *text = NULL;
    const int32_t id = 3;
    const int n = reel_session_length(s);
    float *logits = malloc((size_t)f->m.vocab * sizeof *logits);
    assert_non_null(logits);
    const struct reel_eval e = { .size = sizeof e,
                                 .n = 1,
                                 .ids = &id,
                                 .output = REEL_OUTPUT_LAST_LOGITS,
                                 .out = logits,
                                 .out_floats = (size_t)f->m.vocab };
    good(reel_session_eval(s, &e, &f->err), f);
    good(reel_generate(s, &g, NULL, &f->err), f);
    good(reel_session_profile(s, NULL, &text, NULL, &f->err), f);
    good(reel_session_truncate(s, n, &f->err), f);
    good(json_read(&json, "a profile", text, strlen(text), &f->err), f);
    json_t *prefill = json_incref(json_object_get(json, "prefill"));
    json_decref(json);
    reel_free(text);
    free(logits);
    return prefill;
}

static double real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

static const json_t *step_of(const json_t *prefill, const char *name) {
    size_t i;
    const json_t *step;
    json_array_foreach(json_object_get(prefill, "steps"), i, step) {
        if (strcmp(json_string_value(json_object_get(step, "step")), name) == 0) return step;
    }
    fail_msg("no step %s", name);
    return NULL;
}

/* Weights as the model's file has them; a tape has padding besides. */
static void check_product(const json_t *prefill, const char *name, double weights, int n_layers,
                          int n_tokens, const char *cut) {
    const json_t *step = step_of(prefill, name);
    assert_string_equal(json_string_value(json_object_get(step, "cut")), cut);
    assert_int_equal(real(step, "launches"), n_layers);
    assert_true(real(step, "us") > 0 && real(step, "tflop_per_s") > 0);
    assert_true(real(step, "bytes") >= 2 * weights * n_layers);
    assert_true(real(step, "bytes") < 8 * weights * n_layers);
    assert_true(fabs(real(step, "gflop") * 1e9 - 2 * weights * n_layers * n_tokens) < 1);
}

static void check_steps(const struct fixture *f, const json_t *prefill, int position, int n_tokens,
                        const char *first, const char *second) {
    const struct model_config *c = &f->m.cpu->model.config;
    const double q = c->n_heads * c->head_dim, kv = 2 * c->n_kv_heads * c->head_dim;
    const double attended = n_tokens * position + n_tokens * (n_tokens + 1) / 2.0;
    const json_t *attention = step_of(prefill, "attention");
    check_product(prefill, "qkv", (q + kv) * c->hidden, c->n_layers, n_tokens, first);
    check_product(prefill, "out", q * c->hidden, c->n_layers, n_tokens, second);
    check_product(prefill, "gate_up", 2.0 * c->intermediate * c->hidden, c->n_layers, n_tokens,
                  first);
    check_product(prefill, "down", (double)c->intermediate * c->hidden, c->n_layers, n_tokens,
                  second);
    assert_true(fabs(real(attention, "gflop") * 1e9 - 4 * q * attended * c->n_layers) < 1);
    assert_int_equal(real(attention, "bytes"),
                     (position + n_tokens + 15) / 16 * 16 * 2 * kv * c->n_layers);
    assert_int_equal(real(step_of(prefill, "embed"), "launches"), 1);
    assert_int_equal(real(step_of(prefill, "rope"), "launches"), c->n_layers);
    assert_int_equal(real(step_of(prefill, "end"), "launches"), 1);
    assert_int_equal(real(json_object_get(prefill, "total"), "launches"), f->n_launches);
    assert_int_equal(real(prefill, "position"), position);
    assert_int_equal(real(prefill, "tokens"), n_tokens);
    assert_int_equal(real(prefill, "most_tokens"), 128);
}

static void every_step_of_a_prompt_is_timed_and_counted(void **state) {
    struct fixture *f = *state;
    good(sim_model_load(&f->m, PROFILED, &f->err), f);
    struct reel_session *s = open_session(f);
    good(read_at(f, s, 0, FIRST), f);
    for (int i = 0; i < 3; i++)
        good(read_at(f, s, FIRST, N), f);
    json_t *prefill = prefill_of(f, s);
    check_steps(f, prefill, FIRST, N, "thin", "thin");
    assert_int_equal(real(prefill, "runs"), 2);
    json_decref(prefill);
    good(read_at(f, s, 0, 40), f);
    prefill = prefill_of(f, s);
    check_steps(f, prefill, 0, 40, "halves", "thin");
    assert_int_equal(real(prefill, "runs"), 1);
    json_decref(prefill);
    reel_session_close(s);
    sim_model_unload(&f->m);
}

static void only_a_profiled_prompt_has_events_and_does_not_overlap(void **state) {
    struct fixture *f = *state;
    struct fake_cuda *cuda = f->gpu.cuda;
    for (int profiled = 0; profiled < 2; profiled++) {
        good(sim_model_load(&f->m, profiled ? PROFILED : SMALL, &f->err), f);
        const int before = cuda->live.events;
        struct reel_session *s = open_session(f);
        assert_int_equal(cuda->live.events - before, profiled ? f->n_launches + 1 : 0);
        cuda->n_launches = 0;
        cuda->only = "cuLaunchKernelEx"; /* what launches that overlap go through */
        cuda->fail_call = 1, cuda->fail_with = 2;
        const enum reel_status status = read_at(f, s, 0, N);
        cuda->only = NULL;
        assert_int_equal(cuda->fail_call, profiled);
        cuda->fail_call = 0;
        assert_int_equal(status, profiled ? REEL_OK : REEL_E_MEMORY);
        if (profiled) assert_int_equal(cuda->n_launches, f->n_launches);
        reel_session_close(s);
        assert_int_equal(cuda->live.events, before);
        sim_model_unload(&f->m);
    }
}

/* Read in one launch it is one step, beside what is told to the host. */
static void a_short_prompt_is_one_step(void **state) {
    struct fixture *f = *state;
    const struct model_config *c = &f->m.cpu->model.config;
    const double q = c->n_heads * c->head_dim, kv = 2 * c->n_kv_heads * c->head_dim;
    const double weights = (2 * q + kv) * c->hidden + 3.0 * c->intermediate * c->hidden;
    good(sim_model_load(&f->m, SHORTS ",profile=8", &f->err), f);
    struct reel_session *s = open_session(f);
    for (int i = 0; i < 3; i++)
        good(read_at(f, s, 0, N), f);
    json_t *prefill = prefill_of(f, s);
    const json_t *step = step_of(prefill, "short");
    assert_int_equal(json_array_size(json_object_get(prefill, "steps")), 2);
    assert_int_equal(real(step, "launches"), 1);
    assert_int_equal(real(step_of(prefill, "end"), "launches"), 1);
    assert_int_equal(real(json_object_get(prefill, "total"), "launches"), 2);
    assert_int_equal(real(prefill, "runs"), 2);
    assert_true(real(step, "us") > 0);
    assert_true(fabs(real(step, "gflop") * 1e9 - 2 * weights * c->n_layers * N -
                     4 * q * N * (N + 1) / 2.0 * c->n_layers) < 1);
    json_decref(prefill);
    good(read_at(f, s, 0, 40), f); /* too long for that */
    prefill = prefill_of(f, s);
    check_steps(f, prefill, 0, 40, "halves", "thin");
    json_decref(prefill);
    reel_session_close(s);
    sim_model_unload(&f->m);
}

static void a_prompt_that_is_decoded_has_no_launches_to_time(void **state) {
    struct fixture *f = *state;
    good(sim_model_load(&f->m, PROFILED, &f->err), f);
    struct reel_session *s = open_session(f);
    good(read_at(f, s, 0, 3), f);
    assert_null(prefill_of(f, s));
    reel_session_close(s);
    sim_model_unload(&f->m);
}

/* The call fails while a session is opened. */
static void events_that_cannot_be_made_leave_no_session(void **state) {
    struct fixture *f = *state;
    struct fake_cuda *cuda = f->gpu.cuda;
    good(sim_model_load(&f->m, PROFILED, &f->err), f);
    const struct fake_live before = cuda->live;
    for (int call = 1; call <= f->n_launches + 1; call += f->n_launches / 2) {
        struct reel_session *s = NULL;
        cuda->only = "cuEventCreate", cuda->fail_call = call, cuda->fail_with = 999;
        assert_int_equal(try_session(f, &s), REEL_E_DEVICE);
        cuda->only = NULL;
        assert_null(s);
        assert_non_null(strstr(f->err.text, "cuEventCreate"));
        assert_int_equal(cuda->live.events, before.events);
        assert_int_equal(cuda->live.allocations, before.allocations);
        assert_int_equal(cuda->live.host_allocations, before.host_allocations);
    }
    sim_model_unload(&f->m);
}

/* The call fails while a prompt is read; the next one is read and timed all the same. */
static void failing_events_end_a_prompt_in_words(void **state) {
    struct fixture *f = *state;
    struct fake_cuda *cuda = f->gpu.cuda;
    const struct {
        const char *name;
        int call;
    } cases[] = { { "cuEventRecord", 1 },
                  { "cuEventRecord", 5 },
                  { "cuEventRecord", f->n_launches + 1 },
                  { "cuEventSynchronize", 1 },
                  { "cuEventElapsedTime", 1 },
                  { "cuEventElapsedTime", f->n_launches } };
    good(sim_model_load(&f->m, PROFILED, &f->err), f);
    const int before = cuda->live.events;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reel_session *s = open_session(f);
        good(read_at(f, s, 0, N), f);
        cuda->only = cases[i].name, cuda->fail_call = cases[i].call, cuda->fail_with = 999;
        const enum reel_status status = read_at(f, s, 0, N);
        cuda->only = NULL;
        assert_int_equal(cuda->fail_call, 0);
        assert_int_equal(status, REEL_E_DEVICE);
        if (!strstr(f->err.text, cases[i].name)) fail_msg("%s", f->err.text);
        good(read_at(f, s, 0, N), f);
        json_t *prefill = prefill_of(f, s);
        check_steps(f, prefill, 0, N, "thin", "thin");
        json_decref(prefill);
        reel_session_close(s);
        assert_int_equal(cuda->live.events, before);
    }
    sim_model_unload(&f->m);
}

/* ---- the command ---- */

/* The driver that the command finds is the fake one. Returns what it printed. */
static char *command(const struct fixture *f, const char *arguments, int expected) {
    char line[2000], *text = calloc(1, 1 << 16);
    const char *build = getenv("REEL_BUILD");
    assert_non_null(text);
    int n = snprintf(line, sizeof line,
                     "LD_LIBRARY_PATH='%s'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
                     "%s/reel profile '%s' --no-cache --gpu-option "
                     "patience=2147483647,hang_ms=1000000000,stage_kb=64," SMALL " %s 2>&1",
                     sim_gpu_folder(), build ? build : "build/release", f->m.folder, arguments);
    assert_true(n > 0 && (size_t)n < sizeof line);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    const size_t got = fread(text, 1, (1 << 16) - 1, p);
    text[got] = '\0';
    const int status = pclose(p);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
        fail_msg("%s\nstatus %d: %s", line, status, text);
    return text;
}

static void shows(const char *text, const char *words) {
    if (!strstr(text, words)) fail_msg("\"%s\" is missing:\n%s", words, text);
}

static void the_command_prints_a_prompts_steps_beside_the_time_without_events(void **state) {
    struct fixture *f = *state;
    char *text = command(f, "-n 1 -r 1 -d 6 -p 9", 0);
    shows(text, "a prompt of 9 tokens from position 6 on is read in ");
    shows(text, "keeps launches from overlapping");
    shows(text, "\ngate_up    thin ");
    shows(text, "\nend    ");
    free(text);
    text = command(f, "-n 1 -r 3 -p 12 -o json", 0);
    json_t *json = NULL;
    good(json_read(&json, "the output", text, strlen(text), &f->err), f);
    const json_t *prefill = json_object_get(json, "prefill");
    check_steps(f, prefill, 0, 12, "thin", "thin");
    assert_int_equal(real(prefill, "runs"), 3);
    assert_true(real(prefill, "unprofiled_us") > 0 && real(prefill, "profiled_us") > 0);
    json_decref(json);
    free(text);
    text = command(f, "-n 1 -r 1 -d 6 -o json", 0); /* what was there before is not asked for */
    good(json_read(&json, "the output", text, strlen(text), &f->err), f);
    assert_null(json_object_get(json, "prefill"));
    json_decref(json);
    free(text);
}

static void the_command_refuses_a_prompt_that_is_not_one_chunk(void **state) {
    struct fixture *f = *state;
    char *text = command(f, "-n 1 -r 1 -p 3", REEL_E_UNSUPPORTED);
    shows(text, "-p 3: the decode kernel reads that prompt");
    free(text);
    text = command(f, "-n 1 -r 1 -p 130", REEL_E_ARGUMENT);
    shows(text, "-p 130: that prompt is read in chunks of at most 128 tokens");
    free(text);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(every_step_of_a_prompt_is_timed_and_counted),
        in_turn(only_a_profiled_prompt_has_events_and_does_not_overlap),
        in_turn(a_short_prompt_is_one_step),
        in_turn(a_prompt_that_is_decoded_has_no_launches_to_time),
        in_turn(events_that_cannot_be_made_leave_no_session),
        in_turn(failing_events_end_a_prompt_in_words),
        in_turn(the_command_prints_a_prompts_steps_beside_the_time_without_events),
        in_turn(the_command_refuses_a_prompt_that_is_not_one_chunk),
    };
    SHARE_TESTS("prefill-profile", 4, tests);
    return cmocka_run_group_tests(tests, start, stop);
}
