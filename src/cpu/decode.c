/* One position of one state, or of each of several, through all layers.
 *
 * With one column, every thread norms and rounds a phase's input for itself: that costs less than
 * another barrier. It does so once it holds a piece, because a phase of which it holds none may be
 * over, and its input overwritten (base/thread_pool.h). With several columns that work has a phase
 * of its own, whose pieces are the columns. */
#include "cpu/delta_drafts.h"

#include <math.h>
#include <string.h>

/* ---- the input of a phase -------------------------------------------------------------------- */

/* Makes the input of a phase for one column: `out` may be read by all until the phase is over. */
typedef void make_vector(const struct engine_run *column, struct worker *w,
                         const struct layer_weights *layer, struct cpu_vector *out);

static void norm_vector(const struct engine_run *column, struct worker *w, const float *weight,
                        struct cpu_vector *out) {
    const struct engine *e = column->engine;
    const int hidden = e->config->hidden;
    const float *x = e->x + (size_t)column->row * (size_t)hidden;
    e->kernels.norm(x, weight, hidden, e->config->rms_eps, w->values);
    e->kernels.round_vector(w->values, hidden, out);
}

static void make_mixer_input(const struct engine_run *column, struct worker *w,
                             const struct layer_weights *layer, struct cpu_vector *out) {
    norm_vector(column, w, layer->attn_norm, out);
}

static void make_gated_input(const struct engine_run *column, struct worker *w,
                             const struct layer_weights *layer, struct cpu_vector *out) {
    norm_vector(column, w, layer->ffn_norm, out);
}

static void make_head_input(const struct engine_run *column, struct worker *w,
                            const struct layer_weights *layer, struct cpu_vector *out) {
    (void)layer;
    norm_vector(column, w, column->engine->weights->final_norm, out);
    if (column->hidden && !column->engine->taps)
        memcpy(column->hidden, w->values, (size_t)column->engine->config->hidden * sizeof(float));
}

/* A phase of its own where there are several columns. False as thread_pool_barrier. */
static bool share_inputs(const struct engine_pass *pass, struct worker *w,
                         const struct layer_weights *layer, make_vector *make, int length) {
    struct engine *e = pass->columns->engine;
    if (pass->n == 1) return true;
    for (int i; (i = thread_pool_take(e->pool, w->thread, pass->n)) >= 0;) {
        make(&pass->columns[i], w, layer, &e->vectors[i]);
        e->kernels.spread_column(&e->vectors[i], length, &e->columns, i);
    }
    return thread_pool_barrier(e->pool, w->thread);
}

/* Where there is one, by a thread that holds a piece of the phase. */
static void make_own_input(const struct engine_pass *pass, struct worker *w,
                           const struct layer_weights *layer, make_vector *make) {
    if (pass->n == 1) make(pass->columns, w, layer, &w->vector);
}

/* Rows [first, last) of m . input, for every column: out [columns], `stride` apart. */
static void multiply(const struct engine_pass *pass, const struct worker *w, const struct matrix *m,
                     int first, int last, float *out, size_t stride) {
    const struct engine *e = pass->columns->engine;
    if (pass->n == 1) {
        kernels_rows(&e->kernels, m, &w->vector, first, last, out);
        return;
    }
    float *y[MOST_COLUMNS];
    for (int i = 0; i < pass->n; i++)
        y[i] = out + (size_t)i * stride;
    kernels_columns(&e->kernels, m, &e->columns, first, last, y);
}

/* A row's work grows with the columns, so pieces have fewer. */
static struct row_pieces row_pieces(const struct engine_pass *pass, int rows, size_t row_bytes) {
    return engine_row_pieces(pass->columns->engine, rows, row_bytes * (size_t)pass->n);
}

/* ---- products -------------------------------------------------------------------------------- */

/* What follows the products of rows [piece.first, piece.last) of `projected`. */
static void add_bias(const struct engine_pass *pass, const struct layer_weights *layer,
                     struct piece piece) {
    const struct engine *e = pass->columns->engine;
    for (int i = 0; i < pass->n; i++) {
        float *to = e->projected + (size_t)i * (size_t)e->projected_dim + piece.first;
        const float *own = pass->columns[i].biases;
        if (layer->qkv_bias)
            e->kernels.add(to, layer->qkv_bias + piece.first, piece.last - piece.first);
        if (own) e->kernels.add(to, own + piece.first, piece.last - piece.first);
    }
}

/* projected = rows of all the mixer's matrices . norm(x), and their biases, handed out as one list.
 * A DeltaNet's channels go through the convolution at once, by the thread that made them. */
static void multiply_projections(const struct engine_pass *pass, struct worker *w,
                                 const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    const struct matrix *parts[MAX_PROJECTIONS];
    const int n_parts = engine_projections(layer, parts);
    int rows = 0;
    for (int i = 0; i < n_parts; i++)
        rows += parts[i]->rows;
    struct row_pieces p = row_pieces(pass, rows, parts[0]->row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    make_own_input(pass, w, layer, make_mixer_input);
    for (int i = 0; p.piece.first == 0 && i < pass->n; i++)
        engine_keep_tap(&pass->columns[i], layer, pass->columns[i].row);
    do {
        const struct piece piece = p.piece;
        int start = 0;
        for (int i = 0; i < n_parts; i++) {
            const struct matrix *m = parts[i];
            int first = piece.first > start ? piece.first - start : 0;
            int last = piece.last - start < m->rows ? piece.last - start : m->rows;
            if (first < last)
                multiply(pass, w, m, first, last, e->projected + start, (size_t)e->projected_dim);
            for (int c = 0; first < last && m == &layer->delta.qkv && c < pass->n;
                 c += 1 + pass->columns[c].n_drafts)
                engine_convolve(&pass->columns[c], layer, (struct piece){ first, last });
            start += m->rows;
        }
        add_bias(pass, layer, piece);
    } while (engine_take_rows(e, w, &p));
}

/* x += m . input, of the piece in hand and those that follow */
static void multiply_into_x(const struct engine_pass *pass, struct worker *w, struct row_pieces *p,
                            const struct matrix *m) {
    const struct engine *e = pass->columns->engine;
    const size_t hidden = (size_t)e->config->hidden;
    do {
        const struct piece piece = p->piece;
        multiply(pass, w, m, piece.first, piece.last, e->y, hidden);
        for (size_t i = 0; i < (size_t)pass->n; i++)
            e->kernels.add(e->x + i * hidden + piece.first, e->y + i * hidden + piece.first,
                           piece.last - piece.first);
    } while (engine_take_rows(e, w, p));
}

/* gated[0 .. intermediate) = silu(gate . norm(x)) * (up . norm(x)) */
static void multiply_gated(const struct engine_pass *pass, struct worker *w,
                           const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    const struct matrix *gate = &layer->gate, *up = &layer->up;
    const size_t stride = 2 * (size_t)gate->rows;
    struct row_pieces p = row_pieces(pass, gate->rows, gate->row_bytes);
    if (!engine_take_rows(e, w, &p)) return;
    make_own_input(pass, w, layer, make_gated_input);
    do {
        const struct piece piece = p.piece;
        multiply(pass, w, gate, piece.first, piece.last, e->gated, stride);
        multiply(pass, w, up, piece.first, piece.last, e->gated + gate->rows, stride);
        for (size_t i = 0; i < (size_t)pass->n; i++) {
            float *g = e->gated + i * stride + piece.first;
            e->kernels.swiglu(g, g + gate->rows, piece.last - piece.first, g);
        }
    } while (engine_take_rows(e, w, &p));
}

/* ---- attention and DeltaNet ------------------------------------------------------------------ */

/* How a context of n positions is cut: `step` positions each. Depends on n alone, not on threads,
 * so that results do not either. */
static int split_step(int n) {
    int step = ATTENTION_STEP;
    while ((n - 1) / step >= ATTENTION_SPLITS)
        step *= 2;
    return step;
}

static int n_splits(const struct engine_run *column) {
    return column->position / split_step(column->position + 1) + 1;
}

static const float *projected_of(const struct engine_run *column) {
    const struct engine *e = column->engine;
    return e->projected + (size_t)column->row * (size_t)e->projected_dim;
}

/* Queries of one KV head, turned and rounded. */
static void take_queries(const struct engine_run *column, struct worker *w,
                         const struct layer_weights *layer, int kv_head) {
    const struct engine *e = column->engine;
    const int dim = e->config->head_dim;
    const float *projected = projected_of(column);
    for (int g = 0; g < e->group; g++) {
        const float *q = projected + (size_t)(kv_head * e->group + g) * (size_t)e->q_step;
        memcpy(w->values, q, (size_t)dim * sizeof *q);
        engine_turn_head(e, w->values, layer->q_norm, column->row);
        e->kernels.round_bf16(w->values, dim, w->q + (size_t)g * (size_t)dim);
    }
}

static void store_key_value(const struct engine_run *column, struct worker *w,
                            const struct layer_weights *layer, int kv_head) {
    const struct engine *e = column->engine;
    const int dim = e->config->head_dim;
    const float *k = projected_of(column) + layer->q.rows + (size_t)kv_head * (size_t)dim;
    memcpy(w->values, k, (size_t)dim * sizeof *k);
    engine_turn_head(e, w->values, layer->k_norm, column->row);
    e->kernels.round_bf16(w->values, dim, w->k);
    e->kernels.round_bf16(k + e->kv_dim, dim, w->v);
    kv_cache_write(column->kv, layer->nth, kv_head, column->position, w->k, w->v);
}

static float *partial_of(const struct engine_run *column, int split, int head) {
    const struct engine *e = column->engine;
    const size_t width = (size_t)kv_cache_v_width(e->config->head_dim) + 2;
    const size_t at = (size_t)(column->row * ATTENTION_SPLITS + split);
    return e->partial + (at * (size_t)e->config->n_heads + (size_t)head) * width;
}

static float *mixed_of(const struct engine_run *column) {
    const struct engine *e = column->engine;
    return e->mixed + (size_t)column->row * (size_t)e->mixed_dim;
}

/* A phase of its own in a pass where a column attends to positions of columns before it; otherwise
 * who attends to a column's last split stores first. A piece of work is a KV head: writing V of an
 * even position clears its neighbour (kv_cache.c), so positions are written in order. False as
 * thread_pool_barrier. */
static bool store_consecutive(const struct engine_pass *pass, struct worker *w,
                              const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    if (!pass->consecutive || layer->kind == LAYER_DELTA) return true;
    for (int head; (head = thread_pool_take(e->pool, w->thread, e->config->n_kv_heads)) >= 0;)
        for (int i = 0; i < pass->n; i++)
            store_key_value(&pass->columns[i], w, layer, head);
    return thread_pool_barrier(e->pool, w->thread);
}

/* One KV head and split of a column's context. Ends in `mixed`, or in `partial` when there are
 * several splits. */
static void attend_split(const struct engine_pass *pass, const struct engine_run *column,
                         struct worker *w, const struct layer_weights *layer, int kv_head,
                         int split) {
    const struct engine *e = column->engine;
    const int dim = e->config->head_dim, width = kv_cache_v_width(dim), n = column->position + 1;
    const int step = split_step(n), first = split * step,
              last = n - first < step ? n : first + step;
    take_queries(column, w, layer, kv_head);
    if (last == n && !pass->consecutive) store_key_value(column, w, layer, kv_head);
    struct attention a = w->attention;
    a.kernels = &e->kernels;
    a.kv = column->kv;
    a.layer = layer->nth;
    a.kv_head = kv_head;
    a.scale = e->attention_scale;
    a.rows = a.group = e->group;
    a.position = column->position;
    a.q = w->q;
    attention_run(&a, first, last);
    for (int g = 0; g < e->group; g++) {
        int head = kv_head * e->group + g;
        float *out = a.out + (size_t)g * (size_t)width;
        if (n_splits(column) == 1) {
            e->kernels.scale(out, 1.0f / a.sum[g], dim);
            engine_gate_head(e, column->row, head, out);
            memcpy(mixed_of(column) + (size_t)head * (size_t)dim, out, (size_t)dim * sizeof *out);
        } else {
            float *partial = partial_of(column, split, head);
            memcpy(partial, out, (size_t)width * sizeof *out);
            partial[width] = a.max[g];
            partial[width + 1] = a.sum[g];
        }
    }
}

/* Pieces of work: columns times KV heads times splits of the column's context. */
static void attend(const struct engine_pass *pass, struct worker *w,
                   const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    const int heads = e->config->n_kv_heads;
    int n_items = 0;
    for (int i = 0; i < pass->n; i++)
        n_items += heads * n_splits(&pass->columns[i]);
    for (int item; (item = thread_pool_take(e->pool, w->thread, n_items)) >= 0;) {
        const struct engine_run *column = pass->columns;
        for (; item >= heads * n_splits(column); column++)
            item -= heads * n_splits(column);
        attend_split(pass, column, w, layer, item / n_splits(column), item % n_splits(column));
    }
}

/* attention's output from its splits, merged in order by every thread for itself: in w->values. */
static const float *merged(const struct engine_run *column, struct worker *w) {
    const struct engine *e = column->engine;
    const int splits = n_splits(column);
    if (splits == 1) return mixed_of(column);
    const int dim = e->config->head_dim, width = kv_cache_v_width(dim);
    for (int head = 0; head < e->config->n_heads; head++) {
        float *out = w->values + (size_t)head * (size_t)dim, max = -INFINITY, sum = 0;
        for (int split = 0; split < splits; split++)
            max = fmaxf(max, partial_of(column, split, head)[width]);
        memset(out, 0, (size_t)dim * sizeof *out);
        for (int split = 0; split < splits; split++) {
            const float *partial = partial_of(column, split, head);
            float weight = expf(partial[width] - max);
            sum += weight * partial[width + 1];
            for (int d = 0; d < dim; d++)
                out[d] += weight * partial[d];
        }
        e->kernels.scale(out, 1.0f / sum, dim);
        engine_gate_head(e, column->row, head, out);
    }
    return w->values;
}

static int count_states(const struct engine_pass *pass) {
    int n = 0;
    for (int c = 0; c < pass->n; c += 1 + pass->columns[c].n_drafts)
        n++;
    return n;
}

/* Pieces of work: states times value heads times pieces of a head's own columns. Ends in `mixed`.
 */
static void run_delta(const struct engine_pass *pass, struct worker *w,
                      const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    const int width = pass->columns->recurrent->value_stride;
    const int n_pieces = (width + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    const int n_each = e->config->delta.value_heads * n_pieces;
    const int n_items = count_states(pass) * n_each;
    for (int item; (item = thread_pool_take(e->pool, w->thread, n_items)) >= 0;) {
        const struct engine_run *column = pass->columns;
        const int head = item % n_each / n_pieces, first = item % n_pieces * DELTA_COLUMNS;
        for (int state = item / n_each; state > 0; state--)
            column += 1 + column->n_drafts;
        delta_drafts_run(column, layer, head, first,
                         width - first < DELTA_COLUMNS ? width - first : DELTA_COLUMNS, w->delta);
    }
}

/* What attention or the DeltaNet makes of projected. */
static void mix(const struct engine_pass *pass, struct worker *w,
                const struct layer_weights *layer) {
    if (layer->kind == LAYER_DELTA)
        run_delta(pass, w, layer);
    else
        attend(pass, w, layer);
}

/* What the mixer made, merged or normed. */
static void make_mixed_input(const struct engine_run *column, struct worker *w,
                             const struct layer_weights *layer, struct cpu_vector *out) {
    const struct engine *e = column->engine;
    const float *made = w->values;
    if (layer->kind == LAYER_DELTA) {
        engine_gated_norm(e, &layer->delta, column->row, w->values);
        if (column->nth_draft > 0) delta_drafts_note(column, layer);
    } else {
        made = merged(column, w);
    }
    e->kernels.round_vector(made, layer->o.columns, out);
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* x += o . what the mixer made */
static void multiply_mixed(const struct engine_pass *pass, struct worker *w,
                           const struct layer_weights *layer) {
    struct row_pieces p = row_pieces(pass, layer->o.rows, layer->o.row_bytes);
    if (!engine_take_rows(pass->columns->engine, w, &p)) return;
    make_own_input(pass, w, layer, make_mixed_input);
    multiply_into_x(pass, w, &p, &layer->o);
}

static void make_down_input(const struct engine_run *column, struct worker *w,
                            const struct layer_weights *layer, struct cpu_vector *out) {
    const struct engine *e = column->engine;
    (void)w;
    e->kernels.round_vector(e->gated + 2 * (size_t)column->row * (size_t)layer->gate.rows,
                            e->config->intermediate, out);
}

/* x += down . gated */
static void multiply_down(const struct engine_pass *pass, struct worker *w,
                          const struct layer_weights *layer) {
    struct row_pieces p = row_pieces(pass, layer->down.rows, layer->down.row_bytes);
    if (!engine_take_rows(pass->columns->engine, w, &p)) return;
    make_own_input(pass, w, layer, make_down_input);
    multiply_into_x(pass, w, &p, &layer->down);
}

/* False: the others have finished the token without this thread. */
static bool run_layer(const struct engine_pass *pass, struct worker *w,
                      const struct layer_weights *layer) {
    const struct engine *e = pass->columns->engine;
    const int hidden = e->config->hidden;
    if (!share_inputs(pass, w, layer, make_mixer_input, hidden)) return false;
    multiply_projections(pass, w, layer);
    if (!thread_pool_barrier(e->pool, w->thread)) return false;
    if (!store_consecutive(pass, w, layer)) return false;
    mix(pass, w, layer);
    if (!thread_pool_barrier(e->pool, w->thread)) return false;
    if (!share_inputs(pass, w, layer, make_mixed_input, layer->o.columns)) return false;
    multiply_mixed(pass, w, layer);
    if (!thread_pool_barrier(e->pool, w->thread)) return false;
    if (!share_inputs(pass, w, layer, make_gated_input, hidden)) return false;
    multiply_gated(pass, w, layer);
    if (!thread_pool_barrier(e->pool, w->thread)) return false;
    if (!share_inputs(pass, w, layer, make_down_input, e->config->intermediate)) return false;
    multiply_down(pass, w, layer);
    return thread_pool_barrier(e->pool, w->thread);
}

/* Logits of every column. */
static void multiply_head(const struct engine_pass *pass, struct worker *w) {
    const struct engine *e = pass->columns->engine;
    const struct matrix *head = &e->weights->head;
    float *y[MOST_COLUMNS];
    for (int i = 0; i < pass->n; i++)
        y[i] = pass->columns[i].out;
    struct row_pieces p = row_pieces(pass, head->rows, head->row_bytes);
    while (engine_take_rows(e, w, &p))
        kernels_columns(&e->kernels, head, &e->columns, p.piece.first, p.piece.last, y);
}

void decode_region(void *user, int thread, int n_threads) {
    const struct engine_pass *pass = user;
    const struct engine_run *last = &pass->columns[pass->n - 1];
    struct engine *e = last->engine;
    struct worker *w = &e->workers[thread];
    (void)n_threads;
    for (int i; (i = thread_pool_take(e->pool, thread, pass->n)) >= 0;) {
        engine_enter(&pass->columns[i], 0, pass->columns[i].position);
        if (i > 0) continue;
        e->columns.n = pass->n; /* here, as another caller's region may precede this one */
        e->columns.slots = (pass->n + 1) & ~1;
    }
    if (!thread_pool_barrier(e->pool, thread)) return;
    for (int i = 0; i < e->config->n_layers; i++)
        if (!run_layer(pass, w, &e->weights->layers[i])) return;
    if (pass->n == 1 || pass->last_only) {
        const float *x = e->x + (size_t)last->row * (size_t)e->config->hidden;
        if (last->output != REEL_OUTPUT_NONE || last->hidden) engine_output(last, w, x, last->out);
    } else if (share_inputs(pass, w, NULL, make_head_input, e->config->hidden)) {
        multiply_head(pass, w);
    }
}
