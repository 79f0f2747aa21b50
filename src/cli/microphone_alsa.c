/* The few declarations used are written out here, as alsa-lib 1.0 to 1.2 have them, so that its
 * headers are not needed to build. */
#include "cli/microphone_library.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char library_name[] = "libasound.so.2";

enum { STREAM_CAPTURE = 1, FORMAT_S16_LE = 2, ACCESS_RW_INTERLEAVED = 3, LATENCY_US = 500000 };

typedef void (*error_fn)(const char *file, int line, const char *function, int error,
                         const char *format, ...);

struct calls {
    int (*open)(void **pcm, const char *name, int stream, int mode);
    int (*set_params)(void *pcm, int format, int access, unsigned channels, unsigned rate,
                      int soft_resample, unsigned latency_us);
    long (*readi)(void *pcm, void *out, unsigned long n_frames);
    int (*recover)(void *pcm, int error, int silent);
    int (*close)(void *pcm);
    const char *(*text)(int error);
    int (*hints)(int card, const char *interface, void ***hints);
    char *(*hint)(const void *hint, const char *id);
    int (*free_hints)(void **hints);
    int (*set_error_handler)(error_fn handler);
};
static const char *const names[] = {
    "snd_pcm_open",
    "snd_pcm_set_params",
    "snd_pcm_readi",
    "snd_pcm_recover",
    "snd_pcm_close",
    "snd_strerror",
    "snd_device_name_hint",
    "snd_device_name_get_hint",
    "snd_device_name_free_hint",
    "snd_lib_error_set_handler",
};

struct alsa {
    void *library;
    struct calls call;
    void *pcm;
};

/* What it would print on standard error by itself. */
static void be_silent(const char *file, int line, const char *function, int error,
                      const char *format, ...) {
    (void)file, (void)line, (void)function, (void)error, (void)format;
}

static void alsa_close(void *stream) {
    struct alsa *a = stream;
    if (!a) return;
    if (a->pcm) a->call.close(a->pcm);
    if (a->library) {
        if (a->call.set_error_handler) a->call.set_error_handler(NULL);
        dlclose(a->library);
    }
    mem_free(a);
}

static enum reel_status start(struct alsa **out, struct reel_error *err) {
    enum reel_status status = mem_zeroed(out, 1, sizeof **out, "a microphone", err);
    if (status != REEL_OK) return status;
    struct alsa *a = *out;
    status = microphone_bind(&a->library, library_name, names, sizeof names / sizeof *names,
                             &a->call, err);
    if (status == REEL_OK) {
        a->call.set_error_handler(be_silent);
        return REEL_OK;
    }
    alsa_close(a);
    *out = NULL;
    return status;
}

static enum reel_status alsa_open(void **stream, const char *device, struct reel_error *err) {
    struct alsa *a = NULL;
    const char *name = device ? device : "default";
    *stream = NULL;
    enum reel_status status = start(&a, err);
    if (status != REEL_OK) return status;
    int failed = a->call.open(&a->pcm, name, STREAM_CAPTURE, 0);
    if (failed < 0) a->pcm = NULL;
    if (failed >= 0)
        failed = a->call.set_params(a->pcm, FORMAT_S16_LE, ACCESS_RW_INTERLEAVED, 1,
                                    MICROPHONE_RATE, 1, LATENCY_US);
    if (failed < 0) {
        status = err_set(err, REEL_E_IO, "ALSA: \"%s\": %s", name, a->call.text(failed));
        alsa_close(a);
        return status;
    }
    *stream = a;
    return REEL_OK;
}

static enum reel_status alsa_read(void *stream, int16_t *out, size_t n, struct reel_error *err) {
    struct alsa *a = stream;
    while (n > 0) {
        long got = a->call.readi(a->pcm, out, n);
        if (got < 0 && got != -EINTR) got = a->call.recover(a->pcm, (int)got, 1);
        if (got < 0 && got != -EINTR)
            return err_set(err, REEL_E_IO, "ALSA: %s", a->call.text((int)got));
        if (got <= 0) continue;
        out += got;
        n -= (size_t)got;
    }
    return REEL_OK;
}

/* A value of a hint is memory of the C library's. */
static void list_hint(const struct alsa *a, const void *hint, microphone_each_fn each, void *user) {
    char *text = a->call.hint(hint, "IOID");
    const bool hears = !text || strcmp(text, "Input") == 0;
    free(text);
    if (!hears) return;
    char name[200] = "", says[200] = "";
    text = a->call.hint(hint, "NAME");
    if (text) snprintf(name, sizeof name, "%s", text);
    free(text);
    text = a->call.hint(hint, "DESC");
    if (text) snprintf(says, sizeof says, "%s", text);
    free(text);
    for (char *at = says; *at; at++)
        if (*at == '\n') *at = ' ';
    if (name[0] && strcmp(name, "null") != 0) each(user, name, says);
}

static enum reel_status alsa_list(microphone_each_fn each, void *user, struct reel_error *err) {
    struct alsa *a = NULL;
    void **hints = NULL;
    enum reel_status status = start(&a, err);
    if (status != REEL_OK) return status;
    if (a->call.hints(-1, "pcm", &hints) == 0) {
        for (void **hint = hints; *hint; hint++)
            list_hint(a, *hint, each, user);
        a->call.free_hints(hints);
    }
    alsa_close(a);
    return REEL_OK;
}

const struct microphone_library microphone_alsa = {
    .name = "alsa", .open = alsa_open, .read = alsa_read, .close = alsa_close, .list = alsa_list
};
