/* Whether two models mean the same by their ids, so that one can guess for the other. */
#ifndef REEL_MODEL_VOCABULARIES_H
#define REEL_MODEL_VOCABULARIES_H

#include "model/model.h"

/* *n_ids: every id below it is the same token of both models, in bytes and in kind (control or
 * not), or none of both. It is the length of the shorter vocabulary: a vocabulary may be padded to
 * another length, and ids of the longer one alone are never guessed. REEL_E_MISMATCH names both
 * models, the first id that differs and what each takes it for; or says that no id ends the texts
 * of both, or that one of them has no tokenizer. Models that have none at all are compared by their
 * length. */
enum reel_status vocabularies_compare(const struct model *model, const struct model *draft,
                                      int *n_ids, struct reel_error *err);

#endif
