/* The device code of a Gated DeltaNet, mix and delta, under the simulator against the CPU
 * reference: several tokens in one launch and over two, more units of value columns than SMs and
 * fewer, any schedule the same bits, and orderings taken out are seen. */
#include "cpu/reference.h"
#include "kernels/args.h"
#include "kernels/delta_layout.h"
#include "model/dtype.h"
#include "plan/plan_layout.h"
#include "support/plan_defines.h"
#include "support/shares.h"
#include "support/sim_gpu.h"
#include "support/wound.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Layers 0 and 2 of three are DeltaNets. */
enum { LAYERS = 3, DELTAS = 2, TAPS = 4 };

struct shape {
    const char *name;
    int groups, group_sms, warps;
    int hidden;
    int key_heads, value_heads, key_dim, value_dim, unit; /* heads of a group; columns of a unit */
    int copy;
    int registers; /* of a consumer: how early the state is asked for */
};

static const struct shape shapes[] = {
    { "one head a group, one unit for two SMs (q35-a)", 2, 2, 4, 64, 1, 1, 16, 16, 16, 2, 224 },
    { "twelve units of 8 columns for five SMs (q35-b)", 1, 5, 4, 64, 2, 4, 16, 24, 8, 2, 80 },
    { "heads of 128, sixteen units for sixteen SMs", 1, 16, 8, 64, 1, 2, 128, 128, 16, 2, 224 },
    { "a warp a head; fewer units than SMs; cp.async", 2, 5, 4, 128, 2, 4, 32, 16, 16, 1, 224 },
    { "a and b of six heads on one SM each", 2, 1, 4, 96, 3, 6, 24, 16, 16, 2, 80 },
    { "keys of 256 and of three value heads each", 1, 3, 6, 80, 1, 3, 256, 16, 8, 0, 80 },
};
enum { SHAPES = (int)(sizeof shapes / sizeof *shapes) };

/* ---- sizes of the plan ---- */

struct sizes {
    int sms;
    int key, value, rows; /* of a group: q rows, v rows, all of mix */
    int channels;         /* of the model */
    size_t sm_bytes;      /* of a SM's tape: mix of all DeltaNets */
};

static struct sizes sizes_of(const struct plan *p) {
    const struct tape_shape *t = &p->tape;
    return (struct sizes){ .sms = t->n_sms,
                           .key = t->group_key,
                           .value = t->group_value,
                           .rows = 2 * (t->group_key + t->group_value),
                           .channels = t->n_groups * (2 * t->group_key + t->group_value),
                           .sm_bytes = (size_t)DELTAS * t->segment[TAPE_MIX].bytes };
}

/* ---- a session: its weights, its tokens, what the reference makes of them ---- */

struct rig {
    struct shape shape;
    struct plan plan;
    struct sizes z;
    struct delta_layout layout;
    struct sim_gpu gpu;
    int n; /* tokens */

    uint16_t *rows;                    /* bf16 [layer][q, k, v, z rows of the model][hidden] */
    uint16_t *gates;                   /* as the kernel has them */
    float *constants, *norms, *inputs; /* likewise; inputs f32 [token][layer][hidden] */
    float *want;                       /* [token][layer][value columns of the model] */
    float *state, *window;             /* as a session begins */
    float *state_end, *window_end;

    unsigned long long d_tape, d_gates, d_constants, d_norms, d_inputs, d_state, d_window, d_words,
        d_out, d_abort;
    struct decode_mailbox *mailbox; /* or NULL: nobody gives up */
    unsigned patience;
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static float normal(void) { return uniform() + uniform() + uniform(); }

static float *floats(size_t n, float size) {
    float *p = malloc(n * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = size * normal();
    return p;
}
static uint16_t *halves(size_t n, float size) {
    uint16_t *p = malloc(n * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = bf16_from_f32(size * normal());
    return p;
}

static size_t state_floats(const struct rig *r) {
    return (size_t)delta_state(&r->layout, DELTAS, 0, 0);
}
static size_t window_floats(const struct rig *r) {
    return (size_t)delta_window(&r->layout, DELTAS, 0);
}
static size_t input_at(const struct rig *r, int t, int nth) {
    return (size_t)(t * DELTAS + nth) * (size_t)r->shape.hidden;
}
static size_t want_at(const struct rig *r, int t, int nth) {
    return (size_t)((t * DELTAS + nth) * r->shape.groups * r->z.value);
}

static void product(const uint16_t *rows, int n, const float *x, int hidden, float *y) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < hidden; j++)
            sum += (double)bf16_to_f32(rows[(size_t)i * (size_t)hidden + (size_t)j]) * (double)x[j];
        y[i] = (float)sum;
    }
}

/* Channels of one position through the convolution, which moves the window on. */
static void convolve(struct rig *r, int nth, float *u) {
    float taps[TAPS], window[TAPS - 1];
    for (int c = 0; c < r->z.channels; c++) {
        float *past = r->window_end + delta_window(&r->layout, nth, c), x = u[c];
        const float *from = r->constants + (size_t)nth * (size_t)delta_constants(&r->layout) +
                            delta_taps_offset(&r->layout) + (size_t)c * TAPS;
        memcpy(taps, from, sizeof taps), memcpy(window, past, sizeof window);
        cpu_convolve(taps, window, &x, TAPS, 1, &x, REF_EXACT);
        memmove(past, past + 1, (TAPS - 2) * sizeof *past);
        past[TAPS - 2] = u[c];
        u[c] = x;
    }
}

/* One value head: S is [key][value] for the reference, [value][key] in the session. */
static void step(struct rig *r, int nth, int head, const float *q, const float *k, const float *v,
                 float log_decay, float beta, float *out) {
    const int key = r->shape.key_dim, value = r->shape.value_dim;
    const struct delta_shape shape = { key, value, (size_t)value };
    float *s = r->state_end + delta_state(&r->layout, nth, head, 0);
    float *turned = malloc((size_t)(key * value) * sizeof *turned);
    for (int i = 0; i < key * value; i++)
        turned[i % key * value + i / key] = s[i];
    cpu_delta_step(&shape, turned, q, k, v, log_decay, beta, out, REF_EXACT);
    for (int i = 0; i < key * value; i++)
        s[i] = turned[i % key * value + i / key];
    free(turned);
}

static void reference_layer(struct rig *r, int t, int nth) {
    const struct delta_layout *l = &r->layout;
    const int values = l->value_heads * l->value_dim, keys = l->key_heads * l->key_dim;
    const int all = r->z.channels + values, hidden = l->hidden;
    const float *constants = r->constants + (size_t)nth * (size_t)delta_constants(l);
    float *x = malloc((size_t)hidden * sizeof *x), *u = malloc((size_t)all * sizeof *u), a[32],
          b[32], g[32], beta[32];
    float rate[32];
    cpu_rms_norm(r->inputs + input_at(r, t, nth), r->norms + (nth == 0 ? 0 : 2) * hidden, hidden,
                 1e-6f, x, REF_EXACT);
    product(r->rows + (size_t)(nth * all) * (size_t)hidden, all, x, hidden, u);
    convolve(r, nth, u);
    for (int i = 0; i < l->value_heads; i++) {
        product(r->gates + delta_gate(l, nth, i, 0), 1, x, hidden, &a[i]);
        product(r->gates + delta_gate(l, nth, i, 1), 1, x, hidden, &b[i]);
        rate[i] = -constants[i];
    }
    cpu_delta_gates(b, a, rate, constants + delta_bias_offset(l), l->value_heads, beta, g,
                    REF_EXACT);
    for (int i = 0; i < 2 * l->key_heads; i++)
        cpu_l2_norm(u + i * l->key_dim, l->key_dim,
                    i < l->key_heads ? 1.0f / sqrtf((float)l->key_dim) : 1.0f);
    for (int i = 0; i < l->value_heads; i++) {
        const int key = i / (l->value_heads / l->key_heads) * l->key_dim;
        float *out = r->want + want_at(r, t, nth) + i * l->value_dim;
        step(r, nth, i, u + key, u + keys + key, u + 2 * keys + i * l->value_dim, g[i], beta[i],
             out);
        cpu_gated_norm(out, constants + delta_norm_offset(l), u + r->z.channels + i * l->value_dim,
                       l->value_dim, 1e-6f, out, REF_EXACT);
    }
    free(x), free(u);
}

/* ---- the tapes ---- */

/* Row `local` of a group's mix, as the model counts its q, k, v, z rows. */
static int model_row(const struct rig *r, int group, int local) {
    const int key = r->z.key, value = r->z.value, keys = r->shape.groups * key,
              values = r->shape.groups * value;
    if (local < 2 * key) return local / key * keys + group * key + local % key;
    const int i = local - 2 * key;
    return 2 * keys + i / value * values + group * value + i % value;
}

static unsigned char *make_tape(const struct rig *r) {
    const struct sizes *z = &r->z;
    const int hidden = r->shape.hidden, all = z->channels + r->shape.groups * z->value;
    const struct tape_shape *t = &r->plan.tape;
    const struct tape_segment *g = &t->segment[TAPE_MIX];
    unsigned char *tape = calloc((size_t)z->sms, z->sm_bytes);
    assert_non_null(tape);
    for (int nth = 0; nth < DELTAS; nth++)
        for (int group = 0; group < r->shape.groups; group++)
            for (int i = 0; i < z->rows; i++) {
                const uint16_t *from =
                    r->rows + (size_t)(nth * all + model_row(r, group, i)) * (size_t)hidden;
                const int local = i % g->rows, sm = group * r->shape.group_sms + i / g->rows;
                unsigned char *to =
                    tape + (size_t)sm * z->sm_bytes + (size_t)nth * (z->sm_bytes / DELTAS);
                for (int k = 0; k < hidden; k += tile_grain(g->format))
                    wound_grain(to + tape_tile(t, g, local / TILE_ROWS, k / TILE_K), g->format,
                                local, k, from + k, hidden - k);
            }
    return tape;
}

/* ---- compiling and launching ---- */

/* A model of the shape's heads in its groups. It attends in layer 1, since the planner asks for a
 * layer that does; the test's kernel leaves that layer out. The shape says what the planner would
 * choose for itself: units, registers, copies. The ring is so small that it is filled again. */
static struct plan_defines defines_of(const struct shape *s) {
    const struct model_config config = {
        .family = MODEL_QWEN35,
        .hidden = s->hidden,
        .n_layers = LAYERS,
        .n_heads = s->groups,
        .n_kv_heads = s->groups,
        .head_dim = 32,
        .rotary_dim = 32,
        .intermediate = 32 * s->groups,
        .vocab = 16,
        .max_context = 4096,
        .rms_eps = 1e-6f,
        .tied = true,
        .layer_kinds = { LAYER_DELTA, LAYER_ATTENTION, LAYER_DELTA },
        .delta = { .key_heads = s->groups * s->key_heads,
                   .value_heads = s->groups * s->value_heads,
                   .key_dim = s->key_dim,
                   .value_dim = s->value_dim,
                   .conv_width = TAPS },
    };
    const struct plan_options options = { .n_groups = s->groups,
                                          .group_sms = s->group_sms,
                                          .warps = s->warps };
    const int slot_tiles = 2;
    const struct plan_override overrides[] = {
        { "P_SLOT_TILES", slot_tiles },
        { "P_SLOT_BYTES", s->warps * slot_tiles * (int)tile_bytes(TILE_BF16) },
        { "P_RING_SLOTS", 2 },
        { "P_PRELOAD_TILES", 4 },
        { "P_DELTA_UNIT", s->unit },
        { "P_DELTA_UNITS", s->value_heads * s->value_dim / s->unit },
        { "P_REGISTERS_CONSUMER", s->registers },
        { "G_REGISTERS", 1 },
        { "G_COPY", s->copy }
    };
    const struct gpu_limits gpu = plan_defines_gpu(s->groups * s->group_sms);
    struct plan_defines d;
    plan_defines_make(&d, &config, &gpu, &options, overrides,
                      (int)(sizeof overrides / sizeof *overrides));
    return d;
}

static unsigned long long put(const void *from, size_t bytes) {
    const unsigned long long to = sim_gpu_alloc(bytes);
    sim_gpu_put(to, from, bytes);
    return to;
}

static void rig_open_patched(struct rig *r, const struct shape *s, int n,
                             const struct fake_patch *patches) {
    struct plan_defines d = defines_of(s);
    *r = (struct rig){
        .shape = *s, .plan = d.plan, .z = sizes_of(&d.plan), .n = n, .patience = ~0u >> 1
    };
    r->layout = plan_delta_layout(&r->plan);
    const struct delta_layout *l = &r->layout;
    const size_t all = (size_t)(r->z.channels + s->groups * r->z.value), hidden = (size_t)s->hidden;
    const size_t tokens = (size_t)(n * DELTAS);
    random_state = 1;
    r->gpu = sim_gpu_open();
    r->gpu.cuda->gpu.n_sms = r->z.sms;
    r->gpu.nvrtc->patches = patches;
    while (patches && patches[r->gpu.nvrtc->n_patches].file)
        r->gpu.nvrtc->n_patches++;
    assert_true(r->plan.exchange[X_OUT_SUM].words >= 2 * (unsigned)r->z.sms); /* said() */
    sim_gpu_compile("delta.cu", d.list);
    plan_defines_release(&d);
    r->rows = halves(DELTAS * all * hidden, 1.0f / sqrtf((float)hidden));
    r->gates = halves((size_t)delta_gate(l, DELTAS, 0, 0), 1.0f / sqrtf((float)hidden));
    r->constants = floats((size_t)(DELTAS * delta_constants(l)), 0.5f);
    for (int nth = 0; nth < DELTAS; nth++)
        for (int i = 0; i < l->value_heads; i++) /* decays from nearly none to nearly all */
            r->constants[nth * delta_constants(l) + i] = -expf(2.5f * uniform());
    r->norms = floats(LAYERS * hidden, 0.3f);
    for (size_t i = 0; i < LAYERS * hidden; i++)
        r->norms[i] += 1;
    r->inputs = floats(tokens * hidden, 2.0f);
    r->want = malloc(tokens * (size_t)(s->groups * r->z.value) * sizeof(float));
    r->state = floats(state_floats(r), 0.3f), r->window = floats(window_floats(r), 1.0f);
    r->state_end = malloc(state_floats(r) * sizeof(float)),
    r->window_end = malloc(window_floats(r) * sizeof(float));
    memcpy(r->state_end, r->state, state_floats(r) * sizeof(float));
    memcpy(r->window_end, r->window, window_floats(r) * sizeof(float));
    for (int t = 0; t < n; t++)
        for (int nth = 0; nth < DELTAS; nth++)
            reference_layer(r, t, nth);
    unsigned char *tape = make_tape(r);
    r->d_tape = put(tape, (size_t)r->z.sms * r->z.sm_bytes);
    free(tape);
    r->d_gates = put(r->gates, (size_t)delta_gate(l, DELTAS, 0, 0) * 2);
    r->d_constants = put(r->constants, (size_t)(DELTAS * delta_constants(l)) * 4);
    r->d_norms = put(r->norms, LAYERS * hidden * 4);
    r->d_inputs = put(r->inputs, tokens * hidden * 4);
    r->d_state = sim_gpu_alloc(state_floats(r) * 4),
    r->d_window = sim_gpu_alloc(window_floats(r) * 4);
    r->d_words = sim_gpu_alloc(r->plan.n_words * 8), r->d_abort = sim_gpu_alloc(4);
    r->d_out = sim_gpu_alloc(tokens * (size_t)(r->z.sms * r->z.value / 2) * 4);
}
static void rig_open(struct rig *r, const struct shape *s, int n) {
    rig_open_patched(r, s, n, NULL);
}

static void rig_close(struct rig *r) {
    sim_gpu_close();
    free(r->rows), free(r->gates), free(r->constants), free(r->norms), free(r->inputs),
        free(r->want);
    free(r->state), free(r->window), free(r->state_end), free(r->window_end);
}

/* ---- running ---- */

static void session_start(struct rig *r) {
    void *zeros = calloc(r->plan.n_words, 8);
    sim_gpu_put(r->d_words, zeros, r->plan.n_words * 8);
    free(zeros);
    sim_gpu_put(r->d_state, r->state, state_floats(r) * 4);
    sim_gpu_put(r->d_window, r->window, window_floats(r) * 4);
}

/* Tokens first to first + n in one launch. Their results are behind each other in d_out. */
static bool launch(struct rig *r, int first, int n, uint32_t epoch, int seed) {
    const uint32_t none = 0;
    struct decode_args a = { .n_tokens = n,
                             .epoch = epoch,
                             .patience = r->patience,
                             .cap_layers = 1 + (seed & 1),
                             .cap_head = 2 };
    const size_t out = (size_t)(first * DELTAS * r->z.sms * r->z.value / 2) * 4;
    a.tape = (const unsigned char *)(uintptr_t)r->d_tape;
    a.words = (unsigned long long *)(uintptr_t)r->d_words;
    a.norms = (const float *)(uintptr_t)r->d_norms;
    a.embeddings = (const float *)(uintptr_t)(r->d_inputs + input_at(r, first, 0) * 4);
    a.hidden = (float *)(uintptr_t)(r->d_out + out);
    a.delta.gates = (const unsigned short *)(uintptr_t)r->d_gates;
    a.delta.constants = (const float *)(uintptr_t)r->d_constants;
    a.delta.state = (float *)(uintptr_t)r->d_state;
    a.delta.window = (float *)(uintptr_t)r->d_window;
    a.abort = (unsigned *)(uintptr_t)r->d_abort;
    a.mailbox = r->mailbox;
    void *params[] = { &a };
    sim_gpu_put(r->d_abort, &none, 4);
    r->gpu.cuda->settings.seed = (uint64_t)(seed < 0 ? 0 : seed);
    r->gpu.cuda->settings.in_order = seed < 0;
    return sim_gpu_launch("delta", (unsigned)r->z.sms, (unsigned)r->plan.threads,
                          (unsigned)r->plan.gpu.shared_bytes, params) == 0;
}

/* All that a session's tokens leave: results of every SM, state, window. */
struct result {
    uint32_t *out;
    float *state, *window;
    size_t out_words;
};
static struct result result_get(const struct rig *r) {
    struct result x = { .out_words = (size_t)(r->n * DELTAS * r->z.sms * r->z.value / 2) };
    x.out = malloc(x.out_words * 4);
    x.state = malloc(state_floats(r) * 4), x.window = malloc(window_floats(r) * 4);
    sim_gpu_get(x.out, r->d_out, x.out_words * 4);
    sim_gpu_get(x.state, r->d_state, state_floats(r) * 4);
    sim_gpu_get(x.window, r->d_window, window_floats(r) * 4);
    return x;
}
static void result_free(struct result *x) { free(x->out), free(x->state), free(x->window); }
static bool result_same(const struct rig *r, const struct result *a, const struct result *b) {
    return memcmp(a->out, b->out, a->out_words * 4) == 0 &&
           memcmp(a->state, b->state, state_floats(r) * 4) == 0 &&
           memcmp(a->window, b->window, window_floats(r) * 4) == 0;
}

static struct result run(struct rig *r, int split, int seed) {
    session_start(r);
    const bool good =
        launch(r, 0, split, 0xfffffff0u, seed) && launch(r, split, r->n - split, 0x100u, seed + 1);
    if (!good) fail_msg("%s, seed %d: %s", r->shape.name, seed, r->gpu.cuda->report);
    return result_get(r);
}

/* ---- checking ---- */

static double error_of(const float *got, const float *want, size_t n) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i];
        error += d * d, size += (double)want[i] * (double)want[i];
    }
    return sqrt(error / size);
}

static void check_out(const struct rig *r, const uint32_t *out) {
    const int value = r->z.value;
    float *row = malloc((size_t)value * sizeof *row);
    for (int i = 0; i < r->n * DELTAS * r->z.sms; i++) {
        const int sm = i % r->z.sms, at = i / r->z.sms;
        const float *want = r->want + want_at(r, at / DELTAS, at % DELTAS) +
                            (size_t)(sm / r->shape.group_sms * value);
        for (int c = 0; c < value; c++)
            row[c] = bf16_to_f32(
                (uint16_t)(out[(size_t)(i * (value / 2)) + (size_t)c / 2] >> (c % 2 * 16)));
        const double error = error_of(row, want, (size_t)value);
        if (!(error < 3e-3)) /* bf16 alone makes 1.7e-3 */
            fail_msg("%s: token %d, layer %d, SM %d: off by %.2g", r->shape.name, at / DELTAS,
                     at % DELTAS, sm, error);
    }
    free(row);
}

static void check(const struct rig *r, const struct result *x) {
    check_out(r, x->out);
    const double state = error_of(x->state, r->state_end, state_floats(r));
    const double window = error_of(x->window, r->window_end, window_floats(r));
    if (!(state < 5e-5 && window < 2e-5))
        fail_msg("%s: state off by %.2g, window by %.2g", r->shape.name, state, window);
}

/* ---- tests ---- */

static void tokens_move_state_and_window_as_the_reference_does(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct rig r;
        rig_open(&r, &shapes[i], 7);
        struct result x = run(&r, 5, 3);
        check(&r, &x);
        result_free(&x);
        rig_close(&r);
    }
}

static void any_schedule_and_any_cut_gives_the_same_bits(void **state) {
    (void)state;
    const int schedules = getenv("REEL_SOAK") ? 150 : 6;
    for (int i = 0; i < 5; i++) {
        struct rig r;
        rig_open(&r, &shapes[i], 4);
        struct result want = run(&r, 2, -2);
        check(&r, &want);
        for (int seed = 0; seed < (r.z.sms > 12 ? schedules / 3 : schedules); seed++) {
            struct result x = run(&r, 1 + seed % 3, seed);
            if (!result_same(&r, &want, &x))
                fail_msg("%s, seed %d: other bits", r.shape.name, seed);
            result_free(&x);
        }
        result_free(&want);
        rig_close(&r);
    }
}

/* Whether the patched kernel gives other bits, or a report, under one of the schedules. */
static void caught(const char *what, const struct shape *s, const struct fake_patch *patches) {
    struct rig r;
    const int tries = getenv("REEL_SOAK") ? 400 : 60;
    int seed = 0;
    rig_open(&r, s, 4);
    struct result want = run(&r, 2, -2);
    rig_close(&r);
    rig_open_patched(&r, s, 4, patches);
    r.gpu.cuda->settings.idle_limit = 300;
    for (bool same = true; seed < tries && same; seed += same) {
        session_start(&r);
        same = launch(&r, 0, 4, 0xfffffff0u, seed);
        if (!same) break;
        struct result x = result_get(&r);
        same = result_same(&r, &want, &x);
        result_free(&x);
    }
    printf("%s: schedule %d%s%.60s\n", what, seed, *r.gpu.cuda->report ? ": " : "",
           r.gpu.cuda->report);
    result_free(&want);
    rig_close(&r);
    if (seed == tries) fail_msg("%s: not seen in %d schedules", what, tries);
}

#define CAUGHT(what, shape, file, from, to)                                                        \
    caught(what, shape, (const struct fake_patch[]){ { file, from, to, false }, { 0 } })

static void orderings_taken_out_are_seen(void **state) {
    (void)state;
    CAUGHT("q and k taken without their epoch", &shapes[0], "phase_delta.cuh",
           "off |= pair_off(in[p].q[n], w->epoch) | pair_off(in[p].k[n], w->epoch);",
           "off |= !(in[p].q[n][0] >> 48 && in[p].q[n][1] >> 48 && in[p].k[n][0] >> 48 && "
           "in[p].k[n][1] >> 48);");
    CAUGHT("v taken without its epoch", &shapes[1], "phase_delta.cuh",
           "off |= word_off24(in[p].v, w->epoch);", "off |= !(in[p].v >> 48);");
    CAUGHT("columns taken without their epoch", &shapes[1], "exchange.cuh",
           "off |= word_missing(w, v[i], is24);", "off |= !(v[i] >> 48);");
    CAUGHT(
        "a and b summed before they are there", &shapes[1], "phase_delta.cuh",
        "DEV void delta_consume(struct worker *w, struct delta_early *e) {\n    consumers_sync();",
        "DEV void delta_consume(struct worker *w, struct delta_early *e) {\n");
    CAUGHT("sums not waited for by the convolution", &shapes[0], "phase_mix.cuh",
           "    parts_wait(w);\n",
           "    barrier_arrive(BARRIER_PARTS + w->parts, PART_THREADS);\n"
           "    w->parts = w->parts == PART_BARRIERS - 1 ? 0 : w->parts + 1;\n");
}

/* Everybody leaves, and the first to give up says what it waited for. Who has given up waits for
 * nothing any more, and so may leave a slot that it still reads from to the producer: nobody uses
 * what it reads. The simulator stops there. */
static struct decode_mailbox *rig_open_impatient(struct rig *r, const struct shape *s) {
    rig_open(r, s, 3);
    struct decode_mailbox *m = sim_gpu_mapped(sizeof *m);
    r->mailbox = m, r->patience = 3000;
    return m;
}

static void without_a_block_the_launch_ends_with_a_fault(void **state) {
    (void)state;
    static const char refilled[] = "ring_fill of a slot while loads of warp";
    for (int i = 0; i < 2; i++) {
        struct rig r;
        struct decode_mailbox *m = rig_open_impatient(&r, &shapes[i]);
        for (int seed = 0; seed < (getenv("REEL_SOAK") ? 300 : 8); seed++) {
            memset(m, 0, sizeof *m);
            session_start(&r);
            r.gpu.cuda->settings.missing_block = seed % r.z.sms;
            r.gpu.cuda->settings.idle_limit = 0;
            const bool ended = launch(&r, 0, 3, 0x1000u, seed);
            if (!ended && strstr(r.gpu.cuda->report, refilled)) {
                rig_close(&r); /* a launch that failed leaves a context that does nothing more */
                m = rig_open_impatient(&r, &shapes[i]);
                continue;
            }
            if (!ended || m->fault != 1)
                fail_msg("%s, seed %d: %s", r.shape.name, seed, r.gpu.cuda->report);
            assert_int_not_equal(m->fault_block, seed % r.z.sms);
        }
        rig_close(&r);
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(tokens_move_state_and_window_as_the_reference_does),
        in_turn(any_schedule_and_any_cut_gives_the_same_bits),
        cmocka_unit_test(orderings_taken_out_are_seen),
        cmocka_unit_test(without_a_block_the_launch_ends_with_a_fault),
    };
    SHARE_TESTS("deltanet", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
