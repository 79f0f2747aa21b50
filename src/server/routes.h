/* The one list of what the server answers. */
#ifndef REEL_SERVER_ROUTES_H
#define REEL_SERVER_ROUTES_H

#include "server/exchange.h"

enum {
    ROUTE_OPEN = 1,    /* answered without a key */
    ROUTE_PAGE = 2,    /* for browsers: a missing key is asked for by the browser itself */
    ROUTE_DRAINING = 4 /* answered while the server drains */
};

struct route {
    const char *method; /* GET is for HEAD, too */
    const char *path;   /* "/v1/..." is answered without the "/v1", too; the end "*" is anything */
    void (*handle)(struct exchange *x);
    unsigned flags;
};

/* NULL: there is no such path. *wrong_method (or NULL) says that there is, for the methods in
 * `allowed`. */
const struct route *route_find(const char *method, const char *path, char allowed[32]);

/* For tests: every route up to NULL. */
const struct route *route_at(int index);

#endif
