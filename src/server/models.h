/* The models that a server has, and their sessions. */
#ifndef REEL_SERVER_MODELS_H
#define REEL_SERVER_MODELS_H

#include "server/exchange.h"

struct session_pool;

enum served_state { SERVED_LOADING, SERVED_READY, SERVED_FAILED };

struct served_model {
    const char *name;            /* what clients call it; given by the command line */
    struct reel_model *model;    /* from SERVED_READY on */
    struct reel_model_info info; /* likewise */
    bool hears;                  /* a speech model: transcriptions and realtime, no text routes */
    bool embeds;                 /* its files say that it embeds */
    int64_t created;             /* seconds of 1970 */
    struct session_pool *pool;   /* of sessions for text */
};

/* The model of this name or alias; NULL: there is none. With name NULL or empty: the only one of
 * its kind (`hears`), or NULL. */
struct served_model *server_find_model(struct server *server, const char *name, bool hears);

/* The same for a handler: when there is none, or it is still loading, failed, or of the other kind,
 * answers the request with 404, 503 or 400 and gives NULL. */
struct served_model *exchange_need_model(struct exchange *x, const char *name, bool hears);

/* A session to work with, as a lease that is given back. */
struct session_lease {
    struct reel_session *session;
    int index; /* in the pool */
    double waited_ms;
};

/* Waits for a session, first come first served, and picks of the free ones the one whose ids share
 * the longest prefix with these. REEL_E_LIMIT when too many wait already, REEL_E_CANCELLED when the
 * client of the exchange left or the server ends. While it is held, a client that leaves cancels
 * what runs on the session. */
enum reel_status session_lease_take(struct session_lease *lease, struct served_model *m,
                                    struct exchange *x, const int32_t *ids, size_t n_ids,
                                    struct reel_error *err);
void session_lease_give(struct session_lease *lease, struct served_model *m, struct exchange *x);

#endif
