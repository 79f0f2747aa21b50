/* Reading a short prompt (docs/GLOSSARY.md), up to P_SHORT_TOKENS tokens in one launch: what the parts of short.cuh
 * share.
 *
 * It is decoding with more columns. Blocks, groups, tapes and the ring of weights are decode's. Tokens are the
 * columns of a product and stand in atoms of 8. A run of atoms goes through a product at once: a narrow run has PAIR
 * atoms, a wide one, in longer prompts, WIDE. SMs send each other activations as words with an epoch. The words lie
 * as B fragments, two a lane for a k tile and an atom: the first has columns 2 (lane % 4) and + 1 of token lane / 4,
 * the second those 8 further on.
 *
 * The program says by SHORT_FAR whether the SMs of a group share the positions before the prompt (short_far.cuh). */
#ifndef REEL_KERNELS_SHORT_SHARED_CUH
#define REEL_KERNELS_SHORT_SHARED_CUH

#define RING_SLOTS P_SHORT_SLOTS
#include "prefill_args.h"
#include "shared.cuh"
#include "short_layout.h"

enum {
    ATOMS = P_SHORT_TOKENS / ATOM_TOKENS,
    PAIR = SHORT_PAIR(ATOMS),
    WIDE = SHORT_WIDE(ATOMS),
    PAIRS_OF_ATOMS = (ATOMS + 1) / 2, /* runs of 16 tokens */
    H_TILES = M_HIDDEN / TILE_K,
    QKV_TILES = (QKV_GROUP_ROWS + TILE_ROWS - 1) / TILE_ROWS, /* of a group */
    HALF_DIM = M_HEAD_DIM / 2,
    ANGLE_STRIDE = SHORT_ANGLES(M_HEAD_DIM),
    PRELOAD_TILES = P_SHORT_PRELOAD
};

/* Where each part of exchange memory begins, in words; short_exchange_words (short_layout.h) adds up the same parts.
 * Each has one buffer: short.cuh says why that is enough, and short_far.cuh of the last two, which it alone uses. */
enum {
    TILE_WORDS = SHORT_TILE_WORDS,
    VECTOR_WORDS = H_TILES * ATOMS * TILE_WORDS,  /* of hidden columns, all tokens */
    S_X = 0,                                      /* [2]: for qkv, for gate_up; word_x */
    S_SSQ = S_X + 2 * VECTOR_WORDS,               /* [2][H_TILES][tokens]: sums of h^2 over a k tile; f32 */
    S_QKV = S_SSQ + 2 * H_TILES * P_SHORT_TOKENS, /* [P_GROUPS][QKV_TILES][ATOMS][TILE_WORDS]; bf16 */
    S_SUMS = S_QKV + P_GROUPS * QKV_TILES * ATOMS * TILE_WORDS, /* [2: out, down][P_GROUPS][VECTOR_WORDS]; f24 */
    S_GATED = S_SUMS + 2 * P_GROUPS * VECTOR_WORDS, /* [P_GROUPS][P_DOWN_K_TILES][ATOMS][TILE_WORDS]; bf16 */
    S_PARTIAL = S_GATED + P_GROUPS * P_DOWN_K_TILES * ATOMS * TILE_WORDS,
    S_ATTENDED = S_PARTIAL + P_SMS * P_GROUP_HEADS * ATOMS * SHORT_PARTIAL_WORDS(AT_TILES),
    SHORT_WORDS = S_ATTENDED + P_GROUPS * P_GROUP_HEADS * AT_TILES * ATOMS * TILE_WORDS
};

/* Partial sums of a narrow run of atoms. A quad_float holds the four sums that a lane has of one product. */
#define PART_QUADS(S) (P_##S##_ROW_TILES * PAIR * P_##S##_K_PARTS * LANES)
enum {
    MERGE_QUADS = (AT_TILES + 1) * LANES, /* of one head, what a warp hands over when warps share its positions */
    PRODUCT_QUADS = MAX(MAX(PART_QUADS(QKV), PART_QUADS(OUT)), MAX(PART_QUADS(GATE_UP), PART_QUADS(DOWN))),
    ALL_PARTS = MAX(PRODUCT_QUADS, ((P_WARPS - 1) * MERGE_QUADS + 1) / 2)
};

/* short_shared_bytes (short_layout.h) counts the same parts. */
struct ALIGN(16) block_shared {
#if P_GPUS > 1
    struct gpu_shared others; /* first: gpus_of */
#endif
    struct quad_float part[2][ALL_PARTS];
    struct pair q[P_OUT_K_TILES * ATOMS * LANES]; /* B fragments: q's of the group, then attention's result */
    struct quad k[P_GROUP_KV_HEADS * PAIRS_OF_ATOMS * AT_TILES * LANES]; /* A operands: K of 16 tokens each */
    struct quad v[P_GROUP_KV_HEADS * PAIRS_OF_ATOMS * AT_TILES * LANES]; /* V transposed */
#if P_KV_FORM
    float kv_scale[P_GROUP_KV_HEADS][2][PAIRS_OF_ATOMS * KV_POSITIONS]; /* of the launch's own tokens: of K, of V */
#endif
    float angle[PAIRS_OF_ATOMS + KV_POSITIONS][ANGLE_STRIDE]; /* cos, sin: of runs' first positions, then of 0 to 15 */
    float ssq[2][P_WARPS][WIDE * ATOM_TOKENS];                /* of each warp's k tiles */
    u64 full[RING_SLOTS], empty[RING_SLOTS];
    u64 page[PAIRS_OF_ATOMS + 1]; /* of the launch's own tokens, piece by piece: addresses of pages (kv_layout.h) */
    u32 end, caps[LAYER_PHASES];  /* as decode's */
};

enum { RING_BYTES = RING_SLOTS * P_SLOT_BYTES, SHARED_BYTES = RING_BYTES + (int)sizeof(struct block_shared) };
STATIC_ASSERT(SHARED_BYTES == P_SHORT_SHARED, "the plan counts shared memory of short prompts otherwise");
STATIC_ASSERT(SHORT_WORDS == P_SHORT_WORDS, "the plan counts exchange words of short prompts otherwise");

#include "ring.cuh"

/* One thread's view. */
struct short_worker {
    struct worker w;
    const struct prefill_args *a;
    int n_tokens, atoms;
    int padded; /* atoms, in whole runs where these are wide; tokens beyond the last are 0 */
    int turn;   /* which of the two buffers of partial sums is next */
    /* the unit of the residual stream that this warp owns, a k tile of an atom; unit_atom is -1 where it owns none */
    int unit_tile, unit_atom;
    float h[4];
};

/* Before a phase: what the compiler makes of these values cannot be made before the loop over layers, where it would
 * hold registers through all phases (worker_anew). */
DEV void short_worker_anew(struct short_worker *b) {
    worker_anew(&b->w);
    b->unit_tile = opaque(b->unit_tile), b->unit_atom = opaque(b->unit_atom);
    b->atoms = opaque(b->atoms), b->padded = opaque(b->padded), b->turn = opaque(b->turn) & 1;
}

/* Place of the word that holds columns `column` (even) and + 1 of a token, in words from where a vector begins. */
DEV int word_of(int column, int token) {
    const int lane = token % ATOM_TOKENS * 4 + column % 8 / 2;
    return ((column / TILE_K * ATOMS + token / ATOM_TOKENS) * LANES + lane) * 2 + column % TILE_K / 8;
}

/* ---- fragments from other SMs ---- */

/* A lane's two words: x has columns 2 (lane % 4) and + 1, z those 8 further on; y and w are their tags. */
struct fragment {
    struct quad q;
};

/* A word of x holds two columns. Its low half has both rounded to bf16. Its high half has what rounding left over of
 * both, bf16 again, each without its last 4 bits, where 8 bits of epoch stand. A column thus has 12 or 13 significant
 * bits; a product multiplies both halves. Words of other fragments have 32 bits of epoch and a pair of bf16. */
#define X_TAG 0x000f000fu
DEV u32 epoch_nibbles(u32 epoch) { return (epoch & 15) | (epoch >> 4 & 15) << 16; }
DEV u64 word_x(u32 both, u32 rest, u32 epoch) { return (u64)((rest & ~X_TAG) | epoch_nibbles(epoch)) << 32 | both; }
DEV u32 rest_of(u32 tag) { return tag & ~X_TAG; }
DEV u32 tag_of(const struct short_worker *b, int is_x) { return is_x ? epoch_nibbles(b->w.epoch) : b->w.epoch; }

DEV struct fragment fragment_blank(const struct short_worker *b, int is_x) {
    struct fragment f;
    f.q.x = f.q.z = 0, f.q.y = f.q.w = tag_of(b, is_x);
    return f;
}
/* Bits in which a fragment's tags differ from the epoch's; 0 when both words are there. */
DEV u32 fragment_off(const struct fragment *f, u32 tag, int is_x) {
    return ((f->q.y ^ tag) | (f->q.w ^ tag)) & (is_x ? X_TAG : ~0u);
}

/* fragments_ask loads the fragments of n k tiles by `some` atoms from `atom` on, so that their words are on the way
 * while the warp does something else. fragments_wait, with the same arguments, polls until all words are there. The k
 * tiles have `columns` columns; what does not exist is 0. A word that is there is not read again: polls are
 * themselves the load on the lines they wait for. */
DEV const u64 *fragment_at(const u64 *from, int i, const int some) {
    return from + (i / some * ATOMS + i % some) * TILE_WORDS; /* all but `from` is known when compiled */
}
DEV void fragments_ask(const struct short_worker *b, struct fragment *f, const u64 *from, int atom, int n,
                       const int some, int columns, const int is_x) {
    const int left = columns - b->w.lane % 4 * 2; /* from this lane's first column on */
    const u64 *at = from + (atom * TILE_WORDS + b->w.lane * 2);
    UNROLL
    for (int i = 0; i < n * some; i++) {
        const int there = i / some * TILE_K < (columns % TILE_K ? left : columns); /* most often known when compiled */
        f[i] = fragment_blank(b, is_x);
        if (there && ((some > 1 && i % some == 0) || atom + i % some < b->atoms))
            f[i].q = word_load4(fragment_at(at, i, some));
    }
}
DEV void fragments_wait(struct short_worker *b, struct fragment *f, const u64 *from, int atom, int n, const int some,
                        int columns, const int is_x, enum wait_kind kind) {
    const int left = columns - b->w.lane % 4 * 2;
    const u64 *at = from + (atom * TILE_WORDS + b->w.lane * 2);
    const u32 tag = tag_of(b, is_x);
    u32 polls = 0;
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < n * some; i++) {
            if (columns % TILE_K && i / some * TILE_K + 8 >= left) f[i].q.z = 0, f[i].q.w = tag;
            off |= fragment_off(&f[i], tag, is_x);
        }
        if (warp_all(off == 0 || b->w.dead)) break;
        if (wait_failed(&b->w, &polls, kind, tag, f[0].q.y)) break;
        UNROLL
        for (int i = 0; i < n * some; i++)
            if (fragment_off(&f[i], tag, is_x)) f[i].q = word_load4(fragment_at(at, i, some));
    }
}

#endif
