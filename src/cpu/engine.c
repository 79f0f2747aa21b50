/* Memory of the engine, and what decode.c and prefill.c share. */
#include "cpu/engine.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cpu/delta_drafts.h"
#include "cpu/reference.h"

#include <math.h>
#include <string.h>

/* The smallest piece: whole cache lines of float32 results, and enough bytes of weights that taking
 * it costs little beside it. */
#define T_PIECE_ROWS  16
#define T_PIECE_BYTES (32 << 10)

#define LINE_ELEMENTS 32 /* bf16 of a cache line */
_Static_assert(VECTOR_PAD % (2 * LINE_ELEMENTS) == 0, "a padded row is an even number of lines");

static void place_vector(struct cpu_vector *v, size_t padded, struct carver *c) {
    for (int term = 0; term < 2; term++)
        v->bf16[term] = carve(c, padded, sizeof(uint16_t));
    v->values = carve(c, padded, sizeof(float));
    v->sums = carve(c, padded / BLOCK, sizeof(float));
    v->digits = carve(c, 2 * padded, sizeof(int16_t));
    v->digit_sums = carve(c, padded / BLOCK, sizeof(float));
    v->blocks = carve(c, vector_blocks(padded), sizeof(struct cpu_block));
}

static void place_worker(struct engine *e, struct worker *w, struct carver *c) {
    size_t padded = e->row_stride;
    size_t dim = (size_t)e->config->head_dim, rows = (size_t)e->attention_rows;
    size_t width = (size_t)kv_cache_v_width(e->config->head_dim);
    place_vector(&w->vector, padded, c);
    w->values = carve(c, padded, sizeof(float));
    w->q = carve(c, rows * dim, sizeof(uint16_t));
    w->k = carve(c, dim, sizeof(uint16_t));
    w->v = carve(c, dim, sizeof(uint16_t));
    w->attention.out = carve(c, rows * width, sizeof(float));
    w->attention.max = carve(c, rows, sizeof(float));
    w->attention.sum = carve(c, rows, sizeof(float));
    w->attention.scores = carve(c, rows * ATTENTION_STEP, sizeof(float));
    w->attention.p = carve(c, rows * ATTENTION_STEP, sizeof(uint16_t));
    if (e->kv_shape.form != KV_BF16)
        w->attention.wide = carve(c, ATTENTION_STEP * width, sizeof(uint16_t));
    w->delta = carve(c, e->delta_floats, sizeof(float));
    float *tile = carve(c, tile_scratch_floats(T_CHUNK), sizeof(float));
    if (tile) tile_scratch_place(&w->tile, tile);
}

static void place_columns(struct engine *e, struct carver *c) {
    const struct model_config *config = e->config;
    const size_t width = (size_t)kv_cache_v_width(config->head_dim) + 2;
    e->y = carve(c, MOST_COLUMNS * (size_t)config->hidden, sizeof(float));
    e->gated = carve(c, MOST_COLUMNS * 2 * (size_t)config->intermediate, sizeof(float));
    e->partial =
        carve(c, MOST_COLUMNS * ATTENTION_SPLITS * (size_t)config->n_heads * width, sizeof(float));
    e->columns.vectors = e->vectors;
    e->columns.values = carve(c, MOST_COLUMNS * e->row_stride, sizeof(float));
    e->columns.sums = carve(c, COLUMN_SUMS * e->sums_stride, sizeof(float));
    e->columns.digit_sums = carve(c, COLUMN_SUMS * e->sums_stride, sizeof(float));
    e->columns.digits = carve(c, MOST_COLUMNS * 2 * e->row_stride, sizeof(int16_t));
    const size_t blocks = vector_blocks(e->row_stride);
    e->columns.bytes = carve(c, MOST_COLUMNS * 2 * BLOCK * blocks, sizeof(int8_t));
    e->columns.factors = carve(c, MOST_COLUMNS * 2 * blocks, sizeof(float));
    for (int i = 0; i < MOST_COLUMNS; i++)
        place_vector(&e->vectors[i], e->row_stride, c);
}

static void place(struct engine *e, struct carver *c) {
    const struct model_config *config = e->config;
    size_t hidden = (size_t)config->hidden;
    size_t half = (size_t)config->rotary_dim / 2, keys = (size_t)config->delta.key_dim;
    e->row_stride = ((size_t)e->longest + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    /* An odd number of cache lines: the same columns of many rows fall into all of its sets. */
    e->row_stride += LINE_ELEMENTS;
    e->sums_stride = e->row_stride / BLOCK;
    e->inv = carve(c, half, sizeof(float));
    e->q_scale = carve(c, keys, sizeof(float));
    e->k_scale = carve(c, keys, sizeof(float));
    e->x = carve(c, T_CHUNK * hidden, sizeof(float));
    e->cos = carve(c, T_CHUNK * half, sizeof(float));
    e->sin = carve(c, T_CHUNK * half, sizeof(float));
    e->projected = carve(c, T_CHUNK * (size_t)e->projected_dim, sizeof(float));
    e->mixed = carve(c, T_CHUNK * (size_t)e->mixed_dim, sizeof(float));
    place_columns(e, c);
    e->rows = carve(c, T_CHUNK * e->row_stride, sizeof(uint16_t));
    e->seconds = carve(c, T_CHUNK * e->row_stride, sizeof(uint16_t));
    e->factors = carve(c, tile_factors(e->row_stride, T_CHUNK), sizeof(float));
    e->gated_rows = carve(c, T_CHUNK * e->row_stride, sizeof(uint16_t));
    e->gated_seconds = carve(c, T_CHUNK * e->row_stride, sizeof(uint16_t));
    e->gated_factors = carve(c, tile_factors(e->row_stride, T_CHUNK), sizeof(float));
    e->queries = carve(c, T_CHUNK * (size_t)e->q_dim, sizeof(uint16_t));
    for (int i = 0; i < thread_pool_size(e->pool); i++)
        place_worker(e, &e->workers[i], c);
}

_Static_assert(RECURRENT_PAD % PANEL_LANES == 0, "kernels take a state's columns in whole panels");

static void measure(struct engine *e) {
    const struct model_config *c = e->config;
    const int delta = model_delta_channels(c) + model_delta_width(c) + 2 * c->delta.value_heads;
    e->mixed_dim = int_max(e->q_dim, model_delta_width(c));
    e->projected_dim = int_max(model_q_rows(c) + 2 * e->kv_dim, delta);
    e->longest = int_max(int_max(c->hidden, c->intermediate), e->mixed_dim);
    if (e->draft) e->longest = int_max(e->longest, e->draft->fc.columns);
    if (c->delta.key_dim)
        e->delta_floats = delta_scratch_floats(c->delta.key_dim, recurrent_value_stride(c));
}

static bool is_blocks(const struct matrix *m) {
    return m->planes || dtype_block_elements(m->dtype) > 1;
}

static bool has_blocks(const struct weights *w, const struct draft_weights *draft) {
    bool found = is_blocks(&w->head) || (draft && is_blocks(&draft->fc));
    for (int i = 0; i < w->n_layers; i++) {
        const struct layer_weights *l = &w->layers[i];
        const struct matrix *parts[MAX_PROJECTIONS];
        for (int n = engine_projections(l, parts); n > 0; n--)
            found = found || is_blocks(parts[n - 1]);
        found = found || is_blocks(&l->o) || is_blocks(&l->gate) || is_blocks(&l->up) ||
                is_blocks(&l->down);
    }
    return found;
}

static void describe(struct engine *e, const struct model_config *config,
                     const struct weights *weights, const struct kernels *kernels, enum kv_form kv,
                     const struct draft_weights *draft) {
    *e = (struct engine){
        .config = config,
        .weights = weights,
        .kernels = *kernels,
        .kv_shape = { .n_layers = model_layer_count(config, LAYER_ATTENTION),
                      .n_kv_heads = config->n_kv_heads,
                      .head_dim = config->head_dim,
                      .form = kv,
                      .given = kv == KV_FP8 ? weights->kv_scales : NULL },
        .q_dim = config->n_heads * config->head_dim,
        .kv_dim = config->n_kv_heads * config->head_dim,
        .group = config->n_heads / config->n_kv_heads,
        .q_step = config->head_dim * (config->gated_attention ? 2 : 1),
        .attention_scale = 1.0f / sqrtf((float)config->head_dim),
        .blocks = has_blocks(weights, draft),
        .draft = draft,
        .taps = !draft && weights->draft.kind == DRAFT_EAGLE3 ? weights->draft.taps : NULL,
        .hidden_is_x = draft && draft->kind == DRAFT_EAGLE3,
    };
    measure(e);
    e->attention_rows = e->group > 32 ? e->group : 32 / e->group * e->group;
}

/* An engine that has been described and has its pool. */
static enum reel_status take_memory(struct engine *e, struct reel_error *err) {
    const struct model_config *config = e->config;
    enum reel_status status = mem_zeroed(&e->workers, (size_t)thread_pool_size(e->pool),
                                         sizeof *e->workers, "workers", err);
    for (int i = 0; status == REEL_OK && i < thread_pool_size(e->pool); i++)
        e->workers[i].thread = i;
    struct carver carver = { 0 };
    if (status == REEL_OK) place(e, &carver);
    if (status == REEL_OK && carver.overflow) status = err_memory(err, "CPU scratch", SIZE_MAX);
    /* mem_zeroed: prefill's share stays untouched until a prompt comes. */
    if (status == REEL_OK) status = mem_zeroed(&e->memory, carver.used + 64, 1, "CPU scratch", err);
    if (status != REEL_OK) {
        engine_release(e);
        return status;
    }
    e->memory_bytes = carver.used;
    carver.block = (char *)(((uintptr_t)e->memory + 63) & ~(uintptr_t)63);
    carver.used = 0;
    place(e, &carver);
    model_rope_frequencies(config, e->inv);
    for (int i = 0; i < config->delta.key_dim; i++) {
        e->k_scale[i] = 1.0f / sqrtf((float)config->delta.key_dim);
        e->q_scale[i] = 1.0f / (float)config->delta.key_dim;
    }
    return REEL_OK;
}

/* The weights with panels, where the kernels want some. */
static enum reel_status pack_weights(struct engine *e, struct reel_error *err) {
    enum reel_status status =
        panel_weights_open(&e->packed, e->weights, e->kernels.from_panels, e->pool, err);
    if (status != REEL_OK) {
        engine_release(e);
        return status;
    }
    e->weights = &e->packed.weights;
    if (e->draft) e->draft = &e->weights->draft;
    return REEL_OK;
}

enum reel_status engine_open(struct engine *e, const struct model_config *config,
                             const struct weights *weights, const struct kernels *kernels,
                             enum kv_form kv, int n_threads, struct reel_error *err) {
    describe(e, config, weights, kernels, kv, NULL);
    enum reel_status status = thread_pool_open(&e->pool, n_threads, err);
    if (status == REEL_OK) status = pack_weights(e, err);
    return status == REEL_OK ? take_memory(e, err) : status;
}

enum reel_status engine_open_draft(struct engine *e, const struct model_config *config,
                                   const struct weights *weights, const struct engine *other,
                                   struct reel_error *err) {
    describe(e, config, weights, &other->kernels, other->kv_shape.form, &weights->draft);
    e->pool = other->pool;
    e->pool_is_lent = true;
    enum reel_status status = pack_weights(e, err);
    return status == REEL_OK ? take_memory(e, err) : status;
}

void engine_release(struct engine *e) {
    if (!e) return;
    if (!e->pool_is_lent) thread_pool_close(e->pool);
    panel_weights_close(&e->packed);
    mem_free(e->workers);
    mem_free(e->memory);
    *e = (struct engine){ 0 };
}

void engine_evaluate(struct engine_run *run) {
    run->cancelled = false;
    if (run->n == 1 && !run->texts)
        engine_decode(&(struct engine_pass){ .columns = run, .n = 1 });
    else
        thread_pool_run(run->engine->pool, prefill_region, run);
}

void engine_decode(struct engine_pass *pass) {
    thread_pool_run(pass->columns->engine->pool, decode_region, pass);
}

void engine_enter(const struct engine_run *run, int i, int position) {
    const struct engine *e = run->engine;
    size_t hidden = (size_t)e->config->hidden, half = (size_t)e->config->rotary_dim / 2;
    const size_t row = (size_t)(run->row + i);
    float *x = e->x + row * hidden;
    const struct matrix *embedding = &e->weights->embedding;
    if (run->ids && embedding->planes)
        e->kernels.planes_widen(embedding, run->ids[i], 0, embedding->columns, x);
    else if (run->ids)
        matrix_row_f32(embedding, run->ids[i], x);
    else
        memcpy(x, run->embeddings + (size_t)i * hidden, hidden * sizeof *x);
    cpu_rope_angles(e->inv, e->config->rotary_dim, position + run->rotation_offset,
                    e->cos + row * half, e->sin + row * half, REF_FAST);
}

void engine_turn_head(const struct engine *e, float *head, const float *norm, int i) {
    const int dim = e->config->head_dim, turning = e->config->rotary_dim;
    size_t angles = (size_t)i * (size_t)(turning / 2);
    if (norm) e->kernels.norm(head, norm, dim, e->config->rms_eps, head);
    e->kernels.rope(head, turning, e->cos + angles, e->sin + angles);
}

int engine_projections(const struct layer_weights *layer,
                       const struct matrix *parts[MAX_PROJECTIONS]) {
    const bool delta = layer->kind == LAYER_DELTA;
    parts[0] = delta ? &layer->delta.qkv : &layer->q;
    parts[1] = delta ? &layer->delta.z : &layer->k;
    parts[2] = delta ? &layer->delta.b : &layer->v;
    parts[3] = delta ? &layer->delta.a : NULL;
    return delta ? 4 : 3;
}

void engine_gate_head(const struct engine *e, int i, int head, float *out) {
    const int dim = e->config->head_dim;
    if (!e->config->gated_attention) return;
    const float *row = e->projected + (size_t)i * (size_t)e->projected_dim;
    e->kernels.sigmoid_gate(out, row + head * e->q_step + dim, dim);
}

/* ---- DeltaNet layers ------------------------------------------------------------------------- */

struct delta_head engine_delta_head(const struct engine *e, const struct recurrent *r,
                                    const struct layer_weights *layer, int head) {
    return (struct delta_head){
        .kernels = &e->kernels,
        .key_dim = r->key_dim,
        .value_dim = r->value_dim,
        .value_stride = r->value_stride,
        .q_scale = e->q_scale,
        .k_scale = e->k_scale,
        .rate = layer->delta.rate[head],
        .dt_bias = layer->delta.dt_bias[head],
        .state = recurrent_matrix(r, recurrent_layer(r, r->live, layer->nth), head),
    };
}

struct delta_rows engine_delta_rows(const struct engine *e, int i, int head) {
    const struct model_config *c = e->config;
    const int dim = c->delta.key_dim, keys = c->delta.key_heads * dim;
    const int key_head = head / (c->delta.value_heads / c->delta.key_heads);
    const float *row = e->projected + (size_t)i * (size_t)e->projected_dim;
    const float *b = row + model_delta_channels(c) + model_delta_width(c);
    return (struct delta_rows){
        .q = row + key_head * dim,
        .k = row + keys + key_head * dim,
        .v = row + 2 * keys + head * c->delta.value_dim,
        .b = b + head,
        .a = b + c->delta.value_heads + head,
        .out = e->mixed + (size_t)i * (size_t)e->mixed_dim + head * c->delta.value_dim,
        .row_stride = (size_t)e->projected_dim,
        .out_stride = (size_t)e->mixed_dim,
    };
}

void engine_gated_norm(const struct engine *e, const struct delta_weights *w, int i, float *out) {
    const struct model_config *c = e->config;
    const int dim = c->delta.value_dim, width = model_delta_width(c);
    const float *z = e->projected + (size_t)i * (size_t)e->projected_dim + model_delta_channels(c);
    const float *mixed = e->mixed + (size_t)i * (size_t)e->mixed_dim;
    for (int head = 0; head < c->delta.value_heads; head++)
        e->kernels.norm(mixed + head * dim, w->out_norm, dim, c->rms_eps, out + head * dim);
    e->kernels.swiglu(z, out, width, out);
}

#define CONVOLVED 256 /* channels at a time */

/* Input of channels `first` .. at position i of the run, which may lie before it. */
static const float *input_at(const struct engine_run *run, const float *window, int i, int first) {
    const struct recurrent *r = run->recurrent;
    if (i >= 0)
        return run->engine->projected +
               (size_t)(run->row + i) * (size_t)run->engine->projected_dim + first;
    return window + (size_t)(r->window + i) * (size_t)r->channels + first;
}

/* The window as it is after `after` positions of the run. */
static void copy_window(const struct engine_run *run, const float *window, int after, int first,
                        int n, float *to, size_t stride) {
    for (int j = 0; j < run->recurrent->window; j++)
        memcpy(to + (size_t)j * stride,
               input_at(run, window, after - run->recurrent->window + j, first),
               (size_t)n * sizeof *to);
}

/* Inputs of drafts behind the run, which the window may have to move on by later. */
static void keep_inputs(const struct engine_run *run, const struct layer_weights *layer, int first,
                        int n) {
    for (int i = 0; i < run->n_drafts; i++)
        memcpy(recurrent_draft_input(run->recurrent, layer->nth, i) + first,
               input_at(run, NULL, run->n + i, first), (size_t)n * sizeof(float));
}

/* From the last position back, as each needs the inputs before it. */
static void convolve_some(const struct engine_run *run, const struct layer_weights *layer,
                          int first, int n) {
    const struct recurrent *r = run->recurrent;
    const size_t channels = (size_t)r->channels;
    float *window = recurrent_window(r, recurrent_layer(r, r->live, layer->nth));
    float next[(MODEL_MAX_CONV - 1) * CONVOLVED];
    int after = 0;
    float *keep = recurrent_keep(r, layer->nth, run->position, run->n, &after);
    if (keep)
        copy_window(run, window, after, first, n, recurrent_window(r, keep) + first, channels);
    delta_drafts_move(r, layer->nth, window, r->n_owed, first, n);
    copy_window(run, window, run->n, first, n, next, CONVOLVED);
    keep_inputs(run, layer, first, n);
    for (int i = run->n + run->n_drafts - 1; i >= 0; i--) {
        const float *inputs[MODEL_MAX_CONV];
        for (int j = 0; j <= r->window; j++)
            inputs[j] = input_at(run, window, i - r->window + j, first);
        float *out = run->engine->projected +
                     (size_t)(run->row + i) * (size_t)run->engine->projected_dim + first;
        run->engine->kernels.convolve(inputs, layer->delta.taps + first, channels, r->window + 1, n,
                                      out);
    }
    for (int j = 0; j < r->window; j++)
        memcpy(window + (size_t)j * channels + first, next + j * CONVOLVED,
               (size_t)n * sizeof *next);
}

void engine_convolve(const struct engine_run *run, const struct layer_weights *layer,
                     struct piece p) {
    for (; p.first < p.last; p.first += CONVOLVED)
        convolve_some(run, layer, p.first,
                      p.last - p.first < CONVOLVED ? p.last - p.first : CONVOLVED);
}

/* ---- pieces and output ----------------------------------------------------------------------- */

/* Guided: each piece is a share of what is left, so that the first are long streams and the last
 * are short enough for the threads to finish together. */
static int size_of_next(const struct row_pieces *p) {
    const int size = (p->rows - p->next) / p->shares / T_PIECE_ROWS * T_PIECE_ROWS;
    return int_min(int_max(size, p->least), p->rows - p->next);
}

struct row_pieces engine_row_pieces(const struct engine *e, int rows, size_t row_bytes) {
    struct row_pieces p = { .rows = rows, .shares = 2 * thread_pool_size(e->pool) };
    p.least = (int)(T_PIECE_BYTES / (row_bytes * T_PIECE_ROWS) + 1) * T_PIECE_ROWS;
    for (; (rows - p.next) / p.shares > p.least; p.n++)
        p.next += size_of_next(&p);
    p.n += (rows - p.next + p.least - 1) / p.least; /* all of the smallest size */
    p.next = 0;
    return p;
}

bool engine_take_rows(const struct engine *e, const struct worker *w, struct row_pieces *p) {
    const int i = thread_pool_take(e->pool, w->thread, p->n);
    if (i < 0) return false;
    for (; p->at < i; p->at++)
        p->next += size_of_next(p);
    p->piece = (struct piece){ p->next, p->next + size_of_next(p) };
    return true;
}

static void norm_output(const struct engine *e, struct worker *w, const float *x) {
    const int hidden = e->config->hidden;
    e->kernels.norm(x, e->weights->final_norm, hidden, e->config->rms_eps, w->values);
    e->kernels.round_vector(w->values, hidden, &w->vector);
}

/* Of a run of one position; prefill.c has those of several already. */
static void keep_hidden(const struct engine_run *run, const struct worker *w, const float *x) {
    const struct engine *e = run->engine;
    if (e->taps) return;
    memcpy(run->hidden, e->hidden_is_x ? x : w->values, (size_t)e->config->hidden * sizeof(float));
}

void engine_keep_tap(const struct engine_run *run, const struct layer_weights *layer, int row) {
    const struct engine *e = run->engine;
    const size_t hidden = (size_t)e->config->hidden;
    if (!e->taps || !run->hidden) return;
    for (size_t i = 0; i < DRAFT_TAPS; i++)
        if (layer == &e->weights->layers[e->taps[i]])
            memcpy(run->hidden + ((size_t)(row - run->row) * DRAFT_TAPS + i) * hidden,
                   e->x + (size_t)row * hidden, hidden * sizeof(float));
}

void engine_output(const struct engine_run *run, struct worker *w, const float *x, float *out) {
    const struct engine *e = run->engine;
    const bool logits =
        run->output == REEL_OUTPUT_LAST_LOGITS || run->output == REEL_OUTPUT_ALL_LOGITS;
    if (!logits) {
        while (thread_pool_take(e->pool, w->thread, 1) >= 0) {
            norm_output(e, w, x);
            if (run->hidden && run->n == 1) keep_hidden(run, w, x);
            for (int i = 0; run->output != REEL_OUTPUT_NONE && i < e->config->hidden; i++)
                out[i] = bf16_to_f32(w->vector.bf16[0][i]);
        }
        return;
    }
    const struct matrix *head = &e->weights->head;
    struct row_pieces p = engine_row_pieces(e, head->rows, head->row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    norm_output(e, w, x);
    if (run->hidden && run->n == 1 && p.piece.first == 0) keep_hidden(run, w, x);
    do {
        kernels_rows(&e->kernels, head, &w->vector, p.piece.first, p.piece.last, out);
    } while (engine_take_rows(e, w, &p));
}
