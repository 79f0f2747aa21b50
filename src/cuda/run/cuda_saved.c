#include "cuda/run/cuda_saved.h"

#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "kernels/kv_layout.h"

#include <string.h>

enum { NAN_BYTE = 0xff };

/* ---- the buffer ---- */

enum reel_status cuda_stage_open(struct cuda_stage *stage, struct reel_error *err) {
    stage->mutex_made = pthread_mutex_init(&stage->mutex, NULL) == 0;
    return stage->mutex_made ? REEL_OK : err_memory(err, "a mutex", sizeof stage->mutex);
}

void cuda_stage_close(struct backend *b) {
    struct cuda_stage *stage = &b->stage;
    if (!cuda_untouchable(b)) cuda_host_free(&b->gpu, stage->host);
    if (stage->mutex_made) pthread_mutex_destroy(&stage->mutex);
    *stage = (struct cuda_stage){ 0 };
}

/* With the mutex held. */
static enum reel_status need_stage(struct backend *b, struct reel_error *err) {
    cu_address address = 0;
    if (b->stage.host) return REEL_OK;
    return cuda_part_host_alloc(&b->gpu, &b->memory, GPU_SAVED, &b->stage.host, &address, err);
}

/* ---- rows and pages ---- */

/* How rows lie in the bytes and in pages. The bytes have the rows of all of the model's KV heads, a
 * GPU's pages those of its own, of which some may be none of the model's (plan.h). */
struct walk {
    int heads, own_heads; /* KV heads of the model, and of a GPU */
    int n_layers;         /* that attend */
    int n_rows;           /* of a GPU: n_layers * own_heads */
    int n_pages;          /* the last one perhaps not full */
    size_t row;           /* bytes of one, as saved */
    size_t page_row;      /* of one in a page */
    int at_once;          /* rows of a page that go in one copy */
};

static struct walk walk_of(const struct backend_state *s, int n) {
    const struct backend *b = s->backend;
    const struct model_config *c = &b->model->config;
    const struct plan *p = &b->plan;
    const size_t piece = (size_t)p->kv_piece_bytes, page_row = (size_t)p->kv_page * piece;
    const size_t at_once = page_row ? (size_t)b->memory.bytes[GPU_SAVED] / page_row : 0;
    const int own_heads = p->n_kv_heads / b->gpu.n, layers = model_layer_count(c, LAYER_ATTENTION);
    return (struct walk){ .heads = c->n_kv_heads,
                          .own_heads = own_heads,
                          .n_layers = layers,
                          .n_rows = layers * own_heads,
                          .n_pages = gpu_kv_pages(p, n),
                          .row = (size_t)kv_pieces(n) * piece,
                          .page_row = page_row,
                          .at_once = (int)at_once };
}

/* Some rows of a page: what one copy takes. */
struct part {
    int page, row, n_rows;
};

/* Goes on to the next part; the one before the first is all zeros. False: there is none. */
static bool next_part(const struct walk *w, struct part *part) {
    part->row += part->n_rows;
    if (part->row == w->n_rows) part->page++, part->row = 0;
    part->n_rows = int_min(w->at_once, w->n_rows - part->row);
    return part->page < w->n_pages && part->n_rows > 0;
}

static size_t part_bytes(const struct walk *w, const struct part *part) {
    return (size_t)part->n_rows * w->page_row;
}

static cu_address part_address(const struct backend_state *s, const struct walk *w,
                               const struct part *part) {
    return (cu_address)s->pages.table[part->page] + (cu_address)((size_t)part->row * w->page_row);
}

/* Whether a row of GPU g is saved. */
static bool is_saved(const struct walk *w, int g, int row) {
    return g * w->own_heads + row % w->own_heads < w->heads;
}
/* Where a page's part of a row of GPU g begins among the saved bytes, and its bytes. */
static size_t saved_at(const struct walk *w, int g, int page, int row) {
    const int of_all = row / w->own_heads * w->heads + g * w->own_heads + row % w->own_heads;
    return (size_t)of_all * w->row + (size_t)page * w->page_row;
}
static size_t saved_row_bytes(const struct walk *w, int page) {
    const size_t left = w->row - (size_t)page * w->page_row;
    return left < w->page_row ? left : w->page_row;
}

/* ---- both ways ---- */

size_t cuda_saved_bytes(const struct backend_state *s, int n) {
    const struct walk w = walk_of(s, n);
    return (size_t)(w.n_layers * w.heads) * w.row;
}

static void clear_piece_rest(unsigned char *piece, const struct plan *p, int kept) {
    const unsigned step = p->kv_form ? 1 : 2;
    for (unsigned at = 0; at < kv_piece_bytes(p->kv_form, p->head_dim); at += step)
        if (kv_byte_position(p->kv_form, p->head_dim, at) >= kept) memset(piece + at, 0, step);
}

static void take_rows(const struct walk *w, int g, const struct part *part,
                      const unsigned char *stage, unsigned char *bytes) {
    const size_t n = saved_row_bytes(w, part->page);
    for (int i = 0; i < part->n_rows; i++)
        if (is_saved(w, g, part->row + i))
            memcpy(bytes + saved_at(w, g, part->page, part->row + i),
                   stage + (size_t)i * w->page_row, n);
}

/* What lies behind the saved bytes of a page's rows is never read before it is written. Rows that
 * are not saved are those of heads whose keys and values are 0. */
static void put_rows(const struct walk *w, int g, const struct part *part, unsigned char *stage,
                     const unsigned char *bytes, bool poison) {
    const size_t n = saved_row_bytes(w, part->page);
    for (int i = 0; i < part->n_rows; i++) {
        unsigned char *row = stage + (size_t)i * w->page_row;
        if (is_saved(w, g, part->row + i))
            memcpy(row, bytes + saved_at(w, g, part->page, part->row + i), n);
        else
            memset(row, 0, n);
        memset(row + n, poison ? NAN_BYTE : 0, w->page_row - n);
    }
}

/* Reads what GPU g has. */
static enum reel_status read_gpu(const struct backend_state *s, int g, const struct walk *w,
                                 unsigned char *bytes, struct reel_error *err) {
    struct backend *b = s->backend;
    struct part part = { 0 };
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && next_part(w, &part)) {
        status = cuda_download_of(&b->gpu, g, b->stage.host, part_address(s, w, &part),
                                  part_bytes(w, &part), err);
        if (status == REEL_OK) take_rows(w, g, &part, b->stage.host, bytes);
    }
    return status;
}

enum reel_status cuda_saved_read(const struct backend_state *s, int n, unsigned char *bytes,
                                 struct reel_error *err) {
    struct backend *b = s->backend;
    const struct walk w = walk_of(s, n);
    const int rest = n % KV_POSITIONS, all = w.n_layers * w.heads;
    if (n == 0) return REEL_OK;
    pthread_mutex_lock(&b->stage.mutex);
    enum reel_status status = need_stage(b, err);
    for (int g = 0; g < b->gpu.n && status == REEL_OK; g++)
        status = read_gpu(s, g, &w, bytes, err);
    pthread_mutex_unlock(&b->stage.mutex);
    for (int row = 1; rest && row <= all && status == REEL_OK; row++)
        clear_piece_rest(bytes + (size_t)row * w.row - b->plan.kv_piece_bytes, &b->plan, rest);
    return status;
}

static enum reel_status write_gpu(struct backend_state *s, int g, const struct walk *w,
                                  const unsigned char *bytes, struct reel_error *err) {
    struct backend *b = s->backend;
    struct part part = { 0 };
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && next_part(w, &part)) {
        put_rows(w, g, &part, b->stage.host, bytes, b->tuning.poison);
        status = cuda_upload_of(&b->gpu, g, part_address(s, w, &part), b->stage.host,
                                part_bytes(w, &part), err);
    }
    return status;
}

enum reel_status cuda_saved_write(struct backend_state *s, int n, const unsigned char *bytes,
                                  struct reel_error *err) {
    struct backend *b = s->backend;
    const struct walk w = walk_of(s, n);
    if (n == 0) return REEL_OK;
    pthread_mutex_lock(&b->stage.mutex);
    enum reel_status status = need_stage(b, err);
    for (int g = 0; g < b->gpu.n && status == REEL_OK; g++)
        status = write_gpu(s, g, &w, bytes, err);
    pthread_mutex_unlock(&b->stage.mutex);
    return status;
}
