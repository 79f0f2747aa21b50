/* What reel transcribe says of a recording on standard error: text that was cut short, and figures.
 */
#ifndef REEL_CLI_TRANSCRIPT_NOTES_H
#define REEL_CLI_TRANSCRIPT_NOTES_H

#include "base/buffer.h"
#include "reel_speech.h"

/* A line where answers were ended by their length, else nothing. */
enum reel_status note_cut_short(struct buffer *notes, const char *name,
                                const struct reel_transcript *t, struct reel_error *err);

/* A line without its end: ms is the time that the recording took. */
enum reel_status note_figures(struct buffer *notes, const char *name,
                              const struct reel_transcript *t, double ms, struct reel_error *err);

#endif
