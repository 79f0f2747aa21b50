/* Blocks that stream through a ring, hand sums around by words, and publish plain data: each
 * primitive once, the way a decode kernel uses them. */
#include "memory.cuh"
#include "reduce.cuh"
#include "sync.cuh"

enum { CONSUMERS = 4, SLOTS = 4, SLOT_BYTES = 2048, PARTS = 1, READY = 2 };

struct ring_shared {
    u64 full[SLOTS], empty[SLOTS];
    float part[CONSUMERS];
};

struct ring_args {
    const u8 *tape; /* bf16 ones etc, [blocks][rounds][SLOT_BYTES] */
    u64 *words;     /* [row is there, rows are read][blocks] */
    u32 *rows;      /* [blocks] plain */
    float *sums;    /* [blocks][rounds] */
    int rounds;
    u32 epoch, patience;
    u32 *abort;
};

DEV int wait_full(smem bar, u32 parity, const struct ring_args *a) {
    u32 left = a->patience;
    while (!mbar_test(bar, parity))
        if (!left-- || plain_load32(a->abort)) {
            plain_claim(a->abort, 1);
            return 0;
        }
    return 1;
}

DEV_CALL void produce(const struct ring_args *a, smem full, smem empty, smem ring) {
    if (thread_index() % 32) return;
    const u8 *tape = a->tape + (u64)block_index() * (u64)a->rounds * SLOT_BYTES;
    int filled = 0;
    for (int i = 0; i < a->rounds; i++, filled++) {
        u32 slot = (u32)i % SLOTS;
        if (i >= SLOTS && !wait_full(empty + slot * 8, (u32)(i / SLOTS + 1) & 1, a)) break;
        ring_fill(ring + slot * SLOT_BYTES, tape + (u64)i * SLOT_BYTES, SLOT_BYTES,
                  full + slot * 8);
    }
    for (int i = filled > SLOTS ? filled - SLOTS : 0; i < filled; i++)
        while (!mbar_test(full + (u32)i % SLOTS * 8, (u32)(i / SLOTS) & 1)) {
        }
}

DEV_CALL void consume(const struct ring_args *a, struct ring_shared *s, const u8 *ring, smem full,
                      smem empty) {
    u32 warp = thread_index() / 32, lane = thread_index() % 32, epoch = a->epoch;
    for (int i = 0; i < a->rounds; i++) {
        u32 slot = (u32)i % SLOTS;
        int good = 1;
        if (lane == 0) good = wait_full(full + slot * 8, (u32)(i / SLOTS) & 1, a);
        if (!shuffle((u32)good, 0)) return;
        warp_sync();
        struct quad t = *(const struct quad *)(ring + slot * SLOT_BYTES + warp * 512 + lane * 16);
        warp_sync();
        if (lane == 0) mbar_arrive_answered(empty + slot * 8, t.x & a->patience >> 31);
        u32 ones = bf16_pair(1.0f, 1.0f);
        float d[4] = { 0, 0, 0, 0 };
        tile_mma(d, t, ones, ones);
        float sum = xor_sum(d[0] + d[2], 4, 32);
        if (lane == 0) s->part[warp] = sum;
        barrier_wait(PARTS, CONSUMERS * 32);
        if (warp == 0) {
            float block_sum = s->part[0] + s->part[1] + s->part[2] + s->part[3];
            if (lane == 0) {
                plain_store32(a->rows + block_index(), float_bits(block_sum));
                fence_gpu();
                word_store(a->words + block_index(), word_make((u32)i, epoch));
            }
            u64 w = word_make(0, epoch);
            u32 left = a->patience;
            for (;;) {
                if (lane < block_count()) w = word_load(a->words + lane);
                if (warp_all(word_is(w, epoch))) break;
                if (!left-- || !warp_all(!plain_load32(a->abort))) {
                    plain_claim(a->abort, 1);
                    good = 0;
                    break;
                }
            }
            fence_gpu();
            float v = lane < block_count() ? bits_float(plain_load32(a->rows + lane)) : 0.0f;
            v = xor_sum(v, 1, 32);
            if (lane == 0)
                plain_store32((u32 *)a->sums + (int)block_index() * a->rounds + i, float_bits(v));
            epoch = epoch_next(epoch);
            /* nobody may overwrite its row before all have read it */
            const u64 *all_read = a->words + block_count();
            if (lane == 0)
                word_store(a->words + block_count() + block_index(), word_make((u32)i, epoch));
            left = a->patience;
            for (;;) {
                if (lane < block_count()) w = word_load(all_read + lane);
                if (warp_all(lane >= block_count() || word_is(w, epoch))) break;
                if (!left-- || !warp_all(!plain_load32(a->abort))) {
                    plain_claim(a->abort, 1);
                    good = 0;
                    break;
                }
            }
        } else {
            epoch = epoch_next(epoch);
        }
        epoch = epoch_next(epoch);
        barrier_wait(READY, CONSUMERS * 32);
        if (!warp_all(good && !plain_load32(a->abort))) return;
    }
}

KERNEL(160) ring(const struct ring_args a) {
    struct ring_shared *s = (struct ring_shared *)shared_base();
    const u8 *slots = shared_base() + 1024;
    smem full = smem_of(s->full), empty = smem_of(s->empty);
    if (thread_index() == 0) {
        for (int i = 0; i < SLOTS; i++) {
            mbar_init(&s->full[i], FILL_LANES);
            mbar_init(&s->empty[i], CONSUMERS);
        }
        mbar_init_done();
    }
    block_sync();
    if (thread_index() >= CONSUMERS * 32)
        produce(&a, full, empty, smem_of(slots));
    else
        consume(&a, s, slots, full, empty);
}
