#include "cli/live_view.h"

#include "cli/terminal.h"

#include <string.h>
#include <utf8proc.h>

/* DECSC, DECRC and DECAWM, which terminals have had since the VT100: while the rest is drawn a row
 * that is too long does not wrap, and then the cursor is back where the text ends. So wiping it is
 * to erase from there, even when a character was taken to be narrower than it is. */
#define SAVE_AND_NO_WRAP "\0337\033[?7l"
#define WRAP_AND_RESTORE "\033[?7h\0338"
#define ERASE            "\033[K"

#define ELLIPSIS  "\xe2\x80\xa6"
#define TAB       8
#define LEAST_ROW 8 /* columns in which a rest is worth to be shown */

void live_view_start(struct live_view *v, FILE *out) {
    *v = (struct live_view){ .out = out, .styled = terminal_has_styles(out) };
}

/* Bytes and columns of the character at text; what is no character is one of each. */
static size_t measure(const char *text, size_t n, int *columns) {
    utf8proc_int32_t c = -1;
    const utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    *columns = length > 0 && c >= 0x20 && c != 0x7f ? utf8proc_charwidth(c) : 1;
    return length > 0 ? (size_t)length : 1;
}

static void wipe(struct live_view *v) {
    if (v->drawn) fputs(ERASE, v->out);
    v->drawn = false;
}

/* As terminals wrap: a character that does not fit goes to the next row, and the last column may be
 * full without the cursor having left it. */
static void advance(struct live_view *v, char c, int columns, int width) {
    if (c == '\n')
        v->column = 0;
    else if (c == '\t')
        v->column = v->column / TAB * TAB + TAB < width ? v->column / TAB * TAB + TAB : width - 1;
    else
        v->column = (v->column + columns > width ? 0 : v->column) + columns;
}

void live_view_text(struct live_view *v, const char *text, size_t n) {
    const int width = terminal_columns(v->out);
    int columns;
    wipe(v);
    terminal_write(v->out, text, n);
    for (size_t at = 0, length; at < n; at += length) {
        length = measure(text + at, n - at, &columns);
        advance(v, text[at], columns, width);
    }
    fflush(v->out);
}

/* Where the end of the text begins that fits. */
static size_t fitting_end(const char *text, size_t n, int room) {
    size_t from = n;
    int used = 0, columns;
    while (from > 0) {
        size_t at = from - 1;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        (void)measure(text + at, from - at, &columns);
        if (used + columns > room) break;
        used += columns;
        from = at;
    }
    return from;
}

/* One row: no line ends and no tabs. */
static void draw(const struct live_view *v, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char c = terminal_byte(text, n, i);
        if (c) fputc(c == '\n' || c == '\t' ? ' ' : c, v->out);
    }
}

void live_view_rest(struct live_view *v, const char *text, size_t n) {
    if (!v->styled) return;
    const int room = terminal_columns(v->out) - v->column - 1;
    wipe(v);
    if (n > 0 && room >= LEAST_ROW) {
        size_t from = fitting_end(text, n, room);
        if (from > 0) from = fitting_end(text, n, room - 1);
        fputs(SAVE_AND_NO_WRAP, v->out);
        terminal_dim(v->out, true);
        if (from > 0) fputs(ELLIPSIS, v->out);
        draw(v, text + from, n - from);
        terminal_dim(v->out, false);
        fputs(WRAP_AND_RESTORE, v->out);
        v->drawn = true;
    }
    fflush(v->out);
}

void live_view_end(struct live_view *v) {
    wipe(v);
    v->column = 0;
}
