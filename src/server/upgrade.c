/* From HTTP to a WebSocket (RFC 6455, section 4.2). */
#include "server/exchange_state.h"

#include "server/api_error.h"
#include "server/base64.h"

#include <nettle/sha1.h>
#include <string.h>
#include <strings.h>

#define KEY_BYTES 24 /* 16 bytes in base64 */

/* Whether a list of words that commas separate has this one. */
static bool lists(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", \t");
        size_t here = strcspn(at, ", \t");
        if (here == n && strncasecmp(at, word, n) == 0) return true;
        at += here;
    }
    return false;
}

static enum reel_status accept_key(const char *key, struct buffer *out, struct reel_error *err) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    struct sha1_ctx sha;
    uint8_t digest[SHA1_DIGEST_SIZE];
    sha1_init(&sha);
    sha1_update(&sha, KEY_BYTES, (const uint8_t *)key);
    sha1_update(&sha, sizeof guid - 1, (const uint8_t *)guid);
    sha1_digest(&sha, sizeof digest, digest);
    return base64_write(out, digest, sizeof digest, err);
}

enum reel_status exchange_upgrade(struct exchange *x, struct exchange_socket *socket,
                                  struct reel_error *err) {
    const char *key = exchange_header(x, "Sec-WebSocket-Key");
    const char *version = exchange_header(x, "Sec-WebSocket-Version");
    const char *protocols = exchange_header(x, "Sec-WebSocket-Protocol");
    struct buffer accept = { 0 };
    if (!lists(exchange_header(x, "Upgrade"), "websocket") ||
        !lists(exchange_header(x, "Connection"), "upgrade") || !key || strlen(key) != KEY_BYTES) {
        exchange_set_header(x, "Upgrade", "websocket");
        api_error(x, 426, NULL, NULL, "%s is a WebSocket", exchange_path(x));
        return err_set(err, REEL_E_ARGUMENT, "no handshake of a WebSocket");
    }
    if (!version || strcmp(version, "13") != 0) {
        exchange_set_header(x, "Sec-WebSocket-Version", "13");
        api_error(x, 426, NULL, NULL, "Sec-WebSocket-Version is %.20s; allowed is 13",
                  version ? version : "missing");
        return err_set(err, REEL_E_ARGUMENT, "another version of WebSocket");
    }
    enum reel_status status = accept_key(key, &accept, err);
    if (status == REEL_OK)
        status = exchange_upgrade_now(
            x, accept.bytes, lists(protocols, "realtime") ? "realtime" : NULL, socket, err);
    buffer_release(&accept);
    return status;
}
