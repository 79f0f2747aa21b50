/* Everything below json_span_open walks text that json_read_lenient has accepted as whole, valid
 * JSON, so the walkers need no error paths for malformed input, and no recursion. */
#include "model/chat_json.h"

#include "base/decimal.h"
#include "base/json.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

enum reel_status json_span_open(struct json_span *out, const char *what, const char *text,
                                struct reel_error *err) {
    size_t n = strlen(text);
    json_t *value = NULL;
    struct reel_error why;
    enum reel_status status = json_read_lenient(&value, what, text, n, &why);
    if (status == REEL_E_FORMAT) return err_set(err, REEL_E_ARGUMENT, "%s", why.text);
    if (status != REEL_OK) return err_memory(err, what, n);
    json_decref(value);
    while (n && is_space(text[n - 1]))
        n--;
    while (n && is_space(*text))
        text++, n--;
    *out = (struct json_span){ text, n };
    return REEL_OK;
}

char json_span_kind(struct json_span value) {
    char c = *value.at;
    return c == '-' || isdigit((unsigned char)c) ? '0' : c;
}

/* Bytes of the string token at p, quotes included. */
static size_t string_bytes(const char *p) {
    size_t n = 1;
    while (p[n] != '"')
        n += p[n] == '\\' ? 2 : 1;
    return n + 1;
}

/* Bytes of the value at p; it ends at or before end. */
static size_t value_bytes(const char *p, const char *end) {
    const char *start = p;
    int depth = 0;
    while (p < end) {
        if (*p == '"') {
            p += string_bytes(p);
        } else if (*p == '[' || *p == '{') {
            depth++;
            p++;
        } else if (*p == ']' || *p == '}') {
            if (depth == 0) break; /* the enclosing value ends: a number or a word stood here */
            depth--;
            p++;
        } else if (depth == 0 && (*p == ',' || is_space(*p))) {
            break;
        } else {
            p++;
            continue; /* the middle of a number or a word, or anything inside brackets */
        }
        if (depth == 0) break;
    }
    return (size_t)(p - start);
}

static size_t skip(struct json_span in, size_t at, char separator) {
    while (at < in.n_bytes && (is_space(in.at[at]) || in.at[at] == separator))
        at++;
    return at;
}

bool json_span_next(struct json_span list, size_t *cursor, struct json_span *item) {
    size_t at = skip(list, *cursor ? *cursor : 1, ',');
    if (at + 1 >= list.n_bytes) return false;
    *item = (struct json_span){ list.at + at, value_bytes(list.at + at, list.at + list.n_bytes) };
    *cursor = at + item->n_bytes;
    return true;
}

static unsigned hex4(const char *p) {
    char digits[5] = { p[0], p[1], p[2], p[3], '\0' };
    return (unsigned)strtoul(digits, NULL, 16);
}

static size_t put_utf8(unsigned code, char *out) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
    return n;
}

/* Decodes what stands at *p inside a string: one byte, or the 1 to 4 bytes an escape means. */
static size_t decode(const char **p, char out[4]) {
    if (**p != '\\') {
        out[0] = *(*p)++;
        return 1;
    }
    static const char letters[] = "bfnrt", means[] = "\b\f\n\r\t";
    char c = (*p)[1];
    if (c != 'u') {
        const char *letter = strchr(letters, c);
        out[0] = letter ? means[letter - letters] : c;
        *p += 2;
        return 1;
    }
    unsigned code = hex4(*p + 2);
    *p += 6;
    if (code >= 0xd800 && code < 0xdc00) { /* jansson accepted the pair as a whole */
        code = 0x10000 + ((code - 0xd800) << 10) + (hex4(*p + 2) - 0xdc00);
        *p += 6;
    }
    return put_utf8(code, out);
}

bool json_span_is(struct json_span string, const char *text) {
    const char *p = string.at + 1, *end = string.at + string.n_bytes - 1;
    while (p < end) {
        char c[4];
        size_t n = decode(&p, c);
        if (strncmp(text, c, n) != 0 || c[0] == '\0') return false;
        text += n;
    }
    return *text == '\0';
}

bool json_span_next_member(struct json_span object, size_t *cursor, struct json_span *key,
                           struct json_span *value) {
    size_t at = skip(object, *cursor ? *cursor : 1, ',');
    if (at + 1 >= object.n_bytes) return false;
    *key = (struct json_span){ object.at + at, string_bytes(object.at + at) };
    at = skip(object, at + key->n_bytes, ':');
    *value = (struct json_span){ object.at + at,
                                 value_bytes(object.at + at, object.at + object.n_bytes) };
    *cursor = at + value->n_bytes;
    return true;
}

bool json_span_member(struct json_span object, const char *key, struct json_span *value) {
    struct json_span name;
    size_t cursor = 0;
    while (json_span_next_member(object, &cursor, &name, value))
        if (json_span_is(name, key)) return true;
    return false;
}

/* Python's repr: plain from 1e-4 to below 1e16, always with a fraction or an exponent. */
static enum reel_status write_real(struct buffer *out, double value, struct reel_error *err) {
    char digits[18];
    int exponent = 0;
    const char *sign = signbit(value) ? "-" : "";
    if (value == 0) return buffer_printf(out, err, "%s0.0", sign);
    int n = (int)decimal_shortest(fabs(value), digits, &exponent);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (exponent < -4 || exponent >= 16)
        return buffer_printf(out, err, "%s%c%s%.*se%c%02d", sign, digits[0], n > 1 ? "." : "",
                             n - 1, digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0)
        return buffer_printf(out, err, "%s0.%.*s%.*s", sign, -exponent - 1, "000", n, digits);
    if (n <= exponent + 1)
        return buffer_printf(out, err, "%s%.*s%.*s.0", sign, n, digits, exponent + 1 - n,
                             "0000000000000000");
    return buffer_printf(out, err, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static bool is_real(struct json_span number) {
    for (size_t i = 0; i < number.n_bytes; i++)
        if (strchr(".eE", number.at[i])) return true;
    return false;
}

static enum reel_status read_real(struct json_span number, double *out, struct reel_error *err) {
    json_t *value = NULL;
    enum reel_status status = json_read_lenient(&value, "a number", number.at, number.n_bytes, err);
    if (status != REEL_OK) return status;
    *out = json_number_value(value);
    json_decref(value);
    return REEL_OK;
}

static enum reel_status write_number(struct buffer *out, struct json_span number,
                                     struct reel_error *err) {
    if (!is_real(number)) {
        bool minus_zero = number.n_bytes == 2 && memcmp(number.at, "-0", 2) == 0;
        if (minus_zero) return buffer_text(out, "0", err);
        return buffer_append(out, number.at, number.n_bytes, err);
    }
    double value = 0;
    enum reel_status status = read_real(number, &value, err);
    if (status != REEL_OK) return status;
    return write_real(out, value, err);
}

/* One character inside a JSON string: control characters, quotes and backslashes are escaped,
 * nothing else, DEL included. */
static enum reel_status write_character(struct buffer *out, const char *c, size_t n,
                                        struct reel_error *err) {
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = *c ? strchr(special, *c) : NULL;
    if (found) return buffer_printf(out, err, "\\%c", letters[found - special]);
    if (n == 1 && (unsigned char)*c < 0x20) return buffer_printf(out, err, "\\u%04x", (unsigned)*c);
    return buffer_append(out, c, n, err);
}

static enum reel_status write_string(struct buffer *out, struct json_span string,
                                     struct reel_error *err) {
    const char *p = string.at + 1, *end = string.at + string.n_bytes - 1;
    enum reel_status status = buffer_text(out, "\"", err);
    while (status == REEL_OK && p < end) {
        char c[4];
        size_t n = decode(&p, c);
        status = write_character(out, c, n, err);
    }
    return status == REEL_OK ? buffer_text(out, "\"", err) : status;
}

enum reel_status json_text_write(struct buffer *out, const char *text, size_t n,
                                 struct reel_error *err) {
    enum reel_status status = buffer_text(out, "\"", err);
    for (size_t i = 0; status == REEL_OK && i < n; i++)
        status = write_character(out, text + i, 1, err);
    return status == REEL_OK ? buffer_text(out, "\"", err) : status;
}

enum reel_status json_span_text(struct buffer *out, struct json_span value,
                                struct reel_error *err) {
    const char *p = value.at + 1, *end = value.at + value.n_bytes - 1;
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && p < end) {
        char c[4];
        size_t n = decode(&p, c);
        status = buffer_append(out, c, n, err);
    }
    return status;
}

enum reel_status json_span_write(struct buffer *out, struct json_span value,
                                 struct reel_error *err) {
    const char *p = value.at, *end = value.at + value.n_bytes;
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && p < end) {
        struct json_span token = { p, 1 };
        if (*p == '"') {
            token.n_bytes = string_bytes(p);
            status = write_string(out, token, err);
        } else if (*p == ',' || *p == ':') {
            status = buffer_text(out, *p == ',' ? ", " : ": ", err);
        } else if (strchr("[]{}", *p)) {
            status = buffer_append(out, p, 1, err);
        } else if (!is_space(*p)) {
            while (p + token.n_bytes < end && !strchr(" \t\r\n,:]}", p[token.n_bytes]))
                token.n_bytes++;
            status = json_span_kind(token) == '0'
                         ? write_number(out, token, err)
                         : buffer_append(out, token.at, token.n_bytes, err);
        }
        p += token.n_bytes;
    }
    return status;
}
