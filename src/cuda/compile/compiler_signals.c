#include "cuda/compile/compiler_signals.h"

#include "cuda/driver/library.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { MOST_SIGNALS = 32, LOOK_NS = 500000 };

static struct {
    pthread_mutex_t mutex; /* over what follows */
    int n_compiling;
    const void *compiler;
    struct sigaction own[MOST_SIGNALS]; /* the program's */
    bool taken[MOST_SIGNALS];           /* by the compiler, since n_compiling was 0 */
    pthread_t thread;
    bool has_thread;
    unsigned turn; /* of compiling; a thread looks in its own */
} guard = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool is_function(const struct sigaction *a) {
    return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN;
}

static bool is_compilers(const struct sigaction *a) {
    const void *function = NULL;
    memcpy(&function, &a->sa_handler, sizeof function);
    return is_function(a) && library_is_same(function, guard.compiler);
}

/* The compiler gives a handler back with signal(), which knows neither flags nor mask. What was
 * ignored is not remembered: the compiler ignores a signal for a moment before it catches it. */
static void put_back(void) {
    for (int n = 1; n < MOST_SIGNALS; n++) {
        struct sigaction now, *own = &guard.own[n];
        if (sigaction(n, NULL, &now) != 0) continue;
        if (now.sa_handler == own->sa_handler) {
            if (guard.taken[n]) sigaction(n, own, NULL);
        } else if (is_compilers(&now)) {
            guard.taken[n] = true;
            sigaction(n, own, NULL);
        } else if (is_function(&now)) {
            *own = now;
        }
    }
}

static void *look(void *turn) {
    const struct timespec pause = { 0, LOOK_NS };
    for (bool over = false; !over;) {
        pthread_mutex_lock(&guard.mutex);
        over = guard.turn != (unsigned)(uintptr_t)turn;
        if (!over) put_back();
        pthread_mutex_unlock(&guard.mutex);
        if (!over) nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Signals are for the program's own threads. Without this one handlers are put back when compiling
 * ends. */
static void start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    guard.has_thread =
        pthread_create(&guard.thread, NULL, look, (void *)(uintptr_t)guard.turn) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void compiler_signals_begin(const void *compiler) {
    pthread_mutex_lock(&guard.mutex);
    if (guard.n_compiling++ == 0) {
        guard.compiler = compiler;
        memset(guard.taken, 0, sizeof guard.taken);
        for (int n = 1; n < MOST_SIGNALS; n++)
            sigaction(n, NULL, &guard.own[n]);
        start_thread();
    }
    pthread_mutex_unlock(&guard.mutex);
}

void compiler_signals_end(void) {
    pthread_mutex_lock(&guard.mutex);
    put_back();
    const bool last = --guard.n_compiling == 0 && guard.has_thread;
    const pthread_t thread = guard.thread;
    if (last) guard.has_thread = false, guard.turn++;
    pthread_mutex_unlock(&guard.mutex);
    if (last) pthread_join(thread, NULL);
}
