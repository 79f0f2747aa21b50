/* emit_constants MODEL GPU [WISH=N ...] [narrow=FORM]: the kernels' compile-time constants for a
 * model shape on a GPU, "NAME=value" a line. MODEL is a shape's name ("qwen3-0.6b") or the path of
 * a config.json. FORM says how narrow weights are stored that stay so. For
 * tools/compile_kernels.sh and for looking at machine code. */
#include "base/file_map.h"
#include "model/draft_model.h"
#include "model/synthetic.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum reel_status read_config(struct model_config *config, const char *name,
                                    struct reel_error *err) {
    struct buffer text = { 0 };
    struct file_map map = { 0 };
    struct model_source source = { 0 };
    bool found = false;
    enum reel_status status = synthetic_shape_config(&text, name, &found, err);
    if (status == REEL_OK && !found) status = file_map_open(&map, name, err);
    if (status == REEL_OK && !found) status = buffer_append(&text, map.bytes, map.size, err);
    const struct reel_memory_file file = { "config.json", text.bytes, text.size };
    if (status == REEL_OK) status = model_source_open_memory(&source, name, &file, 1, err);
    if (status == REEL_OK) status = model_config_read(config, &source, err);
    model_source_release(&source);
    file_map_close(&map);
    buffer_release(&text);
    return status;
}

/* What plan_stored finds in files: those of `reel quantize`, the first three, and usual ones. */
enum {
    ROW = TILE_GROUP_ROW,
    INT8 = TILE_FORMAT(TILE_INT8, ROW, TILE_SCALE_BF16, TILE_NO_OFFSETS),
    INT4 = TILE_FORMAT(TILE_INT4, 3, TILE_SCALE_BF16, TILE_NO_OFFSETS),
    FP8 = TILE_FORMAT(TILE_E4M3, ROW, TILE_SCALE_BF16, TILE_NO_OFFSETS),
    GPTQ = TILE_FORMAT(TILE_INT4, 3, TILE_SCALE_F16, TILE_ZEROS),
    NVFP4 = TILE_FORMAT(TILE_E2M1, 0, TILE_SCALE_F32, TILE_NO_OFFSETS),
    Q4_1 = TILE_FORMAT(TILE_UINT4, 1, TILE_SCALE_F16, TILE_MINIMA),
    Q8_0 = TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_F16, TILE_NO_OFFSETS),
    Q4_K = TILE_FORMAT(TILE_UINT4, 1, TILE_SCALE_STEPS, TILE_MINIMA),
    Q6_K = TILE_FORMAT(TILE_INT8, 0, TILE_SCALE_STEPS, TILE_NO_OFFSETS),
    Q4_K_Q6_K = TILE_FORMAT(TILE_INT8, 0, TILE_SCALE_STEPS, TILE_MINIMA),
    Q2_K = TILE_FORMAT(TILE_UINT4, 0, TILE_SCALE_STEPS, TILE_MINIMA), /* with Q4_K, too */
    Q3_K = TILE_FORMAT(TILE_INT4, 0, TILE_SCALE_STEPS, TILE_NO_OFFSETS),
    IQ4_XS = TILE_FORMAT(TILE_IQ4, 1, TILE_SCALE_STEPS, TILE_NO_OFFSETS),
    IQ4_XS_Q5_K = TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_STEPS, TILE_MINIMA),
    NF4 = TILE_FORMAT(TILE_NF4, 2, TILE_SCALE_F32, TILE_NO_OFFSETS),
    FP4 = TILE_FORMAT(TILE_FP4, 2, TILE_SCALE_F32, TILE_NO_OFFSETS)
};
static const struct form {
    const char *name;
    int first, out, gate_up, down, head; /* first: qkv and mix */
} forms[] = {
    { "int8", INT8, INT8, INT8, INT8, INT8 },
    { "int4", INT4, INT4, INT4, INT4, INT8 },
    { "fp8", FP8, FP8, FP8, FP8, FP8 },
    { "gptq", GPTQ, GPTQ, GPTQ, GPTQ, TILE_BF16 },
    { "nvfp4", NVFP4, NVFP4, NVFP4, NVFP4, TILE_BF16 },
    { "q4_1", Q4_1, Q4_1, Q4_1, Q4_1, Q8_0 },
    { "q8_0", Q8_0, Q8_0, Q8_0, Q8_0, Q8_0 },
    { "q4_k_m", Q4_K_Q6_K, Q4_K, Q4_K, Q4_K_Q6_K, Q6_K },
    { "q2_k", Q2_K, Q3_K, Q2_K, Q3_K, Q6_K },
    { "iq4_xs", IQ4_XS_Q5_K, IQ4_XS, IQ4_XS, IQ4_XS, Q6_K },
    { "nf4", NF4, NF4, NF4, NF4, TILE_BF16 },
    { "fp4", FP4, FP4, FP4, FP4, TILE_BF16 },
};

static enum reel_status read_form(struct plan_options *o, const char *name,
                                  struct reel_error *err) {
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *f = &forms[i];
        if (strcmp(f->name, name) != 0) continue;
        o->formats[TAPE_QKV] = o->formats[TAPE_MIX] = f->first, o->formats[TAPE_OUT] = f->out;
        o->formats[TAPE_GATE_UP] = f->gate_up, o->formats[TAPE_DOWN] = f->down;
        o->formats[TAPE_HEAD] = f->head;
        return REEL_OK;
    }
    return err_set(
        err, REEL_E_ARGUMENT,
        "narrow=%s: there are int8, int4, fp8, gptq, nvfp4, q4_1, q8_0, q4_k_m, q2_k, iq4_xs, "
        "nf4 and fp4",
        name);
}

/* taps: 1: those that an EAGLE-3 head usually sees. draft_layer: 2: an EAGLE-3 head. Formats:
 * numbers of tile_format.h */
static int columns = 1, drafts, leaves, taps, gpus = 1, draft_layer, layers_format, head_format;

static enum reel_status read_wish(struct plan_options *o, const char *text,
                                  struct reel_error *err) {
    const struct {
        const char *name;
        int *value;
    } wishes[] = {
        { "compute", &o->compute },
        { "groups", &o->n_groups },
        { "group_sms", &o->group_sms },
        { "warps", &o->warps },
        { "slot_tiles", &o->slot_tiles },
        { "ring_slots", &o->ring_slots },
        { "hops", &o->hops },
        { "h_bits", &o->h_bits },
        { "epilogue_warps", &o->epilogue_warps },
        { "kv_slots", &o->kv_slots },
        { "prefill_tokens", &o->prefill_tokens },
        { "columns", &columns },
        { "drafts", &drafts },
        { "leaves", &leaves },
        { "taps", &taps },
        { "gpus", &gpus },
        { "draft_layer", &draft_layer },
        { "layers", &layers_format },
        { "head", &head_format },
        { "cache", &o->kv_form },
    };
    const char *equals = strchr(text, '=');
    if (strncmp(text, "narrow=", 7) == 0) return read_form(o, text + 7, err);
    for (size_t i = 0; equals && i < sizeof wishes / sizeof wishes[0]; i++) {
        if (strncmp(wishes[i].name, text, (size_t)(equals - text)) != 0) continue;
        *wishes[i].value = atoi(equals + 1);
        return REEL_OK;
    }
    return err_set(err, REEL_E_ARGUMENT, "%s: no such wish", text);
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    struct model_config config;
    struct plan_options options = { 0 };
    struct plan plan, one;
    struct buffer text = { 0 };
    const struct gpu_limits *gpu = argc > 2 ? plan_known_gpu(argv[2]) : NULL;
    if (!gpu) {
        fprintf(stderr, "usage: emit_constants MODEL GPU [WISH=N ...]; GPUs: %s\n",
                plan_known_gpus);
        return 2;
    }
    enum reel_status status = read_config(&config, argv[1], &err);
    for (int i = 3; i < argc && status == REEL_OK; i++)
        status = read_wish(&options, argv[i], &err);
    if (draft_layer && status == REEL_OK) { /* the model that is the draft layer of this one */
        static const struct weights none;
        struct draft_model draft;
        draft_model_fill(&draft, &config, &none);
        config = draft.config;
        config.given_biases = draft_layer > 1;
        if (config.given_biases) config.qk_norm = false;
    }
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const int number = i == TAPE_HEAD ? head_format : layers_format;
        if (number) options.formats[i] = number;
    }
    struct gpu_limits limits = *gpu;
    limits.n_gpus = gpus;
    if (status == REEL_OK) status = plan_make(&plan, &config, &limits, &options, &err);
    if (status == REEL_OK && taps)
        plan.taps[0] = 2, plan.taps[1] = config.n_layers / 2, plan.taps[2] = config.n_layers - 3;
    if (status == REEL_OK && columns > 1)
        one = plan, status = plan_columns(&plan, &one, columns, drafts, &err);
    plan.leaves = leaves;
    if (status == REEL_OK) status = plan_constants(&plan, &text, &err);
    if (status == REEL_OK)
        fputs(text.bytes, stdout);
    else
        fprintf(stderr, "emit_constants: %s\n", err.text);
    buffer_release(&text);
    return (int)status;
}
