/* Merging the bytes of one word into tokens. */
#ifndef REEL_MODEL_TOKENIZER_BPE_H
#define REEL_MODEL_TOKENIZER_BPE_H

#include "model/tokenizer_tables.h"

/* Working memory for long words, kept from word to word. Starts zeroed. */
struct bpe_scratch {
    uint32_t *words; /* one allocation for all arrays */
    size_t capacity; /* bytes of a word it can take */
    uint64_t work;   /* pairs looked up and places passed in the heap for long words, so that tests
                        can bound it */
};

/* Writes at most n ids. Time O(n log n). Bytes the vocabulary lacks are left out, as the reference
 * does. Fails only for lack of memory, and only for words longer than BPE_SHORT_WORD. */
enum reel_status bpe_word(const struct reel_tokenizer *tok, struct bpe_scratch *scratch,
                          const unsigned char *word, size_t n, int32_t *ids, size_t *n_ids,
                          struct reel_error *err);

void bpe_scratch_release(struct bpe_scratch *scratch);

#define BPE_SHORT_WORD 32
#define BPE_MAX_WORD   (1u << 30)

#endif
