/* attention: the group's q heads attend to its KV heads (group, word, piece: docs/GLOSSARY.md).
 *   reads    the group's q, k and v words, X_QKV; K and V of past positions through the KV ring
 *   writes   bf16 pairs of the q heads in block_shared.attention; k and v of the current position in the cache
 *
 * Each SM of the group computes all of it. From position args.split_from on, each SM takes every P_GROUP_SMS-th
 * piece of 16 positions instead, and the SMs exchange their partial results: phase_attention_merge.cuh.
 *
 * A partial result is m, the largest score; l, the sum of the weights; and o, the weighted sum of V. Scores are kept
 * in base 2. A warp attends to one KV head. The q heads of that KV head are the columns of the warp's products; K and
 * the transposed V are the A operands. The current position's k and v do not come through memory: that position is
 * one more partial result, with m = q.k, l = 1 and o = v. Norm and scale of q are applied to the scores as a factor,
 * so the products wait for no sum over a head.
 *
 * The block meets at three barriers: at A q, k and v are in shared memory, at B the warps' partial results, at C the
 * result. One buffer of scratch is enough: a warp writes it again only for the next layer's words, and those cannot
 * come before every warp of this block has passed C and handed in its share of out.
 *
 * `nth` is the number of the layer among those that attend: the cache and the norms have only those. */
#ifndef REEL_KERNELS_PHASE_ATTENTION_CUH
#define REEL_KERNELS_PHASE_ATTENTION_CUH

#include "attention_math.cuh"
#include "kv_ring.cuh"
#include "mma.cuh"
#include "phase_attention_merge.cuh"
#include "profile.cuh"

enum {
    GATHER_ROWS = P_GROUP_HEADS + 2 * P_GROUP_KV_HEADS, /* of head_dim values each */
    ONE_ROW = GATHER_ROWS <= P_WARPS,                   /* no warp has more than one */
    GATE_ROWS = P_GROUP_GATE / M_HEAD_DIM,
    /* With more than 4 tiles of K the compiler spills on any target but sm_90. */
    EARLY_MOST = G_COMPUTE == 90 ? 8 : 4,
    /* Tiles of its first piece that a warp loads before q is there: of K, then of V. */
    EARLY_TILES = SPARE_REGISTERS < 96    ? 2
                  : AT_TILES < EARLY_MOST ? AT_TILES
                                          : EARLY_MOST,
    /* Rows of 64 values leave 16 registers more than rows of 128. */
    EARLY_V = SPARE_REGISTERS < 112 + 4 * AT_TILES || G_COMPUTE != 90 ? 0 : EARLY_TILES,
    V_ROOM = EARLY_V ? EARLY_V : 1,
    WHOLE_EARLY = EARLY_V == AT_TILES /* the piece's slot is free again before q is there */
};

/* ---- rotation ---- */

/* Return the two words of pair j of a head's row. A pair that rotates, j < TURNING, has dims d and d + 1 and the two
 * that lie M_ROTARY / 2 further on. The other pairs have the rest of the dims, in two runs. */
DEV int word_low(int j) { return TURNING == ROPE_WORDS || j < TURNING ? j : j + TURNING; }
DEV int word_high(int j) { return TURNING == ROPE_WORDS || j >= TURNING ? j + ROPE_WORDS : j + TURNING; }

/* The warps share the rows of the group's words: k rows first, then v rows, then q rows. The last warp has the first
 * row, because the first warps have pieces to attend to. */
DEV int gather_row(const struct worker *w) { return P_WARPS - 1 - w->warp; }
DEV int row_is_v(int row) { return row >= P_GROUP_KV_HEADS && row < 2 * P_GROUP_KV_HEADS; }
/* Returns the number of such a row among the words, which are in the order q rows, gates, k rows, v rows. */
DEV int row_words(int row) {
    return row < 2 * P_GROUP_KV_HEADS ? P_GROUP_HEADS + GATE_ROWS + row : row - 2 * P_GROUP_KV_HEADS;
}

/* Loads this lane's gains of a q or k row; they are 1 where there is no norm. */
DEV void qk_gain_load(const struct worker *w, int nth, int row, float (*gain)[4]) {
    const float *from = w->a->qkv_vectors + (2 * nth + (row < P_GROUP_KV_HEADS)) * M_HEAD_DIM;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane, have = M_QK_NORM && j < ROPE_WORDS;
        const int low = 2 * word_low(j), high = 2 * word_high(j);
        gain[n][0] = have ? const_loadf(from + low) : 1;
        gain[n][1] = have ? const_loadf(from + low + 1) : 1;
        gain[n][2] = have ? const_loadf(from + high) : 1;
        gain[n][3] = have ? const_loadf(from + high + 1) : 1;
    }
}

/* Asks for layer nth's gains far ahead: they come from memory, behind the weights' stream. */
DEV void attention_gains(struct worker *w, int nth) {
    if (ONE_ROW && nth < M_LAYERS - M_DELTA && gather_row(w) < GATHER_ROWS)
        qk_gain_load(w, nth, gather_row(w), w->qk_gain);
}

/* The cosines and sines of a position. */
#if P_OVERLAID
enum { COSINES = M_ROTARY / 2 }; /* the rest of a head does not rotate: cosine 1, sine 0 */
DEV float *cosines_of(const struct worker *w) { return w->s->cos_sin[w->column]; }
#else
enum { COSINES = M_HEAD_DIM / 2 };
DEV float *cosines_of(const struct worker *w) { return attention_of(w)->cos_sin; }
#endif

/* Makes entry i of them for the column at hand. */
DEV void cosine_make(const struct worker *w, int position, int i) {
    float *table = cosines_of(w);
    if (i < M_ROTARY / 2)
        sine_cosine((float)position * const_loadf(w->a->rope + i), table + COSINES + i, table + i);
    else
        table[i] = 1, table[COSINES + i] = 0;
}

DEV void attention_token_start(struct worker *w, int position) {
    NO_UNROLL
    for (int i = w->warp * LANES + w->lane; i < COSINES; i += CONSUMER_THREADS)
        cosine_make(w, position, i);
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++)
        w->qk_gain[n][0] = w->qk_gain[n][1] = w->qk_gain[n][2] = w->qk_gain[n][3] = 0;
    attention_gains(w, 0);
}

/* The factors that apply gains and rotation to a word and its partner: low' = low a - high b and
 * high' = high c + low d, for each of a word's two dims. */
struct rotation {
    float a[2], b[2], c[2], d[2];
};

DEV void rotation_make(const struct worker *w, float (*gain)[4], struct rotation *r) {
    const float *table = cosines_of(w);
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int word = n * LANES + w->lane, j = word < ROPE_WORDS ? word : 0;
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int at = 2 * j + i, turns = !P_OVERLAID || at < COSINES;
            const float cosine = turns ? table[at] : 1, sine = turns ? table[COSINES + at] : 0;
            r[n].a[i] = gain[n][i] * cosine, r[n].b[i] = gain[n][2 + i] * sine;
            r[n].c[i] = gain[n][2 + i] * cosine, r[n].d[i] = gain[n][i] * sine;
        }
    }
}

DEV void rotate(const struct rotation *r, u32 low, u32 high, float y[4]) {
    y[0] = bf16_low(low) * r->a[0] - bf16_low(high) * r->b[0];
    y[1] = bf16_high(low) * r->a[1] - bf16_high(high) * r->b[1];
    y[2] = bf16_low(high) * r->c[0] + bf16_low(low) * r->d[0];
    y[3] = bf16_high(high) * r->c[1] + bf16_high(low) * r->d[1];
}

DEV float square_sum(u32 low, u32 high) {
    return (bf16_low(low) * bf16_low(low) + bf16_high(low) * bf16_high(low)) +
           (bf16_low(high) * bf16_low(high) + bf16_high(high) * bf16_high(high));
}

/* ---- gathering q, k, v ---- */

DEV void row_poll(struct worker *w, const u64 *from, u32 (*x)[2]) {
    u64 v[ROPE_TURNS][2];
    u32 polls = 0;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane;
        v[n][0] = v[n][1] = word_make(0, w->epoch);
        if (j < ROPE_WORDS) v[n][0] = word_load(from + word_low(j)), v[n][1] = word_load(from + word_high(j));
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int n = 0; n < ROPE_TURNS; n++)
            off |= word_off(v[n][0], w->epoch) | word_off(v[n][1], w->epoch);
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_QKV, w->epoch, (u32)(v[0][0] >> 32));
        UNROLL
        for (int n = 0; n < ROPE_TURNS; n++) {
            const int j = n * LANES + w->lane;
            if (!word_is(v[n][0], w->epoch)) v[n][0] = word_load(from + word_low(j));
            if (!word_is(v[n][1], w->epoch)) v[n][1] = word_load(from + word_high(j));
        }
    }
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++)
        x[n][0] = (u32)v[n][0], x[n][1] = (u32)v[n][1];
}

/* Returns the place of word i in a stored q row. The words of two tiles that a lane takes as B operand are neighbours
 * there. */
DEV u32 q_place(u32 i) { return i / 16 * 16 + i % 4 * 4 + i / 8 % 2 * 2 + i / 4 % 2; }

/* Rotates and stores a q head, or a k row as head P_GROUP_HEADS and on; leaves sums of its squares in q_ssq. */
DEV void q_store(struct worker *w, int head, const struct rotation *r, u32 (*x)[2]) {
    struct attention_shared *at = attention_of(w);
    float sum = 0;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane;
        float y[4];
        if (j >= ROPE_WORDS) continue;
        rotate(r + n, x[n][0], x[n][1], y);
        at->q[head][q_place((u32)word_low(j))] = bf16_pair(y[0], y[1]);
        at->q[head][q_place((u32)word_high(j))] = bf16_pair(y[2], y[3]);
        if (M_QK_NORM) sum += square_sum(x[n][0], x[n][1]);
    }
    if (M_QK_NORM) {
        sum = xor_sum(sum, AT_SSQ, LANES);
        if (w->lane < AT_SSQ) at->q_ssq[head][w->lane] = sum;
    }
}

#if P_KV_FORM
/* The current position's own k and v are rounded to the codes that later tokens will see, so that what a token is does
 * not depend on who evaluated it. In q and kv stand codes, as bf16, and their scales stand where k's sums of squares
 * would: its norm is in its codes already. */
DEV float *own_scale(struct attention_shared *at, int kv_head, int is_v) {
    return at->q_ssq[P_GROUP_HEADS + kv_head] + is_v;
}

/* x: a row of words; it becomes codes. The row's scale goes to `scale`; given: as in kv_scale_of. */
DEV void row_quantise(const struct worker *w, u32 (*x)[2], float given, float *scale) {
    u32 largest = 0;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++)
        if (n * LANES + w->lane < ROPE_WORDS) largest = kv_largest(kv_largest(largest, x[n][0]), x[n][1]);
    const struct kv_scale s = kv_scale_of(kv_largest_of(largest, 1, LANES), given);
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        UNROLL
        for (int i = 0; i < 2; i++)
            x[n][i] = kv_codes_bf16(kv_codes_of(x[n][i], s));
    }
    if (w->lane == 0) *scale = s.scale;
}

/* Keeps a k row or a v row as codes. */
DEV void own_row_keep(struct worker *w, int nth, int row, const struct rotation *r, u32 (*x)[2]) {
    struct attention_shared *at = attention_of(w);
    const int is_v = row_is_v(row), kv_head = is_v ? row - P_GROUP_KV_HEADS : row;
    float sum = 0;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++)
        if (M_QK_NORM && n * LANES + w->lane < ROPE_WORDS) sum += square_sum(x[n][0], x[n][1]);
    const float norm = M_QK_NORM && !is_v ? rsqrt_approx(xor_sum(sum, 1, LANES) * (1.0f / M_HEAD_DIM) + M_RMS_EPS) : 1;
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        float y[4];
        rotate(r + n, x[n][0], x[n][1], y);
        if (is_v) continue;
        x[n][0] = bf16_pair(y[0] * norm, y[1] * norm), x[n][1] = bf16_pair(y[2] * norm, y[3] * norm);
    }
    const float given = kv_given(w->a->qkv_vectors, nth, w->group * P_GROUP_KV_HEADS + kv_head, is_v);
    row_quantise(w, x, given, own_scale(at, kv_head, is_v));
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane;
        u32 *to = is_v ? at->kv[row] : at->q[P_GROUP_HEADS + kv_head];
        if (j >= ROPE_WORDS) continue;
        to[is_v ? (u32)word_low(j) : q_place((u32)word_low(j))] = x[n][0];
        to[is_v ? (u32)word_high(j) : q_place((u32)word_high(j))] = x[n][1];
    }
}
#endif

/* Stores what came of a row. */
DEV void row_keep(struct worker *w, int nth, int row, const struct rotation *r, u32 (*x)[2]) {
#if P_KV_FORM
    if (row < 2 * P_GROUP_KV_HEADS) {
        own_row_keep(w, nth, row, r, x);
        return;
    }
#endif
    (void)nth;
    if (!row_is_v(row)) q_store(w, row < P_GROUP_KV_HEADS ? P_GROUP_HEADS + row : row - 2 * P_GROUP_KV_HEADS, r, x);
    if (row < 2 * P_GROUP_KV_HEADS) {
        u32 *to = attention_of(w)->kv[row];
        UNROLL
        for (int n = 0; n < ROPE_TURNS; n++) {
            const int j = n * LANES + w->lane;
            if (j < ROPE_WORDS) to[word_low(j)] = x[n][0], to[word_high(j)] = x[n][1];
        }
    }
}

DEV void attention_gather(struct worker *w, int nth, const struct rotation *r) {
    NO_UNROLL
    for (int row = gather_row(w); row < GATHER_ROWS; row += P_WARPS) {
        struct rotation reloaded[ROPE_TURNS];
        u32 x[ROPE_TURNS][2];
        if (!ONE_ROW) {
            float gain[ROPE_TURNS][4];
            qk_gain_load(w, nth, row, gain);
            rotation_make(w, gain, reloaded), r = reloaded;
        }
        row_poll(w, qkv_words(w) + row_words(row) * AT_WORDS, x);
        row_keep(w, nth, row, r, x);
    }
}

/* What a norm's scale is one over the root of, given the sum of a row's squares: of q together with the scale of
 * scores, and of k. */
DEV float q_squares(float sum) { return sum + M_HEAD_DIM * M_RMS_EPS; }
DEV float k_squares(float sum) { return sum * (1.0f / M_HEAD_DIM) + M_RMS_EPS; }

/* Products with a stored q become scores in base 2 by this factor: norm and scale of q. */
DEV float q_factor(const struct attention_shared *at, int head) {
    if (!M_QK_NORM) return LOG2_E * rsqrt_approx((float)M_HEAD_DIM);
    return LOG2_E * rsqrt_approx(q_squares(sum_run(at->q_ssq[head], AT_SSQ)));
}

/* Products with a stored k need this factor besides: the norm of k, or the scale of its codes. */
DEV float k_factor(const struct attention_shared *at, int kv_head) {
    if (P_KV_FORM) return at->q_ssq[P_GROUP_HEADS + kv_head][0]; /* own_scale */
    if (!M_QK_NORM) return 1;
    return rsqrt_approx(k_squares(sum_run(at->q_ssq[P_GROUP_HEADS + kv_head], AT_SSQ)));
}

#if P_FOLLOWS
/* ---- columns of one session (columns_attention.cuh) ---- */

/* The columns that follow others, a bit each. */
DEV u32 columns_following(const struct worker *w) { return w->all->follows & w->running; }

/* Whether the column at hand has a follower, and how many columns right before it are of its session. */
DEV int column_followed(const struct worker *w) { return (int)(columns_following(w) >> w->column >> 1 & 1); }
DEV int columns_before(const struct worker *w) {
    int n = 0;
    NO_UNROLL
    while (columns_following(w) >> (w->column - n) & 1) /* the first column follows none */
        n++;
    return n;
}

/* Turns a key of the column at hand, which row_keep has just kept as it came, into what the cache will hold of it. x:
 * its words. Codes are that already. */
DEV void key_round(struct worker *w, int kv_head, const struct rotation *r, u32 (*x)[2]) {
    if (P_KV_FORM) return;
    warp_sync(); /* the sums of squares are other lanes' */
    const float norm = k_factor(attention_of(w), kv_head);
    u32 *to = attention_of(w)->kv[kv_head];
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane;
        float y[4];
        if (j >= ROPE_WORDS) continue;
        rotate(r + n, x[n][0], x[n][1], y);
        to[word_low(j)] = bf16_pair(y[0] * norm, y[1] * norm), to[word_high(j)] = bf16_pair(y[2] * norm, y[3] * norm);
    }
}
#endif

/* ---- the current position ---- */

/* Returns the piece of the cache that the current position belongs to. */
DEV u8 *own_piece(const struct worker *w, int nth, int kv_head, int position) {
    const int row = kv_row(w, nth) + kv_head;
    return kv_piece(w->a, row, position / KV_POSITIONS);
}

/* Whether this SM writes the current position's rows: one SM of the group does. */
DEV int keeps_own(const struct worker *w, int position) {
#if P_COLUMNS > 1
    if (!(w->running >> w->column & 1)) return 0;
    if (!(w->splits >> w->column & 1)) return 1; /* it is the only one to attend */
#endif
#if STAGED
    position += w->column; /* sessions that began together would all have the same SM write */
#endif
    return position % P_GROUP_SMS == w->member;
}

/* q_factor of the KV head's q heads, in the first lanes, and behind them k_factor. */
DEV float own_factor(const struct attention_shared *at, int kv_head, int lane) {
    const int of_q = lane < AT_HEADS, head = kv_head * AT_HEADS + (of_q ? lane : 0);
    if (!M_QK_NORM || P_KV_FORM) return of_q ? q_factor(at, head) : k_factor(at, kv_head);
    const float sum = sum_run(at->q_ssq[of_q ? head : P_GROUP_HEADS + kv_head], AT_SSQ);
    const float root = rsqrt_approx(of_q ? q_squares(sum) : k_squares(sum));
    return of_q ? LOG2_E * root : root;
}

/* Makes the current position's scores with the q heads. k is row 0 of an A operand, which wants a row's words in the
 * order in which a B operand wants a column's. One warp alone comes here, and with one column the others wait for it.
 * So there it has few instructions (BRIEF): k stands in all upper rows, of which the first is read, and each factor is
 * made once. Programs for several columns are slower so. */
DEV void own_scores(struct worker *w, int kv_head) {
    enum { BRIEF = P_COLUMNS == 1 };
    struct attention_shared *at = attention_of(w);
    const int lane = w->lane, head = kv_head * AT_HEADS;
    const struct quad *q = (const struct quad *)at->q[head + lane / 4 % AT_HEADS] + lane % 4;
    const struct quad *k = (const struct quad *)at->q[P_GROUP_HEADS + kv_head] + lane % 4;
    const u32 row = BRIEF || lane < 4 ? ~0u : 0;
    const float factors = BRIEF ? own_factor(at, kv_head, lane) : 0;
    float c[4][4];
    UNROLL
    for (int i = 0; i < 4; i++)
        c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        const struct quad x = k[t / 2 * 4], b = q[t / 2 * 4];
        struct quad a = { 0, 0, 0, 0 };
        a.x = (t % 2 ? x.z : x.x) & row, a.z = (t % 2 ? x.w : x.y) & row;
        tile_mma(c[t & 3], a, t % 2 ? b.z : b.x, t % 2 ? b.w : b.y);
        if (t % 4 == 3) loads_stay();
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int column = lane % 4 * 2 + i, of = column % AT_HEADS;
        const float score = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
        const float factor = BRIEF ? shuffle_float(factors, of) * shuffle_float(factors, AT_HEADS)
                                   : q_factor(at, head + of) * k_factor(at, kv_head);
        if (lane < 4 && column < AT_HEADS) at->m_own[head + column] = score * factor;
    }
}

#if P_KV_FORM
/* Stores the current position's codes of k or v in the cache, and their scale. One SM of the group does. A lane's 4
 * bytes of k have dims d, d + 8, d + 1 and d + 9; each byte of v is another dim's. */
DEV void own_codes(struct worker *w, int nth, int position, int kv_head, int is_v) {
    struct attention_shared *at = attention_of(w);
    if (!keeps_own(w, position)) return;
    const u32 *from = is_v ? at->kv[P_GROUP_KV_HEADS + kv_head] : at->q[P_GROUP_HEADS + kv_head];
    u8 *piece = own_piece(w, nth, kv_head, position);
    NO_UNROLL
    for (int j = w->lane; j < AT_WORDS / 2; j += LANES) {
        const u32 word = (u32)(j / 4 * 8 + j % 4), dim = 2 * word;
        const u32 low = kv_codes_again(from[is_v ? word : q_place(word)]);
        const u32 high = kv_codes_again(from[is_v ? word + 4 : q_place(word + 4)]);
        if (!is_v) {
            plain_store32((u32 *)(piece + kv_k_byte(P_KV_FORM, position, (int)dim)), low | high << 8);
            continue;
        }
        UNROLL
        for (int i = 0; i < 2; i++) {
            plain_store8(piece + kv_v_byte(P_KV_FORM, M_HEAD_DIM, position, (int)dim + i), low >> 16 * i);
            plain_store8(piece + kv_v_byte(P_KV_FORM, M_HEAD_DIM, position, (int)dim + 8 + i), high >> 16 * i);
        }
    }
    if (w->lane == 0)
        plain_store32((u32 *)(piece + kv_scale_byte(M_HEAD_DIM, is_v, position)),
                      float_bits(*own_scale(at, kv_head, is_v)));
}
#else
#if P_FOLLOWS
/* As own_key, where key_round has made the row. */
DEV void own_key_rounded(struct worker *w, int nth, int position, int kv_head) {
    const u32 *k = attention_of(w)->kv[kv_head];
    u8 *piece = own_piece(w, nth, kv_head, position);
    NO_UNROLL
    for (int j = w->lane; j < AT_WORDS; j += LANES)
        plain_store32((u32 *)(piece + kv_k_byte(0, position, 2 * j)), k[j]);
}
#endif

/* Stores the current position's k row in the cache, rotated and normed. One SM of the group does. */
DEV void own_key(struct worker *w, int nth, int position, int kv_head) {
    const struct attention_shared *at = attention_of(w);
    const float norm = k_factor(at, kv_head);
    struct rotation r[ROPE_TURNS];
    float gain[ROPE_TURNS][4];
    if (!keeps_own(w, position)) return;
#if P_FOLLOWS
    if (column_followed(w)) {
        own_key_rounded(w, nth, position, kv_head);
        return;
    }
#endif
    if (!ONE_ROW || P_COLUMNS > 1) qk_gain_load(w, nth, 0, gain);
    rotation_make(w, ONE_ROW && P_COLUMNS == 1 ? w->qk_gain : gain, r);
    u8 *piece = own_piece(w, nth, kv_head, position);
    UNROLL
    for (int n = 0; n < ROPE_TURNS; n++) {
        const int j = n * LANES + w->lane;
        float y[4];
        if (j >= ROPE_WORDS) continue;
        const int low = word_low(j), high = word_high(j);
        rotate(r + n, at->kv[kv_head][low], at->kv[kv_head][high], y);
        plain_store32((u32 *)(piece + kv_k_byte(0, position, 2 * low)), bf16_pair(y[0] * norm, y[1] * norm));
        plain_store32((u32 *)(piece + kv_k_byte(0, position, 2 * high)), bf16_pair(y[2] * norm, y[3] * norm));
    }
}

DEV void own_value(struct worker *w, int nth, int position, int kv_head) {
    const u32 *v = attention_of(w)->kv[P_GROUP_KV_HEADS + kv_head];
    u8 *piece = own_piece(w, nth, kv_head, position);
    if (!keeps_own(w, position)) return;
    NO_UNROLL
    for (int j = w->lane; j < AT_WORDS; j += LANES) {
        plain_store16((u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, position, 2 * j)), (u16)v[j]);
        plain_store16((u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, position, 2 * j + 1)), (u16)(v[j] >> 16));
    }
}

#endif

DEV void own_attend(struct worker *w) {
    NO_UNROLL
    for (int row = gather_row(w); row < P_GROUP_KV_HEADS; row += P_WARPS)
        own_scores(w, row);
}

/* Keeps a k row, or a v row, of the current position. */
DEV void own_row(struct worker *w, int nth, int position, int row) {
#if P_KV_FORM
    own_codes(w, nth, position, row % P_GROUP_KV_HEADS, row_is_v(row));
#else
    if (row_is_v(row))
        own_value(w, nth, position, row - P_GROUP_KV_HEADS);
    else
        own_key(w, nth, position, row);
#endif
}

DEV void own_keep(struct worker *w, int nth, int position) {
    NO_UNROLL
    for (int row = gather_row(w); row < 2 * P_GROUP_KV_HEADS; row += P_WARPS)
        own_row(w, nth, position, row);
}

/* ---- past positions ---- */

/* Clears positions from `left` on in a slot's tiles of V. Each lane clears what it will load. */
DEV void piece_trim(KV_TILE *tiles, int lane, int left) {
    NO_UNROLL
    for (int i = AT_TILES; i < 2 * AT_TILES; i++)
        tiles[i * LANES] = value_trim(tiles[i * LANES], lane, left);
    fence_slot();
}

/* A piece's first tiles: as many as a warp has registers for before q is there. */
struct early {
    KV_TILE k[EARLY_TILES], v[V_ROOM];
    struct piece_scales scales; /* with WHOLE_EARLY; else they are still in the slot when they are needed */
};

#if P_FOLLOWS
/* Writes one row of K and V into a slot of the KV ring: that of a column whose rows this block has gathered. piece: the
 * slot; row: of the piece. All lanes call. */
DEV void piece_row_write(struct attention_shared *at, u8 *piece, int row, int kv_head, int lane) {
#if P_KV_FORM
    const u32 *k = at->q[P_GROUP_HEADS + kv_head], *v = at->kv[P_GROUP_KV_HEADS + kv_head];
    NO_UNROLL
    for (int j = lane; j < AT_WORDS / 2; j += LANES) {
        const u32 word = (u32)(j / 4 * 8 + j % 4);
        const int dim = 2 * (int)word;
        const u32 low = kv_codes_again(v[word]), high = kv_codes_again(v[word + 4]);
        *(u32 *)(piece + kv_k_byte(P_KV_FORM, row, dim)) =
            kv_codes_again(k[q_place(word)]) | kv_codes_again(k[q_place(word + 4)]) << 8;
        UNROLL
        for (int i = 0; i < 2; i++) {
            piece[kv_v_byte(P_KV_FORM, M_HEAD_DIM, row, dim + i)] = (u8)(low >> 16 * i);
            piece[kv_v_byte(P_KV_FORM, M_HEAD_DIM, row, dim + 8 + i)] = (u8)(high >> 16 * i);
        }
    }
    if (lane < 2) *(float *)(piece + kv_scale_byte(M_HEAD_DIM, lane, row)) = *own_scale(at, kv_head, lane);
#else
    const u32 *k = at->kv[kv_head], *v = at->kv[P_GROUP_KV_HEADS + kv_head];
    NO_UNROLL
    for (int j = lane; j < AT_WORDS; j += LANES) {
        *(u32 *)(piece + kv_k_byte(0, row, 2 * j)) = k[j];
        *(u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, row, 2 * j)) = (u16)v[j];
        *(u16 *)(piece + kv_v_byte(0, M_HEAD_DIM, row, 2 * j + 1)) = (u16)(v[j] >> 16);
    }
#endif
}

/* Completes the piece in the slot at hand, whose copy has landed: its rows of the positions that the columns before
 * make in this pass are written over what the copy found. left: kv_left of the piece, so the column at hand would be
 * row `left` of it. */
DEV void piece_complete(const struct worker *w, int left) {
    const int before = columns_before(w), rows = left < KV_POSITIONS ? left : KV_POSITIONS;
    int row = left > before ? left - before : 0;
    if (row >= rows) return;
    const int lane = opaque(w->lane) & (LANES - 1); /* nothing of this is worth a register elsewhere */
    NO_UNROLL
    for (; row < rows; row++)
        piece_row_write(&w->s->ATTENTION_AT[w->column - (left - row)], (u8 *)(kv_tiles(w) - w->lane), row,
                        w->warp % P_GROUP_KV_HEADS, lane);
    fence_slot();
    warp_sync();
}
#endif

#if KV_DIGITS
#include "attention_digits.cuh"
#else

/* The q heads: from `first` on. column: this lane's. In a share (columns_share.cuh) q heads of several columns of one
 * session stand side by side, those of the first in `at`. */
struct asked {
    const struct attention_shared *at;
    const u32 *column;
    int first;
#if TOGETHER
    int from; /* how many q heads stand before those of this product */
    int last; /* how many columns the share has besides the first */
#endif
};
DEV struct asked asked_make(const struct attention_shared *at, int first, int q_at, int lane) {
#if TOGETHER
    const struct asked q = { at, at->q[0] + q_at, first, 0, 0 };
#else
    const struct asked q = { at, at->q[0] + q_at, first };
#endif
    return (void)lane, q;
}

#if TOGETHER
/* What products with a column become scores by, and how many of a piece's positions count for the column, where `left`
 * count for the share's last one. Columns behind the last q head repeat heads of the last. */
DEV int asked_column(const struct asked *q, int column) {
    const int at = (q->from + column) / AT_HEADS;
    return at < q->last ? at : q->last;
}
DEV float asked_factor(const struct asked *q, int column) {
    return q_factor(q->at + asked_column(q, column), q->first + (q->from + column) % AT_HEADS);
}
DEV int asked_left(const struct asked *q, int column, int left) { return left - (q->last - asked_column(q, column)); }
#else
DEV float asked_factor(const struct asked *q, int column) { return q_factor(q->at, q->first + column % AT_HEADS); }
DEV int asked_left(const struct asked *q, int column, int left) { return (void)q, (void)column, left; }
#endif

/* The factor of the lane's column i of a product. With one column each lane makes that of one head, `mine`, for others.
 */
DEV float asked_share(const struct asked *q, int lane) { return P_COLUMNS == 1 ? asked_factor(q, lane) : 0; }
DEV float asked_shared(const struct asked *q, float mine, int column) {
    return P_COLUMNS > 1 ? asked_factor(q, column) : shuffle_float(mine, column % AT_HEADS);
}

/* One warp's online softmax. A lane has columns 2 (lane % 4) and 2 (lane % 4) + 1, as in the products' results. */
struct attended {
    float m[2], l[4], o[AT_TILES][4];
};

/* Multiplies a piece's 16 rows with the q columns. s: the products of rows lane / 4 and lane / 4 + 8. `early` holds the
 * first n_early tiles; q is this lane's column. `chains` sums run side by side, and as many tiles are loaded at a
 * time. */
DEV void piece_scores(float s[4], const KV_TILE *early, int n_early, int chains, const KV_TILE *tiles, const u32 *q) {
    float c[4][4];
    UNROLL
    for (int i = 0; i < 4; i++)
        c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
    UNROLL
    for (int first = 0; first < AT_TILES; first += chains) {
        struct quad b[2];
        UNROLL
        for (int i = 0; i < chains; i += 2)
            if (first + i < AT_TILES) b[i / 2] = *(const struct quad *)(q + (first + i) / 2 * 16);
        UNROLL
        for (int i = 0; i < chains; i++) {
            const int t = first + i;
            if (t >= AT_TILES) continue;
            tile_mma(c[i], kv_operand(t < n_early ? early[t] : tiles[t * LANES]), i % 2 ? b[i / 2].z : b[i / 2].x,
                     i % 2 ? b[i / 2].w : b[i / 2].y);
        }
        loads_stay(); /* the next ones arrive while these are multiplied */
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        s[i] = chains == 4 ? (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]) : c[0][i] + c[1][i];
}

/* o += V p; `early` holds the first n_early tiles of V. */
DEV void piece_values(float (*o)[4], const KV_TILE *early, int n_early, const KV_TILE *tiles, u32 b0, u32 b1) {
    UNROLL
    for (int i = 0; i < AT_TILES; i++) {
        tile_mma(o[i], kv_operand(i < n_early ? early[i] : tiles[i * LANES]), b0, b1);
        if (i >= n_early && i % 2) loads_stay();
    }
}

/* Adds a piece, whose slot is `tiles`, to r. Its first `left` positions count; V is trimmed already. fresh: this is the
 * warp's first piece. early: e holds its first tiles. */
DEV void piece_attend(const struct worker *w, struct attended *r, int fresh, int early, const struct early *e,
                      const KV_TILE *tiles, const struct asked *q, int left) {
    const int lane = w->lane;
    const struct quad ones = { 0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u };
    struct piece_scales scales = e->scales;
    float s[4], f[2], factor[2];
    int count[2];
    if (!early || !WHOLE_EARLY) piece_scales_read(&scales, tiles, lane, left);
    piece_scores(s, e->k, early ? EARLY_TILES : 0, fresh || EARLY_V ? 4 : 2, tiles, q->column);
    const float mine = asked_share(q, lane);
    UNROLL
    for (int i = 0; i < 2; i++)
        factor[i] = asked_shared(q, mine, lane % 4 * 2 + i), count[i] = asked_left(q, lane % 4 * 2 + i, left);
    UNROLL
    for (int i = 0; i < 4; i++)
        s[i] =
            lane / 4 + i / 2 * 8 < count[i & 1] ? score_scaled(s[i] * factor[i & 1], &scales, i / 2) : ATTENTION_NEVER;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float top = xor_max(max_float(s[i], s[i + 2]), 4, LANES);
        const float m = fresh ? top : max_float(r->m[i], top);
        f[i] = fresh ? 0 : exp2_approx(r->m[i] - m);
        r->m[i] = m;
        s[i] = exp2_approx(s[i] - m), s[i + 2] = exp2_approx(s[i + 2] - m);
    }
    const u32 b0 = transpose8(bf16_pair(s[0], s[1])), b1 = transpose8(bf16_pair(s[2], s[3]));
    const u32 v0 = P_KV_FORM ? transpose8(weights_scaled(s, &scales, 0)) : b0;
    const u32 v1 = P_KV_FORM ? transpose8(weights_scaled(s + 2, &scales, 1)) : b1;
    UNROLL
    for (int i = 0; i < 4; i++) {
        r->l[i] = fresh ? 0 : r->l[i] * f[i & 1];
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            r->o[t][i] = fresh ? 0 : r->o[t][i] * f[i & 1];
    }
    piece_values(r->o, e->v, early ? EARLY_V : 0, tiles + AT_TILES * LANES, v0, v1);
    tile_mma(r->l, ones, b0, b1); /* every row is the sum of the weights as rounded to bf16 */
}

/* Returns a value that depends on all products with a piece; kv_give wants one. */
DEV u32 attended_seen(const struct attended *r) {
    u32 seen = 0;
    UNROLL
    for (int t = 0; t < AT_TILES; t++)
        seen ^= float_bits(r->o[t][0]);
    return seen;
}

/* Stores o of the lane's column i of a product. */
DEV void attended_column_store(const struct attended *r, int i, float *o) {
    UNROLL
    for (int t = 0; t + 1 < AT_TILES; t += 2) {
        struct quad_float v;
        v.x = r->o[t][i], v.y = r->o[t][i + 2];
        v.z = r->o[t + 1][i], v.w = r->o[t + 1][i + 2];
        *(struct quad_float *)(o + 2 * t) = v;
    }
    if (AT_TILES % 2) {
        o[2 * AT_TILES - 2] = r->o[AT_TILES - 1][i];
        o[2 * AT_TILES - 1] = r->o[AT_TILES - 1][i + 2];
    }
}

/* Stores the warp's partial results in shared memory. */
DEV void attended_store(const struct worker *w, struct attended *r) {
    struct attention_shared *at = attention_of(w);
    const int first = w->warp % P_GROUP_KV_HEADS * AT_HEADS, part = part_of(w) / P_GROUP_KV_HEADS;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int column = w->lane % 4 * 2 + i;
        if (column >= AT_HEADS) continue;
        float *o = part_o(w)[column] + w->lane / 4 * AT_O_STRIDE;
        if (w->lane < 4) {
            at->m[first + column][part] = r->m[i];
            at->l[first + column][part] = r->l[i];
        }
        attended_column_store(r, i, o);
    }
}

#endif

#if !STAGED
/* A warp without pieces says that its partial results are of no position. These are multiplied by 0 all the same, so
 * they must be numbers. With several columns the sampler's scratch may have lain in the place of sums of weights, and
 * the columns' digits in the place of results (columns_shared.cuh), and these may be none. */
enum { NONE_IS_ZERO = P_COLUMNS > 1 && NORMED_DIGITS };
DEV void attended_none(const struct worker *w) {
    struct attention_shared *at = attention_of(w);
    const int head = w->warp % P_GROUP_KV_HEADS * AT_HEADS + w->lane, part = w->warp / P_GROUP_KV_HEADS;
    if (NONE_IS_ZERO && w->warp < P_ATTENTION_WARPS) {
        NO_UNROLL
        for (int i = w->lane; i < AT_HEADS * 8 * AT_O_STRIDE; i += LANES)
            attention_o(w)[w->warp][0][i] = 0;
    }
    if (w->warp >= P_ATTENTION_WARPS || w->lane >= AT_HEADS) return;
    at->m[head][part] = ATTENTION_NEVER;
    if (P_COLUMNS > 1) at->l[head][part] = 0;
}
#endif

/* Returns how many past positions there are from the first of an item's piece on; an item of the KV ring (kv_ring.cuh)
 * is one piece of one KV head. */
DEV int kv_left(const struct worker *w, int item, int position) {
    const int i = item / P_GROUP_KV_HEADS;
    const int piece = position < w->a->split_from ? i : w->member + i * P_GROUP_SMS;
    return position - piece * KV_POSITIONS;
}

/* Waits for the warp's first piece and loads as much of it as there are registers for. */
DEV void early_take(struct worker *w, struct kv_reader *c, struct early *e, int left) {
    u32 seen = 0;
    kv_take(w);
#if P_FOLLOWS
    piece_complete(w, left);
#endif
    if (KV_TRIMMED && left < KV_POSITIONS && !WHOLE_EARLY) piece_trim(kv_tiles(w), w->lane, left);
    const KV_TILE *tiles = kv_tiles(w);
    if (WHOLE_EARLY) piece_scales_read(&e->scales, tiles, w->lane, left), seen ^= piece_scales_seen(&e->scales);
    UNROLL
    for (int i = 0; i < EARLY_TILES; i++)
        e->k[i] = tiles[i * LANES];
    UNROLL
    for (int i = 0; i < V_ROOM; i++)
        if (EARLY_V) e->v[i] = tiles[(AT_TILES + i) * LANES];
    UNROLL
    for (int i = 0; i < AT_TILES; i++)
        seen ^= kv_tile_last(e->k[i < EARLY_TILES ? i : 0]) ^ kv_tile_last(e->v[i < V_ROOM ? i : 0]);
    if (WHOLE_EARLY) kv_give(w, c, seen);
    UNROLL
    for (int i = 0; i < V_ROOM; i++)
        if (KV_TRIMMED && left < KV_POSITIONS) e->v[i] = value_trim(e->v[i], w->lane, left);
}

/* Returns the first q head of the KV head that this warp attends to. */
DEV int first_head(const struct worker *w) { return w->warp % P_GROUP_KV_HEADS * AT_HEADS; }

/* Attends to all pieces of this warp. e: what early_take loaded of the first one; left: kv_left of the first
 * one. q_at: the place of this lane's column in q. */
DEV void past_attend(struct worker *w, struct kv_reader *c, const struct early *e, int position, int left, int q_at) {
    struct attended r;
    const struct asked q = asked_make(attention_of(w), first_head(w), q_at, w->lane);
    piece_attend(w, &r, 1, 1, e, kv_tiles(w), &q, left);
    if (!WHOLE_EARLY) kv_give(w, c, attended_seen(&r));
    NO_UNROLL
    while (c->item < c->items) {
        left = kv_left(w, c->item, position);
        kv_take(w);
#if P_FOLLOWS
        piece_complete(w, left);
#endif
        if (KV_TRIMMED && left < KV_POSITIONS) piece_trim(kv_tiles(w), w->lane, left);
        piece_attend(w, &r, 0, 0, e, kv_tiles(w), &q, left);
        kv_give(w, c, attended_seen(&r));
    }
    attended_store(w, &r);
}

#if P_COLUMNS > 1
/* The same for a column's pieces, of which the warp has one at least. */
DEV void pieces_attend(struct worker *w, struct kv_reader *c, int position, int q_at) {
    const int left = kv_left(w, c->item, position);
    struct early e;
    UNROLL
    for (int i = 0; i < V_ROOM; i++)
        kv_tile_clear(&e.v[i]);
    piece_scales_clear(&e.scales);
    early_take(w, c, &e, left);
    past_attend(w, c, &e, position, left, q_at);
}
#endif

/* ---- the phase ---- */

#if P_COLUMNS == 1
DEV void attention_consume(struct worker *w, int nth, int position) {
    const int split = position >= w->a->split_from, pieces = kv_pieces_mine(w, position);
    struct kv_reader c = kv_begin(w, pieces * P_GROUP_KV_HEADS);
    const int some = c.item < c.items, left = kv_left(w, c.item, position);
    struct merge_place place[MERGE_TURNS];
    struct rotation r[ROPE_TURNS];
    struct early e;
    u64 gate[MERGE_TURNS];
    worker_anew(w);
    const int q_at = opaque((first_head(w) + w->lane / 4 % AT_HEADS) * AT_Q_STRIDE + w->lane % 4 * 4);
    merge_places(w, place);
    /* Every path sets e: what only some paths set would keep its registers through all layers. */
    UNROLL
    for (int i = 0; i < EARLY_TILES; i++)
        kv_tile_clear(&e.k[i]);
    UNROLL
    for (int i = 0; i < V_ROOM; i++)
        kv_tile_clear(&e.v[i]);
    piece_scales_clear(&e.scales);
    if (some) early_take(w, &c, &e, left);
    rotation_make(w, w->qk_gain, r);
    attention_gather(w, nth, r);
    consumers_sync(); /* A */
    profile_layer(w, MARK_ATTENTION_INPUT);
    gates_ask(w, place, gate, !split);
    if (some)
        past_attend(w, &c, &e, position, left, q_at);
    else
        attended_none(w);
    own_attend(w);
    kv_end(w, pieces * P_GROUP_KV_HEADS);
    gates_wait(w, place, gate);
    consumers_sync(); /* B */
    attention_merge(w, place, gate, split, pieces > 0);
    profile_layer(w, MARK_ATTENTION_OWN);
    if (split) members_merge(w, position);
    consumers_sync(); /* C */
}

/* What can wait until the layer's sums of down are waited for: keeps the current position's rows, then asks for the
 * next layer's gains. In front of C all warps of the group would wait for it. */
DEV void attention_keep(struct worker *w, int nth, int position) {
    if (ONE_ROW && gather_row(w) >= GATHER_ROWS) return;
    if (keeps_own(w, position)) own_keep(w, nth, position);
    attention_gains(w, nth + 1);
}
#endif

#endif
