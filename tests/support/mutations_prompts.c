/* Mutations of programs that read prompts, packed texts and recordings, and lists of mutations in
 * all programs. */
#include "support/mutation_lists.h"

/* ---- prefill.cu by its queue of launches: test_sim_prefill_orders.c ---- */

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
      { IN("phase_attention.cuh", "return sum * (1.0f / M_HEAD_DIM) + M_RMS_EPS;",
           "return sum * (1.0f / M_HEAD_DIM);") } },
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

#define DECODE_BIAS "qkv_bias_load(w->a, w->layer, w->token, qkv_model_row(w->group, first + row))"
#define BIAS_ADDED  "sum += at < CONSUMER_THREADS ? bias : qkv_bias_ask(w, at);"
#define QUEUE_BIAS  "qkv_bias_load(r->w.a, r->w.layer, token, of)"
#define SHORT_BIAS  "qkv_bias_load(b->w.a, b->w.layer, token, of)"
#define SHORT_ROW   "qkv_model_row(b->w.group, of_group)"

static const struct mutation bias[] = {
    { "decode: no biases", { IN("publish.cuh", BIAS_ADDED, "") } },
    { "decode: the first layer's biases in all",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, 0, w->token, qkv_model_row(w->group, first + row))") } },
    { "decode: the first group's biases in all",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, w->layer, w->token, qkv_model_row(0, first + row))") } },
    { "decode: the first SM's biases in its whole group",
      { IN("publish.cuh", DECODE_BIAS,
           "qkv_bias_load(w->a, w->layer, w->token, qkv_model_row(w->group, row))") } },
    { "decode: the norm's scale on biases too",
      { IN("publish.cuh", BIAS_ADDED, "sum += bias * norm_scale(column_ssq(w, 0, column));") } },
    { "decode: values with the biases of keys",
      { IN("shared.cuh", "kv / P_GROUP_KV * M_KV_HEADS", "0 * M_KV_HEADS") } },
    { "thin: no biases",
      { IN("shared.cuh", "return M_QKV_BIAS ? bf16_pair(low + bias.low, high + bias.high)",
           "return M_QKV_BIAS ? bf16_pair(low, high)") } },
    { "thin: the first layer's biases in all",
      { IN(PRODUCT, QUEUE_BIAS, "qkv_bias_load(r->w.a, 0, token, of)") } },
    { "wide: the biases of the other half of a row tile",
      { IN(PRODUCT, "qkv_column(row, r->w.lane / 4 + 8 * i);",
           "qkv_column(row, r->w.lane / 4 + 8 * (1 - i));") } },
    { "older: the first row tile's biases in all",
      { IN(PRODUCT, "qkv_column(row, r->w.lane / 4 + 8 * i);",
           "qkv_column(0, r->w.lane / 4 + 8 * i);") } },
    { "short: no biases",
      { IN(BRIEF_PRODUCT, "if (phase == TAPE_QKV) row_biases_load(b, row,",
           "if (0) row_biases_load(b, row,") } },
    { "short: the first layer's biases in all",
      { IN(BRIEF_PRODUCT, SHORT_BIAS, "qkv_bias_load(b->w.a, 0, token, of)") } },
    { "short: the first group's biases in all",
      { IN(BRIEF_PRODUCT, SHORT_ROW, "qkv_model_row(0, of_group)") } },
    { "long: values with the biases of keys",
      { IN("shared.cuh", "kv / P_GROUP_KV * M_KV_HEADS", "0 * M_KV_HEADS") } },
    { "long: the first SM's biases in its whole group",
      { IN(BRIEF_PRODUCT, SHORT_ROW, "qkv_model_row(b->w.group, local)") } },
};
LIST(bias, bias, 8);
