/* Finding added tokens in a text, with the conditions that they can carry. */
#ifndef REEL_MODEL_TOKENIZER_ADDED_H
#define REEL_MODEL_TOKENIZER_ADDED_H

#include "model/tokenizer_tables.h"

struct added_match {
    size_t start, end; /* of the token itself, in the text */
    uint32_t id;
};

/* The next added token in text [n] from `at` on: the leftmost, and of those that begin there the
 * longest. Only tokens that are looked for in normalised text, or only the others. */
bool added_next(const struct reel_tokenizer *tok, const char *text, size_t n, size_t at,
                bool normalized, struct added_match *match);

/* Bytes of white space that end, or begin, a text of valid UTF-8. */
size_t added_spaces_before(const char *text, size_t n);
size_t added_spaces_after(const char *text, size_t n);

#endif
