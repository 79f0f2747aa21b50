/* Weights from the mapped file into the tapes.
 *
 * Rows go through a few staging buffers in turn: host threads copy (or widen and round) them into
 * pinned memory, the copy engine takes them to the device, and a kernel winds them to their places.
 * While one buffer is on its way the next is filled, so that the slowest of the three decides; no
 * more than the staging buffers is held besides the tapes. */
#include "cuda/run/cuda_load.h"

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_share.h"
#include "cuda/run/narrow_rows.h"
#include "plan/plan_layout.h"

#include <assert.h>
#include <string.h>

enum { WIND_BLOCKS_A_SM = 8, MOST_LOAD_THREADS = 8 };
/* The embedding matrix of an untied model stays row by row: no phase of the tape. */
enum { PHASE_EMBEDDING = -1 };

struct stage {
    void *host; /* pinned */
    cu_address device;
    struct cu_stream *stream;
};

struct loader {
    struct backend *b;
    const struct backend_options *options;
    struct cuda_function wind;
    struct stage stage[GPU_STAGES];
    int next; /* stage */
    size_t stage_bytes;
    struct thread_pool *pool;
    float *rows; /* f32 [threads][widest matrix]: rows on their way to what is staged */
    size_t row_floats;
    uint64_t done, total; /* bytes on the device */
};

/* A matrix and where its rows go. */
struct source {
    const struct matrix *m;
    int phase, layer;
    int first_row; /* of its first row among the phase's */
};

/* A run of its rows, on the way into a stage. */
struct block {
    struct loader *loader;
    const struct source *source;
    unsigned char *to;
    int first, n_rows;
};

/* Bytes of a row on its way: what the winder reads, or a row of the embedding matrix. */
static size_t staged_row(const struct loader *l, const struct source *source) {
    const int columns = source->m->columns;
    if (source->phase == PHASE_EMBEDDING) return (size_t)columns * 2;
    return (size_t)tile_staged_bytes(l->b->plan.tape.segment[source->phase].format, columns);
}

/* ---- filling a stage ---- */

/* As many shares as there are threads: smaller ones went from core to core with their part of the
 * stage, and took longer. */
static void copy_share(const struct block *k, int thread, int n_threads) {
    const struct matrix *m = k->source->m;
    const size_t all = (size_t)k->n_rows * m->row_bytes, page = 4096;
    const size_t share = (all / (size_t)n_threads / page + 1) * page;
    const int n = (int)((all + share - 1) / share);
    for (int i; (i = thread_pool_take(k->loader->pool, thread, n)) >= 0;) {
        const size_t from = (size_t)i * share;
        memcpy(k->to + from, m->data + (size_t)k->first * m->row_bytes + from,
               all - from < share ? all - from : share);
    }
}

static void round_share(const struct block *k, int thread) {
    const struct matrix *m = k->source->m;
    float *row = k->loader->rows + (size_t)thread * k->loader->row_floats;
    for (int r; (r = thread_pool_take(k->loader->pool, thread, k->n_rows)) >= 0;) {
        uint16_t *to = (uint16_t *)(void *)k->to + (size_t)r * (size_t)m->columns;
        matrix_row_f32(m, k->first + r, row);
        for (int c = 0; c < m->columns; c++)
            to[c] = bf16_from_f32(row[c]);
    }
}

/* ---- narrow rows ---- */

/* Codes, scales and offsets of each row, as the winder reads them. */
static void narrow_share(const struct block *k, int thread) {
    const struct matrix *m = k->source->m;
    const int format = k->loader->b->plan.tape.segment[k->source->phase].format;
    float *numbers = k->loader->rows + (size_t)thread * k->loader->row_floats;
    struct matrix_codes codes;
    if (!matrix_codes(m, &codes)) return; /* the plan's format says that it is */
    assert((size_t)narrow_row_floats(&codes, m->columns) <= k->loader->row_floats);
    for (int r; (r = thread_pool_take(k->loader->pool, thread, k->n_rows)) >= 0;)
        narrow_row_stage(m, &codes, k->first + r, format, numbers,
                         k->to + (size_t)r * staged_row(k->loader, k->source));
}

/* Whether rows lie as they are staged, one right behind the other. */
static bool rows_are_staged(const struct matrix *m) {
    return !m->planes && m->dtype == DTYPE_BF16 && m->row_bytes == (size_t)m->columns * 2;
}

static void fill_share(void *user, int thread, int n_threads) {
    const struct block *k = user;
    const int phase = k->source->phase;
    if (phase != PHASE_EMBEDDING && TILE_NARROW(k->loader->b->plan.tape.segment[phase].format))
        narrow_share(k, thread);
    else if (rows_are_staged(k->source->m))
        copy_share(k, thread, n_threads);
    else
        round_share(k, thread);
}

/* ---- from a stage to its place ---- */

struct wind_launch {
    const struct backend *b;
    const struct wind_args *args;
    struct wind_args own;
    void *arguments[1];
};

static void **wind_args_of(void *user, int g) {
    struct wind_launch *w = user;
    w->own = *w->args;
    w->own.tape = cuda_pointer(cuda_share_tape(w->b, g));
    w->own.rows = cuda_pointer(cuda_on(&w->b->gpu, (cu_address)(uintptr_t)w->args->rows, g));
    w->own.first_sm = g * w->args->n_sms;
    w->arguments[0] = &w->own;
    return w->arguments;
}

static enum reel_status launch_wind(struct loader *l, const struct stage *stage,
                                    const struct block *k, struct reel_error *err) {
    const struct backend *b = l->b;
    struct wind_args args = { .tape = cuda_pointer(b->tape),
                              .rows = cuda_pointer(stage->device),
                              .phase = k->source->phase,
                              .layer = k->source->layer,
                              .first_row = k->source->first_row + k->first,
                              .n_rows = k->n_rows,
                              .columns = k->source->m->columns,
                              .n_sms = plan_gpu_sms(&b->plan),
                              .shape = b->plan.tape };
    struct wind_launch each = { .b = b, .args = &args };
    void *arguments[] = { &args };
    const int format = b->plan.tape.segment[k->source->phase].format;
    const int grain = TILE_NARROW(format) ? 4 : tile_grain(format); /* about a word of codes */
    const long long grains = (long long)k->n_rows * ((k->source->m->columns + grain - 1) / grain);
    const long long most = (long long)b->gpu.facts.n_sms * WIND_BLOCKS_A_SM;
    const long long blocks = (grains + WIND_THREADS - 1) / WIND_THREADS;
    const struct cuda_launch launch = { .function = &l->wind,
                                        .blocks = (int)(blocks < most ? blocks : most),
                                        .threads = WIND_THREADS,
                                        .arguments_of = wind_args_of,
                                        .user = &each,
                                        .stream = stage->stream,
                                        .arguments = arguments };
    return cuda_launch(&b->gpu, &launch, err);
}

static enum reel_status send_block(struct loader *l, const struct stage *stage,
                                   const struct block *k, struct reel_error *err) {
    const struct backend *b = l->b;
    const size_t row = staged_row(l, k->source), n = row * (size_t)k->n_rows;
    if (k->source->phase == PHASE_EMBEDDING)
        return cuda_upload(&b->gpu, b->embedding + (cu_address)(row * (size_t)k->first),
                           stage->host, n, stage->stream, err);
    enum reel_status status =
        cuda_upload(&b->gpu, stage->device, stage->host, n, stage->stream, err);
    return status == REEL_OK ? launch_wind(l, stage, k, err) : status;
}

static bool report_progress(const struct loader *l) {
    const struct backend_options *o = l->options;
    return !o->progress || o->progress(o->progress_user, "loading weights", l->done, l->total);
}

static enum reel_status load_matrix(struct loader *l, const struct source *source,
                                    struct reel_error *err) {
    const struct matrix *m = source->m;
    const size_t row = staged_row(l, source);
    const int most = (int)(l->stage_bytes / row);
    enum reel_status status = REEL_OK;
    for (int first = 0; first < m->rows && status == REEL_OK; first += most) {
        struct stage *stage = &l->stage[l->next];
        struct block k = { .loader = l, .source = source, .to = stage->host, .first = first };
        k.n_rows = m->rows - first < most ? m->rows - first : most;
        l->next = (l->next + 1) % GPU_STAGES;
        status = cuda_wait(&l->b->gpu, stage->stream, "loading weights", err);
        if (status != REEL_OK) break;
        thread_pool_run(l->pool, fill_share, &k);
        status = send_block(l, stage, &k, err);
        l->done += row * (size_t)k.n_rows;
        if (status == REEL_OK && !report_progress(l))
            status = err_set(err, REEL_E_CANCELLED, "cancelled while loading weights");
    }
    return status;
}

/* ---- all of them ---- */

enum { MOST_LAYER_SOURCES = 7 };

/* The matrices of a layer's tape; returns how many. */
static int layer_sources(const struct backend *b, int layer,
                         struct source sources[MOST_LAYER_SOURCES]) {
    const struct layer_weights *w = &b->model->weights.layers[layer];
    const int q = plan_q_rows(&b->plan), kv = plan_kv_rows(&b->plan);
    const struct source deltas[] = {
        { &w->delta.qkv, TAPE_MIX, layer, 0 },
        { &w->delta.z, TAPE_MIX, layer, w->delta.qkv.rows },
    };
    const struct source attention[] = {
        { &w->q, TAPE_QKV, layer, 0 },
        { &w->k, TAPE_QKV, layer, q },
        { &w->v, TAPE_QKV, layer, q + kv },
    };
    const struct source rest[] = {
        { &w->o, TAPE_OUT, layer, 0 },
        { &w->gate, TAPE_GATE_UP, layer, 0 },
        { &w->up, TAPE_GATE_UP, layer, w->gate.rows },
        { &w->down, TAPE_DOWN, layer, 0 },
    };
    const bool is_delta = w->kind == LAYER_DELTA;
    const size_t n = is_delta ? sizeof deltas : sizeof attention;
    memcpy(sources, is_delta ? deltas : attention, n);
    memcpy((char *)sources + n, rest, sizeof rest);
    return (int)((n + sizeof rest) / sizeof *sources);
}

static enum reel_status load_layer(struct loader *l, int layer, struct reel_error *err) {
    struct source all[MOST_LAYER_SOURCES];
    const int n = layer_sources(l->b, layer, all);
    enum reel_status status = REEL_OK;
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = load_matrix(l, &all[i], err);
    return status;
}

static enum reel_status load_weights(struct loader *l, struct reel_error *err) {
    const struct weights *w = &l->b->model->weights;
    enum reel_status status = REEL_OK;
    for (int layer = 0; layer < w->n_layers && status == REEL_OK; layer++)
        status = load_layer(l, layer, err);
    const struct source lm_head = { &w->head, TAPE_HEAD, 0, 0 };
    if (status == REEL_OK) status = load_matrix(l, &lm_head, err);
    const struct source embedding = { &w->embedding, PHASE_EMBEDDING, 0, 0 };
    if (status == REEL_OK && l->b->embedding) status = load_matrix(l, &embedding, err);
    return status;
}

static void count_source(struct loader *l, const struct source *source) {
    const struct matrix *m = source->m;
    const size_t row = staged_row(l, source);
    l->total += (uint64_t)m->rows * row;
    if ((size_t)m->columns > l->row_floats) l->row_floats = (size_t)m->columns;
    assert(row <= l->stage_bytes);
}

/* Bytes there are to load, and the widest row: a stage holds one at least. */
static void count_sources(struct loader *l) {
    const struct weights *w = &l->b->model->weights;
    for (int i = 0; i < w->n_layers; i++) {
        struct source all[MOST_LAYER_SOURCES];
        const int n = layer_sources(l->b, i, all);
        for (int j = 0; j < n; j++)
            count_source(l, &all[j]);
    }
    const struct source lm_head = { &w->head, TAPE_HEAD, 0, 0 };
    const struct source embedding = { &w->embedding, PHASE_EMBEDDING, 0, 0 };
    count_source(l, &lm_head);
    if (l->b->embedding) count_source(l, &embedding);
}

int cuda_load_threads(const struct cuda_tuning *tuning) {
    if (tuning->load_threads) return tuning->load_threads;
    const int n = thread_pool_cores();
    return n < MOST_LOAD_THREADS ? n : MOST_LOAD_THREADS;
}

static enum reel_status loader_open(struct loader *l, struct reel_error *err) {
    const struct cuda_gpu *gpu = &l->b->gpu;
    const struct gpu_memory_plan *m = &l->b->memory;
    const int n_threads = cuda_load_threads(&l->b->tuning);
    l->stage_bytes = (size_t)m->bytes[GPU_STAGING];
    count_sources(l);
    enum reel_status status = thread_pool_open(&l->pool, n_threads, err);
    if (status == REEL_OK)
        status = mem_aligned(&l->rows, (size_t)n_threads * l->row_floats, sizeof *l->rows,
                             "rows being loaded", err);
    for (int i = 0; i < GPU_STAGES && status == REEL_OK; i++) {
        struct stage *stage = &l->stage[i];
        cu_address mapped = 0;
        status = cuda_part_host_alloc(gpu, m, GPU_HOST_STAGING, &stage->host, &mapped, err);
        if (status == REEL_OK) status = cuda_part_alloc(gpu, m, GPU_STAGING, &stage->device, err);
        if (status == REEL_OK) status = cuda_stream_open(gpu, &stage->stream, err);
    }
    return status;
}

/* After a failure copies may still be on their way from what is freed here. */
static enum reel_status loader_close(struct loader *l, struct reel_error *err) {
    const struct cuda_gpu *gpu = &l->b->gpu;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < GPU_STAGES; i++) {
        struct stage *stage = &l->stage[i];
        if (stage->stream) {
            enum reel_status end =
                cuda_wait(gpu, stage->stream, "loading weights", status == REEL_OK ? err : NULL);
            if (status == REEL_OK) status = end;
        }
        cuda_stream_close(gpu, stage->stream);
        cuda_free(gpu, stage->device);
        cuda_host_free(gpu, stage->host);
    }
    thread_pool_close(l->pool);
    mem_free(l->rows);
    return status;
}

enum reel_status cuda_load(struct backend *b, const struct backend_options *options,
                           struct cu_module *wind_module, struct reel_error *err) {
    struct loader l = { .b = b, .options = options };
    enum reel_status status = cuda_function_find(&b->gpu, &l.wind, wind_module, "wind", err);
    if (status == REEL_OK) status = loader_open(&l, err);
    if (status == REEL_OK) status = load_weights(&l, err);
    enum reel_status end = loader_close(&l, status == REEL_OK ? err : NULL);
    return status == REEL_OK ? end : status;
}
