/* Marked texts: what Python's str does, on UTF-8 whose bytes each carry a mark. */
#ifndef REEL_JINJA_TEXT_H
#define REEL_JINJA_TEXT_H

#include "jinja/value.h"

#include <string.h>

/* Borrows the bytes. */
struct text *text_of(struct job *job, const char *bytes, size_t n, bool foreign);
struct text *text_copy(struct job *job, const char *bytes, size_t n, bool foreign);
static inline struct value v_word(struct job *job, const char *word, bool foreign) {
    return v_text(text_of(job, word, strlen(word), foreign));
}
/* Bytes [from, to), with their marks; nothing is copied. */
struct text *text_part(struct job *job, const struct text *t, size_t from, size_t to);
struct text *text_join(struct job *job, struct text *a, const struct text *b);

size_t text_chars(struct text *t);                      /* characters */
size_t text_offset(struct text *t, size_t index);       /* the byte where a character begins */
size_t text_index(const struct text *t, size_t offset); /* characters before a byte */
size_t char_bytes(char first);                          /* of a character, by its first byte */
uint32_t char_at(const struct text *t, size_t offset, size_t *n_bytes);
uint32_t text_hash(struct text *t);
/* Mostly the first character decides. */
static inline bool text_is(const struct text *t, const char *word) {
    if (!t->n || t->bytes[0] != word[0]) return !t->n && !word[0];
    return t->n == strlen(word) && !memcmp(t->bytes, word, t->n);
}
/* Whether a byte of [from, to) is foreign. */
bool part_foreign(const struct text *t, size_t from, size_t to);
bool texts_equal(const struct text *a, const struct text *b);
int texts_order(const struct text *a, const struct text *b); /* by code points */

/* The first and the last place of `part` inside [from, to); -1 when it is not there. */
ptrdiff_t text_find(const struct text *t, const struct text *part, size_t from, size_t to);
ptrdiff_t text_find_last(const struct text *t, const struct text *part, size_t from, size_t to);

/* What joins Markup is escaped, unless it is Markup; v as it is where `markup` is none. */
struct value beside_markup(struct job *job, const struct text *markup, struct value v);
/* str.replace; a count below 0 is no limit. */
struct value text_replace(struct job *job, struct text *t, const struct text *old,
                          const struct text *new, int64_t count);
/* The lines of str.splitlines. */
struct list *text_lines(struct job *job, struct text *t, bool keep_ends);
bool text_ends_line(const struct text *t); /* its last character ends a line */
enum pad { PAD_LEFT, PAD_RIGHT, PAD_CENTER };
/* At least `width` characters: filled up on that side. `fill` is one character, NULL a space. */
struct value text_pad(struct job *job, struct text *t, int64_t width, enum pad side,
                      const struct text *fill);

/* ---- writing --------------------------------------------------------------------------------- */

/* A text that grows. A failure is in the job; later writes do nothing. */
struct sink {
    struct job *job;
    char *bytes;
    uint8_t *marks; /* NULL while all bytes are alike */
    size_t n, cap;
    size_t limit; /* of n; 0: memory alone limits it */
    bool foreign; /* while there are no marks: of the bytes so far */
    bool safe;
};

void sink_put(struct sink *sink, const char *bytes, size_t n, bool foreign);
static inline void sink_word(struct sink *sink, const char *word, bool foreign) {
    sink_put(sink, word, strlen(word), foreign);
}
void sink_text(struct sink *sink, const struct text *t);
void sink_part(struct sink *sink, const struct text *t, size_t from, size_t to);
void sink_char(struct sink *sink, uint32_t code, bool foreign);
void sink_fill(struct sink *sink, char c, size_t n, bool foreign);
/* `times` times the same. */
void sink_repeat(struct sink *sink, const char *bytes, size_t n, size_t times, bool foreign);
/* What has been written since it held `from` bytes is foreign. */
void sink_own_to_foreign(struct sink *sink, size_t from);
struct value sink_value(struct sink *sink);

/* As Python's str() and repr() write a value. */
void sink_str(struct sink *sink, struct value v);
void sink_repr(struct sink *sink, struct value v);
struct value value_str(struct job *job, struct value v); /* the value itself when it is text */
/* Python's repr of a finite or other float; at most 32 bytes. */
size_t float_repr(double f, char out[32]);
/* What Python's float() reads: white space around, "inf", "nan", underscores between digits. The
 * text has a NUL behind it. */
bool number_read(const char *text, size_t n, double *out);

/* json.dumps with transformers' arguments. */
struct json_style {
    bool ascii;
    bool sorted;
    bool lines;                            /* an indent is given */
    const struct text *indent;             /* of one level */
    const struct text *item_sep, *key_sep; /* NULL: as json.dumps chooses */
};
void sink_json(struct sink *sink, struct value v, const struct json_style *style);

/* "..." % value, and "{}".format(...). */
struct value text_percent(struct job *job, struct text *format, struct value arg);
struct value text_format(struct job *job, struct text *format, const struct args *args);

/* ---- Unicode --------------------------------------------------------------------------------- */

bool is_space(uint32_t code); /* str.isspace, str.strip, \s */
bool is_alpha(uint32_t code);
bool is_digit(uint32_t code);   /* str.isdigit */
bool is_decimal(uint32_t code); /* str.isdecimal */
bool is_numeric(uint32_t code);
bool is_printable(uint32_t code);
bool is_word(uint32_t code); /* \w */
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
bool is_title(uint32_t code);
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* Appends the character in the other case, which may be several. */
void sink_case(struct sink *sink, uint32_t code, enum letter_case to, bool foreign);
void sink_cased(struct sink *sink, const struct text *t, size_t from, size_t to,
                enum letter_case letters);

size_t strip_left(const struct text *t, const struct text *chars); /* NULL: white space */
size_t strip_right(const struct text *t, const struct text *chars, size_t from);

bool utf8_valid(const char *bytes, size_t n);
size_t utf8_write(uint32_t code, char out[4]);

#endif
