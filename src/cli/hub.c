/* A pull in steps: ask the hub for the list of files with sizes and hashes, keep those that reel
 * reads, fetch each into owner/.name.partial, then rename that folder to owner/name. */
#include "cli/hub.h"

#include "base/buffer.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/download.h"
#include "cli/folders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LISTING_LIMIT (8u << 20)
#define MAX_NAME      96
#define MAX_FILES     512
#define MANIFEST      "reel-manifest.json"

/* Letters, digits, '-', '_' and '.', not starting with '.'. */
static bool plain_name(const char *text, size_t n) {
    if (n == 0 || n > MAX_NAME || text[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i])) return false;
    return true;
}

bool hub_is_repo(const char *text) {
    const char *slash = strchr(text, '/');
    return slash && plain_name(text, (size_t)(slash - text)) &&
           plain_name(slash + 1, strlen(slash + 1));
}

static enum reel_status bad_repo(const char *repo, struct reel_error *err) {
    return err_set(err, REEL_E_ARGUMENT,
                   "\"%s\" is not a repository name: expected OWNER/NAME in letters, digits, '-', "
                   "'_' and '.'",
                   repo);
}

enum reel_status hub_folder(const char *cache_dir, const char *repo, char **folder,
                            struct reel_error *err) {
    struct buffer path = { 0 };
    *folder = NULL;
    if (!hub_is_repo(repo)) return bad_repo(repo, err);
    enum reel_status status = buffer_printf(&path, err, "%s/models/%s", cache_dir, repo);
    if (status == REEL_OK) *folder = buffer_detach(&path, NULL);
    return status;
}

/* The folder a pull works in: owner/.name.partial beside owner/name. */
static enum reel_status partial_folder(const char *folder, char **partial, struct reel_error *err) {
    struct buffer path = { 0 };
    const char *name = strrchr(folder, '/') + 1;
    enum reel_status status =
        buffer_printf(&path, err, "%.*s.%s.partial", (int)(name - folder), folder, name);
    if (status == REEL_OK) *partial = buffer_detach(&path, NULL);
    return status;
}

/* What reel reads; never weights in formats that can carry code. */
static bool wanted(const char *name, const char *gguf) {
    static const char *const files[] = { "config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "model.safetensors.index.json",
                                         "preprocessor_config.json",
                                         "LICENSE",
                                         "README.md" };
    if (gguf) return strcmp(name, gguf) == 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(name, files[i]) == 0) return true;
    size_t n = strlen(name), suffix = strlen(".safetensors");
    return n > suffix && strcmp(name + n - suffix, ".safetensors") == 0;
}

static bool is_hex(const char *text, size_t n) {
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

struct listing {
    json_t *json; /* owns the strings below */
    const char *commit;
    struct download_file files[MAX_FILES]; /* label, n_bytes and hashes; url and path unset */
    int n_files;
    int64_t n_bytes;
};

/* One entry of "siblings": kept when reel reads such files and its name and hash are sound. */
static enum reel_status list_file(struct listing *list, const struct hub_pull *pull,
                                  const json_t *entry, struct reel_error *err) {
    const char *name = NULL, *sha256 = NULL, *git_id = NULL;
    int64_t size = -1;
    struct json_int_rule size_rule = { "size", 0, INT64_C(1) << 44, -1, false };
    enum reel_status status = json_get_text(entry, pull->repo, "rfilename", &name, err);
    if (status != REEL_OK) return status;
    if (!name || !wanted(name, pull->gguf)) return REEL_OK;
    if (!plain_name(name, strlen(name)))
        return err_set(err, REEL_E_FORMAT, "%s: file name \"%s\" is not allowed", pull->repo, name);
    status = json_get_int(entry, pull->repo, &size_rule, &size, err);
    if (status == REEL_OK) status = json_get_text(entry, pull->repo, "blobId", &git_id, err);
    const json_t *lfs = json_object_get(entry, "lfs");
    if (status == REEL_OK && json_is_object(lfs))
        status = json_get_text(lfs, pull->repo, "sha256", &sha256, err);
    if (status != REEL_OK) return status;
    if (size < 0 || (sha256 ? !is_hex(sha256, 64) : !is_hex(git_id, 40)))
        return err_set(err, REEL_E_FORMAT, "%s: the hub gives no size and hash for %s", pull->repo,
                       name);
    if (list->n_files == MAX_FILES)
        return err_set(err, REEL_E_LIMIT, "%s: more than %d model files", pull->repo, MAX_FILES);
    list->files[list->n_files++] = (struct download_file){
        .label = name, .n_bytes = size, .sha256 = sha256, .git_id = git_id
    };
    list->n_bytes += size;
    return REEL_OK;
}

/* Reads an answer of the hub, or the manifest an earlier pull wrote: both have the same form. */
static enum reel_status read_listing(struct listing *list, const struct hub_pull *pull,
                                     const char *text, size_t n, struct reel_error *err) {
    enum reel_status status = json_read(&list->json, pull->repo, text, n, err);
    if (status != REEL_OK) return status;
    status = json_get_text(list->json, pull->repo, "sha", &list->commit, err);
    if (status == REEL_OK && !is_hex(list->commit, 40))
        status = err_set(err, REEL_E_FORMAT, "%s: the hub names no commit", pull->repo);
    size_t i = 0;
    const json_t *entry = NULL;
    json_array_foreach(json_object_get(list->json, "siblings"), i, entry) {
        if (status == REEL_OK) status = list_file(list, pull, entry, err);
    }
    if (status == REEL_OK && list->n_files == 0)
        status = pull->gguf
                     ? err_set(err, REEL_E_NOT_FOUND, "%s: has no file %s", pull->repo, pull->gguf)
                     : err_set(err, REEL_E_NOT_FOUND, "%s: has no model files", pull->repo);
    return status;
}

static const char *mirror_of(const struct hub_pull *pull) {
    return pull->mirror ? pull->mirror : HUB_DEFAULT_MIRROR;
}

static enum reel_status check_room(const char *folder, int64_t n_bytes, struct reel_error *err) {
    struct statvfs fs;
    if (statvfs(folder, &fs) != 0) return REEL_OK; /* unknown: writing will tell */
    unsigned long long room = (unsigned long long)fs.f_bavail * fs.f_frsize;
    if (room >= (unsigned long long)n_bytes) return REEL_OK;
    return err_set(err, REEL_E_IO, "%s: %lld bytes to fetch, %llu are free", folder,
                   (long long)n_bytes, room);
}

/* Bytes the listed files still lack in the folder. */
static int64_t bytes_missing(const struct listing *list, const char *folder) {
    int64_t missing = 0;
    for (int i = 0; i < list->n_files; i++) {
        struct buffer path = { 0 };
        struct stat st;
        int64_t have = 0;
        if (buffer_printf(&path, NULL, "%s/%s", folder, list->files[i].label) == REEL_OK) {
            if (stat(path.bytes, &st) == 0)
                have = st.st_size;
            else if (buffer_text(&path, ".part", NULL) == REEL_OK && stat(path.bytes, &st) == 0)
                have = st.st_size;
        }
        if (have < list->files[i].n_bytes) missing += list->files[i].n_bytes - have;
        buffer_release(&path);
    }
    return missing;
}

/* A file that the folder of an earlier pull already holds is linked, not fetched again. */
static void reuse_file(const struct download_file *file, const char *folder) {
    struct buffer earlier = { 0 };
    if (buffer_printf(&earlier, NULL, "%s/%s", folder, file->label) == REEL_OK &&
        download_verify(file, earlier.bytes, NULL) == REEL_OK &&
        link(earlier.bytes, file->path) != 0) {
        /* another file system, or already there: download_fetch finds out */
    }
    buffer_release(&earlier);
}

static enum reel_status fetch_files(struct download_client *client, struct listing *list,
                                    const struct hub_pull *pull, const char *folder,
                                    const char *partial, struct reel_error *err) {
    enum reel_status status = check_room(partial, bytes_missing(list, partial), err);
    for (int i = 0; i < list->n_files && status == REEL_OK; i++) {
        struct download_file file = list->files[i];
        struct buffer url = { 0 }, path = { 0 };
        status = buffer_printf(&url, err, "%s/%s/resolve/%s/%s", mirror_of(pull), pull->repo,
                               list->commit, file.label);
        if (status == REEL_OK) status = buffer_printf(&path, err, "%s/%s", partial, file.label);
        file.url = url.bytes;
        file.path = path.bytes;
        if (status == REEL_OK) reuse_file(&file, folder);
        if (status == REEL_OK) status = download_fetch(client, &file, err);
        buffer_release(&url);
        buffer_release(&path);
    }
    return status;
}

/* Deletes a folder of plain files; one that holds folders is left and reported. */
static enum reel_status remove_folder(const char *folder, struct reel_error *err) {
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT
                   ? REEL_OK
                   : err_set(err, REEL_E_IO, "%s: cannot list: %s", folder, strerror(errno));
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    if (rmdir(folder) == 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "%s: cannot remove: %s", folder, strerror(errno));
}

/* Puts the complete folder in the place of whatever was there. */
static enum reel_status replace_folder(const char *partial, const char *folder,
                                       struct reel_error *err) {
    struct buffer old = { 0 };
    enum reel_status status = buffer_printf(&old, err, "%s.old", partial);
    if (status == REEL_OK) status = remove_folder(old.bytes, err);
    if (status == REEL_OK && rename(folder, old.bytes) != 0 && errno != ENOENT)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", folder, strerror(errno));
    if (status == REEL_OK && rename(partial, folder) != 0) {
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", partial, strerror(errno));
        if (rename(old.bytes, folder) != 0 && errno != ENOENT)
            err_set(err, REEL_E_IO, "%s: the earlier copy is left there", old.bytes);
    }
    if (status == REEL_OK) status = remove_folder(old.bytes, err);
    buffer_release(&old);
    return status;
}

static enum reel_status path_in(const char *folder, const char *name, char **path,
                                struct reel_error *err) {
    struct buffer text = { 0 };
    enum reel_status status = buffer_printf(&text, err, "%s/%s", folder, name);
    if (status == REEL_OK) *path = buffer_detach(&text, NULL);
    return status;
}

/* Checks a folder against its manifest. */
static enum reel_status verify_folder(const struct hub_pull *pull, const char *folder,
                                      const char *commit, struct reel_error *err) {
    char *path = NULL;
    struct file_map map = { 0 };
    struct listing *list = NULL;
    enum reel_status status = mem_zeroed(&list, 1, sizeof *list, "a file list", err);
    if (status == REEL_OK) status = path_in(folder, MANIFEST, &path, err);
    if (status == REEL_OK) status = file_map_open(&map, path, err);
    if (status == REEL_OK)
        status = read_listing(list, pull, (const char *)map.bytes, map.size, err);
    if (status == REEL_OK && commit && strcmp(commit, list->commit) != 0)
        status = err_set(err, REEL_E_MISMATCH, "%s: holds commit %s, not %s", folder, list->commit,
                         commit);
    for (int i = 0; status == REEL_OK && i < list->n_files; i++) {
        char *file = NULL;
        status = path_in(folder, list->files[i].label, &file, err);
        if (status == REEL_OK) status = download_verify(&list->files[i], file, err);
        mem_free(file);
    }
    if (list) json_decref(list->json);
    mem_free(list);
    mem_free(path);
    file_map_close(&map);
    return status;
}

static enum reel_status ask_hub(struct download_client *client, const struct hub_pull *pull,
                                struct buffer *answer, struct reel_error *err) {
    struct buffer url = { 0 };
    const char *revision = pull->revision ? pull->revision : "main";
    if (!revision[0] || strstr(revision, "..")) /* as git has it; "/../" is another address */
        return err_set(err, REEL_E_ARGUMENT, "revision \"%s\" is not the name of one", revision);
    if (strspn(revision, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") !=
        strlen(revision))
        return err_set(err, REEL_E_ARGUMENT,
                       "revision \"%s\" has characters a revision cannot have", revision);
    enum reel_status status = buffer_printf(&url, err, "%s/api/models/%s/revision/%s?blobs=true",
                                            mirror_of(pull), pull->repo, revision);
    if (status == REEL_OK) status = download_text(client, url.bytes, LISTING_LIMIT, answer, err);
    buffer_release(&url);
    return status;
}

static enum reel_status pull_online(const struct hub_pull *pull, const char *folder,
                                    const char *partial, struct reel_error *err) {
    struct download_client client = { .bearer = pull->token,
                                      .progress = pull->progress,
                                      .progress_user = pull->progress_user };
    struct buffer answer = { 0 };
    struct listing *list = NULL;
    char *manifest = NULL;
    enum reel_status status = download_client_open(&client, err);
    if (status == REEL_OK) status = ask_hub(&client, pull, &answer, err);
    if (status == REEL_OK) status = mem_zeroed(&list, 1, sizeof *list, "a file list", err);
    if (status == REEL_OK) status = read_listing(list, pull, answer.bytes, answer.size, err);
    if (status == REEL_OK && verify_folder(pull, folder, list->commit, NULL) == REEL_OK) goto out;
    if (status == REEL_OK) status = fetch_files(&client, list, pull, folder, partial, err);
    if (status == REEL_OK) status = path_in(partial, MANIFEST, &manifest, err);
    if (status == REEL_OK) status = file_write_atomic(manifest, answer.bytes, answer.size, err);
    if (status == REEL_OK) status = replace_folder(partial, folder, err);
out:
    if (list) json_decref(list->json);
    mem_free(list);
    mem_free(manifest);
    buffer_release(&answer);
    download_client_close(&client);
    return status;
}

/* One pull of a repository at a time: a second process waits its turn, then finds the work done. */
static enum reel_status pull_locked(const struct hub_pull *pull, const char *folder,
                                    const char *partial, struct reel_error *err) {
    enum reel_status status = folder_make(partial, err);
    if (status != REEL_OK) return status;
    struct buffer lock = { 0 };
    status = buffer_printf(&lock, err, "%s.lock", partial);
    if (status != REEL_OK) return status;
    int fd = open(lock.bytes, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot lock: %s", lock.bytes, strerror(errno));
    if (status == REEL_OK) status = folder_make(partial, err);
    if (status == REEL_OK) status = pull_online(pull, folder, partial, err);
    if (fd >= 0) close(fd);
    rmdir(partial); /* goes away only when nothing is left in it */
    buffer_release(&lock);
    return status;
}

enum reel_status hub_pull(const struct hub_pull *pull, char **folder, struct reel_error *err) {
    char *partial = NULL;
    *folder = NULL;
    if (pull->gguf && !plain_name(pull->gguf, strlen(pull->gguf)))
        return err_set(err, REEL_E_ARGUMENT, "\"%s\" is not a plain file name", pull->gguf);
    enum reel_status status = hub_folder(pull->cache_dir, pull->repo, folder, err);
    if (status == REEL_OK) status = partial_folder(*folder, &partial, err);
    if (status == REEL_OK)
        status = pull->offline ? verify_folder(pull, *folder, NULL, err)
                               : pull_locked(pull, *folder, partial, err);
    mem_free(partial);
    if (status == REEL_OK) return REEL_OK;
    mem_free(*folder);
    *folder = NULL;
    return status;
}
