#include "server/admit.h"

#include "base/memory.h"

#include "server/api_error.h"
#include "server/base64.h"
#include "server/exchange_state.h"
#include "server/json_out.h"

#include <ctype.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- where it listens ---- */

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return false;
}

enum reel_status admit_address(struct server *server, const struct sockaddr *address,
                               struct reel_error *err) {
    server->loopback = is_loopback(address);
    if (server->loopback || server->options.insecure || keys_wanted(&server->keys)) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "--host %s can be reached by others: give --api-key or --api-key-file, or "
                   "--insecure to let everybody in",
                   server->options.host);
}

/* ---- a request's name ---- */

static bool is_harmless(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= EXCHANGE_ID_BYTES) return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-_.:", name[i])) return false;
    return true;
}

void admit_name(struct exchange *x) {
    const char *given = exchange_header(x, "X-Request-Id");
    if (given && is_harmless(given)) {
        snprintf(x->id, sizeof x->id, "%s", given);
        return;
    }
    uint64_t number = atomic_fetch_add(&x->server->serial, 1);
    snprintf(x->id, sizeof x->id, "req-%08" PRIx64 "%08" PRIx64, x->server->born & 0xffffffff,
             number);
}

/* ---- what it asks ---- */

static bool has_prefix(const char *text, const char *prefix) {
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

void admit_target(struct exchange *x) {
    static const char *const schemes[] = { "http://", "https://" };
    size_t n = 0;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (has_prefix(x->path, schemes[i])) n = strlen(schemes[i]);
    if (n == 0) return;
    const size_t n_host = strcspn(x->path + n, "/");
    if (n_host == 0 || n_host >= sizeof x->host) {
        admit_refuse(x, 400, NULL,
                     "the request's target %.100s names a host of %zu bytes; allowed are 1 to %zu",
                     x->path, n_host, sizeof x->host - 1);
        return;
    }
    memcpy(x->host, x->path + n, n_host);
    x->host[n_host] = '\0';
    const char *path = x->path + n + n_host;
    if (*path)
        memmove(x->path, path, strlen(path) + 1);
    else
        memcpy(x->path, "/", 2);
}

static const char *host_of(const struct exchange *x) {
    return x->host[0] ? x->host : exchange_header(x, "Host");
}

/* ---- origins ---- */

static bool origin_listed(const struct server *server, const char *origin) {
    for (int i = 0; i < server->options.n_origins; i++) {
        const char *known = server->options.origins[i];
        if (strcmp(known, "*") == 0 || strcasecmp(known, origin) == 0) return true;
    }
    return false;
}

/* The server's own page: http://HOST of the header Host. */
static bool origin_is_own(const struct exchange *x, const char *origin) {
    const char *host = host_of(x);
    const char *at = strstr(origin, "://");
    return host && at && strcasecmp(at + 3, host) == 0;
}

static void check_origin(struct exchange *x) {
    const char *origin = exchange_header(x, "Origin");
    if (!origin || origin_is_own(x, origin) || origin_listed(x->server, origin)) return;
    admit_refuse(x, 403, NULL, "pages of %.100s may not ask this server; --cors-origin lets them",
                 origin);
}

void admit_cors(const struct exchange *x, struct MHD_Response *response) {
    const char *origin = exchange_header(x, "Origin");
    if (!origin || !origin_listed(x->server, origin)) return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "X-Request-Id");
    if (strcmp(x->method, "OPTIONS") != 0) return;
    const char *asked = exchange_header(x, "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            asked ? asked : "Authorization, Content-Type");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
}

/* Nothing, or ":80". */
static bool is_port(const char *text) {
    return !text[0] || (text[0] == ':' && text[1 + strspn(text + 1, "0123456789")] == '\0');
}

/* A page of another name that points at this address (DNS rebinding) has its name in Host, or in an
 * absolute target. */
static void check_host(struct exchange *x) {
    struct server *server = x->server;
    if (!server->loopback || keys_wanted(&server->keys)) return;
    const char *host = host_of(x);
    if (!host) return; /* HTTP/1.0: no browser */
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const char *known[] = { "localhost", "127.0.0.1", "[::1]", server->options.host };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_port(host + n) && strlen(known[i]) == n && strncasecmp(known[i], host, n) == 0)
            return;
    admit_refuse(x, 403, NULL,
                 "the request is for the host %.100s; without --api-key this server answers for "
                 "localhost alone",
                 host);
}

/* ---- keys ---- */

/* user:KEY in base64, as browsers send what a person typed. */
static bool basic_allows(struct keys *keys, const char *text) {
    struct buffer plain = { .limit = 4096 };
    bool allowed = false;
    if (base64_read(&plain, text, strlen(text), NULL) == REEL_OK && plain.bytes) {
        const char *colon = memchr(plain.bytes, ':', plain.size);
        if (colon)
            allowed = keys_allow(keys, colon + 1, plain.size - (size_t)(colon + 1 - plain.bytes));
    }
    buffer_release(&plain);
    return allowed;
}

/* A browser's WebSocket has no headers of its own: OpenAI's clients put the key among the names of
 * protocols. */
static bool protocol_allows(struct keys *keys, const char *list) {
    static const char mark[] = "openai-insecure-api-key.";
    const char *at = strstr(list, mark);
    if (!at) return false;
    at += sizeof mark - 1;
    return keys_allow(keys, at, strcspn(at, ", "));
}

/* One of them is enough: a browser adds a password that it remembers, perhaps an old one, to the
 * key that its page has. */
static bool has_key(struct exchange *x) {
    struct keys *keys = &x->server->keys;
    const char *text = exchange_header(x, "Authorization");
    if (text && has_prefix(text, "Bearer ") && keys_allow(keys, text + 7, strlen(text + 7)))
        return true;
    if (text && has_prefix(text, "Basic ") && basic_allows(keys, text + 6)) return true;
    text = exchange_header(x, "X-Api-Key");
    if (text && keys_allow(keys, text, strlen(text))) return true;
    text = exchange_header(x, "Sec-WebSocket-Protocol");
    return text && protocol_allows(keys, text);
}

static void check_key(struct exchange *x) {
    if (!keys_wanted(&x->server->keys) || (x->route && x->route->flags & ROUTE_OPEN) || has_key(x))
        return;
    if (x->route && x->route->flags & ROUTE_PAGE)
        exchange_set_header(x, "WWW-Authenticate", "Basic realm=\"reel: the key is the password\"");
    admit_refuse(x, 401, NULL, "no valid API key was given: Authorization: Bearer KEY");
}

/* ---- where a request ends ---- */

static int count_headers(const struct exchange *x, const char *name) {
    int n = 0;
    for (int i = 0; i < x->n_fields; i++)
        n += !x->fields[i].query && strcasecmp(x->fields[i].name, name) == 0;
    return n;
}

static void refuse_now(struct exchange *x, int code, const char *what) {
    admit_refuse(x, code, NULL, "%s", what);
    x->refuse_now = true;
}

static bool begins_longer(const char *text, const char *prefix) {
    return has_prefix(text, prefix) && text[strlen(prefix)];
}

/* What libmicrohttpd 0.9.75 takes for a header, and others for the length of the body (RFC 9112,
 * sections 5.1 and 5.2): a name with a blank before its colon, a value in which a line ends, and a
 * line that goes on in the next one. The library puts that next one behind the name. */
static bool is_misread(const struct exchange_field *f) {
    for (const char *c = f->name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f) return true;
    for (const char *c = f->value; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f) return true;
    return begins_longer(f->name, "Content-Length") || begins_longer(f->name, "Transfer-Encoding");
}

static bool has_misread_header(const struct exchange *x) {
    for (int i = 0; i < x->n_fields; i++)
        if (!x->fields[i].query && is_misread(&x->fields[i])) return true;
    return false;
}

/* A server in front that reads such a request otherwise would let one request hide in another. */
static void check_framing(struct exchange *x) {
    const char *coding = exchange_header(x, "Transfer-Encoding");
    const int n_codings = count_headers(x, "Transfer-Encoding");
    const int n_lengths = count_headers(x, "Content-Length");
    if (x->more_fields) {
        refuse_now(x, 431, "the request has too many headers or query arguments");
    } else if (has_misread_header(x)) {
        refuse_now(x, 400, "a header's name or value has a character that it may not have");
    } else if (n_lengths > 1 || n_codings > 1 || (n_lengths && n_codings)) {
        refuse_now(x, 400, "the request says more than once how long its body is");
    } else if (coding && strcasecmp(coding, "chunked") != 0) {
        refuse_now(x, 501, "the only Transfer-Encoding that is known is chunked");
    } else if (count_headers(x, "Host") > 1) {
        refuse_now(x, 400, "the request has more than one header Host");
    }
}

/* ---- all of it ---- */

void admit_refuse(struct exchange *x, int code, const char *param, const char *format, ...) {
    if (x->refuse_code) return;
    va_list list;
    va_start(list, format);
    vsnprintf(x->refuse_text, sizeof x->refuse_text, format, list);
    va_end(list);
    x->refuse_code = code;
    x->refuse_param = param;
}

void admit_check(struct exchange *x) {
    char allowed[32] = "";
    check_framing(x);
    x->route = route_find(x->method, x->path, allowed);
    check_host(x);
    check_origin(x);
    const char *origin = exchange_header(x, "Origin");
    if (strcmp(x->method, "OPTIONS") == 0 && origin && !x->refuse_code) {
        admit_refuse(x, 204, NULL, " ");
        return;
    }
    check_key(x);
    if (!x->route && allowed[0]) {
        exchange_set_header(x, "Allow", allowed);
        admit_refuse(x, 405, NULL, "%s is not allowed for %.100s; allowed: %s", x->method, x->path,
                     allowed);
    }
    if (!x->route) admit_refuse(x, 404, NULL, "there is no %.100s", x->path);
    if (x->route && atomic_load(&x->server->draining) && !(x->route->flags & ROUTE_DRAINING))
        admit_refuse(x, 503, NULL, "the server is shutting down");
}

void admit_answer(struct exchange *x) {
    if (x->refuse_code == 204) {
        exchange_reply(x, 204, NULL, "", 0);
        return;
    }
    if (x->refuse_code == 503) exchange_set_header(x, "Retry-After", "1");
    api_error(x, x->refuse_code, x->refuse_param, NULL, "%s", x->refuse_text);
}

/* ---- the log ---- */

static void time_text(char text[40]) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + n, 40 - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* Methods and paths come from outside: what is not plain is shown as '?'. */
static void plain_word(char *out, size_t room, const char *text) {
    size_t n = 0;
    for (; text[n] && n + 1 < room; n++)
        out[n] = isgraph((unsigned char)text[n]) && !strchr("\"\\", text[n]) ? text[n] : '?';
    out[n] = '\0';
}

/* A model's name is the operator's and may hold anything. */
static void write_name(struct buffer *out, const char *name, bool json) {
    size_t n = strlen(name);
    if (n > 200) n = 200;
    if (json) {
        (void)json_out_text(out, name, n, NULL);
        return;
    }
    for (size_t i = 0; i < n; i++)
        (void)buffer_append(out, iscntrl((unsigned char)name[i]) ? "?" : name + i, 1, NULL);
}

void admit_log(const struct exchange *x, int code, double total_ms) {
    const struct exchange_figures *f = &x->figures;
    const bool json = x->server->options.log_json;
    struct buffer model = { 0 };
    char when[40], path[80], method[16];
    time_text(when);
    plain_word(path, sizeof path, x->path);
    plain_word(method, sizeof method, x->method);
    write_name(&model, f->model ? f->model : "-", json);
    server_log(x->server, SERVER_LOG_ACCESS,
               json
                   ? "{\"time\":\"%s\",\"id\":\"%s\",\"method\":\"%s\",\"path\":\"%s\",\"code\":%d,"
                     "\"ms\":%.1f,\"model\":%s,\"prompt\":%d,\"reused\":%d,\"generated\":%d,"
                     "\"queue_ms\":%.1f,\"first_token_ms\":%.1f}"
                   : "%s %s %s %s %d %.1f ms, %s, prompt %d (%d reused), generated %d, queue %.1f "
                     "ms, first token %.1f ms",
               when, x->id, method, path, code, total_ms, model.bytes ? model.bytes : "\"\"",
               f->n_prompt, f->n_reused, f->n_generated, f->queue_ms, f->first_token_ms);
    buffer_release(&model);
}
