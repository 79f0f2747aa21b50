#include "support/quantised_model.h"

#include <math.h>
#include <stdio.h>

enum { HIDDEN = 64, HEAD_DIM = 32, KV_DIM = 32, INNER = 96, VOCAB = 257, LAYERS = 2 };
enum { BLOCK = 32, BLOCK_BYTES = 20, GGML_F32 = 0, GGML_Q4_1 = 3 };

struct quantised_tensor {
    char name[40];
    uint32_t type;
    int rows, columns; /* rows 1: a norm's gains */
};

static int list_tensors(struct quantised_tensor *list) {
    static const struct quantised_tensor of_layer[] = {
        { "attn_norm", GGML_F32, 1, HIDDEN },         { "attn_q", GGML_Q4_1, HIDDEN, HIDDEN },
        { "attn_k", GGML_Q4_1, KV_DIM, HIDDEN },      { "attn_v", GGML_Q4_1, KV_DIM, HIDDEN },
        { "attn_output", GGML_Q4_1, HIDDEN, HIDDEN }, { "ffn_norm", GGML_F32, 1, HIDDEN },
        { "ffn_gate", GGML_Q4_1, INNER, HIDDEN },     { "ffn_up", GGML_Q4_1, INNER, HIDDEN },
        { "ffn_down", GGML_Q4_1, HIDDEN, INNER },
    };
    const int n_of_layer = (int)(sizeof of_layer / sizeof *of_layer);
    int n = 0;
    list[n++] = (struct quantised_tensor){ "token_embd.weight", GGML_Q4_1, VOCAB, HIDDEN };
    list[n++] = (struct quantised_tensor){ "output_norm.weight", GGML_F32, 1, HIDDEN };
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < n_of_layer; i++, n++) {
            list[n] = of_layer[i];
            snprintf(list[n].name, sizeof list[n].name, "blk.%d.%.20s.weight", layer,
                     of_layer[i].name);
        }
    return n;
}

static uint64_t tensor_bytes(const struct quantised_tensor *t) {
    return t->type == GGML_F32 ? 4 * (uint64_t)t->columns
                               : (uint64_t)t->rows * (uint64_t)t->columns / BLOCK * BLOCK_BYTES;
}

static double uniform(uint64_t *state) { /* -1 to 1 */
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

/* Of one block: a step, an offset to either side, and 32 numbers of 4 bits. */
static void add_block(struct bytes *b, double spread, uint64_t *state) {
    const double step = spread / 7.5 * (1 + 0.3 * uniform(state));
    const double offset = (uniform(state) < 0 ? -0.5 : 0.5) * spread;
    const uint16_t half[2] = { f16_from_f32((float)step),
                               f16_from_f32((float)(offset - 7.5 * step)) };
    bytes_add(b, half, sizeof half);
    for (int i = 0; i < BLOCK / 2; i++)
        bytes_add(b, &(unsigned char){ (unsigned char)(127.5 + 127.5 * uniform(state)) }, 1);
}

static void add_tensor(struct bytes *b, const struct quantised_tensor *t, uint64_t *state) {
    bytes_pad(b, 32);
    for (int i = 0; t->type == GGML_F32 && i < t->columns; i++) {
        const float gain = (float)(1 + 0.2 * uniform(state));
        bytes_add(b, &gain, sizeof gain);
    }
    for (int i = 0; t->type == GGML_Q4_1 && i < t->rows * t->columns / BLOCK; i++)
        add_block(b, 0.7 / sqrt(t->columns), state);
}

static void add_list(struct bytes *b, const char *key, uint32_t type, uint64_t n) {
    bytes_text(b, key);
    bytes_u32(b, GGUF_ARRAY);
    bytes_u32(b, type);
    bytes_u64(b, n);
}

/* The byte alphabet of byte-level BPE: printable bytes stand for themselves, the others for the
 * characters from U+0100 on. */
static void add_tokenizer(struct bytes *b) {
    bytes_gguf_text(b, "tokenizer.ggml.model", "gpt2");
    bytes_gguf_text(b, "tokenizer.ggml.pre", "qwen2");
    add_list(b, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    for (unsigned byte = 0, next = 0x100; byte < 256; byte++) {
        const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        const unsigned c = printable ? byte : next++;
        const char two[3] = { (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), '\0' };
        const char one[2] = { (char)c, '\0' };
        bytes_text(b, c < 0x80 ? one : two);
    }
    bytes_text(b, "<|end|>");
    add_list(b, "tokenizer.ggml.token_type", GGUF_I32, VOCAB);
    for (int id = 0; id < VOCAB; id++)
        bytes_u32(b, id == VOCAB - 1 ? 3 : 1); /* control, normal */
    add_list(b, "tokenizer.ggml.merges", GGUF_STRING, 0);
    bytes_gguf_u32(b, "tokenizer.ggml.eos_token_id", VOCAB - 1);
}

void quantised_gguf(struct bytes *b) {
    struct quantised_tensor list[2 + 9 * LAYERS];
    const int n = list_tensors(list);
    uint64_t at = 0, state = 1;
    bytes_gguf_header(b, 3, (uint64_t)n, 16);
    bytes_gguf_text(b, "general.architecture", "llama");
    bytes_gguf_text(b, "general.name", "quantised miniature");
    bytes_gguf_u32(b, "llama.embedding_length", HIDDEN);
    bytes_gguf_u32(b, "llama.block_count", LAYERS);
    bytes_gguf_u32(b, "llama.feed_forward_length", INNER);
    bytes_gguf_u32(b, "llama.attention.head_count", HIDDEN / HEAD_DIM);
    bytes_gguf_u32(b, "llama.attention.head_count_kv", KV_DIM / HEAD_DIM);
    bytes_gguf_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    bytes_gguf_f32(b, "llama.rope.freq_base", 10000);
    bytes_gguf_u32(b, "llama.context_length", 512);
    add_tokenizer(b);
    for (int i = 0; i < n; i++) {
        const uint64_t extents[2] = { (uint64_t)list[i].columns, (uint64_t)list[i].rows };
        bytes_gguf_tensor(b, list[i].name, list[i].rows == 1 ? 1 : 2, extents, list[i].type, at);
        at += (tensor_bytes(&list[i]) + 31) / 32 * 32;
    }
    for (int i = 0; i < n; i++)
        add_tensor(b, &list[i], &state);
}
