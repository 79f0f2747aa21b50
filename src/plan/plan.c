/* plan_make tries all ways to split a model over a GPU's SMs and takes the one with the least
 * estimated time of a token. */
#include "plan/plan.h"

#include "kernels/kv_layout.h"
#include "plan/plan_layout.h"

#include <string.h>

enum { MIN_COMPUTE = 75, MAX_CAP = 1 << 20 };

static enum reel_status refuse_deltas(const struct model_config *c, struct reel_error *err) {
    if (c->n_layers > TAPE_KINDS)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d layers of two kinds: the GPU kernels do at most %d", c->n_layers,
                       TAPE_KINDS);
    if (model_layer_count(c, LAYER_ATTENTION) == 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "no layer attends: the GPU kernels need at least one that does");
    if (c->delta.key_dim % PLAN_KEY_ROWS)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "linear_key_head_dim %d: the GPU kernels need a multiple of %d",
                       c->delta.key_dim, PLAN_KEY_ROWS);
    if (c->delta.value_dim % 2)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "linear_value_head_dim %d: the GPU kernels need an even one",
                       c->delta.value_dim);
    return REEL_OK;
}

static enum reel_status refuse_model(const struct model_config *c, struct reel_error *err) {
    if (model_layer_count(c, LAYER_DELTA)) {
        enum reel_status status = refuse_deltas(c, err);
        if (status != REEL_OK) return status;
    }
    if (c->head_dim % TILE_K)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "head_dim %d: the GPU kernels need a multiple of %d", c->head_dim, TILE_K);
    if (c->rotary_dim % 4)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d entries of a head turn: the GPU kernels need a multiple of 4",
                       c->rotary_dim);
    if (c->hidden % 2)
        return err_set(err, REEL_E_UNSUPPORTED, "hidden size %d: the GPU kernels need an even one",
                       c->hidden);
    if (c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads)
        return err_set(err, REEL_E_UNSUPPORTED, "%d heads share %d KV heads unevenly", c->n_heads,
                       c->n_kv_heads);
    if (c->n_heads / c->n_kv_heads > PLAN_MAX_HEADS_A_KV)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d heads for %d KV heads: the GPU kernels do at most %d each", c->n_heads,
                       c->n_kv_heads, PLAN_MAX_HEADS_A_KV);
    return REEL_OK;
}

static enum reel_status refuse_gpu(const struct gpu_limits *gpu, const struct model_config *c,
                                   const struct plan_options *o, struct reel_error *err) {
    if (gpu->compute < MIN_COMPUTE)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s has compute capability %d.%d, at least %d.%d is needed", gpu->name,
                       gpu->compute / 10, gpu->compute % 10, MIN_COMPUTE / 10, MIN_COMPUTE % 10);
    if (gpu->n_sms < 1)
        return err_set(err, REEL_E_UNSUPPORTED, "%s has %d SMs", gpu->name, gpu->n_sms);
    if (c->delta.key_heads % plan_gpus(gpu))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%d GPUs cannot share %d linear key heads: each must have as many as the "
                       "others",
                       plan_gpus(gpu), c->delta.key_heads);
    if (o->compute && (o->compute < MIN_COMPUTE || o->compute > gpu->compute))
        return err_set(err, REEL_E_ARGUMENT,
                       "compute capability %d cannot be compiled for: %s allows %d to %d",
                       o->compute, gpu->name, MIN_COMPUTE, gpu->compute);
    return REEL_OK;
}

static enum reel_status refuse_range(const char *what, int value, int low, int high,
                                     struct reel_error *err) {
    if (value == 0 || (value >= low && value <= high)) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "%s %d: %d to %d are possible here", what, value, low,
                   high);
}

/* Whether groups own whole heads of all kinds, and GPUs whole groups. Value heads need no test:
 * their number is a multiple of the key heads'. */
static bool groups_share(const struct model_config *c, const struct gpu_limits *gpu, int n_groups) {
    return plan_kv_heads(c, gpu) % n_groups == 0 && c->delta.key_heads % n_groups == 0 &&
           n_groups % plan_gpus(gpu) == 0;
}

/* SMs that a group can have. */
static int most_group_sms(const struct gpu_limits *gpu, int n_groups) {
    const int of_gpu = n_groups / plan_gpus(gpu);
    return of_gpu > 0 ? gpu->n_sms / of_gpu : gpu->n_sms;
}

static enum reel_status refuse_wishes(const struct plan_options *o, const struct model_config *c,
                                      const struct gpu_limits *gpu, struct reel_error *err) {
    const int kv_heads = plan_kv_heads(c, gpu);
    const struct {
        const char *what;
        int value, low, high;
    } ranges[] = {
        { "groups", o->n_groups, plan_gpus(gpu),
          kv_heads < plan_all_sms(gpu) ? kv_heads : plan_all_sms(gpu) },
        { "SMs a group", o->group_sms, 1, most_group_sms(gpu, o->n_groups) },
        { "warps", o->warps, PLAN_MIN_WARPS, PLAN_MAX_WARPS },
        { "epilogue warps", o->epilogue_warps, 1, 8 },
        { "ring slots", o->ring_slots, 1, 64 },
        { "tiles in a slot", o->slot_tiles, 1, 4 },
        { "K/V slots", o->kv_slots, 1, PLAN_MAX_KV_SLOTS },
        { "cap in layers", o->cap_layers, 1, MAX_CAP },
        { "cap in the head", o->cap_head, 1, MAX_CAP },
        { "cap of K/V", o->cap_kv, 1, MAX_CAP },
        { "hops", o->hops, 1, 2 },
        { "split from", o->split_from, 1, 1 << 30 },
        { "K/V page", o->kv_page, 1, PLAN_MAX_KV_PAGE },
        { "prefill tokens", o->prefill_tokens, 1, MAX_CAP },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        enum reel_status status =
            refuse_range(ranges[i].what, ranges[i].value, ranges[i].low, ranges[i].high, err);
        if (status != REEL_OK) return status;
    }
    if (o->warps % 2)
        return err_set(err, REEL_E_ARGUMENT, "warps %d: an even number is needed", o->warps);
    if (o->h_bits && o->h_bits != 24 && o->h_bits != 32)
        return err_set(err, REEL_E_ARGUMENT, "h bits %d: 24 or 32 are allowed", o->h_bits);
    const int half = plan_half_pieces(o->kv_form, (int)kv_piece_bytes(o->kv_form, c->head_dim));
    if (o->kv_page && (o->kv_page & (o->kv_page - 1) || o->kv_page < half))
        return err_set(err, REEL_E_ARGUMENT, "K/V page %d: a power of two, at least %d, is needed",
                       o->kv_page, half);
    if (o->prefill_tokens % PLAN_PREFILL_STEP)
        return err_set(err, REEL_E_ARGUMENT, "prefill tokens %d: a multiple of %d is needed",
                       o->prefill_tokens, PLAN_PREFILL_STEP);
    if (o->n_groups && (kv_heads % o->n_groups || o->n_groups > PLAN_MAX_GROUPS))
        return err_set(err, REEL_E_ARGUMENT,
                       "groups %d: %d KV heads need a divisor of theirs, at most %d", o->n_groups,
                       kv_heads, PLAN_MAX_GROUPS);
    if (o->n_groups % plan_gpus(gpu))
        return err_set(err, REEL_E_ARGUMENT,
                       "groups %d: %d GPUs share them evenly, a multiple of %d is needed",
                       o->n_groups, plan_gpus(gpu), plan_gpus(gpu));
    if (o->n_groups && !groups_share(c, gpu, o->n_groups))
        return err_set(err, REEL_E_ARGUMENT, "groups %d: they do not share %d linear key heads",
                       o->n_groups, c->delta.key_heads);
    return REEL_OK;
}

/* The best plan so far, and why a choice was refused. Of the choices that were refused, the last
 * with the most SMs is kept: it asked the least of each SM. */
struct search {
    const struct model_config *config;
    const struct gpu_limits *gpu;
    const struct plan_options *options;
    struct plan best;
    double best_us; /* 0: none yet */
    struct reel_error refused;
    int refused_sms;
};

/* Whether every SM of a group gets rows of hidden. Exchanges count on all SMs to take part. */
static bool all_have_rows(const struct search *s, int group_sms) {
    const int hidden = s->config->hidden;
    return (group_sms - 1) * plan_even(plan_ceil(hidden, group_sms)) < hidden;
}

static void consider(struct search *s, const struct plan_choice *choice) {
    struct plan plan;
    struct reel_error err = { 0 };
    if (plan_layout(&plan, s->config, s->gpu, choice, s->options, &err) != REEL_OK) {
        bool heads_fit = plan_kv_heads(s->config, s->gpu) / choice->n_groups <= choice->warps;
        int sms = heads_fit ? choice->n_groups * choice->group_sms : 0;
        if (sms >= s->refused_sms) s->refused = err, s->refused_sms = sms;
        return;
    }
    double us = plan_estimate_us(&plan);
    if (s->best_us > 0 && us >= s->best_us) return;
    s->best = plan;
    s->best_us = us;
}

/* Whether the value is the wish, or there is no wish (0). */
static bool allowed(int wish, int value) { return wish == 0 || wish == value; }

static void consider_warps(struct search *s, int n_groups, int group_sms) {
    for (int warps = PLAN_MAX_WARPS; warps >= PLAN_MIN_WARPS; warps -= 2) {
        if (!allowed(s->options->warps, warps)) continue;
        for (int slot_tiles = 4; slot_tiles >= 1; slot_tiles /= 2)
            if (allowed(s->options->slot_tiles, slot_tiles))
                consider(s, &(struct plan_choice){ n_groups, group_sms, warps, slot_tiles });
    }
}

static void consider_all(struct search *s) {
    const int kv_heads = plan_kv_heads(s->config, s->gpu);
    const int most = kv_heads < PLAN_MAX_GROUPS ? kv_heads : PLAN_MAX_GROUPS;
    for (int groups = most; groups >= 1; groups--) {
        if (!groups_share(s->config, s->gpu, groups) || !allowed(s->options->n_groups, groups))
            continue;
        for (int sms = most_group_sms(s->gpu, groups); sms >= 1; sms--)
            if (allowed(s->options->group_sms, sms) &&
                (all_have_rows(s, sms) || s->options->group_sms))
                consider_warps(s, groups, sms);
    }
}

enum reel_status plan_make(struct plan *plan, const struct model_config *config,
                           const struct gpu_limits *gpu, const struct plan_options *options,
                           struct reel_error *err) {
    static const struct plan_options none;
    struct search s = { .config = config, .gpu = gpu, .options = options ? options : &none };
    enum reel_status status = refuse_model(config, err);
    if (status == REEL_OK) status = refuse_gpu(gpu, config, s.options, err);
    if (status == REEL_OK) status = refuse_wishes(s.options, config, gpu, err);
    if (status != REEL_OK) return status;
    consider_all(&s);
    if (s.best_us > 0) {
        *plan = s.best;
        return plan_check(plan, config, false, err);
    }
    if (s.refused.status == REEL_OK)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: no group of SMs for %d KV heads fits into %d SMs", gpu->name,
                       config->n_kv_heads, gpu->n_sms);
    return err_set(err, s.refused.status, "%s", s.refused.text);
}
