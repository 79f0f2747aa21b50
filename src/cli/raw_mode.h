/* The terminal, taken over for as long as lines are edited and answers are shown: keys come one at
 * a time and without echo, pasted text comes marked as such. Whatever ends or stops the program
 * gives the terminal back as it was: the end of its command, signals, faults, Ctrl-Z. */
#ifndef REEL_CLI_RAW_MODE_H
#define REEL_CLI_RAW_MODE_H

#include <stdbool.h>

/* Takes the terminal of standard input and output over; false where that cannot be. */
bool raw_mode_enter(void);

/* From the next raw_mode_enter on: the terminal's other screen is taken, too, without a cursor, and
 * given back with the rest. */
void raw_mode_whole_screen(void);

/* Whether Ctrl-C, Ctrl-Z and Ctrl-\ are signals, as while an answer is made, or keys to be read.
 * Sets all of the terminal's mode anew. */
void raw_mode_signals(bool on);

/* For a question that is answered as the terminal itself edits lines, and after it. */
void raw_mode_pause(void);
void raw_mode_go_on(void);

/* Gives the terminal back; nothing when it was not taken. A signal handler may call it. */
void raw_mode_leave(void);

/* Stops the program as Ctrl-Z does, with the terminal given back; returns when it goes on. */
void raw_mode_suspend(void);

/* Whether the window got another size, or the program went on after a stop, since this was asked
 * last. */
bool raw_mode_resized(void);
bool raw_mode_resumed(void);

/* How many times the program went on after a stop: others wrote to the terminal meanwhile. */
int raw_mode_stops(void);

/* Whether keys are for this program: it is not in the background. */
bool raw_mode_in_front(void);

#endif
