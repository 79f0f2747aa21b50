/* Launches that may begin before the one before is over: whoever uses memory that an earlier launch
 * writes, or stores anything, must have waited for its end. Here launches run one after the other;
 * what they have touched says whether that mattered. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_BITS = 12, PAGE_WORDS = (1 << PAGE_BITS) / 8 / 64 };

/* Which of a page's granules of 8 bytes were written, a bit each. */
struct page {
    uintptr_t number; /* its address >> PAGE_BITS */
    uint64_t launch;  /* that `now` is of */
    uint64_t before[PAGE_WORDS], now[PAGE_WORDS];
};

/* By launches since the last one that did not overlap. */
static struct {
    struct page *pages;
    uint32_t *slots;  /* [room] by a hash of the page's number: its place in pages, plus 1 */
    uint32_t room, n; /* room: a power of two; half of it is room for pages */
    uint32_t last;    /* page that was asked for, plus 1 */
    uint64_t launch;
} writes;

static uint32_t *slot_of(uintptr_t number) {
    uint32_t i = (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 32) & (writes.room - 1);
    while (writes.slots[i] && writes.pages[writes.slots[i] - 1].number != number)
        i = (i + 1) & (writes.room - 1);
    return &writes.slots[i];
}

static void grow(void) {
    enum { FIRST = 1024 };
    writes.room = writes.room ? 2 * writes.room : FIRST;
    free(writes.slots);
    writes.slots = calloc(writes.room, sizeof *writes.slots);
    writes.pages = realloc(writes.pages, writes.room / 2 * sizeof *writes.pages);
    if (!writes.slots || !writes.pages) abort();
    for (uint32_t i = 0; i < writes.n; i++)
        *slot_of(writes.pages[i].number) = i + 1;
}

/* The page with what this launch has written to it apart from what others have; NULL: nobody has
 * written to it. */
static struct page *page_find(uintptr_t number) {
    if (!writes.n) return NULL;
    if (!writes.last || writes.pages[writes.last - 1].number != number) {
        const uint32_t found = *slot_of(number);
        if (!found) return NULL;
        writes.last = found;
    }
    struct page *p = &writes.pages[writes.last - 1];
    if (p->launch == writes.launch) return p;
    for (int i = 0; i < PAGE_WORDS; i++)
        p->before[i] |= p->now[i], p->now[i] = 0;
    p->launch = writes.launch;
    return p;
}

static struct page *page_add(uintptr_t number) {
    if (writes.n >= writes.room / 2) grow();
    writes.pages[writes.n] = (struct page){ .number = number, .launch = writes.launch };
    *slot_of(number) = writes.last = ++writes.n;
    return &writes.pages[writes.n - 1];
}

static unsigned granule_of(uintptr_t at) { return at >> 3 & (64 * PAGE_WORDS - 1); }

void sim_written(uintptr_t granule) {
    const uintptr_t number = granule >> PAGE_BITS;
    struct page *p = page_find(number);
    if (!p) p = page_add(number);
    p->now[granule_of(granule) / 64] |= 1ull << granule_of(granule) % 64;
}

static bool written_before(uintptr_t at, uint64_t bytes) {
    const uintptr_t end = at + bytes;
    for (uintptr_t g = at & ~(uintptr_t)7; g < end; g += 8) {
        const struct page *p = page_find(g >> PAGE_BITS);
        if (!p)
            g |= (1 << PAGE_BITS) - 8; /* on with the next page */
        else if (p->before[granule_of(g) / 64] >> granule_of(g) % 64 & 1)
            return true;
    }
    return false;
}

void sim_launch_begin(void) {
    writes.launch++;
    if (sim.launch->overlaps) return;
    if (writes.n) memset(writes.slots, 0, writes.room * sizeof *writes.slots);
    writes.n = writes.last = 0;
}

void sim_touched(struct sim_warp *w, uintptr_t at, uint64_t bytes, bool stores) {
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
    struct sim_warp *w = sim.warp;
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
