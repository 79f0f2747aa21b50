/* What /v1/realtime adds to the library: short utterances, spoken in real time in pieces of 20 ms,
 * once pushed into a transcriber of this process and once sent to a server on loopback.
 *
 *   realtime_latency [SECONDS]
 *
 * Prints CSV: what,utterance,first_ms,final_ms. first_ms: from an utterance's first piece to its
 * first certain text; final_ms: from its commit to the whole text. The model is models/speech. */
#include "base/clock.h"
#include "base/json.h"
#include "server/base64.h"
#include "tests/support/served.h"
#include "tests/support/spoken.h"
#include "tests/support/ws_client.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIECE_MS = 20, TAIL_MS = 300, MOST = 200 };

#define STEP 0.5 /* seconds, as the server's on fast machines */

static struct spoken spoken;
static struct reel_error err;
static _Noreturn void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, err.text);
    exit(1);
}

static void wait_until(double ms) {
    const double left = ms - clock_ms();
    if (left <= 0) return;
    nanosleep(&(struct timespec){ (time_t)(left / 1e3), (long)(fmod(left, 1e3) * 1e6) }, NULL);
}

struct times {
    double begin, first, commit, final;
};

/* ---- the library ---- */

static bool on_text(void *user, const char *text, size_t n, int segment) {
    struct times *t = user;
    (void)text, (void)n, (void)segment;
    if (t->first == 0) t->first = clock_ms();
    return true;
}

static bool on_partial(void *user, const char *text, size_t n, int segment) {
    (void)user, (void)text, (void)n, (void)segment;
    return true;
}

static void through_library(const struct reel_model *model, const struct recording *all,
                            const size_t *ends, int n, struct times *times) {
    struct times now = { 0 };
    const struct reel_transcriber_options options = { .size = sizeof options,
                                                      .language = "en",
                                                      .stream_seconds = STEP,
                                                      .on_text = on_text,
                                                      .on_partial = on_partial,
                                                      .user = &now };
    struct reel_transcriber *t = NULL;
    if (reel_transcriber_open(&t, model, &options, &err) != REEL_OK) die("a transcriber");
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        now = (struct times){ .begin = clock_ms() };
        for (int k = 1; at < ends[i]; k++, at += PIECE_MS * 16) {
            if (reel_transcriber_push(t, all->samples + at, PIECE_MS * 16, &err) != REEL_OK)
                die("push");
            wait_until(now.begin + k * PIECE_MS);
        }
        now.commit = clock_ms();
        if (reel_transcriber_finish(t, NULL, &err) != REEL_OK) die("finish");
        now.final = clock_ms();
        times[i] = now;
    }
    reel_transcriber_close(t);
}

/* ---- the server ---- */

struct listener {
    int fd, n, done; /* utterances */
    struct times *times;
};

static void *listen_all(void *user) {
    struct listener *l = user;
    struct buffer text = { 0 };
    while (l->done < l->n && ws_receive(l->fd, &text, NULL)) {
        const double now = clock_ms();
        struct times *t = &l->times[l->done];
        if (strstr(text.bytes, "transcription.delta\"") && t->first == 0) t->first = now;
        if (strstr(text.bytes, "transcription.failed\"")) die(text.bytes);
        if (!strstr(text.bytes, "transcription.completed\"")) continue;
        t->final = now;
        l->done++;
    }
    buffer_release(&text);
    return NULL;
}

static void need(bool good, const char *what) {
    if (!good) die(what);
}

static void send_piece(int fd, const float *samples) {
    /* 16,000 Hz to 24,000 Hz by straight lines */
    int16_t pcm[PIECE_MS * 24];
    struct buffer m = { 0 };
    for (int i = 0; i < PIECE_MS * 24; i++) {
        const int at = i * 2 / 3;
        const float part = (float)(i * 2 % 3) / 3,
                    value = samples[at] + part * (samples[at + 1] - samples[at]);
        pcm[i] = (int16_t)lrintf(fmaxf(-1, fminf(value, 0.9999f)) * 32767);
    }
    need(buffer_text(&m, "{\"type\":\"input_audio_buffer.append\",\"audio\":\"", &err) == REEL_OK &&
             base64_write(&m, pcm, sizeof pcm, &err) == REEL_OK &&
             buffer_text(&m, "\"}", &err) == REEL_OK,
         "a message");
    need(ws_send(fd, m.bytes, m.size), "append");
    buffer_release(&m);
}

static void through_server(int port, const struct recording *all, const size_t *ends, int n,
                           struct times *times) {
    static const char update[] =
        "{\"type\":\"session.update\",\"session\":{\"type\":\"transcription\",\"audio\":{"
        "\"input\":{\"transcription\":{\"language\":\"en\"},\"turn_detection\":null}}}}";
    static const char commit[] = "{\"type\":\"input_audio_buffer.commit\"}";
    struct listener l = { .n = n, .times = times };
    struct buffer text = { 0 };
    pthread_t thread;
    l.fd = ws_connect(port, "/v1/realtime?intent=transcription", NULL, NULL);
    need(l.fd >= 0 && ws_receive(l.fd, &text, NULL) && ws_send(l.fd, update, sizeof update - 1) &&
             ws_receive(l.fd, &text, NULL) && strstr(text.bytes, "session.updated"),
         "a session");
    buffer_release(&text);
    need(pthread_create(&thread, NULL, listen_all, &l) == 0, "a thread");
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        times[i].begin = clock_ms();
        for (int k = 1; at < ends[i]; k++, at += PIECE_MS * 16) {
            send_piece(l.fd, all->samples + at);
            wait_until(times[i].begin + k * PIECE_MS);
        }
        times[i].commit = clock_ms();
        need(ws_send(l.fd, commit, sizeof commit - 1), "commit");
        wait_until(clock_ms() + 200); /* its text has come when the next one begins */
    }
    pthread_join(thread, NULL);
    close(l.fd);
}

static void print(const char *what, const struct times *t, int n) {
    for (int i = 0; i < n; i++)
        printf("%s,%d,%.2f,%.2f\n", what, i, t[i].first - t[i].begin, t[i].final - t[i].commit);
}

int main(int argc, char **argv) {
    static struct times library[MOST], server[MOST];
    static size_t ends[MOST];
    const double seconds = argc > 1 ? atof(argv[1]) : 60;
    const struct reel_model_options cpu = { .size = sizeof cpu, .device = "cpu", .n_threads = 1 };
    struct served served = { .sources = { { .name = "speech", .folder = "models/speech" } } };
    struct recording all = { 0 };
    struct reel_model *model = NULL;
    int n = 0;
    spoken_open(&spoken);
    /* Two clips and a pause are an utterance: its first words are certain before it ends. */
    for (; n < MOST && (double)all.n < seconds * SPOKEN_RATE; n++) {
        for (int k = 0; k < 2; k++) {
            const struct spoken_clip *clip = &spoken.clips[(2 * n + k) % SPOKEN_CLIPS];
            recording_add(&all, clip->samples, clip->n);
        }
        recording_pause(&all, TAIL_MS / 1e3);
        recording_pause(&all, (double)(320 - all.n % 320) / SPOKEN_RATE);
        ends[n] = all.n / 320 * 320;
    }
    recording_pause(&all, 0.1);
    if (reel_model_open(&model, "models/speech", &cpu, &err) != REEL_OK) die("models/speech");
    if (!served_open(&served)) die(served.err.text);
    printf("what,utterance,first_ms,final_ms\n");
    through_library(model, &all, ends, n, library);
    print("library", library, n);
    through_server(served.port, &all, ends, n, server);
    print("server", server, n);
    served_close(&served);
    reel_model_close(model);
    recording_release(&all);
    spoken_close(&spoken);
    return 0;
}
