#include "cli/line_view.h"

#include "cli/grapheme.h"
#include "cli/terminal.h"

#include <string.h>

#define MARGIN      2 /* columns before each row */
#define TAB         4
#define NO_WRAP     "\033[?7l"
#define WRAP        "\033[?7h"
#define ERASE_RIGHT "\033[K"
#define ERASE_BELOW "\033[J"

/* Where rows are: [begin, end) of the text; a newline between rows belongs to neither. */
struct row {
    size_t begin, end, next;
    bool last;
};

void line_view_open(struct line_view *v, FILE *out) { *v = (struct line_view){ .out = out }; }

void line_view_close(struct line_view *v) {
    buffer_release(&v->frame);
    *v = (struct line_view){ 0 };
}

static struct row find_row(const char *text, size_t n, size_t begin, int width) {
    struct row row = { begin, begin, begin, false };
    int used = 0, columns;
    while (row.end < n && text[row.end] != '\n') {
        const size_t end = grapheme_end(text, n, row.end, &columns);
        if (text[row.end] == '\t') columns = TAB - used % TAB;
        if (used + columns > width && row.end > begin) break;
        used += columns;
        row.end = end;
    }
    row.last = row.end == n;
    row.next = row.end + (row.end < n && text[row.end] == '\n');
    return row;
}

static void put(struct line_view *v, const char *text, size_t n) {
    /* a frame that finds no memory is drawn in part, and the next one whole */
    if (buffer_append(&v->frame, text, n, NULL) != REEL_OK) return;
}

static void put_text(struct line_view *v, const char *text) { put(v, text, strlen(text)); }

static void put_up(struct line_view *v, size_t rows) {
    if (rows && buffer_printf(&v->frame, NULL, "\033[%zuA", rows) != REEL_OK) return;
}

/* The part of a row before `stop`, its margin first. Control characters become '?'. */
static void put_row(struct line_view *v, const char *text, const struct row *row, size_t stop) {
    int used = 0, columns;
    const bool begins = row->begin == 0, goes_on = !begins && text[row->begin - 1] != '\n';
    put_text(v, begins ? "> " : goes_on ? "  " : ". ");
    for (size_t at = row->begin, end; at < row->end && at < stop; at = end) {
        end = grapheme_end(text, row->end, at, &columns);
        if (text[at] == '\t') {
            columns = TAB - used % TAB;
            put(v, "    ", (size_t)columns);
        } else {
            for (size_t i = at; i < end; i++) {
                const char c = terminal_byte(text, row->end, i);
                if (c) put(v, &c, 1);
            }
        }
        used += columns;
    }
}

/* Which row the cursor stands in, and how many there are. */
static size_t count_rows(const char *text, size_t n, size_t cursor, int width, size_t *of_cursor) {
    size_t rows = 0;
    struct row row = { 0 };
    *of_cursor = 0;
    do {
        row = find_row(text, n, row.next, width);
        if (cursor >= row.begin) *of_cursor = rows;
        rows++;
    } while (!row.last);
    return rows;
}

static void draw_rows(struct line_view *v, const char *text, size_t n, size_t cursor, int width,
                      size_t shown) {
    struct row row = { 0 }, with_cursor = { 0 };
    for (size_t i = 0; i < v->top + shown; i++) {
        row = find_row(text, n, row.next, width);
        if (i < v->top) continue;
        if (i > v->top) put_text(v, "\r\n");
        put_row(v, text, &row, n);
        if (i + 1 < v->top + shown) put_text(v, ERASE_RIGHT);
        if (i == v->top + v->above) with_cursor = row;
    }
    put_text(v, ERASE_BELOW);
    put_up(v, v->below);
    put_text(v, "\r");
    put_row(v, text, &with_cursor, cursor);
}

void line_view_draw(struct line_view *v, const char *text, size_t n, size_t cursor) {
    int columns, window;
    size_t of_cursor;
    terminal_size(v->out, &columns, &window);
    const int width = columns > MARGIN + 2 ? columns - MARGIN - 1 : 1;
    const size_t rows = count_rows(text, n, cursor, width, &of_cursor);
    const size_t shown = rows < (size_t)window ? rows : (size_t)window;
    v->frame.size = 0;
    put_up(v, v->above);
    put_text(v, "\r" NO_WRAP);
    if (v->top + shown > rows) v->top = rows - shown;
    if (of_cursor < v->top) v->top = of_cursor;
    if (of_cursor >= v->top + shown) v->top = of_cursor + 1 - shown;
    v->above = of_cursor - v->top;
    v->below = shown - 1 - v->above;
    draw_rows(v, text, n, cursor, width, shown);
    put_text(v, WRAP);
    fwrite(v->frame.bytes, 1, v->frame.size, v->out);
    fflush(v->out);
}

void line_view_end(struct line_view *v) {
    for (; v->below; v->below--)
        fputc('\n', v->out);
    fputs("\r\n", v->out);
    fflush(v->out);
    line_view_forget(v);
}

void line_view_forget(struct line_view *v) { v->top = v->above = v->below = 0; }
