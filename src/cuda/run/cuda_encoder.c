/* The audio tower on the GPU: its weights as tiles, and the queue of launches that makes vectors of
 * log-mel frames. One run at a time; what it needs besides lies in the backend. */
#include "cuda/run/cuda_encoder.h"

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_fault.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_load.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_prefill.h"
#include "plan/plan_layout.h"

#include <string.h>

/* Of a block without a ring of stages. */
static int shared_without_ring(const struct plan *p) {
    return prefill_shared_bytes(0, p->prefill_k_places);
}

bool cuda_encodes(const struct backend *b) {
    return cuda_prefills(b) && b->plan.encoder.shape.layers > 0;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Which matrix of the checkpoint has row `row` of a product; its row there in *at. */
static const struct matrix *matrix_of(const struct audio_weights *w, int product, int layer,
                                      int *at) {
    const struct audio_layer_weights *l = &w->layers[layer];
    const struct audio_linear *const qkv[] = { &l->q, &l->k, &l->v };
    switch (product) {
    case ENC_CONV2:
        return &w->conv[1].weight;
    case ENC_CONV3:
        return &w->conv[2].weight;
    case ENC_CONV_OUT:
        return &w->conv_out;
    case ENC_QKV: {
        const int part = *at / l->q.weight.rows;
        *at %= l->q.weight.rows;
        return &qkv[part]->weight;
    }
    case ENC_OUT:
        return &l->o.weight;
    case ENC_FC1:
        return &l->fc1.weight;
    case ENC_FC2:
        return &l->fc2.weight;
    case ENC_PROJ1:
        return &w->proj1.weight;
    default:
        return &w->proj2.weight;
    }
}

/* Where column k of the checkpoint's matrix goes. There a convolution's are [channel][tap], and
 * those of conv_out [channel][bin]. */
static int column_of(const struct encoder_shape *s, int product, int k) {
    const int bins = enc_bins(s, 3);
    if (product <= ENC_CONV3) return k % ENC_TAPS * enc_blocks(s->channels) + k / ENC_TAPS;
    if (product == ENC_CONV_OUT) return k % bins * s->channels + k / bins;
    return k;
}

/* A product's weights on their way into tiles, its row tiles among threads. */
struct winding {
    const struct backend *b;
    struct thread_pool *pool;
    int product, layer;
    float *rows;      /* f32 [threads][row_floats] */
    uint16_t *staged; /* bf16, the same: a row with its columns where they go */
    size_t row_floats;
    unsigned char *tiles;
};

static void wind_row(const struct winding *w, int row, float *values, uint16_t *staged) {
    const struct encoder_shape *s = &w->b->plan.encoder.shape;
    const int columns = enc_columns(s, w->product), grain = tile_grain(s->format);
    const size_t tile = tile_bytes(s->format);
    unsigned char *to = w->tiles + (size_t)(row / TILE_ROWS * (columns / TILE_K)) * tile;
    int at = row;
    const struct matrix *m = matrix_of(&w->b->model->weights.audio, w->product, w->layer, &at);
    matrix_row_f32(m, at, values);
    memset(staged, 0, (size_t)columns * sizeof *staged);
    for (int k = 0; k < m->columns; k++)
        staged[column_of(s, w->product, k)] = bf16_from_f32(values[k]);
    for (int k = 0; k < columns; k += grain) {
        const unsigned made = tile_grain_make(s->format, staged + k, columns - k);
        memcpy(to + (size_t)(k / TILE_K) * tile + tile_grain_at(s->format, row, k), &made,
               sizeof made);
    }
}

static void wind_some(void *user, int thread, int n_threads) {
    const struct winding *w = user;
    const int n = enc_rows(&w->b->plan.encoder.shape, w->product);
    (void)n_threads;
    for (int tile;
         (tile = thread_pool_take(w->pool, thread, (n + TILE_ROWS - 1) / TILE_ROWS)) >= 0;)
        for (int i = tile * TILE_ROWS; i < (tile + 1) * TILE_ROWS && i < n; i++)
            wind_row(w, i, w->rows + (size_t)thread * w->row_floats,
                     w->staged + (size_t)thread * w->row_floats);
}

static enum reel_status upload_product(struct backend *b, struct winding *w,
                                       struct reel_error *err) {
    const struct encoder_shape *s = &b->plan.encoder.shape;
    const size_t bytes = (size_t)enc_product_bytes(s, w->product);
    enum reel_status status = mem_zeroed(&w->tiles, bytes, 1, "the audio tower's weights", err);
    if (status != REEL_OK) return status;
    thread_pool_run(w->pool, wind_some, w);
    status = cuda_upload(&b->gpu, b->encoder.weights + enc_weights_at(s, w->product, w->layer),
                         w->tiles, bytes, NULL, err);
    mem_free(w->tiles);
    return status;
}

static enum reel_status upload_weights(struct backend *b, struct reel_error *err) {
    const struct encoder_shape *s = &b->plan.encoder.shape;
    const int n_threads = cuda_load_threads(&b->tuning);
    struct winding w = { .b = b };
    for (int p = 0; p < ENC_PRODUCTS; p++)
        if ((size_t)enc_columns(s, p) > w.row_floats) w.row_floats = (size_t)enc_columns(s, p);
    enum reel_status status =
        mem_zeroed(&w.rows, (size_t)n_threads * w.row_floats, sizeof *w.rows, "rows", err);
    if (status == REEL_OK)
        status = mem_zeroed(&w.staged, (size_t)n_threads * w.row_floats, sizeof *w.staged,
                            "rounded rows", err);
    if (status == REEL_OK) status = thread_pool_open(&w.pool, n_threads, err);
    if (status == REEL_OK)
        status = cuda_part_alloc(&b->gpu, &b->memory, GPU_TOWER_WEIGHTS, &b->encoder.weights, err);
    for (w.product = 0; w.product < ENC_PRODUCTS; w.product++) {
        const int layers = w.product >= ENC_QKV && w.product <= ENC_FC2 ? s->layers : 1;
        for (w.layer = 0; w.layer < layers && status == REEL_OK; w.layer++)
            status = upload_product(b, &w, err);
    }
    thread_pool_close(w.pool);
    mem_free(w.rows);
    mem_free(w.staged);
    return status;
}

/* n numbers, or zeros. */
static void copy_numbers(float *to, const float *from, long n) {
    if (from) memcpy(to, from, (size_t)n * sizeof *to);
}

static void fill_layer(const struct encoder_shape *s, const struct audio_layer_weights *l,
                       int layer, float *all) {
    const long n = s->hidden;
    float *norm1 = all + enc_numbers_at(s, ENC_NORM1, layer);
    float *norm2 = all + enc_numbers_at(s, ENC_NORM2, layer);
    float *qkv = all + enc_numbers_at(s, ENC_QKV_BIAS, layer);
    copy_numbers(norm1, l->attn_norm.weight, n), copy_numbers(norm1 + n, l->attn_norm.bias, n);
    copy_numbers(norm2, l->ffn_norm.weight, n), copy_numbers(norm2 + n, l->ffn_norm.bias, n);
    copy_numbers(qkv, l->q.bias, n), copy_numbers(qkv + n, l->k.bias, n),
        copy_numbers(qkv + 2 * n, l->v.bias, n);
    copy_numbers(all + enc_numbers_at(s, ENC_OUT_BIAS, layer), l->o.bias, n);
    copy_numbers(all + enc_numbers_at(s, ENC_FC1_BIAS, layer), l->fc1.bias, s->intermediate);
    copy_numbers(all + enc_numbers_at(s, ENC_FC2_BIAS, layer), l->fc2.bias, n);
}

static void fill_numbers(const struct encoder_shape *s, const struct audio_weights *w, float *all) {
    float *last = all + enc_numbers_at(s, ENC_LAST_NORM, 0);
    float *taps = all + enc_numbers_at(s, ENC_CONV1_WEIGHTS, 0);
    float *positions = all + enc_numbers_at(s, ENC_POSITIONS, 0);
    for (int c = 0; c < s->channels; c++)
        matrix_row_f32(&w->conv[0].weight, c, taps + (long)c * ENC_TAPS);
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        copy_numbers(all + enc_numbers_at(s, ENC_CONV1_BIAS + i, 0), w->conv[i].bias, s->channels);
    for (int i = 0; i < ENC_TOKENS; i++)
        audio_position(i, s->hidden, positions + (long)i * s->hidden);
    for (int layer = 0; layer < s->layers; layer++)
        fill_layer(s, &w->layers[layer], layer, all);
    copy_numbers(last, w->out_norm.weight, s->hidden),
        copy_numbers(last + s->hidden, w->out_norm.bias, s->hidden);
    copy_numbers(all + enc_numbers_at(s, ENC_PROJ1_BIAS, 0), w->proj1.bias, s->hidden);
    copy_numbers(all + enc_numbers_at(s, ENC_PROJ2_BIAS, 0), w->proj2.bias, s->out);
}

static enum reel_status upload_numbers(struct backend *b, struct reel_error *err) {
    const struct encoder_shape *s = &b->plan.encoder.shape;
    const size_t n = (size_t)b->memory.bytes[GPU_TOWER_NUMBERS];
    float *all = NULL;
    enum reel_status status =
        mem_zeroed(&all, n / sizeof *all, sizeof *all, "the audio tower's norms", err);
    if (status != REEL_OK) return status;
    fill_numbers(s, &b->model->weights.audio, all);
    status = cuda_part_alloc(&b->gpu, &b->memory, GPU_TOWER_NUMBERS, &b->encoder.numbers, err);
    if (status == REEL_OK) status = cuda_upload(&b->gpu, b->encoder.numbers, all, n, NULL, err);
    mem_free(all);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

struct cuda_kernel_shape cuda_encoder_kernel(const struct backend *b, int kernel) {
    const struct plan *p = &b->plan;
    const int few = PLAN_PREFILL_CONSUMERS, many = p->prefill_threads, ring = p->prefill_shared;
    const struct cuda_kernel_shape kernels[CUDA_ENCODER_KERNELS] = {
        [ENCODER_HALVES] = { "encoder_halves", many, ring, 0 },
        [ENCODER_WIDE1] = { "encoder_wide1", many, ring, 0 },
        [ENCODER_WIDE2] = { "encoder_wide2", many, ring, 0 },
        [ENCODER_STEM] = { "encoder_stem", few, shared_without_ring(p), 0 },
        [ENCODER_NORM] = { "encoder_norm", few, shared_without_ring(p), 0 },
        [ENCODER_ATTENTION] = { "encoder_attention", few, shared_without_ring(p), 0 },
    };
    return kernels[kernel];
}

enum reel_status cuda_encoder_open(struct backend *b, struct reel_error *err) {
    struct cuda_encoder *e = &b->encoder;
    void *host = NULL;
    if (!cuda_encodes(b)) return REEL_OK;
    const struct gpu_memory_plan *m = &b->memory;
    const size_t scratch = (size_t)m->bytes[GPU_TOWER_SCRATCH];
    e->mutex_made = pthread_mutex_init(&e->mutex, NULL) == 0;
    if (!e->mutex_made) return err_memory(err, "a mutex", sizeof e->mutex);
    enum reel_status status =
        cuda_part_host_alloc(&b->gpu, m, GPU_TOWER_MAILBOX, &host, &e->mailbox_address, err);
    e->mailbox = host;
    if (status == REEL_OK)
        status = cuda_part_alloc(&b->gpu, m, GPU_TOWER_SCRATCH, &e->scratch, err);
    /* of neighbourhoods only what is there is ever written; columns without weights are numbers */
    if (status == REEL_OK) status = cuda_fill(&b->gpu, e->scratch, 0, scratch, NULL, err);
    if (status == REEL_OK) status = cuda_part_alloc(&b->gpu, m, GPU_TOWER_ABORT, &e->abort, err);
    if (status == REEL_OK) status = upload_numbers(b, err);
    return status == REEL_OK ? upload_weights(b, err) : status;
}

void cuda_encoder_close(struct backend *b) {
    struct cuda_encoder *e = &b->encoder;
    const cu_address all[] = { e->weights, e->numbers, e->scratch, e->abort };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cuda_free(&b->gpu, all[i]);
    cuda_host_free(&b->gpu, e->mailbox);
    cuda_module_unload(&b->gpu, e->module);
    if (e->mutex_made) pthread_mutex_destroy(&e->mutex);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Launches of one clip, or of a part of one in whole windows. */
struct queue {
    const struct backend *b;
    struct encoder_args args;
    int n_tokens, n_launched;
    enum reel_status status; /* of the first that failed */
    struct reel_error *err;
};

static void *scratch_at(const struct backend *b, uint64_t offset) {
    return cuda_pointer(b->encoder.scratch + offset);
}

static int whole_atoms(int n) { return (n + ATOM_TOKENS - 1) / ATOM_TOKENS * ATOM_TOKENS; }

static int chunk_positions(const struct encoder_shape *s, int convolutions) {
    return enc_bins(s, convolutions) * enc_frames(convolutions);
}

static void make_args(struct queue *q, int n_frames) {
    const struct backend *b = q->b;
    const struct plan_encoder *e = &b->plan.encoder;
    q->n_tokens = enc_tokens(n_frames);
    q->args =
        (struct encoder_args){ .weights = cuda_pointer(b->encoder.weights),
                               .numbers = cuda_pointer(b->encoder.numbers),
                               .features = scratch_at(b, e->features),
                               .n_frames = n_frames,
                               .taps2 = scratch_at(b, e->taps2),
                               .taps3 = scratch_at(b, e->taps3),
                               .room2 = whole_atoms(e->chunks * chunk_positions(&e->shape, 2)),
                               .room3 = whole_atoms(e->chunks * chunk_positions(&e->shape, 3)),
                               .room = whole_atoms(e->most_chunks * ENC_TOKENS),
                               .binned = scratch_at(b, e->binned),
                               .h = scratch_at(b, e->h),
                               .x = scratch_at(b, e->x),
                               .qkv = scratch_at(b, e->qkv),
                               .attended = scratch_at(b, e->attended),
                               .wide = scratch_at(b, e->wide),
                               .out = scratch_at(b, e->out) };
    q->args.base.decode.patience = b->tuning.patience;
    q->args.base.decode.mailbox = cuda_pointer(b->encoder.mailbox_address);
    q->args.base.decode.abort = cuda_pointer(b->encoder.abort);
}

static void launch_kernel(struct queue *q, int kernel, int phase, int layer, int n, int room) {
    const struct backend *b = q->b;
    const struct cuda_kernel_shape k = cuda_encoder_kernel(b, kernel);
    void *arguments[] = { &q->args, &phase, &layer };
    const struct cuda_launch launch = { .function = &b->encoder.kernels[kernel],
                                        .blocks = b->gpu.facts.n_sms,
                                        .threads = k.threads,
                                        .shared_bytes = k.shared_bytes,
                                        .overlaps = b->plan.copy == 2 && q->n_launched > 0,
                                        .arguments = arguments };
    if (q->status != REEL_OK) return;
    q->args.base.decode.n_tokens = n, q->args.base.room = room;
    q->status = cuda_launch(&b->gpu, &launch, q->err);
    q->n_launched++;
}

static void launch_product(struct queue *q, int product, int layer, int n, int room) {
    const struct prefill_cut cut = plan_encoder_cut(&q->b->plan, product, n);
    const int kernel = cut.split_k       ? ENCODER_HALVES
                       : cut.blocks == 1 ? ENCODER_WIDE1
                                         : ENCODER_WIDE2;
    launch_kernel(q, kernel, product, layer, n, room);
}

static void launch_stem(struct queue *q) {
    const struct plan_encoder *e = &q->b->plan.encoder;
    struct encoder_args *a = &q->args;
    const int n_chunks = (a->n_frames + ENC_FRAMES - 1) / ENC_FRAMES;
    for (int first = 0; first < n_chunks; first += e->chunks) {
        const int some = n_chunks - first < e->chunks ? n_chunks - first : e->chunks;
        const int n2 = some * chunk_positions(&e->shape, 2),
                  n3 = some * chunk_positions(&e->shape, 3);
        a->first_chunk = first;
        launch_kernel(q, ENCODER_STEM, 0, 0, n2, a->room2);
        launch_product(q, ENC_CONV2, 0, n2, a->room2);
        launch_product(q, ENC_CONV3, 0, n3, a->room3);
    }
}

static void launch_all(struct queue *q) {
    const int n = q->n_tokens, room = q->args.room, layers = q->b->plan.encoder.shape.layers;
    launch_stem(q);
    launch_product(q, ENC_CONV_OUT, 0, n, room);
    for (int layer = 0; layer < layers; layer++) {
        launch_kernel(q, ENCODER_NORM, ENC_NORM1, layer, n, room);
        launch_product(q, ENC_QKV, layer, n, room);
        launch_kernel(q, ENCODER_ATTENTION, 0, layer, n, room);
        launch_product(q, ENC_OUT, layer, n, room);
        launch_kernel(q, ENCODER_NORM, ENC_NORM2, layer, n, room);
        launch_product(q, ENC_FC1, layer, n, room);
        launch_product(q, ENC_FC2, layer, n, room);
    }
    launch_kernel(q, ENCODER_NORM, ENC_LAST_NORM, 0, n, room);
    launch_product(q, ENC_PROJ1, 0, n, room);
    launch_product(q, ENC_PROJ2, 0, n, room);
}

/* features: f32 [bins][n_frames]; b->encoder.mutex is held */
static enum reel_status run_part(struct backend *b, const float *features, int n_frames, float *out,
                                 struct reel_error *err) {
    const struct plan_encoder *e = &b->plan.encoder;
    struct queue q = { .b = b, .err = err };
    make_args(&q, n_frames);
    memset(b->encoder.mailbox, 0, sizeof *b->encoder.mailbox);
    const size_t n_abort = (size_t)b->memory.bytes[GPU_TOWER_ABORT];
    enum reel_status status = cuda_fill(&b->gpu, b->encoder.abort, 0, n_abort, NULL, err);
    if (status == REEL_OK)
        status =
            cuda_upload(&b->gpu, b->encoder.scratch + e->features, features,
                        (size_t)e->shape.bins * (size_t)n_frames * sizeof *features, NULL, err);
    if (status != REEL_OK) return status;
    pthread_mutex_lock(&b->mutex);
    launch_all(&q);
    pthread_mutex_unlock(&b->mutex);
    if (q.status != REEL_OK) return q.status;
    status = cuda_download(&b->gpu, out, b->encoder.scratch + e->out,
                           (size_t)q.n_tokens * (size_t)e->shape.out * sizeof *out, NULL, err);
    if (status == REEL_OK && __atomic_load_n(&b->encoder.mailbox->fault, __ATOMIC_ACQUIRE))
        return cuda_describe_wait(b, b->encoder.mailbox, "the audio tower", err);
    return status;
}

/* More than one run takes: in whole windows. */
static enum reel_status run_all_parts(struct backend *b, const float *features, int n_frames,
                                      float *out, struct reel_error *err) {
    const struct plan_encoder *e = &b->plan.encoder;
    const int most = e->most_chunks * ENC_FRAMES;
    float *some = NULL;
    enum reel_status status =
        mem_zeroed(&some, (size_t)e->shape.bins * (size_t)most, sizeof *some, "features", err);
    for (int first = 0; first < n_frames && status == REEL_OK; first += most) {
        const int n = n_frames - first < most ? n_frames - first : most;
        for (int bin = 0; bin < e->shape.bins; bin++)
            memcpy(some + (size_t)bin * (size_t)n,
                   features + (size_t)bin * (size_t)n_frames + (size_t)first,
                   (size_t)n * sizeof *some);
        status = run_part(b, some, n, out + (size_t)enc_tokens(first) * (size_t)e->shape.out, err);
    }
    mem_free(some);
    return status;
}

enum reel_status cuda_encode(struct backend *b, const float *features, int n_frames, float *out,
                             struct reel_error *err) {
    const bool whole = n_frames <= b->plan.encoder.most_chunks * ENC_FRAMES;
    enum reel_status status = cuda_alive(b, err);
    if (status != REEL_OK) return status;
    pthread_mutex_lock(&b->encoder.mutex);
    status = (whole ? run_part : run_all_parts)(b, features, n_frames, out, err);
    pthread_mutex_unlock(&b->encoder.mutex);
    return status;
}

/* ---- as the runtime sees it ------------------------------------------------------------------ */

/* Weights and scratch memory lie in the backend and serve every one of these. */
struct audio_tower {
    struct backend *backend; /* borrowed */
};

static enum reel_status tower_open(struct audio_tower **out, const struct model *model,
                                   struct backend *b, struct reel_error *err) {
    *out = NULL;
    if (!cuda_encodes(b))
        return err_set(err, REEL_E_UNSUPPORTED, "%s: its audio tower does not run on %s",
                       model->name, b->gpu.facts.name);
    enum reel_status status = mem_zeroed(out, 1, sizeof **out, "an audio tower", err);
    if (status == REEL_OK) (*out)->backend = b;
    return status;
}

static enum reel_status tower_run(struct audio_tower *tower, const float *features, int n_frames,
                                  float *out, struct reel_error *err) {
    return cuda_encode(tower->backend, features, n_frames, out, err);
}

static void tower_close(struct audio_tower *tower) { mem_free(tower); }

const struct audio_tower_ops cuda_tower = {
    .name = "cuda", .open = tower_open, .run = tower_run, .close = tower_close
};
