/* Winds some rows of a matrix: puts each weight to the place on the tapes that tape_locate (tape.h) gives it. Threads
 * take grain after grain (tile_format.h) of a row in the order of the source, so that they read whole lines. The four
 * bytes of a grain always lie together on the tape. Where a tile reaches beyond the matrix, the tape keeps the zeros
 * that it was cleared to.
 *   reads    rows, bf16 [n_rows, columns]
 *   writes   the tapes, by plain stores; the launch's end makes them visible */
#include "args.h"
#include "memory.cuh"
#include "prelude.cuh"
#include "sync.cuh"

enum { WIND_THREADS = 256 };

KERNEL(WIND_THREADS) wind(struct wind_args a) {
    const int format = a.shape.segment[a.phase].format, grain = tile_grain(format);
    int grains = (a.columns + grain - 1) / grain;
    u32 n = (u32)a.n_rows * (u32)grains, step = block_count() * thread_count();
    NO_UNROLL
    for (u32 i = block_index() * thread_count() + thread_index(); i < n; i += step) {
        int row = (int)(i / (u32)grains), k = (int)(i % (u32)grains) * grain;
        const u16 *from = a.rows + (u64)(u32)row * (u32)a.columns + k;
        u32 made = tile_grain_make(format, from, a.columns - k);
        u64 at = tape_locate(&a.shape, a.phase, a.layer, a.first_row + row, k);
        plain_store32((u32 *)(a.tape + at), made);
    }
}
