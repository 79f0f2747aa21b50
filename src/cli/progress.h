/* One line on stderr for long work: only on a terminal, only after a moment, ten times a second. */
#ifndef REEL_CLI_PROGRESS_H
#define REEL_CLI_PROGRESS_H

#include "reel.h"

struct progress {
    bool enabled;    /* stderr is a terminal */
    bool drawn;      /* something is on the line */
    double start_ms; /* of the current stage */
    double drawn_ms;
    char stage[64];
    char note[48]; /* ends the line, ", 12.5x real time"; the owner's to set */
};

void progress_start(struct progress *p);

/* A reel_progress_fn; user is the struct. False once Ctrl-C came. */
bool progress_update(void *user, const char *stage, uint64_t done, uint64_t total);

/* Wipes the line. */
void progress_end(struct progress *p);

#endif
