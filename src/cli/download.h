/* Files over HTTP into places on disk: several at once, resumed, bounded in size, tried again where
 * that can help, checked, then renamed. */
#ifndef REEL_CLI_DOWNLOAD_H
#define REEL_CLI_DOWNLOAD_H

#include "base/buffer.h"

/* How to reach a server; shared by all downloads of one command. Zero is the default of each
 * number. */
struct download_client {
    void *multi;        /* libcurl's, kept so that connections are used again */
    const char *bearer; /* access token or NULL; sent to the first host only, never to where it
                           redirects */
    int at_once;        /* files; default 4 */
    int retry_ms;       /* before the second try of a request; each further wait is twice as long */
    int stall_s;        /* without a byte for so long, a connection is given up; default 30 */
    reel_progress_fn progress;
    void *progress_user;
    int http;      /* of the last refusal: 404, 401, ..., for the caller's message */
    char code[40]; /* of the same: what Hugging Face's X-Error-Code says, or empty */
};

struct download_file {
    const char *url;
    const char *path;  /* final place; path + ".part" holds what has arrived so far */
    const char *label; /* for messages */
    int64_t n_bytes;
    const char *sha256; /* 64 hex digits, or NULL */
    const char *git_id; /* 40 hex digits: git's SHA-1 of the blob, or NULL */
};

enum reel_status download_client_open(struct download_client *client, struct reel_error *err);
void download_client_close(struct download_client *client);

/* Fetches a small text (an API answer) of at most `limit` bytes. */
enum reel_status download_text(struct download_client *client, const char *url, size_t limit,
                               struct buffer *out, struct reel_error *err);

/* Fetches the files whose paths do not hold them yet. A cut connection leaves the .part file, and
 * the next call goes on from there; a file whose length or hash is wrong is deleted and reported.
 */
enum reel_status download_files(struct download_client *client, const struct download_file *files,
                                int n_files, struct reel_error *err);

/* Makes the .part file hold the first n_bytes of the file at least, or all of a shorter one. */
enum reel_status download_head(struct download_client *client, const struct download_file *file,
                               int64_t n_bytes, struct reel_error *err);

/* Whether the bytes at path have the length and the hash that `file` states. REEL_E_NOT_FOUND when
 * there is no such file, REEL_E_MISMATCH with what was found. */
enum reel_status download_verify(const struct download_file *file, const char *path,
                                 struct reel_error *err);

#endif
