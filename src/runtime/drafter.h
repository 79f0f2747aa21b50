/* Guesses what comes next in a session from what stands in it already: where the last ids stood
 * before, what followed them then. A guess looks at a bounded number of places and reads no
 * weights; a pass checks it (backend_decode.draft).
 *
 * A drafter has its own copy of the session's ids, since the thread of the passes is ahead of the
 * session. */
#ifndef REEL_RUNTIME_DRAFTER_H
#define REEL_RUNTIME_DRAFTER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Ids of a guess at most: a pass has eight columns, of which one is that of the id before them; and
 * a guess may have to last for two passes. */
enum { GUESS_MOST = 15 };

/* Who guesses: the session's own ids, the model's draft layer, or a draft model. */
enum guess_source { GUESS_BY_IDS, GUESS_BY_LAYER, GUESS_BY_MODEL, N_GUESS_SOURCES };

struct guess {
    int n;
    enum guess_source source;
    int32_t ids[GUESS_MOST];
    float chance[GUESS_MOST]; /* that an id is right, if those before it are */
};

/* Lengths of what stood there before, in classes: 1, 2, 3, 4 ids, up to 6, 9, 15, and more. Class 0
 * is of ids behind one that was another than in the text that is followed. */
enum { DRAFTER_CLASSES = 8 };

struct drafter {
    int32_t *ids;       /* [n] of max_ids */
    int32_t *last_seen; /* by hash of two ids: 1 + where the last pair with it ends, or 0 */
    int32_t *before;    /* [n] the same for the pair with this one's hash before the one that ends
                           here */
    int n, max_ids;
    int n_indexed; /* pairs that end before this are found by last_seen */
    struct tally {
        float right, tried;
    } classes[DRAFTER_CLASSES]; /* what became of guesses, lately */
    /* The same of a layer's and of a model's: its first, its second ... */
    struct tally steps[N_GUESS_SOURCES][GUESS_MOST];
    enum guess_source source; /* of the drafts below */
    /* The last guess, as far as it was taken: what is seen next shows whether it was right. */
    int32_t drafts[GUESS_MOST];
    int n_drafts, n_right;
    int length; /* of what stood there before */
    /* The place that the last long match has led to: what would come next if the same text went on.
     */
    int followed; /* 0: none */
    int astray;   /* ids since such a match */
};

/* Memory that is not touched before there is a guess. */
enum reel_status drafter_open(struct drafter *d, int max_ids, struct reel_error *err);
void drafter_close(struct drafter *d);

/* The session holds these ids; -1 is none. What was learned about guesses stays. */
void drafter_follow(struct drafter *d, const int32_t *ids, int n);

/* At most `most` ids; none where the last two never stood together before. */
void drafter_guess(struct drafter *d, struct guess *guess, int most);
/* That guess i of a layer or a model is right where those before it were. */
float drafter_step_chance(const struct drafter *d, enum guess_source source, int i);
/* A layer or a model was not asked: what it was bad at counts less with each such pass, so that it
 * is tried again. weight: guesses that count as made meanwhile. */
void drafter_hope(struct drafter *d, enum guess_source source, float weight);
/* The first n of the last guess are drafts. */
void drafter_takes(struct drafter *d, const struct guess *guess, int n);
/* The next id. Returns whether it was a draft. */
bool drafter_saw(struct drafter *d, int32_t id);

#endif
