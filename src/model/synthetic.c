/* What a synthetic checkpoint holds. tools/synthetic.py follows the same rules; a test compares
 * their bits. */
#include "model/synthetic.h"

#include "kernels/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------- */

enum kind {
    GAINS,
    CENTRED_GAINS,
    BIASES,
    QKV_BIASES,
    MATRIX,
    VOCABULARY,
    TAPS,
    CONV,
    CONV_OUT,
    A_LOG,
    DT_BIAS
};

/* Of A_LOG and DT_BIAS, so that decays of 0.2 to 0.999 occur. Scales have few significant bits:
 * their products with a draw are exact (kernels/synthetic.h). */
#define A_LOG_MEAN    (-1.5f)
#define A_LOG_SCALE   (10.0f / 1048576.0f) /* deviation 0.72 */
#define DT_BIAS_MEAN  (-1.5f)
#define DT_BIAS_SCALE (20.0f / 1048576.0f) /* deviation 1.44 */
/* As large as what they are added to: products with a normed vector have the deviation 0.75. */
#define QKV_BIAS_SCALE (10.0f / 1048576.0f) /* deviation 0.72 */

/* Matrices have a deviation of spread / sqrt(columns): what goes through 28 layers or more neither
 * fades nor grows. The vocabulary's matrices are wider, for logits with some contrast, and the
 * convolutions' the widest, so that sound is not drowned by the positions added to it. */
static void describe(struct synthetic_tensor *t, enum kind kind, int rows, int columns) {
    const double spread = kind == CONV || kind == CONV_OUT ? 1.5 : kind == VOCABULARY ? 1.0 : 0.75;
    const float matrix = (float)(spread / sqrt((double)columns) / SYNTHETIC_DEVIATION);
    static const int ranks[] = {
        [MATRIX] = 2, [VOCABULARY] = 2, [CONV_OUT] = 2, [TAPS] = 3, [CONV] = 4, [DT_BIAS] = 0
    };
    t->rank = ranks[kind] ? ranks[kind] : 1;
    t->rows = rows;
    t->columns = columns;
    t->dtype = DTYPE_BF16;
    t->offset = 0;
    t->scale = matrix;
    if (kind == GAINS || kind == CENTRED_GAINS || kind == BIASES) t->scale = SYNTHETIC_GAIN_SCALE;
    if (kind == GAINS) t->offset = 1;
    if (kind == QKV_BIASES) t->scale = QKV_BIAS_SCALE;
    if (kind == A_LOG) t->offset = A_LOG_MEAN, t->scale = A_LOG_SCALE;
    if (kind == DT_BIAS) t->offset = DT_BIAS_MEAN, t->scale = DT_BIAS_SCALE;
}

struct recipe {
    const char *name;
    enum kind kind;
    int rows, columns;
};
#define MAX_LAYER_TENSORS 16

static enum kind gains_kind(const struct model_config *c) {
    return c->centred_norms ? CENTRED_GAINS : GAINS;
}

static int mlp_recipes(const struct model_config *c, struct recipe *out) {
    const struct recipe all[] = {
        { "post_attention_layernorm.weight", gains_kind(c), 1, c->hidden },
        { "mlp.gate_proj.weight", MATRIX, c->intermediate, c->hidden },
        { "mlp.up_proj.weight", MATRIX, c->intermediate, c->hidden },
        { "mlp.down_proj.weight", MATRIX, c->hidden, c->intermediate },
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

static int attention_recipes(const struct model_config *c, struct recipe *out) {
    const enum kind gains = gains_kind(c);
    const int kv = c->n_kv_heads * c->head_dim;
    const struct recipe first[] = {
        { "input_layernorm.weight", gains, 1, c->hidden },
        { "self_attn.q_proj.weight", MATRIX, model_q_rows(c), c->hidden },
        { "self_attn.k_proj.weight", MATRIX, kv, c->hidden },
        { "self_attn.v_proj.weight", MATRIX, kv, c->hidden },
        { "self_attn.o_proj.weight", MATRIX, c->hidden, c->n_heads * c->head_dim },
    };
    const struct recipe norms[] = {
        { "self_attn.q_norm.weight", gains, 1, c->head_dim },
        { "self_attn.k_norm.weight", gains, 1, c->head_dim },
    };
    const struct recipe biases[] = {
        { "self_attn.q_proj.bias", QKV_BIASES, 1, model_q_rows(c) },
        { "self_attn.k_proj.bias", QKV_BIASES, 1, kv },
        { "self_attn.v_proj.bias", QKV_BIASES, 1, kv },
    };
    int n = (int)(sizeof first / sizeof first[0]);
    memcpy(out, first, sizeof first);
    n += mlp_recipes(c, out + n);
    if (c->qkv_bias) {
        memcpy(out + n, biases, sizeof biases);
        n += 3;
    }
    if (!c->qk_norm) return n;
    memcpy(out + n, norms, sizeof norms);
    return n + 2;
}

static int delta_recipes(const struct model_config *c, struct recipe *out) {
    const int heads = c->delta.value_heads, width = model_delta_width(c);
    const int channels = model_delta_channels(c);
    const struct recipe all[] = {
        { "input_layernorm.weight", gains_kind(c), 1, c->hidden },
        { "linear_attn.in_proj_qkv.weight", MATRIX, channels, c->hidden },
        { "linear_attn.in_proj_z.weight", MATRIX, width, c->hidden },
        { "linear_attn.in_proj_b.weight", MATRIX, heads, c->hidden },
        { "linear_attn.in_proj_a.weight", MATRIX, heads, c->hidden },
        { "linear_attn.conv1d.weight", TAPS, channels, c->delta.conv_width },
        { "linear_attn.A_log", A_LOG, 1, heads },
        { "linear_attn.dt_bias", DT_BIAS, 1, heads },
        { "linear_attn.norm.weight", GAINS, 1, c->delta.value_dim },
        { "linear_attn.out_proj.weight", MATRIX, c->hidden, width },
    };
    const int n = (int)(sizeof all / sizeof all[0]);
    memcpy(out, all, sizeof all);
    return n + mlp_recipes(c, out + n);
}

static int layer_recipes(const struct model_config *c, enum layer_kind kind, struct recipe *out) {
    return kind == LAYER_DELTA ? delta_recipes(c, out) : attention_recipes(c, out);
}

/* Names one layer's tensors: prefix, layer, name. */
static void set_layer_tensor(const struct recipe *r, const char *prefix, int layer,
                             struct synthetic_tensor *t) {
    describe(t, r->kind, r->rows, r->columns);
    bool is_f32 = r->kind == A_LOG || strcmp(r->name, "linear_attn.norm.weight") == 0;
    if (is_f32) t->dtype = DTYPE_F32;
    snprintf(t->name, sizeof t->name, "%slayers.%d.%s", prefix, layer, r->name);
}

static const char *text_prefix(const struct model_config *c) {
    if (c->audio.n_layers) return "thinker.model.";
    return c->nested ? "model.language_model." : "model.";
}

/* Of the tensors around the layers, those behind them: the final norm, the head, the draft's. */
static int tail_recipes(const struct model_config *c, struct recipe *out) {
    const struct recipe norm = { "norm.weight", gains_kind(c), 1, c->hidden };
    const struct recipe head = { c->audio.n_layers ? "thinker.lm_head.weight" : "lm_head.weight",
                                 VOCABULARY, c->vocab, c->hidden };
    const struct recipe draft[] = {
        { "mtp.fc.weight", MATRIX, c->hidden, 2 * c->hidden },
        { "mtp.pre_fc_norm_embedding.weight", gains_kind(c), 1, c->hidden },
        { "mtp.pre_fc_norm_hidden.weight", gains_kind(c), 1, c->hidden },
        { "mtp.norm.weight", gains_kind(c), 1, c->hidden },
    };
    int n = 0;
    out[n++] = norm;
    if (!c->tied) out[n++] = head;
    for (int i = 0; c->n_draft_layers && i < 4; i++)
        out[n++] = draft[i];
    return n;
}

/* Tensor i in layers first .. n - 1, or how many there are when they are fewer. */
static bool find_in_layers(const struct model_config *c, int n, bool draft, int *i,
                           struct synthetic_tensor *t) {
    struct recipe all[MAX_LAYER_TENSORS];
    for (int layer = 0; layer < n; layer++) {
        enum layer_kind kind = draft ? LAYER_ATTENTION : (enum layer_kind)c->layer_kinds[layer];
        int count = layer_recipes(c, kind, all);
        if (*i < count) {
            set_layer_tensor(&all[*i], draft ? "mtp." : text_prefix(c), layer, t);
            return true;
        }
        *i -= count;
    }
    return false;
}

/* ---- the audio tower ------------------------------------------------------------------------- */

#define TOWER "thinker.audio_tower."

static int tower_layer_recipes(const struct audio_config *c, struct recipe *out) {
    const struct recipe all[] = {
        { "self_attn_layer_norm.weight", GAINS, 1, c->hidden },
        { "self_attn_layer_norm.bias", BIASES, 1, c->hidden },
        { "self_attn.q_proj.weight", MATRIX, c->hidden, c->hidden },
        { "self_attn.q_proj.bias", BIASES, 1, c->hidden },
        { "self_attn.k_proj.weight", MATRIX, c->hidden, c->hidden },
        { "self_attn.k_proj.bias", BIASES, 1, c->hidden },
        { "self_attn.v_proj.weight", MATRIX, c->hidden, c->hidden },
        { "self_attn.v_proj.bias", BIASES, 1, c->hidden },
        { "self_attn.out_proj.weight", MATRIX, c->hidden, c->hidden },
        { "self_attn.out_proj.bias", BIASES, 1, c->hidden },
        { "final_layer_norm.weight", GAINS, 1, c->hidden },
        { "final_layer_norm.bias", BIASES, 1, c->hidden },
        { "fc1.weight", MATRIX, c->intermediate, c->hidden },
        { "fc1.bias", BIASES, 1, c->intermediate },
        { "fc2.weight", MATRIX, c->hidden, c->intermediate },
        { "fc2.bias", BIASES, 1, c->hidden },
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

static int tower_recipes(const struct audio_config *c, struct recipe *out) {
    const int taps = c->n_channels * M_AUDIO_TAPS;
    const struct recipe all[] = {
        { TOWER "conv2d1.weight", CONV, c->n_channels, M_AUDIO_TAPS },
        { TOWER "conv2d1.bias", BIASES, 1, c->n_channels },
        { TOWER "conv2d2.weight", CONV, c->n_channels, taps },
        { TOWER "conv2d2.bias", BIASES, 1, c->n_channels },
        { TOWER "conv2d3.weight", CONV, c->n_channels, taps },
        { TOWER "conv2d3.bias", BIASES, 1, c->n_channels },
        { TOWER "conv_out.weight", CONV_OUT, c->hidden, audio_conv_width(c) },
        { TOWER "ln_post.weight", GAINS, 1, c->hidden },
        { TOWER "ln_post.bias", BIASES, 1, c->hidden },
        { TOWER "proj1.weight", MATRIX, c->hidden, c->hidden },
        { TOWER "proj1.bias", BIASES, 1, c->hidden },
        { TOWER "proj2.weight", MATRIX, c->output_dim, c->hidden },
        { TOWER "proj2.bias", BIASES, 1, c->output_dim },
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

/* Tensor i of the tower: what is in no layer, then the layers. False when there are not so many. */
static bool find_in_tower(const struct audio_config *c, int i, struct synthetic_tensor *t) {
    struct recipe all[MAX_LAYER_TENSORS];
    if (!c->n_layers) return false;
    const int around = tower_recipes(c, all);
    if (i < around) {
        describe(t, all[i].kind, all[i].rows, all[i].columns);
        snprintf(t->name, sizeof t->name, "%s", all[i].name);
        return true;
    }
    i -= around;
    const int count = tower_layer_recipes(c, all);
    if (i / count >= c->n_layers) return false;
    set_layer_tensor(&all[i % count], TOWER, i / count, t);
    return true;
}

/* False when there are not so many. */
static bool find_tensor(const struct model_config *c, int i, struct synthetic_tensor *t) {
    struct recipe tail[6];
    if (i == 0) {
        describe(t, VOCABULARY, c->vocab, c->hidden);
        snprintf(t->name, sizeof t->name, "%sembed_tokens.weight", text_prefix(c));
        return true;
    }
    i--;
    if (find_in_layers(c, c->n_layers, false, &i, t)) return true;
    const int n = tail_recipes(c, tail);
    if (i < n) {
        describe(t, tail[i].kind, tail[i].rows, tail[i].columns);
        snprintf(t->name, sizeof t->name, "%s%s", i == 0 ? text_prefix(c) : "", tail[i].name);
        return true;
    }
    i -= n;
    if (find_in_layers(c, c->n_draft_layers, true, &i, t)) return true;
    return find_in_tower(&c->audio, i, t);
}

int synthetic_tensor_count(const struct model_config *c) {
    struct synthetic_tensor t;
    int n = 0;
    while (find_tensor(c, n, &t))
        n++;
    return n;
}

void synthetic_tensor_get(const struct model_config *c, int i, struct synthetic_tensor *t) {
    (void)find_tensor(c, i, t);
}

void synthetic_fill(const struct synthetic_tensor *t, uint64_t seed, uint64_t first, size_t n,
                    uint16_t *out) {
    uint64_t key = synthetic_key(seed, t->name);
    for (size_t i = 0; i < n; i++)
        out[i] = synthetic_bf16(key, first + i, t->offset, t->scale);
}

/* ---- named shapes ---------------------------------------------------------------------------- */

/* Sizes from the published config.json files. Of a hybrid `extra` has the keys that only it has, of
 * a speech model those beside its text_config. */
struct shape {
    const char *name, *family;
    int hidden, layers, heads, kv_heads, head_dim, intermediate, vocab;
    bool tied;
    const char *eps;
    int theta, context;
    const char *rope_scaling, *extra;
};

#define LLAMA3_ROPE                                                                                \
    "{\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, "                     \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

#define NO_WINDOW "  \"sliding_window\": null,\n"

#define QWEN35_EXTRA                                                                               \
    "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "               \
    "\"partial_rotary_factor\": 0.25, \"mrope_section\": [11, 11, 10], "                           \
    "\"mrope_interleaved\": true},\n"                                                              \
    "  \"full_attention_interval\": 4,\n"                                                          \
    "  \"attn_output_gate\": true,\n"                                                              \
    "  \"linear_num_key_heads\": 16,\n"                                                            \
    "  \"linear_num_value_heads\": 16,\n"                                                          \
    "  \"linear_key_head_dim\": 128,\n"                                                            \
    "  \"linear_value_head_dim\": 128,\n"                                                          \
    "  \"linear_conv_kernel_dim\": 4,\n"                                                           \
    "  \"mtp_num_hidden_layers\": 1,\n"

#define MROPE "{\"rope_type\": \"default\", \"mrope_section\": [24, 20, 20], \"interleaved\": true}"

#define ASR_TOWER(layers, hidden, heads, ffn, output)                                              \
    "    \"audio_config\": {\n"                                                                    \
    "      \"num_mel_bins\": 128,\n"                                                               \
    "      \"encoder_layers\": " layers ",\n"                                                      \
    "      \"d_model\": " hidden ",\n"                                                             \
    "      \"encoder_attention_heads\": " heads ",\n"                                              \
    "      \"encoder_ffn_dim\": " ffn ",\n"                                                        \
    "      \"output_dim\": " output ",\n"                                                          \
    "      \"downsample_hidden_size\": 480,\n"                                                     \
    "      \"n_window\": 50,\n"                                                                    \
    "      \"n_window_infer\": 800,\n"                                                             \
    "      \"activation_function\": \"gelu\",\n"                                                   \
    "      \"scale_embedding\": false\n"                                                           \
    "    },\n"                                                                                     \
    "    \"audio_token_id\": 151676,\n"                                                            \
    "    \"audio_start_token_id\": 151669,\n"                                                      \
    "    \"audio_end_token_id\": 151670,\n"

/* clang-format off */
static const struct shape shapes[] = {
    { "qwen3-0.6b",    "qwen3", 1024, 28, 16,  8, 128,  3072, 151936, true,  "1e-6", 1000000,  40960, "null", NULL },
    { "qwen3-1.7b",    "qwen3", 2048, 28, 16,  8, 128,  6144, 151936, true,  "1e-6", 1000000,  40960, "null", NULL },
    { "qwen3-4b",      "qwen3", 2560, 36, 32,  8, 128,  9728, 151936, true,  "1e-6", 1000000,  40960, "null", NULL },
    { "qwen3-8b",      "qwen3", 4096, 36, 32,  8, 128, 12288, 151936, false, "1e-6", 1000000,  40960, "null", NULL },
    { "qwen3-14b",     "qwen3", 5120, 40, 40,  8, 128, 17408, 151936, false, "1e-6", 1000000,  40960, "null", NULL },
    { "smollm2-135m",  "llama",  576, 30,  9,  3,  64,  1536,  49152, true,  "1e-5",  100000,   8192, "null", NULL },
    { "smollm2-360m",  "llama",  960, 32, 15,  5,  64,  2560,  49152, true,  "1e-5",  100000,   8192, "null", NULL },
    { "smollm2-1.7b",  "llama", 2048, 24, 32, 32,  64,  8192,  49152, true,  "1e-5",  130000,   8192, "null", NULL },
    { "llama-3.2-1b",  "llama", 2048, 16, 32,  8,  64,  8192, 128256, true,  "1e-5",  500000, 131072, LLAMA3_ROPE, NULL },
    { "llama-3.2-3b",  "llama", 3072, 28, 24,  8, 128,  8192, 128256, true,  "1e-5",  500000, 131072, LLAMA3_ROPE, NULL },
    { "tinyllama-1.1b", "llama", 2048, 22, 32,  4,  64,  5632,  32000, false, "1e-5",   10000,   2048, "null", NULL },
    { "mistral-7b",  "mistral", 4096, 32, 32,  8, 128, 14336,  32768, false, "1e-5", 1000000,  32768, "null", NO_WINDOW },
    { "qwen2.5-0.5b",  "qwen2",  896, 24, 14,  2,  64,  4864, 151936, true,  "1e-6", 1000000,  32768, "null", NULL },
    { "qwen2.5-1.5b",  "qwen2", 1536, 28, 12,  2, 128,  8960, 151936, true,  "1e-6", 1000000,  32768, "null", NULL },
    { "qwen2.5-3b",    "qwen2", 2048, 36, 16,  2, 128, 11008, 151936, true,  "1e-6", 1000000,  32768, "null", NULL },
    { "qwen3.5-0.8b", "qwen3_5", 1024, 24,  8,  2, 256,  3584, 248320, true,  "1e-6",10000000, 262144, "null", QWEN35_EXTRA },
    { "qwen3-asr-0.6b", "qwen3_asr", 1024, 28, 16, 8, 128, 3072, 151936, true, "1e-6", 1000000, 65536, MROPE, ASR_TOWER("18", "896", "14", "3584", "1024") },
    { "qwen3-asr-1.7b", "qwen3_asr", 2048, 28, 16, 8, 128, 6144, 151936, true, "1e-6", 1000000, 65536, MROPE, ASR_TOWER("24", "1024", "16", "4096", "2048") },
};
/* clang-format on */

#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

static const char *architecture(const struct shape *s) {
    if (strcmp(s->family, "qwen3_5") == 0) return "Qwen3_5ForConditionalGeneration";
    if (strcmp(s->family, "qwen3_asr") == 0) return "Qwen3ASRForConditionalGeneration";
    if (strcmp(s->family, "qwen2") == 0) return "Qwen2ForCausalLM";
    if (strcmp(s->family, "mistral") == 0) return "MistralForCausalLM";
    return strcmp(s->family, "qwen3") == 0 ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

static enum reel_status print_config(struct buffer *out, const struct shape *s,
                                     struct reel_error *err) {
    const bool speech = strcmp(s->family, "qwen3_asr") == 0;
    const bool nested = speech || strcmp(s->family, "qwen3_5") == 0;
    enum reel_status status =
        buffer_printf(out, err, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                      architecture(s), s->family);
    if (status == REEL_OK && speech)
        status = buffer_printf(out, err, "  \"thinker_config\": {\n%s", s->extra);
    if (status == REEL_OK && nested)
        status = buffer_printf(out, err, "  \"text_config\": {\n  \"model_type\": \"%s%s\",\n",
                               speech ? "qwen3" : s->family, speech ? "" : "_text");
    if (status == REEL_OK)
        status =
            buffer_printf(out, err,
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
                          "%s"
                          "  \"max_position_embeddings\": %d,\n"
                          "  \"hidden_act\": \"silu\",\n"
                          "  \"attention_bias\": false,\n"
                          "  \"eos_token_id\": %d,\n"
                          "  \"torch_dtype\": \"bfloat16\"\n"
                          "}\n",
                          s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->intermediate,
                          s->vocab, s->tied ? "true" : "false", s->eps, s->theta, s->rope_scaling,
                          s->extra && !speech ? s->extra : "", s->context, SYNTHETIC_END_OF_TURN);
    if (status == REEL_OK && nested) status = buffer_text(out, speech ? "}}\n" : "}\n", err);
    return status;
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
