/* reel synthesize: a model of synthetic weights, for benchmarks and tests. */
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "reel_measure.h"

#include <stdio.h>

static const struct cli_option options[] = {
    { .name = "seed",
      .letter = 's',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT64_MAX,
      .help = "of the weights; the same seed gives the same bytes on every machine; default 0" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    const char *folder = args->arguments[0], *shape = args->arguments[1];
    uint64_t seed = (uint64_t)cli_integer(args, "seed", 0);
    struct progress progress;
    interrupt_install(); /* so that nothing half written stays behind */
    progress_start(&progress);
    enum reel_status status = reel_synthesize(folder, shape, seed, progress_update, &progress, err);
    progress_end(&progress);
    if (status == REEL_OK) printf("%s\n", folder);
    return status;
}

const struct cli_command cmd_synthesize = {
    .name = "synthesize",
    .arguments = "FOLDER SHAPE",
    .least_arguments = 2,
    .most_arguments = 2,
    .summary = "write a model of synthetic weights, for benchmarks",
    .description =
        "Writes a model folder of the given shape: bf16 weights from a random number generator and "
        "a tokenizer of bytes. It is for measuring time and memory; what it answers means "
        "nothing.\n\n"
        "SHAPE is the path of a config.json of a supported family, or one of qwen3-0.6b, "
        "qwen3-1.7b, qwen3-4b, qwen3-8b, smollm2-135m, smollm2-360m, smollm2-1.7b, llama-3.2-1b, "
        "llama-3.2-3b, tinyllama-1.1b, mistral-7b, qwen2.5-0.5b, qwen2.5-1.5b, "
        "qwen2.5-3b, qwen3.5-0.8b, qwen3-asr-0.6b, qwen3-asr-1.7b.\n\n"
        "FOLDER must be new; it appears when it is complete. Prints the folder.",
    .groups = { &group },
    .run = run,
};
