/* Numbers as decimal digits. */
#ifndef REEL_BASE_DECIMAL_H
#define REEL_BASE_DECIMAL_H

#include <stddef.h>

/* The shortest decimal digits that read back as `value` (> 0, finite), closest to it, terminated,
 * and the exponent of the first: value = d.ddd * 10^exponent. Returns how many. Correct rounding to
 * n digits can miss the one n-digit neighbour above that still reads back (2^-44 is such a value),
 * so that is tried too. */
size_t decimal_shortest(double value, char digits[18], int *exponent);

#endif
