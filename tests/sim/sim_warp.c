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

/* d[r] += a[r][0] b[0] + a[r][1] b[1] ..., in this order, for ROWS_AT_ONCE rows. */
static void rows_add(quad (*d)[2], const float (*a)[16], const quad (*b)[2]) {
    quad sums[ROWS_AT_ONCE][2];
    memcpy(sums, d, sizeof sums);
    for (int k = 0; k < 16; k++) {
        const quad low = b[k][0], high = b[k][1];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS_AT_ONCE; r++)
            sums[r][0] += a[r][k] * low, sums[r][1] += a[r][k] * high;
    }
    memcpy(d, sums, sizeof sums);
}

/* The layout of mma.m16n8k16: A as kernels/tape.h says; B: lane 4 column + k % 8 / 2 has k and k +
 * 1 in its first register and k + 8 and k + 9 in its second; D: lane 4 (row % 8) + column / 2. */
static void product(const struct sim_lane_product lanes[SIM_LANES]) {
    float a[16][16];
    quad b[16][2], d[16][2];
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const struct sim_lane_product *p = &lanes[lane];
        int row = lane / 4, k = lane % 4 * 2, column = lane / 4;
        for (int reg = 0; reg < 4; reg++) {
            a[row + reg % 2 * 8][k + reg / 2 * 8] = pair_low(p->a[reg]);
            a[row + reg % 2 * 8][k + reg / 2 * 8 + 1] = pair_high(p->a[reg]);
        }
        for (int reg = 0; reg < 2; reg++) {
            b[k + reg * 8][column / 4][column % 4] = pair_low(p->b[reg]);
            b[k + reg * 8 + 1][column / 4][column % 4] = pair_high(p->b[reg]);
        }
        for (int i = 0; i < 2; i++)
            memcpy((float *)d[row + i * 8] + k, p->d + 2 * i, 2 * sizeof(float));
    }
    for (int r = 0; r < 16; r += ROWS_AT_ONCE)
        rows_add(d + r, a + r, b);
    for (int lane = 0; lane < SIM_LANES; lane++)
        for (int i = 0; i < 2; i++)
            memcpy(lanes[lane].d + 2 * i, (float *)d[lane / 4 + i * 8] + lane % 4 * 2,
                   2 * sizeof(float));
}

static void meet_complete(struct sim_warp *w) {
    w->at_op = 0;
    w->ready = w->all & ~w->done;
    w->turn ^= 1, w->votes[w->turn] = 0;
    w->rotation = sim_random();
    sim.ticks++;
    sim.budget -= SIM_OP_COST;
    if (w->op == OP_SYNC) warp_fence(w);
    if (w->op == OP_MMA) product(w->product);
    if (w->op == OP_BARRIER) sim_barrier_reached(w);
}

static const char *op_name(enum sim_op op) {
    static const char *const names[] = { "nothing", "warp_sync", "a shuffle",
                                         "a vote",  "tile_mma",  "a barrier" };
    return names[op];
}

void sim_meet(enum sim_op op, int a, int b, void *where) {
    struct sim_thread *t = sim.current;
    struct sim_warp *w = t->warp;
    t->where = where;
    if (!w->at_op) {
        w->op = op, w->op_a = a, w->op_b = b;
    } else if (w->op != op || w->op_a != a || w->op_b != b) {
        sim_fail("this lane is at %s (%d, %d), others of its warp at %s (%d, %d)", op_name(op), a,
                 b, op_name(w->op), w->op_a, w->op_b);
    }
    w->at_op |= 1u << t->lane, w->idle.met |= 1u << t->lane;
    w->ready &= ~(1u << t->lane);
    if (w->at_op == w->all) {
        meet_complete(w);
    } else if (!w->ready) {
        sim_fail("this lane is at %s, which a lane that has returned never reaches", op_name(op));
    }
    sim_next_lane(w);
}

void sim_warp_sync(void) { sim_meet(OP_SYNC, 0, 0, SIM_HERE); }

/* Results stay where they are until all lanes have come to the next operation, the one after
 * writes elsewhere. */
unsigned sim_shuffle(unsigned value, int lane) {
    struct sim_thread *t = sim.current;
    struct sim_warp *w = t->warp;
    unsigned turn = w->turn;
    w->value[turn][t->lane] = value;
    sim_meet(OP_SHUFFLE, 0, 0, SIM_HERE);
    return w->value[turn][lane];
}

unsigned sim_ballot(int yes) {
    struct sim_thread *t = sim.current;
    struct sim_warp *w = t->warp;
    unsigned turn = w->turn;
    if (yes) w->votes[turn] |= 1u << t->lane;
    sim_meet(OP_VOTE, 0, 0, SIM_HERE);
    return w->votes[turn];
}

void sim_mma(float d[4], const unsigned a[4], unsigned b0, unsigned b1) {
    struct sim_thread *t = sim.current;
    t->warp->product[t->lane] = (struct sim_lane_product){ d, a, { b0, b1 } };
    sim_meet(OP_MMA, 0, 0, SIM_HERE);
}
