#include "cuda/run/cuda_step.h"

#include "base/memory.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_decode.h"
#include "cuda/run/cuda_kernels.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_recurrent.h"
#include "cuda/run/cuda_state.h"

#include <string.h>

/* ---- the programs ---- */

int cuda_step_columns(const struct backend *b) {
    struct plan plan;
    if (b->tuning.profile) return 0;
    for (int size = CUDA_STEP_SIZES - 1; size >= 0; size--)
        if (plan_columns(&plan, &b->plan, cuda_program_columns(size), false, NULL) == REEL_OK)
            return cuda_program_columns(size);
    return 0;
}

static void close_program(struct backend *b, struct cuda_step_program *p) {
    if (!cuda_untouchable(b)) {
        cuda_module_unload(&b->gpu, p->module);
        cuda_free(&b->gpu, p->words);
    }
    mem_free(p->plan);
    *p = (struct cuda_step_program){ .failed = p->failed };
}

void cuda_programs_close(struct backend *b, struct cuda_step_programs *programs) {
    for (int i = 0; i < CUDA_STEP_SIZES; i++)
        close_program(b, &programs->of[i]);
    if (!cuda_untouchable(b)) cuda_host_free(&b->gpu, programs->mailbox);
    programs->mailbox = NULL;
}

void cuda_step_close(struct backend *b) { cuda_programs_close(b, &b->step); }

static enum reel_status open_mailbox(struct backend *b, struct cuda_step_programs *programs,
                                     struct reel_error *err) {
    void *host = NULL;
    if (programs->mailbox) return REEL_OK;
    enum reel_status status =
        cuda_host_alloc(&b->gpu, &host, &programs->mailbox_address, sizeof *programs->mailbox,
                        "a mailbox of several columns", err);
    programs->mailbox = host;
    return status;
}

static enum reel_status make_program(struct backend *b, struct cuda_step_programs *programs,
                                     struct cuda_step_program *p, int columns,
                                     struct reel_error *err) {
    enum reel_status status = open_mailbox(b, programs, err);
    if (status == REEL_OK) status = mem_zeroed(&p->plan, 1, sizeof *p->plan, "a plan", err);
    if (status == REEL_OK)
        status = plan_columns(p->plan, &b->plan, columns, programs->follows, err);
    if (status == REEL_OK)
        status =
            cuda_open_columns_kernel(b, p->plan, programs->cancel, &p->module, &p->function, err);
    if (status == REEL_OK)
        status = cuda_alloc(&b->gpu, &p->words,
                            (size_t)p->plan->n_words * 8 + (size_t)p->plan->kept_bytes,
                            "exchange words of several sessions", err);
    return status;
}

enum reel_status cuda_program_open(struct backend *b, struct cuda_step_programs *programs, int n,
                                   struct cuda_step_program **out, struct reel_error *err) {
    int size = 0;
    while (cuda_program_columns(size) < n)
        size++;
    struct cuda_step_program *p = *out = &programs->of[size];
    if (p->function.handle && p->words) return REEL_OK;
    struct reel_error why = { 0 };
    enum reel_status status = p->failed ? REEL_E_UNSUPPORTED : REEL_OK;
    if (status == REEL_OK) status = make_program(b, programs, p, cuda_program_columns(size), &why);
    if (status == REEL_OK) return REEL_OK;
    p->failed = true;
    close_program(b, p);
    return err_set(err, REEL_E_UNSUPPORTED, "a pass of %d columns: %.200s", n,
                   why.text[0] ? why.text : "it has failed before");
}

void cuda_program_args(const struct cuda_step_programs *programs,
                       const struct cuda_step_program *program, struct columns_args *args) {
    const struct plan *plan = program->plan;
    const cu_address stride = (cu_address)(plan->n_words / (unsigned)plan->columns) * 8;
    args->ends_early = 1;
    args->mailbox = cuda_pointer(programs->mailbox_address);
    for (int i = 0; i < plan->columns; i++) {
        struct decode_args *a = &args->column[i];
        a->words = cuda_pointer(program->words + (cu_address)i * stride);
        a->abort = args->column[0].abort;
        a->epoch = 1;
        a->cap_layers = plan->cap_layers, a->cap_head = plan->cap_head, a->cap_kv = plan->cap_kv;
        a->hidden_from = 0;
        a->profile = NULL;
    }
}

/* ---- a step ---- */

struct step {
    struct backend *b;
    const struct backend_batch *batch;
    struct cuda_decoding g[ARGS_MAX_COLUMNS];
    int n_read[ARGS_MAX_COLUMNS]; /* ids of the launch at hand that were delivered */
    struct cuda_step_program *program;
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
    if (t->batch->n == 1) g->batch = t->batch;
    if (status == REEL_OK && cuda_last_row_is(c->state, g->position, g->id))
        status = cuda_decoding_launch(g, 1, &c->err);
    if (status != REEL_OK) end_column(t, i, status);
}

/* ---- a launch ---- */

static enum reel_status give_columns(struct step *t, struct columns_args *args) {
    enum reel_status status = REEL_OK;
    *args = (struct columns_args){ .n_passes = cuda_launch_tokens(t->b) };
    for (int i = 0; i < t->batch->n; i++) {
        status = cuda_decoding_args(&t->g[i], args->n_passes, &args->column[i],
                                    &t->batch->columns[i].err);
        if (status == REEL_OK) continue;
        end_column(t, i, status);
        return status;
    }
    return REEL_OK;
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
        if (g->stopped || (g->d->cancel && atomic_load(g->d->cancel))) goes_on = false;
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

/* Positions that the launch took through the layers in a column. A column that was not over when
 * the launch ended has them from all passes. */
static int n_evaluated(const struct step *t, int i) {
    const struct decode_mailbox *column = t->batch->columns[i].state->mapped.mailbox;
    return (int)(column->end ? column->n_evaluated : t->b->step.mailbox->n_evaluated);
}

/* What the launch has left of a column, which began at position `from`. */
static void settle(struct step *t, int i, int from) {
    struct backend_column *c = &t->batch->columns[i];
    struct cuda_decoding *g = &t->g[i];
    const int before = g->n_made;
    enum reel_status status = cuda_decoding_settle(g, &c->err);
    /* a launch that ran ahead of what was taken has left the state of another text */
    if (from + n_evaluated(t, i) == g->position) cuda_recurrent_advance(c->state, g->position);
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
static void launch_alone(struct step *t) {
    struct backend_column *c = &t->batch->columns[0];
    enum reel_status status = cuda_decoding_launch(&t->g[0], t->g[0].d->max_tokens, &c->err);
    if (status != REEL_OK) end_column(t, 0, status);
}

void cuda_step(struct backend *b, const struct backend_batch *batch) {
    struct step t = { .b = b, .batch = batch };
    struct reel_error err = { 0 };
    enum reel_status status = REEL_OK;
    if (batch->n > 1) status = cuda_program_open(b, &b->step, batch->n, &t.program, &err);
    if (status != REEL_OK) {
        fail_all(&t, status, &err);
        return;
    }
    for (int i = 0; i < batch->n; i++)
        begin_column(&t, i);
    while (!any_over(&t) && !is_enough(&t)) {
        if (batch->n > 1)
            launch(&t);
        else
            launch_alone(&t);
    }
    for (int i = 0; i < batch->n; i++)
        cuda_pages_keep(t.g[i].s, t.g[i].position + 1);
}
