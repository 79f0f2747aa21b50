/* What of a growing answer can be shown at once: text that stays, whatever comes after it.
 *
 * The final text (asr/answer.h) has lost the language tag in front, white space at both ends, and
 * all but one copy of what came twenty times in a row. So the tag is waited for, trailing white
 * space is held back, and so is whatever repeats what stands up to 20 characters before it: in
 * plain text a few characters, until they turn out to be new; of a real loop, everything after its
 * first copy.
 *
 * Text already shown can differ from the final text in one case only: where more than 20 of one
 * character, once collapsed, make copies of what stands around them. */
#ifndef REEL_ASR_LIVE_TEXT_H
#define REEL_ASR_LIVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define LIVE_TEXT_PERIOD 80 /* bytes: 20 characters */

struct live_text {
    size_t begin; /* of the transcript in the raw text, once has_begin */
    size_t seen;  /* bytes of the raw text looked at */
    bool has_begin;
    bool looping;   /* a loop that the final text will not have: nothing is certain any more */
    size_t certain; /* end of what may be shown */
    size_t runs[LIVE_TEXT_PERIOD + 1]; /* of each period: bytes that repeat it, up to the end */
};

/* forced: the language was given, so the answer has no tag. */
void live_text_start(struct live_text *t, bool forced);

/* raw: the answer so far, n bytes of whole UTF-8 characters, beginning with what earlier calls saw.
 * Afterwards raw[begin, certain) may be shown, when has_begin. */
void live_text_push(struct live_text *t, const char *raw, size_t n);

/* Bytes of white space at the beginning or the end of a text. */
size_t live_text_space_before(const char *text, size_t n);
size_t live_text_space_after(const char *text, size_t n);

#endif
