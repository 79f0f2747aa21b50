/* What is known of positions lies in `hidden` and `ids`, the oldest first: position i of the list
 * is the session's span.first + span.n_slots + i. A slot needs the id of the position behind it, so
 * the last known position waits for that. */
#include "cpu/draft_layer.h"

#include "base/memory.h"

#include <string.h>

enum {
    WAITING = MOST_COLUMNS, /* known positions that wait for a guess; more become slots at once */
    KNOWN = T_CHUNK + WAITING
};

struct draft_layer {
    struct draft_model model;
    struct engine engine;
    size_t hidden; /* floats that are known of a position */
};

struct draft_state {
    struct draft_layer *layer; /* borrowed */
    struct kv_cache kv;        /* slot i is that of position span.first + i */
    int max_positions;
    struct draft_span span;
    float *hidden; /* f32 [KNOWN, the layer's hidden] */
    float *inputs; /* f32 [KNOWN, hidden] of slots that are being made */
    float *biases; /* f32 [KNOWN, projected_dim] likewise, of EAGLE-3; NULL: of others */
    float *logits; /* f32 [vocab] */
    float *told;   /* f32 [hidden] what the layer makes of the last slot, for the next one */
    int32_t ids[KNOWN + 1];
};

enum reel_status draft_layer_open(struct draft_layer **out, const struct model_config *config,
                                  const struct weights *weights, const struct engine *engine,
                                  struct reel_error *err) {
    struct draft_layer *l = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&l, 1, sizeof *l, "the draft layer", err);
    if (status != REEL_OK) return status;
    draft_model_fill(&l->model, config, weights);
    l->hidden = (size_t)config->hidden * (weights->draft.kind == DRAFT_EAGLE3 ? DRAFT_TAPS : 1);
    status = engine_open_draft(&l->engine, &l->model.config, &l->model.weights, engine, err);
    if (status == REEL_OK)
        *out = l;
    else
        draft_layer_close(l);
    return status;
}

void draft_layer_close(struct draft_layer *l) {
    if (!l) return;
    engine_release(&l->engine);
    mem_free(l);
}

enum reel_status draft_state_open(struct draft_state **out, struct draft_layer *layer,
                                  int max_positions, struct reel_error *err) {
    const size_t hidden = (size_t)layer->model.config.hidden;
    const bool head = layer->model.weights.draft.kind == DRAFT_EAGLE3;
    struct draft_state *d = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&d, 1, sizeof *d, "a draft layer's state", err);
    if (status != REEL_OK) return status;
    d->layer = layer;
    d->max_positions = max_positions;
    status = kv_cache_open(&d->kv, &layer->engine.kv_shape, max_positions, err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->hidden, KNOWN * layer->hidden + (KNOWN + 1) * hidden,
                            sizeof *d->hidden, "hidden states for drafts", err);
    if (status == REEL_OK && head)
        status = mem_zeroed(&d->biases, KNOWN * (size_t)layer->engine.projected_dim,
                            sizeof *d->biases, "what ids add to drafts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->logits, (size_t)layer->model.config.vocab, sizeof *d->logits,
                            "logits of drafts", err);
    if (status != REEL_OK) {
        draft_state_close(d);
        return status;
    }
    d->inputs = d->hidden + KNOWN * layer->hidden;
    d->told = d->inputs + KNOWN * hidden;
    *out = d;
    return REEL_OK;
}

void draft_state_close(struct draft_state *d) {
    if (!d) return;
    kv_cache_release(&d->kv);
    mem_free(d->hidden);
    mem_free(d->biases);
    mem_free(d->logits);
    mem_free(d);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Of at most MOST_COLUMNS slots. */
struct inputs {
    struct engine *e;
    const int32_t *ids;  /* [n] behind the positions */
    const float *hidden; /* [n, what is known of a position], or what the layer told of one */
    int n;
    bool told;
    float *out;    /* [n, hidden] */
    float *biases; /* [n, projected_dim], EAGLE-3's */
};

/* A product of all slots' vectors, each of `length`; its results are out [n], stride apart. */
struct input_product {
    const struct matrix *m;
    float *out;
    size_t stride;
};

/* One phase: slot i's vector for products. */
typedef void make_input_vector(const struct inputs *in, struct worker *w, int i);

static void take_vector(const struct inputs *in, const float *values, int i, int length) {
    struct engine *e = in->e;
    e->kernels.round_vector(values, length, &e->vectors[i]);
    if (in->n > 1) e->kernels.spread_column(&e->vectors[i], length, &e->columns, i);
}

/* values [hidden] = the id's embedding, normed */
static void norm_embedding(const struct inputs *in, int i, float *scratch, float *values) {
    const struct engine *e = in->e;
    const struct matrix *embedding = &e->weights->embedding;
    if (embedding->planes)
        e->kernels.planes_widen(embedding, in->ids[i], 0, embedding->columns, scratch);
    else
        matrix_row_f32(embedding, in->ids[i], scratch);
    e->kernels.norm(scratch, e->draft->embedding_norm, e->config->hidden, e->config->rms_eps,
                    values);
}

static void make_both(const struct inputs *in, struct worker *w, int i) {
    struct engine *e = in->e;
    const size_t hidden = (size_t)e->config->hidden;
    norm_embedding(in, i, in->out + (size_t)i * hidden, w->values);
    e->kernels.norm(in->hidden + (size_t)i * hidden, e->draft->hidden_norm, (int)hidden,
                    e->config->rms_eps, w->values + hidden);
    take_vector(in, w->values, i, 2 * (int)hidden);
}

static void make_embedding(const struct inputs *in, struct worker *w, int i) {
    const int hidden = in->e->config->hidden;
    norm_embedding(in, i, w->values + hidden, w->values);
    take_vector(in, w->values, i, hidden);
}

static void make_taps(const struct inputs *in, struct worker *w, int i) {
    const int length = in->e->draft->fc.columns;
    (void)w;
    take_vector(in, in->hidden + (size_t)i * (size_t)length, i, length);
}

/* Leaves the last product's phase open. False as thread_pool_barrier. */
static bool multiply_inputs(const struct inputs *in, struct worker *w, make_input_vector *make,
                            const struct input_product *all, int n_products) {
    struct engine *e = in->e;
    for (int i; (i = thread_pool_take(e->pool, w->thread, in->n)) >= 0;)
        make(in, w, i);
    for (int k = 0; k < n_products; k++) {
        if (!thread_pool_barrier(e->pool, w->thread)) return false;
        const struct matrix *m = all[k].m;
        float *y[MOST_COLUMNS];
        for (int i = 0; i < in->n; i++)
            y[i] = all[k].out + (size_t)i * all[k].stride;
        struct row_pieces p = engine_row_pieces(e, m->rows, m->row_bytes * (size_t)in->n);
        while (engine_take_rows(e, w, &p)) {
            if (in->n == 1)
                kernels_rows(&e->kernels, m, &e->vectors[0], p.piece.first, p.piece.last, y[0]);
            else
                kernels_columns(&e->kernels, m, &e->columns, p.piece.first, p.piece.last, y);
        }
    }
    return true;
}

static void inputs_region(void *user, int thread, int n_threads) {
    const struct inputs *in = user;
    struct engine *e = in->e;
    struct worker *w = &e->workers[thread];
    const struct draft_weights *d = e->draft;
    const size_t width = (size_t)e->projected_dim;
    const struct input_product fc = { &d->fc, in->out, (size_t)e->config->hidden };
    (void)n_threads;
    while (thread_pool_take(e->pool, thread, 1) >= 0) {
        e->columns.n = in->n;
        e->columns.slots = (in->n + 1) & ~1;
        if (in->told) memcpy(in->out, in->hidden, fc.stride * sizeof(float));
    }
    if (!thread_pool_barrier(e->pool, thread)) return;
    if (d->kind == DRAFT_MTP) {
        multiply_inputs(in, w, make_both, &fc, 1);
        return;
    }
    const struct input_product of_id[] = {
        { &d->id_q, in->biases, width },
        { &d->id_k, in->biases + d->id_q.rows, width },
        { &d->id_v, in->biases + d->id_q.rows + d->id_k.rows, width },
    };
    if (!multiply_inputs(in, w, make_embedding, of_id, 3) || in->told) return;
    if (thread_pool_barrier(e->pool, thread)) multiply_inputs(in, w, make_taps, &fc, 1);
}

/* told: `hidden` is what the layer made of the slot before, n is 1. */
static void make_inputs(struct draft_state *d, const int32_t *ids, const float *hidden, int n,
                        bool told) {
    const struct draft_layer *l = d->layer;
    const size_t width = (size_t)l->model.config.hidden;
    for (int i = 0; i < n; i += MOST_COLUMNS) {
        struct inputs in = { .e = &d->layer->engine,
                             .ids = ids + i,
                             .hidden = hidden + (size_t)i * l->hidden,
                             .n = n - i < MOST_COLUMNS ? n - i : MOST_COLUMNS,
                             .told = told && d->biases,
                             .out = d->inputs + (size_t)i * width };
        if (d->biases) in.biases = d->biases + (size_t)i * (size_t)l->engine.projected_dim;
        thread_pool_run(in.e->pool, inputs_region, &in);
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static struct engine_run run_of(struct draft_state *d, int slot, int n) {
    return (struct engine_run){ .engine = &d->layer->engine,
                                .kv = &d->kv,
                                .position = slot,
                                .n = n,
                                .rotation_offset = d->span.first,
                                .embeddings = d->inputs,
                                .biases = d->biases,
                                .output = REEL_OUTPUT_NONE };
}

/* The first n known positions become slots: their keys and values alone. */
static void make_slots(struct draft_state *d, int n) {
    const size_t width = (size_t)d->layer->model.config.hidden;
    make_inputs(d, d->ids + 1, d->hidden, n, false);
    kv_cache_begin(&d->kv, d->span.n_slots, d->span.n_slots + n);
    for (int i = 0; i < n;) {
        const int some = n - i < T_CHUNK ? n - i : T_CHUNK;
        struct engine_run run = run_of(d, d->span.n_slots, some);
        run.embeddings += (size_t)i * width;
        if (run.biases) run.biases += (size_t)i * (size_t)run.engine->projected_dim;
        engine_evaluate(&run);
        d->span.n_slots += some;
        i += some;
    }
    d->span.n_known -= n;
    memmove(d->hidden, d->hidden + (size_t)n * d->layer->hidden,
            (size_t)d->span.n_known * d->layer->hidden * sizeof(float));
    memmove(d->ids, d->ids + n, (size_t)d->span.n_known * sizeof *d->ids);
}

/* Slots of the n inputs from `slot` on; logits and `told` are those of the last. */
static void run_slots(struct draft_state *d, int slot, int n) {
    struct engine_run columns[MOST_COLUMNS];
    kv_cache_begin(&d->kv, slot, slot + n);
    for (int i = 0; i < n; i++) {
        columns[i] = run_of(d, slot + i, 1);
        columns[i].row = i;
        columns[i].embeddings += (size_t)i * (size_t)d->layer->model.config.hidden;
        if (d->biases) columns[i].biases += (size_t)i * (size_t)d->layer->engine.projected_dim;
    }
    columns[n - 1].output = REEL_OUTPUT_LAST_LOGITS;
    columns[n - 1].out = d->logits;
    columns[n - 1].hidden = d->told;
    engine_decode(&(struct engine_pass){
        .columns = columns, .n = n, .consecutive = n > 1, .last_only = true });
}

/* ---- following a session --------------------------------------------------------------------- */

void draft_state_forget(struct draft_state *d) { d->span = (struct draft_span){ 0 }; }

void draft_state_keep(struct draft_state *d, int n) {
    if (n >= draft_span_end(&d->span)) return;
    draft_span_go_to(&d->span, n);
    kv_cache_keep(&d->kv, d->span.n_slots);
}

float *draft_state_hidden(struct draft_state *d, int position) {
    draft_span_go_to(&d->span, position);
    return d->hidden + (size_t)d->span.n_known * d->layer->hidden;
}

size_t draft_state_width(const struct draft_state *d) { return d->layer->hidden; }

void draft_state_saw(struct draft_state *d, int position, const int32_t *ids, int n_kept) {
    if (!ids) {
        draft_span_go_to(&d->span, position + n_kept);
        return;
    }
    memcpy(d->ids + d->span.n_known, ids, (size_t)n_kept * sizeof *ids);
    d->span.n_known += n_kept;
    if (d->span.n_known > WAITING) make_slots(d, d->span.n_known - 1);
}

static int32_t likeliest(const float *logits, int n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

int draft_state_guess(struct draft_state *d, int position, int32_t id, int32_t *ids, int most,
                      float *logits) {
    const int vocab = d->layer->model.config.vocab;
    if (d->span.n_known == 0 || draft_span_end(&d->span) != position) return 0;
    d->ids[d->span.n_known] = id;
    const int32_t *model_ids = d->layer->model.weights.draft.ids;
    make_inputs(d, d->ids + 1, d->hidden, d->span.n_known, false);
    run_slots(d, d->span.n_slots, d->span.n_known);
    draft_span_made(&d->span);
    for (int i = 0; i < most; i++) {
        if (i > 0) {
            make_inputs(d, &ids[i - 1], d->told, 1, true);
            run_slots(d, d->span.n_slots + i - 1, 1);
        }
        ids[i] = likeliest(d->logits, vocab);
        if (model_ids) ids[i] = model_ids[ids[i]];
    }
    if (logits) memcpy(logits, d->logits, (size_t)vocab * sizeof *logits);
    return most;
}
