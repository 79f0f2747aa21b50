/* Picking's device code under the simulator against the host's sampler: the same ids, the same
 * reasons to end, for random logits and settings on small and odd grids. */
#include "kernels/args.h"
#include "runtime/sampler.h"
#include "support/plan_defines.h"
#include "support/shares.h"
#include "support/sim_gpu.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_TOKENS = 50, PATIENCE = 1 << 30 };

struct shape {
    int sms, warps, vocab;
};

/* One compiled shape with its memory, and the host's sampler beside it. */
struct rig {
    struct shape shape;
    struct plan plan;
    struct sim_gpu gpu;
    struct sampler *sampler;
    struct decode_mailbox *mailbox;
    unsigned long long words, logits, table, seen, bias, abort;
    float *host_table; /* [MOST_TOKENS][vocab] */
    uint32_t *host_seen;
    float *host_bias;
    uint32_t epoch;
    int seed; /* of the schedule */
};

static uint64_t random_state;
static uint32_t random32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}
static int below(int n) { return (int)(random32() % (uint32_t)n); }
static float uniform(void) { return (float)(random32() >> 8) / 16777216.0f; }
static float normal(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum - 6;
}

static int threads(const struct shape *s) { return 32 * (s->warps + 1); }

/* ---- a launch ---- */

/* A small model in one group, with rows for every SM; the test's kernel has one warp beside the
 * consumers, no producers. */
static void compile(struct rig *r) {
    const struct shape *s = &r->shape;
    const struct model_config config = { .family = MODEL_LLAMA,
                                         .hidden = 16 * s->sms,
                                         .n_layers = 1,
                                         .n_heads = 4,
                                         .n_kv_heads = 2,
                                         .head_dim = 32,
                                         .rotary_dim = 32,
                                         .intermediate = 16 * s->sms,
                                         .vocab = s->vocab,
                                         .max_context = 8192,
                                         .rms_eps = 1e-6f,
                                         .tied = true };
    const struct plan_options options = {
        .n_groups = 1, .group_sms = s->sms, .warps = s->warps, .epilogue_warps = 1
    };
    const struct plan_override overrides[] = { { "P_THREADS", threads(s) } };
    const struct gpu_limits gpu = plan_defines_gpu(s->sms);
    struct plan_defines d;
    plan_defines_make(&d, &config, &gpu, &options, overrides, 1);
    r->plan = d.plan;
    assert_true(r->plan.exchange[X_QKV].words >= (unsigned)s->sms); /* a word of each SM */
    sim_gpu_compile("pick.cu", d.list);
    plan_defines_release(&d);
}

static void rig_open(struct rig *r, struct shape shape) {
    struct reel_error err = { 0 };
    const size_t n = (size_t)shape.vocab;
    *r = (struct rig){ .shape = shape, .gpu = sim_gpu_open(), .epoch = 0xffffffffu - 50 };
    r->gpu.cuda->gpu.n_sms = shape.sms;
    compile(r);
    random_state = (uint64_t)shape.vocab;
    if (sampler_open(&r->sampler, shape.vocab, &err) != REEL_OK) fail_msg("%s", err.text);
    r->mailbox = sim_gpu_mapped(sizeof *r->mailbox);
    const size_t words = r->plan.n_words;
    r->words = sim_gpu_alloc(words * 8);
    r->logits = sim_gpu_alloc(n * 4), r->table = sim_gpu_alloc(n * MOST_TOKENS * 4);
    r->seen = sim_gpu_alloc(n * 4), r->bias = sim_gpu_alloc(n * 4), r->abort = sim_gpu_alloc(4);
    r->host_table = calloc(n * MOST_TOKENS, sizeof(float));
    r->host_seen = calloc(n, 4), r->host_bias = calloc(n, sizeof(float));
    void *zeros = calloc(words, 8);
    sim_gpu_put(r->words, zeros, words * 8);
    sim_gpu_put(r->abort, zeros, 4);
    free(zeros);
}

static void rig_close(struct rig *r) {
    sim_gpu_close();
    sampler_close(r->sampler);
    free(r->host_table), free(r->host_seen), free(r->host_bias);
}

static void *pointer(unsigned long long address) { return (void *)(uintptr_t)address; }

/* Settings are taken from the host's sampler; n_given and what ends a launch are the caller's. */
static struct decode_args args_of(struct rig *r, int n_tokens) {
    const struct reel_sampling *set = &sampler_sampling(r->sampler)->set;
    const bool penalises = sampler_sampling(r->sampler)->penalises;
    struct decode_args a = {
        .position = below(5000), .n_tokens = n_tokens, .n_given = 1, .pick = 1
    };
    a.words = pointer(r->words), a.logits = pointer(r->logits), a.embeddings = pointer(r->table);
    a.patience = PATIENCE, a.lead = 1000, a.mailbox = r->mailbox, a.abort = pointer(r->abort);
    a.sampling = (struct sampling_args){ .temperature = set->temperature,
                                         .top_p = set->top_p,
                                         .min_p = set->min_p,
                                         .top_k = set->top_k,
                                         .repetition = set->repetition_penalty,
                                         .presence = set->presence_penalty,
                                         .frequency = set->frequency_penalty,
                                         .adjust = penalises || set->n_bias > 0,
                                         .seed = set->seed,
                                         .seen = penalises ? pointer(r->seen) : NULL,
                                         .bias = set->n_bias > 0 ? pointer(r->bias) : NULL };
    memset(r->mailbox, 0, sizeof *r->mailbox);
    return a;
}

static void launch(struct rig *r, struct decode_args *a) {
    const size_t n = (size_t)r->shape.vocab;
    const struct backend_sampling *told = sampler_sampling(r->sampler);
    void *params[] = { a };
    memset(r->host_seen, 0, n * 4);
    for (int i = 0; i < told->n_ids; i++)
        r->host_seen[told->ids[i]] = 0x80000000u | (uint32_t)told->generated[told->ids[i]];
    sim_gpu_put(r->seen, r->host_seen, n * 4);
    sim_gpu_put(r->bias, r->host_bias, n * 4);
    sim_gpu_put(r->table, r->host_table, n * (size_t)a->n_tokens * 4);
    a->head_from = a->n_given - 1;
    a->epoch = r->epoch, r->epoch += (uint32_t)(2 * a->n_tokens + 4);
    r->gpu.cuda->settings.seed = (uint64_t)++r->seed;
    if (sim_gpu_launch("pick", (unsigned)r->shape.sms, (unsigned)threads(&r->shape),
                       (unsigned)r->plan.shared_bytes, params))
        fail_msg("%d SMs, launch %d: %s", r->shape.sms, r->seed, r->gpu.cuda->report);
}

/* ---- what must come out ---- */

struct outcome {
    int32_t ids[MOST_TOKENS];
    uint32_t n_made, n_evaluated, end;
};

static bool is_stop_id(const struct decode_args *a, int32_t id) {
    for (int i = 0; i < a->n_stop_ids; i++)
        if (a->stop_ids[i] == id) return true;
    return false;
}

static uint32_t end_of_token(const struct rig *r, const struct decode_args *a, int t, int32_t id) {
    if (r->mailbox->stop) return DECODE_STOPPED;
    if (id == -1) return DECODE_NO_ID;
    if (id >= 0 && is_stop_id(a, id)) return DECODE_STOP_ID;
    return t == a->n_tokens - 1 ? DECODE_ALL_TOKENS : DECODE_RUNNING;
}

/* The host's sampler goes the same way. */
static struct outcome expected(struct rig *r, const struct decode_args *a) {
    struct outcome o = { .n_made = 0 };
    while (!o.end) {
        const int t = (int)o.n_evaluated++;
        int32_t id = -2;
        if (t >= a->n_given - 1)
            id = sampler_draw(r->sampler, r->host_table + (size_t)t * (size_t)r->shape.vocab,
                              a->position + t + 1);
        if (id >= 0) {
            sampler_saw_generated(r->sampler, id);
            o.ids[o.n_made++] = id;
        }
        o.end = end_of_token(r, a, t, id);
    }
    return o;
}

static void check_ids(const struct rig *r, const struct outcome *want) {
    const struct decode_mailbox *m = r->mailbox;
    const struct reel_sampling *s = &sampler_sampling(r->sampler)->set;
    for (uint32_t i = 0; i < m->n_made && i < want->n_made; i++)
        if (m->ids[i] != ((uint64_t)(i + 1) << 32 | (uint32_t)want->ids[i]))
            fail_msg("%d SMs, launch %d, temperature %g, top_k %d, top_p %g, min_p %g: id %u is "
                     "%llx, want %x",
                     r->shape.sms, r->seed, (double)s->temperature, s->top_k, (double)s->top_p,
                     (double)s->min_p, i, m->ids[i], (unsigned)want->ids[i]);
}

static void check_counts(struct rig *r) {
    if (!sampler_sampling(r->sampler)->penalises) return;
    sim_gpu_get(r->host_seen, r->seen, (size_t)r->shape.vocab * 4);
    for (int i = 0; i < r->shape.vocab; i++)
        assert_int_equal(r->host_seen[i] & 0x7fffffffu, sampler_sampling(r->sampler)->generated[i]);
}

/* Whether the device drew all ids itself; what it drew is right in any case. */
static bool check(struct rig *r, const struct outcome *want) {
    const struct decode_mailbox *m = r->mailbox;
    const struct reel_sampling *s = &sampler_sampling(r->sampler)->set;
    check_ids(r, want);
    const bool lists = s->temperature > 0 && (s->top_k || s->top_p > 0);
    if (lists && (m->end == DECODE_HOST_PICKS || (m->stop && m->n_made < want->n_made))) {
        assert_true(m->n_made < want->n_made);
        return false;
    }
    assert_int_equal(m->end, want->end);
    assert_int_equal(m->n_made, want->n_made);
    assert_int_equal(m->n_evaluated, want->n_evaluated);
    check_counts(r);
    return true;
}

/* ---- random cases ---- */

static float odd_number(void) {
    static const float odd[] = { NAN,      -NAN, INFINITY, -INFINITY, FLT_MAX,
                                 -FLT_MAX, 0.0f, -0.0f,    1e-40f };
    return odd[below(9)];
}

static void fill_logits(float *l, int n) {
    static const float scales[] = { 0.1f, 1, 3, 8, 30 };
    const float scale = scales[below(5)];
    const int kind = below(7), at = below(n);
    for (int i = 0; i < n; i++) {
        l[i] = normal() * scale;
        if (kind == 1) l[i] = roundf(l[i]); /* many ties */
        if (kind == 2 && below(4) == 0) l[i] = odd_number();
        if (kind == 3) l[i] = below(2) ? NAN : -INFINITY;
        if (kind == 4 && i >= at && i < at + 50) l[i] = 10 * scale + normal(); /* on few blocks */
        if (kind == 5) l[i] = scale;
        if (kind == 6 && below(n) < 30) l[i] = 20 + 2 * normal(); /* peaked */
    }
    if (kind == 3 && below(2)) l[at] = odd_number();
}

static struct reel_logit_bias biases[20];

static struct reel_sampling random_settings(const struct rig *r) {
    static const float temperatures[] = { 0, 1, 0.7f, 0.01f, 2, 1e-30f, 1e30f, 0.6f };
    static const float top_ps[] = { 1e-30f, 0.99999994f, 1, 0.5f, 0.95f };
    static const float min_ps[] = { 0.05f, 1, 1e-38f, 0.3f };
    const int vocab = r->shape.vocab;
    struct reel_sampling s = { .size = sizeof s, .temperature = temperatures[below(8)] };
    if (below(2)) s.top_k = 1 + (below(2) ? below(64) : below(2 * vocab));
    if (below(2)) s.top_p = below(2) ? uniform() : top_ps[below(5)];
    if (below(3) == 0) s.min_p = min_ps[below(4)];
    if (below(3) == 0)
        s.repetition_penalty = 1.3f, s.presence_penalty = 0.5f, s.frequency_penalty = -0.25f;
    if (below(3) == 0) s.n_bias = 1 + below(20);
    s.bias = biases;
    s.seed = (uint64_t)random32() << 32 | random32();
    const int step = vocab / 20;
    for (int i = 0; i < s.n_bias; i++)
        biases[i] = (struct reel_logit_bias){ i * step + below(step),
                                              below(5) ? 20 * normal() : -INFINITY };
    return s;
}

static void start(struct rig *r, const struct reel_sampling *s) {
    struct reel_error err = { 0 };
    if (sampler_start(r->sampler, s, &err) != REEL_OK) fail_msg("%s", err.text);
    memset(r->host_bias, 0, (size_t)r->shape.vocab * sizeof(float));
    for (int i = 0; i < s->n_bias; i++)
        r->host_bias[s->bias[i].id] = s->bias[i].bias;
}

static bool random_case(struct rig *r) {
    struct reel_sampling s = random_settings(r);
    start(r, &s);
    for (int i = 0; i < 40; i++)
        sampler_saw_prompt(r->sampler, below(r->shape.vocab));
    struct decode_args a = args_of(r, 1 + below(4));
    for (int t = 0; t < a.n_tokens; t++)
        fill_logits(r->host_table + (size_t)t * (size_t)r->shape.vocab, r->shape.vocab);
    a.n_given = 1 + below(a.n_tokens);
    if (below(4) == 0) a.n_stop_ids = ARGS_MAX_STOP_IDS;
    for (int i = 0; i < a.n_stop_ids; i++)
        a.stop_ids[i] = below(r->shape.vocab);
    r->mailbox->stop = below(20) == 0;
    launch(r, &a);
    const struct outcome want = expected(r, &a);
    return check(r, &want);
}

static void draws_equal_the_hosts(void **state) {
    (void)state;
    static const struct {
        struct shape shape;
        int few, many;
    } runs[] = { { { 4, 4, 1000 }, 150, 6000 },
                 { { 1, 4, 300 }, 100, 2000 },
                 { { 3, 4, 5000 }, 60, 1500 },
                 { { 5, 6, 2222 }, 50, 1500 },
                 { { 70, 8, 3333 }, 4, 150 } };
    const struct share share = share_of("draws", 5);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!share_has(share, (int)i)) continue;
        struct rig r;
        int settled = 0, n = getenv("REEL_SOAK") ? runs[i].many : runs[i].few;
        rig_open(&r, runs[i].shape);
        for (int k = 0; k < n; k++)
            settled += random_case(&r);
        printf("%d SMs, %d ids: the device settled %d of %d\n", r.shape.sms, r.shape.vocab, settled,
               n);
        rig_close(&r);
    }
}

/* ---- cases that must not be left to chance ---- */

static void every_slot_can_win(void **state) {
    (void)state;
    static const float temperatures[] = { 0, 1e-3f };
    struct rig r;
    rig_open(&r, (struct shape){ 4, 4, 1000 });
    for (int k = 0; k < 2; k++)
        for (int first = 0; first < r.shape.vocab; first += MOST_TOKENS) {
            struct reel_sampling s = { .size = sizeof s,
                                       .temperature = temperatures[k],
                                       .top_k = 5 };
            start(&r, &s);
            struct decode_args a = args_of(&r, MOST_TOKENS);
            for (int t = 0; t < MOST_TOKENS; t++) {
                float *l = r.host_table + (size_t)t * (size_t)r.shape.vocab;
                for (int i = 0; i < r.shape.vocab; i++)
                    l[i] = i == first + t ? 1.0f : uniform() * 0.9f;
            }
            launch(&r, &a);
            assert_int_equal(r.mailbox->n_made, MOST_TOKENS);
            for (int t = 0; t < MOST_TOKENS; t++)
                assert_int_equal((int)(r.mailbox->ids[t] & 0xffffffffu), first + t);
        }
    rig_close(&r);
}

static void a_host_that_falls_behind_stops_the_launch(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, (struct shape){ 4, 4, 1000 });
    struct reel_sampling s = { .size = sizeof s };
    start(&r, &s);
    struct decode_args a = args_of(&r, 10);
    a.lead = 2, a.n_given = 2;
    launch(&r, &a);
    assert_int_equal(r.mailbox->end, DECODE_STOPPED);
    assert_int_equal(r.mailbox->n_made,
                     4); /* with 3 not taken, 1 more than `lead`, the fourth is the last */
    assert_int_equal(r.mailbox->n_evaluated, 5);
    rig_close(&r);
}

/* Peaked logits and the usual settings, on as many SMs as the bar needs to be worth something. */
static void usual_settings_need_no_host(void **state) {
    (void)state;
    static const struct {
        int top_k;
        float top_p, min_p;
    } usual[] = {
        { 50, 0.9f, 0 }, { 20, 0.95f, 0 }, { 64, 0, 0 }, { 0, 0.95f, 0 }, { 0, 0.9f, 0.05f }
    };
    struct rig r;
    rig_open(&r, (struct shape){ 80, 8, 9000 });
    for (int k = 0; k < 5; k++) {
        struct reel_sampling s = { .size = sizeof s, .temperature = 0.8f, .seed = (uint64_t)k };
        s.top_k = usual[k].top_k, s.top_p = usual[k].top_p, s.min_p = usual[k].min_p;
        start(&r, &s);
        struct decode_args a = args_of(&r, 2);
        for (int i = 0; i < 2 * r.shape.vocab; i++)
            r.host_table[i] = below(r.shape.vocab) < 40 ? 12 + 3 * normal() : normal();
        launch(&r, &a);
        const struct outcome want = expected(&r, &a);
        assert_true(check(&r, &want));
    }
    rig_close(&r);
}

/* Thousands of ids are kept: the end is searched for. */
static void a_flat_top_p_needs_no_host(void **state) {
    (void)state;
    static const struct shape shapes[] = { { 80, 8, 9000 }, { 4, 4, 1000 }, { 3, 4, 5000 } };
    static const float scales[] = { 1, 5, 0.05f, 2 };
    const struct share share = share_of("flat-top-p", 3);
    for (int i = 0; i < 3; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, shapes[i]);
        for (int k = 0; k < (i == 0 ? 2 : 60); k++) {
            struct reel_sampling s = { .size = sizeof s, .seed = random32() };
            const bool few = k % 2 && i > 0; /* so that one kept too many soon shows */
            s.temperature = 0.5f + 1.5f * uniform();
            s.top_p = few ? 0.1f + 0.1f * uniform() : 0.95f;
            s.min_p = k % 5 ? 0 : 1e-4f;
            start(&r, &s);
            struct decode_args a = args_of(&r, 2);
            for (int j = 0; j < 2 * r.shape.vocab; j++)
                r.host_table[j] = (few ? 0.05f : scales[k / 2 % 4]) * normal() - 3;
            launch(&r, &a);
            const struct outcome want = expected(&r, &a);
            assert_true(check(&r, &want));
        }
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_the_hosts),
        cmocka_unit_test(every_slot_can_win),
        cmocka_unit_test(a_host_that_falls_behind_stops_the_launch),
        cmocka_unit_test(usual_settings_need_no_host),
        cmocka_unit_test(a_flat_top_p_needs_no_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
