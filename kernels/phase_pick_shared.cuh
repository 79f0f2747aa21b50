/* Scratch of the sampler in shared memory; see sample.cuh. Included by shared.cuh only. */
#ifndef REEL_KERNELS_PHASE_PICK_SHARED_CUH
#define REEL_KERNELS_PHASE_PICK_SHARED_CUH

enum { PICK_ITEMS = CONSUMER_THREADS < PICK_MOST_ITEMS ? CONSUMER_THREADS : PICK_MOST_ITEMS };

/* pick_shared_bytes (decode_layout.h) counts the same parts. */
struct pick_shared {
    struct quad item[PICK_ITEMS]; /* candidates of all blocks, in any order: order key, id, weight low, high */
    u64 sum[2][P_WARPS];          /* weights, a warp each: this block's or the kept ones'; all ids' */
    u32 key[P_SMS];               /* the blocks' best */
    u32 best_key[P_WARPS], best_id[P_WARPS]; /* the warps' best scores */
    u32 largest;                             /* order key of the largest logit, 0: there is none */
    u32 cutoff;                              /* all ids of this order key or a higher one are candidates */
    u32 n_items;                             /* candidates, also those that found no room */
    u32 n_whole;                             /* of the cutoff or above */
    u32 n_own;                               /* candidates of this block so far */
    u32 count[3];
};

#endif
