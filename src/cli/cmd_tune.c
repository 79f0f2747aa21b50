/* reel tune: the launch settings that are fastest on this GPU. */
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/folders.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "reel_measure.h"

#include <stdio.h>

static const struct cli_option options[] = {
    { .name = "dry-run", .kind = CLI_FLAG, .help = "try and print, but remember nothing" },
    { .name = "seconds",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 3600,
      .help = "after which no new value is tried; default 45" },
    { .name = "n-depth",
      .letter = 'd',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 1 << 20,
      .help =
          "tokens in the long context; 0, the default, is 4096, or less where the model is slow "
          "or its context small" },
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 64,
      .help = "tokens of one timed decode; 0, the default, is by the model's speed" },
};
static const struct cli_group group = CLI_GROUP("Tuning", options);

static bool print_trial(void *user, const struct reel_tune_trial *trial) {
    progress_end(user);
    if (!trial->name)
        printf("%-24s", "as planned");
    else
        printf("%-12s %11d", trial->name, trial->value);
    printf(" %10.1f %10.1f  %s\n", trial->short_per_s, trial->long_per_s,
           !trial->name       ? ""
           : !trial->same_ids ? "other ids: refused"
           : trial->kept      ? "kept"
                              : "not better");
    fflush(stdout);
    return true;
}

static void print_result(const struct reel_tune_result *result) {
    printf("%-24s %10.1f %10.1f  %+.1f%%, %+.1f%%\n", "result", result->after_short,
           result->after_long, 100 * (result->after_short / result->before_short - 1),
           100 * (result->after_long / result->before_long - 1));
    printf("\n%s: %s; the long context is %d tokens\n",
           result->improved ? "best" : "nothing was better than the plan", result->gpu_options,
           result->long_context);
    if (result->path[0])
        printf("remembered in %s\n", result->path);
    else
        printf("not remembered\n");
}

static enum reel_status tune(struct reel_model *model, const struct cli_args *args,
                             struct reel_error *err) {
    struct progress progress;
    struct reel_tune_result result = { .size = sizeof result };
    struct reel_tune_options how = { .size = sizeof how,
                                     .seconds = (double)cli_integer(args, "seconds", 0),
                                     .n_tokens = (int)cli_integer(args, "tokens", 0),
                                     .long_context = (int)cli_integer(args, "n-depth", 0),
                                     .on_trial = print_trial,
                                     .user = &progress,
                                     .progress = progress_update,
                                     .progress_user = &progress };
    char *cache = NULL;
    enum reel_status status = REEL_OK;
    if (!cli_has(args, "dry-run") && !cli_has(args, "no-cache")) {
        status = folder_of_cache(&cache, err);
        how.cache_dir = cache;
    }
    printf("%-24s %10s %10s\n", "tokens per second", "short", "long");
    progress_start(&progress);
    if (status == REEL_OK) status = reel_model_tune(model, &how, &result, err);
    progress_end(&progress);
    if (status == REEL_OK) print_result(&result);
    mem_free(cache);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct reel_model *model = NULL;
    enum reel_status status = cli_model_open_gpu(&model, args, args->arguments[0], "tuned=0", err);
    if (status == REEL_OK) status = tune(model, args, err);
    reel_model_close(model);
    return status;
}

const struct cli_command cmd_tune = {
    .name = "tune",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "find the launch settings that are fastest on this GPU, and remember them",
    .description =
        "Tries, one after the other, how many bytes of weights and of K/V are kept in flight and "
        "from which position on attention is split, and keeps what decodes faster at a short and "
        "at a long context together (their geometric mean, medians of five decodes, seen twice). "
        "A value that changes the ids beyond ties is refused. No kernel is compiled for it, and it "
        "takes less than a minute.\n\n"
        "The result is kept in the cache folder, for this GPU, this model's shape and this version "
        "of reel; every command that opens such a model on the GPU uses it from then on. A plan "
        "changed by --gpu-option, or --gpu-option tuned=0, leaves it aside.",
    .groups = { &group, &cli_model_group },
    .run = run,
};
