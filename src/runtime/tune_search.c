#include "runtime/tune_search.h"

enum { MOST_ROUNDS = 3 };
#define BETTER 1.005 /* medians of short runs differ by less */

static void axis_add(struct tune_axis *axis, int value) {
    if (axis->n == TUNE_MOST_VALUES) return;
    int i = axis->n;
    while (i > 0 && axis->values[i - 1] > value)
        i--;
    if (i > 0 && axis->values[i - 1] == value) return;
    for (int j = axis->n++; j > i; j--)
        axis->values[j] = axis->values[j - 1];
    axis->values[i] = value;
}

static void axis_choose(struct tune_axis *axis, int value) {
    for (int i = 0; i < axis->n; i++)
        if (axis->values[i] == value) axis->at = i;
}

void tune_axis_steps(struct tune_axis *axis, const char *name, int least, int most, int now) {
    const int step = (most - least) / (TUNE_MOST_VALUES - 2) + 1;
    *axis = (struct tune_axis){ .name = name };
    axis_add(axis, now);
    for (int value = least; value <= most; value += step)
        axis_add(axis, value);
    axis_choose(axis, now);
}

void tune_axis_powers(struct tune_axis *axis, const char *name, int least, int most, int now) {
    *axis = (struct tune_axis){ .name = name };
    axis_add(axis, now);
    for (long long value = least; value <= most && value < 1 << 30; value *= 2)
        axis_add(axis, (int)value);
    axis_choose(axis, now);
}

static bool is_time_over(const struct tune_search *s) {
    return s->time_over && s->time_over(s->user);
}

/* Whether values[to] of the axis beats what is taken; takes it then. */
static enum reel_status try_value(struct tune_search *s, int axis, int to, bool *kept,
                                  struct reel_error *err) {
    struct tune_axis *a = &s->axes[axis];
    const int from = a->at;
    double score = 0, again = 0, before = 0;
    *kept = false;
    a->at = to;
    enum reel_status status = s->measure(s->user, s, &score, err);
    if (status == REEL_OK && score > s->best * BETTER) {
        a->at = from;
        status = s->measure(s->user, s, &before, err);
        a->at = to;
        if (status == REEL_OK) status = s->measure(s->user, s, &again, err);
        *kept = status == REEL_OK && again > before * BETTER;
    }
    if (status == REEL_OK && s->tried) s->tried(s->user, s, axis, score, s->best, *kept);
    if (*kept)
        s->best = score < again ? score : again;
    else
        a->at = from;
    return status;
}

/* Up, or else down, as long as it gets better. */
static enum reel_status climb_axes(struct tune_search *s, int axis, bool *moved,
                                   struct reel_error *err) {
    struct tune_axis *a = &s->axes[axis];
    enum reel_status status = REEL_OK;
    for (int way = 1, went = 0; way >= -1 && !went && status == REEL_OK; way -= 2) {
        bool kept = true;
        while (kept && a->at + way >= 0 && a->at + way < a->n && status == REEL_OK &&
               !is_time_over(s)) {
            status = try_value(s, axis, a->at + way, &kept, err);
            if (kept) went = 1, *moved = true;
        }
    }
    return status;
}

enum reel_status tune_search(struct tune_search *s, struct reel_error *err) {
    enum reel_status status = s->measure(s->user, s, &s->best, err);
    bool moved = true;
    for (int round = 0; round < MOST_ROUNDS && moved && status == REEL_OK; round++) {
        moved = false;
        for (int axis = 0; axis < s->n_axes && status == REEL_OK && !is_time_over(s); axis++)
            status = climb_axes(s, axis, &moved, err);
    }
    return status;
}
