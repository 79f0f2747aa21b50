/* mix and delta for several columns: each column's are what phase_mix.cuh and phase_delta.cuh make, with the same sums
 * in the same order. Each column has a state and a window of its own, in its session's memory.
 *   reads    h of all columns (registers); q, k, v and z words of each column, X_MIX
 *   writes   X_MIX; X_DELTA; B fragments of the DeltaNet's result in block_shared.attention; states and windows of the
 *            columns that are not over
 *
 * With one column the warps of a block share the value columns of its units, so that each warp gathers q and k of the
 * unit's head and norms them. With several columns a warp takes many value columns of one session instead: in a block
 * of 8 warps and 8 sessions a warp has one session. So q and k of a session are gathered and normed once for a whole
 * run of value columns, all states are on their way at the same time, and no session waits for another one's step.
 *
 * A run is RUN rounds of WARP_COLUMNS value columns of one unit. A lane holds the state of one value column in each
 * round, in the rows and lanes in which phase_delta.cuh has them. A lane has the same part of the same session's state
 * at every token of a launch: it alone reads what it has stored. */
#ifndef REEL_KERNELS_COLUMNS_DELTA_CUH
#define REEL_KERNELS_COLUMNS_DELTA_CUH

#include "columns_attention.cuh"
#include "phase_delta.cuh"

enum {
    UNIT_ROUNDS = P_DELTA_UNIT < WARP_COLUMNS ? 1 : P_DELTA_UNIT / WARP_COLUMNS,
    ROUNDS = (DELTA_COLUMNS + WARP_COLUMNS - 1) / WARP_COLUMNS, /* of a session in this block */
    MOST_STATE = 32                                             /* registers of a lane that hold state */
};
/* A run is as long as it can be while all warps have one; with drafts, one of a session that is alone. */
#define RUN_FITS(n)                                                                                                    \
    (UNIT_ROUNDS % (n) == 0 && (n)*KEY_ROWS <= MOST_STATE && (P_FOLLOWS ? 1 : COLUMNS) * ROUNDS >= (n)*P_WARPS)
enum {
    RUN = RUN_FITS(8)   ? 8
          : RUN_FITS(4) ? 4
          : RUN_FITS(2) ? 2
                        : 1,
    COLUMN_RUNS = ROUNDS / RUN,
    RUN_TURNS = (COLUMNS * COLUMN_RUNS + P_WARPS - 1) / P_WARPS,
    STEPS = P_FOLLOWS && COLUMNS > 4 ? 2 : 1, /* columns of a session whose words a warp waits for at a time */
    WORDS_AT_ONCE = P_FOLLOWS                 /* they are asked for without looking at what has come */
};

/* ---- mix ---- */

DEV void columns_mix(struct worker *w, const struct held *t, float (*h)[2 * SLICE], const float *gain) {
    COLUMNS_NORMED(w, t, MIX, h, gain);
    columns_ssq(w, h, 0);
    parts_done(w);
}

/* Columns whose a and b a warp adds up at a time: the states are in its registers, too. */
enum { GATE_COLUMNS = MIN(COLUMNS, 4) };

/* Makes this warp's parts of a and b of all columns. Their weights are loaded once. */
DEV void columns_gates(struct worker *w, u32 (*g)[2][SLICE], float (*h)[2 * SLICE], const float *gain) {
    UNROLL_BY(EARLY_GATES ? GATE_SLOTS : 1)
    for (int n = 0; n < GATE_SLOTS; n++) {
        if (!EARLY_GATES) gate_load(w, n, g[0]);
        UNROLL
        for (int c = 0; c < COLUMNS; c += GATE_COLUMNS) {
            float sum[2 * GATE_COLUMNS];
            UNROLL
            for (int i = 0; i < GATE_COLUMNS; i++)
                gate_part(g[EARLY_GATES ? n : 0], h[c + i], gain, &sum[2 * i], &sum[2 * i + 1]);
            const float mine = xor_sums(sum, 2 * GATE_COLUMNS, w->lane);
            const int which = xor_sums_which(2 * GATE_COLUMNS, w->lane);
            if (w->lane < 2 * GATE_COLUMNS) w->s->gates[c + which / 2][n][which % 2][w->warp] = mine;
        }
    }
}

#if P_FOLLOWS
/* ---- what a pass keeps of its drafts ---- */

/* A recurrent state cannot go back, and whether a draft is right is known behind the pass. So states and windows in
 * memory are moved on by a session's first column alone, whose id is certain. The drafts behind it are tried on what is
 * in registers, and what they would do is kept: k of each unit's head, and of each value column how much of its state
 * is left and what of k it learns, a tenth of a state. The drafts that proved right are owed: the next pass
 * does to the state, with the same numbers in the same order, what they did; then comes its own first column. Behind
 * the last pass states_settle and windows_settle pay what is still owed. So a state is read and written once a pass.
 *
 * Who keeps and who pays: a state belongs to one lane, as ever, and what a value column learns is kept by a lane of its
 * warp. k of a unit is kept by the lanes of the unit's first value column and paid from by all warps of the block. A
 * warp reads what is kept before delta's barrier, and the pass stores behind it; between a pass and the next one lies
 * the barrier behind which a session goes on. An input of the convolution is stored and read by one thread. */

/* Where what is kept of a draft's column lies: behind the words of all columns. That of the next column lies
 * kept_stride floats behind. */
DEV int kept_size(void) {
    const struct delta_layout layout = delta_here();
    return delta_kept_layer(&layout, P_SMS, DELTA_TURNS, P_DELTA_UNIT);
}
DEV int kept_stride(void) { return M_DELTA * kept_size(); }
DEV float *kept_layer(const struct worker *w, int column) {
    return (float *)(w->all->column[0].words + COLUMNS * P_WORDS) +
           ((size_t)(column - 1) * M_DELTA + (size_t)delta_nth(w->layer)) * (size_t)kept_size();
}
DEV float *kept_part(const struct worker *w, int column) {
    const struct delta_layout layout = delta_here();
    return kept_layer(w, column) + w->block * delta_kept_part(&layout, DELTA_TURNS, P_DELTA_UNIT);
}
DEV u32 *kept_input(const struct worker *w, int column, int channel) {
    const struct delta_layout layout = delta_here();
    return (u32 *)kept_layer(w, column) + P_SMS * delta_kept_part(&layout, DELTA_TURNS, P_DELTA_UNIT) + channel;
}

/* Where the i-th past input of the column at hand lies, which is a session's first: in the window, or with what is
 * owed. */
DEV const u32 *past_input(const struct worker *w, const u32 *window, int channel, int i) {
    const int at = i + (int)w->s->owed[w->column];
    return at < M_TAPS - 1 ? window + at : kept_input(w, w->column + at - (M_TAPS - 2), channel);
}

/* The column at hand has had its input: its session's past moves on. */
DEV void input_taken(const struct worker *w, struct convolution *c, int channel, float x) {
    if (!column_follows(w, w->column))
        window_move(c, x);
    else if (c->window)
        plain_store32(kept_input(w, w->column, channel), float_bits(x));
    UNROLL
    for (int i = 0; i < M_TAPS - 1; i++)
        c->past[i] = i < M_TAPS - 2 ? c->past[i + 1] : x;
}
#else
DEV const u32 *past_input(const struct worker *w, const u32 *window, int channel, int i) {
    return (void)w, (void)channel, window + i;
}
DEV void input_taken(const struct worker *w, struct convolution *c, int channel, float x) {
    (void)w, (void)channel;
    window_move(c, x);
}
#endif

/* Returns where the past inputs of a channel of the column at hand lie, or NULL: the window of a column that is over
 * stays as it is. */
DEV u32 *column_window(const struct worker *w, int at, int have) {
    return have && column_runs(w, w->column) ? (u32 *)w->a->delta.window + at : 0;
}

/* Columns whose past inputs an epilogue thread holds at a time. Its registers have no room for more: the others' are
 * on their way into L2 meanwhile. */
enum { PAST_HELD = MIN(COLUMNS, 4) };

/* `channel`: of the layer, for drafts. */
DEV void column_past(struct worker *w, int column, int at, int channel, int have, float *past) {
    column_take(w, column);
    const u32 *window = column_follows(w, column) ? 0 : column_window(w, at, have);
    UNROLL
    for (int i = 0; i < M_TAPS - 1; i++)
        past[i] = window ? bits_float(plain_load32(past_input(w, window, channel, i))) : 0;
}

/* The epilogue's part of mix. A thread has the same rows in all columns, so it loads a row's taps once. It asks for the
 * past inputs of all columns before the consumers' sums are there. */
DEV void columns_mix_publish(struct worker *w) {
    const struct delta_layout layout = delta_here();
    const int first = w->member * P_MIX_ROWS, nth = delta_nth(w->layer);
    NO_UNROLL
    for (int n = 0; n < MIX_TURNS; n++) {
        const int mine = mix_row(w, n), row = mine < P_MIX_ROW_TILES * TILE_ROWS ? mine : 0;
        const int have = mine < P_MIX_ROWS && first + mine < GROUP_CHANNELS;
        const int channel = have ? channel_of(w, first + mine) : 0;
        const int at = (int)delta_window(&layout, nth, channel);
        const float *taps = delta_constants_of(w, nth) + delta_taps_offset(&layout) + channel * M_TAPS;
        float past[PAST_HELD][M_TAPS - 1];
        struct convolution c;
        UNROLL
        for (int k = 0; k < PAST_HELD; k++)
            column_past(w, k, at, channel, have, past[k]);
        UNROLL
        for (int k = PAST_HELD; k < COLUMNS; k++) {
            column_take(w, k);
            if (!column_follows(w, k) && column_window(w, at, have)) l2_ask(column_window(w, at, have));
        }
        UNROLL
        for (int i = 0; i < M_TAPS; i++)
            c.tap[i] = have ? const_loadf(taps + i) : 0;
        if (n == 0) parts_wait(w);
        const float scale = norm_scale(w->s->ssq[0][w->lane % COLUMNS]);
        UNROLL
        for (int k = 0; k < COLUMNS; k++) {
            column_take(w, k);
            const float x = row_sum(w->s->part_hidden[k], row, P_MIX_K_PARTS) * shuffle_float(scale, k);
            UNROLL
            for (int i = 0; i < M_TAPS - 1; i++)
                if (k == 0 || !column_follows(w, k)) c.past[i] = past[k % PAST_HELD][i];
            c.window = column_window(w, at, have);
            publish_pair24(w, mix_words(w) + first / 2, mine, mine < P_MIX_ROWS ? MIX_GROUP_ROWS - first : 0,
                           convolved(&c, x));
            input_taken(w, &c, channel, x);
            if (k + PAST_HELD < COLUMNS) column_past(w, k + PAST_HELD, at, channel, have, past[k % PAST_HELD]);
        }
    }
    column_take(w, 0);
}

/* ---- runs ---- */

/* Turns in which warps have runs. A column that follows has none of its own. */
DEV int run_turns(const struct worker *w) {
#if P_FOLLOWS
    enum { BEHIND = (1 << COLUMNS) - 2 };
    if ((w->all->follows & BEHIND) == BEHIND) return (COLUMN_RUNS + P_WARPS - 1) / P_WARPS;
#endif
    return (void)w, RUN_TURNS;
}

struct delta_run {
    int there, stays; /* this lane has value columns of it; their state stays as it is */
    int column;       /* of the columns of the pass */
    int value;        /* value column of the group, in the first round; WARP_COLUMNS further on in each round */
    int key_head, slot;
    float rate, dt_bias;
    float s[RUN][KEY_ROWS];
#if P_FOLLOWS
    int local; /* value column of this SM, in the first round */
    int owed;  /* drafts that the state lacks */
#endif
};

/* Finds this warp's run of a turn, and takes its column. */
DEV void run_find(struct worker *w, int turn, struct delta_run *r) {
    const int run = turn * P_WARPS + w->warp, there = run < COLUMNS * COLUMN_RUNS;
    const int i = run % COLUMN_RUNS * RUN * WARP_COLUMNS + w->lane / KEY_LANES, unit_turn = i / P_DELTA_UNIT;
    const int unit = w->member + unit_turn * P_GROUP_SMS;
    r->column = there ? run / COLUMN_RUNS : 0;
    column_take(w, r->column);
    r->there = there && i < DELTA_COLUMNS && unit < P_DELTA_UNITS;
#if P_FOLLOWS
    if (column_follows(w, r->column)) r->there = 0;
#endif
    r->stays = !r->there || !column_runs(w, r->column);
    r->value = r->there ? unit * P_DELTA_UNIT + i % P_DELTA_UNIT : 0;
    const int head = r->value / M_VALUE_DIM;
    r->key_head = head / (P_GROUP_VALUE_HEADS / P_GROUP_KEY_HEADS);
    r->slot = GATES_BY_TURN ? (r->there ? unit_turn : 0) : head;
#if P_FOLLOWS
    r->local = i, r->owed = there ? (int)w->s->owed[r->column] : 0;
#endif
}

/* Returns the state of this lane's value column in round n. */
DEV float *run_state(const struct worker *w, const struct delta_run *r, int n) {
    return state_column(w, r->value + (r->stays ? 0 : n * WARP_COLUMNS));
}

/* Asks for what a run needs and what does not depend on the token: state and constants. */
DEV void run_ask(struct worker *w, int turn, struct delta_run *r) {
    const struct delta_layout layout = delta_here();
    run_find(w, turn, r);
    const int head = r->value / M_VALUE_DIM;
    const float *constants = delta_constants_of(w, delta_nth(w->layer)) + w->group * P_GROUP_VALUE_HEADS + head;
    UNROLL
    for (int n = 0; n < RUN; n++) {
        const struct quad *from = (const struct quad *)run_state(w, r, n);
        UNROLL
        for (int k = 0; k < KEY_QUADS; k++) {
            struct quad v;
            v.x = v.y = v.z = v.w = 0;
            if (!r->stays && quad_row(w, k) < M_KEY_DIM) v = own_load128(from + quad_row(w, k) / 4);
            r->s[n][4 * k] = bits_float(v.x), r->s[n][4 * k + 1] = bits_float(v.y);
            r->s[n][4 * k + 2] = bits_float(v.z), r->s[n][4 * k + 3] = bits_float(v.w);
        }
    }
    r->rate = const_loadf(constants), r->dt_bias = const_loadf(constants + delta_bias_offset(&layout));
}

/* The states of a warp's later runs come as far as L2 while it is at the first. */
DEV void runs_await(struct worker *w) {
    const int turns = run_turns(w);
    UNROLL_BY(1)
    for (int turn = 1; turn < turns; turn++) {
        struct delta_run r;
        run_find(w, turn, &r);
        UNROLL
        for (int n = 0; n < RUN; n++) {
            UNROLL
            for (int k = 0; k < KEY_QUADS; k++)
                if (!r.stays && quad_row(w, k) < M_KEY_DIM) l2_ask(run_state(w, &r, n) + quad_row(w, k));
        }
    }
}

struct run_input {
    u64 q[KEY_QUADS][2], k[KEY_QUADS][2], v[RUN];
};

/* Loads the words of a run's column that have not come, and of a fresh one all. They lie P_WORDS behind those of the
 * column before. */
DEV void run_load(const struct worker *w, const struct delta_run *r, const u64 *from, int fresh, struct run_input *in) {
    const u64 *q = from + r->key_head * (M_KEY_DIM / 2), *k = q + P_GROUP_KEY / 2;
    const u64 *v = from + P_GROUP_KEY + r->value / 2;
    UNROLL
    for (int n = 0; n < KEY_QUADS; n++) {
        const int word = quad_row(w, n) / 2;
        if (quad_row(w, n) >= M_KEY_DIM) continue;
        if (fresh || !pair_is(in->q[n], w->epoch)) word_load2(q + word, &in->q[n][0], &in->q[n][1]);
        if (fresh || !pair_is(in->k[n], w->epoch)) word_load2(k + word, &in->k[n][0], &in->k[n][1]);
    }
    UNROLL
    for (int n = 0; n < RUN; n++)
        if (fresh || !word_is24(in->v[n], w->epoch)) in->v[n] = word_load(v + n * (WARP_COLUMNS / 2));
}

/* Waits for q, k and v of a run, of `steps` columns of its session from the one at hand on. */
DEV void run_poll(struct worker *w, const struct delta_run *r, struct run_input *inputs, int steps) {
    const u64 none = (u64)(w->epoch & 0xffffu) << 48, *words = mix_words(w);
    u32 polls = 0;
    UNROLL
    for (int i = 0; i < STEPS; i++) {
        struct run_input *in = inputs + i;
        UNROLL
        for (int n = 0; n < KEY_QUADS; n++)
            in->q[n][0] = in->q[n][1] = in->k[n][0] = in->k[n][1] = none;
        UNROLL
        for (int n = 0; n < RUN; n++)
            in->v[n] = none;
        if (WORDS_AT_ONCE && r->there && i < steps) run_load(w, r, words + i * P_WORDS, 1, in);
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < STEPS; i++)
            if (!WORDS_AT_ONCE && r->there && i < steps) run_load(w, r, words + i * P_WORDS, !polls, inputs + i);
        UNROLL
        for (int i = 0; i < STEPS; i++) {
            struct run_input *in = inputs + i;
            UNROLL
            for (int n = 0; n < KEY_QUADS; n++)
                off |= pair_off(in->q[n], w->epoch) | pair_off(in->k[n], w->epoch);
            UNROLL
            for (int n = 0; n < RUN; n++)
                off |= word_off24(in->v[n], w->epoch);
        }
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_MIX, w->epoch & 0xffffu, (u32)(inputs[0].v[0] >> 48));
        UNROLL
        for (int i = 0; i < STEPS; i++)
            if (WORDS_AT_ONCE && r->there && i < steps) run_load(w, r, words + i * P_WORDS, 0, inputs + i);
    }
}

/* A head's q and k, and what column_step makes of them alone. */
struct run_keys {
    float q[KEY_ROWS], k[KEY_ROWS], kq, norm_q, norm_k;
};

DEV void run_keys_make(const struct run_input *in, struct run_keys *p) {
    float qq = 0, kk = 0, kq = 0;
    UNROLL
    for (int i = 0; i < KEY_ROWS; i++) {
        const u64 from_q = in->q[i / 4][i % 4 / 2], from_k = in->k[i / 4][i % 4 / 2];
        const float q = i % 2 ? float24_high(from_q) : float24_low(from_q);
        const float k = i % 2 ? float24_high(from_k) : float24_low(from_k);
        qq += q * q, kk += k * k, kq += k * q;
        p->q[i] = q, p->k[i] = k;
    }
    qq = key_sum(qq), kk = key_sum(kk), p->kq = key_sum(kq);
    p->norm_q = rsqrt_approx((qq + L2_NORM_EPS) * M_KEY_DIM), p->norm_k = rsqrt_approx(kk + L2_NORM_EPS);
}

/* Moves the state of one value column on in registers and returns the column's o, as column_step does. learnt: what
 * the state has learnt of k. */
DEV float round_step(const struct run_keys *p, float *s, float v, float beta, float left, float *learns) {
    float sk = 0, sq = 0;
    UNROLL
    for (int i = 0; i < KEY_ROWS; i++)
        sk += s[i] * p->k[i], sq += s[i] * p->q[i];
    sk = key_sum(sk), sq = key_sum(sq);
    const float d = beta * (v - left * (p->norm_k * sk)), learnt = p->norm_k * d;
    UNROLL
    for (int i = 0; i < KEY_ROWS; i++)
        s[i] = state_moved(s[i], left, p->k[i], learnt);
    *learns = learnt;
    return p->norm_q * (left * sq + learnt * p->kq);
}

/* Stores the states of a run. */
DEV void run_keep(const struct worker *w, const struct delta_run *r) {
    UNROLL
    for (int n = 0; n < RUN; n++) {
        struct quad *to = (struct quad *)run_state(w, r, n);
        UNROLL
        for (int k = 0; k < KEY_QUADS; k++) {
            const float *s = r->s[n] + 4 * k;
            struct quad v;
            v.x = float_bits(s[0]), v.y = float_bits(s[1]), v.z = float_bits(s[2]), v.w = float_bits(s[3]);
            if (!r->stays && quad_row(w, k) < M_KEY_DIM) plain_store128(to + quad_row(w, k) / 4, v);
        }
    }
}

#if P_FOLLOWS
/* Keeps what the draft at hand has done to the states of a run, in the block's part of its column. */
DEV void draft_keep(const struct worker *w, const struct delta_run *r, float *part, const float *k, float left,
                    const float *learnt) {
    float *keys = part + r->local / P_DELTA_UNIT * M_KEY_DIM;
    struct pair *moves = (struct pair *)(part + DELTA_TURNS * M_KEY_DIM) + r->local;
    if (r->stays || !column_runs(w, w->column)) return;
    UNROLL
    for (int n = 0; n < KEY_QUADS; n++) {
        struct quad v;
        v.x = float_bits(k[4 * n]), v.y = float_bits(k[4 * n + 1]);
        v.z = float_bits(k[4 * n + 2]), v.w = float_bits(k[4 * n + 3]);
        if (r->local % P_DELTA_UNIT == 0 && quad_row(w, n) < M_KEY_DIM)
            plain_store128((struct quad *)(keys + quad_row(w, n)), v);
    }
    UNROLL
    for (int n = 0; n < RUN; n++) {
        struct pair v;
        v.low = float_bits(left), v.high = float_bits(learnt[n]);
        if (w->lane % KEY_LANES == 0) plain_store64(moves + n * WARP_COLUMNS, v);
    }
}

/* Drafts whose moves a warp has in registers at a time. */
enum { OWED_HELD = MIN(COLUMNS - 1, 3) };
struct owed {
    struct quad k[OWED_HELD][KEY_QUADS];
    struct pair move[OWED_HELD][RUN];
};

/* Asks for the moves of the drafts from `from` on that are owed to a run. */
DEV void owed_ask(const struct worker *w, const struct delta_run *r, int from, struct owed *o) {
    const float *part = kept_part(w, r->column + 1 + from);
    UNROLL
    for (int i = 0; i < OWED_HELD; i++, part += kept_stride()) {
        const int there = !r->stays && from + i < r->owed;
        const float *keys = part + r->local / P_DELTA_UNIT * M_KEY_DIM;
        const struct pair *moves = (const struct pair *)(part + DELTA_TURNS * M_KEY_DIM) + r->local;
        UNROLL
        for (int n = 0; n < KEY_QUADS; n++) {
            o->k[i][n].x = o->k[i][n].y = o->k[i][n].z = o->k[i][n].w = 0;
            if (there && quad_row(w, n) < M_KEY_DIM)
                o->k[i][n] = cached_load128((const struct quad *)(keys + quad_row(w, n)));
        }
        UNROLL
        for (int n = 0; n < RUN; n++) {
            o->move[i][n].low = o->move[i][n].high = 0;
            if (there) o->move[i][n] = cached_load64(moves + n * WARP_COLUMNS);
        }
    }
}

/* Does to the states of a run what the drafts did that are owed; o: the first of them. */
DEV void run_pay(struct worker *w, struct delta_run *r, struct owed *o) {
    NO_UNROLL
    for (int from = 0; from < r->owed; from += OWED_HELD) {
        if (from) owed_ask(w, r, from, o);
        UNROLL
        for (int i = 0; i < OWED_HELD; i++) {
            if (from + i >= r->owed) continue;
            UNROLL
            for (int n = 0; n < RUN; n++) {
                const float left = bits_float(o->move[i][n].low), learnt = bits_float(o->move[i][n].high);
                float *s = r->s[n];
                UNROLL
                for (int m = 0; m < KEY_QUADS; m++) {
                    const struct quad k = o->k[i][m];
                    s[4 * m] = state_moved(s[4 * m], left, bits_float(k.x), learnt);
                    s[4 * m + 1] = state_moved(s[4 * m + 1], left, bits_float(k.y), learnt);
                    s[4 * m + 2] = state_moved(s[4 * m + 2], left, bits_float(k.z), learnt);
                    s[4 * m + 3] = state_moved(s[4 * m + 3], left, bits_float(k.w), learnt);
                }
            }
        }
    }
}

/* Pays what is owed to the runs of a warp from a turn on, in memory. */
DEV void runs_settle(struct worker *w, int from) {
    const int turns = run_turns(w);
    UNROLL_BY(1)
    for (int turn = from; turn < turns; turn++) {
        struct delta_run r;
        struct owed o;
        run_find(w, turn, &r);
        if (!r.owed) continue;
        run_ask(w, turn, &r);
        owed_ask(w, &r, 0, &o);
        run_pay(w, &r, &o);
        run_keep(w, &r);
    }
}

/* Where there are as many lanes to a value column as columns, each lane makes the gates of one of the session's; else
 * all lanes make those of the column at hand. */
enum { GATES_APART = KEY_LANES >= COLUMNS };
struct run_gates {
    float beta, left;
};
DEV struct run_gates run_gates_make(const struct worker *w, const struct delta_run *r, int column) {
    struct run_gates g;
    head_gates(w->s->ssq[0][column], w->s->gates[column][r->slot], r->rate, r->dt_bias, &g.beta, &g.left);
    return g;
}
/* Of the session's column i, which is at hand. apart: what this lane has made. */
DEV struct run_gates run_gates_of(const struct worker *w, const struct delta_run *r, int i, struct run_gates apart) {
    const int from = w->lane / KEY_LANES * KEY_LANES + i;
    if (!GATES_APART) return run_gates_make(w, r, w->column);
    apart.beta = shuffle_float(apart.beta, from), apart.left = shuffle_float(apart.left, from);
    return apart;
}

/* Takes a run through the steps of its session's columns: publishes their values and stores the states that the first
 * one leaves. */
DEV void run_step(struct worker *w, struct delta_run *r) {
    const int columns = session_columns(w, r->column), mine = w->lane % KEY_LANES;
    struct run_gates apart = { 0, 0 };
    float *kept = kept_part(w, r->column + 1);
    if (column_follows(w, r->column)) return; /* who has the session's first column takes it */
    if (GATES_APART) apart = run_gates_make(w, r, r->column + (mine < columns ? mine : 0));
    NO_UNROLL
    for (int first = 0; first < columns; first += STEPS) {
        struct run_input in[STEPS];
        column_take(w, r->column + first);
        run_poll(w, r, in, columns - first);
        UNROLL
        for (int i = 0; i < STEPS; i++) {
            struct run_keys keys;
            float learnt[RUN];
            if (first + i >= columns) continue;
            column_take(w, r->column + first + i);
            const struct run_gates gates = run_gates_of(w, r, first + i, apart);
            run_keys_make(&in[i], &keys);
            UNROLL
            for (int n = 0; n < RUN; n++) {
                const float v = r->value % 2 ? float24_high(in[i].v[n]) : float24_low(in[i].v[n]);
                const float o = round_step(&keys, r->s[n], v, gates.beta, gates.left, &learnt[n]);
                const float next = bits_float(shuffle_down(float_bits(o), KEY_LANES));
                if (r->there && r->value % 2 == 0 && w->lane % KEY_LANES == 0)
                    word_store(delta_words(w) + (r->value + n * WARP_COLUMNS) / 2, word_make24(o, next, w->epoch));
            }
            if (first + i == 0)
                run_keep(w, r);
            else
                draft_keep(w, r, kept + (first + i - 1) * kept_stride(), keys.k, gates.left, learnt);
        }
    }
}
#else
/* Takes a run through its step: publishes its values and stores its states. */
DEV void run_step(struct worker *w, struct delta_run *r) {
    struct run_input in;
    struct run_keys keys;
    float beta, left, learnt;
    column_take(w, r->column);
    head_gates(w->s->ssq[0][r->column], w->s->gates[r->column][r->slot], r->rate, r->dt_bias, &beta, &left);
    run_poll(w, r, &in, 1);
    run_keys_make(&in, &keys);
    UNROLL
    for (int n = 0; n < RUN; n++) {
        const float v = r->value % 2 ? float24_high(in.v[n]) : float24_low(in.v[n]);
        const float o = round_step(&keys, r->s[n], v, beta, left, &learnt);
        const float next = bits_float(shuffle_down(float_bits(o), KEY_LANES));
        if (r->there && r->value % 2 == 0 && w->lane % KEY_LANES == 0)
            word_store(delta_words(w) + (r->value + n * WARP_COLUMNS) / 2, word_make24(o, next, w->epoch));
    }
    run_keep(w, r);
}
#endif

/* ---- the group's columns ---- */

/* Heads of columns, each of which a warp norms; with OWN_HEADS they are the head that the warp multiplies with in out.
 * A warp gathers several side by side, as registers allow. */
enum {
    HEAD_ITEMS = (P_GROUP_VALUE_HEADS * COLUMNS + P_WARPS - 1) / P_WARPS,
    HEAD_BATCH = MIN(HEAD_ITEMS, 8 / MIN(HEAD_TURNS, 8))
};
struct head_item {
    int there, column, head;
};
DEV struct head_item head_item_at(const struct worker *w, int n) {
    const int at = n * P_WARPS + w->warp;
    struct head_item i;
    i.there = n < HEAD_ITEMS && at < P_GROUP_VALUE_HEADS * COLUMNS;
    i.column = i.there ? at / P_GROUP_VALUE_HEADS : 0, i.head = i.there ? at % P_GROUP_VALUE_HEADS : 0;
    return i;
}

/* Waits for the words of a batch of heads; those of head 0 of the group begin at word `first` of each column. */
DEV void heads_gather(struct worker *w, int first, int item, u64 (*v)[HEAD_TURNS], enum wait_kind kind) {
    u32 polls = 0;
    UNROLL
    for (int b = 0; b < HEAD_BATCH; b++) {
        UNROLL
        for (int n = 0; n < HEAD_TURNS; n++)
            v[b][n] = (u64)(w->epoch & 0xffffu) << 48;
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int b = 0; b < HEAD_BATCH; b++) {
            const struct head_item i = head_item_at(w, item + b);
            const u64 *from = column_words(w, first, i.column) + i.head * HEAD_WORDS + w->lane;
            UNROLL
            for (int n = 0; n < HEAD_TURNS; n++)
                if (i.there && n * LANES + w->lane < HEAD_WORDS && (!polls || !word_is24(v[b][n], w->epoch)))
                    v[b][n] = word_load(from + n * LANES);
        }
        UNROLL
        for (int b = 0; b < HEAD_BATCH; b++) {
            UNROLL
            for (int n = 0; n < HEAD_TURNS; n++)
                off |= word_off24(v[b][n], w->epoch);
        }
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, kind, w->epoch & 0xffffu, (u32)(v[0][0] >> 48));
    }
}

/* Makes norm(o) * gain * silu(z) of a batch of heads, as head_finish does. */
DEV void heads_finish(struct worker *w, int item, const float (*gain)[2]) {
    u64 v[HEAD_BATCH][HEAD_TURNS];
    float factor[HEAD_BATCH][HEAD_TURNS][2];
    heads_gather(w, X_MIX + w->group * (MIX_GROUP_ROWS / 2) + GROUP_CHANNELS / 2, item, v, WAIT_MIX);
    UNROLL
    for (int b = 0; b < HEAD_BATCH; b++) {
        UNROLL
        for (int n = 0; n < HEAD_TURNS; n++) {
            factor[b][n][0] = gain[n][0] * silu(float24_low(v[b][n]));
            factor[b][n][1] = gain[n][1] * silu(float24_high(v[b][n]));
        }
    }
    heads_gather(w, X_DELTA + w->group * (P_GROUP_VALUE / 2), item, v, WAIT_DELTA);
    UNROLL
    for (int b = 0; b < HEAD_BATCH; b++) {
        const struct head_item i = head_item_at(w, item + b);
        float ssq = 0;
        UNROLL
        for (int n = 0; n < HEAD_TURNS; n++)
            ssq += float24_low(v[b][n]) * float24_low(v[b][n]) + float24_high(v[b][n]) * float24_high(v[b][n]);
        const float scale = rsqrt_approx(xor_sum(ssq, 1, LANES) * (1.0f / M_VALUE_DIM) + M_RMS_EPS);
        UNROLL
        for (int n = 0; n < HEAD_TURNS; n++) {
            const int at = n * LANES + w->lane, word = i.head * HEAD_WORDS + at;
            const float low = float24_low(v[b][n]) * scale * factor[b][n][0];
            const float high = float24_high(v[b][n]) * scale * factor[b][n][1];
            if (i.there && at < HEAD_WORDS)
                w->s->ATTENTION_RESULT[word / 8][i.column * 8 + word % 4 * 2 + word % 8 / 4] = bf16_pair(low, high);
        }
    }
}

/* ---- the phase ---- */

struct columns_delta_early {
    struct delta_run run;
#if P_FOLLOWS
    struct owed owed;
#endif
    float gain[HEAD_TURNS][2];
};

/* Asks for what does not depend on the token: a warp does so before it makes a and b. */
DEV void columns_delta_ask(struct worker *w, struct columns_delta_early *e) {
    const struct delta_layout layout = delta_here();
    const float *norm = delta_constants_of(w, delta_nth(w->layer)) + delta_norm_offset(&layout);
    run_ask(w, 0, &e->run);
#if P_FOLLOWS
    owed_ask(w, &e->run, 0, &e->owed);
#endif
    runs_await(w);
    UNROLL
    for (int n = 0; n < HEAD_TURNS; n++) {
        const int word = n * LANES + w->lane, have = word < HEAD_WORDS;
        e->gain[n][0] = have ? const_loadf(norm + 2 * word) : 0;
        e->gain[n][1] = have ? const_loadf(norm + 2 * word + 1) : 0;
    }
    column_take(w, 0);
}

DEV void columns_delta(struct worker *w, struct columns_delta_early *e) {
#if P_FOLLOWS
    run_pay(w, &e->run, &e->owed);
    runs_settle(w, 1);
#endif
    consumers_sync(); /* all warps' sums for a and b are there */
    profile_layer(w, MARK_DELTA_INPUT);
    run_step(w, &e->run);
    const int turns = run_turns(w);
    NO_UNROLL
    for (int turn = 1; turn < turns; turn++) {
        run_ask(w, turn, &e->run);
        run_step(w, &e->run);
    }
    column_take(w, 0);
    profile_layer(w, MARK_DELTA_OWN);
    NO_UNROLL
    for (int item = 0; item < HEAD_ITEMS; item += HEAD_BATCH)
        heads_finish(w, item, (const float(*)[2])e->gain);
    if (OWN_HEADS)
        warp_sync();
    else
        consumers_sync();
}

#if P_FOLLOWS
/* ---- the end of a launch ---- */

/* Takes for running the sessions to which something is owed. */
DEV void sessions_owed(struct worker *w) {
    u32 owed = 0;
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        if (w->s->owed[c]) owed |= 1u << c;
    w->running = owed;
}

/* Pays to the states of all layers what the last pass of each session has left to pay. Consumers call it, behind the
 * last pick. */
DEV void states_settle(struct worker *w) {
    sessions_owed(w);
    if (!w->running) return;
    NO_UNROLL
    for (int layer = 0; layer < M_LAYERS; layer++) {
        w->layer = layer;
        if (layer_is_delta(layer)) runs_settle(w, 0);
    }
}

/* The same for the windows, by the epilogue. */
DEV void windows_settle(struct worker *w) {
    const struct delta_layout layout = delta_here();
    const int first = w->member * P_MIX_ROWS;
    sessions_owed(w);
    if (!w->running) return;
    NO_UNROLL
    for (int i = 0; i < M_LAYERS * MIX_TURNS; i++) {
        w->layer = i / MIX_TURNS;
        if (!layer_is_delta(w->layer)) continue;
        const int mine = mix_row(w, i % MIX_TURNS), have = mine < P_MIX_ROWS && first + mine < GROUP_CHANNELS;
        const int channel = have ? channel_of(w, first + mine) : 0;
        const int at = (int)delta_window(&layout, delta_nth(w->layer), channel);
        NO_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            float past[M_TAPS - 1];
            column_past(w, c, at, channel, have, past);
            u32 *window = column_window(w, at, have);
            UNROLL
            for (int k = 0; k < M_TAPS - 1; k++)
                if (window) plain_store32(window + k, float_bits(past[k]));
        }
    }
}
#endif

#endif
