/* Weights in a second format of tiles give the same bits. second_format.patch adds the format, to
 * tile_format.h and to the table of plan_format.c alone; this program has the host's part and the
 * kernels that come of it. Every reader of weights is at work: decoding, the head, the look-up of
 * tied embeddings, short prompts (narrow and wide), prompts (thin and wide), the audio tower. */
#include "cuda/run/cuda_backend.h"
#include "plan/plan_layout.h"
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

/* The table, as the patch leaves it. */
extern enum tile_format formats[PLAN_FORMAT_AUDIO + 1];

enum { N_SMS = 4, N_NEW = 3, LONGEST = 76, MOST_SHORT = 30, MOST_WAYS = 3, MOST_LENGTHS = 3 };

/* How positions go, and how many are read at once. */
struct way {
    const char *options;
    int lengths[MOST_LENGTHS];
};

struct setting {
    const char *model, *options;
    int compute;
    int step; /* every step-th segment has the second format, the others have bf16 tiles */
    struct way ways[MOST_WAYS];
};

static const struct setting settings[] = {
    /* decoding; short prompts of one narrow run and of a wide one; prompts that are cut thin and
       others, of whose segments every other one stays as it is */
    { "q3-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,launch_tokens=0",
      90,
      2,
      { { "prefill_from=0", { 7 } },
        { "prefill_from=4,short_from=4", { 9, MOST_SHORT } },
        { "prefill_from=4,short_positions=0", { 9, LONGEST } } } },
    /* tied; the copies of the GPUs before, with mma instead of wgmma */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,prefill_tokens=128,launch_tokens=0",
      80,
      1,
      { { "prefill_from=0", { 7 } }, { "prefill_from=4,short_positions=0", { LONGEST } } } },
    /* Gated DeltaNets */
    { "q35-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,launch_tokens=0",
      90,
      1,
      { { "prefill_from=0", { 7 } }, { "prefill_from=4,short_positions=0", { LONGEST } } } },
};

/* What a model said: logits and ids, one after the other. */
struct record {
    float *bytes;
    size_t n;
};

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static float *record_more(struct record *r, size_t n) {
    r->bytes = realloc(r->bytes, (r->n + n) * sizeof *r->bytes);
    assert_non_null(r->bytes);
    r->n += n;
    return r->bytes + r->n - n;
}

/* Logits after n positions, and the ids that follow. */
static void run(struct sim_model *m, int n, struct record *r) {
    struct reel_error err = { 0 };
    int32_t prompt[LONGEST], ids[N_NEW];
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = LONGEST + N_NEW };
    for (int i = 0; i < n; i++)
        prompt[i] = (i * 37 + 11) % m->vocab;
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = prompt,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = record_more(r, (size_t)m->vocab),
                                    .out_floats = (size_t)m->vocab };
    require(reel_session_open(&session, m->gpu, &options, &err), &err);
    require(reel_session_eval(session, &eval, &err), &err);
    reel_session_close(session);
    require(sim_model_generate(m->gpu, prompt, n, NULL, ids, N_NEW, &err), &err);
    memcpy(record_more(r, N_NEW), ids, sizeof ids);
}

/* Every step-th segment in the second format, none for 0. */
static void formats_set(int step) {
    for (int i = 0; i <= PLAN_FORMAT_AUDIO; i++)
        formats[i] = step && i % step == 0 ? TILE_TURNED : TILE_BF16;
}

static void check_plan(const struct plan *p, int step, const char *model) {
    for (int i = 0; i < TAPE_N_PHASES; i++)
        assert_int_equal(p->tape.segment[i].format, formats[i]);
    printf("%s: tapes of %llu bytes, slots of %d\n", model, (unsigned long long)p->tape_bytes,
           p->slot_bytes);
    if (step) assert_int_equal(p->slot_bytes % 640, 0);
    assert_true(p->prefill_tokens >= LONGEST);
    if (strcmp(model, "q3-p") == 0) assert_true(p->short_tokens >= MOST_SHORT);
}

static struct record record_of(const struct setting *s, int step) {
    struct record r = { 0 };
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    char options[200];
    gpu.cuda->gpu.n_sms = N_SMS, gpu.cuda->gpu.compute = s->compute;
    gpu.cuda->settings.in_order = true;
    formats_set(step);
    sim_model_open(&m, s->model);
    for (int way = 0; way < MOST_WAYS && s->ways[way].options; way++) {
        snprintf(options, sizeof options, "%s,%s", s->options, s->ways[way].options);
        require(sim_model_load(&m, options, &err), &err);
        check_plan(&m.gpu->backend->plan, step, s->model);
        for (int i = 0; i < MOST_LENGTHS && s->ways[way].lengths[i]; i++)
            run(&m, s->ways[way].lengths[i], &r);
        sim_model_unload(&m);
    }
    sim_model_close(&m);
    return r;
}

static void check_setting(const struct setting *s) {
    struct record want = record_of(s, 0), got = record_of(s, s->step);
    assert_int_equal(got.n, want.n);
    for (size_t i = 0; i < got.n; i++)
        if (memcmp(&got.bytes[i], &want.bytes[i], sizeof *got.bytes) != 0)
            fail_msg("%s: number %zu of %zu is %g, in bf16 tiles %g", s->model, i, got.n,
                     (double)got.bytes[i], (double)want.bytes[i]);
    free(want.bytes), free(got.bytes);
}

static void a_model_says_the_same(void **state) {
    (void)state;
    check_setting(&settings[0]);
}

static void a_tied_model_says_the_same(void **state) {
    (void)state;
    check_setting(&settings[1]);
}

static void a_hybrid_says_the_same(void **state) {
    (void)state;
    check_setting(&settings[2]);
}

/* ---- the audio tower ---- */

enum { N_FRAMES = 130 };

static struct record tower_record(int step) {
    struct record r = { 0 };
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = N_SMS;
    gpu.cuda->settings.in_order = true;
    formats_set(step);
    sim_model_open(&m, "asr-p");
    require(sim_model_load(&m, "warps=4", &err), &err);
    struct backend *b = m.gpu->backend;
    const struct encoder_shape *s = &b->plan.encoder.shape;
    assert_int_equal(s->format, formats[PLAN_FORMAT_AUDIO]);
    float *features = malloc((size_t)(N_FRAMES * s->bins) * sizeof *features);
    assert_non_null(features);
    for (int i = 0; i < N_FRAMES * s->bins; i++)
        features[i] = (float)(i * 7919 % 2001 - 1000) / 1000.0f;
    float *out = record_more(&r, (size_t)(enc_tokens(N_FRAMES) * s->out));
    require(cuda_encode(b, features, N_FRAMES, out, &err), &err);
    free(features);
    sim_model_close(&m);
    return r;
}

static void an_audio_tower_says_the_same(void **state) {
    (void)state;
    struct record want = tower_record(0), got = tower_record(1);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.bytes, want.bytes, want.n * sizeof *want.bytes);
    free(want.bytes), free(got.bytes);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_model_says_the_same),
        in_turn(a_tied_model_says_the_same),
        in_turn(a_hybrid_says_the_same),
        in_turn(an_audio_tower_says_the_same),
    };
    SHARE_TESTS("second-format", 4, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
