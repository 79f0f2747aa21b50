/* Copies from global to shared memory. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots that were written to by ordinary stores between two bulk copies ---- */

static uint64_t hash(const unsigned char *at, uint32_t n) {
    uint64_t h = 0xcbf29ce484222325ull, word;
    for (uint32_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&word, at + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

static struct sim_landed *landed_find(struct sim_block *b, const unsigned char *at) {
    for (int i = 0; i < b->n_landed; i++)
        if (b->landed[i].at == at) return &b->landed[i];
    return NULL;
}

/* What lay here before, in slots of another size, is no more. */
static void landed_drop(struct sim_block *b, const unsigned char *at, uint32_t n) {
    for (int i = b->n_landed - 1; i >= 0; i--) {
        const struct sim_landed *l = &b->landed[i];
        if (l->at != at && l->at < at + n && at < l->at + l->n)
            b->landed[i] = b->landed[--b->n_landed];
    }
}

static void landed_set(struct sim_block *b, unsigned char *at, uint32_t n, uint32_t bar) {
    landed_drop(b, at, n);
    struct sim_landed *l = landed_find(b, at);
    if (!l && b->n_landed < SIM_MAX_LANDED) l = &b->landed[b->n_landed++];
    if (l) *l = (struct sim_landed){ .at = at, .n = n, .bar = bar, .hash = hash(at, n) };
}

static void landed_check(struct sim_block *b, const unsigned char *at) {
    const struct sim_landed *l = landed_find(b, at);
    if (l && !l->fenced && hash(l->at, l->n) != l->hash)
        sim_fail("ring_fill of a slot that stores have changed since it was filled: without "
                 "fence_slot they may come after the copy");
}

/* Before w copies to [at, at + n): whether all others that may have read what lies there have it.
 */
static void landed_check_read(const struct sim_warp *w, const unsigned char *at, uint32_t n) {
    const struct sim_block *b = w->block;
    for (int i = 0; i < b->n_landed; i++) {
        const struct sim_landed *l = &b->landed[i];
        if (l->at >= at + n || at >= l->at + l->n) continue;
        for (uint32_t m = l->takers & ~(1u << w->index); m; m &= m - 1) {
            const int other = __builtin_ctz(m);
            if (w->clock.answered[other] < l->take[other])
                sim_fail("ring_fill of a slot while loads of warp %d from it may be under way: "
                         "its arrival may have passed them",
                         other);
        }
    }
}

void sim_copies_taken(struct sim_warp *w, unsigned bar) {
    struct sim_block *b = w->block;
    w->takes++;
    for (int i = 0; i < b->n_landed; i++) {
        struct sim_landed *l = &b->landed[i];
        if (l->bar == bar) l->takers |= 1u << w->index, l->take[w->index] = w->takes;
    }
}

/* What w has taken it may have loaded from once more, since it last said that loads are answered.
 */
void sim_copies_held(struct sim_warp *w) {
    struct sim_block *b = w->block;
    w->takes++;
    for (int i = 0; i < b->n_landed; i++)
        if (b->landed[i].takers >> w->index & 1) b->landed[i].take[w->index] = w->takes;
}

void sim_copies_fence(struct sim_block *b) {
    for (int i = 0; i < b->n_landed; i++)
        b->landed[i].fenced = true;
}

/* ---- copies ---- */

static unsigned char *copy_place(const struct sim_copy *c, uint32_t at) { return c->dst + at; }

static void copy_poison(const struct sim_copy *c) {
    for (uint32_t at = c->first; at < c->n; at += c->stride)
        memset(copy_place(c, at), 0xff, c->bulk ? c->n : 16);
}

/* Puts back what was there before the stores that the copy may have missed, down to a random one.
 */
static void copy_age(struct sim_copy *c) {
    uintptr_t from = (uintptr_t)c->src, to = from + c->n;
    if (to <= sim.written_from || from >= sim.written_to) return;
    if (c->visible >= sim.commits || !sim_chance(sim.style.stale)) return;
    uint64_t until = c->visible;
    if (sim_random() % 4 == 0) until += sim_random() % (sim.commits - until);
    for (uint64_t n = sim.commits; n > until && n + SIM_HISTORY > sim.commits; n--) {
        const struct sim_commit *h = &sim.history[n % SIM_HISTORY];
        const uintptr_t granule = sim.links[n % SIM_HISTORY].granule;
        if (granule + 8 <= from || granule >= to) continue;
        if (h->warp->block == c->warp->block && h->seq <= c->seen[h->warp->index]) continue;
        for (uint32_t i = 0; i < 8; i++)
            if (granule + i >= from && granule + i < to)
                c->bytes[granule + i - from] = (unsigned char)(h->old >> i * 8);
    }
}

static void copy_take(struct sim_copy *c) {
    memcpy(c->bytes, c->src, c->n);
    copy_age(c);
    copy_poison(c);
}

void sim_copy_read(struct sim_copy *c) {
    if (c->added) copy_take(c->added);
    copy_take(c);
    sim_event(sim.now + sim_spread(sim.style.copy_bits), EVENT_LAND, c);
}

void sim_copy_free(struct sim_copy *c) {
    if (c->added) sim_copy_free(c->added);
    free(c->bytes);
    free(c);
}

static void copy_put(struct sim_copy *c) {
    for (uint32_t at = c->first; at < c->n; at += c->stride)
        memcpy(copy_place(c, at), c->bytes + at, c->bulk ? c->n : 16);
}

void sim_copy_land(struct sim_copy *c) {
    struct sim_block *b = c->warp->block;
    if (c->added) copy_put(c->added);
    copy_put(c);
    b->n_copies--;
    if (c->bulk) landed_set(b, c->dst, c->n, c->bar);
    sim_mbar_landed(b, c->bar, c->bulk ? c->n : 0, !c->bulk);
    sim_copy_free(c);
}

static struct sim_copy *copy_new(struct sim_warp *w, unsigned dst, const void *src, uint32_t n,
                                 unsigned bar, bool bulk) {
    struct sim_copy *c = calloc(1, sizeof *c);
    if (!c || !(c->bytes = malloc(n))) abort();
    c->warp = w, c->src = src, c->n = n, c->bar = bar, c->bulk = bulk;
    c->dst = sim_shared_at(w->block, dst, n, 16);
    c->first = bulk ? 0 : (uint32_t)sim.lane * 16;
    c->stride = bulk ? n : SIM_LANES * 16;
    c->visible = bulk ? w->clock.copies : w->clock.acquired;
    memcpy(c->seen, bulk ? w->copy_seen : w->clock.seen, sizeof c->seen);
    return c;
}

static void copy_check(const void *src, unsigned bytes) {
    if (bytes % 16) sim_fail("ring_fill of %u bytes: not a multiple of 16", bytes);
    if (bytes) {
        sim_check_memory(src, bytes, 16, "ring_fill");
        if (sim.ranges[0].gpu >= 0 && sim.ranges[0].gpu != sim_gpu_of(sim.warp->block))
            sim_fail("ring_fill from %p: it lies on GPU %d", src, sim.ranges[0].gpu);
    }
    sim_touch(sim.warp, (uintptr_t)src, bytes, false);
}

static void copy_start(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy) {
    struct sim_warp *w = sim.warp;
    struct sim_copy *c = copy_new(w, dst, src, bytes, bar, copy == 2);
    if (c->bulk) {
        sim_mbar_check_known(bar);
        sim_touch_copy(w, (uintptr_t)src, bytes);
        landed_check(w->block, c->dst);
        landed_check_read(w, c->dst, bytes);
    } else {
        c->added = w->added[sim.lane], w->added[sim.lane] = NULL;
    }
    sim.counts.copies++;
    w->block->n_copies++;
    sim.effect = true;
    if (!copy) {
        if (c->added) memcpy(c->added->bytes, c->added->src, c->added->n);
        memcpy(c->bytes, c->src, c->n);
        sim_copy_land(c);
    } else {
        if (sim_random() % 2) copy_poison(c);
        sim_event(sim.now + sim_spread(sim.style.copy_bits), EVENT_READ, c);
    }
    sim_linger(1);
}

/* copy: as G_COPY. 1: every lane copies its pieces of 16 bytes and arrives when they are there; 0:
 * the same, at once. */
void sim_fill(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy) {
    copy_check(src, bytes);
    if (copy == 2) sim_mbar_expect(bar, bytes);
    if (bytes)
        copy_start(dst, src, bytes, bar, copy);
    else if (copy != 2)
        sim_mbar_arrive(bar, 0);
}

/* copy 1, 0: the copy goes with the lane's next fill, at the latest moment that is allowed. */
void sim_fill_more(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy) {
    copy_check(src, bytes);
    if (copy == 2) {
        sim_mbar_expect_more(bar, bytes);
        copy_start(dst, src, bytes, bar, 2);
        return;
    }
    if (sim.warp->added[sim.lane]) sim_fail("ring_add: one copy for a fill, at most");
    sim.warp->added[sim.lane] = copy_new(sim.warp, dst, src, bytes, bar, false);
}
