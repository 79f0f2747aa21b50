/* Exchange words that an earlier launch left must not pass for new when the 16 bits of epoch that
 * some of them carry have come round. A full turn takes thousands of tokens, so the counters are
 * moved on here, as launches that do not write these words would move them.
 *
 * Each test was seen to fail when cuda_launch.c or cuda_prefill.c was changed by hand: with words
 * that few launches write never cleared (RARE_EPOCHS_MOST of 1 << 30; the words of split
 * attention, of sums, of h and of draws, each alone), with launches of twice and of half as many
 * epochs (EPOCHS_MOST of 60000 and of 15000), with an aborted launch's words left as they are
 * (`dirty`, and `short_dirty`, not looked at), and with fewer epochs set aside than the kernel
 * takes (EPOCHS_A_LAYER of 0 and EPOCHS_A_TOKEN of 1). */
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_launch.h"
#include "runtime/model_handle.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SMS = 4, SPLIT_FROM = 24, TURN = 1 << 16 };
#define OPTIONS                                                                                    \
    "n_groups=2,group_sms=2,warps=4,split_from=24,patience=30000,prefill_tokens=256,"              \
    "prefill_from=64,short_from=9,short_positions=1000000"

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct backend *b;
    struct reel_session *s;
    float *logits, *right;
    struct reel_error err;
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static int start_with(void **state, const char *options) {
    static struct fixture f;
    const struct reel_session_options o = { .size = sizeof o, .max_context = SPLIT_FROM + 8 };
    f = (struct fixture){ .gpu = sim_gpu_controls() };
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = N_SMS;
    f.gpu.cuda->settings.idle_limit = 0; /* kernels lose their patience by themselves */
    sim_model_open(&f.m, "q3-p");
    good(sim_model_load(&f.m, options, &f.err), &f);
    f.b = f.m.gpu->backend;
    good(reel_session_open(&f.s, f.m.gpu, &o, &f.err), &f);
    f.logits = malloc((size_t)f.m.vocab * sizeof *f.logits);
    f.right = malloc((size_t)f.m.vocab * sizeof *f.right);
    *state = &f;
    return 0;
}

static int start(void **state) { return start_with(state, OPTIONS); }
static int start_pairs(void **state) { return start_with(state, OPTIONS ",hops=2,h_bits=24"); }

static int stop(void **state) {
    struct fixture *f = *state;
    reel_session_close(f->s);
    sim_model_close(&f->m);
    free(f->logits), free(f->right);
    return 0;
}

/* n ids from `first` on, behind `kept` positions; the last one's logits. */
static enum reel_status evaluate(struct fixture *f, int kept, int first, int n, float *logits) {
    int32_t ids[SPLIT_FROM];
    for (int i = 0; i < n; i++)
        ids[i] = (first + i * 37) % 300;
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = ids,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)f->m.vocab };
    enum reel_status status = reel_session_truncate(f->s, kept, &f->err);
    return status == REEL_OK ? reel_session_eval(f->s, &eval, &f->err) : status;
}

static void assert_right(const struct fixture *f, const char *what) {
    if (memcmp(f->logits, f->right, (size_t)f->m.vocab * sizeof *f->right) != 0)
        fail_msg("%s: old words passed for new", what);
}

/* The next launch has the epochs, to 16 bits, of one whose first was `epoch`: as after launches of
 * the heads of prompts alone. */
static void turn(struct backend *b, uint32_t epoch) {
    const uint32_t n = epoch + TURN - b->epoch;
    b->epoch += n;
    b->epochs_used += n, b->layer_epochs += n, b->split_epochs += n, b->pick_epochs += n;
}

/* A launch of which the last block never comes: the first group leaves its sums of `out`, the
 * second does not. Blocks that give up go on to the end without waiting, so what lies there then
 * may be of a later exchange: the next launch begins further on by up to N_LEFT epochs. */
enum { N_LEFT = 3 };
static void abort_one(struct fixture *f, int n) {
    f->gpu.cuda->settings.missing_block = N_SMS - 1;
    assert_int_equal(evaluate(f, 0, 11, n, f->logits), REEL_E_DEVICE);
    f->gpu.cuda->settings.missing_block = -1;
}

static void what_an_aborted_launch_left_is_cleared(void **state) {
    struct fixture *f = *state;
    good(evaluate(f, 0, 200, 1, f->right), f);
    for (uint32_t d = 0; d < N_LEFT; d++) {
        const uint32_t epoch = f->b->epoch;
        abort_one(f, 1);
        f->b->epoch = epoch + TURN + d; /* and no count says that there was a turn */
        good(evaluate(f, 0, 200, 1, f->logits), f);
        assert_right(f, "decode");
    }
}

/* These words have 8 bits of epoch and are cleared whenever those come round: here they come round
 * without. */
static void what_an_aborted_short_prompt_left_is_cleared(void **state) {
    struct fixture *f = *state;
    enum { N = 12 };
    good(evaluate(f, 0, 200, N, f->right), f);
    for (uint32_t d = 0; d < N_LEFT; d++) {
        const uint32_t epoch = f->b->short_epoch;
        abort_one(f, N);
        assert_true(f->b->short_epoch > epoch); /* it was one */
        f->b->short_epoch = epoch + d;
        good(evaluate(f, 0, 200, N, f->logits), f);
        assert_right(f, "a short prompt");
    }
}

/* A token at `position` as it is and after a turn. A launch's first epoch and those that its last
 * layer left in the words lie apart by what the layers take, so that all distances are tried. */
static void check_turns(struct fixture *f, int position, const char *what) {
    good(evaluate(f, position, 200, 1, f->right), f);
    for (uint32_t d = 0; d < 8; d++) {
        const uint32_t epoch = f->b->epoch;
        good(evaluate(f, position, 11, 1, f->logits), f);
        turn(f->b, epoch + d);
        good(evaluate(f, position, 200, 1, f->logits), f);
        assert_right(f, what);
    }
}

static void words_that_few_launches_write_are_cleared_before_a_turn(void **state) {
    struct fixture *f = *state;
    good(evaluate(f, 0, 5, SPLIT_FROM, f->logits), f);
    check_turns(f, SPLIT_FROM, "split attention");
    check_turns(f, 1, "sums");
}

/* The id drawn behind `first`. */
static int32_t draw(struct fixture *f, int32_t first, uint64_t seed) {
    const struct reel_sampling sampling = {
        .size = sizeof sampling, .temperature = 1, .top_k = 8, .seed = seed
    };
    int32_t id = -1;
    good(sim_model_generate(f->m.gpu, &first, 1, &sampling, &id, 1, &f->err), f);
    return id;
}

/* Those of the candidates of a draw. */
static void words_that_draws_alone_write_are_cleared_before_a_turn(void **state) {
    struct fixture *f = *state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        const int32_t right = draw(f, 200, seed);
        const uint32_t epoch = f->b->epoch;
        (void)draw(f, 11, seed);
        turn(f->b, epoch);
        if (draw(f, 200, seed) != right) fail_msg("seed %d: old words passed for new", (int)seed);
    }
}

/* Epochs of one launch: those that the host sets aside for it, and those that pass in the kernel
 * until it leaves its last words. */
struct taken {
    uint32_t set_aside, used;
};
static struct taken take(struct fixture *f, int n) {
    const struct plan_words *best = &f->b->plan.exchange[X_BEST];
    const uint32_t first = f->b->epoch;
    uint64_t words[2 * N_SMS];
    assert_true(best->words >= 2 * N_SMS);
    good(evaluate(f, 0, 5, n, f->logits), f);
    good(cuda_download(&f->b->gpu, words, f->b->words + (cu_address)best->offset * 8, sizeof words,
                       NULL, &f->err),
         f);
    for (int i = 1; i < 2 * N_SMS; i++)
        assert_int_equal(words[i] >> 32, words[0] >> 32);
    return (struct taken){ f->b->epoch - first, (uint32_t)(words[0] >> 32) - first };
}

/* What a token takes more. The kernel moves on by an epoch a layer and one a token; the host sets
 * aside what is no less. */
static struct taken take_a_token(struct fixture *f) {
    enum { MORE = 5 };
    const struct taken one = take(f, 1), all = take(f, 1 + MORE);
    assert_true(one.used <= one.set_aside && all.used <= all.set_aside);
    return (struct taken){ (all.set_aside - one.set_aside) / MORE, (all.used - one.used) / MORE };
}

/* However fast tokens are: no more than half of what 16 bits tell apart, and not much less. */
static void a_launch_is_no_longer_than_half_a_turn(void **state) {
    struct fixture *f = *state;
    const struct cuda_tuning kept = f->b->tuning;
    const double ms = f->b->token_ms;
    f->b->tuning.launch_ms = 10000, f->b->tuning.launch_tokens = 0; /* the most that is allowed */
    const struct taken token = take_a_token(f);
    f->b->token_ms = 1e-6;
    const uint32_t n = (uint32_t)cuda_launch_tokens(f->b);
    f->b->tuning = kept, f->b->token_ms = ms;
    assert_int_equal(token.used, f->b->plan.tape.n_layers + 1);
    assert_true(token.used <= token.set_aside);
    assert_in_range(n * token.set_aside + EPOCHS_A_LAUNCH, TURN / 4, TURN / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_aborted_launch_left_is_cleared),
        cmocka_unit_test(what_an_aborted_short_prompt_left_is_cleared),
        cmocka_unit_test(words_that_few_launches_write_are_cleared_before_a_turn),
        cmocka_unit_test(words_that_draws_alone_write_are_cleared_before_a_turn),
        cmocka_unit_test(a_launch_is_no_longer_than_half_a_turn),
    };
    /* h in words of 24 bits, which have 16 bits of epoch */
    const struct CMUnitTest pairs[] = {
        cmocka_unit_test(what_an_aborted_launch_left_is_cleared),
        cmocka_unit_test(words_that_few_launches_write_are_cleared_before_a_turn),
    };
    const int failed = cmocka_run_group_tests(tests, start, stop);
    return failed + cmocka_run_group_tests(pairs, start_pairs, stop);
}
