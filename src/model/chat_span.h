/* Parts of a text, borrowed, and how they are searched and cut. */
#ifndef REEL_MODEL_CHAT_SPAN_H
#define REEL_MODEL_CHAT_SPAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t n;
};

struct span span_of(const char *text);       /* NULL is empty */
struct span span_strip_lines(struct span s); /* newlines at both ends */
struct span span_strip_first_lines(struct span s);
struct span span_without_blanks(struct span s); /* spaces, tabs and line ends at both ends */
void span_skip_blanks(struct span *s);

/* The first and the last `word` inside s, or NULL. */
const char *span_find(struct span s, const char *word);
const char *span_find_last(struct span s, const char *word);

/* Cuts `word` off the front; false, changing nothing, when s begins otherwise. */
bool span_take(struct span *s, const char *word);

/* The same where white space may differ: any in one matches any or none in the other. Blanks before
 * the word are passed over; those behind it stay. A word of nothing but blanks is always there. */
bool span_take_loose(struct span *s, struct span word);

/* Where the loose word begins first, or NULL. */
const char *span_find_loose(struct span s, struct span word);

/* Bytes of the JSON object that s begins with, as far as brackets and quotes tell; 0 for none. */
size_t span_object_bytes(struct span s);

#endif
