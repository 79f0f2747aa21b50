/* The compile-time constants of the kernels: M_ the model's, P_ the plan's, X_ where an exchange's
 * words begin, G_ the GPU's. Launch parameters (caps, where attention splits) are not among them.
 */
#include "plan/plan_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum reel_status put(struct buffer *text, const char *name, long long value,
                            struct reel_error *err) {
    return buffer_printf(text, err, "%s=%lld\n", name, value);
}

struct number {
    const char *name;
    long long value;
};

static enum reel_status put_numbers(struct buffer *text, const struct number *numbers, size_t n,
                                    struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = put(text, numbers[i].name, numbers[i].value, err);
    return status;
}

/* Writes a C literal of type float, in as few digits as give the same value. */
static enum reel_status put_float(struct buffer *text, const char *name, float x,
                                  struct reel_error *err) {
    char digits[40];
    for (int n = 1; n <= 9; n++) {
        snprintf(digits, sizeof digits, "%.*e", n - 1, (double)x);
        if (strtof(digits, NULL) == x) break;
    }
    return buffer_printf(text, err, "%s=%sf\n", name, digits);
}

static enum reel_status put_segment(struct buffer *text, const char *name,
                                    const struct tape_segment *g, struct reel_error *err) {
    return buffer_printf(text, err,
                         "P_%s_ROWS=%d\nP_%s_ROW_TILES=%d\nP_%s_K_TILES=%d\nP_%s_ROW_PARTS=%d\n"
                         "P_%s_K_PARTS=%d\nP_%s_WARP_ROWS=%d\nP_%s_WARP_K=%d\nP_%s_BYTES=%u\n"
                         "P_%s_OFFSET=%u\nP_%s_FORMAT=%d\nP_%s_HALF=%d\n",
                         name, g->rows, name, g->row_tiles, name, g->k_tiles, name, g->row_parts,
                         name, g->k_parts, name, g->warp_rows, name, g->warp_k, name, g->bytes,
                         name, g->offset, name, g->format, name, g->half);
}

static enum reel_status put_phases(struct buffer *text, const struct tape_shape *t,
                                   struct reel_error *err) {
    static const char *const names[TAPE_N_PHASES] = {
#define PHASE_PREFIX(phase, name, prefix) [phase] = prefix,
        TAPE_PHASES(PHASE_PREFIX)
#undef PHASE_PREFIX
    };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < TAPE_N_PHASES && status == REEL_OK; i++)
        status = put_segment(text, names[i], &t->segment[i], err);
    return status;
}

static enum reel_status put_words(struct buffer *text, const struct plan *p,
                                  struct reel_error *err) {
    static const char *const names[PLAN_N_EXCHANGES] = {
#define EXCHANGE_NUMBER(number, name, when) [number] = #number,
        PLAN_EXCHANGES(EXCHANGE_NUMBER)
#undef EXCHANGE_NUMBER
    };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < PLAN_N_EXCHANGES && status == REEL_OK; i++)
        status = put(text, names[i], p->exchange[i].offset, err);
    if (status == REEL_OK)
        status = put(text, "P_WORDS", p->n_words / (unsigned)p->columns, err); /* of a column */
    return status == REEL_OK ? put(text, "P_PICK_WORDS", PLAN_PICK_WORDS, err) : status;
}

static enum reel_status put_model(struct buffer *text, const struct plan *p,
                                  struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const struct number numbers[] = {
        { "M_HIDDEN", t->hidden },       { "M_LAYERS", t->n_layers },
        { "M_HEADS", p->n_heads },       { "M_KV_HEADS", p->n_kv_heads },
        { "M_HEAD_DIM", p->head_dim },   { "M_INTERMEDIATE", t->intermediate },
        { "M_VOCAB", t->vocab },         { "M_QK_NORM", p->qk_norm },
        { "M_TIED", p->tied },           { "M_ROTARY", p->rotary_dim },
        { "M_GATED", t->gate_dim > 0 },  { "M_DELTA", d->n_layers },
        { "M_KEY_HEADS", d->key_heads }, { "M_VALUE_HEADS", d->value_heads },
        { "M_KEY_DIM", d->key_dim },     { "M_VALUE_DIM", d->value_dim },
        { "M_TAPS", d->taps },           { "M_QKV_BIAS", p->qkv_bias },
        { "M_DRAFT", p->is_draft },      { "M_GIVEN_BIASES", p->given_biases },
    };
    return put_numbers(text, numbers, sizeof numbers / sizeof numbers[0], err);
}

static enum reel_status put_plan(struct buffer *text, const struct plan *p,
                                 struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    const struct plan_delta *d = &p->delta;
    const struct number numbers[] = {
        { "P_GROUPS", t->n_groups },
        { "P_GROUP_SMS", t->group_sms },
        { "P_SMS", t->n_sms },
        { "P_GPUS", p->n_gpus },
        { "P_WARPS", t->warps },
        { "P_EPILOGUE_WARPS", p->epilogue_warps },
        { "P_THREADS", p->threads },
        { "P_PRELOAD_TILES", p->preload_tiles },
        { "P_READY_PARTS", p->ready_parts },
        { "P_OUT_HELD", p->out_held },
        { "P_COLUMNS", p->columns },
        { "P_TWO_HOPS", p->two_hops },
        { "P_H_PAIRS", p->h_pairs },
        { "P_OVERLAID", p->overlaid },
        { "P_HALF_FILLS", p->half_fills },
        { "P_FOLLOWS", p->follows },
        { "P_LEAVES", p->leaves },
        { "P_TAPS", p->taps[0] > 0 },
        { "P_TAP_0", p->taps[0] },
        { "P_TAP_1", p->taps[1] },
        { "P_TAP_2", p->taps[2] },
        { "P_ATTENTION_WARPS", p->attention_warps },
        { "P_GROUP_HEADS", p->group_heads },
        { "P_GROUP_KV_HEADS", p->group_kv_heads },
        { "P_GROUP_Q", t->group_q },
        { "P_GROUP_KV", t->group_kv },
        { "P_GROUP_GATE", t->gate_dim ? t->group_q : 0 },
        { "P_GROUP_INTERMEDIATE", t->group_intermediate },
        { "P_GROUP_KEY_HEADS", d->group_key_heads },
        { "P_GROUP_VALUE_HEADS", d->group_value_heads },
        { "P_GROUP_KEY", t->group_key },
        { "P_GROUP_VALUE", t->group_value },
        { "P_DELTA_UNIT", d->unit },
        { "P_DELTA_UNITS", d->units },
        { "P_DELTA_BYTES", t->delta_bytes },
        { "P_MERGE_SCATTER", p->merge_scatter },
        { "P_HEAD_UNIT", t->head_unit },
        { "P_LAYER_BYTES", t->layer_bytes },
        { "P_SLOT_TILES", p->slot_tiles },
        { "P_SLOT_BYTES", p->slot_bytes },
        { "P_RING_SLOTS", p->ring_slots },
        { "P_KV_SLOTS", p->kv_slots },
        { "P_KV_FORM", p->kv_form },
        { "P_KV_GIVEN", p->kv_given },
        { "P_KV_PIECE", p->kv_piece_bytes },
        { "P_KV_PAGE", p->kv_page },
        { "P_SHARED_BYTES", p->shared_bytes },
        { "P_ATTENTION_WORDS", plan_attention_words(p) },
        { "P_REGISTERS_CONSUMER", p->registers_consumer },
        { "P_REGISTERS_OTHER", p->registers_other },
        { "G_REGISTERS", p->registers_consumer > 0 },
        { "P_PREFILL_TOKENS", p->prefill_tokens },
        { "P_PREFILL_STAGES", p->prefill_stages },
        { "P_PREFILL_K_PLACES", p->prefill_k_places },
        { "P_PREFILL_SHARED", p->prefill_shared },
        { "P_PREFILL_CHUNK", p->prefill_chunk_shared },
        { "P_SHORT_TOKENS", p->short_tokens },
        { "P_SHORT_SLOTS", p->short_slots },
        { "P_SHORT_PRELOAD", p->short_preload },
        { "P_SHORT_SHARED", p->short_shared },
        { "P_SHORT_WORDS", p->short_words },
        { "G_WGMMA", p->wgmma },
        { "G_COPY", p->copy },
        { "G_COMPUTE", p->compute },
    };
    return put_numbers(text, numbers, sizeof numbers / sizeof numbers[0], err);
}

static enum reel_status put_encoder(struct buffer *text, const struct encoder_shape *s,
                                    struct reel_error *err) {
    const struct number numbers[] = {
        { "A_BINS", s->bins },
        { "A_CHANNELS", s->channels },
        { "A_HIDDEN", s->hidden },
        { "A_HEADS", s->heads },
        { "A_INTERMEDIATE", s->intermediate },
        { "A_OUT", s->out },
        { "A_LAYERS", s->layers },
        { "A_WINDOW", s->window },
        { "A_FORMAT", s->format },
    };
    if (s->layers == 0) return REEL_OK;
    return put_numbers(text, numbers, sizeof numbers / sizeof numbers[0], err);
}

enum reel_status plan_constants(const struct plan *p, struct buffer *text, struct reel_error *err) {
    const struct tape_shape *t = &p->tape;
    enum reel_status status = put_model(text, p, err);
    if (status == REEL_OK) status = put_plan(text, p, err);
    if (status == REEL_OK) status = put_float(text, "M_RMS_EPS", p->rms_eps, err);
    if (status == REEL_OK) status = put_phases(text, t, err);
    if (status == REEL_OK) status = put_encoder(text, &p->encoder.shape, err);
    if (status == REEL_OK)
        status =
            buffer_printf(text, err,
                          "P_SM_BYTES=%lluull\nP_LAYERS_BYTES=%lluull\nM_DELTA_LOW=%lluull\nM_"
                          "DELTA_HIGH=%lluull\n",
                          t->sm_bytes, t->layers_bytes, t->delta_layers[0], t->delta_layers[1]);
    return status == REEL_OK ? put_words(text, p, err) : status;
}
