/* Models whose matrices have codes and scales, made in memory of a miniature's bf16 weights. Scales
 * are powers of two, so that every weight is also a bf16 number, but where they are UNEVEN. */
#ifndef REEL_TESTS_NARROW_MODEL_H
#define REEL_TESTS_NARROW_MODEL_H

#include "model/matrix.h"
#include "support/sim_model.h"

#include <stdbool.h>

/* How a matrix is coded. group 0: a row. */
struct narrow_form {
    enum {
        ROWS_INT8,
        Q4_1_BLOCKS,
        INT4_ZEROS,
        E4M3_BLOCKS,
        E2M1_GROUPS,
        INT8_ZEROS,
        INT4_GROUPS, /* without zero points */
        Q4_K_BLOCKS, /* rows of a multiple of 256 columns, as those that follow */
        Q6_K_BLOCKS,
        K_MIXED, /* every second matrix Q6_K, the others Q4_K */
        Q2_K_BLOCKS,
        Q3_K_BLOCKS,
        IQ4_XS_BLOCKS,
        K_MIXED_FEW, /* every second matrix Q3_K, the others Q2_K */
        NF4_GROUPS,  /* any columns again */
        FP4_GROUPS,
        WIDE,       /* it stays as it is */
        UNEVEN = 32 /* with any but the last: scales have as many bits as their type has room for */
    } kind;
    int group;
    enum plane_type scale;
};

/* qkv: also mix of a DeltaNet. */
struct narrow_forms {
    struct narrow_form qkv, out, gate_up, down, head;
};

/* What matrices become: codes, or in float32 what the codes are worth, or that rounded to bf16
 * where scales are UNEVEN. */
enum narrow_as { NARROW_CODES, NARROW_WORTH, NARROW_ROUNDED };
void narrow_model(struct reel_model *handle, const struct narrow_forms *forms, enum narrow_as as);
/* Loads the model into the fake GPU with weights that are narrow in memory; `options` as for
 * sim_model_load. */
enum reel_status narrow_model_load(struct sim_model *m, const struct narrow_forms *forms,
                                   const char *options, struct reel_error *err);
void narrow_free(void); /* what all of them are made of, after they are closed */

#endif
