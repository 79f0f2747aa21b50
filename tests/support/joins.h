/* Sessions of one model that come and go at random, from many threads: each opens, reads a prompt,
 * generates a while in calls of every kind, and leaves early or late. Every id is compared with
 * what the same prompt and sampling give alone. Uses the public calls only, so that a program
 * (bench/joins.c) can do the same on a GPU. */
#ifndef REEL_TESTS_JOINS_H
#define REEL_TESTS_JOINS_H

#include "reel.h"

struct joins_plan {
    const struct reel_model *model;
    int n_threads;
    int n_stories;      /* prompts, each with a sampling of its own */
    int longest_prompt; /* at least 2 */
    int most_tokens;    /* that a story has alone, and a session generates at most */
    uint64_t n_joins;   /* calls that generate, after which it ends; 0: no limit */
    double seconds;     /* after which it ends; 0: no limit */
    uint64_t seed;
    bool copies; /* sessions move by copy and by snapshot, too */
    bool calm;   /* nobody cancels a session from outside */
    int n_kinds; /* of speculation, from none on; 0: all that the model has */
    /* Called every few seconds on the calling thread, or NULL. */
    void (*tell)(uint64_t n_joins, uint64_t n_tokens, double seconds, size_t resident_bytes);
};

/* Bytes that the process held, looked at all along: their mean over the second and over the last
 * third of the joins or of the time, and the most. The first third is for warming up. */
struct joins_memory {
    double early, late;
    double most;
};

struct joins_result {
    uint64_t n_joins, n_tokens;
    uint64_t n_sessions;            /* opened */
    uint64_t n_cancelled;           /* calls that another thread or a callback cancelled */
    uint64_t n_wrong;               /* ids that differ; it ends with the first */
    uint64_t n_drafted, n_accepted; /* guesses that passes checked, and that were right */
    double seconds;
    struct joins_memory resident;
    /* What malloc has handed out; what was freed and the C library keeps is not in it. Zeros where
     * the C library does not say. */
    struct joins_memory in_use;
    char wrong[240]; /* the first id that differs */
};

/* REEL_E_MISMATCH when an id, a count or a session's content is wrong; result->wrong says which.
 * Other statuses are of the first call that failed. */
enum reel_status joins_run(const struct joins_plan *plan, struct joins_result *result,
                           struct reel_error *err);

#endif
