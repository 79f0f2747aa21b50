/* This header holds what host and device tell each other about reading a prompt: the arguments of prefill's
 * launches, and how activations lie in memory. Both compile it.
 *
 * Activations that a matrix product reads are bf16 in blocks of 64 columns: [columns / 64][tokens / 8] atoms. A
 * column is one value of a token. An atom is 8 tokens by 64 columns, 1,024 bytes. Its 16-byte chunks are swizzled
 * so that the same chunk of 8 tokens meets all banks. What a stage of a product takes of a block is contiguous, and
 * lies as wgmma wants it.
 *
 * Columns count through the k tiles as the tapes (docs/GLOSSARY.md) have them. For out and down the slices of the
 * groups follow one another, each padded to its k tiles. Columns that belong to no weight hold 0. */
#ifndef REEL_KERNELS_PREFILL_ARGS_H
#define REEL_KERNELS_PREFILL_ARGS_H

#include "args.h"

enum { ATOM_TOKENS = 8, ATOM_COLUMNS = 64, ATOM_BYTES = 1024 };

/* The byte at which (token, column) lies in activations with room for `capacity` tokens, a multiple of 8. */
TAPE_FN unsigned long long activation_at(int capacity, int token, int column) {
    unsigned row = (unsigned)token % ATOM_TOKENS, chunk = (unsigned)column % ATOM_COLUMNS / 8;
    unsigned long long atom = (unsigned long long)(column / ATOM_COLUMNS) * (unsigned)(capacity / ATOM_TOKENS) +
                              (unsigned)(token / ATOM_TOKENS);
    return atom * ATOM_BYTES + row * 128 + (chunk ^ row) * 16 + (unsigned)column % 8 * 2;
}

/* How the work of a product is cut into items (docs/GLOSSARY.md). An item is
 *   split_k 0   128 rows by 64 * blocks tokens; each of the block's 8 warps has rows of its own
 *   split_k 1   64 rows by 64 tokens; the two halves of the warps share k
 *   split_k 8   16 rows by 64 tokens; each warp has an eighth of k
 * split_k 8 is for up to 64 tokens. out and down both have it, or neither has. */
struct prefill_cut {
    int blocks; /* of 64 tokens: 1 or 2; 1 where k is split */
    int split_k;
};

/* The products of a layer in their order are TAPE_QKV, TAPE_OUT, TAPE_GATE_UP, TAPE_DOWN. A Gated DeltaNet has
 * TAPE_MIX instead of the first. */
enum { PREFILL_PRODUCTS = 4 };

/* Scratch (docs/GLOSSARY.md) of Gated DeltaNets holds one layer at a time, in chunks of DELTA_CHUNK tokens. Zeros
 * fill up the last chunk. A block is 8 rows of 8 bf16, 128 bytes. A quad tile is an operand of 16 by 16 as mma wants
 * it, 512 bytes. prefill_delta.cuh has the formulas of w, u, asked and learned. */
enum { DELTA_CHUNK = 64, DELTA_KEPT = DELTA_CHUNK + 4 };
struct prefill_delta {
    unsigned char *q, *k;   /* [key heads][chunks][tokens / 8][key dim / 8] blocks, normed */
    unsigned char *v;       /* [value heads][chunks][tokens / 8][columns / 8] blocks */
    float *gates;           /* f32 [value heads][log of the decay, beta][tokens] */
    float *decay;           /* f32 [value heads][from the chunk's start, to its end][tokens] */
    float *kept;            /* f32 [value heads][DELTA_KEPT]: what reaches the position before the launch's last
                               token: a factor for each token of the last chunk, 0 from the last token on; then
                               the factor of the state that the chunk begins with */
    unsigned char *w;       /* blocks, as k but for each value head: what the state is asked for */
    float *u;               /* f32 [value heads][chunks][columns / 16][tokens / 8][lane][4]: of v alone */
    unsigned char *asked;   /* blocks of [value heads][chunks][rounded, rest][chunk, chunk] */
    unsigned char *learned; /* quad tiles [value heads][chunks][columns / 16][rounded, rest][tokens / 16] */
    unsigned char *states;  /* quad tiles [value heads][chunks][columns / 16][keys / 16]: the state that each chunk
                               begins with */
    /* where the session's state and window before the last token go, laid out as in decode.delta; or NULL */
    float *keep_state, *keep_window;
};

struct prefill_args {
    /* The model, the session and this launch, as for decoding: tape, embedding, norms, qkv_vectors, rope,
     * kv_pages, position, n_tokens, ids or embeddings (of n_tokens), patience, mailbox (end, n_evaluated and
     * faults), abort, profile. Prefill does not use the members for picking and for exchange words. */
    struct decode_args decode;
    struct prefill_cut cut[TAPE_N_PHASES]; /* by phase; the head has none */
    int room; /* tokens that activations have room for: a multiple of 8; with split_k 8 n_tokens rounded up */
    /* Scratch for P_PREFILL_TOKENS tokens, a multiple of 128. It is zeroed once, when it is made. */
    float *h;                 /* f32 [tokens, hidden]: the residual stream */
    float *ssq;               /* f32 [row tiles of out in a group, tokens]: sums of h^2 over some rows each */
    unsigned char *x;         /* activations, columns of qkv's and gate_up's k tiles in whole blocks: h times
                                 the norm's gains; then as many columns of what rounding left over */
    unsigned short *qkv;      /* bf16 [tokens, q rows + gates + k rows + v rows]; of a Gated DeltaNet
                                 [tokens, q, k, v and z rows, then what rounding left over of q, k, v] */
    unsigned char *attention; /* activations, columns of out's k tiles; each kind of layer has its own */
    unsigned char *gated;     /* activations, columns of down's k tiles */
    struct prefill_delta delta;
    /* Several GPUs: each has the columns of its own groups in qkv, attention, gated and delta, and the tape of the
     * decode arguments is that of its own first SM. So its products of out and down are one part of a sum. It stores
     * them on all GPUs, where the next launch adds up the parts of all. */
    struct gpu_args gpus;
    float *parts[ARGS_MOST_GPUS]; /* on each GPU: [out, down][of each GPU] parts of PREFILL_PART_FLOATS */
};

/* Floats of a part: of each row tile of out in a group, of each 8 tokens, 32 lanes' 4 products of an mma. */
#define PREFILL_PART_FLOATS(row_tiles, tokens) ((unsigned long long)(row_tiles) * ((tokens) / ATOM_TOKENS) * 128)

/* The same for a pass over packed texts, which are whole and lie one behind the other: position is 0, so that a token's
 * number is its slot in the cache. Kernels that do not care which text a token is of take the first member alone. */
struct packed_args {
    struct prefill_args prefill;
    const int *firsts; /* [n_tokens], device memory: the first slot of each token's text */
    const int *lasts;  /* [n_texts], device memory: the last token of each text */
    float *vectors;    /* f32 [n_texts, hidden]: its h after the final norm; the host's memory, mapped */
    int n_texts;
};

#endif
