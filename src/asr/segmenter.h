/* Where the segments of a recording begin and end: one place for the rules, whether a recording is
 * transcribed afterwards or while it is spoken. Samples go through it in order; the caller holds
 * those from `begin` on, for cuts are looked for in them.
 *
 * What is quiet and what is silent, says asr/silence.h. Sound and pauses come in turn:
 *
 *   a segment begins   0.3 s before sound does
 *   it ends            in a pause of rules.pause; behind half of limit - search a shorter one will
 *                      do, and behind limit - search one of 0.3 s
 *   or, without one    where cut_find says, once it has limit + search samples
 *   it keeps           half a second of a pause that has lasted a second, and of a shorter one up
 *                      to where that is quietest
 *   between two        what is silent is in no segment. What is only quiet, as a noise over -45 dB
 *                      is or a distant voice beside a near one, is a segment of its own where it
 *                      is longer than half a second: nothing that may be speech is left out
 *
 * Segments are in order and do not overlap. The same samples give the same segments however they
 * are pushed. */
#ifndef REEL_ASR_SEGMENTER_H
#define REEL_ASR_SEGMENTER_H

#include "asr/cuts.h"
#include "asr/silence.h"

#include <stdint.h>

struct segmenter_rules {
    size_t limit;      /* samples, at least a second */
    size_t pause;      /* samples, at least SEGMENTER_PAUSE_LEAST: one that ends a short segment */
    bool skip_silence; /* the gate is strict: what it does not call sound is in no segment */
};

enum { SEGMENTER_PAUSE_LEAST = CUT_RATE * 3 / 10 };

enum segmenter_end {
    SEGMENTER_RUNS = 0,
    SEGMENTER_PAUSE, /* the reasons to end */
    SEGMENTER_SOUND, /* comes: what lay before it is a segment of its own */
    SEGMENTER_LIMIT
};

/* Read-only outside segmenter.c. Positions are samples of the recording. */
struct segmenter {
    struct segmenter_rules rules;
    size_t search;
    struct silence_gate gate;
    uint64_t at;    /* samples taken */
    uint64_t begin; /* of the running segment; in a pause, of what one may begin with */
    bool sounding;  /* sound came, and no pause that ended the segment */
    size_t pause;   /* samples of the pause that does */
    enum segmenter_end end;
};

void segmenter_start(struct segmenter *s, const struct segmenter_rules *rules);

/* Samples that a segment never has more than. */
size_t segmenter_most(size_t limit);

/* Takes samples until sound begins or a segment has to end, or all n; returns how many. */
size_t segmenter_push(struct segmenter *s, const float *samples, size_t n);

/* After a push. held: the samples [begin, at). The length of the segment that ends, which begins
 * with them; 0 when none does. Afterwards `begin` is behind it, and behind what was silent. */
size_t segmenter_take(struct segmenter *s, const float *held);

/* The recording ends; otherwise as segmenter_take, and to be called until it returns 0. */
size_t segmenter_finish(struct segmenter *s, const float *held);

/* Whether a segment runs that has sound in it. */
static inline bool segmenter_sounds(const struct segmenter *s) { return s->sounding; }

/* Samples of the running segment that it keeps unless the limit cuts it: not those of a pause that
 * may end it. */
size_t segmenter_sure(const struct segmenter *s);

/* Whether the limit cuts behind all of the running segment, as long as it is now. */
bool segmenter_before_cuts(const struct segmenter *s);

#endif
