/* Prompts of a model with Gated DeltaNets on the fake GPU through the public interface: logits
 * against the reference in float32, within the bound of transformers' own rounding, whatever the
 * prompt's length and however it is cut; the states it leaves, those of decoding; decoding that
 * goes on from there. */
#include "cpu/reference_model.h"
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IDS = 304, N_AFTER = 2, NEAR = 8 };

struct setting {
    const char *options;
    int n_sms, compute; /* SMs of all GPUs */
    int n_gpus;         /* that share the model */
};

/* wgmma's way, mma's way with SMs that are no part of the plan, cp.async; two GPUs */
static const struct setting settings[] = {
    { "n_groups=2,group_sms=2,warps=4", 4, 90, 1 },
    { "n_groups=1,group_sms=3,warps=4", 5, 100, 1 },
    { "n_groups=2,group_sms=1,warps=4", 3, 86, 1 },
    { "n_groups=2,group_sms=2,warps=4", 4, 90, 2 },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings), ON_TWO = N_SETTINGS - 1 };

struct rig {
    const struct setting *setting;
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    float *want;   /* [n][vocab]: float32 */
    double *allow; /* [n]: RMS error of logits */
    int n;
};

static int32_t ids[N_IDS];
static double worst;

/* Sanitizers see host code alone: for it, fewer lengths and one schedule do. */
static int few(int some, int many) { return getenv("REEL_SOAK") ? many : some; }

static void require(const struct rig *r, enum reel_status status) {
    if (status != REEL_OK) fail_msg("%s\n%s", r->err.text, r->gpu.cuda->report);
}

/* seed below 0: all takes effect in order. */
static void seed_set(struct rig *r, int seed) {
    r->gpu.cuda->settings.in_order = seed < 0;
    r->gpu.cuda->settings.seed = (uint64_t)seed, r->gpu.cuda->n_launches = 0;
}

/* ---- what must come out ---- */

static float *reference(struct rig *r, int n, enum ref_rounding mode) {
    const struct model *model = &r->m.cpu->model;
    const struct ref_options options = { .mode = mode, .max_positions = n };
    struct ref_state *state = NULL;
    float *logits = malloc((size_t)n * (size_t)r->m.vocab * sizeof *logits);
    const struct backend_eval eval = {
        .n = n, .ids = ids, .output = REEL_OUTPUT_ALL_LOGITS, .out = logits
    };
    require(r, ref_state_open(&state, &model->config, &model->weights, &options, &r->err));
    require(r, ref_state_eval(state, &eval, &r->err));
    ref_state_close(state);
    return logits;
}

/* RMS of the difference over RMS of the reference. */
static double difference(const float *made, const float *want, size_t n) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

/* 1.25 times what transformers' rounding does at its worst within NEAR positions. */
static void reference_make(struct rig *r) {
    const size_t vocab = (size_t)r->m.vocab;
    float *rounded = reference(r, r->n, REF_FAITHFUL);
    r->want = reference(r, r->n, REF_EXACT);
    r->allow = calloc((size_t)r->n, sizeof *r->allow);
    for (int i = 0; i < r->n; i++) {
        const size_t at = (size_t)i * vocab;
        const double off = 1.25 * difference(rounded + at, r->want + at, vocab);
        for (int j = i < NEAR ? 0 : i - NEAR; j <= i + NEAR && j < r->n; j++)
            if (off > r->allow[j]) r->allow[j] = off;
    }
    free(rounded);
}

/* ---- a model ---- */

static void rig_load(struct rig *r, const char *more) {
    char options[200];
    if (r->m.gpu) sim_model_unload(&r->m);
    snprintf(options, sizeof options, "%s,prefill_tokens=128,prefill_from=2,launch_tokens=128%s",
             r->setting->options, more);
    require(r, sim_model_load(&r->m, options, &r->err));
    seed_set(r, -1);
}

/* n positions of the reference */
static void rig_open(struct rig *r, const struct setting *s, int n, const char *more) {
    *r = (struct rig){ .setting = s, .gpu = sim_gpu_controls(), .n = n };
    r->gpu.cuda->gpu.n_sms = s->n_sms / s->n_gpus, r->gpu.cuda->gpu.compute = s->compute;
    r->gpu.cuda->gpu.n_devices = s->n_gpus;
    sim_model_open(&r->m, "q35-p");
    if (s->n_gpus > 1) r->m.device = "gpu:all";
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + i * i % 11 + 11) % 300;
    reference_make(r);
    rig_load(r, more);
}

static void rig_close(struct rig *r) {
    sim_model_close(&r->m);
    free(r->want), free(r->allow);
    const struct fake_live *l = &r->gpu.cuda->live;
    assert_int_equal(l->contexts + l->streams + l->modules + l->allocations, 0);
}

static struct reel_session *session_open(struct rig *r) {
    struct reel_session *session;
    const struct reel_session_options o = { .size = sizeof o, .max_context = N_IDS };
    require(r, reel_session_open(&session, r->m.gpu, &o, &r->err));
    return session;
}

static void evaluate(struct rig *r, struct reel_session *session, int from, int n, float *logits) {
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = ids + from,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)r->m.vocab };
    require(r, reel_session_eval(session, &eval, &r->err));
}

static void check_logits(struct rig *r, const float *logits, int at, const char *what, int n) {
    assert_in_range(at, 0, r->n - 1);
    const double off =
        difference(logits, r->want + (size_t)at * (size_t)r->m.vocab, (size_t)r->m.vocab);
    if (!(off <= r->allow[at]))
        fail_msg("%s, %s of %d: position %d is off by %.4f, allowed %.4f", r->setting->options,
                 what, n, at, off, r->allow[at]);
    if (off / r->allow[at] > worst) worst = off / r->allow[at];
}

/* Appends ids [from, from + n), then decodes the ids that follow. */
static void check_append(struct rig *r, struct reel_session *session, int from, int n,
                         float *logits) {
    evaluate(r, session, from, n, logits);
    check_logits(r, logits, from + n - 1, "a prompt", n);
    for (int i = from + n; i < from + n + N_AFTER && i < r->n; i++) {
        evaluate(r, session, i, 1, logits);
        check_logits(r, logits, i, "decoding after a prompt", n);
    }
}

/* ---- tests ---- */

static void prompts_of_every_length_match_the_reference(void **state) {
    (void)state;
    static const int lengths[] = { 63, 64, 65, 66, 67, 79, 80, 127, 128, 129, 131, 192, 193, 257 };
    const struct share share = share_of("hybrid-lengths", N_SETTINGS);
    for (int i = 0; i < N_SETTINGS; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        const int most = i == 0 ? 260 : 130, step = few(i == 0 ? 13 : 17, 1);
        worst = 0;
        rig_open(&r, &settings[i], most, "");
        assert_int_equal(r.m.gpu->backend->plan.prefill_tokens, 128);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r);
        for (int n = 1; n <= few(50, 80); n += step) {
            require(&r, reel_session_truncate(session, 0, &r.err));
            check_append(&r, session, 0, n, logits);
        }
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths;
             n += (size_t)few(i == 0 ? 3 : 4, 1)) {
            if (lengths[n] > most) continue;
            require(&r, reel_session_truncate(session, 0, &r.err));
            check_append(&r, session, 0, lengths[n], logits);
        }
        printf("%s: at most %.2f of what is allowed\n", settings[i].options, worst);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

/* Prompts behind prompts, in launches of odd lengths: state and window are carried on. */
static void prompts_may_begin_anywhere(void **state) {
    (void)state;
    static const int lengths[] = { 3, 1, 64, 2, 61, 4, 7, 30, 5 };
    static const char *const options[N_SETTINGS] = { "", ",launch_tokens=23", ",prefill_from=9",
                                                     ",launch_tokens=23" };
    const struct share share = share_of("hybrid-places", N_SETTINGS);
    for (int i = 0; i < N_SETTINGS; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &settings[i], 180, options[i]);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r);
        int from = 0;
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; from += lengths[n++]) {
            evaluate(&r, session, from, lengths[n], logits);
            check_logits(&r, logits, from + lengths[n] - 1, "a prompt", lengths[n]);
        }
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

/* The state of all layers, live or (`kept`) before the last of n positions, then the window; then,
 * perhaps, those before that. */
static float *state_of(struct rig *r, struct reel_session *session, int n, bool kept) {
    const struct backend_state *s = session->state;
    const int end = kept ? n - 1 : n;
    if (!kept) require(r, reel_session_sync(session, ids, n, NULL, &r->err));
    float *values = malloc(cuda_recurrent_saved_bytes(s, end, cuda_recurrent_has_before(s, end)));
    assert_non_null(values);
    require(r, cuda_recurrent_save(s, end, values, &r->err));
    return values;
}

static void check_states(const struct setting *s) {
    static const int lengths[] = { 2, 5, 64, 65, 66, 130 };
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    float *read[LENGTHS][2], *decoded[LENGTHS][2];
    struct rig r;
    double most = 0;
    rig_open(&r, s, 1, "");
    for (int way = 0; way < 2; way++) {
        float *(*to)[2] = way ? decoded : read;
        rig_load(&r, way ? ",prefill_from=0" : "");
        for (int i = 0; i < LENGTHS; i++) {
            struct reel_session *session = session_open(&r);
            for (int kept = 0; kept < 2; kept++)
                to[i][kept] = state_of(&r, session, lengths[i], kept);
            reel_session_close(session);
        }
    }
    const struct plan_delta *d = &r.m.gpu->backend->plan.delta;
    const size_t n = (size_t)d->state_bytes / 4, n_window = (size_t)d->window_bytes / 4;
    for (int i = 0; i < LENGTHS * 2; i++) {
        float *a = read[i / 2][i % 2], *b = decoded[i / 2][i % 2];
        const double off = difference(a, b, n), off_window = difference(a + n, b + n, n_window);
        if (!(off < 0.01 && off_window < 0.01))
            fail_msg("%d tokens, %s: the state is off by %.4f, the window by %.4f", lengths[i / 2],
                     i % 2 ? "before the last" : "all", off, off_window);
        if (off > most) most = off;
        free(a), free(b);
    }
    printf("states are off by %.4f at most\n", most);
    rig_close(&r);
}

static void states_are_those_of_decoding(void **state) {
    (void)state;
    check_states(&settings[0]);
    check_states(&settings[ON_TWO]);
}

/* Decoding begins with what the prompt's layers left, whoever has read another prompt since; asking
 * for the last token's logits again takes one launch. */
static void the_last_token_is_not_read_again(void **state) {
    (void)state;
    enum { N = 70, OTHER = 33, NEW = 4 };
    struct rig r;
    rig_open(&r, &settings[0], N + NEW, "");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    int32_t want[NEW], made[NEW];
    require(&r, sim_model_generate(r.m.gpu, ids, N, NULL, want, NEW, &r.err));
    for (int between = 0; between < 3; between++) {
        struct reel_session *a = session_open(&r), *b = session_open(&r);
        struct reel_generation_result result = { .size = sizeof result };
        const struct reel_generation g = { .size = sizeof g,
                                           .max_tokens = NEW,
                                           .ignore_stop_ids = true };
        require(&r, reel_session_sync(a, ids, N, NULL, &r.err));
        if (between == 1) require(&r, reel_session_sync(b, ids + 9, OTHER, NULL, &r.err));
        if (between == 2) {
            const int launches = r.gpu.cuda->n_launches;
            require(&r, reel_session_truncate(a, N - 1, &r.err));
            evaluate(&r, a, N - 1, 1, logits);
            check_logits(&r, logits, N - 1, "the last again", N);
            assert_int_equal(r.gpu.cuda->n_launches, launches + 1);
        }
        require(&r, reel_generate(a, &g, &result, &r.err));
        assert_int_equal(result.n_tokens, NEW);
        assert_int_equal(reel_session_length(a), N + NEW);
        memcpy(made, reel_session_ids(a) + N, sizeof made);
        assert_memory_equal(made, want, sizeof made);
        reel_session_close(a), reel_session_close(b);
    }
    free(logits);
    rig_close(&r);
}

static bool stop_evaluating(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)total;
    return done < *(const uint64_t *)user;
}

/* What was read stays, and goes on from there. */
static void a_cancelled_prompt_goes_on_where_it_ended(void **state) {
    (void)state;
    enum { N = 140 };
    struct rig r;
    uint64_t most = 128;
    int reused = 0;
    rig_open(&r, &settings[0], N + 2, "");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = N_IDS,
                                                  .progress = stop_evaluating,
                                                  .progress_user = &most };
    struct reel_session *session;
    require(&r, reel_session_open(&session, r.m.gpu, &options, &r.err));
    assert_int_equal(reel_session_sync(session, ids, N, NULL, &r.err), REEL_E_CANCELLED);
    assert_int_equal(reel_session_length(session), 128);
    most = N_IDS;
    require(&r, reel_session_sync(session, ids, N, &reused, &r.err));
    assert_int_equal(reused, 128);
    evaluate(&r, session, N, 1, logits);
    check_logits(&r, logits, N, "after a cancelled prompt", N);
    reel_session_close(session);
    free(logits);
    rig_close(&r);
}

/* Embeddings that are no numbers spoil their own prompt only, of few tokens or many. */
static void what_is_no_number_in_one_prompt_stays_there(void **state) {
    (void)state;
    enum { BAD = 39, GOOD = 100, HIDDEN = 64 };
    struct rig r;
    float embeddings[BAD * HIDDEN];
    for (int i = 0; i < BAD * HIDDEN; i++)
        embeddings[i] = NAN;
    rig_open(&r, &settings[0], GOOD, "");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    struct reel_session *bad = session_open(&r), *good = session_open(&r);
    for (int n = BAD; n > 0; n -= 20) {
        const struct reel_eval eval = { .size = sizeof eval, .n = n, .embeddings = embeddings };
        require(&r, reel_session_truncate(bad, 0, &r.err));
        require(&r, reel_session_eval(bad, &eval, &r.err));
        for (int most = GOOD; most > 10; most -= 80) {
            require(&r, reel_session_truncate(good, 0, &r.err));
            evaluate(&r, good, 0, most, logits);
            check_logits(&r, logits, most - 1, "a prompt behind one of NaN", most);
        }
    }
    reel_session_close(bad), reel_session_close(good);
    free(logits);
    rig_close(&r);
}

static void try_schedules(const struct setting *s) {
    enum { N = 75 };
    struct rig r;
    rig_open(&r, s, N + N_AFTER, "");
    const size_t bytes = (size_t)r.m.vocab * sizeof(float);
    float *logits = malloc(bytes), *first = malloc(bytes);
    struct reel_session *session = session_open(&r);
    evaluate(&r, session, 0, N, first);
    for (int seed = 0; seed < few(SANITIZED ? 1 : 2, 150); seed++) {
        seed_set(&r, seed);
        require(&r, reel_session_truncate(session, 0, &r.err));
        evaluate(&r, session, 0, N, logits);
        assert_memory_equal(logits, first, bytes);
    }
    reel_session_close(session);
    free(logits), free(first);
    rig_close(&r);
}

static void any_schedule_gives_the_same_bits(void **state) {
    (void)state;
    try_schedules(&settings[0]);
    try_schedules(&settings[ON_TWO]);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_every_length_match_the_reference),
        cmocka_unit_test(prompts_may_begin_anywhere),
        in_turn(states_are_those_of_decoding),
        in_turn(the_last_token_is_not_read_again),
        in_turn(a_cancelled_prompt_goes_on_where_it_ended),
        in_turn(what_is_no_number_in_one_prompt_stays_there),
        cmocka_unit_test(any_schedule_gives_the_same_bits),
    };
    SHARE_TESTS("prefill-hybrid", 4, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
