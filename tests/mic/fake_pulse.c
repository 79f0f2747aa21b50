/* libpulse-simple.so.0 and libpulse.so.0 for tests of the microphone, in one. It holds callers to
 * what PulseAudio expects. */
#include "fake_mic.h"

struct sample_spec {
    int format;
    uint32_t rate;
    uint8_t channels;
};
struct buffer_attr {
    uint32_t maxlength, tlength, prebuf, minreq, fragsize;
};
struct source_info {
    const char *name;
    uint32_t index;
    const char *description;
    char more[300];
};
typedef void (*source_fn)(void *context, const struct source_info *info, int end, void *user);

enum { REFUSED = 6, NO_ENTITY = 5, INVALID = 3, IO = 19, READY = 4, RUNNING = 0, DONE = 1 };

static int stream_handle, loop_handle, api_handle, context_handle, operation_handle;
static int n_turns; /* of the loop */
static source_fn wanted;
static void *wanted_user;

EXPORT void *pa_simple_new(const char *server, const char *program, int direction, const char *name,
                           const char *stream, const struct sample_spec *spec, const void *channels,
                           const struct buffer_attr *buffer, int *error);
EXPORT int pa_simple_read(void *stream, void *out, size_t n_bytes, int *error);
EXPORT void pa_simple_free(void *stream);
EXPORT const char *pa_strerror(int error);
EXPORT void *pa_mainloop_new(void);
EXPORT void *pa_mainloop_get_api(void *loop);
EXPORT int pa_mainloop_iterate(void *loop, int block, int *result);
EXPORT void pa_mainloop_free(void *loop);
EXPORT void *pa_context_new(void *api, const char *program);
EXPORT int pa_context_connect(void *context, const char *server, int flags, const void *api);
EXPORT int pa_context_get_state(const void *context);
EXPORT void *pa_context_get_source_info_list(void *context, source_fn each, void *user);
EXPORT int pa_operation_get_state(const void *operation);
EXPORT void pa_operation_unref(void *operation);
EXPORT void pa_context_disconnect(void *context);
EXPORT void pa_context_unref(void *context);

/* ---- a stream ---- */

void *pa_simple_new(const char *server, const char *program, int direction, const char *name,
                    const char *stream, const struct sample_spec *spec, const void *channels,
                    const struct buffer_attr *buffer, int *error) {
    const bool good = !server && program && stream && direction == 2 && spec->format == 3 &&
                      spec->rate == 16000 && spec->channels == 1 && !channels &&
                      buffer->fragsize <= 6400 && buffer->maxlength == UINT32_MAX;
    *error = !good ? INVALID : name && strcmp(name, "usb-headset") != 0 ? NO_ENTITY : REFUSED;
    return good && *error == REFUSED && fake_open() ? &stream_handle : NULL;
}

int pa_simple_read(void *stream, void *out, size_t n_bytes, int *error) {
    *error = IO;
    return stream == &stream_handle && fake_read(out, n_bytes / 2) ? 0 : -1;
}

void pa_simple_free(void *stream) {
    if (stream == &stream_handle) fake_close();
}

const char *pa_strerror(int error) {
    return error == REFUSED     ? "Connection refused"
           : error == NO_ENTITY ? "No such entity"
           : error == IO        ? "Input/Output error"
                                : "Invalid argument";
}

/* ---- the list ---- */

void *pa_mainloop_new(void) { return &loop_handle; }
void *pa_mainloop_get_api(void *loop) { return loop == &loop_handle ? &api_handle : NULL; }

/* What was asked for comes in a turn of the loop, not before. */
int pa_mainloop_iterate(void *loop, int block, int *result) {
    static const struct source_info sources[] = {
        { .name = "usb-headset", .index = 1, .description = "A headset" },
        { .name = "screen.monitor", .index = 2, .description = "Monitor of a screen" },
    };
    (void)result;
    if (loop != &loop_handle || block != 1) return -1;
    n_turns++;
    if (wanted) {
        for (int i = 0; i < 2; i++)
            wanted(&context_handle, &sources[i], 0, wanted_user);
        wanted(&context_handle, NULL, 1, wanted_user);
        wanted = NULL;
    }
    return 1;
}

void pa_mainloop_free(void *loop) { (void)loop; }
void *pa_context_new(void *api, const char *program) {
    return api == &api_handle && program ? &context_handle : NULL;
}

int pa_context_connect(void *context, const char *server, int flags, const void *api) {
    (void)flags;
    return context == &context_handle && !server && !api && !fake_says("refused") ? 0 : -1;
}

int pa_context_get_state(const void *context) {
    return context == &context_handle && n_turns >= 3 ? READY : n_turns;
}

void *pa_context_get_source_info_list(void *context, source_fn each, void *user) {
    if (context != &context_handle) return NULL;
    wanted = each;
    wanted_user = user;
    return &operation_handle;
}

int pa_operation_get_state(const void *operation) {
    return operation == &operation_handle && wanted ? RUNNING : DONE;
}

void pa_operation_unref(void *operation) { (void)operation; }
void pa_context_disconnect(void *context) { (void)context; }
void pa_context_unref(void *context) { (void)context; }
