/* reel_set_allocator: with an allocator of the caller's, the library takes no block from malloc,
 * and gives each back to where it came from. */
#include "reel_measure.h"
#include "support/faults.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An arena that is never reused. Each block has its header before it, so that one which did not
 * come from here is found out when it is given back. */
#define ARENA_BYTES ((size_t)1 << 28)
#define LIVE        0x6c697665u
#define GONE        0x676f6e65u

struct header {
    size_t n_bytes;
    unsigned state;
};
static _Alignas(4096) char storage[ARENA_BYTES];
static struct arena {
    char *bytes;
    size_t used;
    pthread_mutex_t mutex;
    long n_taken, n_resized, n_given_back, n_foreign;
    bool empty; /* says that there is no memory */
} arena = { .bytes = storage, .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct header *header_of(void *p) { return (struct header *)p - 1; }

static bool owns(void *p) {
    const char *at = p;
    return at > arena.bytes && at < arena.bytes + ARENA_BYTES && header_of(p)->state == LIVE;
}

static void *take(void *user, size_t n_bytes, size_t alignment) {
    struct arena *a = user;
    void *p = NULL;
    pthread_mutex_lock(&a->mutex);
    size_t at = a->used + sizeof(struct header) + alignment - 1;
    at -= at % alignment;
    if (!a->empty && n_bytes > 0 && at < ARENA_BYTES && n_bytes <= ARENA_BYTES - at) {
        p = a->bytes + at;
        *header_of(p) = (struct header){ n_bytes, LIVE };
        memset(p, 0xa5, n_bytes); /* what is not zeroed is seen */
        a->used = at + n_bytes;
        a->n_taken++;
    }
    pthread_mutex_unlock(&a->mutex);
    return p;
}

static void give_back(void *user, void *p) {
    struct arena *a = user;
    pthread_mutex_lock(&a->mutex);
    if (owns(p)) {
        header_of(p)->state = GONE;
        memset(p, 0x5a, header_of(p)->n_bytes);
        a->n_given_back++;
    } else {
        a->n_foreign++;
    }
    pthread_mutex_unlock(&a->mutex);
}

static void *resize(void *user, void *p, size_t n_bytes) {
    struct arena *a = user;
    if (!owns(p)) {
        a->n_foreign++;
        return NULL;
    }
    const size_t old = header_of(p)->n_bytes;
    void *grown = take(a, n_bytes, _Alignof(max_align_t));
    if (!grown) return NULL;
    memcpy(grown, p, old < n_bytes ? old : n_bytes);
    give_back(a, p);
    a->n_resized++;
    return grown;
}

static struct reel_allocator allocator = {
    .size = sizeof allocator, .alloc = take, .resize = resize, .release = give_back, .user = &arena
};

/* The first of the group: the library has taken nothing so far. */
static void an_allocator_is_named_once_and_whole(void **state) {
    (void)state;
    struct reel_error err;
    struct reel_allocator part = allocator;
    assert_int_equal(reel_set_allocator(NULL, &err), REEL_E_ARGUMENT);
    part.size = 0;
    assert_int_equal(reel_set_allocator(&part, &err), REEL_E_ARGUMENT);
    part = allocator;
    part.resize = NULL;
    assert_int_equal(reel_set_allocator(&part, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "resize"));
    assert_int_equal(reel_set_allocator(&allocator, &err), REEL_OK);
    assert_int_equal(reel_set_allocator(&allocator, &err), REEL_E_STATE);
    assert_non_null(strstr(err.text, "once"));
}

static enum reel_status talk(struct reel_session *session, struct reel_error *err) {
    static const int32_t ids[] = { 10, 20, 30, 40, 50, 60, 70 };
    const char *stops[] = { "never said" };
    struct reel_sampling sampling = { .size = sizeof sampling, .temperature = 0.9f, .top_k = 40 };
    struct reel_generation generation = { .size = sizeof generation,
                                          .sampling = &sampling,
                                          .max_tokens = 5,
                                          .stop_strings = stops,
                                          .n_stop_strings = 1 };
    enum reel_status status = reel_session_sync(session, ids, 7, NULL, err);
    return status == REEL_OK ? reel_generate(session, &generation, NULL, err) : status;
}

static enum reel_status whole_path(const char *folder, struct reel_error *err) {
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    char *text = NULL, *json = NULL;
    int32_t ids[64];
    size_t n = 0;
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = 2 };
    const struct reel_session_options small = { .size = sizeof small, .max_context = 96 };
    enum reel_status status =
        reel_synthesize(folder, "tests/golden/models/q35-b.json", 1, NULL, NULL, err);
    if (status == REEL_OK) status = reel_model_open(&model, folder, &options, err);
    if (status == REEL_OK) status = reel_session_open(&session, model, &small, err);
    if (status == REEL_OK) status = talk(session, err);
    if (status == REEL_OK)
        status = reel_encode(reel_model_tokenizer(model), "a b", 3, 0, ids, 64, &n, err);
    if (status == REEL_OK) status = reel_model_inspect(folder, &json, err);
    if (status == REEL_OK) status = reel_model_plan(folder, "h200", &text, err);
    reel_free(text);
    reel_free(json);
    reel_session_close(session);
    reel_model_close(model);
    return status;
}

static void no_block_comes_from_anywhere_else(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    char root[] = "/tmp/reel-allocator-XXXXXX", folder[64], command[100];
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/model", root);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    faults_guard_begin();
    const enum reel_status status = whole_path(folder, &err);
    const long n_system = faults_guard_end();
    if (status != REEL_OK) print_error("%s\n", err.text);
    assert_int_equal(system(command), 0);
    assert_int_equal(status, REEL_OK);
    assert_int_equal(n_system, 0);
    assert_true(arena.n_taken > 100);
    assert_true(arena.n_resized > 0);
    assert_int_equal(arena.n_given_back, arena.n_taken);
    assert_int_equal(arena.n_foreign, 0);
}

static void its_refusal_is_out_of_memory(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    char *json = NULL;
    arena.empty = true;
    assert_int_equal(reel_model_inspect("models/demo", &json, &err), REEL_E_MEMORY);
    arena.empty = false;
    assert_null(json);
    assert_int_equal(arena.n_given_back, arena.n_taken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocator_is_named_once_and_whole),
        cmocka_unit_test(no_block_comes_from_anywhere_else),
        cmocka_unit_test(its_refusal_is_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
