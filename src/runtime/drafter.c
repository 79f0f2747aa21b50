#include "runtime/drafter.h"

#include "base/memory.h"

#include <string.h>

enum {
    HASH_BITS = 15,
    CANDIDATES = 64,  /* places that are looked at for a guess, the last first */
    LONGEST = 24,     /* ids that are compared */
    REMEMBERED = 128, /* guesses of a class; then the older ones count half */
    FOLLOWED = 4,     /* ids that have to be the same for a text to be followed */
    ASTRAY = 6,       /* ids that another text may have meanwhile */
};

/* How many guesses of a draft layer or model are taken to be right before it has shown what it
 * knows. */
static float first_share(enum guess_source source) {
    return source == GUESS_BY_LAYER ? 0.8F : 0.7F;
}

static uint32_t pair_hash(const int32_t *last) {
    const uint64_t pair = (uint64_t)(uint32_t)last[-1] << 32 | (uint32_t)last[0];
    return (uint32_t)(pair * 0x9e3779b97f4a7c15u >> (64 - HASH_BITS));
}

/* Before anything was tried: guesses that count as made, and how many of them were right. They are
 * those of chat, which repeats itself little. */
static void expect_little(struct drafter *d) {
    static const float shares[DRAFTER_CLASSES] = { 0.2F,  0.2F,  0.35F, 0.5F,
                                                   0.65F, 0.75F, 0.85F, 0.9F };
    for (int i = 0; i < DRAFTER_CLASSES; i++) {
        d->classes[i].tried = 4;
        d->classes[i].right = 4 * shares[i];
    }
    for (int i = 0; i < GUESS_MOST; i++) {
        for (enum guess_source s = GUESS_BY_LAYER; s <= GUESS_BY_MODEL; s++)
            d->steps[s][i] = (struct tally){ .right = 4 * first_share(s), .tried = 4 };
    }
}

enum reel_status drafter_open(struct drafter *d, int max_ids, struct reel_error *err) {
    const size_t n = (size_t)max_ids;
    *d = (struct drafter){ .max_ids = max_ids };
    expect_little(d);
    enum reel_status status = mem_zeroed(&d->ids, n, sizeof *d->ids, "ids for drafts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->before, n, sizeof *d->before, "places for drafts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->last_seen, (size_t)1 << HASH_BITS, sizeof *d->last_seen,
                            "places for drafts", err);
    return status;
}

void drafter_close(struct drafter *d) {
    mem_free(d->ids);
    mem_free(d->before);
    mem_free(d->last_seen);
    *d = (struct drafter){ 0 };
}

void drafter_follow(struct drafter *d, const int32_t *ids, int n) {
    int same = 0;
    while (same < n && same < d->n && d->ids[same] == ids[same])
        same++;
    if (same < d->n_indexed || n <= d->n_indexed) { /* the last pair must not find itself */
        memset(d->last_seen, 0, sizeof *d->last_seen << HASH_BITS);
        d->n_indexed = 0;
    }
    memcpy(d->ids + same, ids + same, (size_t)(n - same) * sizeof *ids);
    d->n = n;
    d->n_drafts = 0;
    d->followed = 0;
}

/* All pairs but the last one, which nothing follows yet. */
static void add_pairs(struct drafter *d) {
    for (int end = d->n_indexed > 1 ? d->n_indexed : 1; end < d->n - 1; end++) {
        int32_t *seen = &d->last_seen[pair_hash(&d->ids[end])];
        d->before[end] = *seen;
        *seen = 1 + end;
    }
    if (d->n > 0 && d->n_indexed < d->n - 1) d->n_indexed = d->n - 1;
}

/* How many ids up to `end` are those at the end of the session. */
static int same_ids(const struct drafter *d, int end) {
    const int32_t *there = &d->ids[end], *here = &d->ids[d->n - 1];
    int n = 0;
    while (n <= end && n < LONGEST && there[-n] == here[-n] && here[-n] >= 0)
        n++;
    return n;
}

/* Where the most of the last ids stood before, at best lately; *length: how many. 0: nowhere. */
static int find_place(const struct drafter *d, int *length) {
    int best = 0, left = CANDIDATES;
    *length = 1;
    for (int at = d->last_seen[pair_hash(&d->ids[d->n - 1])]; at > 0 && left-- > 0;
         at = d->before[at - 1]) {
        const int n = same_ids(d, at - 1);
        if (n > *length) {
            *length = n;
            best = at;
        }
        if (n == LONGEST) break;
    }
    return best;
}

static int class_of(int length) {
    static const int up_to[DRAFTER_CLASSES - 1] = { 1, 2, 3, 4, 6, 9, 15 };
    int class = 0;
    while (class < DRAFTER_CLASSES - 1 && length > up_to[class])
        class ++;
    return class;
}

static float chance_of(const struct drafter *d, int length) {
    const int class = class_of(length);
    return d->classes[class].right / d->classes[class].tried;
}

/* As find_place. A text that was followed until a word was another one goes on, unless what stood
 * there before says more; its length then is 1. */
static int find_next(struct drafter *d, int *length) {
    const int next = find_place(d, length);
    const bool follows = d->followed > 0 && d->followed < d->n && d->astray <= ASTRAY;
    if (*length >= FOLLOWED) {
        d->followed = next;
        d->astray = 0;
    } else if (follows && (next == 0 || chance_of(d, *length) < chance_of(d, 1))) {
        *length = 1;
        return d->followed;
    }
    return next;
}

void drafter_guess(struct drafter *d, struct guess *guess, int most) {
    int length;
    guess->n = 0;
    guess->source = GUESS_BY_IDS;
    if (most > GUESS_MOST) most = GUESS_MOST;
    add_pairs(d);
    const int next = d->n < 3 ? 0 : find_next(d, &length);
    if (next == 0) return;
    d->length = length;
    for (int i = 0; i < most; i++) {
        const int at = next + i; /* what would follow the end is what the guess itself says */
        const int32_t id = at < d->n ? d->ids[at] : guess->ids[at - d->n];
        if (id < 0) return;
        guess->ids[i] = id;
        guess->chance[i] = chance_of(d, length + i);
        guess->n = i + 1;
    }
}

float drafter_step_chance(const struct drafter *d, enum guess_source source, int i) {
    return d->steps[source][i].right / d->steps[source][i].tried;
}

static void count(struct tally *tally, float right, float tried) {
    if (tally->tried >= REMEMBERED) {
        tally->tried /= 2;
        tally->right /= 2;
    }
    tally->tried += tried;
    tally->right += right;
}

void drafter_hope(struct drafter *d, enum guess_source source, float weight) {
    for (int i = 0; i < GUESS_MOST; i++)
        count(&d->steps[source][i], weight * first_share(source), weight);
}

void drafter_takes(struct drafter *d, const struct guess *guess, int n) {
    d->source = guess->source;
    memcpy(d->drafts, guess->ids, (size_t)n * sizeof *d->drafts);
    d->n_drafts = n;
    d->n_right = 0;
}

bool drafter_saw(struct drafter *d, int32_t id) {
    bool right = false;
    if (d->n_right < d->n_drafts) {
        right = d->drafts[d->n_right] == id;
        count(d->source == GUESS_BY_IDS ? &d->classes[class_of(d->length + d->n_right)]
                                        : &d->steps[d->source][d->n_right],
              right ? 1 : 0, 1);
        d->n_right = right ? d->n_right + 1 : d->n_drafts;
    }
    if (d->n < d->max_ids) d->ids[d->n++] = id;
    d->followed += d->followed > 0;
    d->astray++;
    return right;
}
