/* UTF-8, one character at a time. */
#ifndef REEL_MODEL_TOKENIZER_UTF8_H
#define REEL_MODEL_TOKENIZER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that starts with `lead` and goes on with `second` (any value when the
 * lead stands alone); 0 when no character starts so. Surrogates, overlong forms and what lies
 * beyond U+10FFFF are told apart by the second byte alone. */
static inline int utf8_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

static inline bool utf8_second_ok(unsigned char lead, unsigned char second) {
    if (second < 0x80 || second > 0xbf) return false;
    switch (lead) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second <= 0x9f;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second <= 0x8f;
    default:
        return true;
    }
}

/* The character at p, which is known to be valid; *n receives its bytes. */
static inline uint32_t utf8_decode(const unsigned char *p, int *n) {
    if (p[0] < 0x80) {
        *n = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *n = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *n = 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *n = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

/* Writes c (a scalar value) and returns its bytes, at most 4. */
static inline int utf8_encode(uint32_t c, unsigned char *out) {
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xc0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xe0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

/* What SentencePiece writes for a space: U+2581. */
#define SPM_SPACE "\xe2\x96\x81"

/* Offset of the first byte that is not part of a valid character; n when all are. */
size_t utf8_valid_prefix(const char *text, size_t n);

#endif
