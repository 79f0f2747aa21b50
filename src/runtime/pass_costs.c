#include "runtime/pass_costs.h"

#include <stddef.h>
#include <stdint.h>

/* What drafts may cost before they have shown what they are worth. */
#define LOSS_SHARE 0.01
/* Passes' worth of what drafts have saved, that they may lose again. */
#define LEAD_MOST 16
/* What drafts have to be better by: costs are not known more exactly. */
#define MARGIN 0.03
/* A pass's cost is forgotten after so many others: contexts grow, machines are busy for a time. */
enum { MEMORY_PASSES = 512 };

/* Falls at once and rises slowly: what disturbs a pass makes it longer. */
static double follow(double old, double new) {
    if (old <= 0) return new;
    if (new < old) return old + 0.5 * (new - old);
    return old + 0.1 * ((new < 2 * old ? new : 2 * old) - old);
}

/* Of a pass of one; 0: nothing was measured. Where others decode beside it there is none such. */
static double cost_of_one(const struct pass_costs *c) {
    for (int i = 1; i <= PASS_COSTS_MOST; i++)
        if (c->ms[i] > 0) return c->ms[i] / (1 + c->column_share * (i - 1));
    return 0;
}

static double cost(const struct pass_costs *c, int n_columns) {
    const double one = cost_of_one(c);
    int below = n_columns;
    while (below > 1 && c->ms[below] <= 0)
        below--;
    double ms =
        (c->ms[below] > 0 ? c->ms[below] : one) + c->column_share * one * (n_columns - below);
    for (int above = n_columns + 1; below < n_columns && above <= PASS_COSTS_MOST; above++)
        if (c->ms[above] > 0 && c->ms[above] < ms) ms = c->ms[above];
    return ms;
}

void pass_costs_begin(struct pass_costs *c) {
    c->spent_ms = 0;
    c->lead_ms = 0;
}

static void lead_add(struct pass_costs *c, double ms) {
    const double most = LEAD_MOST * cost_of_one(c);
    c->lead_ms += ms;
    if (c->lead_ms > most) c->lead_ms = most;
}

void pass_costs_saw(struct pass_costs *c, int n_columns, int n_own, int n_ids, double ms) {
    c->n_passes++;
    for (int i = 2; i <= PASS_COSTS_MOST; i++)
        if (c->n_passes - c->measured[i] > MEMORY_PASSES) c->ms[i] = 0;
    c->ms[n_columns] = follow(c->ms[n_columns], ms);
    c->measured[n_columns] = c->n_passes;
    c->spent_ms += ms;
    if (n_columns > n_own) lead_add(c, cost(c, n_own) * n_ids / n_own - ms);
}

void pass_costs_saw_some(struct pass_costs *c, int n_columns, int n_passes, int n_ids, double ms) {
    if (n_passes == 0) {
        c->spent_ms += ms;
        lead_add(c, cost_of_one(c) * n_ids - ms);
    }
    for (int i = 0; i < n_passes; i++) {
        const int before = (int)((int64_t)n_ids * i / n_passes);
        const int after = (int)((int64_t)n_ids * (i + 1) / n_passes);
        pass_costs_saw(c, n_columns, 1, after - before, ms / n_passes);
    }
}

void pass_costs_pay(struct pass_costs *c, double ms) {
    c->spent_ms += ms;
    c->lead_ms -= ms;
}

struct pass_choice pass_costs_choose(const struct pass_costs *c, int n_columns, double expected,
                                     const float *chance, int n, const struct guess_cost *guess,
                                     int least) {
    const double one = cost_of_one(c);
    const double guess_ms = !guess ? 0 : guess->ms > 0 ? guess->ms : guess->share * one;
    double ids = expected, all_right = 1;
    struct pass_choice best = { least, 0 };
    if (one <= 0) return best;
    if (least == 0 && c->lead_ms < -one - LOSS_SHARE * c->spent_ms) n = 0;
    for (int i = 0; i <= n && n_columns + i <= PASS_COSTS_MOST; i++) {
        const double ms = cost(c, n_columns + i) + guess_ms * i;
        const double speed = ids / ms * (i > 0 ? 1 - MARGIN : 1);
        if (i >= least && speed > best.speed) best = (struct pass_choice){ i, speed };
        if (i == n) break;
        all_right *= (double)chance[i];
        ids += all_right;
    }
    return best;
}
