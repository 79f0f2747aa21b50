/* One file over HTTP into one place on disk: resumed, bounded in size, checked, then renamed. */
#ifndef REEL_CLI_DOWNLOAD_H
#define REEL_CLI_DOWNLOAD_H

#include "base/buffer.h"

/* How to reach a server; shared by all downloads of one command. */
struct download_client {
    void *curl;         /* a CURL handle, kept so that connections are reused */
    const char *bearer; /* access token or NULL; sent to the first host only, never to where it
                           redirects */
    reel_progress_fn progress;
    void *progress_user;
};

struct download_file {
    const char *url;
    const char *path;   /* final place; path + ".part" holds what has arrived so far */
    const char *label;  /* for progress and messages */
    int64_t n_bytes;    /* -1: unknown */
    const char *sha256; /* 64 hex digits, or NULL */
    const char *git_id; /* 40 hex digits: git's SHA-1 of the blob, or NULL */
};

enum reel_status download_client_open(struct download_client *client, struct reel_error *err);
void download_client_close(struct download_client *client);

/* Fetches a small text (an API answer) of at most `limit` bytes. */
enum reel_status download_text(struct download_client *client, const char *url, size_t limit,
                               struct buffer *out, struct reel_error *err);

/* Fetches the file unless path already holds it. A cut connection leaves the .part file, and the
 * next call goes on from there; a file whose length or hash is wrong is deleted and reported. */
enum reel_status download_fetch(struct download_client *client, const struct download_file *file,
                                struct reel_error *err);

/* Whether the bytes at path have the length and the hash that `file` states. REEL_E_NOT_FOUND when
 * there is no such file, REEL_E_MISMATCH with what was found. */
enum reel_status download_verify(const struct download_file *file, const char *path,
                                 struct reel_error *err);

#endif
