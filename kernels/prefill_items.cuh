/* Wide items and halves of any matrix product (an item is what a block computes at a time, docs/GLOSSARY.md).
 * Activations are the B operand and come through the ring of stages: a stage has 128 columns of k of the item's
 * tokens. Weights are tiles of 16 rows by 16 k, which make A operands (tile_format.h). A warp loads its own tiles into
 * registers, a stage ahead.
 *
 * A wide item is 8 row tiles, one for each warp, by 64 or 128 tokens. Where that makes too few items, they are
 * halves: 4 row tiles by 64 tokens, and the two halves of the warps share the k of a stage. The last item of a row
 * also takes a tail of up to TAIL_TOKENS tokens. Without it, a few tokens beyond a multiple of 64 or 128 would cost
 * as many items as 64 or 128 tokens do.
 *
 * Where x comes twice, rounded to bf16 and then what rounding left over, a stage of a product with narrow weights has
 * 64 columns of both (product_doubled). So an operand is made of a tile's codes once, and serves twice. */
#ifndef REEL_KERNELS_PREFILL_ITEMS_CUH
#define REEL_KERNELS_PREFILL_ITEMS_CUH

#include "mma.cuh"
#include "prefill_shared.cuh"
#include "tile_codes.cuh"

enum {
    BLOCK_TOKENS = 64,
    BLOCK_BYTES = BLOCK_TOKENS * 128, /* of 64 columns */
    COLUMNS_AT = STAGE_BYTES / 2      /* where a stage has its second 64 columns */
};

struct item {
    int row;   /* this warp's row tile; beyond the last one all its rows are padding */
    int token; /* the first */
    int which; /* of the two scale buffers */
};

/* ---- what a product is: the file that includes this one defines these functions ---- */

DEV int product_row_tiles(int phase);
DEV int product_k_tiles(int phase);
DEV const u8 *activations_of(const struct prompt_worker *r, int phase);
/* This lane's 16 bytes of the first tile of row tile `row` of the weights. Beyond the last row tile it may be any. The
 * lowest bit of the address is set where the tiles are half tiles (tape.h). */
DEV const u8 *item_weights(const struct prompt_worker *r, int phase, int layer, int row);
/* Loads the tiles of n k tiles of a row tile from k tile k on, as they lie in memory. Where there are none it gives
 * zeros, since a stage at the end may hold its last block of activations twice. format: that of the phase's weights
 * (tile_format.h). */
DEV void item_tiles(const struct prompt_worker *r, int phase, struct held *t, const u8 *row, int k, const int n,
                    const int format);
/* Makes operands of the half tiles of such a row, each of which was loaded for both of its k tiles. The first one's k
 * tile is k, those of the others follow with this step. Does nothing with the tiles of another row. */
DEV void item_halves(struct held *t, const u8 *row, int k, const int step, const int n);
/* Whether each stage has 64 columns of k twice, of x and of what rounding it left over. Else the k tiles of the one
 * come first, and then those of the other. */
DEV int product_doubled(int phase, const int format);
/* How many of a stage's k tiles share a scale: TILE_RUN, or more where the scale is that of more columns. A power of
 * two. doubled: product_doubled. */
DEV int product_run(const int doubled, const int format);
/* A warp calls this before the products of an item. All warps see what it stores to shared memory after the next
 * barrier. */
DEV void item_begin(struct prompt_worker *r, int phase, const struct item *it, int first_token, const int tokens);
/* Finishes tokens [8 from, 8 from + 8 n) of a block of 64 tokens. d holds the products of these tokens alone. early is
 * the residual stream that thin items load ahead (sums_finish), or NULL. */
DEV void item_finish(struct prompt_worker *r, int phase, int layer, const struct item *it, const float *d, int block,
                     int from, const int n, const float (*early)[4]);
/* A warp calls this after it has finished tokens [from, to) of an item. */
DEV void item_end(struct prompt_worker *r, int phase, const struct item *it, int from, int to);

/* ---- halves meet ---- */

/* Adds up what the two halves of the warps made of their k. Of the block's 8 runs of 8 tokens each half gets the sums
 * of 4, in d[0 .. 16). */
DEV void halves_meet(struct prompt_worker *r, float *d) {
    const int half = r->w.warp / 4, thread = r->w.warp % 4 * LANES + r->w.lane;
    UNROLL
    for (int i = 0; i < 16; i++) {
        r->s->exchange[(half * 16 + i) * 128 + thread] = half ? d[i] : d[16 + i];
        d[i] = half ? d[16 + i] : d[i];
    }
    readers_sync();
    UNROLL
    for (int i = 0; i < 16; i++)
        d[i] += r->s->exchange[((1 - half) * 16 + i) * 128 + thread];
}

/* Adds up the two halves' products of the tail. The first half of the warps gets the sums. */
DEV void tails_meet(struct prompt_worker *r, float *rest) {
    const int half = r->w.warp / 4, thread = r->w.warp % 4 * LANES + r->w.lane;
    readers_sync(); /* what was exchanged before is read */
    UNROLL
    for (int i = 0; i < 4; i++)
        if (half) r->s->exchange[i * 128 + thread] = rest[i];
    readers_sync();
    UNROLL
    for (int i = 0; i < 4; i++)
        if (!half) rest[i] += r->s->exchange[i * 128 + thread];
}

/* ---- the items ---- */

/* How many items lie side by side over the tokens. Each has `blocks` blocks of 64 tokens, and the last one also has the
 * tail. */
DEV int wide_across(int n_tokens, int blocks) {
    const int tokens = blocks * BLOCK_TOKENS, tail = n_tokens > tokens ? TAIL_TOKENS : 0;
    return (n_tokens - tail + tokens - 1) / tokens;
}

/* Which weights and which part of a stage a warp multiplies: row is its row tile, next_row that of its next item. A
 * stage has stage_tiles k tiles. In each stage the warp's tiles begin with first_tile, and the activations for them lie
 * stage_at bytes into the stage. */
struct wide_weights {
    const u8 *row, *next_row;
    int first_tile;
    u32 stage_at;
    int n_stages, stage_tiles;
};

/* Multiplies a stage's tiles t, which have scales of 64 columns or more, and adds the results to d and rest. A run's
 * products are complete before they are multiplied with its scales. `b` and `atoms` are where the stage has the
 * activations of the item's and of the tail's tokens. With `twice` 2 each tile is multiplied with those of both halves
 * of the stage. */
DEV void narrow_multiply(const struct held *t, float (*d)[32], float *rest, const int blocks, const int tiles,
                         const int twice, const int tail, smem b, smem atoms, u32 atoms_step, const int format) {
#if TILES_NARROW
    enum { MOST_BLOCKS = 2 };
    const int parts = TILE_PARTS(format), whole = product_run(twice == 2, format), run = whole < tiles ? whole : tiles;
    UNROLL
    for (int first = 0; first < tiles; first += run) {
        const struct factors f = held_factors(&t[first / parts], format, 0); /* a tile is one run */
        float sum[MOST_BLOCKS][32], sum_rest[4] = { 0, 0, 0, 0 };
        struct quad a[STAGE_TILES]; /* they stay as they are until the products are over */
        UNROLL
        for (int i = first; i < first + run; i++)
            a[i - first] = tile_part(format, t[i / parts].codes, i % parts);
        panels_begin();
        UNROLL
        for (int i = twice * first; i < twice * (first + run); i++) {
            const int tile = i / twice, half = twice == 2 ? i % 2 : tile / 4;
            const u32 at = (u32)(half * COLUMNS_AT);
            UNROLL
            for (int j = 0; j < blocks; j++)
                if (i == twice * first)
                    panel_mma_first(sum[j], a[tile - first], b + at + (u32)(j * BLOCK_BYTES), tile % 4);
                else
                    panel_mma(sum[j], a[tile - first], b + at + (u32)(j * BLOCK_BYTES), tile % 4);
            if (tail) atom_mma(sum_rest, a[tile - first], atoms + (u32)half * atoms_step, tile % 4);
        }
        panels_commit();
        panels_wait(sum, blocks);
        if (tail) atom_wait(sum_rest);
        panels_keep(a, run);
        UNROLL
        for (int i = 0; i < 32 * blocks; i++)
            d[i / 32][i % 32] += f.scale[i % 4 / 2] * sum[i / 32][i % 32];
        UNROLL
        for (int i = 0; i < 4; i++)
            if (tail) rest[i] += f.scale[i / 2] * sum_rest[i];
    }
#else
    (void)t, (void)d, (void)rest, (void)blocks, (void)tiles, (void)twice, (void)tail, (void)b, (void)atoms;
    (void)atoms_step, (void)format;
#endif
}

/* The same with weights of a TILE_ROUNDED format: its operands have what the weights are worth, so their products go
 * straight to d and rest. While a tile is multiplied the next one's operand is made. */
DEV void rounded_multiply(const struct held *t, float (*d)[32], float *rest, const int blocks, const int tiles,
                          const int twice, const int tail, smem b, smem atoms, u32 atoms_step, const int format) {
#if TILES_NARROW
    struct quad a[STAGE_TILES]; /* they stay as they are until the products are over */
    UNROLL
    for (int i = 0; i < tiles; i++) {
        a[i] = tile_rounded(format, &t[i / TILE_PARTS(format)], i % TILE_PARTS(format));
        panels_begin();
        UNROLL
        for (int j = 0; j < twice * blocks; j++) {
            const int half = twice == 2 ? j / blocks : i / 4;
            panel_mma(d[j % blocks], a[i], b + (u32)(half * COLUMNS_AT + j % blocks * BLOCK_BYTES), i % 4);
            if (tail && j % blocks == 0) atom_mma(rest, a[i], atoms + (u32)half * atoms_step, i % 4);
        }
    }
    panels_commit();
    panels_wait(d, blocks);
    if (tail) atom_wait(rest);
    panels_keep(a, tiles);
#else
    (void)t, (void)d, (void)rest, (void)blocks, (void)tiles, (void)twice, (void)tail, (void)b, (void)atoms;
    (void)atoms_step, (void)format;
#endif
}

/* A warp makes an item's products: d[blocks][32], and with `tail` also rest[4]. t holds the item's first tiles before,
 * and the next item's first tiles after. */
DEV void wide_multiply(struct prompt_worker *r, int phase, const struct wide_weights *w, struct held *t, float (*d)[32],
                       float *rest, const int blocks, const int tiles, const int twice, const int tail,
                       const int format) {
    struct held next[STAGE_TILES];
    UNROLL
    for (int i = 0; i < 32 * blocks; i++)
        d[i / 32][i % 32] = 0;
    rest[0] = rest[1] = rest[2] = rest[3] = 0;
    NO_UNROLL
    for (int stage = 0; stage < w->n_stages; stage++) {
        const int last = stage + 1 == w->n_stages;
        const u8 *later = last ? w->next_row : w->row;
        const int later_k = w->first_tile + (last ? 0 : (stage + 1) * w->stage_tiles);
        if (G_WGMMA) item_halves(t, w->row, 0, 1, tiles);
        UNROLL
        for (int i = 0; P_GPUS > 1 && i < tiles && !TILE_NARROW(format); i++)
            panels_keep(&t[i].codes, 1); /* what makes them must not move behind panels_begin */
        if (G_WGMMA) item_tiles(r, phase, next, later, later_k, tiles, format);
        const smem b = smem_of(stage_take(r)) + w->stage_at;
        const smem atoms = blocks == 2 ? stage_tail(r) : b + BLOCK_BYTES; /* the tail's */
        const u32 atoms_step = blocks == 2 ? ATOM_BYTES : COLUMNS_AT;
        if (TILE_NARROW(format)) {
            if (TILE_ROUNDED(format))
                rounded_multiply(t, d, rest, blocks, tiles, twice, tail, b, atoms, atoms_step, format);
            else
                narrow_multiply(t, d, rest, blocks, tiles, twice, tail, b, atoms, atoms_step, format);
            if (!G_WGMMA) item_tiles(r, phase, t, later, later_k, tiles, format);
        } else
            panels_begin();
        UNROLL
        for (int i = 0; i < tiles && !TILE_NARROW(format); i++) {
            if (!G_WGMMA) item_halves(t + i, w->row, i, 1, 1);
            const struct quad a = tile_operand(format, t[i].codes);
            UNROLL
            for (int j = 0; j < blocks; j++)
                panel_mma(d[j], a, b + (u32)(i / 4 * COLUMNS_AT + j * BLOCK_BYTES), i % 4);
            if (tail) atom_mma(rest, a, atoms + (u32)(i / 4) * atoms_step, i % 4);
            if (!G_WGMMA) item_tiles(r, phase, t + i, later, later_k + i, 1, format); /* it is free again at once */
        }
        if (!TILE_NARROW(format)) {
            panels_commit();
            panels_wait(d, blocks);
            if (tail) atom_wait(rest);
        }
        u32 seen = tail ? float_bits(rest[0]) : 0;
        UNROLL
        for (int j = 0; j < 8 * blocks; j++)
            seen ^= float_bits(d[j / 8][j % 8 * 4]);
        stage_give(r, seen);
        UNROLL
        for (int i = 0; G_WGMMA && i < tiles / TILE_PARTS(format); i++)
            t[i] = next[i];
    }
}

/* A consumer warp makes all items of one phase that are wide, or with `split` are halves. It loads weights a stage
 * ahead, and at the end of an item those of the next item's first stage. doubled: product_doubled. */
DEV void wide_items_of(struct prompt_worker *r, int phase, int layer, const int blocks, const int split,
                       const int doubled, const int format) {
    enum { MOST_BLOCKS = 2 };
    const int row_tiles = product_row_tiles(phase);
    const int rows = split ? 4 : 8, half = r->w.warp / 4;
    const int tiles = split || doubled ? STAGE_TILES / 2 : STAGE_TILES, twice = doubled && !split ? 2 : 1;
    const int across = wide_across(r->n_tokens, blocks), tokens = BLOCK_TOKENS * blocks;
    const int n_items = (row_tiles + rows - 1) / rows * across, step = (int)block_count();
    const int mine = split ? r->w.warp % 4 : r->w.warp;
    struct held t[STAGE_TILES];
    struct wide_weights w;
    struct item it;
    it.which = 0;
    w.first_tile = split && !doubled ? half * tiles : 0, w.stage_at = (u32)(split ? half * COLUMNS_AT : 0);
    w.n_stages = (product_k_tiles(phase) + STAGE_TILES - 1) / STAGE_TILES;
    w.stage_tiles = doubled ? STAGE_TILES / 2 : STAGE_TILES;
    w.row = item_weights(r, phase, layer, r->w.block / across * rows + mine);
    item_tiles(r, phase, t, w.row, w.first_tile, tiles, format);
    previous_over();
    NO_UNROLL
    for (int item = r->w.block; item < n_items; item += step) {
        float d[MOST_BLOCKS][32], rest[4];
        it.row = item / across * rows + mine, it.token = item % across * tokens;
        const int tail = TAIL_TOKENS && item % across == across - 1 && r->n_tokens - it.token > tokens;
        w.next_row = item_weights(r, phase, layer, (item + step) / across * rows + mine);
        item_begin(r, phase, &it, 0, tokens);
        if (tail) item_begin(r, phase, &it, tokens, ATOM_TOKENS);
        if (TAIL_TOKENS && tail)
            wide_multiply(r, phase, &w, t, d, rest, blocks, tiles, twice, 1, format);
        else
            wide_multiply(r, phase, &w, t, d, rest, blocks, tiles, twice, 0, format);
        w.row = w.next_row;
        readers_sync(); /* the scales are there, and everyone is done with the item before */
        prompt_worker_anew(r);
        if (split) halves_meet(r, d[0]);
        if (split && tail) tails_meet(r, rest);
        UNROLL
        for (int j = 0; j < blocks; j++)
            if (!split)
                item_finish(r, phase, layer, &it, d[j], j, 0, 8, 0);
            else
                item_finish(r, phase, layer, &it, d[j], j, 4 * half, 4, 0);
        const int finishes = TAIL_TOKENS && tail && !(split && half);
        if (finishes) item_finish(r, phase, layer, &it, rest, blocks, 0, 1, 0);
        item_end(r, phase, &it, split && half ? 32 : 0, split && !half ? 32 : tokens);
        if (finishes) item_end(r, phase, &it, tokens, tokens + ATOM_TOKENS);
        it.which ^= 1;
    }
}

/* So that the compiler knows which of the two it is. */
DEV void wide_items(struct prompt_worker *r, int phase, int layer, const int blocks, const int split,
                    const int format) {
    if (TILE_NARROW(format) && product_doubled(phase, format))
        wide_items_of(r, phase, layer, blocks, split, 1, format);
    else
        wide_items_of(r, phase, layer, blocks, split, 0, format);
}

/* ---- the producer's part: the same items in the same order ---- */

DEV void wide_produce(struct prompt_worker *r, int phase, int blocks, int rows, int doubled) {
    const int n_blocks = (product_k_tiles(phase) + 3) / 4; /* of 64 columns */
    const int other = doubled ? n_blocks / 2 : 1;          /* from a stage's first block to its second */
    const int n_tokens = (r->n_tokens + ATOM_TOKENS - 1) / ATOM_TOKENS * ATOM_TOKENS;
    const int across = wide_across(r->n_tokens, blocks);
    const int n_items = (product_row_tiles(phase) + rows - 1) / rows * across;
    const u8 *from = activations_of(r, phase);
    const u64 column_bytes = (u64)(u32)r->a->room * 128;
    const u32 room = (u32)(blocks * BLOCK_BYTES);
    NO_UNROLL
    for (int item = r->w.block; item < n_items; item += (int)block_count()) {
        const int token = item % across * blocks * BLOCK_TOKENS, last = item % across == across - 1;
        const u32 left = (u32)(n_tokens - token) * 128, most = blocks == 1 && last ? room + TAIL_TOKENS * 128 : room;
        const u32 bytes = left < most ? left : most;
        const u8 *tokens = from + (u64)(u32)token * 128;
        struct tails tails;
        tails.bytes = last ? left - bytes : 0; /* an atom or none */
        NO_UNROLL
        for (int i = 0; i < n_blocks; i += 2) {
            const int block = doubled ? i / 2 : i;
            const u8 *first = tokens + (u64)(u32)block * column_bytes;
            const u8 *second = tokens + (u64)(u32)(block + other < n_blocks ? block + other : block) * column_bytes;
            tails.first = first + room, tails.second = second + room;
            stage_fill_all(r, first, bytes, second, bytes, COLUMNS_AT, &tails);
        }
    }
}

#endif
