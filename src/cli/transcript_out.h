/* Where the transcripts of a command line go: standard output, the file of --output, or a file for
 * each recording in the folder of --output-dir.
 *
 * All that can be known to fail is looked at before the work. What is finished is kept when the
 * work ends early: a file holds whole segments, in its format, or is left as it was. */
#ifndef REEL_CLI_TRANSCRIPT_OUT_H
#define REEL_CLI_TRANSCRIPT_OUT_H

#include "base/buffer.h"
#include "base/json.h"
#include "reel_speech.h"

struct transcript_out {
    /* The caller's */
    enum reel_transcript_format format;
    const char *path;         /* of --output, or NULL */
    const char *folder;       /* of --output-dir, or NULL */
    const char *const *names; /* [n_names] of the recordings, as typed */
    int n_names;
    /* Own */
    struct buffer text; /* what goes to `path` */
    json_t *list;       /* of several recordings in JSON: one document */
    int n_added;
};

/* Looks at what the caller has set; makes the folder. */
enum reel_status transcript_out_open(struct transcript_out *o, struct reel_error *err);
void transcript_out_release(struct transcript_out *o);

/* Whether text goes to standard output as it is made; what precedes that of a recording there. */
bool transcript_out_live(const struct transcript_out *o);
void transcript_out_heading(struct transcript_out *o, int index);

/* The transcript of recording `index`. problem: why it is only the beginning of one, or NULL. With
 * a folder it is written at once. */
enum reel_status transcript_out_add(struct transcript_out *o, int index,
                                    const struct reel_transcript *t, const char *problem,
                                    struct reel_error *err);

/* The same of one that is text already, n bytes in o->format; of t only numbers are read. */
enum reel_status transcript_out_put(struct transcript_out *o, int index, const char *text, size_t n,
                                    const struct reel_transcript *t, const char *problem,
                                    struct reel_error *err);

/* There is none of recording `index`. */
enum reel_status transcript_out_fail(struct transcript_out *o, int index, const char *problem,
                                     struct reel_error *err);

/* Writes what was added. */
enum reel_status transcript_out_close(struct transcript_out *o, struct reel_error *err);

#endif
