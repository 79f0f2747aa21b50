/* What stands behind struct server, for the files of this folder that are it. */
#ifndef REEL_SERVER_SERVER_STATE_H
#define REEL_SERVER_SERVER_STATE_H

#include "server/api_keys.h"
#include "server/crew.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/server.h"
#include "server/watch.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdint.h>

#define SERVER_MOST_LIVE 256 /* sessions of /v1/realtime at once: each has a thread of the crew */

struct server {
    struct server_options options; /* defaults filled in */
    struct MHD_Daemon *daemon;
    int listener; /* ours until the daemon has it; -1: none */
    int port;
    struct served_model *models; /* [options.n_models] */
    struct reel_model *draft;    /* guesses for them; or NULL */
    struct keys keys;
    struct watch *watch;
    struct crew *crew;
    struct metrics *metrics;
    struct prefixes *prefixes; /* NULL: none are kept */
    atomic_bool draining, ending;
    atomic_int n_active;         /* exchanges whose handler has not ended */
    atomic_size_t body_bytes;    /* held by requests that are coming in or being handled */
    atomic_uint_fast64_t serial; /* of requests */
    atomic_int n_live;           /* sessions of /v1/realtime */
    atomic_int n_bad_ogg;        /* uploads in Ogg that could not be opened: transcriptions.c */
    uint64_t born;               /* a number that another start does not have */
    bool loopback;               /* nobody else reaches the address */
};

/* models.c. models_end makes everybody stop who works with a session or waits for one. */
enum reel_status models_open(struct server *server, struct reel_error *err);
void models_end(struct server *server);
/* Saves what sessions hold that nobody has used for so long. */
void models_save_idle(struct server *server, double idle_ms);
void models_close(struct server *server, void (*close)(void *user, struct reel_model *model));

/* http.c: the daemon's callbacks. */
enum reel_status http_start(struct server *server, struct reel_error *err);
void http_stop(struct server *server); /* after it no exchange exists */

void server_log(const struct server *server, enum server_log_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
