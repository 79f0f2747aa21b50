/* reel quantize: a model folder with narrow weights. */
#include "cli/commands.h"
#include "cli/open_model.h"
#include "cli/scoring.h"
#include "cli/terminal.h"

#include <stdio.h>

static const struct cli_option options[] = {
    { .name = "text",
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "score this text before and after, as reel score does, and print both perplexities" },
    { .name = "stride",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 1 << 20,
      .help = "of --text: tokens scored for each window of --ctx; default: half of it" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

/* What --text names; without it there is none, and no perplexity. */
struct text {
    const char *path;
    struct file_map file;
    double before, after; /* perplexity */
};

static enum reel_status score(const struct text *text, double *perplexity,
                              const struct reel_model *model, const struct cli_args *args,
                              struct reel_error *err) {
    struct text_score s;
    if (!text->path) return REEL_OK;
    enum reel_status status = score_file(&s, model, args, &text->file, text->path,
                                         (int)cli_integer(args, "stride", 0), err);
    if (status == REEL_OK) *perplexity = score_perplexity(&s);
    return status;
}

static enum reel_status write_folder(const struct reel_model *model, const struct cli_args *args,
                                     const char *form, struct reel_error *err) {
    struct progress progress;
    struct reel_quantize_result r = { .size = sizeof r };
    const struct reel_quantize_options how = { .size = sizeof how,
                                               .weights = form,
                                               .n_threads = (int)cli_integer(args, "threads", 0),
                                               .progress = progress_update,
                                               .progress_user = &progress };
    progress_start(&progress);
    enum reel_status status = reel_model_quantize(model, args->arguments[1], &how, &r, err);
    progress_end(&progress);
    if (status != REEL_OK) return status;
    printf("matrices   %d as %s, %.3f bits a weight, %.3f MB, rms error %.3f %%\n", r.n_matrices,
           form, 8 * (double)r.matrix_bytes / (double)r.n_weights, (double)r.matrix_bytes / 1e6,
           100 * r.error);
    printf("weights    %.3f MB in %d file%s, with all that stays wide\n", (double)r.bytes / 1e6,
           r.n_files, r.n_files == 1 ? "" : "s");
    return REEL_OK;
}

static enum reel_status score_folder(struct text *text, const struct cli_args *args,
                                     struct reel_error *err) {
    struct reel_model *model = NULL;
    if (!text->path) return REEL_OK;
    enum reel_status status = cli_model_open_stored(&model, args, args->arguments[1], err);
    if (status == REEL_OK) status = score(text, &text->after, model, args, err);
    reel_model_close(model);
    if (status == REEL_OK)
        printf("perplexity %.4f before, %.4f after, %+.2f %%\n", text->before, text->after,
               100 * (text->after / text->before - 1));
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    const char *form = cli_text(args, "weights", NULL);
    struct text text = { .path = cli_text(args, "text", NULL) };
    struct reel_model *model = NULL;
    if (!form)
        return err_set(err, REEL_E_ARGUMENT,
                       "--weights says what to make: --weights int8, int4 or fp8");
    interrupt_install(); /* so that nothing half written stays behind */
    enum reel_status status = text.path ? file_map_open(&text.file, text.path, err) : REEL_OK;
    if (status == REEL_OK) status = cli_model_open_stored(&model, args, args->arguments[0], err);
    if (status == REEL_OK) status = score(&text, &text.before, model, args, err);
    if (status == REEL_OK) status = write_folder(model, args, form, err);
    reel_model_close(model);
    if (status == REEL_OK) status = score_folder(&text, args, err);
    if (status == REEL_OK) printf("%s\n", args->arguments[1]);
    file_map_close(&text.file);
    return status;
}

const struct cli_command cmd_quantize = {
    .name = "quantize",
    .others = "convert export",
    .arguments = "MODEL FOLDER",
    .least_arguments = 2,
    .most_arguments = 2,
    .summary = "write a model folder with int8, int4 or fp8 weights",
    .description =
        "Quantises the matrices of a model's layers and writes a Hugging Face folder in the format "
        "of the compressed-tensors package, which transformers, vLLM and reel read: codes and "
        "bf16 scales, a scale for a row (int8, fp8) or for 128 weights (int4; 64 or 32 where 128 "
        "does not divide a row). Every weight is rounded to the nearest code; the scales are "
        "searched for the least sum of squared errors. Embedding, output matrix and small vectors "
        "stay as they are.\n\n"
        "MODEL is a folder with wide weights. FOLDER must be new; it appears when it is whole and "
        "on the disk. Prints the folder.",
    .groups = { &group, &cli_context_group, &cli_model_group },
    .run = run,
};
