/* The weight ring: the producer warp brings the block's tape (tape.h) through RING_SLOTS slots of shared memory, and
 * the consumers take tiles out of the slots. The producer waits for nothing but room: weights do not depend on
 * activations, so the producer runs on across layers and tokens. A cap limits how many slots are in flight from memory
 * at once, because every byte in flight delays the exchanges. It is higher for slots that the consumers multiply as
 * they come: the head's, and those of a phase whose input has come.
 *
 * In the layers every consumer warp waits for every slot. In the head a slot belongs to HEAD_SLOT_WARPS warps, and to
 * the same ones in every lap, because a row of units, one for each warp, takes HEAD_ROW_SLOTS slots and the ring
 * holds a whole number of such rows. Both rules have one reason: a warp that skipped laps of a slot could not tell one
 * lap's parity from another's. A ring that holds one such row and a part of another (RING_ODD) is a ring of one row in
 * the head: all rows go into the slots of the first. Then slots differ in how many laps they have behind them, and each
 * has a parity of its own. */
#ifndef REEL_KERNELS_RING_CUH
#define REEL_KERNELS_RING_CUH

#include "shared.cuh"
#include "tile_codes.cuh"

#define RING_ODD (P_COLUMNS > 1 && P_RING_SLOTS % (P_HEAD_UNIT / P_SLOT_TILES) != 0)
/* Whether slots are filled in halves, the second when one slot less is in flight. So half a slot less is in flight than
 * the cap says, which is finer than whole slots are. */
#define HALF_FILLS (G_COPY == 2 && P_HALF_FILLS)
#if RING_ODD && P_RING_SLOTS > 15
#error "a ring of more than one row of the head's units: a whole number of rows, or at most 15 slots"
#endif

enum {
    HEAD_SLOT_WARPS = P_WARPS * P_SLOT_TILES / P_HEAD_UNIT, /* warps that have a unit in a slot */
    HEAD_ROW_SLOTS = P_WARPS / HEAD_SLOT_WARPS,             /* slots that hold a unit of each warp */
    HEAD_UNITS =
        P_HEAD_K_TILES / TILE_PARTS(P_HEAD_FORMAT) / P_HEAD_UNIT /* units of a strip, which is 16 rows of the head */
};

/* How many bytes of a slot the tiles of a format fill. Slots are P_SLOT_BYTES apart, which is enough for the widest
 * format. */
DEV u32 slot_fill(const int format) { return (u32)(P_WARPS * P_SLOT_TILES) * tile_bytes(format); }

/* ---- consumers ---- */

/* The parity of the next phase of a slot: w->parity, which with RING_ODD has a bit for each slot. */
DEV u32 slot_parity(const struct worker *w, int slot) { return RING_ODD ? w->parity >> slot & 1 : w->parity; }

/* Moves on by n slots, n <= HEAD_ROW_SLOTS <= RING_SLOTS. */
DEV void slots_skip(struct worker *w, int n) {
    if (RING_ODD) {
        const u32 passed = ((1u << n) - 1) << w->slot;
        w->parity ^= (passed | passed >> RING_SLOTS) & ((1u << RING_SLOTS) - 1);
    }
    w->slot += n;
    if (w->slot >= RING_SLOTS) w->slot -= RING_SLOTS, w->parity ^= RING_ODD ? 0 : 1;
}
DEV void slot_next(struct worker *w) {
    if (RING_ODD)
        slots_skip(w, 1);
    else if (++w->slot == RING_SLOTS)
        w->slot = 0, w->parity ^= 1;
}

/* Goes from the end of a row of the head's units to where the next one begins. */
DEV int head_row_back(int slot) {
    if (!RING_ODD) return slot;
    return slot < HEAD_ROW_SLOTS ? slot + RING_SLOTS - HEAD_ROW_SLOTS : slot - HEAD_ROW_SLOTS;
}

/* This lane's bytes of this warp's i-th tile in the slot at hand. */
DEV const u8 *slot_tile(const struct worker *w, int i, const int format) {
    return w->ring + (size_t)w->slot * P_SLOT_BYTES +
           (size_t)((i * P_WARPS + w->warp) * (int)tile_bytes(format) + (int)tile_lane(format, w->lane));
}

/* Waits until n slots are full, of which the first is `first` slots ahead: one lane waits for all of them in turn. */
DEV void slots_wait_each(struct worker *w, int first, int n) {
    if (w->lane == 0) {
        int slot = w->slot + first;
        u32 parity = w->parity;
        if (first > 0 && slot >= RING_SLOTS) slot -= RING_SLOTS, parity ^= 1;
        NO_UNROLL
        for (int i = 0; i < n; i++) {
            mbar_wait(w, w->full + (smem)slot * 8, RING_ODD ? slot_parity(w, slot) : parity, WAIT_WEIGHTS);
            if (++slot == RING_SLOTS) slot = 0, parity ^= 1;
        }
    }
    warp_sync();
    lanes_agree(w);
}
#if P_COLUMNS == 1
/* The same as a call, of the next n slots. Returns w->dead. */
DEV_CALL int slots_await(const struct decode_args *a, struct block_shared *s, smem full, int slot, u32 parity, int n,
                         int lane, int token, int layer, int dead) {
    struct worker w = { a, s };
    w.full = full, w.slot = slot, w.parity = parity, w.lane = lane, w.token = token, w.layer = layer, w.dead = dead;
    slots_wait_each(&w, 0, n);
    return w.dead;
}
#endif

/* The same where most often they are full already: then lane i tests slot i, and that is enough. apart: what is done
 * otherwise is a call, since a jump over as many instructions is waited for. That is worth it where slots hardly ever
 * are not full, or for the smaller code; `first` is 0 then. */
DEV void slots_wait(struct worker *w, int first, int n, const int apart) {
    const int from = w->slot + first, wraps = from + w->lane >= RING_SLOTS;
    const int mine = from + w->lane - (wraps ? RING_SLOTS : 0);
    const u32 parity_mine = RING_ODD ? w->parity >> mine & 1 : w->parity ^ (u32)wraps;
    if (warp_all(w->lane >= n || mbar_test(w->full + (smem)mine * 8, parity_mine))) {
        warp_sync(); /* a vote orders nothing */
        return;
    }
#if P_COLUMNS == 1
    if (apart) {
        w->dead = slots_await(w->a, w->s, w->full, w->slot, w->parity, n, w->lane, w->token, w->layer, w->dead);
        return;
    }
#endif
    (void)apart, slots_wait_each(w, first, n);
}

/* Brings this warp's next n tiles of the phase at hand into registers and gives the slots back. n is a multiple of
 * P_SLOT_TILES, or what is left of the phase. Tiles come in the bytes of their format; with `ready` as operands, the
 * first of which has the tile's scales beside it. Tiles from `scaled` on are not asked for their scales. apart: as for
 * slots_wait. */
DEV void tiles_take_some(struct worker *w, struct held *t, int n, int scaled, const int format, const int ready,
                         const int apart) {
    const int slots = (n + P_SLOT_TILES - 1) / P_SLOT_TILES;
    int mine = w->slot + w->lane; /* lane i gives back slot i */
    if (mine >= RING_SLOTS) mine -= RING_SLOTS;
    u32 seen = 0;
    slots_wait(w, 0, slots, apart);
    UNROLL
    for (int i = 0; i < n; i++) {
        struct held *tile = t + i * (ready ? TILE_OPERANDS(format) : 1);
        held_read(tile, slot_tile(w, i % P_SLOT_TILES, format), w->lane, i < scaled, format);
        seen ^= held_seen(tile, i < scaled, format);
        if (ready) tile_make_ready(tile, format);
        if (i % P_SLOT_TILES == P_SLOT_TILES - 1 || i == n - 1) slot_next(w);
    }
    warp_sync();
    if (w->lane < slots) mbar_arrive_after(w, w->empty + (smem)mine * 8, seen);
}

/* The same where n tiles may be more than the ring holds: then the ring is filled anew in between. */
DEV void tiles_take(struct worker *w, struct held *t, int n, int scaled, const int format, const int ready,
                    const int apart) {
    enum { MOST = RING_SLOTS * P_SLOT_TILES };
    UNROLL
    for (int i = 0; i < n; i += MOST)
        tiles_take_some(w, t + i * (ready ? TILE_OPERANDS(format) : 1), n - i < MOST ? n - i : MOST, scaled - i, format,
                        ready, apart);
}

/* ---- the producer ---- */

struct weight_stream {
    const u8 *src;
    smem ring, full, empty;
    int slot, old;               /* slot: the next to fill; old: the oldest in flight */
    u32 fill_parity, old_parity; /* fill: of the lap before at `slot`; old: of the lap in flight at `old` */
    int flying, cap, first_lap;
#if RING_ODD
    u64 order; /* the slots in flight, 4 bits each, the oldest in the lowest; fill_parity and old_parity: a bit a slot
                */
    u32 filled, in_flight; /* a bit for each slot that has been filled, and for each that is in flight */
#endif
};

/* The first lane's value, for all lanes that fill: what they read may have changed between two lanes' reads. */
DEV int fill_same(u32 v) { return (int)(FILL_LANES == 1 ? v : shuffle(v, 0)); }

DEV void stream_start(const struct worker *w, struct weight_stream *p) {
    p->ring = smem_of(w->ring), p->full = w->full, p->empty = w->empty;
    p->slot = p->old = p->flying = 0;
    p->fill_parity = p->old_parity = 0, p->first_lap = 1;
#if RING_ODD
    p->order = 0, p->filled = p->in_flight = 0;
#endif
}

/* The oldest slot in flight has landed. */
DEV void stream_landed(struct weight_stream *p) {
    p->flying--;
#if RING_ODD
    p->old_parity ^= 1u << p->old, p->in_flight &= ~(1u << p->old);
    p->order >>= 4, p->old = (int)(p->order & 15);
#else
    if (++p->old == RING_SLOTS) p->old = 0, p->old_parity ^= 1;
#endif
}
#define OLD_PARITY(p) (RING_ODD ? (p)->old_parity >> (p)->old & 1 : (p)->old_parity)

/* Waits for all copies in flight: the producer must not leave before they have landed. */
DEV void stream_drain(struct weight_stream *p) {
    while (p->flying > 0) {
        copy_wait(p->full + (smem)p->old * 8, OLD_PARITY(p));
        stream_landed(p);
    }
}

/* The producer waits for the phase of this parity of a barrier. Returns 0 when the launch is over and the producer must
 * stop. */
DEV int stream_wait(struct worker *w, smem bar, u32 parity) {
    const smem end = smem_of(&w->s->end);
    u32 polls = 0;
    NO_UNROLL
    while (!fill_all(mbar_test(bar, parity))) {
        if (++polls % 64) continue;
        if (!fill_all(!shared_load(end))) return 0;
        if (polls % 16384 == 0 && !fill_all(!plain_load32(w->a->abort))) w->dead = 1;
        if (w->dead) return 0;
    }
    return 1;
}

/* Waits until at most `most` slots are in flight. 0: as stream_wait, whose slower polls make room for the warps that
 * work: with copy_wait a token of Qwen3-1.7B takes 1 % longer. */
DEV int stream_settle(struct worker *w, struct weight_stream *p, int most) {
    while (p->flying > most) { /* takes more than one turn where the cap has fallen */
        if (!stream_wait(w, p->full + (smem)p->old * 8, OLD_PARITY(p))) return 0;
        stream_landed(p);
    }
    return 1;
}

/* Whether a slot has been filled before. If so, `parity` is that of the phase in which it was given back. */
DEV int slot_filled(struct weight_stream *p, u32 *parity) {
#if RING_ODD
    const u32 bit = 1u << p->slot;
    const int filled = (p->filled & bit) != 0;
    *parity = p->fill_parity >> p->slot & 1;
    p->filled |= bit, p->fill_parity ^= filled ? bit : 0;
    return filled;
#else
    *parity = p->fill_parity;
    return !p->first_lap;
#endif
}

/* Fills the next slot with the next `bytes` of the tape, once the cap and the slot allow it. 0: as stream_wait. given:
 * NULL in the layers. In the head all slots may be in flight: then the next one is the oldest, and has landed when it
 * is given back. With one column whether it has been is asked here, at the end of the turn before. */
DEV int stream_slot(struct worker *w, struct weight_stream *p, u32 bytes, int *given) {
    const smem to = p->ring + (smem)p->slot * P_SLOT_BYTES, bar = p->full + (smem)p->slot * 8;
    const int is_oldest = given && P_COLUMNS == 1 && p->cap == RING_SLOTS && p->flying == RING_SLOTS;
    u32 parity;
    if (!is_oldest && !stream_settle(w, p, p->cap - 1)) return 0;
#if RING_ODD
    while (p->in_flight >> p->slot & 1) /* what was brought in the head's row may still count */
        if (!stream_settle(w, p, p->flying - 1)) return 0;
#endif
    const int is_given = is_oldest && *given;
    if (!is_given && slot_filled(p, &parity) && !stream_wait(w, p->empty + (smem)p->slot * 8, parity)) return 0;
    if (is_oldest) stream_landed(p);
#if HALF_FILLS
    const u32 half = bytes / 32 * 16;
    if (half) ring_add(to, p->src, half, bar);
    while (p->flying > 0 && p->flying > p->cap - 2) { /* what lies between two halves must not be left */
        copy_wait(p->full + (smem)p->old * 8, OLD_PARITY(p));
        stream_landed(p);
    }
    ring_fill(to + half, p->src + half, bytes - half, bar);
#else
    ring_fill(to, p->src, bytes, bar);
#endif
    p->src += bytes;
#if RING_ODD
    p->order |= (u64)(u32)p->slot << 4 * p->flying, p->in_flight |= 1u << p->slot;
    if (p->flying == 0) p->old = p->slot;
#endif
    p->flying++;
    if (++p->slot == RING_SLOTS) p->slot = 0, p->fill_parity ^= (u32)(!RING_ODD && !p->first_lap), p->first_lap = 0;
    if (given && P_COLUMNS == 1)
        *given = p->flying == RING_SLOTS && fill_all(mbar_test(p->empty + (smem)p->slot * 8, p->fill_parity));
    return 1;
}

/* Brings a phase's segment, with `fill` bytes in each slot but the last, which may have less. */
DEV int stream_segment(struct worker *w, struct weight_stream *p, int phase, u32 bytes, u32 fill) {
    const smem cap = smem_of(&w->s->caps[phase]);
    NO_UNROLL
    for (u32 i = 0; i < bytes / fill; i++) {
        p->cap = fill_same(shared_load(cap));
        if (!stream_slot(w, p, fill, 0)) return 0;
    }
    if (bytes % fill == 0) return 1;
    p->cap = fill_same(shared_load(cap));
    return stream_slot(w, p, bytes % fill, 0);
}
#define STREAM_SEGMENT(w, p, S) stream_segment(w, p, LAYER_PHASE(S), P_##S##_BYTES, slot_fill(P_##S##_FORMAT))

/* Brings the head's strips of this block, a row of units after the other. Each row takes HEAD_ROW_SLOTS slots, also
 * where it has fewer units than there are warps. */
DEV int stream_head(struct worker *w, struct weight_stream *p, int strips) {
    const u32 tile = tile_bytes(P_HEAD_FORMAT), fill = slot_fill(P_HEAD_FORMAT);
    int given = 0;
    NO_UNROLL
    for (; strips > 0; strips -= P_WARPS) {
        const u32 row = strips < P_WARPS ? (u32)strips * P_HEAD_UNIT * tile : P_WARPS * P_HEAD_UNIT * tile;
        NO_UNROLL
        for (int q = 0; q < HEAD_UNITS; q++) {
            u32 left = row;
            NO_UNROLL
            for (int i = 0; i < HEAD_ROW_SLOTS; i++) {
                const u32 bytes = left < fill ? left : fill;
                if (!stream_slot(w, p, bytes, &given)) return 0;
                left -= bytes;
            }
            p->slot = head_row_back(p->slot);
        }
    }
    return 1;
}

/* One thread of a block calls it where the barriers of the ring are made. */
DEV void caps_start(struct worker *w) {
    for (int i = 0; i < LAYER_PHASES; i++)
        w->s->caps[i] = (u32)w->a->cap_layers;
}

/* Lifts the cap of the phase at hand while consumers stream its tiles, and puts it back afterwards. No exchange waits
 * behind those bytes, so as many slots may be in flight as in the head. The bytes of the next phases would still be
 * under way when this one's exchange begins, so there the layers' cap stays; but where warps preload more of a phase
 * than that cap lets through, they would only wait longer for it, and all caps are lifted. Where the ring holds a whole
 * layer, a producer that is in the next one meets the lifted cap too: that exchange waits a little longer. */
DEV void stream_freely(struct worker *w, int yes) {
    const int preload_fits = P_PRELOAD_TILES / P_SLOT_TILES <= w->a->cap_layers;
    if (w->warp || w->lane >= LAYER_PHASES) return;
    const int lifted = yes && (!preload_fits || w->lane == w->phase);
    shared_store(smem_of(&w->s->caps[w->lane]), (u32)(lifted ? w->a->cap_head : w->a->cap_layers));
}

/* Bytes of a layer's first phase, qkv or mix, and of a slot of that phase; bytes of the first n layers. A model with
 * DeltaNets asks only for none or all of the layers. */
#if M_DELTA
DEV u32 first_phase_bytes(int layer) { return layer_is_delta(layer) ? P_MIX_BYTES : P_QKV_BYTES; }
DEV u32 first_phase_fill(int layer) { return slot_fill(layer_is_delta(layer) ? P_MIX_FORMAT : P_QKV_FORMAT); }
DEV u64 layers_bytes(int n) { return n ? P_LAYERS_BYTES : 0; }
#else
DEV u32 first_phase_bytes(int layer) { return (void)layer, P_QKV_BYTES; }
DEV u32 first_phase_fill(int layer) { return (void)layer, slot_fill(P_QKV_FORMAT); }
DEV u64 layers_bytes(int n) { return (u64)n * P_LAYER_BYTES; }
#endif

/* Brings a layer's tiles. With more than two columns its instructions are few rather than fast: those of a layer are
 * more than an SM keeps. */
DEV int stream_layer(struct worker *w, struct weight_stream *p, int layer) {
    const u32 first = first_phase_bytes(layer), first_fill = first_phase_fill(layer);
#if P_COLUMNS > 2
    const u32 out = slot_fill(P_OUT_FORMAT), gate_up = slot_fill(P_GATE_UP_FORMAT), down = slot_fill(P_DOWN_FORMAT);
    int go = 1;
    NO_UNROLL
    for (int n = 0; n < LAYER_PHASES && go; n++) {
        const u32 bytes = n == 0 ? first : n == 1 ? P_OUT_BYTES : n == 2 ? P_GATE_UP_BYTES : P_DOWN_BYTES;
        go = stream_segment(w, p, n, bytes, n == 0 ? first_fill : n == 1 ? out : n == 2 ? gate_up : down);
    }
    return 1;
#else
    return stream_segment(w, p, TAPE_QKV, first, first_fill) && STREAM_SEGMENT(w, p, OUT) &&
           STREAM_SEGMENT(w, p, GATE_UP) && STREAM_SEGMENT(w, p, DOWN);
#endif
}

/* The producer of weights. Its rate is the latency of its turns (0.48 us for 16 KB at the memory's speed), so it keeps
 * everything that a turn needs in registers. */
DEV void weights_produce(struct worker *w) {
    const struct decode_args *a = w->a;
    const u8 *tape = a->tape + (u64)w->block * P_SM_BYTES;
    const int strips = head_tiles(w);
#if P_COLUMNS > 1
    const int n_tokens = w->all->n_passes, head_from = 0;
#else
    const int n_tokens = a->n_tokens, head_from = a->head_from;
#endif
    struct weight_stream p;
    stream_start(w, &p);
    if (w->lane >= FILL_LANES) return;
    for (int t = 0, go = 1; t < n_tokens && go; t++) {
        const int first = layers_done(a, t) ? M_LAYERS : 0;
        p.src = tape + layers_bytes(first);
        for (int layer = first; layer < M_LAYERS && go; layer++)
            go = stream_layer(w, &p, layer);
        p.cap = a->cap_head;
        if (go && t >= head_from) go = stream_head(w, &p, strips);
    }
    stream_drain(&p);
}

#endif
