/* Text that streams to a terminal without words being broken at its edge. A word is held back until
 * its end is known, and nothing else is; newlines at the end of all are left out. Chinese and
 * Japanese wrap between characters, but not before or after a bracket or point that belongs to the
 * next or the last one. A word that is longer than a row is broken by the terminal, so that it can
 * be copied whole. */
#ifndef REEL_CLI_WRAP_H
#define REEL_CLI_WRAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct wrap {
    FILE *out;
    bool as_it_is; /* rows are broken by the terminal alone: code, tables */
    int hang;      /* columns that the further rows of a line begin with */
    /* of the row as it stands there */
    int column;
    bool begun;   /* something was written */
    int newlines; /* and spaces, that come before the next word */
    int spaces;
    int stops; /* raw_mode_stops when it was written to last */
    /* the word */
    char word[512];
    size_t n_word;
    int word_columns;
    bool follows; /* no row may begin with it: it is the rest of a longer one */
    int32_t last; /* its last character */
};

void wrap_start(struct wrap *w, FILE *out);

/* One character as UTF-8; no control character but newline and tab. */
void wrap_put(struct wrap *w, int32_t c, const char *bytes, size_t n);

/* An escape sequence for what follows. */
void wrap_style(struct wrap *w, const char *sequence);

/* Writes what is held back; with end_row the cursor is then at the beginning of a row. */
void wrap_end(struct wrap *w, bool end_row);

#endif
