#define _GNU_SOURCE /* madvise */
#include "cpu/panels.h"

#include "base/memory.h"

#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define LINE      ((size_t)64)

/* Where a block's elements begin, how many bytes each has, and how many there are. `beside`, where
 * it is not 0: each is followed by one of as many that begin there. */
struct field {
    uint8_t from, bytes, n, beside;
};
enum { FIELDS = 6 };
struct layout {
    int unit; /* of the file's blocks */
    struct field fields[FIELDS];
};

static const struct layout layouts[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = { 2, { { 0, 2, 1, 0 }, { 2, 4, 8, 0 } } },
    [DTYPE_Q4_0] = { 2, { { 0, 2, 1, 0 }, { 2, 4, 4, 0 } } },
    [DTYPE_Q4_1] = { 1, { { 0, 2, 2, 0 }, { 4, 4, 4, 0 } } },
    [DTYPE_Q5_0] = { 2, { { 0, 2, 1, 0 }, { 2, 4, 5, 0 } } },
    [DTYPE_Q5_1] = { 1, { { 0, 2, 2, 0 }, { 4, 4, 5, 0 } } },
    [DTYPE_Q4_K] = { 1, { { 0, 2, 2, 0 }, { 4, 4, 35, 0 } } },
    [DTYPE_Q5_K] = { 1, { { 0, 2, 2, 0 }, { 4, 4, 3, 0 }, { 48, 4, 8, 16 }, { 80, 4, 24, 0 } } },
    /* In the order in which they are read: a processor sees only one stream coming. */
    [DTYPE_Q6_K] = { 1,
                     { { 208, 2, 1, 0 },
                       { 192, 4, 4, 0 },
                       { 0, 4, 8, 128 },
                       { 32, 4, 8, 0 },
                       { 64, 4, 8, 160 },
                       { 96, 4, 8, 0 } } },
    [DTYPE_IQ4_NL] = { 2, { { 0, 2, 1, 0 }, { 2, 4, 4, 0 } } },
    [DTYPE_IQ4_XS] = { 1, { { 0, 2, 2, 0 }, { 4, 4, 33, 0 } } },
    [DTYPE_MXFP4] = { 4, { { 0, 1, 1, 0 }, { 1, 4, 4, 0 } } },
};

bool panels_hold(enum dtype type) { return layouts[type].unit > 0; }

static size_t field_bytes(const struct layout *l, const struct field *f) {
    const size_t elements = (size_t)(l->unit * PANEL_ROWS * f->n) * (f->beside ? 2 : 1);
    return (elements * f->bytes + LINE - 1) / LINE * LINE;
}

static int blocks_of(const struct matrix *m) { return m->columns / dtype_block_elements(m->dtype); }

size_t panels_bytes(const struct matrix *m) {
    const struct layout *l = &layouts[m->dtype];
    size_t unit = 0;
    for (int i = 0; i < FIELDS; i++)
        unit += field_bytes(l, &l->fields[i]);
    return (size_t)((blocks_of(m) + l->unit - 1) / l->unit) * unit;
}

/* The elements at an offset of all rows. Words have `flip` exclusive-ored. */
static unsigned char *pack_rows(const unsigned char *const rows[PANEL_ROWS], size_t from,
                                size_t bytes, uint32_t flip, unsigned char *to) {
    for (int r = 0; r < PANEL_ROWS; r++, to += bytes) {
        uint32_t word;
        switch (bytes) {
        case 4:
            memcpy(&word, rows[r] + from, 4);
            word ^= flip;
            memcpy(to, &word, 4);
            break;
        case 2:
            memcpy(to, rows[r] + from, 2);
            break;
        default:
            *to = rows[r][from];
        }
    }
    return to;
}

static unsigned char *pack_field(const unsigned char *const rows[PANEL_ROWS], size_t at,
                                 const struct field *f, uint32_t flip, unsigned char *to) {
    for (size_t i = 0; i < f->n; i++) {
        to = pack_rows(rows, at + f->from + i * f->bytes, f->bytes, flip, to);
        if (f->beside) to = pack_rows(rows, at + f->beside + i * f->bytes, f->bytes, flip, to);
    }
    return to;
}

void panels_pack(const struct matrix *m, int panel, unsigned char *to) {
    const struct layout *l = &layouts[m->dtype];
    const size_t block = (size_t)dtype_block_bytes(m->dtype);
    const uint32_t flip = m->dtype == DTYPE_Q8_0 ? 0x80808080 : 0;
    const int blocks = blocks_of(m);
    const unsigned char *rows[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) {
        const int row = panel * PANEL_ROWS + r;
        rows[r] = m->data + (size_t)(row < m->rows ? row : m->rows - 1) * m->row_bytes;
    }
    for (int first = 0; first < blocks; first += l->unit)
        for (int f = 0; f < FIELDS && l->fields[f].n > 0; f++) {
            unsigned char *next = to + field_bytes(l, &l->fields[f]);
            for (int b = first; b < first + l->unit && b < blocks; b++)
                to = pack_field(rows, (size_t)b * block, &l->fields[f], flip, to);
            memset(to, 0, (size_t)(next - to));
            to = next;
        }
}

/* ---- all of a model's ---- */

enum {
    OF_LAYER = 11,
    OTHERS = 5,
    PIECE = 16 /* panels that a thread packs at a time */
};

/* The matrices that get panels, and where these begin. */
struct packing {
    struct matrix **matrices;
    unsigned char **places;
    int n;
    struct thread_pool *pool;
};

/* Every matrix that a vector meets: `all` has room for them. */
static int matrices_of(struct panel_weights *p, struct matrix **all) {
    struct weights *w = &p->weights;
    struct matrix *const others[OTHERS] = { &w->head, &w->draft.fc, &w->draft.id_q, &w->draft.id_k,
                                            &w->draft.id_v };
    int n = OTHERS;
    memcpy(all, others, sizeof others);
    for (int i = 0; i < w->n_layers; i++) {
        struct layer_weights *l = &p->layers[i];
        struct matrix *const own[OF_LAYER] = { &l->q,       &l->k,       &l->v,       &l->delta.qkv,
                                               &l->delta.z, &l->delta.b, &l->delta.a, &l->o,
                                               &l->gate,    &l->up,      &l->down };
        memcpy(all + n, own, sizeof own);
        n += OF_LAYER;
    }
    return n;
}

static bool wants_panels(const struct matrix *m, const bool formats[DTYPE_COUNT]) {
    return m->rows > 0 && m->data && !m->planes && !m->panels && formats[m->dtype] &&
           panels_hold(m->dtype);
}

static size_t bytes_of(const struct matrix *m) { return (size_t)panels_count(m) * panels_bytes(m); }

static int pieces_of(const struct matrix *m) { return (panels_count(m) + PIECE - 1) / PIECE; }

static void pack_pieces(void *user, int thread, int n_threads) {
    const struct packing *all = user;
    int n = 0;
    (void)n_threads;
    for (int i = 0; i < all->n; i++)
        n += pieces_of(all->matrices[i]);
    for (int piece; (piece = thread_pool_take(all->pool, thread, n)) >= 0;) {
        int i = 0;
        for (; piece >= pieces_of(all->matrices[i]); i++)
            piece -= pieces_of(all->matrices[i]);
        const struct matrix *m = all->matrices[i];
        for (int panel = piece * PIECE; panel < panels_count(m) && panel < (piece + 1) * PIECE;
             panel++)
            panels_pack(m, panel, all->places[i] + (size_t)panel * panels_bytes(m));
    }
}

/* Memory for the panels of all->matrices, and where each one's are. */
static enum reel_status take_memory(struct panel_weights *p, struct packing *all,
                                    struct reel_error *err) {
    struct carver carver = { 0 };
    for (int i = 0; i < all->n; i++)
        (void)carve(&carver, bytes_of(all->matrices[i]), 1);
    if (carver.overflow) return err_memory(err, "weights in panels", SIZE_MAX);
    const size_t n_bytes = (carver.used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    p->memory = mem_alloc_aligned(HUGE_PAGE, n_bytes);
    if (!p->memory) return err_memory(err, "weights in panels", n_bytes);
    (void)madvise(p->memory, n_bytes, MADV_HUGEPAGE);
    carver = (struct carver){ .block = (char *)p->memory };
    for (int i = 0; i < all->n; i++)
        all->places[i] = carve(&carver, bytes_of(all->matrices[i]), 1);
    return REEL_OK;
}

static enum reel_status pack_all(struct panel_weights *p, const bool formats[DTYPE_COUNT],
                                 struct packing *all, struct reel_error *err) {
    const int found = matrices_of(p, all->matrices);
    for (int i = 0; i < found; i++)
        if (wants_panels(all->matrices[i], formats)) all->matrices[all->n++] = all->matrices[i];
    if (all->n == 0) return REEL_OK;
    enum reel_status status = take_memory(p, all, err);
    if (status != REEL_OK) return status;
    thread_pool_run(all->pool, pack_pieces, all);
    for (int i = 0; i < all->n; i++)
        all->matrices[i]->panels = all->places[i];
    return REEL_OK;
}

enum reel_status panel_weights_open(struct panel_weights *p, const struct weights *weights,
                                    const bool formats[DTYPE_COUNT], struct thread_pool *pool,
                                    struct reel_error *err) {
    const size_t most = OTHERS + OF_LAYER * (size_t)weights->n_layers;
    struct packing all = { .pool = pool };
    *p = (struct panel_weights){ .weights = *weights };
    enum reel_status status =
        mem_zeroed(&p->layers, (size_t)weights->n_layers, sizeof *p->layers, "layers", err);
    if (status == REEL_OK)
        status = mem_zeroed(&all.matrices, most, sizeof *all.matrices, "matrices", err);
    if (status == REEL_OK)
        status = mem_zeroed(&all.places, most, sizeof *all.places, "matrices", err);
    if (status == REEL_OK) {
        memcpy(p->layers, weights->layers, (size_t)weights->n_layers * sizeof *p->layers);
        p->weights.layers = p->layers;
        status = pack_all(p, formats, &all, err);
    }
    mem_free(all.matrices);
    mem_free(all.places);
    if (status != REEL_OK) panel_weights_close(p);
    return status;
}

void panel_weights_close(struct panel_weights *p) {
    mem_free(p->layers);
    mem_free(p->memory);
    *p = (struct panel_weights){ 0 };
}
