/* What a block of columns.cu keeps in shared memory besides the slots of its rings. Only decode_shared.cuh includes
 * this file. */
#ifndef REEL_KERNELS_COLUMNS_SHARED_CUH
#define REEL_KERNELS_COLUMNS_SHARED_CUH

enum {
    COLUMNS = P_COLUMNS,
    SETS = COLUMN_SETS(P_COLUMNS), /* products that a tile of weights takes with a normed vector */
    SET_COLUMNS = COLUMNS / SETS,
    X_STRIDE = SPLIT_STRIDE(P_COLUMNS),
    X_SET = P_HEAD_K_TILES * X_STRIDE,
    INPUT_STRIDE = PLAIN_STRIDE(P_COLUMNS),
    HIDDEN_PARTS = MAX(MAX(PHASE_FLOATS(QKV), PHASE_FLOATS(GATE_UP)), MIX_PARTS),
    GROUP_PARTS = MAX(PHASE_FLOATS(OUT), PHASE_FLOATS(DOWN)),
    O_BUFFERS = P_OVERLAID ? 1 : ATTENTION_BUFFERS(P_COLUMNS),
    KEYS_IN_SLOTS = P_KV_SLOTS * P_KV_PIECE / (OWN_ROWS * 4) /* columns whose keys lie in the slots of K and V */
};

/* The warps' partial attention lies where the normed vectors lie: these are read in qkv, gate_up and the head, and a
 * block makes partial attention between qkv and out. */
#if P_OVERLAID
/* Eight columns of a model with DeltaNets need more than a block has, and four of some larger models; four of others
 * with DeltaNets have a longer ring so. The result of attention, or of a DeltaNet, lies in the same place, behind the
 * partial attention: it is made when all warps are done with the products of qkv or mix. Before gate_up overwrites it
 * there is a barrier behind out. The gated values lie
 * where attention's scratch lies. That needs no barrier: q, k and v of a layer exist when all blocks are done with down
 * of the layer before, and gated values when all blocks are done with out. */
union column_vectors {
    u32 x[SETS * X_SET];
    struct {
        float o[O_BUFFERS][P_ATTENTION_WARPS][AT_HEADS][8 * AT_O_STRIDE];
        u32 attention[P_OUT_K_TILES][INPUT_STRIDE];
    };
};
#define ATTENTION_RESULT vectors.attention
#define GATED_VALUES     scratch.gated
#else
#define ATTENTION_RESULT attention
#define GATED_VALUES     gated
union column_vectors {
    u32 x[SETS * X_SET]; /* norms' results as B fragments: [set][k tile][column of the set][half][lane % 4][k, k + 8] */
    float o[O_BUFFERS][P_ATTENTION_WARPS][AT_HEADS][8 * AT_O_STRIDE]; /* [row % 8][tile][row / 8] */
};
#endif

/* The warps' partial results that lie there at a time, where they lie one behind the other. */
enum {
    X_ROOM = P_OVERLAID ? 0 : SETS * X_SET / AT_O_FLOATS,
    PARTS_ROOM = O_BUFFERS * P_ATTENTION_WARPS,
    STAGE_ROOM = X_ROOM > PARTS_ROOM ? X_ROOM : PARTS_ROOM
};

/* columns_shared_bytes (decode_layout.h) counts the same parts. */
struct ALIGN(16) block_shared {
#if P_GPUS > 1
    struct gpu_shared others; /* first: gpus_of */
#endif
    union column_vectors vectors;
    float part_hidden[COLUMNS][HIDDEN_PARTS];    /* partial sums of qkv, mix and gate_up */
    float part_group[COLUMNS][GROUP_PARTS];      /* those of out and down */
    float ssq[2][COLUMNS][PART_STRIDE(P_WARPS)]; /* sum of squares of each warp's slice of h; the head uses [0] */
#if M_DELTA
    float gates[COLUMNS][GATE_SLOTS][2][PART_STRIDE(P_WARPS)]; /* each warp's part of a and b; see phase_mix.cuh */
#endif
#if P_OVERLAID
    float cos_sin[COLUMNS][M_ROTARY];
#else
    /* attention's result, or a DeltaNet's, and the gated values as B fragments, bf16: [k tile][column][lane % 4][k, k +
     * 8] */
    u32 attention[P_OUT_K_TILES][INPUT_STRIDE], gated[P_DOWN_K_TILES][INPUT_STRIDE];
#endif
#if GROUP_DIGITS
    u32 digits[COLUMNS * MAX(OUT_DIGITS, DOWN_DIGITS)]; /* of attention's result or of the gated values */
    float group_unit[P_WARPS][COLUMNS];                 /* the digits' units, of each slice */
#endif
#if HEAD_DIGITS
    u32 most[COLUMNS][P_WARPS]; /* of each warp's slice of the head's input: digits_most */
#endif
    u32 best_key[COLUMNS][P_WARPS], best_id[COLUMNS][P_WARPS];
    u32 id[COLUMNS];         /* of each column: the next token's id, written by pick */
    u32 column_end[COLUMNS]; /* enum decode_end; not 0: the column is over, or waits */
    u32 stop[COLUMNS];       /* in block 0: what its epilogue last read in the column's mailbox->stop */
    u32 taken[COLUMNS];      /* in block 0: the same of mailbox->taken */
    u32 kv_items[COLUMNS];   /* pieces of a layer that the producer of K and V brings for each column */
    u32 end;                 /* not 0: the launch is over; read after a barrier of the consumers */
    u32 picked; /* tokens after which all blocks have picked, so that their rows of K and V can be fetched */
    u32 caps[LAYER_PHASES]; /* slots of each phase that may be in flight: stream_freely */
    u32 pick_column;        /* whose keys kept_keys means */
    u32 gave_up;            /* 1: a wait of this block's picks gave up */
#if COLUMNS_WAIT
    u32 waited[COLUMNS]; /* passes in which the column has waited, with the next one where it does */
    u32 given[COLUMNS];  /* in block 0: GIVEN | what the host has drawn for the column, or 0 */
#else
    u32 turn[COLUMNS];                         /* tokens of the launch that come before the column's token */
    u32 drafted[COLUMNS];                      /* drafts so far of the column's session, this pass's included */
    u32 found_key[COLUMNS], found_id[COLUMNS]; /* the best logit of columns that take the best; id: BEST_STOP or 0 */
    u32 drafts;                                /* a bit for each column whose token is a draft */
    u32 reached;       /* a bit for each column before which all drafts of its session have proved right */
#if M_DELTA
    u32 owed[COLUMNS]; /* right drafts of the session that its states and windows in memory lack; of first columns */
#endif
#endif
    u64 kv_first[COLUMNS];                   /* the page of the first of them */
#if !P_FOLLOWS && !P_OVERLAID && !M_DELTA    /* for stages, on GPUs that have them */
    u64 entries[P_ATTENTION_WARPS][COLUMNS]; /* of each lane of the producer: columns_stage.cuh */
    u64 staged[COLUMNS];                     /* what a stage makes of the column */
    u64 stage_columns[COLUMNS + 1];          /* a bit for each column of a stage; 0 behind the last stage */
#endif
    u64 full[RING_SLOTS], empty[RING_SLOTS];
    u64 kv_full[P_KV_SLOTS], kv_empty[P_KV_SLOTS];
    u64 looked; /* a phase for each token: the producer of K and V knows where the columns stand; columns_looked_wait */
    /* The sampler's scratch lies where attention's lies: the first best of a block exists when all are done with the
     * last down, and there is a barrier behind the picks. */
    union ALIGN(16) {
        struct attention_shared at[COLUMNS];
        struct pick_shared pick;
#if P_OVERLAID
        u32 gated[P_DOWN_K_TILES][INPUT_STRIDE];
#endif
    } scratch;
};

#define ATTENTION_AT scratch.at
#define PICK_AT      scratch.pick

/* Attention's scratch of the column at hand, and the warps' partial attention. */
DEV struct attention_shared *attention_of(const struct worker *w) { return &w->s->ATTENTION_AT[w->column]; }
#if STAGED
DEV float (*part_o(const struct worker *w))[8 * AT_O_STRIDE] { return w->s->vectors.o[0][0] + w->part_at * AT_HEADS; }
#else
DEV float (*attention_o(const struct worker *w))[AT_HEADS][8 * AT_O_STRIDE] { return w->s->vectors.o[w->o_turn]; }
DEV float (*part_o(const struct worker *w))[8 * AT_O_STRIDE] { return attention_o(w)[w->warp]; }
#endif

/* The order keys of a column's logits (decode_shared.cuh). They lie in the slots of K and V, which are empty from the
 * end of the layers until the columns of the next token are known. Those of columns for which there is no room lie
 * where partial sums lay; these have been read as those of decode.cu have. */
DEV u32 *column_keys(const struct block_shared *s, int column) {
    if (COLUMNS > KEYS_IN_SLOTS && column >= KEYS_IN_SLOTS)
        return (u32 *)s->part_hidden + (column - KEYS_IN_SLOTS) * OWN_ROWS;
    return (u32 *)((u8 *)s - P_KV_SLOTS * P_KV_PIECE) + column * OWN_ROWS;
}
DEV u32 *kept_keys(const struct block_shared *s) { return column_keys(s, (int)s->pick_column); }

#endif
