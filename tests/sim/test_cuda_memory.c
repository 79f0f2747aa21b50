/* What the memory plan says that a model and a session take on a GPU, and what they take of the
 * fake one, to the byte: of a dense, a hybrid and a speech model, under every tuning that changes
 * it. */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "runtime/model_handle.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SMS = 4 };

struct fixture {
    struct sim_model m;
    struct fake_cuda *cuda;
    struct reel_error err;
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->cuda->report);
}

static int start_with(void **state, const char *model) {
    static struct fixture f;
    const struct sim_gpu controls = sim_gpu_controls();
    controls.cuda->settings.in_order = true;
    f = (struct fixture){ .cuda = controls.cuda };
    controls.nvrtc->flags =
        "-O0"; /* kernels run a few times here, and compiling them is what takes long */
    f.cuda->gpu.n_sms = N_SMS;
    sim_model_open(&f.m, model);
    *state = &f;
    return 0;
}

static int start_dense(void **state) { return start_with(state, "q3-p"); }
static int start_hybrid(void **state) { return start_with(state, "q35-p"); }
static int start_speech(void **state) { return start_with(state, "asr-p"); }

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    assert_int_equal(f->cuda->leaked.bytes + f->cuda->leaked.host_bytes, 0);
    return 0;
}

/* ---- taken, and said ---------------------------------------------------------------------------
 */

static void load(struct fixture *f, const char *options) {
    char all[200];
    if (f->m.gpu) sim_model_unload(&f->m);
    f->cuda->most_bytes = f->cuda->most_host_bytes = 0;
    snprintf(all, sizeof all, "warps=4%s%s", *options ? "," : "", options);
    good(sim_model_load(&f->m, all, &f->err), f);
}

static const struct backend *loaded(const struct fixture *f) { return f->m.gpu->backend; }

/* The model while it was loaded, and since then. */
static void assert_model_is_said(struct fixture *f) {
    const struct gpu_memory_plan *said = &loaded(f)->memory;
    const uint64_t device = gpu_memory_of(said, GPU_OF_MODEL, false);
    const uint64_t pinned = gpu_memory_of(said, GPU_OF_MODEL, true);
    assert_int_equal(f->cuda->live.bytes, device);
    assert_int_equal(f->cuda->live.host_bytes, pinned);
    assert_int_equal(f->cuda->most_bytes, device + gpu_memory_of(said, GPU_OF_LOADER, false));
    assert_int_equal(f->cuda->most_host_bytes, pinned + gpu_memory_of(said, GPU_OF_LOADER, true));
}

static void assert_session_is_said(struct fixture *f, int context) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = context };
    const struct fake_live before = f->cuda->live;
    struct reel_session *s = NULL;
    struct gpu_memory_plan said;
    cuda_memory_plan(&said, loaded(f), context);
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    assert_int_equal(f->cuda->live.bytes - before.bytes,
                     gpu_memory_of(&said, GPU_OF_SESSION, false));
    assert_int_equal(f->cuda->live.host_bytes - before.host_bytes,
                     gpu_memory_of(&said, GPU_OF_SESSION, true));
    reel_session_close(s);
    assert_int_equal(f->cuda->live.bytes, before.bytes);
}

static void model_and_sessions_take_what_is_said(void **state) {
    static const char *const tunings[] = {
        "", "profile=2", "prefill_from=0", "short_positions=0", "stage_kb=100",
    };
    static const int contexts[] = { 1, 16, 17, 100 };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof tunings / sizeof *tunings; i++) {
        print_message("%s\n", tunings[i]);
        load(f, tunings[i]);
        assert_model_is_said(f);
        for (size_t j = 0; j < sizeof contexts / sizeof *contexts; j++)
            assert_session_is_said(f, contexts[j]);
    }
}

/* ---- printed ------------------------------------------------------------------------------------
 */

struct printed {
    unsigned long long model, loading, session;
    unsigned long long packing, saving, step, drafts; /* 0: not said */
};

/* The number before these words in a line, or 0. */
static unsigned long long number_before(const char *line, const char *words) {
    const char *at = strstr(line, words), *end = strchr(line + 1, '\n');
    if (!at || !end || at > end) return 0;
    while (at > line && at[-1] != ' ')
        at--;
    return strtoull(at, NULL, 10);
}

static struct printed find(const char *page, const char *line) {
    const char *at = strstr(page, line);
    if (!at) fail_msg("no \"%s\" in\n%s", line, page);
    const struct printed p = { .model = number_before(at, " the model"),
                               .loading = number_before(at, " more while loading"),
                               .session = number_before(at, " a session"),
                               .packing = number_before(at, " more for packed texts"),
                               .saving = number_before(at, " more for saving sessions"),
                               .step = number_before(at, " more for several sessions"),
                               .drafts = number_before(at, " more for drafts") };
    return p;
}

static void embed_a_text(struct fixture *f, struct backend_state *s) {
    const int32_t ids[3] = { 1, 2, 3 };
    const int length = 3;
    const int hidden = loaded(f)->model->config.hidden;
    float *vector = malloc((size_t)hidden * sizeof *vector);
    assert_non_null(vector);
    const struct backend_embed e = { .ids = ids, .lengths = &length, .n_texts = 1, .out = vector };
    good(cuda_backend.embed(s, &e, &f->err), f);
    free(vector);
}

static void restore_a_position(struct fixture *f, struct backend_state *s) {
    const size_t n = cuda_backend.save_bytes(s, 1);
    void *zeros = calloc(1, n);
    assert_non_null(zeros);
    good(cuda_backend.restore(s, 1, zeros, n, &f->err), f);
    free(zeros);
}

/* Of passes of several columns. The dense model's shape has none. */
static void make_programs(struct fixture *f, struct cuda_programs *programs,
                          unsigned long long bytes, unsigned long long pinned) {
    const struct fake_live before = f->cuda->live;
    const bool some = cuda_programs_largest(loaded(f), programs->follows) >= 0;
    assert_int_equal(bytes > 0, some);
    assert_int_equal(pinned > 0, some);
    cuda_programs_make(f->m.gpu->backend, programs, true);
    assert_int_equal(programs->why[0], 0);
    assert_int_equal(f->cuda->live.bytes - before.bytes, bytes);
    assert_int_equal(f->cuda->live.host_bytes - before.host_bytes, pinned);
}

/* As `inspect --plan` has it: tuned as usual, with a session of the model's whole context. */
static void what_is_printed_is_taken(void **state) {
    struct fixture *f = *state;
    struct buffer page = { 0 };
    load(f, "stage_kb=16384");
    const struct model_config *config = &loaded(f)->model->config;
    good(plan_print(&loaded(f)->plan, config, &page, &f->err), f);
    const struct printed device = find(page.bytes, "\n  bytes"),
                         pinned = find(page.bytes, "\n  pinned bytes");
    assert_int_equal(f->cuda->live.bytes, device.model);
    assert_int_equal(f->cuda->live.host_bytes, pinned.model);
    assert_int_equal(f->cuda->most_bytes, device.model + device.loading);
    assert_int_equal(f->cuda->most_host_bytes, pinned.model + pinned.loading);
    struct backend_state *s = NULL;
    good(cuda_state_open(&s, f->m.gpu->backend, config->max_context, &f->err), f);
    assert_int_equal(f->cuda->live.bytes, device.model + device.session);
    assert_int_equal(f->cuda->live.host_bytes, pinned.model + pinned.session);
    const bool hybrid = loaded(f)->plan.delta.n_layers > 0;
    assert_int_equal(device.packing > 0, !hybrid);
    assert_int_equal(pinned.packing > 0, !hybrid);
    assert_int_equal(loaded(f)->pool.n_pieces, 0);
    if (!hybrid) embed_a_text(f, s);
    const uint64_t pool = (uint64_t)loaded(f)->pool.n_pieces * loaded(f)->plan.kv_page_bytes;
    assert_int_equal(pool > 0, !hybrid);
    assert_int_equal(loaded(f)->pool.n_used, 0); /* nothing of a text is kept */
    assert_int_equal(f->cuda->live.bytes, device.model + device.session + device.packing + pool);
    assert_int_equal(f->cuda->live.host_bytes, pinned.model + pinned.session + pinned.packing);
    const uint64_t before = f->cuda->live.host_bytes;
    assert_int_equal(device.saving, 0);
    assert_true(pinned.saving > 0);
    restore_a_position(f, s);
    assert_int_equal(f->cuda->live.host_bytes - before, pinned.saving);
    cuda_state_close(s);
    assert_int_equal(f->cuda->live.bytes, device.model);
    make_programs(f, &f->m.gpu->backend->step, device.step, pinned.step);
    make_programs(f, &f->m.gpu->backend->drafts, device.drafts, pinned.drafts);
    buffer_release(&page);
}

/* ---- of closed sessions
 * ---------------------------------------------------------------------------------
 */

static struct backend_state *opened(struct fixture *f, int context) {
    struct backend_state *s = NULL;
    good(cuda_state_open(&s, f->m.gpu->backend, context, &f->err), f);
    return s;
}

/* While others are open it goes to the next of the same length without a call of the driver, which
 * might wait for a launch. */
static void memory_of_closed_sessions_is_lent(void **state) {
    enum { CONTEXT = 40, LONGER = 400, MANY = 12, SPARES = 8 };
    struct fixture *f = *state;
    struct backend_state *many[MANY];
    load(f, "poison=0");
    const size_t model = f->cuda->live.bytes;
    struct backend_state *stays = opened(f, CONTEXT), *s = opened(f, CONTEXT);
    const size_t one = (f->cuda->live.bytes - model) / 2;
    const struct backend_state *closed = s;
    const struct fake_live live = f->cuda->live;
    const int calls = f->cuda->n_calls;
    cuda_state_close(s);
    s = opened(f, CONTEXT);
    assert_ptr_equal(s, closed);
    assert_int_equal(f->cuda->n_calls, calls);
    assert_memory_equal(&f->cuda->live, &live, sizeof live);
    cuda_state_close(s);
    /* one of another length takes its own, and that of the closed where there is no other */
    s = opened(f, LONGER);
    assert_ptr_not_equal(s, closed);
    assert_true(f->cuda->live.bytes > live.bytes);
    cuda_state_close(s);
    f->cuda->only = "cuMemAlloc_v2", f->cuda->fail_call = 1, f->cuda->fail_with = 2;
    s = opened(f, LONGER + 1);
    f->cuda->only = NULL, f->cuda->fail_call = 0;
    assert_int_equal(f->m.gpu->backend->n_spares, 0);
    cuda_state_close(s);
    /* some are kept, and none when nobody is left */
    for (int i = 0; i < MANY; i++)
        many[i] = opened(f, CONTEXT);
    for (int i = 0; i < MANY; i++)
        cuda_state_close(many[i]);
    assert_int_equal(f->m.gpu->backend->n_spares, SPARES);
    assert_true(f->cuda->live.bytes - model <= (SPARES + 2) * one);
    cuda_state_close(stays);
    assert_int_equal(f->cuda->live.bytes, model);
    assert_int_equal(f->m.gpu->backend->n_spares, 0);
}

/* ---- what is not there takes nothing ------------------------------------------------------------
 */

static void each_model_has_its_parts(void **state) {
    struct fixture *f = *state;
    load(f, "");
    const struct backend *b = loaded(f);
    const uint64_t *bytes = b->memory.bytes;
    const bool hybrid = b->plan.delta.n_layers > 0, hears = b->plan.encoder.shape.layers > 0;
    assert_true(bytes[GPU_PROMPTS] > 0);
    assert_int_equal(bytes[GPU_PROMPTS] > b->plan.scratch.bytes, !hybrid);
    assert_int_equal(bytes[GPU_DELTA_GATES] > 0, hybrid);
    assert_int_equal(bytes[GPU_STATES] > 0, hybrid);
    assert_int_equal(bytes[GPU_TOWER_WEIGHTS] > 0, hears);
    assert_int_equal(bytes[GPU_TOWER_MAILBOX] > 0, hears);
    assert_int_equal(bytes[GPU_STAMPS], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_and_sessions_take_what_is_said),
        cmocka_unit_test(what_is_printed_is_taken),
        cmocka_unit_test(each_model_has_its_parts),
        cmocka_unit_test(memory_of_closed_sessions_is_lent),
    };
    const struct share share = share_of("cuda-memory", 3);
    int failed = 0;
    if (share_has(share, 0))
        failed |= cmocka_run_group_tests_name("dense", tests, start_dense, stop);
    if (share_has(share, 1))
        failed |= cmocka_run_group_tests_name("hybrid", tests, start_hybrid, stop);
    if (share_has(share, 2))
        failed |= cmocka_run_group_tests_name("speech", tests, start_speech, stop);
    return failed;
}
