#include "server/speech.h"

#include <string.h>

/* The demo model has learned from short clips with short pauses. */
#define DEMO_NAME    "demo-speech"
#define DEMO_SEGMENT 8
#define DEMO_PAUSE   0.45

void speech_options(struct reel_transcriber_options *options, const struct served_model *m) {
    *options = (struct reel_transcriber_options){ .size = sizeof *options };
    if (strcmp(m->info.name, DEMO_NAME) != 0) return;
    options->segment_seconds = DEMO_SEGMENT;
    options->pause_seconds = DEMO_PAUSE;
}

enum reel_status speech_usage_tokens(struct buffer *out, const struct reel_transcript *t,
                                     struct reel_error *err) {
    const int in = t->n_audio_tokens + t->n_prompt_tokens;
    return buffer_printf(out, err,
                         "{\"type\":\"tokens\",\"input_tokens\":%d,\"input_token_details\":"
                         "{\"audio_tokens\":%d,\"text_tokens\":%d},\"output_tokens\":%d,"
                         "\"total_tokens\":%d}",
                         in, t->n_audio_tokens, t->n_prompt_tokens, t->n_tokens, in + t->n_tokens);
}

enum reel_status speech_usage_chat(struct buffer *out, const struct reel_transcript *t,
                                   struct reel_error *err) {
    const int in = t->n_audio_tokens + t->n_prompt_tokens;
    return buffer_printf(out, err,
                         "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}", in,
                         t->n_tokens, in + t->n_tokens);
}

void speech_note_figures(struct exchange *x, const struct reel_transcript *t) {
    struct exchange_figures *f = exchange_figures(x);
    f->n_prompt += t->n_audio_tokens + t->n_prompt_tokens;
    f->n_generated += t->n_tokens;
    struct served_model *m = server_find_model(exchange_server(x), f->model, true);
    if (m) atomic_fetch_add(&m->n_made, (unsigned long long)t->n_tokens);
    f->generate_ms += t->generate_ms;
}
