/* Operations at which the lanes of a warp meet. */
#include "sim_state.h"

#include <string.h>

static void warp_fence(struct sim_warp *w) { w->clock.seen[w->index] = w->block->seq; }

static float pair_low(unsigned pair) {
    unsigned bits = pair << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static float pair_high(unsigned pair) {
    unsigned bits = pair & 0xffff0000u;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Four columns, which any machine holds in one register. */
typedef float quad __attribute__((vector_size(4 * sizeof(float))));

enum { ROWS_AT_ONCE = 4 }; /* sums that do not wait for one another */

/* d[r] += a[r][0] b[0] + a[r][1] b[1] ..., in this order. */
static void product(struct sim_product *p) {
    quad b[16][2];
    memcpy(b, p->b, sizeof b);
    for (int row = 0; row < 16; row += ROWS_AT_ONCE) {
        quad sums[ROWS_AT_ONCE][2];
        memcpy(sums, p->d + row, sizeof sums);
        for (int k = 0; k < 16; k++) {
#pragma GCC unroll 4
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                const float a = p->a[row + r][k];
                sums[r][0] += a * b[k][0], sums[r][1] += a * b[k][1];
            }
        }
        memcpy(p->d + row, sums, sizeof sums);
    }
}

static void meet_complete(struct sim_warp *w) {
    w->at_op = 0;
    w->ready = w->all & ~w->done;
    w->turn ^= 1, w->votes[w->turn] = 0;
    w->rotation = sim_random();
    sim.ticks++;
    sim.budget -= SIM_OP_COST;
    if (w->op == OP_SYNC) warp_fence(w);
    if (w->op == OP_MMA) product(&w->product);
    if (w->op == OP_BARRIER) sim_barrier_reached(w);
}

static const char *op_name(enum sim_op op) {
    static const char *const names[] = { "nothing", "warp_sync", "a shuffle",
                                         "a vote",  "tile_mma",  "a barrier" };
    return names[op];
}

static void meet_refused(const struct sim_warp *w, enum sim_op op, int a, int b) {
    sim_fail("this lane is at %s (%d, %d), others of its warp at %s (%d, %d)", op_name(op), a, b,
             op_name(w->op), w->op_a, w->op_b);
}

__attribute__((always_inline)) static inline void meet(struct sim_warp *w, enum sim_op op, int a,
                                                       int b, void *where) {
    const uint32_t bit = 1u << sim.lane;
    w->where[sim.lane] = where;
    if (!w->at_op)
        w->op = op, w->op_a = a, w->op_b = b;
    else if (w->op != op || w->op_a != a || w->op_b != b)
        meet_refused(w, op, a, b);
    w->at_op |= bit, w->idle.met |= bit;
    w->ready &= ~bit;
    if (w->at_op == w->all)
        meet_complete(w);
    else if (!w->ready)
        sim_fail("this lane is at %s, which a lane that has returned never reaches", op_name(op));
    sim_next_lane(w);
}

void sim_meet(enum sim_op op, int a, int b, void *where) { meet(sim.warp, op, a, b, where); }

void sim_warp_sync(void) { meet(sim.warp, OP_SYNC, 0, 0, SIM_HERE); }

/* Results stay where they are until all lanes have come to the next operation, the one after
 * writes elsewhere. */
unsigned sim_shuffle(unsigned value, int lane) {
    struct sim_warp *w = sim.warp;
    unsigned turn = w->turn;
    w->value[turn][sim.lane] = value;
    meet(w, OP_SHUFFLE, 0, 0, SIM_HERE);
    return w->value[turn][lane];
}

unsigned sim_ballot(int yes) {
    struct sim_warp *w = sim.warp;
    unsigned turn = w->turn;
    if (yes) w->votes[turn] |= 1u << sim.lane;
    meet(w, OP_VOTE, 0, 0, SIM_HERE);
    return w->votes[turn];
}

/* The layout of mma.m16n8k16: A as kernels/tape.h says; B: lane 4 column + k % 8 / 2 has k and k +
 * 1 in its first register and k + 8 and k + 9 in its second; D: lane 4 (row % 8) + column / 2. */
void sim_mma(float d[4], const unsigned a[4], unsigned b0, unsigned b1) {
    struct sim_warp *w = sim.warp;
    struct sim_product *p = &w->product;
    const unsigned b[2] = { b0, b1 };
    const int row = sim.lane / 4, column = sim.lane / 4, k = sim.lane % 4 * 2;
    for (int reg = 0; reg < 4; reg++) {
        p->a[row + reg % 2 * 8][k + reg / 2 * 8] = pair_low(a[reg]);
        p->a[row + reg % 2 * 8][k + reg / 2 * 8 + 1] = pair_high(a[reg]);
    }
    for (int reg = 0; reg < 2; reg++) {
        p->b[k + reg * 8][column] = pair_low(b[reg]);
        p->b[k + reg * 8 + 1][column] = pair_high(b[reg]);
    }
    for (int i = 0; i < 2; i++)
        memcpy(&p->d[row + i * 8][k], d + 2 * i, 2 * sizeof *d);
    meet(w, OP_MMA, 0, 0, SIM_HERE);
    for (int i = 0; i < 2; i++)
        memcpy(d + 2 * i, &p->d[row + i * 8][k], 2 * sizeof *d);
}
