#include "audio/byte_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static enum reel_status failed(const struct byte_stream *s, const char *what,
                               struct reel_error *err) {
    return err_set(err, REEL_E_IO, "%s: cannot %s: %s", s->name, what, strerror(errno));
}

/* Only of regular files is a seek known to mean what it says. */
static enum reel_status measure(struct byte_stream *s, struct reel_error *err) {
    struct stat st;
    if (fstat(s->fd, &st) != 0) return failed(s, "stat", err);
    if (S_ISDIR(st.st_mode))
        return err_set(err, REEL_E_IO, "%s: a folder, not an audio file", s->name);
    if (!S_ISREG(st.st_mode)) return REEL_OK;
    off_t begin = lseek(s->fd, 0, SEEK_CUR);
    if (begin < 0) return failed(s, "seek", err);
    s->begin = (uint64_t)begin;
    s->size = st.st_size > begin ? (int64_t)(st.st_size - begin) : 0;
    return REEL_OK;
}

enum reel_status byte_stream_open(struct byte_stream *s, const char *path, struct reel_error *err) {
    bool standard = strcmp(path, "-") == 0;
    *s = (struct byte_stream){ .name = standard ? "standard input" : path, .size = -1 };
    s->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    s->owns_fd = !standard && s->fd >= 0;
    if (s->fd < 0) {
        enum reel_status status =
            errno == ENOENT || errno == ENOTDIR ? REEL_E_NOT_FOUND : REEL_E_IO;
        return err_set(err, status, "%s: cannot open: %s", path, strerror(errno));
    }
    enum reel_status status = measure(s, err);
    if (status != REEL_OK) byte_stream_close(s);
    return status;
}

void byte_stream_memory(struct byte_stream *s, const char *name, const void *bytes, size_t n) {
    *s = (struct byte_stream){ .name = name, .fd = -1, .bytes = bytes, .size = (int64_t)n };
}

void byte_stream_close(struct byte_stream *s) {
    if (s->owns_fd) close(s->fd);
    s->owns_fd = false;
    s->fd = -1;
}

static size_t take_memory(const struct byte_stream *s, void *out, size_t n) {
    uint64_t left = s->at < (uint64_t)s->size ? (uint64_t)s->size - s->at : 0;
    if (n > left) n = (size_t)left;
    if (n) memcpy(out, s->bytes + s->at, n);
    return n;
}

enum reel_status byte_stream_some(struct byte_stream *s, void *out, size_t n, size_t *n_read,
                                  struct reel_error *err) {
    *n_read = 0;
    if (s->fd < 0) {
        *n_read = take_memory(s, out, n);
    } else {
        ssize_t got;
        do {
            if (s->wait && !byte_stream_seekable(s) && !s->wait(s->user, s->fd))
                return err_set(err, REEL_E_CANCELLED, "%s: cancelled", s->name);
            got = read(s->fd, out, n);
        } while (got < 0 && errno == EINTR);
        if (got < 0) return failed(s, "read", err);
        *n_read = (size_t)got;
    }
    s->at += *n_read;
    return REEL_OK;
}

enum reel_status byte_stream_full(struct byte_stream *s, void *out, size_t n, size_t *n_read,
                                  struct reel_error *err) {
    *n_read = 0;
    while (*n_read < n) {
        size_t got = 0;
        enum reel_status status =
            byte_stream_some(s, (unsigned char *)out + *n_read, n - *n_read, &got, err);
        if (status != REEL_OK) return status;
        if (got == 0) return REEL_OK;
        *n_read += got;
    }
    return REEL_OK;
}

enum reel_status byte_stream_seek(struct byte_stream *s, uint64_t at, struct reel_error *err) {
    if (s->fd >= 0 && lseek(s->fd, (off_t)(s->begin + at), SEEK_SET) < 0)
        return failed(s, "seek", err);
    s->at = at;
    return REEL_OK;
}

enum reel_status byte_stream_skip(struct byte_stream *s, uint64_t n, bool *whole,
                                  struct reel_error *err) {
    *whole = false;
    if (byte_stream_seekable(s)) {
        uint64_t size = (uint64_t)s->size, left = s->at < size ? size - s->at : 0;
        *whole = n <= left;
        return byte_stream_seek(s, s->at + (*whole ? n : left), err);
    }
    unsigned char scratch[4096];
    while (n > 0) {
        size_t want = n < sizeof scratch ? (size_t)n : sizeof scratch, got = 0;
        enum reel_status status = byte_stream_full(s, scratch, want, &got, err);
        if (status != REEL_OK || got < want) return status;
        n -= got;
    }
    *whole = true;
    return REEL_OK;
}
