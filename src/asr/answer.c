/* Answers are worked on as arrays of characters: every rule counts characters, not bytes. */
#include "asr/answer.h"

#include "base/buffer.h"
#include "base/checked.h"
#include "base/memory.h"
#include "model/tokenizer_utf8.h"

#include <string.h>
#include <utf8proc.h>

enum {
    MOST_REPEATS = 20,
    LONGEST_PATTERN = 20,
    LEAST_LOOKED_AT = 2 * MOST_REPEATS /* characters left, for a pattern to begin */
};

#define REPLACEMENT 0xfffdu

/* Characters in someone else's array. */
struct chars {
    uint32_t *c;
    size_t n;
};

/* ---- characters ---- */

/* Bytes of the character at p, which may be cut short or wrong: then *c is U+FFFD for as many bytes
 * as a right one could begin with, at least one; so is a zero byte, which no text may hold. */
static size_t next_character(const unsigned char *p, size_t left, uint32_t *c) {
    size_t n = (size_t)utf8_length(p[0]), whole = 1;
    if (n > 1 && left > 1 && utf8_second_ok(p[0], p[1]))
        for (whole = 2; whole < n && whole < left && (p[whole] & 0xc0) == 0x80;)
            whole++;
    int length;
    *c = whole == n && p[0] ? utf8_decode(p, &length) : REPLACEMENT;
    return whole;
}

static void decode(struct chars *out, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    out->n = 0;
    for (size_t at = 0; at < n;)
        at += next_character(p + at, n - at, &out->c[out->n++]);
}

static enum reel_status encode(char **out, struct chars s, const char *what,
                               struct reel_error *err) {
    unsigned char *bytes;
    enum reel_status status = mem_zeroed(&bytes, 4 * s.n + 1, 1, what, err);
    if (status != REEL_OK) return status;
    size_t at = 0;
    for (size_t i = 0; i < s.n; i++)
        at += (size_t)utf8_encode(s.c[i], bytes + at);
    *out = (char *)bytes;
    return REEL_OK;
}

bool asr_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* What Python's str.splitlines ends a line at. */
static bool ends_line(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static struct chars part(struct chars s, size_t from, size_t to) {
    return (struct chars){ s.c + from, to - from };
}

static struct chars strip(struct chars s) {
    while (s.n && asr_is_space(s.c[s.n - 1]))
        s.n--;
    size_t from = 0;
    while (from < s.n && asr_is_space(s.c[from]))
        from++;
    return part(s, from, s.n);
}

/* Whether s goes on at `at` with an ASCII text that has no capitals, in any case if told so. */
static bool matches(struct chars s, size_t at, const char *text, bool any_case) {
    size_t n = strlen(text);
    if (n > s.n - at) return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t c = s.c[at + i];
        if (any_case && c >= 'A' && c <= 'Z') c += 'a' - 'A';
        if (c != (unsigned char)text[i]) return false;
    }
    return true;
}

/* Where the text first comes; s.n when it does not. */
static size_t find(struct chars s, const char *text, bool any_case) {
    size_t at = 0;
    while (at < s.n && !matches(s, at, text, any_case))
        at++;
    return at;
}

/* ---- loops ---- */

static void collapse_characters(struct chars *s) {
    size_t out = 0;
    for (size_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && s->c[end] == s->c[i];)
            end++;
        size_t kept = end - i > MOST_REPEATS ? 1 : end - i;
        memmove(s->c + out, s->c + i, kept * sizeof *s->c);
        out += kept;
    }
    s->n = out;
}

/* Where the pattern of k characters at i stops to repeat: the first j from i on with s[j] unlike
 * s[j + k]. ends[k] is that of an earlier i, which still holds when it lies beyond i: together the
 * calls read each character once per k. */
static size_t repeats_until(struct chars s, size_t i, size_t k, size_t *ends) {
    if (ends[k] > i) return ends[k];
    size_t j = i;
    while (j + k < s.n && s.c[j] == s.c[j + k])
        j++;
    return ends[k] = j;
}

/* Characters from i on that are one pattern again and again; *k is its length. 0: none. */
static size_t loop_at(struct chars s, size_t i, size_t *ends, size_t *k) {
    for (*k = 1; *k <= LONGEST_PATTERN; ++*k) {
        size_t same = repeats_until(s, i, *k, ends) - i;
        if (same >= (MOST_REPEATS - 1) * *k) return (same / *k + 1) * *k;
    }
    return 0;
}

static void collapse_patterns(struct chars *s) {
    size_t ends[LONGEST_PATTERN + 1] = { 0 }, i = 0, out = 0, k;
    while (i + LEAST_LOOKED_AT <= s->n) {
        size_t loop = loop_at(*s, i, ends, &k), kept = loop ? k : 1;
        memmove(s->c + out, s->c + i, kept * sizeof *s->c);
        out += kept;
        i += loop ? loop : 1;
    }
    memmove(s->c + out, s->c + i, (s->n - i) * sizeof *s->c);
    s->n -= i - out;
}

/* ---- the language ---- */

static const char language_word[] = "language ";

/* Capital and lower case, character by character. */
static void normalise(struct chars name) {
    for (size_t i = 0; i < name.n; i++) {
        utf8proc_int32_t c = (utf8proc_int32_t)name.c[i];
        name.c[i] = (uint32_t)(i == 0 ? utf8proc_toupper(c) : utf8proc_tolower(c));
    }
}

/* The name in the first line of what stands before the transcript that begins with "language ". */
static struct chars language_of(struct chars before) {
    const struct chars none = { before.c, 0 };
    if (find(before, "language none", true) < before.n) return none;
    for (size_t i = 0, end; i < before.n; i = end + 1) {
        for (end = i; end < before.n && !ends_line(before.c[end]);)
            end++;
        struct chars line = strip(part(before, i, end));
        if (!matches(line, 0, language_word, true)) continue;
        struct chars name = strip(part(line, strlen(language_word), line.n));
        normalise(name);
        return name;
    }
    return none;
}

/* ---- answers ---- */

enum reel_status asr_answer_read(struct asr_answer *a, const char *raw, size_t n,
                                 const char *language, struct reel_error *err) {
    static const char tag[] = "<asr_text>";
    struct chars all = { 0 };
    *a = (struct asr_answer){ 0 };
    enum reel_status status = mem_zeroed(&all.c, n, sizeof *all.c, "an answer", err);
    if (status != REEL_OK) return status;
    decode(&all, raw, n);
    struct chars text = strip(all), name = part(text, 0, 0);
    collapse_characters(&text);
    collapse_patterns(&text);
    size_t tag_at = language ? text.n : find(text, tag, false);
    if (tag_at < text.n) {
        name = language_of(part(text, 0, tag_at));
        text = part(text, tag_at + strlen(tag), text.n);
    }
    text = strip(text); /* a loop that is gone may leave a space */
    status = encode(&a->text, text, "a transcript", err);
    if (status == REEL_OK && language)
        status = mem_text(&a->language, language, strlen(language), "a language", err);
    else if (status == REEL_OK)
        status = encode(&a->language, name, "a language", err);
    mem_free(all.c);
    return status;
}

void asr_answer_release(struct asr_answer *a) {
    mem_free(a->text);
    mem_free(a->language);
    *a = (struct asr_answer){ 0 };
}

enum reel_status asr_answer_languages(char **out, const char *const *languages, int n,
                                      struct reel_error *err) {
    struct buffer all = { 0 };
    const char *last = "";
    enum reel_status status = buffer_text(&all, "", err);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        if (!*languages[i] || strcmp(languages[i], last) == 0) continue;
        last = languages[i];
        if (all.size) status = buffer_text(&all, ",", err);
        if (status == REEL_OK) status = buffer_text(&all, last, err);
    }
    *out = status == REEL_OK ? buffer_detach(&all, NULL) : NULL;
    buffer_release(&all);
    return status;
}
