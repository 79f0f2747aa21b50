#include "cuda/run/cuda_drafts.h"

#include "base/clock.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_decode.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_recurrent.h"
#include "cuda/run/cuda_state.h"
#include "plan/plan_layout.h"

/* ---- the programs ---- */

int cuda_drafts_possible(const struct backend *b) {
    const int size = cuda_programs_largest(b, true);
    return size < 0 ? 0 : plan_column_size(size) - 1;
}

static struct cuda_programs *programs_of(const struct backend_state *s) {
    return s->drafts ? &s->backend->layer_drafts : &s->backend->drafts;
}

void cuda_drafts_make(const struct backend_state *s, bool wait) {
    cuda_programs_make(s->backend, programs_of(s), wait);
}

/* Columns of the largest that is there; 0: none is. */
static int most_columns(const struct backend_state *s) {
    const int made = atomic_load(&programs_of(s)->made);
    int size = PLAN_COLUMN_SIZES - 1;
    while (size >= 0 && !(made >> size & 1))
        size--;
    return size < 0 ? 0 : plan_column_size(size);
}

int cuda_drafts_most(const struct backend_state *s) {
    const int columns = most_columns(s);
    return columns > 0 ? columns - 1 : 0;
}

/* The smallest program for so many drafts, else the largest there is. */
static struct cuda_program *program_for(const struct backend_state *s, int n_drafts) {
    return cuda_programs_fitting(programs_of(s), int_min(1 + n_drafts, most_columns(s)));
}

/* A column's penalties would have to know of the drafts before it; and one buffer for the logits of
 * all columns is enough where only those of an id that the host draws are stored. */
bool cuda_drafts_allowed(const struct cuda_decoding *g) {
    const struct backend_sampling *set = g->d->sampling;
    return g->d->expect && !set->penalises && set->set.n_bias == 0;
}

bool cuda_drafts_ready(const struct cuda_decoding *g) {
    return atomic_load(&programs_of(g->s)->made) != 0 &&
           !cuda_last_row_is(g->s, g->position, g->id);
}

/* ---- a launch ---- */

struct drafting {
    struct cuda_decoding *g;
    struct cuda_program *program;
    bool once;    /* it has one pass */
    int n_drafts; /* of its first pass */
    int n_read;   /* ids delivered */
};

/* Each pass leaves its columns' hidden states; those of the only one are what the draft layer
 * wants. */
static void leave_hidden(const struct cuda_decoding *g, int columns, struct columns_args *args) {
    const cu_address at = cuda_draft_hidden(g->s, g->position);
    const size_t row = cuda_draft_row_bytes(g->s->backend);
    for (int i = 0; i < columns; i++)
        args->column[i].hidden = cuda_pointer(at + (cu_address)i * row);
}

/* Drafts that are guesses in the queue. */
static void give_guesses(const struct cuda_decoding *g, int n, struct columns_args *args) {
    const struct backend *b = g->s->backend;
    if (!b->draft_oracle) cuda_guesses_give(g->s, args);
    for (int i = 1; i <= n; i++)
        if (args->draft[i] >= 0)
            args->draft[i] = b->draft_oracle ? b->draft_oracle(g->position + i) : 0;
}

/* The session's first column, those for drafts, and idle ones. In an only pass these follow, too:
 * that costs less. */
static enum reel_status give_columns(struct drafting *t, const struct backend_expected *expected,
                                     struct columns_args *args, struct reel_error *err) {
    const struct cuda_decoding *g = t->g;
    const int columns = t->program->plan->columns;
    struct decode_args *first = &args->column[0];
    enum reel_status status =
        cuda_decoding_args(t->g, t->once ? columns : cuda_launch_tokens(g->s->backend), first, err);
    if (status != REEL_OK) return status;
    first->lead = (unsigned)int_min((int)first->lead, MAILBOX_IDS - 1 - columns);
    args->n_passes = t->once ? 1 : first->n_tokens;
    const int most = g->d->most_drafts ? g->d->most_drafts : columns - 1;
    for (int i = 1; i < columns; i++) {
        const bool has = i <= expected->n && i < first->n_tokens;
        args->column[i] = *first;
        args->draft[i] = !has ? -1 : expected->of_layer ? 0 : expected->ids[i - 1];
        if (i <= most || t->once)
            args->follows |= 1U << i, t->n_drafts += has;
        else
            args->column[i].n_tokens = 0;
    }
    if (expected->of_layer) give_guesses(g, columns - 1, args);
    if (g->s->drafts) leave_hidden(g, columns, args);
    cuda_program_args(programs_of(g->s), t->program, args);
    return REEL_OK;
}

/* Tells the launch what is expected behind the last id. */
static void tell(const struct cuda_decoding *g, const struct backend_expected *expected) {
    struct decode_mailbox *m = g->s->mapped.mailbox;
    for (int i = 0; i < expected->n; i++) {
        const unsigned position = (unsigned)(g->position + 1 + i);
        __atomic_store_n(&m->guesses[position % MAILBOX_GUESSES],
                         (unsigned long long)(position + 1) << 32 | (unsigned)expected->ids[i],
                         __ATOMIC_RELAXED);
    }
}

static bool is_cancelled(const struct cuda_decoding *g) {
    return g->d->cancel && atomic_load(g->d->cancel);
}

/* Delivers the ids that have come, and says what is expected next. False: the launch is to end. */
static bool deliver(struct drafting *t, struct cuda_run *run) {
    struct cuda_decoding *g = t->g;
    const int before = t->n_read;
    int32_t id = -1;
    bool drafted = false;
    while (!g->stopped && !is_cancelled(g) && cuda_column_id(run, 0, t->n_read, &id, &drafted)) {
        t->n_read++;
        if (drafted && g->d->drafted) g->d->drafted(g->d->user);
        cuda_decoding_deliver(g, run, id);
    }
    if (g->stopped || g->enough || is_cancelled(g)) return false;
    if (t->n_read == before || t->once) return true;
    struct backend_expected next = { 0 };
    g->d->expect(g->d->user, &next, 1);
    tell(g, &next);
    return next.worth > 0;
}

static enum reel_status read_launch(struct drafting *t, struct cuda_run *run,
                                    struct reel_error *err) {
    bool ended = false;
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && !ended) {
        if (!deliver(t, run)) cuda_stop(run);
        status = cuda_columns_wait(run, &ended, err);
    }
    if (status == REEL_OK) (void)deliver(t, run);
    return status;
}

/* What a launch that has ended has done. A session that was not over then, since the launch had no
 * more passes, has no counts in its mailbox: they are those of its ids, of which each was made of a
 * position. */
struct done {
    int n_made, n_evaluated, n_drafted;
};
static struct done what_was_done(const struct drafting *t) {
    const struct decode_mailbox *m = t->g->s->mapped.mailbox;
    int n = 0;
    if (m->end) return (struct done){ (int)m->n_made, (int)m->n_evaluated, (int)m->n_drafted };
    while (n < t->program->plan->columns && (unsigned)(m->ids[n] >> 32) == (unsigned)n + 1)
        n++;
    return (struct done){ n, n, t->n_drafts };
}

/* The launch has taken the recurrent state on by what it made; with an id that was not taken it is
 * the state of another text. */
static void keep_state(const struct drafting *t, int from) {
    const struct cuda_decoding *g = t->g;
    if (from + what_was_done(t).n_evaluated == g->position)
        cuda_recurrent_advance(g->s, g->position);
}

/* The draft layer takes note of what the only pass evaluated: `id` at `from`, and the ids up to the
 * one before the last that was delivered. */
static void tell_layer(const struct drafting *t, int from, int32_t id) {
    const struct cuda_decoding *g = t->g;
    const struct decode_mailbox *m = g->s->mapped.mailbox;
    const int n = int_min(g->position - from, t->program->plan->columns);
    int32_t ids[PLAN_MOST_COLUMNS];
    ids[0] = id;
    for (int i = 1; i < n; i++)
        ids[i] = (int32_t)((unsigned)m->ids[i - 1] & ~MAILBOX_DRAFTED);
    cuda_draft_saw(g->s, from, ids, n, true);
}

/* The columns go on from the session's state, which becomes nothing until the launch has ended. */
static enum reel_status begin_state(const struct drafting *t, struct columns_args *args,
                                    struct reel_error *err) {
    struct backend_state *s = t->g->s;
    struct delta_args *first = &args->column[0].delta;
    enum reel_status status = cuda_recurrent_rewind(s, t->g->position, err);
    if (status == REEL_OK) status = cuda_recurrent_begin(s, first, err);
    for (int i = 1; i < t->program->plan->columns; i++)
        args->column[i].delta = *first;
    return status;
}

/* since_ms: when the id before the launch was delivered. */
static void say_taken(const struct drafting *t, const struct cuda_run *run, double since_ms) {
    const struct backend_decode *d = t->g->d;
    const struct done done = what_was_done(t);
    const struct backend_taken taken = {
        .columns = t->program->plan->columns,
        .n_passes = (int)programs_of(t->g->s)->mailbox->n_evaluated,
        .n_ids = done.n_made,
        .n_drafted = done.n_drafted,
        .ms = t->g->delivered_ms - (since_ms > 0 ? since_ms : cuda_began_ms(run))
    };
    if (taken.n_passes == 0 || taken.n_ids == 0) return;
    t->program->pass_ms = (t->g->delivered_ms - cuda_began_ms(run)) / taken.n_passes;
    if (d->took) d->took(d->user, &taken);
}

/* Says what the guesses in the queue were. */
static void take_guesses(const struct cuda_decoding *g, const struct columns_args *args) {
    const struct backend *b = g->s->backend;
    int32_t ids[PLAN_MOST_COLUMNS];
    const int n = cuda_guesses_take(g->s, ids);
    for (int i = 0; i < n && b->draft_oracle; i++)
        ids[i] = args->draft[1 + i];
    if (n > 0 && g->d->guessed) g->d->guessed(g->d->user, ids, n, clock_ms() - g->guess_from_ms);
}

enum reel_status cuda_drafts_launch(struct cuda_decoding *g,
                                    const struct backend_expected *expected,
                                    struct reel_error *err) {
    struct backend *b = g->s->backend;
    struct drafting t = { .g = g,
                          .program = program_for(g->s, expected->worth),
                          .once = expected->asks };
    struct columns_args args = { 0 };
    struct cuda_run run = { .state = g->s,
                            .columns = { g->s },
                            .n_columns = 1,
                            .due_ms = t.program->pass_ms,
                            .is_waited_for = t.once };
    const int before = g->n_made;
    const int32_t id = g->id;
    const double since_ms = g->delivered_ms;
    enum reel_status status = give_columns(&t, expected, &args, err);
    if (status == REEL_OK) status = begin_state(&t, &args, err);
    const struct cuda_column_launch launch = { .function = &t.program->function,
                                               .plan = t.program->plan,
                                               .args = &args,
                                               .mailbox = programs_of(g->s)->mailbox,
                                               .words = t.program->words };
    if (status == REEL_OK) {
        cuda_last_row_invalidate(g->s, g->position);
        g->s->n_positions = g->position;
        status = cuda_submit_columns(&run, &launch, err);
    }
    if (expected->of_layer) take_guesses(g, &args); /* while the launch is behind them */
    if (status != REEL_OK) return status;
    if (!t.once) tell(g, expected);
    status = read_launch(&t, &run, err);
    const bool ended = status == REEL_OK;
    if (ended) say_taken(&t, &run, since_ms);
    g->changes = true;
    if (ended) status = cuda_decoding_settle(g, false, err);
    g->s->n_positions = g->position;
    if (ended) keep_state(&t, args.column[0].position);
    if (ended && t.once && g->s->drafts) tell_layer(&t, args.column[0].position, id);
    if (status == REEL_OK && !g->stopped && g->n_made == before)
        return err_set(err, REEL_E_DEVICE, "%s: a pass with drafts made no token",
                       b->gpu.facts.name);
    return status;
}
