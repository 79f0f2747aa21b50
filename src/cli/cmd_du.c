/* reel du: what reel's files take on disk. */
#include "base/buffer.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/hub_listing.h"
#include "cli/hub_store.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static void row(const char *what, int64_t n_bytes, const char *where) {
    char size[HUB_SIZE_TEXT];
    hub_size_text(n_bytes, size);
    printf("%-22s %10s  %s\n", what, size, where);
}

/* Bytes of the folders owner/.name.partial and the like. */
static int64_t unfinished(const char *models) {
    int64_t sum = 0;
    DIR *owners = opendir(models);
    if (!owners) return 0;
    for (const struct dirent *o; (o = readdir(owners));) {
        char *folder = NULL;
        DIR *dir = o->d_name[0] != '.' && store_path(&folder, models, o->d_name, NULL) == REEL_OK
                       ? opendir(folder)
                       : NULL;
        for (const struct dirent *e; dir && (e = readdir(dir));) {
            char *path = NULL;
            if (e->d_name[0] != '.' || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            if (store_path(&path, folder, e->d_name, NULL) == REEL_OK) sum += store_size(path);
            mem_free(path);
        }
        if (dir) closedir(dir);
        mem_free(folder);
    }
    closedir(owners);
    return sum;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    (void)args;
    char *cache = NULL, *models = NULL, *hugging_face = NULL;
    enum reel_status status = folder_of_cache(&cache, err);
    if (status == REEL_OK) status = store_path(&models, cache, "models", err);
    if (status == REEL_OK) {
        int64_t all = store_size(cache), own = store_size(models), open = unfinished(models);
        row("models", own - open, models);
        if (open) row("unfinished downloads", open, "reel pull goes on with them");
        row("tokenizers, kernels", all - own, cache);
        if (folder_of_hugging_face(&hugging_face, NULL) == REEL_OK && store_is_folder(hugging_face))
            row("Hugging Face cache", store_size(hugging_face), hugging_face);
    }
    mem_free(hugging_face);
    mem_free(models);
    mem_free(cache);
    return status;
}

const struct cli_command cmd_du = {
    .name = "du",
    .arguments = "",
    .summary = "what the models and caches take on disk",
    .description = "Adds up the files of pulled models, of downloads that are not finished, and of "
                   "reel's caches of parsed tokenizers and compiled kernels. The Hugging Face "
                   "cache is shown for comparison; reel never writes there.",
    .run = run,
};
