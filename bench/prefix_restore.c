/* What `reel serve --prefix-dir` saves: a prompt that is evaluated beside one whose snapshot is
 * read from a file.
 *
 *   prefix_restore MODEL DEVICE FOLDER TOKENS ...
 *
 * MODEL is "demo", or a path. FOLDER receives a file, which is removed again. Prints CSV:
 * tokens,what,cpu_ms,wall_ms,bytes. `evaluate`: a prompt in an empty session; `restore`: the file
 * is read as prefixes.c reads it, restored, and the same prompt is synchronised; `restore, not
 * cached`: the same after the system was told to forget the file. On a CPU it is one thread's. Each
 * is the best of RUNS, but on a CPU a prompt of more than LONG tokens is evaluated once. cpu_ms is
 * what counts on a machine that others use, too. */
#include "reel.h"

#include "base/clock.h"
#include "cli/demo_model.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 3, LONG = 600 };

static struct reel_error err;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "prefix_restore: %s: %s\n", what, err.text);
    exit(1);
}

static void need(enum reel_status status, const char *what) {
    if (status != REEL_OK) die(what);
}

struct times {
    double cpu, wall;
};

static struct times now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (struct times){ (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6, clock_ms() };
}

static void keep_best(struct times *best, struct times start, int run) {
    const struct times end = now();
    const struct times took = { end.cpu - start.cpu, end.wall - start.wall };
    if (run == 0 || took.cpu < best->cpu) best->cpu = took.cpu;
    if (run == 0 || took.wall < best->wall) best->wall = took.wall;
}

static struct reel_session *open_session(const struct reel_model *model, int n) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = n + 1 };
    struct reel_session *s = NULL;
    need(reel_session_open(&s, model, &options, &err), "a session");
    return s;
}

static void print(int n, const char *what, struct times t, size_t bytes) {
    printf("%d,%s,%.2f,%.2f,%zu\n", n, what, t.cpu, t.wall, bytes);
    fflush(stdout);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t at = 0; at < n;) {
        const ssize_t here = write(fd, (const char *)bytes + at, n - at);
        if (here <= 0) die(path);
        at += (size_t)here;
    }
    if (fsync(fd) != 0 || close(fd) != 0) die(path);
}

static void forget_file(const char *path) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) die(path);
    close(fd);
}

static void restore(struct reel_session *s, const char *path, const int32_t *ids, int n) {
    const int fd = open(path, O_RDONLY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) die(path);
    char *bytes = malloc((size_t)about.st_size);
    size_t at = 0;
    while (bytes && at < (size_t)about.st_size) {
        const ssize_t here = pread(fd, bytes + at, (size_t)about.st_size - at, (off_t)at);
        if (here <= 0) die(path);
        at += (size_t)here;
    }
    close(fd);
    need(reel_session_restore(s, bytes, at, &err), "restoring");
    free(bytes);
    int n_reused = 0;
    need(reel_session_sync(s, ids, n, &n_reused, &err), "synchronising");
    if (n_reused != n) die("the restored session was not taken as it is");
}

static void measure(const struct reel_model *model, const char *path, const int32_t *ids, int n,
                    int runs) {
    struct times evaluated = { 0 }, warm = { 0 }, cold = { 0 };
    struct reel_session *s = open_session(model, n);
    for (int run = 0; run < runs; run++) {
        need(reel_session_truncate(s, 0, &err), "emptying");
        const struct times start = now();
        need(reel_session_sync(s, ids, n, NULL, &err), "evaluating");
        keep_best(&evaluated, start, run);
    }
    const size_t n_bytes = reel_session_snapshot_bytes(s);
    void *bytes = malloc(n_bytes);
    need(reel_session_snapshot(s, bytes, n_bytes, &err), "a snapshot");
    write_file(path, bytes, n_bytes);
    free(bytes);
    for (int run = 0; run < 2 * RUNS; run++) {
        need(reel_session_truncate(s, 0, &err), "emptying");
        if (run >= RUNS) forget_file(path);
        const struct times start = now();
        restore(s, path, ids, n);
        keep_best(run < RUNS ? &warm : &cold, start, run % RUNS);
    }
    unlink(path);
    reel_session_close(s);
    print(n, "evaluate", evaluated, 0);
    print(n, "restore", warm, n_bytes);
    print(n, "\"restore, not cached\"", cold, n_bytes);
}

int main(int argc, char **argv) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = argc > 2 ? argv[2] : "cpu",
                                                .n_threads = 1 };
    struct reel_model_info info = { .size = sizeof info };
    struct reel_model *model = NULL;
    char path[1000];
    if (argc < 5) {
        fprintf(stderr, "prefix_restore MODEL DEVICE FOLDER TOKENS ...\n");
        return 1;
    }
    if (strcmp(argv[1], "demo") == 0) {
        int n_files = 0;
        const struct reel_memory_file *files = demo_model_files("demo", &n_files);
        need(reel_model_open_memory(&model, "demo", files, n_files, &options, &err), "demo");
    } else {
        need(reel_model_open(&model, argv[1], &options, &err), argv[1]);
    }
    need(reel_model_get_info(model, &info, &err), argv[1]);
    snprintf(path, sizeof path, "%s/prefix_restore.bytes", argv[3]);
    puts("tokens,what,cpu_ms,wall_ms,bytes");
    for (int i = 4; i < argc; i++) {
        const int n = atoi(argv[i]);
        int32_t *ids = n > 0 ? malloc((size_t)n * sizeof *ids) : NULL;
        if (!ids) die("the number of tokens");
        for (int k = 0; k < n; k++)
            ids[k] = (int32_t)((unsigned)k * 2654435761u % (unsigned)info.vocab);
        measure(model, path, ids, n, strcmp(argv[2], "cpu") == 0 && n > LONG ? 1 : RUNS);
        free(ids);
    }
    reel_model_close(model);
    return 0;
}
