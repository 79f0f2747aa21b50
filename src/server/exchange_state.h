/* What stands behind struct exchange, for http.c and exchange.c. */
#ifndef REEL_SERVER_EXCHANGE_STATE_H
#define REEL_SERVER_EXCHANGE_STATE_H

#include "server/crew.h"
#include "server/exchange.h"
#include "server/routes.h"
#include "server/server_state.h"

#include <pthread.h>
#include <stdatomic.h>

#define EXCHANGE_ID_BYTES     64
#define EXCHANGE_HOST_BYTES   272 /* a name of 255 bytes and a port */
#define EXCHANGE_MORE_HEADERS 6
#define EXCHANGE_FIELDS       64 /* headers and query arguments of a request that are kept */

struct exchange_field {
    const char *name, *value; /* in exchange.fields_text */
    bool query;
};

/* Two hold it: the HTTP side from the first line of a request until the library says that it is
 * completed, and the handler. Who lets go last frees it. */
struct exchange {
    struct crew_task task; /* first: the crew knows the exchange by it */
    struct server *server;
    const struct route *route; /* NULL: refused already */
    char id[EXCHANGE_ID_BYTES];
    char *method, *path;
    char host[EXCHANGE_HOST_BYTES]; /* of a target in absolute form, in place of the header Host */
    struct exchange_field fields[EXCHANGE_FIELDS];
    int n_fields;
    bool more_fields;          /* than were kept */
    struct buffer fields_text; /* reserved whole before the first field points into it */
    struct buffer body;
    size_t body_counted; /* in server.body_bytes */
    size_t discarded;    /* bytes of a refused request's body */
    double start_ms;
    struct exchange_figures figures;
    /* An answer that was found before the body had come: the body is read and thrown away. */
    int refuse_code;
    const char *refuse_param;
    char refuse_text[200];
    bool refuse_now; /* its body is not waited for: the connection closes after the answer */
    atomic_int references;

    pthread_mutex_t lock;              /* guards what follows */
    struct MHD_Connection *connection; /* NULL: completed, or a socket of the handler's */
    int fd;
    bool suspended; /* the library waits for MHD_resume_connection */
    bool lends;     /* its stream's chunks may be put beside the library: HTTP/1.1 without TLS */
    bool lent;      /* suspended at the end of a chunk: who has the lock may use the socket */
    bool handling;  /* the handler was started */
    bool over;      /* it has returned */
    bool gone;
    bool begun, queued, streaming, ended;
    int code;
    const char *type;
    const char *more[EXCHANGE_MORE_HEADERS][2]; /* name; value, owned */
    int n_more;
    struct buffer out; /* of a stream, what waits from out_taken on; or the whole answer */
    size_t out_taken;
    size_t n_rest; /* of what waits, the end of a chunk that a lent socket took in part */
    void (*on_gone)(void *user);
    void *on_gone_user;
    /* A WebSocket. */
    char accept[32]; /* Sec-WebSocket-Accept; empty: none */
    const char *protocol;
    struct MHD_UpgradeResponseHandle *upgrade;
    struct exchange_socket socket;
    char *extra;
    bool upgraded, abandoned; /* abandoned: the handler did not wait for its socket */
    pthread_cond_t changed;   /* upgraded, or gone */
};

struct exchange *exchange_new(struct server *server, struct reel_error *err);
void exchange_hold(struct exchange *x);
void exchange_let_go(struct exchange *x);

/* Answers with the switch to a WebSocket and waits for the socket; REEL_E_CANCELLED when the client
 * left. `protocol` is NULL or a constant. */
enum reel_status exchange_upgrade_now(struct exchange *x, const char *accept, const char *protocol,
                                      struct exchange_socket *socket, struct reel_error *err);

/* The client has left, or its connection failed. */
void exchange_left(struct exchange *x);

/* The socket of an exchange that gave it to watch_room takes more. True: nothing waits for that any
 * longer. */
bool exchange_room(struct exchange *x);

/* x->lock is held; it is unlocked, and the library looks at the connection again if there is
 * something for it to do. */
void exchange_unlock_and_wake(struct exchange *x);

#endif
