/* The head and the pick for several columns.
 *   reads    h of all columns (registers), complete
 *   writes   each column's id and end; ids and ends to the columns' mailboxes
 *
 * A column picks as decode.cu does, from words of its own. Columns that take the best logit pick side by side, a warp
 * for each; columns that sample pick one after the other. */
#ifndef REEL_KERNELS_COLUMNS_HEAD_CUH
#define REEL_KERNELS_COLUMNS_HEAD_CUH

#include "columns.cuh"
#include "phase_head.cuh"

/* ---- the head ---- */

/* As columns_head_unit; `tiles` are this lane's bytes of the warp's first tile. */
DEV void columns_head_unit_narrow(struct worker *w, int q, const u8 *tiles, float (*d)[COLUMN_SUMS]) {
    const u32 *x = w->s->vectors.x + q * P_HEAD_UNIT * TILE_PARTS(P_HEAD_FORMAT) * X_STRIDE;
    UNROLL_BY(4)
    for (int k = 0; k < P_HEAD_UNIT; k++) {
        struct held t;
        held_read(&t, tiles + k * (int)tile_bytes(P_HEAD_FORMAT), w->lane, 1, P_HEAD_FORMAT);
        columns_narrow(d + (k & 1), &t, x + k * TILE_PARTS(P_HEAD_FORMAT) * X_STRIDE, 1, w->lane, 0, 1, 1,
                       P_HEAD_FORMAT);
    }
}

#if TILES_NARROW
/* As columns_head_unit, with weights that are integers. */
DEV void columns_head_unit_digits(struct worker *w, int q, struct digit_sums *s) {
    const int bytes = (int)tile_bytes(P_HEAD_FORMAT), steps = TILE_PARTS(P_HEAD_FORMAT) / 2;
    const u8 *tiles =
        w->ring + (size_t)w->slot * P_SLOT_BYTES +
        (size_t)(w->warp % HEAD_SLOT_WARPS * P_HEAD_UNIT * bytes + (int)tile_lane(P_HEAD_FORMAT, w->lane));
    const u32 *x = w->s->vectors.x + q * P_HEAD_UNIT * steps * DIGIT_STEP;
    UNROLL_BY(4)
    for (int k = 0; k < P_HEAD_UNIT; k++) {
        struct held t;
        held_read(&t, tiles + k * bytes, w->lane, k == 0 || !ROW_SCALED(P_HEAD_FORMAT), P_HEAD_FORMAT);
        digits_product(s, &t, x, w->lane, k, 1, 1, P_HEAD_FORMAT, 0);
    }
}
#endif

/* Multiplies one unit: P_HEAD_UNIT tiles of this warp's strip, in the slot at hand. */
DEV void columns_head_unit(struct worker *w, int q, float (*d)[COLUMN_SUMS]) {
    const u32 *x = w->s->vectors.x + q * P_HEAD_UNIT * X_STRIDE;
    const int bytes = (int)tile_bytes(P_HEAD_FORMAT);
    const u8 *tiles =
        w->ring + (size_t)w->slot * P_SLOT_BYTES +
        (size_t)(w->warp % HEAD_SLOT_WARPS * P_HEAD_UNIT * bytes + (int)tile_lane(P_HEAD_FORMAT, w->lane));
    if (TILE_NARROW(P_HEAD_FORMAT)) columns_head_unit_narrow(w, q, tiles, d);
    UNROLL_BY(8)
    for (int k = 0; k < (TILE_NARROW(P_HEAD_FORMAT) ? 0 : P_HEAD_UNIT); k++) {
        const struct quad a = tile_operand(P_HEAD_FORMAT, *(const struct quad *)(tiles + k * bytes));
        tile_columns_split(d[k & 1], a, x + k * X_STRIDE, X_SET, w->lane);
    }
}

/* Takes a logit of a column, as head_logit does. Only columns that sample want the keys. */
DEV void column_logit(struct worker *w, int column, int own, int id, int there, float logit, struct best *best) {
    const struct decode_args *a = &w->all->column[column];
    u32 key = 0;
    if (there) {
        if (a->sampling.adjust) {
            /* an idle column has the arguments of another, and of one that waits the host has yet to read them */
            if (a->logits && column_runs(w, column)) plain_store32((u32 *)a->logits + id, float_bits(logit));
            logit = pick_adjust(a, id, logit);
        }
        best_offer(best, logit, (u32)id);
        if (logit > bits_float(0xff800000u)) key = sampling_order(logit);
    }
    if (a->sampling.temperature > 0 && own < OWN_ROWS) column_keys(w->s, column)[own] = key;
}

/* Sets of columns whose sums a lane has at the end of a strip, one column of each: HEAD_COLUMN, in the lanes of
 * HEAD_LANE. */
enum { HEAD_SETS = DIGITS(P_HEAD_FORMAT) ? (int)DIGIT_SETS : (int)SETS };
#define HEAD_COLUMN(set, lane)                                                                                         \
    (DIGITS(P_HEAD_FORMAT) ? 2 * (set) + (lane) % 4 / 2 : (set)*SET_COLUMNS + (lane) % 4 % SET_COLUMNS)
#define HEAD_LANE(lane) (DIGITS(P_HEAD_FORMAT) ? (lane) % 2 == 0 : (lane) % 4 < SET_COLUMNS)

/* Takes the sums of one strip: sums[2 * set + i], of row lane / 4 + 8 * i. */
DEV void columns_strip(struct worker *w, int tile, int mine, const float *sums, const float *scale, struct best *best) {
    if (!HEAD_LANE(w->lane)) return;
    UNROLL
    for (int set = 0; set < HEAD_SETS; set++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int row = w->lane / 4 + 8 * i, id = (tile * P_SMS + w->block) * TILE_ROWS + row;
            column_logit(w, HEAD_COLUMN(set, w->lane), tile * TILE_ROWS + row, id, mine && id < M_VOCAB,
                         sums[2 * set + i] * scale[set], best + set);
        }
    }
}

/* Each warp leaves its best of each column. */
DEV void columns_best_leave(struct worker *w, struct best *best) {
    UNROLL
    for (int set = 0; set < HEAD_SETS; set++) {
        UNROLL
        for (int i = 4; i < LANES; i *= 2) {
            const u32 key = shuffle_xor(best[set].key, i), id = shuffle_xor(best[set].id, i);
            best_meet(best + set, key, id);
        }
        const int column = HEAD_COLUMN(set, w->lane);
        if (w->lane < 4 && HEAD_LANE(w->lane))
            w->s->best_key[column][w->warp] = best[set].key, w->s->best_id[column][w->warp] = best[set].id;
    }
}

/* Stores the digits of the head's input, in one unit for all warps. */
DEV void columns_head_digits(struct worker *w, float (*h)[2 * SLICE], const float *gain, float *unit) {
#if HEAD_DIGITS
    u32 most[COLUMNS];
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        float v[2 * SLICE];
        slice_normed(h[c], gain, v);
        const u32 mine = digits_most(v, 2 * SLICE);
        if (w->lane == 0) w->s->most[c][w->warp] = mine;
    }
    consumers_sync();
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        most[c] = 0;
        UNROLL
        for (int i = 0; i < P_WARPS; i++)
            most[c] = w->s->most[c][i] > most[c] ? w->s->most[c][i] : most[c];
    }
    columns_norm_digits(w, h, gain, most, unit);
#else
    (void)w, (void)h, (void)gain, (void)unit;
#endif
}

/* Makes the vectors that the head multiplies, and what the sums of each set's column are multiplied by; units of
 * digits: into `unit`. */
DEV void columns_head_norm(struct worker *w, float (*h)[2 * SLICE], const float *gain, float *scale, float *unit) {
    float units[COLUMNS];
    if (DIGITS(P_HEAD_FORMAT))
        columns_head_digits(w, h, gain, units);
    else
        columns_norm(w, h, gain);
    columns_ssq(w, h, 0);
    consumers_sync();
    UNROLL
    for (int set = 0; set < HEAD_SETS; set++) {
        scale[set] = norm_scale(w->s->ssq[0][HEAD_COLUMN(set, w->lane)]);
        unit[set] = !DIGITS(P_HEAD_FORMAT) ? 1 : w->lane % 4 / 2 ? units[2 * set + 1] : units[2 * set];
    }
}

#if P_LEAVES && !P_TAPS
/* Block 0 leaves what the layers made of the columns that run, from which the draft layer guesses. It does so before
 * the final norm: the registers of h are free behind that. */
DEV void columns_leave(const struct worker *w, float (*h)[2 * SLICE]) {
    UNROLL
    for (int i = 0; i < COLUMNS * SLICE; i++) {
        const int c = i / SLICE, word = i % SLICE * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        u32 *to = (u32 *)w->all->column[c].hidden + 2 * pair;
        if (!column_runs(w, c) || word >= SLICE_WORDS || pair >= M_HIDDEN / 2 || w->block != 0) continue;
        plain_store32(to, float_bits(h[c][i % SLICE * 2]));
        plain_store32(to + 1, float_bits(h[c][i % SLICE * 2 + 1]));
    }
}
#endif

/* Multiplies a strip. sums: as columns_strip takes them. there: some warp has a strip in this round. */
DEV void columns_strip_multiply(struct worker *w, int mine, int there, const float *unit, float *sums) {
    const int before = w->warp / HEAD_SLOT_WARPS; /* slots of a row ahead of this warp's */
    float d[2][COLUMN_SUMS];
    UNROLL
    for (int i = 0; i < 2 * COLUMN_SUMS; i++)
        d[i / COLUMN_SUMS][i % COLUMN_SUMS] = 0;
#if TILES_NARROW
    struct digit_sums s[2];
    digits_zero(s, 2);
#endif
    for (int q = 0; q < HEAD_UNITS && there; q++) {
        u32 seen = 0;
        slots_skip(w, before);
        head_wait(w);
#if TILES_NARROW
        if (DIGITS(P_HEAD_FORMAT)) {
            if (mine) columns_head_unit_digits(w, q, s);
            UNROLL
            for (int i = 0; i < 2 * DIGIT_SUMS; i++)
                seen ^= float_bits(s[i / DIGIT_SUMS].f[i % DIGIT_SUMS]) ^ (u32)s[i / DIGIT_SUMS].n[i % DIGIT_SUMS];
            seen ^= float_bits(s[0].scale[0]);
        }
#endif
        if (!DIGITS(P_HEAD_FORMAT)) {
            if (mine) columns_head_unit(w, q, d);
            UNROLL
            for (int i = 0; i < 2 * COLUMN_SUMS; i++)
                seen ^= float_bits(d[i / COLUMN_SUMS][i % COLUMN_SUMS]);
        }
        head_release(w, seen);
        slots_skip(w, HEAD_ROW_SLOTS - before);
        w->slot = head_row_back(w->slot);
    }
#if TILES_NARROW
    if (DIGITS(P_HEAD_FORMAT)) {
        digits_meet(&s[0], &s[1]);
        digits_end(&s[0], unit, sums, P_HEAD_FORMAT);
    }
#endif
    UNROLL
    for (int i = 0; i < (DIGITS(P_HEAD_FORMAT) ? 0 : 2); i++)
        tile_columns_fold(d[i]);
    UNROLL
    for (int i = 0; i < (DIGITS(P_HEAD_FORMAT) ? 0 : COLUMN_SUMS); i++)
        d[0][i] += d[1][i];
    tile_columns_end(d[0]);
    UNROLL
    for (int i = 0; i < (DIGITS(P_HEAD_FORMAT) ? 0 : 2 * SETS); i++)
        sums[i] = tile_split_sum(d[0], i / 2, i % 2, w->lane);
}

/* Multiplies all strips of this SM. */
DEV void columns_head(struct worker *w, float (*h)[2 * SLICE], const float *gain) {
    const int tiles = head_tiles(w);
    struct best best[HEAD_SETS];
    float scale[HEAD_SETS], unit[HEAD_SETS];
#if P_LEAVES && !P_TAPS
    columns_leave(w, h);
#endif
    columns_head_norm(w, h, gain, scale, unit);
    UNROLL
    for (int set = 0; set < HEAD_SETS; set++)
        best[set].key = best[set].id = 0;
    for (int first = 0; first < P_HEAD_ROW_TILES; first += P_WARPS) {
        const int tile = first + w->warp;
        float sums[2 * HEAD_SETS];
        columns_strip_multiply(w, tile < tiles, first < tiles, unit, sums);
        columns_strip(w, tile, tile < tiles, sums, scale, best);
    }
    lanes_agree(w);
    columns_best_leave(w, best);
}

/* ---- ids that the host draws ---- */

#if COLUMNS_WAIT
#define GIVEN 0x80000000u

/* Whether the host may be asked at the end of this pass. The epilogue calls it. */
DEV int host_is_asked(const struct worker *w) {
    int some = 0;
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        some |= column_waits(w, c) | (!w->s->column_end[c] & (int)(w->all->asks >> c & 1));
    return some;
}

/* Block 0 reads what the host has given to columns that wait. It does so late in a pass, for the host had its question
 * in the pass before. */
DEV void given_look(struct worker *w) {
    if (w->block != 0 || w->warp != WARP_EPILOGUE || w->lane >= COLUMNS || !column_waits(w, w->lane)) return;
    const u64 word = mapped_load64(&w->all->column[w->lane].mailbox->given);
    const u32 n = (u32)column_turn(w, w->lane);
    w->s->given[w->lane] = (u32)(word >> 32) == n + 1 ? (u32)word | GIVEN : 0;
}

/* What a block publishes for a column that waits: block 0 what the host has given, with a key that is not 0. */
DEV struct best column_given(const struct worker *w, int column) {
    struct best b = { 0, 0 };
    const u32 given = w->s->given[column];
    if (w->block == 0 && given) b.key = 1, b.id = given & ~GIVEN;
    return b;
}

/* Block 0 tells the host of a column that waits that its logits are there: all blocks have stored them, fenced and said
 * so. n: the id that is asked for. */
DEV void host_asked(const struct worker *w, int n) {
    if (w->block != 0 || w->lane != 0 || w->dead || !column_waits(w, w->column)) return;
    fence_system();
    mapped_store32(&w->a->mailbox->asks, (u32)n + 1);
}

/* What becomes of a column that waits, or whose ids the host draws all. p: what the blocks have published of it. */
DEV void column_leave_to_host(struct worker *w, struct picked *p) {
    const int n = column_turn(w, w->column), waits = column_waits(w, w->column);
    p->settled = waits && p->best.key, p->makes = 1;
    if (!waits || p->settled || p->stop || w->dead)
        pick_decide(w, n, p);
    else if (w->lane == 0)
        OF_COLUMN(w, waited)++;
    host_asked(w, n);
}

DEV int column_asks(const struct worker *w, int column) {
    return column_waits(w, column) || (w->all->asks & w->running) >> column & 1;
}
#else
DEV struct best column_given(const struct worker *w, int column) {
    struct best b = { 0, 0 };
    return (void)w, (void)column, b;
}
#endif

/* ---- the end of a token ---- */

/* The epilogue publishes the block's best logit of each column. See best_publish. */
DEV void columns_best_publish(struct worker *w) {
    NO_UNROLL
    for (int c = w->warp - WARP_EPILOGUE; c < COLUMNS; c += P_EPILOGUE_WARPS) {
        struct best b = { 0, 0 };
        column_take(w, c);
        if (w->lane < P_WARPS) b.key = w->s->best_key[c][w->lane], b.id = w->s->best_id[c][w->lane];
        b = best_of_warp(b);
        if (column_waits(w, c)) b = column_given(w, c);
        if (w->lane == 0) best_store(w, w->a->words + X_BEST + 2 * w->block, b, host_stops(w, column_turn(w, c)));
    }
    column_take(w, 0);
}

DEV int column_makes(const struct worker *w, int column) {
    return column_runs(w, column) && column_turn(w, column) >= w->all->column[column].n_given - 1;
}

DEV int column_samples(const struct worker *w, int column) {
#if COLUMNS_WAIT
    if (w->all->asks >> column & 1) return 0;
#endif
    return column_makes(w, column) && w->all->column[column].sampling.temperature > 0;
}

/* Picks for the columns that take the best, each by one warp. A column that is over waits for its words all the same:
 * no block goes on before all have published. */
DEV void columns_pick_best(struct worker *w) {
    NO_UNROLL
    for (int c = w->warp; c < COLUMNS; c += P_WARPS) {
        struct picked p = { { 0, 0 }, 0, column_makes(w, c), 1 };
        column_take(w, c);
        if (column_samples(w, c)) continue;
        p.best = best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, 0, &p.stop);
#if P_FOLLOWS
        if (w->lane == 0) w->s->found_key[c] = p.best.key, w->s->found_id[c] = p.best.id | p.stop;
#else
        if (column_asks(w, c))
            column_leave_to_host(w, &p);
        else if (column_runs(w, c))
            pick_decide(w, column_turn(w, c), &p);
#endif
    }
    column_take(w, 0);
    if (w->dead && w->lane == 0) w->s->gave_up = 1;
}

#if P_FOLLOWS
/* Decides in the columns that take the best, a session's columns one after the other. */
DEV void columns_decide(struct worker *w) {
    consumers_sync(); /* all warps have found theirs */
    NO_UNROLL
    for (int c = 0; c < COLUMNS && w->warp == 0; c++) {
        struct picked p = { { w->s->found_key[c], w->s->found_id[c] & ~BEST_STOP }, 0, column_makes(w, c), 1 };
        p.stop = w->s->found_id[c] & BEST_STOP;
        column_take(w, c);
        if (column_runs(w, c) && !column_samples(w, c) && column_reached(w, c)) pick_decide(w, column_turn(w, c), &p);
        warp_sync(); /* the next column may be reached now */
    }
    column_take(w, 0);
}

/* Moves a session on by the ids that this pass has made, and finds the drafts of the next one: what the host expects
 * behind these ids, also where it has expected others in their place, since columns without drafts cost as much. n:
 * columns of the session. */
DEV void session_goes_on(struct worker *w, int first, int n) {
    struct block_shared *s = w->s;
    int made = 1, live = 0;
    u64 word = word_make(NO_GUESS, w->epoch);
    while (made < n && s->reached >> (first + made) & 1)
        made++;
    if (n > 1) words_gather(w, w->all->column[first].words + X_GUESS, &word, 1, GUESSES, 0, WAIT_BEST);
    const u32 guess = (u32)word, end = s->column_end[first + made - 1], id = s->id[first + made - 1];
    const u32 turn = s->turn[first] + (u32)made, next = shuffle(guess, (made + w->lane - 1) & (LANES - 1));
    const u32 there = warp_ballot(w->lane < GUESSES && guess < M_VOCAB) >> made;
    const int room = w->all->column[first].n_tokens - 1 - (int)turn;
    while (!end && live < n - 1 && live < room && there >> live & 1)
        live++;
    warp_sync(); /* all lanes have read what follows overwrites */
#if M_DELTA
    if (w->lane == 0 && column_runs(w, first)) s->owed[first] = (u32)made - 1;
#endif
    if (w->lane >= n) return;
    s->turn[first + w->lane] = turn + (u32)w->lane;
    s->drafted[first + w->lane] += (u32)live;
    s->id[first + w->lane] = w->lane == 0 ? id : next;
    s->column_end[first + w->lane] = w->lane == 0      ? end
                                     : w->lane <= live ? (u32)DECODE_RUNNING
                                                       : (u32)DECODE_ALL_TOKENS;
    if (w->lane == 0) s->drafts = (s->drafts & ~(((1u << n) - 1) << first)) | ((1u << live) - 1) << (first + 1);
}

DEV void sessions_go_on(struct worker *w) {
    NO_UNROLL
    for (int c = 0; c < COLUMNS && w->warp == 0; c += session_columns(w, c))
        session_goes_on(w, c, session_columns(w, c));
    warp_sync();
    if (w->warp == 0 && w->lane == 0) {
        w->s->reached = 0;
        if (w->dead) w->s->gave_up = 1;
    }
    consumers_sync();
}

/* The draft of a column in the first pass, or -1. gap: a column before it has none. */
DEV int first_draft(const struct worker *w, int column, int gap) {
    const int draft = w->all->draft[column];
#if P_LEAVES
    if (w->all->guessed && draft >= 0) {
        u32 id = plain_load32(w->all->guessed + column - 1);
        if (P_TAPS) id = guess_means(id, w->all->meant, w->all->n_meant);
        return !gap && id < M_VOCAB ? (int)id : -1;
    }
#endif
    return (void)gap, draft;
}

/* One thread calls it before any pass. */
DEV void drafts_start(struct worker *w) {
    struct block_shared *s = w->s;
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c += session_columns(w, c)) {
        int n = 0;
        NO_UNROLL
        for (int i = 1; i < session_columns(w, c); i++) {
            const int draft = first_draft(w, c + i, n < i - 1);
            s->turn[c + i] = (u32)i, s->id[c + i] = (u32)draft;
            if (draft < 0)
                s->column_end[c + i] = DECODE_ALL_TOKENS;
            else
                s->drafts |= 1u << (c + i), n++;
        }
        NO_UNROLL
        for (int i = 0; i < session_columns(w, c); i++)
            s->drafted[c + i] = (u32)n;
    }
}
#endif

/* Whether the launch is over now. All consumers find the same. */
DEV u32 columns_end(const struct worker *w, int t) {
    int over = 1, early = 0;
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const int ends = w->s->column_end[c] != 0 && !column_waits(w, c);
#if P_FOLLOWS
        if (w->all->follows >> c & 1) continue;
#endif
        over &= ends;
        early |= ends && w->all->column[c].n_tokens > 0;
    }
    if (w->s->gave_up) return DECODE_STOPPED;
    return over || (w->all->ends_early && early) || t == w->all->n_passes - 1 ? DECODE_ALL_TOKENS : DECODE_RUNNING;
}

#if COLUMNS_WAIT
/* Tells the host what a launch that is over has made in columns that are not. One that waits has its last token through
 * the layers, and no id of it. One thread calls it. */
DEV void columns_left_tell(const struct worker *w, int t) {
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const u32 n = (u32)t + 1 - w->s->waited[c];
        if (w->all->column[c].n_tokens <= 0 || (w->s->column_end[c] && !column_waits(w, c))) continue;
        mapped_store32(&w->all->column[c].mailbox->n_made, n);
        mapped_store32(&w->all->column[c].mailbox->n_evaluated, n + (u32)column_waits(w, c));
    }
}
#endif

/* Tells the block, and in block 0 the host, how the launch goes on. */
DEV void columns_tell(struct worker *w, int t, u32 end) {
    struct decode_mailbox *m = w->all->mailbox;
    if (w->warp != 0 || w->lane != 0) return;
    w->s->end = end;
    shared_store(smem_of(&w->s->picked), (u32)t + 1);
    if (!end || w->block != 0 || w->s->gave_up) return;
#if COLUMNS_WAIT
    columns_left_tell(w, t);
#endif
    mapped_store32(&m->n_evaluated, (u32)t + 1);
    fence_system();
    mapped_store32(&m->end, end);
}

#if COLUMNS_WAIT
/* Shows the host the logits of a column that samples. All consumer warps call it. */
DEV void logits_show(const struct worker *w, int column) {
    const struct decode_args *a = &w->all->column[column];
    const u32 *keys = column_keys(w->s, column);
    NO_UNROLL
    EACH_OWN_ROW(w, row) {
        const int id = own_id(w->block, row);
        if (id >= M_VOCAB) continue;
        const u32 bits =
            a->sampling.adjust ? plain_load32((const u32 *)a->logits + id) : float_bits(sampling_from_order(keys[row]));
        plain_store32((u32 *)w->all->shown[column] + id, bits);
    }
}
#endif

/* Picks what follows token t in each column. All consumer warps call it. Returns whether the launch is over. */
DEV u32 columns_pick(struct worker *w, int t) {
    columns_pick_best(w);
#if P_FOLLOWS
    columns_decide(w);
#endif
    NO_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        if (!column_samples(w, c) || !column_reached(w, c)) continue;
        if (w->warp == 0 && w->lane == 0) w->s->pick_column = (u32)c;
        consumers_sync();
        const int picked = pick_sampled(&w->all->column[c], w->s, w->epoch, column_turn(w, c), w->dead);
        w->dead |= picked & PICK_DEAD;
#if COLUMNS_WAIT
        if (picked & PICK_UNSETTLED) logits_show(w, c);
#endif
        if (w->dead && w->lane == 0) w->s->gave_up = 1;
    }
    fence_slot(); /* the keys lay in the slots of K and V */
    consumers_sync();
#if P_FOLLOWS
    sessions_go_on(w);
#endif
    const u32 end = columns_end(w, t);
    columns_tell(w, t, end);
    return end;
}

#endif
