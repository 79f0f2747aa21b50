/* Everything that has a thread of another warp, of another block or of the host on the other side:
 * barriers, exchange words, bulk copies, fences, mapped memory. Beside it stand memory.cuh (loads and
 * stores without a flag), reduce.cuh (the lanes of one warp), mma.cuh (products of tiles) and maths.cuh.
 * Inline assembly is in these five files alone, and no other file touches exchanged or mapped memory:
 * tools/check_access.sh looks. The simulator has a twin of each of their functions
 * (tests/sim/sim_device.h). Which kind of GPU the code is for is asked here and in mma.cuh.
 *
 * G_COPY: 2 = bulk copies (sm_90 and newer), 1 = cp.async (sm_80), 0 = plain loads (sm_75). */
#ifndef REEL_KERNELS_SYNC_CUH
#define REEL_KERNELS_SYNC_CUH

#include "args.h"
#include "reduce.cuh"

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
DEV void shared_store(smem a, u32 v) { asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }

/* One step for all threads of the block. shared_add returns what was there. */
DEV u32 shared_add(smem a, u32 v) {
    u32 old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(a), "r"(v) : "memory");
    return old;
}
DEV void shared_max(smem a, u32 v) { asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }

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
DEV void barrier_wait(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void block_sync(void) { __syncthreads(); }

/* ---- mbarriers: one u64 in shared memory each ---- */

#if G_COPY >= 1
DEV void mbar_init(u64 *bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(bar)), "r"(count) : "memory");
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
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return (int)ok;
}
#else
/* sm_75 has none: arrivals are counted in the low half, the count of a phase lies in the high one. */
DEV void mbar_init(u64 *bar, int count) { *(volatile u64 *)bar = (u64)count << 32; }
DEV void mbar_init_done(void) {}
DEV void mbar_arrive(smem bar) { asm volatile("fence.acq_rel.cta; red.shared.add.u32 [%0], 1;" ::"r"(bar) : "memory"); }
DEV int mbar_test(smem bar, u32 parity) {
    const u32 count = shared_load(bar + 4), done = shared_load(bar) / count;
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    return (done & 1) != parity;
}
#endif

/* An arrival that passes no load which `zero` was made of; zero is 0, which the compiler does not know. Loads from
 * shared memory are answered later than they are issued, and a plain arrival may pass them: the next copy, hundreds
 * of cycles later, has been seen to overwrite a tile before a warp had read it. */
DEV void mbar_arrive_answered(smem bar, u32 zero) { mbar_arrive(bar + zero); }

/* The same as mbar_test; may put the thread to sleep for a while. */
DEV int mbar_try(smem bar, u32 parity) {
#if G_COPY == 2
    u32 ok;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return (int)ok;
#else
    return mbar_test(bar, parity);
#endif
}

/* ---- copies ---- */

/* Asks for memory that a later launch reads; a multiple of 16 bytes. Nothing where it cannot be asked for. */
DEV void l2_prefetch(const void *p, u32 bytes) {
#if G_COPY == 2
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#else
    (void)p, (void)bytes;
#endif
}

/* Lanes of a producer warp that call ring_fill together. */
enum { FILL_LANES = G_COPY == 2 ? 1 : 32 };

/* Copies `bytes` (a multiple of 16, or 0) from global memory, then completes one phase of the
 * barrier, which was made for FILL_LANES arrivals. Past L1, which does not see other SMs' stores. */
DEV void ring_fill(smem dst, const void *src, u32 bytes, smem bar) {
#if G_COPY == 2
    asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(bar), "r"(bytes)
                 : "memory");
    if (bytes)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                     "[%1], %2, [%3];" ::"r"(dst),
                     "l"(src), "r"(bytes), "r"(bar)
                     : "memory");
#elif G_COPY == 1
    _Pragma("unroll 4") for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512) asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + i), "l"((const u8 *)src + i) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#else
    _Pragma("unroll 8") for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
        struct quad v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const u8 *)src + i));
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(dst + i), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
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
DEV void word_store(u64 *p, u64 v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEV u64 word_load(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
/* Two neighbouring words, 16-byte aligned; each is checked on its own. */
DEV void word_load2(const u64 *p, u64 *a, u64 *b) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
}
/* The same as four registers: {low, high} of each word. */
DEV struct quad word_load4(const u64 *p) {
    struct quad q;
    asm volatile(
        "{ .reg .b64 a, b; ld.relaxed.gpu.global.v2.u64 {a, b}, [%4]; mov.b64 {%0, %1}, a; mov.b64 {%2, %3}, b; }"
        : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
        : "l"(p)
        : "memory");
    return q;
}

/* ---- fences ---- */

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

/* One step for all threads of the launch. plain_claim: 0 becomes v; returns what was there. */
DEV u32 plain_claim(u32 *p, u32 v) { return atomicCAS(p, 0u, v); }
DEV void plain_add32(u32 *p, u32 v) { (void)atomicAdd(p, v); }

#endif

/* ---- made of the above, the same on both sides ---- */

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

/* All lanes that fill go the same way. */
DEV int fill_all(int yes) { return FILL_LANES == 1 ? yes : warp_all(yes); }

/* Waits for a copy that was asked for. A copy always lands, also in a launch that gave up: no bound is
 * needed. */
DEV void copy_wait(smem bar, u32 parity) {
    while (!mbar_test(bar, parity)) {
    }
}

/* An exchange word: payload low, epoch high; or 48 bits of payload and 16 of epoch. */
DEV u64 word_make(u32 payload, u32 epoch) { return (u64)epoch << 32 | payload; }
DEV int word_is(u64 word, u32 epoch) { return (u32)(word >> 32) == epoch; }
DEV u64 word_make24(float low, float high, u32 epoch) { return (u64)(epoch & 0xffffu) << 48 | float24_pair(low, high); }
DEV int word_is24(u64 word, u32 epoch) { return (u32)(word >> 48) == (epoch & 0xffffu); }

#endif
