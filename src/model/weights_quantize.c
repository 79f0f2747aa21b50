#include "model/weights_quantize.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/thread_pool.h"

#include <stdio.h>
#include <string.h>

/* Rows that a thread takes at once. */
#define PIECE_ROWS 16

/* ---- which matrices -------------------------------------------------------------------------- */

struct lister {
    struct wide_matrix *out;
    int n;
};

static void list(struct lister *l, struct matrix *matrix, const char *what, int layer) {
    if (l->out) l->out[l->n] = (struct wide_matrix){ matrix, what, layer };
    l->n++;
}

static void list_layer(struct lister *l, struct layer_weights *w, int layer) {
    if (w->kind == LAYER_DELTA) {
        list(l, &w->delta.qkv, "qkv", layer);
        list(l, &w->delta.z, "z", layer);
    } else {
        list(l, &w->q, "q", layer);
        list(l, &w->k, "k", layer);
        list(l, &w->v, "v", layer);
    }
    list(l, &w->o, "output", layer);
    list(l, &w->gate, "gate", layer);
    list(l, &w->up, "up", layer);
    list(l, &w->down, "down", layer);
}

static bool is_tied(const struct weights *w) { return w->head.data == w->embedding.data; }

int weights_list(struct weights *weights, struct wide_matrix *out) {
    struct lister l = { .out = out };
    list(&l, &weights->embedding, "embedding", -1);
    for (int i = 0; i < weights->n_layers; i++)
        list_layer(&l, &weights->layers[i], i);
    if (!is_tied(weights)) list(&l, &weights->head, "head", -1);
    return l.n;
}

enum weight_form weights_form_of(const struct wide_matrix *matrix, enum weight_form form) {
    return form == WEIGHTS_INT4 && matrix->layer < 0 ? WEIGHTS_INT8 : form;
}

/* ---- one matrix ------------------------------------------------------------------------------ */

/* The work of all threads on one matrix. */
struct job {
    struct thread_pool *pool;
    const struct matrix *from;
    struct quantized_matrix *to;
    struct quantize_shape shape;   /* without columns: to bf16 */
    struct quantize_error *errors; /* [rows], added up in their order afterwards */
    bool *good;                    /* [rows] false: one holds what is no finite number */
    float *rows;                   /* [threads, row_floats] */
    size_t row_floats;
};

static void make_row(const struct job *job, float *row, int r) {
    const struct quantized_matrix *to = job->to;
    unsigned char *codes = to->codes + (size_t)r * to->matrix.row_bytes;
    matrix_row_f32(job->from, r, row);
    if (to->planes) {
        uint16_t *scales = to->scales + (size_t)r * (size_t)job->shape.scales;
        job->good[r] = quantize_row(&job->shape, row, true, codes, scales, &job->errors[r]);
        return;
    }
    for (int k = 0; k < job->from->columns; k++) {
        const uint16_t x = bf16_from_f32(row[k]);
        memcpy(codes + 2 * (size_t)k, &x, sizeof x);
    }
    job->good[r] = true;
}

static void make_rows(void *user, int thread, int n_threads) {
    const struct job *job = user;
    float *row = job->rows + (size_t)thread * job->row_floats;
    const int rows = job->from->rows, n = (rows + PIECE_ROWS - 1) / PIECE_ROWS;
    (void)n_threads;
    for (int i; (i = thread_pool_take(job->pool, thread, n)) >= 0;)
        for (int r = i * PIECE_ROWS; r < rows && r < (i + 1) * PIECE_ROWS; r++)
            make_row(job, row, r);
}

/* Room for the codes, and the matrix that they make. */
static enum reel_status start_matrix(struct job *job, const char *name, enum weight_form form,
                                     struct reel_error *err) {
    const struct matrix *from = job->from;
    struct quantized_matrix *to = job->to;
    const size_t rows = (size_t)from->rows;
    to->matrix = (struct matrix){ .dtype = DTYPE_BF16,
                                  .rows = from->rows,
                                  .columns = from->columns,
                                  .row_bytes = 2 * (size_t)from->columns };
    enum reel_status status = REEL_OK;
    if (form != WEIGHTS_BF16) {
        if (!quantize_shape_fill(&job->shape, form, from->columns))
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: rows of %d: int4 has a scale for 128, 64 or 32 columns, and none "
                           "of them divides that",
                           name, from->columns);
        to->matrix.row_bytes = job->shape.row_bytes;
        status = mem_zeroed(&to->planes, 1, sizeof *to->planes, "narrow weights", err);
        if (status == REEL_OK)
            status = mem_aligned(&to->scales, rows * (size_t)job->shape.scales, sizeof *to->scales,
                                 "scales of narrow weights", err);
    }
    if (status == REEL_OK)
        status = mem_aligned(&to->codes, rows, to->matrix.row_bytes, "narrow weights", err);
    if (status != REEL_OK) return status;
    to->matrix.data = to->codes;
    if (form == WEIGHTS_BF16) return REEL_OK;
    quantize_planes_fill(to->planes, &job->shape);
    to->planes->scales.data = (const unsigned char *)to->scales;
    to->matrix.planes = to->planes;
    return REEL_OK;
}

/* The rows' errors in their order. */
static enum reel_status add_errors(const struct job *job, const char *name,
                                   struct reel_error *err) {
    for (int r = 0; r < job->from->rows; r++) {
        if (!job->good[r])
            return err_set(err, REEL_E_FORMAT,
                           "%s: row %d holds a weight that is no finite number, which has no code",
                           name, r);
        job->to->error.lost += job->errors[r].lost;
        job->to->error.all += job->errors[r].all;
    }
    return REEL_OK;
}

enum reel_status quantized_matrix_make(struct quantized_matrix *q, const struct matrix *from,
                                       const char *name, enum weight_form form,
                                       struct thread_pool *pool, struct reel_error *err) {
    struct job job = {
        .pool = pool, .from = from, .to = q, .row_floats = quantize_row_floats(from->columns)
    };
    const size_t rows = (size_t)from->rows, threads = (size_t)thread_pool_size(pool);
    *q = (struct quantized_matrix){ 0 };
    enum reel_status status = start_matrix(&job, name, form, err);
    if (status == REEL_OK)
        status = mem_zeroed(&job.errors, rows, sizeof *job.errors, "errors of weights", err);
    if (status == REEL_OK)
        status = mem_zeroed(&job.good, rows, sizeof *job.good, "rows of weights", err);
    if (status == REEL_OK) /* zeros behind the columns, which nobody overwrites */
        status = mem_aligned(&job.rows, threads * job.row_floats, sizeof *job.rows,
                             "rows of weights", err);
    if (status == REEL_OK) {
        thread_pool_run(pool, make_rows, &job);
        status = add_errors(&job, name, err);
    }
    mem_free(job.errors);
    mem_free(job.good);
    mem_free(job.rows);
    if (status != REEL_OK) quantized_matrix_release(q);
    return status;
}

void quantized_matrix_release(struct quantized_matrix *q) {
    mem_free(q->planes);
    mem_free(q->codes);
    mem_free(q->scales);
    *q = (struct quantized_matrix){ 0 };
}

/* ---- all of a model -------------------------------------------------------------------------- */

static uint64_t plane_bytes(const struct matrix *m, const struct matrix_plane *p) {
    if (!p->data) return 0;
    return ((uint64_t)m->rows + (uint64_t)p->rows - 1) / (uint64_t)p->rows * p->row_bytes;
}

static uint64_t matrix_bytes(const struct matrix *m) {
    uint64_t bytes = (uint64_t)m->rows * m->row_bytes;
    if (m->planes) bytes += plane_bytes(m, &m->planes->scales) + plane_bytes(m, &m->planes->zeros);
    return bytes;
}

/* Whole bits that a weight takes, without those of planes. */
static size_t whole_bits(const struct matrix *m) { return m->row_bytes * 8 / (size_t)m->columns; }

static bool is_bf16(const struct matrix *m) { return !m->planes && m->dtype == DTYPE_BF16; }

static bool stays(const struct matrix *m, enum weight_form form) {
    if (form == WEIGHTS_BF16) return is_bf16(m);
    return whole_bits(m) <= (form == WEIGHTS_INT4 ? 4 : 8);
}

struct making {
    struct quantized_weights *q;
    struct wide_matrix *all; /* [n] */
    int n;
    struct thread_pool *pool;
    const struct quantize_options *options;
    uint64_t done, bytes; /* of what is read */
};

static enum reel_status check_any(const struct making *m, struct reel_error *err) {
    const enum weight_form form = m->options->form;
    for (int i = 0; i < m->n; i++)
        if (!stays(m->all[i].matrix, weights_form_of(&m->all[i], form))) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "%s: %s weights: the file's own take no more bits already, every one",
                   m->options->name, weight_form_name(form));
}

static enum reel_status make_one(struct making *m, const struct wide_matrix *wide,
                                 struct reel_error *err) {
    struct quantized_weights *q = m->q;
    const struct quantize_options *o = m->options;
    const enum weight_form form = weights_form_of(wide, o->form);
    struct quantized_matrix *to = &q->list[q->n];
    char name[400];
    m->done += matrix_bytes(wide->matrix);
    if (stays(wide->matrix, form)) {
        q->n_kept += form != WEIGHTS_BF16;
        return REEL_OK;
    }
    if (o->progress && !o->progress(o->progress_user, "quantizing", m->done, m->bytes))
        return err_set(err, REEL_E_CANCELLED, "%s: cancelled while quantizing", o->name);
    if (wide->layer < 0)
        snprintf(name, sizeof name, "%.300s: the %s", o->name, wide->what);
    else
        snprintf(name, sizeof name, "%.300s: layer %d's %s", o->name, wide->layer, wide->what);
    enum reel_status status = quantized_matrix_make(to, wide->matrix, name, form, m->pool, err);
    if (status != REEL_OK) return status;
    q->error.lost += to->error.lost;
    q->error.all += to->error.all;
    q->n++;
    return REEL_OK;
}

/* Only when all are made: after an error the weights are as they were. */
static void put_in_place(struct weights *weights, const struct making *m) {
    const bool tied = is_tied(weights);
    int made = 0;
    for (int i = 0; i < m->n; i++) {
        struct matrix *matrix = m->all[i].matrix;
        if (stays(matrix, weights_form_of(&m->all[i], m->options->form))) continue;
        const struct matrix *narrow = &m->q->list[made++].matrix;
        weights->n_bytes = weights->n_bytes - matrix_bytes(matrix) + matrix_bytes(narrow);
        *matrix = *narrow;
    }
    if (tied) weights->head = weights->embedding;
}

enum reel_status weights_quantize(struct weights *weights, const struct quantize_options *options,
                                  struct reel_error *err) {
    struct making m = { .options = options, .n = weights_list(weights, NULL) };
    enum reel_status status =
        mem_zeroed(&m.all, (size_t)m.n, sizeof *m.all, "a list of matrices", err);
    if (status == REEL_OK) {
        weights_list(weights, m.all);
        for (int i = 0; i < m.n; i++)
            m.bytes += matrix_bytes(m.all[i].matrix);
        status = check_any(&m, err);
    }
    if (status == REEL_OK) status = mem_zeroed(&m.q, 1, sizeof *m.q, "narrow weights", err);
    if (status == REEL_OK)
        status = mem_zeroed(&m.q->list, (size_t)m.n, sizeof *m.q->list, "narrow weights", err);
    if (status == REEL_OK) status = thread_pool_open(&m.pool, options->n_threads, err);
    for (int i = 0; i < m.n && status == REEL_OK; i++)
        status = make_one(&m, &m.all[i], err);
    if (status == REEL_OK) {
        m.q->form = options->form;
        put_in_place(weights, &m);
        weights->quantized = m.q;
        m.q = NULL;
    }
    thread_pool_close(m.pool);
    quantized_weights_release(m.q);
    mem_free(m.all);
    return status;
}

void quantized_weights_release(struct quantized_weights *q) {
    if (!q) return;
    for (int i = 0; i < q->n; i++)
        quantized_matrix_release(&q->list[i]);
    mem_free(q->list);
    mem_free(q);
}
