/* One file a prefix: a head, the ids, the session's snapshot, which has a check sum of its own. The
 * ids of all files are in memory, so the longest common prefix is found without reading a file.
 * Whoever can write into the folder can put anything into a file: nothing in it is trusted. */
#include "server/prefixes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/sha256.h"

#include "server/models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_FILES 4096
#define MOST_IDS   (1 << 20)
#define KEY_CHARS  16
#define NAME_BYTES 48 /* KEY-HASH.prefix */
#define LOOK_MS    500
#define READ_NS    1000 /* a KiB of a file, read and restored: until it was measured */

static const char magic[8] = { 'r', 'e', 'e', 'l', 'p', 'f', 'x', '1' };

struct head {
    char magic[8];
    char key[KEY_CHARS]; /* of the model */
    uint32_t n_ids;
    uint32_t eval_ns; /* what evaluating one of them took; 0: not known */
    uint64_t snapshot_bytes;
};
_Static_assert(sizeof(struct head) == 40, "a file's head has no holes");

struct prefix {
    char name[NAME_BYTES], key[KEY_CHARS];
    int32_t *ids; /* [n_ids] */
    int n_ids;
    unsigned eval_ns;
    size_t bytes; /* of the file */
    int64_t used; /* nanoseconds of 1970 */
};

struct prefixes {
    struct prefixes_options options;
    int folder;
    pthread_mutex_t lock; /* guards what follows */
    struct prefix *all;   /* [n] */
    int n;
    size_t bytes;
    double read_ns; /* a KiB of a file takes, lately */
    pthread_cond_t wake;
    pthread_t thread;
    bool running, over;
};

static void say(const struct prefixes *p, const char *what, const char *name, const char *why) {
    char line[300];
    if (!p->options.log) return;
    snprintf(line, sizeof line, "%s/%s: %s%s%s", p->options.folder, name, what, why[0] ? ": " : "",
             why);
    p->options.log(p->options.user, line);
}

/* ---- the list; the lock is held ---- */

static void drop(struct prefixes *p, int index, bool file_too) {
    struct prefix *f = &p->all[index];
    if (file_too) unlinkat(p->folder, f->name, 0);
    p->bytes -= f->bytes;
    mem_free(f->ids);
    *f = p->all[--p->n];
}

static int index_of(const struct prefixes *p, const char *name) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->all[i].name, name) == 0) return i;
    return -1;
}

/* Room for one of so many bytes; false: it is larger than all may be. */
static bool make_room(struct prefixes *p, size_t bytes) {
    if (bytes > p->options.most_bytes) return false;
    while (p->n > 0 && (p->n == MOST_FILES || p->bytes > p->options.most_bytes - bytes)) {
        int oldest = 0;
        for (int i = 1; i < p->n; i++)
            if (p->all[i].used < p->all[oldest].used) oldest = i;
        drop(p, oldest, true);
    }
    return true;
}

/* Takes the ids on success. */
static bool add(struct prefixes *p, const struct prefix *f) {
    const int old = index_of(p, f->name);
    if (old >= 0) drop(p, old, false);
    struct prefix *all = mem_resize(p->all, ((size_t)p->n + 1) * sizeof *all);
    if (!all) return false;
    p->all = all;
    p->all[p->n++] = *f;
    p->bytes += f->bytes;
    return true;
}

static int common(const struct prefix *f, const int32_t *ids, size_t n_ids) {
    int n = 0;
    while (n < f->n_ids && (size_t)n < n_ids && f->ids[n] == ids[n])
        n++;
    return n;
}

/* ---- reading ---- */

static bool read_whole(int fd, void *bytes, size_t n, off_t at) {
    char *to = bytes;
    while (n > 0) {
        ssize_t here = pread(fd, to, n, at);
        if (here < 0 && errno == EINTR) continue;
        if (here <= 0) return false;
        to += here;
        at += here;
        n -= (size_t)here;
    }
    return true;
}

/* The head of a file of this size, and whether it can be one. */
static bool read_head(int fd, struct head *head, size_t size) {
    if (size < sizeof *head || !read_whole(fd, head, sizeof *head, 0)) return false;
    if (memcmp(head->magic, magic, sizeof magic) != 0) return false;
    for (int i = 0; i < KEY_CHARS; i++)
        if (!strchr("0123456789abcdef", head->key[i]) || !head->key[i]) return false;
    if (head->n_ids == 0 || head->n_ids > MOST_IDS) return false;
    const size_t before = sizeof *head + head->n_ids * sizeof(int32_t);
    return size > before && head->snapshot_bytes == size - before;
}

static int open_file(const struct prefixes *p, const char *name, struct stat *about) {
    int fd = openat(p->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    if (fstat(fd, about) == 0 && S_ISREG(about->st_mode) && about->st_size > 0) return fd;
    close(fd);
    return -1;
}

static int64_t nanoseconds(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

static bool list_file(struct prefixes *p, const char *name) {
    struct prefix f = { .name = "" };
    struct head head;
    struct stat about;
    int fd = open_file(p, name, &about);
    if (fd < 0) return false;
    const size_t size = (size_t)about.st_size;
    bool good = read_head(fd, &head, size);
    if (good) f.ids = mem_alloc(head.n_ids * sizeof *f.ids);
    good = f.ids && read_whole(fd, f.ids, head.n_ids * sizeof *f.ids, sizeof head);
    close(fd);
    if (good) {
        snprintf(f.name, sizeof f.name, "%s", name);
        memcpy(f.key, head.key, KEY_CHARS);
        f.n_ids = (int)head.n_ids;
        f.eval_ns = head.eval_ns;
        f.bytes = size;
        f.used = nanoseconds(about.st_mtim);
        good = make_room(p, size) && add(p, &f);
    }
    if (!good) mem_free(f.ids);
    return good;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* Other files are left alone; half of one, left by a crash, goes. */
static enum reel_status list_all(struct prefixes *p, struct reel_error *err) {
    int fd = openat(p->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) close(fd);
        return err_set(err, REEL_E_IO, "%s: %s", p->options.folder, strerror(errno));
    }
    for (struct dirent *d; (d = readdir(dir));) {
        if (ends_with(d->d_name, ".prefix.part")) unlinkat(p->folder, d->d_name, 0);
        if (!ends_with(d->d_name, ".prefix")) continue;
        if (strlen(d->d_name) < NAME_BYTES && list_file(p, d->d_name)) continue;
        say(p, "removed", d->d_name, "it is damaged, or there is no room for it");
        unlinkat(p->folder, d->d_name, 0);
    }
    closedir(dir);
    return REEL_OK;
}

/* ---- a life ---- */

static void *look_again(void *user) {
    struct prefixes *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
        if (p->over) break;
        pthread_mutex_unlock(&p->lock);
        p->options.look(p->options.user);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static enum reel_status open_folder(struct prefixes *p, struct reel_error *err) {
    const char *folder = p->options.folder;
    struct stat about;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return err_set(err, REEL_E_IO, "--prefix-dir %s: %s", folder, strerror(errno));
    p->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->folder < 0 || fstat(p->folder, &about) != 0)
        return err_set(err, REEL_E_IO, "--prefix-dir %s: %s", folder, strerror(errno));
    if (about.st_uid != geteuid() || about.st_mode & 077)
        return err_set(
            err, REEL_E_ARGUMENT,
            "--prefix-dir %s: it must be yours, and nobody else may enter it (chmod 700)", folder);
    return list_all(p, err);
}

enum reel_status prefixes_open(struct prefixes **out, const struct prefixes_options *options,
                               struct reel_error *err) {
    struct prefixes *p = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&p, 1, sizeof *p, "kept prefixes", err);
    if (status != REEL_OK) return status;
    p->options = *options;
    p->folder = -1;
    p->read_ns = READ_NS;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    status = open_folder(p, err);
    if (status == REEL_OK && options->look) {
        p->running = pthread_create(&p->thread, NULL, look_again, p) == 0;
        if (!p->running) status = err_memory(err, "a thread that keeps prefixes", 0);
    }
    if (status == REEL_OK) {
        *out = p;
    } else {
        prefixes_close(p);
    }
    return status;
}

void prefixes_end(struct prefixes *p) {
    if (!p || !p->running) return;
    pthread_mutex_lock(&p->lock);
    p->over = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->running = false;
}

void prefixes_close(struct prefixes *p) {
    if (!p) return;
    prefixes_end(p);
    while (p->n > 0)
        drop(p, p->n - 1, false);
    mem_free(p->all);
    if (p->folder >= 0) close(p->folder);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* ---- restoring ---- */

/* What a model is: a snapshot carries more and is refused by another, this finds its files. */
static void key_of(const struct served_model *m, char key[KEY_CHARS]) {
    char text[600], hex[SHA256_HEX];
    snprintf(text, sizeof text, "%.300s|%s|%s|%s|%" PRIu64 "|%" PRIu64 "|%d", m->name,
             m->info.family, m->info.weight_type, m->info.backend, m->info.n_parameters,
             m->info.weight_bytes, m->info.vocab);
    sha256_hex(text, strlen(text), hex);
    memcpy(key, hex, KEY_CHARS);
}

/* Whether so many ids take longer to evaluate than a file takes to read. The lock is held. */
static bool pays(const struct prefixes *p, int n_ids, unsigned eval_ns, size_t bytes) {
    return eval_ns == 0 || (double)n_ids * eval_ns > (double)bytes / 1024 * p->read_ns;
}

/* Of files that a session of `room` positions can hold. What one pass of reading took is believed
 * less each time that a file is passed over for it: it may have been a slow one. */
static bool find(struct prefixes *p, const struct served_model *m, const char key[KEY_CHARS],
                 int room, int held, const int32_t *ids, size_t n_ids, char name[NAME_BYTES]) {
    const unsigned eval_ns = atomic_load(&m->eval_ns);
    int best = -1, most = held + PREFIX_GAIN_LEAST - 1;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n; i++) {
        if (memcmp(p->all[i].key, key, KEY_CHARS) != 0 || p->all[i].n_ids > room) continue;
        const struct prefix *f = &p->all[i];
        const int n = common(f, ids, n_ids);
        if (n <= most) continue;
        if (!pays(p, n - held, eval_ns ? eval_ns : f->eval_ns, f->bytes)) {
            p->read_ns = (15 * p->read_ns + READ_NS) / 16;
            continue;
        }
        most = n;
        best = i;
    }
    if (best >= 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        p->all[best].used = nanoseconds(now);
        memcpy(name, p->all[best].name, NAME_BYTES);
        utimensat(p->folder, name, NULL, AT_SYMLINK_NOFOLLOW);
    }
    pthread_mutex_unlock(&p->lock);
    return best >= 0;
}

static void forget(struct prefixes *p, const char *name, const char *why) {
    pthread_mutex_lock(&p->lock);
    const int i = index_of(p, name);
    if (i >= 0) drop(p, i, true);
    pthread_mutex_unlock(&p->lock);
    say(p, "removed", name, why);
}

/* The snapshot of a file, mem_free; NULL: *why says more, or is empty where the file is not to
 * blame. */
static char *read_snapshot(struct prefixes *p, const char *name, size_t *n, const char **why) {
    struct head head;
    struct stat about;
    char *bytes = NULL;
    int fd = open_file(p, name, &about);
    *why = "";
    if (fd < 0) return NULL;
    if (read_head(fd, &head, (size_t)about.st_size)) {
        *n = (size_t)head.snapshot_bytes;
        bytes = mem_alloc(*n);
        if (bytes && !read_whole(fd, bytes, *n, (off_t)(sizeof head + (size_t)head.n_ids * 4))) {
            *why = "it cannot be read to its end";
            mem_free(bytes);
            bytes = NULL;
        }
    } else {
        *why = "it is damaged";
    }
    close(fd);
    return bytes;
}

static void note_reading(struct prefixes *p, size_t n, double ms) {
    pthread_mutex_lock(&p->lock);
    p->read_ns = (p->read_ns + ms * 1e6 * 1024 / (double)n) / 2;
    pthread_mutex_unlock(&p->lock);
}

bool prefixes_restore(struct prefixes *p, const struct served_model *m,
                      struct reel_session *session, int held, const int32_t *ids, size_t n_ids) {
    struct reel_error err = { 0 };
    char key[KEY_CHARS], name[NAME_BYTES];
    const char *why = "";
    size_t n = 0;
    if (!p || n_ids < PREFIX_GAIN_LEAST) return false;
    key_of(m, key);
    if (!find(p, m, key, reel_session_max_context(session), held, ids, n_ids, name)) return false;
    const double start = clock_ms();
    char *bytes = read_snapshot(p, name, &n, &why);
    bool done = false;
    if (bytes) {
        const enum reel_status status = reel_session_restore(session, bytes, n, &err);
        done = status == REEL_OK;
        if (done) note_reading(p, n, clock_ms() - start);
        if (!done && status != REEL_E_MEMORY) why = err.text;
    }
    mem_free(bytes);
    if (why[0]) forget(p, name, why);
    return done;
}

/* ---- saving ---- */

static bool write_whole(int fd, const void *bytes, size_t n) {
    const char *from = bytes;
    while (n > 0) {
        ssize_t here = write(fd, from, n);
        if (here < 0 && errno == EINTR) continue;
        if (here <= 0) return false;
        from += here;
        n -= (size_t)here;
    }
    return true;
}

static bool write_file(struct prefixes *p, const char *name, const struct head *head,
                       const int32_t *ids, const void *snapshot) {
    char part[NAME_BYTES + 8];
    snprintf(part, sizeof part, "%s.part", name);
    unlinkat(p->folder, part, 0);
    int fd = openat(p->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool good = write_whole(fd, head, sizeof *head) &&
                write_whole(fd, ids, head->n_ids * sizeof *ids) &&
                write_whole(fd, snapshot, (size_t)head->snapshot_bytes);
    good = close(fd) == 0 && good;
    good = good && renameat(p->folder, part, p->folder, name) == 0;
    if (!good) unlinkat(p->folder, part, 0);
    return good;
}

/* The lock is held. Files that hold a beginning of f have nothing that f has not. */
static void drop_beginnings(struct prefixes *p, const struct prefix *f) {
    for (int i = p->n - 1; i >= 0; i--) {
        const struct prefix *other = &p->all[i];
        if (memcmp(other->key, f->key, KEY_CHARS) == 0 && strcmp(other->name, f->name) != 0 &&
            common(other, f->ids, (size_t)f->n_ids) == other->n_ids)
            drop(p, i, true);
    }
}

static bool has_nearly(struct prefixes *p, const char key[KEY_CHARS], const int32_t *ids, int n) {
    bool has = false;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n && !has; i++)
        has = memcmp(p->all[i].key, key, KEY_CHARS) == 0 &&
              common(&p->all[i], ids, (size_t)n) > n - PREFIX_GAIN_LEAST;
    pthread_mutex_unlock(&p->lock);
    return has;
}

static void save(struct prefixes *p, struct prefix *f, const void *snapshot, size_t n) {
    struct head head = { .n_ids = (uint32_t)f->n_ids, .eval_ns = f->eval_ns, .snapshot_bytes = n };
    struct timespec now;
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.key, f->key, KEY_CHARS);
    clock_gettime(CLOCK_REALTIME, &now);
    f->used = nanoseconds(now);
    f->bytes = sizeof head + (size_t)f->n_ids * sizeof *f->ids + n;
    pthread_mutex_lock(&p->lock);
    drop_beginnings(p, f);
    bool good = make_room(p, f->bytes);
    pthread_mutex_unlock(&p->lock);
    if (!good) return;
    if (!write_file(p, f->name, &head, f->ids, snapshot)) {
        say(p, "not written", f->name, strerror(errno));
        return;
    }
    pthread_mutex_lock(&p->lock);
    if (add(p, f)) f->ids = NULL;
    pthread_mutex_unlock(&p->lock);
}

void prefixes_save(struct prefixes *p, const struct served_model *m, struct reel_session *session) {
    struct prefix f = { .n_ids = reel_session_length(session),
                        .eval_ns = atomic_load(&m->eval_ns) };
    const int32_t *ids = reel_session_ids(session);
    char hex[SHA256_HEX];
    if (f.n_ids < PREFIX_LEAST || f.n_ids > MOST_IDS) return;
    key_of(m, f.key);
    if (has_nearly(p, f.key, ids, f.n_ids)) return;
    const size_t n_bytes = (size_t)f.n_ids * sizeof *ids, n = reel_session_snapshot_bytes(session);
    if (n == 0 || n > p->options.most_bytes) return;
    pthread_mutex_lock(&p->lock);
    const bool good = pays(p, f.n_ids, f.eval_ns, n);
    pthread_mutex_unlock(&p->lock);
    if (!good) return;
    sha256_hex(ids, n_bytes, hex);
    snprintf(f.name, sizeof f.name, "%.16s-%.16s.prefix", f.key, hex);
    f.ids = mem_alloc(n_bytes);
    void *snapshot = mem_alloc(n);
    if (f.ids && snapshot && reel_session_snapshot(session, snapshot, n, NULL) == REEL_OK) {
        memcpy(f.ids, ids, n_bytes);
        save(p, &f, snapshot, n);
    }
    mem_free(snapshot);
    mem_free(f.ids);
}
