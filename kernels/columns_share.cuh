/* attention of columns that follow each other in one session (args.h), where it is split over the group: a share.
 *
 * Such columns attend to the same past positions, but for the last few. So a share takes one way through the pieces of
 * K and V, those of its last column. A product has 8 columns for q heads, and a column of the pass fills AT_HEADS of
 * them, so q heads of several columns stand side by side. Positions that come after a column's own get no weight in its
 * columns. Every number is what the column would make alone: a product's columns do not know of each other, and a
 * weight of 0 changes no sum.
 *
 * In a wide share there is a warp for each piece and each product: a warp takes what piece and product are its own, and
 * the pieces' owners give the slots back when all are done. That is for a block with few pieces. In a deep share a warp
 * attends to its pieces one after the other, with all products that it has registers for.
 *
 * The partial results stay in registers. They are merged in stages: the warps store those of a few columns, as many as
 * there is room for, and all threads publish what comes of them. */
#ifndef REEL_KERNELS_COLUMNS_SHARE_CUH
#define REEL_KERNELS_COLUMNS_SHARE_CUH

#include "columns.cuh"
#include "phase_attention.cuh"

#if TOGETHER
enum {
    SHARE_PRODUCTS = (COLUMNS * AT_HEADS + 7) / 8, /* of all columns */
    HELD_MOST = SPARE_REGISTERS < 160 || AT_TILES > 8 ? 1
                : AT_TILES > 4                        ? 2
                                                      : 3,
    HELD = SHARE_PRODUCTS < HELD_MOST ? SHARE_PRODUCTS : HELD_MOST /* products of a warp in a deep share */
};

/* Columns from `first` to `last`. items: of the last one (kv_ring.cuh). parts: the warps that share a product. wide:
 * the products of a wide share; 0: it is deep. */
struct share {
    int first, last, items, parts, wide;
};

/* The share whose first column is `first`. Of columns that are not split each is one. */
DEV struct share share_of(const struct worker *w, int first) {
    const u32 joins = columns_following(w) & w->splits & w->splits << 1; /* no bit is beyond the last column's */
    struct share s = { first, first, 0, 0, 0 };
    const int items = kv_pieces_mine(w, column_position(w, first) + COLUMNS - 1) * P_GROUP_KV_HEADS;
    const int room = items ? P_ATTENTION_WARPS / items : SHARE_PRODUCTS;
    const int products = room < SHARE_PRODUCTS ? room : SHARE_PRODUCTS;
    if (products > 1 && products >= HELD) s.wide = products;
    const int most = first + 8 * (s.wide ? s.wide : HELD) / AT_HEADS;
    NO_UNROLL
    while (s.last + 1 < most && joins >> (s.last + 1) & 1)
        s.last++;
    s.items = kv_pieces_mine(w, column_position(w, s.last)) * P_GROUP_KV_HEADS;
    s.parts = s.items < P_ATTENTION_WARPS ? s.items : P_ATTENTION_WARPS;
    return s;
}

/* The part that a warp makes, its KV head, and the first of its products. A wide share's first parts are those of its
 * first product. */
DEV int share_part(const struct worker *w, const struct share *s) { return w->warp % s->parts; }
DEV int share_kv_head(const struct worker *w, const struct share *s) { return share_part(w, s) % P_GROUP_KV_HEADS; }
DEV int share_product(const struct worker *w, const struct share *s) { return w->warp / s->parts; }
DEV int share_works(const struct worker *w, const struct share *s) {
    return w->warp < s->parts * (s->wide ? s->wide : 1);
}

/* The q heads of one of this warp's products. */
DEV struct asked share_asked(const struct worker *w, const struct share *s, int product) {
    const int first = share_kv_head(w, s) * AT_HEADS, lane = w->lane;
    struct asked q = { &w->s->ATTENTION_AT[s->first], 0, first, 8 * product, s->last - s->first };
    q.column = q.at[asked_column(&q, lane / 4)].q[first + (q.from + lane / 4) % AT_HEADS] + lane % 4 * 4;
    return q;
}

/* Every path sets what a warp keeps until it is stored: what only some paths set would keep its registers through all
 * layers. */
DEV void attended_clear(struct attended *r) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        r->m[i / 2] = 0, r->l[i] = 0;
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            r->o[t][i] = 0;
    }
}

DEV void early_clear(struct early *e) {
    UNROLL
    for (int i = 0; i < EARLY_TILES; i++)
        kv_tile_clear(&e->k[i]);
    UNROLL
    for (int i = 0; i < V_ROOM; i++)
        kv_tile_clear(&e->v[i]);
    piece_scales_clear(&e->scales);
}

/* Waits for the piece in the slot at hand and makes it what the share's last column attends to. */
DEV void share_take(struct worker *w, int left) {
    kv_take(w);
    piece_complete(w, left);
    if (KV_TRIMMED && left < KV_POSITIONS) piece_trim(kv_tiles(w), w->lane, left);
}

/* Attends to the piece in the slot at hand with all products of a deep share, and gives the slot back. */
DEV void deep_piece(struct worker *w, struct attended *r, int fresh, const struct share *s, struct kv_reader *c,
                    int position) {
    const int left = kv_left(w, c->item, position), heads = (s->last - s->first + 1) * AT_HEADS;
    struct early none;
    u32 seen = 0;
    early_clear(&none);
    share_take(w, left);
    UNROLL
    for (int n = 0; n < HELD; n++) {
        if (8 * n >= heads) continue;
        const struct asked q = share_asked(w, s, n);
        piece_attend(w, r + n, fresh, 0, &none, kv_tiles(w), &q, left);
        seen ^= attended_seen(r + n);
    }
    kv_give(w, c, seen);
}

/* Attends to this warp's part of a wide share. Its owner has waited for the slot. */
DEV void share_wide(const struct worker *w, struct attended *r, const struct share *s, int position) {
    const struct asked q = share_asked(w, s, share_product(w, s));
    const int item = share_part(w, s);
    const u8 *slot = w->kv_ring + (size_t)(w->kv_turn * P_ATTENTION_WARPS + item) * P_KV_PIECE;
    struct early none;
    early_clear(&none);
    piece_attend(w, r, 1, 0, &none, (const KV_TILE *)slot + w->lane, &q, kv_left(w, item, position));
}

/* ---- stages ---- */

/* The place of a part's o of a stage's column, counted from the stage's first. */
DEV float *stage_o(const struct worker *w, const struct share *s, int column, int part) {
    return w->s->vectors.o[0][0][0] + (column * s->parts + part) * AT_O_FLOATS;
}

/* Stores one of this warp's products, as far as it is of columns from `from` to before `to`. */
DEV void stage_store(const struct worker *w, const struct attended *r, int product, const struct share *s, int from,
                     int to) {
    const int part = share_part(w, s), first = share_kv_head(w, s) * AT_HEADS;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int q = product * 8 + w->lane % 4 * 2 + i, head = q % AT_HEADS, column = s->first + q / AT_HEADS;
        if (column < from || column >= to) continue;
        if (w->lane < 4) {
            struct attention_shared *at = &w->s->ATTENTION_AT[column];
            at->m[first + head][part / P_GROUP_KV_HEADS] = r->m[i];
            at->l[first + head][part / P_GROUP_KV_HEADS] = r->l[i];
        }
        attended_column_store(r, i, stage_o(w, s, column - from, part) + (head * 8 + w->lane / 4) * AT_O_STRIDE);
    }
}

/* Merges the parts of a word of the result, without the current position. column: counted from the stage's first, with
 * `at` as its scratch. */
DEV struct merged stage_merge(const struct worker *w, const struct share *s, int column,
                              const struct attention_shared *at, int word) {
    const int head = word / AT_WORDS, j = word % AT_WORDS;
    const float *o = stage_o(w, s, column, head / AT_HEADS) + (head % AT_HEADS * 8 + 2 * j % 8) * AT_O_STRIDE +
                     2 * j / 16 * 2 + 2 * j / 8 % 2;
    return share_merge(at, head, o, s->parts / P_GROUP_KV_HEADS);
}

/* Publishes this block's partial results of a stage's columns, as attention_publish does. A column that has no piece
 * where the share has one publishes a result without weight, which is none, too. */
DEV void stage_publish(const struct worker *w, const struct share *s, int from, int to) {
    const int some = s->parts > 0;
    if (P_MERGE_SCATTER && !some) return;
    NO_UNROLL
    for (int i = w->warp * LANES + w->lane; i < (to - from) * RESULT_WORDS; i += CONSUMER_THREADS) {
        const int column = i / RESULT_WORDS, word = i % RESULT_WORDS;
        const struct attention_shared *at = &w->s->ATTENTION_AT[from + column];
        u64 *words = column_words(w, X_ATTENTION, from + column) + w->block * ATTENTION_SPAN;
        const struct merged r = stage_merge(w, s, column, at, word);
        const float f = some ? rcp_approx(r.l) : 0, lse = some ? r.m + log2_approx(r.l) : ATTENTION_NEVER;
        word_store(words + word, word_make24(some ? r.low * f : 0, some ? r.high * f : 0, w->epoch));
        if (word % AT_WORDS == 0)
            word_store(words + RESULT_WORDS + word / AT_WORDS, word_make(float_bits(lse), w->epoch));
    }
}

/* ---- current positions ---- */

/* The warps share the rows of all columns: scores of the current positions, then keys and values for the cache. */
DEV void share_own_attend(struct worker *w, const struct share *s) {
    NO_UNROLL
    for (int i = gather_row(w); i < (s->last - s->first + 1) * P_GROUP_KV_HEADS; i += P_WARPS) {
        column_take(w, s->first + i / P_GROUP_KV_HEADS);
        own_scores(w, i % P_GROUP_KV_HEADS);
    }
}

DEV void share_own_keep(struct worker *w, int nth, const struct share *s) {
    NO_UNROLL
    for (int i = gather_row(w); i < (s->last - s->first + 1) * 2 * P_GROUP_KV_HEADS; i += P_WARPS) {
        column_take(w, s->first + i / (2 * P_GROUP_KV_HEADS));
        own_row(w, nth, column_position(w, w->column), i % (2 * P_GROUP_KV_HEADS));
    }
}

/* ---- a block's part ---- */

/* Attends to the columns of a share. */
DEV void share_attend(struct worker *w, int nth, const struct share *s) {
    struct attended r[HELD];
    if (s->first > 0) consumers_sync(); /* the parts of columns before are published */
    share_own_attend(w, s);
    column_take(w, s->last);
    const int position = column_position(w, s->last);
    struct kv_reader c = kv_begin(w, s->items);
    const int owns = c.item < c.items;
    UNROLL
    for (int n = 0; n < HELD; n++)
        attended_clear(r + n);
    if (s->items && s->wide) {
        if (owns) share_take(w, kv_left(w, c.item, position));
        consumers_sync(); /* the slots are what the share attends to */
        if (share_works(w, s)) share_wide(w, r, s, position);
    } else if (owns) {
        deep_piece(w, r, 1, s, &c, position);
        NO_UNROLL
        while (c.item < c.items)
            deep_piece(w, r, 0, s, &c, position);
    }
    const int most = s->parts ? STAGE_ROOM / s->parts : COLUMNS; /* columns of a stage */
    NO_UNROLL
    for (int from = s->first; from <= s->last; from += most) {
        const int to = from + most <= s->last ? from + most : s->last + 1;
        if (from > s->first) consumers_sync(); /* the stage before is published */
        if (s->parts && share_works(w, s)) {
            UNROLL
            for (int n = 0; n < HELD; n++)
                if (!n || !s->wide) stage_store(w, r + n, n ? n : share_product(w, s), s, from, to);
        }
        consumers_sync(); /* B */
        stage_publish(w, s, from, to);
    }
    if (s->items && s->wide && owns) kv_give(w, &c, 0);
    kv_end(w, s->items);
    share_own_keep(w, nth, s);
    if (s->last + 1 < COLUMNS) consumers_sync(); /* the next column's parts may be stored */
}
#endif

#endif
