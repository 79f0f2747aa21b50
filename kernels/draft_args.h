/* What the host tells draft_input.cu, which makes the inputs of a draft layer. Both compile it. */
#ifndef REEL_KERNELS_DRAFT_ARGS_H
#define REEL_KERNELS_DRAFT_ARGS_H

#include "args.h"

enum {
    DRAFT_THREADS = 256,   /* of a block */
    DRAFT_FEW = 8,         /* positions whose ids are among the arguments */
    DRAFT_POSITIONS = 256, /* of a launch at most */
    DRAFT_SHARED_BYTES = DRAFT_THREADS * 16
};

/* A matrix of bf16, and what it is multiplied by. */
struct draft_matrix {
    const unsigned char *tiles; /* [row_tiles][k_tiles] as tile_mma takes them, 512 bytes each */
    int row_tiles, k_tiles;     /* of 16 rows or columns; 0: there is none */
    int part;                   /* of the positions' vectors, with which the columns begin */
    float *out;                 /* f32 [n, 16 row_tiles] */
};
enum { DRAFT_MATRICES = 2 };

/* n positions of a session, one after the other, and for each the id that follows it. A position's vector has `parts`,
 * hidden numbers each: the norm of the id's embedding, and, unless it is 1, what is known of the position: its hidden
 * state, normed, or with P_TAPS its taps as they are. */
struct draft_args {
    struct decode_args model;        /* whose ids they are: tape, embedding and norms count */
    const unsigned short *embedding; /* bf16 [vocab, hidden] in place of the model's, or NULL */
    const float *gains;              /* f32 [id, hidden state][hidden]: of the norms */
    float eps;                       /* of the norms */
    const int *ids;                  /* [n], or NULL: they are `few` */
    const unsigned int *word;        /* the only id is the one that a launch before this leaves there; or NULL */
    const int *meant;                /* [n_meant] the id that each such id means, or NULL: itself */
    int n_meant;
    int few[DRAFT_FEW];
    int n; /* at most DRAFT_POSITIONS */
    int parts;
    const float *hidden; /* f32 [n, parts - 1, hidden] */
    unsigned int raw;    /* a bit for each of 32 positions, the last one's for all behind it: its hidden state is as the
                            layers made it, before the final norm; 0: it is behind that */
    unsigned int *halves; /* [n, parts, hidden / 2] pairs of bf16: rounded, and what rounding left over */
    struct draft_matrix matrix[DRAFT_MATRICES];
};

#endif
