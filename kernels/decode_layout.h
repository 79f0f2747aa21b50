/* How many bytes a block of decode.cu keeps in shared memory besides the slots of its rings. The plan makes room for
 * as many. The kernel has them in struct block_shared (decode_shared.cuh), and does not compile where the two
 * differ. */
#ifndef REEL_KERNELS_DECODE_LAYOUT_H
#define REEL_KERNELS_DECODE_LAYOUT_H

#include "tape.h"

/* The end of a part of `bytes` bytes that begins at the first multiple of `align` from `at` on. */
TAPE_FN int layout_add(int at, int align, int bytes) { return (at + align - 1) / align * align + bytes; }

/* Floats of a row of k_parts partial sums. Rows are padded: 8 lanes that read 16 bytes each, of 8 consecutive rows,
 * then meet all banks. */
#define PART_STRIDE(k_parts) (((((k_parts) + 3) / 4) | 1) * 4)
/* Floats of the partial products of one phase: [row][k part]. */
#define PART_FLOATS(row_tiles, k_parts) ((row_tiles)*TILE_ROWS * PART_STRIDE(k_parts))

/* Sizes of attention's scratch. Strides are padded: the lanes of a column, or of 8 rows, that read 16 bytes each then
 * meet all banks. */
enum { AT_SSQ = 16 }; /* partial sums of squares of a head */
#define AT_Q_WORDS(tiles)                                                                                              \
    (((((tiles) + 1) / 2) | 1) * 16) /* of a q row, a head of so many tiles                                            \
                                      */
#define AT_PART_FLOATS(parts)                                                                                          \
    (((parts) + 3) / 4 * 4) /* of a head, for each warp that shares it                                                 \
                             */

/* Sizes of the sampler's scratch: its candidates, and its words that are neither a warp's nor a block's own. */
#define PICK_MOST_ITEMS 256
enum { PICK_WORDS = 8 };

/* What the sizes depend on in a plan, besides the tape's shape. */
struct decode_block {
    int ring_slots, kv_slots;
    int heads, kv_heads, head_dim; /* of a group */
    int attention_warps;
    int gate_slots; /* sets of gates that a DeltaNet keeps at a time; 0: there is no DeltaNet */
};

/* Bytes of struct attention_shared (phase_attention_shared.cuh). */
TAPE_FN int attention_shared_bytes(const struct decode_block *b) {
    const int tiles = b->head_dim / TILE_K, columns = b->heads / b->kv_heads;
    const int parts = b->attention_warps / b->kv_heads, rows = b->heads + b->kv_heads;
    int words = rows * AT_Q_WORDS(tiles);                               /* q */
    words += rows * AT_SSQ;                                             /* q_ssq */
    words += b->attention_warps * columns * 8 * PART_STRIDE(2 * tiles); /* o */
    words += 2 * b->heads * AT_PART_FLOATS(parts);                      /* m, l */
    words += b->heads;                                                  /* m_own */
    words += 2 * b->kv_heads * (b->head_dim / 2);                       /* kv */
    words += b->head_dim;                                               /* cos_sin */
    return layout_add(4 * words, 16, 0);
}

/* Bytes of struct pick_shared (phase_pick_shared.cuh). */
TAPE_FN int pick_shared_bytes(int warps, int n_sms) {
    const int items = 32 * warps < PICK_MOST_ITEMS ? 32 * warps : PICK_MOST_ITEMS;
    int bytes = 16 * items;  /* item */
    bytes += 2 * 8 * warps;  /* sum */
    bytes += 4 * n_sms;      /* key */
    bytes += 2 * 4 * warps;  /* best_key, best_id */
    bytes += 4 * PICK_WORDS; /* the rest */
    return layout_add(bytes, 16, 0);
}

/* Bytes of struct block_shared (decode_shared.cuh). */
TAPE_FN int decode_shared_bytes(const struct tape_shape *t, const struct decode_block *b) {
    const struct tape_segment *head = &t->segment[TAPE_HEAD], *out = &t->segment[TAPE_OUT];
    int parts = head->row_tiles * TILE_ROWS / 2; /* where the head keeps its logits' keys */
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const struct tape_segment *g = &t->segment[i];
        const int floats = i == TAPE_HEAD ? 0 : PART_FLOATS(g->row_tiles, g->k_parts);
        if (floats > parts) parts = floats;
    }
    int at = 2 * 4 * parts;                                         /* part */
    at += 2 * 4 * PART_STRIDE(t->warps);                            /* ssq */
    at += b->gate_slots * 2 * 4 * PART_STRIDE(t->warps);            /* gates */
    at += 2 * 4 * 8 * head->k_tiles;                                /* x */
    at += 4 * 8 * out->k_tiles;                                     /* attention */
    at += 2 * 4 * t->warps;                                         /* best_key, best_id */
    at += 6 * 4;                                                    /* id to taken */
    at = layout_add(at, 8, 2 * 8 * b->ring_slots);                  /* full, empty */
    at += 2 * 8 * b->kv_slots;                                      /* kv_full, kv_empty */
    at = layout_add(at, 16, attention_shared_bytes(b));             /* at */
    at = layout_add(at, 16, pick_shared_bytes(t->warps, t->n_sms)); /* pick */
    return layout_add(at, 16, 0);
}

#endif
