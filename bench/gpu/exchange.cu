/* Question (a): what one exchange costs, alone and beside a weight stream.
 * A chain of rounds: publish this SM's words, poll the reader set's words, one block barrier, next
 * round. */
#include "shape.cuh"

struct args {
    u64 *words;                /* [2][32768] */
    int rounds, per_sm, group; /* words an SM publishes; SMs in a closed reader set */
    int stagger;               /* clocks between the polls in flight */
    int producers;
    stream s;
    u32 l2_ahead, l2_unit; /* bytes kept in front by a prefetching warp, 0 = none */
    u64 *bytes, *ns;       /* per block: streamed bytes; duration */
    u32 *errors;
};

__device__ static u32 payload(int round, int index) { return (u32)(round * 7919 + index * 31); }

/* L loads a lane of V words each, PF polls in flight. Returns when a whole snapshot carries the
 * epoch. */
template <int L, int V, int PF>
__device__ static void gather(const u64 *words, int n, u32 epoch, int stagger, u64 (&out)[L * V],
                              watch *w) {
    u64 v[PF][L * V];
    auto load = [&](u64(&s)[L * V]) {
#pragma unroll
        for (int i = 0; i < L; i++) {
            int at = (i * CONSUMER_THREADS + (int)threadIdx.x) * V;
            if (at < n) {
                if constexpr (V == 1)
                    s[i] = word_load(words + at);
                else
                    word_load2(words + at, &s[i * V], &s[i * V + 1]);
            } else {
#pragma unroll
                for (int j = 0; j < V; j++)
                    s[i * V + j] = word_make(0, epoch);
            }
        }
    };
#pragma unroll
    for (int p = 0; p < PF; p++) {
        if (p)
            for (u32 t = now_clk(); now_clk() - t < (u32)stagger;) {
            }
        load(v[p]);
    }
#pragma unroll 1
    for (;;) {
#pragma unroll
        for (int p = 0; p < PF; p++) {
            bool ok = true;
#pragma unroll
            for (int i = 0; i < L * V; i++)
                ok &= (u32)(v[p][i] >> 32) == epoch;
            if (__all_sync(~0u, ok) || !watch_spin(w, POLL_COST)) {
#pragma unroll
                for (int i = 0; i < L * V; i++)
                    out[i] = v[p][i];
                return;
            }
            load(v[p]);
        }
    }
}

template <int L, int V, int PF> __global__ void __launch_bounds__(640, 1) exchange(args a) {
    extern __shared__ __align__(128) char ring[];
    __shared__ u64 full[4][32];
    __shared__ volatile int stop;
    __shared__ volatile u32 issued;
    watch w = { PATIENCE };
    int warp = (int)threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 128; i++)
            mbar_init(&full[i / 32][i % 32], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        stop = 0, issued = 0;
    }
    __syncthreads();
    if (warp >= N_CONSUMERS) {
        int p = warp - N_CONSUMERS;
        w.left = 8 * PATIENCE;
        if (a.l2_ahead && p == 1 && threadIdx.x % 32 == 0)
            prefetch_run(&a.s, a.s.base + (size_t)blockIdx.x * a.s.span, a.l2_ahead, a.l2_unit,
                         &stop, &issued, &w);
        if (threadIdx.x % 32 == 0 && a.s.slots > 0 && p < a.producers) {
            size_t lane = (size_t)blockIdx.x * a.producers + p;
            u64 n =
                stream_run(&a.s, a.s.base + lane * a.s.span,
                           ring + (size_t)p * a.s.slots * a.s.piece, full[p], &stop, &issued, &w);
            atomicAdd(&a.bytes[blockIdx.x], n);
        }
        return;
    }
    for (u64 t = now_ns(); now_ns() - t < 20000;) {
    } /* let the stream reach its depth */
    u64 t0 = now_ns();
    int set = (int)blockIdx.x / a.group * a.group * a.per_sm, n = a.group * a.per_sm;
    u32 bad = 0;
    for (int r = 1; r <= a.rounds && w.left > 0; r++) {
        u64 *buf = a.words + (r & 1) * 32768;
        if ((int)threadIdx.x < a.per_sm) {
            int at = (int)blockIdx.x * a.per_sm + (int)threadIdx.x;
            word_store(buf + at, word_make(payload(r, at), (u32)r));
        }
        u64 got[L * V];
        gather<L, V, PF>(buf + set, n, (u32)r, a.stagger, got, &w);
#pragma unroll
        for (int i = 0; i < L * V; i++) {
            int at = (i / V * CONSUMER_THREADS + (int)threadIdx.x) * V + i % V;
            bad += at < n && (u32)got[i] != payload(r, set + at);
        }
        bar_sync(1, CONSUMER_THREADS);
    }
    if (threadIdx.x == 0) a.ns[blockIdx.x] = now_ns() - t0, stop = 1;
    if (bad || w.left <= 0) atomicAdd(a.errors, w.left <= 0 ? 1000000u : 1u);
}

static const char *pool;
static args base;

struct load {
    int cap_kb, piece_kb, producers, pace, l2_ahead_kb, l2_unit_kb;
};

static void measure(const void *k, const char *name, int blocks, int V, int PF, int words,
                    int group, load x, int stagger) {
    args a = base;
    a.rounds = 2000, a.group = group, a.per_sm = words / group, a.stagger = stagger,
    a.producers = x.producers;
    a.l2_ahead = (u32)x.l2_ahead_kb * 1024, a.l2_unit = (u32)x.l2_unit_kb * 1024;
    a.s.piece = (u32)x.piece_kb * 1024, a.s.slots = x.cap_kb / x.piece_kb / x.producers,
    a.s.pace = x.pace;
    a.s.base = pool,
    a.s.span = !strcmp(name, "l2hit") ? 128u << 10 : (u32)((9u << 20) / (u32)x.producers);
    double us[3], tbs[3];
    for (int rep = 0; rep < 3; rep++) {
        u64 ns[132], bytes[132], total = 0, longest = 0;
        u32 errors = 0;
        CK(cudaMemset(a.words, 0, 2 * 32768 * 8)), CK(cudaMemset(a.bytes, 0, 132 * 8)),
            CK(cudaMemset(a.errors, 0, 4));
        launch_timed(k, blocks, 640, (size_t)x.cap_kb * 1024 + 1024, &a);
        CK(cudaMemcpy(ns, a.ns, sizeof ns, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(bytes, a.bytes, sizeof bytes, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(&errors, a.errors, 4, cudaMemcpyDeviceToHost));
        if (errors) {
            printf("%s,FAILED,%u\n", name, errors);
            return;
        }
        for (int i = 0; i < blocks; i++)
            total += bytes[i], longest = ns[i] > longest ? ns[i] : longest;
        us[rep] = (double)longest / 1e3 / a.rounds,
        tbs[rep] = (double)total / (double)(longest + 20000) / 1e3;
    }
    int m = 0; /* the median of three */
    for (int i = 0; i < 3; i++)
        if ((us[i] >= us[(i + 1) % 3]) != (us[i] >= us[(i + 2) % 3])) m = i;
    printf("%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%.3f,%.2f\n", name, blocks, words, group, V * 8, PF,
           x.cap_kb, x.piece_kb, x.producers, x.pace, x.l2_ahead_kb, x.l2_unit_kb, us[m], tbs[m]);
    fflush(stdout);
}

#define RUN(name, L, V, PF, words, group, ...)                                                     \
    measure((const void *)exchange<L, V, PF>, name, group == 132 ? 132 : 128, V, PF, words, group, \
            __VA_ARGS__)

/* The five edges' kinds beside one load. */
static void kinds(const char *name, load x) {
    RUN(name, 1, 1, 1, 512, 128, x, 0);
    RUN(name, 2, 1, 1, 1024, 128, x, 0);
    RUN(name, 1, 2, 1, 1024, 128, x, 0);
    RUN(name, 2, 2, 1, 1536, 128, x, 0);
    RUN(name, 4, 2, 1, 4096, 128, x, 0);
    RUN(name, 8, 2, 1, 8192, 128, x, 0);
    RUN(name, 1, 1, 1, 256, 16, x, 0);
    RUN(name, 8, 1, 1, 4096, 16, x, 0);
    RUN(name, 1, 1, 1, 64, 2, x, 0);
}

int main() {
    char *p;
    CK(cudaMalloc(&p, (size_t)132 * (9u << 20) + (1u << 20)));
    fill_bf16<<<1024, 256>>>((u32 *)p, (size_t)132 * (9u << 20) / 4, 0.03f, 1);
    pool = p;
    CK(cudaMalloc(&base.words, 2 * 32768 * 8)), CK(cudaMalloc(&base.bytes, 132 * 8)),
        CK(cudaMalloc(&base.ns, 132 * 8));
    CK(cudaMalloc(&base.errors, 4));
    printf("bench,sms,words,readers,load_bytes,polls,cap_kb,piece_kb,producers,pace_clk,l2_ahead_"
           "kb,l2_unit_kb,us,tb_s\n");
    kinds("warm", { 0, 8, 1, 0, 0, 0 });
    for (int cap : { 0, 8, 16, 24, 32, 48, 64 }) { /* no prefetch: the cap decides */
        load x = { cap, 8, 1, 0, 0, 0 };
        kinds("kind", x);
        RUN("polls", 1, 1, 2, 512, 128, x, 200);
        RUN("polls", 1, 1, 4, 512, 128, x, 100);
        RUN("polls", 1, 1, 2, 256, 16, x, 200);
        RUN("polls", 1, 1, 2, 64, 2, x, 200);
    }
    static const load shapes[] = { { 16, 4, 2 },  { 24, 4, 2 },  { 32, 4, 2 }, { 32, 4, 4 },
                                   { 32, 16, 1 }, { 64, 16, 1 }, { 64, 8, 2 } };
    for (const load &x : shapes)
        RUN("piece", 1, 1, 1, 512, 128, x, 0);
    /* pieces leave on a clock, the cap is only a safety net */
    for (int pace : { 640, 700, 830, 1040 })
        RUN("pace", 1, 1, 1, 512, 128, (load{ 64, 8, 1, pace, 0, 0 }), 0);
    /* where the queue stands: the same bytes in flight, all found in L2 */
    for (int cap : { 16, 32, 64 })
        RUN("l2hit", 1, 1, 1, 512, 128, (load{ cap, 8, 1, 0, 0, 0 }), 0);
    RUN("l2hit", 1, 1, 1, 512, 128, (load{ 64, 8, 2, 0, 0, 0 }), 0);
    RUN("l2hit", 1, 1, 1, 512, 128, (load{ 64, 16, 1, 0, 0, 0 }), 0);
    /* HBM to L2 by a prefetching warp, L2 to shared memory with few bytes in flight */
    for (int unit : { 4, 8, 16, 32 })
        for (int ahead : { 16, 32, 64, 128, 256 })
            if (ahead >= unit)
                RUN("prefetch", 1, 1, 1, 512, 128, (load{ 24, 8, 1, 0, ahead, unit }), 0);
    for (int ahead : { 32, 64, 128 }) {
        RUN("prefetch", 1, 1, 1, 512, 128, (load{ 16, 8, 1, 0, ahead, 8 }), 0);
        RUN("prefetch", 1, 1, 1, 512, 128, (load{ 32, 8, 1, 0, ahead, 8 }), 0);
        RUN("prefetch", 1, 1, 1, 512, 128, (load{ 32, 16, 1, 0, ahead, 16 }), 0);
        RUN("prefetch", 1, 1, 1, 512, 128, (load{ 48, 16, 1, 0, ahead, 16 }), 0);
        RUN("prefetch", 1, 1, 1, 512, 128, (load{ 64, 16, 1, 0, ahead, 16 }), 0);
    }
    kinds("prefetch", { 24, 8, 1, 0, 64, 8 });
    kinds("prefetch", { 32, 16, 1, 0, 64, 16 });
    kinds("prefetch", { 48, 16, 1, 0, 128, 16 });
    for (int cap : { 0, 16, 32 })
        RUN("sms132", 1, 2, 1, 528, 132, (load{ cap, 8, 1, 0, 0, 0 }), 0);
    return 0;
}
