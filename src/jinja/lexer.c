/* Two states: outside of tags and inside one. What a tag's signs and the two trimming options take
 * away of the text around it is decided here. */
#include "jinja/lexer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct lexer {
    struct job *job;
    const char *source;
    size_t n, at;
    int line;
    bool line_starting; /* the last match ended with a newline, or there was none yet */
    struct token *tokens;
    size_t n_tokens, cap;
    char closing[256]; /* brackets that are open, as what closes them */
    int n_closing;
};

static bool lex_fail(struct lexer *l, const char *words) {
    l->job->line = l->line;
    fail_python(l->job, "%s", words);
    return false;
}

char *lex_source(struct job *job, const char *text, size_t n_bytes, size_t *n) {
    char *out = job_raw(job, n_bytes + 1, 1);
    if (!out) return NULL;
    size_t k = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n') continue;
        out[k++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    }
    if (k && out[k - 1] == '\n') k--;
    out[k] = '\0';
    *n = k;
    return out;
}

static struct token *add_token(struct lexer *l, enum token_type type, size_t from, size_t to) {
    if (l->n_tokens == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        struct token *tokens = job_raw(l->job, cap, sizeof *tokens);
        if (!tokens) return NULL;
        if (l->n_tokens) memcpy(tokens, l->tokens, l->n_tokens * sizeof *tokens);
        l->tokens = tokens;
        l->cap = cap;
    }
    struct token *token = &l->tokens[l->n_tokens++];
    *token = (struct token){ type, l->line, l->source + from, to - from, v_missing() };
    return token;
}

/* Moves on to `to`, counting lines. */
static void advance(struct lexer *l, size_t to) {
    for (size_t i = l->at; i < to; i++)
        l->line += l->source[i] == '\n';
    if (to > l->at) l->line_starting = l->source[to - 1] == '\n';
    l->at = to;
}

static bool starts(const struct lexer *l, size_t at, const char *word) {
    size_t n = strlen(word);
    return l->n - at >= n && !memcmp(l->source + at, word, n);
}

static size_t skip_space(const struct lexer *l, size_t at) {
    struct text rest = { .bytes = l->source + at, .n = l->n - at };
    return at + strip_left(&rest, NULL);
}

/* ---- text outside of tags -------------------------------------------------------------------- */

/* The end of text [from, to) before a tag with this sign. */
static size_t data_end(const struct lexer *l, size_t from, size_t to, char sign, bool variable) {
    struct text data = { .bytes = l->source + from, .n = to - from };
    if (sign == '-') return from + strip_right(&data, NULL, 0);
    if (sign == '+' || variable) return to;
    size_t line = to;
    while (line > from && l->source[line - 1] != '\n')
        line--;
    if (line == from && !l->line_starting) return to;
    struct text tail = { .bytes = l->source + line, .n = to - line };
    return strip_left(&tail, NULL) == tail.n ? line : to;
}

static bool add_data(struct lexer *l, size_t from, size_t to) {
    if (to <= from) return true;
    struct token *token = add_token(l, T_DATA, from, to);
    if (!token) return false;
    token->value = v_text(text_of(l->job, l->source + from, to - from, false));
    return !is_failed(token->value);
}

/* Behind the end of a block or a comment: "-" takes all white space, else one newline goes. */
static size_t after_end(const struct lexer *l, size_t at, char sign) {
    if (sign == '-') return skip_space(l, at);
    return sign != '+' && at < l->n && l->source[at] == '\n' ? at + 1 : at;
}

/* {% raw %} at `at`: where its text begins, 0 when it is another block. */
static size_t raw_begin(const struct lexer *l, size_t at, char *sign) {
    *sign = '\0';
    at += 2;
    if (at < l->n && (l->source[at] == '-' || l->source[at] == '+')) *sign = l->source[at++];
    at = skip_space(l, at);
    if (!starts(l, at, "raw")) return 0;
    at = skip_space(l, at + 3);
    if (starts(l, at, "-%}")) return skip_space(l, at + 3);
    return starts(l, at, "%}") ? at + 2 : 0;
}

/* {% endraw %} at `at`: where it ends, 0 when it is something else. */
static size_t raw_end(const struct lexer *l, size_t at, char *sign) {
    *sign = '\0';
    at += 2;
    if (at < l->n && (l->source[at] == '-' || l->source[at] == '+')) *sign = l->source[at++];
    at = skip_space(l, at);
    if (!starts(l, at, "endraw")) return 0;
    at = skip_space(l, at + 6);
    char end = at < l->n && (l->source[at] == '-' || l->source[at] == '+') ? l->source[at++] : '\0';
    return starts(l, at, "%}") ? after_end(l, at + 2, end) : 0;
}

static bool lex_raw(struct lexer *l, size_t begin) {
    advance(l, begin);
    for (size_t at = begin; at + 1 < l->n; at++) {
        char sign = '\0';
        size_t end = starts(l, at, "{%") ? raw_end(l, at, &sign) : 0;
        if (!end) continue;
        if (!add_data(l, begin, data_end(l, begin, at, sign, false))) return false;
        advance(l, end);
        return true;
    }
    return lex_fail(l, "Missing end of raw directive");
}

static bool lex_comment(struct lexer *l, size_t begin) {
    advance(l, begin);
    for (size_t at = begin; at + 1 < l->n; at++) {
        if (!starts(l, at, "#}")) continue;
        char sign = at > begin && (l->source[at - 1] == '-' || l->source[at - 1] == '+')
                        ? l->source[at - 1]
                        : '\0';
        advance(l, after_end(l, at + 2, sign));
        return true;
    }
    return lex_fail(l, "Missing end of comment tag");
}

/* ---- inside a tag ---------------------------------------------------------------------------- */

static bool is_digit_in(char c, int base) {
    int v = c >= '0' && c <= '9'                     ? c - '0'
            : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                     : 99;
    return v < base;
}

/* Behind digits that single underscores may divide; `at` when there is none. */
static size_t digits(const struct lexer *l, size_t at, int base) {
    if (at >= l->n || !is_digit_in(l->source[at], base)) return at;
    while (at < l->n) {
        if (is_digit_in(l->source[at], base))
            at++;
        else if (l->source[at] == '_' && at + 1 < l->n && is_digit_in(l->source[at + 1], base))
            at += 2;
        else
            break;
    }
    return at;
}

static size_t exponent(const struct lexer *l, size_t at) {
    if (at >= l->n || (l->source[at] | 0x20) != 'e') return at;
    size_t from = at + 1;
    if (from < l->n && (l->source[from] == '+' || l->source[from] == '-')) from++;
    size_t end = digits(l, from, 10);
    return end > from ? end : at;
}

/* Without underscores, as a C string. */
static char *number_text(struct lexer *l, size_t from, size_t to) {
    char *text = job_raw(l->job, to - from + 1, 1);
    size_t n = 0;
    for (size_t i = from; text && i < to; i++)
        if (l->source[i] != '_') text[n++] = l->source[i];
    if (text) text[n] = '\0';
    return text;
}

static bool lex_float(struct lexer *l, size_t *end) {
    if (l->at && l->source[l->at - 1] == '.') return false;
    size_t whole = digits(l, l->at, 10), fraction = whole;
    if (whole == l->at) return false;
    if (whole < l->n && l->source[whole] == '.') {
        fraction = digits(l, whole + 1, 10);
        if (fraction == whole + 1) fraction = whole;
    }
    *end = exponent(l, fraction);
    return *end > whole;
}

static bool add_float(struct lexer *l, size_t end) {
    struct token *token = add_token(l, T_FLOAT, l->at, end);
    char *text = number_text(l, l->at, end);
    if (!token || !text) return false;
    double value = 0;
    if (!number_read(text, strlen(text), &value)) return lex_fail(l, "bad number");
    token->value = v_float(value);
    return true;
}

static bool add_integer(struct lexer *l) {
    int base = 10;
    size_t from = l->at, end = 0;
    if (l->source[from] == '0' && from + 1 < l->n) {
        char c = (char)(l->source[from + 1] | 0x20);
        base = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 10;
    }
    if (base != 10) {
        size_t first = from + 2 + (from + 2 < l->n && l->source[from + 2] == '_');
        end = digits(l, first, base);
        if (end == first)
            base = 10;
        else
            from = first;
    }
    if (base == 10) {
        end = digits(l, from, 10);
        if (l->source[from] == '0') /* zeros alone */
            for (end = from + 1; end < l->n; end++) {
                size_t next = end + (l->source[end] == '_');
                if (next >= l->n || l->source[next] != '0') break;
                end = next;
            }
    }
    struct token *token = add_token(l, T_INTEGER, l->at, end);
    char *text = number_text(l, from, end);
    if (!token || !text) return false;
    errno = 0;
    long long value = strtoll(text, NULL, base);
    token->value = v_int(value);
    if (errno == ERANGE) {
        if (base != 10) return lex_fail(l, "an integer beyond 64 bits, which is the limit");
        token->value = v_text(text_of(l->job, text, strlen(text), false));
        token->value.kind = is_failed(token->value) ? V_FAILED : V_BIG;
    }
    advance(l, end);
    return !is_failed(token->value);
}

static size_t name_end(const struct lexer *l, size_t at) {
    struct text rest = { .bytes = l->source, .n = l->n };
    size_t size = 0;
    while (at < l->n && is_word(char_at(&rest, at, &size)))
        at += size;
    return at;
}

static int hex_value(const char *p, const char *end, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (p + i >= end || !is_digit_in(p[i], 16)) return -1;
        *out = *out << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    }
    return n;
}

/* One escape, p behind the backslash; returns behind it, NULL after failing. */
static const char *put_escape(struct lexer *l, struct sink *out, const char *p, const char *end) {
    static const char letters[] = "\\'\"abfnrtv", codes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *found = strchr(letters, *p);
    uint32_t code = 0;
    if (*p == '\n') return p + 1;
    if (found && *p) {
        sink_put(out, &codes[found - letters], 1, false);
        return p + 1;
    }
    if (*p >= '0' && *p <= '7') {
        int n = 0;
        for (; n < 3 && p < end && *p >= '0' && *p <= '7'; n++)
            code = code * 8 + (uint32_t)(*p++ - '0');
        sink_char(out, code, false);
        return p;
    }
    int width = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (width) {
        if (hex_value(p + 1, end, width, &code) < 0) {
            lex_fail(l, "truncated \\x, \\u or \\U escape");
            return NULL;
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
            lex_fail(l, "an escape that is no Unicode character");
            return NULL;
        }
        sink_char(out, code, false);
        return p + 1 + width;
    }
    if (*p == 'N') {
        lex_fail(l, "\\N escapes are not supported");
        return NULL;
    }
    sink_put(out, "\\", 1, false);
    if ((unsigned char)*p >= 0x80) { /* jinja2 has written such a character as an escape by then */
        struct text rest = { .bytes = p, .n = (size_t)(end - p) };
        size_t size = 0;
        char text[16];
        code = char_at(&rest, 0, &size);
        snprintf(text, sizeof text,
                 code < 0x100     ? "x%02x"
                 : code < 0x10000 ? "u%04x"
                                  : "U%08x",
                 code);
        sink_word(out, text, false);
        return p + size;
    }
    return p;
}

static bool lex_string(struct lexer *l) {
    char quote = l->source[l->at];
    size_t end = l->at + 1;
    bool escaped = false;
    while (end < l->n && l->source[end] != quote) {
        escaped |= l->source[end] == '\\';
        end += l->source[end] == '\\' ? 2 : 1;
    }
    if (end >= l->n) return lex_fail(l, "a string has no end");
    struct token *token = add_token(l, T_STRING, l->at, end + 1);
    if (!token) return false;
    const char *p = l->source + l->at + 1, *stop = l->source + end;
    if (!escaped) {
        token->value = v_text(text_of(l->job, p, (size_t)(stop - p), false));
    } else {
        struct sink out = { .job = l->job };
        while (p < stop) {
            const char *next = memchr(p, '\\', (size_t)(stop - p));
            sink_put(&out, p, (size_t)((next ? next : stop) - p), false);
            if (!next) break;
            p = put_escape(l, &out, next + 1, stop);
            if (!p) return false;
        }
        token = &l->tokens[l->n_tokens - 1];
        token->value = sink_value(&out);
    }
    advance(l, end + 1);
    return !is_failed(token->value);
}

static bool lex_operator(struct lexer *l) {
    static const char *const twos[] = { "//", "**", "==", "!=", ">=", "<=" };
    size_t n = 1;
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (starts(l, l->at, twos[i])) n = 2;
    char c = l->source[l->at], words[80];
    if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c))) {
        struct text rest = { .bytes = l->source + l->at, .n = l->n - l->at };
        size_t size = 0;
        (void)char_at(&rest, 0, &size);
        snprintf(words, sizeof words, "unexpected char '%.*s'", (int)size, rest.bytes);
        return lex_fail(l, words);
    }
    if (n == 1 && strchr("([{", c)) {
        if (l->n_closing == (int)sizeof l->closing) {
            l->job->line = l->line;
            fail_limit(l->job, "brackets inside each other", sizeof l->closing);
            return false;
        }
        l->closing[l->n_closing++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (n == 1 && strchr(")]}", c)) {
        if (!l->n_closing) {
            snprintf(words, sizeof words, "unexpected '%c'", c);
            return lex_fail(l, words);
        }
        char wanted = l->closing[--l->n_closing];
        if (wanted != c) {
            snprintf(words, sizeof words, "unexpected '%c', expected '%c'", c, wanted);
            return lex_fail(l, words);
        }
    }
    if (!add_token(l, T_OPERATOR, l->at, l->at + n)) return false;
    advance(l, l->at + n);
    return true;
}

/* The end of this tag at l->at: where what follows begins, 0 when it does not end here. */
static size_t tag_end(const struct lexer *l, bool variable) {
    if (l->n_closing) return 0;
    const char *end = variable ? "}}" : "%}";
    if (starts(l, l->at, end)) return variable ? l->at + 2 : after_end(l, l->at + 2, '\0');
    if (l->source[l->at] == '-' && starts(l, l->at + 1, end)) return skip_space(l, l->at + 3);
    if (!variable && l->source[l->at] == '+' && starts(l, l->at + 1, end)) return l->at + 3;
    return 0;
}

static bool lex_tag(struct lexer *l, bool variable) {
    while (l->at < l->n) {
        size_t end = tag_end(l, variable);
        if (end) {
            if (!add_token(l, variable ? T_VARIABLE_END : T_BLOCK_END, l->at, l->at + 2))
                return false;
            advance(l, end);
            return true;
        }
        size_t space = skip_space(l, l->at);
        char c = l->source[l->at];
        bool fine = true;
        if (space > l->at) {
            advance(l, space);
        } else if (lex_float(l, &end)) {
            fine = add_float(l, end);
            advance(l, end);
        } else if (c >= '0' && c <= '9') {
            fine = add_integer(l);
        } else if ((end = name_end(l, l->at)) > l->at) {
            fine = add_token(l, T_NAME, l->at, end) != NULL;
            advance(l, end);
        } else if (c == '\'' || c == '"') {
            fine = lex_string(l);
        } else {
            fine = lex_operator(l);
        }
        if (!fine || !job_step(l->job, 1)) return false;
    }
    return true; /* the parser says what is missing */
}

/* The next tag's text before it, and the tag. */
static bool lex_root(struct lexer *l) {
    size_t at = l->at;
    while (at + 1 < l->n &&
           !(l->source[at] == '{' && strchr("{%#", l->source[at + 1]) && l->source[at + 1]))
        at++;
    if (at + 1 >= l->n) {
        bool fine = add_data(l, l->at, l->n);
        advance(l, l->n);
        return fine;
    }
    char kind = l->source[at + 1], sign = '\0';
    size_t raw = kind == '%' ? raw_begin(l, at, &sign) : 0;
    size_t begin = at + 2;
    if (!raw) sign = '\0';
    if (!raw && begin < l->n && (l->source[begin] == '-' || l->source[begin] == '+'))
        sign = l->source[begin++];
    if (!add_data(l, l->at, data_end(l, l->at, at, sign, kind == '{'))) return false;
    advance(l, at);
    if (raw) return lex_raw(l, raw);
    if (kind == '#') return lex_comment(l, begin);
    if (!add_token(l, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, at, begin)) return false;
    advance(l, begin);
    return lex_tag(l, kind == '{');
}

struct token *lex(struct job *job, const char *source, size_t n, size_t *n_tokens) {
    struct lexer l = { .job = job, .source = source, .n = n, .line = 1, .line_starting = true };
    while (l.at < l.n)
        if (!lex_root(&l)) return NULL;
    if (!add_token(&l, T_END, n, n)) return NULL;
    *n_tokens = l.n_tokens;
    return l.tokens;
}
