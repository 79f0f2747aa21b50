/* A block's shared memory, what a warp carries along, and bounded waiting.
 *
 * Warps of a block: P_WARPS consumers walk the phases and split k between them; P_EPILOGUE_WARPS sum
 * the consumers' partial products, scale and publish; then one warp each brings weights and K/V
 * through their rings. */
#ifndef REEL_KERNELS_SHARED_CUH
#define REEL_KERNELS_SHARED_CUH

#include "decode_layout.h"
#include "maths.cuh"
#include "memory.cuh"
#include "reduce.cuh"
#include "sync.cuh"

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

#include "phase_attention_shared.cuh" /* ROPE_TURNS */

enum {
    WARP_EPILOGUE = P_WARPS,
    WARP_WEIGHTS = P_WARPS + P_EPILOGUE_WARPS,
    WARP_KV,
    CONSUMER_THREADS = P_WARPS * LANES,
    PART_THREADS = (P_WARPS + P_EPILOGUE_WARPS) * LANES
};

/* Named barriers. A warp polls only its own slice of an exchange, so it may arrive for a phase
 * while the epilogue still waits for the one before: three barriers in rotation keep them apart, a
 * fourth does when a launch is aborted (parts_done). */
enum { BARRIER_PARTS = 1, PART_BARRIERS = 4, BARRIER_CONSUMERS = 5 };

/* Words of h that a consumer warp holds: its k tiles, 8 pairs each, lane by lane. */
enum { SLICE_WORDS = P_QKV_WARP_K * 8, SLICE = (SLICE_WORDS + LANES - 1) / LANES };

/* What a block keeps in shared memory is its program's: decode_shared.cuh, short_shared.cuh. Both have the ring's
 * barriers `full` and `empty`, `cap` and `end`. */
struct block_shared;

/* Slots of the weight ring. */
#if !defined(RING_SLOTS)
#define RING_SLOTS P_RING_SLOTS
#endif

/* Rows of a group's q, gates, k and v; pairs of gate and up rows of an SM. */
#define QKV_GROUP_ROWS (P_GROUP_Q + P_GROUP_GATE + 2 * P_GROUP_KV)
#define GATE_UP_PAIRS  (P_GATE_UP_ROWS / 2)

/* One thread's view. Everything but `lane` is the same in all lanes of a warp. */
struct worker {
    const struct decode_args *a;
    struct block_shared *s;
    u8 *ring;    /* [RING_SLOTS][P_SLOT_BYTES] */
    u8 *kv_ring; /* [P_KV_SLOTS][P_KV_PIECE] */
    int warp, lane;
    int block, group, member; /* block = group * P_GROUP_SMS + member */
    smem full, empty;         /* of ring slot 0 */
    int slot;                 /* consumers: the next ring slot */
    u32 parity;
    int parts;                    /* phases so far, modulo PART_BARRIERS */
    u32 epoch;                    /* of the exchange at hand */
    int kv_turn;                  /* attention warps: the next slot of theirs, */
    u32 kv_laps;                  /* and for each the parity of its next use */
    float qk_gain[ROPE_TURNS][4]; /* of the q or k row that this warp rotates, loaded a layer ahead */
    int token, layer;             /* for fault reports */
    u32 zero;                     /* 0, which the compiler does not know: see mbar_arrive_after */
    int dead;                     /* a wait gave up somewhere: all waits fall through */
};

/* Before a phase: what it makes of these cannot be made before the loop over layers, where it would
 * hold registers through all phases. */
DEV void worker_anew(struct worker *w) {
    w->lane = opaque(w->lane) & (LANES - 1), w->warp = opaque(w->warp) & 31; /* not negative: shorter divisions */
    w->group = opaque(w->group), w->member = opaque(w->member);
}

/* Token t came with its h: it goes through no layers. */
DEV int layers_done(const struct decode_args *a, int t) { return t == 0 && a->start; }

/* The kind of a layer, and how many of each kind are before it. */
DEV int layer_is_delta(int layer) {
#if M_DELTA
    if (M_DELTA == M_LAYERS) return 1;
    if (M_LAYERS > 64 && layer >= 64) return (int)(M_DELTA_HIGH >> (layer - 64) & 1);
    return (int)(M_DELTA_LOW >> layer & 1);
#else
    (void)layer;
    return 0;
#endif
}
#if M_DELTA
DEV int delta_nth(int layer) {
    struct tape_shape s;
    s.delta_layers[0] = M_DELTA_LOW, s.delta_layers[1] = M_DELTA_HIGH;
    return M_DELTA == M_LAYERS ? layer : tape_deltas(&s, layer);
}
DEV int attention_nth(int layer) { return layer - delta_nth(layer); }
#else
DEV int attention_nth(int layer) { return layer; }
#endif

/* Row tiles of the head that this block has. */
DEV int head_tiles(const struct worker *w) {
    struct tape_shape s;
    s.n_sms = P_SMS, s.vocab = M_VOCAB;
    return tape_head_tiles(&s, w->block);
}

/* ---- bounded waiting ---- */

/* Called now and then from a loop that waits, with the number of failed polls so far. Returns 1 when
 * waiting has no point any more; the first block to run out of patience describes what it waited
 * for. A call: its code stands in the way of every wait (Qwen3-1.7B waits at 70 places a layer). */
DEV_CALL int wait_over(const struct decode_args *a, enum wait_kind kind, u32 polls, u32 want, u32 have, int token,
                       int layer) {
    if (polls > a->patience && plain_claim(a->abort, ABORT_CLAIMED) == ABORT_NONE) {
        struct decode_mailbox *m = a->mailbox;
        mapped_store32(&m->fault_wait, (u32)kind);
        mapped_store32(&m->fault_token, (u32)token);
        mapped_store32(&m->fault_layer, (u32)layer);
        mapped_store32(&m->fault_block, block_index());
        mapped_store32(&m->fault_warp, thread_index() / LANES);
        mapped_store32(&m->fault_want, want);
        mapped_store32(&m->fault_have, have);
        fence_system();
        mapped_store32(&m->fault, 1);
        fence_system();
        plain_store32(a->abort, ABORT_LEAVE);
    }
    return plain_load32(a->abort) == ABORT_LEAVE;
}

/* Makes `dead` the same in all lanes. */
DEV void lanes_agree(struct worker *w) { w->dead = warp_ballot(w->dead) != 0; }

/* In a waiting loop of all lanes, after a failed poll: 1 = leave the loop. */
enum { POLLS_A_LOOK = 256 };
DEV int wait_failed(struct worker *w, u32 *polls, enum wait_kind kind, u32 want, u32 have) {
    if (++*polls % POLLS_A_LOOK) return 0;
    w->dead |= wait_over(w->a, kind, *polls, want, have, w->token, w->layer);
    lanes_agree(w);
    return w->dead;
}

/* Waits for a phase of an mbarrier. Called by one lane: many waiting lanes take the producer's issue
 * slots. The other lanes learn of an abort from lanes_agree, before the warp's next parts_done. */
DEV void mbar_wait(struct worker *w, smem bar, u32 parity, enum wait_kind kind) {
    u32 polls = 0;
    NO_UNROLL
    while (!mbar_try(bar, parity) && !w->dead) {
        if (++polls % POLLS_A_LOOK == 0) w->dead = wait_over(w->a, kind, polls, parity, bar, w->token, w->layer);
        sleep_ns(20);
    }
}

/* Gives something back once x is there, which is made of all that this lane has loaded from it. */
DEV void mbar_arrive_after(const struct worker *w, smem bar, u32 x) { mbar_arrive_answered(bar, x & w->zero); }

DEV void consumers_sync(void) { barrier_wait(BARRIER_CONSUMERS, CONSUMER_THREADS); }

/* ---- phases end: partial products handed to the epilogue ---- */

/* A dead warp waits for nothing else any more, so it waits here: were it to run ahead, its arrivals would
 * stand in for others' and the epilogue would wait for ever. */
DEV void parts_done(struct worker *w) {
    if (w->dead)
        barrier_wait(BARRIER_PARTS + w->parts, PART_THREADS);
    else
        barrier_arrive(BARRIER_PARTS + w->parts, PART_THREADS);
    w->parts = w->parts == PART_BARRIERS - 1 ? 0 : w->parts + 1;
}
DEV void parts_wait(struct worker *w) {
    barrier_wait(BARRIER_PARTS + w->parts, PART_THREADS);
    w->parts = w->parts == PART_BARRIERS - 1 ? 0 : w->parts + 1;
}

#endif
