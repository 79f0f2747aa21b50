/* What stands behind struct realtime, for its dialects. */
#ifndef REEL_SERVER_REALTIME_CORE_H
#define REEL_SERVER_REALTIME_CORE_H

#include "base/buffer.h"
#include "base/json.h"
#include "server/realtime.h"
#include "server/voice.h"

enum realtime_encoding { REALTIME_PCM16, REALTIME_ULAW, REALTIME_ALAW };

struct realtime_settings {
    char model[256];   /* empty: the only one */
    char language[64]; /* empty: the model finds out */
    char prompt[4097];
    enum realtime_encoding encoding;
    int rate;
    bool vad; /* the server finds where speech begins and ends */
    double threshold;
    int prefix_ms, silence_ms;
    bool partials;       /* text that may still change is sent, too */
    double step_seconds; /* 0: as suits the model */
};

/* How events are said. */
struct realtime_dialect {
    /* A message of type `type`. */
    void (*message)(struct realtime *r, const char *type, const json_t *message);
    void (*delta)(struct realtime *r, const char *text, size_t n);
    void (*partial)(struct realtime *r, const char *text, size_t n);
    void (*started)(struct realtime *r); /* by the server's own detection */
    void (*stopped)(struct realtime *r);
    void (*committed)(struct realtime *r);
    void (*completed)(struct realtime *r, const struct reel_transcript *t);
    void (*failed)(struct realtime *r, const struct reel_error *err); /* the item at hand */
    void (*cleared)(struct realtime *r);
    /* param, code: or NULL */
    void (*error)(struct realtime *r, const char *code, const char *param, const char *text);
};

extern const struct realtime_dialect realtime_openai, realtime_vllm;

enum { REALTIME_MOST_PREFIX = 2000 }; /* ms kept before speech */

struct realtime {
    struct realtime_host host;
    const struct realtime_dialect *dialect;
    bool decided; /* which dialect */
    bool beta;    /* OpenAI's older names of events */
    struct realtime_settings set;
    const char *model_name;
    const struct reel_model *model; /* NULL: not looked for yet */
    struct reel_transcriber_options options;
    struct reel_transcriber *transcriber; /* or NULL: opened when there is audio */
    bool taken;                           /* the right to one */
    bool stale;                           /* settings have changed since it was opened */
    /* audio */
    struct reel_resampler *resampler; /* NULL: 16,000 Hz come */
    int resampler_rate;
    struct buffer bytes; /* of a message, decoded; an odd byte is kept */
    struct voice voice;
    float frame[VOICE_FRAME]; /* [n_frame]: not heard by `voice` yet */
    int n_frame;
    float *before; /* ring of what came before speech, the newest at the end */
    size_t n_before, before_at;
    /* the item at hand */
    bool open;
    int item, previous_item; /* numbers; 0: none */
    uint64_t n_heard;        /* samples at 16,000 Hz, of the session */
    uint64_t begin, end;     /* of the item, where speech was found */
    uint64_t n_item;         /* samples given to the transcriber */
    uint64_t n_counted;      /* of these, those that were there at heard_ms */
    double heard_ms;         /* when enough audio came last, on the monotonic clock */
    struct buffer certain;   /* its text so far, for partials */
    /* events */
    struct buffer out;
    unsigned n_events;
    long long created;     /* seconds of 1970 */
    char client_event[64]; /* the message's own id, for errors about it */
    bool over;
};

/* An event is written into r->out and then sent. */
void realtime_send(struct realtime *r);
void realtime_put(struct realtime *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void realtime_put_text(struct realtime *r, const char *text, size_t n);
void realtime_put_string(struct realtime *r, const char *text); /* NULL: null */

/* Looks the model up; says an error and gives false where there is none. Settings that a
 * transcriber was opened with take effect with the next item. */
bool realtime_configure(struct realtime *r, const struct realtime_settings *set);

void realtime_append(struct realtime *r, const char *base64, size_t n);
/* The item ends and is transcribed to its end. */
void realtime_commit(struct realtime *r);
void realtime_clear(struct realtime *r);
long long realtime_ms(uint64_t n_samples);

/* A text field of a message, borrowed; NULL where it is missing or no text. */
const char *realtime_text(const json_t *object, const char *key);
/* Into out[cap]; false where it does not fit. */
bool realtime_copy(char *out, size_t cap, const char *text);

#endif
