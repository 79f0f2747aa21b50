/* Named barriers, mbarriers and volatile words in a block's shared memory. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- named barriers ---- */

void sim_barrier(int id, int threads, int wait) {
    const struct sim_block *b = sim.warp->block;
    if (id < 0 || id >= SIM_NAMED) sim_fail("barrier %d: 0 to 15 are allowed", id);
    if (threads <= 0 || (id && threads % SIM_LANES) || threads > b->n_warps * SIM_LANES)
        sim_fail("barrier %d: %d threads, which is no multiple of 32 up to the block's", id,
                 threads);
    sim_meet(OP_BARRIER, id * 2 + (wait ? 1 : 0), threads, SIM_HERE);
}

/* All lanes of w have come. */
void sim_barrier_reached(struct sim_warp *w) {
    struct sim_block *b = w->block;
    struct sim_barrier *bar = &b->named[w->op_a / 2];
    int wait = w->op_a % 2;
    sim.effect = true;
    if (!bar->count) {
        bar->threads = w->op_b, bar->waiting = 0;
        memset(&bar->clock, 0, sizeof bar->clock);
    } else if (bar->threads != w->op_b) {
        sim_fail("barrier %d: %d threads here, %d where it was reached before", w->op_a / 2,
                 w->op_b, bar->threads);
    }
    w->clock.seen[w->index] = b->seq;
    w->clock.answered[w->index] = w->takes;
    sim_clock_join(&bar->clock, &w->clock);
    bar->count += __builtin_popcount(w->all);
    if (bar->count < bar->threads) {
        if (wait) bar->waiting |= 1u << w->index, w->ready = 0, w->barrier = w->op_a / 2;
        return;
    }
    if (bar->count > bar->threads)
        sim_fail("barrier %d: %d threads came, %d are expected", w->op_a / 2, bar->count,
                 bar->threads);
    bar->count = 0;
    sim.progress++;
    if (wait) sim_clock_join(&w->clock, &bar->clock);
    for (uint32_t m = bar->waiting; m; m &= m - 1) {
        struct sim_warp *other = &b->warps[__builtin_ctz(m)];
        other->barrier = -1;
        sim_clock_join(&other->clock, &bar->clock);
        sim_warp_ready(other);
    }
}

/* ---- mbarriers ----
 * The 64 bits: pending arrivals 16, arrivals of a phase 16, bytes outstanding 20 (plus half), a
 * mark 11, the phase's parity 1. */

enum { MBAR_MARK = 0x5a3, TX_ZERO = 1 << 19 };

struct mbar {
    uint32_t pending, count, parity;
    int tx;
};

unsigned char *sim_shared_at(const struct sim_block *b, unsigned address, uint32_t bytes,
                             unsigned align) {
    unsigned at = address - SIM_SHARED_BASE;
    if (at > sim.launch->shared_bytes || bytes > sim.launch->shared_bytes - at || at % align)
        sim_fail("shared address %d: %u bytes on %u do not fit in %u", (int)at, bytes, align,
                 sim.launch->shared_bytes);
    return b->shared + at;
}

static bool mbar_read(const unsigned char *p, struct mbar *m) {
    uint64_t v;
    memcpy(&v, p, 8);
    m->pending = v & 0xffff, m->count = v >> 16 & 0xffff;
    m->tx = (int)(v >> 32 & 0xfffff) - TX_ZERO;
    m->parity = (uint32_t)(v >> 63);
    return (v >> 52 & 0x7ff) == MBAR_MARK;
}

static void mbar_write(unsigned char *p, const struct mbar *m) {
    uint64_t v = m->pending | (uint64_t)m->count << 16 | (uint64_t)(m->tx + TX_ZERO) << 32 |
                 (uint64_t)MBAR_MARK << 52 | (uint64_t)m->parity << 63;
    memcpy(p, &v, 8);
}

void sim_mbar_print(const struct sim_block *b, unsigned at) {
    struct mbar m;
    if (at + 8 > sim.launch->shared_bytes || !mbar_read(b->shared + at, &m)) return;
    sim_print(" (in phase %u, %u of %u arrivals and %d bytes to come)", m.parity, m.pending,
              m.count, m.tx);
}

static struct sim_mbar *mbar_clocks(struct sim_block *b, unsigned address) {
    for (int i = 0; i < b->n_mbars; i++)
        if (b->mbars[i].address == address) return &b->mbars[i];
    if (b->n_mbars == b->max_mbars) {
        b->max_mbars = b->max_mbars ? b->max_mbars * 2 : 32;
        b->mbars = realloc(b->mbars, (size_t)b->max_mbars * sizeof *b->mbars);
        if (!b->mbars) abort();
    }
    struct sim_mbar *c = &b->mbars[b->n_mbars++];
    memset(c, 0, sizeof *c);
    c->address = address;
    return c;
}

static unsigned char *mbar_at(struct mbar *m, unsigned bar) {
    unsigned char *p = sim_shared_at(sim.warp->block, bar, 8, 8);
    if (!mbar_read(p, m))
        sim_fail("mbarrier at %u: not initialised, or overwritten", bar - SIM_SHARED_BASE);
    return p;
}

/* Begins the next phase when nothing is outstanding. */
static void mbar_settle(struct sim_block *b, unsigned bar, struct mbar *m) {
    if (m->pending || m->tx) return;
    struct sim_mbar *c = mbar_clocks(b, bar);
    m->parity ^= 1, m->pending = m->count;
    sim_clock_join(&c->complete, &c->pending);
    sim.progress++;
    sim_changed(sim_mbar_place(b, bar));
}

static void mbar_release(struct sim_warp *w, unsigned bar) {
    w->clock.seen[w->index] = w->block->seq;
    sim_clock_join(&mbar_clocks(w->block, bar)->pending, &w->clock);
    sim.effect = true;
}

void sim_mbar_init(unsigned bar, int count) {
    struct sim_block *b = sim.warp->block;
    unsigned char *p = sim_shared_at(b, bar, 8, 8);
    if (count <= 0 || count > 0xffff) sim_fail("mbarrier for %d arrivals", count);
    struct mbar m = { (uint32_t)count, (uint32_t)count, 0, 0 };
    mbar_write(p, &m);
    memset(mbar_clocks(b, bar), 0, sizeof(struct sim_mbar));
    mbar_clocks(b, bar)->address = bar;
    mbar_clocks(b, bar)->unknown = sim.warp;
    sim.effect = true;
}

void sim_mbars_known(struct sim_warp *w) {
    struct sim_block *b = w->block;
    for (int i = 0; i < b->n_mbars; i++)
        if (b->mbars[i].unknown == w) b->mbars[i].unknown = NULL;
}

void sim_mbar_check_known(unsigned bar) {
    if (mbar_clocks(sim.warp->block, bar)->unknown)
        sim_fail("a bulk copy for the mbarrier at %u, of which copies do not know: no "
                 "mbar_init_done since its mbar_init",
                 bar - SIM_SHARED_BASE);
}

static void arrive(unsigned bar, uint32_t bytes) {
    struct sim_warp *w = sim.warp;
    struct mbar m;
    unsigned char *p = mbar_at(&m, bar);
    if (!m.pending)
        sim_fail("mbarrier at %u: more arrivals than %u in a phase", bar - SIM_SHARED_BASE,
                 m.count);
    mbar_release(w, bar);
    m.pending--;
    m.tx += (int)bytes;
    mbar_settle(w->block, bar, &m);
    mbar_write(p, &m);
}

void sim_mbar_arrive(unsigned bar, int answered) {
    struct sim_warp *w = sim.warp;
    if (answered)
        w->clock.answered[w->index] = w->takes;
    else
        sim_copies_held(w);
    arrive(bar, 0);
    sim_linger(SIM_OP_COST / 4);
}

void sim_mbar_expect(unsigned bar, uint32_t bytes) { arrive(bar, bytes); }

/* Without an arrival. */
void sim_mbar_expect_more(unsigned bar, uint32_t bytes) {
    struct mbar m;
    unsigned char *p = mbar_at(&m, bar);
    mbar_release(sim.warp, bar);
    m.tx += (int)bytes;
    mbar_write(p, &m);
}

/* A copy has come: `bytes` of the transaction, or an arrival. */
void sim_mbar_landed(struct sim_block *b, unsigned bar, uint32_t bytes, bool arrival) {
    unsigned char *p = b->shared + (bar - SIM_SHARED_BASE);
    struct mbar m;
    if (!mbar_read(p, &m) || (arrival && !m.pending)) {
        sim_fail_later(b->warps, "mbarrier at %u: a copy completes on what is none",
                       bar - SIM_SHARED_BASE);
        return;
    }
    if (arrival)
        m.pending--;
    else
        m.tx -= (int)bytes;
    mbar_settle(b, bar, &m);
    mbar_write(p, &m);
}

int sim_mbar_test(unsigned bar, unsigned parity) {
    struct sim_warp *w = sim.warp;
    struct mbar m;
    mbar_at(&m, bar);
    if (m.parity != (parity & 1)) {
        sim_clock_join(&w->clock, &mbar_clocks(w->block, bar)->complete);
        sim_copies_taken(w, bar);
        sim.effect = true;
        sim_poll(OP_MBAR, bar - SIM_SHARED_BASE, parity, SIM_HERE, SIM_OP_COST / 4);
        return 1;
    }
    sim_await(sim_mbar_place(w->block, bar));
    sim_poll(OP_MBAR, bar - SIM_SHARED_BASE, parity, SIM_HERE, 8 * SIM_OP_COST);
    return 0;
}

/* ---- volatile words ---- */

unsigned sim_shared_load(unsigned address) {
    unsigned v;
    memcpy(&v, sim_shared_at(sim.warp->block, address, 4, 4), 4);
    sim.warp->idle.elsewhere = true;
    sim_poll(OP_SHARED, address - SIM_SHARED_BASE, v, SIM_HERE, 1);
    return v;
}

void sim_shared_store(unsigned address, unsigned value) {
    memcpy(sim_shared_at(sim.warp->block, address, 4, 4), &value, 4);
    sim.effect = true, sim.progress++;
    sim_linger(1);
}
