/* Pre-tokenising: cuts text into the words that merges never cross.
 *
 * The patterns are regular expressions in the model files. They are recognised literally and
 * scanned by hand: the classes of characters are then those of the reference in every build (a
 * regular expression library of the system knows another Unicode version), nothing needs executable
 * memory, and no input can make a match back up.
 */
#ifndef REEL_MODEL_TOKENIZER_SPLIT_H
#define REEL_MODEL_TOKENIZER_SPLIT_H

#include "model/tokenizer_unicode.h"

#include <stddef.h>

/* Stored in cache files: append only. */
enum split_pattern {
    SPLIT_GPT2,   /* ByteLevel with its own expression */
    SPLIT_SMOLLM, /* each digit alone, then as GPT-2 between digits */
    SPLIT_QWEN2,
    SPLIT_QWEN35, /* marks count with letters */
    N_SPLIT_PATTERNS
};

extern const char split_regex_gpt2[];
extern const char split_regex_qwen2[];
extern const char split_regex_qwen35[];

struct splitter {
    enum split_pattern pattern;
    const unsigned char *next;
    const unsigned char *end;      /* of the text */
    const unsigned char *part_end; /* where look-ahead ends: before the next digit for SmolLM */
    struct unicode_memo memo;
};

/* text is valid UTF-8 and stays borrowed. */
void splitter_start(struct splitter *s, enum split_pattern pattern, const char *text, size_t n);

/* The next word, never empty; 0 at the end of the text. */
size_t splitter_next(struct splitter *s, const unsigned char **word);

#endif
