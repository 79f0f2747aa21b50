/* Switching stacks: what a simulated thread runs on. */
#ifndef REEL_TESTS_SIM_FIBER_H
#define REEL_TESTS_SIM_FIBER_H

#include <stddef.h>

/* Leaves this stack, its place in *save, and goes on at `load`, which a fiber_switch saved or
 * fiber_make made. */
void fiber_switch(void **save, void *load);

/* A place that starts entry(); entry must never return. */
void *fiber_make(void *stack, size_t bytes, void (*entry)(void));

#endif
