/* GGUF read through a cursor that cannot leave the file. Every count is checked against a limit and
 * against the bytes that are left before anything is allocated or walked. */
#include "model/gguf.h"

#include "base/checked.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GGUF_MAX_VALUES    65536
#define GGUF_MAX_ALIGNMENT (1 << 20)
#define GGUF_KEY_SHOWN     80 /* bytes of a key or name that a message quotes */

/* ---- the cursor ------------------------------------------------------------------------------ */

struct cursor {
    const char *path;
    const unsigned char *bytes;
    size_t size;
    size_t at;
    bool head; /* the bytes are the beginning of a longer file: its tensors lie behind them */
    bool cut;  /* something went on behind the last byte */
};

static size_t left(const struct cursor *c) { return c->size - c->at; }

static bool skip(struct cursor *c, uint64_t n) {
    if (n > left(c)) return false;
    c->at += (size_t)n;
    return true;
}

static uint64_t little_endian(const unsigned char *p, size_t n) {
    uint64_t x = 0;
    while (n--)
        x = x << 8 | p[n];
    return x;
}

static bool take_u32(struct cursor *c, uint32_t *out) {
    const unsigned char *p = c->bytes + c->at;
    if (!skip(c, 4)) return false;
    *out = (uint32_t)little_endian(p, 4);
    return true;
}

static bool take_u64(struct cursor *c, uint64_t *out) {
    const unsigned char *p = c->bytes + c->at;
    if (!skip(c, 8)) return false;
    *out = little_endian(p, 8);
    return true;
}

static bool take_text(struct cursor *c, const char **text, size_t *n) {
    uint64_t length = 0;
    if (!take_u64(c, &length)) return false;
    *text = (const char *)c->bytes + c->at;
    *n = (size_t)length;
    return skip(c, length);
}

static enum reel_status ends_inside(struct cursor *c, const char *what, struct reel_error *err) {
    c->cut = true;
    return err_set(err, REEL_E_FORMAT, "%s: the file ends inside %s, after byte %zu of %zu",
                   c->path, what, c->at, c->size);
}

/* For "%.*s": how much of a hostile string a message shows. */
static int shown(size_t n) { return n < GGUF_KEY_SHOWN ? (int)n : GGUF_KEY_SHOWN; }

/* ---- metadata -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes; /* 0: not of one size */
} value_types[] = {
    [GGUF_U8] = { "u8", 1 },         [GGUF_I8] = { "i8", 1 },
    [GGUF_U16] = { "u16", 2 },       [GGUF_I16] = { "i16", 2 },
    [GGUF_U32] = { "u32", 4 },       [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 },       [GGUF_BOOL] = { "a boolean", 1 },
    [GGUF_STRING] = { "a text", 0 }, [GGUF_ARRAY] = { "a list", 0 },
    [GGUF_U64] = { "u64", 8 },       [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};
#define N_VALUE_TYPES (sizeof value_types / sizeof value_types[0])

static enum reel_status bad_type(const struct cursor *c, const struct gguf_value *v, uint32_t type,
                                 struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: key \"%.*s\" has value type %u, allowed are 0 to %zu",
                   c->path, shown(v->key_bytes), v->key, type, N_VALUE_TYPES - 1);
}

static enum reel_status value_cut(struct cursor *c, const struct gguf_value *v,
                                  struct reel_error *err) {
    c->cut = true;
    return err_set(err, REEL_E_FORMAT,
                   "%s: the file ends inside the value of key \"%.*s\", after byte %zu of %zu",
                   c->path, shown(v->key_bytes), v->key, c->at, c->size);
}

static enum reel_status parse_array(struct cursor *c, struct gguf_value *v,
                                    struct reel_error *err) {
    uint32_t type = 0;
    if (!take_u32(c, &type) || !take_u64(c, &v->count)) return value_cut(c, v, err);
    if (type >= N_VALUE_TYPES) return bad_type(c, v, type, err);
    if (type == GGUF_ARRAY)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: key \"%.*s\" is a list of lists", c->path,
                       shown(v->key_bytes), v->key);
    v->element_type = (enum gguf_type)type;
    v->bytes = c->bytes + c->at;
    size_t from = c->at;
    if (type == GGUF_STRING) {
        /* each takes its 8 bytes of length at least, so this ends with the file at the latest */
        const char *text = NULL;
        size_t n = 0;
        for (uint64_t i = 0; i < v->count; i++)
            if (!take_text(c, &text, &n)) return value_cut(c, v, err);
    } else if (v->count > left(c) / value_types[type].bytes ||
               !skip(c, v->count * value_types[type].bytes)) {
        return value_cut(c, v, err);
    }
    v->n_bytes = c->at - from;
    return REEL_OK;
}

static enum reel_status parse_value(struct cursor *c, struct gguf_value *v,
                                    struct reel_error *err) {
    uint32_t type = 0;
    if (!take_text(c, &v->key, &v->key_bytes)) return ends_inside(c, "a metadata key", err);
    if (v->key_bytes == 0) return err_set(err, REEL_E_FORMAT, "%s: an empty key", c->path);
    if (!take_u32(c, &type)) return value_cut(c, v, err);
    if (type >= N_VALUE_TYPES) return bad_type(c, v, type, err);
    v->type = (enum gguf_type)type;
    if (v->type == GGUF_ARRAY) return parse_array(c, v, err);
    v->count = 1;
    if (v->type == GGUF_STRING) {
        const char *text = NULL;
        if (!take_text(c, &text, &v->n_bytes)) return value_cut(c, v, err);
        v->bytes = (const unsigned char *)text;
        return REEL_OK;
    }
    v->n_bytes = value_types[type].bytes;
    v->bytes = c->bytes + c->at;
    if (!skip(c, v->n_bytes)) return value_cut(c, v, err);
    if (v->type == GGUF_BOOL && v->bytes[0] > 1)
        return err_set(err, REEL_E_FORMAT, "%s: key \"%.*s\" is a boolean of value %d", c->path,
                       shown(v->key_bytes), v->key, v->bytes[0]);
    return REEL_OK;
}

static int compare_keys(const char *a, size_t n, const char *b, size_t m) {
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int compare_values(const void *a, const void *b) {
    const struct gguf_value *x = a, *y = b;
    return compare_keys(x->key, x->key_bytes, y->key, y->key_bytes);
}

static int compare_key_value(const void *key, const void *value) {
    const struct gguf_value *v = value;
    return compare_keys(key, strlen(key), v->key, v->key_bytes);
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key) {
    if (gguf->n_values == 0) return NULL;
    return bsearch(key, gguf->values, (size_t)gguf->n_values, sizeof *gguf->values,
                   compare_key_value);
}

static enum reel_status parse_metadata(struct gguf *gguf, struct cursor *c, uint64_t n,
                                       struct reel_error *err) {
    enum reel_status status =
        mem_zeroed(&gguf->values, (size_t)n, sizeof *gguf->values, "the metadata", err);
    for (uint64_t i = 0; status == REEL_OK && i < n; i++) {
        status = parse_value(c, &gguf->values[i], err);
        if (status == REEL_OK) gguf->n_values++;
    }
    if (status != REEL_OK || n < 2) return status;
    qsort(gguf->values, (size_t)n, sizeof *gguf->values, compare_values);
    for (uint64_t i = 1; i < n; i++) {
        const struct gguf_value *v = &gguf->values[i];
        if (compare_values(v - 1, v) == 0)
            return err_set(err, REEL_E_FORMAT, "%s: key \"%.*s\" occurs twice", gguf->path,
                           shown(v->key_bytes), v->key);
    }
    return REEL_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* ggml's numbers. A type with a dtype is read; one with bytes only is left out; the rest is
 * refused, as its size is not known here. */
struct stored_type {
    const char *name;
    const char *what;
    int bytes;
    enum dtype dtype;
};
#define READ(name, dtype)                                                                          \
    { name, NULL, 0, dtype }
#define LEFT_OUT(name, bytes)                                                                      \
    { name, "type " name, bytes, DTYPE_COUNT }
#define REFUSED(name)                                                                              \
    { name, NULL, 0, DTYPE_COUNT }
static const struct stored_type stored_types[] = {
    [0] = READ("F32", DTYPE_F32),
    [1] = READ("F16", DTYPE_F16),
    [2] = READ("Q4_0", DTYPE_Q4_0),
    [3] = READ("Q4_1", DTYPE_Q4_1),
    [6] = READ("Q5_0", DTYPE_Q5_0),
    [7] = READ("Q5_1", DTYPE_Q5_1),
    [8] = READ("Q8_0", DTYPE_Q8_0),
    [9] = REFUSED("Q8_1"),
    [10] = READ("Q2_K", DTYPE_Q2_K),
    [11] = READ("Q3_K", DTYPE_Q3_K),
    [12] = READ("Q4_K", DTYPE_Q4_K),
    [13] = READ("Q5_K", DTYPE_Q5_K),
    [14] = READ("Q6_K", DTYPE_Q6_K),
    [15] = REFUSED("Q8_K"),
    [16] = REFUSED("IQ2_XXS"),
    [17] = REFUSED("IQ2_XS"),
    [18] = REFUSED("IQ3_XXS"),
    [19] = REFUSED("IQ1_S"),
    [20] = READ("IQ4_NL", DTYPE_IQ4_NL),
    [21] = REFUSED("IQ3_S"),
    [22] = REFUSED("IQ2_S"),
    [23] = READ("IQ4_XS", DTYPE_IQ4_XS),
    [24] = LEFT_OUT("I8", 1),
    [25] = LEFT_OUT("I16", 2),
    [26] = LEFT_OUT("I32", 4),
    [27] = LEFT_OUT("I64", 8),
    [28] = LEFT_OUT("F64", 8),
    [29] = REFUSED("IQ1_M"),
    [30] = READ("BF16", DTYPE_BF16),
    [34] = REFUSED("TQ1_0"),
    [35] = REFUSED("TQ2_0"),
    [39] = READ("MXFP4", DTYPE_MXFP4),
    [40] = READ("NVFP4", DTYPE_NVFP4),
    [41] = REFUSED("Q1_0"),
    [42] = REFUSED("Q2_0"),
};
#define N_STORED_TYPES (sizeof stored_types / sizeof stored_types[0])

/* One tensor description, before it is known to lie inside the file. */
struct entry {
    const char *name; /* borrowed from the file, not terminated */
    size_t name_bytes;
    const struct stored_type *type;
    struct tensor tensor; /* without name and data */
    uint64_t offset;      /* from the start of the data section */
};

/* NULL for a number ggml has not given out. */
static const struct stored_type *find_type(uint32_t number) {
    if (number >= N_STORED_TYPES || !stored_types[number].name) return NULL;
    return &stored_types[number];
}

/* Sets the tensor's shape (file order is innermost first) and its bytes. */
static enum reel_status parse_shape(const struct cursor *c, struct entry *e,
                                    const uint64_t extents[TENSOR_MAX_RANK],
                                    struct reel_error *err) {
    struct tensor *t = &e->tensor;
    uint64_t block = 1, block_bytes = (uint64_t)e->type->bytes;
    if (!e->type->what) {
        block = (uint64_t)dtype_block_elements(t->dtype);
        block_bytes = (uint64_t)dtype_block_bytes(t->dtype);
    }
    if (block > 1 && (t->rank == 0 || extents[0] % block))
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%.*s\" has rows of %llu, not a multiple of the %llu of %s",
                       c->path, shown(e->name_bytes), e->name,
                       (unsigned long long)(t->rank ? extents[0] : 1), (unsigned long long)block,
                       e->type->name);
    /* In this order a shape with a 0 in it can still be refused for the product of the others. */
    uint64_t n = t->rank ? extents[0] / block : 1;
    bool fits = !__builtin_mul_overflow(n, block_bytes, &n);
    for (int i = 0; i < t->rank; i++) {
        fits = fits && extents[i] <= INT64_MAX;
        if (i > 0) fits = fits && !__builtin_mul_overflow(n, extents[i], &n);
        t->shape[t->rank - 1 - i] = (int64_t)extents[i];
    }
    fits = fits && n <= SIZE_MAX / 2;
    if (!fits)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%.*s\": its shape overflows", c->path,
                       shown(e->name_bytes), e->name);
    t->n_bytes = (size_t)n;
    return REEL_OK;
}

static enum reel_status parse_entry(struct cursor *c, struct entry *e, struct reel_error *err) {
    static const char where[] = "a tensor's description";
    *e = (struct entry){ 0 };
    if (!take_text(c, &e->name, &e->name_bytes)) return ends_inside(c, where, err);
    if (e->name_bytes == 0 || e->name_bytes > TENSOR_MAX_NAME)
        return err_set(err, REEL_E_LIMIT,
                       "%s: tensor \"%.*s\" has a name of %zu bytes, allowed are 1 to %d", c->path,
                       shown(e->name_bytes), e->name, e->name_bytes, TENSOR_MAX_NAME);
    if (memchr(e->name, 0, e->name_bytes))
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%.*s\" has a zero byte in its name",
                       c->path, shown(e->name_bytes), e->name);
    uint32_t rank = 0, type = 0;
    if (!take_u32(c, &rank)) return ends_inside(c, where, err);
    if (rank > TENSOR_MAX_RANK)
        return err_set(err, REEL_E_LIMIT,
                       "%s: tensor \"%.*s\" has %u dimensions, at most %d are allowed", c->path,
                       shown(e->name_bytes), e->name, rank, TENSOR_MAX_RANK);
    e->tensor.rank = (int)rank;
    uint64_t extents[TENSOR_MAX_RANK] = { 0 };
    for (uint32_t i = 0; i < rank; i++)
        if (!take_u64(c, &extents[i])) return ends_inside(c, where, err);
    if (!take_u32(c, &type) || !take_u64(c, &e->offset)) return ends_inside(c, where, err);
    e->type = find_type(type);
    if (!e->type)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: tensor \"%.*s\" has the unknown type %u",
                       c->path, shown(e->name_bytes), e->name, type);
    if (e->type->dtype == DTYPE_COUNT && !e->type->what)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%.*s\" has type %s, which is not supported", c->path,
                       shown(e->name_bytes), e->name, e->type->name);
    e->tensor.dtype = e->type->what ? DTYPE_F32 : e->type->dtype;
    return parse_shape(c, e, extents, err);
}

static enum reel_status parse_entries(struct cursor *c, struct entry **entries, uint64_t n,
                                      struct reel_error *err) {
    enum reel_status status =
        mem_zeroed(entries, (size_t)n, sizeof **entries, "the tensor list", err);
    for (uint64_t i = 0; status == REEL_OK && i < n; i++)
        status = parse_entry(c, &(*entries)[i], err);
    return status;
}

/* As ggml writes and demands it: tensors follow each other in the order of their descriptions, each
 * padded to the alignment, so none overlap. */
static enum reel_status place_entries(const struct cursor *c, struct entry *entries, uint64_t n,
                                      uint64_t alignment, struct reel_error *err) {
    uint64_t data = ((uint64_t)c->at + alignment - 1) / alignment * alignment;
    uint64_t at = 0; /* of a whole file below c->size; so rounding up cannot overflow */
    for (uint64_t i = 0; i < n; i++) {
        struct entry *e = &entries[i];
        if (e->offset != at)
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%.*s\" has offset %llu, expected %llu",
                           c->path, shown(e->name_bytes), e->name, (unsigned long long)e->offset,
                           (unsigned long long)at);
        if (!c->head && !range_ok(data + at, e->tensor.n_bytes, c->size))
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%.*s\" needs %zu bytes at %llu, the file has %zu", c->path,
                           shown(e->name_bytes), e->name, e->tensor.n_bytes,
                           (unsigned long long)(data + at), c->size);
        if (!c->head) e->tensor.data = c->bytes + data + at;
        if (at > UINT64_MAX / 4 || e->tensor.n_bytes > UINT64_MAX / 4)
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%.*s\" lies too far behind", c->path,
                           shown(e->name_bytes), e->name);
        at = (at + e->tensor.n_bytes + alignment - 1) / alignment * alignment;
    }
    return REEL_OK;
}

static enum reel_status build_list(struct tensor_file *file, const struct entry *entries,
                                   uint64_t n, struct reel_error *err) {
    size_t name_bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        name_bytes += entries[i].name_bytes + 1;
    enum reel_status status = mem_zeroed(&file->names, name_bytes, 1, "tensor names", err);
    if (status == REEL_OK)
        status = mem_zeroed(&file->tensors, (size_t)n, sizeof *file->tensors, "tensors", err);
    if (status == REEL_OK)
        status = mem_zeroed(&file->ignored, (size_t)n, sizeof *file->ignored, "tensors", err);
    if (status != REEL_OK) return status;
    char *name = file->names;
    for (uint64_t i = 0; i < n; i++) {
        const struct entry *e = &entries[i];
        memcpy(name, e->name, e->name_bytes); /* the block is zeroed: terminated */
        if (e->type->what) {
            file->ignored[file->n_ignored++] =
                (struct tensor_ignored){ .name = name, .what = e->type->what };
        } else {
            file->tensors[file->n_tensors] = e->tensor;
            file->tensors[file->n_tensors++].name = name;
        }
        name += e->name_bytes + 1;
    }
    return tensor_file_sort(file, err);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct header {
    uint64_t n_tensors, n_values;
};

static enum reel_status parse_header(struct cursor *c, struct header *h, struct reel_error *err) {
    uint32_t version = 0;
    if (c->size < 4 || memcmp(c->bytes, "GGUF", 4) != 0)
        return err_set(err, REEL_E_FORMAT, "%s: not a GGUF file: it does not start with \"GGUF\"",
                       c->path);
    c->at = 4;
    if (!take_u32(c, &version)) return ends_inside(c, "the header", err);
    if (version == 0x02000000 || version == 0x03000000)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: a big-endian GGUF file, supported is little-endian", c->path);
    if (version != 2 && version != 3)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: GGUF version %u, supported are 2 and 3",
                       c->path, version);
    if (!take_u64(c, &h->n_tensors) || !take_u64(c, &h->n_values))
        return ends_inside(c, "the header", err);
    if (h->n_tensors > TENSOR_MAX_COUNT)
        return err_set(err, REEL_E_LIMIT, "%s: %llu tensors, at most %d are allowed", c->path,
                       (unsigned long long)h->n_tensors, TENSOR_MAX_COUNT);
    if (h->n_values > GGUF_MAX_VALUES)
        return err_set(err, REEL_E_LIMIT, "%s: %llu metadata keys, at most %d are allowed", c->path,
                       (unsigned long long)h->n_values, GGUF_MAX_VALUES);
    return REEL_OK;
}

static enum reel_status read_alignment(const struct gguf *gguf, uint64_t *alignment,
                                       struct reel_error *err) {
    static const char key[] = "general.alignment";
    int64_t value = 32; /* the format's default */
    enum reel_status status = gguf_get_int(gguf, key, 8, GGUF_MAX_ALIGNMENT, false, &value, err);
    if (status != REEL_OK) return status;
    *alignment = (uint64_t)value;
    if ((value & (value - 1)) == 0) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is %lld, allowed are powers of two", gguf->path,
                   key, (long long)value);
}

/* One map, borrowed from gguf, and its path. */
static enum reel_status name_map(struct tensor_file *file, const struct gguf *gguf,
                                 struct reel_error *err) {
    enum reel_status status = mem_zeroed(&file->maps, 1, sizeof *file->maps, "file maps", err);
    if (status == REEL_OK)
        status = mem_zeroed(&file->map_names, 1, sizeof *file->map_names, "file names", err);
    if (status == REEL_OK)
        status = mem_text(&file->map_names[0], gguf->path, strlen(gguf->path), "a path", err);
    if (status != REEL_OK) return status;
    file_map_borrow(&file->maps[0], gguf->map.bytes, gguf->map.size);
    file->n_maps = 1;
    return REEL_OK;
}

static enum reel_status read_all(struct gguf *gguf, struct tensor_file *file, struct cursor *c,
                                 struct entry **entries, struct reel_error *err) {
    c->path = gguf->path;
    c->bytes = gguf->map.bytes;
    c->size = gguf->map.size;
    struct header h = { 0 };
    uint64_t alignment = 0;
    enum reel_status status = parse_header(c, &h, err);
    if (status == REEL_OK) status = parse_metadata(gguf, c, h.n_values, err);
    if (status == REEL_OK) status = read_alignment(gguf, &alignment, err);
    if (status == REEL_OK) status = parse_entries(c, entries, h.n_tensors, err);
    if (status == REEL_OK) status = place_entries(c, *entries, h.n_tensors, alignment, err);
    if (status == REEL_OK) status = name_map(file, gguf, err);
    if (status == REEL_OK) status = build_list(file, *entries, h.n_tensors, err);
    return status;
}

enum reel_status gguf_open(struct gguf *gguf, struct tensor_file *file,
                           const struct model_source *source, struct reel_error *err) {
    *gguf = (struct gguf){ 0 };
    *file = (struct tensor_file){ 0 };
    struct entry *entries = NULL;
    struct cursor c = { 0 };
    enum reel_status status = model_source_map(source, NULL, &gguf->map, &gguf->path, err);
    if (status == REEL_OK) status = read_all(gguf, file, &c, &entries, err);
    mem_free(entries);
    if (status == REEL_OK) return REEL_OK;
    tensor_file_release(file);
    gguf_release(gguf);
    return status;
}

enum reel_status gguf_open_head(struct gguf *gguf, struct tensor_file *file,
                                const struct model_source *source, bool *complete,
                                struct reel_error *err) {
    *gguf = (struct gguf){ 0 };
    *file = (struct tensor_file){ 0 };
    *complete = true;
    struct entry *entries = NULL;
    struct cursor c = { .head = true };
    struct reel_error why = { 0 };
    enum reel_status status = model_source_map(source, NULL, &gguf->map, &gguf->path, &why);
    if (status == REEL_OK) status = read_all(gguf, file, &c, &entries, &why);
    mem_free(entries);
    if (status == REEL_E_FORMAT && c.cut) { /* what was read so far stays, in order to be found */
        *complete = false;
        size_t n = (size_t)gguf->n_values;
        if (n > 1) qsort(gguf->values, n, sizeof *gguf->values, compare_values);
        return REEL_OK;
    }
    if (status == REEL_OK) return REEL_OK;
    tensor_file_release(file);
    gguf_release(gguf);
    return err_set(err, status, "%s", why.text);
}

void gguf_release(struct gguf *gguf) {
    if (!gguf) return;
    file_map_close(&gguf->map);
    mem_free(gguf->path);
    mem_free(gguf->values);
    *gguf = (struct gguf){ 0 };
}

/* ---- typed reads ----------------------------------------------------------------------------- */

static enum reel_status absent(const struct gguf *gguf, const char *key, bool required,
                               struct reel_error *err) {
    if (!required) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is missing", gguf->path, key);
}

static enum reel_status wrong_type(const struct gguf *gguf, const struct gguf_value *v,
                                   const char *key, const char *wanted, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be %s, found %s", gguf->path, key, wanted,
                   value_types[v->type].name);
}

bool gguf_value_int(const struct gguf_value *v, uint64_t index, int64_t *out) {
    enum gguf_type type = v->type == GGUF_ARRAY ? v->element_type : v->type;
    if (index >= v->count) return false;
    const unsigned char *p = v->bytes + index * value_types[type].bytes;
    uint64_t bits = little_endian(p, value_types[type].bytes);
    switch (type) {
    case GGUF_I8:
        *out = (int8_t)bits;
        return true;
    case GGUF_I16:
        *out = (int16_t)bits;
        return true;
    case GGUF_I32:
        *out = (int32_t)bits;
        return true;
    case GGUF_I64:
        *out = (int64_t)bits;
        return true;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
        *out = (int64_t)bits;
        return true;
    case GGUF_U64:
        *out = bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
        return true;
    default:
        return false;
    }
}

enum reel_status gguf_get_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                              bool required, int64_t *out, struct reel_error *err) {
    const struct gguf_value *v = gguf_find(gguf, key);
    int64_t value = 0;
    if (!v) return absent(gguf, key, required, err);
    if (v->type == GGUF_ARRAY || !gguf_value_int(v, 0, &value))
        return wrong_type(gguf, v, key, "an integer", err);
    if (value < min || value > max)
        return err_set(err, REEL_E_LIMIT, "%s: \"%s\" is %lld, allowed are %lld to %lld",
                       gguf->path, key, (long long)value, (long long)min, (long long)max);
    *out = value;
    return REEL_OK;
}

enum reel_status gguf_get_real(const struct gguf *gguf, const char *key, bool required, double *out,
                               struct reel_error *err) {
    const struct gguf_value *v = gguf_find(gguf, key);
    if (!v) return absent(gguf, key, required, err);
    int64_t whole = 0;
    double value = 0;
    if (v->type == GGUF_F32) {
        float narrow = 0;
        dtype_to_f32(DTYPE_F32, v->bytes, &narrow, 1);
        value = (double)narrow;
    } else if (v->type == GGUF_F64) {
        uint64_t bits = little_endian(v->bytes, 8);
        memcpy(&value, &bits, sizeof value);
    } else if (v->type != GGUF_ARRAY && gguf_value_int(v, 0, &whole)) {
        value = (double)whole;
    } else {
        return wrong_type(gguf, v, key, "a number", err);
    }
    if (!isfinite(value))
        return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is not a finite number", gguf->path, key);
    *out = value;
    return REEL_OK;
}

enum reel_status gguf_get_bool(const struct gguf *gguf, const char *key, bool required, bool *out,
                               struct reel_error *err) {
    const struct gguf_value *v = gguf_find(gguf, key);
    if (!v) return absent(gguf, key, required, err);
    if (v->type != GGUF_BOOL) return wrong_type(gguf, v, key, "a boolean", err);
    *out = v->bytes[0] != 0;
    return REEL_OK;
}

enum reel_status gguf_get_text(const struct gguf *gguf, const char *key, bool required,
                               const char **bytes, size_t *n_bytes, struct reel_error *err) {
    const struct gguf_value *v = gguf_find(gguf, key);
    if (!v) return absent(gguf, key, required, err);
    if (v->type != GGUF_STRING) return wrong_type(gguf, v, key, "a text", err);
    *bytes = (const char *)v->bytes;
    *n_bytes = v->n_bytes;
    return REEL_OK;
}

bool gguf_next_text(const struct gguf_value *value, const unsigned char **cursor,
                    const char **bytes, size_t *n_bytes) {
    const unsigned char *end = value->bytes + value->n_bytes;
    if (value->type != GGUF_ARRAY || value->element_type != GGUF_STRING || end - *cursor < 8)
        return false;
    uint64_t n = little_endian(*cursor, 8);
    const unsigned char *text = *cursor + 8;
    if (n > (uint64_t)(end - text)) return false;
    *bytes = (const char *)text;
    *n_bytes = (size_t)n;
    *cursor = text + n;
    return true;
}
