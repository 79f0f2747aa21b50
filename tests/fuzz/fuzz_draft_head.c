/* An EAGLE-3 head for a small model: two bytes say how long its config.json is, which follows; the
 * rest is model.safetensors. Of what opens every matrix is read. */
#include "model/draft_head.h"

#include <stdlib.h>

enum { HIDDEN = 16, LAYERS = 8, VOCAB = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile float seen; /* keeps the reads below */

static void read_rows(const struct matrix *m) {
    float *row = malloc(((size_t)m->columns + 1) * sizeof *row);
    if (!row) return;
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, row);
    seen += row[m->columns - 1];
    free(row);
}

static void read_all(const struct draft_weights *d) {
    const struct layer_weights *l = &d->layer;
    const struct matrix *all[] = { &d->fc,   &d->id_q, &d->id_k,     &d->id_v, &l->q,
                                   &l->k,    &l->v,    &l->o,        &l->gate, &l->up,
                                   &l->down, &d->head, &d->embedding };
    const float *norms[] = { d->embedding_norm, d->hidden_norm, l->ffn_norm, d->norm };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->rows) read_rows(all[i]);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        seen += norms[i][HIDDEN - 1];
    for (int i = 0; i < d->head.rows; i++)
        if (d->ids[i] < 0 || d->ids[i] >= VOCAB) abort();
    for (int i = 0; i < DRAFT_TAPS; i++)
        if (d->taps[i] < 0 || d->taps[i] >= LAYERS) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const struct model_config model = { .family = MODEL_QWEN3,
                                               .hidden = HIDDEN,
                                               .n_layers = LAYERS,
                                               .vocab = VOCAB,
                                               .max_context = 64 };
    if (n < 2) return 0;
    const size_t config = data[0] | (size_t)data[1] << 8;
    if (n - 2 < config) return 0;
    const struct reel_memory_file files[] = {
        { "config.json", data + 2, config },
        { "model.safetensors", data + 2 + config, n - 2 - config },
    };
    struct model_source source;
    struct draft_head head;
    struct draft_weights draft = { 0 };
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", files, 2, &err) != REEL_OK) return 0;
    const enum reel_status status = draft_head_open(&head, &draft, &source, &model, &err);
    if (status == REEL_OK) read_all(&draft);
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    draft_head_release(&head);
    return 0;
}
