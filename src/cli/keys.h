/* What the bytes mean that a terminal sends: keys, as xterm, the VT220 and the Linux console name
 * them, and text. */
#ifndef REEL_CLI_KEYS_H
#define REEL_CLI_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum key_code {
    KEY_NONE, /* nothing reel has a use for */
    KEY_TEXT, /* characters to be inserted */
    KEY_ENTER,
    KEY_NEWLINE, /* Ctrl-J, or Enter with Alt: a line more */
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_WORD_LEFT,
    KEY_WORD_RIGHT,
    KEY_BEGIN,
    KEY_END,
    KEY_BACKSPACE,
    KEY_DELETE,
    KEY_DELETE_OR_CLOSE, /* Ctrl-D: the end of input where there is no text */
    KEY_CUT_TO_END,
    KEY_CUT_TO_BEGIN,
    KEY_CUT_BLANK_LEFT, /* to the white space before the cursor */
    KEY_CUT_WORD_LEFT,
    KEY_CUT_WORD_RIGHT,
    KEY_YANK,
    KEY_TRANSPOSE,
    KEY_CLEAR_SCREEN,
    KEY_SEARCH,
    KEY_SEARCH_BACK, /* towards what is newer */
    KEY_LEAVE,       /* Ctrl-G or Esc: out of a search */
    KEY_INTERRUPT,
    KEY_SUSPEND,
    KEY_QUIT,
    KEY_PASTE /* the terminal announces pasted text, up to PASTE_END */
};

/* What encloses a paste once PASTE_ON was written. */
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"
#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"

struct key {
    enum key_code code;
    const char *text; /* KEY_TEXT: valid UTF-8, borrowed */
    size_t n;
};

/* The key that n bytes (1 or more) begin with. Returns how many are its own, or 0 when more are
 * needed to know; with `all`, nothing more is coming soon, and it never returns 0. */
size_t key_read(const char *bytes, size_t n, bool all, struct key *key);

#endif
