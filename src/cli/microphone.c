#include "cli/microphone.h"

#include "base/memory.h"
#include "cli/microphone_library.h"
#include "cli/terminal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = MICROPHONE_RATE / 20,   /* samples taken at once */
    KEPT = MICROPHONE_RATE * 120,   /* at most, until they are read */
    PATIENCE_NS = 100 * 1000 * 1000 /* until Ctrl-C is looked for again */
};

static const struct microphone_library *const libraries[] = { &microphone_pulse, &microphone_alsa };
enum { N_LIBRARIES = sizeof libraries / sizeof *libraries };

struct microphone {
    const struct microphone_library *library;
    void *stream;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t came;
    /* under the lock */
    int16_t *ring; /* [KEPT] */
    size_t from, n;
    uint64_t n_lost;
    bool stop, ended;
    struct reel_error failed;
    /* the reader's */
    struct reel_error warning;
};

/* ---- libraries ---- */

enum reel_status microphone_bind(void **library, const char *file, const char *const *names,
                                 size_t n, void *calls, struct reel_error *err) {
    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!*library) return err_set(err, REEL_E_NOT_FOUND, "%s is not installed", file);
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(*library, names[i]);
        if (!symbol) {
            dlclose(*library);
            *library = NULL;
            return err_set(err, REEL_E_UNSUPPORTED, "%s lacks %s", file, names[i]);
        }
        memcpy((char *)calls + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return REEL_OK;
}

/* The device's name for this library, when it may be one of its; *device NULL: the usual. */
static bool is_for(const struct microphone_library *library, const char **device) {
    const size_t n = strlen(library->name);
    if (!*device) return true;
    for (int i = 0; i < N_LIBRARIES; i++) {
        const size_t m = strlen(libraries[i]->name);
        if (strncmp(*device, libraries[i]->name, m) == 0 && (*device)[m] == ':' &&
            libraries[i] != library)
            return false;
    }
    if (strncmp(*device, library->name, n) == 0 && (*device)[n] == ':') *device += n + 1;
    return true;
}

static enum reel_status open_stream(struct microphone *m, const char *device,
                                    struct reel_error *err) {
    struct reel_error why[N_LIBRARIES] = { { 0 } };
    for (int i = 0; i < N_LIBRARIES; i++) {
        const char *name = device;
        if (!is_for(libraries[i], &name)) continue;
        enum reel_status status = libraries[i]->open(&m->stream, name, &why[i]);
        if (status == REEL_OK) {
            m->library = libraries[i];
            return REEL_OK;
        }
        if (status == REEL_E_MEMORY) return err_set(err, status, "%s", why[i].text);
    }
    return err_set(err, REEL_E_NOT_FOUND,
                   "no microphone: %s%s%s; reel transcribe --list-mics "
                   "shows those there are",
                   why[0].text, why[0].text[0] && why[1].text[0] ? "; " : "", why[1].text);
}

/* ---- the thread ---- */

/* What nobody has read for two minutes makes room. */
static void keep(struct microphone *m, const int16_t *samples, size_t n) {
    pthread_mutex_lock(&m->lock);
    const size_t lost = m->n + n > KEPT ? m->n + n - KEPT : 0;
    m->from = (m->from + lost) % KEPT;
    m->n -= lost;
    m->n_lost += lost;
    for (size_t i = 0; i < n; i++)
        m->ring[(m->from + m->n + i) % KEPT] = samples[i];
    m->n += n;
    pthread_cond_signal(&m->came);
    pthread_mutex_unlock(&m->lock);
}

static bool is_stopped(struct microphone *m) {
    pthread_mutex_lock(&m->lock);
    const bool stopped = m->stop;
    pthread_mutex_unlock(&m->lock);
    return stopped;
}

static void *hear(void *user) {
    struct microphone *m = user;
    struct reel_error failed = { 0 };
    int16_t samples[PIECE];
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && !is_stopped(m)) {
        status = m->library->read(m->stream, samples, PIECE, &failed);
        if (status == REEL_OK) keep(m, samples, PIECE);
    }
    pthread_mutex_lock(&m->lock);
    m->failed = failed;
    m->ended = true;
    pthread_cond_signal(&m->came);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* Signals are for the thread that waits for what is heard. */
static enum reel_status start(struct microphone *m, struct reel_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&m->thread, NULL, hear, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    m->started = failed == 0;
    if (!failed) return REEL_OK;
    return err_set(err, REEL_E_MEMORY, "a thread for the microphone: %s", strerror(failed));
}

enum reel_status microphone_open(struct microphone **out, const char *device,
                                 struct reel_error *err) {
    struct microphone *m = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&m, 1, sizeof *m, "a microphone", err);
    if (status != REEL_OK) return status;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->came, NULL);
    status = mem_zeroed(&m->ring, KEPT, sizeof *m->ring, "a microphone's sound", err);
    if (status == REEL_OK) status = open_stream(m, device, err);
    if (status == REEL_OK) status = start(m, err);
    if (status != REEL_OK) {
        microphone_close(m);
        return status;
    }
    *out = m;
    return REEL_OK;
}

/* ---- reading ---- */

static void wait_a_moment(struct microphone *m) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&m->came, &m->lock, &until);
}

/* Under the lock. */
static size_t take(struct microphone *m, float *out, size_t n) {
    if (n > m->n) n = m->n;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)m->ring[(m->from + i) % KEPT] / 32768.0f;
    m->from = (m->from + n) % KEPT;
    m->n -= n;
    if (m->n_lost > 0)
        (void)err_set(&m->warning, REEL_E_LIMIT,
                      "the microphone: %.1f s were lost, for the text was two minutes behind",
                      (double)m->n_lost / MICROPHONE_RATE);
    return n;
}

enum reel_status microphone_read(struct microphone *m, float *out, size_t n, size_t *n_read,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *n_read = 0;
    pthread_mutex_lock(&m->lock);
    while (m->n == 0 && !m->ended && status == REEL_OK) {
        wait_a_moment(m);
        if (!m->stop && interrupt_pending())
            status = err_set(err, REEL_E_CANCELLED, "the microphone: cancelled");
    }
    if (status == REEL_OK) *n_read = take(m, out, n);
    if (status == REEL_OK && *n_read == 0 && m->failed.status != REEL_OK)
        status = err_set(err, m->failed.status, "the microphone: %s", m->failed.text);
    pthread_mutex_unlock(&m->lock);
    return status;
}

void microphone_stop(struct microphone *m) {
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_mutex_unlock(&m->lock);
}

const char *microphone_warning(const struct microphone *m) {
    return m->warning.text[0] ? m->warning.text : NULL;
}

void microphone_close(struct microphone *m) {
    if (!m) return;
    microphone_stop(m);
    if (m->started) pthread_join(m->thread, NULL);
    if (m->library) m->library->close(m->stream);
    pthread_cond_destroy(&m->came);
    pthread_mutex_destroy(&m->lock);
    mem_free(m->ring);
    mem_free(m);
}

/* ---- the list ---- */

struct list {
    const char *library;
    int n;
};

static void print_device(void *user, const char *device, const char *says) {
    struct list *l = user;
    char name[300];
    snprintf(name, sizeof name, "%s:%s", l->library, device);
    l->n++;
    printf("%-40s %s\n", name, says);
}

enum reel_status microphone_list(struct reel_error *err) {
    struct reel_error why[N_LIBRARIES] = { { 0 } };
    int n_missing = 0, n = 0;
    for (int i = 0; i < N_LIBRARIES; i++) {
        struct list l = { .library = libraries[i]->name };
        enum reel_status status = libraries[i]->list(print_device, &l, &why[i]);
        if (status == REEL_E_MEMORY) return err_set(err, status, "%s", why[i].text);
        n_missing += status != REEL_OK;
        n += l.n;
    }
    if (n > 0) return REEL_OK;
    if (n_missing == N_LIBRARIES)
        return err_set(err, REEL_E_NOT_FOUND, "no microphone can be heard: %s; %s", why[0].text,
                       why[1].text);
    return err_set(err, REEL_E_NOT_FOUND, "there is no microphone");
}
