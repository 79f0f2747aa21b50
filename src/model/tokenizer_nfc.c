/* Normalising only where something can change.
 *
 * A stretch is one character that composition leaves alone and the characters after it that it may
 * not leave alone. Stretches do not touch each other, nearly all are one character long, and only
 * the others are looked at. Which characters those are is asked of the reference's tables, so that
 * a character newer than its Unicode stays as it is; what becomes of them is asked of utf8proc.
 */
#include "model/tokenizer_nfc.h"

#include "base/memory.h"
#include "model/tokenizer_unicode.h"
#include "model/tokenizer_utf8.h"

#include <string.h>
#include <utf8proc.h>

void nfc_scratch_release(struct nfc_scratch *scratch) {
    buffer_release(&scratch->text);
    mem_free(scratch->code_points);
    *scratch = (struct nfc_scratch){ 0 };
}

/* 0 also for a mark that the reference does not know yet. */
static int combining_class(struct unicode_memo *memo, int32_t c) {
    if (!(unicode_classes(memo, (uint32_t)c) & UC_COMBINING)) return 0;
    return (int)utf8proc_get_property(c)->combining_class;
}

/* Whether a stretch is its own NFC for certain: nothing unstable, classes in order. */
static bool settled(const unsigned char *p, const unsigned char *end) {
    struct unicode_memo memo = { 0 };
    int before = 0, n;
    for (; p < end; p += n) {
        uint32_t c = utf8_decode(p, &n);
        if (unicode_classes(&memo, c) & UC_UNSTABLE) return false;
        int now = combining_class(&memo, (int32_t)c);
        if (now && now < before) return false;
        before = now;
    }
    return true;
}

/* Room for n code points after two decompositions: none gives more than 4. */
static enum reel_status reserve(struct nfc_scratch *scratch, size_t n, struct reel_error *err) {
    size_t wanted = n < 64 ? 128 : 2 * n;
    if (wanted <= scratch->capacity) return REEL_OK;
    mem_free(scratch->code_points);
    scratch->capacity = 0;
    scratch->code_points = mem_alloc(wanted * sizeof(int32_t));
    if (!scratch->code_points) return err_memory(err, "normalising", wanted * sizeof(int32_t));
    scratch->capacity = wanted;
    return REEL_OK;
}

/* Sorts a run of marks by combining class, keeping equals in order: a count per class, because a
 * hostile run may be the whole text. `spare` has room for n. */
static void order_marks(int32_t *marks, size_t n, int32_t *spare) {
    size_t start[257] = { 0 };
    struct unicode_memo memo = { 0 };
    for (size_t i = 0; i < n; i++)
        start[combining_class(&memo, marks[i]) + 1]++;
    for (int i = 1; i < 257; i++)
        start[i] += start[i - 1];
    memcpy(spare, marks, n * sizeof *marks);
    for (size_t i = 0; i < n; i++)
        marks[start[combining_class(&memo, spare[i])]++] = spare[i];
}

static void canonical_order(int32_t *c, size_t n, int32_t *spare) {
    struct unicode_memo memo = { 0 };
    for (size_t i = 0; i < n;) {
        size_t first = i;
        while (i < n && combining_class(&memo, c[i]))
            i++;
        if (i - first > 1) order_marks(c + first, i - first, spare);
        if (i == first) i++;
    }
}

static enum reel_status append_code_points(struct buffer *out, const int32_t *c, size_t n,
                                           struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < n; i++) {
        unsigned char bytes[4];
        int length = utf8_encode((uint32_t)c[i], bytes);
        status = buffer_append(out, bytes, (size_t)length, err);
    }
    return status;
}

static enum reel_status append_composed(struct nfc_scratch *scratch, const unsigned char *p,
                                        const unsigned char *end, struct reel_error *err) {
    enum reel_status status = reserve(scratch, 4 * (size_t)(end - p), err);
    if (status != REEL_OK) return status;
    int32_t *c = scratch->code_points, *spare = c + scratch->capacity / 2;
    size_t n = 0;
    for (int length; p < end; p += length) {
        int unused = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char((int32_t)utf8_decode(p, &length), c + n, 4,
                                                        UTF8PROC_DECOMPOSE, &unused);
        if (made > 0 && made <= 4) n += (size_t)made;
    }
    canonical_order(c, n, spare);
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return append_code_points(&scratch->text, c, composed < 0 ? n : (size_t)composed, err);
}

/* Finds the next stretch that is not settled, from *p on: [*p, returned). NULL when there is none.
 */
static const unsigned char *next_unsettled(const unsigned char **p, const unsigned char *end,
                                           struct unicode_memo *memo) {
    const unsigned char *start = *p, *q = *p;
    bool quiet = true; /* every character since start is left alone */
    while (q < end) {
        int n = 1;
        bool alone = *q < 0x80 ||
                     !(unicode_classes(memo, utf8_decode(q, &n)) & (UC_COMBINING | UC_UNSTABLE));
        if (alone) {
            if (!quiet && !settled(start, q)) break;
            start = q;
        }
        quiet = alone;
        q += n;
    }
    if (q == end && (quiet || settled(start, q))) return NULL;
    *p = start;
    return q;
}

enum reel_status nfc_text(struct nfc_scratch *scratch, const char **text, size_t *n,
                          struct reel_error *err) {
    const unsigned char *copied = (const unsigned char *)*text, *end = copied + *n;
    const unsigned char *from = copied, *to;
    struct unicode_memo memo = { 0 };
    enum reel_status status = REEL_OK;
    scratch->text.size = 0;
    while (status == REEL_OK && (to = next_unsettled(&from, end, &memo))) {
        status = buffer_append(&scratch->text, copied, (size_t)(from - copied), err);
        if (status == REEL_OK) status = append_composed(scratch, from, to, err);
        copied = from = to;
    }
    if (status != REEL_OK || copied == (const unsigned char *)*text) return status;
    status = buffer_append(&scratch->text, copied, (size_t)(end - copied), err);
    *text = scratch->text.bytes;
    *n = scratch->text.size;
    return status;
}
