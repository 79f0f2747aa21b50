/* tokenizer.model: protobuf from anywhere. Whatever loads must encode a text, find its own tokens
 * and give text back that is UTF-8. */
#include "base/memory.h"
#include "model/tokenizer.h"
#include "model/tokenizer_utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void show(const struct reel_tokenizer *tok, const int32_t *ids, size_t n) {
    struct detokenizer d = detokenizer_start(tok);
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tok, ids[i], &n_bytes);
        if (!bytes || n_bytes > 512) continue;
        char out[DETOKENIZER_ROOM(512)];
        size_t made = detokenizer_push(&d, bytes, n_bytes, out);
        if (made > DETOKENIZER_ROOM(n_bytes) || utf8_valid_prefix(out, made) != made) abort();
    }
    char end[16];
    if (detokenizer_finish(&d, end) > sizeof end) abort();
}

static void use(const struct reel_tokenizer *tok) {
    static const char text[] =
        " abc  a\xe2\x96\x81</s>bc\xc3\xa9\n\xf0\x9f\x98\x80<s>aaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaabcabcabc";
    for (int control = 0; control < 2; control++) {
        const struct text_piece piece = { text, sizeof text - 1, control };
        int32_t *ids;
        size_t n;
        struct reel_error err;
        if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) abort();
        if (n > 3 * sizeof text) abort();
        for (size_t i = 0; i < n; i++)
            if (ids[i] < 0 || ids[i] >= tokenizer_size(tok)) abort();
        show(tok, ids, n);
        mem_free(ids);
    }
    for (int32_t id = 0; id < tokenizer_size(tok); id++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tok, id, &n_bytes);
        if (bytes && tokenizer_find(tok, bytes, n_bytes) < 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const struct reel_memory_file file = { "tokenizer.model", n ? data : (const uint8_t *)"", n };
    struct model_source source = { 0 };
    struct reel_tokenizer *tok = NULL;
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", &file, 1, &err) == REEL_OK) {
        enum reel_status status = tokenizer_load(&tok, &source, NULL, NULL, &err);
        if (status != REEL_OK && (tok || !err.text[0])) abort();
        if (status == REEL_OK) use(tok);
    }
    tokenizer_close(tok);
    model_source_release(&source);
    return 0;
}
