/* The simulator: runs a compiled kernel's threads on the CPU under random schedules and a weak
 * memory.
 *
 * Every GPU thread is a fiber; one warp runs at a time, for a random stretch, on one host thread.
 * Lanes of a warp go one after the other, in random order, until they meet at a warp operation. A
 * seed decides everything, the character of the schedule too (long or short stretches, slow or fast
 * memory, how often a warp or block is starved); only what the host does to mapped memory
 * meanwhile is outside of it.
 *
 * Modelled:
 * - Warp operations need all 32 lanes at the same one. Named barriers count threads, complete at
 *   the count, and refuse a second count; mbarriers have phases, arrivals and transaction bytes as
 *   PTX defines them, and a test knows parity only: a waiter two laps behind is fooled.
 * - A store becomes visible to other blocks at a random later time, stores to different places in
 *   any order. fence_gpu makes visible what this warp stored, and what other warps stored before a
 *   barrier or mbarrier that this warp has passed since; shuffles and votes order nothing.
 * - A load may return an older value as long as this warp has not seen the newer one and nothing
 *   orders it: what was visible at the last fence_gpu of this warp, or of one that it has met at a
 *   barrier since, is seen by all loads after. So a reader needs a fence between word and data.
 * - A bulk copy reads and lands at random times after its issue; the slot may hold NaN meanwhile.
 *   It may read old values of all that was not visible at the warp's last fence_copies, which
 *   counts what the fence_gpu before it saw.
 *   A copy of what an earlier launch of an overlapping queue wrote is refused when its warp has
 * made no fence_copies since it waited for that launch, and one whose mbarrier's maker has made no
 *   mbar_init_done since.
 * - A slot that ordinary stores have changed is filled again only after a fence_slot in its block.
 * - Loads from shared memory may be answered late: a slot is filled again only when every warp that
 *   saw its mbarrier complete has said since, by mbar_arrive_answered or at a barrier of the block,
 *   that it has what it loaded, and the filling warp knows of it. A plain mbar_arrive does not say
 * so.
 * - Memory from the driver and shared memory start as NaN; accesses outside of allocations,
 *   misaligned ones, and non-coherent loads of what this launch has written are refused.
 * - A launch may overlap the one before: a warp that loads what that one wrote, or stores anything,
 *   before it has waited for its end is refused. They run one after the other all the same.
 * - Waiting without end: no warp can go on, or all only poll and nothing changes any more. A warp
 * that has looked at all that it waits for is not run again before one of these places changes.
 *
 * - Stores to mapped memory become visible to the host in any order, but for a fence_system
 * between; host_look_ms gives the host time to see what such an order shows, and `look` sees each.
 *   A fence_system does not bring them there: it orders them before what its warp, or who makes a
 *   fence_system later, stores then. Only where somebody looks, who has made all fences, it does.
 *
 * Not modelled: races on shared memory other than by their outcome (it is sequentially consistent,
 * in random orders, but for copies that come before loads are answered), lanes' own knowledge (a
 * warp's lanes share what fences and barriers order), blocks that see a store before others do (but
 * for stale loads), more than 8,192 stores of history, timing, clusters. */
#ifndef REEL_TESTS_SIM_H
#define REEL_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_ops;
extern const struct sim_ops sim_operations;

struct sim_settings {
    uint64_t seed;
    int missing_block;     /* never starts; -1: none */
    unsigned idle_limit;   /* rounds in which all poll in vain before that is called a deadlock; 0:
                              never */
    unsigned host_wait_ms; /* the same for what may be waiting for the host; 0: never */
    unsigned host_look_ms; /* that the host has between stores to mapped memory out of order */
    /* Called after a store to any memory that became visible before an older one of its warp to
     * mapped memory, on the launch's thread: looks at what others may see then. params: the
     * launch's. */
    void (*look)(void *user, void **params);
    void *user;
    bool in_order; /* stores and copies take effect at once, in the schedule that takes least to
                      simulate: tells races from wrong sums, and is what tests of the host take */
};

enum { SIM_MOST_GPUS = 8 };

struct sim_range {
    uintptr_t from, to;
    int gpu; /* whose memory it is; -1: the host's */
};

struct sim_launch {
    void (*entry)(void **params);
    void **params;
    int n_gpus;                      /* that run it together, each a share of the grid; 0: one */
    void **params_of[SIM_MOST_GPUS]; /* then, of each; params are the first one's */
    int first_gpu;                   /* without n_gpus: which GPU runs it */
    bool reaches;                    /* it may use other GPUs' memory */
    int grid, threads;
    unsigned shared_bytes;
    int resident;  /* blocks at a time */
    bool overlaps; /* may begin before the launch before is over */
    struct sim_settings settings;
    /* The allocation around p, empty when there is none. */
    struct sim_range (*memory)(uintptr_t p);
};

enum sim_result {
    SIM_DONE,
    SIM_FAULT, /* a rule above was broken */
    SIM_DEADLOCK
};

struct sim_counts {
    uint64_t steps, switches, stale_loads, idle_rounds, stores, copies;
};

/* One launch at a time in a process. On failure `report` says what happened and where each warp is.
 */
enum sim_result sim_run(const struct sim_launch *launch, struct sim_counts *counts, char *report,
                        size_t report_bytes);

#endif
