#include "cli/history.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADING "_HiStOrY_V2_" /* the first line of libedit's files */

/* ---- one entry as a line --------------------------------------------------------------------- */

static bool is_special(char c) { return (unsigned char)c < 0x20 || c == 0x7f || c == '\\'; }

static enum reel_status encode(struct buffer *line, const char *text, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (; *text && status == REEL_OK; text++)
        status = is_special(*text)
                     ? buffer_printf(line, err, "\\%03o", (unsigned)(unsigned char)*text)
                     : buffer_append(line, text, 1, err);
    return status == REEL_OK ? buffer_append(line, "\n", 1, err) : status;
}

static bool is_octal(char c) { return c >= '0' && c < '8'; }

/* In place; what is no such code stays as it is. Returns the length. */
static size_t decode(char *line, size_t n) {
    size_t to = 0;
    for (size_t at = 0; at < n; at++) {
        char c = line[at];
        if (c == '\\' && n - at > 3 && line[at + 1] < '4' && is_octal(line[at + 1]) &&
            is_octal(line[at + 2]) && is_octal(line[at + 3])) {
            c = (char)((line[at + 1] - '0') * 64 + (line[at + 2] - '0') * 8 + line[at + 3] - '0');
            at += 3;
        }
        if (c) line[to++] = c;
    }
    return to;
}

/* ---- the list -------------------------------------------------------------------------------- */

static enum reel_status remember(struct history *h, const char *text, size_t n,
                                 struct reel_error *err) {
    char *copy = NULL;
    if (n == 0 ||
        (h->n && strlen(h->entries[h->n - 1]) == n && memcmp(h->entries[h->n - 1], text, n) == 0))
        return REEL_OK;
    enum reel_status status = mem_text(&copy, text, n, "a line typed", err);
    if (status != REEL_OK) return status;
    if (h->n == HISTORY_ENTRIES) {
        mem_free(h->entries[0]);
        h->n--;
        memmove(h->entries, h->entries + 1, (size_t)h->n * sizeof *h->entries);
    }
    h->entries[h->n++] = copy;
    return REEL_OK;
}

int history_search(const struct history *h, int from, int step, const char *text, size_t n) {
    for (int i = from + step; i >= 0 && i < h->n; i += step) {
        const char *entry = h->entries[i];
        for (size_t left = strlen(entry); left >= n; left--, entry++)
            if (memcmp(entry, text, n) == 0) return i;
    }
    return -1;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Opened and locked: who adds and who cuts do not meet. -1 when it cannot be. */
static int open_locked(const char *path) {
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const int fd =
        open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat st;
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fchmod(fd, 0600) == 0 &&
        fcntl(fd, F_SETLKW, &lock) == 0)
        return fd;
    close(fd);
    return -1;
}

/* All of the file, or of a longer one the end, from the beginning of a line. */
static enum reel_status read_file(int fd, struct buffer *text, bool *longer,
                                  struct reel_error *err) {
    struct stat st;
    char chunk[1 << 14];
    ssize_t n;
    enum reel_status status = buffer_append(text, "", 0, err);
    *longer = fstat(fd, &st) == 0 && (uint64_t)st.st_size > HISTORY_FILE_BYTES;
    if (*longer && lseek(fd, st.st_size - (off_t)(HISTORY_FILE_BYTES / 2), SEEK_SET) < 0)
        return status;
    while (status == REEL_OK && text->size < 2 * HISTORY_FILE_BYTES &&
           (n = read(fd, chunk, sizeof chunk)) > 0)
        status = buffer_append(text, chunk, (size_t)n, err);
    return status;
}

/* The file becomes this text. Should the machine fail in between, what follows it are lines that
 * were there before. */
static void cut_file(int fd, const char *text, size_t n) {
    if (fcntl(fd, F_SETFL, 0) != 0) return; /* no longer appending */
    if (pwrite(fd, text, n, 0) == (ssize_t)n && ftruncate(fd, (off_t)n) != 0) errno = 0;
}

static enum reel_status take_lines(struct history *h, char *text, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (char *next; status == REEL_OK && *text; text = next) {
        char *end = text + strcspn(text, "\n");
        next = end + (*end != '\0');
        *end = '\0';
        if (strcmp(text, HEADING) == 0) continue;
        status = remember(h, text, decode(text, (size_t)(end - text)), err);
    }
    return status;
}

static enum reel_status load(struct history *h, struct reel_error *err) {
    struct buffer text = { 0 };
    bool longer = false;
    const int fd = open_locked(h->path);
    if (fd < 0) return REEL_OK;
    enum reel_status status = read_file(fd, &text, &longer, err);
    char *lines = text.bytes;
    if (status == REEL_OK && longer) { /* it was begun in the middle of a line */
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
        cut_file(fd, lines, text.size - (size_t)(lines - text.bytes));
    }
    close(fd); /* which ends the lock */
    if (status == REEL_OK) status = take_lines(h, lines, err);
    buffer_release(&text);
    return status;
}

enum reel_status history_open(struct history *h, const char *path, struct reel_error *err) {
    *h = (struct history){ 0 };
    enum reel_status status =
        mem_zeroed(&h->entries, HISTORY_ENTRIES, sizeof *h->entries, "the lines typed", err);
    if (status == REEL_OK && path) {
        status = mem_text(&h->path, path, strlen(path), "a path", err);
        if (status == REEL_OK) status = load(h, err);
    }
    if (status != REEL_OK) history_close(h);
    return status;
}

/* One write, so that lines of several programs do not mix. */
static enum reel_status append(const struct history *h, const char *text, struct reel_error *err) {
    struct buffer line = { 0 };
    enum reel_status status = encode(&line, text, err);
    const int fd = status == REEL_OK ? open_locked(h->path) : -1;
    if (fd >= 0) {
        if (write(fd, line.bytes, line.size) < 0) errno = 0; /* a convenience: nothing is said */
        close(fd);
    }
    buffer_release(&line);
    return status;
}

enum reel_status history_add(struct history *h, const char *text, struct reel_error *err) {
    const size_t n = strlen(text);
    if (n == 0 || (h->n && strcmp(h->entries[h->n - 1], text) == 0)) return REEL_OK;
    enum reel_status status = remember(h, text, n, err);
    if (status == REEL_OK && h->path && n <= HISTORY_LONGEST) status = append(h, text, err);
    return status;
}

void history_close(struct history *h) {
    for (int i = 0; i < h->n; i++)
        mem_free(h->entries[i]);
    mem_free(h->entries);
    mem_free(h->path);
    *h = (struct history){ 0 };
}
