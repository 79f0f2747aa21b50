/* Keys and values in 8 bits on the fake GPU: a token is what the CPU makes of it, whichever kernel
 * evaluated its positions, and sessions copy, cut and keep them. */
#include "cuda/run/cuda_backend.h"
#include "runtime/model_handle.h"
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

enum { N = 70, CONTEXT = 96 };
#define OPTIONS "n_groups=2,group_sms=2,warps=4,prefill_tokens=128,prefill_from=4,kv_page=8"

static int32_t ids[N];

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static void open_model(struct sim_model *m, const char *kv, const char *options) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 11) % 96;
    sim_model_open_kv(m, "q3-p", kv);
    require(sim_model_load(m, options, &err), &err);
}

static double difference(const float *made, const float *want, int n) {
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        const double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

static struct reel_session *open_session(struct reel_model *model) {
    struct reel_error err = { 0 };
    struct reel_session *s = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    require(reel_session_open(&s, model, &options, &err), &err);
    return s;
}

/* Appends ids first to end - 1; logits of the last. */
static void append(struct reel_session *s, int first, int end, float *logits, int vocab) {
    struct reel_error err = { 0 };
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = end - first,
                                    .ids = ids + first,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)vocab };
    require(reel_session_eval(s, &eval, &err), &err);
}

/* As rounding_allowed of two layers, and as much wider as codes make a step of bf16. */
static double allowed(const char *kv) { return strcmp(kv, "fp8") == 0 ? 0.03 : 0.02; }

static void tokens_are_what_the_cpu_makes_of_them(void **state) {
    (void)state;
    static const char *const forms[] = { "int8", "fp8", "int8" };
    /* how the text is cut: by the queue's chunks, by the decode kernel one by one, by short prompts
     * from the beginning and behind others, which is another kernel in the last setting */
    static const int cuts[][8] = {
        { N }, { 66, 67, 68, N }, { 1, 2, 3, 4, N }, { 9, 23, 24, 32, 48, 55, N }
    };
    for (int f = 0; f < 3; f++) {
        struct sim_model m;
        open_model(&m, forms[f], f < 2 ? OPTIONS : OPTIONS ",short_far=1,short_positions=4");
        const struct plan *p = &m.gpu->backend->plan;
        assert_int_equal(p->kv_form, f == 1 ? KV_FP8 : KV_INT8);
        assert_true(p->short_tokens >= 16);
        float *want = malloc((size_t)m.vocab * sizeof *want), *made = malloc((size_t)m.vocab * 4);
        struct reel_session *cpu = open_session(m.cpu);
        append(cpu, 0, N, want, m.vocab);
        reel_session_close(cpu);
        for (int c = 0; c < 4; c++) {
            struct reel_session *s = open_session(m.gpu);
            for (int i = 0, at = 0; at < N; at = cuts[c][i++])
                append(s, at, cuts[c][i], made, m.vocab);
            const double off = difference(made, want, m.vocab);
            printf("%s, cut %d: off by %.5f\n", forms[f], c, off);
            assert_true(off < allowed(forms[f]));
            reel_session_close(s);
        }
        free(want), free(made);
        sim_model_close(&m);
    }
}

/* A copy shares pages and goes on apart; a cut session goes on as one that never held more; a
 * snapshot goes into a session of its form alone. */
static void sessions_copy_cut_and_keep_codes(void **state) {
    enum { CUT = 37 };
    (void)state;
    struct sim_model m, other;
    struct reel_error err = { 0 };
    open_model(&m, "int8", OPTIONS);
    float *want = malloc((size_t)m.vocab * 4), *made = malloc((size_t)m.vocab * 4);
    const size_t bytes = (size_t)m.vocab * 4;
    struct reel_session *s = open_session(m.gpu), *copy = open_session(m.gpu);
    append(s, 0, CUT, made, m.vocab);
    append(s, CUT, CUT + 1, want, m.vocab);
    append(s, CUT + 1, N, made, m.vocab);
    require(reel_session_copy(copy, s, &err), &err);
    require(reel_session_truncate(copy, CUT, &err), &err);
    append(copy, CUT, CUT + 1, made, m.vocab);
    assert_memory_equal(made, want, bytes);
    require(reel_session_truncate(s, CUT, &err), &err); /* the copy wrote into a page of its own */
    append(s, CUT, CUT + 1, made, m.vocab);
    assert_memory_equal(made, want, bytes);
    require(reel_session_truncate(s, CUT, &err), &err);
    const size_t n = reel_session_snapshot_bytes(s);
    unsigned char *kept = malloc(n);
    require(reel_session_snapshot(s, kept, n, &err), &err);
    append(s, CUT, N, made, m.vocab);
    require(reel_session_restore(copy, kept, n, &err), &err);
    append(copy, CUT, CUT + 1, made, m.vocab);
    assert_memory_equal(made, want, bytes);
    reel_session_close(s), reel_session_close(copy);
    sim_model_close(&m);
    open_model(&other, NULL, OPTIONS);
    s = open_session(other.gpu);
    assert_int_equal(reel_session_restore(s, kept, n, &err), REEL_E_MISMATCH);
    assert_non_null(strstr(err.text, "int8; this session keeps them in bf16"));
    reel_session_close(s);
    sim_model_close(&other);
    free(kept), free(want), free(made);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(tokens_are_what_the_cpu_makes_of_them),
        in_turn(sessions_copy_cut_and_keep_codes),
    };
    SHARE_TESTS("kv", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
