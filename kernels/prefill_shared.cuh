/* Reading a prompt: what the phases of the prefill kernel share. One launch takes up to
 * P_PREFILL_TOKENS tokens through all layers, phase by phase, with every block at a phase together:
 *
 *   embed, [qkv, rope, attention, out, gate_up, down] x layers
 *
 * Between two phases all blocks meet (phase_end, phase_wait): what one has stored the others may then
 * read. READ_WARPS consumers compute; one producer warp brings what they read from shared memory through
 * a ring of stages, which it fills as soon as the phase before is over everywhere. */
#ifndef REEL_KERNELS_PREFILL_SHARED_CUH
#define REEL_KERNELS_PREFILL_SHARED_CUH

#include "prefill_args.h"
#include "shared.cuh"

enum {
    READ_WARPS = 8,
    READ_CONSUMERS = READ_WARPS * LANES,
    READ_THREADS = READ_CONSUMERS + (G_WGMMA ? 4 : 1) * LANES, /* registers move between warpgroups */
    STAGE_BYTES = 32768,
    STAGE_COPIES = 2, /* calls of ring_fill that fill a stage: always this many, empty ones too */
    READ_TOKENS = 128, /* of an item of a product at most */
    READ_BARRIER = 1,  /* of all consumers */
    HALF_BARRIER = 2,  /* and + 1: of 4 warps each */
    EXCHANGE_FLOATS = 2 * 64 * 32
};

/* Widths of activations, in columns. */
enum {
    X_COLUMNS = P_QKV_K_TILES * TILE_K,
    ATTENTION_COLUMNS = P_GROUPS * P_OUT_K_TILES * TILE_K,
    GATED_COLUMNS = P_GROUPS * P_DOWN_K_TILES * TILE_K,
    QKV_COLUMNS = (M_HEADS + 2 * M_KV_HEADS) * M_HEAD_DIM
};

struct ALIGN(16) prefill_shared {
    float exchange[EXCHANGE_FLOATS]; /* partial sums between the two halves of the warps */
    float scale[2][READ_TOKENS];     /* of the norm, for the tokens of this item and of the next */
    float ssq[READ_WARPS][READ_TOKENS];
    u64 full[P_PREFILL_STAGES], empty[P_PREFILL_STAGES];
};

enum { PREFILL_BYTES = P_PREFILL_STAGES * STAGE_BYTES + (int)sizeof(struct prefill_shared) };
#if defined(REEL_SIM)
_Static_assert(PREFILL_BYTES + 1024 <= P_PREFILL_SHARED, "the plan gives less shared memory than prefill needs");
#else
static_assert(PREFILL_BYTES + 1024 <= P_PREFILL_SHARED, "the plan gives less shared memory than prefill needs");
#endif

/* One thread's view. */
struct reader {
    struct worker w; /* warp, lane, block, a, token, layer, dead: what waiting needs */
    const struct prefill_args *a;
    struct prefill_shared *s;
    u8 *stages;   /* [P_PREFILL_STAGES][STAGE_BYTES], on 1,024 bytes */
    int stage;    /* the next one to take, or to fill */
    u32 parity;
    int first_lap; /* the producer's */
    u32 phases;   /* that are over */
};

/* ---- phases ---- */

DEV void readers_sync(void) { barrier_wait(READ_BARRIER, READ_CONSUMERS); }

/* All consumers, after their last store of a phase. */
DEV void phase_end(struct reader *r) {
    fence_copies(); /* stores come before copies that others make of them */
    readers_sync();
    if (r->w.warp == 0 && r->w.lane == 0) {
        fence_gpu();
        plain_add32(r->a->arrived, 1);
    }
    r->phases++;
}

/* One lane: until all blocks have ended as many phases as this one has. */
DEV void phase_poll(struct reader *r) {
    const u32 want = r->phases * block_count();
    u32 polls = 0;
    while ((int)(plain_load32(r->a->arrived) - want) < 0 && !r->w.dead)
        if (++polls % POLLS_A_LOOK == 0)
            r->w.dead = wait_over(r->w.a, WAIT_PHASE, polls, want, plain_load32(r->a->arrived), r->w.token, r->w.layer);
    fence_gpu();
    fence_copies();
}

/* All consumers, before they read what the phase before made. */
DEV void phase_wait(struct reader *r) {
    if (r->w.warp == 0 && r->w.lane == 0) phase_poll(r);
    readers_sync();
}

/* The producer warp. */
DEV void phase_follow(struct reader *r) {
    r->phases++;
    if (r->w.lane == 0) phase_poll(r);
    warp_sync();
    lanes_agree(&r->w);
}

/* ---- stages ---- */

DEV void stage_next(struct reader *r) {
    if (++r->stage == P_PREFILL_STAGES) r->stage = 0, r->parity ^= 1, r->first_lap = 0;
}

/* A consumer warp: the next stage, when it is full. Every warp takes every stage and gives it back once. */
DEV const u8 *stage_take(struct reader *r) {
    if (r->w.lane == 0) mbar_wait(&r->w, smem_of(&r->s->full[r->stage]), r->parity, WAIT_STAGE);
    warp_sync();
    return r->stages + (size_t)r->stage * STAGE_BYTES;
}
/* seen: something that depends on all this lane loaded from it (see mbar_arrive_after). */
DEV void stage_give(struct reader *r, u32 seen) {
    warp_sync();
    if (r->w.lane == 0) mbar_arrive_after(&r->w, smem_of(&r->s->empty[r->stage]), seen);
    stage_next(r);
}

/* The producer's FILL_LANES lanes: fills the next stage with two pieces (bytes may be 0). */
DEV void stage_fill(struct reader *r, const u8 *first, u32 first_bytes, const u8 *second, u32 second_bytes,
                    u32 second_at) {
    const smem full = smem_of(&r->s->full[r->stage]), to = smem_of(r->stages) + (u32)r->stage * STAGE_BYTES;
    if (!r->first_lap) {
        u32 polls = 0;
        while (!mbar_test(smem_of(&r->s->empty[r->stage]), r->parity ^ 1) && !r->w.dead)
            if (++polls % POLLS_A_LOOK == 0)
                r->w.dead = wait_over(r->w.a, WAIT_ROOM, polls, r->parity, full, r->w.token, r->w.layer);
        if (FILL_LANES > 1) lanes_agree(&r->w);
    }
    if (r->w.dead) return;
    ring_fill(to, first, first_bytes, full);
    ring_fill(to + second_at, second, second_bytes, full);
    stage_next(r);
}

/* ---- activations ---- */

/* The two columns from `column` (even) on, as a pair of bf16. */
DEV void activation_store(u8 *to, int token, int column, u32 pair) {
    plain_store32((u32 *)(to + activation_at(P_PREFILL_TOKENS, token, column)), pair);
}

#endif
