/* The codes and scales of a matrix whose weights are narrow, whatever its file calls them: planes
 * (matrix.h) and the blocks of GGUF alike. A weight is worth scale * value, plus an offset where
 * there are minima, or scale * (value - offset) where offsets are zero points. */
#ifndef REEL_MODEL_MATRIX_CODES_H
#define REEL_MODEL_MATRIX_CODES_H

#include "model/matrix.h"

/* What a code is. Integers come as int8, whatever their bits. The codes of tables are 0 to 15 and
 * name GGUF's integers, dtype_iq4_values, or bitsandbytes' floats. */
enum code_type {
    CODE_INT8,
    CODE_INT4,
    CODE_UINT4,
    CODE_IQ4,
    CODE_NF4,
    CODE_FP4,
    CODE_E4M3,
    CODE_E2M1
};
enum code_offsets { OFFSETS_NONE, OFFSETS_MINIMA, OFFSETS_ZEROS };

struct matrix_codes {
    enum code_type type;
    int group;             /* columns that share a scale, a multiple of 16; 0: a whole row */
    enum plane_type scale; /* PLANE_F32, F16 or BF16: holds each scale and offset exactly */
    enum code_offsets offsets;
    int unit; /* not 0: a scale is a step, an integer of 8 bits, times a unit, an f16 that so many
                 columns share, a multiple of `group`; an offset has a step and a unit of its own */
};

/* False: the matrix is not narrow, or in a way that this does not know (an order of its columns, a
 * table of floats that is not bitsandbytes', zero points that are no integers, groups that are no
 * multiple of 16). Of GGUF's blocks all are known. */
bool matrix_codes(const struct matrix *m, struct matrix_codes *codes);
/* Row r, of a matrix for which matrix_codes is true: codes [columns], scales and offsets [groups of
 * the row]. Where there are no offsets theirs may be left as they are. */
void matrix_codes_row(const struct matrix *m, int r, signed char *codes, float *scales,
                      float *offsets);
/* The same where codes.unit is not 0: steps [2][groups], those of scales and those of offsets, and
 * units [2][columns / unit]. Without offsets theirs are 0. */
void matrix_codes_steps(const struct matrix *m, int r, signed char *codes, signed char *steps,
                        float *units);
/* The floats that codes of CODE_NF4 or CODE_FP4 name, [16]. */
const float *matrix_code_floats(enum code_type type);
static inline int matrix_code_groups(const struct matrix_codes *codes, int columns) {
    return codes->group ? (columns + codes->group - 1) / codes->group : 1;
}

#endif
