#include "server/api_keys.h"

#include "base/memory.h"

#include <string.h>

void keys_init(struct keys *keys) {
    *keys = (struct keys){ 0 };
    pthread_mutex_init(&keys->lock, NULL);
}

enum reel_status keys_set(struct keys *keys, const char *const *texts, int n,
                          struct reel_error *err) {
    char(*hashes)[SHA256_HEX] = NULL;
    enum reel_status status = mem_zeroed(&hashes, (size_t)n, sizeof *hashes, "keys", err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < n; i++)
        sha256_hex(texts[i], strlen(texts[i]), hashes[i]);
    pthread_mutex_lock(&keys->lock);
    void *old = keys->hashes;
    keys->hashes = hashes;
    keys->n = n;
    pthread_mutex_unlock(&keys->lock);
    mem_free(old);
    return REEL_OK;
}

void keys_release(struct keys *keys) {
    mem_free(keys->hashes);
    pthread_mutex_destroy(&keys->lock);
}

bool keys_wanted(struct keys *keys) {
    pthread_mutex_lock(&keys->lock);
    bool wanted = keys->n > 0;
    pthread_mutex_unlock(&keys->lock);
    return wanted;
}

/* Hashes are compared, each to its end: how much of a key is right does not show in the time. */
bool keys_allow(struct keys *keys, const char *text, size_t n_bytes) {
    char hash[SHA256_HEX];
    unsigned found = 0;
    sha256_hex(text, n_bytes, hash);
    pthread_mutex_lock(&keys->lock);
    for (int i = 0; i < keys->n; i++) {
        unsigned differs = 0;
        for (int j = 0; j < SHA256_HEX - 1; j++)
            differs |= (unsigned)(hash[j] ^ keys->hashes[i][j]);
        found |= differs == 0;
    }
    bool allowed = keys->n == 0 || found;
    pthread_mutex_unlock(&keys->lock);
    return allowed;
}
