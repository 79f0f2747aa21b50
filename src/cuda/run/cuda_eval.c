/* Positions that are given: launches, cut so that each is over soon; between launches others get
 * their turn. */
#include "cuda/run/cuda_eval.h"

#include "base/numbers.h"
#include "cuda/measure/cuda_prefill_timer.h"
#include "cuda/run/cuda_fault.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_prefill.h"
#include "cuda/run/cuda_recurrent.h"
#include "plan/plan_layout.h"

#include <string.h>

enum reel_status cuda_check_room(const struct backend_state *s, int position, int n,
                                 struct reel_error *err) {
    if (position < 0 || position > s->n_positions)
        return err_set(err, REEL_E_STATE, "position %d is past the %d evaluated", position,
                       s->n_positions);
    if (n < 1 || n > s->max_positions - position)
        return err_set(err, REEL_E_CONTEXT, "%d positions at %d, the session holds %d", n, position,
                       s->max_positions);
    return REEL_OK;
}

/* ---- given positions ---- */

struct output {
    bool logits, hidden, all;
    size_t width; /* floats of a row */
};

static struct output wanted_output(const struct backend_state *s, enum reel_output kind) {
    const struct model_config *c = &s->backend->model->config;
    struct output o = { 0 };
    o.logits = kind == REEL_OUTPUT_LAST_LOGITS || kind == REEL_OUTPUT_ALL_LOGITS;
    o.hidden = kind == REEL_OUTPUT_LAST_HIDDEN || kind == REEL_OUTPUT_ALL_HIDDEN;
    o.all = kind == REEL_OUTPUT_ALL_LOGITS || kind == REEL_OUTPUT_ALL_HIDDEN;
    o.width = (size_t)(o.logits ? c->vocab : c->hidden);
    return o;
}

/* Positions of the next launch. Where only the last one's output is wanted, the prefill kernel may
 * read them: *prefill. Decoding has left states on its way, and others wait for their turn while
 * positions are decoded once more. */
static int eval_chunk(struct backend_state *s, const struct backend_eval *eval,
                      const struct output *o, int done, bool *prefill) {
    /* a recurrent state is kept before the last position: a launch that decodes ends there */
    const bool stops = s->backend->plan.delta.n_layers > 0 && done < eval->n - 1;
    const int left = eval->n - done, most = int_min(cuda_launch_tokens(s->backend), GPU_MOST_GIVEN);
    enum { TURN_TOKENS = 4 };
    const int due = CHECKPOINT_STEP - (eval->position + done) % CHECKPOINT_STEP;
    if (eval->decoded) return int_min(int_min(left, most), int_min(TURN_TOKENS, due));
    int n = o->all ? 0 : cuda_prefill_chunk(s->backend, eval->position + done, left);
    *prefill = n > 0;
    if (!*prefill) n = int_min(left - stops, most);
    if (o->all && s->out_floats / o->width < (size_t)n) n = (int)(s->out_floats / o->width);
    return n;
}

/* What the launch is given. Up to n_mapped ids are read out of mapped memory: cheaper than a copy.
 */
static enum reel_status give_positions(struct backend_state *s, const struct backend_eval *eval,
                                       int done, int n, int n_mapped, struct decode_args *args,
                                       struct reel_error *err) {
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const size_t hidden = (size_t)s->backend->model->config.hidden;
    args->n_tokens = args->n_given = n;
    if (!eval->ids) {
        enum reel_status status = cuda_state_need(s, GPU_GIVEN_EMBEDDINGS, &s->embeddings, err);
        if (status != REEL_OK) return status;
        args->embeddings = cuda_pointer(s->embeddings);
        if (!eval->embeddings) {
            args->embeddings += (size_t)done * hidden;
            if (s->given_biases)
                args->qkv_vectors += (size_t)(done * plan_bias_rows(&s->backend->plan));
            return REEL_OK;
        }
        return cuda_upload(gpu, s->embeddings, eval->embeddings + (size_t)done * hidden,
                           (size_t)n * hidden * sizeof(float), NULL, err);
    }
    if (n <= n_mapped) {
        memcpy(s->mapped.ids, eval->ids + done, (size_t)n * sizeof *eval->ids);
        args->ids = cuda_pointer(cuda_mapped_address(s, s->mapped.ids));
        return REEL_OK;
    }
    args->ids = cuda_pointer(s->ids);
    return cuda_upload(gpu, s->ids, eval->ids + done, (size_t)n * sizeof *eval->ids, NULL, err);
}

static void ask_for_output(const struct backend_state *s, const struct output *o, bool last,
                           struct decode_args *args) {
    const int n = args->n_tokens, from = o->all ? 0 : last ? n - 1 : n;
    args->head_from = o->logits ? from : n;
    args->hidden_from = o->hidden ? from : n;
    if (o->logits && from < n) args->logits = cuda_pointer(s->out);
    if (o->hidden && from < n) args->hidden = cuda_pointer(s->out);
}

static enum reel_status fetch_output(const struct backend_state *s, const struct backend_eval *eval,
                                     const struct output *o, int done, int n, bool last,
                                     struct reel_error *err) {
    size_t rows = o->all ? (size_t)n : last && (o->logits || o->hidden) ? 1 : 0;
    if (rows == 0) return REEL_OK;
    float *to = eval->out + (o->all ? (size_t)done * o->width : 0);
    if (rows == 1 && o->logits) { /* by way of pinned memory, which is several times as fast */
        const size_t bytes = o->width * sizeof(float);
        enum reel_status status =
            cuda_download(&s->backend->gpu, s->mapped.logits, s->out, bytes, NULL, err);
        if (status == REEL_OK && to != s->mapped.logits) memcpy(to, s->mapped.logits, bytes);
        return status;
    }
    return cuda_download(&s->backend->gpu, to, s->out, rows * o->width * sizeof(float), NULL, err);
}

static enum reel_status ended_early(const struct cuda_run *run, const struct backend_eval *eval,
                                    int done, int n_done, int n, struct reel_error *err) {
    if (eval->cancel && atomic_load(eval->cancel))
        return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done, eval->n);
    return err_set(err, REEL_E_DEVICE, "%s: %s ended after %d of %d positions",
                   run->state->backend->gpu.facts.name, cuda_kernel_name(run), n_done, n);
}

/* What was submitted is the last of the evaluation. Bytes that are fetched behind it would wait for
 * what others put into the queue meanwhile. */
static void tell_queued(const struct backend_eval *eval, const struct output *o, bool last) {
    if (last && !o->logits && !o->hidden && eval->queued) eval->queued(eval->progress_user);
}

/* n positions from `done` on, by the decode kernel. `from_last_row`: the only one has been through
 * the layers. */
static enum reel_status eval_by_decode_kernel(struct backend_state *s,
                                              const struct backend_eval *eval,
                                              const struct output *o, int done, int n,
                                              bool from_last_row, struct reel_error *err) {
    const bool last = done + n == eval->n;
    struct decode_args args;
    struct cuda_run run;
    cuda_args_start(s, &args);
    args.position = eval->position + done;
    enum reel_status status = cuda_recurrent_begin(s, &args.delta, err);
    if (status == REEL_OK) status = give_positions(s, eval, done, n, 1, &args, err);
    if (status != REEL_OK) return status;
    ask_for_output(s, o, last, &args);
    const bool taps = s->backend->plan.taps[0] > 0;
    const bool follows = s->drafts && (taps || !o->hidden) && !from_last_row;
    if (follows && taps) {
        args.taps = cuda_pointer(cuda_draft_hidden(s, args.position));
    } else if (follows) {
        args.hidden = cuda_pointer(cuda_draft_hidden(s, args.position));
        args.hidden_from = 0;
    }
    if (from_last_row) args.start = cuda_pointer(s->last_row);
    status = cuda_submit(&run, s, NULL, &args, err);
    if (status != REEL_OK) return status;
    tell_queued(eval, o, last);
    status = cuda_finish(&run, eval->cancel, err);
    if (status != REEL_OK) return status;
    const int n_done = (int)s->mapped.mailbox->n_evaluated;
    if (n_done != n) return ended_early(&run, eval, done, n_done, n, err);
    if (follows) cuda_draft_saw(s, args.position, eval->ids ? eval->ids + done : NULL, n, false);
    return fetch_output(s, eval, o, done, n, last, err);
}

/* The same by the prefill kernel. The decode kernel then makes the output of the last position: it
 * begins with what the layers made of it. */
static enum reel_status eval_by_prefill_kernels(struct backend_state *s,
                                                const struct backend_eval *eval,
                                                const struct output *o, int done, int n,
                                                struct reel_error *err) {
    const bool last = done + n == eval->n, outputs = last && (o->logits || o->hidden);
    struct prefill_args args;
    struct decode_args lm_head;
    struct cuda_run run;
    cuda_prefill_start(s, &args);
    args.decode.position = eval->position + done;
    const cu_address known = cuda_draft_hidden(s, args.decode.position);
    if (s->backend->plan.taps[0] > 0) args.decode.taps = cuda_pointer(known);
    enum reel_status status = cuda_recurrent_begin(s, &args.decode.delta, err);
    if (status != REEL_OK) return status;
    const int before_last = eval->position + eval->n - 1;
    const int kept = last ? cuda_recurrent_reserve_slot(s, before_last, eval->position, &args.delta)
                          : CHECKPOINT_NONE;
    status = give_positions(s, eval, done, n, GPU_MAPPED_IDS, &args.decode, err);
    if (status != REEL_OK) return status;
    cuda_args_start(s, &lm_head);
    lm_head.position = eval->position + done + n - 1;
    lm_head.n_tokens = lm_head.n_given = 1;
    lm_head.start = cuda_pointer(s->last_row);
    ask_for_output(s, o, last, &lm_head);
    status = cuda_submit(&run, s, &args, outputs ? &lm_head : NULL, err);
    if (status != REEL_OK) return status;
    tell_queued(eval, o, last);
    status = cuda_finish(&run, eval->cancel, err);
    if (status != REEL_OK) return status;
    const int n_done = (int)s->mapped.prefill_mailbox->n_evaluated;
    const bool has_output = !outputs || s->mapped.mailbox->n_evaluated == 1;
    if (n_done != n || !has_output) return ended_early(&run, eval, done, n_done, n, err);
    cuda_recurrent_commit_slot(s, kept, before_last);
    if (s->prefill_timer) status = cuda_timer_add_chunk(s->prefill_timer, s->backend, &args, err);
    if (status != REEL_OK) return status;
    if (eval->ids) cuda_last_row_set(s, lm_head.position, eval->ids[done + n - 1]);
    cuda_draft_saw(s, args.decode.position, eval->ids ? eval->ids + done : NULL, n, true);
    return fetch_output(s, eval, o, done, n, last, err);
}

/* The state after `done` of the positions is there. */
static void state_reached(struct backend_state *s, const struct backend_eval *eval, int done) {
    const int position = eval->position + done;
    if (eval->n == 1 || eval->decoded) {
        cuda_recurrent_advance(s, position);
        return;
    }
    cuda_recurrent_moved(s, position);
    if (done >= eval->n - 1) cuda_recurrent_checkpoint(s, position, eval->position);
}

enum reel_status cuda_eval(struct backend_state *s, const struct backend_eval *eval,
                           struct reel_error *err) {
    enum reel_status status = cuda_check_room(s, eval->position, eval->n, err);
    if (status != REEL_OK) return status;
    const struct output o = wanted_output(s, eval->output);
    const bool from_last_row =
        eval->n == 1 && eval->ids && cuda_last_row_is(s, eval->position, *eval->ids);
    if (!from_last_row) status = cuda_recurrent_rewind(s, eval->position, err);
    if (status != REEL_OK) return status;
    if (eval->n > 1 && !eval->decoded) cuda_recurrent_checkpoint(s, eval->position, eval->position);
    s->n_positions = eval->position;
    if (!from_last_row) cuda_last_row_invalidate(s, eval->position);
    for (int done = 0; done < eval->n;) {
        bool prefill = false;
        int n = from_last_row ? 1 : eval_chunk(s, eval, &o, done, &prefill);
        if ((eval->cancel && atomic_load(eval->cancel)) ||
            (eval->progress &&
             !eval->progress(eval->progress_user, "evaluating", (uint64_t)done, (uint64_t)eval->n)))
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions", done,
                           eval->n);
        if (!from_last_row) /* else nothing is written */
            status = cuda_pages_reach_all(s, eval->position + done, eval->position + done + n, err);
        if (status != REEL_OK) return status;
        status = prefill ? eval_by_prefill_kernels(s, eval, &o, done, n, err)
                         : eval_by_decode_kernel(s, eval, &o, done, n, from_last_row, err);
        if (status != REEL_OK) return status;
        done += n;
        s->n_positions = eval->position + done;
        state_reached(s, eval, done);
    }
    return REEL_OK;
}
