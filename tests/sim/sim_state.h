/* What the simulator's files share. One launch at a time: the state is one static struct. */
#ifndef REEL_TESTS_SIM_STATE_H
#define REEL_TESTS_SIM_STATE_H

#include "fiber.h"
#include "sim.h"
#include "sim_ops.h"

enum {
    SIM_LANES = 32,
    SIM_MAX_WARPS = 32, /* of a block */
    SIM_NAMED = 16,
    SIM_HISTORY = 8192,
    SIM_HASH = 8192,
    SIM_PLACES = 1024, /* a power of two */
    SIM_WAITS = 4096,  /* the same */
    SIM_SEEN = 4,      /* 64 warps each; more share bits, which only makes loads less stale */
    SIM_OP_COST = 16   /* of a stretch's budget; a load costs 1 */
};

enum sim_op {
    OP_NONE,
    OP_SYNC,
    OP_SHUFFLE,
    OP_VOTE,
    OP_MMA,
    OP_BARRIER, /* first argument: id and kind, second: threads */
    OP_LOAD,    /* from here on: what a single lane polls */
    OP_MBAR,
    OP_SHARED,
    OP_CLOCK,
    OP_SLEEP
};

/* What a warp knows: the newest store of each warp of its block that barriers order before it; up
 * to which of its takes each warp's loads from shared memory are answered; and the newest store of
 * all that its fences cover, for its loads and for its copies. */
struct sim_clock {
    uint32_t seen[SIM_MAX_WARPS], answered[SIM_MAX_WARPS];
    uint64_t acquired, copies;
    uint64_t host; /* stores up to this number reach the host before what is stored now */
};

/* What a lane polled last. */
struct sim_look {
    uint64_t polled, wanted;
    /* One of its polls in its warp's idle time, to see when it comes back to the same. */
    uint64_t idle_number, idle_polled;
    void *idle_where;
    uint32_t n_idle_polls;
    enum sim_op polls;
};

/* What a warp has done since something that it saw has changed or it did something: nothing but
 * look at words and mbarriers. Once every lane that looks has come round to the same again, only a
 * change of one of these places can make it go on. */
struct sim_idle {
    uint64_t number;
    uint32_t polled, round,
        met;        /* lanes that looked; of those, that came round; that met others of the warp */
    bool elsewhere; /* it looked at what changes without notice: shared memory, the host's */
    bool over;
};

/* Each store is in two lists, oldest first: of its warp, and of the block's stores to a place. One
 * to the host that a fence_system has ordered is in a third. */
enum { SIM_BY_WARP, SIM_BY_PLACE, SIM_BY_FENCE, SIM_N_LISTS };

struct sim_store {
    unsigned char *at;
    uint64_t value;
    uint32_t bytes, seq;
    struct sim_warp *warp;
    bool done, mapped;
    bool host;       /* it goes to the host's memory, */
    uint64_t fenced; /* behind a fence_system since: the how many-th such store, or 0, */
    uint64_t after;  /* and after those up to this one */
    struct sim_store *older[SIM_N_LISTS], *newer[SIM_N_LISTS];
};

struct sim_stores {
    struct sim_store *oldest, *newest;
};

struct sim_copy {
    struct sim_warp *warp;
    unsigned char *dst;
    const unsigned char *src;
    unsigned char *bytes;
    uint32_t n, first, stride, bar;
    bool bulk;
    uint64_t visible;
    uint32_t seen[SIM_MAX_WARPS];
    struct sim_copy *added; /* by ring_add, not bulk: it is there before this one arrives */
};

/* Operands of a product d += a b and its result: lanes put their parts here as they come, and take
 * theirs from here when they go on. */
struct sim_product {
    float a[16][16], b[16][8], d[16][8];
};

struct sim_warp {
    struct sim_block *block;
    struct sim_copy *added[SIM_LANES]; /* of each lane, for its next fill */
    int index, id;                     /* in the block, of all */
    uint32_t all, ready, at_op, done;
    enum sim_op op;
    int op_a, op_b;
    int barrier; /* waits there, or -1 */
    unsigned turn;
    uint32_t value[2][SIM_LANES], votes[2];
    unsigned rotation;
    bool parked, starved;
    bool waits; /* parked until one of the places that it looked at changes, not only until
                   something happens */
    struct sim_idle idle;
    int quiet; /* stretches of nothing but polling, since progress was `quiet_since` */
    uint64_t quiet_since;
    struct sim_clock clock;
    uint32_t copy_seen[SIM_MAX_WARPS];
    struct sim_stores stores; /* not yet visible */
    uint32_t takes;           /* phases of mbarriers that it has seen complete */
    bool waited;              /* for the launch before */
    bool copies_waited;       /* and so do its copies, by a fence_copies since */
    uintptr_t early;          /* what it touched without, or 0 */
    bool early_stores;
    void *sp[SIM_LANES];    /* of those that do not run */
    void *where[SIM_LANES]; /* in the kernel */
    struct sim_look looks[SIM_LANES];
    struct sim_product product;
};

struct sim_barrier {
    int count, threads;
    uint32_t waiting; /* warps */
    struct sim_clock clock;
};

struct sim_mbar {
    uint32_t address;
    const struct sim_warp *unknown; /* to copies: made by this warp, no mbar_init_done since */
    struct sim_clock pending, complete;
};

/* What the last bulk copy to a place left there, and who may have read it since: the warps that saw
 * its mbarrier complete, and the number of that take of theirs. */
struct sim_landed {
    unsigned char *at;
    uint32_t n, bar;
    uint64_t hash;
    bool fenced; /* a fence_slot since */
    uint32_t takers, take[SIM_MAX_WARPS];
};

enum { SIM_MAX_LANDED = 128 };

struct sim_block {
    int index; /* of the grid */
    unsigned char *shared;
    uint32_t seq;
    int n_warps, live_warps, n_stores, n_copies;
    struct sim_stores places[SIM_PLACES]; /* the n_stores, by a hash of where they go */
    struct sim_barrier named[SIM_NAMED];
    struct sim_mbar *mbars;
    int n_mbars, max_mbars;
    struct sim_warp *warps;
    struct sim_landed landed[SIM_MAX_LANDED];
    int n_landed;
};

/* A store that is visible, by its number; the next in its chain is `older`. Apart from what only
 * loads that find it want, for the chains are walked at every load. */
struct sim_link {
    uintptr_t granule; /* 8 bytes */
    uint32_t older;
};

struct sim_commit {
    uint64_t old;
    uint64_t seen[SIM_SEEN];
    const struct sim_warp *warp;
    uint32_t seq;
};

enum sim_event_kind { EVENT_STORE, EVENT_READ, EVENT_LAND, EVENT_WAKE };

struct sim_event {
    uint64_t due;
    enum sim_event_kind kind;
    void *what;
};

/* The character of this seed's schedule. */
struct sim_style {
    int stretch_bits, delay_bits, copy_bits;
    int plain_bits; /* nobody waits for plain stores, so they can be far later than words */
    uint32_t starve, linger, stale; /* of 65536 */
    uint32_t starve_bits;
    int nap_bits; /* of a warp that polls: 0 looks again at once */
};

struct sim {
    const struct sim_launch *launch;
    struct sim_style style;
    uint64_t random;
    struct sim_warp *warp; /* of the thread that runs */
    int lane;
    struct sim_self self;
    void *scheduler;
    int budget;
    bool effect, polled, mapped;
    struct sim_block *ended;

    struct sim_block *blocks;
    struct sim_warp *warps;
    int n_slots, warps_per_block, next_block, live_blocks;
    uint64_t *active;             /* bit a warp: can run */
    int n_active_words, n_parked; /* n_parked: without those that wait for a place */
    int n_waiting;
    uint64_t *waits; /* [SIM_WAITS][n_active_words] warps that looked at a place, by its hash */
    unsigned char *stacks, *shared;

    uint64_t now, ticks, progress, park_progress;
    uint64_t idle_rounds, idle_progress, n_idle;
    double idle_since;
    struct sim_event *events;
    int n_events, max_events;
    struct sim_store *free_stores;
    struct sim_stores fenced; /* those on the way to the host */
    uint64_t n_fenced;

    uint64_t commits;
    uint32_t chain[SIM_HASH];
    uintptr_t written_from, written_to;
    struct sim_range ranges[8];
    bool waited; /* some warp, for the launch before */
    int early_warps, early_block, early_warp;

    enum sim_result result;
    struct sim_counts counts;
    char *report;
    size_t report_bytes, report_used;

    /* The last commits, by their number; what an earlier launch left here no chain leads to. */
    struct sim_link links[SIM_HISTORY];
    struct sim_commit history[SIM_HISTORY];
};

extern struct sim sim __attribute__((visibility("hidden")));

static inline uint32_t sim_random(void) {
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (uint32_t)(sim.random >> 24);
}
/* Of 65536. */
static inline bool sim_chance(uint32_t p) { return (sim_random() & 0xffff) < p; }
/* Up to 2^bits, each magnitude as likely. */
static inline uint32_t sim_spread(int bits) {
    return sim_random() & ((1u << sim_random() % (unsigned)(bits + 1)) - 1);
}

static inline void sim_clock_join(struct sim_clock *a, const struct sim_clock *b) {
    for (int i = 0; i < SIM_MAX_WARPS; i++)
        a->seen[i] = a->seen[i] > b->seen[i] ? a->seen[i] : b->seen[i];
    for (int i = 0; i < SIM_MAX_WARPS; i++)
        a->answered[i] = a->answered[i] > b->answered[i] ? a->answered[i] : b->answered[i];
    if (b->acquired > a->acquired) a->acquired = b->acquired;
    if (b->copies > a->copies) a->copies = b->copies;
    if (b->host > a->host) a->host = b->host;
}

#define SIM_HERE __builtin_return_address(0)

/* The lanes of `ready` in the order in which they run: the first of these bits, from below or from
 * above, is lane `bit + rotation`. */
static inline uint32_t sim_turned(uint32_t ready, unsigned rotation) {
    const unsigned r = rotation & 31;
    return ready >> r | ready << (-r & 31);
}
static inline unsigned sim_first(uint32_t turned, unsigned rotation) {
    return rotation & 32 ? 31u - (unsigned)__builtin_clz(turned) : (unsigned)__builtin_ctz(turned);
}

/* Another ready lane, or the scheduler. */
static inline void sim_next_lane(struct sim_warp *w) {
    const int from = sim.lane;
    if (!w->ready || sim.budget <= 0) {
        fiber_switch(&w->sp[from], sim.scheduler);
        return;
    }
    const unsigned rotation = w->rotation;
    const uint32_t turned = sim_turned(w->ready, rotation);
    const unsigned bit = sim_first(turned, rotation);
    const int to = (int)((bit + rotation) & 31);
    if (to == from) return;
    sim.lane = to, sim.self.thread = (unsigned)(w->index * SIM_LANES + to);
    sim.counts.switches++;
    fiber_switch(&w->sp[from], w->sp[to]);
}

/* sim.c */
void sim_yield(void);      /* this lane stays ready; back to the scheduler */
void sim_linger(int cost); /* maybe back to the scheduler, maybe for long */
void sim_warp_ready(struct sim_warp *w);
void sim_event(uint64_t due, enum sim_event_kind kind, void *what);
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for what happens outside of threads, to a copy of warp w. */
void sim_fail_later(const struct sim_warp *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The running warp looks at a place; the value of one has changed. */
uint64_t sim_word_place(uintptr_t at);
uint64_t sim_mbar_place(const struct sim_block *b, unsigned bar);
void sim_await(uint64_t place);
void sim_changed(uint64_t place);
void sim_poll(enum sim_op kind, uint64_t place, uint64_t wanted, void *where, int cost);

/* sim_report.c */
void sim_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_print_warps(void);

/* sim_warp.c */
void sim_meet(enum sim_op op, int a, int b, void *where);
void sim_warp_sync(void);
unsigned sim_shuffle(unsigned value, int lane);
unsigned sim_ballot(int yes);
void sim_mma(float d[4], const unsigned a[4], unsigned b0, unsigned b1);

/* sim_block.c */
void sim_barrier(int id, int threads, int wait);
void sim_barrier_reached(struct sim_warp *w);
void sim_mbar_init(unsigned bar, int count);
void sim_mbar_arrive(unsigned bar, int answered);
void sim_mbars_known(struct sim_warp *w);
void sim_mbar_check_known(unsigned bar);
int sim_mbar_test(unsigned bar, unsigned parity);
void sim_mbar_expect(unsigned bar, uint32_t bytes);
void sim_mbar_expect_more(unsigned bar, uint32_t bytes);
void sim_mbar_landed(struct sim_block *b, unsigned bar, uint32_t bytes, bool arrival);
void sim_mbar_print(const struct sim_block *b, unsigned at);
unsigned sim_shared_load(unsigned address);
void sim_shared_store(unsigned address, unsigned value);
unsigned char *sim_shared_at(const struct sim_block *b, unsigned address, uint32_t bytes,
                             unsigned align);

int sim_gpu_of(const struct sim_block *b);

/* sim_memory.c */
unsigned long long sim_load(const volatile void *p, int bytes, int access);
void sim_store(volatile void *p, unsigned long long value, int bytes, int access);
unsigned sim_claim(volatile void *p, unsigned value);
void sim_add(volatile void *p, unsigned value);
void sim_fence(int kind);
void sim_commit(struct sim_store *s);
void sim_store_free(struct sim_store *s);
void sim_check_more(uintptr_t at, uint32_t bytes, unsigned align, const char *what);
static inline void sim_check_memory(const volatile void *p, uint32_t bytes, unsigned align,
                                    const char *what) {
    const uintptr_t at = (uintptr_t)p;
    const struct sim_range *last = &sim.ranges[0];
    if ((at & (align - 1)) || at < last->from || at + bytes > last->to)
        sim_check_more(at, bytes, align, what);
}

/* sim_launches.c */
void sim_launch_begin(void);
void sim_launch_end(void);
void sim_previous_over(void);
void sim_written(uintptr_t granule);
void sim_touched(struct sim_warp *w, uintptr_t at, uint64_t bytes, bool stores);
/* Before every access to memory that another launch may share. */
static inline void sim_touch(struct sim_warp *w, uintptr_t at, uint64_t bytes, bool stores) {
    if (sim.launch->overlaps && !w->waited && !w->early) sim_touched(w, at, bytes, stores);
}
void sim_touch_copy(struct sim_warp *w, uintptr_t at, uint64_t bytes);

/* sim_copy.c */
void sim_fill(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy);
void sim_fill_more(unsigned dst, const void *src, unsigned bytes, unsigned bar, int copy);
void sim_copy_read(struct sim_copy *c);
void sim_copy_land(struct sim_copy *c);
void sim_copy_free(struct sim_copy *c);
void sim_copies_fence(struct sim_block *b);
void sim_copies_taken(struct sim_warp *w, unsigned bar);
void sim_copies_held(struct sim_warp *w);

#endif
