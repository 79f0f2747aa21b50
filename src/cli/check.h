/* Is this model's output right on this machine? Against goldens made elsewhere, and against the
 * plain reference backend. */
#ifndef REEL_CLI_CHECK_H
#define REEL_CLI_CHECK_H

#include "base/error.h"

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
    int n_same_winner; /* positions where both have the same largest logit */
    int n_ties;        /* winners that differ within the tie rule */
    double rms;        /* of the differences of all logits, as a share of the logits' own rms */
    double worst;      /* largest difference, likewise */
    double rms_bound, worst_bound; /* allowed */
};

/* Evaluates the same ids on both models, as one prompt, and compares all logits. */
enum reel_status reference_check(const struct reel_model *model, const struct reel_model *reference,
                                 int n_positions, struct reference_result *result,
                                 struct reel_error *err);

#endif
