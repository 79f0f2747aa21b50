/* attention for several columns: each column's is what phase_attention.cuh makes, with sums in the same order.
 *   reads    the group's q, k and v words of each column, X_QKV; K and V of past positions through the KV ring
 *   writes   B fragments in block_shared.attention; k and v of the current positions in the caches
 *
 * Who attends differs. Below args.split_from a column has an owner, one SM of the group, which publishes the column's
 * result as bf16 pairs, X_MERGED; so several columns take hardly longer than one. From there on each SM of the group
 * attends to its share of the column's pieces, as with one column. The units of all such columns' results are dealt to
 * the warps of all SMs, which merge and publish them, X_MERGED again. All SMs gather all columns' results.
 *
 * A block goes through the columns that it attends to one after the other, in stages of several (columns_stage.cuh) or,
 * of one session's split columns, through several at a time (columns_share.cuh). It has one barrier A, behind which q,
 * k and v of all of them are in shared memory, a barrier B for each of them or each stage, and one barrier C. Without
 * stages, with two buffers for the warps' partial results, a warp may store those of the next column while others still
 * merge; with one there is a barrier more.
 *
 * A column that follows others of its session (args.h) attends to positions that this very pass makes. Alone, it would
 * find them in the cache, as rows of a piece. Where they stand in that piece decides in which order sums are added. So
 * they must stand there now, too, but the piece came from the cache without them, or with only some of them: their
 * writers are other SMs, at this very time. The block therefore gathers k and v of these columns as well, and the
 * warp that takes the piece writes the rows into its slot before it reads the slot: piece_complete. What the copy found
 * in their places is of no account, be it half written or NaN, as no one reads it. */
#ifndef REEL_KERNELS_COLUMNS_ATTENTION_CUH
#define REEL_KERNELS_COLUMNS_ATTENTION_CUH

#include "columns_share.cuh"
#include "columns_stage.cuh"

/* ---- who attends ---- */

DEV int column_owned(const struct worker *w, int column) { return column % P_GROUP_SMS == w->member; }

/* Finds which columns run, which of them are split, and to which this block attends. Called when a token begins and all
 * know which columns are over. */
DEV void columns_anew(struct worker *w) {
    u32 running = 0, splits = 0, owned = 0;
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        if (!w->s->column_end[c]) running |= 1u << c;
    w->running = running;
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        if (column_runs(w, c) && column_position(w, c) >= w->all->column[0].split_from) splits |= 1u << c;
        if (column_owned(w, c)) owned |= 1u << c;
    }
    w->splits = splits, w->attends = splits | owned;
#if P_FOLLOWS
    u32 needs = splits | owned;
    UNROLL
    for (int c = 1; c < COLUMNS; c++)
        needs |= (needs & columns_following(w)) >> 1;
    w->needs = needs;
#endif
}

#if P_FOLLOWS
DEV int column_needed(const struct worker *w, int column) { return (int)(w->needs >> column & 1); }
#else
DEV int column_needed(const struct worker *w, int column) { return column_attended(w, column); }
#endif

#if !STAGED
/* Whether this block brings the pieces of past positions of a column: of a share those of its last one. */
DEV int column_fetched(const struct worker *w, int column) {
#if TOGETHER
    int last = share_of(w, 0).last;
    NO_UNROLL
    while (last < column)
        last = share_of(w, last + 1).last;
    if (last > column) return 0;
#endif
    return column_attended(w, column);
}
#endif

/* ---- the producer of K and V ---- */

#if !STAGED
/* Brings a column's pieces of one layer. Returns 0 when the launch is over. */
DEV int column_kv_layer(struct worker *w, struct kv_stream *p, int nth, int column) {
    const struct decode_args *a = &w->all->column[column];
    const int split = (int)(w->splits >> column & 1), step = split ? P_GROUP_SMS : 1;
    const int row = kv_row(w, nth);
    const int pieces = (int)w->s->kv_items[column] / P_GROUP_KV_HEADS;
    int piece = split ? w->member : 0;
    u8 *page = (u8 *)w->s->kv_first[column];
    NO_UNROLL
    for (int i = 0; i < pieces; i++) {
        const u8 *src = kv_page_piece(page, row, piece);
        piece += step;
        if (i + 1 < pieces) page = kv_page(a, piece); /* asked for while the slots of this piece are filled */
        NO_UNROLL
        for (int h = 0; h < P_GROUP_KV_HEADS; h++, src += P_KV_PAGE * P_KV_PIECE)
            if (!kv_fill(w, p, src)) return 0;
    }
    return 1;
}

/* Brings all pieces that one token needs of all columns, layer by layer. Returns 0 when the launch is over. */
DEV int columns_kv_token(struct worker *w, struct kv_stream *p) {
    int first = COLUMNS, items = 0;
    NO_UNROLL
    for (int c = COLUMNS - 1; c >= 0; c--) {
        const int mine = column_fetched(w, c) ? kv_pieces_mine(w, column_position(w, c)) * P_GROUP_KV_HEADS : 0;
        w->s->kv_items[c] = (u32)mine, items += mine;
        if (!mine) continue;
        first = c;
        w->s->kv_first[c] = (u64)kv_page(&w->all->column[c], w->splits >> c & 1 ? w->member : 0);
    }
    columns_looked(w);
    p->cap = items > 4 * P_KV_SLOTS ? P_KV_SLOTS : w->all->column[0].cap_kv;
    p->tail = p->head, p->pending = 0, p->flying = 0; /* the token before has used all that was brought for it */
    if (!items) return 1;
    p->head_column = p->tail_column = first;
    NO_UNROLL
    for (int nth = 0; nth < M_LAYERS - M_DELTA; nth++) {
        NO_UNROLL
        for (int c = first; c < COLUMNS; c++)
            if (!column_kv_layer(w, p, nth, c)) return 0;
    }
    return 1;
}

#endif

/* Waits until this block has picked what follows token t - 1. Then it knows which columns are over, and it has seen
 * words of all blocks behind whose fences that token's rows of K and V lie. Returns 0 when the launch is over. */
DEV int columns_picked_wait(struct worker *w, int t) {
    if (!kv_count_wait(w, &w->s->picked, t)) return 0;
    return fill_all(!shared_load(smem_of(&w->s->end)));
}

DEV void columns_kv_produce(struct worker *w) {
#if STAGED
    struct kv_lane p = { 0, 0 };
#else
    struct kv_stream p;
    kv_stream_start(w, &p);
    p.column_items = w->s->kv_items, p.head_column = p.tail_column = 0;
#endif
    if (w->lane >= KV_PRODUCERS) return;
    for (int t = 0; t < w->all->n_passes; t++) {
        if (t > 0 && !columns_picked_wait(w, t)) break;
        w->token = t;
        columns_anew(w);
        if (!columns_kv_token(w, &p)) break;
    }
#if STAGED
    kv_lane_drain(w, &p);
#else
    kv_drain(&p);
#endif
}

/* ---- a block's part ---- */

/* Makes the cosines and sines of all columns whose keys this block needs: the consumers share the entries of all of
 * them. All may read them after a barrier. */
DEV void columns_cosines(struct worker *w) {
#if STAGED
    stages_make(w);
#endif
    NO_UNROLL
    for (int at = w->warp * LANES + w->lane; at < COLUMNS * COSINES; at += CONSUMER_THREADS) {
        const int c = at / COSINES;
        if (!column_needed(w, c)) continue;
        column_take(w, c);
        cosine_make(w, column_position(w, c), at % COSINES);
    }
    column_take(w, 0);
}

#if !STAGED
/* The warps share the rows of all columns' words. Of a column to which only a column that follows it attends in this
 * block, these are the rows of k and v: the first ones. */
DEV void columns_rows_gather(struct worker *w, int nth) {
    int row = gather_row(w);
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        if (!column_needed(w, c)) continue;
        const int rows = !P_FOLLOWS || column_attended(w, c) ? (int)GATHER_ROWS : 2 * P_GROUP_KV_HEADS;
        column_take(w, c);
        NO_UNROLL
        for (; row < rows; row += P_WARPS) {
            struct rotation r[ROPE_TURNS];
            float gain[ROPE_TURNS][4];
            u32 x[ROPE_TURNS][2];
            qk_gain_load(w, nth, row, gain);
            row_poll(w, qkv_words(w) + row_words(row) * AT_WORDS, x);
            rotation_make(w, gain, r);
            row_keep(w, nth, row, r, x);
#if P_FOLLOWS
            if (column_followed(w) && row < P_GROUP_KV_HEADS) key_round(w, row, r, x);
#endif
        }
        row -= rows;
    }
}

/* The warps' results of the column at hand, which this SM owns, become the column's result. */
DEV void column_whole(struct worker *w, const struct merge_place *place, const u64 *gate) {
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        if (place[n].word >= RESULT_WORDS) continue;
        const struct merged r = merge_warps(w, place + n, 1);
        const float f = rcp_approx(r.l);
        word_store(merged_words(w) + place[n].word,
                   word_make(gated_pair(r.low * f, r.high * f, (u32)gate[n]), w->epoch));
    }
}

/* Attends to the column at hand. With shares it is one that this SM owns. */
DEV void column_attend(struct worker *w, int nth, const struct merge_place *place, int q_at) {
    const int position = column_position(w, w->column), split = TOGETHER ? 0 : (int)(w->splits >> w->column & 1);
    const int pieces = kv_pieces_mine(w, position);
    struct kv_reader c = kv_begin(w, pieces * P_GROUP_KV_HEADS);
    u64 gate[MERGE_TURNS];
    gates_ask(w, place, gate, !split);
    if (c.item < c.items)
        pieces_attend(w, &c, position, q_at);
    else
        attended_none(w);
    own_attend(w);
    kv_end(w, pieces * P_GROUP_KV_HEADS);
    gates_wait(w, place, gate);
    consumers_sync(); /* B */
    if (split)
        attention_publish(w, place, pieces > 0);
    else
        column_whole(w, place, gate);
    own_keep(w, nth, position);
}
#endif

/* Merges this block's share of the units of all columns whose attention is split. */
DEV void columns_merge(struct worker *w) {
    if (!w->splits) return;
    int at = w->warp * P_GROUP_SMS + w->member;
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        if (!(w->splits >> c & 1)) continue;
        column_take(w, c);
        const int members = members_with_results(column_position(w, c));
        NO_UNROLL
        for (; at < UNITS; at += P_WARPS * P_GROUP_SMS)
            unit_merge(w, members, at);
        at -= UNITS;
    }
}

/* This block's part of all columns' attention, up to what it publishes. */
DEV void columns_attend(struct worker *w, int nth) {
    worker_anew(w);
    const int q_at = opaque((first_head(w) + w->lane / 4 % AT_HEADS) * AT_Q_STRIDE + w->lane % 4 * 4);
    struct merge_place place[MERGE_TURNS];
    merge_places(w, place);
    columns_rows_gather(w, nth);
    consumers_sync(); /* A */
    profile_layer(w, MARK_ATTENTION_INPUT);
#if STAGED
    stages_take(w, place, q_at);
#else
    w->o_turn = 0;
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        if (!column_attended(w, c)) continue;
#if TOGETHER
        if (w->splits >> c & 1) {
            const struct share s = share_of(w, c);
            share_attend(w, nth, &s);
            c = s.last;
            continue;
        }
#endif
        column_take(w, c);
        column_attend(w, nth, place, q_at);
        w->o_turn = O_BUFFERS == 1 ? 0 : w->o_turn ^ 1;
        if (O_BUFFERS == 1) consumers_sync();
    }
#endif
    profile_layer(w, MARK_ATTENTION_OWN);
}

/* Gathers the group's result in all columns. */
DEV void columns_attended(struct worker *w) {
    columns_merge(w);
    columns_gather_pairs(w, X_MERGED + w->group * RESULT_WORDS, RESULT_WORDS, w->s->ATTENTION_RESULT[0],
                         WAIT_ATTENTION);
    column_take(w, 0);
    consumers_sync(); /* C */
}

#endif
