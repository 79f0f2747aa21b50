/* What host and device say to each other about reading a prompt: the arguments of prefill's
 * launches, and how its activations lie in memory. Compiled by both.
 *
 * Activations that a matrix product reads are bf16 in blocks of 64 columns: [columns / 64][tokens /
 * 8] atoms of 8 tokens by 64 columns, 1,024 bytes, whose 16-byte chunks are swizzled so that the
 * same chunk of 8 tokens meets all banks. A stage of a product is contiguous, and is what wgmma
 * wants.
 *
 * Columns count through the k tiles as the tapes have them: for out and down the groups' slices,
 * each padded to its k tiles, follow one another. Columns that belong to no weight hold 0. */
#ifndef REEL_KERNELS_PREFILL_ARGS_H
#define REEL_KERNELS_PREFILL_ARGS_H

#include "args.h"

enum { ATOM_TOKENS = 8, ATOM_COLUMNS = 64, ATOM_BYTES = 1024 };

/* Byte of (token, column) where `capacity` tokens (a multiple of 8) have room. */
TAPE_FN unsigned long long activation_at(int capacity, int token, int column) {
    unsigned row = (unsigned)token % ATOM_TOKENS, chunk = (unsigned)column % ATOM_COLUMNS / 8;
    unsigned long long atom = (unsigned long long)(column / ATOM_COLUMNS) * (unsigned)(capacity / ATOM_TOKENS) +
                              (unsigned)(token / ATOM_TOKENS);
    return atom * ATOM_BYTES + row * 128 + (chunk ^ row) * 16 + (unsigned)column % 8 * 2;
}

/* How the work of a product is cut. Items are of
 *   split_k 0   128 rows by 64 * blocks tokens; a block's 8 warps have rows of their own
 *   split_k 1   64 rows by 64 tokens; the two halves of the warps share k
 *   split_k 8   16 rows by 64 tokens; each warp has an eighth of k. For up to 64 tokens; out and
 * down both or neither */
struct prefill_cut {
    int blocks; /* 1 or 2; 1 where k is split */
    int split_k;
};

/* Products in the order of a layer: TAPE_QKV, TAPE_OUT, TAPE_GATE_UP, TAPE_DOWN. A Gated DeltaNet
 * has TAPE_MIX for the first. */
enum { PREFILL_PRODUCTS = 4 };

/* Scratch of Gated DeltaNets, of one layer at a time, in chunks of DELTA_CHUNK tokens of which the
 * last is filled up with zeros. A block is 8 rows of 8 bf16, 128 bytes; a quad tile an operand of
 * 16 by 16 as mma wants it, 512 bytes; see prefill_delta.cuh. */
enum { DELTA_CHUNK = 64, DELTA_KEPT = DELTA_CHUNK + 4 };
struct prefill_delta {
    unsigned char *q, *k;   /* [key heads][chunks][tokens / 8][key dim / 8] blocks, normed */
    unsigned char *v;       /* [value heads][chunks][tokens / 8][columns / 8] blocks */
    float *gates;           /* f32 [value heads][log of the decay, beta][tokens] */
    float *decay;           /* f32 [value heads][from the chunk's start, to its end][tokens] */
    float *kept;            /* f32 [value heads][DELTA_KEPT]: of the last chunk, to the position before the
                               last token: its tokens, 0 from the last on; behind them the state's */
    unsigned char *w;       /* blocks, [value heads] as k: what the state is asked for */
    float *u;               /* f32 [value heads][chunks][columns / 16][tokens / 8][lane][4]: of v alone */
    unsigned char *asked;   /* blocks of [value heads][chunks][rounded, rest][chunk, chunk] */
    unsigned char *learned; /* quad tiles [value heads][chunks][columns / 16][rounded,
                               rest][tokens / 16] */
    unsigned char *states;  /* quad tiles [value heads][chunks][columns / 16][keys / 16]: what each
                               chunk begins with */
    /* the session's states before the last token, as decode.delta has them; or NULL */
    float *keep_state, *keep_window;
};

struct prefill_args {
    /* the model, the session and this launch, as for decoding: tape, embedding, norms, qk_norms,
     * rope, kv, kv_pieces, position, n_tokens, ids or embeddings (of n_tokens), patience, mailbox
     * (end, n_evaluated and faults), abort, profile. Not used: what is about picking and exchange
     * words. */
    struct decode_args decode;
    struct prefill_cut cut[TAPE_N_PHASES]; /* but the head's */
    int room; /* tokens that activations have room for: a multiple of 8; n_tokens rounded up with
                 split_k 8 */
    /* scratch for P_PREFILL_TOKENS tokens, a multiple of 128; zeroed once when it is made */
    float *h;                 /* f32 [tokens, hidden]: the residual stream */
    float *ssq;               /* f32 [row tiles of out in a group, tokens]: sums of h^2 over some rows each */
    unsigned char *x;         /* activations, columns of qkv's and gate_up's k tiles in whole blocks: h
                                 times    the norm's gains; then as many of what rounding left over */
    unsigned short *qkv;      /* bf16 [tokens, q rows + gates + k rows + v rows]; of a Gated DeltaNet
                                 [tokens, q, k, v and z rows, then what rounding left over of q, k, v] */
    unsigned char *attention; /* activations, columns of out's k tiles; each kind of layer has its
                                 own */
    unsigned char *gated;     /* activations, columns of down's k tiles */
    struct prefill_delta delta;
};

#endif
