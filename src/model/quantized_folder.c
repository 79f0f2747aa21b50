/* The tensors of the new files are listed first, so that each file can begin with its header; then
 * one matrix after the other is quantised and written. Codes lie in the files as in memory: a code
 * counts from 0, lower halves of a byte come first, and rows follow each other. */
#include "model/quantized_folder.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "model/new_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_ROOM   (TENSOR_MAX_NAME + 32)
#define MATRIX_NAME ".weight"

enum part_kind { PART_COPY, PART_CODES, PART_SCALES, PART_SHAPE };

/* One tensor of the new files. */
struct part {
    char name[NAME_ROOM];
    enum part_kind kind;
    const char *dtype; /* as safetensors calls it */
    int rank;
    int64_t shape[TENSOR_MAX_RANK];
    uint64_t bytes;
    const unsigned char *data;   /* PART_COPY: borrowed */
    const struct matrix *matrix; /* else: what it is made of */
    int shard;
};

struct writer {
    const struct model *model;
    const struct quantized_folder_options *options;
    struct quantized_folder_result *result;
    struct new_folder folder;
    struct thread_pool *pool;
    struct wide_matrix *wide; /* [n_wide] those of the layers */
    int n_wide;
    struct part *parts; /* [n_parts], by shard */
    int n_parts;
    struct quantized_matrix now; /* the one being written */
    uint64_t done, bytes;
};

/* ---- the list -------------------------------------------------------------------------------- */

static const char *dtype_code(enum dtype type) {
    switch (type) {
    case DTYPE_F32:
        return "F32";
    case DTYPE_F16:
        return "F16";
    case DTYPE_BF16:
        return "BF16";
    default:
        return NULL;
    }
}

static struct part *add_part(struct writer *w, enum part_kind kind, const char *dtype,
                             const char *name, size_t n_name, const char *suffix) {
    struct part *part = &w->parts[w->n_parts++];
    *part = (struct part){ .kind = kind, .dtype = dtype };
    snprintf(part->name, sizeof part->name, "%.*s%s", (int)n_name, name, suffix);
    return part;
}

static enum reel_status add_copy(struct writer *w, const struct tensor *t, struct reel_error *err) {
    const char *dtype = dtype_code(t->dtype);
    if (!dtype)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, which cannot be copied into a folder",
                       tensor_file_path(&w->model->tensors, t), t->name, dtype_name(t->dtype));
    struct part *part = add_part(w, PART_COPY, dtype, t->name, strlen(t->name), "");
    part->rank = t->rank;
    memcpy(part->shape, t->shape, sizeof part->shape);
    part->bytes = t->n_bytes;
    part->data = t->data;
    return REEL_OK;
}

/* Rows of packed codes are whole words of 32 bits. */
static int64_t row_words(const struct quantize_shape *shape) {
    return ((int64_t)shape->row_bytes + 3) / 4;
}

static enum reel_status add_matrix(struct writer *w, const struct tensor *t, const struct matrix *m,
                                   struct reel_error *err) {
    struct quantize_shape shape;
    const size_t n = strlen(t->name) - strlen(MATRIX_NAME);
    const bool floats = w->options->form == WEIGHTS_FP8;
    if (!quantize_shape_fill(&shape, w->options->form, m->columns))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has rows of %d: int4 has a scale for 128, 64 or 32 "
                       "columns, and none of them divides that",
                       tensor_file_path(&w->model->tensors, t), t->name, m->columns);
    struct part *codes = floats ? add_part(w, PART_CODES, "F8_E4M3", t->name, n, ".weight")
                                : add_part(w, PART_CODES, "I32", t->name, n, ".weight_packed");
    codes->shape[0] = m->rows;
    codes->shape[1] = floats ? m->columns : row_words(&shape);
    codes->bytes = (uint64_t)m->rows * (uint64_t)codes->shape[1] * (floats ? 1 : 4);
    struct part *scales = add_part(w, PART_SCALES, "BF16", t->name, n, ".weight_scale");
    scales->shape[0] = m->rows;
    scales->shape[1] = shape.scales;
    scales->bytes = 2 * (uint64_t)m->rows * (uint64_t)shape.scales;
    codes->rank = scales->rank = 2;
    codes->matrix = scales->matrix = m;
    w->result->n_matrices++;
    w->result->n_weights += (uint64_t)m->rows * (uint64_t)m->columns;
    w->result->matrix_bytes += codes->bytes + scales->bytes;
    if (floats) return REEL_OK;
    struct part *sizes = add_part(w, PART_SHAPE, "I64", t->name, n, ".weight_shape");
    sizes->rank = 1;
    sizes->shape[0] = 2;
    sizes->bytes = 2 * sizeof(int64_t);
    sizes->matrix = m;
    return REEL_OK;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* The layer's matrix that this tensor is, by its address; NULL: it is copied. */
static const struct matrix *matrix_of(const struct writer *w, const struct tensor *t) {
    for (int i = 0; i < w->n_wide; i++)
        if (w->wide[i].matrix->data == t->data && ends_with(t->name, MATRIX_NAME))
            return w->wide[i].matrix;
    return NULL;
}

static enum reel_status list_parts(struct writer *w, struct reel_error *err) {
    const struct tensor_file *file = &w->model->tensors;
    enum reel_status status = mem_zeroed(&w->parts, (size_t)file->n_tensors * 3, sizeof *w->parts,
                                         "a list of tensors", err);
    for (int i = 0; i < file->n_tensors && status == REEL_OK; i++) {
        const struct tensor *t = &file->tensors[i];
        const struct matrix *m = matrix_of(w, t);
        status = m ? add_matrix(w, t, m, err) : add_copy(w, t, err);
    }
    return status;
}

/* A matrix's codes and scales stay in one file. */
static void deal_shards(struct writer *w) {
    uint64_t in_shard = 0;
    int shard = 0;
    for (int i = 0; i < w->n_parts;) {
        uint64_t together = w->parts[i].bytes;
        int end = i + 1;
        while (end < w->n_parts && w->parts[i].kind == PART_CODES &&
               w->parts[end].matrix == w->parts[i].matrix)
            together += w->parts[end++].bytes;
        if (in_shard > 0 && in_shard + together > w->options->shard_bytes) {
            in_shard = 0;
            shard++;
        }
        for (; i < end; i++)
            w->parts[i].shard = shard;
        in_shard += together;
        w->bytes += together;
    }
    w->result->n_files = shard + 1;
    w->result->bytes = w->bytes;
}

/* ---- files of weights ------------------------------------------------------------------------ */

static void shard_name(const struct writer *w, int shard, char name[64]) {
    const int n = w->result->n_files;
    if (n == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, n);
}

/* Length and JSON header, as in the file. Names come from a file whose names were checked. */
static enum reel_status print_header(struct buffer *out, const struct writer *w, int shard,
                                     struct reel_error *err) {
    static const char length_to_come[8];
    uint64_t at = 0;
    enum reel_status status = buffer_append(out, length_to_come, sizeof length_to_come, err);
    if (status == REEL_OK) status = buffer_text(out, "{\"__metadata__\":{\"format\":\"pt\"}", err);
    for (int i = 0; i < w->n_parts && status == REEL_OK; i++) {
        const struct part *p = &w->parts[i];
        if (p->shard != shard) continue;
        json_t *name = json_string(p->name);
        char *text = NULL;
        status = json_write_compact(&text, name, "a tensor's name", err);
        json_decref(name);
        if (status == REEL_OK)
            status = buffer_printf(out, err, ",%s:{\"dtype\":\"%s\",\"shape\":[", text, p->dtype);
        mem_free(text);
        for (int j = 0; j < p->rank && status == REEL_OK; j++)
            status = buffer_printf(out, err, "%s%" PRId64, j ? "," : "", p->shape[j]);
        if (status == REEL_OK)
            status = buffer_printf(out, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                                   at + p->bytes);
        at += p->bytes;
    }
    if (status == REEL_OK) status = buffer_text(out, "}", err);
    while (status == REEL_OK && out->size % 8)
        status = buffer_text(out, " ", err);
    for (int i = 0; i < 8 && status == REEL_OK; i++)
        out->bytes[i] = (char)((uint64_t)(out->size - 8) >> (8 * i));
    return status;
}

static enum reel_status write_codes(struct writer *w, const struct part *p,
                                    const struct new_file *file, struct reel_error *err) {
    static const char padding[4];
    quantized_matrix_release(&w->now);
    enum reel_status status =
        quantized_matrix_make(&w->now, p->matrix, p->name, w->options->form, w->pool, err);
    if (status != REEL_OK) return status;
    w->result->error.lost += w->now.error.lost;
    w->result->error.all += w->now.error.all;
    const size_t rows = (size_t)p->matrix->rows, row_bytes = w->now.matrix.row_bytes;
    const size_t more = (size_t)(p->bytes / rows) - row_bytes;
    if (!more) return new_file_append(file, w->now.codes, rows * row_bytes, err);
    for (size_t r = 0; r < rows && status == REEL_OK; r++) {
        status = new_file_append(file, w->now.codes + r * row_bytes, row_bytes, err);
        if (status == REEL_OK) status = new_file_append(file, padding, more, err);
    }
    return status;
}

static enum reel_status write_part(struct writer *w, const struct part *p,
                                   const struct new_file *file, struct reel_error *err) {
    const struct quantized_folder_options *o = w->options;
    int64_t sizes[2];
    if (o->progress && !o->progress(o->progress_user, "quantizing", w->done, w->bytes))
        return err_set(err, REEL_E_CANCELLED, "%s: cancelled", file->shown);
    w->done += p->bytes;
    switch (p->kind) {
    case PART_CODES:
        return write_codes(w, p, file, err);
    case PART_SCALES:
        return new_file_append(file, w->now.scales, (size_t)p->bytes, err);
    case PART_SHAPE:
        sizes[0] = p->matrix->rows;
        sizes[1] = p->matrix->columns;
        return new_file_append(file, sizes, sizeof sizes, err);
    default:
        return new_file_append(file, p->data, (size_t)p->bytes, err);
    }
}

static enum reel_status write_shard(struct writer *w, int shard, struct reel_error *err) {
    struct new_file file = { .fd = -1 };
    struct buffer header = { 0 };
    char name[64];
    shard_name(w, shard, name);
    enum reel_status status = print_header(&header, w, shard, err);
    if (status == REEL_OK) status = new_file_start(&file, &w->folder, name, err);
    if (status == REEL_OK) status = new_file_append(&file, header.bytes, header.size, err);
    for (int i = 0; i < w->n_parts && status == REEL_OK; i++)
        if (w->parts[i].shard == shard) status = write_part(w, &w->parts[i], &file, err);
    status = new_file_finish(&file, status, err);
    buffer_release(&header);
    return status;
}

static enum reel_status write_index(const struct writer *w, struct reel_error *err) {
    char *text = NULL;
    if (w->result->n_files == 1) return REEL_OK;
    json_t *map = json_object(), *index = NULL;
    bool good = map != NULL;
    for (int i = 0; i < w->n_parts && good; i++) {
        char name[64];
        shard_name(w, w->parts[i].shard, name);
        good = json_object_set_new(map, w->parts[i].name, json_string(name)) == 0;
    }
    if (good)
        index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)w->bytes,
                          "weight_map", map);
    enum reel_status status = index ? json_write(&text, index, "an index", err)
                                    : err_memory(err, "an index", (size_t)w->n_parts);
    if (status == REEL_OK)
        status =
            new_file_write(&w->folder, "model.safetensors.index.json", text, strlen(text), err);
    mem_free(text);
    json_decref(index);
    json_decref(map);
    return status;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* "mlp.down_proj" of "model.layers.3.mlp.down_proj.weight_packed": what it is in every layer. */
struct suffix {
    const char *at;
    int n;
};

static struct suffix suffix_of(const struct part *p) {
    const char *at = strstr(p->name, "layers."), *end = strrchr(p->name, '.');
    at = at ? strchr(at + strlen("layers."), '.') : NULL;
    if (!at || at >= end) return (struct suffix){ p->name, (int)(end - p->name) };
    return (struct suffix){ at + 1, (int)(end - at - 1) };
}

static int group_of(const struct writer *w, const struct part *p) {
    return quantize_group(w->options->form, p->matrix->columns);
}

/* Whether an earlier matrix of this group has the same place in its layer. */
static bool was_named(const struct writer *w, int i) {
    const struct suffix own = suffix_of(&w->parts[i]);
    for (int j = 0; j < i; j++) {
        if (w->parts[j].kind != PART_CODES) continue;
        const struct suffix other = suffix_of(&w->parts[j]);
        if (other.n == own.n && memcmp(other.at, own.at, (size_t)own.n) == 0) return true;
    }
    return false;
}

/* Regular expressions for the modules of one group. */
static enum reel_status print_targets(struct buffer *out, const struct writer *w, int group,
                                      struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool first = true;
    for (int i = 0; i < w->n_parts && status == REEL_OK; i++) {
        const struct part *p = &w->parts[i];
        if (p->kind != PART_CODES || group_of(w, p) != group || was_named(w, i)) continue;
        const struct suffix s = suffix_of(p);
        status = buffer_text(out, first ? "\"re:.*" : ",\"re:.*", err);
        for (int k = 0; k < s.n && status == REEL_OK; k++)
            status = s.at[k] == '.' ? buffer_text(out, "\\\\.", err)
                                    : buffer_append(out, &s.at[k], 1, err);
        if (status == REEL_OK) status = buffer_text(out, "$\"", err);
        first = false;
    }
    return status;
}

/* The group's settings; those of whole rows are per channel. */
static enum reel_status print_group(struct buffer *out, const struct writer *w, int number,
                                    int group, struct reel_error *err) {
    const enum weight_form form = w->options->form;
    enum reel_status status =
        buffer_printf(out, err, "%s\"group_%d\":{\"targets\":[", number ? "," : "", number);
    if (status == REEL_OK)
        status = group ? print_targets(out, w, group, err) : buffer_text(out, "\"Linear\"", err);
    if (status == REEL_OK)
        status = buffer_printf(out, err,
                               "],\"weights\":{\"num_bits\":%d,\"type\":\"%s\",\"symmetric\":true,"
                               "\"strategy\":\"%s\",\"group_size\":",
                               form == WEIGHTS_INT4 ? 4 : 8, form == WEIGHTS_FP8 ? "float" : "int",
                               group ? "group" : "channel");
    if (status == REEL_OK)
        status = group ? buffer_printf(out, err, "%d", group) : buffer_text(out, "null", err);
    if (status == REEL_OK)
        status = buffer_text(out,
                             ",\"dynamic\":false,\"actorder\":null,\"observer\":\"mse\"},"
                             "\"input_activations\":null,\"output_activations\":null}",
                             err);
    return status;
}

static enum reel_status print_groups(struct buffer *out, const struct writer *w,
                                     struct reel_error *err) {
    enum reel_status status = REEL_OK;
    int number = 0;
    if (w->options->form != WEIGHTS_INT4) return print_group(out, w, 0, 0, err);
    for (int group = 128; group >= 32 && status == REEL_OK; group /= 2) {
        bool found = false;
        for (int i = 0; i < w->n_parts; i++)
            found = found || (w->parts[i].kind == PART_CODES && group_of(w, &w->parts[i]) == group);
        if (found) status = print_group(out, w, number++, group, err);
    }
    return status;
}

/* Linear modules that stay wide: their names in every layer, and parts of the model. */
static enum reel_status print_ignored(struct buffer *out, const struct writer *w,
                                      struct reel_error *err) {
    static const struct {
        const char *has, *pattern;
    } known[] = {
        { "", "lm_head" },
        { "thinker.", "re:.*lm_head$" },
        { "linear_attn.", "re:.*linear_attn\\\\.in_proj_[ab]$" },
        { "visual.", "re:.*visual\\\\..*" },
        { "audio_tower.", "re:.*audio_tower\\\\..*" },
        { "mtp.", "re:.*mtp\\\\..*" },
    };
    enum reel_status status = REEL_OK;
    for (size_t k = 0; k < sizeof known / sizeof *known && status == REEL_OK; k++) {
        bool found = !known[k].has[0];
        for (int i = 0; i < w->n_parts && !found; i++)
            found = strstr(w->parts[i].name, known[k].has) != NULL;
        if (found) status = buffer_printf(out, err, "%s\"%s\"", k ? "," : "", known[k].pattern);
    }
    return status;
}

/* The config as it is, with one more member at its end. */
static enum reel_status write_config(const struct writer *w, struct reel_error *err) {
    struct file_map map = { 0 };
    struct buffer out = { 0 };
    enum reel_status status = model_source_map(&w->model->source, "config.json", &map, NULL, err);
    if (status != REEL_OK) return status;
    size_t end = map.size;
    while (end > 0 && map.bytes[end - 1] != '}')
        end--;
    while (end > 1 && strchr(" \t\r\n", map.bytes[end - 2]))
        end--; /* now the brace, and space before it, are behind end - 1 */
    if (end) status = buffer_append(&out, map.bytes, end - 1, err);
    if (status == REEL_OK)
        status =
            buffer_printf(&out, err,
                          ",\n  \"quantization_config\": {\"quant_method\":\"compressed-tensors\","
                          "\"format\":\"%s\",\"quantization_status\":\"compressed\","
                          "\"global_compression_ratio\":null,\"kv_cache_scheme\":null,"
                          "\"config_groups\":{",
                          w->options->form == WEIGHTS_FP8 ? "float-quantized" : "pack-quantized");
    if (status == REEL_OK) status = print_groups(&out, w, err);
    if (status == REEL_OK) status = buffer_text(&out, "},\"ignore\":[", err);
    if (status == REEL_OK) status = print_ignored(&out, w, err);
    if (status == REEL_OK) status = buffer_text(&out, "]}\n}\n", err);
    if (status == REEL_OK)
        status = new_file_write(&w->folder, "config.json", out.bytes, out.size, err);
    buffer_release(&out);
    file_map_close(&map);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static enum reel_status copy_others(const struct writer *w, struct reel_error *err) {
    static const char *const names[] = {
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "added_tokens.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "generation_config.json",
        "preprocessor_config.json",
        "modules.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
    };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == REEL_OK; i++) {
        struct file_map map = { 0 };
        if (!model_source_has(&w->model->source, names[i])) continue;
        status = model_source_map(&w->model->source, names[i], &map, NULL, err);
        if (status == REEL_OK)
            status = new_file_write(&w->folder, names[i], map.bytes, map.size, err);
        file_map_close(&map);
    }
    return status;
}

static enum reel_status check_model(const struct writer *w, struct reel_error *err) {
    const struct model *m = w->model;
    if (w->options->form < WEIGHTS_INT8 || w->options->form >= WEIGHTS_FORMS)
        return err_set(err, REEL_E_ARGUMENT,
                       "weights to write are %s; allowed is int8, int4 or fp8",
                       w->options->form < WEIGHTS_FORMS ? weight_form_name(w->options->form)
                                                        : "of another name");
    if (m->weights.quantized)
        return err_set(err, REEL_E_STATE,
                       "%s: was quantised while it was loaded; a folder is made of the file's own "
                       "weights: open it without that",
                       m->source.path);
    if (m->source.is_gguf)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: is a GGUF file, of which no folder with config.json and tokenizer.json "
                       "is made; give the folder that it was made from",
                       m->source.path);
    for (int i = 0; i < w->n_wide; i++)
        if (w->wide[i].matrix->planes)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: is quantised already; give the wide model that it was made from",
                           m->source.path);
    return REEL_OK;
}

static enum reel_status list_wide(struct writer *w, struct reel_error *err) {
    struct weights weights = w->model->weights; /* the list is of what may be changed */
    const int n = weights_list(&weights, NULL);
    enum reel_status status =
        mem_zeroed(&w->wide, (size_t)n, sizeof *w->wide, "a list of matrices", err);
    if (status != REEL_OK) return status;
    weights_list(&weights, w->wide);
    for (int i = 0; i < n; i++) /* embedding and head would be the copy's */
        if (w->wide[i].layer >= 0) w->wide[w->n_wide++] = w->wide[i];
    return REEL_OK;
}

enum reel_status quantized_folder_write(const struct model *model, const char *folder,
                                        const struct quantized_folder_options *options,
                                        struct quantized_folder_result *result,
                                        struct reel_error *err) {
    struct writer w = { .model = model, .options = options, .result = result };
    *result = (struct quantized_folder_result){ 0 };
    enum reel_status status = list_wide(&w, err);
    if (status == REEL_OK) status = check_model(&w, err);
    if (status == REEL_OK) status = list_parts(&w, err);
    if (status == REEL_OK) deal_shards(&w);
    if (status == REEL_OK) status = thread_pool_open(&w.pool, options->n_threads, err);
    if (status == REEL_OK) status = new_folder_start(&w.folder, folder, true, err);
    if (status == REEL_OK) status = write_config(&w, err);
    if (status == REEL_OK) status = copy_others(&w, err);
    for (int i = 0; i < result->n_files && status == REEL_OK; i++)
        status = write_shard(&w, i, err);
    if (status == REEL_OK) status = write_index(&w, err);
    status = new_folder_finish(&w.folder, folder, status, err);
    quantized_matrix_release(&w.now);
    thread_pool_close(w.pool);
    mem_free(w.parts);
    mem_free(w.wide);
    return status;
}
