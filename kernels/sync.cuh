/* Everything that has another thread on the other side: barriers, exchange words, bulk copies,
 * fences, shuffles. No other file uses inline assembly for these, and no other file touches
 * exchanged or mapped memory. The simulator has a twin of each function (tests/sim/sim_device.h).
 *
 * G_COPY: 2 = bulk copies (sm_90 and newer), 1 = cp.async (sm_80), 0 = plain loads (sm_75). */
#ifndef REEL_KERNELS_SYNC_CUH
#define REEL_KERNELS_SYNC_CUH

#include "args.h"
#include "prelude.cuh"

#if defined(REEL_SIM)
#include "sim_device.h"
#else

/* An address in shared memory. */
typedef u32 smem;

DEV u32 thread_index(void) { return threadIdx.x; }
DEV u32 block_index(void) { return blockIdx.x; }
DEV u32 thread_count(void) { return blockDim.x; }
DEV u32 block_count(void) { return gridDim.x; }

/* ---- clocks ---- */

DEV u32 clock_now(void) {
    u32 t;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(t));
    return t;
}
DEV u64 time_ns(void) {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
DEV void sleep_ns(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }

/* ---- shared memory ---- */

/* The block's dynamic shared memory, 128-byte aligned, and the address of something in it. The
 * address is kept in a register: the compiler would rather rebuild it from special registers at
 * every use, some 100 clocks each time. */
extern __shared__ __align__(128) u8 shared_memory[];
DEV u8 *shared_base(void) {
    const u32 base = (u32)__cvta_generic_to_shared(shared_memory);
    return (u8 *)__cvta_shared_to_generic(__shfl_sync(0xffffffffu, base, 0));
}
DEV smem smem_of(const void *p) {
    smem a;
    asm volatile("mov.u32 %0, %1;" : "=r"(a) : "r"((u32)__cvta_generic_to_shared(p)));
    return a;
}
DEV u32 shared_load(smem a) {
    u32 v;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
    return v;
}
DEV void shared_store(smem a, u32 v) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}

/* One step for all threads of the block. shared_add returns what was there. */
DEV u32 shared_add(smem a, u32 v) {
    u32 old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(a), "r"(v) : "memory");
    return old;
}
DEV void shared_max(smem a, u32 v) {
    asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}

/* ---- inside a warp ---- */

DEV void warp_sync(void) { __syncwarp(); }
DEV u32 shuffle(u32 v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEV u32 shuffle_xor(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEV u32 shuffle_down(u32 v, int delta) { return __shfl_down_sync(0xffffffffu, v, delta); }
DEV int warp_all(int yes) { return __all_sync(0xffffffffu, yes); }
DEV u32 warp_ballot(int yes) { return __ballot_sync(0xffffffffu, yes); }

/* ---- registers ---- */

/* Moves registers between warps: every warp of a warpgroup (4 warps from a multiple of 4) calls. n is
 * a multiple of 8; what some give up others may take. */
#if G_REGISTERS
#define REGISTERS_TAKE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define REGISTERS_GIVE(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#else
#define REGISTERS_TAKE(n) ((void)0)
#define REGISTERS_GIVE(n) ((void)0)
#endif

/* ---- launches that follow each other ---- */

/* Where the host asked for it, the next launch's blocks may start where there is room, and those of this one
 * have started while the launch before was not over. */
#if G_COPY == 2
DEV void next_may_start(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEV void previous_over(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DEV void next_may_start(void) {}
DEV void previous_over(void) {}
#endif

/* ---- barriers of a block ---- */

/* Named barriers, 1 to 15; `threads` is a multiple of 32 and counts both kinds of arrival. */
DEV void barrier_wait(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void block_sync(void) { __syncthreads(); }

/* ---- mbarriers: one u64 in shared memory each ---- */

#if G_COPY >= 1
DEV void mbar_init(u64 *bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(bar)),
                 "r"(count)
                 : "memory");
}
DEV void mbar_init_done(void) {
#if G_COPY == 2
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/* One arrival, releasing what this thread did before. */
DEV void mbar_arrive(smem bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory");
}
/* Whether the phase of this parity is complete; acquires what the arrivals released. */
DEV int mbar_test(smem bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return (int)ok;
}
#else
/* sm_75 has none: arrivals are counted in the low half, the count of a phase lies in the high one. */
DEV void mbar_init(u64 *bar, int count) { *(volatile u64 *)bar = (u64)count << 32; }
DEV void mbar_init_done(void) {}
DEV void mbar_arrive(smem bar) {
    asm volatile("fence.acq_rel.cta; red.shared.add.u32 [%0], 1;" ::"r"(bar) : "memory");
}
DEV int mbar_test(smem bar, u32 parity) {
    const u32 count = shared_load(bar + 4), done = shared_load(bar) / count;
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    return (done & 1) != parity;
}
#endif

/* The same; may put the thread to sleep for a while. */
DEV int mbar_try(smem bar, u32 parity) {
#if G_COPY == 2
    u32 ok;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return (int)ok;
#else
    return mbar_test(bar, parity);
#endif
}

/* Asks for memory that a later launch reads; a multiple of 16 bytes. Nothing where it cannot be asked for. */
DEV void l2_prefetch(const void *p, u32 bytes) {
#if G_COPY == 2
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#else
    (void)p, (void)bytes;
#endif
}

/* ---- copies to shared memory ---- */

/* Lanes of a producer warp that call ring_fill together. */
enum { FILL_LANES = G_COPY == 2 ? 1 : 32 };

/* Copies `bytes` (a multiple of 16, or 0) from global memory, then completes one phase of the
 * barrier, which was made for FILL_LANES arrivals. Past L1, which does not see other SMs' stores. */
DEV void ring_fill(smem dst, const void *src, u32 bytes, smem bar) {
#if G_COPY == 2
    asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(bar),
                 "r"(bytes)
                 : "memory");
    if (bytes)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                     "[%1], %2, [%3];" ::"r"(dst),
                     "l"(src), "r"(bytes), "r"(bar)
                     : "memory");
#elif G_COPY == 1
    _Pragma("unroll 4")
    for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + i),
                     "l"((const u8 *)src + i)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#else
    _Pragma("unroll 8")
    for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
        struct quad v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const u8 *)src + i));
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(dst + i), "r"(v.x), "r"(v.y),
                     "r"(v.z), "r"(v.w)
                     : "memory");
    }
    mbar_arrive(bar);
#endif
}

/* The same without completing anything: more that the barrier's phase waits for, if ring_fill comes after it. Of bulk
 * copies alone. */
DEV void ring_add(smem dst, const void *src, u32 bytes, smem bar) {
#if G_COPY == 2
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
#else
    (void)dst, (void)src, (void)bytes, (void)bar;
#endif
}

/* ---- between blocks ---- */

/* Exchange words: payload and epoch in one 8-byte access, relaxed. */
DEV void word_store(u64 *p, u64 v) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV u64 word_load(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
/* Two neighbouring words, 16-byte aligned; each is checked on its own. */
DEV void word_load2(const u64 *p, u64 *a, u64 *b) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*a), "=l"(*b)
                 : "l"(p)
                 : "memory");
}
/* The same as four registers: {low, high} of each word. */
DEV struct quad word_load4(const u64 *p) {
    struct quad q;
    asm volatile("{ .reg .b64 a, b; ld.relaxed.gpu.global.v2.u64 {a, b}, [%4]; mov.b64 {%0, %1}, a; mov.b64 {%2, %3}, b; }"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "l"(p)
                 : "memory");
    return q;
}

/* Plain data that another block (or a later token of this one) reads after a fence: KV rows, logits. */
DEV void plain_store32(u32 *p, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEV void plain_store16(u16 *p, u16 v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory"); }
DEV void plain_store128(struct quad *p, struct quad v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
DEV u32 plain_load32(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* Also out of L1, where an old version may lie of what other blocks write meanwhile. */
DEV u32 cached_load32(const u32 *p) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV struct quad cached_load128(const struct quad *p) {
    struct quad v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

/* 16 bytes that no other thread writes in this launch, and that are used once: they need no place in L1. */
DEV struct quad own_load128(const struct quad *p) {
    struct quad v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

/* Orders this thread's accesses (and those it has observed) before and after, for all blocks. */
DEV void fence_gpu(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Lets bulk copies issued from here on see what ordinary accesses have seen. */
DEV void fence_copies(void) {
#if G_COPY == 2
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/* Before a slot that this thread has written to by itself is given back to be filled. */
DEV void fence_slot(void) {
#if G_COPY == 2
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- memory that the kernel never writes ---- */

DEV u32 const_load32(const u32 *p) {
    u32 v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
DEV float const_loadf(const float *p) {
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}

/* 16 bytes that are used once: they need no place in L1. 0 without `there`. */
DEV struct quad const_load128(const void *p, int there) {
    struct quad v;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0;\n"
                 "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(p), "r"(there));
    return v;
}

/* ---- the host's side of mapped memory ---- */

DEV void mapped_store32(volatile u32 *p, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEV void mapped_store64(volatile u64 *p, u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV u32 mapped_load32(const volatile u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV void fence_system(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
/* 0 becomes v; returns what was there. */
DEV u32 plain_claim(u32 *p, u32 v) { return atomicCAS(p, 0u, v); }
DEV void plain_add32(u32 *p, u32 v) { (void)atomicAdd(p, v); }

/* ---- products ---- */

#if G_COPY >= 1
/* d += A B: A one tile, B 16 by 8 (column lane / 4, rows 2 (lane % 4) and +1 in b0, +8 and +9 in
 * b1), d rows lane / 4 and +8, columns 2 (lane % 4) and +1: d[0], d[1], d[2], d[3]. */
DEV void tile_mma(float d[4], struct quad a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
DEV u32 bf16_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
#else
DEV float pair_dot(float sum, u32 a, u32 b) {
    return fmaf(bf16_high(a), bf16_high(b), fmaf(bf16_low(a), bf16_low(b), sum));
}
/* Each lane fetches the four lanes' shares of its rows and of its two columns. */
DEV void tile_mma(float d[4], struct quad a, u32 b0, u32 b1) {
    const int lane = (int)(threadIdx.x % 32), row = lane & ~3, column = lane % 4 * 8;
    UNROLL
    for (int j = 0; j < 4; j++) {
        const u32 x = shuffle(a.x, row + j), y = shuffle(a.y, row + j);
        const u32 z = shuffle(a.z, row + j), w = shuffle(a.w, row + j);
        UNROLL
        for (int c = 0; c < 2; c++) {
            const u32 p = shuffle(b0, column + 4 * c + j), q = shuffle(b1, column + 4 * c + j);
            d[c] = pair_dot(pair_dot(d[c], x, p), z, q);
            d[2 + c] = pair_dot(pair_dot(d[2 + c], y, p), w, q);
        }
    }
}
DEV u32 bf16_round(float x) {
    const u32 bits = float_bits(x);
    return x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
DEV u32 bf16_pair(float low, float high) { return bf16_round(low) | bf16_round(high) << 16; }
#endif

/* ---- products of a tile with 64 tokens of a stage ---- */

/* d[8][4] += A B: A one tile in registers, 16 rows by 16 k; B the 16 k from 16 * k on (k < 4) of 64 tokens,
 * 8 atoms of activations in shared memory, on 1,024 bytes. d[j] as of tile_mma, for the tokens 8 j to 8 j + 7.
 * warp_panel_mma: only of the first `atoms`, and perhaps of one more. */
#if G_COPY >= 1
DEV void warp_panel_mma(float *d, struct quad a, smem b, int k, int atoms) {
    const int lane = (int)(threadIdx.x % 32), row = lane % 8, chunk = 2 * k + lane / 8 % 2;
    /* lanes 0-7 and 8-15 name the rows of two halves of k of 8 tokens, the others those of the next 8 */
    const smem from = b + (u32)(lane / 16 * 1024 + row * 128 + (chunk ^ row) * 16);
    UNROLL
    for (int j = 0; j < 8; j += 2) {
        if (j >= atoms) break;
        u32 w, x, y, z;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w), "=r"(x), "=r"(y), "=r"(z)
                     : "r"(from + (u32)j * 1024)
                     : "memory");
        tile_mma(d + 4 * j, a, w, x);
        tile_mma(d + 4 * j + 4, a, y, z);
    }
}
#endif

/* The same, but on sm_90 the four warps of a warpgroup work at it together, each with a tile of its own and
 * the same B, and the product is under way until panels_wait, given all d: tiles, d and B must be left alone
 * till then. atom_mma: of 8 tokens, d[4], which go to atom_wait after panels_wait. */
#if G_WGMMA
DEV void panels_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void panel_mma(float *d, struct quad a, smem b, int k) {
    /* start, stride of 8 tokens 1,024 bytes, 128-byte swizzle; the leading offset has no meaning then */
    const u64 matrix = (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (u64)((b & 0x3ffffu) >> 4) + (u64)(2 * k);
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                 "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(matrix));
}
DEV void atom_mma(float *d, struct quad a, smem b, int k) {
    const u64 matrix = (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)1 << 16 | (u64)((b & 0x3ffffu) >> 4) + (u64)(2 * k);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(matrix));
}
DEV void atom_wait(float *d) { asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory"); }
DEV void panels_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEV void panels_wait(float (*d)[32], int n) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    UNROLL
    for (int i = 0; i < 32 * n; i++) /* nothing reads them before */
        asm volatile("" : "+f"(d[i / 32][i % 32])::"memory");
}
#elif G_COPY >= 1
DEV void panels_begin(void) {}
DEV void panels_commit(void) {}
DEV void panels_wait(float (*d)[32], int n) { (void)d, (void)n; }
DEV void panel_mma(float *d, struct quad a, smem b, int k) { warp_panel_mma(d, a, b, k, 8); }
DEV void atom_mma(float *d, struct quad a, smem b, int k) { (void)d, (void)a, (void)b, (void)k; } /* no TAIL_TOKENS */
DEV void atom_wait(float *d) { (void)d; }
#endif

/* Four 8 by 8 matrices of 16-bit values in shared memory: lanes 8 i to 8 i + 7 name the rows, 16 bytes each,
 * of matrix i. Lane 4 r + c / 2 gets (r, c) and (r, c + 1) of each. _turned: of each one's transpose. */
#if G_COPY >= 1
DEV struct quad matrices_load(smem row) {
    struct quad v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}
DEV struct quad matrices_load_turned(smem row) {
    struct quad v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}
#endif

DEV float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float rsqrt_approx(float x) { return rsqrtf(x); }
DEV float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

/* ---- made of the above, the same on both sides ---- */

DEV float shuffle_xor_float(float v, int mask) { return bits_float(shuffle_xor(float_bits(v), mask)); }
DEV float shuffle_down_float(float v, int d) { return bits_float(shuffle_down(float_bits(v), d)); }

/* Over lanes whose numbers differ in the bits from `from` (inclusive) up to `to`. */
DEV float xor_sum(float v, int from, int to) {
    UNROLL
    for (int i = from; i < to; i *= 2)
        v += shuffle_xor_float(v, i);
    return v;
}
DEV float max_float(float a, float b) {
#if defined(REEL_SIM)
    return a > b ? a : b;
#else
    return fmaxf(a, b); /* one instruction */
#endif
}
DEV float xor_max(float v, int from, int to) {
    UNROLL
    for (int i = from; i < to; i *= 2)
        v = max_float(v, shuffle_xor_float(v, i));
    return v;
}

/* v, of which the compiler knows nothing any more: what is made of it cannot move out of a loop. */
DEV int opaque(int v) {
#if !defined(REEL_SIM)
    asm volatile("" : "+r"(v));
#endif
    return v;
}

/* The compiler moves no load or store across: what is loaded after needs no registers before. */
DEV void loads_stay(void) {
#if !defined(REEL_SIM)
    asm volatile("" ::: "memory");
#endif
}

/* An 8 by 8 matrix of 16-bit values, lane 4 r + c / 2 holding (r, c) and (r, c + 1), transposed. */
DEV u32 transpose8(u32 v) {
#if defined(REEL_SIM)
    const int lane = (int)(thread_index() % LANES), odd = lane / 4 % 2;
    const u32 a = shuffle(v, lane % 4 * 8 + lane / 8), b = shuffle(v, lane % 4 * 8 + 4 + lane / 8);
    return odd ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
#else
    u32 t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
    return t;
#endif
}
#if defined(REEL_SIM)
DEV float rcp_approx(float x) { return 1.0f / x; }
DEV struct quad matrices_load_turned(smem row) {
    struct quad v = matrices_load(row);
    v.x = transpose8(v.x), v.y = transpose8(v.y), v.z = transpose8(v.z), v.w = transpose8(v.w);
    return v;
}
#endif
#define LOG2_E 1.44269504f
DEV float sigmoid(float x) { return rcp_approx(1.0f + exp2_approx(x * -LOG2_E)); }

/* A tile times one vector, whose pairs every column repeats (b0, b1 depend on lane % 4 alone): rows
 * lane / 4 and + 8 in d[0] and d[2], complete after tile_product_end. */
#if defined(REEL_SIM) || G_COPY == 0
DEV float tile_share(float sum, u32 a, u32 b, u32 c, u32 d) {
    return sum + ((bf16_low(a) * bf16_low(b) + bf16_high(a) * bf16_high(b)) +
                  (bf16_low(c) * bf16_low(d) + bf16_high(c) * bf16_high(d)));
}
DEV void tile_product(float d[4], struct quad a, u32 b0, u32 b1) {
    d[0] = tile_share(d[0], a.x, b0, a.z, b1);
    d[2] = tile_share(d[2], a.y, b0, a.w, b1);
}
DEV void tile_product_end(float d[4]) {
    d[0] = xor_sum(d[0], 1, 4);
    d[2] = xor_sum(d[2], 1, 4);
}
#else
DEV void tile_product(float d[4], struct quad a, u32 b0, u32 b1) { tile_mma(d, a, b0, b1); }
DEV void tile_product_end(float d[4]) { (void)d; }
#endif

/* A tile times a vector in two halves, x and x + low: the even columns take one, the odd ones the other,
 * at no cost. Complete is d[0] + d[1] (and d[2] + d[3]) after tile_product_end. */
DEV void tile_product_split(float d[4], struct quad a, const u32 *x, int low, int lane) {
#if defined(REEL_SIM) || G_COPY == 0
    const struct pair p = *(const struct pair *)x, q = *(const struct pair *)(x + low);
    (void)lane;
    tile_product(d, a, p.low, p.high);
    tile_product(d, a, q.low, q.high);
#else
    const struct pair p = *(const struct pair *)(x + (lane & 4 ? low : 0));
    tile_mma(d, a, p.low, p.high);
#endif
}

/* An exchange word: payload low, epoch high; or 48 bits of payload and 16 of epoch. */
DEV u64 word_make(u32 payload, u32 epoch) { return (u64)epoch << 32 | payload; }
DEV int word_is(u64 word, u32 epoch) { return (u32)(word >> 32) == epoch; }
DEV u64 word_make24(float low, float high, u32 epoch) {
    return (u64)(epoch & 0xffffu) << 48 | float24_pair(low, high);
}
DEV int word_is24(u64 word, u32 epoch) { return (u32)(word >> 48) == (epoch & 0xffffu); }

#endif
