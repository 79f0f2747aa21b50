/* The fields of a request to /v1/audio/transcriptions, as OpenAI's clients and vLLM's send them. */
#ifndef REEL_SERVER_TRANSCRIPTION_FORM_H
#define REEL_SERVER_TRANSCRIPTION_FORM_H

#include "server/multipart.h"

#include "reel_speech.h"

enum {
    TRANSCRIPTION_MOST_MODEL = 255,  /* bytes */
    TRANSCRIPTION_MOST_PROMPT = 4096 /* likewise */
};

struct transcription_form {
    const struct multipart_part *file;
    char model[TRANSCRIPTION_MOST_MODEL + 1]; /* empty: not said */
    char language[64];                        /* a name or code; empty: the model finds out */
    char prompt[TRANSCRIPTION_MOST_PROMPT + 1];
    enum reel_transcript_format format;
    bool stream;
    bool chunks;      /* streamed as chunks of a chat, which vLLM's clients read */
    bool usage_chunk; /* with the usage in a last one */
};

/* *param: the field at fault, or NULL. */
enum reel_status transcription_form_read(struct transcription_form *form,
                                         const struct multipart *parts, const char **param,
                                         struct reel_error *err);

/* "de-AT" and "de_AT" become "de": the models know languages, no regions. */
void transcription_language(char *language);

#endif
