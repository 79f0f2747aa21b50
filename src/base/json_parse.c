/* json_read: text to a jansson tree. jansson's own parser is not used because it forgets to check
 * its string buffer: out of memory it drops characters or aborts (2.14, strbuffer_append_byte in
 * load.c), while its constructors report what they could not allocate. */
#include "base/buffer.h"
#include "base/json.h"
#include "base/memory.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 512,
    MAX_NUMBER = 128 /* characters; a double needs 24 */
};

struct parser {
    const char *name; /* the file, in messages */
    const unsigned char *begin, *at, *end;
    struct buffer text; /* the string being read */
    int depth;
    bool lenient; /* \u0000 is allowed in values */
    bool reals;   /* every number is read as a double */
    struct reel_error *err;
};

static enum reel_status value(struct parser *p, json_t **out);

/* ---- messages -------------------------------------------------------------------------------- */

static enum reel_status wrong(const struct parser *p, const unsigned char *where,
                              const char *what) {
    int line = 1, column = 1;
    for (const unsigned char *c = p->begin; c < where; c++) {
        column = *c == '\n' ? 1 : column + ((*c & 0xc0) != 0x80);
        line += *c == '\n';
    }
    return err_set(p->err, REEL_E_FORMAT, "%s: not valid JSON: line %d, column %d: %s", p->name,
                   line, column, what);
}

static enum reel_status no_memory(const struct parser *p) {
    return err_memory(p->err, p->name, (size_t)(p->end - p->begin));
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at c, or 0 when it is not one (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *c, const unsigned char *end) {
    size_t n = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : *c < 0xf5 ? 4 : 0;
    if (n == 0 || (size_t)(end - c) < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    bool bad = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) ||
               (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f);
    return bad ? 0 : n;
}

static size_t utf8_write(uint32_t c, char out[4]) {
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* Four hexadecimal digits at p->at, or -1. */
static int32_t hex4(struct parser *p) {
    int32_t x = 0;
    if (p->end - p->at < 4) return -1;
    for (int i = 0; i < 4; i++, p->at++) {
        int c = *p->at;
        int lower = c | 0x20;
        if (c >= '0' && c <= '9')
            x = x * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            x = x * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return x;
}

/* After "\u". */
static enum reel_status unicode_escape(struct parser *p) {
    const unsigned char *where = p->at;
    int32_t c = hex4(p);
    if (c < 0) return wrong(p, where, "four hexadecimal digits expected");
    if (c == 0 && !p->lenient) return wrong(p, where, "\\u0000 is not allowed");
    if (c >= 0xd800 && c < 0xdc00) {
        int32_t low = -1;
        if (p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u') {
            p->at += 2;
            low = hex4(p);
        }
        if (low < 0xdc00 || low > 0xdfff) return wrong(p, where, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return wrong(p, where, "half of a surrogate pair");
    }
    char bytes[4];
    return buffer_append(&p->text, bytes, utf8_write((uint32_t)c, bytes), p->err);
}

/* After the backslash. */
static enum reel_status escape(struct parser *p) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end) return wrong(p, p->at, "the string does not end");
    int c = *p->at++;
    if (c == 'u') return unicode_escape(p);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known) return wrong(p, p->at - 1, "unknown escape");
    return buffer_append(&p->text, to + (known - from), 1, p->err);
}

/* Fills p->text, from the opening quote on. */
static enum reel_status string(struct parser *p) {
    p->text.size = 0;
    p->at++;
    enum reel_status status = buffer_append(&p->text, "", 0, p->err);
    while (status == REEL_OK) {
        const unsigned char *run = p->at;
        while (p->at < p->end && *p->at >= 0x20 && *p->at != '"' && *p->at != '\\') {
            size_t n = utf8_length(p->at, p->end);
            if (n == 0) return wrong(p, p->at, "not UTF-8");
            p->at += n;
        }
        status = buffer_append(&p->text, run, (size_t)(p->at - run), p->err);
        if (status != REEL_OK) break;
        if (p->at == p->end) return wrong(p, p->at, "the string does not end");
        int c = *p->at;
        if (c < 0x20) return wrong(p, p->at, "a control character inside a string");
        p->at++;
        if (c == '"') break;
        status = escape(p);
    }
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool digit(const struct parser *p) {
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static bool digits(struct parser *p) {
    if (!digit(p)) return false;
    while (digit(p))
        p->at++;
    return true;
}

/* Moves over a number; *is_real when it has a fraction or an exponent. */
static bool scan_number(struct parser *p, bool *is_real) {
    *is_real = false;
    if (*p->at == '-') p->at++;
    if (p->at < p->end && *p->at == '0')
        p->at++;
    else if (!digits(p))
        return false;
    if (p->at < p->end && *p->at == '.') {
        *is_real = true;
        p->at++;
        if (!digits(p)) return false;
    }
    if (p->at < p->end && (*p->at | 0x20) == 'e') {
        *is_real = true;
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
        if (!digits(p)) return false;
    }
    return true;
}

/* strtod reads the locale's decimal point, JSON writes a dot. */
static double to_real(const char *number) {
    char local[2 * MAX_NUMBER];
    const char *dot = strchr(number, '.');
    const char *point = localeconv()->decimal_point;
    size_t before = dot ? (size_t)(dot - number) : strlen(number);
    memcpy(local, number, before);
    local[before] = '\0';
    if (dot && strlen(point) < 8) {
        strcat(local, point);
        strcat(local, dot + 1);
    }
    return strtod(local, NULL);
}

static enum reel_status number(struct parser *p, json_t **out) {
    const unsigned char *start = p->at;
    bool is_real = false;
    if (!scan_number(p, &is_real)) return wrong(p, p->at, "a digit expected");
    char copy[MAX_NUMBER + 1];
    size_t n = (size_t)(p->at - start);
    if (n > MAX_NUMBER) return wrong(p, start, "a number of more than 128 characters");
    memcpy(copy, start, n);
    copy[n] = '\0';
    errno = 0;
    const long long integer = is_real || p->reals ? 0 : strtoll(copy, NULL, 10);
    /* Tokenizer files say "no limit" with 1000000000000000019884624838656, 1e30 as Python prints
     * it. */
    if (is_real || p->reals || errno == ERANGE) {
        double x = to_real(copy);
        if (!isfinite(x)) return wrong(p, start, "number overflow: too large for a double");
        *out = json_real(x);
    } else {
        *out = json_integer(integer);
    }
    return *out ? REEL_OK : no_memory(p);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int peek(struct parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
    return p->at < p->end ? *p->at : -1;
}

static enum reel_status word(struct parser *p, const char *text, json_t *made, json_t **out) {
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return wrong(p, p->at, "a value expected");
    p->at += n;
    *out = made;
    return REEL_OK;
}

static enum reel_status array(struct parser *p, json_t *list) {
    p->at++;
    if (peek(p) == ']') {
        p->at++;
        return REEL_OK;
    }
    for (;;) {
        json_t *item = NULL;
        enum reel_status status = value(p, &item);
        if (status != REEL_OK) return status;
        if (json_array_append_new(list, item) != 0) return no_memory(p);
        int c = peek(p);
        if (c != ',' && c != ']') return wrong(p, p->at, "',' or ']' expected");
        p->at++;
        if (c == ']') return REEL_OK;
    }
}

/* One key and its value, from the key's quote on. */
static enum reel_status member(struct parser *p, json_t *object) {
    const unsigned char *where = p->at;
    enum reel_status status = string(p);
    if (status != REEL_OK) return status;
    if (strlen(p->text.bytes) != p->text.size) return wrong(p, where, "a key with \\u0000");
    if (json_object_get(object, p->text.bytes)) {
        char what[100];
        snprintf(what, sizeof what, "duplicate key \"%.60s\"", p->text.bytes);
        return wrong(p, where, what);
    }
    size_t n = p->text.size;
    char *key = buffer_detach(&p->text, NULL); /* the value reads strings of its own */
    json_t *item = NULL;
    if (peek(p) != ':')
        status = wrong(p, p->at, "':' expected");
    else
        p->at++;
    if (status == REEL_OK) status = value(p, &item);
    if (status == REEL_OK && json_object_set_new_nocheck(object, key, item) != 0)
        status = no_memory(p);
    if (!p->text.bytes)
        p->text = (struct buffer){ .bytes = key, .capacity = n + 1 };
    else
        mem_free(key);
    return status;
}

static enum reel_status members(struct parser *p, json_t *object) {
    p->at++;
    if (peek(p) == '}') {
        p->at++;
        return REEL_OK;
    }
    for (;;) {
        if (peek(p) != '"') return wrong(p, p->at, "a key in quotes expected");
        enum reel_status status = member(p, object);
        if (status != REEL_OK) return status;
        int c = peek(p);
        if (c != ',' && c != '}') return wrong(p, p->at, "',' or '}' expected");
        p->at++;
        if (c == '}') return REEL_OK;
    }
}

static enum reel_status container(struct parser *p, json_t **out) {
    if (++p->depth > MAX_DEPTH) return wrong(p, p->at, "nested more than 512 deep");
    bool is_object = *p->at == '{';
    *out = is_object ? json_object() : json_array();
    if (!*out) return no_memory(p);
    enum reel_status status = is_object ? members(p, *out) : array(p, *out);
    p->depth--;
    return status;
}

/* *out is the caller's to release, also after a failure. */
static enum reel_status any_value(struct parser *p, json_t **out) {
    int c = peek(p);
    if (c == '{' || c == '[') return container(p, out);
    if (c == 't') return word(p, "true", json_true(), out);
    if (c == 'f') return word(p, "false", json_false(), out);
    if (c == 'n') return word(p, "null", json_null(), out);
    if (c == '-' || (c >= '0' && c <= '9')) return number(p, out);
    if (c != '"') return wrong(p, p->at, c < 0 ? "the text ends early" : "a value expected");
    enum reel_status status = string(p);
    if (status != REEL_OK) return status;
    *out = json_stringn_nocheck(p->text.bytes, p->text.size);
    return *out ? REEL_OK : no_memory(p);
}

static enum reel_status value(struct parser *p, json_t **out) {
    *out = NULL;
    enum reel_status status = any_value(p, out);
    if (status == REEL_OK) return REEL_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

static enum reel_status whole(struct parser *p, json_t **out) {
    enum reel_status status = value(p, out);
    if (status == REEL_OK && peek(p) != -1) {
        status = wrong(p, p->at, "the end of the text expected");
        json_decref(*out);
        *out = NULL;
    }
    buffer_release(&p->text);
    return status;
}

enum reel_status json_read(json_t **out, const char *name, const void *bytes, size_t n,
                           struct reel_error *err) {
    const unsigned char *text = bytes;
    return whole(
        &(struct parser){ .name = name, .begin = text, .at = text, .end = text + n, .err = err },
        out);
}

enum reel_status json_read_request(json_t **out, const char *name, const void *bytes, size_t n,
                                   struct reel_error *err) {
    const unsigned char *text = bytes;
    return whole(
        &(struct parser){
            .name = name, .begin = text, .at = text, .end = text + n, .lenient = true, .err = err },
        out);
}

enum reel_status json_read_lenient(json_t **out, const char *name, const void *bytes, size_t n,
                                   struct reel_error *err) {
    const unsigned char *text = bytes;
    return whole(&(struct parser){ .name = name,
                                   .begin = text,
                                   .at = text,
                                   .end = text + n,
                                   .lenient = true,
                                   .reals = true,
                                   .err = err },
                 out);
}
