/* What the fast encoder holds, and its two halves: encoder_stem.c (convolutions, one second at a
 * time) and encoder_layers.c (tokens in windows). A batch of whole windows passes both in one
 * region of the thread pool. Rounding as in cpu/engine.h: what enters a product is bf16, all else
 * float32. */
#ifndef REEL_CPU_ENCODER_WORK_H
#define REEL_CPU_ENCODER_WORK_H

#include "base/thread_pool.h"
#include "cpu/encoder_reference.h"
#include "cpu/tile.h"

#define T_ENCODER_CHUNKS 8   /* that are convolved together */
#define T_ENCODER_TOKENS 416 /* of a batch, or one window's where that is more */
#define T_QUERY_ROWS     24  /* that attention takes at once: their scores stay in cache */

/* Channels-last planes of one chunk: bf16 [frames, bins, channels], with a border of zeros where
 * they are read by a convolution. */
struct stem_plane {
    int frames, bins;  /* without border */
    int border;        /* 1 or 0 */
    int channels;      /* even, the last may be zeros */
    size_t row, chunk; /* elements from one frame, and one chunk, to the next */
    uint16_t *values;  /* [T_ENCODER_CHUNKS, chunk] */
};

/* A convolution's kernels as panels (cpu/kernels.h): [tiles, slices, PANELS, k_pairs, 16, 2]. A
 * slice is the taps of one frame, and of one term where weights are sums of several. */
struct stem_kernels {
    int n_slices, k_pairs;
    uint16_t *panels;
};

/* Memory that one thread writes. */
struct encoder_worker {
    float *values; /* f32 [hidden] */
    struct tile_scratch tile;
    uint16_t *q;        /* bf16 [window, head_pad] */
    uint16_t *k;        /* bf16 [16, head_pad] */
    uint16_t *k_panels; /* [window / 16, head_pad / 2, 16, 2] */
    uint16_t *v_panels; /* [head_dim / 16, window / 2, 16, 2] */
    float *scores;      /* f32 [T_QUERY_ROWS, window_pad] */
    uint16_t *p;        /* bf16 [T_QUERY_ROWS, window_pad] */
    float *out;         /* f32 [T_QUERY_ROWS, head_pad] */
};

struct encoder {
    const struct audio_config *config;   /* borrowed */
    const struct audio_weights *weights; /* borrowed */
    bool reference;
    enum ref_rounding mode; /* of the reference */
    struct kernels kernels;
    struct thread_pool *pool;
    int head_dim, head_pad; /* of 16 */
    int window, window_pad; /* tokens; of 16 */
    int batch;              /* tokens of a batch: whole windows */
    struct stem_plane plane[M_AUDIO_CONVS + 1];
    struct stem_kernels kernels_of[M_AUDIO_CONVS];
    float *conv_bias;       /* f32 [M_AUDIO_CONVS, channels], zeros behind */
    struct matrix conv_out; /* columns in the order of the last plane */
    unsigned char *conv_out_data;
    float *positions; /* f32 [13, hidden] */
    float *zeros;     /* f32: a bias that is not there */
    float *x;         /* f32 [batch, hidden] residual stream */
    float *projected; /* f32 [batch, 3 hidden] q, k, v */
    uint16_t *rows;   /* bf16 [batch, hidden] inputs of a product */
    uint16_t *wide;   /* bf16 [batch, wide_stride] */
    size_t wide_stride;
    struct encoder_worker *workers; /* [threads] */
    void *memory;
};

/* A batch: frames [first, first + n) of features. */
struct encoder_job {
    struct encoder *encoder;
    const float *features; /* f32 [n_bins, stride] */
    int stride, first, n;
    int n_tokens;
    float *out; /* f32 [n_tokens, output_dim] */
};

/* One thread's view of a job. */
struct encoder_turn {
    const struct encoder_job *job;
    struct encoder *e;
    struct encoder_worker *w;
    int thread, n_threads;
};

/* Sizes of planes and kernels; encoder_stem_pack fills the memory that was found for them. */
void encoder_stem_measure(struct encoder *e);
size_t encoder_stem_panels(const struct encoder *e, int conv); /* elements */
void encoder_stem_pack(struct encoder *e);

static inline int encoder_take(const struct encoder_turn *t, int n) {
    return thread_pool_take(t->e->pool, t->thread, n);
}

static inline bool encoder_barrier(const struct encoder_turn *t) {
    return thread_pool_barrier(t->e->pool, t->thread);
}

/* x = the convolved features plus positions, complete. False: the others have finished the batch
 * without this thread. */
bool encoder_stem(const struct encoder_turn *t);
/* out = x through layers and projector. */
void encoder_layers(const struct encoder_turn *t);

/* c [m, TILE_ROWS] of the worker's scratch = input . 64 rows of w from `first` on. */
static inline void encoder_tile(const struct encoder_turn *t, const struct matrix *w, int first,
                                int m, const uint16_t *rows, size_t stride) {
    const struct tile_input input = { .m = m, .rows = rows, .stride = stride };
    tile_product(&t->e->kernels, w, first, PANELS, &input, &t->w->tile, t->w->tile.c);
}

#endif
