/* libcurl underneath, several transfers in one thread. Nothing here is ever executed or unpacked:
 * bytes go to a file, are checked against the hash the repository states, and only then get their
 * name. */
#include "cli/download.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/file_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static enum reel_status compare_hash(const struct download_file *file, struct file_hash *hash,
                                     const char *path, struct reel_error *err) {
    char text[FILE_HASH_TEXT];
    const char *stated = file->sha256 ? file->sha256 : file->git_id;
    file_hash_text(hash, text);
    if (strcmp(text, stated) == 0) return REEL_OK;
    return err_set(err, REEL_E_MISMATCH, "%s: %s is %s, the repository states %s", path,
                   file->sha256 ? "SHA-256" : "git id", text, stated);
}

enum reel_status download_verify(const struct download_file *file, const char *path,
                                 struct reel_error *err) {
    struct file_hash *hash = NULL;
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
    if (st.st_size != file->n_bytes)
        status = err_set(err, REEL_E_MISMATCH, "%s: has %lld bytes, the repository states %lld",
                         path, (long long)st.st_size, (long long)file->n_bytes);
    if (status == REEL_OK && (file->sha256 || file->git_id)) {
        status = file_hash_open(&hash, !file->sha256, st.st_size, err);
        if (status == REEL_OK) status = file_hash_add_file(hash, fd, path, err);
        if (status == REEL_OK) status = compare_hash(file, hash, path, err);
        file_hash_close(hash);
    }
    close(fd);
    return status;
}

#ifdef REEL_WITH_CURL

#include <curl/curl.h>

#define CONNECT_TIMEOUT_S 20L
#define STALL_TIMEOUT_S   30L /* below 1 byte a second for this long is a dead connection */
#define MAX_REDIRECTS     5L
#define MAX_TRIES         6 /* in a row without a byte */
#define AT_ONCE           4
#define RETRY_MS          500
#define MOST_RETRY_MS     30000.0
#define MOST_ASKED_S      300 /* a server that asks for a longer pause is reported instead */

enum state { WAITING, RUNNING, DONE };

/* One file or text on its way. */
struct transfer {
    const struct download_file *file; /* NULL: into text */
    const char *url, *label;
    char *part;
    int fd; /* -1: not open */
    struct buffer *text;
    int64_t limit;          /* bytes that the body may have in all */
    int64_t stop;           /* bytes that are enough; INT64_MAX: all */
    int64_t have;           /* bytes on disk */
    struct file_hash *hash; /* of what is on disk; NULL: not wanted */
    enum state state;
    double start_ms; /* of the next try, by clock_ms */
    int tries;       /* in a row that brought nothing */
    bool began;      /* of this try: the first bytes came */
    bool enough;     /* ended by us, for the bytes that were wanted are there */
    bool moved;      /* this try brought bytes */
    char code[40];   /* X-Error-Code */
    CURL *easy;
    char curl_text[CURL_ERROR_SIZE];
    enum reel_status status;
    struct reel_error why;
    struct download_client *client;
};

enum reel_status download_client_open(struct download_client *client, struct reel_error *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, REEL_E_NETWORK, "libcurl cannot be initialised");
    client->multi = curl_multi_init();
    if (client->multi) return REEL_OK;
    curl_global_cleanup();
    return err_memory(err, "an HTTP client", 0);
}

void download_client_close(struct download_client *client) {
    if (!client || !client->multi) return;
    curl_multi_cleanup(client->multi);
    curl_global_cleanup();
    client->multi = NULL;
}

/* ---- what arrives ---------------------------------------------------------------------------- */

static bool write_file(struct transfer *t, const char *bytes, size_t n) {
    if (t->hash) file_hash_add(t->hash, bytes, n);
    while (n > 0) {
        ssize_t done = write(t->fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            t->status =
                err_set(&t->why, REEL_E_IO, "%s: cannot write: %s", t->label, strerror(errno));
            return false;
        }
        bytes += done;
        n -= (size_t)done;
        t->have += done;
    }
    return true;
}

/* The hash of nothing, or of what the .part file holds already. */
static enum reel_status start_hash(struct transfer *t, struct reel_error *err) {
    const struct download_file *file = t->file;
    file_hash_close(t->hash);
    t->hash = NULL;
    if (t->stop != INT64_MAX || (!file->sha256 && !file->git_id)) return REEL_OK;
    enum reel_status status = file_hash_open(&t->hash, !file->sha256, file->n_bytes, err);
    return status == REEL_OK && t->have > 0 ? file_hash_add_file(t->hash, t->fd, t->label, err)
                                            : status;
}

static bool start_over(struct transfer *t) {
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0) {
        t->status = err_set(&t->why, REEL_E_IO, "%s: cannot rewind: %s", t->label, strerror(errno));
        return false;
    }
    t->have = 0;
    t->status = start_hash(t, &t->why);
    return t->status == REEL_OK;
}

/* Some servers send all where a part was asked for. */
static bool begin_body(struct transfer *t) {
    long http = 0;
    t->began = true;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &http);
    return t->fd < 0 || t->have == 0 || http == 206 || start_over(t);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    struct transfer *t = user;
    size_t n_bytes = size * n; /* curl promises at most 16 KB */
    if (!t->began && !begin_body(t)) return 0;
    t->moved = true;
    if (t->fd < 0) {
        t->status = buffer_append(t->text, bytes, n_bytes, &t->why);
        return t->status == REEL_OK ? n_bytes : 0;
    }
    if (t->have >= t->stop) t->enough = true;
    if (t->enough) return 0;
    if ((int64_t)n_bytes > t->limit - t->have) {
        t->status = err_set(&t->why, REEL_E_NETWORK,
                            "%s: the server sends more than the %lld bytes announced", t->label,
                            (long long)t->limit);
        return 0;
    }
    return write_file(t, bytes, n_bytes) ? n_bytes : 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    static const char name[] = "x-error-code:";
    struct transfer *t = user;
    size_t length = size * n, at = sizeof name - 1, used = 0;
    if (length < at || strncasecmp(line, name, at) != 0) return length;
    for (; at < length && used < sizeof t->code - 1; at++)
        if (line[at] > ' ' && line[at] <= '~') t->code[used++] = line[at];
    t->code[used] = '\0';
    return length;
}

/* ---- one try --------------------------------------------------------------------------------- */

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

/* The file of certificates that servers are judged by: what the user says, as curl's own program
 * takes it; NULL: where libcurl was built to look. One that is linked to a program for several
 * systems (python/build_wheel.sh) cannot know, and looks where they keep theirs. */
static const char *certificates(void) {
    static const char *const variables[] = { "CURL_CA_BUNDLE", "SSL_CERT_FILE" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *path = getenv(variables[i]);
        if (path && path[0]) return path;
    }
#ifdef REEL_FIND_CERTIFICATES
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",     /* Debian, Ubuntu, Arch, Alpine */
        "/etc/pki/tls/certs/ca-bundle.crt",       /* Fedora, Red Hat, Amazon */
        "/var/lib/ca-certificates/ca-bundle.pem", /* SUSE */
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
#endif
    return NULL;
}

static void prepare(struct transfer *t) {
    CURL *curl = t->easy;
    const struct download_client *client = t->client;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, t->url);
    allow_protocols(curl, strncmp(t->url, "https:", 6) == 0);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                     client->stall_s ? (long)client->stall_s : STALL_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "reel");
    const char *trusted = certificates();
    if (trusted) curl_easy_setopt(curl, CURLOPT_CAINFO, trusted);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, t->curl_text);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, t);
    if (client->bearer) { /* libcurl keeps XOAUTH2 bearers from other hosts by itself */
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, client->bearer);
    }
    char range[64];
    if (t->stop != INT64_MAX)
        snprintf(range, sizeof range, "%lld-%lld", (long long)t->have, (long long)t->stop - 1);
    else
        snprintf(range, sizeof range, "%lld-", (long long)t->have);
    if (t->have > 0 || t->stop != INT64_MAX) curl_easy_setopt(curl, CURLOPT_RANGE, range);
    t->curl_text[0] = t->code[0] = '\0';
    t->began = t->enough = t->moved = false;
    t->status = REEL_OK;
}

static enum reel_status start(struct transfer *t, struct reel_error *err) {
    if (t->fd < 0) buffer_release(t->text); /* of a try that broke off */
    if (!t->easy) t->easy = curl_easy_init();
    if (!t->easy) return err_memory(err, "an HTTP request", 0);
    if (t->fd < 0) t->text->limit = (size_t)t->limit;
    prepare(t);
    if (curl_multi_add_handle(t->client->multi, t->easy) != CURLM_OK)
        return err_memory(err, "an HTTP request", 0);
    t->state = RUNNING;
    return REEL_OK;
}

/* Whether the connection broke, so that going on may help; as opposed to the server's saying no. */
static bool is_cut(CURLcode code) {
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2_STREAM:
    case CURLE_HTTP2:
        return true;
    default:
        return false;
    }
}

static bool is_passing(long http) {
    return http == 408 || http == 429 || http == 500 || http == 502 || http == 503 || http == 504;
}

/* Twice as long each time, and never the same for two programs that a server sent away at once. */
static double pause_ms(const struct transfer *t) {
    double ms = t->client->retry_ms ? t->client->retry_ms : RETRY_MS;
    for (int i = 1; i < t->tries && ms < MOST_RETRY_MS; i++)
        ms *= 2;
    if (ms > MOST_RETRY_MS) ms = MOST_RETRY_MS;
    uint64_t mixed = (uint64_t)(clock_ms() * 1000) * 2654435761u ^ (uint64_t)getpid() * 40503u;
    return ms * (0.5 + 0.5 * (double)(mixed >> 16 & 0xffff) / 65536.0);
}

static enum reel_status refused(struct transfer *t, long http, struct reel_error *err) {
    t->client->http = (int)http;
    snprintf(t->client->code, sizeof t->client->code, "%s", t->code);
    char tried[32] = "";
    if (t->tries > 1) snprintf(tried, sizeof tried, ", asked %d times", t->tries);
    return err_set(err, http == 404 ? REEL_E_NOT_FOUND : REEL_E_NETWORK,
                   "%s: the server answered %ld%s", t->url, http, tried);
}

/* After a try that brought no end: *again when another one is due at t->start_ms, else why not. */
static enum reel_status judge(struct transfer *t, CURLcode code, bool *again,
                              struct reel_error *err) {
    long http = 0;
    curl_off_t asked_s = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &http);
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &asked_s);
    bool said_no = code == CURLE_HTTP_RETURNED_ERROR;
    t->tries = t->moved && !said_no ? 1 : t->tries + 1; /* it is moving: as long as it does */
    *again = false;
    if (said_no && http == 416 && t->fd >= 0 && t->have > 0) { /* .part is longer than the file */
        if (!start_over(t)) return err_set(err, t->status, "%s", t->why.text);
        *again = t->tries < MAX_TRIES;
    } else if (said_no ? is_passing(http) && asked_s <= MOST_ASKED_S : is_cut(code)) {
        *again = t->tries < MAX_TRIES;
    }
    if (*again) {
        double wait = t->moved && !said_no ? 0.2 * pause_ms(t) : pause_ms(t);
        if (said_no && (double)asked_s * 1e3 > wait) wait = (double)asked_s * 1e3;
        t->start_ms = clock_ms() + wait;
        return REEL_OK;
    }
    if (said_no && asked_s > MOST_ASKED_S)
        return err_set(err, REEL_E_NETWORK,
                       "%s: the server answered %ld and asks to come back in %lld s", t->url, http,
                       (long long)asked_s);
    if (said_no) return refused(t, http, err);
    return err_set(err, REEL_E_NETWORK, "%s: %s", t->url,
                   t->curl_text[0] ? t->curl_text : curl_easy_strerror(code));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void close_part(struct transfer *t) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    file_hash_close(t->hash);
    t->hash = NULL;
    mem_free(t->part);
    t->part = NULL;
}

/* Opens the .part file and looks what is in it. */
static enum reel_status open_part(struct transfer *t, struct reel_error *err) {
    struct buffer part = { 0 };
    enum reel_status status = buffer_printf(&part, err, "%s.part", t->file->path);
    if (status != REEL_OK) return status;
    t->part = buffer_detach(&part, NULL);
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (t->fd < 0)
        return err_set(err, REEL_E_IO, "%s: cannot create: %s", t->label, strerror(errno));
    off_t have = lseek(t->fd, 0, SEEK_END);
    if (have > t->limit && ftruncate(t->fd, 0) == 0) have = lseek(t->fd, 0, SEEK_SET);
    if (have < 0) return err_set(err, REEL_E_IO, "%s: cannot seek: %s", t->label, strerror(errno));
    t->have = have;
    return start_hash(t, err);
}

static enum reel_status finish_file(struct transfer *t, struct reel_error *err) {
    const struct download_file *file = t->file;
    enum reel_status status = REEL_OK;
    if (fsync(t->fd) != 0)
        return err_set(err, REEL_E_IO, "%s: cannot sync: %s", t->label, strerror(errno));
    if (t->have != file->n_bytes)
        status = err_set(err, REEL_E_MISMATCH, "%s: has %lld bytes, the repository states %lld",
                         t->label, (long long)t->have, (long long)file->n_bytes);
    else if (t->hash)
        status = compare_hash(file, t->hash, t->label, err);
    if (status == REEL_E_MISMATCH) unlink(t->part);
    if (status == REEL_OK && rename(t->part, file->path) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", t->label, strerror(errno));
    return status;
}

/* Whether nothing more needs to come. */
static bool is_whole(const struct transfer *t) {
    return t->file && t->have >= (t->stop < t->limit ? t->stop : t->limit);
}

static enum reel_status finish(struct transfer *t, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (t->file && t->stop == INT64_MAX) status = finish_file(t, err);
    if (t->file) close_part(t);
    t->state = DONE;
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct batch {
    struct download_client *client;
    struct transfer *list;
    int n;
    const char *stage;
    uint64_t total;
};

static enum reel_status report(const struct batch *b, struct reel_error *err) {
    const struct download_client *client = b->client;
    uint64_t done = 0;
    bool waits = false, moves = false;
    double now = clock_ms();
    for (int i = 0; i < b->n; i++) {
        const struct transfer *t = &b->list[i];
        done += t->state == DONE && t->file ? (uint64_t)t->file->n_bytes : (uint64_t)t->have;
        if (t->state == WAITING && t->start_ms > now)
            waits = true;
        else if (t->state != DONE)
            moves = true;
    }
    if (!client->progress ||
        client->progress(client->progress_user,
                         waits && !moves ? "the server is busy, trying again soon" : b->stage, done,
                         b->total))
        return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled after %llu of %llu bytes",
                   (unsigned long long)done, (unsigned long long)b->total);
}

/* Starts what is due, as long as there is room. */
static enum reel_status start_due(struct batch *b, struct reel_error *err) {
    int running = 0, most = b->client->at_once ? b->client->at_once : AT_ONCE;
    enum reel_status status = REEL_OK;
    for (int i = 0; i < b->n; i++)
        running += b->list[i].state == RUNNING;
    for (int i = 0; i < b->n && running < most && status == REEL_OK; i++) {
        struct transfer *t = &b->list[i];
        if (t->state != WAITING || t->start_ms > clock_ms()) continue;
        if (t->file && t->fd < 0) status = open_part(t, err);
        if (status != REEL_OK) break;
        if (is_whole(t)) {
            status = finish(t, err);
        } else {
            status = start(t, err);
            running++;
        }
    }
    return status;
}

static enum reel_status end_try(struct transfer *t, CURLcode code, struct reel_error *err) {
    bool again = false;
    t->state = WAITING;
    if (t->status != REEL_OK) return err_set(err, t->status, "%s", t->why.text);
    if (code == CURLE_OK || t->enough || is_whole(t)) return finish(t, err);
    return judge(t, code, &again, err);
}

static enum reel_status collect(struct batch *b, struct reel_error *err) {
    int left = 0;
    enum reel_status status = REEL_OK;
    for (CURLMsg *m; status == REEL_OK && (m = curl_multi_info_read(b->client->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode code = m->data.result; /* m is gone once the handle is removed */
        struct transfer *t = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        curl_multi_remove_handle(b->client->multi, t->easy);
        status = end_try(t, code, err);
    }
    return status;
}

static enum reel_status run_batch(struct batch *b, struct reel_error *err) {
    for (;;) {
        int still = 0, waiting = 0;
        enum reel_status status = start_due(b, err);
        if (status == REEL_OK && curl_multi_perform(b->client->multi, &still) != CURLM_OK)
            status = err_set(err, REEL_E_NETWORK, "libcurl failed");
        if (status == REEL_OK) status = collect(b, err);
        if (status == REEL_OK) status = report(b, err);
        if (status != REEL_OK) return status;
        for (int i = 0; i < b->n; i++)
            waiting += b->list[i].state != DONE;
        if (waiting == 0) return REEL_OK;
        curl_multi_poll(b->client->multi, NULL, 0, still ? 100 : 20, NULL);
    }
}

static void release(struct batch *b) {
    for (int i = 0; i < b->n; i++) {
        struct transfer *t = &b->list[i];
        if (t->easy) curl_multi_remove_handle(b->client->multi, t->easy);
        curl_easy_cleanup(t->easy);
        if (t->file) close_part(t);
    }
}

enum reel_status download_text(struct download_client *client, const char *url, size_t limit,
                               struct buffer *out, struct reel_error *err) {
    struct transfer one = { .fd = -1,
                            .url = url,
                            .label = url,
                            .text = out,
                            .limit = (int64_t)limit,
                            .stop = INT64_MAX,
                            .client = client };
    struct batch b = { .client = client, .list = &one, .n = 1, .stage = "asking the hub" };
    enum reel_status status = run_batch(&b, err);
    release(&b);
    return status;
}

static struct transfer of_file(struct download_client *client, const struct download_file *file,
                               int64_t stop) {
    return (struct transfer){ .file = file,
                              .fd = -1,
                              .url = file->url,
                              .label = file->label,
                              .limit = file->n_bytes,
                              .stop = stop,
                              .client = client };
}

enum reel_status download_head(struct download_client *client, const struct download_file *file,
                               int64_t n_bytes, struct reel_error *err) {
    struct transfer one = of_file(client, file, n_bytes);
    struct batch b = { client, &one, 1, "reading the model's header", 0 };
    enum reel_status status = run_batch(&b, err);
    release(&b);
    return status;
}

enum reel_status download_files(struct download_client *client, const struct download_file *files,
                                int n_files, struct reel_error *err) {
    char stage[60];
    struct batch b = { .client = client, .stage = stage };
    enum reel_status status =
        mem_zeroed(&b.list, (size_t)n_files, sizeof *b.list, "a list of downloads", err);
    for (int i = 0; i < n_files && status == REEL_OK; i++) {
        if (download_verify(&files[i], files[i].path, NULL) == REEL_OK) continue;
        b.total += (uint64_t)files[i].n_bytes;
        b.list[b.n++] = of_file(client, &files[i], INT64_MAX);
    }
    snprintf(stage, sizeof stage, "fetching %d file%s", b.n, b.n == 1 ? "" : "s");
    if (status == REEL_OK && b.n > 0) status = run_batch(&b, err);
    release(&b);
    mem_free(b.list);
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
enum reel_status download_files(struct download_client *client, const struct download_file *files,
                                int n_files, struct reel_error *err) {
    (void)client, (void)files, (void)n_files;
    return left_out(err);
}
enum reel_status download_head(struct download_client *client, const struct download_file *file,
                               int64_t n_bytes, struct reel_error *err) {
    (void)client, (void)file, (void)n_bytes;
    return left_out(err);
}

#endif
