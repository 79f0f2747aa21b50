/* What a block of decode.cu keeps in shared memory besides the slots of its rings. */
#ifndef REEL_KERNELS_DECODE_SHARED_CUH
#define REEL_KERNELS_DECODE_SHARED_CUH

#include "shared.cuh"

/* A normed vector is kept in two halves of bf16: the rounded values, and behind them what rounding left over. X_LOW is
 * the word at which the second half begins. */
enum { X_LOW = P_HEAD_K_TILES * 8 };

/* Floats of the partial products of one phase: [row][k part]. */
#define PHASE_FLOATS(S) PART_FLOATS(P_##S##_ROW_TILES, P_##S##_K_PARTS, P_COLUMNS)
enum {
    OWN_ROWS = P_HEAD_ROW_TILES * TILE_ROWS, /* rows of the head that a block has at most; see kept_keys */
#if M_DELTA
    MIX_PARTS = PHASE_FLOATS(MIX),
    /* The most units (docs/GLOSSARY.md) of value columns that an SM has. The gates a and b of a unit's head are made
     * once for each unit, or once for each value head of the group where the heads are fewer. */
    DELTA_TURNS = (P_DELTA_UNITS + P_GROUP_SMS - 1) / P_GROUP_SMS,
    GATES_BY_TURN = DELTA_TURNS <= P_GROUP_VALUE_HEADS,
    GATE_SLOTS = GATES_BY_TURN ? DELTA_TURNS : P_GROUP_VALUE_HEADS,
#else
    MIX_PARTS = 0,
#endif
    LAYER_PARTS = MAX(MAX(PHASE_FLOATS(QKV), PHASE_FLOATS(OUT)), MAX(PHASE_FLOATS(GATE_UP), PHASE_FLOATS(DOWN))),
    PARTS = MAX(MAX(LAYER_PARTS, MIX_PARTS), OWN_ROWS / 2),
    ATTENTION_WORDS = P_OUT_K_PARTS * P_OUT_WARP_K * 8 /* the group's q rows, or value columns, in pairs, padded */
};

/* Words of the digits (digits.cuh) of the group's input of out or down; a k tile has DIGIT_TILE_WORDS of each column.
 */
enum {
    OUT_DIGITS = TILE_INTEGERS(P_OUT_FORMAT) ? P_OUT_K_TILES * DIGIT_TILE_WORDS : 0,
    DOWN_DIGITS = TILE_INTEGERS(P_DOWN_FORMAT) ? P_DOWN_K_TILES * DIGIT_TILE_WORDS : 0
};
#define GROUP_DIGITS (TILE_INTEGERS(P_OUT_FORMAT) || TILE_INTEGERS(P_DOWN_FORMAT))
#define HEAD_DIGITS  TILE_INTEGERS(P_HEAD_FORMAT)
#define NORMED_DIGITS                                                                                                  \
    (TILE_INTEGERS(P_QKV_FORMAT) || TILE_INTEGERS(P_MIX_FORMAT) || TILE_INTEGERS(P_GATE_UP_FORMAT) || HEAD_DIGITS)

#include "phase_pick_shared.cuh" /* struct pick_shared */

/* A column whose id the host draws waits for it (args.h). A session's drafts cannot. */
#define COLUMNS_WAIT (P_COLUMNS > 1 && !P_FOLLOWS)

/* What a block keeps of the column at hand. With one column the launch is over when the column is. */
#if P_COLUMNS > 1
#define OF_COLUMN(w, field) ((w)->s->field[(w)->column])
#define COLUMN_END          column_end
#include "columns_shared.cuh"
#else
#define OF_COLUMN(w, field) ((w)->s->field)
#define COLUMN_END          end
#define ATTENTION_RESULT    attention
/* decode_shared_bytes (decode_layout.h) counts the same parts. */
struct ALIGN(16) block_shared {
#if P_GPUS > 1
    struct gpu_shared others; /* first: gpus_of */
#endif
    float part[2][PARTS];
    float ssq[2][PART_STRIDE(P_WARPS)];               /* sum of squares of each warp's slice of h; the head uses [0] */
#if M_DELTA
    float gates[GATE_SLOTS][2][PART_STRIDE(P_WARPS)]; /* each warp's part of the gates a and b; see phase_mix.cuh */
#endif
    u32 x[2 * X_LOW]; /* a norm's result as B fragments: [k tile][lane % 4][k, k + 8]; see fragments_store */
    u32 attention[ATTENTION_WORDS];           /* attention's result, or a DeltaNet's, bf16 pairs */
#if GROUP_DIGITS
    u32 digits[MAX(OUT_DIGITS, DOWN_DIGITS)]; /* of attention's result or of the gated values */
#endif
#if HEAD_DIGITS
    u32 most[P_WARPS];                        /* of each warp's slice of the head's input: digits_most */
#endif
    u32 best_key[P_WARPS], best_id[P_WARPS];
    u32 id;                 /* the next token's id, written by pick */
    u32 end;                /* enum decode_end; not 0: the launch is over; read after a barrier of the consumers */
    u32 tokens_over;        /* tokens that are over in all blocks, so that their rows of K and V can be fetched */
    u32 caps[LAYER_PHASES]; /* slots of each phase that may be in flight: stream_freely */
    u32 stop;               /* in block 0: what its epilogue last read in mailbox->stop */
    u32 taken;              /* in block 0: what its epilogue last read in mailbox->taken */
    u64 full[RING_SLOTS], empty[RING_SLOTS];
    u64 kv_full[P_KV_SLOTS], kv_empty[P_KV_SLOTS];
    struct attention_shared at;
    struct pick_shared pick;
};

#define PICK_AT pick
/* Attention's scratch, and the warps' partial attention in it. */
DEV struct attention_shared *attention_of(const struct worker *w) { return &w->s->at; }
DEV float (*attention_o(const struct worker *w))[AT_HEADS][8 * AT_O_STRIDE] { return w->s->at.o; }
DEV float (*part_o(const struct worker *w))[8 * AT_O_STRIDE] { return attention_o(w)[w->warp]; }
#endif

enum {
    RING_BYTES = RING_SLOTS * P_SLOT_BYTES,
    KV_RING_BYTES = P_KV_SLOTS * P_KV_PIECE,
    SHARED_BYTES = RING_BYTES + KV_RING_BYTES + (int)sizeof(struct block_shared)
};

/* The order keys of a block's logits after bias and penalties, for the sampler: u32 [OWN_ROWS], 0 where a logit is not
 * a number. Row i of a block is row i % 16 of the block's (i / 16)-th tile of the head. The keys lie where the layers'
 * partial sums lay. That is safe, because the last of those sums were read before the barrier behind down. */
#if P_COLUMNS == 1
DEV u32 *kept_keys(struct block_shared *s) { return (u32 *)s->part[0]; }
#endif

#endif
