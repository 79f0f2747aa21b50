/* Packed texts. They are cut into passes of whole texts, as many as a chunk of a prompt has tokens.
 * Two passes are in the device's queue at a time, each with a slot of memory of its own: while one
 * runs, the host fills in the next and takes the vectors of the one before. The vectors of a pass
 * come into the host's memory by its last launch but one. A text that is longer than a chunk is
 * evaluated as any prompt. */
#include "cuda/run/cuda_packed.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_eval.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "plan/plan_layout.h"

#include <string.h>

/* ---- the program ----------------------------------------------------------------------------- */

bool cuda_packs(const struct backend *b) {
    return cuda_prefills(b) && b->plan.delta.n_layers == 0 && b->plan.n_gpus == 1;
}

struct cuda_kernel_shape cuda_packed_kernel(const struct backend *b, int kernel) {
    struct cuda_kernel_shape k;
    switch (kernel) {
    case PACKED_ROPE:
        k = cuda_prefill_kernel(b, PREFILL_ROPE);
        k.name = "packed_rope";
        return k;
    case PACKED_ATTENTION:
        k = cuda_prefill_kernel(b, PREFILL_ATTENTION);
        k.name = "packed_attention";
        return k;
    default:
        return (struct cuda_kernel_shape){ "packed_vectors", PLAN_PREFILL_CONSUMERS, 0, 0 };
    }
}

enum reel_status cuda_packed_open(struct backend *b, struct reel_error *err) {
    struct cuda_packed *p = &b->packed;
    if (!cuda_packs(b)) return REEL_OK;
    p->mutex_made = pthread_mutex_init(&p->mutex, NULL) == 0;
    return p->mutex_made ? REEL_OK : err_memory(err, "a mutex", sizeof p->mutex);
}

void cuda_packed_unload(struct backend *b) {
    cuda_module_unload(&b->gpu, b->packed.module);
    b->packed.module = NULL;
}

void cuda_packed_close(struct backend *b) {
    if (b->packed.mutex_made) pthread_mutex_destroy(&b->packed.mutex);
}

static enum reel_status open_program(struct backend *b, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    pthread_mutex_lock(&b->packed.mutex);
    if (!b->packed.module) status = cuda_open_packed_kernels(b, err);
    pthread_mutex_unlock(&b->packed.mutex);
    return status;
}

/* ---- a session's buffers --------------------------------------------------------------------- */

enum { SLOTS = GPU_PACKED_SLOTS };

/* What one pass needs, and what it is while it is in the queue. */
struct slot {
    struct decode_mailbox *mailbox;
    cu_address mailbox_address;
    int32_t *words; /* as the layout has them: the host's */
    cu_address device_words;
    const float *vectors; /* f32 [texts, hidden], as the device leaves them */
    cu_address vectors_address;
    struct cuda_run run;
    int first_text, n_texts; /* n_texts 0: no pass is in the queue */
    int n_tokens;
};

struct packed_buffers {
    struct gpu_packed_layout at;
    void *host;
    cu_address device;
    struct slot slot[SLOTS];
};

void cuda_packed_buffers_release(struct packed_buffers *buffers, const struct backend *b) {
    if (!buffers) return;
    if (!cuda_untouchable(b)) {
        cuda_free(&b->gpu, buffers->device);
        cuda_host_free(&b->gpu, buffers->host);
    }
    mem_free(buffers);
}

static enum reel_status take_buffers(struct backend_state *s, struct reel_error *err) {
    const struct backend *b = s->backend;
    struct packed_buffers *p = NULL;
    cu_address host_address = 0;
    if (s->packed) return REEL_OK;
    enum reel_status status = mem_zeroed(&p, 1, sizeof *p, "packed texts", err);
    if (status != REEL_OK) return status;
    p->at = gpu_packed_layout(&b->plan);
    status = cuda_part_alloc(&b->gpu, &s->memory, GPU_PACKED, &p->device, err);
    if (status == REEL_OK)
        status = cuda_part_host_alloc(&b->gpu, &s->memory, GPU_PACKED_HOST, &p->host, &host_address,
                                      err);
    if (status != REEL_OK) {
        cuda_packed_buffers_release(p, b);
        return status;
    }
    memset(p->host, 0, SLOTS * p->at.slot_bytes);
    for (size_t i = 0; i < SLOTS; i++) {
        const size_t from = i * p->at.slot_bytes;
        char *base = (char *)p->host + from;
        p->slot[i] = (struct slot){ .mailbox = (struct decode_mailbox *)(void *)base,
                                    .mailbox_address = host_address + from,
                                    .words = (int32_t *)(void *)(base + p->at.words),
                                    .device_words = p->device + i * p->at.word_bytes,
                                    .vectors = (const float *)(void *)(base + p->at.vectors),
                                    .vectors_address = host_address + from + p->at.vectors };
    }
    s->packed = p;
    return REEL_OK;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* One call of cuda_embed. */
struct packing {
    struct backend_state *s;
    const struct backend_embed *e;
    const int32_t *ids; /* of the next text */
    int next;           /* text that is in no pass yet */
    int n_done;         /* texts whose vectors are out */
    uint64_t read, all; /* tokens of those, and of all texts */
    int most_tokens;    /* of a pass */
    int turn;           /* the slot of the next pass */
};

static bool goes_on(const struct packing *p) {
    if (p->e->cancel && atomic_load(p->e->cancel)) return false;
    return !p->e->progress || p->e->progress(p->e->progress_user, "embedding", p->read, p->all);
}

/* Puts whole texts into a slot, as many as it holds. */
static void fill_slot(struct packing *p, struct slot *slot) {
    const struct gpu_packed_layout *at = &p->s->packed->at;
    int32_t *ids = slot->words, *firsts = ids + at->tokens, *lasts = firsts + at->tokens;
    int n = 0, texts = 0;
    slot->first_text = p->next;
    while (p->next < p->e->n_texts && texts < at->texts &&
           p->e->lengths[p->next] <= p->most_tokens - n) {
        const int length = p->e->lengths[p->next++];
        memcpy(ids + n, p->ids, (size_t)length * sizeof *ids);
        for (int i = 0; i < length; i++)
            firsts[n + i] = n;
        p->ids += length, n += length;
        lasts[texts++] = n - 1;
    }
    slot->n_texts = texts, slot->n_tokens = n;
}

static void give_slot(const struct packing *p, const struct slot *slot, struct packed_args *args) {
    const struct gpu_packed_layout *at = &p->s->packed->at;
    const cu_address words = slot->device_words;
    const cu_address token_bytes = (cu_address)at->tokens * sizeof(int32_t);
    cuda_prefill_start(p->s, &args->prefill);
    args->prefill.decode.mailbox = cuda_pointer(slot->mailbox_address);
    args->prefill.decode.n_tokens = args->prefill.decode.n_given = slot->n_tokens;
    args->prefill.decode.ids = cuda_pointer(words);
    args->firsts = cuda_pointer(words + token_bytes);
    args->lasts = cuda_pointer(words + 2 * token_bytes);
    args->vectors = cuda_pointer(slot->vectors_address);
    args->n_texts = slot->n_texts;
}

static enum reel_status submit_pass(struct packing *p, struct slot *slot, struct reel_error *err) {
    const struct gpu_packed_layout *at = &p->s->packed->at;
    struct packed_args args;
    fill_slot(p, slot);
    give_slot(p, slot, &args);
    const struct cuda_pass pass = { .mailbox = slot->mailbox,
                                    .args = &args,
                                    .to = slot->device_words,
                                    .words = slot->words,
                                    .n_bytes = at->word_bytes };
    const enum reel_status status = cuda_submit_pass(&slot->run, p->s, &pass, err);
    if (status != REEL_OK) slot->n_texts = 0;
    return status;
}

/* Waits for the pass that is in a slot, if one is, and hands out its vectors. */
static enum reel_status end_pass(struct packing *p, struct slot *slot, struct reel_error *err) {
    const struct backend *b = p->s->backend;
    const size_t hidden = (size_t)b->model->config.hidden;
    const int n = slot->n_texts;
    slot->n_texts = 0;
    if (n == 0) return REEL_OK;
    const enum reel_status status = cuda_finish(&slot->run, p->e->cancel, err);
    if (status != REEL_OK) return status;
    if ((int)slot->mailbox->n_evaluated != slot->n_tokens)
        return err_set(err, REEL_E_DEVICE, "%s: a pass ended after %u of %d tokens",
                       b->gpu.facts.name, slot->mailbox->n_evaluated, slot->n_tokens);
    memcpy(p->e->out + (size_t)slot->first_text * hidden, slot->vectors,
           (size_t)n * hidden * sizeof(float));
    p->n_done += n, p->read += (uint64_t)slot->n_tokens;
    return REEL_OK;
}

/* Ends what is in the queue, the older pass first; all of it, also after a failure. */
static enum reel_status end_passes(struct packing *p, enum reel_status status,
                                   struct reel_error *err) {
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &p->s->packed->slot[(p->turn + i) % SLOTS];
        const enum reel_status end = end_pass(p, slot, status == REEL_OK ? err : NULL);
        if (status == REEL_OK) status = end;
    }
    return status;
}

/* The progress of one text as that of all. */
static bool alone_goes_on(void *packing, const char *stage, uint64_t done, uint64_t total) {
    const struct packing *p = packing;
    (void)stage, (void)total;
    return !p->e->progress ||
           p->e->progress(p->e->progress_user, "embedding", p->read + done, p->all);
}

/* A text that no pass holds. It is read chunk by chunk, with nothing else in the queue. */
static enum reel_status read_alone(struct packing *p, struct reel_error *err) {
    const size_t hidden = (size_t)p->s->backend->model->config.hidden;
    const int n = p->e->lengths[p->next];
    const struct backend_eval eval = { .n = n,
                                       .ids = p->ids,
                                       .output = REEL_OUTPUT_LAST_HIDDEN,
                                       .out = p->e->out + (size_t)p->next * hidden,
                                       .cancel = p->e->cancel,
                                       .progress = alone_goes_on,
                                       .progress_user = p };
    enum reel_status status = end_passes(p, REEL_OK, err);
    if (status == REEL_OK) status = cuda_eval(p->s, &eval, err);
    if (status == REEL_OK) p->next++, p->n_done++, p->ids += n, p->read += (uint64_t)n;
    return status;
}

static enum reel_status read_next(struct packing *p, struct reel_error *err) {
    struct slot *slot = &p->s->packed->slot[p->turn];
    if (p->e->lengths[p->next] > p->most_tokens) return read_alone(p, err);
    enum reel_status status = end_pass(p, slot, err);
    if (status == REEL_OK) status = submit_pass(p, slot, err);
    p->turn = (p->turn + 1) % SLOTS;
    return status;
}

static int pass_tokens(const struct backend_state *s) {
    const struct backend *b = s->backend;
    const int n = int_min(b->plan.prefill_tokens, s->max_positions);
    return b->tuning.launch_tokens ? int_min(n, b->tuning.launch_tokens) : n;
}

/* Positions that passes write, at most. Texts that no pass holds take their own. */
static int pass_positions(const struct packing *p) {
    return p->all < (uint64_t)p->most_tokens ? (int)p->all : p->most_tokens;
}

enum reel_status cuda_embed(struct backend_state *s, const struct backend_embed *e,
                            struct reel_error *err) {
    struct packing p = { .s = s, .e = e, .ids = e->ids, .most_tokens = pass_tokens(s) };
    if (!cuda_packs(s->backend))
        return err_set(err, REEL_E_UNSUPPORTED, "%s does not read packed texts of this model",
                       s->backend->gpu.facts.name);
    enum reel_status status = cuda_alive(s->backend, err);
    if (status == REEL_OK) status = open_program(s->backend, err);
    if (status == REEL_OK) status = take_buffers(s, err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < e->n_texts; i++)
        p.all += (uint64_t)e->lengths[i];
    s->n_positions = 0;
    cuda_last_row_invalidate(s, 0);
    status = cuda_pages_reach_all(s, 0, pass_positions(&p), err);
    while (status == REEL_OK && p.next < e->n_texts && goes_on(&p))
        status = read_next(&p, err);
    status = end_passes(&p, status, err);
    s->n_positions = 0;
    cuda_last_row_invalidate(s, 0);
    cuda_pages_keep(s, 0);
    if (status == REEL_OK && p.n_done < e->n_texts)
        return err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d texts", p.n_done,
                       e->n_texts);
    return status;
}
