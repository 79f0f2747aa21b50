/* What the files of mutations are written with. */
#ifndef REEL_TESTS_SUPPORT_MUTATION_LISTS_H
#define REEL_TESTS_SUPPORT_MUTATION_LISTS_H

#include "support/mutations.h"

#define IN(file, from, to)                                                                         \
    { file, from, to, false }
#define EVERYWHERE(file, from, to)                                                                 \
    { file, from, to, true }
#define LIST(name, list, shares)                                                                   \
    const struct mutation_list name##_mutations = { #name, list,                                   \
                                                    (int)(sizeof list / sizeof *list), shares }

#define SUMS_EARLY(phase) IN("publish.cuh", "    consumers_sync(); /* " phase "'s sums */\n", "")
/* of two hops: words taken without their epoch */
#define REDUCED_EARLY                                                                              \
    IN("two_hops.cuh", "off |= word_off24(v[g], w->epoch);", "off |= !(v[g] >> 48);"),             \
        IN("two_hops.cuh", "(!polls || !word_is24(v[g], w->epoch))", "1")
#define H_EARLY                                                                                    \
    IN("two_hops.cuh", "return word_off(v[0], w->epoch) | word_off(v[1], w->epoch);",              \
       "return !(v[0] >> 32 && v[1] >> 32);")

/* Kernels' files that are named often. */
#define SHARED            "prefill_shared.cuh"
#define PRODUCT           "prefill_product.cuh"
#define ITEMS             "prefill_items.cuh"
#define ATTENTION         "prefill_attention.cuh"
#define BRIEF_SHARED      "short_shared.cuh"
#define BRIEF_ATTENTION   "short_attention.cuh"
#define BRIEF_PRODUCT     "short_product.cuh"
#define FAR               "short_far.cuh"
#define STEPS             "prefill_delta.cu"
#define ALL               "prefill_delta.cuh"
#define CONV              "prefill_delta_conv.cuh"
#define CHUNK             "prefill_delta_chunk.cuh"
#define CHAIN             "prefill_delta_chain.cuh"
#define ANSWER            "prefill_delta_answer.cuh"
#define COLUMNS_ATTENTION "columns_attention.cuh"
#define COLUMNS_HEAD      "columns_head.cuh"
#define COLUMNS_STAGE     "columns_stage.cuh"
#define COLUMNS_DELTA     "columns_delta.cuh"
#define PHASE_ATTENTION   "phase_attention.cuh"
#define PHASE_PICK        "phase_pick.cuh"
#define COLUMNS_SHARE     "columns_share.cuh"
#define CODES             "tile_codes.cuh"
#define DIGIT             "digits.cuh"
#define WIND              "wind.cu"

#endif
