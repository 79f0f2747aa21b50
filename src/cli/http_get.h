/* One GET at a time over a connection that is kept: what `reel top` asks a server with. */
#ifndef REEL_CLI_HTTP_GET_H
#define REEL_CLI_HTTP_GET_H

#include "base/buffer.h"

struct http_get {
    void *easy;         /* libcurl's */
    const char *bearer; /* key or NULL */
    const char *ca;     /* file of certificates to trust in place of the system's, or NULL */
    bool (*stop)(void); /* asked while an answer is awaited: true gives up; or NULL */
};

enum reel_status http_get_open(struct http_get *client, struct reel_error *err);
void http_get_close(struct http_get *client);

/* *code is the server's; *body (emptied first) has at most `limit` bytes. An answer of any code is
 * REEL_OK; none within seconds is REEL_E_NETWORK, and REEL_E_CANCELLED what `stop` ended. Nothing
 * is redirected: the key is for this server. */
enum reel_status http_get(struct http_get *client, const char *url, size_t limit,
                          struct buffer *body, int *code, struct reel_error *err);

#endif
