/* One position through all layers. Every thread norms and rounds a phase's input for itself: that
 * costs less than another barrier. It does so once it holds a piece, because a phase of which it
 * holds none may be over, and its input overwritten (base/thread_pool.h). */
#include "cpu/engine.h"

#include <math.h>
#include <string.h>

static void norm_vector(const struct engine *e, struct worker *w, const float *weight) {
    e->kernels.norm(e->x, weight, e->config->hidden, e->config->rms_eps, w->values);
    e->kernels.round_vector(w->values, e->config->hidden, &w->vector);
}

/* projected = rows of all the mixer's matrices . norm(x), and their biases, handed out as one list.
 * A DeltaNet's channels go through the convolution at once, by the thread that made them. */
static void multiply_projections(const struct engine_run *run, struct worker *w,
                                 const struct layer_weights *layer) {
    const struct engine *e = run->engine;
    const struct matrix *parts[MAX_PROJECTIONS];
    const int n_parts = engine_projections(layer, parts);
    int rows = 0;
    for (int i = 0; i < n_parts; i++)
        rows += parts[i]->rows;
    struct row_pieces p = engine_row_pieces(e, rows, parts[0]->row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    norm_vector(e, w, layer->attn_norm);
    do {
        const struct piece piece = p.piece;
        int start = 0;
        for (int i = 0; i < n_parts; i++) {
            const struct matrix *m = parts[i];
            int first = piece.first > start ? piece.first - start : 0;
            int last = piece.last - start < m->rows ? piece.last - start : m->rows;
            if (first < last)
                e->kernels.dot_rows[m->dtype](m, &w->vector, first, last, e->projected + start);
            if (first < last && m == &layer->delta.qkv)
                engine_convolve(run, layer, (struct piece){ first, last });
            start += m->rows;
        }
        if (layer->qkv_bias)
            e->kernels.add(e->projected + piece.first, layer->qkv_bias + piece.first,
                           piece.last - piece.first);
    } while (engine_take_rows(e, w, &p));
}

/* x += m . vector, of the piece in hand and those that follow */
static void multiply_into_x(const struct engine *e, struct worker *w, struct row_pieces *p,
                            const struct matrix *m) {
    do {
        const struct piece piece = p->piece;
        e->kernels.dot_rows[m->dtype](m, &w->vector, piece.first, piece.last, e->y);
        e->kernels.add(e->x + piece.first, e->y + piece.first, piece.last - piece.first);
    } while (engine_take_rows(e, w, p));
}

/* gated[0 .. intermediate) = silu(gate . norm(x)) * (up . norm(x)) */
static void multiply_gated(const struct engine *e, struct worker *w,
                           const struct layer_weights *layer) {
    const struct matrix *gate = &layer->gate, *up = &layer->up;
    float *g = e->gated, *u = e->gated + gate->rows;
    struct row_pieces p = engine_row_pieces(e, gate->rows, gate->row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    norm_vector(e, w, layer->ffn_norm);
    do {
        const struct piece piece = p.piece;
        e->kernels.dot_rows[gate->dtype](gate, &w->vector, piece.first, piece.last, g);
        e->kernels.dot_rows[up->dtype](up, &w->vector, piece.first, piece.last, u);
        e->kernels.swiglu(g + piece.first, u + piece.first, piece.last - piece.first,
                          g + piece.first);
    } while (engine_take_rows(e, w, &p));
}

/* How a context of n positions is cut: `step` positions each. Depends on n alone, not on threads,
 * so that results do not either. */
static int split_step(int n) {
    int step = ATTENTION_STEP;
    while ((n - 1) / step >= ATTENTION_SPLITS)
        step *= 2;
    return step;
}

/* Queries of one KV head, turned and rounded. */
static void take_queries(const struct engine *e, struct worker *w,
                         const struct layer_weights *layer, int kv_head) {
    const int dim = e->config->head_dim;
    for (int g = 0; g < e->group; g++) {
        const float *q = e->projected + (size_t)(kv_head * e->group + g) * (size_t)e->q_step;
        memcpy(w->values, q, (size_t)dim * sizeof *q);
        engine_turn_head(e, w->values, layer->q_norm, 0);
        e->kernels.round_bf16(w->values, dim, w->q + (size_t)g * (size_t)dim);
    }
}

static void store_key_value(const struct engine_run *run, struct worker *w,
                            const struct layer_weights *layer, int kv_head) {
    const struct engine *e = run->engine;
    const int dim = e->config->head_dim;
    const float *k = e->projected + layer->q.rows + (size_t)kv_head * (size_t)dim;
    memcpy(w->values, k, (size_t)dim * sizeof *k);
    engine_turn_head(e, w->values, layer->k_norm, 0);
    e->kernels.round_bf16(w->values, dim, w->k);
    e->kernels.round_bf16(k + e->kv_dim, dim, w->v);
    kv_cache_write(run->kv, layer->nth, kv_head, run->position, w->k, w->v);
}

static float *partial_of(const struct engine *e, int split, int head) {
    size_t width = (size_t)kv_cache_v_width(e->config->head_dim) + 2;
    return e->partial + ((size_t)split * (size_t)e->config->n_heads + (size_t)head) * width;
}

/* Pieces of work: KV heads times splits of the context. Ends in `mixed`, or in `partial` when there
 * are several splits. */
static void attend(const struct engine_run *run, struct worker *w,
                   const struct layer_weights *layer, int n_splits, int step) {
    const struct engine *e = run->engine;
    const int dim = e->config->head_dim, width = kv_cache_v_width(dim), n = run->position + 1;
    const int n_items = e->config->n_kv_heads * n_splits;
    for (int item; (item = thread_pool_take(e->pool, w->thread, n_items)) >= 0;) {
        int kv_head = item / n_splits, split = item % n_splits;
        int first = split * step, last = n - first < step ? n : first + step;
        take_queries(e, w, layer, kv_head);
        if (last == n) store_key_value(run, w, layer, kv_head);
        struct attention a = w->attention;
        a.kernels = &e->kernels;
        a.kv = run->kv;
        a.layer = layer->nth;
        a.kv_head = kv_head;
        a.scale = e->attention_scale;
        a.rows = a.group = e->group;
        a.position = run->position;
        a.q = w->q;
        attention_run(&a, first, last);
        for (int g = 0; g < e->group; g++) {
            int head = kv_head * e->group + g;
            float *out = a.out + (size_t)g * (size_t)width;
            if (n_splits == 1) {
                e->kernels.scale(out, 1.0f / a.sum[g], dim);
                engine_gate_head(e, 0, head, out);
                memcpy(e->mixed + (size_t)head * (size_t)dim, out, (size_t)dim * sizeof *out);
            } else {
                float *partial = partial_of(e, split, head);
                memcpy(partial, out, (size_t)width * sizeof *out);
                partial[width] = a.max[g];
                partial[width + 1] = a.sum[g];
            }
        }
    }
}

/* attention's output from its splits, merged in order by every thread for itself: in w->values. */
static const float *merged(const struct engine *e, struct worker *w, int n_splits) {
    if (n_splits == 1) return e->mixed;
    const int dim = e->config->head_dim, width = kv_cache_v_width(dim);
    for (int head = 0; head < e->config->n_heads; head++) {
        float *out = w->values + (size_t)head * (size_t)dim, max = -INFINITY, sum = 0;
        for (int split = 0; split < n_splits; split++)
            max = fmaxf(max, partial_of(e, split, head)[width]);
        memset(out, 0, (size_t)dim * sizeof *out);
        for (int split = 0; split < n_splits; split++) {
            const float *partial = partial_of(e, split, head);
            float weight = expf(partial[width] - max);
            sum += weight * partial[width + 1];
            for (int d = 0; d < dim; d++)
                out[d] += weight * partial[d];
        }
        e->kernels.scale(out, 1.0f / sum, dim);
        engine_gate_head(e, 0, head, out);
    }
    return w->values;
}

/* Pieces of work: value heads times pieces of their columns. Ends in `mixed`. */
static void run_delta(const struct engine_run *run, const struct worker *w,
                      const struct layer_weights *layer) {
    const struct engine *e = run->engine;
    const int width = run->recurrent->value_stride;
    const int n_pieces = (width + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    const int n_items = e->config->delta.value_heads * n_pieces;
    for (int item; (item = thread_pool_take(e->pool, w->thread, n_items)) >= 0;) {
        const int head = item / n_pieces, first = item % n_pieces * DELTA_COLUMNS;
        const struct delta_head h = engine_delta_head(run, layer, head);
        const struct delta_rows row = engine_delta_rows(e, 0, head);
        delta_decode(&h, &row, first,
                     width - first < DELTA_COLUMNS ? width - first : DELTA_COLUMNS);
    }
}

/* What attention or the DeltaNet makes of projected. */
static void mix(const struct engine_run *run, struct worker *w, const struct layer_weights *layer) {
    const int step = split_step(run->position + 1);
    if (layer->kind == LAYER_DELTA)
        run_delta(run, w, layer);
    else
        attend(run, w, layer, run->position / step + 1, step);
}

/* x += o . what the mixer made, merged or normed */
static void multiply_mixed(const struct engine_run *run, struct worker *w,
                           const struct layer_weights *layer) {
    const struct engine *e = run->engine;
    const float *made = w->values;
    struct row_pieces p = engine_row_pieces(e, layer->o.rows, layer->o.row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    if (layer->kind == LAYER_DELTA)
        engine_gated_norm(e, &layer->delta, 0, w->values);
    else
        made = merged(e, w, run->position / split_step(run->position + 1) + 1);
    e->kernels.round_vector(made, layer->o.columns, &w->vector);
    multiply_into_x(e, w, &p, &layer->o);
}

/* x += down . gated */
static void multiply_down(const struct engine *e, struct worker *w,
                          const struct layer_weights *layer) {
    struct row_pieces p = engine_row_pieces(e, layer->down.rows, layer->down.row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    e->kernels.round_vector(e->gated, e->config->intermediate, &w->vector);
    multiply_into_x(e, w, &p, &layer->down);
}

/* False: the others have finished the token without this thread. */
static bool run_layer(const struct engine_run *run, struct worker *w,
                      const struct layer_weights *layer) {
    struct thread_pool *pool = run->engine->pool;
    multiply_projections(run, w, layer);
    if (!thread_pool_barrier(pool, w->thread)) return false;
    mix(run, w, layer);
    if (!thread_pool_barrier(pool, w->thread)) return false;
    multiply_mixed(run, w, layer);
    if (!thread_pool_barrier(pool, w->thread)) return false;
    multiply_gated(run->engine, w, layer);
    if (!thread_pool_barrier(pool, w->thread)) return false;
    multiply_down(run->engine, w, layer);
    return thread_pool_barrier(pool, w->thread);
}

void decode_region(void *user, int thread, int n_threads) {
    const struct engine_run *run = user;
    const struct engine *e = run->engine;
    struct worker *w = &e->workers[thread];
    (void)n_threads;
    while (thread_pool_take(e->pool, thread, 1) >= 0)
        engine_enter(run, 0, run->position);
    if (!thread_pool_barrier(e->pool, thread)) return;
    for (int i = 0; i < e->config->n_layers; i++)
        if (!run_layer(run, w, &e->weights->layers[i])) return;
    if (run->output != REEL_OUTPUT_NONE) engine_output(run, w, e->x, run->out);
}
