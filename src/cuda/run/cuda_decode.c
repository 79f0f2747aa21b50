#include "cuda/run/cuda_decode.h"

#include "base/clock.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_drafts.h"
#include "cuda/run/cuda_eval.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_recurrent.h"

#include <string.h>

/* ---- sampling ---- */

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
    enum reel_status status = cuda_state_need(s, GPU_BIAS, &s->bias, err);
    if (status != REEL_OK) return status;
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
    enum reel_status status = cuda_state_need(s, GPU_SEEN, &s->seen, err);
    if (status != REEL_OK) return status;
    memset(s->mapped.seen, 0, n);
    for (int i = 0; i < told->n_ids; i++)
        s->mapped.seen[told->ids[i]] = 0x80000000u + (unsigned)told->generated[told->ids[i]];
    return cuda_upload(&s->backend->gpu, s->seen, s->mapped.seen, n, NULL, err);
}

static enum reel_status give_sampling(const struct cuda_decoding *g, struct decode_args *args,
                                      struct reel_error *err) {
    struct backend_state *s = g->s;
    const struct reel_sampling *set = &g->d->sampling->set;
    const bool penalties = g->d->sampling->penalises;
    struct sampling_args *to = &args->sampling;
    if (g->d->host_draws) {
        *to = (struct sampling_args){ 0 };
        return REEL_OK;
    }
    enum reel_status status = penalties ? upload_seen(s, g->d->sampling, err) : REEL_OK;
    if (status != REEL_OK) return status;
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
    return REEL_OK;
}

static void give_stop_ids(const struct backend_decode *d, struct decode_args *args) {
    args->n_stop_ids = int_min(d->n_stop_ids, ARGS_MAX_STOP_IDS); /* on_id knows them all */
    for (int i = 0; i < args->n_stop_ids; i++)
        args->stop_ids[i] = d->stop_ids[i];
}

static bool wants_no_more(const struct cuda_decoding *g) {
    const struct backend_batch *batch = g->batch;
    return (g->d->enough && g->d->enough(g->d->user)) ||
           (batch && batch->enough && batch->enough(batch->user));
}

void cuda_decoding_deliver(struct cuda_decoding *g, struct cuda_run *run, int32_t id) {
    if (!g->enough && wants_no_more(g)) {
        g->enough = true; /* told before the caller hears of the id, who may take his time */
        if (run) cuda_stop(run);
    }
    g->id = id;
    g->position++;
    g->n_made++;
    if (g->d->took) g->delivered_ms = clock_ms();
    if (!g->d->on_id(g->d->user, id)) g->stopped = true;
}

enum reel_status cuda_decoding_draw(const struct cuda_decoding *g, int32_t *id,
                                    struct reel_error *err) {
    *id = g->d->draw(g->d->user, g->s->mapped.logits, g->position + 1);
    if (*id >= 0) return REEL_OK;
    return err_set(err, REEL_E_DEVICE,
                   "no id can be drawn for position %d: each logit is NaN or forbidden",
                   g->position + 1);
}

enum reel_status cuda_decoding_evaluate(struct cuda_decoding *g, struct reel_error *err) {
    const struct backend_eval eval = { .position = g->position,
                                       .n = 1,
                                       .ids = &g->id,
                                       .output = REEL_OUTPUT_LAST_LOGITS,
                                       .out = g->s->mapped.logits,
                                       .cancel = g->d->cancel };
    int32_t id = -1;
    enum reel_status status = cuda_eval(g->s, &eval, err);
    if (status == REEL_OK) status = cuda_decoding_draw(g, &id, err);
    if (status == REEL_OK) cuda_decoding_deliver(g, NULL, id);
    return status;
}

/* The launch left this token to the host. */
static enum reel_status pick_on_host(struct cuda_decoding *g, bool shown, struct reel_error *err) {
    const struct backend_state *s = g->s;
    const size_t n = (size_t)s->backend->model->config.vocab * sizeof(float);
    int32_t id = -1;
    enum reel_status status = REEL_OK;
    if (!shown)
        status = cuda_download(&s->backend->gpu, s->mapped.logits, s->out, n, NULL, err);
    else if (s->mapped.mailbox->asks != s->mapped.mailbox->n_made + 1) /* they are still coming */
        status = cuda_wait(&s->backend->gpu, NULL, "logits", err);
    if (status == REEL_OK) status = cuda_decoding_draw(g, &id, err);
    if (status == REEL_OK) cuda_decoding_deliver(g, NULL, id);
    return status;
}

/* A launch that ends because it was told to, or is too far ahead, or since another column is over,
 * may do so at a token whose id only the host can draw. Its logits were left all the same. */
static bool ended_before_host_picked(const struct cuda_decoding *g,
                                     const struct decode_mailbox *m) {
    return (m->end == DECODE_STOPPED || m->end == DECODE_RUNNING) &&
           m->n_evaluated == m->n_made + 1 &&
           (g->d->sampling->set.temperature > 0 || g->d->host_draws);
}

enum reel_status cuda_decoding_settle(struct cuda_decoding *g, bool shown, struct reel_error *err) {
    const struct decode_mailbox *m = g->s->mapped.mailbox;
    if (g->d->cancel && atomic_load(g->d->cancel))
        return err_set(err, REEL_E_CANCELLED, "cancelled");
    if (g->stopped) return REEL_OK;
    if (m->end == DECODE_HOST_PICKS || ended_before_host_picked(g, m))
        return pick_on_host(g, shown, err);
    if (m->end == DECODE_NO_ID)
        return err_set(err, REEL_E_DEVICE,
                       "no id can be drawn for position %d: each logit is NaN or forbidden",
                       g->position + 1);
    return REEL_OK;
}

/* Between two launches, or 2 ids before the next one can begin: whether drafts are worth it. The
 * programs may have to be made first. */
static bool expects(struct cuda_decoding *g, struct backend_expected *expected, int ahead) {
    if (!cuda_drafts_allowed(g)) return false;
    *expected = (struct backend_expected){ 0 };
    g->d->expect(g->d->user, expected, ahead);
    g->asks = expected->asks;
    if (expected->worth <= 0) return false;
    cuda_drafts_make(g->s, g->d->drafts_wait);
    return cuda_drafts_ready(g);
}

/* The ids of a launch that nothing was said of yet. */
struct unsaid {
    int n;
    double since_ms; /* when the id before the first of them was delivered */
};

/* Says what they took. The first id of a launch waits for it: what it took is not what an id takes,
 * and counts where drafts made the launch necessary. */
static void say_taken(struct cuda_decoding *g, struct unsaid *u, bool first) {
    const struct backend_taken taken = { .columns = 1,
                                         .n_passes = first ? 0 : u->n,
                                         .n_ids = u->n,
                                         .ms = g->delivered_ms - u->since_ms };
    if (!g->d->took || u->n == 0) return;
    if (!first || g->changes) g->d->took(g->d->user, &taken);
    g->changes = false;
    *u = (struct unsaid){ 0, g->delivered_ms };
}

/* Delivers ids as they come. */
static enum reel_status read_ids(struct cuda_decoding *g, struct cuda_run *run,
                                 struct reel_error *err) {
    enum { EVERY = 8, FEW = 3 }; /* ids; what fewer took is not known well */
    const atomic_bool *cancel = g->d->cancel;
    struct unsaid unsaid = { 0, g->delivered_ms };
    enum reel_status status = REEL_OK;
    bool over = false;
    while (!g->stopped && !(cancel && atomic_load(cancel))) {
        int32_t id = -1;
        status = cuda_next_id(run, cancel, &id, err);
        over = status != REEL_OK || id < 0;
        if (over) break;
        cuda_decoding_deliver(g, run, id);
        unsaid.n++;
        if (run->n_read == 1 || unsaid.n == EVERY) say_taken(g, &unsaid, run->n_read == 1);
        struct backend_expected expected;
        if (!g->drafts && !g->stopped && expects(g, &expected, 2)) {
            g->drafts = true;
            cuda_stop(run);
        }
    }
    if (unsaid.n >= FEW) say_taken(g, &unsaid, false);
    if (!over) cuda_stop(run);
    return status;
}

enum reel_status cuda_decoding_args(struct cuda_decoding *g, int most, struct decode_args *args,
                                    struct reel_error *err) {
    struct backend_state *s = g->s;
    int n = int_min(int_min(most, g->d->max_tokens - g->n_made), cuda_launch_tokens(s->backend));
    int reached = 0;
    n = int_min(n, s->max_positions - g->position);
    if (s->backend->plan.delta.n_layers) /* where a state is due */
        n = int_min(n, CHECKPOINT_STEP - g->position % CHECKPOINT_STEP);
    enum reel_status status = cuda_pages_reach(s, g->position, g->position + n, &reached, err);
    if (status != REEL_OK) return status;
    cuda_args_start(s, args);
    args->position = g->position;
    args->n_tokens = args->hidden_from = reached - g->position;
    args->n_given = 1;
    args->pick = 1;
    *s->mapped.ids = g->id;
    args->ids = cuda_pointer(cuda_mapped_address(s, s->mapped.ids));
    give_stop_ids(g->d, args);
    return give_sampling(g, args, err);
}

enum reel_status cuda_decoding_launch(struct cuda_decoding *g, int most, struct reel_error *err) {
    struct backend_state *s = g->s;
    struct decode_args args;
    struct cuda_run run;
    int before = g->n_made;
    enum reel_status status = cuda_decoding_args(g, most, &args, err);
    if (status != REEL_OK) return status;
    const bool from_last_row = cuda_last_row_is(s, g->position, g->id);
    if (from_last_row) args.start = cuda_pointer(s->last_row);
    if (!from_last_row) status = cuda_recurrent_rewind(s, g->position, err);
    if (status == REEL_OK) status = cuda_recurrent_begin(s, &args.delta, err);
    if (status != REEL_OK) return status;
    if (!from_last_row) cuda_last_row_invalidate(s, g->position);
    status = cuda_submit(&run, s, NULL, &args, err);
    if (status != REEL_OK) return status;
    s->n_positions = g->position;
    status = read_ids(g, &run, err);
    if (status != REEL_OK) cuda_stop(&run);
    enum reel_status end = cuda_finish(&run, g->d->cancel, status == REEL_OK ? err : NULL);
    if (status == REEL_OK) status = end;
    if (status == REEL_OK) status = cuda_decoding_settle(g, false, err);
    s->n_positions = g->position; /* the last id delivered is not evaluated, or as good as not */
    /* a launch that ran ahead of what was taken has left the state of another text */
    if (!run.failed && args.position + (int)s->mapped.mailbox->n_evaluated == g->position &&
        end == REEL_OK)
        cuda_recurrent_advance(s, g->position);
    if (status == REEL_OK && !g->stopped && g->n_made == before)
        return err_set(err, REEL_E_DEVICE, "%s: the decode kernel ended without a token",
                       s->backend->gpu.facts.name);
    return status;
}

enum reel_status cuda_decoding_begin(struct cuda_decoding *g, struct backend_state *s,
                                     const struct backend_decode *d, struct reel_error *err) {
    const struct reel_sampling *set = &d->sampling->set;
    *g = (struct cuda_decoding){ .s = s, .d = d, .position = d->position, .id = d->id };
    enum reel_status status = cuda_check_room(s, d->position, 1, err);
    if (status != REEL_OK || set->n_bias == 0 || d->host_draws) return status;
    if (bias_repeats(s, set)) return err_set(err, REEL_E_UNSUPPORTED, "an id has two biases");
    return upload_bias(s, set, err);
}

bool cuda_decoding_is_over(const struct cuda_decoding *g) {
    return g->stopped || g->n_made >= g->d->max_tokens || g->position >= g->s->max_positions;
}

/* Puts guesses of the draft layer into the queue; returns how many. Where it has failed that is
 * said. */
static int ask_layer(struct cuda_decoding *g, int most) {
    g->guess_from_ms = clock_ms();
    const int n = cuda_guesses_queue(g->s, g->position, g->id, most);
    if (n == 0 && !cuda_draft_lags(g->s, g->position) && g->d->guessed)
        g->d->guessed(g->d->user, NULL, 0, 0);
    return n;
}

/* Whether the next launch has drafts, which may have to be asked for first. Those of the draft
 * layer are in the queue then. */
static bool has_drafts(struct cuda_decoding *g, struct backend_expected *expected) {
    if (!expects(g, expected, 0)) return false;
    if (!expected->asks) return true;
    const int left = g->d->max_tokens - g->n_made, room = g->s->max_positions - g->position;
    const int most = int_min(int_min(left, room) - 1, cuda_drafts_most(g->s));
    if (most <= 0)
        expected->n = 0;
    else if (expected->of_layer)
        expected->n = ask_layer(g, int_min(most, expected->worth));
    else
        expected->n = g->d->draft(g->d->user, expected->ids, most);
    expected->worth = expected->n;
    return expected->n > 0 || (most > 0 && cuda_draft_lags(g->s, g->position));
}

/* Tokens of a launch without drafts. Behind a prompt's last row, which takes no drafts, the draft
 * layer knows what comes before the second id, and not what a longer launch evaluates. */
static int most_tokens(const struct cuda_decoding *g) {
    const bool one = g->s->drafts && g->asks && cuda_last_row_is(g->s, g->position, g->id);
    return one ? 1 : g->d->max_tokens;
}

enum reel_status cuda_decode(struct backend_state *s, const struct backend_decode *d,
                             struct reel_error *err) {
    struct cuda_decoding g;
    enum reel_status status = cuda_decoding_begin(&g, s, d, err);
    while (status == REEL_OK && !g.enough && !cuda_decoding_is_over(&g)) {
        struct backend_expected expected;
        g.drafts = false;
        if (has_drafts(&g, &expected))
            status = cuda_drafts_launch(&g, &expected, err);
        else
            status = cuda_decoding_launch(&g, most_tokens(&g), err);
    }
    cuda_pages_keep(s, g.position + 1);
    return status;
}
