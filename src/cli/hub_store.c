#define _GNU_SOURCE /* syscall */
#include "cli/hub_store.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "cli/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_DEPTH 16 /* of folders in a repository, far above what there is */

/* ---- paths ----------------------------------------------------------------------------------- */

enum reel_status store_path(char **path, const char *folder, const char *name,
                            struct reel_error *err) {
    struct buffer text = { 0 };
    *path = NULL;
    enum reel_status status = buffer_printf(&text, err, "%s/%s", folder, name);
    if (status == REEL_OK) *path = buffer_detach(&text, NULL);
    return status;
}

static enum reel_status beside(char **path, const char *folder, const char *suffix,
                               struct reel_error *err) {
    struct buffer text = { 0 };
    const char *name = strrchr(folder, '/') + 1;
    enum reel_status status =
        buffer_printf(&text, err, "%.*s.%s.%s", (int)(name - folder), folder, name, suffix);
    if (status == REEL_OK) *path = buffer_detach(&text, NULL);
    return status;
}

enum reel_status hub_store_init(struct hub_store *store, const char *cache_dir, const char *repo,
                                struct reel_error *err) {
    struct buffer folder = { 0 };
    *store = (struct hub_store){ .lock = -1 };
    enum reel_status status = buffer_printf(&folder, err, "%s/models/%s", cache_dir, repo);
    if (status == REEL_OK) store->folder = buffer_detach(&folder, NULL);
    if (status == REEL_OK) status = beside(&store->partial, store->folder, "partial", err);
    if (status == REEL_OK) status = beside(&store->next, store->folder, "new", err);
    if (status == REEL_OK) status = beside(&store->lock_path, store->folder, "lock", err);
    if (status != REEL_OK) hub_store_release(store);
    return status;
}

bool store_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum reel_status store_make_way(const char *folder, const char *name, struct reel_error *err) {
    char *path = NULL;
    enum reel_status status = store_path(&path, folder, name, err);
    if (status != REEL_OK) return status;
    *strrchr(path, '/') = '\0';
    status = folder_make(path, err);
    mem_free(path);
    return status;
}

/* ---- the lock -------------------------------------------------------------------------------- */

/* The file may be deleted by whoever held it, so a lock counts only while the path still leads to
 * what was locked. */
static enum reel_status take_lock(struct hub_store *store, struct reel_error *err) {
    for (;;) {
        struct stat mine, there;
        int fd = open(store->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 && errno == ENOENT) { /* the owner's folder is not there, or no more */
            char *name = strrchr(store->folder, '/');
            *name = '\0';
            enum reel_status status = folder_make(store->folder, err);
            *name = '/';
            if (status != REEL_OK) return status;
            fd = open(store->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        }
        int taken = -1;
        while (fd >= 0 && (taken = flock(fd, LOCK_EX)) != 0 && errno == EINTR) {
        }
        if (fd < 0 || taken != 0) {
            int reason = errno;
            if (fd >= 0) close(fd);
            return err_set(err, REEL_E_IO, "%s: cannot lock: %s", store->folder, strerror(reason));
        }
        if (fstat(fd, &mine) == 0 && stat(store->lock_path, &there) == 0 &&
            mine.st_ino == there.st_ino) {
            store->lock = fd;
            return REEL_OK;
        }
        close(fd);
    }
}

/* Where two folders cannot be exchanged at once, a crash can leave the old one beside its place. */
static enum reel_status recover(const struct hub_store *store, struct reel_error *err) {
    char *old = NULL;
    enum reel_status status = beside(&old, store->folder, "old", err);
    if (status != REEL_OK) return status;
    if (store_is_folder(old) && !store_is_folder(store->folder) && rename(old, store->folder) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot put back what was there: %s", store->folder,
                         strerror(errno));
    if (status == REEL_OK) status = store_remove_tree(old, NULL, err);
    if (status == REEL_OK) status = store_remove_tree(store->next, NULL, err);
    mem_free(old);
    return status;
}

enum reel_status hub_store_lock(struct hub_store *store, struct reel_error *err) {
    enum reel_status status = take_lock(store, err);
    return status == REEL_OK ? recover(store, err) : status;
}

/* Removes folders that are empty, the deepest first; what holds something stays. */
static void remove_empty(const char *path, int depth) {
    DIR *dir = depth < MAX_DEPTH ? opendir(path) : NULL;
    if (!dir) return;
    for (const struct dirent *e; (e = readdir(dir));) {
        char *below = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (store_path(&below, path, e->d_name, NULL) == REEL_OK) remove_empty(below, depth + 1);
        mem_free(below);
    }
    closedir(dir);
    rmdir(path);
}

void hub_store_release(struct hub_store *store) {
    if (store->lock >= 0) {
        remove_empty(store->partial, 0);
        unlink(store->lock_path);
        close(store->lock);
        char *name = strrchr(store->folder, '/');
        *name = '\0';
        rmdir(store->folder); /* the owner's, when this was all of it */
    }
    mem_free(store->folder);
    mem_free(store->partial);
    mem_free(store->next);
    mem_free(store->lock_path);
    *store = (struct hub_store){ .lock = -1 };
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Empties the folder that fd is (closed here). Names are looked up below it, so that nobody can put
 * a link in the way. */
static enum reel_status empty_folder(int fd, const char *shown, int depth, int64_t *n_bytes,
                                     struct reel_error *err) {
    enum reel_status status = REEL_OK;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return err_set(err, REEL_E_IO, "%s: cannot list: %s", shown, strerror(errno));
    }
    for (const struct dirent *e; status == REEL_OK && (e = readdir(dir));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        bool folder = S_ISDIR(st.st_mode);
        if (folder && depth < MAX_DEPTH) {
            int below =
                openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0) status = empty_folder(below, shown, depth + 1, n_bytes, err);
        }
        if (status != REEL_OK) break;
        if (unlinkat(dirfd(dir), e->d_name, folder ? AT_REMOVEDIR : 0) != 0)
            status = err_set(err, REEL_E_IO, "%s: cannot remove %s: %s", shown, e->d_name,
                             strerror(errno));
        else if (n_bytes && S_ISREG(st.st_mode) && st.st_nlink == 1)
            *n_bytes += st.st_size;
    }
    closedir(dir);
    return status;
}

enum reel_status store_remove_tree(const char *folder, int64_t *n_bytes, struct reel_error *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == ENOENT) return REEL_OK;
    if (fd < 0 && lstat(folder, &st) == 0 && S_ISLNK(st.st_mode) && unlink(folder) == 0)
        return REEL_OK; /* somebody put the folder elsewhere: only the way there goes */
    if (fd < 0) return err_set(err, REEL_E_IO, "%s: cannot open: %s", folder, strerror(errno));
    enum reel_status status = empty_folder(fd, folder, 0, n_bytes, err);
    if (status == REEL_OK && rmdir(folder) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot remove: %s", folder, strerror(errno));
    return status;
}

static int64_t size_below(const char *path, int depth) {
    struct stat st;
    if (depth > MAX_DEPTH || lstat(path, &st) != 0) return 0;
    if (S_ISREG(st.st_mode)) return st.st_size;
    DIR *dir = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    int64_t sum = 0;
    if (!dir) return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char *below = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (store_path(&below, path, e->d_name, NULL) == REEL_OK)
            sum += size_below(below, depth + 1);
        mem_free(below);
    }
    closedir(dir);
    return sum;
}

int64_t store_size(const char *path) { return size_below(path, 0); }

enum reel_status hub_store_remove(const struct hub_store *store, int64_t *n_bytes,
                                  struct reel_error *err) {
    enum reel_status status = REEL_OK;
    /* Out of sight first: a folder that is half deleted must not be found as a model. */
    if (rename(store->folder, store->next) != 0 && errno != ENOENT)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", store->folder, strerror(errno));
    if (status == REEL_OK) status = store_remove_tree(store->next, n_bytes, err);
    if (status == REEL_OK) status = store_remove_tree(store->partial, n_bytes, err);
    return status;
}

/* ---- the manifest ---------------------------------------------------------------------------- */

/* The first reel that pulled wrote down all that the hub has, not what it had fetched. */
static enum reel_status drop_absent(struct hub_listing *held, const char *folder,
                                    struct reel_error *err) {
    int kept = 0;
    if (json_integer_value(json_object_get(held->json, "format")) >= 2) return REEL_OK;
    for (int i = 0; i < held->n_files; i++) {
        char *path = NULL;
        struct stat st;
        enum reel_status status = store_path(&path, folder, held->files[i].path, err);
        if (status != REEL_OK) return status;
        if (stat(path, &st) == 0) held->files[kept++] = held->files[i];
        mem_free(path);
    }
    held->n_files = kept;
    return REEL_OK;
}

enum reel_status hub_store_read(const struct hub_store *store, const char *repo,
                                struct hub_listing *held, struct reel_error *err) {
    char *path = NULL;
    struct file_map map = { 0 };
    *held = (struct hub_listing){ 0 };
    enum reel_status status = store_path(&path, store->folder, HUB_MANIFEST, err);
    if (status == REEL_OK) status = file_map_open(&map, path, err);
    if (status == REEL_OK)
        status = hub_listing_read(held, repo, (const char *)map.bytes, map.size, err);
    if (status == REEL_OK) status = drop_absent(held, store->folder, err);
    if (status != REEL_OK) hub_listing_release(held);
    file_map_close(&map);
    mem_free(path);
    return status;
}

/* ---- the next state -------------------------------------------------------------------------- */

static enum reel_status copy_bytes(int from, int to, const char *path, struct reel_error *err) {
    static const size_t chunk = 1 << 18;
    char *bytes = mem_alloc(chunk);
    if (!bytes) return err_memory(err, "copying a file", chunk);
    enum reel_status status = REEL_OK;
    while (status == REEL_OK) {
        ssize_t n = read(from, bytes, chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = err_set(err, REEL_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n <= 0) break;
        for (ssize_t at = 0, done; at < n && status == REEL_OK; at += done > 0 ? done : 0) {
            done = write(to, bytes + at, (size_t)(n - at));
            if (done < 0 && errno != EINTR)
                status = err_set(err, REEL_E_IO, "%s: cannot write: %s", path, strerror(errno));
        }
    }
    if (status == REEL_OK && fsync(to) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot sync: %s", path, strerror(errno));
    mem_free(bytes);
    return status;
}

static enum reel_status copy_file(const char *from, const char *to, struct reel_error *err) {
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) return err_set(err, REEL_E_IO, "%s: cannot open: %s", from, strerror(errno));
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    enum reel_status status =
        out < 0 ? err_set(err, REEL_E_IO, "%s: cannot create: %s", to, strerror(errno))
                : copy_bytes(in, out, to, err);
    if (out >= 0) close(out);
    close(in);
    return status;
}

/* A second name for the same bytes; a copy where the file system knows no second names. */
static enum reel_status link_file(const char *from_folder, const char *to_folder, const char *name,
                                  bool *there, struct reel_error *err) {
    char *from = NULL, *to = NULL;
    enum reel_status status = store_path(&from, from_folder, name, err);
    if (status == REEL_OK) status = store_path(&to, to_folder, name, err);
    if (status == REEL_OK && link(from, to) == 0) {
        *there = true;
    } else if (status == REEL_OK && errno != ENOENT) {
        status = copy_file(from, to, err);
        *there = status == REEL_OK;
    }
    mem_free(from);
    mem_free(to);
    return status;
}

static enum reel_status place_file(const struct hub_store *store, const char *name, bool fresh,
                                   struct reel_error *err) {
    bool there = false;
    enum reel_status status = store_make_way(store->next, name, err);
    if (status == REEL_OK && fresh)
        status = link_file(store->partial, store->next, name, &there, err);
    if (status == REEL_OK && !there)
        status = link_file(store->folder, store->next, name, &there, err);
    if (status == REEL_OK && !there)
        status = err_set(err, REEL_E_IO, "%s/%s: is gone", store->folder, name);
    return status;
}

/* Both at once where the system can; else the old one steps aside for a moment. */
static enum reel_status exchange(const struct hub_store *store, struct reel_error *err) {
    char *old = NULL;
    if (!store_is_folder(store->folder)) {
        if (rename(store->next, store->folder) == 0) return REEL_OK;
        return err_set(err, REEL_E_IO, "%s: cannot put it there: %s", store->folder,
                       strerror(errno));
    }
#ifdef SYS_renameat2
    const unsigned both = 1u << 1; /* RENAME_EXCHANGE */
    if (syscall(SYS_renameat2, AT_FDCWD, store->next, AT_FDCWD, store->folder, both) == 0) {
        (void)store_remove_tree(store->next, NULL, NULL); /* the next pull tries that again */
        return REEL_OK;
    }
#endif
    enum reel_status status = beside(&old, store->folder, "old", err);
    if (status == REEL_OK && rename(store->folder, old) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", store->folder, strerror(errno));
    if (status == REEL_OK && rename(store->next, store->folder) != 0) {
        status =
            err_set(err, REEL_E_IO, "%s: cannot put it there: %s", store->folder, strerror(errno));
        if (rename(old, store->folder) != 0)
            err_set(err, REEL_E_IO, "%s: the earlier state is left there", old);
    }
    if (status == REEL_OK) status = store_remove_tree(old, NULL, err);
    mem_free(old);
    return status;
}

/* What is in the folder now leaves the partial one; what is not stays for the next pull. */
static void drop_partial(const struct hub_store *store, const struct hub_file *const *files,
                         int n_files) {
    for (int i = 0; i < n_files; i++) {
        char *path = NULL;
        if (store_path(&path, store->partial, files[i]->path, NULL) == REEL_OK) unlink(path);
        mem_free(path);
    }
}

enum reel_status hub_store_install(const struct hub_store *store, const char *commit,
                                   const struct hub_file *const *files, int n_files, int n_fresh,
                                   struct reel_error *err) {
    char *manifest = NULL, *text = NULL;
    enum reel_status status = store_remove_tree(store->next, NULL, err);
    if (status == REEL_OK) status = folder_make(store->next, err);
    for (int i = 0; i < n_files && status == REEL_OK; i++)
        status = place_file(store, files[i]->path, i < n_fresh, err);
    if (status == REEL_OK) status = store_path(&manifest, store->next, HUB_MANIFEST, err);
    if (status == REEL_OK) status = hub_manifest_write(&text, commit, files, n_files, err);
    if (status == REEL_OK) status = file_write_atomic(manifest, text, strlen(text), err);
    if (status == REEL_OK) status = exchange(store, err);
    if (status == REEL_OK)
        drop_partial(store, files, n_fresh);
    else
        (void)store_remove_tree(store->next, NULL, NULL);
    mem_free(manifest);
    mem_free(text);
    return status;
}

enum reel_status hub_store_drop(const struct hub_store *store, const char *commit,
                                const struct hub_file *const *files, int n_files, int n_kept,
                                struct reel_error *err) {
    char *manifest = NULL, *text = NULL;
    enum reel_status status = store_path(&manifest, store->folder, HUB_MANIFEST, err);
    if (status == REEL_OK) status = hub_manifest_write(&text, commit, files, n_kept, err);
    if (status == REEL_OK) status = file_write_atomic(manifest, text, strlen(text), err);
    for (int i = n_kept; i < n_files && status == REEL_OK; i++) {
        char *path = NULL;
        status = store_path(&path, store->folder, files[i]->path, err);
        if (status == REEL_OK && unlink(path) != 0 && errno != ENOENT)
            status = err_set(err, REEL_E_IO, "%s: cannot remove: %s", path, strerror(errno));
        mem_free(path);
    }
    if (status == REEL_OK && n_kept == 0 && unlink(manifest) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot remove: %s", manifest, strerror(errno));
    if (status == REEL_OK) remove_empty(store->folder, 0);
    mem_free(manifest);
    mem_free(text);
    return status;
}
