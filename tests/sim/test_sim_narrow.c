/* Narrow weights in the tapes: logits and ids of decoding and of prompts, of models whose matrices
 * have codes and scales of many kinds. Scales are powers of two here, so that every weight is also
 * a bf16 number: the same model with weights in bf16 tapes must say nearly the same, and the
 * reference in float32 what both say but for the rounding of what is between the phases. */
#include "cpu/reference_model.h"
#include "cuda/run/cuda_backend.h"
#include "plan/plan_layout.h"
#include "runtime/model_handle.h"
#include "support/narrow_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_IDS = 80, N_NEW = 4 };

/* ---- models ---------------------------------------------------------------------------------- */

struct setting {
    const char *model, *options;
    int n_sms, compute;
    struct narrow_forms forms;
    int lengths[4]; /* of prompts; the first with the decode kernel */
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

/* The reference's logits after n positions, with weights that are what the codes are worth. */
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
      { 3, 9, 30, 77 } },
    /* tied; the copies and products of the GPUs before */
    { "ll-a",
      "n_groups=1,group_sms=4,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0",
      4,
      80,
      { { Q4_1_BLOCKS, 32, PLANE_F16 },
        { INT8_ZEROS, 16, PLANE_F32 },
        { INT4_ZEROS, 128, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 },
        { ROWS_INT8, 0, PLANE_BF16 } },
      { 3, 9, 77 } },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

static void check_setting(const struct setting *s) {
    struct sim_model m;
    struct sim_gpu gpu = sim_gpu_controls();
    float *made[4] = { 0 };
    gpu.cuda->gpu.n_sms = s->n_sms, gpu.cuda->gpu.compute = s->compute;
    gpu.cuda->settings.in_order = true;
    for (int i = 0; i < MOST_IDS; i++)
        prompt[i] = (i * 37 + 11) % 96;
    sim_model_open(&m, s->model);
    narrow_model(m.cpu, &s->forms, true);
    float *want = malloc((size_t)m.vocab * sizeof *want);
    for (int way = 0; way < 2; way++) {
        char options[200];
        struct reel_error err = { 0 };
        snprintf(options, sizeof options, "%s,narrow=%d", s->options, !way);
        require(narrow_model_load(&m, &s->forms, options, &err), &err);
        const struct plan *p = &m.gpu->backend->plan;
        assert_int_equal(plan_narrow(&p->tape), !way);
        printf("%s: tapes of %llu bytes\n", s->model, (unsigned long long)p->tape_bytes);
        for (int i = 0; i < 4 && s->lengths[i]; i++) {
            const int n = s->lengths[i];
            float *now = malloc((size_t)m.vocab * sizeof *now);
            last_logits(&m, n, now);
            exact_logits(&m, n, want);
            const double off = difference(now, want, m.vocab);
            const double apart = way ? difference(made[i], now, m.vocab) : 0;
            printf("%s, %d positions: off by %.5f, apart %.5f\n", s->model, n, off, apart);
            /* a value between two bf16 numbers may round to the other one after a sum in another
               order; scales or codes of one group in another's place are off by 0.05 and more */
            assert_true(off < 0.02 && apart < 0.002);
            if (!way)
                made[i] = now;
            else
                free(now), free(made[i]);
        }
        reel_model_close(m.gpu);
        m.gpu = NULL;
    }
    free(want);
    sim_model_close(&m);
    narrow_free();
}

static void narrow_weights_are_worth_what_their_codes_say(void **state) {
    (void)state;
    for (int i = 0; i < N_SETTINGS; i++)
        check_setting(&settings[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_weights_are_worth_what_their_codes_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
