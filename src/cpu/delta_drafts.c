#include "cpu/delta_drafts.h"

#include <string.h>

static int key_head_of(const struct model_config *c, int head) {
    return head / (c->delta.value_heads / c->delta.key_heads);
}

/* Of one draft. What it answers goes to `out`, f32 [value_dim]. */
static struct delta_rows kept_row(const struct engine *e, const struct recurrent *r, int layer,
                                  int i, int head, float *out) {
    const struct model_config *c = e->config;
    const int dim = r->key_dim, keys = c->delta.key_heads * dim;
    const float *row = recurrent_draft_row(r, layer, i), *gates = row + r->channels;
    return (struct delta_rows){ .q = row + key_head_of(c, head) * dim,
                                .k = row + keys + key_head_of(c, head) * dim,
                                .v = row + 2 * keys + head * r->value_dim,
                                .b = gates + head,
                                .a = gates + r->n_heads + head,
                                .out = out };
}

/* Columns of a head's state take drafts [from, to). */
static void pay_columns(const struct engine *e, const struct recurrent *r, int layer,
                        const struct delta_head *h, int head, int from, int to, struct piece p) {
    float unheard[MODEL_MAX_HEAD_DIM];
    for (int i = from; i < to; i++) {
        const struct delta_rows row = kept_row(e, r, layer, i, head, unheard);
        delta_decode(h, &row, p.first, p.last - p.first);
    }
}

void delta_drafts_run(const struct engine_run *run, const struct layer_weights *layer, int head,
                      int first, int n, float *scratch) {
    const struct engine *e = run->engine;
    const struct delta_head h = engine_delta_head(e, run->recurrent, layer, head);
    const struct delta_rows row = engine_delta_rows(e, run->row, head);
    pay_columns(e, run->recurrent, layer->nth, &h, head, 0, run->recurrent->n_owed,
                (struct piece){ first, first + n });
    delta_decode(&h, &row, first, n);
    if (run->n_drafts == 0) return;
    const struct delta_rows drafts = engine_delta_rows(e, run->row + 1, head);
    delta_try(&h, &drafts, run->n_drafts, first, n, scratch);
}

void delta_drafts_note(const struct engine_run *column, const struct layer_weights *layer) {
    const struct engine *e = column->engine;
    const struct recurrent *r = column->recurrent;
    const struct delta_rows first = engine_delta_rows(e, column->row, 0);
    float *row = recurrent_draft_row(r, layer->nth, column->nth_draft - 1);
    memcpy(row, first.q, (size_t)r->channels * sizeof *row);
    memcpy(row + r->channels, first.b, (size_t)r->n_heads * sizeof *row);
    memcpy(row + r->channels + r->n_heads, first.a, (size_t)r->n_heads * sizeof *row);
}

void delta_drafts_move(const struct recurrent *r, int layer, float *window, int n_owed, int first,
                       int n) {
    const size_t channels = (size_t)r->channels;
    for (int j = 0; n_owed > 0 && j < r->window; j++) {
        const int from = j + n_owed;
        memmove(window + (size_t)j * channels + first,
                from < r->window ? window + (size_t)from * channels + first
                                 : recurrent_draft_input(r, layer, from - r->window) + first,
                (size_t)n * sizeof *window);
    }
}

/* `values`, a state before draft `from`, becomes that before draft `to`. Inputs of a window are
 * those of all drafts before, so it moves when the last of them are paid. */
static void pay(const struct engine *e, const struct recurrent *r, float *values, int from,
                int to) {
    for (int l = 0; l < e->config->n_layers; l++) {
        const struct layer_weights *layer = &e->weights->layers[l];
        if (layer->kind != LAYER_DELTA) continue;
        float *of_layer = recurrent_layer(r, values, layer->nth);
        for (int head = 0; head < r->n_heads; head++) {
            struct delta_head h = engine_delta_head(e, r, layer, head);
            h.state = recurrent_matrix(r, of_layer, head);
            for (int at = 0; at < r->value_stride; at += DELTA_COLUMNS)
                pay_columns(e, r, layer->nth, &h, head, from, to,
                            (struct piece){ at, r->value_stride - at < DELTA_COLUMNS
                                                    ? r->value_stride
                                                    : at + DELTA_COLUMNS });
        }
        float *window = recurrent_window(r, of_layer);
        for (int i = from; i < to; i++) {
            const size_t channels = (size_t)r->channels, kept = (size_t)(r->window - 1) * channels;
            memmove(window, window + channels, kept * sizeof *window);
            memcpy(window + kept, recurrent_draft_input(r, layer->nth, i),
                   channels * sizeof *window);
        }
    }
}

void delta_drafts_keep(const struct engine *e, struct recurrent *r, int n) {
    if (n == 0 || r->n_layers == 0) return;
    const int before = r->positions.n_positions;
    const int checkpoint = (before + n) / CHECKPOINT_STEP * CHECKPOINT_STEP;
    recurrent_owe(r, n);
    if (checkpoint <= before) return;
    pay(e, r, r->live, 0, checkpoint - before);
    recurrent_keep_live(r, checkpoint);
    pay(e, r, r->live, checkpoint - before, n);
    recurrent_paid(r, n);
}

void delta_drafts_pay(const struct engine *e, struct recurrent *r, int position) {
    const int n = recurrent_owed_before(r, position);
    if (n == 0) return;
    pay(e, r, r->live, 0, n);
    recurrent_paid(r, n);
}

void delta_drafts_pay_copy(const struct engine *e, const struct recurrent *r, int position,
                           float *values) {
    pay(e, r, values, 0, recurrent_owed_before(r, position));
}
