/* plan_print writes a plan as a page of text. */
#include "plan/gpu_memory_plan.h"
#include "plan/memory_plan.h"
#include "plan/plan_layout.h"

#include <stdio.h>

/* The page that is being written, and whether writing went well so far. */
struct page {
    struct buffer *text;
    struct reel_error *err;
    enum reel_status status;
};

#define PRINT(page, ...)                                                                           \
    do {                                                                                           \
        if ((page)->status == REEL_OK)                                                             \
            (page)->status = buffer_printf((page)->text, (page)->err, __VA_ARGS__);                \
    } while (0)

static double mb(uint64_t bytes) { return (double)bytes / 1e6; }

static void print_machine(struct page *out, const struct plan *p) {
    static const char *const copies[] = { "plain loads", "cp.async", "bulk copies" };
    const struct tape_shape *t = &p->tape;
    PRINT(out, "plan for ");
    if (p->n_gpus > 1) PRINT(out, "%d times ", p->n_gpus);
    PRINT(out, "%s: %d SMs, compute capability %d.%d, %d KB of shared memory a block\n",
          p->gpu.name, p->gpu.n_sms, p->gpu.compute / 10, p->gpu.compute % 10,
          p->gpu.shared_bytes >> 10);
    PRINT(out, "  groups          %d of %d SMs (%d of %d SMs work)\n", t->n_groups, t->group_sms,
          t->n_sms, plan_all_sms(&p->gpu));
    PRINT(out, "  of a group      %d heads, %d KV heads of %d, intermediate %d\n", p->group_heads,
          p->group_kv_heads, p->head_dim, t->group_intermediate);
    if (p->none_kv_heads)
        PRINT(out, "  KV heads        %d, the last %d none of the model's\n", p->n_kv_heads,
              p->none_kv_heads);
    if (p->delta.n_layers)
        PRINT(out,
              "  its DeltaNets   %d key heads of %d, %d value heads of %d, in %d units of %d "
              "columns\n",
              p->delta.group_key_heads, p->delta.key_dim, p->delta.group_value_heads,
              p->delta.value_dim, p->delta.units, p->delta.unit);
    PRINT(out, "  warps           %d consumers, %d epilogue, 2 producers: %d threads", t->warps,
          p->epilogue_warps, p->threads);
    if (p->registers_consumer) PRINT(out, ", %d registers a consumer", p->registers_consumer);
    PRINT(out, "\n  compiled for    sm_%d, %s\n", p->compute, copies[p->copy]);
}

static void print_shared(struct page *out, const struct plan *p) {
    PRINT(out,
          "  weight ring     %d slots of %d bytes (%d tile%s a warp), %d in flight in layers, "
          "%d in the head\n",
          p->ring_slots, p->slot_bytes, p->slot_tiles, p->slot_tiles == 1 ? "" : "s", p->cap_layers,
          p->cap_head);
    PRINT(out, "  K/V ring        %d slots of %d bytes for %d attention warps, %d in flight\n",
          p->kv_slots, p->kv_piece_bytes, p->attention_warps, p->cap_kv);
    PRINT(out, "  shared memory   %.1f KB of %d KB\n", p->shared_bytes / 1024.0,
          p->gpu.shared_bytes >> 10);
    if (p->tape.group_sms > 1)
        PRINT(out,
              "  attention       whole in every SM of a group, split over them from position %d "
              "on\n",
              p->split_from);
    else
        PRINT(out, "  attention       whole in the one SM of a group\n");
    if (p->two_hops)
        PRINT(out,
              "  sums            of out and down reach every SM in two hops, the second of %s\n",
              p->h_pairs ? "values of 24 bits" : "fp32");
    else if (p->h_pairs)
        PRINT(out, "  sums            of out and down make values of 24 bits\n");
}

static void print_encoder(struct page *out, const struct plan *p) {
    const struct plan_encoder *e = &p->encoder;
    if (e->none) PRINT(out, "  audio tower     on the CPU: it %s\n", e->none);
    if (e->shape.layers)
        PRINT(out,
              "  audio tower     up to %d seconds a run, its convolutions %d seconds at a time\n",
              e->most_chunks, e->chunks);
}

static void print_prefill(struct page *out, const struct plan *p) {
    if (p->prefill_tokens == 0) {
        PRINT(out, "  prompts         read a token at a time by the decode kernel: prefill %s\n",
              p->prefill_none);
        return;
    }
    PRINT(
        out,
        "  prompts         up to %d tokens a launch on %d SMs, %s, %d stages of 32 KB, %.1f KB of "
        "shared memory\n",
        p->prefill_tokens, p->gpu.n_sms, p->wgmma ? "wgmma" : "mma", p->prefill_stages,
        p->prefill_shared / 1024.0);
}

static void print_short(struct page *out, const struct plan *p) {
    if (p->prefill_tokens == 0) return;
    if (p->short_tokens == 0)
        PRINT(out, "  short prompts   as others: %d tokens do not fit into %d SMs at once\n",
              ATOM_TOKENS, p->tape.n_sms);
    else
        PRINT(
            out,
            "  short prompts   up to %d tokens in one launch of %d SMs, %d slots of weights, %.1f "
            "KB of shared memory\n",
            p->short_tokens, p->tape.n_sms, p->short_slots, p->short_shared / 1024.0);
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Bytes of the model's own weights in a phase, all layers, in the tapes' format. */
static uint64_t useful_bytes(const struct plan *p, int phase) {
    const struct tape_shape *t = &p->tape;
    const uint64_t q = (uint64_t)(p->n_heads * p->head_dim);
    const uint64_t kv = (uint64_t)(p->n_kv_heads * p->head_dim), hidden = (uint64_t)t->hidden;
    const uint64_t deltas = (uint64_t)p->delta.n_layers, all = (uint64_t)t->n_layers;
    const uint64_t gates = t->gate_dim ? q : 0;
    const uint64_t value = (uint64_t)(t->group_value * t->n_groups);
    const uint64_t rows[TAPE_N_PHASES] = {
        [TAPE_QKV] = (all - deltas) * (q + gates + 2 * kv),
        [TAPE_OUT] = (all - deltas) * q + deltas * value,
        [TAPE_GATE_UP] = all * 2 * (uint64_t)t->intermediate,
        [TAPE_DOWN] = all * (uint64_t)t->intermediate,
        [TAPE_HEAD] = (uint64_t)t->vocab,
        [TAPE_MIX] = deltas * (uint64_t)(plan_mix_rows(t) * t->n_groups),
    };
    return hidden * rows[phase] * tile_bytes(t->segment[phase].format) /
           ((uint64_t)TILE_ROWS * TILE_K * (uint64_t)TILE_PARTS(t->segment[phase].format));
}

/* "bf16", "int4, a scale (f16) for 32 columns, minima". */
static const char *format_text(char *text, size_t size, int format) {
#define TEXT(name, text) text,
    static const char *const codes[TILE_FORMATS] = { TILE_FORMAT_LIST(TEXT) };
#undef TEXT
    static const char *const scales[] = { "f16", "bf16", "f32", "steps of f16" };
    static const char *const offsets[] = { "", ", minima", ", zero points" };
    char columns[20] = "a row";
    if (!TILE_NARROW(format)) return codes[TILE_CODE(format)];
    if (TILE_GROUP(format) < TILE_GROUP_ROW)
        (void)snprintf(columns, sizeof columns, "%d columns", TILE_K << TILE_GROUP(format));
    (void)snprintf(text, size, "%s, a scale (%s) for %s%s", codes[TILE_CODE(format)],
                   scales[TILE_SCALE(format)], columns, offsets[TILE_OFFSETS(format)]);
    return text;
}

/* Of a weight, with its share of scales. */
static double bits(int format) {
    return 8.0 * tile_bytes(format) / (TILE_ROWS * TILE_K * TILE_PARTS(format));
}

static void print_phases(struct page *out, const struct plan *p) {
    static const char *const names[TAPE_N_PHASES] = {
#define PHASE_NAME(phase, name, prefix) [phase] = name,
        TAPE_PHASES(PHASE_NAME)
#undef PHASE_NAME
    };
    const struct tape_shape *t = &p->tape;
    const int deltas = p->delta.n_layers;
    const int layers[TAPE_N_PHASES] = { t->n_layers - deltas, t->n_layers, t->n_layers,
                                        t->n_layers,          1,           deltas };
    PRINT(out, "\n  %-10s %8s %8s %8s %12s %14s %10s %8s %6s  %s\n", "phase", "rows/SM", "tiles",
          "k tiles", "a warp", "bytes/SM", "MB", "padding", "bits", "format");
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const struct tape_segment *g = &t->segment[i];
        const uint64_t tapes = (uint64_t)g->bytes * (uint64_t)(layers[i] * t->n_sms);
        if (layers[i] == 0) continue;
        const uint64_t useful = useful_bytes(p, i);
        char warp[40], format[60];
        (void)snprintf(warp, sizeof warp, "%d%s x %d", g->warp_rows - g->half, g->half ? ".5" : "",
                       g->warp_k);
        PRINT(out, "  %-10s %8d %8d %8d %12s %14u %10.1f %7.1f%% %6.2f  %s\n", names[i],
              i == TAPE_HEAD ? g->row_tiles * TILE_ROWS : g->rows, g->row_tiles, g->k_tiles, warp,
              g->bytes, mb(tapes), 100.0 * ((double)tapes / (double)useful - 1), bits(g->format),
              format_text(format, sizeof format, g->format));
    }
    uint64_t useful = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        useful += useful_bytes(p, i);
    PRINT(out,
          "  a token reads %.1f MB of %.1f MB of weights; most loaded SM %llu bytes, %.3f times "
          "the mean over all %d SMs\n",
          mb(p->token_bytes), mb(useful), t->sm_bytes, p->imbalance, plan_all_sms(&p->gpu));
}

/* ---- exchanges and memory -------------------------------------------------------------------- */

static void print_exchanges(struct page *out, const struct plan *p) {
    static const struct {
        const char *name, *when;
    } exchanges[PLAN_N_EXCHANGES] = {
#define EXCHANGE_ROW(number, name, when) [number] = { name, when },
        PLAN_EXCHANGES(EXCHANGE_ROW)
#undef EXCHANGE_ROW
    };
    PRINT(out, "\n  %-10s %8s %8s %8s  %s\n", "exchange", "word", "words", "readers", "once");
    for (int i = 0; i < PLAN_N_EXCHANGES; i++) {
        const struct plan_words *x = &p->exchange[i];
        if (x->words == 0) continue;
        PRINT(out, "  %-10s %8u %8u %8d  %s\n", exchanges[i].name, x->offset, x->words, x->readers,
              exchanges[i].when);
    }
}

static void print_model_memory(struct page *out, const struct plan *p,
                               const struct gpu_memory_plan *m) {
    const uint64_t *b = m->bytes;
    const uint64_t norms = b[GPU_NORMS] + b[GPU_QKV_VECTORS] + b[GPU_ROPE] + b[GPU_DELTA_GATES] +
                           b[GPU_DELTA_CONSTANTS];
    const uint64_t tower =
        b[GPU_TOWER_WEIGHTS] + b[GPU_TOWER_NUMBERS] + b[GPU_TOWER_SCRATCH] + b[GPU_TOWER_ABORT];
    PRINT(out, "  %-16s %10.1f\n", "tapes", mb(b[GPU_TAPES]));
    if (b[GPU_EMBEDDING]) PRINT(out, "  %-16s %10.1f\n", "embedding", mb(b[GPU_EMBEDDING]));
    PRINT(out, "  %-16s %10.1f\n", "norms", mb(norms));
    PRINT(out, "  %-16s %10.1f\n", "exchange words", mb(b[GPU_WORDS]));
    if (b[GPU_PROMPTS])
        PRINT(out, "  %-16s %10.1f  for %d tokens\n", "prefill scratch", mb(b[GPU_PROMPTS]),
              p->prefill_tokens);
    if (tower)
        PRINT(out, "  %-16s %10.1f  %.1f of them scratch\n", "audio tower", mb(tower),
              mb(b[GPU_TOWER_SCRATCH]));
    PRINT(out, "  %-16s %10.1f  while loading\n", "staging",
          mb(gpu_memory_of(m, GPU_OF_LOADER, false)));
}

/* Prints the bytes that a model, its loader and a session take, on the device or pinned on the
 * host, and what is taken once several sessions decode, one takes drafts, makes vectors of texts or
 * is saved. */
static void print_exact(struct page *out, const struct gpu_memory_plan *m, const char *where,
                        bool pinned) {
    const uint64_t step = gpu_memory_of(m, GPU_OF_STEP, pinned);
    const uint64_t drafts = gpu_memory_of(m, GPU_OF_DRAFTS, pinned);
    const uint64_t packing = gpu_memory_of(m, GPU_OF_PACKING, pinned);
    const uint64_t saving = gpu_memory_of(m, GPU_OF_SAVING, pinned);
    PRINT(out, "  %-16s %llu the model, %llu more while loading, %llu a session", where,
          (unsigned long long)gpu_memory_of(m, GPU_OF_MODEL, pinned),
          (unsigned long long)gpu_memory_of(m, GPU_OF_LOADER, pinned),
          (unsigned long long)gpu_memory_of(m, GPU_OF_SESSION, pinned));
    if (step) PRINT(out, ", %llu more for several sessions", (unsigned long long)step);
    if (drafts) PRINT(out, ", %llu more for drafts", (unsigned long long)drafts);
    if (packing) PRINT(out, ", %llu more for packed texts", (unsigned long long)packing);
    if (saving) PRINT(out, ", %llu more for saving sessions", (unsigned long long)saving);
    PRINT(out, "\n");
}

static void print_memory(struct page *out, const struct plan *p, const struct model_config *c) {
    struct gpu_memory_plan m;
    gpu_memory_plan_fill(&m, p, c, 0, &gpu_memory_usual);
    const uint64_t kv = m.bytes[GPU_KV], states = m.bytes[GPU_STATES];
    PRINT(out, "\n  GPU memory, MB%s\n", p->n_gpus > 1 ? ", of each GPU" : "");
    print_model_memory(out, p, &m);
    PRINT(out, "  %-16s %10.1f  besides K and V\n", "a session",
          mb(gpu_memory_of(&m, GPU_OF_SESSION, false) + gpu_memory_of(&m, GPU_OF_USE, false)));
    const uint64_t step = m.bytes[GPU_STEP_WORDS], drafts = m.bytes[GPU_DRAFT_WORDS];
    if (step + drafts)
        PRINT(out, "  %-16s %10.1f  for several sessions, %.1f for drafts, once there are\n",
              "columns' words", mb(step), mb(drafts));
    if (states)
        PRINT(out, "  %-16s %10.1f  at most: the live one, and %d that are kept\n", "its states",
              mb(states), MEMORY_PLAN_CHECKPOINTS);
    PRINT(out, "  %-16s %10.1f  for %d positions, %llu bytes each\n", "K and V", mb(kv), m.context,
          (unsigned long long)p->kv_position_bytes / (unsigned)p->n_gpus);
    PRINT(out, "  %-16s %10.1f", "total", mb(gpu_memory_most(&m)));
    if (p->gpu.memory_bytes == 0)
        PRINT(out, "\n");
    else if (m.most_context == 0)
        PRINT(out, " of %.1f: does not fit\n", mb(p->gpu.memory_bytes));
    else
        PRINT(out, " of %.1f; %d positions fit\n", mb(p->gpu.memory_bytes), m.most_context);
    print_exact(out, &m, "bytes", false);
    print_exact(out, &m, "pinned bytes", true);
}

enum reel_status plan_print(const struct plan *plan, const struct model_config *config,
                            struct buffer *text, struct reel_error *err) {
    struct page out = { text, err, REEL_OK };
    print_machine(&out, plan);
    print_shared(&out, plan);
    print_prefill(&out, plan);
    print_encoder(&out, plan);
    print_short(&out, plan);
    print_phases(&out, plan);
    print_exchanges(&out, plan);
    print_memory(&out, plan, config);
    return out.status;
}
