/* "audio_config". The defaults of Hugging Face's config class are not the published checkpoints'
 * values, so nothing that changes the maths may be missing. */
#include "model/audio_config.h"

#include <math.h>
#include <string.h>

/* 3 x 3, stride 2, one row and column of zeros around. */
int audio_convolved(int n) {
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        n = n > 0 ? (n - 1) / 2 + 1 : 0;
    return n;
}

int audio_tokens(int n_frames) {
    return n_frames / M_AUDIO_CHUNK_FRAMES * M_AUDIO_CHUNK_TOKENS +
           audio_convolved(n_frames % M_AUDIO_CHUNK_FRAMES);
}

/* In float32 as the published program computes it; log(10000) is that of a double. */
void audio_position(int position, int hidden, float *out) {
    const int half = hidden / 2;
    const float step = (float)(-log(10000.0) / (half - 1));
    for (int i = 0; i < half; i++) {
        float angle = (float)position * expf(step * (float)i);
        out[i] = sinf(angle);
        out[half + i] = cosf(angle);
    }
}

struct rule {
    struct json_int_rule rule;
    int *out;
};

static enum reel_status read_ints(const json_t *object, const char *name, const struct rule *rules,
                                  size_t n, struct reel_error *err) {
    for (size_t i = 0; i < n; i++) {
        int64_t value = 0;
        enum reel_status status = json_get_int(object, name, &rules[i].rule, &value, err);
        if (status != REEL_OK) return status;
        *rules[i].out = (int)value;
    }
    return REEL_OK;
}

static enum reel_status read_sizes(struct audio_config *c, const json_t *audio, const char *name,
                                   struct reel_error *err) {
    int half_chunk = 0, window = 0;
    const struct rule rules[] = {
        { { "encoder_layers", 1, AUDIO_MAX_LAYERS, 0, true }, &c->n_layers },
        { { "d_model", 4, AUDIO_MAX_HIDDEN, 0, true }, &c->hidden },
        { { "encoder_attention_heads", 1, AUDIO_MAX_HIDDEN, 0, true }, &c->n_heads },
        { { "encoder_ffn_dim", 1, AUDIO_MAX_INTERMEDIATE, 0, true }, &c->intermediate },
        { { "num_mel_bins", 8, AUDIO_MAX_BINS, 0, true }, &c->n_bins },
        { { "downsample_hidden_size", 1, AUDIO_MAX_CHANNELS, 0, true }, &c->n_channels },
        { { "output_dim", 1, AUDIO_MAX_HIDDEN, 0, true }, &c->output_dim },
        { { "n_window", 1, 1 << 16, 0, true }, &half_chunk },
        { { "n_window_infer", 1, AUDIO_MAX_WINDOW, 0, true }, &window },
    };
    enum reel_status status = read_ints(audio, name, rules, sizeof rules / sizeof rules[0], err);
    if (status != REEL_OK) return status;
    c->window_chunks = window / M_AUDIO_CHUNK_FRAMES;
    if (half_chunk != M_AUDIO_CHUNK_FRAMES / 2)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: \"n_window\" is %d, supported is %d", name,
                       half_chunk, M_AUDIO_CHUNK_FRAMES / 2);
    if (window % M_AUDIO_CHUNK_FRAMES)
        return err_set(err, REEL_E_FORMAT, "%s: \"n_window_infer\" is %d, not a multiple of %d",
                       name, window, M_AUDIO_CHUNK_FRAMES);
    if (c->hidden % c->n_heads || c->hidden % 2)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"d_model\" is %d, it must be even and a multiple of the %d attention "
                       "heads",
                       name, c->hidden, c->n_heads);
    return REEL_OK;
}

static enum reel_status refuse_variants(const json_t *audio, const char *name,
                                        struct reel_error *err) {
    const char *act = NULL;
    bool scaled = false;
    enum reel_status status = json_get_text(audio, name, "activation_function", &act, err);
    if (status == REEL_OK && act && strcmp(act, "gelu") != 0)
        status =
            err_set(err, REEL_E_UNSUPPORTED,
                    "%s: \"activation_function\" is \"%.60s\", supported is \"gelu\"", name, act);
    if (status == REEL_OK)
        status = json_get_bool(audio, name, "scale_embedding", false, &scaled, err);
    if (status == REEL_OK && scaled)
        status = err_set(err, REEL_E_UNSUPPORTED,
                         "%s: \"scale_embedding\" is true, supported is "
                         "false",
                         name);
    return status;
}

enum reel_status audio_config_read(struct audio_config *c, const json_t *part, const char *name,
                                   int hidden, int vocab, struct reel_error *err) {
    const json_t *audio = json_object_get(part, "audio_config");
    if (!json_is_object(audio))
        return err_set(err, REEL_E_FORMAT, "%s: \"audio_config\" must be an object", name);
    enum reel_status status = refuse_variants(audio, name, err);
    if (status == REEL_OK) status = read_sizes(c, audio, name, err);
    const struct rule ids[] = {
        { { "audio_token_id", 0, vocab - 1, 0, true }, &c->token_id },
        { { "audio_start_token_id", 0, vocab - 1, -1, false }, &c->start_id },
        { { "audio_end_token_id", 0, vocab - 1, -1, false }, &c->end_id },
    };
    if (status == REEL_OK) status = read_ints(part, name, ids, 3, err);
    if (status == REEL_OK && c->output_dim != hidden)
        status = err_set(err, REEL_E_FORMAT,
                         "%s: \"output_dim\" is %d, it must be the language model's "
                         "\"hidden_size\", %d",
                         name, c->output_dim, hidden);
    return status;
}
