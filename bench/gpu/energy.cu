/* What moving weights costs in energy, whatever is made of them: streams a buffer from memory to
 * shared memory by bulk copies, as the decode kernel does, for two seconds a case, beside NVML's
 * count of joules.
 *
 *   nvcc -O3 -arch=sm_90a -std=c++17 bench/gpu/energy.cu -o energy -ldl && ./energy
 *
 * Cases: the copies alone; with warps that load what came; with one mma a tile of 512 bytes; from
 * L2 instead of memory; with fewer slots in flight, or fewer SMs; of zeros instead of random bf16.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <time.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        cudaError_t e = (x);                                                                       \
        if (e != cudaSuccess)                                                                      \
            return fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)), exit(1), 0;             \
    } while (0)

enum { SLOT = 16384, SLOTS = 8, WARPS = 8, THREADS = (WARPS + 1) * 32 };

__device__ unsigned smem_of(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t *bar, int n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_of(bar)), "r"(n));
}
__device__ void arrive(uint64_t *bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(smem_of(bar))
                 : "memory");
}
__device__ void wait(uint64_t *bar, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 "
                     "%0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(smem_of(bar)), "r"(parity)
                     : "memory");
}
__device__ void fill(void *to, const void *from, uint64_t *bar) {
    asm volatile(
        "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(smem_of(bar)),
        "r"((int)SLOT)
        : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_of(to)),
        "l"(from), "r"((int)SLOT), "r"(smem_of(bar))
        : "memory");
}

/* Each block streams its share of `slots` slots `rounds` times. work: 0 copies alone, 1 loads, 2
 * mma. */
__global__ void __launch_bounds__(THREADS)
    stream(const uint8_t *from, unsigned slots, int rounds, int work, int flying, unsigned *sink) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ uint64_t full[SLOTS], empty[SLOTS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int i = 0; i < SLOTS; i++)
            init(&full[i], 1), init(&empty[i], work ? WARPS : 1);
    __syncthreads();
    const unsigned mine = slots / gridDim.x, total = mine * (unsigned)rounds;
    const uint8_t *base = from + (size_t)blockIdx.x * mine * SLOT;
    if (warp == WARPS) {
        if (lane) return;
        unsigned at = 0;
        for (unsigned n = 0; n < total; n++) {
            const unsigned slot = n % SLOTS, lap = n / SLOTS;
            if (work) {
                if (lap) wait(&empty[slot], (lap - 1) & 1);
            }
            if (n >= (unsigned)flying) wait(&full[(n - flying) % SLOTS], (n - flying) / SLOTS & 1);
            fill(ring + slot * SLOT, base + (size_t)at * SLOT, &full[slot]);
            if (++at == mine) at = 0;
        }
        for (unsigned n = total < (unsigned)flying ? 0 : total - flying; n < total; n++)
            wait(&full[n % SLOTS], n / SLOTS & 1);
        return;
    }
    if (!work) return;
    unsigned seen = 0;
    float d[4] = { 0, 0, 0, 0 };
    for (unsigned n = 0; n < total; n++) {
        const unsigned slot = n % SLOTS;
        if (lane == 0) wait(&full[slot], n / SLOTS & 1);
        __syncwarp();
        for (int i = 0; i < SLOT / 512 / WARPS; i++) {
            const uint4 t =
                *(const uint4 *)(ring + slot * SLOT + (i * WARPS + warp) * 512 + lane * 16);
            if (work == 2)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                             "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                             : "r"(t.x), "r"(t.y), "r"(t.z), "r"(t.w), "r"(0x3f803f80u + lane),
                               "r"(0x3f803f80u + n));
            seen ^= t.x ^ t.y ^ t.z ^ t.w;
        }
        __syncwarp();
        if (lane == 0) arrive(&empty[slot]);
    }
    if ((seen ^ __float_as_uint(d[0] + d[1] + d[2] + d[3])) == 0x12345678u) *sink = seen;
}

__global__ void noise(uint16_t *p, size_t n, int zero) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 31, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 29;
        float a =
            (float)(int32_t)(x >> 32) * (0.03f / 2147483648.0f); /* about as large as weights are */
        p[i] = zero ? 0 : (uint16_t)(__float_as_uint(a) >> 16);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* NVML of the driver; its header is not everywhere. */
static void *device;
static int (*energy_of)(void *, unsigned long long *), (*clock_of)(void *, int, unsigned *);
static int nvml_open(void) {
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) return -1;
    int (*init_all)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    int (*first)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    energy_of =
        (int (*)(void *, unsigned long long *))dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    clock_of = (int (*)(void *, int, unsigned *))dlsym(lib, "nvmlDeviceGetClockInfo");
    return !init_all || !first || !energy_of || !clock_of || init_all() || first(0, &device);
}
static double joules(void) {
    unsigned long long mj = 0;
    energy_of(device, &mj);
    return mj * 1e-3;
}

static int run(const char *name, const uint8_t *buffer, size_t bytes, int blocks, int work,
               int flying, unsigned *sink) {
    const unsigned slots = (unsigned)(bytes / SLOT / blocks) * blocks;
    const int rounds = (int)(6e9 / ((double)slots * SLOT)) + 1;
    double start = 0, from = 0, moved = 0;
    for (int i = 0; i < 4; i++)
        stream<<<blocks, THREADS, SLOTS * SLOT>>>(buffer, slots, rounds, work, flying, sink);
    CHECK(cudaDeviceSynchronize());
    start = now(), from = joules();
    while (now() - start < 2) {
        for (int i = 0; i < 20; i++, moved += (double)slots * SLOT * rounds)
            stream<<<blocks, THREADS, SLOTS * SLOT>>>(buffer, slots, rounds, work, flying, sink);
        CHECK(cudaDeviceSynchronize());
    }
    const double s = now() - start, j = joules() - from;
    unsigned mhz = 0;
    clock_of(device, 1, &mhz);
    printf("%-34s %4d blocks %d in flight %7.1f GB/s %6.1f W %.4f J/GB  %u MHz\n", name, blocks,
           flying, moved / s * 1e-9, j / s, j / moved * 1e9, mhz);
    return 0;
}

int main(void) {
    const size_t bytes = (size_t)1536 << 20;
    uint8_t *buffer, *zeros;
    unsigned *sink;
    if (nvml_open()) return fprintf(stderr, "no NVML\n"), 1;
    CHECK(cudaMalloc(&buffer, bytes));
    CHECK(cudaMalloc(&zeros, bytes));
    CHECK(cudaMalloc(&sink, 4));
    noise<<<1024, 256>>>((uint16_t *)buffer, bytes / 2, 0);
    noise<<<1024, 256>>>((uint16_t *)zeros, bytes / 2, 1);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFuncSetAttribute(stream, cudaFuncAttributeMaxDynamicSharedMemorySize, SLOTS * SLOT));
    double t = now(), j = joules();
    struct timespec second = { 1, 0 };
    nanosleep(&second, NULL);
    printf("idle with a context: %.1f W\n", (joules() - j) / (now() - t));
    run("copies alone", buffer, bytes, 128, 0, 6, sink);
    run("copies alone", buffer, bytes, 128, 0, 2, sink);
    run("copies alone", buffer, bytes, 128, 0, 1, sink);
    run("copies alone", buffer, bytes, 64, 0, 6, sink);
    run("copies alone, zeros", zeros, bytes, 128, 0, 6, sink);
    run("copies alone, of 24 MB, from L2", buffer, (size_t)24 << 20, 128, 0, 2, sink);
    run("and loads", buffer, bytes, 128, 1, 6, sink);
    run("and mma", buffer, bytes, 128, 2, 6, sink);
    run("and mma", buffer, bytes, 128, 2, 2, sink);
    return 0;
}
