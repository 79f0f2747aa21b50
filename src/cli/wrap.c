#include "cli/wrap.h"

#include "cli/grapheme.h"
#include "cli/raw_mode.h"
#include "cli/terminal.h"

#include <string.h>

#define TAB          8
#define ZERO_JOINER  0x200d
#define VARIATION_16 0xfe0f

void wrap_start(struct wrap *w, FILE *out) {
    *w = (struct wrap){ .out = out, .stops = raw_mode_stops() };
}

/* Where more is written a moment after the terminal wrapped. */
static void advance(struct wrap *w, int columns, int width) {
    w->column += columns;
    if (w->column > width) w->column = (w->column - 1) % width + 1;
}

static void put_spaces(struct wrap *w, int n) {
    for (int i = 0; i < n; i++)
        fputc(' ', w->out);
}

static void put_newlines(struct wrap *w) {
    const int stops = raw_mode_stops();
    if (stops != w->stops) w->column = 0; /* the shell left the cursor there */
    w->stops = stops;
    if (!w->begun) w->newlines = 0;
    for (; w->newlines > 0; w->newlines--) {
        fputc('\n', w->out);
        w->column = 0;
    }
    w->begun = true;
}

static void put_word(struct wrap *w) {
    int columns, rows;
    if (w->word_columns == 0) { /* styles at most, and what is before the next word still waits */
        fwrite(w->word, 1, w->n_word, w->out);
        w->n_word = 0;
        return;
    }
    terminal_size(w->out, &columns, &rows);
    put_newlines(w);
    if (!w->as_it_is && !w->follows && w->column > 0 &&
        w->column + w->spaces + w->word_columns > columns) {
        fputc('\n', w->out);
        w->column = 0;
        w->spaces = w->hang + w->word_columns <= columns && w->hang < columns / 2 ? w->hang : 0;
    }
    put_spaces(w, w->spaces);
    fwrite(w->word, 1, w->n_word, w->out);
    advance(w, w->spaces + w->word_columns, columns);
    w->n_word = 0;
    w->word_columns = w->spaces = 0;
    w->follows = false;
}

/* Points and closing brackets, small kana, and what only changes the character before it. */
static bool stays_with_last(int32_t c) {
    static const int32_t list[] = { '!',    '"',    '%',    '\'',   ')',    ',',    '.',    ':',
                                    ';',    '?',    ']',    '}',    0x2019, 0x201d, 0x2026, 0x3001,
                                    0x3002, 0x3005, 0x3009, 0x300b, 0x300d, 0x300f, 0x3011, 0x3015,
                                    0x3041, 0x3043, 0x3045, 0x3047, 0x3049, 0x3063, 0x3083, 0x3085,
                                    0x3087, 0x30a1, 0x30a3, 0x30a5, 0x30a7, 0x30a9, 0x30c3, 0x30e3,
                                    0x30e5, 0x30e7, 0x30fb, 0x30fc, 0xff01, 0xff09, 0xff0c, 0xff0e,
                                    0xff1a, 0xff1b, 0xff1f, 0xff3d, 0xff5d };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == c) return true;
    return character_columns(c) == 0 || (c >= 0x1f3fb && c <= 0x1f3ff);
}

/* Opening brackets, and the joint between two pictures that become one. */
static bool stays_with_next(int32_t c) {
    static const int32_t list[] = { '(',    '[',    '{',    0x2018, 0x201c, 0x3008,     0x300a,
                                    0x300c, 0x300e, 0x3010, 0x3014, 0xff08, ZERO_JOINER };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == c) return true;
    return false;
}

static bool is_indicator(int32_t c) { return c >= 0x1f1e6 && c <= 0x1f1ff; }

static bool may_break(int32_t last, int32_t c) {
    if (character_columns(last) != 2 && character_columns(c) != 2) return false;
    if (is_indicator(last) && is_indicator(c)) return false;
    return !stays_with_last(c) && !stays_with_next(last) && last != VARIATION_16;
}

static void put_blank(struct wrap *w, int32_t c) {
    put_word(w);
    if (c == '\n') {
        w->newlines++;
        w->spaces = 0;
    } else {
        const int column = (w->newlines ? 0 : w->column) + w->spaces;
        w->spaces += c == '\t' ? TAB - column % TAB : 1;
    }
    w->follows = false;
    w->last = ' ';
}

void wrap_put(struct wrap *w, int32_t c, const char *bytes, size_t n) {
    int columns, rows, added = character_columns(c);
    if (c == '\n' || c == '\t' || c == ' ') {
        put_blank(w, c);
        return;
    }
    if (w->n_word && may_break(w->last, c)) put_word(w);
    if (c == VARIATION_16 && character_columns(w->last) == 1) added = 1;
    memcpy(w->word + w->n_word, bytes, n);
    w->n_word += n;
    w->word_columns += added;
    w->last = c;
    terminal_size(w->out, &columns, &rows);
    if (w->word_columns < columns && w->n_word + 32 < sizeof w->word) return;
    put_word(w);
    w->follows = true;
}

void wrap_style(struct wrap *w, const char *sequence) {
    const size_t n = strlen(sequence);
    if (w->n_word + n + 4 >= sizeof w->word) {
        const bool inside = w->word_columns > 0;
        put_word(w);
        w->follows = inside;
    }
    memcpy(w->word + w->n_word, sequence, n);
    w->n_word += n;
}

void wrap_end(struct wrap *w, bool end_row) {
    put_word(w);
    if (end_row && w->column > 0 && w->stops == raw_mode_stops()) fputc('\n', w->out);
    if (!end_row) return;
    w->column = w->newlines = w->spaces = w->hang = 0;
    w->begun = w->follows = w->as_it_is = false;
}
