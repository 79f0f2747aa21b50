/* A matrix with planes of what coded_find found. All words of the files are little-endian, as is
 * every machine that reel runs on, so that words whose lowest bits come first are rows of codes as
 * they lie. */
#include "model/coded.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* In AWQ's words of eight rows the codes stand in this order, lowest bits first. */
static const int awq_rows[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };

/* What coded_read allocates: one block. */
struct owned {
    struct matrix_planes *planes;
    float *table;
    unsigned char *codes;
    unsigned char *scales;
    unsigned char *zeros;
    int *order;
};

static size_t row_bytes(const struct coded_layer *c) {
    return (size_t)c->columns * (size_t)c->bits / 8;
}

static int blocks_across(const struct coded_layer *c) {
    return (c->columns + c->block_columns - 1) / c->block_columns;
}

static int blocks_down(const struct coded_layer *c) {
    return (c->rows + c->block_rows - 1) / c->block_rows;
}

static size_t scale_bytes(const struct coded_layer *c) {
    if (c->scales_order == SCALES_FLAT || c->scales_order == SCALES_NESTED) return sizeof(float);
    return c->scales.type == CODED_F32                                   ? 4
           : c->scales.type == CODED_F16 || c->scales.type == CODED_BF16 ? 2
                                                                         : 1;
}

static void place(const struct coded_layer *c, struct owned *o, struct carver *carver) {
    const size_t blocks = (size_t)blocks_across(c) * (size_t)blocks_down(c);
    o->planes = carve(carver, 1, sizeof *o->planes);
    if (c->table.data) o->table = carve(carver, 16, sizeof *o->table);
    if (c->codes_order != CODES_IN_ROWS) o->codes = carve(carver, (size_t)c->rows, row_bytes(c));
    if (c->scales_order != SCALES_IN_ROWS) o->scales = carve(carver, blocks, scale_bytes(c));
    if (c->zeros_order != ZEROS_NONE) o->zeros = carve(carver, blocks, 1);
    if (c->index.data) o->order = carve(carver, (size_t)c->columns, sizeof *o->order);
}

size_t coded_owned_bytes(const struct coded_layer *c) {
    struct owned o = { 0 };
    struct carver carver = { 0 };
    place(c, &o, &carver);
    return carver.overflow ? SIZE_MAX : carver.used;
}

/* ---- codes ----------------------------------------------------------------------------------- */

static uint32_t word_at(const struct coded_part *p, size_t i) {
    uint32_t word;
    memcpy(&word, p->data + i * sizeof word, sizeof word);
    return word;
}

/* Words [columns / a word, rows] become rows of words; tiles of both stay in cache. */
static void turn_words(const struct coded_layer *c, unsigned char *out) {
    enum { TILE = 16 };
    const size_t words = row_bytes(c) / 4, rows = (size_t)c->rows;
    for (size_t first = 0; first < rows; first += TILE)
        for (size_t w = 0; w < words; w++)
            for (size_t r = first; r < rows && r < first + TILE; r++)
                memcpy(out + r * row_bytes(c) + w * 4, c->codes.data + (w * rows + r) * 4, 4);
}

/* Words [columns, rows / 8], each with a code of eight rows. */
static void deal_words(const struct coded_layer *c, unsigned char *out) {
    const size_t across = (size_t)c->rows / 8, bytes = row_bytes(c);
    for (size_t w = 0; w < across; w++) {
        unsigned char *rows = out + 8 * w * bytes;
        for (size_t k = 0; k < (size_t)c->columns; k += 2) {
            const uint32_t even = word_at(&c->codes, k * across + w);
            const uint32_t odd = word_at(&c->codes, (k + 1) * across + w);
            for (int i = 0; i < 8; i++)
                rows[(size_t)awq_rows[i] * bytes + k / 2] =
                    (unsigned char)((even >> 4 * i & 15) | (odd >> 4 * i & 15) << 4);
        }
    }
}

static void put_codes(const struct coded_layer *c, unsigned char *out) {
    const size_t n = (size_t)c->rows * row_bytes(c);
    if (c->codes_order == CODES_DOWN_COLUMNS) turn_words(c, out);
    if (c->codes_order == CODES_DEALT) deal_words(c, out);
    if (c->codes_order == CODES_SIGNED)
        for (size_t i = 0; i < n; i++)
            out[i] = c->codes.data[i] ^ 0x80;
    if (c->codes_order == CODES_HIGH_FIRST)
        for (size_t i = 0; i < n; i++)
            out[i] = (unsigned char)(c->codes.data[i] >> 4 | c->codes.data[i] << 4);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static float float_at(const struct coded_part *p, size_t i) {
    float value;
    memcpy(&value, p->data + i * sizeof value, sizeof value);
    return value;
}

static const char *path_of(const struct tensor_file *file, const struct coded_part *p) {
    return file->map_names[p->file];
}

static enum reel_status refuse_value(const struct tensor_file *file, const struct coded_part *p,
                                     size_t i, double value, const char *allowed,
                                     struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": value %zu is %g, allowed is %s",
                   path_of(file, p), p->name, i, value, allowed);
}

static enum reel_status check_floats(const struct tensor_file *file, const struct coded_part *p,
                                     bool zeros, struct reel_error *err) {
    if (!p->data) return REEL_OK;
    for (size_t i = 0; i < p->n_bytes / sizeof(float); i++) {
        const float value = float_at(p, i);
        if (!isfinite(value) || (value == 0 && !zeros))
            return refuse_value(file, p, i, (double)value,
                                zeros ? "a finite number" : "a finite number other than 0", err);
    }
    return REEL_OK;
}

/* Value i of an array of scales as the file has them. */
static float scale_at(const struct coded_part *p, size_t i) {
    switch (p->type) {
    case CODED_F32:
        return float_at(p, i);
    case CODED_F16:
        return f16_to_f32((uint16_t)(p->data[2 * i] | p->data[2 * i + 1] << 8));
    case CODED_BF16:
        return bf16_to_f32((uint16_t)(p->data[2 * i] | p->data[2 * i + 1] << 8));
    case CODED_E4M3:
        return e4m3_to_f32(p->data[i]);
    default:
        return p->data[i] == 255 ? NAN : ldexpf(1.0f, p->data[i] - 127);
    }
}

static enum reel_status check_scales(const struct coded_layer *c, const struct tensor_file *file,
                                     struct reel_error *err) {
    const struct coded_part *p = &c->scales;
    if (c->scales_order == SCALES_NESTED) return REEL_OK; /* codes */
    const size_t size = p->type == CODED_F32                            ? 4
                        : p->type == CODED_F16 || p->type == CODED_BF16 ? 2
                                                                        : 1;
    for (size_t i = 0; i < p->n_bytes / size; i++) {
        const float value = scale_at(p, i);
        if (isfinite(value) && (value != 0 || c->zero_scales)) continue;
        return refuse_value(file, p, i, (double)value,
                            c->zero_scales ? "a finite scale" : "a finite scale other than 0", err);
    }
    return REEL_OK;
}

/* Scale of flat block b. The sum is a statement of its own, so that no compiler fuses it. */
static float flat_scale(const struct coded_layer *c, size_t b) {
    if (c->scales_order == SCALES_FLAT) return float_at(&c->scales, b);
    const float unit = float_at(&c->nested_scales, b / (size_t)c->nested_block);
    const float scale = float_at(&c->nested_table, c->scales.data[b]) * unit;
    return scale + c->nested_offset;
}

static void put_scales(const struct coded_layer *c, unsigned char *out) {
    const size_t across = (size_t)blocks_across(c), size = scale_bytes(c);
    for (size_t r = 0; r < (size_t)c->rows; r++)
        for (size_t g = 0; g < across; g++) {
            unsigned char *at = out + (r * across + g) * size;
            if (c->scales_order == SCALES_IN_COLUMNS) {
                memcpy(at, c->scales.data + (g * (size_t)c->rows + r) * size, size);
                continue;
            }
            const size_t weight = r * (size_t)c->columns + g * (size_t)c->block_columns;
            const float scale = flat_scale(c, weight / (size_t)c->flat_block);
            memcpy(at, &scale, sizeof scale);
        }
}

static enum plane_type plane_type_of(const struct coded_layer *c) {
    static const enum plane_type types[] = {
        [CODED_F32] = PLANE_F32,   [CODED_F16] = PLANE_F16,   [CODED_BF16] = PLANE_BF16,
        [CODED_E4M3] = PLANE_E4M3, [CODED_E8M0] = PLANE_E8M0, [CODED_U8] = PLANE_E8M0,
    };
    return c->scales_order == SCALES_NESTED ? PLANE_F32 : types[c->scales.type];
}

/* ---- zero points and indices ----------------------------------------------------------------- */

/* Zero point of row r, group g. GPTQ's first format has them less 1, subtracted from whole words
 * (GPTQModel's convert_gptq_v1_to_v2_format_module), so that 1 is added to whole words as well. */
static int zero_at(const struct coded_layer *c, size_t r, size_t g) {
    const size_t across = (size_t)blocks_across(c), rows = (size_t)c->rows;
    const size_t a_word = 32 / (size_t)c->bits;
    const uint32_t mask = c->bits == 8 ? 255 : 15;
    size_t shift = r % a_word * (size_t)c->bits;
    switch (c->zeros_order) {
    case ZEROS_SIGNED:
        return c->zeros.data[r / (size_t)c->block_rows * across + g] ^ 0x80;
    case ZEROS_PACKED_DOWN:
        return (int)(word_at(&c->zeros, r / a_word * across + g) >> shift & mask);
    case ZEROS_PACKED_ALONG:
        return (int)((word_at(&c->zeros, g * (rows / a_word) + r / a_word) + c->zero_step) >>
                         shift &
                     mask);
    default:
        for (size_t i = 0; i < 8; i++)
            if ((size_t)awq_rows[i] == r % 8) shift = 4 * i;
        return (int)(word_at(&c->zeros, g * (rows / 8) + r / 8) >> shift & 15);
    }
}

/* A plane, or the one zero point that all have: what "symmetric" means. */
static void put_zeros(const struct coded_layer *c, unsigned char *out,
                      struct matrix_planes *planes) {
    const size_t across = (size_t)blocks_across(c), down = (size_t)blocks_down(c);
    bool same = true;
    planes->zero = c->zero;
    if (c->zeros_order == ZEROS_NONE) return;
    for (size_t b = 0; b < down; b++)
        for (size_t g = 0; g < across; g++) {
            out[b * across + g] = (unsigned char)zero_at(c, b * (size_t)c->block_rows, g);
            same = same && out[b * across + g] == out[0];
        }
    planes->zero = out[0];
    if (same) return;
    planes->zeros = (struct matrix_plane){ .data = out,
                                           .row_bytes = across,
                                           .type = PLANE_U8,
                                           .rows = c->block_rows,
                                           .columns = c->block_columns };
}

/* order[k] is the first column of the group of column k; NULL where groups follow each other. Where
 * no order was kept, compressed-tensors writes -1 for all. */
static enum reel_status put_order(const struct coded_layer *c, const struct tensor_file *file,
                                  int *order, struct matrix_planes *planes,
                                  struct reel_error *err) {
    const int groups = blocks_across(c);
    bool plain = true, none = true;
    if (!c->index.data) return REEL_OK;
    for (int k = 0; k < c->columns; k++)
        none = none && (int32_t)word_at(&c->index, (size_t)k) == -1;
    for (int k = 0; k < c->columns && !none; k++) {
        const int32_t g = (int32_t)word_at(&c->index, (size_t)k);
        if (g < 0 || g >= groups)
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\": value %d is %d, allowed are groups 0 to %d",
                           path_of(file, &c->index), c->index.name, k, g, groups - 1);
        order[k] = g * c->block_columns;
        plain = plain && g == k / c->block_columns;
    }
    if (!plain && !none) planes->order = order;
    return REEL_OK;
}

/* ---- the matrix ------------------------------------------------------------------------------ */

static enum reel_status check_values(const struct coded_layer *c, const struct tensor_file *file,
                                     struct reel_error *err) {
    enum reel_status status = check_scales(c, file, err);
    if (status == REEL_OK) status = check_floats(file, &c->divisor, false, err);
    if (status == REEL_OK) status = check_floats(file, &c->factor, false, err);
    if (status == REEL_OK) status = check_floats(file, &c->table, true, err);
    if (status == REEL_OK) status = check_floats(file, &c->nested_scales, true, err);
    return status == REEL_OK ? check_floats(file, &c->nested_table, true, err) : status;
}

static void put_factors(const struct coded_layer *c, struct owned *o) {
    struct matrix_planes *p = o->planes;
    p->factor = c->factor.data ? float_at(&c->factor, 0) : 1;
    if (c->divisor.data) {
        p->divisor = float_at(&c->divisor, 0);
        p->factor = 1 / p->divisor;
    }
    if (!c->table.data) return;
    memcpy(o->table, c->table.data, 16 * sizeof *o->table);
    p->table = o->table;
}

enum reel_status coded_read(const struct coded_layer *c, const struct tensor_file *file,
                            struct matrix *out, void **owned, struct reel_error *err) {
    struct owned o = { 0 };
    struct carver carver = { 0 };
    *owned = NULL;
    enum reel_status status = check_values(c, file, err);
    if (status == REEL_OK)
        status = mem_aligned(owned, coded_owned_bytes(c), 1, "codes and their scales", err);
    if (status != REEL_OK) return status;
    carver.block = *owned;
    place(c, &o, &carver);
    if (o.codes) put_codes(c, o.codes);
    if (o.scales) put_scales(c, o.scales);
    const size_t stored = c->bits == 4 ? ((size_t)c->columns + 7) / 8 * 4 : 0;
    const bool words = c->codes.type == CODED_I32 && !o.codes;
    *o.planes = (struct matrix_planes){
        .form = c->form,
        .bits = c->bits,
        .scales = { .data = o.scales ? o.scales : c->scales.data,
                    .row_bytes = (size_t)blocks_across(c) * scale_bytes(c),
                    .type = plane_type_of(c),
                    .rows = c->block_rows,
                    .columns = c->block_columns },
    };
    put_factors(c, &o);
    put_zeros(c, o.zeros, o.planes);
    *out = (struct matrix){ .rows = c->rows,
                            .columns = c->columns,
                            .row_bytes = !words         ? row_bytes(c)
                                         : c->bits == 4 ? stored
                                                        : ((size_t)c->columns + 3) / 4 * 4,
                            .data = o.codes ? o.codes : c->codes.data,
                            .planes = o.planes };
    return put_order(c, file, o.order, o.planes, err);
}
