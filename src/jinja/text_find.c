/* Finding a text in a text, in time that grows with the sum of their lengths: a template chooses
 * both, and comparing at each place would take the product. */
#include "jinja/text.h"

/* Up to here comparing at each place is fast enough. */
enum { SHORT = 16 };

/* Bytes from the first on (step 1) or from the last back (step -1). */
struct reading {
    const unsigned char *at;
    ptrdiff_t step, n;
};

static struct reading read_bytes(const char *bytes, size_t n, bool back) {
    const unsigned char *at = (const unsigned char *)bytes;
    return (struct reading){ back ? at + n - 1 : at, back ? -1 : 1, (ptrdiff_t)n };
}

static unsigned byte_of(const struct reading *r, ptrdiff_t i) { return r->at[i * r->step]; }

/* The place before the largest suffix by the order of bytes, or by the opposite order, and that
 * suffix' period. */
static ptrdiff_t largest_suffix(const struct reading *part, bool opposite, ptrdiff_t *period) {
    ptrdiff_t before = -1, j = 0, k = 1;
    *period = 1;
    while (j + k < part->n) {
        unsigned a = byte_of(part, j + k), b = byte_of(part, before + k);
        if (a == b && k != *period) {
            k++;
        } else if (a == b) {
            j += *period;
            k = 1;
        } else if (opposite ? a > b : a < b) {
            j += k;
            k = 1;
            *period = j - before;
        } else {
            before = j++;
            k = *period = 1;
        }
    }
    return before;
}

/* Crochemore and Perrin, Two-way string-matching, J. ACM 38 (1991): the part is cut in two behind
 * `cut`; the right half is compared forwards, then the left half backwards. A part that repeats
 * itself with its period moves by the period, and what is then known to be equal is `known`. */
static ptrdiff_t two_way(const struct reading *t, const struct reading *part) {
    ptrdiff_t period = 0, other = 0, known = -1;
    ptrdiff_t cut = largest_suffix(part, false, &period);
    ptrdiff_t cut_other = largest_suffix(part, true, &other);
    if (cut_other >= cut) {
        cut = cut_other;
        period = other;
    }
    bool repeats = true;
    for (ptrdiff_t i = 0; repeats && i <= cut; i++)
        repeats = i + period < part->n && byte_of(part, i) == byte_of(part, i + period);
    if (!repeats) period = (cut + 1 > part->n - cut - 1 ? cut + 1 : part->n - cut - 1) + 1;
    for (ptrdiff_t at = 0; at <= t->n - part->n;) {
        ptrdiff_t i = (cut > known ? cut : known) + 1;
        while (i < part->n && byte_of(part, i) == byte_of(t, i + at))
            i++;
        if (i < part->n) {
            at += i - cut;
            known = -1;
            continue;
        }
        i = cut;
        while (i > known && byte_of(part, i) == byte_of(t, i + at))
            i--;
        if (i <= known) return at;
        at += period;
        if (repeats) known = part->n - period - 1;
    }
    return -1;
}

ptrdiff_t text_find(const struct text *t, const struct text *part, size_t from, size_t to) {
    if (!part->n) return (ptrdiff_t)from;
    if (part->n > SHORT && to - from >= part->n) {
        struct reading whole = read_bytes(t->bytes + from, to - from, false);
        struct reading its = read_bytes(part->bytes, part->n, false);
        ptrdiff_t at = two_way(&whole, &its);
        return at < 0 ? -1 : (ptrdiff_t)from + at;
    }
    while (to - from >= part->n) {
        const char *hit = memchr(t->bytes + from, part->bytes[0], to - from - part->n + 1);
        if (!hit) return -1;
        if (!memcmp(hit, part->bytes, part->n)) return hit - t->bytes;
        from = (size_t)(hit - t->bytes) + 1;
    }
    return -1;
}

ptrdiff_t text_find_last(const struct text *t, const struct text *part, size_t from, size_t to) {
    if (to - from < part->n) return -1;
    if (part->n > SHORT) {
        struct reading whole = read_bytes(t->bytes + from, to - from, true);
        struct reading its = read_bytes(part->bytes, part->n, true);
        ptrdiff_t at = two_way(&whole, &its);
        return at < 0 ? -1 : (ptrdiff_t)(to - part->n) - at;
    }
    for (size_t at = to - part->n + 1; at-- > from;)
        if (!memcmp(t->bytes + at, part->bytes, part->n)) return (ptrdiff_t)at;
    return -1;
}
