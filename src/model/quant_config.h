/* What a folder says of how its weights are quantised: config.json's quantization_config, or
 * ModelOpt's hf_quant_config.json, or the older quantize_config.json (GPTQ) and quant_config.json
 * (AWQ). docs/WEIGHTS.md has the formats. */
#ifndef REEL_MODEL_QUANT_CONFIG_H
#define REEL_MODEL_QUANT_CONFIG_H

#include "model/model_source.h"

#define QUANT_MAX_GROUPS  64
#define QUANT_MAX_IGNORED 65536

enum quant_method {
    QUANT_FP8, /* Qwen's and DeepSeek's blocks of e4m3 */
    QUANT_COMPRESSED_TENSORS,
    QUANT_GPTQ,
    QUANT_AWQ,
    QUANT_MODELOPT,
    QUANT_BITSANDBYTES
};

/* One group of layers, or all of them; what the file does not say is 0. The shapes of a layer's
 * tensors decide; a group must agree with them. */
struct quant_group {
    int bits;      /* of a code */
    bool is_float; /* codes are floats of 8 or 4 bits */
    int group;     /* inputs that share a scale; -1: all of a row */
    int block_rows, block_columns;
    bool symmetric; /* no zero points */
};

struct quant_config {
    char *path; /* of the file that says it, for messages */
    enum quant_method method;
    struct quant_group groups[QUANT_MAX_GROUPS];
    int n_groups;
    bool varied;         /* single layers may differ from their group (GPTQ's "dynamic") */
    bool zeros_less_one; /* GPTQ's first format stores zero points less 1 */
    char **ignored;      /* layers that stay wide: names, or "re:" and an expression */
    int n_ignored;
};

/* *out is NULL where the folder says nothing of it. Methods and formats that no one here reads are
 * refused by name. */
enum reel_status quant_config_read(struct quant_config **out, const struct model_source *source,
                                   struct reel_error *err);
void quant_config_free(struct quant_config *config);

const char *quant_method_name(enum quant_method method);

/* Whether the list of ignored layers names this one. Expressions are matched from the name's start,
 * as Python's re.match does; one that reel's matcher does not take matches nothing. */
bool quant_config_ignores(const struct quant_config *config, const char *layer);

#endif
