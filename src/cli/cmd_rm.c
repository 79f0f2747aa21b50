/* reel rm: deletes what reel pull fetched. */
#include "base/buffer.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/fetch_model.h"
#include "cli/folders.h"
#include "cli/hub_store.h"
#include "cli/model_list.h"
#include "cli/model_path.h"

#include <stdio.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "yes", .letter = 'y', .kind = CLI_FLAG, .help = "do not ask" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static enum reel_status refuse(const struct hub_name *name, const char *typed,
                               struct reel_error *err) {
    char *cache = NULL, *folder = NULL;
    enum reel_status status = REEL_E_NOT_FOUND;
    if (folder_of_hugging_face(&cache, NULL) == REEL_OK &&
        model_path_snapshot(&folder, cache, name->repo, NULL) == REEL_OK && folder)
        err_set(err, status,
                "%s: is in the Hugging Face cache, which reel leaves alone: it lies in %s", typed,
                folder);
    else
        err_set(err, status, "%s: reel pull has not fetched it; reel list shows what is here",
                typed);
    mem_free(folder);
    mem_free(cache);
    return status;
}

static bool is_of(const struct hub_choice *choice, const char *path) {
    if (choice->gguf) return strcmp(path, choice->path) == 0;
    return strncmp(path, choice->path, choice->n_path) == 0 &&
           !strchr(path + choice->n_path, '/') && !hub_ends_with(path, ".gguf");
}

static enum reel_status remove_one(const struct hub_store *store, const struct hub_name *name,
                                   int64_t *n_bytes, struct reel_error *err) {
    struct hub_listing held = { 0 };
    struct hub_choices all = { 0 };
    const struct hub_choice *gone = NULL;
    const struct hub_file **files = NULL;
    int n = 0;
    enum reel_status status = hub_store_read(store, name->repo, &held, err);
    if (status == REEL_OK) status = hub_choices_find(&all, &held, err);
    if (status == REEL_OK) status = hub_choices_pick(&all, &held, name->what, &gone, err);
    if (status == REEL_OK)
        status = mem_zeroed(&files, (size_t)held.n_files, sizeof *files, "a list of files", err);
    for (int i = 0; status == REEL_OK && i < held.n_files; i++)
        if (!is_of(gone, held.files[i].path)) files[n++] = &held.files[i];
    int n_kept = n;
    for (int i = 0; status == REEL_OK && i < held.n_files; i++)
        if (is_of(gone, held.files[i].path)) {
            *n_bytes += held.files[i].n_bytes;
            files[n++] = &held.files[i];
        }
    if (status == REEL_OK) status = hub_store_drop(store, held.commit, files, n, n_kept, err);
    mem_free(files);
    hub_choices_release(&all);
    hub_listing_release(&held);
    return status;
}

static enum reel_status confirm(const struct cli_args *args, const struct hub_store *store,
                                const struct hub_name *name, struct reel_error *err) {
    char size[HUB_SIZE_TEXT];
    struct buffer question = { 0 };
    if (cli_has(args, "yes")) return REEL_OK;
    if (!fetch_can_ask())
        return err_set(err, REEL_E_ARGUMENT,
                       "%s: there is no terminal to ask at; reel rm --yes %s deletes it",
                       args->arguments[0], args->arguments[0]);
    hub_size_text(store_size(store->folder) + store_size(store->partial), size);
    enum reel_status status = name->what
                                  ? buffer_printf(&question, err, "Delete %s?", args->arguments[0])
                                  : buffer_printf(&question, err, "Delete %s with %s in %s?",
                                                  args->arguments[0], size, store->folder);
    if (status == REEL_OK && !fetch_ask(question.bytes, false))
        status = err_set(err, REEL_E_CANCELLED, "nothing is deleted");
    buffer_release(&question);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct hub_name name;
    struct hub_store store = { .lock = -1 };
    char *cache = NULL;
    int64_t freed = 0;
    if (!hub_name_parse(&name, args->arguments[0]))
        return err_set(err, REEL_E_ARGUMENT,
                       "\"%s\" is not the name of a pulled model: expected OWNER/NAME or "
                       "OWNER/NAME:QUANTISATION",
                       args->arguments[0]);
    enum reel_status status = folder_of_cache(&cache, err);
    if (status == REEL_OK) status = hub_store_init(&store, cache, name.repo, err);
    if (status == REEL_OK && !store_is_folder(store.folder) &&
        (name.what || !store_is_folder(store.partial)))
        status = refuse(&name, args->arguments[0], err);
    if (status == REEL_OK) status = confirm(args, &store, &name, err);
    if (status == REEL_OK) status = hub_store_lock(&store, err);
    if (status == REEL_OK)
        status = name.what ? remove_one(&store, &name, &freed, err)
                           : hub_store_remove(&store, &freed, err);
    if (status == REEL_OK) {
        char size[HUB_SIZE_TEXT];
        hub_size_text(freed, size);
        printf("%s is deleted, %s\n", args->arguments[0], size);
    }
    hub_store_release(&store);
    mem_free(cache);
    return status;
}

const struct cli_command cmd_rm = {
    .name = "rm",
    .arguments = "OWNER/NAME[:QUANTISATION]",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "delete a model that reel pull fetched",
    .description = "Deletes a repository's folder in reel's cache with all its models, or only the "
                   "one that the name says. It asks first; without a terminal it wants --yes. "
                   "Nothing outside reel's cache is ever deleted: of a model in the Hugging Face "
                   "cache it says where that lies.",
    .groups = { &group },
    .run = run,
};
