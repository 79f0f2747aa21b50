/* Coordinate descent over a few settings, each an ordered list of values. Knows nothing of GPUs. */
#ifndef REEL_RUNTIME_TUNE_SEARCH_H
#define REEL_RUNTIME_TUNE_SEARCH_H

#include "base/error.h"

enum { TUNE_MOST_AXES = 4, TUNE_MOST_VALUES = 32 };

struct tune_axis {
    const char *name;
    int values[TUNE_MOST_VALUES];
    int n, at; /* the value now taken */
};

struct tune_search {
    struct tune_axis axes[TUNE_MOST_AXES];
    int n_axes;
    /* *score of the values now taken, larger is better; 0: these values are out of the question. */
    enum reel_status (*measure)(void *user, const struct tune_search *search, double *score,
                                struct reel_error *err);
    /* Told of each value tried, before it is taken back where it was not kept; or NULL. */
    void (*tried)(void *user, const struct tune_search *search, int axis, double score, double best,
                  bool kept);
    bool (*time_over)(void *user); /* or NULL */
    void *user;
    double best; /* score of the values taken at the end */
};

/* A value is kept when it is better by more than noise, twice: seen once, then measured again right
 * after what it is to replace. Ends with the best values taken. */
enum reel_status tune_search(struct tune_search *search, struct reel_error *err);

/* Fills axis with least, least + 1, ... most (thinned where they are too many), or with powers of
 * two and `most`, and takes `now`, which joins the list. */
void tune_axis_steps(struct tune_axis *axis, const char *name, int least, int most, int now);
void tune_axis_powers(struct tune_axis *axis, const char *name, int least, int most, int now);

#endif
