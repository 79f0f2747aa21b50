/* Up to T_CHUNK positions through all layers together: of one text, or of several. Only where keys
 * and values lie, what attention sees and by what angles heads turn depends on the text; and each
 * row's sums are made in the same order whatever other rows there are. */
#include "base/numbers.h"
#include "cpu/engine.h"

#include <string.h>

/* Everything a phase's function needs to know. */
struct prefill {
    struct engine_run *run;
    const struct engine *e;
    struct worker *w;
    int thread, n_threads;
    const struct run_text *texts; /* [n_texts] at least one */
    int n_texts;
    int from; /* rows from here on are worked on */
};

static int rows_of(const struct prefill *f) { return f->run->n - f->from; }

static int take(const struct prefill *f, int n) {
    return thread_pool_take(f->e->pool, f->thread, n);
}

static bool barrier(const struct prefill *f) { return thread_pool_barrier(f->e->pool, f->thread); }

/* The next of the positions, for phases that treat each alone: some four pieces a thread. */
static bool take_positions(const struct prefill *f, struct piece *p) {
    const int n = rows_of(f), size = int_max(1, n / (4 * f->n_threads));
    const int i = take(f, (n + size - 1) / size);
    *p = (struct piece){ f->from + i * size, f->from + int_min(n, (i + 1) * size) };
    return i >= 0;
}

static void set_row(const struct engine *e, int i, const float *values, int n) {
    const size_t at = (size_t)i * e->row_stride;
    tile_round(&e->kernels, e->blocks, values, n, e->rows + at, e->seconds + at, e->factors + i,
               T_CHUNK);
}

/* rows = norm(x); layer: x is its input; or NULL */
static void norm_rows(const struct prefill *f, const float *weight,
                      const struct layer_weights *layer) {
    const struct engine *e = f->e;
    const int hidden = e->config->hidden;
    for (struct piece p; take_positions(f, &p);)
        for (; p.first < p.last; p.first++) {
            if (layer) engine_keep_tap(f->run, layer, p.first);
            e->kernels.norm(e->x + (size_t)p.first * (size_t)hidden, weight, hidden,
                            e->config->rms_eps, f->w->values);
            set_row(e, p.first, f->w->values, hidden);
        }
}

static struct tile_input input_of(const struct prefill *f, const uint16_t *rows,
                                  const uint16_t *seconds, const float *factors) {
    const struct engine *e = f->e;
    const size_t at = (size_t)f->from * e->row_stride;
    return (struct tile_input){ .m = rows_of(f),
                                .rows = rows + at,
                                .stride = e->row_stride,
                                .seconds = seconds + at,
                                .factors = factors + f->from,
                                .factors_stride = T_CHUNK };
}

static struct tile_input input_rows(const struct prefill *f) {
    return input_of(f, f->e->rows, f->e->seconds, f->e->factors);
}

static struct tile_input input_gated(const struct prefill *f) {
    return input_of(f, f->e->gated_rows, f->e->gated_seconds, f->e->gated_factors);
}

static int tiles_of(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

/* The next tile of several matrices' rows. */
static bool take_tile(const struct prefill *f, const struct matrix *const *parts, int n_parts,
                      int *part, int *first) {
    int n = 0;
    for (int i = 0; i < n_parts; i++)
        n += tiles_of(parts[i]->rows);
    int tile = take(f, n);
    if (tile < 0) return false;
    for (*part = 0; tile >= tiles_of(parts[*part]->rows); (*part)++)
        tile -= tiles_of(parts[*part]->rows);
    *first = tile * TILE_ROWS;
    return true;
}

/* projected = all the mixer's matrices . rows, and their biases; queries of the rows that are
 * wanted alone */
static void multiply_projections(const struct prefill *f, const struct prefill *wanted,
                                 const struct layer_weights *layer) {
    const struct engine *e = f->e;
    const struct matrix *parts[MAX_PROJECTIONS];
    const int n_parts = engine_projections(layer, parts);
    int start[MAX_PROJECTIONS] = { 0 };
    for (int i = 1; i < n_parts; i++)
        start[i] = start[i - 1] + parts[i - 1]->rows;
    const size_t stride = (size_t)e->projected_dim;
    int part, first;
    while (take_tile(f, parts, n_parts, &part, &first)) {
        const struct prefill *some = parts[part] == &layer->q ? wanted : f;
        const struct tile_input input = input_rows(some);
        if (input.m == 0) continue;
        tile_product(&e->kernels, parts[part], first, PANELS, &input, &f->w->tile, f->w->tile.c);
        int n = int_min(TILE_ROWS, parts[part]->rows - first), row = start[part] + first;
        for (int i = 0; i < input.m; i++) {
            float *to = e->projected + (size_t)(some->from + i) * stride + (size_t)row;
            memcpy(to, f->w->tile.c + (size_t)i * TILE_ROWS, (size_t)n * sizeof(float));
            if (layer->qkv_bias) e->kernels.add(to, layer->qkv_bias + row, n);
            if (f->run->biases)
                e->kernels.add(to, f->run->biases + (size_t)(some->from + i) * stride + (size_t)row,
                               n);
        }
    }
}

/* x += m . input */
static void multiply_into_x(const struct prefill *f, const struct matrix *m,
                            const struct tile_input *input) {
    const struct engine *e = f->e;
    int part, first;
    while (take_tile(f, &m, 1, &part, &first)) {
        tile_product(&e->kernels, m, first, PANELS, input, &f->w->tile, f->w->tile.c);
        int n = int_min(TILE_ROWS, m->rows - first);
        for (int i = 0; i < input->m; i++)
            e->kernels.add(e->x + (size_t)(f->from + i) * (size_t)m->rows + (size_t)first,
                           f->w->tile.c + (size_t)i * TILE_ROWS, n);
    }
}

/* Half a tile of gate rows beside half a tile of up rows. A block of the result is finished at
 * once and goes to `gated_rows`: `rows` is still being read. */
static void multiply_gated(const struct prefill *f, const struct layer_weights *layer) {
    enum { HALF = TILE_ROWS / 2 };
    const struct engine *e = f->e;
    const struct tile_input input = input_rows(f);
    const int inter = e->config->intermediate;
    float *c = f->w->tile.c;
    for (int i; (i = take(f, (inter + HALF - 1) / HALF)) >= 0;) {
        const int first = i * HALF;
        tile_product(&e->kernels, &layer->gate, first, PANELS / 2, &input, &f->w->tile, c);
        tile_product(&e->kernels, &layer->up, first, PANELS / 2, &input, &f->w->tile, c + HALF);
        int n = int_min(HALF, inter - first);
        for (int j = 0; j < input.m; j++) {
            float *row = c + (size_t)j * TILE_ROWS;
            const size_t to = (size_t)(f->from + j), at = to * e->row_stride + (size_t)first;
            e->kernels.swiglu(row, row + HALF, n, row);
            tile_round(&e->kernels, e->blocks, row, n, e->gated_rows + at, e->gated_seconds + at,
                       e->gated_factors + tile_factors((size_t)first, T_CHUNK) + to, T_CHUNK);
        }
    }
}

/* How the rows of each text are cut into pieces of work: `size` rows each, or (by_position) such
 * that they end at positions that are multiples of it. */
struct cut {
    int size;
    bool by_position;
};

static int before_first(const struct run_text *t, const struct cut *cut) {
    return cut->by_position ? t->position % cut->size : 0;
}

static int pieces_of(const struct run_text *t, const struct cut *cut) {
    return (before_first(t, cut) + t->n + cut->size - 1) / cut->size;
}

static int count_pieces(const struct prefill *f, const struct cut *cut) {
    int n = 0;
    for (int i = 0; i < f->n_texts; i++)
        n += pieces_of(&f->texts[i], cut);
    return n;
}

/* Piece i of them all: rows of the run, and the text that they belong to. */
static const struct run_text *piece_at(const struct prefill *f, const struct cut *cut, int i,
                                       struct piece *p) {
    const struct run_text *t = f->texts, *last = t + f->n_texts - 1;
    for (; t < last && i >= pieces_of(t, cut); t++)
        i -= pieces_of(t, cut);
    const int first = i * cut->size - before_first(t, cut);
    *p = (struct piece){ t->row + int_max(first, 0), t->row + int_min(first + cut->size, t->n) };
    return t;
}

/* Turns the heads of one KV head for rows p.first .. p.last - 1 of a text, those of queries from
 * row `queries` on, and stores keys and values. */
static void turn_heads(const struct prefill *f, int queries, const struct layer_weights *layer,
                       int kv_head, const struct run_text *text, struct piece p) {
    const struct engine *e = f->e;
    const int dim = e->config->head_dim;
    for (int i = p.first; i < p.last; i++) {
        float *row = e->projected + (size_t)i * (size_t)e->projected_dim;
        for (int g = 0; g < e->group && i >= queries; g++) {
            float *q = row + (size_t)(kv_head * e->group + g) * (size_t)e->q_step;
            size_t at = ((size_t)kv_head * T_CHUNK + (size_t)i) * (size_t)e->group + (size_t)g;
            engine_turn_head(e, q, layer->q_norm, i);
            e->kernels.round_bf16(q, dim, e->queries + at * (size_t)dim);
        }
        float *k = row + layer->q.rows + (size_t)kv_head * (size_t)dim;
        engine_turn_head(e, k, layer->k_norm, i);
        e->kernels.round_bf16(k, dim, f->w->k);
        e->kernels.round_bf16(k + e->kv_dim, dim, f->w->v);
        kv_cache_write(f->run->kv, layer->nth, kv_head, text->slot + text->position + i - text->row,
                       f->w->k, f->w->v);
    }
}

/* Pieces of work: KV heads times panels of the cache, so that no cache line has two writers. */
static void store_keys_values(const struct prefill *f, const struct prefill *wanted,
                              const struct layer_weights *layer) {
    const struct cut panels = { PANEL_LANES, true };
    const int n_panels = count_pieces(f, &panels);
    const int n_items = f->e->config->n_kv_heads * n_panels;
    for (int item; (item = take(f, n_items)) >= 0;) {
        struct piece p;
        const struct run_text *text = piece_at(f, &panels, item % n_panels, &p);
        turn_heads(f, wanted->from, layer, item / n_panels, text, p);
    }
}

/* Pieces of work: KV heads times runs of positions, the last (longest context) first. */
static void attend(const struct prefill *f, const struct layer_weights *layer) {
    const struct engine *e = f->e;
    const int dim = e->config->head_dim, width = kv_cache_v_width(dim);
    const struct cut cut = { e->attention_rows / e->group, false };
    const int n_runs = count_pieces(f, &cut), n_items = e->config->n_kv_heads * n_runs;
    for (int item; (item = take(f, n_items)) >= 0;) {
        int kv_head = item % e->config->n_kv_heads;
        struct piece p;
        const struct run_text *text =
            piece_at(f, &cut, n_runs - 1 - item / e->config->n_kv_heads, &p);
        const int first = p.first, n = p.last - p.first;
        struct attention a = f->w->attention;
        a.kernels = &e->kernels;
        a.kv = f->run->kv;
        a.layer = layer->nth;
        a.kv_head = kv_head;
        a.scale = e->attention_scale;
        a.rows = n * e->group;
        a.group = e->group;
        a.position = text->slot + text->position + first - text->row;
        a.q = e->queries + ((size_t)kv_head * T_CHUNK + (size_t)first) * (size_t)(e->group * dim);
        attention_run(&a, text->slot, a.position + n);
        for (int r = 0; r < a.rows; r++) {
            float *out = a.out + (size_t)r * (size_t)width;
            size_t head = (size_t)(kv_head * e->group + r % e->group);
            e->kernels.scale(out, 1.0f / a.sum[r], dim);
            engine_gate_head(e, first + r / e->group, (int)head, out);
            memcpy(e->mixed + (size_t)(first + r / e->group) * (size_t)e->mixed_dim +
                       head * (size_t)dim,
                   out, (size_t)dim * sizeof *out);
        }
    }
}

/* The convolution, by channels. */
static void convolve(const struct prefill *f, const struct layer_weights *layer) {
    enum { CHANNELS = 256 };
    const int all = f->run->recurrent->channels;
    for (int i; (i = take(f, (all + CHANNELS - 1) / CHANNELS)) >= 0;)
        engine_convolve(f->run, layer,
                        (struct piece){ i * CHANNELS, int_min((i + 1) * CHANNELS, all) });
}

/* Pieces of work: value heads. The state is copied where a checkpoint wants it. */
static void run_delta(const struct prefill *f, const struct layer_weights *layer) {
    const struct engine_run *run = f->run;
    const struct recurrent *r = run->recurrent;
    int cut = run->n;
    float *keep = recurrent_keep(r, layer->nth, run->position, run->n, &cut);
    if (!keep) cut = run->n;
    for (int head; (head = take(f, r->n_heads)) >= 0;) {
        const struct delta_head h = engine_delta_head(f->e, r, layer, head);
        const struct delta_rows before = engine_delta_rows(f->e, 0, head);
        delta_prefill(&h, &before, cut, f->w->delta);
        if (keep)
            memcpy(recurrent_matrix(r, keep, head), h.state,
                   (size_t)r->key_dim * (size_t)r->value_stride * sizeof *h.state);
        const struct delta_rows rest = engine_delta_rows(f->e, cut, head);
        delta_prefill(&h, &rest, run->n - cut, f->w->delta);
    }
}

/* Of projected: keys and values go where attention looks, a DeltaNet's channels are convolved. */
static void prepare_mixer(const struct prefill *f, const struct prefill *wanted,
                          const struct layer_weights *layer) {
    if (layer->kind == LAYER_DELTA)
        convolve(f, layer);
    else
        store_keys_values(f, wanted, layer);
}

/* mixed = attention of the rows that are wanted, or the DeltaNet, whose state takes all. */
static void mix(const struct prefill *f, const struct prefill *wanted,
                const struct layer_weights *layer) {
    if (layer->kind == LAYER_DELTA)
        run_delta(f, layer);
    else
        attend(wanted, layer);
}

static void round_mixed(const struct prefill *f, const struct layer_weights *layer) {
    const struct engine *e = f->e;
    for (struct piece p; take_positions(f, &p);)
        for (; p.first < p.last; p.first++) {
            const float *row = e->mixed + (size_t)p.first * (size_t)e->mixed_dim;
            if (layer->kind == LAYER_DELTA) {
                engine_gated_norm(e, &layer->delta, p.first, f->w->values);
                row = f->w->values;
            }
            set_row(e, p.first, row, layer->o.columns);
        }
}

/* Logits of all positions: tiles of the head, straight to where the caller wants them. */
static void all_logits(const struct prefill *f) {
    const struct engine *e = f->e;
    const struct matrix *head = &e->weights->head;
    norm_rows(f, e->weights->final_norm, NULL);
    if (!barrier(f)) return;
    const struct tile_input input = input_rows(f);
    int part, first;
    while (take_tile(f, &head, 1, &part, &first)) {
        tile_product(&e->kernels, head, first, PANELS, &input, &f->w->tile, f->w->tile.c);
        int n = int_min(TILE_ROWS, head->rows - first);
        for (int i = 0; i < f->run->n; i++)
            memcpy(f->run->out + (size_t)i * (size_t)head->rows + (size_t)first,
                   f->w->tile.c + (size_t)i * TILE_ROWS, (size_t)n * sizeof(float));
    }
}

static void all_hidden(const struct prefill *f) {
    const struct engine *e = f->e;
    const size_t hidden = (size_t)e->config->hidden;
    norm_rows(f, e->weights->final_norm, NULL);
    if (!barrier(f)) return;
    for (struct piece p; take_positions(f, &p);)
        for (; p.first < p.last; p.first++)
            for (size_t i = 0; i < hidden; i++)
                f->run->out[(size_t)p.first * hidden + i] =
                    bf16_to_f32(e->rows[(size_t)p.first * e->row_stride + i]);
}

/* The final norm of each text's last row. */
static void text_vectors(const struct prefill *f) {
    const struct engine *e = f->e;
    const int hidden = e->config->hidden;
    for (int i; (i = take(f, f->n_texts)) >= 0;) {
        const struct run_text *t = &f->texts[i];
        if (!t->out) continue;
        e->kernels.norm(e->x + (size_t)(t->row + t->n - 1) * (size_t)hidden, e->weights->final_norm,
                        hidden, e->config->rms_eps, t->out);
    }
}

/* False as thread_pool_barrier. */
static bool keep_hidden(const struct prefill *f) {
    const struct engine *e = f->e;
    const int hidden = e->config->hidden;
    if (!f->run->hidden || e->taps) return true;
    for (struct piece p; take_positions(f, &p);)
        for (; p.first < p.last; p.first++) {
            const size_t row = (size_t)p.first * (size_t)hidden;
            e->kernels.norm(e->x + row, e->weights->final_norm, hidden, e->config->rms_eps,
                            f->run->hidden + row);
        }
    return barrier(f);
}

static void output(const struct prefill *f) {
    const struct engine *e = f->e;
    if (!keep_hidden(f)) return;
    if (f->run->texts) {
        text_vectors(f);
        return;
    }
    switch (f->run->output) {
    case REEL_OUTPUT_NONE:
        return;
    case REEL_OUTPUT_ALL_LOGITS:
        all_logits(f);
        return;
    case REEL_OUTPUT_ALL_HIDDEN:
        all_hidden(f);
        return;
    case REEL_OUTPUT_LAST_LOGITS:
    case REEL_OUTPUT_LAST_HIDDEN:
        engine_output(f->run, f->w, e->x + (size_t)(f->run->n - 1) * (size_t)e->config->hidden,
                      f->run->out);
        return;
    }
}

/* The first row that the last layer has to make: nothing is asked of those before it, which leave
 * only what later positions see of them. n: of none. */
static int first_wanted(const struct engine_run *run) {
    if (run->texts || run->hidden) return 0;
    switch (run->output) {
    case REEL_OUTPUT_NONE:
        return run->n;
    case REEL_OUTPUT_LAST_LOGITS:
    case REEL_OUTPUT_LAST_HIDDEN:
        return run->n - 1;
    case REEL_OUTPUT_ALL_LOGITS:
    case REEL_OUTPUT_ALL_HIDDEN:
        break;
    }
    return 0;
}

/* x = the layer's of the rows that are wanted, which are the last of all. False: the others have
 * finished the chunk, or given it up, without this thread. */
static bool run_layer(const struct prefill *f, const struct prefill *wanted,
                      const struct layer_weights *layer) {
    const struct tile_input rows = input_rows(wanted), gated = input_gated(wanted);
    norm_rows(f, layer->attn_norm, layer);
    if (!barrier(f)) return false;
    multiply_projections(f, wanted, layer);
    if (!barrier(f)) return false;
    prepare_mixer(f, wanted, layer);
    if (!barrier(f)) return false;
    /* Without rows attention and what follows have no pieces, and such a phase never ends. */
    if (rows_of(wanted) == 0 && layer->kind != LAYER_DELTA) return true;
    mix(f, wanted, layer);
    if (!barrier(f)) return false;
    if (rows_of(wanted) == 0) return true;
    round_mixed(wanted, layer);
    if (!barrier(f)) return false;
    multiply_into_x(wanted, &layer->o, &rows);
    if (!barrier(f)) return false;
    norm_rows(wanted, layer->ffn_norm, NULL);
    if (!barrier(f)) return false;
    multiply_gated(wanted, layer);
    if (!barrier(f)) return false;
    multiply_into_x(wanted, &layer->down, &gated);
    return barrier(f);
}

static void enter(const struct prefill *f) {
    for (struct piece p; take_positions(f, &p);) {
        const struct run_text *t = f->texts, *last = t + f->n_texts - 1;
        for (; p.first < p.last; p.first++) {
            while (t < last && p.first >= t->row + t->n)
                t++;
            engine_enter(f->run, p.first, t->position + p.first - t->row);
        }
    }
}

void prefill_region(void *user, int thread, int n_threads) {
    struct engine_run *run = user;
    const struct engine *e = run->engine;
    const struct run_text whole = { .n = run->n, .position = run->position };
    const struct prefill f = { run,
                               e,
                               &e->workers[thread],
                               thread,
                               n_threads,
                               run->texts ? run->texts : &whole,
                               run->texts ? run->n_texts : 1,
                               0 };
    const int from = first_wanted(run), last_layer = e->config->n_layers - 1;
    const struct run_text end = { .row = from,
                                  .n = run->n - from,
                                  .position = run->position + from };
    struct prefill wanted = f;
    if (from > 0) {
        wanted.texts = &end;
        wanted.from = from;
    }
    enter(&f);
    if (!barrier(&f)) return;
    for (int i = 0; i <= last_layer; i++) {
        if (thread == 0 && run->cancel && atomic_load(run->cancel)) {
            run->cancelled = true;
            return; /* the others find the region closed */
        }
        if (!run_layer(&f, i == last_layer ? &wanted : &f, &e->weights->layers[i])) return;
    }
    output(&f);
}
