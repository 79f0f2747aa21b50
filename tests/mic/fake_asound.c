/* libasound.so.2 for tests of the microphone. It holds callers to what alsa-lib expects. */
#include "fake_mic.h"

#include <errno.h>

static int device; /* its address is the handle */
static bool is_set;

EXPORT int snd_pcm_open(void **pcm, const char *name, int stream, int mode);
EXPORT int snd_pcm_set_params(void *pcm, int format, int access, unsigned channels, unsigned rate,
                              int soft_resample, unsigned latency_us);
EXPORT long snd_pcm_readi(void *pcm, void *out, unsigned long n);
EXPORT int snd_pcm_recover(void *pcm, int error, int silent);
EXPORT int snd_pcm_close(void *pcm);
EXPORT const char *snd_strerror(int error);
EXPORT int snd_device_name_hint(int card, const char *interface, void ***hints);
EXPORT char *snd_device_name_get_hint(const void *hint, const char *id);
EXPORT int snd_device_name_free_hint(void **hints);
EXPORT int snd_lib_error_set_handler(void *handler);

int snd_pcm_open(void **pcm, const char *name, int stream, int mode) {
    if (stream != 1 || mode != 0) return -EINVAL;
    if (strcmp(name, "default") != 0 && strcmp(name, "hw:1,0") != 0) return -ENOENT;
    if (!fake_open()) return -ENODEV;
    *pcm = &device;
    return 0;
}

int snd_pcm_set_params(void *pcm, int format, int access, unsigned channels, unsigned rate,
                       int soft_resample, unsigned latency_us) {
    is_set = pcm == &device && format == 2 && access == 3 && channels == 1 && rate == 16000 &&
             soft_resample == 1 && latency_us >= 100000;
    return is_set ? 0 : -EINVAL;
}

/* Now and then it says that samples were lost, as a busy machine does, or gives only a part. */
long snd_pcm_readi(void *pcm, void *out, unsigned long n) {
    static int n_calls;
    if (pcm != &device || !is_set) return -EBADF;
    n_calls++;
    if (n_calls % 7 == 3) return -EPIPE;
    if (n_calls % 5 == 2 && n > 1) n /= 2;
    return fake_read(out, n) ? (long)n : -EIO;
}

int snd_pcm_recover(void *pcm, int error, int silent) {
    if (pcm != &device || silent != 1) return -EINVAL;
    return error == -EPIPE ? 0 : error;
}

int snd_pcm_close(void *pcm) {
    fake_close();
    return pcm == &device ? 0 : -EINVAL;
}

const char *snd_strerror(int error) { return strerror(-error); }

/* ---- the list ---- */

static const char *const hints_of[][3] = { { "default", "The usual one\nof the desktop", NULL },
                                           { "hw:1,0", "A headset", "Input" },
                                           { "hdmi", "A screen", "Output" },
                                           { "null", "Nothing", NULL } };
static void *all_hints[5];

int snd_device_name_hint(int card, const char *interface, void ***hints) {
    if (card != -1 || strcmp(interface, "pcm") != 0) return -EINVAL;
    for (size_t i = 0; i < 4; i++)
        all_hints[i] = (void *)(uintptr_t)hints_of[i];
    *hints = all_hints;
    return 0;
}

char *snd_device_name_get_hint(const void *hint, const char *id) {
    const char *const *texts = hint;
    const char *text = strcmp(id, "NAME") == 0   ? texts[0]
                       : strcmp(id, "DESC") == 0 ? texts[1]
                                                 : texts[2];
    return text ? strdup(text) : NULL;
}

int snd_device_name_free_hint(void **hints) { return hints == all_hints ? 0 : -EINVAL; }

int snd_lib_error_set_handler(void *handler) {
    (void)handler;
    return 0;
}
