/* A complete tokenizer of 256 bytes, a few merges and two added tokens, as tokenizer.json: small
 * enough to be changed in every place. */
#ifndef REEL_TESTS_SMALL_TOKENIZER_H
#define REEL_TESTS_SMALL_TOKENIZER_H

#include "base/buffer.h"

/* Ids: bytes 0 to 255 in the order of the byte alphabet's code points; then "he" 256, "ll" 257,
 * "hell" 258, "hello" 259, " hello" 260; added "<|end|>" 261 (special) and "<think>" 262. The
 * caller releases the buffer. */
void small_tokenizer_json(struct buffer *out);

/* Replaces the first `from` by `to`; ends the program when there is none. */
void replace_once(struct buffer *text, const char *from, const char *to);

#endif
