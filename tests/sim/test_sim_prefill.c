/* Reading prompts on the fake GPU through the public interface: the CPU reference's logits within
 * rounding whatever the prompt's length and however it is cut, decoding that goes on from there,
 * and the same bits under every schedule. Short prompts are read in one launch of their own, and
 * again as others are. */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_prefill.h"
#include "runtime/model_handle.h"
#include "support/rounding.h"
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

enum { N_IDS = 304, N_AFTER = 3, CHUNK = 128 };

struct setting {
    const char *model, *options;
    int n_sms, compute; /* SMs of all GPUs */
    int n_gpus;         /* that share the model */
};

/* wgmma's way, mma's way, cp.async; tied and not; SMs that are no part of the plan. */
static const struct setting settings[] = {
    { "q3-p", "n_groups=2,group_sms=2,warps=4", 4, 90, 1 },
    { "q3-p", "n_groups=1,group_sms=3,warps=4", 5, 100, 1 },
    { "ll-a", "n_groups=1,group_sms=3,warps=4", 3, 86, 1 },
    { "q3-c", "n_groups=4,group_sms=2,warps=8", 8, 90, 1 },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

/* How short prompts are read: in one launch, or by the queue of launches. */
static const char *const ways[] = { "", ",short_positions=0" };
enum { ONE_LAUNCH, QUEUE, N_WAYS };

struct rig {
    const struct setting *setting;
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    float *want; /* [N_IDS][vocab]: the CPU's */
    int n_want;
    double *amplified; /* [n_want]: NULL until a difference asks for it */
    int n_layers, hidden;
    double worst, squares; /* of the differences from it, over n_checked positions */
    int n_checked;
};

static int32_t ids[N_IDS];

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

static void rig_load(struct rig *r, const char *more) {
    char options[200];
    snprintf(options, sizeof options, "%s,prefill_tokens=128,prefill_from=2,launch_tokens=%d%s",
             r->setting->options, CHUNK, more);
    require(r, sim_model_load(&r->m, options, &r->err));
}

static void ids_make(void) {
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + i * i % 11 + 11) % 300;
}

/* `n` positions of the reference. */
static void rig_open(struct rig *r, const struct setting *s, int n, const char *more) {
    *r = (struct rig){ .setting = s, .gpu = sim_gpu_controls(), .n_want = n };
    r->gpu.cuda->gpu.n_sms = s->n_sms / s->n_gpus, r->gpu.cuda->gpu.compute = s->compute;
    r->gpu.cuda->gpu.n_devices = s->n_gpus;
    sim_model_open(&r->m, s->model);
    if (s->n_gpus > 1) r->m.device = "gpu:all";
    r->n_layers = r->m.cpu->model.config.n_layers;
    r->hidden = r->m.cpu->model.config.hidden;
    ids_make();
    r->want = sim_model_logits(r->m.cpu, ids, n);
    rig_load(r, more);
    seed_set(r, -1);
}

static void assert_nothing_left(const struct rig *r) {
    const struct fake_live *l = &r->gpu.cuda->live, *k = &r->gpu.cuda->leaked;
    assert_int_equal(l->contexts + l->streams + l->events + l->modules + l->allocations +
                         l->host_allocations + l->registrations,
                     0);
    assert_int_equal(k->streams + k->events + k->modules + k->allocations + k->host_allocations +
                         k->registrations,
                     0);
}

static void rig_close(struct rig *r) {
    sim_model_close(&r->m);
    free(r->want), free(r->amplified);
    assert_nothing_left(r);
}

static struct reel_session *session_open(struct rig *r, struct reel_model *model, int room) {
    struct reel_session *session;
    const struct reel_session_options o = { .size = sizeof o, .max_context = room };
    require(r, reel_session_open(&session, model, &o, &r->err));
    return session;
}

static enum reel_status evaluate(struct rig *r, struct reel_session *session, const int32_t *from,
                                 int n, float *logits) {
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = from,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)r->m.vocab };
    return reel_session_eval(session, &eval, &r->err);
}

/* A difference from the reference: as large as roundings make it (support/rounding.h), no larger.
 */
static bool within_rounding(struct rig *r, double off) {
    if (!(off <= r->worst)) r->worst = off;
    r->squares += off * off, r->n_checked++;
    return off <= rounding_allowed_once(r->n_layers, r->hidden);
}

/* A larger one, at a position of ids that amplifies errors more than others do. */
static bool within_amplified(struct rig *r, double off, int at) {
    if (!r->amplified) r->amplified = rounding_amplifications(r->m.cpu, ids, r->n_want);
    const double allowed = rounding_allowed_once(r->n_layers, r->hidden) * r->amplified[at];
    printf("%s %s: position %d amplifies errors %.2f times as much as others: off by %.4f, "
           "%.4f allowed\n",
           r->setting->model, r->setting->options, at, r->amplified[at], off, allowed);
    return off <= allowed;
}

/* What was allowed at each position is not to be taken at most of them. */
static void check_average(const struct rig *r) {
    const double average = sqrt(r->squares / r->n_checked);
    printf("%s %s: %d positions, off by %.4f at most (%.4f allowed), %.4f RMS (%.4f)\n",
           r->setting->model, r->setting->options, r->n_checked, r->worst,
           rounding_allowed_once(r->n_layers, r->hidden), average, rounding_allowed(r->n_layers));
    assert_true(r->n_checked >= (SANITIZED ? 4 : 10) && average <= rounding_allowed(r->n_layers));
}

/* Logits of position `at` of ids. */
static void check_logits(struct rig *r, const float *logits, int at, const char *what, int n) {
    assert_in_range(at, 0, r->n_want - 1);
    double off = relative_difference(logits, r->want + (size_t)at * (size_t)r->m.vocab, r->m.vocab);
    if (!within_rounding(r, off) && !within_amplified(r, off, at))
        fail_msg("%s %s, %s of %d: position %d is off by %.4f", r->setting->model,
                 r->setting->options, what, n, at, off);
}

/* Appends ids [from, from + n), then decodes the ids that follow. */
static void check_append(struct rig *r, struct reel_session *session, int from, int n,
                         float *logits) {
    require(r, reel_session_truncate(session, from, &r->err));
    require(r, evaluate(r, session, ids + from, n, logits));
    check_logits(r, logits, from + n - 1, "a prompt", n);
    for (int i = from + n; i < from + n + N_AFTER && i < r->n_want; i++) {
        require(r, evaluate(r, session, ids + i, 1, logits));
        check_logits(r, logits, i, "decoding after a prompt", n);
    }
}

/* Where positions are said to amplify errors more than others, roundings come out that much larger:
 * those of the CPU's engine, against none. */
static void positions_that_amplify_errors_are_further_off(void **state) {
    (void)state;
    enum { N = 240 };
    struct rig r = { .gpu = sim_gpu_controls() };
    struct reel_model *exact = NULL;
    double off[2] = { 0 }, said[2] = { 0 }; /* squares: where the amplification is below 1, above */
    int n[2] = { 0 };
    const struct reel_model_options o = {
        .size = sizeof o, .device = "cpu", .rounding = REEL_ROUNDING_EXACT, .n_threads = 1
    };
    ids_make();
    sim_model_open(&r.m, "q3-p");
    require(&r, reel_model_open(&exact, r.m.folder, &o, &r.err));
    float *want = sim_model_logits(exact, ids, N), *made = sim_model_logits(r.m.cpu, ids, N);
    double *amplified = rounding_amplifications(r.m.cpu, ids, N);
    for (int i = 0; i < N; i++) {
        const size_t at = (size_t)(i * r.m.vocab);
        const double by = relative_difference(made + at, want + at, r.m.vocab);
        const int above = amplified[i] > 1;
        off[above] += by * by, said[above] += amplified[i] * amplified[i], n[above]++;
    }
    const double ratio = sqrt(off[1] / n[1] / (off[0] / n[0]));
    const double expected = sqrt(said[1] / n[1] / (said[0] / n[0]));
    printf("%d positions amplify errors %.2f times as much as the %d others, are off %.2f times\n",
           n[1], expected, n[0], ratio);
    assert_true(n[0] > N / 4 && n[1] > N / 4 && expected > 1.3);
    assert_true(fabs(ratio / expected - 1) < 0.15);
    free(want), free(made), free(amplified);
    reel_model_close(exact);
    sim_model_close(&r.m);
}

/* ---- lengths and positions ---- */

/* A launch, the one that tells the host, and the head's; else those of all steps of all layers. */
static void check_launches(struct rig *r, struct reel_session *session, int n, float *logits) {
    const struct plan *p = &r->m.gpu->backend->plan;
    const bool one = cuda_reads_shorts(r->m.gpu->backend) && n <= p->short_tokens;
    require(r, reel_session_truncate(session, 0, &r->err));
    const int before = r->gpu.cuda->n_launches;
    require(r, evaluate(r, session, ids, n, logits));
    assert_int_equal(r->gpu.cuda->n_launches - before, one ? 3 : 6 * p->tape.n_layers + 3);
}

static void short_prompts_of_every_length_match_the_reference(void **state) {
    (void)state;
    /* enough warps for 64 tokens; settings[3]'s shared memory does not hold 8 */
    static const struct setting large = { "q3-p", "n_groups=2,group_sms=2,warps=8", 4, 90, 1 };
    const struct {
        const struct setting *setting;
        int most, step;
    } cases[] = {
        { &settings[0], 32, 3 }, { &settings[1], 16, 5 }, { &settings[2], 8, 3 }, { &large, 64, 21 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        rig_open(&r, cases[i].setting, 70 + N_AFTER, ways[ONE_LAUNCH]);
        const int most = r.m.gpu->backend->plan.short_tokens;
        const int step = few((SANITIZED ? 4 : 1) * cases[i].step, 1);
        assert_int_equal(most, cases[i].most);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
        for (int n = 2; n <= most; n += step)
            check_append(&r, session, 0, n, logits);
        for (int n = most; n <= most + 1; n++)
            check_launches(&r, session, n, logits);
        check_average(&r);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

static void prompts_of_every_length_match_the_reference(void **state) {
    (void)state;
    static const int lengths[] = {
        47, 48, 49, 63, 64, 65, 79, 97, 112, 127, 128, 129, 191, 256, 300
    };
    for (int i = 0; i < N_SETTINGS; i++) {
        struct rig r;
        const int step = few(i == 0 ? 13 : 19, 1);
        const int most = i < few(2, N_SETTINGS) ? 300 : 130;
        rig_open(&r, &settings[i], most + N_AFTER + 1, ways[QUEUE]);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
        for (int n = 1; n <= 40; n += step)
            check_append(&r, session, 0, n, logits);
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths;
             n += (size_t)few(i == 0 ? 3 : 4, 1))
            if (lengths[n] <= most) check_append(&r, session, 0, lengths[n], logits);
        check_average(&r);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

/* Each GPU has its own heads and columns, and parts of the sums come from the others. */
static const struct {
    struct setting setting;
    const char *options;
    int short_tokens; /* of a launch of short.cu; 0: others read all */
} shared[] = {
    { { "q3-p", "n_groups=2,group_sms=2,warps=4", 4, 90, 2 }, "", 32 },
    { { "qw2-p", "n_groups=2,group_sms=2,warps=4", 4, 100, 2 },
      ",short_positions=1,short_far=1",
      32 },
    { { "q3-c", "n_groups=4,group_sms=2,warps=8", 8, 90, 4 }, "", 0 },
    { { "q3-c", "n_groups=4,group_sms=2,warps=8", 8, 86, 2 }, "", 0 },
    { { "q3-p", "n_groups=2,group_sms=2,warps=4", 4, 90, 2 }, ",short_positions=0", 32 },
    /* half tiles of qkv, and of out */
    { { "q3-p", "n_groups=2,group_sms=8,warps=4", 16, 90, 2 }, "", 32 },
    { { "q3-c", "n_groups=4,group_sms=3,warps=4", 12, 90, 2 }, "", 8 },
    { { "q3-p", "n_groups=2,group_sms=8,warps=4", 16, 90, 2 }, ",short_positions=0", 32 },
    { { "q3-c", "n_groups=4,group_sms=3,warps=4", 12, 86, 2 }, ",short_positions=0", 8 },
};
static void several_gpus_read_prompts(void **state) {
    (void)state;
    static const int lengths[] = { 5, 24, 33, 64, 70, 129, 200 };
    const size_t step = (size_t)few(2, 1);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        struct rig r;
        const int most = i == 0 ? 200 : 70;
        rig_open(&r, &shared[i].setting, most + N_AFTER + 1, shared[i].options);
        assert_int_equal(r.m.gpu->backend->gpu.n, shared[i].setting.n_gpus);
        assert_true(cuda_prefills(r.m.gpu->backend));
        assert_int_equal(r.m.gpu->backend->plan.short_tokens, shared[i].short_tokens);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
        for (size_t n = i % step; n < sizeof lengths / sizeof *lengths; n += step) {
            seed_set(&r, (int)n % 3 - 1);
            if (lengths[n] <= most) check_append(&r, session, 0, lengths[n], logits);
        }
        check_append(&r, session, 21, 40, logits);
        check_average(&r);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

/* A prompt behind another one, from every position of a piece of the cache; chunks of odd sizes. */
static void prompts_may_begin_anywhere(void **state) {
    (void)state;
    /* the third: one launch only for what ends early; the fourth: another one behind that */
    static const char *const options[] = { ",launch_tokens=23",
                                           ",launch_tokens=23,short_positions=0",
                                           ",launch_tokens=23,short_positions=15",
                                           ",launch_tokens=23,short_positions=1,short_far=1" };
    for (int way = 0; way < 4; way++) {
        struct rig r;
        rig_open(&r, &settings[0], 120, options[way]);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
        require(&r, reel_session_sync(session, ids, 50, NULL, &r.err));
        /* position 95, decoded after the first of these, amplifies errors */
        for (int from = few(49, 50); from > 14; from -= few(18, 1))
            check_append(&r, session, from, 2 + from * 7 % 60, logits);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

static void a_common_prefix_is_not_read_again(void **state) {
    (void)state;
    enum { SAME = 25, N = 60 };
    struct rig r;
    int32_t other[N];
    int reused = -1;
    rig_open(&r, &settings[0], N + 1, "");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
    for (int i = 0; i < N; i++)
        other[i] = i < SAME ? ids[i] : ids[i] ^ 1;
    require(&r, reel_session_sync(session, other, N - 7, &reused, &r.err));
    assert_int_equal(reused, 0);
    require(&r, reel_session_sync(session, ids, N, &reused, &r.err));
    assert_int_equal(reused, SAME);
    const int launches = r.gpu.cuda->n_launches;
    require(&r, reel_session_sync(session, ids, N, &reused, &r.err));
    assert_int_equal(reused, N);
    assert_int_equal(r.gpu.cuda->n_launches, launches);
    require(&r, evaluate(&r, session, ids + N, 1, logits));
    check_logits(&r, logits, N, "after a common prefix", N);
    reel_session_close(session);
    free(logits);
    rig_close(&r);
}

/* ---- what follows a prompt, what a prompt is made of ---- */

/* Where they part, the reference has both ids as likely but for rounding (support/rounding.h). */
static void check_ids(struct rig *r, int n, const int32_t *made, const int32_t *want, int n_new) {
    int32_t all[N_IDS];
    int same = 0;
    while (same < n_new && made[same] == want[same])
        same++;
    if (same == n_new) return;
    memcpy(all, ids, (size_t)n * sizeof *all);
    memcpy(all + n, want, (size_t)same * sizeof *all);
    float *logits = sim_model_logits(r->m.cpu, all, n + same);
    const float *last = logits + (size_t)(n + same - 1) * (size_t)r->m.vocab;
    double all_squares = 0;
    for (int i = 0; i < r->m.vocab; i++)
        all_squares += (double)last[i] * (double)last[i];
    const double rms = sqrt(all_squares / r->m.vocab);
    const double apart = fabs((double)last[made[same]] - (double)last[want[same]]) / rms;
    double *amplified = rounding_amplifications(r->m.cpu, all, n + same);
    const double allowed = rounding_allowed_apart(r->n_layers) * amplified[n + same - 1];
    printf("a prompt of %d: id %d is %d, decoding made %d, %.4f of the logits' RMS apart (%.4f "
           "allowed)\n",
           n, same, made[same], want[same], apart, allowed);
    assert_true(apart <= allowed);
    free(amplified), free(logits);
}

static void greedy_decoding_goes_on_as_if_prompts_were_decoded(void **state) {
    (void)state;
    enum { N_NEW = 12 };
    static const int lengths[] = { 2, 16, 31, 33, 70 };
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    struct rig r;
    int32_t read[N_WAYS][LENGTHS][N_NEW], decoded[N_NEW];
    rig_open(&r, &settings[0], 1, "");
    for (int way = 0; way < N_WAYS; way++) {
        sim_model_unload(&r.m);
        rig_load(&r, way == QUEUE ? ",launch_tokens=32,short_positions=0" : ",launch_tokens=32");
        for (int i = 0; i < LENGTHS; i++)
            require(&r, sim_model_generate(r.m.gpu, ids, lengths[i], NULL, read[way][i], N_NEW,
                                           &r.err));
    }
    sim_model_unload(&r.m);
    rig_load(&r, ",prefill_from=0");
    for (int i = 0; i < LENGTHS; i++) {
        require(&r, sim_model_generate(r.m.gpu, ids, lengths[i], NULL, decoded, N_NEW, &r.err));
        for (int way = 0; way < N_WAYS; way++)
            check_ids(&r, lengths[i], read[way][i], decoded, N_NEW);
    }
    rig_close(&r);
}

static void given_embeddings_and_hidden_states_match_the_reference(void **state) {
    (void)state;
    enum { N = 75, HIDDEN = 64 };
    struct rig r;
    float embeddings[N * HIDDEN], made[HIDDEN], want[HIDDEN];
    for (int i = 0; i < N * HIDDEN; i++)
        embeddings[i] = (float)((i * 7919 + i / 64 * 31) % 201 - 100) / 4000.0f;
    static const char *const options[] = { ",launch_tokens=40", "",
                                           ",launch_tokens=40,short_positions=0" };
    for (int i = 0; i < 3; i++) {
        rig_open(&r, &settings[i % 2], 1, options[i]);
        struct reel_eval eval = { .size = sizeof eval,
                                  .n = N,
                                  .embeddings = embeddings,
                                  .output = REEL_OUTPUT_LAST_HIDDEN,
                                  .out = want,
                                  .out_floats = HIDDEN };
        struct reel_session *cpu = session_open(&r, r.m.cpu, N);
        struct reel_session *gpu = session_open(&r, r.m.gpu, N);
        require(&r, reel_session_eval(cpu, &eval, &r.err));
        eval.out = made;
        require(&r, reel_session_eval(gpu, &eval, &r.err));
        double off = relative_difference(made, want, HIDDEN);
        if (!within_rounding(&r, off)) fail_msg("hidden state off by %.4f", off);
        reel_session_close(cpu), reel_session_close(gpu);
        rig_close(&r);
    }
}

/* Embeddings that are no numbers, by a prompt whose activations lie elsewhere in scratch memory:
 * where a later prompt has columns that belong to no weight. */
static void what_is_no_number_in_one_prompt_stays_there(void **state) {
    (void)state;
    enum { N = 39, HIDDEN = 64, AFTER = 100 };
    struct rig r;
    float embeddings[N * HIDDEN];
    for (int i = 0; i < N * HIDDEN; i++)
        embeddings[i] = NAN;
    for (int way = 0; way < N_WAYS; way++) {
        rig_open(&r, &settings[1], AFTER, ways[way]);
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *bad = session_open(&r, r.m.gpu, N);
        struct reel_session *good = session_open(&r, r.m.gpu, AFTER);
        const struct reel_eval eval = {
            .size = sizeof eval, .n = N, .embeddings = embeddings, .output = REEL_OUTPUT_LAST_LOGITS
        };
        for (int n = 5; n <= AFTER; n += n < 40 ? 17 : 61) {
            require(&r, reel_session_truncate(bad, 0, &r.err));
            require(&r, reel_session_eval(bad, &eval, &r.err));
            require(&r, reel_session_truncate(good, 0, &r.err));
            require(&r, evaluate(&r, good, ids, n, logits));
            check_logits(&r, logits, n - 1, "after no numbers, a prompt", n);
        }
        reel_session_close(bad), reel_session_close(good);
        free(logits);
        rig_close(&r);
    }
}

/* ---- schedules ---- */

/* Two sessions by turns, a prompt that begins amid a piece and has three chunks, in this schedule.
 */
static void by_turns(struct rig *r, struct reel_session *const *sessions, int seed, float *logits) {
    enum { FIRST = 21, SECOND = 43 };
    seed_set(r, seed);
    for (int i = 0; i < 2; i++) {
        require(r, reel_session_truncate(sessions[i], 5, &r->err));
        require(r, evaluate(r, sessions[i], ids + 5, FIRST - 5 + i, logits + i * r->m.vocab));
    }
    for (int i = 0; i < 2; i++)
        require(r,
                evaluate(r, sessions[i], ids + FIRST + i, SECOND, logits + (2 + i) * r->m.vocab));
}

static void schedules_give_the_same_bits(const struct setting *all, const char *options,
                                         int n_settings) {
    for (int i = 0; i < n_settings; i++) {
        struct rig r;
        rig_open(&r, &all[i], 66, options);
        const size_t n = (size_t)(4 * r.m.vocab);
        float *want = malloc(n * sizeof *want), *made = malloc(n * sizeof *made);
        struct reel_session *sessions[] = { session_open(&r, r.m.gpu, N_IDS),
                                            session_open(&r, r.m.gpu, 80) };
        for (int s = 0; s < 2; s++)
            require(&r, reel_session_sync(sessions[s], ids, 5, NULL, &r.err));
        by_turns(&r, sessions, -1, want);
        check_logits(&r, want, 20, "a session", 16);
        check_logits(&r, want + r.m.vocab, 21, "another session", 17);
        check_logits(&r, want + 2 * r.m.vocab, 63, "a session", 43);
        check_logits(&r, want + 3 * r.m.vocab, 64, "another session", 43);
        for (int seed = 0; seed < (i == 3 ? few(1, 40) : few(1, 100)); seed++) {
            by_turns(&r, sessions, seed, made);
            if (memcmp(made, want, n * sizeof *made) != 0)
                fail_msg("%s %s seed %d: other logits", all[i].model, all[i].options, seed);
        }
        reel_session_close(sessions[0]), reel_session_close(sessions[1]);
        free(want), free(made);
        rig_close(&r);
    }
}

static void every_schedule_gives_the_same_bits(void **state) {
    (void)state;
    schedules_give_the_same_bits(settings, ",launch_tokens=20,short_positions=0", N_SETTINGS);
}

static void every_schedule_of_short_prompts_gives_the_same_bits(void **state) {
    (void)state;
    schedules_give_the_same_bits(settings, ",launch_tokens=20", 3); /* the fourth has none */
    schedules_give_the_same_bits(&shared[0].setting, ",launch_tokens=20", 1);
}

/* ---- cancelling, refusing ---- */

static bool no_further_than(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)total;
    return done < *(const uint64_t *)user;
}

static void a_prompt_can_be_cancelled_between_chunks(void **state) {
    (void)state;
    enum { N = 70 };
    struct rig r;
    uint64_t limit = 32;
    rig_open(&r, &settings[0], N + 1, ",launch_tokens=16");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    struct reel_session *session;
    const struct reel_session_options o = {
        .size = sizeof o, .max_context = N_IDS, .progress = no_further_than, .progress_user = &limit
    };
    require(&r, reel_session_open(&session, r.m.gpu, &o, &r.err));
    assert_int_equal(reel_session_sync(session, ids, N, NULL, &r.err), REEL_E_CANCELLED);
    const int held = reel_session_length(session);
    assert_in_range(held, 0, 32);
    assert_memory_equal(reel_session_ids(session), ids, (size_t)held * sizeof *ids);
    limit = N + 1;
    require(&r, reel_session_sync(session, ids, N, NULL, &r.err));
    require(&r, evaluate(&r, session, ids + N, 1, logits));
    check_logits(&r, logits, N, "after cancelling", N);
    reel_session_close(session);
    free(logits);
    rig_close(&r);
}

static void a_prompt_longer_than_the_context_is_refused_with_both_numbers(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, &settings[0], 1, "");
    float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
    struct reel_session *session = session_open(&r, r.m.gpu, 50);
    assert_int_equal(reel_session_sync(session, ids, 61, NULL, &r.err), REEL_E_CONTEXT);
    assert_non_null(strstr(r.err.text, "61"));
    assert_non_null(strstr(r.err.text, "50"));
    assert_int_equal(evaluate(&r, session, ids, 62, logits), REEL_E_CONTEXT);
    assert_non_null(strstr(r.err.text, "62"));
    assert_non_null(strstr(r.err.text, "50"));
    assert_int_equal(r.gpu.cuda->n_launches, 0);
    reel_session_close(session);
    free(logits);
    rig_close(&r);
}

/* ---- faults ---- */

static void memory_that_is_not_there_ends_in_words(void **state) {
    (void)state;
    struct rig r;
    bool named = false, loaded = false;
    rig_open(&r, &settings[0], 1, "");
    sim_model_unload(&r.m);
    for (int n = 1; !loaded; n++) {
        r.gpu = sim_gpu_controls();
        r.gpu.cuda->gpu.n_sms = settings[0].n_sms;
        r.gpu.cuda->only = "cuMemAlloc_v2";
        r.gpu.cuda->fail_call = n, r.gpu.cuda->fail_with = 2;
        char options[100];
        snprintf(options, sizeof options, "%s,prefill_from=2", settings[0].options);
        enum reel_status status = sim_model_load(&r.m, options, &r.err);
        loaded = status == REEL_OK;
        if (loaded) break;
        assert_int_equal(status, REEL_E_MEMORY);
        named |= strstr(r.err.text, "scratch memory for prompts") != NULL;
        assert_nothing_left(&r);
    }
    assert_true(named);
    rig_close(&r);
}

/* The first launches of a prompt, later ones, and the decode kernel's behind them. */
static void a_launch_that_fails_ends_in_words(void **state) {
    (void)state;
    enum { CHUNKS = 2 };
    static const struct {
        const char *call;
        int n, way;
    } fails[] = { { "cuLaunchKernel", 1, QUEUE },
                  { "cuLaunchKernelEx", 1, QUEUE },
                  { "cuLaunchKernelEx", 9, QUEUE },
                  { "cuLaunchKernelEx", 20, QUEUE },
                  { "cuLaunchCooperativeKernel", 1, QUEUE },
                  { "cuLaunchCooperativeKernel", 1, ONE_LAUNCH },
                  { "cuLaunchKernel", 1, ONE_LAUNCH },
                  { "cuLaunchCooperativeKernel", CHUNKS, ONE_LAUNCH },
                  { "cuLaunchCooperativeKernel", CHUNKS + 1, ONE_LAUNCH } };
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        struct rig r;
        rig_open(&r, &settings[0], 31,
                 fails[i].way == QUEUE ? ",launch_tokens=16,short_positions=0"
                                       : ",launch_tokens=16");
        float *logits = malloc((size_t)r.m.vocab * sizeof *logits);
        struct reel_session *session = session_open(&r, r.m.gpu, N_IDS);
        r.gpu.cuda->only = fails[i].call;
        r.gpu.cuda->fail_call = fails[i].n, r.gpu.cuda->fail_with = 701; /* out of resources */
        assert_int_equal(evaluate(&r, session, ids, 30, logits), REEL_E_DEVICE);
        assert_non_null(strstr(r.err.text, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
        assert_int_equal(reel_session_length(session), 0);
        require(&r, evaluate(&r, session, ids, 30, logits));
        check_logits(&r, logits, 29, "after a launch that failed", 30);
        reel_session_close(session);
        free(logits);
        rig_close(&r);
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_that_amplify_errors_are_further_off),
        in_turn(short_prompts_of_every_length_match_the_reference),
        in_turn(prompts_of_every_length_match_the_reference),
        cmocka_unit_test(several_gpus_read_prompts),
        in_turn(prompts_may_begin_anywhere),
        cmocka_unit_test(a_common_prefix_is_not_read_again),
        in_turn(greedy_decoding_goes_on_as_if_prompts_were_decoded),
        in_turn(given_embeddings_and_hidden_states_match_the_reference),
        in_turn(what_is_no_number_in_one_prompt_stays_there),
        in_turn(every_schedule_gives_the_same_bits),
        in_turn(every_schedule_of_short_prompts_gives_the_same_bits),
        cmocka_unit_test(a_prompt_can_be_cancelled_between_chunks),
        cmocka_unit_test(a_prompt_longer_than_the_context_is_refused_with_both_numbers),
        in_turn(memory_that_is_not_there_ends_in_words),
        in_turn(a_launch_that_fails_ends_in_words),
    };
    SHARE_TESTS("prefill", 5, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
