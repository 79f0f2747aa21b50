/* Attention's device code under the simulator against the CPU reference: every position around
 * piece and split boundaries, with rows that do not exist yet holding NaN. */
#include "cpu/reference.h"
#include "kernels/args.h"
#include "kernels/kv_layout.h"
#include "model/dtype.h"
#include "support/kv_rows.h"
#include "support/mutations.h"
#include "support/plan_defines.h"
#include "support/shares.h"
#include "support/sim_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A plan has no room for merged words where it would not scatter, so the test puts them behind what
 * any plan here has. */
enum { LAYERS = 2, WARPS = 4, POISON = 0xffff, MERGED_WORD = 8 << 10 };

struct shape {
    const char *name;
    int groups, group_sms;
    int kv_heads, heads; /* of a group: KV heads, q heads of each */
    int dim, qk_norm;
    int attention_warps, kv_slots, copy;
    int registers; /* of a consumer: how much is taken before q is there */
    int rotary;    /* entries of a head that turn; 0: all */
    int gated;
    int scatter; /* members merge their share of the columns each */
    enum kv_form form;
    int given; /* the model's file has scales of K and V */
};

/* A session of one shape: inputs of all its tokens, what the reference makes of them, its cache. */
struct rig {
    struct shape shape;
    struct plan plan;
    struct sim_gpu gpu;
    int n, pieces;              /* positions there is room for */
    int page, n_pages;          /* pieces of a page; pages of the session */
    int group_words, out_words; /* of a group: q, gates, k, v; the result, padded */
    uint32_t *words;            /* [position][layer][group][group_words] */
    float *want;                /* [position][layer][head][dim] */
    float *k, *v;               /* as cached: [layer][kv head][position][dim] */
    float *inv, *norms;
    uint16_t *cache; /* pieces */
    size_t cache_bytes;
    unsigned long long d_words, d_cache, d_pages, d_exchange, d_out, d_abort, d_inv, d_norms;
    unsigned exchange_words;
    char wrong[200]; /* what the last launch made of it, or "" */
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static float normal(void) { return uniform() + uniform() + uniform(); }

static int rotary(const struct shape *s) { return s->rotary ? s->rotary : s->dim; }

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

/* ---- what must come out ---- */

static float word_value(const uint32_t *words, int i) {
    return bf16_to_f32((uint16_t)(words[i / 2] >> (i % 2 * 16)));
}

/* One head's row as it is used: normed, rotated, rounded. */
static void make_row(const struct rig *r, const uint32_t *words, int row, int layer, int is_k,
                     int position, float *out) {
    const int dim = r->shape.dim;
    float cosine[128], sine[128];
    for (int i = 0; i < dim; i++)
        out[i] = word_value(words, row * dim + i);
    if (r->shape.qk_norm)
        cpu_rms_norm(out, r->norms + (2 * layer + is_k) * dim, dim, 1e-6f, out, REF_FAST);
    cpu_rope_angles(r->inv, rotary(&r->shape), position, cosine, sine, REF_FAST);
    cpu_rope(out, rotary(&r->shape), cosine, sine, REF_FAST);
    cpu_store(out, dim, REF_FAST);
}

/* One head's result, from its q and the cache. */
static void reference_head(const struct rig *r, const uint32_t *words, int head, const float *q,
                           const float *k, const float *v, int n, float *scores, float *out) {
    const int dim = r->shape.dim, heads = r->shape.kv_heads * r->shape.heads;
    float gate[256];
    cpu_attention(q, k, v, n, (size_t)dim, dim, 1.0f / sqrtf((float)dim), scores, out, REF_FAST);
    if (!r->shape.gated) return;
    for (int i = 0; i < dim; i++)
        gate[i] = word_value(words, (heads + head) * dim + i);
    cpu_sigmoid_gate(out, gate, dim, REF_FAST);
}

/* A file's scales: another one for each layer, KV head and vector; some heads have none. */
static float given_scale(const struct rig *r, int layer, int h, int is_v) {
    const int i = (layer * r->shape.groups * r->shape.kv_heads + h) * 2 + is_v;
    return r->shape.given && i % 3 ? 0.002f * (float)(4 + i) : 0;
}

static struct kv_rows rows_of(const struct rig *r, int layer, int h) {
    return (struct kv_rows){ r->shape.form,
                             r->shape.dim,
                             { given_scale(r, layer, h, 0), given_scale(r, layer, h, 1) } };
}

static void reference_token(struct rig *r, int position, int layer) {
    const struct shape *s = &r->shape;
    const int all_kv = s->groups * s->kv_heads, dim = s->dim;
    float q[256], *scores = malloc((size_t)r->n * sizeof *scores);
    for (int g = 0; g < s->groups; g++) {
        const uint32_t *words =
            r->words + ((size_t)(position * LAYERS + layer) * (size_t)s->groups + (size_t)g) *
                           (size_t)r->group_words;
        const int q_rows = s->kv_heads * s->heads, rows = q_rows * (1 + s->gated);
        for (int h = 0; h < s->kv_heads; h++) {
            float *k = r->k + ((size_t)(layer * all_kv + g * s->kv_heads + h) * (size_t)r->n) *
                                  (size_t)dim;
            float *v = r->v + (k - r->k);
            make_row(r, words, rows + h, layer, 1, position, k + (size_t)position * (size_t)dim);
            for (int i = 0; i < dim; i++)
                v[(size_t)position * (size_t)dim + (size_t)i] =
                    word_value(words, (rows + s->kv_heads + h) * dim + i);
            const struct kv_rows kv = rows_of(r, layer, g * s->kv_heads + h);
            kv_row_round(&kv, 0, k + (size_t)position * (size_t)dim);
            kv_row_round(&kv, 1, v + (size_t)position * (size_t)dim);
            for (int c = 0; c < s->heads; c++) {
                const int head = (g * s->kv_heads + h) * s->heads + c;
                make_row(r, words, h * s->heads + c, layer, 0, position, q);
                float *want =
                    r->want + ((size_t)(position * LAYERS + layer) * (size_t)(all_kv * s->heads) +
                               (size_t)head) *
                                  (size_t)dim;
                reference_head(r, words, h * s->heads + c, q, k, v, position + 1, scores, want);
            }
        }
    }
    free(scores);
}

/* ---- the cache ---- */

static int cache_rows(const struct rig *r) { return LAYERS * r->shape.groups * r->shape.kv_heads; }

/* Bytes of a page, and where it begins in the cache: pages lie in the order opposite to that of
 * their positions, behind one that belongs to nobody. */
static int piece_bytes(const struct rig *r) {
    return (int)kv_piece_bytes((int)r->shape.form, r->shape.dim);
}
static size_t page_bytes(const struct rig *r) {
    return (size_t)kv_piece_at(cache_rows(r), 0, r->page, piece_bytes(r));
}
static size_t page_at(const struct rig *r, int page) {
    return (size_t)(r->n_pages - page) * page_bytes(r);
}

static unsigned char *piece_of(const struct rig *r, int layer, int kv_head, int position) {
    const int row = layer * r->shape.groups * r->shape.kv_heads + kv_head,
              piece = position / KV_POSITIONS;
    const size_t at =
        page_at(r, piece / r->page) + (size_t)kv_piece_at(row, piece, r->page, piece_bytes(r));
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

/* The cache as it is before `position`: rows from there on hold NaN. */
static void cache_fill(struct rig *r, int position) {
    const int dim = r->shape.dim, all_kv = r->shape.groups * r->shape.kv_heads;
    memset(r->cache, 0xff, r->cache_bytes);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int h = 0; h < all_kv; h++)
            for (int p = 0; p < position; p++) {
                const struct kv_rows rows = rows_of(r, layer, h);
                unsigned char *piece = piece_of(r, layer, h, p);
                const size_t at =
                    ((size_t)(layer * all_kv + h) * (size_t)r->n + (size_t)p) * (size_t)dim;
                kv_row_put(&rows, piece, 0, p, r->k + at);
                kv_row_put(&rows, piece, 1, p, r->v + at);
            }
    sim_gpu_put(r->d_cache, r->cache, r->cache_bytes);
}

static bool wrong(struct rig *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(r->wrong, sizeof r->wrong, format, args);
    va_end(args);
    return false;
}

/* A row of a KV head as the reference has it. */
static bool row_right(struct rig *r, int layer, int h, int p) {
    const int dim = r->shape.dim, all_kv = r->shape.groups * r->shape.kv_heads;
    const struct kv_rows rows = rows_of(r, layer, h);
    const size_t at = ((size_t)(layer * all_kv + h) * (size_t)r->n + (size_t)p) * (size_t)dim;
    float row[256];
    for (int is_v = 0; is_v < 2; is_v++) {
        const float *want = (is_v ? r->v : r->k) + at;
        kv_row_get(&rows, piece_of(r, layer, h, p), is_v, p, row);
        const int i = kv_row_differs(&rows, is_v, row, want);
        if (i >= 0)
            return wrong(r, "%s of layer %d head %d position %d dim %d: %g, want %g",
                         is_v ? "v" : "k", layer, h, p, i, (double)row[i], (double)want[i]);
    }
    return true;
}

static bool row_untouched(struct rig *r, int layer, int h, int p) {
    const struct kv_rows rows = rows_of(r, layer, h);
    const unsigned char *piece = piece_of(r, layer, h, p);
    if (!kv_row_poisoned(&rows, piece, 0, p) || !kv_row_poisoned(&rows, piece, 1, p))
        return wrong(r, "row %d is written", p);
    return true;
}

/* Every row below `end` as the reference has it, every one beyond still poisoned. */
static bool cache_right(struct rig *r, int end) {
    const int all_kv = r->shape.groups * r->shape.kv_heads;
    sim_gpu_get(r->cache, r->d_cache, r->cache_bytes);
    if (!nobody_wrote(r)) return wrong(r, "a page of another session is written");
    for (int layer = 0; layer < LAYERS; layer++)
        for (int h = 0; h < all_kv; h++)
            for (int p = 0; p < r->pieces * KV_POSITIONS; p++)
                if (p < end ? !row_right(r, layer, h, p) : !row_untouched(r, layer, h, p))
                    return false;
    return true;
}

/* ---- compiling and launching ---- */

/* A model of the shape's heads in its groups, hidden so large that a SM has two tiles of out's
 * rows. What the planner would choose for itself the shape says: how many warps attend, how the
 * members merge, how registers limit what is taken early. */
static void compile(struct rig *r) {
    const struct shape *s = &r->shape;
    const int kv_heads = s->groups * s->kv_heads;
    const struct model_config config = { .family = MODEL_QWEN3,
                                         .hidden = 2 * TILE_ROWS * s->group_sms,
                                         .n_layers = LAYERS,
                                         .n_heads = kv_heads * s->heads,
                                         .n_kv_heads = kv_heads,
                                         .head_dim = s->dim,
                                         .rotary_dim = rotary(s),
                                         .intermediate = 128,
                                         .vocab = 16,
                                         .max_context = 4096,
                                         .rms_eps = 1e-6f,
                                         .qk_norm = s->qk_norm,
                                         .tied = true,
                                         .gated_attention = s->gated };
    const struct plan_options options = { .n_groups = s->groups,
                                          .group_sms = s->group_sms,
                                          .warps = WARPS,
                                          .epilogue_warps = 1,
                                          .kv_slots = s->kv_slots,
                                          .kv_form = (int)s->form,
                                          .kv_given = s->given };
    const struct plan_override overrides[] = { { "P_ATTENTION_WARPS", s->attention_warps },
                                               { "P_MERGE_SCATTER", s->scatter },
                                               { "X_MERGED", MERGED_WORD },
                                               { "P_KV_PAGE", r->page },
                                               { "P_PRELOAD_TILES", 4 },
                                               { "P_REGISTERS_CONSUMER", s->registers },
                                               { "G_REGISTERS", 1 },
                                               { "G_COPY", s->copy } };
    const struct gpu_limits gpu = plan_defines_gpu(s->groups * s->group_sms);
    struct plan_defines d;
    plan_defines_make(&d, &config, &gpu, &options, overrides,
                      (int)(sizeof overrides / sizeof *overrides));
    assert_true(d.plan.n_words <= MERGED_WORD);
    r->plan = d.plan;
    r->exchange_words = (unsigned)(MERGED_WORD + s->groups * d.plan.tape.group_q / 2);
    r->out_words = d.plan.tape.segment[TAPE_OUT].k_tiles * TILE_K / 2;
    sim_gpu_compile("attention.cu", d.list);
    plan_defines_release(&d);
}

static void rig_open(struct rig *r, const struct shape *s, int n, const struct fake_patch *patch) {
    const int all_kv = s->groups * s->kv_heads, heads = all_kv * s->heads;
    *r = (struct rig){ .shape = *s, .n = n, .pieces = ceil_div(n, KV_POSITIONS), .page = 2 };
    r->gpu = sim_gpu_open();
    random_state = 1;
    r->gpu.cuda->gpu.n_sms = 20;
    r->gpu.nvrtc->patches = patch, r->gpu.nvrtc->n_patches = patch != NULL;
    r->group_words = s->kv_heads * (s->heads * (1 + s->gated) + 2) * s->dim / 2;
    compile(r);
    const size_t rows = (size_t)n * LAYERS, n_words = rows * (size_t)(s->groups * r->group_words);
    const size_t kv = (size_t)(LAYERS * all_kv * n * s->dim);
    const size_t n_gains = (size_t)(s->qk_norm ? LAYERS * 2 * s->dim : 0);
    const size_t n_norms = (size_t)(LAYERS * 2 * (s->dim + all_kv));
    r->words = malloc(n_words * 4);
    r->want = malloc(rows * (size_t)(heads * s->dim) * sizeof(float));
    r->k = malloc(kv * sizeof(float)), r->v = malloc(kv * sizeof(float));
    r->inv = malloc((size_t)s->dim / 2 * sizeof(float)), r->norms = malloc(n_norms * sizeof(float));
    for (size_t i = 0; i < n_words; i++)
        r->words[i] = bf16_from_f32(normal()) | (uint32_t)bf16_from_f32(normal()) << 16;
    for (int i = 0; i < s->dim / 2; i++)
        r->inv[i] = powf(10000.0f, -2.0f * (float)i / (float)rotary(s));
    for (int i = 0; i < LAYERS * 2 * s->dim; i++)
        r->norms[i] = bf16_to_f32(bf16_from_f32(1.0f + 0.4f * uniform()));
    for (int i = 0; i < LAYERS * all_kv * 2; i++) /* behind the gains */
        r->norms[n_gains + (size_t)i] = given_scale(r, i / 2 / all_kv, i / 2 % all_kv, i % 2);
    for (int p = 0; p < n; p++)
        for (int layer = 0; layer < LAYERS; layer++)
            reference_token(r, p, layer);
    pages_open(r);
    r->d_words = sim_gpu_alloc(n_words * 4);
    sim_gpu_put(r->d_words, r->words, n_words * 4);
    r->d_exchange = sim_gpu_alloc(r->exchange_words * 8);
    r->d_out = sim_gpu_alloc(rows * (size_t)(s->groups * s->group_sms * r->out_words) * 4);
    r->d_abort = sim_gpu_alloc(4);
    r->d_inv = sim_gpu_alloc((size_t)s->dim / 2 * 4), r->d_norms = sim_gpu_alloc(n_norms * 4);
    sim_gpu_put(r->d_inv, r->inv, (size_t)s->dim / 2 * 4);
    sim_gpu_put(r->d_norms, r->norms, n_norms * 4);
}

static void rig_close(struct rig *r) {
    sim_gpu_close();
    free(r->words), free(r->want), free(r->k), free(r->v), free(r->inv), free(r->norms),
        free(r->cache);
}

/* A token's results on every SM of a group against the reference; padding words are 0. */
static bool token_right(struct rig *r, const uint32_t *out, int position, int layer) {
    const struct shape *s = &r->shape;
    const int q_heads = s->kv_heads * s->heads, dim = s->dim, sms = s->groups * s->group_sms;
    const struct kv_rows rows = rows_of(r, layer, 0);
    const size_t token = (size_t)(position * LAYERS + layer) * (size_t)(s->groups * q_heads);
    for (int b = 0; b < sms; b++) {
        const uint32_t *mine = out + (size_t)b * (size_t)r->out_words;
        for (int h = 0; h < q_heads; h++) {
            const float *want =
                r->want + (token + (size_t)(b / s->group_sms * q_heads + h)) * (size_t)dim;
            double error = 0, size = 0;
            for (int i = 0; i < dim; i++) {
                double d = (double)word_value(mine, h * dim + i) - (double)want[i];
                error += d * d, size += (double)want[i] * (double)want[i];
            }
            if (!(sqrt(error / size) < (dim < 64 ? 1.2e-2 : 8e-3) * kv_rows_factor(&rows)))
                return wrong(r, "block %d, layer %d, head %d: error %.1e at position %d", b, layer,
                             h, sqrt(error / size), position);
        }
        for (int i = q_heads * dim / 2; i < r->out_words; i++)
            if (mine[i]) return wrong(r, "padding is not 0");
    }
    return true;
}

static bool out_right(struct rig *r, int position, int n_tokens) {
    const size_t words = (size_t)(r->shape.groups * r->shape.group_sms) * (size_t)r->out_words;
    uint32_t *out = malloc((size_t)(n_tokens * LAYERS) * words * 4);
    bool right = true;
    sim_gpu_get(out, r->d_out, (size_t)(n_tokens * LAYERS) * words * 4);
    for (int i = 0; i < n_tokens * LAYERS && right; i++)
        right = token_right(r, out + (size_t)i * words, position + i / LAYERS, i % LAYERS);
    free(out);
    return right;
}

/* Whether a launch makes of these positions what the reference does; r->wrong says what not. */
static bool runs_right(struct rig *r, int position, int n_tokens, int split_from, int cap,
                       int seed) {
    const struct shape *s = &r->shape;
    struct decode_args a = { .position = position,
                             .n_tokens = n_tokens,
                             .split_from = split_from,
                             .epoch = 0xfffffff0u,
                             .patience = ~0u,
                             .cap_kv = cap };
    const size_t skip = (size_t)(position * LAYERS * s->groups * r->group_words);
    a.kv_pages = (const unsigned long long *)(uintptr_t)r->d_pages;
    a.words = (unsigned long long *)(uintptr_t)r->d_exchange;
    a.embeddings = (const float *)(uintptr_t)(r->d_words + skip * 4);
    a.hidden = (float *)(uintptr_t)r->d_out;
    a.rope = (const float *)(uintptr_t)r->d_inv;
    a.qkv_vectors = s->qk_norm || s->given ? (const float *)(uintptr_t)r->d_norms : NULL;
    a.abort = (unsigned *)(uintptr_t)r->d_abort;
    void *params[] = { &a };
    void *zeros = calloc(r->exchange_words, 8);
    sim_gpu_put(r->d_exchange, zeros, r->exchange_words * 8);
    sim_gpu_put(r->d_abort, zeros, 4);
    free(zeros);
    cache_fill(r, position);
    r->wrong[0] = 0;
    r->gpu.cuda->settings.seed = (uint64_t)seed;
    if (sim_gpu_launch("attention", (unsigned)(s->groups * s->group_sms), (unsigned)r->plan.threads,
                       (unsigned)r->plan.shared_bytes, params))
        return wrong(r, "%.180s", r->gpu.cuda->report);
    return out_right(r, position, n_tokens) && cache_right(r, position + n_tokens);
}

static void run(struct rig *r, int position, int n_tokens, int split_from, int cap, int seed) {
    if (!runs_right(r, position, n_tokens, split_from, cap, seed))
        fail_msg("%s, positions %d to %d, split from %d, seed %d: %s", r->shape.name, position,
                 position + n_tokens - 1, split_from, seed, r->wrong);
}

enum { NEVER = 1 << 30 };

/* ---- tests ---- */

static const struct shape gated[] = {
    { "four gated heads of 256, members merge shares", 1, 5, 1, 4, 256, 1, 4, 4, 2, 224, 64, 1, 1,
      KV_BF16, 0 },
    { "four gated heads of 256, everyone merges", 1, 3, 1, 4, 256, 1, 2, 2, 2, 224, 64, 1, 0,
      KV_BF16, 0 },
    { "gated heads of 32 in two groups, shares", 2, 4, 1, 2, 32, 1, 2, 4, 2, 224, 8, 1, 1, KV_BF16,
      0 },
};
enum { GATED = sizeof gated / sizeof *gated };

static const struct shape shapes[] = {
    { "one KV head, two q heads of 128", 2, 3, 1, 2, 128, 1, 2, 2, 2, 224, 0, 0, 0, KV_BF16, 0 },
    { "two KV heads of 64 without norms, slots in two rounds", 1, 2, 2, 3, 64, 0, 4, 8, 2, 128, 0,
      0, 0, KV_BF16, 0 },
    { "eight q heads of 80", 1, 2, 1, 8, 80, 1, 3, 6, 2, 200, 0, 0, 0, KV_BF16, 0 },
    { "one q head of 256", 1, 2, 1, 1, 256, 1, 2, 4, 2, 224, 0, 0, 0, KV_BF16, 0 },
    { "cp.async", 1, 2, 2, 2, 64, 1, 2, 2, 1, 224, 0, 0, 0, KV_BF16, 0 },
    { "few registers", 1, 2, 1, 2, 128, 1, 2, 2, 2, 80, 0, 0, 0, KV_BF16, 0 },
    { "two gated heads of 32, of which 8 turn", 2, 2, 1, 2, 32, 1, 2, 4, 2, 224, 8, 1, 0, KV_BF16,
      0 },
    { "eight gated heads of 32 on two KV heads, shares, cp.async", 1, 3, 2, 4, 32, 1, 2, 4, 1, 200,
      8, 1, 1, KV_BF16, 0 },
    { "more members than shares", 1, 7, 1, 2, 32, 1, 1, 1, 2, 224, 8, 1, 1, KV_BF16, 0 },
    { "shares without gates, all entries turn", 2, 3, 1, 3, 80, 0, 2, 2, 2, 224, 0, 0, 1, KV_BF16,
      0 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void all_positions_to_300_match(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, &shapes[0], 304, NULL);
    run(&r, 0, 150, NEVER, 2, 1);
    run(&r, 150, 154, 0, 1, 4);
    if (getenv("REEL_SOAK")) {
        run(&r, 150, 154, NEVER, 1, 2);
        run(&r, 0, 150, 0, 2, 3);
    }
    rig_close(&r);
}

/* Alone, and split from the first position on: the members come in one after the other. */
static void gated_heads_match_at_positions_0_to_70(void **state) {
    (void)state;
    const int all = getenv("REEL_SOAK") != NULL;
    const struct share share = share_of("gated-heads", GATED);
    for (int i = 0; i < GATED; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &gated[i], 80, NULL);
        for (int split = 0; split < 2; split++) /* soaking: all of them both ways */
            for (int n = 0; n < 71; n += 36)
                if (all || (n > 0) == split)
                    run(&r, n, n ? 35 : 36, split ? 0 : NEVER, split ? 2 : 4, 9 + 10 * split + i);
        rig_close(&r);
    }
}

static void shapes_match_around_pieces_and_splits(void **state) {
    (void)state;
    const struct share share = share_of("attention-shapes", 5);
    for (int i = 1; i < SHAPES; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &shapes[i], 100, NULL);
        if (i % 2 || getenv("REEL_SOAK")) run(&r, 0, 20, NEVER, 8, 5);
        run(&r, 26, 24, 40, 3, 6);
        run(&r, 44, 6, 48, 1, 7);
        run(&r, 78, 22, 0, 4, 8);
        rig_close(&r);
    }
}

static void any_schedule_gives_the_same(void **state) {
    (void)state;
    const int schedules = getenv("REEL_SOAK") ? 2000 : 6;
    const struct share share = share_of("attention-schedules", 4);
    for (int i = 0; i < 4; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, i < 2 ? &shapes[i] : &gated[i == 2 ? 0 : 2], 100, NULL);
        for (int seed = 0; seed < (i < 2 ? schedules : schedules / 2); seed++)
            run(&r, 29 + seed % 40, 4, 33 + seed % 32, 1 + seed % 3, seed);
        rig_close(&r);
    }
}

/* More members than a warp asks at once, and than there are shares. */
static void many_members_merge_in_turns(void **state) {
    (void)state;
    const struct shape many[] = {
        { "20 members, shares", 1, 20, 1, 2, 32, 1, 1, 1, 2, 80, 8, 1, 1, KV_BF16, 0 },
        { "20 members, everyone merges", 1, 20, 1, 2, 32, 1, 1, 1, 2, 80, 8, 1, 0, KV_BF16, 0 },
    };
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_open(&r, &many[i], 340, NULL);
        run(&r, 250, 4, 0, 1, 1);
        run(&r, 270, 4, 0, 1, 2);
        run(&r, 334, 4, 0, 1, 3);
        rig_close(&r);
    }
}

/* Orderings of the merge taken out one at a time. */
static void what_a_merge_does_not_wait_for_is_seen(void **state) {
    (void)state;
    static const char merge[] = "phase_attention_merge.cuh";
    const struct {
        const char *what;
        int shape, split_from;
        struct fake_patch patch;
    } cases[] = {
        { "partial results",
          0,
          0,
          { merge, "word_off24(v->o[n][0], w->epoch) | word_off24(v->o[n][1], w->epoch)",
            "!(v->o[n][0] >> 48 && v->o[n][1] >> 48)", false } },
        { "merged shares",
          0,
          0,
          { merge, "off |= word_off(v[n][0], w->epoch) | word_off(v[n][1], w->epoch);",
            "off |= !(v[n][0] >> 32 && v[n][1] >> 32);", false } },
        { "the last member",
          0,
          0,
          { merge,
            "pieces < P_GROUP_SMS ? pieces :", "pieces < P_GROUP_SMS ? pieces - 1 :", false } },
        { "gates of a share",
          2,
          0,
          { merge, "(!warp_all(word_is(*gate, w->epoch) | w->dead))", "(0)", false } },
        { "gates of the whole",
          1,
          NEVER,
          { merge, "(!warp_all(word_is(*gate, w->epoch) | w->dead))", "(0)", false } },
    };
    const struct share share = share_of("mutations-of-merges", 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!share_has(share, (int)i)) continue;
        const int tries = 40;
        int seed = 0;
        struct rig r;
        rig_open(&r, &gated[cases[i].shape], 80, &cases[i].patch);
        while (seed < tries && runs_right(&r, 20, 4, cases[i].split_from, 2, seed))
            seed++;
        printf("%s: schedule %d: %.60s\n", cases[i].what, seed, r.wrong);
        rig_close(&r);
        if (seed == tries) fail_msg("%s: not seen in %d schedules", cases[i].what, tries);
    }
}

/* A piece looked for in another page, or at another's place. */
static void a_piece_in_the_wrong_page_is_seen(void **state) {
    (void)state;
    const struct {
        const char *what;
        int split_from;
        struct fake_patch patch;
    } cases[] = {
        { "the first page for all pieces",
          NEVER,
          { "kv_ring.cuh", "            page = kv_page(a, piece);\n", "", false } },
        { "the next layer's first piece",
          NEVER,
          { "kv_ring.cuh", "i + 1 < pieces ? piece + step : first", "piece + step", false } },
        { "a member's first piece",
          0,
          { "kv_ring.cuh", "u8 *page = kv_page(a, first)", "u8 *page = kv_page(a, 0)", false } },
        { "a piece counted from the session's start",
          NEVER,
          { "kv_layout.h", "(unsigned)piece % (unsigned)page_pieces", "(unsigned)piece", false } },
        { "rows as long as one piece",
          NEVER,
          { "kv_layout.h", "(unsigned)row * (unsigned)page_pieces", "(unsigned)row", false } },
    };
    const struct share share = share_of("mutations-of-pages", 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!share_has(share, (int)i)) continue;
        struct rig r;
        rig_open(&r, &shapes[0], 160, &cases[i].patch);
        const bool right = runs_right(&r, 130, 2, cases[i].split_from, 2, 1);
        printf("%s: %.60s\n", cases[i].what, r.wrong);
        rig_close(&r);
        if (right) fail_msg("%s: not seen", cases[i].what);
    }
}

/* The piece's bytes are each one position's, and the map agrees with where rows are written. */
static void piece_bytes_belong_to_positions(void **state) {
    (void)state;
    for (int form = 0; form < KV_FORMS; form++)
        for (int dim = 64; dim <= 256; dim *= 2)
            for (int p = 0; p < KV_POSITIONS; p++)
                for (int i = 0; i < dim; i++) {
                    assert_int_equal(kv_byte_position(form, dim, kv_k_byte(form, p, i)), p);
                    assert_int_equal(kv_byte_position(form, dim, kv_v_byte(form, dim, p, i)), p);
                }
}

/* In a form of codes each byte of a piece is that of one value or scale. */
static void every_byte_of_codes_is_used_once(void **state) {
    (void)state;
    enum { DIM = 80, BYTES = DIM / 16 * 2 * 256 + 128 };
    unsigned char used[BYTES] = { 0 };
    assert_int_equal(kv_piece_bytes(KV_CODES_INT8, DIM), BYTES);
    for (int p = 0; p < KV_POSITIONS; p++)
        for (int is_v = 0; is_v < 2; is_v++) {
            for (int i = 0; i < DIM; i++)
                used[is_v ? kv_v_byte(1, DIM, p, i) : kv_k_byte(1, p, i)]++;
            for (unsigned b = 0; b < 4; b++) {
                const unsigned at = kv_scale_byte(DIM, is_v, p) + b;
                assert_int_equal(kv_byte_position(1, DIM, at), p);
                used[at]++;
            }
        }
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(used[i], 1);
}

static const struct shape in_codes[] = {
    { "one KV head, two q heads of 128, int8", 2, 3, 1, 2, 128, 1, 2, 4, 2, 224, 0, 0, 0, KV_INT8,
      0 },
    { "the same, fp8", 2, 3, 1, 2, 128, 1, 2, 2, 2, 224, 0, 0, 0, KV_FP8, 0 },
    { "two KV heads of 64 without norms, int8", 1, 2, 2, 3, 64, 0, 4, 8, 2, 128, 0, 0, 0, KV_INT8,
      0 },
    { "eight q heads of 80, fp8", 1, 2, 1, 8, 80, 1, 3, 6, 2, 200, 0, 0, 0, KV_FP8, 0 },
    { "few registers, int8", 1, 2, 1, 2, 128, 1, 2, 2, 2, 80, 0, 0, 0, KV_INT8, 0 },
    { "four gated heads of 256, members merge shares, int8", 1, 3, 1, 4, 256, 1, 2, 2, 2, 224, 64,
      1, 1, KV_INT8, 0 },
    { "eight gated heads of 32 on two KV heads, shares, cp.async, fp8", 1, 3, 2, 4, 32, 1, 2, 4, 1,
      200, 8, 1, 1, KV_FP8, 0 },
    { "scales of the file, two groups", 2, 3, 1, 2, 128, 1, 2, 2, 2, 224, 0, 0, 0, KV_FP8, 1 },
    { "scales of the file without norms", 1, 2, 2, 3, 64, 0, 4, 8, 2, 128, 0, 0, 0, KV_FP8, 1 },
};
enum { IN_CODES = sizeof in_codes / sizeof *in_codes };

static void codes_match_around_pieces_and_splits(void **state) {
    (void)state;
    const struct share share = share_of("attention-codes", 5);
    for (int i = 0; i < IN_CODES; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &in_codes[i], 100, NULL);
        run(&r, 0, 20, NEVER, 2, 1);
        run(&r, 0, 36, 3, 2, 2);
        run(&r, 45, 6, NEVER, 3, 3);
        run(&r, 62, 5, 10, 1, 4);
        rig_close(&r);
    }
}

static void codes_are_the_same_under_any_schedule(void **state) {
    (void)state;
    const struct share share = share_of("attention-codes-schedules", 2);
    for (int i = 0; i < 2; i++) {
        if (!share_has(share, i)) continue;
        struct rig r;
        rig_open(&r, &in_codes[i], 60, NULL);
        for (int seed = 1; seed <= 12; seed++)
            run(&r, 30, 4, seed % 2 ? NEVER : 8, 1 + seed % 3, seed);
        rig_close(&r);
    }
}

static bool is_seen(const struct mutation *m) {
    struct rig r;
    rig_open(&r, &in_codes[0], 240, m->patches);
    const bool right = runs_right(&r, 228, 3, NEVER, 2, 1);
    printf("%s: %.60s\n", m->what, r.wrong);
    rig_close(&r);
    return !right;
}

static void a_wrong_scale_is_seen(void **state) {
    (void)state;
    mutations_try(&codes_mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(piece_bytes_belong_to_positions),
        cmocka_unit_test(all_positions_to_300_match),
        cmocka_unit_test(gated_heads_match_at_positions_0_to_70),
        cmocka_unit_test(many_members_merge_in_turns),
        cmocka_unit_test(what_a_merge_does_not_wait_for_is_seen),
        cmocka_unit_test(a_piece_in_the_wrong_page_is_seen),
        cmocka_unit_test(shapes_match_around_pieces_and_splits),
        cmocka_unit_test(any_schedule_gives_the_same),
        cmocka_unit_test(every_byte_of_codes_is_used_once),
        cmocka_unit_test(codes_match_around_pieces_and_splits),
        cmocka_unit_test(codes_are_the_same_under_any_schedule),
        cmocka_unit_test(a_wrong_scale_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
