/* A clock that only goes forward, from a moment of no meaning. */
#ifndef REEL_BASE_CLOCK_H
#define REEL_BASE_CLOCK_H

double clock_ms(void); /* milliseconds */
double clock_s(void);  /* seconds */

#endif
