/* SentencePiece: a text as merging sees it, and the places where it may be cut. */
#ifndef REEL_MODEL_TOKENIZER_SPM_TEXT_H
#define REEL_MODEL_TOKENIZER_SPM_TEXT_H

#include "base/buffer.h"
#include "model/tokenizer_tables.h"

/* *text and *n become the text with the space in front that the tokenizer's rule gives it and with
 * each U+2581 as the space that it means: the same pointer when nothing changes, otherwise memory
 * of scratch, good until its next use. `first`: the text is the beginning of what is encoded. */
enum reel_status spm_text(const struct reel_tokenizer *tok, bool first, struct buffer *scratch,
                          const char **text, size_t *n, struct reel_error *err);

/* Bytes of the first word of a text that is not empty. */
size_t spm_word(enum cut_rule cut, const char *text, size_t n);

#endif
