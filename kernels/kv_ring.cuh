/* The KV ring: a producer warp brings K and V of past positions from the cache through P_KV_SLOTS slots of shared
 * memory. It brings them in pieces, 16 positions of one KV head each (kv_layout.h).
 *
 * An item is what one slot holds: a piece of one of the group's KV heads. The items of a layer are numbered heads
 * first: all heads of the first piece, then all heads of the next. Item i belongs to warp i % P_ATTENTION_WARPS, and a
 * slot belongs to warp slot % P_ATTENTION_WARPS, because a warp that skipped laps of a slot could not tell one lap's
 * parity from another's. Items go round by round, one for each warp. A layer begins with a new round, and both the
 * producer and the consumers skip the slots that the last round of a layer leaves over. A slot's parity flips when the
 * slot is used, not when it is skipped. A phase of kv_full takes FILL_LANES arrivals, a phase of kv_empty one.
 *
 * With several columns in stages item i of a column belongs to another warp, which is said in columns_stage.cuh, and no
 * slot is skipped. */
#ifndef REEL_KERNELS_KV_RING_CUH
#define REEL_KERNELS_KV_RING_CUH

#include "decode_shared.cuh"
#include "kv_codes.cuh"
#include "kv_pages.cuh"
#include "ring.cuh"

#if P_KV_SLOTS > 32 || P_KV_SLOTS % P_ATTENTION_WARPS || P_ATTENTION_WARPS % P_GROUP_KV_HEADS
#error "kv_slots: at most 32, a multiple of attention_warps, which is one of group_kv_heads"
#endif

/* Whether several lanes of the producer warp bring pieces, one for each warp that attends. */
#define KV_LANES (P_COLUMNS > 1 ? STAGED : P_KV_FORM && G_COPY == 2)

/* How many pieces of past positions this block attends to, for each KV head. */
DEV int kv_pieces_mine(const struct worker *w, int position) {
    const int pieces = (position + KV_POSITIONS - 1) / KV_POSITIONS;
    if (position < w->a->split_from) return pieces;
    return (pieces - w->member + P_GROUP_SMS - 1) / P_GROUP_SMS;
}

/* Walks through the items of a layer and their slots. */
struct kv_cursor {
    int slot, item;
    u32 laps; /* a bit for each slot: the parity of its next use */
};

DEV void kv_advance(struct kv_cursor *c, int items) {
    c->laps ^= 1u << c->slot;
    c->slot++, c->item++;
    if (c->item == items) {
        c->item = 0;
        c->slot = (c->slot + P_ATTENTION_WARPS - 1) / P_ATTENTION_WARPS * P_ATTENTION_WARPS;
    }
    if (c->slot == P_KV_SLOTS) c->slot = 0;
}

struct kv_stream {
    smem ring, full, empty;
    struct kv_cursor head, tail; /* head: the next to fill; tail: the oldest in flight */
    u32 pending;                 /* a bit for each slot: the producer has filled it and not yet seen it full */
    int flying, cap, items;
#if P_COLUMNS > 1
    const u32 *column_items;      /* [P_COLUMNS] items of a layer */
    int head_column, tail_column; /* to which the cursors' items belong; no column without items */
#endif
};

#if P_COLUMNS > 1
/* Moves a cursor on. Each column's items begin with a new round, as a layer's items do that has one column. */
DEV void kv_pass(struct kv_stream *p, struct kv_cursor *c, int *column) {
    kv_advance(c, (int)p->column_items[*column]);
    if (c->item > 0) return;
    do
        *column = *column + 1 == P_COLUMNS ? 0 : *column + 1;
    while (!p->column_items[*column]);
}
DEV void kv_head_pass(struct kv_stream *p) { kv_pass(p, &p->head, &p->head_column); }
DEV void kv_tail_pass(struct kv_stream *p) { kv_pass(p, &p->tail, &p->tail_column); }
#else
DEV void kv_head_pass(struct kv_stream *p) { kv_advance(&p->head, p->items); }
DEV void kv_tail_pass(struct kv_stream *p) { kv_advance(&p->tail, p->items); }
#endif

/* The oldest copy in flight has landed. */
DEV void kv_landed(struct kv_stream *p) {
    p->pending &= ~(1u << p->tail.slot);
    p->flying--;
    kv_tail_pass(p);
}

/* Waits until the oldest copy in flight has landed. Returns 0 when the launch is over. */
DEV int kv_land(struct worker *w, struct kv_stream *p) {
    const u32 parity = p->tail.laps >> p->tail.slot & 1;
    if (!stream_wait(w, p->full + (smem)p->tail.slot * 8, parity)) return 0;
    kv_landed(p);
    return 1;
}

/* Fills the next slot from src, once the cap and the slot allow it. Returns 0 when the launch is over. */
DEV int kv_fill(struct worker *w, struct kv_stream *p, const u8 *src) {
    const int slot = p->head.slot;
    const u32 parity = p->head.laps >> slot & 1;
    if (p->flying >= p->cap && !kv_land(w, p)) return 0;
    if (!stream_wait(w, p->empty + (smem)slot * 8, parity ^ 1)) return 0;
    while (p->pending >> slot & 1)
        if (!kv_land(w, p)) return 0;
    ring_fill(p->ring + (smem)slot * P_KV_PIECE, src, P_KV_PIECE, p->full + (smem)slot * 8);
    p->pending |= 1u << slot;
    p->flying++;
    kv_head_pass(p);
    return 1;
}

DEV void kv_stream_start(const struct worker *w, struct kv_stream *p) {
    p->ring = smem_of(w->kv_ring), p->full = smem_of(w->s->kv_full), p->empty = smem_of(w->s->kv_empty);
    p->head.slot = p->head.item = 0, p->head.laps = 0;
    p->tail = p->head, p->pending = 0;
    p->flying = p->items = 0, p->cap = w->a->cap_kv;
}

/* Waits for all copies in flight: the producer must not leave before they have landed. */
DEV void kv_drain(struct kv_stream *p) {
    while (p->flying > 0) {
        const u32 parity = p->tail.laps >> p->tail.slot & 1;
        while (!fill_all(mbar_test(p->full + (smem)p->tail.slot * 8, parity))) {
        }
        kv_landed(p);
    }
}

/* Waits until `count`, a word of this block, says that t tokens are over. What all blocks wrote before them, rows of K
 * and V, can then be fetched. Returns 0 when the launch is over. */
DEV int kv_count_wait(struct worker *w, const u32 *count, int t) {
    const smem over = smem_of(count), end = smem_of(&w->s->end);
    u32 polls = 0;
    NO_UNROLL
    while (!fill_all(shared_load(over) >= (u32)t)) {
        if (!fill_all(!shared_load(end))) return 0;
        if (++polls % 4096 == 0 && !fill_all(!plain_load32(w->a->abort))) w->dead = 1;
        if (w->dead) return 0;
        sleep_ns(40);
    }
    fence_gpu();
    fence_copies();
    return 1;
}

#if KV_LANES
/* Of codes a piece has half of the bytes, and one lane that brings all pieces, 0.3 us each, would be slower than
 * memory. With several columns a warp's next piece must not wait for another warp's slot. So each warp that attends has
 * a lane of its own, which fills its slots. The lanes share nothing: a lane counts its turns as its warp does
 * (kv_reader). */
struct kv_lane {
    int turn; /* the next slot to fill, among the warp's own */
    u32 laps; /* a bit for each of them: the parity of its next use */
};

DEV smem kv_lane_slot(const struct worker *w, int turn) { return (smem)(turn * P_ATTENTION_WARPS + w->lane); }
DEV int kv_lane_next(int turn) { return turn + 1 == AT_ROUNDS ? 0 : turn + 1; }

/* Waits for the last copy into a slot; a slot that was never filled counts as landed. Returns 0 when the launch is
 * over. */
DEV int kv_lane_land(struct worker *w, const struct kv_lane *p, int turn) {
    return stream_wait(w, smem_of(w->s->kv_full) + kv_lane_slot(w, turn) * 8, (p->laps >> turn & 1) ^ 1);
}

/* Fills the lane's next slot from src. cap: how many copies of a lane may be in flight. Returns 0 when the launch is
 * over. */
DEV int kv_lane_fill(struct worker *w, struct kv_lane *p, const u8 *src, int cap) {
    const smem slot = kv_lane_slot(w, p->turn);
    const u32 parity = p->laps >> p->turn & 1;
    if (cap < AT_ROUNDS && !kv_lane_land(w, p, (p->turn + AT_ROUNDS - cap) % AT_ROUNDS)) return 0;
    if (!stream_wait(w, smem_of(w->s->kv_empty) + slot * 8, parity ^ 1)) return 0;
    ring_fill(smem_of(w->kv_ring) + slot * P_KV_PIECE, src, P_KV_PIECE, smem_of(w->s->kv_full) + slot * 8);
    p->laps ^= 1u << p->turn, p->turn = kv_lane_next(p->turn);
    return 1;
}

/* How many copies of a lane may be in flight. */
DEV int kv_lane_cap(const struct decode_args *a) {
    return a->cap_kv < P_KV_SLOTS ? MAX(a->cap_kv / P_ATTENTION_WARPS, 1) : AT_ROUNDS;
}

/* Waits for all copies of the lane, which must not leave before they have landed. */
DEV void kv_lane_drain(const struct worker *w, const struct kv_lane *p) {
    NO_UNROLL
    for (int turn = 0; turn < AT_ROUNDS; turn++)
        copy_wait(smem_of(w->s->kv_full) + kv_lane_slot(w, turn) * 8, (p->laps >> turn & 1) ^ 1);
}
#endif

#if P_COLUMNS == 1
/* Waits until all blocks are done with the token before t. */
DEV int kv_token_wait(struct worker *w, int t) { return kv_count_wait(w, &w->s->tokens_over, t); }

#if KV_LANES
/* Brings the lane's pieces of one token, layer by layer. It asks for the address of a piece's page while it fills the
 * slot of the piece before. Returns 0 when the launch is over. */
DEV int kv_lane_token(struct worker *w, struct kv_lane *p, int position) {
    const struct decode_args *a = w->a;
    const int pieces = kv_pieces_mine(w, position), split = position >= a->split_from;
    const int items = pieces * P_GROUP_KV_HEADS, step = split ? P_GROUP_SMS : 1;
    const int first = (split ? w->member : 0) + w->lane / P_GROUP_KV_HEADS * step, head = w->lane % P_GROUP_KV_HEADS;
    const int cap = kv_lane_cap(a);
    const int skips = items % P_ATTENTION_WARPS && w->lane >= items % P_ATTENTION_WARPS; /* in a layer's last round */
    int row = kv_row(w, 0) + head;
    u8 *of_piece = w->lane < items ? kv_page(a, first) : 0;
    NO_UNROLL
    for (int nth = 0; nth < M_LAYERS - M_DELTA; nth++, row += GPU_KV_HEADS) {
        int piece = first;
        NO_UNROLL
        for (int item = w->lane; item < items; item += P_ATTENTION_WARPS) {
            const u8 *src = kv_page_piece(of_piece, row, piece);
            piece = item + P_ATTENTION_WARPS < items ? piece + AT_PARTS * step : first;
            of_piece = kv_page(a, piece);
            if (!kv_lane_fill(w, p, src, cap)) return 0;
        }
        if (skips) p->turn = kv_lane_next(p->turn);
    }
    return 1;
}

/* The producer of K and V. */
DEV void kv_produce(struct worker *w) {
    const struct decode_args *a = w->a;
    const int n_tokens = a->n_tokens;
    struct kv_lane p = { 0, 0 };
    if (w->lane >= P_ATTENTION_WARPS) return;
    for (int t = 0; t < n_tokens; t++) {
        if (t > 0 && !kv_token_wait(w, t)) break;
        if (!layers_done(a, t) && !kv_lane_token(w, &p, a->position + t)) break;
    }
    kv_lane_drain(w, &p);
}
#else
/* Brings all pieces that one token needs, layer by layer. It asks for the address of a piece's page while it fills the
 * slots of the piece before, because a copy would else wait for two loads in a row. Returns 0 when the launch is over.
 */
DEV int kv_token(struct worker *w, struct kv_stream *p, int position) {
    const struct decode_args *a = w->a;
    const int pieces = kv_pieces_mine(w, position), split = position >= a->split_from;
    const int first = split ? w->member : 0, step = split ? P_GROUP_SMS : 1;
    int row = kv_row(w, 0);
    p->items = pieces * P_GROUP_KV_HEADS;
    /* The cap keeps exchanges short. Where attention lasts longer than they do, the memory's speed counts: no cap. */
    p->cap = p->items > 4 * P_KV_SLOTS ? P_KV_SLOTS : a->cap_kv;
    p->tail = p->head, p->pending = 0, p->flying = 0; /* the token before has used all that was brought for it */
    if (pieces < 1) return 1;
    u8 *page = kv_page(a, first);
    NO_UNROLL
    for (int nth = 0; nth < M_LAYERS - M_DELTA; nth++, row += GPU_KV_HEADS) {
        int piece = first;
        NO_UNROLL
        for (int i = 0; i < pieces; i++) {
            const u8 *src = kv_page_piece(page, row, piece);
            piece = i + 1 < pieces ? piece + step : first;
            page = kv_page(a, piece);
            NO_UNROLL
            for (int h = 0; h < P_GROUP_KV_HEADS; h++, src += P_KV_PAGE * P_KV_PIECE)
                if (!kv_fill(w, p, src)) return 0;
        }
    }
    return 1;
}

/* The producer of K and V. */
DEV void kv_produce(struct worker *w) {
    const struct decode_args *a = w->a;
    const int n_tokens = a->n_tokens;
    struct kv_stream p;
    kv_stream_start(w, &p);
    if (w->lane >= FILL_LANES) return;
    for (int t = 0; t < n_tokens; t++) {
        if (t > 0 && !kv_token_wait(w, t)) break;
        if (!layers_done(a, t) && !kv_token(w, &p, a->position + t)) break;
    }
    kv_drain(&p);
}
#endif
#endif

/* ---- consumers ---- */

/* A warp's way through its items in one layer. The warp's n-th own slot is slot n * P_ATTENTION_WARPS + warp. */
struct kv_reader {
    int item, items; /* none is left when item >= items */
};

/* The part of a column, or of the only token, that a warp makes: items part, part + P_ATTENTION_WARPS and so on. */
#if STAGED
DEV int part_of(const struct worker *w) { return w->part; }
#else
DEV int part_of(const struct worker *w) { return w->warp; }
#endif

DEV struct kv_reader kv_begin(const struct worker *w, int items) {
    struct kv_reader c;
    c.item = part_of(w), c.items = w->warp < P_ATTENTION_WARPS ? items : 0;
    return c;
}

DEV int kv_slot(const struct worker *w) { return w->kv_turn * P_ATTENTION_WARPS + w->warp; }

DEV KV_TILE *kv_tiles(const struct worker *w) {
    return (KV_TILE *)(w->kv_ring + (size_t)kv_slot(w) * P_KV_PIECE) + w->lane;
}

/* Waits until the slot at hand is full. */
DEV void kv_take(struct worker *w) {
    if (w->lane == 0) mbar_wait(w, smem_of(&w->s->kv_full[kv_slot(w)]), w->kv_laps >> w->kv_turn & 1, WAIT_KV);
    warp_sync();
    lanes_agree(w);
}

DEV void kv_turn_next(struct worker *w) { w->kv_turn = w->kv_turn + 1 == AT_ROUNDS ? 0 : w->kv_turn + 1; }

/* Gives the slot at hand back. `seen` is made of all that this warp has read from it; see mbar_arrive_answered. */
DEV void kv_give(struct worker *w, struct kv_reader *c, u32 seen) {
    warp_sync();
    if (w->lane == 0) mbar_arrive_after(w, smem_of(&w->s->kv_empty[kv_slot(w)]), seen);
    w->kv_laps ^= 1u << w->kv_turn;
    kv_turn_next(w);
    c->item += P_ATTENTION_WARPS;
}

/* The layer's items are done: a warp that had no item in the layer's last round skips a slot. */
DEV void kv_end(struct worker *w, int items) {
    if (items % P_ATTENTION_WARPS && w->warp >= items % P_ATTENTION_WARPS) kv_turn_next(w);
}

#endif
