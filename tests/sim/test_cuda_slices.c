/* Prompts that are read in slices on the fake GPU while other sessions decode: each lies in the
 * queue with the passes behind it, everybody makes the ids that he makes alone, and a slice that
 * fails is its own session's affair. */
#include "cuda/run/cuda_backend.h"
#include "runtime/model_handle.h"
#include "support/sim_model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SMALL "n_groups=1,group_sms=2,warps=4"

enum { N_DECODE = 2, N_IDS = 200, PROMPT = 60, SLICE = 4, CONTEXT = 256, N_NEW = 3 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
};

/* A session on a thread of its own. */
struct teller {
    struct fixture *f;
    pthread_t thread;
    int first, n_prompt, n_new; /* of its prompt: the first id */
    atomic_int n;
    int32_t ids[N_IDS];
    enum reel_status status;
    struct reel_error err;
};

static bool on_token(void *user, const struct reel_token *token) {
    struct teller *t = user;
    t->ids[t->n++] = token->id;
    return true;
}

static void *tell(void *of) {
    struct teller *t = of;
    struct reel_session *s = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = t->n_new,
                                       .ignore_stop_ids = true,
                                       .on_token = on_token,
                                       .user = t };
    int32_t prompt[PROMPT];
    for (int i = 0; i < t->n_prompt; i++)
        prompt[i] = (t->first + 37 * i + i * i) % 250;
    t->status = reel_session_open(&s, t->f->m.gpu, &options, &t->err);
    if (t->status == REEL_OK) t->status = reel_session_sync(s, prompt, t->n_prompt, NULL, &t->err);
    if (t->status == REEL_OK) t->status = reel_generate(s, &g, NULL, &t->err);
    reel_session_close(s);
    return NULL;
}

static void begin(struct fixture *f, struct teller *t, int first, int n_prompt, int n_new) {
    *t = (struct teller){ .f = f, .first = first, .n_prompt = n_prompt, .n_new = n_new };
    assert_int_equal(pthread_create(&t->thread, NULL, tell, t), 0);
}

static void end(struct teller *t) {
    pthread_join(t->thread, NULL);
    if (t->status != REEL_OK) fail_msg("%s\n%s", t->err.text, t->f->gpu.cuda->report);
    assert_int_equal(t->n, t->n_new);
}

static void assert_as_alone(struct fixture *f, const struct teller *t) {
    struct teller alone;
    begin(f, &alone, t->first, t->n_prompt, t->n_new);
    end(&alone);
    assert_memory_equal(t->ids, alone.ids, (size_t)t->n_new * sizeof *t->ids);
}

/* Launches of different sessions in the queue, at most at once, until somebody is over. */
static int most_in_flight(struct fixture *f, const struct teller *reader) {
    struct backend *b = f->m.gpu->backend;
    const struct timespec nap = { 0, 50000 };
    int most = 0;
    while (atomic_load(&reader->n) == 0) {
        pthread_mutex_lock(&b->mutex);
        if (b->in_flight > most) most = b->in_flight;
        pthread_mutex_unlock(&b->mutex);
        nanosleep(&nap, NULL);
    }
    return most;
}

static void wait_for_ids(const struct teller *t, int n) {
    const struct timespec nap = { 0, 1000000 };
    while (atomic_load(&t->n) < n && t->status == REEL_OK)
        nanosleep(&nap, NULL);
}

static void load(struct fixture *f, const char *options) {
    f->m.prompt_slice = SLICE;
    if (sim_model_load(&f->m, options, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
}

/* Sessions that have come to their fourth id. */
static void begin_decoding(struct fixture *f, struct teller *t) {
    for (int i = 0; i < N_DECODE; i++)
        begin(f, &t[i], 3 + 71 * i, 3 + i, N_IDS);
    for (int i = 0; i < N_DECODE; i++)
        wait_for_ids(&t[i], 4);
}

static void end_decoding(struct fixture *f, struct teller *t) {
    for (int i = 0; i < N_DECODE; i++)
        end(&t[i]);
    for (int i = 0; i < N_DECODE; i++)
        assert_as_alone(f, &t[i]);
}

static void passes_lie_behind_a_slice_in_the_queue(void **state) {
    static struct teller t[N_DECODE], reader;
    struct fixture *f = *state;
    load(f, SMALL);
    begin_decoding(f, t);
    begin(f, &reader, 100, PROMPT, N_NEW);
    assert_true(most_in_flight(f, &reader) > 1);
    end(&reader);
    assert_as_alone(f, &reader);
    end_decoding(f, t);
    sim_model_unload(&f->m);
}

static void a_slice_that_fails_ends_nobody_elses_text(void **state) {
    static struct teller t[N_DECODE], reader;
    struct fixture *f = *state;
    struct fake_cuda *cuda = f->gpu.cuda;
    cuda->settings.idle_limit = 0;
    cuda->settings.host_wait_ms = 0;
    load(f, SMALL ",patience=3000");
    begin_decoding(f, t);
    cuda->missing_in = "decode";
    cuda->settings.missing_block = 1;
    begin(f, &reader, 100, PROMPT, N_NEW);
    pthread_join(reader.thread, NULL);
    cuda->settings.missing_block = -1;
    assert_int_equal(reader.status, REEL_E_DEVICE);
    if (!strstr(reader.err.text, "gave up waiting")) fail_msg("%s", reader.err.text);
    end_decoding(f, t);
    begin(f, &reader, 100, PROMPT, N_NEW);
    end(&reader);
    sim_model_unload(&f->m);
}

static int start(void **state) {
    static struct fixture f;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f.m, "q3-a");
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_lie_behind_a_slice_in_the_queue),
        cmocka_unit_test(a_slice_that_fails_ends_nobody_elses_text),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
