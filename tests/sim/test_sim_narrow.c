/* Narrow weights in the tapes: logits and ids of decoding and of prompts, of models whose matrices
 * have codes and scales of many kinds. The same model with weights in bf16 tapes must say nearly
 * the same, and the reference in float32 what both say but for the rounding of what is between the
 * phases. So every weight must be a bf16 number: scales are powers of two here. Where they are not,
 * all phases of layers have formats whose weights prompts round to bf16 (TILE_ROUNDED), and the
 * reference has the rounded weights: no test allows more for the rounding of weights. */
#include "cpu/reference_model.h"
#include "cuda/run/cuda_backend.h"
#include "plan/plan_layout.h"
#include "runtime/model_handle.h"
#include "support/narrow_model.h"
#include "support/shares.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_IDS = 80 };

/* ---- models ---------------------------------------------------------------------------------- */

struct setting {
    const char *model, *options;
    int n_sms, compute;
    struct narrow_forms forms;
    int lengths[4];    /* of prompts; the first with the decode kernel */
    double off, apart; /* from the reference, and from weights in bf16, at most */
    int brief;         /* tokens of a prompt that one launch must read */
    bool rounded;      /* scales of layers are uneven; no prompt is for the decode kernel */
};

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static int32_t prompt[MOST_IDS];

/* Logits after n positions. */
static void last_logits(struct sim_model *m, int n, float *out) {
    struct reel_error err = { 0 };
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = MOST_IDS };
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = prompt,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = out,
                                    .out_floats = (size_t)m->vocab };
    require(reel_session_open(&session, m->gpu, &options, &err), &err);
    require(reel_session_eval(session, &eval, &err), &err);
    reel_session_close(session);
}

static double difference(const float *made, const float *want, int n) {
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        const double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

/* The reference's logits after n positions, with weights that are what the codes are worth, rounded
 * as prompts round them. */
static void exact_logits(const struct sim_model *m, int n, float *out) {
    const struct model *model = &m->cpu->model;
    const struct ref_options options = { .mode = REF_EXACT, .max_positions = n };
    struct reel_error err = { 0 };
    struct ref_state *state = NULL;
    const struct backend_eval eval = {
        .n = n, .ids = prompt, .output = REEL_OUTPUT_LAST_LOGITS, .out = out
    };
    require(ref_state_open(&state, &model->config, &model->weights, &options, &err), &err);
    require(ref_state_eval(state, &eval, &err), &err);
    ref_state_close(state);
}

static const struct setting settings[] = {
    /* every code, scale and offset: a phase each */
    { "q3-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { ROWS_INT8, 0, PLANE_F32 },
        { INT4_ZEROS, 32, PLANE_F16 },
        { E2M1_GROUPS, 16, PLANE_F32 },
        { E4M3_BLOCKS, 128, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 } },
      { 3, 9, 30, 77 },
      0.02,
      0.002,
      0,
      false },
    /* tied; the copies and products of the GPUs before */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      80,
      { { Q4_1_BLOCKS, 32, PLANE_F16 },
        { INT8_ZEROS, 16, PLANE_F32 },
        { INT4_GROUPS, 128, PLANE_BF16 },
        { E4M3_BLOCKS, 32, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 } },
      { 3, 9, 77 },
      0.02,
      0.002,
      0,
      false },
    /* Gated DeltaNets: their mix is narrow, and the phases that both kinds of layers have */
    { "q35-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4",
      4,
      90,
      { { INT4_ZEROS, 16, PLANE_F16 },
        { INT8_ZEROS, 16, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 },
        { ROWS_INT8, 0, PLANE_F32 },
        { INT4_ZEROS, 64, PLANE_BF16 } },
      { 3, 9, 77 },
      0.02,
      0.005,
      0,
      false },
    /* the decoder of a model that hears; its tower stays bf16 */
    { "asr-p",
      "n_groups=1,group_sms=3,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      3,
      90,
      { { E4M3_BLOCKS, 64, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { INT4_GROUPS, 64, PLANE_F16 },
        { E2M1_GROUPS, 32, PLANE_BF16 },
        { INT8_ZEROS, 64, PLANE_F16 } },
      { 3, 9, 77 },
      0.02,
      0.002,
      0,
      false },
    /* K-quants as in files: two types in qkv and, from layer to layer, in down; tied, so that sums
     * in two hops begin with rows of a narrow matrix */
    { "ll-k",
      "n_groups=2,group_sms=2,warps=4,hops=2,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { K_MIXED, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { K_MIXED, 0, 0 },
        { Q6_K_BLOCKS, 0, 0 } },
      { 3, 9, 77 },
      0.02,
      0.002,
      0,
      false },
    /* short prompts in one launch, in narrow runs and wide ones: groups of 16 columns, of a tile,
       of several and of a row, in tiles of two parts and of four */
    { "q3-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=2",
      4,
      90,
      { { INT8_ZEROS, 16, PLANE_F32 },
        { E2M1_GROUPS, 16, PLANE_BF16 },
        { INT4_ZEROS, 64, PLANE_F16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 } },
      { 7, 29, 60 },
      0.02,
      0.002,
      32,
      false },
    { "ll-k",
      "n_groups=2,group_sms=4,warps=4,prefill_tokens=128,prefill_from=2",
      8,
      90,
      { { K_MIXED, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { K_MIXED, 0, 0 },
        { Q6_K_BLOCKS, 0, 0 } },
      { 7, 15 },
      0.02,
      0.002,
      16,
      false },
    /* groups that hold a warp's slice of a row, and groups that do not */
    { "ll-k",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { INT4_GROUPS, 128, PLANE_BF16 },
        { INT4_GROUPS, 128, PLANE_F16 },
        { INT4_GROUPS, 32, PLANE_F16 },
        { INT4_GROUPS, 128, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 } },
      { 3, 9, 77 },
      0.02,
      0.002,
      0,
      false },
    /* blocks of fewer bits: groups of 16 columns in tiles of four parts, with minima and without,
       and of 32 in tiles of two; rows of embeddings with minima */
    { "ll-k",
      "n_groups=2,group_sms=2,warps=4,hops=2,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { Q2_K_BLOCKS, 0, 0 },
        { Q3_K_BLOCKS, 0, 0 },
        { Q2_K_BLOCKS, 0, 0 },
        { IQ4_XS_BLOCKS, 0, 0 },
        { Q2_K_BLOCKS, 0, 0 } },
      { 3, 9, 77 },
      0.02,
      0.002,
      0,
      false },
    { "ll-k",
      "n_groups=2,group_sms=4,warps=4,prefill_tokens=128,prefill_from=2",
      8,
      90,
      { { K_MIXED_FEW, 0, 0 },
        { Q2_K_BLOCKS, 0, 0 },
        { Q3_K_BLOCKS, 0, 0 },
        { K_MIXED_FEW, 0, 0 },
        { IQ4_XS_BLOCKS, 0, 0 } },
      { 7, 15 },
      0.02,
      0.002,
      16,
      false },
    /* bitsandbytes' floats, for which integers of two digits stand: weights that are no bf16
       numbers; one launch reads a prompt */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { NF4_GROUPS, 64, PLANE_F32 },
        { FP4_GROUPS, 64, PLANE_F32 },
        { NF4_GROUPS, 128, PLANE_F32 },
        { FP4_GROUPS, 32, PLANE_F32 },
        { NF4_GROUPS, 64, PLANE_F32 } },
      { 3, 9, 77 },
      0.02,
      0.015,
      0,
      false },
    { "q3-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=2",
      4,
      90,
      { { NF4_GROUPS, 64, PLANE_F32 },
        { NF4_GROUPS, 64, PLANE_F32 },
        { NF4_GROUPS, 64, PLANE_F32 },
        { FP4_GROUPS, 128, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 } },
      { 7, 29, 60 },
      0.02,
      0.015,
      32,
      false },
    /* long slices of h and of the gated values, phases of which one round of tiles is held, or none
     */
    { "q3-h",
      "n_groups=1,group_sms=4,warps=4,hops=2,prefill_from=0",
      4,
      90,
      { { INT4_ZEROS, 128, PLANE_BF16 },
        { INT4_ZEROS, 32, PLANE_F16 },
        { INT4_ZEROS, 128, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_F32 } },
      { 4 },
      0.02,
      0.002,
      0,
      false },
    /* prompts of weights that are no bf16 numbers, in thin, half and wide items: the same weights
       as in bf16 tapes */
    { "q3-p",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { ROWS_INT8 | UNEVEN, 32, PLANE_F16 },
        { INT4_ZEROS | UNEVEN, 64, PLANE_F16 },
        { E2M1_GROUPS | UNEVEN, 16, PLANE_F32 },
        { INT8_ZEROS | UNEVEN, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_F32 } },
      { 9, 40, 77 },
      0.02,
      0.002,
      0,
      true },
    { "ll-k",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { K_MIXED | UNEVEN, 0, 0 },
        { Q6_K_BLOCKS | UNEVEN, 0, 0 },
        { Q4_K_BLOCKS | UNEVEN, 0, 0 },
        { K_MIXED | UNEVEN, 0, 0 },
        { Q6_K_BLOCKS, 0, 0 } },
      { 9, 40, 77 },
      0.02,
      0.002,
      0,
      true },
    { "ll-k",
      "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      90,
      { { Q2_K_BLOCKS | UNEVEN, 0, 0 },
        { IQ4_XS_BLOCKS | UNEVEN, 0, 0 },
        { K_MIXED_FEW | UNEVEN, 0, 0 },
        { Q3_K_BLOCKS | UNEVEN, 0, 0 },
        { Q2_K_BLOCKS, 0, 0 } },
      { 9, 40, 77 },
      0.02,
      0.002,
      0,
      true },
    /* the products of the GPUs before */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      80,
      { { E4M3_BLOCKS | UNEVEN, 32, PLANE_BF16 },
        { INT8_ZEROS | UNEVEN, 16, PLANE_F32 },
        { INT8_ZEROS | UNEVEN, 0, PLANE_BF16 },
        { Q4_1_BLOCKS | UNEVEN, 32, PLANE_F16 },
        { ROWS_INT8, 0, PLANE_BF16 } },
      { 9, 70 },
      0.02,
      0.002,
      0,
      true },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings), MOST_LENGTHS = 4 };

/* The same logits whatever the order in which warps run, copies land and stores become visible. */
static void check_schedules(struct sim_model *m, int n, const float *made) {
    struct sim_settings *s = &sim_gpu_current().cuda->settings;
    const int schedules = getenv("REEL_SOAK") ? 100 : 1;
    float *now = malloc((size_t)m->vocab * sizeof *now);
    s->in_order = false;
    for (int seed = 0; seed < schedules; seed++) {
        s->seed = (uint64_t)seed;
        last_logits(m, n, now);
        if (memcmp(now, made, (size_t)m->vocab * sizeof *now) != 0)
            fail_msg("%d positions, schedule %d: other logits", n, seed);
    }
    s->in_order = true;
    free(now);
}

struct logits {
    float *exact[MOST_LENGTHS], *narrow[MOST_LENGTHS], *wide; /* exact, narrow: of each length */
};

/* One way for weights to lie in the tapes, narrow or not, through prompts of all lengths. */
static void check_way(struct sim_model *m, const struct setting *s, bool narrow,
                      struct logits *logits) {
    char options[200];
    struct reel_error err = { 0 };
    snprintf(options, sizeof options, "%s,narrow=%d", s->options, narrow);
    require(narrow_model_load(m, &s->forms, options, &err), &err);
    const struct plan *p = &m->gpu->backend->plan;
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const bool there = i == TAPE_MIX ? p->delta.n_layers > 0 : true;
        const int format = p->tape.segment[i].format;
        if (there && TILE_NARROW(format) != narrow)
            fail_msg("%s: phase %d has format %x", s->model, i, (unsigned)format);
        if (there && narrow && s->rounded && i != TAPE_HEAD) assert_true(TILE_ROUNDED(format));
    }
    if (p->short_tokens < s->brief)
        fail_msg("%s: %d tokens in one launch", s->model, p->short_tokens);
    printf("%s: tapes of %llu bytes\n", s->model, (unsigned long long)p->tape_bytes);
    for (int i = 0; i < MOST_LENGTHS && s->lengths[i]; i++) {
        const int n = s->lengths[i];
        const bool last = i + 1 == MOST_LENGTHS || s->lengths[i + 1] == 0;
        if (!narrow && i && !last) continue; /* those between tell nothing more */
        float *now = narrow ? logits->narrow[i] : logits->wide;
        last_logits(m, n, now);
        if (narrow) exact_logits(m, n, logits->exact[i]);
        const double off = difference(now, logits->exact[i], m->vocab);
        const double apart = difference(logits->narrow[i], now, m->vocab);
        printf("%s, %d positions: off by %.5f, apart %.5f\n", s->model, n, off, apart);
        /* a value between two bf16 numbers may round to the other one after a sum in another
           order; scales or codes of one group in another's place are off by 0.05 and more */
        assert_true(off < s->off && apart < s->apart);
        if (narrow) check_schedules(m, n, now);
    }
    sim_model_unload(m);
}

static void check_setting(const struct setting *s) {
    struct sim_model m;
    struct sim_gpu gpu = sim_gpu_controls();
    struct logits logits;
    gpu.cuda->gpu.n_sms = s->n_sms, gpu.cuda->gpu.compute = s->compute;
    gpu.cuda->settings.in_order = true;
    for (int i = 0; i < MOST_IDS; i++)
        prompt[i] = (i * 37 + 11) % 96;
    sim_model_open(&m, s->model);
    narrow_model(m.cpu, &s->forms, NARROW_ROUNDED);
    const size_t bytes = (size_t)m.vocab * sizeof(float);
    logits.wide = malloc(bytes);
    for (int i = 0; i < MOST_LENGTHS; i++)
        logits.narrow[i] = malloc(bytes), logits.exact[i] = malloc(bytes);
    check_way(&m, s, true, &logits);
    check_way(&m, s, false, &logits);
    for (int i = 0; i < MOST_LENGTHS; i++)
        free(logits.narrow[i]), free(logits.exact[i]);
    free(logits.wide);
    sim_model_close(&m);
    narrow_free();
}

static void narrow_weights_are_worth_what_their_codes_say(void **state) {
    (void)state;
    const struct share share = share_of("narrow", 4);
    for (int i = 0; i < N_SETTINGS; i++)
        if (share_has(share, i)) check_setting(&settings[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_weights_are_worth_what_their_codes_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
