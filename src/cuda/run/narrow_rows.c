#include "cuda/run/narrow_rows.h"

#include "kernels/tile_format.h"

#include <string.h>

static void put_number(unsigned char *to, int format, float x) {
    const uint16_t half = TILE_SCALE(format) == TILE_SCALE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
    if (TILE_SCALE(format) == TILE_SCALE_F32)
        memcpy(to, &x, sizeof x);
    else
        memcpy(to, &half, sizeof half);
}

/* A row's scales or offsets, each for as many groups of the format as one of the file's has. */
static void put_numbers(unsigned char *row, int format, int columns, int number,
                        const struct matrix_codes *codes, const float *values) {
    const int group = TILE_K << TILE_GROUP(format);
    for (int i = 0; i < tile_groups(format, columns); i++) {
        const int of_file = codes->group ? i * group / codes->group : 0;
        put_number(row + tile_staged_at(format, columns, number, i), format, values[of_file]);
    }
}

/* The integers that codes of a table name, where the format joins them with others. */
static void codes_turn(const struct matrix_codes *codes, int format, int n, signed char *row) {
    if (codes->type != CODE_IQ4 || TILE_CODE(format) == TILE_IQ4) return;
    for (int i = 0; i < n; i++)
        row[i] = dtype_iq4_values[row[i]];
}

/* Offsets as the format has them: minima where it joins these with zero points. */
static void offsets_turn(int format, const struct matrix_codes *codes, int n, const float *scales,
                         float *offsets) {
    for (int i = 0; i < n; i++) {
        if (codes->offsets == OFFSETS_NONE) offsets[i] = 0;
        if (codes->offsets == OFFSETS_ZEROS && TILE_OFFSETS(format) == TILE_MINIMA)
            offsets[i] *= -scales[i];
    }
}

/* Steps for as many groups of the format as one of the file's has, and units for its tiles. */
static void stage_steps(const struct matrix *m, const struct matrix_codes *codes, int r, int format,
                        float *numbers, unsigned char *to) {
    const int n = matrix_code_groups(codes, m->columns), n_units = m->columns / codes->unit;
    const int group = TILE_K << TILE_GROUP(format), width = TILE_K * TILE_PARTS(format);
    float *units = numbers;
    signed char *steps = (signed char *)(numbers + (ptrdiff_t)2 * n_units);
    matrix_codes_steps(m, r, (signed char *)to, steps, units);
    codes_turn(codes, format, m->columns, (signed char *)to);
    for (int number = 0; number < TILE_NUMBERS(format); number++) {
        for (int i = 0; i < tile_groups(format, m->columns); i++)
            to[tile_staged_at(format, m->columns, number, i)] =
                (unsigned char)steps[number * n + i * group / codes->group];
        for (int i = 0; i < tile_units(format, m->columns); i++) {
            const uint16_t half = f16_from_f32(units[number * n_units + i * width / codes->unit]);
            memcpy(to + tile_staged_unit_at(format, m->columns, number, i), &half, sizeof half);
        }
    }
}

void narrow_row_stage(const struct matrix *m, const struct matrix_codes *codes, int r, int format,
                      float *numbers, unsigned char *to) {
    const int n = matrix_code_groups(codes, m->columns);
    float *scales = numbers, *offsets = numbers + n;
    if (TILE_STEPS(format)) {
        stage_steps(m, codes, r, format, numbers, to);
        return;
    }
    matrix_codes_row(m, r, (signed char *)to, scales, offsets);
    codes_turn(codes, format, m->columns, (signed char *)to);
    for (int i = 0; TILE_DIGITS(format) > 1 && i < n; i++)
        scales[i] /= tile_table_one(format);
    offsets_turn(format, codes, n, scales, offsets);
    put_numbers(to, format, m->columns, 0, codes, scales);
    if (TILE_OFFSETS(format)) put_numbers(to, format, m->columns, 1, codes, offsets);
}
