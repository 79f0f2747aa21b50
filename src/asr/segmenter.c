#include "asr/segmenter.h"

#include <assert.h>

enum {
    BEHIND_SOUND = CUT_RATE / 2, /* of a long pause, kept */
    LONG_PAUSE = 2 * BEHIND_SOUND,
    BEFORE_SOUND = CUT_RATE * 3 / 10,
    KEPT = BEFORE_SOUND + SILENCE_ONSET - SILENCE_BLOCK, /* of silence: sound may begin there */
    LEAD = BEFORE_SOUND + CUT_RATE * 3 / 10,             /* that a segment has at most */
    NEAR_SOUND = CUT_RATE / 10                           /* where nothing is cut before it */
};

size_t segmenter_most(size_t limit) { return limit + cut_search(limit); }

void segmenter_start(struct segmenter *s, const struct segmenter_rules *rules) {
    assert(rules->limit >= CUT_RATE && rules->pause >= SEGMENTER_PAUSE_LEAST);
    *s = (struct segmenter){ .rules = *rules, .search = cut_search(rules->limit) };
    silence_gate_start(&s->gate, rules->skip_silence);
}

static size_t held_samples(const struct segmenter *s) { return (size_t)(s->at - s->begin); }

/* Of silence that nothing came before, no more than a segment may begin with is held. */
static void drop_silence(struct segmenter *s) {
    if (silence_gate_silent(&s->gate) >= held_samples(s) && held_samples(s) > KEPT)
        s->begin = s->at - KEPT;
}

/* Samples of pause that end a segment of n samples. */
static size_t pause_wanted(const struct segmenter *s, size_t n) {
    const size_t to = s->rules.limit - s->search, from = to / 2;
    const size_t most = s->rules.pause, least = SEGMENTER_PAUSE_LEAST;
    if (n <= from) return most;
    if (n >= to) return least;
    return most - (size_t)((double)(most - least) * (double)(n - from) / (double)(to - from));
}

/* The pause that is under way ends the segment before it, when it is long enough. */
static void end_in_pause(struct segmenter *s, size_t pause) {
    if (pause < pause_wanted(s, held_samples(s) - pause)) return;
    s->pause = pause;
    s->end = SEGMENTER_PAUSE;
}

/* A block is complete in a pause. */
static void look_for_sound(struct segmenter *s) {
    const size_t silent = silence_gate_silent(&s->gate);
    drop_silence(s);
    if (silence_gate_sounds(&s->gate)) {
        s->sounding = true;
        if (held_samples(s) > LEAD + SILENCE_ONSET) s->end = SEGMENTER_SOUND;
    } else if (silent < held_samples(s)) {
        end_in_pause(s, silent);
    }
}

/* The pause that is under way. Clicks do not break a long one. */
static size_t running_pause(const struct segmenter *s) {
    const size_t quiet = silence_gate_quiet(&s->gate), silent = silence_gate_silent(&s->gate);
    return silent >= LONG_PAUSE && silent > quiet ? silent : quiet;
}

static void look(struct segmenter *s) {
    if (s->sounding)
        end_in_pause(s, running_pause(s));
    else
        look_for_sound(s);
}

/* Samples to the next place where something may have to be decided. */
static size_t next_piece(const struct segmenter *s, size_t n) {
    const size_t most = s->rules.limit + s->search - held_samples(s);
    const size_t block = SILENCE_BLOCK - (size_t)s->gate.n_block;
    const size_t least = most < block ? most : block;
    return least < n ? least : n;
}

size_t segmenter_push(struct segmenter *s, const float *samples, size_t n) {
    const bool was_sounding = s->sounding;
    size_t taken = 0;
    while (taken < n && s->end == SEGMENTER_RUNS && s->sounding == was_sounding) {
        const size_t piece = silence_gate_push(&s->gate, samples + taken, next_piece(s, n - taken));
        taken += piece;
        s->at += piece;
        if (s->gate.n_block == 0) look(s);
        if (s->end == SEGMENTER_RUNS && held_samples(s) == s->rules.limit + s->search)
            s->end = SEGMENTER_LIMIT;
    }
    return taken;
}

/* How many of n samples are kept before a pause that is the last of them. */
static size_t cut_in_pause(const float *held, size_t n, size_t pause) {
    const size_t sound = n - pause;
    if (pause >= LONG_PAUSE) return sound + BEHIND_SOUND;
    return sound + pause / 4 + cut_quietest(held + sound + pause / 4, pause / 2);
}

/* Where, before the sound that the last of n samples begin. */
static size_t cut_before_sound(const float *held, size_t n) {
    const size_t from = n - SILENCE_ONSET - BEFORE_SOUND;
    return from + cut_quietest(held + from, BEFORE_SOUND - NEAR_SOUND);
}

static size_t cut_at_limit(struct segmenter *s, const float *held) {
    const size_t n_held = held_samples(s), n = cut_find(held, n_held, s->rules.limit);
    if (running_pause(s) + (size_t)s->gate.n_block >= n_held - n) s->sounding = false;
    return n;
}

size_t segmenter_take(struct segmenter *s, const float *held) {
    size_t n = 0;
    switch (s->end) {
    case SEGMENTER_RUNS:
        return 0;
    case SEGMENTER_PAUSE:
        n = cut_in_pause(held, held_samples(s), s->pause);
        s->sounding = false;
        break;
    case SEGMENTER_SOUND:
        n = cut_before_sound(held, held_samples(s));
        break;
    case SEGMENTER_LIMIT:
        n = cut_at_limit(s, held);
        break;
    }
    s->end = SEGMENTER_RUNS;
    s->begin += n;
    if (!s->sounding) drop_silence(s);
    return n;
}

/* Of n samples that nothing follows; all of a recording that is too short to tell. */
static size_t without_silence(struct segmenter *s, size_t n) {
    size_t silent = silence_gate_silent(&s->gate);
    if (silent > 0 || s->at < SILENCE_BLOCK) silent += (size_t)s->gate.n_block;
    if (!s->sounding && s->rules.skip_silence) return 0;
    if (!s->sounding && silent >= n) return s->begin > 0 || n >= BEFORE_SOUND ? 0 : n;
    return silent >= LONG_PAUSE && silent < n ? n - silent + BEHIND_SOUND : n;
}

size_t segmenter_finish(struct segmenter *s, const float *held) {
    const size_t n_held = held_samples(s);
    size_t n;
    if (n_held > s->rules.limit) {
        n = cut_at_limit(s, held);
    } else {
        n = without_silence(s, n_held);
        s->sounding = false;
    }
    s->begin += n;
    return n;
}

size_t segmenter_sure(const struct segmenter *s) {
    const size_t n_held = held_samples(s), unknown = (size_t)s->gate.n_block;
    size_t quiet = silence_gate_quiet(&s->gate), silent = silence_gate_silent(&s->gate) + unknown;
    if (quiet + unknown > n_held) return 0;
    const size_t sound = n_held - quiet - unknown;
    size_t kept = pause_wanted(s, sound) >= LONG_PAUSE ? BEHIND_SOUND : 0;
    if (kept > quiet + unknown) kept = quiet + unknown;
    size_t sure = sound + kept;
    if (silent > BEHIND_SOUND && silent < n_held && sure > n_held - silent + BEHIND_SOUND)
        sure = n_held - silent + BEHIND_SOUND;
    return sure;
}

bool segmenter_before_cuts(const struct segmenter *s) {
    return held_samples(s) <= s->rules.limit - s->search;
}
