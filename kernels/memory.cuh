/* Loads and stores of global memory that carry no flag of their own. A load finds what another thread wrote
 * only after a fence (sync.cuh), or where it was there before the launch. */
#ifndef REEL_KERNELS_MEMORY_CUH
#define REEL_KERNELS_MEMORY_CUH

#include "prelude.cuh"

#if defined(REEL_SIM)
#include "sim_device.h"
#else

/* ---- memory that others write or read ---- */

/* For plain data that another block, or this block at a later token, reads after a fence: rows of K and V, logits. */
DEV void plain_store32(u32 *p, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEV void plain_store16(u16 *p, u16 v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory"); }
DEV void plain_store8(u8 *p, u32 v) { asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEV void plain_store64(struct pair *p, struct pair v) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.low), "r"(v.high) : "memory");
}
DEV void plain_store128(struct quad *p, struct quad v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
DEV u32 plain_load32(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* These two loads may be answered by L1, which may hold an old version of what other blocks write meanwhile. */
DEV u32 cached_load32(const u32 *p) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV struct pair cached_load64(const struct pair *p) {
    struct pair v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.low), "=r"(v.high) : "l"(p) : "memory");
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

/* Loads 16 bytes that no other thread writes in this launch. They are used once, so they take no place in L1. */
DEV struct quad own_load128(const struct quad *p) {
    struct quad v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

/* Asks for the line at p, which will be loaded soon; it comes into L2. */
DEV void l2_ask(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

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

DEV u64 const_load64(const u64 *p) {
    u64 v;
    asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(v) : "l"(p));
    return v;
}

/* Loads 16 bytes that are used once, so they take no place in L1. Without `there` it loads nothing and returns 0. */
DEV struct quad const_load128(const void *p, int there) {
    struct quad v;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0;\n"
                 "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(p), "r"(there));
    return v;
}

#endif

#endif
