/* A launch: blocks, warps and their stacks, and the scheduler that picks which warp runs. */
#define _DEFAULT_SOURCE
#include "sim_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A stack is some four times what a kernel has needed. The odd 128 bytes put what each lane uses
 * most into sets of the caches of its own. */
enum { STACK_BYTES = (16 << 10) + 128, HUGE_PAGE = 2 << 20, QUIET_LIMIT = 2 };
static const uint64_t STACK_END = 0x57ac4e4d57ac4e4d;

struct sim sim;

const struct sim_ops sim_operations;

/* ---- events: a heap by time ---- */

void sim_event(uint64_t due, enum sim_event_kind kind, void *what) {
    if (sim.n_events == sim.max_events) {
        sim.max_events = sim.max_events ? sim.max_events * 2 : 1024;
        sim.events = realloc(sim.events, (size_t)sim.max_events * sizeof *sim.events);
        if (!sim.events) abort();
    }
    int i = sim.n_events++;
    for (; i > 0 && sim.events[(i - 1) / 2].due > due; i = (i - 1) / 2)
        sim.events[i] = sim.events[(i - 1) / 2];
    sim.events[i] = (struct sim_event){ due, kind, what };
}

static struct sim_event event_take(void) {
    struct sim_event first = sim.events[0], last = sim.events[--sim.n_events];
    int i = 0;
    for (int child; (child = 2 * i + 1) < sim.n_events; i = child) {
        if (child + 1 < sim.n_events && sim.events[child + 1].due < sim.events[child].due) child++;
        if (sim.events[child].due >= last.due) break;
        sim.events[i] = sim.events[child];
    }
    sim.events[i] = last;
    return first;
}

static void active_set(const struct sim_warp *w) {
    uint64_t bit = 1ull << w->id % 64;
    if (w->ready && !w->parked && !w->starved)
        sim.active[w->id / 64] |= bit;
    else
        sim.active[w->id / 64] &= ~bit;
}

static void event_happen(struct sim_event e) {
    if (e.kind == EVENT_STORE) {
        struct sim_store *s = e.what;
        if (!s->done) sim_commit(s);
        sim_store_free(s);
    } else if (e.kind == EVENT_READ) {
        sim_copy_read(e.what);
    } else if (e.kind == EVENT_LAND) {
        sim_copy_land(e.what);
    } else {
        struct sim_warp *w = e.what;
        w->starved = false;
        active_set(w);
    }
}

/* ---- lanes ---- */

static void to_scheduler(void) { fiber_switch(&sim.warp->sp[sim.lane], sim.scheduler); }

void sim_yield(void) { to_scheduler(); }

static void warp_starve(struct sim_warp *w) {
    if (w->starved) return;
    w->starved = true;
    sim_event(sim.now + sim_spread((int)sim.style.starve_bits), EVENT_WAKE, w);
}

/* What a warp has just done lets others go on, so this is where being slow tells. */
void sim_linger(int cost) {
    sim.budget -= cost;
    if (sim.style.starve && sim_chance(sim.style.linger)) {
        warp_starve(sim.warp);
        sim.budget = 0;
    }
    if (sim.budget <= 0) sim_yield();
}

/* ---- waiting ----
 * Most of the time most warps wait, and looking again at what has not changed is most of what there
 * would be to simulate. So a warp that does nothing else is left alone until what it looks at
 * changes. */

static unsigned wait_row(uint64_t place) {
    return (unsigned)(place * 0x9e3779b97f4a7c15ull >> 40) & (SIM_WAITS - 1);
}

static uint64_t *wait_words(uint64_t place) {
    return sim.waits + (size_t)wait_row(place) * (size_t)sim.n_active_words;
}

uint64_t sim_word_place(uintptr_t at) { return at >> 3; }
uint64_t sim_mbar_place(const struct sim_block *b, unsigned bar) {
    return (uint64_t)(uintptr_t)(b->shared + (bar - SIM_SHARED_BASE)) >> 3;
}

void sim_await(uint64_t place) {
    const struct sim_warp *w = sim.warp;
    wait_words(place)[w->id / 64] |= 1ull << w->id % 64;
}

/* A warp that has polled in vain looks again later, in most launches: several arrivals are one
 * look, where each would be a round of all its lanes. A GPU may be as late. */
static void nap(struct sim_warp *w) {
    const uint32_t steps = sim_spread(sim.style.nap_bits);
    if (steps < 2 || w->starved) return;
    w->starved = true;
    sim_event(sim.now + steps, EVENT_WAKE, w);
}

static void unpark(struct sim_warp *w) {
    *(w->waits ? &sim.n_waiting : &sim.n_parked) -= 1;
    w->parked = w->waits = false, w->quiet = 0;
}

void sim_changed(uint64_t place) {
    uint64_t *words = wait_words(place);
    for (int i = 0; i < sim.n_active_words; i++) {
        for (uint64_t m = words[i]; m; m &= m - 1) {
            struct sim_warp *w = &sim.warps[i * 64 + __builtin_ctzll(m)];
            w->idle.over = true;
            if (!w->waits) continue;
            unpark(w);
            nap(w);
            active_set(w);
        }
        words[i] = 0;
    }
}

static void idle_begin(struct sim_warp *w) {
    w->idle = (struct sim_idle){ .number = ++sim.n_idle };
}

/* A lane looks at something that may be what it waits for. */
static void idle_poll(struct sim_idle *idle, struct sim_look *t, uint32_t bit, void *where) {
    if (t->idle_number != idle->number) t->idle_number = idle->number, t->n_idle_polls = 0;
    idle->polled |= bit;
    if (t->n_idle_polls && t->polled == t->idle_polled && where == t->idle_where)
        idle->round |= bit;
    const uint32_t n = ++t->n_idle_polls;
    if ((n & (n - 1)) == 0) t->idle_polled = t->polled, t->idle_where = where;
}

/* Whether only a change of what it has looked at can make w go on. */
static bool idle_for_good(const struct sim_warp *w) {
    const struct sim_idle *idle = &w->idle;
    return idle->polled && idle->round == idle->polled && !idle->over && !idle->elsewhere &&
           !(w->ready & ~(idle->polled | idle->met));
}

void sim_poll(enum sim_op kind, uint64_t place, uint64_t wanted, void *where, int cost) {
    struct sim_warp *w = sim.warp;
    struct sim_look *t = &w->looks[sim.lane];
    t->polls = kind, t->polled = place, t->wanted = wanted, w->where[sim.lane] = where;
    sim.polled = true;
    if (kind == OP_LOAD || kind == OP_MBAR) idle_poll(&w->idle, t, 1u << sim.lane, where);
    sim.ticks++;
    sim.budget -= cost;
    if (idle_for_good(w)) sim.budget = 0;
    if (sim.budget <= 0) sim_yield();
}

/* Of lane i of w and the warps after it; its low end holds STACK_END. */
static unsigned char *stack_of(const struct sim_warp *w, int i) {
    return sim.stacks + ((size_t)w->id * SIM_LANES + (size_t)i) * STACK_BYTES;
}

static void block_end(struct sim_block *b) {
    if (b->n_copies) {
        sim_fail("block %d ends while %d copies to its shared memory are under way", b->index,
                 b->n_copies);
    }
    for (int i = 0; i < b->n_warps * SIM_LANES; i++)
        if (memcmp(stack_of(b->warps, i), &STACK_END, sizeof STACK_END) != 0)
            sim_fail("thread %d of block %d has run over its stack", i, b->index);
    sim.live_blocks--;
    sim.ended = b; /* this thread still stands on a stack of it: the scheduler takes the next */
}

/* A launch on several GPUs has its blocks one GPU after the other. */
static int blocks_of_gpu(void) {
    return sim.launch->n_gpus > 1 ? sim.launch->grid / sim.launch->n_gpus : sim.launch->grid;
}
int sim_gpu_of(const struct sim_block *b) {
    return sim.launch->n_gpus > 1 ? b->index / blocks_of_gpu() : sim.launch->first_gpu;
}

static void thread_main(void) {
    const struct sim_launch *l = sim.launch;
    l->entry(l->n_gpus > 1 ? l->params_of[sim_gpu_of(sim.warp->block)] : l->params);
    struct sim_warp *w = sim.warp;
    uint32_t bit = 1u << sim.lane;
    w->where[sim.lane] = NULL;
    w->done |= bit, w->ready &= ~bit;
    sim.effect = true, sim.progress++;
    if (!w->ready && w->at_op) sim_fail("a lane has returned while others of its warp wait for it");
    if (w->done == w->all && --w->block->live_warps == 0) block_end(w->block);
    sim.budget = w->ready ? sim.budget : 0;
    sim_next_lane(w);
    abort(); /* nobody goes on here */
}

/* ---- blocks ---- */

static void warp_start(struct sim_block *b, struct sim_warp *w, int index) {
    struct sim_launch const *l = sim.launch;
    int lanes = l->threads - index * SIM_LANES;
    w->block = b, w->index = index;
    w->all = lanes >= SIM_LANES ? ~0u : (1u << lanes) - 1;
    w->ready = b->index == l->settings.missing_block ? 0 : w->all;
    w->at_op = 0, w->done = 0, w->op = OP_NONE, w->barrier = -1;
    w->parked = w->waits = w->starved = w->waited = w->copies_waited = false, w->quiet = 0;
    w->takes = 0;
    idle_begin(w);
    w->early = 0;
    w->rotation = sim_random();
    w->clock = (struct sim_clock){ .acquired = sim.commits, .copies = sim.commits };
    memset(w->copy_seen, 0, sizeof w->copy_seen);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        unsigned char *stack = stack_of(w, lane);
        memcpy(stack, &STACK_END, sizeof STACK_END);
        w->looks[lane].polls = OP_NONE, w->where[lane] = NULL;
        w->sp[lane] = fiber_make(stack + 64, STACK_BYTES - 64, thread_main);
    }
    active_set(w);
}

static void block_start(struct sim_block *b) {
    b->index = sim.next_block++;
    memset(b->shared, 0xff, sim.launch->shared_bytes);
    memset(b->named, 0, sizeof b->named);
    b->n_mbars = 0, b->n_landed = 0;
    b->n_warps = sim.warps_per_block;
    b->live_warps = b->index == sim.launch->settings.missing_block ? 0 : b->n_warps;
    if (b->live_warps) sim.live_blocks++;
    for (int i = 0; i < b->n_warps; i++)
        warp_start(b, &b->warps[i], i);
}

/* ---- the scheduler ---- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sim_warp_ready(struct sim_warp *w) {
    w->ready = w->all & ~w->done;
    if (w->parked) unpark(w);
    w->quiet = 0;
    active_set(w);
}

/* Those that are parked until something happens, or also those that wait for a place. */
static void unpark_all(bool waiting) {
    for (int i = 0; i < sim.n_slots * sim.warps_per_block; i++) {
        struct sim_warp *w = &sim.warps[i];
        if (!w->parked || (w->waits && !waiting)) continue;
        if (waiting) idle_begin(w);
        unpark(w);
        active_set(w);
    }
}

static struct sim_warp *warp_pick(void) {
    unsigned n = (unsigned)(sim.n_active_words * 64), at = sim_random() % n;
    unsigned word = at / 64;
    uint64_t bits = sim.active[word] >> at % 64 << at % 64;
    for (int i = 0; i <= sim.n_active_words; i++) {
        if (bits) return &sim.warps[word * 64 + (unsigned)__builtin_ctzll(bits)];
        word = (word + 1) % (unsigned)sim.n_active_words;
        bits = sim.active[word];
    }
    return NULL;
}

static void starve(void) {
    struct sim_warp *w = &sim.warps[sim_random() % (unsigned)(sim.n_slots * sim.warps_per_block)];
    struct sim_warp *end = w + 1;
    if (sim_random() % 2) {
        w = w->block ? w->block->warps : w;
        end = w + sim.warps_per_block;
    }
    for (; w < end; w++) {
        warp_starve(w);
        active_set(w);
    }
}

static struct sim_self self_of(const struct sim_warp *w, int lane) {
    const struct sim_launch *l = sim.launch;
    return (struct sim_self){ .thread = (unsigned)(w->index * SIM_LANES + lane),
                              .block = (unsigned)(w->block->index % blocks_of_gpu()),
                              .n_threads = (unsigned)l->threads,
                              .n_blocks = (unsigned)blocks_of_gpu(),
                              .shared = w->block->shared,
                              .shared_bytes = l->shared_bytes };
}

static void warp_run(struct sim_warp *w) {
    uint64_t progress = sim.progress;
    sim.budget = SIM_OP_COST * (1 + (int)sim_spread(sim.style.stretch_bits));
    sim.effect = sim.polled = false;
    w->rotation = sim_random();
    const unsigned bit = sim_first(sim_turned(w->ready, w->rotation), w->rotation);
    const int lane = (int)((bit + w->rotation) & 31);
    sim.warp = w, sim.lane = lane;
    sim.self = self_of(w, lane);
    sim.counts.switches++;
    fiber_switch(&sim.scheduler, w->sp[lane]);
    sim.now++;
    if (sim.ended) {
        struct sim_block *b = sim.ended;
        sim.ended = NULL;
        active_set(w);
        if (sim.next_block < sim.launch->grid) block_start(b);
        return;
    }
    if (sim.effect || !sim.polled || w->idle.over) idle_begin(w);
    if (sim.effect || !sim.polled) {
        w->quiet = 0;
    } else if (w->quiet && w->quiet_since == progress) {
        w->quiet++;
    } else {
        w->quiet = 1, w->quiet_since = progress;
    }
    if (w->ready && idle_for_good(w)) {
        w->parked = w->waits = true, sim.n_waiting++;
    } else if (w->ready && w->quiet >= QUIET_LIMIT && sim.progress == w->quiet_since) {
        w->parked = true, sim.n_parked++;
        sim.park_progress = sim.progress;
    } else if (w->ready && w->quiet) {
        nap(w);
    }
    active_set(w);
}

/* All poll and nothing is under way: only patience, the host or a store seen late can change that.
 */
static bool idle_round(void) {
    const struct sim_settings *s = &sim.launch->settings;
    if (!sim.n_parked && !sim.n_waiting) return false;
    if (sim.idle_progress != sim.progress) {
        sim.idle_progress = sim.progress;
        sim.idle_rounds = 0, sim.idle_since = seconds();
    }
    sim.idle_rounds++, sim.counts.idle_rounds++;
    sim.ticks += 1000;
    unpark_all(true);
    if (sim.mapped) {
        sim.mapped = false;
        nanosleep(&(struct timespec){ 0, 20000 }, NULL);
        return !s->host_wait_ms || seconds() - sim.idle_since < 1e-3 * s->host_wait_ms;
    }
    return !s->idle_limit || sim.idle_rounds < s->idle_limit;
}

static void schedule(void) {
    while (sim.live_blocks && sim.result == SIM_DONE) {
        while (sim.n_events && sim.events[0].due <= sim.now)
            event_happen(event_take());
        if (sim.n_parked && sim.park_progress != sim.progress) unpark_all(false);
        if (sim_chance(sim.style.starve)) starve();
        struct sim_warp *w = warp_pick();
        if (w) {
            warp_run(w);
        } else if (sim.n_events) {
            sim.now = sim.events[0].due;
        } else if (!idle_round()) {
            sim.result = SIM_DEADLOCK;
            sim_print("deadlock: no warp can go on\n");
            sim_print_warps();
        }
    }
}

static void broken(unsigned block, unsigned thread, const char *format, va_list args) {
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    if (sim.result != SIM_DONE) return;
    sim.result = SIM_FAULT;
    sim_print("block %u thread %u: %s\n", block, thread, text);
    sim_print_warps();
}

void sim_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    broken(sim.self.block, sim.self.thread, format, args);
    va_end(args);
    sim.budget = 0;
    to_scheduler();
    abort();
}

void sim_fail_later(const struct sim_warp *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    broken((unsigned)w->block->index, (unsigned)(w->index * SIM_LANES), format, args);
    va_end(args);
}

/* ---- launches ---- */

static void style_choose(uint64_t seed) {
    sim.random = seed * 0x9e3779b97f4a7c15ull + 0x1234567;
    if (!sim.random) sim.random = 1;
    for (int i = 0; i < 8; i++)
        sim_random();
    sim.style.stretch_bits = (int)(sim_random() % 8);
    sim.style.delay_bits = 2 + (int)(sim_random() % 11);
    sim.style.plain_bits = 4 + (int)(sim_random() % 14);
    sim.style.copy_bits = 2 + (int)(sim_random() % 13);
    sim.style.starve_bits = 4 + sim_random() % 9;
    sim.style.starve = sim_random() % 3 ? 65536 >> (2 + sim_random() % 10) : 0;
    sim.style.linger = 65536 >> (3 + sim_random() % 8);
    sim.style.stale = sim_random() % 4 ? 65536 >> (1 + sim_random() % 4) : 0;
    sim.style.nap_bits = sim_random() % 8 ? 11 + (int)(sim_random() % 3) : 0;
    if (sim.launch->settings.in_order) {
        sim.style.delay_bits = sim.style.plain_bits = sim.style.copy_bits = 0, sim.style.stale = 0;
        sim.style.stretch_bits = 6, sim.style.nap_bits = 13, sim.style.starve = 0;
    }
}

static void launch_release(void) {
    while (sim.n_events) {
        struct sim_event e = event_take();
        if (e.kind ==
            EVENT_STORE) { /* what was stored becomes visible also when the launch fails */
            event_happen(e);
        } else if (e.kind != EVENT_WAKE) {
            sim_copy_free(e.what);
        }
    }
    for (int i = 0; i < sim.n_slots; i++)
        free(sim.blocks[i].mbars);
    free(sim.events);
}

/* Memory that one launch leaves to the next: to get all pages anew takes a good part of a short
 * launch, above all under a sanitizer. */
enum { KEPT_BLOCKS, KEPT_WARPS, KEPT_ACTIVE, KEPT_WAITS, KEPT_SHARED, N_KEPT };

static void *kept_take(int which, size_t n, size_t bytes) {
    static struct {
        void *at;
        size_t bytes;
    } kept[N_KEPT];
    const size_t all = (n * bytes + 127) / 128 * 128;
    if (all > kept[which].bytes) {
        free(kept[which].at);
        kept[which].at = aligned_alloc(128, all);
        kept[which].bytes = kept[which].at ? all : 0;
    }
    return kept[which].at;
}
static void *kept_zero(int which, size_t n, size_t bytes) {
    void *at = kept_take(which, n, bytes);
    return at ? memset(at, 0, n * bytes) : NULL;
}

/* Stacks for n threads, kept from launch to launch: on huge pages, for else each switch would miss
 * the nearest table of pages. So no page can tell that a thread runs over; block_end looks. */
static unsigned char *stacks_take(size_t n) {
    static unsigned char *mapped, *stacks;
    static size_t mapped_bytes, n_stacks;
    if (n <= n_stacks) return stacks;
    if (mapped) munmap(mapped, mapped_bytes);
    mapped = NULL, n_stacks = 0;
    mapped_bytes = n * STACK_BYTES + 2 * HUGE_PAGE;
    unsigned char *p = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    mapped = p, n_stacks = n;
    stacks = p + (-(uintptr_t)p & (HUGE_PAGE - 1));
    (void)madvise(stacks, mapped_bytes - HUGE_PAGE, MADV_HUGEPAGE);
    return stacks;
}

static bool launch_prepare(void) {
    const struct sim_launch *l = sim.launch;
    sim.n_slots = l->grid < l->resident ? l->grid : l->resident;
    sim.warps_per_block = (l->threads + SIM_LANES - 1) / SIM_LANES;
    size_t n_warps = (size_t)sim.n_slots * (size_t)sim.warps_per_block;
    size_t shared = ((size_t)l->shared_bytes + 255) / 128 * 128;
    sim.n_active_words = (int)(n_warps + 63) / 64;
    sim.blocks = kept_zero(KEPT_BLOCKS, (size_t)sim.n_slots, sizeof *sim.blocks);
    sim.warps = kept_zero(KEPT_WARPS, n_warps, sizeof *sim.warps);
    sim.active = kept_zero(KEPT_ACTIVE, (size_t)sim.n_active_words, sizeof *sim.active);
    sim.waits =
        kept_zero(KEPT_WAITS, (size_t)SIM_WAITS * (size_t)sim.n_active_words, sizeof *sim.waits);
    sim.shared = kept_take(KEPT_SHARED, (size_t)sim.n_slots, shared);
    sim.stacks = stacks_take(n_warps * SIM_LANES);
    if (!sim.blocks || !sim.warps || !sim.active || !sim.waits || !sim.shared || !sim.stacks)
        return false;
    for (int i = 0; i < sim.n_slots; i++) {
        struct sim_block *b = &sim.blocks[i];
        b->shared = sim.shared + shared * (size_t)i;
        b->warps = sim.warps + i * sim.warps_per_block;
        for (int w = 0; w < sim.warps_per_block; w++)
            b->warps[w].id = i * sim.warps_per_block + w;
    }
    for (int i = 0; i < sim.n_slots; i++)
        block_start(&sim.blocks[i]);
    return true;
}

enum sim_result sim_run(const struct sim_launch *launch, struct sim_counts *counts, char *report,
                        size_t report_bytes) {
    struct sim_store *const free_stores = sim.free_stores;
    memset(&sim, 0, offsetof(struct sim, links));
    sim.launch = launch, sim.free_stores = free_stores;
    sim.report = report, sim.report_bytes = report_bytes;
    if (report_bytes) report[0] = 0;
    style_choose(launch->settings.seed);
    if (launch_prepare()) {
        sim_launch_begin();
        schedule();
        sim_launch_end();
    } else {
        sim.result = SIM_FAULT;
        sim_print("no memory for the simulation\n");
    }
    launch_release();
    sim.counts.steps = sim.now;
    if (counts) *counts = sim.counts;
    return sim.result;
}

/* ---- clocks ---- */

static unsigned op_clock(void) {
    sim_poll(OP_CLOCK, 0, 0, SIM_HERE, SIM_OP_COST / 4);
    return (unsigned)sim.ticks;
}
static unsigned long long op_time_ns(void) {
    sim_poll(OP_CLOCK, 0, 0, SIM_HERE, SIM_OP_COST / 4);
    return sim.ticks;
}
static void op_sleep(unsigned ns) { sim_poll(OP_SLEEP, ns, 0, SIM_HERE, 1 << 20); }
static void op_fail(const char *what) { sim_fail("%s", what); }

const struct sim_ops sim_operations = { .self = &sim.self,
                                        .warp_sync = sim_warp_sync,
                                        .shuffle = sim_shuffle,
                                        .ballot = sim_ballot,
                                        .mma = sim_mma,
                                        .barrier = sim_barrier,
                                        .mbar_init = sim_mbar_init,
                                        .mbar_arrive = sim_mbar_arrive,
                                        .mbar_test = sim_mbar_test,
                                        .shared_load = sim_shared_load,
                                        .shared_store = sim_shared_store,
                                        .fill = sim_fill,
                                        .fill_more = sim_fill_more,
                                        .load = sim_load,
                                        .store = sim_store,
                                        .claim = sim_claim,
                                        .add = sim_add,
                                        .fence = sim_fence,
                                        .previous_over = sim_previous_over,
                                        .clock = op_clock,
                                        .time_ns = op_time_ns,
                                        .sleep = op_sleep,
                                        .fail = op_fail };
