/* vLLM's realtime dialect: session.update names the model, a first commit begins an utterance, a
 * commit with "final" ends it; 16,000 Hz. Audio that comes without the first commit is heard, too.
 */
#include "server/realtime_core.h"

#include <stdio.h>
#include <string.h>

static void delta(struct realtime *r, const char *text, size_t n) {
    realtime_put(r, "{\"type\":\"transcription.delta\",\"delta\":");
    realtime_put_text(r, text, n);
    realtime_put(r, "}");
    realtime_send(r);
}

static void completed(struct realtime *r, const struct reel_transcript *t) {
    const int in = t->n_audio_tokens + t->n_prompt_tokens;
    realtime_put(r, "{\"type\":\"transcription.done\",\"text\":");
    realtime_put_string(r, t->text);
    realtime_put(r,
                 ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}",
                 in, t->n_tokens, in + t->n_tokens);
    realtime_send(r);
}

static void error(struct realtime *r, const char *code, const char *param, const char *text) {
    (void)param;
    realtime_put(r, "{\"type\":\"error\",\"error\":");
    realtime_put_string(r, text);
    realtime_put(r, ",\"code\":\"%s\"}", code);
    realtime_send(r);
}

static void failed(struct realtime *r, const struct reel_error *err) {
    error(r, err->status == REEL_E_STATE ? "audio_timeout" : "processing_error", NULL, err->text);
}

static void nothing(struct realtime *r) { (void)r; }

static void no_partial(struct realtime *r, const char *text, size_t n) {
    (void)r, (void)text, (void)n;
}

static void update(struct realtime *r, const json_t *message) {
    const char *model = realtime_text(message, "model");
    struct realtime_settings set = r->set;
    if (model && !realtime_copy(set.model, sizeof set.model, model))
        error(r, "invalid_value", "model", "the model's name is too long");
    else
        (void)realtime_configure(r, &set);
}

static void end_utterance(struct realtime *r) {
    static const struct reel_transcript none = { .text = "" };
    if (realtime_is_idle(r))
        completed(r, &none); /* a client that has said nothing waits for this, too */
    else
        realtime_commit(r);
}

static void message_read(struct realtime *r, const char *type, const json_t *message) {
    if (strcmp(type, "session.update") == 0) {
        update(r, message);
    } else if (strcmp(type, "input_audio_buffer.append") == 0) {
        const json_t *audio = json_object_get(message, "audio");
        if (json_is_string(audio) && json_string_length(audio) > 0)
            realtime_append(r, json_string_value(audio), json_string_length(audio));
        else
            error(r, "invalid_audio", "audio", "the message has no audio");
    } else if (strcmp(type, "input_audio_buffer.commit") == 0) {
        if (json_is_true(json_object_get(message, "final"))) end_utterance(r);
    } else if (strcmp(type, "input_audio_buffer.clear") == 0) {
        realtime_clear(r);
    } else {
        char text[120];
        snprintf(text, sizeof text, "Unknown event type: %.60s", type);
        error(r, "unknown_event", "type", text);
    }
}

const struct realtime_dialect realtime_vllm = {
    .message = message_read,
    .delta = delta,
    .partial = no_partial,
    .started = nothing,
    .stopped = nothing,
    .committed = nothing,
    .completed = completed,
    .failed = failed,
    .cleared = nothing,
    .error = error,
};
