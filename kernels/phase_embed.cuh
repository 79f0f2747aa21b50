/* embed: a token's row of the embedding becomes h, f32. Each consumer warp makes its own slice. */
#ifndef REEL_KERNELS_PHASE_EMBED_CUH
#define REEL_KERNELS_PHASE_EMBED_CUH

#include "shared.cuh"
#include "tile_codes.cuh"

/* Returns the shape of the head, as far as tape_locate needs it. */
DEV struct tape_shape head_shape(void) {
    struct tape_shape s;
    s.n_sms = P_SMS, s.warps = P_WARPS, s.vocab = M_VOCAB, s.head_unit = P_HEAD_UNIT;
    s.layers_bytes = P_LAYERS_BYTES, s.sm_bytes = P_SM_BYTES;
    s.segment[TAPE_HEAD].k_tiles = P_HEAD_K_TILES, s.segment[TAPE_HEAD].format = P_HEAD_FORMAT;
    return s;
}
/* Where an id's row lies. A tied model's is read out of the head's tiles. */
struct embedding_row {
    const u8 *at;
    u32 step, row; /* tied: from a unit of the head to the next one; row of the tiles */
};
DEV const u8 *id_tape(const struct worker *w, const struct decode_args *a, u32 id) {
    return tape_from(w, a, (int)(id / TILE_ROWS % P_SMS));
}
DEV struct embedding_row embedding_row(const struct worker *w, const struct decode_args *a, u32 id) {
    const struct tape_shape shape = head_shape(); /* constants: look-ups divide by shifts */
    const int sm = (int)(id / TILE_ROWS % P_SMS);
    struct embedding_row r;
    if (M_TIED) {
        const struct tape_strip strip = tape_head_strip(&shape, sm, (int)(id / TILE_ROWS / P_SMS));
        r.at = id_tape(w, a, id) + (u64)sm * P_SM_BYTES + P_LAYERS_BYTES + strip.at;
        r.step = strip.step, r.row = id % TILE_ROWS;
    } else {
        r.at = (const u8 *)a->embedding + (size_t)id * M_HIDDEN * 2, r.step = r.row = 0;
    }
    return r;
}
/* Returns elements 2 pair and 2 pair + 1 of a row, where they are bf16: embedding_read of the word at embedding_at. */
DEV const u32 *embedding_at(struct embedding_row r, int pair) {
    const struct tape_shape shape = head_shape();
    const u64 tied =
        tape_strip_tile(&shape, r.step, pair / (TILE_K / 2)) + tile_grain_at(P_HEAD_FORMAT, (int)r.row, 2 * pair);
    return (const u32 *)(r.at + (M_TIED ? tied : 4 * (u64)pair));
}
DEV u32 embedding_read(u32 word, int pair) { return M_TIED ? tile_grain_pair(P_HEAD_FORMAT, word, 2 * pair) : word; }
DEV u32 embedding_pair(const struct worker *w, const struct decode_args *a, u32 id, int pair) {
    return embedding_read(const_load32(embedding_at(embedding_row(w, a, id), pair)), pair);
}
/* Makes these two elements, also where the head is narrow. */
enum { NARROW_EMBEDDING = M_TIED && TILE_NARROW(P_HEAD_FORMAT) };
DEV void embedding_two(const struct worker *w, const struct decode_args *a, u32 id, int pair, float two[2]) {
    if (NARROW_EMBEDDING) {
        const struct tape_shape shape = head_shape();
        tape_two(id_tape(w, a, id), &shape, TAPE_HEAD, (int)id, 2 * pair, P_HEAD_FORMAT, two);
        return;
    }
    const u32 both = embedding_pair(w, a, id, pair);
    two[0] = bf16_low(both), two[1] = bf16_high(both);
}
/* What a token's two elements are made of: wide: of two floats. */
struct embedded {
    u32 word, second;
    int wide;
};

/* What h of token t is made of: of args.start where the token has been through the layers, of its given embedding, or
 * of the row of `id`. The first two are rows of floats. */
DEV const float *embedding_given(const struct decode_args *a, int t) {
    if (layers_done(a, t)) return a->start;
    return a->embeddings && t < a->n_given ? a->embeddings + (size_t)t * M_HIDDEN : 0;
}

/* Asks for it: of floats where they are given, else of `row`; where the head is narrow, of id's. Behind it
 * embedding_make makes h. Nothing is looked at in between, so that several columns' rows come out of memory side by
 * side. */
DEV void embedding_ask(struct worker *w, const float *given, struct embedding_row row, u32 id, struct embedded *e) {
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        const int have = word < SLICE_WORDS && pair < M_HIDDEN / 2;
        e[i].word = e[i].second = 0, e[i].wide = NARROW_EMBEDDING || given != 0;
        if (NARROW_EMBEDDING && !given && have) {
            float two[2];
            embedding_two(w, w->a, id, pair, two);
            e[i].word = float_bits(two[0]), e[i].second = float_bits(two[1]);
        } else if (have) {
            const u32 *at = given ? (const u32 *)given + 2 * pair : embedding_at(row, pair);
            e[i].word = const_load32(at);
            if (given) e[i].second = const_load32(at + 1);
        }
    }
}
DEV void embedding_make(const struct worker *w, const struct embedded *e, float *h) {
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const u32 pair = e[i].wide ? 0 : embedding_read(e[i].word, w->warp * SLICE_WORDS + i * LANES + w->lane);
        h[2 * i] = e[i].wide ? bits_float(e[i].word) : bf16_low(pair);
        h[2 * i + 1] = e[i].wide ? bits_float(e[i].second) : bf16_high(pair);
    }
}

DEV void embed(struct worker *w, int t, u32 id, float *h) {
    struct embedded e[SLICE];
    embedding_ask(w, embedding_given(w->a, t), embedding_row(w, w->a, id), id, e);
    embedding_make(w, e, h);
}

#endif
