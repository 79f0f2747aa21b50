/* Streams: a thread each that does what was queued, in order. The default stream is one of them. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM_NON_BLOCKING = 1, WORKER_STACK = 1 << 20 };

struct fake_stream {
    pthread_t thread;
    struct fake_work *first, *last;
    bool busy, closing, blocking;
    struct fake_stream *next;
};

struct fake_event {
    unsigned recorded, reached; /* how many times; reached follows */
    double at;
    unsigned fills[SIM_MOST_GPUS]; /* as fills_before, when it was last recorded */
};

/* One lock and one condition for all: there are few streams and waits are long. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fake_stream *streams;
static struct fake_stream *default_stream[SIM_MOST_GPUS];
static int n_waiting; /* streams at an event that is not reached */

/* Fills queued in each GPU's default stream, and how many of them come before what is queued in
 * another's. */
static unsigned fills[SIM_MOST_GPUS], fills_before[SIM_MOST_GPUS][SIM_MOST_GPUS];
static _Thread_local unsigned own_fills[SIM_MOST_GPUS]; /* the calling thread's last ones */

static bool is_default(CUstream stream) { return (uintptr_t)stream <= 2; }

static void raise_to(unsigned *to, const unsigned *from) {
    for (int gpu = 0; gpu < SIM_MOST_GPUS; gpu++)
        if (from[gpu] > to[gpu]) to[gpu] = from[gpu];
}

void fake_note_fill(CUstream stream) {
    const int gpu = fake_current_gpu();
    if (!is_default(stream)) return;
    pthread_mutex_lock(&lock);
    own_fills[gpu] = fills_before[gpu][gpu] = ++fills[gpu];
    pthread_mutex_unlock(&lock);
}

bool fake_fills_over(void) {
    const int gpu = fake_current_gpu();
    int missed = -1;
    pthread_mutex_lock(&lock);
    for (int other = 0; other < SIM_MOST_GPUS; other++)
        if (fills_before[gpu][other] < own_fills[other]) missed = other;
    pthread_mutex_unlock(&lock);
    if (missed >= 0)
        fake_report("the launch on GPU %d does not wait for a fill on GPU %d", gpu, missed);
    return missed < 0;
}

/* The host has waited for all that a GPU's default stream had. */
static void know_of(const unsigned *over) {
    for (int gpu = 0; gpu < SIM_MOST_GPUS; gpu++)
        raise_to(fills_before[gpu], over);
}

void fake_be_late(void) {
    enum { LATE_MS = 300 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LATE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    while (n_waiting == 0 && pthread_cond_timedwait(&changed, &lock, &until) == 0) {
    }
    pthread_mutex_unlock(&lock);
}

static void *stream_main(void *of) {
    struct fake_stream *s = of;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct fake_work *work = s->first;
        if (!work && s->closing) break;
        if (!work) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        s->first = work->next;
        s->busy = true;
        pthread_mutex_unlock(&lock);
        if (fake_status() == CU_OK) work->run(work);
        work->drop(work);
        pthread_mutex_lock(&lock);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct fake_stream *stream_open(bool blocking) {
    struct fake_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->blocking = blocking;
    if (pthread_create(&s->thread, NULL, stream_main, s)) {
        free(s);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    return s;
}

static struct fake_stream *stream_of(CUstream handle) {
    if ((uintptr_t)handle > 2) return handle;
    pthread_mutex_lock(&lock);
    struct fake_stream **of = &default_stream[fake_current_gpu()], *s = *of;
    pthread_mutex_unlock(&lock);
    if (!s) s = *of = stream_open(true);
    return s;
}

static void wait_idle(struct fake_stream *s) {
    pthread_mutex_lock(&lock);
    while (s->first || s->busy)
        pthread_cond_wait(&changed, &lock);
    for (int gpu = 0; gpu < SIM_MOST_GPUS; gpu++)
        if (s == default_stream[gpu]) know_of(fills_before[gpu]);
    pthread_mutex_unlock(&lock);
}

static void wait_streams(bool blocking_only) {
    pthread_mutex_lock(&lock);
    for (struct fake_stream *s = streams; s;) {
        if ((!blocking_only || s->blocking) && (s->first || s->busy)) {
            pthread_cond_wait(&changed, &lock);
            s = streams;
        } else {
            s = s->next;
        }
    }
    know_of(fills);
    pthread_mutex_unlock(&lock);
}

void fake_wait_all(void) { wait_streams(false); }
void fake_wait_blocking(void) { wait_streams(true); }

CUresult fake_submit(CUstream stream, struct fake_work *work) {
    struct fake_stream *s = stream_of(stream);
    if (!s) {
        work->drop(work);
        return CU_OUT_OF_MEMORY;
    }
    work->next = NULL;
    pthread_mutex_lock(&lock);
    if (s->first)
        s->last->next = work;
    else
        s->first = work;
    s->last = work;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CU_OK;
}

/* ---- streams ---- */

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags);
EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
EXPORT CUresult cuStreamSynchronize(CUstream stream);
EXPORT CUresult cuStreamQuery(CUstream stream);

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(true);
    *stream = stream_open(!(flags & STREAM_NON_BLOCKING));
    if (!*stream) return CU_OUT_OF_MEMORY;
    fake.live.streams++;
    return CU_OK;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUresult status = fake_enter(__func__, true);
    if ((uintptr_t)stream <= 2) return CU_INVALID_HANDLE;
    wait_idle(stream);
    pthread_mutex_lock(&lock);
    stream->closing = true;
    struct fake_stream **link = &streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link) *link = stream->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    fake.live.streams--;
    return status;
}

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER(true);
    struct fake_stream *s = stream_of(stream);
    if (!s) return CU_OUT_OF_MEMORY;
    wait_idle(s);
    return fake_status();
}

CUresult cuStreamQuery(CUstream stream) {
    ENTER(true);
    struct fake_stream *s = stream_of(stream);
    if (!s) return CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    bool idle = !s->first && !s->busy;
    pthread_mutex_unlock(&lock);
    return idle ? fake_status() : CU_NOT_READY;
}

/* ---- events ---- */

struct event_work {
    struct fake_work work;
    struct fake_event *event;
    unsigned number;
};

static void event_reach(struct fake_work *work) {
    struct event_work *w = (struct event_work *)work;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&lock);
    w->event->reached = w->number;
    w->event->at = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void event_wait(struct fake_work *work) {
    const struct event_work *w = (const struct event_work *)work;
    pthread_mutex_lock(&lock);
    n_waiting++;
    pthread_cond_broadcast(&changed);
    while (w->event->reached < w->number && fake_status() == CU_OK)
        pthread_cond_wait(&changed, &lock);
    n_waiting--;
    pthread_mutex_unlock(&lock);
}

static void event_drop(struct fake_work *work) { free(work); }

static CUresult event_submit(CUstream stream, CUevent event, unsigned number,
                             void (*run)(struct fake_work *)) {
    struct event_work *w = calloc(1, sizeof *w);
    if (!w) return CU_OUT_OF_MEMORY;
    w->work.run = run, w->work.drop = event_drop;
    w->event = event, w->number = number;
    return fake_submit(stream, &w->work);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags);
EXPORT CUresult cuEventDestroy_v2(CUevent event);
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
EXPORT CUresult cuEventSynchronize(CUevent event);
EXPORT CUresult cuEventQuery(CUevent event);
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to);
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER(true);
    (void)flags;
    *event = calloc(1, sizeof **event);
    if (!*event) return CU_OUT_OF_MEMORY;
    fake.live.events++;
    return CU_OK;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUresult status = fake_enter(__func__, true);
    fake_wait_all();
    free(event);
    fake.live.events--;
    return status;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(true);
    if (is_default(stream)) {
        pthread_mutex_lock(&lock);
        memcpy(event->fills, fills_before[fake_current_gpu()], sizeof event->fills);
        pthread_mutex_unlock(&lock);
    }
    return event_submit(stream, event, ++event->recorded, event_reach);
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER(true);
    pthread_mutex_lock(&lock);
    while (event->reached < event->recorded && fake_status() == CU_OK)
        pthread_cond_wait(&changed, &lock);
    know_of(event->fills);
    pthread_mutex_unlock(&lock);
    return fake_status();
}

CUresult cuEventQuery(CUevent event) {
    ENTER(true);
    pthread_mutex_lock(&lock);
    bool done = event->reached == event->recorded;
    pthread_mutex_unlock(&lock);
    return done || fake_status() != CU_OK ? fake_status() : CU_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    ENTER(true);
    if (!from->recorded || !to->recorded) return CU_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    bool done = from->reached == from->recorded && to->reached == to->recorded;
    *ms = (float)(to->at - from->at);
    pthread_mutex_unlock(&lock);
    return done ? CU_OK : CU_NOT_READY;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to) {
    return cuEventElapsedTime(ms, from, to);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    ENTER(true);
    (void)flags;
    if (is_default(stream)) {
        pthread_mutex_lock(&lock);
        raise_to(fills_before[fake_current_gpu()], event->fills);
        pthread_mutex_unlock(&lock);
    }
    return event_submit(stream, event, event->recorded, event_wait);
}
