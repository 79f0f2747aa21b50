/* reel serve without its command line: an HTTP server over opened models. */
#ifndef REEL_SERVER_SERVER_H
#define REEL_SERVER_SERVER_H

#include "base/error.h"

struct server;

/* A model that is to be served. `open` is called by server_load, once, on its thread. */
struct server_model {
    const char *name;           /* what clients call it */
    const char *const *aliases; /* [n_aliases] further names, or NULL */
    int n_aliases;
    enum reel_status (*open)(void *user, struct reel_model **model, struct reel_error *err);
    void *user;
};

enum server_log_kind { SERVER_LOG_WARNING, SERVER_LOG_INFO, SERVER_LOG_ACCESS };

struct server_options {
    const char *host; /* NULL: "127.0.0.1" */
    int port;         /* 0: one that is free */
    const struct server_model *models;
    int n_models;
    /* Keys: each allows everything; with n_keys 0 nobody is asked for one. */
    const char *const *keys;
    int n_keys;
    bool insecure;              /* an address that others reach is allowed without a key */
    const char *const *origins; /* [n_origins] whose pages may ask, such as "https://a.b"; "*" */
    int n_origins;
    int max_connections;               /* 0: 2048 */
    size_t max_body;                   /* bytes; 0: 64 MiB */
    double max_audio_seconds;          /* of an upload, decoded; 0: 4 hours */
    int queue;                         /* requests that may wait for a session of a model; 0: 64 */
    int timeout_s;                     /* for headers, bodies and idle connections; 0: 60 */
    int sessions;                      /* of each model; 0: 4 */
    int context;                       /* positions of each; 0: the model's own, at most 16384 */
    const char *tls_cert, *tls_key;    /* PEM texts, both or neither */
    const char *prefix_dir;            /* or NULL: where long prefixes are kept across restarts */
    size_t prefix_bytes;               /* of all of them; 0: 4 GiB */
    enum reel_speculation speculation; /* of all generations */
    int most_drafts;
    /* A model that guesses for each text model with its vocabulary; or NULL. Called by server_load,
     * once, before any other model is opened. */
    enum reel_status (*open_draft)(void *user, struct reel_model **model, struct reel_error *err);
    void *draft_user;
    bool log_json;
    /* One line, from any thread; may be NULL. */
    void (*log)(void *user, enum server_log_kind kind, const char *line);
    void *log_user;
};

/* For the program, before its first thread. Few of the C library's heaps for all threads, and
 * blocks of 128 KiB or more from the system, to which they go back: else each thread keeps in a
 * heap of its own what requests have freed. Nothing where the C library is not glibc. */
void server_limit_heaps(void);

/* Listens at once; every model answers 503 until server_load has opened it. Everything named by
 * options must stay alive until server_close. */
enum reel_status server_open(struct server **out, const struct server_options *options,
                             struct reel_error *err);
int server_port(const struct server *server);

/* Opens the models one after the other. The first failure ends it. */
enum reel_status server_load(struct server *server, struct reel_error *err);

/* Other keys from now on; requests that run go on. `keys` is copied. */
enum reel_status server_set_keys(struct server *server, const char *const *keys, int n_keys,
                                 struct reel_error *err);

/* Takes no more connections and no more requests; returns when those that run are done, or after
 * `seconds`. Whether they were done. */
bool server_drain(struct server *server, double seconds);

/* Cancels what runs, and frees all. Models stay with those who opened them: `close` is called for
 * each that was opened, with the user that opened it; for the draft model last. */
void server_close(struct server *server, void (*close)(void *user, struct reel_model *model));

#endif
