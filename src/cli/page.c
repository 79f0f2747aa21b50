#include "cli/page.h"

#include "cli/grapheme.h"
#include "cli/terminal.h"

#include <string.h>

#define BOLD  "\033[1m"
#define DIM   "\033[2m"
#define PLAIN "\033[0m"

#define NO_CHARACTER 0xfffd

enum line_kind { UNCLEAR, TEXT, HEADING, FENCE, TABLE, ITEM };

void page_start(struct page *p, FILE *out) {
    *p = (struct page){ .styled = terminal_has_styles(out) };
    wrap_start(&p->wrap, out);
}

static void style(struct page *p, const char *sequence) {
    if (p->styled) wrap_style(&p->wrap, sequence);
}

static void put(struct page *p, int32_t c, const char *bytes, size_t n) {
    wrap_put(&p->wrap, c, bytes, n);
}

static void put_head(struct page *p) {
    int32_t c;
    for (size_t at = 0, n; at < p->n_head; at += n) {
        n = character_read(p->head, p->n_head, at, &c);
        put(p, c, p->head + at, n);
    }
    p->n_head = 0;
}

/* ---- within a line --------------------------------------------------------------------------- */

static bool is_blank(int32_t c) { return c == 0 || c == ' ' || c == '\n' || c == '\t'; }

/* Two stars or three between something that is no word and a word begin what is strong; after it
 * they end it. All others are stars. `next` is what follows them. */
static void put_stars(struct page *p, int32_t next) {
    const int n = p->stars;
    p->stars = 0;
    if (n == 0) return;
    const bool marks = n == 2 || n == 3;
    if (marks && !p->strong && !is_blank(next) && !character_in_word(p->last) && p->last != '\\') {
        p->strong = true;
        style(p, BOLD);
    } else if (marks && p->strong && !is_blank(p->last)) {
        p->strong = false;
        style(p, p->heading ? PLAIN BOLD : PLAIN);
    } else {
        for (int i = 0; i < n; i++)
            put(p, '*', "*", 1);
        p->last = '*';
    }
}

static void put_inline(struct page *p, int32_t c, const char *bytes, size_t n) {
    if (c == '*' && !p->code) {
        p->stars++;
        return;
    }
    put_stars(p, c);
    if (c == '`') p->code = !p->code;
    put(p, c, bytes, n);
    p->last = c;
}

static void end_line(struct page *p) {
    put_stars(p, '\n');
    if (p->strong || p->heading || p->fence_row) style(p, PLAIN);
    p->strong = p->heading = p->code = p->in_line = p->fence_row = false;
    p->last = 0;
    put(p, '\n', "\n", 1);
    p->wrap.hang = 0;
    p->wrap.as_it_is = p->fence != 0;
}

/* ---- how a line begins ----------------------------------------------------------------------- */

static size_t run_of(const char *text, size_t n, char c) {
    size_t i = 0;
    while (i < n && text[i] == c)
        i++;
    return i;
}

/* A number of at most three digits, or a sign, and what follows it. */
static enum line_kind judge_item(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && i < 4 && text[i] >= '0' && text[i] <= '9')
        i++;
    if (i == n) return UNCLEAR;
    if (i > 3) return TEXT;
    if (i > 0 && text[i] != '.' && text[i] != ')') return TEXT;
    if (i + 1 == n) return UNCLEAR;
    return text[i + 1] == ' ' ? ITEM : TEXT;
}

static enum line_kind judge(const char *text, size_t n) {
    const size_t blanks = run_of(text, n, ' ');
    text += blanks;
    n -= blanks;
    if (n == 0) return UNCLEAR;
    size_t run = run_of(text, n, text[0]);
    switch (text[0]) {
    case '#':
        if (run == n) return run <= 6 ? UNCLEAR : TEXT;
        return run <= 6 && text[run] == ' ' ? HEADING : TEXT;
    case '`':
    case '~':
        if (run >= 3) return FENCE;
        return run == n ? UNCLEAR : TEXT;
    case '|':
        return TABLE;
    case '-':
    case '*':
    case '+':
        return judge_item(text, n);
    default:
        return text[0] >= '0' && text[0] <= '9' ? judge_item(text, n) : TEXT;
    }
}

/* A line of a block of code ends it with three of the signs that began it. */
static enum line_kind judge_in_code(const struct page *p) {
    const enum line_kind kind = judge(p->head, p->n_head);
    const char *sign = p->head + run_of(p->head, p->n_head, ' ');
    if (sign < p->head + p->n_head && *sign != p->fence) return TEXT;
    return kind == FENCE || kind == UNCLEAR ? kind : TEXT;
}

static void begin_line(struct page *p, enum line_kind kind) {
    const struct page was = *p;
    int32_t c;
    p->in_line = true;
    switch (kind) {
    case HEADING:
        p->heading = true;
        p->n_head = 0;
        style(p, BOLD);
        break;
    case FENCE:
        p->fence = p->fence ? 0 : p->head[run_of(p->head, p->n_head, ' ')];
        p->fence_row = p->wrap.as_it_is = true;
        style(p, DIM);
        put_head(p);
        break;
    case TABLE:
        p->wrap.as_it_is = true;
        put_head(p);
        break;
    case ITEM:
        p->wrap.hang = (int)p->n_head;
        put_head(p);
        break;
    default:
        if (p->fence) {
            put_head(p);
            break;
        }
        p->n_head = 0;
        for (size_t at = 0, n; at < was.n_head; at += n) {
            n = character_read(was.head, was.n_head, at, &c);
            put_inline(p, c, was.head + at, n);
        }
    }
}

/* ---- characters ------------------------------------------------------------------------------ */

static void put_character(struct page *p, int32_t c, const char *bytes, size_t n) {
    if (!p->styled || p->dim) {
        put(p, c, bytes, n);
        return;
    }
    if (c == '\n') {
        if (!p->in_line) begin_line(p, TEXT);
        end_line(p);
        return;
    }
    if (p->in_line) {
        if (p->fence || p->fence_row)
            put(p, c, bytes, n);
        else
            put_inline(p, c, bytes, n);
        return;
    }
    memcpy(p->head + p->n_head, bytes, n);
    p->n_head += n;
    enum line_kind kind = p->fence ? judge_in_code(p) : judge(p->head, p->n_head);
    if (kind == UNCLEAR && p->n_head + 4 >= sizeof p->head) kind = TEXT;
    if (kind != UNCLEAR) begin_line(p, kind);
}

/* Bytes of a character that begins so. */
static size_t length_of(char first) {
    const unsigned char c = (unsigned char)first;
    return c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* What is no character cannot come out of a model; should it, U+FFFD stands for it. */
static void put_part(struct page *p) {
    const size_t n = p->n_part;
    p->n_part = 0;
    for (size_t at = 0, length; at < n; at += length) {
        char safe[4] = "";
        size_t n_safe = 0;
        int32_t c;
        length = character_read(p->part, n, at, &c);
        for (size_t i = at; i < at + length; i++) {
            const char byte = terminal_byte(p->part, n, i);
            if (byte) safe[n_safe++] = byte;
        }
        if (c == NO_CHARACTER)
            put_character(p, c, "\xef\xbf\xbd", 3);
        else
            put_character(p, safe[0] == '?' ? '?' : c, safe, n_safe);
    }
}

void page_text(struct page *p, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        p->part[p->n_part++] = text[i];
        if (p->n_part >= length_of(p->part[0])) put_part(p);
    }
}

/* What is held back of a line. */
static void put_held(struct page *p) {
    if (p->n_part) put_part(p);
    if (p->n_head) begin_line(p, TEXT);
    put_stars(p, '\n');
    if (p->strong || p->heading || p->fence_row) style(p, PLAIN);
    p->strong = p->heading = p->code = p->in_line = p->fence_row = false;
    p->fence = 0;
    p->last = 0;
}

void page_dim(struct page *p, bool on) {
    put_held(p);
    p->dim = on;
    if (!on) p->wrap.newlines = 0; /* the answer begins with those that are to stand between */
    p->wrap.hang = 0;
    p->wrap.as_it_is = false;
    style(p, on ? DIM : PLAIN);
}

void page_end(struct page *p) {
    put_held(p);
    if (p->dim) style(p, PLAIN);
    p->dim = false;
    wrap_end(&p->wrap, true);
    fflush(p->wrap.out);
}
