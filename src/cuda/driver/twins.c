#include "cuda/driver/twins.h"

#include "base/memory.h"

#include <string.h>

enum reel_status cuda_twins_open(struct cuda_twins *t, struct reel_error *err) {
    *t = (struct cuda_twins){ 0 };
    t->mutex_made = pthread_mutex_init(&t->mutex, NULL) == 0;
    return t->mutex_made ? REEL_OK : err_memory(err, "a mutex", sizeof t->mutex);
}

void cuda_twins_close(struct cuda_twins *t) {
    if (t->mutex_made) pthread_mutex_destroy(&t->mutex);
    mem_free(t->all);
    *t = (struct cuda_twins){ 0 };
}

/* How many begin at or before `at`. */
static int count_until(const struct cuda_twins *t, uint64_t at) {
    int low = 0, high = t->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->all[middle].from <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum reel_status cuda_twins_add(struct cuda_twins *t, const struct cuda_twin *twin,
                                struct reel_error *err) {
    enum { FIRST = 64 };
    enum reel_status status = REEL_OK;
    pthread_mutex_lock(&t->mutex);
    if (t->n == t->room) {
        const int room = t->room ? 2 * t->room : FIRST;
        struct cuda_twin *all = mem_resize(t->all, (size_t)room * sizeof *all);
        if (all)
            t->all = all, t->room = room;
        else
            status = err_memory(err, "what several GPUs have", (size_t)room * sizeof *all);
    }
    if (status == REEL_OK) {
        const int at = count_until(t, twin->from);
        memmove(t->all + at + 1, t->all + at, (size_t)(t->n - at) * sizeof *t->all);
        t->all[at] = *twin;
        t->n++;
    }
    pthread_mutex_unlock(&t->mutex);
    return status;
}

bool cuda_twins_take(struct cuda_twins *t, uint64_t from, struct cuda_twin *twin) {
    pthread_mutex_lock(&t->mutex);
    const int at = count_until(t, from) - 1;
    const bool found = at >= 0 && t->all[at].from == from;
    if (found) {
        *twin = t->all[at];
        memmove(t->all + at, t->all + at + 1, (size_t)(t->n - at - 1) * sizeof *t->all);
        t->n--;
    }
    pthread_mutex_unlock(&t->mutex);
    return found;
}

uint64_t cuda_twins_find(struct cuda_twins *t, uint64_t at, int g) {
    uint64_t there = at;
    pthread_mutex_lock(&t->mutex);
    const int i = count_until(t, at) - 1;
    if (i >= 0 && at - t->all[i].from < t->all[i].n)
        there = t->all[i].on[g] + (at - t->all[i].from);
    pthread_mutex_unlock(&t->mutex);
    return there;
}
