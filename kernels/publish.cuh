/* How phases end. The warps of a block have stored their partial products of a phase; behind a barrier its consumers
 * add them up, each thread those of a row of a column, and publish the sums. Then the consumers go on. The epilogue's
 * warps have other work: they add up groups' sums where these take two hops (two_hops.cuh), apply a DeltaNet's
 * convolution to the sums of mix, and end a token. */
#ifndef REEL_KERNELS_PUBLISH_CUH
#define REEL_KERNELS_PUBLISH_CUH

#include "product.cuh"
#include "two_hops.cuh"

/* The partial sums of a column, of qkv and gate_up and of out and down, and its sums of squares. */
#if P_COLUMNS > 1
DEV const float *hidden_parts(const struct worker *w, int column) { return w->s->part_hidden[column]; }
DEV const float *group_parts(const struct worker *w, int column) { return w->s->part_group[column]; }
DEV const float *column_ssq(const struct worker *w, int which, int column) { return w->s->ssq[which][column]; }
#else
DEV const float *hidden_parts(const struct worker *w, int column) { return (void)column, w->s->part[0]; }
DEV const float *group_parts(const struct worker *w, int column) { return (void)column, w->s->part[1]; }
DEV const float *column_ssq(const struct worker *w, int which, int column) { return (void)column, w->s->ssq[which]; }
#endif

/* The consumers share the rows of all columns, one column after the other: `at` is the warp's first one of a turn. All
 * lanes of a warp take part in a turn. */
#define EACH_TURN(w, at, n)                                                                                            \
    NO_UNROLL                                                                                                          \
    for (int at = (w)->warp * LANES; at < (n); at += CONSUMER_THREADS)

#if M_QKV_BIAS
/* Loads the bias of the row of q, k or v that a thread publishes: it is asked for before the phase's input has come, as
 * biases come from memory, behind the weights' stream. 0: padding. */
DEV float qkv_bias_ask(const struct worker *w, int at) {
    const int row = (at + w->lane) % (P_QKV_ROW_TILES * TILE_ROWS), first = w->member * P_QKV_ROWS;
    const int have = row < P_QKV_ROWS && first + row < QKV_GROUP_ROWS;
    return have ? qkv_bias_load(w->a, w->layer, w->token, qkv_model_row(w->group, first + row)) : 0;
}
#endif

/* bias: of the thread's first row. */
DEV void qkv_publish(struct worker *w, float bias) {
    enum { ROWS = P_QKV_ROW_TILES * TILE_ROWS, ALL = P_COLUMNS * ROWS };
    const int first = w->member * P_QKV_ROWS;
    consumers_sync(); /* qkv's sums */
    EACH_TURN(w, at, ALL) {
        const int i = at + w->lane, column = i < ALL ? i / ROWS : 0, row = i % ROWS;
        u64 *to = column_words(w, X_QKV, column) + w->group * (QKV_GROUP_ROWS / 2) + first / 2;
        float sum = row_sum(hidden_parts(w, column), row, P_QKV_K_PARTS) * norm_scale(column_ssq(w, 0, column));
#if M_QKV_BIAS
        sum += at < CONSUMER_THREADS ? bias : qkv_bias_ask(w, at);
#endif
        publish_pair(w, to, row, i < ALL && row < P_QKV_ROWS ? QKV_GROUP_ROWS - first : 0, sum);
    }
    (void)bias;
}

DEV void gate_up_publish(struct worker *w) {
    enum { ROWS = P_GATE_UP_ROW_TILES * TILE_ROWS / 2, ALL = P_COLUMNS * ROWS };
    const int first = w->member * GATE_UP_PAIRS;
    consumers_sync(); /* gate_up's sums */
    EACH_TURN(w, at, ALL) {
        const int i = at + w->lane, column = i < ALL ? i / ROWS : 0, row = i % ROWS;
        u64 *to = column_words(w, X_GATED, column) + w->group * (P_GROUP_INTERMEDIATE / 2) + first / 2;
        const float scale = norm_scale(column_ssq(w, 1, column)), *part = hidden_parts(w, column);
        const float gate = row_sum(part, tape_pair_row(row, 0), P_GATE_UP_K_PARTS) * scale;
        const float up = row_sum(part, tape_pair_row(row, 1), P_GATE_UP_K_PARTS) * scale;
        publish_pair(w, to, row, i < ALL && row < GATE_UP_PAIRS ? P_GROUP_INTERMEDIATE - first : 0, silu(gate) * up);
    }
}

/* Publishes the sums of this SM's `rows` rows of out or down. */
DEV void sums_publish(struct worker *w, int exchange, int rows, const int row_tiles, const int k_parts) {
    const int of_column = row_tiles * TILE_ROWS, all = P_COLUMNS * of_column, first = w->member * rows;
    EACH_TURN(w, at, all) {
        const int i = at + w->lane, column = i < all ? i / of_column : 0, row = i % of_column;
        u64 *to = column_words(w, exchange, column) + w->group * (M_HIDDEN / 2) + first / 2;
        const float sum = row_sum(group_parts(w, column), row, k_parts);
        publish_sum(w, to, column, row, i < all && row < rows ? M_HIDDEN - first : 0, sum);
    }
}

/* With two hops the epilogue waits until the block has published the sums of out and of down. Else it waits for the
 * last down of a token alone. Behind that it fences, so there a consumer says that it is done when the rows of K and V
 * are stored, too (layer_done). */
DEV int down_is_told(const struct worker *w) { return P_TWO_HOPS || w->layer == M_LAYERS - 1; }

DEV void out_publish(struct worker *w) {
    consumers_sync(); /* out's sums */
    sums_publish(w, X_OUT_SUM, P_OUT_ROWS, P_OUT_ROW_TILES, P_OUT_K_PARTS);
    if (P_TWO_HOPS) parts_done(w);
}

DEV void down_publish(struct worker *w) {
    consumers_sync(); /* down's sums */
    sums_publish(w, X_DOWN_SUM, P_DOWN_ROWS, P_DOWN_ROW_TILES, P_DOWN_K_PARTS);
    if (down_is_told(w) && w->layer < M_LAYERS - 1) parts_done(w);
}

DEV void layer_done(struct worker *w) {
    if (w->layer == M_LAYERS - 1) parts_done(w);
}

#endif
