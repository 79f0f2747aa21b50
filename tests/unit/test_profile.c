/* From time stamps to where a token's time goes, with stamps made up here. */
#include "kernels/profile_marks.h"
#include "model/synthetic.h"
#include "support/profile_stamps.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 5, FIRST_LAYER = 1, LAYER = PROFILE_LAYER_MARKS };

static void equal(double a, double b, const char *what) {
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b)))) fail_msg("%s: %.12g, expected %.12g", what, a, b);
}

static struct profile made(const struct plan *plan, const uint32_t *stamps, int position) {
    const struct profile_run run = {
        .plan = plan, .stamps = stamps, .n_tokens = N_TOKENS, .position = position
    };
    struct profile p;
    struct reel_error err = { 0 };
    if (profile_make(&p, &run, &err) != REEL_OK) fail_msg("%s", err.text);
    return p;
}

/* The i-th span lasts 1000 (i + 1) ticks. */
static unsigned by_place(void *user, int token, int sm, int span) {
    (void)user, (void)token, (void)sm;
    return 1000u * (unsigned)(span + 1);
}

/* Microseconds of the span that ends with a layer's mark, over both layers. */
static double both(enum profile_layer_mark mark) {
    return 2 * (1 + FIRST_LAYER + (int)mark) + LAYER;
}

/* With several GPUs words of all groups are waited for by themselves. */
static void waits_across_gpus_stand_apart(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    plan.n_gpus = 2;
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 7);
    const struct profile_part *f = p.phase;
    const int head = FIRST_LAYER + 2 * LAYER;
    equal(f[PROFILE_QKV].kind_us[PROFILE_ACROSS], 2 + MARK_QKV_INPUT + LAYER, "qkv");
    equal(f[PROFILE_GATE_UP].kind_us[PROFILE_ACROSS], both(MARK_GATE_UP_INPUT), "gate_up");
    equal(f[PROFILE_HEAD].kind_us[PROFILE_ACROSS], head + 1, "head");
    equal(f[PROFILE_PICK].kind_us[PROFILE_ACROSS], head + 3, "pick");
    equal(f[PROFILE_ATTENTION].kind_us[PROFILE_EXCHANGE], both(MARK_ATTENTION_INPUT), "q, k, v");
    equal(f[PROFILE_DOWN].kind_us[PROFILE_EXCHANGE], both(MARK_DOWN_INPUT), "gated values");
    equal(p.total.own.median,
          p.total.us - p.total.kind_us[PROFILE_EXCHANGE] - p.total.kind_us[PROFILE_ACROSS], "own");
    free(stamps);
}

static void check_places(uint32_t first_clock) {
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan,
                                        .n_tokens = N_TOKENS,
                                        .first_clock = first_clock,
                                        .first_ns = 0xfffff000u,
                                        .ticks = by_place };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 7);
    const struct profile_part *f = p.phase;
    const int n = profile_spans(&plan), head = FIRST_LAYER + 2 * LAYER;
    assert_int_equal(n, 1 + 2 * LAYER + 4);
    assert_int_equal(p.n_tokens, N_TOKENS - 2);
    assert_int_equal(p.position, 8);
    equal(f[PROFILE_EMBED].kind_us[PROFILE_ARITHMETIC], 1, "embed");
    equal(f[PROFILE_QKV].kind_us[PROFILE_WEIGHTS], both(MARK_QKV_WEIGHTS), "qkv weights");
    /* the first layer waits for nobody */
    equal(f[PROFILE_QKV].kind_us[PROFILE_EXCHANGE], 2 + MARK_QKV_INPUT + LAYER, "qkv exchange");
    equal(f[PROFILE_QKV].kind_us[PROFILE_ARITHMETIC], both(MARK_QKV) + 2 + MARK_QKV_INPUT, "qkv");
    equal(f[PROFILE_OUT].kind_us[PROFILE_WEIGHTS], both(MARK_OUT_WEIGHTS), "out weights");
    equal(f[PROFILE_OUT].kind_us[PROFILE_ARITHMETIC], both(MARK_OUT), "out");
    equal(f[PROFILE_ATTENTION].kind_us[PROFILE_EXCHANGE], both(MARK_ATTENTION_INPUT), "q, k, v");
    equal(f[PROFILE_ATTENTION].kind_us[PROFILE_STREAMING], both(MARK_ATTENTION_OWN), "positions");
    equal(f[PROFILE_ATTENTION].kind_us[PROFILE_ARITHMETIC], both(MARK_ATTENTION), "merging");
    equal(f[PROFILE_GATE_UP].kind_us[PROFILE_WEIGHTS], both(MARK_GATE_UP_WEIGHTS), "gate weights");
    equal(f[PROFILE_GATE_UP].kind_us[PROFILE_EXCHANGE], both(MARK_GATE_UP_INPUT), "gate exchange");
    equal(f[PROFILE_GATE_UP].kind_us[PROFILE_STREAMING], both(MARK_GATE_UP), "gate_up");
    equal(f[PROFILE_DOWN].kind_us[PROFILE_WEIGHTS], both(MARK_DOWN_WEIGHTS), "down weights");
    equal(f[PROFILE_DOWN].kind_us[PROFILE_EXCHANGE], both(MARK_DOWN_INPUT), "down exchange");
    equal(f[PROFILE_DOWN].kind_us[PROFILE_ARITHMETIC], both(MARK_DOWN), "down");
    equal(f[PROFILE_HEAD].kind_us[PROFILE_EXCHANGE], head + 1, "head exchange");
    equal(f[PROFILE_HEAD].kind_us[PROFILE_STREAMING], head + 2, "head");
    equal(f[PROFILE_PICK].kind_us[PROFILE_EXCHANGE], head + 3, "pick exchange");
    equal(f[PROFILE_PICK].kind_us[PROFILE_ARITHMETIC], head + 4, "pick");
    equal(p.total.us, n * (n + 1) / 2, "total");
    equal(p.token_us.median, p.total.us, "the token");
    double sum = 0;
    for (int i = 0; i < PROFILE_N_PHASES; i++)
        sum += f[i].us;
    equal(sum, p.total.us, "the phases' sum");
    free(stamps);
}

static void each_span_is_counted_where_it_belongs(void **state) {
    (void)state;
    check_places(5);
}

static void a_clock_that_comes_round_inside_a_token_changes_nothing(void **state) {
    (void)state;
    for (uint32_t before = 1; before < 3000000; before = before * 3 + 7)
        check_places(0u - before);
}

static double faster_and_faster(int token) { return 0.5 * (token + 1); }

/* As many microseconds at any clock. */
static unsigned by_clock(void *user, int token, int sm, int span) {
    (void)user, (void)sm, (void)span;
    return 2000u * (unsigned)(token + 1);
}

static void ticks_become_time_by_each_tokens_own_clock(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = {
        .plan = &plan, .n_tokens = N_TOKENS, .ghz = faster_and_faster, .ticks = by_clock
    };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 0);
    equal(p.phase[PROFILE_EMBED].us, 4, "a span");
    equal(p.token_us.min, 4 * profile_spans(&plan), "shortest token");
    equal(p.token_us.max, 4 * profile_spans(&plan), "longest token");
    equal(p.ghz.min, 1, "slowest clock"); /* of tokens 1 to 3 */
    equal(p.ghz.median, 1.5, "clock");
    equal(p.ghz.max, 2, "fastest clock");
    free(stamps);
}

/* SM 3 computes longer in gate_up; the others wait for it there, in down. */
static unsigned one_straggler(void *user, int token, int sm, int span) {
    const int mark = (span - FIRST_LAYER) % LAYER;
    const bool layer = span >= FIRST_LAYER && span < FIRST_LAYER + 2 * LAYER;
    (void)user, (void)token;
    if (layer && mark == MARK_GATE_UP) return sm == 3 ? 9000 : 1000u * (unsigned)(sm + 1);
    if (layer && mark == MARK_DOWN_INPUT) return sm == 3 ? 1000 : 9000 - 1000u * (unsigned)sm;
    return 500;
}

static void a_delta_net_has_phases_of_its_own(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    plan.delta.n_layers = 1, plan.tape.delta_layers[0] = 1;
    plan.delta.state_bytes = 1000, plan.delta.window_bytes = 10;
    plan.tape.segment[TAPE_MIX] = plan.tape.segment[TAPE_QKV];
    const struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 7);
    const struct profile_part *mix = &p.phase[PROFILE_MIX], *delta = &p.phase[PROFILE_DELTA];
    equal(mix->kind_us[PROFILE_WEIGHTS], 2 + MARK_MIX_WEIGHTS, "mix weights");
    /* the first layer waits for nobody */
    equal(mix->kind_us[PROFILE_ARITHMETIC], 2 + MARK_MIX_INPUT + 2 + MARK_MIX, "mix");
    equal(delta->kind_us[PROFILE_EXCHANGE], 2 + MARK_DELTA_INPUT + 2 + MARK_DELTA, "exchanges");
    equal(delta->kind_us[PROFILE_ARITHMETIC], 2 + MARK_DELTA_OWN, "its own columns");
    equal(p.phase[PROFILE_QKV].kind_us[PROFILE_WEIGHTS], 2 + MARK_QKV_WEIGHTS + LAYER, "attention");
    equal(p.phase[PROFILE_DOWN].kind_us[PROFILE_ARITHMETIC], both(MARK_DOWN), "down of both");
    equal(mix->bytes, p.phase[PROFILE_QKV].bytes, "a layer each");
    equal(delta->bytes, 2020, "state and window, to and fro");
    double sum = 0;
    for (int i = 0; i < PROFILE_N_PHASES; i++)
        sum += p.phase[i].us;
    equal(sum, p.total.us, "the phases' sum");
    free(stamps);
}

static void the_spread_over_sms_shows_a_straggler(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan,
                                        .n_tokens = N_TOKENS,
                                        .ticks = one_straggler };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 0);
    const struct profile_part *gate = &p.phase[PROFILE_GATE_UP], *down = &p.phase[PROFILE_DOWN];
    equal(gate->own.min, 2 * (0.5 + 1), "own min"); /* two layers; 0.5 are weights */
    equal(gate->own.median, 2 * (0.5 + 2.5), "own median");
    equal(gate->own.max, 2 * (0.5 + 9), "own max");
    equal(gate->sm.max, 2 * (0.5 + 0.5 + 9), "max");
    equal(down->own.max - down->own.min, 0, "down's own");
    equal(down->sm.min, 2 * (1 + 1), "down's least");
    equal(p.total.sm.min, p.total.sm.max, "tokens of all SMs");
    free(stamps);
}

static void the_first_token_and_the_last_tokens_spans_are_left_out(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    const size_t token = (size_t)profile_stamps(&plan) * 4;
    uint32_t *stamps = stamps_make(&maker);
    const struct profile before = made(&plan, stamps, 0);
    memset(stamps, 0x5a, token * sizeof *stamps);
    for (size_t i = 0; i < token; i++)
        if (i % (size_t)profile_stamps(&plan) > MARK_TIME_HIGH) stamps[4 * token + i] = 77;
    const struct profile after = made(&plan, stamps, 0);
    assert_memory_equal(&before, &after, sizeof before);
    free(stamps);
}

static void bytes_are_the_plans(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 15);
    equal(p.phase[PROFILE_QKV].bytes, 1000 * 4 * 2, "qkv");
    equal(p.phase[PROFILE_DOWN].bytes, 4000 * 4 * 2, "down");
    equal(p.phase[PROFILE_HEAD].bytes, 6 * 3 * tile_bytes(TILE_BF16),
          "head"); /* 90 rows: 6 tiles */
    /* positions 16, 17, 18 come after 1, 2 and 2 pieces */
    equal(p.phase[PROFILE_ATTENTION].bytes, 5.0 / 3 * 2048 * 2 * 2, "K and V");
    equal(p.total.bytes, (1 + 2 + 3 + 4) * 8000 + 18 * 512 + p.phase[PROFILE_ATTENTION].bytes,
          "total");
    free(stamps);
}

static unsigned constant(void *user, int token, int sm, int span) {
    (void)user, (void)token, (void)sm, (void)span;
    return 1000;
}

static void a_real_plans_bytes_are_those_it_says_a_token_reads(void **state) {
    (void)state;
    static const char *const shapes[] = { "qwen3-0.6b", "qwen3-1.7b", "smollm2-135m" };
    for (int i = 0; i < 3; i++) {
        struct reel_error err = { 0 };
        struct buffer text = { 0 };
        struct model_source source = { 0 };
        struct model_config config;
        struct plan plan;
        bool found = false;
        enum reel_status status = synthetic_shape_config(&text, shapes[i], &found, &err);
        const struct reel_memory_file file = { "config.json", text.bytes, text.size };
        if (status == REEL_OK)
            status = model_source_open_memory(&source, shapes[i], &file, 1, &err);
        if (status == REEL_OK) status = model_config_read(&config, &source, &err);
        if (status == REEL_OK)
            status = plan_make(&plan, &config, plan_known_gpu("h200"), NULL, &err);
        if (status != REEL_OK) fail_msg("%s: %s", shapes[i], err.text);
        const struct stamps_maker maker = { .plan = &plan,
                                            .n_tokens = N_TOKENS,
                                            .ticks = constant };
        uint32_t *stamps = stamps_make(&maker);
        const struct profile p = made(&plan, stamps, 0);
        equal(p.total.bytes - p.phase[PROFILE_ATTENTION].bytes, (double)plan.token_bytes,
              shapes[i]);
        free(stamps);
        model_source_release(&source);
        buffer_release(&text);
    }
}

static void stamps_that_cannot_be_true_are_refused(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    struct profile p;
    struct reel_error err = { 0 };
    const size_t row = (size_t)profile_stamps(&plan), token = 4 * row;
    uint32_t *stamps = stamps_make(&maker);
    struct profile_run run = { .plan = &plan, .stamps = stamps, .n_tokens = N_TOKENS };
    uint32_t *head = &stamps[2 * token + 3 * row + MARK_HEAD], kept = *head;
    *head = stamps[2 * token + 3 * row + MARK_HEAD_INPUT] - 1;
    assert_int_equal(profile_make(&p, &run, &err), REEL_E_DEVICE);
    assert_non_null(strstr(err.text, "token 2 on SM 3"));
    *head = kept;
    assert_int_equal(profile_make(&p, &run, &err), REEL_OK);
    stamps[3 * token + MARK_TIME_HIGH]++; /* four seconds */
    assert_int_equal(profile_make(&p, &run, &err), REEL_E_DEVICE);
    stamps[3 * token + MARK_TIME_HIGH]--;
    memset(stamps, 0, N_TOKENS * token * sizeof *stamps); /* nothing was stamped */
    assert_int_equal(profile_make(&p, &run, &err), REEL_E_DEVICE);
    for (run.n_tokens = 0; run.n_tokens < PROFILE_LEAST_TOKENS; run.n_tokens++)
        assert_int_equal(profile_make(&p, &run, &err), REEL_E_STATE);
    free(stamps);
}

/* ---- texts ---- */

static void a_description_has_every_phase_and_shares_of_a_hundred(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan, .n_tokens = N_TOKENS, .ticks = by_place };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile p = made(&plan, stamps, 0);
    json_t *json = NULL, *part;
    size_t i;
    int phase = 0;
    double share = 0;
    assert_int_equal(profile_describe(&json, &p, &plan, NULL), REEL_OK);
    assert_string_equal(json_string_value(json_object_get(json, "gpu")), "A \"test\" GPU");
    json_array_foreach(json_object_get(json, "phases"), i, part) {
        if (phase == PROFILE_MIX) phase = PROFILE_HEAD; /* no layer is a DeltaNet */
        assert_string_equal(json_string_value(json_object_get(part, "phase")),
                            profile_phase_names[phase++]);
        share += json_number_value(json_object_get(part, "share_percent"));
    }
    assert_int_equal(phase, PROFILE_N_PHASES);
    equal(share, 100, "shares");
    json_decref(json);
    free(stamps);
}

static json_t *traced(const struct profile_run *run, int n_sms, int n_tokens) {
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    json_t *json = NULL;
    enum reel_status status = profile_trace(&text, run, n_sms, n_tokens, &err);
    if (status == REEL_OK) status = json_read(&json, "the trace", text.bytes, text.size, &err);
    if (status != REEL_OK) fail_msg("%s", err.text);
    buffer_release(&text);
    return json;
}

static long long ns_of(const json_t *event, const char *key) {
    return llround(json_number_value(json_object_get(event, key)) * 1e3);
}

/* Events of a row come in order, each inside those that it begins in. Returns the tokens' number.
 */
static int check_nesting(const json_t *trace, int sm) {
    long long end[3] = { 0, 0, 0 }, at = 0;
    int depth = 0, n_tokens = 0;
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        const char *name = json_string_value(json_object_get(event, "name"));
        if (json_integer_value(json_object_get(event, "tid")) != sm ||
            strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        const json_t *args = json_object_get(event, "args");
        bool phase = json_object_get(args, "layer") != NULL;
        for (int p = 0; p < PROFILE_N_PHASES; p++)
            phase |= strcmp(name, profile_phase_names[p]) == 0;
        depth = strcmp(name, "token") == 0 ? 0 : phase ? 1 : 2;
        const long long from = ns_of(event, "ts"), to = from + ns_of(event, "dur");
        n_tokens += depth == 0;
        if (n_tokens > 1 || depth > 0) assert_int_equal(from, at); /* no gaps */
        if (depth > 0) assert_true(to <= end[depth - 1]);
        end[depth] = to;
        at = depth == 2 ? to : from;
        if (depth == 2 && to == end[0]) assert_int_equal(end[1], end[0]);
    }
    assert_int_equal(at, end[0]);
    return n_tokens;
}

static int n_rows(const json_t *trace, int *last) {
    size_t i;
    int n = 0;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "name")), "thread_name") != 0) continue;
        *last = (int)json_integer_value(json_object_get(event, "tid"));
        n++;
    }
    return n;
}

static void a_traces_events_lie_in_each_other_without_gaps(void **state) {
    (void)state;
    struct plan plan = stamps_plan();
    const struct stamps_maker maker = { .plan = &plan,
                                        .n_tokens = N_TOKENS,
                                        .first_clock = 0xffff0000u,
                                        .first_ns = 1700000000123456789ull,
                                        .ghz = faster_and_faster,
                                        .ticks = one_straggler };
    uint32_t *stamps = stamps_make(&maker);
    const struct profile_run run = { .plan = &plan, .stamps = stamps, .n_tokens = N_TOKENS };
    int last = 0;
    json_t *trace = traced(&run, 0, 2);
    assert_int_equal(n_rows(trace, &last), 4);
    for (int sm = 0; sm < 4; sm++)
        assert_int_equal(check_nesting(trace, sm), 2);
    json_decref(trace);
    trace = traced(&run, 2, 1000); /* more than there are */
    assert_int_equal(n_rows(trace, &last), 2);
    assert_int_equal(last, 2);
    assert_int_equal(check_nesting(trace, 2), N_TOKENS - 2);
    json_decref(trace);
    free(stamps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_span_is_counted_where_it_belongs),
        cmocka_unit_test(waits_across_gpus_stand_apart),
        cmocka_unit_test(a_clock_that_comes_round_inside_a_token_changes_nothing),
        cmocka_unit_test(ticks_become_time_by_each_tokens_own_clock),
        cmocka_unit_test(a_delta_net_has_phases_of_its_own),
        cmocka_unit_test(the_spread_over_sms_shows_a_straggler),
        cmocka_unit_test(the_first_token_and_the_last_tokens_spans_are_left_out),
        cmocka_unit_test(bytes_are_the_plans),
        cmocka_unit_test(a_real_plans_bytes_are_those_it_says_a_token_reads),
        cmocka_unit_test(stamps_that_cannot_be_true_are_refused),
        cmocka_unit_test(a_description_has_every_phase_and_shares_of_a_hundred),
        cmocka_unit_test(a_traces_events_lie_in_each_other_without_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
