/* One thread with an epoll of its own. A socket is in it while its request is being answered; the
 * kernel says when the other side hangs up, and, where that was asked, when it reads on. */
#include "server/watch.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_MS 500 /* how often slow requests are looked for */
#define WAKE    UINT64_MAX

struct entry {
    bool open, in_epoll, timed;
    uint32_t turn;   /* counts watch_handling: an event of an earlier connection is known by it */
    void *user;      /* or NULL: it is receiving */
    double until_ms; /* where timed */
};

struct watch {
    pthread_mutex_t lock;
    pthread_t thread;
    bool running;
    int epoll, wake;
    double timeout_ms;
    struct watch_calls calls;
    struct entry *entries; /* [n_entries] by descriptor */
    int n_entries, n_open;
    bool over, ended;
};

/* An event's data: the descriptor, and above it the turn. */
static uint64_t data_of(const struct entry *e, int fd) {
    return (uint64_t)e->turn << 32 | (uint32_t)fd;
}

static bool listen_for(struct watch *w, const struct entry *e, int fd, int how, uint32_t events) {
    struct epoll_event event = { .events = events, .data.u64 = data_of(e, fd) };
    return epoll_ctl(w->epoll, how, fd, &event) == 0;
}

/* Since epoll_wait returned, the descriptor may have become another connection's. */
static void has_event(struct watch *w, const struct epoll_event *event) {
    const uint64_t data = event->data.u64;
    const int fd = (int)(uint32_t)data;
    pthread_mutex_lock(&w->lock);
    struct entry *e = fd < w->n_entries ? &w->entries[fd] : NULL;
    if (!e || !e->open || !e->in_epoll || data_of(e, fd) != data) {
        /* nobody's */
    } else if (event->events & ~(uint32_t)EPOLLOUT) {
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL); /* it would be told again and again */
        e->in_epoll = false;
        if (e->user) w->calls.left(e->user);
    } else if (!e->user || w->calls.room(e->user)) {
        listen_for(w, e, fd, EPOLL_CTL_MOD, EPOLLRDHUP);
    }
    pthread_mutex_unlock(&w->lock);
}

static void shut_slow(struct watch *w) {
    double now = clock_ms();
    pthread_mutex_lock(&w->lock);
    for (int fd = 0; fd < w->n_entries; fd++) {
        struct entry *e = &w->entries[fd];
        if (!e->open || !e->timed || now < e->until_ms) continue;
        shutdown(fd, SHUT_RDWR); /* the HTTP library sees the end and closes it */
        e->until_ms = now + w->timeout_ms;
    }
    pthread_mutex_unlock(&w->lock);
}

static void *look(void *user) {
    struct watch *w = user;
    double next = clock_ms() + LOOK_MS;
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(w->epoll, events, 64, LOOK_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 != WAKE) has_event(w, &events[i]);
        pthread_mutex_lock(&w->lock);
        bool over = w->over;
        pthread_mutex_unlock(&w->lock);
        if (over) return NULL;
        if (clock_ms() >= next) {
            shut_slow(w);
            next = clock_ms() + LOOK_MS;
        }
    }
}

static enum reel_status start(struct watch *w, struct reel_error *err) {
    struct epoll_event event = { .events = EPOLLIN };
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.u64 = WAKE;
    if (w->epoll < 0 || w->wake < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &event) != 0)
        return err_set(err, REEL_E_IO, "watching connections: %s", strerror(errno));
    w->running = pthread_create(&w->thread, NULL, look, w) == 0;
    if (!w->running) return err_memory(err, "a thread that watches connections", 0);
    return REEL_OK;
}

enum reel_status watch_open(struct watch **out, double timeout_ms, const struct watch_calls *calls,
                            struct reel_error *err) {
    struct watch *w = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&w, 1, sizeof *w, "a watch of connections", err);
    if (status != REEL_OK) return status;
    w->epoll = w->wake = -1;
    w->timeout_ms = timeout_ms;
    w->calls = *calls;
    pthread_mutex_init(&w->lock, NULL);
    status = start(w, err);
    if (status != REEL_OK) {
        watch_close(w);
        return status;
    }
    *out = w;
    return REEL_OK;
}

void watch_end(struct watch *w) {
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    for (int fd = 0; fd < w->n_entries; fd++)
        if (w->entries[fd].open && w->entries[fd].user) w->calls.left(w->entries[fd].user);
    pthread_mutex_unlock(&w->lock);
}

void watch_close(struct watch *w) {
    if (!w) return;
    if (w->running) {
        pthread_mutex_lock(&w->lock);
        w->over = true;
        pthread_mutex_unlock(&w->lock);
        eventfd_write(w->wake, 1);
        pthread_join(w->thread, NULL);
    }
    if (w->epoll >= 0) close(w->epoll);
    if (w->wake >= 0) close(w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->entries);
    mem_free(w);
}

/* The lock is held. NULL: no memory, the connection goes without a watch. */
static struct entry *entry_of(struct watch *w, int fd) {
    if (fd < 0) return NULL;
    if (fd >= w->n_entries) {
        int n = fd + 64;
        struct entry *entries = mem_resize(w->entries, (size_t)n * sizeof *entries);
        if (!entries) return NULL;
        memset(entries + w->n_entries, 0, (size_t)(n - w->n_entries) * sizeof *entries);
        w->entries = entries;
        w->n_entries = n;
    }
    return &w->entries[fd];
}

static void leave_epoll(struct watch *w, struct entry *e, int fd) {
    if (e->in_epoll) epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    e->in_epoll = false;
    e->user = NULL;
}

static void give_time(struct watch *w, struct entry *e, double extra_ms) {
    e->timed = true;
    e->until_ms = clock_ms() + w->timeout_ms + extra_ms;
}

/* The lock is held. */
static struct entry *open_entry(struct watch *w, int fd) {
    return fd >= 0 && fd < w->n_entries && w->entries[fd].open ? &w->entries[fd] : NULL;
}

void watch_receiving(struct watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    struct entry *e = entry_of(w, fd);
    if (e) {
        leave_epoll(w, e, fd);
        if (!e->open) w->n_open++;
        e->open = true;
        give_time(w, e, 0);
    }
    pthread_mutex_unlock(&w->lock);
}

void watch_more(struct watch *w, int fd, double ms) {
    pthread_mutex_lock(&w->lock);
    struct entry *e = open_entry(w, fd);
    if (e) e->until_ms += ms;
    pthread_mutex_unlock(&w->lock);
}

void watch_answered(struct watch *w, int fd, const void *user, double extra_ms) {
    pthread_mutex_lock(&w->lock);
    struct entry *e = open_entry(w, fd);
    if (e && e->user == user) give_time(w, e, extra_ms);
    pthread_mutex_unlock(&w->lock);
}

void watch_shut(struct watch *w, int fd, const void *user) {
    pthread_mutex_lock(&w->lock);
    const struct entry *e = open_entry(w, fd);
    if (e && e->user == user) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}

void watch_upgraded(struct watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    struct entry *e = open_entry(w, fd);
    if (e && e->in_epoll) {
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
        e->in_epoll = false;
    }
    pthread_mutex_unlock(&w->lock);
}

void watch_handling(struct watch *w, int fd, void *user) {
    pthread_mutex_lock(&w->lock);
    struct entry *e = entry_of(w, fd);
    if (e) {
        leave_epoll(w, e, fd);
        if (!e->open) w->n_open++;
        e->open = true;
        e->timed = false;
        e->user = user;
        e->turn++;
        e->in_epoll = listen_for(w, e, fd, EPOLL_CTL_ADD, EPOLLRDHUP);
        if (w->ended) w->calls.left(user);
    }
    pthread_mutex_unlock(&w->lock);
}

bool watch_room(struct watch *w, int fd, const void *user) {
    pthread_mutex_lock(&w->lock);
    const struct entry *e = open_entry(w, fd);
    const bool watched = e && e->in_epoll && e->user == user &&
                         listen_for(w, e, fd, EPOLL_CTL_MOD, EPOLLRDHUP | EPOLLOUT);
    pthread_mutex_unlock(&w->lock);
    return watched;
}

void watch_close_of(struct watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    if (fd >= 0 && fd < w->n_entries && w->entries[fd].open) {
        leave_epoll(w, &w->entries[fd], fd);
        w->entries[fd].open = false;
        w->n_open--;
    }
    pthread_mutex_unlock(&w->lock);
}

int watch_connections(struct watch *w) {
    pthread_mutex_lock(&w->lock);
    int n = w->n_open;
    pthread_mutex_unlock(&w->lock);
    return n;
}
