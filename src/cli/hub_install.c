/* The end of a pull: which files the folder holds from now on. */
#include "cli/hub_job.h"

#include "base/memory.h"
#include "cli/model_path.h"

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

static bool is_wanted(const struct hub_job *job, const char *path) {
    for (int i = 0; i < job->n_wanted; i++)
        if (strcmp(job->wanted[i].file->path, path) == 0) return true;
    return false;
}

/* Whether a file of an earlier pull stays: GGUF files stand alone; beside safetensors, all of a
 * folder belongs together and is replaced together. */
static bool is_kept(const struct hub_job *job, const struct hub_file *file) {
    if (is_wanted(job, file->path)) return false;
    if (hub_ends_with(file->path, ".gguf")) return true;
    for (int i = 0; i < job->n_chosen; i++) {
        const struct hub_choice *c = job->chosen[i];
        if (!c->gguf && strncmp(file->path, c->path, c->n_path) == 0 &&
            !strchr(file->path + c->n_path, '/'))
            return false;
    }
    return true;
}

static enum reel_status is_there(const struct hub_job *job, const struct hub_file *file,
                                 bool *there, struct reel_error *err) {
    char *path = NULL;
    struct stat st;
    enum reel_status status = store_path(&path, job->store.folder, file->path, err);
    *there = status == REEL_OK && stat(path, &st) == 0;
    mem_free(path);
    return status;
}

static bool in_manifest(const struct hub_job *job) {
    for (int i = 0; i < job->n_wanted; i++)
        if (!job->wanted[i].held || !hub_listing_find(&job->held, job->wanted[i].file->path))
            return false;
    return true;
}

/* Files of the folder that no manifest names: somebody put them there, or the manifest is lost. */
struct strays {
    const struct hub_job *job;
    struct hub_file *list;
    int n, cap;
};

static enum reel_status add_stray(void *user, const char *path, struct reel_error *err) {
    struct strays *s = user;
    const struct hub_file file = { .path = path };
    if (strcmp(path, HUB_MANIFEST) == 0 || hub_listing_find(&s->job->held, path) ||
        is_wanted(s->job, path) || (hub_is_of_a_model(path) && !is_kept(s->job, &file)))
        return REEL_OK;
    if (s->n == s->cap) {
        int cap = 2 * s->cap + 8;
        struct hub_file *list = mem_resize(s->list, (size_t)cap * sizeof *list);
        if (!list) return err_memory(err, "a list of files", (size_t)cap * sizeof *list);
        s->list = list;
        s->cap = cap;
    }
    char *copy = NULL;
    enum reel_status status = mem_text(&copy, path, strlen(path), "a path", err);
    if (status == REEL_OK) s->list[s->n++] = (struct hub_file){ .path = copy };
    return status;
}

static void strays_release(struct strays *s) {
    for (int i = 0; i < s->n; i++)
        mem_free((void *)(uintptr_t)s->list[i].path);
    mem_free(s->list);
}

enum reel_status hub_install(struct hub_job *job, struct reel_error *err) {
    const struct hub_file **files = NULL;
    struct strays strays = { .job = job };
    int n = 0, n_fresh;
    if (in_manifest(job)) return REEL_OK; /* all was there */
    enum reel_status status = store_is_folder(job->store.folder)
                                  ? model_path_walk(job->store.folder, add_stray, &strays, err)
                                  : REEL_OK;
    size_t most = (size_t)job->n_wanted + (size_t)job->held.n_files + (size_t)strays.n;
    if (status == REEL_OK) status = mem_zeroed(&files, most, sizeof *files, "a list of files", err);
    if (status != REEL_OK) {
        strays_release(&strays);
        return status;
    }
    for (int i = 0; i < job->n_wanted; i++)
        if (!job->wanted[i].held) files[n++] = job->wanted[i].file;
    n_fresh = n;
    for (int i = 0; i < job->n_wanted; i++)
        if (job->wanted[i].held) files[n++] = job->wanted[i].file;
    for (int i = 0; i < job->held.n_files && status == REEL_OK; i++) {
        bool there = false;
        status = is_there(job, &job->held.files[i], &there, err);
        if (there && is_kept(job, &job->held.files[i])) files[n++] = &job->held.files[i];
    }
    for (int i = 0; i < strays.n; i++)
        files[n++] = &strays.list[i];
    if (status == REEL_OK)
        status = hub_store_install(&job->store, job->list.commit, files, n, n_fresh, err);
    strays_release(&strays);
    mem_free(files);
    return status;
}
