/* Short prompts: what lies between the products of qkv and out.
 *
 * Every SM of a group computes the whole attention of its group for itself, as in decoding, because its rows of out
 * need all of it. A warp takes q, k or v of an atom of a head as the fragments that the products left. It norms and
 * rotates q and k, and stores q as B operands, k and v as A operands. One SM of the group also writes that k or v to
 * the KV cache. Then a warp takes a block: an atom of tokens of some q heads. It attends to the positions before the
 * chunk (the tokens of this launch) from the cache, and to the chunk's own up to each row's from shared memory. Where
 * there are fewer blocks than warps, warps share a block's positions. */
#ifndef REEL_KERNELS_SHORT_ATTENTION_CUH
#define REEL_KERNELS_SHORT_ATTENTION_CUH

#include "attention_math.cuh"
#include "kv_codes.cuh"
#include "kv_pages.cuh"
#include "mma.cuh"
#include "short_far.cuh"
#include "short_shared.cuh"

enum {
    HEAD_BLOCKS = M_HEAD_DIM / 8,                      /* of 8 dims */
    GROUP_ROWS = P_GROUP_HEADS + 2 * P_GROUP_KV_HEADS, /* heads of a group: q, k, v */
    KV_QUERIES = P_GROUP_HEADS / P_GROUP_KV_HEADS,     /* q heads of a KV head */
    BLOCK_HEADS = SHORT_HEADS(KV_QUERIES, M_HEAD_DIM), /* that a warp has at once */
    SHARES = SHORT_FAR ? P_GROUP_SMS : 1               /* SMs that share the positions */
};
STATIC_ASSERT(P_GROUP_HEADS / BLOCK_HEADS * ATOMS <= P_WARPS, "the plan gives a warp more than one block of rows");
#define SCORE_NEVER (-3e38f) /* score of a masked position: its weight is 0 beside ATTENTION_NEVER too */

/* Once a launch: computes the angles of the rotation, notes the pages of the launch's own tokens, and clears q and v.
 * Zeros of q are what out's padding and tokens beyond the last are multiplied with. All threads. */
DEV void attention_prepare(struct short_worker *b) {
    struct block_shared *s = b->w.s;
    NO_UNROLL
    for (int i = (int)thread_index(); i < (PAIRS_OF_ATOMS + KV_POSITIONS) * HALF_DIM; i += P_THREADS) {
        const int row = i / HALF_DIM, dim = i % HALF_DIM;
        const int position = row < PAIRS_OF_ATOMS ? b->w.a->position + row * KV_POSITIONS : row - PAIRS_OF_ATOMS;
        float *at = s->angle[row] + 2 * dim;
        sine_cosine((float)position * const_loadf(b->w.a->rope + dim), at + 1, at);
    }
    const int first = b->w.a->position / KV_POSITIONS, last = (b->w.a->position + b->n_tokens - 1) / KV_POSITIONS;
    for (int i = (int)thread_index(); i <= last - first; i += P_THREADS)
        s->page[i] = (u64)kv_page(b->w.a, first + i);
    for (int i = (int)thread_index(); i < P_OUT_K_TILES * ATOMS * LANES; i += P_THREADS)
        s->q[i].low = s->q[i].high = 0;
    for (int i = (int)thread_index(); i < (int)(sizeof s->v / sizeof *s->v); i += P_THREADS)
        s->v[i].x = s->v[i].y = s->v[i].z = s->v[i].w = 0; /* an atom alone fills half of its tiles */
}

/* The row of a page (kv_layout.h) that one of the group's KV heads has. */
DEV int cache_row(const struct short_worker *b, int kv_head) { return kv_row(&b->w, b->w.layer) + kv_head; }

/* ---- q, k and v of an atom of tokens ---- */

/* An atom of tokens of a head: this lane has token lane / 4, dims 8 j + 2 (lane % 4) and + 1. */
struct rows8 {
    u32 w[HEAD_BLOCKS];
};

/* Norms and rotates rows of q or k; q is also scaled for its scores. */
DEV void rows8_rotate(const struct short_worker *b, int atom, int is_k, struct rows8 *x) {
    const float *gain = b->w.a->qkv_vectors + (2 * b->w.layer + is_k) * M_HEAD_DIM;
    const float *base = b->w.s->angle[atom / 2];
    const float *step = b->w.s->angle[PAIRS_OF_ATOMS + atom % 2 * ATOM_TOKENS + b->w.lane / 4];
    float factor = is_k ? 1 : LOG2_E * rsqrt_approx((float)M_HEAD_DIM), sum = 0;
    UNROLL
    for (int j = 0; M_QK_NORM && j < HEAD_BLOCKS; j++)
        sum += bf16_low(x->w[j]) * bf16_low(x->w[j]) + bf16_high(x->w[j]) * bf16_high(x->w[j]);
    if (M_QK_NORM) factor *= rsqrt_approx(xor_sum(sum, 1, 4) * (1.0f / M_HEAD_DIM) + M_RMS_EPS);
    UNROLL
    for (int j = 0; j < HEAD_BLOCKS / 2; j++) {
        const int dim = 8 * j + b->w.lane % 4 * 2;
        if (j % 2 == 0) loads_stay(); /* or all of them would hold registers at once */
        const struct quad_float u = *(const struct quad_float *)(base + 2 * dim);
        const struct quad_float v = *(const struct quad_float *)(step + 2 * dim);
        const float cosine[2] = { u.x * v.x - u.y * v.y, u.z * v.z - u.w * v.w };
        const float sine[2] = { u.y * v.x + u.x * v.y, u.w * v.z + u.z * v.w };
        float g[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            g[i] = M_QK_NORM ? const_loadf(gain + dim + i % 2 + i / 2 * HALF_DIM) : 1;
        pair_rotate(&x->w[j], &x->w[j + HEAD_BLOCKS / 2], g, cosine, sine, factor);
    }
}

DEV void query_store(const struct short_worker *b, int head, int atom, const struct rows8 *x) {
    struct pair *to = b->w.s->q + (head * AT_TILES * ATOMS + atom) * LANES + b->w.lane;
    UNROLL
    for (int t = 0; t < AT_TILES; t++)
        to[t * ATOMS * LANES].low = x->w[2 * t], to[t * ATOMS * LANES].high = x->w[2 * t + 1];
}

/* Where the A operands of 16 tokens' K, or of their V transposed, lie. An atom fills half of them: rows of K, columns
 * of V. */
DEV struct quad *run_tiles(struct quad *all, int kv_head, int run) {
    return all + (kv_head * PAIRS_OF_ATOMS + run) * (AT_TILES * LANES);
}
DEV void key_store(const struct short_worker *b, struct quad *to, int second, const struct rows8 *x) {
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u32 *tile = &to[t * LANES + b->w.lane].x + second;
        tile[0] = x->w[2 * t], tile[2] = x->w[2 * t + 1];
    }
}
DEV void value_store(const struct short_worker *b, struct quad *to, int second, const struct rows8 *x) {
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u32 *tile = &to[t * LANES + b->w.lane].x + 2 * second;
        tile[0] = transpose8(x->w[2 * t]), tile[1] = transpose8(x->w[2 * t + 1]);
    }
}

#if P_KV_FORM
/* Rows of k or v become codes, as bf16; their scales go to kv_scale. */
DEV void rows8_quantise(const struct short_worker *b, int kv_head, int atom, int is_v, struct rows8 *x) {
    const float given = kv_given(b->w.a->qkv_vectors, b->w.layer, b->w.group * P_GROUP_KV_HEADS + kv_head, is_v);
    u32 largest = 0;
    UNROLL
    for (int j = 0; j < HEAD_BLOCKS; j++)
        largest = kv_largest(largest, x->w[j]);
    const struct kv_scale s = kv_scale_of(kv_largest_of(largest, 1, 4), given);
    UNROLL
    for (int j = 0; j < HEAD_BLOCKS; j++)
        x->w[j] = kv_codes_bf16(kv_codes_of(x->w[j], s));
    if (b->w.lane % 4 == 0) b->w.s->kv_scale[kv_head][is_v][atom * ATOM_TOKENS + b->w.lane / 4] = s.scale;
}

/* The piece of the cache that has a token, or the last one for those behind it. */
DEV u8 *token_piece(const struct short_worker *b, int kv_head, int token) {
    const int have = token < b->n_tokens ? token : b->n_tokens - 1, piece = (b->w.a->position + have) / KV_POSITIONS;
    u8 *page = (u8 *)b->w.s->page[piece - b->w.a->position / KV_POSITIONS];
    return kv_page_piece(page, cache_row(b, kv_head), piece);
}

/* Writes an atom's K or V to the cache, out of the words of the A operands that this lane itself has stored, and its
 * scales. */
DEV void cache_store(const struct short_worker *b, int kv_head, int atom, int is_v, const struct quad *tiles) {
    const int lane = b->w.lane, first = atom * ATOM_TOKENS + (is_v ? lane % 4 * 2 : lane / 4);
    const int position = b->w.a->position + first, token = atom * ATOM_TOKENS + lane / 4;
    u8 *pieces[2] = { token_piece(b, kv_head, first), token_piece(b, kv_head, first + 1) };
    NO_UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        const u32 *tile = &tiles[t * LANES + lane].x + (is_v ? atom % 2 * 2 : atom % 2);
        const u32 low = kv_codes_again(tile[0]), high = kv_codes_again(tile[is_v ? 1 : 2]);
        const int dim = t * TILE_K + (is_v ? lane / 4 : lane % 4 * 2);
        if (!is_v) { /* dims d, d + 8, d + 1 and d + 9 of one token */
            if (first < b->n_tokens)
                plain_store32((u32 *)(pieces[0] + kv_k_byte(P_KV_FORM, position, dim)), low | high << 8);
            continue;
        }
        UNROLL
        for (int i = 0; i < 2; i++) {
            if (first + i >= b->n_tokens) continue;
            plain_store8(pieces[i] + kv_v_byte(P_KV_FORM, M_HEAD_DIM, position + i, dim), low >> 16 * i);
            plain_store8(pieces[i] + kv_v_byte(P_KV_FORM, M_HEAD_DIM, position + i, dim + 8), high >> 16 * i);
        }
    }
    if (lane % 4 == 0 && token < b->n_tokens)
        plain_store32(
            (u32 *)(token_piece(b, kv_head, token) + kv_scale_byte(M_HEAD_DIM, is_v, b->w.a->position + token)),
            float_bits(b->w.s->kv_scale[kv_head][is_v][token]));
}
#else
/* Writes an atom's K or V to the cache, out of the words of the A operands that this lane itself has stored. */
DEV void cache_store(const struct short_worker *b, int kv_head, int atom, int is_v, const struct quad *tiles) {
    const struct decode_args *a = b->w.a;
    const int lane = b->w.lane, first = atom * ATOM_TOKENS + (is_v ? lane % 4 * 2 : lane / 4);
    /* this lane's token and the one behind it, or the last token where it has none */
    u8 *pieces[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int token = first + i < b->n_tokens ? first + i : b->n_tokens - 1;
        const int piece = (a->position + token) / KV_POSITIONS;
        u8 *page = (u8 *)b->w.s->page[piece - a->position / KV_POSITIONS];
        pieces[i] = kv_page_piece(page, cache_row(b, kv_head), piece);
    }
    NO_UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        const u32 *tile = &tiles[t * LANES + lane].x + (is_v ? atom % 2 * 2 : atom % 2);
        const u32 word[2] = { tile[0], tile[is_v ? 1 : 2] };
        UNROLL
        for (int i = 0; i < 4; i++) {
            /* a word has two dims of one token of K, or one dim of two tokens of V */
            const int w = is_v ? i / 2 : i, half = is_v ? i % 2 : 0, token = first + half;
            const int dim = t * TILE_K + 8 * w + (is_v ? lane / 4 : lane % 4 * 2), position = a->position + token;
            if (w > 1 || token >= b->n_tokens) continue;
            u8 *piece = pieces[half];
            if (is_v)
                plain_store16((u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, position, dim)), (u16)(word[w] >> 16 * half));
            else
                plain_store32((u32 *)(piece + kv_k_byte(0, position, dim)), word[w]);
        }
    }
}

#endif

/* A task is an atom of a head. A warp does one task a turn. Heads shift from turn to turn, so that each warp meets
 * those of v, which are less work. */
DEV int task_atom(int task) { return task / GROUP_ROWS; }
DEV int task_head(int task) { return (task + task_atom(task) * GROUP_ROWS / P_WARPS) % GROUP_ROWS; }
DEV const u64 *task_words(const struct short_worker *b, int task) {
    return b->w.a->words + S_QKV + (b->w.group * QKV_TILES + task_head(task) * AT_TILES) * (ATOMS * TILE_WORDS);
}

DEV void task_finish(struct short_worker *b, int task, struct rows8 *x) {
    const int atom = task_atom(task), head = task_head(task), kv = head - P_GROUP_HEADS;
    const int is_v = kv >= P_GROUP_KV_HEADS, kv_head = is_v ? kv - P_GROUP_KV_HEADS : kv;
    if (!is_v) rows8_rotate(b, atom, kv >= 0, x);
    if (kv < 0) {
        query_store(b, head, atom, x);
        return;
    }
#if P_KV_FORM
    rows8_quantise(b, kv_head, atom, is_v, x);
#endif
    struct quad *tiles = run_tiles(is_v ? b->w.s->v : b->w.s->k, kv_head, atom / 2);
    if (is_v)
        value_store(b, tiles, atom % 2, x);
    else
        key_store(b, tiles, atom % 2, x);
    if ((atom * 2 * P_GROUP_KV_HEADS + kv) % P_GROUP_SMS != b->w.member) return;
    if (is_v)
        cache_store(b, kv_head, atom, 1, tiles);
    else
        cache_store(b, kv_head, atom, 0, tiles);
}

/* Takes all atoms of all of the group's heads. A warp does one task at a time and has asked for the next one's words
 * before. Runs of 16 tokens are filled whole: an atom beyond the last is 0. */
DEV void rows_read(struct short_worker *b) {
    const int tasks = PAIRS_OF_ATOMS > 1 ? (b->atoms + 1) / 2 * 2 * GROUP_ROWS : ATOMS * GROUP_ROWS;
    const int first = b->w.warp < tasks ? b->w.warp : 0;
    struct fragment f[AT_TILES];
    fragments_ask(b, f, task_words(b, first), task_atom(first), AT_TILES, 1, M_HEAD_DIM, 0);
    NO_UNROLL
    for (int task = b->w.warp; task < tasks; task += P_WARPS) {
        struct rows8 x;
        fragments_wait(b, f, task_words(b, task), task_atom(task), AT_TILES, 1, M_HEAD_DIM, 0, WAIT_QKV);
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x.w[2 * t] = f[t].q.x, x.w[2 * t + 1] = f[t].q.z;
        const int next = task + P_WARPS;
        if (next < tasks) fragments_ask(b, f, task_words(b, next), task_atom(next), AT_TILES, 1, M_HEAD_DIM, 0);
        task_finish(b, task, &x);
    }
}

/* ---- a block of rows ---- */

/* A block: an atom of tokens of BLOCK_HEADS q heads of one KV head. Each head has 8 rows, and products of different
 * heads do not wait for each other. A lane has rows 2 (lane % 4) and + 1. Its sums l are over the positions that are
 * lane / 4 modulo 8. */
struct rows {
    struct pair q[BLOCK_HEADS][AT_TILES];
    float o[BLOCK_HEADS][AT_TILES][4]; /* of dims lane / 4 and + 8 of each tile */
    float m[BLOCK_HEADS][2], l[BLOCK_HEADS][2];
};

DEV void rows_begin(struct rows *x) {
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++) {
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x->o[h][t][0] = x->o[h][t][1] = x->o[h][t][2] = x->o[h][t][3] = 0;
        x->m[h][0] = x->m[h][1] = ATTENTION_NEVER, x->l[h][0] = x->l[h][1] = 0;
    }
}

/* Turns the scores of 16 positions for a head's 8 rows into weights, a B operand. Adds them to the sums l, after it
 * has scaled l and o to the new maximum. */
DEV struct pair scores_weigh(struct rows *x, int h, const float *s, const struct piece_scales *scales) {
    struct pair w;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float m = max_float(x->m[h][i], xor_max(max_float(s[i], s[i + 2]), 4, LANES));
        const float f = exp2_approx(x->m[h][i] - m);
        x->m[h][i] = m, x->l[h][i] *= f;
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x->o[h][t][i] *= f, x->o[h][t][i + 2] *= f;
    }
#if P_KV_FORM
    float e[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        e[i] = exp2_approx(s[i] - x->m[h][i % 2]), x->l[h][i % 2] += e[i];
    w.low = transpose8(weights_scaled(e, scales, 0)), w.high = transpose8(weights_scaled(e + 2, scales, 1));
    return w;
#endif
    (void)scales;
    w.low = bf16_pair(exp2_approx(s[0] - x->m[h][0]), exp2_approx(s[1] - x->m[h][1]));
    w.high = bf16_pair(exp2_approx(s[2] - x->m[h][0]), exp2_approx(s[3] - x->m[h][1]));
    x->l[h][0] += bf16_low(w.low) + bf16_low(w.high), x->l[h][1] += bf16_high(w.low) + bf16_high(w.high);
    w.low = transpose8(w.low), w.high = transpose8(w.high);
    return w;
}

/* Attends to the 16 positions from `first` on. Those beyond limit[i] are not for row i. */
DEV void piece_attend(const struct short_worker *b, struct rows *x, const struct quad *k, const struct quad *v,
                      const struct piece_scales *scales, int first, const int *limit) {
    float s[BLOCK_HEADS][4];
    struct pair w[BLOCK_HEADS];
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++)
        s[h][0] = s[h][1] = s[h][2] = s[h][3] = 0;
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        UNROLL
        for (int h = 0; h < BLOCK_HEADS; h++)
            tile_mma(s[h], k[t], x->q[h][t].low, x->q[h][t].high);
    }
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++) {
        UNROLL
        for (int i = 0; i < 4; i++)
            s[h][i] = score_scaled(s[h][i], scales, i / 2);
        UNROLL
        for (int i = 0; i < 4; i++)
            if (first + b->w.lane / 4 + i / 2 * 8 > limit[i % 2]) s[h][i] = SCORE_NEVER;
        w[h] = scores_weigh(x, h, s[h], scales);
    }
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        UNROLL
        for (int h = 0; h < BLOCK_HEADS; h++)
            tile_mma(x->o[h][t], v[t], w[h].low, w[h].high);
    }
}

/* Loads a piece of the cache (docs/GLOSSARY.md). V of positions from `left` on is cleared: nobody has written them
 * before this launch, so they may be NaN, or may just be written. */
#if P_KV_FORM
DEV void past_load(const struct short_worker *b, struct quad *k, struct quad *v, struct piece_scales *scales,
                   const u8 *piece, int left) {
    const struct pair *from = (const struct pair *)piece + b->w.lane;
    const u32 *scale = (const u32 *)(piece + kv_scale_byte(M_HEAD_DIM, 0, 0)) + b->w.lane / 4;
    struct pair codes[2 * AT_TILES];
    UNROLL
    for (int t = 0; t < 2 * AT_TILES; t++)
        codes[t] = cached_load64(from + t * LANES);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float of_v = bits_float(cached_load32(scale + KV_POSITIONS + 8 * i));
        scales->k[i] = bits_float(cached_load32(scale + 8 * i));
        scales->v[i] = b->w.lane / 4 + 8 * i < left ? of_v : 0;
    }
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        k[t] = kv_operand(codes[t]);
        v[t] = kv_operand(value_trim(codes[AT_TILES + t], b->w.lane, left));
    }
}
#else
DEV void past_load(const struct short_worker *b, struct quad *k, struct quad *v, struct piece_scales *scales,
                   const u8 *piece, int left) {
    (void)scales;
    const struct quad *from = (const struct quad *)piece + b->w.lane;
    const int j = b->w.lane % 4 * 2;
    const u32 low = (j < left ? 0xffffu : 0) | (j + 1 < left ? 0xffff0000u : 0);
    const u32 high = (j + 8 < left ? 0xffffu : 0) | (j + 9 < left ? 0xffff0000u : 0);
    UNROLL
    for (int t = 0; t < AT_TILES; t++)
        k[t] = cached_load128(from + t * LANES), v[t] = cached_load128(from + (AT_TILES + t) * LANES);
    UNROLL
    for (int t = 0; t < AT_TILES; t++)
        v[t].x &= low, v[t].y &= low, v[t].z &= high, v[t].w &= high;
}

#endif

DEV void own_load(const struct short_worker *b, struct quad *k, struct quad *v, struct piece_scales *scales,
                  int kv_head, int run) {
#if P_KV_FORM
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int token = run * KV_POSITIONS + b->w.lane / 4 + 8 * i, have = token < ATOMS * ATOM_TOKENS;
        scales->k[i] = have ? b->w.s->kv_scale[kv_head][0][token] : 0;
        scales->v[i] = have ? b->w.s->kv_scale[kv_head][1][token] : 0;
    }
#else
    (void)scales;
#endif
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        k[t] = run_tiles(b->w.s->k, kv_head, run)[t * LANES + b->w.lane];
        v[t] = run_tiles(b->w.s->v, kv_head, run)[t * LANES + b->w.lane];
    }
}

/* Where the B operands of a q head and an atom lie: q, and later attention's result. */
DEV struct pair *head_operands(const struct short_worker *b, int head, int atom) {
    return b->w.s->q + (head * AT_TILES * ATOMS + atom) * LANES + b->w.lane;
}

/* Attends, for the heads from `head` on, to every `step`-th piece from `part` on. It asks for a piece's page while it
 * has the piece before. */
DEV void block_attend(const struct short_worker *b, struct rows *x, int head, int atom, int part, int step) {
    const struct decode_args *a = b->w.a;
    const int kv_head = head / (P_GROUP_HEADS / P_GROUP_KV_HEADS);
    const int past = (a->position + KV_POSITIONS - 1) / KV_POSITIONS, all = past + atom / 2 + 1;
    u8 *page = part < past ? kv_page(a, part) : 0;
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++) {
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            x->q[h][t] = head_operands(b, head + h, atom)[t * ATOMS * LANES];
    }
    NO_UNROLL
    for (int i = part; i < all; i += step) {
        const int own = i - past, token = atom * ATOM_TOKENS + b->w.lane % 4 * 2, first = own < 0 ? i : own;
        const int limit[2] = { own < 0 ? a->position - 1 : token, own < 0 ? a->position - 1 : token + 1 };
        struct quad k[AT_TILES], v[AT_TILES];
        struct piece_scales scales;
        const u8 *piece = kv_page_piece(page, cache_row(b, kv_head), i);
        if (i + step < past) page = kv_page(a, i + step);
        if (own < 0)
            past_load(b, k, v, &scales, piece, a->position - i * KV_POSITIONS);
        else
            own_load(b, k, v, &scales, kv_head, own);
        piece_attend(b, x, k, v, &scales, first * KV_POSITIONS, limit);
    }
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++)
        x->l[h][0] = xor_sum(x->l[h][0], 4, LANES), x->l[h][1] = xor_sum(x->l[h][1], 4, LANES);
}

DEV void rows_give(const struct short_worker *b, const struct rows *x, struct quad_float *to) {
    struct quad_float v;
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++, to += MERGE_QUADS) {
        UNROLL
        for (int t = 0; t < AT_TILES; t++) {
            v.x = x->o[h][t][0], v.y = x->o[h][t][1], v.z = x->o[h][t][2], v.w = x->o[h][t][3];
            to[t * LANES + b->w.lane] = v;
        }
        v.x = x->m[h][0], v.y = x->m[h][1], v.z = x->l[h][0], v.w = x->l[h][1];
        to[AT_TILES * LANES + b->w.lane] = v;
    }
}

DEV void rows_merge(const struct short_worker *b, struct rows *x, const struct quad_float *from) {
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++, from += MERGE_QUADS) {
        const struct quad_float ml = from[AT_TILES * LANES + b->w.lane];
        const float m[2] = { max_float(x->m[h][0], ml.x), max_float(x->m[h][1], ml.y) };
        const float mine[2] = { exp2_approx(x->m[h][0] - m[0]), exp2_approx(x->m[h][1] - m[1]) };
        const float other[2] = { exp2_approx(ml.x - m[0]), exp2_approx(ml.y - m[1]) };
        x->l[h][0] = x->l[h][0] * mine[0] + ml.z * other[0], x->l[h][1] = x->l[h][1] * mine[1] + ml.w * other[1];
        x->m[h][0] = m[0], x->m[h][1] = m[1];
        UNROLL
        for (int t = 0; t < AT_TILES; t++) {
            const struct quad_float v = from[t * LANES + b->w.lane];
            float *o = x->o[h][t];
            o[0] = o[0] * mine[0] + v.x * other[0], o[1] = o[1] * mine[1] + v.y * other[1];
            o[2] = o[2] * mine[0] + v.z * other[0], o[3] = o[3] * mine[1] + v.w * other[1];
        }
    }
}

/* Stores the finished rows where their q was, as B operands of out. */
DEV void rows_end(const struct short_worker *b, const struct rows *x, int head, int atom) {
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++) {
        const float f[2] = { rcp_approx(x->l[h][0]), rcp_approx(x->l[h][1]) };
        struct pair *to = head_operands(b, head + h, atom);
        UNROLL
        for (int t = 0; t < AT_TILES; t++) {
            const float *o = x->o[h][t];
            to[t * ATOMS * LANES].low = transpose8(bf16_pair(o[0] * f[0], o[1] * f[1]));
            to[t * ATOMS * LANES].high = transpose8(bf16_pair(o[2] * f[0], o[3] * f[1]));
        }
    }
}

/* Hands the rows over to the SMs that merge them. */
DEV void rows_publish(const struct short_worker *b, struct rows *x, int head, int atom) {
    UNROLL
    for (int h = 0; h < BLOCK_HEADS; h++)
        partial_publish(b, head + h, atom, x->o[h], x->m[h], x->l[h]);
}

/* How many warps share a block's positions: as many as there are for it, but no more than there are pieces, nor than
 * there is room for what they hand over. */
DEV int block_parts(const struct short_worker *b, int blocks) {
    const int all =
        (b->w.a->position + KV_POSITIONS - 1) / KV_POSITIONS + (b->n_tokens + KV_POSITIONS - 1) / KV_POSITIONS;
    const int pieces = (all + SHARES - 1) / SHARES;
    const int warps = P_WARPS / blocks, room = 1 + 2 * ALL_PARTS / (blocks * BLOCK_HEADS * MERGE_QUADS);
    const int parts = warps < room ? warps : room;
    return parts < pieces ? parts : pieces;
}

/* attention: all of the group's heads. A warp has a block, or a part of a block's positions. With SHORT_FAR these are
 * positions of this SM's share.
 *   in     the group's q, k, v words; the cache
 *   out    in q: the result, as B operands of out; in the cache: K and V of the chunk */
DEV void attention_read(struct short_worker *b) {
    const int blocks = P_GROUP_HEADS / BLOCK_HEADS * b->atoms, parts = block_parts(b, blocks);
    const int block = b->w.warp % blocks, part = b->w.warp / blocks;
    const int head = block / b->atoms * BLOCK_HEADS, atom = block % b->atoms, stride = BLOCK_HEADS * MERGE_QUADS;
    struct quad_float *between = b->w.s->part[0] + block * stride;
    struct rows x;
    rows_read(b);
    rows_begin(&x); /* set on all paths, or its registers would be taken through the whole kernel */
    consumers_sync();
    const int share = SHORT_FAR ? b->w.member : 0;
    if (part < parts) block_attend(b, &x, head, atom, part * SHARES + share, parts * SHARES);
    if (part > 0 && part < parts) rows_give(b, &x, between + (part - 1) * blocks * stride);
    if (parts > 1) consumers_sync();
    if (part == 0) {
        NO_UNROLL
        for (int i = 1; i < parts; i++)
            rows_merge(b, &x, between + (i - 1) * blocks * stride);
        if (SHORT_FAR)
            rows_publish(b, &x, head, atom);
        else
            rows_end(b, &x, head, atom);
    }
    if (SHORT_FAR) {
        pairs_merge(b);
        attended_take(b);
    }
    consumers_sync();
}

#endif
