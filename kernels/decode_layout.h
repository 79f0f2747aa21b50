/* How many bytes a block of decode.cu keeps in shared memory besides the slots of its rings. The plan makes room for
 * as many. The kernel has them in struct block_shared (decode_shared.cuh), and does not compile where the two
 * differ. */
#ifndef REEL_KERNELS_DECODE_LAYOUT_H
#define REEL_KERNELS_DECODE_LAYOUT_H

#include "tape.h"

/* The end of a part of `bytes` bytes that begins at the first multiple of `align` from `at` on. */
TAPE_FN int layout_add(int at, int align, int bytes) { return (at + align - 1) / align * align + bytes; }

/* Floats of a row that is padded: 8 lanes that read 16 bytes each, of 8 consecutive rows, then meet all banks. */
#define PART_STRIDE(floats) (((((floats) + 3) / 4) | 1) * 4)
/* Floats of a row of a phase's k_parts partial products, and of all its rows: [row][part]. Rows of several columns are
 * not padded, as room is scarce: product.cuh says in which places their parts are (part_place). */
#define PART_ROW(k_parts, columns)                                                                                     \
    ((columns) < 2 ? PART_STRIDE(k_parts) : (k_parts) < 4 ? (k_parts) : ((k_parts) + 3) / 4 * 4)
#define PART_FLOATS(row_tiles, k_parts, columns) ((row_tiles)*TILE_ROWS * PART_ROW(k_parts, columns))

/* Sizes of attention's scratch. Strides are padded: the lanes of a column, or of 8 rows, that read 16 bytes each then
 * meet all banks. */
enum { AT_SSQ = 16 }; /* partial sums of squares of a head */
#define AT_Q_WORDS(tiles)                                                                                              \
    (((((tiles) + 1) / 2) | 1) * 16) /* of a q row, a head of so many tiles                                            \
                                      */
#define AT_PART_FLOATS(parts)                                                                                          \
    (((parts) + 3) / 4 * 4) /* of a head, for each warp that shares it                                                 \
                             */

/* Sizes of the sampler's scratch: its candidates, and its words that are neither a warp's nor a block's own. */
#define PICK_MOST_ITEMS 256
enum { PICK_WORDS = 8 };

/* B fragments of several columns (docs/BATCHES.md). Of a normed vector a product takes the two halves of up to four
 * columns, so eight columns are two sets. A k tile has 8 words of each half, or of each column of a vector that is bf16
 * already. The tiles of a set are padded, so that the lanes that store several tiles' words meet all banks. */
#define COLUMN_SETS(columns)  ((columns) > 4 ? 2 : 1)
#define SPLIT_STRIDE(columns) ((columns) / COLUMN_SETS(columns) * 16 + 8)
#define PLAIN_STRIDE(columns) ((columns)*8)
/* Buffers of the warps' partial attention, in turn for one column after the other. */
#define ATTENTION_BUFFERS(columns) ((columns) > 2 ? 2 : 1)

/* Digits of an input of integer weights (digits.cuh): 32 columns of it have 24 words. */
enum { DIGIT_TILE_WORDS = 12 };
/* Words of the digits of out's or down's input. */
TAPE_FN int group_digit_words(const struct tape_shape *t) {
    const struct tape_segment *out = &t->segment[TAPE_OUT], *down = &t->segment[TAPE_DOWN];
    const int a = TILE_INTEGERS(out->format) ? out->k_tiles * DIGIT_TILE_WORDS : 0;
    const int b = TILE_INTEGERS(down->format) ? down->k_tiles * DIGIT_TILE_WORDS : 0;
    return a > b ? a : b;
}

/* What the sizes depend on in a plan, besides the tape's shape. */
struct decode_block {
    int columns;  /* 0 or 1: decode.cu; more: columns.cu */
    int gpus;     /* that share the model; 0 or 1: it is alone */
    int overlaid; /* 1: parts of what several columns need share their place; see columns_shared.cuh */
    int follows;  /* 1: columns may follow others */
    int rotary;   /* entries of a head that are rotated */
    int ring_slots, kv_slots;
    int heads, kv_heads, head_dim; /* of a group */
    int attention_warps;
    int gate_slots; /* sets of gates that a DeltaNet keeps at a time; 0: there is no DeltaNet */
};

/* Bytes of struct gpu_shared (shared.cuh), with several GPUs. */
TAPE_FN int gpus_shared_bytes(int gpus) { return gpus > 1 ? 64 : 0; }

/* Bytes of the partial attention of all warps. */
TAPE_FN int attention_o_bytes(const struct decode_block *b) {
    return 4 * b->attention_warps * (b->heads / b->kv_heads) * 8 * PART_STRIDE(2 * (b->head_dim / TILE_K));
}

/* Bytes of struct attention_shared (phase_attention_shared.cuh), in which several columns have no partial attention of
 * the warps. */
TAPE_FN int attention_shared_bytes(const struct decode_block *b) {
    const int tiles = b->head_dim / TILE_K;
    const int parts = b->attention_warps / b->kv_heads, rows = b->heads + b->kv_heads;
    int words = rows * AT_Q_WORDS(tiles);                   /* q */
    words += rows * AT_SSQ;                                 /* q_ssq */
    words += b->columns > 1 ? 0 : attention_o_bytes(b) / 4; /* o */
    words += 2 * b->heads * AT_PART_FLOATS(parts);          /* m, l */
    words += b->heads;                                      /* m_own */
    words += 2 * b->kv_heads * (b->head_dim / 2);           /* kv */
    words += b->overlaid ? 0 : b->head_dim;                 /* cos_sin */
    return layout_add(4 * words, 16, 0);
}

/* Bytes of struct pick_shared (phase_pick_shared.cuh). */
TAPE_FN int pick_shared_bytes(int warps, int n_sms) {
    const int items = 32 * warps < PICK_MOST_ITEMS ? 32 * warps : PICK_MOST_ITEMS;
    int bytes = 16 * items;  /* item */
    bytes += 2 * 8 * warps;  /* sum */
    bytes += 4 * n_sms;      /* key */
    bytes += 2 * 4 * warps;  /* best_key, best_id */
    bytes += 4 * PICK_WORDS; /* the rest */
    return layout_add(bytes, 16, 0);
}

/* The larger of two phases' partial sums, in floats. */
TAPE_FN int parts_of_two(const struct tape_segment *a, const struct tape_segment *b, int columns) {
    const int one = PART_FLOATS(a->row_tiles, a->k_parts, columns);
    const int other = PART_FLOATS(b->row_tiles, b->k_parts, columns);
    return one > other ? one : other;
}

/* Bytes of struct block_shared (columns_shared.cuh). */
TAPE_FN int columns_shared_bytes(const struct tape_shape *t, const struct decode_block *b) {
    const struct tape_segment *s = t->segment;
    const int n = b->columns, tiles = s[TAPE_HEAD].k_tiles;
    const int x = 4 * COLUMN_SETS(n) * tiles * SPLIT_STRIDE(n);
    const int attention = 4 * s[TAPE_OUT].k_tiles * PLAIN_STRIDE(n), gated = 4 * s[TAPE_DOWN].k_tiles * PLAIN_STRIDE(n);
    const int o = b->overlaid ? attention_o_bytes(b) + attention : ATTENTION_BUFFERS(n) * attention_o_bytes(b);
    const int scratch = n * attention_shared_bytes(b), pick = pick_shared_bytes(t->warps, t->n_sms);
    const int later = b->overlaid && gated > pick ? gated : pick;
    const int first = parts_of_two(&s[TAPE_QKV], &s[TAPE_GATE_UP], n);
    const int mix = parts_of_two(&s[TAPE_QKV], &s[TAPE_MIX], n);
    const int group = parts_of_two(&s[TAPE_OUT], &s[TAPE_DOWN], n);
    int at = gpus_shared_bytes(b->gpus) + (x > o ? x : o);                      /* x, o; overlaid: attention */
    at = layout_add(at, 16, 4 * n * (first > mix ? first : mix));               /* part_hidden */
    at += 4 * n * group;                                                        /* part_group */
    at += 2 * 4 * n * PART_STRIDE(t->warps);                                    /* ssq */
    at += n * b->gate_slots * 2 * 4 * PART_STRIDE(t->warps);                    /* gates */
    if (b->overlaid) at += 4 * n * b->rotary;                                   /* cos_sin */
    if (!b->overlaid) at += attention + gated;                                  /* attention, gated */
    at += group_digit_words(t) ? 4 * n * (group_digit_words(t) + t->warps) : 0; /* digits, group_unit */
    at += TILE_INTEGERS(s[TAPE_HEAD].format) ? 4 * n * t->warps : 0;            /* most */
    at += 2 * 4 * n * t->warps;                                                 /* best_key, best_id */
    at += 5 * 4 * n + 8 * 4;                                                    /* id to gave_up */
    at += b->follows ? 4 * 4 * n + 2 * 4 : 2 * 4 * n;                           /* turn to reached; waited, given */
    at += b->follows && b->gate_slots ? 4 * n : 0;                              /* owed */
    at = layout_add(at, 8, 8 * n);                                              /* kv_first */
    if (!b->follows && !b->overlaid && !b->gate_slots) at += 8 * n * (b->attention_warps + 2) + 8; /* stages */
    at += 2 * 8 * b->ring_slots;                                                                   /* full, empty */
    at += 2 * 8 * b->kv_slots + 8;                              /* kv_full, kv_empty, looked */
    at = layout_add(at, 16, later > scratch ? later : scratch); /* at, pick; overlaid: gated */
    return layout_add(at, 16, 0);
}

/* Bytes of struct block_shared (decode_shared.cuh), or of the one for several columns. */
TAPE_FN int decode_shared_bytes(const struct tape_shape *t, const struct decode_block *b) {
    const struct tape_segment *head = &t->segment[TAPE_HEAD], *out = &t->segment[TAPE_OUT];
    int parts = head->row_tiles * TILE_ROWS / 2; /* where the head keeps its logits' keys */
    if (b->columns > 1) return columns_shared_bytes(t, b);
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const struct tape_segment *g = &t->segment[i];
        const int floats = i == TAPE_HEAD ? 0 : PART_FLOATS(g->row_tiles, g->k_parts, 1);
        if (floats > parts) parts = floats;
    }
    int at = gpus_shared_bytes(b->gpus) + 2 * 4 * parts;            /* part */
    at += 2 * 4 * PART_STRIDE(t->warps);                            /* ssq */
    at += b->gate_slots * 2 * 4 * PART_STRIDE(t->warps);            /* gates */
    at += 2 * 4 * 8 * head->k_tiles;                                /* x */
    at += 4 * 8 * out->k_tiles;                                     /* attention */
    at += 4 * group_digit_words(t);                                 /* digits */
    at += TILE_INTEGERS(head->format) ? 4 * t->warps : 0;           /* most */
    at += 2 * 4 * t->warps;                                         /* best_key, best_id */
    at += 9 * 4;                                                    /* id to taken */
    at = layout_add(at, 8, 2 * 8 * b->ring_slots);                  /* full, empty */
    at += 2 * 8 * b->kv_slots;                                      /* kv_full, kv_empty */
    at = layout_add(at, 16, attention_shared_bytes(b));             /* at */
    at = layout_add(at, 16, pick_shared_bytes(t->warps, t->n_sms)); /* pick */
    return layout_add(at, 16, 0);
}

#endif
