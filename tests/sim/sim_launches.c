/* Launches that may begin before the one before is over: whoever uses memory that an earlier launch
 * writes, or stores anything, must have waited for its end. Here launches run one after the other;
 * what they have touched says whether that mattered. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>

struct written {
    uintptr_t granule; /* 8 bytes; 0: none */
    uint64_t launch;   /* the first that wrote it */
};

/* By launches since the last one that did not overlap. */
static struct {
    struct written *slots;
    size_t room, n; /* room: a power of two */
    uint64_t launch;
} writes;

static struct written *slot_of(uintptr_t granule) {
    size_t i = (size_t)((granule >> 3) * 0x9e3779b97f4a7c15ull >> 20);
    for (i &= writes.room - 1; writes.slots[i].granule && writes.slots[i].granule != granule;)
        i = (i + 1) & (writes.room - 1);
    return &writes.slots[i];
}

static void grow(void) {
    enum { FIRST = 1 << 16 };
    struct written *old = writes.slots;
    const size_t room = writes.room;
    writes.room = room ? 2 * room : FIRST;
    writes.slots = calloc(writes.room, sizeof *writes.slots);
    if (!writes.slots) abort();
    for (size_t i = 0; i < room; i++)
        if (old[i].granule) *slot_of(old[i].granule) = old[i];
    free(old);
}

void sim_written(uintptr_t granule) {
    if (2 * (writes.n + 1) > writes.room) grow();
    struct written *w = slot_of(granule);
    if (w->granule) return;
    *w = (struct written){ granule, writes.launch };
    writes.n++;
}

static bool written_before(uintptr_t at, uint64_t bytes) {
    for (uintptr_t g = at & ~(uintptr_t)7; writes.n && g < at + bytes; g += 8) {
        const struct written *w = slot_of(g);
        if (w->granule && w->launch != writes.launch) return true;
    }
    return false;
}

void sim_launch_begin(void) {
    writes.launch++;
    if (sim.launch->overlaps) return;
    if (writes.n) memset(writes.slots, 0, writes.room * sizeof *writes.slots);
    writes.n = 0;
}

void sim_touch(struct sim_warp *w, uintptr_t at, uint64_t bytes, bool stores) {
    if (!sim.launch->overlaps || w->waited || w->early) return;
    if (!stores && !written_before(at, bytes)) return;
    w->early = at, w->early_stores = stores;
    if (sim.early_warps++ == 0) sim.early_block = w->block->index, sim.early_warp = w->index;
}

/* A bulk copy: its reads follow those stores only after a fence_copies that follows the wait. */
void sim_touch_copy(struct sim_warp *w, uintptr_t at, uint64_t bytes) {
    if (!sim.launch->overlaps || w->copies_waited || !written_before(at, bytes)) return;
    sim_fail("a bulk copy of what the launch before wrote at %p: no fence_copies since "
             "previous_over",
             (void *)at);
}

void sim_previous_over(void) {
    struct sim_warp *w = sim.current->warp;
    if (w->early)
        sim_fail("%s %p before the launch before was over",
                 w->early_stores ? "a store to" : "a load of what it wrote at", (void *)w->early);
    w->waited = sim.waited = true;
}

/* Those that touched such memory and never waited; and the launch after this one waits for this one
 * alone. */
void sim_launch_end(void) {
    if (sim.result != SIM_DONE || !sim.launch->overlaps) return;
    if (sim.waited && !sim.early_warps) return;
    sim.result = SIM_FAULT;
    if (sim.waited)
        sim_print("block %d warp %d never waited for the launch before, and used its memory\n",
                  sim.early_block, sim.early_warp);
    else
        sim_print("nobody waited for the launch before\n");
}
