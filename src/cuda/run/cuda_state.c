/* A session's memory on the GPU: its KV cache, and what launches read and write besides. */
#include "cuda/run/cuda_state.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/measure/cuda_prefill_timer.h"
#include "cuda/run/cuda_last_row.h"
#include "cuda/run/cuda_launch.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_packed.h"
#include "cuda/run/cuda_saved.h"

#include <string.h>

enum { NAN_BYTE = 0xff };

/* ---- host memory that the device sees ---- */

static enum reel_status open_mapped(struct backend_state *s, struct reel_error *err) {
    const struct backend *b = s->backend;
    const struct gpu_mapped_layout at = gpu_mapped_layout(b->model->config.vocab);
    enum reel_status status =
        cuda_part_host_alloc(&b->gpu, &s->memory, GPU_MAPPED, &s->host, &s->host_address, err);
    if (status != REEL_OK) return status;
    char *base = s->host;
    memset(base, 0, at.bytes);
    s->mapped =
        (struct cuda_mapped){ .mailbox = (struct decode_mailbox *)(void *)(base + at.mailbox),
                              .prefill_mailbox =
                                  (struct decode_mailbox *)(void *)(base + at.prefill_mailbox),
                              .ids = (int32_t *)(void *)(base + at.ids),
                              .seen = (unsigned *)(void *)(base + at.seen),
                              .bias = (float *)(void *)(base + at.bias),
                              .logits = (float *)(void *)(base + at.logits) };
    return REEL_OK;
}

/* ---- opening ---- */

static enum reel_status fill_with_nan(const struct backend_state *s, struct reel_error *err) {
    const struct {
        enum gpu_part part;
        cu_address at;
    } all[] = { { GPU_LAST_ROW, s->last_row }, { GPU_OUT, s->out } };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++)
        if (all[i].at)
            status = cuda_fill(&s->backend->gpu, all[i].at, NAN_BYTE,
                               (size_t)s->memory.bytes[all[i].part], NULL, err);
    return status;
}

/* What the kernel leaves when it is compiled with time stamps: see kernels/profile.cuh. */
static enum reel_status open_profile(struct backend_state *s, struct reel_error *err) {
    const struct backend *b = s->backend;
    if (!s->profile) return REEL_OK;
    const size_t n = (size_t)s->memory.bytes[GPU_STAMPS];
    enum reel_status status = cuda_fill(&b->gpu, s->profile, 0, n, NULL, err);
    if (status == REEL_OK && cuda_prefills(b) && b->gpu.n == 1)
        status = cuda_timer_open(&s->prefill_timer, b, err);
    return status;
}

static enum reel_status open_device(struct backend_state *s, struct reel_error *err) {
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const struct {
        enum gpu_part part;
        cu_address *at;
    } all[] = { { GPU_OUT, &s->out },
                { GPU_LAST_ROW, &s->last_row },
                { GPU_ABORT, &s->abort },
                { GPU_IDS, &s->ids },
                { GPU_STAMPS, &s->profile } };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == REEL_OK; i++)
        status = cuda_part_alloc(gpu, &s->memory, all[i].part, all[i].at, err);
    /* by a stream of its own: the others' launches are not waited for */
    if (status == REEL_OK)
        status = cuda_fill(gpu, s->abort, 0, (size_t)s->memory.bytes[GPU_ABORT], s->backend->rescue,
                           err);
    if (status == REEL_OK) status = cuda_wait(gpu, s->backend->rescue, "a session's memory", err);
    if (status == REEL_OK) status = open_profile(s, err);
    if (status == REEL_OK && s->backend->tuning.poison) status = fill_with_nan(s, err);
    return status;
}

enum reel_status cuda_state_need(struct backend_state *s, enum gpu_part part, cu_address *at,
                                 struct reel_error *err) {
    if (*at) return REEL_OK;
    return cuda_part_alloc(&s->backend->gpu, &s->memory, part, at, err);
}

static void state_free(struct backend_state *s) {
    if (!s) return;
    struct backend *b = s->backend;
    cuda_timer_close(s->prefill_timer, b);
    cuda_packed_buffers_release(s->packed, b);
    cuda_pages_close(s);
    cuda_recurrent_close(s);
    if (!cuda_untouchable(b)) {
        const cu_address all[] = { s->out,  s->abort,      s->ids,     s->seen,
                                   s->bias, s->embeddings, s->profile, s->last_row };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            cuda_free(&b->gpu, all[i]);
        cuda_host_free(&b->gpu, s->host);
    }
    mem_free(s);
}

static enum reel_status state_new(struct backend_state **out, struct backend *b, int max_positions,
                                  struct reel_error *err) {
    struct backend_state *s = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "a session", err);
    if (status != REEL_OK) return status;
    s->backend = b;
    s->max_positions = max_positions;
    cuda_memory_plan(&s->memory, b, max_positions);
    s->out_floats = (size_t)s->memory.bytes[GPU_OUT] / sizeof(float);
    cuda_recurrent_open(s);
    status = open_mapped(s, err);
    if (status == REEL_OK) status = open_device(s, err);
    if (status == REEL_OK) status = cuda_pages_open(s, err);
    if (status == REEL_OK)
        *out = s;
    else
        state_free(s);
    return status;
}

/* ---- spare states ---- */

/* The driver takes milliseconds for a session's memory, and to free it waits for the launches of
 * others. So while other sessions are open, states of closed ones are kept for those to come. */
enum { MOST_SPARES = 8 };

static struct backend_state *spare_take(struct backend *b, int max_positions) {
    struct backend_state **at = &b->spares, *s = NULL;
    pthread_mutex_lock(&b->mutex);
    b->n_states++;
    while (*at && (*at)->max_positions != max_positions)
        at = &(*at)->next_spare;
    s = *at;
    if (s) *at = s->next_spare, b->n_spares--;
    pthread_mutex_unlock(&b->mutex);
    return s;
}

/* Whether the state, whose session is closed, was kept. *last: no session is left. */
static bool spare_keep(struct backend *b, struct backend_state *s, bool *last) {
    const bool usable = s && !s->packed && !s->profile && !cuda_untouchable(b);
    pthread_mutex_lock(&b->mutex);
    *last = --b->n_states == 0;
    const bool keeps = usable && !*last && !b->lost && b->n_spares < MOST_SPARES;
    if (keeps) s->next_spare = b->spares, b->spares = s, b->n_spares++;
    pthread_mutex_unlock(&b->mutex);
    return keeps;
}

static bool spares_free(struct backend *b) {
    pthread_mutex_lock(&b->mutex);
    struct backend_state *s = b->spares;
    const bool any = s != NULL;
    b->spares = NULL, b->n_spares = 0;
    pthread_mutex_unlock(&b->mutex);
    while (s) {
        struct backend_state *next = s->next_spare;
        state_free(s);
        s = next;
    }
    return any;
}

/* A session is closed, or could not be opened: s is NULL. */
static void session_gone(struct backend *b, struct backend_state *s) {
    bool last = false;
    if (s) cuda_keep(s, 0);
    const bool kept = spare_keep(b, s, &last);
    if (!kept) state_free(s);
    if (last) (void)spares_free(b);
    if (cuda_untouchable(b)) return;
    cuda_pool_shrink(&b->pool, !last);
    cuda_pool_shrink(&b->states, !last);
}

enum reel_status cuda_state_open(struct backend_state **out, struct backend *b, int max_positions,
                                 struct reel_error *err) {
    *out = NULL;
    enum reel_status status = cuda_alive(b, err);
    if (status != REEL_OK) return status;
    *out = spare_take(b, max_positions);
    if (*out && !b->tuning.poison) return REEL_OK;
    status = *out ? fill_with_nan(*out, err) : state_new(out, b, max_positions, err);
    if (status == REEL_E_MEMORY && spares_free(b)) {
        err_clear(err);
        status = state_new(out, b, max_positions, err);
    }
    if (status == REEL_OK) return REEL_OK;
    session_gone(b, *out);
    *out = NULL;
    return status;
}

void cuda_state_close(struct backend_state *s) {
    if (!s) return;
    cuda_draft_state_close(s);
    session_gone(s->backend, s);
}

/* ---- copying positions ---- */

/* Bytes are those of K and V (cuda_saved.h), then the last row, then the recurrent state, once or,
 * with that of n - 1, twice. */
static size_t state_saved_bytes(const struct backend_state *s, int n, bool before) {
    return cuda_saved_bytes(s, n) + cuda_last_row_saved_bytes(s, n) +
           cuda_recurrent_saved_bytes(s, n, before);
}

size_t cuda_save_bytes(const struct backend_state *s, int n) {
    return state_saved_bytes(s, n, cuda_recurrent_has_before(s, n));
}

static enum reel_status check_held(const struct backend_state *s, int n, struct reel_error *err) {
    if (n >= 0 && cuda_resume(s, n) == n) return REEL_OK;
    return err_set(err, REEL_E_STATE, "%d positions asked for, %d are held", n,
                   n < 0 ? 0 : cuda_resume(s, n));
}

enum reel_status cuda_save(const struct backend_state *s, int n, void *bytes,
                           struct reel_error *err) {
    enum reel_status status = cuda_alive(s->backend, err);
    if (status == REEL_OK) status = check_held(s, n, err);
    if (status == REEL_OK) status = cuda_saved_read(s, n, bytes, err);
    if (status != REEL_OK) return status;
    unsigned char *rest = (unsigned char *)bytes + cuda_saved_bytes(s, n);
    status = cuda_last_row_save(s, n, rest, err);
    if (status != REEL_OK) return status;
    return cuda_recurrent_save(s, n, rest + cuda_last_row_saved_bytes(s, n), err);
}

static enum reel_status check_fits(const struct backend_state *s, int n, struct reel_error *err) {
    if (n >= 0 && n <= s->max_positions) return REEL_OK;
    return err_set(err, REEL_E_CONTEXT, "%d positions, the session holds %d", n, s->max_positions);
}

enum reel_status cuda_restore(struct backend_state *s, int n, const void *bytes, size_t n_bytes,
                              struct reel_error *err) {
    enum reel_status status = cuda_alive(s->backend, err);
    if (status == REEL_OK) status = check_fits(s, n, err);
    if (status != REEL_OK) return status;
    const size_t least = state_saved_bytes(s, n, false), most = state_saved_bytes(s, n, n > 1);
    if (n_bytes != least && n_bytes != most)
        return err_set(err, REEL_E_FORMAT, "%zu bytes of state, %zu are expected, or %zu more",
                       n_bytes, least, most - least);
    const unsigned char *rest = (const unsigned char *)bytes + cuda_saved_bytes(s, n);
    s->n_positions = 0, cuda_last_row_invalidate(s, 0);
    cuda_draft_forget(s);
    cuda_pages_keep(s, 0);
    if (n > 0) status = cuda_pages_reach_all(s, 0, n, err);
    if (status == REEL_OK) status = cuda_saved_write(s, n, bytes, err);
    if (status == REEL_OK) status = cuda_last_row_restore(s, n, rest, err);
    if (status == REEL_OK)
        status = cuda_recurrent_restore(s, n, rest + cuda_last_row_saved_bytes(s, n),
                                        n_bytes > least, err);
    if (status == REEL_OK) s->n_positions = n;
    return status;
}

void cuda_keep(struct backend_state *s, int n) {
    s->n_positions = int_min(s->n_positions, n);
    cuda_last_row_invalidate(s, n);
    cuda_draft_keep(s, n);
    cuda_pages_keep(s, n);
    if (n == 0) cuda_recurrent_clear(s);
}

enum reel_status cuda_copy_state(struct backend_state *dst, const struct backend_state *src, int n,
                                 struct reel_error *err) {
    struct backend *b = dst->backend;
    enum reel_status status = cuda_alive(b, err);
    if (status == REEL_OK) status = check_fits(dst, n, err);
    if (status == REEL_OK) status = check_held(src, n, err);
    if (status != REEL_OK || dst == src) return status;
    dst->n_positions = 0, cuda_last_row_invalidate(dst, 0);
    cuda_draft_forget(dst);
    cuda_pages_share(dst, src, n);
    cuda_recurrent_share(dst, src, n);
    status = cuda_last_row_copy(dst, src, n, err);
    if (status == REEL_OK)
        dst->n_positions = n;
    else
        cuda_keep(dst, 0);
    return status;
}
