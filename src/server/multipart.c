#define _GNU_SOURCE /* memmem */
#include "server/multipart.h"

#include <string.h>
#include <strings.h>

/* ---- headers with parameters: Content-Type, Content-Disposition ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* RFC 9110's tokens: names of headers and parameters, values without quotes. */
static bool is_token(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* What is left of a header's value. */
struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && is_blank(*c->at))
        c->at++;
}

static size_t take_token(struct cursor *c, const char **token) {
    *token = c->at;
    while (c->at < c->end && is_token(*c->at))
        c->at++;
    return (size_t)(c->at - *token);
}

static bool same_word(const char *text, size_t n, const char *word) {
    return n == strlen(word) && strncasecmp(text, word, n) == 0;
}

/* One parameter. A value in quotes is given with its quotes. */
struct parameter {
    const char *name, *value;
    size_t n_name, n_value;
};

static bool take_quoted(struct cursor *c, struct parameter *p) {
    p->value = c->at++;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\' && c->at + 1 < c->end) c->at++;
        c->at++;
    }
    if (c->at >= c->end) return false;
    c->at++;
    p->n_value = (size_t)(c->at - p->value);
    return true;
}

/* The next of "; name=value"; *more is false at the end of the header. False: it is neither. */
static bool take_parameter(struct cursor *c, struct parameter *p, bool *more) {
    skip_blanks(c);
    *more = c->at < c->end;
    if (!*more) return true;
    if (*c->at++ != ';') return false;
    skip_blanks(c);
    if (c->at == c->end) { /* a semicolon at the end */
        *more = false;
        return true;
    }
    p->n_name = take_token(c, &p->name);
    if (p->n_name == 0 || c->at == c->end || *c->at != '=') return false;
    c->at++;
    if (c->at < c->end && *c->at == '"') return take_quoted(c, p);
    p->value = c->at;
    /* Some programs write boundaries with ':' or '/' without the quotes that those need. */
    while (c->at < c->end && *c->at != ';' && !is_blank(*c->at) && *c->at != '"')
        c->at++;
    p->n_value = (size_t)(c->at - p->value);
    return p->n_value > 0;
}

/* The value without its quotes, into out[cap]; false when it is longer: out has its begin then. */
static bool copy_value(const struct parameter *p, char *out, size_t cap) {
    const bool quoted = p->n_value >= 2 && p->value[0] == '"';
    const char *at = p->value + quoted, *end = p->value + p->n_value - quoted;
    size_t n = 0;
    for (; at < end && n + 1 < cap; at++) {
        /* Browsers and httpx write %22 for a quote; curl writes a backslash before it. Elsewhere a
         * backslash is itself: old browsers sent C:\folder\name. */
        if (quoted && *at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\')) at++;
        out[n++] = *at;
    }
    /* No half of a UTF-8 character at the cut. */
    if (at < end)
        while (n > 0 && ((unsigned char)out[n - 1] & 0x80)) {
            n--;
            if (((unsigned char)out[n] & 0xc0) == 0xc0) break;
        }
    out[n] = '\0';
    return at >= end;
}

/* ---- the boundary ---- */

bool multipart_is_form(const char *content_type) {
    static const char form[] = "multipart/form-data";
    const size_t n = sizeof form - 1;
    return content_type && strncasecmp(content_type, form, n) == 0 &&
           (content_type[n] == '\0' || content_type[n] == ';' || is_blank(content_type[n]));
}

static bool boundary_ok(const char *boundary, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char c = boundary[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              strchr("'()+_,-./:=? ", c)))
            return false;
    }
    return n > 0 && boundary[n - 1] != ' ';
}

/* boundary has room for one byte more than is allowed, and the end. */
static enum reel_status read_boundary(const char *content_type,
                                      char boundary[MULTIPART_MOST_BOUNDARY + 2],
                                      struct reel_error *err) {
    struct cursor c = { content_type, content_type + strlen(content_type) };
    struct parameter p = { 0 };
    const char *type;
    bool more = true, found = false;
    take_token(&c, &type);
    c.at += strlen("/form-data"); /* multipart_is_form has seen it */
    while (more) {
        if (!take_parameter(&c, &p, &more))
            return err_set(err, REEL_E_ARGUMENT, "Content-Type \"%.200s\" cannot be read",
                           content_type);
        if (!more || !same_word(p.name, p.n_name, "boundary")) continue;
        if (found)
            return err_set(err, REEL_E_ARGUMENT, "Content-Type \"%.200s\" has two boundaries",
                           content_type);
        found = true;
        if (!copy_value(&p, boundary, MULTIPART_MOST_BOUNDARY + 2) ||
            strlen(boundary) > MULTIPART_MOST_BOUNDARY)
            return err_set(err, REEL_E_LIMIT, "the boundary in Content-Type is longer than %d",
                           MULTIPART_MOST_BOUNDARY);
        if (!boundary_ok(boundary, strlen(boundary)))
            return err_set(err, REEL_E_ARGUMENT,
                           "the boundary in Content-Type \"%.200s\" has characters that are not "
                           "allowed there",
                           content_type);
    }
    if (found) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "Content-Type \"%.200s\" names no boundary", content_type);
}

/* ---- a part's headers ---- */

/* Which headers a part had. */
struct headers {
    bool disposition, type;
};

static enum reel_status read_disposition(struct multipart_part *part, struct cursor c, int index,
                                         struct reel_error *err) {
    struct parameter p = { 0 };
    const char *kind;
    bool more = true, named = false;
    const size_t n_kind = take_token(&c, &kind);
    if (!same_word(kind, n_kind, "form-data"))
        return err_set(err, REEL_E_ARGUMENT,
                       "part %d: Content-Disposition is \"%.*s\"; it has to be form-data", index,
                       n_kind > 60 ? 60 : (int)n_kind, kind);
    while (more) {
        if (!take_parameter(&c, &p, &more))
            return err_set(err, REEL_E_ARGUMENT, "part %d: Content-Disposition cannot be read",
                           index);
        if (!more) break;
        const bool is_name = same_word(p.name, p.n_name, "name");
        const bool is_filename = same_word(p.name, p.n_name, "filename");
        if ((is_name && named) || (is_filename && part->is_file))
            return err_set(err, REEL_E_ARGUMENT, "part %d: Content-Disposition has two of %s",
                           index, is_name ? "name" : "filename");
        if (is_name && !copy_value(&p, part->name, sizeof part->name))
            return err_set(err, REEL_E_LIMIT, "part %d: the field's name is longer than %zu bytes",
                           index, sizeof part->name - 1);
        if (is_filename) copy_value(&p, part->filename, sizeof part->filename);
        named |= is_name;
        part->is_file |= is_filename;
        /* filename*, which requests sends for names beyond ASCII: no name is needed of it. */
        if (same_word(p.name, p.n_name, "filename*") && !part->filename[0]) part->is_file = true;
    }
    if (named && part->name[0]) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "part %d: Content-Disposition has no name", index);
}

static enum reel_status read_header(struct multipart_part *part, struct headers *seen,
                                    const char *line, size_t n, int index, struct reel_error *err) {
    struct cursor c = { line, line + n };
    const char *name;
    const size_t n_name = take_token(&c, &name);
    if (n_name == 0 || c.at == c.end || *c.at != ':')
        return err_set(err, REEL_E_ARGUMENT, "part %d: a header line has no name and colon", index);
    c.at++;
    skip_blanks(&c);
    while (c.end > c.at && is_blank(c.end[-1]))
        c.end--;
    for (const char *p = c.at; p < c.end; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
            return err_set(err, REEL_E_ARGUMENT, "part %d: a header has control characters", index);
    const bool disposition = same_word(name, n_name, "Content-Disposition");
    const bool type = same_word(name, n_name, "Content-Type");
    if ((disposition && seen->disposition) || (type && seen->type))
        return err_set(err, REEL_E_ARGUMENT, "part %d has two of one header", index);
    seen->disposition |= disposition;
    seen->type |= type;
    if (disposition) return read_disposition(part, c, index, err);
    const size_t n_value = (size_t)(c.end - c.at);
    if (type) {
        const size_t kept = n_value < sizeof part->type ? n_value : sizeof part->type - 1;
        memcpy(part->type, c.at, kept);
        part->type[kept] = '\0';
    }
    if (same_word(name, n_name, "Content-Transfer-Encoding") &&
        !same_word(c.at, n_value, "binary") && !same_word(c.at, n_value, "8bit") &&
        !same_word(c.at, n_value, "7bit"))
        return err_set(err, REEL_E_ARGUMENT,
                       "part %d: Content-Transfer-Encoding is \"%.*s\"; its bytes have to come as "
                       "they are",
                       index, n_value > 60 ? 60 : (int)n_value, c.at);
    return REEL_OK;
}

/* *taken: bytes of the headers, with the empty line behind them. */
static enum reel_status read_headers(struct multipart_part *part, const char *bytes, size_t n,
                                     int index, size_t *taken, struct reel_error *err) {
    const size_t most = n < MULTIPART_MOST_HEADERS ? n : MULTIPART_MOST_HEADERS;
    struct headers seen = { 0 };
    size_t at = 0;
    while (true) {
        const char *end = memmem(bytes + at, most - at, "\r\n", 2);
        if (!end && most < n)
            return err_set(err, REEL_E_LIMIT, "part %d: its headers are longer than %d bytes",
                           index, MULTIPART_MOST_HEADERS);
        if (!end)
            return err_set(err, REEL_E_ARGUMENT, "part %d: the body ends inside its headers",
                           index);
        const size_t n_line = (size_t)(end - (bytes + at));
        if (n_line == 0) {
            *taken = at + 2;
            break;
        }
        enum reel_status status = read_header(part, &seen, bytes + at, n_line, index, err);
        if (status != REEL_OK) return status;
        at += n_line + 2;
    }
    if (seen.disposition) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "part %d has no Content-Disposition", index);
}

/* ---- the body ---- */

/* What follows a boundary: the line's end, or "--" and the end of the body. */
static enum reel_status after_boundary(const char *bytes, size_t n, size_t *at, bool *last,
                                       struct reel_error *err) {
    *last = n - *at >= 2 && memcmp(bytes + *at, "--", 2) == 0;
    if (*last) {
        *at += 2;
        if (*at == n || (n - *at == 2 && memcmp(bytes + *at, "\r\n", 2) == 0)) return REEL_OK;
        return err_set(err, REEL_E_ARGUMENT, "%zu bytes behind the last boundary of the form",
                       n - *at);
    }
    while (*at < n && is_blank(bytes[*at]))
        ++*at;
    if (n - *at >= 2 && memcmp(bytes + *at, "\r\n", 2) == 0) {
        *at += 2;
        return REEL_OK;
    }
    return err_set(err, REEL_E_ARGUMENT,
                   *at == n ? "the form ends behind a boundary: its end is missing"
                            : "a boundary of the form is not followed by the end of its line");
}

enum reel_status multipart_read(struct multipart *m, const char *content_type, const void *body,
                                size_t n, struct reel_error *err) {
    char delimiter[4 + MULTIPART_MOST_BOUNDARY + 2] = "\r\n--";
    const char *bytes = body;
    *m = (struct multipart){ 0 };
    if (!multipart_is_form(content_type))
        return err_set(err, REEL_E_ARGUMENT,
                       "Content-Type is \"%.100s\"; it has to be multipart/form-data",
                       content_type ? content_type : "");
    enum reel_status status = read_boundary(content_type, delimiter + 4, err);
    if (status != REEL_OK) return status;
    const size_t n_delimiter = strlen(delimiter);
    size_t at = n >= 2 && memcmp(bytes, "\r\n", 2) == 0 ? 2 : 0;
    if (n - at < n_delimiter - 2 || memcmp(bytes + at, delimiter + 2, n_delimiter - 2) != 0)
        return err_set(err, REEL_E_ARGUMENT, "the form does not begin with its boundary \"--%s\"",
                       delimiter + 4);
    at += n_delimiter - 2;
    for (bool last = false;;) {
        status = after_boundary(bytes, n, &at, &last, err);
        if (status != REEL_OK || last) return status;
        if (m->n_parts == MULTIPART_MOST_PARTS)
            return err_set(err, REEL_E_LIMIT, "more than %d parts in the form",
                           MULTIPART_MOST_PARTS);
        struct multipart_part *part = &m->parts[m->n_parts];
        size_t taken = 0;
        status = read_headers(part, bytes + at, n - at, m->n_parts + 1, &taken, err);
        if (status != REEL_OK) return status;
        at += taken;
        /* An empty part's boundary begins with the line's end that ended its headers. */
        const char *end = memmem(bytes + at - 2, n - at + 2, delimiter, n_delimiter);
        if (!end)
            return err_set(err, REEL_E_ARGUMENT, "part %d (\"%s\"): no boundary ends it",
                           m->n_parts + 1, part->name);
        part->bytes = bytes + at;
        part->n_bytes = end < bytes + at ? 0 : (size_t)(end - (bytes + at));
        at = (size_t)(end - bytes) + n_delimiter;
        m->n_parts++;
    }
}
