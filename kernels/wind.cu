/* Winds a block of rows into the tapes, each weight to the place tape_locate gives it. Driven by the
 * source: pair after pair of a row, so that reads are whole lines; the four bytes of a pair always
 * lie together in the tape. Where a tile reaches beyond the matrix, the tape keeps the zeros it was
 * cleared to.
 *   reads    rows, bf16 [n_rows, columns]
 *   writes   the tapes, plain stores; the launch's end makes them visible */
#include "args.h"
#include "prelude.cuh"
#include "sync.cuh"

enum { WIND_THREADS = 256 };

KERNEL(WIND_THREADS) wind(struct wind_args a) {
    int pairs = (a.columns + 1) / 2;
    u32 n = (u32)a.n_rows * (u32)pairs, step = block_count() * thread_count();
    NO_UNROLL
    for (u32 i = block_index() * thread_count() + thread_index(); i < n; i += step) {
        int row = (int)(i / (u32)pairs), k = (int)(i % (u32)pairs) * 2;
        const u16 *from = a.rows + (u64)(u32)row * (u32)a.columns + k;
        u32 pair = from[0];
        if (k + 1 < a.columns) pair |= (u32)from[1] << 16;
        u64 at = tape_locate(&a.shape, a.phase, a.layer, a.first_row + row, k);
        plain_store32((u32 *)(a.tape + at), pair);
    }
}
