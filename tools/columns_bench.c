/* columns_bench MODEL [GPU_OPTIONS [CACHE [CAP_LAYERS [marks|times|depths|drafts [WEIGHTS]]]]]:
 * what a pass of 1, 2, 4 and 8 columns takes on the GPU, at positions 0 and 4,096, and whether each
 * column makes the ids that it makes alone. MODEL is a model's folder or file. Compiled kernels are
 * kept in the folder CACHE. A table of tab-separated values; exit status 1 where ids differ. With
 * "marks" the table has instead the microseconds that end with each mark of
 * kernels/profile_marks.h: the mean over SMs, passes and layers, times the layers. With "depths"
 * or "marks" there are more positions than those two. With "drafts"
 * one session decodes with drafts of an oracle, of which a given share is right: how fast, and what
 * the pass's cost and the ids a pass predict of it. WEIGHTS: int8 and so on, made while the model
 * is loaded. */
#include "base/memory.h"
#include "cuda/measure/profile.h"
#include "kernels/profile_marks.h"
#include "runtime/model_handle.h"
#include "support/columns_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 8, PASSES = 200, ROUNDS = 5, LONG = 4096, MOST = LONG + PASSES + 8 };

struct bench {
    struct reel_model *model;
    struct backend_state *states[SESSIONS];
    int32_t first[SESSIONS];         /* the id that a session goes on with */
    int32_t alone[SESSIONS][PASSES]; /* what it makes alone */
    int cap_layers;                  /* 0: the plan's */
    double alone_us;
    int position; /* with drafts: where the launches begin */
    bool marks, depths, drafts;
    bool differs;
};

static enum reel_status read_prompts(struct bench *b, int n, struct reel_error *err) {
    const int vocab = b->model->model.config.vocab;
    int32_t *ids = calloc((size_t)n + 1, sizeof *ids);
    enum reel_status status = REEL_OK;
    for (int i = 0; i < SESSIONS && status == REEL_OK; i++) {
        for (int k = 0; k <= n; k++)
            ids[k] = (k * 37 + 11 + 1009 * i) % vocab;
        b->first[i] = ids[n];
        const struct backend_eval eval = { .n = n, .ids = ids };
        if (n > 0 && b->states[i]) status = b->model->ops->eval(b->states[i], &eval, err);
    }
    free(ids);
    return status;
}

/* The best of some rounds of a pass of the first `columns` sessions, in microseconds. */
static enum reel_status time_passes(struct bench *b, struct columns_rig *rig, int columns,
                                    int first, int position, int32_t (*ids)[PASSES], double *us,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *us = 1e30;
    for (int round = 0; round < (first ? 1 : ROUNDS) && status == REEL_OK; round++) {
        struct columns_job jobs[SESSIONS] = { 0 };
        for (int i = 0; i < columns; i++)
            jobs[i] = (struct columns_job){ .state = b->states[first + i],
                                            .position = position,
                                            .id = b->first[first + i],
                                            .n_tokens = PASSES,
                                            .stop_id = -1,
                                            .ids = ids[first + i] };
        status = columns_rig_run(rig, jobs, columns, PASSES, false, err);
        for (int i = 0; i < columns && status == REEL_OK; i++)
            if (jobs[i].n_made != PASSES)
                status = err_set(err, REEL_E_DEVICE, "column %d made %d ids of %d", i,
                                 jobs[i].n_made, PASSES);
        if (rig->launch_ms * 1e3 / PASSES < *us) *us = rig->launch_ms * 1e3 / PASSES;
    }
    return status;
}

/* ---- where a pass's time goes ---- */

static const char *const mark_names[PROFILE_LAYER_MARKS] = {
    "qkv weights",     "qkv input",     "qkv",       "out weights",
    "attention input", "own",           "attention", "out",
    "gate_up weights", "gate_up input", "gate_up",   "down weights",
    "down input",      "down"
};

/* Mean clocks from mark to mark: those of the layers, then embed, head input, head, pick. */
static void mean_marks(const struct columns_rig *r, const uint32_t *stamps, int n, double *us) {
    enum { LEFT_OUT = 8, AFTER = PROFILE_LAYER_MARKS };
    const int n_sms = r->plan.tape.n_sms, layers = r->plan.tape.n_layers;
    const size_t row = (size_t)profile_stamps(&r->plan);
    double clocks[PROFILE_LAYER_MARKS + 4] = { 0 }, ticks = 0, ns = 0;
    for (int t = LEFT_OUT; t < n - 1; t++)
        for (int sm = 0; sm < n_sms; sm++) {
            const uint32_t *at = stamps + (size_t)(t * n_sms + sm) * row;
            const uint32_t *next = at + (size_t)n_sms * row;
            uint32_t last = at[MARK_EMBED];
            for (int i = 0; i < layers * PROFILE_LAYER_MARKS; i++) {
                const uint32_t now = at[PROFILE_TOKEN_MARKS + i];
                clocks[i % PROFILE_LAYER_MARKS] += now - last;
                last = now;
            }
            clocks[AFTER] += at[MARK_EMBED] - at[MARK_TOKEN];
            clocks[AFTER + 1] += at[MARK_HEAD_INPUT] - last;
            clocks[AFTER + 2] += at[MARK_HEAD] - at[MARK_HEAD_INPUT];
            clocks[AFTER + 3] += next[MARK_TOKEN] - at[MARK_HEAD];
            ticks += next[MARK_TOKEN] - at[MARK_TOKEN];
            ns += (double)(((uint64_t)next[MARK_TIME_HIGH] << 32 | next[MARK_TIME_LOW]) -
                           ((uint64_t)at[MARK_TIME_HIGH] << 32 | at[MARK_TIME_LOW]));
        }
    for (int i = 0; i < PROFILE_LAYER_MARKS + 4; i++)
        us[i] = clocks[i] / ticks * ns * 1e-3 / n_sms / (n - 1 - LEFT_OUT);
}

static enum reel_status print_marks(const struct columns_rig *r, int position, int columns,
                                    struct reel_error *err) {
    static const char *const after[] = { "embed", "head input", "head", "pick" };
    double us[PROFILE_LAYER_MARKS + 4];
    uint32_t *stamps = NULL;
    enum reel_status status = columns_rig_stamps(r, COLUMNS_STAMPED, &stamps, err);
    if (status == REEL_OK) {
        mean_marks(r, stamps, COLUMNS_STAMPED, us);
        for (int i = 0; i < PROFILE_LAYER_MARKS + 4; i++)
            printf("%d\t%d\t%s\t%.2f\n", position, columns,
                   i < PROFILE_LAYER_MARKS ? mark_names[i] : after[i - PROFILE_LAYER_MARKS], us[i]);
    }
    mem_free(stamps);
    return status;
}

static enum reel_status bench_marks(struct bench *b, int columns, int position, const char *cache,
                                    struct reel_error *err) {
    static int32_t ids[SESSIONS][PASSES];
    struct columns_rig rig;
    struct columns_job jobs[SESSIONS] = { 0 };
    enum reel_status status =
        columns_rig_open(&rig, b->model->backend, columns, false, cache, true, err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < columns; i++)
        jobs[i] = (struct columns_job){ .state = b->states[i],
                                        .position = position,
                                        .id = b->first[i],
                                        .n_tokens = COLUMNS_STAMPED,
                                        .stop_id = -1,
                                        .ids = ids[i] };
    if (b->cap_layers) rig.plan.cap_layers = b->cap_layers;
    for (int i = 0; i < 2 && status == REEL_OK; i++)
        status = columns_rig_run(&rig, jobs, columns, COLUMNS_STAMPED, false, err);
    if (status == REEL_OK) status = print_marks(&rig, position, columns, err);
    fflush(stdout);
    columns_rig_close(&rig);
    return status;
}

/* ---- drafts ---- */

/* The tokens of a launch: as many as a mailbox has guesses for, and some launches. */
enum { DRAFTED = MAILBOX_GUESSES - 8, LAUNCHES = 3 };

/* Guesses of what comes behind the first session's id `from`: each id is right with this chance. */
static void oracle(const struct bench *b, int from, double right, int32_t *guesses) {
    static uint64_t seed = 88172645463325252u;
    for (int i = 0; i < MAILBOX_GUESSES; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        const int32_t id = from + i < PASSES ? b->alone[0][from + i] : 0;
        guesses[i] = (double)(seed >> 11) / 9007199254740992.0 < right ? id : id ^ 1;
    }
}

struct drafted {
    double ms;
    int n_ids, n_passes, n_right;
};

/* A few launches one behind the other. */
static enum reel_status run_drafted(struct bench *b, struct columns_rig *rig, int most_drafts,
                                    double right, struct drafted *sum, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int n = 0; n < LAUNCHES * DRAFTED && status == REEL_OK; n += DRAFTED) {
        int32_t ids[DRAFTED], guesses[MAILBOX_GUESSES];
        struct columns_job job = { .state = b->states[0],
                                   .position = b->position + n,
                                   .id = n ? b->alone[0][n - 1] : b->first[0],
                                   .n_tokens = DRAFTED,
                                   .most_drafts = most_drafts,
                                   .guesses = guesses,
                                   .stop_id = -1,
                                   .ids = ids };
        oracle(b, n, right, guesses);
        status = columns_rig_run(rig, &job, 1, DRAFTED, false, err);
        if (status == REEL_OK && memcmp(ids, b->alone[0] + n, sizeof ids) != 0) b->differs = true;
        sum->ms += rig->launch_ms;
        sum->n_ids += job.n_made, sum->n_passes += rig->n_passes, sum->n_right += job.n_right;
    }
    return status;
}

static enum reel_status bench_drafts(struct bench *b, int columns, const char *cache,
                                     struct reel_error *err) {
    static const double shares[] = { 0, 0.5, 0.75, 0.9, 1 };
    struct columns_rig rig;
    double pass_us = 0;
    enum reel_status status =
        columns_rig_open(&rig, b->model->backend, columns, true, cache, false, err);
    if (status == REEL_E_UNSUPPORTED) {
        printf("%d\t%s\n", columns, err->text);
        return REEL_OK;
    }
    if (status != REEL_OK) return status;
    for (size_t i = 0; i < sizeof shares / sizeof *shares && status == REEL_OK; i++) {
        struct drafted best = { .ms = 1e30 };
        for (int round = 0; round < ROUNDS && status == REEL_OK; round++) {
            struct drafted d = { 0 };
            status = run_drafted(b, &rig, columns - 1, shares[i], &d, err);
            /* rounds differ in their drafts: the best is that of the fastest pass */
            if (d.ms / d.n_passes < best.ms / (best.n_passes ? best.n_passes : 1)) best = d;
        }
        if (i == 0) pass_us = best.ms * 1e3 / best.n_passes;
        const double us = best.ms * 1e3 / best.n_ids, a_pass = (double)best.n_ids / best.n_passes;
        if (status == REEL_OK)
            printf("%d\t%d\t%.2f\t%.1f\t%.3f\t%.0f\t%.3f\t%.3f\t%s\n", b->position, columns,
                   shares[i], best.ms * 1e3 / best.n_passes, a_pass, 1e6 / us, b->alone_us / us,
                   b->alone_us / pass_us * a_pass, b->differs ? "OTHER IDS" : "same");
        fflush(stdout);
    }
    columns_rig_close(&rig);
    return status;
}

static enum reel_status bench_drafts_from(struct bench *b, int position, const char *cache,
                                          struct reel_error *err) {
    struct columns_rig rig;
    enum reel_status status =
        columns_rig_open(&rig, b->model->backend, 1, false, cache, false, err);
    if (status != REEL_OK) return status;
    b->position = position;
    status = read_prompts(b, position, err);
    if (status == REEL_OK)
        status = time_passes(b, &rig, 1, 0, position, b->alone, &b->alone_us, err);
    columns_rig_close(&rig);
    if (status == REEL_OK)
        printf("%d\t1\t-\t%.1f\t1\t%.0f\t1\t1\t-\n", position, b->alone_us, 1e6 / b->alone_us);
    for (int columns = 2; columns <= SESSIONS && status == REEL_OK; columns *= 2)
        status = bench_drafts(b, columns, cache, err);
    return status;
}

static enum reel_status bench_all_drafts(struct bench *b, const char *cache,
                                         struct reel_error *err) {
    static const int positions[] = { 0, 700, 2000, LONG };
    enum reel_status status = REEL_OK;
    puts("position\tcolumns\tright\tus a pass\tids a pass\ttok/s\ttimes\tpredicted\tids");
    status = b->model->ops->state_open(&b->states[0], b->model->backend, MOST, err);
    const int n = b->model->model.config.delta.value_heads ? 1 : 4; /* as in bench_all */
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = bench_drafts_from(b, positions[i], cache, err);
    if (b->states[0]) b->model->ops->state_close(b->states[0]);
    return status;
}

/* ---- all ---- */

static enum reel_status bench_columns(struct bench *b, int columns, int position, const char *cache,
                                      struct reel_error *err) {
    struct columns_rig rig;
    static int32_t ids[SESSIONS][PASSES];
    double us = 0, other;
    int same = 0;
    enum reel_status status =
        columns_rig_open(&rig, b->model->backend, columns, false, cache, false, err);
    if (status == REEL_E_UNSUPPORTED) {
        printf("%d\t%d\t%s\n", position, columns, err->text);
        return REEL_OK;
    }
    if (status != REEL_OK) return status;
    if (b->cap_layers) rig.plan.cap_layers = b->cap_layers;
    status = time_passes(b, &rig, columns, 0, position, columns == 1 ? b->alone : ids, &us, err);
    for (int i = 1; i < SESSIONS && columns == 1 && status == REEL_OK; i++)
        status = time_passes(b, &rig, 1, i, position, b->alone, &other, err);
    if (columns == 1) b->alone_us = us;
    for (int i = 0; i < columns && columns > 1; i++)
        same += memcmp(ids[i], b->alone[i], sizeof ids[i]) == 0;
    if (columns > 1 && same < columns) b->differs = true;
    if (status == REEL_OK)
        printf("%d\t%d\t%.1f\t%.3f\t%.0f\t%s\t%d\t%d\n", position, columns, us, us / b->alone_us,
               columns * 1e6 / us,
               columns == 1      ? "-"
               : same == columns ? "same"
                                 : "OTHER IDS",
               rig.plan.ring_slots, rig.plan.cap_layers);
    fflush(stdout);
    columns_rig_close(&rig);
    return status;
}

static enum reel_status bench_all(struct bench *b, const char *cache, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    puts(b->marks ? "position\tcolumns\tmark\tus a pass"
                  : "position\tcolumns\tus a pass\tof one\ttok/s\tids\tring slots\tcap");
    for (int i = 0; i < SESSIONS && status == REEL_OK; i++)
        status = b->model->ops->state_open(&b->states[i], b->model->backend, MOST, err);
    static const int depths[] = { 0, 200, 400, 700, 1000, 2000, LONG };
    enum { N_DEPTHS = sizeof depths / sizeof *depths };
    for (int i = 0; i < N_DEPTHS && status == REEL_OK;
         i += b->depths || b->marks ? 1 : N_DEPTHS - 1) {
        const int position = depths[i];
        if (position > 0 && b->model->model.config.delta.value_heads)
            break; /* the states have gone on, and a recurrent one is not taken back */
        status = read_prompts(b, position, err);
        for (int columns = 1; columns <= SESSIONS && status == REEL_OK; columns *= 2)
            status = (b->marks ? bench_marks : bench_columns)(b, columns, position, cache, err);
    }
    for (int i = 0; i < SESSIONS; i++)
        if (b->states[i]) b->model->ops->state_close(b->states[i]);
    return status;
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    static struct bench b;
    if (argc < 2) {
        fprintf(stderr, "usage: columns_bench MODEL [GPU_OPTIONS [CACHE [CAP_LAYERS "
                        "[marks|times|depths|drafts [WEIGHTS]]]]]\n");
        return 2;
    }
    const struct reel_model_options o = { .size = sizeof o,
                                          .device = "gpu",
                                          .gpu_options = argc > 2 ? argv[2] : NULL,
                                          .weights = argc > 6 ? argv[6] : NULL };
    if (argc > 4) b.cap_layers = atoi(argv[4]);
    b.marks = argc > 5 && strcmp(argv[5], "marks") == 0;
    b.depths = argc > 5 && strcmp(argv[5], "depths") == 0;
    b.drafts = argc > 5 && strcmp(argv[5], "drafts") == 0;
    const char *cache = argc > 3 ? argv[3] : NULL;
    enum reel_status status = reel_model_open(&b.model, argv[1], &o, &err);
    if (status == REEL_OK)
        status = b.drafts ? bench_all_drafts(&b, cache, &err) : bench_all(&b, cache, &err);
    if (status != REEL_OK) fprintf(stderr, "columns_bench: %s\n", err.text);
    if (b.model) reel_model_close(b.model);
    return status != REEL_OK || b.differs;
}
