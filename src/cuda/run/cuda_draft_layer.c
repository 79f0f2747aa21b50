/* What is known of positions lies in `hidden` and `ids`, the oldest first: position i of the list
 * is the session's span.first + span.n_slots + i. A slot needs the id of the position behind it, so
 * the last known position waits for that.
 *
 * Of a layer of multi-token prediction a slot's input is made of both. Of an EAGLE-3 head it is
 * made of the hidden states alone, and what the id adds to q, k and v is given as biases are. A
 * further guess has what the layer made of the slot before in place of hidden states; that is an
 * EAGLE-3 head's input as it is. */
#include "cuda/run/cuda_draft_layer.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_eval.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_state.h"
#include "kernels/draft_args.h"
#include "model/draft_model.h"
#include "model/dtype.h"
#include "model/model.h"
#include "model/weights_quantize.h"
#include "plan/plan_layout.h"

#include <string.h>

_Static_assert((int)ARGS_TAPS == (int)DRAFT_TAPS, "kernels leave what a head sees");

enum { NAN_BYTE = 0xff };
enum { WAITING = 8 }; /* known positions that wait for a guess; more become slots at once */
enum { MOST_GUESSES = PLAN_MOST_COLUMNS - 1 }; /* in the queue at a time */

struct cuda_draft_layer {
    struct draft_model draft;
    struct model model; /* of one layer, that `backend` runs; its parts are draft's */
    struct backend *backend;
    struct cu_module *module;
    struct cuda_function halves, product;
    cu_address fc, gains; /* as struct draft_args has them */
    /* An EAGLE-3 head's; 0: of others, and the embedding where it is the model's. */
    cu_address of_id; /* the id's part of q, k and v, as struct draft_matrix has it */
    cu_address embedding, meant;
};

struct cuda_draft_state {
    struct backend_state *slots; /* slot i is that of position span.first + i */
    struct draft_span span;
    cu_address hidden;     /* f32 [WAITING + gpu_most_given, known_parts, hidden] */
    cu_address told;       /* f32 [hidden] what the layer made of the last slot, for the next one */
    cu_address halves;     /* u32 [DRAFT_POSITIONS, 1 + known_parts, hidden] */
    cu_address biases;     /* f32 [DRAFT_POSITIONS, bias_rows], an EAGLE-3 head's; or 0 */
    cu_address device_ids; /* i32 [DRAFT_POSITIONS] */
    int32_t *ids;          /* [WAITING + gpu_most_given + 1] */
    bool *raw;             /* [WAITING + gpu_most_given]: the hidden state lacks the final norm */
    bool failed;
    /* Guesses in the queue. The id of each is the first of its mailbox. A launch would wait for the
     * host's memory: it takes the id from the device's. */
    struct cuda_run runs[MOST_GUESSES];
    int n_runs;
    struct decode_mailbox *mailboxes; /* [MOST_GUESSES], which the device sees too, */
    cu_address mailbox_address;       /* there */
    cu_address guesses;               /* i32 [MOST_GUESSES] the same ids, for launches */
};

static bool is_head(const struct backend *b) {
    return b->model->weights.draft.kind == DRAFT_EAGLE3;
}

bool cuda_guesses(const struct backend *b) {
    return b->model->weights.draft.n_parameters > 0 && (!is_head(b) || b->plan.taps[0] > 0) &&
           b->gpu.n == 1 && b->model->config.hidden % 16 == 0 && cuda_drafts_possible(b) > 0;
}

void cuda_draft_plan(struct plan *plan, const struct model *model) {
    const struct draft_weights *draft = &model->weights.draft;
    const bool head = draft->n_parameters > 0 && draft->kind == DRAFT_EAGLE3;
    if (head && plan->n_gpus == 1 && plan->delta.n_layers == 0)
        memcpy(plan->taps, draft->taps, sizeof draft->taps);
}

/* Vectors of `hidden` numbers that are known of a position. */
static int known_parts(const struct backend *b) { return is_head(b) ? DRAFT_TAPS : 1; }

size_t cuda_draft_row_bytes(const struct backend *b) {
    return (size_t)known_parts(b) * (size_t)b->model->config.hidden * sizeof(float);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Rows that lie on tiles of 16 by 16, in the order of kernels/draft_args.h. */
struct tiles {
    uint16_t *at;
    int rows, columns;
    float *row; /* f32 [columns] */
};

/* The rows of m, from row `first` of the tiles on. */
static void pack_rows(const struct tiles *t, int first, const struct matrix *m) {
    const int k_tiles = t->columns / 16;
    for (int i = 0; i < m->rows; i++) {
        const int r = first + i;
        matrix_row_f32(m, i, t->row);
        for (int k = 0; k < t->columns; k++) {
            const int lane = r % 8 * 4 + k % 8 / 2, word = r % 16 / 8 + k % 16 / 8 * 2;
            const size_t tile = (size_t)(r / 16) * (size_t)k_tiles + (size_t)(k / 16);
            t->at[tile * 256 + (size_t)(lane * 8 + word * 2 + k % 2)] = bf16_from_f32(t->row[k]);
        }
    }
}

static enum reel_status upload(const struct backend *b, cu_address *to, const void *from,
                               size_t bytes, const char *what, struct reel_error *err) {
    enum reel_status status = cuda_alloc(&b->gpu, to, bytes, what, err);
    return status == REEL_OK ? cuda_upload(&b->gpu, *to, from, bytes, NULL, err) : status;
}

static enum reel_status tiles_open(struct tiles *t, int rows, int columns, struct reel_error *err) {
    *t = (struct tiles){ .rows = rows, .columns = columns };
    enum reel_status status = mem_zeroed(&t->at, (size_t)rows * (size_t)columns, sizeof *t->at,
                                         "matrices of a draft layer", err);
    if (status != REEL_OK) return status;
    return mem_zeroed(&t->row, (size_t)columns, sizeof *t->row, "a row of a draft layer", err);
}

/* Uploads the tiles, and gives their memory back. */
static enum reel_status tiles_end(struct tiles *t, enum reel_status status, const struct backend *b,
                                  cu_address *to, struct reel_error *err) {
    const size_t n = (size_t)t->rows * (size_t)t->columns;
    if (status == REEL_OK)
        status = upload(b, to, t->at, n * sizeof *t->at, "matrices of a draft layer", err);
    mem_free(t->at);
    mem_free(t->row);
    return status;
}

static enum reel_status upload_fc(struct cuda_draft_layer *l, const struct backend *b,
                                  struct reel_error *err) {
    const struct matrix *fc = &b->model->weights.draft.fc;
    struct tiles t;
    const enum reel_status status = tiles_open(&t, fc->rows, fc->columns, err);
    if (status == REEL_OK) pack_rows(&t, 0, fc);
    return tiles_end(&t, status, b, &l->fc, err);
}

static enum reel_status upload_gains(struct cuda_draft_layer *l, const struct backend *b,
                                     struct reel_error *err) {
    const struct draft_weights *w = &b->model->weights.draft;
    const size_t hidden = (size_t)b->model->config.hidden;
    float *both = NULL;
    enum reel_status status = mem_zeroed(&both, 2 * hidden, sizeof *both, "norms", err);
    if (status != REEL_OK) return status;
    memcpy(both, w->embedding_norm, hidden * sizeof *both);
    memcpy(both + hidden, w->hidden_norm, hidden * sizeof *both);
    status = upload(b, &l->gains, both, 2 * hidden * sizeof *both, "a draft layer's norms", err);
    mem_free(both);
    return status;
}

static int bias_rows(const struct cuda_draft_layer *l) { return plan_bias_rows(&l->backend->plan); }

/* With rows of 0 where the plan has heads that the head has not. */
static enum reel_status upload_of_id(struct cuda_draft_layer *l, const struct backend *b,
                                     struct reel_error *err) {
    const struct draft_weights *w = &b->model->weights.draft;
    const struct plan *p = &l->backend->plan;
    struct tiles t;
    const enum reel_status status = tiles_open(&t, bias_rows(l), w->id_q.columns, err);
    if (status == REEL_OK) {
        pack_rows(&t, 0, &w->id_q);
        pack_rows(&t, plan_q_rows(p), &w->id_k);
        pack_rows(&t, plan_q_rows(p) + plan_kv_rows(p), &w->id_v);
    }
    return tiles_end(&t, status, b, &l->of_id, err);
}

/* An embedding of the head's own, as bf16. */
static enum reel_status upload_embedding(struct cuda_draft_layer *l, const struct backend *b,
                                         struct reel_error *err) {
    const struct matrix *m = &b->model->weights.draft.embedding;
    const size_t columns = (size_t)m->columns, bytes = columns * sizeof(uint16_t);
    uint16_t *codes = NULL;
    float *row = NULL;
    if (m->rows == 0) return REEL_OK;
    enum reel_status status =
        cuda_alloc(&b->gpu, &l->embedding, (size_t)m->rows * bytes, "a head's embedding", err);
    if (status == REEL_OK)
        status = mem_zeroed(&codes, (size_t)m->rows * columns, sizeof *codes, "an embedding", err);
    if (status == REEL_OK) status = mem_zeroed(&row, columns, sizeof *row, "a row", err);
    for (int i = 0; i < m->rows && status == REEL_OK; i++) {
        matrix_row_f32(m, i, row);
        for (size_t k = 0; k < columns; k++)
            codes[(size_t)i * columns + k] = bf16_from_f32(row[k]);
    }
    if (status == REEL_OK)
        status = cuda_upload(&b->gpu, l->embedding, codes, (size_t)m->rows * bytes, NULL, err);
    mem_free(codes);
    mem_free(row);
    return status;
}

static enum reel_status upload_head(struct cuda_draft_layer *l, const struct backend *b,
                                    struct reel_error *err) {
    const struct draft_weights *w = &b->model->weights.draft;
    enum reel_status status = upload_of_id(l, b, err);
    if (status == REEL_OK) status = upload_embedding(l, b, err);
    if (status != REEL_OK) return status;
    return upload(b, &l->meant, w->ids, (size_t)w->head.rows * sizeof *w->ids, "a head's ids", err);
}

static enum reel_status open_with(struct cuda_draft_layer *l, const struct backend *b,
                                  const char *gpu_options, struct reel_error *err) {
    const struct backend_options options = { .devices = { .index = { b->gpu.index }, .n = 1 },
                                             .rounding = REEL_ROUNDING_FAST,
                                             .kv = (enum kv_form)b->plan.kv_form,
                                             .cache_dir = b->later.cache_dir,
                                             .gpu_options = gpu_options,
                                             .cuda_dir = b->later.cuda_dir,
                                             .nvrtc_dir = b->later.nvrtc_dir };
    l->model = (struct model){ .name = b->model->name,
                               .config = l->draft.config,
                               .weights = l->draft.weights };
    return cuda_backend.open(&l->backend, &l->model, &options, err);
}

/* Most of what a guess reads is the output matrix. With half the bits one of Qwen3.5-0.8B takes a
 * sixth less on an H200. What has no such codes guesses as it is. */
static void narrow(struct cuda_draft_layer *l, const struct backend *b) {
    const struct quantize_options how = { .form = WEIGHTS_INT8, .name = b->model->name };
    if (b->tuning.draft_int8) (void)!weights_quantize(&l->draft.weights, &how, NULL);
}

static enum reel_status open_model(struct cuda_draft_layer *l, const struct backend *b,
                                   struct reel_error *err) {
    struct buffer gpu_options = { 0 };
    draft_model_fill(&l->draft, &b->model->config, &b->model->weights);
    l->draft.config.tied = true; /* embeddings are given: nothing is looked up */
    l->draft.weights.embedding = l->draft.weights.head;
    narrow(l, b);
    enum reel_status status =
        buffer_printf(&gpu_options, err, "%s,narrow=1", /* it is small, but always read whole */
                      b->later.gpu_options ? b->later.gpu_options : "");
    if (status == REEL_OK) status = open_with(l, b, gpu_options.bytes, err);
    buffer_release(&gpu_options);
    return status;
}

static void layer_close(struct cuda_draft_layer *l, const struct backend *b) {
    if (!l) return;
    if (l->backend && b->hung) l->backend->hung = true;
    if (!cuda_untouchable(b)) {
        const cu_address all[] = { l->fc, l->gains, l->of_id, l->embedding, l->meant };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            cuda_free(&b->gpu, all[i]);
        cuda_module_unload(&b->gpu, l->module);
    }
    cuda_backend.close(l->backend);
    quantized_weights_release(l->draft.weights.quantized);
    mem_free(l);
}

static enum reel_status layer_open(struct cuda_draft_layer **out, struct backend *b,
                                   struct reel_error *err) {
    struct cuda_draft_layer *l = NULL;
    enum reel_status status = mem_zeroed(&l, 1, sizeof *l, "the draft layer", err);
    if (status != REEL_OK) return status;
    status = cuda_open_draft_kernels(b, &l->module, &l->halves, &l->product, err);
    if (status == REEL_OK) status = upload_fc(l, b, err);
    if (status == REEL_OK) status = upload_gains(l, b, err);
    if (status == REEL_OK) status = open_model(l, b, err);
    if (status == REEL_OK && is_head(b)) status = upload_head(l, b, err);
    if (status == REEL_OK)
        *out = l;
    else
        layer_close(l, b);
    return status;
}

void cuda_draft_layer_close(struct backend *b) {
    layer_close(b->draft_layer, b);
    b->draft_layer = NULL;
}

/* ---- a session's ----------------------------------------------------------------------------- */

static void state_close(struct cuda_draft_state *d, const struct backend *b) {
    if (!d) return;
    if (!cuda_untouchable(b)) {
        const cu_address all[] = { d->hidden, d->told,       d->halves,
                                   d->biases, d->device_ids, d->guesses };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            cuda_free(&b->gpu, all[i]);
        cuda_host_free(&b->gpu, d->mailboxes);
    }
    cuda_state_close(d->slots);
    mem_free(d->ids);
    mem_free(d->raw);
    mem_free(d);
}

void cuda_draft_state_close(struct backend_state *s) {
    state_close(s->drafts, s->backend);
    s->drafts = NULL;
}

static enum reel_status state_open(struct cuda_draft_state **out, const struct backend_state *s,
                                   struct reel_error *err) {
    const struct backend *b = s->backend;
    const size_t most = (size_t)(WAITING + gpu_most_given(&b->plan));
    const size_t part = (size_t)b->model->config.hidden * sizeof(float);
    const size_t rows = is_head(b) ? (size_t)bias_rows(b->draft_layer) : 0;
    struct cuda_draft_state *d = NULL;
    enum reel_status status = mem_zeroed(&d, 1, sizeof *d, "a draft layer's state", err);
    if (status != REEL_OK) return status;
    const struct {
        cu_address *at;
        size_t bytes;
    } all[] = { { &d->hidden, most * cuda_draft_row_bytes(b) },
                { &d->told, part },
                { &d->halves, DRAFT_POSITIONS * (part + cuda_draft_row_bytes(b)) },
                { &d->biases, DRAFT_POSITIONS * rows * sizeof(float) },
                { &d->device_ids, (size_t)DRAFT_POSITIONS * sizeof *d->ids },
                { &d->guesses, MOST_GUESSES * sizeof *d->ids } };
    status = mem_zeroed(&d->ids, most + 1, sizeof *d->ids, "ids for drafts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&d->raw, most, sizeof *d->raw, "hidden states for drafts", err);
    void *mailboxes = NULL;
    if (status == REEL_OK)
        status = cuda_host_alloc(&b->gpu, &mailboxes, &d->mailbox_address,
                                 MOST_GUESSES * sizeof *d->mailboxes, "mailboxes of guesses", err);
    d->mailboxes = mailboxes;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++) {
        if (all[i].bytes == 0) continue;
        status = cuda_alloc(&b->gpu, all[i].at, all[i].bytes, "hidden states for drafts", err);
        if (status == REEL_OK && b->tuning.poison)
            status = cuda_fill(&b->gpu, *all[i].at, NAN_BYTE, all[i].bytes, NULL, err);
    }
    if (status == REEL_OK)
        status = cuda_state_open(&d->slots, b->draft_layer->backend, s->max_positions, err);
    if (status == REEL_OK)
        status = cuda_state_need(d->slots, GPU_GIVEN_EMBEDDINGS, &d->slots->embeddings, err);
    if (status == REEL_OK) d->slots->given_biases = d->biases;
    if (status == REEL_OK)
        *out = d;
    else
        state_close(d, b);
    return status;
}

enum reel_status cuda_guess_begin(struct backend_state *s, struct reel_error *err) {
    struct backend *b = s->backend;
    enum reel_status status = REEL_OK;
    if (s->drafts) return REEL_OK;
    pthread_mutex_lock(&b->later.mutex);
    if (!b->draft_layer) status = layer_open(&b->draft_layer, b, err);
    pthread_mutex_unlock(&b->later.mutex);
    return status == REEL_OK ? state_open(&s->drafts, s, err) : status;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Where launches leave and find the id of guess i. */
static cu_address guess_id(const struct cuda_draft_state *d, int i) {
    return d->guesses + (cu_address)i * sizeof(int32_t);
}

/* Where the device sees the mailbox of guess i. */
static cu_address guess_mailbox(const struct cuda_draft_state *d, int i) {
    return d->mailbox_address + (cu_address)i * sizeof *d->mailboxes;
}

/* n positions' hidden states, as struct draft_args has them. */
struct states {
    int n;
    cu_address hidden;
    unsigned raw;
};

/* Of known positions. Those from the WAITING-th on were evaluated together, so they are of a kind.
 */
static struct states known_states(const struct backend_state *s, int from, int n) {
    const struct cuda_draft_state *d = s->drafts;
    struct states k = { n, d->hidden + (cu_address)from * cuda_draft_row_bytes(s->backend), 0 };
    _Static_assert((int)WAITING < 32, "struct draft_args has so many bits");
    for (int i = 0; i < 32; i++)
        k.raw |= (unsigned)d->raw[from + int_min(i, n - 1)] << i;
    return k;
}

/* The matrices that inputs of slots are products of. told: what is known of the only one is what
 * the layer made of the slot before. */
static void give_matrices(const struct backend *b, const struct cuda_draft_state *d, bool told,
                          struct draft_args *args) {
    const struct cuda_draft_layer *l = b->draft_layer;
    const int tiles = b->model->config.hidden / 16;
    const struct draft_matrix fc = { .tiles = cuda_pointer(l->fc),
                                     .row_tiles = tiles,
                                     .k_tiles = b->model->weights.draft.fc.columns / 16,
                                     .part = is_head(b),
                                     .out = cuda_pointer(d->slots->embeddings) };
    args->parts = 1 + known_parts(b);
    args->matrix[0] = fc;
    if (!is_head(b)) return;
    const struct draft_matrix of_id = { .tiles = cuda_pointer(l->of_id),
                                        .row_tiles = bias_rows(l) / 16,
                                        .k_tiles = tiles,
                                        .out = cuda_pointer(d->biases) };
    args->matrix[told ? 0 : 1] = of_id;
    if (told) args->parts = 1;
}

/* Launches what makes the inputs of slots. */
static enum reel_status launch_inputs(struct backend *b, struct draft_args *args,
                                      struct reel_error *err) {
    const struct cuda_draft_layer *l = b->draft_layer;
    const int row_tiles = args->matrix[0].row_tiles + args->matrix[1].row_tiles;
    const int turns = int_max(1, 2 * b->gpu.facts.n_sms / row_tiles), groups = (args->n + 7) / 8;
    void *arguments[] = { args };
    const struct cuda_launch halves = { .function = &l->halves,
                                        .blocks =
                                            int_min(b->gpu.facts.n_sms, args->parts * args->n),
                                        .threads = DRAFT_THREADS,
                                        .shared_bytes = DRAFT_SHARED_BYTES,
                                        .arguments = arguments };
    const struct cuda_launch product = { .function = &l->product,
                                         .blocks = row_tiles * int_min(turns, groups),
                                         .threads = DRAFT_THREADS,
                                         .shared_bytes = DRAFT_SHARED_BYTES,
                                         .arguments = arguments };
    pthread_mutex_lock(&b->mutex);
    enum reel_status status = cuda_launch(&b->gpu, &halves, err);
    if (status == REEL_OK) status = cuda_launch(&b->gpu, &product, err);
    pthread_mutex_unlock(&b->mutex);
    return status;
}

/* The inputs of slots, of these hidden states and the ids behind them, on their way into
 * slots->embeddings; and into biases. ids NULL: there is one, the last guess in the queue. */
static enum reel_status queue_inputs(const struct backend_state *s, const int32_t *ids,
                                     const struct states *of, struct reel_error *err) {
    struct backend *b = s->backend;
    const struct cuda_draft_layer *l = b->draft_layer;
    const struct cuda_draft_state *d = s->drafts;
    struct draft_args args = { .embedding = cuda_pointer(l->embedding),
                               .gains = cuda_pointer(l->gains),
                               .eps = l->draft.config.rms_eps,
                               .meant = cuda_pointer(l->meant),
                               .n_meant = l->draft.config.vocab,
                               .n = of->n,
                               .hidden = cuda_pointer(of->hidden),
                               .raw = of->raw,
                               .halves = cuda_pointer(d->halves) };
    enum reel_status status = cuda_alive(b, err);
    cuda_args_start(s, &args.model);
    give_matrices(b, d, !ids, &args);
    if (!ids) {
        args.word = cuda_pointer(guess_id(d, d->n_runs - 1));
    } else if (of->n <= DRAFT_FEW) {
        memcpy(args.few, ids, (size_t)of->n * sizeof *ids);
    } else if (status == REEL_OK) {
        args.ids = cuda_pointer(d->device_ids);
        status = cuda_upload(&b->gpu, d->device_ids, ids, (size_t)of->n * sizeof *ids, NULL, err);
    }
    return status == REEL_OK ? launch_inputs(b, &args, err) : status;
}

/* The first n known positions are known no more. */
static enum reel_status drop_known(const struct backend_state *s, int n, struct reel_error *err) {
    const struct backend *b = s->backend;
    struct cuda_draft_state *d = s->drafts;
    const size_t row = cuda_draft_row_bytes(b);
    enum reel_status status = REEL_OK;
    d->span.n_known -= n;
    /* one after the other: no overlap */
    for (int i = 0; i < d->span.n_known && status == REEL_OK; i++)
        status = cuda_queue_copy(&b->gpu, d->hidden + (cu_address)i * row,
                                 d->hidden + (cu_address)(n + i) * row, row, err);
    memmove(d->ids, d->ids + n, (size_t)d->span.n_known * sizeof *d->ids);
    memmove(d->raw, d->raw + n, (size_t)d->span.n_known * sizeof *d->raw);
    return status;
}

/* The first n known positions become slots: their keys and values alone. */
static enum reel_status make_slots(const struct backend_state *s, int n, struct reel_error *err) {
    struct cuda_draft_state *d = s->drafts;
    enum reel_status status = REEL_OK;
    for (int done = 0; done < n && status == REEL_OK;) {
        const int some = int_min(n - done, DRAFT_POSITIONS);
        const struct backend_eval eval = { .position = d->span.n_slots,
                                           .n = some,
                                           .output = REEL_OUTPUT_NONE };
        const struct states known = known_states(s, done, some);
        status = queue_inputs(s, d->ids + done + 1, &known, err);
        if (status == REEL_OK) status = cuda_eval(d->slots, &eval, err);
        done += some, d->span.n_slots += some;
    }
    return status == REEL_OK ? drop_known(s, n, err) : status;
}

/* Puts one more guess into the queue: slots of the n inputs that are on their way, from `slot` on,
 * or are in `inputs`.
 * It is the likeliest id behind the last of them, whose logits then lie in slots->out where they
 * are wanted; `told` is its too. */
static enum reel_status queue_guess(struct cuda_draft_state *d, int slot, int n, cu_address inputs,
                                    bool logits, struct reel_error *err) {
    struct backend_state *slots = d->slots;
    struct decode_args args;
    slots->n_positions = slot;
    enum reel_status status = cuda_pages_reach_all(slots, slot, slot + n, err);
    if (status != REEL_OK) return status;
    cuda_args_start(slots, &args);
    args.position = slot;
    args.n_tokens = args.n_given = n;
    args.embeddings = cuda_pointer(inputs);
    args.head_from = args.hidden_from = n - 1;
    args.hidden = cuda_pointer(d->told);
    args.pick = 1;
    args.mailbox = cuda_pointer(guess_mailbox(d, d->n_runs));
    args.guess = cuda_pointer(guess_id(d, d->n_runs));
    if (logits) args.logits = cuda_pointer(slots->out), args.sampling.adjust = 1;
    struct cuda_run *run = &d->runs[d->n_runs];
    status = cuda_submit_own(run, slots, &d->mailboxes[d->n_runs], &args, err);
    if (status != REEL_OK) return status;
    run->is_waited_for = true;
    slots->n_positions = slot + n;
    d->n_runs++;
    return REEL_OK;
}

/* Waits for a guess's launch to end; its id. */
static enum reel_status end_guess(const struct cuda_draft_layer *l, struct cuda_run *run,
                                  int32_t *id, struct reel_error *err) {
    enum reel_status status = cuda_next_id(run, NULL, id, err);
    if (status != REEL_OK) cuda_stop(run);
    const enum reel_status end = cuda_finish(run, NULL, status == REEL_OK ? err : NULL);
    if (status == REEL_OK) status = end;
    if (status == REEL_OK && (*id < 0 || *id >= l->draft.config.vocab))
        status = err_set(err, REEL_E_DEVICE, "a draft layer's launch ended without an id");
    if (status == REEL_OK && l->draft.weights.draft.ids) *id = l->draft.weights.draft.ids[*id];
    return status;
}

/* ---- following a session --------------------------------------------------------------------- */

static void go_to(struct cuda_draft_state *d, int position) {
    draft_span_go_to(&d->span, position);
    cuda_keep(d->slots, d->span.n_slots);
}

void cuda_draft_forget(struct backend_state *s) {
    struct cuda_draft_state *d = s->drafts;
    if (!d) return;
    d->span = (struct draft_span){ 0 };
    cuda_keep(d->slots, 0);
}

void cuda_draft_keep(struct backend_state *s, int n) {
    if (s->drafts && n < draft_span_end(&s->drafts->span)) go_to(s->drafts, n);
}

bool cuda_draft_lags(const struct backend_state *s, int position) {
    const struct cuda_draft_state *d = s->drafts;
    return d && !d->failed && (d->span.n_known == 0 || draft_span_end(&d->span) != position);
}

static cu_address next_hidden(const struct backend_state *s) {
    return s->drafts->hidden +
           (cu_address)s->drafts->span.n_known * cuda_draft_row_bytes(s->backend);
}

cu_address cuda_draft_hidden(struct backend_state *s, int position) {
    if (!s->drafts) return 0;
    go_to(s->drafts, position);
    return next_hidden(s);
}

enum reel_status cuda_draft_queue_copy(struct backend_state *s, int n, struct reel_error *err) {
    const struct backend *b = s->backend;
    if (!s->drafts || is_head(b)) return REEL_OK;
    return cuda_queue_copy(&b->gpu, next_hidden(s), cuda_prefill_h(b, 0),
                           (size_t)n * cuda_draft_row_bytes(b), err);
}

/* From here on the layer is silent; what the session does shows whether the device is well. */
static void fail(struct backend_state *s) {
    cuda_draft_forget(s);
    s->drafts->failed = true;
}

void cuda_draft_saw(struct backend_state *s, int position, const int32_t *ids, int n, bool raw) {
    struct cuda_draft_state *d = s->drafts;
    struct reel_error why = { 0 };
    if (!d || d->failed) return;
    if (!ids) {
        go_to(d, position + n);
        return;
    }
    memcpy(d->ids + d->span.n_known, ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        d->raw[d->span.n_known + i] = raw;
    d->span.n_known += n;
    if (d->span.n_known > WAITING && make_slots(s, d->span.n_known - 1, &why) != REEL_OK) fail(s);
}

/* Puts guesses into the queue, until `most` are there. logits: those of the last. */
static enum reel_status queue_all(struct backend_state *s, int most, bool logits,
                                  struct reel_error *err) {
    struct cuda_draft_state *d = s->drafts;
    const struct states known = known_states(s, 0, d->span.n_known), told = { 1, d->told, 0 };
    const cu_address inputs = is_head(s->backend) ? d->told : d->slots->embeddings;
    d->n_runs = 0;
    enum reel_status status = queue_inputs(s, d->ids + 1, &known, err);
    if (status == REEL_OK)
        status = queue_guess(d, d->span.n_slots, d->span.n_known, d->slots->embeddings,
                             logits && most == 1, err);
    if (status != REEL_OK) return status;
    draft_span_made(&d->span);
    for (int i = 1; i < most && status == REEL_OK; i++) {
        status = queue_inputs(s, NULL, &told, err);
        if (status == REEL_OK)
            status =
                queue_guess(d, d->span.n_slots + i - 1, 1, inputs, logits && i == most - 1, err);
    }
    return status;
}

static int queue_guesses(struct backend_state *s, int position, int32_t id, int most, bool logits) {
    struct cuda_draft_state *d = s->drafts;
    struct reel_error why = { 0 };
    if (!d || d->failed || cuda_draft_lags(s, position)) return 0;
    /* the slots of all guesses but the last have room */
    most = int_min(most, d->slots->max_positions - d->span.n_slots - d->span.n_known + 1);
    most = int_min(most, MOST_GUESSES);
    if (most < 1) return 0;
    d->ids[d->span.n_known] = id;
    if (queue_all(s, most, logits, &why) == REEL_OK) return most;
    int32_t ids[MOST_GUESSES];
    (void)cuda_guesses_take(s, ids);
    fail(s);
    return 0;
}

int cuda_guesses_queue(struct backend_state *s, int position, int32_t id, int most) {
    return queue_guesses(s, position, id, most, false);
}

void cuda_guesses_give(const struct backend_state *s, struct columns_args *args) {
    const struct cuda_draft_layer *l = s->backend->draft_layer;
    args->guessed = cuda_pointer(guess_id(s->drafts, 0));
    args->meant = cuda_pointer(l->meant);
    args->n_meant = l->draft.config.vocab;
}

int cuda_guesses_take(struct backend_state *s, int32_t *ids) {
    struct cuda_draft_state *d = s->drafts;
    int n = 0;
    bool good = true;
    for (int i = 0; i < d->n_runs; i++) {
        struct reel_error why = { 0 };
        good = end_guess(s->backend->draft_layer, &d->runs[i], &ids[n], &why) == REEL_OK && good;
        n += good;
    }
    d->n_runs = 0;
    if (!good) fail(s);
    return n;
}

int cuda_guess(struct backend_state *s, int position, int32_t id, int32_t *ids, int most,
               float *logits) {
    struct cuda_draft_state *d = s->drafts;
    struct reel_error why = { 0 };
    const int n = queue_guesses(s, position, id, most, logits != NULL);
    if (n == 0 || cuda_guesses_take(s, ids) < n) return 0;
    if (!logits) return n;
    const enum reel_status status =
        cuda_download(&s->backend->gpu, logits, d->slots->out,
                      (size_t)d->slots->backend->model->config.vocab * sizeof *logits, NULL, &why);
    if (status == REEL_OK) return n;
    fail(s);
    return 0;
}
