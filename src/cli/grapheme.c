#include "cli/grapheme.h"

#include <utf8proc.h>

#define NO_CHARACTER       0xfffd
#define EMOJI_PRESENTATION 0xfe0f  /* VS16: the character before it becomes a picture */
#define FIRST_INDICATOR    0x1f1e6 /* two regional indicators are a flag */
#define LAST_INDICATOR     0x1f1ff

size_t character_read(const char *text, size_t n, size_t at, int32_t *c) {
    const unsigned char first = (unsigned char)text[at];
    if (first < 0x80) {
        *c = first;
        return 1;
    }
    const size_t left = n - at < 4 ? n - at : 4;
    const utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)left, c);
    if (length > 0) return (size_t)length;
    *c = NO_CHARACTER;
    return 1;
}

int character_columns(int32_t c) {
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return 1;
    if (c >= FIRST_INDICATOR && c <= LAST_INDICATOR) return 2;
    return utf8proc_charwidth(c);
}

static bool is_plain(char c) { return c >= 0x20 && c < 0x7f; }

size_t grapheme_end(const char *text, size_t n, size_t at, int *columns) {
    int32_t c, next, state = 0;
    int sum;
    /* two ASCII characters have a boundary between them, whatever follows */
    if (is_plain(text[at]) && (at + 1 == n || is_plain(text[at + 1]))) {
        if (columns) *columns = 1;
        return at + 1;
    }
    at += character_read(text, n, at, &c);
    sum = character_columns(c);
    while (at < n) {
        const size_t length = character_read(text, n, at, &next);
        if (utf8proc_grapheme_break_stateful(c, next, &state)) break;
        sum += next == EMOJI_PRESENTATION ? sum == 1 : character_columns(next);
        at += length;
        c = next;
    }
    if (columns) *columns = sum;
    return at;
}

/* A boundary to begin looking from: before an ASCII character there is one (but for signs of a few
 * scripts that stand before a number), and no cluster that is read as one is this long. */
#define LOOK_BACK_BYTES 256

size_t grapheme_begin(const char *text, size_t n, size_t at) {
    const size_t least = at > LOOK_BACK_BYTES ? at - LOOK_BACK_BYTES : 0;
    size_t from = at - 1;
    while (from > least && !is_plain(text[from]) && text[from] != '\n')
        from--;
    while (from > 0 && from < at - 1 && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    for (size_t end; (end = grapheme_end(text, n, from, NULL)) < at;)
        from = end;
    return from;
}

bool character_in_word(int32_t c) {
    const utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO) || c == '_';
}
