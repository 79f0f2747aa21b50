#include "server/crew.h"

#include "base/memory.h"

#include <pthread.h>

/* Templates are evaluated with up to 1.5 MiB of stack. */
#define STACK_BYTES ((size_t)4 << 20)

struct crew {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct crew_task *first, **last;
    int n_tasks;   /* in the list */
    int n_idle;    /* threads that wait for one */
    int n_threads; /* that were made */
    int most;
    bool over;
    pthread_t threads[]; /* [most] */
};

static void *member(void *user) {
    struct crew *c = user;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->first && !c->over) {
            c->n_idle++;
            pthread_cond_wait(&c->work, &c->lock);
            c->n_idle--;
        }
        if (!c->first) break;
        struct crew_task *task = c->first;
        c->first = task->next;
        c->n_tasks--;
        if (!c->first) c->last = &c->first;
        pthread_mutex_unlock(&c->lock);
        task->run(task);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

enum reel_status crew_open(struct crew **out, int most_threads, struct reel_error *err) {
    struct crew *c = NULL;
    size_t bytes = sizeof *c + (size_t)most_threads * sizeof(pthread_t);
    enum reel_status status = mem_zeroed(&c, 1, bytes, "threads of a server", err);
    if (status != REEL_OK) return status;
    c->most = most_threads;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    *out = c;
    return REEL_OK;
}

/* The lock is held. */
static bool add_thread(struct crew *c) {
    pthread_attr_t attributes;
    if (c->n_threads == c->most || pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    bool made = pthread_create(&c->threads[c->n_threads], &attributes, member, c) == 0;
    pthread_attr_destroy(&attributes);
    if (made) c->n_threads++;
    return made;
}

bool crew_take(struct crew *c, struct crew_task *task) {
    pthread_mutex_lock(&c->lock);
    /* a thread that was woken for an earlier task still counts as idle until it runs */
    bool free = !c->over && (c->n_tasks < c->n_idle || add_thread(c));
    if (free) {
        task->next = NULL;
        *c->last = task;
        c->last = &task->next;
        c->n_tasks++;
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return free;
}

void crew_end(struct crew *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_threads; i++)
        pthread_join(c->threads[i], NULL);
    c->n_threads = 0;
}

void crew_close(struct crew *c) {
    if (!c) return;
    crew_end(c);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}
