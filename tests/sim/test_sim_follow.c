/* Passes in which several columns are consecutive positions of one session (kernels/args.h): each
 * makes the logits, ids, keys and values that decoding makes one token after the other, bit for
 * bit, whatever stands in the other columns and under every schedule. */
#include "cuda/run/cuda_delta.h"
#include "runtime/model_handle.h"
#include "support/columns_rig.h"
#include "support/mutations.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_COLUMNS = 8, MOST_NEW = 4, MOST_POSITIONS = 160 };

/* One session: positions that it has, and columns that follow each other from there on. One of a
 * single column makes n_new ids, one in each pass; the others take part in one pass. */
struct talk {
    int position, columns, n_new;
    float temperature; /* over 0: ids are drawn. 0: the columns' logits are compared instead */
};

struct setting {
    const char *model, *options;
    int n_sms, compute, columns;
    int few, many; /* schedules, the second in make soak */
    struct talk talks[MOST_COLUMNS];
};

static const struct setting settings[] = {
    /* over a piece's border, one SM for each column */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000,kv_slots=4",
      4,
      90,
      2,
      1,
      60,
      { { .position = 31, .columns = 2 } } },
    /* from the border on, in pieces that hold nothing but this pass; beside a session that decodes
     */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000",
      4,
      90,
      4,
      1,
      60,
      { { .position = 32, .columns = 3 }, { .position = 14, .columns = 1, .n_new = 4 } } },
    /* several sessions side by side, one of them split */
    { "ll-a",
      "n_groups=1,group_sms=3,warps=4,split_from=30",
      3,
      86,
      8,
      1,
      40,
      { { .position = 33, .columns = 3 },
        { .position = 15, .columns = 2, .temperature = 0.8f },
        { .position = 40, .columns = 1, .n_new = 3 } } },
    /* attention becomes split in the middle of the session's columns; ids are drawn */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=30",
      4,
      90,
      8,
      1,
      40,
      { { .position = 27, .columns = 8, .temperature = 0.9f } } },
    /* nothing before the pass; more columns than SMs of a group */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000",
      4,
      80,
      8,
      1,
      40,
      { { .position = 0, .columns = 8 } } },
    /* over a page's border, in split pieces */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      8,
      1,
      20,
      { { .position = 126, .columns = 4 }, { .position = 127, .columns = 2 } } },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

/* What a session's columns make alone. */
struct alone {
    int32_t *prompt, given[MOST_COLUMNS], ids[MOST_COLUMNS];
    float *logits; /* [columns][vocab] */
    int n_evaluated;
    struct backend_state *state;
    void *bytes;
    size_t n_bytes;
};

struct bench {
    const struct setting *s;
    struct sim_model m;
    struct columns_rig rig;
    struct alone alone[MOST_COLUMNS];
    int n; /* sessions */
};

static const char *kv; /* the form of keys and values; NULL: bf16 */

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct reel_sampling sampling_of(const struct talk *t, int i) {
    return (struct reel_sampling){ .size = sizeof(struct reel_sampling),
                                   .temperature = t->temperature,
                                   .seed = (uint64_t)(100 + i) };
}

/* ---- alone ---- */

static void evaluate(const struct reel_model *m, struct backend_state *state, int position, int n,
                     const int32_t *ids, float *logits) {
    struct reel_error err = { 0 };
    const struct backend_eval eval = { .position = position,
                                       .n = n,
                                       .ids = ids,
                                       .output = logits ? REEL_OUTPUT_ALL_LOGITS : REEL_OUTPUT_NONE,
                                       .out = logits };
    if (n > 0) require(m->ops->eval(state, &eval, &err), &err);
}

/* The positions before those of the columns. */
static void read_prompt(const struct reel_model *m, const struct alone *a, const struct talk *t,
                        struct backend_state **state) {
    struct reel_error err = { 0 };
    require(m->ops->state_open(state, m->backend, MOST_POSITIONS, &err), &err);
    evaluate(m, *state, 0, t->position, a->prompt, NULL);
    /* each schedule begins here */
    if (t->position > 0) require(cuda_recurrent_checkpoint(*state, t->position, 0, &err), &err);
}

static void save(const struct reel_model *m, struct backend_state *state, int n, void **bytes,
                 size_t *n_bytes) {
    struct reel_error err = { 0 };
    *n_bytes = m->ops->save_bytes(state, n);
    *bytes = malloc(*n_bytes);
    require(m->ops->save(state, n, *bytes, &err), &err);
}

struct taken {
    int32_t *ids;
    int n;
};
static bool take_id(void *user, int32_t id) {
    struct taken *t = user;
    t->ids[t->n++] = id;
    return true;
}
static int32_t never_draw(void *user, const float *logits, int64_t position) {
    (void)user, (void)logits, (void)position;
    fail_msg("the host draws");
    return -1;
}

/* Decodes n ids from a token on. */
static void decode(const struct reel_model *m, struct backend_state *state, const struct talk *t,
                   int i, int position, int32_t id, int n, int32_t *ids) {
    struct reel_error err = { 0 };
    struct taken taken = { ids, 0 };
    const struct backend_sampling sampling = { .set = sampling_of(t, i) };
    const struct backend_decode d = { .position = position,
                                      .id = id,
                                      .max_tokens = n,
                                      .sampling = &sampling,
                                      .on_id = take_id,
                                      .draw = never_draw,
                                      .user = &taken };
    require(m->ops->decode(state, &d, &err), &err);
    assert_int_equal(taken.n, n);
    state->n_positions = position + n; /* all of them have been evaluated */
}

static void run_alone(const struct reel_model *m, const struct talk *t, int i, struct alone *a) {
    const int vocab = m->model.config.vocab;
    struct backend_state *state = NULL;
    a->prompt = calloc((size_t)t->position + 1, sizeof *a->prompt);
    a->logits = calloc((size_t)t->columns * (size_t)vocab, sizeof *a->logits);
    for (int k = 0; k < t->position; k++)
        a->prompt[k] = (k * 37 + 11 + 17 * i) % 300;
    for (int k = 0; k < t->columns; k++)
        a->given[k] = (k * 53 + 7 + 29 * i) % 300;
    read_prompt(m, a, t, &state);
    if (t->columns == 1) {
        decode(m, state, t, i, t->position, a->given[0], t->n_new, a->ids);
    } else if (t->temperature > 0) {
        for (int k = 0; k < t->columns; k++)
            decode(m, state, t, i, t->position + k, a->given[k], 1, a->ids + k);
    } else {
        evaluate(m, state, t->position, t->columns, a->given, a->logits);
    }
    a->n_evaluated = t->position + (t->columns > 1 ? t->columns : t->n_new);
    save(m, state, a->n_evaluated, &a->bytes, &a->n_bytes);
    m->ops->state_close(state);
}

/* ---- together ---- */

static char difference[200]; /* what the first column that differs did; empty: none did */

/* Whether the columns of session i, which begin with job `first`, are what they are alone. */
static bool same_session(const struct bench *b, int seed, int i, int first,
                         const struct columns_job *jobs) {
    const struct talk *t = &b->s->talks[i];
    const struct alone *a = &b->alone[i];
    const struct reel_model *m = b->m.gpu;
    const size_t row = (size_t)m->model.config.vocab * sizeof(float);
    const char *what = NULL;
    void *bytes = NULL;
    size_t n_bytes = 0;
    int k = 0;
    for (; k < t->columns && !what; k++) {
        const struct columns_job *job = &jobs[first + k];
        const int wanted = t->columns > 1 ? 1 : t->n_new;
        if (job->end != DECODE_ALL_TOKENS || job->n_evaluated != wanted)
            what = "another end";
        else if (job->logits && memcmp(job->logits, a->logits + (size_t)k * row / 4, row) != 0)
            what = "other logits";
        else if (!job->logits && memcmp(job->ids, a->ids + k, (size_t)wanted * 4) != 0)
            what = "other ids";
    }
    if (!what) {
        save(m, a->state, a->n_evaluated, &bytes, &n_bytes);
        if (n_bytes != a->n_bytes || memcmp(bytes, a->bytes, n_bytes) != 0)
            what = "other keys or values";
    }
    free(bytes);
    if (what)
        snprintf(difference, sizeof difference,
                 "%s, seed %d, session %d, its column %d: %s; end %d", b->s->options, seed, i,
                 k - 1, what, (int)jobs[first].end);
    return !what;
}

/* Makes what stands behind a session's positions NaN: what an earlier schedule left there would be
 * right. */
static void spoil(const struct bench *b, int i) {
    const struct reel_model *m = b->m.gpu;
    const struct talk *t = &b->s->talks[i];
    struct reel_error err = { 0 };
    const int n = t->columns + t->n_new;
    const size_t floats = (size_t)n * (size_t)m->model.config.hidden;
    float *none = calloc(floats, sizeof *none);
    for (size_t k = 0; k < floats; k++)
        none[k] = NAN;
    const struct backend_eval eval = { .position = t->position, .n = n, .embeddings = none };
    sim_gpu_current().cuda->settings.in_order = true;
    require(m->ops->eval(b->alone[i].state, &eval, &err), &err);
    free(none);
}

static bool run_together(struct bench *b, int seed) {
    struct reel_error err = { 0 };
    struct columns_job jobs[MOST_COLUMNS] = { 0 };
    struct sampling_args sampling[MOST_COLUMNS];
    int32_t ids[MOST_COLUMNS][MOST_NEW];
    const size_t vocab = (size_t)b->m.gpu->model.config.vocab;
    float *logits = calloc(MOST_COLUMNS * vocab, sizeof *logits);
    int first[MOST_COLUMNS], n = 0;
    bool same = true;
    *difference = '\0';
    for (int i = 0; i < b->n; i++) {
        const struct talk *t = &b->s->talks[i];
        const struct reel_sampling set = sampling_of(t, i);
        sampling[i] =
            (struct sampling_args){ .temperature = set.temperature, .top_p = 1, .seed = set.seed };
        spoil(b, i);
        first[i] = n;
        for (int k = 0; k < t->columns; k++, n++)
            jobs[n] = (struct columns_job){
                .state = b->alone[i].state,
                .follows = k > 0,
                .position = t->position + k,
                .id = b->alone[i].given[k],
                .n_tokens = t->columns > 1 ? 1 : t->n_new,
                .sampling = &sampling[i],
                .stop_id = -1,
                .logits = t->columns > 1 && t->temperature == 0 ? logits + (size_t)n * vocab : NULL,
                .ids = ids[n],
            };
    }
    struct sim_gpu gpu = sim_gpu_current();
    gpu.cuda->settings.in_order = seed < 0;
    gpu.cuda->settings.seed = (uint64_t)seed, gpu.cuda->n_launches = 0;
    if (columns_rig_run(&b->rig, jobs, n, MOST_NEW + 2, false, &err) != REEL_OK) {
        snprintf(difference, sizeof difference, "%s, seed %d: %.60s; %.100s", b->s->options, seed,
                 err.text, gpu.cuda->report);
        same = false;
    }
    for (int i = 0; i < b->n && same; i++)
        same = same_session(b, seed, i, first[i], jobs);
    free(logits);
    return same;
}

/* ---- settings ---- */

static void bench_load(struct bench *b, bool mutated) {
    struct reel_error err = { 0 };
    char options[200];
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = b->s->n_sms, gpu.cuda->gpu.compute = b->s->compute;
    gpu.cuda->settings.in_order = true;
    if (mutated) gpu.cuda->settings.idle_limit = 300;
    snprintf(options, sizeof options, "%s,prefill_from=0", b->s->options);
    require(sim_model_load(&b->m, options, &err), &err);
}

static void bench_unload(struct bench *b) {
    for (int i = 0; i < b->n; i++)
        b->m.gpu->ops->state_close(b->alone[i].state);
    sim_model_unload(&b->m);
}

/* The sessions before their pass, and the kernel, with a mutation or NULL. */
static void bench_columns(struct bench *b, const struct mutation *mutation) {
    struct reel_error err = { 0 };
    for (int i = 0; i < b->n; i++)
        read_prompt(b->m.gpu, &b->alone[i], &b->s->talks[i], &b->alone[i].state);
    if (mutation) mutation_apply(mutation, sim_gpu_current().nvrtc);
    require(columns_rig_open(&b->rig, b->m.gpu->backend, b->s->columns, true, NULL, false, &err),
            &err);
}

static void bench_open(struct bench *b, const struct setting *s) {
    *b = (struct bench){ .s = s };
    sim_model_open_kv(&b->m, s->model, kv);
    bench_load(b, false);
    for (; b->n < MOST_COLUMNS && s->talks[b->n].columns; b->n++)
        run_alone(b->m.gpu, &s->talks[b->n], b->n, &b->alone[b->n]);
}

static void bench_close(struct bench *b) {
    for (int i = 0; i < b->n; i++)
        free(b->alone[i].bytes), free(b->alone[i].prompt), free(b->alone[i].logits);
    sim_model_close(&b->m);
}

/* Says besides what failed whether that is a race. */
static void fail_in_order_too(struct bench *b) {
    char first[sizeof difference];
    memcpy(first, difference, sizeof first);
    fail_msg("%s; in order: %s", first, run_together(b, -1) ? "right" : difference);
}

static void check_setting(const struct setting *s) {
    struct bench b;
    bench_open(&b, s);
    bench_columns(&b, NULL);
    const int schedules = getenv("REEL_SOAK") ? s->many : s->few;
    for (int seed = 0; seed < schedules; seed++)
        if (!run_together(&b, seed)) fail_in_order_too(&b);
    columns_rig_close(&b.rig);
    bench_unload(&b);
    bench_close(&b);
}

static void columns_of_one_session_are_as_one_after_the_other(void **state) {
    (void)state;
    for (int i = 0; i < N_SETTINGS; i++)
        check_setting(&settings[i]);
}

static void columns_of_one_session_in_codes_are_as_one_after_the_other(void **state) {
    (void)state;
    static const char *const forms[] = { "int8", "fp8" };
    for (int i = 0; i < 2; i++) {
        kv = forms[i];
        check_setting(&settings[i]);
        check_setting(&settings[i + 2]);
    }
    kv = NULL;
}

static struct bench mutated;

static bool is_seen(const struct mutation *m) {
    const int tries = getenv("REEL_SOAK") ? 400 : 40;
    int seed = 0;
    bench_load(&mutated, true);
    bench_columns(&mutated, m);
    while (seed < tries && run_together(&mutated, seed))
        seed++;
    printf("%s: schedule %d: %s\n", m->what, seed, difference);
    columns_rig_close(&mutated.rig);
    bench_unload(&mutated);
    return seed < tries;
}

static void mutations_are_seen(void **state) {
    (void)state;
    /* two sessions with columns that follow, one with attention of both kinds, and one that
     * decodes; warps with several pieces; columns that a block needs for another one alone */
    static const struct setting setting = {
        "q3-a",
        "n_groups=1,group_sms=4,warps=4,split_from=43,kv_slots=4",
        4,
        90,
        8,
        1,
        1,
        { { .position = 35, .columns = 4 },
          { .position = 42, .columns = 3 },
          { .position = 20, .columns = 1, .n_new = 3 } }
    };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&follow_mutations, is_seen);
    bench_close(&mutated);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_of_one_session_are_as_one_after_the_other),
        cmocka_unit_test(columns_of_one_session_in_codes_are_as_one_after_the_other),
        cmocka_unit_test(mutations_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
