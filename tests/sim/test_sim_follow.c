/* Passes with drafts (kernels/args.h): a session makes the ids, keys and values that it makes one
 * token after the other, bit for bit, whatever its drafts are, whatever stands in the other columns
 * and under every schedule; and it takes the passes and drafts that it should. */
#include "cuda/run/cuda_recurrent.h"
#include "runtime/model_handle.h"
#include "support/columns_rig.h"
#include "support/mutations.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_COLUMNS = 8, MOST_NEW = 24, MOST_POSITIONS = 180 };

/* One session: positions that it has, and ids that it makes from there on. */
struct talk {
    int position, n_new;
    int most_drafts; /* of a pass; 0: it has none */
    float temperature;
    /* What is expected of each id: '=' the right one, 'x' a wrong one, '-' nothing. */
    const char *expected;
    int stops; /* not 0: after so many ids, as the last of them is a stop id */
};

struct setting {
    const char *model, *options;
    int n_sms, compute, columns;
    int few, many; /* schedules, the second in make soak */
    struct talk talks[MOST_COLUMNS];
};

static const struct setting settings[] = {
    /* one draft a pass, over a piece's border, one SM for each column */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000,kv_slots=4",
      4,
      90,
      2,
      1,
      60,
      { { .position = 29, .n_new = 7, .most_drafts = 1, .expected = "==x====-" } } },
    /* from the border on, in pieces that hold nothing but these passes; beside a session that
     * decodes without drafts */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000",
      4,
      90,
      4,
      1,
      60,
      { { .position = 32, .n_new = 9, .most_drafts = 2, .expected = "===-==x=====" },
        { .position = 14, .n_new = 4 } } },
    /* several sessions side by side, one of them split */
    { "ll-a",
      "n_groups=1,group_sms=3,warps=4,split_from=30",
      3,
      86,
      8,
      1,
      40,
      { { .position = 33, .n_new = 8, .most_drafts = 2, .expected = "=x========" },
        { .position = 15,
          .n_new = 6,
          .most_drafts = 3,
          .temperature = 0.8f,
          .expected = "====x====" },
        { .position = 40, .n_new = 3 } } },
    /* attention becomes split in the middle of the session's columns; ids are drawn */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=30",
      4,
      90,
      8,
      1,
      40,
      { { .position = 27,
          .n_new = 20,
          .most_drafts = 7,
          .temperature = 0.9f,
          .expected = "=======-==x================" } } },
    /* nothing before the pass; more columns than SMs of a group; it stops at a draft */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=1000",
      4,
      80,
      8,
      1,
      40,
      { { .position = 0,
          .n_new = 16,
          .most_drafts = 7,
          .expected = "=======================",
          .stops = 5 } } },
    /* over a page's border, in split pieces; rows of drafts that were wrong lie behind it */
    { "q3-a",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      8,
      1,
      20,
      { { .position = 124, .n_new = 9, .most_drafts = 3, .expected = "xxxx==x====x" },
        { .position = 126, .n_new = 5, .most_drafts = 2, .expected = "=x=====" },
        { .position = 20, .n_new = 3 } } },
    /* Gated DeltaNets: of several rounds each; none, some and all drafts are right */
    { "q35-w",
      "n_groups=2,group_sms=2,warps=4,split_from=24",
      4,
      90,
      4,
      1,
      60,
      { { .position = 21, .n_new = 14, .most_drafts = 3, .expected = "===x=-x===x=-====" } } },
    /* more turns of a warp than one; rounds that span units; a session that is over before others,
     * one that stops at a draft, one without drafts */
    { "q35-p",
      "n_groups=2,group_sms=2,warps=4,split_from=20",
      4,
      86,
      8,
      1,
      40,
      { { .position = 18, .n_new = 5, .most_drafts = 2, .expected = "==x===" },
        { .position = 1, .n_new = 9, .temperature = 0.8f },
        { .position = 24,
          .n_new = 8,
          .most_drafts = 3,
          .temperature = 0.7f,
          .expected = "====x======",
          .stops = 7 } } },
    /* more owed than a warp holds; nothing before */
    { "q35-w",
      "n_groups=1,group_sms=4,warps=4,split_from=24",
      4,
      90,
      8,
      1,
      40,
      { { .position = 0, .n_new = 20, .most_drafts = 7, .expected = "==============x=====" } } },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

/* What a session makes alone, and what it takes with its drafts. */
struct alone {
    int32_t *prompt, first, ids[MOST_NEW], guesses[MOST_NEW + MOST_COLUMNS];
    int n_ids, stop_id;
    int n_drafted, n_right;
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

/* The positions before those of the columns. */
static void read_prompt(const struct reel_model *m, const struct alone *a, const struct talk *t,
                        struct backend_state **state) {
    struct reel_error err = { 0 };
    require(m->ops->state_open(state, m->backend, MOST_POSITIONS, &err), &err);
    const struct backend_eval eval = { .n = t->position, .ids = a->prompt };
    if (t->position > 0) require(m->ops->eval(*state, &eval, &err), &err);
    /* each schedule begins here */
    if (t->position > 0) cuda_recurrent_checkpoint(*state, t->position, 0);
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

static void guess(const struct talk *t, struct alone *a) {
    const int n = t->expected ? (int)strlen(t->expected) : 0;
    for (int k = 0; k < MOST_NEW + MOST_COLUMNS; k++) {
        const char c = k < n ? t->expected[k] : '-';
        const int32_t right = k < t->n_new ? a->ids[k] : 5;
        a->guesses[k] = c == '=' ? right : c == 'x' ? (right + 1) % 300 : -1;
    }
}

/* Drafts of the pass whose first column has made n ids before. */
static int drafts_of_pass(const struct talk *t, const struct alone *a, int n) {
    int live = 0;
    while (live < t->most_drafts && n + live + 1 < t->n_new && a->guesses[n + live] >= 0)
        live++;
    return live;
}

/* Which drafts the passes take, and how many are right, as args.h says. */
static void expect_passes(const struct talk *t, struct alone *a) {
    int live = drafts_of_pass(t, a, 0);
    a->n_drafted = a->n_right = 0;
    for (int n = 0; n < a->n_ids;) {
        int made = 1;
        while (made <= live && a->guesses[n + made - 1] == a->ids[n + made - 1] &&
               n + made < a->n_ids)
            made++;
        a->n_drafted += live;
        a->n_right += made - 1;
        n += made;
        live = drafts_of_pass(t, a, n);
    }
}

/* Makes the first n of a session's ids. Returns the state that they leave. */
static struct backend_state *decode_alone(const struct reel_model *m, const struct talk *t, int i,
                                          struct alone *a, int n) {
    struct backend_state *state = NULL;
    struct reel_error err = { 0 };
    struct taken taken = { a->ids, 0 };
    const struct backend_sampling sampling = { .set = sampling_of(t, i) };
    read_prompt(m, a, t, &state);
    const struct backend_decode d = { .position = t->position,
                                      .id = a->first,
                                      .max_tokens = n,
                                      .sampling = &sampling,
                                      .on_id = take_id,
                                      .draw = never_draw,
                                      .user = &taken };
    require(m->ops->decode(state, &d, &err), &err);
    assert_int_equal(taken.n, n);
    return state;
}

static void run_alone(const struct reel_model *m, const struct talk *t, int i, struct alone *a) {
    a->prompt = calloc((size_t)t->position + 1, sizeof *a->prompt);
    for (int k = 0; k < t->position; k++)
        a->prompt[k] = (k * 37 + 11 + 17 * i) % 300;
    a->first = 7 + 29 * i;
    struct backend_state *state = decode_alone(m, t, i, a, t->n_new);
    a->n_ids = t->n_new, a->stop_id = -1;
    if (t->stops) {
        a->stop_id = a->ids[t->stops - 1];
        for (a->n_ids = 1; a->ids[a->n_ids - 1] != a->stop_id;)
            a->n_ids++;
        m->ops->state_close(state); /* a recurrent state does not go back */
        state = decode_alone(m, t, i, a, a->n_ids);
    }
    guess(t, a);
    expect_passes(t, a);
    state->n_positions = t->position + a->n_ids; /* all of them have been evaluated */
    save(m, state, t->position + a->n_ids, &a->bytes, &a->n_bytes);
    m->ops->state_close(state);
}

/* ---- together ---- */

static char difference[300]; /* what the first session that differs did; empty: none did */

/* Whether a session is what it is alone. */
static bool same_session(const struct bench *b, int seed, int i, const struct columns_job *job) {
    const struct talk *t = &b->s->talks[i];
    const struct alone *a = &b->alone[i];
    const struct reel_model *m = b->m.gpu;
    const char *what = NULL;
    void *bytes = NULL;
    size_t n_bytes = 0;
    if (job->end != (t->stops ? DECODE_STOP_ID : DECODE_ALL_TOKENS) || job->n_made != a->n_ids ||
        job->n_evaluated != a->n_ids || job->n_told != a->n_ids)
        what = "another end";
    else if (memcmp(job->ids, a->ids, (size_t)a->n_ids * sizeof *a->ids) != 0)
        what = "other ids";
    else if (job->n_drafted != a->n_drafted || job->n_right != a->n_right)
        what = "other drafts";
    if (!what) {
        save(m, a->state, t->position + a->n_ids, &bytes, &n_bytes);
        if (n_bytes != a->n_bytes || memcmp(bytes, a->bytes, n_bytes) != 0)
            what = "other keys, values or states";
    }
    free(bytes);
    if (what)
        snprintf(difference, sizeof difference,
                 "%s, seed %d, session %d: %s; end %d, %d ids of %d, %d drafts of %d, %d right of "
                 "%d",
                 b->s->options, seed, i, what, (int)job->end, job->n_made, a->n_ids, job->n_drafted,
                 a->n_drafted, job->n_right, a->n_right);
    return !what;
}

/* Makes what stands behind a session's positions NaN: what an earlier schedule left there would be
 * right. */
static void spoil(const struct bench *b, int i) {
    const struct reel_model *m = b->m.gpu;
    const struct talk *t = &b->s->talks[i];
    struct reel_error err = { 0 };
    const size_t floats = (size_t)t->n_new * (size_t)m->model.config.hidden;
    float *none = calloc(floats, sizeof *none);
    for (size_t k = 0; k < floats; k++)
        none[k] = NAN;
    const struct backend_eval eval = { .position = t->position, .n = t->n_new, .embeddings = none };
    sim_gpu_current().cuda->settings.in_order = true;
    require(m->ops->eval(b->alone[i].state, &eval, &err), &err);
    free(none);
}

static bool run_together(struct bench *b, int seed) {
    struct reel_error err = { 0 };
    struct columns_job jobs[MOST_COLUMNS] = { 0 };
    struct sampling_args sampling[MOST_COLUMNS];
    int32_t ids[MOST_COLUMNS][MOST_NEW];
    bool same = true;
    *difference = '\0';
    for (int i = 0; i < b->n; i++) {
        const struct talk *t = &b->s->talks[i];
        const struct reel_sampling set = sampling_of(t, i);
        sampling[i] =
            (struct sampling_args){ .temperature = set.temperature, .top_p = 1, .seed = set.seed };
        spoil(b, i);
        jobs[i] = (struct columns_job){ .state = b->alone[i].state,
                                        .position = t->position,
                                        .id = b->alone[i].first,
                                        .n_tokens = t->n_new,
                                        .most_drafts = t->most_drafts,
                                        .guesses = b->alone[i].guesses,
                                        .sampling = &sampling[i],
                                        .stop_id = b->alone[i].stop_id,
                                        .ids = ids[i] };
    }
    struct sim_gpu gpu = sim_gpu_current();
    gpu.cuda->settings.in_order = seed < 0;
    gpu.cuda->settings.seed = (uint64_t)seed, gpu.cuda->n_launches = 0;
    if (columns_rig_run(&b->rig, jobs, b->n, MOST_NEW + 2, b->n == 1, &err) != REEL_OK) {
        snprintf(difference, sizeof difference, "%s, seed %d: %.100s; %.150s", b->s->options, seed,
                 err.text, gpu.cuda->report);
        same = false;
    }
    for (int i = 0; i < b->n && same; i++)
        same = same_session(b, seed, i, &jobs[i]);
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

static bool
    crowded; /* parts of shared memory share their place, which a few columns need on small GPUs */

/* The sessions before their pass, and the kernel, with a mutation or NULL. */
static void bench_columns(struct bench *b, const struct mutation *mutation) {
    struct reel_error err = { 0 };
    for (int i = 0; i < b->n; i++)
        read_prompt(b->m.gpu, &b->alone[i], &b->s->talks[i], &b->alone[i].state);
    if (mutation) mutation_apply(mutation, sim_gpu_current().nvrtc);
    if (crowded)
        assert_true(columns_rig_crowd(b->m.gpu->backend, b->s->columns, true, CROWD_OVERLAID));
    require(columns_rig_open(&b->rig, b->m.gpu->backend, b->s->columns, true, NULL, false, &err),
            &err);
}

static void bench_open(struct bench *b, const struct setting *s) {
    *b = (struct bench){ .s = s };
    sim_model_open_kv(&b->m, s->model, kv);
    bench_load(b, false);
    for (; b->n < MOST_COLUMNS && s->talks[b->n].n_new; b->n++)
        run_alone(b->m.gpu, &s->talks[b->n], b->n, &b->alone[b->n]);
}

static void bench_close(struct bench *b) {
    for (int i = 0; i < b->n; i++)
        free(b->alone[i].bytes), free(b->alone[i].prompt);
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

static void drafts_change_no_bit(void **state) {
    (void)state;
    const struct share share = share_of("drafts", 5);
    for (int i = 0; i < N_SETTINGS; i++)
        if (share_has(share, i)) check_setting(&settings[i]);
}

/* Four columns, those above of models with DeltaNets; and of dense ones: attention becomes split in
 * the middle of a session's columns, which are drawn; beside sessions of fewer columns; with a part
 * for each of a few SMs. */
static void drafts_that_share_their_place_change_no_bit(void **state) {
    (void)state;
    static const struct setting few[] = {
        { "q3-a",
          "n_groups=2,group_sms=2,warps=4,split_from=30",
          4,
          90,
          4,
          1,
          40,
          { { .position = 27,
              .n_new = 20,
              .most_drafts = 3,
              .temperature = 0.9f,
              .expected = "===-==x===================" } } },
        { "ll-a",
          "n_groups=1,group_sms=3,warps=4,split_from=30",
          3,
          86,
          4,
          1,
          40,
          { { .position = 33, .n_new = 8, .most_drafts = 2, .expected = "=x========" },
            { .position = 40, .n_new = 5, .temperature = 0.8f } } },
        { "q3-a",
          "n_groups=2,group_sms=2,warps=4,split_from=16,kv_slots=4",
          4,
          90,
          4,
          1,
          40,
          { { .position = 140, .n_new = 9, .most_drafts = 3, .expected = "====x====" } } },
    };
    const struct share share = share_of("drafts-crowded", 4);
    int n = 0;
    crowded = true;
    for (int i = 0; i < (int)(sizeof few / sizeof *few); i++)
        if (share_has(share, n++)) check_setting(&few[i]);
    for (int i = 0; i < N_SETTINGS; i++)
        if (settings[i].columns == 4 && strncmp(settings[i].model, "q35", 3) == 0 &&
            share_has(share, n++))
            check_setting(&settings[i]);
    crowded = false;
}

static void drafts_change_no_bit_of_codes(void **state) {
    (void)state;
    static const char *const forms[] = { "int8", "fp8" };
    const struct share share = share_of("drafts-in-codes", 4);
    for (int i = 0; i < 2; i++)
        for (int pair = 0; pair < 2; pair++) {
            if (!share_has(share, 2 * pair + i)) continue;
            kv = forms[i];
            check_setting(&settings[i + 2 * pair]);
        }
    kv = NULL;
}

/* Sessions in which a mutation may be seen, opened when it was not in those before. */
enum { N_MUTATED = 4 };
static const struct setting *mutated_settings;
static struct bench mutated[N_MUTATED];
static int n_mutated, n_opened;

/* The schedules [from, to) of one of the settings. */
static bool is_seen_in(int setting, const struct mutation *m, int from, int to) {
    struct bench *b = &mutated[setting];
    bool seen = false;
    if (setting == n_opened) {
        bench_open(b, &mutated_settings[n_opened++]);
        sim_model_unload(&b->m);
    }
    bench_load(b, true);
    bench_columns(b, m);
    for (int seed = from; seed < to && !seen; seed++)
        if (!run_together(b, seed)) {
            printf("%s: schedule %d: %s\n", m->what, seed, difference);
            seen = true;
        }
    columns_rig_close(&b->rig);
    bench_unload(b);
    return seen;
}

/* Each setting's first schedules before the rest of any: what one setting does not show in many,
 * another mostly shows at once. */
static bool is_seen(const struct mutation *m) {
    enum { FIRST = 4 };
    const int tries = getenv("REEL_SOAK") ? 400 : 40;
    bool seen = false;
    for (int i = 0; i < n_mutated && !seen; i++)
        seen = is_seen_in(i, m, 0, FIRST);
    for (int i = 0; i < n_mutated && !seen; i++)
        seen = is_seen_in(i, m, FIRST, tries);
    return seen;
}

static void are_seen(const struct setting *with, int n, const struct mutation_list *list) {
    mutated_settings = with, n_mutated = n, n_opened = 0;
    mutations_try(list, is_seen);
    for (int i = 0; i < n_opened; i++)
        bench_close(&mutated[i]);
}

static void mutations_are_seen(void **state) {
    (void)state;
    static const struct setting settings_of[N_MUTATED] = {
        /* sessions with drafts, one with attention of both kinds and one that stops; wide shares;
         * columns that a block needs for another one alone */
        { "q3-a",
          "n_groups=1,group_sms=4,warps=4,split_from=43,kv_slots=4",
          4,
          90,
          8,
          1,
          1,
          { { .position = 35,
              .n_new = 11,
              .most_drafts = 3,
              .temperature = 0.9f,
              .expected = "====x=-===-==" },
            { .position = 42, .n_new = 4, .most_drafts = 1, .expected = "==x==" },
            { .position = 20, .n_new = 5, .most_drafts = 1, .expected = "======", .stops = 3 } } },
        /* a deep share in which a warp has several pieces, between columns of one SM each */
        { "ll-a",
          "n_groups=1,group_sms=2,warps=4,split_from=30,kv_slots=4",
          2,
          90,
          8,
          1,
          1,
          { { .position = 20, .n_new = 5, .most_drafts = 3, .expected = "==x==" },
            { .position = 140, .n_new = 6, .most_drafts = 1, .expected = "===x==" },
            { .position = 24, .n_new = 5, .most_drafts = 1, .expected = "=====" } } },
        /* wide shares of several products */
        { "q3-a",
          "n_groups=2,group_sms=2,warps=4,split_from=16,kv_slots=4",
          4,
          90,
          8,
          1,
          1,
          { { .position = 20, .n_new = 9, .most_drafts = 7, .expected = "=========" } } },
        /* a deep share of several stages */
        { "q3-a",
          "n_groups=2,group_sms=2,warps=4,split_from=30,kv_slots=4",
          4,
          90,
          8,
          1,
          1,
          { { .position = 27, .n_new = 4, .most_drafts = 3, .expected = "====" },
            { .position = 140, .n_new = 6, .most_drafts = 3, .expected = "===x==" } } }
    };
    are_seen(settings_of, N_MUTATED, &follow_mutations);
}

static void mutations_of_deltas_are_seen(void **state) {
    (void)state;
    /* more owed than a warp holds; units of several heads, shared by warps; a session that is over
     * before the other, with something owed to both */
    static const struct setting setting = {
        "q35-w",
        "n_groups=1,group_sms=4,warps=4,split_from=24",
        4,
        90,
        8,
        1,
        1,
        { { .position = 5, .n_new = 13, .most_drafts = 5, .expected = "==x=====x====" },
          { .position = 3, .n_new = 8, .most_drafts = 1, .expected = "x==x======" } }
    };
    are_seen(&setting, 1, &follow_delta_mutations);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_change_no_bit),
        cmocka_unit_test(drafts_that_share_their_place_change_no_bit),
        cmocka_unit_test(drafts_change_no_bit_of_codes),
        in_turn(mutations_are_seen),
        in_turn(mutations_of_deltas_are_seen),
    };
    SHARE_TESTS("drafts-mutations", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
