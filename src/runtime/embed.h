/* Texts to vectors, whatever is made of these: packing them into passes of the backend, or one by
 * one where it takes no several. */
#ifndef REEL_RUNTIME_EMBED_H
#define REEL_RUNTIME_EMBED_H

#include "runtime/session.h"

struct embed_texts {
    const int32_t *ids; /* of all texts, one behind the other */
    const int *lengths; /* [n_texts] */
    int n_texts;
    /* Takes the vector f32 [hidden] of each text once, in whatever order they are made. */
    void (*take)(void *user, int text, const float *vector);
    void *user;
};

/* Checks lengths and ids, then empties the session, which is idle and was begun: what is cancelled
 * from session_begin on counts. */
enum reel_status embed_texts_run(struct reel_session *session, const struct embed_texts *texts,
                                 struct reel_error *err);

#endif
