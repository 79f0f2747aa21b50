/* Reading a prompt: what lies between the products of qkv and out.
 *
 * rope_phase norms and rotates the chunk's k rows, and writes them and its v rows to the KV cache. It also norms,
 * rotates and scales q rows where they lie, once for all warps that read them. A launch later attention_phase
 * computes an online softmax over all positions up to each token's own, with scores in base 2. It applies the gates
 * where it writes results.
 *
 * `nth` counts the layers that attend: the cache and the norms have those alone.
 *
 * An item (docs/GLOSSARY.md) is one KV head and a run of stacked rows, row = token * GROUP_Q_HEADS + q head of the KV
 * head. A warp owns 16 of the rows. An item has 128 rows or 64 (item_rows). With 64, the two halves of the warps take
 * the halves of each stage's positions, and merge their results at the end. As in decoding, K and V transposed are A
 * operands in the order that the cache has them, and q rows are columns.
 *
 * A stage holds 2 * HALF_PIECES pieces (docs/GLOSSARY.md) of 16 positions of one KV head. Every consumer warp takes
 * every stage.
 *
 * The program that includes this file says by PACKED what a launch reads. With 0 it is a chunk of one prompt. With 1
 * it is whole texts, packed one behind the other (packed.cu): the launch's position is 0, so that a token's number is
 * its slot in the cache. A token's position counts from its text's first slot, and it attends from that slot on. */
#ifndef REEL_KERNELS_PREFILL_ATTENTION_CUH
#define REEL_KERNELS_PREFILL_ATTENTION_CUH

#include "attention_math.cuh"
#include "kv_codes.cuh"
#include "kv_pages.cuh"
#include "mma.cuh"
#include "prefill_shared.cuh"

#if M_HEAD_DIM % 16 || M_HEAD_DIM > 256 || M_ROTARY % 8
#error "head_dim: a multiple of 16, up to 256; rotary: a multiple of 8"
#endif

enum {
    HEAD_BLOCKS = M_HEAD_DIM / 8, /* of 8 dims */
    HALF_TURN = M_ROTARY / 2,     /* dims i and i + HALF_TURN turn together, i below HALF_TURN */
    TURN_BLOCKS = M_ROTARY / 8,
    GROUP_Q_HEADS = GPU_HEADS / GPU_KV_HEADS,
    GATE_HEADS = M_GATED ? GPU_HEADS : 0,
    CHUNK_HEADS = GPU_HEADS + 2 * GPU_KV_HEADS, /* rows of head_dim values of q, k, v; gates lie behind q's */
    WARP_ROWS = 16,
    PAIR_BARRIER = 4, /* to + 3: named barriers, each of two warps whose numbers are 4 apart */
    HALF_BYTES = STAGE_BYTES / 2,
    ROOM_PIECES = HALF_BYTES / P_KV_PIECE,
    HALF_PIECES = P_KV_FORM && ROOM_PIECES > 1 ? ROOM_PIECES / 2 * 2 : ROOM_PIECES, /* kv_half_pieces */
    /* Pieces of a unit: a warp multiplies them together. More of them keep more products independent, where
     * there are registers for them. */
    MOST_PIECES = M_HEAD_DIM <= 64 ? 4
                  : G_WGMMA        ? 2
                                   : 1,
    UNIT_PIECES = HALF_PIECES % 4 == 0                      ? MOST_PIECES
                  : HALF_PIECES % 2 == 0 && MOST_PIECES > 1 ? 2
                                                            : 1,
    UNIT_POSITIONS = UNIT_PIECES * KV_POSITIONS,
    HALF_UNITS = HALF_PIECES / UNIT_PIECES
};
#define SCORE_NEVER (-3e38f) /* score of a masked position: its weight is 0 even where m is ATTENTION_NEVER */

STATIC_ASSERT(HALF_PIECES <= P_KV_PAGE, "half_fill: a half lies in two pages at most");

#if PACKED
/* The first slot of a token's text. A token behind the last one counts as the last one. */
DEV int text_first(const struct prompt_worker *r, int token) {
    const struct packed_args *a = (const struct packed_args *)(const void *)r->a;
    const int last = a->prefill.decode.n_tokens - 1;
    return (int)const_load32((const u32 *)a->firsts + (token < last ? token : last));
}
DEV int slot_position(const struct prompt_worker *r, int slot) { return slot - text_first(r, slot); }
#define SLOT_POSITION(r, slot) slot_position(r, slot)
#else
/* Constants here and below, which leave the code of a prompt as if nothing were ever packed. */
#define SLOT_POSITION(r, slot) (slot)
#endif

/* ---- rope ---- */

/* This lane's words of 16 rows of a head: [row lane / 4 and + 8][dims 8 j + 2 (lane % 4) and + 1]. */
struct head_rows {
    u32 w[2][HEAD_BLOCKS];
};

/* 16 tokens that share a piece of the cache. The first and last piece of a chunk may also have positions outside the
 * chunk. */
struct chunk_piece {
    u8 *page;  /* of the piece */
    int piece; /* of the cache */
    int first; /* the token at its first position, negative where that is before the chunk */
    int whole;
};

DEV int chunk_has(const struct prompt_worker *r, int token) { return token >= 0 && token < r->a->decode.n_tokens; }

/* Where this lane's words of a token's head begin, by lane % 4. For a token before the chunk it gives the first token's
 * words, and behind the chunk the last token's. */
DEV u32 *chunk_words(const struct prompt_worker *r, int token, int head) {
    const int last = r->a->decode.n_tokens - 1, t = token < 0 ? 0 : token > last ? last : token;
    return (u32 *)(r->a->qkv + (u64)t * QKV_COLUMNS + (u64)(head * M_HEAD_DIM)) + r->w.lane % 4;
}

DEV void rows_load(const struct prompt_worker *r, const struct chunk_piece *c, int head, struct head_rows *rows) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const u32 *from = chunk_words(r, c->first + r->w.lane / 4 + 8 * i, head < GPU_HEADS ? head : head + GATE_HEADS);
        UNROLL
        for (int j = 0; j < HEAD_BLOCKS; j++)
            rows->w[i][j] = plain_load32(from + 4 * j);
    }
}

/* Where the cosine of a row's angle `dim` stands in the table. The sine stands KV_POSITIONS * HALF_TURN further on.
 * Each row begins at another place, so that 4 rows meet all banks. */
DEV int angle_at(int row, int dim) { return row * HALF_TURN + (dim + row % 4 * 8) % HALF_TURN; }

/* All consumers make the cosines and sines of a piece's positions. */
DEV void angles_make(struct prompt_worker *r, int piece) {
    float *table = r->s->exchange;
    readers_sync(); /* the piece before is over */
    NO_UNROLL
    for (int i = r->w.warp * LANES + r->w.lane; i < KV_POSITIONS * HALF_TURN; i += READ_CONSUMERS) {
        const int row = i / HALF_TURN, dim = i % HALF_TURN, at = angle_at(row, dim);
        const float angle = (float)SLOT_POSITION(r, piece * KV_POSITIONS + row) * const_loadf(r->a->decode.rope + dim);
        sine_cosine(angle, table + KV_POSITIONS * HALF_TURN + at, table + at);
    }
    readers_sync();
}

/* The factor of a row's norm, without the norm's gains. */
DEV float row_factor(const u32 *words) {
    float sum = 0;
    UNROLL
    for (int j = 0; j < HEAD_BLOCKS; j++)
        sum += bf16_low(words[j]) * bf16_low(words[j]) + bf16_high(words[j]) * bf16_high(words[j]);
    return M_QK_NORM ? rsqrt_approx(xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM) + M_RMS_EPS) : 1;
}

/* Gains of this lane's two dims of a block, and of the dims that turn with them, `partner` further on. */
DEV void gains_of(const struct prompt_worker *r, const float *gain, int block, int partner, float *g) {
    const int dim = 8 * block + r->w.lane % 4 * 2;
    UNROLL
    for (int i = 0; i < 4; i++)
        g[i] = M_QK_NORM ? const_loadf(gain + dim + i % 2 + i / 2 * partner) : 1;
}

/* Rotates rows where HALF_TURN is no whole number of blocks. A word's partner then lies half a block further on or
 * back, two lanes away, and each of the two lanes makes its own word. */
DEV void rows_turn_across(const struct prompt_worker *r, const float *gain, const float *factor,
                          struct head_rows *rows) {
    enum { MIDDLE = TURN_BLOCKS / 2 }; /* the block whose two halves are partners of the first and the last half */
    const int lane = r->w.lane, right = lane % 4 / 2;
    UNROLL
    for (int i = 0; i < 2; i++) {
        u32 across[TURN_BLOCKS];
        UNROLL
        for (int j = 0; j < TURN_BLOCKS; j++)
            across[j] = shuffle_xor(rows->w[i][j], 2);
        UNROLL
        for (int j = 0; j < TURN_BLOCKS; j++) {
            const int is_low = j < MIDDLE || (j == MIDDLE && !right), dim = 8 * j + lane % 4 * 2;
            const int other = is_low ? j + MIDDLE + right : j - MIDDLE - !right;
            const float *cosine = r->s->exchange + angle_at(lane / 4 + 8 * i, is_low ? dim : dim - HALF_TURN);
            const float *sine = cosine + KV_POSITIONS * HALF_TURN;
            u32 mine = rows->w[i][j], its = 0;
            UNROLL
            for (int n = 0; n < TURN_BLOCKS; n++)
                its = n == other ? across[n] : its;
            float g[4];
            gains_of(r, gain, j, is_low ? HALF_TURN : -HALF_TURN, g);
            g[2] = is_low ? g[2] : -g[2], g[3] = is_low ? g[3] : -g[3];
            pair_rotate(&mine, &its, g, cosine, sine, factor[i]);
            rows->w[i][j] = mine;
        }
    }
}

/* Applies norm, gains and rotation to rows, as decoding does (rotation_make, k_factor), and its scale to q. */
DEV void rows_rotate(const struct prompt_worker *r, int nth, int is_k, struct head_rows *rows) {
    const float *gain = r->a->decode.qkv_vectors + (2 * nth + is_k) * M_HEAD_DIM;
    const float scale = is_k ? 1 : LOG2_E * rsqrt_approx((float)M_HEAD_DIM);
    const float factor[2] = { row_factor(rows->w[0]) * scale, row_factor(rows->w[1]) * scale };
    if (HALF_TURN % 8) rows_turn_across(r, gain, factor, rows);
    UNROLL
    for (int j = 0; j < TURN_BLOCKS / 2; j++) {
        float g[4];
        if (HALF_TURN % 8) continue;
        gains_of(r, gain, j, HALF_TURN, g);
        UNROLL
        for (int i = 0; i < 2; i++) {
            const float *cosine = r->s->exchange + angle_at(r->w.lane / 4 + 8 * i, 8 * j + r->w.lane % 4 * 2);
            const float *sine = cosine + KV_POSITIONS * HALF_TURN;
            pair_rotate(&rows->w[i][j], &rows->w[i][j + TURN_BLOCKS / 2], g, cosine, sine, factor[i]);
        }
    }
    UNROLL
    for (int j = TURN_BLOCKS; j < HEAD_BLOCKS; j++) {
        float g[4];
        gains_of(r, gain, j, 0, g);
        UNROLL
        for (int i = 0; i < 2; i++)
            rows->w[i][j] =
                bf16_pair(bf16_low(rows->w[i][j]) * g[0] * factor[i], bf16_high(rows->w[i][j]) * g[1] * factor[i]);
    }
}

DEV void query_store(const struct prompt_worker *r, const struct chunk_piece *c, int head,
                     const struct head_rows *rows) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int token = c->first + r->w.lane / 4 + 8 * i;
        u32 *to = chunk_words(r, token, head);
        if (!chunk_has(r, token)) continue;
        UNROLL
        for (int j = 0; j < HEAD_BLOCKS; j++)
            plain_store32(to + 4 * j, rows->w[i][j]);
    }
}

#if P_KV_FORM
/* Rows of k or v become codes, each in 16 bits. scale: of row lane / 4 and of row + 8. */
DEV void rows_quantise(struct head_rows *rows, float given, float *scale) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        u32 largest = 0;
        UNROLL
        for (int j = 0; j < HEAD_BLOCKS; j++)
            largest = kv_largest(largest, rows->w[i][j]);
        const struct kv_scale s = kv_scale_of(kv_largest_of(largest, 1, 4), given);
        UNROLL
        for (int j = 0; j < HEAD_BLOCKS; j++)
            rows->w[i][j] = kv_codes_of(rows->w[i][j], s);
        scale[i] = s.scale;
    }
}

/* Writes a word of V's codes, whose bytes are those of positions `token`, + 8, + 1 and + 9. */
DEV void value_codes_store(const struct prompt_worker *r, u8 *to, int token, u32 v) {
    UNROLL
    for (int i = 0; i < 4; i++)
        if (chunk_has(r, token + i / 2 + i % 2 * 8)) plain_store8(to + i, v >> 8 * i);
}

/* Writes a piece's K or V, and its scales. A word of K belongs to one position. given: as in kv_scale_of. */
DEV void codes_store(const struct prompt_worker *r, const struct chunk_piece *c, u8 *piece, int is_v, float given,
                     struct head_rows *rows) {
    const int token = c->first + r->w.lane / 4, column = c->first + r->w.lane % 4 * 2;
    float scale[2];
    rows_quantise(rows, given, scale);
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u8 *to = piece + (is_v ? AT_TILES + t : t) * KV_CODE_TILE_BYTES + r->w.lane * 8;
        struct quad v;
        if (is_v) {
            v.x = transpose8(rows->w[0][2 * t]), v.y = transpose8(rows->w[0][2 * t + 1]);
            v.z = transpose8(rows->w[1][2 * t]), v.w = transpose8(rows->w[1][2 * t + 1]);
        } else {
            v.x = rows->w[0][2 * t], v.y = rows->w[1][2 * t];
            v.z = rows->w[0][2 * t + 1], v.w = rows->w[1][2 * t + 1];
        }
        const struct pair p = kv_codes_pack(v);
        if (c->whole) {
            plain_store64((struct pair *)to, p);
        } else if (is_v) {
            value_codes_store(r, to, column, p.low), value_codes_store(r, to + 4, column, p.high);
        } else {
            if (chunk_has(r, token)) plain_store32((u32 *)to, p.low);
            if (chunk_has(r, token + 8)) plain_store32((u32 *)to + 1, p.high);
        }
    }
    UNROLL
    for (int i = 0; i < 2; i++)
        if (r->w.lane % 4 == 0 && chunk_has(r, token + 8 * i))
            plain_store32((u32 *)(piece + kv_scale_byte(M_HEAD_DIM, is_v, r->w.lane / 4 + 8 * i)),
                          float_bits(scale[i]));
}
#else
/* Writes a piece's K. Each word belongs to one position, so a piece that is not whole is stored word by word. */
DEV void key_store(const struct prompt_worker *r, const struct chunk_piece *c, u8 *piece,
                   const struct head_rows *rows) {
    const int token = c->first + r->w.lane / 4, low = chunk_has(r, token), high = chunk_has(r, token + 8);
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u32 *to = (u32 *)(piece + t * BF16_TILE_BYTES + r->w.lane * 16);
        struct quad v;
        v.x = rows->w[0][2 * t], v.y = rows->w[1][2 * t];
        v.z = rows->w[0][2 * t + 1], v.w = rows->w[1][2 * t + 1];
        if (c->whole) {
            plain_store128((struct quad *)to, v);
            continue;
        }
        if (low) plain_store32(to, v.x), plain_store32(to + 2, v.z);
        if (high) plain_store32(to + 1, v.y), plain_store32(to + 3, v.w);
    }
}

/* Stores a word of V transposed, which has the positions of `token` and of the next token. */
DEV void value_store(const struct prompt_worker *r, u32 *to, int token, u32 v) {
    if (chunk_has(r, token)) plain_store16((u16 *)to, (u16)v);
    if (chunk_has(r, token + 1)) plain_store16((u16 *)to + 1, (u16)(v >> 16));
}

DEV void values_store(const struct prompt_worker *r, const struct chunk_piece *c, u8 *piece,
                      const struct head_rows *rows) {
    const int token = c->first + r->w.lane % 4 * 2;
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u32 *to = (u32 *)(piece + (AT_TILES + t) * BF16_TILE_BYTES + r->w.lane * 16);
        struct quad v;
        v.x = transpose8(rows->w[0][2 * t]), v.y = transpose8(rows->w[0][2 * t + 1]);
        v.z = transpose8(rows->w[1][2 * t]), v.w = transpose8(rows->w[1][2 * t + 1]);
        if (c->whole) {
            plain_store128((struct quad *)to, v);
            continue;
        }
        value_store(r, to, token, v.x), value_store(r, to + 1, token, v.y);
        value_store(r, to + 2, token + 8, v.z), value_store(r, to + 3, token + 8, v.w);
    }
}

#endif

#if P_KV_FORM
/* The first KV head that this GPU has. */
DEV int kv_first(const struct prompt_worker *r) {
#if P_GPUS > 1
    return r->a->gpus.gpu * GPU_KV_HEADS;
#else
    return (void)r, 0;
#endif
}
#endif

/* Brings a piece's rows of one head, as qkv counts heads, to where they belong: q stays in qkv, k and v go to the
 * cache. */
DEV void rows_finish(const struct prompt_worker *r, int nth, const struct chunk_piece *c, int head,
                     struct head_rows *rows) {
    /* The compiler makes addresses of a GPU's only KV head far ahead, more of them than registers hold, if it knows. */
    const int kv_head = GPU_KV_HEADS > 1 ? (head - GPU_HEADS) % GPU_KV_HEADS : opaque(0);
    if (head < GPU_HEADS + GPU_KV_HEADS) rows_rotate(r, nth, head >= GPU_HEADS, rows);
    if (head < GPU_HEADS) {
        query_store(r, c, head, rows);
        return;
    }
    u8 *piece = kv_page_piece(c->page, nth * GPU_KV_HEADS + kv_head, c->piece);
#if P_KV_FORM
    const int is_v = head >= GPU_HEADS + GPU_KV_HEADS;
    codes_store(r, c, piece, is_v, kv_given(r->a->decode.qkv_vectors, nth, kv_first(r) + kv_head, is_v), rows);
#else
    if (head < GPU_HEADS + GPU_KV_HEADS)
        key_store(r, c, piece, rows);
    else
        values_store(r, c, piece, rows);
#endif
}

/* A warp makes a piece's heads, from `head` on every `step`-th. It asks for the next head's rows before it finishes
 * this head's. */
DEV void piece_rope(const struct prompt_worker *r, int nth, const struct chunk_piece *c, int head, int step) {
    struct head_rows rows, next;
    if (head >= CHUNK_HEADS) return;
    rows_load(r, c, head, &next);
    NO_UNROLL
    for (; head < CHUNK_HEADS; head += step) {
        rows = next;
        if (head + step < CHUNK_HEADS) rows_load(r, c, head + step, &next);
        rows_finish(r, nth, c, head, &rows);
    }
}

/* rope: q, k, v of the chunk.
 *   reads    qkv: q, k, v as the product made them
 *   writes   qkv: q as attention wants it, bf16(q rotated * log2(e) / sqrt(head_dim)); the KV cache
 *   waits    for the launch before, when the first angles are made
 *   split    items of a piece and, where pieces are few, a part of the heads; over the warps by heads */
DEV void rope_phase(struct prompt_worker *r, int layer) {
    const int nth = attention_nth(layer);
    const struct decode_args *a = &r->a->decode;
    const int first = a->position / KV_POSITIONS, end = a->position + a->n_tokens;
    const int pieces = (end + KV_POSITIONS - 1) / KV_POSITIONS - first, blocks = (int)block_count();
    const int most = (CHUNK_HEADS + READ_WARPS - 1) / READ_WARPS, some = blocks / pieces;
    const int parts = some < 1 ? 1 : some > most ? most : some;
    NO_UNROLL
    for (int item = (int)block_index(); item < pieces * parts; item += blocks) {
        struct chunk_piece c;
        c.piece = first + item / parts;
        c.page = kv_page(a, c.piece);
        c.first = c.piece * KV_POSITIONS - a->position;
        c.whole = c.first >= 0 && c.first + KV_POSITIONS <= a->n_tokens;
        angles_make(r, c.piece);
        if (item == (int)block_index()) previous_over();
        piece_rope(r, nth, &c, item % parts * READ_WARPS + r->w.warp, parts * READ_WARPS);
    }
}

/* ---- items ---- */

struct attention_item {
    int kv_head, row; /* the first stacked row */
    int end;          /* positions its last row attends to: up to end - 1 */
#if PACKED
    int begin; /* the first one that its first row attends to; else it is 0 */
#endif
};

DEV int stacked_rows(const struct prompt_worker *r) { return r->a->decode.n_tokens * GROUP_Q_HEADS; }
/* The last position that a row attends to, and the first one. Both grow with the row. */
DEV int row_limit(const struct prompt_worker *r, int row) { return r->a->decode.position + row / GROUP_Q_HEADS; }
#if PACKED
DEV int row_first(const struct prompt_worker *r, int row) { return text_first(r, row / GROUP_Q_HEADS); }
#define ROW_FIRST(r, row) row_first(r, row)
#define FIRST_PIECE(item) ((item)->begin / KV_POSITIONS) /* of those that an item reads */
#else
#define ROW_FIRST(r, row) 0
#define FIRST_PIECE(item) 0
#endif

DEV int rounds_of(const struct prompt_worker *r, int rows) {
    const int items = (stacked_rows(r) + rows - 1) / rows * GPU_KV_HEADS, blocks = (int)block_count();
    return (items + blocks - 1) / blocks;
}

/* Rows of an item: 128, or 64 where the launch ends sooner with those, although every byte of K and V then serves
 * fewer rows. A single round lasts as long as its longest item. In two rounds of half as many rows a block has a long
 * item and a short one. */
DEV int item_rows(const struct prompt_worker *r) {
    const int whole = rounds_of(r, READ_WARPS * WARP_ROWS), half = rounds_of(r, READ_WARPS * WARP_ROWS / 2);
    return whole == 1 || half < 2 * whole ? READ_WARPS * WARP_ROWS / 2 : READ_WARPS * WARP_ROWS;
}

/* Finds this block's item of a round. Returns 0 where there is none; then later rounds have none either. The longest
 * items come first. Every other round deals items to blocks in the opposite order, so that all blocks have about as
 * much to do. */
DEV int item_take(const struct prompt_worker *r, int rows, int round, struct attention_item *item) {
    const int all = stacked_rows(r), runs = (all + rows - 1) / rows;
    const int blocks = (int)block_count(), block = (int)block_index();
    const int i = round * blocks + (round % 2 ? blocks - 1 - block : block);
    if (i >= runs * GPU_KV_HEADS) return 0;
    item->kv_head = i % GPU_KV_HEADS;
    item->row = (runs - 1 - i / GPU_KV_HEADS) * rows;
#if PACKED
    item->begin = row_first(r, item->row);
#endif
    item->end = row_limit(r, (item->row + rows < all ? item->row + rows : all) - 1) + 1;
    return 1;
}

DEV int item_pieces(const struct attention_item *item) { return (item->end + KV_POSITIONS - 1) / KV_POSITIONS; }

/* The pieces that a half of a stage holds, which may lie in two pages: where the halves of packed texts begin at any
 * piece, and where a page is no whole number of halves. */
enum { HALF_IN_TWO = PACKED || P_KV_PAGE % HALF_PIECES };
struct half {
    const u8 *first, *rest;
    u32 first_bytes, rest_bytes;
};

/* Finds the pieces from `piece` on, as many as there are up to `pieces`. */
DEV struct half half_find(const struct prompt_worker *r, int row, int piece, int pieces) {
    const int left = pieces - piece, n = left < 0 ? 0 : left < HALF_PIECES ? left : HALF_PIECES;
    const int in_page = P_KV_PAGE - piece % P_KV_PAGE, some = HALF_IN_TWO && n > in_page ? in_page : n;
    const struct decode_args *a = &r->a->decode;
    struct half h = { 0, 0, 0, 0 };
    h.first_bytes = (u32)some * P_KV_PIECE, h.rest_bytes = (u32)(n - some) * P_KV_PIECE;
    if (n > 0) h.first = kv_piece(a, row, piece);
    if (HALF_IN_TWO && n > some) h.rest = kv_piece(a, row, piece + some);
    return h;
}

DEV void half_fill(smem to, const struct half *h, smem full) {
    if (HALF_IN_TWO && h->rest_bytes) {
        ring_add(to, h->first, h->first_bytes, full);
        ring_fill(to + h->first_bytes, h->rest, h->rest_bytes, full);
        return;
    }
    ring_fill(to, h->first, h->first_bytes, full);
}

/* The producer warp copies the pieces of this block's items to the stages. It asks for the pages of the next two halves
 * before it waits for a stage to put them in. */
DEV void attention_produce(struct prompt_worker *r, int layer) {
    const int rows = item_rows(r);
    struct attention_item item;
    if (r->w.lane >= FILL_LANES) return;
    NO_UNROLL
    for (int round = 0; item_take(r, rows, round, &item); round++) {
        const int row = attention_nth(layer) * GPU_KV_HEADS + item.kv_head, pieces = item_pieces(&item);
        NO_UNROLL
        for (int piece = FIRST_PIECE(&item); piece < pieces; piece += 2 * HALF_PIECES) {
            const struct half low = half_find(r, row, piece, pieces);
            const struct half high = half_find(r, row, piece + HALF_PIECES, pieces);
            const smem to = stage_free(r), full = smem_of(&r->s->full[r->stage]);
            if (r->w.dead) return;
            half_fill(to, &low, full);
            half_fill(to + HALF_BYTES, &high, full);
            stage_next(r);
        }
    }
}

/* ---- one warp's rows ---- */

enum { ROW_BLOCKS = WARP_ROWS / 8 };

/* What a lane knows of four rows: 2 (lane % 4) and + 1 of each block of 8. m is a row's greatest score so far (see
 * rows_follow), l the sum of its weights. l counts this lane's positions alone, lane / 4 modulo 8. */
struct stacked {
    int row;                             /* the warp's first */
    struct pair q[AT_TILES][ROW_BLOCKS]; /* B fragments */
    float o[AT_TILES][ROW_BLOCKS][4];    /* rows are dims */
    float m[ROW_BLOCKS][2], l[ROW_BLOCKS][2];
};

DEV void stacked_begin(const struct prompt_worker *r, const struct attention_item *item, int row, struct stacked *x) {
    const int last = stacked_rows(r) - 1;
    x->row = row;
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        const int mine = row + r->w.lane / 4 + 8 * b, have = mine < last ? mine : last;
        const u32 *from = chunk_words(r, have / GROUP_Q_HEADS, item->kv_head * GROUP_Q_HEADS + have % GROUP_Q_HEADS);
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x->q[t][b].low = plain_load32(from + 8 * t), x->q[t][b].high = plain_load32(from + 8 * t + 4);
        x->m[b][0] = x->m[b][1] = ATTENTION_NEVER;
        x->l[b][0] = x->l[b][1] = 0;
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x->o[t][b][0] = x->o[t][b][1] = x->o[t][b][2] = x->o[t][b][3] = 0;
    }
}

DEV void rows_scale(struct stacked *x, float (*f)[2]) {
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        UNROLL
        for (int b = 0; b < ROW_BLOCKS; b++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                x->o[t][b][i] *= f[b][i % 2];
        }
    }
}

/* ---- a unit of positions ---- */

/* A unit is UNIT_PIECES pieces of a stage. This clears V in shared memory from position `left` of a unit on. What is
 * there may be NaN, and NaN times a weight of 0 is NaN. Warps that share the unit write the same values. */
DEV void unit_trim(u8 *unit, int lane, int left) {
    NO_UNROLL
    for (int p = 0; p < UNIT_PIECES; p++, left -= KV_POSITIONS) {
#if P_KV_FORM
        struct pair *v = (struct pair *)(unit + p * P_KV_PIECE) + AT_TILES * LANES + lane;
        NO_UNROLL
        for (int t = 0; t < AT_TILES; t++)
            v[t * LANES] = value_trim(v[t * LANES], lane, left);
#else
        const int j = lane % 4 * 2;
        const u32 low = (j < left ? 0xffffu : 0) | (j + 1 < left ? 0xffff0000u : 0);
        const u32 high = (j + 8 < left ? 0xffffu : 0) | (j + 9 < left ? 0xffff0000u : 0);
        struct quad *v = (struct quad *)(unit + p * P_KV_PIECE + AT_TILES * BF16_TILE_BYTES) + lane;
        NO_UNROLL
        for (int t = 0; t < AT_TILES; t++)
            v[t * LANES].x &= low, v[t * LANES].y &= low, v[t * LANES].z &= high, v[t * LANES].w &= high;
#endif
    }
    fence_slot();
}

/* Scores of a piece's 16 positions with a block of rows: positions lane / 4 and + 8, rows 2 (lane % 4) and
 * + 1. */
struct scores {
    float s[UNIT_PIECES][ROW_BLOCKS][4];
};

/* A piece of the unit. */
DEV const KV_TILE *unit_piece(const KV_TILE *tiles, int p) { return tiles + p * (P_KV_PIECE / (int)sizeof(KV_TILE)); }

DEV void unit_scores(const struct stacked *x, const KV_TILE *tiles, struct scores *s) {
    UNROLL
    for (int p = 0; p < UNIT_PIECES; p++) {
        UNROLL
        for (int b = 0; b < ROW_BLOCKS; b++)
            s->s[p][b][0] = s->s[p][b][1] = s->s[p][b][2] = s->s[p][b][3] = 0;
    }
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        UNROLL
        for (int p = 0; p < UNIT_PIECES; p++) {
            const struct quad k = kv_operand(unit_piece(tiles, p)[t * LANES]);
            UNROLL
            for (int b = 0; b < ROW_BLOCKS; b++)
                tile_mma(s->s[p][b], k, x->q[t][b].low, x->q[t][b].high);
        }
    }
}

/* Masks the scores of positions behind a row's own, of those before its text, and from `end` on. first: the unit's
 * first position. Most units need no mask, so `opaque` keeps the compiler from holding registers for it. */
DEV void unit_mask(const struct prompt_worker *r, const struct stacked *x, struct scores *s, int first, int end) {
    const int lane = opaque(r->w.lane);
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = x->row + 8 * b + lane % 4 * 2 + i % 2;
            const int limit = row_limit(r, row), from = ROW_FIRST(r, row);
            const int mine = first + lane / 4 + i / 2 * 8;
            UNROLL
            for (int p = 0; p < UNIT_PIECES; p++) {
                const int position = mine + p * KV_POSITIONS;
                const int counts = position <= limit && position < end && (!PACKED || position >= from);
                s->s[p][b][i] = counts ? s->s[p][b][i] : SCORE_NEVER;
            }
        }
    }
}

/* Finds the greatest score of this lane's positions, row by row. */
DEV void scores_top(const struct scores *s, float (*top)[2]) {
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            top[b][i] = max_float(s->s[0][b][i], s->s[0][b][i + 2]);
            UNROLL
            for (int p = 1; p < UNIT_PIECES; p++)
                top[b][i] = max_float(top[b][i], max_float(s->s[p][b][i], s->s[p][b][i + 2]));
        }
    }
}

/* Raises m to the rows' greatest scores, and scales o and l to match. top: the greatest scores of this lane alone. */
DEV void rows_raise(struct stacked *x, float (*top)[2]) {
    float f[ROW_BLOCKS][2];
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const float m = max_float(x->m[b][i], xor_max(top[b][i], 4, LANES));
            f[b][i] = exp2_approx(x->m[b][i] - m);
            x->m[b][i] = m, x->l[b][i] *= f[b][i];
        }
    }
    rows_scale(x, f);
}

/* m follows the greatest score only when that score is more than SCORE_LAG above m. Weights up to 2^SCORE_LAG are as
 * exact as those below 1. So lanes seldom have to agree on a maximum and to scale o and l. */
#define SCORE_LAG 8.0f
DEV void rows_follow(struct stacked *x, const struct scores *s) {
    float top[ROW_BLOCKS][2];
    int ok = 1;
    scores_top(s, top);
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++)
        ok &= (top[b][0] <= x->m[b][0] + SCORE_LAG) & (top[b][1] <= x->m[b][1] + SCORE_LAG);
    if (!warp_all(ok)) rows_raise(x, top);
}

/* Makes the weights of a piece's positions for a block of rows, as a B fragment. l sums the rounded weights. */
DEV struct pair piece_weights(struct stacked *x, const float *s, const struct piece_scales *scales, int b) {
    struct pair w;
#if P_KV_FORM
    float e[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        e[i] = exp2_approx(s[i] - x->m[b][i % 2]), x->l[b][i % 2] += e[i];
    w.low = transpose8(weights_scaled(e, scales, 0)), w.high = transpose8(weights_scaled(e + 2, scales, 1));
    return w;
#endif
    (void)scales;
    w.low = bf16_pair(exp2_approx(s[0] - x->m[b][0]), exp2_approx(s[1] - x->m[b][1]));
    w.high = bf16_pair(exp2_approx(s[2] - x->m[b][0]), exp2_approx(s[3] - x->m[b][1]));
    x->l[b][0] += bf16_low(w.low) + bf16_low(w.high);
    x->l[b][1] += bf16_high(w.low) + bf16_high(w.high);
    w.low = transpose8(w.low), w.high = transpose8(w.high);
    return w;
}

/* Adds a unit's positions to a warp's rows. Returns a value that depends on all that was loaded (see stage_give). */
DEV u32 unit_attend(const struct prompt_worker *r, struct stacked *x, const KV_TILE *tiles, int first, int end) {
    struct piece_scales scales[UNIT_PIECES];
    struct pair w[UNIT_PIECES][ROW_BLOCKS];
    struct scores s;
    u32 seen = 0;
    unit_scores(x, tiles, &s);
    UNROLL
    for (int p = 0; p < UNIT_PIECES; p++) {
        piece_scales_read(&scales[p], unit_piece(tiles, p), r->w.lane, end - first - p * KV_POSITIONS);
        seen ^= piece_scales_seen(&scales[p]);
        UNROLL
        for (int i = 0; i < 4 * ROW_BLOCKS; i++)
            s.s[p][i / 4][i % 4] = score_scaled(s.s[p][i / 4][i % 4], &scales[p], i % 4 / 2);
    }
    const int row = opaque(x->row); /* the first of the warp; the last one's text may begin in this unit, too */
    if (first + UNIT_POSITIONS - 1 > row_limit(r, row) || (PACKED && first < ROW_FIRST(r, row + WARP_ROWS - 1)))
        unit_mask(r, x, &s, first, end);
    rows_follow(x, &s);
    UNROLL
    for (int p = 0; p < UNIT_PIECES; p++) {
        UNROLL
        for (int b = 0; b < ROW_BLOCKS; b++) {
            w[p][b] = piece_weights(x, s.s[p][b], &scales[p], b);
            seen ^= w[p][b].low;
        }
    }
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        UNROLL
        for (int p = 0; p < UNIT_PIECES; p++) {
            const KV_TILE codes = unit_piece(tiles, p)[(AT_TILES + t) * LANES];
            const struct quad v = kv_operand(codes);
            UNROLL
            for (int b = 0; b < ROW_BLOCKS; b++)
                tile_mma(x->o[t][b], v, w[p][b].low, w[p][b].high);
            seen ^= kv_tile_last(codes);
        }
    }
    return seen;
}

/* Attends to the units of a stage's half that count for this warp: those with a position from its first row's text on
 * and up to its last row's own. first: the half's first position. */
DEV u32 half_attend(const struct prompt_worker *r, struct stacked *x, u8 *half, int first, int end) {
    u32 seen = 0;
    NO_UNROLL
    for (int u = 0; u < HALF_UNITS; u++, first += UNIT_POSITIONS) {
        u8 *unit = half + u * (UNIT_PIECES * P_KV_PIECE);
        if (first >= end || first > row_limit(r, opaque(x->row) + WARP_ROWS - 1)) break;
        if (PACKED && first + UNIT_POSITIONS <= ROW_FIRST(r, opaque(x->row))) continue;
        if (first + UNIT_POSITIONS > end) unit_trim(unit, r->w.lane, end - first);
        seen ^= unit_attend(r, x, (const KV_TILE *)unit + r->w.lane, first, end);
    }
    return seen;
}

/* ---- results ---- */

/* A warp merges and stores its results some tiles of dims at a time (a turn); merged ones pass through shared memory.
 * The loops over them have bounds of their own: with the bounds of the tiles, compilers of some targets leave o in
 * memory. */
enum {
    MERGE_TILES = EXCHANGE_FLOATS / 4 / (4 * ROW_BLOCKS * LANES),
    PAIR_TURNS = (AT_TILES + MERGE_TILES - 1) / MERGE_TILES
};

DEV void rows_store(const struct prompt_worker *r, const struct attention_item *item, const struct stacked *x,
                    int turn) {
    const int lane = opaque(r->w.lane);
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        const int row = x->row + lane / 4 + 8 * b, have = row < stacked_rows(r);
        const int head = item->kv_head * GROUP_Q_HEADS + row % GROUP_Q_HEADS;
        const int column = head / P_GROUP_HEADS * (P_OUT_K_TILES * TILE_K) + head % P_GROUP_HEADS * M_HEAD_DIM;
        const u32 *gates = chunk_words(r, row / GROUP_Q_HEADS, GPU_HEADS + head);
        u32 gate[2 * MERGE_TILES];
        UNROLL
        for (int i = 0; i < 2 * MERGE_TILES; i++) {
            const int j = turn * 2 * MERGE_TILES + i;
            gate[i] = M_GATED && j < HEAD_BLOCKS ? plain_load32(gates + 4 * j) : 0;
        }
        UNROLL
        for (int i = 0; i < 2 * MERGE_TILES; i++) {
            const int j = turn * 2 * MERGE_TILES + i;
            if (j >= HEAD_BLOCKS) continue;
            const float *o = x->o[j / 2][b] + j % 2 * 2;
            const u32 pair = transpose8(gated_pair(o[0], o[1], M_GATED ? transpose8(gate[i]) : 0));
            if (have) activation_store(r, r->a->attention, row / GROUP_Q_HEADS, column + 8 * j + lane % 4 * 2, pair);
        }
    }
}

DEV void sums_end(struct stacked *x) {
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++)
        x->l[b][0] = xor_sum(x->l[b][0], 4, LANES), x->l[b][1] = xor_sum(x->l[b][1], 4, LANES);
}

/* Finds what a warp must multiply its o with before a merge. The warp whose number is 4 apart has attended to other
 * positions for the same rows, so the two warps pass m and l to each other through shared memory. */
DEV void pair_factors(struct prompt_worker *r, const struct stacked *x, float (*f)[2]) {
    struct quad_float *mine = (struct quad_float *)r->s->ssq[r->w.warp] + r->w.lane % 4;
    const struct quad_float *other = (const struct quad_float *)r->s->ssq[r->w.warp ^ 4] + r->w.lane % 4;
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        struct quad_float v;
        v.x = x->m[b][0], v.y = x->m[b][1], v.z = x->l[b][0], v.w = x->l[b][1];
        if (r->w.lane < 4) mine[4 * b] = v;
    }
    barrier_wait(PAIR_BARRIER + r->w.warp % 4, 2 * LANES);
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++) {
        const struct quad_float v = other[4 * b];
        UNROLL
        for (int i = 0; i < 2; i++) {
            const float m_other = i ? v.y : v.x, m = max_float(x->m[b][i], m_other);
            const float own = exp2_approx(x->m[b][i] - m), its = exp2_approx(m_other - m);
            f[b][i] = own * rcp_approx(x->l[b][i] * own + (i ? v.w : v.z) * its);
        }
    }
}

DEV void part_give(struct quad_float *to, const float *o) {
    struct quad_float v;
    v.x = o[0], v.y = o[1], v.z = o[2], v.w = o[3];
    *to = v;
}
DEV void part_take(const struct quad_float *from, float *o) {
    const struct quad_float v = *from;
    o[0] += v.x, o[1] += v.y, o[2] += v.z, o[3] += v.w;
}

/* Two warps merge their results. For some tiles of dims at a time one warp hands over its part, and the other adds it
 * and stores; then they change roles. */
DEV void pair_merge(struct prompt_worker *r, const struct attention_item *item, struct stacked *x) {
    const int warps = r->w.warp % 4 * (MERGE_TILES * ROW_BLOCKS * LANES);
    struct quad_float *between = (struct quad_float *)r->s->exchange + warps + r->w.lane;
    float f[ROW_BLOCKS][2];
    pair_factors(r, x, f);
    rows_scale(x, f);
    UNROLL
    for (int turn = 0; turn < PAIR_TURNS; turn++) {
        const int stores = r->w.warp / 4 == turn % 2;
        UNROLL
        for (int i = 0; i < MERGE_TILES * ROW_BLOCKS; i++) {
            const int t = turn * MERGE_TILES + i / ROW_BLOCKS;
            if (t < AT_TILES && !stores) part_give(between + i * LANES, x->o[t][i % ROW_BLOCKS]);
        }
        barrier_wait(PAIR_BARRIER + r->w.warp % 4, 2 * LANES);
        UNROLL
        for (int i = 0; i < MERGE_TILES * ROW_BLOCKS; i++) {
            const int t = turn * MERGE_TILES + i / ROW_BLOCKS;
            if (t < AT_TILES && stores) part_take(between + i * LANES, x->o[t][i % ROW_BLOCKS]);
        }
        if (stores) rows_store(r, item, x, turn);
        barrier_wait(PAIR_BARRIER + r->w.warp % 4, 2 * LANES);
    }
}

DEV void alone_store(const struct prompt_worker *r, const struct attention_item *item, struct stacked *x) {
    float f[ROW_BLOCKS][2];
    UNROLL
    for (int b = 0; b < ROW_BLOCKS; b++)
        f[b][0] = rcp_approx(x->l[b][0]), f[b][1] = rcp_approx(x->l[b][1]);
    rows_scale(x, f);
    UNROLL
    for (int turn = 0; turn < PAIR_TURNS; turn++)
        rows_store(r, item, x, turn);
}

/* attention: the chunk's q rows over all positions up to each token's own.
 *   reads    qkv: q as rope_phase left it; the KV cache through the stages (attention_produce)
 *   writes   attention, bf16, columns as out's k tiles have them
 *   split    items over blocks; rows and, where items are few, positions over warps */
DEV void attention_phase(struct prompt_worker *r, int layer) {
    const int rows = item_rows(r), split = rows < READ_WARPS * WARP_ROWS, half = r->w.warp / 4;
    struct attention_item item;
    struct stacked x;
    (void)layer;
    NO_UNROLL
    for (int round = 0; item_take(r, rows, round, &item); round++) {
        stacked_begin(r, &item, item.row + (split ? r->w.warp % 4 : r->w.warp) * WARP_ROWS, &x);
        NO_UNROLL
        for (int first = FIRST_PIECE(&item) * KV_POSITIONS; first < item.end; first += 2 * HALF_PIECES * KV_POSITIONS) {
            u8 *stage = r->stages + (size_t)r->stage * STAGE_BYTES;
            u32 seen = 0;
            (void)stage_take(r);
            NO_UNROLL
            for (int h = split ? half : 0; h < (split ? half + 1 : 2); h++)
                seen ^= half_attend(r, &x, stage + h * HALF_BYTES, first + h * HALF_PIECES * KV_POSITIONS, item.end);
            stage_give(r, seen);
        }
        sums_end(&x);
        if (split)
            pair_merge(r, &item, &x);
        else
            alone_store(r, &item, &x);
    }
}

#endif
