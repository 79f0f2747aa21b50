/* Folders with an EAGLE-3 head of synthetic weights (kernels/synthetic.h), for tests and
 * benchmarks: what it tells means nothing. */
#ifndef REEL_TESTS_EAGLE3_HEAD_H
#define REEL_TESTS_EAGLE3_HEAD_H

#include "model/model_config.h"

struct eagle3_head {
    const struct model_config *model; /* whose layers' shape the head's layer has */
    int n_ids;                        /* that it guesses among */
    const int32_t *ids;               /* [n_ids] of the model; NULL: the first ones */
    bool embedding;                   /* it has one of its own */
};

/* Writes config.json and model.safetensors into a folder that is there. False: a file could not be
 * written, of which errno says why. */
bool eagle3_head_write(const char *folder, const struct eagle3_head *head);
/* Removes both and the folder. */
void eagle3_head_remove(const char *folder);

#endif
