/* The terminal: whether there is one, dimmed text, and the interrupt key. */
#ifndef REEL_CLI_TERMINAL_H
#define REEL_CLI_TERMINAL_H

#include "reel.h"

#include <stdio.h>

bool terminal_is(FILE *f);
int terminal_columns(FILE *f);                        /* 80 when unknown */
void terminal_size(FILE *f, int *columns, int *rows); /* 80 and 24 when unknown */

/* Writes text that a model or a file made up: on a terminal, control characters other than newline
 * and tab become '?', so that it cannot steer the terminal; elsewhere as it is. */
void terminal_write(FILE *f, const char *text, size_t n_bytes);

/* The byte that a terminal gets for text[i] of n whole UTF-8 characters; 0 is none. */
char terminal_byte(const char *text, size_t n_bytes, size_t i);

/* Whether text on f may be dimmed: a terminal that is not "dumb", and NO_COLOR unset or empty. */
bool terminal_has_styles(FILE *f);
void terminal_dim(FILE *f, bool on); /* call only where terminal_has_styles */

/* Makes Ctrl-C a request: remembered, and passed to the target session, if any. Three presses that
 * nobody takes end the program. */
void interrupt_install(void);
/* SIGTERM, and SIGHUP where it is not ignored, do as Ctrl-C does. */
void interrupt_by_signals(void);
void interrupt_target(struct reel_session *session); /* borrowed; NULL: none */
bool interrupt_take(void);                           /* whether one came; forgets it */
bool interrupt_pending(void);

/* As if Ctrl-C had been pressed. */
void interrupt_raise(void);

/* Waits until f can be read; false when Ctrl-C comes first, however close to the call. */
bool interrupt_or_input(FILE *f);

/* Waits at most this long (-1: any time) until standard input can be read; false when it cannot, or
 * when Ctrl-C or terminal_wake came first. */
bool terminal_wait(int most_ms);
void terminal_wake(void); /* for signal handlers */

/* Fills closed standard streams with ones that fail, so that no file opened later takes their place
 * and is read or written as one. To be called before anything is opened. */
void streams_install(void);

/* For faults and broken pipes, whatever the command: a model file that shrank while it was mapped
 * ends in a message and REEL_E_IO. */
void faults_install(void);

#endif
