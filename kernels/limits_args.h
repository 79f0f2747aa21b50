/* What the kernels of limits.cu are told. Compiled by host and device; fixed-size types only. */
#ifndef REEL_KERNELS_LIMITS_ARGS_H
#define REEL_KERNELS_LIMITS_ARGS_H

enum {
    LIMITS_PIECE = 8192,     /* bytes of one copy */
    LIMITS_MOST_PIECES = 24, /* in flight, of a block */
    LIMITS_RING_AT = 1024,   /* in shared memory; before it lie the barriers */
    LIMITS_READERS = 4,      /* warps of a block that copy in read_all */
    LIMITS_GATHERERS = 256,  /* threads of a block that gather in exchange */
    LIMITS_GATHER_PAIRS = 8, /* pairs of words a thread of them reads at most */
    LIMITS_MOST_WORDS = LIMITS_GATHERERS * LIMITS_GATHER_PAIRS * 2
};

struct limits_args {
    unsigned char *data;     /* `lanes` regions of `span` bytes, one for each warp that copies */
    unsigned long long span; /* a multiple of LIMITS_PIECE */
    unsigned int pieces;     /* each warp of read_all copies */
    int slots;               /* pieces in flight, of one warp; 0: no copies beside the exchanges */

    unsigned long long *words; /* [2][word_stride] */
    unsigned int word_stride;
    int rounds, group, per_block; /* SMs that read each other's words; words of one SM */
    unsigned int settle_ns;       /* that the copies run before the clock starts */
    unsigned int patience;        /* failed polls before a gather gives up */

    unsigned long long *ns, *bytes; /* [blocks]: how long; copied meanwhile */
    unsigned int *errors;           /* words with a wrong payload; 1 << 20 more: gave up */

    unsigned long long *mailbox; /* mapped */
    unsigned long long value;
};

#endif
