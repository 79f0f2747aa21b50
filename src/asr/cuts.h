/* Where long recordings are cut. Samples are mono at 16,000 Hz. */
#ifndef REEL_ASR_CUTS_H
#define REEL_ASR_CUTS_H

#include <stddef.h>

enum {
    CUT_RATE = 16000,
    CUT_SEARCH = 5 * CUT_RATE,
    CUT_WINDOW = CUT_RATE / 10 /* what has to be quiet around it */
};

/* Samples to either side of a limit in which a cut is looked for: CUT_SEARCH, but of limits under
 * 10 s half, so that no piece is shorter than that. */
size_t cut_search(size_t limit);

/* Samples of the first piece of a recording that is longer than `limit` (at least 1): n > limit are
 * there, and with n >= limit + CUT_SEARCH more of them change nothing. The cut is the sample
 * nearest to zero within the quietest 100 ms (least sum of absolute values, the earliest of equals)
 * of the 5 s before and after the limit, as Qwen3-ASR's published programs cut
 * (qwen_asr/inference/utils.py: split_audio_into_chunks).
 *
 * Cutting what is left again and again, until it is no longer than the limit, gives pieces that
 * make up the recording exactly. */
size_t cut_find(const float *samples, size_t n, size_t limit);

/* Where n samples, at least CUT_WINDOW, are quietest, as above. */
size_t cut_quietest(const float *samples, size_t n);

#endif
