/* What went wrong, and where each warp was. */
#define _GNU_SOURCE
#include "sim_state.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sim_print(const char *format, ...) {
    va_list args;
    if (sim.report_used >= sim.report_bytes) return;
    va_start(args, format);
    int n =
        vsnprintf(sim.report + sim.report_used, sim.report_bytes - sim.report_used, format, args);
    va_end(args);
    if (n > 0) sim.report_used += (size_t)n;
}

/* File and line of a place in the kernel, and of those it is inlined into, through addr2line. */
static void place_find(void *where, char *text, size_t bytes) {
    Dl_info info;
    char command[512], line[256];
    size_t used = 0;
    text[0] = 0;
    if (!dladdr(where, &info) || !info.dli_fname) return;
    snprintf(command, sizeof command, "addr2line -i -s -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
             (size_t)((char *)where - (char *)info.dli_fbase) - 1);
    FILE *pipe = popen(command, "r");
    if (!pipe) return;
    while (fgets(line, sizeof line, pipe)) {
        line[strcspn(line, "\n ")] = 0;
        if (strstr(line, "sim_device.h") || strchr(line, '?') || used >= bytes) continue;
        int n = snprintf(text + used, bytes - used, "%s%s", used ? " < " : ", ", line);
        used += n > 0 ? (size_t)n : 0;
    }
    pclose(pipe);
}

/* Most warps wait at the same few places: those of the report at hand. */
enum { PLACES = 16 };
static struct {
    void *where;
    char text[256];
} places[PLACES];
static unsigned next_place;

static void place_print(void *where) {
    unsigned i = 0;
    if (!where) return;
    while (i < PLACES && places[i].where != where)
        i++;
    if (i == PLACES) {
        i = next_place++ % PLACES;
        places[i].where = where;
        place_find(where, places[i].text, sizeof places[i].text);
    }
    sim_print("%s", places[i].text);
}

static void poll_print(const struct sim_warp *w, int lane) {
    const struct sim_look *t = &w->looks[lane];
    switch (t->polls) {
    case OP_LOAD:
        sim_print("loads %#llx, sees %#llx", (unsigned long long)t->polled,
                  (unsigned long long)t->wanted);
        break;
    case OP_MBAR:
        sim_print("tests mbarrier %llu for parity %llu", (unsigned long long)t->polled,
                  (unsigned long long)t->wanted);
        sim_mbar_print(w->block, (unsigned)t->polled);
        break;
    case OP_SHARED:
        sim_print("loads shared %llu, sees %llu", (unsigned long long)t->polled,
                  (unsigned long long)t->wanted);
        break;
    default:
        sim_print("runs");
    }
}

static void warp_print(const struct sim_warp *w) {
    static const char *const ops[] = { "", "warp_sync", "shuffle", "vote", "tile_mma", "barrier" };
    int first = w->ready ? __builtin_ctz(w->ready) : w->at_op ? __builtin_ctz(w->at_op) : 0;
    sim_print("  warp %d: ", w->index);
    if (w->done == w->all) {
        sim_print("has returned\n");
        return;
    }
    if (w->barrier >= 0) {
        const struct sim_barrier *bar = &w->block->named[w->barrier];
        sim_print("barrier %d, %d of %d threads have come", w->barrier, bar->count, bar->threads);
    } else if (w->ready) {
        if (w->ready != w->all) sim_print("lanes %#x of it: ", w->ready);
        poll_print(w, first);
    } else if (w->at_op) {
        sim_print("lanes %#x at %s", w->at_op, ops[w->op]);
    } else {
        sim_print("never started");
    }
    place_print(w->where[first]);
    sim_print("\n");
}

void sim_print_warps(void) {
    memset(places, 0, sizeof places);
    for (int i = 0; i < sim.n_slots; i++) {
        const struct sim_block *b = &sim.blocks[i];
        sim_print("block %d%s\n", b->index, b->n_copies ? ", copies under way" : "");
        for (int w = 0; w < b->n_warps; w++)
            warp_print(&b->warps[w]);
    }
}
