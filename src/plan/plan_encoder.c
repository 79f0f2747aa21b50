/* The audio tower of a speech model: whether kernels/encoder.cu takes it, how many chunks
 * (seconds of sound) it takes at once, and its scratch memory. The tower runs on all of the GPU's
 * SMs, as prompts do. */
#include "plan/plan_layout.h"

enum {
    CHUNKS = 15,      /* at once: their neighbourhoods take 7 MB each and pass through memory */
    MOST_CHUNKS = 40, /* of one run, unless a window is longer */
    MOST_WINDOW = 128 /* tokens whose scores a warp holds */
};

static const char *refusal(const struct plan *p, const struct audio_config *c) {
    if (p->prefill_tokens == 0) return p->prefill_none;
    if (c->hidden % c->n_heads || c->hidden / c->n_heads % 16 || c->hidden / c->n_heads > 128)
        return "needs heads of a multiple of 16 entries, up to 128";
    if (c->window_chunks * ENC_TOKENS > MOST_WINDOW) return "needs windows of up to 9 seconds";
    return NULL;
}

static uint64_t room_for(uint64_t tokens) {
    return (tokens + ATOM_TOKENS - 1) / ATOM_TOKENS * ATOM_TOKENS;
}

/* Bytes of activations: bf16, columns in whole blocks. */
static uint64_t activations(int columns, uint64_t room) {
    return (uint64_t)enc_blocks(columns) * 2 * room;
}

static void lay_scratch(struct plan_encoder *e) {
    enum { ALIGN = 1024 }; /* an atom of activations */
    const struct encoder_shape *s = &e->shape;
    const uint64_t chunks = (uint64_t)e->most_chunks, tokens = room_for(chunks * ENC_TOKENS);
    const uint64_t at2 = room_for((uint64_t)(e->chunks * enc_bins(s, 2) * enc_frames(2)));
    const uint64_t at3 = room_for((uint64_t)(e->chunks * enc_bins(s, 3) * enc_frames(3)));
    struct {
        uint64_t *at, bytes;
    } parts[] = {
        { &e->features, chunks * ENC_FRAMES * (uint64_t)s->bins * 4 },
        { &e->taps2, activations(enc_columns(s, ENC_CONV2), at2) },
        { &e->taps3, activations(enc_columns(s, ENC_CONV3), at3) },
        { &e->binned, activations(enc_columns(s, ENC_CONV_OUT), tokens) },
        { &e->h, (uint64_t)s->hidden * 4 * tokens },
        { &e->x, activations(s->hidden, tokens) },
        { &e->qkv, (uint64_t)s->hidden * 6 * tokens },
        { &e->attended, activations(s->hidden, tokens) },
        { &e->wide, activations(s->intermediate, tokens) },
        { &e->out, (uint64_t)s->out * 4 * tokens },
    };
    e->scratch_bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].at = e->scratch_bytes;
        e->scratch_bytes += (parts[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

void plan_encoder(struct plan *p, const struct model_config *config) {
    const struct audio_config *c = &config->audio;
    struct plan_encoder *e = &p->encoder;
    *e = (struct plan_encoder){ 0 };
    if (c->n_layers == 0) return;
    e->none = refusal(p, c);
    if (e->none) return;
    e->shape = (struct encoder_shape){ .bins = c->n_bins,
                                       .channels = c->n_channels,
                                       .hidden = c->hidden,
                                       .heads = c->n_heads,
                                       .intermediate = c->intermediate,
                                       .out = c->output_dim,
                                       .layers = c->n_layers,
                                       .window = c->window_chunks * ENC_TOKENS,
                                       .format = plan_format(PLAN_FORMAT_AUDIO, TILE_BF16, 0) };
    const int windows = MOST_CHUNKS / c->window_chunks;
    e->most_chunks = c->window_chunks * (windows > 1 ? windows : 1);
    e->chunks = CHUNKS < e->most_chunks ? CHUNKS : e->most_chunks;
    lay_scratch(e);
}

struct prefill_cut plan_encoder_cut(const struct plan *p, int product, int n) {
    const struct encoder_shape *s = &p->encoder.shape;
    return plan_best_cut(p, plan_ceil(enc_rows(s, product), TILE_ROWS),
                         enc_columns(s, product) / TILE_K, n);
}
