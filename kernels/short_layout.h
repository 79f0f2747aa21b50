/* What a launch of short.cu or short_far.cu needs of shared memory and of exchange memory. The plan makes room
 * for it. The kernel's struct and words (short_shared.cuh) must come to the same sizes, or the
 * kernel does not compile. A launch has room for a multiple of 8 tokens; 8 tokens
 * are an atom. */
#ifndef REEL_KERNELS_SHORT_LAYOUT_H
#define REEL_KERNELS_SHORT_LAYOUT_H

#include "decode_layout.h"
#include "kv_layout.h"
#include "prefill_args.h"

/* Atoms that go through a product at once: SHORT_PAIR in a launch of few tokens, SHORT_WIDE in
 * one of more. */
#define SHORT_PAIR(atoms) ((atoms) > 1 ? 2 : 1)
#define SHORT_WIDE(atoms) ((atoms) > 2 ? 4 : SHORT_PAIR(atoms))
/* How many q heads of a KV head a warp attends with at once: as many as it has registers for. */
#define SHORT_HEADS(queries, head_dim) ((queries) % 2 == 0 ? 2 : (head_dim) <= 64 && (queries) % 3 == 0 ? 3 : 1)
/* Words of what one SM hands over of 8 rows of a head of so many k tiles: values, maxima and sums of weights. */
#define SHORT_PARTIAL_WORDS(tiles) ((tiles)*SHORT_TILE_WORDS + 16)
/* Floats of a row of angles, padded so that two rows meet all banks. */
#define SHORT_ANGLES(head_dim) ((head_dim) + 16)

enum {
    SHORT_SUM_BYTES = 512,   /* sums of 16 rows by 8 tokens, float32 */
    SHORT_INPUT_BYTES = 256, /* a B operand: 16 columns of 8 tokens, bf16 */
    SHORT_TILE_WORDS = 64    /* exchange words of 16 rows by 8 tokens */
};

/* Bytes of a block's struct block_shared, without the ring. kv_heads: of a group. kv_form: enum kv_codes. gpus: how
 * many share the model. */
TAPE_FN int short_shared_bytes(const struct tape_shape *t, int kv_heads, int head_dim, int kv_form, int atoms,
                               int ring_slots, int gpus) {
    const int runs = (atoms + 1) / 2; /* of 16 tokens: pieces of K and V */
    /* partial sums of one phase, and what attention needs there to merge its warps' results */
    int bytes = (t->warps - 1) * (head_dim / TILE_K + 1) * SHORT_SUM_BYTES / 2;
    for (int i = 0; i < TAPE_HEAD; i++) {
        const struct tape_segment *g = &t->segment[i];
        const int n = g->row_tiles * SHORT_PAIR(atoms) * g->k_parts * SHORT_SUM_BYTES;
        if (n > bytes) bytes = n;
    }
    int at = gpus_shared_bytes(gpus);                               /* others */
    at += 2 * bytes;                                                /* part */
    at += t->segment[TAPE_OUT].k_tiles * atoms * SHORT_INPUT_BYTES; /* q */
    at += kv_heads * runs * (int)kv_piece_bytes(0, head_dim);       /* k, v */
    at += kv_form ? kv_heads * runs * KV_SCALES_BYTES : 0;          /* kv_scale */
    at += (runs + KV_POSITIONS) * SHORT_ANGLES(head_dim) * 4;       /* angle */
    at += 2 * t->warps * SHORT_WIDE(atoms) * ATOM_TOKENS * 4;       /* ssq */
    at = layout_add(at, 8, 2 * 8 * ring_slots);                     /* full, empty */
    at += (runs + 1) * 8;                                           /* page */
    at += 5 * 4;                                                    /* end, caps */
    return layout_add(at, 16, 0);
}

/* Row tiles of a group's q, k and v. */
TAPE_FN int short_qkv_tiles(const struct tape_shape *t) {
    return (t->group_q + 2 * t->group_kv + TILE_ROWS - 1) / TILE_ROWS;
}

/* Exchange words of all SMs; short_shared.cuh says what lies where. heads: of a group. */
TAPE_FN unsigned short_exchange_words(const struct tape_shape *t, int heads, int head_dim, int atoms) {
    const int h_tiles = t->hidden / TILE_K, tile = atoms * SHORT_TILE_WORDS, n = t->n_groups;
    int words = 2 * h_tiles * tile;                                             /* S_X */
    words += 2 * h_tiles * atoms * ATOM_TOKENS;                                 /* S_SSQ */
    words += n * short_qkv_tiles(t) * tile;                                     /* S_QKV */
    words += 2 * n * h_tiles * tile;                                            /* S_SUMS */
    words += n * t->segment[TAPE_DOWN].k_tiles * tile;                          /* S_GATED */
    words += t->n_sms * heads * atoms * SHORT_PARTIAL_WORDS(head_dim / TILE_K); /* S_PARTIAL */
    words += n * heads * (head_dim / TILE_K) * tile;                            /* S_ATTENDED */
    return (unsigned)words;
}

#endif
