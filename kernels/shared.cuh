/* What the warps of a block share, what each thread carries along, and waits that give up after a bounded number of
 * polls.
 *
 * A block has these warps, in this order. P_WARPS consumers walk through the phases and split k, the columns of the
 * weights, between them, and add up and publish their partial sums. P_EPILOGUE_WARPS warps do what would hold them up
 * (publish.cuh). One producer brings weights through the weight ring, one more brings K and V through the KV ring. */
#ifndef REEL_KERNELS_SHARED_CUH
#define REEL_KERNELS_SHARED_CUH

#if PROMPT_QUEUE
#include "prefill_args.h"
#endif
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

/* Named barriers. A consumer may arrive for the next thing that the epilogue waits for while that still waits for the
 * one before. Three barriers in rotation keep these apart; the fourth keeps them apart when a launch is aborted
 * (parts_done). docs/KERNELS.md, "Partial sums inside a block", says why three. */
enum { BARRIER_PARTS = 1, PART_BARRIERS = 4, BARRIER_CONSUMERS = 5, BARRIER_SLICES = 6, SLICE_BARRIERS = 8 };
STATIC_ASSERT(P_WARPS <= 2 * SLICE_BARRIERS, "a barrier for each slice that two warps or more have");

/* Words of two values that a consumer warp holds of h, the hidden state: its k tiles have 8 words each. SLICE is how
 * many of them one lane holds. */
enum { SLICE_WORDS = P_QKV_WARP_K * 8, SLICE = (SLICE_WORDS + LANES - 1) / LANES };
/* Slices without padding need no looking which of their words exist, which is many instructions. */
#define WHOLE_SLICES (P_QKV_WARP_K % 4 == 0 && P_WARPS * P_QKV_WARP_K * 16 == M_HIDDEN)
#define LONG_SLICES  (P_QKV_WARP_K > 16 && WHOLE_SLICES)

/* Each program says itself what its blocks keep in shared memory: decode_shared.cuh and short_shared.cuh. Both
 * structs have the barriers `full` and `empty` of the weight ring, `caps` and `end`. */
struct block_shared;

/* The phases of a layer that have weights come before the head's in enum tape_phase; but a DeltaNet has mix where other
 * layers have qkv. */
#define LAYER_PHASE(S) (TAPE_##S == TAPE_MIX ? TAPE_QKV : TAPE_##S)
enum { LAYER_PHASES = TAPE_HEAD };

/* Slots of the weight ring. */
#if !defined(RING_SLOTS)
#define RING_SLOTS P_RING_SLOTS
#endif

/* Rows that a group has of q, gates, k and v; pairs of a gate row and an up row that an SM has. */
#define QKV_GROUP_ROWS (P_GROUP_Q + P_GROUP_GATE + 2 * P_GROUP_KV)
#define GATE_UP_PAIRS  (P_GATE_UP_ROWS / 2)

/* Whether a block attends to its columns in stages (columns_stage.cuh). Else it takes one after the other: where all
 * lanes of a warp copy together, where columns follow each other, and where parts of shared memory share their place,
 * which leaves room for the parts of one column. Models with DeltaNets have no stages either, as they attend in few
 * layers and their programs have no registers to spare. */
#define STAGED (P_COLUMNS > 1 && G_COPY == 2 && !P_FOLLOWS && !P_OVERLAID && !M_DELTA)

#if P_FOLLOWS
#define COLUMN_BITS : 8
#else
#define COLUMN_BITS
#endif

/* ---- several GPUs ---- */

/* SMs, groups, heads and KV heads of each GPU; and of Gated DeltaNets, key heads and value heads. */
enum {
    GPU_SMS = P_SMS / P_GPUS,
    GPU_GROUPS = P_GROUPS / P_GPUS,
    GPU_HEADS = M_HEADS / P_GPUS,
#if M_DELTA
    GPU_KEY_HEADS = M_KEY_HEADS / P_GPUS,
    GPU_VALUE_HEADS = M_VALUE_HEADS / P_GPUS,
#endif
    GPU_KV_HEADS = M_KV_HEADS / P_GPUS
};

/* What one thread knows. Everything but `lane` and `qk_gain` is meant to be the same in all lanes of a warp. */
struct worker {
    const struct decode_args *a;
    struct block_shared *s;
    u8 *ring;    /* [RING_SLOTS][P_SLOT_BYTES] */
    u8 *kv_ring; /* [P_KV_SLOTS][P_KV_PIECE] */
    int warp, lane;
    int block, group, member; /* block = group * P_GROUP_SMS + member, of all GPUs */
    smem full, empty;         /* barriers of slot 0 of the weight ring */
    int slot;                 /* consumers: the next slot of the weight ring */
    u32 parity;
    int phase;                    /* consumers: the one at hand, a LAYER_PHASE */
    int parts;                    /* phases so far, modulo PART_BARRIERS */
    u32 epoch;                    /* of the exchange at hand */
    int kv_turn;                  /* attention warps: the next of the warp's own KV slots, */
    u32 kv_laps;                  /* and a bit for each of them, the parity of its next use */
    float qk_gain[ROPE_TURNS][4]; /* norm's gains of the q or k row that this warp rotates, loaded a layer ahead */
    int token, layer;             /* at hand, for fault reports */
    u32 zero;                     /* 0, which the compiler does not know: see mbar_arrive_after */
    int dead;                     /* a wait gave up somewhere: this thread polls no more */
#if P_COLUMNS > 1
    const struct columns_args *all;
    int column; /* the one at hand: `a` is what the launch says of it */
    /* These have a bit for each column. Where columns may follow others they take one register together. */
    u32 running COLUMN_BITS; /* it is not over, and does not wait for the host */
    u32 splits COLUMN_BITS;  /* its attention is split over the group */
    u32 attends COLUMN_BITS; /* this block takes part in its attention, */
#if P_FOLLOWS
    u32 needs COLUMN_BITS; /* or needs its k and v, as it attends to a column that follows it (args.h) */
#endif
#if STAGED
    int part, part_at; /* the part of the column that this warp makes, and where its result lies among a stage's */
#else
    int o_turn; /* which buffer has the warps' partial attention */
#endif
#endif
};

/* The first of a layer's rows of K and V that the group has in a page (kv_layout.h). nth: of the layer among those that
 * attend. A GPU keeps its own groups' heads. */
DEV int kv_row(const struct worker *w, int nth) {
    return nth * GPU_KV_HEADS + (P_GPUS > 1 ? w->group % GPU_GROUPS : w->group) * P_GROUP_KV_HEADS;
}

/* With several GPUs each block's shared memory begins with what a launch knows of the others: kept in registers, it
 * would push others out through all phases. */
struct gpu_shared {
    const struct gpu_args *gpus;
    long long peers[ARGS_MOST_GPUS - 1]; /* as in gpu_args */
};
DEV const struct gpu_shared *gpus_of(const struct block_shared *s) { return (const struct gpu_shared *)s; }

/* A launch of a prompt's queue (the program says PROMPT_QUEUE 1) is told in its arguments, whose first member `a`
 * is. */
#if PROMPT_QUEUE && P_GPUS > 1
DEV const struct gpu_args *gpus_told(const struct worker *w) { return &((const struct prefill_args *)w->a)->gpus; }
#else
DEV const struct gpu_args *gpus_told(const struct worker *w) { return gpus_of(w->s)->gpus; }
#endif

/* All threads of a block that has cleared its shared memory call it, before anything waits. */
DEV void gpus_keep(struct block_shared *s, const struct gpu_args *gpus) {
    struct gpu_shared *to = (struct gpu_shared *)s;
    if (thread_index() == 0) {
        to->gpus = gpus;
        for (int i = 0; i < ARGS_MOST_GPUS - 1; i++)
            to->peers[i] = gpus->peers[i];
    }
    block_sync();
}

/* Stores a word that SMs of all GPUs wait for. `to` is its place on this one. */
DEV void word_tell(const struct worker *w, u64 *to, u64 word) {
    word_store(to, word);
#if P_GPUS > 1
    UNROLL
    for (int i = 0; i < P_GPUS - 1; i++)
        peer_store((u64 *)((u8 *)to + gpus_of(w->s)->peers[i]), word);
#else
    (void)w;
#endif
}

/* Stores a word that SMs of one GPU wait for. `to` is its place on this one. */
DEV void word_give(const struct worker *w, int gpu, u64 *to, u64 word) {
#if P_GPUS > 1
    const int own = w->group / GPU_GROUPS, nth = gpu < own ? gpu : gpu - 1;
    peer_store((u64 *)((u8 *)to + (gpu == own ? 0 : gpus_of(w->s)->peers[nth])), word);
#else
    (void)w, (void)gpu, word_store(to, word);
#endif
}

/* Where an SM's tape would begin if all GPUs' tapes lay one behind the other from here. */
DEV const u8 *tape_from(const struct worker *w, const struct decode_args *a, int sm) {
#if P_GPUS > 1
    return (void)a, gpus_told(w)->tape[sm / GPU_SMS];
#else
    return (void)w, (void)sm, a->tape;
#endif
}

/* Called before a phase. It hides from the compiler where these numbers come from: what a phase computes from them
 * would otherwise be computed before the loop over layers and would hold registers through all phases. */
DEV void worker_anew(struct worker *w) {
    w->lane = opaque(w->lane) & (LANES - 1), w->warp = opaque(w->warp) & 31; /* not negative: shorter divisions */
    w->group = opaque(w->group), w->member = opaque(w->member);
}

/* Whether token t came with what the layers made of it, so that it goes through no layer. */
DEV int layers_done(const struct decode_args *a, int t) { return t == 0 && a->start; }

/* Whether a layer is a Gated DeltaNet. Below: how many layers of each kind are before it. */
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

#if M_QKV_BIAS
#if M_QK_NORM || M_GATED
#error "no model has biases of q, k and v beside norms or gates"
#endif
/* Loads the bias of a row, counted through the model's rows of q, k and v, of a layer and a token of the launch. The
 * caller asks for it as early as it can: biases come from memory, behind the weights' stream. */
DEV float qkv_bias_load(const struct decode_args *a, int layer, int token, int row) {
    enum { ROWS = (M_HEADS + 2 * M_KV_HEADS) * M_HEAD_DIM };
    return const_loadf(a->qkv_vectors + (size_t)(M_GIVEN_BIASES ? token : attention_nth(layer)) * ROWS + row);
}
/* Returns that number of a group's row `at`. The group has its rows of q, then of k, then of v. */
DEV int qkv_model_row(int group, int at) {
    const int kv = at - P_GROUP_Q;
    if (kv < 0) return group * P_GROUP_Q + at;
    return (M_HEADS + kv / P_GROUP_KV * M_KV_HEADS) * M_HEAD_DIM + group * P_GROUP_KV + kv % P_GROUP_KV;
}
#endif

/* The biases of two neighbouring tokens for a row of q, k or v. They are the same where biases belong to layers. */
struct row_biases {
    float low, high;
};
/* Rounds the values of both for the row to bf16, with their biases where the model has biases. */
DEV u32 biased_pair(float low, float high, struct row_biases bias) {
    return M_QKV_BIAS ? bf16_pair(low + bias.low, high + bias.high) : bf16_pair(low, high);
}

/* How many row tiles of the head this block has. */
DEV int head_tiles(const struct worker *w) {
    struct tape_shape s;
    s.n_sms = P_SMS, s.vocab = M_VOCAB;
    return tape_head_tiles(&s, w->block);
}

/* ---- bounded waiting ---- */

/* A loop that waits calls this now and then, with the number of failed polls so far. Returns 1 when waiting has no
 * point any more. The first block that runs out of patience describes in the mailbox what it waited for. The function
 * is not inlined, because its code would stand in the way of every wait (Qwen3-1.7B waits at 70 places a layer). */
#if P_GPUS > 1
#define ABORT_CLAIM gpus->abort[0]
#define WAIT_OVER(w, kind, polls, want, have)                                                                          \
    wait_over((w)->a, gpus_told(w), kind, polls, want, have, (w)->token, (w)->layer)
DEV_CALL int wait_over(const struct decode_args *a, const struct gpu_args *gpus, enum wait_kind kind, u32 polls,
                       u32 want, u32 have, int token, int layer) {
#else
#define ABORT_CLAIM                           a->abort
#define WAIT_OVER(w, kind, polls, want, have) wait_over((w)->a, kind, polls, want, have, (w)->token, (w)->layer)
DEV_CALL int wait_over(const struct decode_args *a, enum wait_kind kind, u32 polls, u32 want, u32 have, int token,
                       int layer) {
#endif
    if (polls > a->patience && plain_claim(ABORT_CLAIM, ABORT_CLAIMED) == ABORT_NONE) {
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
#if P_GPUS > 1
        UNROLL /* a loop takes more registers than the producer has: ptxas would ignore setmaxnreg */
        for (int g = 0; g < P_GPUS; g++)
            peer_store32(gpus->abort[g], ABORT_LEAVE);
#else
        plain_store32(a->abort, ABORT_LEAVE);
#endif
    }
    return plain_load32(a->abort) == ABORT_LEAVE;
}

/* Makes `dead` the same in all lanes. */
DEV void lanes_agree(struct worker *w) { w->dead = warp_ballot(w->dead) != 0; }

/* All lanes of a warp that waits call this after a failed poll. Returns 1 when they must leave the loop. */
enum { POLLS_A_LOOK = 256 };
DEV int wait_failed(struct worker *w, u32 *polls, enum wait_kind kind, u32 want, u32 have) {
    if (++*polls % POLLS_A_LOOK) return 0;
    w->dead |= WAIT_OVER(w, kind, *polls, want, have);
    lanes_agree(w);
    return w->dead;
}

/* Waits for the phase of this parity of an mbarrier. One lane calls it, because many waiting lanes would take the
 * producer's issue slots. The other lanes learn of an abort from lanes_agree, before the warp's next parts_done. */
DEV void mbar_wait(struct worker *w, smem bar, u32 parity, enum wait_kind kind) {
    u32 polls = 0;
    NO_UNROLL
    while (!mbar_try(bar, parity) && !w->dead) {
        if (++polls % POLLS_A_LOOK == 0) w->dead = WAIT_OVER(w, kind, polls, parity, bar);
        sleep_ns(20);
    }
}

/* Arrives at the barrier of something that this lane has read, once all loads of it are answered. x is made of all
 * that this lane has loaded; see mbar_arrive_answered. */
DEV void mbar_arrive_after(const struct worker *w, smem bar, u32 x) { mbar_arrive_answered(bar, x & w->zero); }

DEV void consumers_sync(void) { barrier_wait(BARRIER_CONSUMERS, CONSUMER_THREADS); }

/* ---- what consumers hand to the epilogue ---- */

/* A consumer warp has done its part of what the epilogue waits for and goes on without waiting. Only a dead warp waits
 * here for the others, because it waits nowhere else: if it ran ahead, its arrivals would count for other warps' and
 * the epilogue would wait for ever. */
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
