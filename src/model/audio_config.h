/* The numbers of a speech model's audio tower: "audio_config" of a Qwen3-ASR checkpoint, and the
 * ids of the tokens around the audio. */
#ifndef REEL_MODEL_AUDIO_CONFIG_H
#define REEL_MODEL_AUDIO_CONFIG_H

#include "base/json.h"

#define AUDIO_MAX_LAYERS       128
#define AUDIO_MAX_BINS         512
#define AUDIO_MAX_CHANNELS     4096
#define AUDIO_MAX_HIDDEN       8192
#define AUDIO_MAX_INTERMEDIATE 65536
#define AUDIO_MAX_WINDOW       12000 /* frames that see each other */

#define M_AUDIO_CHUNK_FRAMES 100 /* that are convolved together: one second */
#define M_AUDIO_CHUNK_TOKENS 13  /* what comes of them */
#define M_AUDIO_CONVS        3   /* each halves bins and frames */
#define M_AUDIO_TAPS         9   /* of a convolution, 3 x 3 */

struct audio_config {
    int n_layers; /* 0: the model does not hear, and all else is 0 */
    int hidden;   /* even */
    int n_heads;
    int intermediate;
    int n_bins;        /* of the log-mel features */
    int n_channels;    /* of the convolutions */
    int window_chunks; /* tokens see those of as many chunks, no others */
    int output_dim;    /* the hidden size of the language model */
    int token_id;      /* stands for one audio vector in a prompt */
    int start_id;      /* opens the audio; -1: the file does not say */
    int end_id;
};

/* Bins, or frames of a chunk, that are left after all convolutions. */
int audio_convolved(int n);
/* Entries that one token of the convolutions has: [n_channels, bins left]. */
static inline int audio_conv_width(const struct audio_config *c) {
    return c->n_channels * audio_convolved(c->n_bins);
}

/* Vectors that come of n_frames: 13 for each 100, of the rest what the convolutions leave. */
int audio_tokens(int n_frames);
/* Position of a token in its chunk, to f32 out [hidden]: sines, then cosines. */
void audio_position(int position, int hidden, float *out);

/* Reads object "audio_config" and the ids of the object it lies in, `part`. hidden and vocab are
 * those of the language model; `name` is the file in messages. */
enum reel_status audio_config_read(struct audio_config *config, const json_t *part,
                                   const char *name, int hidden, int vocab, struct reel_error *err);

#endif
