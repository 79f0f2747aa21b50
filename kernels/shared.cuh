/* A block's shared memory, what a warp carries along, and bounded waiting.
 *
 * Warps of a block: P_WARPS consumers walk the phases and split k between them; P_EPILOGUE_WARPS sum
 * the consumers' partial products, scale and publish; then one warp each brings weights and K/V
 * through their rings. */
#ifndef REEL_KERNELS_SHARED_CUH
#define REEL_KERNELS_SHARED_CUH

#include "sync.cuh"

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

/* Where the second half of a normed vector begins: what rounding to bf16 left over, bf16 again. */
enum { X_LOW = P_HEAD_K_TILES * 8 };

/* Partial products of one phase: [row][k part], rows padded so that 8 lanes reading 16 bytes each of
 * consecutive rows meet all banks. */
#define PART_STRIDE(k_parts) (((((k_parts) + 3) / 4) | 1) * 4)
#define PART_FLOATS(S)       (P_##S##_ROW_TILES * TILE_ROWS * PART_STRIDE(P_##S##_K_PARTS))
#define MAX(a, b)            ((a) > (b) ? (a) : (b))
enum {
    OWN_ROWS = P_HEAD_ROW_TILES * TILE_ROWS, /* of the head; see kept_keys */
    LAYER_PARTS = MAX(MAX(PART_FLOATS(QKV), PART_FLOATS(OUT)), MAX(PART_FLOATS(GATE_UP), PART_FLOATS(DOWN))),
    PARTS = MAX(LAYER_PARTS, OWN_ROWS / 2),
    ATTENTION_WORDS = P_OUT_K_PARTS * P_OUT_WARP_K * 8 /* the group's q rows in pairs, padded */
};

#include "phase_attention_shared.cuh" /* struct attention_shared */
#include "phase_pick_shared.cuh"      /* struct pick_shared */

struct ALIGN(16) block_shared {
    float part[2][PARTS];
    float ssq[2][PART_STRIDE(P_WARPS)]; /* of each warp's slice of h; head: [0] */
    u32 x[2 * X_LOW];                   /* a norm's result as B fragments: [k tile][lane % 4][k, k + 8]; see fragments */
    u32 attention[ATTENTION_WORDS];     /* attention's result, bf16 pairs */
    u32 best_key[P_WARPS], best_id[P_WARPS];
    u32 id;          /* the next token's id, written by pick */
    u32 end;         /* enum decode_end: not 0 = the launch is over; read after a consumer barrier */
    u32 tokens_over; /* tokens that are over in all blocks: their K/V rows can be fetched */
    u32 cap;         /* weight slots in flight in the layers, at this moment */
    u32 stop;        /* block 0: what its epilogue saw in mailbox->stop */
    u32 taken;       /* block 0: and in mailbox->taken */
    u64 full[P_RING_SLOTS], empty[P_RING_SLOTS];
    u64 kv_full[P_KV_SLOTS], kv_empty[P_KV_SLOTS];
    struct attention_shared at;
    struct pick_shared pick;
};

enum {
    RING_BYTES = P_RING_SLOTS * P_SLOT_BYTES,
    KV_RING_BYTES = P_KV_SLOTS * P_KV_PIECE,
    SHARED_BYTES = RING_BYTES + KV_RING_BYTES + (int)sizeof(struct block_shared)
};
#if defined(REEL_SIM)
_Static_assert(SHARED_BYTES <= P_SHARED_BYTES, "the plan gives less shared memory than the kernel needs");
#else
static_assert(SHARED_BYTES <= P_SHARED_BYTES, "the plan gives less shared memory than the kernel needs");
#endif

/* The order keys of a block's logits after bias and penalties, for the sampler: u32 [OWN_ROWS], 0 where
 * there is no number. Row i of a block is row i % 16 of its (i / 16)-th tile of the head. They lie where
 * the layers' partial sums did, of which the epilogue has read the last before any block could have passed
 * the head's input. */
DEV u32 *kept_keys(struct block_shared *s) { return (u32 *)s->part[0]; }

/* One thread's view. Everything but `lane` is the same in all lanes of a warp. */
struct worker {
    const struct decode_args *a;
    struct block_shared *s;
    u8 *ring;     /* [P_RING_SLOTS][P_SLOT_BYTES] */
    u8 *kv_ring;  /* [P_KV_SLOTS][P_KV_PIECE] */
    int warp, lane;
    int block, group, member; /* block = group * P_GROUP_SMS + member */
    smem full, empty;         /* of ring slot 0 */
    int slot;                 /* consumers: the next ring slot */
    u32 parity;
    int parts;                /* phases so far, modulo PART_BARRIERS */
    u32 epoch;                /* of the exchange at hand */
    int kv_turn;              /* attention warps: the next slot of theirs, */
    u32 kv_laps;              /* and for each the parity of its next use */
    float qk_gain[ROPE_TURNS][4]; /* of the q or k row that this warp rotates, loaded a layer ahead */
    int token, layer;         /* for fault reports */
    u32 zero;                 /* 0, which the compiler does not know: see mbar_arrive_after */
    int dead;                 /* a wait gave up somewhere: all waits fall through */
};

/* Before a phase: what it makes of these cannot be made before the loop over layers, where it would
 * hold registers through all phases. */
DEV void worker_anew(struct worker *w) {
    w->lane = opaque(w->lane) & (LANES - 1), w->warp = opaque(w->warp) & 31; /* not negative: shorter divisions */
    w->group = opaque(w->group), w->member = opaque(w->member);
}

/* Token t came with its h: it goes through no layers. */
DEV int layers_done(const struct decode_args *a, int t) { return t == 0 && a->start; }

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
DEV_CALL int wait_over(const struct decode_args *a, enum wait_kind kind, u32 polls, u32 want, u32 have,
                       int token, int layer) {
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
        if (++polls % POLLS_A_LOOK == 0)
            w->dead = wait_over(w->a, kind, polls, parity, bar, w->token, w->layer);
        sleep_ns(20);
    }
}

/* Gives something back once x is there. Loads from shared memory are answered later than they are
 * issued, and an arrival may pass them: without this the next copy, hundreds of cycles later, has been
 * seen to overwrite a tile before a warp had read it. */
DEV void mbar_arrive_after(const struct worker *w, smem bar, u32 x) { mbar_arrive(bar + (x & w->zero)); }

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
