/* The arguments of the kernels of limits.cu. Host and device both compile this file, so all types in it have a fixed
 * size. */
#ifndef REEL_KERNELS_LIMITS_ARGS_H
#define REEL_KERNELS_LIMITS_ARGS_H

enum {
    LIMITS_PIECE = 8192,     /* bytes of one copy */
    LIMITS_MOST_PIECES = 24, /* pieces that a block has in flight at most */
    LIMITS_RING_AT = 1024,   /* where in shared memory the pieces begin; the barriers lie before them */
    LIMITS_READERS = 4,      /* warps of a block that copy in read_all */
    LIMITS_GATHERERS = 256,  /* threads of a block that gather in exchange */
    LIMITS_GATHER_PAIRS = 8, /* pairs of words that each of these threads reads at most */
    LIMITS_MOST_WORDS = LIMITS_GATHERERS * LIMITS_GATHER_PAIRS * 2,
    LIMITS_READ_THREADS = LIMITS_READERS * 32,       /* of a block of read_all */
    LIMITS_EXCHANGE_THREADS = LIMITS_GATHERERS + 32, /* of a block of exchange and of touch */
    LIMITS_SCATTER_THREADS = 256
};

struct limits_args {
    unsigned char *data;     /* regions of `span` bytes, one for each warp that copies */
    unsigned long long span; /* a multiple of LIMITS_PIECE */
    unsigned int pieces;     /* that each warp of read_all copies */
    int slots;               /* pieces that one warp has in flight; 0: no copies beside the exchanges */

    unsigned long long *words; /* [2][word_stride] */
    unsigned int word_stride;
    int rounds, group, per_block; /* group: SMs that read each other's words; per_block: words of one SM */
    unsigned int settle_ns;       /* how long the copies run before the clock starts */
    unsigned int patience;        /* failed polls before a gather gives up */

    unsigned long long *ns, *bytes; /* [blocks]: how long the rounds took, and what was copied meanwhile */
    unsigned int *errors;           /* words with a wrong payload, and 1 << 20 for each thread that gave up */

    unsigned long long *mailbox; /* mapped */
    unsigned long long value;
};

#endif
