/* The parts of a multipart/form-data body (RFC 7578) that is whole in memory.
 *
 * Strict where two readers could understand different things: lines end with CR LF, nothing stands
 * before the first boundary or behind the last one, a header or parameter comes once, and a
 * boundary inside a part's bytes is an error. What curl, browsers, requests and httpx send is
 * accepted. Reading takes time that grows with the body's length alone. */
#ifndef REEL_SERVER_MULTIPART_H
#define REEL_SERVER_MULTIPART_H

#include "base/error.h"

enum {
    MULTIPART_MOST_PARTS = 64,
    MULTIPART_MOST_HEADERS = 8192, /* bytes of a part's headers */
    MULTIPART_MOST_BOUNDARY = 70   /* RFC 2046, 5.1.1 */
};

struct multipart_part {
    char name[64];      /* of the field; a longer one is an error */
    char filename[128]; /* as sent; a longer one is cut; empty: none */
    char type[80];      /* its Content-Type, or empty; a longer one is cut */
    bool is_file;       /* it has a file name, which may be empty */
    const char *bytes;  /* [n_bytes], borrowed from the body */
    size_t n_bytes;
};

struct multipart {
    struct multipart_part parts[MULTIPART_MOST_PARTS];
    int n_parts;
};

/* content_type: the request's header, or NULL. Failures are REEL_E_ARGUMENT, of what the caps above
 * refuse REEL_E_LIMIT. */
enum reel_status multipart_read(struct multipart *m, const char *content_type, const void *bytes,
                                size_t n_bytes, struct reel_error *err);

/* Whether a request's header says that its body is such a form. */
bool multipart_is_form(const char *content_type);

#endif
