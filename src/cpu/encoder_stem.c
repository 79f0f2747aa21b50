/* The convolutions without copies of their input: planes lie channels last, so the three bins of
 * three taps are one run of memory, and the rows of a product are two bins apart. A kernel is the
 * sum of three such products, one for each frame it covers. */
#include "base/numbers.h"
#include "cpu/encoder_work.h"

#include <string.h>

void encoder_stem_measure(struct encoder *e) {
    const struct audio_config *c = e->config;
    int frames = M_AUDIO_CHUNK_FRAMES, bins = c->n_bins;
    for (int i = 0; i <= M_AUDIO_CONVS; i++) {
        struct stem_plane *p = &e->plane[i];
        const int channels = i ? c->n_channels : 1, half = (bins - 1) / 2 + 1;
        *p = (struct stem_plane){ .frames = frames,
                                  .bins = bins,
                                  .border = i < M_AUDIO_CONVS,
                                  .channels = (channels + 1) & ~1 };
        frames = (frames - 1) / 2 + 1;
        p->row = (size_t)(p->border ? 2 * half + 1 : bins) * (size_t)p->channels;
        p->chunk = (size_t)(p->border ? 2 * frames + 1 : p->frames) * p->row;
        bins = half;
        if (!p->border) continue;
        const enum dtype type = e->weights->conv[i].weight.dtype;
        e->kernels_of[i] = (struct stem_kernels){ .n_slices = 3 * tile_terms(type),
                                                  .k_pairs = 3 * p->channels / 2 };
    }
}

static int n_tiles(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

static size_t slice_elements(const struct stem_kernels *k) {
    return (size_t)TILE_ROWS * (size_t)k->k_pairs * 2;
}

size_t encoder_stem_panels(const struct encoder *e, int conv) {
    const struct stem_kernels *k = &e->kernels_of[conv];
    return (size_t)n_tiles(e->config->n_channels) * (size_t)k->n_slices * slice_elements(k);
}

/* Term `term` of x as a sum of bf16 values. */
static uint16_t term_of(float x, int term) {
    uint16_t h = bf16_from_f32(x);
    for (; term > 0; term--) {
        x -= bf16_to_f32(h);
        h = bf16_from_f32(x);
    }
    return h;
}

/* Channel `row`'s kernel, f32 [channels in, 3 bins, 3 frames], into its lane of every slice. */
static void pack_kernel(const struct encoder *e, int conv, int row, const float *taps) {
    const struct stem_kernels *k = &e->kernels_of[conv];
    const int channels = e->plane[conv].channels, real = conv ? e->config->n_channels : 1;
    const size_t panel = (size_t)k->k_pairs * 2 * PANEL_LANES;
    uint16_t *tile =
        k->panels + (size_t)(row / TILE_ROWS) * (size_t)k->n_slices * slice_elements(k);
    uint16_t *lane =
        tile + (size_t)(row % TILE_ROWS / PANEL_LANES) * panel + 2 * (row % PANEL_LANES);
    for (int slice = 0; slice < k->n_slices; slice++, lane += slice_elements(k))
        for (int bin = 0; bin < 3; bin++)
            for (int c = 0; c < real; c++) {
                const int at = bin * channels + c;
                lane[(size_t)(at / 2) * 2 * PANEL_LANES + (size_t)(at & 1)] =
                    term_of(taps[c * M_AUDIO_TAPS + 3 * bin + slice % 3], slice / 3);
            }
}

/* One row of conv_out: [channels, bins] as stored, [bins, channels] here. */
static void pack_conv_out(const struct encoder *e, int row) {
    const struct stem_plane *p = &e->plane[M_AUDIO_CONVS];
    const struct matrix *from = &e->weights->conv_out;
    const size_t size = dtype_row_bytes(from->dtype, 1);
    const unsigned char *in = from->data + (size_t)row * from->row_bytes;
    unsigned char *out = e->conv_out_data + (size_t)row * e->conv_out.row_bytes;
    for (int c = 0; c < e->config->n_channels; c++)
        for (int bin = 0; bin < p->bins; bin++)
            memcpy(out + (size_t)(bin * p->channels + c) * size,
                   in + (size_t)(c * p->bins + bin) * size, size);
}

void encoder_stem_pack(struct encoder *e) {
    const struct audio_config *c = e->config;
    for (int conv = 0; conv < M_AUDIO_CONVS; conv++) {
        const struct audio_linear *w = &e->weights->conv[conv];
        for (int row = 0; row < c->n_channels; row++) {
            matrix_row_f32(&w->weight, row, e->projected); /* scratch: nothing else runs yet */
            pack_kernel(e, conv, row, e->projected);
        }
        memcpy(e->conv_bias + (size_t)conv * (size_t)n_tiles(c->n_channels) * TILE_ROWS, w->bias,
               (size_t)c->n_channels * sizeof(float));
    }
    for (int row = 0; row < c->hidden; row++)
        pack_conv_out(e, row);
    for (int i = 0; i < M_AUDIO_CHUNK_TOKENS; i++)
        cpu_audio_position(i, c->hidden, e->positions + (size_t)i * (size_t)c->hidden, REF_FAST);
}

/* ---- at work --------------------------------------------------------------------------------- */

/* Frame `frame` of chunk `chunk` of a group, first bin, border left out. */
static uint16_t *plane_at(const struct stem_plane *p, int chunk, int frame) {
    return p->values + (size_t)chunk * p->chunk + (size_t)(frame + p->border) * p->row +
           (size_t)(p->border * p->channels);
}

/* Chunks of a batch that are convolved together. */
struct group {
    int first, n;
};

/* Frames of plane `plane` that the tokens of one chunk of a group come from. The last chunk of a
 * clip has fewer tokens than the others, and what lies behind theirs is neither made nor read. */
static int frames_wanted(const struct encoder_turn *t, const struct group *g, int chunk,
                         int plane) {
    const int left = t->job->n - (g->first + chunk) * M_AUDIO_CHUNK_FRAMES;
    int n = audio_tokens(int_min(left, M_AUDIO_CHUNK_FRAMES));
    for (int i = M_AUDIO_CONVS - 1; i >= plane; i--)
        n = int_min(2 * n, t->e->plane[i].frames); /* frame f is made of 2 f - 1 to 2 f + 1 */
    return n;
}

/* Features of one chunk as the first plane; what the clip lacks is 0. */
static void enter_chunk(const struct encoder_turn *t, const struct group *g, int chunk) {
    const struct stem_plane *p = &t->e->plane[0];
    const struct encoder_job *job = t->job;
    const int first = job->first + (g->first + chunk) * M_AUDIO_CHUNK_FRAMES;
    const int end = job->first + job->n, n = frames_wanted(t, g, chunk, 0);
    for (int frame = 0; frame < n; frame++) {
        uint16_t *row = plane_at(p, chunk, frame);
        for (int bin = 0; bin < p->bins; bin++) {
            const float *in = job->features + (size_t)bin * (size_t)job->stride;
            row[bin * p->channels] =
                first + frame < end ? bf16_from_f32(in[first + frame]) : (uint16_t)0;
        }
    }
}

/* One frame of the output, 64 channels of it from those of tile `tile`. */
static void convolve_frame(const struct encoder_turn *t, int conv, int chunk, int frame, int tile) {
    struct encoder *e = t->e;
    const struct stem_plane *in = &e->plane[conv], *out = &e->plane[conv + 1];
    const struct stem_kernels *k = &e->kernels_of[conv];
    const int first = tile * TILE_ROWS, n = int_min(TILE_ROWS, e->config->n_channels - first);
    const uint16_t *panels = k->panels + (size_t)tile * (size_t)k->n_slices * slice_elements(k);
    const uint16_t *corner = in->values + (size_t)chunk * in->chunk;
    for (int slice = 0; slice < k->n_slices; slice++)
        e->kernels.gemm(&(struct gemm){
            .m = out->bins,
            .n_panels = (n + PANEL_LANES - 1) / PANEL_LANES,
            .k_pairs = k->k_pairs,
            .a = corner + (size_t)(2 * frame + slice % 3) * in->row,
            .a_stride = 2 * (size_t)in->channels,
            .panels = panels + (size_t)slice * slice_elements(k),
            .panel_stride = (size_t)k->k_pairs * 2 * PANEL_LANES,
            .step_stride = 2 * PANEL_LANES,
            .c = t->w->tile.c,
            .c_stride = TILE_ROWS,
            .accumulate = slice > 0,
        });
    const float *bias =
        e->conv_bias + ((size_t)conv * (size_t)n_tiles(e->config->n_channels)) * TILE_ROWS + first;
    uint16_t *to = plane_at(out, chunk, frame) + first;
    for (int bin = 0; bin < out->bins; bin++, to += out->channels) {
        float *row = t->w->tile.c + (size_t)bin * TILE_ROWS;
        e->kernels.gelu(row, bias, n, row);
        e->kernels.round_bf16(row, n, to);
    }
}

/* Pieces of work: chunks times tiles of channels times runs of frames. A tile's kernels stay in the
 * second-level cache for a run. */
static void convolve(const struct encoder_turn *t, int conv, const struct group *g) {
    enum { FRAMES = 13 };
    const int tiles = n_tiles(t->e->config->n_channels), frames = t->e->plane[conv + 1].frames;
    const int runs = (frames + FRAMES - 1) / FRAMES, n_items = g->n * tiles * runs;
    for (int item; (item = encoder_take(t, n_items)) >= 0;) {
        const int tile = item % tiles, run = item / tiles % runs, chunk = item / tiles / runs;
        const int last = int_min(frames_wanted(t, g, chunk, conv + 1), (run + 1) * FRAMES);
        for (int frame = run * FRAMES; frame < last; frame++)
            convolve_frame(t, conv, chunk, frame, tile);
    }
}

/* x of n tokens from `first` on = conv_out of the last planes, plus positions. */
static void enter_tokens(const struct encoder_turn *t, int first, int n) {
    struct encoder *e = t->e;
    const struct stem_plane *p = &e->plane[M_AUDIO_CONVS];
    const int hidden = e->config->hidden;
    for (int tile; (tile = encoder_take(t, n_tiles(hidden))) >= 0;) {
        const int row = tile * TILE_ROWS;
        const int width = int_min(TILE_ROWS, hidden - row);
        encoder_tile(t, &e->conv_out, row, n, p->values, p->row);
        for (int i = 0; i < n; i++) {
            float *x = e->x + (size_t)(first + i) * (size_t)hidden + (size_t)row;
            memcpy(x, t->w->tile.c + (size_t)i * TILE_ROWS, (size_t)width * sizeof *x);
            e->kernels.add(
                x, e->positions + (size_t)(i % M_AUDIO_CHUNK_TOKENS) * (size_t)hidden + row, width);
        }
    }
}

bool encoder_stem(const struct encoder_turn *t) {
    const int all = (t->job->n + M_AUDIO_CHUNK_FRAMES - 1) / M_AUDIO_CHUNK_FRAMES;
    for (int chunk = 0; chunk < all; chunk += T_ENCODER_CHUNKS) {
        const struct group g = { chunk, int_min(T_ENCODER_CHUNKS, all - chunk) };
        const int first = chunk * M_AUDIO_CHUNK_TOKENS;
        for (int i; (i = encoder_take(t, g.n)) >= 0;)
            enter_chunk(t, &g, i);
        if (!encoder_barrier(t)) return false;
        for (int conv = 0; conv < M_AUDIO_CONVS; conv++) {
            convolve(t, conv, &g);
            if (!encoder_barrier(t)) return false;
        }
        enter_tokens(t, first, int_min(g.n * M_AUDIO_CHUNK_TOKENS, t->job->n_tokens - first));
        if (!encoder_barrier(t)) return false;
    }
    return true;
}
