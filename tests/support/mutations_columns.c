/* Mutations of programs that decode several columns. */
#include "support/mutation_lists.h"

/* ---- columns.cu: test_sim_columns.c ---- */

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
    { "the last layer's rows kept behind the writer's fence for columns",
      { IN("columns.cu", "    stages_keep(w, attention_nth(layer));\n#endif\n    layer_done(w);\n",
           "    layer_done(w);\n    stages_keep(w, attention_nth(layer));\n#else\n    "
           "layer_done(w);\n#endif\n") } },
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

/* ---- rows of 8 partial sums, whose places are turned: test_sim_columns.c. Which of two groups of
 * four is added first changes no bit, so only parts that leave their group are noticed ---- */

static const struct mutation columns_parts[] = {
    { "parts of a column in places of another group of four",
      { IN("product.cuh", "^ (w->lane & lanes);", "^ (w->lane & lanes) * 4;") } },
};
LIST(columns_parts, columns_parts, 1);

/* ---- a ring of one row of the head's units and a part of another: test_sim_columns.c ---- */

static const struct mutation columns_odd_ring[] = {
    /* it has two columns, which take sums in one hop */
    { "sums of two columns taken without their epoch",
      { IN("columns.cuh", "off |= word_off24(v[i][g], w->epoch);", "off |= !(v[i][g] >> 48);") } },
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
