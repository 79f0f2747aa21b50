/* The libraries that a microphone is heard through, opened at run time. */
#ifndef REEL_CLI_MICROPHONE_LIBRARY_H
#define REEL_CLI_MICROPHONE_LIBRARY_H

#include "base/error.h"

enum { MICROPHONE_RATE = 16000 };

typedef void (*microphone_each_fn)(void *user, const char *device, const char *says);

struct microphone_library {
    const char *name; /* before the colon of a device */
    /* device: a name of the library's, or NULL. REEL_E_NOT_FOUND: the library is not installed. The
     * stream is 16-bit mono of MICROPHONE_RATE. */
    enum reel_status (*open)(void **stream, const char *device, struct reel_error *err);
    /* Waits for n samples. */
    enum reel_status (*read)(void *stream, int16_t *out, size_t n, struct reel_error *err);
    void (*close)(void *stream);
    enum reel_status (*list)(microphone_each_fn each, void *user, struct reel_error *err);
};

extern const struct microphone_library microphone_pulse, microphone_alsa;

/* Opens a library and finds n functions, whose addresses go to `calls` in order. */
enum reel_status microphone_bind(void **library, const char *file, const char *const *names,
                                 size_t n, void *calls, struct reel_error *err);

#endif
