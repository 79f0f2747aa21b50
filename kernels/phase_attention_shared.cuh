/* Attention's scratch in shared memory, which phase_attention.cuh uses. Only shared.cuh includes this file. */
#ifndef REEL_KERNELS_PHASE_ATTENTION_SHARED_CUH
#define REEL_KERNELS_PHASE_ATTENTION_SHARED_CUH

#include "decode_layout.h"
#include "kv_layout.h"

enum {
    AT_TILES = M_HEAD_DIM / TILE_K,
    AT_WORDS = M_HEAD_DIM / 2,                       /* of a head's row, bf16 pairs */
    AT_HEADS = P_GROUP_HEADS / P_GROUP_KV_HEADS,     /* q heads of a KV head: columns of a product */
    AT_PARTS = P_ATTENTION_WARPS / P_GROUP_KV_HEADS, /* warps that share a KV head */
    AT_ROUNDS = P_KV_SLOTS / P_ATTENTION_WARPS,      /* slots of one warp */
    AT_Q_STRIDE = AT_Q_WORDS(AT_TILES),
    AT_O_STRIDE = PART_STRIDE(2 * AT_TILES),
    AT_O_FLOATS = AT_HEADS * 8 * AT_O_STRIDE, /* of o of one warp */
    AT_PART_STRIDE = AT_PART_FLOATS(AT_PARTS),
    /* A head's row has ROPE_WORDS pairs of words, and the first TURNING pairs rotate. A lane holds pairs lane,
     * lane + 32 and so on. */
    ROPE_WORDS = AT_WORDS / 2,
    ROPE_TURNS = (ROPE_WORDS + LANES - 1) / LANES,
    TURNING = M_ROTARY / 4
};
/* Whether decoding multiplies codes of keys and values as integers: attention_digits.cuh. A set is two q heads of a KV
 * head. With more sets or dims a lane's sums would take too many registers. */
#define AT_SETS   ((P_GROUP_HEADS / P_GROUP_KV_HEADS + 1) / 2)
#define KV_DIGITS (P_KV_FORM == 1 && G_COPY >= 1 && AT_SETS * (M_HEAD_DIM / 16) <= 8)
/* Whether V's tiles are cleared from the last position on: of codes that are integers any do. */
#define KV_TRIMMED (!KV_DIGITS)
/* Whether columns of one session attend together to what they have in common: columns_share.cuh. Digits leave no room
 * for a second one in a product. */
#define TOGETHER (P_FOLLOWS && !KV_DIGITS)
#if M_ROTARY % 4 || M_ROTARY > M_HEAD_DIM
#error "rotary: a multiple of 4 up to head_dim"
#endif

/* attention_shared_bytes (decode_layout.h) counts the same parts. */
struct ALIGN(16) attention_shared {
    /* q heads, then the current position's k rows: rotated, not yet normed; placed as q_place says */
    u32 q[P_GROUP_HEADS + P_GROUP_KV_HEADS][AT_Q_STRIDE];
    float q_ssq[P_GROUP_HEADS + P_GROUP_KV_HEADS][AT_SSQ];
#if P_COLUMNS == 1
    float o[P_ATTENTION_WARPS][AT_HEADS][8 * AT_O_STRIDE]; /* of each warp: [row % 8][tile][row / 8] */
#endif
    float m[P_GROUP_HEADS][AT_PART_STRIDE], l[P_GROUP_HEADS][AT_PART_STRIDE];
    float m_own[P_GROUP_HEADS];             /* the current position's score */
    u32 kv[2 * P_GROUP_KV_HEADS][AT_WORDS]; /* the current position: k rows, then v rows, as they came */
#if !P_OVERLAID
    float cos_sin[M_HEAD_DIM]; /* of this token: cos[head_dim / 2], sin[head_dim / 2]; beyond M_ROTARY / 2: 1, 0 */
#endif
};

#endif
