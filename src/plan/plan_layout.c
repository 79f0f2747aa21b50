/* Computes a plan's sizes: rows and tiles of each phase, the tape, the rings, exchange memory
 * (docs/GLOSSARY.md). */
#include "plan/plan_layout.h"
#include "base/numbers.h"
#include "kernels/kv_layout.h"

enum {
    RING_MOST = 144 << 10, /* beyond this nothing was gained */
    KV_RING = 64 << 10,
    EPILOGUE_WARPS = 2, /* with the producers a warpgroup, which gives up registers together */
    ATTENTION_WARPS = 8,
    MOST_SLOT_BYTES = 16 << 10,
    SPARE_BYTES = 560, /* of shared memory: a kernel that needs a little more changes no plan */
    NEVER_SPLIT = 1 << 30,
    DELTA_UNIT = 16,
    SPLIT_FROM = 256 /* in positions; see split_from */
};

/* ---- phases ---------------------------------------------------------------------------------- */

/* k tiles in whole tiles of `parts` of them. */
static int whole_tiles(int k_tiles, int parts) { return plan_ceil(k_tiles, parts) * parts; }

/* All phases over the hidden vector cut it alike, so each takes whole tiles of the others too. */
static int hidden_parts(const struct tape_shape *t) {
    int parts = 1;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (i != TAPE_OUT && i != TAPE_DOWN)
            parts = int_max(parts, TILE_PARTS(t->segment[i].format));
    return parts;
}

/* Gives a segment half tiles where its last row tile would be mostly padding, on several GPUs. */
static void halve_last(struct tape_segment *g, const struct plan *p) {
    const int last = g->rows - (g->row_tiles - 1) * TILE_ROWS;
    g->half = p->n_gpus > 1 && g->format == TILE_BF16 && g->row_parts == 1 && last <= 8 &&
              g->warp_k % 2 == 0;
}

/* Lays out a phase over the whole hidden vector. Every warp takes its slice of that vector. */
static void split_k(struct tape_segment *g, const struct plan *p, int rows) {
    g->rows = rows;
    g->row_tiles = g->warp_rows = plan_ceil(rows, TILE_ROWS);
    g->row_parts = 1, g->k_parts = p->tape.warps;
    g->warp_k = whole_tiles(plan_ceil(plan_ceil(p->tape.hidden, TILE_K), g->k_parts),
                            hidden_parts(&p->tape));
    g->k_tiles = g->k_parts * g->warp_k;
}

/* Lays out a phase over the group's slice of k. Warps are divided into row parts, and the warps
 * of a row part share the k tiles. The choice has the least padding; among equals it has the most
 * row parts, up to four, so that there are fewer partial sums to add. */
static void split_both(struct tape_segment *g, const struct plan *p, int k) {
    enum { PREFERRED_PARTS = 4 };
    const int warps = p->tape.warps, k_tiles = plan_ceil(k, TILE_K);
    const int of_tile = TILE_PARTS(g->format);
    int best = 0;
    g->rows = plan_even(plan_ceil(p->tape.hidden, p->tape.group_sms));
    g->row_tiles = plan_ceil(g->rows, TILE_ROWS);
    for (int parts = 1; parts <= warps; parts++) {
        if (warps % parts || g->row_tiles % parts) continue;
        const int warp_k = whole_tiles(plan_ceil(k_tiles, warps / parts), of_tile);
        const int padded = warp_k * (warps / parts);
        if (best && (padded > best || (padded == best && parts > PREFERRED_PARTS))) continue;
        best = padded;
        g->row_parts = parts;
    }
    g->k_parts = warps / g->row_parts;
    g->warp_rows = g->row_tiles / g->row_parts;
    g->k_tiles = best;
    g->warp_k = g->k_tiles / g->k_parts;
}

static void lay_phases(struct plan *p) {
    struct tape_shape *t = &p->tape;
    struct tape_segment *s = t->segment;
    split_k(&s[TAPE_QKV], p, plan_even(plan_ceil(plan_qkv_rows(t), t->group_sms)));
    halve_last(&s[TAPE_QKV], p);
    if (p->delta.n_layers) {
        split_k(&s[TAPE_MIX], p, plan_even(plan_ceil(plan_mix_rows(t), t->group_sms)));
        halve_last(&s[TAPE_MIX], p);
    }
    split_both(&s[TAPE_OUT], p, int_max(t->group_q, t->group_value));
    halve_last(&s[TAPE_OUT], p);
    split_k(&s[TAPE_GATE_UP], p, 2 * plan_even(plan_ceil(t->group_intermediate, t->group_sms)));
    split_both(&s[TAPE_DOWN], p, t->group_intermediate);
    halve_last(&s[TAPE_DOWN], p);
    struct tape_segment *head = &s[TAPE_HEAD];
    head->k_tiles = head->warp_k = s[TAPE_QKV].k_tiles;
    head->warp_rows = 1;
    head->row_tiles = tape_head_tiles(t, 0);
    t->layer_bytes = 0;
    for (int i = 0; i < TAPE_HEAD; i++) {
        s[i].offset = t->layer_bytes;
        s[i].bytes = plan_segment_bytes(&s[i]);
        t->layer_bytes += s[i].bytes;
    }
    head->bytes = plan_segment_bytes(head);
    s[TAPE_MIX].bytes = plan_segment_bytes(&s[TAPE_MIX]);
    if (p->delta.n_layers) t->delta_bytes = t->layer_bytes - s[TAPE_QKV].bytes + s[TAPE_MIX].bytes;
    t->layers_bytes = tape_layer_offset(t, t->n_layers);
    t->sm_bytes = plan_whole_tiles(t, t->layers_bytes + head->bytes);
}

/* ---- threads and registers ------------------------------------------------------------------- */

int plan_thread_registers(int registers, int threads) {
    enum {
        QUARTERS = 4,
        GRAIN = 8,
        MOST = 255 / 8 * 8
    }; /* each of a SM's four parts shares out its own registers */
    int warps = plan_ceil(plan_ceil(threads, 32), QUARTERS);
    return int_min(registers / QUARTERS / (warps * 32) / GRAIN * GRAIN, MOST);
}

int plan_most_tiles(const struct plan *p) {
    int tiles = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (i != TAPE_HEAD) tiles = int_max(tiles, plan_warp_tiles(&p->tape.segment[i]));
    return tiles;
}

/* Shares out registers. Consumers hold a phase's tiles, so they get what all warps were launched
 * with, less `left` for each other warp. Only whole warpgroups of four warps can move registers.
 */
static void share_registers(struct plan *p) {
    enum { MOST = 232 };
    const int others = p->threads / 32 - p->tape.warps;
    /* with 56 and 152 the compiler spills a register, with 48 and 152 it does not */
    const int left = p->tape.warps > 8 ? 48 : 56;
    /* code that is compiled for an older GPU must run on any newer one, so it moves none */
    if (p->copy != 2 || p->compute != p->gpu.compute || p->tape.warps % 4 || others % 4) return;
    const int all = plan_thread_registers(p->gpu.registers, p->threads) * (p->threads / 32);
    p->registers_other = left;
    p->registers_consumer = int_min((all - left * others) / p->tape.warps / 8 * 8, MOST);
}

static int consumer_registers(const struct plan *p) {
    if (p->registers_consumer) return p->registers_consumer;
    return plan_thread_registers(p->gpu.registers, p->threads);
}

/* Registers that hold a tile, with its scales where it is narrow. */
static int tile_registers(const struct plan *p) {
    enum { CODE_REGISTERS = 4 };
    int scales = 0;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        scales = int_max(scales, TILE_SCALE_WORDS(p->tape.segment[i].format));
    return CODE_REGISTERS + scales;
}

/* How many tiles fit into a consumer's registers beside accumulators, h, gains, input and `rest`
 * others. */
static int register_tiles(const struct plan *p, int rest) {
    enum { SUM_REGISTERS = 4 };
    const struct tape_segment *s = p->tape.segment;
    int rows = 2, slice = plan_ceil(s[TAPE_QKV].warp_k * 8, 32);
    for (int i = 0; i < TAPE_N_PHASES; i++)
        rows = int_max(rows, s[i].warp_rows); /* the head's: 1 */
    return (consumer_registers(p) - rest - SUM_REGISTERS * rows - 7 * slice) / tile_registers(p);
}

/* Chooses how many tiles a warp preloads. With more the compiler was seen to spill registers. */
static void set_preload(struct plan *p) {
    const bool bulk = p->copy == 2;
    int tiles = int_min(register_tiles(p, bulk ? 76 : 60), bulk ? PLAN_MAX_PRELOAD : 8);
    /* On two H200s Qwen3-1.7B takes 488 us with 16 tiles and 494 with 24, Qwen3-8B, whose slices of
     * h are long, 1,896 with 8 and 1,936 with 16. */
    const bool is_long = plan_ceil(p->tape.segment[TAPE_QKV].warp_k * 8, 32) > 4;
    if (p->n_gpus > 1) tiles = int_min(tiles, is_long ? 8 : 16);
    if (plan_narrow(&p->tape) && p->registers_consumer && p->compute == 90 && p->n_gpus < 2)
        p->ready_parts = tiles; /* on sm_120 the compiler spills; the rest was not tried */
    /* operands of narrow tiles take registers too: with 72 for tiles the compiler spilled */
    if (plan_narrow(&p->tape)) tiles = int_min(tiles, 64 / tile_registers(p));
    tiles = int_min(tiles, int_min(plan_most_tiles(p), p->ring_slots * p->slot_tiles));
    p->preload_tiles = int_max(tiles / p->slot_tiles, 1) * p->slot_tiles;
}

static void set_out_held(struct plan *p) {
    const struct tape_segment *out = &p->tape.segment[TAPE_OUT];
    p->out_held = int_min(plan_warp_tiles(out), p->preload_tiles);
}

/* Registers that a consumer must have; below, the compiler was seen to spill. Attention holds a
 * row of its head in registers, and copies by all lanes take more than bulk copies by one. */
static int registers_wanted(const struct plan *p) {
    if (p->head_dim > 64) return p->copy == 2 ? 168 : 200;
    return p->copy == 2 ? 152 : 168;
}

static enum reel_status lay_threads(struct plan *p, const struct plan_options *o,
                                    struct reel_error *err) {
    enum { LEAST_REST = 20 };
    p->epilogue_warps = o->epilogue_warps ? o->epilogue_warps : EPILOGUE_WARPS;
    p->threads = (p->tape.warps + p->epilogue_warps + PLAN_EXTRA_WARPS) * 32;
    if (p->threads > p->gpu.max_threads)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: %d threads a block, at most %d are allowed",
                       p->gpu.name, p->threads, p->gpu.max_threads);
    share_registers(p);
    const bool few = !o->warps && consumer_registers(p) < registers_wanted(p);
    if (few || register_tiles(p, LEAST_REST) < p->slot_tiles)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: %d registers a thread do not hold %d warps' share of %d SMs' rows",
                       p->gpu.name, consumer_registers(p), p->tape.warps, p->tape.n_sms);
    return REEL_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

int plan_shared_bytes(const struct plan *p) {
    const struct plan_delta *d = &p->delta;
    const int turns = plan_ceil(d->units, p->tape.group_sms);
    const struct decode_block block = { .columns = p->columns,
                                        .gpus = p->n_gpus,
                                        .overlaid = p->overlaid,
                                        .follows = p->follows,
                                        .rotary = p->rotary_dim,
                                        .ring_slots = p->ring_slots,
                                        .kv_slots = p->kv_slots,
                                        .heads = p->group_heads,
                                        .kv_heads = p->group_kv_heads,
                                        .head_dim = p->head_dim,
                                        .attention_warps = p->attention_warps,
                                        .gate_slots = int_min(turns, d->group_value_heads) };
    return p->ring_slots * p->slot_bytes + p->kv_slots * p->kv_piece_bytes +
           decode_shared_bytes(&p->tape, &block);
}

/* Slots of the largest ring, up to `most_bytes`, that fits beside the K/V slots and leaves
 * `spare_bytes`; 0 when none does. In the head a slot must always belong to the same two warps, so
 * slots come in rows of warps / 2. Programs for several columns have rings of one row and a part,
 * too: what is beyond the row serves the layers alone. */
static int ring_that_fits(struct plan *p, int most_bytes, int spare_bytes) {
    const int row = p->tape.warps / 2, odd = p->columns > 1 ? 2 * row : 0;
    for (int slots = most_bytes / p->slot_bytes; slots >= row; slots--) {
        if (slots % row && slots > odd) continue;
        p->ring_slots = slots;
        if (plan_shared_bytes(p) + spare_bytes <= p->gpu.shared_bytes) return slots;
    }
    return 0;
}

/* Bytes of weights that arrive while the consumers wait for a slow exchange. */
static int ring_wanted(const struct plan *p) {
    enum { WAIT_US = 3, LEAST = 32 << 10 };
    int bytes = (int)(plan_share_bytes_us(p->gpu.compute) * WAIT_US);
    return int_min(int_max(bytes, LEAST), RING_MOST);
}

/* Chooses K/V slots and ring: the most attention warps that leave room for the ring that is
 * wanted, else the choice with the largest ring. */
static enum reel_status lay_shared(struct plan *p, const struct plan_options *o,
                                   struct reel_error *err) {
    const int kv = int_max(p->group_kv_heads, 1), wanted = ring_wanted(p);
    int best_ring = 0, best_warps = 0, best_kv = 0;
    int upper = int_max(int_min(ATTENTION_WARPS, p->tape.warps) / kv, 1) * kv;
    for (int warps = upper; warps >= kv; warps -= kv) {
        const int codes = p->kv_piece_bytes - (p->kv_form ? KV_SCALES_BYTES : 0);
        int laps = int_min(KV_RING / codes, PLAN_MAX_KV_SLOTS) / warps;
        if (laps < 1) laps = 1;
        if (o->kv_slots && o->kv_slots % warps) continue;
        if (o->kv_slots) laps = o->kv_slots / warps;
        for (; laps >= 1; laps = o->kv_slots ? 0 : laps / 2) {
            p->attention_warps = warps, p->kv_slots = warps * laps;
            int most_bytes = o->ring_slots ? o->ring_slots * p->slot_bytes : RING_MOST;
            int ring = ring_that_fits(p, most_bytes, SPARE_BYTES);
            if (o->ring_slots && ring != o->ring_slots) ring = 0;
            if (ring > best_ring) best_ring = ring, best_warps = warps, best_kv = warps * laps;
            if (best_ring * p->slot_bytes >= wanted) goto found;
        }
    }
found:
    if (best_ring == 0)
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "%s: %d KB of shared memory a block do not hold the weight ring (slots of %d "
            "bytes in multiples of %d%s), %d K/V slots of %d bytes or more, and the work "
            "area",
            p->gpu.name, p->gpu.shared_bytes >> 10, p->slot_bytes, p->tape.warps / 2,
            o->ring_slots ? ", as asked for" : "", kv, p->kv_piece_bytes);
    p->ring_slots = best_ring, p->attention_warps = best_warps, p->kv_slots = best_kv;
    p->shared_bytes = plan_shared_bytes(p);
    set_preload(p);
    set_out_held(p);
    return REEL_OK;
}

/* ---- exchange memory ------------------------------------------------------------------------- */

int plan_attention_words(const struct plan *p) {
    return plan_ceil(p->group_heads * (p->head_dim / 2 + 1), PLAN_WORD_ALIGN) * PLAN_WORD_ALIGN;
}

/* Whether split attention is merged in two steps: where an SM of a group would have to read many
 * words to merge all partial results alone. The limit is not yet measured. It lies between the
 * groups of up to 44 SMs that were measured and the 64 SMs of Qwen3.5. */
static bool merges_in_two_steps(const struct plan *p) {
    enum { MOST_WORDS = 16 << 10 };
    return p->tape.group_sms * plan_attention_words(p) > MOST_WORDS;
}

static void lay_words(struct plan *p) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const int sms = t->n_sms, group = t->group_sms, n = t->n_groups;
    const unsigned h = !p->two_hops ? 0 : (unsigned)(p->h_pairs ? t->hidden / 2 : t->hidden);
    p->merge_scatter = merges_in_two_steps(p);
    const struct plan_words sizes[PLAN_N_EXCHANGES] = {
        [X_QKV] = { 0, (unsigned)(n * plan_qkv_rows(t) / 2), group },
        [X_ATTENTION] = { 0, (unsigned)(sms * plan_attention_words(p)), group },
        [X_OUT_SUM] = { 0, (unsigned)(t->n_groups * (t->hidden / 2)), sms },
        [X_GATED] = { 0, (unsigned)(t->n_groups * (t->group_intermediate / 2)), group },
        [X_DOWN_SUM] = { 0, (unsigned)(t->n_groups * (t->hidden / 2)), sms },
        [X_BEST] = { 0, (unsigned)(2 * sms), sms },
        [X_PICK] = { 0, (unsigned)(PLAN_PICK_WORDS * sms), sms },
        [X_MERGED] = { 0, p->merge_scatter || p->columns > 1 ? (unsigned)(n * t->group_q / 2) : 0,
                       group },
        [X_MIX] = { 0, d->n_layers ? (unsigned)(n * plan_mix_rows(t) / 2) : 0, group },
        [X_DELTA] = { 0, (unsigned)(n * t->group_value / 2), group },
        [X_GUESS] = { 0, p->follows ? (unsigned)(2 * p->columns) : 0, sms },
        [X_OUT_H] = { 0, h, sms },
        [X_DOWN_H] = { 0, h, sms },
    };
    p->n_words = 0;
    for (int i = 0; i < PLAN_N_EXCHANGES; i++) {
        p->exchange[i] = sizes[i];
        p->exchange[i].offset = p->n_words;
        p->n_words += (sizes[i].words + PLAN_WORD_ALIGN - 1) / PLAN_WORD_ALIGN * PLAN_WORD_ALIGN;
    }
}

/* Whether the layers' weights are integers of which a row of a tile has one scale and nothing else.
 */
static bool layers_integers(const struct tape_shape *t) {
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const int format = t->segment[i].format;
        if (i == TAPE_HEAD || t->segment[i].row_tiles == 0) continue;
        if (!TILE_INTEGERS(format) || TILE_NAMES(format) || TILE_OFFSETS(format) ||
            TILE_RUNS(format) > 1)
            return false;
    }
    return true;
}

/* A lane that gathers sums has registers for 16 words at a time (gather_sum). Where it has more to
 * gather two hops are faster. One H100, Qwen3-1.7B's layers: 1.086 times as many tokens a second,
 * Qwen3-8B's 1.085 times, and 1.26 times in int4. Older GPUs were not measured. Of several GPUs
 * both hops go through all: on two H200s Qwen3-1.7B takes 555 us in two hops and 579 in one, and
 * Qwen3-8B 1,963 and 2,225. In pairs h is half the words: on two H200s 1.7B takes 539 us for 554,
 * 8B 1,959 for 1,982, and on one with int4 509 for 518 and 1,483 for 1,533. In bf16 one GPU would
 * gain 0.5 %, but its ids are those of fp32. Integers of few scales have registers left for sums
 * and few bytes that these queue behind: with 32 words, on one H200, 1.7B in int4 takes 465 us in
 * one hop for 479, in int8 603 for 606, but 4B with 40 words 991 for 977. Its h is rounded as in
 * pairs, in which several columns hand it round. */
static void choose_hops(struct plan *p, const struct plan_options *o) {
    const int words = plan_ceil(p->tape.segment[TAPE_QKV].warp_k * 8, 32) * p->tape.n_groups;
    const bool many = words > 16 && p->compute >= 90;
    const bool one_hop = words <= 32 && p->n_gpus == 1 && layers_integers(&p->tape);
    p->two_hops = o->hops ? o->hops == 2 : many && !one_hop;
    const bool rounds = p->two_hops || (many && !o->hops);
    p->h_pairs = o->h_bits ? o->h_bits == 24 : rounds && (p->n_gpus > 1 || plan_narrow(&p->tape));
}

/* ---- caps ------------------------------------------------------------------------------------ */

/* From which position on attention is split over a group. One SM alone is as fast as sixteen and a
 * merge while each of its warps has one piece, which is up to 128 positions: a second one comes
 * only when the first one's slot is free. One H200, Qwen3-0.6B in int4 from 129 positions on 279 us
 * for 293, from 193 on 281 for 322. In bf16 these are 328 for 323 and 333 for 349, and sums would
 * be added in another order. */
static int split_from(const struct plan *p) {
    if (p->tape.group_sms == 1) return NEVER_SPLIT;
    const bool early = p->merge_scatter || (plan_narrow(&p->tape) && p->n_gpus == 1);
    return early ? SPLIT_FROM / 2 : SPLIT_FROM;
}

/* Sets how many slots may be in flight. In the layers these are the bytes that one SM reads in
 * a microsecond, since exchanges wait behind them; elsewhere nothing waits. One H200, Qwen3-0.6B: 2
 * slots of 16 KB 2,975 tok/s, 3 slots 2,834, 4 slots 2,767 with 6 slots in the head; 3,016 with 2
 * and 8. Qwen2.5-0.5B, slots of 12 KB: 2 slots 2,956, 3 slots 2,901. Narrow weights come soon
 * enough with fewer: with as many as a layer needs in the time that its exchanges and its attention
 * take. So do those of a GPU that has a part of each layer, in less time: on two H200s Qwen3-0.6B
 * takes 272 us with 1 slot and 288 with 2 where an SM has 136 KB of a layer, 291 and 263 where it
 * has 168. With DeltaNets slots are filled in halves there: Qwen3.5-0.8B takes 289 us for 296. */
static void set_caps(struct plan *p, const struct plan_options *o) {
    const double layer_us = p->n_gpus > 1 ? 6.5 : 8,
                 in_flight = plan_share_bytes_us(p->gpu.compute);
    int slots = int_max((int)(in_flight / p->slot_bytes), 2); /* one lands, one is under way */
    const double layer = (double)p->tape.layers_bytes / p->tape.n_layers;
    if (plan_narrow(&p->tape) || p->n_gpus > 1)
        slots = int_min(slots, int_max((int)(layer / layer_us / p->slot_bytes + 0.5), 1));
    const int alone = plan_narrow(&p->tape) && p->n_gpus == 1 ? int_max(slots, 2) : slots;
    p->cap_layers = o->cap_layers ? o->cap_layers : int_min(alone, p->ring_slots);
    p->cap_columns = o->cap_layers ? o->cap_layers : int_min(slots, p->ring_slots);
    p->half_fills = p->n_gpus > 1 && p->delta.n_layers > 0;
    p->cap_head = o->cap_head ? o->cap_head : p->ring_slots;
    p->cap_kv = o->cap_kv ? o->cap_kv : p->kv_slots;
    p->split_from = o->split_from ? o->split_from : split_from(p);
}

static void count_bytes(struct plan *p) {
    const struct tape_shape *t = &p->tape;
    p->tape_bytes = t->sm_bytes * (unsigned)t->n_sms;
    p->token_bytes = t->layers_bytes * (unsigned)t->n_sms;
    for (int sm = 0; sm < t->n_sms; sm++)
        p->token_bytes +=
            (uint64_t)(tape_head_tiles(t, sm) * plan_k_tiles(&t->segment[TAPE_HEAD])) *
            tile_bytes(t->segment[TAPE_HEAD].format);
    p->kv_position_bytes = (uint64_t)(p->kv_piece_bytes / KV_POSITIONS * p->n_kv_heads) *
                           (uint64_t)(t->n_layers - p->delta.n_layers);
    p->kv_page_bytes =
        p->kv_position_bytes * (uint64_t)(p->kv_page * KV_POSITIONS) / (unsigned)p->n_gpus;
    p->imbalance = (double)t->sm_bytes * plan_all_sms(&p->gpu) / (double)p->token_bytes;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Columns of a DeltaNet unit: the largest of DELTA_UNIT and its halves that divides a head. */
static int delta_unit(int value_dim) {
    int unit = DELTA_UNIT;
    while (value_dim % unit)
        unit /= 2;
    return unit;
}

static void take_delta(struct plan *p, const struct model_config *c) {
    struct plan_delta *d = &p->delta;
    d->n_layers = model_layer_count(c, LAYER_DELTA);
    if (d->n_layers == 0) return;
    for (int i = 0; i < c->n_layers; i++)
        if (model_layer_is(c, i, LAYER_DELTA)) p->tape.delta_layers[i / 64] |= 1ull << i % 64;
    d->key_heads = c->delta.key_heads, d->value_heads = c->delta.value_heads;
    d->key_dim = c->delta.key_dim, d->value_dim = c->delta.value_dim;
    d->taps = c->delta.conv_width;
    d->unit = delta_unit(d->value_dim);
    const uint64_t layers = (uint64_t)d->n_layers, values = (uint64_t)model_delta_width(c);
    d->state_bytes = layers * values * (uint64_t)d->key_dim * sizeof(float);
    d->window_bytes =
        layers * (uint64_t)model_delta_channels(c) * (uint64_t)(d->taps - 1) * sizeof(float);
}

static void take_model(struct plan *p, const struct model_config *c) {
    p->n_kv_heads = plan_kv_heads(c, &p->gpu);
    p->none_kv_heads = p->n_kv_heads - c->n_kv_heads;
    p->n_heads = c->n_heads / c->n_kv_heads * p->n_kv_heads;
    p->head_dim = c->head_dim;
    p->qk_norm = c->qk_norm;
    p->qkv_bias = c->qkv_bias || c->given_biases;
    p->is_draft = c->is_draft;
    p->given_biases = c->given_biases;
    p->tied = c->tied;
    p->rms_eps = c->rms_eps;
    p->tape.n_layers = c->n_layers;
    p->tape.hidden = c->hidden;
    p->tape.vocab = c->vocab;
    p->tape.intermediate = c->intermediate;
    p->tape.gate_dim = c->gated_attention ? c->head_dim : 0;
    p->rotary_dim = c->rotary_dim;
    take_delta(p, c);
}

/* Columns that lie together in a group's tapes, where a phase goes through the group's slice of
 * them; 0: it goes through all. Layers of both kinds share out's format. */
static int slice_of(const struct plan *p, int phase) {
    const struct tape_shape *t = &p->tape;
    if (phase == TAPE_DOWN) return t->group_intermediate;
    if (phase != TAPE_OUT) return 0;
    return p->delta.n_layers ? plan_common(t->group_q, t->group_value) : t->group_q;
}

static void take_choice(struct plan *p, const struct plan_choice *choice, const int *formats) {
    struct tape_shape *t = &p->tape;
    t->n_groups = choice->n_groups;
    t->group_sms = choice->group_sms;
    t->n_sms = t->n_groups * t->group_sms;
    t->warps = choice->warps;
    p->group_heads = p->n_heads / t->n_groups;
    p->group_kv_heads = p->n_kv_heads / t->n_groups;
    t->group_q = p->group_heads * p->head_dim;
    t->group_kv = p->group_kv_heads * p->head_dim;
    p->delta.group_key_heads = p->delta.key_heads / t->n_groups;
    p->delta.group_value_heads = p->delta.value_heads / t->n_groups;
    t->group_key = p->delta.group_key_heads * p->delta.key_dim;
    t->group_value = p->delta.group_value_heads * p->delta.value_dim;
    if (p->delta.unit) p->delta.units = t->group_value / p->delta.unit;
    t->group_intermediate = plan_even(plan_ceil(t->intermediate, t->n_groups));
    p->slot_tiles = choice->slot_tiles;
    for (int i = 0; i < TAPE_N_PHASES; i++)
        t->segment[i].format = plan_format(i, formats[i], slice_of(p, i));
    p->slot_bytes = t->warps * p->slot_tiles * (int)plan_widest_tile(t);
    t->head_unit = t->warps * p->slot_tiles / 2;
    p->kv_piece_bytes = (int)kv_piece_bytes(p->kv_form, p->head_dim);
}

int plan_half_pieces(int kv_form, int piece_bytes) {
    return kv_half_pieces(kv_form, STAGE_BYTES / 2, piece_bytes);
}

/* Pieces of a page: as many as asked for, else 128 positions, or more where prompts copy more of
 * them at once. A small page leaves little unused behind a session's last position; a large one has
 * its address looked up seldom. */
static void choose_page(struct plan *p, const struct plan_options *o) {
    enum { USUAL = 8 };
    p->kv_page = o->kv_page ? o->kv_page : USUAL;
    while (!o->kv_page && p->kv_page < plan_half_pieces(p->kv_form, p->kv_piece_bytes))
        p->kv_page *= 2;
}

enum reel_status plan_layout(struct plan *plan, const struct model_config *config,
                             const struct gpu_limits *gpu, const struct plan_choice *choice,
                             const struct plan_options *options, struct reel_error *err) {
    *plan = (struct plan){ .gpu = *gpu, .n_gpus = plan_gpus(gpu), .columns = 1 };
    plan->compute = options->compute ? options->compute : gpu->compute;
    plan->copy = plan->compute >= 90 ? 2 : plan->compute >= 80 ? 1 : 0;
    plan->kv_form = options->kv_form;
    plan->kv_given = options->kv_form && options->kv_given;
    take_model(plan, config);
    take_choice(plan, choice, options->formats);
    if (plan->group_kv_heads > choice->warps)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d groups leave %d KV heads to each, at most %d (one a warp) can be done",
                       choice->n_groups, plan->group_kv_heads, choice->warps);
    lay_phases(plan);
    const int down_rows = plan->tape.segment[TAPE_DOWN].rows;
    if ((choice->group_sms - 1) * down_rows >= plan->tape.hidden)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d SMs a group with %d rows of hidden each leave some without any, and "
                       "exchanges count on all to take part",
                       choice->group_sms, down_rows);
    if (plan->slot_bytes > MOST_SLOT_BYTES ||
        plan_k_tiles(&plan->tape.segment[TAPE_HEAD]) % plan->tape.head_unit)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "slots of %d tiles a warp: the head's %d tiles of k do not divide into them",
                       choice->slot_tiles, plan_k_tiles(&plan->tape.segment[TAPE_HEAD]));
    enum reel_status status = lay_threads(plan, options, err);
    if (status == REEL_OK) status = lay_shared(plan, options, err);
    if (status != REEL_OK) return status;
    choose_hops(plan, options);
    lay_words(plan);
    set_caps(plan, options);
    choose_page(plan, options);
    count_bytes(plan);
    plan_prefill(plan, config, options);
    plan_short(plan);
    plan_encoder(plan, config);
    return REEL_OK;
}

/* ---- several columns ------------------------------------------------------------------------- */

/* Registers of a consumer that hold h of all columns. */
static int column_registers(const struct plan *p, int columns) {
    return 2 * columns * plan_ceil(p->tape.segment[TAPE_QKV].warp_k * 8, 32);
}

/* The block's logits that are kept for the sampler lie in the slots of K and V, and those of
 * columns that do not fit there in the place of partial sums. */
static bool keys_fit(const struct plan *p, int columns) {
    const struct tape_segment *s = p->tape.segment;
    const int rows = s[TAPE_HEAD].row_tiles * TILE_ROWS;
    const int rest = columns - p->kv_slots * p->kv_piece_bytes / (4 * rows);
    return rest * rows <= columns * parts_of_two(&s[TAPE_QKV], &s[TAPE_GATE_UP], columns);
}

/* Sums of two groups are as many words as what two hops would hand round in fp32. Models without
 * DeltaNets have two hops all the same, as they were measured. */
static bool few_sums(const struct plan *p) { return p->delta.n_layers && p->tape.n_groups <= 2; }

/* Of the columns that may follow others. */
static uint64_t kept_bytes(const struct plan *p) {
    const struct delta_layout d = plan_delta_layout(p);
    const int turns = plan_ceil(p->delta.units, p->tape.group_sms);
    if (!p->delta.n_layers) return 0;
    return (uint64_t)(p->columns - 1) * (uint64_t)p->delta.n_layers * sizeof(float) *
           (uint64_t)delta_kept_layer(&d, p->tape.n_sms, turns, p->delta.unit);
}

/* Chooses the ring of several columns, as nothing else of their plan depends on it; no slots: there
 * is no room. Models with DeltaNets attend without stages, so nothing is lost where parts of shared
 * memory share their place, and with a ring twice as long four columns of Qwen3.5-0.8B take 7 %
 * less on an H200, with drafts 9 %. Others lose 11 % at position 4,096. */
static void choose_column_ring(struct plan *plan, const struct plan *one) {
    const int most_bytes = one->ring_slots * one->slot_bytes;
    const bool hybrid = one->delta.n_layers > 0, many = plan->columns > 4;
    plan->overlaid = hybrid && many;
    plan->ring_slots = ring_that_fits(plan, most_bytes, 0);
    /* codes have more slots than bf16, which takes as much room as several columns have left */
    if (plan->ring_slots == 0 && plan->kv_form &&
        plan->kv_slots % (2 * plan->attention_warps) == 0) {
        plan->kv_slots /= 2;
        plan->ring_slots = ring_that_fits(plan, most_bytes, 0);
    }
    if (!many && !group_digit_words(&one->tape) && (plan->ring_slots == 0 || hybrid)) {
        const struct plan apart = *plan;
        plan->overlaid = true;
        if (ring_that_fits(plan, most_bytes, 0) <= apart.ring_slots) *plan = apart;
    }
}

enum reel_status plan_columns(struct plan *plan, const struct plan *one, int columns, bool follows,
                              struct reel_error *err) {
    enum { MOST_REGISTERS = 64, TWO_HOPS_FROM = 4, FEW_IN_FLIGHT = 24 << 10 };
    *plan = *one;
    plan->columns = columns;
    plan->follows = follows;
    if (one->tape.group_intermediate % 4) /* words are gathered in twos */
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "passes of %d columns: a group's %d intermediate values are no multiple of 4", columns,
            one->tape.group_intermediate);
    choose_column_ring(plan, one);
    if (column_registers(one, columns) > MOST_REGISTERS || !keys_fit(plan, columns))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "passes of %d columns: %d values of hidden and %d ids are too many", columns,
                       one->tape.hidden, one->tape.vocab);
    if (plan->overlaid && group_digit_words(&one->tape)) /* not laid out for that */
        return err_set(err, REEL_E_UNSUPPORTED,
                       "passes of %d columns: not with integer weights beside DeltaNets", columns);
    if (plan->ring_slots == 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "passes of %d columns: %s has too little shared memory", columns,
                       one->gpu.name);
    plan->shared_bytes = plan_shared_bytes(plan);
    plan->ready_parts = 0; /* with h of all columns there are no registers for them */
    if (columns > 4)       /* their h takes registers; fewer columns fill the ring twice */
        plan->preload_tiles = int_min(one->preload_tiles, plan->ring_slots * plan->slot_tiles);
    /* Two do as one does: they have too few registers for more sums. One H200, Qwen3-1.7B: 934 us
     * for 1,017, Qwen3-8B 3,686 for 4,038. And where one's h is rounded, theirs must be, too. */
    plan->two_hops = one->two_hops || one->h_pairs || (columns >= TWO_HOPS_FROM && !few_sums(one));
    lay_words(plan);
    plan->n_words *= (unsigned)columns;
    plan->kept_bytes = follows ? kept_bytes(plan) : 0;
    /* of eight columns' exchanges more words queue behind what is in flight; with DeltaNets a layer
     * is longer, and that counts for less than tiles that come late */
    const int few = int_max((FEW_IN_FLIGHT + one->slot_bytes / 2) / one->slot_bytes, 1);
    plan->half_fills = columns > 4 && !one->delta.n_layers;
    plan->cap_layers = one->cap_columns;
    if (columns > 4 && plan->half_fills) plan->cap_layers = int_min(one->cap_columns, few);
    plan->cap_layers = int_min(plan->cap_layers, plan->ring_slots);
    plan->cap_head = int_min(one->cap_head, plan->ring_slots);
    plan->cap_kv = int_min(one->cap_kv, plan->kv_slots);
    return REEL_OK;
}
