#include "model_bytes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void bytes_add(struct bytes *b, const void *data, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n) + 64;
        b->data = realloc(b->data, b->cap);
        if (!b->data) abort();
    }
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

void bytes_zeros(struct bytes *b, size_t n) {
    static const unsigned char zeros[64];
    for (; n > sizeof zeros; n -= sizeof zeros)
        bytes_add(b, zeros, sizeof zeros);
    bytes_add(b, zeros, n);
}

static void little_endian(struct bytes *b, uint64_t x, int n) {
    for (; n > 0; n--, x >>= 8)
        bytes_add(b, &(unsigned char){ (unsigned char)x }, 1);
}

void bytes_u32(struct bytes *b, uint32_t x) { little_endian(b, x, 4); }
void bytes_u64(struct bytes *b, uint64_t x) { little_endian(b, x, 8); }

void bytes_release(struct bytes *b) {
    free(b->data);
    *b = (struct bytes){ 0 };
}

void bytes_safetensors(struct bytes *b, const char *header, size_t payload) {
    bytes_u64(b, strlen(header));
    bytes_add(b, header, strlen(header));
    bytes_zeros(b, payload);
}

void bytes_text(struct bytes *b, const char *text) {
    bytes_u64(b, strlen(text));
    bytes_add(b, text, strlen(text));
}

void bytes_gguf_header(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_values) {
    bytes_add(b, "GGUF", 4);
    bytes_u32(b, version);
    bytes_u64(b, n_tensors);
    bytes_u64(b, n_values);
}

void bytes_gguf_u32(struct bytes *b, const char *key, uint32_t x) {
    bytes_text(b, key);
    bytes_u32(b, GGUF_U32);
    bytes_u32(b, x);
}

void bytes_gguf_f32(struct bytes *b, const char *key, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bytes_text(b, key);
    bytes_u32(b, GGUF_F32);
    bytes_u32(b, bits);
}

void bytes_gguf_text(struct bytes *b, const char *key, const char *text) {
    bytes_text(b, key);
    bytes_u32(b, GGUF_STRING);
    bytes_text(b, text);
}

void bytes_gguf_tensor(struct bytes *b, const char *name, int rank, const uint64_t *extents,
                       uint32_t type, uint64_t offset) {
    bytes_text(b, name);
    bytes_u32(b, (uint32_t)rank);
    for (int i = 0; i < rank; i++)
        bytes_u64(b, extents[i]);
    bytes_u32(b, type);
    bytes_u64(b, offset);
}

void bytes_pad(struct bytes *b, size_t alignment) {
    if (b->n % alignment) bytes_zeros(b, alignment - b->n % alignment);
}

struct guarded guarded_copy(const void *data, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (n + page - 1) / page * page;
    int zero = open("/dev/zero", O_RDWR);
    struct guarded g = { .n = n, .n_pages_bytes = whole + page };
    if (zero < 0) abort();
    g.pages = mmap(NULL, g.n_pages_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    close(zero);
    if (g.pages == MAP_FAILED) abort();
    if (mprotect((char *)g.pages + whole, page, PROT_NONE) != 0) abort();
    g.bytes = (unsigned char *)g.pages + whole - n;
    if (n) memcpy(g.bytes, data, n);
    return g;
}

void guarded_release(struct guarded *g) {
    munmap(g->pages, g->n_pages_bytes);
    *g = (struct guarded){ 0 };
}

/* ---- a small valid checkpoint ---- */

const char mini_llama_config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,"
    "\"intermediate_size\":12,\"vocab_size\":10}";
const char mini_qwen3_config[] =
    "{\"model_type\":\"qwen3\",\"hidden_size\":8,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,"
    "\"intermediate_size\":12,\"vocab_size\":10}";

enum kind { ALWAYS, QK_NORM, HEAD, QKV_BIAS };

static const struct mini_tensor {
    const char *hugging_face, *gguf;
    int rank, shape[2];
    enum kind kind;
} mini_tensors[] = {
    { "model.embed_tokens.weight", "token_embd.weight", 2, { 10, 8 }, ALWAYS },
    { "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", 2, { 8, 8 }, ALWAYS },
    { "model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", 2, { 4, 8 }, ALWAYS },
    { "model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", 2, { 4, 8 }, ALWAYS },
    { "model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", 2, { 8, 8 }, ALWAYS },
    { "model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", 1, { 8 }, ALWAYS },
    { "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", 1, { 8 }, ALWAYS },
    { "model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", 2, { 12, 8 }, ALWAYS },
    { "model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", 2, { 12, 8 }, ALWAYS },
    { "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", 2, { 8, 12 }, ALWAYS },
    { "model.norm.weight", "output_norm.weight", 1, { 8 }, ALWAYS },
    { "model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight", 1, { 4 }, QK_NORM },
    { "model.layers.0.self_attn.k_norm.weight", "blk.0.attn_k_norm.weight", 1, { 4 }, QK_NORM },
    { "lm_head.weight", "output.weight", 2, { 10, 8 }, HEAD },
    { "model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias", 1, { 8 }, QKV_BIAS },
    { "model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias", 1, { 4 }, QKV_BIAS },
    { "model.layers.0.self_attn.v_proj.bias", "blk.0.attn_v.bias", 1, { 4 }, QKV_BIAS },
};
#define N_MINI (sizeof mini_tensors / sizeof mini_tensors[0])

static bool same(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

/* What the options make of the list above; returns how many. */
static int choose(const struct mini *mini, bool is_gguf, struct mini_tensor *list) {
    int n = 0;
    for (size_t i = 0; i < N_MINI; i++) {
        struct mini_tensor t = mini_tensors[i];
        const char *name = is_gguf ? t.gguf : t.hugging_face;
        if ((t.kind == QK_NORM && !mini->qk_norm) || (t.kind == HEAD && !mini->head) ||
            (t.kind == QKV_BIAS && !mini->qkv_bias) || same(mini->without, name))
            continue;
        if (same(mini->wrong, name)) {
            t.rank = 2;
            t.shape[0] = t.shape[1] = 3;
        }
        if (same(mini->narrow, name)) t.shape[t.rank - 1]--;
        list[n++] = t;
    }
    if (mini->also) list[n++] = (struct mini_tensor){ mini->also, mini->also, 1, { 8 }, ALWAYS };
    return n;
}

static int elements(const struct mini_tensor *t) {
    return t->rank == 2 ? t->shape[0] * t->shape[1] : t->shape[0];
}

static void add_values(struct bytes *b, const struct mini_tensor *t, int number) {
    for (int i = 0; i < elements(t); i++) {
        float x = (float)number + (float)i / 1024;
        bytes_add(b, &x, sizeof x);
    }
}

void mini_safetensors(struct bytes *b, const struct mini *mini) {
    struct mini_tensor list[N_MINI + 1];
    int n = choose(mini, false, list);
    char header[4096];
    size_t at = 0;
    int length = snprintf(header, sizeof header, "{");
    for (int i = 0; i < n; i++) {
        const struct mini_tensor *t = &list[i];
        char shape[32];
        snprintf(shape, sizeof shape, t->rank == 2 ? "%d,%d" : "%d", t->shape[0], t->shape[1]);
        size_t end = at + 4 * (size_t)elements(t);
        length += snprintf(header + length, sizeof header - (size_t)length,
                           "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                           i ? "," : "", t->hugging_face, shape, at, end);
        at = end;
    }
    snprintf(header + length, sizeof header - (size_t)length, "}");
    bytes_safetensors(b, header, 0);
    for (int i = 0; i < n; i++)
        add_values(b, &list[i], list[i].kind == HEAD && mini->copied ? 0 : i);
}

void mini_gguf(struct bytes *b, const struct mini *mini) {
    struct mini_tensor list[N_MINI + 1];
    int n = choose(mini, true, list);
    bytes_gguf_header(b, 3, (uint64_t)n, 8);
    bytes_gguf_text(b, "general.architecture", "llama");
    bytes_gguf_u32(b, "llama.embedding_length", 8);
    bytes_gguf_u32(b, "llama.block_count", 1);
    bytes_gguf_u32(b, "llama.feed_forward_length", 12);
    bytes_gguf_u32(b, "llama.attention.head_count", 2);
    bytes_gguf_u32(b, "llama.attention.head_count_kv", 1);
    bytes_gguf_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    bytes_gguf_u32(b, "llama.context_length", 64);
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        const struct mini_tensor *t = &list[i];
        uint64_t extents[2] = { (uint64_t)t->shape[t->rank - 1], (uint64_t)t->shape[0] };
        bytes_gguf_tensor(b, t->gguf, t->rank, extents, 0, at);
        at += (4 * (uint64_t)elements(t) + 31) / 32 * 32;
    }
    for (int i = 0; i < n; i++) {
        bytes_pad(b, 32);
        add_values(b, &list[i], i);
    }
}
