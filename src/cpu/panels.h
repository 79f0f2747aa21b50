/* Matrices of block formats with 16 rows beside each other: what a path with wide registers decodes
 * from. A register of 16 lanes then holds the same four codes of 16 rows, and rows need not be
 * turned while they are multiplied: that costs as much as the products.
 *
 * A panel is 16 rows; the last one has the matrix's last row several times. It has units of one,
 * two or four of their blocks (panels.c) in turn, and of a unit the blocks' fields one after the
 * other, each from a new cache line on: of a field its elements of 1, 2 or 4 bytes in turn, and of
 * an element those of 16 rows. So panels have hardly more bytes than the rows, and the same bytes
 * but for this: codes of Q8_0 have 128 added, and are unsigned. */
#ifndef REEL_CPU_PANELS_H
#define REEL_CPU_PANELS_H

#include "base/thread_pool.h"
#include "model/weights.h"

#define PANEL_ROWS 16

/* Of a format that panels_hold. */
size_t panels_bytes(const struct matrix *m); /* of one panel */
static inline int panels_count(const struct matrix *m) {
    return (m->rows + PANEL_ROWS - 1) / PANEL_ROWS;
}
bool panels_hold(enum dtype type);
void panels_pack(const struct matrix *m, int panel, unsigned char *to);

/* Weights whose matrices have panels. */
struct panel_weights {
    struct weights weights; /* a copy of what was given: all it names is still borrowed */
    struct layer_weights *layers;
    unsigned char *memory;
};

/* *p = weights, with panels where formats[dtype], made by the threads of the pool. matrix.panels
 * that are there already stay. Memory for them is as much as the matrices have; without any,
 * nothing is taken. */
enum reel_status panel_weights_open(struct panel_weights *p, const struct weights *weights,
                                    const bool formats[DTYPE_COUNT], struct thread_pool *pool,
                                    struct reel_error *err);
void panel_weights_close(struct panel_weights *p);

#endif
