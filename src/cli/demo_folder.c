#include "cli/demo_folder.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "cli/demo_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *temporary_parent(void) {
    const char *parent = getenv("TMPDIR");
    return parent && parent[0] ? parent : "/tmp";
}

static enum reel_status make_temporary(char **path, struct reel_error *err) {
    struct buffer text = { 0 };
    enum reel_status status = buffer_printf(&text, err, "%s/reel-demo-XXXXXX", temporary_parent());
    if (status != REEL_OK) return status;
    if (!mkdtemp(text.bytes)) {
        status = err_set(err, REEL_E_IO, "%s: cannot create a temporary folder there: %s",
                         temporary_parent(), strerror(errno));
        buffer_release(&text);
        return status;
    }
    *path = buffer_detach(&text, NULL);
    return REEL_OK;
}

enum reel_status demo_folder_make(char **path, struct reel_error *err) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    *path = NULL;
    if (n == 0)
        return err_set(err, REEL_E_NOT_FOUND, "demo: this reel was built without the demo model");
    enum reel_status status = make_temporary(path, err);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        struct buffer file = { 0 };
        status = buffer_printf(&file, err, "%s/%s", *path, files[i].name);
        if (status == REEL_OK)
            status = file_write_atomic(file.bytes, files[i].bytes, files[i].n_bytes, err);
        if (status == REEL_E_IO) /* nobody knows the temporary name */
            status = err_set(err, status,
                             "%s: writing the demo model there failed; TMPDIR can name another "
                             "folder",
                             temporary_parent());
        buffer_release(&file);
    }
    if (status != REEL_OK) {
        demo_folder_remove(*path);
        mem_free(*path);
        *path = NULL;
    }
    return status;
}

void demo_folder_remove(const char *path) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files("demo", &n);
    if (!path) return;
    for (int i = 0; i < n; i++) {
        struct buffer file = { 0 };
        if (buffer_printf(&file, NULL, "%s/%s", path, files[i].name) == REEL_OK) unlink(file.bytes);
        buffer_release(&file);
    }
    rmdir(path);
}
