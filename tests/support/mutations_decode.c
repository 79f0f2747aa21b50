/* Mutations of programs that decode one column, and of those on several GPUs. */
#include "support/mutation_lists.h"

/* ---- decode.cu: test_sim_orders.c ---- */

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
      { IN("exchange.cuh", "off |= word_off24(v[i][g], w->epoch);", "off |= !(v[i][g] >> 48);") } },
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
    { "the last layer's rows kept behind the writer's fence",
      { IN("decode.cu", "    layer_keep(w, position);\n    layer_done(w);",
           "    layer_done(w);\n    layer_keep(w, position);") } },
    { "the reader's fence for loads",
      { IN("kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", "    fence_copies();\n") } },
    { "the fence between loads and copies", { IN("kv_ring.cuh", "    fence_copies();\n", "") } },
    /* slots of the rings out of turn */
    { "a weight slot given back before it is read",
      { IN("ring.cuh", "slots_wait(w, 0, slots, apart);",
           "slots_wait(w, 0, slots, apart);\n    if (w->lane < slots) mbar_arrive(w->empty + "
           "(smem)mine * 8);"),
        IN("ring.cuh", "if (w->lane < slots) mbar_arrive_after(", "if (0) mbar_arrive_after(") } },
    { "a weight slot filled before it is free",
      { IN("ring.cuh", "if (!is_given && slot_filled(p, &parity) && !stream_wait",
           "if (0 && !stream_wait") } },
    { "weights not waited for", { IN("ring.cuh", "slots_wait(w, 0, slots, apart);", "") } },
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
    { "the first head's factor for the current position's scores",
      { IN("phase_attention.cuh", "shuffle_float(factors, of)", "shuffle_float(factors, 0)") } },
    { "the first head's factor for scores of past positions",
      { IN("phase_attention.cuh", "shuffle_float(mine, column % AT_HEADS)",
           "shuffle_float(mine, 0)") } },
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

/* ---- decode.cu with sums in two hops: test_sim_orders.c ---- */

static const struct mutation hops[] = {
    { "sums of out and down added up before they are there", { REDUCED_EARLY } },
    { "h of the layer before", { H_EARLY } },
    { "one place for h after out and after down",
      { IN("decode.cu", "is_down ? X_DOWN_H : X_OUT_H", "X_OUT_H"),
        IN("decode.cu", "sums_reduce(w, X_DOWN_SUM, X_DOWN_H,",
           "sums_reduce(w, X_DOWN_SUM, X_OUT_H,") } },
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

/* ---- several GPUs: test_sim_gpus.c ---- */

static const struct mutation gpus[] = {
    { "sums of out told to the own GPU alone",
      { IN("exchange.cuh", "word_tell(w, to + row / 2, word)",
           "word_store(to + row / 2, word)") } },
    { "sums that were added up told to the own GPU alone",
      { IN("two_hops.cuh", "word_tell(w, to, word_make24(h[0], h[1], w->epoch))",
           "word_store(to, word_make24(h[0], h[1], w->epoch))") } },
    { "h of the layer before in pairs",
      { IN("two_hops.cuh", "return word_off24(v[0], w->epoch);", "return !(v[0] >> 48);") } },
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
    { "a GPU's value heads of DeltaNets taken for the first GPU's",
      { IN("prefill_delta.cuh", "r->a->gpus.gpu * GPU_VALUE_HEADS + head", "head") } },
    { "a GPU's channels of DeltaNets taken for the first GPU's",
      { IN("prefill_delta.cuh", "gpu * (channel < 2 * KEYS ? KEYS : VALUES) +", "gpu * 0 +") } },
    { "rows of mix counted through all GPUs",
      { IN("prefill_product.cuh", "at / P_GROUP_KEY * GPU_KEY_HEADS * M_KEY_DIM",
           "at / P_GROUP_KEY * M_KEY_HEADS * M_KEY_DIM") } },
    { "a short prompt's x told to the own GPU alone",
      { IN("short.cuh", "word_tell(&b->w, x + b->w.lane * 2 + i,",
           "word_store(x + b->w.lane * 2 + i,") } },
    { "a short prompt's sums of squares told to the own GPU alone",
      { IN("short.cuh", "word_tell(&b->w, ssq + unit_token(b) + i,",
           "word_store(ssq + unit_token(b) + i,") } },
    { "a short prompt's sums given to the first GPU alone",
      { IN("short_product.cuh", "word_give(&b->w, unit % P_SMS / GPU_SMS,",
           "word_give(&b->w, unit * 0,") } },
    { "what a short prompt leaves of h stored on the own GPU alone",
      { IN("short.cuh", "for (int g = 0; g < P_GPUS; g++)",
           "for (int g = a->gpus.gpu; g == a->gpus.gpu; g++)") } },
    { "a sampler that does not know its GPU",
      { IN("sample.cuh", "w.block += gpus_of(s)->gpus->gpu * GPU_SMS;", "") } },
};
LIST(gpus, gpus, 4);

/* ---- half tiles, which plans for several GPUs have: test_sim_gpus.c ---- */

static const struct mutation halves[] = {
    { "the first k tile of a half tile taken twice",
      { IN("tile_format.h", "{ second ? read.z : read.x, 0, second ? read.w : read.y, 0 }",
           "{ read.x, 0, read.y, 0 }") } },
    { "the second k tile of a half tile left out",
      { IN("product.cuh", "at.both = of_round == 2 * full,", "at.both = 0,") } },
    { "rounds with half tiles counted as whole ones",
      { IN("product.cuh", "return half ? n / (2 * warp_rows - 1) * 2 : n / warp_rows;",
           "return n / warp_rows;") } },
    { "half tiles of a prompt where whole ones would begin",
      { IN("prefill_product.cuh", "(ROW_HALF(S) ? 2 : 1)", "1") } },
    { "whole tiles of a prompt where all tiles are whole",
      { IN("prefill_product.cuh",
           "P_##S##_HALF ? K_WARP(S) * P_##S##_WARP_ROWS - (K_WARP(S) + 1) / 2", "0 ? 0") } },
    { "a prompt's half tile looked for behind the whole ones",
      { IN("prefill_product.cuh", "[k + i * parts - (odd ? row_halves(row) : 0)]",
           "[k + i * parts]") } },
    { "a short prompt's half tile looked for behind the whole ones",
      { IN("prefill_product.cuh", "places -= row_halves(row) & r->w.warp;", "") } },
    { "a prompt's half tile taken for a whole one",
      { IN("prefill_product.cuh", "whole = (u32)row_halves(row) - 1;", "whole = ~0u + !row;") } },
    { "a half tile looked for between the whole ones of its k tiles",
      { IN("short_product.cuh", "(r == full ? 2 * full : k % 2 * full + r)",
           "(r == full ? full : k % 2 * (full + 1) + r)") } },
    { "a half tile's k tiles changed about in narrow runs",
      { IN("short_product.cuh", "half_operand(row[rows - 1], !j)",
           "half_operand(row[rows - 1], j)") } },
    { "a half tile's k tiles changed about in wide runs",
      { IN("short_product.cuh", "half_operand(held, (part * most + i) % 2)",
           "half_operand(held, (part * most + i + 1) % 2)") } },
    { "the address of a prompt's half tiles taken with its lowest bit",
      { IN("prefill_product.cuh", "(const u8 *)((u64)row & ~(u64)1)", "row") } },
};
LIST(halves, halves, 3);

/* ---- the draft layer: test_cuda_draft_layer.c ---- */

static const struct mutation draft_layer[] = {
    { "the id's norm for both halves",
      { IN("draft_input.cu", "args.gains + M_HIDDEN", "args.gains") } },
    { "a residual stream without the final norm's gains",
      { IN("draft_input.cu", "(args.raw >> (t < 31 ? t : 31) & 1)", "0") } },
    { "the first of eight positions for all",
      { IN("draft_input.cu", "(t < args.n ? t : first)", "first") } },
    { "a column's hidden state in the first one's place",
      { IN("columns_head.cuh", "w->all->column[c].hidden", "w->all->column[0].hidden") } },
    { "the first column's hidden state for all",
      { IN("columns_head.cuh", "float_bits(h[c][i % SLICE * 2])",
           "float_bits(h[0][i % SLICE * 2])") } },
    { "a pass with the first guess for all",
      { IN("columns_head.cuh", "guessed + column - 1)", "guessed)") } },
    { "a guess made of another id than the one before",
      { IN("draft_input.cu", "guess_means(plain_load32(args->word),",
           "guess_means(plain_load32(args->word) / 2,") } },
    { "a guess's id left for nobody",
      { IN("phase_pick.cuh", "made && n == 0 && w->a->guess", "made && n == 1 && w->a->guess") } },
};
LIST(draft_layer, draft_layer, 7);

/* Likewise, of an EAGLE-3 head. */
static const struct mutation eagle3[] = {
    { "a tap in front of another layer",
      { IN("draft_head.cuh", "n == 0 ? P_TAP_0 : n == 1 ? P_TAP_1",
           "n == 0 ? P_TAP_1 : n == 1 ? P_TAP_0") } },
    { "taps of the first token for all",
      { IN("decode.cu", "(size_t)w->token * ARGS_TAPS", "(size_t)0 * ARGS_TAPS") } },
    { "taps of a prompt's first token for all",
      { IN("prefill_product.cuh", "(size_t)token * ARGS_TAPS", "(size_t)0 * ARGS_TAPS") } },
    { "taps of a prompt behind the layer before",
      { IN("prefill_product.cuh", "next = r->w.layer + 1", "next = r->w.layer") } },
    { "taps of a prompt in front of out",
      { IN("prefill_product.cuh", "phase == TAPE_DOWN && r->w.a->taps",
           "phase == TAPE_OUT && r->w.a->taps") } },
    { "taps of a short prompt behind the layer before",
      { IN("short.cuh", "unit_taps(b, layer + 1)", "unit_taps(b, layer)") } },
    { "taps of a column in the first one's place",
      { IN("columns.cu", "taps_leave(w, h[c], w->all->column[c].hidden)",
           "taps_leave(w, h[c], w->all->column[0].hidden)") } },
    { "the first column's taps for all",
      { IN("columns.cu", "taps_leave(w, h[c]", "taps_leave(w, h[0]") } },
    { "biases of the first token for all",
      { IN("shared.cuh", "M_GIVEN_BIASES ? token", "M_GIVEN_BIASES ? 0") } },
    { "biases of a prompt's even tokens for the odd ones",
      { IN("prefill_product.cuh", "r->w.layer, token + 1, of)", "r->w.layer, token, of)") } },
    { "biases of a short prompt's even tokens for the odd ones",
      { IN("short_product.cuh", "b->w.layer, token + 1, of)", "b->w.layer, token, of)") } },
    { "a pass with guesses as the head counts them",
      { IN("columns_head.cuh", "guess_means(id, w->all->meant,", "guess_means(id, 0,") } },
    { "a guess made of an id as the head counts it",
      { IN("draft_input.cu", "args->meant, args->n_meant)", "0, 0)") } },
    { "a further guess made of what is behind the norm",
      { IN("phase_head.cuh", "M_GIVEN_BIASES ? h[j] : ", "") } },
    { "a hidden state with the norm of the id",
      { IN("draft_input.cu", "P_TAPS ? 0 : args.gains + M_HIDDEN", "args.gains") } },
    { "the id's part of the vector for the hidden state's",
      { IN("draft_input.cu", "* args.parts + m.part) * M_HIDDEN", "* args.parts) * M_HIDDEN") } },
};
LIST(eagle3, eagle3, 7);
