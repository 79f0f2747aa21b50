/* From names in a file to the matrices of the maths. First every tensor is found and checked, then
 * one block is allocated for what cannot be used where it lies: norms (widened to float32) and the
 * q and k rows that GGUF files of the Llama family store permuted. */
#include "model/weights.h"

#include "base/checked.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNED_ALIGN 64

struct layer_names {
    const char *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *ffn_norm, *gate, *up, *down;
};

struct container_names {
    const char *embedding, *final_norm, *head;
    const char *layer; /* printf format of a layer's prefix */
    struct layer_names of;
};

static const struct container_names hugging_face = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .layer = "model.layers.%d.",
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
            .down = "mlp.down_proj.weight" },
};

static const struct container_names gguf_names = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .head = "output.weight",
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

/* The work of one weights_map. */
struct mapper {
    struct weights *weights;
    const struct model_config *config;
    const struct tensor_file *file;
    const struct container_names *names;
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

static void count(struct mapper *m, const struct tensor *t) {
    uint64_t n = 1;
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

static enum reel_status find_norm(struct mapper *m, const char *name, int n,
                                  struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = find(m, name, &t, err);
    if (status != REEL_OK) return status;
    const char *path = tensor_file_path(m->file, t);
    char shape[96];
    if (t->rank != 1 || t->shape[0] != n)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" has shape %s, expected [%d]", path,
                       name, shape_text(t, shape), n);
    if (dtype_block_elements(t->dtype) != 1)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, supported for a norm are f32, f16 and bf16",
                       path, name, dtype_name(t->dtype));
    m->weights->owned_bytes += padded((size_t)n * sizeof(float));
    count(m, t);
    return REEL_OK;
}

/* Room for the longest name of a layer. */
struct name_buffer {
    char text[96];
};

static const char *layer_name(const struct mapper *m, int layer, const char *part,
                              struct name_buffer *buffer) {
    /* the format is one of the two constants above */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(buffer->text, sizeof buffer->text, m->names->layer, layer);
#pragma GCC diagnostic pop
    snprintf(buffer->text + n, sizeof buffer->text - (size_t)n, "%s", part);
    return buffer->text;
}

static enum reel_status find_layer(struct mapper *m, int layer, struct reel_error *err) {
    const struct model_config *c = m->config;
    const struct layer_names *of = &m->names->of;
    struct layer_weights *w = &m->weights->layers[layer];
    int q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    struct {
        const char *name;
        int rows, columns;
        struct matrix *out;
    } const matrices[] = {
        { of->q, q_dim, c->hidden, &w->q },
        { of->k, kv_dim, c->hidden, &w->k },
        { of->v, kv_dim, c->hidden, &w->v },
        { of->o, c->hidden, q_dim, &w->o },
        { of->gate, c->intermediate, c->hidden, &w->gate },
        { of->up, c->intermediate, c->hidden, &w->up },
        { of->down, c->hidden, c->intermediate, &w->down },
    };
    struct name_buffer name;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        enum reel_status status =
            find_matrix(m, layer_name(m, layer, matrices[i].name, &name), matrices[i].rows,
                        matrices[i].columns, matrices[i].out, err);
        if (status != REEL_OK) return status;
    }
    if (m->permuted)
        m->weights->owned_bytes +=
            padded((size_t)w->q.rows * w->q.row_bytes) + padded((size_t)w->k.rows * w->k.row_bytes);
    struct {
        const char *name;
        int n;
    } const norms[] = {
        { of->attn_norm, c->hidden },
        { of->ffn_norm, c->hidden },
        { of->q_norm, c->qk_norm ? c->head_dim : 0 },
        { of->k_norm, c->qk_norm ? c->head_dim : 0 },
    };
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        if (norms[i].n == 0) continue;
        enum reel_status status =
            find_norm(m, layer_name(m, layer, norms[i].name, &name), norms[i].n, err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* Tensors that would change the result and that nothing here applies. */
static enum reel_status refuse_extras(const struct mapper *m, struct reel_error *err) {
    const struct layer_names *of = &m->names->of;
    for (int i = 0; i < m->file->n_tensors; i++) {
        const struct tensor *t = &m->file->tensors[i];
        const char *path = tensor_file_path(m->file, t);
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
    enum reel_status status = refuse_extras(m, err);
    if (status == REEL_OK)
        status = find_matrix(m, m->names->embedding, c->vocab, c->hidden, &w->embedding, err);
    if (status == REEL_OK) status = find_norm(m, m->names->final_norm, c->hidden, err);
    if (status == REEL_OK && !c->tied)
        status = find_matrix(m, m->names->head, c->vocab, c->hidden, &w->head, err);
    if (status == REEL_OK && c->tied) w->head = w->embedding; /* a stored copy is not used */
    for (int i = 0; status == REEL_OK && i < c->n_layers; i++)
        status = find_layer(m, i, err);
    for (int type = 0; type < DTYPE_COUNT; type++)
        if (m->type_bytes[type] > m->type_bytes[w->main_type]) w->main_type = (enum dtype)type;
    return status;
}

/* The second pass: every name was found before, so nothing here can fail. */
struct packer {
    const struct mapper *m;
    unsigned char *at;
};

static const float *pack_norm(struct packer *p, const char *name) {
    const struct tensor *t = tensor_find(p->m->file, name);
    float *out = (float *)(void *)p->at;
    size_t n = (size_t)t->shape[0];
    dtype_to_f32(t->dtype, t->data, out, n);
    p->at += padded(n * sizeof(float));
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

static void pack_layer(struct packer *p, int layer) {
    const struct mapper *m = p->m;
    const struct layer_names *of = &m->names->of;
    struct layer_weights *w = &m->weights->layers[layer];
    struct name_buffer name;
    w->attn_norm = pack_norm(p, layer_name(m, layer, of->attn_norm, &name));
    w->ffn_norm = pack_norm(p, layer_name(m, layer, of->ffn_norm, &name));
    if (m->config->qk_norm) {
        w->q_norm = pack_norm(p, layer_name(m, layer, of->q_norm, &name));
        w->k_norm = pack_norm(p, layer_name(m, layer, of->k_norm, &name));
    }
    if (m->permuted) {
        pack_rows(p, &w->q, m->config->head_dim);
        pack_rows(p, &w->k, m->config->head_dim);
    }
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
    weights->final_norm = pack_norm(&p, m.names->final_norm);
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
