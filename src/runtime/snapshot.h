#ifndef REEL_RUNTIME_SNAPSHOT_H
#define REEL_RUNTIME_SNAPSHOT_H

#include <stddef.h>

/* Writes the check sum of n_bytes (at least a header) of snapshot into it: for tests that change
 * what lies under it. */
void snapshot_seal(void *bytes, size_t n_bytes);

#endif
