/* decode.cu for several columns (docs/BATCHES.md): one launch takes the tokens of up to P_COLUMNS sessions through all
 * layers, a token of each in a pass, and picks the next tokens itself. The plan, the tapes and the warps' roles are
 * those of decode.cu (docs/KERNELS.md). Each column's ids, keys and values are bit for bit those of decode.cu.
 *
 * A column that is over, or that was idle from the start, goes through the passes all the same, as a session of one
 * position whose results nobody wants: no wait needs to know which columns run. */
#include "columns_attention.cuh"
#include "columns_head.cuh"
#include "phase_embed.cuh"
#include "profile.cuh"
#if M_DELTA
#include "columns_delta.cuh"
#endif

STATIC_ASSERT(SHARED_BYTES == P_SHARED_BYTES, "the plan counts shared memory of several columns otherwise");
STATIC_ASSERT(((int)COLUMNS - (int)KEYS_IN_SLOTS) * (int)OWN_ROWS <= (int)COLUMNS * (int)HIDDEN_PARTS,
              "the slots of K and V and the partial sums do not hold the columns' keys");
STATIC_ASSERT(sizeof(struct columns_args) <= 4096, "a kernel has 4 KB of arguments");

/* A warp's attention to large heads takes so many registers that out's tiles wait in the ring until it is over. */
enum { OUT_LATE = M_HEAD_DIM > (TOGETHER && COLUMNS > 4 ? 64 : 128) };

/* The consumers' part of a layer that mixes positions: qkv and attention, from their input on. Leaves the tiles of out
 * in t. */
DEV void attention_layer(struct worker *w, struct held *t, float (*h)[2 * SLICE], float *gain, float bias) {
    columns_qkv(w, t, h, gain, bias);
    profile_layer(w, MARK_QKV);
    worker_anew(w);
    if (!OUT_LATE) TILES_TAKE(w, t, OUT);
    if (!OUT_LATE) profile_layer(w, MARK_OUT_WEIGHTS);
    columns_attend(w, attention_nth(w->layer));
    if (OUT_LATE) TILES_TAKE(w, t, OUT);
    columns_attended(w);
    profile_layer(w, MARK_ATTENTION);
}

#if M_DELTA
/* The first tiles of mix are taken as those of qkv are. */
enum { MIX_LIKE_QKV = PRELOAD(MIX) == PRELOAD(QKV) && P_MIX_FORMAT == P_QKV_FORMAT };

/* The same part of a layer that is a Gated DeltaNet: mix and delta. Leaves the tiles of out in t. */
DEV void delta_layer(struct worker *w, struct held *t, u32 (*gates)[2][SLICE], float (*h)[2 * SLICE], float *gain) {
    struct columns_delta_early early;
    columns_mix(w, t, h, gain);
    profile_layer(w, MARK_MIX);
    worker_anew(w);
    columns_delta_ask(w, &early);
    columns_gates(w, gates, h, gain);
    columns_delta(w, &early);
    TILES_TAKE(w, t, OUT); /* not before: states and h of all columns take the registers */
    profile_layer(w, MARK_DELTA);
}
#endif

/* The consumers' part of one layer. h comes in without the sums of the layer before, for which this layer waits. */
DEV void layer_consume(struct worker *w, int layer, float (*h)[2 * SLICE]) {
    const float *norms = w->a->norms + (size_t)2 * layer * M_HIDDEN;
    struct held t[HELD_TILES];
    float gain[2 * SLICE];
    w->layer = layer;
    worker_anew(w);
#if M_DELTA
    if (MIX_LIKE_QKV || layer_is_delta(layer))
        TILES_TAKE(w, t, MIX);
    else
#endif
        TILES_TAKE(w, t, QKV);
    profile_layer(w, MARK_QKV_WEIGHTS);
    gains_load(w, norms, gain);
    float bias = 0;
#if M_QKV_BIAS
    bias = qkv_bias_ask(w, w->warp * LANES);
#endif
#if M_DELTA
    u32 gates[GATES_HELD][2][SLICE];
    if (layer_is_delta(layer)) gates_load(w, gates);
#endif
    if (layer > 0) columns_input(w, 1, h);
    w->epoch = epoch_next(w->epoch);
    profile_layer(w, MARK_QKV_INPUT);
#if P_LEAVES && P_TAPS
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        if (column_runs(w, c)) taps_leave(w, h[c], w->all->column[c].hidden);
#endif
#if M_DELTA
    if (layer_is_delta(layer))
        delta_layer(w, t, gates, h, gain);
    else
#endif
        attention_layer(w, t, h, gain, bias);
    columns_out(w, t);
    profile_layer(w, MARK_OUT);
    worker_anew(w);
    TILES_TAKE(w, t, GATE_UP);
    profile_layer(w, MARK_GATE_UP_WEIGHTS);
    gains_load(w, norms + M_HIDDEN, gain);
    columns_input(w, 0, h);
    profile_layer(w, MARK_GATE_UP_INPUT);
    columns_gate_up(w, t, h, gain);
    profile_layer(w, MARK_GATE_UP);
    worker_anew(w);
    TILES_TAKE(w, t, DOWN);
    profile_layer(w, MARK_DOWN_WEIGHTS);
    columns_down(w, t);
#if STAGED
    stages_keep(w, attention_nth(layer));
#endif
    layer_done(w);
    profile_layer(w, MARK_DOWN);
}

/* The id of a column's token; 0 where the column is over. */
DEV u32 column_id(const struct worker *w, int column) {
    const struct decode_args *a = &w->all->column[column];
    const int turn = column_turn(w, column);
    if (!column_runs(w, column)) return 0;
    const u32 id = turn < a->n_given && a->ids ? const_load32((const u32 *)a->ids + turn) : w->s->id[column];
    return id < M_VOCAB ? id : 0;
}

/* What a column's h is made of. */
struct column_source {
    const float *given;
    struct embedding_row row;
    u32 id;
};
DEV struct column_source column_source(const struct worker *w, int t, int column) {
    const struct decode_args *a = &w->all->column[column_runs(w, column) ? column : 0];
    struct column_source s;
    s.id = column_id(w, column), s.given = embedding_given(a, t), s.row = embedding_row(w, a, s.id);
    return s;
}
DEV u64 shuffle_wide(u64 v, int lane) { return (u64)shuffle((u32)(v >> 32), lane) << 32 | shuffle((u32)v, lane); }
/* Of a column, as the lane of that number has found it. */
DEV struct column_source source_of(struct column_source s, int column) {
    s.given = (const float *)shuffle_wide((u64)s.given, column), s.id = NARROW_EMBEDDING ? shuffle(s.id, column) : 0;
    s.row.at = (const u8 *)shuffle_wide((u64)s.row.at, column);
    s.row.step = shuffle(s.row.step, column), s.row.row = shuffle(s.row.row, column);
    return s;
}

/* Makes h of each column's token t. All columns' rows are asked for before the first is looked at. Where the rows of
 * more than two columns lie, lanes find side by side: code that runs once a pass is slow, as all of it has to be
 * fetched. */
DEV void columns_embed(struct worker *w, int t, float (*h)[2 * SLICE]) {
    enum { SIDE_BY_SIDE = COLUMNS > 2 };
    struct embedded e[COLUMNS][SLICE];
    struct column_source found;
    if (SIDE_BY_SIDE) found = column_source(w, t, w->lane % COLUMNS);
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const struct column_source s = SIDE_BY_SIDE ? source_of(found, c) : column_source(w, t, c);
        embedding_ask(w, s.given, s.row, s.id, e[c]);
    }
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        embedding_make(w, e[c], h[c]);
}

#if P_TWO_HOPS
/* Makes the words of h that an epilogue thread keeps. */
DEV void reduced_start(struct worker *w, int t, float (*kept)[2]) {
    columns_anew(w);
    UNROLL
    for (int n = 0; n < REDUCE_TURNS; n++) {
        const struct reduced r = reduced_at(w, n);
        const struct decode_args *a = &w->all->column[column_runs(w, r.column) ? r.column : 0];
        if (a->embeddings && t < a->n_given) {
            const float *given = a->embeddings + (size_t)t * M_HIDDEN + 2 * r.word;
            kept[n][0] = const_loadf(given), kept[n][1] = const_loadf(given + 1);
        } else {
            embedding_two(w, a, column_id(w, r.column), r.word, kept[n]);
        }
    }
}
#endif

/* What a consumer warp does in a launch. `finish` walks through the same phases. */
DEV void consume(struct worker *w) {
    for (int t = 0;; t++) {
        float h[COLUMNS][2 * SLICE], gain[2 * SLICE];
        w->token = t;
        profile_token(w, MARK_TOKEN);
        columns_anew(w);
        columns_embed(w, t, h);
        columns_cosines(w);
        column_take(w, 0);
        profile_token(w, MARK_EMBED);
        NO_UNROLL
        for (int layer = 0; layer < M_LAYERS; layer++)
            layer_consume(w, layer, h);
        profile_token(w, MARK_LAYERS);
        gains_load(w, w->a->norms + (size_t)2 * M_LAYERS * M_HIDDEN, gain);
        columns_input(w, 1, h);
        profile_token(w, MARK_HEAD_INPUT);
        columns_head(w, h, gain);
        profile_token(w, MARK_HEAD);
        w->epoch = epoch_next(w->epoch);
        parts_done(w);
        const u32 end = columns_pick(w, t);
        profile_token(w, MARK_PICK);
        parts_done(w); /* the epilogue may read s->end */
        if (end) break;
    }
#if P_FOLLOWS && M_DELTA
    states_settle(w);
#endif
}

/* Block 0 reads what the host wrote to the columns' mailboxes, once a token. */
DEV void host_look(struct worker *w) {
    if (w->block != 0 || w->warp != WARP_EPILOGUE || w->lane >= COLUMNS) return;
    const struct decode_args *a = &w->all->column[w->lane];
    if (a->n_tokens <= 0) return;
    w->s->stop[w->lane] = mapped_load32(&a->mailbox->stop);
    w->s->taken[w->lane] = mapped_load32(&a->mailbox->taken);
}

#if P_FOLLOWS
/* Block 0 publishes what the host expects behind the columns at hand of each session that may have drafts. */
DEV void guesses_publish(struct worker *w) {
    if (w->block != 0 || w->warp != WARP_EPILOGUE) return;
    NO_UNROLL
    for (int c = 0; c < COLUMNS - 1; c++) {
        if (!column_leads(w, c)) continue;
        const struct decode_args *a = &w->all->column[c];
        const u32 position = (u32)(a->position + column_turn(w, c) + 1 + w->lane);
        if (w->lane >= GUESSES) continue;
        const u64 word = mapped_load64(&a->mailbox->guesses[position % MAILBOX_GUESSES]);
        const u32 id = (u32)(word >> 32) == position + 1 ? (u32)word : NO_GUESS;
        word_tell(w, a->words + X_GUESS + w->lane, word_make(id, w->epoch));
    }
}
#endif

/* What an epilogue warp does in a launch. */
DEV void finish(struct worker *w) {
    for (int t = 0;; t++) {
        w->token = t;
        if (!P_FOLLOWS) host_look(w);
#if M_DELTA
        columns_anew(w); /* which columns' windows move on */
#endif
#if P_TWO_HOPS
        float kept[REDUCE_TURNS][2];
        reduced_start(w, t, kept);
#endif
        NO_UNROLL
        for (int layer = 0; layer < M_LAYERS; layer++) {
            w->layer = layer;
            w->epoch = epoch_next(w->epoch);
#if M_DELTA
            worker_anew(w);
            if (layer_is_delta(layer)) columns_mix_publish(w);
#endif
#if P_TWO_HOPS
            worker_anew(w);
            parts_wait(w);
            sums_reduce(w, X_OUT_SUM, X_OUT_H, kept, WAIT_OUT_SUM);
#endif
            if (down_is_told(w)) parts_wait(w);
#if P_TWO_HOPS
            worker_anew(w);
            sums_reduce(w, X_DOWN_SUM, X_DOWN_H, kept, WAIT_DOWN_SUM);
#endif
        }
        w->epoch = epoch_next(w->epoch);
#if P_FOLLOWS
        host_look(w); /* late: what the host says now it says of the pass before */
        guesses_publish(w);
#endif
#if COLUMNS_WAIT
        given_look(w);
#endif
        columns_looked_wait(w);
        fence_gpu(); /* K and V rows of this token are ordered here, long before a block waits for its end */
        parts_wait(w);
#if COLUMNS_WAIT
        if (host_is_asked(w)) fence_system(); /* it reads logits that this block has shown */
#endif
        columns_best_publish(w);
        parts_wait(w); /* waits until the consumers have picked */
        if (w->s->end) break;
    }
#if P_FOLLOWS && M_DELTA
    windows_settle(w);
#endif
}

/* Clears the block's shared memory and makes its barriers. All threads of the block call. */
DEV void block_start(struct worker *w) {
    struct block_shared *s = w->s;
    const u32 thread = thread_index(), threads = thread_count();
    for (u32 i = thread; i < sizeof *s / 4; i += threads)
        ((u32 *)s)[i] = 0;
    block_sync();
    if (thread == 0) {
        for (int i = 0; i < RING_SLOTS; i++)
            mbar_init(&s->full[i], FILL_LANES), mbar_init(&s->empty[i], P_WARPS);
        for (int i = 0; i < P_KV_SLOTS; i++)
            mbar_init(&s->kv_full[i], FILL_LANES), mbar_init(&s->kv_empty[i], 1);
        mbar_init(&s->looked, KV_PRODUCERS);
        for (int c = 0; c < COLUMNS; c++)
            if (w->all->column[c].n_tokens <= 0) s->column_end[c] = DECODE_ALL_TOKENS;
#if P_FOLLOWS
        drafts_start(w);
#endif
        caps_start(w);
        mbar_init_done();
    }
    block_sync();
}

KERNEL(P_THREADS) columns(const PARAMETER struct columns_args args GPUS_PARAMETER) {
    u8 *base = shared_base();
    struct worker w;
    w.all = &args;
    w.ring = base, w.kv_ring = base + RING_BYTES;
    w.s = (struct block_shared *)(base + RING_BYTES + KV_RING_BYTES);
    /* These come out of a shuffle: the compiler would otherwise read the special registers again at every use. */
    const int thread = (int)shuffle_xor(thread_index(), 0);
    w.warp = thread / LANES, w.lane = thread % LANES;
    w.block = (int)shuffle_xor(block_index(), 0);
#if P_GPUS > 1
    w.block += (int)shuffle_xor((u32)gpus.gpu, 0) * GPU_SMS;
#endif
    w.group = w.block / P_GROUP_SMS, w.member = w.block % P_GROUP_SMS;
    w.full = smem_of(w.s->full), w.empty = smem_of(w.s->empty);
    w.slot = 0, w.parity = 0, w.parts = 0;
    w.kv_turn = 0, w.kv_laps = 0;
#if STAGED
    w.part = w.part_at = 0;
#else
    w.o_turn = 0;
#endif
    w.running = w.splits = w.attends = 0;
#if P_FOLLOWS
    w.needs = 0;
#endif
    column_take(&w, 0);
    w.epoch = w.a->epoch;
    w.token = 0, w.layer = 0, w.phase = 0, w.dead = 0;
    w.zero = w.a->patience >> 31;
    block_start(&w);
#if P_GPUS > 1
    gpus_keep(w.s, &gpus);
#endif
    if (w.warp < P_WARPS) {
        REGISTERS_TAKE(P_REGISTERS_CONSUMER);
        consume(&w);
    } else {
        REGISTERS_GIVE(P_REGISTERS_OTHER);
        if (w.warp < WARP_WEIGHTS)
            finish(&w);
        else if (w.warp == WARP_WEIGHTS)
            weights_produce(&w);
        else
            columns_kv_produce(&w);
    }
}
