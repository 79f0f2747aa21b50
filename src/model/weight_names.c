#include "model/weight_names.h"

static const struct name_root hugging_face_roots[] = {
    { "model.", "lm_head.weight" },
    { "model.language_model.", "lm_head.weight" },
    { "language_model.model.", "language_model.lm_head.weight" },
    { "", "lm_head.weight" }, /* Qwen3-Embedding: the text model alone */
    { "thinker.model.", "thinker.lm_head.weight" },
};

static const struct container_names hugging_face = {
    .embedding = "embed_tokens.weight",
    .final_norm = "norm.weight",
    .layer = "layers.%d.",
    .draft_prefix = "mtp.",
    .roots = hugging_face_roots,
    .n_roots = sizeof hugging_face_roots / sizeof hugging_face_roots[0],
    .of = { .attn_norm = "input_layernorm.weight",
            .q = "self_attn.q_proj.weight",
            .k = "self_attn.k_proj.weight",
            .v = "self_attn.v_proj.weight",
            .o = "self_attn.o_proj.weight",
            .q_norm = "self_attn.q_norm.weight",
            .k_norm = "self_attn.k_norm.weight",
            .q_bias = "self_attn.q_proj.bias",
            .k_bias = "self_attn.k_proj.bias",
            .v_bias = "self_attn.v_proj.bias",
            .ffn_norm = "post_attention_layernorm.weight",
            .gate = "mlp.gate_proj.weight",
            .up = "mlp.up_proj.weight",
            .down = "mlp.down_proj.weight",
            .delta_qkv = "linear_attn.in_proj_qkv.weight",
            .delta_z = "linear_attn.in_proj_z.weight",
            .delta_b = "linear_attn.in_proj_b.weight",
            .delta_a = "linear_attn.in_proj_a.weight",
            .delta_out = "linear_attn.out_proj.weight",
            .delta_conv = "linear_attn.conv1d.weight",
            .delta_rate = "linear_attn.A_log",
            .delta_dt_bias = "linear_attn.dt_bias",
            .delta_norm = "linear_attn.norm.weight",
            .draft_fc = "fc.weight",
            .draft_embedding_norm = "pre_fc_norm_embedding.weight",
            .draft_hidden_norm = "pre_fc_norm_hidden.weight",
            .draft_norm = "norm.weight" },
};

#define GGUF_ATTENTION_AND_MLP                                                                     \
    .attn_norm = "attn_norm.weight", .q = "attn_q.weight", .k = "attn_k.weight",                   \
    .v = "attn_v.weight", .o = "attn_output.weight", .q_norm = "attn_q_norm.weight",               \
    .k_norm = "attn_k_norm.weight", .q_bias = "attn_q.bias", .k_bias = "attn_k.bias",              \
    .v_bias = "attn_v.bias", .gate = "ffn_gate.weight", .up = "ffn_up.weight",                     \
    .down = "ffn_down.weight"
#define GGUF_CONTAINER                                                                             \
    .embedding = "token_embd.weight", .final_norm = "output_norm.weight", .layer = "blk.%d.",      \
    .roots = gguf_roots, .n_roots = 1

static const struct name_root gguf_roots[] = { { "", "output.weight" } };

static const struct container_names gguf_straight = {
    GGUF_CONTAINER,
    .of = { GGUF_ATTENTION_AND_MLP, .ffn_norm = "ffn_norm.weight" },
};
static const struct container_names gguf_llama = {
    GGUF_CONTAINER,
    .of = { GGUF_ATTENTION_AND_MLP, .ffn_norm = "ffn_norm.weight" },
    .halves_interleaved = true,
};
/* As llama.cpp's conversion/qwen.py writes it, class Qwen3_5TextModel. */
static const struct container_names gguf_qwen35 = {
    GGUF_CONTAINER,
    .of = { GGUF_ATTENTION_AND_MLP, .ffn_norm = "post_attention_norm.weight",
            .delta_qkv = "attn_qkv.weight", .delta_z = "attn_gate.weight",
            .delta_b = "ssm_beta.weight", .delta_a = "ssm_alpha.weight",
            .delta_out = "ssm_out.weight", .delta_conv = "ssm_conv1d.weight", .delta_rate = "ssm_a",
            .delta_dt_bias = "ssm_dt.bias", .delta_norm = "ssm_norm.weight",
            .draft_fc = "nextn.eh_proj.weight", .draft_embedding_norm = "nextn.enorm.weight",
            .draft_hidden_norm = "nextn.hnorm.weight",
            .draft_norm = "nextn.shared_head_norm.weight",
            .draft_embedding = "nextn.embed_tokens.weight",
            .draft_head = "nextn.shared_head_head.weight" },
    .heads_dealt = true,
    .rates_negated = true,
    .flat_taps = true,
};

const struct container_names *container_names_of(bool is_gguf, enum model_family family) {
    static const struct container_names *const gguf[] = {
        [MODEL_QWEN3] = &gguf_straight, [MODEL_LLAMA] = &gguf_llama,
        [MODEL_QWEN35] = &gguf_qwen35,  [MODEL_QWEN3_ASR] = NULL,
        [MODEL_QWEN2] = &gguf_straight, [MODEL_MISTRAL] = NULL, /* llama.cpp writes it as a llama */
    };
    return is_gguf ? gguf[family] : &hugging_face;
}
