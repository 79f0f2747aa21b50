/* Draws an id as the host's sampler_draw does, bit for bit, but spread over all SMs. The largest logit comes from the
 * exchange of bests (best.cuh). Every id's noise is a function of seed, position and id. So the blocks only have to
 * agree on which ids are kept:
 *
 *   each     temperature, min-p: an id is kept or not by itself. Each block draws among its own rows, and one more
 *            exchange of bests, of the scores', ends the draw. This file has it.
 *   list     top-k, top-p: blocks publish their candidates, and all blocks judge them alike. sample_list.cuh
 *   search   top-p that keeps more ids than lists have room for. sample_search.cuh
 *   host     what the others cannot settle: the launch ends with DECODE_HOST_PICKS */
#ifndef REEL_KERNELS_SAMPLE_CUH
#define REEL_KERNELS_SAMPLE_CUH

#include "best.cuh"

/* What picking makes of a token. */
struct picked {
    struct best best; /* key 0: no logit is a number */
    u32 stop;
    int makes;   /* an id is wanted */
    int settled; /* 0: only the host can draw it */
};

/* Sampling is made of calls: inlined, it would cost its caller registers. For the same reason the calls take values and
 * no worker; this function makes anew what they need of one. */
DEV struct worker sampler_worker(const struct decode_args *a, struct block_shared *s, u32 epoch, int t, int dead) {
    struct worker w;
    w.a = a, w.s = s;
    w.block = (int)block_index();
#if P_GPUS > 1
    w.block += gpus_of(s)->gpus->gpu * GPU_SMS;
#endif
    w.warp = (int)(thread_index() / LANES), w.lane = (int)(thread_index() % LANES);
    w.epoch = epoch;
    w.token = t, w.layer = M_LAYERS, w.dead = dead;
#if P_COLUMNS > 1
    w.column = (int)s->pick_column;
#endif
    return w;
}

/* Returns the position at which the new id will stand. */
DEV u64 position_of(const struct worker *w) { return (u64)w->a->position + (u64)w->token + 1; }

/* A thread that draws takes 4 rows at a time: one call of the random function makes the noise of 4 ids. */
enum { STEP_ROWS = 4 * CONSUMER_THREADS };
#if P_HEAD_ROW_TILES > 4096
#error "a local row of the head must fit in 16 bits"
#endif

DEV int own_id(int block, int row) { return (row / TILE_ROWS * P_SMS + block) * TILE_ROWS + row % TILE_ROWS; }

/* Walks over this thread's share of its block's rows. The loop has few bytes of code, because a token runs it but
 * once and fetches it from far away. */
#define EACH_OWN_ROW(w, row) for (int row = (w)->warp * LANES + (w)->lane; row < OWN_ROWS; row += CONSUMER_THREADS)

/* Returns the logit of one of this block's rows; -infinity where there is no number. */
DEV float own_logit(const struct worker *w, int row) {
    const u32 key = row < OWN_ROWS ? kept_keys(w->s)[row] : 0;
    return key ? sampling_from_order(key) : bits_float(0xff800000u);
}

/* An id's scaled logit, and whether min-p keeps the id; both as the host computes them. */
DEV float own_scaled(const struct worker *w, float logit, float largest) {
    return sampling_scale(logit, largest, w->a->sampling.temperature);
}
DEV int min_p_keeps(const struct worker *w, float scaled) {
    const float min_p = w->a->sampling.min_p;
    return !(min_p > 0) || sampling_exp(scaled) >= min_p;
}

DEV u64 shuffle_xor64(u64 v, int mask) {
    return (u64)shuffle_xor((u32)(v >> 32), mask) << 32 | shuffle_xor((u32)v, mask);
}
DEV u64 warp_sum64(u64 v) {
    UNROLL
    for (int i = 1; i < LANES; i *= 2)
        v += shuffle_xor64(v, i);
    return v;
}
DEV u64 warps_sum(const u64 *of_warp) {
    u64 sum = 0;
    UNROLL
    for (int i = 0; i < P_WARPS; i++)
        sum += of_warp[i];
    return sum;
}

/* Each warp leaves its best. After a barrier one warp may ask block_best for the best of them. */
DEV void block_best_leave(struct worker *w, struct best b) {
    struct pick_shared *s = &w->s->PICK_AT;
    b = best_of_warp(b);
    if (w->lane == 0) s->best_key[w->warp] = b.key, s->best_id[w->warp] = b.id;
}
DEV struct best block_best(const struct worker *w) {
    const struct pick_shared *s = &w->s->PICK_AT;
    struct best b = { 0, 0 };
    if (w->lane < P_WARPS) b.key = s->best_key[w->lane], b.id = s->best_id[w->lane];
    return best_of_warp(b);
}

/* Where in a block's words of X_PICK each kind of them begins. Each kind has a place of its own, because a word says
 * which token it belongs to, but not which step. */
enum { LIST_WORD = 0, SPLIT_WORD = 40, SCORE_WORD = 62, LIST_AGAIN_WORD = 64 };
#if P_PICK_WORDS < 104
#error "a block needs 104 words to sample"
#endif

DEV u64 *own_words(const struct worker *w) { return w->a->words + X_PICK + w->block * P_PICK_WORDS; }

/* ---- each id by itself ---- */

struct four {
    float logit[4], noise[4];
};

DEV struct four four_load(const struct worker *w, u64 position, int row) {
    struct four f;
    u32 r[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        f.logit[i] = own_logit(w, row + i);
    sampling_random(w->a->sampling.seed, position, (u32)own_id(w->block, row) / 4, &r[0], &r[1], &r[2], &r[3]);
    NO_UNROLL
    for (int i = 0; i < 4; i++) { /* the arrays rotate, so that one copy of the code serves four */
        const float noise = sampling_gumbel(r[0]);
        r[0] = r[1], r[1] = r[2], r[2] = r[3];
        f.noise[0] = f.noise[1], f.noise[1] = f.noise[2], f.noise[2] = f.noise[3], f.noise[3] = noise;
    }
    return f;
}

DEV void four_offer(const struct worker *w, struct best *b, const struct four *f, float largest, u32 least, int row) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float scaled = own_scaled(w, f->logit[i], largest);
        if (sampling_order(f->logit[i]) >= least && min_p_keeps(w, scaled))
            best_offer(b, sampling_add(scaled, f->noise[i]), (u32)own_id(w->block, row + i));
    }
}

/* Returns this thread's best score among the rows whose order key is at least `least`. f: the thread's first four. */
DEV struct best own_draw(const struct worker *w, struct four f, u64 position, float largest, u32 least) {
    int row = 4 * (w->warp * LANES + w->lane);
    struct best b = { 0, 0 };
    NO_UNROLL
    for (;;) {
        four_offer(w, &b, &f, largest, least, row);
        row += STEP_ROWS;
        if (row >= OWN_ROWS) return b;
        f = four_load(w, position, row);
    }
}

/* Returns the best of all blocks' scores. Warp 0 calls it, after a barrier. */
DEV struct best score_exchange(struct worker *w) {
    u32 none;
    const struct best b = block_best(w);
    if (w->lane == 0) best_store(w, own_words(w) + SCORE_WORD, b, 0);
    return best_gather(w, w->a->words + X_PICK + SCORE_WORD, P_PICK_WORDS, WAIT_PICK, 0, &none);
}

/* Draws where an id is kept or not by itself. The threads make their first rows' noise while the largest logit is on
 * its way. */
DEV void draw_each(struct worker *w, u64 position, struct picked *p) {
    struct pick_shared *s = &w->s->PICK_AT;
    const struct four f = four_load(w, position, 4 * (w->warp * LANES + w->lane));
    if (w->warp == 0) {
        p->best = best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, 0, &p->stop);
        if (w->lane == 0) s->largest = p->best.key;
    }
    consumers_sync();
    if (!s->largest) return;
    block_best_leave(w, own_draw(w, f, position, sampling_from_order(s->largest), 0));
    consumers_sync();
    if (w->warp == 0) p->best = score_exchange(w);
}

#endif
