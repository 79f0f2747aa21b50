/* Passes of several columns on the fake GPU: each column makes the ids, keys and values that its
 * session makes alone, bit for bit, whatever stands in the other columns and under every schedule.
 */
#include "base/numbers.h"
#include "cuda/run/cuda_recurrent.h"
#include "runtime/model_handle.h"
#include "support/columns_rig.h"
#include "support/mutations.h"
#include "support/narrow_model.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST_PASSES = 400,
    MOST_PROMPT = 70,
    MOST_NEW = 10,
    MOST_POSITIONS = 96,
    HOST_LOOKS_MS = 20
};

/* One session: its prompt, which begins at some id, and what it does. */
struct talk {
    int n_prompt, n_new;
    float temperature;
    int top_k;
    float repetition;
    bool stops; /* at the first id that is like the one in the middle */
    bool asks;  /* the host draws its ids */
};

struct setting {
    const char *model, *options;
    int n_sms, compute, columns;
    int few, many; /* schedules, the second in make soak */
    struct talk talks[8];
};

/* One column is always idle where a setting has fewer talks than columns. From split_from on
 * attention is split, so a pass has columns of both kinds, and some cross over in the middle. */
static const struct setting settings[] = {
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=24,kv_slots=4",
      4,
      90,
      2,
      1,
      60,
      { { .n_prompt = 37, .n_new = 6 }, { .n_prompt = 20, .n_new = 8 } } },
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      4,
      1,
      60,
      { { .n_prompt = 20, .n_new = 7 },
        { .n_prompt = 1, .n_new = 9, .temperature = 0.8f },
        { .n_prompt = 60, .n_new = 5, .stops = true } } },
    { "ll-a",
      "n_groups=1,group_sms=3,warps=4,split_from=30",
      3,
      86,
      8,
      1,
      40,
      { { .n_prompt = 2, .n_new = 9 },
        { .n_prompt = 33, .n_new = 4 },
        { .n_prompt = 28, .n_new = 6, .temperature = 0.7f, .top_k = 5 },
        { .n_prompt = 5, .n_new = 1 },
        { .n_prompt = 48, .n_new = 8, .stops = true },
        { .n_prompt = 16, .n_new = 5, .temperature = 1.0f, .repetition = 1.3f },
        { .n_prompt = 31, .n_new = 3 } } },
    /* one column's h goes round in pairs, and so must that of two and of four */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,hops=2,h_bits=24",
      4,
      90,
      2,
      1,
      40,
      { { .n_prompt = 7, .n_new = 6 }, { .n_prompt = 20, .n_new = 5 } } },
    { "ll-b",
      "n_groups=2,group_sms=2,warps=4,hops=2,h_bits=24",
      4,
      90,
      4,
      1,
      40,
      { { .n_prompt = 3, .n_new = 6 }, { .n_prompt = 12, .n_new = 5, .temperature = 0.8f } } },
    /* two columns take two hops as one does, with h in fp32 */
    { "ll-b",
      "n_groups=2,group_sms=2,warps=4,hops=2,h_bits=32",
      4,
      90,
      2,
      1,
      40,
      { { .n_prompt = 3, .n_new = 5 }, { .n_prompt = 12, .n_new = 4, .temperature = 0.8f } } },
    /* more parts than a stage has room for, and more pieces than a part has warps */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=40,kv_slots=2",
      4,
      90,
      8,
      1,
      40,
      { { .n_prompt = 68, .n_new = 4 },
        { .n_prompt = 70, .n_new = 3 },
        { .n_prompt = 38, .n_new = 5 },
        { .n_prompt = 66, .n_new = 2, .temperature = 0.7f, .top_k = 5 },
        { .n_prompt = 1, .n_new = 4 },
        { .n_prompt = 39, .n_new = 4, .stops = true },
        { .n_prompt = 69, .n_new = 3 } } },
    /* Gated DeltaNets and gated attention: a warp has a run of several rounds; heads of its own for
     * out; rounds that span units, and rows of mix that do not fill their tiles */
    { "q35-w",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      2,
      1,
      60,
      { { .n_prompt = 21, .n_new = 6 }, { .n_prompt = 2, .n_new = 9, .temperature = 0.8f } } },
    { "q35-w",
      "n_groups=1,group_sms=4,warps=4,split_from=24",
      4,
      90,
      4,
      1,
      60,
      { { .n_prompt = 20, .n_new = 7 },
        { .n_prompt = 1, .n_new = 5, .temperature = 0.8f },
        { .n_prompt = 40, .n_new = 9, .stops = true } } },
    { "q35-p",
      "n_groups=2,group_sms=2,warps=4,split_from=20",
      4,
      86,
      8,
      1,
      40,
      { { .n_prompt = 2, .n_new = 7 },
        { .n_prompt = 22, .n_new = 4 },
        { .n_prompt = 18, .n_new = 5, .temperature = 0.7f, .top_k = 5 },
        { .n_prompt = 5, .n_new = 1 },
        { .n_prompt = 24, .n_new = 6, .stops = true },
        { .n_prompt = 1, .n_new = 4, .temperature = 1.0f, .repetition = 1.3f },
        { .n_prompt = 9, .n_new = 3 } } },
    /* long slices of h, with phases that are loops and have tiles behind these; and narrow ones */
    { "q3-i",
      "n_groups=1,group_sms=4,warps=4,split_from=24",
      4,
      90,
      2,
      1,
      10,
      { { .n_prompt = 2, .n_new = 3 }, { .n_prompt = 3, .n_new = 2 } } },
    { "q3-h",
      "n_groups=1,group_sms=4,warps=4,split_from=24,narrow=1",
      4,
      90,
      2,
      1,
      10,
      { { .n_prompt = 2, .n_new = 3 }, { .n_prompt = 3, .n_new = 2 } } },
    /* columns that wait for the host, one that does so from its first position on */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      4,
      1,
      20,
      { { .n_prompt = 20, .n_new = 5, .asks = true },
        { .n_prompt = 30, .n_new = 9, .temperature = 0.8f },
        { .n_prompt = 1, .n_new = 4, .asks = true } } },
    { "q35-w",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      2,
      1,
      20,
      { { .n_prompt = 22, .n_new = 5, .asks = true }, { .n_prompt = 2, .n_new = 8 } } },
    /* narrow weights, of all kinds */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,split_from=24,narrow=1",
      4,
      90,
      4,
      1,
      40,
      { { .n_prompt = 9, .n_new = 5 },
        { .n_prompt = 26, .n_new = 4 },
        { .n_prompt = 3, .n_new = 6 } } },
    { "ll-k",
      "n_groups=1,group_sms=4,warps=4,split_from=24,narrow=1",
      4,
      90,
      4,
      1,
      20,
      { { .n_prompt = 3, .n_new = 4 },
        { .n_prompt = 5, .n_new = 3 },
        { .n_prompt = 2, .n_new = 5 } } },
};
static const struct narrow_forms narrow_forms = { { ROWS_INT8, 0, PLANE_F32 },
                                                  { INT4_ZEROS, 32, PLANE_F16 },
                                                  { E2M1_GROUPS, 16, PLANE_F32 },
                                                  { E4M3_BLOCKS, 128, PLANE_BF16 },
                                                  { Q4_1_BLOCKS, 32, PLANE_F16 } };
static const struct narrow_forms table_forms = { { NF4_GROUPS, 64, PLANE_F32 },
                                                 { FP4_GROUPS, 64, PLANE_F32 },
                                                 { NF4_GROUPS, 128, PLANE_F32 },
                                                 { FP4_GROUPS, 32, PLANE_F32 },
                                                 { NF4_GROUPS, 64, PLANE_F32 } };
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

/* What a talk gives alone. */
struct alone {
    int32_t prompt[MOST_PROMPT], ids[MOST_NEW];
    int n_ids, n_evaluated; /* positions */
    struct backend_state *state;
    void *bytes, *before; /* before: the positions before the last one of the prompt */
    size_t n_bytes, n_before;
};

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct reel_sampling sampling_of(const struct talk *t, int i) {
    return (struct reel_sampling){ .size = sizeof(struct reel_sampling),
                                   .temperature = t->temperature,
                                   .top_k = t->top_k,
                                   .repetition_penalty = t->repetition,
                                   .seed = (uint64_t)(100 + i) };
}

static bool take_id(void *user, int32_t id) {
    struct alone *a = user;
    a->ids[a->n_ids++] = id;
    return true;
}

static int32_t never_draw(void *user, const float *logits, int64_t position) {
    (void)user, (void)logits, (void)position;
    fail_msg("the host draws");
    return -1;
}

/* The positions before the last one of the prompt. */
static void read_prompt(const struct reel_model *m, struct alone *a, const struct talk *t,
                        struct backend_state **state) {
    struct reel_error err = { 0 };
    const struct backend_eval eval = { .n = t->n_prompt - 1, .ids = a->prompt };
    require(m->ops->state_open(state, m->backend, MOST_POSITIONS, &err), &err);
    if (eval.n == 0) return;
    require(m->ops->eval(*state, &eval, &err), &err);
    /* each schedule begins here */
    cuda_recurrent_checkpoint(*state, eval.n, 0);
}

static void save(const struct reel_model *m, struct backend_state *state, int n, void **bytes,
                 size_t *n_bytes) {
    struct reel_error err = { 0 };
    *n_bytes = m->ops->save_bytes(state, n);
    *bytes = malloc(*n_bytes);
    require(m->ops->save(state, n, *bytes, &err), &err);
}

/* Decodes n ids alone. */
static void decode_alone(const struct reel_model *m, const struct talk *t, int i, struct alone *a,
                         int n) {
    struct reel_error err = { 0 };
    struct backend_state *state = NULL;
    int32_t *generated = calloc((size_t)m->model.config.vocab, sizeof *generated);
    const struct backend_sampling sampling = { .set = sampling_of(t, i),
                                               .penalises = t->repetition > 0,
                                               .generated = generated };
    a->n_ids = 0;
    read_prompt(m, a, t, &state);
    const struct backend_decode decode = { .position = t->n_prompt - 1,
                                           .id = a->prompt[t->n_prompt - 1],
                                           .max_tokens = n,
                                           .sampling = &sampling,
                                           .on_id = take_id,
                                           .draw = never_draw,
                                           .user = a };
    require(m->ops->decode(state, &decode, &err), &err);
    assert_int_equal(a->n_ids, n);
    a->n_evaluated = t->n_prompt - 1 + n;
    assert_true(state->n_positions >= a->n_evaluated - 1);
    state->n_positions = a->n_evaluated; /* all of them have been evaluated */
    free(a->bytes);
    save(m, state, a->n_evaluated, &a->bytes, &a->n_bytes);
    m->ops->state_close(state);
    free(generated);
}

static void run_alone(const struct reel_model *m, const struct talk *t, int i, struct alone *a) {
    int n = 1;
    for (int k = 0; k < t->n_prompt; k++)
        a->prompt[k] = (k * 37 + 11 + 17 * i) % 300;
    decode_alone(m, t, i, a, t->n_new);
    if (!t->stops) return;
    while (a->ids[n - 1] != a->ids[t->n_new / 2])
        n++;
    decode_alone(m, t, i, a, n);
}

/* What the first column that differs did; empty: none did. */
static char difference[200];

static bool same_column(const struct setting *s, const struct reel_model *m, int seed, int i,
                        const struct alone *a, const struct columns_job *job) {
    const struct talk *t = &s->talks[i];
    void *bytes = NULL;
    size_t n_bytes = 0;
    const char *what = NULL;
    if (job->end != (t->stops ? DECODE_STOP_ID : DECODE_ALL_TOKENS) || job->n_made != a->n_ids ||
        job->n_evaluated != a->n_ids)
        what = "another end";
    else if (memcmp(job->ids, a->ids, (size_t)a->n_ids * sizeof *a->ids) != 0)
        what = "other ids";
    if (!what) save(m, job->state, a->n_evaluated, &bytes, &n_bytes);
    if (!what && (n_bytes != a->n_bytes || memcmp(bytes, a->bytes, n_bytes) != 0))
        what = "other keys or values";
    free(bytes);
    if (what)
        snprintf(difference, sizeof difference, "%s, seed %d, column %d: %s; end %d, %d ids of %d",
                 s->options, seed, i, what, (int)job->end, job->n_made, a->n_ids);
    return !what;
}

/* A model with the sessions of a setting, and the kernel for their columns. */
struct bench {
    const struct setting *s;
    struct sim_model m;
    struct columns_rig rig;
    struct alone alone[8];
    int n;
};

/* A session as it was before its passes, with NaN behind its positions: what an earlier schedule
 * left there would be right. */
static void begin_anew(const struct bench *b, int i) {
    struct reel_error err = { 0 };
    const struct alone *a = &b->alone[i];
    const int n = b->s->talks[i].n_prompt - 1;
    cuda_pages_keep(a->state, n);
    if (n == 0) return;
    require(b->m.gpu->ops->restore(a->state, n, a->before, a->n_before, &err), &err);
    cuda_recurrent_checkpoint(a->state, n, 0);
}

/* Whether the host read the right number of passes as soon as it saw the end. */
static bool same_passes(const struct bench *b, int seed) {
    int most = 0, waits = 0;
    for (int i = 0; i < b->n; i++)
        most = int_max(most, b->alone[i].n_ids), waits += b->s->talks[i].asks;
    if (b->rig.n_passes == most || (waits && b->rig.n_passes > most)) return true;
    snprintf(difference, sizeof difference, "%s, seed %d: %d passes of %d when the end came",
             b->s->options, seed, b->rig.n_passes, most);
    return false;
}

static bool run_together(struct bench *b, int seed) {
    const struct setting *s = b->s;
    struct reel_error err = { 0 };
    struct columns_job jobs[8] = { 0 };
    struct sampling_args sampling[8];
    int32_t ids[8][MOST_NEW];
    *difference = '\0';
    for (int i = 0; i < b->n; i++) {
        const struct talk *t = &s->talks[i];
        const struct alone *a = &b->alone[i];
        const struct reel_sampling set = sampling_of(t, i);
        begin_anew(b, i);
        sampling[i] = (struct sampling_args){ .temperature = set.temperature,
                                              .top_p = 1,
                                              .top_k = set.top_k,
                                              .repetition = t->repetition,
                                              .adjust = t->repetition > 0,
                                              .seed = set.seed };
        jobs[i] = (struct columns_job){ .state = a->state,
                                        .position = t->n_prompt - 1,
                                        .id = a->prompt[t->n_prompt - 1],
                                        .n_tokens = t->n_new,
                                        .sampling = t->asks ? NULL : &sampling[i],
                                        .stop_id = t->stops ? a->ids[a->n_ids - 1] : -1,
                                        .host_draws = t->asks,
                                        .ids = ids[i] };
    }
    struct sim_gpu gpu = sim_gpu_current();
    gpu.cuda->settings.in_order = seed < 0;
    gpu.cuda->settings.seed = (uint64_t)seed, gpu.cuda->n_launches = 0;
    if (columns_rig_run(&b->rig, jobs, b->n, MOST_PASSES, false, &err) != REEL_OK) {
        snprintf(difference, sizeof difference, "%s, seed %d: %.60s; %.100s", s->options, seed,
                 err.text, gpu.cuda->report);
        if (getenv("REEL_COLUMNS")) printf("%s\n", gpu.cuda->report);
        return false;
    }
    for (int i = 0; i < b->n; i++)
        if (!same_column(s, b->m.gpu, seed, i, &b->alone[i], &jobs[i])) return false;
    return same_passes(b, seed);
}

static void bench_load(struct bench *b, bool mutated) {
    struct reel_error err = { 0 };
    char options[200];
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = b->s->n_sms, gpu.cuda->gpu.compute = b->s->compute;
    gpu.cuda->settings.in_order = true;
    if (mutated) gpu.cuda->settings.idle_limit = 300;
    if (mutated) gpu.cuda->settings.host_look_ms = HOST_LOOKS_MS;
    snprintf(options, sizeof options, "%s,prefill_from=0", b->s->options);
    if (!strstr(options, "narrow=1")) {
        require(sim_model_load(&b->m, options, &err), &err);
        return;
    }
    require(narrow_model_load(&b->m,
                              strcmp(b->s->model, "ll-k") == 0 ? &table_forms : &narrow_forms,
                              options, &err),
            &err);
    assert_true(b->m.gpu->backend->plan.tape.segment[TAPE_DOWN].format != TILE_BF16);
}

static void bench_unload(struct bench *b) {
    for (int i = 0; i < b->n; i++)
        b->m.gpu->ops->state_close(b->alone[i].state), free(b->alone[i].before);
    sim_model_unload(&b->m);
}

static enum columns_crowd crowd; /* what a few columns have on GPUs with less shared memory */

/* The sessions before their passes, and the kernel, with a mutation or NULL. */
static void bench_columns(struct bench *b, const struct mutation *mutation) {
    struct reel_error err = { 0 };
    for (int i = 0; i < b->n; i++) {
        struct alone *a = &b->alone[i];
        read_prompt(b->m.gpu, a, &b->s->talks[i], &a->state);
        save(b->m.gpu, a->state, b->s->talks[i].n_prompt - 1, &a->before, &a->n_before);
    }
    if (mutation) mutation_apply(mutation, sim_gpu_current().nvrtc);
    if (crowd) assert_true(columns_rig_crowd(b->m.gpu->backend, b->s->columns, false, crowd));
    require(columns_rig_open(&b->rig, b->m.gpu->backend, b->s->columns, false, NULL, false, &err),
            &err);
    b->rig.looks = true;
}

static const char *kv; /* the form of keys and values; NULL: bf16 */

static void bench_open(struct bench *b, const struct setting *s) {
    *b = (struct bench){ .s = s };
    sim_model_open_kv(&b->m, s->model, kv);
    bench_load(b, false);
    for (; b->n < s->columns && s->talks[b->n].n_prompt; b->n++)
        run_alone(b->m.gpu, &s->talks[b->n], b->n, &b->alone[b->n]);
}

static void bench_close(struct bench *b) {
    for (int i = 0; i < b->n; i++)
        free(b->alone[i].bytes);
    sim_model_close(&b->m);
    narrow_free();
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

static void columns_are_as_alone(void **state) {
    (void)state;
    const char *only = getenv("REEL_COLUMNS"); /* numbers of columns, or a model */
    const struct share share = share_of("columns", 5);
    for (int i = 0; i < N_SETTINGS; i++)
        if (only ? settings[i].columns == atoi(only) || !strcmp(only, settings[i].model)
                 : share_has(share, i))
            check_setting(&settings[i]);
}

/* So many columns. */
static void check_crowded(enum columns_crowd how, int columns, const char *what) {
    const struct share share = share_of(what, 2);
    int n = 0;
    crowd = how;
    for (int i = 0; i < N_SETTINGS; i++)
        if (settings[i].columns == columns && !strstr(settings[i].options, "narrow") &&
            share_has(share, n++))
            check_setting(&settings[i]);
    crowd = CROWD_NONE;
    assert_true(n > 0);
}

static void columns_that_share_their_place_are_as_alone(void **state) {
    (void)state;
    check_crowded(CROWD_OVERLAID, 4, "columns-crowded");
}

static void columns_with_odd_rings_are_as_alone(void **state) {
    (void)state;
    check_crowded(CROWD_ODD_RING, 4, "columns-odd-rings");
}

static void columns_in_codes_are_as_alone(void **state) {
    (void)state;
    static const char *const forms[] = { "int8", "fp8" };
    const struct share share = share_of("columns-in-codes", 2);
    for (int i = 0; i < 2; i++) {
        if (!share_has(share, i)) continue;
        kv = forms[i];
        check_setting(&settings[i]);
    }
    kv = NULL;
}

static struct bench mutated;

static bool is_seen_in(const struct mutation *m, int tries) {
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

static const struct mutation no_mutation = { .what = "nothing" };

static bool is_seen(const struct mutation *m) {
    return is_seen_in(m, getenv("REEL_SOAK") ? 400 : 40);
}

static void mutations_are_seen(void **state) {
    (void)state;
    /* rows of K and V that one SM writes and another reads; a column that samples at first only */
    static const struct setting setting = {
        "q3-a",
        "n_groups=2,group_sms=2,warps=4,split_from=24,kv_slots=4",
        4,
        90,
        4,
        1,
        1,
        { { .n_prompt = 28, .n_new = 10 },
          { .n_prompt = 3, .n_new = 3, .temperature = 0.8f },
          { .n_prompt = 44, .n_new = 9 },
          { .n_prompt = 24, .n_new = 10 } }
    };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_stages_are_seen(void **state) {
    (void)state;
    /* more parts than a stage has room for, and more pieces than a column has parts */
    static const struct setting setting = {
        "q3-a",
        "n_groups=2,group_sms=1,warps=4,split_from=24,kv_slots=3",
        2,
        90,
        8,
        1,
        1,
        { { .n_prompt = 66, .n_new = 4 },
          { .n_prompt = 67, .n_new = 3 },
          { .n_prompt = 68, .n_new = 4 },
          { .n_prompt = 20, .n_new = 3 },
          { .n_prompt = 69, .n_new = 4 },
          { .n_prompt = 70, .n_new = 4 },
          { .n_prompt = 66, .n_new = 3 },
          { .n_prompt = 40, .n_new = 3 } }
    };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_stages_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_turns_are_seen(void **state) {
    (void)state;
    static const struct setting setting = { "q3-a",
                                            "n_groups=2,group_sms=2,warps=4,split_from=24",
                                            4,
                                            86,
                                            4,
                                            1,
                                            1,
                                            { { .n_prompt = 28, .n_new = 6 },
                                              { .n_prompt = 3, .n_new = 3 },
                                              { .n_prompt = 44, .n_new = 6 },
                                              { .n_prompt = 24, .n_new = 6 } } };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_turns_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_turned_rows_are_seen(void **state) {
    (void)state;
    static const struct setting setting = { "q3-a",
                                            "n_groups=2,group_sms=1,warps=8,split_from=24",
                                            2,
                                            90,
                                            4,
                                            1,
                                            1,
                                            { { .n_prompt = 20, .n_new = 6 },
                                              { .n_prompt = 3, .n_new = 5 },
                                              { .n_prompt = 28, .n_new = 6 } } };
    bench_open(&mutated, &setting);
    assert_int_equal(mutated.m.gpu->backend->plan.tape.segment[TAPE_QKV].k_parts, 8);
    sim_model_unload(&mutated.m);
    assert_false(is_seen_in(&no_mutation, 3));
    mutations_try(&columns_parts_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_odd_rings_are_seen(void **state) {
    (void)state;
    /* a head of many rows, of which a warp that reads too early gets a part wrong */
    static const struct setting setting = {
        "q3-i", "n_groups=1,group_sms=4,warps=4,split_from=24,cap_head=3",       4, 90, 2, 1,
        1,      { { .n_prompt = 2, .n_new = 3 }, { .n_prompt = 3, .n_new = 3 } }
    };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    crowd = CROWD_ODD_RING;
    mutations_try(&columns_odd_ring_mutations, is_seen);
    crowd = CROWD_NONE;
    bench_close(&mutated);
}

static void mutations_of_overlaid_columns_are_seen(void **state) {
    (void)state;
    /* warps without pieces, and gated values of less than whole tiles of all warps */
    static const struct setting setting = { "q3-a",
                                            "n_groups=2,group_sms=2,warps=4,split_from=24",
                                            4,
                                            90,
                                            4,
                                            1,
                                            1,
                                            { { .n_prompt = 3, .n_new = 6 },
                                              { .n_prompt = 28, .n_new = 3, .temperature = 0.8f },
                                              { .n_prompt = 12, .n_new = 5 } } };
    crowd = CROWD_OVERLAID;
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    assert_false(is_seen_in(&columns_scratch_none, 3));
    mutations_try(&columns_overlaid_mutations, is_seen);
    bench_close(&mutated);
    crowd = CROWD_NONE;
}

static void mutations_of_deltanets_are_seen(void **state) {
    (void)state;
    /* columns that are idle, that end early, and of both kinds of attention; parts of shared memory
     * share their place */
    static const struct setting setting = {
        "q35-w",
        "n_groups=2,group_sms=2,warps=4,split_from=24,kv_slots=4",
        4,
        90,
        8,
        1,
        1,
        { { .n_prompt = 20, .n_new = 8 },
          { .n_prompt = 3, .n_new = 2, .temperature = 0.8f },
          { .n_prompt = 26, .n_new = 7 },
          { .n_prompt = 22, .n_new = 6 } }
    };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_delta_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_waiting_are_seen(void **state) {
    (void)state;
    /* while all columns of a block wait, its producer of K and V brings nothing */
    static const struct setting setting = { "q3-a",
                                            "n_groups=2,group_sms=2,warps=4,split_from=24",
                                            4,
                                            90,
                                            4,
                                            1,
                                            1,
                                            { { .n_prompt = 20, .n_new = 5, .asks = true },
                                              { .n_prompt = 3, .n_new = 7 },
                                              { .n_prompt = 5, .n_new = 4, .asks = true },
                                              { .n_prompt = 12, .n_new = 5, .asks = true } } };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_waiting_mutations, is_seen);
    bench_close(&mutated);
}

static void mutations_of_digits_are_seen(void **state) {
    (void)state;
    /* columns in turns, and few pieces, so that some warps have none; columns that differ in size;
     * warps that share a slice of out's input */
    static const struct setting setting = { "ll-a",
                                            "n_groups=1,group_sms=2,warps=4,split_from=24,narrow=1",
                                            2,
                                            86,
                                            4,
                                            1,
                                            1,
                                            { { .n_prompt = 9, .n_new = 6 },
                                              { .n_prompt = 26, .n_new = 5 },
                                              { .n_prompt = 3, .n_new = 6 } } };
    bench_open(&mutated, &setting);
    sim_model_unload(&mutated.m);
    mutations_try(&columns_digits_mutations, is_seen);
    bench_close(&mutated);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_alone),
        cmocka_unit_test(columns_that_share_their_place_are_as_alone),
        cmocka_unit_test(columns_with_odd_rings_are_as_alone),
        cmocka_unit_test(columns_in_codes_are_as_alone),
        in_turn(mutations_are_seen),
        in_turn(mutations_of_stages_are_seen),
        in_turn(mutations_of_deltanets_are_seen),
        in_turn(mutations_of_digits_are_seen),
        in_turn(mutations_of_waiting_are_seen),
        in_turn(mutations_of_turns_are_seen),
        in_turn(mutations_of_turned_rows_are_seen),
        in_turn(mutations_of_odd_rings_are_seen),
        in_turn(mutations_of_overlaid_columns_are_seen),
    };
    SHARE_TESTS("columns-mutations", 4, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
