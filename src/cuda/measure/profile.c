#include "cuda/measure/profile.h"

#include "base/memory.h"
#include "kernels/kv_layout.h"
#include "kernels/profile_marks.h"
#include "plan/plan_layout.h"

#include <stdlib.h>
#include <string.h>

/* A u32 clock comes round every 2.1 s at 2 GHz; below this a difference is never ambiguous. */
#define LONGEST_TOKEN_NS 1e9

const char *const profile_phase_names[PROFILE_N_PHASES] = { "embed",   "qkv",  "attention", "out",
                                                            "gate_up", "down", "mix",       "delta",
                                                            "head",    "pick" };

bool profile_has(const struct plan *plan, enum profile_phase phase) {
    const int deltas = plan->delta.n_layers;
    if (phase == PROFILE_MIX || phase == PROFILE_DELTA) return deltas > 0;
    if (phase == PROFILE_QKV || phase == PROFILE_ATTENTION) return deltas < plan->tape.n_layers;
    return true;
}

/* ---- stamps ---- */

/* A token's marks in the order of time: token, embed, the layers', head input, head, pick. The mark
 * MARK_LAYERS tells nothing that its neighbours do not. */
enum { MARKS_BEFORE = 2, MARKS_AFTER = 3 };

int profile_stamps(const struct plan *plan) { return PROFILE_MARKS(plan->tape.n_layers); }

/* The last one ends where the next token begins. */
int profile_spans(const struct plan *plan) {
    return MARKS_BEFORE + plan->tape.n_layers * PROFILE_LAYER_MARKS + MARKS_AFTER;
}

static const uint32_t *stamps_of(const struct profile_run *run, int token, int sm) {
    const size_t row = (size_t)token * (size_t)run->plan->tape.n_sms + (size_t)sm;
    return run->stamps + row * (size_t)profile_stamps(run->plan);
}

/* The i-th mark of a token. */
static uint32_t clock_at(const uint32_t *stamps, const struct plan *plan, int i) {
    static const int before[MARKS_BEFORE] = { MARK_TOKEN, MARK_EMBED };
    static const int after[MARKS_AFTER] = { MARK_HEAD_INPUT, MARK_HEAD, MARK_PICK };
    const int n_layer_marks = plan->tape.n_layers * PROFILE_LAYER_MARKS;
    if (i < MARKS_BEFORE) return stamps[before[i]];
    i -= MARKS_BEFORE;
    return i < n_layer_marks ? stamps[PROFILE_TOKEN_MARKS + i] : stamps[after[i - n_layer_marks]];
}

static uint64_t time_of(const uint32_t *stamps) {
    return (uint64_t)stamps[MARK_TIME_HIGH] << 32 | stamps[MARK_TIME_LOW];
}

/* ---- spans ---- */

/* Whether a warp's tiles of a phase are all in registers before its input arrives; if not, the rest
 * comes through the ring during the arithmetic. */
static enum profile_kind product_kind(const struct plan *plan, enum tape_phase phase) {
    const struct tape_segment *g = &plan->tape.segment[phase];
    return plan_warp_tiles(g) > plan->preload_tiles ? PROFILE_STREAMING : PROFILE_ARITHMETIC;
}

/* How an SM waits for words of all groups. */
static enum profile_kind all_kind(const struct plan *plan) {
    return plan->n_gpus > 1 ? PROFILE_ACROSS : PROFILE_EXCHANGE;
}

#define SPAN(p, k)                                                                                 \
    (struct profile_span) { .phase = PROFILE_##p, .kind = (k), .layer = layer }
static struct profile_span delta_span(const struct plan *plan, int layer, int mark) {
    switch ((int)mark) {
    case MARK_MIX_WEIGHTS:
        return SPAN(MIX, PROFILE_WEIGHTS);
    case MARK_MIX_INPUT:
        return SPAN(MIX, layer == 0 ? PROFILE_ARITHMETIC : all_kind(plan));
    case MARK_MIX:
        return SPAN(MIX, product_kind(plan, TAPE_MIX));
    case MARK_DELTA_OWN:
        return SPAN(DELTA, PROFILE_ARITHMETIC);
    default: /* MARK_DELTA_INPUT, MARK_DELTA */
        return SPAN(DELTA, PROFILE_EXCHANGE);
    }
}

static bool only_mixes(int mark) {
    return mark <= MARK_QKV || (mark >= MARK_ATTENTION_INPUT && mark <= MARK_ATTENTION);
}

static struct profile_span layer_span(const struct plan *plan, int layer, int mark, int position) {
    if (tape_is_delta(&plan->tape, layer) && only_mixes(mark)) return delta_span(plan, layer, mark);
    switch ((int)mark) {
    case MARK_QKV_WEIGHTS:
        return SPAN(QKV, PROFILE_WEIGHTS);
    case MARK_QKV_INPUT: /* the first layer's input is the embedding, which is here */
        return SPAN(QKV, layer == 0 ? PROFILE_ARITHMETIC : all_kind(plan));
    case MARK_QKV:
        return SPAN(QKV, product_kind(plan, TAPE_QKV));
    case MARK_OUT_WEIGHTS:
        return SPAN(OUT, PROFILE_WEIGHTS);
    case MARK_ATTENTION_INPUT:
        return SPAN(ATTENTION, PROFILE_EXCHANGE);
    case MARK_ATTENTION_OWN:
        return SPAN(ATTENTION, position > 0 ? PROFILE_STREAMING : PROFILE_ARITHMETIC);
    case MARK_ATTENTION:
        return SPAN(ATTENTION, position < plan->split_from ? PROFILE_ARITHMETIC : PROFILE_EXCHANGE);
    case MARK_OUT:
        return SPAN(OUT, product_kind(plan, TAPE_OUT));
    case MARK_GATE_UP_WEIGHTS:
        return SPAN(GATE_UP, PROFILE_WEIGHTS);
    case MARK_GATE_UP_INPUT:
        return SPAN(GATE_UP, all_kind(plan));
    case MARK_GATE_UP:
        return SPAN(GATE_UP, product_kind(plan, TAPE_GATE_UP));
    case MARK_DOWN_WEIGHTS:
        return SPAN(DOWN, PROFILE_WEIGHTS);
    case MARK_DOWN_INPUT:
        return SPAN(DOWN, PROFILE_EXCHANGE);
    default: /* MARK_DOWN */
        return SPAN(DOWN, product_kind(plan, TAPE_DOWN));
    }
}
#undef SPAN

/* What the i-th span is, without its length: it begins with the i-th mark. */
static struct profile_span span_at(const struct plan *plan, int i, int position) {
    const struct profile_span after[] = {
        { .phase = PROFILE_HEAD, .kind = all_kind(plan), .layer = -1 },
        { .phase = PROFILE_HEAD, .kind = PROFILE_STREAMING, .layer = -1 },
        { .phase = PROFILE_PICK, .kind = all_kind(plan), .layer = -1 },
        { .phase = PROFILE_PICK, .kind = PROFILE_ARITHMETIC, .layer = -1 },
    };
    const int n_layer_marks = plan->tape.n_layers * PROFILE_LAYER_MARKS;
    if (i == 0)
        return (
            struct profile_span){ .phase = PROFILE_EMBED, .kind = PROFILE_ARITHMETIC, .layer = -1 };
    i--;
    if (i < n_layer_marks)
        return layer_span(plan, i / PROFILE_LAYER_MARKS, i % PROFILE_LAYER_MARKS, position);
    return after[i - n_layer_marks];
}

/* Ticks from the beginning of a token to that of the next, and nanoseconds. */
static enum reel_status token_length(const struct profile_run *run, int token, int sm,
                                     uint32_t *ticks, double *ns, struct reel_error *err) {
    const uint32_t *here = stamps_of(run, token, sm), *next = stamps_of(run, token + 1, sm);
    const uint64_t start = time_of(here), end = time_of(next);
    *ticks = next[MARK_TOKEN] - here[MARK_TOKEN];
    *ns = end > start ? (double)(end - start) : 0;
    if (*ticks > 0 && *ns > 0 && *ns < LONGEST_TOKEN_NS) return REEL_OK;
    return err_set(err, REEL_E_DEVICE,
                   "time stamps of token %d on SM %d: it lasted %u clock ticks and %.0f ns; "
                   "measured are tokens of up to %.0f ns",
                   token, sm, *ticks, *ns, LONGEST_TOKEN_NS);
}

enum reel_status profile_read(const struct profile_run *run, int token, int sm,
                              struct profile_span *spans, uint64_t *start_ns,
                              struct reel_error *err) {
    const struct plan *plan = run->plan;
    const uint32_t *here = stamps_of(run, token, sm), *next = stamps_of(run, token + 1, sm);
    const int n = profile_spans(plan);
    uint64_t sum = 0;
    uint32_t ticks = 0;
    double ns = 0;
    enum reel_status status = token_length(run, token, sm, &ticks, &ns, err);
    if (status != REEL_OK) return status;
    *start_ns = time_of(here);
    for (int i = 0; i < n; i++) {
        uint32_t end = i + 1 < n ? clock_at(here, plan, i + 1) : next[MARK_TOKEN];
        uint32_t length = end - clock_at(here, plan, i);
        sum += length;
        spans[i] = span_at(plan, i, run->position + token);
        spans[i].ns = length * (ns / ticks);
    }
    if (sum == ticks) return REEL_OK;
    return err_set(err, REEL_E_DEVICE,
                   "time stamps of token %d on SM %d are not in the order of its phases", token,
                   sm);
}

/* ---- sums ---- */

/* Sums of each SM over the measured tokens, in nanoseconds. */
struct sums {
    double (*ns)[PROFILE_N_PHASES][PROFILE_N_KINDS]; /* [n_sms] */
    double *token_ns, *token_ghz;                    /* [n_tokens] means over SMs */
    double *sorted;                                  /* [most of both] */
    struct profile_span *spans;
    int n_sms, n_tokens;
};

static void sums_close(struct sums *s) {
    mem_free(s->ns);
    mem_free(s->token_ns);
    mem_free(s->token_ghz);
    mem_free(s->sorted);
    mem_free(s->spans);
}

static enum reel_status sums_open(struct sums *s, const struct profile_run *run,
                                  struct reel_error *err) {
    s->n_sms = run->plan->tape.n_sms;
    s->n_tokens = run->n_tokens - PROFILE_LEFT_OUT;
    const size_t sms = (size_t)s->n_sms, tokens = (size_t)s->n_tokens;
    enum reel_status status = mem_zeroed(&s->ns, sms, sizeof *s->ns, "a profile", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->token_ns, tokens, sizeof(double), "a profile", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->token_ghz, tokens, sizeof(double), "a profile", err);
    if (status == REEL_OK)
        status =
            mem_zeroed(&s->sorted, sms > tokens ? sms : tokens, sizeof(double), "a profile", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->spans, (size_t)profile_spans(run->plan), sizeof *s->spans,
                            "a profile", err);
    return status;
}

static enum reel_status add_token(struct sums *s, const struct profile_run *run, int token, int sm,
                                  struct reel_error *err) {
    uint64_t start = 0;
    uint32_t ticks = 0;
    double ns = 0;
    enum reel_status status = profile_read(run, token, sm, s->spans, &start, err);
    if (status == REEL_OK) status = token_length(run, token, sm, &ticks, &ns, err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < profile_spans(run->plan); i++)
        s->ns[sm][s->spans[i].phase][s->spans[i].kind] += s->spans[i].ns;
    s->token_ns[token - 1] += ns / s->n_sms;
    s->token_ghz[token - 1] += ticks / ns / s->n_sms;
    return REEL_OK;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts in place. */
static struct profile_spread spread_of(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_double);
    return (struct profile_spread){ .min = values[0],
                                    .median = (values[(n - 1) / 2] + values[n / 2]) / 2,
                                    .max = values[n - 1] };
}

/* Microseconds a token on one SM: in the kinds of a phase, or of all (PROFILE_N_PHASES). */
static double sm_us(const struct sums *s, int sm, int phase, bool exchange) {
    const int first = phase == PROFILE_N_PHASES ? 0 : phase;
    const int last = phase == PROFILE_N_PHASES ? PROFILE_N_PHASES - 1 : phase;
    double ns = 0;
    for (int p = first; p <= last; p++)
        for (int k = 0; k < PROFILE_N_KINDS; k++)
            if (exchange || (k != PROFILE_EXCHANGE && k != PROFILE_ACROSS)) ns += s->ns[sm][p][k];
    return ns * 1e-3 / s->n_tokens;
}

static struct profile_spread sm_spread(const struct sums *s, int phase, bool exchange) {
    for (int sm = 0; sm < s->n_sms; sm++)
        s->sorted[sm] = sm_us(s, sm, phase, exchange);
    return spread_of(s->sorted, s->n_sms);
}

static void add_up(struct profile_part *part, const struct sums *s, int phase) {
    for (int sm = 0; sm < s->n_sms; sm++)
        for (int k = 0; k < PROFILE_N_KINDS; k++)
            part->kind_us[k] += s->ns[sm][phase][k] * 1e-3 / s->n_tokens / s->n_sms;
    for (int k = 0; k < PROFILE_N_KINDS; k++)
        part->us += part->kind_us[k];
    part->sm = sm_spread(s, phase, true);
    part->own = sm_spread(s, phase, false);
}

static struct profile_spread tokens_spread(const struct sums *s, const double *values,
                                           double scale) {
    for (int t = 0; t < s->n_tokens; t++)
        s->sorted[t] = values[t] * scale;
    return spread_of(s->sorted, s->n_tokens);
}

/* ---- bytes ---- */

static double lm_head_bytes(const struct tape_shape *t) {
    double tiles = 0;
    for (int sm = 0; sm < t->n_sms; sm++)
        tiles += (double)tape_head_tiles(t, sm) * plan_k_tiles(&t->segment[TAPE_HEAD]);
    return tiles * tile_bytes(t->segment[TAPE_HEAD].format);
}

/* Of the pieces that hold the positions before the measured tokens'. */
static double kv_bytes(const struct plan *plan, const struct profile *p) {
    long long pieces = 0;
    for (int i = 0; i < p->n_tokens; i++)
        pieces += kv_pieces(p->position + i);
    return (double)pieces / p->n_tokens * plan->kv_piece_bytes * plan->n_kv_heads *
           (plan->tape.n_layers - plan->delta.n_layers);
}

/* Read, and written again. */
static double state_bytes(const struct plan *plan) {
    return 2.0 * (double)(plan->delta.state_bytes + plan->delta.window_bytes);
}

static void count_bytes(struct profile *p, const struct plan *plan) {
    static const struct {
        enum profile_phase phase;
        enum tape_phase tape;
    } layer[] = { { PROFILE_QKV, TAPE_QKV },
                  { PROFILE_MIX, TAPE_MIX },
                  { PROFILE_OUT, TAPE_OUT },
                  { PROFILE_GATE_UP, TAPE_GATE_UP },
                  { PROFILE_DOWN, TAPE_DOWN } };
    const struct tape_shape *t = &plan->tape;
    const int deltas = plan->delta.n_layers;
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        const int phase = (int)layer[i].tape, all = t->n_layers;
        const int n = phase == TAPE_MIX ? deltas : phase == TAPE_QKV ? all - deltas : all;
        p->phase[layer[i].phase].bytes = (double)t->segment[phase].bytes * t->n_sms * n;
    }
    p->phase[PROFILE_DELTA].bytes = state_bytes(plan);
    p->phase[PROFILE_HEAD].bytes = lm_head_bytes(t);
    p->phase[PROFILE_ATTENTION].bytes = kv_bytes(plan, p);
}

/* ---- all of it ---- */

static void summarise(struct profile *p, const struct sums *s, const struct profile_run *run) {
    p->n_tokens = s->n_tokens;
    p->position = run->position + 1;
    p->token_us = tokens_spread(s, s->token_ns, 1e-3);
    p->ghz = tokens_spread(s, s->token_ghz, 1);
    count_bytes(p, run->plan);
    for (int i = 0; i < PROFILE_N_PHASES; i++) {
        add_up(&p->phase[i], s, i);
        p->total.us += p->phase[i].us;
        p->total.bytes += p->phase[i].bytes;
        for (int k = 0; k < PROFILE_N_KINDS; k++)
            p->total.kind_us[k] += p->phase[i].kind_us[k];
    }
    p->total.sm = sm_spread(s, PROFILE_N_PHASES, true);
    p->total.own = sm_spread(s, PROFILE_N_PHASES, false);
}

enum reel_status profile_make(struct profile *profile, const struct profile_run *run,
                              struct reel_error *err) {
    struct sums sums = { 0 };
    *profile = (struct profile){ 0 };
    if (run->n_tokens < PROFILE_LEAST_TOKENS)
        return err_set(err, REEL_E_STATE,
                       "%d tokens of the last launch left time stamps; a profile takes at least %d",
                       run->n_tokens, PROFILE_LEAST_TOKENS);
    enum reel_status status = sums_open(&sums, run, err);
    for (int t = 1; t <= sums.n_tokens && status == REEL_OK; t++)
        for (int sm = 0; sm < sums.n_sms && status == REEL_OK; sm++)
            status = add_token(&sums, run, t, sm, err);
    if (status == REEL_OK) summarise(profile, &sums, run);
    sums_close(&sums);
    return status;
}
