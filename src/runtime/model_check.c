/* reel_model_check: the judgement of opening a model without its weights. It asks the readers that
 * opening asks, in the same order, so that there is no second opinion on what reel runs. */
#include "model/chat_template.h"
#include "model/embed_config.h"
#include "model/model_config.h"
#include "model/quant_config.h"
#include "model/stop_ids.h"
#include "model/tokenizer.h"
#include "model/weights.h"

static enum reel_status check_texts(struct model_config *config, const struct model_source *source,
                                    const struct gguf *gguf, struct reel_error *err) {
    struct reel_tokenizer *tok = NULL;
    struct chat_template chat = { 0 };
    struct embed_config embed = { 0 };
    enum reel_status status = tokenizer_load(&tok, source, gguf, NULL, err);
    if (status == REEL_OK) status = stop_ids_add_tokenizers(config, source, tok, err);
    if (status == REEL_OK) status = chat_template_load(&chat, source, gguf, NULL, NULL, err);
    if (status == REEL_OK) status = embed_config_load(&embed, source, gguf, err);
    embed_config_release(&embed);
    chat_template_release(&chat);
    tokenizer_close(tok);
    return status;
}

static enum reel_status check_folder(const struct model_source *source, struct reel_error *err) {
    struct model_config config;
    struct quant_config *quant = NULL;
    enum reel_status status = model_config_read(&config, source, err);
    if (status == REEL_OK) status = quant_config_read(&quant, source, err);
    quant_config_free(quant);
    bool has_tokenizer = model_source_has(source, "tokenizer.json") ||
                         model_source_has(source, "tokenizer.model") ||
                         model_source_has(source, "vocab.json");
    if (status != REEL_OK || !has_tokenizer) return status;
    return check_texts(&config, source, NULL, err);
}

static enum reel_status check_gguf(const struct model_source *source, bool *complete,
                                   struct reel_error *err) {
    struct gguf gguf;
    struct tensor_file file;
    struct model_config config;
    struct weights weights = { 0 };
    enum reel_status status = gguf_open_head(&gguf, &file, source, complete, err);
    if (status != REEL_OK) return status;
    if (!*complete) {
        if (gguf_find(&gguf, "general.architecture")) status = model_config_gguf_family(&gguf, err);
    } else {
        status = model_config_from_gguf(&config, &gguf, &file, err);
        if (status == REEL_OK) status = weights_check(&weights, &config, &file, true, err);
        if (status == REEL_OK) status = check_texts(&config, source, &gguf, err);
    }
    weights_release(&weights);
    tensor_file_release(&file);
    gguf_release(&gguf);
    return status;
}

enum reel_status reel_model_check(const char *name, const struct reel_memory_file *files,
                                  int n_files, bool *complete, struct reel_error *err) {
    bool whole = true;
    struct model_source source;
    enum reel_status status = err_if_null(err, "name files", (const void *const[]){ name, files });
    if (status != REEL_OK) return status;
    status = model_source_open_memory(&source, name, files, n_files, err);
    if (status == REEL_OK)
        status = source.is_gguf ? check_gguf(&source, &whole, err) : check_folder(&source, err);
    model_source_release(&source);
    if (complete) *complete = whole;
    if (status == REEL_OK) err_clear(err);
    return status;
}
