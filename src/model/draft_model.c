#include "model/draft_model.h"

#include <string.h>

void draft_model_fill(struct draft_model *d, const struct model_config *config,
                      const struct weights *weights) {
    d->config = *config;
    d->config.n_layers = 1;
    d->config.n_draft_layers = 0;
    if (d->config.vocab > DRAFT_IDS) d->config.vocab = DRAFT_IDS;
    d->config.layer_kinds[0] = LAYER_ATTENTION;
    memset(&d->config.delta, 0, sizeof d->config.delta);
    d->layer = weights->draft.layer;
    d->weights = (struct weights){ .embedding = weights->embedding,
                                   .final_norm = weights->draft.norm,
                                   .head = weights->head,
                                   .layers = &d->layer,
                                   .n_layers = 1,
                                   .draft = weights->draft };
    d->weights.head.rows = d->config.vocab;
}
