/* Stop strings in a stream of text: holds back what may be the beginning of one, and nothing else.
 * All memory is in the struct. */
#ifndef REEL_RUNTIME_STOP_TEXT_H
#define REEL_RUNTIME_STOP_TEXT_H

#include "base/error.h"

#define STOP_TEXT_STRINGS 16
#define STOP_TEXT_BYTES   256

struct stop_string {
    const char *text; /* borrowed */
    int n_bytes;
    int matched; /* bytes of it that end the stream so far */
    /* Where matching goes on after text[i] failed to come: the length of the longest proper prefix
     * that is also a suffix of text[0..i] (Knuth, Morris and Pratt, 1977). */
    uint16_t border[STOP_TEXT_BYTES];
};

struct stop_text {
    struct stop_string strings[STOP_TEXT_STRINGS];
    int n_strings;
    char held[STOP_TEXT_BYTES];
    int n_held;
};

/* The strings are borrowed until the last push. */
enum reel_status stop_text_start(struct stop_text *stop, const char *const *strings, int n_strings,
                                 struct reel_error *err);

/* Adds n bytes of whole characters. Writes what no stop string can claim any more to out, which has
 * room for n + STOP_TEXT_BYTES, and returns its length. *match is the index of the stop string that
 * came up (the first to be complete, the longest of several), or -1; after a match the text before
 * it has been written and nothing more may be pushed. */
size_t stop_text_push(struct stop_text *stop, const char *text, size_t n, char *out, int *match);

/* Ends the stream: writes what was held back (at most STOP_TEXT_BYTES). */
size_t stop_text_finish(struct stop_text *stop, char *out);

#endif
