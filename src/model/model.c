/* Opening a checkpoint: each part reads its own files, in an order that reports the most telling
 * problem first: an unsupported architecture before its unknown tensors or tokenizer. */
#include "model/model.h"

#include "base/memory.h"
#include "model/safetensors.h"
#include "model/stop_ids.h"

#include <string.h>

/* "Qwen3-0.6B" of "/models/Qwen3-0.6B/", "SmolLM2" of "SmolLM2.gguf" */
static enum reel_status name_from_path(char **name, const char *path, struct reel_error *err) {
    static const char suffix[] = ".gguf";
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    size_t n = end - start, m = sizeof suffix - 1;
    if (n > m && memcmp(path + end - m, suffix, m) == 0) n -= m;
    return mem_text(name, path + start, n, "the model's name", err);
}

static bool printable(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return true;
}

static enum reel_status read_name(struct model *model, struct reel_error *err) {
    const char *text = NULL;
    size_t n = 0;
    enum reel_status status = gguf_get_text(&model->gguf, "general.name", false, &text, &n, err);
    if (status != REEL_OK) return status;
    if (n > 0 && n < 256 && printable(text, n))
        return mem_text(&model->name, text, n, "the model's name", err);
    return name_from_path(&model->name, model->source.path, err);
}

static enum reel_status report(const struct model_load_options *options, const char *stage,
                               struct reel_error *err) {
    if (!options->progress || options->progress(options->progress_user, stage, 0, 0))
        return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled while %s", stage);
}

static enum reel_status read_config_and_tensors(struct model *model, struct reel_error *err) {
    struct model_source *source = &model->source;
    if (!source->is_gguf) {
        enum reel_status status = model_config_read(&model->config, source, err);
        if (status == REEL_OK) status = safetensors_open(&model->tensors, source, err);
        return status == REEL_OK ? quant_config_read(&model->tensors.quant, source, err) : status;
    }
    enum reel_status status = gguf_open(&model->gguf, &model->tensors, source, err);
    if (status != REEL_OK) return status;
    return model_config_from_gguf(&model->config, &model->gguf, &model->tensors, err);
}

static enum reel_status narrow(struct model *model, const struct model_load_options *options,
                               struct reel_error *err) {
    const struct quantize_options how = { .form = options->weights,
                                          .n_threads = options->n_threads,
                                          .progress = options->progress,
                                          .progress_user = options->progress_user,
                                          .name = model->source.path };
    if (how.form == WEIGHTS_STORED) return REEL_OK;
    return weights_quantize(&model->weights, &how, err);
}

static enum reel_status read_head(struct model *model, const struct model_load_options *options,
                                  struct reel_error *err) {
    struct model_source source;
    enum reel_status status = model_source_open(&source, options->draft_head, err);
    if (status != REEL_OK) return status;
    return draft_head_open(&model->head, &model->weights.draft, &source, &model->config, err);
}

enum reel_status model_load(struct model *model, struct model_source *source,
                            const struct model_load_options *options, struct reel_error *err) {
    *model = (struct model){ .source = *source };
    *source = (struct model_source){ 0 }; /* the model's now, also when loading fails */
    const struct gguf *gguf = model->source.is_gguf ? &model->gguf : NULL;
    enum reel_status status = report(options, "reading the model", err);
    if (status == REEL_OK) status = read_config_and_tensors(model, err);
    if (status == REEL_OK)
        status = weights_map(&model->weights, &model->config, &model->tensors,
                             model->source.is_gguf, err);
    if (status == REEL_OK) status = narrow(model, options, err);
    if (status == REEL_OK && options->draft_head) status = read_head(model, options, err);
    if (status == REEL_OK) status = read_name(model, err);
    if (status == REEL_OK) status = report(options, "reading the tokenizer", err);
    if (status == REEL_OK)
        status = tokenizer_load(&model->tokenizer, &model->source, gguf, options->cache_dir, err);
    if (status == REEL_OK)
        status = stop_ids_add_tokenizers(&model->config, &model->source, model->tokenizer, err);
    if (status == REEL_OK)
        status = chat_template_load(&model->chat, &model->source, gguf, options->chat_template,
                                    options->chat_template_from, err);
    if (status == REEL_OK) status = embed_config_load(&model->embed, &model->source, gguf, err);
    if (status != REEL_OK) model_release(model);
    return status;
}

void model_release(struct model *model) {
    if (!model) return;
    embed_config_release(&model->embed);
    chat_template_release(&model->chat);
    tokenizer_close(model->tokenizer);
    draft_head_release(&model->head);
    weights_release(&model->weights);
    tensor_file_release(&model->tensors);
    gguf_release(&model->gguf);
    model_source_release(&model->source);
    mem_free(model->name);
    *model = (struct model){ 0 };
}
