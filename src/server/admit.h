/* Who is let in: names of requests, keys, origins, addresses; and the access log. */
#ifndef REEL_SERVER_ADMIT_H
#define REEL_SERVER_ADMIT_H

#include "server/server_state.h"

#include <sys/socket.h>

/* Refuses an address that others reach where there is neither a key nor --insecure. */
enum reel_status admit_address(struct server *server, const struct sockaddr *address,
                               struct reel_error *err);

/* The request's own X-Request-Id where that is harmless, else a new one. */
void admit_name(struct exchange *x);

/* "http://HOST/PATH" asks for PATH at HOST, and a header Host counts no more (RFC 9112, section
 * 3.2.2). */
void admit_target(struct exchange *x);

/* Finds the route and refuses what is not let in. Needs the request's line and headers alone. */
void admit_check(struct exchange *x);

/* Notes the answer of a request that gets no further; the first one stays. */
void admit_refuse(struct exchange *x, int code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void admit_answer(struct exchange *x);

void admit_cors(const struct exchange *x, struct MHD_Response *response);

/* One line of the access log: no contents, no keys, no query. */
void admit_log(const struct exchange *x, int code, double total_ms);

#endif
