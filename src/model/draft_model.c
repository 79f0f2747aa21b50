#include "model/draft_model.h"

#include <string.h>

void draft_model_fill(struct draft_model *d, const struct model_config *config,
                      const struct weights *weights) {
    const struct draft_weights *draft = &weights->draft;
    const bool head = draft->kind == DRAFT_EAGLE3;
    d->config = head ? *draft->config : *config;
    d->config.n_layers = 1;
    d->config.n_draft_layers = 0;
    if (!head && d->config.vocab > DRAFT_IDS) d->config.vocab = DRAFT_IDS;
    d->config.is_draft = true;
    d->config.given_biases = head;
    d->config.layer_kinds[0] = LAYER_ATTENTION;
    memset(&d->config.delta, 0, sizeof d->config.delta);
    d->layer = draft->layer;
    d->weights = (struct weights){ .embedding = draft->embedding.rows ? draft->embedding
                                                                      : weights->embedding,
                                   .final_norm = draft->norm,
                                   .head = head ? draft->head : weights->head,
                                   .layers = &d->layer,
                                   .n_layers = 1,
                                   .draft = *draft };
    d->weights.head.rows = d->config.vocab;
}

int draft_span_end(const struct draft_span *span) {
    return span->first + span->n_slots + span->n_known;
}

void draft_span_go_to(struct draft_span *span, int position) {
    const int behind = position - span->first - span->n_slots; /* the slots */
    if (position < span->first || position > draft_span_end(span))
        *span = (struct draft_span){ .first = position };
    else if (behind >= 0)
        span->n_known = behind;
    else
        span->n_slots += behind, span->n_known = 0;
}

void draft_span_made(struct draft_span *span) {
    span->n_slots += span->n_known;
    span->n_known = 0;
}
