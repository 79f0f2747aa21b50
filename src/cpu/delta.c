#include "cpu/delta.h"

#include "model/model_config.h"

#include <math.h>
#include <string.h>

#define L2_EPS 1e-6f

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The logarithm of what the state is multiplied with, never above 0. */
static float log_decay(const struct delta_head *h, float a) {
    float x = a + h->dt_bias;
    return -h->rate * (x > 20 ? x : log1pf(expf(x)));
}

/* x / sqrt(sum(x^2) + eps), times what is in the gains: mean and eps are both divided by n. */
static void l2_norm(const struct delta_head *h, const float *x, const float *gains, float *out) {
    h->kernels->norm(x, gains, h->key_dim, L2_EPS / (float)h->key_dim, out);
}

/* state: of the columns alone, rows `stride` apart. */
static void decode_columns(const struct delta_head *h, const struct delta_rows *row, int first,
                           int n, float *state, size_t stride) {
    float q[MODEL_MAX_HEAD_DIM], k[MODEL_MAX_HEAD_DIM];
    float v[DELTA_COLUMNS] = { 0 }, out[DELTA_COLUMNS], kq = 0;
    const int used = h->value_dim - first < n ? h->value_dim - first : n;
    l2_norm(h, row->q, h->q_scale, q);
    l2_norm(h, row->k, h->k_scale, k);
    for (int i = 0; i < h->key_dim; i++)
        kq += k[i] * q[i];
    memcpy(v, row->v + first, (size_t)used * sizeof *v);
    h->kernels->delta_step(&(struct delta_step){
        .state = state,
        .stride = stride,
        .key_dim = h->key_dim,
        .columns = n,
        .q = q,
        .k = k,
        .v = v,
        .kq = kq,
        .alpha = expf(log_decay(h, row->a[0])),
        .beta = sigmoid(row->b[0]),
        .out = out,
    });
    memcpy(row->out + first, out, (size_t)used * sizeof *out);
}

void delta_decode(const struct delta_head *h, const struct delta_rows *row, int first, int n) {
    decode_columns(h, row, first, n, h->state + first, (size_t)h->value_stride);
}

void delta_try(const struct delta_head *h, const struct delta_rows *rows, int n_rows, int first,
               int n, float *scratch) {
    struct delta_rows row = *rows;
    for (size_t i = 0; i < (size_t)h->key_dim; i++)
        memcpy(scratch + i * (size_t)n, h->state + i * (size_t)h->value_stride + first,
               (size_t)n * sizeof *scratch);
    for (int i = 0; i < n_rows; i++) {
        decode_columns(h, &row, first, n, scratch, (size_t)n);
        row.q += rows->row_stride, row.k += rows->row_stride, row.v += rows->row_stride;
        row.b += rows->row_stride, row.a += rows->row_stride;
        row.out += rows->out_stride;
    }
}

/* ---- many positions -------------------------------------------------------------------------- */

/* Of one chunk; rows are positions. */
struct chunk {
    int n;
    float *q, *k;     /* [CHUNK, key_dim] normed */
    float *k_columns; /* [key_dim, CHUNK] k turned; 0 beyond n */
    float *learned;   /* [CHUNK, value_stride] what the state is told: beta (v - what it says) */
    float *out;       /* [CHUNK, value_stride] */
    float *among, *asked; /* [CHUNK, CHUNK] -beta k_i . k_j and q_i . k_j, decayed from j to i */
    /* log, from the chunk's start through each position: where a position forgets nearly all, these
     * grow into the thousands, and only their differences matter */
    double decay[T_DELTA_CHUNK];
    float beta[T_DELTA_CHUNK];
};

_Static_assert(DELTA_COLUMNS <= 3 * T_DELTA_CHUNK, "delta_try's columns fit into the scratch");

size_t delta_scratch_floats(int key_dim, int value_stride) {
    return (size_t)T_DELTA_CHUNK *
           (3 * (size_t)key_dim + 2 * (size_t)value_stride + 2 * T_DELTA_CHUNK);
}

static struct chunk place(const struct delta_head *h, float *scratch) {
    const size_t keys = (size_t)T_DELTA_CHUNK * (size_t)h->key_dim;
    const size_t values = (size_t)T_DELTA_CHUNK * (size_t)h->value_stride;
    struct chunk c = { .q = scratch };
    c.k = c.q + keys;
    c.k_columns = c.k + keys;
    c.learned = c.k_columns + keys;
    c.out = c.learned + values;
    c.among = c.out + values;
    c.asked = c.among + T_DELTA_CHUNK * T_DELTA_CHUNK;
    return c;
}

static void take_chunk(const struct delta_head *h, const struct delta_rows *rows, int first,
                       struct chunk *c) {
    double decay = 0;
    memset(c->k_columns, 0, (size_t)h->key_dim * T_DELTA_CHUNK * sizeof *c->k_columns);
    for (int i = 0; i < c->n; i++) {
        const size_t at = (size_t)(first + i) * rows->row_stride;
        float *k = c->k + (size_t)i * (size_t)h->key_dim;
        l2_norm(h, rows->q + at, h->q_scale, c->q + (size_t)i * (size_t)h->key_dim);
        l2_norm(h, rows->k + at, h->k_scale, k);
        for (int d = 0; d < h->key_dim; d++)
            c->k_columns[(size_t)d * T_DELTA_CHUNK + (size_t)i] = k[d];
        decay += (double)log_decay(h, rows->a[at]);
        c->decay[i] = decay;
        c->beta[i] = sigmoid(rows->b[at]);
    }
}

/* out[m, n] (+)= a . b, all of the chunk's matrices. */
static void multiply(const struct delta_head *h, int m, int n, int k, const float *a,
                     size_t a_stride, const float *b, float *out, bool accumulate) {
    h->kernels->gemm_f32(&(struct gemm_f32){ .m = m,
                                             .n = n,
                                             .k = k,
                                             .a = a,
                                             .a_stride = a_stride,
                                             .b = b,
                                             .b_stride = (size_t)n,
                                             .c = out,
                                             .c_stride = (size_t)n,
                                             .accumulate = accumulate });
}

/* among and asked. Differences of decays are formed before the exponential: none is above 0. */
static void relate(const struct delta_head *h, const struct chunk *c) {
    const size_t keys = (size_t)h->key_dim;
    multiply(h, c->n, T_DELTA_CHUNK, h->key_dim, c->k, keys, c->k_columns, c->among, false);
    multiply(h, c->n, T_DELTA_CHUNK, h->key_dim, c->q, keys, c->k_columns, c->asked, false);
    for (int i = 0; i < c->n; i++) {
        float *among = c->among + i * T_DELTA_CHUNK, *asked = c->asked + i * T_DELTA_CHUNK;
        for (int j = 0; j < i; j++) {
            float decayed = expf((float)(c->decay[i] - c->decay[j]));
            among[j] *= -c->beta[i] * decayed;
            asked[j] *= decayed;
        }
        memset(asked + i + 1, 0, (size_t)(T_DELTA_CHUNK - i - 1) * sizeof *asked);
    }
}

/* learned: what each position adds to the state, which the positions before it in the chunk have
 * changed: (I - among) learned = beta (v - decayed k . state), solved from the top. */
static void learn(const struct delta_head *h, const struct delta_rows *rows, int first,
                  const struct chunk *c) {
    const int width = h->value_stride;
    multiply(h, c->n, width, h->key_dim, c->k, (size_t)h->key_dim, h->state, c->learned, false);
    for (int i = 0; i < c->n; i++) {
        const float *v = rows->v + (size_t)(first + i) * rows->row_stride;
        const float decayed = expf((float)c->decay[i]), beta = c->beta[i];
        float *learned = c->learned + (size_t)i * (size_t)width;
        for (int d = 0; d < h->value_dim; d++)
            learned[d] = beta * (v[d] - decayed * learned[d]);
        multiply(h, 1, width, i, c->among + i * T_DELTA_CHUNK, T_DELTA_CHUNK, c->learned, learned,
                 true);
    }
}

static void answer(const struct delta_head *h, const struct delta_rows *rows, int first,
                   const struct chunk *c) {
    const int width = h->value_stride;
    multiply(h, c->n, width, h->key_dim, c->q, (size_t)h->key_dim, h->state, c->out, false);
    for (int i = 0; i < c->n; i++)
        h->kernels->scale(c->out + (size_t)i * (size_t)width, expf((float)c->decay[i]), width);
    multiply(h, c->n, width, c->n, c->asked, T_DELTA_CHUNK, c->learned, c->out, true);
    for (int i = 0; i < c->n; i++)
        memcpy(rows->out + (size_t)(first + i) * rows->out_stride,
               c->out + (size_t)i * (size_t)width, (size_t)h->value_dim * sizeof *c->out);
}

static void remember(const struct delta_head *h, const struct chunk *c) {
    const int width = h->value_stride;
    const double whole = c->decay[c->n - 1];
    for (int i = 0; i < c->n; i++)
        h->kernels->scale(c->learned + (size_t)i * (size_t)width,
                          expf((float)(whole - c->decay[i])), width);
    h->kernels->scale(h->state, expf((float)whole), h->key_dim * width);
    multiply(h, h->key_dim, width, c->n, c->k_columns, T_DELTA_CHUNK, c->learned, h->state, true);
}

void delta_prefill(const struct delta_head *h, const struct delta_rows *rows, int n,
                   float *scratch) {
    struct chunk c = place(h, scratch);
    for (int first = 0; first < n; first += c.n) {
        c.n = n - first < T_DELTA_CHUNK ? n - first : T_DELTA_CHUNK;
        take_chunk(h, rows, first, &c);
        relate(h, &c);
        learn(h, rows, first, &c);
        answer(h, rows, first, &c);
        remember(h, &c);
    }
}
