#include "cli/model_path.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/folders.h"
#include "cli/hub.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool model_path_is_demo(const char *name) { return strcmp(name, "demo") == 0; }
bool model_path_is_inside(const char *name) {
    return model_path_is_demo(name) || strcmp(name, "demo-speech") == 0;
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool has_file(const char *folder, const char *name) {
    struct buffer path = { 0 };
    bool found = buffer_printf(&path, NULL, "%s/%s", folder, name) == REEL_OK && exists(path.bytes);
    buffer_release(&path);
    return found;
}

static bool is_gguf_name(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

/* The alphabetically first entry that `wanted` accepts, and how many there are. */
static enum reel_status first_entry(const char *folder, bool (*wanted)(const char *), char **name,
                                    int *n, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    DIR *dir = opendir(folder);
    *name = NULL;
    *n = 0;
    if (!dir) return err_set(err, REEL_E_IO, "%s: %s", folder, strerror(errno));
    for (const struct dirent *e; status == REEL_OK && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !wanted(e->d_name)) continue;
        ++*n;
        if (*name && strcmp(*name, e->d_name) < 0) continue;
        mem_free(*name);
        status = mem_text(name, e->d_name, strlen(e->d_name), "a file name", err);
    }
    closedir(dir);
    return status;
}

static enum reel_status join(char **path, const char *folder, const char *name,
                             struct reel_error *err) {
    struct buffer text = { 0 };
    enum reel_status status = buffer_printf(&text, err, "%s/%s", folder, name);
    if (status == REEL_OK) *path = buffer_detach(&text, NULL);
    return status;
}

/* Replaces a folder that holds GGUF files only by the one file. */
static enum reel_status enter_folder(char **path, struct reel_error *err) {
    char *name = NULL, *file = NULL;
    int n = 0;
    if (!is_folder(*path) || has_file(*path, "config.json")) return REEL_OK;
    enum reel_status status = first_entry(*path, is_gguf_name, &name, &n, err);
    if (status == REEL_OK && n > 1)
        status = err_set(err, REEL_E_ARGUMENT, "%s: holds %d .gguf files; name one, such as %s/%s",
                         *path, n, *path, name);
    if (status == REEL_OK && n == 1) status = join(&file, *path, name, err);
    if (file) {
        mem_free(*path);
        *path = file;
    }
    mem_free(name);
    return status;
}

/* The commit that refs/main names, or NULL. */
static char *main_commit(const char *repo_folder) {
    struct buffer path = { 0 };
    char line[64] = "", *commit = NULL;
    FILE *f = NULL;
    if (buffer_printf(&path, NULL, "%s/refs/main", repo_folder) == REEL_OK)
        f = fopen(path.bytes, "r");
    if (f && fgets(line, sizeof line, f)) {
        size_t n = strcspn(line, "\r\n");
        line[n] = '\0';
        bool plain = n && strspn(line, "0123456789abcdef") == n;
        if (plain && mem_text(&commit, line, n, "a commit", NULL) != REEL_OK) commit = NULL;
    }
    if (f) fclose(f);
    buffer_release(&path);
    return commit;
}

static bool any_name(const char *name) {
    (void)name;
    return true;
}

/* The snapshot that refs/main names; without that, the only one. *path stays NULL when there is
 * none. */
static enum reel_status find_snapshot(char **path, const char *repo_folder,
                                      struct reel_error *err) {
    char *snapshots = NULL, *name = main_commit(repo_folder);
    int n = 1;
    enum reel_status status = join(&snapshots, repo_folder, "snapshots", err);
    if (status == REEL_OK && !name && is_folder(snapshots))
        status = first_entry(snapshots, any_name, &name, &n, err);
    if (status == REEL_OK && n > 1)
        status = err_set(err, REEL_E_ARGUMENT,
                         "%s: holds %d snapshots and no refs/main; name a folder inside it",
                         snapshots, n);
    if (status == REEL_OK && name && has_file(snapshots, name))
        status = join(path, snapshots, name, err);
    mem_free(name);
    mem_free(snapshots);
    return status;
}

static enum reel_status find_in_own_cache(char **path, const char *repo, struct reel_error *err) {
    char *cache = NULL, *folder = NULL;
    enum reel_status status = folder_of_cache(&cache, err);
    if (status == REEL_OK) status = hub_folder(cache, repo, &folder, err);
    if (status == REEL_OK && is_folder(folder)) {
        *path = folder;
        folder = NULL;
    }
    mem_free(folder);
    mem_free(cache);
    return status;
}

static enum reel_status find_in_hugging_face(char **path, const char *repo,
                                             struct reel_error *err) {
    struct buffer folder = { 0 };
    char *cache = NULL;
    const char *slash = strchr(repo, '/');
    enum reel_status status = folder_of_hugging_face(&cache, err);
    if (status == REEL_OK)
        status = buffer_printf(&folder, err, "%s/models--%.*s--%s", cache, (int)(slash - repo),
                               repo, slash + 1);
    if (status == REEL_OK && is_folder(folder.bytes))
        status = find_snapshot(path, folder.bytes, err);
    buffer_release(&folder);
    mem_free(cache);
    return status;
}

enum reel_status model_path_find(char **path, const char *name, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool repo = hub_is_repo(name);
    *path = NULL;
    if (exists(name)) {
        status = mem_text(path, name, strlen(name), "a path", err);
    } else if (repo) {
        status = find_in_own_cache(path, name, err);
        if (status == REEL_OK && !*path) status = find_in_hugging_face(path, name, err);
    }
    if (status == REEL_OK && !*path)
        status = err_set(err, REEL_E_NOT_FOUND,
                         repo ? "%s: neither a file nor a folder nor in the local cache"
                              : "%s: no such file or folder",
                         name);
    if (status == REEL_OK) status = enter_folder(path, err);
    if (status != REEL_OK) {
        mem_free(*path);
        *path = NULL;
    }
    return status;
}
