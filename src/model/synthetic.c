/* What a synthetic checkpoint holds. tools/synthetic.py follows the same rules; a test compares
 * their bits. */
#include "model/synthetic.h"

#include "kernels/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------- */

enum kind { GAINS, MATRIX, VOCABULARY };

/* Matrices have a deviation of spread / sqrt(columns): what goes through 28 layers or more neither
 * fades nor grows. The vocabulary's matrices are the widest, for logits with some contrast. */
static void describe(struct synthetic_tensor *t, enum kind kind, int rows, int columns) {
    double spread = kind == VOCABULARY ? 1.0 : 0.75;
    t->rank = kind == GAINS ? 1 : 2;
    t->rows = rows;
    t->columns = columns;
    t->offset = kind == GAINS ? 1.0f : 0.0f;
    t->scale = kind == GAINS ? SYNTHETIC_GAIN_SCALE
                             : (float)(spread / sqrt((double)columns) / SYNTHETIC_DEVIATION);
}

#define MAX_LAYER_TENSORS 11

/* Tensor i of a layer, without the layer's prefix; returns how many there are. */
static int layer_tensor(const struct model_config *c, int i, const char **name,
                        struct synthetic_tensor *t) {
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const struct {
        const char *name;
        enum kind kind;
        int rows, columns;
    } all[MAX_LAYER_TENSORS] = {
        { "input_layernorm.weight", GAINS, 1, c->hidden },
        { "self_attn.q_proj.weight", MATRIX, q, c->hidden },
        { "self_attn.k_proj.weight", MATRIX, kv, c->hidden },
        { "self_attn.v_proj.weight", MATRIX, kv, c->hidden },
        { "self_attn.o_proj.weight", MATRIX, c->hidden, q },
        { "post_attention_layernorm.weight", GAINS, 1, c->hidden },
        { "mlp.gate_proj.weight", MATRIX, c->intermediate, c->hidden },
        { "mlp.up_proj.weight", MATRIX, c->intermediate, c->hidden },
        { "mlp.down_proj.weight", MATRIX, c->hidden, c->intermediate },
        { "self_attn.q_norm.weight", GAINS, 1, c->head_dim },
        { "self_attn.k_norm.weight", GAINS, 1, c->head_dim },
    };
    *name = all[i].name;
    describe(t, all[i].kind, all[i].rows, all[i].columns);
    return c->qk_norm ? MAX_LAYER_TENSORS : MAX_LAYER_TENSORS - 2;
}

static int layer_tensor_count(const struct model_config *c) {
    const char *name = NULL;
    struct synthetic_tensor t;
    return layer_tensor(c, 0, &name, &t);
}

int synthetic_tensor_count(const struct model_config *c) {
    return c->n_layers * layer_tensor_count(c) + (c->tied ? 2 : 3);
}

void synthetic_tensor_get(const struct model_config *c, int i, struct synthetic_tensor *t) {
    int per_layer = layer_tensor_count(c), in_layers = c->n_layers * per_layer;
    const char *name = NULL;
    if (i == 0) {
        snprintf(t->name, sizeof t->name, "model.embed_tokens.weight");
        describe(t, VOCABULARY, c->vocab, c->hidden);
    } else if (i <= in_layers) {
        layer_tensor(c, (i - 1) % per_layer, &name, t);
        snprintf(t->name, sizeof t->name, "model.layers.%d.%s", (i - 1) / per_layer, name);
    } else if (i == in_layers + 1) {
        snprintf(t->name, sizeof t->name, "model.norm.weight");
        describe(t, GAINS, 1, c->hidden);
    } else {
        snprintf(t->name, sizeof t->name, "lm_head.weight");
        describe(t, VOCABULARY, c->vocab, c->hidden);
    }
}

void synthetic_fill(const struct synthetic_tensor *t, uint64_t seed, uint64_t first, size_t n,
                    uint16_t *out) {
    uint64_t key = synthetic_key(seed, t->name);
    for (size_t i = 0; i < n; i++)
        out[i] = synthetic_bf16(key, first + i, t->offset, t->scale);
}

/* ---- named shapes ---------------------------------------------------------------------------- */

/* Sizes from the published config.json files. */
struct shape {
    const char *name, *family;
    int hidden, layers, heads, kv_heads, head_dim, intermediate, vocab;
    bool tied;
    const char *eps;
    int theta, context;
    const char *rope_scaling;
};

#define LLAMA3_ROPE                                                                                \
    "{\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, "                     \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

/* clang-format off */
static const struct shape shapes[] = {
    { "qwen3-0.6b",    "qwen3", 1024, 28, 16,  8, 128,  3072, 151936, true,  "1e-6", 1000000,  40960, "null" },
    { "qwen3-1.7b",    "qwen3", 2048, 28, 16,  8, 128,  6144, 151936, true,  "1e-6", 1000000,  40960, "null" },
    { "qwen3-4b",      "qwen3", 2560, 36, 32,  8, 128,  9728, 151936, true,  "1e-6", 1000000,  40960, "null" },
    { "qwen3-8b",      "qwen3", 4096, 36, 32,  8, 128, 12288, 151936, false, "1e-6", 1000000,  40960, "null" },
    { "smollm2-135m",  "llama",  576, 30,  9,  3,  64,  1536,  49152, true,  "1e-5",  100000,   8192, "null" },
    { "smollm2-360m",  "llama",  960, 32, 15,  5,  64,  2560,  49152, true,  "1e-5",  100000,   8192, "null" },
    { "smollm2-1.7b",  "llama", 2048, 24, 32, 32,  64,  8192,  49152, true,  "1e-5",  130000,   8192, "null" },
    { "llama-3.2-1b",  "llama", 2048, 16, 32,  8,  64,  8192, 128256, true,  "1e-5",  500000, 131072, LLAMA3_ROPE },
    { "llama-3.2-3b",  "llama", 3072, 28, 24,  8, 128,  8192, 128256, true,  "1e-5",  500000, 131072, LLAMA3_ROPE },
};
/* clang-format on */

#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

static enum reel_status print_config(struct buffer *out, const struct shape *s,
                                     struct reel_error *err) {
    return buffer_printf(out, err,
                         "{\n"
                         "  \"architectures\": [\"%s\"],\n"
                         "  \"model_type\": \"%s\",\n"
                         "  \"hidden_size\": %d,\n"
                         "  \"num_hidden_layers\": %d,\n"
                         "  \"num_attention_heads\": %d,\n"
                         "  \"num_key_value_heads\": %d,\n"
                         "  \"head_dim\": %d,\n"
                         "  \"intermediate_size\": %d,\n"
                         "  \"vocab_size\": %d,\n"
                         "  \"tie_word_embeddings\": %s,\n"
                         "  \"rms_norm_eps\": %s,\n"
                         "  \"rope_theta\": %d,\n"
                         "  \"rope_scaling\": %s,\n"
                         "  \"max_position_embeddings\": %d,\n"
                         "  \"hidden_act\": \"silu\",\n"
                         "  \"attention_bias\": false,\n"
                         "  \"eos_token_id\": %d,\n"
                         "  \"torch_dtype\": \"bfloat16\"\n"
                         "}\n",
                         strcmp(s->family, "qwen3") == 0 ? "Qwen3ForCausalLM" : "LlamaForCausalLM",
                         s->family, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim,
                         s->intermediate, s->vocab, s->tied ? "true" : "false", s->eps, s->theta,
                         s->rope_scaling, s->context, SYNTHETIC_END_OF_TURN);
}

enum reel_status synthetic_shape_config(struct buffer *out, const char *shape, bool *found,
                                        struct reel_error *err) {
    *found = false;
    for (int i = 0; i < N_SHAPES && !*found; i++) {
        if (strcmp(shape, shapes[i].name) != 0) continue;
        *found = true;
        return print_config(out, &shapes[i], err);
    }
    return REEL_OK;
}

enum reel_status synthetic_shape_names(struct buffer *out, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < N_SHAPES && status == REEL_OK; i++)
        status = buffer_printf(out, err, "%s%s", i ? ", " : "", shapes[i].name);
    return status;
}
