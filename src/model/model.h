/* An opened model: config, weights, tokenizer and chat template of one checkpoint, plus the backend
 * that runs it. Immutable after model_open. */
#ifndef REEL_MODEL_MODEL_H
#define REEL_MODEL_MODEL_H

#include "model/chat_template.h"
#include "model/draft_head.h"
#include "model/embed_config.h"
#include "model/model_config.h"
#include "model/tensor_file.h"
#include "model/tokenizer.h"
#include "model/weights_quantize.h"

struct model {
    char *name; /* from the file, or the last part of its path */
    struct model_source source;
    struct gguf gguf; /* zeroed for safetensors */
    struct model_config config;
    struct tensor_file tensors;
    struct weights weights;
    struct draft_head head; /* EAGLE-3, which weights.draft is then of; zeroed without */
    struct reel_tokenizer *tokenizer;
    struct chat_template chat;
    struct embed_config embed;
};

struct model_load_options {
    const char *chat_template, *chat_template_from;
    const char *cache_dir;
    enum weight_form weights; /* what wide matrices become */
    const char *draft_head;   /* the folder of an EAGLE-3 head; NULL: none */
    int n_threads;            /* that make them so; 0: one per core */
    reel_progress_fn progress;
    void *progress_user;
};

/* Takes over `source` (and zeroes it), also when it fails. */
enum reel_status model_load(struct model *model, struct model_source *source,
                            const struct model_load_options *options, struct reel_error *err);
void model_release(struct model *model);

#endif
