#include "cli/progress.h"

#include "base/clock.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <string.h>

#define QUIET_MS    250 /* what is done by then needs no bar */
#define INTERVAL_MS 100
#define BAR_COLUMNS 30
#define BAR_NOTED   14 /* where a note has to fit in 80 columns, too */

void progress_start(struct progress *p) {
    *p = (struct progress){ .enabled = terminal_is(stderr), .start_ms = clock_ms() };
}

static void amount(char *text, size_t n, uint64_t done, uint64_t total) {
    if (total >= 10000000) {
        snprintf(text, n, "%llu of %llu MB", (unsigned long long)(done / 1000000),
                 (unsigned long long)(total / 1000000));
    } else {
        snprintf(text, n, "%llu of %llu", (unsigned long long)done, (unsigned long long)total);
    }
}

static void draw(struct progress *p, uint64_t done, uint64_t total, double now) {
    char numbers[64] = "", bar[BAR_COLUMNS + 1] = "";
    double part = total ? (double)done / (double)total : 0;
    if (part > 1) part = 1;
    const int columns_of_bar = p->note[0] ? BAR_NOTED : BAR_COLUMNS;
    int n = (int)(part * columns_of_bar);
    for (int i = 0; i < columns_of_bar; i++)
        bar[i] = i < n ? '#' : '.';
    if (total) amount(numbers, sizeof numbers, done, total);
    int left_s = part > 0.01 ? (int)((now - p->start_ms) * (1 - part) / part / 1e3) : -1;
    int columns = terminal_columns(stderr);
    char line[250];
    if (!total) {
        snprintf(line, sizeof line, "%s ...%s", p->stage, p->note);
    } else if (left_s < 0) {
        snprintf(line, sizeof line, "%s [%s] %3d %% %s%s", p->stage, bar, (int)(part * 100),
                 numbers, p->note);
    } else {
        snprintf(line, sizeof line, "%s [%s] %3d %% %s, %d s left%s", p->stage, bar,
                 (int)(part * 100), numbers, left_s, p->note);
    }
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    fflush(stderr);
    p->drawn = true;
    p->drawn_ms = now;
}

bool progress_update(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct progress *p = user;
    double now = clock_ms();
    if (interrupt_pending()) return false;
    if (!p->enabled) return true;
    if (strncmp(p->stage, stage, sizeof p->stage - 1) != 0) {
        snprintf(p->stage, sizeof p->stage, "%s", stage);
        p->start_ms = now;
        p->drawn_ms = 0;
    }
    if (now - p->start_ms >= QUIET_MS && now - p->drawn_ms >= INTERVAL_MS)
        draw(p, done, total, now);
    return true;
}

void progress_end(struct progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
