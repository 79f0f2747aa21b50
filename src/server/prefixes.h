/* Long prefixes in files, so that a restart does not lose them (--prefix-dir). */
#ifndef REEL_SERVER_PREFIXES_H
#define REEL_SERVER_PREFIXES_H

#include "base/error.h"

struct prefixes;
struct served_model;

#define PREFIX_LEAST      512 /* ids of a session that is worth a file */
#define PREFIX_GAIN_LEAST 256 /* ids that a file must add to what a session holds */

struct prefixes_options {
    const char *folder;       /* made with mode 0700; refused where others can enter it */
    size_t most_bytes;        /* of all files; those not used for longest go first */
    void (*look)(void *user); /* called twice a second by a thread, to save what is idle; or NULL */
    void *user;
    void (*log)(void *user, const char *line); /* or NULL */
};

/* Reads what the folder holds. A file that is damaged is removed. */
enum reel_status prefixes_open(struct prefixes **out, const struct prefixes_options *options,
                               struct reel_error *err);
/* Ends the thread; what follows may still be called. */
void prefixes_end(struct prefixes *p);
void prefixes_close(struct prefixes *p);

/* Makes the session hold the ids of a file, where they share at least PREFIX_GAIN_LEAST more ids
 * with these than `held`, which the session shares already, and reading the file takes less time
 * than evaluating those, as far as is known. Whether it did: the session may hold nothing where it
 * did not. */
bool prefixes_restore(struct prefixes *p, const struct served_model *m,
                      struct reel_session *session, int held, const int32_t *ids, size_t n_ids);

/* Writes what the session holds, unless a file has nearly all of it or reading it would take longer
 * than evaluating it. Takes the place of files that
 * hold a beginning of it. Nothing else may use the session meanwhile. */
void prefixes_save(struct prefixes *p, const struct served_model *m, struct reel_session *session);

#endif
