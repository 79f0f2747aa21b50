/* Orderings taken out of the kernels that read prompts, one at a time (support/mutations.c): the
 * simulator must see each of them, as other bits, as a report, or as a wait that never ends. */
#include "support/mutations.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_KEPT = 37, MOST = 145, N_IDS = MOST_KEPT + MOST, HOST_LOOKS_MS = 20 };
enum { TWO_STAGES = 100 << 10, FEW_SLOTS = 112 << 10 };

#define CUT "n_groups=2,group_sms=2,warps=4,prefill_tokens=256,prefill_from=2,launch_tokens=256"

/* Prompts of two lengths from amid a piece of the cache. */
struct way {
    const char *options;
    int shared_bytes; /* of the GPU; 0: as it comes */
    int n_kept;       /* positions before */
    int lengths[2];
    float *right; /* [2][vocab]: logits of the last position of each */
};
/* By the queue, so that products are cut in all ways, with so little shared memory that the ring
 * has two stages; in one launch, of one pair of atoms and of two, with so few slots that weights go
 * round. */
static struct way queue = { CUT ",short_positions=0", TWO_STAGES, 5, { 39, MOST }, NULL };
static struct way shorts = { CUT, FEW_SLOTS, 5, { 9, 23 }, NULL };
/* The same behind positions that count as many: the two SMs of a group share them, and of each
 * share two warps have a part. */
static struct way far = {
    CUT ",short_far=1,short_positions=1", FEW_SLOTS, MOST_KEPT, { 9, 23 }, NULL
};
static struct way *way = &queue;

static struct sim_model model;
static int32_t ids[N_IDS];

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    if (way->shared_bytes) gpu.cuda->gpu.shared_bytes = way->shared_bytes;
    gpu.cuda->settings.idle_limit = 300;
    gpu.cuda->settings.host_look_ms = HOST_LOOKS_MS;
    return gpu;
}

static int tear_down(void **state) {
    (void)state;
    free(queue.right), free(shorts.right), free(far.right);
    sim_model_close(&model);
    return 0;
}

static struct reel_session *session_open(void) {
    struct reel_error err = { 0 };
    struct reel_session *session;
    const struct reel_session_options o = { .size = sizeof o, .max_context = N_IDS };
    require(reel_session_open(&session, model.gpu, &o, &err), &err);
    return session;
}

/* A session of its own: nothing of a prompt read before is there. */
static bool evaluate(struct sim_gpu *gpu, int seed, float *logits) {
    struct reel_error err = { 0 };
    struct reel_session *session = session_open();
    struct reel_eval eval = { .size = sizeof eval,
                              .n = way->lengths[0],
                              .ids = ids + way->n_kept,
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = logits,
                              .out_floats = (size_t)model.vocab };
    gpu->cuda->settings.in_order = seed < 0;
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
    bool done = reel_session_sync(session, ids, way->n_kept, NULL, &err) == REEL_OK &&
                reel_session_eval(session, &eval, &err) == REEL_OK &&
                reel_session_truncate(session, way->n_kept, &err) == REEL_OK;
    eval.n = way->lengths[1], eval.out = logits + model.vocab;
    done = done && reel_session_eval(session, &eval, &err) == REEL_OK;
    reel_session_close(session);
    return done;
}

/* Prompts go this way from now on; what is right is made when a way is first taken. */
static void take(struct way *w) {
    struct reel_error err = { 0 };
    way = w;
    if (w->right) return;
    struct sim_gpu gpu = gpu_start();
    w->right = malloc(2 * (size_t)model.vocab * sizeof *w->right);
    require(sim_model_load(&model, w->options, &err), &err);
    if (!evaluate(&gpu, -1, w->right)) fail_msg("%s", gpu.cuda->report);
    sim_model_unload(&model);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q3-p");
    return 0;
}

static bool runs_right(struct sim_gpu *gpu, int seed) {
    float *logits = malloc(2 * (size_t)model.vocab * sizeof *logits);
    bool right = evaluate(gpu, seed, logits) &&
                 memcmp(logits, way->right, 2 * (size_t)model.vocab * sizeof *logits) == 0;
    free(logits);
    return right;
}

/* Schedules: the weakest mutation takes nine. */
static int n_tries(bool mutated) { return getenv("REEL_SOAK") ? 400 : mutated ? 40 : 8; }

/* The first schedule that goes wrong; n when none does. */
static int first_wrong(const struct mutation *m, int n) {
    struct reel_error err = { 0 };
    int seed = 0;
    struct sim_gpu gpu = gpu_start();
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, way->options, &err), &err);
    while (seed < n && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", m->what, seed, *gpu.cuda->report ? ": " : "",
           gpu.cuda->report);
    sim_model_unload(&model);
    return seed;
}

static bool is_seen(const struct mutation *m) {
    return first_wrong(m, n_tries(true)) < n_tries(true);
}

static void mutations_of_the_queue_are_seen(void **state) {
    (void)state;
    take(&queue);
    mutations_try(&queue_mutations, is_seen);
}

static void mutations_of_short_prompts_are_seen(void **state) {
    (void)state;
    take(&shorts);
    mutations_try(&short_mutations, is_seen);
}

static void mutations_of_short_prompts_far_on_are_seen(void **state) {
    (void)state;
    take(&far);
    mutations_try(&far_mutations, is_seen);
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    static const struct mutation none = { .what = "nothing" };
    take(&queue);
    assert_int_equal(first_wrong(&none, n_tries(false)), n_tries(false));
    take(&far);
    assert_int_equal(first_wrong(&none, n_tries(false)), n_tries(false));
    take(&shorts);
    assert_int_equal(first_wrong(&none, n_tries(false)), n_tries(false));
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(nothing_is_seen_where_nothing_is_wrong),
        in_turn(mutations_of_the_queue_are_seen),
        in_turn(mutations_of_short_prompts_are_seen),
        in_turn(mutations_of_short_prompts_far_on_are_seen),
    };
    SHARE_TESTS("prefill-orders", 4, tests);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
