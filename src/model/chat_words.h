/* Words of an answer that are looked for while it is still being written: a match can stop at the
 * end of what there is and go on when more has come. What matches is what span_take_loose and
 * span_find_loose (chat_span.h) take: white space in the word and in the text counts for nothing,
 * but a word that is searched for has no white space in its first run of characters. */
#ifndef REEL_MODEL_CHAT_WORDS_H
#define REEL_MODEL_CHAT_WORDS_H

#include "base/error.h"
#include "model/chat_span.h"

struct loose_word {
    char *text; /* without white space, [n]; owned */
    size_t n;   /* 0: the word was white space or empty, and is everywhere */
    size_t run; /* characters of it before the first white space */
};

/* Of two words, one behind the other; each may be NULL. */
enum reel_status loose_word_init(struct loose_word *w, const char *first, const char *second,
                                 struct reel_error *err);
enum reel_status loose_word_from(struct loose_word *w, struct span s, struct reel_error *err);
void loose_word_release(struct loose_word *w);

enum loose { LOOSE_NO, LOOSE_YES, LOOSE_MAYBE }; /* MAYBE: the text ends inside the word */

struct loose_match {
    size_t at;      /* offset in the text of what is looked at next; after YES behind the word */
    size_t matched; /* characters of the word */
};

/* Goes on with a match that began as { offset, 0 }. */
enum loose loose_match_go(struct loose_match *m, const struct loose_word *w, struct span text);

/* A search for the first place that matches. Begins as { offset }. */
struct loose_search {
    size_t from; /* offset of the place that is looked at; nothing begins before it */
    bool inside; /* the first characters matched there */
    struct loose_match match;
};

/* YES: the word begins at s->from and ends at s->match.at. MAYBE: it may begin at s->from. NO: it
 * is not there, and s->from is the end of the text. `whole`: no more text comes, MAYBE becomes NO.
 */
enum loose loose_search_go(struct loose_search *s, const struct loose_word *w, struct span text,
                           bool whole);

#endif
