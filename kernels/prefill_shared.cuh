/* Reading a prompt: what the kernels of prefill share. A chunk of up to P_PREFILL_TOKENS tokens goes through
 * all layers in one queue of launches, one for each step:
 *
 *   embed, [qkv, rope, attention, out, gate_up, down] x layers, end
 *
 * With several GPUs each takes the heads and columns of its own groups, and a join follows out and down.
 *
 * A layer that is a Gated DeltaNet has mix, conv, chunk, chain, answer in place of what stands before out.
 *
 * A launch has as many blocks as the GPU has SMs. In a block READ_WARPS consumer warps compute, and one producer warp
 * brings what they read from shared memory. It does so through a ring of stages (docs/GLOSSARY.md). A block may load
 * weights and ids while the launch before it still runs. What that launch made may be loaded only after
 * previous_over. */
#ifndef REEL_KERNELS_PREFILL_SHARED_CUH
#define REEL_KERNELS_PREFILL_SHARED_CUH

#include "mma.cuh"
#include "prefill_layout.h"
#include "shared.cuh"

#define READ_MOVES REGISTERS_MOVE(G_WGMMA, G_REGISTERS, M_HEAD_DIM)

enum {
    READ_CONSUMERS = READ_WARPS * LANES,
    READ_THREADS = READ_BLOCK_THREADS(READ_MOVES),
    TAIL_TOKENS = G_WGMMA ? ATOM_TOKENS : 0, /* more that the last item of a row may have: prefill_items.cuh */
    STAGE_COPIES = 2, /* calls of ring_fill that fill a stage: always this many, empty ones too */
    READ_BARRIER = 1, /* of all consumers */
    HALF_BARRIER = 2  /* of the first 4 consumer warps; + 1: of the other 4 */
};
#define NO_PLACE 0xffffffffu

/* Widths of activations, in columns. */
enum {
    X_COLUMNS = P_QKV_K_TILES * TILE_K,
    X_BLOCKS = (X_COLUMNS + ATOM_COLUMNS - 1) / ATOM_COLUMNS,
    X_LOW_COLUMN = X_BLOCKS * ATOM_COLUMNS, /* the first column of what rounding to bf16 left over */
    ATTENTION_COLUMNS = GPU_GROUPS * P_OUT_K_TILES * TILE_K,
    GATED_COLUMNS = GPU_GROUPS * P_DOWN_K_TILES * TILE_K,
    QKV_COLUMNS = (GPU_HEADS * (1 + M_GATED) + 2 * GPU_KV_HEADS) * M_HEAD_DIM, /* q, gates, k, v */
#if M_DELTA
    CHANNELS = 2 * GPU_KEY_HEADS * M_KEY_DIM + GPU_VALUE_HEADS * M_VALUE_DIM, /* of a convolution: q, k, v */
    MIX_COLUMNS = CHANNELS + GPU_VALUE_HEADS * M_VALUE_DIM,                   /* and z */
    MIX_WIDTH = MIX_COLUMNS + CHANNELS, /* of a token's row: rounded values; what rounding left over, but not of z */
#endif
    SSQ_SLOTS = P_GROUP_SMS * P_OUT_ROW_TILES /* the most sums of squares that a token has: ssq_slots */
};

/* prefill_shared_bytes (prefill_layout.h) counts the same parts. */
struct ALIGN(16) prefill_shared {
    float exchange[EXCHANGE_FLOATS]; /* partial sums between the two halves of the warps; or the stages' tails */
    float scale[2][READ_TOKENS];     /* scales of the norm, for the tokens of this item and of the next */
    float ssq[READ_WARPS][READ_TOKENS];
    u32 k_place[P_PREFILL_K_PLACES]; /* where the k tiles of a row lie: prefill_product.cuh */
    u64 full[P_PREFILL_STAGES], empty[P_PREFILL_STAGES];
};

enum { PREFILL_BYTES = P_PREFILL_STAGES * STAGE_BYTES + (int)sizeof(struct prefill_shared) + STAGE_ALIGN };
#if P_PREFILL_STAGES * 2048 > 16384
#error "the stages' tails have no room"
#endif
/* What one thread of prefill knows. */
struct prompt_worker {
    struct worker w; /* warp, lane, block, a, token, layer, dead: what waiting needs */
    const struct prefill_args *a;
    struct prefill_shared *s;
    u8 *stages; /* [n_stages][STAGE_BYTES], on 1,024 bytes */
    int n_stages;
    int n_tokens;
    int k_tiles; /* of the product at hand, for those who make its items */
    int stage;   /* the next one that a consumer takes or the producer fills */
    u32 parity;
    int first_lap; /* the producer's: 1 while it fills stages for the first time */
};

/* Hides from the compiler where the lane's number comes from. So the compiler makes nothing of that number before
 * this call, where it would hold registers (as worker_anew does). */
DEV void prompt_worker_anew(struct prompt_worker *r) { r->w.lane = opaque(r->w.lane) & (LANES - 1); }

/* Fills a thread's prompt_worker. n_stages counts the stages of the ring, which lies before struct prefill_shared; 0
 * means that there is no ring. */
DEV void prompt_worker_make(struct prompt_worker *r, const struct prefill_args *a, int layer, int n_stages) {
    u8 *base = shared_base();
    base += (STAGE_ALIGN - smem_of(base) % STAGE_ALIGN) % STAGE_ALIGN;
    r->a = a, r->w.a = &a->decode;
    r->stages = base, r->s = (struct prefill_shared *)(base + n_stages * STAGE_BYTES);
    /* out of a shuffle: the compiler knows then that all lanes of a warp go the same way */
    r->w.warp = (int)shuffle(thread_index() / LANES, 0), r->w.lane = (int)(thread_index() % LANES);
    r->w.block = (int)shuffle(block_index(), 0);
    r->w.token = 0, r->w.layer = layer, r->w.dead = 0;
    r->w.zero = a->decode.patience >> 31;
    r->n_tokens = a->decode.n_tokens;
    r->n_stages = n_stages;
    r->stage = 0, r->parity = 0, r->first_lap = 1;
}

/* With several GPUs the others need more than 40, since wait_over does. */
#if G_WGMMA
#define READERS_TAKE() REGISTERS_TAKE(P_GPUS > 1 ? 224 : 232)
#define READERS_GIVE() REGISTERS_GIVE(P_GPUS > 1 ? 56 : 40)
#else
#define READERS_TAKE() ((void)0)
#define READERS_GIVE() ((void)0)
#endif
#if READ_MOVES && !G_WGMMA
#define ATTENTION_TAKE() REGISTERS_TAKE(224)
#define ATTENTION_GIVE() REGISTERS_GIVE(56)
#else
#define ATTENTION_TAKE() READERS_TAKE()
#define ATTENTION_GIVE() READERS_GIVE()
#endif

/* All threads: makes the prompt_worker and readies the barriers of the ring. */
DEV void prompt_worker_start(struct prompt_worker *r, const struct prefill_args *a, int layer, int n_stages) {
    next_may_start();
    prompt_worker_make(r, a, layer, n_stages);
    if (thread_index() == 0) {
        for (int i = 0; i < n_stages; i++)
            mbar_init(&r->s->full[i], STAGE_COPIES * FILL_LANES), mbar_init(&r->s->empty[i], READ_WARPS);
        mbar_init_done();
    }
    block_sync();
}

DEV void readers_sync(void) { barrier_wait(READ_BARRIER, READ_CONSUMERS); }

/* ---- stages ---- */

DEV void stage_next(struct prompt_worker *r) {
    if (++r->stage == r->n_stages) r->stage = 0, r->parity ^= 1, r->first_lap = 0;
}

/* A consumer warp waits until the next stage is full. Every consumer warp takes every stage and gives it back once. */
DEV void stage_wait(struct prompt_worker *r) {
    if (r->w.lane == 0) mbar_wait(&r->w, smem_of(&r->s->full[r->stage]), r->parity, WAIT_STAGE);
    warp_sync();
}
DEV const u8 *stage_take(struct prompt_worker *r) {
    stage_wait(r);
    return r->stages + (size_t)r->stage * STAGE_BYTES;
}
/* A consumer warp gives its stage back. seen: a value that depends on all that this lane loaded from the stage (see
 * mbar_arrive_after). */
DEV void stage_give(struct prompt_worker *r, u32 seen) {
    warp_sync();
    if (r->w.lane == 0) mbar_arrive_after(&r->w, smem_of(&r->s->empty[r->stage]), seen);
    stage_next(r);
}

/* Where the stage's tail lies: two atoms, of 64 columns each, of the tokens beyond the item's first 128. Each stage has
 * 2 atoms in the exchange area, on 1,024 bytes, where other products keep partial sums. */
DEV smem stage_tail(const struct prompt_worker *r) {
    return smem_of(r->s->exchange) + (u32)(r->stage * 2 * ATOM_BYTES);
}

struct tails {
    const u8 *first, *second;
    u32 bytes; /* of each; may be 0 */
};

/* The producer's FILL_LANES lanes wait until the next stage is free. Returns where it lies. It is not to be filled when
 * the worker is dead. */
DEV smem stage_free(struct prompt_worker *r) {
    if (!r->first_lap) {
        const smem full = smem_of(&r->s->full[r->stage]);
        u32 polls = 0;
        while (!mbar_test(smem_of(&r->s->empty[r->stage]), r->parity ^ 1) && !r->w.dead)
            if (++polls % POLLS_A_LOOK == 0) r->w.dead = WAIT_OVER(&r->w, WAIT_ROOM, polls, r->parity, full);
        if (FILL_LANES > 1) lanes_agree(&r->w);
    }
    return smem_of(r->stages) + (u32)r->stage * STAGE_BYTES;
}

/* The producer's FILL_LANES lanes fill the next stage, when it is free, with two runs of bytes, either perhaps empty,
 * and fill its tail. */
DEV void stage_fill_all(struct prompt_worker *r, const u8 *first, u32 first_bytes, const u8 *second, u32 second_bytes,
                        u32 second_at, const struct tails *tails) {
    const smem full = smem_of(&r->s->full[r->stage]), to = stage_free(r);
    if (r->w.dead) return;
    if (TAIL_TOKENS && tails->bytes) {
        ring_add(stage_tail(r), tails->first, tails->bytes, full);
        ring_add(stage_tail(r) + ATOM_BYTES, tails->second, tails->bytes, full);
    }
    ring_fill(to, first, first_bytes, full);
    ring_fill(to + second_at, second, second_bytes, full);
    stage_next(r);
}
DEV void stage_fill(struct prompt_worker *r, const u8 *first, u32 first_bytes, const u8 *second, u32 second_bytes,
                    u32 second_at) {
    const struct tails none = { 0, 0, 0 };
    stage_fill_all(r, first, first_bytes, second, second_bytes, second_at, &none);
}

/* The producer waits for all copies that it started. A launch that gave up may have copies on their way to a stage
 * that no consumer waits for, and the block must not end before they land. */
DEV void stages_drain(struct prompt_worker *r) {
    if (r->w.lane) return;
    for (int i = 0; i < r->n_stages; i++) {
        const int lap_before = i >= r->stage; /* slots from `stage` on were last filled a lap ago */
        if (lap_before && r->first_lap) continue;
        copy_wait(smem_of(&r->s->full[i]), lap_before ? r->parity ^ 1 : r->parity);
    }
}

/* ---- activations ---- */

/* How many sums of squares each token has: one for every row tile where out and down are thin (split_k 8) and complete,
 * otherwise one for every four row tiles. */
DEV int ssq_slots(const struct prompt_worker *r) {
    return P_GPUS == 1 && r->a->cut[TAPE_OUT].split_k == 8 ? SSQ_SLOTS : (SSQ_SLOTS + 3) / 4;
}

/* Stores a pair of bf16 as columns `column` (even) and the next one of a token. */
DEV void activation_store(const struct prompt_worker *r, u8 *to, int token, int column, u32 pair) {
    plain_store32((u32 *)(to + activation_at(r->a->room, token, column)), pair);
}

/* pair is (low, high) rounded to bf16. Returns what that rounding left over, as bf16 again. */
DEV u32 bf16_rest(u32 pair, float low, float high) { return bf16_pair(low - bf16_low(pair), high - bf16_high(pair)); }

#endif
