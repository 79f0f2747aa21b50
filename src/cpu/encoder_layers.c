/* Layers and projector over the tokens of a batch. Weights are unpacked once for all of them;
 * attention looks at one head of one window at a time. */
#include "base/numbers.h"
#include "cpu/encoder_work.h"

#include <math.h>
#include <string.h>

/* rows = norm(x) */
static void norm_rows(const struct encoder_turn *t, const struct audio_norm *norm) {
    const struct encoder *e = t->e;
    const int hidden = e->config->hidden, n = t->job->n_tokens;
    const int size = int_max(1, n / (4 * t->n_threads)); /* some four pieces a thread */
    for (int piece; (piece = encoder_take(t, (n + size - 1) / size)) >= 0;)
        for (int i = piece * size; i < int_min(n, (piece + 1) * size); i++) {
            const size_t at = (size_t)i * (size_t)hidden;
            e->kernels.layer_norm(e->x + at, norm->weight, norm->bias, hidden, M_AUDIO_NORM_EPS,
                                  t->w->values);
            e->kernels.round_bf16(t->w->values, hidden, e->rows + at);
        }
}

static const float *bias_of(const struct encoder_turn *t, const struct audio_linear *w, int first) {
    return (w->bias ? w->bias : t->e->zeros) + first;
}

/* to [tokens, stride] = w . rows + b */
static void multiply(const struct encoder_turn *t, const struct audio_linear *w, int first,
                     float *to, size_t stride) {
    const struct encoder *e = t->e;
    const int n = int_min(TILE_ROWS, w->weight.rows - first);
    encoder_tile(t, &w->weight, first, t->job->n_tokens, e->rows, (size_t)e->config->hidden);
    for (int i = 0; i < t->job->n_tokens; i++) {
        float *row = t->w->tile.c + (size_t)i * TILE_ROWS;
        e->kernels.add(row, bias_of(t, w, first), n);
        memcpy(to + (size_t)i * stride + (size_t)first, row, (size_t)n * sizeof *row);
    }
}

/* The first row of the next tile of a matrix that nobody has taken yet; below 0: there is none. */
static int take_tile(const struct encoder_turn *t, int rows) {
    return TILE_ROWS * encoder_take(t, (rows + TILE_ROWS - 1) / TILE_ROWS);
}

static void multiply_projections(const struct encoder_turn *t,
                                 const struct audio_layer_weights *l) {
    const struct audio_linear *const parts[] = { &l->q, &l->k, &l->v };
    const size_t hidden = (size_t)t->e->config->hidden;
    const int tiles = (t->e->config->hidden + TILE_ROWS - 1) / TILE_ROWS;
    for (int i; (i = encoder_take(t, 3 * tiles)) >= 0;)
        multiply(t, parts[i / tiles], i % tiles * TILE_ROWS,
                 t->e->projected + (size_t)(i / tiles) * hidden, 3 * hidden);
}

/* x += w . rows + b */
static void multiply_into_x(const struct encoder_turn *t, const struct audio_linear *w,
                            const uint16_t *rows, size_t stride) {
    const struct encoder *e = t->e;
    const int hidden = e->config->hidden;
    for (int first; (first = take_tile(t, hidden)) >= 0;) {
        const int n = int_min(TILE_ROWS, hidden - first);
        encoder_tile(t, &w->weight, first, t->job->n_tokens, rows, stride);
        for (int i = 0; i < t->job->n_tokens; i++) {
            float *row = t->w->tile.c + (size_t)i * TILE_ROWS;
            e->kernels.add(row, bias_of(t, w, first), n);
            e->kernels.add(e->x + (size_t)i * (size_t)hidden + (size_t)first, row, n);
        }
    }
}

/* wide = gelu(w . rows + b) */
static void multiply_gelu(const struct encoder_turn *t, const struct audio_linear *w) {
    const struct encoder *e = t->e;
    const int all = w->weight.rows;
    for (int first; (first = take_tile(t, all)) >= 0;) {
        const int n = int_min(TILE_ROWS, all - first);
        encoder_tile(t, &w->weight, first, t->job->n_tokens, e->rows, (size_t)e->config->hidden);
        for (int i = 0; i < t->job->n_tokens; i++) {
            float *row = t->w->tile.c + (size_t)i * TILE_ROWS;
            uint16_t *to = e->wide + (size_t)i * e->wide_stride + (size_t)first;
            e->kernels.gelu(row, bias_of(t, w, first), n, row);
            e->kernels.round_bf16(row, n, to);
            if (n & 1) to[n] = 0;
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* One head of one window. */
struct head {
    int first, n; /* tokens */
    int index;
};

/* Part 0, 1 or 2 of token i's projections: q, k or v of this head. */
static const float *part_of(const struct encoder *e, const struct head *h, int part, int i) {
    return e->projected + ((size_t)(h->first + i) * 3 + (size_t)part) * (size_t)e->config->hidden +
           (size_t)(h->index * e->head_dim);
}

static void place_queries(const struct encoder_turn *t, const struct head *h) {
    const struct encoder *e = t->e;
    for (int i = 0; i < h->n; i++)
        e->kernels.round_bf16(part_of(e, h, 0, i), e->head_dim,
                              t->w->q + (size_t)i * (size_t)e->head_pad);
}

static void place_keys(const struct encoder_turn *t, const struct head *h) {
    const struct encoder *e = t->e;
    const size_t pad = (size_t)e->head_pad;
    for (int i = 0; i < h->n; i += PANEL_LANES) {
        const int n = int_min(PANEL_LANES, h->n - i);
        for (int j = 0; j < n; j++)
            e->kernels.round_bf16(part_of(e, h, 1, i + j), e->head_dim, t->w->k + (size_t)j * pad);
        memset(t->w->k + (size_t)n * pad, 0, (size_t)(PANEL_LANES - n) * pad * sizeof *t->w->k);
        e->kernels.interleave((const unsigned char *)t->w->k, pad * sizeof *t->w->k, e->head_pad,
                              t->w->k_panels + (size_t)i * pad);
    }
}

/* Lanes are the entries of a head, pairs are those of tokens. */
static void place_values(const struct encoder_turn *t, const struct head *h) {
    const struct encoder *e = t->e;
    const size_t panel = (size_t)e->window_pad * PANEL_LANES;
    for (int i = 0; i < h->n; i++) {
        uint16_t *row = t->w->k; /* free again */
        e->kernels.round_bf16(part_of(e, h, 2, i), e->head_dim, row);
        uint16_t *to = t->w->v_panels + (size_t)(i / 2) * 2 * PANEL_LANES + (i & 1);
        for (int d = 0; d < e->head_dim; d++)
            to[(size_t)(d / PANEL_LANES) * panel + 2 * (size_t)(d % PANEL_LANES)] = row[d];
    }
    if (!(h->n & 1)) return;
    uint16_t *to = t->w->v_panels + (size_t)(h->n / 2) * 2 * PANEL_LANES + 1;
    for (int d = 0; d < e->head_pad; d++)
        to[(size_t)(d / PANEL_LANES) * panel + 2 * (size_t)(d % PANEL_LANES)] = 0;
}

/* rows of queries [first, first + n) of the window = softmax(scale q . k) v */
static void attend_rows(const struct encoder_turn *t, const struct head *h, int first, int n) {
    const struct encoder *e = t->e;
    const size_t pad = (size_t)e->head_pad, keys = (size_t)e->window_pad;
    const float scale = 1.0f / sqrtf((float)e->head_dim);
    float sum[T_QUERY_ROWS];
    e->kernels.gemm(&(struct gemm){ .m = n,
                                    .n_panels = (h->n + PANEL_LANES - 1) / PANEL_LANES,
                                    .k_pairs = e->head_pad / 2,
                                    .a = t->w->q + (size_t)first * pad,
                                    .a_stride = pad,
                                    .panels = t->w->k_panels,
                                    .panel_stride = pad * PANEL_LANES,
                                    .step_stride = 2 * PANEL_LANES,
                                    .c = t->w->scores,
                                    .c_stride = keys });
    for (int i = 0; i < n; i++) {
        float max = -INFINITY;
        sum[i] = 0;
        (void)e->kernels.softmax(t->w->scores + (size_t)i * keys, h->n, scale,
                                 t->w->p + (size_t)i * keys, &max, &sum[i]);
    }
    e->kernels.gemm(&(struct gemm){ .m = n,
                                    .n_panels = e->head_pad / PANEL_LANES,
                                    .k_pairs = (h->n + 1) / 2,
                                    .a = t->w->p,
                                    .a_stride = keys,
                                    .panels = t->w->v_panels,
                                    .panel_stride = keys * PANEL_LANES,
                                    .step_stride = 2 * PANEL_LANES,
                                    .c = t->w->out,
                                    .c_stride = pad });
    for (int i = 0; i < n; i++) {
        float *out = t->w->out + (size_t)i * pad;
        const size_t token = (size_t)(h->first + first + i);
        e->kernels.scale(out, 1.0f / sum[i], e->head_dim);
        e->kernels.round_bf16(out, e->head_dim,
                              e->rows + token * (size_t)e->config->hidden +
                                  (size_t)(h->index * e->head_dim));
    }
}

/* rows = attention of the projections. Pieces of work: windows times heads. */
static void attend(const struct encoder_turn *t) {
    const struct encoder *e = t->e;
    const int n = t->job->n_tokens, windows = (n + e->window - 1) / e->window;
    const int heads = e->config->n_heads;
    for (int item; (item = encoder_take(t, windows * heads)) >= 0;) {
        const int start = item / heads * e->window;
        const struct head h = { start, int_min(e->window, n - start), item % heads };
        place_queries(t, &h);
        place_keys(t, &h);
        place_values(t, &h);
        for (int first = 0; first < h.n; first += T_QUERY_ROWS)
            attend_rows(t, &h, first, int_min(T_QUERY_ROWS, h.n - first));
    }
}

/* ---- composition ----------------------------------------------------------------------------- */

static bool run_layer(const struct encoder_turn *t, const struct audio_layer_weights *l) {
    const struct encoder *e = t->e;
    norm_rows(t, &l->attn_norm);
    if (!encoder_barrier(t)) return false;
    multiply_projections(t, l);
    if (!encoder_barrier(t)) return false;
    attend(t);
    if (!encoder_barrier(t)) return false;
    multiply_into_x(t, &l->o, e->rows, (size_t)e->config->hidden);
    if (!encoder_barrier(t)) return false;
    norm_rows(t, &l->ffn_norm);
    if (!encoder_barrier(t)) return false;
    multiply_gelu(t, &l->fc1);
    if (!encoder_barrier(t)) return false;
    multiply_into_x(t, &l->fc2, e->wide, e->wide_stride);
    return encoder_barrier(t);
}

void encoder_layers(const struct encoder_turn *t) {
    const struct encoder *e = t->e;
    const struct audio_linear *last = &e->weights->proj2;
    for (int i = 0; i < e->weights->n_layers; i++)
        if (!run_layer(t, &e->weights->layers[i])) return;
    norm_rows(t, &e->weights->out_norm);
    if (!encoder_barrier(t)) return;
    multiply_gelu(t, &e->weights->proj1);
    if (!encoder_barrier(t)) return;
    const int n_out = last->weight.rows;
    for (int first; (first = take_tile(t, n_out)) >= 0;) {
        const int n = int_min(TILE_ROWS, n_out - first);
        encoder_tile(t, &last->weight, first, t->job->n_tokens, e->wide, e->wide_stride);
        for (int i = 0; i < t->job->n_tokens; i++) {
            float *row = t->w->tile.c + (size_t)i * TILE_ROWS;
            e->kernels.add(row, bias_of(t, last, first), n);
            memcpy(t->job->out + (size_t)i * (size_t)n_out + (size_t)first, row,
                   (size_t)n * sizeof *row);
        }
    }
}
