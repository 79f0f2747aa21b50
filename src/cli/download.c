/* libcurl underneath. Nothing here is ever executed or unpacked: bytes go to a file, are checked
 * against the hash the repository states, and only then get their name. */
#include "cli/download.h"

#include "base/memory.h"

#ifdef REEL_WITH_CURL

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_S 20L
#define STALL_TIMEOUT_S   30L /* below 1 byte a second for this long is a dead connection */
#define MAX_REDIRECTS     5L
#define MAX_TRIES         5 /* a cut connection is resumed this often before giving up */

struct sink {
    int fd; /* -1: into text */
    struct buffer *text;
    const char *label;
    int64_t limit; /* most bytes the body may have in all; -1: none */
    int64_t have;  /* bytes already on disk when this request started */
    int64_t received;
    struct download_client *client;
    int64_t total;
    bool cancelled;
    enum reel_status status;
    struct reel_error *err;
};

enum reel_status download_client_open(struct download_client *client, struct reel_error *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, REEL_E_NETWORK, "libcurl cannot be initialised");
    client->curl = curl_easy_init();
    if (client->curl) return REEL_OK;
    curl_global_cleanup();
    return err_memory(err, "an HTTP client", 0);
}

void download_client_close(struct download_client *client) {
    if (!client || !client->curl) return;
    curl_easy_cleanup(client->curl);
    curl_global_cleanup();
    client->curl = NULL;
}

static bool write_file(struct sink *sink, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(sink->fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            sink->status =
                err_set(sink->err, REEL_E_IO, "%s: cannot write: %s", sink->label, strerror(errno));
            return false;
        }
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    struct sink *sink = user;
    size_t n_bytes = size * n; /* curl promises at most 16 KB */
    sink->received += (int64_t)n_bytes;
    if (sink->limit >= 0 && sink->have + sink->received > sink->limit) {
        sink->status = err_set(sink->err, REEL_E_NETWORK,
                               "%s: the server sends more than the %lld bytes announced",
                               sink->label, (long long)sink->limit);
        return 0;
    }
    if (sink->fd >= 0) return write_file(sink, bytes, n_bytes) ? n_bytes : 0;
    sink->status = buffer_append(sink->text, bytes, n_bytes, sink->err);
    return sink->status == REEL_OK ? n_bytes : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now) {
    struct sink *sink = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    struct download_client *client = sink->client;
    if (!client->progress) return 0;
    uint64_t done = (uint64_t)(sink->have + sink->received);
    bool go_on = client->progress(client->progress_user, sink->label, done,
                                  sink->total > 0 ? (uint64_t)sink->total : 0);
    sink->cancelled = !go_on;
    return go_on ? 0 : 1;
}

/* Downloads never leave HTTP, and never fall from HTTPS to plain HTTP. */
static void allow_protocols(CURL *curl, bool secure) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS,
                     (long)(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void prepare(struct download_client *client, const char *url, struct sink *sink,
                    char *curl_text) {
    CURL *curl = client->curl;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    allow_protocols(curl, strncmp(url, "https:", 6) == 0);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "reel");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_text);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, sink);
    if (client->bearer) { /* libcurl keeps XOAUTH2 bearers from other hosts by itself */
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, client->bearer);
    }
    if (sink->have > 0) curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)sink->have);
}

/* Whether trying again may help: the connection broke, or the server can only send files whole; as
 * opposed to its saying no. */
enum cut { NOT_CUT, CUT, CUT_WITHOUT_RANGES };

static enum cut cut_kind(CURLcode code) {
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2_STREAM:
    case CURLE_HTTP2:
        return CUT;
    case CURLE_RANGE_ERROR:
        return CUT_WITHOUT_RANGES;
    default:
        return NOT_CUT;
    }
}

static enum reel_status request(struct download_client *client, const char *url, struct sink *sink,
                                enum cut *cut, struct reel_error *err) {
    char curl_text[CURL_ERROR_SIZE] = "";
    sink->client = client;
    sink->err = err;
    prepare(client, url, sink, curl_text);
    CURLcode code = curl_easy_perform(client->curl);
    *cut = cut_kind(code);
    if (code == CURLE_OK) return REEL_OK;
    if (sink->cancelled)
        return err_set(err, REEL_E_CANCELLED, "%s: cancelled after %lld bytes", sink->label,
                       (long long)(sink->have + sink->received));
    if (sink->status != REEL_OK) return sink->status;
    if (code == CURLE_HTTP_RETURNED_ERROR) {
        long http = 0;
        curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &http);
        const char *hint = http == 401 || http == 403 ? " (it may need an access token)" : "";
        return err_set(err, http == 404 ? REEL_E_NOT_FOUND : REEL_E_NETWORK,
                       "%s: the server answered %ld%s", url, http, hint);
    }
    return err_set(err, REEL_E_NETWORK, "%s: %s", url,
                   curl_text[0] ? curl_text : curl_easy_strerror(code));
}

enum reel_status download_text(struct download_client *client, const char *url, size_t limit,
                               struct buffer *out, struct reel_error *err) {
    out->limit = limit;
    enum cut cut = NOT_CUT;
    struct sink sink = { .fd = -1, .text = out, .label = url, .limit = (int64_t)limit };
    return request(client, url, &sink, &cut, err);
}

static void hex(const uint8_t *digest, size_t n, char *out) {
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* Hashes the file both ways while reading it once. */
static enum reel_status hash_file(int fd, const char *path, int64_t size, char sha256[65],
                                  char git_id[41], struct reel_error *err) {
    struct sha256_ctx s256;
    struct sha1_ctx s1;
    uint8_t digest[SHA256_DIGEST_SIZE];
    static const size_t chunk = 1 << 20;
    unsigned char *bytes = mem_alloc(chunk);
    if (!bytes) return err_memory(err, "hashing", chunk);
    char head[32];
    int n_head = snprintf(head, sizeof head, "blob %lld", (long long)size);
    sha256_init(&s256);
    sha1_init(&s1);
    sha1_update(&s1, (size_t)n_head + 1, (const uint8_t *)head); /* git hashes the terminator too */
    enum reel_status status = REEL_OK;
    for (;;) {
        ssize_t n = read(fd, bytes, chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = err_set(err, REEL_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n <= 0) break;
        sha256_update(&s256, (size_t)n, bytes);
        sha1_update(&s1, (size_t)n, bytes);
    }
    mem_free(bytes);
    sha256_digest(&s256, SHA256_DIGEST_SIZE, digest);
    hex(digest, SHA256_DIGEST_SIZE, sha256);
    sha1_digest(&s1, SHA1_DIGEST_SIZE, digest);
    hex(digest, SHA1_DIGEST_SIZE, git_id);
    return status;
}

enum reel_status download_verify(const struct download_file *file, const char *path,
                                 struct reel_error *err) {
    char sha256[65], git_id[41];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == ENOENT)
        return err_set(err, REEL_E_NOT_FOUND, "%s: does not exist", path);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int reason = errno;
        if (fd >= 0) close(fd);
        return err_set(err, REEL_E_IO, "%s: cannot open: %s", path, strerror(reason));
    }
    enum reel_status status = REEL_OK;
    if (file->n_bytes >= 0 && st.st_size != file->n_bytes)
        status = err_set(err, REEL_E_MISMATCH, "%s: has %lld bytes, the repository states %lld",
                         path, (long long)st.st_size, (long long)file->n_bytes);
    if (status == REEL_OK && (file->sha256 || file->git_id)) {
        status = hash_file(fd, path, st.st_size, sha256, git_id, err);
        if (status == REEL_OK && file->sha256 && strcmp(sha256, file->sha256) != 0)
            status = err_set(err, REEL_E_MISMATCH, "%s: SHA-256 is %s, the repository states %s",
                             path, sha256, file->sha256);
        else if (status == REEL_OK && !file->sha256 && strcmp(git_id, file->git_id) != 0)
            status = err_set(err, REEL_E_MISMATCH, "%s: git id is %s, the repository states %s",
                             path, git_id, file->git_id);
    }
    close(fd);
    return status;
}

/* Appends to the .part file until it is whole or the server says no. */
static enum reel_status fill_part(struct download_client *client, const struct download_file *file,
                                  int fd, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int attempt = 0; attempt < MAX_TRIES; attempt++) {
        off_t have = lseek(fd, 0, SEEK_END);
        if (have < 0)
            return err_set(err, REEL_E_IO, "%s: cannot seek: %s", file->path, strerror(errno));
        if (file->n_bytes >= 0 && have == file->n_bytes) return REEL_OK;
        if (file->n_bytes >= 0 && have > file->n_bytes && ftruncate(fd, 0) == 0) have = 0;
        enum cut cut = NOT_CUT;
        struct sink sink = { .fd = fd,
                             .label = file->label,
                             .limit = file->n_bytes,
                             .have = have,
                             .total = file->n_bytes };
        status = request(client, file->url, &sink, &cut, err);
        if (status == REEL_OK || cut == NOT_CUT) return status;
        if (cut == CUT_WITHOUT_RANGES && ftruncate(fd, 0) != 0)
            return err_set(err, REEL_E_IO, "%s: cannot rewind: %s", file->path, strerror(errno));
        if (sink.received > 0) attempt = 0; /* it is moving: go on as long as it does */
    }
    return status;
}

enum reel_status download_fetch(struct download_client *client, const struct download_file *file,
                                struct reel_error *err) {
    enum reel_status status = download_verify(file, file->path, NULL);
    if (status == REEL_OK) return REEL_OK;
    struct buffer part = { 0 };
    status = buffer_printf(&part, err, "%s.part", file->path);
    if (status != REEL_OK) return status;
    int fd = open(part.bytes, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        status = err_set(err, REEL_E_IO, "%s: cannot create: %s", part.bytes, strerror(errno));
        buffer_release(&part);
        return status;
    }
    status = fill_part(client, file, fd, err);
    if (status == REEL_OK && fsync(fd) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot sync: %s", part.bytes, strerror(errno));
    close(fd);
    if (status == REEL_OK) {
        status = download_verify(file, part.bytes, err);
        if (status == REEL_E_MISMATCH) unlink(part.bytes);
    }
    if (status == REEL_OK && rename(part.bytes, file->path) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", file->path, strerror(errno));
    buffer_release(&part);
    return status;
}

#else

static enum reel_status left_out(struct reel_error *err) {
    return err_set(err, REEL_E_UNSUPPORTED, "this reel was built without libcurl (MINIMAL=1)");
}

enum reel_status download_client_open(struct download_client *client, struct reel_error *err) {
    (void)client;
    return left_out(err);
}
void download_client_close(struct download_client *client) { (void)client; }
enum reel_status download_text(struct download_client *client, const char *url, size_t limit,
                               struct buffer *out, struct reel_error *err) {
    (void)client, (void)url, (void)limit, (void)out;
    return left_out(err);
}
enum reel_status download_fetch(struct download_client *client, const struct download_file *file,
                                struct reel_error *err) {
    (void)client, (void)file;
    return left_out(err);
}
enum reel_status download_verify(const struct download_file *file, const char *path,
                                 struct reel_error *err) {
    (void)file, (void)path;
    return left_out(err);
}

#endif
