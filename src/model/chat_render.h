/* What the renderers of the template families share: a writer of pieces whose first failure sticks,
 * so that a renderer reads like its template. */
#ifndef REEL_MODEL_CHAT_RENDER_H
#define REEL_MODEL_CHAT_RENDER_H

#include "model/chat_json.h"
#include "model/chat_template.h"

struct chat_job {
    const struct chat_template *chat;
    const struct reel_message *messages; /* roles known, texts are UTF-8; content may be NULL */
    int n_messages;
    struct reel_chat_options options;
    struct chat_text *out;
    struct reel_error *err;
    enum reel_status status; /* the first failure; later writes do nothing */
};

/* Text of the template: control tokens in it count. */
void chat_put_template(struct chat_job *job, const char *text);

/* A string literal of the recognised template, found by how it begins (quote included), with its
 * escapes resolved. Wording is taken from the checkpoint, never typed in here. */
void chat_put_literal(struct chat_job *job, const char *begins);

/* Text of a message. */
void chat_put_message(struct chat_job *job, const char *text, size_t n_bytes);

/* Text of a message that is JSON: as Python's json.dumps writes it, or a string's characters. */
void chat_put_json(struct chat_job *job, struct json_span value);
void chat_put_json_string(struct chat_job *job, struct json_span value);

void chat_render_qwen3(struct chat_job *job);
void chat_render_qwen35(struct chat_job *job);
void chat_render_smollm2(struct chat_job *job);
void chat_render_chatml(struct chat_job *job);

#endif
