/* What a speech model answers: language NAME<asr_text>TRANSCRIPT. Read as the published programs of
 * Qwen3-ASR read it (qwen_asr/inference/utils.py: detect_and_fix_repetitions, parse_asr_output). */
#ifndef REEL_ASR_ANSWER_H
#define REEL_ASR_ANSWER_H

#include "base/error.h"

#include <stdint.h>

/* Both are UTF-8, never NULL after success, and may be empty. */
struct asr_answer {
    char *text;     /* the transcript, without white space around it */
    char *language; /* "English"; empty when unknown or nothing was said */
};

/* raw: n bytes as detokenised, without control tokens; zero bytes and what is no UTF-8 become
 * U+FFFD. language: the one that was demanded in the prompt, so that the whole answer is
 * transcript; or NULL. *a is the caller's to release, also after a failure.
 *
 * A model that has lost its way repeats itself until it runs out of tokens. So first a character
 * that comes more than 20 times in a row is left once; then 1 to 20 characters that come at least
 * 20 times in a row are left once (the shortest such pattern, from the left). One exception is the
 * published program's own: the last 39 characters are not looked at for a pattern to begin in. */
enum reel_status asr_answer_read(struct asr_answer *a, const char *raw, size_t n,
                                 const char *language, struct reel_error *err);
void asr_answer_release(struct asr_answer *a);

/* White space at the ends of a text: what Python's str.strip takes away. */
bool asr_is_space(uint32_t c);

/* *out (the caller's to free) is the languages of n segments joined by commas, without empty ones
 * and without repeating the one before: "Chinese,English". */
enum reel_status asr_answer_languages(char **out, const char *const *languages, int n,
                                      struct reel_error *err);

#endif
