/* The first hour of somebody who has never heard of reel: fourteen repositories in the layouts that
 * hubs have, each given by its name alone. Each ends in an answer, or in one line that says why not
 * before anything large is fetched. Weights are the miniatures of this repository. */
#define _XOPEN_SOURCE 700

#include "base/json.h"
#include "reel_measure.h"
#include "support/fake_hub.h"
#include "support/quantised_model.h"
#include "support/shards.h"
#include "support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/without_curl.h"

#define LARGE 3000000 /* bytes of weights that must not travel */
#define SMALL 60000   /* bytes that may, before a refusal */

static struct fake_hub *hub;
static char root[400]; /* of this repository */

static const char *const trained[] = { "config.json",           "generation_config.json",
                                       "model.safetensors",     "tokenizer.json",
                                       "tokenizer_config.json", NULL };
static const char *const trained_beside_weights[] = { "config.json", "generation_config.json",
                                                      "tokenizer.json", "tokenizer_config.json",
                                                      NULL };

/* What nearly every repository has and reel does not need. */
static void add_usual(const char *repo) {
    fake_hub_add_text(hub, repo, ".gitattributes", "*.safetensors filter=lfs\n");
    fake_hub_add_text(hub, repo, "README.md", "---\nlicense: apache-2.0\n---\n# A model\n");
    fake_hub_add_text(hub, repo, "LICENSE", "Apache License\n");
}

static void add_zeros(const char *repo, const char *path, size_t n) {
    struct bytes b = { 0 };
    bytes_zeros(&b, n);
    fake_hub_add(hub, repo, path, b.data, b.n);
    bytes_release(&b);
}

static void add_trained(const char *repo, const char *model, const char *const *names) {
    char folder[500];
    snprintf(folder, sizeof folder, "%s/models/%s", root, model);
    add_usual(repo);
    fake_hub_add_folder(hub, repo, folder, names);
}

/* Random weights of a config, with the byte tokenizer that comes with them. */
static void add_synthetic(const char *repo, const char *config) {
    static const char *const names[] = { "config.json", "model.safetensors", "tokenizer.json",
                                         NULL };
    struct reel_error err = { 0 };
    char work[] = "/tmp/reel-hour-XXXXXX", shape[60], folder[60], line[100];
    assert_non_null(mkdtemp(work));
    snprintf(shape, sizeof shape, "%s/config.json", work);
    snprintf(folder, sizeof folder, "%s/model", work);
    FILE *f = fopen(shape, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    if (reel_synthesize(folder, shape, 1, NULL, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    add_usual(repo);
    fake_hub_add_folder(hub, repo, folder, names);
    snprintf(line, sizeof line, "rm -rf %s", work);
    assert_int_equal(system(line), 0);
}

static void add_gguf(const char *repo, const char *path) {
    struct bytes b = { 0 };
    quantised_gguf(&b);
    fake_hub_add(hub, repo, path, b.data, b.n);
    bytes_release(&b);
}

/* ---- a line at a shell ----------------------------------------------------------------------- */

static void answers(const char *line) {
    struct result r = shell(line);
    if (r.status != 0 || strlen(r.out) == 0)
        fail_msg("%s\nstatus %d\n--- stdout\n%s--- stderr\n%s", line, r.status, r.out, r.err);
    done(r);
}

/* One line on stderr that holds the text, nothing on stdout, and hardly a byte of the hub. */
static void says_why_not(const char *line, const char *text) {
    size_t before = fake_hub_sent(hub);
    struct result r = shell(line);
    size_t lines = 0, sent = fake_hub_sent(hub) - before;
    for (const char *c = r.err; *c; c++)
        lines += *c == '\n';
    if (r.status == 0 || !strstr(r.err, text) || lines != 1 || r.out[0] || sent > SMALL)
        fail_msg("%s\nstatus %d, %zu lines, %zu bytes of the hub\n--- stdout\n%s--- stderr "
                 "(expected \"%s\")\n%s",
                 line, r.status, lines, sent, r.out, text, r.err);
    done(r);
}

#define RUN " --pull -p Hello -n 4 --temp 0 -q"

/* ---- the fourteen ---------------------------------------------------------------------------- */

static void qwen3(void **state) {
    (void)state;
    add_trained("Qwen/Qwen3-0.6B", "demo", trained);
    answers("reel run Qwen/Qwen3-0.6B" RUN);
}

static void qwen35(void **state) {
    (void)state;
    add_trained("Qwen/Qwen3.5-0.8B", "hybrid", trained);
    add_zeros("Qwen/Qwen3.5-0.8B", "preprocessor_config.json", 0);
    answers("reel run Qwen/Qwen3.5-0.8B" RUN);
}

/* The first clip of the speech model's golden, from mu-law of 14 bits to samples of 16. */
static void put_speech(void) {
    enum { SPOKEN = 13916 };
    static unsigned char codes[SPOKEN];
    static int16_t samples[SPOKEN];
    char path[500];
    snprintf(path, sizeof path, "%s/models/speech/golden.ulaw", root);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(codes, 1, SPOKEN, f), SPOKEN);
    fclose(f);
    for (int i = 0; i < SPOKEN; i++) {
        const int bits = codes[i] ^ 0xff, size = ((2 * (bits & 15) + 33) << (bits >> 4 & 7)) - 33;
        samples[i] = (int16_t)(4 * (bits & 0x80 ? -size : size));
    }
    shell_file("spoken.pcm", samples, sizeof samples);
}

static void qwen3_asr(void **state) {
    (void)state;
    add_trained("Qwen/Qwen3-ASR-0.6B", "speech", trained);
    add_zeros("Qwen/Qwen3-ASR-0.6B", "preprocessor_config.json", 3);
    put_speech();
    expect("reel transcribe --raw s16le spoken.pcm", 3, "reel pull Qwen/Qwen3-ASR-0.6B");
    answers("reel transcribe --pull --raw s16le spoken.pcm");
}

static void smollm2(void **state) {
    (void)state;
    add_synthetic("HuggingFaceTB/SmolLM2-135M-Instruct",
                  "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                  "\"hidden_size\": 192, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
                  "\"num_key_value_heads\": 3, \"intermediate_size\": 512, \"vocab_size\": 384, "
                  "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100000, "
                  "\"max_position_embeddings\": 8192, \"eos_token_id\": 2, \"torch_dtype\": "
                  "\"bfloat16\"}");
    add_zeros("HuggingFaceTB/SmolLM2-135M-Instruct", "onnx/model_q4.onnx", LARGE);
    add_zeros("HuggingFaceTB/SmolLM2-135M-Instruct", "runs/events.out.tfevents.1", 1000);
    answers("reel run HuggingFaceTB/SmolLM2-135M-Instruct" RUN);
    assert_int_equal(fake_hub_asked(hub, "onnx"), 0);
}

static const char llama_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 128, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 32, \"intermediate_size\": 256, \"vocab_size\": 384, \"tie_word_embeddings\": "
    "true, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"max_position_embeddings\": 131072, "
    "\"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, "
    "\"eos_token_id\": [256, 257]}";

static void llama32(void **state) {
    (void)state;
    add_synthetic("unsloth/Llama-3.2-1B-Instruct", llama_config);
    add_zeros("unsloth/Llama-3.2-1B-Instruct", "original/consolidated.00.pth", LARGE);
    answers("reel run unsloth/Llama-3.2-1B-Instruct" RUN);
    assert_int_equal(fake_hub_asked(hub, ".pth"), 0);
}

/* Of a family that reel does not run. */
static void add_other_family(const char *repo, const char *config) {
    add_usual(repo);
    fake_hub_add_text(hub, repo, "config.json", config);
    fake_hub_add_text(hub, repo, "generation_config.json", "{}");
    add_zeros(repo, "tokenizer.json", LARGE);
    add_zeros(repo, "model.safetensors", LARGE);
}

/* Published files of these say more keys than have a meaning here. */
static void qwen25(void **state) {
    (void)state;
    add_synthetic("Qwen/Qwen2.5-0.5B-Instruct",
                  "{\"architectures\": [\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0, "
                  "\"bos_token_id\": 256, \"eos_token_id\": 257, \"hidden_act\": \"silu\", "
                  "\"hidden_size\": 224, \"initializer_range\": 0.02, \"intermediate_size\": 304, "
                  "\"max_position_embeddings\": 32768, \"max_window_layers\": 21, \"model_type\": "
                  "\"qwen2\", \"num_attention_heads\": 14, \"num_hidden_layers\": 2, "
                  "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
                  "\"sliding_window\": 32768, \"tie_word_embeddings\": true, \"torch_dtype\": "
                  "\"bfloat16\", \"transformers_version\": \"4.43.1\", \"use_cache\": true, "
                  "\"use_sliding_window\": false, \"vocab_size\": 384}");
    answers("reel run Qwen/Qwen2.5-0.5B-Instruct" RUN);
}

static void tinyllama(void **state) {
    (void)state;
    add_synthetic("TinyLlama/TinyLlama-1.1B-Chat-v1.0",
                  "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, "
                  "\"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", "
                  "\"hidden_size\": 128, \"initializer_range\": 0.02, \"intermediate_size\": 352, "
                  "\"max_position_embeddings\": 2048, \"model_type\": \"llama\", "
                  "\"num_attention_heads\": 8, \"num_hidden_layers\": 2, \"num_key_value_heads\": "
                  "1, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
                  "\"rope_theta\": 10000.0, \"tie_word_embeddings\": false, \"torch_dtype\": "
                  "\"bfloat16\", \"transformers_version\": \"4.35.0\", \"use_cache\": true, "
                  "\"vocab_size\": 384}");
    answers("reel run TinyLlama/TinyLlama-1.1B-Chat-v1.0" RUN);
}

static void mistral(void **state) {
    (void)state;
    add_synthetic("mistralai/Mistral-7B-Instruct-v0.1",
                  "{\"architectures\": [\"MistralForCausalLM\"], \"bos_token_id\": 1, "
                  "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 128, "
                  "\"initializer_range\": 0.02, \"intermediate_size\": 448, "
                  "\"max_position_embeddings\": 32768, \"model_type\": \"mistral\", "
                  "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"num_key_value_heads\": "
                  "1, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"sliding_window\": 64, "
                  "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
                  "\"transformers_version\": \"4.34.0.dev0\", \"use_cache\": true, "
                  "\"vocab_size\": 384}");
    answers("reel run mistralai/Mistral-7B-Instruct-v0.1" RUN);
    /* beyond the window attention would have to forget */
    expect("reel run mistralai/Mistral-7B-Instruct-v0.1 -c 65 -p Hello -n 4 -q", 2, "64");
}

static void gemma3(void **state) {
    (void)state;
    add_other_family("unsloth/gemma-3-270m-it",
                     "{\"architectures\": [\"Gemma3ForCausalLM\"], \"model_type\": "
                     "\"gemma3_text\", \"hidden_size\": 640, \"num_hidden_layers\": 18}");
    says_why_not("reel run unsloth/gemma-3-270m-it" RUN, "\"gemma3_text\"");
}

static void add_shards(const char *repo) {
    char path[500];
    struct shards shards;
    snprintf(path, sizeof path, "%s/models/demo/model.safetensors", root);
    shards_deal(&shards, path);
    for (int i = 0; i < 2; i++)
        fake_hub_add(hub, repo, shard_names[i], shards.files[i].data, shards.files[i].n);
    fake_hub_add_text(hub, repo, "model.safetensors.index.json", shards.index);
    shards_release(&shards);
}

static void sharded(void **state) {
    (void)state;
    add_trained("Qwen/Qwen3-4B", "demo", trained_beside_weights);
    add_shards("Qwen/Qwen3-4B");
    add_zeros("Qwen/Qwen3-4B", "consolidated.safetensors", LARGE); /* the same once more */
    answers("reel run Qwen/Qwen3-4B" RUN);
    assert_int_equal(fake_hub_asked(hub, "consolidated"), 0);
}

static void gated(void **state) {
    (void)state;
    add_synthetic("meta-llama/Llama-3.2-1B-Instruct", llama_config);
    fake_hub_gate(hub, "meta-llama/Llama-3.2-1B-Instruct", "hf_right");
    says_why_not("reel run meta-llama/Llama-3.2-1B-Instruct" RUN, "no access token was sent");
    says_why_not("HF_TOKEN=hf_wrong reel run meta-llama/Llama-3.2-1B-Instruct" RUN,
                 "/meta-llama/Llama-3.2-1B-Instruct; the access token of $HF_TOKEN was sent");
    answers("HF_TOKEN=hf_right reel run meta-llama/Llama-3.2-1B-Instruct" RUN);
}

static void eleven_quantisations(void **state) {
    (void)state;
    static const char *const types[] = { "IQ4_XS", "Q2_K",   "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q4_K_M",
                                         "Q4_K_S", "Q5_K_M", "Q6_K",   "Q8_0",   "f16" };
    for (int i = 0; i < 11; i++) {
        char path[100];
        snprintf(path, sizeof path, "SmolLM2-135M-Instruct-%s.gguf", types[i]);
        add_gguf("bartowski/SmolLM2-135M-Instruct-GGUF", path);
    }
    add_zeros("bartowski/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.imatrix", LARGE);
    add_usual("bartowski/SmolLM2-135M-Instruct-GGUF");
    says_why_not("reel run bartowski/SmolLM2-135M-Instruct-GGUF" RUN,
                 "reel pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M");
    answers("reel run bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M" RUN);
    assert_int_equal(fake_hub_asked(hub, "Q8_0"), 0);
}

static void in_a_sub_folder(void **state) {
    (void)state;
    add_usual("unsloth/Qwen3-0.6B-GGUF");
    add_gguf("unsloth/Qwen3-0.6B-GGUF", "UD/Qwen3-0.6B-UD-Q4_K_XL.gguf");
    answers("reel run unsloth/Qwen3-0.6B-GGUF" RUN);
    answers("reel run unsloth/Qwen3-0.6B-GGUF:Q4_K_XL -p Hello -n 4 --temp 0 -q");
}

static void cannot_run(void **state) {
    (void)state;
    add_usual("microsoft/resnet-50");
    fake_hub_add_text(hub, "microsoft/resnet-50", "config.json", "{\"model_type\": \"resnet\"}");
    add_zeros("microsoft/resnet-50", "pytorch_model.bin", LARGE);
    add_zeros("microsoft/resnet-50", "tf_model.h5", LARGE);
    says_why_not("reel run microsoft/resnet-50" RUN, "it has PyTorch (pytorch_model.bin)");
}

static int enter(void **state) {
    if (!getcwd(root, sizeof root) || shell_enter(state) != 0) return -1;
    hub = fake_hub_open();
    setenv("HF_ENDPOINT", fake_hub_url(hub), 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_TOKEN_PATH");
    return 0;
}

static int leave(void **state) {
    fake_hub_close(hub);
    return shell_leave(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3),           cmocka_unit_test(qwen35),
        cmocka_unit_test(tinyllama),       cmocka_unit_test(mistral),
        cmocka_unit_test(qwen3_asr),       cmocka_unit_test(smollm2),
        cmocka_unit_test(llama32),         cmocka_unit_test(qwen25),
        cmocka_unit_test(gemma3),          cmocka_unit_test(sharded),
        cmocka_unit_test(gated),           cmocka_unit_test(eleven_quantisations),
        cmocka_unit_test(in_a_sub_folder), cmocka_unit_test(cannot_run),
    };
    unsetenv("http_proxy");
    if (!BUILT_WITH_CURL) return without_curl();
    return cmocka_run_group_tests(tests, enter, leave);
}
