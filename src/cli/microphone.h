/* What a microphone hears: mono float32 at 16,000 Hz. A thread takes it from PulseAudio (or
 * PipeWire, which answers to the same library) or ALSA and keeps up to two minutes for who is busy;
 * neither library is needed to build reel or to start it. */
#ifndef REEL_CLI_MICROPHONE_H
#define REEL_CLI_MICROPHONE_H

#include "base/error.h"

struct microphone;

/* device: "pulse:NAME", "alsa:NAME", or NAME of either; NULL: the usual one of the first library
 * that has one. */
enum reel_status microphone_open(struct microphone **out, const char *device,
                                 struct reel_error *err);

/* 1 to n samples; 0: it was stopped and all is read. Ctrl-C is REEL_E_CANCELLED, unless it was. */
enum reel_status microphone_read(struct microphone *m, float *out, size_t n, size_t *n_read,
                                 struct reel_error *err);

/* Nothing more is heard; what was can still be read. */
void microphone_stop(struct microphone *m);

/* What was lost because nobody read; NULL: nothing. */
const char *microphone_warning(const struct microphone *m);

/* NULL: nothing. */
void microphone_close(struct microphone *m);

/* Prints a line for each device on standard output: what --mic takes, and what it is called. */
enum reel_status microphone_list(struct reel_error *err);

#endif
