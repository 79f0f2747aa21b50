/* config.json, and after a zero byte generation_config.json. Whatever is accepted keeps its limits.
 */
#include "model/model_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_audio(const struct model_config *config) {
    const struct audio_config *c = &config->audio;
    if (config->family != MODEL_QWEN3_ASR) {
        if (c->n_layers) abort();
        return;
    }
    bool ok = c->n_layers >= 1 && c->n_layers <= AUDIO_MAX_LAYERS && c->hidden >= 4 &&
              c->hidden <= AUDIO_MAX_HIDDEN && c->hidden % 2 == 0 && c->n_heads >= 1 &&
              c->hidden % c->n_heads == 0 && c->intermediate >= 1 &&
              c->intermediate <= AUDIO_MAX_INTERMEDIATE && c->n_bins >= 8 &&
              c->n_bins <= AUDIO_MAX_BINS && c->n_channels >= 1 &&
              c->n_channels <= AUDIO_MAX_CHANNELS && c->window_chunks >= 1 &&
              c->window_chunks <= AUDIO_MAX_WINDOW / M_AUDIO_CHUNK_FRAMES &&
              c->output_dim == config->hidden && c->token_id >= 0 && c->token_id < config->vocab &&
              c->start_id >= -1 && c->start_id < config->vocab && c->end_id >= -1 &&
              c->end_id < config->vocab;
    if (!ok) abort();
}

static void check_limits(const struct model_config *c) {
    float inv[MODEL_MAX_HEAD_DIM / 2];
    bool ok = c->hidden >= 1 && c->hidden <= MODEL_MAX_HIDDEN && c->n_layers >= 1 &&
              c->n_layers <= MODEL_MAX_LAYERS && c->n_heads >= 1 && c->n_heads <= MODEL_MAX_HEADS &&
              c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->head_dim >= 2 &&
              c->head_dim % 2 == 0 && c->head_dim <= MODEL_MAX_HEAD_DIM && c->rotary_dim >= 2 &&
              c->rotary_dim % 2 == 0 && c->rotary_dim <= c->head_dim && c->vocab >= 1 &&
              c->vocab <= MODEL_MAX_VOCAB && c->max_context >= 1 &&
              c->max_context <= MODEL_MAX_CONTEXT && c->rms_eps > 0 && c->n_stop_ids >= 0 &&
              c->n_stop_ids <= MODEL_MAX_STOP_IDS;
    if (!ok) abort();
    check_audio(c);
    model_rope_frequencies(c, inv);
    for (int i = 0; i < c->rotary_dim / 2; i++)
        if (!isfinite(inv[i])) abort();
    for (int i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] < 0 || c->stop_ids[i] >= c->vocab) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t first = zero ? (size_t)(zero - data) : n;
    struct reel_memory_file files[] = {
        { "config.json", data, first },
        { "generation_config.json", zero ? zero + 1 : data, zero ? n - first - 1 : 0 },
    };
    struct model_source source;
    struct model_config config;
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", files, zero ? 2 : 1, &err) != REEL_OK) return 0;
    enum reel_status status = model_config_read(&config, &source, &err);
    if (status == REEL_OK) check_limits(&config);
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    model_source_release(&source);
    return 0;
}
