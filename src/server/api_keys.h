/* The keys that requests must carry. */
#ifndef REEL_SERVER_API_KEYS_H
#define REEL_SERVER_API_KEYS_H

#include "base/error.h"
#include "base/sha256.h"

#include <pthread.h>

struct keys {
    pthread_mutex_t lock;
    char (*hashes)[SHA256_HEX]; /* [n] */
    int n;
};

void keys_init(struct keys *keys);
enum reel_status keys_set(struct keys *keys, const char *const *texts, int n,
                          struct reel_error *err);
void keys_release(struct keys *keys);

bool keys_wanted(struct keys *keys);
/* Takes the same time whatever is in it. */
bool keys_allow(struct keys *keys, const char *text, size_t n_bytes);

#endif
