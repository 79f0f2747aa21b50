/* Owns the penalties' counts and the scratch for one vocabulary. Work is proportional to what the
 * sampling leaves: greedy is one pass over the logits, top-k adds a few blocks, and only top-p or
 * min-p without top-k look at the whole vocabulary a second time. */
#include "runtime/sampler.h"

#include "base/memory.h"
#include "base/struct_size.h"
#include "kernels/sampling.h"
#include "runtime/logits.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, NOISE_IDS = 4 * LANES };

struct sampler {
    int vocab;
    struct backend_sampling
        sampling; /* its ids and n_ids: those whose held or generated is not 0 */

    uint8_t *held;      /* [vocab] the session holds the id */
    int32_t *generated; /* [vocab] times this call generated it */
    int32_t *touched;   /* [vocab] memory of sampling.ids */

    float *adjusted;  /* [vocab] logits after bias and penalties */
    float *block_max; /* [logits_blocks(vocab)] */
    int32_t *ids;     /* [vocab] candidates, ascending */
    float *scaled;    /* [vocab, rounded up to LANES] of the candidates */
    float *share;     /* the same length: exp(scaled) */
};

enum reel_status sampler_open(struct sampler **out, int vocab, struct reel_error *err) {
    *out = NULL;
    struct sampler *s = NULL;
    size_t n = (size_t)vocab, n_blocks = (size_t)logits_blocks(vocab);
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "the sampler", err);
    if (status != REEL_OK) return status;
    s->vocab = vocab;
    status = mem_zeroed(&s->held, n, sizeof *s->held, "penalty counts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->generated, n, sizeof *s->generated, "penalty counts", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->touched, n, sizeof *s->touched, "penalty counts", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->adjusted, n, sizeof *s->adjusted, "adjusted logits", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->block_max, n_blocks, sizeof *s->block_max, "block maxima", err);
    if (status == REEL_OK) status = mem_aligned(&s->ids, n, sizeof *s->ids, "candidate ids", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->scaled, n + LANES, sizeof *s->scaled, "candidate logits", err);
    if (status == REEL_OK)
        status = mem_aligned(&s->share, n + LANES, sizeof *s->share, "candidate weights", err);
    if (status == REEL_OK) status = sampler_start(s, NULL, err);
    if (status != REEL_OK) {
        sampler_close(s);
        return status;
    }
    *out = s;
    return REEL_OK;
}

void sampler_close(struct sampler *s) {
    if (!s) return;
    mem_free(s->held);
    mem_free(s->generated);
    mem_free(s->touched);
    mem_free(s->adjusted);
    mem_free(s->block_max);
    mem_free(s->ids);
    mem_free(s->scaled);
    mem_free(s->share);
    mem_free(s);
}

/* ---- settings ---- */

static enum reel_status out_of_range(const char *field, double value, const char *allowed,
                                     struct reel_error *err) {
    return err_set(err, REEL_E_ARGUMENT, "sampling: %s is %g, allowed is %s", field, value,
                   allowed);
}

static enum reel_status check_numbers(const struct reel_sampling *set, struct reel_error *err) {
    if (!(set->temperature >= 0 && set->temperature <= FLT_MAX))
        return out_of_range("temperature", (double)set->temperature,
                            "0 or a finite positive number", err);
    if (set->top_k < 0) return out_of_range("top_k", set->top_k, "0 (off) or more", err);
    if (!(set->top_p >= 0 && set->top_p <= 1))
        return out_of_range("top_p", (double)set->top_p, "0 to 1", err);
    if (!(set->min_p >= 0 && set->min_p <= 1))
        return out_of_range("min_p", (double)set->min_p, "0 to 1", err);
    if (!(set->repetition_penalty >= 0 && set->repetition_penalty <= FLT_MAX))
        return out_of_range("repetition_penalty", (double)set->repetition_penalty,
                            "0 (off) or a finite positive number", err);
    if (!isfinite(set->presence_penalty))
        return out_of_range("presence_penalty", (double)set->presence_penalty, "a finite number",
                            err);
    if (!isfinite(set->frequency_penalty))
        return out_of_range("frequency_penalty", (double)set->frequency_penalty, "a finite number",
                            err);
    return REEL_OK;
}

static enum reel_status check_bias(const struct reel_sampling *set, int vocab,
                                   struct reel_error *err) {
    if (set->n_bias < 0 || (set->n_bias > 0 && !set->bias))
        return err_set(err, REEL_E_ARGUMENT, "sampling: n_bias is %d with %s list", set->n_bias,
                       set->bias ? "a" : "no");
    for (int i = 0; i < set->n_bias; i++) {
        if (set->bias[i].id < 0 || set->bias[i].id >= vocab)
            return err_set(err, REEL_E_ARGUMENT, "sampling: bias %d is for id %d, ids are 0 to %d",
                           i, (int)set->bias[i].id, vocab - 1);
        if (isnan(set->bias[i].bias) || set->bias[i].bias == INFINITY)
            return out_of_range("a logit bias", (double)set->bias[i].bias,
                                "a finite number or -infinity", err);
    }
    return REEL_OK;
}

enum reel_status sampler_start(struct sampler *s, const struct reel_sampling *sampling,
                               struct reel_error *err) {
    struct reel_sampling set;
    enum reel_status status = struct_read(&set, sizeof set, sampling, "reel_sampling", err);
    if (status == REEL_OK) status = check_numbers(&set, err);
    if (status == REEL_OK) status = check_bias(&set, s->vocab, err);
    if (status != REEL_OK) return status;
    if (set.top_k >= s->vocab) set.top_k = 0;
    if (set.top_p == 1) set.top_p = 0;
    if (set.repetition_penalty == 0) set.repetition_penalty = 1;
    s->sampling.set = set;
    s->sampling.ids = s->touched;
    s->sampling.generated = s->generated;
    s->sampling.penalises =
        set.repetition_penalty != 1 || set.presence_penalty != 0 || set.frequency_penalty != 0;
    for (int i = 0; i < s->sampling.n_ids; i++) {
        s->held[s->touched[i]] = 0;
        s->generated[s->touched[i]] = 0;
    }
    s->sampling.n_ids = 0;
    return REEL_OK;
}

static void touch(struct sampler *s, int32_t id) {
    if (s->held[id]) return;
    s->held[id] = 1;
    s->touched[s->sampling.n_ids++] = id;
}

void sampler_saw_prompt(struct sampler *s, int32_t id) {
    if (s->sampling.penalises && id >= 0 && id < s->vocab) touch(s, id);
}

void sampler_saw_generated(struct sampler *s, int32_t id) {
    if (!s->sampling.penalises || id < 0 || id >= s->vocab) return;
    touch(s, id);
    if (s->generated[id] < INT_MAX) s->generated[id]++;
}

const struct backend_sampling *sampler_sampling(const struct sampler *s) { return &s->sampling; }

/* ---- one draw ---- */

/* The logits after bias and penalties: the caller's own when nothing changes them. */
static const float *adjust(struct sampler *s, const float *logits) {
    const struct reel_sampling *set = &s->sampling.set;
    if (!set->n_bias && !s->sampling.n_ids) return logits;
    memcpy(s->adjusted, logits, (size_t)s->vocab * sizeof *logits);
    for (int i = 0; i < set->n_bias; i++)
        s->adjusted[set->bias[i].id] += set->bias[i].bias;
    for (int i = 0; i < s->sampling.n_ids; i++) {
        int32_t id = s->touched[i];
        s->adjusted[id] =
            sampling_penalise(s->adjusted[id], 1, s->generated[id], set->repetition_penalty,
                              set->presence_penalty, set->frequency_penalty);
    }
    return s->adjusted;
}

/* Moves candidate `from` down to place `to`. */
static void keep(struct sampler *s, int from, int to) {
    s->ids[to] = s->ids[from];
    s->scaled[to] = s->scaled[from];
    s->share[to] = s->share[from];
}

/* Narrows the n candidates to those from which the prefix that weighs `need` may come, one byte of
 * their order at a time, from the top: what lies above the byte where the sum reaches `need` is in,
 * what lies below is out. Leaves in *last the logit where the prefix ends, in *need what ids that
 * tie there have to weigh, and returns how many candidates are at least *last. */
static int narrow(struct sampler *s, const float *logits, int n, uint64_t *need, float *last) {
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t sum[256] = { 0 };
        for (int i = 0; i < n; i++) {
            uint32_t key = sampling_order(logits[s->ids[i]]);
            if ((key & mask) == prefix) sum[key >> shift & 255] += sampling_weight(s->share[i]);
        }
        if (shift == 24) { /* the first pass sees all */
            uint64_t total = 0;
            for (int digit = 0; digit < 256; digit++)
                total += sum[digit];
            *need = sampling_top_p_need(total, s->sampling.set.top_p);
        }
        uint32_t digit = 255;
        while (digit > 0 && sum[digit] < *need)
            *need -= sum[digit--];
        prefix |= digit << shift;
        mask |= (uint32_t)255 << shift;
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (sampling_order(logits[s->ids[i]]) >= prefix) keep(s, i, kept++);
        n = kept;
    }
    *last = sampling_from_order(prefix);
    return n;
}

/* Keeps the smallest prefix, in order (logit descending, id ascending), whose weights reach top_p
 * of all. Ids that tie where it ends weigh the same; the lowest are kept. */
static int keep_top_p(struct sampler *s, const float *logits, int n) {
    uint64_t need = 0, tied = 0;
    float last = 0;
    int kept = 0;
    n = narrow(s, logits, n, &need, &last);
    for (int i = 0; i < n; i++) {
        if (logits[s->ids[i]] == last) {
            if (tied >= need) continue;
            tied += sampling_weight(s->share[i]);
        }
        keep(s, i, kept++);
    }
    return kept;
}

static int keep_min_p(struct sampler *s, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (s->share[i] >= s->sampling.set.min_p) keep(s, i, kept++);
    return kept;
}

/* The best id so far; the lowest id wins a tie whatever the order of offers. */
struct winner {
    int32_t id;
    float score;
};

static void offer(struct winner *w, int32_t id, float score) {
    if (score > w->score || (score == w->score && id < w->id)) {
        w->score = score;
        w->id = id;
    }
}

static int32_t draw_candidates(const struct sampler *s, int n, uint64_t position) {
    struct winner best = { s->ids[0], -INFINITY };
    unsigned word[4] = { 0 }, group = UINT_MAX;
    for (int i = 0; i < n; i++) {
        if (s->scaled[i] + SAMPLING_GUMBEL_MAX < best.score) continue;
        unsigned id = (unsigned)s->ids[i];
        if (id / 4 != group) {
            group = id / 4;
            sampling_random(s->sampling.set.seed, position, group, &word[0], &word[1], &word[2],
                            &word[3]);
        }
        offer(&best, s->ids[i], sampling_add(s->scaled[i], sampling_gumbel(word[id % 4])));
    }
    return best.id;
}

/* Random words of the NOISE_IDS ids from `first` on: word[w][j] is that of id first + 4 j + w. */
static void random_run(uint64_t seed, uint64_t position, unsigned first, unsigned word[4][LANES]) {
    for (unsigned j = 0; j < LANES; j++)
        sampling_random(seed, position, first / 4 + j, &word[0][j], &word[1][j], &word[2][j],
                        &word[3][j]);
}

/* Whether one of these words makes noise of at least `least`. The noise is -log(-log(1 - v)), which
 * is below -log(v), and v is (word / 2 + 1/2) / 2^31: a comparison of integers spares nearly all
 * ids their logarithms. A hundredth more makes up for rounding. */
static bool may_reach(unsigned word[4][LANES], float least) {
    if (least < 0.05f) return true; /* the limit would not fit */
    int limit = (int)(sampling_exp(-least) * 1.01f * 2147483648.0f);
    int lane[LANES] = { 0 };
    for (int w = 0; w < 4; w++)
        for (int j = 0; j < LANES; j++)
            lane[j] |= -((int)(word[w][j] >> 1) <= limit);
    int any = 0;
    for (int j = 0; j < LANES; j++)
        any |= lane[j];
    return any != 0;
}

/* Offers n ids from `first` on, at most NOISE_IDS, whose scaled logit is at most `bound`. */
static void offer_run(const struct sampler *s, const float *logits, int first, int n, float largest,
                      float bound, uint64_t position, struct winner *best) {
    unsigned word[4][LANES];
    float score[NOISE_IDS];
    random_run(s->sampling.set.seed, position, (unsigned)first, word);
    if (!may_reach(word, best->score - bound)) return;
    for (int w = 0; w < 4; w++) {
        float lane[LANES];
        for (int j = 0; j < LANES; j++)
            lane[j] = sampling_gumbel(word[w][j]);
        for (int j = 0; j < LANES; j++)
            score[4 * j + w] = lane[j];
    }
    for (int j = 0; j < n; j++) {
        float scaled = sampling_scale(logits[first + j], largest, s->sampling.set.temperature);
        offer(best, first + j, sampling_add(scaled, score[j]));
    }
}

/* Every id is kept. Blocks that cannot win with the largest possible noise are passed over. */
static int32_t draw_all(const struct sampler *s, const float *logits, float largest,
                        uint64_t position) {
    struct winner best = { INT32_MAX, -INFINITY };
    /* begin where the largest logit is: what is found there spares most of the rest */
    int at = logits_argmax(logits, s->vocab, s->block_max) / NOISE_IDS * NOISE_IDS;
    int n_at = s->vocab - at < NOISE_IDS ? s->vocab - at : NOISE_IDS;
    offer_run(s, logits, at, n_at, largest, 0, position, &best);
    for (int b = 0; b < logits_blocks(s->vocab); b++) {
        float bound = sampling_scale(s->block_max[b], largest, s->sampling.set.temperature);
        if (!(s->block_max[b] > -INFINITY) || bound + SAMPLING_GUMBEL_MAX < best.score) continue;
        int first = b * LOGITS_BLOCK;
        int end = s->vocab - first < LOGITS_BLOCK ? s->vocab : first + LOGITS_BLOCK;
        for (; first < end; first += NOISE_IDS) {
            int n = end - first < NOISE_IDS ? end - first : NOISE_IDS;
            offer_run(s, logits, first, n, largest, bound, position, &best);
        }
    }
    return best.id;
}

/* LANES logits to what top-p, min-p and the draw need. */
static void weigh(float *scaled, float *share, float largest, float temperature) {
    float lane[LANES], e[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = sampling_scale(scaled[j], largest, temperature);
    for (int j = 0; j < LANES; j++)
        e[j] = sampling_exp(lane[j]);
    memcpy(scaled, lane, sizeof lane);
    memcpy(share, e, sizeof e);
}

static int find_candidates(struct sampler *s, const float *logits, float largest) {
    const struct reel_sampling *set = &s->sampling.set;
    int n = set->top_k ? logits_top(logits, s->vocab, s->block_max, set->top_k, s->ids, s->scaled)
                       : logits_collect(logits, s->vocab, s->block_max, -INFINITY, s->ids);
    for (int i = 0; i < n; i++)
        s->scaled[i] = logits[s->ids[i]];
    for (int i = 0; i < n; i += LANES) /* there is room for a last whole step */
        weigh(s->scaled + i, s->share + i, largest, set->temperature);
    if (set->top_p > 0) n = keep_top_p(s, logits, n);
    if (set->min_p > 0) n = keep_min_p(s, n);
    return n;
}

int32_t sampler_draw(struct sampler *s, const float *logits, int64_t position) {
    const struct reel_sampling *set = &s->sampling.set;
    const float *l = adjust(s, logits);
    logits_block_max(l, s->vocab, s->block_max);
    int32_t id = logits_argmax(l, s->vocab, s->block_max);
    if (id < 0 || set->temperature == 0) return id;
    float largest = l[id];
    if (!set->top_k && set->top_p == 0 && set->min_p == 0)
        return draw_all(s, l, largest, (uint64_t)position);
    int n = find_candidates(s, l, largest);
    return draw_candidates(s, n, (uint64_t)position);
}

/* ---- log-probabilities ---- */

/* The sum of exp(logit - largest), in a fixed order, whatever vectors it is compiled for. */
static inline __attribute__((always_inline)) double sum_exp_in_lanes(const float *logits, int n,
                                                                     float largest) {
    double lane[LANES] = { 0 };
    float e[LANES];
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            e[j] = sampling_exp(sampling_scale(logits[i + j], largest, 1.0f));
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)e[j];
    }
    for (; i < n; i++)
        lane[0] += (double)sampling_exp(sampling_scale(logits[i], largest, 1.0f));
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double sum_exp_avx512(const float *logits, int n,
                                                                float largest) {
    return sum_exp_in_lanes(logits, n, largest);
}
__attribute__((target("avx2"))) static double sum_exp_avx2(const float *logits, int n,
                                                           float largest) {
    return sum_exp_in_lanes(logits, n, largest);
}
#endif

static double sum_exp(const float *logits, int n, float largest) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return sum_exp_avx512(logits, n, largest);
    if (__builtin_cpu_supports("avx2")) return sum_exp_avx2(logits, n, largest);
#endif
    return sum_exp_in_lanes(logits, n, largest);
}

/* Keeps the cap largest, the lowest id first among equals. Ids are offered in ascending order. */
static void insert_top(struct reel_top_logprob *top, int *n, int cap, int32_t id, float logit) {
    int at = *n;
    while (at > 0 && top[at - 1].logprob < logit)
        at--;
    if (at == cap) return;
    int last = *n < cap ? *n : cap - 1;
    for (int i = last; i > at; i--)
        top[i] = top[i - 1];
    top[at] = (struct reel_top_logprob){ id, logit };
    if (*n < cap) (*n)++;
}

int sampler_logprobs(struct sampler *s, const float *logits, int32_t id, float *logprob,
                     struct reel_top_logprob *top, int n_top) {
    logits_block_max(logits, s->vocab, s->block_max);
    int32_t best = logits_argmax(logits, s->vocab, s->block_max);
    float largest = best < 0 ? 0.0f : logits[best];
    float log_sum = best < 0 ? 0.0f : sampling_log((float)sum_exp(logits, s->vocab, largest));
    *logprob = sampling_scale(logits[id], largest, 1.0f) - log_sum;
    if (n_top == 0) return 0;
    int n = logits_top(logits, s->vocab, s->block_max, n_top, s->ids, s->scaled), n_found = 0;
    for (int i = 0; i < n; i++)
        insert_top(top, &n_found, n_top, s->ids[i], logits[s->ids[i]]);
    for (int i = 0; i < n_found; i++)
        top[i].logprob = sampling_scale(top[i].logprob, largest, 1.0f) - log_sum;
    return n_found;
}
