/* Classes of code points as the reference tokenizer sees them. */
#ifndef REEL_MODEL_TOKENIZER_UNICODE_H
#define REEL_MODEL_TOKENIZER_UNICODE_H

#include <stdint.h>

enum unicode_class {
    UC_LETTER = 1,     /* \p{L} */
    UC_MARK = 2,       /* \p{M} */
    UC_NUMBER = 4,     /* \p{N} */
    UC_SPACE = 8,      /* \s */
    UC_DIGIT = 16,     /* what the Digits pre-tokenizer takes; \p{N} of an older Unicode */
    UC_COMBINING = 32, /* canonical combining class is not 0 */
    UC_UNSTABLE = 64   /* NFC may change it, or join it to what stands before */
};

/* Code points from `first` to before the next range's. */
struct unicode_range {
    uint32_t first : 24;
    uint32_t classes : 8;
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
