/* Which tensors a layer has in each format of files, and what their shapes say. */
#include "model/coded.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const char *const type_names[] = {
    [CODED_F32] = "F32", [CODED_F16] = "F16",      [CODED_BF16] = "BF16",
    [CODED_U8] = "U8",   [CODED_I8] = "I8",        [CODED_I32] = "I32",
    [CODED_I64] = "I64", [CODED_E4M3] = "F8_E4M3", [CODED_E8M0] = "F8_E8M0",
};
#define N_TYPES ((int)(sizeof type_names / sizeof type_names[0]))

#define TYPE(type) (1u << (type))
#define FLOATS     (TYPE(CODED_F32) | TYPE(CODED_F16) | TYPE(CODED_BF16))
#define EXPONENTS  (TYPE(CODED_U8) | TYPE(CODED_E8M0))

const char *coded_type_name(enum coded_type type) { return type_names[type]; }

static struct coded_part find_code(const struct tensor_file *file, const char *name) {
    static const enum coded_type types[] = {
        [STORED_U8] = CODED_U8,   [STORED_I8] = CODED_I8,     [STORED_I32] = CODED_I32,
        [STORED_I64] = CODED_I64, [STORED_E4M3] = CODED_E4M3, [STORED_E8M0] = CODED_E8M0,
    };
    const struct tensor_ignored *t = tensor_find_ignored(file, name);
    if (!t || t->code == STORED_NONE) return (struct coded_part){ 0 };
    return (struct coded_part){ t->name,  types[t->code], t->rank,   t->file,
                                t->shape, t->data,        t->n_bytes };
}

struct coded_part coded_part_find(const struct tensor_file *file, const char *name,
                                  const char *suffix) {
    char whole[CODED_MAX_NAME];
    const int n = snprintf(whole, sizeof whole, "%s%s", name, suffix);
    if (n < 0 || (size_t)n >= sizeof whole) return (struct coded_part){ 0 };
    const struct tensor *t = tensor_find(file, whole);
    if (!t) return find_code(file, whole);
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return (struct coded_part){ 0 };
    const enum coded_type type = t->dtype == DTYPE_F32   ? CODED_F32
                                 : t->dtype == DTYPE_F16 ? CODED_F16
                                                         : CODED_BF16;
    return (struct coded_part){ t->name, type, t->rank, t->file, t->shape, t->data, t->n_bytes };
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* One layer being looked for. */
struct finder {
    const struct tensor_file *file;
    const struct quant_config *config;
    const char *name;
    struct coded_layer *out;
};

static const char *path_of(const struct finder *f, const struct coded_part *p) {
    return f->file->map_names[p->file];
}

static void add(struct finder *f, const struct coded_part *p) { f->out->n_bytes += p->n_bytes; }

/* "F32, F16 or BF16" */
static void show_types(unsigned allowed, char text[80]) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < N_TYPES; i++) {
        if (!(allowed & TYPE(i))) continue;
        allowed &= ~TYPE(i);
        const char *before = n == 0 ? "" : allowed ? ", " : " or ";
        n += (size_t)snprintf(text + n, 80 - n, "%s%s", before, type_names[i]);
    }
}

static enum reel_status check_type(const struct finder *f, const struct coded_part *p,
                                   unsigned allowed, struct reel_error *err) {
    char shown[80];
    if (allowed & TYPE(p->type)) return REEL_OK;
    show_types(allowed, shown);
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has type %s, allowed in format %s is %s",
                   path_of(f, p), p->name, type_names[p->type], f->out->format, shown);
}

/* Whether the tensor is there, of whatever type: one that cannot be read is not one that is
 * missing.
 */
static bool has(const struct finder *f, const char *suffix) {
    char name[CODED_MAX_NAME];
    const int n = snprintf(name, sizeof name, "%s%s", f->name, suffix);
    if (n < 0 || (size_t)n >= sizeof name) return false;
    return tensor_find(f->file, name) || tensor_find_ignored(f->file, name);
}

static enum reel_status refuse_missing(const struct finder *f, const char *suffix,
                                       struct reel_error *err) {
    char name[CODED_MAX_NAME];
    snprintf(name, sizeof name, "%s%s", f->name, suffix);
    const struct tensor_ignored *t = tensor_find_ignored(f->file, name);
    if (t)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has %s, which format %s does not have",
                       path_of(f, &f->out->codes), name, t->what, f->out->format);
    return err_set(err, REEL_E_FORMAT,
                   "%s: tensor \"%s\" is missing, which format %s needs beside \"%s\"",
                   path_of(f, &f->out->codes), name, f->out->format, f->out->codes.name);
}

static enum reel_status need(struct finder *f, const char *suffix, unsigned types,
                             struct coded_part *out, struct reel_error *err) {
    *out = coded_part_find(f->file, f->name, suffix);
    if (!out->data) return refuse_missing(f, suffix, err);
    add(f, out);
    return check_type(f, out, types, err);
}

static bool has_shape(const struct coded_part *p, int rank, int64_t a, int64_t b) {
    return p->rank == rank && (rank < 1 || p->shape[0] == a) && (rank < 2 || p->shape[1] == b);
}

static enum reel_status refuse_shape(const struct finder *f, const struct coded_part *p,
                                     const char *wanted, struct reel_error *err) {
    char found[96];
    return err_set(err, REEL_E_FORMAT,
                   "%s: tensor \"%s\" has shape %s, expected %s for a matrix [%d, %d] in format "
                   "%s",
                   path_of(f, p), p->name, tensor_shape_text(p->rank, p->shape, found), wanted,
                   f->out->rows, f->out->columns, f->out->format);
}

static enum reel_status need_shape(const struct finder *f, const struct coded_part *p, int rank,
                                   int64_t a, int64_t b, struct reel_error *err) {
    char wanted[96];
    if (has_shape(p, rank, a, b)) return REEL_OK;
    return refuse_shape(f, p, tensor_shape_text(rank, (int64_t[]){ a, b }, wanted), err);
}

/* One value, whatever its rank. */
static enum reel_status need_one(struct finder *f, const char *suffix, struct coded_part *out,
                                 struct reel_error *err) {
    enum reel_status status = need(f, suffix, TYPE(CODED_F32), out, err);
    if (status != REEL_OK || out->n_bytes == sizeof(float)) return status;
    return refuse_shape(f, out, "one value", err);
}

/* `n` groups along a row of all columns. */
static enum reel_status take_groups(struct finder *f, const struct coded_part *p, int64_t n,
                                    struct reel_error *err) {
    struct coded_layer *c = f->out;
    if (n < 1 || n > c->columns || c->columns % n)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has %lld groups in rows of %d, which they do not divide",
                       path_of(f, p), p->name, (long long)n, c->columns);
    c->block_columns = c->columns / (int)n;
    return REEL_OK;
}

/* Whether some group of the config says what the tensors do. */
static enum reel_status check_claim(const struct finder *f, struct reel_error *err) {
    const struct coded_layer *c = f->out;
    const bool is_float = c->form == MATRIX_E4M3 || c->form == MATRIX_E2M1;
    if (f->config->n_groups == 0 || f->config->varied) return REEL_OK;
    for (int i = 0; i < f->config->n_groups; i++) {
        const struct quant_group *g = &f->config->groups[i];
        const int group = g->group < 0 ? c->columns : g->group;
        const bool in_groups = group == 0 || c->block_columns == group ||
                               (group > c->columns && c->block_columns == c->columns) ||
                               c->block_rows != 1;
        if ((g->bits == 0 || g->bits == c->bits) && g->is_float == is_float && in_groups)
            return REEL_OK;
    }
    const struct quant_group *g = &f->config->groups[0];
    return err_set(err, REEL_E_FORMAT,
                   "%s: tensor \"%s\" has codes of %d bits in groups of %d (%s), but \"%s\" says "
                   "%d bits%s in groups of %d%s",
                   path_of(f, &c->codes), c->codes.name, c->bits, c->block_columns, c->format,
                   f->config->path, g->bits, g->is_float ? ", floats," : "", g->group,
                   f->config->n_groups > 1 ? ", or others that differ, too" : "");
}

/* Scales of a whole matrix, of rows, of blocks, or of groups in rows, as the shape says. */
static enum reel_status take_scales(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    const struct coded_part *p = &c->scales;
    const struct quant_group *g = f->config->groups;
    int rows = 128, columns = 128;
    for (int i = 0; i < f->config->n_groups; i++)
        if (g[i].block_rows) rows = g[i].block_rows, columns = g[i].block_columns;
    const int64_t across = (c->columns + columns - 1) / columns;
    c->scales_order = SCALES_IN_ROWS;
    c->block_rows = 1;
    c->block_columns = c->columns;
    if (p->rank == 0 || has_shape(p, 1, 1, 0) || has_shape(p, 2, 1, 1)) {
        c->block_rows = c->rows;
        return REEL_OK;
    }
    if (has_shape(p, 1, c->rows, 0) || has_shape(p, 2, c->rows, 1)) return REEL_OK;
    if (has_shape(p, 2, (c->rows + rows - 1) / rows, across)) {
        c->block_rows = rows;
        c->block_columns = columns;
        return REEL_OK;
    }
    if (p->rank == 2 && p->shape[0] == c->rows) return take_groups(f, p, p->shape[1], err);
    char wanted[160];
    snprintf(wanted, sizeof wanted,
             "[1], [%d, 1], [%d, %lld] (blocks of %d times %d) or [%d, groups]", c->rows,
             (c->rows + rows - 1) / rows, (long long)across, rows, columns, c->rows);
    return refuse_shape(f, p, wanted, err);
}

/* ---- floats of 8 bits, and int8 -------------------------------------------------------------- */

/* Every method: `weight` F8_E4M3 [rows, columns] with scales by one of two names. */
static enum reel_status find_e4m3(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->format = f->config->method == QUANT_FP8        ? "fp8"
                : f->config->method == QUANT_MODELOPT ? "modelopt fp8"
                                                      : "float-quantized fp8";
    c->form = MATRIX_E4M3;
    c->bits = 8;
    enum reel_status status = need_shape(f, &c->codes, 2, c->rows, c->columns, err);
    if (status != REEL_OK) return status;
    const bool inverse = coded_part_find(f->file, f->name, ".weight_scale_inv").data;
    const char *suffix =
        inverse || f->config->method == QUANT_FP8 ? ".weight_scale_inv" : ".weight_scale";
    if (!inverse && coded_part_find(f->file, f->name, ".weight_scale").data)
        suffix = ".weight_scale";
    status = need(f, suffix, FLOATS | EXPONENTS, &c->scales, err);
    if (status == REEL_OK) status = take_scales(f, err);
    if (status != REEL_OK || !(TYPE(c->scales.type) & EXPONENTS)) return status;
    c->format = "mxfp8";
    return need_shape(f, &c->scales, 2, c->rows, c->columns / 32, err);
}

/* Whether every group of integers of so many bits has zero points. */
static bool needs_zeros(const struct finder *f) {
    bool some = false, all = true;
    for (int i = 0; i < f->config->n_groups; i++) {
        const struct quant_group *g = &f->config->groups[i];
        if (g->is_float || g->bits != f->out->bits) continue;
        some = true;
        all = all && !g->symmetric;
    }
    return some && all;
}

/* compressed-tensors: `weight` I8 [rows, columns]; a zero point for each scale where not symmetric.
 */
static enum reel_status find_int8(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->format = "int-quantized int8";
    c->form = MATRIX_INTEGERS;
    c->bits = 8;
    c->codes_order = CODES_SIGNED;
    c->zero = 128;
    enum reel_status status = need_shape(f, &c->codes, 2, c->rows, c->columns, err);
    if (status == REEL_OK) status = need(f, ".weight_scale", FLOATS, &c->scales, err);
    if (status == REEL_OK) status = take_scales(f, err);
    if (status != REEL_OK || (!needs_zeros(f) && !has(f, ".weight_zero_point"))) return status;
    status = need(f, ".weight_zero_point", TYPE(CODED_I8), &c->zeros, err);
    c->zeros_order = ZEROS_SIGNED;
    if (status != REEL_OK ||
        c->zeros.n_bytes * (size_t)(c->scales.type == CODED_F32 ? 4 : 2) == c->scales.n_bytes)
        return status;
    return refuse_shape(f, &c->zeros, "that of the scales", err);
}

/* ---- compressed-tensors' packed words -------------------------------------------------------- */

static int64_t integer_at(const struct coded_part *p, int i) {
    int64_t value = 0;
    int32_t narrow = 0;
    if (p->type == CODED_I64) {
        memcpy(&value, p->data + sizeof value * (size_t)i, sizeof value);
        return value;
    }
    memcpy(&narrow, p->data + sizeof narrow * (size_t)i, sizeof narrow);
    return narrow;
}

static enum reel_status check_packed_shape(struct finder *f, struct reel_error *err) {
    struct coded_part p;
    const struct coded_layer *c = f->out;
    enum reel_status status = need(f, ".weight_shape", TYPE(CODED_I32) | TYPE(CODED_I64), &p, err);
    if (status == REEL_OK) status = need_shape(f, &p, 1, 2, 0, err);
    if (status != REEL_OK) return status;
    const int64_t rows = integer_at(&p, 0), columns = integer_at(&p, 1);
    if (rows == c->rows && columns == c->columns) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" says [%lld, %lld], expected [%d, %d]",
                   path_of(f, &p), p.name, (long long)rows, (long long)columns, c->rows,
                   c->columns);
}

/* Zero points of the packed format; where every group of the config has them they must be there. */
static enum reel_status take_packed_zeros(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    const int a_word = 32 / c->bits;
    if (!needs_zeros(f) && !has(f, ".weight_zero_point")) return REEL_OK;
    enum reel_status status = need(f, ".weight_zero_point", TYPE(CODED_I32), &c->zeros, err);
    c->zeros_order = ZEROS_PACKED_DOWN;
    if (status != REEL_OK) return status;
    return need_shape(f, &c->zeros, 2, (c->rows + a_word - 1) / a_word,
                      c->columns / c->block_columns, err);
}

static enum reel_status take_index(struct finder *f, const char *suffix, struct reel_error *err) {
    struct coded_layer *c = f->out;
    if (!has(f, suffix)) return REEL_OK;
    enum reel_status status = need(f, suffix, TYPE(CODED_I32), &c->index, err);
    return status == REEL_OK ? need_shape(f, &c->index, 1, c->columns, 0, err) : status;
}

static enum reel_status find_packed(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->format = "pack-quantized";
    c->form = MATRIX_INTEGERS;
    c->bits = 4;
    if (c->codes.rank == 2 && c->codes.shape[1] == (c->columns + 3) / 4) c->bits = 8;
    const int a_word = 32 / c->bits;
    c->format = c->bits == 8 ? "pack-quantized int8" : "pack-quantized int4";
    c->zero = 1 << (c->bits - 1);
    enum reel_status status =
        need_shape(f, &c->codes, 2, c->rows, (c->columns + a_word - 1) / a_word, err);
    if (status == REEL_OK) status = check_packed_shape(f, err);
    if (status == REEL_OK) status = need(f, ".weight_scale", FLOATS, &c->scales, err);
    if (status == REEL_OK) status = take_scales(f, err);
    if (status == REEL_OK && c->block_rows != 1)
        status = refuse_shape(f, &c->scales, "[rows, groups]", err);
    if (status == REEL_OK) status = take_packed_zeros(f, err);
    return status == REEL_OK ? take_index(f, ".weight_g_idx", err) : status;
}

/* ---- floats of 4 bits ------------------------------------------------------------------------ */

static enum reel_status take_e2m1(struct finder *f, int group, unsigned types,
                                  struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->form = MATRIX_E2M1;
    c->bits = 4;
    c->zero_scales = true; /* of small weights e4m3 has no smaller scale than 0 */
    if (c->columns % group)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has rows of %d, not a multiple of the groups of %d of "
                       "format %s",
                       path_of(f, &c->codes), c->codes.name, c->columns, group, c->format);
    enum reel_status status = need_shape(f, &c->codes, 2, c->rows, c->columns / 2, err);
    if (status == REEL_OK) status = need(f, ".weight_scale", types, &c->scales, err);
    if (status == REEL_OK) status = need_shape(f, &c->scales, 2, c->rows, c->columns / group, err);
    c->scales_order = SCALES_IN_ROWS;
    c->block_rows = 1;
    c->block_columns = group;
    return status;
}

/* compressed-tensors: mxfp4 has no scale of the whole matrix. */
static enum reel_status find_fp4(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    const struct coded_part scale = coded_part_find(f->file, f->name, ".weight_scale");
    const bool mx = scale.data && (TYPE(scale.type) & EXPONENTS);
    c->format = mx ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized";
    if (has(f, ".weight_zero_point"))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s.weight_zero_point\": format %s has no zero points",
                       path_of(f, &c->codes), f->name, c->format);
    if (mx) return take_e2m1(f, 32, EXPONENTS, err);
    enum reel_status status = take_e2m1(f, 16, TYPE(CODED_E4M3), err);
    return status == REEL_OK ? need_one(f, ".weight_global_scale", &c->divisor, err) : status;
}

/* ModelOpt's: the same codes by other names, and a factor. */
static enum reel_status find_nvfp4(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->format = "modelopt nvfp4";
    if (has(f, ".pre_quant_scale"))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s.pre_quant_scale\": scaled activations are not supported",
                       path_of(f, &c->codes), f->name);
    enum reel_status status = take_e2m1(f, 16, TYPE(CODED_E4M3), err);
    return status == REEL_OK ? need_one(f, ".weight_scale_2", &c->factor, err) : status;
}

/* ---- GPTQ and AWQ ---------------------------------------------------------------------------- */

/* Scales [groups, rows], and zero points [groups, rows / a_word]. */
static enum reel_status take_column_groups(struct finder *f, int a_word, struct reel_error *err) {
    struct coded_layer *c = f->out;
    enum reel_status status = need(f, ".scales", FLOATS, &c->scales, err);
    const int64_t n = c->scales.rank == 2 ? c->scales.shape[0] : 0;
    if (status == REEL_OK) status = need_shape(f, &c->scales, 2, n, c->rows, err);
    if (status == REEL_OK) status = take_groups(f, &c->scales, n, err);
    if (status == REEL_OK) status = need(f, ".qzeros", TYPE(CODED_I32), &c->zeros, err);
    c->scales_order = SCALES_IN_COLUMNS;
    c->block_rows = 1;
    return status == REEL_OK ? need_shape(f, &c->zeros, 2, n, c->rows / a_word, err) : status;
}

static enum reel_status check_multiple(const struct finder *f, int n, int of, const char *what,
                                       struct reel_error *err) {
    if (n % of == 0) return REEL_OK;
    return err_set(err, REEL_E_FORMAT,
                   "%s: tensor \"%s\": %d %s, not a multiple of the %d of a word in format %s",
                   path_of(f, &f->out->codes), f->out->codes.name, n, what, of, f->out->format);
}

static enum reel_status find_gptq(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->form = MATRIX_INTEGERS;
    c->bits = c->codes.rank == 2 && c->codes.shape[0] == c->columns / 4 ? 8 : 4;
    c->format = c->bits == 8 ? "gptq int8" : "gptq int4";
    c->codes_order = CODES_DOWN_COLUMNS;
    c->zeros_order = ZEROS_PACKED_ALONG;
    if (f->config->zeros_less_one) c->zero_step = c->bits == 8 ? 0x01010101u : 0x11111111u;
    const int a_word = 32 / c->bits;
    enum reel_status status = check_multiple(f, c->columns, a_word, "columns", err);
    if (status == REEL_OK) status = check_multiple(f, c->rows, a_word, "rows", err);
    if (status == REEL_OK) status = need_shape(f, &c->codes, 2, c->columns / a_word, c->rows, err);
    if (status == REEL_OK) status = take_column_groups(f, a_word, err);
    return status == REEL_OK ? take_index(f, ".g_idx", err) : status;
}

static enum reel_status find_awq(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    c->format = "awq int4";
    c->form = MATRIX_INTEGERS;
    c->bits = 4;
    c->codes_order = CODES_DEALT;
    c->zeros_order = ZEROS_DEALT;
    enum reel_status status = check_multiple(f, c->rows, 8, "rows", err);
    if (status == REEL_OK) status = check_multiple(f, c->columns, 2, "columns", err);
    if (status == REEL_OK) status = need_shape(f, &c->codes, 2, c->columns, c->rows / 8, err);
    return status == REEL_OK ? take_column_groups(f, 8, err) : status;
}

/* ---- bitsandbytes ---------------------------------------------------------------------------- */

/* quant_state: JSON as the bytes of a tensor. */
static enum reel_status read_state(struct finder *f, const struct coded_part *p, bool nested,
                                   struct reel_error *err) {
    struct coded_layer *c = f->out;
    json_t *state = NULL;
    int64_t block = 0, nested_block = 0;
    double offset = 0;
    const struct json_int_rule rule = {
        .key = "blocksize", .min = 16, .max = 4096, .required = true
    };
    const struct json_int_rule nested_rule = {
        .key = "nested_blocksize", .min = 16, .max = 1 << 20, .required = true
    };
    const struct json_real_rule offset_rule = {
        .key = "nested_offset", .min = -1e30, .max = 1e30, .required = true
    };
    enum reel_status status = json_read(&state, p->name, p->data, p->n_bytes, err);
    const json_t *shape = json_object_get(state, "shape");
    if (status == REEL_OK) status = json_get_int(state, p->name, &rule, &block, err);
    if (status == REEL_OK && nested)
        status = json_get_int(state, p->name, &nested_rule, &nested_block, err);
    if (status == REEL_OK && nested)
        status = json_get_real(state, p->name, &offset_rule, &offset, err);
    if (status == REEL_OK && block % 2)
        status = err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": \"blocksize\" is odd",
                         path_of(f, p), p->name);
    const json_int_t rows = json_integer_value(json_array_get(shape, 0));
    const json_int_t columns = json_integer_value(json_array_get(shape, 1));
    if (status == REEL_OK &&
        (json_array_size(shape) != 2 || rows != c->rows || columns != c->columns))
        status = err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": \"shape\" must be [%d, %d]",
                         path_of(f, p), p->name, c->rows, c->columns);
    json_decref(state);
    c->flat_block = (int)block;
    c->nested_block = (int)nested_block;
    c->nested_offset = (float)offset;
    return status;
}

/* Scales of scales. */
static enum reel_status take_nested(struct finder *f, int64_t blocks, struct reel_error *err) {
    struct coded_layer *c = f->out;
    const int64_t n = (blocks + c->nested_block - 1) / c->nested_block;
    c->scales_order = SCALES_NESTED;
    enum reel_status status =
        need(f, ".weight.nested_absmax", TYPE(CODED_F32), &c->nested_scales, err);
    if (status == REEL_OK) status = need_shape(f, &c->nested_scales, 1, n, 0, err);
    if (status == REEL_OK)
        status = need(f, ".weight.nested_quant_map", TYPE(CODED_F32), &c->nested_table, err);
    return status == REEL_OK ? need_shape(f, &c->nested_table, 1, 256, 0, err) : status;
}

static int common_divisor(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Blocks follow each other through all of the matrix, so one may reach into the next row: then the
 * plane has a value for as many weights as rows and blocks have in common. */
static enum reel_status find_bitsandbytes(struct finder *f, struct reel_error *err) {
    struct coded_layer *c = f->out;
    const bool normal =
        coded_part_find(f->file, f->name, ".weight.quant_state.bitsandbytes__nf4").data;
    struct coded_part state;
    c->format = normal ? "bitsandbytes nf4" : "bitsandbytes fp4";
    c->form = MATRIX_TABLE;
    c->bits = 4;
    c->codes_order = CODES_HIGH_FIRST;
    c->scales_order = SCALES_FLAT;
    c->zero_scales = true; /* a block of zeros has no largest value */
    enum reel_status status = check_multiple(f, c->columns, 2, "columns", err);
    const int64_t weights = (int64_t)c->rows * c->columns;
    if (status == REEL_OK) status = need_shape(f, &c->codes, 2, weights / 2, 1, err);
    if (status == REEL_OK)
        status = need(f,
                      normal ? ".weight.quant_state.bitsandbytes__nf4"
                             : ".weight.quant_state.bitsandbytes__fp4",
                      TYPE(CODED_U8), &state, err);
    if (status == REEL_OK)
        status = need(f, ".weight.absmax", TYPE(CODED_F32) | TYPE(CODED_U8), &c->scales, err);
    const bool nested = c->scales.type == CODED_U8;
    if (status == REEL_OK) status = read_state(f, &state, nested, err);
    if (status == REEL_OK) status = need(f, ".weight.quant_map", TYPE(CODED_F32), &c->table, err);
    if (status == REEL_OK) status = need_shape(f, &c->table, 1, 16, 0, err);
    if (status != REEL_OK) return status;
    const int64_t blocks = (weights + c->flat_block - 1) / c->flat_block;
    c->block_rows = 1;
    c->block_columns = common_divisor(c->columns, c->flat_block);
    status = need_shape(f, &c->scales, 1, blocks, 0, err);
    return status == REEL_OK && nested ? take_nested(f, blocks, err) : status;
}

/* ---- the table of formats -------------------------------------------------------------------- */

#define METHOD(method) (1u << (method))

/* What a layer's first tensor is called and made of, and who reads it. */
static const struct format {
    unsigned methods;
    const char *suffix;
    unsigned types;
    enum reel_status (*find)(struct finder *f, struct reel_error *err);
} formats[] = {
    { METHOD(QUANT_FP8) | METHOD(QUANT_COMPRESSED_TENSORS) | METHOD(QUANT_MODELOPT), ".weight",
      TYPE(CODED_E4M3), find_e4m3 },
    { METHOD(QUANT_COMPRESSED_TENSORS), ".weight", TYPE(CODED_I8), find_int8 },
    { METHOD(QUANT_COMPRESSED_TENSORS), ".weight_packed", TYPE(CODED_I32), find_packed },
    { METHOD(QUANT_COMPRESSED_TENSORS), ".weight_packed", TYPE(CODED_U8), find_fp4 },
    { METHOD(QUANT_MODELOPT), ".weight", TYPE(CODED_U8), find_nvfp4 },
    { METHOD(QUANT_GPTQ), ".qweight", TYPE(CODED_I32), find_gptq },
    { METHOD(QUANT_AWQ), ".qweight", TYPE(CODED_I32), find_awq },
    { METHOD(QUANT_BITSANDBYTES), ".weight", TYPE(CODED_U8), find_bitsandbytes },
};

bool coded_is_there(const struct tensor_file *file, const char *name) {
    bool there = coded_part_find(file, name, ".weight").data;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        there = there || coded_part_find(file, name, formats[i].suffix).data;
    return there;
}

/* Wide weights with scales beside them would be read as what they are not. */
static enum reel_status refuse_scaled(const struct finder *f, struct reel_error *err) {
    static const char *const suffixes[] = { ".weight_scale", ".weight_scale_inv", ".weight.absmax",
                                            ".qzeros" };
    const struct coded_part wide = coded_part_find(f->file, f->name, ".weight");
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const struct coded_part scale = coded_part_find(f->file, f->name, suffixes[i]);
        if (!scale.data) continue;
        if (!wide.data)
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\" is there, but no weight that it belongs to (method "
                           "%s)",
                           path_of(f, &scale), scale.name, quant_method_name(f->config->method));
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has type %s, which has no scales, but \"%s\" is there",
                       path_of(f, &wide), wide.name, type_names[wide.type], scale.name);
    }
    return REEL_OK;
}

/* No format of the method begins with a tensor of this name and type. */
static enum reel_status refuse_unread(const struct finder *f, struct reel_error *err) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const struct coded_part p = coded_part_find(f->file, f->name, formats[i].suffix);
        if (!p.data || (TYPE(p.type) & FLOATS && strcmp(formats[i].suffix, ".weight") == 0))
            continue;
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, which no format of method %s (\"%s\") has",
                       path_of(f, &p), p.name, type_names[p.type],
                       quant_method_name(f->config->method), f->config->path);
    }
    return REEL_OK;
}

enum reel_status coded_find(struct coded_layer *c, const struct tensor_file *file, const char *name,
                            int rows, int columns, bool *found, struct reel_error *err) {
    struct finder f = { file, file->quant, name, c };
    *found = false;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const struct format *format = &formats[i];
        if (!(format->methods & METHOD(f.config->method))) continue;
        const struct coded_part p = coded_part_find(file, name, format->suffix);
        if (!p.data || !(format->types & TYPE(p.type))) continue;
        *found = true;
        *c = (struct coded_layer){ .format = quant_method_name(f.config->method),
                                   .rows = rows,
                                   .columns = columns,
                                   .codes = p,
                                   .n_bytes = p.n_bytes };
        enum reel_status status = format->find(&f, err);
        if (status == REEL_OK) status = check_claim(&f, err);
        if (status == REEL_OK && quant_config_ignores(f.config, name))
            status = err_set(err, REEL_E_FORMAT,
                             "%s: layer \"%s\" is one of those to ignore, but tensor \"%s\" has "
                             "type %s",
                             f.config->path, name, p.name, type_names[p.type]);
        return status;
    }
    enum reel_status status = refuse_unread(&f, err);
    return status == REEL_OK ? refuse_scaled(&f, err) : status;
}
