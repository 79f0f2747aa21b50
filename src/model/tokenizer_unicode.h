/* What the reference tokenizer thinks of code points: general categories, and the classes of
 * characters that pre-tokenizers, normalising and added tokens ask for. */
#ifndef REEL_MODEL_TOKENIZER_UNICODE_H
#define REEL_MODEL_TOKENIZER_UNICODE_H

#include <stdint.h>

enum unicode_class {
    UC_SPACE = 1,       /* \s */
    UC_NUMERIC = 2,     /* what the Digits pre-tokenizer takes; \p{N} of an older Unicode */
    UC_PUNCTUATION = 4, /* what the Punctuation pre-tokenizer takes */
    UC_COMBINING = 8,   /* canonical combining class is not 0 */
    UC_UNSTABLE = 16,   /* NFC may change it, or join it to what stands before */
    UC_WORD = 32,       /* \w of the pre-tokenizers' expressions */
    UC_RUST_WORD = 64,  /* \w of those that look beside an added token */
    UC_HAN = 128,       /* scripts */
    UC_HIRAGANA = 256,
    UC_KATAKANA = 512,
    UC_HANGUL = 1024
};

/* General categories, in the order in which tools/make_unicode_classes.py names them. */
enum unicode_category {
    UC_Lu,
    UC_Ll,
    UC_Lt,
    UC_Lm,
    UC_Lo,
    UC_Mn,
    UC_Mc,
    UC_Me,
    UC_Nd,
    UC_Nl,
    UC_No,
    UC_Pc,
    UC_Pd,
    UC_Ps,
    UC_Pe,
    UC_Pi,
    UC_Pf,
    UC_Po,
    UC_Sm,
    UC_Sc,
    UC_Sk,
    UC_So,
    UC_Zs,
    UC_Zl,
    UC_Zp,
    UC_Cc,
    UC_Cf,
    UC_Cs,
    UC_Co,
    UC_Cn,
    N_UNICODE_CATEGORIES
};

#define UNICODE_END 0x110000u /* first number beyond the code points */

/* Code points from `first` to before the next range's. */
struct unicode_range {
    uint32_t first;
    uint16_t classes; /* enum unicode_class */
    uint8_t category;
};

extern const struct unicode_range unicode_ranges[];
extern const int n_unicode_ranges;

/* Remembers the last range: neighbours in a text mostly share one. Zeroed means nothing yet. */
struct unicode_memo {
    uint32_t first, end;
    unsigned classes;
};

static inline unsigned unicode_classes(struct unicode_memo *memo, uint32_t c) {
    if (c >= memo->first && c < memo->end) return memo->classes;
    int low = 0, high = n_unicode_ranges;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (unicode_ranges[middle].first <= c)
            low = middle;
        else
            high = middle;
    }
    memo->first = unicode_ranges[low].first;
    memo->end = low + 1 < n_unicode_ranges ? unicode_ranges[low + 1].first : UINT32_MAX;
    memo->classes = unicode_ranges[low].classes;
    return memo->classes;
}

#endif
