/* From names in a file to the matrices of the maths. First every tensor is found and checked, then
 * one block is allocated for what cannot be used where it lies: norms and other small vectors
 * (widened to float32) and the q and k rows that GGUF files of the Llama family store permuted. */
#include "model/weights.h"

#include "base/checked.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNED_ALIGN 64

struct layer_names {
    const char *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *ffn_norm, *gate, *up, *down;
    const char *delta_qkv, *delta_z, *delta_b, *delta_a,
        *delta_out; /* NULL: none in this container */
    const char *delta_conv, *delta_a_log, *delta_dt_bias, *delta_norm;
};

struct container_names {
    const char *embedding, *final_norm; /* behind the prefix of the text model */
    const char *layer;                  /* printf format of a layer's prefix, behind that */
    struct layer_names of;
};

static const struct container_names hugging_face = {
    .embedding = "embed_tokens.weight",
    .final_norm = "norm.weight",
    .layer = "layers.%d.",
    .of = { .attn_norm = "input_layernorm.weight",
            .q = "self_attn.q_proj.weight",
            .k = "self_attn.k_proj.weight",
            .v = "self_attn.v_proj.weight",
            .o = "self_attn.o_proj.weight",
            .q_norm = "self_attn.q_norm.weight",
            .k_norm = "self_attn.k_norm.weight",
            .ffn_norm = "post_attention_layernorm.weight",
            .gate = "mlp.gate_proj.weight",
            .up = "mlp.up_proj.weight",
            .down = "mlp.down_proj.weight",
            .delta_qkv = "linear_attn.in_proj_qkv.weight",
            .delta_z = "linear_attn.in_proj_z.weight",
            .delta_b = "linear_attn.in_proj_b.weight",
            .delta_a = "linear_attn.in_proj_a.weight",
            .delta_out = "linear_attn.out_proj.weight",
            .delta_conv = "linear_attn.conv1d.weight",
            .delta_a_log = "linear_attn.A_log",
            .delta_dt_bias = "linear_attn.dt_bias",
            .delta_norm = "linear_attn.norm.weight" },
};

static const struct container_names gguf_names = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .layer = "blk.%d.",
    .of = { .attn_norm = "attn_norm.weight",
            .q = "attn_q.weight",
            .k = "attn_k.weight",
            .v = "attn_v.weight",
            .o = "attn_output.weight",
            .q_norm = "attn_q_norm.weight",
            .k_norm = "attn_k_norm.weight",
            .ffn_norm = "ffn_norm.weight",
            .gate = "ffn_gate.weight",
            .up = "ffn_up.weight",
            .down = "ffn_down.weight" },
};

/* What stands before the names of the text model, and where its head is. Files of one model differ:
 * a larger model's text part, a re-save of that part alone, conversions. */
struct name_root {
    const char *prefix, *head;
};
static const struct name_root hugging_face_roots[] = {
    { "model.", "lm_head.weight" },
    { "model.language_model.", "lm_head.weight" },
    { "language_model.model.", "language_model.lm_head.weight" },
};
static const struct name_root gguf_root = { "", "output.weight" };

#define VISION_PREFIX "model.visual."
#define DRAFT_PREFIX  "mtp."

/* The work of one weights_map. */
struct mapper {
    struct weights *weights;
    const struct model_config *config;
    const struct tensor_file *file;
    const struct container_names *names;
    struct name_root root;
    bool permuted; /* q and k rows are to be put back in order */
    uint64_t type_bytes[DTYPE_COUNT];
};

static enum reel_status find(const struct mapper *m, const char *name, const struct tensor **out,
                             struct reel_error *err) {
    *out = tensor_find(m->file, name);
    if (*out) return REEL_OK;
    const char *where = m->file->n_maps ? m->file->map_names[0] : "no file";
    const struct tensor_ignored *ignored = tensor_find_ignored(m->file, name);
    if (ignored)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: tensor \"%s\" has %s, which is not supported",
                       where, name, ignored->what);
    return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is missing%s", where, name,
                   m->file->n_maps > 1 ? " from all files" : "");
}

/* "[576, 1536]" */
static const char *shape_text(const struct tensor *t, char text[96]) {
    int n = snprintf(text, 96, "[");
    for (int i = 0; i < t->rank; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Tensors of a hybrid's file that are not run. */
static bool is_skipped(const struct mapper *m, const struct tensor *t) {
    return m->config->family == MODEL_QWEN35 &&
           (starts_with(t->name, VISION_PREFIX) || starts_with(t->name, DRAFT_PREFIX));
}

static void count(struct mapper *m, const struct tensor *t) {
    uint64_t n = 1;
    if (is_skipped(m, t)) return;
    for (int i = 0; i < t->rank; i++)
        n *= (uint64_t)t->shape[i];
    m->weights->n_parameters += n;
    m->weights->n_bytes += t->n_bytes;
    m->type_bytes[t->dtype] += t->n_bytes;
}

static enum reel_status find_matrix(struct mapper *m, const char *name, int rows, int columns,
                                    struct matrix *out, struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = find(m, name, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    char shape[96];
    if (t->rank != 2 || t->shape[0] != rows || t->shape[1] != columns)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has shape %s, expected [%d, %d]",
                       path, name, shape_text(t, shape), rows, columns);
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
    return REEL_OK;
}

static size_t padded(size_t n) { return (n + OWNED_ALIGN - 1) / OWNED_ALIGN * OWNED_ALIGN; }

/* Finds what becomes f32 [the product of shape] in the owned block. */
static enum reel_status find_small(struct mapper *m, const char *name, int rank,
                                   const int64_t *shape, struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = find(m, name, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    struct tensor expected = { .rank = rank };
    size_t n = 1;
    bool same = t->rank == rank;
    for (int i = 0; i < rank; i++) {
        expected.shape[i] = shape[i];
        n *= (size_t)shape[i];
        same = same && t->shape[i] == shape[i];
    }
    char found[96], wanted[96];
    if (!same)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has shape %s, expected %s", path,
                       name, shape_text(t, found), shape_text(&expected, wanted));
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
    /* the format is one of the two constants above */
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

static enum reel_status find_attention(struct mapper *m, int layer, struct layer_weights *w,
                                       struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    const int kv_dim = c->n_kv_heads * c->head_dim, qk = c->qk_norm ? c->head_dim : 0;
    enum reel_status status = find_matrices(
        m, layer,
        (const struct wanted_matrix[]){ { of->q, model_q_rows(c), c->hidden, &w->q },
                                        { of->k, kv_dim, c->hidden, &w->k },
                                        { of->v, kv_dim, c->hidden, &w->v },
                                        { of->o, c->hidden, c->n_heads * c->head_dim, &w->o } },
        4, err);
    if (m->permuted)
        m->weights->owned_bytes +=
            padded((size_t)w->q.rows * w->q.row_bytes) + padded((size_t)w->k.rows * w->k.row_bytes);
    if (status != REEL_OK) return status;
    return find_vectors(
        m, layer, (const struct wanted_vector[]){ { of->q_norm, qk }, { of->k_norm, qk } }, 2, err);
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
    if (status == REEL_OK)
        status = find_small(m, layer_name(m, layer, of->delta_conv, &name), 3,
                            (int64_t[]){ channels, 1, c->delta.conv_width }, err);
    if (status != REEL_OK) return status;
    return find_vectors(m, layer,
                        (const struct wanted_vector[]){ { of->delta_a_log, heads },
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

/* The draft layers' tensors are checked where a file has them, so that they can be relied on, and
 * not kept: nothing runs them. They are attention layers whatever the others are. */
static enum reel_status check_draft(struct mapper *m, struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct name_root root = m->root;
    struct matrix fc;
    if (!c->n_draft_layers || !tensor_find(m->file, DRAFT_PREFIX "fc.weight")) return REEL_OK;
    m->root.prefix = DRAFT_PREFIX;
    enum reel_status status =
        find_matrix(m, DRAFT_PREFIX "fc.weight", c->hidden, 2 * c->hidden, &fc, err);
    static const char *const norms[] = { DRAFT_PREFIX "pre_fc_norm_embedding.weight",
                                         DRAFT_PREFIX "pre_fc_norm_hidden.weight",
                                         DRAFT_PREFIX "norm.weight" };
    for (int i = 0; i < 3 && status == REEL_OK; i++)
        status = find_vector(m, norms[i], c->hidden, err);
    for (int i = 0; i < c->n_draft_layers && status == REEL_OK; i++) {
        struct layer_weights layer = { .kind = LAYER_ATTENTION };
        status = find_layer(m, i, &layer, err);
    }
    m->root = root;
    return status;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
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
        if (ends_with(t->name, ".bias"))
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: tensor \"%s\": layers with biases are not supported", path,
                           t->name);
        if (!m->config->qk_norm &&
            (ends_with(t->name, of->q_norm) || ends_with(t->name, of->k_norm)))
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: tensor \"%s\": family %s has no norm of q or k", path, t->name,
                           model_family_name(m->config->family));
    }
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
    if (status == REEL_OK && c->tied) w->head = w->embedding; /* a stored copy is not used */
    for (int i = 0; status == REEL_OK && i < c->n_layers; i++) {
        struct layer_weights *layer = &w->layers[i];
        layer->kind = (enum layer_kind)c->layer_kinds[i];
        layer->nth = model_layers_before(c, layer->kind, i);
        status = find_layer(m, i, layer, err);
    }
    if (status == REEL_OK) status = check_draft(m, err);
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

/* [channels, 1, width] as the file has it, [width, channels] here. */
static const float *pack_taps(struct packer *p, const char *name) {
    const struct tensor *t = tensor_find(p->m->file, name);
    const int64_t channels = t->shape[0], width = t->shape[2];
    const size_t channel_bytes = t->n_bytes / (size_t)channels;
    float *out = (float *)(void *)p->at, taps[MODEL_MAX_CONV];
    for (int64_t i = 0; i < channels; i++) {
        dtype_to_f32(t->dtype, t->data + (size_t)i * channel_bytes, taps, (size_t)width);
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

static void pack_attention(struct packer *p, int layer, struct layer_weights *w) {
    const struct mapper *m = p->m;
    struct name_buffer name;
    if (m->config->qk_norm) {
        w->q_norm = pack_norm(p, layer_name(m, layer, m->names->of.q_norm, &name));
        w->k_norm = pack_norm(p, layer_name(m, layer, m->names->of.k_norm, &name));
    }
    if (m->permuted) {
        pack_rows(p, &w->q, m->config->head_dim);
        pack_rows(p, &w->k, m->config->head_dim);
    }
}

static void pack_delta(struct packer *p, int layer, struct delta_weights *w) {
    const struct mapper *m = p->m;
    const struct layer_names *of = &m->names->of;
    struct name_buffer name;
    w->taps = pack_taps(p, layer_name(m, layer, of->delta_conv, &name));
    float *rate = pack_vector(p, layer_name(m, layer, of->delta_a_log, &name));
    for (int i = 0; i < m->config->delta.value_heads; i++)
        rate[i] = expf(rate[i]);
    w->rate = rate;
    w->dt_bias = pack_vector(p, layer_name(m, layer, of->delta_dt_bias, &name));
    w->out_norm = pack_vector(p, layer_name(m, layer, of->delta_norm, &name));
}

static void pack_layer(struct packer *p, int layer) {
    const struct mapper *m = p->m;
    const struct layer_names *of = &m->names->of;
    struct layer_weights *w = &m->weights->layers[layer];
    struct name_buffer name;
    w->attn_norm = pack_norm(p, layer_name(m, layer, of->attn_norm, &name));
    w->ffn_norm = pack_norm(p, layer_name(m, layer, of->ffn_norm, &name));
    if (w->kind == LAYER_DELTA)
        pack_delta(p, layer, &w->delta);
    else
        pack_attention(p, layer, w);
}

static struct name_root find_root(const struct mapper *m, bool is_gguf) {
    if (is_gguf) return gguf_root;
    struct mapper probe = *m;
    struct name_buffer name;
    for (size_t i = 0; i < sizeof hugging_face_roots / sizeof hugging_face_roots[0]; i++) {
        probe.root = hugging_face_roots[i];
        if (tensor_find(m->file, root_name(&probe, m->names->embedding, &name))) return probe.root;
    }
    return hugging_face_roots[m->config->nested ? 1 : 0]; /* for the message */
}

static enum reel_status mapper_start(struct mapper *m, struct weights *weights,
                                     const struct model_config *config,
                                     const struct tensor_file *file, bool is_gguf,
                                     struct reel_error *err) {
    *weights = (struct weights){ 0 };
    *m = (struct mapper){ .weights = weights,
                          .config = config,
                          .file = file,
                          .names = is_gguf ? &gguf_names : &hugging_face,
                          .permuted = is_gguf && config->family == MODEL_LLAMA };
    m->root = find_root(m, is_gguf);
    enum reel_status status = mem_zeroed(&weights->layers, (size_t)config->n_layers,
                                         sizeof *weights->layers, "the layers", err);
    if (status == REEL_OK) weights->n_layers = config->n_layers;
    if (status == REEL_OK) status = find_all(m, err);
    if (status != REEL_OK) weights_release(weights);
    return status;
}

enum reel_status weights_check(struct weights *weights, const struct model_config *config,
                               const struct tensor_file *file, bool is_gguf,
                               struct reel_error *err) {
    struct mapper m;
    return mapper_start(&m, weights, config, file, is_gguf, err);
}

enum reel_status weights_map(struct weights *weights, const struct model_config *config,
                             const struct tensor_file *file, bool is_gguf, struct reel_error *err) {
    struct mapper m;
    enum reel_status status = mapper_start(&m, weights, config, file, is_gguf, err);
    if (status != REEL_OK) return status;
    status = mem_aligned(&weights->owned, weights->owned_bytes, 1, "norms and reordered rows", err);
    if (status != REEL_OK) {
        weights_release(weights);
        return status;
    }
    struct packer p = { .m = &m, .at = weights->owned };
    struct name_buffer name;
    weights->final_norm = pack_norm(&p, root_name(&m, m.names->final_norm, &name));
    for (int i = 0; i < config->n_layers; i++)
        pack_layer(&p, i);
    return REEL_OK;
}

void weights_release(struct weights *weights) {
    if (!weights) return;
    free(weights->layers);
    free(weights->owned);
    *weights = (struct weights){ 0 };
}

void matrix_row_f32(const struct matrix *m, int r, float *out) {
    dtype_to_f32(m->dtype, m->data + (size_t)r * m->row_bytes, out, (size_t)m->columns);
}
