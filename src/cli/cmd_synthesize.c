/* reel synthesize: a model of synthetic weights, for benchmarks and tests. */
#include "base/buffer.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "reel_measure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct cli_option options[] = {
    { .name = "seed",
      .letter = 's',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT64_MAX,
      .help = "of the weights; the same seed gives the same bytes on every machine; default 0" },
    { .name = "weights",
      .kind = CLI_CHOICE,
      .argument = "FORM",
      .choices = "bf16 int8 int4 fp8",
      .help = "quantise them as reel quantize does; default bf16" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

/* A name beside the folder's that nothing has. */
static enum reel_status wide_name(struct buffer *name, const char *folder, struct reel_error *err) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    return buffer_printf(name, err, "%.*s.wide.%ld", (int)n, folder, (long)getpid());
}

static void remove_wide(const char *folder) {
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct buffer path = { 0 };
        if (buffer_printf(&path, NULL, "%s/%s", folder, names[i]) == REEL_OK)
            (void)unlink(path.bytes);
        buffer_release(&path);
    }
    (void)rmdir(folder);
}

/* The wide model is written first, beside the folder, and removed at the end. */
static enum reel_status make_narrow(const char *folder, const char *shape, uint64_t seed,
                                    const char *form, struct progress *progress,
                                    struct reel_error *err) {
    struct buffer wide = { 0 };
    struct reel_model *model = NULL;
    const struct reel_model_options how = { .size = sizeof how, /* nothing is computed with it */
                                            .device = "cpu",
                                            .cpu_path = "reference" };
    const struct reel_quantize_options quantize = { .size = sizeof quantize,
                                                    .weights = form,
                                                    .progress = progress_update,
                                                    .progress_user = progress };
    if (access(folder, F_OK) == 0) /* before all is made; reel_model_quantize looks again */
        return err_set(err, REEL_E_ARGUMENT, "%s: exists already; give the name of a new folder",
                       folder);
    enum reel_status status = wide_name(&wide, folder, err);
    if (status == REEL_OK)
        status = reel_synthesize(wide.bytes, shape, seed, progress_update, progress, err);
    if (status == REEL_OK) {
        status = reel_model_open(&model, wide.bytes, &how, err);
        if (status == REEL_OK) status = reel_model_quantize(model, folder, &quantize, NULL, err);
        reel_model_close(model);
        remove_wide(wide.bytes);
    }
    buffer_release(&wide);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    const char *folder = args->arguments[0], *shape = args->arguments[1];
    const char *form = cli_text(args, "weights", "bf16");
    uint64_t seed = (uint64_t)cli_integer(args, "seed", 0);
    struct progress progress;
    interrupt_install(); /* so that nothing half written stays behind */
    progress_start(&progress);
    enum reel_status status =
        strcmp(form, "bf16") == 0
            ? reel_synthesize(folder, shape, seed, progress_update, &progress, err)
            : make_narrow(folder, shape, seed, form, &progress, err);
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
        "Writes a model folder of the given shape: weights from a random number generator and "
        "a tokenizer of bytes. It is for measuring time and memory; what it answers means "
        "nothing.\n\n"
        "SHAPE is the path of a config.json of a supported family, or one of qwen3-0.6b, "
        "qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, smollm2-135m, smollm2-360m, smollm2-1.7b, "
        "llama-3.2-1b, llama-3.2-3b, tinyllama-1.1b, mistral-7b, qwen2.5-0.5b, qwen2.5-1.5b, "
        "qwen2.5-3b, qwen3.5-0.8b, qwen3-asr-0.6b, qwen3-asr-1.7b.\n\n"
        "FOLDER must be new; it appears when it is complete. With --weights the bf16 model lies "
        "beside it "
        "meanwhile. Prints the folder.",
    .groups = { &group },
    .run = run,
};
