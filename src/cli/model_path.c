#include "cli/model_path.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/folders.h"
#include "cli/known_words.h"

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
    return strlen(name) > 5 && hub_ends_with(name, ".gguf");
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

/* ---- models of a repository's folder --------------------------------------------------------- */

static enum reel_status walk(const char *folder, const char *below, int depth,
                             enum reel_status (*found)(void *, const char *, struct reel_error *),
                             void *user, struct reel_error *err) {
    enum { MAX_DEPTH = 8 };
    char *path = NULL;
    enum reel_status status = join(&path, folder, below, err);
    DIR *dir = status == REEL_OK && depth < MAX_DEPTH ? opendir(path) : NULL;
    if (status == REEL_OK && depth < MAX_DEPTH && !dir)
        status = err_set(err, REEL_E_IO, "%s: %s", path, strerror(errno));
    for (const struct dirent *e; dir && status == REEL_OK && (e = readdir(dir));) {
        struct buffer name = { 0 };
        char *whole = NULL;
        if (e->d_name[0] == '.') continue;
        status = buffer_printf(&name, err, "%s%s%s", below, below[0] ? "/" : "", e->d_name);
        if (status == REEL_OK) status = join(&whole, folder, name.bytes, err);
        if (status == REEL_OK)
            status = is_folder(whole) ? walk(folder, name.bytes, depth + 1, found, user, err)
                                      : found(user, name.bytes, err);
        mem_free(whole);
        buffer_release(&name);
    }
    if (dir) closedir(dir);
    mem_free(path);
    return status;
}

enum reel_status model_path_walk(const char *folder,
                                 enum reel_status (*found)(void *, const char *,
                                                           struct reel_error *),
                                 void *user, struct reel_error *err) {
    return walk(folder, "", 0, found, user, err);
}

/* The GGUF file that a name means best, and what there is to choose from. */
struct search {
    const char *what; /* NULL: any */
    char *best;       /* path below the folder */
    int level, n;     /* of the best; files of that level */
    struct buffer labels;
};

static enum reel_status look_at(void *user, const char *path, struct reel_error *err) {
    struct search *s = user;
    char label[HUB_MAX_LABEL];
    if (!is_gguf_name(path) || hub_is_companion(path)) return REEL_OK;
    hub_label(path, label);
    enum reel_status status =
        buffer_printf(&s->labels, err, "%s%s", s->labels.size ? ", " : "", label);
    int level = s->what ? hub_match(path, s->what) : 1;
    if (status != REEL_OK || level == 0 || level < s->level) return status;
    s->n = level > s->level ? 1 : s->n + 1;
    s->level = level;
    if (s->best && s->n > 1 && strcmp(s->best, path) < 0) return REEL_OK;
    mem_free(s->best);
    s->best = NULL;
    return mem_text(&s->best, path, strlen(path), "a path", err);
}

/* *path = what the name means in its repository's folder; NULL when it is not there. */
static enum reel_status pick(char **path, const char *folder, const struct hub_name *name,
                             struct reel_error *err) {
    struct search s = { .what = name->what };
    char *inner = NULL;
    enum reel_status status = REEL_OK;
    *path = NULL;
    if (!name->what && has_file(folder, "config.json"))
        return mem_text(path, folder, strlen(folder), "a path", err);
    if (name->what) status = join(&inner, folder, name->what, err);
    if (status == REEL_OK && inner && is_folder(inner) && has_file(inner, "config.json")) {
        *path = inner;
        return REEL_OK;
    }
    mem_free(inner);
    if (status == REEL_OK) status = model_path_walk(folder, look_at, &s, err);
    if (status == REEL_OK && s.n > 1)
        status = err_set(err, REEL_E_ARGUMENT,
                         "%s: which one? There are %s; name it as %s:QUANTISATION, or by its path "
                         "in %s",
                         name->repo, s.labels.bytes, name->repo, folder);
    if (status == REEL_OK && s.n == 1) status = join(path, folder, s.best, err);
    mem_free(s.best);
    buffer_release(&s.labels);
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

static enum reel_status find_in_own_cache(char **path, const struct hub_name *name,
                                          struct reel_error *err) {
    struct buffer folder = { 0 };
    char *cache = NULL;
    enum reel_status status = folder_of_cache(&cache, err);
    if (status == REEL_OK) status = buffer_printf(&folder, err, "%s/models/%s", cache, name->repo);
    if (status == REEL_OK && is_folder(folder.bytes)) status = pick(path, folder.bytes, name, err);
    buffer_release(&folder);
    mem_free(cache);
    return status;
}

enum reel_status model_path_snapshot(char **folder, const char *cache, const char *repo,
                                     struct reel_error *err) {
    struct buffer path = { 0 };
    const char *slash = strchr(repo, '/');
    *folder = NULL;
    enum reel_status status = buffer_printf(&path, err, "%s/models--%.*s--%s", cache,
                                            (int)(slash - repo), repo, slash + 1);
    if (status == REEL_OK && is_folder(path.bytes)) status = find_snapshot(folder, path.bytes, err);
    buffer_release(&path);
    return status;
}

static enum reel_status find_in_hugging_face(char **path, const struct hub_name *name,
                                             struct reel_error *err) {
    char *cache = NULL, *folder = NULL;
    enum reel_status status = folder_of_hugging_face(&cache, err);
    if (status == REEL_OK) status = model_path_snapshot(&folder, cache, name->repo, err);
    if (status == REEL_OK && folder) status = pick(path, folder, name, err);
    mem_free(folder);
    mem_free(cache);
    return status;
}

bool model_path_is_pullable(struct hub_name *repo, const char *name) {
    return !exists(name) && hub_name_parse(repo, name) &&
           (repo->what || (!hub_ends_with(name, ".gguf") && !hub_ends_with(name, ".safetensors")));
}

/* With the model at hand whose name is nearest, and how to get one of this name. */
static enum reel_status refuse_unknown(const char *name, struct reel_error *err) {
    struct hub_name repo;
    char *near = NULL;
    enum reel_status status;
    known_model_near(&near, name);
    const char *before = near ? "did you mean " : "", *between = near ? near : "";
    if (model_path_is_pullable(&repo, name))
        status = err_set(err, REEL_E_NOT_FOUND,
                         "%s: neither a file nor a folder nor in the local cache; %s%s%sfetch it "
                         "with: reel pull %s",
                         name, before, between, near ? "? or " : "", name);
    else
        status = err_set(err, REEL_E_NOT_FOUND, "%s: no such file or folder%s%s%s%s", name,
                         near ? "; " : "", before, between, near ? "?" : "");
    mem_free(near);
    return status;
}

enum reel_status model_path_find(char **path, const char *name, struct reel_error *err) {
    struct hub_name repo;
    enum reel_status status = REEL_OK;
    *path = NULL;
    if (exists(name)) {
        status = mem_text(path, name, strlen(name), "a path", err);
        if (status == REEL_OK) status = enter_folder(path, err);
    } else if (hub_name_parse(&repo, name)) {
        status = find_in_own_cache(path, &repo, err);
        if (status == REEL_OK && !*path) status = find_in_hugging_face(path, &repo, err);
    }
    if (status == REEL_OK && !*path) status = refuse_unknown(name, err);
    if (status != REEL_OK) {
        mem_free(*path);
        *path = NULL;
    }
    return status;
}
