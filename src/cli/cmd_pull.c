/* reel pull: a repository of the hub into the local cache. */
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/fetch_model.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "revision",
      .kind = CLI_TEXT,
      .argument = "NAME",
      .help = "branch, tag or commit; default main" },
    { .name = "file",
      .kind = CLI_TEXT,
      .argument = "NAME",
      .repeats = true,
      .help = "take this GGUF file, also of a sub-folder, or the safetensors of this sub-folder; "
              "the models pulled before stay" },
    { .name = "mirror",
      .kind = CLI_TEXT,
      .argument = "URL",
      .help = "fetch from this address; default $HF_ENDPOINT or " HUB_DEFAULT_MIRROR },
    { .name = "cache",
      .kind = CLI_TEXT,
      .argument = "FOLDER",
      .help = "put it under FOLDER/models; default: reel's cache folder" },
    { .name = "offline",
      .kind = CLI_FLAG,
      .help = "fetch nothing: check that the files are there and have the right hashes" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

/* OWNER/NAME:WHAT and every --file. */
static enum reel_status list_wanted(const struct cli_args *args, const struct hub_name *name,
                                    const char ***what, int *n, struct reel_error *err) {
    enum reel_status status =
        mem_zeroed(what, (size_t)args->n_values + 1, sizeof **what, "a list of files", err);
    *n = 0;
    if (status == REEL_OK && name->what) (*what)[(*n)++] = name->what;
    for (int i = 0; status == REEL_OK && cli_repeated(args, "file", i); i++) {
        const char *file = cli_repeated(args, "file", i);
        if (!hub_path_is_safe(file))
            return err_set(err, REEL_E_ARGUMENT, "--file: \"%s\" is no path inside a repository",
                           file);
        (*what)[(*n)++] = file;
    }
    return status;
}

/* People copy the address of a model's page: its path begins with the name. */
static const char *without_address(const char *text) {
    const char *scheme = strstr(text, "://");
    const char *slash = scheme ? strchr(scheme + 3, '/') : NULL;
    return slash ? slash + 1 : text;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct hub_name name;
    struct hub_pulled pulled = { 0 };
    const char **what = NULL;
    if (!hub_name_parse(&name, without_address(args->arguments[0])))
        return err_set(err, REEL_E_ARGUMENT,
                       "\"%s\" is not a repository name: expected OWNER/NAME or "
                       "OWNER/NAME:QUANTISATION in letters, digits, '-', '_' and '.'",
                       args->arguments[0]);
    struct fetch fetch = { .repo = name.repo,
                           .revision = cli_text(args, "revision", NULL),
                           .mirror = cli_text(args, "mirror", NULL),
                           .cache = cli_text(args, "cache", NULL),
                           .offline = cli_has(args, "offline") };
    enum reel_status status = list_wanted(args, &name, &what, &fetch.n_what, err);
    fetch.what = what;
    if (status == REEL_OK) status = fetch_model(&fetch, &pulled, err);
    if (status == REEL_OK) {
        printf("%s\n", pulled.folder);
        if (!fetch.cache && terminal_is(stderr))
            fprintf(stderr, "its name for every other command: %s\n", pulled.name);
    }
    hub_pulled_release(&pulled);
    mem_free(what);
    return status;
}

const struct cli_command cmd_pull = {
    .name = "pull",
    .arguments = "OWNER/NAME[:QUANTISATION]",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "fetch a model from the Hugging Face hub into the local cache",
    .description =
        "Fetches what reel reads of a repository: config, tokenizer and safetensors, or the GGUF "
        "file whose name ends in the quantisation that stands after the ':', such as Q4_K_M. Of a "
        "repository that has several models and none at its top, reel asks which one to take; "
        "without a terminal it lists them. Config or header come first, and what reel cannot run "
        "is refused before its weights are fetched.\n\n"
        "Every file is checked against the SHA-256 or git id that the hub states before it gets "
        "its name; the model's folder changes when all is there, and what was pulled before stays. "
        "Four files are fetched at once; a busy server is asked again after a while. An "
        "interrupted pull goes on where it stopped. Nothing that is downloaded is ever executed, "
        "and formats that can carry code are not downloaded.\n\n"
        "The access token of $HF_TOKEN, or of the file in which Hugging Face's programs keep it, "
        "is sent to the hub alone.\n\n"
        "Prints the folder. Afterwards OWNER/NAME, or OWNER/NAME:QUANTISATION, names the model for "
        "every other command.",
    .groups = { &group },
    .run = run,
};
