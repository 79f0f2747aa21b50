#define _GNU_SOURCE /* pipe2 */
#include "cli/ffmpeg.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 200, /* until Ctrl-C is looked for again */
    SAID = 1024,       /* bytes of its messages that are kept: the first */
};

struct ffmpeg {
    char *name;          /* of the recording */
    pid_t pid;           /* 0: none, or its end is known */
    int sound, messages; /* its standard output and error; -1: closed */
    size_t n_part;       /* bytes of `part` */
    unsigned char part[sizeof(float)];
    float first; /* read already */
    bool has_first;
    uint64_t n_samples;
    char said[SAID];
    size_t n_said;
    struct reel_error warning;
};

/* ---- starting ---- */

/* Closed in other programs from the first moment on: another thread may be starting one, which
 * would hold the pipe open. */
static enum reel_status make_pipe(int ends[2], struct reel_error *err) {
    if (pipe2(ends, O_CLOEXEC) == 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "a pipe to ffmpeg: %s", strerror(errno));
}

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* A group of its own, so that Ctrl-C reaches reel alone, which then ends it. */
static int start(struct ffmpeg *f, char *const *words, int sound, int messages) {
    extern char **environ;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    static const int usual[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    sigset_t none, ours;
    sigemptyset(&none);
    sigemptyset(&ours);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        sigaddset(&ours, usual[i]);
    int failed = posix_spawn_file_actions_init(&files);
    if (failed) return failed;
    failed = posix_spawnattr_init(&how);
    if (!failed) {
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&files, sound, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&files, messages, STDERR_FILENO);
        posix_spawnattr_setpgroup(&how, 0);
        posix_spawnattr_setsigmask(&how, &none);
        posix_spawnattr_setsigdefault(&how, &ours);
        posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                           POSIX_SPAWN_SETSIGDEF);
        failed = posix_spawnp(&f->pid, words[0], &files, &how, words, environ);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    if (failed) f->pid = 0;
    return failed;
}

/* What holds sound. Playlists are not among them: they name other files, and ffmpeg asks for one
 * that it is not to read until a minute and more is over. */
static const char containers[] =
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,dts,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,mxf,ogg,"
    "rm,tak,tta,voc,w64,wav,wtv,wv,xwma";

/* "file:" before the path: what stands in it is then neither an option nor a protocol. The list of
 * protocols holds for what the file refers to as well. */
static enum reel_status run(struct ffmpeg *f, const char *path, struct reel_error *err) {
    struct buffer input = { 0 };
    int sound[2] = { -1, -1 }, messages[2] = { -1, -1 };
    enum reel_status status = buffer_printf(&input, err, "file:%s", path);
    if (status == REEL_OK) status = make_pipe(sound, err);
    if (status == REEL_OK) status = make_pipe(messages, err);
    if (status == REEL_OK) {
        const char *const words[] = { "ffmpeg",
                                      "-nostdin",
                                      "-v",
                                      "error",
                                      "-protocol_whitelist",
                                      "file",
                                      "-format_whitelist",
                                      containers,
                                      "-i",
                                      input.bytes,
                                      "-vn",
                                      "-sn",
                                      "-dn",
                                      "-f",
                                      "f32le",
                                      "-ar",
                                      "16000",
                                      "-ac",
                                      "1",
                                      "-",
                                      NULL };
        const int failed = start(f, (char *const *)(uintptr_t)words, sound[1], messages[1]);
        if (failed == ENOENT)
            status = err_set(err, REEL_E_NOT_FOUND, "ffmpeg is not installed");
        else if (failed)
            status = err_set(err, REEL_E_IO, "ffmpeg cannot be started: %s", strerror(failed));
    }
    close_end(&sound[1]);
    close_end(&messages[1]);
    f->sound = sound[0];
    f->messages = messages[0];
    buffer_release(&input);
    return status;
}

/* ---- reading ---- */

static void take_messages(struct ffmpeg *f) {
    char text[512];
    const ssize_t n = read(f->messages, text, sizeof text);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        close_end(&f->messages);
        return;
    }
    const size_t room = SAID - 1 - f->n_said, kept = (size_t)n < room ? (size_t)n : room;
    memcpy(f->said + f->n_said, text, kept);
    f->n_said += kept;
}

/* Until there is sound to read, or its end. */
static enum reel_status wait_for_sound(struct ffmpeg *f, struct reel_error *err) {
    for (;;) {
        struct pollfd ends[2] = { { .fd = f->sound, .events = POLLIN },
                                  { .fd = f->messages, .events = POLLIN } };
        if (interrupt_pending()) return err_set(err, REEL_E_CANCELLED, "%s: cancelled", f->name);
        const int n = poll(ends, 2, PATIENCE_MS);
        if (n < 0 && errno != EINTR)
            return err_set(err, REEL_E_IO, "%s: ffmpeg: %s", f->name, strerror(errno));
        if (n <= 0) continue;
        if (ends[1].revents) take_messages(f);
        if (ends[0].revents) return REEL_OK;
    }
}

/* The last line of its messages, which says why it ended. */
static const char *last_line(struct ffmpeg *f) {
    while (f->n_said > 0 && strchr("\r\n ", f->said[f->n_said - 1]))
        f->n_said--;
    f->said[f->n_said] = '\0';
    const char *end = strrchr(f->said, '\n');
    return end ? end + 1 : f->said;
}

/* It has closed its output: how it ended. */
static enum reel_status at_end(struct ffmpeg *f, struct reel_error *err) {
    int how = 0;
    while (f->messages >= 0)
        take_messages(f);
    while (f->pid > 0 && waitpid(f->pid, &how, 0) < 0 && errno == EINTR)
        if (interrupt_pending()) return err_set(err, REEL_E_CANCELLED, "%s: cancelled", f->name);
    f->pid = 0;
    const char *why = last_line(f);
    const bool good = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    if (!good && !*why) why = WIFSIGNALED(how) ? "it was ended by a signal" : "it failed";
    if (f->n_samples == 0)
        return err_set(err, REEL_E_FORMAT, "%s: ffmpeg: %s", f->name,
                       *why ? why : "there is no sound in it");
    if (*why)
        (void)err_set(&f->warning, REEL_E_FORMAT, "%s: %.3f s of audio were read; ffmpeg: %s",
                      f->name, (double)f->n_samples / 16000, why);
    return REEL_OK;
}

/* Whole samples of what there is. */
static enum reel_status read_some(struct ffmpeg *f, float *out, size_t n, size_t *n_read,
                                  struct reel_error *err) {
    *n_read = 0;
    while (*n_read == 0 && f->sound >= 0) {
        enum reel_status status = wait_for_sound(f, err);
        if (status != REEL_OK) return status;
        unsigned char *const bytes = (unsigned char *)out;
        memcpy(bytes, f->part, f->n_part);
        const ssize_t got = read(f->sound, bytes + f->n_part, n * sizeof *out - f->n_part);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(err, REEL_E_IO, "%s: ffmpeg: %s", f->name, strerror(errno));
        if (got == 0) {
            close_end(&f->sound);
            return at_end(f, err);
        }
        const size_t size = f->n_part + (size_t)got;
        *n_read = size / sizeof *out;
        f->n_part = size % sizeof *out;
        memcpy(f->part, bytes + size - f->n_part, f->n_part);
    }
    f->n_samples += *n_read;
    return REEL_OK;
}

enum reel_status ffmpeg_read(struct ffmpeg *f, float *out, size_t n, size_t *n_read,
                             struct reel_error *err) {
    if (!f->has_first) return read_some(f, out, n, n_read, err);
    f->has_first = false;
    *out = f->first;
    *n_read = 1;
    return REEL_OK;
}

/* ---- opening and closing ---- */

enum reel_status ffmpeg_open(struct ffmpeg **out, const char *path, struct reel_error *err) {
    struct ffmpeg *f = NULL;
    size_t n = 0;
    *out = NULL;
    enum reel_status status = mem_zeroed(&f, 1, sizeof *f, "ffmpeg", err);
    if (status != REEL_OK) return status;
    f->sound = f->messages = -1;
    status = mem_text(&f->name, path, strlen(path), "a recording's name", err);
    if (status == REEL_OK) status = run(f, path, err);
    if (status == REEL_OK) status = read_some(f, &f->first, 1, &n, err);
    if (status != REEL_OK) {
        ffmpeg_close(f);
        return status;
    }
    f->has_first = n > 0;
    *out = f;
    return REEL_OK;
}

const char *ffmpeg_warning(const struct ffmpeg *f) {
    return f->warning.text[0] ? f->warning.text : NULL;
}

void ffmpeg_close(struct ffmpeg *f) {
    if (!f) return;
    close_end(&f->sound);
    close_end(&f->messages);
    if (f->pid > 0) {
        kill(f->pid, SIGKILL);
        while (waitpid(f->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    mem_free(f->name);
    mem_free(f);
}
