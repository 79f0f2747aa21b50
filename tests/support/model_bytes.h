/* Model files built in memory, right or wrong in one chosen place. Running out of memory aborts:
 * this is test code. */
#ifndef TESTS_SUPPORT_MODEL_BYTES_H
#define TESTS_SUPPORT_MODEL_BYTES_H

#include "model/gguf.h"
#include "model/model_source.h"

struct bytes {
    unsigned char *data;
    size_t n, cap;
};

void bytes_add(struct bytes *b, const void *data, size_t n);
void bytes_zeros(struct bytes *b, size_t n);
void bytes_u32(struct bytes *b, uint32_t x);
void bytes_u64(struct bytes *b, uint64_t x);
void bytes_release(struct bytes *b);

/* A safetensors file: length, header, and a payload of zeros. */
void bytes_safetensors(struct bytes *b, const char *header, size_t payload);

/* GGUF, piece by piece. Extents are innermost first, as in the file. */
void bytes_text(struct bytes *b, const char *text);
void bytes_gguf_header(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_values);
void bytes_gguf_u32(struct bytes *b, const char *key, uint32_t x);
void bytes_gguf_f32(struct bytes *b, const char *key, float x);
void bytes_gguf_text(struct bytes *b, const char *key, const char *text);
void bytes_gguf_tensor(struct bytes *b, const char *name, int rank, const uint64_t *extents,
                       uint32_t type, uint64_t offset);
void bytes_pad(struct bytes *b, size_t alignment);

/* A copy that ends where an unreadable page begins, so that reading one byte too far dies in every
 * build. */
struct guarded {
    unsigned char *bytes;
    size_t n;
    void *pages;
    size_t n_pages_bytes;
};
struct guarded guarded_copy(const void *data, size_t n);
void guarded_release(struct guarded *g);

/* ---- a small valid checkpoint ---- */

/* hidden 8, heads 2, kv heads 1, head_dim 4, intermediate 12, vocabulary 10, one layer */
extern const char mini_llama_config[];
extern const char mini_qwen3_config[];

/* Options of the small checkpoint's tensor list. */
struct mini {
    bool qk_norm;
    bool qkv_bias;
    bool head;           /* has an output matrix */
    bool copied;         /* which is the embedding once more; safetensors only */
    const char *without; /* leave this tensor out */
    const char *also;    /* add one f32 [8] tensor of this name */
    const char *wrong;   /* give this tensor the shape [3, 3] */
    const char *narrow;  /* give this tensor one column less */
};
/* f32; element i of tensor number t is t + i / 1024. */
void mini_safetensors(struct bytes *b, const struct mini *mini);
/* The same tensors under GGUF names, in the same order and unpermuted, with llama metadata. */
void mini_gguf(struct bytes *b, const struct mini *mini);

#endif
