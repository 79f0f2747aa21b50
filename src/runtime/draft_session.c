#include "runtime/draft_session.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "model/vocabularies.h"
#include "runtime/session.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Ids behind that come of a guess's own pass: those of a pass that was right, and its last one. */
enum { SOON = 8 };

/* ---- opening ---- */

static double token_bytes(const struct reel_model *model) {
    struct reel_model_info info = { .size = sizeof info };
    return reel_model_get_info(model, &info, NULL) == REEL_OK ? (double)info.token_bytes : 0;
}

static enum reel_status open_on(struct draft_session *d, const struct reel_model *model,
                                const struct reel_model *draft, int context,
                                struct reel_error *err) {
    const int vocab = model->model.config.vocab;
    const struct reel_session_options options = {
        .size = sizeof options,
        .max_context = int_min(context, draft->model.config.max_context),
        .speculation = REEL_SPECULATION_OFF,
    };
    struct reel_error why = { 0 };
    enum reel_status status = vocabularies_compare(&model->model, &draft->model, &d->n_ids, err);
    if (status != REEL_OK) return status;
    if (draft->model.config.vocab < vocab)
        status = mem_aligned(&d->logits, (size_t)vocab, sizeof *d->logits, "a draft model's logits",
                             err);
    if (status != REEL_OK) return status;
    for (int i = draft->model.config.vocab; i < vocab; i++)
        d->logits[i] = -INFINITY;
    const double bytes = token_bytes(model);
    d->share = bytes > 0 ? token_bytes(draft) / bytes : 1;
    status = reel_session_open(&d->session, draft, &options, &why);
    if (status == REEL_OK) return status;
    return err_set(err, status, "the draft model %.100s: %.350s",
                   draft->model.name ? draft->model.name : "", why.text);
}

enum reel_status draft_session_open(struct draft_session **out, const struct reel_model *model,
                                    const struct reel_model *draft, int context,
                                    struct reel_error *err) {
    struct draft_session *d = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&d, 1, sizeof *d, "a session of a draft model", err);
    if (status == REEL_OK) status = open_on(d, model, draft, context, err);
    if (status == REEL_OK) draft_session_begin(d);
    if (status == REEL_OK)
        *out = d;
    else
        draft_session_close(d);
    return status;
}

void draft_session_close(struct draft_session *d) {
    if (!d) return;
    reel_session_close(d->session);
    mem_free(d->logits);
    mem_free(d);
}

/* ---- guessing ---- */

void draft_session_begin(struct draft_session *d) {
    d->failed = false;
    d->n_known = INT_MAX;
    d->n_looked = 0;
    err_clear(&d->why);
}

bool draft_session_can(const struct draft_session *d, int n) {
    return !d->failed && n > 0 && n <= d->session->max_context && n <= d->n_known;
}

/* An embedding has no id, and one of a longer vocabulary none here. */
static void look_for_strangers(struct draft_session *d, const int32_t *ids, int n) {
    const int32_t vocab = d->session->model->model.config.vocab;
    for (int i = d->n_looked; i < n && d->n_known == INT_MAX; i++)
        if (ids[i] < 0 || ids[i] >= vocab) d->n_known = i;
    d->n_looked = n;
}

static int32_t draw(struct draft_session *d, const float *logits, int64_t position) {
    const size_t n = (size_t)d->session->model->model.config.vocab;
    if (d->logits) memcpy(d->logits, logits, n * sizeof *logits);
    return sampler_draw(d->draw, d->logits ? d->logits : logits, position);
}

/* The next guess; false: it is the last one. */
static bool take(struct draft_session *d, int32_t id) {
    struct reel_session *s = d->session;
    if (id < 0 || id >= d->n_ids) return false;
    d->guesses[d->n_guesses++] = id;
    if (d->n_guesses == d->most) return false;
    session_append(s, id);
    return true;
}

int draft_session_behind(const struct draft_session *d, const int32_t *ids, int n) {
    const struct reel_session *s = d->session;
    const int held = int_min(s->n_evaluated, n);
    int same = 0;
    while (same < held && s->ids[same] == ids[same])
        same++;
    return n - same;
}

static enum reel_status hold(struct draft_session *d, const int32_t *ids, int n,
                             struct reel_error *err) {
    const int behind = draft_session_behind(d, ids, n);
    const double start = clock_ms();
    enum reel_status status = session_hold(d->session, ids, n, NULL, err);
    if (behind <= SOON) return status;
    d->caught_up_ms = clock_ms() - start;
    if (status == REEL_OK) d->read_ms = d->caught_up_ms / behind;
    return status;
}

static void note_failure(struct draft_session *d, enum reel_status status,
                         const struct reel_error *why) {
    if (status == REEL_OK || status == REEL_E_CANCELLED) return;
    d->failed = true;
    d->why = *why;
}

void draft_session_read(struct draft_session *d, const int32_t *ids, int n) {
    struct reel_error why = { 0 };
    look_for_strangers(d, ids, n);
    if (draft_session_can(d, n)) note_failure(d, hold(d, ids, n - 1, &why), &why);
}

/* Evaluates one position after the other here. */
static enum reel_status guess_by_eval(struct draft_session *d, const int32_t *ids, int n,
                                      struct reel_error *err) {
    struct reel_session *s = d->session;
    enum reel_status status = hold(d, ids, n, err);
    while (status == REEL_OK) {
        status = session_need_logits(s, err);
        if (status == REEL_OK && !take(d, draw(d, s->logits, s->length))) break;
    }
    return status;
}

static int32_t draw_for_backend(void *user, const float *logits, int64_t position) {
    return draw(user, logits, position);
}

static bool take_decoded(void *user, int32_t id) {
    struct draft_session *d = user;
    d->session->n_evaluated = d->session->length;
    return take(d, id);
}

/* Lets the backend decode, which draws by itself. Penalties and biases are left out: they would be
 * of the other vocabulary, and make guesses a little better at most. */
static enum reel_status guess_by_decode(struct draft_session *d, const int32_t *ids, int n,
                                        struct reel_error *err) {
    struct reel_session *s = d->session;
    struct backend_sampling sampling = { .set = sampler_sampling(d->draw)->set };
    const struct backend_decode decode = { .position = n - 1,
                                           .id = ids[n - 1],
                                           .max_tokens = d->most,
                                           .sampling = &sampling,
                                           .on_id = take_decoded,
                                           .draw = draw_for_backend,
                                           .user = d,
                                           .cancel = &s->cancel };
    sampling.set.bias = NULL, sampling.set.n_bias = 0;
    enum reel_status status = hold(d, ids, n - 1, err);
    if (status == REEL_OK) status = session_take_turn(s, err);
    if (status != REEL_OK) return status;
    session_append(s, ids[n - 1]);
    status = s->model->ops->decode(s->state, &decode, err);
    turn_give(&s->turn);
    s->n_evaluated = session_resume_at(s, s->n_evaluated);
    return status;
}

/* What guesses take when nothing was to be caught up with. Falls and rises slowly: the first one
 * warms caches. */
static void time_steps(struct draft_session *d) {
    /* what was caught up with gave the first guess's logits */
    const bool eval = !d->session->model->ops->decode;
    const int n = d->n_guesses - (eval && d->caught_up_ms > 0);
    if (n < 1) return;
    const double ms = (d->took_ms - d->caught_up_ms) / n;
    d->step_ms += d->step_ms > 0 ? 0.2 * (ms - d->step_ms) : ms;
}

int draft_session_guess(struct draft_session *d, const int32_t *ids, int n, struct sampler *sampler,
                        int32_t *out, int most) {
    struct reel_error why = { 0 };
    const double start = clock_ms();
    d->took_ms = d->caught_up_ms = 0;
    d->guesses = out;
    d->n_guesses = 0;
    d->most = int_min(most, d->session->max_context - n + 1); /* the last one takes no position */
    d->draw = sampler;
    look_for_strangers(d, ids, n);
    if (d->most < 1 || !draft_session_can(d, n)) return 0;
    const enum reel_status status =
        (d->session->model->ops->decode ? guess_by_decode : guess_by_eval)(d, ids, n, &why);
    d->took_ms = clock_ms() - start;
    if (status == REEL_OK) time_steps(d);
    note_failure(d, status, &why);
    return status == REEL_OK ? d->n_guesses : 0;
}

/* ---- beside its session ---- */

void draft_session_keep(struct draft_session *d, int n) {
    if (d && n < d->session->length) session_keep_prefix(d->session, n);
}

void draft_session_copy(struct draft_session *d, const struct draft_session *from) {
    if (!d || !from || d->session->model != from->session->model) return;
    if (from->session->length <= d->session->max_context)
        (void)!reel_session_copy(d->session, from->session, NULL);
}

void draft_session_cancel(struct draft_session *d) {
    if (d) reel_session_cancel(d->session);
}

void draft_session_uncancel(struct draft_session *d) {
    if (d) session_begin(d->session);
}
