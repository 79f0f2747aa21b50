#include "asr/segmenter.h"

#include <assert.h>

enum {
    PAUSE = CUT_RATE * 3 / 10,
    SILENCE = 2 * CUT_RATE,      /* without sound, which ends a segment */
    BEHIND_SOUND = CUT_RATE / 2, /* of it, kept */
    BEFORE_SOUND = CUT_RATE * 3 / 10,
    ONSET = 2 * SILENCE_BLOCK /* what the gate hears before it calls it sound */
};

/* Whether anything depends on silence. */
static bool gated(const struct segmenter *s) { return s->rules.skip_silence || s->rules.at_pauses; }

size_t segmenter_most(size_t limit) { return limit + cut_search(limit); }

void segmenter_start(struct segmenter *s, const struct segmenter_rules *rules) {
    assert(rules->limit > (rules->skip_silence ? BEFORE_SOUND + ONSET : 0));
    *s = (struct segmenter){ .rules = *rules,
                             .search = cut_search(rules->limit),
                             .waiting = rules->skip_silence };
    silence_gate_start(&s->gate);
}

/* Silence: what is too long ago for a segment to begin with is let go of. */
static void wait_for_sound(struct segmenter *s) {
    const uint64_t kept = BEFORE_SOUND + ONSET;
    if (s->at - s->begin > kept) s->begin = s->at - kept;
    s->waiting = true;
}

/* A block is complete. */
static void look(struct segmenter *s) {
    const size_t quiet = silence_gate_quiet(&s->gate);
    if (s->gate.sound) s->sound_end = s->at - quiet;
    if (s->waiting) {
        wait_for_sound(s);
        s->waiting = !s->gate.sound;
        return;
    }
    if (s->rules.skip_silence && !s->gate.sound && s->at - s->sound_end >= SILENCE)
        s->end = SEGMENTER_SILENCE;
    else if (s->rules.at_pauses && quiet >= PAUSE &&
             s->at - s->begin >= s->rules.limit - s->search + PAUSE)
        s->end = SEGMENTER_PAUSE;
}

/* Samples to the next place where something may have to be decided. */
static size_t next_piece(const struct segmenter *s, size_t n) {
    const size_t most = s->rules.limit + s->search - (s->waiting ? 0 : (size_t)(s->at - s->begin));
    const size_t block = SILENCE_BLOCK - (size_t)s->gate.n_block;
    if (gated(s) && block < n) n = block;
    return !s->waiting && most < n ? most : n;
}

size_t segmenter_push(struct segmenter *s, const float *samples, size_t n) {
    const bool was_waiting = s->waiting;
    size_t taken = 0;
    while (taken < n && s->end == SEGMENTER_RUNS && s->waiting == was_waiting) {
        const size_t piece = next_piece(s, n - taken);
        if (gated(s)) (void)silence_gate_push(&s->gate, samples + taken, piece);
        taken += piece;
        s->at += piece;
        if (gated(s) && s->gate.n_block == 0) look(s);
        if (!s->waiting && s->end == SEGMENTER_RUNS &&
            s->at - s->begin == s->rules.limit + s->search)
            s->end = SEGMENTER_LIMIT;
    }
    return taken;
}

size_t segmenter_take(struct segmenter *s, const float *held) {
    const size_t n_held = (size_t)(s->at - s->begin);
    size_t n = 0;
    if (s->end != SEGMENTER_RUNS && !segmenter_sounds(s)) {
        s->end = SEGMENTER_RUNS;
        wait_for_sound(s);
    }
    switch (s->end) {
    case SEGMENTER_RUNS:
        break;
    case SEGMENTER_SILENCE:
        n = (size_t)(s->sound_end + BEHIND_SOUND - s->begin);
        s->waiting = true;
        break;
    case SEGMENTER_PAUSE:
        n = n_held - PAUSE + cut_quietest(held + n_held - PAUSE, PAUSE);
        break;
    case SEGMENTER_LIMIT:
        n = cut_find(held, n_held, s->rules.limit);
        break;
    }
    s->end = SEGMENTER_RUNS;
    s->begin += n;
    return n;
}

size_t segmenter_finish(struct segmenter *s, const float *held) {
    const size_t n_held = (size_t)(s->at - s->begin);
    if (!segmenter_sounds(s)) return 0;
    const size_t n = n_held > s->rules.limit ? cut_find(held, n_held, s->rules.limit) : n_held;
    s->begin += n;
    return n;
}

bool segmenter_sounds(const struct segmenter *s) {
    return !s->waiting && (!s->rules.skip_silence || s->sound_end > s->begin);
}

size_t segmenter_sure(const struct segmenter *s) {
    uint64_t end = s->at;
    if (s->rules.at_pauses && !segmenter_before_cuts(s))
        end -= silence_gate_quiet(&s->gate) + (size_t)s->gate.n_block; /* which may be quiet, too */
    if (s->rules.skip_silence && end > s->sound_end + BEHIND_SOUND)
        end = s->sound_end + BEHIND_SOUND;
    return end > s->begin ? (size_t)(end - s->begin) : 0;
}

bool segmenter_before_cuts(const struct segmenter *s) {
    return s->at - s->begin <= s->rules.limit - s->search;
}
