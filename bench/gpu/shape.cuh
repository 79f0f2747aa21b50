/* What the shape benches share: bounded waits, mbarriers and bulk copies, exchange words, a
 * free-running weight stream, and the host's error checks. Throw-away code: one file a question,
 * one binary each. */
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

typedef unsigned long long u64;
typedef uint32_t u32;

enum { PIECE = 8192, N_CONSUMERS = 16, CONSUMER_THREADS = 512 };

#define CK(call) cuda_check(call, #call, __FILE__, __LINE__)

static void cuda_check(cudaError_t e, const char *call, const char *file, int line) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s:%d %s: %s\n", file, line, call, cudaGetErrorString(e));
    exit(1);
}

__device__ static u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__device__ static u32 now_clk() {
    u32 t;
    asm volatile("mov.u32 %0, %clock;" : "=r"(t));
    return t;
}

/* A thread's patience: every failed poll takes from it and once it is gone (about half a second)
 * all waits fall through, so a deadlock ends as a kernel that reports itself instead of a lost
 * machine. */
struct watch {
    int left;
};

enum { PATIENCE = 20000000, POLL_COST = 16, MBAR_COST = 1 };

__device__ static bool watch_spin(watch *w, int cost) { return (w->left -= cost) > 0; }

__device__ static u32 smem_addr(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ static void mbar_init(u64 *bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count) : "memory");
}

__device__ static void mbar_arrive(u32 bar, int count) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ static bool mbar_done(u32 bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return ok;
}

/* Never suspends the thread, unlike mbar_done. */
__device__ static bool mbar_test(u32 bar, u32 parity) {
    u32 ok;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ok)
        : "r"(bar), "r"(parity)
        : "memory");
    return ok;
}

__device__ static void mbar_wait(u32 bar, u32 parity, watch *w) {
#pragma unroll 1
    while (!mbar_done(bar, parity) && watch_spin(w, MBAR_COST)) {
    }
}

/* The same for threads that are not the producer: a short sleep leaves it the issue slots. */
__device__ static void mbar_wait_idle(u32 bar, u32 parity, watch *w) {
    while (!mbar_done(bar, parity) && watch_spin(w, MBAR_COST))
        __nanosleep(20);
}

/* A shared address the compiler keeps in a register: it would rather rebuild it from special
 * registers at every use, some 100 clocks each time, and a producer's rate is its instructions'
 * latencies in sequence. */
__device__ static u32 smem_addr_kept(const void *p) {
    u32 a;
    asm volatile("mov.u32 %0, %1;" : "=r"(a) : "r"(smem_addr(p)));
    return a;
}

/* Global to shared memory, complete_tx on bar; all shared addresses. bytes is a multiple of 16. */
__device__ static void bulk_load(u32 dst, const void *src, u32 bytes, u32 bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(dst),
        "l"(src), "r"(bytes), "r"(bar)
        : "memory");
}

/* An exchange word: payload in the low half, epoch in the high half. */
__device__ static u64 word_make(u32 payload, u32 epoch) { return (u64)epoch << 32 | payload; }

__device__ static void word_store(u64 *p, u64 v) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ static u64 word_load(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

__device__ static void word_load2(const u64 *p, u64 *a, u64 *b) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*a), "=l"(*b)
                 : "l"(p)
                 : "memory");
}

__device__ static void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static void bar_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* A weight stream nobody reads: the load under which exchanges are measured. */
struct stream {
    const char *base; /* per SM and producer: span bytes */
    u32 span, piece;
    int slots; /* pieces in flight a producer */
    int pace;  /* clocks between pieces a producer, 0 = as fast as the cap allows */
};

__device__ static u64 stream_run(const stream *s, const char *tape, char *ring, u64 *full,
                                 volatile int *stop, volatile u32 *issued, watch *w) {
    u32 pos = 0, next = now_clk() + (u32)(blockIdx.x * 37 % 128) * (u32)(s->pace + 1) / 128;
    u32 ring0 = smem_addr_kept(ring), full0 = smem_addr_kept(full);
    u64 n = 0;
    int head = 0, tail = 0, flying = 0;
    u32 phase = 0; /* parity of the slot at tail */
    while (!*stop && w->left > 0) {
        if (flying == s->slots) {
            mbar_wait(full0 + (u32)tail * 8, phase, w);
            if (++tail == s->slots) tail = 0, phase ^= 1;
            flying--;
        }
        if (s->pace) {
            while ((int)(now_clk() - next) < 0) {
            }
            next += (u32)s->pace;
            if ((int)(now_clk() - next) > 8 * s->pace) next = now_clk();
        }
        bulk_load(ring0 + (u32)head * s->piece, tape + pos, s->piece, full0 + (u32)head * 8);
        if (++head == s->slots) head = 0;
        flying++;
        pos += s->piece;
        if (pos + s->piece > s->span) pos = 0;
        n += s->piece, *issued = (u32)n;
    }
    for (; flying > 0; flying--) {
        mbar_wait(full0 + (u32)tail * 8, phase, w);
        if (++tail == s->slots) tail = 0, phase ^= 1;
    }
    return n;
}

/* Another warp's share of the stream: keeps L2 ahead bytes in front of what was issued, unit bytes
 * at a time. */
__device__ static void prefetch_run(const stream *s, const char *tape, u32 ahead, u32 unit,
                                    volatile int *stop, volatile u32 *issued, watch *w) {
    u32 pos = 0;
    for (u32 n = 0; !*stop && watch_spin(w, 1);) {
        if ((int)(n - *issued) >= (int)ahead) continue;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(tape + pos), "r"(unit)
                     : "memory");
        n += unit, pos += unit;
        if (pos + unit > s->span) pos = 0;
    }
}

/* One bf16 m16n8k16 product; d accumulates. */
__device__ static void mma(float d[4], uint4 a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ static u32 bf16_pair(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

__device__ static u32 hash32(u32 x) {
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Pair i of a filled array: uniform in +-scale. */
__device__ static u32 fill_pair(size_t i, float scale, u32 seed) {
    u32 h = hash32((u32)i * 2654435761u ^ seed);
    return bf16_pair(scale * ((float)(h & 0xffff) / 32768.0f - 1.0f),
                     scale * ((float)(h >> 16) / 32768.0f - 1.0f));
}

__global__ static void fill_bf16(u32 *p, size_t n, float scale, u32 seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = fill_pair(i, scale, seed);
}

/* Cooperative launch timed with events; returns milliseconds. */
static float launch_timed(const void *kernel, int blocks, int threads, size_t smem, void *arg) {
    cudaEvent_t a, b;
    float ms = 0;
    CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem));
    CK(cudaEventCreate(&a)), CK(cudaEventCreate(&b));
    void *args[] = { arg };
    CK(cudaEventRecord(a));
    CK(cudaLaunchCooperativeKernel(kernel, dim3((unsigned)blocks), dim3((unsigned)threads), args,
                                   smem, 0));
    CK(cudaEventRecord(b));
    CK(cudaEventSynchronize(b));
    CK(cudaEventElapsedTime(&ms, a, b));
    CK(cudaEventDestroy(a)), CK(cudaEventDestroy(b));
    return ms;
}
