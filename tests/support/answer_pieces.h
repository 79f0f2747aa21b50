/* The streaming reader of answers against the one that reads the whole text. */
#ifndef REEL_TESTS_ANSWER_PIECES_H
#define REEL_TESTS_ANSWER_PIECES_H

#include "model/chat_template.h"

/* Pushes text[0, n), cut as `cuts` says: a piece ends behind byte i where bit i of it is set ([n /
 * 8
 * + 1] bytes; NULL: behind every byte). NULL: the pieces are in order and make the answer that
 * chat_answer_read makes; else what is wrong, good until the next call. Where that refuses, so must
 * the reader. */
const char *answer_pieces_differ(const struct chat_template *chat,
                                 const struct reel_chat_options *options, bool whole_calls,
                                 const char *text, size_t n, const unsigned char *cuts);

/* The same for every place where a text can be cut in two, and for single bytes. */
const char *answer_cuts_differ(const struct chat_template *chat,
                               const struct reel_chat_options *options, const char *text, size_t n);

#endif
