/* The weight ring: the producer warp brings the block's tape through RING_SLOTS slots of shared
 * memory, the consumers take tiles out. The producer waits for nothing but room: weights do not
 * depend on activations, so it runs on across layers and tokens. What is in flight is capped,
 * because every byte in flight delays the exchanges.
 *
 * Every warp waits for every slot in the layers. In the head a slot belongs to HEAD_SLOT_WARPS warps,
 * always the same ones, since a row of units fills the ring a whole number of times: a warp that
 * skipped laps of a slot could not tell one lap's parity from another's. */
#ifndef REEL_KERNELS_RING_CUH
#define REEL_KERNELS_RING_CUH

#include "shared.cuh"

enum {
    HEAD_SLOT_WARPS = P_WARPS * P_SLOT_TILES / P_HEAD_UNIT, /* units in a slot */
    HEAD_ROW_SLOTS = P_WARPS / HEAD_SLOT_WARPS,             /* slots that hold a unit of each warp */
    HEAD_UNITS = P_HEAD_K_TILES / P_HEAD_UNIT               /* of a strip of 16 rows */
};

/* Bytes of a slot that tiles of a format fill; slots are P_SLOT_BYTES apart, the widest format's. */
DEV u32 slot_fill(const int format) { return (u32)(P_WARPS * P_SLOT_TILES) * tile_bytes(format); }

/* ---- consumers ---- */

DEV void slot_next(struct worker *w) {
    if (++w->slot == RING_SLOTS) w->slot = 0, w->parity ^= 1;
}

DEV const u8 *slot_tile(const struct worker *w, int i, const int format) {
    return w->ring + (size_t)w->slot * P_SLOT_BYTES +
           (size_t)((i * P_WARPS + w->warp) * (int)tile_bytes(format) + (int)tile_lane(format, w->lane));
}

/* Waits for n slots from the first-th ahead on. Most often they are there: then one test by a lane each is enough.
 * Else one lane waits for all of them. */
DEV void slots_wait(struct worker *w, int first, int n) {
    const int from = w->slot + first, wraps = from + w->lane >= RING_SLOTS;
    const int mine = from + w->lane - (wraps ? RING_SLOTS : 0);
    if (warp_all(w->lane >= n || mbar_test(w->full + (smem)mine * 8, w->parity ^ (u32)wraps))) {
        warp_sync(); /* a vote orders nothing */
        return;
    }
    if (w->lane == 0) {
        int slot = from;
        u32 parity = w->parity;
        if (first > 0 && slot >= RING_SLOTS) slot -= RING_SLOTS, parity ^= 1;
        NO_UNROLL
        for (int i = 0; i < n; i++) {
            mbar_wait(w, w->full + (smem)slot * 8, parity, WAIT_WEIGHTS);
            if (++slot == RING_SLOTS) slot = 0, parity ^= 1;
        }
    }
    warp_sync();
    lanes_agree(w);
}

/* This warp's next n tiles of the phase at hand into registers, as they lie; gives the slots back. n is a
 * multiple of P_SLOT_TILES, or what is left of the phase. */
DEV void tiles_take(struct worker *w, struct quad *t, int n, const int format) {
    const int slots = (n + P_SLOT_TILES - 1) / P_SLOT_TILES;
    int mine = w->slot + w->lane; /* lane i gives back slot i */
    if (mine >= RING_SLOTS) mine -= RING_SLOTS;
    u32 seen = 0;
    slots_wait(w, 0, slots);
    UNROLL
    for (int i = 0; i < n; i++) {
        t[i] = *(const struct quad *)slot_tile(w, i % P_SLOT_TILES, format);
        seen ^= t[i].w;
        if (i % P_SLOT_TILES == P_SLOT_TILES - 1 || i == n - 1) slot_next(w);
    }
    warp_sync();
    if (w->lane < slots) mbar_arrive_after(w, w->empty + (smem)mine * 8, seen);
}

/* ---- the producer ---- */

struct weight_stream {
    const u8 *src;
    smem ring, full, empty;
    int slot, old;               /* next to fill; oldest in flight */
    u32 fill_parity, old_parity; /* of the lap before at slot; of the lap in flight at old */
    int flying, cap, first_lap;
};

/* What may change between two lanes' looks: the first lane's. */
DEV int fill_same(u32 v) { return (int)(FILL_LANES == 1 ? v : shuffle(v, 0)); }

DEV void stream_start(const struct worker *w, struct weight_stream *p) {
    p->ring = smem_of(w->ring), p->full = w->full, p->empty = w->empty;
    p->slot = p->old = p->flying = 0;
    p->fill_parity = p->old_parity = 0, p->first_lap = 1;
}

/* The producer leaves with nothing in flight. */
DEV void stream_drain(struct weight_stream *p) {
    for (; p->flying > 0; p->flying--) {
        copy_wait(p->full + (smem)p->old * 8, p->old_parity);
        if (++p->old == RING_SLOTS) p->old = 0, p->old_parity ^= 1;
    }
}

/* Waits for a barrier; 0: the launch is over, stop. */
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

DEV int stream_slot(struct worker *w, struct weight_stream *p, u32 bytes) {
    while (p->flying >= p->cap) { /* more than one turn where the cap has fallen */
        if (!stream_wait(w, p->full + (smem)p->old * 8, p->old_parity)) return 0;
        if (++p->old == RING_SLOTS) p->old = 0, p->old_parity ^= 1;
        p->flying--;
    }
    if (!p->first_lap && !stream_wait(w, p->empty + (smem)p->slot * 8, p->fill_parity)) return 0;
    ring_fill(p->ring + (smem)p->slot * P_SLOT_BYTES, p->src, bytes, p->full + (smem)p->slot * 8);
    p->src += bytes;
    p->flying++;
    if (++p->slot == RING_SLOTS) p->slot = 0, p->fill_parity ^= (u32)!p->first_lap, p->first_lap = 0;
    return 1;
}

/* A phase's segment, of `fill` bytes a slot: whole slots and a rest. */
DEV int stream_segment(struct worker *w, struct weight_stream *p, u32 bytes, u32 fill) {
    const smem cap = smem_of(&w->s->cap);
    NO_UNROLL
    for (u32 i = 0; i < bytes / fill; i++) {
        p->cap = fill_same(shared_load(cap));
        if (!stream_slot(w, p, fill)) return 0;
    }
    if (bytes % fill == 0) return 1;
    p->cap = fill_same(shared_load(cap));
    return stream_slot(w, p, bytes % fill);
}
#define STREAM_SEGMENT(w, p, S) stream_segment(w, p, P_##S##_BYTES, slot_fill(P_##S##_FORMAT))

DEV int stream_head(struct worker *w, struct weight_stream *p, int strips) {
    const u32 tile = tile_bytes(P_HEAD_FORMAT), fill = slot_fill(P_HEAD_FORMAT);
    NO_UNROLL
    for (; strips > 0; strips -= P_WARPS) {
        const u32 row = strips < P_WARPS ? (u32)strips * P_HEAD_UNIT * tile : P_WARPS * P_HEAD_UNIT * tile;
        NO_UNROLL
        for (int q = 0; q < HEAD_UNITS; q++) {
            u32 left = row;
            NO_UNROLL
            for (int i = 0; i < HEAD_ROW_SLOTS; i++) {
                const u32 bytes = left < fill ? left : fill;
                if (!stream_slot(w, p, bytes)) return 0;
                left -= bytes;
            }
        }
    }
    return 1;
}

/* While a phase streams, no exchange waits behind its bytes: then all may be in flight. */
DEV void stream_freely(struct worker *w, int yes) {
    if (w->warp == 0 && w->lane == 0) shared_store(smem_of(&w->s->cap), (u32)(yes ? w->a->cap_head : w->a->cap_layers));
}

/* A layer's qkv or mix; bytes of the first n layers, which are none or all. */
#if M_DELTA
DEV u32 first_phase_bytes(int layer) { return layer_is_delta(layer) ? P_MIX_BYTES : P_QKV_BYTES; }
DEV u32 first_phase_fill(int layer) { return slot_fill(layer_is_delta(layer) ? P_MIX_FORMAT : P_QKV_FORMAT); }
DEV u64 layers_bytes(int n) { return n ? P_LAYERS_BYTES : 0; }
#else
DEV u32 first_phase_bytes(int layer) { return (void)layer, P_QKV_BYTES; }
DEV u32 first_phase_fill(int layer) { return (void)layer, slot_fill(P_QKV_FORMAT); }
DEV u64 layers_bytes(int n) { return (u64)n * P_LAYER_BYTES; }
#endif

/* Its rate is the latency of its turns (0.48 us for 16 KB at the memory's speed), so everything a turn
 * needs stays in registers. */
DEV void weights_produce(struct worker *w) {
    const struct decode_args *a = w->a;
    const u8 *tape = a->tape + (u64)w->block * P_SM_BYTES;
    const int strips = head_tiles(w);
    const int n_tokens = a->n_tokens, head_from = a->head_from;
    struct weight_stream p;
    stream_start(w, &p);
    if (w->lane >= FILL_LANES) return;
    for (int t = 0, go = 1; t < n_tokens && go; t++) {
        const int first = layers_done(a, t) ? M_LAYERS : 0;
        p.src = tape + layers_bytes(first);
        for (int layer = first; layer < M_LAYERS && go; layer++)
            go = stream_segment(w, &p, first_phase_bytes(layer), first_phase_fill(layer)) &&
                 STREAM_SEGMENT(w, &p, OUT) && STREAM_SEGMENT(w, &p, GATE_UP) && STREAM_SEGMENT(w, &p, DOWN);
        p.cap = a->cap_head;
        if (go && t >= head_from) go = stream_head(w, &p, strips);
    }
    stream_drain(&p);
}

#endif
