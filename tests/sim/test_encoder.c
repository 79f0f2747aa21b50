/* The audio tower's kernels under the simulator against plain C in double: clips of whole chunks
 * and of a part of one, channels and sizes that fill no tile, windows that the clip does not fill,
 * chunks taken a few at a time. */
#include "kernels/encoder_layout.h"
#include "model/dtype.h"
#include "plan/plan_layout.h"
#include "support/plan_defines.h"
#include "support/sim_gpu.h"
#include "support/wound.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    const char *name;
    struct encoder_shape tower;
    int n_frames, at_once; /* chunks of a launch of the convolutions */
    int compute;
    int blocks, split_k; /* how products are cut */
};

struct rig {
    struct shape shape;
    struct plan plan;
    struct sim_gpu gpu;
    struct encoder_args args;
    uint16_t *weights[ENC_PRODUCTS]; /* [rows][columns], of all layers one after the other */
    float *numbers, *features;
    int n_chunks, n_tokens, room;
    size_t binned_bytes;
};

static uint64_t random_state = 1;
static float uniform(void) { /* -1 to 1 */
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / 2147483648.0f;
}
static float rounded(float x) { return bf16_to_f32(bf16_from_f32(x)); }
static int layers_of(const struct encoder_shape *s, int product) {
    return product >= ENC_QKV && product <= ENC_FC2 ? s->layers : 1;
}

/* Columns that have weights, and where column k of the model's matrix lies. */
static int used_columns(const struct encoder_shape *s, int product) {
    if (product <= ENC_CONV3) return ENC_TAPS * s->channels;
    if (product == ENC_CONV_OUT) return enc_bins(s, 3) * s->channels;
    return product == ENC_FC2 ? s->intermediate : s->hidden;
}
static int column_at(const struct encoder_shape *s, int product, int k) {
    return product <= ENC_CONV3 ? k / s->channels * enc_blocks(s->channels) + k % s->channels : k;
}

/* ---- on the fake GPU ---- */

static void compile(const struct rig *r) {
    struct plan_defines d;
    plan_defines_of(&d, &r->plan, NULL, 0);
    sim_gpu_compile("tower.cu", d.list);
    plan_defines_release(&d);
}

/* Of some small model, with the shape's tower. */
static void plan_any(struct rig *r) {
    struct reel_error err = { 0 };
    const struct model_config config = { .family = MODEL_QWEN3,
                                         .hidden = 64,
                                         .n_layers = 2,
                                         .n_heads = 2,
                                         .n_kv_heads = 2,
                                         .head_dim = 64,
                                         .rotary_dim = 64,
                                         .intermediate = 64,
                                         .vocab = 70,
                                         .max_context = 1024,
                                         .rms_eps = 1e-6f,
                                         .qk_norm = true,
                                         .tied = true,
                                         .rope_theta = 10000 };
    const struct gpu_limits gpu = { .name = "fake",
                                    .compute = r->shape.compute,
                                    .n_sms = 4,
                                    .shared_bytes = 227 << 10,
                                    .registers = 65536,
                                    .max_threads = 1024 };
    const struct plan_options wishes = { .n_groups = 2, .group_sms = 2, .warps = 4 };
    if (plan_make(&r->plan, &config, &gpu, &wishes, &err) != REEL_OK) fail_msg("%s", err.text);
    r->plan.encoder.shape = r->shape.tower;
}

static void weights_make(struct rig *r) {
    const struct encoder_shape *s = &r->shape.tower;
    const size_t bytes = (size_t)enc_weights_at(s, ENC_PRODUCTS, 0);
    unsigned char *tiles = calloc(1, bytes);
    for (int p = 0; p < ENC_PRODUCTS; p++) {
        const int rows = enc_rows(s, p), columns = used_columns(s, p), all = enc_columns(s, p);
        uint16_t *staged = calloc((size_t)all, sizeof *staged); /* a row with its padding */
        r->weights[p] = malloc((size_t)(layers_of(s, p) * rows * columns) * 2);
        for (int i = 0; i < layers_of(s, p) * rows * columns; i++) {
            const int row = i / columns % rows, k = column_at(s, p, i % columns);
            r->weights[p][i] = bf16_from_f32(uniform() * 2 / sqrtf((float)columns));
            staged[k] = r->weights[p][i];
            if (i % columns < columns - 1) continue;
            unsigned char *to = tiles + enc_weights_at(s, p, i / columns / rows) +
                                (size_t)(row / TILE_ROWS * (all / TILE_K)) * tile_bytes(s->format);
            for (int j = 0; j < all; j += tile_grain(s->format))
                wound_grain(to + (size_t)(j / TILE_K) * tile_bytes(s->format), s->format, row, j,
                            staged + j, all - j);
        }
        free(staged);
    }
    const unsigned long long at = sim_gpu_alloc(bytes);
    sim_gpu_put(at, tiles, bytes);
    r->args.weights = (const unsigned char *)(uintptr_t)at;
    free(tiles);
}

static void numbers_make(struct rig *r) {
    const struct encoder_shape *s = &r->shape.tower;
    const int n = enc_numbers_at(s, ENC_NUMBERS, 0);
    const size_t n_features = (size_t)(s->bins * r->shape.n_frames);
    r->numbers = malloc((size_t)n * sizeof(float));
    r->features = malloc(n_features * sizeof(float));
    for (int i = 0; i < n; i++)
        r->numbers[i] = uniform() / 2;
    for (int layer = 0; layer < s->layers; layer++)
        for (int i = 0; i < s->hidden; i++)
            r->numbers[enc_numbers_at(s, ENC_NORM1, layer) + i] += 1,
                r->numbers[enc_numbers_at(s, ENC_NORM2, layer) + i] += 1;
    for (size_t i = 0; i < n_features; i++)
        r->features[i] = uniform();
    const unsigned long long numbers = sim_gpu_alloc((size_t)n * 4),
                             features = sim_gpu_alloc(n_features * 4);
    sim_gpu_put(numbers, r->numbers, (size_t)n * 4);
    sim_gpu_put(features, r->features, n_features * 4);
    r->args.numbers = (const float *)(uintptr_t)numbers;
    r->args.features = (const float *)(uintptr_t)features;
}

static void *zeroed(size_t bytes) {
    unsigned char *zeros = calloc(1, bytes);
    const unsigned long long at = sim_gpu_alloc(bytes);
    sim_gpu_put(at, zeros, bytes);
    free(zeros);
    return (void *)(uintptr_t)at;
}
static int positions(const struct encoder_shape *s, int convolutions) {
    return enc_bins(s, convolutions) * enc_frames(convolutions);
}
static int room_for(int n) { return (n + 7) / 8 * 8; }

static void scratch_make(struct rig *r) {
    const struct encoder_shape *s = &r->shape.tower;
    struct encoder_args *a = &r->args;
    const size_t room = (size_t)r->room, hidden = (size_t)enc_blocks(s->hidden);
    a->room2 = room_for(r->shape.at_once * positions(s, 2));
    a->room3 = room_for(r->shape.at_once * positions(s, 3));
    a->room = r->room;
    a->taps2 = zeroed((size_t)a->room2 * (size_t)enc_columns(s, ENC_CONV2) * 2);
    a->taps3 = zeroed((size_t)a->room3 * (size_t)enc_columns(s, ENC_CONV3) * 2);
    r->binned_bytes = room * (size_t)enc_columns(s, ENC_CONV_OUT) * 2;
    a->binned = zeroed(r->binned_bytes);
    a->h = zeroed(room * (size_t)s->hidden * 4);
    a->x = zeroed(room * hidden * 2), a->attended = zeroed(room * hidden * 2);
    a->qkv = zeroed(room * 3 * (size_t)s->hidden * 2);
    a->wide = zeroed(room * (size_t)enc_blocks(s->intermediate) * 2);
    a->out = zeroed(room * (size_t)s->out * 4);
    a->base.decode.abort = zeroed(4);
    a->base.decode.patience = ~0u >> 1;
    a->n_frames = r->shape.n_frames;
}

static void rig_open(struct rig *r, const struct shape *s) {
    *r = (struct rig){ .shape = *s };
    r->n_chunks = (s->n_frames + ENC_FRAMES - 1) / ENC_FRAMES;
    r->n_tokens = enc_tokens(s->n_frames), r->room = room_for(r->n_tokens);
    r->gpu = sim_gpu_open();
    r->gpu.cuda->gpu.n_sms = 4;
    plan_any(r);
    compile(r);
    weights_make(r), numbers_make(r), scratch_make(r);
}
static void rig_close(struct rig *r) {
    sim_gpu_close();
    for (int p = 0; p < ENC_PRODUCTS; p++)
        free(r->weights[p]);
    free(r->numbers), free(r->features);
}

/* As tests/sim/kernels/tower.cu has them. */
enum step { HALVES, WIDE1, WIDE2, STEM, NORM, ATTENTION };

static void launch(struct rig *r, enum step step, int phase, int layer, int n, int room) {
    const bool ring = step <= WIDE2;
    const int threads = ring ? r->plan.prefill_threads : PLAN_PREFILL_CONSUMERS;
    const int shared =
        ring ? r->plan.prefill_shared : prefill_shared_bytes(0, r->plan.prefill_k_places);
    struct encoder_args a = r->args;
    int which = (int)step;
    void *params[] = { &a, &which, &phase, &layer };
    a.base.decode.n_tokens = n, a.base.room = room;
    r->gpu.cuda->settings.seed = (uint64_t)(phase + 100 * layer);
    if (sim_gpu_launch("encoder_one", 4, (unsigned)threads, (unsigned)shared, params))
        fail_msg("%s: step %d, phase %d: %s", r->shape.name, which, phase, r->gpu.cuda->report);
}
static void product(struct rig *r, int phase, int layer, int n, int room) {
    const enum step step = r->shape.split_k ? HALVES : r->shape.blocks == 1 ? WIDE1 : WIDE2;
    launch(r, step, phase, layer, n, room);
}

static void run(struct rig *r) {
    const struct encoder_shape *s = &r->shape.tower;
    const int n = r->n_tokens, room = r->room;
    for (int first = 0; first < r->n_chunks; first += r->shape.at_once) {
        const int left = r->n_chunks - first,
                  some = left < r->shape.at_once ? left : r->shape.at_once;
        r->args.first_chunk = first;
        launch(r, STEM, 0, 0, some * positions(s, 2), r->args.room2);
        product(r, ENC_CONV2, 0, some * positions(s, 2), r->args.room2);
        product(r, ENC_CONV3, 0, some * positions(s, 3), r->args.room3);
    }
    product(r, ENC_CONV_OUT, 0, n, room);
    for (int layer = 0; layer < s->layers; layer++) {
        launch(r, NORM, ENC_NORM1, layer, n, room);
        product(r, ENC_QKV, layer, n, room);
        launch(r, ATTENTION, 0, layer, n, room);
        product(r, ENC_OUT, layer, n, room);
        launch(r, NORM, ENC_NORM2, layer, n, room);
        product(r, ENC_FC1, layer, n, room);
        product(r, ENC_FC2, layer, n, room);
    }
    launch(r, NORM, ENC_LAST_NORM, 0, n, room);
    product(r, ENC_PROJ1, 0, n, room);
    product(r, ENC_PROJ2, 0, n, room);
}

/* ---- what must come out ---- */

static const float *numbers(const struct rig *r, int which, int layer) {
    return r->numbers + enc_numbers_at(&r->shape.tower, which, layer);
}
static float gelu(double x) { return (float)(0.5 * x * (1 + erf(x / sqrt(2)))); }

/* to [rows] = W from + bias */
static void multiply(const struct rig *r, int p, int layer, const float *from, const float *bias,
                     float *to) {
    const int rows = enc_rows(&r->shape.tower, p), columns = used_columns(&r->shape.tower, p);
    for (int row = 0; row < rows; row++) {
        double sum = bias ? (double)bias[row] : 0;
        for (int k = 0; k < columns; k++)
            sum += (double)from[k] *
                   (double)bf16_to_f32(r->weights[p][(layer * rows + row) * columns + k]);
        to[row] = (float)sum;
    }
}

/* A chunk's convolution: [bins][frames][channels] each; from has `in` channels and is 0 outside. */
static void convolve(const struct rig *r, int nth, const float *from, int in, float *to) {
    const struct encoder_shape *s = &r->shape.tower;
    const int bins = enc_bins(s, nth), frames = enc_frames(nth), from_bins = enc_bins(s, nth - 1),
              from_frames = enc_frames(nth - 1);
    float *taps = malloc((size_t)(ENC_TAPS * in) * sizeof *taps);
    for (int at = 0; at < bins * frames; at++) {
        float *out = to + at * s->channels;
        for (int tap = 0; tap < ENC_TAPS; tap++)
            for (int c = 0; c < in; c++) {
                const int bin = 2 * (at / frames) + tap / 3 - 1,
                          frame = 2 * (at % frames) + tap % 3 - 1;
                const bool there = bin >= 0 && bin < from_bins && frame >= 0 && frame < from_frames;
                taps[tap * in + c] = there ? from[(bin * from_frames + frame) * in + c] : 0;
            }
        if (nth > 1) {
            multiply(r, nth == 2 ? ENC_CONV2 : ENC_CONV3, 0, taps,
                     numbers(r, nth == 2 ? ENC_CONV2_BIAS : ENC_CONV3_BIAS, 0), out);
        } else {
            for (int c = 0; c < s->channels; c++) {
                double sum = (double)numbers(r, ENC_CONV1_BIAS, 0)[c];
                for (int tap = 0; tap < ENC_TAPS; tap++)
                    sum += (double)numbers(r, ENC_CONV1_WEIGHTS, 0)[c * ENC_TAPS + tap] *
                           (double)taps[tap];
                out[c] = (float)sum;
            }
        }
        for (int c = 0; c < s->channels; c++)
            out[c] = rounded(gelu((double)out[c]));
    }
    free(taps);
}

/* Tokens of a chunk, [token][bin][channel]. */
static void chunk_tokens(const struct rig *r, int chunk, float *to) {
    const struct encoder_shape *s = &r->shape.tower;
    const size_t most = (size_t)(s->bins * ENC_FRAMES * (s->channels > 1 ? s->channels : 1));
    float *a = calloc(most, sizeof *a), *b = calloc(most, sizeof *b);
    for (int i = 0; i < s->bins * ENC_FRAMES; i++) {
        const int frame = chunk * ENC_FRAMES + i % ENC_FRAMES;
        a[i] =
            frame < r->shape.n_frames ? r->features[i / ENC_FRAMES * r->shape.n_frames + frame] : 0;
    }
    convolve(r, 1, a, 1, b);
    convolve(r, 2, b, s->channels, a);
    convolve(r, 3, a, s->channels, b);
    for (int bin = 0; bin < enc_bins(s, 3); bin++)
        for (int t = 0; t < ENC_TOKENS; t++)
            memcpy(to + (t * enc_bins(s, 3) + bin) * s->channels,
                   b + (bin * ENC_TOKENS + t) * s->channels, (size_t)s->channels * sizeof *to);
    free(a), free(b);
}

static void norm(const struct rig *r, int which, int layer, const float *h, float *to) {
    const int n = r->shape.tower.hidden;
    const float *gain = numbers(r, which, layer), *bias = gain + n;
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += (double)h[i] / n;
    for (int i = 0; i < n; i++)
        squares += ((double)h[i] - mean) * ((double)h[i] - mean) / n;
    for (int i = 0; i < n; i++)
        to[i] = rounded((float)(((double)h[i] - mean) / sqrt(squares + 1e-5) * (double)gain[i] +
                                (double)bias[i]));
}

static void attend(const struct rig *r, const float *qkv, int token, float *to) {
    const struct encoder_shape *s = &r->shape.tower;
    const int dim = s->hidden / s->heads, first = token / s->window * s->window;
    const int end = first + s->window < r->n_tokens ? first + s->window : r->n_tokens;
    double *w = malloc((size_t)(end - first) * sizeof *w);
    for (int head = 0; head < s->heads; head++) {
        const float *q = qkv + token * 3 * s->hidden + head * dim;
        double sum = 0;
        for (int t = first; t < end; t++) {
            const float *k = qkv + (t * 3 + 1) * s->hidden + head * dim;
            double dot = 0;
            for (int i = 0; i < dim; i++)
                dot += (double)q[i] * (double)k[i];
            sum += w[t - first] = exp(dot / sqrt(dim));
        }
        for (int i = 0; i < dim; i++) {
            double v = 0;
            for (int t = first; t < end; t++)
                v += w[t - first] * (double)qkv[(t * 3 + 2) * s->hidden + head * dim + i];
            to[head * dim + i] = rounded((float)(v / sum));
        }
    }
    free(w);
}

static void add(float *to, const float *more, int n) {
    for (int i = 0; i < n; i++)
        to[i] += more[i];
}

static void reference_layer(const struct rig *r, int layer, float *h, float *qkv, float *wide) {
    const struct encoder_shape *s = &r->shape.tower;
    float x[512], made[512];
    for (int t = 0; t < r->n_tokens; t++) {
        norm(r, ENC_NORM1, layer, h + t * s->hidden, x);
        multiply(r, ENC_QKV, layer, x, numbers(r, ENC_QKV_BIAS, layer), qkv + t * 3 * s->hidden);
        for (int i = 0; i < 3 * s->hidden; i++)
            qkv[t * 3 * s->hidden + i] = rounded(qkv[t * 3 * s->hidden + i]);
    }
    for (int t = 0; t < r->n_tokens; t++) {
        attend(r, qkv, t, x);
        multiply(r, ENC_OUT, layer, x, numbers(r, ENC_OUT_BIAS, layer), made);
        add(h + t * s->hidden, made, s->hidden);
        norm(r, ENC_NORM2, layer, h + t * s->hidden, x);
        multiply(r, ENC_FC1, layer, x, numbers(r, ENC_FC1_BIAS, layer), wide);
        for (int i = 0; i < s->intermediate; i++)
            wide[i] = rounded(gelu((double)wide[i]));
        multiply(r, ENC_FC2, layer, wide, numbers(r, ENC_FC2_BIAS, layer), made);
        add(h + t * s->hidden, made, s->hidden);
    }
}

/* [tokens][out] */
static float *reference(const struct rig *r) {
    const struct encoder_shape *s = &r->shape.tower;
    const int width = enc_bins(s, 3) * s->channels;
    const size_t n = (size_t)(r->n_chunks * ENC_TOKENS);
    float *binned = malloc(n * (size_t)width * sizeof *binned),
          *h = malloc(n * (size_t)s->hidden * sizeof *h),
          *qkv = malloc(n * 3 * (size_t)s->hidden * sizeof *qkv),
          *wide = malloc((size_t)s->intermediate * sizeof *wide),
          *out = malloc(n * (size_t)s->out * sizeof *out), x[512], made[512];
    for (int c = 0; c < r->n_chunks; c++)
        chunk_tokens(r, c, binned + c * ENC_TOKENS * width);
    for (int t = 0; t < r->n_tokens; t++) {
        multiply(r, ENC_CONV_OUT, 0, binned + t * width, NULL, h + t * s->hidden);
        add(h + t * s->hidden, numbers(r, ENC_POSITIONS, 0) + t % ENC_TOKENS * s->hidden,
            s->hidden);
    }
    for (int layer = 0; layer < s->layers; layer++)
        reference_layer(r, layer, h, qkv, wide);
    for (int t = 0; t < r->n_tokens; t++) {
        norm(r, ENC_LAST_NORM, 0, h + t * s->hidden, x);
        multiply(r, ENC_PROJ1, 0, x, numbers(r, ENC_PROJ1_BIAS, 0), made);
        for (int i = 0; i < s->hidden; i++)
            made[i] = rounded(gelu((double)made[i]));
        multiply(r, ENC_PROJ2, 0, made, numbers(r, ENC_PROJ2_BIAS, 0), out + t * s->out);
    }
    free(binned), free(h), free(qkv), free(wide);
    return out;
}

/* ---- tests ---- */

static const struct shape shapes[] = {
    /* name, bins, channels, hidden, heads, intermediate, out, layers, window; frames, chunks at
     * once; compute; blocks, split_k */
    { "two chunks and a part, odd channels",
      { 20, 11, 64, 4, 72, 40, 2, 26, TILE_BF16 },
      230,
      2,
      90,
      2,
      0 },
    { "less than a chunk", { 12, 8, 32, 2, 64, 64, 1, 13, TILE_BF16 }, 37, 1, 90, 1, 1 },
    { "whole chunks, mma's way", { 16, 16, 96, 2, 100, 33, 1, 39, TILE_BF16 }, 400, 3, 100, 1, 0 },
    { "cp.async", { 8, 6, 32, 1, 40, 24, 2, 26, TILE_BF16 }, 101, 2, 80, 1, 1 },
};

static void vectors_match_plain_c(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct rig r;
        rig_open(&r, &shapes[i]);
        run(&r);
        const int n = r.n_tokens * r.shape.tower.out;
        float *want = reference(&r), *got = malloc((size_t)n * sizeof *got), worst = 0;
        double square = 0, error = 0;
        sim_gpu_get(got, (unsigned long long)(uintptr_t)r.args.out, (size_t)n * sizeof *got);
        for (int at = 0; at < n; at++) {
            const float off = fabsf(got[at] - want[at]);
            square += (double)want[at] * (double)want[at], error += (double)off * (double)off;
            if (!(off <= worst)) worst = off;
        }
        const double rms = sqrt(square / n), relative = sqrt(error / square);
        printf("%s: %d tokens, off by %.4f rms, %.4f at most, of rms %.3f\n", r.shape.name,
               r.n_tokens, relative, (double)worst / rms, rms);
        if (!(relative < 0.01 && (double)worst < 0.05 * rms)) fail_msg("%s", r.shape.name);
        free(want), free(got);
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(vectors_match_plain_c) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
