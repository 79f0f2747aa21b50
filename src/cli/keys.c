#include "cli/keys.h"

#include "cli/grapheme.h"

#include <string.h>

#define NO_CHARACTER "\xef\xbf\xbd" /* U+FFFD */
#define ESCAPE       0x1b
#define LONGEST_CSI  64 /* a longer one is no key, and its bytes are dropped */

/* Ctrl and a letter; [0] is Ctrl-@, [26] Ctrl-Z, [28] Ctrl-\. */
static const enum key_code controls[0x20] = {
    [1] = KEY_BEGIN,           [2] = KEY_LEFT,          [3] = KEY_INTERRUPT,
    [4] = KEY_DELETE_OR_CLOSE, [5] = KEY_END,           [6] = KEY_RIGHT,
    [7] = KEY_LEAVE,           [8] = KEY_BACKSPACE,     [10] = KEY_NEWLINE,
    [11] = KEY_CUT_TO_END,     [12] = KEY_CLEAR_SCREEN, [13] = KEY_ENTER,
    [14] = KEY_DOWN,           [16] = KEY_UP,           [18] = KEY_SEARCH,
    [19] = KEY_SEARCH_BACK,    [20] = KEY_TRANSPOSE,    [21] = KEY_CUT_TO_BEGIN,
    [23] = KEY_CUT_BLANK_LEFT, [25] = KEY_YANK,         [26] = KEY_SUSPEND,
    [28] = KEY_QUIT,
};

/* What stands behind ESC. */
static enum key_code with_alt(char c) {
    switch (c) {
    case '\r':
    case '\n':
        return KEY_NEWLINE;
    case 'b':
    case 'B':
        return KEY_WORD_LEFT;
    case 'f':
    case 'F':
        return KEY_WORD_RIGHT;
    case 'd':
    case 'D':
        return KEY_CUT_WORD_RIGHT;
    case 0x08:
    case 0x7f:
        return KEY_CUT_WORD_LEFT;
    default:
        return KEY_NONE;
    }
}

/* The last byte of ESC [ ... or ESC O ...; `modified` with Ctrl or Alt. */
static enum key_code by_letter(char last, bool modified) {
    switch (last) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'C':
        return modified ? KEY_WORD_RIGHT : KEY_RIGHT;
    case 'D':
        return modified ? KEY_WORD_LEFT : KEY_LEFT;
    case 'H':
        return KEY_BEGIN;
    case 'F':
        return KEY_END;
    case 'M': /* Enter of the keypad */
        return KEY_ENTER;
    default:
        return KEY_NONE;
    }
}

/* ESC [ NUMBER ~ */
static enum key_code by_number(int number) {
    switch (number) {
    case 1:
    case 7:
        return KEY_BEGIN;
    case 4:
    case 8:
        return KEY_END;
    case 3:
        return KEY_DELETE;
    case 200:
        return KEY_PASTE;
    default:
        return KEY_NONE;
    }
}

/* The number that text begins with; no key has one of more than three digits. */
static int number_at(const char *text) {
    int number = 0;
    for (int i = 0; i < 4 && text[i] >= '0' && text[i] <= '9'; i++)
        number = 10 * number + (text[i] - '0');
    return number;
}

/* Modifiers are 1 plus 1 for shift, 2 for Alt, 4 for Ctrl. */
static bool is_modified(const char *parameters, size_t n) {
    const char *second = memchr(parameters, ';', n);
    return second && ((number_at(second + 1) - 1) & 6) > 0;
}

/* ESC [ parameters letter. */
static size_t read_csi(const char *bytes, size_t n, bool all, struct key *key) {
    char parameters[LONGEST_CSI + 1] = "";
    size_t at = 2, n_parameters;
    if (at < n && bytes[at] == '[') /* the function keys of the Linux console: ESC [ [ A */
        return n > 3 ? 4 : all ? n : 0;
    while (at < n && at < LONGEST_CSI && bytes[at] >= 0x20 && bytes[at] < 0x40)
        at++;
    if (at == n && !all) return 0;
    if (at == n || at == LONGEST_CSI || bytes[at] < 0x40 || bytes[at] == 0x7f) return at;
    n_parameters = at - 2;
    memcpy(parameters, bytes + 2, n_parameters);
    if (bytes[at] == '~')
        key->code = by_number(number_at(parameters));
    else
        key->code = by_letter(bytes[at], is_modified(parameters, n_parameters));
    return at + 1;
}

static size_t read_escape(const char *bytes, size_t n, bool all, struct key *key) {
    if (n == 1) {
        key->code = KEY_LEAVE;
        return all ? 1 : 0;
    }
    if (bytes[1] == '[') return read_csi(bytes, n, all, key);
    if (bytes[1] == 'O') {
        if (n == 2) return all ? 2 : 0;
        key->code = by_letter(bytes[2], false);
        return 3;
    }
    if (bytes[1] == ESCAPE) { /* Esc, and then another key */
        key->code = KEY_LEAVE;
        return 1;
    }
    key->code = with_alt(bytes[1]);
    return 2;
}

/* Bytes of a character that its first byte announces; 1 where it announces none. */
static size_t announced(char first) {
    const unsigned char c = (unsigned char)first;
    return c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 1;
}

static bool is_cut_short(const char *bytes, size_t n) {
    size_t at = 1;
    while (at < n && ((unsigned char)bytes[at] & 0xc0) == 0x80)
        at++;
    return at == n && n < announced(bytes[0]);
}

/* As many whole characters as there are. */
static size_t read_text(const char *bytes, size_t n, bool all, struct key *key) {
    size_t at = 0;
    int32_t c;
    while (at < n && ((unsigned char)bytes[at] >= 0x20 || bytes[at] == '\t') && bytes[at] != 0x7f) {
        const size_t length = character_read(bytes, n, at, &c);
        if (length == 1 && (unsigned char)bytes[at] >= 0x80)
            break; /* no character, or half of one */
        at += length;
    }
    *key = (struct key){ KEY_TEXT, bytes, at };
    if (at > 0) return at;
    if (!all && is_cut_short(bytes, n)) return 0;
    *key = (struct key){ KEY_TEXT, NO_CHARACTER, strlen(NO_CHARACTER) };
    return 1;
}

size_t key_read(const char *bytes, size_t n, bool all, struct key *key) {
    const unsigned char first = (unsigned char)bytes[0];
    *key = (struct key){ .code = KEY_NONE };
    if (first == ESCAPE) return read_escape(bytes, n, all, key);
    if (first >= 0x20 && first != 0x7f) return read_text(bytes, n, all, key);
    if (first == '\t') return read_text(bytes, n, all, key);
    key->code = first == 0x7f ? KEY_BACKSPACE : controls[first];
    return 1;
}
