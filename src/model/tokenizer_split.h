/* Pre-tokenising: cuts text into the words that merges never cross.
 *
 * A plan is a chain of stages, as in tokenizer.json's pre_tokenizer: each cuts every part that the
 * stage before it hands on. Stages are stored as text, one after the other, and compiled when a
 * tokenizer is opened (tokenizer_regex.h).
 */
#ifndef REEL_MODEL_TOKENIZER_SPLIT_H
#define REEL_MODEL_TOKENIZER_SPLIT_H

#include "base/buffer.h"
#include "model/tokenizer_regex.h"

#define SPLIT_MAX_STAGES 12
#define SPLIT_MAX_BYTES  (1u << 16) /* of a plan's text */

/* What a stage cuts by, and what becomes of it. The letters are those of a plan's text: a stage is
 * what, behaviour, '+' or '-' for inverted or not, the expression, and a NUL. */
enum split_what {
    SPLIT_REGEX = 'R',
    SPLIT_NUMERIC = 'D',     /* the Digits pre-tokenizer's characters, one by one */
    SPLIT_PUNCTUATION = 'U', /* the Punctuation pre-tokenizer's */
    SPLIT_PREFIX = 'P',      /* cuts nothing: a text gets a space in front unless it has one */
    SPLIT_BYTES = 'B'        /* cuts nothing: stages after it see bytes in the byte alphabet */
};
enum split_behaviour {
    SPLIT_ISOLATED = 'I', /* a match is a part, and so is what lies between two */
    SPLIT_REMOVED = 'R',  /* a match is left out */
    SPLIT_CONTIGUOUS = 'C',
    SPLIT_WITH_PREVIOUS = 'P', /* a match joins what lies before it */
    SPLIT_WITH_NEXT = 'N'
};

struct split_stage {
    struct regex *re;
    enum split_behaviour behaviour;
    bool inverted; /* what does not match is the match */
    bool bytes;
};

struct split_plan {
    struct split_stage stages[SPLIT_MAX_STAGES];
    int n_stages;
    bool prefix;
};

/* Appends a stage to a plan's text. `regex` is "" for what needs none. */
enum reel_status split_add(struct buffer *text, enum split_what what,
                           enum split_behaviour behaviour, bool inverted, const char *regex,
                           struct reel_error *err);

/* `name` is the file, for messages. */
enum reel_status split_plan_open(struct split_plan *plan, const char *text, size_t n,
                                 const char *name, struct reel_error *err);
void split_plan_release(struct split_plan *plan);

/* ByteLevel's own expression. */
extern const char split_regex_gpt2[];
extern const char split_regex_qwen2[];
extern const char split_regex_qwen35[];

/* A part of a text; whether it is a match. */
struct split_part {
    const unsigned char *at, *end;
    bool match;
};

/* A part that a stage is cutting. */
struct split_level {
    const unsigned char *at, *end;
    size_t found; /* bytes of the match at `at`, when it is known already */
};

struct splitter {
    const struct split_plan *plan;
    int depth; /* of the stage that cuts; -1: all is done */
    struct split_level levels[SPLIT_MAX_STAGES];
};

/* text is valid UTF-8 and stays borrowed. */
void splitter_start(struct splitter *s, const struct split_plan *plan, const char *text, size_t n);

/* The next word, never empty; 0 at the end of the text. */
size_t splitter_next(struct splitter *s, const unsigned char **word);

#endif
