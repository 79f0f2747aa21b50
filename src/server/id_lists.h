/* Texts and token ids as requests hand them over: "a text", ["texts"], [1, 2] or [[1, 2], [3]]. */
#ifndef REEL_SERVER_ID_LISTS_H
#define REEL_SERVER_ID_LISTS_H

#include "server/fields.h"
#include "server/models.h"

#define MOST_LISTS 2048 /* texts in a request, as OpenAI allows */

struct id_lists {
    int n;
    int *lengths;       /* [n] ids of each */
    const char **texts; /* [n] borrowed from the JSON; NULL where ids were given */
    int32_t *ids;       /* of all, one behind the other */
    size_t n_ids, most_ids;
};

/* Reads object[key]; texts are encoded with `flags` of reel_encode. A list may be empty. Answers
 * the request and gives false where it is none of the four, or an id is not the model's. */
bool id_lists_read(struct id_lists *l, struct exchange *x, const json_t *object, const char *key,
                   const struct served_model *m, unsigned flags);
void id_lists_release(struct id_lists *l);

/* One text more, or one list of ids. Texts stay the caller's, and must live as long. `key` is what
 * a refusal names. */
bool id_lists_add_text(struct id_lists *l, struct exchange *x, const char *key, const char *text,
                       size_t n_bytes, const struct served_model *m, unsigned flags);

#endif
