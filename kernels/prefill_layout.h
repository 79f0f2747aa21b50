/* What blocks that read prompts keep in shared memory, for the plan, which makes room for it, and
 * for the kernels, whose structs (prefill_shared.cuh, prefill_delta_*.cuh) must have the same sizes
 * or do not compile. A block's shared memory begins at a multiple of STAGE_ALIGN inside what it is
 * given. */
#ifndef REEL_KERNELS_PREFILL_LAYOUT_H
#define REEL_KERNELS_PREFILL_LAYOUT_H

#include "decode_layout.h"
#include "prefill_args.h"

enum {
    READ_WARPS = 8,      /* that compute; one more, or a warpgroup, brings what they read */
    WARPGROUP = 4,       /* warps between which registers move */
    STAGE_BYTES = 32768, /* of the ring */
    STAGE_ALIGN = 1024,
    STAGE_TILES = 8,                         /* k tiles that a stage holds */
    ITEM_TOKENS = 128,                       /* of an item of a product at most, without a tail */
    READ_TOKENS = ITEM_TOKENS + ATOM_TOKENS, /* and with one: 8 tokens more, see prefill_items.cuh */
    EXCHANGE_FLOATS = 2 * 64 * 32
};

/* Whether registers move from the producer's warpgroup to consumers: wgmma's way needs that, and so
 * does attention with heads of 256 in mma's, which holds 192 of q and o alone, where the kernels of
 * decoding (`others`) move theirs. */
#define REGISTERS_MOVE(wgmma, others, head_dim) ((wgmma) || ((others) && (head_dim) > 128))

/* struct prefill_shared behind a ring of stages, 0: of none; k_places is a multiple of STAGE_TILES.
 */
TAPE_FN int prefill_shared_bytes(int stages, int k_places) {
    int at = 4 * EXCHANGE_FLOATS;           /* exchange */
    at += 2 * 4 * READ_TOKENS;              /* scale */
    at += READ_WARPS * 4 * READ_TOKENS;     /* ssq */
    at += 4 * k_places;                     /* k_place */
    at = layout_add(at, 8, 2 * 8 * stages); /* full, empty */
    return stages * STAGE_BYTES + layout_add(at, 16, 0) + STAGE_ALIGN;
}

/* ---- Gated DeltaNets ---- */

/* bf16 matrices of a chunk: of its tokens by the columns of a head, padded to whole tiles, and by
 * themselves. */
#define CHUNK_BYTES(columns) (DELTA_CHUNK * (((columns) + TILE_K - 1) / TILE_K * TILE_K) * 2)
enum {
    SQUARE_BYTES = DELTA_CHUNK * DELTA_CHUNK * 2,
    T_STRIDE = DELTA_CHUNK + 4 /* floats of a row of T: 8 rows' pairs meet all banks */
};

/* struct chunk_shared of prefill_delta_chunk.cuh */
TAPE_FN int chunk_shared_bytes(int key_dim, int value_dim) {
    const int keys = CHUNK_BYTES(key_dim), q = keys > 2 * SQUARE_BYTES ? keys : 2 * SQUARE_BYTES;
    int at = keys + CHUNK_BYTES(value_dim) + q; /* k, v, q */
    at += 2 * SQUARE_BYTES;                     /* weighted */
    at += 4 * DELTA_CHUNK * T_STRIDE;           /* t */
    at += 2 * 4 * DELTA_CHUNK;                  /* sum, beta */
    at += 8;                                    /* full */
    return layout_add(at, 16, 0);
}

/* struct answer_shared of prefill_delta_answer.cuh */
TAPE_FN int answer_shared_bytes(int key_dim, int value_dim) {
    int at = CHUNK_BYTES(key_dim) + 2 * SQUARE_BYTES;       /* q, asked */
    at += key_dim * (CHUNK_BYTES(value_dim) / DELTA_CHUNK); /* states */
    at += 2 * CHUNK_BYTES(value_dim);                       /* learned */
    at += 2 * 2 * 4 * DELTA_CHUNK;                          /* squares */
    at += 8;                                                /* full */
    return layout_add(at, 16, 0);
}

/* Of a block of chunk or of answer, whichever needs more. */
TAPE_FN int prefill_chunk_bytes(int key_dim, int value_dim) {
    const int chunk = chunk_shared_bytes(key_dim, value_dim);
    const int answer = answer_shared_bytes(key_dim, value_dim);
    return (chunk > answer ? chunk : answer) + STAGE_ALIGN;
}

/* struct conv_shared of prefill_delta_conv.cuh: taps, and what its warps make. A macro, since the
 * kernel is compared with it directly. */
#define PREFILL_CONV_BYTES(taps) ((taps)*1024 + READ_WARPS * 4096 + STAGE_ALIGN)

#endif
