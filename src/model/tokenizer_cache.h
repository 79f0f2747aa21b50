/* Built tables kept on disk, one file per source. A file that is damaged, of another version or of
 * another source is as good as none. */
#ifndef REEL_MODEL_TOKENIZER_CACHE_H
#define REEL_MODEL_TOKENIZER_CACHE_H

#include "model/tokenizer_tables.h"

/* *out is NULL when there is no usable file: only a lack of memory is an error. */
enum reel_status tokenizer_cache_read(struct reel_tokenizer **out, const char *cache_dir,
                                      const char *source, struct reel_error *err);

/* Failing to write fails nothing: the next start builds the tables again. */
void tokenizer_cache_write(const struct reel_tokenizer *tok, const char *cache_dir);

#endif
