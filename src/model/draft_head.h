/* An EAGLE-3 head: a draft layer in a folder of its own (safetensors), trained for one model. It
 * sees the model's hidden states of three layers and guesses among the ids that are most frequent.
 * What it computes: docs/SPECULATION.md, "EAGLE-3". Facts of the format: arXiv 2503.01840, and the
 * files that SpecForge, AngelSlim and the EAGLE authors publish. */
#ifndef REEL_MODEL_DRAFT_HEAD_H
#define REEL_MODEL_DRAFT_HEAD_H

#include "model/weights.h"

struct draft_head {
    struct model_source source;
    struct tensor_file tensors;
    struct model_config config; /* of its one layer; vocab: the ids that it guesses among */
    void *owned;                /* norms as f32, then the ids */
};

/* Reads the head for a model of this config, and makes `draft` what the model's guesses come from;
 * what it names is borrowed from `head`, which must stay where it is. Takes over `source` (and
 * zeroes it), also when it fails. Errors name the file and what is allowed: another architecture, a
 * tensor that is missing or has another shape, ids that the model does not have. */
enum reel_status draft_head_open(struct draft_head *head, struct draft_weights *draft,
                                 struct model_source *source, const struct model_config *model,
                                 struct reel_error *err);
void draft_head_release(struct draft_head *head);

#endif
