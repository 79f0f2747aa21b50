/* Regular expressions of tokenizer files, compiled to tables.
 *
 * The expressions are those of Oniguruma (Ruby's syntax), as Hugging Face `tokenizers` runs them:
 * the first alternative that matches wins, and repeats take as much as they can. Tables are made
 * once: a match then reads each character once, whatever the text, and finds what a backtracking
 * matcher would find.
 *
 * Taken are literals, classes (ranges, nested, &&), \p{..} of general categories and four scripts,
 * \s \d \w and their complements, groups, (?i:..) of ASCII letters, | * + ? {n} {n,} {n,m}, $ and
 * looking one character ahead with (?=.) and (?!.). Possessive repeats of one class are taken where
 * giving back could not help. Everything else is refused in words.
 */
#ifndef REEL_MODEL_TOKENIZER_REGEX_H
#define REEL_MODEL_TOKENIZER_REGEX_H

#include "base/error.h"
#include "model/tokenizer_utf8.h"

#define REGEX_MAX_BYTES 4096
#define REGEX_ACCEPT    0x80000000u /* of a table's entry: the match may end before this character */
#define REGEX_BMP       0x10000u    /* code points that have their class in a table */

/* Code points from `first` on, to before the next range's. */
struct regex_range {
    uint32_t first, class;
};

struct regex {
    uint32_t n_classes; /* of characters, and one more for the end of the text */
    uint32_t n_states;  /* 0 has no way on; 1 is the start */
    uint32_t n_above;
    uint32_t *next; /* [n_states][n_classes], a state times n_classes, and REGEX_ACCEPT */
    struct regex_range *above; /* [n_above] classes of code points from U+10000 on */
    bool begins[256];          /* classes that a match can begin with */
    uint8_t byte_class[256];   /* of the character that stands for a byte in the byte alphabet */
    uint8_t bmp[REGEX_BMP];
};

/* `name` is the file, for messages. An expression that matches the empty text is refused. */
enum reel_status regex_compile(struct regex **out, const char *text, size_t n, const char *name,
                               struct reel_error *err);

/* One character of an enum unicode_class. */
enum reel_status regex_of_class(struct regex **out, unsigned class, struct reel_error *err);

void regex_free(struct regex *re);

/* The byte alphabet: the character that a byte is written as. */
uint32_t regex_byte_character(unsigned byte);

static inline unsigned regex_class_above(const struct regex *re, uint32_t c) {
    uint32_t low = 0, high = re->n_above;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (re->above[middle].first <= c)
            low = middle;
        else
            high = middle;
    }
    return re->above[low].class;
}

/* Class of the character at p, whose bytes go to *n. With `bytes` each byte is a character. */
static inline unsigned regex_class(const struct regex *re, const unsigned char *p, bool bytes,
                                   int *n) {
    if (bytes || *p < 0x80) {
        *n = 1;
        return bytes ? re->byte_class[*p] : re->bmp[*p];
    }
    uint32_t c = utf8_decode(p, n);
    return c < REGEX_BMP ? re->bmp[c] : regex_class_above(re, c);
}

/* Bytes of the match that starts at p; 0 when there is none. `end` is the end of the text. */
static inline size_t regex_match(const struct regex *re, const unsigned char *p,
                                 const unsigned char *end, bool bytes) {
    const unsigned char *start = p, *last = p;
    uint32_t at = re->n_classes;
    while (p < end) {
        int n;
        uint32_t next = re->next[at + regex_class(re, p, bytes, &n)];
        if (next & REGEX_ACCEPT) last = p;
        at = next & ~REGEX_ACCEPT;
        if (at == 0) return (size_t)(last - start);
        p += n;
    }
    if (re->next[at + re->n_classes - 1] & REGEX_ACCEPT) last = p;
    return (size_t)(last - start);
}

#endif
