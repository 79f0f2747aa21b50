/* Where segments begin and end, and that nothing which may be speech is in none. */
#include "asr/segmenter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND ((size_t)CUT_RATE)
#define MOST   128

struct segment {
    uint64_t begin, end;
    enum segmenter_end why; /* SEGMENTER_RUNS: the recording ended */
};

struct segments {
    struct segment all[MOST];
    int n;
    size_t most_held;
};

/* ---- recordings ---- */

struct sound {
    float *samples;
    size_t n;
};

static struct sound quiet_room(double seconds) {
    struct sound s = { .n = (size_t)(seconds * CUT_RATE) };
    s.samples = malloc((s.n + 1) * sizeof *s.samples);
    uint32_t state = 5;
    assert_non_null(s.samples);
    for (size_t i = 0; i < s.n; i++) {
        state = state * 1664525u + 1013904223u;
        s.samples[i] = (float)((int)(state >> 16) - 32768) / 32768.0f * 0.0002f;
    }
    return s;
}

/* Noise loud enough to be speech, with gaps as syllables have, for what is steady becomes
 * background. From and to in seconds. */
static void speak(struct sound *s, double from, double to) {
    uint32_t state = (uint32_t)(from * 1000) + 77;
    for (size_t i = (size_t)(from * CUT_RATE); i < (size_t)(to * CUT_RATE) && i < s->n; i++) {
        state = state * 1664525u + 1013904223u;
        if (i % 4000 >= 1500 && i % 4000 < 2500) continue;
        s->samples[i] = (float)((int)(state >> 16) - 32768) / 32768.0f * 0.2f;
    }
}

/* Speech and pauses of many lengths. */
static struct sound talk(double seconds, double longest_pause, uint32_t seed) {
    struct sound s = quiet_room(seconds);
    double at = 0;
    while (at < seconds) {
        seed = seed * 1664525u + 1013904223u;
        const double pause = longest_pause * (seed >> 24) / 255, length = (seed >> 16 & 255) / 64.0;
        speak(&s, at + pause, at + pause + length);
        at += pause + length + 0.01;
    }
    return s;
}

/* ---- the segmenter, as its callers use it ---- */

static void add(struct segments *out, uint64_t begin, size_t n, enum segmenter_end why) {
    assert_true(out->n < MOST && n > 0);
    out->all[out->n++] = (struct segment){ begin, begin + n, why };
}

/* Pushes pieces of at most `piece` samples. */
static struct segments run(const struct sound *s, const struct segmenter_rules *rules,
                           size_t piece) {
    struct segments out = { .n = 0 };
    struct segmenter g;
    segmenter_start(&g, rules);
    for (size_t at = 0; at < s->n;) {
        const size_t n = s->n - at < piece ? s->n - at : piece;
        assert_true(g.at - g.begin < segmenter_most(rules->limit)); /* room for more */
        const size_t taken = segmenter_push(&g, s->samples + at, n);
        assert_true(taken > 0 && taken <= n);
        at += taken;
        assert_int_equal(g.at, at);
        if (g.at - g.begin > out.most_held) out.most_held = (size_t)(g.at - g.begin);
        const enum segmenter_end why = g.end;
        const uint64_t begin = g.begin;
        const size_t whole = segmenter_take(&g, s->samples + begin);
        if (whole) add(&out, begin, whole, why);
    }
    for (size_t whole = 1; whole;) {
        const uint64_t begin = g.begin;
        whole = segmenter_finish(&g, s->samples + begin);
        if (whole) add(&out, begin, whole, SEGMENTER_RUNS);
    }
    return out;
}

static struct segments segments_of(const struct sound *s, const struct segmenter_rules *rules) {
    return run(s, rules, s->n + 1);
}

static void assert_near(uint64_t position, double seconds, double within) {
    const double at = (double)position / CUT_RATE;
    if (!(at >= seconds - within && at <= seconds + within))
        fail_msg("%.4f s is not within %.3f s of %.3f s", at, within, seconds);
}

static struct segmenter_rules rules_of(double limit, double pause, bool skip_silence) {
    return (struct segmenter_rules){ .limit = (size_t)(limit * CUT_RATE),
                                     .pause = (size_t)(pause * CUT_RATE),
                                     .skip_silence = skip_silence };
}

/* ---- cuts ---- */

static void without_pauses_segments_are_those_of_the_cuts(void **state) {
    (void)state;
    static const double limits[] = { 1, 4, 9.5, 12, 30 };
    struct sound s = quiet_room(70);
    speak(&s, 0, 70);
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        const struct segmenter_rules rules = rules_of(limits[l], 2, false);
        const struct segments made = run(&s, &rules, 5000);
        size_t at = 0;
        for (int i = 0; i < made.n; i++) {
            const size_t left = s.n - at, n = left > rules.limit
                                                  ? cut_find(s.samples + at, left, rules.limit)
                                                  : left;
            assert_int_equal(made.all[i].begin, at);
            assert_int_equal(made.all[i].end, at + n);
            at += n;
        }
        assert_int_equal(at, s.n);
        assert_int_equal(made.most_held, segmenter_most(rules.limit));
    }
    free(s.samples);
}

static void near_the_limit_a_short_pause_ends_a_segment(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(30, 2, false);
    struct sound s = quiet_room(60);
    speak(&s, 0, 10);
    speak(&s, 11, 25.1); /* a second is too short a pause for so short a segment */
    speak(&s, 25.3, 28); /* and 200 ms for any */
    speak(&s, 28.4, 60);
    memset(s.samples + (size_t)(28.15 * CUT_RATE), 0, 1600 * sizeof *s.samples);
    const struct segments made = segments_of(&s, &rules);
    assert_true(made.n >= 2);
    assert_int_equal(made.all[0].why, SEGMENTER_PAUSE);
    assert_int_equal(made.all[0].end, (size_t)(28.15 * CUT_RATE)); /* where it is quietest */
    free(s.samples);
}

static void the_longer_a_segment_the_shorter_the_pause_that_ends_it(void **state) {
    (void)state;
    static const struct {
        double sound, pause;
        bool ends;
    } cases[] = { { 1, 2.05, true },    { 1, 1.9, false },    { 12, 2.05, true },
                  { 12, 1.9, false },   { 18.75, 1.2, true }, { 18.75, 1, false },
                  { 24.5, 0.45, true }, { 24.5, 0.25, false } };
    const struct segmenter_rules rules = rules_of(30, 2, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double end = cases[i].sound + cases[i].pause;
        struct sound s = quiet_room(end + 1);
        speak(&s, 0, cases[i].sound);
        speak(&s, end, end + 1);
        const struct segments made = segments_of(&s, &rules);
        if (made.n != (cases[i].ends ? 2 : 1))
            fail_msg("%g s after %g s: %d segments", cases[i].pause, cases[i].sound, made.n);
        free(s.samples);
    }
}

static void a_shorter_pause_ends_a_segment_when_asked(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(8, 0.4, false);
    struct sound s = quiet_room(8);
    for (int i = 0; i < 4; i++)
        speak(&s, 2 * i + 0.5, 2 * i + 1.5 + 0.02 * i);
    const struct segments made = segments_of(&s, &rules);
    assert_int_equal(made.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_near(made.all[i].begin, 2 * i + 0.18, 0.05);
        assert_near(made.all[i].end, 2 * i + 1.75, 0.15);
    }
    free(s.samples);
}

static void a_minute_is_the_most_that_is_held(void **state) {
    (void)state;
    assert_int_equal(segmenter_most(55 * SECOND), 60 * SECOND);
    const struct segmenter_rules rules = rules_of(55, 2, false);
    struct sound s = quiet_room(130);
    speak(&s, 0, 130);
    const struct segments made = segments_of(&s, &rules);
    assert_int_equal(made.most_held, 60 * SECOND);
    free(s.samples);
}

/* ---- silence left out ---- */

/* White noise of a level over what is there. */
static void add_hiss(struct sound *s, double from, double to, double level) {
    const float amplitude = (float)(sqrt(3) * pow(10, level / 20));
    uint32_t state = 99;
    for (size_t i = (size_t)(from * CUT_RATE); i < (size_t)(to * CUT_RATE) && i < s->n; i++) {
        state = state * 1664525u + 1013904223u;
        s->samples[i] += (float)((int)(state >> 16) - 32768) / 32768.0f * amplitude;
    }
}

static void silence_of_two_seconds_is_in_no_segment(void **state) {
    (void)state;
    static const double floors[] = { -120, -90, -70, -60 };
    for (int i = 0; i < 2 * 4; i++) {
        const struct segmenter_rules rules = rules_of(30, 2, i % 2);
        struct sound s = quiet_room(30);
        add_hiss(&s, 0, 30, floors[i / 2]);
        speak(&s, 3, 5);
        speak(&s, 6.8, 8); /* 1.8 s are too short to end at */
        speak(&s, 15, 16);
        const struct segments made = segments_of(&s, &rules);
        assert_int_equal(made.n, 2);
        assert_near(made.all[0].begin, 2.7, 0.021);
        assert_near(made.all[0].end, 8.5, 0.021);
        assert_near(made.all[1].begin, 14.7, 0.021);
        assert_near(made.all[1].end, 16.5, 0.021);
        assert_int_equal(made.all[0].why, SEGMENTER_PAUSE);
        assert_true(made.most_held < 11 * SECOND);
        free(s.samples);
    }
}

/* What is louder than silence may be, but steady, is cut off before sound comes. */
static void a_loud_noise_is_a_segment_of_its_own(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(30, 2, false);
    struct sound s = quiet_room(20);
    add_hiss(&s, 0, 20, -40);
    speak(&s, 8, 9);
    speak(&s, 15, 16);
    const struct segments made = segments_of(&s, &rules);
    uint64_t end = 0;
    int n_words = 0;
    for (int i = 0; i < made.n; i++) {
        assert_int_equal(made.all[i].begin, end); /* all of it is in segments */
        end = made.all[i].end;
        n_words += made.all[i].begin > 7 * SECOND && end < 10 * SECOND;
        n_words += made.all[i].begin > 14 * SECOND && end < 17 * SECOND;
    }
    assert_int_equal(end, s.n);
    assert_int_equal(n_words, 2);
    free(s.samples);
}

/* The second voice lies 32 dB under the first, and 23 over the room. */
static void a_distant_voice_is_in_a_segment(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(30, 0.5, false);
    struct sound s = quiet_room(30), weak = quiet_room(30);
    for (int i = 0; i < 6; i++) {
        const double at = 5 * i;
        speak(&s, at, at + 1.5);
        speak(&weak, at + 2.5, at + 4);
        for (size_t k = (size_t)((at + 2.5) * CUT_RATE); k < (size_t)((at + 4) * CUT_RATE); k++)
            s.samples[k] = 0.025f * weak.samples[k];
    }
    const struct segments made = segments_of(&s, &rules);
    for (int i = 0; i < 6; i++) {
        int k = 0;
        while (k < made.n && made.all[k].end < (uint64_t)((5 * i + 4) * CUT_RATE))
            k++;
        assert_true(k < made.n && made.all[k].begin <= (uint64_t)((5 * i + 2.5) * CUT_RATE));
    }
    free(s.samples), free(weak.samples);
}

static void a_recording_without_sound_has_no_segments(void **state) {
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        const struct segmenter_rules rules = rules_of(30, 2, strict);
        struct sound s = quiet_room(100);
        for (size_t i = 0; i < 50; i++)
            s.samples[7 * SECOND + i] = 0.9f; /* a click */
        const struct segments made = run(&s, &rules, 1000);
        assert_int_equal(made.n, 0);
        assert_true(made.most_held < SECOND / 2 + 1000);
        free(s.samples);
    }
}

static void a_recording_too_short_to_tell_is_a_segment(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(30, 2, false), strict = rules_of(30, 2, true);
    static const size_t lengths[] = { 1, 319, 320, 1000, 4799 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct sound s = quiet_room(1);
        s.n = lengths[i];
        const struct segments made = segments_of(&s, &rules), none = segments_of(&s, &strict);
        assert_int_equal(made.n, 1);
        assert_int_equal(made.all[0].end, s.n);
        assert_int_equal(none.n, 0);
        free(s.samples);
    }
}

static void silence_behind_a_cut_is_no_segment(void **state) {
    (void)state;
    for (int strict = 0; strict < 2; strict++)
        for (double end = 9; end < 15; end += 0.1) {
            const struct segmenter_rules rules = rules_of(10, 2, strict);
            struct sound s = quiet_room(25);
            speak(&s, 0.1, end);
            const struct segments made = segments_of(&s, &rules);
            for (int i = 0; i < made.n; i++)
                assert_true(made.all[i].begin < (uint64_t)(end * CUT_RATE) &&
                            made.all[i].end < (uint64_t)((end + 0.6) * CUT_RATE));
            assert_true(made.all[made.n - 1].end >= (uint64_t)(end * CUT_RATE) - 1000);
            free(s.samples);
        }
}

/* Segments so short that their limit comes before two seconds of silence have passed. */
static void short_limits_make_no_segments_of_silence(void **state) {
    (void)state;
    for (int ms = 100; ms <= 2000; ms += 20) {
        struct sound s = { .n = 9 * SECOND };
        s.samples = calloc(s.n, sizeof *s.samples);
        assert_non_null(s.samples);
        for (size_t i = SECOND; i < SECOND + (size_t)ms * CUT_RATE / 1000; i++)
            s.samples[i] = i % 32 < 16 ? 0.3f : -0.3f;
        for (int strict = 0; strict <= 1; strict++) {
            const struct segmenter_rules rules = rules_of(1, 2, strict);
            const struct segments made = segments_of(&s, &rules);
            assert_in_range(made.n, 1, 5);
            for (int i = 0; i < made.n; i++)
                assert_true(made.all[i].begin < SECOND + (size_t)ms * CUT_RATE / 1000);
        }
        free(s.samples);
    }
}

static void a_sound_at_the_end_is_a_segment(void **state) {
    (void)state;
    const struct segmenter_rules rules = rules_of(30, 2, false);
    struct sound s = quiet_room(10);
    speak(&s, 9, 10);
    const struct segments made = segments_of(&s, &rules);
    assert_int_equal(made.n, 1);
    assert_near(made.all[0].begin, 8.7, 0.021);
    assert_int_equal(made.all[0].end, 10 * SECOND);
    free(s.samples);
}

/* ---- all rules ---- */

static const struct segmenter_rules all_rules[] = {
    { .limit = 6 * SECOND, .pause = 2 * SECOND },
    { .limit = 12 * SECOND, .pause = SECOND / 2 },
    { .limit = 3 * SECOND, .pause = 10 * SECOND },
    { .limit = 12 * SECOND, .pause = 2 * SECOND, .skip_silence = true },
    { .limit = 12 * SECOND, .pause = 3 * SECOND / 10, .skip_silence = true },
    { .limit = SECOND, .pause = 2 * SECOND, .skip_silence = true },
};
enum { N_RULES = sizeof all_rules / sizeof *all_rules };

static void segments_are_the_same_however_samples_are_pushed(void **state) {
    (void)state;
    static const size_t pieces[] = { 100, 321, 5333, 100000 };
    struct sound s = talk(40, 3, 11);
    for (int r = 0; r < N_RULES; r++) {
        const struct segments whole = segments_of(&s, &all_rules[r]);
        assert_true(whole.n >= 2);
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            const struct segments made = run(&s, &all_rules[r], pieces[p]);
            assert_int_equal(made.n, whole.n);
            for (int i = 0; i < made.n; i++) {
                assert_int_equal(made.all[i].begin, whole.all[i].begin);
                assert_int_equal(made.all[i].end, whole.all[i].end);
            }
        }
    }
    free(s.samples);
}

/* Samples that someone spoke; the room's are smaller. */
static size_t spoken_samples(const struct sound *s, uint64_t from, uint64_t to) {
    size_t n = 0;
    for (uint64_t i = from; i < to; i++)
        n += fabsf(s->samples[i]) > 0.001f;
    return n;
}

static void segments_are_in_order_and_hold_all_that_is_spoken(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct sound s = talk(50, 1 + seed % 4, seed);
        for (int r = 0; r < N_RULES; r++) {
            const struct segments made = segments_of(&s, &all_rules[r]);
            uint64_t end = 0;
            size_t n_lost = 0;
            for (int i = 0; i < made.n; i++) {
                assert_true(made.all[i].begin >= end && made.all[i].end > made.all[i].begin);
                n_lost += spoken_samples(&s, end, made.all[i].begin);
                end = made.all[i].end;
                assert_true(end - made.all[i].begin <= segmenter_most(all_rules[r].limit));
            }
            assert_true(end <= s.n);
            n_lost += spoken_samples(&s, end, s.n);
            assert_true(n_lost < 640); /* a word of 40 ms is none */
        }
        free(s.samples);
    }
}

/* What a step may hear without having to take it back. */
struct promise {
    uint64_t begin, sure, uncut; /* of the running segment, the furthest so far */
};

static void watch(const struct segmenter *g, struct promise *p) {
    if (g->end != SEGMENTER_RUNS || !segmenter_sounds(g)) return;
    if (p->begin != g->begin) *p = (struct promise){ .begin = g->begin };
    const uint64_t sure = g->begin + segmenter_sure(g);
    assert_true(sure <= g->at);
    if (sure > p->sure) p->sure = sure;
    if (segmenter_before_cuts(g) && sure > p->uncut) p->uncut = sure;
}

static void what_is_sure_is_not_cut_away(void **state) {
    (void)state;
    int n_checked = 0;
    for (uint32_t seed = 0; seed < 30; seed++) {
        struct sound s = talk(50, 1 + seed % 4, seed);
        for (int r = 1; r < N_RULES; r++) {
            struct segmenter g;
            struct promise p = { .begin = UINT64_MAX };
            segmenter_start(&g, &all_rules[r]);
            for (size_t at = 0; at < s.n;) {
                at += segmenter_push(&g, s.samples + at, s.n - at < 57 ? s.n - at : 57);
                watch(&g, &p);
                const enum segmenter_end why = g.end;
                const uint64_t begin = g.begin;
                const size_t whole = segmenter_take(&g, s.samples + begin);
                if (!whole || p.begin != begin) continue;
                assert_true(p.uncut <= begin + whole);
                if (why != SEGMENTER_LIMIT) assert_true(p.sure <= begin + whole);
                n_checked++;
            }
        }
        free(s.samples);
    }
    assert_true(n_checked > 300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_pauses_segments_are_those_of_the_cuts),
        cmocka_unit_test(near_the_limit_a_short_pause_ends_a_segment),
        cmocka_unit_test(the_longer_a_segment_the_shorter_the_pause_that_ends_it),
        cmocka_unit_test(a_shorter_pause_ends_a_segment_when_asked),
        cmocka_unit_test(a_minute_is_the_most_that_is_held),
        cmocka_unit_test(silence_of_two_seconds_is_in_no_segment),
        cmocka_unit_test(a_recording_without_sound_has_no_segments),
        cmocka_unit_test(a_loud_noise_is_a_segment_of_its_own),
        cmocka_unit_test(a_distant_voice_is_in_a_segment),
        cmocka_unit_test(a_recording_too_short_to_tell_is_a_segment),
        cmocka_unit_test(silence_behind_a_cut_is_no_segment),
        cmocka_unit_test(short_limits_make_no_segments_of_silence),
        cmocka_unit_test(a_sound_at_the_end_is_a_segment),
        cmocka_unit_test(segments_are_the_same_however_samples_are_pushed),
        cmocka_unit_test(segments_are_in_order_and_hold_all_that_is_spoken),
        cmocka_unit_test(what_is_sure_is_not_cut_away),
    };
    return cmocka_run_group_tests_name("segmenter", tests, NULL, NULL);
}
