#include "model/new_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one file -------------------------------------------------------------------------------- */

enum reel_status new_file_start(struct new_file *file, const struct new_folder *folder,
                                const char *name, struct reel_error *err) {
    char path[NEW_FILE_ROOM];
    const int below = (int)(strchr(name, '/') ? strchr(name, '/') - name : 0);
    snprintf(file->shown, sizeof file->shown, "%.*s/%s", folder->n_name, folder->aside, name);
    file->synced = folder->synced;
    file->fd = -1;
    snprintf(path, sizeof path, "%s/%.*s", folder->aside, below, name);
    if (below && mkdir(path, 0755) != 0 && errno != EEXIST)
        return err_set(err, REEL_E_IO, "%s: cannot create: %s", file->shown, strerror(errno));
    snprintf(path, sizeof path, "%s/%s", folder->aside, name);
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file->fd >= 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "%s: cannot create: %s", file->shown, strerror(errno));
}

enum reel_status new_file_append(const struct new_file *file, const void *bytes, size_t n,
                                 struct reel_error *err) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = write(file->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0)
            return err_set(err, REEL_E_IO, "%s: cannot write: %s", file->shown, strerror(errno));
        p += done;
        n -= (size_t)done;
    }
    return REEL_OK;
}

enum reel_status new_file_finish(struct new_file *file, enum reel_status status,
                                 struct reel_error *err) {
    if (file->fd < 0) return status;
    if (status == REEL_OK && file->synced && fsync(file->fd) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot write to the disk: %s", file->shown,
                         strerror(errno));
    if (close(file->fd) != 0 && status == REEL_OK)
        status = err_set(err, REEL_E_IO, "%s: cannot close: %s", file->shown, strerror(errno));
    file->fd = -1;
    return status;
}

enum reel_status new_file_write(const struct new_folder *folder, const char *name,
                                const void *bytes, size_t n, struct reel_error *err) {
    struct new_file file = { .fd = -1 };
    enum reel_status status = new_file_start(&file, folder, name, err);
    if (status == REEL_OK) status = new_file_append(&file, bytes, n, err);
    return new_file_finish(&file, status, err);
}

/* ---- the folder ------------------------------------------------------------------------------ */

enum reel_status new_folder_check(const char *name, struct reel_error *err) {
    struct stat st;
    if (lstat(name, &st) != 0) {
        if (errno == ENOENT) return REEL_OK;
        return err_set(err, REEL_E_IO, "%s: %s", name, strerror(errno));
    }
    return err_set(err, REEL_E_ARGUMENT, "%s: exists already; give the name of a new folder", name);
}

enum reel_status new_folder_start(struct new_folder *folder, const char *name, bool synced,
                                  struct reel_error *err) {
    size_t n = strlen(name);
    *folder = (struct new_folder){ .synced = synced };
    enum reel_status status = new_folder_check(name, err);
    if (status != REEL_OK) return status;
    while (n > 1 && name[n - 1] == '/')
        n--;
    if (n + sizeof ".XXXXXX" > sizeof folder->aside)
        return err_set(err, REEL_E_ARGUMENT, "a folder name of %zu bytes, at most %zu are allowed",
                       n, sizeof folder->aside - sizeof ".XXXXXX");
    snprintf(folder->aside, sizeof folder->aside, "%.*s.XXXXXX", (int)n, name);
    folder->n_name = (int)n;
    if (mkdtemp(folder->aside)) return REEL_OK;
    folder->aside[0] = '\0';
    return err_set(err, REEL_E_IO, "%s: cannot create: %s", name, strerror(errno));
}

/* Everything in it was made here: files, and folders of files. */
static void drop(const char *path, bool with_folders) {
    char inside[NEW_FILE_ROOM + 256];
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, e->d_name);
        if (unlink(inside) != 0 && with_folders) drop(inside, false);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

/* The names in a folder, on the disk. */
static enum reel_status sync_folder(const char *path, const char *shown, struct reel_error *err) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum reel_status status = REEL_OK;
    if (fd < 0 || fsync(fd) != 0)
        status =
            err_set(err, REEL_E_IO, "%s: cannot write to the disk: %s", shown, strerror(errno));
    if (fd >= 0) close(fd);
    return status;
}

/* The folder that holds the new one. */
static enum reel_status sync_parent(const struct new_folder *folder, const char *name,
                                    struct reel_error *err) {
    char parent[NEW_FOLDER_ROOM];
    snprintf(parent, sizeof parent, "%.*s", folder->n_name, folder->aside);
    char *slash = strrchr(parent, '/');
    if (!slash) return sync_folder(".", name, err);
    slash[slash == parent] = '\0';
    return sync_folder(parent, name, err);
}

static enum reel_status publish(const struct new_folder *folder, const char *name,
                                struct reel_error *err) {
    enum reel_status status = folder->synced ? sync_folder(folder->aside, name, err) : REEL_OK;
    if (status == REEL_OK) status = new_folder_check(name, err);
    if (status != REEL_OK) return status;
    if (chmod(folder->aside, 0755) == 0 && rename(folder->aside, name) == 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "%s: cannot be given its name: %s", name, strerror(errno));
}

enum reel_status new_folder_finish(struct new_folder *folder, const char *name,
                                   enum reel_status status, struct reel_error *err) {
    if (!folder->aside[0]) return status;
    if (status == REEL_OK) status = publish(folder, name, err);
    if (status != REEL_OK)
        drop(folder->aside, true);
    else if (folder->synced)
        status = sync_parent(folder, name, err); /* complete, and perhaps not on the disk */
    return status;
}
