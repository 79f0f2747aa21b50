/* Looks after connections that the HTTP library does not look at: those whose answer is still being
 * made, for clients that leave, and those whose request comes in too slowly. */
#ifndef REEL_SERVER_WATCH_H
#define REEL_SERVER_WATCH_H

#include "base/error.h"

struct watch;

/* Called on the watch's thread with what was given to watch_handling, which is guarded by the
 * watch: they do not run after watch_receiving or watch_close_of. */
struct watch_calls {
    void (*left)(void *user); /* the client has gone */
    bool (*room)(void *user); /* see watch_room; true: enough, no more calls until it is asked */
};
enum reel_status watch_open(struct watch **out, double timeout_ms, const struct watch_calls *calls,
                            struct reel_error *err);
/* Every client that waits for an answer counts as gone from now on. */
void watch_end(struct watch *w);
void watch_close(struct watch *w);

/* A connection waits for a request, or receives one: after the time its socket is shut down. Said
 * when it begins and when an answer has ended. */
void watch_receiving(struct watch *w, int fd);
/* Part of a request's body has come: it may take so much longer. */
void watch_more(struct watch *w, int fd, double ms);
/* Its request is being answered: `user` hears when the client leaves. */
void watch_handling(struct watch *w, int fd, void *user);
/* `room` is called for `user` whenever its socket takes bytes. False: it is not watched. */
bool watch_room(struct watch *w, int fd, const void *user);
/* The answer for `user` is whole: the client has the time, and `extra_ms`, to read what is left. */
void watch_answered(struct watch *w, int fd, const void *user, double extra_ms);
/* `user` gave its client up, which may be one that reads nothing: its socket is shut down now. */
void watch_shut(struct watch *w, int fd, const void *user);
/* It is a WebSocket: nothing but the server's end is said to `user`. */
void watch_upgraded(struct watch *w, int fd);
/* It is closed. */
void watch_close_of(struct watch *w, int fd);

int watch_connections(struct watch *w);

#endif
