#include "server/routes.h"

#include "server/handlers.h"

#include <stdio.h>
#include <string.h>

static const struct route routes[] = {
    { "GET", "/", handle_page, ROUTE_PAGE | ROUTE_DRAINING },
    { "GET", "/page/*", handle_page, ROUTE_PAGE | ROUTE_DRAINING },
    { "GET", "/health", handle_health, ROUTE_OPEN | ROUTE_DRAINING },
    { "GET", "/ready", handle_ready, ROUTE_OPEN | ROUTE_DRAINING },
    { "GET", "/metrics", handle_metrics, ROUTE_DRAINING },
    { "GET", "/v1/models", handle_models, 0 },
    { "GET", "/v1/models/*", handle_model, 0 },
    { "POST", "/v1/chat/completions", handle_chat, 0 },
    { "POST", "/v1/completions", handle_completions, 0 },
    { "POST", "/v1/tokenize", handle_tokenize, 0 },
    { "POST", "/v1/detokenize", handle_detokenize, 0 },
    { "GET", "/v1/tokenizer_info", handle_tokenizer_info, 0 },
    { "POST", "/v1/apply-template", handle_apply_template, 0 },
    { "POST", "/v1/embeddings", handle_embeddings, 0 },
    { "POST", "/v1/responses", handle_responses, 0 },
    { "POST", "/v1/messages", handle_messages, 0 },
    { "POST", "/v1/messages/count_tokens", handle_count_tokens, 0 },
    { "POST", "/v1/rerank", handle_rerank, 0 },
    { "POST", "/v1/audio/transcriptions", handle_transcriptions, 0 },
    { "GET", "/v1/realtime", handle_realtime, 0 },
    { NULL, NULL, NULL, 0 },
};

const struct route *route_at(int index) { return routes[index].path ? &routes[index] : NULL; }

static bool fits(const char *pattern, const char *path) {
    size_t n = strlen(pattern);
    if (n > 1 && pattern[n - 1] == '*') return strncmp(pattern, path, n - 1) == 0 && path[n - 1];
    return strcmp(pattern, path) == 0;
}

static bool route_fits(const struct route *r, const char *path) {
    if (fits(r->path, path)) return true;
    return strncmp(r->path, "/v1/", 4) == 0 && fits(r->path + 3, path);
}

static void add_method(char allowed[32], const char *method) {
    size_t n = strlen(allowed);
    snprintf(allowed + n, 32 - n, "%s%s", n ? ", " : "", method);
}

const struct route *route_find(const char *method, const char *path, char allowed[32]) {
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allowed[0] = '\0';
    for (const struct route *r = routes; r->path; r++) {
        if (!route_fits(r, path)) continue;
        if (strcmp(r->method, as) == 0) return r;
        add_method(allowed, r->method);
    }
    return NULL;
}
