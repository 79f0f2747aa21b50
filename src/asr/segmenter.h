/* Where the segments of a recording begin and end: one place for the rules, whether a recording is
 * transcribed afterwards or while it is spoken. Samples go through it in order; the caller holds
 * those from `begin` on, for cuts are looked for in them.
 *
 *   limit          a segment that has limit + search samples is cut where cut_find says
 *   at_pauses      and before that within the first pause (300 ms that the silence gate takes for
 *                  quiet) that lies behind limit - search, where it is quietest
 *   skip_silence   after 2 s without sound it ends half a second behind the sound; the next begins
 *                  0.3 s before sound comes again. Until sound comes there is none, and one in
 * which no sound came is none.
 *
 * Segments are in order and do not overlap; without skip_silence they make up the recording. The
 * same samples give the same segments however they are pushed. */
#ifndef REEL_ASR_SEGMENTER_H
#define REEL_ASR_SEGMENTER_H

#include "asr/cuts.h"

#include <stdint.h>

struct segmenter_rules {
    size_t limit; /* samples, at least 1; with skip_silence half a second */
    bool at_pauses, skip_silence;
};

enum segmenter_end {
    SEGMENTER_RUNS = 0,
    SEGMENTER_SILENCE, /* the reasons to end */
    SEGMENTER_PAUSE,
    SEGMENTER_LIMIT
};

/* Read-only outside segmenter.c. Positions are samples of the recording. */
struct segmenter {
    struct segmenter_rules rules;
    size_t search;
    struct silence_gate gate;
    uint64_t at;        /* samples taken */
    uint64_t begin;     /* of the running segment; while waiting, of what one may begin with */
    uint64_t sound_end; /* behind the last sound; 0: none came */
    bool waiting;       /* for sound: no segment runs */
    enum segmenter_end end;
};

void segmenter_start(struct segmenter *s, const struct segmenter_rules *rules);

/* Samples that a segment never has more than. */
size_t segmenter_most(size_t limit);

/* Takes samples until a segment begins after silence or has to end, or all n; returns how many. */
size_t segmenter_push(struct segmenter *s, const float *samples, size_t n);

/* After a push. held: the samples [begin, at). The length of the segment that ends, which begins
 * with them; 0 when none does. Afterwards `begin` is behind it, or behind what was silent. */
size_t segmenter_take(struct segmenter *s, const float *held);

/* The recording ends; otherwise as segmenter_take, and to be called until it returns 0. */
size_t segmenter_finish(struct segmenter *s, const float *held);

/* Whether a segment runs that has sound in it, or silence is not told from it. */
bool segmenter_sounds(const struct segmenter *s);

/* Samples of the running segment that it keeps unless the limit cuts it: not those of a pause or of
 * silence that may end it. */
size_t segmenter_sure(const struct segmenter *s);

/* Whether the limit cuts behind all of the running segment, as long as it is now. */
bool segmenter_before_cuts(const struct segmenter *s);

#endif
