/* Where the K and V rows of a position lie, for host and device. A piece holds 16 positions of one KV head of one
 * layer. It begins with head_dim / 16 tiles of K, whose rows are positions and whose columns are dims. As many tiles of
 * V follow, transposed: their rows are dims and their columns are positions. Each tile is an A operand of bf16
 * (tile_format.h), whatever format the weights have.
 *
 * In a form of 8 bits (form: enum kv_codes) tiles hold codes, a byte each. A lane's 8 bytes of a tile lie in the order
 * in which two words become the four of its A operand: kv_codes.cuh. Behind the tiles stand the scales of the piece's
 * positions, f32: 16 of K, then 16 of V. So one copy brings all that belongs to a piece. model/kv_form.h says what a
 * code is worth, and why scales are f32.
 *
 * The cache of a session is made of pages. A page holds a run of pieces, a power of two of them, of every KV head of
 * every layer that attends: [attention layers * kv_heads][pieces of a page]. Pages lie anywhere in memory. A table of
 * the session has their addresses in the order of their positions. Sessions with a common prefix share its pages. */
#ifndef REEL_KERNELS_KV_LAYOUT_H
#define REEL_KERNELS_KV_LAYOUT_H

#include "tile_format.h"

enum { KV_POSITIONS = 16 }; /* positions of a piece */

/* The forms, in the order of enum kv_form (model/kv_form.h); 0: no codes but bf16. */
enum kv_codes { KV_CODES_NONE, KV_CODES_INT8, KV_CODES_E4M3 };
enum { KV_CODE_TILE_BYTES = TILE_ROWS * TILE_K, KV_SCALES_BYTES = 2 * KV_POSITIONS * 4 };

TAPE_FN unsigned kv_tile_bytes(int form) { return form ? KV_CODE_TILE_BYTES : BF16_TILE_BYTES; }
TAPE_FN unsigned kv_piece_bytes(int form, int head_dim) {
    return (unsigned)(head_dim / TILE_K) * 2 * kv_tile_bytes(form) + (form ? KV_SCALES_BYTES : 0);
}

/* Pieces that half a stage of the ring of prompts holds. A unit of attention has two pieces where it can (of codes, as
 * their pieces are no power of two: prefill_attention.cuh), so an odd one is left out. */
TAPE_FN int kv_half_pieces(int form, int half_bytes, int piece_bytes) {
    const int n = half_bytes / piece_bytes;
    return form && n > 1 ? n / 2 * 2 : n;
}

/* How many pieces n positions take. */
TAPE_FN int kv_pieces(int n) { return (n + KV_POSITIONS - 1) / KV_POSITIONS; }

/* Where in its page a piece begins. row: nth attention layer * kv_heads + KV head. piece: counted from position 0.
 * page_pieces: pieces of a page, of one row. */
TAPE_FN unsigned long long kv_piece_at(int row, int piece, int page_pieces, int piece_bytes) {
    return ((unsigned long long)(unsigned)row * (unsigned)page_pieces + (unsigned)piece % (unsigned)page_pieces) *
           (unsigned)piece_bytes;
}

/* Where in its tile the value (row, column) begins. A lane's 4 bytes of a row have columns c, c + 8, c + 1 and c + 9
 * of codes, c even. */
TAPE_FN unsigned kv_tile_at(int form, int row, int column) {
    if (!form) return bf16_tile_at(row, column);
    return (unsigned)((row % 8 * 4 + column % 8 / 2) * 8 + row / 8 * 4 + column % 2 * 2 + column / 8);
}

/* Where in its piece K's value (position, dim) begins. An even dim and the next one share 4 bytes. */
TAPE_FN unsigned kv_k_byte(int form, int position, int dim) {
    return (unsigned)(dim / TILE_K) * kv_tile_bytes(form) + kv_tile_at(form, position % KV_POSITIONS, dim % TILE_K);
}

/* Where in its piece V's value (position, dim) begins. An even position and the next one share 4 bytes. */
TAPE_FN unsigned kv_v_byte(int form, int head_dim, int position, int dim) {
    return (unsigned)(head_dim / TILE_K + dim / TILE_ROWS) * kv_tile_bytes(form) +
           kv_tile_at(form, dim % TILE_ROWS, position % KV_POSITIONS);
}

/* Where in its piece of codes the scale of a position's K, or of its V, begins. */
TAPE_FN unsigned kv_scale_byte(int head_dim, int is_v, int position) {
    return (unsigned)(head_dim / TILE_K) * 2 * KV_CODE_TILE_BYTES +
           (unsigned)(is_v * KV_POSITIONS + position % KV_POSITIONS) * 4;
}

/* To which of a piece's 16 positions the value at `byte` belongs, which is below kv_piece_bytes; in bf16 `byte` is
 * even.
 */
TAPE_FN int kv_byte_position(int form, int head_dim, unsigned byte) {
    const unsigned k_bytes = (unsigned)(head_dim / TILE_K) * kv_tile_bytes(form);
    if (form) {
        const unsigned at = byte % KV_CODE_TILE_BYTES, in_lane = at % 8;
        if (byte >= 2 * k_bytes) return (int)((byte - 2 * k_bytes) / 4 % KV_POSITIONS);
        return (int)(byte < k_bytes ? at / 32 + in_lane / 4 * 8 : at / 8 % 4 * 2 + in_lane % 4 / 2 + in_lane % 2 * 8);
    }
    unsigned lane = byte % BF16_TILE_BYTES / 16, reg = byte % 16 / 4;
    unsigned row = lane / 4 + reg % 2 * 8, column = lane % 4 * 2 + reg / 2 * 8 + byte % 4 / 2;
    return (int)(byte < k_bytes ? row : column);
}

#endif
