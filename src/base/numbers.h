/* The smaller and the larger of two numbers of one type, and the middle of many. */
#ifndef REEL_BASE_NUMBERS_H
#define REEL_BASE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

static inline int int_min(int a, int b) { return a < b ? a : b; }
static inline int int_max(int a, int b) { return a > b ? a : b; }
static inline size_t size_max(size_t a, size_t b) { return a > b ? a : b; }
static inline uint64_t u64_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t u64_max(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Sorts in place; of an even number the mean of the two in the middle; 0 values give 0. */
double median(double *values, int n);

#endif
