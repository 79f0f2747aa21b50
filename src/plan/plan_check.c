/* plan_check looks at a plan a second time. Where possible it shares no arithmetic with the code
 * that made the plan. The cheap part proves sizes and limits, and that the words that are
 * published are the words that are read. The thorough part visits every weight's place. */
#include "base/memory.h"
#include "kernels/kv_layout.h"
#include "plan/plan_layout.h"

#include <string.h>

#define REFUSE(...) return err_set(err, REEL_E_MISMATCH, "plan: " __VA_ARGS__)

static const char *const phase_names[TAPE_N_PHASES] = {
#define PHASE_NAME(phase, name, prefix) [phase] = name,
    TAPE_PHASES(PHASE_NAME)
#undef PHASE_NAME
};
static const char *const exchange_names[PLAN_N_EXCHANGES] = {
#define EXCHANGE_NAME(number, name, when) [number] = name,
    PLAN_EXCHANGES(EXCHANGE_NAME)
#undef EXCHANGE_NAME
};

/* ---- sizes ----------------------------------------------------------------------------------- */

static enum reel_status check_model(const struct plan *p, const struct model_config *c,
                                    struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct {
        const char *what;
        int plan, model;
    } same[] = {
        { "hidden size", t->hidden, c->hidden },
        { "layers", t->n_layers, c->n_layers },
        { "vocabulary", t->vocab, c->vocab },
        { "intermediate size", t->intermediate, c->intermediate },
        { "heads of a KV head", p->n_heads / p->n_kv_heads, c->n_heads / c->n_kv_heads },
        { "KV heads", p->n_kv_heads - p->none_kv_heads, c->n_kv_heads },
        { "head_dim", p->head_dim, c->head_dim },
        { "entries of a head that turn", p->rotary_dim, c->rotary_dim },
        { "gated attention", t->gate_dim, c->gated_attention ? c->head_dim : 0 },
        { "linear key heads", p->delta.key_heads, c->delta.key_heads },
        { "linear value heads", p->delta.value_heads, c->delta.value_heads },
        { "linear key_dim", p->delta.key_dim, c->delta.key_dim },
        { "linear value_dim", p->delta.value_dim, c->delta.value_dim },
        { "convolution", p->delta.taps, c->delta.conv_width },
        { "q and k norms", p->qk_norm, c->qk_norm },
        { "biases of q, k and v", p->qkv_bias, c->qkv_bias || c->given_biases },
        { "biases that are given", p->given_biases, c->given_biases },
        { "tied head", p->tied, c->tied },
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (same[i].plan != same[i].model)
            REFUSE("%s is %d, the model's is %d", same[i].what, same[i].plan, same[i].model);
    if (p->rms_eps != c->rms_eps) REFUSE("the norms' epsilon is not the model's");
    for (int i = 0; i < c->n_layers; i++)
        if (tape_is_delta(t, i) != model_layer_is(c, i, LAYER_DELTA))
            REFUSE("layer %d is of another kind than the model's", i);
    if (p->delta.n_layers != model_layer_count(c, LAYER_DELTA))
        REFUSE("%d DeltaNets, the model has %d", p->delta.n_layers,
               model_layer_count(c, LAYER_DELTA));
    return REEL_OK;
}

static enum reel_status check_groups(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    if (t->n_groups < 1 || t->n_groups > PLAN_MAX_GROUPS || t->group_sms < 1 ||
        t->n_sms != t->n_groups * t->group_sms)
        REFUSE("%d groups of %d SMs are not %d SMs", t->n_groups, t->group_sms, t->n_sms);
    if (p->none_kv_heads < 0 || p->none_kv_heads >= p->n_gpus)
        REFUSE("%d KV heads are none of the model's, with %d GPUs", p->none_kv_heads, p->n_gpus);
    if (t->n_groups % p->n_gpus)
        REFUSE("%d groups are not shared out evenly to %d GPUs", t->n_groups, p->n_gpus);
    if (plan_gpu_sms(p) > p->gpu.n_sms)
        REFUSE("%d SMs are used, %s has %d", plan_gpu_sms(p), p->gpu.name, p->gpu.n_sms);
    if (p->group_heads * t->n_groups != p->n_heads ||
        p->group_kv_heads * t->n_groups != p->n_kv_heads ||
        t->group_q != p->group_heads * p->head_dim ||
        t->group_kv != p->group_kv_heads * p->head_dim)
        REFUSE("%d groups of %d heads and %d KV heads do not make up the model's %d and %d",
               t->n_groups, p->group_heads, p->group_kv_heads, p->n_heads, p->n_kv_heads);
    const struct plan_delta *d = &p->delta;
    if (d->group_key_heads * t->n_groups != d->key_heads ||
        d->group_value_heads * t->n_groups != d->value_heads ||
        t->group_key != d->group_key_heads * d->key_dim ||
        t->group_value != d->group_value_heads * d->value_dim)
        REFUSE("%d groups of %d linear key heads and %d value heads do not make up the model's %d "
               "and %d",
               t->n_groups, d->group_key_heads, d->group_value_heads, d->key_heads, d->value_heads);
    if (d->n_layers && (d->unit < 2 || d->unit % 2 || d->value_dim % d->unit ||
                        d->units * d->unit != t->group_value))
        REFUSE("%d units of %d columns are not whole heads of %d, or not %d columns", d->units,
               d->unit, d->value_dim, t->group_value);
    if (t->group_intermediate % 2 || t->group_intermediate < 2 ||
        (long long)t->group_intermediate * t->n_groups < t->intermediate)
        REFUSE("%d groups of %d do not cover the intermediate size %d", t->n_groups,
               t->group_intermediate, t->intermediate);
    if (t->warps < PLAN_MIN_WARPS || t->warps > PLAN_MAX_WARPS || t->warps % 2)
        REFUSE("%d consumer warps: an even number from %d to %d is needed", t->warps,
               PLAN_MIN_WARPS, PLAN_MAX_WARPS);
    return REEL_OK;
}

static enum reel_status check_segment(const struct plan *p, int phase, int rows, int k,
                                      struct reel_error *err) {
    const struct tape_segment *g = &p->tape.segment[phase];
    const char *name = phase_names[phase];
    if (g->rows < 2 || g->rows % 2 || g->warp_rows < 1 || g->warp_k < 1)
        REFUSE("%s: %d rows a SM: an even number is needed", name, g->rows);
    if ((long long)g->rows * p->tape.group_sms < rows)
        REFUSE("%s: %d SMs of %d rows do not make %d", name, p->tape.group_sms, g->rows, rows);
    if (g->row_parts * g->k_parts != p->tape.warps)
        REFUSE("%s: %d row parts by %d k parts are not %d warps", name, g->row_parts, g->k_parts,
               p->tape.warps);
    if (g->row_parts * g->warp_rows != g->row_tiles || g->row_tiles * TILE_ROWS < g->rows)
        REFUSE("%s: %d row tiles in %d parts of %d do not hold %d rows", name, g->row_tiles,
               g->row_parts, g->warp_rows, g->rows);
    if (g->k_parts * g->warp_k != g->k_tiles || g->k_tiles * TILE_K < k)
        REFUSE("%s: %d k tiles in %d parts of %d do not hold %d columns", name, g->k_tiles,
               g->k_parts, g->warp_k, k);
    if (g->half && (g->format != TILE_BF16 || g->row_parts != 1 || g->warp_k % 2 ||
                    g->rows > (g->row_tiles - 1) * TILE_ROWS + TILE_ROWS / 2))
        REFUSE("%s: half tiles of %d rows in %d parts, of %d k tiles of a warp", name, g->rows,
               g->row_parts, g->warp_k);
    if (g->warp_k % TILE_PARTS(g->format))
        REFUSE("%s: %d k tiles of a warp are not tiles of %d", name, g->warp_k,
               TILE_PARTS(g->format));
    if (g->bytes != plan_segment_bytes(g))
        REFUSE("%s: %u bytes do not hold %d by %d tiles", name, g->bytes, g->row_tiles, g->k_tiles);
    return REEL_OK;
}

/* A DeltaNet has mix where other layers have qkv. */
static enum reel_status check_mix(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct tape_segment *mix = &t->segment[TAPE_MIX], *qkv = &t->segment[TAPE_QKV];
    if (p->delta.n_layers == 0) {
        if (mix->bytes || t->delta_bytes) REFUSE("mix has %u bytes and no layer", mix->bytes);
        return REEL_OK;
    }
    enum reel_status status =
        check_segment(p, TAPE_MIX, 2 * (t->group_key + t->group_value), t->hidden, err);
    if (status != REEL_OK) return status;
    if (mix->k_tiles != qkv->k_tiles || mix->row_parts != 1)
        REFUSE("mix must split k over all warps as qkv does");
    if (mix->offset || t->delta_bytes != t->layer_bytes - qkv->bytes + mix->bytes)
        REFUSE("a DeltaNet layer of %u bytes is not one with mix instead of qkv", t->delta_bytes);
    return REEL_OK;
}

static enum reel_status check_tape(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const int mixed = t->group_value > t->group_q ? t->group_value : t->group_q;
    const int rows[] = { t->group_q + (t->gate_dim ? t->group_q : 0) + 2 * t->group_kv, t->hidden,
                         2 * t->group_intermediate, t->hidden };
    const int k[] = { t->hidden, mixed, t->hidden, t->group_intermediate };
    unsigned offset = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (!tile_format_is(t->segment[i].format))
            REFUSE("%s: %d is no format of tiles", phase_names[i], t->segment[i].format);
    for (int i = 0; i < TAPE_HEAD; i++) {
        enum reel_status status = check_segment(p, i, rows[i], k[i], err);
        if (status != REEL_OK) return status;
        if (t->segment[i].offset != offset)
            REFUSE("%s begins at byte %u of a layer, the phase before it ends at %u",
                   phase_names[i], t->segment[i].offset, offset);
        offset += t->segment[i].bytes;
    }
    const struct tape_segment *head = &t->segment[TAPE_HEAD];
    if (t->segment[TAPE_GATE_UP].rows % 4) REFUSE("gate_up: pairs of a SM must be even");
    if (t->segment[TAPE_QKV].k_tiles != head->k_tiles ||
        t->segment[TAPE_GATE_UP].k_tiles != head->k_tiles)
        REFUSE("qkv, gate_up and head cut the hidden state differently");
    if (t->segment[TAPE_QKV].row_parts != 1 || t->segment[TAPE_GATE_UP].row_parts != 1)
        REFUSE("qkv and gate_up must split k over all warps");
    if (t->layer_bytes != offset) REFUSE("a layer has %u bytes, not %u", t->layer_bytes, offset);
    enum reel_status status = check_mix(p, err);
    if (status != REEL_OK) return status;
    if (head->row_tiles != tape_head_tiles(t, 0) || head->bytes != plan_segment_bytes(head))
        REFUSE("head: %u bytes for %d row tiles", head->bytes, head->row_tiles);
    unsigned long long layers = 0;
    for (int i = 0; i < t->n_layers; i++)
        layers += tape_is_delta(t, i) ? t->delta_bytes : t->layer_bytes;
    if (t->layers_bytes != layers || t->sm_bytes != plan_whole_tiles(t, layers + head->bytes))
        REFUSE("a tape of %llu bytes is not %d layers and a head", t->sm_bytes, t->n_layers);
    if (p->tape_bytes != t->sm_bytes * (unsigned)t->n_sms) REFUSE("tape_bytes is not their sum");
    return REEL_OK;
}

/* ---- rings and threads ----------------------------------------------------------------------- */

/* Checks the ring. In the head a slot must belong to the same warps in every lap: a warp that
 * skips a lap could not tell it from the one before the last. */
static enum reel_status check_ring(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const int slot_tiles = t->warps * p->slot_tiles;
    if (p->slot_tiles < 1 || p->slot_tiles > 4 ||
        p->slot_bytes != slot_tiles * (int)plan_widest_tile(t))
        REFUSE("a slot of %d bytes does not hold %d tiles of each of %d warps", p->slot_bytes,
               p->slot_tiles, t->warps);
    const int head_tiles = plan_k_tiles(&t->segment[TAPE_HEAD]);
    if (t->head_unit < 1 || head_tiles % t->head_unit)
        REFUSE("units of %d tiles do not make up the head's %d", t->head_unit, head_tiles);
    const int round = t->warps * t->head_unit, tiles = p->ring_slots * slot_tiles;
    const bool odd = p->columns > 1 && tiles > round && tiles < 2 * round;
    if (p->ring_slots < 1 || (tiles % round && !odd) || slot_tiles % t->head_unit ||
        t->warps % (slot_tiles / t->head_unit))
        REFUSE("a ring of %d slots is not filled by whole rounds of the head's units of %d tiles",
               p->ring_slots, t->head_unit);
    if (p->preload_tiles < p->slot_tiles || p->preload_tiles % p->slot_tiles ||
        p->preload_tiles > p->ring_slots * p->slot_tiles)
        REFUSE("%d tiles cannot be taken at once from %d slots of %d", p->preload_tiles,
               p->ring_slots, p->slot_tiles);
    if (p->cap_layers < 1 || p->cap_head < 1 || p->cap_kv < 1 || p->split_from < 1)
        REFUSE("caps and split_from are at least 1");
    return REEL_OK;
}

static enum reel_status check_block(const struct plan *p, struct reel_error *err) {
    const int warps = p->tape.warps + p->epilogue_warps + PLAN_EXTRA_WARPS;
    if ((p->tape.group_sms - 1) * p->tape.segment[TAPE_DOWN].rows >= p->tape.hidden)
        REFUSE("the last of %d SMs of a group has no rows of %d", p->tape.group_sms,
               p->tape.hidden);
    if (p->attention_warps < 1 || p->attention_warps > p->tape.warps ||
        p->attention_warps % p->group_kv_heads)
        REFUSE("%d attention warps cannot serve %d KV heads", p->attention_warps,
               p->group_kv_heads);
    if (p->kv_slots < 1 || p->kv_slots > PLAN_MAX_KV_SLOTS || p->kv_slots % p->attention_warps)
        REFUSE("%d K/V slots: a multiple of %d attention warps up to %d is needed", p->kv_slots,
               p->attention_warps, PLAN_MAX_KV_SLOTS);
    if (p->group_heads / p->group_kv_heads > PLAN_MAX_HEADS_A_KV)
        REFUSE("%d heads share a KV head, at most %d can", p->group_heads / p->group_kv_heads,
               PLAN_MAX_HEADS_A_KV);
    if (p->kv_piece_bytes != (int)kv_piece_bytes(p->kv_form, p->head_dim))
        REFUSE("%d bytes do not hold K and V of %d positions", p->kv_piece_bytes, KV_POSITIONS);
    if (p->kv_page < 1 || p->kv_page & (p->kv_page - 1) ||
        p->kv_page < plan_half_pieces(p->kv_form, p->kv_piece_bytes))
        REFUSE("a page of %d pieces: a power of two, at least %d, is needed", p->kv_page,
               plan_half_pieces(p->kv_form, p->kv_piece_bytes));
    if (p->epilogue_warps < 1 || p->threads != warps * 32 || p->threads > p->gpu.max_threads)
        REFUSE("%d threads: %d warps are needed, %d threads allowed", p->threads, warps,
               p->gpu.max_threads);
    if (p->compute > p->gpu.compute || p->copy != (p->compute >= 90) + (p->compute >= 80))
        REFUSE("copies of kind %d for compute capability %d on %d", p->copy, p->compute,
               p->gpu.compute);
    const int launched = plan_thread_registers(p->gpu.registers, p->threads);
    const int others = warps - p->tape.warps;
    if (p->registers_consumer &&
        (p->tape.warps % 4 || others % 4 || p->copy != 2 || p->registers_consumer % 8 ||
         p->registers_other % 8 ||
         p->registers_consumer * p->tape.warps + p->registers_other * others > launched * warps))
        REFUSE("%d and %d registers cannot be shared out of %d for each of %d warps",
               p->registers_consumer, p->registers_other, launched, warps);
    const int shared = plan_shared_bytes(p);
    if (p->shared_bytes != shared || p->shared_bytes > p->gpu.shared_bytes)
        REFUSE("%d bytes of shared memory: %d are needed, %d allowed", p->shared_bytes, shared,
               p->gpu.shared_bytes);
    return REEL_OK;
}

/* ---- prefill --------------------------------------------------------------------------------- */

/* Checks that each part of the scratch memory ends before the next begins. */
static enum reel_status check_scratch(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct plan_scratch *s = &p->scratch;
    const struct plan_delta *d = &p->delta;
    const int head = p->head_dim, q = p->n_heads / p->n_gpus * head,
              qkv = q * (t->gate_dim ? 2 : 1) + 2 * (p->n_kv_heads / p->n_gpus) * head;
    const int heads = d->value_heads / p->n_gpus, values = heads * d->value_dim,
              keys = d->key_heads / p->n_gpus * d->key_dim;
    const int asked = heads * d->key_dim; /* rows that value heads do not share */
    const struct {
        const char *what;
        uint64_t at, end;
        int least; /* bytes a token */
    } parts[] = {
        { "the residual stream", s->h, s->ssq, 4 * t->hidden },
        { "sums of squares", s->ssq, s->x, t->hidden / 64 * 4 },
        { "normed activations", s->x, s->qkv, 2 * t->hidden },
        { "q, k and v", s->qkv, s->attention, 2 * qkv },
        { "q, k, v and z", s->qkv, s->attention, 8 * keys + 6 * values },
        { "attention", s->attention, s->mixed, 2 * q },
        { "answers of DeltaNets", s->mixed, s->gated, 2 * values },
        { "gated values", s->gated, s->parts, 2 * (t->intermediate / p->n_gpus) },
        { "GPUs' parts of sums", s->parts, s->delta.q,
          p->n_gpus > 1 ? 8 * p->n_gpus * t->hidden : 0 },
        { "queries", s->delta.q, s->delta.k, 2 * keys },
        { "keys", s->delta.k, s->delta.v, 2 * keys },
        { "values", s->delta.v, s->delta.gates, 2 * values },
        { "gates", s->delta.gates, s->delta.decay, 8 * heads },
        { "decays", s->delta.decay, s->delta.kept, 8 * heads },
        { "weights of keys", s->delta.w, s->delta.u, 2 * asked },
        { "weighted values", s->delta.u, s->delta.asked, 4 * values },
        { "products of queries", s->delta.asked, s->delta.learned, 4 * DELTA_CHUNK * heads },
        { "what is learned", s->delta.learned, s->delta.states, 4 * values },
        { "states", s->delta.states, s->bytes, 2 * values * d->key_dim / DELTA_CHUNK },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const uint64_t bytes = (uint64_t)parts[i].least * (uint64_t)p->prefill_tokens;
        if (parts[i].at % 1024 || parts[i].end < parts[i].at + bytes)
            REFUSE("prefill: %s of %d tokens do not fit between bytes %llu and %llu", parts[i].what,
                   p->prefill_tokens, (unsigned long long)parts[i].at,
                   (unsigned long long)parts[i].end);
    }
    return REEL_OK;
}

static enum reel_status check_prefill(const struct plan *p, struct reel_error *err) {
    if (p->prefill_tokens == 0) {
        if (!p->prefill_none) REFUSE("prefill is left out without a reason");
        return REEL_OK;
    }
    if (p->prefill_tokens < 0 || p->prefill_tokens % PLAN_PREFILL_STEP)
        REFUSE("prefill of %d tokens: a multiple of %d is needed", p->prefill_tokens,
               PLAN_PREFILL_STEP);
    if (p->copy == 0 || (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256) ||
        p->tape.hidden % 64)
        REFUSE("prefill with copies of kind %d, head_dim %d, hidden size %d", p->copy, p->head_dim,
               p->tape.hidden);
    if (p->prefill_stages < 2 ||
        p->prefill_shared != prefill_shared_bytes(p->prefill_stages, p->prefill_k_places) ||
        p->prefill_shared > p->gpu.shared_bytes)
        REFUSE("prefill: %d bytes of shared memory for %d stages: %d are needed, %d allowed",
               p->prefill_shared, p->prefill_stages,
               prefill_shared_bytes(p->prefill_stages, p->prefill_k_places), p->gpu.shared_bytes);
    if (p->prefill_chunk_shared != plan_prefill_chunk_bytes(&p->delta) ||
        p->prefill_chunk_shared > p->gpu.shared_bytes)
        REFUSE("prefill: %d bytes of shared memory for chunks: %d are needed, %d allowed",
               p->prefill_chunk_shared, plan_prefill_chunk_bytes(&p->delta), p->gpu.shared_bytes);
    if (p->wgmma && (p->compute != 90 || p->gpu.compute != 90))
        REFUSE("wgmma compiled for %d on %d", p->compute, p->gpu.compute);
    return check_scratch(p, err);
}

/* ---- short prompts --------------------------------------------------------------------------- */

static enum reel_status check_short(const struct plan *p, struct reel_error *err) {
    const int n = p->short_tokens, tiles = plan_ceil(p->tape.hidden, TILE_K);
    if (n == 0 && p->short_slots == 0 && p->short_shared == 0 && p->short_words == 0)
        return REEL_OK;
    if ((n != 8 && n != 16 && n != 32 && n != 64) || n > p->prefill_tokens)
        REFUSE("short prompts of %d tokens: 8, 16, 32 or 64 are possible, prefill takes %d", n,
               p->prefill_tokens);
    if (p->short_preload < 1 || p->short_preload > plan_short_preload(p, p->short_slots))
        REFUSE("short prompts: %d tiles of a warp in registers, %d of them in %d slots",
               p->short_preload, plan_short_preload(p, p->short_slots), p->short_slots);
    if (n > 16 && plan_ceil(plan_most_tiles(p), p->slot_tiles) > p->short_slots)
        REFUSE("short prompts of %d tokens: a phase stays in %d slots, %d are there", n,
               plan_ceil(plan_most_tiles(p), p->slot_tiles), p->short_slots);
    if (tiles * (n / 8) > p->tape.n_sms * p->tape.warps)
        REFUSE("short prompts of %d tokens: %d parts of the residual stream for %d warps", n,
               tiles * (n / 8), p->tape.n_sms * p->tape.warps);
    if (p->short_slots < 4 || p->short_shared != plan_short_shared_bytes(p, n, p->short_slots) ||
        p->short_shared > p->gpu.shared_bytes)
        REFUSE("short prompts: %d bytes of shared memory for %d slots: %d are needed, %d allowed",
               p->short_shared, p->short_slots, plan_short_shared_bytes(p, n, p->short_slots),
               p->gpu.shared_bytes);
    if (p->short_words != plan_short_words(p, n))
        REFUSE("short prompts: %u exchange words, %u are needed", p->short_words,
               plan_short_words(p, n));
    return REEL_OK;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static enum reel_status check_regions(const struct plan *p, struct reel_error *err) {
    unsigned end = 0;
    for (int i = 0; i < PLAN_N_EXCHANGES; i++) {
        const struct plan_words *x = &p->exchange[i];
        if (x->offset % PLAN_WORD_ALIGN)
            REFUSE("%s: word %u is not at the start of a line", exchange_names[i], x->offset);
        if (x->offset < end) REFUSE("%s overlaps the exchange before it", exchange_names[i]);
        end = x->offset + x->words;
    }
    if (end > p->n_words) REFUSE("exchanges need %u words of %u", end, p->n_words);
    return REEL_OK;
}

/* Marks the words that one SM publishes, as the epilogue does: its `mine` values from `first` on,
 * of its group's `have`. A word has two values. */
static enum reel_status publish(unsigned char *seen, const struct plan_words *x, int exchange,
                                int group, int have, int first, int mine, struct reel_error *err) {
    for (int i = 0; i < mine && first + i < have; i += 2) {
        unsigned word = (unsigned)(group * (have / 2) + (first + i) / 2);
        if (word >= x->words)
            REFUSE("%s: word %u is published beyond its %u", exchange_names[exchange], word,
                   x->words);
        if (seen[word]++) REFUSE("%s: word %u is published twice", exchange_names[exchange], word);
    }
    return REEL_OK;
}

static enum reel_status check_exchange(const struct plan *p, int exchange, int have, int mine,
                                       int readers, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct plan_words *x = &p->exchange[exchange];
    if (x->readers != readers)
        REFUSE("%s: %d readers, not %d", exchange_names[exchange], x->readers, readers);
    if (x->words != (unsigned)(t->n_groups * (have / 2)))
        REFUSE("%s: readers want %d words of each group, there are %u in all",
               exchange_names[exchange], have / 2, x->words);
    unsigned char *seen = mem_calloc(x->words, 1);
    if (!seen) return err_memory(err, "the check of an exchange", x->words);
    enum reel_status status = REEL_OK;
    for (int sm = 0; sm < t->n_sms && status == REEL_OK; sm++)
        status = publish(seen, x, exchange, sm / t->group_sms, have, sm % t->group_sms * mine, mine,
                         err);
    const unsigned char *missing = memchr(seen, 0, x->words);
    if (status == REEL_OK && missing)
        status = err_set(err, REEL_E_MISMATCH, "plan: %s: nobody publishes word %td",
                         exchange_names[exchange], missing - seen);
    mem_free(seen);
    return status;
}

/* Checks the exchanges that only some plans have. The first SMs of a group may share their words
 * unevenly. */
static enum reel_status check_group_words(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const int mix = d->n_layers ? 2 * (t->group_key + t->group_value) : 0;
    const struct {
        int exchange, words;
    } all[] = { { X_MERGED, p->merge_scatter ? t->group_q / 2 : 0 },
                { X_DELTA, t->group_value / 2 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct plan_words *x = &p->exchange[all[i].exchange];
        if (x->words != (unsigned)(t->n_groups * all[i].words) || x->readers != t->group_sms)
            REFUSE("%s: %u words for %d readers, each group needs %d for its %d SMs",
                   exchange_names[all[i].exchange], x->words, x->readers, all[i].words,
                   t->group_sms);
    }
    if (mix == 0) return REEL_OK;
    return check_exchange(p, X_MIX, mix, t->segment[TAPE_MIX].rows, t->group_sms, err);
}

static enum reel_status check_exchanges(const struct plan *p, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct tape_segment *s = t->segment;
    const struct {
        int exchange, have, mine, readers;
    } edges[] = {
        { X_QKV, t->group_q + (t->gate_dim ? t->group_q : 0) + 2 * t->group_kv, s[TAPE_QKV].rows,
          t->group_sms },
        { X_OUT_SUM, t->hidden, s[TAPE_OUT].rows, t->n_sms },
        { X_GATED, t->group_intermediate, s[TAPE_GATE_UP].rows / 2, t->group_sms },
        { X_DOWN_SUM, t->hidden, s[TAPE_DOWN].rows, t->n_sms },
    };
    enum reel_status status = check_regions(p, err);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0] && status == REEL_OK; i++)
        status = check_exchange(p, edges[i].exchange, edges[i].have, edges[i].mine,
                                edges[i].readers, err);
    if (status != REEL_OK) return status;
    if (p->exchange[X_ATTENTION].words < (unsigned)(plan_attention_words(p) * t->n_sms))
        REFUSE("attention: %u words, each SM publishes %d", p->exchange[X_ATTENTION].words,
               plan_attention_words(p));
    status = check_group_words(p, err);
    if (status != REEL_OK) return status;
    const int h = !p->two_hops ? 0 : p->h_pairs ? t->hidden / 2 : t->hidden;
    for (int i = X_OUT_H; i <= X_DOWN_H; i++)
        if (p->exchange[i].words != (unsigned)h || p->exchange[i].readers != t->n_sms)
            REFUSE("%s: %u words for %d readers, not %d for %d", exchange_names[i],
                   p->exchange[i].words, p->exchange[i].readers, h, t->n_sms);
    if (p->exchange[X_BEST].words < (unsigned)(2 * t->n_sms) ||
        p->exchange[X_PICK].words < (unsigned)(PLAN_PICK_WORDS * t->n_sms))
        REFUSE("best and pick need 2 and %d words of each SM", PLAN_PICK_WORDS);
    return REEL_OK;
}

/* ---- every weight ---------------------------------------------------------------------------- */

/* How large the weights of one phase of the model are: rows by k. */
struct extent {
    int rows, k;
};

static struct extent extent_of(const struct plan *p, int phase, int layer) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const int q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    const int gates = t->gate_dim ? q : 0, value = d->value_heads * d->value_dim;
    const struct extent all[TAPE_N_PHASES] = {
        [TAPE_QKV] = { q + gates + 2 * kv, t->hidden },
        [TAPE_OUT] = { t->hidden, tape_is_delta(t, layer) ? value : q },
        [TAPE_GATE_UP] = { 2 * t->intermediate, t->hidden },
        [TAPE_DOWN] = { t->hidden, t->intermediate },
        [TAPE_HEAD] = { t->vocab, t->hidden },
        [TAPE_MIX] = { 2 * (d->key_heads * d->key_dim + value), t->hidden },
    };
    return all[phase];
}

/* The group that has a row of qkv, and the row's number there. */
static int qkv_owner(const struct plan *p, int row, int *local) {
    const struct tape_shape *t = &p->tape;
    const int parts = t->gate_dim ? 2 : 1, q = parts * p->n_heads * p->head_dim;
    const int kv = p->n_kv_heads * p->head_dim, i = row % p->head_dim;
    if (row < q) {
        const int part = row / p->head_dim % parts, head = row / p->head_dim / parts;
        *local = part * t->group_q + head % p->group_heads * p->head_dim + i;
        return head / p->group_heads;
    }
    const int head = (row - q) % kv / p->head_dim, is_v = (row - q) / kv;
    *local = parts * t->group_q + is_v * t->group_kv + head % p->group_kv_heads * p->head_dim + i;
    return head / p->group_kv_heads;
}

/* The group that has a row of mix, and the row's number there: q and k of key heads, v and z of
 * value heads. */
static int mix_owner(const struct plan *p, int row, int *local) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const int keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim;
    const bool of_key = row < 2 * keys;
    const int i = of_key ? row % keys : (row - 2 * keys) % values;
    const int dim = of_key ? d->key_dim : d->value_dim;
    const int heads = of_key ? d->group_key_heads : d->group_value_heads;
    const int before = row < keys                ? 0
                       : of_key                  ? t->group_key
                       : row < 2 * keys + values ? 2 * t->group_key
                                                 : 2 * t->group_key + t->group_value;
    *local = before + i / dim % heads * dim + i % dim;
    return i / dim / heads;
}

/* The SM to whose published row, or slice of k, this weight belongs; derived from the exchanges.
 */
static int owner(const struct plan *p, int phase, int layer, int row, int k) {
    const struct tape_shape *t = &p->tape;
    const struct tape_segment *g = &t->segment[phase];
    const int mixed = tape_is_delta(t, layer) ? t->group_value : t->group_q;
    int group, local, share = g->rows;
    switch (phase) {
    case TAPE_QKV:
        group = qkv_owner(p, row, &local);
        break;
    case TAPE_MIX:
        group = mix_owner(p, row, &local);
        break;
    case TAPE_GATE_UP:
        local = row % t->intermediate;
        group = local / t->group_intermediate;
        local -= group * t->group_intermediate;
        share /= 2;
        break;
    case TAPE_HEAD:
        return row / TILE_ROWS % t->n_sms;
    default:
        group = k / (phase == TAPE_OUT ? mixed : t->group_intermediate);
        local = row;
    }
    return group * t->group_sms + local / share;
}

/* The number of a weight's place, of whose grain begins at byte `at`. Narrow weights lie together
 * in a grain; the column is counted from a slice's begin, which is even. */
static unsigned long long place_of(const struct tape_shape *t, int phase, int layer,
                                   unsigned long long at, int k) {
    const int format = t->segment[phase].format;
    const int slice = tape_slice(t, phase, layer, k + 1);
    if (!plan_narrow(t)) return at / 4;
    if (!TILE_NARROW(format)) return at * 2;
    return at * 2 + (unsigned long long)tile_code_shift(format, k % slice) / 4;
}

/* Marks the grain of a row that begins at column k; `seen` has one bit for each grain of the tapes,
 * or where weights are narrow for every four bits. The phase begins at byte `begin` of an SM's
 * tape. */
static enum reel_status mark(const struct plan *p, unsigned char *seen, int phase, int layer,
                             unsigned long long begin, int row, int k, int columns,
                             struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const int grain = tile_grain(t->segment[phase].format);
    unsigned long long at = tape_locate(t, phase, layer, row, k);
    unsigned long long start =
        (unsigned long long)owner(p, phase, layer, row, k) * t->sm_bytes + begin;
    if (at < start || at >= start + t->segment[phase].bytes || at % 4)
        REFUSE("%s: layer %d, row %d, column %d lies at byte %llu, outside its segment at %llu",
               phase_names[phase], layer, row, k, at, start);
    for (int i = 1; i < grain && k + i < columns; i++)
        if (at != tape_locate(t, phase, layer, row, k + i))
            REFUSE("%s: layer %d, row %d: columns %d and %d are not neighbours", phase_names[phase],
                   layer, row, k, k + i);
    const unsigned long long nth = place_of(t, phase, layer, at, k);
    unsigned char bit = (unsigned char)(1u << nth % 8);
    if (seen[nth / 8] & bit)
        REFUSE("%s: layer %d, row %d, column %d shares its place with another weight",
               phase_names[phase], layer, row, k);
    seen[nth / 8] |= bit;
    return REEL_OK;
}

static enum reel_status mark_phase(const struct plan *p, unsigned char *seen, int phase, int layer,
                                   unsigned long long begin, struct reel_error *err) {
    const struct extent all = extent_of(p, phase, layer);
    const int grain = tile_grain(p->tape.segment[phase].format);
    enum reel_status status = REEL_OK;
    for (int row = 0; row < all.rows; row++)
        for (int k = 0; k < all.k && status == REEL_OK; k += grain)
            status = mark(p, seen, phase, layer, begin, row, k, all.k, err);
    return status;
}

static enum reel_status check_places(const struct plan *p, struct reel_error *err) {
    const uint64_t n = p->tape_bytes / (plan_narrow(&p->tape) ? 4 : 32) + 1;
    unsigned char *seen = mem_calloc(n, 1);
    if (!seen) return err_memory(err, "the check of the tapes", n);
    enum reel_status status = REEL_OK;
    unsigned long long begin = 0;
    for (int layer = 0; layer < p->tape.n_layers && status == REEL_OK; layer++)
        for (int i = 0; i < TAPE_HEAD && status == REEL_OK; i++) {
            const int phase = i == TAPE_QKV && tape_is_delta(&p->tape, layer) ? TAPE_MIX : i;
            status = mark_phase(p, seen, phase, layer, begin, err);
            begin += p->tape.segment[phase].bytes;
        }
    if (status == REEL_OK) status = mark_phase(p, seen, TAPE_HEAD, 0, begin, err);
    mem_free(seen);
    return status;
}

enum reel_status plan_check(const struct plan *plan, const struct model_config *config,
                            bool thorough, struct reel_error *err) {
    enum reel_status status = check_model(plan, config, err);
    if (status == REEL_OK) status = check_groups(plan, err);
    if (status == REEL_OK) status = check_tape(plan, err);
    if (status == REEL_OK) status = check_ring(plan, err);
    if (status == REEL_OK) status = check_block(plan, err);
    if (status == REEL_OK) status = check_prefill(plan, err);
    if (status == REEL_OK) status = check_short(plan, err);
    if (status == REEL_OK) status = check_exchanges(plan, err);
    return status == REEL_OK && thorough ? check_places(plan, err) : status;
}
