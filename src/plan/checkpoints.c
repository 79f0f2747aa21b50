#include "plan/checkpoints.h"

void checkpoints_reset(struct checkpoints *c, int n_positions) {
    *c = (struct checkpoints){ .n_positions = n_positions };
}

int checkpoints_find(const struct checkpoints *c, int position) {
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (c->position[i] == position) return i;
    return CHECKPOINT_NONE;
}

int checkpoints_resume(const struct checkpoints *c, int n) {
    int best = c->n_positions >= 0 && c->n_positions <= n ? c->n_positions : 0;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (c->position[i] <= n && c->position[i] > best) best = c->position[i];
    return best;
}

int checkpoints_go(struct checkpoints *c, int position) {
    int from = CHECKPOINT_NONE;
    if (c->n_positions != position)
        from = position == 0 ? CHECKPOINT_ZERO : checkpoints_find(c, position);
    c->n_positions = position;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (c->position[i] > position) c->position[i] = 0;
    return from;
}

/* What losing slot i costs: the positions between it and the next slot would begin at the slot
 * before it. That matters less the further they lie from `end`. So the slots that are kept lie
 * about evenly on a logarithm's scale. */
static double worth(const struct checkpoints *c, int i, int end) {
    int at = c->position[i], before = 0, after = end;
    for (int j = 0; j < MEMORY_PLAN_CHECKPOINTS; j++) {
        int other = c->position[j];
        if (other < at && other > before) before = other;
        if (other > at && other < after) after = other;
    }
    return (double)(after - at) * (double)(at - before) / (double)(end - at + 1);
}

int checkpoints_take(struct checkpoints *c, int end, int spared) {
    int best = CHECKPOINT_NONE;
    double least = 0;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++) {
        if (c->position[i] && (c->position[i] == spared || c->position[i] == end - 1)) continue;
        double value = c->position[i] ? worth(c, i, end) : -1;
        if (best >= 0 && value >= least) continue;
        best = i;
        least = value;
    }
    c->position[best] = 0;
    return best;
}

int checkpoints_keep(struct checkpoints *c, int position, int spared) {
    if (position == 0 || checkpoints_find(c, position) >= 0) return CHECKPOINT_NONE;
    int slot = checkpoints_take(c, position, spared);
    c->position[slot] = position;
    return slot;
}
