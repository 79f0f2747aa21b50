#include "cuda/run/cuda_step.h"

#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_decode.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_programs.h"
#include "cuda/run/cuda_recurrent.h"
#include "cuda/run/cuda_state.h"

#include <string.h>

int cuda_step_columns(const struct backend *b) {
    const int size = cuda_programs_largest(b, false);
    return size < 0 ? 0 : plan_column_size(size);
}

/* ---- a step ---- */

struct step {
    struct backend *b;
    const struct backend_batch *batch;
    struct cuda_decoding g[ARGS_MAX_COLUMNS];
    int n_read[ARGS_MAX_COLUMNS]; /* ids of the launch at hand that were delivered */
    struct cuda_program *program; /* NULL: none has room for the columns yet */
    bool enough;
};

static bool is_enough(struct step *t) {
    for (int i = 0; i < t->batch->n; i++)
        t->enough = t->enough || t->g[i].enough;
    if (!t->enough && t->batch->enough && t->batch->enough(t->batch->user)) t->enough = true;
    return t->enough;
}

static void end_column(struct step *t, int i, enum reel_status status) {
    t->batch->columns[i].over = true;
    t->batch->columns[i].status = status;
}

/* Whether some column is over; says so of those that are. */
static bool any_over(struct step *t) {
    bool any = false;
    for (int i = 0; i < t->batch->n; i++) {
        if (!t->batch->columns[i].over && cuda_decoding_is_over(&t->g[i]))
            end_column(t, i, REEL_OK);
        any = any || t->batch->columns[i].over;
    }
    return any;
}

/* A prompt's last token is not taken through the layers once more: a launch of its session alone
 * picks what follows. */
static void begin_column(struct step *t, int i) {
    struct backend_column *c = &t->batch->columns[i];
    struct cuda_decoding *g = &t->g[i];
    enum reel_status status = cuda_decoding_begin(g, c->state, c->decode, &c->err);
    if (t->batch->n == 1 || !t->program) g->batch = t->batch;
    if (status == REEL_OK && cuda_last_row_is(c->state, g->position, g->id))
        status = c->decode->host_draws ? cuda_decoding_evaluate(g, &c->err)
                                       : cuda_decoding_launch(g, 1, &c->err);
    if (status != REEL_OK) end_column(t, i, status);
}

/* ---- a launch ---- */

/* The host draws all ids of column i. */
static void ask_of_host(struct columns_args *args, int i) {
    args->asks |= 1U << i;
    args->column[i].sampling.adjust = 1;
    args->column[i].logits = args->shown[i];
}

static enum reel_status give_columns(struct step *t, struct columns_args *args) {
    enum reel_status status = REEL_OK;
    *args = (struct columns_args){ .n_passes = cuda_launch_tokens(t->b) };
    for (int i = 0; i < t->batch->n; i++) {
        status = cuda_decoding_args(&t->g[i], args->n_passes, &args->column[i],
                                    &t->batch->columns[i].err);
        const struct backend_state *s = t->g[i].s;
        args->shown[i] = cuda_pointer(cuda_mapped_address(s, s->mapped.logits));
        if (t->g[i].d->host_draws) ask_of_host(args, i);
        if (status == REEL_OK) continue;
        end_column(t, i, status);
        return status;
    }
    return REEL_OK;
}

/* Draws the id that a column waits for. The others go on meanwhile. */
static void answer(struct step *t, struct cuda_run *run, int i) {
    struct backend_column *c = &t->batch->columns[i];
    int32_t id = -1;
    const enum reel_status status = cuda_decoding_draw(&t->g[i], &id, &c->err);
    if (status != REEL_OK) {
        end_column(t, i, status);
        return;
    }
    cuda_column_give(run, i, t->n_read[i]++, id);
    cuda_decoding_deliver(&t->g[i], NULL, id);
}

/* Delivers the ids that have come. False: some column wants no more, or the caller does. */
static bool deliver(struct step *t, struct cuda_run *run) {
    bool goes_on = true;
    for (int i = 0; i < t->batch->n; i++) {
        struct cuda_decoding *g = &t->g[i];
        int32_t id = -1;
        while (!g->stopped && cuda_column_id(run, i, t->n_read[i], &id, NULL)) {
            t->n_read[i]++;
            cuda_decoding_deliver(g, NULL, id);
        }
        const bool over = t->batch->columns[i].over;
        if (!over && !g->stopped && cuda_column_asks(run, i, t->n_read[i])) answer(t, run, i);
        if (t->batch->columns[i].over || g->stopped || (g->d->cancel && atomic_load(g->d->cancel)))
            goes_on = false;
    }
    return goes_on && !is_enough(t);
}

/* Waits for the end of a launch. */
static enum reel_status read_launch(struct step *t, struct cuda_run *run, struct reel_error *err) {
    bool ended = false;
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && !ended) {
        if (!deliver(t, run)) cuda_stop(run);
        status = cuda_columns_wait(run, &ended, err);
    }
    if (status == REEL_OK) (void)deliver(t, run);
    return status;
}

/* What the launch has left of a column, which began at position `from`. */
static void settle(struct step *t, int i, int from) {
    struct backend_column *c = &t->batch->columns[i];
    struct cuda_decoding *g = &t->g[i];
    struct decode_mailbox *m = c->state->mapped.mailbox;
    const int before = g->n_made;
    if (t->n_read[i] > (int)m->n_made)
        m->n_made++; /* given, but the launch did not see it any more */
    enum reel_status status = c->over ? c->status : cuda_decoding_settle(g, true, &c->err);
    /* a launch that ran ahead of what was taken has left the state of another text */
    if (from + (int)m->n_evaluated == g->position) cuda_recurrent_advance(c->state, g->position);
    if (status == REEL_OK && !g->stopped && t->n_read[i] == 0 && g->n_made == before)
        status = err_set(&c->err, REEL_E_DEVICE, "%s: a pass of several sessions made no token",
                         t->b->gpu.facts.name);
    c->state->n_positions = g->position;
    if (status != REEL_OK) end_column(t, i, status);
}

static void fail_all(struct step *t, enum reel_status status, const struct reel_error *err) {
    for (int i = 0; i < t->batch->n; i++) {
        t->batch->columns[i].err = *err;
        end_column(t, i, status);
    }
}

/* The recurrent states are those of the columns' positions when a launch begins, and nothing until
 * it has ended well. Where a column's cannot be had, no launch begins: nothing has moved the
 * others'. */
static bool ready_states(struct step *t, struct columns_args *args) {
    for (int i = 0; i < t->batch->n; i++) {
        struct backend_column *c = &t->batch->columns[i];
        enum reel_status status = cuda_recurrent_rewind(c->state, t->g[i].position, &c->err);
        if (status == REEL_OK)
            status = cuda_recurrent_begin(c->state, &args->column[i].delta, &c->err);
        if (status == REEL_OK) continue;
        end_column(t, i, status);
        while (--i >= 0)
            cuda_recurrent_moved(t->batch->columns[i].state, t->g[i].position);
        return false;
    }
    return true;
}

/* Columns of the program that nobody has. */
static void fill_idle_columns(const struct step *t, struct columns_args *args) {
    for (int i = t->batch->n; i < t->program->plan->columns; i++)
        args->column[i] = args->column[0], args->column[i].n_tokens = 0;
}

static void launch(struct step *t) {
    struct columns_args args;
    struct cuda_run run = { .state = t->batch->columns[0].state, .n_columns = t->batch->n };
    struct reel_error err = { 0 };
    if (give_columns(t, &args) != REEL_OK || !ready_states(t, &args)) return;
    fill_idle_columns(t, &args);
    cuda_program_args(&t->b->step, t->program, &args);
    for (int i = 0; i < t->batch->n; i++) {
        run.columns[i] = t->batch->columns[i].state;
        cuda_last_row_invalidate(run.columns[i], t->g[i].position);
        run.columns[i]->n_positions = t->g[i].position;
        t->n_read[i] = 0;
    }
    const struct cuda_column_launch kernel = { .function = &t->program->function,
                                               .plan = t->program->plan,
                                               .args = &args,
                                               .mailbox = t->b->step.mailbox,
                                               .words = t->program->words };
    enum reel_status status = cuda_submit_columns(&run, &kernel, &err);
    if (status == REEL_OK) status = read_launch(t, &run, &err);
    if (status != REEL_OK) {
        fail_all(t, status, &err);
        return;
    }
    for (int i = 0; i < t->batch->n; i++)
        settle(t, i, args.column[i].position);
}

/* One session: as cuda_decode, but that the batch may have enough. */
static void launch_one(struct step *t, int i, int most) {
    struct backend_column *c = &t->batch->columns[i];
    struct cuda_decoding *g = &t->g[i];
    const enum reel_status status = c->decode->host_draws ? cuda_decoding_evaluate(g, &c->err)
                                                          : cuda_decoding_launch(g, most, &c->err);
    if (status != REEL_OK) end_column(t, i, status);
}

/* No program has room for the columns yet. */
static void launch_in_turn(struct step *t) {
    enum { TURN_TOKENS = 8 };
    for (int i = 0; i < t->batch->n && !is_enough(t); i++)
        launch_one(t, i, TURN_TOKENS);
}

static enum reel_status find_program(struct step *t, struct reel_error *err) {
    struct cuda_programs *programs = &t->b->step;
    const int n = t->batch->n;
    if (t->b->tuning.columns_wait == 1)
        return cuda_program_open(t->b, programs, n, &t->program, err);
    cuda_programs_make(t->b, programs, t->b->tuning.columns_wait == 2);
    const bool over = atomic_load(&programs->over);
    t->program = cuda_programs_fitting(programs, n);
    if (t->program || !over) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED, "no program for %d columns: %s", n, programs->why);
}

static void launch_any(struct step *t) {
    struct reel_error err = { 0 };
    if (t->batch->n == 1) {
        launch_one(t, 0, t->g[0].d->max_tokens);
        return;
    }
    if (!t->program) (void)find_program(t, &err); /* the next step says what fails */
    if (t->program)
        launch(t);
    else
        launch_in_turn(t);
}

void cuda_step(struct backend *b, const struct backend_batch *batch) {
    struct step t = { .b = b, .batch = batch };
    struct reel_error err = { 0 };
    enum reel_status status = REEL_OK;
    if (batch->n > 1) status = find_program(&t, &err);
    if (status != REEL_OK) {
        fail_all(&t, status, &err);
        return;
    }
    for (int i = 0; i < batch->n; i++)
        begin_column(&t, i);
    while (!any_over(&t) && !is_enough(&t))
        launch_any(&t);
    for (int i = 0; i < batch->n; i++)
        cuda_pages_keep(t.g[i].s, t.g[i].position + 1);
}
