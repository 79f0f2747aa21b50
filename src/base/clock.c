#include "base/clock.h"

#include <time.h>

double clock_s(void) { return clock_ms() * 1e-3; }

double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
