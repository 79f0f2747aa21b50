/* Chunks of growing size; a piece that is larger than the next chunk would be gets one of its own.
 */
#include "jinja/arena.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_CHUNK = 32 << 10, LARGEST_CHUNK = 4 << 20 };

struct arena_chunk {
    struct arena_chunk *before;
    size_t n_bytes; /* this header included */
};

static size_t aligned(size_t n) { return (n + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

static bool grow(struct arena *arena, size_t n_bytes) {
    size_t head = aligned(sizeof(struct arena_chunk));
    size_t size = arena->chunk ? arena->chunk->n_bytes * 2 : FIRST_CHUNK;
    if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
    if (size < head + n_bytes) size = head + n_bytes;
    if (size > arena->limit - arena->total) size = head + n_bytes;
    if (size > arena->limit - arena->total) {
        arena->over = true;
        return false;
    }
    struct arena_chunk *chunk = mem_alloc(size);
    if (!chunk) return false;
    chunk->before = arena->chunk;
    chunk->n_bytes = size;
    arena->chunk = chunk;
    arena->at = (char *)chunk + head;
    arena->end = (char *)chunk + size;
    arena->total += size;
    return true;
}

void *arena_raw(struct arena *arena, size_t n_bytes) {
    if (n_bytes > arena->limit) {
        arena->over = true;
        return NULL;
    }
    n_bytes = aligned(n_bytes ? n_bytes : 1);
    if (!arena->at || (size_t)(arena->end - arena->at) < n_bytes) {
        if (!grow(arena, n_bytes)) return NULL;
    }
    void *p = arena->at;
    arena->at += n_bytes;
    return p;
}

void *arena_take(struct arena *arena, size_t n_bytes) {
    void *p = arena_raw(arena, n_bytes);
    return p ? memset(p, 0, n_bytes) : NULL;
}

bool arena_extend(struct arena *arena, const void *p, size_t old, size_t n_bytes) {
    const char *begin = p;
    if (!begin || begin + aligned(old) != arena->at) return false;
    if (n_bytes > arena->limit || (size_t)(arena->end - begin) < aligned(n_bytes)) return false;
    arena->at += aligned(n_bytes) - aligned(old);
    return true;
}

static void drop_newest(struct arena *arena) {
    struct arena_chunk *chunk = arena->chunk;
    arena->chunk = chunk->before;
    arena->total -= chunk->n_bytes;
    mem_free(chunk);
}

void arena_release(struct arena *arena) {
    while (arena->chunk)
        drop_newest(arena);
    arena->at = arena->end = NULL;
}

struct arena_mark arena_mark(const struct arena *arena) {
    return (struct arena_mark){ arena->chunk, arena->at, arena->end };
}

void arena_back(struct arena *arena, struct arena_mark mark) {
    while (arena->chunk != mark.chunk)
        drop_newest(arena);
    arena->at = mark.at;
    arena->end = mark.end;
    arena->over = false;
}
