/* What host and device say to each other about reading a prompt: the arguments of a prefill launch,
 * and how its activations lie in memory. Compiled by both.
 *
 * Activations that a matrix product reads are bf16 in blocks of 64 columns: [columns / 64][tokens /
 * 8] atoms of 8 tokens by 64 columns, 1,024 bytes, whose 16-byte chunks are swizzled so that the
 * same chunk of 8 tokens meets all banks. A stage of a product is contiguous, and is what wgmma
 * wants.
 *
 * Columns count through the k tiles as the tapes have them: for out and down the groups' slices, each
 * padded to its k tiles, follow one another. Columns that belong to no weight hold 0. */
#ifndef REEL_KERNELS_PREFILL_ARGS_H
#define REEL_KERNELS_PREFILL_ARGS_H

#include "args.h"

enum { ATOM_TOKENS = 8, ATOM_COLUMNS = 64, ATOM_BYTES = 1024 };

/* Byte of (token, column) where `capacity` tokens (a multiple of 8) have room. */
TAPE_FN unsigned long long activation_at(int capacity, int token, int column) {
    unsigned row = (unsigned)token % ATOM_TOKENS, chunk = (unsigned)column % ATOM_COLUMNS / 8;
    unsigned long long atom =
        (unsigned long long)(column / ATOM_COLUMNS) * (unsigned)(capacity / ATOM_TOKENS) +
        (unsigned)(token / ATOM_TOKENS);
    return atom * ATOM_BYTES + row * 128 + (chunk ^ row) * 16 + (unsigned)column % 8 * 2;
}

/* How the work of a product is cut: into items of 64 (split_k) or 128 rows by 64 * blocks tokens. With
 * split_k the two halves of a block's warps share the k tiles of the same rows. */
struct prefill_cut {
    int blocks; /* 1 or 2 */
    int split_k;
};

/* Products in the order of a layer: TAPE_QKV, TAPE_OUT, TAPE_GATE_UP, TAPE_DOWN. */
enum { PREFILL_PRODUCTS = 4 };

struct prefill_args {
    /* the model, the session and this launch, as for decoding: tape, embedding, norms, qk_norms, rope,
     * kv, kv_pieces, position, n_tokens, ids or embeddings (of n_tokens), patience, mailbox (end,
     * n_evaluated and faults), abort, profile. Not used: what is about picking and exchange words. */
    struct decode_args decode;
    struct prefill_cut cut[PREFILL_PRODUCTS];
    int layers; /* to run: all, fewer for tests */
    /* scratch for P_PREFILL_TOKENS tokens, a multiple of 128; zeroed once when it is made */
    float *h;          /* f32 [tokens, hidden]: the residual stream */
    float *ssq;        /* f32 [hidden / 64 rounded up, tokens]: sums of h^2 over 64 rows each */
    unsigned char *x;  /* activations, columns of qkv's and gate_up's k tiles: h times the norm's gains */
    unsigned short *qkv;      /* bf16 [tokens, q rows + k rows + v rows] */
    unsigned char *attention; /* activations, columns of out's k tiles */
    unsigned char *gated;     /* activations, columns of down's k tiles */
    unsigned int *arrived;    /* blocks that have ended their phases; zeroed before each launch */
};

#endif
