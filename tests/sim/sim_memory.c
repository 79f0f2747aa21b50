/* Global and mapped memory: stores that become visible late, loads that see late, fences. */
#include "sim_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- bounds ---- */

/* What sim_check_memory did not find in the allocation that was asked for last. */
void sim_check_more(uintptr_t at, uint32_t bytes, unsigned align, const char *what) {
    enum { N = sizeof sim.ranges / sizeof sim.ranges[0] };
    if (at % align) sim_fail("%s at %p: not on %u bytes", what, (void *)at, align);
    int i = 1;
    while (i < N && (at < sim.ranges[i].from || at + bytes > sim.ranges[i].to))
        i++;
    const struct sim_range r = i < N ? sim.ranges[i] : sim.launch->memory(at);
    if (at < r.from || at + bytes > r.to)
        sim_fail("%s of %u bytes at %p: outside of every allocation", what, bytes, (void *)at);
    memmove(sim.ranges + 1, sim.ranges, (size_t)(i < N ? i : N - 1) * sizeof r);
    sim.ranges[0] = r;
}

/* Words that go to another GPU are stored in the system's scope, and each GPU waits for words in
 * its own memory. Results that nobody reads before the launch is over may be stored anywhere, and
 * what no launch writes be read anywhere. */
static void check_gpu(const struct sim_warp *w, uintptr_t at, int access, bool stores,
                      const char *what) {
    const int gpu = sim.ranges[0].gpu, mine = sim_gpu_of(w->block);
    if (gpu < 0 || gpu == mine || access == SIM_PEER || access == SIM_MAPPED) return;
    if (sim.launch->reaches && (access == SIM_CONST || (access == SIM_PLAIN && stores))) return;
    sim_fail("%s at %p: it lies on GPU %d, this is GPU %d", what, (void *)at, gpu, mine);
}

static uint64_t memory_read(uintptr_t at, int bytes) {
    if (bytes == 8) return __atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE);
    if (bytes == 4) return __atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE);
    if (bytes == 1) return __atomic_load_n((uint8_t *)at, __ATOMIC_ACQUIRE);
    return __atomic_load_n((uint16_t *)at, __ATOMIC_ACQUIRE);
}

static void memory_write(uintptr_t at, uint64_t value, uint32_t bytes) {
    if (bytes == 8)
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    else if (bytes == 4)
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
    else if (bytes == 2)
        __atomic_store_n((uint16_t *)at, (uint16_t)value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint8_t *)at, (uint8_t)value, __ATOMIC_RELEASE);
}

/* ---- history: what was there before ---- */

static unsigned hash(uintptr_t granule) {
    return (unsigned)((granule >> 3) * 0x9e3779b97f4a7c15ull >> 51) % SIM_HASH;
}

/* The newest entry of the chain at or before `number`, 0 when there is none or it is gone. */
static inline uint32_t history_find(uintptr_t granule, uint32_t number) {
    while (number && number + (uint64_t)SIM_HISTORY > sim.commits) {
        const struct sim_link *l = &sim.links[number % SIM_HISTORY];
        if (l->granule == granule) return number;
        number = l->older;
    }
    return 0;
}

static struct sim_commit *commit_of(uint32_t number) { return &sim.history[number % SIM_HISTORY]; }

static void see(struct sim_commit *c, const struct sim_warp *w) {
    c->seen[w->id / 64 % SIM_SEEN] |= 1ull << w->id % 64;
}

static void history_add(uintptr_t at, const struct sim_warp *w, uint32_t seq) {
    uintptr_t granule = at & ~(uintptr_t)7;
    sim_written(granule);
    const uint32_t number = (uint32_t)++sim.commits;
    if (number != sim.commits) abort(); /* days of simulation */
    struct sim_commit *c = commit_of(number);
    unsigned h = hash(granule);
    sim.links[number % SIM_HISTORY] = (struct sim_link){ granule, sim.chain[h] };
    *c = (struct sim_commit){ .old = memory_read(granule, 8), .warp = w, .seq = seq };
    sim.chain[h] = number;
    see(c, w);
    if (!sim.written_to || granule < sim.written_from) sim.written_from = granule;
    if (granule + 8 > sim.written_to) sim.written_to = granule + 8;
    sim.progress++;
    sim_changed(sim_word_place(granule));
}

/* Whether nothing makes the store visible to w's loads. */
static bool may_miss(const struct sim_warp *w, uint32_t number) {
    if (number <= w->clock.acquired) return false;
    const struct sim_commit *c = commit_of(number);
    if (c->warp->block == w->block && c->seq <= w->clock.seen[c->warp->index]) return false;
    return !(c->seen[w->id / 64 % SIM_SEEN] >> w->id % 64 & 1);
}

static uint64_t history_load(struct sim_warp *w, uintptr_t at, int bytes) {
    uintptr_t granule = at & ~(uintptr_t)7;
    uint32_t number = history_find(granule, sim.chain[hash(granule)]);
    if (!number || !may_miss(w, number)) return memory_read(at, bytes);
    if (!sim_chance(sim.style.stale)) {
        see(commit_of(number), w);
        return memory_read(at, bytes);
    }
    for (;;) {
        uint32_t older = history_find(granule, sim.links[number % SIM_HISTORY].older);
        if (!older || !may_miss(w, older) || sim_random() % 2) break;
        number = older;
    }
    sim.counts.stale_loads++;
    w->idle.over = true; /* there is news that it has not seen */
    uint64_t mask = bytes == 8 ? ~0ull : (1ull << bytes * 8) - 1;
    return commit_of(number)->old >> (at % 8 * 8) & mask;
}

/* ---- stores under way ---- */

void sim_store_free(struct sim_store *s) {
    s->newer[SIM_BY_WARP] = sim.free_stores;
    sim.free_stores = s;
}

static void list_append(struct sim_stores *list, struct sim_store *s, int by) {
    s->older[by] = list->newest, s->newer[by] = NULL;
    *(list->newest ? &list->newest->newer[by] : &list->oldest) = s;
    list->newest = s;
}

static void list_remove(struct sim_stores *list, struct sim_store *s, int by) {
    *(s->older[by] ? &s->older[by]->newer[by] : &list->oldest) = s->newer[by];
    *(s->newer[by] ? &s->newer[by]->older[by] : &list->newest) = s->older[by];
}

/* The stores to this granule, and to others of its hash, that are under way. */
static struct sim_stores *stores_to(struct sim_block *b, uintptr_t at) {
    return &b->places[(at >> 3) * 0x9e3779b97f4a7c15ull >> 40 & (SIM_PLACES - 1)];
}

/* Whether a store becomes visible before an older one of the same warp to mapped memory. */
static bool passes_mapped(const struct sim_store *s) {
    if (!s->mapped && !sim.launch->settings.look) return false; /* nobody would look */
    const struct sim_store *before = s->older[SIM_BY_WARP];
    while (before && !before->mapped)
        before = before->older[SIM_BY_WARP];
    return before != NULL;
}

static void others_look(const struct sim_store *s) {
    const struct sim_settings *set = &sim.launch->settings;
    const unsigned ms = s->mapped ? set->host_look_ms : 0;
    if (set->look) set->look(set->user, sim.launch->params);
    if (ms) nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000l }, NULL);
}

void sim_commit(struct sim_store *s) {
    struct sim_warp *w = s->warp;
    while (s->host && sim.fenced.oldest && sim.fenced.oldest != s &&
           sim.fenced.oldest->fenced <= s->after)
        sim_commit(sim.fenced.oldest);
    const bool passes = passes_mapped(s) || (s->mapped && sim.fenced.oldest);
    if (s->fenced) list_remove(&sim.fenced, s, SIM_BY_FENCE);
    list_remove(&w->stores, s, SIM_BY_WARP);
    list_remove(stores_to(w->block, (uintptr_t)s->at), s, SIM_BY_PLACE);
    s->done = true;
    w->block->n_stores--;
    history_add((uintptr_t)s->at, w, s->seq);
    memory_write((uintptr_t)s->at, s->value, s->bytes);
    if (passes) others_look(s);
}

/* Whether the store comes before whatever w, of the same block, does now. */
static bool is_before(const struct sim_store *s, const struct sim_warp *w) {
    return s->warp == w || s->seq <= w->clock.seen[s->warp->index];
}

/* Makes visible the stores of this block to [at, at + bytes) that come before what w does now:
 * eight bytes at most, on as many, so that they lie in one granule. */
static inline void commit_place(struct sim_warp *w, uintptr_t at, uint64_t bytes) {
    if (!w->block->n_stores) return;
    for (struct sim_store *s = stores_to(w->block, at)->oldest, *next; s; s = next) {
        const uintptr_t from = (uintptr_t)s->at;
        next = s->newer[SIM_BY_PLACE];
        if (from < at + bytes && at < from + s->bytes && is_before(s, w)) sim_commit(s);
    }
}

/* A fence_system orders a store to the host's memory before those that come after a fence_system of
 * who has seen that this fence was made, but the store may still be on its way. */
static void store_fence(struct sim_store *s) {
    if (s->fenced) return;
    s->fenced = ++sim.n_fenced;
    list_append(&sim.fenced, s, SIM_BY_FENCE);
}

/* The same for stores to everywhere. Where somebody looks they may become visible from the newest
 * on; elsewhere nobody could tell. */
static void commit_everywhere(struct sim_warp *w, bool system) {
    struct sim_block *b = w->block;
    const bool backwards = sim.launch->settings.look && sim_random() % 2;
    const bool late = system && !sim.launch->settings.look; /* who looks has made all fences */
    for (int i = 0; b->n_stores && i < b->n_warps; i++) {
        struct sim_store *s = b->warps[i].stores.oldest;
        while (backwards && s && s->newer[SIM_BY_WARP] && is_before(s->newer[SIM_BY_WARP], w))
            s = s->newer[SIM_BY_WARP];
        for (struct sim_store *next; s && is_before(s, w); s = next) {
            next = s->older[SIM_BY_WARP];
            if (!backwards) next = s->newer[SIM_BY_WARP];
            if (late && s->host)
                store_fence(s);
            else if (!s->fenced)
                sim_commit(s);
        }
    }
}

static struct sim_store *store_new(void) {
    struct sim_store *s = sim.free_stores;
    if (s) {
        sim.free_stores = s->newer[SIM_BY_WARP];
        return s;
    }
    s = malloc(sizeof *s);
    if (!s) abort();
    return s;
}

void sim_store(volatile void *p, unsigned long long value, int bytes, int access) {
    struct sim_warp *w = sim.warp;
    struct sim_block *b = w->block;
    enum { FARTHER_BITS = 4 }; /* the host is */
    sim_check_memory(p, (uint32_t)bytes, (unsigned)bytes, "a store");
    const bool host = sim.ranges[0].gpu < 0;
    int delay_bits = access == SIM_PLAIN ? sim.style.plain_bits : sim.style.delay_bits;
    if (access == SIM_PLAIN && host && delay_bits) delay_bits += FARTHER_BITS;
    check_gpu(w, (uintptr_t)p, access, true, "a store");
    commit_place(w, (uintptr_t)p, (uint64_t)bytes);
    if (access != SIM_MAPPED) sim_touch(w, (uintptr_t)p, (uint64_t)bytes, true);
    struct sim_store *s = store_new();
    *s = (struct sim_store){ .at = (unsigned char *)(uintptr_t)p,
                             .value = value,
                             .bytes = (uint32_t)bytes,
                             .seq = ++b->seq,
                             .warp = w,
                             .mapped = access == SIM_MAPPED,
                             .host = host,
                             .after = w->clock.host };
    list_append(&w->stores, s, SIM_BY_WARP);
    list_append(stores_to(b, (uintptr_t)p), s, SIM_BY_PLACE);
    b->n_stores++;
    sim.counts.stores++;
    sim.effect = true;
    if (delay_bits) {
        sim_event(sim.now + sim_spread(delay_bits), EVENT_STORE, s);
    } else {
        sim_commit(s);
        sim_store_free(s);
    }
    sim_linger(1);
}

unsigned long long sim_load(const volatile void *p, int bytes, int access) {
    struct sim_warp *w = sim.warp;
    uintptr_t at = (uintptr_t)p;
    sim_check_memory(p, (uint32_t)bytes, (unsigned)bytes, "a load");
    check_gpu(w, at, access, false, "a load");
    if (access != SIM_MAPPED) sim_touch(w, at, (uint64_t)bytes, false);
    if (access == SIM_CONST) {
        if (at < sim.written_to && at >= sim.written_from &&
            history_find(at & ~(uintptr_t)7, sim.chain[hash(at & ~(uintptr_t)7)]))
            sim_fail("a non-coherent load of memory that this launch has written");
        return memory_read(at, bytes);
    }
    commit_place(w, at, (uint64_t)bytes);
    uint64_t v = history_load(w, at, bytes);
    if (access == SIM_MAPPED)
        sim.mapped = w->idle.elsewhere = true;
    else
        sim_await(sim_word_place(at));
    sim_poll(OP_LOAD, at, v, SIM_HERE, access == SIM_MAPPED ? SIM_OP_COST : 1);
    return v;
}

/* ---- atomics: at once, in memory ---- */

static uint32_t change(volatile void *p, uint32_t value, bool claim) {
    struct sim_warp *w = sim.warp;
    uintptr_t at = (uintptr_t)p;
    sim_check_memory(p, 4, 4, "an atomic");
    commit_place(w, at, 4);
    uint32_t old = (uint32_t)memory_read(at, 4), now = claim ? (old ? old : value) : old + value;
    sim.effect = true;
    if (now != old) {
        history_add(at, w, ++w->block->seq);
        memory_write(at, now, 4);
    }
    sim_linger(1);
    return old;
}

unsigned sim_claim(volatile void *p, unsigned value) { return change(p, value, true); }
void sim_add(volatile void *p, unsigned value) { change(p, value, false); }

/* ---- fences ---- */

void sim_fence(int kind) {
    struct sim_warp *w = sim.warp;
    if (kind == SIM_FENCE_GPU || kind == SIM_FENCE_SYSTEM)
        commit_everywhere(w, kind == SIM_FENCE_SYSTEM);
    if (kind == SIM_FENCE_SYSTEM) w->clock.host = sim.n_fenced;
    if (kind == SIM_FENCE_SLOT) {
        sim_copies_fence(w->block);
    } else if (kind == SIM_FENCE_MBAR_INIT) {
        sim_mbars_known(w);
    } else if (kind == SIM_FENCE_COPIES) {
        w->clock.copies = w->clock.acquired;
        memcpy(w->copy_seen, w->clock.seen, sizeof w->copy_seen);
        w->copy_seen[w->index] = w->block->seq;
        w->copies_waited = w->waited;
    } else {
        w->clock.acquired = sim.commits;
    }
    sim_linger(SIM_OP_COST / 4);
}
