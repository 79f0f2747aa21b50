#include "tests/support/fixtures.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Paths are handed out for the rest of the program: a short list of them, never freed. */
#define MAX_PATHS 64
static char *paths[MAX_PATHS];

static const char *keep(const char *path) {
    for (int i = 0; i < MAX_PATHS; i++) {
        if (paths[i] && strcmp(paths[i], path) == 0) return paths[i];
        if (!paths[i]) return paths[i] = strdup(path);
    }
    return NULL;
}

static void make_folders(const char *path) {
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0777); /* most exist already */
        *slash = '/';
    }
}

/* Runs xz -dc packed > unpacked. */
static bool unpack(const char *packed, const char *unpacked) {
    char *const argv[] = { "xz", "-dc", (char *)packed, NULL };
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, unpacked,
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (posix_spawnp(&child, "xz", &actions, NULL, argv, environ) == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

const char *fixture_path(const char *name) {
    const char *build = getenv("REEL_BUILD");
    char packed[1024], path[1024], aside[1100];
    struct stat from, to;
    snprintf(packed, sizeof packed, "tests/fixtures/%s.xz", name);
    snprintf(path, sizeof path, "%s/fixtures/%s", build ? build : "build/release", name);
    if (stat(packed, &from) == 0 && stat(path, &to) == 0 &&
        (to.st_mtim.tv_sec > from.st_mtim.tv_sec ||
         (to.st_mtim.tv_sec == from.st_mtim.tv_sec && to.st_mtim.tv_nsec > from.st_mtim.tv_nsec)))
        return keep(path);
    make_folders(path);
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid()); /* tests may run side by side */
    if (unpack(packed, aside) && rename(aside, path) == 0) return keep(path);
    fprintf(stderr, "%s: cannot be unpacked to %s\n", packed, path);
    unlink(aside);
    return NULL;
}

bool fixture_map(struct file_map *map, const char *name) {
    struct reel_error err;
    const char *path = fixture_path(name);
    if (!path) return false;
    if (file_map_open(map, path, &err) == REEL_OK) return true;
    fprintf(stderr, "%s\n", err.text);
    return false;
}

const char *fixture_tokenizer(const char *family) {
    char name[256], folder[1024];
    snprintf(name, sizeof name, "tokenizers/%s/tokenizer.json", family);
    const char *path = fixture_path(name);
    if (!path) return NULL;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    snprintf(name, sizeof name, "tests/fixtures/tokenizers/%s/tokenizer_config.json.xz", family);
    if (access(name, R_OK) == 0) {
        snprintf(name, sizeof name, "tokenizers/%s/tokenizer_config.json", family);
        if (!fixture_path(name)) return NULL;
    }
    return keep(folder);
}
