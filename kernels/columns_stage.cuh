/* attention for several columns in stages: what a block attends to between two barriers.
 *
 * A column has a part for each warp that decode.cu would need for it (kv_ring.cuh): item i of a column belongs to its
 * part i % P_ATTENTION_WARPS, whose partial result is what one warp of decode.cu makes. Which warp makes a part is of
 * no account. So the parts of all columns are dealt to the warps, one after the other, and a block whose columns have
 * a piece or two each keeps all its warps busy, where one column after the other would leave most of them waiting.
 * The partial results lie one behind the other. A stage takes as many columns as there is room for; behind its barrier
 * all threads merge and publish what comes of them.
 *
 * A KV head's parts go to the warps that decode.cu gives them to, because a column has a multiple of P_GROUP_KV_HEADS
 * parts. */
#ifndef REEL_KERNELS_COLUMNS_STAGE_CUH
#define REEL_KERNELS_COLUMNS_STAGE_CUH

#include "columns.cuh"
#include "phase_attention.cuh"

#if STAGED
#if M_GATED
#error "gates come with DeltaNets"
#endif

/* Items of a column in a layer, and how many parts they make. */
DEV int column_items(const struct worker *w, int column) {
    return column_attended(w, column) ? kv_pieces_mine(w, column_position(w, column)) * P_GROUP_KV_HEADS : 0;
}
DEV int items_parts(int items) { return items < P_ATTENTION_WARPS ? items : P_ATTENTION_WARPS; }

/* The part of a column that falls to a warp, when `dealt` parts of the layer's columns before it are dealt; it may be
 * one that the column does not have. dealt stays below P_ATTENTION_WARPS. */
DEV int part_dealt(int warp, int dealt) { return warp < dealt ? warp + P_ATTENTION_WARPS - dealt : warp - dealt; }
DEV int dealt_more(int dealt, int parts) {
    return dealt + parts < P_ATTENTION_WARPS ? dealt + parts : dealt + parts - P_ATTENTION_WARPS;
}

/* ---- the producer of K and V ---- */

/* A lane of the producer fills the slots of the warp of the same number. A token's pieces are the same in all layers,
 * but for the layer's rows of the pages. So the lane looks up once a token with which piece its part of each column
 * begins: an entry is where that piece lies in the first layer, with the column and the part in the lowest
 * bits. */
enum { ENTRY_PART = 8, ENTRY_BITS = 127 };
#if P_KV_PIECE % 128 || P_ATTENTION_WARPS > 16 || P_COLUMNS > 8
#error "pieces: of a multiple of 128 bytes; attention_warps: at most 16"
#endif

/* The piece of an item among those of its column's session, and where it lies in the first layer. */
DEV int item_piece(const struct worker *w, int column, int item) {
    const int i = item / P_GROUP_KV_HEADS;
    return w->splits >> column & 1 ? w->member + i * P_GROUP_SMS : i;
}
DEV u64 item_place(const struct worker *w, int column, int item) {
    const int row = kv_row(w, 0) + item % P_GROUP_KV_HEADS;
    return (u64)kv_piece(&w->all->column[column], row, item_piece(w, column, item));
}

/* Makes the lane's entries of a token. Returns how many there are. */
DEV int entries_make(struct worker *w) {
    u64 *entry = w->s->entries[w->lane];
    int n = 0, dealt = 0;
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const int items = column_items(w, c), part = part_dealt(w->lane, dealt);
        w->s->kv_items[c] = (u32)items; /* all lanes write the same */
        if (part < items_parts(items)) entry[n++] = item_place(w, c, part) | (u64)(u32)(c | part * ENTRY_PART);
        dealt = dealt_more(dealt, items_parts(items));
    }
    return n;
}

/* Brings the lane's pieces of one token, layer by layer. Of a column with more than one it looks up the next piece's
 * place while it fills the slot of the piece before. Returns 0 when the launch is over. */
DEV int columns_kv_token(struct worker *w, struct kv_lane *p) {
    const int cap = kv_lane_cap(w->a), n = entries_make(w);
    const u64 *entry = w->s->entries[w->lane];
    u64 layer_at = 0;
    columns_looked(w);
    NO_UNROLL
    for (int nth = 0; nth < M_LAYERS - M_DELTA && n;
         nth++, layer_at += kv_piece_at(GPU_KV_HEADS, 0, P_KV_PAGE, P_KV_PIECE)) {
        NO_UNROLL
        for (int e = 0; e < n; e++) {
            const u32 of = (u32)entry[e] & ENTRY_BITS;
            const int column = (int)(of % ENTRY_PART), items = (int)w->s->kv_items[column];
            u64 place = entry[e] - of;
            NO_UNROLL
            for (int item = (int)(of / ENTRY_PART); item < items; item += P_ATTENTION_WARPS) {
                const u8 *src = (const u8 *)(place + layer_at);
                if (item + P_ATTENTION_WARPS < items) place = item_place(w, column, item + P_ATTENTION_WARPS);
                if (!kv_lane_fill(w, p, src, cap)) return 0;
            }
        }
    }
    return 1;
}

/* ---- what stages are made of ---- */

STATIC_ASSERT(STAGE_ROOM < 256, "struct staged has bytes");

/* What a stage makes of a column. stored: how many parts of the stage's columns before it are stored. */
struct staged {
    int items, parts, stored, dealt;
};
DEV struct staged staged_of(const struct worker *w, int column) {
    const u64 x = w->s->staged[column];
    const struct staged s = { (int)(u32)x, (int)(x >> 32 & 255), (int)(x >> 40 & 255), (int)(x >> 48 & 255) };
    return s;
}

/* Makes a token's stages. All may read them after a barrier. */
DEV void stages_make(struct worker *w) {
    const int lane = w->lane, mine = lane < COLUMNS ? column_items(w, lane) : 0, parts = items_parts(mine);
    int stored = 0, dealt = 0, stages = 0;
    u32 columns = 0;
    u64 staged = 0;
    if (w->warp != P_WARPS - 1) return;
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const int more = (int)shuffle((u32)parts, c);
        if (!column_attended(w, c)) continue;
        if (stored + more > STAGE_ROOM) {
            if (lane == 0) w->s->stage_columns[stages] = columns;
            stages++, columns = 0, stored = 0;
        }
        if (lane == c) staged = (u64)(u32)mine | (u64)(u32)parts << 32 | (u64)(u32)stored << 40 | (u64)(u32)dealt << 48;
        columns |= 1u << c, stored += more, dealt = dealt_more(dealt, more);
    }
    if (lane < COLUMNS) w->s->staged[lane] = staged;
    if (lane == 0) w->s->stage_columns[stages] = columns, w->s->stage_columns[stages + (columns != 0)] = 0;
}

/* ---- gathering q, k, v ---- */

/* How many rows a warp waits for at a time. */
enum {
    MOST_ROWS = (COLUMNS * GATHER_ROWS + P_WARPS - 1) / P_WARPS, /* of a warp */
    ROWS_AT_ONCE = MIN(MOST_ROWS, ROPE_TURNS > 1 ? 2 : 4)
};
struct asked_row {
    int column, row; /* column COLUMNS: there is none */
    float gain[ROPE_TURNS][4];
    u64 words[ROPE_TURNS][2];
};

/* Goes on to the next row that there is: those of all attended columns, of which `columns` are left, are counted
 * through. */
DEV void row_find(u32 *columns, int *row) {
    NO_UNROLL
    for (; *columns && *row >= GATHER_ROWS; *row -= GATHER_ROWS)
        *columns &= *columns - 1;
}

DEV const u64 *asked_words(const struct worker *w, const struct asked_row *r) {
    return column_words(w, X_QKV, r->column) + w->group * (QKV_GROUP_ROWS / 2) + row_words(r->row) * AT_WORDS;
}

DEV void rows_poll(struct worker *w, struct asked_row *r) {
    u32 polls = 0;
    const u64 *from[ROWS_AT_ONCE];
    UNROLL
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        from[i] = asked_words(w, r + i);
        UNROLL
        for (int n = 0; n < ROPE_TURNS; n++) {
            const int j = n * LANES + w->lane;
            if (r[i].column == COLUMNS || j >= ROPE_WORDS) continue;
            r[i].words[n][0] = word_load(from[i] + word_low(j)), r[i].words[n][1] = word_load(from[i] + word_high(j));
        }
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < ROWS_AT_ONCE * ROPE_TURNS; i++)
            off |= word_off(r[i / ROPE_TURNS].words[i % ROPE_TURNS][0], w->epoch) |
                   word_off(r[i / ROPE_TURNS].words[i % ROPE_TURNS][1], w->epoch);
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_QKV, w->epoch, (u32)(r[0].words[0][0] >> 32));
        UNROLL
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            UNROLL
            for (int n = 0; n < ROPE_TURNS; n++) {
                const int j = n * LANES + w->lane;
                if (!word_is(r[i].words[n][0], w->epoch)) r[i].words[n][0] = word_load(from[i] + word_low(j));
                if (!word_is(r[i].words[n][1], w->epoch)) r[i].words[n][1] = word_load(from[i] + word_high(j));
            }
        }
    }
}

/* The warps share the rows of all columns' words. A warp waits for several of its rows at a time, because each wait
 * takes as long as a load. */
DEV void columns_rows_gather(struct worker *w, int nth) {
    u32 columns = w->attends;
    int row = gather_row(w);
    row_find(&columns, &row);
    NO_UNROLL
    while (columns) {
        struct asked_row r[ROWS_AT_ONCE];
        UNROLL
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            r[i].column = columns ? lowest_bit(columns) : COLUMNS, r[i].row = row;
            UNROLL
            for (int n = 0; n < ROPE_TURNS; n++)
                r[i].words[n][0] = r[i].words[n][1] = word_make(0, w->epoch);
            qk_gain_load(w, nth, row, r[i].gain);
            row += P_WARPS;
            row_find(&columns, &row);
        }
        rows_poll(w, r);
        NO_UNROLL
        for (int i = 0; i < ROWS_AT_ONCE && r[0].column < COLUMNS; i++) {
            struct rotation turn[ROPE_TURNS];
            u32 x[ROPE_TURNS][2];
            column_take(w, r[0].column);
            UNROLL
            for (int n = 0; n < ROPE_TURNS; n++)
                x[n][0] = (u32)r[0].words[n][0], x[n][1] = (u32)r[0].words[n][1];
            rotation_make(w, r[0].gain, turn);
            row_keep(w, nth, r[0].row, turn, x);
            UNROLL
            for (int k = 0; k + 1 < ROWS_AT_ONCE; k++) /* registers have no index that is known late */
                r[k] = r[k + 1];
            r[ROWS_AT_ONCE - 1].column = COLUMNS;
        }
    }
}

/* ---- a stage ---- */

/* Attends to this warp's part of the column at hand. */
DEV void part_attend(struct worker *w, int items, int q_at) {
    struct kv_reader c = kv_begin(w, items);
    pieces_attend(w, &c, column_position(w, w->column), q_at);
}

/* Attends to this warp's parts of the stage's columns. */
DEV void stage_attend(struct worker *w, u32 columns, int q_at) {
    if (w->warp >= P_ATTENTION_WARPS) return;
    NO_UNROLL
    for (; columns; columns &= columns - 1) {
        const int c = lowest_bit(columns);
        const struct staged s = staged_of(w, c);
        w->part = part_dealt(w->warp, s.dealt), w->part_at = s.stored + w->part;
        column_take(w, c);
        if (w->part < s.parts) part_attend(w, s.items, q_at);
    }
}

/* The warps share the rows of the stage's columns: scores of the current positions. */
DEV void stage_own_attend(struct worker *w, u32 columns) {
    int row = gather_row(w);
    NO_UNROLL
    for (; columns; columns &= columns - 1, row -= P_GROUP_KV_HEADS) {
        NO_UNROLL
        for (; row < P_GROUP_KV_HEADS; row += P_WARPS) {
            column_take(w, lowest_bit(columns));
            own_scores(w, row);
        }
    }
}

/* And keys and values for the cache. */
DEV void stage_own_keep(struct worker *w, int nth, u32 columns) {
    int row = gather_row(w);
    NO_UNROLL
    for (; columns; columns &= columns - 1, row -= 2 * P_GROUP_KV_HEADS) {
        NO_UNROLL
        for (; row < 2 * P_GROUP_KV_HEADS; row += P_WARPS) {
            column_take(w, lowest_bit(columns));
            own_row(w, nth, column_position(w, w->column), row);
        }
    }
}

/* Publishes the result of the column at hand, which this SM owns. */
DEV void whole_publish(struct worker *w, const struct merge_place *place, const struct staged *s) {
    const struct attention_shared *at = attention_of(w);
    const float *o = w->s->vectors.o[0][0][0] + s->stored * AT_O_FLOATS;
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        const struct merge_place *to = place + n;
        if (to->word >= RESULT_WORDS) continue;
        const struct merged r = parts_merge(at, to->head, o + to->o, at->kv[0][to->v], s->parts / P_GROUP_KV_HEADS, 1);
        const float f = rcp_approx(r.l);
        word_store(merged_words(w) + to->word, word_make(bf16_pair(r.low * f, r.high * f), w->epoch));
    }
}

/* Publishes a word of this block's share of the column at hand. */
DEV void share_word_publish(struct worker *w, int word, const struct staged *s) {
    const int head = word / AT_WORDS, j = word % AT_WORDS, parts = s->parts / P_GROUP_KV_HEADS;
    const float *o = w->s->vectors.o[0][0][0] + (s->stored + head / AT_HEADS) * AT_O_FLOATS +
                     (head % AT_HEADS * 8 + 2 * j % 8) * AT_O_STRIDE + 2 * j / 16 * 2 + 2 * j / 8 % 2;
    const struct attention_shared *at = attention_of(w);
    /* many parts are loaded at once */
    const struct merged r = parts > 2 ? parts_merge(at, head, o, 0, parts, 0) : share_merge(at, head, o, parts);
    const float f = parts ? rcp_approx(r.l) : 0, lse = parts ? r.m + log2_approx(r.l) : ATTENTION_NEVER;
    u64 *to = w->a->words + X_ATTENTION + w->block * ATTENTION_SPAN;
    word_store(to + word, word_make24(parts ? r.low * f : 0, parts ? r.high * f : 0, w->epoch));
    if (j == 0) word_store(to + RESULT_WORDS + head, word_make(float_bits(lse), w->epoch));
}

/* Publishes a stage's columns. The threads share the words of all that are split. */
DEV void stage_publish(struct worker *w, u32 columns, const struct merge_place *place) {
    int word = w->warp * LANES + w->lane;
    NO_UNROLL
    for (u32 whole = columns & ~w->splits; whole; whole &= whole - 1) {
        const int c = lowest_bit(whole);
        const struct staged s = staged_of(w, c);
        column_take(w, c);
        whole_publish(w, place, &s);
    }
    NO_UNROLL
    for (u32 split = columns & w->splits; split; split &= split - 1, word -= RESULT_WORDS) {
        const int c = lowest_bit(split);
        const struct staged s = staged_of(w, c);
        column_take(w, c);
        NO_UNROLL
        for (; word < RESULT_WORDS; word += CONSUMER_THREADS)
            if (!P_MERGE_SCATTER || s.parts) share_word_publish(w, word, &s); /* else nobody waits for it */
    }
}

/* This block's part of all columns' attention, from A on. */
DEV void stages_take(struct worker *w, const struct merge_place *place, int q_at) {
    u32 columns = (u32)w->s->stage_columns[0];
    NO_UNROLL
    for (int stage = 0; columns; columns = (u32)w->s->stage_columns[++stage]) {
        if (stage > 0) consumers_sync(); /* the stage before is published, and its parts' place is free */
        stage_attend(w, columns, q_at);
        stage_own_attend(w, columns);
        consumers_sync(); /* B */
        stage_publish(w, columns, place);
    }
}

/* Keeps the rows of all columns, when the layer's sums of down are waited for: as attention_keep. */
DEV void stages_keep(struct worker *w, int nth) {
    NO_UNROLL
    for (int stage = 0; w->s->stage_columns[stage]; stage++)
        stage_own_keep(w, nth, (u32)w->s->stage_columns[stage]);
    column_take(w, 0);
}
#endif

#endif
