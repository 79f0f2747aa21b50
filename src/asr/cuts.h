/* Where long recordings are cut, and which parts of them are silent. Samples are mono at 16,000 Hz.
 */
#ifndef REEL_ASR_CUTS_H
#define REEL_ASR_CUTS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CUT_RATE = 16000,
    CUT_SEARCH = 5 * CUT_RATE,
    CUT_WINDOW = CUT_RATE / 10,   /* what has to be quiet around it */
    SILENCE_BLOCK = CUT_RATE / 50 /* 20 ms: what the silence gate judges at once */
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

/* Tells silence from sound by its energy, in blocks of 20 ms, while samples come.
 *
 * Sound begins with two blocks in a row that lie 12 dB above the background and over -55 dB of full
 * scale; it ends after 300 ms of blocks that lie less than 8 dB above the background or under
 * -60 dB. The background follows a quieter block at once and a louder one by 1 dB a second: a fan
 * that is switched on is background after a while, and so is a tone that is held as long. It begins
 * at -50 dB, so at first what lies under -38 dB is silence, and never falls under -67 dB. A DC
 * offset counts as nothing: a block's energy is taken about its mean.
 *
 * This is a gate for what need not be transcribed, not a detector of speech. */
struct silence_gate {
    double background; /* dB of full scale */
    double sum, squares;
    int n_block; /* samples of the block that is under way */
    int n_loud;  /* loud blocks in a row */
    int n_quiet; /* quiet blocks in a row */
    bool sound;
};

void silence_gate_start(struct silence_gate *g);

/* Takes samples up to the end of the block in which silence turns into sound or back, or all n;
 * returns how many. g->sound then tells what the next ones are taken for. */
size_t silence_gate_push(struct silence_gate *g, const float *samples, size_t n);

/* Samples since the last loud block, whole blocks only: what could be dropped or cut in. */
size_t silence_gate_quiet(const struct silence_gate *g);

#endif
