/* Threads for handlers: made when there is work and none is free, up to a number, and kept. The one
 * that has waited least is taken. */
#ifndef REEL_SERVER_CREW_H
#define REEL_SERVER_CREW_H

#include "base/error.h"

struct crew;

struct crew_task {
    void (*run)(struct crew_task *task);
};

enum reel_status crew_open(struct crew **out, int most_threads, struct reel_error *err);

/* Runs the task on a thread of its own; it is the caller's until then and may live inside another
 * struct. False when every thread is busy, or none could be made: nothing runs then. */
bool crew_take(struct crew *crew, struct crew_task *task);

int crew_idle(struct crew *crew); /* threads that wait for work */

/* Waits for every task to end; from now on crew_take answers false. */
void crew_end(struct crew *crew);
void crew_close(struct crew *crew); /* after crew_end, or where nothing was taken */

#endif
