/* One walk names every tensor of the tower; it is done once to find and count them, and once to
 * read norms and biases into one block. */
#include "model/audio_weights.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define OWNED_ALIGN 64

/* Files of one model differ in what stands before the names, and in the projector's. */
static const struct tower_names {
    const char *tower, *proj1, *proj2;
} all_names[] = {
    { "thinker.audio_tower.", "thinker.audio_tower.proj1.", "thinker.audio_tower.proj2." },
    { "model.audio_tower.", "model.multi_modal_projector.linear_1.",
      "model.multi_modal_projector.linear_2." },
};
static const char *const owned_prefixes[] = { "thinker.audio_tower.", "model.audio_tower.",
                                              "model.multi_modal_projector." };

struct walk {
    struct audio_weights *weights;
    const struct audio_config *config;
    const struct tensor_file *file;
    const struct tower_names *names;
    unsigned char *at;  /* where the next vector goes; NULL: the finding walk */
    const char *sought; /* a name, or NULL; `met` says whether the walk came by it */
    bool met;
    int n_found;
};

bool audio_weights_owns(const char *name) {
    for (size_t i = 0; i < sizeof owned_prefixes / sizeof owned_prefixes[0]; i++)
        if (strncmp(name, owned_prefixes[i], strlen(owned_prefixes[i])) == 0) return true;
    return false;
}

static size_t padded(size_t n) { return (n + OWNED_ALIGN - 1) / OWNED_ALIGN * OWNED_ALIGN; }

static enum reel_status find(struct walk *w, const char *name, int rank, const int64_t *shape,
                             const struct tensor **t, struct reel_error *err) {
    if (w->sought && strcmp(w->sought, name) == 0) w->met = true;
    enum reel_status status = tensor_require(w->file, name, rank, shape, t, err);
    if (status != REEL_OK || w->at || w->sought) return status;
    uint64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (uint64_t)shape[i];
    w->weights->n_parameters += n;
    w->weights->n_bytes += (*t)->n_bytes;
    w->weights->type_bytes[(*t)->dtype] += (*t)->n_bytes;
    w->n_found++;
    if (dtype_block_elements((*t)->dtype) == 1) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: tensor \"%s\" has type %s, supported in an audio tower are f32, f16 and "
                   "bf16",
                   tensor_file_path(w->file, *t), name, dtype_name((*t)->dtype));
}

static enum reel_status take_vector(struct walk *w, const char *name, int n, const float **out,
                                    struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = find(w, name, 1, (int64_t[]){ n }, &t, err);
    if (status != REEL_OK) return status;
    const size_t bytes = padded((size_t)n * sizeof(float));
    if (!w->at) {
        if (!w->sought) w->weights->owned_bytes += bytes;
        return REEL_OK;
    }
    float *values = (float *)(void *)w->at;
    dtype_to_f32(t->dtype, t->data, values, (size_t)n);
    *out = values;
    w->at += bytes;
    return REEL_OK;
}

/* `shape`: [rows, ...]; all that follows is a row. */
static enum reel_status take_matrix(struct walk *w, const char *name, int rank,
                                    const int64_t *shape, struct matrix *out,
                                    struct reel_error *err) {
    const struct tensor *t = NULL;
    enum reel_status status = find(w, name, rank, shape, &t, err);
    if (status != REEL_OK) return status;
    int columns = 1;
    for (int i = 1; i < rank; i++)
        columns *= (int)shape[i];
    *out = (struct matrix){ .dtype = t->dtype,
                            .rows = (int)shape[0],
                            .columns = columns,
                            .row_bytes = dtype_row_bytes(t->dtype, (size_t)columns),
                            .data = t->data };
    return REEL_OK;
}

struct name {
    char text[128];
};

static struct name join(const char *prefix, const char *part, const char *kind) {
    struct name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", prefix, part, kind);
    return name;
}

static enum reel_status take_linear(struct walk *w, const char *prefix, const char *part, int rank,
                                    const int64_t *shape, struct audio_linear *out,
                                    struct reel_error *err) {
    const struct name weight = join(prefix, part, "weight"), bias = join(prefix, part, "bias");
    enum reel_status status = take_matrix(w, weight.text, rank, shape, &out->weight, err);
    if (status != REEL_OK) return status;
    return take_vector(w, bias.text, (int)shape[0], &out->bias, err);
}

static enum reel_status take_square(struct walk *w, const char *prefix, const char *part, int rows,
                                    int columns, struct audio_linear *out, struct reel_error *err) {
    return take_linear(w, prefix, part, 2, (int64_t[]){ rows, columns }, out, err);
}

static enum reel_status take_norm(struct walk *w, const char *prefix, const char *part,
                                  struct audio_norm *out, struct reel_error *err) {
    const struct name weight = join(prefix, part, "weight"), bias = join(prefix, part, "bias");
    enum reel_status status = take_vector(w, weight.text, w->config->hidden, &out->weight, err);
    if (status != REEL_OK) return status;
    return take_vector(w, bias.text, w->config->hidden, &out->bias, err);
}

/* Softmax cancels the bias of k, so some conversions leave it out. */
static enum reel_status take_keys(struct walk *w, const char *prefix, struct audio_linear *out,
                                  struct reel_error *err) {
    const int hidden = w->config->hidden;
    const struct name weight = join(prefix, "self_attn.k_proj.", "weight");
    const struct name bias = join(prefix, "self_attn.k_proj.", "bias");
    enum reel_status status =
        take_matrix(w, weight.text, 2, (int64_t[]){ hidden, hidden }, &out->weight, err);
    if (status != REEL_OK || !tensor_find(w->file, bias.text)) return status;
    return take_vector(w, bias.text, hidden, &out->bias, err);
}

static enum reel_status take_layer(struct walk *w, int i, struct reel_error *err) {
    const int hidden = w->config->hidden, inter = w->config->intermediate;
    struct audio_layer_weights *l = &w->weights->layers[i];
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%slayers.%d.", w->names->tower, i);
    enum reel_status status = take_norm(w, prefix, "self_attn_layer_norm.", &l->attn_norm, err);
    if (status == REEL_OK)
        status = take_square(w, prefix, "self_attn.q_proj.", hidden, hidden, &l->q, err);
    if (status == REEL_OK) status = take_keys(w, prefix, &l->k, err);
    if (status == REEL_OK)
        status = take_square(w, prefix, "self_attn.v_proj.", hidden, hidden, &l->v, err);
    if (status == REEL_OK)
        status = take_square(w, prefix, "self_attn.out_proj.", hidden, hidden, &l->o, err);
    if (status == REEL_OK) status = take_norm(w, prefix, "final_layer_norm.", &l->ffn_norm, err);
    if (status == REEL_OK) status = take_square(w, prefix, "fc1.", inter, hidden, &l->fc1, err);
    if (status == REEL_OK) status = take_square(w, prefix, "fc2.", hidden, inter, &l->fc2, err);
    return status;
}

static enum reel_status take_all(struct walk *w, struct reel_error *err) {
    static const char *const convs[M_AUDIO_CONVS] = { "conv2d1.", "conv2d2.", "conv2d3." };
    const struct audio_config *c = w->config;
    struct audio_weights *out = w->weights;
    const char *tower = w->names->tower;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < M_AUDIO_CONVS && status == REEL_OK; i++)
        status = take_linear(w, tower, convs[i], 4,
                             (int64_t[]){ c->n_channels, i ? c->n_channels : 1, 3, 3 },
                             &out->conv[i], err);
    const struct name conv_out = join(tower, "conv_out.", "weight");
    if (status == REEL_OK)
        status = take_matrix(w, conv_out.text, 2, (int64_t[]){ c->hidden, audio_conv_width(c) },
                             &out->conv_out, err);
    for (int i = 0; i < c->n_layers && status == REEL_OK; i++)
        status = take_layer(w, i, err);
    if (status == REEL_OK) status = take_norm(w, tower, "ln_post.", &out->out_norm, err);
    if (status == REEL_OK)
        status = take_square(w, w->names->proj1, "", c->hidden, c->hidden, &out->proj1, err);
    if (status == REEL_OK)
        status = take_square(w, w->names->proj2, "", c->output_dim, c->hidden, &out->proj2, err);
    return status;
}

/* After a walk that found all it wants. */
static enum reel_status refuse_others(const struct walk *found, struct reel_error *err) {
    int n = 0;
    for (int i = 0; i < found->file->n_tensors; i++)
        n += audio_weights_owns(found->file->tensors[i].name);
    for (int i = 0; n > found->n_found && i < found->file->n_tensors; i++) {
        const struct tensor *t = &found->file->tensors[i];
        struct walk again = *found;
        again.sought = t->name;
        if (!audio_weights_owns(t->name)) continue;
        enum reel_status status = take_all(&again, err);
        if (status == REEL_OK && !again.met)
            status =
                err_set(err, REEL_E_UNSUPPORTED, "%s: tensor \"%s\" is not known in an audio tower",
                        tensor_file_path(found->file, t), t->name);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

static enum reel_status start(struct walk *walk, struct audio_weights *w,
                              const struct audio_config *config, const struct tensor_file *file,
                              struct reel_error *err) {
    *w = (struct audio_weights){ 0 };
    *walk = (struct walk){ .weights = w, .config = config, .file = file, .names = all_names };
    const struct name probe = join(all_names[1].tower, "conv_out.", "weight");
    if (tensor_find(file, probe.text)) walk->names = &all_names[1];
    enum reel_status status = mem_zeroed(&w->layers, (size_t)config->n_layers, sizeof *w->layers,
                                         "the audio layers", err);
    if (status == REEL_OK) w->n_layers = config->n_layers;
    if (status == REEL_OK) status = take_all(walk, err);
    if (status == REEL_OK) status = refuse_others(walk, err);
    if (status != REEL_OK) audio_weights_release(w);
    return status;
}

enum reel_status audio_weights_check(struct audio_weights *w, const struct audio_config *config,
                                     const struct tensor_file *file, struct reel_error *err) {
    struct walk walk;
    return start(&walk, w, config, file, err);
}

enum reel_status audio_weights_map(struct audio_weights *w, const struct audio_config *config,
                                   const struct tensor_file *file, struct reel_error *err) {
    struct walk walk;
    enum reel_status status = start(&walk, w, config, file, err);
    if (status != REEL_OK) return status;
    status = mem_aligned(&w->owned, w->owned_bytes, 1, "norms of the audio tower", err);
    walk.at = w->owned;
    if (status == REEL_OK) status = take_all(&walk, err);
    if (status != REEL_OK) audio_weights_release(w);
    return status;
}

void audio_weights_release(struct audio_weights *w) {
    if (!w) return;
    mem_free(w->layers);
    mem_free(w->owned);
    *w = (struct audio_weights){ 0 };
}
