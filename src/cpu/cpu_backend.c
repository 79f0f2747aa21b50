/* The CPU as a backend: the fast engine, or the reference when its path or faithful rounding is
 * asked for. */
#include "base/memory.h"
#include "cpu/cpu_path.h"
#include "cpu/delta_drafts.h"
#include "cpu/draft_layer.h"
#include "cpu/encoder.h"
#include "cpu/reference_model.h"

#include <string.h>

/* ---- cpu_machine.c ---- */
extern const struct machine_ops cpu_machine;

struct backend {
    const struct model *model;
    bool reference;
    enum reel_rounding asked;   /* as in reel_model_options */
    enum ref_rounding rounding; /* of the reference */
    enum ref_weights weights;   /* likewise */
    enum kv_form kv;
    struct engine engine;
    struct draft_layer *draft_layer; /* NULL: the model has none, or the reference runs it */
};

struct backend_state {
    struct backend *backend;
    struct ref_state *reference; /* NULL on the fast path */
    struct kv_cache *kv;         /* NULL for the reference */
    struct recurrent recurrent;
    struct draft_state *drafts; /* NULL before guesses are asked for */
    float *logits; /* f32 [1, or MOST_COLUMNS where drafts are taken, vocab] of a pass */
    int max_positions;
    int n_positions; /* evaluated so far */
};

static void cpu_close(struct backend *b) {
    if (!b) return;
    draft_layer_close(b->draft_layer);
    engine_release(&b->engine);
    mem_free(b);
}

static bool takes_drafts(const struct backend *b) { return !b->reference; }

_Static_assert(RECURRENT_DRAFTS == MOST_COLUMNS - 1, "all columns but one may be drafts");

/* Of a state. Those of drafts take no memory before there are any. */
static size_t logits_floats(const struct backend *b) {
    return (size_t)b->model->config.vocab * (takes_drafts(b) ? MOST_COLUMNS : 1);
}

static enum reel_status cpu_open(struct backend **out, const struct model *model,
                                 const struct backend_options *options, struct reel_error *err) {
    struct backend *b = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&b, 1, sizeof *b, "the CPU backend", err);
    if (status != REEL_OK) return status;
    b->model = model;
    b->reference = cpu_path_is_reference(options->cpu_path);
    if (b->reference && strcmp(options->cpu_path, CPU_PATH_REFERENCE_BF16) == 0)
        b->weights = REF_AS_BF16;
    b->asked = options->rounding;
    b->kv = options->kv;
    b->rounding = ref_rounding_of(options->rounding);
    if (options->rounding != REEL_ROUNDING_FAST) {
        if (options->cpu_path && !b->reference && strcmp(options->cpu_path, "auto") != 0)
            status = err_set(err, REEL_E_ARGUMENT,
                             "%s rounding runs on the CPU path \"reference\", not \"%s\"",
                             b->rounding == REF_EXACT ? "exact" : "faithful", options->cpu_path);
        b->reference = true;
    }
    struct kernels kernels;
    if (status == REEL_OK && !b->reference)
        status = cpu_path_choose(&kernels, options->cpu_path, err);
    if (status == REEL_OK && !b->reference)
        status = engine_open(&b->engine, &model->config, &model->weights, &kernels, b->kv,
                             options->n_threads, err);
    if (status == REEL_OK && !b->reference && model->weights.draft.n_parameters)
        status =
            draft_layer_open(&b->draft_layer, &model->config, b->engine.weights, &b->engine, err);
    if (status == REEL_OK)
        *out = b;
    else
        cpu_close(b);
    return status;
}

/* Where an evaluation can be cut and no row notices: attention takes as many positions at once as
 * before, and as many keys with them (AMX and what it leaves to AVX-512 round differently); panels
 * of the cache are whole. The chunks of a recurrent layer would be others. */
static int cut_step(const struct backend *b) {
    const struct engine *e = &b->engine;
    const int tile = e->attention_rows / e->group;
    int step = PANEL_LANES;
    if (model_layer_count(&b->model->config, LAYER_DELTA) > 0) return 0;
    while (step % tile != 0)
        step += PANEL_LANES;
    return step;
}

static void cpu_info(const struct backend *b, struct backend_info *info) {
    const struct model_config *c = &b->model->config;
    if (b->reference) {
        *info = (struct backend_info){ .name = "cpu",
                                       .path = b->weights == REF_AS_BF16 ? CPU_PATH_REFERENCE_BF16
                                                                         : "reference",
                                       .n_threads = 1,
                                       .host_threads = 1,
                                       .most_columns = MOST_COLUMNS,
                                       .state_fixed_bytes = ref_state_fixed_bytes(c),
                                       .state_position_bytes = ref_state_position_bytes(c) };
        return;
    }
    *info = (struct backend_info){
        .name = "cpu",
        .path = b->engine.kernels.name,
        .n_threads = thread_pool_size(b->engine.pool),
        .host_threads = thread_pool_size(b->engine.pool),
        .cut_step = cut_step(b),
        .most_columns = MOST_COLUMNS,
        .drafts = takes_drafts(b) ? MOST_COLUMNS - 1 : 0,
        .column_share = 0.35F,
        .guesses = b->draft_layer != NULL,
        .state_fixed_bytes = sizeof(struct backend_state) + recurrent_bytes(c) +
                             recurrent_drafts_bytes(c) + logits_floats(b) * sizeof(float),
        .state_position_bytes = kv_cache_position_bytes(&b->engine.kv_shape),
    };
}

static void cpu_state_close(struct backend_state *s) {
    if (!s) return;
    ref_state_close(s->reference);
    kv_cache_release(s->kv);
    mem_free(s->kv);
    recurrent_release(&s->recurrent);
    draft_state_close(s->drafts);
    mem_free(s->logits);
    mem_free(s);
}

static enum reel_status cpu_state_open(struct backend_state **out, struct backend *b,
                                       int max_positions, struct reel_error *err) {
    const struct model_config *c = &b->model->config;
    struct backend_state *s = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "a session", err);
    if (status != REEL_OK) return status;
    s->backend = b;
    s->max_positions = max_positions;
    status = mem_zeroed(&s->logits, logits_floats(b), sizeof *s->logits, "a session's logits", err);
    if (status == REEL_OK && b->reference)
        status = ref_state_open(&s->reference, c, &b->model->weights,
                                &(struct ref_options){ .mode = b->rounding,
                                                       .weights = b->weights,
                                                       .kv = b->kv,
                                                       .max_positions = max_positions },
                                err);
    else if (status == REEL_OK)
        status = mem_zeroed(&s->kv, 1, sizeof *s->kv, "a session", err);
    if (status == REEL_OK && !b->reference)
        status = kv_cache_open(s->kv, &b->engine.kv_shape, max_positions, err);
    if (status == REEL_OK && !b->reference) status = recurrent_open(&s->recurrent, c, err);
    if (status == REEL_OK && !b->reference) status = recurrent_open_drafts(&s->recurrent, err);
    if (status == REEL_OK)
        *out = s;
    else
        cpu_state_close(s);
    return status;
}

static bool may_go_on(const struct backend_eval *eval, int done) {
    if (eval->cancel && atomic_load(eval->cancel)) return false;
    return !eval->progress ||
           eval->progress(eval->progress_user, "evaluating", (uint64_t)done, (uint64_t)eval->n);
}

/* The part of the caller's request that one run of n positions after `done` answers. */
static struct engine_run run_of(struct backend_state *s, const struct backend_eval *eval, int done,
                                int n) {
    const struct model_config *c = &s->backend->model->config;
    const bool all =
        eval->output == REEL_OUTPUT_ALL_LOGITS || eval->output == REEL_OUTPUT_ALL_HIDDEN;
    const size_t width = (size_t)(eval->output == REEL_OUTPUT_ALL_LOGITS ? c->vocab : c->hidden);
    return (struct engine_run){
        .engine = &s->backend->engine,
        .kv = s->kv,
        .recurrent = &s->recurrent,
        .position = eval->position + done,
        .n = n,
        .ids = eval->ids ? eval->ids + done : NULL,
        .embeddings = eval->ids ? NULL : eval->embeddings + (size_t)done * (size_t)c->hidden,
        .output = all || done + n == eval->n ? eval->output : REEL_OUTPUT_NONE,
        .out = all ? eval->out + (size_t)done * width : eval->out,
        .cancel = eval->cancel,
    };
}

static int cpu_resume(const struct backend_state *s, int n) {
    if (s->reference) return ref_state_resume(s->reference, n);
    return recurrent_resume(&s->recurrent, n < s->n_positions ? n : s->n_positions);
}

/* Whether n positions can be evaluated from `position` on. */
static enum reel_status check_positions(const struct backend_state *s, int position, int n,
                                        struct reel_error *err) {
    if (position < 0 || position > s->n_positions)
        return err_set(err, REEL_E_STATE, "position %d is past the %d evaluated", position,
                       s->n_positions);
    if (n < 1 || n > s->max_positions - position)
        return err_set(err, REEL_E_CONTEXT, "%d positions at %d, the session holds %d", n, position,
                       s->max_positions);
    if (cpu_resume(s, position) != position)
        return err_set(err, REEL_E_STATE,
                       "the recurrent state of position %d is gone; that of %d is held", position,
                       cpu_resume(s, position));
    return REEL_OK;
}

/* ---- guesses of the draft layer ---- */

static enum reel_status cpu_guess_begin(struct backend_state *s, struct reel_error *err) {
    if (s->drafts) return REEL_OK;
    if (!s->backend->draft_layer)
        return err_set(err, REEL_E_UNSUPPORTED, "no draft layer runs on the CPU's path \"%s\"",
                       s->reference ? "reference" : s->backend->engine.kernels.name);
    return draft_state_open(&s->drafts, s->backend->draft_layer, s->max_positions, err);
}

static int cpu_guess(struct backend_state *s, int position, int32_t id, int32_t *ids, int most,
                     float *logits) {
    return s->drafts ? draft_state_guess(s->drafts, position, id, ids, most, logits) : 0;
}

static void forget(const struct backend_state *s) {
    if (s->drafts) draft_state_forget(s->drafts);
}

static float *hidden_of(const struct backend_state *s, int position) {
    return s->drafts ? draft_state_hidden(s->drafts, position) : NULL;
}

static void saw(const struct backend_state *s, int position, const int32_t *ids, int n) {
    if (s->drafts) draft_state_saw(s->drafts, position, ids, n);
}

static enum reel_status eval_at_once(struct backend_state *s, const struct backend_eval *eval,
                                     struct reel_error *err) {
    if (s->reference) return ref_state_eval(s->reference, eval, err);
    enum reel_status status = check_positions(s, eval->position, eval->n, err);
    if (status != REEL_OK) return status;
    if (eval->n > 1) delta_drafts_pay(&s->backend->engine, &s->recurrent, eval->position);
    recurrent_begin(&s->recurrent, eval->position, eval->n);
    s->n_positions = eval->position;
    for (int done = 0; done < eval->n;) {
        int n = eval->n - done < T_CHUNK ? eval->n - done : T_CHUNK;
        struct engine_run run = run_of(s, eval, done, n);
        run.hidden = hidden_of(s, run.position);
        bool go_on = may_go_on(eval, done);
        if (go_on) {
            kv_cache_begin(s->kv, run.position, run.position + n);
            recurrent_run_begin(&s->recurrent);
            engine_evaluate(&run);
        }
        if (!go_on || run.cancelled)
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done,
                           eval->n);
        recurrent_run_end(&s->recurrent, run.position, n);
        saw(s, run.position, run.ids, n);
        done += n;
        s->n_positions = eval->position + done;
    }
    return REEL_OK;
}

static enum reel_status cpu_eval(struct backend_state *s, const struct backend_eval *eval,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (!eval->decoded) return eval_at_once(s, eval, err);
    for (int i = 0; i < eval->n && status == REEL_OK; i++) {
        struct backend_eval one = *eval;
        const bool last = i == eval->n - 1;
        one.position += i, one.ids += i, one.n = 1;
        if (!last) one.output = REEL_OUTPUT_NONE;
        status = may_go_on(eval, i) ? eval_at_once(s, &one, err)
                                    : err_set(err, REEL_E_CANCELLED,
                                              "cancelled after %d of %d positions", i, eval->n);
    }
    return status;
}

/* ---- several states in one pass ---- */

/* A column of a step: where it is. */
struct going {
    struct backend_column *column;
    int position; /* of `id` */
    int32_t id;   /* not yet evaluated, or once more */
    int n_made;
    int n_drafts;
    int32_t drafts[MOST_COLUMNS]; /* [n_drafts] that take columns of this pass behind `id` */
};

static void end_column(struct backend_column *column, enum reel_status status) {
    column->over = true;
    column->status = status;
}

static void begin_column(struct going *g, struct backend_column *column) {
    const struct backend_decode *d = column->decode;
    *g = (struct going){ .column = column, .position = d->position, .id = d->id };
    column->over = false;
    column->status = REEL_OK;
    err_clear(&column->err);
    if (!column->state->reference)
        column->status = check_positions(column->state, d->position, 1, &column->err);
    if (column->status != REEL_OK || d->max_tokens < 1) column->over = true;
}

/* A draft has a place among the state's positions, and may be the last but one of the ids that are
 * wanted: what its column would give is the last. */
static int most_drafts(const struct going *g, int free) {
    const int room = g->column->state->max_positions - g->position - 1;
    const int wanted = g->column->decode->max_tokens - g->n_made - 1;
    const int most = room < wanted ? room : wanted;
    return most < free ? most : free;
}

/* Asks the columns in turn for drafts, as long as a pass has columns for them. */
static void take_drafts(const struct backend *b, struct going *going, int n) {
    int free = MOST_COLUMNS - n;
    for (int i = 0; i < n; i++) {
        struct going *g = &going[i];
        const struct backend_decode *d = g->column->decode;
        const int most = most_drafts(g, free);
        g->n_drafts = 0;
        if (!d->draft || !takes_drafts(b) || most < 1) continue;
        g->n_drafts = d->draft(d->user, g->drafts, most);
        free -= g->n_drafts;
    }
}

/* Of a pass: behind the id, or behind draft i - 1. */
static float *logits_behind(const struct backend_state *s, int i) {
    return s->logits + (size_t)i * (size_t)s->backend->model->config.vocab;
}

/* The logits behind every column's id and its drafts. The states then end behind their ids. */
static void run_pass(struct backend *b, struct going *going, int n) {
    struct engine_run runs[MOST_COLUMNS];
    int n_runs = 0;
    take_drafts(b, going, n);
    for (int i = 0; i < n; i++) {
        struct going *g = &going[i];
        struct backend_state *s = g->column->state;
        kv_cache_begin(s->kv, g->position, g->position + 1 + g->n_drafts);
        recurrent_begin(&s->recurrent, g->position, 1);
        recurrent_run_begin(&s->recurrent);
        float *hidden = hidden_of(s, g->position);
        const size_t width = s->drafts ? draft_state_width(s->drafts) : 0;
        for (int j = 0; j <= g->n_drafts; j++) {
            runs[n_runs] =
                (struct engine_run){ .engine = &b->engine,
                                     .kv = s->kv,
                                     .recurrent = &s->recurrent,
                                     .position = g->position + j,
                                     .n = 1,
                                     .row = n_runs,
                                     .n_drafts = j == 0 ? g->n_drafts : 0,
                                     .nth_draft = j,
                                     .ids = j == 0 ? &g->id : &g->drafts[j - 1],
                                     .output = REEL_OUTPUT_LAST_LOGITS,
                                     .out = logits_behind(s, j),
                                     .hidden = hidden ? hidden + (size_t)j * width : NULL };
            n_runs++;
        }
    }
    engine_decode(&(struct engine_pass){ .columns = runs, .n = n_runs, .consecutive = n_runs > n });
    for (int i = 0; i < n; i++) {
        struct backend_state *s = going[i].column->state;
        recurrent_run_end(&s->recurrent, going[i].position, 1);
        s->n_positions = going[i].position + 1;
    }
}

/* The reference has no passes: its states are evaluated one after the other. */
static void run_one_by_one(struct going *going, int n) {
    for (int i = 0; i < n; i++) {
        struct backend_column *column = going[i].column;
        const struct backend_eval eval = { .position = going[i].position,
                                           .n = 1,
                                           .ids = &going[i].id,
                                           .output = REEL_OUTPUT_LAST_LOGITS,
                                           .out = column->state->logits };
        const enum reel_status status =
            ref_state_eval(column->state->reference, &eval, &column->err);
        if (status != REEL_OK) end_column(column, status);
    }
}

static bool is_stop_id(const struct backend_decode *d, int32_t id) {
    for (int i = 0; i < d->n_stop_ids; i++)
        if (d->stop_ids[i] == id) return true;
    return false;
}

/* Draws a column's next id from these logits and hands it out. */
static void deliver(struct going *g, const float *logits) {
    struct backend_column *column = g->column;
    const struct backend_decode *d = column->decode;
    const int32_t id = d->draw(d->user, logits, g->position + 1);
    if (id < 0) {
        end_column(column,
                   err_set(&column->err, REEL_E_DEVICE,
                           "no id can be drawn for position %d: each logit is NaN or forbidden",
                           g->position + 1));
        return;
    }
    g->id = id;
    g->position++;
    g->n_made++;
    const bool enough = d->enough && d->enough(d->user);
    if (!d->on_id(d->user, id) || enough || is_stop_id(d, id) || g->n_made == d->max_tokens ||
        g->position == column->state->max_positions)
        end_column(column, REEL_OK);
}

/* The ids of a pass: those behind a draft only if it is what was drawn in its place. Its keys and
 * values are those of that id then. */
static void deliver_pass(struct going *g) {
    struct backend_state *s = g->column->state;
    const int position = g->position;
    const int32_t id = g->id;
    int n_right = 0;
    deliver(g, logits_behind(s, 0));
    for (int i = 0; i < g->n_drafts && !g->column->over && g->id == g->drafts[i]; i++) {
        s->n_positions++;
        n_right++;
        deliver(g, logits_behind(s, i + 1));
    }
    delta_drafts_keep(&s->backend->engine, &s->recurrent, n_right);
    if (!s->drafts) return;
    int32_t ids[MOST_COLUMNS] = { id };
    memcpy(ids + 1, g->drafts, (size_t)n_right * sizeof *ids);
    draft_state_saw(s->drafts, position, ids, 1 + n_right);
}

static bool is_cancelled(const struct going *g) {
    const struct backend_decode *d = g->column->decode;
    if (!d->cancel || !atomic_load(d->cancel)) return false;
    end_column(g->column, err_set(&g->column->err, REEL_E_CANCELLED, "cancelled"));
    return true;
}

static bool some_is_over(const struct going *going, int n) {
    for (int i = 0; i < n; i++)
        if (going[i].column->over) return true;
    return false;
}

/* The thread pool is left after each pass: that costs a microsecond, and prompts of other sessions
 * get in between. */
static void cpu_step(struct backend *b, const struct backend_batch *batch) {
    struct going going[MOST_COLUMNS];
    for (int i = 0; i < batch->n; i++)
        begin_column(&going[i], &batch->columns[i]);
    while (!some_is_over(going, batch->n)) {
        bool cancelled = false;
        for (int i = 0; i < batch->n; i++)
            cancelled = is_cancelled(&going[i]) || cancelled;
        if (cancelled) return;
        if (b->reference)
            run_one_by_one(going, batch->n);
        else
            run_pass(b, going, batch->n);
        for (int i = 0; i < batch->n; i++)
            if (!going[i].column->over) deliver_pass(&going[i]);
        if (batch->enough && batch->enough(batch->user)) return;
    }
}

/* ---- several texts in one pass ---- */

/* How far the texts of a pass have been given to runs. */
struct packing {
    const struct backend_embed *embed;
    int hidden;
    int text; /* the next one */
    int at;   /* positions of it that earlier runs had: above 0 only for one longer than a run */
    size_t before; /* ids of the texts before it */
};

static int up_to_panels(int n) { return (n + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES; }

/* Fills texts [T_CHUNK] with those of the next run: as many as fit whole, or a part of one that is
 * longer than a run. Each begins at a panel of the cache, so that its sums are those it would have
 * alone. */
static struct engine_run next_run(struct packing *p, struct run_text *texts, int max_positions) {
    const struct backend_embed *embed = p->embed;
    struct engine_run run = { .ids = embed->ids + p->before + p->at, .texts = texts };
    int slot = 0;
    while (p->text < embed->n_texts) {
        const int length = embed->lengths[p->text], left = length - p->at;
        const bool fits = left <= T_CHUNK - run.n && length <= max_positions - slot;
        if (!fits && run.n > 0) break;
        const int n = left < T_CHUNK - run.n ? left : T_CHUNK - run.n;
        texts[run.n_texts++] = (struct run_text){
            .row = run.n,
            .n = n,
            .position = p->at,
            .slot = slot,
            .out = n == left ? embed->out + (size_t)p->text * (size_t)p->hidden : NULL,
        };
        run.n += n;
        p->at += n;
        if (n < left) break;
        slot += up_to_panels(length);
        p->before += (size_t)length;
        p->at = 0;
        p->text++;
    }
    return run;
}

static bool may_go_on_embedding(const struct backend_embed *embed, int done, int all) {
    if (embed->cancel && atomic_load(embed->cancel)) return false;
    return !embed->progress ||
           embed->progress(embed->progress_user, "embedding", (uint64_t)done, (uint64_t)all);
}

static enum reel_status embed_texts(struct backend_state *s, const struct backend_embed *embed,
                                    struct reel_error *err) {
    const struct model_config *c = &s->backend->model->config;
    struct packing packing = { .embed = embed, .hidden = c->hidden };
    struct run_text texts[T_CHUNK];
    int all = 0;
    if (s->reference || model_layer_count(c, LAYER_DELTA) > 0)
        return err_set(err, REEL_E_UNSUPPORTED, "%s takes one text at a time",
                       s->reference ? "the reference" : "a model with recurrent layers");
    s->n_positions = 0;
    forget(s);
    kv_cache_begin(s->kv, 0, s->max_positions);
    for (int i = 0; i < embed->n_texts; i++)
        all += embed->lengths[i];
    for (int done = 0; done < all;) {
        struct engine_run run = next_run(&packing, texts, s->max_positions);
        run.engine = &s->backend->engine;
        run.kv = s->kv;
        run.cancel = embed->cancel;
        const bool go_on = may_go_on_embedding(embed, done, all);
        if (go_on) engine_evaluate(&run);
        if (!go_on || run.cancelled)
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done, all);
        done += run.n;
    }
    return REEL_OK;
}

static void cpu_keep(struct backend_state *s, int n) {
    if (!s->reference) kv_cache_keep(s->kv, n);
    if (s->drafts) draft_state_keep(s->drafts, n);
}

static size_t cpu_save_bytes(const struct backend_state *s, int n) {
    if (s->reference) return ref_state_save_bytes(s->reference, n);
    return kv_cache_save_bytes(s->kv, n) + recurrent_save_bytes(&s->recurrent, n);
}

static enum reel_status is_held(const struct backend_state *s, int n, struct reel_error *err) {
    if (n >= 0 && cpu_resume(s, n) == n) return REEL_OK;
    return err_set(err, REEL_E_STATE, "%d positions asked for, %d are held", n,
                   n < 0 ? 0 : cpu_resume(s, n));
}

/* bytes may lie anywhere, a state that is worked on not. */
static enum reel_status save_recurrent(const struct backend_state *s, int n, void *bytes,
                                       struct reel_error *err) {
    const struct recurrent *r = &s->recurrent;
    float *values = NULL;
    enum reel_status status = REEL_OK;
    if (recurrent_owed_before(r, n) == 0) {
        recurrent_save(r, n, bytes);
        return status;
    }
    status = mem_zeroed(&values, r->floats, sizeof *values, "a copy of the recurrent state", err);
    if (status != REEL_OK) return status;
    recurrent_save(r, n, values);
    delta_drafts_pay_copy(&s->backend->engine, r, n, values);
    memcpy(bytes, values, recurrent_save_bytes(r, n));
    mem_free(values);
    return status;
}

static enum reel_status cpu_save(const struct backend_state *s, int n, void *bytes,
                                 struct reel_error *err) {
    if (s->reference) return ref_state_save(s->reference, n, bytes, err);
    enum reel_status status = is_held(s, n, err);
    if (status != REEL_OK) return status;
    kv_cache_save(s->kv, n, bytes);
    return save_recurrent(s, n, (char *)bytes + kv_cache_save_bytes(s->kv, n), err);
}

static enum reel_status fits(const struct backend_state *s, int n, struct reel_error *err) {
    if (n >= 0 && n <= s->max_positions) return REEL_OK;
    return err_set(err, REEL_E_CONTEXT, "%d positions, the session holds %d", n, s->max_positions);
}

static enum reel_status cpu_restore(struct backend_state *s, int n, const void *bytes,
                                    size_t n_bytes, struct reel_error *err) {
    if (s->reference) return ref_state_restore(s->reference, n, bytes, n_bytes, err);
    enum reel_status status = fits(s, n, err);
    if (status != REEL_OK) return status;
    if (n_bytes != cpu_save_bytes(s, n))
        return err_set(err, REEL_E_FORMAT, "%zu bytes of state, %zu are expected", n_bytes,
                       cpu_save_bytes(s, n));
    kv_cache_load(s->kv, n, bytes);
    forget(s);
    recurrent_load(&s->recurrent, n, (const char *)bytes + kv_cache_save_bytes(s->kv, n));
    s->n_positions = n;
    return REEL_OK;
}

static enum reel_status copy_through_bytes(struct backend_state *dst,
                                           const struct backend_state *src, int n,
                                           struct reel_error *err) {
    void *bytes = NULL;
    size_t n_bytes = cpu_save_bytes(src, n);
    enum reel_status status = mem_zeroed(&bytes, n_bytes, 1, "a copy of a session", err);
    if (status == REEL_OK) status = cpu_save(src, n, bytes, err);
    if (status == REEL_OK) status = cpu_restore(dst, n, bytes, n_bytes, err);
    mem_free(bytes);
    return status;
}

static enum reel_status cpu_copy(struct backend_state *dst, const struct backend_state *src, int n,
                                 struct reel_error *err) {
    if (dst->reference || src->reference) return copy_through_bytes(dst, src, n, err);
    enum reel_status status = fits(dst, n, err);
    if (status != REEL_OK) return status;
    status = is_held(src, n, err);
    if (status != REEL_OK || dst == src) return status;
    forget(dst);
    kv_cache_copy(dst->kv, src->kv, src->n_positions, n);
    recurrent_copy(&dst->recurrent, &src->recurrent, n);
    delta_drafts_pay_copy(&src->backend->engine, &src->recurrent, n, dst->recurrent.live);
    dst->n_positions = n;
    return REEL_OK;
}

/* ---- the audio tower ---- */

struct audio_tower {
    struct encoder *encoder;
};

static void tower_close(struct audio_tower *tower) {
    if (!tower) return;
    encoder_close(tower->encoder);
    mem_free(tower);
}

/* With the instructions, threads and rounding of the backend. */
static enum reel_status tower_open(struct audio_tower **out, const struct model *model,
                                   struct backend *b, struct reel_error *err) {
    struct audio_tower *tower = NULL;
    struct encoder_options options = { .rounding = REEL_ROUNDING_FAST };
    *out = NULL;
    if (b) {
        struct backend_info info;
        cpu_info(b, &info);
        options.cpu_path = info.path;
        options.n_threads = info.n_threads;
        options.rounding = b->asked;
    }
    enum reel_status status = mem_zeroed(&tower, 1, sizeof *tower, "an audio tower", err);
    if (status != REEL_OK) return status;
    status =
        encoder_open(&tower->encoder, &model->config.audio, &model->weights.audio, &options, err);
    if (status == REEL_OK)
        *out = tower;
    else
        tower_close(tower);
    return status;
}

static enum reel_status tower_run(struct audio_tower *tower, const float *features, int n_frames,
                                  float *out, struct reel_error *err) {
    return encoder_run(tower->encoder, features, n_frames, out, err);
}

const struct audio_tower_ops cpu_tower = {
    .name = "cpu", .open = tower_open, .run = tower_run, .close = tower_close
};

const struct backend_ops cpu_backend = {
    .name = "cpu",
    .machine = &cpu_machine,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .state_open = cpu_state_open,
    .state_close = cpu_state_close,
    .eval = cpu_eval,
    .step = cpu_step,
    .guess_begin = cpu_guess_begin,
    .guess = cpu_guess,
    .embed = embed_texts,
    .resume = cpu_resume,
    .keep = cpu_keep,
    .save_bytes = cpu_save_bytes,
    .save = cpu_save,
    .restore = cpu_restore,
    .copy = cpu_copy,
    .tower = &cpu_tower,
};
