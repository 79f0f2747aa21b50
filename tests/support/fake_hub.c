#include "support/fake_hub.h"

#include "cli/file_hash.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 400, MAX_REQUESTS = 4000, MAX_TROUBLES = 20, MAX_TEXTS = 400 };

struct fake_file {
    char repo[100], path[200];
    unsigned char *bytes;
    size_t n;
    char hash[FILE_HASH_TEXT];
    bool large; /* kept as the hub keeps large files: named by SHA-256 */
};

struct fake_hub {
    struct http_stub *stub;
    char url[64];
    pthread_mutex_t lock;
    struct fake_file files[MAX_FILES];
    int n_files, n_changes;
    struct {
        char repo[100], token[100];
    } gates[10];
    int n_gates;
    struct {
        char part[200];
        int times;
        struct http_reply reply;
    } troubles[MAX_TROUBLES];
    int n_troubles;
    char *requests[MAX_REQUESTS];
    char tokens[MAX_REQUESTS][40];
    int n_requests;
    char *texts[MAX_TEXTS]; /* answers made up, until the end */
    int n_texts;
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void hash_bytes(struct fake_file *f) {
    struct file_hash *hash = NULL;
    if (file_hash_open(&hash, !f->large, (int64_t)f->n, NULL) != REEL_OK) abort();
    file_hash_add(hash, f->bytes, f->n);
    file_hash_text(hash, f->hash);
    file_hash_close(hash);
}

void fake_hub_add(struct fake_hub *hub, const char *repo, const char *path, const void *bytes,
                  size_t n_bytes) {
    int i = 0;
    while (i < hub->n_files &&
           (strcmp(hub->files[i].repo, repo) != 0 || strcmp(hub->files[i].path, path) != 0))
        i++;
    if (i == MAX_FILES) abort();
    struct fake_file *f = &hub->files[i];
    if (i == hub->n_files) hub->n_files++;
    free(f->bytes);
    snprintf(f->repo, sizeof f->repo, "%s", repo);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->bytes = malloc(n_bytes + 1);
    if (!f->bytes) abort();
    if (n_bytes) memcpy(f->bytes, bytes, n_bytes);
    f->n = n_bytes;
    f->large = ends_with(path, ".safetensors") || ends_with(path, ".gguf") ||
               ends_with(path, "tokenizer.json");
    hash_bytes(f);
    hub->n_changes++;
}

void fake_hub_add_text(struct fake_hub *hub, const char *repo, const char *path, const char *text) {
    fake_hub_add(hub, repo, path, text, strlen(text));
}

void fake_hub_add_folder(struct fake_hub *hub, const char *repo, const char *folder,
                         const char *const *names) {
    for (; *names; names++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, *names);
        FILE *f = fopen(path, "rb");
        if (!f) {
            fprintf(stderr, "%s is not there\n", path);
            abort();
        }
        size_t n = 0, cap = (size_t)32 << 20;
        char *bytes = malloc(cap);
        if (!bytes) abort();
        n = fread(bytes, 1, cap, f);
        fclose(f);
        fake_hub_add(hub, repo, *names, bytes, n);
        free(bytes);
    }
}

void fake_hub_gate(struct fake_hub *hub, const char *repo, const char *token) {
    if (hub->n_gates == 10) abort();
    snprintf(hub->gates[hub->n_gates].repo, sizeof hub->gates[0].repo, "%s", repo);
    snprintf(hub->gates[hub->n_gates++].token, sizeof hub->gates[0].token, "Bearer %s", token);
}

void fake_hub_trouble(struct fake_hub *hub, const char *part, int times, struct http_reply reply) {
    pthread_mutex_lock(&hub->lock);
    if (hub->n_troubles == MAX_TROUBLES) abort();
    snprintf(hub->troubles[hub->n_troubles].part, sizeof hub->troubles[0].part, "%s", part);
    hub->troubles[hub->n_troubles].times = times;
    hub->troubles[hub->n_troubles++].reply = reply;
    pthread_mutex_unlock(&hub->lock);
}

void fake_hub_trouble_ends(struct fake_hub *hub) {
    pthread_mutex_lock(&hub->lock);
    hub->n_troubles = 0;
    pthread_mutex_unlock(&hub->lock);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *gate_of(const struct fake_hub *hub, const char *repo) {
    for (int i = 0; i < hub->n_gates; i++)
        if (strcmp(hub->gates[i].repo, repo) == 0) return hub->gates[i].token;
    return NULL;
}

/* One commit for the whole hub, another one after each change. */
static void commit_of(const struct fake_hub *hub, char text[41]) {
    snprintf(text, 41, "%040x", (unsigned)hub->n_changes);
}

static struct http_reply listing(struct fake_hub *hub, const char *repo) {
    size_t cap = 4096 + 600 * (size_t)hub->n_files, n;
    char *text = malloc(cap), commit[41];
    bool first = true;
    if (!text || hub->n_texts == MAX_TEXTS) abort();
    hub->texts[hub->n_texts++] = text;
    commit_of(hub, commit);
    n = (size_t)snprintf(text, cap,
                         "{\"id\": \"%s\", \"sha\": \"%s\", \"gated\": %s, "
                         "\"siblings\": [",
                         repo, commit, gate_of(hub, repo) ? "\"manual\"" : "false");
    for (int i = 0; i < hub->n_files; i++) {
        const struct fake_file *f = &hub->files[i];
        if (strcmp(f->repo, repo) != 0) continue;
        n += (size_t)snprintf(text + n, cap - n,
                              "%s{\"rfilename\": \"%s\", \"size\": %zu, \"blobId\": "
                              "\"%s\"",
                              first ? "" : ",", f->path, f->n,
                              f->large ? "0123456789012345678901234567890123456789" : f->hash);
        if (f->large)
            n += (size_t)snprintf(text + n, cap - n, ", \"lfs\": {\"sha256\": \"%s\"}", f->hash);
        n += (size_t)snprintf(text + n, cap - n, "}");
        first = false;
    }
    n += (size_t)snprintf(text + n, cap - n, "]}");
    if (first) /* what the hub says of a repository that does not exist, and of a private one */
        return (struct http_reply){ .code = 401,
                                    .body = "",
                                    .headers = "X-Error-Code: RepoNotFound\r\n" };
    return (struct http_reply){ .body = text, .n_body = n };
}

const char *fake_hub_listing(struct fake_hub *hub, const char *repo) {
    pthread_mutex_lock(&hub->lock);
    const char *text = listing(hub, repo).body;
    pthread_mutex_unlock(&hub->lock);
    return text;
}

static void decode(char *path) {
    char *out = path;
    for (; *path; path++) {
        unsigned code = 0;
        if (*path == '%' && sscanf(path + 1, "%2x", &code) == 1) {
            *out++ = (char)code;
            path += 2;
        } else {
            *out++ = *path;
        }
    }
    *out = '\0';
}

static struct http_reply file_reply(struct fake_hub *hub, char *path, const char *authorization) {
    char commit[41];
    char *resolve = strstr(path, "/resolve/");
    commit_of(hub, commit);
    if (!resolve || strncmp(resolve + 9, commit, 40) != 0)
        return (struct http_reply){ .code = 404, .body = "" };
    *resolve = '\0';
    const char *repo = path + 1, *name = resolve + 50, *gate = gate_of(hub, repo);
    if (gate && (!authorization || strcmp(authorization, gate) != 0))
        return (struct http_reply){ .code = authorization ? 403 : 401,
                                    .body = "",
                                    .headers = "X-Error-Code: GatedRepo\r\n" };
    for (int i = 0; i < hub->n_files; i++) {
        const struct fake_file *f = &hub->files[i];
        if (strcmp(f->repo, repo) == 0 && strcmp(f->path, name) == 0)
            return (struct http_reply){ .body = (const char *)f->bytes, .n_body = f->n };
    }
    return (struct http_reply){ .code = 404, .body = "" };
}

static struct http_reply answer(void *user, const char *address, const char *authorization,
                                size_t range_from) {
    struct fake_hub *hub = user;
    char path[1024];
    (void)range_from;
    snprintf(path, sizeof path, "%s", address);
    decode(path);
    pthread_mutex_lock(&hub->lock);
    struct http_reply reply = { .code = 0 };
    bool found = false;
    if (hub->n_requests < MAX_REQUESTS) {
        snprintf(hub->tokens[hub->n_requests], sizeof hub->tokens[0], "%s",
                 authorization ? authorization : "");
        hub->requests[hub->n_requests] = malloc(strlen(path) + 1);
        if (!hub->requests[hub->n_requests]) abort();
        strcpy(hub->requests[hub->n_requests++], path);
    }
    for (int i = 0; i < hub->n_troubles && !found; i++)
        if (hub->troubles[i].times > 0 && strstr(path, hub->troubles[i].part)) {
            hub->troubles[i].times--;
            reply = hub->troubles[i].reply;
            found = true;
        }
    bool own_body = found && !reply.body && (reply.code == 0 || reply.code == 200);
    if (!found || own_body) {
        static const char api[] = "/api/models/";
        struct http_reply honest;
        if (strncmp(path, api, sizeof api - 1) == 0) {
            char *end = strstr(path, "/revision/");
            if (end) *end = '\0';
            honest = listing(hub, path + sizeof api - 1);
        } else {
            honest = file_reply(hub, path, authorization);
        }
        if (own_body) { /* the file itself, with the trouble's manners */
            reply.body = honest.body;
            reply.n_body = honest.n_body;
        } else {
            reply = honest;
        }
    }
    if (!reply.body) reply.body = "";
    pthread_mutex_unlock(&hub->lock);
    return reply;
}

/* ---- opening and looking --------------------------------------------------------------------- */

struct fake_hub *fake_hub_open(void) {
    struct fake_hub *hub = calloc(1, sizeof *hub);
    if (!hub) abort();
    pthread_mutex_init(&hub->lock, NULL);
    hub->stub = http_stub_open_many(answer, hub);
    if (!hub->stub) abort();
    snprintf(hub->url, sizeof hub->url, "http://127.0.0.1:%d", http_stub_port(hub->stub));
    return hub;
}

void fake_hub_close(struct fake_hub *hub) {
    if (!hub) return;
    http_stub_close(hub->stub);
    for (int i = 0; i < hub->n_files; i++)
        free(hub->files[i].bytes);
    for (int i = 0; i < hub->n_requests; i++)
        free(hub->requests[i]);
    for (int i = 0; i < hub->n_texts; i++)
        free(hub->texts[i]);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

const char *fake_hub_url(const struct fake_hub *hub) { return hub->url; }
size_t fake_hub_sent(const struct fake_hub *hub) { return http_stub_sent(hub->stub); }
int fake_hub_most_at_once(const struct fake_hub *hub) { return http_stub_most_at_once(hub->stub); }

int fake_hub_asked(struct fake_hub *hub, const char *part) {
    int n = 0;
    pthread_mutex_lock(&hub->lock);
    for (int i = 0; i < hub->n_requests; i++)
        n += strstr(hub->requests[i], part) != NULL;
    pthread_mutex_unlock(&hub->lock);
    return n;
}

bool fake_hub_saw_token(struct fake_hub *hub, const char *token) {
    bool saw = false;
    pthread_mutex_lock(&hub->lock);
    for (int i = 0; i < hub->n_requests; i++)
        saw = saw || strstr(hub->tokens[i], token);
    pthread_mutex_unlock(&hub->lock);
    return saw;
}
