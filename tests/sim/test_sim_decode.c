/* Whole decoding of miniature models on the fake GPU: the logits of the reference in float32 within
 * rounding, and the same bits under every schedule. */
#include "cpu/reference_model.h"
#include "runtime/model_handle.h"
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

enum { N_PROMPT = 22, N_NEW = 6 };

struct setting {
    const char *model, *options;
    int n_sms, compute;
    int few, many; /* schedules, the second in make soak; few 0: not in make test */
};

/* Two groups of two SMs each, one group of three, the older GPUs' copies, splits. Hybrids: more
 * units of value columns than SMs, and as many; heads of 256. */
static const struct setting settings[] = {
    { "q3-a", "n_groups=2,group_sms=2,warps=4", 4, 90, 0, 75 },
    { "q3-a", "n_groups=2,group_sms=2,warps=4,split_from=17,kv_slots=4", 4, 90, 1, 75 },
    { "q3-a", "n_groups=1,group_sms=3,warps=6,split_from=1", 3, 100, 1, 75 },
    { "q3-a", "n_groups=2,group_sms=1,warps=8", 2, 86, 1, 75 },
    { "q3-a", "n_groups=2,group_sms=2,warps=4,compute=75,split_from=20", 4, 120, 1, 75 },
    { "ll-a", "n_groups=1,group_sms=2,warps=4", 2, 90, 1, 75 },
    { "q3-b", "n_groups=1,group_sms=3,warps=4", 3, 90, 1, 75 },
    /* biases: a group for each of two KV heads, and rows that no SM has as many of as the next */
    { "qw2-a", "n_groups=2,group_sms=2,warps=4", 4, 90, 1, 75 },
    { "qw2-b", "n_groups=1,group_sms=3,warps=4,split_from=9", 3, 86, 1, 75 },
    /* A SM's q, k and v are less than a slot of the ring. */
    { "q3-a", "n_groups=2,group_sms=8,warps=4,split_from=3", 16, 90, 1, 40 },
    { "q35-a", "n_groups=2,group_sms=2,warps=4", 4, 90, 1, 50 },
    { "q35-a", "n_groups=1,group_sms=3,warps=4,compute=80,split_from=9", 3, 86, 1, 50 },
    { "q35-b", "n_groups=1,group_sms=3,warps=4,split_from=5", 3, 90, 1, 50 },
    { "q35-c", "n_groups=2,group_sms=16,split_from=17", 32, 90, 0, 10 },
    /* sums in two hops; in the last an SM has more of them than epilogue threads */
    { "q3-a", "n_groups=2,group_sms=2,warps=4,split_from=17,hops=2", 4, 90, 1, 75 },
    { "q3-e", "n_groups=2,group_sms=2,warps=6,hops=2,h_bits=24", 4, 90, 1, 50 },
    { "q35-a", "n_groups=1,group_sms=3,warps=4,split_from=9,hops=2", 3, 86, 1, 50 },
    { "qw2-b", "n_groups=1,group_sms=3,warps=4,hops=2,epilogue_warps=1", 3, 90, 1, 50 },
    /* a group so large that its members merge shares */
    { "q35-c", "n_groups=1,group_sms=16,split_from=17", 16, 90, 0, 3 },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

static int32_t prompt[N_PROMPT];

/* Under sanitizers one: they see host code, which does not depend on schedules. */
static int schedules(int few, int many) {
    return getenv("REEL_SOAK") ? many : SANITIZED && few > 1 ? 1 : few;
}

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

/* RMS of the difference over RMS of the reference. */
static double difference(const float *made, const float *want, size_t n) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

static struct sim_gpu gpu_start(const struct setting *s) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = s->n_sms;
    gpu.cuda->gpu.compute = s->compute;
    return gpu;
}

static void model_start(struct sim_model *m, const struct setting *s, const char *more) {
    struct reel_error err = { 0 };
    char options[200];
    /* of the decode kernel: every position goes through it */
    snprintf(options, sizeof options, "%s,prefill_from=0%s", s->options, more);
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % 96;
    sim_model_open(m, s->model);
    require(sim_model_load(m, options, &err), &err);
}

static void generate(struct reel_model *model, const struct reel_sampling *sampling, int32_t *ids) {
    struct reel_error err = { 0 };
    require(sim_model_generate(model, prompt, N_PROMPT, sampling, ids, N_NEW, &err), &err);
}

static void seed_set(struct sim_gpu *gpu, int seed) {
    gpu->cuda->settings.in_order = seed < 0;
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
}

/* A session that holds the first positions, of which each schedule evaluates or makes the rest. */
enum { N_KEPT = 14, N_TAIL = N_PROMPT - N_KEPT };

static void tail_logits(struct reel_session *session, float *logits, int vocab) {
    struct reel_error err = { 0 };
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = N_TAIL,
                                    .ids = prompt + N_KEPT,
                                    .output = REEL_OUTPUT_ALL_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)N_TAIL * (size_t)vocab };
    require(reel_session_truncate(session, N_KEPT, &err), &err);
    require(reel_session_eval(session, &eval, &err), &err);
}

static bool take_id(void *user, const struct reel_token *token) {
    int32_t **to = user;
    *(*to)++ = token->id;
    return true;
}

static void tail_ids(struct reel_session *session, int32_t *ids) {
    struct reel_error err = { 0 };
    int32_t *to = ids;
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = take_id,
                                       .user = &to };
    require(reel_session_truncate(session, N_KEPT, &err), &err);
    require(reel_generate(session, &g, NULL, &err), &err);
    assert_int_equal(to - ids, N_NEW);
}

/* Logits of vectors that are given in the place of ids. */
enum { N_VECTORS = 3 };
static float *vector_logits(const struct sim_model *m) {
    struct reel_error err = { 0 };
    struct reel_session *session;
    const int hidden = m->cpu->model.config.hidden;
    float *vectors = malloc((size_t)(N_VECTORS * hidden) * sizeof *vectors);
    float *logits = malloc((size_t)(N_VECTORS * m->vocab) * sizeof *logits);
    for (int i = 0; i < N_VECTORS * hidden; i++)
        vectors[i] = (float)((i * 37 + 5) % 101 - 50) / 100;
    const struct reel_session_options options = { .size = sizeof options, .max_context = N_PROMPT };
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = N_VECTORS,
                                    .embeddings = vectors,
                                    .output = REEL_OUTPUT_ALL_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)N_VECTORS * (size_t)m->vocab };
    require(reel_session_open(&session, m->gpu, &options, &err), &err);
    require(reel_session_eval(session, &eval, &err), &err);
    reel_session_close(session);
    free(vectors);
    return logits;
}

/* Logits of the prompt in float32. */
static float *exact_logits(const struct sim_model *m) {
    const struct model *model = &m->cpu->model;
    const struct ref_options options = { .mode = REF_EXACT, .max_positions = N_PROMPT };
    struct reel_error err = { 0 };
    struct ref_state *state = NULL;
    float *logits = malloc((size_t)(N_PROMPT * m->vocab) * sizeof *logits);
    const struct backend_eval eval = {
        .n = N_PROMPT, .ids = prompt, .output = REEL_OUTPUT_ALL_LOGITS, .out = logits
    };
    require(ref_state_open(&state, &model->config, &model->weights, &options, &err), &err);
    require(ref_state_eval(state, &eval, &err), &err);
    ref_state_close(state);
    return logits;
}

/* The reference's logits when all goes in order, no further off than the CPU's, then the same bits
 * under every schedule. */
static void check_setting(const struct setting *s, int n_schedules) {
    struct sim_model m;
    struct reel_error err = { 0 };
    struct reel_session *session;
    const struct reel_session_options options = { .size = sizeof options, .max_context = N_PROMPT };
    struct sim_gpu gpu = gpu_start(s);
    model_start(&m, s, "");
    size_t kept = (size_t)(N_KEPT * m.vocab), n = (size_t)(N_TAIL * m.vocab);
    int32_t want_ids[N_NEW], ids[N_NEW];
    seed_set(&gpu, -1);
    float *cpu = sim_model_logits(m.cpu, prompt, N_PROMPT);
    float *want = sim_model_logits(m.gpu, prompt, N_PROMPT), *made = malloc(n * sizeof *made);
    float *exact = exact_logits(&m);
    double off = difference(want, exact, kept + n), allowed = difference(cpu, exact, kept + n);
    printf("%s %s: off by %.4f, the CPU by %.4f\n", s->model, s->options, off, allowed);
    assert_true(off < allowed && allowed < 0.04);
    require(reel_session_open(&session, m.gpu, &options, &err), &err);
    require(reel_session_sync(session, prompt, N_KEPT, NULL, &err), &err);
    require(reel_session_sync(session, prompt, N_PROMPT, NULL, &err), &err);
    tail_ids(session, want_ids);
    for (int i = 0; i < n_schedules; i++) {
        const int seed = n_schedules == 2 ? 3 * i : i; /* of two, one makes ids */
        seed_set(&gpu, seed);
        if (seed % 4 == 3) {
            tail_ids(session, ids);
            if (memcmp(ids, want_ids, sizeof ids) != 0)
                fail_msg("%s seed %d: other ids", s->options, seed);
        } else {
            tail_logits(session, made, m.vocab);
            if (memcmp(made, want + kept, n * sizeof *made) != 0)
                fail_msg("%s seed %d: other logits", s->options, seed);
        }
    }
    reel_session_close(session);
    free(cpu), free(want), free(made), free(exact);
    sim_model_close(&m);
    assert_int_equal(gpu.cuda->leaked.allocations + gpu.cuda->leaked.host_allocations +
                         gpu.cuda->leaked.streams + gpu.cuda->leaked.modules +
                         gpu.cuda->leaked.registrations + gpu.cuda->leaked.events,
                     0);
}

static void every_schedule_gives_the_same_bits(void **state) {
    (void)state;
    const struct share share = share_of("decode", 6);
    for (int i = 0; i < N_SETTINGS; i++) {
        const int n = schedules(settings[i].few, settings[i].many);
        if (n > 0 && share_has(share, i)) check_setting(&settings[i], n);
    }
}

/* Sums that reach every SM in two hops are those of one hop, of given ids and of given vectors. */
static void two_hops_make_the_bits_of_one(void **state) {
    (void)state;
    static const struct setting hops[] = {
        { "q3-a", "n_groups=2,group_sms=2,warps=4", 4, 90, 1, 1 },
        { "q3-e", "n_groups=2,group_sms=2,warps=6", 4, 90, 1, 1 },
        { "qw2-b", "n_groups=1,group_sms=3,warps=4,epilogue_warps=1", 3, 86, 1, 1 },
        { "q35-b", "n_groups=1,group_sms=3,warps=4", 3, 90, 1, 1 },
        { "q3-a", "n_groups=2,group_sms=2,warps=4,h_bits=24", 4, 90, 1, 1 },
        { "q35-b", "n_groups=1,group_sms=3,warps=4,h_bits=24", 3, 90, 1, 1 },
    };
    const struct share share = share_of("two-hops", 3);
    for (size_t i = 0; i < sizeof hops / sizeof *hops; i++) {
        if (!share_has(share, (int)i)) continue;
        float *made[2][2];
        size_t bytes[2] = { 0 };
        for (int two = 0; two < 2; two++) {
            struct sim_model m;
            struct sim_gpu gpu = gpu_start(&hops[i]);
            model_start(&m, &hops[i], two ? ",hops=2" : ",hops=1");
            seed_set(&gpu, 5);
            made[two][0] = sim_model_logits(m.gpu, prompt, N_PROMPT);
            made[two][1] = vector_logits(&m);
            bytes[0] = (size_t)(N_PROMPT * m.vocab) * sizeof(float);
            bytes[1] = (size_t)(N_VECTORS * m.vocab) * sizeof(float);
            sim_model_close(&m);
        }
        for (int j = 0; j < 2; j++) {
            if (memcmp(made[0][j], made[1][j], bytes[j]) != 0)
                fail_msg("%s %s: other logits of %s", hops[i].model, hops[i].options,
                         j ? "vectors" : "ids");
            free(made[0][j]), free(made[1][j]);
        }
    }
}

static void epochs_may_come_round(void **state) {
    (void)state;
    struct sim_model m;
    struct sim_gpu gpu = gpu_start(&settings[1]);
    int32_t want[N_NEW], ids[N_NEW];
    model_start(&m, &settings[1], "");
    seed_set(&gpu, -1);
    generate(m.gpu, NULL, want);
    sim_model_unload(&m);
    sim_model_close(&m);
    for (int seed = 0; seed < schedules(2, 20); seed++) {
        model_start(&m, &settings[1], ",epoch=4294967196,launch_tokens=5");
        seed_set(&gpu, seed);
        for (int i = 0; i < 3; i++) {
            generate(m.gpu, NULL, ids);
            assert_memory_equal(ids, want, sizeof ids);
        }
        sim_model_close(&m);
    }
}

/* A block that never arrives: a message in time, then the device works again. */
static void an_aborted_launch_is_described_and_the_next_one_is_right(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start(&settings[1]);
    int32_t want[N_NEW], ids[N_NEW];
    model_start(&m, &settings[1], ",patience=20000");
    seed_set(&gpu, -1);
    generate(m.gpu, NULL, want);
    for (int seed = 0; seed < schedules(4, 60); seed++) {
        seed_set(&gpu, seed);
        gpu.cuda->settings.missing_block = seed % 4;
        gpu.cuda->settings.idle_limit = 0;
        enum reel_status status =
            sim_model_generate(m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &err);
        if (status != REEL_E_DEVICE || !strstr(err.text, "gave up waiting"))
            fail_msg("seed %d: %s\n%s", seed, err.text, gpu.cuda->report);
        gpu.cuda->settings.missing_block = -1;
        gpu.cuda->settings.in_order = true;
        generate(m.gpu, NULL, ids);
        assert_memory_equal(ids, want, sizeof ids);
    }
    sim_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(two_hops_make_the_bits_of_one),
        cmocka_unit_test(epochs_may_come_round),
        cmocka_unit_test(an_aborted_launch_is_described_and_the_next_one_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
