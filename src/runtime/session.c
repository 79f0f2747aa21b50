#include "runtime/session.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/struct_size.h"
#include "plan/memory_plan.h"
#include "runtime/guesses.h"

#include <string.h>
#include <time.h>

/* Positions per backend call, or as many as the backend does best at once: what a cancelled or
 * failed sync has evaluated so far is kept in steps of this. */
#define SESSION_CHUNK 512

/* ---- opening ---- */

static uint64_t memory_available(const struct reel_model *model) {
    return model->ops->memory_available ? model->ops->memory_available(model->backend)
                                        : machine_memory_available();
}

/* Positions for which memory is left, where a draft model on the same kind of device has as many.
 */
static int fitting_context(const struct reel_model *model, const struct reel_model *draft) {
    const struct backend_info *own = &model->backend_info;
    size_t fixed = own->state_fixed_bytes, position = own->state_position_bytes;
    if (draft && draft->ops == model->ops) {
        fixed += draft->backend_info.state_fixed_bytes;
        position += draft->backend_info.state_position_bytes;
    }
    return memory_plan_context(model->model.config.max_context, fixed, position,
                               memory_available(model));
}

static enum reel_status choose_context(const struct reel_model *model,
                                       const struct reel_session_options *options, int *context,
                                       struct reel_error *err) {
    int most = model->model.config.max_context;
    if (options->max_context < 0 || options->max_context > most)
        return err_set(err, REEL_E_ARGUMENT,
                       "max_context is %d; %s allows 1 to %d, or 0 for what fits in memory",
                       options->max_context, model->model.name ? model->model.name : "the model",
                       most);
    *context = options->max_context;
    if (*context == 0) *context = fitting_context(model, options->draft_model);
    return REEL_OK;
}

static enum reel_status session_allocate(struct reel_session *s,
                                         const struct reel_session_options *options,
                                         struct reel_error *err) {
    const struct reel_model *model = s->model;
    size_t vocab = (size_t)model->model.config.vocab, n = (size_t)s->max_context;
    enum reel_status status = mem_zeroed(&s->ids, n, sizeof *s->ids, "a session's ids", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->logits, vocab, sizeof *s->logits, "a session's logits", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->next_logits, vocab, sizeof *s->logits, "a session's logits", err);
    if (status == REEL_OK) status = sampler_open(&s->sampler, (int)vocab, err);
    if (status == REEL_OK)
        status = generation_open(&s->generation, model->max_token_bytes,
                                 model->backend_info.drafts ? s->max_context : 0, err);
    if (status == REEL_OK)
        status = model->ops->state_open(&s->state, model->backend, s->max_context, err);
    if (status == REEL_OK) status = guesses_follow(s, options->speculation, err);
    if (status == REEL_OK && options->draft_model && model->backend_info.drafts)
        status = draft_session_open(&s->draft, model, options->draft_model, s->max_context, err);
    if (status == REEL_OK && options->speculation == REEL_SPECULATION_DRAFT)
        status = guesses_check_model(s, err);
    return status;
}

enum reel_status reel_session_open(struct reel_session **out, const struct reel_model *model,
                                   const struct reel_session_options *given,
                                   struct reel_error *err) {
    struct reel_session_options options;
    struct reel_session *s = NULL;
    int context = 0;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out model", (const void *const[]){ out, model });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_session_options", err);
    if (status == REEL_OK) status = model_handle_is_here(model, err);
    if (status == REEL_OK && options.draft_model)
        status = model_handle_is_here(options.draft_model, err);
    if (status == REEL_OK) status = guesses_check_kind(options.speculation, err);
    if (status == REEL_OK) status = choose_context(model, &options, &context, err);
    if (status == REEL_OK) status = mem_zeroed(&s, 1, sizeof *s, "a session", err);
    if (status != REEL_OK) return status;
    s->model = model;
    s->max_context = context;
    s->progress = options.progress;
    s->progress_user = options.progress_user;
    atomic_init(&s->cancel, false);
    status = session_allocate(s, &options, err);
    if (status != REEL_OK) {
        reel_session_close(s);
        return status;
    }
    *out = s;
    return REEL_OK;
}

void reel_session_close(struct reel_session *s) {
    if (!s) return;
    generation_close(&s->generation);
    draft_session_close(s->draft);
    if (s->state) s->model->ops->state_close(s->state);
    sampler_close(s->sampler);
    mem_free(s->next_logits);
    mem_free(s->logits);
    mem_free(s->ids);
    mem_free(s);
}

int reel_session_length(const struct reel_session *s) { return s ? s->length : 0; }
int reel_session_max_context(const struct reel_session *s) { return s ? s->max_context : 0; }
const int32_t *reel_session_ids(const struct reel_session *s) { return s ? s->ids : NULL; }

/* ---- cancelling ---- */

void reel_session_cancel(struct reel_session *s) {
    if (!s) return;
    atomic_store(&s->cancel, true);
    draft_session_cancel(s->draft);
}
void session_begin(struct reel_session *s) {
    atomic_store(&s->cancel, false);
    draft_session_uncancel(s->draft);
}
bool session_cancelled(const struct reel_session *s) { return atomic_load(&s->cancel); }

enum reel_status session_idle(const struct reel_session *s, struct reel_error *err) {
    if (!s) return err_set(err, REEL_E_ARGUMENT, "session is NULL");
    if (s->reporting)
        return err_set(err, REEL_E_STATE,
                       "a call is running on this session; its progress callback may only look at "
                       "the session and cancel");
    if (!s->generation.active) return model_handle_is_here(s->model, err);
    return err_set(err, REEL_E_STATE,
                   "a generation is open on this session; end it with reel_generation_finish");
}

/* ---- evaluating ---- */

static enum reel_status check_ids(const struct reel_session *s, const int32_t *ids, int n,
                                  struct reel_error *err) {
    int vocab = s->model->model.config.vocab;
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return err_set(err, REEL_E_ARGUMENT, "id %d of the list is %d; ids are 0 to %d", i,
                           (int)ids[i], vocab - 1);
    return REEL_OK;
}

static void take_logits(struct reel_session *s) {
    float *old = s->logits;
    s->logits = s->next_logits;
    s->next_logits = old;
    s->has_logits = true;
}

enum reel_status session_take_turn(struct reel_session *s, struct reel_error *err) {
    return turn_take(&s->turn, s->model->turns, &s->cancel, err);
}

/* A backend counts the positions of one evaluation; the caller hears of its whole call. */
bool session_report(struct reel_session *s, const char *stage, uint64_t done) {
    s->reporting = true;
    turn_lend(&s->turn);
    bool go_on = s->progress(s->progress_user, stage, (uint64_t)s->progress_done + done,
                             (uint64_t)s->progress_total);
    if (!turn_resume(&s->turn)) go_on = false;
    s->reporting = false;
    return go_on;
}

bool session_between_texts(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct reel_session *s = user;
    (void)stage, (void)done, (void)total;
    return turn_pass(&s->turn);
}

/* A generation reports nothing: its tokens do. */
bool session_between(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct reel_session *s = user;
    (void)total;
    if (!turn_pass(&s->turn)) return false;
    return !s->progress || s->generation.active || session_report(s, stage, done);
}

/* Those who decode put their passes into the queue behind it. */
static void session_queued(void *user) { turn_hand_on(&((struct reel_session *)user)->turn); }

/* There was no memory for an evaluation. While others compute, who may give some back, it is worth
 * another try; what this session has taken for the try before is theirs meanwhile. */
static bool memory_may_come(struct reel_session *s, int position, double since_ms) {
    enum { LONGEST_MS = 5000, PAUSE_MS = 5 };
    const struct timespec pause = { 0, PAUSE_MS * 1000000L };
    if (!s->model->ops->keep || clock_ms() - since_ms > LONGEST_MS) return false;
    s->model->ops->keep(s->state, position);
    turn_give(&s->turn);
    nanosleep(&pause, NULL);
    if (turn_take(&s->turn, s->model->turns, &s->cancel, NULL) != REEL_OK) return false;
    return turns_are_shared(s->model->turns); /* it has had to wait for its turn, or another has */
}

/* One call of the backend. */
static enum reel_status run_eval(struct reel_session *s, struct backend_eval *eval,
                                 struct reel_error *err) {
    const double start = clock_ms();
    eval->cancel = &s->cancel;
    eval->progress = session_between;
    eval->queued = session_queued;
    eval->progress_user = s;
    enum reel_status status = session_take_turn(s, err);
    if (status != REEL_OK) return status;
    do
        status = s->model->ops->eval(s->state, eval, err);
    while (status == REEL_E_MEMORY && memory_may_come(s, eval->position, start));
    if (status == REEL_E_MEMORY && session_cancelled(s))
        status = err_set(err, REEL_E_CANCELLED, "cancelled while it waited for memory");
    s->turn_ms = clock_ms() - s->turn.since_ms;
    turn_give(&s->turn);
    if (status == REEL_OK) s->progress_done += eval->n;
    return status;
}

int session_resume_at(const struct reel_session *s, int n) {
    return s->model->ops->resume ? s->model->ops->resume(s->state, n) : n;
}

/* Positions first to end - 1 can be evaluated again when none was given as an embedding. */
static enum reel_status check_again(const struct reel_session *s, int first, int end,
                                    struct reel_error *err) {
    for (int i = first; i < end; i++)
        if (s->ids[i] < 0)
            return err_set(err, REEL_E_STATE,
                           "position %d was given as an embedding and would have to be evaluated "
                           "again, as this model goes back to some positions only",
                           i);
    return REEL_OK;
}

void session_start_progress(struct reel_session *s, int total) {
    s->progress_done = 0;
    s->progress_total = total;
}

/* Positions of the next evaluation, where one that is alone would take `n`. Beside other sessions,
 * and where pieces give the same bits, as many as took about a turn the last time. */
static int piece_of(const struct reel_session *s, int n) {
    const int step = s->model->backend_info.cut_step, piece = s->piece ? s->piece : step;
    return step == 0 || piece + 2 > n || !turns_are_shared(s->model->turns) ? n : piece;
}

/* Where prompts are read in slices: as many of n positions from `at` on as lie before a cut. */
static int up_to_cut(const struct reel_session *s, int at, int n) {
    const int slice = s->model->prompt_slice;
    return slice > 0 && slice - at % slice < n ? slice - at % slice : n;
}

static void judge_piece(struct reel_session *s, int n) {
    const int step = s->model->backend_info.cut_step;
    const double fits = s->turn_ms > 0 ? n * TURN_MS / s->turn_ms : SESSION_CHUNK;
    const int most = fits < SESSION_CHUNK ? (int)fits : SESSION_CHUNK;
    if (step && n >= step) s->piece = most < step ? step : most - most % step;
}

/* The same among positions that are evaluated once more: those that were read at once, then those
 * that were decoded. */
static int piece_again(const struct reel_session *s, int n, bool *decoded) {
    const int read = s->read_to - s->n_evaluated, again = s->again_to - s->n_evaluated;
    *decoded = read <= 0;
    const int most = *decoded ? again : read;
    return most < n ? most : n;
}

/* Evaluates ids[n_evaluated, end); with the logits of the last one when `logits`. */
static enum reel_status evaluate_to(struct reel_session *s, int end, bool logits,
                                    struct reel_error *err) {
    const int best = s->model->backend_info.eval_positions;
    const int most = s->model->prompt_slice > 0 ? end : best > 0 ? best : SESSION_CHUNK;
    int chunk_end = s->n_evaluated;
    while (s->n_evaluated < end) {
        if (s->n_evaluated == chunk_end)
            chunk_end += end - chunk_end < most ? end - chunk_end : most;
        int n = s->model->prompt_slice > 0
                    ? up_to_cut(s, s->n_evaluated, chunk_end - s->n_evaluated)
                    : piece_of(s, chunk_end - s->n_evaluated);
        bool decoded = false;
        if (s->n_evaluated < s->again_to) n = piece_again(s, n, &decoded);
        bool want = logits && s->n_evaluated + n == end;
        if (session_cancelled(s)) return err_set(err, REEL_E_CANCELLED, "cancelled");
        struct backend_eval eval = { .position = s->n_evaluated,
                                     .n = n,
                                     .ids = s->ids + s->n_evaluated,
                                     .decoded = decoded,
                                     .output = want ? REEL_OUTPUT_LAST_LOGITS : REEL_OUTPUT_NONE,
                                     .out = want ? s->next_logits : NULL };
        enum reel_status status = run_eval(s, &eval, err);
        if (status != REEL_OK) {
            s->n_evaluated = session_resume_at(s, s->n_evaluated);
            return status;
        }
        if (n > 1 && !decoded) s->read_from = s->n_evaluated, s->read_to = s->n_evaluated + n;
        s->n_evaluated += n;
        if (!decoded) judge_piece(s, n);
        if (want) take_logits(s);
    }
    return REEL_OK;
}

enum reel_status session_need_logits(struct reel_session *s, struct reel_error *err) {
    if (s->has_logits) return REEL_OK;
    if (s->length == 0)
        return err_set(err, REEL_E_STATE, "the session is empty; give it a prompt first");
    if (s->n_evaluated == s->length) {
        if (s->ids[s->length - 1] < 0)
            return err_set(
                err, REEL_E_STATE,
                "position %d was given as an embedding and its logits are gone; evaluate "
                "it again, asking for logits",
                s->length - 1);
        int first = session_resume_at(s, s->length - 1);
        enum reel_status status = check_again(s, first, s->length, err);
        if (status != REEL_OK) return status;
        if (s->again_to < s->length) s->again_to = s->length;
        s->n_evaluated = first;
    }
    return evaluate_to(s, s->length, true, err);
}

void session_append(struct reel_session *s, int32_t id) {
    s->ids[s->length++] = id;
    s->has_logits = false;
}

void session_go_back(struct reel_session *s) {
    const int from = s->read_from;
    int at = session_resume_at(s, s->n_evaluated);
    if (at < s->n_evaluated) {
        if (s->again_to < s->n_evaluated) s->again_to = s->n_evaluated;
        if (from < at && at < s->read_to && session_resume_at(s, from) == from &&
            check_again(s, from, s->read_to, NULL) == REEL_OK)
            at = from;
    }
    s->n_evaluated = at;
}

void session_keep_prefix(struct reel_session *s, int n) {
    if (s->read_from > n) s->read_from = n;
    if (s->read_to > n) s->read_to = n;
    if (s->again_to > n) s->again_to = n;
    draft_session_keep(s->draft, n);
    if (n == s->length) return;
    s->length = n;
    if (s->n_evaluated > n) s->n_evaluated = session_resume_at(s, n);
    if (s->model->ops->keep) s->model->ops->keep(s->state, n);
    s->has_logits = false;
}

/* ---- the timeline ---- */

enum reel_status session_hold(struct reel_session *s, const int32_t *ids, int n_ids, int *n_reused,
                              struct reel_error *err) {
    int common = 0;
    while (common < n_ids && common < s->length && s->ids[common] == ids[common])
        common++;
    session_keep_prefix(s, common);
    if (n_reused) *n_reused = s->n_evaluated;
    /* ids may be this session's own list */
    if (n_ids > common)
        memmove(s->ids + common, ids + common, (size_t)(n_ids - common) * sizeof *ids);
    session_start_progress(s, n_ids - s->n_evaluated);
    /* a backend that draws ids itself goes on without logits; who wants them asks for them later */
    const bool logits = !s->model->ops->decode;
    const enum reel_status status = evaluate_to(s, n_ids, logits, err);
    if (n_ids > common) s->has_logits = logits && status == REEL_OK;
    s->length = status == REEL_OK ? n_ids : s->n_evaluated > common ? s->n_evaluated : common;
    return status;
}

enum reel_status reel_session_sync(struct reel_session *s, const int32_t *ids, int n_ids,
                                   int *n_reused, struct reel_error *err) {
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status != REEL_OK) return status;
    if (n_ids < 0 || (n_ids > 0 && !ids))
        return err_set(err, REEL_E_ARGUMENT, "n_ids is %d with %s list", n_ids, ids ? "a" : "no");
    if (n_ids > s->max_context)
        return err_set(err, REEL_E_CONTEXT, "%d ids do not fit in a context of %d", n_ids,
                       s->max_context);
    status = check_ids(s, ids, n_ids, err);
    if (status != REEL_OK) return status;
    session_begin(s);
    return session_hold(s, ids, n_ids, n_reused, err);
}

enum reel_status reel_session_truncate(struct reel_session *s, int n, struct reel_error *err) {
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status != REEL_OK) return status;
    if (n < 0 || n > s->length)
        return err_set(err, REEL_E_ARGUMENT, "cannot keep %d tokens; the session holds %d", n,
                       s->length);
    if (n < s->n_evaluated) status = check_again(s, session_resume_at(s, n), n, err);
    if (status == REEL_OK) session_keep_prefix(s, n);
    return status;
}

/* Floats that `output` writes for n positions; false when that does not fit in size_t. */
static bool output_floats(const struct reel_session *s, enum reel_output output, int n,
                          size_t *floats) {
    size_t vocab = (size_t)s->model->model.config.vocab;
    size_t hidden = (size_t)s->model->model.config.hidden;
    *floats = 0;
    switch (output) {
    case REEL_OUTPUT_NONE:
        return true;
    case REEL_OUTPUT_LAST_LOGITS:
        *floats = vocab;
        return true;
    case REEL_OUTPUT_ALL_LOGITS:
        return size_mul(vocab, (size_t)n, floats);
    case REEL_OUTPUT_LAST_HIDDEN:
        *floats = hidden;
        return true;
    case REEL_OUTPUT_ALL_HIDDEN:
        return size_mul(hidden, (size_t)n, floats);
    }
    return false;
}

static enum reel_status check_eval(const struct reel_session *s, const struct reel_eval *eval,
                                   struct reel_error *err) {
    size_t floats = 0;
    if (eval->n < 1)
        return err_set(err, REEL_E_ARGUMENT, "n is %d; at least 1 position is evaluated", eval->n);
    if (!eval->ids == !eval->embeddings)
        return err_set(err, REEL_E_ARGUMENT, "%s ids and embeddings are given; give one of them",
                       eval->ids ? "both" : "neither");
    if (eval->n > s->max_context - s->length)
        return err_set(err, REEL_E_CONTEXT, "%d positions after %d do not fit in a context of %d",
                       eval->n, s->length, s->max_context);
    if (!output_floats(s, eval->output, eval->n, &floats))
        return err_set(err, REEL_E_ARGUMENT, "output is %d; it is none of enum reel_output",
                       (int)eval->output);
    const bool kept =
        eval->output == REEL_OUTPUT_LAST_LOGITS && !eval->out && eval->out_floats == 0;
    if (floats > 0 && !kept && (!eval->out || eval->out_floats < floats))
        return err_set(err, REEL_E_ARGUMENT, "out has room for %zu floats; this output has %zu",
                       eval->out ? eval->out_floats : 0, floats);
    return eval->ids ? check_ids(s, eval->ids, eval->n, err) : REEL_OK;
}

/* In slices where nothing is wanted of the positions before the last one. */
static enum reel_status run_in_slices(struct reel_session *s, const struct backend_eval *call,
                                      struct reel_error *err) {
    const bool whole =
        call->output == REEL_OUTPUT_ALL_LOGITS || call->output == REEL_OUTPUT_ALL_HIDDEN;
    const size_t hidden = (size_t)s->model->model.config.hidden;
    enum reel_status status = REEL_OK;
    for (int done = 0; done < call->n && status == REEL_OK;) {
        struct backend_eval part = *call;
        part.position += done;
        part.n = whole ? call->n : up_to_cut(s, part.position, call->n - done);
        if (part.ids) part.ids += done;
        if (part.embeddings) part.embeddings += (size_t)done * hidden;
        if (done + part.n < call->n) part.output = REEL_OUTPUT_NONE;
        status = run_eval(s, &part, err);
        done += part.n;
    }
    return status;
}

/* The backend's part of reel_session_eval: what was pending, then the new positions. */
static enum reel_status evaluate_new(struct reel_session *s, const struct reel_eval *eval,
                                     struct reel_error *err) {
    const bool own = eval->output == REEL_OUTPUT_LAST_LOGITS && !eval->out;
    struct backend_eval call = { .position = s->length,
                                 .n = eval->n,
                                 .ids = eval->ids,
                                 .embeddings = eval->embeddings,
                                 .output = eval->output,
                                 .out = own ? s->next_logits : eval->out };
    session_start_progress(s, s->length - s->n_evaluated + eval->n);
    enum reel_status status = evaluate_to(s, s->length, false, err);
    if (status != REEL_OK) return status;
    status = run_in_slices(s, &call, err);
    if (status != REEL_OK) {
        s->n_evaluated = session_resume_at(s, s->n_evaluated);
        return status;
    }
    size_t vocab = (size_t)s->model->model.config.vocab;
    const float *last = NULL;
    if (eval->output == REEL_OUTPUT_LAST_LOGITS && !own) last = eval->out;
    if (eval->output == REEL_OUTPUT_ALL_LOGITS) last = eval->out + vocab * (size_t)(eval->n - 1);
    if (last) memcpy(s->next_logits, last, vocab * sizeof *last);
    s->has_logits = false;
    if (last || own) take_logits(s);
    return REEL_OK;
}

enum reel_status reel_session_eval(struct reel_session *s, const struct reel_eval *given,
                                   struct reel_error *err) {
    struct reel_eval eval;
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status == REEL_OK) status = err_if_null(err, "eval", (const void *const[]){ given });
    if (status == REEL_OK) status = struct_read(&eval, sizeof eval, given, "reel_eval", err);
    if (status == REEL_OK) status = check_eval(s, &eval, err);
    if (status != REEL_OK) return status;
    session_begin(s);
    status = evaluate_new(s, &eval, err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < eval.n; i++)
        s->ids[s->length + i] = eval.ids ? eval.ids[i] : -1;
    if (eval.n > 1) s->read_from = s->length, s->read_to = s->length + eval.n;
    s->length += eval.n;
    s->n_evaluated = s->length;
    return REEL_OK;
}
