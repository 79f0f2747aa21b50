#include "cli/output_file.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* /dev/stdout leads to a regular file when standard output is one: a link that must not be
 * replaced. */
bool output_file_is_special(const char *path) {
    struct stat found;
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0) return true;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

enum reel_status output_file_try_folder(const char *folder, struct reel_error *err) {
    struct buffer name = { 0 };
    struct stat found;
    if (stat(folder, &found) != 0 || !S_ISDIR(found.st_mode))
        return err_set(err, REEL_E_IO, "%s: there is no such folder to write to", folder);
    enum reel_status status = buffer_printf(&name, err, "%s/.reel-XXXXXX", folder);
    if (status == REEL_OK) {
        const int fd = mkstemp(name.bytes);
        if (fd < 0)
            status = err_set(err, REEL_E_IO, "%s: no file can be made there: %s", folder,
                             strerror(errno));
        else
            unlink(name.bytes);
        if (fd >= 0) close(fd);
    }
    buffer_release(&name);
    return status;
}

enum reel_status output_file_check(const char *path, struct reel_error *err) {
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    struct stat found;
    char *folder = NULL;
    if (!*path) return err_set(err, REEL_E_ARGUMENT, "--output needs a file's name");
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return err_set(err, REEL_E_ARGUMENT, "%s is a folder; name a file in it", path);
    if (access(path, F_OK) == 0 && access(path, W_OK) != 0)
        return err_set(err, REEL_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (output_file_is_special(path) && access(path, F_OK) == 0) return REEL_OK;
    if (!path[n])
        return err_set(err, REEL_E_ARGUMENT, "%s is no file's name: it ends with a slash", path);
    enum reel_status status = mem_text(&folder, n ? path : ".", n ? n : 1, "a folder's name", err);
    if (status == REEL_OK) status = output_file_try_folder(folder, err);
    mem_free(folder);
    return status;
}

static enum reel_status write_special(const char *path, const char *text, size_t n,
                                      struct reel_error *err) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    bool good = fd >= 0;
    while (good && n > 0) {
        const ssize_t did = write(fd, text, n);
        if (did < 0 && errno == EINTR) continue;
        good = did > 0;
        text += good ? did : 0;
        n -= good ? (size_t)did : 0;
    }
    enum reel_status status = REEL_OK;
    if (!good) status = err_set(err, REEL_E_IO, "%s: cannot write: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return status;
}

enum reel_status output_file_write(const char *path, const char *text, size_t n,
                                   struct reel_error *err) {
    return output_file_is_special(path) ? write_special(path, text, n, err)
                                        : file_write_atomic(path, text, n, err);
}
