/* How well a model predicts a text. */
#ifndef REEL_CLI_SCORING_H
#define REEL_CLI_SCORING_H

#include "base/file_map.h"
#include "cli/options.h"

struct text_score {
    double nats;  /* of all scored tokens */
    int n_scored; /* every token but the first, once */
    int n_ids;
    int context; /* positions of a window */
    size_t n_bytes;
};

/* Scores a file, whose name is `path`, on a session with the option of cli_context_group, in
 * windows that move on by `stride` tokens, 0: half of one. Control tokens in the text are read as
 * plain characters. Shows progress. */
enum reel_status score_file(struct text_score *score, const struct reel_model *model,
                            const struct cli_args *args, const struct file_map *file,
                            const char *path, int stride, struct reel_error *err);

/* exp of the mean of nats a token. */
double score_perplexity(const struct text_score *score);

#endif
