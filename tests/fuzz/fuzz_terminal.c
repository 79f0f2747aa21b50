/* What comes from a terminal and what goes to it: any bytes as keys, any text as an answer. Each
 * key takes at least one byte, a text stays UTF-8 with its cursor between clusters, and nothing
 * that a model wrote is a control character. */
#include "cli/edit_text.h"
#include "cli/grapheme.h"
#include "cli/keys.h"
#include "cli/page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_text(const struct edit_text *e) {
    const size_t n = e->text.size;
    int32_t c;
    require(e->cursor <= n && e->text.bytes[n] == '\0');
    for (size_t at = 0, length; at < n; at += length) {
        length = character_read(e->text.bytes, n, at, &c);
        require(length > 1 || (unsigned char)e->text.bytes[at] < 0x80);
    }
}

static void press(struct edit_text *e, const struct key *key) {
    switch (key->code) {
    case KEY_TEXT:
        require(edit_insert(e, key->text, key->n, NULL) == REEL_OK);
        break;
    case KEY_ENTER:
    case KEY_NEWLINE:
        require(edit_insert(e, "\n", 1, NULL) == REEL_OK);
        break;
    case KEY_LEFT:
        e->cursor = edit_left(e);
        break;
    case KEY_RIGHT:
        e->cursor = edit_right(e);
        break;
    case KEY_UP:
    case KEY_DOWN:
        (void)edit_vertical(e, key->code == KEY_UP ? -1 : 1);
        break;
    case KEY_WORD_LEFT:
        e->cursor = edit_word_left(e);
        break;
    case KEY_WORD_RIGHT:
        e->cursor = edit_word_right(e);
        break;
    case KEY_BACKSPACE:
        edit_erase(e, edit_left(e));
        break;
    case KEY_CUT_TO_BEGIN:
        edit_kill(e, edit_line_begin(e));
        break;
    case KEY_CUT_BLANK_LEFT:
        edit_kill(e, edit_blank_left(e));
        break;
    case KEY_YANK:
        if (e->text.size < 4096) require(edit_yank(e, NULL) == REEL_OK);
        break;
    case KEY_TRANSPOSE:
        edit_transpose(e);
        break;
    default:
        break;
    }
}

static void type(const char *bytes, size_t n) {
    struct edit_text e;
    require(edit_open(&e, 1 << 20, NULL) == REEL_OK);
    for (size_t at = 0, used; at < n; at += used) {
        struct key key;
        used = key_read(bytes + at, n - at, false, &key);
        if (used == 0) used = key_read(bytes + at, n - at, true, &key);
        require(used > 0 && used <= n - at);
        press(&e, &key);
    }
    check_text(&e);
    edit_close(&e);
}

/* The styles of a page are ESC [ digits m. */
static void check_shown(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == 0x1b) {
            require(i + 3 < n && text[i + 1] == '[' && strchr("012", text[i + 2]) &&
                    text[i + 3] == 'm');
            continue;
        }
        require(c == '\n' || (c >= 0x20 && c != 0x7f));
        require(c != 0xc2 || (unsigned char)text[i + 1] >= 0xa0);
    }
}

static void answer(const char *text, size_t n) {
    char *shown = NULL;
    size_t n_shown = 0;
    struct page page;
    FILE *out = open_memstream(&shown, &n_shown);
    require(out);
    page_start(&page, out);
    page.styled = true;
    for (size_t at = 0; at < n; at++)
        page_text(&page, text + at, 1);
    page_end(&page);
    fclose(out);
    check_shown(shown, n_shown);
    free(shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 1 << 16) return 0;
    type((const char *)data, n);
    answer((const char *)data, n);
    return 0;
}
