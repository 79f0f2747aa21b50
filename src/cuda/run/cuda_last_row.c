/* A session's last row: the residual stream of its prompt's last token behind all layers. With it
 * decoding begins at the language-model head of that token and makes what the prompt's own logits
 * would say; without it the decode kernel takes the token through the layers again, which rounds
 * otherwise. So it goes where the session goes: into copies and snapshots.
 *
 * The row is a function of the session's first last_row_end positions. It stays good while nothing
 * is evaluated at one of them: launches write at and beyond the position they begin with, and all
 * of them begin here (cuda_last_row_invalidate). */
#include "cuda/run/cuda_last_row.h"

#include "cuda/run/cuda_prefill.h"

#include <string.h>

/* In front of a saved row, which is zeros where there is none. */
struct saved_row {
    int32_t end, id; /* last_row_end, last_row_id */
};

static size_t row_bytes(const struct backend *b) { return (size_t)b->memory.bytes[GPU_LAST_ROW]; }

bool cuda_last_row_is(const struct backend_state *s, int position, int32_t id) {
    const int end = position + 1;
    /* the token itself must be in the recurrent state, and nothing beyond it */
    if (s->backend->plan.delta.n_layers && s->recurrent.checkpoints.n_positions != end)
        return false;
    return s->last_row_end == end && s->last_row_id == id;
}

void cuda_last_row_invalidate(struct backend_state *s, int position) {
    if (position < s->last_row_end) s->last_row_end = 0;
}

enum reel_status cuda_last_row_queue_copy(struct backend_state *s, int token,
                                          struct reel_error *err) {
    const struct backend *b = s->backend;
    s->last_row_end = 0;
    return cuda_queue_copy(&b->gpu, s->last_row, cuda_prefill_h(b, token), row_bytes(b), err);
}

void cuda_last_row_set(struct backend_state *s, int position, int32_t id) {
    s->last_row_end = position + 1, s->last_row_id = id;
}

/* ---- copies ---- */

static bool is_within(const struct backend_state *s, int n) {
    return s->last_row_end > 0 && s->last_row_end <= n;
}

size_t cuda_last_row_saved_bytes(const struct backend_state *s, int n) {
    return n > 0 ? sizeof(struct saved_row) + row_bytes(s->backend) : 0;
}

enum reel_status cuda_last_row_save(const struct backend_state *s, int n, void *bytes,
                                    struct reel_error *err) {
    const size_t n_row = row_bytes(s->backend);
    if (n == 0) return REEL_OK;
    memset(bytes, 0, cuda_last_row_saved_bytes(s, n));
    if (!is_within(s, n)) return REEL_OK;
    const struct saved_row held = { s->last_row_end, s->last_row_id };
    memcpy(bytes, &held, sizeof held);
    return cuda_download(&s->backend->gpu, (unsigned char *)bytes + sizeof held, s->last_row, n_row,
                         NULL, err);
}

enum reel_status cuda_last_row_restore(struct backend_state *s, int n, const void *bytes,
                                       struct reel_error *err) {
    const struct backend *b = s->backend;
    struct saved_row held;
    if (n == 0) return REEL_OK;
    memcpy(&held, bytes, sizeof held);
    if (held.end < 0 || held.end > n || held.id < 0 || held.id >= b->model->config.vocab)
        return err_set(err, REEL_E_FORMAT,
                       "a prompt's last token is id %d behind %d positions of %d; ids are 0 to %d",
                       (int)held.id, (int)held.end, n, b->model->config.vocab - 1);
    if (held.end == 0) return REEL_OK;
    enum reel_status status = cuda_upload(
        &b->gpu, s->last_row, (const unsigned char *)bytes + sizeof held, row_bytes(b), NULL, err);
    if (status == REEL_OK) s->last_row_end = held.end, s->last_row_id = held.id;
    return status;
}

enum reel_status cuda_last_row_copy(struct backend_state *dst, const struct backend_state *src,
                                    int n, struct reel_error *err) {
    const struct backend *b = dst->backend;
    if (!is_within(src, n)) return REEL_OK;
    enum reel_status status =
        cuda_copy(&b->gpu, dst->last_row, src->last_row, row_bytes(b), NULL, err);
    if (status == REEL_OK)
        dst->last_row_end = src->last_row_end, dst->last_row_id = src->last_row_id;
    return status;
}
