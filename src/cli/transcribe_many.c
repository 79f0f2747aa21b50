/* Workers take the recordings in their order and leave what they made in a slot each: text as it
 * comes, then the whole transcript and what is to be said of it. The calling thread goes through
 * the slots in order and writes, so that only it touches the output. */
#include "cli/transcribe_many.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/live_view.h"
#include "cli/progress.h"
#include "cli/sound.h"
#include "cli/terminal.h"
#include "cli/transcript_notes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = REEL_AUDIO_RATE, /* samples read at once at most: a second */
    LOOK_MS = 100            /* between looks for Ctrl-C and progress */
};

enum slot_state { SLOT_WAITING, SLOT_RUNNING, SLOT_DONE };

/* What became of a recording. Written by its worker with the mutex held while it runs, then by
 * nobody. */
struct slot {
    enum slot_state state;
    struct buffer text; /* as it came, where it goes to standard output */
    double done_ms, seconds;
    /* Of one that is done. */
    enum reel_status status;
    struct reel_error err;
    bool unreadable;
    char *made; /* [n_made] the transcript in the output's format, or NULL */
    size_t n_made;
    struct reel_transcript figures; /* only its numbers are valid */
    struct buffer notes;            /* for standard error */
};

struct worker {
    struct crew *crew;
    struct reel_transcriber *transcriber;
    float *samples; /* [PIECE] */
    struct slot *slot;
    double start_ms;
    pthread_t thread;
};

struct crew {
    const struct transcribe_many *many;
    struct worker *workers; /* [n_workers] */
    int n_workers;
    struct slot *slots; /* [out->n_names] */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int next;     /* recording that nobody has taken */
    int last;     /* later ones are not wanted any more; they stop */
    size_t shown; /* of the text of the slot at hand: the calling thread's */
    bool headed;
    struct live_view view;
    struct progress progress;
};

bool transcribing_stops(enum reel_status status, bool unreadable) {
    if (status == REEL_E_CANCELLED) return true;
    return !unreadable &&
           (status == REEL_E_IO || status == REEL_E_MEMORY || status == REEL_E_DEVICE);
}

/* ---- a worker ---- */

static int index_of(const struct worker *w) { return (int)(w->slot - w->crew->slots); }

static bool go_on(const struct worker *w) {
    return !interrupt_pending() && index_of(w) <= w->crew->last && !ferror(stdout);
}

static bool on_text(void *user, const char *text, size_t n_bytes, int segment) {
    struct worker *w = user;
    struct crew *c = w->crew;
    (void)segment;
    pthread_mutex_lock(&c->mutex);
    bool good = go_on(w);
    if (good && c->many->live)
        good = buffer_append(&w->slot->text, text, n_bytes, &w->slot->err) == REEL_OK;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return good;
}

static bool on_progress(void *user, const char *stage, uint64_t done_ms, uint64_t total) {
    struct worker *w = user;
    (void)stage;
    (void)total;
    pthread_mutex_lock(&w->crew->mutex);
    w->slot->done_ms = (double)done_ms;
    const bool good = go_on(w);
    pthread_mutex_unlock(&w->crew->mutex);
    return good;
}

static enum reel_status hear(struct worker *w, struct sound *sound, bool *unreadable,
                             struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (status == REEL_OK) {
        size_t n = 0;
        status = sound_read(sound, w->samples, PIECE, &n, err);
        *unreadable = status != REEL_OK;
        if (status != REEL_OK || n == 0) break;
        status = reel_transcriber_push(w->transcriber, w->samples, n, err);
    }
    return status;
}

/* Text and notes of a recording that was heard to its end. */
static enum reel_status keep(struct worker *w, const struct sound *sound,
                             const struct reel_transcript *t, struct reel_error *err) {
    const struct transcribe_many *many = w->crew->many;
    const char *name = many->out->names[index_of(w)];
    struct slot *slot = w->slot;
    enum reel_status status = REEL_OK;
    slot->figures = *t;
    if (sound_warning(sound))
        status = buffer_printf(&slot->notes, err, "reel: %s\n", sound_warning(sound));
    if (status == REEL_OK) status = note_cut_short(&slot->notes, name, t, err);
    if (status == REEL_OK && !many->quiet) {
        status = note_figures(&slot->notes, name, t, clock_ms() - w->start_ms, err);
        if (status == REEL_OK) status = buffer_text(&slot->notes, "\n", err);
    }
    if (status == REEL_OK && !many->live)
        status = reel_transcript_text(t, many->out->format, &slot->made, &slot->n_made, err);
    return status;
}

/* What is finished of a recording that goes no further. */
static void keep_part(struct worker *w) {
    const struct transcribe_many *many = w->crew->many;
    struct reel_transcript part = { .size = sizeof part };
    if (many->live) return; /* it is on its way already */
    if (reel_transcriber_so_far(w->transcriber, &part, NULL) != REEL_OK) return;
    w->slot->figures = part;
    if (part.n_segments == 0) return;
    if (reel_transcript_text(&part, many->out->format, &w->slot->made, &w->slot->n_made, NULL) !=
        REEL_OK)
        w->slot->made = NULL;
}

static void transcribe(struct worker *w) {
    const struct transcribe_many *many = w->crew->many;
    struct reel_transcript transcript = { .size = sizeof transcript };
    struct reel_error err = { 0 };
    struct slot *slot = w->slot;
    struct sound sound;
    w->start_ms = clock_ms();
    reel_transcriber_reset(w->transcriber);
    enum reel_status status = sound_open(&sound, many->args, many->out->names[index_of(w)], &err);
    slot->unreadable = status != REEL_OK;
    if (status == REEL_OK) {
        pthread_mutex_lock(&w->crew->mutex);
        slot->seconds = sound_seconds(&sound);
        pthread_mutex_unlock(&w->crew->mutex);
        status = hear(w, &sound, &slot->unreadable, &err);
    }
    if (status == REEL_OK) status = reel_transcriber_finish(w->transcriber, &transcript, &err);
    if (status == REEL_OK)
        status = keep(w, &sound, &transcript, &err);
    else
        keep_part(w);
    sound_close(&sound);
    if (slot->err.status == REEL_OK) slot->err = err; /* else there was no memory for its text */
    slot->status = slot->err.status == REEL_OK ? status : slot->err.status;
}

/* The next recording, or none. */
static bool take(struct worker *w) {
    struct crew *c = w->crew;
    pthread_mutex_lock(&c->mutex);
    const bool more = c->next < c->many->out->n_names && c->next <= c->last && !interrupt_pending();
    if (more) {
        w->slot = &c->slots[c->next++];
        w->slot->state = SLOT_RUNNING;
    }
    pthread_mutex_unlock(&c->mutex);
    return more;
}

static void *work(void *of) {
    struct worker *w = of;
    struct crew *c = w->crew;
    while (take(w)) {
        transcribe(w);
        pthread_mutex_lock(&c->mutex);
        w->slot->state = SLOT_DONE;
        if (transcribing_stops(w->slot->status, w->slot->unreadable) && index_of(w) < c->last)
            c->last = index_of(w);
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->mutex);
    }
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- the calling thread: what is written ---- */

static void put_heading(struct crew *c, int index) {
    if (!c->headed) transcript_out_heading(c->many->out, index);
    c->headed = true;
}

/* With the mutex held: the text that came since. */
static void show_text(struct crew *c, int index) {
    struct slot *slot = &c->slots[index];
    if (!c->many->live || c->shown == slot->text.size) return;
    progress_end(&c->progress);
    put_heading(c, index);
    live_view_text(&c->view, slot->text.bytes + c->shown, slot->text.size - c->shown);
    c->shown = slot->text.size;
    fflush(stdout);
}

static void look(struct crew *c) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    (void)pthread_cond_timedwait(&c->changed, &c->mutex, &until);
}

/* Until the recording is done; false: nobody takes it any more. */
static bool wait_for(struct crew *c, int index) {
    struct slot *slot = &c->slots[index];
    pthread_mutex_lock(&c->mutex);
    while (slot->state != SLOT_DONE) {
        if (slot->state == SLOT_WAITING && (index > c->last || interrupt_pending())) break;
        show_text(c, index);
        const uint64_t done = (uint64_t)(slot->done_ms / 1e3);
        const uint64_t total = slot->seconds > 0 ? (uint64_t)(slot->seconds + 0.999) : 0;
        (void)progress_update(&c->progress, "transcribing", done, total);
        look(c);
    }
    const bool done = slot->state == SLOT_DONE;
    if (done) show_text(c, index);
    pthread_mutex_unlock(&c->mutex);
    return done;
}

/* Of a recording that is done. */
static enum reel_status put(struct crew *c, int index, struct reel_error *err) {
    struct transcript_out *out = c->many->out;
    struct slot *slot = &c->slots[index];
    const char *problem = slot->status == REEL_OK ? NULL : slot->err.text;
    enum reel_status status = REEL_OK;
    progress_end(&c->progress);
    if (c->many->live) {
        if (slot->status == REEL_OK) put_heading(c, index);
        live_view_end(&c->view);
        if (slot->status == REEL_OK || c->shown > 0) putchar('\n');
    } else if (slot->made) {
        status =
            transcript_out_put(out, index, slot->made, slot->n_made, &slot->figures, problem, err);
    } else {
        status = transcript_out_fail(out, index, problem, err);
    }
    fflush(stdout);
    if (slot->notes.size > 0) fputs(slot->notes.bytes, stderr);
    return status;
}

/* All that is begun, in order. The first failure is the status; those that stop nothing are said
 * here. */
static enum reel_status write_all(struct crew *c, struct reel_error *err) {
    const int n = c->many->out->n_names;
    enum reel_status first = REEL_OK, stopped = REEL_OK;
    struct reel_error own = { 0 };
    int n_failed = 0;
    for (int i = 0; i < n; i++) {
        c->shown = 0;
        c->headed = false;
        live_view_start(&c->view, stdout);
        progress_start(&c->progress);
        if (c->many->live && terminal_is(stdout)) c->progress.enabled = false;
        if (!wait_for(c, i)) break;
        const struct slot *slot = &c->slots[i];
        const enum reel_status written = put(c, i, &own);
        if (written != REEL_OK && stopped == REEL_OK)
            stopped = err_set(err, written, "%s", own.text);
        if (slot->status == REEL_OK || stopped != REEL_OK) continue;
        if (transcribing_stops(slot->status, slot->unreadable)) {
            stopped = err_set(err, slot->status, "%s", slot->err.text);
            continue;
        }
        if (n_failed++ == 0) first = slot->status;
        fprintf(stderr, "reel: %s\n", slot->err.text);
    }
    progress_end(&c->progress);
    if (stopped != REEL_OK) return stopped;
    if (c->next < n) return err_set(err, REEL_E_CANCELLED, "cancelled");
    if (n_failed > 0) fprintf(stderr, "reel: %d of %d recordings failed\n", n_failed, n);
    return first;
}

/* ---- all of it ---- */

static enum reel_status open_worker(struct crew *c, struct worker *w, struct reel_error *err) {
    struct reel_transcriber_options set = *c->many->set;
    w->crew = c;
    set.on_text = on_text;
    set.on_partial = NULL;
    set.user = w;
    set.progress = on_progress;
    set.progress_user = w;
    w->samples = mem_alloc(PIECE * sizeof *w->samples);
    if (!w->samples) return err_memory(err, "samples", PIECE * sizeof *w->samples);
    return reel_transcriber_open(&w->transcriber, c->many->model, &set, err);
}

/* As many as there is memory for, at least one. */
static enum reel_status open_crew(struct crew *c, struct reel_error *err) {
    const int n = c->many->out->n_names;
    const int at_once = c->many->at_once < n ? c->many->at_once : n;
    struct reel_error why = { 0 };
    c->last = n;
    enum reel_status status = mem_zeroed(&c->slots, (size_t)n, sizeof *c->slots, "recordings", err);
    if (status == REEL_OK)
        status = mem_zeroed(&c->workers, (size_t)at_once, sizeof *c->workers, "workers", err);
    if (status != REEL_OK) return status;
    for (; c->n_workers < at_once; c->n_workers++) {
        struct worker *w = &c->workers[c->n_workers];
        status = open_worker(c, w, &why);
        if (status == REEL_OK) continue;
        mem_free(w->samples);
        break;
    }
    if (c->n_workers > 0) return REEL_OK;
    return err_set(err, status, "%s%s", why.text,
                   status == REEL_E_LIMIT ? "; see --segment and --tokens" : "");
}

static void close_crew(struct crew *c) {
    for (int i = 0; i < c->n_workers; i++) {
        reel_transcriber_close(c->workers[i].transcriber);
        mem_free(c->workers[i].samples);
    }
    for (int i = 0; c->slots && i < c->many->out->n_names; i++) {
        buffer_release(&c->slots[i].text);
        buffer_release(&c->slots[i].notes);
        reel_free(c->slots[i].made);
    }
    mem_free(c->workers);
    mem_free(c->slots);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
}

enum reel_status transcribe_many(const struct transcribe_many *many, struct reel_error *err) {
    struct crew c = { .many = many,
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER };
    int started = 0;
    enum reel_status status = open_crew(&c, err);
    for (; started < c.n_workers && status == REEL_OK; started++)
        if (pthread_create(&c.workers[started].thread, NULL, work, &c.workers[started]) != 0) {
            if (started == 0) status = err_set(err, REEL_E_MEMORY, "no thread can be started");
            break;
        }
    if (status == REEL_OK) status = write_all(&c, err);
    for (int i = 0; i < started; i++)
        pthread_join(c.workers[i].thread, NULL);
    close_crew(&c);
    return status;
}
