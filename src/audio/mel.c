/* Log-mel features of a stream of samples. They wait in `waiting`, which is the clip with 200
 * reflected samples before it, from the first sample of the next frame on. */
#include "audio/mel.h"

#include "audio/mel_frames.h"
#include "audio/pcm.h"
#include "base/memory.h"
#include "base/thread_pool.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    EDGE = MEL_WINDOW / 2,            /* samples reflected at either end */
    N_WAITING = MEL_WINDOW + 65536,   /* what one round of frames takes from */
    LEAST_SHARED = 16,                /* frames that are worth waking threads for: to make */
    LEAST_WRITTEN = 400,              /* and to write */
    WRITE_TILE = 16,                  /* frames turned at a time: a cache line of each row */
    MOST_FRAMES = INT_MAX - N_WAITING /* 248 days */
};

/* Larger samples could make a power that float32 does not hold. */
#define LARGEST_SAMPLE 1e12f

#define LOG_RANGE 8.0f /* below the clip's maximum */

struct mel {
    struct mel_tables tables;
    mel_frames_fn *make_frames;
    struct thread_pool *pool; /* or NULL: one thread */

    float waiting[N_WAITING + MEL_READ]; /* lanes without a frame read beyond */
    int n_waiting;
    size_t n_samples; /* of the clip */
    bool reflected;   /* whether waiting's first 200 have been filled in */
    bool finished;

    float *logs; /* f32 [n_frames, MEL_BINS]: log10, not yet clamped */
    size_t frames_room;
    int n_frames;
    float maximum;
};

enum reel_status mel_open(struct mel **out, int n_threads, struct reel_error *err) {
    struct mel *m;
    enum reel_status status = mem_zeroed(&m, 1, sizeof *m, "log-mel features", err);
    *out = NULL;
    if (status == REEL_OK && n_threads > 1) status = thread_pool_open(&m->pool, n_threads, err);
    if (status != REEL_OK) {
        mel_close(m);
        return status;
    }
    mel_tables_make(&m->tables);
    m->make_frames = mel_frames_pick();
    mel_restart(m);
    *out = m;
    return REEL_OK;
}

void mel_close(struct mel *m) {
    if (!m) return;
    thread_pool_close(m->pool);
    mem_free(m->logs);
    mem_free(m);
}

void mel_restart(struct mel *m) {
    m->n_waiting = EDGE; /* to be filled in */
    m->n_samples = 0;
    m->reflected = m->finished = false;
    m->n_frames = 0;
    m->maximum = MEL_LOG_FLOOR;
}

static enum reel_status reserve_frames(struct mel *m, int n, struct reel_error *err) {
    size_t needed = (size_t)m->n_frames + (size_t)n;
    if (m->n_frames > MOST_FRAMES)
        return err_set(err, REEL_E_LIMIT, "the clip has more than %d frames of 10 ms", MOST_FRAMES);
    if (needed <= m->frames_room) return REEL_OK;
    size_t room = needed + m->frames_room / 2 + 512, bytes = room * MEL_BINS * sizeof *m->logs;
    float *logs = mem_resize(m->logs, bytes);
    if (!logs) return err_memory(err, "log-mel features", bytes);
    m->logs = logs;
    m->frames_room = room;
    return REEL_OK;
}

/* Frames [0, n) of the waiting samples, to logs [n, MEL_BINS]. */
struct round {
    struct mel *m;
    int n;
    float *logs;
};

static void compute_some(const struct round *round, int first) {
    const struct mel *m = round->m;
    float some[MEL_LANES * MEL_BINS];
    int n = round->n - first < MEL_LANES ? round->n - first : MEL_LANES;
    m->make_frames(&m->tables, m->waiting + (size_t)first * MEL_HOP, some);
    memcpy(round->logs + (size_t)first * MEL_BINS, some, (size_t)n * MEL_BINS * sizeof *some);
}

static void compute_shared(void *user, int thread, int n_threads) {
    const struct round *round = user;
    const int n_pieces = (round->n + MEL_LANES - 1) / MEL_LANES;
    (void)n_threads;
    for (int i; (i = thread_pool_take(round->m->pool, thread, n_pieces)) >= 0;)
        compute_some(round, i * MEL_LANES);
}

/* Of `least` and all of logs [n, MEL_BINS]; bins side by side, as vectors. */
static float largest(const float *logs, int n, float least) {
    float best[MEL_BINS];
    for (int bin = 0; bin < MEL_BINS; bin++)
        best[bin] = least;
    for (int i = 0; i < n; i++, logs += MEL_BINS)
        for (int bin = 0; bin < MEL_BINS; bin++)
            best[bin] = logs[bin] > best[bin] ? logs[bin] : best[bin];
    for (int bin = 0; bin < MEL_BINS; bin++)
        least = best[bin] > least ? best[bin] : least;
    return least;
}

static void compute(struct mel *m, int n, float *logs) {
    struct round round = { m, n, logs };
    if (m->pool && n >= LEAST_SHARED)
        thread_pool_run(m->pool, compute_shared, &round);
    else
        for (int i = 0; i < n; i += MEL_LANES)
            compute_some(&round, i);
    m->maximum = largest(logs, n, m->maximum);
}

/* Every frame that the waiting samples complete. */
static enum reel_status make_frames(struct mel *m, struct reel_error *err) {
    if (!m->reflected || m->n_waiting < MEL_WINDOW) return REEL_OK;
    int n = (m->n_waiting - MEL_WINDOW) / MEL_HOP + 1;
    enum reel_status status = reserve_frames(m, n, err);
    if (status != REEL_OK) return status;
    compute(m, n, m->logs + (size_t)m->n_frames * MEL_BINS);
    m->n_frames += n;
    m->n_waiting -= n * MEL_HOP;
    memmove(m->waiting, m->waiting + (size_t)n * MEL_HOP, (size_t)m->n_waiting * sizeof(float));
    return REEL_OK;
}

/* The mirror stands in the clip's first sample, which is not repeated. */
static void reflect_start(struct mel *m) {
    if (m->reflected || m->n_waiting < 2 * EDGE + 1) return;
    for (int i = 1; i <= EDGE; i++)
        m->waiting[EDGE - i] = m->waiting[EDGE + i];
    m->reflected = true;
}

/* NULL samples are zeros. */
static enum reel_status take(struct mel *m, const float *samples, size_t n,
                             struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (n && status == REEL_OK) {
        size_t room = (size_t)(N_WAITING - m->n_waiting), some = n < room ? n : room;
        float *to = m->waiting + m->n_waiting;
        if (samples) {
            memcpy(to, samples, some * sizeof *to);
            samples += some;
        } else {
            memset(to, 0, some * sizeof *to);
        }
        m->n_waiting += (int)some;
        m->n_samples += some;
        n -= some;
        reflect_start(m);
        status = make_frames(m, err);
    }
    return status;
}

enum reel_status mel_push(struct mel *m, const float *samples, size_t n, struct reel_error *err) {
    if (m->finished)
        return err_set(err, REEL_E_STATE, "samples are pushed after the end of their clip");
    if (pcm_peak(samples, n) <= LARGEST_SAMPLE) return take(m, samples, n, err);
    size_t i = 0;
    while (fabsf(samples[i]) <= LARGEST_SAMPLE)
        i++;
    return err_set(err, REEL_E_ARGUMENT, "sample %zu is %g, allowed are +-%g", m->n_samples + i,
                   (double)samples[i], (double)LARGEST_SAMPLE);
}

/* The frame that ends at most 40 samples beyond the clip, if there is one. */
static enum reel_status last_frame(struct mel *m, struct reel_error *err) {
    if (m->n_samples / MEL_HOP <= (size_t)m->n_frames) return REEL_OK;
    int end = m->n_waiting;
    assert(m->reflected && end < MEL_WINDOW && 2 * end > MEL_WINDOW);
    for (int i = 0; end + i < MEL_WINDOW; i++)
        m->waiting[end + i] = m->waiting[end - 2 - i];
    m->n_waiting = MEL_WINDOW;
    return make_frames(m, err);
}

enum reel_status mel_finish(struct mel *m, size_t least_samples, struct reel_error *err) {
    if (m->finished) return err_set(err, REEL_E_STATE, "the clip has already ended");
    if (m->n_samples && least_samples <= EDGE) least_samples = EDGE + 1;
    enum reel_status status = REEL_OK;
    if (m->n_samples < least_samples) status = take(m, NULL, least_samples - m->n_samples, err);
    if (status == REEL_OK) status = last_frame(m, err);
    m->finished = true;
    return status;
}

int mel_frames(const struct mel *m) { return m->n_frames; }

float mel_floor(const struct mel *m) { return m->maximum - LOG_RANGE; }

float mel_lowest(const struct mel *m, int first, int n) {
    assert(first >= 0 && n >= 1 && first + n <= m->n_frames);
    const float *logs = m->logs + (size_t)first * MEL_BINS;
    float best[MEL_BINS], lowest = *logs;
    memcpy(best, logs, sizeof best);
    for (int i = 0; i < n; i++, logs += MEL_BINS)
        for (int bin = 0; bin < MEL_BINS; bin++)
            best[bin] = logs[bin] < best[bin] ? logs[bin] : best[bin];
    for (int bin = 0; bin < MEL_BINS; bin++)
        lowest = best[bin] < lowest ? best[bin] : lowest;
    return lowest;
}

/* ---- as an encoder takes them ---- */

/* n frames to out. */
struct writing {
    const struct mel *m;
    const float *logs; /* of the first */
    int n;
    float *out;
};

static void write_tile(const struct writing *w, int at) {
    const int end = w->n - at < WRITE_TILE ? w->n : at + WRITE_TILE;
    const float floor = mel_floor(w->m);
    for (int bin = 0; bin < MEL_BINS; bin++)
        for (int i = at; i < end; i++) {
            float value = w->logs[(size_t)i * MEL_BINS + (size_t)bin];
            w->out[(size_t)bin * (size_t)w->n + (size_t)i] =
                ((value > floor ? value : floor) + 4) / 4;
        }
}

static void write_shared(void *user, int thread, int n_threads) {
    const struct writing *w = user;
    const int n_tiles = (w->n + WRITE_TILE - 1) / WRITE_TILE;
    (void)n_threads;
    for (int i; (i = thread_pool_take(w->m->pool, thread, n_tiles)) >= 0;)
        write_tile(w, i * WRITE_TILE);
}

void mel_write(const struct mel *m, int first, int n, float *out) {
    assert(first >= 0 && n >= 0 && first + n <= m->n_frames);
    if (n == 0) return; /* there may be no memory yet */
    struct writing w = { m, m->logs + (size_t)first * MEL_BINS, n, out };
    if (m->pool && n >= LEAST_WRITTEN)
        thread_pool_run(m->pool, write_shared, &w);
    else
        for (int at = 0; at < n; at += WRITE_TILE)
            write_tile(&w, at);
}
