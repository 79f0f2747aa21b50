/* The sampler against a plain one in double precision that sorts, and against statistics. */
#include "kernels/sampling.h"
#include "runtime/logits.h"
#include "runtime/sampler.h"
#include "support/sanitized.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_VOCAB 4096

/* ---- helpers ---- */

static uint64_t random_state;

static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double random_unit(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

static float random_normal(void) {
    double u = random_unit() + 0x1p-54;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * random_unit()));
}

static struct reel_sampling plain(float temperature) {
    return (struct reel_sampling){ .size = sizeof(struct reel_sampling),
                                   .temperature = temperature,
                                   .seed = 1234567 };
}

static struct sampler *open_with(int vocab, const struct reel_sampling *set) {
    struct sampler *s = NULL;
    struct reel_error err = { 0 };
    assert_int_equal(sampler_open(&s, vocab, &err), REEL_OK);
    assert_int_equal(sampler_start(s, set, &err), REEL_OK);
    return s;
}

/* ---- the plain sampler ---- */

struct plain_id {
    int32_t id;
    double logit;
    double p;
};

static int by_logit(const void *a, const void *b) {
    const struct plain_id *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

/* Fills kept with the ids the settings leave and their probabilities; penalties are the caller's.
 */
static int plain_keep(const float *logits, int vocab, const struct reel_sampling *set,
                      struct plain_id *kept) {
    int n = 0;
    for (int i = 0; i < vocab; i++)
        if (!isnan(logits[i]) && logits[i] != -INFINITY)
            kept[n++] = (struct plain_id){ i, (double)logits[i], 0 };
    qsort(kept, (size_t)n, sizeof *kept, by_logit);
    if (set->top_k > 0 && set->top_k < n) {
        int k = set->top_k;
        while (k < n && kept[k].logit == kept[set->top_k - 1].logit)
            k++;
        n = k;
    }
    double sum = 0;
    for (int i = 0; i < n; i++) {
        kept[i].p = exp((kept[i].logit - kept[0].logit) / (double)set->temperature);
        sum += kept[i].p;
    }
    for (int i = 0; i < n; i++)
        kept[i].p /= sum;
    if (set->top_p > 0 && set->top_p < 1) {
        double cumulated = 0;
        int k = 0;
        while (k < n && cumulated < (double)set->top_p)
            cumulated += kept[k++].p;
        n = k;
    }
    int left = 0;
    for (int i = 0; i < n; i++)
        if (kept[i].p >= (double)set->min_p * kept[0].p) kept[left++] = kept[i];
    sum = 0;
    for (int i = 0; i < left; i++)
        sum += kept[i].p;
    for (int i = 0; i < left; i++)
        kept[i].p /= sum;
    return left;
}

static float noise_of(uint64_t seed, uint64_t position, int32_t id) {
    unsigned word[4];
    sampling_random(seed, position, (unsigned)id / 4, &word[0], &word[1], &word[2], &word[3]);
    return sampling_gumbel(word[id % 4]);
}

/* ---- greedy ---- */

static void greedy_takes_the_lowest_id_of_the_largest(void **state) {
    (void)state;
    for (int vocab = 1; vocab < 300; vocab++) {
        float *logits = calloc((size_t)vocab, sizeof *logits);
        struct sampler *s = open_with(vocab, NULL);
        for (int win = 0; win < vocab; win += 1 + vocab / 40) {
            for (int i = 0; i < vocab; i++)
                logits[i] = i < win ? -1.0f : -0.5f;
            assert_int_equal(sampler_draw(s, logits, win), win);
        }
        sampler_close(s);
        free(logits);
    }
}

static void nan_and_minus_infinity_are_never_drawn(void **state) {
    (void)state;
    float logits[200];
    for (int i = 0; i < 200; i++)
        logits[i] = i % 3 ? NAN : -INFINITY;
    const struct reel_sampling sets[] = {
        plain(0),
        plain(1),
        { sizeof sets[0], .temperature = 1, .top_k = 5 },
        { sizeof sets[0], .temperature = 1, .top_p = 0.5f },
        { sizeof sets[0], .temperature = 1, .top_k = 150, .top_p = 0.9f, .min_p = 0.1f },
    };
    for (size_t c = 0; c < sizeof sets / sizeof *sets; c++) {
        struct sampler *s = open_with(200, &sets[c]);
        logits[77] = -INFINITY;
        assert_int_equal(sampler_draw(s, logits, 3), -1);
        for (int p = 0; p < 50; p++) {
            logits[77] = -1000.0f; /* the only number there is */
            assert_int_equal(sampler_draw(s, logits, p), 77);
        }
        logits[77] = INFINITY;
        logits[150] = 1e30f;
        assert_int_equal(sampler_draw(s, logits, 9), 77);
        logits[150] = NAN;
        sampler_close(s);
    }
}

/* ---- sampling ---- */

static struct reel_sampling random_settings(int vocab) {
    struct reel_sampling set = plain((float)(0.3 + 1.5 * random_unit()));
    if (random_bits() & 1) set.top_k = 1 + (int)(random_bits() % (uint64_t)vocab);
    if (random_bits() & 1) set.top_p = (float)random_unit();
    if (random_bits() & 1) set.min_p = (float)(0.3 * random_unit());
    set.seed = random_bits();
    return set;
}

static void draws_equal_those_of_the_plain_sampler(void **state) {
    (void)state;
    static float logits[MAX_VOCAB];
    static struct plain_id kept[MAX_VOCAB];
    int rounds = soaking_in_full() ? 60000 : 1500;
    random_state = 7;
    for (int round = 0; round < rounds; round++) {
        int vocab = 1 + (int)(random_bits() % (round % 8 ? 300 : MAX_VOCAB));
        int grain = (int)(random_bits() % 3); /* coarse logits tie often, as bf16 ones do */
        for (int i = 0; i < vocab; i++) {
            logits[i] = 4 * random_normal();
            if (grain) logits[i] = roundf(logits[i] * (float)grain) / (float)grain;
            if (random_bits() % 64 == 0) logits[i] = random_bits() & 1 ? NAN : -INFINITY;
        }
        struct reel_sampling set = random_settings(vocab);
        struct sampler *s = open_with(vocab, &set);
        int n = plain_keep(logits, vocab, &set, kept);
        for (int position = 0; position < 4; position++) {
            int32_t want = -1;
            float best = -INFINITY;
            for (int i = 0; i < n; i++) {
                float score =
                    sampling_scale(logits[kept[i].id], logits[kept[0].id], set.temperature) +
                    noise_of(set.seed, (uint64_t)position, kept[i].id);
                if (score > best || (score == best && kept[i].id < want)) {
                    best = score;
                    want = kept[i].id;
                }
            }
            assert_int_equal(sampler_draw(s, logits, position), want);
        }
        sampler_close(s);
    }
}

/* Chi-square of counted draws against probabilities, as a standard normal (Wilson-Hilferty). Cells
 * with fewer than 8 expected draws are taken together. */
static double chi_square_z(const struct plain_id *kept, int n, const int *count, int draws) {
    double sum = 0, rest_want = 0, rest_got = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        double want = kept[i].p * draws, got = count[kept[i].id];
        if (want < 8) {
            rest_want += want;
            rest_got += got;
            continue;
        }
        sum += (got - want) * (got - want) / want;
        cells++;
    }
    if (rest_want > 1) {
        sum += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        cells++;
    }
    double f = cells > 1 ? cells - 1 : 1;
    return (cbrt(sum / f) - (1 - 2 / (9 * f))) / sqrt(2 / (9 * f));
}

static void frequencies_follow_the_probabilities(void **state) {
    (void)state;
    enum { VOCAB = 500 };
    float logits[VOCAB];
    static struct plain_id kept[VOCAB];
    random_state = 99;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = 3 * random_normal();
    struct reel_sampling sets[7];
    for (int c = 0; c < 7; c++)
        sets[c] = plain(1);
    sets[1].temperature = 0.6f;
    sets[1].top_k = 20;
    sets[1].top_p = 0.95f;
    sets[2].top_p = 0.8f;
    sets[3].min_p = 0.05f;
    sets[4].top_k = 2;
    sets[5].temperature = 5;
    sets[5].seed = UINT64_MAX;
    sets[6].top_k = 100;
    sets[6].min_p = 0.01f;
    sets[6].top_p = 0.99f;
    int draws = soaking_in_full() ? 4000000 : sanitized_briefly() ? 5000 : 20000;
    for (int c = 0; c < 7; c++) {
        struct sampler *s = open_with(VOCAB, &sets[c]);
        int count[VOCAB] = { 0 }, inside = 0;
        for (int p = 0; p < draws; p++)
            count[sampler_draw(s, logits, p)]++;
        int n = plain_keep(logits, VOCAB, &sets[c], kept);
        for (int i = 0; i < n; i++)
            inside += count[kept[i].id];
        assert_int_equal(inside, draws);
        double z = chi_square_z(kept, n, count, draws);
        if (z > 4) fail_msg("setting %d: chi-square is %.2f sigma off", c, z);
        sampler_close(s);
    }
}

static void draws_at_neighbouring_positions_and_seeds_are_independent(void **state) {
    (void)state;
    enum { N = 8, DRAWS = 64000 };
    float logits[N] = { 0 };
    int pair[2][N * N] = { { 0 } };
    struct reel_sampling a = plain(1), b = plain(1);
    b.seed = a.seed + 1;
    struct sampler *s = open_with(N, &a), *t = open_with(N, &b);
    int32_t last = 0;
    for (int p = 0; p < DRAWS; p++) {
        int32_t id = sampler_draw(s, logits, p);
        pair[0][last * N + id]++;
        pair[1][sampler_draw(t, logits, p) * N + id]++;
        last = id;
    }
    for (int c = 0; c < 2; c++) {
        struct plain_id cell[N * N];
        for (int i = 0; i < N * N; i++)
            cell[i] = (struct plain_id){ i, 0, 1.0 / (N * N) };
        assert_true(chi_square_z(cell, N * N, pair[c], DRAWS) < 4);
    }
    sampler_close(s);
    sampler_close(t);
}

static void the_same_seed_and_position_give_the_same_id(void **state) {
    (void)state;
    float logits[100];
    random_state = 3;
    for (int i = 0; i < 100; i++)
        logits[i] = random_normal();
    struct reel_sampling set = plain(1.5f);
    struct sampler *s = open_with(100, &set), *t = open_with(100, &set);
    int32_t ids[64];
    for (int p = 0; p < 64; p++)
        ids[p] = sampler_draw(s, logits, p);
    for (int p = 63; p >= 0; p--)
        assert_int_equal(sampler_draw(t, logits, p), ids[p]);
    sampler_close(s);
    sampler_close(t);
}

static int distinct_draws(const struct reel_sampling *set, const float *logits, int vocab,
                          int draws, bool *seen) {
    struct sampler *s = open_with(vocab, set);
    int n = 0;
    memset(seen, 0, (size_t)vocab * sizeof *seen);
    for (int p = 0; p < draws; p++) {
        int32_t id = sampler_draw(s, logits, p);
        assert_in_range(id, 0, vocab - 1);
        n += !seen[id];
        seen[id] = true;
    }
    sampler_close(s);
    return n;
}

static void top_k_keeps_ties_with_the_kth(void **state) {
    (void)state;
    float logits[300];
    bool seen[300];
    for (int i = 0; i < 300; i++)
        logits[i] = i == 250 ? 2.0f : i % 100 == 7 ? 1.0f : 0.0f;
    struct reel_sampling set = plain(1);
    set.top_k = 2; /* 250, then three that tie */
    assert_int_equal(distinct_draws(&set, logits, 300, 2000, seen), 4);
    assert_true(seen[250] && seen[7] && seen[107] && seen[207]);
    set.top_k = 1;
    assert_int_equal(distinct_draws(&set, logits, 300, 200, seen), 1);
    assert_true(seen[250]);
    set.top_k = 5; /* the fifth ties with all zeros */
    set.temperature = 1000;
    assert_int_equal(distinct_draws(&set, logits, 300, 20000, seen), 300);
}

static void top_p_keeps_the_lowest_ids_of_equal_ones(void **state) {
    (void)state;
    float logits[200] = { 0 };
    bool seen[200];
    struct reel_sampling set = plain(1);
    set.top_p = 0.25f;
    assert_int_equal(distinct_draws(&set, logits, 200, 4000, seen), 50);
    for (int i = 0; i < 50; i++)
        assert_true(seen[i]);
    set.top_p = 1e-12f;
    assert_int_equal(distinct_draws(&set, logits, 200, 50, seen), 1);
    assert_true(seen[0]);
    set.top_p = 1;
    assert_int_equal(distinct_draws(&set, logits, 200, 8000, seen), 200);
}

static void top_p_looks_at_what_top_k_left(void **state) {
    (void)state;
    /* Alone, the largest has 0.4 of all; among the two that top-k leaves, 2/3. */
    float logits[5] = { logf(0.4f), logf(0.2f), logf(0.15f), logf(0.15f), logf(0.1f) };
    bool seen[5];
    struct reel_sampling set = plain(1);
    set.top_p = 0.55f;
    assert_int_equal(distinct_draws(&set, logits, 5, 500, seen), 2);
    set.top_k = 2;
    assert_int_equal(distinct_draws(&set, logits, 5, 500, seen), 1);
}

static void min_p_of_one_keeps_only_the_most_likely(void **state) {
    (void)state;
    float logits[10] = { 0, 3, 1, 3, 2.9f, -1, 0, 0, 0, 0 };
    bool seen[10];
    struct reel_sampling set = plain(1);
    set.min_p = 1;
    assert_int_equal(distinct_draws(&set, logits, 10, 200, seen), 2);
    assert_true(seen[1] && seen[3]);
}

static void tiny_and_huge_temperatures_keep_their_meaning(void **state) {
    (void)state;
    float logits[10] = { 0, 3, 1, 2, 2.999f, -FLT_MAX, 0, 0, 0, FLT_MIN };
    bool seen[10];
    struct reel_sampling set = plain(FLT_MIN);
    assert_int_equal(distinct_draws(&set, logits, 10, 200, seen), 1);
    assert_true(seen[1]);
    set.temperature = FLT_MAX;
    logits[5] = -3;
    assert_int_equal(distinct_draws(&set, logits, 10, 2000, seen), 10);
}

/* Noise beyond 13 comes once in 400,000 ids: found by search, it has to win from far behind. */
static void an_unlikely_id_wins_when_its_noise_is_large(void **state) {
    (void)state;
    enum { VOCAB = 3000 };
    static float logits[VOCAB];
    struct reel_sampling set = plain(1);
    struct sampler *s = open_with(VOCAB, &set);
    set.top_k = VOCAB - 1; /* the same through a list of candidates */
    struct sampler *listed = open_with(VOCAB, &set);
    int found = 0;
    const int n_wanted = sanitized_briefly() ? 1 : 4;
    for (uint64_t position = 0; found < n_wanted; position++)
        for (int32_t id = 1; id < VOCAB; id++) {
            float noise = noise_of(set.seed, position, id), top = noise_of(set.seed, position, 0);
            if (noise < 13) continue;
            for (int i = 0; i < VOCAB; i++)
                logits[i] = i ? -60.0f : 0.0f;
            logits[id] = top - noise + 0.01f;
            assert_int_equal(sampler_draw(s, logits, (int64_t)position), id);
            assert_int_equal(sampler_draw(listed, logits, (int64_t)position), id);
            logits[id] = top - noise - 0.01f;
            assert_int_equal(sampler_draw(s, logits, (int64_t)position), 0);
            found++;
        }
    sampler_close(s);
    sampler_close(listed);
}

/* ---- bias and penalties ---- */

static void a_bias_of_minus_infinity_forbids(void **state) {
    (void)state;
    enum { VOCAB = 130 };
    float logits[VOCAB];
    struct reel_logit_bias bias[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)i;
        bias[i] = (struct reel_logit_bias){ i, i == 3 ? -5.0f : -INFINITY };
    }
    struct reel_sampling set = plain(0);
    set.bias = bias;
    set.n_bias = VOCAB;
    for (int t = 0; t < 2; t++) {
        set.temperature = (float)t;
        struct sampler *s = open_with(VOCAB, &set);
        assert_int_equal(sampler_draw(s, logits, 1), 3);
        assert_true(logits[129] == 129.0f); /* the caller's logits are not changed */
        sampler_close(s);
    }
    bias[3].bias = -INFINITY;
    struct sampler *s = open_with(VOCAB, &set);
    assert_int_equal(sampler_draw(s, logits, 1), -1);
    sampler_close(s);
}

static void penalties_follow_their_definitions(void **state) {
    (void)state;
    float logits[6] = { 4.0f, 3.9f, -1.0f, 0, 0, 0 };
    struct reel_sampling set = plain(0);
    set.repetition_penalty = 2;
    struct sampler *s = open_with(6, &set);
    assert_int_equal(sampler_draw(s, logits, 0), 0);
    sampler_saw_prompt(s, 0); /* 4.0 / 2 */
    sampler_saw_prompt(s, -1);
    assert_int_equal(sampler_draw(s, logits, 1), 1);
    sampler_saw_generated(s, 1);
    sampler_saw_generated(s, 1); /* once, however often: 3.9 / 2 */
    assert_int_equal(sampler_draw(s, logits, 2), 0);
    logits[0] = logits[1] = -1; /* negative ones are multiplied: -2 */
    for (int i = 3; i < 6; i++)
        logits[i] = -10;
    assert_int_equal(sampler_draw(s, logits, 3), 2);

    set = plain(0);
    set.presence_penalty = 0.5f;
    set.frequency_penalty = 0.25f;
    struct reel_error err;
    assert_int_equal(sampler_start(s, &set, &err), REEL_OK); /* forgets what was seen */
    float near[6] = { 4.0f, 3.5f, 3.0f, 0, 0, 0 };
    sampler_saw_prompt(s, 0); /* only generated ids count */
    assert_int_equal(sampler_draw(s, near, 0), 0);
    sampler_saw_generated(s, 0); /* 4 - 0.5 - 0.25 */
    assert_int_equal(sampler_draw(s, near, 1), 1);
    near[0] = 4.25f; /* now 3.5: a tie, the lowest id */
    assert_int_equal(sampler_draw(s, near, 1), 0);
    sampler_saw_generated(s, 0); /* 4.25 - 0.5 - 0.5 */
    assert_int_equal(sampler_draw(s, near, 2), 1);
    near[0] = 4.5f; /* a tie again; were the two mixed up, 4.5 - 0.25 - 1 */
    assert_int_equal(sampler_draw(s, near, 2), 0);
    sampler_close(s);
}

static void settings_outside_their_range_are_refused_in_words(void **state) {
    (void)state;
    struct reel_sampling bad[14];
    struct reel_logit_bias bias = { 10, 0 }, nan_bias = { 1, NAN }, inf_bias = { 1, INFINITY };
    for (int i = 0; i < 14; i++)
        bad[i] = plain(1);
    bad[0].temperature = -1;
    bad[1].temperature = NAN;
    bad[2].top_k = -1;
    bad[3].top_p = 1.5f;
    bad[4].top_p = NAN;
    bad[5].min_p = -0.1f;
    bad[6].repetition_penalty = -1;
    bad[7].presence_penalty = INFINITY;
    bad[8].frequency_penalty = NAN;
    bad[9].n_bias = 1;
    bad[10].n_bias = 1, bad[10].bias = &bias;
    bad[11].n_bias = 1, bad[11].bias = &nan_bias;
    bad[12].n_bias = 1, bad[12].bias = &inf_bias;
    bad[13].size = 0;
    struct sampler *s = open_with(10, NULL);
    for (int i = 0; i < 14; i++) {
        struct reel_error err = { 0 };
        assert_int_equal(sampler_start(s, &bad[i], &err), REEL_E_ARGUMENT);
        assert_true(strlen(err.text) > 20);
    }
    sampler_close(s);
}

/* ---- log-probabilities ---- */

static void logprobs_equal_double_precision(void **state) {
    (void)state;
    enum { VOCAB = 1003 };
    float logits[VOCAB];
    struct reel_top_logprob top[REEL_MAX_TOP_LOGPROBS];
    random_state = 5;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = roundf(40 * random_normal()) / 8;
    logits[500] = NAN;
    logits[501] = -INFINITY;
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        if (!isnan(logits[i])) sum += exp((double)logits[i]);
    struct sampler *s = open_with(VOCAB, NULL);
    float logprob;
    for (int id = 0; id < VOCAB; id += 17) {
        assert_int_equal(sampler_logprobs(s, logits, id, &logprob, top, 20), 20);
        assert_true(fabs((double)logprob - ((double)logits[id] - log(sum))) < 1e-5);
    }
    static struct plain_id kept[VOCAB];
    struct reel_sampling all = plain(1);
    plain_keep(logits, VOCAB, &all, kept);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(top[i].id, kept[i].id);
        assert_true(fabs((double)top[i].logprob - log(kept[i].p)) < 1e-5);
    }
    sampler_close(s);
    s = open_with(3, NULL);
    float few[3] = { NAN, 1, -INFINITY };
    assert_int_equal(sampler_logprobs(s, few, 1, &logprob, top, 3), 1);
    assert_true(top[0].id == 1 && logprob == 0.0f && top[0].logprob == 0.0f);
    sampler_close(s);
}

static void selection_is_right_for_any_k(void **state) {
    (void)state;
    enum { N = 1000 };
    static float values[N], block_max[N], scratch[N];
    static struct plain_id kept[N];
    static int32_t ids[N];
    random_state = 11;
    for (int round = 0; round < 200; round++) {
        int n = 1 + (int)(random_bits() % N), k = 1 + (int)(random_bits() % (uint64_t)n);
        for (int i = 0; i < n; i++)
            values[i] = round & 1 ? roundf(2 * random_normal()) : random_normal() * 1e30f;
        struct reel_sampling set = plain(1);
        set.top_k = k;
        int want = plain_keep(values, n, &set, kept);
        assert_true(logits_kth_largest(values, n, k) == (float)kept[k - 1].logit);
        logits_block_max(values, n, block_max);
        assert_int_equal(logits_top(values, n, block_max, k, ids, scratch), want);
        for (int i = 0; i + 1 < want; i++)
            assert_true(ids[i] < ids[i + 1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_id_of_the_largest),
        cmocka_unit_test(nan_and_minus_infinity_are_never_drawn),
        cmocka_unit_test(draws_equal_those_of_the_plain_sampler),
        cmocka_unit_test(frequencies_follow_the_probabilities),
        cmocka_unit_test(draws_at_neighbouring_positions_and_seeds_are_independent),
        cmocka_unit_test(the_same_seed_and_position_give_the_same_id),
        cmocka_unit_test(top_k_keeps_ties_with_the_kth),
        cmocka_unit_test(top_p_keeps_the_lowest_ids_of_equal_ones),
        cmocka_unit_test(top_p_looks_at_what_top_k_left),
        cmocka_unit_test(min_p_of_one_keeps_only_the_most_likely),
        cmocka_unit_test(tiny_and_huge_temperatures_keep_their_meaning),
        cmocka_unit_test(an_unlikely_id_wins_when_its_noise_is_large),
        cmocka_unit_test(a_bias_of_minus_infinity_forbids),
        cmocka_unit_test(penalties_follow_their_definitions),
        cmocka_unit_test(settings_outside_their_range_are_refused_in_words),
        cmocka_unit_test(logprobs_equal_double_precision),
        cmocka_unit_test(selection_is_right_for_any_k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
