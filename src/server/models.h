/* The models that a server has, and their sessions. */
#ifndef REEL_SERVER_MODELS_H
#define REEL_SERVER_MODELS_H

#include "server/exchange.h"

#include <stdatomic.h>

struct session_pool;

enum served_state { SERVED_LOADING, SERVED_READY, SERVED_FAILED };

struct served_model {
    const char *name;           /* what clients call it; given by the command line */
    const char *const *aliases; /* [n_aliases] */
    int n_aliases;
    atomic_int state; /* enum served_state; what follows is there once it is ready */
    char why[300];    /* of SERVED_FAILED */
    struct reel_model *model;
    struct reel_model_info info;
    bool hears;                /* a speech model: transcriptions and realtime, no text routes */
    bool embeds;               /* its files say that it embeds */
    int context;               /* positions of each session */
    int64_t created;           /* seconds of 1970 */
    atomic_uint eval_ns;       /* that a position of a prompt takes, lately; 0: not known yet */
    atomic_ullong n_made;      /* tokens, counted as they are made */
    struct session_pool *pool; /* of sessions for text */
    const struct reel_model *draft;    /* guesses for its sessions; or NULL */
    uint64_t draft_kv_bytes;           /* that it keeps of a position */
    enum reel_speculation speculation; /* of its generations */
    int most_drafts;
};

/* All models: [*n], in the order of the command line. */
struct served_model *server_models(struct server *server, int *n);

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
 * what runs on the session. Of a model that hears, the lease is the right to one transcriber and
 * has no session: with ids NULL; the handler looks itself whether the client left. */
enum reel_status session_lease_take(struct session_lease *lease, struct served_model *m,
                                    struct exchange *x, const int32_t *ids, size_t n_ids,
                                    struct reel_error *err);
/* The same of a model that hears, for who has a client to look after: `look` is called a few times
 * a second while it waits, on this thread; false: it waits no more. */
enum reel_status session_lease_take_looking(struct session_lease *lease, struct served_model *m,
                                            struct exchange *x, bool (*look)(void *user),
                                            void *user, struct reel_error *err);
void session_lease_give(struct session_lease *lease, struct served_model *m, struct exchange *x);

/* The server ends: who works without a session of the pool stops when this says so. */
bool session_pool_is_over(struct served_model *m);

/* For the metrics: how many wait and have one, and what all sessions hold. */
struct pool_figures {
    int n_sessions, n_busy, n_waiting;
    size_t n_positions, most_positions;
};
void session_pool_figures(struct served_model *m, struct pool_figures *figures);

#endif
