#include "model/draft_head.h"

#include "base/json.h"
#include "base/memory.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <string.h>

/* The layer has one of these names, the others none. */
static const char *const layer_prefixes[] = { "midlayer.", "layers.0." };

/* What config.json says beside a Llama layer. */
struct head_facts {
    int ids; /* that it guesses among */
    int taps[DRAFT_TAPS];
};

/* ---- config.json ---- */

/* Files of the library "speculators" nest the layer's config, and may pass on a normed residual. */
static enum reel_status refuse_others(const json_t *object, const char *name,
                                      struct reel_error *err) {
    const json_t *list = json_object_get(object, "architectures");
    const char *architecture = json_string_value(json_array_get(list, 0));
    if (json_object_get(object, "speculators_model_type"))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: a head in the form of \"speculators\"; supported are heads with the "
                       "config of a Llama layer and \"draft_vocab_size\"",
                       name);
    if (architecture && (strstr(architecture, "Eagle3") || strstr(architecture, "EAGLE3")))
        return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"architectures\" is \"%.60s\"; supported is an EAGLE-3 head, such as "
                   "\"LlamaForCausalLMEagle3\"",
                   name, architecture ? architecture : "missing");
}

/* The layers whose input the head sees: those that the file lists, which count from 0 and name the
 * layer whose output it is, or the usual three. */
static enum reel_status read_taps(const json_t *object, const char *name,
                                  const struct model_config *model, int *taps,
                                  struct reel_error *err) {
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *list = json_object_get(json_object_get(object, "eagle_config"), key);
    taps[0] = 2, taps[1] = model->n_layers / 2, taps[2] = model->n_layers - 3;
    if (!list || json_is_null(list)) {
        if (model->n_layers > 5) return REEL_OK;
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: the model has %d layers, and a head that does not say which of them it "
                       "sees needs at least 6",
                       name, model->n_layers);
    }
    if (json_array_size(list) != DRAFT_TAPS)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"%s\" has %zu entries; supported is a list of %d", name, key,
                       json_array_size(list), DRAFT_TAPS);
    for (size_t i = 0; i < DRAFT_TAPS; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t layer = json_integer_value(value);
        if (!json_is_integer(value) || layer < 0 || layer >= model->n_layers - 1)
            return err_set(err, REEL_E_FORMAT, "%s: \"%s\": entry %zu must be a layer of 0 to %d",
                           name, key, i, model->n_layers - 2);
        taps[i] = (int)layer + 1;
    }
    return REEL_OK;
}

static enum reel_status read_facts(const struct draft_head *head, const struct model_config *model,
                                   struct head_facts *facts, struct reel_error *err) {
    struct file_map map = { 0 };
    json_t *object = NULL;
    char *path = NULL;
    int64_t ids = model->vocab;
    enum reel_status status = model_source_map(&head->source, "config.json", &map, &path, err);
    if (status == REEL_OK) status = json_read(&object, path, map.bytes, map.size, err);
    if (status == REEL_OK && !json_is_object(object))
        status = err_set(err, REEL_E_FORMAT, "%s: must hold one JSON object", path);
    if (status == REEL_OK) status = refuse_others(object, path, err);
    if (status == REEL_OK) {
        const struct json_int_rule rule = {
            .key = "draft_vocab_size", .min = 1, .max = model->vocab, .fallback = model->vocab
        };
        status = json_get_int(object, path, &rule, &ids, err);
    }
    facts->ids = (int)ids;
    if (status == REEL_OK) status = read_taps(object, path, model, facts->taps, err);
    json_decref(object);
    file_map_close(&map);
    mem_free(path);
    return status;
}

static enum reel_status read_config(struct draft_head *head, const struct model_config *model,
                                    int *taps, struct reel_error *err) {
    struct model_config *c = &head->config;
    struct head_facts facts;
    enum reel_status status = read_facts(head, model, &facts, err);
    if (status == REEL_OK) status = model_config_read(c, &head->source, err);
    if (status != REEL_OK) return status;
    const char *path = head->source.path;
    if (c->family != MODEL_LLAMA || c->n_layers != 1 || c->hidden != model->hidden)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: a head of %d layers of family %s with a hidden size of %d; supported "
                       "for this model is one layer of family %s with %d",
                       path, c->n_layers, model_family_name(c->family), c->hidden,
                       model_family_name(MODEL_LLAMA), model->hidden);
    if (c->vocab != model->vocab)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: a head for %d ids (\"vocab_size\"), the model has %d", path, c->vocab,
                       model->vocab);
    c->vocab = facts.ids;
    c->max_context = model->max_context;
    memcpy(taps, facts.taps, sizeof facts.taps);
    return REEL_OK;
}

/* ---- tensors ---- */

struct finder {
    const struct draft_head *head;
    struct draft_weights *draft;
    const char *layer; /* the layer's prefix */
};

struct tensor_name {
    char text[TENSOR_MAX_NAME + 1];
};

static const char *name_of(const struct finder *f, const char *part, struct tensor_name *name) {
    snprintf(name->text, sizeof name->text, "%s%s", f->layer, part);
    return name->text;
}

static enum reel_status find_matrix(const struct finder *f, const char *name, int rows, int columns,
                                    struct matrix *out, struct reel_error *err) {
    const struct tensor_file *file = &f->head->tensors;
    const struct tensor *t = NULL;
    enum reel_status status = tensor_require(file, name, 2, (int64_t[]){ rows, columns }, &t, err);
    if (status != REEL_OK) return status;
    *out = (struct matrix){ .dtype = t->dtype,
                            .rows = rows,
                            .columns = columns,
                            .row_bytes = dtype_row_bytes(t->dtype, (size_t)columns),
                            .data = t->data };
    f->draft->n_parameters += (uint64_t)rows * (uint64_t)columns;
    f->draft->n_bytes += t->n_bytes;
    return REEL_OK;
}

/* A matrix of the mixer's input, which is the id's part and behind it the hidden state's. */
static enum reel_status find_halves(const struct finder *f, const char *part, int rows,
                                    struct matrix *of_id, struct matrix *of_hidden,
                                    struct reel_error *err) {
    const int hidden = f->head->config.hidden;
    struct tensor_name name;
    struct matrix whole;
    enum reel_status status =
        find_matrix(f, name_of(f, part, &name), rows, 2 * hidden, &whole, err);
    if (status != REEL_OK) return status;
    whole.columns = hidden;
    *of_id = *of_hidden = whole;
    of_hidden->data += dtype_row_bytes(whole.dtype, (size_t)hidden);
    return REEL_OK;
}

static enum reel_status find_layer(const struct finder *f, struct reel_error *err) {
    const struct model_config *c = &f->head->config;
    struct draft_weights *d = f->draft;
    struct layer_weights *l = &d->layer;
    const int q_rows = c->n_heads * c->head_dim, kv_rows = c->n_kv_heads * c->head_dim;
    struct tensor_name name;
    const struct {
        const char *part;
        int rows, columns;
        struct matrix *out;
    } all[] = {
        { "self_attn.o_proj.weight", c->hidden, q_rows, &l->o },
        { "mlp.gate_proj.weight", c->intermediate, c->hidden, &l->gate },
        { "mlp.up_proj.weight", c->intermediate, c->hidden, &l->up },
        { "mlp.down_proj.weight", c->hidden, c->intermediate, &l->down },
    };
    *l = (struct layer_weights){ .kind = LAYER_ATTENTION };
    enum reel_status status =
        find_halves(f, "self_attn.q_proj.weight", q_rows, &d->id_q, &l->q, err);
    if (status == REEL_OK)
        status = find_halves(f, "self_attn.k_proj.weight", kv_rows, &d->id_k, &l->k, err);
    if (status == REEL_OK)
        status = find_halves(f, "self_attn.v_proj.weight", kv_rows, &d->id_v, &l->v, err);
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++)
        status = find_matrix(f, name_of(f, all[i].part, &name), all[i].rows, all[i].columns,
                             all[i].out, err);
    return status;
}

static enum reel_status find_matrices(const struct finder *f, struct reel_error *err) {
    const struct model_config *c = &f->head->config;
    struct draft_weights *d = f->draft;
    enum reel_status status = find_layer(f, err);
    if (status == REEL_OK)
        status = find_matrix(f, "fc.weight", c->hidden, DRAFT_TAPS * c->hidden, &d->fc, err);
    if (status == REEL_OK)
        status = find_matrix(f, "lm_head.weight", c->vocab, c->hidden, &d->head, err);
    if (status == REEL_OK && tensor_find(&f->head->tensors, "embed_tokens.weight"))
        status = find_matrix(f, "embed_tokens.weight", d->model_ids, c->hidden, &d->embedding, err);
    return status;
}

static enum reel_status read_norm(const struct finder *f, const char *name, float *out,
                                  struct reel_error *err) {
    const int hidden = f->head->config.hidden;
    const struct tensor *t = NULL;
    enum reel_status status =
        tensor_require(&f->head->tensors, name, 1, (int64_t[]){ hidden }, &t, err);
    if (status != REEL_OK) return status;
    if (dtype_block_elements(t->dtype) != 1)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, supported for a norm are f32, f16 and bf16",
                       tensor_file_path(&f->head->tensors, t), name, dtype_name(t->dtype));
    dtype_to_f32(t->dtype, t->data, out, (size_t)hidden);
    return REEL_OK;
}

static enum reel_status read_norms(const struct finder *f, float *out, struct reel_error *err) {
    struct draft_weights *d = f->draft;
    struct tensor_name name;
    const struct {
        const char *part;
        bool of_layer;
        const float **out;
    } all[] = {
        { "input_layernorm.weight", true, &d->embedding_norm },
        { "hidden_norm.weight", true, &d->hidden_norm },
        { "post_attention_layernorm.weight", true, &d->layer.ffn_norm },
        { "norm.weight", false, &d->norm },
    };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++) {
        status =
            read_norm(f, all[i].of_layer ? name_of(f, all[i].part, &name) : all[i].part, out, err);
        *all[i].out = out;
        out += f->head->config.hidden;
    }
    d->layer.attn_norm = d->hidden_norm;
    return status;
}

/* Guess i is id i + d2t[i]; without the tensor a guess is an id. */
static enum reel_status read_ids(const struct finder *f, int32_t *out, struct reel_error *err) {
    static const char name[] = "d2t";
    const struct tensor_file *file = &f->head->tensors;
    const struct tensor_ignored *t = tensor_find_ignored(file, name);
    const int n = f->head->config.vocab, most = f->draft->model_ids;
    f->draft->ids = out;
    if (!t && n < most)
        return err_set(err, REEL_E_FORMAT,
                       "%s: no tensor \"%s\", which a head needs that guesses among %d of %d ids",
                       f->head->source.path, name, n, most);
    if (t && (t->code != STORED_I64 || t->rank != 1 || t->shape[0] != n))
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" must be [%d] of 64-bit integers",
                       file->map_names[t->file], name, n);
    for (int i = 0; i < n; i++) {
        int64_t offset = 0;
        if (t) memcpy(&offset, t->data + (size_t)i * sizeof offset, sizeof offset);
        if (offset < -(int64_t)i || offset >= (int64_t)most - i)
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\": entry %d is %lld, allowed are %d to %d, which make "
                           "ids of the model",
                           file->map_names[t->file], name, i, (long long)offset, -i, most - 1 - i);
        out[i] = (int32_t)(i + offset);
    }
    return REEL_OK;
}

static enum reel_status read_tensors(struct draft_head *head, struct draft_weights *draft,
                                     struct reel_error *err) {
    const struct model_config *c = &head->config;
    struct finder f = { head, draft, layer_prefixes[0] };
    struct tensor_name name;
    enum reel_status status = safetensors_open(&head->tensors, &head->source, err);
    if (status != REEL_OK) return status;
    for (size_t i = 0; i < sizeof layer_prefixes / sizeof *layer_prefixes; i++) {
        const struct finder of = { head, draft, layer_prefixes[i] };
        if (tensor_find(&head->tensors, name_of(&of, "hidden_norm.weight", &name))) f = of;
    }
    status = find_matrices(&f, err);
    if (status != REEL_OK) return status;
    const size_t norms = 4 * (size_t)c->hidden;
    status = mem_zeroed(&head->owned, norms + (size_t)c->vocab, sizeof(float),
                        "norms and ids of an EAGLE-3 head", err);
    if (status == REEL_OK) status = read_norms(&f, head->owned, err);
    if (status == REEL_OK) status = read_ids(&f, (int32_t *)head->owned + norms, err);
    return status;
}

enum reel_status draft_head_open(struct draft_head *head, struct draft_weights *draft,
                                 struct model_source *source, const struct model_config *model,
                                 struct reel_error *err) {
    *head = (struct draft_head){ .source = *source };
    *source = (struct model_source){ 0 };
    struct draft_weights own = { .kind = DRAFT_EAGLE3, .model_ids = model->vocab };
    enum reel_status status = REEL_OK;
    if (head->source.is_gguf)
        status = err_set(err, REEL_E_UNSUPPORTED,
                         "%s: a GGUF file; EAGLE-3 heads are read from a folder with "
                         "config.json and safetensors",
                         head->source.path);
    if (status == REEL_OK) status = read_config(head, model, own.taps, err);
    if (status == REEL_OK) status = read_tensors(head, &own, err);
    if (status != REEL_OK) {
        draft_head_release(head);
        return status;
    }
    own.config = &head->config;
    *draft = own;
    return REEL_OK;
}

void draft_head_release(struct draft_head *head) {
    mem_free(head->owned);
    tensor_file_release(&head->tensors);
    model_source_release(&head->source);
    *head = (struct draft_head){ 0 };
}
