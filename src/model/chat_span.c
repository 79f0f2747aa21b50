#include "model/chat_span.h"

#include <string.h>

struct span span_of(const char *text) {
    return (struct span){ text ? text : "", text ? strlen(text) : 0 };
}

static void drop(struct span *s, size_t n) {
    s->at += n;
    s->n -= n;
}

struct span span_strip_first_lines(struct span s) {
    while (s.n && *s.at == '\n')
        drop(&s, 1);
    return s;
}

struct span span_strip_lines(struct span s) {
    s = span_strip_first_lines(s);
    while (s.n && s.at[s.n - 1] == '\n')
        s.n--;
    return s;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void span_skip_blanks(struct span *s) {
    while (s->n && is_blank(*s->at))
        drop(s, 1);
}

struct span span_without_blanks(struct span s) {
    span_skip_blanks(&s);
    while (s.n && is_blank(s.at[s.n - 1]))
        s.n--;
    return s;
}

static const char *find(struct span s, const char *word, size_t n) {
    for (const char *p = s.at, *end = s.at + s.n; (size_t)(end - p) >= n; p++) {
        p = memchr(p, *word, (size_t)(end - p));
        if (!p || (size_t)(end - p) < n) return NULL;
        if (memcmp(p, word, n) == 0) return p;
    }
    return NULL;
}

const char *span_find(struct span s, const char *word) { return find(s, word, strlen(word)); }

const char *span_find_last(struct span s, const char *word) {
    size_t n = strlen(word);
    for (size_t i = s.n; i >= n; i--)
        if (memcmp(s.at + i - n, word, n) == 0) return s.at + i - n;
    return NULL;
}

bool span_take(struct span *s, const char *word) {
    size_t n = strlen(word);
    if (s->n < n || memcmp(s->at, word, n) != 0) return false;
    drop(s, n);
    return true;
}

bool span_take_loose(struct span *s, struct span word) {
    struct span rest = *s;
    word = span_without_blanks(word);
    while (word.n) {
        span_skip_blanks(&rest);
        span_skip_blanks(&word);
        if (!rest.n || *rest.at != *word.at) return false;
        while (word.n && !is_blank(*word.at) && rest.n && *rest.at == *word.at) {
            drop(&rest, 1);
            drop(&word, 1);
        }
        if (word.n && rest.n && !is_blank(*word.at) && !is_blank(*rest.at)) return false;
        if (word.n && !rest.n) return false;
    }
    *s = rest;
    return true;
}

const char *span_find_loose(struct span s, struct span word) {
    word = span_without_blanks(word);
    size_t first = 0;
    while (first < word.n && !is_blank(word.at[first]))
        first++;
    while (first > 0) {
        const char *at = find(s, word.at, first);
        if (!at) return NULL;
        struct span rest = { at, (size_t)(s.at + s.n - at) };
        if (span_take_loose(&rest, word)) return at;
        s = (struct span){ at + 1, (size_t)(s.at + s.n - at - 1) };
    }
    return NULL;
}

size_t span_object_bytes(struct span s) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{') {
            depth++;
        } else if (c == '}' && --depth == 0) {
            return i + 1;
        }
        if (depth == 0) return 0;
    }
    return 0;
}
