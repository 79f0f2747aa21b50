/* From names in a file to the matrices of the maths. First every tensor is found and checked, then
 * one block is allocated for what cannot be used where it lies: norms and other small vectors
 * (widened to float32) and rows or columns that GGUF files store in another order. */
#include "model/weights.h"

#include "base/checked.h"
#include "base/memory.h"
#include "model/kv_scales.h"
#include "model/weight_names.h"
#include "model/weights_quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNED_ALIGN 64

#define VISION_PREFIX "model.visual."
#define GGUF_BLOCK    "blk."

/* The work of one weights_map. */
struct mapper {
    struct weights *weights;
    const struct model_config *config;
    const struct tensor_file *file;
    const struct container_names *names;
    struct name_root root;
    bool is_gguf;
    bool heads_dealt; /* value heads are to be put back in order */
    bool has_draft;   /* one draft layer, which is kept */
    bool has_drafts;  /* several, which are checked alone */
    uint64_t type_bytes[DTYPE_COUNT];
    struct coded_job *jobs; /* [n_jobs] owned */
    int n_jobs;
};

/* A matrix of codes that was found, and where it goes. */
struct coded_job {
    struct coded_layer coded;
    struct matrix *out;
};

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_draft_name(const struct mapper *m, const char *name) {
    if (m->names->draft_prefix) return starts_with(name, m->names->draft_prefix);
    return starts_with(name, GGUF_BLOCK) &&
           strtol(name + strlen(GGUF_BLOCK), NULL, 10) >= m->config->n_layers;
}

/* Tensors of a hybrid's file that are not run. */
static bool is_skipped_name(const struct mapper *m, const char *name) {
    if (m->config->family != MODEL_QWEN35) return false;
    return starts_with(name, VISION_PREFIX) || (is_draft_name(m, name) && !m->has_draft);
}

static bool is_skipped(const struct mapper *m, const struct tensor *t) {
    return is_skipped_name(m, t->name);
}

static void count(struct mapper *m, const struct tensor *t) {
    uint64_t n = 1;
    if (is_skipped(m, t)) return;
    for (int i = 0; i < t->rank; i++)
        n *= (uint64_t)t->shape[i];
    if (is_draft_name(m, t->name)) {
        m->weights->draft.n_parameters += n;
        m->weights->draft.n_bytes += t->n_bytes;
        return;
    }
    m->weights->n_parameters += n;
    m->weights->n_bytes += t->n_bytes;
    m->type_bytes[t->dtype] += t->n_bytes;
}

/* ---- matrices of codes ---- */

/* "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight" */
struct layer_stem {
    char text[CODED_MAX_NAME];
};

static struct layer_stem stem_of(const char *name) {
    struct layer_stem stem;
    const size_t n = strlen(name), end = sizeof ".weight" - 1;
    snprintf(stem.text, sizeof stem.text, "%.*s", (int)(n > end ? n - end : n), name);
    return stem;
}

/* Adds the last part of a layer's name to the list of those that stay wide. */
static void note_wide(struct weights *w, const char *layer) {
    const char *dot = strrchr(layer, '.'), *part = dot ? dot + 1 : layer;
    const size_t n = strlen(part), used = strlen(w->coded.wide);
    for (const char *at = w->coded.wide; (at = strstr(at, part)); at++)
        if ((at == w->coded.wide || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0')) return;
    if (used + n + 3 > sizeof w->coded.wide) return;
    snprintf(w->coded.wide + used, sizeof w->coded.wide - used, "%s%s", used ? ", " : "", part);
}

static enum reel_status add_job(struct mapper *m, const char *name, const struct coded_layer *coded,
                                struct matrix *out, struct reel_error *err) {
    const uint64_t n = (uint64_t)coded->rows * (uint64_t)coded->columns;
    struct weights *w = m->weights;
    struct coded_job *jobs = mem_resize(m->jobs, ((size_t)m->n_jobs + 1) * sizeof *jobs);
    if (!jobs) return err_memory(err, "the list of matrices", (size_t)m->n_jobs * sizeof *jobs);
    m->jobs = jobs;
    jobs[m->n_jobs++] = (struct coded_job){ *coded, out };
    w->coded.owned_bytes += coded_owned_bytes(coded);
    if (is_draft_name(m, name)) {
        w->draft.n_parameters += n;
        w->draft.n_bytes += coded->n_bytes;
        return REEL_OK;
    }
    w->n_parameters += n;
    w->n_bytes += coded->n_bytes;
    w->coded.n_parameters += n;
    w->coded.n_bytes += coded->n_bytes;
    return REEL_OK;
}

/* *found is false where the matrix is a tensor by itself, or missing. */
static enum reel_status find_coded(struct mapper *m, const char *name, int rows, int columns,
                                   struct matrix *out, bool *found, struct reel_error *err) {
    const struct layer_stem stem = stem_of(name);
    struct coded_layer coded;
    *found = false;
    if (!m->file->quant) return REEL_OK;
    enum reel_status status = coded_find(&coded, m->file, stem.text, rows, columns, found, err);
    if (status != REEL_OK) return status;
    *out = (struct matrix){ .rows = rows, .columns = columns };
    if (*found && !is_skipped_name(m, name)) return add_job(m, name, &coded, out, err);
    if (!*found && !is_skipped_name(m, name)) note_wide(m->weights, stem.text);
    return REEL_OK;
}

/* The format that most bytes of codes have. */
static void name_format(struct mapper *m) {
    uint64_t most = 0;
    for (int i = 0; i < m->n_jobs; i++) {
        uint64_t bytes = 0;
        for (int k = 0; k < m->n_jobs; k++)
            if (strcmp(m->jobs[k].coded.format, m->jobs[i].coded.format) == 0)
                bytes += m->jobs[k].coded.n_bytes;
        if (bytes > most) {
            most = bytes;
            m->weights->coded.format = m->jobs[i].coded.format;
        }
    }
}

static enum reel_status read_coded(struct mapper *m, struct reel_error *err) {
    struct weights *w = m->weights;
    enum reel_status status = REEL_OK;
    if (m->n_jobs == 0) return REEL_OK;
    status = mem_zeroed(&w->coded.blocks, (size_t)m->n_jobs, sizeof *w->coded.blocks,
                        "the list of matrices", err);
    for (int i = 0; i < m->n_jobs && status == REEL_OK; i++)
        status = coded_read(&m->jobs[i].coded, m->file, m->jobs[i].out,
                            &w->coded.blocks[w->coded.n_blocks++], err);
    if (m->config->tied) w->head = w->embedding;
    return status;
}

/* ---- tensors ---- */

/* GGUF's blk.N.x.scale, one number that all of blk.N.x.weight is multiplied by: NVFP4's second
 * scale. The head of a file that is not all there has no data yet. */
static enum reel_status find_factor(const struct mapper *m, const char *name, struct matrix *matrix,
                                    struct reel_error *err) {
    static const char weight[] = "weight", scale[] = "scale";
    char of[TENSOR_MAX_NAME + 1];
    const size_t stem = strlen(name) - (sizeof weight - 1);
    const struct tensor *t = NULL;
    if (!m->is_gguf || strlen(name) < sizeof weight || strcmp(name + stem, weight) != 0 ||
        strlen(name) >= sizeof of)
        return REEL_OK;
    memcpy(of, name, stem);
    memcpy(of + stem, scale, sizeof scale);
    if (!tensor_find(m->file, of)) return REEL_OK;
    enum reel_status status = tensor_require(m->file, of, 1, (int64_t[]){ 1 }, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    if (matrix->dtype != DTYPE_NVFP4)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" is a scale of \"%s\", which is %s; allowed is nvfp4",
                       path, of, name, dtype_name(matrix->dtype));
    if (t->dtype != DTYPE_F32)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has type %s, allowed is f32", path,
                       of, dtype_name(t->dtype));
    if (!t->data) return REEL_OK;
    dtype_to_f32(t->dtype, t->data, &matrix->factor, 1);
    if (!isfinite(matrix->factor) || matrix->factor <= 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" is %g, allowed is a finite number above 0", path, of,
                       (double)matrix->factor);
    return REEL_OK;
}

static enum reel_status find_matrix(struct mapper *m, const char *name, int rows, int columns,
                                    struct matrix *out, struct reel_error *err) {
    const struct tensor *t = NULL;
    bool coded = false;
    enum reel_status found = find_coded(m, name, rows, columns, out, &coded, err);
    if (found != REEL_OK || coded) return found;
    enum reel_status status =
        tensor_require(m->file, name, 2, (int64_t[]){ rows, columns }, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    if (columns % dtype_block_elements(t->dtype))
        return err_set(err, REEL_E_FORMAT,
                       "%s: tensor \"%s\" has rows of %d, not a multiple of the %d of %s", path,
                       name, columns, dtype_block_elements(t->dtype), dtype_name(t->dtype));
    *out = (struct matrix){ .dtype = t->dtype,
                            .rows = rows,
                            .columns = columns,
                            .row_bytes = dtype_row_bytes(t->dtype, (size_t)columns),
                            .data = t->data };
    count(m, t);
    return find_factor(m, name, out, err);
}

static size_t padded(size_t n) { return (n + OWNED_ALIGN - 1) / OWNED_ALIGN * OWNED_ALIGN; }

/* Finds what becomes f32 [the product of shape] in the owned block. */
static enum reel_status find_small(struct mapper *m, const char *name, int rank,
                                   const int64_t *shape, struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = tensor_require(m->file, name, rank, shape, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)shape[i];
    if (dtype_block_elements(t->dtype) != 1)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, supported for a norm are f32, f16 and bf16",
                       path, name, dtype_name(t->dtype));
    if (!is_skipped(m, t)) m->weights->owned_bytes += padded(n * sizeof(float));
    count(m, t);
    return REEL_OK;
}

static enum reel_status find_vector(struct mapper *m, const char *name, int n,
                                    struct reel_error *err) {
    return find_small(m, name, 1, (int64_t[]){ n }, err);
}

/* Room for the longest name of a tensor. */
struct name_buffer {
    char text[128];
};

static const char *root_name(const struct mapper *m, const char *part, struct name_buffer *buffer) {
    snprintf(buffer->text, sizeof buffer->text, "%s%s", m->root.prefix, part);
    return buffer->text;
}

static const char *layer_name(const struct mapper *m, int layer, const char *part,
                              struct name_buffer *buffer) {
    size_t n = strlen(root_name(m, "", buffer));
    /* the format is a constant of weight_names.c */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n += (size_t)snprintf(buffer->text + n, sizeof buffer->text - n, m->names->layer, layer);
#pragma GCC diagnostic pop
    snprintf(buffer->text + n, sizeof buffer->text - n, "%s", part);
    return buffer->text;
}

struct wanted_matrix {
    const char *name;
    int rows, columns;
    struct matrix *out;
};

static enum reel_status find_matrices(struct mapper *m, int layer, const struct wanted_matrix *all,
                                      int n, struct reel_error *err) {
    struct name_buffer name;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = find_matrix(m, layer_name(m, layer, all[i].name, &name), all[i].rows,
                             all[i].columns, all[i].out, err);
    return status;
}

struct wanted_vector {
    const char *name;
    int n; /* 0: not in this model */
};

static enum reel_status find_vectors(struct mapper *m, int layer, const struct wanted_vector *all,
                                     int n, struct reel_error *err) {
    struct name_buffer name;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++)
        if (all[i].n)
            status = find_vector(m, layer_name(m, layer, all[i].name, &name), all[i].n, err);
    return status;
}

static size_t matrix_bytes(const struct matrix *m) {
    return padded((size_t)m->rows * m->row_bytes);
}

static enum reel_status find_attention(struct mapper *m, int layer, struct layer_weights *w,
                                       struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    const int kv_dim = c->n_kv_heads * c->head_dim, qk = c->qk_norm ? c->head_dim : 0;
    const int q_bias = c->qkv_bias ? model_q_rows(c) : 0, kv_bias = c->qkv_bias ? kv_dim : 0;
    enum reel_status status = find_matrices(
        m, layer,
        (const struct wanted_matrix[]){ { of->q, model_q_rows(c), c->hidden, &w->q },
                                        { of->k, kv_dim, c->hidden, &w->k },
                                        { of->v, kv_dim, c->hidden, &w->v },
                                        { of->o, c->hidden, c->n_heads * c->head_dim, &w->o } },
        4, err);
    if (m->names->halves_interleaved)
        m->weights->owned_bytes += matrix_bytes(&w->q) + matrix_bytes(&w->k);
    if (status != REEL_OK) return status;
    return find_vectors(m, layer,
                        (const struct wanted_vector[]){ { of->q_norm, qk },
                                                        { of->k_norm, qk },
                                                        { of->q_bias, q_bias },
                                                        { of->k_bias, kv_bias },
                                                        { of->v_bias, kv_bias } },
                        5, err);
}

/* Room for the matrices whose value heads are put back in order. Columns move by whole heads, so
 * blocks may not reach over a head's end. */
static enum reel_status find_dealt(struct mapper *m, int layer, const struct layer_weights *w,
                                   struct reel_error *err) {
    const int head = m->config->delta.value_dim, block = dtype_block_elements(w->o.dtype);
    struct name_buffer name;
    m->weights->owned_bytes += matrix_bytes(&w->delta.qkv) + matrix_bytes(&w->delta.z) +
                               matrix_bytes(&w->delta.b) + matrix_bytes(&w->delta.a) +
                               matrix_bytes(&w->o);
    if (head % block == 0) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: tensor \"%s\" has blocks of %d (%s): heads of %d columns, which GGUF "
                   "stores in another order, are not a multiple",
                   m->file->map_names[0], layer_name(m, layer, m->names->of.delta_out, &name),
                   block, dtype_name(w->o.dtype), head);
}

static enum reel_status find_delta(struct mapper *m, int layer, struct layer_weights *w,
                                   struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    const int channels = model_delta_channels(c), width = model_delta_width(c);
    const int heads = c->delta.value_heads;
    struct name_buffer name;
    enum reel_status status = find_matrices(
        m, layer,
        (const struct wanted_matrix[]){ { of->delta_qkv, channels, c->hidden, &w->delta.qkv },
                                        { of->delta_z, width, c->hidden, &w->delta.z },
                                        { of->delta_b, heads, c->hidden, &w->delta.b },
                                        { of->delta_a, heads, c->hidden, &w->delta.a },
                                        { of->delta_out, c->hidden, width, &w->o } },
        5, err);
    if (status == REEL_OK && m->heads_dealt) status = find_dealt(m, layer, w, err);
    const int64_t taps[] = { channels, 1, c->delta.conv_width };
    const int64_t flat_taps[] = { channels, c->delta.conv_width };
    const bool flat = m->names->flat_taps;
    if (status == REEL_OK)
        status = find_small(m, layer_name(m, layer, of->delta_conv, &name), flat ? 2 : 3,
                            flat ? flat_taps : taps, err);
    if (status != REEL_OK) return status;
    return find_vectors(m, layer,
                        (const struct wanted_vector[]){ { of->delta_rate, heads },
                                                        { of->delta_dt_bias, heads },
                                                        { of->delta_norm, c->delta.value_dim } },
                        3, err);
}

static enum reel_status find_layer(struct mapper *m, int layer, struct layer_weights *w,
                                   struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    enum reel_status status =
        w->kind == LAYER_DELTA ? find_delta(m, layer, w, err) : find_attention(m, layer, w, err);
    if (status == REEL_OK)
        status = find_matrices(
            m, layer,
            (const struct wanted_matrix[]){ { of->gate, c->intermediate, c->hidden, &w->gate },
                                            { of->up, c->intermediate, c->hidden, &w->up },
                                            { of->down, c->hidden, c->intermediate, &w->down } },
            3, err);
    if (status != REEL_OK) return status;
    return find_vectors(
        m, layer,
        (const struct wanted_vector[]){ { of->attn_norm, c->hidden }, { of->ffn_norm, c->hidden } },
        2, err);
}

/* ---- draft layers ---- */

/* From here on layer_name names a draft layer, the first of which has the number that is returned,
 * and draft_name what belongs to all of them. */
static int name_drafts(struct mapper *m) {
    if (!m->names->draft_prefix) return m->config->n_layers;
    m->root.prefix = m->names->draft_prefix;
    return 0;
}

static const char *draft_name(const struct mapper *m, const char *part,
                              struct name_buffer *buffer) {
    if (m->names->draft_prefix) return root_name(m, part, buffer);
    return layer_name(m, m->config->n_layers, part, buffer);
}

/* Draft layers are attention layers whatever the others are. Where a file has several, their
 * tensors are checked and nothing runs them. */
static enum reel_status find_draft(struct mapper *m, struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    const struct name_root root = m->root;
    struct draft_weights *draft = &m->weights->draft;
    const char *const norms[] = { of->draft_embedding_norm, of->draft_hidden_norm, of->draft_norm };
    struct name_buffer name;
    if (!m->has_draft && !m->has_drafts) return REEL_OK;
    const int first = name_drafts(m);
    enum reel_status status = find_matrix(m, draft_name(m, of->draft_fc, &name), c->hidden,
                                          2 * c->hidden, &draft->fc, err);
    for (int i = 0; i < 3 && status == REEL_OK; i++)
        status = find_vector(m, draft_name(m, norms[i], &name), c->hidden, err);
    for (int i = 0; i < c->n_draft_layers && status == REEL_OK; i++) {
        draft->layer = (struct layer_weights){ .kind = LAYER_ATTENTION };
        status = find_layer(m, first + i, &draft->layer, err);
    }
    m->root = root;
    return status;
}

static bool has_draft_tensor(const struct mapper *m, const char *part) {
    struct name_buffer name;
    if (!part) return false;
    draft_name(m, part, &name);
    return tensor_find(m->file, name.text) ||
           (m->file->quant && coded_is_there(m->file, stem_of(name.text).text));
}

static void look_for_drafts(struct mapper *m) {
    const struct layer_names *of = &m->names->of;
    const struct name_root root = m->root;
    if (!m->config->n_draft_layers) return;
    name_drafts(m);
    const bool found = has_draft_tensor(m, of->draft_fc) &&
                       !has_draft_tensor(m, of->draft_embedding) &&
                       !has_draft_tensor(m, of->draft_head);
    m->has_draft = found && m->config->n_draft_layers == 1;
    m->has_drafts = found && !m->has_draft;
    m->root = root;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* Whether the family has the bias that a tensor's name says it is. */
static bool is_own_bias(const struct mapper *m, const char *name) {
    const struct layer_names *of = &m->names->of;
    if (m->config->family == MODEL_QWEN35) return ends_with(name, of->delta_dt_bias);
    return m->config->qkv_bias && (ends_with(name, of->q_bias) || ends_with(name, of->k_bias) ||
                                   ends_with(name, of->v_bias));
}

/* GPTQ's older writers store a bias of zeros for every layer. Of other files there may be no more
 * than the head yet. */
static bool is_zero_bias(const struct mapper *m, const struct tensor *t) {
    if (!m->file->quant) return false;
    for (size_t i = 0; i < t->n_bytes; i++)
        if (t->data[i]) return false;
    return true;
}

/* Tensors that would change the result and that nothing here applies; counts those skipped. */
static enum reel_status refuse_extras(const struct mapper *m, struct reel_error *err) {
    const struct layer_names *of = &m->names->of;
    for (int i = 0; i < m->file->n_tensors; i++) {
        const struct tensor *t = &m->file->tensors[i];
        const char *path = tensor_file_path(m->file, t);
        if (is_skipped(m, t)) {
            m->weights->n_skipped++;
            m->weights->skipped_bytes += t->n_bytes;
            continue;
        }
        if (m->config->audio.n_layers && audio_weights_owns(t->name)) continue;
        if (ends_with(t->name, ".bias") && !is_own_bias(m, t->name) && !is_zero_bias(m, t))
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: tensor \"%s\": family %s has no such bias%s", path, t->name,
                           model_family_name(m->config->family),
                           m->config->qkv_bias ? ", only those of q, k and v" : "");
        if (!m->config->qk_norm &&
            (ends_with(t->name, of->q_norm) || ends_with(t->name, of->k_norm)))
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: tensor \"%s\": family %s has no norm of q or k", path, t->name,
                           model_family_name(m->config->family));
    }
    return REEL_OK;
}

/* Of a tied model a stored copy of the head is not used, so it has to be one: the reference would
 * use a head that differs. Rows at even distances are compared, as a head that was trained differs
 * in all. */
static enum reel_status compare_heads(const struct mapper *m, const struct tensor *head,
                                      struct reel_error *err) {
    enum { COMPARED = 64 };
    struct name_buffer name;
    const struct tensor *t = tensor_find(m->file, root_name(m, m->names->embedding, &name));
    if (!t || t->dtype != head->dtype || t->n_bytes != head->n_bytes) return REEL_OK;
    const size_t rows = (size_t)m->config->vocab, bytes = t->n_bytes / rows;
    for (size_t i = 0; i < COMPARED; i++) {
        const size_t at = (rows - 1) * i / (COMPARED - 1) * bytes;
        if (memcmp(t->data + at, head->data + at, bytes) != 0)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: tensor \"%s\" differs from the embedding, but "
                           "\"tie_word_embeddings\" is true; allowed is a copy, or false",
                           tensor_file_path(m->file, head), head->name);
    }
    return REEL_OK;
}

/* Speech models are published with a copy, which has to look like one. */
static enum reel_status check_copied_head(const struct mapper *m, struct reel_error *err) {
    const int64_t shape[] = { m->config->vocab, m->config->hidden };
    const struct tensor *t = NULL;
    const struct tensor *head = m->root.head ? tensor_find(m->file, m->root.head) : NULL;
    if (!head && m->file->quant && m->root.head &&
        coded_is_there(m->file, stem_of(m->root.head).text))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: layer \"%s\" has codes of its own, but \"tie_word_embeddings\" is "
                       "true; allowed is false",
                       m->file->map_names[0], stem_of(m->root.head).text);
    if (!head) return REEL_OK;
    enum reel_status status = m->config->audio.n_layers
                                  ? tensor_require(m->file, m->root.head, 2, shape, &t, err)
                                  : REEL_OK;
    return status == REEL_OK ? compare_heads(m, head, err) : status;
}

/* Checked here, so that a file that lacks something is refused before anything is read. */
static enum reel_status find_audio(struct mapper *m, struct reel_error *err) {
    struct audio_weights *audio = &m->weights->audio;
    if (!m->config->audio.n_layers) return REEL_OK;
    enum reel_status status = audio_weights_check(audio, &m->config->audio, m->file, err);
    if (status != REEL_OK) return status;
    m->weights->n_parameters += audio->n_parameters;
    m->weights->n_bytes += audio->n_bytes;
    for (int type = 0; type < DTYPE_COUNT; type++)
        m->type_bytes[type] += audio->type_bytes[type];
    return REEL_OK;
}

static enum reel_status find_all(struct mapper *m, struct reel_error *err) {
    const struct model_config *c = m->config;
    struct weights *w = m->weights;
    struct name_buffer name;
    enum reel_status status = refuse_extras(m, err);
    if (status == REEL_OK)
        status = find_matrix(m, root_name(m, m->names->embedding, &name), c->vocab, c->hidden,
                             &w->embedding, err);
    if (status == REEL_OK)
        status = find_vector(m, root_name(m, m->names->final_norm, &name), c->hidden, err);
    if (status == REEL_OK && !c->tied)
        status = find_matrix(m, m->root.head, c->vocab, c->hidden, &w->head, err);
    if (status == REEL_OK && c->tied) {
        w->head = w->embedding;
        status = check_copied_head(m, err);
    }
    for (int i = 0; status == REEL_OK && i < c->n_layers; i++) {
        struct layer_weights *layer = &w->layers[i];
        layer->kind = (enum layer_kind)c->layer_kinds[i];
        layer->nth = model_layers_before(c, layer->kind, i);
        status = find_layer(m, i, layer, err);
    }
    if (status == REEL_OK && !m->is_gguf)
        status = kv_scales_read(&w->kv_scales, c, m->file, m->root.prefix, err);
    if (status == REEL_OK) status = find_draft(m, err);
    if (status == REEL_OK) status = find_audio(m, err);
    name_format(m);
    for (int type = 0; type < DTYPE_COUNT; type++)
        if (m->type_bytes[type] > m->type_bytes[w->main_type]) w->main_type = (enum dtype)type;
    return status;
}

/* The second pass: every name was found before, so nothing here can fail. */
struct packer {
    const struct mapper *m;
    unsigned char *at;
};

static float *pack_vector(struct packer *p, const char *name) {
    const struct tensor *t = tensor_find(p->m->file, name);
    float *out = (float *)(void *)p->at;
    size_t n = (size_t)t->shape[0];
    dtype_to_f32(t->dtype, t->data, out, n);
    p->at += padded(n * sizeof(float));
    return out;
}

static const float *pack_norm(struct packer *p, const char *name) {
    float *gains = pack_vector(p, name);
    const struct tensor *t = tensor_find(p->m->file, name);
    for (int64_t i = 0; p->m->config->centred_norms && i < t->shape[0]; i++)
        gains[i] += 1.0f;
    return gains;
}

/* Where GGUF stores value head `head`: dealt out, the first of every key head, then the second. */
static int dealt(const struct model_config *c, int head) {
    const int each = c->delta.value_heads / c->delta.key_heads;
    return head % each * c->delta.key_heads + head / each;
}

/* Where the file has channel i of a convolution. */
static int64_t stored_channel(const struct mapper *m, int64_t i) {
    const struct model_config *c = m->config;
    const int64_t first = (int64_t)2 * c->delta.key_heads * c->delta.key_dim;
    const int64_t head = c->delta.value_dim;
    if (!m->heads_dealt || i < first) return i;
    return first + dealt(c, (int)((i - first) / head)) * head + (i - first) % head;
}

/* [channels, 1, width] or [channels, width] as the file has it, [width, channels] here. */
static const float *pack_taps(struct packer *p, const char *name) {
    const struct tensor *t = tensor_find(p->m->file, name);
    const int64_t channels = t->shape[0], width = t->shape[t->rank - 1];
    const size_t channel_bytes = t->n_bytes / (size_t)channels;
    float *out = (float *)(void *)p->at, taps[MODEL_MAX_CONV];
    for (int64_t i = 0; i < channels; i++) {
        const size_t stored = (size_t)stored_channel(p->m, i);
        dtype_to_f32(t->dtype, t->data + stored * channel_bytes, taps, (size_t)width);
        for (int64_t j = 0; j < width; j++)
            out[j * channels + i] = taps[j];
    }
    p->at += padded((size_t)(channels * width) * sizeof(float));
    return out;
}

/* GGUF stores rows 2i and 2i + 1 of a head where the maths has rows i and i + head_dim / 2. */
static void pack_rows(struct packer *p, struct matrix *matrix, int head_dim) {
    int half = head_dim / 2;
    for (int r = 0; r < matrix->rows; r++) {
        int head = r / head_dim, i = r % head_dim;
        int stored = head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
        memcpy(p->at + (size_t)r * matrix->row_bytes,
               matrix->data + (size_t)stored * matrix->row_bytes, matrix->row_bytes);
    }
    matrix->data = p->at;
    p->at += padded((size_t)matrix->rows * matrix->row_bytes);
}

/* The biases of q, k and v as one vector. Each begins on a line of its own in the block, and is
 * moved up to the one before. No container that stores rows in another order has a family with
 * biases. */
static const float *pack_biases(struct packer *p, int layer) {
    const struct layer_names *of = &p->m->names->of;
    const struct model_config *c = p->m->config;
    const char *const names[] = { of->q_bias, of->k_bias, of->v_bias };
    const size_t kv_dim = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    const size_t n[] = { (size_t)model_q_rows(c), kv_dim, kv_dim };
    struct name_buffer name;
    float *all = (float *)(void *)p->at, *to = all;
    for (int i = 0; i < 3; i++) {
        const float *from = pack_vector(p, layer_name(p->m, layer, names[i], &name));
        memmove(to, from, n[i] * sizeof *to);
        to += n[i];
    }
    return all;
}

static void pack_attention(struct packer *p, int layer, struct layer_weights *w) {
    const struct mapper *m = p->m;
    struct name_buffer name;
    if (m->config->qkv_bias) w->qkv_bias = pack_biases(p, layer);
    if (m->config->qk_norm) {
        w->q_norm = pack_norm(p, layer_name(m, layer, m->names->of.q_norm, &name));
        w->k_norm = pack_norm(p, layer_name(m, layer, m->names->of.k_norm, &name));
    }
    if (m->names->halves_interleaved) {
        pack_rows(p, &w->q, m->config->head_dim);
        pack_rows(p, &w->k, m->config->head_dim);
    }
}

/* f32 [value_heads] */
static float *pack_heads(struct packer *p, const char *name) {
    const struct model_config *c = p->m->config;
    float *out = pack_vector(p, name), stored[MODEL_MAX_HEADS];
    memcpy(stored, out, (size_t)c->delta.value_heads * sizeof *out);
    for (int i = 0; p->m->heads_dealt && i < c->delta.value_heads; i++)
        out[i] = stored[dealt(c, i)];
    return out;
}

/* Rows from `first` on are those of value heads, head_rows each. */
static void pack_head_rows(struct packer *p, struct matrix *matrix, int first, int head_rows) {
    for (int r = 0; r < matrix->rows; r++) {
        int head = (r - first) / head_rows, i = (r - first) % head_rows;
        int stored = r < first ? r : first + dealt(p->m->config, head) * head_rows + i;
        memcpy(p->at + (size_t)r * matrix->row_bytes,
               matrix->data + (size_t)stored * matrix->row_bytes, matrix->row_bytes);
    }
    matrix->data = p->at;
    p->at += matrix_bytes(matrix);
}

static void pack_head_columns(struct packer *p, struct matrix *matrix) {
    const struct model_config *c = p->m->config;
    const size_t head_bytes = dtype_row_bytes(matrix->dtype, (size_t)c->delta.value_dim);
    for (int r = 0; r < matrix->rows; r++) {
        const size_t row = (size_t)r * matrix->row_bytes;
        for (int head = 0; head < c->delta.value_heads; head++)
            memcpy(p->at + row + (size_t)head * head_bytes,
                   matrix->data + row + (size_t)dealt(c, head) * head_bytes, head_bytes);
    }
    matrix->data = p->at;
    p->at += matrix_bytes(matrix);
}

static void pack_delta(struct packer *p, int layer, struct layer_weights *layer_weights) {
    const struct mapper *m = p->m;
    const struct layer_names *of = &m->names->of;
    const struct model_config *c = m->config;
    struct delta_weights *w = &layer_weights->delta;
    struct name_buffer name;
    w->taps = pack_taps(p, layer_name(m, layer, of->delta_conv, &name));
    float *rate = pack_heads(p, layer_name(m, layer, of->delta_rate, &name));
    for (int i = 0; i < c->delta.value_heads; i++)
        rate[i] = m->names->rates_negated ? -rate[i] : expf(rate[i]);
    w->rate = rate;
    w->dt_bias = pack_heads(p, layer_name(m, layer, of->delta_dt_bias, &name));
    w->out_norm = pack_vector(p, layer_name(m, layer, of->delta_norm, &name));
    if (!m->heads_dealt) return;
    pack_head_rows(p, &w->qkv, 2 * c->delta.key_heads * c->delta.key_dim, c->delta.value_dim);
    pack_head_rows(p, &w->z, 0, c->delta.value_dim);
    pack_head_rows(p, &w->b, 0, 1);
    pack_head_rows(p, &w->a, 0, 1);
    pack_head_columns(p, &layer_weights->o);
}

static void pack_layer(struct packer *p, int layer, struct layer_weights *w) {
    const struct mapper *m = p->m;
    const struct layer_names *of = &m->names->of;
    struct name_buffer name;
    w->attn_norm = pack_norm(p, layer_name(m, layer, of->attn_norm, &name));
    w->ffn_norm = pack_norm(p, layer_name(m, layer, of->ffn_norm, &name));
    if (w->kind == LAYER_DELTA)
        pack_delta(p, layer, w);
    else
        pack_attention(p, layer, w);
}

static void pack_draft(struct mapper *m, struct packer *p) {
    const struct layer_names *of = &m->names->of;
    const struct name_root root = m->root;
    struct draft_weights *draft = &m->weights->draft;
    struct name_buffer name;
    if (!m->has_draft) return;
    const int first = name_drafts(m);
    draft->embedding_norm = pack_norm(p, draft_name(m, of->draft_embedding_norm, &name));
    draft->hidden_norm = pack_norm(p, draft_name(m, of->draft_hidden_norm, &name));
    draft->norm = pack_norm(p, draft_name(m, of->draft_norm, &name));
    pack_layer(p, first, &draft->layer);
    m->root = root;
}

static struct name_root find_root(const struct mapper *m) {
    struct mapper probe = *m;
    struct name_buffer name;
    for (int i = 0; i < m->names->n_roots; i++) {
        probe.root = m->names->roots[i];
        root_name(&probe, m->names->embedding, &name);
        if (tensor_find(m->file, name.text)) return probe.root;
        if (m->file->quant && coded_is_there(m->file, stem_of(name.text).text)) return probe.root;
    }
    /* for the message: the published names */
    if (m->config->family == MODEL_QWEN3_ASR) return m->names->roots[m->names->n_roots - 1];
    return m->names->roots[m->config->nested ? 1 : 0];
}

static enum reel_status mapper_start(struct mapper *m, struct weights *weights,
                                     const struct model_config *config,
                                     const struct tensor_file *file, bool is_gguf,
                                     struct reel_error *err) {
    *weights = (struct weights){ 0 };
    *m = (struct mapper){ .weights = weights,
                          .config = config,
                          .file = file,
                          .names = container_names_of(is_gguf, config->family),
                          .is_gguf = is_gguf };
    m->heads_dealt = m->names->heads_dealt && config->delta.value_heads != config->delta.key_heads;
    m->root = find_root(m);
    look_for_drafts(m);
    enum reel_status status = mem_zeroed(&weights->layers, (size_t)config->n_layers,
                                         sizeof *weights->layers, "the layers", err);
    if (status == REEL_OK) weights->n_layers = config->n_layers;
    if (status == REEL_OK) status = find_all(m, err);
    if (status != REEL_OK) {
        weights_release(weights);
        mem_free(m->jobs);
    }
    return status;
}

enum reel_status weights_check(struct weights *weights, const struct model_config *config,
                               const struct tensor_file *file, bool is_gguf,
                               struct reel_error *err) {
    struct mapper m;
    enum reel_status status = mapper_start(&m, weights, config, file, is_gguf, err);
    if (status == REEL_OK) mem_free(m.jobs);
    return status;
}

enum reel_status weights_map(struct weights *weights, const struct model_config *config,
                             const struct tensor_file *file, bool is_gguf, struct reel_error *err) {
    struct mapper m;
    enum reel_status status = mapper_start(&m, weights, config, file, is_gguf, err);
    if (status != REEL_OK) return status;
    status = read_coded(&m, err);
    mem_free(m.jobs);
    if (status == REEL_OK)
        status =
            mem_aligned(&weights->owned, weights->owned_bytes, 1, "norms and reordered rows", err);
    if (status == REEL_OK && config->audio.n_layers) {
        audio_weights_release(&weights->audio);
        status = audio_weights_map(&weights->audio, &config->audio, file, err);
    }
    if (status != REEL_OK) {
        weights_release(weights);
        return status;
    }
    struct packer p = { .m = &m, .at = weights->owned };
    struct name_buffer name;
    weights->final_norm = pack_norm(&p, root_name(&m, m.names->final_norm, &name));
    for (int i = 0; i < config->n_layers; i++)
        pack_layer(&p, i, &weights->layers[i]);
    pack_draft(&m, &p);
    return REEL_OK;
}

void weights_release(struct weights *weights) {
    if (!weights) return;
    audio_weights_release(&weights->audio);
    for (int i = 0; i < weights->coded.n_blocks; i++)
        mem_free(weights->coded.blocks[i]);
    mem_free(weights->coded.blocks);
    mem_free(weights->layers);
    mem_free(weights->owned);
    mem_free(weights->kv_scales);
    quantized_weights_release(weights->quantized);
    *weights = (struct weights){ 0 };
}
