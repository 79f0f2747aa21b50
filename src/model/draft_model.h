/* A draft layer (multi-token prediction, docs/MODEL_qwen35.md, or an EAGLE-3 head, draft_head.h) is
 * a model of one attention layer: its embeddings are made of hidden states and, of the former, of
 * an id. So whatever runs a model runs it. */
#ifndef REEL_MODEL_DRAFT_MODEL_H
#define REEL_MODEL_DRAFT_MODEL_H

#include "model/model_config.h"
#include "model/weights.h"

/* Only ids below this are guessed by MTP: a byte-level BPE numbers its merges from the most
 * frequent on, and a guess of Qwen3.5-0.8B reads 87 million weights so, 274 million with all of the
 * output matrix. */
enum { DRAFT_IDS = 1 << 16 };

struct draft_model {
    struct model_config config;
    struct weights weights; /* its `draft` has what makes embeddings */
    struct layer_weights layer;
};

/* What a session's layer has of its positions: from `first` on slots, its keys and values, and
 * behind them positions that are known, of which slots can be made. */
struct draft_span {
    int first, n_slots, n_known;
};
int draft_span_end(const struct draft_span *span); /* the position behind all */
/* Forgets positions from `position` on, and all where some before it are not known. A slot keeps
 * the id that was behind it: where that has changed, guesses are a little worse. */
void draft_span_go_to(struct draft_span *span, int position);
/* The known positions are slots now. */
void draft_span_made(struct draft_span *span);

/* config and weights, which have a draft layer, are borrowed. */
void draft_model_fill(struct draft_model *d, const struct model_config *config,
                      const struct weights *weights);

#endif
