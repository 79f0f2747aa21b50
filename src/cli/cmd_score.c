/* reel score: how well a model predicts a text. */
#include "cli/commands.h"
#include "cli/open_model.h"
#include "cli/scoring.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static const struct cli_option options[] = {
    { .name = "stride",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 1 << 20,
      .help = "tokens scored for each window of --ctx; default: half of it, so that every scored "
              "token but the first has at least half a window before it" },
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON object" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static void print_result(const struct cli_args *args, const struct text_score *s) {
    double per_token = s->nats / s->n_scored;
    double bits_per_byte = s->nats / log(2) / (double)s->n_bytes;
    if (!cli_has(args, "json")) {
        printf("perplexity %.4f a token, %.4f nats a token, %.4f bits a byte (%d tokens scored of "
               "%d, %zu bytes, windows of %d)\n",
               score_perplexity(s), per_token, bits_per_byte, s->n_scored, s->n_ids, s->n_bytes,
               s->context);
        return;
    }
    json_t *out = json_pack("{s:f, s:f, s:f, s:i, s:i, s:I, s:i}", "perplexity",
                            score_perplexity(s), "nats_per_token", per_token, "bits_per_byte",
                            bits_per_byte, "tokens_scored", s->n_scored, "tokens", s->n_ids,
                            "bytes", (json_int_t)s->n_bytes, "context", s->context);
    if (out && json_dumpf(out, stdout, JSON_REAL_PRECISION(10)) == 0) printf("\n");
    json_decref(out);
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct text_score score;
    struct file_map file = { 0 };
    struct reel_model *model = NULL;
    const char *path = args->arguments[1];
    enum reel_status status = file_map_open(&file, path, err);
    if (status == REEL_OK) status = cli_model_open(&model, args, args->arguments[0], err);
    if (status == REEL_OK)
        status =
            score_file(&score, model, args, &file, path, (int)cli_integer(args, "stride", 0), err);
    if (status == REEL_OK) print_result(args, &score);
    reel_model_close(model);
    file_map_close(&file);
    return status;
}

const struct cli_command cmd_score = {
    .name = "score",
    .others = "perplexity ppl",
    .arguments = "MODEL FILE",
    .least_arguments = 2,
    .most_arguments = 2,
    .summary = "perplexity of a text file under a model",
    .description =
        "Every token but the first is scored once, given the tokens before it in a window of --ctx "
        "positions that moves on by --stride. Control tokens in the text are read as plain "
        "characters.\n\n"
        "llama-perplexity cuts a text into windows that do not overlap and scores the second half "
        "of each, so its figures are of other tokens: compare those of one program.",
    .groups = { &group, &cli_context_group, &cli_model_group },
    .run = run,
};
