/* Where a session's K and V lie: the device's side of kv_layout.h, with the one load that finds a page. A launch never
 * writes the table of pages, so L1 may answer the load. */
#ifndef REEL_KERNELS_KV_PAGES_CUH
#define REEL_KERNELS_KV_PAGES_CUH

#include "args.h"
#include "kv_layout.h"
#include "memory.cuh"

#if P_KV_PAGE < 1 || P_KV_PAGE & (P_KV_PAGE - 1)
#error "kv_page: a power of two"
#endif

/* The page of a piece, which is one of the session's. */
DEV u8 *kv_page(const struct decode_args *a, int piece) {
    return (u8 *)const_load64(a->kv_pages + (u32)piece / P_KV_PAGE);
}

/* A piece of a row in a page that kv_page found. */
DEV u8 *kv_page_piece(u8 *page, int row, int piece) { return page + kv_piece_at(row, piece, P_KV_PAGE, P_KV_PIECE); }

DEV u8 *kv_piece(const struct decode_args *a, int row, int piece) {
    return kv_page_piece(kv_page(a, piece), row, piece);
}

#endif
