/* What a prompt's last token became belongs to its session, on the fake GPU: copies and restored
 * snapshots go on with the bits of their origin, whatever other sessions read meanwhile, and no
 * other text ever meets it. */
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_recurrent.h"
#include "runtime/session.h"
#include "runtime/snapshot.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Prompts of N_PROMPT go to the prefill kernels, of up to 3 tokens to the decode kernel. */
enum { N_SMS = 7, N_PROMPT = 9, N_MORE = 3, N_NEW = 3, CONTEXT = 64 };
#define SMALL "n_groups=1,group_sms=6,warps=4,prefill_tokens=128,launch_tokens=128,"
#define QUEUE SMALL "prefill_from=4,short_positions=0"
#define SHORT SMALL "prefill_from=4,short_from=4"

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    const char *const *ways; /* NULL ends them */
    int32_t ids[CONTEXT];
    size_t row; /* bytes of logits */
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static void reload(struct fixture *f, const char *options) {
    if (f->m.gpu) sim_model_unload(&f->m);
    good(sim_model_load(&f->m, options, &f->err), f);
}

static int start_with(void **state, const char *model, const char *const *ways) {
    static struct fixture f;
    f = (struct fixture){ .gpu = sim_gpu_controls(), .ways = ways };
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = N_SMS;
    sim_model_open(&f.m, model);
    f.row = (size_t)f.m.vocab * sizeof(float);
    for (int i = 0; i < CONTEXT; i++)
        f.ids[i] = (i * 37 + i * i % 11 + 11) % 300;
    *state = &f;
    return 0;
}

static int start_dense(void **state) {
    static const char *const ways[] = { QUEUE, SHORT, NULL };
    return start_with(state, "ll-a", ways);
}
static int start_hybrid(void **state) {
    static const char *const ways[] = { QUEUE, NULL };
    return start_with(state, "q35-p", ways);
}

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    assert_int_equal(f->gpu.cuda->leaked.allocations + f->gpu.cuda->leaked.modules, 0);
    return 0;
}

static bool is_hybrid(const struct fixture *f) {
    return f->m.gpu->backend->plan.delta.n_layers > 0;
}

static struct reel_session *open_session(struct fixture *f) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = CONTEXT };
    struct reel_session *s = NULL;
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    return s;
}

static void sync_to(struct fixture *f, struct reel_session *s, const int32_t *ids, int n) {
    good(reel_session_sync(s, ids, n, NULL, &f->err), f);
}

/* Takes the scratch memory. */
static void another_prompt(struct fixture *f) {
    struct reel_session *s = open_session(f);
    sync_to(f, s, f->ids + 30, N_PROMPT + 2);
    reel_session_close(s);
}

/* ---- how a session goes on ---- */

struct run {
    int32_t ids[N_NEW];
    int n;
    float *first, *last; /* logits of the last token before the ids, where asked for; of them */
};

static bool keep_id(void *user, const struct reel_token *token) {
    struct run *r = user;
    r->ids[r->n++] = token->id;
    return true;
}

static float *logits_of(struct fixture *f, struct reel_session *s) {
    float *row = malloc(f->row);
    assert_non_null(row);
    good(session_need_logits(s, &f->err), f);
    memcpy(row, s->logits, f->row);
    return row;
}

static void generate(struct fixture *f, struct reel_session *s, struct run *r) {
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = N_NEW,
                                       .ignore_stop_ids = true,
                                       .on_token = keep_id,
                                       .user = r };
    good(reel_generate(s, &g, NULL, &f->err), f);
    assert_int_equal(r->n, N_NEW);
}

/* With `first` the first id is drawn from logits that are asked for; else the launch that decodes
 * begins behind the prompt. */
static struct run go_on(struct fixture *f, struct reel_session *s, bool first) {
    struct run r = { 0 };
    if (first) r.first = logits_of(f, s);
    generate(f, s, &r);
    r.last = logits_of(f, s);
    return r;
}

static void run_release(struct run *r) { free(r->first), free(r->last); }

/* Closes the session. */
static void assert_goes_on(struct fixture *f, struct reel_session *s, const struct run *want,
                           const char *what) {
    struct run r = go_on(f, s, want->first != NULL);
    if (want->first && memcmp(r.first, want->first, f->row) != 0)
        fail_msg("%s: the logits behind the prompt are others", what);
    if (memcmp(r.ids, want->ids, sizeof r.ids) != 0) fail_msg("%s: the ids are others", what);
    if (memcmp(r.last, want->last, f->row) != 0) fail_msg("%s: the last logits are others", what);
    run_release(&r);
    reel_session_close(s);
}

struct saved {
    void *bytes;
    size_t n;
};

static struct saved save(struct fixture *f, const struct reel_session *s) {
    struct saved saved = { .n = reel_session_snapshot_bytes(s) };
    saved.bytes = malloc(saved.n);
    assert_non_null(saved.bytes);
    good(reel_session_snapshot(s, saved.bytes, saved.n, &f->err), f);
    return saved;
}

/* Prompts up to each of these positions, then perhaps ids that are made. */
struct text {
    int ends[2];
    bool made;
};

static struct reel_session *read_text(struct fixture *f, const struct text *text) {
    struct reel_session *s = open_session(f);
    for (int i = 0; i < 2 && text->ends[i] > 0; i++)
        sync_to(f, s, f->ids, text->ends[i]);
    struct run r = { 0 };
    if (text->made) generate(f, s, &r);
    return s;
}

/* What a session does that reads the text and goes on at once: so does one beside which another
 * prompt is read, its copy, and others restored. */
static void assert_all_go_on(struct fixture *f, const struct text *text, bool first) {
    struct reel_session *s = read_text(f, text);
    struct run want = go_on(f, s, first);
    reel_session_close(s);
    s = read_text(f, text);
    another_prompt(f);
    struct reel_session *copy = open_session(f), *restored = open_session(f);
    struct reel_session *held = open_session(f); /* a row of its own, which must go */
    struct saved saved = save(f, s);
    sync_to(f, held, f->ids + 20, N_PROMPT);
    good(reel_session_copy(copy, s, &f->err), f);
    struct saved again = save(f, copy);
    assert_int_equal(again.n, saved.n);
    assert_memory_equal(again.bytes, saved.bytes, saved.n);
    good(reel_session_restore(restored, saved.bytes, saved.n, &f->err), f);
    good(reel_session_restore(held, saved.bytes, saved.n, &f->err), f);
    assert_goes_on(f, s, &want, "beside another prompt");
    assert_goes_on(f, copy, &want, "a copy");
    assert_goes_on(f, restored, &want, "a restored session");
    assert_goes_on(f, held, &want, "one restored in place of another text");
    run_release(&want);
    free(saved.bytes), free(again.bytes);
}

/* ---- tests ---- */

/* In each way that prompts are read, with logits that are asked for and without: of these
 * REEL_SOAK takes all, other runs every other one, by the text's turn. */
static void check_text(struct fixture *f, const struct text *text, int turn) {
    for (int way = 0; f->ways[way]; way++) {
        if (sanitized_briefly() && way > 0) break;
        reload(f, f->ways[way]);
        for (int first = 0; first < 2; first++)
            if ((way + first) % 2 == turn % 2 || getenv("REEL_SOAK"))
                assert_all_go_on(f, text, first);
    }
}

static void a_prompt_is_gone_on_from_with_the_same_bits(void **state) {
    check_text(*state, &(struct text){ .ends = { N_PROMPT } }, 1);
}

/* Read as one it would round otherwise. The decode kernel reads few tokens, and leaves no row. */
static void a_text_in_pieces_is_gone_on_from_with_the_same_bits(void **state) {
    check_text(*state, &(struct text){ .ends = { N_PROMPT, N_PROMPT + N_MORE } }, 0);
    if (sanitized_briefly()) return; /* the host takes the same way */
    check_text(*state, &(struct text){ .ends = { N_PROMPT, 2 * N_PROMPT } }, 1);
    check_text(*state, &(struct text){ .ends = { N_PROMPT }, .made = true }, 0);
}

/* The bits of a session that reads the prompt and is asked once. */
static void a_prompt_that_is_cut_back_to_begins_as_before(void **state) {
    struct fixture *f = *state;
    for (int way = 0; f->ways[way]; way++) {
        reload(f, f->ways[way]);
        struct reel_session *s = open_session(f);
        sync_to(f, s, f->ids, N_PROMPT);
        struct run want = go_on(f, s, false);
        another_prompt(f);
        good(reel_session_truncate(s, N_PROMPT, &f->err), f);
        assert_goes_on(f, s, &want, "a session that was cut back");
        run_release(&want);
    }
}

/* Evaluates `n` ids from `from` on, and compares with the CPU. */
static void assert_reads(struct fixture *f, struct reel_session *s, const int32_t *ids, int n) {
    sync_to(f, s, ids, n);
    float *made = logits_of(f, s), *want = sim_model_logits(f->m.cpu, ids, n);
    double sum = 0, all = 0;
    for (int i = 0; i < f->m.vocab; i++) {
        const double w = (double)want[(n - 1) * f->m.vocab + i], d = (double)made[i] - w;
        sum += d * d, all += w * w;
    }
    if (!(sum < 0.03 * 0.03 * all)) fail_msg("off by %g of %g", sum, all);
    free(made), free(want);
}

/* The same last token at the same position, but something before it is another. */
static void a_row_is_never_used_for_another_text(void **state) {
    struct fixture *f = *state;
    int32_t other[N_PROMPT];
    memcpy(other, f->ids, sizeof other);
    other[N_PROMPT - 2] = (other[N_PROMPT - 2] + 100) % 300;
    for (int way = 0; f->ways[way]; way++) {
        reload(f, f->ways[way]);
        struct reel_session *s = open_session(f);
        assert_reads(f, s, f->ids, N_PROMPT);
        assert_int_equal(s->state->last_row_end, N_PROMPT);
        sync_to(f, s, f->ids, N_PROMPT + N_MORE); /* behind it */
        assert_int_equal(s->state->last_row_end, N_PROMPT);
        assert_reads(f, s, other, N_PROMPT);
        if (!is_hybrid(f)) /* else as a new prompt: by the decode kernel */
            assert_int_equal(s->state->last_row_end, 0);
        assert_reads(f, s, f->ids, N_PROMPT);
        good(reel_session_truncate(s, 0, &f->err), f);
        sync_to(f, s, f->ids, N_PROMPT);
        sync_to(f, s, f->ids, N_PROMPT - 1); /* the row is still that of the text that was */
        assert_reads(f, s, f->ids, N_PROMPT);
        reel_session_close(s);
    }
}

/* A prompt that fails has overwritten the row, maybe; so has a copy. */
static void a_row_is_forgotten_by_what_fails(void **state) {
    struct fixture *f = *state;
    reload(f, f->ways[0]);
    struct reel_session *s = open_session(f), *copy = open_session(f);
    sync_to(f, s, f->ids, N_PROMPT);
    sync_to(f, copy, f->ids + 1, N_PROMPT);
    for (int i = 0; i < 2; i++) {
        f->gpu.cuda->only = "cuMemcpyDtoDAsync_v2"; /* a prompt's first keeps the state before it */
        f->gpu.cuda->fail_call = i == 1 && is_hybrid(f) ? 2 : 1, f->gpu.cuda->fail_with = 2;
        assert_int_equal(i == 0 ? reel_session_copy(copy, s, &f->err)
                                : reel_session_sync(s, f->ids, 2 * N_PROMPT, NULL, &f->err),
                         REEL_E_MEMORY);
        f->gpu.cuda->only = NULL;
        assert_int_equal((i == 0 ? copy : s)->state->last_row_end, 0);
    }
    good(reel_session_truncate(s, 0, &f->err), f);
    assert_reads(f, s, f->ids, N_PROMPT);
    assert_reads(f, copy, f->ids, N_PROMPT);
    reel_session_close(s), reel_session_close(copy);
}

/* Its bytes are in front of the recurrent state, else at the end. */
static size_t row_in(const struct reel_session *s, size_t n) {
    const struct backend_state *state = s->state;
    const bool before = cuda_recurrent_has_before(state, N_PROMPT);
    return n - cuda_recurrent_saved_bytes(state, N_PROMPT, before) -
           cuda_last_row_saved_bytes(state, N_PROMPT);
}

static void a_snapshot_with_a_forged_row_is_refused(void **state) {
    struct fixture *f = *state;
    const int32_t forged[][2] = { { -1, 0 }, { N_PROMPT + 1, 0 }, { 1 << 30, 0 },
                                  { 1, -1 }, { 1, f->m.vocab },   { 0, -5 } };
    reload(f, f->ways[0]);
    struct reel_session *s = open_session(f), *to = open_session(f);
    sync_to(f, s, f->ids, N_PROMPT);
    struct saved saved = save(f, s);
    char *const row = (char *)saved.bytes + row_in(s, saved.n);
    const int32_t held[2] = { N_PROMPT, f->ids[N_PROMPT - 1] };
    assert_memory_equal(row, held, sizeof held);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        memcpy(row, forged[i], sizeof forged[i]);
        snapshot_seal(saved.bytes, saved.n);
        assert_int_equal(reel_session_restore(to, saved.bytes, saved.n, &f->err), REEL_E_FORMAT);
        assert_non_null(strstr(f->err.text, "a prompt's last token is id"));
        assert_int_equal(reel_session_length(to), 0);
        assert_int_equal(to->state->last_row_end, 0);
        assert_reads(f, to, f->ids, N_PROMPT);
    }
    reel_session_close(s), reel_session_close(to);
    free(saved.bytes);
}

/* Of the state alone, as it was saved before there were rows; and a byte more or less. */
static void a_state_of_another_size_is_refused(void **state) {
    struct fixture *f = *state;
    reload(f, f->ways[0]);
    struct reel_session *s = open_session(f), *to = open_session(f);
    sync_to(f, s, f->ids, N_PROMPT);
    const size_t n = cuda_save_bytes(s->state, N_PROMPT);
    const size_t row = cuda_last_row_saved_bytes(s->state, N_PROMPT);
    const size_t wrong[] = { n - row, n - 1, n + 1, n + row, 0 };
    char *bytes = calloc(1, n + row);
    assert_non_null(bytes);
    good(cuda_save(s->state, N_PROMPT, bytes, &f->err), f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(cuda_restore(to->state, N_PROMPT, bytes, wrong[i], &f->err),
                         REEL_E_FORMAT);
        assert_non_null(strstr(f->err.text, "bytes of state"));
    }
    good(cuda_restore(to->state, N_PROMPT, bytes, n, &f->err), f);
    reel_session_close(s), reel_session_close(to);
    free(bytes);
}

/* A position whose row is held is not read once more by the prefill kernels, whose state has seen
 * it already. */
static void the_last_position_of_a_prompt_is_not_read_twice(void **state) {
    struct fixture *f = *state;
    reload(f, SMALL "prefill_from=1,short_positions=0");
    struct reel_session *s = open_session(f);
    sync_to(f, s, f->ids, N_PROMPT);
    f->gpu.cuda->n_launches = 0;
    assert_reads(f, s, f->ids, N_PROMPT);
    assert_int_equal(f->gpu.cuda->n_launches, 1);
    reel_session_close(s);
}

int main(void) {
    struct CMUnitTest dense[] = {
        in_turn(a_prompt_is_gone_on_from_with_the_same_bits),
        in_turn(a_text_in_pieces_is_gone_on_from_with_the_same_bits),
        cmocka_unit_test(a_prompt_that_is_cut_back_to_begins_as_before),
        in_turn(a_row_is_never_used_for_another_text),
        in_turn(a_row_is_forgotten_by_what_fails),
        in_turn(a_snapshot_with_a_forged_row_is_refused),
        in_turn(a_state_of_another_size_is_refused),
        in_turn(the_last_position_of_a_prompt_is_not_read_twice),
    };
    /* a recurrent state does not go back to just behind the prompt: that rounds otherwise */
    struct CMUnitTest hybrid[] = {
        in_turn(a_prompt_is_gone_on_from_with_the_same_bits),
        in_turn(a_text_in_pieces_is_gone_on_from_with_the_same_bits),
        in_turn(a_row_is_never_used_for_another_text),
        in_turn(a_row_is_forgotten_by_what_fails),
        in_turn(a_snapshot_with_a_forged_row_is_refused),
        in_turn(a_state_of_another_size_is_refused),
        in_turn(the_last_position_of_a_prompt_is_not_read_twice),
    };
    /* A run has a third of what one of the two models has. */
    const struct share share = share_of("last-row", 2);
    int failed = 0;
    if (share_has(share, 0)) {
        SHARE_TESTS("last-row-attention", 3, dense);
        failed += cmocka_run_group_tests_name("attention", dense, start_dense, stop);
    }
    if (share_has(share, 1)) {
        SHARE_TESTS("last-row-hybrid", 3, hybrid);
        failed += cmocka_run_group_tests_name("hybrid", hybrid, start_hybrid, stop);
    }
    return failed;
}
