#define _GNU_SOURCE /* syscall */
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };

static bool leaf(unsigned number, unsigned sub, unsigned reg[4]) {
    return __get_cpuid_count(number, sub, &reg[EAX], &reg[EBX], &reg[ECX], &reg[EDX]) != 0;
}

static bool all(unsigned reg, const int *bits, int n) {
    for (int i = 0; i < n; i++)
        if (!(reg >> bits[i] & 1)) return false;
    return true;
}
#define ALL(reg, ...)                                                                              \
    all(reg, (const int[]){ __VA_ARGS__ }, (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)))

/* XCR0: which register states the operating system saves. */
static uint64_t saved_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool grant_tiles(void) {
#ifdef SYS_arch_prctl
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

void cpu_features_detect(struct cpu_features *features) {
    *features = (struct cpu_features){ 0 };
    unsigned one[4], seven[4], seven_one[4] = { 0 };
    if (!leaf(1, 0, one) || !leaf(7, 0, seven)) return;
    if (!ALL(one[ECX], 27 /* OSXSAVE */)) return;
    if (seven[EAX] >= 1) leaf(7, 1, seven_one);
    uint64_t saved = saved_states();
    const uint64_t ymm = 0x6, zmm = 0xe6, tiles = 0x60000;

    features->avx2 = (saved & ymm) == ymm &&
                     ALL(one[ECX], 12 /* FMA */, 28 /* AVX */, 29 /* F16C */) &&
                     ALL(seven[EBX], 5 /* AVX2 */, 8 /* BMI2 */);
    features->avx512 = features->avx2 && (saved & zmm) == zmm &&
                       ALL(seven[EBX], 16 /* F */, 17 /* DQ */, 30 /* BW */, 31 /* VL */) &&
                       ALL(seven[ECX], 1 /* VBMI */, 11 /* VNNI */) &&
                       ALL(seven_one[EAX], 5 /* BF16 */);
    features->amx = features->avx512 && (saved & tiles) == tiles &&
                    ALL(seven[EDX], 22 /* AMX-BF16 */, 24 /* AMX-TILE */, 25 /* AMX-INT8 */) &&
                    grant_tiles();
}

#else

void cpu_features_detect(struct cpu_features *features) {
    *features = (struct cpu_features){ 0 };
#if defined(__aarch64__)
    features->neon = true; /* part of the base architecture */
#endif
}

#endif
