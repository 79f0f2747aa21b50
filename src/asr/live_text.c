#include "asr/live_text.h"

#include "asr/answer.h"
#include "model/tokenizer_utf8.h"

#include <string.h>

/* Of asr/answer.h: a pattern of at most so many characters that comes so often is a loop. */
#define PATTERN_CHARACTERS 20
#define PATTERN_COPIES     20

static const char tag_end[] = "<asr_text>";

static bool starts_character(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static bool is_space(const char *text) {
    int n;
    return asr_is_space(utf8_decode((const unsigned char *)text, &n));
}

size_t live_text_space_before(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        size_t end = at + 1;
        while (end < n && !starts_character(text[end]))
            end++;
        if (!is_space(text + at)) break;
        at = end;
    }
    return at;
}

size_t live_text_space_after(const char *text, size_t n) {
    size_t end = n;
    while (end > 0) {
        size_t at = end - 1;
        while (at > 0 && !starts_character(text[at]))
            at--;
        if (!is_space(text + at)) break;
        end = at;
    }
    return n - end;
}

void live_text_start(struct live_text *t, bool forced) {
    *t = (struct live_text){ .has_begin = forced };
}

/* Updates the runs for raw[at]. */
static void count_runs(struct live_text *t, const char *raw, size_t at) {
    int characters = 0;
    for (size_t period = 1; period <= LIVE_TEXT_PERIOD; period++) {
        bool near = false;
        if (period <= at) {
            characters += starts_character(raw[at - period + 1]);
            near = characters <= PATTERN_CHARACTERS;
        }
        t->runs[period] = near && raw[at] == raw[at - period] ? t->runs[period] + 1 : 0;
        if (t->runs[period] >= (PATTERN_COPIES - 1) * period) t->looping = true;
    }
}

/* Looks for the end of the language tag in what is new. */
static void find_begin(struct live_text *t, const char *raw, size_t n) {
    const size_t length = sizeof tag_end - 1;
    for (size_t at = t->seen > length ? t->seen - length : 0; at + length <= n; at++)
        if (memcmp(raw + at, tag_end, length) == 0) {
            t->has_begin = true;
            t->begin = t->certain = at + length;
            return;
        }
}

static size_t longest_run(const struct live_text *t) {
    size_t longest = 0;
    for (size_t period = 1; period <= LIVE_TEXT_PERIOD; period++)
        if (t->runs[period] > longest) longest = t->runs[period];
    return longest;
}

void live_text_push(struct live_text *t, const char *raw, size_t n) {
    if (!t->has_begin) find_begin(t, raw, n);
    for (; t->seen < n; t->seen++)
        count_runs(t, raw, t->seen);
    if (!t->has_begin || t->looping) return;
    if (t->certain == t->begin) {
        t->begin += live_text_space_before(raw + t->begin, n - t->begin);
        t->certain = t->begin;
    }
    size_t run = longest_run(t), end = run < n - t->begin ? n - run : t->begin;
    while (end > t->begin && end < n && !starts_character(raw[end]))
        end--;
    end -= live_text_space_after(raw + t->begin, end - t->begin);
    if (end > t->certain) t->certain = end;
}
