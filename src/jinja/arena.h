/* Memory of one template or one rendering: handed out piece by piece, freed at once. */
#ifndef REEL_JINJA_ARENA_H
#define REEL_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunk; /* the newest; each names the one before it */
    char *at, *end;            /* what is free in it */
    size_t total;              /* bytes of all chunks */
    size_t limit;
    bool over; /* the limit was met; otherwise NULL means that the machine has no memory */
};

/* Zeroed, 16-byte aligned; NULL when there is none. */
void *arena_take(struct arena *arena, size_t n_bytes);
/* The same without zeroes. */
void *arena_raw(struct arena *arena, size_t n_bytes);
/* Makes the newest piece, `p` of `old` bytes, larger where it lies; false when it is not the newest
 * or its chunk is full. */
bool arena_extend(struct arena *arena, const void *p, size_t old, size_t n_bytes);
void arena_release(struct arena *arena);

/* Gives back what was taken after the mark was made. */
struct arena_mark {
    struct arena_chunk *chunk;
    char *at, *end;
};
struct arena_mark arena_mark(const struct arena *arena);
void arena_back(struct arena *arena, struct arena_mark mark);

#endif
