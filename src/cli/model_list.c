#include "cli/model_list.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/folders.h"
#include "cli/hub_listing.h"
#include "cli/hub_store.h"
#include "cli/model_path.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The files of one repository on their way into the list. */
struct scan {
    struct model_list *all;
    const char *repo, *folder;
    bool hugging_face;
};

static enum reel_status add(struct scan *s, struct model_entry **out, const char *what,
                            const char *below, struct reel_error *err) {
    struct model_list *all = s->all;
    struct buffer name = { 0 }, path = { 0 };
    if (all->n == all->cap) {
        int cap = 2 * all->cap + 16;
        struct model_entry *list = mem_resize(all->list, (size_t)cap * sizeof *list);
        if (!list) return err_memory(err, "a list of models", (size_t)cap * sizeof *list);
        all->list = list;
        all->cap = cap;
    }
    enum reel_status status =
        buffer_printf(&name, err, "%s%s%s", s->repo, what[0] ? ":" : "", what);
    if (status == REEL_OK)
        status = buffer_printf(&path, err, "%s%s%s", s->folder, below[0] ? "/" : "", below);
    if (status == REEL_OK) {
        *out = &all->list[all->n++];
        **out = (struct model_entry){ .hugging_face = s->hugging_face };
        (*out)->name = buffer_detach(&name, NULL);
        (*out)->path = buffer_detach(&path, NULL);
    }
    buffer_release(&name);
    buffer_release(&path);
    return status;
}

static void count(struct model_entry *e, const struct stat *st) {
    e->n_files++;
    e->n_bytes += st->st_size;
    if (st->st_mtime > e->changed) e->changed = st->st_mtime;
}

/* The entry of the folder that holds a file, when one of that folder is in the list. */
static struct model_entry *entry_at(const struct scan *s, const char *file) {
    const char *slash = strrchr(file, '/');
    for (int i = s->all->n - 1; i >= 0; i--) {
        struct model_entry *e = &s->all->list[i];
        size_t n = (size_t)(slash - file);
        if (!e->gguf && strlen(e->path) == n && strncmp(e->path, file, n) == 0) return e;
    }
    return NULL;
}

/* First pass: what each model is. */
static enum reel_status find_model(void *user, const char *below, struct reel_error *err) {
    struct scan *s = user;
    struct model_entry *e = NULL;
    struct stat st;
    enum reel_status status = REEL_OK;
    const char *slash = strrchr(below, '/');
    size_t n = slash ? (size_t)(slash - below) : 0;
    if (hub_ends_with(below, ".gguf") && !hub_is_companion(below)) {
        char label[HUB_MAX_LABEL];
        hub_label(below, label);
        status = add(s, &e, label, below, err);
        if (status != REEL_OK) return status;
        e->gguf = true;
        memcpy(e->label, label, sizeof label);
        if (stat(e->path, &st) == 0) count(e, &st);
    } else if (strcmp(slash ? slash + 1 : below, "config.json") == 0) {
        char *inner = NULL;
        status = mem_text(&inner, below, n, "a path", err);
        if (status == REEL_OK) status = add(s, &e, inner, inner, err);
        mem_free(inner);
    }
    return status;
}

/* Second pass: the files beside each config.json. */
static enum reel_status count_file(void *user, const char *below, struct reel_error *err) {
    struct scan *s = user;
    struct stat st;
    char *path = NULL;
    if (hub_ends_with(below, ".gguf") || strcmp(below, HUB_MANIFEST) == 0) return REEL_OK;
    enum reel_status status = store_path(&path, s->folder, below, err);
    struct model_entry *e = status == REEL_OK ? entry_at(s, path) : NULL;
    if (e && stat(path, &st) == 0) {
        count(e, &st);
        if (hub_ends_with(below, ".safetensors")) e->label[0] = '.'; /* it has weights */
    }
    mem_free(path);
    return status;
}

static enum reel_status scan_repo(struct scan *s, struct reel_error *err) {
    int from = s->all->n, kept = from;
    enum reel_status status = model_path_walk(s->folder, find_model, s, err);
    if (status == REEL_OK) status = model_path_walk(s->folder, count_file, s, err);
    for (int i = from; i < s->all->n; i++) {
        struct model_entry *e = &s->all->list[i];
        if (!e->gguf && !e->label[0]) { /* a config without weights is no model */
            mem_free(e->name);
            mem_free(e->path);
            continue;
        }
        if (!e->gguf) e->label[0] = '\0';
        s->all->list[kept++] = *e;
    }
    s->all->n = kept;
    return status;
}

static enum reel_status scan_owner(struct model_list *all, const char *models, const char *owner,
                                   struct reel_error *err) {
    char *folder = NULL;
    enum reel_status status = store_path(&folder, models, owner, err);
    DIR *dir = status == REEL_OK ? opendir(folder) : NULL;
    for (const struct dirent *e; dir && status == REEL_OK && (e = readdir(dir));) {
        struct buffer repo = { 0 };
        char *path = NULL;
        if (e->d_name[0] == '.') continue;
        status = buffer_printf(&repo, err, "%s/%s", owner, e->d_name);
        if (status == REEL_OK) status = store_path(&path, folder, e->d_name, err);
        if (status == REEL_OK && hub_is_repo(repo.bytes) && store_is_folder(path)) {
            struct scan s = { .all = all, .repo = repo.bytes, .folder = path };
            status = scan_repo(&s, err);
        }
        mem_free(path);
        buffer_release(&repo);
    }
    if (dir) closedir(dir);
    mem_free(folder);
    return status;
}

static enum reel_status scan_own(struct model_list *all, struct reel_error *err) {
    char *cache = NULL, *models = NULL;
    enum reel_status status = folder_of_cache(&cache, err);
    if (status == REEL_OK) status = store_path(&models, cache, "models", err);
    DIR *dir = status == REEL_OK ? opendir(models) : NULL;
    for (const struct dirent *e; dir && status == REEL_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.') status = scan_owner(all, models, e->d_name, err);
    if (dir) closedir(dir);
    mem_free(models);
    mem_free(cache);
    return status;
}

/* models--OWNER--NAME; an owner's name has no two dashes in a row. */
static enum reel_status scan_snapshot(struct model_list *all, const char *cache, const char *entry,
                                      struct reel_error *err) {
    static const char prefix[] = "models--";
    const char *owner = entry + sizeof prefix - 1;
    const char *dashes =
        strncmp(entry, prefix, sizeof prefix - 1) == 0 ? strstr(owner, "--") : NULL;
    struct buffer repo = { 0 };
    char *folder = NULL;
    if (!dashes) return REEL_OK;
    enum reel_status status =
        buffer_printf(&repo, err, "%.*s/%s", (int)(dashes - owner), owner, dashes + 2);
    if (status == REEL_OK && hub_is_repo(repo.bytes) &&
        model_path_snapshot(&folder, cache, repo.bytes, NULL) == REEL_OK && folder) {
        struct scan s = { .all = all, .repo = repo.bytes, .folder = folder, .hugging_face = true };
        status = scan_repo(&s, err);
    }
    mem_free(folder);
    buffer_release(&repo);
    return status;
}

static enum reel_status scan_hugging_face(struct model_list *all, struct reel_error *err) {
    char *cache = NULL;
    enum reel_status status = folder_of_hugging_face(&cache, err);
    DIR *dir = status == REEL_OK ? opendir(cache) : NULL;
    for (const struct dirent *e; dir && status == REEL_OK && (e = readdir(dir));)
        status = scan_snapshot(all, cache, e->d_name, err);
    if (dir) closedir(dir);
    mem_free(cache);
    return status;
}

static int compare(const void *a, const void *b) {
    const struct model_entry *x = a, *y = b;
    if (x->hugging_face != y->hugging_face) return x->hugging_face ? 1 : -1;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

enum reel_status model_list_read(struct model_list *all, struct reel_error *err) {
    *all = (struct model_list){ 0 };
    enum reel_status status = scan_own(all, err);
    if (status == REEL_OK) status = scan_hugging_face(all, err);
    if (status != REEL_OK) model_list_release(all);
    if (all->n > 1) qsort(all->list, (size_t)all->n, sizeof *all->list, compare);
    return status;
}

void model_list_release(struct model_list *all) {
    for (int i = 0; i < all->n; i++) {
        mem_free(all->list[i].name);
        mem_free(all->list[i].path);
    }
    mem_free(all->list);
    *all = (struct model_list){ 0 };
}
