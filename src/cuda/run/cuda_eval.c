/* Positions that are given, and tokens that the device picks itself: launches, cut so that each is
 * over soon; between launches others get their turn. */
#include "cuda/run/cuda_eval.h"

#include "base/numbers.h"
#include "cuda/measure/cuda_prefill_timer.h"
#include "cuda/run/cuda_delta.h"
#include "cuda/run/cuda_fault.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_prefill.h"

#include <string.h>

static enum reel_status check_room(const struct backend_state *s, int position, int n,
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
 * read them: *prefill. */
static int eval_chunk(struct backend_state *s, const struct backend_eval *eval,
                      const struct output *o, int done, bool *prefill) {
    /* a recurrent state is kept before the last position: a launch that decodes ends there */
    const bool stops = s->backend->plan.delta.n_layers > 0 && done < eval->n - 1;
    const int left = eval->n - done, most = int_min(cuda_launch_tokens(s->backend), GPU_MOST_GIVEN);
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
        args->embeddings = cuda_pointer(s->embeddings);
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
        if (status == REEL_OK) memcpy(to, s->mapped.logits, bytes);
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
    enum reel_status status = give_positions(s, eval, done, n, 1, &args, err);
    if (status != REEL_OK) return status;
    ask_for_output(s, o, last, &args);
    if (from_last_row) args.start = cuda_pointer(s->last_row);
    status = cuda_submit(&run, s, NULL, &args, err);
    if (status == REEL_OK) status = cuda_finish(&run, eval->cancel, err);
    if (status != REEL_OK) return status;
    const int n_done = (int)s->mapped.mailbox->n_evaluated;
    if (n_done != n) return ended_early(&run, eval, done, n_done, n, err);
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
    const int before_last = eval->position + eval->n - 1;
    const int kept = last ? cuda_recurrent_reserve_slot(s, before_last, eval->position, &args.delta)
                          : CHECKPOINT_NONE;
    enum reel_status status = give_positions(s, eval, done, n, GPU_MAPPED_IDS, &args.decode, err);
    if (status != REEL_OK) return status;
    cuda_args_start(s, &lm_head);
    lm_head.position = eval->position + done + n - 1;
    lm_head.n_tokens = lm_head.n_given = 1;
    lm_head.start = cuda_pointer(s->last_row);
    ask_for_output(s, o, last, &lm_head);
    status = cuda_submit(&run, s, &args, outputs ? &lm_head : NULL, err);
    if (status == REEL_OK) status = cuda_finish(&run, eval->cancel, err);
    if (status != REEL_OK) return status;
    const int n_done = (int)s->mapped.prefill_mailbox->n_evaluated;
    const bool has_output = !outputs || s->mapped.mailbox->n_evaluated == 1;
    if (n_done != n || !has_output) return ended_early(&run, eval, done, n_done, n, err);
    cuda_recurrent_commit_slot(s, kept, before_last);
    if (s->prefill_timer) status = cuda_timer_add_chunk(s->prefill_timer, s->backend, &args, err);
    if (status != REEL_OK) return status;
    if (eval->ids) cuda_last_row_set(s, lm_head.position, eval->ids[done + n - 1]);
    return fetch_output(s, eval, o, done, n, last, err);
}

/* The state after `done` of the positions is there. */
static enum reel_status state_reached(struct backend_state *s, const struct backend_eval *eval,
                                      int done, struct reel_error *err) {
    const int position = eval->position + done;
    if (eval->n == 1) return cuda_recurrent_advance(s, position, err);
    s->checkpoints.n_positions = position;
    return done == eval->n - 1 ? cuda_recurrent_checkpoint(s, position, eval->position, err)
                               : REEL_OK;
}

enum reel_status cuda_eval(struct backend_state *s, const struct backend_eval *eval,
                           struct reel_error *err) {
    enum reel_status status = check_room(s, eval->position, eval->n, err);
    if (status != REEL_OK) return status;
    const struct output o = wanted_output(s, eval->output);
    const bool from_last_row =
        eval->n == 1 && eval->ids && cuda_last_row_is(s, eval->position, *eval->ids);
    if (!from_last_row) status = cuda_recurrent_rewind(s, eval->position, err);
    if (status == REEL_OK && eval->n > 1)
        status = cuda_recurrent_checkpoint(s, eval->position, eval->position, err);
    if (status != REEL_OK) return status;
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
        cuda_recurrent_invalidate(s);
        status = prefill ? eval_by_prefill_kernels(s, eval, &o, done, n, err)
                         : eval_by_decode_kernel(s, eval, &o, done, n, from_last_row, err);
        if (status != REEL_OK) return status;
        done += n;
        s->n_positions = eval->position + done;
        status = state_reached(s, eval, done, err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

/* ---- decoding ---- */

/* One call of cuda_decode. */
struct decoding {
    struct backend_state *s;
    const struct backend_decode *d;
    int position; /* of `id` */
    int32_t id;   /* delivered, or given; not yet evaluated */
    int n_made;   /* delivered */
    bool stopped; /* by on_id */
    bool enough;  /* as its callback says: the launch at hand is the last one */
};

/* The sum of an id's several biases depends on their order, which a table of one a id forgets. */
static bool bias_repeats(struct backend_state *s, const struct reel_sampling *set) {
    bool repeats = false;
    for (int i = 0; i < set->n_bias; i++)
        s->mapped.seen[set->bias[i].id] = 0;
    for (int i = 0; i < set->n_bias; i++)
        if (s->mapped.seen[set->bias[i].id]++) repeats = true;
    return repeats;
}

static enum reel_status upload_bias(struct backend_state *s, const struct reel_sampling *set,
                                    struct reel_error *err) {
    const size_t n = (size_t)s->backend->model->config.vocab * sizeof(float);
    memset(s->mapped.bias, 0, n);
    for (int i = 0; i < set->n_bias; i++)
        s->mapped.bias[set->bias[i].id] = set->bias[i].bias;
    return cuda_upload(&s->backend->gpu, s->bias, s->mapped.bias, n, NULL, err);
}

/* The penalties' view of the timeline: the launch goes on counting by itself, but ids that it made
 * and nobody took must not count. */
static enum reel_status upload_seen(struct backend_state *s, const struct backend_sampling *told,
                                    struct reel_error *err) {
    const size_t n = (size_t)s->backend->model->config.vocab * sizeof(unsigned);
    memset(s->mapped.seen, 0, n);
    for (int i = 0; i < told->n_ids; i++)
        s->mapped.seen[told->ids[i]] = 0x80000000u + (unsigned)told->generated[told->ids[i]];
    return cuda_upload(&s->backend->gpu, s->seen, s->mapped.seen, n, NULL, err);
}

static enum reel_status give_sampling(const struct decoding *g, struct decode_args *args,
                                      struct reel_error *err) {
    struct backend_state *s = g->s;
    const struct reel_sampling *set = &g->d->sampling->set;
    const bool penalties = g->d->sampling->penalises;
    struct sampling_args *to = &args->sampling;
    *to = (struct sampling_args){
        .temperature = set->temperature,
        .top_p = set->top_p,
        .min_p = set->min_p,
        .top_k = set->top_k,
        .repetition = set->repetition_penalty,
        .presence = set->presence_penalty,
        .frequency = set->frequency_penalty,
        .adjust = penalties || set->n_bias > 0,
        .seed = set->seed,
        .bias = set->n_bias > 0 ? cuda_pointer(s->bias) : NULL,
        .seen = penalties ? cuda_pointer(s->seen) : NULL,
    };
    if (set->temperature > 0 || to->adjust) args->logits = cuda_pointer(s->out);
    return penalties ? upload_seen(s, g->d->sampling, err) : REEL_OK;
}

static void give_stop_ids(const struct backend_decode *d, struct decode_args *args) {
    args->n_stop_ids = int_min(d->n_stop_ids, ARGS_MAX_STOP_IDS); /* on_id knows them all */
    for (int i = 0; i < args->n_stop_ids; i++)
        args->stop_ids[i] = d->stop_ids[i];
}

/* `run` made the id and may still run; NULL: the host did. */
static void deliver_id(struct decoding *g, struct cuda_run *run, int32_t id) {
    if (!g->enough && g->d->enough && g->d->enough(g->d->user)) {
        g->enough = true; /* told before the caller hears of the id, who may take his time */
        if (run) cuda_stop(run);
    }
    g->id = id;
    g->position++;
    g->n_made++;
    if (!g->d->on_id(g->d->user, id)) g->stopped = true;
}

/* The launch left this token to the host: its logits lie in s->out. */
static enum reel_status pick_on_host(struct decoding *g, struct reel_error *err) {
    struct backend_state *s = g->s;
    const size_t n = (size_t)s->backend->model->config.vocab * sizeof(float);
    enum reel_status status =
        cuda_download(&s->backend->gpu, s->mapped.logits, s->out, n, NULL, err);
    if (status != REEL_OK) return status;
    int32_t id = g->d->draw(g->d->user, s->mapped.logits, g->position + 1);
    if (id < 0)
        return err_set(err, REEL_E_DEVICE,
                       "no id can be drawn for position %d: each logit is NaN or forbidden",
                       g->position + 1);
    deliver_id(g, NULL, id);
    return REEL_OK;
}

/* A launch that ends because it was told to, or is too far ahead, may do so at a token whose id
 * only the host can draw. Its logits were left all the same. */
static bool stopped_before_host_picked(const struct decoding *g, const struct decode_mailbox *m) {
    return m->end == DECODE_STOPPED && m->n_evaluated == m->n_made + 1 &&
           g->d->sampling->set.temperature > 0;
}

/* What the way a launch ended asks for. */
static enum reel_status act_on_launch_end(struct decoding *g, struct reel_error *err) {
    const struct decode_mailbox *m = g->s->mapped.mailbox;
    if (g->d->cancel && atomic_load(g->d->cancel))
        return err_set(err, REEL_E_CANCELLED, "cancelled");
    if (g->stopped) return REEL_OK;
    if (m->end == DECODE_HOST_PICKS || stopped_before_host_picked(g, m))
        return pick_on_host(g, err);
    if (m->end == DECODE_NO_ID)
        return err_set(err, REEL_E_DEVICE,
                       "no id can be drawn for position %d: each logit is NaN or forbidden",
                       g->position + 1);
    return REEL_OK;
}

/* Delivers ids as they come. */
static enum reel_status read_ids(struct decoding *g, struct cuda_run *run, struct reel_error *err) {
    const atomic_bool *cancel = g->d->cancel;
    while (!g->stopped && !(cancel && atomic_load(cancel))) {
        int32_t id = -1;
        enum reel_status status = cuda_next_id(run, cancel, &id, err);
        if (status != REEL_OK) return status;
        if (id < 0) return REEL_OK;
        deliver_id(g, run, id);
    }
    cuda_stop(run);
    return REEL_OK;
}

static enum reel_status decode_one_launch(struct decoding *g, struct reel_error *err) {
    struct backend_state *s = g->s;
    struct decode_args args;
    struct cuda_run run;
    int before = g->n_made;
    cuda_args_start(s, &args);
    args.position = g->position;
    args.n_tokens = int_min(g->d->max_tokens - g->n_made, cuda_launch_tokens(s->backend));
    args.n_tokens = int_min(args.n_tokens, s->max_positions - g->position);
    if (s->backend->plan.delta.n_layers) /* where a state is due */
        args.n_tokens = int_min(args.n_tokens, CHECKPOINT_STEP - g->position % CHECKPOINT_STEP);
    args.n_given = 1;
    args.hidden_from = args.n_tokens;
    args.pick = 1;
    *s->mapped.ids = g->id;
    args.ids = cuda_pointer(cuda_mapped_address(s, s->mapped.ids));
    const bool from_last_row = cuda_last_row_is(s, g->position, g->id);
    if (from_last_row) args.start = cuda_pointer(s->last_row);
    give_stop_ids(g->d, &args);
    enum reel_status status = give_sampling(g, &args, err);
    if (status == REEL_OK && !from_last_row) status = cuda_recurrent_rewind(s, g->position, err);
    if (status != REEL_OK) return status;
    cuda_recurrent_invalidate(s);
    if (!from_last_row) cuda_last_row_invalidate(s, g->position);
    status = cuda_submit(&run, s, NULL, &args, err);
    if (status != REEL_OK) return status;
    s->n_positions = g->position;
    status = read_ids(g, &run, err);
    if (status != REEL_OK) cuda_stop(&run);
    enum reel_status end = cuda_finish(&run, g->d->cancel, status == REEL_OK ? err : NULL);
    if (status == REEL_OK) status = end;
    if (status == REEL_OK) status = act_on_launch_end(g, err);
    s->n_positions = g->position; /* the last id delivered is not evaluated, or as good as not */
    /* a launch that ran ahead of what was taken has left the state of another text */
    if (!run.failed && args.position + (int)s->mapped.mailbox->n_evaluated == g->position &&
        end == REEL_OK) {
        enum reel_status kept =
            cuda_recurrent_advance(s, g->position, status == REEL_OK ? err : NULL);
        if (status == REEL_OK) status = kept;
    }
    if (status == REEL_OK && !g->stopped && g->n_made == before)
        return err_set(err, REEL_E_DEVICE, "%s: the decode kernel ended without a token",
                       s->backend->gpu.facts.name);
    return status;
}

enum reel_status cuda_decode(struct backend_state *s, const struct backend_decode *d,
                             struct reel_error *err) {
    const struct reel_sampling *set = &d->sampling->set;
    struct decoding g = { .s = s, .d = d, .position = d->position, .id = d->id };
    enum reel_status status = check_room(s, d->position, 1, err);
    if (status == REEL_OK && set->n_bias > 0) {
        if (bias_repeats(s, set)) return err_set(err, REEL_E_UNSUPPORTED, "an id has two biases");
        status = upload_bias(s, set, err);
    }
    while (status == REEL_OK && !g.stopped && !g.enough && g.n_made < d->max_tokens &&
           g.position < s->max_positions)
        status = decode_one_launch(&g, err);
    return status;
}
