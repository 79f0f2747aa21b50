/* Profiles on the fake GPU: by the public call, and by the command. */
#define _GNU_SOURCE /* mkdtemp */
#include "base/file_map.h"
#include "base/json.h"
#include "reel_measure.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4"

static const int32_t prompt[] = { 5, 17, 250, 3, 99 };
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 6, CONTEXT = 64, N_PHASES = 8 };

static const char *const phases[N_PHASES] = { "embed",   "qkv",  "attention", "out",
                                              "gate_up", "down", "head",      "pick" };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
};

static struct fixture shared;

static int start(void **state) {
    struct fixture *f = &shared;
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->settings.in_order = true;
    f->gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f->m, "q3-a");
    *state = f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static struct reel_session *open_session(struct fixture *f, const struct reel_model *model) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, model, &options, &f->err), f);
    good(reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err), f);
    return s;
}

/* One id first: what follows is one launch. */
static void generate(struct fixture *f, struct reel_session *s, int n) {
    for (int i = 0; i < 2; i++) {
        const struct reel_generation g = { .size = sizeof g,
                                           .max_tokens = i ? n : 1,
                                           .ignore_stop_ids = true };
        good(reel_generate(s, &g, NULL, &f->err), f);
    }
}

static json_t *parsed(char *text) {
    struct reel_error err = { 0 };
    json_t *json = NULL;
    if (json_read(&json, "a text", text, strlen(text), &err) != REEL_OK) fail_msg("%s", err.text);
    reel_free(text);
    return json;
}

static double real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

/* Every phase is there, has taken time, and together they are the token. */
static void check_profile(const json_t *json) {
    const json_t *list = json_object_get(json, "phases"), *total = json_object_get(json, "total");
    double share = 0, us = 0;
    assert_int_equal(json_array_size(list), N_PHASES);
    for (int i = 0; i < N_PHASES; i++) {
        const json_t *part = json_array_get(list, (size_t)i);
        assert_string_equal(json_string_value(json_object_get(part, "phase")), phases[i]);
        const double parts = real(part, "wait_weights_us") + real(part, "wait_exchange_us") +
                             real(part, "wait_across_us") + real(part, "arithmetic_us") +
                             real(part, "streaming_us");
        assert_true(real(part, "us") > 0);
        assert_true(fabs(parts - real(part, "us")) < 1e-6);
        assert_true((real(part, "bytes") > 0) == (i > 0 && i < N_PHASES - 1));
        share += real(part, "share_percent");
        us += real(part, "us");
    }
    assert_true(fabs(share - 100) < 0.01);
    assert_true(fabs(us - real(total, "us")) < 1e-6);
    assert_true(us > real(json_object_get(json, "token_us"), "min") - 1e-6);
    assert_true(us < real(json_object_get(json, "token_us"), "max") + 1e-6);
    /* Simulated clocks count one tick a nanosecond, but a mark reads its two clocks one after the
     * other, and other warps' steps may lie between: some hundred ticks of a token's 70,000. */
    assert_true(fabs(real(json_object_get(json, "sm_clock_ghz"), "median") - 1) < 0.05);
}

static int count_events(const json_t *trace, const char *name) {
    size_t i;
    int n = 0;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        const char *own = json_string_value(json_object_get(event, "name"));
        n += own && strcmp(own, name) == 0;
    }
    return n;
}

static void a_generation_is_explained_phase_by_phase(void **state) {
    struct fixture *f = *state;
    char *json = NULL, *trace = NULL;
    good(sim_model_load(&f->m, SMALL ",profile=16", &f->err), f);
    struct reel_session *s = open_session(f, f->m.gpu);
    generate(f, s, N_NEW);
    const struct reel_profile_options options = { .size = sizeof options,
                                                  .trace_sms = 3,
                                                  .trace_tokens = 2 };
    good(reel_session_profile(s, &options, &json, &trace, &f->err), f);
    json_t *profile = parsed(json), *events = parsed(trace);
    check_profile(profile);
    assert_int_equal(real(profile, "tokens"), N_NEW - 2);
    assert_int_equal(real(profile, "position"), N_PROMPT + 1);
    assert_int_equal(real(profile, "sms"), 4);
    assert_int_equal(count_events(events, "thread_name"), 3);
    assert_int_equal(count_events(events, "token"), 3 * 2);
    assert_int_equal(count_events(events, "attention"), 3 * 2 * 2); /* two layers */
    json_decref(profile);
    json_decref(events);
    good(reel_session_profile(s, NULL, &json, NULL, &f->err), f); /* no trace, as often as asked */
    reel_free(json);
    reel_session_close(s);
    sim_model_unload(&f->m);
}

static void the_layers_of_a_hybrid_are_explained_by_kind(void **state) {
    static const char *const names[] = { "embed", "qkv", "attention", "out",  "gate_up",
                                         "down",  "mix", "delta",     "head", "pick" };
    const struct fixture *shared_one = *state;
    struct fixture f = { .gpu = shared_one->gpu };
    char *json = NULL, *trace = NULL;
    sim_model_open(&f.m, "q35-a");
    good(sim_model_load(&f.m, SMALL ",profile=16", &f.err), &f);
    struct reel_session *s = open_session(&f, f.m.gpu);
    generate(&f, s, N_NEW);
    const struct reel_profile_options options = { .size = sizeof options };
    good(reel_session_profile(s, &options, &json, &trace, &f.err), &f);
    json_t *profile = parsed(json), *events = parsed(trace);
    const json_t *list = json_object_get(profile, "phases");
    assert_int_equal(json_array_size(list), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *part = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(part, "phase")), names[i]);
        assert_true(real(part, "us") > 0);
    }
    const int n = 4 * (N_NEW - 2); /* SMs and measured tokens */
    assert_int_equal(count_events(events, "mix"), 3 * n);
    assert_int_equal(count_events(events, "delta"), 3 * n);
    assert_int_equal(count_events(events, "attention"), n);
    json_decref(profile);
    json_decref(events);
    reel_session_close(s);
    sim_model_close(&f.m);
}

/* Bytes of a phase are those of its tiles, whatever their format. */
static void narrow_weights_are_profiled_by_their_own_bytes(void **state) {
    struct fixture *f = *state;
    double bytes[2][N_PHASES];
    for (int narrow = 0; narrow < 2; narrow++) {
        char options[300], *json = NULL;
        snprintf(options, sizeof options,
                 "patience=2147483647,hang_ms=1000000000,stage_kb=64,tuned=0," SMALL
                 ",profile=16,narrow=%d",
                 narrow);
        const struct reel_model_options o = { .size = sizeof o,
                                              .device = "gpu",
                                              .weights = "int8",
                                              .gpu_options = options,
                                              .cuda_dir = sim_gpu_folder() };
        struct reel_model_info info = { .size = sizeof info };
        good(reel_model_open(&f->m.gpu, f->m.folder, &o, &f->err), f);
        good(reel_model_get_info(f->m.gpu, &info, &f->err), f);
        struct reel_session *s = open_session(f, f->m.gpu);
        generate(f, s, N_NEW);
        good(reel_session_profile(s, NULL, &json, NULL, &f->err), f);
        json_t *profile = parsed(json);
        check_profile(profile);
        for (int i = 0; i < N_PHASES; i++)
            bytes[narrow][i] =
                real(json_array_get(json_object_get(profile, "phases"), (size_t)i), "bytes");
        /* what bench divides by the time: of narrow weights the tapes' bytes, but for K and V */
        const double all = bytes[narrow][1] + bytes[narrow][3] + bytes[narrow][4] +
                           bytes[narrow][5] + bytes[narrow][6];
        if (narrow && fabs(all - (double)info.token_bytes) > 1)
            fail_msg("phases have %.0f bytes, a token %llu", all,
                     (unsigned long long)info.token_bytes);
        assert_true(narrow ? info.token_weight_bits > 8.4 && info.token_weight_bits < 16
                           : fabs(info.token_weight_bits - 16) < 1e-9);
        assert_true(narrow ? !info.device_weight_type : info.device_weight_type != NULL);
        json_decref(profile);
        reel_session_close(s);
        sim_model_unload(&f->m);
    }
    for (int i = 3; i < N_PHASES - 1; i++)
        assert_true(bytes[1][i] != bytes[0][i]); /* tiles of another size; some are all padding */
}

/* In a launch cut short, what is behind its end is from another. */
static void only_the_last_launch_counts(void **state) {
    struct fixture *f = *state;
    char *json = NULL;
    good(sim_model_load(&f->m, SMALL ",profile=4", &f->err), f);
    struct reel_session *s = open_session(f, f->m.gpu);
    generate(f, s, 7); /* launches of 4 and 3 */
    good(reel_session_profile(s, NULL, &json, NULL, &f->err), f);
    json_t *profile = parsed(json);
    assert_int_equal(real(profile, "tokens"), 1);
    assert_int_equal(real(profile, "position"), N_PROMPT + 4 + 1);
    json_decref(profile);
    reel_session_close(s);
    sim_model_unload(&f->m);
}

static void refused(const struct reel_session *s, const struct reel_profile_options *options,
                    enum reel_status status, const char *words) {
    struct reel_error err = { 0 };
    char none[] = "", *json = none, *trace = none;
    assert_int_equal(reel_session_profile(s, options, &json, &trace, &err), status);
    assert_null(json);
    assert_null(trace);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void without_time_stamps_there_is_no_profile(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = open_session(f, f->m.cpu);
    refused(s, NULL, REEL_E_UNSUPPORTED, "cpu backend");
    reel_session_close(s);
    good(sim_model_load(&f->m, SMALL, &f->err), f);
    s = open_session(f, f->m.gpu);
    generate(f, s, N_NEW);
    refused(s, NULL, REEL_E_STATE, "profile=N");
    reel_session_close(s);
    sim_model_unload(&f->m);
    good(sim_model_load(&f->m, SMALL ",profile=8", &f->err), f);
    s = open_session(f, f->m.gpu);
    refused(s, NULL, REEL_E_STATE, "0 tokens"); /* a prompt is not decoding */
    generate(f, s, 2);
    refused(s, NULL, REEL_E_STATE, "2 tokens");
    refused(s,
            &(struct reel_profile_options){ .size = sizeof(struct reel_profile_options),
                                            .trace_sms = -1 },
            REEL_E_ARGUMENT, "negative");
    generate(f, s, 3);
    f->gpu.cuda->only = "cuMemcpyDtoH_v2";
    f->gpu.cuda->fail_call = 1;
    f->gpu.cuda->fail_with = 999;
    refused(s, NULL, REEL_E_DEVICE, "cuMemcpyDtoH");
    f->gpu.cuda->only = NULL;
    reel_session_close(s);
    sim_model_unload(&f->m);
}

/* ---- the command ---- */

/* The driver that the command finds is the fake one. Returns what it printed. */
static char *command(const struct fixture *f, const char *arguments, const char *folder,
                     int expected) {
    char line[2000], *text = calloc(1, 1 << 16);
    const char *build = getenv("REEL_BUILD");
    assert_non_null(text);
    int n =
        snprintf(line, sizeof line,
                 "LD_LIBRARY_PATH='%s'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
                 "HOME='%s' %s/reel profile '%s' --no-cache --gpu-option "
                 "patience=2147483647,hang_ms=1000000000,stage_kb=64," SMALL " %s 2>&1",
                 sim_gpu_folder(), folder, build ? build : "build/release", f->m.folder, arguments);
    assert_true(n > 0 && (size_t)n < sizeof line);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    size_t got = fread(text, 1, (1 << 16) - 1, p);
    text[got] = '\0';
    const int status = pclose(p);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
        fail_msg("%s\nstatus %d: %s", line, status, text);
    return text;
}

static void check_table(const char *text) {
    double share = 0;
    for (int i = 0; i < N_PHASES; i++) {
        char start[20];
        double us = 0, percent = 0;
        snprintf(start, sizeof start, "\n%s ", phases[i]);
        const char *row = strstr(text, start);
        if (!row) fail_msg("%s is missing:\n%s", phases[i], text);
        assert_int_equal(sscanf(row + strlen(start), "%lf %lf", &us, &percent), 2);
        share += percent;
    }
    if (fabs(share - 100) > 0.5) fail_msg("shares add up to %g:\n%s", share, text);
    assert_non_null(strstr(text, "\ntotal "));
    assert_non_null(strstr(text, "time stamps slow it down by"));
}

/* What stands in a script element of the page, parsed. */
static json_t *in_page(const char *page, const char *begin) {
    const char *from = strstr(page, begin), *to = from ? strstr(from, "</script>") : NULL;
    struct reel_error err;
    json_t *json = NULL;
    if (!to) fail_msg("the page has no %s", begin);
    from += strlen(begin);
    if (json_read(&json, begin, from, (size_t)(to - from), &err) != REEL_OK)
        fail_msg("%s", err.text);
    return json;
}

/* Whole, with the figures, and without anything that a browser would fetch. */
static void check_page(const char *path) {
    struct file_map map = { 0 };
    struct reel_error err;
    if (file_map_open(&map, path, &err) != REEL_OK) fail_msg("%s", err.text);
    char *page = calloc(1, map.size + 1);
    assert_non_null(page);
    memcpy(page, map.bytes, map.size);
    json_t *profile = in_page(page, "id=\"profile\">"), *trace = in_page(page, "id=\"trace\">");
    check_profile(profile);
    assert_int_equal(count_events(trace, "token"), 4 * 2); /* all of 4 SMs, 2 tokens */
    assert_null(strstr(page, "://"));
    assert_null(strstr(page, "src="));
    assert_non_null(strstr(page, "</html>"));
    json_decref(profile);
    json_decref(trace);
    free(page);
    file_map_close(&map);
}

static void the_command_prints_a_table_or_json_and_writes_a_trace(void **state) {
    struct fixture *f = *state;
    char folder[] = "/tmp/reel-profile-XXXXXX", arguments[200], path[100];
    struct file_map map = { 0 };
    struct reel_error err = { 0 };
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace.json", folder);
    snprintf(arguments, sizeof arguments, "-n 2 -r 1 --trace %s --trace-sms 2 --trace-tokens 1",
             path);
    char *text = command(f, arguments, folder, 0);
    check_table(text);
    free(text);
    if (file_map_open(&map, path, &err) != REEL_OK) fail_msg("%s", err.text);
    json_t *json = NULL;
    if (json_read(&json, path, map.bytes, map.size, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(count_events(json, "token"), 2);
    json_decref(json);
    file_map_close(&map);
    unlink(path);
    free(command(f, "-n 1 -r 1 -p 9", folder, REEL_E_UNSUPPORTED)); /* head_dim 32 */
    text = command(f, "-n 1 -r 2 -d 18 -o json", folder, 0);
    assert_int_equal(json_read(&json, "the output", text, strlen(text), &err), REEL_OK);
    check_profile(json);
    assert_int_equal(real(json, "position"), 19);
    assert_null(json_object_get(json, "prefill"));
    assert_true(real(json, "unprofiled_token_us") > 0 && real(json, "profiled_token_us") > 0);
    json_decref(json);
    free(text);
    free(command(f, "--trace-sms 2", folder, REEL_E_ARGUMENT));
    snprintf(arguments, sizeof arguments, "-n 3 -r 1 --html %s/page.html", folder);
    free(command(f, arguments, folder, 0));
    snprintf(path, sizeof path, "%s/page.html", folder);
    check_page(path);
    unlink(path);
    snprintf(arguments, sizeof arguments, "-n 1 -r 1 --html %s/no/page.html", folder);
    free(command(f, arguments, folder, REEL_E_IO));
    free(command(f, "--device cpu", folder, REEL_E_ARGUMENT));
    rmdir(folder);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_generation_is_explained_phase_by_phase),
        in_turn(the_layers_of_a_hybrid_are_explained_by_kind),
        in_turn(narrow_weights_are_profiled_by_their_own_bytes),
        in_turn(only_the_last_launch_counts),
        in_turn(without_time_stamps_there_is_no_profile),
        in_turn(the_command_prints_a_table_or_json_and_writes_a_trace),
    };
    SHARE_TESTS("cuda-profile", 2, tests);
    return cmocka_run_group_tests(tests, start, stop);
}
