#include "cli/folders.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* $variable/leaf, or $HOME/fallback/leaf. A relative path in the variable counts as unset, as the
 * XDG specification says. */
static enum reel_status from_environment(char **path, const char *variable, const char *fallback,
                                         const char *leaf, struct reel_error *err) {
    struct buffer text = { 0 };
    const char *base = getenv(variable), *home = getenv("HOME");
    enum reel_status status;
    *path = NULL;
    if (base && base[0] == '/') {
        status = buffer_printf(&text, err, "%s%s", base, leaf);
    } else if (home && home[0] == '/') {
        status = buffer_printf(&text, err, "%s/%s%s", home, fallback, leaf);
    } else {
        status = err_set(err, REEL_E_NOT_FOUND, "neither $%s nor $HOME names a folder", variable);
    }
    if (status == REEL_OK) *path = buffer_detach(&text, NULL);
    return status;
}

enum reel_status folder_of_cache(char **path, struct reel_error *err) {
    return from_environment(path, "XDG_CACHE_HOME", ".cache", "/reel", err);
}

enum reel_status folder_of_state(char **path, struct reel_error *err) {
    return from_environment(path, "XDG_STATE_HOME", ".local/state", "/reel", err);
}

enum reel_status folder_of_hugging_face(char **path, struct reel_error *err) {
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    if (hub && hub[0] == '/') return from_environment(path, "HF_HUB_CACHE", "", "", err);
    if (home && home[0] == '/') return from_environment(path, "HF_HOME", "", "/hub", err);
    return from_environment(path, "XDG_CACHE_HOME", ".cache", "/huggingface/hub", err);
}

enum reel_status file_of_hub_token(char **path, struct reel_error *err) {
    const char *file = getenv("HF_TOKEN_PATH"), *home = getenv("HF_HOME");
    if (file && file[0] == '/') return from_environment(path, "HF_TOKEN_PATH", "", "", err);
    if (home && home[0] == '/') return from_environment(path, "HF_HOME", "", "/token", err);
    return from_environment(path, "XDG_CACHE_HOME", ".cache", "/huggingface/token", err);
}

enum reel_status folder_make(const char *path, struct reel_error *err) {
    char *copy = NULL;
    enum reel_status status = mem_text(&copy, path, strlen(path), "a path", err);
    if (status != REEL_OK) return status;
    for (char *c = copy + 1; status == REEL_OK; c++) {
        if (*c != '/' && *c != '\0') continue;
        bool last = *c == '\0';
        *c = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST)
            status = err_set(err, REEL_E_IO, "%s: cannot create: %s", copy, strerror(errno));
        if (last) break;
        *c = '/';
    }
    mem_free(copy);
    return status;
}
