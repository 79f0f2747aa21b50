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

/* n positions of a session, one after the other, and for each the id that follows it. */
struct draft_args {
    struct decode_args model; /* whose ids they are: tape, embedding and norms count */
    const float *gains;       /* f32 [id, hidden state][hidden]: of the norms of both halves */
    const unsigned char *fc;  /* W_fc, bf16 [hidden / 16][2 hidden / 16] tiles as tile_mma takes them, 512 bytes each */
    const int *ids;           /* [n], or NULL: they are `few` */
    const unsigned long long *word; /* of a mailbox: the only id is the one that a launch before this leaves there; or
                                       NULL */
    int few[DRAFT_FEW];
    int n;               /* at most DRAFT_POSITIONS */
    const float *hidden; /* f32 [n, hidden] */
    unsigned int raw;    /* a bit for each of 32 positions, the last one's for all behind it: its hidden state is as the
                            layers made it, before the final norm; 0: it is behind that */
    unsigned int *halves; /* [n, 2 hidden / 2] pairs of bf16: rounded, and what rounding left over */
    float *inputs;        /* f32 [n, hidden] */
};

#endif
