/* Replacing, padding and cutting lines, as Python's str does. */
#include "jinja/text.h"

static void replace_empty(struct sink *out, const struct text *t, const struct text *new,
                          int64_t count) {
    size_t size = 0;
    for (size_t i = 0; !out->job->failed; i += size) {
        if (count-- != 0)
            sink_text(out, new);
        else
            count = 0;
        if (i >= t->n) break;
        size = char_bytes(t->bytes[i]);
        sink_part(out, t, i, i + size);
    }
}

struct value text_replace(struct job *job, struct text *t, const struct text *old,
                          const struct text *new, int64_t count) {
    struct sink out = { .job = job, .safe = t->safe };
    size_t from = 0;
    if (!job_look(job, t->n)) return v_failed();
    if (!old->n) {
        replace_empty(&out, t, new, count);
        return sink_value(&out);
    }
    for (; count != 0 && !job->failed; count--) {
        ptrdiff_t at = text_find(t, old, from, t->n);
        if (at < 0) break;
        sink_part(&out, t, from, (size_t)at);
        sink_text(&out, new);
        from = (size_t)at + old->n;
    }
    if (!from) return v_text(t);
    sink_part(&out, t, from, t->n);
    return sink_value(&out);
}

static bool ends_line(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool text_ends_line(const struct text *t) {
    if (!t->n) return false;
    size_t at = t->n - 1, size = 0;
    while (((unsigned char)t->bytes[at] & 0xC0) == 0x80)
        at--;
    return ends_line(char_at(t, at, &size)) && t->bytes[at] != '\r';
}

struct list *text_lines(struct job *job, struct text *t, bool keep_ends) {
    struct list *out = list_new(job, 0);
    size_t from = 0, size = 0;
    for (size_t i = 0; out && i < t->n; i += size) {
        if (!ends_line(char_at(t, i, &size))) continue;
        if (t->bytes[i] == '\r' && i + 1 < t->n && t->bytes[i + 1] == '\n') size = 2;
        struct text *line = text_part(job, t, from, keep_ends ? i + size : i);
        if (!line || !list_add(job, out, v_text(line))) return NULL;
        from = i + size;
    }
    if (out && from < t->n && !list_add(job, out, v_text(text_part(job, t, from, t->n))))
        return NULL;
    return out;
}

struct value text_pad(struct job *job, struct text *t, int64_t width, enum pad side,
                      const struct text *fill) {
    static const struct text space = { .bytes = " ", .n = 1 };
    int64_t more = width - (int64_t)text_chars(t);
    if (more <= 0) return v_text(t);
    if ((uint64_t)more > job->limits.memory_bytes)
        return fail_limit(job, "bytes of memory", job->limits.memory_bytes);
    if (!job_look(job, (size_t)more)) return v_failed();
    /* CPython's choice where the two sides cannot be equal. */
    int64_t left = side == PAD_LEFT ? more : side == PAD_RIGHT ? 0 : more / 2 + (more & width & 1);
    struct sink out = { .job = job, .safe = t->safe };
    if (!fill) fill = &space;
    bool foreign = fill->foreign || t->foreign;
    sink_repeat(&out, fill->bytes, fill->n, (size_t)left, foreign);
    sink_text(&out, t);
    sink_repeat(&out, fill->bytes, fill->n, (size_t)(more - left), foreign);
    return sink_value(&out);
}
