/* Which texts share a pass: sorted by length, so that those of a pass are alike and its parts fill
 * up, as many as the session has positions for. */
#include "runtime/embed.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/struct_size.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of one pass: enough that a backend's parts of it are full, and no more memory than that takes. */
#define MOST_POSITIONS 16384
#define MOST_TEXTS     2048

struct ordered {
    int length, text;
    const int32_t *ids;
};

struct embedding {
    struct reel_session *session;
    const struct embed_texts *texts;
    struct ordered *order; /* [n_texts] by length */
    int32_t *ids;          /* [most] of one pass */
    int *lengths;          /* [n_texts of a pass] */
    float *vectors;        /* f32 [texts of a pass, hidden] */
    int most;              /* positions of a pass */
    int width;             /* texts of a pass, at most */
    bool one_by_one;
};

static int by_length(const void *a, const void *b) {
    const struct ordered *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->text < y->text ? -1 : 1;
}

static enum reel_status check_texts(const struct reel_session *s, const struct embed_texts *texts,
                                    int *total, struct reel_error *err) {
    const int vocab = s->model->model.config.vocab;
    size_t n = 0;
    for (int i = 0; i < texts->n_texts; i++) {
        const int length = texts->lengths[i];
        if (length < 1)
            return err_set(err, REEL_E_ARGUMENT, "text %d has %d ids; at least 1 is embedded", i,
                           length);
        if (length > s->max_context)
            return err_set(err, REEL_E_CONTEXT, "text %d has %d ids, the session's context %d", i,
                           length, s->max_context);
        for (int j = 0; j < length; j++, n++)
            if (texts->ids[n] < 0 || texts->ids[n] >= vocab)
                return err_set(err, REEL_E_ARGUMENT, "id %d of text %d is %d; ids are 0 to %d", j,
                               i, (int)texts->ids[n], vocab - 1);
    }
    *total = n < INT_MAX ? (int)n : INT_MAX;
    return REEL_OK;
}

static enum reel_status allocate(struct embedding *e, struct reel_error *err) {
    const int n_texts = e->texts->n_texts;
    const size_t hidden = (size_t)e->session->model->model.config.hidden;
    size_t floats = 0;
    e->most = e->session->max_context < MOST_POSITIONS ? e->session->max_context : MOST_POSITIONS;
    for (int i = 0; i < n_texts; i++)
        if (e->texts->lengths[i] > e->most) e->most = e->texts->lengths[i];
    e->width = n_texts < MOST_TEXTS ? n_texts : MOST_TEXTS;
    enum reel_status status =
        mem_zeroed(&e->order, (size_t)n_texts, sizeof *e->order, "a list of texts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&e->ids, (size_t)e->most, sizeof *e->ids, "ids of texts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&e->lengths, (size_t)e->width, sizeof *e->lengths, "lengths", err);
    if (status == REEL_OK && !size_mul(hidden, (size_t)e->width, &floats))
        status = err_memory(err, "vectors of texts", SIZE_MAX);
    if (status == REEL_OK)
        status = mem_aligned(&e->vectors, floats, sizeof *e->vectors, "vectors of texts", err);
    return status;
}

static void put_in_order(struct embedding *e) {
    const int32_t *ids = e->texts->ids;
    for (int i = 0; i < e->texts->n_texts; i++) {
        e->order[i] = (struct ordered){ e->texts->lengths[i], i, ids };
        ids += e->texts->lengths[i];
    }
    qsort(e->order, (size_t)e->texts->n_texts, sizeof *e->order, by_length);
}

/* Texts first .. first + n - 1 of the order, which the backend does not take together. */
static enum reel_status evaluate_each(struct embedding *e, int first, int n,
                                      struct reel_error *err) {
    struct reel_session *s = e->session;
    const size_t hidden = (size_t)s->model->model.config.hidden;
    for (int i = 0; i < n; i++) {
        const struct ordered *text = &e->order[first + i];
        const struct backend_eval eval = { .n = text->length,
                                           .ids = text->ids,
                                           .output = REEL_OUTPUT_LAST_HIDDEN,
                                           .out = e->vectors + (size_t)i * hidden,
                                           .cancel = &s->cancel,
                                           .progress = session_between_texts,
                                           .progress_user = s };
        if (s->progress && !session_report(s, "embedding", 0))
            return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d positions",
                           s->progress_done, s->progress_total);
        enum reel_status status = session_take_turn(s, err);
        if (status == REEL_OK) status = s->model->ops->eval(s->state, &eval, err);
        turn_give(&s->turn);
        if (status != REEL_OK) return status;
        s->progress_done += text->length;
    }
    return REEL_OK;
}

static enum reel_status evaluate_together(struct embedding *e, int first, int n,
                                          struct reel_error *err) {
    struct reel_session *s = e->session;
    struct backend_embed pass = { .ids = e->ids,
                                  .lengths = e->lengths,
                                  .n_texts = n,
                                  .out = e->vectors,
                                  .cancel = &s->cancel,
                                  .progress = session_between,
                                  .progress_user = s };
    int at = 0;
    for (int i = 0; i < n; i++) {
        const struct ordered *text = &e->order[first + i];
        memcpy(e->ids + at, text->ids, (size_t)text->length * sizeof *e->ids);
        e->lengths[i] = text->length;
        at += text->length;
    }
    enum reel_status status = session_take_turn(s, err);
    if (status == REEL_OK) status = s->model->ops->embed(s->state, &pass, err);
    turn_give(&s->turn);
    if (status == REEL_OK) s->progress_done += at;
    return status;
}

static enum reel_status run_pass(struct embedding *e, int first, int n, struct reel_error *err) {
    enum reel_status status = REEL_E_UNSUPPORTED;
    if (session_cancelled(e->session)) return err_set(err, REEL_E_CANCELLED, "cancelled");
    if (!e->one_by_one) status = evaluate_together(e, first, n, err);
    if (status != REEL_E_UNSUPPORTED) return status;
    err_clear(err);
    e->one_by_one = true;
    return evaluate_each(e, first, n, err);
}

/* How many texts from `first` of the order on share a pass. */
static int pass_size(const struct embedding *e, int first) {
    int n = 0, positions = 0;
    while (n < e->width && first + n < e->texts->n_texts &&
           e->order[first + n].length <= e->most - positions)
        positions += e->order[first + n++].length;
    return n;
}

enum reel_status embed_texts_run(struct reel_session *s, const struct embed_texts *texts,
                                 struct reel_error *err) {
    const size_t hidden = (size_t)s->model->model.config.hidden;
    struct embedding e = { .session = s, .texts = texts, .one_by_one = !s->model->ops->embed };
    int total = 0;
    enum reel_status status = check_texts(s, texts, &total, err);
    if (status == REEL_OK) status = allocate(&e, err);
    if (status == REEL_OK) {
        put_in_order(&e);
        s->length = s->n_evaluated = s->read_from = s->read_to = s->again_to = 0;
        s->has_logits = false;
        session_start_progress(s, total);
    }
    for (int first = 0, n; status == REEL_OK && first < texts->n_texts; first += n) {
        n = pass_size(&e, first);
        status = run_pass(&e, first, n, err);
        for (int i = 0; status == REEL_OK && i < n; i++)
            texts->take(texts->user, e.order[first + i].text, e.vectors + (size_t)i * hidden);
    }
    mem_free(e.vectors);
    mem_free(e.lengths);
    mem_free(e.ids);
    mem_free(e.order);
    return status;
}

/* ---- the public calls ---- */

/* Where vectors go, and how. */
struct placing {
    const struct reel_embed *embed;
    int dimensions;
};

static void place(void *user, int text, const float *vector) {
    const struct placing *p = user;
    const int n = p->dimensions;
    float *out = p->embed->out + (size_t)text * (size_t)n;
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += (double)vector[i] * vector[i];
    const double factor = p->embed->no_normalise || !(squares > 0) ? 1 : 1 / sqrt(squares);
    for (int i = 0; i < n; i++)
        out[i] = (float)(vector[i] * factor);
}

static enum reel_status check_embed(const struct reel_session *s, const struct reel_embed *embed,
                                    int *dimensions, struct reel_error *err) {
    const int hidden = s->model->model.config.hidden;
    size_t floats = 0;
    enum reel_status status = err_if_null(
        err, "ids lengths out", (const void *const[]){ embed->ids, embed->lengths, embed->out });
    if (status == REEL_OK) status = embed_config_allows(&s->model->model.embed, err);
    if (status != REEL_OK) return status;
    if (embed->n_texts < 1)
        return err_set(err, REEL_E_ARGUMENT, "n_texts is %d; at least 1 is embedded",
                       embed->n_texts);
    if (embed->dimensions < 0 || embed->dimensions > hidden)
        return err_set(err, REEL_E_ARGUMENT, "dimensions is %d; %s has 1 to %d, or 0 for all",
                       embed->dimensions, s->model->model.name ? s->model->model.name : "the model",
                       hidden);
    *dimensions = embed->dimensions ? embed->dimensions : hidden;
    if (!size_mul((size_t)*dimensions, (size_t)embed->n_texts, &floats) ||
        embed->out_floats < floats)
        return err_set(err, REEL_E_ARGUMENT, "out has room for %zu floats; %d vectors have %zu",
                       embed->out_floats, embed->n_texts, floats);
    return REEL_OK;
}

enum reel_status reel_session_embed(struct reel_session *s, const struct reel_embed *given,
                                    struct reel_error *err) {
    struct reel_embed embed;
    struct placing placing = { .embed = &embed };
    err_clear(err);
    enum reel_status status = session_idle(s, err);
    if (status == REEL_OK) status = err_if_null(err, "embed", (const void *const[]){ given });
    if (status == REEL_OK) status = struct_read(&embed, sizeof embed, given, "reel_embed", err);
    if (status == REEL_OK) status = check_embed(s, &embed, &placing.dimensions, err);
    if (status != REEL_OK) return status;
    const struct embed_texts texts = { embed.ids, embed.lengths, embed.n_texts, place, &placing };
    session_begin(s);
    return embed_texts_run(s, &texts, err);
}

enum reel_status reel_model_get_embed_info(const struct reel_model *handle,
                                           struct reel_embed_info *info, struct reel_error *err) {
    err_clear(err);
    enum reel_status status = err_if_null(err, "model info", (const void *const[]){ handle, info });
    if (status != REEL_OK) return status;
    const struct embed_config *c = &handle->model.embed;
    const struct reel_embed_info own = {
        .size = sizeof own,
        .stated = c->stated,
        .n_prompts = c->n_prompts,
        .default_prompt =
            c->n_prompts == 0 || c->default_prompt < 0 ? NULL : c->prompts[c->default_prompt].name,
    };
    status = embed_config_allows(c, err);
    return status == REEL_OK ? struct_write(info, &own, sizeof own, "reel_embed_info", err)
                             : status;
}

const char *reel_model_embed_prompt(const struct reel_model *handle, int index, const char **text) {
    const struct embed_config *c = handle ? &handle->model.embed : NULL;
    const bool found = c && index >= 0 && index < c->n_prompts;
    if (text) *text = found ? c->prompts[index].text : NULL;
    return found ? c->prompts[index].name : NULL;
}
