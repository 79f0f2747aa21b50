#include "plan/gpu_memory_plan.h"

#include "base/numbers.h"
#include "kernels/delta_layout.h"
#include "kernels/kv_layout.h"
#include "kernels/profile_marks.h"
#include "plan/memory_plan.h"
#include "plan/plan_layout.h"

enum {
    OUT_BYTES = 8 << 20, /* of logits or hidden states, of a launch that returns all of them; or one
                            row, when that is more */
    ABORT_BYTES = 256,
    ALIGN_BYTES = 256 /* of the parts of an allocation that has several */
};

const struct gpu_memory_use gpu_memory_usual = { .prompts = true,
                                                 .short_prompts = true,
                                                 .stage_kb = GPU_STAGE_KB };

static const struct {
    enum gpu_owner owner;
    bool pinned;
    const char *text;
} parts[GPU_N_PARTS] = {
#define GPU_PART_ROW(name, owner, pinned, text) [name] = { owner, pinned, text },
    GPU_PARTS(GPU_PART_ROW)
#undef GPU_PART_ROW
};

const char *gpu_part_text(enum gpu_part part) { return parts[part].text; }

/* ---- a model --------------------------------------------------------------------------------- */

static void model_parts(uint64_t *bytes, const struct plan *p, const struct model_config *c) {
    const uint64_t hidden = (uint64_t)c->hidden, layers = (uint64_t)c->n_layers;
    const uint64_t attention = (uint64_t)model_layer_count(c, LAYER_ATTENTION);
    bytes[GPU_TAPES] = p->tape_bytes / (unsigned)p->n_gpus;
    bytes[GPU_EMBEDDING] = plan_embedding_bytes(c);
    bytes[GPU_NORMS] = (2 * layers + 1) * hidden * sizeof(float);
    const uint64_t gains = c->qk_norm ? 2 * (uint64_t)c->head_dim : 0;
    const uint64_t biases = c->qkv_bias ? (uint64_t)plan_bias_rows(p) : 0;
    const uint64_t scales = p->kv_given ? 2 * (uint64_t)p->n_kv_heads : 0;
    bytes[GPU_QKV_VECTORS] = attention * (gains + biases + scales) * sizeof(float);
    bytes[GPU_ROPE] = MODEL_MAX_HEAD_DIM / 2 * sizeof(float);
    bytes[GPU_WORDS] = (uint64_t)p->n_words * 8;
    bytes[GPU_LEAVE] = sizeof(unsigned);
}

static void delta_parts(uint64_t *bytes, const struct plan *p) {
    const struct delta_layout layout = plan_delta_layout(p);
    const int n = p->delta.n_layers;
    if (n == 0) return;
    bytes[GPU_DELTA_GATES] = delta_gate(&layout, n, 0, 0) * sizeof(uint16_t);
    bytes[GPU_DELTA_CONSTANTS] = (uint64_t)n * (uint64_t)delta_constants(&layout) * sizeof(float);
}

static void prompt_parts(uint64_t *bytes, const struct plan *p, const struct gpu_memory_use *use) {
    const struct plan_encoder *e = &p->encoder;
    if (!use->prompts || p->prefill_tokens == 0) return;
    bytes[GPU_PROMPTS] = p->scratch.bytes + (use->short_prompts ? (uint64_t)p->short_words * 8 : 0);
    if (e->shape.layers == 0) return;
    bytes[GPU_TOWER_WEIGHTS] = enc_weights_at(&e->shape, ENC_PRODUCTS, 0);
    bytes[GPU_TOWER_NUMBERS] = (uint64_t)enc_numbers_at(&e->shape, ENC_NUMBERS, 0) * sizeof(float);
    bytes[GPU_TOWER_SCRATCH] = e->scratch_bytes;
    bytes[GPU_TOWER_ABORT] = ABORT_BYTES;
    bytes[GPU_TOWER_MAILBOX] = sizeof(struct decode_mailbox);
}

/* A staging buffer holds the longest row of any matrix, as the winder wants it. */
static void loader_parts(uint64_t *bytes, const struct plan *p, const struct model_config *c,
                         const struct gpu_memory_use *use) {
    const int columns[TAPE_N_PHASES] = {
        [TAPE_QKV] = c->hidden,
        [TAPE_MIX] = c->hidden,
        [TAPE_OUT] = int_max(c->n_heads * c->head_dim, model_delta_width(c)),
        [TAPE_GATE_UP] = c->hidden,
        [TAPE_DOWN] = c->intermediate,
        [TAPE_HEAD] = c->hidden,
    };
    uint64_t stage = u64_max((uint64_t)use->stage_kb << 10, (uint64_t)c->hidden * 2);
    for (int i = 0; i < TAPE_N_PHASES; i++)
        stage = u64_max(stage, tile_staged_bytes(p->tape.segment[i].format, columns[i]));
    bytes[GPU_STAGING] = bytes[GPU_HOST_STAGING] = stage;
}

uint64_t gpu_column_bytes(const struct plan *columns) {
    return (uint64_t)columns->n_words * 8 + columns->kept_bytes;
}

/* Launches that leave time stamps have one column. The program for two columns with drafts is not
 * compiled where there is a larger one (cuda_programs.c). */
static void column_parts(uint64_t *bytes, const struct plan *p, bool follows,
                         const struct gpu_memory_use *use) {
    struct plan columns;
    uint64_t sum = 0;
    for (int i = PLAN_COLUMN_SIZES - 1; i >= 0 && !use->profile_tokens; i--) {
        if (i == 0 && follows && sum > 0) break;
        if (plan_columns(&columns, p, plan_column_size(i), follows, NULL) == REEL_OK)
            sum += gpu_column_bytes(&columns);
    }
    bytes[follows ? GPU_DRAFT_WORDS : GPU_STEP_WORDS] = sum;
    if (sum) bytes[follows ? GPU_DRAFT_MAILBOX : GPU_STEP_MAILBOX] = sizeof(struct decode_mailbox);
}

/* ---- a session ------------------------------------------------------------------------------- */

static size_t take(size_t *at, size_t n_bytes) {
    const size_t here = *at;
    *at += (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return here;
}

struct gpu_mapped_layout gpu_mapped_layout(int vocab) {
    struct gpu_mapped_layout m = { 0 };
    const size_t row = (size_t)vocab * sizeof(float);
    m.mailbox = take(&m.bytes, sizeof(struct decode_mailbox));
    m.prefill_mailbox = take(&m.bytes, sizeof(struct decode_mailbox));
    m.ids = take(&m.bytes, GPU_MAPPED_IDS * sizeof(int32_t));
    m.seen = take(&m.bytes, row);
    m.bias = take(&m.bytes, row);
    m.logits = take(&m.bytes, row);
    return m;
}

struct gpu_packed_layout gpu_packed_layout(const struct plan *p) {
    struct gpu_packed_layout at = { .tokens = p->prefill_tokens };
    const size_t row = (size_t)p->tape.hidden * sizeof(float);
    size_t words = 0;
    at.texts = int_min(at.tokens, GPU_PACKED_TEXTS);
    take(&words, (2 * (size_t)at.tokens + (size_t)at.texts) * sizeof(int32_t));
    at.word_bytes = words;
    take(&at.slot_bytes, sizeof(struct decode_mailbox));
    at.words = take(&at.slot_bytes, words);
    at.vectors = take(&at.slot_bytes, (size_t)at.texts * row);
    return at;
}

static void packed_parts(uint64_t *bytes, const struct plan *p, const struct gpu_memory_use *use) {
    const struct gpu_packed_layout at = gpu_packed_layout(p);
    if (!use->prompts || p->prefill_tokens == 0 || p->delta.n_layers) return;
    bytes[GPU_PACKED] = GPU_PACKED_SLOTS * at.word_bytes;
    bytes[GPU_PACKED_HOST] = GPU_PACKED_SLOTS * at.slot_bytes;
}

/* A page of K and V, but no more than a stage of the loader; one row of it at least. */
static void saving_parts(uint64_t *bytes, const struct plan *p, const struct gpu_memory_use *use) {
    const uint64_t row = (uint64_t)p->kv_page * (uint64_t)p->kv_piece_bytes;
    const uint64_t most = u64_max((uint64_t)use->stage_kb << 10, row);
    bytes[GPU_SAVED] = row ? u64_min(p->kv_page_bytes, most) / row * row : 0;
}

int gpu_kv_pages(const struct plan *p, int n) {
    return (kv_pieces(n) + p->kv_page - 1) / p->kv_page;
}

int gpu_most_given(const struct plan *p) { return int_max(p->prefill_tokens, GPU_MOST_GIVEN); }

uint64_t gpu_state_stride(const struct plan *p) {
    const uint64_t one = p->delta.state_bytes + p->delta.window_bytes;
    return (one + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void session_parts(uint64_t *bytes, const struct plan *p, const struct model_config *c,
                          int context, const struct gpu_memory_use *use) {
    const uint64_t row = (uint64_t)c->vocab * 4, hidden = (uint64_t)c->hidden * sizeof(float);
    const uint64_t given = (uint64_t)gpu_most_given(p);
    const uint64_t stamps = (uint64_t)PROFILE_MARKS(c->n_layers);
    const uint64_t pages = (uint64_t)gpu_kv_pages(p, context);
    bytes[GPU_KV] = pages * p->kv_page_bytes;
    bytes[GPU_KV_TABLE] = pages * sizeof(uint64_t);
    bytes[GPU_KV_TABLE_HOST] = (unsigned)p->n_gpus * pages * sizeof(uint64_t);
    bytes[GPU_STATES] = gpu_state_stride(p) * (1 + MEMORY_PLAN_CHECKPOINTS);
    bytes[GPU_LAST_ROW] = hidden;
    bytes[GPU_OUT] = u64_max(u64_max(row, hidden), OUT_BYTES);
    bytes[GPU_ABORT] = ABORT_BYTES;
    bytes[GPU_IDS] = given * sizeof(int32_t);
    bytes[GPU_SEEN] = bytes[GPU_BIAS] = row;
    bytes[GPU_GIVEN_EMBEDDINGS] = given * hidden;
    bytes[GPU_STAMPS] = (uint64_t)use->profile_tokens * (uint64_t)p->tape.n_sms * stamps * 4;
    bytes[GPU_MAPPED] = gpu_mapped_layout(c->vocab).bytes;
}

/* ---- together -------------------------------------------------------------------------------- */

uint64_t gpu_memory_of(const struct gpu_memory_plan *m, enum gpu_owner owner, bool pinned) {
    uint64_t sum = 0;
    for (int i = 0; i < GPU_N_PARTS; i++)
        if (parts[i].owner == owner && parts[i].pinned == pinned) sum += m->bytes[i];
    return owner == GPU_OF_LOADER ? GPU_STAGES * sum : sum;
}

static uint64_t of_columns(const struct gpu_memory_plan *m) {
    return gpu_memory_of(m, GPU_OF_STEP, false) + gpu_memory_of(m, GPU_OF_DRAFTS, false);
}

static uint64_t most_with(const struct gpu_memory_plan *m, uint64_t columns) {
    const uint64_t session = gpu_memory_of(m, GPU_OF_SESSION, false) +
                             gpu_memory_of(m, GPU_OF_USE, false) +
                             gpu_memory_of(m, GPU_OF_POOL, false);
    return gpu_memory_of(m, GPU_OF_MODEL, false) +
           u64_max(gpu_memory_of(m, GPU_OF_LOADER, false), session + columns);
}

uint64_t gpu_memory_most(const struct gpu_memory_plan *m) { return most_with(m, of_columns(m)); }
uint64_t gpu_memory_least(const struct gpu_memory_plan *m) { return most_with(m, 0); }

/* Positions that fit beside the model and the rest of a session. */
static int most_context(const struct gpu_memory_plan *m, const struct plan *p,
                        const struct model_config *c) {
    const uint64_t fixed =
        gpu_memory_of(m, GPU_OF_MODEL, false) + gpu_memory_of(m, GPU_OF_SESSION, false) +
        gpu_memory_of(m, GPU_OF_USE, false) + of_columns(m) + m->bytes[GPU_STATES];
    if (p->gpu.memory_bytes <= fixed) return 0;
    const uint64_t pages = (p->gpu.memory_bytes - fixed) / p->kv_page_bytes;
    return pages < (uint64_t)gpu_kv_pages(p, c->max_context)
               ? (int)pages * p->kv_page * KV_POSITIONS
               : c->max_context;
}

void gpu_memory_plan_fill(struct gpu_memory_plan *m, const struct plan *p,
                          const struct model_config *c, int context,
                          const struct gpu_memory_use *use) {
    *m = (struct gpu_memory_plan){ .context = context > 0 ? context : c->max_context };
    model_parts(m->bytes, p, c);
    delta_parts(m->bytes, p);
    prompt_parts(m->bytes, p, use);
    loader_parts(m->bytes, p, c, use);
    session_parts(m->bytes, p, c, m->context, use);
    packed_parts(m->bytes, p, use);
    saving_parts(m->bytes, p, use);
    column_parts(m->bytes, p, false, use);
    column_parts(m->bytes, p, true, use);
    m->most_context = most_context(m, p, c);
}
