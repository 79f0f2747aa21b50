#include "runtime/model_handle.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <string.h>
#include <unistd.h>

/* Enough of each tensor to tell two checkpoints of one shape apart without reading them whole. */
#define IDENTITY_BYTES 1024

static enum reel_status write_config(struct buffer *b, const struct model_config *c,
                                     struct reel_error *err) {
    return buffer_printf(
        b, err, "%d %d %d %d %d %d %d %d %d %.9g %d %d %.17g %d %.17g %.17g %.17g %d %d %d%s\n",
        (int)c->family, c->hidden, c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim,
        c->intermediate, c->vocab, c->max_context, (double)c->rms_eps, c->qk_norm, c->tied,
        c->rope_theta, (int)c->rope, c->rope_factor, c->rope_low_freq_factor,
        c->rope_high_freq_factor, c->rope_original_context, c->rotary_dim,
        c->delta.key_heads, /* of a DeltaNet's sizes the one that no tensor's shape tells */
        c->window ? " windowed" : ""); /* biases are among the tensors */
}

static enum reel_status write_tensor(struct buffer *b, const struct tensor *t,
                                     struct reel_error *err) {
    enum reel_status status = buffer_printf(b, err, "%s %s", t->name, dtype_name(t->dtype));
    for (int i = 0; i < t->rank && status == REEL_OK; i++)
        status = buffer_printf(b, err, " %lld", (long long)t->shape[i]);
    char hash[SHA256_HEX];
    sha256_hex(t->data, t->n_bytes < IDENTITY_BYTES ? t->n_bytes : IDENTITY_BYTES, hash);
    if (status == REEL_OK) status = buffer_printf(b, err, " %s\n", hash);
    return status;
}

/* Of codes, likewise. */
static enum reel_status write_codes(struct buffer *b, const struct tensor_ignored *t,
                                    struct reel_error *err) {
    if (t->code == STORED_NONE) return REEL_OK;
    enum reel_status status = buffer_printf(b, err, "%s %s", t->name, t->what);
    for (int i = 0; i < t->rank && status == REEL_OK; i++)
        status = buffer_printf(b, err, " %lld", (long long)t->shape[i]);
    char hash[SHA256_HEX];
    sha256_hex(t->data, t->n_bytes < IDENTITY_BYTES ? t->n_bytes : IDENTITY_BYTES, hash);
    if (status == REEL_OK) status = buffer_printf(b, err, " %s\n", hash);
    return status;
}

static enum reel_status find_identity(struct reel_model *handle, struct reel_error *err) {
    struct buffer b = { 0 };
    const struct tensor_file *tensors = &handle->model.tensors;
    const struct quantized_weights *made = handle->model.weights.quantized;
    enum reel_status status = write_config(&b, &handle->model.config, err);
    if (status == REEL_OK && made) /* not in the file, and other K and V come of it */
        status = buffer_printf(&b, err, "weights %s\n", weight_form_name(made->form));
    for (int i = 0; i < tensors->n_tensors && status == REEL_OK; i++)
        status = write_tensor(&b, &tensors->tensors[i], err);
    for (int i = 0; tensors->quant && i < tensors->n_ignored && status == REEL_OK; i++)
        status = write_codes(&b, &tensors->ignored[i], err);
    if (status == REEL_OK) sha256_hex(b.bytes, b.size, handle->identity);
    buffer_release(&b);
    return status;
}

static size_t longest_token(const struct reel_tokenizer *tok) {
    size_t longest = 0;
    if (!tok) return 0;
    for (int32_t id = 0; id < tokenizer_size(tok); id++) {
        size_t n = 0;
        if (tokenizer_bytes(tok, id, &n) && n > longest) longest = n;
    }
    return longest;
}

enum reel_status model_handle_is_here(const struct reel_model *handle, struct reel_error *err) {
    const pid_t here = getpid();
    if (handle->process == here || handle->process == 0) return REEL_OK;
    return err_set(err, REEL_E_STATE,
                   "the model was opened by process %ld; process %ld was forked from it and has "
                   "neither its threads nor its GPU: open the model again",
                   (long)handle->process, (long)here);
}

enum reel_status model_handle_start(struct reel_model *handle, const struct backend_ops *ops,
                                    const struct backend_options *options, struct reel_error *err) {
    handle->process = getpid();
    handle->max_token_bytes = longest_token(handle->model.tokenizer);
    enum reel_status status = find_identity(handle, err);
    if (status == REEL_OK) status = ops->open(&handle->backend, &handle->model, options, err);
    if (status != REEL_OK) return status;
    handle->ops = ops;
    handle->rounding = options->rounding;
    handle->kv = options->kv;
    ops->info(handle->backend, &handle->backend_info);
    const int most_columns = ops->step ? handle->backend_info.most_columns : 0;
    if (!handle->backend_info.shares)
        status = turns_open(&handle->turns, handle->backend_info.queues, err);
    if (status == REEL_OK && most_columns > 1)
        status = passes_open(&handle->passes, ops, handle->backend, handle->turns, most_columns,
                             (double)handle->backend_info.column_share, err);
    if (status != REEL_OK) model_handle_stop(handle);
    return status;
}

void model_handle_stop(struct reel_model *handle) {
    passes_close(handle->passes);
    if (handle->backend) handle->ops->close(handle->backend);
    turns_close(handle->turns);
    handle->backend = NULL;
    handle->turns = NULL;
    handle->passes = NULL;
}

enum reel_status model_tower_open(struct model_tower *t, const struct reel_model *handle,
                                  struct reel_error *err) {
    struct reel_error why;
    enum reel_status here = model_handle_is_here(handle, err);
    if (here != REEL_OK) return here;
    *t = (struct model_tower){ .handle = handle, .ops = handle->ops->tower };
    if (t->ops) {
        enum reel_status status = t->ops->open(&t->tower, &handle->model, handle->backend, &why);
        if (status == REEL_OK) return status;
        if (status != REEL_E_UNSUPPORTED) return err_set(err, status, "%s", why.text);
    }
    t->ops = &cpu_tower;
    return t->ops->open(&t->tower, &handle->model, NULL, err);
}

enum reel_status model_tower_run(const struct model_tower *t, const float *features, int n_frames,
                                 float *out, struct reel_error *err) {
    const bool beside = t->ops != t->handle->ops->tower; /* on the CPU, beside a GPU */
    struct turn turn = { 0 };
    enum reel_status status = model_handle_is_here(t->handle, err);
    if (status == REEL_OK) status = turn_take(&turn, beside ? NULL : t->handle->turns, NULL, err);
    if (status != REEL_OK) return status;
    status = t->ops->run(t->tower, features, n_frames, out, err);
    turn_give(&turn);
    return status;
}

void model_tower_close(struct model_tower *t) {
    if (t->ops) t->ops->close(t->tower);
    *t = (struct model_tower){ 0 };
}

enum reel_status model_floats_alloc(const struct reel_model *handle, float **out, size_t n,
                                    const char *what, struct reel_error *err) {
    void *host = NULL;
    if (!handle->ops->host_alloc) return mem_aligned(out, n, sizeof **out, what, err);
    enum reel_status status =
        handle->ops->host_alloc(handle->backend, &host, n * sizeof **out, what, err);
    *out = host;
    return status;
}

void model_floats_free(const struct reel_model *handle, float *floats) {
    if (handle->ops->host_free)
        handle->ops->host_free(handle->backend, floats);
    else
        mem_free(floats);
}
