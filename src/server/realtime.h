/* A session of /v1/realtime without its socket: a client's messages in, events out.
 *
 * Two dialects are spoken over one core, chosen by what the client says: OpenAI's transcription
 * sessions (24,000 Hz, items, voice detection) and vLLM's (16,000 Hz). */
#ifndef REEL_SERVER_REALTIME_H
#define REEL_SERVER_REALTIME_H

#include "base/error.h"

#include "reel_speech.h"

struct realtime;

/* What a session needs of the world. */
struct realtime_host {
    void *user;
    const char *id;      /* of the session */
    double most_seconds; /* of one item */
    /* An item that gets less than a tenth of a second of audio in so long fails where others wait
     * for its transcriber. */
    double quiet_seconds;
    /* An event for the client. False: it is gone. */
    bool (*send)(void *user, const char *json, size_t n_bytes);
    /* Asked during long work: whether to stop it, since the client left or the server ends. */
    bool (*gone)(void *user);
    /* The model of this name (empty: the only one that hears), how to listen with it, and how often
     * to look for text; *name becomes what it is called. */
    enum reel_status (*find)(void *user, const char **name, const struct reel_model **model,
                             struct reel_transcriber_options *options, struct reel_error *err);
    /* The right to one transcriber of the model found last: waits for it. The other gives it back,
     * and is called for each that was taken. */
    enum reel_status (*take)(void *user, struct reel_error *err);
    void (*give)(void *user);
    bool (*wanted)(void *user); /* others wait for a transcriber */
    void (*spent)(void *user, const struct reel_transcript *transcript); /* an item is done */
};

/* openai: the client has said already that it speaks OpenAI's. model: a name, or NULL. Sends the
 * first event. */
enum reel_status realtime_open(struct realtime **out, const struct realtime_host *host, bool openai,
                               const char *model, struct reel_error *err);
void realtime_close(struct realtime *r);

/* One message. False: the client is gone, or the server ends. */
bool realtime_message(struct realtime *r, const char *json, size_t n_bytes);

/* No audio waits for its text. */
bool realtime_is_idle(const struct realtime *r);

/* An idle session gives its transcriber to who waits for one, and so does one whose item gets no
 * audio any more; for now and then. */
void realtime_rest(struct realtime *r);

#endif
