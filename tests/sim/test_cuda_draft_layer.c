/* Draft layers on the fake GPU: that of the hybrid, and an EAGLE-3 head of the demo model. What one
 * guesses is what it guesses on the CPU, which tests/golden/test_draft.c compares with PyTorch and
 * test_eagle3.c with the definition; and a session that takes its guesses makes the ids that it
 * makes without. */
#include "runtime/session.h"
#include "support/eagle3_head.h"
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

#include <unistd.h>

#include <cmocka.h>

/* Prompts of four tokens and more are read by the kernels for prompts, in chunks of 24. */
#define SMALL                                                                                      \
    "patience=2147483647,hang_ms=1000000000,launch_ms=10000,spin_us=100,nap_us=500,n_groups=2,"    \
    "group_sms=2,warps=4,poison=1,launch_tokens=24,prefill_tokens=128,prefill_from=4,"             \
    "short_positions=0"
#define WIDE SMALL ",draft_int8=0"

enum { CONTEXT = 160, MOST_IDS = 1 << 16, N_NEW = 24, MORE = 3 };

/* A model and what guesses for it. */
struct guesser {
    const char *model;
    char *head; /* the folder of an EAGLE-3 head, which the group makes; NULL: the model's layer */
    enum reel_speculation kind;
    const struct mutation_list *mutations;
};

struct fixture {
    const struct guesser *of;
    struct reel_model *cpu, *gpu;
    struct sim_gpu sim;
    struct reel_error err;
    int vocab;
};
static struct fixture f;

static void good(enum reel_status status) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f.err.text, f.sim.cuda->report);
}

static void open_gpu_with(const char *gpu_options) {
    const struct reel_model_options gpu = { .size = sizeof gpu,
                                            .device = "gpu",
                                            .gpu_options = gpu_options,
                                            .draft_head = f.of->head,
                                            .cuda_dir = sim_gpu_folder() };
    f.sim.cuda->settings.in_order = true;
    f.sim.cuda->gpu.n_sms = 4;
    good(reel_model_open(&f.gpu, f.of->model, &gpu, &f.err));
}
static void open_gpu(void) { open_gpu_with(WIDE); }

/* AVX-512 rounds a vector of bf16 weights once more than others. */
static void start(const struct guesser *of) {
    const struct reel_model_options cpu = { .size = sizeof cpu,
                                            .device = "cpu",
                                            .cpu_path = "portable",
                                            .n_threads = 1,
                                            .draft_head = of->head };
    f.of = of;
    f.sim = sim_gpu_controls();
    good(reel_model_open(&f.cpu, of->model, &cpu, &f.err));
    open_gpu();
    assert_true(f.gpu->backend_info.guesses);
    f.vocab = f.gpu->model.weights.draft.head.rows; /* 0: the model's */
    if (f.vocab == 0) f.vocab = f.gpu->model.config.vocab;
}
static int start_layer(void **state) {
    static const struct guesser layer = { "models/hybrid", NULL, REEL_SPECULATION_MTP,
                                          &draft_layer_mutations };
    (void)state;
    start(&layer);
    return 0;
}

/* models/hybrid goes on with this once it has begun. */
static const int32_t sentence[9] = { 333, 330, 341, 407, 1365, 272, 595, 11, 282 };
static void prompt_of(int32_t *ids, int n, int salt) {
    for (int i = 0; i < n; i++)
        ids[i] = salt ? (salt * 131 + i * 37 + i * i) % f.cpu->model.config.vocab : sentence[i % 9];
}

/* The head guesses among the ids of a story, so that some guesses are right by chance. */
static void make_head(const char *folder, const char *model) {
    int32_t ids[16];
    const struct reel_model_options cpu = { .size = sizeof cpu, .device = "cpu", .n_threads = 1 };
    const struct reel_sampling greedy = { .size = sizeof greedy };
    good(reel_model_open(&f.cpu, model, &cpu, &f.err));
    int32_t prompt[21];
    prompt_of(prompt, 21, 0);
    good(sim_model_generate(f.cpu, prompt, 21, &greedy, ids, 16, &f.err));
    const struct eagle3_head head = { .model = &f.cpu->model.config, .n_ids = 16, .ids = ids };
    assert_true(eagle3_head_write(folder, &head));
    reel_model_close(f.cpu);
}
static int start_head(void **state) {
    static char folder[] = "/tmp/reel-head-XXXXXX";
    static const struct guesser head = { "models/demo", folder, REEL_SPECULATION_EAGLE3,
                                         &eagle3_mutations };
    (void)state;
    assert_non_null(mkdtemp(folder));
    make_head(folder, head.model);
    start(&head);
    return 0;
}

static int stop(void **state) {
    (void)state;
    reel_model_close(f.gpu);
    reel_model_close(f.cpu);
    if (f.of->head) eagle3_head_remove(f.of->head);
    return 0;
}

static struct reel_session *open_session(const struct reel_model *model,
                                         enum reel_speculation speculation) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = CONTEXT,
                                                  .speculation = speculation };
    struct reel_session *session = NULL;
    good(reel_session_open(&session, model, &options, &f.err));
    return session;
}

/* ---- guesses are those of the CPU ---- */

struct guessed {
    int n;
    int32_t ids[3];
    float logits[MOST_IDS]; /* that the last of them came from */
};

static void guess(const struct reel_session *s, int position, int32_t id, int n,
                  struct guessed *g) {
    g->n = s->model->ops->guess(s->state, position, id, g->ids, n, g->logits);
}

/* A session on the CPU and one on the GPU, which may hold a mutation. */
struct both {
    struct reel_session *of[2];
};
static struct both open_both(void) {
    return (struct both){ { open_session(f.cpu, f.of->kind), open_session(f.gpu, f.of->kind) } };
}
static void close_both(struct both *b) {
    for (int i = 0; i < 2; i++)
        reel_session_close(b->of[i]);
}

/* Whether both make the same n guesses behind `id`. The CPU rounds otherwise, by a third of what is
 * allowed. */
static bool same_guesses(const struct both *b, int position, int32_t id, int n) {
    static struct guessed g[2];
    double square = 0, error = 0;
    for (int i = 0; i < 2; i++)
        guess(b->of[i], position, id, n, &g[i]);
    for (int i = 0; i < f.vocab; i++) {
        const double d = (double)g[1].logits[i] - (double)g[0].logits[i];
        square += (double)g[0].logits[i] * (double)g[0].logits[i], error += d * d;
    }
    const double relative = sqrt(error / square);
    print_message("%d guesses behind %d positions, logits off by %.4f\n", g[1].n, position,
                  relative);
    return g[0].n == n && g[1].n == n && relative < 0.003 &&
           memcmp(g[0].ids, g[1].ids, (size_t)n * sizeof *g[0].ids) == 0;
}

static void sync_both(const struct both *b, const int32_t *ids, int n) {
    for (int i = 0; i < 2; i++)
        good(reel_session_sync(b->of[i], ids, n, NULL, &f.err));
}

/* Behind prompts that are read in one chunk, in several, and token by token; behind a prompt that
 * was cut back and goes on otherwise; one guess and several. */
static bool same_behind_prompts(int n) {
    int32_t ids[CONTEXT];
    struct both b = open_both();
    prompt_of(ids, CONTEXT, 0);
    sync_both(&b, ids, n);
    bool same = same_guesses(&b, n, ids[n], 1);
    sync_both(&b, ids, n + 2);
    same = same_guesses(&b, n + 2, ids[n + 2], 3) && same;
    prompt_of(ids + n - 2, 20, 5);
    sync_both(&b, ids, n + 9);
    same = same_guesses(&b, n + 9, ids[n + 9], 2) && same;
    close_both(&b);
    return same;
}

/* Ends a generation, whose last pass has looked at guesses then. */
static bool count_down(void *user, const struct reel_token *token) {
    int *left = user;
    return (void)token, --*left > 0;
}

/* Behind passes that looked at drafts, whose hidden states the columns left. */
static bool same_behind_passes(void) {
    int32_t ids[CONTEXT];
    int left = 12;
    struct both b = open_both();
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 40,
                                       .ignore_stop_ids = true,
                                       .speculation = f.of->kind,
                                       .on_token = count_down,
                                       .user = &left };
    prompt_of(ids, 21, 0);
    good(reel_session_sync(b.of[1], ids, 21, NULL, &f.err));
    good(reel_generate(b.of[1], &g, &result, &f.err));
    const int last = reel_session_length(b.of[1]) - 1;
    memcpy(ids, reel_session_ids(b.of[1]), (size_t)(last + 1) * sizeof *ids);
    good(reel_session_sync(b.of[0], ids, last, NULL, &f.err));
    const bool same = same_guesses(&b, last, ids[last], 1);
    close_both(&b);
    return same && result.n_accepted > 0;
}

static void guesses_are_those_of_the_cpu(void **state) {
    static const int lengths[] = { 3, 21, 75, 32 };
    const struct share share = share_of("draft-layer", 3);
    (void)state;
    for (int i = 0; i < 4; i++)
        if (share_has(share, i)) assert_true(same_behind_prompts(lengths[i]));
    assert_true(same_behind_passes());
}

/* The kernel for short prompts reads them, and makes the layer's slots. */
static void open_short(void) {
    reel_model_close(f.gpu);
    open_gpu_with(WIDE ",short_positions=384,launch_tokens=8");
}
static void guesses_behind_short_prompts_are_those_of_the_cpu(void **state) {
    (void)state;
    open_short();
    assert_true(same_behind_prompts(21));
    reel_model_close(f.gpu);
    open_gpu();
}

/* What it does not know it does not guess from. */
static void an_unknown_past_makes_no_guess(void **state) {
    int32_t ids[CONTEXT];
    static struct guessed g;
    (void)state;
    prompt_of(ids, CONTEXT, 0);
    struct reel_session *s = open_session(f.gpu, REEL_SPECULATION_OFF);
    guess(s, 0, ids[0], 1, &g);
    assert_int_equal(g.n, 0); /* nobody follows */
    good(reel_session_sync(s, ids, 20, NULL, &f.err));
    good(f.gpu->ops->guess_begin(s->state, &f.err));
    guess(s, 20, ids[20], 1, &g);
    assert_int_equal(g.n, 0); /* nothing was seen */
    good(reel_session_sync(s, ids, 30, NULL, &f.err));
    guess(s, 30, ids[30], 1, &g);
    assert_int_equal(g.n, 1);
    struct reel_session *other = open_session(f.gpu, f.of->kind);
    good(reel_session_copy(other, s, &f.err));
    guess(other, 30, ids[30], 1, &g);
    assert_int_equal(g.n, 0);
    reel_session_close(other);
    /* positions that were made anew without the layer are not those that it saw */
    const struct reel_generation plain = { .size = sizeof plain,
                                           .max_tokens = 10,
                                           .ignore_stop_ids = true,
                                           .speculation = REEL_SPECULATION_OFF };
    good(reel_session_sync(s, ids, 40, NULL, &f.err));
    good(reel_session_truncate(s, 31, &f.err));
    good(reel_generate(s, &plain, NULL, &f.err));
    guess(s, 40, reel_session_ids(s)[40], 1, &g);
    assert_int_equal(g.n, 0);
    reel_session_close(s);
}

/* ---- ids are those without ---- */

struct tale {
    int32_t ids[CONTEXT];
    int n;
    struct reel_generation_result result;
    int refuse_at, cancel_at; /* 0: never */
    struct reel_session *session;
};
static bool on_token(void *user, const struct reel_token *token) {
    struct tale *t = user;
    t->ids[t->n++] = token->id;
    if (t->n == t->cancel_at) reel_session_cancel(t->session);
    return t->n != t->refuse_at;
}

struct kind {
    int n_prompt, salt, n_new;
    float temperature;
    int most_drafts;
    bool late; /* the session was not opened for the layer */
    int fails; /* which launch behind the prompt the driver refuses, of those that make inputs of
                  the layer; 0: none */
    int refuse_at, cancel_at; /* which id is the last; 0: none is */
};

static struct tale tell(const struct kind *k, enum reel_speculation speculation) {
    struct tale t = { .refuse_at = k->refuse_at, .cancel_at = k->cancel_at };
    int32_t prompt[CONTEXT];
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = k->temperature,
                                            .seed = 7 };
    const struct reel_generation g = { .size = sizeof g,
                                       .sampling = &sampling,
                                       .max_tokens = k->n_new,
                                       .ignore_stop_ids = true,
                                       .speculation = speculation,
                                       .most_drafts = k->most_drafts,
                                       .on_token = on_token,
                                       .user = &t };
    const struct reel_generation more = { .size = sizeof more,
                                          .max_tokens = MORE,
                                          .ignore_stop_ids = true,
                                          .speculation = REEL_SPECULATION_OFF,
                                          .on_token = on_token,
                                          .user = &t };
    prompt_of(prompt, k->n_prompt, k->salt);
    const bool follows = !k->late && speculation != REEL_SPECULATION_OFF;
    struct reel_session *s = open_session(f.gpu, follows ? f.of->kind : REEL_SPECULATION_OFF);
    t.session = s;
    good(reel_session_sync(s, prompt, k->n_prompt, NULL, &f.err));
    f.sim.cuda->only = "cuLaunchKernel", f.sim.cuda->fail_with = 2;
    f.sim.cuda->fail_call = k->fails;
    t.result.size = sizeof t.result;
    good(reel_generate(s, &g, &t.result, &f.err));
    f.sim.cuda->only = NULL, f.sim.cuda->fail_call = 0;
    assert_int_equal(t.n, t.result.n_tokens);
    assert_int_equal(t.result.n_passes + t.result.n_accepted, t.n);
    if (reel_session_length(s) + MORE <= CONTEXT) good(reel_generate(s, &more, NULL, &f.err));
    reel_session_close(s);
    return t;
}

static void ids_are_those_without(void **state) {
    static const struct kind kinds[] = {
        { .n_prompt = 21, .n_new = N_NEW },
        { .n_prompt = 70, .salt = 3, .n_new = N_NEW, .temperature = 0.8f },
        { .n_prompt = 40, .n_new = N_NEW, .most_drafts = 1 },
        { .n_prompt = 21, .n_new = N_NEW, .late = true },
        { .n_prompt = 3, .salt = 2, .n_new = N_NEW, .temperature = 0.8f },
        { .n_prompt = CONTEXT - 12, .n_new = 12 },
        { .n_prompt = 21, .n_new = 1 },
        { .n_prompt = 21, .n_new = N_NEW, .refuse_at = 9 },
        { .n_prompt = 21, .n_new = N_NEW, .cancel_at = 10 },
        { .n_prompt = 21, .n_new = N_NEW, .cancel_at = 11 },
    };
    const struct share share = share_of("draft-layer-ids", 3);
    int n_right = 0, n_drafted = 0, n_chosen = 0;
    (void)state;
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        if (!share_has(share, i)) continue;
        const struct tale without = tell(&kinds[i], REEL_SPECULATION_OFF);
        const struct tale with = tell(&kinds[i], f.of->kind);
        assert_int_equal(without.result.n_drafted, 0);
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.ids, without.ids, (size_t)with.n * sizeof *with.ids);
        print_message("%d ids, %d passes, %d drafts, %d right\n", with.result.n_tokens,
                      with.result.n_passes, with.result.n_drafted, with.result.n_accepted);
        if (kinds[i].n_new > 1) assert_true(with.result.n_drafted > 0);
        n_right += with.result.n_accepted, n_drafted += with.result.n_drafted;
        if (n_chosen > 0 || kinds[i].n_new != N_NEW) continue; /* one of a run chooses */
        const struct tale chosen = tell(&kinds[i], REEL_SPECULATION_AUTO);
        assert_int_equal(chosen.n, without.n);
        assert_memory_equal(chosen.ids, without.ids, (size_t)chosen.n * sizeof *chosen.ids);
        print_message("auto: %d drafts\n", chosen.result.n_drafted);
        n_chosen++;
    }
    assert_true(n_right > (f.of->head ? 0 : n_drafted / 10));
}

/* ---- what fails ---- */

/* The session says why it cannot be opened for a layer that cannot be made, and one that was not is
 * as ever. */
static void a_layer_that_cannot_be_made_is_an_error(void **state) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = CONTEXT,
                                                  .speculation = f.of->kind };
    struct reel_session *s = NULL;
    (void)state;
    reel_model_close(f.gpu);
    open_gpu();
    f.sim.nvrtc->fail_call = 3; /* the library is found */
    f.sim.nvrtc->fail_with = 11;
    assert_int_not_equal(reel_session_open(&s, f.gpu, &options, &f.err), REEL_OK);
    assert_true(f.err.text[0] != '\0');
    f.sim.nvrtc->fail_call = 0;
    s = open_session(f.gpu, f.of->kind); /* it is tried again */
    reel_session_close(s);
}

/* Whichever call of the driver fails while the layer is opened: it is said, and nothing is left. A
 * run tries a few, a soak all. */
static void opening_the_layer_may_fail(void **state) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = CONTEXT,
                                                  .speculation = f.of->kind };
    int n_calls = 0, n_failed = 0;
    (void)state;
    for (int n = 0; n <= n_calls; n += n == 0 || getenv("REEL_SOAK") ? 1 : n_calls / 5 + 1) {
        struct reel_session *s = NULL;
        reel_model_close(f.gpu);
        open_gpu();
        const int before = f.sim.cuda->n_calls;
        f.sim.cuda->failed_call = NULL;
        f.sim.cuda->fail_call = n, f.sim.cuda->fail_with = 2; /* out of memory */
        const enum reel_status status = reel_session_open(&s, f.gpu, &options, &f.err);
        f.sim.cuda->fail_call = 0;
        if (n == 0) good(status), n_calls = f.sim.cuda->n_calls - before;
        n_failed += status != REEL_OK;
        assert_true(status == REEL_OK || f.err.text[0] != '\0');
        reel_session_close(s);
        reel_model_close(f.gpu);
        /* a call that frees could not be made where entering its context failed */
        const char *failed = f.sim.cuda->failed_call;
        const bool kept = status == REEL_OK && failed && !strcmp(failed, "cuCtxPushCurrent_v2");
        const struct fake_live *left = &f.sim.cuda->leaked;
        assert_in_range(left->allocations + left->host_allocations + left->modules + left->streams,
                        0, kept);
        f.sim.cuda->live = (struct fake_live){ 0 }; /* what was kept is not the next round's */
        f.gpu = NULL;
    }
    assert_true(n_failed > 0);
    open_gpu();
}

/* A launch for the layer that fails costs its guesses alone. */
static void a_guess_that_fails_costs_no_id(void **state) {
    struct kind k = { .n_prompt = 21, .n_new = 8 };
    const struct tale without = tell(&k, REEL_SPECULATION_OFF);
    const int n_drafted = tell(&k, f.of->kind).result.n_drafted;
    (void)state;
    for (k.fails = 1; k.fails < 6; k.fails += 2) {
        const struct tale with = tell(&k, f.of->kind);
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.ids, without.ids, (size_t)with.n * sizeof *with.ids);
        assert_true(with.result.n_drafted < n_drafted);
    }
}

/* ---- int8 weights ---- */

/* As a user has it: the codes guess about as well, and cost no id either. */
static void codes_guess_as_well(void **state) {
    const struct kind kinds[] = { { .n_prompt = 21, .n_new = N_NEW },
                                  { .n_prompt = 70, .salt = 3, .n_new = N_NEW } };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct tale without = tell(&kinds[i], REEL_SPECULATION_OFF);
        const struct tale wide = tell(&kinds[i], f.of->kind);
        reel_model_close(f.gpu);
        open_gpu_with(SMALL);
        const struct tale with = tell(&kinds[i], f.of->kind);
        reel_model_close(f.gpu);
        open_gpu();
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.ids, without.ids, (size_t)with.n * sizeof *with.ids);
        print_message("%d of %d right, %d of %d with bf16 weights\n", with.result.n_accepted,
                      with.result.n_drafted, wide.result.n_accepted, wide.result.n_drafted);
        assert_true(with.result.n_accepted >= wide.result.n_accepted / 2);
    }
}

/* ---- mutations ---- */

/* What became of guesses as no mutation makes them. */
static int n_right;

/* A pass finds the guesses on the device, and so does each guess the one before. */
static int guesses_that_are_right(void) {
    const struct kind k = { .n_prompt = 21, .n_new = N_NEW };
    return tell(&k, f.of->kind).result.n_accepted;
}

static bool is_seen(const struct mutation *m) {
    reel_model_close(f.gpu);
    mutation_apply(m, f.sim.nvrtc);
    open_gpu();
    bool same =
        same_behind_prompts(21) && same_behind_passes() && guesses_that_are_right() == n_right;
    if (same && f.of->head) {
        open_short();
        same = same_behind_prompts(21);
    }
    printf("%s: %s\n", m->what, same ? "not seen" : "seen");
    return !same;
}

static void mutations_are_seen(void **state) {
    (void)state;
    n_right = guesses_that_are_right();
    mutations_try(f.of->mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest layer[] = {
        cmocka_unit_test(guesses_are_those_of_the_cpu),
        cmocka_unit_test(an_unknown_past_makes_no_guess),
        cmocka_unit_test(ids_are_those_without),
        cmocka_unit_test(a_guess_that_fails_costs_no_id),
        cmocka_unit_test(a_layer_that_cannot_be_made_is_an_error),
        cmocka_unit_test(opening_the_layer_may_fail),
        cmocka_unit_test(codes_guess_as_well),
        cmocka_unit_test(mutations_are_seen),
    };
    const struct CMUnitTest head[] = {
        cmocka_unit_test(guesses_are_those_of_the_cpu),
        cmocka_unit_test(guesses_behind_short_prompts_are_those_of_the_cpu),
        cmocka_unit_test(an_unknown_past_makes_no_guess),
        cmocka_unit_test(ids_are_those_without),
        cmocka_unit_test(a_guess_that_fails_costs_no_id),
        cmocka_unit_test(opening_the_layer_may_fail),
        cmocka_unit_test(mutations_are_seen),
    };
    /* they take turns: numbers of shares within have no divisor in common with theirs */
    const struct share share = share_of("draft-layers", 2);
    int failed = 0;
    if (share_has(share, 0)) failed += cmocka_run_group_tests(layer, start_layer, stop);
    if (share_has(share, 1)) failed += cmocka_run_group_tests(head, start_head, stop);
    return failed;
}
