/* reel: speech to text. reel.h includes this header, and has the conventions. */
#ifndef REEL_SPEECH_H
#define REEL_SPEECH_H

#include "reel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A recording as speech models hear it: mono float32 at 16,000 Hz, read in pieces; the memory it
 * takes does not depend on its length. Float files, lossy formats and resampling may go beyond 1.
 */
struct reel_audio;

#define REEL_AUDIO_RATE 16000

enum reel_audio_encoding {
    REEL_AUDIO_FILE = 0, /* the input says what it is */
    REEL_AUDIO_S16LE,    /* raw samples, no header: integers of 16, 24 or 32 bits, */
    REEL_AUDIO_S24LE,
    REEL_AUDIO_S32LE,
    REEL_AUDIO_F32LE /* or floats; all little-endian, channels in turn */
};

/* Called before a read of a pipe or terminal that may have to wait; may do the waiting. False ends
 * the read with REEL_E_CANCELLED. */
typedef bool (*reel_wait_fn)(void *user, int fd);

struct reel_audio_options {
    size_t size;
    enum reel_audio_encoding encoding;
    int rate, channels;  /* of raw samples; 0: 16000 and 1 */
    double most_seconds; /* of a longer recording, REEL_E_LIMIT; 0: no limit */
    reel_wait_fn wait;   /* or NULL */
    void *wait_user;
};

/* path: a WAV file (RIFF, RF64 or BW64), "-" for standard input, or, where libsndfile is installed,
 * any file it reads: FLAC, Ogg, Opus, MP3. Several channels become their mean. libsndfile 1.2.0
 * leaks 6 KB for each Ogg file that ends inside its headers: what takes files from strangers should
 * open them in a process that ends, or count those that cannot be opened, as reel serve does. */
REEL_API REEL_MUST_USE enum reel_status reel_audio_open(struct reel_audio **out, const char *path,
                                                        const struct reel_audio_options *options,
                                                        struct reel_error *err);
/* The same of a file that is in memory, which the caller keeps alive and unchanged until
 * reel_audio_close, as `name`, which messages begin with. */
REEL_API REEL_MUST_USE enum reel_status
reel_audio_open_memory(struct reel_audio **out, const char *name, const void *bytes, size_t n_bytes,
                       const struct reel_audio_options *options, struct reel_error *err);
/* Up to n samples; *n_read is 0 at the end only. */
REEL_API REEL_MUST_USE enum reel_status reel_audio_read(struct reel_audio *audio, float *samples,
                                                        size_t n, size_t *n_read,
                                                        struct reel_error *err);
/* Seconds of the whole recording, or -1 where its header does not say. */
REEL_API double reel_audio_seconds(const struct reel_audio *audio);
/* What was wrong with the input so far and did not stop it, such as an end that is missing; NULL:
 * nothing. Borrowed. */
REEL_API const char *reel_audio_warning(const struct reel_audio *audio);
REEL_API void reel_audio_close(struct reel_audio *audio);

/* Samples of another rate to REEL_AUDIO_RATE as they are heard: a sample comes out as soon as 2.5
 * ms of what follows it are there (6 ms below 16,000 Hz). Files are resampled by struct reel_audio,
 * in blocks and a little more exactly. */
struct reel_resampler;

/* rate: 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100 or 48000. */
REEL_API REEL_MUST_USE enum reel_status reel_resampler_open(struct reel_resampler **out, int rate,
                                                            struct reel_error *err);
/* Takes *n_taken of n_in samples and gives *n_given, at most n_out (which is at least 1). The same
 * samples come however the input is cut. NULL `in` is the end: call with it until nothing is given.
 */
REEL_API REEL_MUST_USE enum reel_status
reel_resampler_run(struct reel_resampler *r, const float *in, size_t n_in, size_t *n_taken,
                   float *out, size_t n_out, size_t *n_given, struct reel_error *err);
REEL_API void reel_resampler_close(struct reel_resampler *r);

/* One recording after the other through a speech model (family "qwen3_asr"), one thread at a time.
 * Recordings are cut in pauses, each segment is transcribed by itself, and no more than a segment
 * is held: an hour needs no more audio in memory than a minute. Longer silence, judged against the
 * noise of the recording, is in no segment. With stream_seconds a segment is transcribed while it
 * is spoken, too; it begins and ends where it would without. */
struct reel_transcriber;

/* on_text: new text; all of a recording's, joined, is the text of its transcript. It comes as soon
 * as nothing after it can change it. on_partial: what the model takes the rest for so far; each
 * text (it may be empty) takes the place of the one before, and stands behind what on_text got. It
 * is empty when a segment ends. `segment` counts from 0. Return false to stop. May not call the
 * transcriber. */
typedef bool (*reel_text_fn)(void *user, const char *text, size_t n_bytes, int segment);

struct reel_transcriber_options {
    size_t size;
    const char *language;   /* a name or code of the model's languages: "English", "en"; NULL: the
                               model finds out, for each segment */
    const char *context;    /* names and words to expect, or what is spoken about; or NULL */
    double segment_seconds; /* 1 to 1200; 0: 30. Without a pause a segment is cut up to 5 s before
                               or after it, where it is quietest */
    int max_tokens;         /* of a segment's answer; 0: 8 a second, at least 512, at most 4096 */
    bool past_text;         /* the end of the text so far is context of the next segment */
    reel_text_fn on_text;   /* or NULL */
    void *user;
    /* Called with "transcribing", milliseconds of audio, 0, often enough to cancel with. */
    reel_progress_fn progress;
    void *progress_user;
    bool skip_silence; /* what is less than 12 dB louder than the noise, or under -55 dB of full
                          scale, is silence, too */
    /* 0.5 to 10: whenever so much of a segment is new, all of it is answered for on_text and
     * on_partial. Text is certain once a later step has begun with it, so it may differ from that
     * without steps. segment_seconds is at most 55. The same text comes however pushes are cut.
     * 0: no steps. */
    double stream_seconds;
    reel_text_fn on_partial; /* or NULL; only called in steps */
    double pause_seconds;    /* 0.3 to 10: a pause that ends a segment of any length; a shorter one,
                                down to 0.3 s, ends one that is longer than half. 0: 2 */
};

/* All memory is taken here but for the features, at most a segment's, and the transcript. The model
 * must outlive it. REEL_E_UNSUPPORTED for a model that does not hear. */
REEL_API REEL_MUST_USE enum reel_status
reel_transcriber_open(struct reel_transcriber **out, const struct reel_model *model,
                      const struct reel_transcriber_options *options, struct reel_error *err);
REEL_API void reel_transcriber_close(struct reel_transcriber *t);

/* n more samples of the recording, as struct reel_audio gives them. Transcribes what is complete.
 * Samples beyond 1 make it divide by the largest so far. After a failure, or a callback that
 * returned false (REEL_E_CANCELLED), only _so_far, _reset and _close are allowed. */
REEL_API REEL_MUST_USE enum reel_status reel_transcriber_push(struct reel_transcriber *t,
                                                              const float *samples, size_t n,
                                                              struct reel_error *err);

struct reel_segment {
    size_t size;
    double start, end;    /* seconds, of the cuts: words begin later and end earlier */
    const char *text;     /* without white space around it; may be empty */
    const char *language; /* "English"; empty: unknown, or nothing was said */
    const int32_t *ids;   /* [n_ids] as generated, language tag and stop id included */
    int n_ids;
    bool cut_short; /* max_tokens ended it */
};

struct reel_transcript {
    size_t size;
    const char *text;     /* of all segments, a space between them where the script has spaces */
    const char *language; /* those of the segments, joined by commas, each once in a row */
    const void
        *segments; /* [n_segments] of struct reel_segment: reel_transcript_segment finds them */
    int n_segments;
    /* Of all answers, those of steps included: vectors made of audio, ids read, generated. */
    int n_audio_tokens, n_prompt_tokens, n_tokens;
    double seconds;                                         /* of audio */
    double features_ms, encoder_ms, prompt_ms, generate_ms; /* where the time went */
    double first_text_ms;   /* from the end of the audio it was made of; 0: no text came */
    int stream_steps;       /* answers, those at the ends of segments included; 0 without steps */
    double stream_worst_ms; /* the slowest, from when its audio was there to its text */
};

/* The recording ends: transcribes the rest. *transcript (its size set; or NULL) is filled with what
 * is borrowed and valid until the next call on the transcriber. The next push begins another
 * recording; after a size that no version had (REEL_E_ARGUMENT) the call may be made again. */
REEL_API REEL_MUST_USE enum reel_status reel_transcriber_finish(struct reel_transcriber *t,
                                                                struct reel_transcript *transcript,
                                                                struct reel_error *err);

/* The segments that are whole so far, also after a failure: what a program that is stopped can
 * keep. *transcript (its size set) is filled as by _finish. */
REEL_API REEL_MUST_USE enum reel_status reel_transcriber_so_far(struct reel_transcriber *t,
                                                                struct reel_transcript *transcript,
                                                                struct reel_error *err);

/* Segment `index` of a transcript, counted from 0; NULL where there is none. */
REEL_API const struct reel_segment *
reel_transcript_segment(const struct reel_transcript *transcript, int index);

/* Forgets the recording; the next push begins another. */
REEL_API void reel_transcriber_reset(struct reel_transcriber *t);

enum reel_transcript_format {
    REEL_TRANSCRIPT_TEXT = 0,
    REEL_TRANSCRIPT_JSON,         /* {"text": ...} */
    REEL_TRANSCRIPT_VERBOSE_JSON, /* task, language, duration, text, segments */
    REEL_TRANSCRIPT_SRT,
    REEL_TRANSCRIPT_VTT
};

/* *text is terminated and the caller's to reel_free; n_bytes may be NULL. */
REEL_API REEL_MUST_USE enum reel_status
reel_transcript_text(const struct reel_transcript *transcript, enum reel_transcript_format format,
                     char **text, size_t *n_bytes, struct reel_error *err);

#ifdef __cplusplus
}
#endif
#endif
