/* The host twin of kernels/sync.cuh, memory.cuh, reduce.cuh, mma.cuh and maths.cuh: same names,
 * same meaning, on the simulator's threads (sim.h says what of the GPU is modelled). They include
 * it when REEL_SIM is defined; one object is one compiled .cu. */
#ifndef REEL_TESTS_SIM_DEVICE_H
#define REEL_TESTS_SIM_DEVICE_H

#include "sim_ops.h"

#include <stddef.h> /* size_t, which NVRTC knows by itself */

float exp2f(float x);
float log2f(float x);
float sqrtf(float x);

static struct sim_ops sim_ops;
__attribute__((visibility("default"))) void sim_attach(const struct sim_ops *ops);
void sim_attach(const struct sim_ops *ops) { sim_ops = *ops; }

typedef u32 smem;

DEV u32 thread_index(void) { return sim_ops.self->thread; }
DEV u32 block_index(void) { return sim_ops.self->block; }
DEV u32 thread_count(void) { return sim_ops.self->n_threads; }
DEV u32 block_count(void) { return sim_ops.self->n_blocks; }

/* ---- clocks: time passes with the steps of the schedule ---- */

DEV u32 clock_now(void) { return sim_ops.clock(); }
DEV u64 time_ns(void) { return sim_ops.time_ns(); }
DEV void sleep_ns(u32 ns) { sim_ops.sleep(ns); }

/* ---- shared memory ---- */

DEV u8 *shared_base(void) { return sim_ops.self->shared; }
DEV smem smem_of(const void *p) {
    const struct sim_self *self = sim_ops.self;
    unsigned long long at = (unsigned long long)((const u8 *)p - self->shared);
    if (at >= self->shared_bytes) sim_ops.fail("smem_of: not in this block's shared memory");
    return (smem)at + SIM_SHARED_BASE;
}
DEV u32 shared_load(smem a) { return sim_ops.shared_load(a); }
DEV void shared_store(smem a, u32 v) { sim_ops.shared_store(a, v); }

/* One step: no other thread runs between two calls of sim_ops. */
DEV u32 *sim_shared_word(smem a) {
    const struct sim_self *self = sim_ops.self;
    if (a < SIM_SHARED_BASE || a - SIM_SHARED_BASE >= self->shared_bytes || a % 4)
        sim_ops.fail("not a word of this block's shared memory");
    return (u32 *)(self->shared + (a - SIM_SHARED_BASE));
}
DEV u32 shared_add(smem a, u32 v) {
    u32 *p = sim_shared_word(a), old = *p;
    *p = old + v;
    return old;
}
DEV void shared_max(smem a, u32 v) {
    u32 *p = sim_shared_word(a);
    if (v > *p) *p = v;
}

/* ---- registers: there is no count of them here ---- */

#define REGISTERS_TAKE(n) ((void)0)
#define REGISTERS_GIVE(n) ((void)0)

/* ---- inside a warp ---- */

DEV void warp_sync(void) { sim_ops.warp_sync(); }
DEV u32 sim_lane(void) { return sim_ops.self->thread % 32; }
DEV u32 shuffle(u32 v, int lane) { return sim_ops.shuffle(v, lane & 31); }
DEV u32 shuffle_xor(u32 v, int mask) { return sim_ops.shuffle(v, ((int)sim_lane() ^ mask) & 31); }
DEV u32 shuffle_down(u32 v, int delta) {
    int from = (int)sim_lane() + delta;
    return sim_ops.shuffle(v, from < 32 ? from : (int)sim_lane());
}
DEV int warp_all(int yes) { return sim_ops.ballot(yes) == 0xffffffffu; }
DEV u32 warp_ballot(int yes) { return sim_ops.ballot(yes); }

DEV void next_may_start(void) {}
DEV void previous_over(void) { sim_ops.previous_over(); }

/* ---- barriers of a block ---- */

DEV void barrier_wait(int id, int threads) { sim_ops.barrier(id, threads, 1); }
DEV void barrier_arrive(int id, int threads) { sim_ops.barrier(id, threads, 0); }
DEV void block_sync(void) { sim_ops.barrier(0, (int)thread_count(), 1); }

/* ---- mbarriers ---- */

DEV void mbar_init(u64 *bar, int count) { sim_ops.mbar_init(smem_of(bar), count); }
DEV void mbar_init_done(void) { sim_ops.fence(SIM_FENCE_MBAR_INIT); }
DEV void mbar_arrive(smem bar) { sim_ops.mbar_arrive(bar, 0); }
DEV void mbar_arrive_answered(smem bar, u32 zero) { sim_ops.mbar_arrive(bar + zero, 1); }
DEV int mbar_test(smem bar, u32 parity) { return sim_ops.mbar_test(bar, parity); }
DEV int mbar_try(smem bar, u32 parity) { return sim_ops.mbar_test(bar, parity); }

/* ---- copies to shared memory ---- */

enum { FILL_LANES = G_COPY == 2 ? 1 : 32 };

DEV void l2_prefetch(const void *p, u32 bytes) { (void)p, (void)bytes; }
DEV void ring_fill(smem dst, const void *src, u32 bytes, smem bar) {
    sim_ops.fill(dst, src, bytes, bar, G_COPY);
}
DEV void ring_add(smem dst, const void *src, u32 bytes, smem bar) {
    sim_ops.fill_more(dst, src, bytes, bar, G_COPY);
}

/* ---- between blocks ---- */

DEV void word_store(u64 *p, u64 v) { sim_ops.store(p, v, 8, SIM_WORD); }
DEV void peer_store(u64 *p, u64 v) { sim_ops.store(p, v, 8, SIM_PEER); }
DEV void peer_store32(u32 *p, u32 v) { sim_ops.store(p, v, 4, SIM_PEER); }
DEV u64 word_load(const u64 *p) { return sim_ops.load(p, 8, SIM_WORD); }
DEV void word_load2(const u64 *p, u64 *a, u64 *b) {
    if ((unsigned long long)p % 16) sim_ops.fail("word_load2: not on 16 bytes");
    *a = sim_ops.load(p, 8, SIM_WORD);
    *b = sim_ops.load(p + 1, 8, SIM_WORD);
}
DEV struct quad word_load4(const u64 *p) {
    struct quad q;
    u64 a, b;
    word_load2(p, &a, &b);
    q.x = (u32)a, q.y = (u32)(a >> 32), q.z = (u32)b, q.w = (u32)(b >> 32);
    return q;
}

DEV void plain_store32(u32 *p, u32 v) { sim_ops.store(p, v, 4, SIM_PLAIN); }
DEV void plain_store16(u16 *p, u16 v) { sim_ops.store(p, v, 2, SIM_PLAIN); }
DEV void plain_store8(u8 *p, u32 v) { sim_ops.store(p, v & 0xffu, 1, SIM_PLAIN); }
DEV void plain_store64(struct pair *p, struct pair v) {
    if ((unsigned long long)p % 8) sim_ops.fail("plain_store64: not on 8 bytes");
    sim_ops.store(&p->low, (u64)v.high << 32 | v.low, 8, SIM_PLAIN);
}
DEV void plain_store128(struct quad *p, struct quad v) {
    if ((unsigned long long)p % 16) sim_ops.fail("plain_store128: not on 16 bytes");
    sim_ops.store(&p->x, (u64)v.y << 32 | v.x, 8, SIM_PLAIN);
    sim_ops.store(&p->z, (u64)v.w << 32 | v.z, 8, SIM_PLAIN);
}
DEV u32 plain_load32(const u32 *p) { return (u32)sim_ops.load(p, 4, SIM_PLAIN); }
DEV u32 cached_load32(const u32 *p) { return plain_load32(p); }
DEV struct pair cached_load64(const struct pair *p) {
    const u64 all = sim_ops.load(&p->low, 8, SIM_PLAIN);
    struct pair v;
    if ((unsigned long long)p % 8) sim_ops.fail("cached_load64: not on 8 bytes");
    v.low = (u32)all, v.high = (u32)(all >> 32);
    return v;
}
DEV struct quad cached_load128(const struct quad *p) {
    struct quad v;
    if ((unsigned long long)p % 16) sim_ops.fail("cached_load128: not on 16 bytes");
    const u64 low = sim_ops.load(&p->x, 8, SIM_PLAIN), high = sim_ops.load(&p->z, 8, SIM_PLAIN);
    v.x = (u32)low, v.y = (u32)(low >> 32), v.z = (u32)high, v.w = (u32)(high >> 32);
    return v;
}
DEV struct quad own_load128(const struct quad *p) { return cached_load128(p); }
DEV void l2_ask(const void *p) { (void)p; }

DEV void fence_gpu(void) { sim_ops.fence(SIM_FENCE_GPU); }
DEV void fence_copies(void) { sim_ops.fence(SIM_FENCE_COPIES); }
DEV void fence_slot(void) { sim_ops.fence(SIM_FENCE_SLOT); }

/* ---- memory that the kernel never writes ---- */

DEV u32 const_load32(const u32 *p) { return (u32)sim_ops.load(p, 4, SIM_CONST); }
DEV u64 const_load64(const u64 *p) { return sim_ops.load(p, 8, SIM_CONST); }
DEV float const_loadf(const float *p) { return bits_float((u32)sim_ops.load(p, 4, SIM_CONST)); }

DEV struct quad const_load128(const void *p, int there) {
    const u32 *from = (const u32 *)p;
    struct quad v = { 0, 0, 0, 0 };
    if (!there) return v;
    if ((unsigned long long)p % 16) sim_ops.fail("const_load128: not on 16 bytes");
    v.x = const_load32(from), v.y = const_load32(from + 1);
    v.z = const_load32(from + 2), v.w = const_load32(from + 3);
    return v;
}

/* ---- the host's side of mapped memory ---- */

DEV void mapped_store32(volatile u32 *p, u32 v) { sim_ops.store(p, v, 4, SIM_MAPPED); }
DEV void mapped_store64(volatile u64 *p, u64 v) { sim_ops.store(p, v, 8, SIM_MAPPED); }
DEV u32 mapped_load32(const volatile u32 *p) { return (u32)sim_ops.load(p, 4, SIM_MAPPED); }
DEV u64 mapped_load64(const volatile u64 *p) { return sim_ops.load(p, 8, SIM_MAPPED); }
DEV void fence_system(void) { sim_ops.fence(SIM_FENCE_SYSTEM); }
DEV u32 plain_claim(u32 *p, u32 v) { return sim_ops.claim(p, v); }
DEV void plain_add32(u32 *p, u32 v) { sim_ops.add(p, v); }

/* ---- products ---- */

DEV void tile_mma(float d[4], struct quad a, u32 b0, u32 b1) {
    u32 tile[4] = { a.x, a.y, a.z, a.w };
    sim_ops.mma(d, tile, b0, b1);
}

/* Each lane fetches the four lanes' shares of its rows and of its two columns. */
DEV int sim_bytes_dot(u32 a, u32 b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8)
        sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return sum;
}
DEV void tile_mma_s8_half(int d[4], u32 a0, u32 a1, u32 b) {
    const int row = (int)sim_lane() & ~3, column = (int)sim_lane() % 4 * 8;
    for (int j = 0; j < 4; j++) {
        const u32 top = shuffle(a0, row + j), bottom = shuffle(a1, row + j);
        for (int c = 0; c < 2; c++) {
            const u32 x = shuffle(b, column + 4 * c + j);
            d[c] += sim_bytes_dot(top, x), d[2 + c] += sim_bytes_dot(bottom, x);
        }
    }
}
DEV void tile_mma_s8(int d[4], struct quad a, u32 b0, u32 b1) {
    tile_mma_s8_half(d, a.x, a.y, b0);
    tile_mma_s8_half(d, a.z, a.w, b1);
}

DEV void panels_begin(void) {}
DEV void panels_commit(void) {}
DEV void panels_keep(struct quad *a, int n) { (void)a, (void)n; }
DEV void panels_wait(float (*d)[32], int n) { (void)d, (void)n; }
DEV void warp_panel_mma(float *d, struct quad a, smem b, int k, int atoms) {
    const u32 lane = sim_lane();
    if ((b - SIM_SHARED_BASE) % 1024) sim_ops.fail("panel_mma: not on 1,024 bytes");
    for (u32 j = 0; j < 8 && (int)j < atoms; j++) {
        const u32 row = lane / 4, pair = lane % 4 * 4;
        const smem at = b + j * 1024 + row * 128;
        const u32 low = sim_ops.shared_load(at + (((u32)k * 2) ^ row) * 16 + pair);
        const u32 high = sim_ops.shared_load(at + (((u32)k * 2 + 1) ^ row) * 16 + pair);
        tile_mma(d + 4 * j, a, low, high);
    }
}
DEV void panel_mma(float *d, struct quad a, smem b, int k) { warp_panel_mma(d, a, b, k, 8); }
DEV void panel_mma_first(float *d, struct quad a, smem b, int k) {
    for (int i = 0; i < 32; i++)
        d[i] = 0;
    panel_mma(d, a, b, k);
}
DEV void atom_mma(float *d, struct quad a, smem b, int k) { warp_panel_mma(d, a, b, k, 1); }
DEV void atom_wait(float *d) { (void)d; }

DEV struct quad matrices_load(smem row) {
    const int mine = (int)sim_lane() / 4;
    const u32 pair = sim_lane() % 4 * 4;
    struct quad v;
    if (row % 16) sim_ops.fail("matrices_load: not on 16 bytes");
    v.x = sim_ops.shared_load(sim_ops.shuffle(row, mine) + pair);
    v.y = sim_ops.shared_load(sim_ops.shuffle(row, mine + 8) + pair);
    v.z = sim_ops.shared_load(sim_ops.shuffle(row, mine + 16) + pair);
    v.w = sim_ops.shared_load(sim_ops.shuffle(row, mine + 24) + pair);
    return v;
}

DEV u32 sim_bf16(float x) {
    u32 bits = float_bits(x);
    if (x != x) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
DEV u32 bf16_pair(float low, float high) { return sim_bf16(high) << 16 | sim_bf16(low); }

DEV float exp2_approx(float x) { return exp2f(x); }
DEV float log2_approx(float x) { return log2f(x); }
DEV float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }

#endif
