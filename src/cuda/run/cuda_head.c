/* A session's head row: the residual stream of its prompt's last token behind all layers. With it
 * decoding begins at the head of that token and makes what the prompt's own logits would say;
 * without it the decode kernel takes the token through the layers again, which rounds otherwise. So
 * it goes where the session goes: into copies and snapshots.
 *
 * The row is a function of the session's first head_end positions. It stays good while nothing is
 * evaluated at one of them: launches write at and beyond the position they begin with, and all of
 * them begin here (cuda_head_pass). */
#include "cuda/run/cuda_head.h"

#include "cuda/run/cuda_prefill.h"

#include <string.h>

/* In front of a saved row, which is zeros where there is none. */
struct saved_head {
    int32_t end, id; /* head_end, head_id */
};

static size_t row_bytes(const struct backend *b) {
    return (size_t)b->model->config.hidden * sizeof(float);
}

uint64_t cuda_head_bytes(const struct backend *b) { return row_bytes(b); }

enum reel_status cuda_head_open(struct backend_state *s, struct reel_error *err) {
    return cuda_alloc(&s->backend->gpu, &s->head, row_bytes(s->backend), "a prompt's last row",
                      err);
}

bool cuda_head_is(const struct backend_state *s, int position, int32_t id) {
    const int end = position + 1;
    /* the token itself must be in the recurrent state, and nothing beyond it */
    if (s->backend->plan.delta.n_layers && s->checkpoints.n_positions != end) return false;
    return s->head_end == end && s->head_id == id;
}

void cuda_head_pass(struct backend_state *s, int position) {
    if (position < s->head_end) s->head_end = 0;
}

enum reel_status cuda_head_take(struct backend_state *s, int token, struct reel_error *err) {
    const struct backend *b = s->backend;
    s->head_end = 0;
    return cuda_queue_copy(&b->gpu, s->head, cuda_prefill_h(b, token), row_bytes(b), err);
}

void cuda_head_taken(struct backend_state *s, int position, int32_t id) {
    s->head_end = position + 1, s->head_id = id;
}

/* ---- copies ---- */

static bool is_within(const struct backend_state *s, int n) {
    return s->head_end > 0 && s->head_end <= n;
}

size_t cuda_head_saved_bytes(const struct backend_state *s, int n) {
    return n > 0 ? sizeof(struct saved_head) + row_bytes(s->backend) : 0;
}

enum reel_status cuda_head_save(const struct backend_state *s, int n, void *bytes,
                                struct reel_error *err) {
    const size_t n_row = row_bytes(s->backend);
    if (n == 0) return REEL_OK;
    memset(bytes, 0, cuda_head_saved_bytes(s, n));
    if (!is_within(s, n)) return REEL_OK;
    const struct saved_head held = { s->head_end, s->head_id };
    memcpy(bytes, &held, sizeof held);
    return cuda_download(&s->backend->gpu, (unsigned char *)bytes + sizeof held, s->head, n_row,
                         NULL, err);
}

enum reel_status cuda_head_restore(struct backend_state *s, int n, const void *bytes,
                                   struct reel_error *err) {
    const struct backend *b = s->backend;
    struct saved_head held;
    if (n == 0) return REEL_OK;
    memcpy(&held, bytes, sizeof held);
    if (held.end < 0 || held.end > n || held.id < 0 || held.id >= b->model->config.vocab)
        return err_set(err, REEL_E_FORMAT,
                       "a prompt's last token is id %d behind %d positions of %d; ids are 0 to %d",
                       (int)held.id, (int)held.end, n, b->model->config.vocab - 1);
    if (held.end == 0) return REEL_OK;
    enum reel_status status = cuda_upload(
        &b->gpu, s->head, (const unsigned char *)bytes + sizeof held, row_bytes(b), NULL, err);
    if (status == REEL_OK) s->head_end = held.end, s->head_id = held.id;
    return status;
}

enum reel_status cuda_head_copy(struct backend_state *dst, const struct backend_state *src, int n,
                                struct reel_error *err) {
    const struct backend *b = dst->backend;
    if (!is_within(src, n)) return REEL_OK;
    enum reel_status status = cuda_copy(&b->gpu, dst->head, src->head, row_bytes(b), NULL, err);
    if (status == REEL_OK) dst->head_end = src->head_end, dst->head_id = src->head_id;
    return status;
}
