/* config.json, generation_config.json and GGUF metadata: defaults, spellings, and one bad value for
 * every rule. */
#include "base/json.h"
#include "model/model_config.h"

#include "../support/model_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The small config with the members of `change` put over it; the text "-" takes a member out. */
static char *changed(const char *base, const char *change) {
    json_t *config = json_loads(base, 0, NULL), *over = json_loads(change, 0, NULL);
    if (!config || !over) fail_msg("not JSON: %s", change);
    const char *key;
    json_t *value;
    json_object_foreach(over, key, value) {
        const char *text = json_string_value(value);
        if (text && strcmp(text, "-") == 0)
            json_object_del(config, key);
        else
            json_object_set(config, key, value);
    }
    char *text = json_dumps(config, 0);
    json_decref(config);
    json_decref(over);
    return text;
}

/* `generation` may be NULL. */
static enum reel_status read_texts(struct model_config *config, const char *text,
                                   const char *generation, struct reel_error *err) {
    struct guarded g = guarded_copy(text, strlen(text));
    struct reel_memory_file files[2] = { { "config.json", g.bytes, g.n } };
    if (generation)
        files[1] =
            (struct reel_memory_file){ "generation_config.json", generation, strlen(generation) };
    struct model_source source;
    assert_int_equal(model_source_open_memory(&source, "mem", files, generation ? 2 : 1, err),
                     REEL_OK);
    enum reel_status status = model_config_read(config, &source, err);
    model_source_release(&source);
    guarded_release(&g);
    return status;
}

static struct model_config read_ok(const char *base, const char *change, const char *generation) {
    struct model_config config;
    struct reel_error err = { 0 };
    char *text = changed(base, change);
    if (read_texts(&config, text, generation, &err) != REEL_OK)
        fail_msg("%s: %s", change, err.text);
    free(text);
    return config;
}

static void missing_keys_mean_what_they_mean_to_the_reference(void **state) {
    (void)state;
    struct model_config c = read_ok(mini_llama_config, "{}", NULL);
    assert_int_equal(c.family, MODEL_LLAMA);
    assert_false(c.qk_norm);
    assert_false(c.tied);
    assert_true(c.rms_eps == 1e-6f);
    assert_true(c.rope_theta == 10000);
    assert_int_equal(c.rope, ROPE_PLAIN);
    assert_int_equal(c.max_context, 2048);
    assert_int_equal(c.n_stop_ids, 0);
    assert_int_equal(c.bos_id, -1);
    assert_true(c.sampling.temperature == 0);
    c = read_ok(mini_llama_config, "{\"head_dim\":\"-\",\"num_key_value_heads\":null}", NULL);
    assert_int_equal(c.head_dim, 4);
    assert_int_equal(c.n_kv_heads, 2);
    c = read_ok(mini_qwen3_config, "{\"head_dim\":\"-\"}", NULL);
    assert_true(c.qk_norm);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.max_context, 32768);
}

static void real_configs_are_read(void **state) {
    (void)state;
    static const char qwen3[] =
        "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,"
        "\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151645,"
        "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":1024,"
        "\"initializer_range\":0.02,\"intermediate_size\":3072,"
        "\"max_position_embeddings\":40960,\"max_window_layers\":28,\"model_type\":\"qwen3\","
        "\"num_attention_heads\":16,\"num_hidden_layers\":28,\"num_key_value_heads\":8,"
        "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000,"
        "\"sliding_window\":null,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\","
        "\"transformers_version\":\"4.51.0\",\"use_cache\":true,\"use_sliding_window\":false,"
        "\"vocab_size\":151936}";
    static const char generation[] =
        "{\"bos_token_id\":151643,\"do_sample\":true,\"eos_token_id\":[151645,151643],"
        "\"pad_token_id\":151643,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95}";
    struct model_config c = read_ok(qwen3, "{}", generation);
    assert_int_equal(c.hidden, 1024);
    assert_int_equal(c.n_layers, 28);
    assert_int_equal(c.n_heads, 16);
    assert_int_equal(c.n_kv_heads, 8);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.intermediate, 3072);
    assert_int_equal(c.vocab, 151936);
    assert_int_equal(c.max_context, 40960);
    assert_true(c.tied && c.qk_norm);
    assert_true(c.rope_theta == 1e6);
    assert_int_equal(c.bos_id, 151643);
    assert_int_equal(c.n_stop_ids, 2);
    assert_int_equal(c.stop_ids[0], 151645);
    assert_int_equal(c.stop_ids[1], 151643);
    assert_true(c.sampling.temperature == 0.6f && c.sampling.top_p == 0.95f);
    assert_int_equal(c.sampling.top_k, 20);
}

static void both_rope_spellings_are_read(void **state) {
    (void)state;
#define LLAMA3                                                                                     \
    "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                             \
    "\"original_max_position_embeddings\":8192"
    static const char *const spellings[] = {
        "{\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\"," LLAMA3 "}}",
        "{\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"llama3\"," LLAMA3 "}}",
        "{\"rope_parameters\":{\"rope_theta\":500000,\"rope_type\":\"llama3\"," LLAMA3 "}}",
        "{\"rope_theta\":5e5,\"rope_parameters\":{\"rope_type\":\"llama3\"," LLAMA3 "}}",
        "{\"rope_theta\":7,\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":5e5,"
        "\"rope_type\":\"llama3\"," LLAMA3 "}}",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        struct model_config c = read_ok(mini_llama_config, spellings[i], NULL);
        assert_int_equal(c.rope, ROPE_LLAMA3);
        assert_true(c.rope_theta == 500000);
        assert_true(c.rope_factor == 8 && c.rope_low_freq_factor == 1);
        assert_true(c.rope_high_freq_factor == 4);
        assert_int_equal(c.rope_original_context, 8192);
    }
    struct model_config c =
        read_ok(mini_llama_config,
                "{\"rope_parameters\":{\"rope_theta\":5,\"rope_type\":\"default\"}}", NULL);
    assert_int_equal(c.rope, ROPE_PLAIN);
    assert_true(c.rope_theta == 5);
}

static void stop_ids_of_both_files_are_joined(void **state) {
    (void)state;
    struct model_config c = read_ok(mini_llama_config, "{\"eos_token_id\":[3,4,3]}",
                                    "{\"eos_token_id\":5,\"temperature\":0.3}");
    assert_int_equal(c.n_stop_ids, 3);
    assert_int_equal(c.stop_ids[2], 5);
    assert_true(c.sampling.temperature == 0); /* do_sample is not set */
    c = read_ok(mini_llama_config, "{\"eos_token_id\":null}", "{\"do_sample\":true}");
    assert_int_equal(c.n_stop_ids, 0);
    assert_true(c.sampling.temperature == 1);
    assert_int_equal(c.sampling.top_k, 50);
}

#define BAD_ROPE(type) "{\"rope_scaling\":{\"rope_type\":\"" type "\",\"factor\":4.0}}"
#define STOPS_17       "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"

static const struct bad_config {
    const char *change;
    enum reel_status status;
    const char *says;
} bad_configs[] = {
    /* families */
    { "{\"model_type\":\"-\"}", REEL_E_FORMAT, "\"model_type\"" },
    { "{\"model_type\":3}", REEL_E_FORMAT, "\"model_type\"" },
    { "{\"model_type\":\"gpt2\"}", REEL_E_UNSUPPORTED, "\"gpt2\", supported are" },
    { "{\"model_type\":\"qwen3_moe\"}", REEL_E_UNSUPPORTED, "\"qwen3_moe\"" },
    { "{\"model_type\":\"qwen3_5_moe\"}", REEL_E_UNSUPPORTED, "\"qwen3_5_moe\"" },
    { "{\"model_type\":\"qwen3_5\"}", REEL_E_FORMAT, "\"text_config\"" },
    { "{\"model_type\":\"\"}", REEL_E_UNSUPPORTED, "\"\"" },
    /* required sizes */
    { "{\"hidden_size\":\"-\"}", REEL_E_FORMAT, "\"hidden_size\" is missing" },
    { "{\"num_hidden_layers\":\"-\"}", REEL_E_FORMAT, "\"num_hidden_layers\" is missing" },
    { "{\"num_attention_heads\":null}", REEL_E_FORMAT, "\"num_attention_heads\" is missing" },
    { "{\"intermediate_size\":\"-\"}", REEL_E_FORMAT, "\"intermediate_size\" is missing" },
    { "{\"vocab_size\":\"-\"}", REEL_E_FORMAT, "\"vocab_size\" is missing" },
    /* ranges */
    { "{\"hidden_size\":0}", REEL_E_LIMIT, "\"hidden_size\" is 0" },
    { "{\"hidden_size\":-8}", REEL_E_LIMIT, "\"hidden_size\" is -8" },
    { "{\"hidden_size\":32769}", REEL_E_LIMIT, "\"hidden_size\"" },
    { "{\"hidden_size\":9223372036854775807}", REEL_E_LIMIT, "\"hidden_size\"" },
    { "{\"hidden_size\":8.0}", REEL_E_FORMAT, "\"hidden_size\" must be an integer" },
    { "{\"hidden_size\":\"8\"}", REEL_E_FORMAT, "\"hidden_size\"" },
    { "{\"hidden_size\":[8]}", REEL_E_FORMAT, "\"hidden_size\"" },
    { "{\"hidden_size\":true}", REEL_E_FORMAT, "\"hidden_size\"" },
    { "{\"num_hidden_layers\":0}", REEL_E_LIMIT, "\"num_hidden_layers\"" },
    { "{\"num_hidden_layers\":257}", REEL_E_LIMIT, "\"num_hidden_layers\"" },
    { "{\"num_attention_heads\":0}", REEL_E_LIMIT, "\"num_attention_heads\"" },
    { "{\"num_attention_heads\":257}", REEL_E_LIMIT, "\"num_attention_heads\"" },
    { "{\"num_attention_heads\":4294967298}", REEL_E_LIMIT, "\"num_attention_heads\"" },
    { "{\"num_key_value_heads\":0}", REEL_E_LIMIT, "\"num_key_value_heads\"" },
    { "{\"num_key_value_heads\":-1}", REEL_E_LIMIT, "\"num_key_value_heads\"" },
    { "{\"num_key_value_heads\":4}", REEL_E_FORMAT, "key-value heads" },
    { "{\"num_attention_heads\":3,\"num_key_value_heads\":2}", REEL_E_FORMAT, "key-value heads" },
    { "{\"head_dim\":3}", REEL_E_FORMAT, "head_dim is 3" },
    { "{\"head_dim\":0}", REEL_E_LIMIT, "\"head_dim\"" },
    { "{\"head_dim\":258}", REEL_E_LIMIT, "\"head_dim\"" },
    { "{\"head_dim\":\"-\",\"num_attention_heads\":64,\"num_key_value_heads\":1}", REEL_E_FORMAT,
      "head_dim is 0" },
    { "{\"head_dim\":\"-\",\"hidden_size\":2048}", REEL_E_FORMAT, "head_dim is 1024" },
    { "{\"intermediate_size\":0}", REEL_E_LIMIT, "\"intermediate_size\"" },
    { "{\"intermediate_size\":262145}", REEL_E_LIMIT, "\"intermediate_size\"" },
    { "{\"vocab_size\":0}", REEL_E_LIMIT, "\"vocab_size\"" },
    { "{\"vocab_size\":1048577}", REEL_E_LIMIT, "\"vocab_size\"" },
    { "{\"max_position_embeddings\":0}", REEL_E_LIMIT, "\"max_position_embeddings\"" },
    { "{\"max_position_embeddings\":1048577}", REEL_E_LIMIT, "\"max_position_embeddings\"" },
    { "{\"max_position_embeddings\":1e6}", REEL_E_FORMAT, "\"max_position_embeddings\"" },
    { "{\"rms_norm_eps\":0}", REEL_E_LIMIT, "\"rms_norm_eps\"" },
    { "{\"rms_norm_eps\":-1e-6}", REEL_E_LIMIT, "\"rms_norm_eps\"" },
    { "{\"rms_norm_eps\":1}", REEL_E_LIMIT, "\"rms_norm_eps\"" },
    { "{\"rms_norm_eps\":\"1e-6\"}", REEL_E_FORMAT, "\"rms_norm_eps\"" },
    { "{\"rope_theta\":0}", REEL_E_LIMIT, "\"rope_theta\"" },
    { "{\"rope_theta\":-1}", REEL_E_LIMIT, "\"rope_theta\"" },
    { "{\"rope_theta\":1e300}", REEL_E_LIMIT, "\"rope_theta\"" },
    { "{\"rope_theta\":\"NaN\"}", REEL_E_FORMAT, "\"rope_theta\"" },
    { "{\"tie_word_embeddings\":1}", REEL_E_FORMAT, "\"tie_word_embeddings\"" },
    /* variants */
    { "{\"attention_bias\":true}", REEL_E_UNSUPPORTED, "\"attention_bias\"" },
    { "{\"attention_bias\":\"no\"}", REEL_E_FORMAT, "\"attention_bias\"" },
    { "{\"mlp_bias\":true}", REEL_E_UNSUPPORTED, "\"mlp_bias\"" },
    { "{\"use_sliding_window\":true}", REEL_E_UNSUPPORTED, "\"use_sliding_window\"" },
    { "{\"sliding_window\":4096}", REEL_E_UNSUPPORTED, "\"sliding_window\"" },
    { "{\"layer_types\":[\"sliding_attention\"]}", REEL_E_UNSUPPORTED, "\"sliding_attention\"" },
    { "{\"layer_types\":[7]}", REEL_E_UNSUPPORTED, "\"layer_types\"" },
    { "{\"hidden_act\":\"gelu\"}", REEL_E_UNSUPPORTED, "\"gelu\"" },
    { "{\"hidden_act\":1}", REEL_E_FORMAT, "\"hidden_act\"" },
    { "{\"partial_rotary_factor\":0.5}", REEL_E_UNSUPPORTED, "\"partial_rotary_factor\"" },
    /* rope */
    { BAD_ROPE("linear"), REEL_E_UNSUPPORTED, "\"linear\"" },
    { BAD_ROPE("dynamic"), REEL_E_UNSUPPORTED, "\"dynamic\"" },
    { BAD_ROPE("yarn"), REEL_E_UNSUPPORTED, "\"yarn\"" },
    { BAD_ROPE("longrope"), REEL_E_UNSUPPORTED, "\"longrope\"" },
    { BAD_ROPE("su"), REEL_E_UNSUPPORTED, "\"su\"" },
    { "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", REEL_E_UNSUPPORTED, "\"linear\"" },
    { "{\"rope_parameters\":{\"rope_type\":\"yarn\"}}", REEL_E_UNSUPPORTED, "\"yarn\"" },
    { "{\"rope_parameters\":{\"partial_rotary_factor\":0.25}}", REEL_E_UNSUPPORTED,
      "\"partial_rotary_factor\"" },
    { "{\"rope_scaling\":[]}", REEL_E_FORMAT, "\"rope_scaling\"" },
    { "{\"rope_scaling\":\"llama3\"}", REEL_E_FORMAT, "\"rope_scaling\"" },
    { "{\"rope_scaling\":{\"rope_type\":3}}", REEL_E_FORMAT, "\"rope_type\"" },
    { "{\"rope_scaling\":{\"rope_type\":\"llama3\"}}", REEL_E_FORMAT, "\"factor\" is missing" },
    { "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":0,\"low_freq_factor\":1,"
      "\"high_freq_factor\":4}}",
      REEL_E_LIMIT, "\"factor\"" },
    { "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
      "\"high_freq_factor\":4}}",
      REEL_E_FORMAT, "\"high_freq_factor\"" },
    { "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
      "\"high_freq_factor\":4,\"original_max_position_embeddings\":0}}",
      REEL_E_LIMIT, "\"original_max_position_embeddings\"" },
    { "{\"rope_parameters\":{\"rope_theta\":-5}}", REEL_E_LIMIT, "\"rope_theta\"" },
    { "{\"rope_scaling\":{\"factor\":2}}", REEL_E_UNSUPPORTED,
      "\"rope_scaling\" has a \"factor\" of 2 and no \"rope_type\", allowed is 1" },
    { "{\"rope_scaling\":{\"rope_type\":\"default\",\"beta_fast\":32}}", REEL_E_UNSUPPORTED,
      "\"rope_scaling\" has \"beta_fast\", which is 32" },
    { "{\"rope_parameters\":{\"rope_theta\":10000,\"attention_factor\":1.5}}", REEL_E_UNSUPPORTED,
      "\"attention_factor\", which is 1.5" },
    { "{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}}", REEL_E_UNSUPPORTED,
      "\"rope_parameters\" has \"full_attention\", which is an object" },
    { "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
      "\"high_freq_factor\":4,\"long_factor\":[1]}}",
      REEL_E_UNSUPPORTED, "\"long_factor\", which is another list" },
    /* ids */
    { "{\"eos_token_id\":10}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"eos_token_id\":-1}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"eos_token_id\":[1,10]}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"eos_token_id\":[[1]]}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"eos_token_id\":\"2\"}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"eos_token_id\":{}}", REEL_E_FORMAT, "\"eos_token_id\"" },
    { "{\"vocab_size\":20,\"eos_token_id\":" STOPS_17 "}", REEL_E_LIMIT, "\"eos_token_id\"" },
    { "{\"bos_token_id\":10}", REEL_E_LIMIT, "\"bos_token_id\"" },
};

/* Keys that other families have: what they say in files of those, which no family here does. */
static const struct bad_config variants[] = {
    { "{\"hidden_activation\":\"gelu_pytorch_tanh\"}", REEL_E_UNSUPPORTED, "allowed is \"silu\"" },
    { "{\"activation_function\":\"gelu_new\"}", REEL_E_UNSUPPORTED, "\"gelu_new\"" },
    { "{\"attention_out_bias\":true}", REEL_E_UNSUPPORTED, "\"attention_out_bias\" is true" },
    { "{\"use_bias\":true}", REEL_E_UNSUPPORTED, "\"use_bias\"" },
    { "{\"qkv_bias\":true}", REEL_E_UNSUPPORTED, "\"qkv_bias\"" },
    { "{\"num_local_experts\":8}", REEL_E_UNSUPPORTED, "\"num_local_experts\" is 8" },
    { "{\"num_experts\":60}", REEL_E_UNSUPPORTED, "mixtures of experts" },
    { "{\"n_routed_experts\":64}", REEL_E_UNSUPPORTED, "\"n_routed_experts\"" },
    { "{\"embedding_multiplier\":12.0}", REEL_E_UNSUPPORTED, "is 12, allowed is 1" },
    { "{\"residual_multiplier\":0.22}", REEL_E_UNSUPPORTED, "\"residual_multiplier\"" },
    { "{\"attention_multiplier\":0.015625}", REEL_E_UNSUPPORTED, "\"attention_multiplier\"" },
    { "{\"logits_scaling\":8}", REEL_E_UNSUPPORTED, "\"logits_scaling\" is 8" },
    { "{\"logit_scale\":0.0625}", REEL_E_UNSUPPORTED, "\"logit_scale\"" },
    { "{\"logit_scale\":\"big\"}", REEL_E_FORMAT, "\"logit_scale\"" },
    { "{\"query_pre_attn_scalar\":256}", REEL_E_UNSUPPORTED, "value of \"head_dim\"" },
    { "{\"scale_emb\":12,\"scale_depth\":1.4}", REEL_E_UNSUPPORTED, "\"scale_emb\"" },
    { "{\"scale_depth\":1.4}", REEL_E_UNSUPPORTED, "\"scale_depth\"" },
    { "{\"use_parallel_residual\":true}", REEL_E_UNSUPPORTED, "side by side" },
    { "{\"parallel_attn\":true}", REEL_E_UNSUPPORTED, "\"parallel_attn\"" },
    { "{\"final_logit_softcapping\":30.0}", REEL_E_UNSUPPORTED, "\"final_logit_softcapping\"" },
    { "{\"attn_logit_softcapping\":50.0}", REEL_E_UNSUPPORTED, "\"attn_logit_softcapping\"" },
    { "{\"clip_qkv\":8}", REEL_E_UNSUPPORTED, "\"clip_qkv\"" },
    { "{\"kv_lora_rank\":512}", REEL_E_UNSUPPORTED, "latent attention" },
    { "{\"v_head_dim\":128}", REEL_E_UNSUPPORTED, "\"v_head_dim\"" },
    { "{\"no_rope_layers\":[1,1,1,0]}", REEL_E_UNSUPPORTED,
      "another list, allowed is a list of 1 alone" },
    { "{\"no_rope_layer_interval\":4}", REEL_E_UNSUPPORTED, "\"no_rope_layer_interval\"" },
    { "{\"alibi\":true}", REEL_E_UNSUPPORTED, "\"alibi\"" },
    { "{\"rotary_pct\":0.25}", REEL_E_UNSUPPORTED, "\"rotary_pct\" is 0.25" },
    { "{\"rope_interleaved\":true}", REEL_E_UNSUPPORTED, "\"rope_interleaved\"" },
    { "{\"qk_layernorm\":true}", REEL_E_UNSUPPORTED, "\"qk_layernorm\"" },
    { "{\"use_qk_norm\":true}", REEL_E_UNSUPPORTED, "\"use_qk_norm\"" },
    { "{\"is_causal\":false}", REEL_E_UNSUPPORTED, "\"is_causal\" is false, allowed is true" },
    { "{\"use_bidirectional_attention\":true}", REEL_E_UNSUPPORTED, "later positions" },
    { "{\"attention_chunk_size\":8192}", REEL_E_UNSUPPORTED, "\"attention_chunk_size\"" },
    { "{\"sliding_window_pattern\":6}", REEL_E_UNSUPPORTED, "\"sliding_window_pattern\"" },
};

static void expect_refused(const struct bad_config *bad) {
    struct model_config config;
    struct reel_error err = { 0 };
    char *text = changed(mini_llama_config, bad->change);
    enum reel_status status = read_texts(&config, text, NULL, &err);
    if (status != bad->status || !strstr(err.text, bad->says) ||
        !strstr(err.text, "mem/config.json"))
        fail_msg("%s: status %d, \"%s\", expected %d with %s", bad->change, status, err.text,
                 bad->status, bad->says);
    free(text);
}

static void maths_of_other_families_is_refused_by_key(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        expect_refused(&variants[i]);
    /* what leaves the maths as it is */
    (void)read_ok(mini_llama_config,
                  "{\"embedding_multiplier\":1.0,\"num_experts\":0,\"v_head_dim\":4,"
                  "\"no_rope_layers\":[1],\"clip_qkv\":null,\"pretraining_tp\":2,"
                  "\"query_pre_attn_scalar\":4,\"is_causal\":true,\"alibi\":false,"
                  "\"final_logit_softcapping\":null,\"hidden_act\":null}",
                  NULL);
}

/* Model types that people try, each with a name of its own in the message. */
static void other_model_types_are_refused_with_what_is_supported(void **state) {
    (void)state;
    static const char *const types[] = {
        "gemma",    "gemma2",  "gemma3_text", "phi",         "phi3",      "phimoe",    "olmo",
        "olmo2",    "granite", "granitemoe",  "stablelm",    "falcon",    "gpt_neox",  "gptj",
        "cohere",   "cohere2", "deepseek_v2", "deepseek_v3", "mixtral",   "qwen2_moe", "qwen3_moe",
        "qwen2_vl", "smollm3", "exaone",      "exaone4",     "internlm2", "minicpm",   "minicpm3",
        "mamba",    "bloom",   "opt",         "starcoder2",  "mpt",       "baichuan",  "chatglm"
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char change[60], says[60];
        snprintf(change, sizeof change, "{\"model_type\":\"%s\"}", types[i]);
        snprintf(says, sizeof says, "is \"%s\", supported are \"llama\"", types[i]);
        const struct bad_config bad = { change, REEL_E_UNSUPPORTED, says };
        expect_refused(&bad);
    }
}

#define AS_QWEN2   "\"model_type\":\"qwen2\""
#define AS_MISTRAL "\"model_type\":\"mistral\""

static void qwen2_has_biases_and_perhaps_a_window(void **state) {
    (void)state;
    struct model_config c = read_ok(mini_llama_config, "{" AS_QWEN2 "}", NULL);
    assert_int_equal(c.family, MODEL_QWEN2);
    assert_true(c.qkv_bias);
    assert_false(c.qk_norm);
    assert_int_equal(c.max_context, 32768);
    assert_int_equal(c.window, 0);
    assert_int_equal(
        read_ok(mini_llama_config, "{" AS_QWEN2 ",\"attention_bias\":true}", NULL).window, 0);
    /* published files name a window that is not used */
    c = read_ok(mini_llama_config,
                "{" AS_QWEN2 ",\"use_sliding_window\":false,\"sliding_window\":100,"
                "\"max_window_layers\":0}",
                NULL);
    assert_int_equal(c.max_context, 32768);
    /* one that layers use bounds the context, one that no layer reaches does not */
    c = read_ok(mini_llama_config,
                "{" AS_QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":100,"
                "\"max_window_layers\":0,\"layer_types\":[\"sliding_attention\"]}",
                NULL);
    assert_int_equal(c.max_context, 100);
    assert_int_equal(c.window, 100);
    c = read_ok(mini_llama_config,
                "{" AS_QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":100}", NULL);
    assert_int_equal(c.max_context, 32768);
    /* a list of kinds decides alone */
    c = read_ok(mini_llama_config,
                "{" AS_QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":100,"
                "\"layer_types\":[\"sliding_attention\"]}",
                NULL);
    assert_int_equal(c.window, 100);
    c = read_ok(mini_llama_config,
                "{" AS_QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":100,"
                "\"max_window_layers\":0,\"layer_types\":[\"full_attention\"]}",
                NULL);
    assert_int_equal(c.window, 0);
    /* as the reference's class: null is as many as there are heads, missing is a number */
    c = read_ok(mini_llama_config, "{" AS_QWEN2 ",\"num_key_value_heads\":null}", NULL);
    assert_int_equal(c.n_kv_heads, c.n_heads);
}

static void a_window_bounds_mistrals_context(void **state) {
    (void)state;
    struct model_config c = read_ok(mini_llama_config, "{" AS_MISTRAL "}", NULL);
    assert_int_equal(c.family, MODEL_MISTRAL);
    assert_false(c.qkv_bias);
    assert_int_equal(c.max_context, 4096); /* the class's window */
    c = read_ok(mini_llama_config, "{" AS_MISTRAL ",\"sliding_window\":null}", NULL);
    assert_int_equal(c.max_context, 131072);
    c = read_ok(mini_llama_config, "{" AS_MISTRAL ",\"use_sliding_window\":false}", NULL);
    assert_int_equal(c.max_context, 4096); /* a key that the class does not have */
    c = read_ok(mini_llama_config,
                "{" AS_MISTRAL ",\"sliding_window\":512,\"max_position_embeddings\":256}", NULL);
    assert_int_equal(c.max_context, 256);
    const struct bad_config bad[] = {
        { "{" AS_MISTRAL ",\"sliding_window\":0}", REEL_E_LIMIT, "\"sliding_window\"" },
        { "{" AS_MISTRAL ",\"sliding_window\":\"4096\"}", REEL_E_FORMAT, "\"sliding_window\"" },
        { "{" AS_MISTRAL ",\"layer_types\":[\"chunked_attention\"]}", REEL_E_UNSUPPORTED,
          "or \"sliding_attention\"" },
        { "{" AS_QWEN2 ",\"max_window_layers\":-1}", REEL_E_LIMIT, "\"max_window_layers\"" },
        { "{" AS_QWEN2 ",\"mlp_bias\":true}", REEL_E_UNSUPPORTED, "\"mlp_bias\"" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(&bad[i]);
}

static void every_bad_value_is_refused_by_key(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++)
        expect_refused(&bad_configs[i]);
}

static void text_that_is_no_object_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = { "",
                                         "[]",
                                         "3",
                                         "null",
                                         "{\"model_type\":\"llama\"",
                                         "{\"hidden_size\":1e999}",
                                         "{\"hidden_size\":9223372036854775808}",
                                         "{\"rms_norm_eps\":NaN}",
                                         "{\"rms_norm_eps\":Infinity}",
                                         "{\"a\":1,\"a\":2}",
                                         "\xff\xfe{\0}\0" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct model_config config;
        struct reel_error err = { 0 };
        assert_int_equal(read_texts(&config, texts[i], NULL, &err), REEL_E_FORMAT);
        assert_non_null(strstr(err.text, "mem/config.json"));
    }
}

static void nesting_has_an_end(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 1);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    struct model_config config;
    assert_int_equal(read_texts(&config, text, NULL, NULL), REEL_E_FORMAT);
    free(text);
}

static void files_have_a_largest_size(void **state) {
    (void)state;
    enum { LARGEST = 4 << 20 };
    for (int over = 0; over < 2; over++) {
        char *text = malloc(LARGEST + 2);
        size_t n = strlen(mini_llama_config);
        memset(text, ' ', LARGEST + 1);
        memcpy(text, mini_llama_config, n);
        text[LARGEST + over] = '\0';
        struct model_config config;
        assert_int_equal(read_texts(&config, text, NULL, NULL), over ? REEL_E_LIMIT : REEL_OK);
        free(text);
    }
}

static void a_config_cut_at_any_byte_is_refused(void **state) {
    (void)state;
    for (size_t n = 0; n < strlen(mini_llama_config); n++) {
        char *text = strdup(mini_llama_config);
        struct model_config config;
        text[n] = '\0';
        assert_int_equal(read_texts(&config, text, NULL, NULL), REEL_E_FORMAT);
        free(text);
    }
}

static void bad_generation_configs_are_refused_by_key(void **state) {
    (void)state;
    static const struct bad_config cases[] = {
        { "[]", REEL_E_FORMAT, "object" },
        { "{", REEL_E_FORMAT, "JSON" },
        { "{\"eos_token_id\":99}", REEL_E_FORMAT, "\"eos_token_id\"" },
        { "{\"temperature\":-1}", REEL_E_LIMIT, "\"temperature\"" },
        { "{\"temperature\":\"hot\"}", REEL_E_FORMAT, "\"temperature\"" },
        { "{\"temperature\":1e999}", REEL_E_FORMAT, "JSON" },
        { "{\"top_p\":1.5}", REEL_E_LIMIT, "\"top_p\"" },
        { "{\"top_k\":-1}", REEL_E_LIMIT, "\"top_k\"" },
        { "{\"top_k\":2.5}", REEL_E_FORMAT, "\"top_k\"" },
        { "{\"min_p\":2}", REEL_E_LIMIT, "\"min_p\"" },
        { "{\"repetition_penalty\":0}", REEL_E_LIMIT, "\"repetition_penalty\"" },
        { "{\"do_sample\":\"yes\"}", REEL_E_FORMAT, "\"do_sample\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct reel_error err = { 0 };
        enum reel_status status = read_texts(&config, mini_llama_config, cases[i].change, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].says) ||
            !strstr(err.text, "mem/generation_config.json"))
            fail_msg("%s: status %d, \"%s\"", cases[i].change, status, err.text);
    }
}

static void a_folder_without_config_names_it(void **state) {
    (void)state;
    struct reel_memory_file file = { "model.safetensors", "", 0 };
    struct model_source source;
    struct model_config config;
    struct reel_error err = { 0 };
    assert_int_equal(model_source_open_memory(&source, "mem", &file, 1, &err), REEL_OK);
    assert_int_equal(model_config_read(&config, &source, &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "mem/config.json"));
    model_source_release(&source);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* One key that is put over, or taken out of, a valid set. */
struct gguf_change {
    const char *key;
    int type; /* -1: take out */
    double number;
    const char *text;
    enum reel_status status;
    const char *says;
};

static const struct gguf_change gguf_base[] = {
    { "general.architecture", GGUF_STRING, 0, "llama", 0, NULL },
    { "llama.embedding_length", GGUF_U32, 8, NULL, 0, NULL },
    { "llama.block_count", GGUF_U32, 1, NULL, 0, NULL },
    { "llama.feed_forward_length", GGUF_U32, 12, NULL, 0, NULL },
    { "llama.attention.head_count", GGUF_U32, 2, NULL, 0, NULL },
    { "llama.attention.head_count_kv", GGUF_U32, 1, NULL, 0, NULL },
    { "llama.attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5, NULL, 0, NULL },
    { "llama.context_length", GGUF_U32, 64, NULL, 0, NULL },
    { "llama.rope.freq_base", GGUF_F32, 100000, NULL, 0, NULL },
    { "tokenizer.ggml.eos_token_id", GGUF_U32, 2, NULL, 0, NULL },
    { "tokenizer.ggml.bos_token_id", GGUF_U32, 1, NULL, 0, NULL },
};
#define N_GGUF_BASE (sizeof gguf_base / sizeof gguf_base[0])

static void add_change(struct bytes *b, const struct gguf_change *c) {
    if (c->type == GGUF_STRING) bytes_gguf_text(b, c->key, c->text);
    if (c->type == GGUF_F32) bytes_gguf_f32(b, c->key, (float)c->number);
    if (c->type == GGUF_U32) bytes_gguf_u32(b, c->key, (uint32_t)(int64_t)c->number);
    if (c->type == GGUF_BOOL) {
        bytes_text(b, c->key);
        bytes_u32(b, GGUF_BOOL);
        bytes_add(b, &(unsigned char){ c->number != 0 }, 1);
    }
}

/* head: with an output matrix; factors: NULL or two divisors of rope_freqs.weight */
static void build_gguf(struct bytes *b, const struct gguf_change *change, bool head,
                       const float *factors) {
    struct bytes values = { 0 };
    uint64_t n = 0;
    bool done = !change;
    for (size_t i = 0; i < N_GGUF_BASE; i++) {
        const struct gguf_change *c = &gguf_base[i];
        if (change && strcmp(c->key, change->key) == 0) {
            c = change;
            done = true;
        }
        if (c->type < 0) continue;
        add_change(&values, c);
        n++;
    }
    if (!done) {
        add_change(&values, change);
        n++;
    }
    bytes_gguf_header(b, 3, 1u + head + (factors != NULL), n);
    bytes_add(b, values.data, values.n);
    uint64_t at = 0;
    bytes_gguf_tensor(b, "token_embd.weight", 2, (uint64_t[]){ 8, 10 }, 0, at);
    at += 320;
    if (head) bytes_gguf_tensor(b, "output.weight", 2, (uint64_t[]){ 8, 10 }, 0, at);
    if (head) at += 320;
    if (factors) bytes_gguf_tensor(b, "rope_freqs.weight", 1, (uint64_t[]){ 2 }, 0, at);
    bytes_pad(b, 32);
    bytes_zeros(b, at);
    if (factors) bytes_add(b, factors, 2 * sizeof *factors);
    bytes_release(&values);
}

static enum reel_status read_gguf(struct model_config *config, const struct bytes *b,
                                  struct reel_error *err) {
    struct guarded g = guarded_copy(b->data, b->n);
    struct reel_memory_file one = { "m.gguf", g.bytes, g.n };
    struct model_source source;
    struct gguf gguf;
    struct tensor_file file;
    assert_int_equal(model_source_open_memory(&source, "mem.gguf", &one, 1, err), REEL_OK);
    enum reel_status status = gguf_open(&gguf, &file, &source, err);
    if (status == REEL_OK) status = model_config_from_gguf(config, &gguf, &file, err);
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    guarded_release(&g);
    return status;
}

static void gguf_metadata_is_read(void **state) {
    (void)state;
    const float factors[] = { 1, 8 };
    for (int head = 0; head < 2; head++) {
        struct bytes b = { 0 };
        struct model_config c;
        struct reel_error err = { 0 };
        build_gguf(&b, NULL, head, head ? factors : NULL);
        if (read_gguf(&c, &b, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(c.family, MODEL_LLAMA);
        assert_int_equal(c.hidden, 8);
        assert_int_equal(c.n_kv_heads, 1);
        assert_int_equal(c.head_dim, 4);
        assert_int_equal(c.vocab, 10);
        assert_int_equal(c.tied, !head);
        assert_true(c.rope_theta == 100000 && c.rms_eps == 1e-5f);
        assert_int_equal(c.n_stop_ids, 1);
        assert_int_equal(c.bos_id, 1);
        assert_int_equal(c.rope, head ? ROPE_FACTORS : ROPE_PLAIN);
        if (head) assert_true(c.rope_factors[1] == 8);
        bytes_release(&b);
    }
}

static void a_gguf_window_bounds_the_context(void **state) {
    (void)state;
    const struct gguf_change window = {
        "llama.attention.sliding_window", GGUF_U32, 48, NULL, 0, 0
    };
    struct bytes b = { 0 };
    struct model_config c;
    struct reel_error err = { 0 };
    build_gguf(&b, &window, false, NULL);
    if (read_gguf(&c, &b, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(c.window, 48);
    assert_int_equal(c.max_context, 48);
    bytes_release(&b);
}

static void bad_gguf_metadata_is_refused_by_key(void **state) {
    (void)state;
    static const struct gguf_change cases[] = {
        { "general.architecture", -1, 0, NULL, REEL_E_FORMAT, "general.architecture" },
        { "general.architecture", GGUF_U32, 3, NULL, REEL_E_FORMAT, "general.architecture" },
        { "general.architecture", GGUF_STRING, 0, "gemma3", REEL_E_UNSUPPORTED, "\"gemma3\"" },
        { "general.architecture", GGUF_STRING, 0, "llam", REEL_E_UNSUPPORTED, "\"llam\"" },
        { "general.architecture", GGUF_STRING, 0, "qwen3", REEL_E_FORMAT, "\"qwen3." },
        { "llama.embedding_length", -1, 0, NULL, REEL_E_FORMAT, "embedding_length" },
        { "llama.embedding_length", GGUF_U32, 0, NULL, REEL_E_LIMIT, "embedding_length" },
        { "llama.embedding_length", GGUF_U32, 4294967295.0, NULL, REEL_E_LIMIT,
          "embedding_length" },
        { "llama.embedding_length", GGUF_F32, 8, NULL, REEL_E_FORMAT, "embedding_length" },
        { "llama.block_count", -1, 0, NULL, REEL_E_FORMAT, "block_count" },
        { "llama.block_count", GGUF_U32, 1000, NULL, REEL_E_LIMIT, "block_count" },
        { "llama.feed_forward_length", -1, 0, NULL, REEL_E_FORMAT, "feed_forward_length" },
        { "llama.feed_forward_length", GGUF_U32, 0, NULL, REEL_E_LIMIT, "feed_forward_length" },
        { "llama.attention.head_count", -1, 0, NULL, REEL_E_FORMAT, "head_count" },
        { "llama.attention.head_count", GGUF_U32, 0, NULL, REEL_E_LIMIT, "head_count" },
        { "llama.attention.head_count_kv", GGUF_U32, 0, NULL, REEL_E_LIMIT, "head_count_kv" },
        { "llama.attention.head_count_kv", GGUF_U32, 3, NULL, REEL_E_FORMAT, "key-value heads" },
        { "llama.attention.key_length", GGUF_U32, 5, NULL, REEL_E_FORMAT, "head_dim is 5" },
        { "llama.attention.key_length", GGUF_U32, 512, NULL, REEL_E_LIMIT, "key_length" },
        { "llama.attention.value_length", GGUF_U32, 8, NULL, REEL_E_UNSUPPORTED, "value_length" },
        { "llama.rope.dimension_count", GGUF_U32, 2, NULL, REEL_E_UNSUPPORTED, "dimension_count" },
        { "llama.attention.layer_norm_rms_epsilon", -1, 0, NULL, REEL_E_FORMAT, "rms_epsilon" },
        { "llama.attention.layer_norm_rms_epsilon", GGUF_F32, (double)NAN, NULL, REEL_E_FORMAT,
          "rms_epsilon" },
        { "llama.attention.layer_norm_rms_epsilon", GGUF_F32, 0, NULL, REEL_E_LIMIT,
          "rms_epsilon" },
        { "llama.context_length", -1, 0, NULL, REEL_E_FORMAT, "context_length" },
        { "llama.context_length", GGUF_U32, 2e9, NULL, REEL_E_LIMIT, "context_length" },
        { "llama.rope.freq_base", GGUF_F32, (double)INFINITY, NULL, REEL_E_FORMAT, "freq_base" },
        { "llama.rope.freq_base", GGUF_F32, -1, NULL, REEL_E_LIMIT, "freq_base" },
        { "llama.rope.scaling.type", GGUF_STRING, 0, "yarn", REEL_E_UNSUPPORTED, "\"yarn\"" },
        { "llama.rope.scaling.type", GGUF_STRING, 0, "linear", REEL_E_UNSUPPORTED, "\"linear\"" },
        { "llama.rope.scaling.factor", GGUF_F32, 4, NULL, REEL_E_UNSUPPORTED, "scaling.factor" },
        { "llama.rope.scale_linear", GGUF_F32, 2, NULL, REEL_E_UNSUPPORTED, "scale_linear" },
        { "llama.expert_count", GGUF_U32, 8, NULL, REEL_E_UNSUPPORTED, "expert_count" },
        { "llama.attention.sliding_window", GGUF_F32, 512, NULL, REEL_E_FORMAT, "sliding_window" },
        { "llama.attention.kv_lora_rank", GGUF_U32, 512, NULL, REEL_E_UNSUPPORTED, "kv_lora_rank" },
        { "llama.attention.shared_kv_layers", GGUF_U32, 2, NULL, REEL_E_UNSUPPORTED,
          "shared_kv_layers" },
        { "llama.no_rope_layer_step", GGUF_U32, 4, NULL, REEL_E_UNSUPPORTED, "no_rope_layer_step" },
        { "llama.logit_scale", GGUF_F32, 0.0625, NULL, REEL_E_UNSUPPORTED, "logit_scale" },
        { "llama.residual_scale", GGUF_F32, 0.22, NULL, REEL_E_UNSUPPORTED, "residual_scale" },
        { "llama.embedding_scale", GGUF_F32, 12, NULL, REEL_E_UNSUPPORTED, "embedding_scale" },
        { "llama.attention.scale", GGUF_F32, 0.015625, NULL, REEL_E_UNSUPPORTED,
          "attention.scale" },
        { "llama.attention.max_alibi_bias", GGUF_F32, 8, NULL, REEL_E_UNSUPPORTED, "max_alibi" },
        { "llama.attention.clamp_kqv", GGUF_F32, 8, NULL, REEL_E_UNSUPPORTED, "clamp_kqv" },
        { "llama.attn_logit_softcapping", GGUF_F32, 50, NULL, REEL_E_UNSUPPORTED, "softcapping" },
        { "llama.final_logit_softcapping", GGUF_F32, 30, NULL, REEL_E_UNSUPPORTED, "softcapping" },
        { "llama.rope.scaling.attn_factor", GGUF_F32, 1.19, NULL, REEL_E_UNSUPPORTED,
          "attn_factor" },
        { "llama.use_parallel_residual", GGUF_BOOL, 1, NULL, REEL_E_UNSUPPORTED,
          "use_parallel_residual" },
        { "llama.attention.causal", GGUF_BOOL, 0, NULL, REEL_E_UNSUPPORTED, "causal" },
        { "tokenizer.ggml.eos_token_id", GGUF_U32, 10, NULL, REEL_E_LIMIT, "eos_token_id" },
        { "tokenizer.ggml.eot_token_id", GGUF_U32, 99, NULL, REEL_E_LIMIT, "eot_token_id" },
        { "tokenizer.ggml.bos_token_id", GGUF_U32, 10, NULL, REEL_E_LIMIT, "bos_token_id" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        struct model_config config;
        struct reel_error err = { 0 };
        build_gguf(&b, &cases[i], false, NULL);
        enum reel_status status = read_gguf(&config, &b, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].says) ||
            !strstr(err.text, "mem.gguf"))
            fail_msg("%s (case %zu): status %d, \"%s\"", cases[i].key, i, status, err.text);
        bytes_release(&b);
    }
}

static void frequency_divisors_are_finite_and_positive(void **state) {
    (void)state;
    const float bad[] = { 0, -1, NAN, INFINITY, 1e-30f };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct bytes b = { 0 };
        struct model_config config;
        struct reel_error err = { 0 };
        build_gguf(&b, NULL, false, (float[]){ 1, bad[i] });
        assert_int_equal(read_gguf(&config, &b, &err), REEL_E_LIMIT);
        assert_non_null(strstr(err.text, "rope_freqs.weight"));
        bytes_release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_keys_mean_what_they_mean_to_the_reference),
        cmocka_unit_test(real_configs_are_read),
        cmocka_unit_test(both_rope_spellings_are_read),
        cmocka_unit_test(stop_ids_of_both_files_are_joined),
        cmocka_unit_test(every_bad_value_is_refused_by_key),
        cmocka_unit_test(maths_of_other_families_is_refused_by_key),
        cmocka_unit_test(other_model_types_are_refused_with_what_is_supported),
        cmocka_unit_test(qwen2_has_biases_and_perhaps_a_window),
        cmocka_unit_test(a_window_bounds_mistrals_context),
        cmocka_unit_test(a_gguf_window_bounds_the_context),
        cmocka_unit_test(text_that_is_no_object_is_refused),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(files_have_a_largest_size),
        cmocka_unit_test(a_config_cut_at_any_byte_is_refused),
        cmocka_unit_test(bad_generation_configs_are_refused_by_key),
        cmocka_unit_test(a_folder_without_config_names_it),
        cmocka_unit_test(gguf_metadata_is_read),
        cmocka_unit_test(bad_gguf_metadata_is_refused_by_key),
        cmocka_unit_test(frequency_divisors_are_finite_and_positive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
