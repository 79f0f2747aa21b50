/* Encoding and streaming back. Text that is valid gives ids whose bytes are the text again, unless
 * normalising changed it; the stream's output is valid UTF-8 however its input is cut. The first
 * byte chooses the cuts and whether added tokens are found. */
#include "model/tokenizer.h"
#include "model/tokenizer_utf8.h"
#include "support/small_tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct reel_tokenizer *open_small(bool normalises) {
    struct buffer json = { 0 };
    struct model_source source = { 0 };
    struct reel_tokenizer *tok = NULL;
    small_tokenizer_json(&json);
    if (!normalises) replace_once(&json, "{\"type\": \"NFC\"}", "null");
    const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
    if (model_source_open_memory(&source, "fuzz", &file, 1, NULL) != REEL_OK ||
        tokenizer_load(&tok, &source, NULL, NULL, NULL) != REEL_OK)
        abort();
    model_source_release(&source);
    buffer_release(&json);
    return tok;
}

/* The bytes of text's ids; NULL when it is refused. The caller frees. */
static char *there_and_back(const struct reel_tokenizer *tok, const char *text, size_t n,
                            size_t cut, bool control, size_t *n_back) {
    const struct text_piece pieces[] = { { text, cut, control }, { text + cut, n - cut, control } };
    int32_t *ids;
    size_t n_ids;
    struct reel_error err;
    enum reel_status status = tokenizer_encode(tok, pieces, 2, &ids, &n_ids, &err);
    bool valid =
        utf8_valid_prefix(text, cut) == cut && utf8_valid_prefix(text + cut, n - cut) == n - cut;
    if (valid != (status == REEL_OK)) abort();
    if (status != REEL_OK) return NULL;
    if (n_ids > 3 * n) abort();
    struct buffer back = { 0 };
    if (buffer_append(&back, "", 0, NULL) != REEL_OK) abort();
    for (size_t i = 0; i < n_ids; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tok, ids[i], &n_bytes);
        if (!bytes || buffer_append(&back, bytes, n_bytes, NULL) != REEL_OK) abort();
    }
    free(ids);
    return buffer_detach(&back, n_back);
}

static void stream(const char *bytes, size_t n, size_t step) {
    struct detokenizer d = { 0 };
    char out[DETOKENIZER_ROOM(16)];
    for (size_t i = 0; i < n; i += step) {
        size_t part = n - i < step ? n - i : step;
        size_t made = detokenizer_push(&d, bytes + i, part, out);
        if (made > DETOKENIZER_ROOM(part) || utf8_valid_prefix(out, made) != made) abort();
    }
    size_t made = detokenizer_finish(&d, out);
    if (utf8_valid_prefix(out, made) != made) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct reel_tokenizer *plain, *normalising;
    if (!plain) {
        plain = open_small(false);
        normalising = open_small(true);
    }
    if (n < 1) return 0;
    const char *text = (const char *)data + 1;
    size_t cut = (data[0] >> 1) % n, n_back, n_again;
    bool control = data[0] & 1;
    stream(text, n - 1, 1 + data[0] % 16);
    char *back = there_and_back(plain, text, n - 1, cut, control, &n_back);
    if (back && (n_back != n - 1 || memcmp(back, text, n_back) != 0)) abort();
    free(back);
    back = there_and_back(normalising, text, n - 1, cut, control, &n_back);
    if (back && !control) { /* what is normalised stays as it is */
        char *again = there_and_back(normalising, back, n_back, 0, false, &n_again);
        if (!again || n_again != n_back || memcmp(again, back, n_back) != 0) abort();
        free(again);
    }
    free(back);
    return 0;
}
