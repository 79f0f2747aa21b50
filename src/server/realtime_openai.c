/* OpenAI's transcription sessions: their settings and events, and the older names of both
 * (transcription_session.update), which some clients still send. */
#include "server/realtime_core.h"

#include "server/transcription_form.h"

#include <stdio.h>
#include <string.h>

#define TRANSCRIPTION "conversation.item.input_audio_transcription."

/* ---- events ---- */

static void begin_event(struct realtime *r, const char *type) {
    realtime_put(r, "{\"type\":\"%s\",\"event_id\":\"event_%s_%u\"", type, r->host.id,
                 ++r->n_events);
}

static void end_event(struct realtime *r) {
    realtime_put(r, "}");
    realtime_send(r);
}

static void put_item(struct realtime *r, const char *name, int item) {
    if (item == 0)
        realtime_put(r, ",\"%s\":null", name);
    else
        realtime_put(r, ",\"%s\":\"item_%s_%d\"", name, r->host.id, item);
}

static void begin_item_event(struct realtime *r, const char *type) {
    begin_event(r, type);
    put_item(r, "item_id", r->item);
    realtime_put(r, ",\"content_index\":0");
}

static void delta(struct realtime *r, const char *text, size_t n) {
    begin_item_event(r, TRANSCRIPTION "delta");
    realtime_put(r, ",\"delta\":");
    realtime_put_text(r, text, n);
    end_event(r);
}

/* An event of our own: "text" is all of the item as it stands, "uncertain" its end, which may
 * still change. */
static void partial(struct realtime *r, const char *text, size_t n) {
    struct buffer whole = { 0 };
    enum reel_status status = buffer_append(&whole, r->certain.bytes, r->certain.size, NULL);
    if (status == REEL_OK) status = buffer_append(&whole, text, n, NULL);
    begin_item_event(r, TRANSCRIPTION "partial");
    realtime_put(r, ",\"text\":");
    realtime_put_text(r, whole.bytes ? whole.bytes : "", whole.size);
    realtime_put(r, ",\"uncertain\":");
    realtime_put_text(r, text, n);
    if (status == REEL_OK)
        end_event(r);
    else
        r->out.size = 0;
    buffer_release(&whole);
}

static void started(struct realtime *r) {
    begin_event(r, "input_audio_buffer.speech_started");
    realtime_put(r, ",\"audio_start_ms\":%lld", realtime_ms(r->begin));
    put_item(r, "item_id", r->item);
    end_event(r);
}

static void stopped(struct realtime *r) {
    begin_event(r, "input_audio_buffer.speech_stopped");
    realtime_put(r, ",\"audio_end_ms\":%lld", realtime_ms(r->end));
    put_item(r, "item_id", r->item);
    end_event(r);
}

static void committed(struct realtime *r) {
    begin_event(r, "input_audio_buffer.committed");
    put_item(r, "previous_item_id", r->previous_item);
    put_item(r, "item_id", r->item);
    end_event(r);
}

static void completed(struct realtime *r, const struct reel_transcript *t) {
    begin_item_event(r, TRANSCRIPTION "completed");
    realtime_put(r, ",\"transcript\":");
    realtime_put_string(r, t->text);
    realtime_put(r, ",\"language\":");
    realtime_put_string(r, t->language);
    const int in = t->n_audio_tokens + t->n_prompt_tokens;
    realtime_put(r,
                 ",\"usage\":{\"type\":\"tokens\",\"input_tokens\":%d,\"input_token_details\":"
                 "{\"audio_tokens\":%d,\"text_tokens\":%d},\"output_tokens\":%d,"
                 "\"total_tokens\":%d}",
                 in, t->n_audio_tokens, t->n_prompt_tokens, t->n_tokens, in + t->n_tokens);
    end_event(r);
}

static void failed(struct realtime *r, const struct reel_error *err) {
    const bool quiet = err->status == REEL_E_STATE; /* realtime_rest says it alone */
    const bool request = quiet || err->status == REEL_E_LIMIT || err->status == REEL_E_CONTEXT;
    begin_item_event(r, TRANSCRIPTION "failed");
    realtime_put(r, ",\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"param\":null,\"message\":",
                 request ? "invalid_request_error" : "server_error",
                 quiet     ? "audio_timeout"
                 : request ? "audio_too_long"
                           : "transcription_failed");
    realtime_put_string(r, err->text);
    realtime_put(r, "}");
    end_event(r);
}

static void cleared(struct realtime *r) {
    begin_event(r, "input_audio_buffer.cleared");
    end_event(r);
}

static void error(struct realtime *r, const char *code, const char *param, const char *text) {
    const bool server = strcmp(code, "server_error") == 0 || strcmp(code, "overloaded") == 0;
    begin_event(r, "error");
    realtime_put(r, ",\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"param\":",
                 server ? "server_error" : "invalid_request_error", code);
    realtime_put_string(r, param);
    realtime_put(r, ",\"message\":");
    realtime_put_string(r, text);
    realtime_put(r, ",\"event_id\":");
    realtime_put_string(r, r->client_event[0] ? r->client_event : NULL);
    realtime_put(r, "}");
    end_event(r);
}

/* ---- the session as the server tells it ---- */

static void put_transcription(struct realtime *r) {
    realtime_put(r, "{\"model\":");
    realtime_put_string(r, r->model_name);
    realtime_put(r, ",\"language\":");
    realtime_put_string(r, r->set.language[0] ? r->set.language : NULL);
    realtime_put(r, ",\"prompt\":");
    realtime_put_string(r, r->set.prompt);
    realtime_put(r, "}");
}

static void put_turn_detection(struct realtime *r) {
    if (!r->set.vad)
        realtime_put(r, "null");
    else
        realtime_put(r,
                     "{\"type\":\"server_vad\",\"threshold\":%g,\"prefix_padding_ms\":%d,"
                     "\"silence_duration_ms\":%d}",
                     r->set.threshold, r->set.prefix_ms, r->set.silence_ms);
}

static void put_session(struct realtime *r) {
    static const char *const types[] = { [REALTIME_PCM16] = "audio/pcm",
                                         [REALTIME_ULAW] = "audio/pcmu",
                                         [REALTIME_ALAW] = "audio/pcma" };
    static const char *const old[] = {
        [REALTIME_PCM16] = "pcm16", [REALTIME_ULAW] = "g711_ulaw", [REALTIME_ALAW] = "g711_alaw"
    };
    realtime_put(r,
                 ",\"session\":{\"id\":\"sess_%s\",\"object\":\"realtime.transcription_session\"",
                 r->host.id);
    if (r->beta) {
        realtime_put(r, ",\"input_audio_format\":\"%s\",\"input_audio_transcription\":",
                     old[r->set.encoding]);
        put_transcription(r);
        realtime_put(r, ",\"input_audio_noise_reduction\":null,\"turn_detection\":");
        put_turn_detection(r);
        realtime_put(r, ",\"include\":[]}");
        return;
    }
    realtime_put(r,
                 ",\"type\":\"transcription\",\"include\":[],\"audio\":{\"input\":{\"format\":"
                 "{\"type\":\"%s\",\"rate\":%d},\"noise_reduction\":null,\"transcription\":",
                 types[r->set.encoding], r->set.rate);
    put_transcription(r);
    realtime_put(r, ",\"turn_detection\":");
    put_turn_detection(r);
    realtime_put(r, "}},\"reel\":{\"partials\":%s,\"step_seconds\":%g}}",
                 r->set.partials ? "true" : "false", r->set.step_seconds);
}

/* The first event is said before the client has shown its dialect: vLLM's clients read "id" and
 * "created", OpenAI's "session". */
static void created(struct realtime *r) {
    begin_event(r, "session.created");
    if (!r->decided)
        realtime_put(r, ",\"id\":\"sess-%s\",\"created\":%lld", r->host.id, r->created);
    put_session(r);
    end_event(r);
}

static void updated(struct realtime *r) {
    begin_event(r, r->beta ? "transcription_session.updated" : "session.updated");
    put_session(r);
    end_event(r);
}

/* ---- settings ---- */

/* What is wrong with a session.update. */
struct refusal {
    const char *param;
    char text[200];
};

static bool refuse(struct refusal *why, const char *param, const char *text) {
    why->param = param;
    realtime_copy(why->text, sizeof why->text, text);
    return false;
}

static bool read_transcription(struct realtime_settings *set, const json_t *object,
                               struct refusal *why) {
    const json_t *language = json_object_get(object, "language");
    const char *model = realtime_text(object, "model"), *prompt = realtime_text(object, "prompt");
    if (model && !realtime_copy(set->model, sizeof set->model, model))
        return refuse(why, "model", "the model's name is too long");
    if (prompt && !realtime_copy(set->prompt, sizeof set->prompt, prompt))
        return refuse(why, "prompt", "prompt is longer than 4096 bytes");
    if (json_is_null(language)) set->language[0] = '\0';
    if (json_is_string(language) &&
        !realtime_copy(set->language, sizeof set->language, json_string_value(language)))
        return refuse(why, "language", "language is too long");
    transcription_language(set->language);
    return true;
}

/* A number in [least, most] that may be missing. */
static bool read_number(const json_t *object, const char *key, double least, double most,
                        double *out) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return true;
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= least && number <= most)) return false;
    *out = number;
    return true;
}

/* object: the value of turn_detection, which is there. */
static bool read_turns(struct realtime_settings *set, const json_t *object, struct refusal *why) {
    const char *type = realtime_text(object, "type");
    double prefix = set->prefix_ms, silence = set->silence_ms;
    set->vad = json_is_object(object);
    if (json_is_null(object)) return true;
    if (!set->vad)
        return refuse(why, "turn_detection", "turn_detection has to be an object or null");
    if (type && strcmp(type, "server_vad") != 0)
        return refuse(why, "turn_detection.type",
                      "turn_detection.type has to be server_vad, which finds speech by its "
                      "loudness; turn_detection null leaves it to the client");
    if (!read_number(object, "threshold", 0, 1, &set->threshold))
        return refuse(why, "turn_detection.threshold", "threshold has to be 0 to 1");
    if (!read_number(object, "prefix_padding_ms", 0, REALTIME_MOST_PREFIX, &prefix))
        return refuse(why, "turn_detection.prefix_padding_ms",
                      "prefix_padding_ms has to be 0 to 2000");
    if (!read_number(object, "silence_duration_ms", 20, 10000, &silence))
        return refuse(why, "turn_detection.silence_duration_ms",
                      "silence_duration_ms has to be 20 to 10000");
    set->prefix_ms = (int)prefix;
    set->silence_ms = (int)silence;
    return true;
}

static bool set_format(struct realtime_settings *set, const char *type, double rate,
                       struct refusal *why) {
    set->encoding =
        strcmp(type, "audio/pcmu") == 0 || strcmp(type, "g711_ulaw") == 0   ? REALTIME_ULAW
        : strcmp(type, "audio/pcma") == 0 || strcmp(type, "g711_alaw") == 0 ? REALTIME_ALAW
                                                                            : REALTIME_PCM16;
    if (set->encoding != REALTIME_PCM16) {
        set->rate = 8000;
        return true;
    }
    if (strcmp(type, "audio/pcm") != 0 && strcmp(type, "pcm16") != 0)
        return refuse(why, "format",
                      "the audio's format has to be audio/pcm, audio/pcmu or "
                      "audio/pcma");
    if (rate != 24000 && rate != 16000 && rate != 8000 && rate != 48000)
        return refuse(why, "rate",
                      "the rate of audio/pcm has to be 24000, or 8000, 16000 or "
                      "48000");
    set->rate = (int)rate;
    return true;
}

static bool read_session(struct realtime_settings *set, const json_t *session,
                         struct refusal *why) {
    const json_t *input = json_object_get(json_object_get(session, "audio"), "input");
    const json_t *format = json_object_get(input, "format");
    const json_t *turns = json_object_get(input, "turn_detection");
    const char *type = realtime_text(session, "type");
    double rate = 24000;
    if (type && strcmp(type, "transcription") != 0)
        return refuse(why, "session.type",
                      "session.type has to be transcription: this server hears, it does not speak");
    if (json_is_object(format)) {
        const char *kind = realtime_text(format, "type");
        if (!read_number(format, "rate", 1, 1e6, &rate))
            return refuse(why, "rate", "rate has to be a number");
        if (!set_format(set, kind ? kind : "audio/pcm", rate, why)) return false;
    }
    if (turns && !read_turns(set, turns, why)) return false;
    return read_transcription(set, json_object_get(input, "transcription"), why);
}

static bool read_beta_session(struct realtime_settings *set, const json_t *session,
                              struct refusal *why) {
    const char *format = realtime_text(session, "input_audio_format");
    const json_t *turns = json_object_get(session, "turn_detection");
    if (format && !set_format(set, format, 24000, why)) return false;
    if (turns && !read_turns(set, turns, why)) return false;
    return read_transcription(set, json_object_get(session, "input_audio_transcription"), why);
}

/* What only this server knows: "reel": {"partials": true, "step_seconds": 0.5}. */
static bool read_own(struct realtime_settings *set, const json_t *session, struct refusal *why) {
    const json_t *own = json_object_get(session, "reel");
    const json_t *partials = json_object_get(own, "partials");
    if (partials) set->partials = json_is_true(partials);
    return read_number(own, "step_seconds", 0.5, 10, &set->step_seconds) ||
           refuse(why, "reel.step_seconds", "step_seconds has to be 0.5 to 10");
}

static void update(struct realtime *r, const json_t *message, bool beta) {
    const json_t *session = json_object_get(message, "session");
    struct realtime_settings set = r->set;
    struct refusal why = { 0 };
    if (!json_is_object(session)) {
        error(r, "missing_required_parameter", "session", "session.update has no session");
        return;
    }
    /* Some clients send the older fields under the newer name. */
    const bool old = beta || json_object_get(session, "input_audio_format") ||
                     json_object_get(session, "input_audio_transcription");
    const bool good =
        (old ? read_beta_session(&set, session, &why) : read_session(&set, session, &why)) &&
        read_own(&set, session, &why);
    if (!good) {
        error(r, "invalid_value", why.param, why.text);
        return;
    }
    if (r->open && (set.rate != r->set.rate || set.encoding != r->set.encoding)) {
        error(r, "invalid_value", "format", "the audio's format cannot change inside an item");
        return;
    }
    r->beta = beta;
    if (realtime_configure(r, &set)) updated(r);
}

/* ---- messages ---- */

static void message_read(struct realtime *r, const char *type, const json_t *message) {
    if (!message) {
        created(r);
    } else if (strcmp(type, "input_audio_buffer.append") == 0) {
        const json_t *audio = json_object_get(message, "audio");
        if (json_is_string(audio))
            realtime_append(r, json_string_value(audio), json_string_length(audio));
        else
            error(r, "missing_required_parameter", "audio", "the message has no audio");
    } else if (strcmp(type, "input_audio_buffer.commit") == 0) {
        realtime_commit(r);
    } else if (strcmp(type, "input_audio_buffer.clear") == 0) {
        realtime_clear(r);
    } else if (strcmp(type, "session.update") == 0) {
        update(r, message, false);
    } else if (strcmp(type, "transcription_session.update") == 0) {
        update(r, message, true);
    } else {
        char text[200];
        snprintf(text, sizeof text,
                 "type \"%.60s\" is none of session.update, input_audio_buffer.append, .commit and "
                 ".clear",
                 type);
        error(r, "unknown_event", "type", text);
    }
}

const struct realtime_dialect realtime_openai = {
    .message = message_read,
    .delta = delta,
    .partial = partial,
    .started = started,
    .stopped = stopped,
    .committed = committed,
    .completed = completed,
    .failed = failed,
    .cleared = cleared,
    .error = error,
};
