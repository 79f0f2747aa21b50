/* Prefill's embeddings and products under the simulator against plain C with sums in double: every
 * cut, numbers of tokens around the blocks, shapes that fill neither tiles nor stages. What is to
 * be left alone holds a pattern: tokens beyond the last one; columns that belong to no weight hold
 * 0. */
#include "kernels/prefill_args.h"
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

enum { LAYERS = 2, LAYER = 1, TOKENS = 384, VOCAB = 70, DIM = 64, EMBED = PREFILL_PRODUCTS };
enum { PATTERN = 0x3e55, NOT_A_NUMBER = 0xffff };

struct shape {
    const char *name;
    int hidden, heads, kv_heads, intermediate; /* head_dim is DIM */
    int groups, group_sms, warps;
    int n_sms, compute; /* of the GPU: more SMs than the plan's, or as many */
    bool tied;
};

/* Sizes that the plan made of a shape. */
struct sizes {
    int qkv, q;              /* columns of qkv; those of q */
    int x, attention, gated; /* columns with those that belong to no weight */
    int used;                /* of these, by the cut */
    int ssq;                 /* slots */
};

struct rig {
    struct shape shape;
    struct plan plan;
    struct sim_gpu gpu;
    struct sizes n;
    uint16_t *weights[PREFILL_PRODUCTS]; /* of LAYER: [rows][columns] */
    int rows[PREFILL_PRODUCTS], columns[PREFILL_PRODUCTS];
    uint16_t *embedding; /* [VOCAB][hidden] */
    float *norms;        /* [2 * LAYERS + 1][hidden] */
    unsigned long long d_tape, d_embedding, d_norms, d_scratch, d_ids, d_abort;
    unsigned char *before, *after; /* scratch */
    int room;                      /* tokens that activations are laid out for */
    int32_t ids[TOKENS];
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static uint16_t uniform16(void) { return bf16_from_f32(uniform()); }

/* ---- scratch memory ---- */

static float *floats(unsigned char *scratch, uint64_t at) {
    return (float *)(void *)(scratch + at);
}
static uint16_t *halves(unsigned char *scratch, uint64_t at) {
    return (uint16_t *)(void *)(scratch + at);
}
static uint16_t *activation(const struct rig *r, unsigned char *scratch, uint64_t at, int token,
                            int column) {
    return halves(scratch, at + activation_at(r->room, token, column));
}

/* Column of feature `i` among the columns of attention (gated): the groups' slices are padded. */
static int padded_column(const struct rig *r, int i, int slice, int phase) {
    return i / slice * r->plan.tape.segment[phase].k_tiles * TILE_K + i % slice;
}
static int column_of(const struct rig *r, int phase, int k) {
    if (phase == TAPE_OUT) return padded_column(r, k, r->plan.tape.group_q, phase);
    if (phase == TAPE_DOWN) return padded_column(r, k, r->plan.tape.group_intermediate, phase);
    return k;
}
static uint64_t input_of(const struct rig *r, int phase) {
    const struct plan_scratch *s = &r->plan.scratch;
    return phase == TAPE_OUT ? s->attention : phase == TAPE_DOWN ? s->gated : s->x;
}

static void activations_fill(struct rig *r, int phase, bool is_input, int n_tokens) {
    for (int t = 0; t < r->room; t++)
        for (int k = 0; k < r->columns[phase]; k++)
            *activation(r, r->before, input_of(r, phase), t, column_of(r, phase, k)) =
                !is_input      ? PATTERN
                : t < n_tokens ? uniform16()
                               : NOT_A_NUMBER;
}

/* Inputs are random, and not a number for the tokens beyond; outputs hold the pattern. Sums of
 * squares are where the cut has them, the rest of their slots is no number. */
static void scratch_fill(struct rig *r, int step, struct prefill_cut cut, int n_tokens) {
    const struct plan_scratch *s = &r->plan.scratch;
    r->room = cut.split_k == 8 ? (n_tokens + ATOM_TOKENS - 1) / ATOM_TOKENS * ATOM_TOKENS : TOKENS;
    r->n.used = cut.split_k == 8 ? r->n.ssq : (r->n.ssq + 3) / 4;
    memset(r->before, 0, s->bytes);
    activations_fill(r, TAPE_QKV, step == TAPE_QKV || step == TAPE_GATE_UP, n_tokens);
    activations_fill(r, TAPE_OUT, true, n_tokens);
    activations_fill(r, TAPE_DOWN, step == TAPE_DOWN, n_tokens);
    for (int i = 0; i < TOKENS * r->n.qkv; i++)
        halves(r->before, s->qkv)[i] = PATTERN;
    for (int i = 0; i < TOKENS * r->shape.hidden; i++)
        floats(r->before, s->h)[i] = uniform();
    for (int i = 0; i < TOKENS * r->n.ssq; i++)
        floats(r->before, s->ssq)[i] = i < TOKENS * r->n.used ? (uniform() + 1.5f) * 20 : NAN;
}

/* ---- what must come out: each step from what the steps before it left ---- */

static void differs(const struct rig *r, const char *what, int token, int i, double got,
                    double want) {
    fail_msg("%s: %s of token %d, %d: %.9g, want %.9g", r->shape.name, what, token, i, got, want);
}

static double scale_of(const struct rig *r, unsigned char *scratch, int token) {
    double sum = 0;
    for (int i = 0; i < r->n.used; i++)
        sum += (double)floats(scratch, r->plan.scratch.ssq)[i * TOKENS + token];
    return 1 / sqrt(sum / r->shape.hidden + (double)r->plan.rms_eps);
}

/* Of row `row` with token's activations in `scratch`; *size: of the terms without their signs. */
static double dot(const struct rig *r, unsigned char *scratch, int phase, int row, int token,
                  double *size) {
    double sum = 0;
    *size = 0;
    for (int k = 0; k < r->columns[phase]; k++) {
        const uint16_t x =
            *activation(r, scratch, input_of(r, phase), token, column_of(r, phase, k));
        const double p =
            (double)bf16_to_f32(x) *
            (double)bf16_to_f32(
                r->weights[phase][(size_t)row * (size_t)r->columns[phase] + (size_t)k]);
        sum += p, *size += fabs(p);
    }
    return sum;
}

static bool near16(uint16_t got, double want, double size) {
    return fabs((double)bf16_to_f32(got) - want) <= fabs(want) / 256 + size * 2e-6;
}

static void check_qkv(struct rig *r, unsigned char *in, int n_tokens) {
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < r->n.qkv; i++) {
            const uint16_t got = halves(r->after, r->plan.scratch.qkv)[t * r->n.qkv + i];
            if (t >= n_tokens) {
                if (got != PATTERN) differs(r, "qkv beyond", t, i, got, PATTERN);
                continue;
            }
            const double scale = scale_of(r, in, t);
            double size, want = dot(r, in, TAPE_QKV, i, t, &size) * scale;
            if (!near16(got, want, size * scale))
                differs(r, "qkv", t, i, (double)bf16_to_f32(got), want);
        }
}

static void check_gated(struct rig *r, unsigned char *in, int n_tokens) {
    const int n = r->shape.intermediate;
    for (int t = 0; t < r->room; t++)
        for (int i = 0; i < n; i++) {
            const uint16_t got =
                *activation(r, r->after, r->plan.scratch.gated, t, column_of(r, TAPE_DOWN, i));
            if (t >= n_tokens) {
                if (got != PATTERN) differs(r, "gated beyond", t, i, got, PATTERN);
                continue;
            }
            const double scale = scale_of(r, in, t);
            double gate_size, up_size;
            const double gate = dot(r, in, TAPE_GATE_UP, i, t, &gate_size) * scale;
            const double up = dot(r, in, TAPE_GATE_UP, n + i, t, &up_size) * scale;
            const double want = gate / (1 + exp(-gate)) * up;
            if (!near16(got, want, (gate_size * fabs(up) + up_size * (fabs(gate) + 1)) * scale))
                differs(r, "gated", t, i, (double)bf16_to_f32(got), want);
        }
}

/* x is what the gains make of h, ssq adds up to its squares. */
static void check_normed(struct rig *r, int norm, int n_tokens) {
    const struct plan_scratch *s = &r->plan.scratch;
    const int hidden = r->shape.hidden;
    for (int t = 0; t < n_tokens; t++) {
        double squares = 0, sum = 0;
        for (int i = 0; i < hidden; i++) {
            const float h = floats(r->after, s->h)[t * hidden + i];
            const uint16_t x = *activation(r, r->after, s->x, t, i),
                           want = bf16_from_f32(h * r->norms[norm * hidden + i]);
            squares += (double)h * (double)h;
            if (x != want) differs(r, "x", t, i, (double)bf16_to_f32(x), (double)bf16_to_f32(want));
        }
        for (int i = 0; i < r->n.used; i++)
            sum += (double)floats(r->after, s->ssq)[i * TOKENS + t];
        if (!(fabs(sum - squares) <= squares * 1e-5)) differs(r, "ssq", t, 0, sum, squares);
    }
}

static void check_h(struct rig *r, unsigned char *in, unsigned char *h_before, int phase,
                    int n_tokens) {
    const struct plan_scratch *s = &r->plan.scratch;
    const int hidden = r->shape.hidden;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < hidden; i++) {
            const float got = floats(r->after, s->h)[t * hidden + i],
                        old = floats(h_before, s->h)[t * hidden + i];
            if (t >= n_tokens) {
                if (got != old) differs(r, "h beyond", t, i, (double)got, (double)old);
                continue;
            }
            double size, want = (double)old + dot(r, in, phase, i, t, &size);
            if (!(fabs((double)got - want) <= (fabs((double)old) + size) * 2e-6))
                differs(r, "h", t, i, (double)got, want);
        }
}

static void check_embeddings(struct rig *r, int n_tokens, const float *given) {
    const int hidden = r->shape.hidden;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < hidden; i++) {
            const int at = t * hidden + i;
            const float got = floats(r->after, r->plan.scratch.h)[at];
            const float want = t >= n_tokens ? floats(r->before, r->plan.scratch.h)[at]
                               : given       ? given[at]
                                             : bf16_to_f32(r->embedding[r->ids[t] * hidden + i]);
            if (got != want) differs(r, "embedding", t, i, (double)got, (double)want);
        }
    check_normed(r, 0, n_tokens);
}

/* Columns that belong to no weight are still 0, x beyond the last token is as before. */
static void check_alone(struct rig *r, int n_tokens) {
    const struct plan_scratch *s = &r->plan.scratch;
    const struct {
        const char *what;
        int phase, columns;
    } all[] = { { "x", TAPE_QKV, r->n.x },
                { "attention", TAPE_OUT, r->n.attention },
                { "gated", TAPE_DOWN, r->n.gated } };
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
        bool *used = calloc((size_t)all[a].columns, sizeof *used);
        for (int k = 0; k < r->columns[all[a].phase]; k++)
            used[column_of(r, all[a].phase, k)] = true;
        for (int t = 0; t < r->room; t++)
            for (int k = 0; k < all[a].columns; k++)
                if (!used[k] && *activation(r, r->after, input_of(r, all[a].phase), t, k))
                    differs(r, all[a].what, t, k, 1, 0);
        free(used);
    }
    for (int t = n_tokens; t < r->room; t++)
        for (int i = 0; i < r->shape.hidden; i++)
            if (*activation(r, r->after, s->x, t, i) != *activation(r, r->before, s->x, t, i))
                differs(r, "x beyond", t, i, 1, 0);
}

/* ---- a shape on the fake GPU ---- */

static struct model_config config_of(const struct shape *s) {
    return (struct model_config){ .family = MODEL_QWEN3,
                                  .hidden = s->hidden,
                                  .n_layers = LAYERS,
                                  .n_heads = s->heads,
                                  .n_kv_heads = s->kv_heads,
                                  .head_dim = DIM,
                                  .rotary_dim = DIM,
                                  .intermediate = s->intermediate,
                                  .vocab = VOCAB,
                                  .max_context = 1024,
                                  .rms_eps = 1e-6f,
                                  .qk_norm = true,
                                  .tied = s->tied,
                                  .rope_theta = 10000 };
}

static void rig_compile(const struct rig *r) {
    struct plan_defines d;
    plan_defines_of(&d, &r->plan, NULL, 0);
    sim_gpu_compile("prefill_product.cu", d.list);
    plan_defines_release(&d);
}

static void weights_make(struct rig *r) {
    const struct shape *s = &r->shape;
    const int q = s->heads * DIM, kv = s->kv_heads * DIM;
    const int rows[] = { q + 2 * kv, s->hidden, 2 * s->intermediate, s->hidden };
    const int columns[] = { s->hidden, q, s->hidden, s->intermediate };
    unsigned char *tape = calloc(1, r->plan.tape_bytes);
    for (int phase = 0; phase < PREFILL_PRODUCTS; phase++) {
        const size_t n = (size_t)(rows[phase] * columns[phase]);
        uint16_t *w = malloc(n * sizeof *w);
        for (size_t i = 0; i < n; i++)
            w[i] = uniform16();
        for (int i = 0; i < rows[phase]; i++)
            wound_row(tape, &r->plan.tape, phase, LAYER, i, w + i * columns[phase], columns[phase]);
        r->weights[phase] = w, r->rows[phase] = rows[phase], r->columns[phase] = columns[phase];
    }
    r->embedding = malloc((size_t)(VOCAB * s->hidden) * sizeof *r->embedding);
    for (int i = 0; i < VOCAB * s->hidden; i++)
        r->embedding[i] = uniform16();
    for (int i = 0; s->tied && i < VOCAB; i++)
        wound_row(tape, &r->plan.tape, TAPE_HEAD, 0, i, r->embedding + i * s->hidden, s->hidden);
    r->d_tape = sim_gpu_alloc(r->plan.tape_bytes);
    sim_gpu_put(r->d_tape, tape, r->plan.tape_bytes);
    free(tape);
}

static void rig_open(struct rig *r, const struct shape *s) {
    struct reel_error err = { 0 };
    const struct model_config config = config_of(s);
    const struct gpu_limits gpu = { .name = "fake",
                                    .compute = s->compute,
                                    .n_sms = s->n_sms,
                                    .shared_bytes = s->compute == 86 ? 99 << 10 : 227 << 10,
                                    .registers = 65536,
                                    .max_threads = 1024 };
    const struct plan_options wishes = { .n_groups = s->groups,
                                         .group_sms = s->group_sms,
                                         .warps = s->warps,
                                         .prefill_tokens = TOKENS };
    *r = (struct rig){ .shape = *s };
    r->gpu = sim_gpu_open();
    r->gpu.cuda->gpu.n_sms = s->n_sms;
    if (plan_make(&r->plan, &config, &gpu, &wishes, &err) != REEL_OK) fail_msg("%s", err.text);
    if (r->plan.prefill_tokens != TOKENS) fail_msg("%s: no prefill", s->name);
    rig_compile(r);
    weights_make(r);
    const struct tape_segment *g = r->plan.tape.segment;
    r->n.qkv = r->rows[TAPE_QKV], r->n.q = r->columns[TAPE_OUT];
    r->n.x = g[TAPE_QKV].k_tiles * TILE_K;
    r->n.attention = s->groups * g[TAPE_OUT].k_tiles * TILE_K;
    r->n.gated = s->groups * g[TAPE_DOWN].k_tiles * TILE_K;
    r->n.ssq = s->group_sms * g[TAPE_OUT].row_tiles;
    const size_t n_norms = (size_t)((2 * LAYERS + 1) * s->hidden);
    r->norms = malloc(n_norms * sizeof(float));
    for (size_t i = 0; i < n_norms; i++)
        r->norms[i] = bf16_to_f32(bf16_from_f32(1.0f + 0.4f * uniform()));
    r->d_norms = sim_gpu_alloc(n_norms * sizeof(float));
    sim_gpu_put(r->d_norms, r->norms, n_norms * sizeof(float));
    r->d_embedding = sim_gpu_alloc((size_t)(VOCAB * s->hidden) * 2);
    sim_gpu_put(r->d_embedding, r->embedding, (size_t)(VOCAB * s->hidden) * 2);
    for (int i = 0; i < TOKENS; i++)
        r->ids[i] = (i * 37 + 11) % VOCAB;
    r->d_ids = sim_gpu_alloc(sizeof r->ids);
    sim_gpu_put(r->d_ids, r->ids, sizeof r->ids);
    r->d_abort = sim_gpu_alloc(4);
    r->d_scratch = sim_gpu_alloc(r->plan.scratch.bytes);
    r->before = calloc(1, r->plan.scratch.bytes), r->after = calloc(1, r->plan.scratch.bytes);
}

static void rig_close(struct rig *r) {
    sim_gpu_close();
    for (int i = 0; i < PREFILL_PRODUCTS; i++)
        free(r->weights[i]);
    free(r->embedding), free(r->norms), free(r->before), free(r->after);
}

/* Leaves what the steps made of `before` in `after`. */
static void rig_run(struct rig *r, int step, struct prefill_cut cut, int n_tokens,
                    const float *given, int seed) {
    const struct plan_scratch *s = &r->plan.scratch;
    unsigned char *scratch = (unsigned char *)(uintptr_t)r->d_scratch;
    const uint32_t zero = 0;
    struct prefill_args a = { .decode = { .n_tokens = n_tokens,
                                          .n_given = n_tokens,
                                          .patience = ~0u >> 1,
                                          .head_from = step,
                                          .hidden_from = LAYER },
                              .room = r->room,
                              .h = floats(scratch, s->h),
                              .ssq = floats(scratch, s->ssq),
                              .x = scratch + s->x,
                              .qkv = halves(scratch, s->qkv),
                              .attention = scratch + s->attention,
                              .gated = scratch + s->gated };
    unsigned long long d_given = 0;
    a.decode.tape = (unsigned char *)(uintptr_t)r->d_tape;
    a.decode.norms = (const float *)(uintptr_t)r->d_norms;
    a.decode.abort = (unsigned *)(uintptr_t)r->d_abort;
    if (!r->shape.tied) a.decode.embedding = (const uint16_t *)(uintptr_t)r->d_embedding;
    a.decode.ids = (const int *)(uintptr_t)r->d_ids;
    if (given) {
        const size_t bytes = (size_t)(n_tokens * r->shape.hidden) * sizeof(float);
        d_given = sim_gpu_alloc(bytes);
        sim_gpu_put(d_given, given, bytes);
        a.decode.embeddings = (const float *)(uintptr_t)d_given, a.decode.ids = NULL;
    }
    for (int i = 0; i < PREFILL_PRODUCTS; i++)
        a.cut[i] = cut;
    sim_gpu_put(r->d_scratch, r->before, s->bytes);
    sim_gpu_put(r->d_abort, &zero, sizeof zero);
    r->gpu.cuda->settings.seed = (uint64_t)seed, r->gpu.cuda->settings.in_order = seed < 0;
    void *params[] = { &a };
    const unsigned threads =
        step == EMBED ? PLAN_PREFILL_CONSUMERS : (unsigned)r->plan.prefill_threads;
    if (sim_gpu_launch("prefill_one", (unsigned)r->shape.n_sms, threads,
                       (unsigned)r->plan.prefill_shared, params))
        fail_msg("%s, step %d, cut %d %d, %d tokens, seed %d: %s", r->shape.name, step, cut.blocks,
                 cut.split_k, n_tokens, seed, r->gpu.cuda->report);
    sim_gpu_get(r->after, r->d_scratch, s->bytes);
}

/* ---- tests ---- */

static const struct shape shapes[] = {
    /* name, hidden, heads, KV heads, intermediate, groups, SMs a group, warps, GPU's SMs, compute
     */
    { "two groups of two", 128, 4, 2, 192, 2, 2, 4, 4, 90, true },
    { "hidden in two SMs of two tiles, few columns", 64, 2, 2, 36, 2, 2, 4, 5, 100, false },
    { "rows that fill no tile, three SMs", 64, 3, 1, 100, 1, 3, 6, 7, 86, true },
    { "four groups, odd slices", 192, 8, 4, 202, 4, 2, 6, 8, 90, false },
    { "nine row tiles of hidden", 128, 2, 1, 130, 1, 3, 4, 4, 100, true },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const struct prefill_cut cuts[] = { { 1, 0 }, { 2, 0 }, { 1, 1 }, { 1, 8 } };
enum { CUTS = sizeof cuts / sizeof *cuts };
static const int lengths[] = { 1, 7, 33, 64, 65, 130, 137, 261 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void check_step(struct rig *r, int phase, int n_tokens) {
    if (phase == TAPE_QKV) check_qkv(r, r->before, n_tokens);
    if (phase == TAPE_GATE_UP) check_gated(r, r->before, n_tokens);
    if (phase == TAPE_OUT || phase == TAPE_DOWN) {
        check_h(r, r->before, r->before, phase, n_tokens);
        check_normed(r, 2 * LAYER + (phase == TAPE_OUT ? 1 : 2), n_tokens);
    }
    check_alone(r, n_tokens);
}

/* Each length by half of the cuts and products, each of which has half of the lengths, but for
 * REEL_SOAK. */
static bool leave_out(int shape, int n, int cut, int phase) {
    return (shape + n + cut + phase) % 2 && !getenv("REEL_SOAK");
}

static void every_product_of_every_cut_matches(void **state) {
    (void)state;
    const struct share share = share_of("products", 3);
    for (int i = 0; i < SHAPES; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        int seed = 0;
        rig_open(&r, &shapes[i]);
        for (int n = 0; n < LENGTHS; n++)
            for (int cut = 0; cut < CUTS; cut++)
                for (int phase = 0; phase < PREFILL_PRODUCTS; phase++) {
                    if (cuts[cut].split_k == 8 && lengths[n] > 64) continue;
                    if (leave_out(i, n, cut, phase)) continue;
                    scratch_fill(&r, phase, cuts[cut], lengths[n]);
                    rig_run(&r, phase, cuts[cut], lengths[n], NULL, seed++);
                    check_step(&r, phase, lengths[n]);
                }
        rig_close(&r);
    }
}

static void embeddings_match_given_or_looked_up(void **state) {
    (void)state;
    const struct share share = share_of("embeddings", 3);
    for (int i = 0; i < SHAPES; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &shapes[i]);
        float *given = malloc((size_t)(TOKENS * shapes[i].hidden) * sizeof *given);
        for (int n = 0; n < TOKENS * shapes[i].hidden; n++)
            given[n] = uniform();
        for (int n = 0; n < LENGTHS; n++) {
            const struct prefill_cut *cut = &cuts[lengths[n] > 64 ? 0 : n % CUTS];
            scratch_fill(&r, EMBED, *cut, lengths[n]);
            rig_run(&r, EMBED, *cut, lengths[n], n % 2 ? given : NULL, n);
            check_embeddings(&r, lengths[n], n % 2 ? given : NULL);
            check_alone(&r, lengths[n]);
        }
        free(given);
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_match_given_or_looked_up),
        cmocka_unit_test(every_product_of_every_cut_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
