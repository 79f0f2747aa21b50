#include "cpu/encoder_reference.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "cpu/encoder.h"

#include <math.h>
#include <string.h>

static float bf(float x, enum ref_rounding mode) {
    return mode == REF_FAITHFUL ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* y = bf( (x - mean) / sqrt(variance + eps) * weight + bias ) */
void cpu_layer_norm(const float *x, const struct audio_norm *norm, int n, float *y,
                    enum ref_rounding mode) {
    float mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += x[i];
    mean /= (float)n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    float r = 1.0f / sqrtf(squares / (float)n + M_AUDIO_NORM_EPS);
    for (int i = 0; i < n; i++)
        y[i] = bf((x[i] - mean) * r * norm->weight[i] + norm->bias[i], mode);
}

void cpu_gelu(float *x, int n, enum ref_rounding mode) {
    for (int i = 0; i < n; i++)
        x[i] = bf(0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f)), mode);
}

void cpu_audio_position(int position, int hidden, float *out, enum ref_rounding mode) {
    audio_position(position, hidden, out);
    for (int i = 0; i < hidden; i++)
        out[i] = bf(out[i], mode);
}

/* Planes of one chunk: f32 [channels, bins, frames]. */
struct planes {
    int channels, bins, frames;
    float *values;
};

struct tower {
    const struct audio_config *config;
    const struct audio_weights *weights;
    enum ref_rounding mode;
    int n_tokens;
    float *in, *made; /* planes, the larger of all */
    float *row;       /* one row of a matrix, widened; or one token's convolved values */
    float *x;         /* [n_tokens, hidden] */
    float *y, *q, *k, *v, *mixed;
    float *wide;   /* [n_tokens, intermediate] */
    float *scores; /* [tokens of a window] */
    void *memory;
};

/* One output value of a convolution: bin b and frame f of channel `row`'s kernel. */
static float convolve_at(const float *kernel, const struct planes *in, int b, int f) {
    float sum = 0;
    for (int c = 0; c < in->channels; c++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                int bin = 2 * b + i - 1, frame = 2 * f + j - 1;
                if (bin < 0 || bin >= in->bins || frame < 0 || frame >= in->frames) continue;
                sum +=
                    kernel[c * M_AUDIO_TAPS + 3 * i + j] *
                    in->values[((size_t)c * (size_t)in->bins + (size_t)bin) * (size_t)in->frames +
                               (size_t)frame];
            }
    return sum;
}

/* planes = gelu(convolution of planes + bias); 3 x 3, stride 2, zeros around */
static void convolve(const struct tower *t, const struct audio_linear *w, struct planes *planes,
                     float *out) {
    const struct planes in = *planes;
    *planes =
        (struct planes){ w->weight.rows, (in.bins - 1) / 2 + 1, (in.frames - 1) / 2 + 1, out };
    for (int c = 0; c < planes->channels; c++) {
        matrix_row_f32(&w->weight, c, t->row);
        for (int b = 0; b < planes->bins; b++)
            for (int f = 0; f < planes->frames; f++)
                *out++ = bf(convolve_at(t->row, &in, b, f) + w->bias[c], t->mode);
    }
    const size_t n = (size_t)(out - planes->values);
    cpu_gelu(planes->values, (int)n, t->mode);
    cpu_store(planes->values, (int)n, t->mode);
}

/* y = bf( W x + b ) of n vectors */
static void linear(const struct tower *t, const struct audio_linear *w, const float *x, int n,
                   float *y) {
    cpu_product_bias(&w->weight, w->bias, REF_AS_STORED, x, n, t->row, y, t->mode);
}

/* One second of features, from frame `first` on, to rows of x. What the clip lacks of the chunk is
 * 0, and only tokens of what it has are kept. */
static void enter_chunk(const struct tower *t, const float *features, int n_frames, int first) {
    const struct audio_config *c = t->config;
    struct planes planes = { 1, c->n_bins, M_AUDIO_CHUNK_FRAMES, t->in };
    int n = n_frames - first < M_AUDIO_CHUNK_FRAMES ? n_frames - first : M_AUDIO_CHUNK_FRAMES;
    memset(t->in, 0, (size_t)c->n_bins * M_AUDIO_CHUNK_FRAMES * sizeof *t->in);
    for (int b = 0; b < c->n_bins; b++)
        memcpy(t->in + b * M_AUDIO_CHUNK_FRAMES,
               features + (size_t)b * (size_t)n_frames + (size_t)first, (size_t)n * sizeof(float));
    cpu_store(t->in, c->n_bins * M_AUDIO_CHUNK_FRAMES, t->mode);
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        convolve(t, &t->weights->conv[i], &planes, i & 1 ? t->in : t->made);

    const int width = audio_conv_width(c);
    float *token = t->in; /* the last convolution wrote to `made` */
    float *x = t->x + (size_t)audio_tokens(first) * (size_t)c->hidden;
    for (int i = 0; i < audio_tokens(n); i++, x += c->hidden) {
        for (int j = 0; j < width; j++)
            token[j] = planes.values[(size_t)j * (size_t)planes.frames + (size_t)i];
        cpu_product(&t->weights->conv_out, REF_AS_STORED, token, 1, t->row, x, t->mode);
        cpu_audio_position(i, c->hidden, t->y, t->mode);
        cpu_residual_add(x, t->y, c->hidden, t->mode);
    }
}

static void norm_rows(const struct tower *t, const struct audio_norm *norm) {
    const int hidden = t->config->hidden;
    for (int i = 0; i < t->n_tokens; i++)
        cpu_layer_norm(t->x + (size_t)i * (size_t)hidden, norm, hidden,
                       t->y + (size_t)i * (size_t)hidden, t->mode);
    cpu_store(t->y, t->n_tokens * hidden, t->mode);
}

/* mixed = attention of q, k and v; a token sees its window. */
static void attend(const struct tower *t) {
    const struct audio_config *c = t->config;
    const int dim = c->hidden / c->n_heads, window = c->window_chunks * M_AUDIO_CHUNK_TOKENS;
    const float scale = 1.0f / sqrtf((float)dim);
    for (int i = 0; i < t->n_tokens; i++) {
        const int first = i / window * window;
        const int n = t->n_tokens - first < window ? t->n_tokens - first : window;
        for (int head = 0; head < c->n_heads; head++) {
            size_t at = (size_t)i * (size_t)c->hidden + (size_t)(head * dim);
            size_t from = (size_t)first * (size_t)c->hidden + (size_t)(head * dim);
            cpu_attention(t->q + at, t->k + from, t->v + from, n, (size_t)c->hidden, dim, scale,
                          t->scores, t->mixed + at, t->mode);
        }
    }
}

static void run_layer(const struct tower *t, const struct audio_layer_weights *l) {
    const struct audio_config *c = t->config;
    const int n = t->n_tokens, all = n * c->hidden;
    norm_rows(t, &l->attn_norm);
    linear(t, &l->q, t->y, n, t->q);
    linear(t, &l->k, t->y, n, t->k);
    linear(t, &l->v, t->y, n, t->v);
    cpu_store(t->q, all, t->mode);
    cpu_store(t->k, all, t->mode);
    cpu_store(t->v, all, t->mode);
    attend(t);
    cpu_store(t->mixed, all, t->mode);
    linear(t, &l->o, t->mixed, n, t->y);
    cpu_residual_add(t->x, t->y, all, t->mode);
    norm_rows(t, &l->ffn_norm);
    linear(t, &l->fc1, t->y, n, t->wide);
    cpu_gelu(t->wide, n * c->intermediate, t->mode);
    cpu_store(t->wide, n * c->intermediate, t->mode);
    linear(t, &l->fc2, t->wide, n, t->y);
    cpu_residual_add(t->x, t->y, all, t->mode);
}

static void leave(const struct tower *t, float *out) {
    const int all = t->n_tokens * t->config->hidden;
    norm_rows(t, &t->weights->out_norm);
    linear(t, &t->weights->proj1, t->y, t->n_tokens, t->q);
    cpu_gelu(t->q, all, t->mode);
    cpu_store(t->q, all, t->mode);
    linear(t, &t->weights->proj2, t->q, t->n_tokens, out);
}

static enum reel_status allocate(struct tower *t, struct reel_error *err) {
    const struct audio_config *c = t->config;
    const size_t n = (size_t)t->n_tokens, hidden = (size_t)c->hidden;
    const size_t channels = (size_t)c->n_channels, half = ((size_t)c->n_bins + 1) / 2;
    const size_t planes = size_max((size_t)c->n_bins * M_AUDIO_CHUNK_FRAMES,
                                   channels * half * M_AUDIO_CHUNK_FRAMES / 2);
    const size_t row = size_max(size_max(channels * M_AUDIO_TAPS, (size_t)audio_conv_width(c)),
                                size_max((size_t)c->intermediate, hidden));
    const size_t part = n * hidden + hidden, wide = n * (size_t)c->intermediate;
    const size_t window = (size_t)c->window_chunks * M_AUDIO_CHUNK_TOKENS;
    size_t total = 2 * planes + row + 6 * part + wide + window;
    enum reel_status status =
        mem_zeroed(&t->memory, total, sizeof(float), "the audio encoder", err);
    if (status != REEL_OK) return status;
    float *at = t->memory;
    t->in = at, at += planes;
    t->made = at, at += planes;
    t->row = at, at += row;
    float **const parts[] = { &t->x, &t->y, &t->q, &t->k, &t->v, &t->mixed };
    for (int i = 0; i < 6; i++, at += part)
        *parts[i] = at;
    t->wide = at, at += wide;
    t->scores = at;
    return REEL_OK;
}

enum reel_status encoder_reference_run(const struct audio_config *config,
                                       const struct audio_weights *weights, const float *features,
                                       int n_frames, enum ref_rounding mode, float *out,
                                       struct reel_error *err) {
    struct tower t = {
        .config = config, .weights = weights, .mode = mode, .n_tokens = audio_tokens(n_frames)
    };
    enum reel_status status = allocate(&t, err);
    if (status != REEL_OK) return status;
    for (int first = 0; first < n_frames; first += M_AUDIO_CHUNK_FRAMES)
        enter_chunk(&t, features, n_frames, first);
    for (int i = 0; i < weights->n_layers; i++)
        run_layer(&t, &weights->layers[i]);
    leave(&t, out);
    mem_free(t.memory);
    return REEL_OK;
}
