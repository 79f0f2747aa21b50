#include "server/crew.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

/* Templates are evaluated with up to 1.5 MiB of stack. */
#define STACK_BYTES ((size_t)4 << 20)

/* One that is woken has its task and needs no lock, which who woke it may still have. */
struct member {
    struct crew *crew;
    pthread_t thread;
    sem_t work;
    struct crew_task *task; /* NULL at a wake: the end */
    struct member *next;    /* of those who are idle */
};

/* Who became idle last is woken first: its stack, and what malloc keeps for it, are in a core's
 * cache, and a server of few requests uses the memory of few threads. */
struct crew {
    pthread_mutex_t lock;
    struct member *idle;
    int n_members; /* that were made */
    int most;
    bool over;
    struct member members[]; /* [most] */
};

/* False: there is no more to do. */
static bool become_idle(struct member *m) {
    struct crew *c = m->crew;
    pthread_mutex_lock(&c->lock);
    const bool stays = !c->over;
    if (stays) {
        m->next = c->idle;
        c->idle = m;
    }
    pthread_mutex_unlock(&c->lock);
    return stays;
}

static void *work(void *user) {
    struct member *m = user;
    do {
        while (sem_wait(&m->work) != 0 && errno == EINTR) {
        }
        if (!m->task) break;
        m->task->run(m->task);
    } while (become_idle(m));
    return NULL;
}

int crew_idle(struct crew *c) {
    int n = 0;
    pthread_mutex_lock(&c->lock);
    for (const struct member *m = c->idle; m; m = m->next)
        n++;
    pthread_mutex_unlock(&c->lock);
    return n;
}

enum reel_status crew_open(struct crew **out, int most_threads, struct reel_error *err) {
    struct crew *c = NULL;
    size_t bytes = sizeof *c + (size_t)most_threads * sizeof *c->members;
    enum reel_status status = mem_zeroed(&c, 1, bytes, "threads of a server", err);
    if (status != REEL_OK) return status;
    c->most = most_threads;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return REEL_OK;
}

/* The lock is held. NULL: there are as many as may be, or the system makes no more. */
static struct member *add_member(struct crew *c) {
    pthread_attr_t attributes;
    if (c->n_members == c->most || pthread_attr_init(&attributes) != 0) return NULL;
    struct member *m = &c->members[c->n_members];
    m->crew = c;
    sem_init(&m->work, 0, 0);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const bool made = pthread_create(&m->thread, &attributes, work, m) == 0;
    pthread_attr_destroy(&attributes);
    if (made) {
        c->n_members++;
    } else {
        sem_destroy(&m->work);
    }
    return made ? m : NULL;
}

/* The lock is held. */
static struct member *take_idle(struct crew *c) {
    struct member *m = c->idle;
    if (m) c->idle = m->next;
    return m;
}

bool crew_take(struct crew *c, struct crew_task *task) {
    struct member *m = NULL;
    pthread_mutex_lock(&c->lock);
    if (!c->over) m = take_idle(c);
    if (!c->over && !m) m = add_member(c);
    pthread_mutex_unlock(&c->lock);
    if (!m) return false;
    m->task = task;
    sem_post(&m->work);
    return true;
}

void crew_end(struct crew *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    for (struct member *m = take_idle(c); m; m = take_idle(c)) {
        m->task = NULL;
        sem_post(&m->work);
    }
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_members; i++) {
        pthread_join(c->members[i].thread, NULL);
        sem_destroy(&c->members[i].work);
    }
    c->n_members = 0;
}

void crew_close(struct crew *c) {
    if (!c) return;
    crew_end(c);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}
