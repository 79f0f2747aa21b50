#include "support/fake_backend.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct backend {
    struct fake_settings *settings;
};

struct backend_state {
    struct backend *backend;
    int max_positions, n_stored;
    uint64_t *prefix; /* [max_positions + 1] hash of what lies before */
};

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 31);
}

static float number(uint64_t h) { return (float)(h >> 40) / 2097152.0f - 4.0f; }

static void logits_of(const struct fake_settings *set, uint64_t prefix, int position,
                      float *logits) {
    for (int i = 0; i < FAKE_VOCAB; i++)
        logits[i] = set && set->nan_logits ? NAN : number(mix(prefix, (uint64_t)i + 1000));
    if (set && set->script && position < set->n_script) logits[set->script[position]] = 100;
}

void fake_logits(const int32_t *ids, int n, float *logits) {
    uint64_t h = 1;
    for (int i = 0; i < n; i++)
        h = mix(h, (uint64_t)ids[i] + 1);
    logits_of(NULL, h, n, logits);
}

static enum reel_status fake_open(struct backend **out, const struct model *model,
                                  const struct backend_options *options, struct reel_error *err) {
    (void)model;
    *out = NULL;
    enum reel_status status = mem_zeroed(out, 1, sizeof **out, "the fake backend", err);
    if (status == REEL_OK) (*out)->settings = options->progress_user;
    return status;
}

static void fake_close(struct backend *backend) { free(backend); }

static void fake_info(const struct backend *backend, struct backend_info *info) {
    *info = (struct backend_info){ .name = "fake",
                                   .path = "hash",
                                   .n_threads = 1,
                                   .eval_positions = backend->settings->eval_positions,
                                   .shares = backend->settings->shares,
                                   .queues = backend->settings->queues,
                                   .most_columns = backend->settings->columns,
                                   .cut_step = backend->settings->cut_step,
                                   .state_fixed_bytes = 100,
                                   .state_position_bytes = sizeof(uint64_t) };
}

static enum reel_status fake_state_open(struct backend_state **out, struct backend *backend,
                                        int max_positions, struct reel_error *err) {
    struct backend_state *s = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "fake state", err);
    if (status != REEL_OK) return status;
    status = mem_zeroed(&s->prefix, (size_t)max_positions + 1, sizeof *s->prefix, "state", err);
    if (status != REEL_OK) {
        free(s);
        return status;
    }
    s->backend = backend;
    s->max_positions = max_positions;
    s->prefix[0] = 1;
    *out = s;
    return REEL_OK;
}

static void fake_state_close(struct backend_state *s) {
    if (!s) return;
    free(s->prefix);
    free(s);
}

static bool wait_or_cancel(int ms, const atomic_bool *cancel) {
    const struct timespec step = { 0, 1000000 };
    for (int i = 0; i < ms; i++) {
        if (cancel && atomic_load(cancel)) return false;
        nanosleep(&step, NULL);
    }
    return !(cancel && atomic_load(cancel));
}

static uint64_t value_at(const struct backend_eval *e, int i) {
    if (e->ids) return (uint64_t)e->ids[i] + 1;
    uint64_t h = 77;
    for (int j = 0; j < FAKE_HIDDEN; j++) {
        uint32_t bits;
        memcpy(&bits, e->embeddings + (size_t)i * FAKE_HIDDEN + j, sizeof bits);
        h = mix(h, bits);
    }
    return h;
}

static void write_output(const struct backend_state *s, const struct backend_eval *e, int i) {
    bool all = e->output == REEL_OUTPUT_ALL_LOGITS || e->output == REEL_OUTPUT_ALL_HIDDEN;
    bool last = i == e->n - 1;
    int position = e->position + i + 1;
    uint64_t prefix = s->prefix[position];
    if (e->output == REEL_OUTPUT_NONE || (!all && !last)) return;
    if (e->output == REEL_OUTPUT_LAST_LOGITS || e->output == REEL_OUTPUT_ALL_LOGITS) {
        logits_of(s->backend->settings, prefix, position,
                  e->out + (all ? (size_t)i * FAKE_VOCAB : 0));
        return;
    }
    float *hidden = e->out + (all ? (size_t)i * FAKE_HIDDEN : 0);
    for (int j = 0; j < FAKE_HIDDEN; j++)
        hidden[j] = number(mix(prefix, (uint64_t)j));
}

static bool take_time(struct fake_settings *set, const atomic_bool *cancel) {
    const int inside = atomic_fetch_add(&set->n_inside, 1) + 1;
    if (inside > atomic_load(&set->most_inside)) atomic_store(&set->most_inside, inside);
    const bool go_on = wait_or_cancel(set->eval_ms, cancel);
    atomic_fetch_sub(&set->n_inside, 1);
    return go_on;
}

static bool goes_on(const struct fake_settings *set, const struct backend_eval *e, int done) {
    return !e->progress || (set->cut_step && done > 0) ||
           e->progress(e->progress_user, "evaluating", (uint64_t)done, (uint64_t)e->n);
}

static bool begin_chunk(struct fake_settings *set, const struct backend_eval *e, int done) {
    if (!set->queues) return take_time(set, e->cancel) && goes_on(set, e, done);
    if (!goes_on(set, e, done)) return false;
    if (e->queued && (set->chunk == 0 || done + set->chunk >= e->n)) e->queued(e->progress_user);
    return take_time(set, e->cancel);
}

static int fake_resume(const struct backend_state *s, int n) {
    if (n >= s->n_stored) return s->n_stored;
    return s->backend->settings->recurrent ? n / FAKE_KEEPS * FAKE_KEEPS : n;
}

/* The passes take their time for all columns together. */
static enum reel_status evaluate(struct backend_state *s, const struct backend_eval *e,
                                 bool in_a_pass, struct reel_error *err) {
    struct fake_settings *set = s->backend->settings;
    atomic_fetch_add(&set->n_evals, 1);
    if (e->n > 1) atomic_fetch_add(&set->n_prompt_evals, 1);
    if (e->n > atomic_load(&set->longest_eval)) atomic_store(&set->longest_eval, e->n);
    atomic_store(&set->asked, e->output);
    if (e->position < 0 || e->position > s->n_stored || e->n < 1 ||
        e->n > s->max_positions - e->position)
        return err_set(err, REEL_E_MISMATCH, "the runtime evaluates %d positions at %d of %d", e->n,
                       e->position, s->n_stored);
    if (fake_resume(s, e->position) != e->position)
        return err_set(err, REEL_E_MISMATCH, "the state of position %d is gone", e->position);
    s->n_stored = e->position;
    int n = atomic_load(&set->fail_eval);
    bool fails = n > 0 && atomic_fetch_sub(&set->fail_eval, 1) == 1;
    for (int i = 0; i < e->n; i++) {
        if (in_a_pass ? e->cancel && atomic_load(e->cancel)
                      : i % (set->chunk ? set->chunk : e->n) == 0 && !begin_chunk(set, e, i))
            return err_set(err, REEL_E_CANCELLED, "cancelled");
        s->prefix[e->position + i + 1] = mix(s->prefix[e->position + i], value_at(e, i));
        write_output(s, e, i);
        if (fails && i >= e->n / 2) return err_set(err, REEL_E_DEVICE, "the fake device failed");
    }
    s->n_stored = e->position + e->n;
    atomic_fetch_add(&set->n_positions, e->n);
    return REEL_OK;
}

static enum reel_status fake_eval(struct backend_state *s, const struct backend_eval *e,
                                  struct reel_error *err) {
    struct fake_settings *set = s->backend->settings;
    if (atomic_load(&set->steps_inside) > 0) atomic_fetch_add(&set->n_evals_behind_steps, 1);
    atomic_fetch_add(&set->evals_inside, 1);
    const enum reel_status status = evaluate(s, e, false, err);
    atomic_fetch_sub(&set->evals_inside, 1);
    return status;
}

static enum reel_status fake_embed(struct backend_state *s, const struct backend_embed *e,
                                   struct reel_error *err) {
    struct fake_settings *set = s->backend->settings;
    int at = 0;
    if (set->refuses_embed) return err_set(err, REEL_E_UNSUPPORTED, "one by one");
    atomic_fetch_add(&set->n_embeds, 1);
    atomic_store(&set->n_embedded, e->n_texts);
    for (int i = 0; i < e->n_texts; i++) {
        uint64_t h = 1;
        if (e->lengths[i] < 1 || e->lengths[i] > s->max_positions - at)
            return err_set(err, REEL_E_MISMATCH, "text %d of the pass does not fit", i);
        for (int j = 0; j < e->lengths[i]; j++)
            h = mix(h, (uint64_t)e->ids[at++] + 1);
        for (int j = 0; j < FAKE_HIDDEN; j++)
            e->out[i * FAKE_HIDDEN + j] = number(mix(h, (uint64_t)j));
    }
    s->n_stored = 0;
    if (set->fail_embed > 0 && atomic_fetch_sub(&set->fail_embed, 1) == 1)
        return err_set(err, REEL_E_DEVICE, "the fake device failed");
    if (e->progress && !e->progress(e->progress_user, "embedding", (uint64_t)at, (uint64_t)at))
        return err_set(err, REEL_E_CANCELLED, "cancelled");
    return REEL_OK;
}

void fake_hidden(const int32_t *ids, int n, float *hidden) {
    uint64_t h = 1;
    for (int i = 0; i < n; i++)
        h = mix(h, (uint64_t)ids[i] + 1);
    for (int j = 0; j < FAKE_HIDDEN; j++)
        hidden[j] = number(mix(h, (uint64_t)j));
}

/* Evaluates the id that its reader is about to see before showing it. */
static enum reel_status fake_decode(struct backend_state *s, const struct backend_decode *d,
                                    struct reel_error *err) {
    float logits[FAKE_VOCAB];
    int32_t id = d->id;
    if (s->backend->settings->refuses_decode) return err_set(err, REEL_E_UNSUPPORTED, "not these");
    for (int i = 0; i < d->max_tokens; i++) {
        struct backend_eval e = { .position = d->position + i,
                                  .n = 1,
                                  .ids = &id,
                                  .output = REEL_OUTPUT_LAST_LOGITS,
                                  .out = logits,
                                  .cancel = d->cancel };
        enum reel_status status = fake_eval(s, &e, err);
        if (status != REEL_OK) return status;
        id = d->draw(d->user, logits, d->position + i + 1);
        if (id < 0) return err_set(err, REEL_E_DEVICE, "nothing to draw");
        if (e.position + 1 < s->max_positions) s->prefix[e.position + 2] = 666; /* ran ahead */
        const bool enough = d->enough && d->enough(d->user);
        if (!d->on_id(d->user, id) || enough) break;
    }
    return REEL_OK;
}

/* ---- passes ---- */

/* The column's part of a pass: one id. True: it is over. */
static bool decode_column(struct backend_column *c, int made, int32_t *id) {
    struct fake_settings *set = c->state->backend->settings;
    const struct backend_decode *d = c->decode;
    float logits[FAKE_VOCAB];
    const struct backend_eval e = { .position = d->position + made,
                                    .n = 1,
                                    .ids = id,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .cancel = d->cancel };
    if (set->refuses_columns)
        c->status = err_set(&c->err, REEL_E_UNSUPPORTED, "not these");
    else if (atomic_load(&set->fail_column) > 0 && atomic_fetch_sub(&set->fail_column, 1) == 1)
        c->status = err_set(&c->err, REEL_E_DEVICE, "the fake column failed");
    else
        c->status = evaluate(c->state, &e, true, &c->err);
    if (c->status != REEL_OK) return true;
    *id = d->draw(d->user, logits, e.position + 1);
    if (*id < 0) {
        c->status = err_set(&c->err, REEL_E_DEVICE, "nothing to draw");
        return true;
    }
    const bool enough = d->enough(d->user);
    return !d->on_id(d->user, *id) || enough || made + 1 == d->max_tokens;
}

static void check_batch(const struct backend *backend, const struct backend_batch *batch) {
    bool wrong = batch->n < 1 || batch->n > backend->settings->columns;
    for (int i = 0; i < batch->n; i++) {
        const struct backend_column *c = &batch->columns[i];
        if (c->over || c->decode->max_tokens < 1) wrong = true;
        for (int j = 0; j < i; j++)
            if (batch->columns[j].state == c->state) wrong = true;
    }
    if (wrong) abort();
}

static void fake_step(struct backend *backend, const struct backend_batch *batch) {
    struct fake_settings *set = backend->settings;
    int32_t ids[64];
    bool over = false;
    check_batch(backend, batch);
    atomic_fetch_add(&set->n_steps, 1);
    if (atomic_load(&set->evals_inside) > 0) atomic_fetch_add(&set->n_steps_behind_evals, 1);
    atomic_fetch_add(&set->steps_inside, 1);
    if (batch->n > atomic_load(&set->most_of_a_pass)) atomic_store(&set->most_of_a_pass, batch->n);
    for (int i = 0; i < batch->n; i++)
        ids[i] = batch->columns[i].decode->id;
    for (int made = 0; !over; made++) {
        (void)take_time(set, NULL);
        atomic_fetch_add(&set->n_passes, 1);
        for (int i = 0; i < batch->n; i++) {
            struct backend_column *c = &batch->columns[i];
            c->over = decode_column(c, made, &ids[i]);
            over = over || c->over;
        }
        if (batch->enough(batch->user)) break;
    }
    if (set->queues) (void)take_time(set, NULL);
    atomic_fetch_sub(&set->steps_inside, 1);
}

static size_t fake_save_bytes(const struct backend_state *s, int n) {
    (void)s;
    return (size_t)n * sizeof(uint64_t);
}

static enum reel_status fake_save(const struct backend_state *s, int n, void *bytes,
                                  struct reel_error *err) {
    if (n > s->n_stored) return err_set(err, REEL_E_MISMATCH, "saves what was not evaluated");
    memcpy(bytes, s->prefix + 1, (size_t)n * sizeof *s->prefix);
    return REEL_OK;
}

static enum reel_status fake_restore(struct backend_state *s, int n, const void *bytes,
                                     size_t n_bytes, struct reel_error *err) {
    if (n < 0 || n > s->max_positions || n_bytes != (size_t)n * sizeof *s->prefix)
        return err_set(err, REEL_E_FORMAT, "%zu bytes are not %d positions", n_bytes, n);
    memcpy(s->prefix + 1, bytes, n_bytes);
    s->n_stored = n;
    return REEL_OK;
}

static enum reel_status fake_copy(struct backend_state *dst, const struct backend_state *src, int n,
                                  struct reel_error *err) {
    if (n > src->n_stored || n > dst->max_positions)
        return err_set(err, REEL_E_MISMATCH, "copies %d of %d positions", n, src->n_stored);
    memcpy(dst->prefix + 1, src->prefix + 1, (size_t)n * sizeof *dst->prefix);
    dst->n_stored = n;
    return REEL_OK;
}

#define FAKE_OPS(decode_call, step_call, embed_call)                                               \
    {                                                                                              \
        .name = "fake", .open = fake_open, .close = fake_close, .info = fake_info,                 \
        .state_open = fake_state_open, .state_close = fake_state_close, .eval = fake_eval,         \
        .decode = decode_call, .step = step_call, .resume = fake_resume, .embed = embed_call,      \
        .save_bytes = fake_save_bytes, .save = fake_save, .restore = fake_restore,                 \
        .copy = fake_copy                                                                          \
    }
static const struct backend_ops fake_backend = FAKE_OPS(NULL, NULL, NULL);
static const struct backend_ops fake_batching_backend = FAKE_OPS(NULL, fake_step, NULL);
static const struct backend_ops fake_embedding_backend = FAKE_OPS(NULL, NULL, fake_embed);
static const struct backend_ops fake_decoding_backend = FAKE_OPS(fake_decode, fake_step, NULL);

/* In the byte alphabet, C3 is U+00C3, A9 is U+00A9 and the space is U+0120. */
static const char tokenizer_json[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{"
    "\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8,\"j\":9,\"k\":10,"
    "\"l\":11,\"m\":12,\"n\":13,\"o\":14,\"p\":15,\"q\":16,\"r\":17,\"s\":18,\"t\":19,\"u\":20,"
    "\"v\":21,\"w\":22,\"x\":23,\"y\":24,\"z\":25,\"ab\":26,\"cde\":27,\"\\u00c3\":28,"
    "\"\\u00a9\":29,\"\\u0120\":30},\"merges\":[\"a b\"]},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
    "{\"id\":31,\"content\":\"<end>\",\"special\":true},"
    "{\"id\":32,\"content\":\"<think>\",\"special\":false}]}";

static enum reel_status load_tokenizer(struct reel_tokenizer **tok, struct reel_error *err) {
    const struct reel_memory_file file = { "tokenizer.json", tokenizer_json,
                                           sizeof tokenizer_json - 1 };
    struct model_source source = { 0 };
    enum reel_status status = model_source_open_memory(&source, "fake", &file, 1, err);
    if (status == REEL_OK) status = tokenizer_load(tok, &source, NULL, NULL, err);
    model_source_release(&source);
    return status;
}

void fake_model_close(struct reel_model *handle) {
    if (!handle) return;
    model_handle_stop(handle);
    tokenizer_close(handle->model.tokenizer);
    free(handle->model.name);
    free(handle);
}

struct reel_model *fake_model_open(struct fake_settings *settings, struct reel_error *err) {
    struct reel_model *handle = NULL;
    const struct backend_options options = { .progress_user = settings };
    const struct backend_ops *ops = settings->decodes   ? &fake_decoding_backend
                                    : settings->embeds  ? &fake_embedding_backend
                                    : settings->columns ? &fake_batching_backend
                                                        : &fake_backend;
    enum reel_status status = mem_zeroed(&handle, 1, sizeof *handle, "a model", err);
    if (status != REEL_OK) return NULL;
    handle->prompt_slice = settings->prompt_slice;
    struct model_config *c = &handle->model.config;
    c->vocab = FAKE_VOCAB;
    c->hidden = FAKE_HIDDEN;
    c->max_context = FAKE_CONTEXT;
    c->n_layers = c->n_heads = c->n_kv_heads = 1;
    c->head_dim = FAKE_HIDDEN;
    c->stop_ids[0] = FAKE_END;
    c->n_stop_ids = 1;
    status = mem_text(&handle->model.name, "fake", 4, "a name", err);
    if (status == REEL_OK) status = load_tokenizer(&handle->model.tokenizer, err);
    if (status == REEL_OK) status = model_handle_start(handle, ops, &options, err);
    if (status == REEL_OK) return handle;
    fake_model_close(handle);
    return NULL;
}
