/* Loading a tokenizer. The first byte chooses the form: tokenizer.json; the same as an edit of the
 * small tokenizer (where, how much to leave out, what to put in); the older three files; a cache
 * file with a right checksum; the small tokenizer with another pipeline; a GGUF file. Whatever
 * loads must encode and find its own tokens. */
#include "model/tokenizer.h"
#include "model/tokenizer_tables.h"
#include "support/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void use(const struct reel_tokenizer *tok) {
    static const char text[] = "hello hello's 12 \xc3\xa9 e\xcc\x81<|end|><think>\n\n  x";
    int32_t ids[3 * sizeof text + (size_t)2 * TOKENIZER_MAX_AROUND];
    size_t n;
    struct reel_error err;
    if (reel_encode(tok, text, sizeof text - 1, REEL_ENCODE_CONTROL | REEL_ENCODE_SPECIAL, ids,
                    sizeof ids / sizeof *ids, &n, &err) != REEL_OK)
        abort();
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer_size(tok)) abort();
    for (int32_t id = 0; id < tokenizer_size(tok); id++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tok, id, &n_bytes);
        if (bytes) tokenizer_find(tok, bytes, n_bytes);
    }
}

static void load(const struct reel_memory_file *files, int n_files) {
    struct model_source source = { 0 };
    struct tensor_file tensors = { 0 };
    struct gguf gguf = { 0 };
    struct reel_tokenizer *tok = NULL;
    struct reel_error err = { 0 };
    enum reel_status status = model_source_open_memory(&source, "fuzz", files, n_files, &err);
    if (status == REEL_OK && source.is_gguf) status = gguf_open(&gguf, &tensors, &source, &err);
    if (status == REEL_OK) {
        status = tokenizer_load(&tok, &source, source.is_gguf ? &gguf : NULL, NULL, &err);
        if (status != REEL_OK && (tok || !err.text[0])) abort();
        if (status == REEL_OK) use(tok);
    }
    tokenizer_close(tok);
    gguf_release(&gguf);
    tensor_file_release(&tensors);
    model_source_release(&source);
}

/* Two bytes of place, one of how much goes, then what comes. */
static void edit_small(const uint8_t *data, size_t n) {
    struct buffer json = { 0 }, edited = { 0 };
    if (n < 3) return;
    small_tokenizer_json(&json);
    size_t at = (data[0] | (size_t)data[1] << 8) % json.size;
    size_t gone = data[2] < json.size - at ? data[2] : json.size - at;
    if (buffer_append(&edited, json.bytes, at, NULL) == REEL_OK &&
        buffer_append(&edited, data + 3, n - 3, NULL) == REEL_OK &&
        buffer_append(&edited, json.bytes + at + gone, json.size - at - gone, NULL) == REEL_OK) {
        const struct reel_memory_file file = { "tokenizer.json", edited.bytes, edited.size };
        load(&file, 1);
    }
    buffer_release(&json);
    buffer_release(&edited);
}

/* Values of these keys with NUL bytes between; the small tokenizer's own where one is empty. */
static void other_pipeline(const uint8_t *data, size_t n) {
    static const char *const keys[] = { "normalizer", "pre_tokenizer", "post_processor",
                                        "added_tokens" };
    struct buffer json = { 0 };
    small_tokenizer_json(&json);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && n; i++) {
        struct buffer value = { 0 };
        char key[32];
        const uint8_t *end = memchr(data, 0, n);
        size_t length = end ? (size_t)(end - data) : n;
        snprintf(key, sizeof key, "\"%s\": ", keys[i]);
        if (buffer_printf(&value, NULL, "%s%.*s, \"was_%s\": ", key, (int)length, data, keys[i]) !=
            REEL_OK)
            abort();
        if (length) replace_once(&json, key, value.bytes);
        buffer_release(&value);
        data += length + (end ? 1 : 0);
        n -= length + (end ? 1 : 0);
    }
    const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
    load(&file, 1);
    buffer_release(&json);
}

/* Three files with NUL bytes between. */
static void older_form(const uint8_t *data, size_t n) {
    const char *names[] = { "vocab.json", "merges.txt", "tokenizer_config.json" };
    struct reel_memory_file files[3];
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = n ? memchr(data, 0, n) : NULL;
        size_t length = end ? (size_t)(end - data) : n;
        files[i] =
            (struct reel_memory_file){ names[i], length ? data : (const uint8_t *)"", length };
        data += length + (end ? 1 : 0);
        n -= length + (end ? 1 : 0);
    }
    load(files, 3);
}

/* Changes of the small tokenizer's tables: two bytes of place, one of value. */
static void forged_cache(const uint8_t *data, size_t n) {
    struct buffer json = { 0 };
    struct reel_tokenizer *tok = NULL, forged = { 0 };
    struct model_source source = { 0 };
    small_tokenizer_json(&json);
    const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
    if (model_source_open_memory(&source, "fuzz", &file, 1, NULL) != REEL_OK ||
        tokenizer_load(&tok, &source, NULL, NULL, NULL) != REEL_OK)
        abort();
    unsigned char *bytes = tok->block;
    for (; n >= 3; data += 3, n -= 3)
        bytes[(data[0] | (size_t)data[1] << 8) % tok->block_bytes] = data[2];
    struct tables_header *head = tok->block;
    head->total_bytes = tok->block_bytes;
    tables_sign(head, tok->head.source);
    if (tables_attach(&forged, bytes, tok->block_bytes, tok->head.source) &&
        tables_compile(&forged, "forged", NULL) == REEL_OK)
        use(&forged);
    split_plan_release(&forged.plan);
    tokenizer_close(tok);
    model_source_release(&source);
    buffer_release(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    const struct reel_memory_file file = { "tokenizer.json", data + 1, n - 1 };
    const struct reel_memory_file gguf = { "model.gguf", data + 1, n - 1 };
    switch (data[0] % 6) {
    case 0:
        load(&file, 1);
        break;
    case 4:
        other_pipeline(data + 1, n - 1);
        break;
    case 5:
        load(&gguf, 1);
        break;
    case 1:
        edit_small(data + 1, n - 1);
        break;
    case 2:
        older_form(data + 1, n - 1);
        break;
    default:
        forged_cache(data + 1, n - 1);
        break;
    }
    return 0;
}
