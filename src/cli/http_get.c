#include "cli/http_get.h"

#ifdef REEL_WITH_CURL

#include <curl/curl.h>

#define CONNECT_TIMEOUT_S 5L
#define ANSWER_TIMEOUT_S  10L

/* What callbacks of one request know. */
struct request {
    struct http_get *client;
    struct buffer *body;
    enum reel_status status;
    struct reel_error why;
};

enum reel_status http_get_open(struct http_get *client, struct reel_error *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, REEL_E_NETWORK, "libcurl cannot be initialised");
    client->easy = curl_easy_init();
    if (client->easy) return REEL_OK;
    curl_global_cleanup();
    return err_memory(err, "an HTTP client", 0);
}

void http_get_close(struct http_get *client) {
    if (!client || !client->easy) return;
    curl_easy_cleanup(client->easy);
    curl_global_cleanup();
    client->easy = NULL;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    struct request *request = user;
    request->status = buffer_append(request->body, bytes, size * n, &request->why);
    return request->status == REEL_OK ? size * n : 0;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    const struct request *request = user;
    (void)a, (void)b, (void)c, (void)d;
    return request->client->stop && request->client->stop();
}

static void prepare(const struct http_get *client, struct request *request, const char *url,
                    char said[CURL_ERROR_SIZE]) {
    CURL *curl = client->easy;
    curl_easy_reset(curl); /* connections stay */
    curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, ANSWER_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "reel");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, said);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, request);
    if (client->ca) curl_easy_setopt(curl, CURLOPT_CAINFO, client->ca);
    if (client->bearer) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, client->bearer);
    }
}

enum reel_status http_get(struct http_get *client, const char *url, size_t limit,
                          struct buffer *body, int *code, struct reel_error *err) {
    struct request request = { .client = client, .body = body };
    char said[CURL_ERROR_SIZE] = "";
    long http = 0;
    body->size = 0;
    body->limit = limit;
    enum reel_status status = buffer_text(body, "", err); /* an empty answer is a text, too */
    if (status != REEL_OK) return status;
    prepare(client, &request, url, said);
    const CURLcode result = curl_easy_perform(client->easy);
    if (result == CURLE_ABORTED_BY_CALLBACK) return err_set(err, REEL_E_CANCELLED, "cancelled");
    if (request.status == REEL_E_LIMIT)
        return err_set(err, REEL_E_LIMIT, "%s: the answer has more than %zu bytes", url, limit);
    if (request.status != REEL_OK) return err_set(err, request.status, "%s", request.why.text);
    if (result != CURLE_OK)
        return err_set(err, REEL_E_NETWORK, "%s: %s", url,
                       said[0] ? said : curl_easy_strerror(result));
    curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http);
    *code = (int)http;
    return REEL_OK;
}

#else

enum reel_status http_get_open(struct http_get *client, struct reel_error *err) {
    (void)client;
    return err_set(err, REEL_E_UNSUPPORTED, "this reel was built without libcurl (MINIMAL=1)");
}
void http_get_close(struct http_get *client) { (void)client; }
enum reel_status http_get(struct http_get *client, const char *url, size_t limit,
                          struct buffer *body, int *code, struct reel_error *err) {
    (void)client, (void)url, (void)limit, (void)body, (void)code;
    return err_set(err, REEL_E_UNSUPPORTED, "this reel was built without libcurl (MINIMAL=1)");
}

#endif
