/* A model on several fake GPUs makes the logits and ids that it makes on one with as many SMs, bit
 * for bit, whatever order their stores come in. */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/mutations.h"
#include "support/rounding.h"
#include "support/sim_model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 9, N_LONG = 21, N_LONGER = 25, N_NEW = 8 };

/* The same groups of SMs, on one GPU and on several. */
struct setting {
    const char *model, *options;
    int n_sms, n_gpus; /* in all */
};
static const struct setting settings[] = {
    { "q3-a", "n_groups=2,group_sms=2,warps=4,split_from=6", 4, 2 },
    { "q3-a", "n_groups=2,group_sms=2,warps=4,hops=2,h_bits=24", 4, 2 },
    { "ll-b", "n_groups=2,group_sms=3,warps=4", 6, 2 },
    { "qw2-p", "n_groups=2,group_sms=2,warps=4,split_from=6,hops=2,h_bits=32", 4, 2 },
    { "q35-w", "n_groups=2,group_sms=2,warps=4,split_from=6", 4, 2 },
    { "q3-c", "n_groups=4,group_sms=2,warps=8", 8, 4 },
    /* half tiles of qkv, of qkv and out, and of qkv and down; one GPU has whole ones */
    { "qw2-a", "n_groups=2,group_sms=2,warps=4,split_from=6", 4, 2 },
    { "qw2-a", "n_groups=2,group_sms=6,warps=4", 12, 2 },
    { "qw2-a", "n_groups=2,group_sms=6,warps=8", 12, 2 },
    /* long slices, whose rounds are a loop; and a hybrid with half tiles of out */
    { "q3-l", "n_groups=2,group_sms=6,warps=4,slot_tiles=2", 12, 2 },
    { "q35-p", "n_groups=2,group_sms=8,warps=4,prefill_from=0", 16, 2 },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

static const struct reel_sampling samplings[] = {
    { .size = sizeof(struct reel_sampling) },
    { .size = sizeof(struct reel_sampling), .temperature = 0.9F, .seed = 7 },
    { .size = sizeof(struct reel_sampling), .temperature = 1, .top_k = 9, .seed = 3 },
    { .size = sizeof(struct reel_sampling), .temperature = 1, .top_p = 0.7F, .seed = 5 },
    { .size = sizeof(struct reel_sampling),
      .temperature = 0.8F,
      .repetition_penalty = 1.2F,
      .seed = 2 },
};
enum { N_SAMPLINGS = (int)(sizeof samplings / sizeof *samplings) };

struct result {
    float *logits;
    int32_t ids[N_SAMPLINGS][N_NEW];
};

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static void run(struct sim_model *m, struct result *r, const struct setting *s, int n_gpus,
                uint64_t seed) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    int32_t prompt[N_PROMPT];
    gpu.cuda->gpu.n_devices = n_gpus, gpu.cuda->gpu.n_sms = s->n_sms / n_gpus;
    gpu.cuda->settings.in_order = seed == 0, gpu.cuda->settings.seed = seed;
    m->device = n_gpus > 1 ? "gpu:all" : NULL;
    require(sim_model_load(m, s->options, &err), &err);
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % 250;
    r->logits = sim_model_logits(m->gpu, prompt, N_PROMPT);
    for (int i = 0; i < N_SAMPLINGS; i++)
        require(sim_model_generate(m->gpu, prompt, N_PROMPT, &samplings[i], r->ids[i], N_NEW, &err),
                &err);
    sim_model_unload(m);
}

static void several_gpus_make_what_one_makes(void **state) {
    (void)state;
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        struct sim_model m;
        struct result one, several;
        sim_model_open(&m, s->model);
        run(&m, &one, s, 1, 0);
        const uint64_t n_seeds = getenv("REEL_SOAK") ? 20 : 2;
        for (uint64_t seed = 0; seed < n_seeds; seed++) {
            run(&m, &several, s, s->n_gpus, seed);
            if (memcmp(one.logits, several.logits, (size_t)(N_PROMPT * m.vocab) * sizeof(float)) !=
                0)
                fail_msg("%s, %s, seed %d: other logits", s->model, s->options, (int)seed);
            for (int k = 0; k < N_SAMPLINGS; k++)
                if (memcmp(one.ids[k], several.ids[k], sizeof one.ids[k]) != 0)
                    fail_msg("%s, %s, seed %d: sampling %d draws other ids", s->model, s->options,
                             (int)seed, k);
            free(several.logits);
        }
        free(one.logits);
        sim_model_close(&m);
    }
}

/* ---- sessions move between them ---- */

struct held {
    void *bytes;
    size_t n;
    int32_t ids[N_NEW]; /* that the session goes on with */
};

static bool keep_id(void *user, const struct reel_token *token) {
    int32_t **next = user;
    *(*next)++ = token->id;
    return true;
}

static bool go_on(struct reel_session *session, int32_t ids[N_NEW]) {
    struct reel_error err = { 0 };
    int32_t *next = ids;
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = keep_id,
                                       .user = &next };
    return reel_generate(session, &g, NULL, &err) == REEL_OK;
}

static void load_on(struct sim_model *m, const char *options, int n_gpus) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_devices = n_gpus, gpu.cuda->gpu.n_sms = 4 / n_gpus;
    gpu.cuda->settings.in_order = true;
    m->device = n_gpus > 1 ? "gpu:all" : NULL;
    require(sim_model_load(m, options, &err), &err);
}

/* Reads a prompt, keeps its bytes, and goes on. False: something failed. */
static bool hold_of(struct sim_model *m, int n_prompt, struct held *h) {
    struct reel_error err = { 0 };
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 48 };
    int32_t prompt[N_LONGER];
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = (i * 37 + 11) % 250;
    *h = (struct held){ 0 };
    bool good = reel_session_open(&session, m->gpu, &options, &err) == REEL_OK &&
                reel_session_sync(session, prompt, n_prompt, NULL, &err) == REEL_OK;
    if (good) h->n = cuda_backend.save_bytes(session->state, n_prompt);
    if (good) h->bytes = malloc(h->n);
    good = good && h->bytes &&
           cuda_backend.save(session->state, n_prompt, h->bytes, &err) == REEL_OK &&
           go_on(session, h->ids);
    reel_session_close(session);
    return good;
}
static bool hold(struct sim_model *m, struct held *h) { return hold_of(m, N_LONG, h); }

/* Reads the prompt too, so that the session knows its ids, but goes on from those bytes; to the
 * same ids where they were made with the same groups. */
static void go_on_from(struct sim_model *m, const struct held *h, bool same_groups) {
    struct held own;
    struct reel_error err = { 0 };
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 48 };
    int32_t prompt[N_LONG], ids[N_NEW];
    for (int i = 0; i < N_LONG; i++)
        prompt[i] = (i * 37 + 11) % 250;
    require(reel_session_open(&session, m->gpu, &options, &err), &err);
    require(reel_session_sync(session, prompt, N_LONG, NULL, &err), &err);
    cuda_backend.keep(session->state, 0);
    require(cuda_backend.restore(session->state, N_LONG, h->bytes, h->n, &err), &err);
    own.n = cuda_backend.save_bytes(session->state, N_LONG);
    assert_int_equal(own.n, h->n);
    own.bytes = malloc(own.n);
    require(cuda_backend.save(session->state, N_LONG, own.bytes, &err), &err);
    assert_memory_equal(own.bytes, h->bytes, h->n);
    assert_true(go_on(session, ids));
    if (same_groups) assert_memory_equal(ids, h->ids, sizeof ids);
    free(own.bytes);
    reel_session_close(session);
}

static void move_between(const char *id, const char *options) {
    struct sim_model m;
    struct held one, two;
    sim_model_open(&m, id);
    load_on(&m, options, 1);
    assert_true(hold(&m, &one));
    sim_model_unload(&m);
    load_on(&m, options, 2);
    assert_true(hold(&m, &two));
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.bytes, two.bytes, one.n);
    assert_memory_equal(one.ids, two.ids, sizeof one.ids);
    go_on_from(&m, &one, true);
    sim_model_unload(&m);
    load_on(&m, options, 1);
    go_on_from(&m, &two, true);
    free(one.bytes), free(two.bytes);
    sim_model_close(&m);
}

static void sessions_move_between_one_gpu_and_two(void **state) {
    (void)state;
    move_between("q3-a", "n_groups=2,group_sms=2,warps=4,split_from=12,prefill_from=0");
    move_between("q35-w", "n_groups=2,group_sms=2,warps=4,prefill_from=0");
}

/* ---- KV heads that GPUs do not share evenly ---- */

/* The last GPU then has heads that are none of the model's, with weights of 0: three KV heads of
 * two GPUs, or one; with biases, and with DeltaNets. */
static const struct setting uneven[] = {
    { "ll-s", "n_groups=4,group_sms=2,warps=4", 8, 2 },
    { "ll-s", "n_groups=2,group_sms=2,warps=4,hops=2", 4, 2 },
    { "ll-a", "n_groups=2,group_sms=3,warps=4,prefill_from=2", 6, 2 },
    { "qw2-b", "n_groups=2,group_sms=2,warps=4", 4, 2 },
    { "q35-b", "n_groups=2,group_sms=2,warps=4", 4, 2 },
    { "q3-a", "n_groups=3,group_sms=2,warps=4", 6, 3 },
};

static void load_of(struct sim_model *m, const struct setting *s, const char *options, int n_gpus) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_devices = n_gpus, gpu.cuda->gpu.n_sms = s->n_sms / n_gpus;
    m->device = n_gpus > 1 ? "gpu:all" : NULL;
    require(sim_model_load(m, options, &err), &err);
}

static void kv_heads_need_not_be_shared_evenly(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
        const struct setting *s = &uneven[i];
        struct sim_model m;
        struct held one, several;
        int32_t ids[N_PROMPT];
        for (int k = 0; k < N_PROMPT; k++)
            ids[k] = (k * 37 + 11) % 250;
        sim_model_open(&m, s->model);
        float *want = sim_model_logits(m.cpu, ids, N_PROMPT);
        load_of(&m, s, "n_groups=1,group_sms=2,warps=4", 1);
        assert_true(hold(&m, &one));
        float *alone = sim_model_logits(m.gpu, ids, N_PROMPT);
        const double off = relative_difference(alone, want, N_PROMPT * m.vocab);
        sim_model_unload(&m);
        load_of(&m, s, s->options, s->n_gpus);
        assert_true(m.gpu->backend->plan.none_kv_heads > 0);
        float *made = sim_model_logits(m.gpu, ids, N_PROMPT);
        const double now = relative_difference(made, want, N_PROMPT * m.vocab);
        printf("%s: logits are off by %.4f on one GPU, by %.4f on %d\n", s->model, off, now,
               s->n_gpus);
        assert_true(now < 1.25 * off);
        assert_true(hold(&m, &several));
        assert_int_equal(several.n, one.n);
        go_on_from(&m, &one, false);
        go_on_from(&m, &several, true);
        sim_model_unload(&m);
        load_of(&m, s, "n_groups=1,group_sms=2,warps=4", 1);
        go_on_from(&m, &several, false);
        free(want), free(alone), free(made), free(one.bytes), free(several.bytes);
        sim_model_close(&m);
    }
}

/* ---- what is refused, and what fails ---- */

static void refuse(const char *id, const char *device, const char *words) {
    struct sim_model m;
    struct reel_error err = { 0 };
    sim_model_open(&m, id);
    m.device = device;
    assert_int_not_equal(sim_model_load(&m, NULL, &err), REEL_OK);
    if (!strstr(err.text, words)) fail_msg("%s: %s", device, err.text);
    assert_null(m.gpu);
    sim_model_close(&m);
}

static void gpus_that_cannot_share_are_refused(void **state) {
    (void)state;
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = 4;
    refuse("q3-a", "gpu:0,0", "gpu:0 is named twice");
    refuse("q3-a", "gpu:0,2", "there is no gpu:2");
    refuse("q3-a", "gpu:0,", "is unknown; allowed are");
    gpu.cuda->gpu.slow_links = true;
    refuse("q3-a", "gpu:all", "over PCIe only");
    gpu.cuda->gpu.unlinked = true;
    refuse("q3-a", "gpu:1,0", "gpu:1 does not reach the memory of gpu:0");
    assert_int_equal(gpu.cuda->live.contexts, 0);
}

/* Where the second GPU's launch fails the first one's would wait for ever. */
static void a_launch_that_fails_on_one_gpu_ends_both(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    int32_t prompt[] = { 3, 4, 5 }, ids[N_NEW];
    sim_model_open(&m, "q3-a");
    load_on(&m, "n_groups=2,group_sms=2,warps=4", 2);
    struct sim_gpu gpu = sim_gpu_current();
    require(sim_model_generate(m.gpu, prompt, 3, NULL, ids, N_NEW, &err), &err);
    gpu.cuda->only = "cuLaunchCooperativeKernel", gpu.cuda->fail_call = 2, gpu.cuda->fail_with = 2;
    assert_int_not_equal(sim_model_generate(m.gpu, prompt, 3, NULL, ids, N_NEW, &err), REEL_OK);
    assert_non_null(strstr(err.text, "cuLaunchCooperativeKernel"));
    assert_int_not_equal(sim_model_generate(m.gpu, prompt, 3, NULL, ids, N_NEW, &err), REEL_OK);
    sim_model_close(&m);
}

/* A prompt's launches on one GPU wait for those on the other. */
static void a_meeting_that_fails_ends_in_words(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    int32_t prompt[N_PROMPT], ids[N_NEW];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = i;
    sim_model_open(&m, "q3-p");
    load_on(&m, "n_groups=2,group_sms=2,warps=4", 2);
    struct sim_gpu gpu = sim_gpu_current();
    gpu.cuda->only = "cuStreamWaitEvent", gpu.cuda->fail_call = 2, gpu.cuda->fail_with = 2;
    assert_int_not_equal(sim_model_generate(m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &err),
                         REEL_OK);
    assert_non_null(strstr(err.text, "cuStreamWaitEvent"));
    sim_model_close(&m);
    assert_int_equal(gpu.cuda->live.contexts + gpu.cuda->leaked.events + gpu.cuda->leaked.streams,
                     0);
}

static void a_block_that_never_comes_ends_all_gpus(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    int32_t prompt[] = { 3, 4, 5 }, want[N_NEW], ids[N_NEW];
    sim_model_open(&m, "q3-a");
    load_on(&m, "n_groups=2,group_sms=2,warps=4,patience=3000", 2);
    struct sim_gpu gpu = sim_gpu_current();
    gpu.cuda->settings.idle_limit = 0, gpu.cuda->settings.host_wait_ms = 0;
    require(sim_model_generate(m.gpu, prompt, 3, NULL, want, N_NEW, &err), &err);
    for (int block = 1; block < 4; block += 2) { /* one of each GPU */
        gpu.cuda->settings.missing_block = block;
        assert_int_equal(sim_model_generate(m.gpu, prompt, 3, NULL, ids, N_NEW, &err),
                         REEL_E_DEVICE);
        assert_non_null(strstr(err.text, "gave up waiting for"));
        gpu.cuda->settings.missing_block = -1;
        require(sim_model_generate(m.gpu, prompt, 3, NULL, ids, N_NEW, &err), &err);
        assert_memory_equal(ids, want, sizeof ids);
    }
    sim_model_close(&m);
}

/* ---- two models on the same GPUs ---- */

enum { ROUNDS = 12 };

struct user {
    pthread_t thread;
    struct sim_model m;
    enum reel_status status;
    int32_t ids[N_NEW];
};

static void *use(void *of) {
    struct user *u = of;
    struct reel_error err = { 0 };
    int32_t prompt[] = { 3, 4, 5 }, ids[N_NEW];
    for (int i = 0; i < ROUNDS && u->status == REEL_OK; i++) {
        u->status = sim_model_generate(u->m.gpu, prompt, 3, NULL, ids, N_NEW, &err);
        if (i == 0) memcpy(u->ids, ids, sizeof ids);
        if (memcmp(u->ids, ids, sizeof ids) != 0) u->status = REEL_E_MISMATCH;
    }
    return NULL;
}

/* Each GPU has launches of both in its queue, in the same order. */
static void two_models_do_not_wait_for_each_other(void **state) {
    (void)state;
    static struct user users[2];
    for (int i = 0; i < 2; i++) {
        sim_model_open(&users[i].m, "q3-a");
        if (i == 0)
            load_on(&users[i].m, "n_groups=2,group_sms=2,warps=4,launch_tokens=1", 2);
        else {
            struct reel_error err = { 0 };
            users[i].m.device = "gpu:all";
            require(
                sim_model_load(&users[i].m, "n_groups=2,group_sms=2,warps=4,launch_tokens=1", &err),
                &err);
        }
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(users[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        if (users[i].status != REEL_OK)
            fail_msg("%s\n%s", reel_status_name(users[i].status), sim_gpu_current().cuda->report);
        sim_model_close(&users[i].m);
    }
}

/* ---- mutations ---- */

static struct sim_model mutated;
/* Sums in two hops and in one, and what one GPU makes. */
static struct {
    struct setting setting;
    struct result right;
    struct held held;
} hops[2] = { { .setting = { "q3-a",
                             "n_groups=2,group_sms=2,warps=4,hops=2,h_bits=24,prefill_from=0", 4,
                             2 } },
              { .setting = { "q3-a", "n_groups=2,group_sms=2,warps=4,prefill_from=0", 4, 2 } } };

/* Whether a block that does not come ends the launch on both GPUs, and the next call is right. */
static bool ends_as_it_should(const struct mutation *m) {
    struct sim_gpu gpu = sim_gpu_controls();
    struct reel_error err = { 0 };
    int32_t prompt[N_PROMPT], ids[N_NEW];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % 250;
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = 2;
    gpu.cuda->settings.in_order = true;
    gpu.cuda->settings.idle_limit = 100000, gpu.cuda->settings.host_wait_ms = 0;
    mutation_apply(m, gpu.nvrtc);
    bool good =
        sim_model_load(&mutated, "n_groups=2,group_sms=2,warps=4,patience=3000", &err) == REEL_OK;
    gpu.cuda->settings.missing_block = 3;
    good = good &&
           sim_model_generate(mutated.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &err) ==
               REEL_E_DEVICE &&
           strstr(err.text, "gave up waiting for");
    gpu.cuda->settings.missing_block = -1;
    good = good &&
           sim_model_generate(mutated.gpu, prompt, N_PROMPT, &samplings[0], ids, N_NEW, &err) ==
               REEL_OK &&
           memcmp(ids, hops[1].right.ids[0], sizeof ids) == 0;
    if (mutated.gpu) sim_model_unload(&mutated);
    return good;
}

/* Whether two GPUs make the ids of one. */
static bool makes_the_same(int which, uint64_t seed, const struct mutation *m) {
    const struct setting *s = &hops[which].setting;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    int32_t prompt[N_PROMPT], ids[N_NEW];
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = s->n_sms / 2;
    gpu.cuda->settings.seed = seed, gpu.cuda->settings.idle_limit = 300;
    mutation_apply(m, gpu.nvrtc);
    mutated.device = "gpu:all";
    bool same = sim_model_load(&mutated, s->options, &err) == REEL_OK;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % 250;
    for (int i = 0; i < N_SAMPLINGS && same; i++)
        same = sim_model_generate(mutated.gpu, prompt, N_PROMPT, &samplings[i], ids, N_NEW, &err) ==
                   REEL_OK &&
               memcmp(ids, hops[which].right.ids[i], sizeof ids) == 0;
    struct held held = { 0 };
    same = same && hold(&mutated, &held) && memcmp(held.bytes, hops[which].held.bytes, held.n) == 0;
    free(held.bytes);
    if (mutated.gpu) sim_model_unload(&mutated);
    return same;
}

/* Whether they read a prompt, a chunk at a time, as they do unmutated. */
static struct {
    const char *model, *options;
    struct sim_model m;
    struct held right;
} prompted[] = {
    { .model = "q3-p",
      .options = "n_groups=2,group_sms=2,warps=4,launch_tokens=9,short_positions=0" },
    { .model = "q3-p", .options = "n_groups=2,group_sms=2,warps=4,launch_tokens=9" },
    { .model = "q35-p", .options = "n_groups=2,group_sms=2,warps=4,launch_tokens=9" },
};
enum { N_PROMPTED = sizeof prompted / sizeof *prompted };

static bool reads_the_same(int which, uint64_t seed, const struct mutation *m) {
    struct sim_model *model = &prompted[which].m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    struct held held = { 0 };
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = 2;
    gpu.cuda->settings.seed = seed;
    if (seed == 1 || seed == 2) gpu.cuda->late = "prefill_join", gpu.cuda->late_gpu = (int)seed - 1;
    if (m) mutation_apply(m, gpu.nvrtc);
    model->device = "gpu:all";
    bool same =
        sim_model_load(model, prompted[which].options, &err) == REEL_OK && hold(model, &held);
    if (same && !m) prompted[which].right = held;
    same = same && memcmp(held.bytes, prompted[which].right.bytes, held.n) == 0;
    if (m) free(held.bytes);
    if (model->gpu) sim_model_unload(model);
    return same;
}

static bool is_seen(const struct mutation *m) {
    for (uint64_t seed = 1; seed < 8; seed++)
        for (int i = 0; i < N_PROMPTED; i++)
            if (!reads_the_same(i, seed, m)) return true;
    for (uint64_t seed = 1; seed < 4; seed++)
        if (!makes_the_same(0, seed, m) || !makes_the_same(1, seed, m)) return true;
    return !ends_as_it_should(m);
}

static void mutations_are_seen(void **state) {
    (void)state;
    sim_model_open(&mutated, hops[0].setting.model);
    for (int i = 0; i < 2; i++) {
        run(&mutated, &hops[i].right, &hops[i].setting, 1, 0);
        load_on(&mutated, hops[i].setting.options, 1);
        assert_true(hold(&mutated, &hops[i].held));
        sim_model_unload(&mutated);
    }
    for (int i = 0; i < N_PROMPTED; i++) {
        sim_model_open(&prompted[i].m, prompted[i].model);
        assert_true(reads_the_same(i, 0, NULL));
    }
    const struct mutation none = { "none", { { 0 } } };
    assert_false(is_seen(&none));
    mutations_try(&gpus_mutations, is_seen);
    for (int i = 0; i < 2; i++)
        free(hops[i].right.logits), free(hops[i].held.bytes);
    sim_model_close(&mutated);
    for (int i = 0; i < N_PROMPTED; i++) {
        free(prompted[i].right.bytes);
        sim_model_close(&prompted[i].m);
    }
}

/* ---- mutations of half tiles ---- */

static struct {
    struct sim_model m;
    struct setting setting;
    int n_prompt;
    struct held right; /* of both GPUs, unmutated */
} halved[] = {
    { .setting = { "q3-l", "n_groups=2,group_sms=6,warps=4,slot_tiles=2,prefill_from=0", 12, 2 },
      .n_prompt = N_LONG },
    /* all products of few tokens are thin; of more those of qkv are not */
    { .setting = { "q3-c", "n_groups=4,group_sms=3,warps=4", 12, 2 }, .n_prompt = N_LONG },
    { .setting = { "q3-c", "n_groups=4,group_sms=3,warps=4,launch_tokens=48", 12, 2 },
      .n_prompt = N_LONGER },
    /* short prompts, in narrow runs and wide ones */
    { .setting = { "q3-p", "n_groups=2,group_sms=8,warps=4,launch_tokens=16", 16, 2 },
      .n_prompt = N_LONG },
    { .setting = { "q3-p", "n_groups=2,group_sms=8,warps=4,launch_tokens=32", 16, 2 },
      .n_prompt = N_LONGER },
};
enum { N_HALVED = sizeof halved / sizeof *halved };

/* Whether the two GPUs read a prompt, and go on, as they do unmutated. */
static bool halves_as_ever(int which, const struct mutation *m, struct held *held) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = halved[which].setting.n_sms / 2;
    gpu.cuda->settings.in_order = true;
    if (m) mutation_apply(m, gpu.nvrtc);
    halved[which].m.device = "gpu:all";
    bool same = sim_model_load(&halved[which].m, halved[which].setting.options, &err) == REEL_OK &&
                hold_of(&halved[which].m, halved[which].n_prompt, held);
    same = same && (!m || memcmp(held->bytes, halved[which].right.bytes, held->n) == 0);
    if (halved[which].m.gpu) sim_model_unload(&halved[which].m);
    return same;
}

static bool half_is_seen(const struct mutation *m) {
    bool same = true;
    for (int i = 0; i < N_HALVED && same; i++) {
        struct held held = { 0 };
        same = halves_as_ever(i, m, &held);
        free(held.bytes);
    }
    return !same;
}

static void mutations_of_half_tiles_are_seen(void **state) {
    (void)state;
    for (int i = 0; i < N_HALVED; i++) {
        sim_model_open(&halved[i].m, halved[i].setting.model);
        assert_true(halves_as_ever(i, NULL, &halved[i].right));
    }
    const struct mutation none = { "none", { { 0 } } };
    assert_false(half_is_seen(&none));
    mutations_try(&halves_mutations, half_is_seen);
    for (int i = 0; i < N_HALVED; i++) {
        free(halved[i].right.bytes);
        sim_model_close(&halved[i].m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_gpus_make_what_one_makes),
        cmocka_unit_test(sessions_move_between_one_gpu_and_two),
        cmocka_unit_test(kv_heads_need_not_be_shared_evenly),
        cmocka_unit_test(gpus_that_cannot_share_are_refused),
        cmocka_unit_test(a_launch_that_fails_on_one_gpu_ends_both),
        cmocka_unit_test(a_meeting_that_fails_ends_in_words),
        cmocka_unit_test(a_block_that_never_comes_ends_all_gpus),
        cmocka_unit_test(two_models_do_not_wait_for_each_other),
        cmocka_unit_test(mutations_are_seen),
        cmocka_unit_test(mutations_of_half_tiles_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
