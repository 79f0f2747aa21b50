/* Bytes in order, from a file, a pipe, standard input or memory. */
#ifndef REEL_AUDIO_BYTE_STREAM_H
#define REEL_AUDIO_BYTE_STREAM_H

#include "base/error.h"

/* Called before a read that may have to wait, of a pipe or a terminal; it may do the waiting. False
 * ends the read with REEL_E_CANCELLED. */
typedef bool (*byte_wait_fn)(void *user, int fd);

/* Fields are read-only outside byte_stream.c, but for wait and user. */
struct byte_stream {
    const char *name; /* for messages: borrowed */
    int fd;           /* -1: memory */
    bool owns_fd;
    const unsigned char *bytes; /* memory: borrowed */
    uint64_t begin;             /* where in the file the stream began */
    int64_t size;               /* bytes from there to the end when it was opened; -1: a pipe */
    uint64_t at;                /* bytes taken */
    byte_wait_fn wait;          /* NULL: none */
    void *user;
};

/* path "-" is standard input, from where it stands. The name is borrowed while the stream lives.
 * Opening a named pipe waits for its writer. */
enum reel_status byte_stream_open(struct byte_stream *s, const char *path, struct reel_error *err);
void byte_stream_memory(struct byte_stream *s, const char *name, const void *bytes, size_t n);
void byte_stream_close(struct byte_stream *s);

/* What is there, 1 to n bytes, waiting only for the first; 0: the end. */
enum reel_status byte_stream_some(struct byte_stream *s, void *out, size_t n, size_t *n_read,
                                  struct reel_error *err);

/* n bytes; less only at the end. */
enum reel_status byte_stream_full(struct byte_stream *s, void *out, size_t n, size_t *n_read,
                                  struct reel_error *err);

/* Past n bytes; *whole tells whether there were so many. */
enum reel_status byte_stream_skip(struct byte_stream *s, uint64_t n, bool *whole,
                                  struct reel_error *err);

/* Whether byte_stream_seek works. */
static inline bool byte_stream_seekable(const struct byte_stream *s) { return s->size >= 0; }
enum reel_status byte_stream_seek(struct byte_stream *s, uint64_t at, struct reel_error *err);

#endif
