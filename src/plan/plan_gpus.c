/* The GPUs that a plan can be made for without one, from the vendor's tables. Shared memory is
 * what one block may have, opt-in. */
#include "plan/plan.h"

#include <string.h>

#define GB ((uint64_t)1 << 30)

/* clang-format off */
static const struct gpu_limits gpus[] = {
    { "t4",        75,  40,  64 << 10, 65536, 1024,  16 * GB, 1 },
    { "rtx2080ti", 75,  68,  64 << 10, 65536, 1024,  11 * GB, 1 },
    { "a100",      80, 108, 163 << 10, 65536, 1024,  80 * GB, 1 },
    { "rtx3090",   86,  82,  99 << 10, 65536, 1024,  24 * GB, 1 },
    { "rtx4090",   89, 128,  99 << 10, 65536, 1024,  24 * GB, 1 },
    { "h100",      90, 132, 227 << 10, 65536, 1024,  80 * GB, 1 },
    { "h200",      90, 132, 227 << 10, 65536, 1024, 141 * GB, 1 },
    { "b200",     100, 148, 227 << 10, 65536, 1024, 180 * GB, 1 },
    { "rtx5090",  120, 170,  99 << 10, 65536, 1024,  32 * GB, 1 },
    /* made up, for the simulator */
    { "test4",     90,   4, 227 << 10, 65536, 1024,   1 * GB, 1 },
    { "test8",     90,   8, 227 << 10, 65536, 1024,   1 * GB, 1 },
};
/* clang-format on */

const char *const plan_known_gpus =
    "t4, rtx2080ti, a100, rtx3090, rtx4090, h100, h200, b200, rtx5090, test4, test8";

const struct gpu_limits *plan_known_gpu(const char *name) {
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (strcmp(gpus[i].name, name) == 0) return &gpus[i];
    return NULL;
}
