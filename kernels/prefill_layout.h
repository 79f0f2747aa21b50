/* This header counts what blocks that read prompts keep in shared memory. The plan makes room for it. The structs of
 * the kernels (prefill_shared.cuh, prefill_delta_*.cuh) must have the same sizes, or the kernels do not compile. What
 * a block keeps begins at a multiple of STAGE_ALIGN inside the shared memory that it is given. */
#ifndef REEL_KERNELS_PREFILL_LAYOUT_H
#define REEL_KERNELS_PREFILL_LAYOUT_H

#include "decode_layout.h"
#include "prefill_args.h"

enum {
    READ_WARPS = 8,      /* warps that compute; one more, or a warpgroup, brings what they read */
    WARPGROUP = 4,       /* warps between which registers move */
    STAGE_BYTES = 32768, /* bytes of a stage, a slot of the ring of prompts */
    STAGE_ALIGN = 1024,
    STAGE_TILES = 8,                         /* k tiles that a stage holds */
    ITEM_TOKENS = 128,                       /* the most that an item of a product has without a tail */
    READ_TOKENS = ITEM_TOKENS + ATOM_TOKENS, /* the most with a tail of 8 more: prefill_items.cuh */
    EXCHANGE_FLOATS = 2 * 64 * 32
};

/* Whether registers move from the producer's warpgroup to the consumers. Kernels with wgmma need that. With mma,
 * attention with heads of 256 needs that too, since its q and o alone take 192 registers; registers move there only
 * where the kernels of decoding (`others`) move theirs. */
#define REGISTERS_MOVE(wgmma, others, head_dim) ((wgmma) || ((others) && (head_dim) > 128))
/* Of a block: the warps that compute, and one warp or a warpgroup that brings. */
#define READ_BLOCK_THREADS(moves) (32 * (READ_WARPS + ((moves) ? WARPGROUP : 1)))

/* Bytes of a ring of `stages` stages, perhaps 0, and of struct prefill_shared behind it. k_places is a multiple of
 * STAGE_TILES. */
TAPE_FN int prefill_shared_bytes(int stages, int k_places) {
    int at = 4 * EXCHANGE_FLOATS;           /* exchange */
    at += 2 * 4 * READ_TOKENS;              /* scale */
    at += READ_WARPS * 4 * READ_TOKENS;     /* ssq */
    at += 4 * k_places;                     /* k_place */
    at = layout_add(at, 8, 2 * 8 * stages); /* full, empty */
    return stages * STAGE_BYTES + layout_add(at, 16, 0) + STAGE_ALIGN;
}

/* Blocks of a join: 8 row tiles by 64 tokens each. */
#define PREFILL_JOIN_BLOCKS(row_tiles, tokens) (((row_tiles) + READ_WARPS - 1) / READ_WARPS * (((tokens) + 63) / 64))

/* ---- Gated DeltaNets ---- */

/* Bytes of a chunk's bf16 matrices. CHUNK_BYTES: its tokens by the columns of a head, padded to whole tiles.
 * SQUARE_BYTES: its tokens by its tokens. */
#define CHUNK_BYTES(columns) (DELTA_CHUNK * (((columns) + TILE_K - 1) / TILE_K * TILE_K) * 2)
enum {
    SQUARE_BYTES = DELTA_CHUNK * DELTA_CHUNK * 2,
    T_STRIDE = DELTA_CHUNK + 4 /* floats of a row of T: 8 rows' pairs meet all banks */
};

/* Bytes of struct chunk_shared of prefill_delta_chunk.cuh. */
TAPE_FN int chunk_shared_bytes(int key_dim, int value_dim) {
    const int keys = CHUNK_BYTES(key_dim), q = keys > 2 * SQUARE_BYTES ? keys : 2 * SQUARE_BYTES;
    int at = keys + CHUNK_BYTES(value_dim) + q; /* k, v, q */
    at += 2 * SQUARE_BYTES;                     /* weighted */
    at += 4 * DELTA_CHUNK * T_STRIDE;           /* t */
    at += 2 * 4 * DELTA_CHUNK;                  /* sum, beta */
    at += 8;                                    /* full */
    return layout_add(at, 16, 0);
}

/* Bytes of struct answer_shared of prefill_delta_answer.cuh. */
TAPE_FN int answer_shared_bytes(int key_dim, int value_dim) {
    int at = CHUNK_BYTES(key_dim) + 2 * SQUARE_BYTES;       /* q, asked */
    at += key_dim * (CHUNK_BYTES(value_dim) / DELTA_CHUNK); /* states */
    at += 2 * CHUNK_BYTES(value_dim);                       /* learned */
    at += 2 * 2 * 4 * DELTA_CHUNK;                          /* squares */
    at += 8;                                                /* full */
    return layout_add(at, 16, 0);
}

/* Shared memory of a block of chunk or of answer, whichever needs more. */
TAPE_FN int prefill_chunk_bytes(int key_dim, int value_dim) {
    const int chunk = chunk_shared_bytes(key_dim, value_dim);
    const int answer = answer_shared_bytes(key_dim, value_dim);
    return (chunk > answer ? chunk : answer) + STAGE_ALIGN;
}

/* Shared memory of a block of conv: struct conv_shared of prefill_delta_conv.cuh holds taps and what the warps make.
 * This is a macro, since a STATIC_ASSERT there compares the struct with it. */
#define PREFILL_CONV_BYTES(taps) ((taps)*1024 + READ_WARPS * 4096 + STAGE_ALIGN)

#endif
