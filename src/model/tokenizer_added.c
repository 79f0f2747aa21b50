#include "model/tokenizer_added.h"

#include "model/tokenizer_unicode.h"
#include "model/tokenizer_utf8.h"

/* First of the sorted added tokens [low, high) whose byte at `depth` is at least `byte`. All agree
 * on the bytes before; one that ends at depth sorts first. */
static uint32_t narrow(const struct reel_tokenizer *tok, uint32_t low, uint32_t high, size_t depth,
                       unsigned byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, id = tok->added[middle];
        size_t at = tok->offsets[id] + depth;
        bool below = at >= tok->offsets[id + 1] || (unsigned char)tok->text[at] < byte;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest added token that text [n] starts with; its length, or 0. */
static size_t match_added(const struct reel_tokenizer *tok, const char *text, size_t n,
                          bool normalized, uint32_t *id) {
    uint32_t low = 0, high = tok->head.n_added;
    size_t longest = 0;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        unsigned byte = (unsigned char)text[depth];
        low = narrow(tok, low, high, depth, byte);
        high = narrow(tok, low, high, depth, byte + 1);
        if (low == high) break;
        uint32_t first = tok->added[low];
        if (tok->offsets[first + 1] - tok->offsets[first] == depth + 1 &&
            normalized == !!(tok->flags[first] & TOKEN_NORMALIZED)) {
            *id = first;
            longest = depth + 1;
        }
    }
    return longest;
}

static unsigned classes_at(const char *text) {
    struct unicode_memo memo = { 0 };
    int n;
    return unicode_classes(&memo, utf8_decode((const unsigned char *)text, &n));
}

/* Where the last character of text [n] begins. */
static size_t last_character(const char *text, size_t n) {
    n--;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

size_t added_spaces_before(const char *text, size_t n) {
    size_t left = n;
    while (left > 0) {
        size_t last = last_character(text, left);
        if (!(classes_at(text + last) & UC_SPACE)) break;
        left = last;
    }
    return n - left;
}

size_t added_spaces_after(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && classes_at(text + i) & UC_SPACE)
        i += (size_t)utf8_length((unsigned char)text[i]);
    return i;
}

/* Whether the token stands alone: no letter, digit or the like touches it. */
static bool stands_alone(const char *text, size_t n, const struct added_match *m) {
    if (m->start > 0 && classes_at(text + last_character(text, m->start)) & UC_RUST_WORD)
        return false;
    return m->end == n || !(classes_at(text + m->end) & UC_RUST_WORD);
}

bool added_next(const struct reel_tokenizer *tok, const char *text, size_t n, size_t at,
                bool normalized, struct added_match *match) {
    while (at < n) {
        size_t length = 0;
        if (tok->added_lead[(unsigned char)text[at]])
            length = match_added(tok, text + at, n - at, normalized, &match->id);
        match->start = at;
        match->end = at + length;
        at += length ? length : 1; /* what does not stand alone is passed over as a whole */
        if (length == 0) continue;
        if (!(tok->flags[match->id] & TOKEN_SINGLE_WORD) || stands_alone(text, n, match))
            return true;
    }
    return false;
}
