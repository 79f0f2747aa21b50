/* safetensors headers, checked by the reference reader's rules and a few more: entries must cover
 * the payload without gap, overlap or rest, so that a file has one reading only. */
#include "model/safetensors.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stored_type {
    const char *name;
    const char *what; /* for a type that is left out, how messages call it; else NULL */
    int bits;
    enum dtype dtype;
    enum stored_code code;
};

#define LEFT_OUT(name, bits)                                                                       \
    { name, "type " name, bits, DTYPE_COUNT, STORED_NONE }
#define OF_CODES(name, bits, code)                                                                 \
    { name, "type " name, bits, DTYPE_COUNT, code }
static const struct stored_type stored_types[] = {
    { "F32", NULL, 32, DTYPE_F32, STORED_NONE },
    { "F16", NULL, 16, DTYPE_F16, STORED_NONE },
    { "BF16", NULL, 16, DTYPE_BF16, STORED_NONE },
    LEFT_OUT("BOOL", 8),
    OF_CODES("U8", 8, STORED_U8),
    OF_CODES("I8", 8, STORED_I8),
    LEFT_OUT("F8_E5M2", 8),
    OF_CODES("F8_E4M3", 8, STORED_E4M3),
    OF_CODES("F8_E8M0", 8, STORED_E8M0),
    LEFT_OUT("F8_E4M3FNUZ", 8),
    LEFT_OUT("F8_E5M2FNUZ", 8),
    LEFT_OUT("F4", 4),
    LEFT_OUT("F6_E2M3", 6),
    LEFT_OUT("F6_E3M2", 6),
    LEFT_OUT("I16", 16),
    LEFT_OUT("U16", 16),
    OF_CODES("I32", 32, STORED_I32),
    LEFT_OUT("U32", 32),
    OF_CODES("I64", 64, STORED_I64),
    LEFT_OUT("U64", 64),
    LEFT_OUT("F64", 64),
    LEFT_OUT("C64", 64),
};

static const struct stored_type *find_type(const char *name) {
    for (size_t i = 0; i < sizeof stored_types / sizeof stored_types[0]; i++)
        if (strcmp(stored_types[i].name, name) == 0) return &stored_types[i];
    return NULL;
}

/* One header entry, used or not. */
struct entry {
    const char *name; /* borrowed from the header's JSON */
    const struct stored_type *type;
    int rank; /* as the file has it; shape holds the first TENSOR_MAX_RANK */
    int64_t shape[TENSOR_MAX_RANK];
    uint64_t begin, end; /* relative to the payload */
    int file;
};

/* One open file: its header stays parsed until all names are copied. */
struct shard {
    const char *path; /* borrowed from the tensor_file */
    json_t *header;
    const unsigned char *payload;
    size_t payload_bytes;
    size_t first_entry; /* its entries are [first_entry, end_entry) of the reader's */
    size_t end_entry;
};

struct reader {
    struct tensor_file *file;
    struct shard *shards; /* [file->n_maps] */
    struct entry *entries;
    size_t n_entries;
};

static void reader_release(struct reader *r) {
    for (int i = 0; r->shards && i < r->file->n_maps; i++)
        json_decref(r->shards[i].header);
    mem_free(r->shards);
    mem_free(r->entries);
}

static enum reel_status parse_shape(struct entry *e, const char *path, const json_t *shape,
                                    uint64_t *n_bits, struct reel_error *err) {
    if (!json_is_array(shape))
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": \"shape\" must be a list", path,
                       e->name);
    *n_bits = (uint64_t)e->type->bits;
    size_t rank = json_array_size(shape);
    e->rank = rank > TENSOR_MAX_RANK ? TENSOR_MAX_RANK + 1 : (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *extent = json_array_get(shape, i);
        json_int_t n = json_integer_value(extent);
        if (!json_is_integer(extent) || n < 0)
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\": \"shape\" must hold integers of 0 and more", path,
                           e->name);
        if (__builtin_mul_overflow(*n_bits, (uint64_t)n, n_bits))
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": its shape overflows", path,
                           e->name);
        if (i < TENSOR_MAX_RANK) e->shape[i] = n;
    }
    return REEL_OK;
}

static enum reel_status parse_offsets(struct entry *e, const struct shard *shard,
                                      const json_t *offsets, uint64_t n_bits,
                                      struct reel_error *err) {
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end))
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\": \"data_offsets\" must be two integers", shard->path,
                       e->name);
    long long from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (unsigned long long)to > shard->payload_bytes)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\": \"data_offsets\" [%lld, %lld] do not lie in order "
                       "inside the %zu bytes of the payload",
                       shard->path, e->name, from, to, shard->payload_bytes);
    e->begin = (uint64_t)from;
    e->end = (uint64_t)to;
    if (n_bits % 8 || n_bits / 8 != e->end - e->begin)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\": its shape needs %llu bits of %s, its offsets hold %llu "
                       "bytes",
                       shard->path, e->name, (unsigned long long)n_bits, e->type->name,
                       (unsigned long long)(e->end - e->begin));
    return REEL_OK;
}

static enum reel_status parse_entry(struct entry *e, const struct shard *shard, const json_t *value,
                                    struct reel_error *err) {
    if (strlen(e->name) > TENSOR_MAX_NAME)
        return err_set(err, REEL_E_LIMIT,
                       "%s: tensor \"%.60s...\": the name has %zu bytes, at most %d are allowed",
                       shard->path, e->name, strlen(e->name), TENSOR_MAX_NAME);
    const json_t *type = json_object_get(value, "dtype");
    if (!json_is_object(value) || !json_is_string(type))
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": \"dtype\" must be a string",
                       shard->path, e->name);
    e->type = find_type(json_string_value(type));
    if (!e->type)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\": \"dtype\" is \"%.40s\", unknown",
                       shard->path, e->name, json_string_value(type));
    uint64_t n_bits = 0;
    enum reel_status status =
        parse_shape(e, shard->path, json_object_get(value, "shape"), &n_bits, err);
    if (status != REEL_OK) return status;
    status = parse_offsets(e, shard, json_object_get(value, "data_offsets"), n_bits, err);
    if (status != REEL_OK) return status;
    if (json_object_size(value) != 3)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has %zu keys, allowed are \"dtype\", \"shape\" and "
                       "\"data_offsets\"",
                       shard->path, e->name, json_object_size(value));
    return REEL_OK;
}

static enum reel_status check_metadata(const char *path, const json_t *metadata,
                                       struct reel_error *err) {
    bool ok = json_is_object(metadata);
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) ok = ok && json_is_string(value);
    if (ok) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: \"__metadata__\" must be an object of strings", path);
}

static int compare_begin(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1; /* empty tensors first */
    return strcmp(x->name, y->name);
}

/* The entries, sorted by place, must follow each other from the first to the last byte. */
static enum reel_status check_cover(const struct shard *shard, const struct entry *entries,
                                    size_t n, struct reel_error *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (entries[i].begin != at)
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\" begins at byte %llu of the payload, expected %llu: "
                           "tensors must neither overlap nor leave gaps",
                           shard->path, entries[i].name, (unsigned long long)entries[i].begin,
                           (unsigned long long)at);
        at = entries[i].end;
    }
    if (at == shard->payload_bytes) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: the tensors end at byte %llu of a payload of %zu bytes",
                   shard->path, (unsigned long long)at, shard->payload_bytes);
}

static enum reel_status parse_header(struct shard *shard, const struct file_map *map,
                                     struct reel_error *err) {
    if (map->size < 8)
        return err_set(err, REEL_E_FORMAT,
                       "%s: %zu bytes, a safetensors file has at least 8 before its header",
                       shard->path, map->size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | map->bytes[i];
    if (n > SAFETENSORS_MAX_HEADER)
        return err_set(err, REEL_E_LIMIT, "%s: a header of %llu bytes, at most %u are allowed",
                       shard->path, (unsigned long long)n, SAFETENSORS_MAX_HEADER);
    if (!range_ok(8, n, map->size))
        return err_set(err, REEL_E_FORMAT, "%s: a header of %llu bytes in a file of %zu",
                       shard->path, (unsigned long long)n, map->size);
    if (n == 0 || map->bytes[8] != '{')
        return err_set(err, REEL_E_FORMAT, "%s: the header does not begin with '{'", shard->path);
    shard->payload = map->bytes + 8 + n;
    shard->payload_bytes = map->size - 8 - (size_t)n;
    return json_read(&shard->header, shard->path, map->bytes + 8, (size_t)n, err);
}

static enum reel_status read_shard(struct reader *r, int index, struct reel_error *err) {
    struct shard *shard = &r->shards[index];
    enum reel_status status = parse_header(shard, &r->file->maps[index], err);
    if (status != REEL_OK) return status;
    size_t n = json_object_size(shard->header);
    if (n > TENSOR_MAX_COUNT || r->n_entries + n > TENSOR_MAX_COUNT)
        return err_set(err, REEL_E_LIMIT, "%s: %zu tensors, at most %d are allowed in all files",
                       shard->path, r->n_entries + n, TENSOR_MAX_COUNT);
    struct entry *entries = mem_resize(r->entries, (r->n_entries + n + 1) * sizeof *entries);
    if (!entries) return err_memory(err, "the tensor list", (n + 1) * sizeof *entries);
    r->entries = entries;
    shard->first_entry = r->n_entries;

    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(shard->header, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(shard->path, value, err);
        } else {
            struct entry *e = &r->entries[r->n_entries++];
            *e = (struct entry){ .name = name, .file = index };
            status = parse_entry(e, shard, value, err);
        }
        if (status != REEL_OK) return status;
    }
    shard->end_entry = r->n_entries;
    struct entry *first = r->entries + shard->first_entry;
    n = shard->end_entry - shard->first_entry;
    if (n) qsort(first, n, sizeof *first, compare_begin);
    return check_cover(shard, first, n, err);
}

/* What is no matrix or vector by itself; of types for codes what a reader of codes needs. */
static void describe_other(struct tensor_ignored *t, const struct entry *e, const char *name,
                           const struct shard *shard) {
    const bool deep = e->rank > TENSOR_MAX_RANK;
    *t =
        (struct tensor_ignored){ .name = name,
                                 .what = e->type->what ? e->type->what : "more than 4 dimensions" };
    if (deep || e->type->code == STORED_NONE) return;
    t->code = e->type->code;
    t->rank = e->rank;
    t->file = e->file;
    memcpy(t->shape, e->shape, sizeof t->shape);
    t->data = shard->payload + e->begin;
    t->n_bytes = (size_t)(e->end - e->begin);
}

/* Copies names and entries into the tensor_file, which outlives the headers. */
static enum reel_status build_list(struct reader *r, struct reel_error *err) {
    struct tensor_file *file = r->file;
    size_t name_bytes = 0;
    for (size_t i = 0; i < r->n_entries; i++)
        name_bytes += strlen(r->entries[i].name) + 1;
    enum reel_status status = mem_zeroed(&file->names, name_bytes, 1, "tensor names", err);
    if (status == REEL_OK)
        status = mem_zeroed(&file->tensors, r->n_entries, sizeof *file->tensors, "tensors", err);
    if (status == REEL_OK)
        status = mem_zeroed(&file->ignored, r->n_entries, sizeof *file->ignored, "tensors", err);
    if (status != REEL_OK) return status;

    char *name = file->names;
    for (size_t i = 0; i < r->n_entries; i++) {
        const struct entry *e = &r->entries[i];
        size_t n = strlen(e->name) + 1;
        memcpy(name, e->name, n);
        if (e->type->what || e->rank > TENSOR_MAX_RANK) {
            describe_other(&file->ignored[file->n_ignored++], e, name, &r->shards[e->file]);
        } else {
            struct tensor *t = &file->tensors[file->n_tensors++];
            *t = (struct tensor){ .name = name,
                                  .dtype = e->type->dtype,
                                  .rank = e->rank,
                                  .data = r->shards[e->file].payload + e->begin,
                                  .n_bytes = (size_t)(e->end - e->begin),
                                  .file = e->file };
            memcpy(t->shape, e->shape, sizeof t->shape);
        }
        name += n;
    }
    return tensor_file_sort(file, err);
}

static enum reel_status add_map(struct tensor_file *file, const struct model_source *source,
                                const char *name, struct reel_error *err) {
    enum reel_status status = model_source_map(source, name, &file->maps[file->n_maps],
                                               &file->map_names[file->n_maps], err);
    if (status == REEL_OK) file->n_maps++;
    return status;
}

static const char index_name[] = "model.safetensors.index.json";

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names of a weight_map, sorted; borrowed from it. The caller frees *names. */
static enum reel_status shard_names(const json_t *weight_map, const char *path, const char ***names,
                                    size_t *n_names, struct reel_error *err) {
    size_t n = json_object_size(weight_map);
    *n_names = 0;
    if (n > TENSOR_MAX_COUNT)
        return err_set(err, REEL_E_LIMIT,
                       "%s: \"weight_map\" has %zu tensors, at most %d are "
                       "allowed",
                       path, n, TENSOR_MAX_COUNT);
    enum reel_status status = mem_zeroed(names, n, sizeof **names, "shard names", err);
    if (status != REEL_OK) return status;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)weight_map, key, value) {
        if (!json_is_string(value))
            return err_set(err, REEL_E_FORMAT, "%s: \"weight_map\": \"%s\" must name a file", path,
                           key);
        (*names)[(*n_names)++] = json_string_value(value);
    }
    if (n) qsort(*names, n, sizeof **names, compare_text);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp((*names)[kept - 1], (*names)[i]) != 0)
            (*names)[kept++] = (*names)[i];
    *n_names = kept;
    if (kept == 0) return err_set(err, REEL_E_FORMAT, "%s: \"weight_map\" names no file", path);
    if (kept > TENSOR_MAX_FILES)
        return err_set(err, REEL_E_LIMIT,
                       "%s: \"weight_map\" names %zu files, at most %d are "
                       "allowed",
                       path, kept, TENSOR_MAX_FILES);
    return REEL_OK;
}

static enum reel_status allocate_maps(struct tensor_file *file, size_t n, struct reel_error *err) {
    enum reel_status status = mem_zeroed(&file->maps, n, sizeof *file->maps, "file maps", err);
    if (status != REEL_OK) return status;
    return mem_zeroed(&file->map_names, n, sizeof *file->map_names, "file names", err);
}

static enum reel_status read_index(json_t **out, char **path, const struct model_source *source,
                                   struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = model_source_map(source, index_name, &map, path, err);
    if (status == REEL_OK) status = json_read(out, *path, map.bytes, map.size, err);
    if (status == REEL_OK && !json_is_object(json_object_get(*out, "weight_map")))
        status = err_set(err, REEL_E_FORMAT, "%s: \"weight_map\" must be an object", *path);
    file_map_close(&map);
    return status;
}

static enum reel_status map_files(struct tensor_file *file, const struct model_source *source,
                                  const json_t *index, const char *index_path,
                                  struct reel_error *err) {
    const char **names = NULL;
    size_t n = 0;
    enum reel_status status = REEL_OK;
    if (!index) {
        status = allocate_maps(file, 1, err);
        return status == REEL_OK ? add_map(file, source, "model.safetensors", err) : status;
    }
    status = shard_names(json_object_get(index, "weight_map"), index_path, &names, &n, err);
    if (status == REEL_OK) status = allocate_maps(file, n, err);
    for (size_t i = 0; status == REEL_OK && i < n; i++)
        status = add_map(file, source, names[i], err);
    mem_free(names);
    return status;
}

static const char *file_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Every tensor of the index must be in the file the index names. */
static enum reel_status check_index(const struct reader *r, const json_t *index,
                                    const char *index_path, struct reel_error *err) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(json_object_get(index, "weight_map"), name, value) {
        const char *wanted = json_string_value(value);
        int at = 0;
        while (at < r->file->n_maps && strcmp(file_part(r->file->map_names[at]), wanted) != 0)
            at++;
        if (at == r->file->n_maps || !json_object_get(r->shards[at].header, name))
            return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is not in \"%s\"", index_path,
                           name, wanted);
    }
    return REEL_OK;
}

enum reel_status safetensors_open(struct tensor_file *file, const struct model_source *source,
                                  struct reel_error *err) {
    *file = (struct tensor_file){ 0 };
    struct reader r = { .file = file };
    json_t *index = NULL;
    char *index_path = NULL;
    enum reel_status status = REEL_OK;
    if (model_source_has(source, index_name)) status = read_index(&index, &index_path, source, err);
    if (status == REEL_OK) status = map_files(file, source, index, index_path, err);
    if (status == REEL_OK)
        status = mem_zeroed(&r.shards, (size_t)file->n_maps, sizeof *r.shards, "shards", err);
    for (int i = 0; status == REEL_OK && i < file->n_maps; i++) {
        r.shards[i].path = file->map_names[i];
        status = read_shard(&r, i, err);
    }
    if (status == REEL_OK && index) status = check_index(&r, index, index_path, err);
    if (status == REEL_OK) status = build_list(&r, err);
    reader_release(&r);
    json_decref(index);
    mem_free(index_path);
    if (status != REEL_OK) tensor_file_release(file);
    return status;
}
