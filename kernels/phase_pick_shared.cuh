/* The sampler's scratch in shared memory, which sample.cuh, sample_list.cuh and sample_search.cuh use. Only
 * decode_shared.cuh includes this file. */
#ifndef REEL_KERNELS_PHASE_PICK_SHARED_CUH
#define REEL_KERNELS_PHASE_PICK_SHARED_CUH

enum { PICK_ITEMS = CONSUMER_THREADS < PICK_MOST_ITEMS ? CONSUMER_THREADS : PICK_MOST_ITEMS };

/* pick_shared_bytes (decode_layout.h) counts the same parts. */
struct pick_shared {
    struct quad item[PICK_ITEMS]; /* candidates of all blocks, in any order: order key, id, weight low, high */
    u64 sum[2][P_WARPS];          /* weights, by warp: [0] of this block's rows, or of the kept ids; [1] of all ids */
    u32 key[P_SMS];               /* the blocks' best */
    u32 best_key[P_WARPS], best_id[P_WARPS]; /* the warps' best scores */
    u32 largest;                             /* order key of the largest logit, 0: there is none */
    u32 cutoff;                              /* all ids of this order key or a higher one are candidates */
    u32 n_items;                             /* candidates, also those that `item` had no room for */
    u32 n_whole;                             /* candidates at the cutoff or above */
    u32 n_own;                               /* candidates of this block so far */
    u32 count[3];                            /* rows of this block within a range; see own_count */
};

#endif
