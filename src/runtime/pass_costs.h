/* What a pass costs by its columns, as measured, and from that how many drafts are worth theirs. */
#ifndef REEL_RUNTIME_PASS_COSTS_H
#define REEL_RUNTIME_PASS_COSTS_H

#include <stdbool.h>

enum { PASS_COSTS_MOST = 8 };

/* Zeroed before its first use, but for column_share. */
struct pass_costs {
    double column_share; /* of a pass of one, that a further column is taken to cost until that is
                            measured */
    double ms[PASS_COSTS_MOST + 1];    /* by columns; 0: none was measured lately */
    int measured[PASS_COSTS_MOST + 1]; /* when, counted in passes */
    int n_passes;
    double spent_ms; /* on all passes */
    double lead_ms;  /* that drafts have saved, of late; below 0: that they have cost */
};

/* A generation begins: what drafts have saved in others is not lost in this one. */
void pass_costs_begin(struct pass_costs *c);

/* A pass of so many columns, `n_own` of which are no drafts, made so many ids. */
void pass_costs_saw(struct pass_costs *c, int n_columns, int n_own, int n_ids, double ms);
/* So many passes in a row, of which one column is no draft, made so many ids in all. n_passes 0: a
 * change from drafts to none took so long, and so many ids came with it; drafts pay for it. */
void pass_costs_saw_some(struct pass_costs *c, int n_columns, int n_passes, int n_ids, double ms);

/* Guesses that were no part of a pass took so long; drafts pay for it. */
void pass_costs_pay(struct pass_costs *c, double ms);

/* What one more guess takes, ahead of the pass that checks it. */
struct guess_cost {
    double ms;    /* as measured; 0: it was not yet, and is taken for */
    double share; /* so much of a pass of one */
};

struct pass_choice {
    int n;        /* drafts */
    double speed; /* ids a millisecond; 0: not known */
};

/* How many of n drafts make ids come fastest, beside n_columns whose ids are `expected` ids on
 * average, and how fast ids then come. chance: as in struct guess; guess: what guesses cost, NULL:
 * nothing. None before a pass without drafts was measured, or when drafts have cost more than a
 * hundredth of the time so far. least: so many are taken whatever they cost and have cost. */
struct pass_choice pass_costs_choose(const struct pass_costs *c, int n_columns, double expected,
                                     const float *chance, int n, const struct guess_cost *guess,
                                     int least);

struct turn;

/* What a pass has for one session's drafts, and what it costs. */
struct pass_room {
    int most; /* drafts */
    struct pass_costs *costs;
    int n_columns;     /* that it has without them, */
    double expected;   /* and the ids of those, on average */
    bool is_shared;    /* with other sessions, which wait while somebody guesses */
    struct turn *turn; /* at this model, which the caller has: lent while another model guesses, but
                          not while this one's layer does; NULL: there is none to lend */
};

#endif
