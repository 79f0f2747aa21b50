/* The forward pass, top to bottom: eval -> run_chunk -> mixer_block and ffn_block of each layer ->
 * output. Positions go through in chunks only so that each weight row is widened once for many
 * of them; no value depends on where the cuts are. */
#include "cpu/reference_model.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "cpu/recurrent.h"

#include <math.h>
#include <string.h>

#define CHUNK 64

struct ref_state {
    const struct model_config *config; /* borrowed */
    const struct weights *weights;     /* borrowed */
    struct ref_options options;
    int n_positions; /* evaluated so far */
    int q_dim;       /* n_heads * head_dim */
    int kv_dim;      /* n_kv_heads * head_dim */
    int kv_layers;   /* layers of attention */

    float *kv; /* [attention layers, 2, max_positions, kv_dim]: k after norm and rotation, then v */
    struct recurrent recurrent; /* of the DeltaNet layers */

    /* Scratch of one chunk, carved from `memory`. */
    float *x;         /* [CHUNK, hidden] the residual stream */
    float *y;         /* [CHUNK, hidden] normed input of a block, then the block's output */
    float *q;         /* [CHUNK, q_dim] */
    float *k, *v;     /* [CHUNK, kv_dim] */
    float *mixed;     /* [CHUNK, q_dim or value heads * value_dim] what a layer's mixer made */
    float *projected; /* [CHUNK, model_q_rows or channels] queries with gates, or delta_qkv */
    float *z;         /* [CHUNK, q_dim or value heads * value_dim] gates of `mixed` */
    float *b, *a;     /* [CHUNK, value heads] delta_b and delta_a, becoming beta and decay */
    float *gate, *up; /* [CHUNK, intermediate] */
    float *inv;       /* [head_dim / 2] rotation frequencies */
    float *cos, *sin; /* [CHUNK, rotary_dim / 2] */
    float *row;       /* one weight row, widened */
    float *scores;    /* [max_positions] */
    float *memory;
};

/* `layer` counts attention layers. */
static float *kv_rows(const struct ref_state *s, int layer, int which, int position) {
    size_t max = (size_t)s->options.max_positions;
    return s->kv +
           (((size_t)layer * 2 + (size_t)which) * max + (size_t)position) * (size_t)s->kv_dim;
}

/* Shows each row of values [n, width] to the tap. */
static void show(const struct ref_state *s, const char *phase, int layer, int position,
                 const float *values, int n, int width) {
    if (!s->options.tap) return;
    for (int i = 0; i < n; i++)
        s->options.tap(s->options.tap_user, phase, layer, position + i,
                       values + (size_t)i * (size_t)width, width);
}

/* y[n, rows] = x[n, columns] W^T, with the weights and the rounding that the options ask for. */
static void product(const struct ref_state *s, const struct matrix *w, const float *x, int n,
                    float *y) {
    cpu_product(w, s->options.weights, x, n, s->row, y, s->options.mode);
}

/* The same with bias [rows], or NULL, added. */
static void product_bias(const struct ref_state *s, const struct matrix *w, const float *bias,
                         const float *x, int n, float *y) {
    cpu_product_bias(w, bias, s->options.weights, x, n, s->row, y, s->options.mode);
}

/* y[n, width] = norm of each row of x */
static void norm_rows(const struct ref_state *s, const float *x, const float *weight, int n,
                      int width, float *y) {
    for (int i = 0; i < n; i++)
        (s->config->centred_norms ? cpu_rms_norm_once : cpu_rms_norm)(
            x + (size_t)i * (size_t)width, weight, width, s->config->rms_eps,
            y + (size_t)i * (size_t)width, s->options.mode);
}

/* Rotates heads[n, n_heads, head_dim] by the angles of their rows. */
static void rotate_rows(const struct ref_state *s, float *heads, int n, int n_heads) {
    int dim = s->config->head_dim, turning = s->config->rotary_dim;
    for (int i = 0; i < n * n_heads; i++) {
        size_t angles = (size_t)(i / n_heads) * (size_t)(turning / 2);
        cpu_rope(heads + (size_t)i * (size_t)dim, turning, s->cos + angles, s->sin + angles,
                 s->options.mode);
    }
}

/* Every query head of every row, over the positions up to its own. */
static void attend(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    float scale = 1.0f / sqrtf((float)c->head_dim);
    for (int i = 0; i < n; i++) {
        for (int h = 0; h < c->n_heads; h++) {
            size_t q_at = (size_t)i * (size_t)s->q_dim + (size_t)h * (size_t)c->head_dim;
            size_t kv_at = (size_t)(h / (c->n_heads / c->n_kv_heads)) * (size_t)c->head_dim;
            cpu_attention(s->q + q_at, kv_rows(s, layer, 0, 0) + kv_at,
                          kv_rows(s, layer, 1, 0) + kv_at, position + i + 1, (size_t)s->kv_dim,
                          c->head_dim, scale, s->scores, s->mixed + q_at, s->options.mode);
        }
    }
}

/* Each head's row of k or v [n, kv_dim], `which`, becomes what a cache of 8 bits gives back of it.
 */
static void round_to_codes(const struct ref_state *s, int layer, int which, float *rows, int n) {
    const enum kv_form form = s->options.kv;
    const int dim = s->config->head_dim, heads = s->config->n_kv_heads;
    const float *given = form == KV_FP8 ? s->weights->kv_scales : NULL;
    uint8_t codes[MODEL_MAX_HEAD_DIM];
    for (int i = 0; form != KV_BF16 && i < n * heads; i++) {
        float *row = rows + (size_t)i * (size_t)dim;
        const float scale = kv_quantise(
            form, row, dim, given ? given[2 * (layer * heads + i % heads) + which] : 0, codes);
        for (int d = 0; d < dim; d++)
            row[d] = scale * kv_code_value(form, codes[d]);
    }
}

/* q from projected, which has for each head its query and the gate of its output: that goes to z.
 */
static void part_gates(const struct ref_state *s, int n) {
    const int dim = s->config->head_dim;
    const size_t bytes = (size_t)dim * sizeof(float);
    for (int i = 0; i < n * s->config->n_heads; i++) {
        const float *head = s->projected + (size_t)i * 2 * (size_t)dim;
        memcpy(s->q + (size_t)i * (size_t)dim, head, bytes);
        memcpy(s->z + (size_t)i * (size_t)dim, head + dim, bytes);
    }
}

/* mixed = attention of y */
static void attention_mixer(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[layer];
    enum ref_rounding mode = s->options.mode;

    float *q = c->gated_attention ? s->projected : s->q;
    const float *bias = w->qkv_bias, *k_bias = bias ? bias + w->q.rows : NULL;
    product_bias(s, &w->q, bias, s->y, n, q);
    product_bias(s, &w->k, k_bias, s->y, n, s->k);
    product_bias(s, &w->v, bias ? k_bias + w->k.rows : NULL, s->y, n, s->v);
    show(s, "q", layer, position, q, n, w->q.rows);
    if (c->gated_attention) part_gates(s, n);
    show(s, "k", layer, position, s->k, n, s->kv_dim);

    if (c->qk_norm) {
        norm_rows(s, s->q, w->q_norm, n * c->n_heads, c->head_dim, s->q);
        norm_rows(s, s->k, w->k_norm, n * c->n_kv_heads, c->head_dim, s->k);
        show(s, "q_norm", layer, position, s->q, n, s->q_dim);
        show(s, "k_norm", layer, position, s->k, n, s->kv_dim);
    }
    rotate_rows(s, s->q, n, c->n_heads);
    rotate_rows(s, s->k, n, c->n_kv_heads);
    cpu_store(s->q, n * s->q_dim, mode);
    cpu_store(s->k, n * s->kv_dim, mode);
    cpu_store(s->v, n * s->kv_dim, mode);
    show(s, "q_rope", layer, position, s->q, n, s->q_dim);
    show(s, "k_rope", layer, position, s->k, n, s->kv_dim);
    show(s, "v", layer, position, s->v, n, s->kv_dim);

    round_to_codes(s, w->nth, 0, s->k, n);
    round_to_codes(s, w->nth, 1, s->v, n);
    size_t kv_bytes = (size_t)n * (size_t)s->kv_dim * sizeof(float);
    memcpy(kv_rows(s, w->nth, 0, position), s->k, kv_bytes);
    memcpy(kv_rows(s, w->nth, 1, position), s->v, kv_bytes);

    attend(s, w->nth, position, n);
    if (!c->gated_attention) cpu_store(s->mixed, n * s->q_dim, mode);
    show(s, "attention", layer, position, s->mixed, n, s->q_dim);
    if (!c->gated_attention) return;
    cpu_sigmoid_gate(s->mixed, s->z, n * s->q_dim, mode);
    cpu_store(s->mixed, n * s->q_dim, mode);
    show(s, "attention_gate", layer, position, s->mixed, n, s->q_dim);
}

/* projected becomes q, k and v of its positions, through the convolution; its window moves on. */
static void convolve_rows(const struct ref_state *s, int layer, int position, int n) {
    const struct recurrent *r = &s->recurrent;
    const struct layer_weights *w = &s->weights->layers[layer];
    const size_t channels = (size_t)r->channels, kept = (size_t)(r->window - 1) * channels;
    float *window = recurrent_window(r, recurrent_layer(r, r->live, w->nth));
    int after = 0;
    float *keep = recurrent_keep(r, w->nth, position, n, &after);
    for (int i = 0; i < n; i++) {
        float *x = s->projected + (size_t)i * channels;
        float *raw = s->row; /* the window holds what goes into the convolution */
        memcpy(raw, x, channels * sizeof *x);
        cpu_convolve(w->delta.taps, window, x, r->window + 1, r->channels, x, s->options.mode);
        memmove(window, window + channels, kept * sizeof *window);
        memcpy(window + kept, raw, channels * sizeof *window);
        if (keep && i + 1 == after)
            memcpy(recurrent_window(r, keep), window, (kept + channels) * sizeof *window);
    }
    show(s, "delta_conv", layer, position, s->projected, n, r->channels);
}

/* mixed = what the states of all heads answer, position by position. */
static void run_rule(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    const struct recurrent *r = &s->recurrent;
    const int nth = s->weights->layers[layer].nth, dim = r->key_dim;
    const int group = c->delta.value_heads / c->delta.key_heads;
    const struct delta_shape shape = { dim, r->value_dim, (size_t)r->value_stride };
    float *state = recurrent_layer(r, r->live, nth);
    int after = 0;
    float *keep = recurrent_keep(r, nth, position, n, &after);
    for (int i = 0; i < n; i++) {
        float *q = s->projected + (size_t)i * (size_t)r->channels,
              *k = q + c->delta.key_heads * dim;
        const float *v = k + c->delta.key_heads * dim;
        for (int h = 0; h < c->delta.key_heads; h++) {
            cpu_l2_norm(q + h * dim, dim, 1.0f / sqrtf((float)dim));
            cpu_l2_norm(k + h * dim, dim, 1);
        }
        for (int h = 0; h < r->n_heads; h++) {
            size_t gate = (size_t)i * (size_t)r->n_heads + (size_t)h;
            cpu_delta_step(&shape, recurrent_matrix(r, state, h), q + h / group * dim,
                           k + h / group * dim, v + h * r->value_dim, s->a[gate], s->b[gate],
                           s->mixed + gate * (size_t)r->value_dim, s->options.mode);
        }
        if (keep && i + 1 == after)
            memcpy(keep, state, (size_t)(recurrent_window(r, keep) - keep) * sizeof *keep);
    }
}

/* mixed = the Gated DeltaNet of y */
static void delta_mixer(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    const struct delta_weights *w = &s->weights->layers[layer].delta;
    const int heads = c->delta.value_heads, dim = c->delta.value_dim, width = heads * dim;
    enum ref_rounding mode = s->options.mode;

    product(s, &w->qkv, s->y, n, s->projected);
    product(s, &w->z, s->y, n, s->z);
    product(s, &w->b, s->y, n, s->b);
    product(s, &w->a, s->y, n, s->a);
    show(s, "delta_qkv", layer, position, s->projected, n, w->qkv.rows);
    show(s, "delta_z", layer, position, s->z, n, width);
    show(s, "delta_b", layer, position, s->b, n, heads);
    show(s, "delta_a", layer, position, s->a, n, heads);

    convolve_rows(s, layer, position, n);
    for (int i = 0; i < n; i++)
        cpu_delta_gates(s->b + i * heads, s->a + i * heads, w->rate, w->dt_bias, heads,
                        s->b + i * heads, s->a + i * heads, mode);
    show(s, "delta_beta", layer, position, s->b, n, heads);
    show(s, "delta_decay", layer, position, s->a, n, heads);

    run_rule(s, layer, position, n);
    show(s, "delta_rule", layer, position, s->mixed, n, width);
    for (int i = 0; i < n * heads; i++)
        cpu_gated_norm(s->mixed + (size_t)i * (size_t)dim, w->out_norm,
                       s->z + (size_t)i * (size_t)dim, dim, c->rms_eps,
                       s->mixed + (size_t)i * (size_t)dim, mode);
    cpu_store(s->mixed, n * width, mode);
    show(s, "delta_norm", layer, position, s->mixed, n, width);
}

/* x = x + Wo mixer(norm(x)) */
static void mixer_block(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[layer];
    enum ref_rounding mode = s->options.mode;

    norm_rows(s, s->x, w->attn_norm, n, c->hidden, s->y);
    cpu_store(s->y, n * c->hidden, mode);
    show(s, "attn_norm", layer, position, s->y, n, c->hidden);
    (w->kind == LAYER_DELTA ? delta_mixer : attention_mixer)(s, layer, position, n);
    product(s, &w->o, s->mixed, n, s->y);
    show(s, "out_proj", layer, position, s->y, n, c->hidden);
    cpu_residual_add(s->x, s->y, n * c->hidden, mode);
    show(s, "attn_residual", layer, position, s->x, n, c->hidden);
}

/* x = x + Wdown swiglu(Wgate norm(x), Wup norm(x)) */
static void ffn_block(const struct ref_state *s, int layer, int position, int n) {
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[layer];
    enum ref_rounding mode = s->options.mode;

    norm_rows(s, s->x, w->ffn_norm, n, c->hidden, s->y);
    cpu_store(s->y, n * c->hidden, mode);
    show(s, "ffn_norm", layer, position, s->y, n, c->hidden);

    product(s, &w->gate, s->y, n, s->gate);
    product(s, &w->up, s->y, n, s->up);
    show(s, "gate", layer, position, s->gate, n, c->intermediate);
    show(s, "up", layer, position, s->up, n, c->intermediate);

    cpu_swiglu(s->gate, s->up, n * c->intermediate, s->gate, mode);
    cpu_store(s->gate, n * c->intermediate, mode);
    show(s, "swiglu", layer, position, s->gate, n, c->intermediate);

    product(s, &w->down, s->gate, n, s->y);
    show(s, "down", layer, position, s->y, n, c->hidden);
    cpu_residual_add(s->x, s->y, n * c->hidden, mode);
    show(s, "ffn_residual", layer, position, s->x, n, c->hidden);
}

/* Final norm and head of the last n rows of the chunk, whose last position is `last`. Writes
 * logits [n, vocab] or hidden [n, hidden] to out. */
static void output(const struct ref_state *s, const float *x, int last, int n, bool logits,
                   float *out) {
    const struct model_config *c = s->config;
    int position = last - n + 1;
    norm_rows(s, x, s->weights->final_norm, n, c->hidden, s->y);
    cpu_store(s->y, n * c->hidden, s->options.mode);
    show(s, "final_norm", -1, position, s->y, n, c->hidden);
    if (!logits) {
        memcpy(out, s->y, (size_t)n * (size_t)c->hidden * sizeof(float));
        return;
    }
    product(s, &s->weights->head, s->y, n, out);
    show(s, "logits", -1, position, out, n, c->vocab);
}

/* x = embeddings of n positions; angles for their rotations. */
static void enter(const struct ref_state *s, const struct backend_eval *eval, int done, int n) {
    const struct model_config *c = s->config;
    int position = eval->position + done;
    for (int i = 0; i < n; i++) {
        float *x = s->x + (size_t)i * (size_t)c->hidden;
        size_t angles = (size_t)i * (size_t)(c->rotary_dim / 2);
        if (eval->ids) {
            cpu_embed(&s->weights->embedding, s->options.weights, eval->ids[done + i], x);
        } else {
            memcpy(x, eval->embeddings + (size_t)(done + i) * (size_t)c->hidden,
                   (size_t)c->hidden * sizeof(float));
            if (s->options.mode == REF_FAITHFUL) cpu_store(x, c->hidden, s->options.mode);
        }
        cpu_rope_angles(s->inv, c->rotary_dim, position + i + s->options.rotation_offset,
                        s->cos + angles, s->sin + angles, s->options.mode);
    }
    show(s, "embed", -1, position, s->x, n, c->hidden);
}

/* Positions done .. done + n of the call, through all layers to its output. */
static void run_chunk(const struct ref_state *s, const struct backend_eval *eval, int done, int n) {
    const struct model_config *c = s->config;
    int position = eval->position + done;
    enter(s, eval, done, n);
    for (int layer = 0; layer < c->n_layers; layer++) {
        mixer_block(s, layer, position, n);
        ffn_block(s, layer, position, n);
    }
    bool logits = eval->output == REEL_OUTPUT_LAST_LOGITS || eval->output == REEL_OUTPUT_ALL_LOGITS;
    bool all = eval->output == REEL_OUTPUT_ALL_LOGITS || eval->output == REEL_OUTPUT_ALL_HIDDEN;
    size_t width = (size_t)(logits ? c->vocab : c->hidden);
    if (all)
        output(s, s->x, position + n - 1, n, logits, eval->out + (size_t)done * width);
    else if (eval->output != REEL_OUTPUT_NONE && done + n == eval->n)
        output(s, s->x + (size_t)(n - 1) * (size_t)c->hidden, position + n - 1, 1, logits,
               eval->out);
}

enum reel_status ref_state_eval(struct ref_state *s, const struct backend_eval *eval,
                                struct reel_error *err) {
    if (eval->position < 0 || eval->position > s->n_positions)
        return err_set(err, REEL_E_STATE, "position %d is past the %d evaluated", eval->position,
                       s->n_positions);
    if (eval->n < 1 || eval->n > s->options.max_positions - eval->position)
        return err_set(err, REEL_E_CONTEXT, "%d positions at %d, the state holds %d", eval->n,
                       eval->position, s->options.max_positions);
    if (recurrent_resume(&s->recurrent, eval->position) != eval->position)
        return err_set(err, REEL_E_STATE,
                       "the recurrent state of position %d is gone; that of %d is held",
                       eval->position, recurrent_resume(&s->recurrent, eval->position));
    recurrent_begin(&s->recurrent, eval->position, eval->n);
    s->n_positions = eval->position;
    for (int done = 0; done < eval->n; done += CHUNK) {
        if (eval->cancel && atomic_load(eval->cancel))
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done,
                           eval->n);
        if (eval->progress &&
            !eval->progress(eval->progress_user, "evaluating", (uint64_t)done, (uint64_t)eval->n))
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done,
                           eval->n);
        const int n = eval->n - done < CHUNK ? eval->n - done : CHUNK;
        recurrent_run_begin(&s->recurrent);
        run_chunk(s, eval, done, n);
        recurrent_run_end(&s->recurrent, eval->position + done, n);
    }
    s->n_positions = eval->position + eval->n;
    return REEL_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Floats of each scratch vector of a chunk, in the order of `places` in ref_state_open. */
enum { X, Y, Q, K, V, MIXED, PROJECTED, Z, B, A, GATE, UP, INV, COS, SIN, ROW, N_SCRATCH };

static void scratch_floats(const struct model_config *c, size_t floats[N_SCRATCH]) {
    size_t hidden = (size_t)c->hidden, inter = (size_t)c->intermediate;
    size_t q = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t kv = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    size_t half = (size_t)c->rotary_dim / 2;
    size_t heads = (size_t)c->delta.value_heads;
    size_t mixed = (size_t)int_max(c->n_heads * c->head_dim, model_delta_width(c));
    size_t projected =
        (size_t)int_max(c->gated_attention ? model_q_rows(c) : 0, model_delta_channels(c));
    size_t row = (size_t)int_max(int_max(c->hidden, c->intermediate), (int)mixed);
    if (projected > row) row = projected; /* also a position's input of the convolution */
    memcpy(floats,
           (size_t[N_SCRATCH]){ [X] = CHUNK * hidden,
                                [Y] = CHUNK * hidden,
                                [Q] = CHUNK * q,
                                [K] = CHUNK * kv,
                                [V] = CHUNK * kv,
                                [MIXED] = CHUNK * mixed,
                                [PROJECTED] = CHUNK * projected,
                                [Z] = CHUNK * (projected ? mixed : 0),
                                [B] = CHUNK * heads,
                                [A] = CHUNK * heads,
                                [GATE] = CHUNK * inter,
                                [UP] = CHUNK * inter,
                                [INV] = half,
                                [COS] = CHUNK * half,
                                [SIN] = CHUNK * half,
                                [ROW] = row },
           N_SCRATCH * sizeof(size_t));
}

static size_t scratch_bytes(const struct model_config *config) {
    size_t floats[N_SCRATCH], total = 0;
    scratch_floats(config, floats);
    for (int i = 0; i < N_SCRATCH; i++)
        total += floats[i];
    return total * sizeof(float);
}

size_t ref_state_fixed_bytes(const struct model_config *config) {
    return scratch_bytes(config) + recurrent_bytes(config);
}

size_t ref_state_position_bytes(const struct model_config *c) {
    size_t layers = (size_t)model_layer_count(c, LAYER_ATTENTION);
    size_t kv = layers * 2 * (size_t)c->n_kv_heads * (size_t)c->head_dim;
    return (kv + 1) * sizeof(float); /* one score */
}

enum reel_status ref_state_open(struct ref_state **out, const struct model_config *config,
                                const struct weights *weights, const struct ref_options *options,
                                struct reel_error *err) {
    struct ref_state *s = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "a reference session", err);
    if (status != REEL_OK) return status;
    s->config = config;
    s->weights = weights;
    s->options = *options;
    s->q_dim = config->n_heads * config->head_dim;
    s->kv_dim = config->n_kv_heads * config->head_dim;

    size_t max = (size_t)options->max_positions;
    s->kv_layers = model_layer_count(config, LAYER_ATTENTION);
    size_t kv_row = (size_t)s->kv_layers * 2 * (size_t)s->kv_dim;
    size_t kv_floats = 0;
    if (!size_mul(max, kv_row, &kv_floats)) kv_floats = SIZE_MAX;
    status = mem_zeroed(&s->kv, kv_floats, sizeof(float), "the KV cache", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->scores, max, sizeof(float), "attention scores", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->memory, 1, scratch_bytes(config), "reference scratch", err);
    if (status == REEL_OK) status = recurrent_open(&s->recurrent, config, err);
    if (status != REEL_OK) {
        ref_state_close(s);
        return status;
    }
    float **places[N_SCRATCH] = {
        [X] = &s->x,
        [Y] = &s->y,
        [Q] = &s->q,
        [K] = &s->k,
        [V] = &s->v,
        [MIXED] = &s->mixed,
        [PROJECTED] = &s->projected,
        [Z] = &s->z,
        [B] = &s->b,
        [A] = &s->a,
        [GATE] = &s->gate,
        [UP] = &s->up,
        [INV] = &s->inv,
        [COS] = &s->cos,
        [SIN] = &s->sin,
        [ROW] = &s->row,
    };
    size_t floats[N_SCRATCH], used = 0;
    scratch_floats(config, floats);
    for (int i = 0; i < N_SCRATCH; i++) {
        *places[i] = s->memory + used;
        used += floats[i];
    }
    model_rope_frequencies(config, s->inv);
    *out = s;
    return REEL_OK;
}

void ref_state_close(struct ref_state *s) {
    if (!s) return;
    recurrent_release(&s->recurrent);
    mem_free(s->kv);
    mem_free(s->scores);
    mem_free(s->memory);
    mem_free(s);
}

/* ---- saving ---------------------------------------------------------------------------------- */

int ref_state_resume(const struct ref_state *s, int n) {
    return recurrent_resume(&s->recurrent, n < s->n_positions ? n : s->n_positions);
}

static size_t kv_save_bytes(const struct ref_state *s, int n) {
    return (size_t)s->kv_layers * 2 * (size_t)n * (size_t)s->kv_dim * sizeof(float);
}

size_t ref_state_save_bytes(const struct ref_state *s, int n) {
    return kv_save_bytes(s, n) + recurrent_save_bytes(&s->recurrent, n);
}

enum reel_status ref_state_save(const struct ref_state *s, int n, void *bytes,
                                struct reel_error *err) {
    if (n < 0 || n > s->n_positions || ref_state_resume(s, n) != n)
        return err_set(err, REEL_E_STATE, "%d positions asked for, %d are held", n,
                       n < 0 ? 0 : ref_state_resume(s, n));
    size_t block = (size_t)n * (size_t)s->kv_dim * sizeof(float);
    for (int i = 0; i < s->kv_layers * 2; i++)
        memcpy((char *)bytes + (size_t)i * block, kv_rows(s, i / 2, i % 2, 0), block);
    recurrent_save(&s->recurrent, n, (char *)bytes + kv_save_bytes(s, n));
    return REEL_OK;
}

enum reel_status ref_state_restore(struct ref_state *s, int n, const void *bytes, size_t n_bytes,
                                   struct reel_error *err) {
    if (n < 0 || n > s->options.max_positions)
        return err_set(err, REEL_E_CONTEXT, "%d positions, the session holds %d", n,
                       s->options.max_positions);
    if (n_bytes != ref_state_save_bytes(s, n))
        return err_set(err, REEL_E_FORMAT, "%zu bytes of state, %zu are expected", n_bytes,
                       ref_state_save_bytes(s, n));
    size_t block = (size_t)n * (size_t)s->kv_dim * sizeof(float);
    for (int i = 0; i < s->kv_layers * 2; i++)
        memcpy(kv_rows(s, i / 2, i % 2, 0), (const char *)bytes + (size_t)i * block, block);
    recurrent_load(&s->recurrent, n, (const char *)bytes + kv_save_bytes(s, n));
    s->n_positions = n;
    return REEL_OK;
}
