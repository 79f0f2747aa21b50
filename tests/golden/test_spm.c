/* SentencePiece's BPE against Hugging Face tokenizers and the sentencepiece package: see
 * tools/make_spm_goldens.py for what the file holds. Both models come as tokenizer.model; the other
 * forms are made of it here. A run takes a part of the blocks; REEL_SOAK=1 takes all of them. */
#include "base/memory.h"
#include "model/tokenizer.h"
#include "tests/support/fixtures.h"
#include "tests/support/sanitized.h"
#include "tests/support/spm_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_LAYOUTS   5
#define N_GENERATED 20000
static const char *const layouts[N_LAYOUTS] = { "prepend", "first", "always", "never",
                                                "first split" };
static const char *const models[2] = { "mistral", "spm-small" };

static struct {
    struct file_map goldens, strings;
    uint32_t n, block, n_blocks;
    const char **text; /* [n] borrowed, or made for the generated ones */
    size_t *n_text;    /* [n] */
    struct buffer made;
    const unsigned char *of_model[3]; /* where a model's part starts, and the end */
} g;

static uint32_t u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static unsigned u16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }

/* ---- the strings ---- */

static uint64_t generator;

static uint32_t draw(size_t n) {
    generator = generator * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((generator >> 33) % n);
}

static size_t prefix_bytes(const char *text, size_t n, uint32_t n_characters) {
    size_t i = 0;
    for (; i < n; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && n_characters-- == 0) break;
    return i;
}

static void generate(uint32_t n_base) {
    static const char spaces[] = "                                        ";
    static const struct {
        const char *text;
        size_t n;
    } bits[] = {
#define BIT(text) { text, sizeof text - 1 }
        BIT("<s>"),
        BIT("</s>"),
        BIT("<unk>"),
        BIT("[INST]"),
        BIT("[/INST]"),
        BIT("[TOOL_CALLS]"),
        BIT("<tag>"),
        BIT("<0x41>"),
        BIT(" "),
        BIT("  "),
        BIT("   "),
        { spaces, 17 },
        { spaces, 40 },
        BIT("\u2581"),
        BIT("\u2581\u2581"),
        BIT("\u2581the"),
        BIT("\n"),
        BIT("\n\n"),
        BIT("\t"),
        BIT("\u3000"),
        BIT("\u0f40"),
        BIT("\U0001f600"),
        BIT("\U0001f9d1\u200d\U0001f4bb"),
        BIT("e\u0301"),
        BIT("\x7f"),
        BIT("the the"),
        BIT("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
#undef BIT
    };
    generator = 1;
    for (uint32_t i = n_base; i < g.n; i++) {
        size_t start = g.made.size;
        for (uint32_t k = draw(7) + 1; k > 0; k--) {
            const char *text;
            size_t n;
            if (draw(5) < 3) {
                uint32_t which = draw(sizeof bits / sizeof *bits);
                text = bits[which].text;
                n = bits[which].n;
            } else {
                uint32_t which = draw(n_base);
                text = g.text[which];
                n = prefix_bytes(text, g.n_text[which], draw(30) + 1);
            }
            assert_int_equal(buffer_append(&g.made, text, n, NULL), REEL_OK);
        }
        g.n_text[i] = g.made.size - start;
    }
    for (size_t i = n_base, at = 0; i < g.n; at += g.n_text[i], i++)
        g.text[i] = g.made.bytes + at;
}

/* Two hashes for each layout, one of the package, then the decodings. */
static const unsigned char *skip_model(const unsigned char *p) {
    p += (2 * N_LAYOUTS + 1) * 4 * (size_t)g.n_blocks;
    uint32_t n = u32(p);
    for (p += 4; n > 0; n--)
        p += 4 + 4 * (size_t)u16(p) + u16(p + 2);
    return p;
}

static int open_goldens(void **state) {
    (void)state;
    if (!fixture_map(&g.goldens, "tokenizers/spm-goldens.bin")) return -1;
    if (!fixture_map(&g.strings, "tokenizers/goldens.bin")) return -1;
    if (g.goldens.size < 16 || memcmp(g.goldens.bytes, "RSPMGOLD", 8) != 0) return -1;
    uint32_t n_base = u32(g.strings.bytes + 8);
    g.n = u32(g.goldens.bytes + 8);
    g.block = u32(g.goldens.bytes + 12);
    g.n_blocks = (g.n + g.block - 1) / g.block;
    if (g.n != n_base + N_GENERATED) return -1;
    g.text = calloc(g.n, sizeof *g.text);
    g.n_text = calloc(g.n, sizeof *g.n_text);
    if (!g.text || !g.n_text) return -1;
    const char *text = (const char *)g.strings.bytes + 12 + 4 * (size_t)n_base;
    for (uint32_t i = 0; i < n_base; text += g.n_text[i], i++) {
        g.text[i] = text;
        g.n_text[i] = u32(g.strings.bytes + 12 + 4 * (size_t)i);
    }
    generate(n_base);
    g.of_model[0] = g.goldens.bytes + 16;
    g.of_model[1] = skip_model(g.of_model[0]);
    g.of_model[2] = skip_model(g.of_model[1]);
    return g.of_model[2] == g.goldens.bytes + g.goldens.size ? 0 : -1;
}

static int close_goldens(void **state) {
    (void)state;
    free(g.text);
    free(g.n_text);
    buffer_release(&g.made);
    file_map_close(&g.goldens);
    file_map_close(&g.strings);
    return 0;
}

/* ---- the tokenizers ---- */

static struct reel_tokenizer *load(const char *name, const void *bytes, size_t n) {
    const struct reel_memory_file file = { name, bytes, n };
    struct model_source source = { 0 };
    struct tensor_file tensors = { 0 };
    struct gguf gguf = { 0 };
    struct reel_tokenizer *tok = NULL;
    struct reel_error err = { 0 };
    enum reel_status status = model_source_open_memory(&source, "memory", &file, 1, &err);
    if (status == REEL_OK && source.is_gguf) status = gguf_open(&gguf, &tensors, &source, &err);
    if (status == REEL_OK)
        status = tokenizer_load(&tok, &source, source.is_gguf ? &gguf : NULL, NULL, &err);
    if (status != REEL_OK) fail_msg("%s", err.text);
    tensor_file_release(&tensors);
    gguf_release(&gguf);
    model_source_release(&source);
    return tok;
}

static struct reel_tokenizer *load_layout(int model, const char *layout) {
    struct spm_model m;
    struct buffer json = { 0 };
    assert_true(spm_model_open(&m, models[model]));
    spm_model_json(&m, layout, &json);
    struct reel_tokenizer *tok = load("tokenizer.json", json.bytes, json.size);
    buffer_release(&json);
    spm_model_close(&m);
    return tok;
}

/* ---- comparing ---- */

static uint32_t hash_bytes(uint32_t h, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x01000193u;
    return h;
}

static uint32_t hash_number(uint32_t h, uint32_t value) {
    const unsigned char bytes[4] = { (unsigned char)value, (unsigned char)(value >> 8),
                                     (unsigned char)(value >> 16), (unsigned char)(value >> 24) };
    return hash_bytes(h, bytes, 4);
}

static size_t decode(const struct reel_tokenizer *tok, const int32_t *ids, size_t n_ids,
                     char *out) {
    struct detokenizer d = detokenizer_start(tok);
    size_t made = 0, n;
    for (size_t i = 0; i < n_ids; i++) {
        const char *bytes = tokenizer_bytes(tok, ids[i], &n);
        if (!tokenizer_is_control(tok, ids[i])) made += detokenizer_push(&d, bytes, n, out + made);
    }
    return made + detokenizer_finish(&d, out + made);
}

struct hashes {
    uint32_t ids, texts;
};

static struct hashes hash_block(const struct reel_tokenizer *tok, uint32_t block, bool control) {
    struct hashes h = { 0x811c9dc5u, 0x811c9dc5u };
    struct reel_error err;
    for (uint32_t i = block * g.block; i < g.n && i < (block + 1) * g.block; i++) {
        const struct text_piece piece = { g.text[i], g.n_text[i], control };
        int32_t *ids;
        size_t n;
        if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
        for (size_t k = 0; k < n; k++)
            h.ids = hash_number(h.ids, (uint32_t)ids[k]);
        h.ids = hash_number(h.ids, UINT32_MAX);
        char *out = malloc(4 * g.n_text[i] + 64);
        assert_non_null(out);
        h.texts = hash_bytes(h.texts, out, decode(tok, ids, n, out));
        h.texts = hash_bytes(h.texts, "\xff", 1);
        free(out);
        mem_free(ids);
    }
    return h;
}

/* A run without REEL_SOAK takes one block of so many. */
static uint32_t stride(void) { return getenv("REEL_SOAK") ? 1 : SANITIZED ? 16 : 4; }

/* texts may be NULL. */
static void check_blocks(const struct reel_tokenizer *tok, const char *what, bool control,
                         const unsigned char *ids, const unsigned char *texts) {
    int wrong = 0;
    for (uint32_t i = 0; i < g.n_blocks; i += stride()) {
        struct hashes h = hash_block(tok, i, control);
        bool ids_right = h.ids == u32(ids + 4 * (size_t)i);
        bool texts_right = !texts || h.texts == u32(texts + 4 * (size_t)i);
        if ((!ids_right || !texts_right) && wrong++ < 5)
            print_message("%s: block %u of %u strings: other %s\n", what, i, g.block,
                          ids_right ? "texts" : "ids");
    }
    if (wrong) fail_msg("%s: %d of %u blocks differ", what, wrong, g.n_blocks);
}

static void every_layout_of_tokenizer_json_gives_hugging_face_s_ids_and_texts(void **state) {
    (void)state;
    assert_true(g.n >= 50000);
    for (int model = 0; model < 2; model++)
        for (int i = 0; i < N_LAYOUTS; i++) {
            const unsigned char *ids = g.of_model[model] + 8 * (size_t)i * g.n_blocks;
            struct reel_tokenizer *tok = load_layout(model, layouts[i]);
            check_blocks(tok, layouts[i], true, ids, ids + 4 * (size_t)g.n_blocks);
            tokenizer_close(tok);
        }
}

/* The package finds user-defined tokens in every text. reel finds them where the text may hold
 * added tokens, and then puts a space behind them as Hugging Face does: so only Mistral's, of which
 * the strings have none. */
static void tokenizer_model_gives_sentencepiece_s_ids(void **state) {
    (void)state;
    struct spm_model m;
    assert_true(spm_model_open(&m, models[0]));
    struct reel_tokenizer *tok = load("tokenizer.model", m.file.bytes, m.file.size);
    check_blocks(tok, "sentencepiece", false, g.of_model[0] + 8 * (size_t)N_LAYOUTS * g.n_blocks,
                 NULL);
    tokenizer_close(tok);
    spm_model_close(&m);
}

/* Merging by score gives what merging by rank gives. */
static void tokenizer_model_and_gguf_give_hugging_face_s_ids_and_texts(void **state) {
    (void)state;
    for (int model = 0; model < 2; model++) {
        struct spm_model m;
        struct buffer gguf = { 0 };
        const unsigned char *ids = g.of_model[model];
        assert_true(spm_model_open(&m, models[model]));
        spm_model_gguf(&m, &gguf);
        struct reel_tokenizer *file = load("tokenizer.model", m.file.bytes, m.file.size);
        struct reel_tokenizer *metadata = load("model.gguf", gguf.bytes, gguf.size);
        check_blocks(file, "tokenizer.model", true, ids, ids + 4 * (size_t)g.n_blocks);
        check_blocks(metadata, "GGUF", true, ids, ids + 4 * (size_t)g.n_blocks);
        tokenizer_close(file);
        tokenizer_close(metadata);
        buffer_release(&gguf);
        spm_model_close(&m);
    }
}

static void what_is_encoded_comes_back(void **state) {
    (void)state;
    struct reel_tokenizer *tok = load_layout(0, "prepend");
    int n_checked = 0;
    for (uint32_t i = 0; i < g.n; i += stride()) {
        const struct text_piece piece = { g.text[i], g.n_text[i], false };
        struct reel_error err;
        int32_t *ids;
        size_t n;
        if (tokenizer_encode(tok, &piece, 1, &ids, &n, &err) != REEL_OK) fail_msg("%s", err.text);
        char *out = malloc(4 * g.n_text[i] + 64);
        assert_non_null(out);
        bool escaped = false; /* U+2581 comes back as the space that it means */
        for (size_t k = 0; k + 3 <= g.n_text[i]; k++)
            escaped |= memcmp(g.text[i] + k, "\u2581", 3) == 0;
        if (!escaped) {
            assert_int_equal(decode(tok, ids, n, out), g.n_text[i]);
            assert_memory_equal(out, g.text[i], g.n_text[i]);
            n_checked++;
        }
        free(out);
        mem_free(ids);
    }
    assert_true((uint32_t)n_checked > 50000 / stride());
    tokenizer_close(tok);
}

static void broken_bytes_are_written_as_hugging_face_writes_them(void **state) {
    (void)state;
    for (int model = 0; model < 2; model++) {
        struct reel_tokenizer *tok = load_layout(model, "prepend");
        const unsigned char *p = g.of_model[model] + (2 * N_LAYOUTS + 1) * 4 * (size_t)g.n_blocks;
        uint32_t n = u32(p);
        assert_int_equal(n, 400);
        p += 4;
        for (uint32_t i = 0; i < n; i++) {
            int32_t ids[64];
            char out[4096];
            size_t n_ids = u16(p), n_text = u16(p + 2);
            assert_true(n_ids <= 64);
            for (size_t k = 0; k < n_ids; k++)
                ids[k] = (int32_t)u32(p + 4 + 4 * k);
            p += 4 + 4 * n_ids;
            size_t made = decode(tok, ids, n_ids, out);
            assert_int_equal(made, n_text);
            assert_memory_equal(out, p, n_text);
            p += n_text;
        }
        tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_of_tokenizer_json_gives_hugging_face_s_ids_and_texts),
        cmocka_unit_test(tokenizer_model_gives_sentencepiece_s_ids),
        cmocka_unit_test(tokenizer_model_and_gguf_give_hugging_face_s_ids_and_texts),
        cmocka_unit_test(what_is_encoded_comes_back),
        cmocka_unit_test(broken_bytes_are_written_as_hugging_face_writes_them),
    };
    return cmocka_run_group_tests(tests, open_goldens, close_goldens);
}
