/* Threads for handlers: who runs a task, how many there are, and how they end. */
#include "server/crew.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 8, LATER = 16 };

struct job {
    struct crew_task task; /* first */
    sem_t begun, may_end;
    pthread_t by;
    bool ended;
};

static void run(struct crew_task *task) {
    struct job *j = (struct job *)task;
    j->by = pthread_self();
    sem_post(&j->begun);
    sem_wait(&j->may_end);
    j->ended = true;
}

static void init(struct job *j) {
    *j = (struct job){ .task.run = run };
    sem_init(&j->begun, 0, 0);
    sem_init(&j->may_end, 0, 0);
}
static void release(struct job *j) {
    sem_destroy(&j->begun);
    sem_destroy(&j->may_end);
}

static struct crew *open_crew(void) {
    struct crew *c = NULL;
    assert_int_equal(crew_open(&c, MOST, NULL), REEL_OK);
    return c;
}

/* A thread that has run its task is idle a moment later. */
static void wait_a_moment(void) { nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); }

static void wait_for_idle(struct crew *c, int n) {
    for (int i = 0; i < 500 && crew_idle(c) != n; i++)
        wait_a_moment();
    assert_int_equal(crew_idle(c), n);
}

static void begin_all(struct crew *c, struct job jobs[MOST]) {
    for (int i = 0; i < MOST; i++) {
        init(&jobs[i]);
        assert_true(crew_take(c, &jobs[i].task));
        sem_wait(&jobs[i].begun);
    }
}

static void as_many_tasks_run_at_once_as_there_may_be_threads(void **state) {
    (void)state;
    struct crew *c = open_crew();
    struct job jobs[MOST], more;
    init(&more);
    begin_all(c, jobs);
    assert_false(crew_take(c, &more.task));
    sem_post(&jobs[3].may_end);
    wait_for_idle(c, 1);
    assert_true(crew_take(c, &more.task));
    sem_wait(&more.begun);
    assert_true(pthread_equal(more.by, jobs[3].by));
    sem_post(&more.may_end);
    for (int i = 0; i < MOST; i++)
        if (i != 3) sem_post(&jobs[i].may_end);
    crew_end(c);
    for (int i = 0; i < MOST; i++) {
        assert_true(jobs[i].ended);
        release(&jobs[i]);
    }
    assert_true(more.ended);
    release(&more);
    crew_close(c);
}

/* After a rush, what comes one by one touches the stack and the heap of one thread alone. */
static void who_was_last_to_be_idle_is_taken_first(void **state) {
    (void)state;
    struct crew *c = open_crew();
    struct job jobs[MOST], later[LATER];
    begin_all(c, jobs);
    for (int i = 0; i < MOST; i++) {
        sem_post(&jobs[i].may_end);
        wait_for_idle(c, i + 1);
    }
    for (int i = 0; i < LATER; i++) {
        init(&later[i]);
        assert_true(crew_take(c, &later[i].task));
        sem_wait(&later[i].begun);
        assert_true(pthread_equal(later[i].by, jobs[MOST - 1].by));
        sem_post(&later[i].may_end);
        wait_for_idle(c, MOST);
    }
    crew_end(c);
    for (int i = 0; i < MOST; i++)
        release(&jobs[i]);
    for (int i = 0; i < LATER; i++)
        release(&later[i]);
    crew_close(c);
}

static void *end(void *user) {
    crew_end(user);
    return NULL;
}

static void the_end_waits_for_tasks_and_takes_no_more(void **state) {
    (void)state;
    struct crew *c = open_crew();
    struct job running, late;
    pthread_t ender;
    init(&running);
    init(&late);
    assert_true(crew_take(c, &running.task));
    sem_wait(&running.begun);
    assert_int_equal(pthread_create(&ender, NULL, end, c), 0);
    wait_a_moment();
    assert_false(crew_take(c, &late.task));
    assert_false(running.ended);
    sem_post(&running.may_end);
    pthread_join(ender, NULL);
    assert_true(running.ended);
    release(&running);
    release(&late);
    crew_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_tasks_run_at_once_as_there_may_be_threads),
        cmocka_unit_test(who_was_last_to_be_idle_is_taken_first),
        cmocka_unit_test(the_end_waits_for_tasks_and_takes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
