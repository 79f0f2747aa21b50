/* Making, cutting, finding and comparing marked texts, and the sink that writes them. */
#include "jinja/text.h"

#include <stdlib.h>

struct growth {
    char *bytes;
    uint8_t *marks;
    size_t used, cap;
};

enum { GROW_FROM = 256 }; /* shorter texts are copied when they are joined */

struct text *text_of(struct job *job, const char *bytes, size_t n, bool foreign) {
    struct text *t = job_raw(job, 1, sizeof *t);
    if (!t) return NULL;
    *t = (struct text){ .bytes = bytes, .n = n, .foreign = foreign && n > 0, .n_chars = -1 };
    return t;
}

struct text *text_copy(struct job *job, const char *bytes, size_t n, bool foreign) {
    char *copy = job_raw(job, n + 1, 1);
    if (!copy) return NULL;
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    return text_of(job, copy, n, foreign);
}

static bool any_foreign(const uint8_t *marks, size_t n) { return n && memchr(marks, 1, n); }

bool part_foreign(const struct text *t, size_t from, size_t to) {
    return t->foreign && (!t->marks || any_foreign(t->marks + from, to - from));
}

struct text *text_part(struct job *job, const struct text *t, size_t from, size_t to) {
    struct text *part = text_of(job, t->bytes + from, to - from, t->foreign);
    if (!part) return NULL;
    if (t->marks) {
        part->marks = t->marks + from;
        part->foreign = any_foreign(part->marks, part->n);
    }
    if (t->n_chars == (ptrdiff_t)t->n) part->n_chars = (ptrdiff_t)part->n; /* all ASCII */
    return part;
}

static void copy_marks(uint8_t *out, const struct text *t) {
    if (t->marks)
        memcpy(out, t->marks, t->n);
    else
        memset(out, t->foreign, t->n);
}

/* A block with room for more behind the two texts, so that a text that a loop lengthens piece by
 * piece is not copied each time. */
static struct growth *grow_block(struct job *job, const struct text *a, size_t n, bool mixed) {
    struct growth *g = job_take(job, 1, sizeof *g);
    if (!g) return NULL;
    g->cap = n < GROW_FROM ? n : n * 2;
    g->bytes = job_raw(job, g->cap, 1);
    if (!g->bytes) return NULL;
    memcpy(g->bytes, a->bytes, a->n);
    g->used = a->n;
    if (!mixed) return g;
    g->marks = job_raw(job, g->cap, 1);
    if (!g->marks) return NULL;
    copy_marks(g->marks, a);
    return g;
}

struct text *text_join(struct job *job, struct text *a, const struct text *b) {
    if (!a->n || !b->n) return a->n ? a : text_part(job, b, 0, b->n);
    size_t n = a->n + b->n; /* both lie in memory: no overflow */
    bool mixed = a->marks || b->marks || a->foreign != b->foreign;
    struct growth *g = a->growth;
    bool fits = g && g->bytes + g->used == a->bytes + a->n && g->cap - g->used >= b->n &&
                (g->marks || !mixed);
    if (!fits) g = grow_block(job, a, n, mixed);
    if (!g || !job_look(job, b->n)) return NULL;
    size_t from = g->used - a->n;
    memcpy(g->bytes + g->used, b->bytes, b->n);
    if (g->marks) copy_marks(g->marks + g->used, b);
    g->used += b->n;
    struct text *t = text_of(job, g->bytes + from, n, a->foreign || b->foreign);
    if (!t) return NULL;
    t->marks = g->marks ? g->marks + from : NULL;
    t->growth = g;
    if (a->n_chars >= 0 && b->n_chars >= 0) t->n_chars = a->n_chars + b->n_chars;
    return t;
}

size_t char_bytes(char first) {
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

uint32_t char_at(const struct text *t, size_t offset, size_t *n_bytes) {
    const unsigned char *p = (const unsigned char *)t->bytes + offset;
    size_t n = char_bytes((char)*p);
    *n_bytes = n;
    if (n == 1) return p[0];
    uint32_t code = p[0] & (n == 2 ? 0x1Fu : n == 3 ? 0x0Fu : 0x07u);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3Fu);
    return code;
}

static size_t count_chars(const char *bytes, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return chars;
}

size_t text_chars(struct text *t) {
    if (t->n_chars < 0) t->n_chars = (ptrdiff_t)count_chars(t->bytes, t->n);
    return (size_t)t->n_chars;
}

size_t text_offset(struct text *t, size_t index) {
    if (index >= text_chars(t)) return t->n;
    if (text_chars(t) == t->n) return index;
    size_t offset = 0;
    while (index--)
        offset += char_bytes(t->bytes[offset]);
    return offset;
}

size_t text_index(const struct text *t, size_t offset) {
    if (t->n_chars == (ptrdiff_t)t->n) return offset;
    return count_chars(t->bytes, offset);
}

uint32_t text_hash(struct text *t) {
    if (t->hash) return t->hash;
    uint64_t h = 0xcbf29ce484222325u ^ t->n;
    for (size_t i = 0; i < t->n; i++)
        h = (h ^ (unsigned char)t->bytes[i]) * 0x100000001b3u;
    uint32_t hash = (uint32_t)(h ^ h >> 32);
    t->hash = hash ? hash : 1;
    return t->hash;
}

bool texts_equal(const struct text *a, const struct text *b) {
    return a->n == b->n && (a->bytes == b->bytes || !memcmp(a->bytes, b->bytes, a->n));
}

int texts_order(const struct text *a, const struct text *b) {
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order) return order;
    return a->n < b->n ? -1 : a->n > b->n;
}

/* ---- the sink -------------------------------------------------------------------------------- */

/* Room for n more bytes. */
static bool sink_reserve(struct sink *s, size_t n) {
    if (s->job->failed) return false;
    if (s->limit && n > s->limit - s->n) {
        fail_limit(s->job, "bytes of output", s->limit);
        return false;
    }
    if (s->cap - s->n >= n) return true;
    if (n > s->job->limits.memory_bytes) {
        fail_limit(s->job, "bytes of memory", s->job->limits.memory_bytes);
        return false;
    }
    size_t cap = s->cap ? s->cap * 2 : 64;
    if (cap < s->n + n) cap = s->n + n;
    if (!s->marks && arena_extend(s->job->arena, s->bytes, s->cap, cap)) {
        s->cap = cap;
        return true;
    }
    char *bytes = job_raw(s->job, cap, 1);
    uint8_t *marks = s->marks ? job_raw(s->job, cap, 1) : NULL;
    if (!bytes || (s->marks && !marks)) return false;
    if (s->n) memcpy(bytes, s->bytes, s->n);
    if (marks) memcpy(marks, s->marks, s->n);
    s->bytes = bytes;
    s->marks = marks;
    s->cap = cap;
    return true;
}

/* From now on each byte has a mark of its own. */
static bool sink_mix(struct sink *s) {
    if (s->marks) return true;
    s->marks = job_raw(s->job, s->cap, 1);
    if (!s->marks) return false;
    memset(s->marks, s->foreign, s->n);
    return true;
}

void sink_put(struct sink *s, const char *bytes, size_t n, bool foreign) {
    if (!n || !sink_reserve(s, n)) return;
    if (!s->n && !s->marks) s->foreign = foreign;
    if (s->foreign != foreign && !s->marks && !sink_mix(s)) return;
    if (s->marks) memset(s->marks + s->n, foreign, n);
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

void sink_part(struct sink *s, const struct text *t, size_t from, size_t to) {
    if (to <= from) return;
    if (!t->marks) {
        sink_put(s, t->bytes + from, to - from, t->foreign);
        return;
    }
    if (!sink_reserve(s, to - from) || !sink_mix(s)) return;
    memcpy(s->marks + s->n, t->marks + from, to - from);
    memcpy(s->bytes + s->n, t->bytes + from, to - from);
    s->n += to - from;
}

void sink_text(struct sink *s, const struct text *t) { sink_part(s, t, 0, t->n); }

void sink_fill(struct sink *s, char c, size_t n, bool foreign) {
    if (!n || !sink_reserve(s, n)) return;
    if (!s->n && !s->marks) s->foreign = foreign;
    if (s->foreign != foreign && !s->marks && !sink_mix(s)) return;
    if (s->marks) memset(s->marks + s->n, foreign, n);
    memset(s->bytes + s->n, c, n);
    s->n += n;
}

void sink_repeat(struct sink *s, const char *bytes, size_t n, size_t times, bool foreign) {
    if (n == 1) {
        sink_fill(s, *bytes, times, foreign);
        return;
    }
    for (size_t i = 0; i < times && !s->job->failed; i++)
        sink_put(s, bytes, n, foreign);
}

void sink_own_to_foreign(struct sink *s, size_t from) {
    if (s->job->failed || from >= s->n || (!s->marks && s->foreign) || !sink_mix(s)) return;
    memset(s->marks + from, 1, s->n - from);
}

size_t utf8_write(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)(first[n] | code);
    return n;
}

void sink_char(struct sink *s, uint32_t code, bool foreign) {
    char bytes[4];
    sink_put(s, bytes, utf8_write(code, bytes), foreign);
}

struct value sink_value(struct sink *s) {
    if (s->job->failed) return v_failed();
    struct text *t = text_of(s->job, s->bytes ? s->bytes : "", s->n, s->foreign);
    if (!t) return v_failed();
    t->safe = s->safe;
    t->marks = s->marks;
    if (t->marks) t->foreign = any_foreign(t->marks, t->n);
    return v_text(t);
}

bool utf8_valid(const char *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes, *end = p + n;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        size_t size = *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
        if (!size || (size_t)(end - p) < size) return false;
        for (size_t i = 1; i < size; i++)
            if ((p[i] & 0xC0) != 0x80) return false;
        bool bad = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
                   (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F);
        if (bad) return false;
        p += size;
    }
    return true;
}
