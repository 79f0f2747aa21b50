/* What a checkpoint says of embedding with it: sentence-transformers' files beside the model, or
 * the metadata of a GGUF file. */
#ifndef REEL_MODEL_EMBED_CONFIG_H
#define REEL_MODEL_EMBED_CONFIG_H

#include "model/gguf.h"
#include "model/model_source.h"

/* A text before what is embedded, "Instruct: ...\nQuery:" under the name "query". */
struct embed_prompt {
    char *name, *text;
};

struct embed_config {
    bool stated;   /* the checkpoint was made for embedding */
    char *refused; /* why reel does not embed with it, a line; NULL: it does */
    struct embed_prompt *prompts;
    int n_prompts;
    int default_prompt; /* -1: none */
};

/* gguf is NULL for a folder. A way of pooling that reel does not know is no failure to load: the
 * model still runs. */
enum reel_status embed_config_load(struct embed_config *config, const struct model_source *source,
                                   const struct gguf *gguf, struct reel_error *err);
void embed_config_release(struct embed_config *config);

/* REEL_E_UNSUPPORTED with what was refused. */
enum reel_status embed_config_allows(const struct embed_config *config, struct reel_error *err);

#endif
