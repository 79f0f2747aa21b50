/* The few declarations used are written out here, as PulseAudio's client libraries have them since
 * 1.0, so that their headers are not needed to build. */
#include "cli/microphone_library.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <string.h>

static const char simple_name[] = "libpulse-simple.so.0";
static const char library_name[] = "libpulse.so.0";

enum { STREAM_RECORD = 2, SAMPLE_S16LE = 3, PIECE_BYTES = MICROPHONE_RATE / 10 * 2 };

struct sample_spec {
    int format;
    uint32_t rate;
    uint8_t channels;
};
struct buffer_attr {
    uint32_t maxlength, tlength, prebuf, minreq, fragsize;
};

/* ---- a stream ---- */

struct calls {
    void *(*open)(const char *server, const char *program, int direction, const char *device,
                  const char *stream, const struct sample_spec *spec, const void *channels,
                  const struct buffer_attr *buffer, int *error);
    int (*read)(void *stream, void *out, size_t n_bytes, int *error);
    void (*close)(void *stream);
    const char *(*text)(int error);
};
static const char *const names[] = { "pa_simple_new", "pa_simple_read", "pa_simple_free",
                                     "pa_strerror" };

struct pulse {
    void *library;
    struct calls call;
    void *stream;
};

static void pulse_close(void *stream) {
    struct pulse *p = stream;
    if (!p) return;
    if (p->stream) p->call.close(p->stream);
    if (p->library) dlclose(p->library);
    mem_free(p);
}

static enum reel_status pulse_open(void **stream, const char *device, struct reel_error *err) {
    const struct sample_spec spec = { SAMPLE_S16LE, MICROPHONE_RATE, 1 };
    const uint32_t usual = UINT32_MAX;
    const struct buffer_attr buffer = { usual, usual, usual, usual, PIECE_BYTES };
    struct pulse *p = NULL;
    int failed = 0;
    *stream = NULL;
    enum reel_status status = mem_zeroed(&p, 1, sizeof *p, "a microphone", err);
    if (status == REEL_OK)
        status = microphone_bind(&p->library, simple_name, names, sizeof names / sizeof *names,
                                 &p->call, err);
    if (status == REEL_OK) {
        p->stream = p->call.open(NULL, "reel", STREAM_RECORD, device, "transcribe", &spec, NULL,
                                 &buffer, &failed);
        if (!p->stream)
            status = err_set(err, REEL_E_IO, "PulseAudio: %s%s%s", device ? device : "",
                             device ? ": " : "", p->call.text(failed));
    }
    if (status != REEL_OK) {
        pulse_close(p);
        return status;
    }
    *stream = p;
    return REEL_OK;
}

static enum reel_status pulse_read(void *stream, int16_t *out, size_t n, struct reel_error *err) {
    struct pulse *p = stream;
    int failed = 0;
    if (p->call.read(p->stream, out, n * sizeof *out, &failed) >= 0) return REEL_OK;
    return err_set(err, REEL_E_IO, "PulseAudio: %s", p->call.text(failed));
}

/* ---- the list ---- */

enum { STATE_READY = 4, OPERATION_RUNNING = 0, NO_AUTOSPAWN = 1 };

/* The first members of pa_source_info. */
struct source_info {
    const char *name;
    uint32_t index;
    const char *description;
};
typedef void (*source_fn)(void *context, const struct source_info *info, int end, void *user);

struct list_calls {
    void *(*loop_new)(void);
    void *(*loop_api)(void *loop);
    int (*loop_iterate)(void *loop, int block, int *result);
    void (*loop_free)(void *loop);
    void *(*context_new)(void *api, const char *program);
    int (*connect)(void *context, const char *server, int flags, const void *api);
    int (*state)(const void *context);
    void *(*sources)(void *context, source_fn each, void *user);
    int (*operation_state)(const void *operation);
    void (*operation_unref)(void *operation);
    void (*disconnect)(void *context);
    void (*context_unref)(void *context);
};
static const char *const list_names[] = {
    "pa_mainloop_new",        "pa_mainloop_get_api",
    "pa_mainloop_iterate",    "pa_mainloop_free",
    "pa_context_new",         "pa_context_connect",
    "pa_context_get_state",   "pa_context_get_source_info_list",
    "pa_operation_get_state", "pa_operation_unref",
    "pa_context_disconnect",  "pa_context_unref",
};

struct listing {
    microphone_each_fn each;
    void *user;
};

/* What an output plays can be recorded, too, and is no microphone. */
static bool is_monitor(const char *name) {
    static const char end[] = ".monitor";
    const size_t n = strlen(name);
    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

static void on_source(void *context, const struct source_info *info, int end, void *user) {
    const struct listing *l = user;
    (void)context;
    if (end == 0 && info && info->name && !is_monitor(info->name))
        l->each(l->user, info->name, info->description ? info->description : "");
}

/* Without a server there are no devices: that is no failure. */
static void list_sources(const struct list_calls *call, void *loop, void *context,
                         struct listing *l) {
    int state = 0;
    if (call->connect(context, NULL, NO_AUTOSPAWN, NULL) < 0) return;
    while (state < STATE_READY && call->loop_iterate(loop, 1, NULL) >= 0)
        state = call->state(context);
    if (state == STATE_READY) {
        void *operation = call->sources(context, on_source, l);
        while (operation && call->operation_state(operation) == OPERATION_RUNNING)
            if (call->loop_iterate(loop, 1, NULL) < 0) break;
        if (operation) call->operation_unref(operation);
    }
    call->disconnect(context);
}

static enum reel_status pulse_list(microphone_each_fn each, void *user, struct reel_error *err) {
    struct listing l = { each, user };
    struct list_calls call;
    void *library = NULL;
    enum reel_status status = microphone_bind(&library, library_name, list_names,
                                              sizeof list_names / sizeof *list_names, &call, err);
    if (status != REEL_OK) return status;
    void *loop = call.loop_new();
    void *context = loop ? call.context_new(call.loop_api(loop), "reel") : NULL;
    if (context) {
        list_sources(&call, loop, context, &l);
        call.context_unref(context);
    }
    if (loop) call.loop_free(loop);
    dlclose(library);
    return REEL_OK;
}

const struct microphone_library microphone_pulse = { .name = "pulse",
                                                     .open = pulse_open,
                                                     .read = pulse_read,
                                                     .close = pulse_close,
                                                     .list = pulse_list };
