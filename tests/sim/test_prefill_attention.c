/* The attention of a prompt's chunk under the simulator against the CPU reference: chunks of all
 * kinds of lengths behind all kinds of positions, with rows that do not exist holding NaN. */
#include "base/numbers.h"
#include "cpu/reference.h"
#include "kernels/kv_layout.h"
#include "kernels/prefill_args.h"
#include "kernels/prefill_layout.h"
#include "model/dtype.h"
#include "plan/plan_layout.h"
#include "support/kv_rows.h"
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
    LAYERS = 2,
    LAYER = 1, /* the one that is run */
    TOKENS = 256,
    LONGEST = 400, /* positions */
    STAGES = 3,
    GROUP_SMS = 8,
    POISON = 0xffff
};

struct shape {
    const char *name;
    int groups, kv_heads; /* KV heads of all groups */
    int heads;            /* q heads of a KV head */
    int dim, qk_norm, copy;
    int rotary; /* entries of a head that turn; 0: all */
    int gated;
    enum kv_form form;
};

static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int rotary(const struct shape *s) { return s->rotary ? s->rotary : s->dim; }
static int wgmma(const struct shape *s) { return s->copy == 2; }

/* A timeline of one shape: what the products made of all its tokens, and what attention must make
 * of that. */
struct rig {
    struct shape shape;
    struct sim_gpu gpu;
    int q_heads, columns, pieces;
    int ring_bytes,
        other_bytes;   /* of shared memory of a block, with a ring of stages and without */
    int page, n_pages; /* pieces of a page; pages of the session */
    int out_columns;   /* of a group, padded to an odd number of k tiles more than there are */
    uint16_t *qkv;     /* [position][columns] */
    float *q;          /* [position][q head][dim], rotated */
    float *k, *v;      /* [kv head][position][dim], as cached */
    float *want;       /* [position][q head][dim] */
    float *inv, *norms;
    uint16_t *cache;
    size_t cache_bytes, out_bytes;
    unsigned long long d_qkv, d_out, d_cache, d_pages, d_inv, d_norms, d_words;
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static float normal(void) { return uniform() + uniform() + uniform(); }

/* ---- what must come out ---- */

static void row_rotate(const struct rig *r, float *row, int is_k, int position) {
    const int dim = r->shape.dim;
    float cosine[128], sine[128];
    if (r->shape.qk_norm)
        cpu_rms_norm(row, r->norms + (2 * LAYER + is_k) * dim, dim, 1e-6f, row, REF_FAST);
    cpu_rope_angles(r->inv, rotary(&r->shape), position, cosine, sine, REF_FAST);
    cpu_rope(row, rotary(&r->shape), cosine, sine, REF_FAST);
    cpu_store(row, dim, REF_FAST);
}

/* Row of k or v in the cache's values, or of q. */
static size_t kv_at(const struct rig *r, int kv_head, int position) {
    return (size_t)(kv_head * LONGEST + position) * (size_t)r->shape.dim;
}
static size_t q_at(const struct rig *r, int head, int position) {
    return (size_t)(position * r->q_heads + head) * (size_t)r->shape.dim;
}

/* The position's rows lie one behind the other: q, gates, k, v. */
static void rows_read(const uint16_t *from, int n, float *to) {
    for (int i = 0; i < n; i++)
        to[i] = bf16_to_f32(from[i]);
}

static struct kv_rows rows_of(const struct rig *r) {
    return (struct kv_rows){ .form = r->shape.form, .dim = r->shape.dim };
}

static void reference_position(struct rig *r, int p) {
    const int dim = r->shape.dim, kv_heads = r->shape.kv_heads, q_dim = r->q_heads * dim;
    const uint16_t *from = r->qkv + (size_t)p * (size_t)r->columns;
    const uint16_t *k = from + q_dim * (1 + r->shape.gated), *v = k + kv_heads * dim;
    const struct kv_rows rows = rows_of(r);
    float scores[LONGEST], gate[256];
    rows_read(from, q_dim, r->q + q_at(r, 0, p));
    for (int h = 0; h < r->q_heads; h++)
        row_rotate(r, r->q + q_at(r, h, p), 0, p);
    for (int h = 0; h < kv_heads; h++) {
        rows_read(k + h * dim, dim, r->k + kv_at(r, h, p));
        rows_read(v + h * dim, dim, r->v + kv_at(r, h, p));
        row_rotate(r, r->k + kv_at(r, h, p), 1, p);
        kv_row_round(&rows, 0, r->k + kv_at(r, h, p));
        kv_row_round(&rows, 1, r->v + kv_at(r, h, p));
    }
    for (int h = 0; h < r->q_heads; h++) {
        const size_t kv = kv_at(r, h / r->shape.heads, 0);
        float *want = r->want + q_at(r, h, p);
        cpu_attention(r->q + q_at(r, h, p), r->k + kv, r->v + kv, p + 1, (size_t)dim, dim,
                      1.0f / sqrtf((float)dim), scores, want, REF_FAST);
        if (!r->shape.gated) continue;
        rows_read(from + q_dim + h * dim, dim, gate);
        cpu_sigmoid_gate(want, gate, dim, REF_FAST);
    }
}

/* ---- the cache ---- */

static int cache_rows(const struct rig *r) { return LAYERS * r->shape.kv_heads; }

/* Bytes of a page, and where it begins in the cache: pages lie in the order opposite to that of
 * their positions, behind one that belongs to nobody. */
static int piece_bytes(const struct shape *s) { return (int)kv_piece_bytes((int)s->form, s->dim); }
static size_t page_bytes(const struct rig *r) {
    return (size_t)kv_piece_at(cache_rows(r), 0, r->page, piece_bytes(&r->shape));
}
static size_t page_at(const struct rig *r, int page) {
    return (size_t)(r->n_pages - page) * page_bytes(r);
}

static unsigned char *piece_of(const struct rig *r, int layer, int kv_head, int position) {
    const int row = layer * r->shape.kv_heads + kv_head, piece = position / KV_POSITIONS;
    const size_t at = page_at(r, piece / r->page) +
                      (size_t)kv_piece_at(row, piece, r->page, piece_bytes(&r->shape));
    return (unsigned char *)r->cache + at;
}

static void pages_open(struct rig *r) {
    unsigned long long table[64];
    r->n_pages = ceil_div(r->pieces, r->page), r->pieces = r->n_pages * r->page;
    assert_true(r->n_pages <= (int)(sizeof table / sizeof *table));
    r->cache_bytes = (size_t)(r->n_pages + 1) * page_bytes(r);
    r->cache = malloc(r->cache_bytes);
    r->d_cache = sim_gpu_alloc(r->cache_bytes);
    for (int i = 0; i < r->n_pages; i++)
        table[i] = r->d_cache + page_at(r, i);
    r->d_pages = sim_gpu_alloc((size_t)r->n_pages * sizeof *table);
    sim_gpu_put(r->d_pages, table, (size_t)r->n_pages * sizeof *table);
}

static bool nobody_wrote(const struct rig *r) {
    for (size_t i = 0; i < page_bytes(r) / 2; i++)
        if (r->cache[i] != POISON) return false;
    return true;
}

/* The cache as it is before `position`: all else holds NaN. */
static void cache_fill(struct rig *r, int position) {
    const struct kv_rows rows = rows_of(r);
    memset(r->cache, 0xff, r->cache_bytes);
    for (int h = 0; h < r->shape.kv_heads; h++)
        for (int p = 0; p < position; p++) {
            unsigned char *piece = piece_of(r, LAYER, h, p);
            kv_row_put(&rows, piece, 0, p, r->k + kv_at(r, h, p));
            kv_row_put(&rows, piece, 1, p, r->v + kv_at(r, h, p));
        }
    sim_gpu_put(r->d_cache, r->cache, r->cache_bytes);
}

static void row_check(const struct rig *r, const unsigned char *piece, int h, int p) {
    const struct kv_rows rows = rows_of(r);
    float row[256];
    for (int is_v = 0; is_v < 2; is_v++) {
        const float *want = (is_v ? r->v : r->k) + kv_at(r, h, p);
        kv_row_get(&rows, piece, is_v, p, row);
        const int i = kv_row_differs(&rows, is_v, row, want);
        if (i >= 0)
            fail_msg("%s: %s of head %d position %d dim %d: %g, want %g", r->shape.name,
                     is_v ? "v" : "k", h, p, i, (double)row[i], (double)want[i]);
    }
}

/* Every row below `end` as the reference has it, every other one and the other layer untouched. */
static void cache_check(struct rig *r, int end) {
    const struct kv_rows rows = rows_of(r);
    sim_gpu_get(r->cache, r->d_cache, r->cache_bytes);
    if (!nobody_wrote(r)) fail_msg("%s: a page of another session is written", r->shape.name);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int h = 0; h < r->shape.kv_heads; h++)
            for (int p = 0; p < r->pieces * KV_POSITIONS; p++) {
                const unsigned char *piece = piece_of(r, layer, h, p);
                if (layer == LAYER && p < end)
                    row_check(r, piece, h, p);
                else if (!kv_row_poisoned(&rows, piece, 0, p) ||
                         !kv_row_poisoned(&rows, piece, 1, p))
                    fail_msg("%s: row %d of layer %d is written", r->shape.name, p, layer);
            }
}

/* ---- compiling and launching ---- */

/* A model of the shape's heads in its groups. The shape says what the planner would choose for
 * itself: how copies and products are made, how many columns out's input has, and pages so small
 * that a session has several. Heads of other sizes than 64, 128 and 256 the planner leaves to the
 * decode kernel, so the tokens of a launch are said too. */
static void compile(struct rig *r) {
    const struct shape *s = &r->shape;
    const struct model_config config = { .family = MODEL_QWEN3,
                                         .hidden = 64,
                                         .n_layers = LAYERS,
                                         .n_heads = r->q_heads,
                                         .n_kv_heads = s->kv_heads,
                                         .head_dim = s->dim,
                                         .rotary_dim = rotary(s),
                                         .intermediate = 64,
                                         .vocab = 16,
                                         .max_context = 4096,
                                         .rms_eps = 1e-6f,
                                         .qk_norm = s->qk_norm,
                                         .tied = true,
                                         .gated_attention = s->gated };
    const struct plan_options options = {
        .n_groups = s->groups, .group_sms = GROUP_SMS, .warps = 4, .kv_form = (int)s->form
    };
    const struct plan_override overrides[] = { { "P_OUT_K_TILES", r->out_columns / TILE_K },
                                               { "P_PREFILL_TOKENS", TOKENS },
                                               { "P_PREFILL_STAGES", STAGES },
                                               { "P_KV_PAGE", r->page },
                                               { "G_COPY", s->copy },
                                               { "G_WGMMA", wgmma(s) } };
    const struct gpu_limits gpu = plan_defines_gpu(s->groups * GROUP_SMS);
    struct plan_defines d;
    plan_defines_make(&d, &config, &gpu, &options, overrides,
                      (int)(sizeof overrides / sizeof *overrides));
    r->ring_bytes = prefill_shared_bytes(STAGES, d.plan.prefill_k_places);
    r->other_bytes = prefill_shared_bytes(0, d.plan.prefill_k_places);
    sim_gpu_compile("prefill_attention.cu", d.list);
    plan_defines_release(&d);
}

static void rig_open(struct rig *r, const struct shape *s) {
    const int q_heads = s->kv_heads * s->heads,
              columns = (q_heads * (1 + s->gated) + 2 * s->kv_heads) * s->dim;
    *r = (struct rig){ .shape = *s, .q_heads = q_heads, .columns = columns };
    r->pieces = LONGEST / KV_POSITIONS;
    for (r->page = 1; r->page < kv_half_pieces((int)s->form, STAGE_BYTES / 2, piece_bytes(s));)
        r->page *= 2;
    r->out_columns = q_heads / s->groups * s->dim + TILE_K;
    r->gpu = sim_gpu_open();
    random_state = 1;
    compile(r);
    const size_t n_qkv = (size_t)LONGEST * (size_t)columns, n_norms = (size_t)(LAYERS * 2 * s->dim);
    const size_t n_q = (size_t)(LONGEST * q_heads * s->dim),
                 n_kv = (size_t)(LONGEST * s->kv_heads * s->dim), n_inv = (size_t)s->dim / 2;
    r->qkv = malloc(n_qkv * sizeof *r->qkv);
    r->q = malloc(n_q * sizeof(float)), r->want = malloc(n_q * sizeof(float));
    r->k = malloc(n_kv * sizeof(float)), r->v = malloc(n_kv * sizeof(float));
    r->inv = malloc(n_inv * sizeof(float)), r->norms = malloc(n_norms * sizeof(float));
    for (size_t i = 0; i < n_qkv; i++)
        r->qkv[i] = bf16_from_f32(normal());
    for (size_t i = 0; i < n_inv; i++)
        r->inv[i] = powf(10000.0f, -2.0f * (float)i / (float)rotary(s));
    for (size_t i = 0; i < n_norms; i++)
        r->norms[i] = bf16_to_f32(bf16_from_f32(1.0f + 0.4f * uniform()));
    for (int p = 0; p < LONGEST; p++)
        reference_position(r, p);
    pages_open(r);
    r->out_bytes = (size_t)TOKENS * (size_t)((s->groups * r->out_columns + 63) / 64 * 64) * 2;
    r->d_qkv = sim_gpu_alloc((size_t)(TOKENS * columns) * 2);
    r->d_out = sim_gpu_alloc(r->out_bytes);
    r->d_inv = sim_gpu_alloc(n_inv * 4), r->d_norms = sim_gpu_alloc(n_norms * 4);
    r->d_words = sim_gpu_alloc(8);
    sim_gpu_put(r->d_inv, r->inv, n_inv * 4);
    sim_gpu_put(r->d_norms, r->norms, n_norms * 4);
}

static void rig_close(struct rig *r) {
    sim_gpu_close();
    free(r->qkv), free(r->q), free(r->want), free(r->k), free(r->v), free(r->inv), free(r->norms),
        free(r->cache);
}

/* ---- a chunk ---- */

/* Activations of the chunk's tokens; beyond them, and in the padding, nothing is written. */
static void out_check(const struct rig *r, const unsigned char *out, int position, int n) {
    const int dim = r->shape.dim, group_heads = r->q_heads / r->shape.groups;
    const struct kv_rows rows = rows_of(r);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < r->q_heads; h++) {
            const float *want = r->want + q_at(r, h, int_min(position + t, LONGEST - 1));
            const int column = h / group_heads * r->out_columns + h % group_heads * dim;
            double error = 0, size = 0;
            for (int i = 0; i < dim; i++) {
                uint16_t bits;
                memcpy(&bits, out + activation_at(TOKENS, t, column + i), 2);
                const double d = (double)bf16_to_f32(bits) - (double)want[i];
                error += d * d, size += (double)want[i] * (double)want[i];
                if (t >= n && bits) fail_msg("%s: token %d of %d is written", r->shape.name, t, n);
            }
            if (t < n && !(sqrt(error / size) < (dim < 64 ? 1.2e-2 : 8e-3) * kv_rows_factor(&rows)))
                fail_msg("%s: head %d of token %d of %d from position %d: error %.1e",
                         r->shape.name, h, t, n, position, sqrt(error / size));
        }
    for (int t = 0; t < TOKENS; t++)
        for (int c = group_heads * dim; c < r->out_columns; c++)
            if (out[activation_at(TOKENS, t, c)]) fail_msg("%s: padding is not 0", r->shape.name);
}

static void run(struct rig *r, int position, int n, int blocks, int seed) {
    struct prefill_args a = { .room = TOKENS };
    int layer = LAYER;
    void *params[] = { &a, &layer };
    unsigned char *out = calloc(1, r->out_bytes);
    a.decode.position = position, a.decode.n_tokens = n;
    a.decode.patience = ~0u >> 1;
    a.decode.kv_pages = (const unsigned long long *)(uintptr_t)r->d_pages;
    a.decode.rope = (const float *)(uintptr_t)r->d_inv;
    a.decode.qkv_vectors = r->shape.qk_norm ? (const float *)(uintptr_t)r->d_norms : NULL;
    a.decode.abort = (unsigned *)(uintptr_t)r->d_words;
    a.qkv = (unsigned short *)(uintptr_t)r->d_qkv;
    a.attention = (unsigned char *)(uintptr_t)r->d_out;
    cache_fill(r, position);
    sim_gpu_put(r->d_words, out, 8);
    sim_gpu_put(r->d_out, out, r->out_bytes);
    sim_gpu_put(r->d_qkv, r->qkv + (size_t)position * (size_t)r->columns,
                (size_t)(n * r->columns) * 2);
    r->gpu.cuda->settings.seed = (uint64_t)seed;
    const unsigned few = PLAN_PREFILL_CONSUMERS, many = few + (wgmma(&r->shape) ? 4 * 32 : 32);
    if (sim_gpu_launch("rope", (unsigned)blocks, few, (unsigned)r->other_bytes, params) ||
        sim_gpu_launch("attention", (unsigned)blocks, many, (unsigned)r->ring_bytes, params))
        fail_msg("%s, %d tokens from position %d on %d blocks, seed %d: %s", r->shape.name, n,
                 position, blocks, seed, r->gpu.cuda->report);
    sim_gpu_get(out, r->d_out, r->out_bytes);
    out_check(r, out, position, n);
    free(out);
    cache_check(r, position + n);
}

/* ---- tests ---- */

static const struct shape shapes[] = {
    { "two q heads of 128 a KV head", 1, 2, 2, 128, 1, 2, 0, 0, KV_BF16 },
    { "three q heads of 64 a KV head, without norms, two groups", 2, 2, 3, 64, 0, 2, 0, 0,
      KV_BF16 },
    { "one q head of 64 a KV head", 1, 1, 1, 64, 1, 2, 0, 0, KV_BF16 },
    { "three q heads of 80 a KV head, cp.async", 1, 1, 3, 80, 0, 1, 0, 0, KV_BF16 },
    { "one q head of 256 a KV head", 1, 1, 1, 256, 1, 2, 0, 0, KV_BF16 },
    { "five q heads of 32 a KV head", 1, 1, 5, 32, 1, 2, 0, 0, KV_BF16 },
    { "four gated q heads of 256, of which 64 entries turn", 1, 1, 4, 256, 1, 2, 64, 1, KV_BF16 },
    { "two gated q heads of 32 a KV head, of which 8 entries turn, two groups", 2, 2, 2, 32, 1, 2,
      8, 1, KV_BF16 },
    { "three gated q heads of 64, of which 24 turn, without norms, cp.async", 1, 1, 3, 64, 0, 1, 24,
      1, KV_BF16 },
    { "two q heads of 128 a KV head, int8", 1, 2, 2, 128, 1, 2, 0, 0, KV_INT8 },
    { "three q heads of 64 a KV head, without norms, two groups, fp8", 2, 2, 3, 64, 0, 2, 0, 0,
      KV_FP8 },
    { "three q heads of 80 a KV head, cp.async, int8", 1, 1, 3, 80, 0, 1, 0, 0, KV_INT8 },
    { "four gated q heads of 256, of which 64 entries turn, fp8", 1, 1, 4, 256, 1, 2, 64, 1,
      KV_FP8 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, GATED_256 = 6, IN_CODES = 9 };

static const int lengths[] = { 1, 15, 16, 17, 40, 130 }, positions[] = { 0, 5, 16, 33 };
enum {
    LENGTHS = sizeof lengths / sizeof *lengths,
    POSITIONS = sizeof positions / sizeof *positions
};

/* Soaking: every length at every position, of the first two shapes. */
static void chunks_of_all_lengths_match_at_all_positions(void **state) {
    (void)state;
    const int soak = getenv("REEL_SOAK") != NULL;
    for (int s = 0; s < SHAPES; s++) {
        struct rig r;
        rig_open(&r, &shapes[s]);
        for (int i = 0; i < LENGTHS; i++)
            for (int p = 0; p < POSITIONS; p++)
                if (soak ? s < 2 || (i + p) % 3 == 0 || (s == GATED_256 && (i + p) % 2)
                         : (i + p + s) % (s < 2 ? 2 : 4) == 0)
                    run(&r, positions[p], lengths[i], 1 + (i + p) % 4, 100 * s + 10 * i + p);
        rig_close(&r);
    }
}

/* Several stages of positions, some of which are wholly masked for some warps. */
static void long_timelines_match(void **state) {
    (void)state;
    const int some[] = { 0, 1, 2, GATED_256, IN_CODES, IN_CODES + 1 };
    for (int s = 0; s < 6; s++) {
        struct rig r;
        rig_open(&r, &shapes[some[s]]);
        if (s % 2 == 0 || getenv("REEL_SOAK")) run(&r, 0, 250, 1, 1);
        run(&r, 301, 99, 2, 2);
        run(&r, 390, 3, 4, 3);
        rig_close(&r);
    }
}

static void any_schedule_gives_the_same(void **state) {
    (void)state;
    const int schedules = getenv("REEL_SOAK") ? 1000 : 8;
    const int some[] = { 0, 1, 2, 3, GATED_256, IN_CODES, IN_CODES + 1 };
    for (int s = 0; s < 7; s++) {
        struct rig r;
        rig_open(&r, &shapes[some[s]]);
        for (int seed = 0; seed < (some[s] == GATED_256 ? schedules / 4 : schedules); seed++)
            run(&r, 29 + seed % 40, 1 + seed * 7 % 50, 1 + seed % 4, seed);
        rig_close(&r);
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(chunks_of_all_lengths_match_at_all_positions),
        in_turn(long_timelines_match),
        cmocka_unit_test(any_schedule_gives_the_same),
    };
    SHARE_TESTS("prefill-attention", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
