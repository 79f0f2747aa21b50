/* What this machine's cores can do, found at run time. */
#ifndef REEL_BASE_CPU_FEATURES_H
#define REEL_BASE_CPU_FEATURES_H

#include <stdbool.h>

struct cpu_features {
    bool avx2;   /* with FMA, F16C and BMI2 */
    bool avx512; /* F, BW, VL, DQ, BF16, VBMI, VNNI: from Zen 4 and Sapphire Rapids on */
    bool amx; /* avx512, tiles with bf16 and 8-bit integers, and the kernel grants the tile state */
    bool neon;
};

/* Asks the operating system for the AMX tile state where the cores have it: that permission is per
 * process, lasts, and costs nothing until a tile is touched. */
void cpu_features_detect(struct cpu_features *features);

#endif
