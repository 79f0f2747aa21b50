/* What a plan would cost: plan_make chooses among plans by the estimated time of a token. */
#include "base/numbers.h"
#include "plan/plan_layout.h"

#include <math.h>

double plan_share_bytes_us(int compute) {
    static const struct {
        int compute;
        double bytes_us;
    } shares[] = { { 100, 50e3 }, { 90, 33.8e3 }, { 89, 7.5e3 },
                   { 86, 11e3 },  { 80, 16e3 },   { 75, 7.2e3 } };
    if (compute >= 120) return 10e3; /* consumer cards, unlike 100 */
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        if (compute >= shares[i].compute) return shares[i].bytes_us;
    return 7e3;
}

/* Time of an exchange on an idle card, fitted to docs/EXPERIMENTS.md "GPU shapes", (a). */
static double exchange_us(const struct plan_words *x) {
    return 0.45 + 0.0025 * x->readers + 0.00006 * x->words;
}

/* What a link between GPUs adds to an exchange of all SMs. 0.65 us were measured with 256 of them,
 * in tokens of Qwen3-0.6B; what is said here is fitted to whole tokens on two H200s: SmolLM2-135M
 * takes 200.1 us with 24 SMs a group, 201.5 with 32 and 202.7 with 36, Qwen3-0.6B 263 with 26, 264
 * with 24 and 272 with 32. Narrow weights have half of it: in int8 0.6B takes the same with 24 and
 * with 32. It is left out of layers with a DeltaNet, whose plans were not timed again. */
static double link_us(const struct plan *p, const struct plan_words *x) {
    const double reader_us = plan_narrow(&p->tape) ? 0.002 : 0.004;
    return p->n_gpus > 1 && x->readers == p->tape.n_sms ? reader_us * x->readers : 0;
}

/* Time of attention at 128 positions: gathering q, then rounds of pieces of 16 positions. */
static double attention_us(const struct plan *p) {
    enum { PIECES = 8 };
    return 0.5 + 0.7 * plan_ceil(PIECES * p->group_kv_heads, p->attention_warps);
}

/* Time from a phase's input to its partial sums published: the tiles in registers, then a slot at
 * a time from the ring. Fitted to "GPU shapes", (e), "Last word seen to published"; the ring's
 * part is a guess. */
static double phase_us(const struct plan *p, const struct tape_segment *g) {
    const int tiles = plan_warp_tiles(g), later = int_max(tiles - p->preload_tiles, 0);
    return 0.35 + 0.02 * g->warp_k + 0.05 * plan_ceil(later, p->slot_tiles);
}

/* Time of a DeltaNet layer: its exchanges, and its units one after the other. The units' states
 * are streamed as weights are. */
static double delta_us(const struct plan *p, double rate) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    if (d->n_layers == 0) return 0;
    const int edges[] = { X_MIX, X_DELTA, X_OUT_SUM, X_GATED, X_DOWN_SUM };
    const int phases[] = { TAPE_MIX, TAPE_OUT, TAPE_GATE_UP, TAPE_DOWN };
    const double turns = plan_ceil(d->units, t->group_sms);
    double sync = 0.5 * turns, stream = t->delta_bytes + turns * 8.0 * d->unit * d->key_dim;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        struct plan_words x = p->exchange[edges[i]];
        if (x.readers == t->group_sms) x.words /= (unsigned)t->n_groups;
        sync += exchange_us(&x);
    }
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        sync += phase_us(p, &t->segment[phases[i]]);
    stream /= rate;
    return sqrt(stream * stream + sync * sync);
}

/* What gathering the sums of more than four groups costs beside a stream of weights. One H200,
 * Llama-3.2-1B's shape: 8 groups of 16 SMs 711 us a token, 4 of 32 658, 2 of 64 684. It is left out
 * for models with norms of q and k, and for those with as many K/V heads as heads: their plans were
 * there before, and another number of groups adds in another order, so that their ids would not
 * stay what they are. */
static double gather_us(const struct plan *p) {
    const struct tape_shape *t = &p->tape;
    const unsigned words = p->exchange[X_OUT_SUM].words + p->exchange[X_DOWN_SUM].words;
    const bool as_before = p->qk_norm || t->group_q == t->group_kv || p->gpu.compute < 90;
    return as_before || t->n_groups <= 4 ? 0 : 0.00009 * words;
}

/* A layer's stream of weights and its exchanges hide a part of each other. The root of the sum of
 * their squares is 3 % off the one layout that was measured (7.1 and 5.0 us alone, 8.4 together).
 */
double plan_estimate_us(const struct plan *p) {
    const struct tape_shape *t = &p->tape;
    const double share = plan_share_bytes_us(p->gpu.compute);
    /* 120 of an H200's 132 SMs still read all that it gives. Of two H200s with 128 each Qwen3-14B
     * takes 3,666 us a token, with 124 each 3,968, Qwen3-8B 1,812 and with 132 1,849. */
    const double most_share = p->n_gpus > 1 ? 1.06 : 1.1;
    double rate = share * plan_all_sms(&p->gpu) / t->n_sms;
    if (rate > share * most_share) rate = share * most_share;
    const double turn_us = 0.25; /* a turn of the one thread that issues copies */
    if (rate > p->slot_bytes / turn_us) rate = p->slot_bytes / turn_us;
    const double group = t->n_groups;
    double sync = attention_us(p);
    for (int i = X_QKV; i <= X_DOWN_SUM; i++) {
        struct plan_words x = p->exchange[i];
        if (i == X_ATTENTION) continue;
        if (i == X_QKV || i == X_GATED) x.words = (unsigned)(x.words / group);
        sync += exchange_us(&x) + link_us(p, &x);
    }
    for (int i = 0; i < TAPE_HEAD; i++)
        sync += phase_us(p, &t->segment[i]);
    double stream = t->layer_bytes / rate;
    double layer = sqrt(stream * stream + sync * sync) + gather_us(p);
    const int deltas = p->delta.n_layers;
    return layer * (t->n_layers - deltas) + delta_us(p, rate) * deltas +
           t->segment[TAPE_HEAD].bytes / rate;
}
