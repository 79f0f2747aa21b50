/* These kernels measure what this GPU can do at best, with the primitives that decoding is made of. The speed of a
 * decoded token can then be given as a share of that.
 *   read_all   all SMs copy from memory, as the producers of weights do: bytes a second
 *   exchange   a chain of exchanges (docs/GLOSSARY.md), all to all in a group of SMs, alone or beside such copies; in a
 *              program for several GPUs all to all in all of them
 *   touch      stores one word for the host: what a launch costs
 *   scatter    fills the data with noise first, for memory that tells zeros from numbers */
#include "args.h"
#include "limits_args.h"
#include "memory.cuh"
#include "reduce.cuh"
#include "sync.cuh"

enum { GATHER_WARPS = LIMITS_GATHERERS / LANES, GATHER_BARRIER = 1 };

struct limits_shared {
    u64 full[LIMITS_MOST_PIECES];
    u32 stop;
};
#if !defined(REEL_SIM)
static_assert(sizeof(struct limits_shared) <= LIMITS_RING_AT, "the ring begins after the barriers");
#endif

/* What one warp copies, and through which slots. */
struct copies {
    const u8 *base;
    u64 span;
    smem ring, full;
    int slots;
};

/* Waits for the copy into a slot. A copy always lands, so this wait needs no bound. */
DEV void copies_wait(const struct copies *c, int slot, u32 parity) {
    NO_UNROLL
    while (!fill_all(mbar_test(c->full + (smem)slot * 8, parity))) {
    }
}

/* Copies n pieces, going round in the warp's region. With n = 0 it copies until `stop` in shared memory is set. It ends
 * with nothing in flight and returns how many pieces it copied. Lanes below FILL_LANES call. */
DEV u32 copies_run(const struct copies *c, u32 n, smem stop) {
    u64 at = 0;
    u32 done = 0, parity = 1;
    int slot = 0;
    NO_UNROLL
    while (n ? done < n : fill_all(!shared_load(stop))) {
        if (done >= (u32)c->slots) copies_wait(c, slot, parity);
        ring_fill(c->ring + (smem)slot * LIMITS_PIECE, c->base + at, LIMITS_PIECE, c->full + (smem)slot * 8);
        at += LIMITS_PIECE;
        if (at == c->span) at = 0;
        if (++slot == c->slots) slot = 0, parity ^= 1;
        done++;
    }
    NO_UNROLL
    for (u32 left = done < (u32)c->slots ? done : (u32)c->slots; left > 0; left--) {
        const u32 piece = done - left;
        copies_wait(c, (int)(piece % (u32)c->slots), piece / (u32)c->slots & 1);
    }
    return done;
}

/* Makes all barriers of the block and clears `stop`. All threads of the block call it once. */
DEV struct limits_shared *shared_start(void) {
    struct limits_shared *s = (struct limits_shared *)shared_base();
    if (thread_index() == 0) {
        for (int i = 0; i < LIMITS_MOST_PIECES; i++)
            mbar_init(&s->full[i], FILL_LANES);
        mbar_init_done();
        shared_store(smem_of(&s->stop), 0);
    }
    block_sync();
    return s;
}

/* The copies of warp `index` of the n warps that copy in this block. */
DEV struct copies copies_of(const struct limits_args *a, struct limits_shared *s, int index, int n) {
    struct copies c;
    const int first = index * a->slots;
    c.base = a->data + ((u64)block_index() * (u32)n + (u32)index) * a->span;
    c.span = a->span;
    c.slots = a->slots;
    c.full = smem_of(&s->full[first]);
    c.ring = smem_of(s) + LIMITS_RING_AT + (smem)first * LIMITS_PIECE;
    return c;
}

KERNEL(LIMITS_READ_THREADS) read_all(PARAMETER const struct limits_args a) {
    struct limits_shared *s = shared_start();
    const int warp = (int)(thread_index() / LANES);
    if (thread_index() % LANES >= FILL_LANES) return;
    const struct copies c = copies_of(&a, s, warp, LIMITS_READERS);
    copies_run(&c, a.pieces, smem_of(&s->stop));
}

DEV u32 payload_of(u32 round, u32 index) { return round * 7919u + index * 31u; }

/* Polls n words, an even number, until all have come, and counts those that are wrong. Returns 0 when it gives up. */
DEV int gather_words(const struct limits_args *a, const u64 *words, u32 n, u32 first, u32 round, u32 *wrong) {
    u64 v[LIMITS_GATHER_PAIRS][2];
    u32 polls = 0;
    UNROLL
    for (int i = 0; i < LIMITS_GATHER_PAIRS; i++)
        v[i][0] = v[i][1] = word_make(0, round);
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < LIMITS_GATHER_PAIRS; i++) {
            const u32 at = ((u32)i * LIMITS_GATHERERS + thread_index()) * 2;
            if (at < n && (!polls || !word_is(v[i][0], round) || !word_is(v[i][1], round)))
                word_load2(words + at, &v[i][0], &v[i][1]);
        }
        UNROLL
        for (int i = 0; i < LIMITS_GATHER_PAIRS; i++)
            ok &= word_is(v[i][0], round) & word_is(v[i][1], round);
        if (warp_all(ok)) break;
        if (++polls > a->patience) return 0;
    }
    UNROLL
    for (int i = 0; i < LIMITS_GATHER_PAIRS; i++) {
        const u32 at = ((u32)i * LIMITS_GATHERERS + thread_index()) * 2;
        *wrong += (u32)(at < n && ((u32)v[i][0] != payload_of(round, first + at) ||
                                   (u32)v[i][1] != payload_of(round, first + at + 1)));
    }
    return 1;
}

/* In each round the block publishes this SM's words, gathers those of its group, and its warps meet. Two buffers take
 * turns: a block that is a round ahead has the words of this round from all blocks of its group. block: its number,
 * through all GPUs. gpus: the others, where the group has SMs of them, or NULL. Returns the errors, as
 * limits_args.errors counts them. */
DEV u32 exchange_rounds(const struct limits_args *a, u32 block, const struct gpu_args *gpus) {
    const u32 group = (u32)a->group, own = (u32)a->per_block;
    const u32 first = block / group * group * own, n = group * own;
    u32 wrong = 0;
    int alive = 1;
    NO_UNROLL
    for (u32 round = 1; round <= (u32)a->rounds; round++) {
        u64 *words = a->words + (round & 1) * a->word_stride;
        for (u32 i = thread_index(); i < own; i += LIMITS_GATHERERS) {
            const u32 at = block * own + i;
            const u64 word = word_make(payload_of(round, at), round);
            word_store(words + at, word);
#if P_GPUS > 1
            UNROLL
            for (int g = 0; g < P_GPUS - 1; g++)
                peer_store((u64 *)((u8 *)(words + at) + gpus->peers[g]), word);
#else
            (void)gpus;
#endif
        }
        if (alive) alive = gather_words(a, words + first, n, first, round, &wrong);
        barrier_wait(GATHER_BARRIER, LIMITS_GATHERERS);
    }
    return wrong + (alive ? 0 : 1u << 20);
}

KERNEL(LIMITS_EXCHANGE_THREADS) exchange(PARAMETER const struct limits_args a GPUS_PARAMETER) {
    struct limits_shared *s = shared_start();
    const smem stop = smem_of(&s->stop);
    const u32 lane = thread_index() % LANES;
    if (thread_index() >= LIMITS_GATHERERS) {
        const struct copies c = copies_of(&a, s, 0, 1);
        u32 n = 0;
        if (a.slots > 0 && lane < FILL_LANES) n = copies_run(&c, 0, stop);
        if (lane == 0) word_store(a.bytes + block_index(), (u64)n * LIMITS_PIECE);
        return;
    }
    const u64 start = time_ns();
    while (time_ns() - start < a.settle_ns)
        sleep_ns(100);
    barrier_wait(GATHER_BARRIER, LIMITS_GATHERERS);
    const u64 begin = time_ns();
#if P_GPUS > 1
    const u32 errors = exchange_rounds(&a, (u32)gpus.gpu * block_count() + block_index(), &gpus);
#else
    const u32 errors = exchange_rounds(&a, block_index(), 0);
#endif
    if (errors) plain_add32(a.errors, errors);
    if (thread_index() != 0) return;
    word_store(a.ns + block_index(), time_ns() - begin);
    shared_store(stop, 1);
}

KERNEL(LIMITS_EXCHANGE_THREADS) touch(PARAMETER const struct limits_args a) {
    if (block_index() == 0 && thread_index() == 0) mapped_store64(a.mailbox, a.value);
}

KERNEL(LIMITS_SCATTER_THREADS) scatter(PARAMETER const struct limits_args a) {
    const u64 n = a.span / 4, step = (u64)block_count() * thread_count();
    u32 *words = (u32 *)a.data;
    NO_UNROLL
    for (u64 i = (u64)block_index() * thread_count() + thread_index(); i < n; i += step) {
        u32 x = (u32)i * 2654435761u;
        x ^= x >> 15;
        plain_store32(words + i, x * 2246822519u);
    }
}
