/* Where the K and V rows of a position lie, for host and device. A piece holds 16 positions of one KV head of one
 * layer. It begins with head_dim / 16 tiles of K, whose rows are positions and whose columns are dims. As many tiles of
 * V follow, transposed: their rows are dims and their columns are positions. Each tile is an A operand of bf16
 * (tile_format.h), whatever format the weights have.
 *
 * The cache of a session is made of pages. A page holds a run of pieces, a power of two of them, of every KV head of
 * every layer that attends: [attention layers * kv_heads][pieces of a page]. Pages lie anywhere in memory. A table of
 * the session has their addresses in the order of their positions. Sessions with a common prefix share its pages. */
#ifndef REEL_KERNELS_KV_LAYOUT_H
#define REEL_KERNELS_KV_LAYOUT_H

#include "tile_format.h"

enum { KV_POSITIONS = 16 }; /* positions of a piece */

TAPE_FN unsigned kv_piece_bytes(int head_dim) { return (unsigned)(head_dim / TILE_K) * 2 * BF16_TILE_BYTES; }

/* How many pieces n positions take. */
TAPE_FN int kv_pieces(int n) { return (n + KV_POSITIONS - 1) / KV_POSITIONS; }

/* Where in its page a piece begins. row: nth attention layer * kv_heads + KV head. piece: counted from position 0.
 * page_pieces: pieces of a page, of one row. */
TAPE_FN unsigned long long kv_piece_at(int row, int piece, int page_pieces, int piece_bytes) {
    return ((unsigned long long)(unsigned)row * (unsigned)page_pieces + (unsigned)piece % (unsigned)page_pieces) *
           (unsigned)piece_bytes;
}

/* Where in its piece K's value (position, dim) begins. An even dim and the next one share 4 bytes. */
TAPE_FN unsigned kv_k_byte(int position, int dim) {
    return (unsigned)(dim / TILE_K) * BF16_TILE_BYTES + bf16_tile_at(position % KV_POSITIONS, dim % TILE_K);
}

/* Where in its piece V's value (position, dim) begins. An even position and the next one share 4 bytes. */
TAPE_FN unsigned kv_v_byte(int head_dim, int position, int dim) {
    return (unsigned)(head_dim / TILE_K + dim / TILE_ROWS) * BF16_TILE_BYTES +
           bf16_tile_at(dim % TILE_ROWS, position % KV_POSITIONS);
}

/* To which of a piece's 16 positions the 2 bytes at `byte` belong; `byte` is even and below kv_piece_bytes. */
TAPE_FN int kv_byte_position(int head_dim, unsigned byte) {
    unsigned lane = byte % BF16_TILE_BYTES / 16, reg = byte % 16 / 4;
    unsigned row = lane / 4 + reg % 2 * 8, column = lane % 4 * 2 + reg / 2 * 8 + byte % 4 / 2;
    return (int)(byte < (unsigned)(head_dim / TILE_K) * BF16_TILE_BYTES ? row : column);
}

#endif
