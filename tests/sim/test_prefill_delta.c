/* The steps of a prompt's Gated DeltaNet under the simulator against the CPU reference, whose
 * recurrence takes one position after the other: timelines cut into launches of all kinds of
 * lengths, around the chunks' ends too, several heads of sizes that fill no tile, scratch memory
 * that holds NaN. */
#include "cpu/reference.h"
#include "kernels/delta_layout.h"
#include "kernels/prefill_args.h"
#include "kernels/prefill_layout.h"
#include "model/dtype.h"
#include "plan/plan_layout.h"
#include "support/plan_defines.h"
#include "support/shares.h"
#include "support/sim_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    LAYERS = 3,
    DELTAS = 2, /* layers 0 and 2 */
    LAYER = 2,  /* the one that is run */
    NTH = 1,
    TOKENS = 256,  /* of a launch */
    LONGEST = 320, /* positions */
    STAGES = 2,
    GROUP_SMS = 7,
    TAPS = 4
};

struct shape {
    const char *name;
    int key_heads, value_heads, key_dim, value_dim, hidden;
    int groups, copy;
    float forgets; /* how much a position forgets, about */
    float alike;   /* how much keys have in common */
};

struct rig {
    struct shape shape;
    struct plan plan;
    struct delta_layout layout;
    struct sim_gpu gpu;
    int channels, values, mix; /* columns */
    int slots;                 /* sums of squares of a token, of which this cut uses a fourth */
    int out_columns;           /* of a group, padded by a tile more than there are */
    float *mixed;              /* [position][mix], but for z two bf16 terms each */
    float *x;                  /* [position][hidden], two bf16 terms each */
    float *ssq;                /* [position]: each of its slots */
    uint16_t *gates;
    float *constants;    /* of both layers */
    float *want;         /* [position][value head][column] */
    float *state, *kept; /* the reference's, at the end and before the last position */
    float *state_before, *window_before;
    size_t state_floats, window_floats, out_bytes, x_bytes;
    unsigned long long d_mixed, d_x, d_ssq, d_gates, d_constants, d_state, d_window, d_kept,
        d_kept_window, d_out, d_words;
    struct prefill_delta scratch;
    size_t scratch_bytes;
    unsigned long long d_scratch;
    double worst, worst_state;
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static float normal(void) { return uniform() + uniform() + uniform(); }
static float rounded(float x) { return bf16_to_f32(bf16_from_f32(x)); }
static float two_terms(float x) { return rounded(x) + rounded(x - rounded(x)); }

/* ---- what must come out ---- */

static const float *numbers(const struct rig *r) {
    return r->constants + (size_t)NTH * (size_t)delta_constants(&r->layout);
}

/* a and b of a position's heads. */
static void reference_gates(const struct rig *r, int p, float *a, float *b) {
    const int hidden = r->shape.hidden;
    const double scale = 1 / sqrt((double)r->ssq[p] * ((r->slots + 3) / 4) / hidden + 1e-6);
    for (int row = 0; row < 2 * r->shape.value_heads; row++) {
        double sum = 0;
        for (int i = 0; i < hidden; i++)
            sum += (double)r->x[p * hidden + i] *
                   (double)bf16_to_f32(
                       r->gates[delta_gate(&r->layout, NTH, row / 2, row % 2) + (unsigned)i]);
        (row % 2 ? b : a)[row / 2] = (float)(sum * scale);
    }
}

/* Oldest first, as cpu_convolve has them: [tap][channel]. */
static void reference_window(const struct rig *r, int p, float *past) {
    for (int j = 0; j < TAPS - 1; j++)
        for (int c = 0; c < r->channels; c++) {
            const int from = p - (TAPS - 1) + j;
            past[j * r->channels + c] = from < 0
                                            ? r->window_before[delta_window(&r->layout, NTH, c) +
                                                               (unsigned)(TAPS - 1 + from)]
                                            : r->mixed[from * r->mix + c];
        }
}

static void reference_position(struct rig *r, int p, float *past, float *turned) {
    const struct shape *s = &r->shape;
    const int heads = s->value_heads, dim = s->key_dim, columns = s->value_dim;
    const struct delta_shape shape = { dim, columns, (size_t)columns };
    float *made = malloc((size_t)r->mix * sizeof *made), a[16], b[16], rate[16];
    const float *gain = numbers(r) + delta_norm_offset(&r->layout);
    reference_window(r, p, past);
    reference_gates(r, p, a, b);
    for (int h = 0; h < heads; h++)
        rate[h] = -numbers(r)[h];
    for (int i = 0; i < r->mix; i++)
        made[i] = r->mixed[p * r->mix + i];
    cpu_convolve(turned, past, made, TAPS, r->channels, made, REF_FAST);
    for (int h = 0; h < 2 * s->key_heads; h++)
        cpu_l2_norm(made + h * dim, dim, h < s->key_heads ? 1 / sqrtf((float)dim) : 1);
    for (int i = 0; i < r->channels; i++)
        made[i] = rounded(made[i]);
    cpu_delta_gates(b, a, rate, numbers(r) + delta_bias_offset(&r->layout), heads, b, a, REF_FAST);
    for (int h = 0; h < heads; h++) {
        const float *q = made + h / (heads / s->key_heads) * dim, *k = q + s->key_heads * dim;
        const int v = 2 * s->key_heads * dim + h * columns;
        float *want = r->want + (p * heads + h) * columns;
        cpu_delta_step(&shape, r->state + h * dim * columns, q, k, made + v, a[h], b[h], want,
                       REF_FAST);
        cpu_gated_norm(want, gain, made + r->channels + h * columns, columns, 1e-6f, want,
                       REF_FAST);
    }
    free(made);
}

/* From the state that the session begins with. */
static void reference_run(struct rig *r) {
    const struct shape *s = &r->shape;
    float *past = malloc((size_t)((TAPS - 1) * r->channels) * sizeof *past);
    float *turned = malloc((size_t)(TAPS * r->channels) * sizeof *turned);
    for (int i = 0; i < TAPS * r->channels; i++)
        turned[i % TAPS * r->channels + i / TAPS] = numbers(r)[delta_taps_offset(&r->layout) + i];
    for (int h = 0; h < s->value_heads; h++)
        for (int c = 0; c < s->value_dim; c++)
            for (int k = 0; k < s->key_dim; k++)
                r->state[(h * s->key_dim + k) * s->value_dim + c] =
                    r->state_before[delta_state(&r->layout, NTH, h, c) + (unsigned)k];
    for (int p = 0; p < LONGEST; p++) {
        if (p == LONGEST - 1)
            memcpy(r->kept, r->state, (size_t)(r->values * s->key_dim) * sizeof *r->kept);
        reference_position(r, p, past, turned);
    }
    free(past), free(turned);
}

/* ---- compiling and launching ---- */

/* A model of the shape's heads in its groups. It attends in layer 1, since the planner asks for a
 * layer that does; the test's kernel leaves that layer out. The shape says what the planner would
 * choose for itself: how copies are made, without wgmma, and how many columns out's input has. */
static void compile(struct rig *r) {
    const struct shape *s = &r->shape;
    const struct model_config config = {
        .family = MODEL_QWEN35,
        .hidden = s->hidden,
        .n_layers = LAYERS,
        .n_heads = 2,
        .n_kv_heads = 2,
        .head_dim = 64,
        .rotary_dim = 64,
        .intermediate = 64,
        .vocab = 16,
        .max_context = 4096,
        .rms_eps = 1e-6f,
        .qk_norm = true,
        .tied = true,
        .layer_kinds = { LAYER_DELTA, LAYER_ATTENTION, LAYER_DELTA },
        .delta = { .key_heads = s->key_heads,
                   .value_heads = s->value_heads,
                   .key_dim = s->key_dim,
                   .value_dim = s->value_dim,
                   .conv_width = TAPS },
    };
    const struct plan_options options = {
        .n_groups = s->groups, .group_sms = GROUP_SMS, .warps = 4, .prefill_tokens = TOKENS
    };
    const struct plan_override overrides[] = { { "P_OUT_K_TILES", r->out_columns / TILE_K },
                                               { "P_PREFILL_STAGES", STAGES },
                                               { "G_COPY", s->copy },
                                               { "G_WGMMA", 0 } };
    const struct gpu_limits gpu = plan_defines_gpu(s->groups * GROUP_SMS);
    struct plan_defines d;
    plan_defines_make(&d, &config, &gpu, &options, overrides,
                      (int)(sizeof overrides / sizeof *overrides));
    r->plan = d.plan;
    assert_int_equal(r->plan.prefill_tokens, TOKENS);
    r->slots = GROUP_SMS * r->plan.tape.segment[TAPE_OUT].row_tiles;
    sim_gpu_compile("prefill_delta.cu", d.list);
    plan_defines_release(&d);
}

/* ---- memory ---- */

static size_t ssq_bytes(const struct rig *r) { return (size_t)(r->slots * TOKENS) * sizeof(float); }
static size_t mixed_bytes(const struct rig *r) {
    return (size_t)(TOKENS * (r->mix + r->channels)) * 2;
}

/* The parts of struct prefill_delta, each poisoned. */
static void scratch_open(struct rig *r) {
    const struct shape *s = &r->shape;
    const size_t n = TOKENS, keys = (size_t)s->key_heads * (size_t)s->key_dim,
                 columns = (size_t)((s->value_dim + 15) / 16 * 16), heads = (size_t)s->value_heads,
                 dim = (size_t)s->key_dim;
    unsigned char *at[11];
    const size_t bytes[11] = { n * keys * 2,
                               n * keys * 2,
                               n * heads * columns * 2,
                               n * heads * 8,
                               n * heads * 8,
                               n * heads * dim * 2,
                               n * heads * columns * 4,
                               n * heads * DELTA_CHUNK * 4,
                               n * heads * columns * 4,
                               n / DELTA_CHUNK * heads * columns * dim * 2,
                               heads * DELTA_KEPT * 4 };
    size_t all = 0;
    for (int i = 0; i < 11; i++)
        all += bytes[i];
    r->scratch_bytes = all;
    r->d_scratch = sim_gpu_alloc(all);
    unsigned char *to = (unsigned char *)(uintptr_t)r->d_scratch;
    for (int i = 0; i < 11; i++)
        at[i] = to, to += bytes[i];
    r->scratch = (struct prefill_delta){ .q = at[0],
                                         .k = at[1],
                                         .v = at[2],
                                         .gates = (float *)(void *)at[3],
                                         .decay = (float *)(void *)at[4],
                                         .w = at[5],
                                         .u = (float *)(void *)at[6],
                                         .asked = at[7],
                                         .learned = at[8],
                                         .states = at[9],
                                         .kept = (float *)(void *)at[10] };
}

static void weights_fill(struct rig *r) {
    const struct shape *s = &r->shape;
    const struct delta_layout *d = &r->layout;
    const size_t n_gates = (size_t)delta_gate(d, DELTAS, 0, 0);
    const size_t n_constants = (size_t)(DELTAS * delta_constants(d));
    r->gates = malloc(n_gates * 2), r->constants = malloc(n_constants * sizeof(float));
    for (size_t i = 0; i < n_gates; i++)
        r->gates[i] = bf16_from_f32(normal() / sqrtf((float)s->hidden));
    for (size_t i = 0; i < n_constants; i++)
        r->constants[i] = NAN;
    float *own = r->constants + (size_t)NTH * (size_t)delta_constants(d);
    for (int h = 0; h < s->value_heads; h++)
        own[h] = -s->forgets * (1 + uniform() / 2), own[d->value_heads + h] = normal();
    for (int i = 0; i < s->value_dim; i++)
        own[delta_norm_offset(d) + i] = 1 + uniform() / 2;
    for (int i = 0; i < TAPS * r->channels; i++)
        own[delta_taps_offset(d) + i] = uniform();
    r->d_gates = sim_gpu_alloc(n_gates * 2), r->d_constants = sim_gpu_alloc(n_constants * 4);
    sim_gpu_put(r->d_gates, r->gates, n_gates * 2);
    sim_gpu_put(r->d_constants, r->constants, n_constants * 4);
}

static void inputs_fill(struct rig *r) {
    const struct shape *s = &r->shape;
    r->mixed = malloc((size_t)(LONGEST * r->mix) * 4);
    r->x = malloc((size_t)(LONGEST * s->hidden) * 4), r->ssq = malloc(LONGEST * 4);
    for (int i = 0; i < LONGEST * r->mix; i++) {
        const int column = i % r->mix, is_k = column / (s->key_heads * s->key_dim) == 1;
        const float v = normal() + (is_k ? s->alike * sinf((float)column) : 0);
        r->mixed[i] = column < r->channels ? two_terms(v) : rounded(v);
    }
    for (int i = 0; i < LONGEST * s->hidden; i++)
        r->x[i] = two_terms(normal());
    for (int p = 0; p < LONGEST; p++)
        r->ssq[p] = (float)s->hidden / (float)((r->slots + 3) / 4) * (1 + uniform() / 2);
}

static void session_fill(struct rig *r) {
    r->state_before = malloc(r->state_floats * 4), r->window_before = malloc(r->window_floats * 4);
    for (size_t i = 0; i < r->state_floats; i++)
        r->state_before[i] = uniform() / 4;
    for (size_t i = 0; i < r->window_floats; i++)
        r->window_before[i] = normal();
}

static void rig_open(struct rig *r, const struct shape *s) {
    *r = (struct rig){ .shape = *s };
    r->layout = (struct delta_layout){ s->hidden,  s->key_heads, s->value_heads,
                                       s->key_dim, s->value_dim, TAPS };
    r->channels = delta_channels(&r->layout), r->values = s->value_heads * s->value_dim;
    r->mix = r->channels + r->values;
    r->out_columns = (r->values / s->groups + TILE_K - 1) / TILE_K * TILE_K + TILE_K;
    r->state_floats = (size_t)delta_state(&r->layout, DELTAS, 0, 0);
    r->window_floats = (size_t)delta_window(&r->layout, DELTAS, 0);
    r->gpu = sim_gpu_open();
    compile(r);
    weights_fill(r), inputs_fill(r), session_fill(r), scratch_open(r);
    r->want = malloc((size_t)(LONGEST * r->values) * 4);
    r->state = malloc((size_t)(r->values * s->key_dim) * 4);
    r->kept = malloc((size_t)(r->values * s->key_dim) * 4);
    r->d_kept = sim_gpu_alloc(r->state_floats * 4);
    r->d_kept_window = sim_gpu_alloc(r->window_floats * 4);
    r->x_bytes = (size_t)(TOKENS * (s->hidden + 63) / 64 * 64) * 4;
    r->out_bytes = (size_t)TOKENS * (size_t)((s->groups * r->out_columns + 63) / 64 * 64) * 2;
    r->d_mixed = sim_gpu_alloc(mixed_bytes(r));
    r->d_x = sim_gpu_alloc(r->x_bytes), r->d_ssq = sim_gpu_alloc(ssq_bytes(r));
    r->d_state = sim_gpu_alloc(r->state_floats * 4);
    r->d_window = sim_gpu_alloc(r->window_floats * 4);
    r->d_out = sim_gpu_alloc(r->out_bytes), r->d_words = sim_gpu_alloc(8);
    reference_run(r);
}

static void rig_close(struct rig *r) {
    printf("%s: off by %.4f, the state by %.5f at most\n", r->shape.name, r->worst, r->worst_state);
    sim_gpu_close();
    free(r->mixed), free(r->x), free(r->ssq), free(r->gates), free(r->constants), free(r->want);
    free(r->state), free(r->kept), free(r->state_before), free(r->window_before);
}

static void poison(unsigned long long to, size_t bytes) {
    unsigned char *nan = malloc(bytes);
    memset(nan, 0xff, bytes);
    sim_gpu_put(to, nan, bytes);
    free(nan);
}

/* ---- launches ---- */

/* What the steps before leave of n positions from `position` on; tokens beyond are not numbers. */
static void inputs_put(struct rig *r, int position, int n) {
    const struct shape *s = &r->shape;
    unsigned char *x = malloc(r->x_bytes);
    float *ssq = malloc(ssq_bytes(r));
    uint16_t *mixed = malloc(mixed_bytes(r));
    memset(mixed, 0xff, mixed_bytes(r));
    memset(x, 0xff, r->x_bytes), memset(ssq, 0xff, ssq_bytes(r));
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < s->hidden; i++) {
            const float v = r->x[(position + t) * s->hidden + i];
            const uint16_t high = bf16_from_f32(v), low = bf16_from_f32(v - bf16_to_f32(high));
            memcpy(x + activation_at(TOKENS, t, i), &high, 2);
            memcpy(x + activation_at(TOKENS, t, (s->hidden + 63) / 64 * 64 + i), &low, 2);
        }
        for (int i = 0; i < (r->slots + 3) / 4; i++)
            ssq[i * TOKENS + t] = r->ssq[position + t];
    }
    sim_gpu_put(r->d_x, x, r->x_bytes), sim_gpu_put(r->d_ssq, ssq, ssq_bytes(r));
    for (int i = 0; i < n * r->mix; i++) {
        const float v = r->mixed[position * r->mix + i];
        const int t = i / r->mix, column = i % r->mix;
        uint16_t *row = mixed + t * (r->mix + r->channels);
        row[column] = bf16_from_f32(v);
        if (column < r->channels) row[r->mix + column] = bf16_from_f32(v - rounded(v));
    }
    sim_gpu_put(r->d_mixed, mixed, mixed_bytes(r));
    free(mixed);
    free(x), free(ssq);
}

static void out_check(struct rig *r, int position, int n) {
    const struct shape *s = &r->shape;
    const int group_heads = s->value_heads / s->groups;
    unsigned char *out = malloc(r->out_bytes);
    sim_gpu_get(out, r->d_out, r->out_bytes);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < s->value_heads; h++) {
            const float *want =
                r->want + (((t < n ? position + t : 0) * s->value_heads) + h) * s->value_dim;
            double error = 0, size = 0;
            for (int i = 0; i < s->value_dim; i++) {
                const int column =
                    h / group_heads * r->out_columns + h % group_heads * s->value_dim;
                uint16_t bits;
                memcpy(&bits, out + activation_at(TOKENS, t, column + i), 2);
                const double d = (double)bf16_to_f32(bits) - (double)want[i];
                error += d * d, size += (double)want[i] * (double)want[i];
                if (t >= n && bits) fail_msg("%s: token %d of %d is written", s->name, t, n);
            }
            if (t >= n) continue;
            const double off = sqrt(error / size);
            if (!(off < 0.02))
                fail_msg("%s: head %d of token %d of %d from position %d: off by %.4f", s->name, h,
                         t, n, position, off);
            if (off > r->worst) r->worst = off;
        }
    free(out);
}

/* The state of a head, off by how much. */
static double state_error(const struct rig *r, const float *state, const float *reference,
                          int head) {
    const struct shape *s = &r->shape;
    double error = 0, size = 0;
    for (int i = 0; i < s->key_dim * s->value_dim; i++) {
        const int k = i / s->value_dim, c = i % s->value_dim;
        const double want = (double)reference[(head * s->key_dim + k) * s->value_dim + c];
        const double d = (double)state[delta_state(&r->layout, NTH, head, c) + (unsigned)k] - want;
        error += d * d, size += want * want;
    }
    return sqrt(error / size);
}

/* State and window after `end` positions; those of the other layer are as they were. */
static void session_check(struct rig *r, unsigned long long d_state, unsigned long long d_window,
                          const float *reference, int end) {
    float *state = malloc(r->state_floats * 4), *window = malloc(r->window_floats * 4);
    sim_gpu_get(state, d_state, r->state_floats * 4);
    sim_gpu_get(window, d_window, r->window_floats * 4);
    for (int h = 0; h < r->shape.value_heads; h++) {
        const double off = state_error(r, state, reference, h);
        if (!(off < 0.002))
            fail_msg("%s: the state of head %d after %d is off by %.5f", r->shape.name, h, end,
                     off);
        if (off > r->worst_state) r->worst_state = off;
    }
    for (int i = 0; i < r->channels * (TAPS - 1); i++) {
        const int c = i / (TAPS - 1), j = i % (TAPS - 1);
        const float from = r->mixed[(end - (TAPS - 1) + j) * r->mix + c];
        if (window[delta_window(&r->layout, NTH, c) + (unsigned)j] != from)
            fail_msg("%s: window of channel %d after %d", r->shape.name, c, end);
    }
    if (memcmp(state, r->state_before, r->state_floats / DELTAS * 4) ||
        memcmp(window, r->window_before, r->window_floats / DELTAS * 4))
        fail_msg("%s: the other layer's state or window is written", r->shape.name);
    free(state), free(window);
}

/* Launches of these lengths, one after the other, from position 0. `blocks`: of a launch. */
static void run(struct rig *r, const int *lengths, int blocks, int seed) {
    const struct shape *s = &r->shape;
    struct prefill_args a = { .room = TOKENS };
    const int chunk = r->plan.prefill_chunk_shared, few = PLAN_PREFILL_CONSUMERS;
    const struct {
        const char *name;
        int threads, shared;
    } steps[] = { { "conv", few, PREFILL_CONV_BYTES(TAPS) },
                  { "chunk", few, chunk },
                  { "chain", few + 32, prefill_shared_bytes(STAGES, r->plan.prefill_k_places) },
                  { "answer", few, chunk } };
    int layer = LAYER, position = 0;
    void *params[] = { &a, &layer };
    unsigned char *zeros = calloc(1, r->out_bytes);
    a.decode.patience = ~0u >> 1;
    a.decode.abort = (unsigned *)(uintptr_t)r->d_words;
    a.decode.delta.gates = (const uint16_t *)(uintptr_t)r->d_gates;
    a.decode.delta.constants = (const float *)(uintptr_t)r->d_constants;
    a.decode.delta.state = (float *)(uintptr_t)r->d_state;
    a.decode.delta.window = (float *)(uintptr_t)r->d_window;
    a.cut[TAPE_OUT].split_k = 0;
    a.qkv = (unsigned short *)(uintptr_t)r->d_mixed;
    a.x = (unsigned char *)(uintptr_t)r->d_x, a.ssq = (float *)(uintptr_t)r->d_ssq;
    a.attention = (unsigned char *)(uintptr_t)r->d_out;
    a.delta = r->scratch;
    sim_gpu_put(r->d_state, r->state_before, r->state_floats * 4);
    sim_gpu_put(r->d_window, r->window_before, r->window_floats * 4);
    sim_gpu_put(r->d_kept, r->state_before, r->state_floats * 4);
    sim_gpu_put(r->d_kept_window, r->window_before, r->window_floats * 4);
    sim_gpu_put(r->d_words, zeros, 8);
    poison(r->d_scratch, r->scratch_bytes);
    for (; *lengths; position += *lengths++) {
        a.decode.position = position, a.decode.n_tokens = *lengths;
        if (!lengths[1]) { /* the state before the last token is wanted as well */
            a.delta.keep_state = (float *)(uintptr_t)r->d_kept;
            a.delta.keep_window = (float *)(uintptr_t)r->d_kept_window;
        }
        inputs_put(r, position, *lengths);
        sim_gpu_put(r->d_out, zeros, r->out_bytes);
        for (int i = 0; i < 4; i++) {
            r->gpu.cuda->settings.seed = (uint64_t)(seed * 4 + i);
            if (sim_gpu_launch(steps[i].name, (unsigned)blocks, (unsigned)steps[i].threads,
                               (unsigned)steps[i].shared, params))
                fail_msg("%s, %s, %d tokens from position %d on %d blocks, seed %d: %s", s->name,
                         steps[i].name, *lengths, position, blocks, seed, r->gpu.cuda->report);
        }
        out_check(r, position, *lengths);
    }
    free(zeros);
    if (position != LONGEST) return;
    session_check(r, r->d_state, r->d_window, r->state, LONGEST);
    session_check(r, r->d_kept, r->d_kept_window, r->kept, LONGEST - 1);
}

/* ---- tests ---- */

static const struct shape shapes[] = {
    { "two heads of 16", 2, 2, 16, 16, 128, 1, 2, 0.05f, 0 },
    { "two value heads of 24 a key head of 16, two groups", 2, 4, 16, 24, 64, 2, 1, 0.3f, 0.5f },
    { "128 by 128", 1, 1, 128, 128, 192, 1, 2, 0.01f, 1 },
    { "three value heads of 40 a key head of 48", 1, 3, 48, 40, 64, 1, 2, 5, 0 },
    { "nine heads, keys alike, little is forgotten", 9, 9, 32, 16, 64, 1, 2, 0.0005f, 3 },
    { "positions that forget all", 2, 2, 16, 32, 64, 1, 2, 3000, 0 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void launches_of_all_lengths_match_the_recurrence(void **state) {
    (void)state;
    static const int whole[] = { 256, 64, 0 }, odd[] = { 65, 1, 63, 2, 3, 100, 86, 0 },
                     one[] = { 190, 65, 64, 1, 0 }, first[] = { 255, 65, 0 };
    for (int s = 0; s < SHAPES; s++) {
        struct rig r;
        rig_open(&r, &shapes[s]);
        if (s % 2 == 0 || getenv("REEL_SOAK")) run(&r, whole, 3, 1);
        run(&r, odd, 2, 2);
        if (s < 2) run(&r, one, 4, 3), run(&r, first, 1, 4);
        rig_close(&r);
    }
}

static void every_length_to_a_chunk_and_more_matches(void **state) {
    (void)state;
    for (int s = 0; s < 2; s++) {
        struct rig r;
        rig_open(&r, &shapes[s]);
        for (int n = 1; n <= 70; n += s ? 7 : 2) {
            const int lengths[] = { n, 5, 0 };
            run(&r, lengths, 1 + n % 3, n);
        }
        rig_close(&r);
    }
}

static void any_schedule_gives_the_same(void **state) {
    (void)state;
    const int schedules = getenv("REEL_SOAK") ? 500 : 6;
    for (int s = 0; s < 2; s++) {
        struct rig r;
        rig_open(&r, &shapes[s]);
        for (int seed = 0; seed < schedules; seed++) {
            const int lengths[] = { 1 + seed * 29 % 140, 1 + seed * 7 % 70, 0 };
            run(&r, lengths, 1 + seed % 4, seed);
        }
        rig_close(&r);
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(launches_of_all_lengths_match_the_recurrence),
        in_turn(every_length_to_a_chunk_and_more_matches),
        cmocka_unit_test(any_schedule_gives_the_same),
    };
    SHARE_TESTS("prefill-delta", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
