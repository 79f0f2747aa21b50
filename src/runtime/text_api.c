/* The public calls about text and tokens that need no model. */
#include "base/memory.h"
#include "model/tokenizer.h"

#include <string.h>

enum reel_status reel_tokenizer_open(struct reel_tokenizer **out, const char *path,
                                     const char *cache_dir, struct reel_error *err) {
    struct model_source source = { 0 };
    struct tensor_file file = { 0 };
    struct gguf gguf = { 0 };
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out path", (const void *const[]){ out, path });
    if (status == REEL_OK) status = model_source_open(&source, path, err);
    if (status == REEL_OK && source.is_gguf) status = gguf_open(&gguf, &file, &source, err);
    if (status == REEL_OK)
        status = tokenizer_load(out, &source, source.is_gguf ? &gguf : NULL, cache_dir, err);
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    return status;
}

void reel_tokenizer_close(struct reel_tokenizer *tok) { tokenizer_close(tok); }

int reel_tokenizer_size(const struct reel_tokenizer *tok) { return tok ? tokenizer_size(tok) : 0; }

static int32_t *put_ids(int32_t *to, const int32_t *ids, size_t n) {
    if (n == 0) return to;
    memcpy(to, ids, n * sizeof *ids);
    return to + n;
}

enum reel_status reel_encode(const struct reel_tokenizer *tok, const char *text, size_t n_bytes,
                             unsigned flags, int32_t *ids, size_t cap, size_t *n_ids,
                             struct reel_error *err) {
    const struct text_piece piece = { text, n_bytes, (flags & REEL_ENCODE_CONTROL) != 0 };
    int32_t *all;
    size_t n;
    err_clear(err);
    if (n_ids) *n_ids = 0;
    enum reel_status status =
        err_if_null(err, "tokenizer n_ids", (const void *const[]){ tok, n_ids });
    if (status != REEL_OK) return status;
    if (cap > 0 && !ids)
        return err_set(err, REEL_E_ARGUMENT, "encode: room for %zu ids at no address", cap);
    const unsigned known = REEL_ENCODE_CONTROL | REEL_ENCODE_SPECIAL;
    if (flags & ~known)
        return err_set(err, REEL_E_ARGUMENT, "encode: flags 0x%x, allowed are those in 0x%x", flags,
                       known);
    if (n_bytes > 0 && !text)
        return err_set(err, REEL_E_ARGUMENT, "encode: %zu bytes at no address", n_bytes);
    status = tokenizer_encode(tok, &piece, 1, &all, &n, err);
    if (status != REEL_OK) return status;
    size_t n_before = 0, n_after = 0;
    const int32_t *before = NULL, *after = NULL;
    if (flags & REEL_ENCODE_SPECIAL) tokenizer_single(tok, &before, &n_before, &after, &n_after);
    *n_ids = n_before + n + n_after;
    if (*n_ids <= cap) {
        ids = put_ids(ids, before, n_before);
        ids = put_ids(ids, all, n);
        put_ids(ids, after, n_after);
    }
    n = *n_ids;
    mem_free(all);
    if (n <= cap) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "encode: %zu ids, the caller has room for %zu", n, cap);
}

const char *reel_token_bytes(const struct reel_tokenizer *tok, int32_t id, size_t *n_bytes) {
    size_t n = 0;
    const char *bytes = tok ? tokenizer_bytes(tok, id, &n) : NULL;
    if (n_bytes) *n_bytes = bytes ? n : 0;
    return bytes;
}

bool reel_token_is_control(const struct reel_tokenizer *tok, int32_t id) {
    return tok && tokenizer_is_control(tok, id);
}

int32_t reel_token_find(const struct reel_tokenizer *tok, const char *text, size_t n_bytes) {
    return tok && text ? tokenizer_find(tok, text, n_bytes) : -1;
}
