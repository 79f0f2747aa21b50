/* This file has every function whose other side is a thread of another warp, of another block or of the host: barriers,
 * exchange words, bulk copies, fences, mapped memory. Four files stand beside it: memory.cuh (loads and stores without
 * a flag), reduce.cuh (the lanes of one warp), mma.cuh (products of tiles) and maths.cuh. Inline assembly is in these
 * five files alone, and no other file touches exchanged or mapped memory; tools/check_access.sh checks that. The
 * simulator has a twin of each of their functions (tests/sim/sim_device.h).
 *
 * Only this file and mma.cuh ask which kind of GPU the code is for. The plan says it as G_COPY: 2 = bulk copies (sm_90
 * and newer), 1 = cp.async (sm_80, 86, 89), 0 = plain loads (sm_75). */
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

/* shared_base is the block's dynamic shared memory, which begins at a multiple of 128 bytes; smem_of is the address of
 * something in it. Both force the address into a register: the compiler would rather rebuild it from special registers
 * at every use, which takes some 100 clocks each time. */
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

/* No other thread of the block comes between the read and the write of these two. shared_add returns what was there. */
DEV u32 shared_add(smem a, u32 v) {
    u32 old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(a), "r"(v) : "memory");
    return old;
}
DEV void shared_max(smem a, u32 v) { asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }

/* ---- registers ---- */

/* Move registers between warps: some warps give registers up, so that others may take them. n is how many registers
 * each thread has afterwards, a multiple of 8. Every warp of a warpgroup (4 warps from a multiple of 4) calls. */
#if G_REGISTERS
#define REGISTERS_TAKE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define REGISTERS_GIVE(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#else
#define REGISTERS_TAKE(n) ((void)0)
#define REGISTERS_GIVE(n) ((void)0)
#endif

/* ---- launches that follow each other ---- */

/* Launches may overlap where the host asked for it. After next_may_start the blocks of the next launch may start where
 * there is room. The blocks of this launch may have started before the launch before was over; previous_over waits
 * until that launch is over. Both do nothing where G_COPY is below 2. */
#if G_COPY == 2
DEV void next_may_start(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEV void previous_over(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DEV void next_may_start(void) {}
DEV void previous_over(void) {}
#endif

/* ---- barriers of a block ---- */

/* Named barriers have the numbers 1 to 15. `threads` is a multiple of 32 and counts the threads that wait and those
 * that only arrive. */
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
/* Arrives once, and releases what this thread did before. */
DEV void mbar_arrive(smem bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory");
}
/* Whether the phase of this parity is complete; if so, this thread acquires what the arrivals released. */
DEV int mbar_test(smem bar, u32 parity) {
    u32 ok;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return (int)ok;
}
#else
/* sm_75 has no mbarriers. Here the low half of the u64 counts arrivals, and the high half holds how many of them make a
 * phase. */
DEV void mbar_init(u64 *bar, int count) { *(volatile u64 *)bar = (u64)count << 32; }
DEV void mbar_init_done(void) {}
DEV void mbar_arrive(smem bar) { asm volatile("fence.acq_rel.cta; red.shared.add.u32 [%0], 1;" ::"r"(bar) : "memory"); }
DEV int mbar_test(smem bar, u32 parity) {
    const u32 count = shared_load(bar + 4), done = shared_load(bar) / count;
    asm volatile("fence.acq_rel.cta;" ::: "memory");
    return (done & 1) != parity;
}
#endif

/* Arrives after all loads that `zero` was made of are answered. `zero` is 0, which the compiler does not know. Loads
 * from shared memory are answered later than they are issued, and a plain arrival may pass them: the next copy,
 * hundreds of cycles later, has been seen to overwrite a tile before a warp had read it. */
DEV void mbar_arrive_answered(smem bar, u32 zero) { mbar_arrive(bar + zero); }

/* Tests like mbar_test, but may put the thread to sleep for a while. */
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

/* Asks the L2 cache for memory that a later launch reads. `bytes` is a multiple of 16. Does nothing on GPUs without
 * bulk copies. */
DEV void l2_prefetch(const void *p, u32 bytes) {
#if G_COPY == 2
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#else
    (void)p, (void)bytes;
#endif
}

/* How many lanes of a producer warp call ring_fill together. */
enum { FILL_LANES = G_COPY == 2 ? 1 : 32 };

#if G_COPY < 2
/* FILL_LANES lanes copy together. The copy is a part of what the lane's next arrival at a barrier stands for. */
DEV void ring_copy(smem dst, const void *src, u32 bytes) {
#if G_COPY == 1
    _Pragma("unroll 4") for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512) asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + i), "l"((const u8 *)src + i) : "memory");
#else
    _Pragma("unroll 8") for (u32 i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
        struct quad v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const u8 *)src + i));
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(dst + i), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    }
#endif
}
#endif

/* Starts a copy of `bytes` (a multiple of 16, or 0) from global memory. When the copy has landed, one phase of the
 * barrier is complete; the barrier was made for FILL_LANES arrivals. The copy goes past L1, which does not see other
 * SMs' stores. */
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
    ring_copy(dst, src, bytes);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#else
    ring_copy(dst, src, bytes);
    mbar_arrive(bar);
#endif
}

/* Starts one more copy, of more than 0 bytes, for the phase of the barrier that a ring_fill after it, by the same
 * lanes, completes. */
DEV void ring_add(smem dst, const void *src, u32 bytes, smem bar) {
#if G_COPY == 2
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar)
                 : "memory");
#else
    (void)bar;
    ring_copy(dst, src, bytes);
#endif
}

/* ---- between blocks ---- */

/* An exchange word goes in one relaxed access of 8 bytes, so a reader sees its payload and its epoch together. With
 * several GPUs others store into this GPU's words. */
#if P_GPUS > 1
#define WORD_LOAD "ld.relaxed.sys.global"
#else
#define WORD_LOAD "ld.relaxed.gpu.global"
#endif
DEV void word_store(u64 *p, u64 v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
/* Store in another GPU's memory. */
DEV void peer_store(u64 *p, u64 v) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEV void peer_store32(u32 *p, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEV u64 word_load(const u64 *p) {
    u64 v;
    asm volatile(WORD_LOAD ".u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
/* Loads two neighbouring words; the first one's address is a multiple of 16. The caller checks the epoch of each word
 * by itself. */
DEV void word_load2(const u64 *p, u64 *a, u64 *b) {
    asm volatile(WORD_LOAD ".v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
}
/* Loads the same as four registers: the low and the high half of each word. */
DEV struct quad word_load4(const u64 *p) {
    struct quad q;
    asm volatile("{ .reg .b64 a, b; " WORD_LOAD ".v2.u64 {a, b}, [%4]; mov.b64 {%0, %1}, a; mov.b64 {%2, %3}, b; }"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "l"(p)
                 : "memory");
    return q;
}

/* ---- fences ---- */

/* For all blocks, this thread's accesses before the fence, and those that it has observed, come before its accesses
 * after the fence. */
DEV void fence_gpu(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
/* Lets bulk copies that are issued from here on see what ordinary accesses have seen. */
DEV void fence_copies(void) {
#if G_COPY == 2
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/* Called before this thread gives back a slot that it has stored to itself: the next bulk copy into the slot then comes
 * after those stores. */
DEV void fence_slot(void) {
#if G_COPY == 2
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- mapped memory, which the host sees too ---- */

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
DEV u64 mapped_load64(const volatile u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
DEV void fence_system(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/* No other thread of the launch comes between the read and the write of these two. plain_claim stores v where there was
 * 0, and returns what was there. */
#if P_GPUS > 1
DEV u32 plain_claim(u32 *p, u32 v) { return atomicCAS_system(p, 0u, v); }
#else
DEV u32 plain_claim(u32 *p, u32 v) { return atomicCAS(p, 0u, v); }
#endif
DEV void plain_add32(u32 *p, u32 v) { (void)atomicAdd(p, v); }

#endif

/* ---- made of the above, the same on both sides ---- */

/* Returns v, of which the compiler then knows nothing: what is computed from it cannot move out of a loop. */
DEV int opaque(int v) {
#if !defined(REEL_SIM)
    asm volatile("" : "+r"(v));
#endif
    return v;
}

/* The compiler moves no load or store across this call: what is loaded after it needs no registers before it. */
DEV void loads_stay(void) {
#if !defined(REEL_SIM)
    asm volatile("" ::: "memory");
#endif
}

/* Whether `yes` holds for all lanes that fill, so that they all go the same way. */
DEV int fill_all(int yes) { return FILL_LANES == 1 ? yes : warp_all(yes); }

/* Waits for a copy. A copy always lands, also in a launch that gave up, so this wait needs no bound. */
DEV void copy_wait(smem bar, u32 parity) {
    while (!mbar_test(bar, parity)) {
    }
}

/* An exchange word has 32 bits of payload and above them 32 bits of epoch. The other kind has two values of 24 bits and
 * above them 16 bits of epoch. */
DEV u64 word_make(u32 payload, u32 epoch) { return (u64)epoch << 32 | payload; }
DEV int word_is(u64 word, u32 epoch) { return (u32)(word >> 32) == epoch; }
DEV u64 word_make24(float low, float high, u32 epoch) { return (u64)(epoch & 0xffffu) << 48 | float24_pair(low, high); }
DEV int word_is24(u64 word, u32 epoch) { return (u32)(word >> 48) == (epoch & 0xffffu); }

/* In what a word's epoch differs from the one that is waited for: 0 where the word is there. Who waits for several
 * words takes the bits of all together and looks at them once; comparisons of each would wait for one another. */
DEV u32 word_off(u64 word, u32 epoch) { return (u32)(word >> 32) ^ epoch; }
DEV u32 word_off24(u64 word, u32 epoch) { return ((u32)(word >> 32) ^ epoch << 16) >> 16; }

#endif
