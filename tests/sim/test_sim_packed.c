/* Packed texts on the fake GPU: for each text what the CPU reference makes of it alone, however
 * many are packed into a pass and wherever they begin; the same bits whatever stands beside it and
 * under every schedule; passes, long texts, cancelling and failures. */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "runtime/model_handle.h"
#include "support/mutations.h"
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

enum { MOST_TEXTS = 400, MOST_IDS = 1200, PASS = 128, CONTEXT = 256 };

struct setting {
    const char *model, *options;
    int n_sms, compute;
};

/* wgmma's way, mma's way with biases, cp.async; heads of 64 and 128, one to three q heads a KV
 * head. */
static const struct setting settings[] = {
    { "q3-p", "n_groups=2,group_sms=2,warps=4", 4, 90 },
    { "qw2-p", "n_groups=1,group_sms=3,warps=4", 5, 100 },
    { "ll-a", "n_groups=1,group_sms=3,warps=4", 3, 86 },
    { "q3-c", "n_groups=4,group_sms=2,warps=8", 8, 90 },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

struct rig {
    const struct setting *setting;
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    int hidden, n_layers;
    double worst, squares; /* of the differences from the reference, over n_checked texts */
    int n_checked;
};

/* Texts one behind the other. */
struct texts {
    int32_t ids[MOST_IDS];
    int lengths[MOST_TEXTS];
    int n, n_ids;
};

static void require(const struct rig *r, enum reel_status status) {
    if (status != REEL_OK) fail_msg("%s\n%s", r->err.text, r->gpu.cuda->report);
}

static void seed_set(struct rig *r, int seed) {
    r->gpu.cuda->settings.in_order = seed < 0;
    r->gpu.cuda->settings.seed = (uint64_t)seed, r->gpu.cuda->n_launches = 0;
}

static void rig_load(struct rig *r, const char *more) {
    char options[200];
    snprintf(options, sizeof options, "%s,prefill_tokens=%d,prefill_from=1,launch_tokens=%d%s",
             r->setting->options, PASS, PASS, more);
    require(r, sim_model_load(&r->m, options, &r->err));
}

static void rig_start(struct rig *r, const struct setting *s) {
    *r = (struct rig){ .setting = s, .gpu = sim_gpu_controls() };
    r->gpu.cuda->gpu.n_sms = s->n_sms, r->gpu.cuda->gpu.compute = s->compute;
    sim_model_open(&r->m, s->model);
    r->n_layers = r->m.cpu->model.config.n_layers;
    r->hidden = r->m.cpu->model.config.hidden;
    seed_set(r, -1);
}

static void rig_open(struct rig *r, const struct setting *s, const char *more) {
    rig_start(r, s);
    rig_load(r, more);
}

static void rig_close(struct rig *r) {
    const struct fake_live *l = &r->gpu.cuda->live, *k = &r->gpu.cuda->leaked;
    sim_model_close(&r->m);
    assert_int_equal(l->contexts + l->streams + l->modules + l->allocations + l->host_allocations,
                     0);
    assert_int_equal(k->streams + k->modules + k->allocations + k->host_allocations, 0);
}

static struct backend_state *state_open(struct rig *r, int room) {
    struct backend_state *s = NULL;
    require(r, cuda_state_open(&s, r->m.gpu->backend, room, &r->err));
    return s;
}

/* ---- texts ---- */

static void text_add(struct texts *t, int length, int seed) {
    assert_true(t->n < MOST_TEXTS && t->n_ids + length <= MOST_IDS);
    for (int i = 0; i < length; i++)
        t->ids[t->n_ids++] = (seed * 53 + i * 37 + i * i % 11 + 11) % 300;
    t->lengths[t->n++] = length;
}

static struct texts *texts_of(const int *lengths, int n) {
    struct texts *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < n; i++)
        text_add(t, lengths[i], i);
    return t;
}

static enum reel_status embed(struct rig *r, struct backend_state *s, const struct texts *t,
                              float *out) {
    const struct backend_embed e = {
        .ids = t->ids, .lengths = t->lengths, .n_texts = t->n, .out = out
    };
    return cuda_backend.embed(s, &e, &r->err);
}

static float *vectors_alloc(const struct rig *r, const struct texts *t) {
    float *out = malloc((size_t)t->n * (size_t)r->hidden * sizeof *out);
    assert_non_null(out);
    memset(out, 0xff, (size_t)t->n * (size_t)r->hidden * sizeof *out);
    return out;
}

/* Each text in a session that holds nothing else. */
static float *each_alone(struct rig *r, struct reel_model *model, const struct texts *t) {
    const struct reel_session_options o = { .size = sizeof o, .max_context = CONTEXT };
    struct reel_session *session = NULL;
    float *out = vectors_alloc(r, t);
    require(r, reel_session_open(&session, model, &o, &r->err));
    for (int i = 0, at = 0; i < t->n; at += t->lengths[i++]) {
        const struct reel_eval eval = { .size = sizeof eval,
                                        .n = t->lengths[i],
                                        .ids = t->ids + at,
                                        .output = REEL_OUTPUT_LAST_HIDDEN,
                                        .out = out + (size_t)i * (size_t)r->hidden,
                                        .out_floats = (size_t)r->hidden };
        require(r, reel_session_truncate(session, 0, &r->err));
        require(r, reel_session_eval(session, &eval, &r->err));
    }
    reel_session_close(session);
    return out;
}

/* Every vector as far from the reference's as roundings make it (support/rounding.h). */
static void check_vectors(struct rig *r, const struct texts *t, const float *made,
                          const float *want) {
    for (int i = 0; i < t->n; i++) {
        const size_t at = (size_t)i * (size_t)r->hidden;
        const double off = relative_difference(made + at, want + at, r->hidden);
        if (!(off <= r->worst)) r->worst = off;
        r->squares += off * off, r->n_checked++;
        if (!(off <= rounding_allowed_once(r->n_layers, r->hidden)))
            fail_msg("%s %s: text %d of %d, %d tokens, is off by %.4f", r->setting->model,
                     r->setting->options, i, t->n, t->lengths[i], off);
    }
}

static void check_average(const struct rig *r) {
    const double average = sqrt(r->squares / r->n_checked);
    printf("%s %s: %d texts, off by %.4f at most (%.4f allowed), %.4f RMS (%.4f)\n",
           r->setting->model, r->setting->options, r->n_checked, r->worst,
           rounding_allowed_once(r->n_layers, r->hidden), average, rounding_allowed(r->n_layers));
    assert_true(average <= rounding_allowed(r->n_layers));
}

static void check_pack(struct rig *r, struct backend_state *s, const int *lengths, int n) {
    struct texts *t = texts_of(lengths, n);
    float *want = each_alone(r, r->m.cpu, t), *made = vectors_alloc(r, t);
    require(r, embed(r, s, t, made));
    check_vectors(r, t, made, want);
    free(want), free(made), free(t);
}

/* ---- what comes out ---- */

/* Borders at the edges of pieces, units and items, many texts in one piece, one that fills a pass,
 * more passes than slots. */
static const int mixed[] = { 63, 40, 1,  1,  1,  2,  3,   5,  8,   13, 16,  17, 31,
                             33, 1,  48, 64, 65, 7,  127, 1,  128, 2,  63,  47, 40,
                             23, 9,  1,  1,  4,  32, 32,  16, 16,  16, 100, 28 };
enum { N_MIXED = (int)(sizeof mixed / sizeof *mixed) };

static void packed_texts_match_the_reference(void **state) {
    (void)state;
    for (int i = 0; i < (SANITIZED ? 1 : N_SETTINGS); i++) {
        struct rig r;
        rig_open(&r, &settings[i], "");
        struct backend_state *s = state_open(&r, CONTEXT);
        check_pack(&r, s, mixed, SANITIZED ? 8 : i == 0 || getenv("REEL_SOAK") ? N_MIXED : 14);
        check_average(&r);
        cuda_state_close(s);
        rig_close(&r);
    }
}

/* A hundred texts of one token, so that a piece holds sixteen; and of all lengths around a unit. */
static void tiny_texts_match_the_reference(void **state) {
    (void)state;
    enum { N = 100 };
    struct rig r;
    int lengths[N];
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    for (int i = 0; i < N; i++)
        lengths[i] = 1;
    check_pack(&r, s, lengths, N);
    for (int i = 0; i < N; i++)
        lengths[i] = 1 + i * 7 % 5;
    check_pack(&r, s, lengths, N);
    check_average(&r);
    cuda_state_close(s);
    rig_close(&r);
}

/* A pass that holds one text is what eval makes of it, to the bit: the products are cut alike. */
static void a_text_alone_has_the_bits_of_its_last_hidden_state(void **state) {
    (void)state;
    static const int lengths[] = { 1, 7, 24, 25, 64, 65, 128 };
    struct rig r;
    rig_open(&r, &settings[0], ",short_positions=0");
    struct backend_state *s = state_open(&r, CONTEXT);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct texts *t = texts_of(&lengths[i], 1);
        float *want = each_alone(&r, r.m.gpu, t), *made = vectors_alloc(&r, t);
        require(&r, embed(&r, s, t, made));
        assert_memory_equal(made, want, (size_t)r.hidden * sizeof *made);
        free(want), free(made), free(t);
    }
    cuda_state_close(s);
    rig_close(&r);
}

/* A text's bits do not depend on what other texts say. */
static void texts_are_blind_to_each_other(void **state) {
    (void)state;
    static const int lengths[] = { 5, 37, 3, 16, 20, 1, 40 };
    enum { N = (int)(sizeof lengths / sizeof *lengths) };
    struct rig r;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    struct texts *t = texts_of(lengths, N);
    float *right = vectors_alloc(&r, t), *made = vectors_alloc(&r, t);
    const size_t row = (size_t)r.hidden;
    require(&r, embed(&r, s, t, right));
    for (int changed = 0, at = 0; changed < N; at += lengths[changed++]) {
        for (int i = 0; i < lengths[changed]; i++)
            t->ids[at + i] = (t->ids[at + i] + 100) % 300;
        require(&r, embed(&r, s, t, made));
        for (int i = 0; i < N; i++) {
            const bool same =
                memcmp(made + (size_t)i * row, right + (size_t)i * row, row * sizeof *made) == 0;
            if (same != (i != changed)) fail_msg("text %d, where %d has changed", i, changed);
        }
        for (int i = 0; i < lengths[changed]; i++)
            t->ids[at + i] = (t->ids[at + i] + 200) % 300;
    }
    free(right), free(made), free(t);
    cuda_state_close(s);
    rig_close(&r);
}

static void every_schedule_gives_the_same_bits(void **state) {
    (void)state;
    static const int lengths[] = { 9, 30, 1, 50, 38, 64, 2 };
    struct rig r;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    struct texts *t = texts_of(lengths, (int)(sizeof lengths / sizeof *lengths));
    float *right = vectors_alloc(&r, t), *made = vectors_alloc(&r, t);
    require(&r, embed(&r, s, t, right));
    for (int seed = 0; seed < (getenv("REEL_SOAK") ? 400 : SANITIZED ? 1 : 2); seed++) {
        seed_set(&r, seed);
        require(&r, embed(&r, s, t, made));
        assert_memory_equal(made, right, (size_t)t->n * (size_t)r.hidden * sizeof *made);
    }
    free(right), free(made), free(t);
    cuda_state_close(s);
    rig_close(&r);
}

/* ---- passes ---- */

/* One of 200 tokens, which no pass holds, between others; a session that holds 40 positions. */
static void texts_that_no_pass_holds_are_read_alone(void **state) {
    (void)state;
    static const int lengths[] = { 3, 20, 200, 5, 129, 130, 60, 1 };
    static const int few[] = { 40, 1, 39, 20, 21, 40, 3 };
    struct rig r;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    check_pack(&r, s, lengths, (int)(sizeof lengths / sizeof *lengths));
    cuda_state_close(s);
    s = state_open(&r, 40);
    check_pack(&r, s, few, (int)(sizeof few / sizeof *few));
    check_average(&r);
    const int one = 41;
    struct texts *t = texts_of(&one, 1);
    float *made = vectors_alloc(&r, t);
    assert_int_equal(embed(&r, s, t, made), REEL_E_CONTEXT);
    t->n = 0;
    require(&r, embed(&r, s, t, made));
    free(made), free(t);
    cuda_state_close(s);
    rig_close(&r);
}

/* The steps of all layers, the vectors, and the first and the last launch: for each pass. */
static void a_pass_is_one_queue_of_launches(void **state) {
    (void)state;
    static const int lengths[] = { 30, 40, 50, 8, 120, 1 }; /* two passes, each up to the edge */
    struct rig r;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    struct texts *t = texts_of(lengths, 6);
    float *made = vectors_alloc(&r, t);
    r.gpu.cuda->n_launches = 0;
    require(&r, embed(&r, s, t, made));
    assert_int_equal(r.gpu.cuda->n_launches, 2 * (6 * r.n_layers + 3));
    free(made), free(t);
    cuda_state_close(s);
    rig_close(&r);
}

/* Nothing of the texts is left: the state reads a prompt as a new one does. */
static void the_state_holds_nothing_afterwards(void **state) {
    (void)state;
    enum { N = 6 };
    struct rig r;
    int32_t ids[N];
    float *logits[2];
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    for (int i = 0; i < N; i++)
        ids[i] = 7 * i + 3;
    for (int i = 0; i < 2; i++) {
        struct backend_eval eval = { .n = N, .ids = ids, .output = REEL_OUTPUT_LAST_LOGITS };
        logits[i] = eval.out = malloc((size_t)r.m.vocab * sizeof(float));
        require(&r, cuda_backend.eval(s, &eval, &r.err));
        check_pack(&r, s, mixed, 3);
        eval.position = 1;
        assert_int_equal(cuda_backend.eval(s, &eval, &r.err), REEL_E_STATE);
    }
    assert_memory_equal(logits[0], logits[1], (size_t)r.m.vocab * sizeof(float));
    free(logits[0]), free(logits[1]);
    cuda_state_close(s);
    rig_close(&r);
}

static void other_models_are_left_to_others(void **state) {
    (void)state;
    static const struct setting hybrid = { "q35-p", "warps=4", 4, 90 };
    const struct {
        const struct setting *setting;
        const char *more;
    } cases[] = { { &hybrid, "" }, { &settings[0], ",prefill_from=0" } };
    const int one = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        rig_open(&r, cases[i].setting, cases[i].more);
        struct backend_state *s = state_open(&r, CONTEXT);
        struct texts *t = texts_of(&one, 1);
        float *made = vectors_alloc(&r, t);
        assert_int_equal(embed(&r, s, t, made), REEL_E_UNSUPPORTED);
        free(made), free(t);
        cuda_state_close(s);
        rig_close(&r);
    }
}

static uint64_t pool_bytes(const struct rig *r) {
    const struct backend *b = r->m.gpu->backend;
    return (uint64_t)b->pool.n_pieces * b->plan.kv_page_bytes;
}

/* What the memory plan says of packed texts is taken with the first of them, once, and pages of K
 * and V for the positions that they write. */
static void memory_is_taken_with_the_first_texts(void **state) {
    (void)state;
    struct rig r;
    struct gpu_memory_plan said;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    cuda_memory_plan(&said, r.m.gpu->backend, CONTEXT);
    const struct fake_live before = r.gpu.cuda->live;
    for (int i = 0; i < 2; i++) {
        check_pack(&r, s, mixed, 5);
        const struct fake_live *now = &r.gpu.cuda->live;
        assert_true(pool_bytes(&r) > 0);
        assert_int_equal(now->bytes - before.bytes - pool_bytes(&r),
                         gpu_memory_of(&said, GPU_OF_PACKING, false));
        assert_int_equal(now->host_bytes - before.host_bytes,
                         gpu_memory_of(&said, GPU_OF_PACKING, true));
        assert_int_equal(now->modules - before.modules, 1);
    }
    assert_true(gpu_memory_of(&said, GPU_OF_PACKING, false) > 0);
    cuda_state_close(s);
    rig_close(&r);
}

/* ---- what goes wrong ---- */

/* Notes what it is told, and wants no more from half of the tokens on. */
struct told {
    int n;
    uint64_t done, all;
};
static bool half_is_enough(void *user, const char *stage, uint64_t done, uint64_t all) {
    struct told *told = user;
    assert_string_equal(stage, "embedding");
    assert_true(done >= told->done && done <= all);
    *told = (struct told){ told->n + 1, done, all };
    return 2 * done < all;
}

static void texts_can_be_cancelled_between_passes(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, &settings[0], "");
    struct backend_state *s = state_open(&r, CONTEXT);
    struct texts *t = texts_of(mixed, N_MIXED);
    float *made = vectors_alloc(&r, t);
    atomic_bool cancel = true;
    const struct backend_embed e = {
        .ids = t->ids, .lengths = t->lengths, .n_texts = t->n, .out = made, .cancel = &cancel
    };
    struct told told = { 0 };
    struct backend_embed half = e;
    half.cancel = NULL, half.progress = half_is_enough, half.progress_user = &told;
    assert_int_equal(cuda_backend.embed(s, &e, &r.err), REEL_E_CANCELLED);
    assert_string_equal(r.err.text, "cancelled after 0 of 38 texts");
    assert_int_equal(cuda_backend.embed(s, &half, &r.err), REEL_E_CANCELLED);
    assert_int_equal(told.all, t->n_ids);
    assert_true(told.n > 3 && 2 * told.done >= told.all && told.done < told.all);
    float *want = each_alone(&r, r.m.cpu, t);
    t->n = 1; /* what was done by then is there */
    check_vectors(&r, t, made, want);
    free(want);
    free(made), free(t);
    check_pack(&r, s, mixed, 3);
    cuda_state_close(s);
    rig_close(&r);
}

/* The first call on a model and a later one; the upload, the first launch, ones amid a pass. */
static void calls_of_the_driver_may_fail(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int n;
        bool later;
    } calls[] = {
        { "cuModuleLoadData", 1, false },    { "cuModuleGetFunction", 2, false },
        { "cuMemAlloc_v2", 1, false },       { "cuMemHostAlloc", 1, false },
        { "cuMemcpyHtoDAsync_v2", 1, true }, { "cuMemcpyHtoDAsync_v2", 2, true },
        { "cuLaunchKernel", 1, true },       { "cuLaunchKernelEx", 5, true },
        { "cuLaunchKernelEx", 20, true },
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct rig r;
        rig_open(&r, &settings[0], "");
        struct backend_state *s = state_open(&r, CONTEXT);
        struct texts *t = texts_of(&mixed[2], 14); /* two passes */
        float *made = vectors_alloc(&r, t);
        if (calls[i].later) check_pack(&r, s, mixed, 3);
        r.gpu.cuda->only = calls[i].name;
        r.gpu.cuda->fail_call = calls[i].n, r.gpu.cuda->fail_with = 2;
        const enum reel_status status = embed(&r, s, t, made);
        assert_int_equal(r.gpu.cuda->fail_call, 0);
        r.gpu.cuda->only = NULL;
        assert_int_equal(status, REEL_E_MEMORY);
        check_pack(&r, s, mixed, 8);
        free(made), free(t);
        cuda_state_close(s);
        rig_close(&r);
    }
}

/* A producer of packed attention that brings nothing: each pass in the queue gives up, the error
 * names the wait, and the session works on. */
static void a_kernel_that_gives_up_is_named(void **state) {
    (void)state;
    static const struct fake_patch none = { .file = "packed.cu",
                                            .from = "            attention_produce(&r, layer);\n",
                                            .to = "" };
    struct rig r;
    rig_open(&r, &settings[0], ",patience=2000");
    struct backend_state *s = state_open(&r, CONTEXT);
    struct texts *t = texts_of(mixed, 20);
    float *made = vectors_alloc(&r, t);
    struct sim_settings *now = &r.gpu.cuda->settings;
    const struct sim_settings before = *now;
    now->idle_limit = 0, now->host_wait_ms = 0;
    r.gpu.nvrtc->patches = &none, r.gpu.nvrtc->n_patches = 1;
    assert_int_equal(embed(&r, s, t, made), REEL_E_DEVICE);
    r.gpu.nvrtc->n_patches = 0;
    if (!strstr(r.err.text, "the prefill kernel gave up waiting for a stage of activations"))
        fail_msg("%s", r.err.text);
    *now = before;
    r.m.gpu->backend->tuning.patience = ~0u >> 1;
    float logits[1024];
    const int32_t ids[3] = { 1, 2, 3 };
    const struct backend_eval eval = {
        .n = 3, .ids = ids, .output = REEL_OUTPUT_LAST_LOGITS, .out = logits
    };
    assert_true(r.m.vocab <= 1024);
    require(&r, cuda_backend.eval(s, &eval, &r.err));
    free(made), free(t);
    cuda_state_close(s);
    rig_close(&r);
}

/* ---- mutations ---- */

static struct rig mutated;
static struct texts *mutated_texts;
static float *mutated_right;

/* Texts of all kinds, in some passes and in order; then under schedules. */
static bool is_seen(const struct mutation *m) {
    struct rig *r = &mutated;
    const size_t n_bytes = (size_t)mutated_texts->n * (size_t)r->hidden * sizeof(float);
    float *made = vectors_alloc(r, mutated_texts);
    bool seen = false;
    rig_load(r, "");
    struct backend_state *s = state_open(r, CONTEXT);
    mutation_apply(m, r->gpu.nvrtc); /* what is compiled from here on: packed.cu */
    for (int seed = -1; seed < 2 && !seen; seed++) {
        seed_set(r, seed);
        seen = embed(r, s, mutated_texts, made) != REEL_OK ||
               memcmp(made, mutated_right, n_bytes) != 0;
    }
    r->gpu.nvrtc->n_patches = 0;
    printf("%s: %s%s\n", m->what, seen ? "seen" : "not seen",
           seen && strstr(r->err.text, "NVRTC") ? r->err.text : "");
    if (strstr(r->err.text, "NVRTC")) fail_msg("%s", r->err.text);
    cuda_state_close(s);
    sim_model_unload(&r->m);
    free(made);
    return seen;
}

static void mutations_are_seen(void **state) {
    (void)state;
    static const struct mutation none = { .what = "nothing" };
    /* A pass a row. An item of tokens 64 to 95 begins with the second text, at slot 16, and its
     * first unit of 64 positions ends at slot 80: the third text begins a slot before, and amid a
     * warp. */
    static const int few[] = { 20, 59, 20, 29, 20, 63, 20, 25, 16, 67, 20, 25, 16, 17, 31 };
    rig_start(&mutated, &settings[0]);
    mutated.gpu.cuda->settings.idle_limit = 300;
    mutated_texts = texts_of(few, (int)(sizeof few / sizeof *few));
    for (int i = 0; i < 40; i++) /* a pass of more texts than the GPU has warps */
        text_add(mutated_texts, 1, i);
    mutated_right = vectors_alloc(&mutated, mutated_texts);
    rig_load(&mutated, "");
    struct backend_state *s = state_open(&mutated, CONTEXT);
    require(&mutated, embed(&mutated, s, mutated_texts, mutated_right));
    cuda_state_close(s);
    sim_model_unload(&mutated.m);
    assert_false(is_seen(&none));
    mutations_try(&packed_mutations, is_seen);
    free(mutated_right), free(mutated_texts);
    rig_close(&mutated);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(packed_texts_match_the_reference),
        in_turn(tiny_texts_match_the_reference),
        in_turn(a_text_alone_has_the_bits_of_its_last_hidden_state),
        in_turn(texts_are_blind_to_each_other),
        in_turn(every_schedule_gives_the_same_bits),
        in_turn(texts_that_no_pass_holds_are_read_alone),
        in_turn(a_pass_is_one_queue_of_launches),
        in_turn(the_state_holds_nothing_afterwards),
        in_turn(other_models_are_left_to_others),
        in_turn(memory_is_taken_with_the_first_texts),
        in_turn(texts_can_be_cancelled_between_passes),
        in_turn(calls_of_the_driver_may_fail),
        in_turn(a_kernel_that_gives_up_is_named),
        cmocka_unit_test(mutations_are_seen),
    };
    SHARE_TESTS("packed", 5, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
