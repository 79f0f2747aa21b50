/* Cutting by an expression: whatever compiles cuts a text as trying it at every place does. The
 * first byte chooses behaviour, inversion and whether bytes are characters; the expression ends at
 * a NUL, and the text follows, of which what is not UTF-8 is left out. */
#include "model/tokenizer_split.h"
#include "model/tokenizer_utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_TEXT 2000

/* The end of the part at `at`: a match, or what lies before the next one. */
static const unsigned char *part_end(const struct split_stage *stage, const unsigned char *at,
                                     const unsigned char *end) {
    size_t n = regex_match(stage->re, at, end, stage->bytes);
    if (n) return at + n;
    do
        at += stage->bytes ? 1 : utf8_length(*at);
    while (at < end && regex_match(stage->re, at, end, stage->bytes) == 0);
    return at;
}

static void cut(const struct split_plan *plan, const char *text, size_t n) {
    const struct split_stage *stage = &plan->stages[0];
    const unsigned char *at = (const unsigned char *)text, *end = at + n, *word;
    struct splitter s;
    splitter_start(&s, plan, text, n);
    for (size_t length; (length = splitter_next(&s, &word)) > 0;) {
        if (word < at || length > (size_t)(end - word)) abort();
        if (stage->behaviour != SPLIT_REMOVED && word != at) abort();
        if (stage->behaviour == SPLIT_ISOLATED && word + length != part_end(stage, at, end))
            abort();
        at = word + length;
    }
    if (stage->behaviour != SPLIT_REMOVED && at != end) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const enum split_behaviour behaviours[] = { SPLIT_ISOLATED, SPLIT_REMOVED,
                                                       SPLIT_CONTIGUOUS, SPLIT_WITH_PREVIOUS,
                                                       SPLIT_WITH_NEXT };
    const uint8_t *nul = n > 1 ? memchr(data + 1, 0, n - 1) : NULL;
    struct buffer text = { 0 };
    struct split_plan plan;
    struct reel_error err = { 0 };
    if (!nul) return 0;
    const char *regex = (const char *)data + 1, *rest = (const char *)nul + 1;
    size_t n_rest = n - (size_t)(nul + 1 - data);
    if (n_rest > MAX_TEXT) n_rest = MAX_TEXT;
    n_rest = utf8_valid_prefix(rest, n_rest);
    if ((data[0] & 0x10 &&
         split_add(&text, SPLIT_BYTES, SPLIT_ISOLATED, false, "", NULL) != REEL_OK) ||
        split_add(&text, SPLIT_REGEX, behaviours[(data[0] & 15) % 5], data[0] & 0x20, regex,
                  NULL) != REEL_OK)
        abort();
    enum reel_status status = split_plan_open(&plan, text.bytes, text.size, "fuzz", &err);
    if (status == REEL_OK)
        cut(&plan, rest, n_rest);
    else if (!strstr(err.text, "fuzz"))
        abort();
    split_plan_release(&plan);
    buffer_release(&text);
    return 0;
}
