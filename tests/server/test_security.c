/* Who is let in, and what hostile requests get. Where a defect of another server is the reason for
 * a test, the test bears its name. */
#include "base/memory.h"
#include "server/api_keys.h"
#include "server/routes.h"
#include "tests/support/http_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/served.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY       "sk-right-0123456789"
#define OTHER_KEY "another"
#define MESSAGES  "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static const char *const keys[] = { KEY, OTHER_KEY };

/* ---- asking ---- */

/* The code of the answer to bytes as they are; 0: none. *back (or NULL) gets what came. */
static int raw(const struct served *s, const char *bytes, size_t n, struct buffer *back) {
    struct buffer got = { 0 };
    char some[4096];
    int code = 0, fd = http_connect(s->port);
    assert_true(fd >= 0);
    (void)http_send(fd, bytes, n);
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        const bool there = got.bytes && strstr(got.bytes, "\r\n\r\n");
        if (poll(&p, 1, there ? 50 : 5000) <= 0) break;
        ssize_t here = recv(fd, some, sizeof some, 0);
        if (here <= 0) break;
        assert_int_equal(buffer_append(&got, some, (size_t)here, NULL), REEL_OK);
    }
    close(fd);
    if (got.bytes) (void)sscanf(got.bytes, "HTTP/1.%*1[01] %d", &code);
    if (back) {
        *back = got;
    } else {
        buffer_release(&got);
    }
    return code;
}
static int raw_text(const struct served *s, const char *text) {
    return raw(s, text, strlen(text), NULL);
}

static int ask(const struct served *s, const char *method, const char *path, const char *headers,
               const char *body) {
    struct http_answer answer;
    http_ask(
        &answer, s->port,
        &(struct http_request){ .method = method, .path = path, .headers = headers, .body = body });
    const int code = answer.code;
    http_answer_release(&answer);
    return code;
}

/* Posts and wants this code; the answer must hold `what` (or NULL). */
static void want(const struct served *s, const char *path, const char *body, size_t n, int code,
                 const char *what) {
    struct http_answer answer;
    http_ask(&answer, s->port, &(struct http_request){ .path = path, .body = body, .n_body = n });
    if (answer.code != code)
        fail_msg("%s: %d instead of %d for %.100s: %.300s", path, answer.code, code, body,
                 answer.body.bytes ? answer.body.bytes : "");
    if (what && !strstr(answer.body.bytes, what))
        fail_msg("%s: no %s in %.300s", path, what, answer.body.bytes);
    http_answer_release(&answer);
}

static void works(const struct served *s) {
    want(s, "/v1/chat/completions", "{" MESSAGES ",\"max_tokens\":1}", 0, 200, NULL);
}

static void open_server(struct served *s) {
    if (!served_open(s)) fail_msg("%s", s->err.text);
}

/* ---- keys ---- */

static void path_of(char out[200], const struct route *r, bool without_v1) {
    snprintf(out, 200, "%s", r->path + (without_v1 ? 3 : 0));
    char *star = strchr(out, '*');
    if (star) snprintf(star, 8, "demo");
}

static void check_route(const struct served *s, const struct route *r, const char *path) {
    static const char *const methods[] = { "GET",    "HEAD",  "POST",   "PUT",
                                           "DELETE", "PATCH", "OPTIONS" };
    static const char *const wrong[] = { "",
                                         "Authorization: Bearer sk-right-012345678\r\n",
                                         "Authorization: Bearer sk-right-01234567890\r\n",
                                         "Authorization: Bearer \r\n",
                                         "Authorization: Bearer\r\n",
                                         "Authorization: " KEY "\r\n",
                                         "Authorization: Basic OnNrLXJpZ2h0\r\n",
                                         "Authorization: Basic !!!!\r\n",
                                         "X-Api-Key: sk-right\r\n",
                                         "X-Api-Key: \r\n",
                                         "Sec-WebSocket-Protocol: openai-insecure-api-key.\r\n",
                                         "Sec-WebSocket-Protocol: realtime\r\n" };
    const bool open = r->flags & ROUTE_OPEN;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const bool reads = strcmp(methods[i], "GET") == 0 || strcmp(methods[i], "HEAD") == 0;
        const int code = ask(s, methods[i], path, "", reads ? NULL : "{}");
        if (code != (open && reads ? 200 : 401)) fail_msg("%s %s: %d", methods[i], path, code);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int code = ask(s, r->method, path, wrong[i], strcmp(r->method, "POST") ? NULL : "{}");
        if (code != (open ? 200 : 401)) fail_msg("%s with '%s': %d", path, wrong[i], code);
    }
}

/* vLLM's key guards some prefixes of paths alone. */
static void every_route_but_health_and_ready_wants_a_key(void **state) {
    (void)state;
    struct served s = { .options = { .keys = keys, .n_keys = 2, .context = 128 } };
    int n_open = 0;
    open_server(&s);
    for (int i = 0; route_at(i); i++) {
        const struct route *r = route_at(i);
        char path[200];
        path_of(path, r, false);
        check_route(&s, r, path);
        n_open += (r->flags & ROUTE_OPEN) != 0;
        if (strncmp(path, "/v1/", 4) != 0) continue;
        path_of(path, r, true);
        check_route(&s, r, path);
    }
    assert_int_equal(n_open, 2);
    assert_int_equal(ask(&s, "GET", "/nowhere", "", NULL), 401); /* not even what there is */
    static const char *const right[] = { "Authorization: Bearer " KEY "\r\n",
                                         "authorization: bearer " OTHER_KEY "\r\n",
                                         "X-Api-Key: " KEY "\r\n",
                                         "Authorization: Basic OnNrLXJpZ2h0LTAxMjM0NTY3ODk=\r\n",
                                         "Sec-WebSocket-Protocol: realtime, "
                                         "openai-insecure-api-key." KEY "\r\n" };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_int_equal(ask(&s, "GET", "/v1/models", right[i], NULL), 200);
    served_close(&s);
}

static void other_keys_count_from_the_next_request_on(void **state) {
    (void)state;
    struct served s = { .options = { .keys = keys, .n_keys = 1, .context = 128 } };
    const char *const now[] = { "fresh" };
    open_server(&s);
    assert_int_equal(ask(&s, "GET", "/v1/models", "X-Api-Key: " KEY "\r\n", NULL), 200);
    assert_int_equal(server_set_keys(s.server, now, 1, NULL), REEL_OK);
    assert_int_equal(ask(&s, "GET", "/v1/models", "X-Api-Key: " KEY "\r\n", NULL), 401);
    assert_int_equal(ask(&s, "GET", "/v1/models", "X-Api-Key: fresh\r\n", NULL), 200);
    served_close(&s);
}

/* Every key is hashed and compared whole; with none, everybody is let in. */
static void keys_are_compared_whole(void **state) {
    (void)state;
    struct keys own;
    keys_init(&own);
    assert_true(keys_allow(&own, "x", 1));
    assert_int_equal(keys_set(&own, keys, 2, NULL), REEL_OK);
    for (size_t n = 0; n < strlen(KEY); n++)
        assert_false(keys_allow(&own, KEY, n));
    assert_true(keys_allow(&own, KEY, strlen(KEY)));
    assert_false(keys_allow(&own, KEY "\0", strlen(KEY) + 1));
    assert_true(keys_allow(&own, OTHER_KEY, strlen(OTHER_KEY)));
    for (int i = 0; i < own.n; i++)
        assert_null(strstr(own.hashes[i], "right")); /* only the hash is kept */
    keys_release(&own);
}

/* ---- addresses, hosts, origins ---- */

/* Ollama is found open on the Internet by the thousands. */
static void an_address_that_others_reach_wants_a_key(void **state) {
    (void)state;
    static const char *const open_hosts[] = { "0.0.0.0", "::" };
    for (int i = 0; i < 2; i++) {
        struct served s = { .options = { .host = open_hosts[i] } };
        assert_false(served_open(&s));
        if (s.err.status == REEL_E_IO || s.err.status == REEL_E_NOT_FOUND) continue; /* no IPv6 */
        assert_int_equal(s.err.status, REEL_E_ARGUMENT);
        assert_non_null(strstr(s.err.text, "--insecure"));
    }
    struct served insecure = { .options = { .host = "0.0.0.0", .insecure = true, .context = 128 } };
    open_server(&insecure);
    served_close(&insecure);
    struct served keyed = { .options = { .host = "0.0.0.0", .keys = keys, .n_keys = 1 } };
    open_server(&keyed);
    assert_int_equal(server_set_keys(keyed.server, NULL, 0, NULL), REEL_E_ARGUMENT);
    assert_int_equal(ask(&keyed, "GET", "/v1/models", "", NULL), 401);
    served_close(&keyed);
}

static int with_headers(const struct served *s, const char *headers) {
    char text[500];
    snprintf(text, sizeof text, "GET /v1/models HTTP/1.1\r\n%s\r\n", headers);
    return raw_text(s, text);
}

/* A page of evil.example whose name points at 127.0.0.1. */
static void dns_rebinding_is_refused(void **state) {
    const struct served *s = *state;
    static const char *const good[] = { "localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]",
                                        "[::1]:8080" };
    static const char *const bad[] = { "evil.example",
                                       "evil.example:8080",
                                       "localhost.evil.example",
                                       "127.0.0.1.evil",
                                       "localhos",
                                       "localhostx",
                                       "evil@localhost",
                                       "127.0.0.2",
                                       "[::1",
                                       "[::1].evil:8080",
                                       "" };
    char line[200];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(line, sizeof line, "Host: %s\r\n", good[i]);
        if (with_headers(s, line) != 200) fail_msg("%s was refused", line);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "Host: %s\r\n", bad[i]);
        const int code = with_headers(s, line);
        if (code != 403 && code != 400) fail_msg("%s: %d", line, code);
    }
    assert_int_equal(with_headers(s, "Host: localhost\r\nHost: evil.example\r\n"), 400);
    assert_int_equal(with_headers(s, "Host: evil.example\r\nHost: localhost\r\n"), 400);
}

static int with_target(const struct served *s, const char *target, const char *host) {
    char text[600];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, host);
    return raw(s, text, strlen(text), NULL);
}

/* RFC 9112, section 3.2.2: the target's host counts, and the header does not. */
static void an_absolute_target_is_served_by_its_own_host(void **state) {
    const struct served *s = *state;
    char target[500];
    assert_int_equal(with_target(s, "http://localhost/v1/models", "localhost"), 200);
    assert_int_equal(with_target(s, "HTTP://LocalHost:80/v1/models?x=1", "localhost"), 200);
    assert_int_equal(with_target(s, "https://127.0.0.1/v1/models", "evil.example"), 200);
    assert_int_equal(with_target(s, "http://localhost", "localhost"), 200);
    assert_int_equal(with_target(s, "http://localhost?x=1", "localhost"), 200);
    assert_int_equal(with_target(s, "http://localhost/nowhere", "localhost"), 404);
    assert_int_equal(with_target(s, "http://localhost/http://localhost/health", "localhost"), 404);
    assert_int_equal(with_target(s, "http://evil.example/v1/models", "localhost"), 403);
    assert_int_equal(with_target(s, "http://localhost@evil.example/v1/models", "localhost"), 403);
    assert_int_equal(with_target(s, "http://evil@localhost/v1/models", "localhost"), 403);
    assert_int_equal(with_target(s, "http:///v1/models", "localhost"), 400);
    assert_int_equal(with_target(s, "http://", "localhost"), 400);
    snprintf(target, sizeof target, "http://%0300d/v1/models", 0);
    assert_int_equal(with_target(s, target, "localhost"), 400);
}

/* A page cannot hide its Host or Origin behind headers that are not kept. */
static void too_many_headers_are_refused(void **state) {
    const struct served *s = *state;
    struct buffer text = { 0 };
    assert_int_equal(buffer_text(&text, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n", NULL),
                     REEL_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(buffer_printf(&text, NULL, "X-%d: y\r\n", i), REEL_OK);
    assert_int_equal(buffer_text(&text, "Origin: http://evil.example\r\n\r\n", NULL), REEL_OK);
    assert_int_equal(raw(s, text.bytes, text.size, NULL), 431);
    text.size = 0;
    assert_int_equal(buffer_text(&text, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n", NULL),
                     REEL_OK);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(buffer_printf(&text, NULL, "X-%d: y\r\n", i), REEL_OK);
    assert_int_equal(raw(s, text.bytes, text.size, NULL) / 100, 4);
    buffer_release(&text);
    works(s);
}

static void pages_of_others_are_refused(void **state) {
    const struct served *s = *state; /* knows https://friend.example */
    struct buffer back = { 0 };
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: null\r\n"), 403);
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: http://localhost.evil\r\n"), 403);
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: https://friend.example.evil\r\n"),
                     403);
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: http://localhost\r\n"), 200);
    assert_int_equal(with_headers(s, "Host: localhost\r\nOrigin: https://friend.example\r\n"), 200);
    const char preflight[] =
        "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n\r\n";
    char text[500];
    snprintf(text, sizeof text, preflight, "https://friend.example");
    assert_int_equal(raw(s, text, strlen(text), &back), 204);
    assert_non_null(strstr(back.bytes, "Access-Control-Allow-Origin: https://friend.example\r\n"));
    buffer_release(&back);
    snprintf(text, sizeof text, preflight, "https://evil.example");
    assert_int_equal(raw(s, text, strlen(text), &back), 403);
    assert_null(strstr(back.bytes, "Access-Control-Allow"));
    buffer_release(&back);
}

/* ---- paths and names ---- */

static void no_path_leads_to_a_file(void **state) {
    const struct served *s = *state;
    static const char *const paths[] = { "/../../../etc/passwd",
                                         "/page/../../../etc/passwd",
                                         "/page/..%2f..%2f..%2fetc%2fpasswd",
                                         "/page/%2e%2e/%2e%2e/etc/passwd",
                                         "//etc/passwd",
                                         "/page//etc/passwd",
                                         "/page/%00",
                                         "/v1/models/../../etc/passwd",
                                         "/v1/models/%2fetc%2fpasswd",
                                         "/v1/models/..",
                                         "/v1/models/.",
                                         "/v1/models/%ff%fe" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct http_answer answer;
        http_ask(&answer, s->port, &(struct http_request){ .path = paths[i] });
        if (answer.code != 404) fail_msg("%s: %d", paths[i], answer.code);
        assert_null(strstr(answer.body.bytes, "root:"));
        http_answer_release(&answer);
    }
}

static void ollama_names_of_models_reach_no_file(void **state) {
    const struct served *s = *state;
    static const char *const names[] = { "/etc/passwd", "../demo",     "./demo",      "demo/",
                                         "DEMO",        "demo\\u0020", "models/demo", "hf.co/a/b",
                                         "demo\\n",     "%s%s%n" };
    char body[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(body, sizeof body, "{\"model\":\"%s\"," MESSAGES "}", names[i]);
        want(s, "/v1/chat/completions", body, 0, 404, "model_not_found");
    }
    want(s, "/v1/chat/completions", "{\"model\":\"demo\\u0000x\"," MESSAGES "}", 0, 400, "model");
}

/* ---- where a request ends ---- */

static void request_smuggling_shapes_are_refused(void **state) {
    const struct served *s = *state;
    static const char *const shapes[] = {
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: +4\r\n\r\nabcd",
        "Content-Length: 0x4\r\n\r\nabcd",
        "Content-Length: 4, 4\r\n\r\nabcd",
        "Content-Length: 18446744073709551616\r\n\r\n",
        "Content-Length: 99999999999999999999999999\r\n\r\n",
        "Content-Length : 4\r\n\r\n",
        "Content-Length\t: 4\r\n\r\n",
        "Content-Length:\r\n 4\r\n\r\n",
        "Content-Length: 1\r\n 5\r\n\r\n",
        "X-A: b\rContent-Length: 4\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n",
        "Transfer-Encoding:\r\n chunked\r\n\r\n",
        "X-A: b\rTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct buffer back = { 0 };
        char text[500];
        snprintf(text, sizeof text,
                 "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\n%s"
                 "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 shapes[i]);
        const int code = raw(s, text, strlen(text), &back);
        if (code / 100 != 4 && code != 501) fail_msg("%d for %s", code, shapes[i]);
        /* what stands behind it is no request */
        if (strstr(back.bytes, "{\"status\":\"ok\"}")) fail_msg("smuggled: %s", shapes[i]);
        buffer_release(&back);
    }
    works(s);
}

static void nonsense_in_chunks_ends_the_connection(void **state) {
    const struct served *s = *state;
    static const char *const chunks[] = { "zz\r\n",
                                          "-1\r\nabc\r\n",
                                          "ffffffffffffffffff\r\n",
                                          "5\r\nabcdefgh\r\n0\r\n\r\n",
                                          "\r\n\r\n\r\n",
                                          "0x5\r\nabcde\r\n0\r\n\r\n" };
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct buffer back = { 0 };
        char text[500];
        snprintf(text, sizeof text,
                 "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n%s",
                 chunks[i]);
        const int code = raw(s, text, strlen(text), &back);
        if (code != 0 && code / 100 != 4) fail_msg("%d for %s", code, chunks[i]);
        buffer_release(&back);
    }
    works(s);
}

static void nonsense_instead_of_http_is_no_harm(void **state) {
    const struct served *s = *state;
    unsigned seed = 5;
    for (int i = 0; i < 60; i++) {
        char bytes[600];
        size_t n = (size_t)rand_r(&seed) % sizeof bytes;
        for (size_t j = 0; j < n; j++)
            bytes[j] = (char)rand_r(&seed);
        if (i % 3 == 0) memcpy(bytes, "GET / HTTP/1.1\r\n", 16);
        if (n > 8) memcpy(bytes + n - 4, "\r\n\r\n", 4);
        int fd = http_connect(s->port);
        (void)http_send(fd, bytes, n);
        close(fd);
    }
    static const char *const lines[] = {
        "GET\r\n\r\n",
        "GET /\r\n\r\n",
        "\r\n\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET http://evil.example/health HTTP/1.1\r\nHost: evil\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[200];
        snprintf(text, sizeof text, "%s", lines[i]);
        int fd = http_connect(s->port);
        (void)http_send(fd, text, strlen(text));
        close(fd);
    }
    works(s);
}

/* ---- fields ---- */

static const char *const number_fields[] = {
    "n",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "top_logprobs",
    "seed",
    "n_predict",
    "repeat_penalty",
    "best_of",
};

/* 400 with the field's name, or an answer. Never 500, and the server lives. */
static void check_value(const struct served *s, const char *field, const char *value) {
    char body[400], named[100];
    struct http_answer answer;
    snprintf(body, sizeof body, "{" MESSAGES ",%s\"logprobs\":true,\"%s\":%s}",
             strcmp(field, "max_tokens") ? "\"max_tokens\":1," : "", field, value);
    snprintf(named, sizeof named, "\"param\":\"%s\"", field);
    http_ask(&answer, s->port,
             &(struct http_request){ .path = "/v1/chat/completions", .body = body });
    const char *text = answer.body.bytes ? answer.body.bytes : "";
    const bool whole = strcmp(value, "1e309") == 0; /* no number: the JSON is refused */
    const bool good = answer.code == 200 || (answer.code == 400 && (whole || strstr(text, named)));
    if (!good) fail_msg("%s = %s: %d %.300s", field, value, answer.code, text);
    http_answer_release(&answer);
}

static void cve_2026_21869_negative_and_odd_numbers_are_refused_by_name(void **state) {
    const struct served *s = *state;
    static const char *const values[] = { "-1",
                                          "-2147483648",
                                          "-9223372036854775808",
                                          "-0.0",
                                          "1e309",
                                          "-1e308",
                                          "\"12\"",
                                          "[]",
                                          "{}",
                                          "true",
                                          "null",
                                          "1.5",
                                          "4294967296",
                                          "9223372036854775807",
                                          "1e18" };
    for (size_t i = 0; i < sizeof number_fields / sizeof *number_fields; i++)
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            /* as many tokens as fit is what such a number asks for */
            if (strstr(number_fields[i], "max_") || strstr(number_fields[i], "n_predict"))
                if (values[j][0] != '-' && values[j][0] != '"') continue;
            check_value(s, number_fields[i], values[j]);
        }
    want(s, "/v1/chat/completions", "{" MESSAGES ",\"n_discard\":-1,\"max_tokens\":1}", 0, 200,
         NULL);
}

static void cve_2026_34756_a_million_answers_are_refused(void **state) {
    want(*state, "/v1/chat/completions", "{" MESSAGES ",\"n\":1000000}", 0, 400, "\"param\":\"n\"");
    want(*state, "/v1/completions", "{\"prompt\":\"a\",\"n\":1000000}", 0, 400, "\"param\":\"n\"");
}

static void cve_2026_43632_token_routes_wait_for_the_model(void **state) {
    (void)state;
    const struct server_model model = { .name = "demo" };
    const struct server_options options = { .models = &model, .n_models = 1 };
    struct served s = { 0 };
    assert_int_equal(server_open(&s.server, &options, NULL), REEL_OK);
    s.port = server_port(s.server);
    want(&s, "/v1/tokenize", "{\"content\":\"a\"}", 0, 503, "loading");
    want(&s, "/v1/detokenize", "{\"tokens\":[1]}", 0, 503, "loading");
    server_close(s.server, NULL);
}

struct asker {
    int port;
    atomic_bool *over;
    atomic_int *n_answered;
};

static void *ask_for_tokens(void *user) {
    static const char *const asked[][2] = {
        { "/v1/tokenize", "{\"content\":\"Once upon a time there was\",\"with_pieces\":true}" },
        { "/v1/detokenize", "{\"tokens\":[70,71,72,73,74]}" },
        { "/v1/apply-template", "{" MESSAGES "}" },
        { "/v1/messages/count_tokens", "{" MESSAGES "}" },
        { "/tokenizer_info", NULL },
    };
    struct asker *a = user;
    for (int i = 0; !atomic_load(a->over); i = (i + 1) % 5) {
        struct http_answer answer;
        http_ask(&answer, a->port,
                 &(struct http_request){ .path = asked[i][0], .body = asked[i][1] });
        if (answer.code == 200) atomic_fetch_add(a->n_answered, 1);
        http_answer_release(&answer);
    }
    return NULL;
}

/* llama.cpp's routes went to the model while it was being closed. */
static void cve_2026_43632_token_routes_race_the_servers_end(void **state) {
    enum { N = 4 };
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct served s = { .options = { .context = 128 } };
        atomic_bool over = false;
        struct asker askers[N];
        pthread_t threads[N];
        atomic_int n_answered = 0;
        open_server(&s);
        for (int i = 0; i < N; i++) {
            askers[i] = (struct asker){ s.port, &over, &n_answered };
            assert_int_equal(pthread_create(&threads[i], NULL, ask_for_tokens, &askers[i]), 0);
        }
        for (int ms = 0; ms < 5000 && atomic_load(&n_answered) < 10 + 7 * round; ms++)
            nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        assert_true(atomic_load(&n_answered) >= 10 + 7 * round);
        served_close(&s);
        atomic_store(&over, true);
        for (int i = 0; i < N; i++)
            pthread_join(threads[i], NULL);
    }
}

/* llama.cpp's server of tensors asks nobody who he is, and does as its messages say
 * (CVE-2024-42478, CVE-2024-42479, CVE-2026-34159, CVE-2026-118375). There is none here: no route,
 * and no answer but HTTP's to a message. */
static void cve_2024_42478_there_is_no_rpc_of_tensors(void **state) {
    const struct served *s = *state;
    static const char *const paths[] = { "/rpc", "/v1/rpc", "/tensor", "/v1/tensors", "/slots" };
    for (int i = 0; route_at(i); i++)
        assert_true(!strstr(route_at(i)->path, "rpc") && !strstr(route_at(i)->path, "tensor"));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(ask(s, "POST", paths[i], "", "{}"), 404);
    for (int command = 0; command < 20; command++) {
        char message[64] = { (char)command, 24 }; /* a command, a length, an address and a size */
        struct buffer back = { 0 };
        memset(message + 9, 0x41, 24);
        memcpy(message + 33, "\r\n\r\n", 4);
        const int code = raw(s, message, 37, &back);
        if (code / 100 == 2 || (back.size && memcmp(back.bytes, "HTTP/1.", 7) != 0))
            fail_msg("command %d: %d", command, code);
        buffer_release(&back);
    }
    works(s);
}

static void repeat(struct buffer *out, const char *text, int n) {
    for (int i = 0; i < n; i++)
        assert_int_equal(buffer_text(out, text, NULL), REEL_OK);
}

/* Two bytes of a list become some eighty of memory; commas of a text are none of its business. */
static void lists_of_millions_are_refused_before_they_are_read(void **state) {
    const struct served *s = *state;
    struct buffer body = { 0 };
    assert_int_equal(buffer_text(&body, "{\"prompt\":[1", NULL), REEL_OK);
    repeat(&body, ",1", 4 << 20);
    assert_int_equal(buffer_text(&body, "]}", NULL), REEL_OK);
    want(s, "/v1/completions", body.bytes, body.size, 413, "values");
    body.size = 0;
    assert_int_equal(buffer_text(&body, "{\"content\":1,\"x\":\"\\\"", NULL), REEL_OK);
    repeat(&body, ",[", 4 << 20);
    assert_int_equal(buffer_text(&body, "\"}", NULL), REEL_OK);
    want(s, "/tokenize", body.bytes, body.size, 400, "content");
    buffer_release(&body);
}

static void deep_and_odd_json_is_refused(void **state) {
    const struct served *s = *state;
    struct buffer deep = { 0 };
    repeat(&deep, "[", 100000);
    want(s, "/v1/chat/completions", deep.bytes, deep.size, 400, NULL);
    deep.size = 0;
    repeat(&deep, "{\"messages\":", 10000);
    want(s, "/v1/chat/completions", deep.bytes, deep.size, 400, NULL);
    buffer_release(&deep);
    static const char *const odd[] = {
        "",
        "null",
        "[]",
        "1",
        "\"a\"",
        "{",
        "{}x",
        "{\"messages\":\"a\"}",
        "{\"messages\":[1]}",
        "{\"messages\":[{}]}",
        "{\"messages\":[{\"role\":\"user\"}]}",
        "{\"messages\":[{\"role\":1,\"content\":\"a\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":{}}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
        "{" MESSAGES ",\"logit_bias\":{\"-1\":1}}",
        "{" MESSAGES ",\"logit_bias\":{\"x\":1}}",
        "{" MESSAGES ",\"logit_bias\":{\"99999999999999999999\":1}}",
        "{" MESSAGES ",\"stop\":[1]}",
        "{" MESSAGES ",\"stop\":[\"\"]}",
        "{" MESSAGES ",\"stream_options\":1}",
        "{" MESSAGES ",\"tools\":{}}",
        "{" MESSAGES ",\"tools\":[1]}",
        "{" MESSAGES ",\"chat_template_kwargs\":[]}",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct http_answer answer;
        http_ask(&answer, s->port,
                 &(struct http_request){ .path = "/v1/chat/completions", .body = odd[i] });
        if (answer.code != 400) fail_msg("%d for %s", answer.code, odd[i]);
        http_answer_release(&answer);
    }
    works(s);
}

/* ---- forms ---- */

static int form(const struct served *s, const char *type, const char *body, size_t n) {
    char head[400];
    struct buffer text = { 0 };
    snprintf(head, sizeof head,
             "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n",
             type, n);
    assert_int_equal(buffer_text(&text, head, NULL), REEL_OK);
    assert_int_equal(buffer_append(&text, body, n, NULL), REEL_OK);
    const int code = raw(s, text.bytes, text.size, NULL);
    buffer_release(&text);
    return code;
}

static void cve_2023_27371_boundaries_of_forms_are_read_with_care(void **state) {
    const struct served *s = *state;
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=a\"b",
        "multipart/form-data; boundary=;a=b",
        ("multipart/form-data; boundary=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        "multipart/form-data; boundary=a"
    };
    static const char *const bodies[] = { "",
                                          "--a",
                                          "--a--",
                                          "--a\r\n",
                                          "--a\r\n\r\n",
                                          "--\"\r\n",
                                          "--a\r\nContent-Disposition: form-data; name=\"model",
                                          ("--a\r\nContent-Disposition: form-data; name=\"file\"; "
                                           "filename=\"\r\n\r\n\r\n--a--") };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t j = 0; j < sizeof bodies / sizeof *bodies; j++) {
            const int code = form(s, types[i], bodies[j], strlen(bodies[j]));
            if (code / 100 != 4) fail_msg("%d for %s with %s", code, types[i], bodies[j]);
        }
}

static void cve_2026_29076_a_files_name_of_a_megabyte_is_refused(void **state) {
    struct buffer body = { 0 };
    assert_int_equal(
        buffer_text(&body, "--a\r\nContent-Disposition: form-data; name=\"file\"; filename=\"",
                    NULL),
        REEL_OK);
    repeat(&body, "aaaaaaaaaaaaaaaa", 65536);
    assert_int_equal(buffer_text(&body, "\"\r\n\r\nx\r\n--a--\r\n", NULL), REEL_OK);
    assert_int_equal(form(*state, "multipart/form-data; boundary=a", body.bytes, body.size) / 100,
                     4);
    buffer_release(&body);
}

/* ---- bounded memory ---- */

static long resident_kb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Streams of four answers each, of which nobody reads a byte. */
static void clients_that_do_not_read_take_bounded_memory(void **state) {
    (void)state;
    struct served s = { .options = { .sessions = 2, .context = 512 } };
    int fds[8];
    const char body[] =
        "{" MESSAGES ",\"max_tokens\":60,\"n\":4,\"ignore_eos\":true,\"stream\":true,"
        "\"logprobs\":true,\"top_logprobs\":20}";
    char text[600];
    open_server(&s);
    const long before = resident_kb();
    snprintf(
        text, sizeof text,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(body), body);
    for (int i = 0; i < 8; i++) {
        const int small = 4096;
        fds[i] = http_connect(s.port);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        assert_true(http_send(fds[i], text, strlen(text)));
    }
    works(&s); /* stands in line behind all of them */
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    served_close(&s);
    /* a sanitizer's own memory says nothing */
    if (!SANITIZED && resident_kb() - before > 120000)
        fail_msg("%ld kB more", resident_kb() - before);
}

static void many_idle_connections_do_not_stop_others(void **state) {
    const struct served *s = *state;
    enum { N = 400 };
    static int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = http_connect(s->port);
        assert_true(fds[i] >= 0);
        if (i % 2) (void)http_send(fds[i], "GET /health HTTP/1.1\r\nHo", 24);
    }
    works(s);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    works(s);
}

static int open_all(void **state) {
    static const char *const friends[] = { "https://friend.example" };
    static struct served s = { .options = { .context = 256, .origins = friends, .n_origins = 1 } };
    *state = &s;
    return served_open(&s) ? 0 : -1;
}
static int close_all(void **state) {
    served_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_but_health_and_ready_wants_a_key),
        cmocka_unit_test(other_keys_count_from_the_next_request_on),
        cmocka_unit_test(keys_are_compared_whole),
        cmocka_unit_test(an_address_that_others_reach_wants_a_key),
        cmocka_unit_test(dns_rebinding_is_refused),
        cmocka_unit_test(an_absolute_target_is_served_by_its_own_host),
        cmocka_unit_test(too_many_headers_are_refused),
        cmocka_unit_test(pages_of_others_are_refused),
        cmocka_unit_test(no_path_leads_to_a_file),
        cmocka_unit_test(ollama_names_of_models_reach_no_file),
        cmocka_unit_test(request_smuggling_shapes_are_refused),
        cmocka_unit_test(nonsense_in_chunks_ends_the_connection),
        cmocka_unit_test(nonsense_instead_of_http_is_no_harm),
        cmocka_unit_test(cve_2026_21869_negative_and_odd_numbers_are_refused_by_name),
        cmocka_unit_test(cve_2026_34756_a_million_answers_are_refused),
        cmocka_unit_test(cve_2026_43632_token_routes_wait_for_the_model),
        cmocka_unit_test(cve_2026_43632_token_routes_race_the_servers_end),
        cmocka_unit_test(cve_2024_42478_there_is_no_rpc_of_tensors),
        cmocka_unit_test(deep_and_odd_json_is_refused),
        cmocka_unit_test(lists_of_millions_are_refused_before_they_are_read),
        cmocka_unit_test(cve_2023_27371_boundaries_of_forms_are_read_with_care),
        cmocka_unit_test(cve_2026_29076_a_files_name_of_a_megabyte_is_refused),
        cmocka_unit_test(clients_that_do_not_read_take_bounded_memory),
        cmocka_unit_test(many_idle_connections_do_not_stop_others),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
