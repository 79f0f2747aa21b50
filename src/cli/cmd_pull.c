/* reel pull: a repository of the hub into the local cache. */
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/hub.h"
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>

static const struct cli_option options[] = {
    { .name = "revision",
      .kind = CLI_TEXT,
      .argument = "NAME",
      .help = "branch, tag or commit; default main" },
    { .name = "file",
      .kind = CLI_TEXT,
      .argument = "NAME.gguf",
      .help = "take this one GGUF file instead of safetensors, configs and tokenizer" },
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

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct progress progress;
    char *cache = NULL, *folder = NULL;
    const char *place = cli_text(args, "cache", NULL);
    enum reel_status status = REEL_OK;
    if (!place) {
        status = folder_of_cache(&cache, err);
        place = cache;
    }
    struct hub_pull pull = { .repo = args->arguments[0],
                             .revision = cli_text(args, "revision", NULL),
                             .mirror = cli_text(args, "mirror", getenv("HF_ENDPOINT")),
                             .token = getenv("HF_TOKEN"),
                             .cache_dir = place,
                             .gguf = cli_text(args, "file", NULL),
                             .offline = cli_has(args, "offline"),
                             .progress = progress_update,
                             .progress_user = &progress };
    progress_start(&progress);
    if (status == REEL_OK) status = hub_pull(&pull, &folder, err);
    progress_end(&progress);
    if (status == REEL_OK) printf("%s\n", folder);
    mem_free(cache);
    mem_free(folder);
    return status;
}

const struct cli_command cmd_pull = {
    .name = "pull",
    .arguments = "OWNER/NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "fetch a model from the Hugging Face hub into the local cache",
    .description =
        "Fetches what reel reads of a repository: configs, tokenizer files and safetensors "
        "weights, "
        "or one GGUF file. Every file is checked against the SHA-256 or git id that the hub states "
        "before it gets its name; the model's folder appears when it is complete. An interrupted "
        "pull goes on where it stopped. Nothing that is downloaded is ever executed, and formats "
        "that can carry code are not downloaded.\n\n"
        "Prints the folder. Afterwards OWNER/NAME names the model for every other command.",
    .groups = { &group },
    .run = run,
};
