/* Passes of a state on the CPU in which a text comes that is given, whatever the logits say; so
 * many of the drafts in them are right. */
#ifndef REEL_TESTS_TOLD_PASS_H
#define REEL_TESTS_TOLD_PASS_H

#include "runtime/backend.h"

struct told_pass {
    const int32_t *ids; /* [n] the text, */
    int n, vocab;       /* of which drafts for the last id are looked at, too */
    int position;       /* of the id that the next pass begins with */
};

/* One pass, with as many drafts as there may be: the first n_right are right. Moves position on. */
void told_pass(struct told_pass *t, struct backend *b, struct backend_state *s, int n_right);

#endif
