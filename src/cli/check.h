/* Is this model's output right on this machine? Against goldens made elsewhere, and against the
 * plain reference backend. */
#ifndef REEL_CLI_CHECK_H
#define REEL_CLI_CHECK_H

#include "base/error.h"
#include "cli/options.h"

/* A golden file is one JSON object:
 *   "made_with"      what computed it, in words
 *   "logprob_bound"  largest allowed difference of a log-probability
 *   "tokenizer"      list of {"text", "ids"}
 *   "continuations"  list of {"prompt_ids", "ids", "logprobs", "margin_ulps"}: greedy ids, each
 * with its log-probability and the gap between the two largest logits in bf16 ulp A different
 * winner is a tie, not an error, where the gap is at most two ulp: such positions are near-draws
 * that rounding decides. */
struct golden_result {
    char made_with[128];
    int n_texts;       /* tokenizer vectors compared */
    int n_positions;   /* greedy ids compared */
    int n_ties;        /* of these, winners that differ within the tie rule */
    int n_unexplained; /* winners that differ beyond it */
    double worst_logprob;
    double logprob_bound;
};

/* Compares each position on a timeline that is forced along the golden's ids, once position by
 * position (as decoding runs) and once as one prompt. REEL_E_MISMATCH names the first difference.
 */
enum reel_status golden_check(const struct reel_model *model, const char *name, const void *json,
                              size_t n_bytes, struct golden_result *result, struct reel_error *err);

struct reference_result {
    int n_positions;
    int n_same_winner;   /* positions where both have the same largest logit */
    int n_ties;          /* winners that differ within the tie rule */
    double rms;          /* of the differences of all logits, as a share of the logits' own rms */
    double worst;        /* largest difference, likewise */
    double rounding_rms; /* what bf16 arithmetic does to the same logits */
    double rms_bound, worst_bound; /* allowed; they follow from that */
};

/* The plain reference with each of its roundings. All have the weights of the model in question:
 * where reel_model_info names a device_weight_type, they are opened with weights rounded likewise.
 */
struct references {
    struct reel_model *exact, *fast, *faithful;
};
void references_close(struct references *all);

/* Evaluates the same ids on the model and its references, as one prompt, and compares all logits
 * with the exact ones. How far the fast and the faithful reference are from them decides how far
 * `model` may be. */
enum reel_status reference_check(const struct reel_model *model, const struct references *all,
                                 int n_positions, struct reference_result *result,
                                 struct reel_error *err);

/* The same, opening and closing the references of `name` with the options of cli_model_group. */
enum reel_status reference_check_named(const struct reel_model *model, const struct cli_args *args,
                                       const char *name, int n_positions,
                                       struct reference_result *result, struct reel_error *err);

/* How far apart two openings of a model are, without a verdict: the bounds stay 0. */
enum reel_status reference_distance(const struct reel_model *model,
                                    const struct reel_model *reference, int n_positions,
                                    struct reference_result *result, struct reel_error *err);

/* Which weights run, in words: "q4_1 in the file, bf16 on the GPU". */
#define WEIGHTS_TEXT 64
void weights_text(const struct reel_model_info *info, char text[WEIGHTS_TEXT]);

#endif
