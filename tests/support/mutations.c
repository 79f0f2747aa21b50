#include "support/mutations.h"

#include "support/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN(file, from, to)                                                                         \
    { file, from, to, false }
#define EVERYWHERE(file, from, to)                                                                 \
    { file, from, to, true }
#define LIST(name, list, shares)                                                                   \
    const struct mutation_list name##_mutations = { #name, list,                                   \
                                                    (int)(sizeof list / sizeof *list), shares }

/* ---- decode.cu: test_sim_orders.c ---- */

#define SUMS_EARLY(phase) IN("publish.cuh", "    consumers_sync(); /* " phase "'s sums */\n", "")

static const struct mutation decode[] = {
    /* words taken without their epoch */
    { "qkv",
      { IN("phase_attention.cuh", "word_off(v[n][0], w->epoch) | word_off(v[n][1], w->epoch)",
           "!(v[n][0] >> 32 && v[n][1] >> 32)") } },
    { "attention",
      { IN("phase_attention_merge.cuh",
           "word_off24(v->o[n][0], w->epoch) | word_off24(v->o[n][1], w->epoch)",
           "!(v->o[n][0] >> 48 && v->o[n][1] >> 48)") } },
    { "gated",
      { IN("exchange.cuh", "off |= word_missing(w, v[i], is24);",
           "off |= is24 ? word_missing(w, v[i], 1) : !(v[i] >> 32);") } },
    { "best",
      { IN("best.cuh", "word_is(key, w->epoch) & word_is(id, w->epoch)",
           "key >> 32 && id >> 32") } },
    { "sums of out and down",
      { IN("exchange.cuh", "off |= word_off24(v[i][g], w->epoch);", "off |= !(v[i][g] >> 48);"),
        IN("exchange.cuh", "(!polls || !word_is24(v[i][g], w->epoch))", "1") } },
    /* keys and values fetched too early */
    { "K/V not waiting for the token's end",
      { IN(
          "kv_ring.cuh",
          "if (t > 0 && !kv_token_wait(w, t)) break;\n        if (!layers_done(a, t) && !kv_token(",
          "if (!layers_done(a, t) && !kv_token(") } },
    { "the token's end not agreed between blocks",
      { IN("phase_pick.cuh", "best_wait(w, w->a->words + X_BEST);", "") } },
    { "the writer's fence",
      { IN("decode.cu", "fence_gpu(); /* K and V rows", "/* K and V rows") } },
    { "the reader's fence for loads",
      { IN("kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", "    fence_copies();\n") } },
    { "the fence between loads and copies", { IN("kv_ring.cuh", "    fence_copies();\n", "") } },
    /* slots of the rings out of turn */
    { "a weight slot given back before it is read",
      { IN("ring.cuh", "slots_wait(w, 0, slots);",
           "slots_wait(w, 0, slots);\n    if (w->lane < slots) mbar_arrive(w->empty + (smem)mine * "
           "8);"),
        IN("ring.cuh", "if (w->lane < slots) mbar_arrive_after(", "if (0) mbar_arrive_after(") } },
    { "a weight slot filled before it is free",
      { IN("ring.cuh", "if (slot_filled(p, &parity) && !stream_wait", "if (0 && !stream_wait") } },
    { "weights not waited for", { IN("ring.cuh", "slots_wait(w, 0, slots);", "") } },
    { "caps of the phases never set", { IN("decode.cu", "        caps_start(w);\n", "") } },
    { "the head's weights not waited for",
      { IN("phase_head.cuh", "if (w->lane == 0) mbar_wait(", "if (0) mbar_wait(") } },
    { "K/V not waited for",
      { IN("kv_ring.cuh", "if (w->lane == 0) mbar_wait(", "if (0) mbar_wait(") } },
    { "a K/V slot given back before it is read",
      { IN("kv_ring.cuh", "    lanes_agree(w);\n}",
           "    if (w->lane == 0) mbar_arrive(smem_of(&w->s->kv_empty[kv_slot(w)]));\n}"),
        IN("kv_ring.cuh", "if (w->lane == 0) mbar_arrive_after(", "if (0) mbar_arrive_after(") } },
    { "a K/V slot filled before it is free",
      { IN("kv_ring.cuh", "if (!stream_wait(w, p->empty", "if (0 && !stream_wait(w, p->empty") } },
    { "barriers that copies do not know", { IN("decode.cu", "        mbar_init_done();\n", "") } },
    /* arrivals that may overtake loads */
    { "a weight slot given back by an arrival that passes loads",
      { IN("ring.cuh", "mbar_arrive_after(w, w->empty + (smem)mine * 8, seen)",
           "mbar_arrive(w->empty + (smem)mine * 8)") } },
    { "the head's slot given back by an arrival that passes loads",
      { IN("phase_head.cuh", "mbar_arrive_after(w, w->empty + (smem)w->slot * 8, seen)",
           "mbar_arrive(w->empty + (smem)w->slot * 8)") } },
    { "a K/V slot given back by an arrival that passes loads",
      { IN("kv_ring.cuh", "mbar_arrive_after(w, smem_of(&w->s->kv_empty[kv_slot(w)]), seen)",
           "mbar_arrive(smem_of(&w->s->kv_empty[kv_slot(w)]))") } },
    /* barriers that are missing */
    /* with an epilogue that is late, which alone is harmless */
    { "one barrier for all that the epilogue waits for",
      { EVERYWHERE("shared.cuh", "BARRIER_PARTS + w->parts", "BARRIER_PARTS"),
        IN("decode.cu", "            if (down_is_told(w)) parts_wait(w);",
           "            for (int i = 0; down_is_told(w) && i < 20000; i++)\n                "
           "(void)shared_load(smem_of(&w->s->end));\n"
           "            if (down_is_told(w)) parts_wait(w);") } },
    { "the epilogue not waiting for the consumers",
      { IN("shared.cuh", "DEV void parts_wait(struct worker *w) {\n    barrier_wait(",
           "DEV void parts_wait(struct worker *w) {\n    barrier_arrive(") } },
    { "qkv's sums not waiting for the products", { SUMS_EARLY("qkv") } },
    { "out's sums not waiting for the products", { SUMS_EARLY("out") } },
    { "gate_up's sums not waiting for the products", { SUMS_EARLY("gate_up") } },
    { "down's sums not waiting for the products", { SUMS_EARLY("down") } },
    { "q, k and v used before they are there",
      { IN("phase_attention.cuh", "consumers_sync(); /* A */", "") } },
    { "partial results merged before they are there",
      { IN("phase_attention.cuh", "consumers_sync(); /* B */", "") } },
    { "attention's result used before it is there",
      { IN("phase_attention.cuh", "consumers_sync(); /* C */", "") } },
    { "the head's input used before it is there",
      { IN("phase_head.cuh", "ssq_store(w, h, w->s->ssq[0]);\n    consumers_sync();",
           "ssq_store(w, h, w->s->ssq[0]);") } },
    { "the next id used before it is there",
      { EVERYWHERE("phase_pick.cuh", "consumers_sync();", "") } },
    { "the host told before its numbers are there",
      { IN("phase_pick.cuh", "    fence_system();\n", "") } },
};
LIST(decode, decode, 9);

/* ---- decode.cu with warps whose slices are all padding, and one that has all K/V pieces:
 * test_sim_orders.c ---- */

static const struct mutation padding[] = {
    { "stores to a K/V slot that copies may pass",
      { IN("phase_attention.cuh", "left);\n    fence_slot();\n", "left);\n") } },
};
LIST(padding, padding, 1);

/* ---- decode.cu that gives up: test_sim_orders.c ---- */

static const struct mutation faults[] = {
    { "a fault before its description",
      { IN("shared.cuh", "        fence_system();\n        mapped_store32(&m->fault, 1);",
           "        mapped_store32(&m->fault, 1);") } },
    { "blocks told to leave before the fault is there",
      { IN("shared.cuh", "mapped_store32(&m->fault, 1);\n        fence_system();\n",
           "mapped_store32(&m->fault, 1);\n") } },
};
LIST(faults, faults, 1);

/* ---- prefill.cu by its queue of launches: test_sim_prefill_orders.c ---- */

#define SHARED    "prefill_shared.cuh"
#define PRODUCT   "prefill_product.cuh"
#define ITEMS     "prefill_items.cuh"
#define ATTENTION "prefill_attention.cuh"

static const struct mutation queue[] = {
    /* launches that do not wait for the one before */
    { "few tokens",
      { IN(PRODUCT, "n_turns, format);\n    previous_over();", "n_turns, format);") } },
    { "many tokens",
      { IN(ITEMS, "w.first_tile, tiles, format);\n    previous_over();",
           "w.first_tile, tiles, format);") } },
    { "activations",
      { IN(PRODUCT, "    previous_over();\n    fence_copies();", "    fence_copies();") } },
    { "rope", { IN(ATTENTION, "        if (item == (int)block_index()) previous_over();\n", "") } },
    { "attention",
      { IN("prefill.cu", "    previous_over();\n    if (r.w.warp < READ_WARPS) {",
           "    if (r.w.warp < READ_WARPS) {") } },
    { "the end",
      { IN("prefill.cu", "    previous_over();\n    if (thread_index() != 0",
           "    if (thread_index() != 0") } },
    /* what copies and the host see */
    { "activations copied without a fence",
      { IN(PRODUCT, "    previous_over();\n    fence_copies();", "    previous_over();") } },
    { "K/V copied without a fence", { IN("prefill.cu", "            fence_copies();\n", "") } },
    { "barriers that copies do not know", { IN(SHARED, "        mbar_init_done();\n", "") } },
    { "stores to a stage that copies may pass", { IN(ATTENTION, "    fence_slot();\n", "") } },
    { "the host told before its numbers are there",
      { IN("prefill.cu", "    fence_system();\n", "") } },
    /* stages out of turn */
    { "a stage not waited for",
      { IN(SHARED, "    if (r->w.lane == 0) mbar_wait(", "    if (0) mbar_wait(") } },
    { "a stage filled before it is free", { IN(SHARED, "if (!r->first_lap) {", "if (0) {") } },
    { "a stage given back before it is read",
      { IN(SHARED, "    warp_sync();\n}\nDEV const u8 *stage_take",
           "    warp_sync();\n    if (r->w.lane == 0) "
           "mbar_arrive(smem_of(&r->s->empty[r->stage]));\n"
           "}\nDEV const u8 *stage_take"),
        IN(SHARED, "    if (r->w.lane == 0) mbar_arrive_after(",
           "    if (0) mbar_arrive_after(") } },
    { "a stage given back by an arrival that passes loads",
      { IN(SHARED, "mbar_arrive_after(&r->w, smem_of(&r->s->empty[r->stage]), seen)",
           "mbar_arrive(smem_of(&r->s->empty[r->stage]))") } },
    /* warps that do not meet */
    { "places of tiles used before they are there",
      { IN("prefill.cu", "k_places_make(r, phase);\n        readers_sync();",
           "k_places_make(r, phase);") } },
    { "scales used before they are there, and the item before not over",
      { EVERYWHERE(PRODUCT, "        readers_sync(); /* the scales are there",
                   "        /* the scales are there"),
        IN(ITEMS, "        readers_sync(); /* the scales are there",
           "        /* the scales are there") } },
    { "eighths not meeting",
      { IN(PRODUCT, "d[16 * round + i];\n        readers_sync();", "d[16 * round + i];") } },
    { "eighths' second round before the first is over",
      { IN(PRODUCT, "if (round == 0 && atoms > 4) readers_sync();", "") } },
    { "halves not meeting",
      { IN(ITEMS, "d[i] = half ? d[16 + i] : d[i];\n    }\n    readers_sync();",
           "d[i] = half ? d[16 + i] : d[i];\n    }") } },
    { "sums of squares added up before they are there",
      { IN(PRODUCT, "    barrier_wait(HALF_BARRIER + half",
           "    if (0) barrier_wait(HALF_BARRIER + half") } },
    { "one warp's sums of squares",
      { IN(PRODUCT, "        warp_sync(); /* the sums of squares */\n", "") } },
    { "angles used before they are there",
      { IN(ATTENTION, "table + at);\n    }\n    readers_sync();", "table + at);\n    }") } },
    { "angles made while others still use them",
      { IN(ATTENTION, "    readers_sync(); /* the piece before is over */\n", "") } },
};
LIST(queue, queue, 7);

/* ---- packed.cu: test_sim_packed.c ---- */

static const struct mutation packed[] = {
    /* which text a token is of */
    { "positions that count from the first text",
      { IN(ATTENTION, "slot - text_first(r, slot);", "slot;") } },
    { "positions one too far behind the first text",
      { IN(ATTENTION, "slot - text_first(r, slot);",
           "slot - text_first(r, slot) + (text_first(r, slot) > 0);") } },
    { "slots of earlier texts that count",
      { IN(ATTENTION, "&& (!PACKED || position >= from)", "") } },
    { "the slot before a text that counts",
      { IN(ATTENTION, "position >= from)", "position + 1 >= from)") } },
    { "a text's first slot that does not count",
      { IN(ATTENTION, "position >= from)", "position >= from + (from < limit))") } },
    { "an item that begins with its last row's text",
      { IN(ATTENTION, "item->begin = row_first(r, item->row);",
           "item->begin = row_first(r, item->row + rows - 1);") } },
    { "an item that begins a piece too late",
      { IN(ATTENTION, "((item)->begin / KV_POSITIONS)",
           "(((item)->begin + (item)->end - 1) / 2 / KV_POSITIONS)") } },
    { "units skipped up to the warp's last text",
      { IN(ATTENTION, "first + UNIT_POSITIONS <= ROW_FIRST(r, opaque(x->row))",
           "first + UNIT_POSITIONS <= ROW_FIRST(r, opaque(x->row) + WARP_ROWS - 1)") } },
    { "units skipped a slot too far",
      { IN(ATTENTION, "first + UNIT_POSITIONS <= ROW_FIRST(r, opaque(x->row))",
           "first + UNIT_POSITIONS <= ROW_FIRST(r, opaque(x->row)) + 1") } },
    { "units without a mask where a text begins",
      { IN(ATTENTION, " || (PACKED && first < ROW_FIRST(r, row + WARP_ROWS - 1))", "") } },
    { "units without a mask where a warp's second text begins",
      { IN(ATTENTION, "first < ROW_FIRST(r, row + WARP_ROWS - 1)", "first < ROW_FIRST(r, row)") } },
    { "rows of other texts taken for those of this one",
      { IN(ATTENTION, "text_first(r, row / GROUP_Q_HEADS)", "text_first(r, row)") } },
    /* which rows become vectors */
    { "the row before a text's last",
      { IN("packed.cu", "const int last = (int)const_load32((const u32 *)args.lasts + text);",
           "const int at = (int)const_load32((const u32 *)args.lasts + text) - 1, "
           "last = at < 0 ? 0 : at;") } },
    { "the last row of the text before",
      { IN("packed.cu", "args.lasts + text)", "args.lasts + (text ? text - 1 : 0))") } },
    { "the scale of another row",
      { IN("packed.cu", "row_scale(h, lane)", "row_scale(args.prefill.h, lane)") } },
    { "gains of another norm",
      { IN("packed.cu", "(size_t)2 * M_LAYERS * M_HIDDEN",
           "(size_t)(2 * M_LAYERS - 1) * M_HIDDEN") } },
    { "texts beyond the first round left out",
      { IN("packed.cu", "text < args.n_texts; text += warps",
           "text < args.n_texts && text < warps; text += warps") } },
    /* launches that do not wait for the one before */
    { "attention",
      { IN("packed.cu", "    previous_over();\n    if (r.w.warp < READ_WARPS) {",
           "    if (r.w.warp < READ_WARPS) {") } },
    { "vectors", { IN("packed.cu", "    previous_over();\n    NO_UNROLL", "    NO_UNROLL") } },
    /* what copies see */
    { "K/V copied without a fence", { IN("packed.cu", "            fence_copies();\n", "") } },
};
LIST(packed, packed, 10);

/* ---- short.cuh: test_sim_prefill_orders.c ---- */

#define BRIEF_SHARED    "short_shared.cuh"
#define BRIEF_ATTENTION "short_attention.cuh"
#define BRIEF_PRODUCT   "short_product.cuh"

static const struct mutation brief[] = {
    /* words taken too early */
    { "x", { IN(BRIEF_SHARED, "(is_x ? X_TAG : ~0u);", "(is_x ? 0 : ~0u);") } },
    { "q, k, v and gated values",
      { IN(BRIEF_SHARED, "(is_x ? X_TAG : ~0u);", "(is_x ? X_TAG : 0);") } },
    { "sums",
      { IN("short.cuh", "return word_is24(f->low, b->w.epoch) & word_is24(f->high, b->w.epoch);",
           "return 1;") } },
    { "sums of squares",
      { IN(BRIEF_PRODUCT, "off |= (u32)(s->v[i] >> 32) ^ b->w.epoch;", "off |= 0;") } },
    /* the ring of weights */
    { "barriers that copies do not know", { IN("short.cuh", "        mbar_init_done();\n", "") } },
    { "caps of the phases never set", { IN("short.cuh", "        caps_start(&b.w);\n", "") } },
    { "a slot given back by an arrival that passes loads",
      { IN(BRIEF_PRODUCT,
           "mbar_arrive_after(w, w->empty + (smem)slot_ahead(w, first + w->lane) * 8, seen)",
           "mbar_arrive(w->empty + (smem)slot_ahead(w, first + w->lane) * 8)") } },
    /* warps that do not meet */
    { "sums added up before they are there",
      { IN(BRIEF_PRODUCT, "    sums_give(b, &sums, rows, PAIR, k_parts);\n    consumers_sync();\n",
           "    sums_give(b, &sums, rows, PAIR, k_parts);\n") } },
    { "sums of a wide run added up before they are there",
      { IN(BRIEF_PRODUCT,
           "        sums_give(b, &sums, rows, WIDE, k_parts);\n        consumers_sync();\n",
           "        sums_give(b, &sums, rows, WIDE, k_parts);\n") } },
    { "sums of a wide run overwritten",
      { IN(BRIEF_PRODUCT, "        consumers_sync(); /* the run before has been added up */\n",
           "") } },
    { "one buffer of sums",
      { IN(BRIEF_PRODUCT, "PAIR, row_tiles, k_parts);\n    b->turn ^= 1;\n",
           "PAIR, row_tiles, k_parts);\n") } },
    { "operands used before they are there",
      { IN(BRIEF_ATTENTION, "whole kernel */\n    consumers_sync();", "whole kernel */") } },
    { "parts merged before they are there",
      { IN(BRIEF_ATTENTION, "    if (parts > 1) consumers_sync();\n", "") } },
    { "attention's result used before it is there",
      { IN(BRIEF_ATTENTION, "        attended_take(b);\n    }\n    consumers_sync();",
           "        attended_take(b);\n    }") } },
};
LIST(short, brief, 5);

/* ---- short_far.cuh: likewise ---- */

#define FAR "short_far.cuh"

static const struct mutation far[] = {
    { "another SM's sums of values",
      { IN(FAR, "word_is24(p->o[0], b->w.epoch) & word_is24(p->o[1], b->w.epoch) & ", "") } },
    { "another SM's maxima",
      { IN(FAR, "word_is(p->m[0], b->w.epoch) &\n           word_is(p->m[1], b->w.epoch) & ",
           "") } },
    { "another SM's sums of weights",
      { IN(FAR, " & word_is(p->l[0], b->w.epoch) & word_is(p->l[1], b->w.epoch)", "") } },
    { "rows that another SM has merged",
      { IN(FAR,
           "        fragments_wait(b, f, attended_words(b, head), atom, AT_TILES, 1, M_HEAD_DIM, "
           "0, WAIT_ATTENDED);\n",
           "") } },
    { "merged rows used before they are there",
      { IN(BRIEF_ATTENTION, "        attended_take(b);\n    }\n    consumers_sync();",
           "        attended_take(b);\n    }") } },
    { "parts of a share merged before they are there",
      { IN(BRIEF_ATTENTION, "    if (parts > 1) consumers_sync();\n", "") } },
};
LIST(far, far, 3);

/* ---- prefill_delta.cu: test_sim_prefill_hybrid_orders.c ---- */

#define STEPS  "prefill_delta.cu"
#define ALL    "prefill_delta.cuh"
#define CONV   "prefill_delta_conv.cuh"
#define CHUNK  "prefill_delta_chunk.cuh"
#define CHAIN  "prefill_delta_chain.cuh"
#define ANSWER "prefill_delta_answer.cuh"

static const struct mutation delta[] = {
    /* launches that do not wait for the one before */
    { "conv", { IN(STEPS, "    previous_over();\n    conv_phase", "    conv_phase") } },
    { "chunk and answer", { IN(ALL, "    previous_over();\n    fence_copies();\n", "") } },
    { "chain",
      { IN(STEPS, "    previous_over();\n    if (r.w.warp < READ_WARPS) {",
           "    if (r.w.warp < READ_WARPS) {") } },
    /* what copies see, and when they come */
    { "chunk and answer copied without a fence",
      { IN(ALL, "    previous_over();\n    fence_copies();\n", "    previous_over();\n") } },
    { "chain copied without a fence", { IN(STEPS, "        fence_copies();\n", "") } },
    { "barriers that copies do not know", { IN(ALL, "        mbar_init_done();\n", "") } },
    { "stores to a chunk's place that copies may pass",
      { IN(CHUNK, "            fence_slot(); /*", "            /*") } },
    { "chunk not waited for", { IN(CHUNK, "        copies_wait(r, full, parity);\n", "") } },
    { "chunk, the item before not over",
      { IN(CHUNK, "            readers_sync();\n        }\n        chunk_fill",
           "        }\n        chunk_fill") } },
    { "answer not waited for", { IN(ANSWER, "        copies_wait(r, full, parity);\n", "") } },
    /* warps of conv and chunk that do not meet */
    { "gates added up before they are there",
      { IN(CONV, "[i % 4];\n    readers_sync();", "[i % 4];") } },
    { "gates of the task before not over",
      { IN(CONV, "    readers_sync(); /* the task before is over */\n", "") } },
    { "taps before they are there",
      { IN(CONV, "        readers_sync(); /* the taps are there */\n", "") } },
    { "rows stored before they are made",
      { IN(CONV, "        warp_sync();\n    }\n", "    }\n") } },
    { "gates before they are summed",
      { IN(CHUNK, "        copies_wait(r, full, parity);\n        readers_sync();\n",
           "        copies_wait(r, full, parity);\n") } },
    { "M inverted before it is there",
      { IN(CHUNK, "    readers_sync();\n    invert(r, s);", "    invert(r, s);") } },
    { "1/A before it is there",
      { IN(CHUNK, "diagonal_invert(s, warp, lane);\n    readers_sync();",
           "diagonal_invert(s, warp, lane);") } },
    { "B overwritten",
      { IN(CHUNK, "    readers_sync(); /* two warps read the same tiles */\n", "") } },
    { "the first level before it is there",
      { IN(CHUNK, "column, 1, lane, x);\n    readers_sync();\n    if (busy) below_make(s, 0,",
           "column, 1, lane, x);\n    if (busy) below_make(s, 0,") } },
    { "the second level's B overwritten",
      { IN(CHUNK, "2, lane, x);\n    readers_sync();\n    if (busy) below_store(s, 0,",
           "2, lane, x);\n    if (busy) below_store(s, 0,") } },
    { "operands before they are there",
      { IN(CHUNK, "operands_make(r, s);\n    readers_sync();", "operands_make(r, s);") } },
    /* warps of chain and answer that do not meet */
    { "the state before it is there",
      { IN(CHAIN, "            readers_sync(); /* the state is there */\n", "") } },
    { "what is learned before it is there",
      { IN(CHAIN, "            readers_sync(); /* what was learned is there", "            /*") } },
    { "what is learned before the last token",
      { IN(CHAIN, "learned_pass(r, d, left);\n    readers_sync();",
           "learned_pass(r, d, left);") } },
    { "what is learned passed on too early",
      { IN(CHAIN, "    readers_sync(); /* what was learned is passed on once more */\n", "") } },
    { "squares before they are there",
      { IN(ANSWER, "    readers_sync();\n    UNROLL\n    for (int i = 0; i < 2; i++) {",
           "    UNROLL\n    for (int i = 0; i < 2; i++) {") } },
};
LIST(delta, delta, 13);

/* ---- encoder.cu: test_cuda_encoder.c ---- */

static const struct mutation tower[] = {
    /* launches that do not wait for the one before */
    { "norm and attention",
      { IN("encoder.cu", "layer, 0);\n    previous_over();\n", "layer, 0);\n") } },
    { "activations",
      { IN("encoder.cu", "        previous_over();\n        fence_copies();\n",
           "        fence_copies();\n") } },
    { "products",
      { IN("prefill_items.cuh", "w.first_tile, tiles, format);\n    previous_over();",
           "w.first_tile, tiles, format);") } },
    /* what copies see */
    { "activations copied without a fence",
      { IN("encoder.cu", "        previous_over();\n        fence_copies();\n",
           "        previous_over();\n") } },
    { "barriers that copies do not know",
      { IN("prefill_shared.cuh", "        mbar_init_done();\n", "") } },
    { "a stage given back by an arrival that passes loads",
      { IN("prefill_shared.cuh", "mbar_arrive_after(&r->w, smem_of(&r->s->empty[r->stage]), seen)",
           "mbar_arrive(smem_of(&r->s->empty[r->stage]))") } },
    /* warps that do not meet */
    { "features overwritten while others still use them",
      { IN("encoder_stem.cuh", "        readers_sync(); /* the row before is over */\n", "") } },
    { "features used before they are there",
      { IN("encoder_stem.cuh", "bin);\n        readers_sync();\n", "bin);\n") } },
    /* what lies behind the window */
    { "keys and values behind the window",
      { IN("encoder_attention.cuh",
           "return token < n ? cached_load32((const u32 *)(from + (size_t)token * ROW + entry)) : "
           "0;",
           "return cached_load32((const u32 *)(from + (size_t)token * ROW + entry));") } },
    { "weights of keys behind the window",
      { IN("encoder_attention.cuh", "if (8 * j + pair + i % 2 >= n) s[j][i] = -3e38f;", "") } },
};
LIST(tower, tower, 10);

/* ---- numbers of the kernels far behind the start, and near zero: test_sim_positions.c, which
 * takes the way from the name's beginning ---- */

static const struct mutation position[] = {
    { "decode: one position further beyond 4,096",
      { IN("phase_attention.cuh", "sine_cosine((float)position * const_loadf(w->a->rope + i)",
           "sine_cosine((float)(position + (position > 4096)) * const_loadf(w->a->rope + i)") } },
    { "queue: one position further beyond 4,096",
      { IN(ATTENTION, "(float)SLOT_POSITION(r, piece * KV_POSITIONS + row) * const_loadf",
           "(float)(piece * KV_POSITIONS + row + (piece >= 256)) * const_loadf") } },
    { "short: one position further beyond 4,096",
      { IN(BRIEF_ATTENTION, "(float)position * const_loadf",
           "(float)(position + (position > 4096)) * const_loadf") } },
    { "decode: k's norm without epsilon",
      { IN("phase_attention.cuh",
           "rsqrt_approx(sum_run(at->q_ssq[P_GROUP_HEADS + kv_head], AT_SSQ) * (1.0f / M_HEAD_DIM) "
           "+ M_RMS_EPS)",
           "rsqrt_approx(sum_run(at->q_ssq[P_GROUP_HEADS + kv_head], AT_SSQ) * (1.0f / "
           "M_HEAD_DIM))") } },
    { "queue: k's norm without epsilon",
      { IN(ATTENTION, "xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM) + M_RMS_EPS)",
           "xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM))") } },
    { "short: k's norm without epsilon",
      { IN(BRIEF_ATTENTION, "xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM) + M_RMS_EPS)",
           "xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM))") } },
};
LIST(position, position, 6);

/* ---- biases of q, k and v: test_sim_biases.c, which takes the way from the name's beginning ----
 */

#define DECODE_BIAS "qkv_bias_load(w->a, w->layer, qkv_model_row(w->group, first + row))"
#define BIAS_ADDED  "sum += at < CONSUMER_THREADS ? bias : qkv_bias_ask(w, at);"
#define QUEUE_BIAS  "qkv_bias_load(r->w.a, r->w.layer, qkv_row_of(r, column))"
#define SHORT_BIAS  "qkv_bias_load(b->w.a, b->w.layer, qkv_model_row(b->w.group, of_group))"

static const struct mutation bias[] = {
    { "decode: no biases", { IN("publish.cuh", BIAS_ADDED, "") } },
    { "decode: the first layer's biases in all",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, 0, qkv_model_row(w->group, first + row))") } },
    { "decode: the first group's biases in all",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, w->layer, qkv_model_row(0, first + row))") } },
    { "decode: the first SM's biases in its whole group",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, w->layer, qkv_model_row(w->group, row))") } },
    { "decode: the norm's scale on biases too",
      { IN("publish.cuh", BIAS_ADDED, "sum += bias * norm_scale(column_ssq(w, 0, column));") } },
    { "decode: values with the biases of keys",
      { IN("shared.cuh", "kv / P_GROUP_KV * M_KV_HEADS", "0 * M_KV_HEADS") } },
    { "thin: no biases",
      { IN("shared.cuh", "return M_QKV_BIAS ? bf16_pair(low + bias, high + bias)",
           "return M_QKV_BIAS ? bf16_pair(low, high)") } },
    { "thin: the first layer's biases in all",
      { IN(PRODUCT, QUEUE_BIAS, "qkv_bias_load(r->w.a, 0, qkv_row_of(r, column))") } },
    { "wide: the biases of the other half of a row tile",
      { IN(PRODUCT, "qkv_column(row, r->w.lane / 4 + 8 * i);",
           "qkv_column(row, r->w.lane / 4 + 8 * (1 - i));") } },
    { "older: the first row tile's biases in all",
      { IN(PRODUCT, "qkv_column(row, r->w.lane / 4 + 8 * i);",
           "qkv_column(0, r->w.lane / 4 + 8 * i);") } },
    { "short: no biases",
      { IN(BRIEF_PRODUCT, "        if (phase == TAPE_QKV) row_biases_load(b, row, bias);\n",
           "") } },
    { "short: the first layer's biases in all",
      { IN(BRIEF_PRODUCT, SHORT_BIAS,
           "qkv_bias_load(b->w.a, 0, qkv_model_row(b->w.group, of_group))") } },
    { "short: the first group's biases in all",
      { IN(BRIEF_PRODUCT, SHORT_BIAS,
           "qkv_bias_load(b->w.a, b->w.layer, qkv_model_row(0, of_group))") } },
    { "long: values with the biases of keys",
      { IN("shared.cuh", "kv / P_GROUP_KV * M_KV_HEADS", "0 * M_KV_HEADS") } },
    { "long: the first SM's biases in its whole group",
      { IN(BRIEF_PRODUCT, SHORT_BIAS,
           "qkv_bias_load(b->w.a, b->w.layer, qkv_model_row(b->w.group, local))") } },
};
LIST(bias, bias, 8);

/* ---- limits.cu: test_limits.c ---- */

static const struct mutation limits[] = {
    { "a word that is wrong",
      { IN("limits.cu", "word_make(payload_of(round, at), round)",
           "word_make(payload_of(round, at + (at == 5)), round)") } },
    { "a word that is missing",
      { IN("limits.cu", "word_store(words + at, word);",
           "if (at != 5) word_store(words + at, word);") } },
    { "words kept from the other GPU",
      { IN("limits.cu", "for (int g = 0; g < P_GPUS - 1; g++)",
           "for (int g = 1; g < P_GPUS - 1; g++)") } },
    { "barriers that copies do not know", { IN("limits.cu", "        mbar_init_done();\n", "") } },
};
LIST(limits, limits, 3);

/* ---- columns.cu: test_sim_columns.c ---- */

/* of two hops: words taken without their epoch */
#define REDUCED_EARLY                                                                              \
    IN("two_hops.cuh", "off |= word_off24(v[g], w->epoch);", "off |= !(v[g] >> 48);"),             \
        IN("two_hops.cuh", "(!polls || !word_is24(v[g], w->epoch))", "1")
#define H_EARLY                                                                                    \
    IN("two_hops.cuh", "word_off(v[i][0], w->epoch) | word_off(v[i][1], w->epoch)",                \
       "!(v[i][0] >> 32 && v[i][1] >> 32)")

/* ---- decode.cu with sums in two hops: test_sim_orders.c ---- */

static const struct mutation hops[] = {
    { "sums of out and down added up before they are there", { REDUCED_EARLY } },
    { "h of the layer before", { H_EARLY } },
    { "one place for h after out and after down",
      { IN("two_hops.cuh", "X_OUT_H = P_WORDS - 2 * M_HIDDEN,",
           "X_OUT_H = P_WORDS - M_HIDDEN,") } },
    { "h of the token before kept",
      { IN("decode.cu", "reduced_start(w, t, kept);", "if (t == 0) reduced_start(w, t, kept);"),
        IN("decode.cu",
           "    for (int t = 0; t < w->a->n_tokens; t++) {\n        w->token = t;\n        "
           "host_look(w);\n#if P_TWO_HOPS\n        float kept[REDUCE_TURNS][2];",
           "    float kept[REDUCE_TURNS][2];\n    for (int t = 0; t < w->a->n_tokens; t++) {\n     "
           "   w->token = t;\n        host_look(w);\n#if P_TWO_HOPS") } },
    { "h of the token before's id kept",
      { IN("decode.cu", "is_given && a->ids ? const_load32((const u32 *)a->ids + t) : w->s->id",
           "w->s->id") } },
    { "an SM's share of the groups' sums one short",
      { IN("two_hops.cuh", "r.there = at < REDUCE_SHARE &&",
           "r.there = at < REDUCE_SHARE - (w->group == P_GROUPS - 1) &&") } },
};
LIST(hops, hops, 3);

#define COLUMNS_ATTENTION "columns_attention.cuh"
#define COLUMNS_HEAD      "columns_head.cuh"
#define COLUMNS_STAGE     "columns_stage.cuh"

static const struct mutation columns[] = {
    /* words taken without their epoch */
    { "sums of a column's out and down", { REDUCED_EARLY } },
    { "a column's h, attention and gated values",
      { H_EARLY,
        EVERYWHERE("columns.cuh", "word_off(v[i][0], w->epoch) | word_off(v[i][1], w->epoch)",
                   "!(v[i][0] >> 32 && v[i][1] >> 32)") } },
    /* keys and values fetched too early, or of the wrong columns */
    { "K/V of columns not waiting for who goes on",
      { IN(COLUMNS_ATTENTION, "if (t > 0 && !columns_picked_wait(w, t)) break;", "") } },
    { "the writer's fence for columns",
      { IN("columns.cu", "fence_gpu(); /* K and V rows", "/* K and V rows") } },
    { "the reader's fence for loads of columns",
      { IN("kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", "    fence_copies();\n") } },
    { "the reader's fence for copies of columns",
      { IN("kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", "    fence_gpu();\n") } },
    { "keys in K/V slots that copies may pass",
      { IN(COLUMNS_HEAD, "    fence_slot(); /* the keys", "    /* the keys") } },
    { "barriers of columns that copies do not know",
      { IN("columns.cu", "        mbar_init_done();\n", "") } },
    { "caps of the phases never set", { IN("columns.cu", "        caps_start(w);\n", "") } },
    { "the host told of a launch's end before its numbers are there",
      { IN(COLUMNS_HEAD, "    mapped_store32(&m->n_evaluated, (u32)t + 1);\n    fence_system();\n",
           "    mapped_store32(&m->n_evaluated, (u32)t + 1);\n") } },
    /* barriers that are missing */
    { "columns' q, k and v used before they are there",
      { IN(COLUMNS_ATTENTION, "consumers_sync(); /* A */", "") } },
    { "columns' sums of qkv not waiting for the products", { SUMS_EARLY("qkv") } },
    { "columns' sums of out not waiting for the products", { SUMS_EARLY("out") } },
    { "columns' sums of gate_up not waiting for the products", { SUMS_EARLY("gate_up") } },
    { "columns' sums of down not waiting for the products", { SUMS_EARLY("down") } },
    { "a share of a column that is not split",
      { IN(COLUMNS_STAGE, "w->splits >> column & 1 ? w->member + i * P_GROUP_SMS : i",
           "w->member + i * P_GROUP_SMS") } },
    { "columns' attention used before it is there",
      { IN(COLUMNS_ATTENTION, "consumers_sync(); /* C */", "") } },
    { "columns' gated values used before they are there",
      { IN("columns.cuh", "    consumers_sync();\n    profile_layer", "    profile_layer") } },
    { "columns' last norm used before it is there",
      { IN(COLUMNS_HEAD, "    columns_ssq(w, h, 0);\n    consumers_sync();",
           "    columns_ssq(w, h, 0);") } },
    { "columns' ids used before they are there",
      { IN("columns_head.cuh",
           "    fence_slot(); /* the keys lay in the slots of K and V */\n    consumers_sync();\n",
           "    fence_slot();\n") } },
};
LIST(columns, columns, 15);

/* ---- what columns are attended to in, stages or turns: test_sim_columns.c ---- */

static const struct mutation columns_stages[] = {
    { "rows of q, k and v taken without their epoch",
      { IN(COLUMNS_STAGE, "if (warp_all(off == 0 || w->dead)) break;",
           "if (warp_all(polls++ > 0)) break;") } },
    { "a stage's partial results merged before they are there",
      { IN(COLUMNS_STAGE, "consumers_sync(); /* B */", "") } },
    { "a stage's partial results overwritten by the next one's",
      { IN(COLUMNS_STAGE, "if (stage > 0) consumers_sync();", "") } },
    { "parts of two columns in one place",
      { IN(COLUMNS_STAGE, "columns |= 1u << c, stored += more,", "columns |= 1u << c,") } },
    { "a token's stages for the tokens behind it",
      { IN(COLUMNS_STAGE, "if (w->warp != P_WARPS - 1) return;",
           "if (w->warp != P_WARPS - 1 || w->token) return;") } },
    { "pieces brought to other warps than they are dealt to",
      { IN(COLUMNS_STAGE, "        dealt = dealt_more(dealt, items_parts(items));\n", "") } },
    { "the second piece of a part brought where the first lies",
      { IN(COLUMNS_STAGE, "if (item + P_ATTENTION_WARPS < items) place =",
           "if (item + P_ATTENTION_WARPS < 0) place =") } },
    { "a warp's slot filled before it is empty",
      { IN("kv_ring.cuh",
           "    if (!stream_wait(w, smem_of(w->s->kv_empty) + slot * 8, parity ^ 1)) return 0;\n",
           "") } },
};
LIST(columns_stages, columns_stages, 3);

static const struct mutation columns_turns[] = {
    { "columns' partial results merged before they are there",
      { IN(COLUMNS_ATTENTION, "consumers_sync(); /* B */", "") } },
    { "one column's partial results overwritten by the next one's",
      { IN(COLUMNS_ATTENTION, "w->o_turn = O_BUFFERS == 1 ? 0 : w->o_turn ^ 1;",
           "w->o_turn = 0;") } },
};
LIST(columns_turns, columns_turns, 1);

/* ---- a ring of one row of the head's units and a part of another: test_sim_columns.c ---- */

static const struct mutation columns_odd_ring[] = {
    { "slots of an odd ring with one parity for all",
      { IN("ring.cuh", "return RING_ODD ? w->parity >> slot & 1 : w->parity;",
           "return w->parity & 1;") } },
    { "the head's rows in all slots of an odd ring, for the consumers alone",
      { IN("columns_head.cuh", "        w->slot = head_row_back(w->slot);\n", "") } },
    { "the head's rows in all slots of an odd ring",
      { IN("columns_head.cuh", "        w->slot = head_row_back(w->slot);\n", ""),
        IN("ring.cuh", "            p->slot = head_row_back(p->slot);\n", "") } },
    { "a slot of an odd ring in flight twice",
      { IN("ring.cuh", "while (p->in_flight >> p->slot & 1)", "while (0)") } },
    { "a slot of an odd ring filled before it is free",
      { IN("ring.cuh", "    *parity = p->fill_parity >> p->slot & 1;", "    *parity = 1;") } },
};
LIST(columns_odd_ring, columns_odd_ring, 2);

/* ---- parts of shared memory that share their place: test_sim_columns.c, which tries
 * `SCRATCH_NONE` alone, too ---- */

/* What the sampler leaves is no number. */
#define SCRATCH_NONE                                                                               \
    IN("columns_head.cuh",                                                                         \
       "    fence_slot(); /* the keys lay in the slots of K and V */\n    consumers_sync();\n",    \
       "    fence_slot(); /* the keys lay in the slots of K and V */\n    consumers_sync();\n"     \
       "    for (u32 i = thread_index(); i < sizeof w->s->scratch / 4; i += CONSUMER_THREADS)\n"   \
       "        ((u32 *)&w->s->scratch)[i] = 0xffffffffu;\n"                                       \
       "    consumers_sync();\n")

const struct mutation columns_scratch_none = { "what the sampler leaves is no number",
                                               { SCRATCH_NONE } };
static const struct mutation columns_overlaid[] = {
    { "padding of gated values left as it was",
      { SCRATCH_NONE, IN("columns.cuh", "    gated_clear(w);\n", "") } },
    { "the sum of weights of a warp without pieces left as it was",
      { SCRATCH_NONE,
        IN("phase_attention.cuh", "    if (P_COLUMNS > 1) at->l[head][part] = 0;\n", "") } },
};
LIST(columns_overlaid, columns_overlaid, 1);

/* ---- columns that wait for the host: test_sim_columns.c ---- */

static const struct mutation columns_waiting[] = {
    /* with a producer that is late by more than a token, which alone is harmless */
    { "columns picked before the producer of K and V has looked at them",
      { IN("columns.cu", "        columns_looked_wait(w);\n", ""),
        IN(COLUMNS_ATTENTION, "w->token = t;\n",
           "w->token = t;\n        for (int i = 0; i < 2000; i++)\n            "
           "shared_store(smem_of(w->s->kv_first), (u32)i);\n") } },
    { "the host asked before all logits are there",
      { IN("columns.cu", "if (host_is_asked(w)) fence_system();", "") } },
    { "the host asked before the logits of other blocks are there",
      { IN(COLUMNS_HEAD, "    fence_system();\n    mapped_store32(&w->a->mailbox->asks",
           "    mapped_store32(&w->a->mailbox->asks") } },
    { "an earlier answer taken for the one that is waited for",
      { IN(COLUMNS_HEAD, "(u32)(word >> 32) == n + 1 ?", "word >> 32 ?") } },
    { "a column's position moves on while it waits",
      { IN("columns.cuh", "w->token - (int)w->s->waited[column]", "w->token") } },
    { "logits of a column that waits overwritten",
      { IN(COLUMNS_HEAD, "if (a->logits && column_runs(w, column))", "if (a->logits)") } },
    { "the best of a column that waits taken for an answer",
      { IN(COLUMNS_HEAD, "if (column_waits(w, c)) b = column_given(w, c);", "") } },
    { "a column that waits taken for one that is over",
      { IN(COLUMNS_HEAD, "w->s->column_end[c] != 0 && !column_waits(w, c)",
           "w->s->column_end[c] != 0") } },
};
LIST(columns_waiting, columns_waiting, 2);

/* ---- columns.cu of a model with DeltaNets: test_sim_columns.c ---- */

#define COLUMNS_DELTA "columns_delta.cuh"

static const struct mutation columns_delta[] = {
    /* states and windows of columns */
    { "a column that is over moves its state on",
      { IN(COLUMNS_DELTA, "r->stays = !r->there || !column_runs(w, r->column);",
           "r->stays = !r->there;") } },
    { "a column that is over moves its window on",
      { IN(COLUMNS_DELTA, "return have && column_runs(w, w->column) ?", "return have ?") } },
    { "the epilogue does not know which columns are over",
      { IN("columns.cu", "        columns_anew(w); /* which columns' windows move on */\n", "") } },
    { "a run of another column's words",
      { IN(COLUMNS_DELTA, "column_take(w, r->column);\n    head_gates(",
           "column_take(w, 0);\n    head_gates(") } },
    { "heads of the first column for all",
      { IN(COLUMNS_DELTA, "i.column = i.there ? at / P_GROUP_VALUE_HEADS : 0,",
           "i.column = 0,") } },
    /* words and sums that are not there yet */
    { "columns' a and b used before they are there",
      { IN(COLUMNS_DELTA, "consumers_sync(); /* all warps' sums", "/* all warps' sums") } },
    { "columns' mix words taken without their epoch",
      { IN(COLUMNS_DELTA, "off |= pair_off(in->q[n], w->epoch) | pair_off(in->k[n], w->epoch);",
           "off |= !(in->q[n][0] >> 48 && in->q[n][1] >> 48 && in->k[n][0] >> 48 && in->k[n][1] >> "
           "48);"),
        IN(COLUMNS_DELTA, "off |= word_off24(in->v[n], w->epoch);",
           "off |= !(in->v[n] >> 48);") } },
    { "columns' heads taken without their epoch",
      { IN(COLUMNS_DELTA, "off |= word_off24(v[b][n], w->epoch);", "off |= !(v[b][n] >> 48);") } },
    { "a DeltaNet's result used before it is there",
      { IN(COLUMNS_DELTA, "        warp_sync();\n    else\n        consumers_sync();",
           "        warp_sync();") } },
    { "columns' gates used before they are there",
      { IN(COLUMNS_ATTENTION, "    gates_wait(w, place, gate);\n", "") } },
    /* places that are shared in turns */
    { "out's input overwritten by gate_up's",
      { IN("publish.cuh", "consumers_sync(); /* out's sums */", "") } },
};
LIST(columns_delta, columns_delta, 11);

/* ---- columns of one session: test_sim_follow.c ---- */

#define PHASE_ATTENTION "phase_attention.cuh"
#define PHASE_PICK      "phase_pick.cuh"
#define COLUMNS_HEAD    "columns_head.cuh"
#define COLUMNS_SHARE   "columns_share.cuh"

static const struct mutation follow[] = {
    /* rows of a piece that this pass makes */
    { "a piece without the row of the column before",
      { IN(PHASE_ATTENTION, "rows = left < KV_POSITIONS ? left : KV_POSITIONS;",
           "rows = left - 1 < KV_POSITIONS ? left - 1 : KV_POSITIONS;") } },
    { "a piece without the row of the session's first column",
      { IN(PHASE_ATTENTION, "int row = left > before ? left - before : 0;",
           "int row = left > before ? left - before + 1 : 0;") } },
    { "a row of a piece from the column before the session's first",
      { IN(PHASE_ATTENTION, "int row = left > before ? left - before : 0;",
           "int row = left > before ? left - before - 1 : 0;") } },
    { "rows of a piece only at its border",
      { IN(PHASE_ATTENTION, "int row = left > before ? left - before : 0;",
           "int row = left > before ? KV_POSITIONS : 0;") } },
    { "a piece with the keys alone",
      { IN(PHASE_ATTENTION,
           "        *(u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, row, 2 * j)) = (u16)v[j];", "") } },
    { "a piece with the values alone",
      { IN(PHASE_ATTENTION, "        *(u32 *)(piece + kv_k_byte(0, row, 2 * j)) = k[j];", "") } },
    { "a piece with the rows of the next columns",
      { IN(PHASE_ATTENTION, "ATTENTION_AT[w->column - (left - row)]",
           "ATTENTION_AT[w->column - (left - row) + 1]") } },
    { "a piece with the column's own row in place of the one before",
      { IN(PHASE_ATTENTION, "ATTENTION_AT[w->column - (left - row)]",
           "ATTENTION_AT[w->column]") } },
    { "a session's columns taken for those of the session before, too",
      { IN(PHASE_ATTENTION, "return w->all->follows & w->running;",
           "return (w->all->follows | 16) & w->running;") } },
    { "a piece completed before it has come",
      { IN(PHASE_ATTENTION,
           "    kv_take(w);\n#if P_FOLLOWS\n    piece_complete(w, left);\n#endif\n    if",
           "    piece_complete(w, left);\n    kv_take(w);\n    if") } },
    { "a later piece completed before it has come",
      { IN(PHASE_ATTENTION,
           "        kv_take(w);\n#if P_FOLLOWS\n        piece_complete(w, left);\n#endif\n",
           "        piece_complete(w, left);\n        kv_take(w);\n") } },
    { "a piece read before all lanes have completed it",
      { IN(PHASE_ATTENTION, "    fence_slot();\n    warp_sync();\n}\n#endif",
           "    fence_slot();\n}\n#endif") } },
    /* what a block gathers of columns that it does not attend to */
    { "k and v of the columns before not gathered",
      { IN(COLUMNS_ATTENTION, "needs |= (needs & columns_following(w)) >> 1;", "") } },
    { "k and v of the column right before alone",
      { IN(COLUMNS_ATTENTION, "needs |= (needs & columns_following(w)) >> 1;",
           "needs = w->attends | (w->attends & columns_following(w)) >> 1;") } },
    { "keys of columns before as they came",
      { IN(COLUMNS_ATTENTION,
           "if (column_followed(w) && row < P_GROUP_KV_HEADS) key_round(w, row, r, x);", "") } },
    { "keys normed before all lanes have left their sums",
      { IN(PHASE_ATTENTION, "    warp_sync(); /* the sums of squares are other lanes' */\n",
           "") } },
    { "a key normed twice",
      { IN(PHASE_ATTENTION, "    if (column_followed(w)) {\n        own_key_rounded(",
           "    if (0) {\n        own_key_rounded(") } },
    { "sines and cosines of attended columns alone",
      { IN(COLUMNS_ATTENTION,
           "        if (!column_needed(w, c)) continue;\n        column_take(w, c);\n        "
           "cosine_make",
           "        if (!column_attended(w, c)) continue;\n        column_take(w, c);\n        "
           "cosine_make") } },
    /* columns that attend together */
    { "a column that sees the positions of those behind it",
      { IN(PHASE_ATTENTION, "return left - (q->last - asked_column(q, column));",
           "return left;") } },
    { "columns that see a position less for each column before them",
      { IN(PHASE_ATTENTION, "return left - (q->last - asked_column(q, column));",
           "return left - asked_column(q, column);") } },
    { "one column's q heads for all of a share",
      { IN(PHASE_ATTENTION, "return at < q->last ? at : q->last;", "return 0;") } },
    { "a share with a column that is not split",
      { IN(COLUMNS_SHARE, "columns_following(w) & w->splits & w->splits << 1;",
           "columns_following(w) & w->splits;") } },
    { "pieces brought for every column of a share",
      { IN(COLUMNS_ATTENTION, "    if (last > column) return 0;\n", "") } },
    { "a wide share with more products than warps",
      { IN(COLUMNS_SHARE, "room < SHARE_PRODUCTS ? room : SHARE_PRODUCTS;",
           "SHARE_PRODUCTS + 0 * room;") } },
    { "a wide share that reads slots before they are full",
      { IN(COLUMNS_SHARE,
           "        consumers_sync(); /* the slots are what the share attends to */\n", "") } },
    { "slots given back before a wide share has read them",
      { IN(COLUMNS_SHARE, "consumers_sync(); /* the slots are",
           "consumers_sync();\n        if (owns) kv_give(w, &c, 0); /* the slots are"),
        IN(COLUMNS_SHARE, "    if (s->items && s->wide && owns) kv_give(w, &c, 0);\n", "") } },
    { "a part of a wide share with the slot of another",
      { IN(COLUMNS_SHARE, "(size_t)(w->kv_turn * P_ATTENTION_WARPS + item)",
           "(size_t)(w->kv_turn * P_ATTENTION_WARPS + w->warp)") } },
    { "parts published before all warps have stored them",
      { IN(COLUMNS_SHARE, "        consumers_sync(); /* B */\n", "") } },
    { "a stage's parts stored over those of the one before",
      { IN(COLUMNS_SHARE, "        if (from > s->first) consumers_sync();", "        ") } },
    { "the next column's parts stored over those of a share",
      { IN(COLUMNS_SHARE, "    if (s->last + 1 < COLUMNS) consumers_sync();", "    ") } },
    { "a share's parts stored over those of the column before",
      { IN(COLUMNS_SHARE, "    if (s->first > 0) consumers_sync();", "    ") } },
    { "a share's current positions without the last one's rows",
      { IN(COLUMNS_SHARE, "i < (s->last - s->first + 1) * 2 * P_GROUP_KV_HEADS;",
           "i < (s->last - s->first) * 2 * P_GROUP_KV_HEADS;") } },
    { "a share's current positions without the last one's score",
      { IN(COLUMNS_SHARE, "i < (s->last - s->first + 1) * P_GROUP_KV_HEADS;",
           "i < (s->last - s->first) * P_GROUP_KV_HEADS;") } },
    /* what becomes of drafts */
    { "a draft that is wrong taken for right",
      { IN(PHASE_PICK, "w->s->drafts >> next & 1 && w->s->id[next] == id;",
           "w->s->drafts >> next & 1;") } },
    { "a draft that is right taken for wrong",
      { IN(PHASE_PICK, "w->s->drafts >> next & 1 && w->s->id[next] == id;", "0;") } },
    { "the first draft alone",
      { IN(PHASE_PICK, "    return !(w->s->drafts >> column & 1) || w->s->reached >> column & 1;",
           "    return !(w->s->drafts >> column & 1) || (column < 2 && w->s->reached >> column & "
           "1);") } },
    { "drafts taken for reached that lie behind a wrong one",
      { IN(PHASE_PICK, "    return !(w->s->drafts >> column & 1) || w->s->reached >> column & 1;",
           "    return 1;") } },
    { "a draft reached behind the last id of a session",
      { IN(PHASE_PICK, "if (w->lane == 0 && goes_on && !end)", "if (w->lane == 0 && goes_on)") } },
    { "what the pass before has reached counts again",
      { IN(COLUMNS_HEAD, "        w->s->reached = 0;\n", "") } },
    { "a session moved on by one id alone",
      { IN(COLUMNS_HEAD, "turn = s->turn[first] + (u32)made,", "turn = s->turn[first] + 1,") } },
    { "a pass that goes on with the id of its first column",
      { IN(COLUMNS_HEAD, "id = s->id[first + made - 1];", "id = s->id[first];") } },
    { "the end of the first column for that of the session",
      { IN(COLUMNS_HEAD, "end = s->column_end[first + made - 1],",
           "end = s->column_end[first],") } },
    { "drafts at the places of ids that were made",
      { IN(COLUMNS_HEAD, "shuffle(guess, (made + w->lane - 1) & (LANES - 1));",
           "shuffle(guess, w->lane & (LANES - 1));") } },
    { "more drafts than the launch has tokens",
      { IN(COLUMNS_HEAD, "live < n - 1 && live < room &&", "live < n - 1 &&") } },
    { "drafts in a session's first column", { IN(COLUMNS_HEAD, "<< (first + 1);", "<< first;") } },
    { "what was expected of another position",
      { IN("columns.cu", "(u32)(word >> 32) == position + 1 ? (u32)word : NO_GUESS;",
           "(u32)word;") } },
    /* who waits for whom at the end of a pass */
    { "ids decided before all warps have found theirs",
      { IN(COLUMNS_HEAD, "    consumers_sync(); /* all warps have found theirs */\n", "") } },
    { "a column decided before the lanes know that it is reached",
      { IN(COLUMNS_HEAD, "        warp_sync(); /* the next column may be reached now */\n", "") } },
    { "a pass that begins before the session has moved on",
      { IN(COLUMNS_HEAD, "        if (w->dead) w->s->gave_up = 1;\n    }\n    consumers_sync();\n",
           "        if (w->dead) w->s->gave_up = 1;\n    }\n") } },
};
LIST(follow, follow, 25);

/* ---- the same of a model with DeltaNets: test_sim_follow.c ---- */

static const struct mutation follow_delta[] = {
    /* what a pass leaves in memory */
    { "states moved on by drafts",
      { IN(COLUMNS_DELTA, "            else\n                draft_keep(",
           "            else\n                run_keep(w, r), draft_keep(") } },
    { "a window moved on by drafts",
      { IN(COLUMNS_DELTA, "    if (!column_follows(w, w->column))\n        window_move(c, x);",
           "    if (1)\n        window_move(c, x);") } },
    { "drafts kept in one layer's place",
      { IN(COLUMNS_DELTA, "M_DELTA + (size_t)delta_nth(w->layer)) * (size_t)kept_size();",
           "M_DELTA) * (size_t)kept_size();") } },
    { "drafts kept in one column's place",
      { IN(COLUMNS_DELTA, "return M_DELTA * kept_size();", "return 0;") } },
    { "k of an SM's first unit kept for all",
      { EVERYWHERE(COLUMNS_DELTA, "part + r->local / P_DELTA_UNIT * M_KEY_DIM;", "part;") } },
    { "the first rows of k alone kept",
      { IN(COLUMNS_DELTA, "if (r->local % P_DELTA_UNIT == 0 && quad_row(w, n) < M_KEY_DIM)",
           "if (r->local % P_DELTA_UNIT == 0 && quad_row(w, n) < M_KEY_DIM / 2)") } },
    { "what the first round learns kept for all",
      { IN(COLUMNS_DELTA, "plain_store64(moves + n * WARP_COLUMNS, v);",
           "plain_store64(moves + n * WARP_COLUMNS, v), v.high = float_bits(learnt[0]);"),
        IN(COLUMNS_DELTA, "v.high = float_bits(learnt[n]);", "v.high = float_bits(learnt[0]);") } },
    /* what is owed */
    { "nothing owed to a state",
      { IN(COLUMNS_DELTA, "r->owed = there ? (int)w->s->owed[r->column] : 0;", "r->owed = 0;") } },
    { "nothing owed to a window",
      { IN(COLUMNS_DELTA, "const int at = i + (int)w->s->owed[w->column];",
           "const int at = i;") } },
    { "a window paid with the column before",
      { IN(COLUMNS_DELTA, "w->column + at - (M_TAPS - 2)", "w->column + at - (M_TAPS - 1)"),
        IN(COLUMNS_DELTA, "(size_t)(column - 1) * M_DELTA",
           "(size_t)(column ? column - 1 : 0) * M_DELTA") } },
    { "the first column owed, too",
      { IN(COLUMNS_HEAD, "s->owed[first] = (u32)made - 1;", "s->owed[first] = (u32)made;") } },
    { "drafts that were wrong owed",
      { IN(COLUMNS_HEAD, "s->owed[first] = (u32)made - 1;", "s->owed[first] = (u32)n - 1;") } },
    { "a session that is over forgets what it is owed",
      { IN(COLUMNS_HEAD, "if (w->lane == 0 && column_runs(w, first)) s->owed",
           "if (w->lane == 0) s->owed") } },
    { "as much owed as a warp holds at a time",
      { IN(COLUMNS_DELTA, "from < r->owed; from += OWED_HELD)",
           "from < 1 && r->owed; from += OWED_HELD)") } },
    { "the second time paid as the first",
      { IN(COLUMNS_DELTA, "if (from) owed_ask(w, r, from, o);", "") } },
    { "more paid than is owed",
      { IN(COLUMNS_DELTA, "            if (from + i >= r->owed) continue;\n", ""),
        IN(COLUMNS_DELTA, "!r->stays && from + i < r->owed;", "!r->stays;") } },
    { "later turns of a warp paid nothing", { IN(COLUMNS_DELTA, "    runs_settle(w, 1);\n", "") } },
    /* columns one after the other */
    { "each draft's past from the window",
      { IN(COLUMNS_DELTA, "if (k == 0 || !column_follows(w, k)) c.past", "c.past"),
        IN(COLUMNS_DELTA,
           "const u32 *window = column_follows(w, column) ? 0 : column_window(w, at, have);",
           "const u32 *window = column_window(w, at, have);") } },
    { "a past that does not move on",
      { IN(COLUMNS_DELTA, "c->past[i] = i < M_TAPS - 2 ? c->past[i + 1] : x;", "(void)i;") } },
    { "words of drafts not waited for",
      { EVERYWHERE(COLUMNS_DELTA, "r->there && i < steps) run_load",
                   "r->there && i < 1) run_load") } },
    { "gates of the first column for all",
      { IN(COLUMNS_DELTA, "from = w->lane / KEY_LANES * KEY_LANES + i;",
           "from = w->lane / KEY_LANES * KEY_LANES;") } },
    { "later turns of a warp left out, though another session has them",
      { IN(COLUMNS_DELTA, "if ((w->all->follows & BEHIND) == BEHIND)",
           "if (w->all->follows & BEHIND)") } },
    /* who reads what others write */
    { "what is owed read when it may be overwritten",
      { IN(COLUMNS_DELTA, "    owed_ask(w, &e->run, 0, &e->owed);\n", ""),
        IN(COLUMNS_DELTA,
           "    run_pay(w, &e->run, &e->owed);\n    runs_settle(w, 1);\n#endif\n    "
           "consumers_sync();",
           "    consumers_sync();\n    owed_ask(w, &e->run, 0, &e->owed);\n    run_pay(w, &e->run, "
           "&e->owed);\n    runs_settle(w, "
           "1);\n#endif\n    ") } },
    /* the end of a launch */
    { "states not paid at the end", { IN("columns.cu", "    states_settle(w);\n", "") } },
    { "states of a warp's first turn not paid at the end",
      { IN(COLUMNS_DELTA, "if (layer_is_delta(layer)) runs_settle(w, 0);",
           "if (layer_is_delta(layer)) runs_settle(w, 1);") } },
    { "windows not paid at the end", { IN("columns.cu", "    windows_settle(w);\n", "") } },
    { "windows of sessions that run paid at the end, no others",
      { EVERYWHERE(COLUMNS_DELTA, "    sessions_owed(w);\n", "") } },
};
LIST(follow_delta, follow_delta, 13);

/* ---- columns.cu with integer weights: test_sim_columns.c ---- */

static const struct mutation columns_digits[] = {
    { "digits read as the partial attention of a warp without pieces",
      { IN("phase_attention.cuh", "if (NONE_IS_ZERO && ", "if (0 && ") } },
    { "digits of out and down read before all warps have stored them",
      { IN("columns.cuh",
           "    consumers_sync();\n    UNROLL\n    for (int c = 0; c < COLUMNS; c++)\n        "
           "unit[c]",
           "    UNROLL\n    for (int c = 0; c < COLUMNS; c++)\n        unit[c]") } },
    { "a slice's unit of another slice",
      { IN("columns.cuh", "unit[c] = w->s->group_unit[part][c];",
           "unit[c] = w->s->group_unit[0][c];") } },
    { "a set's second column in the first one's unit",
      { IN("columns.cuh", "second ? unit[2 * set + 1] : unit[2 * set];", "unit[2 * set];") } },
    { "the head's digits in a unit of the warp's own",
      { IN(COLUMNS_HEAD, "columns_norm_digits(w, h, gain, most, unit);",
           "columns_norm_digits(w, h, gain, 0, unit);") } },
    { "the head's unit before all warps have said their largest",
      { IN(COLUMNS_HEAD,
           "    consumers_sync();\n    UNROLL\n    for (int c = 0; c < COLUMNS; c++) {\n        "
           "most[c] = 0;",
           "    UNROLL\n    for (int c = 0; c < COLUMNS; c++) {\n        most[c] = 0;") } },
};
LIST(columns_digits, columns_digits, 5);

/* ---- narrow weights, in all programs: test_sim_narrow_orders.c ---- */

#define CODES "tile_codes.cuh"
#define DIGIT "digits.cuh"
#define WIND  "wind.cu"

static const struct mutation narrow[] = {
    /* the winder's places */
    { "ints: the winder takes the scale of the next row",
      { IN(WIND, "tile_scale_at(format, run, number, place.row)",
           "tile_scale_at(format, run, number, place.row + 1)") } },
    { "floats: the winder puts a scale into another run",
      { IN(WIND, "tile_scale_at(format, run, number, place.row)",
           "tile_scale_at(format, TILE_RUNS(format) - 1 - run, number, place.row)") } },
    { "ints: the winder takes the scale of the first group of a row",
      { IN(WIND, "tile_staged_at(format, a->columns, number, which)",
           "tile_staged_at(format, a->columns, number, 0)") } },
    { "ints: the winder takes scales for offsets",
      { IN(WIND, "tile_staged_at(format, a->columns, number, which)",
           "tile_staged_at(format, a->columns, 0, which)") } },
    { "ints: the winder counts groups from a slice's begin",
      { IN(WIND, "in_row ? 0 : (column + run * width) / group;",
           "in_row ? 0 : (column % tape_slice(&a->shape, a->phase, a->layer, a->columns) + run * "
           "width) / group;") } },
    { "ints: the winder takes half of a scale of 4 bytes",
      { IN(WIND, "if (TILE_SCALE_BYTES(format) == 4) plain_store16(to + 1, number_at[1]);", "") } },
    { "ints: the winder swaps neighbouring codes",
      { IN(WIND, "<< tile_code_shift(format, column);",
           "<< tile_code_shift(format, column ^ 1);") } },
    { "floats: the winder leaves the odd parts out",
      { IN(WIND, "(j >= 4 && parts < 4)", "j >= 4") } },
    { "ints: the winder keeps all bits of a code",
      { IN(WIND, "(parts == 4 ? code & 15u : code)", "code") } },
    { "floats: the winder takes codes of the first slice",
      { IN(WIND, "from[group * slice + column]", "from[column]") } },
    /* what codes are worth */
    { "ints: codes of 8 bits without a sign",
      { IN(CODES, "(w & 0x00800080u) | 0x43004300u);", "0x43004300u);") } },
    { "ints: codes of 4 bits without a sign",
      { IN(CODES, "((w & 0x000f000fu) ^ 0x43084308u, 1.0f, -136.0f)",
           "((w & 0x000f000fu) | 0x43004300u, 1.0f, -128.0f)") } },
    { "brief: codes with minima that begin at 1",
      { IN(CODES, "0x43004300u, 1.0f, -128.0f)", "0x43004300u, 1.0f, -127.0f)") } },
    { "floats: floats of 8 bits without a sign",
      { IN(CODES, "(w & 0x00800080u) << 8 | (w & 0x007f007fu) << 4", "(w & 0x007f007fu) << 4") } },
    { "floats: floats of 4 bits without a sign",
      { IN(CODES, "(w & 0x00080008u) << 12 | (w & 0x00070007u) << 6", "(w & 0x00070007u) << 6") } },
    { "floats: floats of 4 bits twice as large",
      { IN(CODES, "<< 6, 8.507059173023462e37f,", "<< 6, 1.7014118346046923e38f,") } },
    { "ints: the odd parts are the even ones",
      { IN(CODES, "upper = four ? part % 2 * 4 : 0", "upper = 0") } },
    { "floats: the second part is the first",
      { IN(CODES, "second = four ? part / 2 : part;", "second = four ? part / 2 : 0;") } },
    { "ints: columns of an operand in the order of the codes",
      { IN(CODES, "a.z = codes_pair(format, top, upper + 8)",
           "a.z = codes_pair(format, top, upper)") } },
    /* products of integers */
    { "ints: a vector without its middle digits",
      { IN(DIGIT, "x[DIGIT_WORDS] = bytes_pick(ab, cd, 0x7632);", "x[DIGIT_WORDS] = 0;") } },
    { "ints: a slice's unit twice as large",
      { IN(DIGIT, "(digits_exponent(most) - 21) << 23", "(digits_exponent(most) - 20) << 23") } },
    { "ints: the head's unit before all warps have said their largest",
      { IN("phase_head.cuh",
           "    consumers_sync();\n    UNROLL\n    for (int i = 0; i < P_WARPS; i++)\n        most "
           "=",
           "    UNROLL\n    for (int i = 0; i < P_WARPS; i++)\n        most =") } },
    { "ints: digits of columns 8 apart swapped",
      { IN(DIGIT, "a = second ? other0 : mine0, b = second ? mine0 : other0;",
           "b = second ? other0 : mine0, a = second ? mine0 : other0;") } },
    { "ints: even parts' codes without their place",
      { IN(DIGIT, "a.x = top << 4 & 0xf0f0f0f0u", "a.x = top & 0xf0f0f0f0u") } },
    { "ints: codes of 4 bits 16 times as large",
      { IN(DIGIT, "(TILE_CODE(format) == TILE_INT4 ? 0.0625f : 1.0f)", "1.0f") } },
    { "ints: offsets times the codes' sums",
      { IN(DIGIT, "f.offset[digits_row(i)] * (float)ones[i]",
           "f.offset[digits_row(i)] * (float)sum[i]") } },
    { "ints: the lower rows' digits with the upper rows' scale",
      { IN(DIGIT, "f.scale[digits_row(i)] * DIGITS_CODE_SCALE(format) * (float)sum[i];",
           "f.scale[0] * DIGITS_CODE_SCALE(format) * (float)sum[i];") } },
    { "ints: a row's scale dropped",
      { IN(DIGIT, "s->f[i] = s->scale[digits_row(i)] *", "s->f[i] =") } },
    { "ints: both parts of a step in each run",
      { IN(DIGIT, "run_parts == 1 ? 1 << part % 2 : 3", "3") } },
    { "ints: the last digit left out",
      { IN(DIGIT, "((f[0] + 256.0f * f[1]) + 65536.0f * f[2]) * unit[set]",
           "(f[0] + 256.0f * f[1]) * unit[set]") } },
    { "ints: the head's digits made before the largest number is known",
      { IN("phase_head.cuh", "w->s->most[w->warp] = most;\n    consumers_sync();",
           "w->s->most[w->warp] = most;") } },
    { "ints: a slice's digits used before they are there",
      { IN("phase_qkv.cuh", "    *unit = digits_unit(most);\n    warp_sync();",
           "    *unit = digits_unit(most);") } },
    { "ints: digits of a group's values used before they are there",
      { IN("product.cuh", "digits_factor(most), w->lane);\n    warp_sync();",
           "digits_factor(most), w->lane);") } },
    /* scales and offsets */
    { "ints: scales of the next row pair",
      { IN(CODES, "= *(const u32 *)(tile + tile_scale_word_at(format, i, lane / 4));",
           "= *(const u32 *)(tile + tile_scale_word_at(format, i, (lane / 4 + 1) % 8));") } },
    { "ints: prompts with scales of the next row pair",
      { IN(CODES, "const_load32((const u32 *)(tile + tile_scale_word_at(format, i, lane / 4)))",
           "const_load32((const u32 *)(tile + tile_scale_word_at(format, i, (lane / 4 + 1) % "
           "8)))") } },
    { "floats: the first run's scale for all",
      { IN(CODES, "held_numbers(t, format, run, 0, f.scale);",
           "held_numbers(t, format, 0, 0, f.scale);") } },
    { "ints: the first run's offset for all",
      { IN(CODES, "held_numbers(t, format, run, 1, f.offset);",
           "held_numbers(t, format, 0, 1, f.offset);") } },
    { "brief: the lower rows with the upper rows' scale",
      { IN(CODES, "to[i] += f->scale[i % 4 / 2] * sum[i];", "to[i] += f->scale[0] * sum[i];") } },
    { "brief: the lower rows with the upper rows' offset",
      { IN(CODES, "f->offset[i % 4 / 2] * ones[i]", "f->offset[0] * ones[i]") } },
    { "ints: zero points dropped",
      { IN(CODES, "f.offset[i] *= -f.scale[i];", "f.offset[i] = 0;") } },
    { "ints: zero points with the wrong sign",
      { IN(CODES, "f.offset[i] *= -f.scale[i];", "f.offset[i] *= f.scale[i];") } },
    { "ints: minima dropped",
      { IN(CODES, "if (TILE_OFFSETS(format)) held_numbers(",
           "if (TILE_OFFSETS(format) == TILE_ZEROS) held_numbers(") } },
    { "brief: offsets with the wrong sign",
      { IN(CODES, "if (TILE_OFFSETS(format)) to[i] += f->offset",
           "if (TILE_OFFSETS(format)) to[i] -= f->offset") } },
    { "ints: zero points as minima",
      { IN(CODES, "if (TILE_OFFSETS(format) == TILE_ZEROS) f.offset[i] *= -f.scale[i];", "") } },
    { "ints: scales of f16 taken for bf16",
      { IN(CODES,
           "return TILE_SCALE(format) == TILE_SCALE_F16 ? f16_value(x & 0xffffu) : bf16_low(x);",
           "return bf16_low(x);") } },
    /* steps and units */
    { "steps: the winder takes the unit of another row",
      { IN(WIND, "tile + tile_unit_at(format, number, place.row)",
           "tile + tile_unit_at(format, number, place.row ^ 1)") } },
    { "steps: the winder takes the first unit of a row",
      { IN(WIND, "tile_staged_unit_at(format, a->columns, number, unit)",
           "tile_staged_unit_at(format, a->columns, number, 0)") } },
    { "steps: the winder takes the unit of scales for offsets",
      { IN(WIND, "tile_staged_unit_at(format, a->columns, number, unit)",
           "tile_staged_unit_at(format, a->columns, 0, unit)") } },
    { "steps: the winder swaps two steps",
      { IN(WIND, "/ group)] << 8 * i;", "/ group)] << 8 * (1 - i);") } },
    { "steps: the winder takes one step for both",
      { IN(WIND, "const int which = 2 * item + i, run", "const int which = 2 * item, run") } },
    { "steps: steps without a sign",
      { IN(CODES, "bits_float(0x4b000000u | ((x & 0xffu) ^ 0x80u)) - 8388736.0f;",
           "bits_float(0x4b000000u | (x & 0xffu)) - 8388608.0f;") } },
    { "steps: the first run's step for both",
      { IN(CODES, "steps = t->scale[which / 2] >> which % 2 * 8, units",
           "steps = t->scale[which / 2], units") } },
    { "steps: the unit of scales for offsets",
      { IN(CODES, "units = t->scale[TILE_STEP_WORDS(format) + number];",
           "units = t->scale[TILE_STEP_WORDS(format)];") } },
    { "steps: the lower rows with the upper rows' unit",
      { IN(CODES, "both[1] = f16_value(units >> 16)", "both[1] = f16_value(units & 0xffffu)") } },
    { "steps: the lower rows with the upper rows' step",
      { IN(CODES, "step_value(steps >> 16);", "step_value(steps);") } },
    { "steps: units as steps",
      { IN(CODES,
           "t->scale[i] = i == 0 ? all.x : i == 1 ? all.y : i == 2 ? all.z : all.w;\n"
           "        return;\n    }\n    UNROLL\n    for (int i = 0; i < "
           "TILE_SCALE_WORDS(format); i++)\n        t->scale[i] = *(",
           "t->scale[i] = i == 0 ? all.z : i == 1 ? all.y : i == 2 ? all.x : all.w;\n"
           "        return;\n    }\n    UNROLL\n    for (int i = 0; i < "
           "TILE_SCALE_WORDS(format); i++)\n        t->scale[i] = *(") } },
    { "steps: an embedding with the step of the run before",
      { IN(CODES, "step_value(word >> at % 4 * 8);", "step_value(word >> (at & 2) * 8);") } },
    { "steps: an embedding with the unit of the upper rows",
      { IN(CODES, "unit & 2u ? units >> 16 : units & 0xffffu", "units & 0xffffu") } },
    /* embeddings in a head's tiles */
    { "ints: an embedding without its zero points",
      { IN(CODES, "two[i] = scale * (value - offset);", "two[i] = scale * value;") } },
    { "ints: an embedding with the first run's scale",
      { IN(CODES, "tile_number(tile, format, run, 0, place.row)",
           "tile_number(tile, format, 0, 0, place.row)") } },
    { "ints: an embedding with the first run's zero point",
      { IN(CODES, "tile_number(tile, format, run, 1, place.row)",
           "tile_number(tile, format, 0, 1, place.row)") } },
    { "ints: an embedding's second weight is its first",
      { IN(CODES, "word >> tile_code_shift(format, place.k + i)",
           "word >> tile_code_shift(format, place.k)") } },
    /* prompts */
    { "ints: the first part for all of a thin item",
      { IN(PRODUCT, "if (part == i) a = tile_part(format, t->codes, i);", "") } },
    { "ints: the first part for all of a thin item with rounded operands",
      { IN(PRODUCT, "part_rounded(format, t->codes, &f, part)",
           "part_rounded(format, t->codes, &f, 0)") } },
    { "floats: the first run's scale for all of a thin item",
      { IN(PRODUCT, "const int run = thin_part(r, format) / TILE_RUN(format);",
           "const int run = 0;") } },
    { "steps: the first run's scale for all of a thin item",
      { IN(PRODUCT, "held_worth_alone(t, format, part / TILE_RUN(format));",
           "held_worth_alone(t, format, 0);") } },
    { "ints: the lower rows of a thin item with the upper rows' scale",
      { IN(PRODUCT, "d[i] += f.scale[i % 4 / 2] * sum[i];", "d[i] += f.scale[0] * sum[i];") } },
    { "floats: the first tile for all of a stage of a wide item with rounded operands",
      { IN(ITEMS, "&t[i / TILE_PARTS(format)], i % TILE_PARTS(format));",
           "&t[0], i % TILE_PARTS(format));") } },
    { "floats: a tile's first part for all of a wide item with rounded operands",
      { IN(ITEMS, "&t[i / TILE_PARTS(format)], i % TILE_PARTS(format));",
           "&t[i / TILE_PARTS(format)], 0);") } },
    { "steps: both products of a rounded operand with the first half of the stage",
      { IN(ITEMS, "twice == 2 ? j / blocks : i / 4;", "i / 4;") } },
    { "steps: a rounded operand with the first half of the stage alone",
      { IN(ITEMS, "twice == 2 ? j / blocks : i / 4;", "twice == 2 ? j / blocks : 0;") } },
    { "steps: a rounded operand with the first of two blocks of tokens",
      { IN(ITEMS, "half * COLUMNS_AT + j % blocks * BLOCK_BYTES", "half * COLUMNS_AT") } },
    { "ints: a stage has x twice, and nothing of what rounding left over",
      { IN(ITEMS, "doubled ? n_blocks / 2 : 1;", "doubled ? 0 : 1;") } },
    { "ints: the next columns of x in place of what rounding left over",
      { IN(ITEMS, "doubled ? n_blocks / 2 : 1;", "1;") } },
    { "steps: a doubled stage has the columns behind those that it should have",
      { IN(ITEMS, "doubled ? i / 2 : i;", "i;") } },
    { "steps: the second half of a doubled stage is that of the next tiles",
      { IN(ITEMS, "w.stage_tiles = doubled ? STAGE_TILES / 2 : STAGE_TILES;",
           "w.stage_tiles = STAGE_TILES;") } },
    { "steps: the halves of the warps have different tiles of a doubled stage",
      { IN(ITEMS, "split && !doubled ? half * tiles", "split ? half * tiles") } },
    { "ints: both products of a tile with the first half of the stage",
      { IN(ITEMS, "twice == 2 ? i % 2 : tile / 4;", "tile / 4;") } },
    { "ints: the lower rows of a wide item with the upper rows' scale",
      { IN(ITEMS, "+= f.scale[i % 4 / 2] * sum[i / 32][i % 32];",
           "+= f.scale[0] * sum[i / 32][i % 32];") } },
    /* short prompts */
    { "brief: the first run's scale for all",
      { IN(BRIEF_PRODUCT, "held_factors(&tile[r], format, part / TILE_RUN(format));",
           "held_factors(&tile[r], format, 0);") } },
    { "brief: a run's first part for all",
      { IN(BRIEF_PRODUCT, "tile_part(format, tile[r].codes, part + i);",
           "tile_part(format, tile[r].codes, part);") } },
    { "brief: sums of the inputs' first half alone",
      { IN(BRIEF_PRODUCT, "if (TILE_OFFSETS(format) && r == 0) tile_mma(ones",
           "if (TILE_OFFSETS(format) && r == 0 && half == 0) tile_mma(ones") } },
    { "brief: the input of a tile's first run for all",
      { IN(BRIEF_PRODUCT, "taken.f[part % 2] + (i + j) * PAIR", "taken.f[part % 2] + i * PAIR") } },
    { "brief: the first parts of tiles in wide runs",
      { IN(BRIEF_PRODUCT, "in_step % of_tile, n, format);", "0, n, format);") } },
    { "brief: the tile of the first k tile in wide runs",
      { IN(BRIEF_PRODUCT, "(own ? in_step : first + i) / of_tile * rows + r;", "r;") } },
    /* the ring */
    { "ints: scales read from slots that were given back",
      { IN("ring.cuh",
           "if (w->lane < slots) mbar_arrive_after(w, w->empty + (smem)mine * 8, seen);",
           "if (w->lane < slots) mbar_arrive_after(w, w->empty + (smem)mine * 8, seen);\n"
           "    warp_sync();\n"
           "    for (int i = 0; i < n && TILE_NARROW(format); i++) {\n"
           "        const int slot = (w->slot + RING_SLOTS - slots + i / P_SLOT_TILES) % "
           "RING_SLOTS;\n"
           "        const u8 *at = w->ring + (size_t)slot * P_SLOT_BYTES +\n"
           "            (size_t)((i % P_SLOT_TILES * P_WARPS + w->warp) * (int)tile_bytes(format) "
           "+\n"
           "                     (int)tile_lane(format, w->lane));\n"
           "        struct held late;\n"
           "        held_read(&late, at, w->lane, format);\n"
           "        for (int j = 0; j < TILE_SCALE_WORDS(format); j++) t[i].scale[j] = "
           "late.scale[j];\n"
           "    }") } },
    { "floats: slots of bf16 tiles' size",
      { IN("ring.cuh", "(u32)(P_WARPS * P_SLOT_TILES) * tile_bytes(format); }",
           "(u32)(P_WARPS * P_SLOT_TILES) * 512; }") } },

    /* long slices: phases that are loops, and what is not looked at word by word */
    { "long: a round held a tile short",
      { IN("product.cuh", "(PRELOAD_TILES < ROUND(S) ? 0 : ROUND(S))",
           "(PRELOAD_TILES < ROUND(S) ? 0 : ROUND(S) - 1)") } },
    { "long: the digits of a slice's first words for all",
      { IN("digits.cuh", "v[j] = v[j + 2];", "v[j] = v[j];") } },
    { "long: the gains of the first warp's slice for all",
      { IN("phase_qkv.cuh", "norm + 2 * (w->warp * SLICE_WORDS + w->lane)",
           "norm + 2 * w->lane") } },
};
LIST(narrow, narrow, 43);

/* ---- rounded operands, in tests/sim/kernels/codes.cu: test_tile_codes.c ---- */

static const struct mutation rounded[] = {
    { "a minimum not added",
      { IN(CODES, "v[j] - CODE_BASE(format) : v[j], scale, offset);",
           "v[j] - CODE_BASE(format) : v[j], scale, 0);") } },
    { "a minimum added to codes with their base",
      { IN(CODES, "TILE_INTEGERS(format) ? v[j] - CODE_BASE(format) : v[j], scale, offset);",
           "v[j], scale, offset);") } },
    { "a zero point not taken off",
      { IN(CODES, "f.offset[i] += CODE_BASE(format);", "f.offset[i] = CODE_BASE(format);") } },
    { "a zero point taken off behind the scale",
      { IN(CODES, "(v[j] - offset) * scale;", "v[j] * scale - offset;") } },
    { "the base taken off a rounded product",
      { IN(CODES, "v[j] = fma_float(v[j], scale, offset);", "v[j] = v[j] * scale + offset;") } },
    { "the base taken off where scales have too many bits for it",
      { IN(CODES, "TILE_SCALE(format) == TILE_SCALE_F16 && TILE_OFFSETS(format)",
           "TILE_OFFSETS(format)") } },
    { "codes of 8 bits without a sign",
      { IN(CODES, "return word ^ 0x80808080u;", "return word;") } },
    { "codes of 4 bits without a sign",
      { IN(CODES, "TILE_CODE(format) == TILE_INT4 ? 0x08080808u : 0", "0") } },
    { "the other part's half of a byte left in", { IN(CODES, "(word & 0x0f0f0f0fu)", "word") } },
    { "the first run's scale for all",
      { IN(CODES, "held_worth(t, format, part / TILE_RUN(format));",
           "held_worth(t, format, 0);") } },
    { "a scale for an offset",
      { IN(CODES, "held_numbers(t, format, run, number, both);",
           "held_numbers(t, format, run, 0, both);") } },
    { "a step of scales for one of offsets",
      { IN(CODES, "held_steps(t, format, run, number, both);",
           "held_steps(t, format, run, 0, both);") } },
    { "the first of two steps for both",
      { IN(CODES, "based_byte(steps, which % 2 + 2 * i)", "based_byte(steps, 2 * i)") } },
    { "the upper row's step for both rows",
      { IN(CODES, "based_byte(steps, which % 2 + 2 * i)", "based_byte(steps, which % 2)") } },
    { "the upper row's unit for both rows",
      { IN(CODES, "f16_value(i ? units >> 16 : units & 0xffffu)", "f16_value(units & 0xffffu)") } },
    { "upper and lower halves of bytes exchanged",
      { IN(CODES, "const u32 top = (pair ? codes.z : codes.x) >> shift,",
           "const u32 top = (pair ? codes.z : codes.x) >> (halves ? 4 - shift : 0),") } },
    { "the words of the other two parts",
      { IN(CODES, "const u32 top = (pair ? codes.z : codes.x)",
           "const u32 top = (pair ? codes.x : codes.z)") } },
    { "the lower row's words of the first parts for all",
      { IN(CODES, "bottom = (pair ? codes.w : codes.y)", "bottom = codes.y") } },
    { "the lower row with the upper row's scale",
      { IN(CODES, "a.w = pair_rounded(format, bottom, 1, f->scale[1],",
           "a.w = pair_rounded(format, bottom, 1, f->scale[0],") } },
    { "the lower row with the upper row's offset",
      { IN(CODES, "a.y = pair_rounded(format, bottom, 0, f->scale[1], f->offset[1]);",
           "a.y = pair_rounded(format, bottom, 0, f->scale[1], f->offset[0]);") } },
    { "the first eight columns for the second",
      { IN(CODES, "a.z = pair_rounded(format, top, 1,", "a.z = pair_rounded(format, top, 0,") } },
    { "the first of two neighbours for both",
      { IN(CODES, "v[1] = based_byte(biased, i + 2);", "v[1] = based_byte(biased, i);") } },
    { "neighbours of floats exchanged",
      { IN(CODES, "v[0] = bf16_low(both), v[1] = bf16_high(both);",
           "v[0] = bf16_high(both), v[1] = bf16_low(both);") } },
    { "alone: the first run's numbers for all",
      { IN(CODES, "tile_scale_at(format, run, i / words, lane / 4)",
           "tile_scale_at(format, 0, i / words, lane / 4)") } },
    { "alone: a scale for an offset",
      { IN(CODES, "tile_scale_at(format, run, i / words, lane / 4)",
           "tile_scale_at(format, run, 0, lane / 4)") } },
    { "alone: the upper row's scale of 32 bits for both rows",
      { IN(CODES, "lane / 4) + i % words * 4;", "lane / 4);") } },
    { "alone: steps of the first run for all", { IN(CODES, "if (run == i) f = other;", "") } },
    { "cut off where it should be rounded",
      { IN(CODES, "return bf16_pair(v[0], v[1]);",
           "return float_bits(v[0]) >> 16 | (float_bits(v[1]) & 0xffff0000u);") } },
};
LIST(rounded, rounded, 4);

/* ---- codes of keys and values, in decode.cu: test_attention.c ---- */

static const struct mutation codes[] = {
    { "K's scale of the next position",
      { IN("kv_codes.cuh", "x->k[i] = from[8 * i]", "x->k[i] = from[8 * i + 1]") } },
    { "V's scale of the position before",
      { IN("kv_codes.cuh", "from[KV_POSITIONS + 8 * i] : 0",
           "from[KV_POSITIONS + 8 * i - 1] : 0") } },
    { "V's scale for K", { IN("kv_codes.cuh", "return s * x->k[i]", "return s * x->v[i]") } },
    { "K's scale for V",
      { IN("attention_digits.cuh", "p[i] * x->v[i] * r->by", "p[i] * x->k[i] * r->by") } },
    { "V's scales beyond the last position",
      { IN("kv_codes.cuh", "lane / 4 + 8 * i < left ?", "lane / 4 + 8 * i < left + 16 ?") } },
    { "weights summed with V's scale",
      { IN("attention_digits.cuh", "+= p[set][0] + p[set][1]", "+= n[set][0] + n[set][1]") } },
    { "sums that stay relative to the score before",
      { IN("attention_digits.cuh", "(o[i] + sum * r->unit[set]) * f",
           "o[i] + sum * r->unit[set]") } },
    { "weights too large for the unit",
      { IN("attention_digits.cuh", "if (fresh || !warp_all(fit))", "if (fresh)") } },
    { "the third digit of weights in the place of the first",
      { IN("attention_digits.cuh", "0x7362u : 0x5140u", "0x7340u : 0x5140u") } },
    { "a slot of codes filled before it is empty",
      { IN("kv_ring.cuh",
           "    if (!stream_wait(w, smem_of(w->s->kv_empty) + slot * 8, parity ^ 1)) return 0;\n",
           "") } },
    { "a lane that does not skip what a layer's last round leaves over",
      { IN("kv_ring.cuh", "if (skips) p->turn = kv_lane_next(p->turn);", "(void)skips;") } },
    { "the own value without its scale",
      { IN("phase_attention_merge.cuh", "P_KV_FORM ? sum[0][0] * own_value_scale(at, head)",
           "P_KV_FORM ? sum[0][0]") } },
    { "the own scale of K stored for V",
      { IN("phase_attention.cuh", "float_bits(*own_scale(at, kv_head, is_v))",
           "float_bits(*own_scale(at, kv_head, 0))") } },
    { "codes of two dims swapped",
      { IN("phase_attention.cuh", "low | high << 8", "high | low << 8") } },
    { "a scale too large by a code",
      { IN("kv_codes.cuh", "quotient(most, top, 1.0f / top)", "most / (top - 1)") } },
};
LIST(codes, codes, 8);

/* ---- several GPUs: test_sim_gpus.c ---- */

static const struct mutation gpus[] = {
    { "sums of out told to the own GPU alone",
      { IN("exchange.cuh", "word_tell(w, to + row / 2, word)",
           "word_store(to + row / 2, word)") } },
    { "sums that were added up told to the own GPU alone",
      { IN("two_hops.cuh", "word_tell(w, h + 1,", "word_store(h + 1,") } },
    { "the best told to the own GPU alone",
      { IN("best.cuh", "word_tell(w, to + 1,", "word_store(to + 1,") } },
    { "candidates told to the own GPU alone",
      { IN("sample_list.cuh", "if (w->lane == 0) word_tell(w, to,",
           "if (w->lane == 0) word_store(to,") } },
    { "points of the search told to the own GPU alone",
      { IN("sample_search.cuh", "word_tell(w, to + 1,", "word_store(to + 1,") } },
    { "a word told to the others behind its place",
      { IN("shared.cuh", "gpus_of(w->s)->peers[i]), word);",
           "gpus_of(w->s)->peers[i]) + 1, word);") } },
    { "rows of K and V counted through all GPUs",
      { IN("shared.cuh", "(P_GPUS > 1 ? w->group % GPU_GROUPS : w->group)", "w->group") } },
    { "another GPU's row of the embedding looked up here",
      { IN("shared.cuh", "gpus_told(w)->tape[sm / GPU_SMS]", "a->tape") } },
    { "tiles of other GPUs wound, too",
      { IN("wind.cu", "return sm >= 0 && sm < a->n_sms;", "return sm >= -1000000;") } },
    { "only the first GPU told to leave",
      { IN("shared.cuh", "for (int g = 0; g < P_GPUS; g++)\n            peer_store32",
           "for (int g = 0; g < 1; g++)\n            peer_store32") } },
    { "sums in two hops given to the first GPU alone",
      { IN("exchange.cuh", "word_give(w, (column", "word_give(w, 0 * (column") } },
    { "a prompt's part of a sum given to the own GPU alone",
      { IN("prefill_product.cuh", "(r->a->parts[g] + at), q);",
           "(r->a->parts[r->a->gpus.gpu] + at), q);") } },
    { "another GPU's part of a prompt's sum left out",
      { IN("prefill_product.cuh",
           "for (int g = 0; g < P_GPUS; g++) {\n            const float *from",
           "for (int g = 0; g < 1; g++) {\n            const float *from") } },
    { "a prompt's rows of K and V counted through all GPUs",
      { IN("prefill_attention.cuh", "nth * GPU_KV_HEADS + kv_head",
           "nth * M_KV_HEADS + kv_head") } },
    { "parts of down where those of out lie",
      { IN("prefill_product.cuh", "((phase == TAPE_DOWN) * P_GPUS + part)", "(part)") } },
    { "a sampler that does not know its GPU",
      { IN("sample.cuh", "w.block += gpus_of(s)->gpus->gpu * GPU_SMS;", "") } },
};
LIST(gpus, gpus, 4);

/* ---- the draft layer: test_cuda_draft_layer.c ---- */

static const struct mutation draft_layer[] = {
    { "the id's norm for both halves",
      { IN("draft_input.cu", "args.gains + of_hidden * M_HIDDEN", "args.gains") } },
    { "a residual stream without the final norm's gains",
      { IN("draft_input.cu", "(args.raw >> (t < 31 ? t : 31) & 1)", "0") } },
    { "the first of eight positions for all",
      { IN("draft_input.cu", "(mine < args.n ? mine : first)", "first") } },
    { "a column's hidden state in the first one's place",
      { IN("columns_head.cuh", "w->all->column[c].hidden", "w->all->column[0].hidden") } },
    { "the first column's hidden state for all",
      { IN("columns_head.cuh", "float_bits(h[c][i % SLICE * 2])",
           "float_bits(h[0][i % SLICE * 2])") } },
    { "a pass with the first guess for all",
      { IN("columns_head.cuh", "guessed[column - 1].ids", "guessed[0].ids") } },
    { "a guess made of another id than the one before",
      { IN("draft_input.cu", "(u32)mapped_load64(args->word)",
           "(u32)mapped_load64(args->word) / 2") } },
};
LIST(draft_layer, draft_layer, 7);

const struct mutation_list *const mutation_lists[] = { &decode_mutations,
                                                       &hops_mutations,
                                                       &columns_mutations,
                                                       &columns_waiting_mutations,
                                                       &columns_stages_mutations,
                                                       &columns_turns_mutations,
                                                       &columns_odd_ring_mutations,
                                                       &columns_overlaid_mutations,
                                                       &columns_delta_mutations,
                                                       &columns_digits_mutations,
                                                       &follow_mutations,
                                                       &follow_delta_mutations,
                                                       &padding_mutations,
                                                       &queue_mutations,
                                                       &packed_mutations,
                                                       &short_mutations,
                                                       &far_mutations,
                                                       &delta_mutations,
                                                       &tower_mutations,
                                                       &position_mutations,
                                                       &bias_mutations,
                                                       &limits_mutations,
                                                       &narrow_mutations,
                                                       &rounded_mutations,
                                                       &codes_mutations,
                                                       &faults_mutations,
                                                       &gpus_mutations,
                                                       &draft_layer_mutations,
                                                       NULL };

/* ---- which of them a run tries ---- */

static int share_tried(const struct mutation_list *list) {
    const char *wanted = getenv("REEL_MUTATION_TURN");
    char name[64];
    snprintf(name, sizeof name, "mutations-%s", list->name);
    return (wanted ? atoi(wanted) : turn_next(name)) % list->shares;
}

void mutation_apply(const struct mutation *m, struct fake_nvrtc *nvrtc) {
    nvrtc->patches = m->patches, nvrtc->n_patches = 0;
    while (nvrtc->n_patches < MUTATION_PATCHES && m->patches[nvrtc->n_patches].file)
        nvrtc->n_patches++;
}

void mutations_try(const struct mutation_list *list, bool (*is_seen)(const struct mutation *m)) {
    const char *named = getenv("REEL_MUTATION");
    const bool all = getenv("REEL_SOAK") || named;
    const int turn = all ? 0 : share_tried(list);
    int n_seen = 0;
    char survivors[1000] = "";
    if (!all)
        printf("%s: share %d of %d of the mutations; REEL_MUTATION_TURN=%d repeats it\n",
               list->name, turn, list->shares, turn);
    for (int i = 0; i < list->n; i++) {
        const struct mutation *m = &list->all[i];
        if ((!all && i % list->shares != turn) || (named && !strstr(m->what, named))) continue;
        if (is_seen(m)) {
            n_seen++;
            continue;
        }
        const size_t used = strlen(survivors);
        snprintf(survivors + used, sizeof survivors - used, "; %s", m->what);
    }
    printf("%s: %d of %d mutations seen\n", list->name, n_seen, list->n); /* tools/mutations.sh */
    if (*survivors) fail_msg("%s: not seen: %s", list->name, survivors + 2);
}
