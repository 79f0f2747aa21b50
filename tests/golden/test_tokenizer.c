/* Ids against Hugging Face tokenizers: see tools/make_tokenizer_goldens.py for what the file holds.
 */
#include "model/tokenizer.h"
#include "tests/support/fixtures.h"
#include "tests/support/gguf_tokenizer.h"
#include "tests/support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct goldens {
    struct file_map file;
    uint32_t n_strings;
    const unsigned char *lengths, *texts, *families, *decodings;
};

static struct goldens goldens;

static uint32_t u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }

static unsigned u16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }

static int open_goldens(void **state) {
    (void)state;
    struct goldens *g = &goldens;
    if (!fixture_map(&g->file, "tokenizers/goldens.bin")) return -1;
    const unsigned char *p = g->file.bytes;
    if (g->file.size < 12 || memcmp(p, "RTOKGOLD", 8) != 0) return -1;
    g->n_strings = u32(p + 8);
    g->lengths = p + 12;
    g->texts = g->lengths + 4 * (size_t)g->n_strings;
    size_t total = 0;
    for (uint32_t i = 0; i < g->n_strings; i++)
        total += u32(g->lengths + 4 * (size_t)i);
    g->families = g->texts + total;
    g->decodings = g->families + 3 * (4 * (size_t)g->n_strings + 8);
    return 0;
}

static int close_goldens(void **state) {
    (void)state;
    file_map_close(&goldens.file);
    return 0;
}

static uint32_t hash_ids(const int32_t *ids, size_t n) {
    uint32_t h = 0x811c9dc5u;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 32; k += 8)
            h = (h ^ ((uint32_t)ids[i] >> k & 0xff)) * 0x01000193u;
    return h;
}

static uint64_t hash_byte(uint64_t h, unsigned byte) {
    return (h ^ byte) * UINT64_C(0x100000001b3);
}

static struct reel_tokenizer *open_tokenizer(const char *path) {
    struct reel_tokenizer *tok = NULL;
    struct reel_error err;
    assert_non_null(path);
    if (reel_tokenizer_open(&tok, path, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    return tok;
}

static void print_difference(uint32_t i, const char *text, size_t n, const int32_t *ids,
                             size_t n_ids) {
    fprintf(stderr, "string %u:", i);
    for (size_t k = 0; k < n && k < 100; k++)
        fprintf(stderr, " %02x", (unsigned char)text[k]);
    fprintf(stderr, "\n  ids:");
    for (size_t k = 0; k < n_ids && k < 40; k++)
        fprintf(stderr, " %d", ids[k]);
    fprintf(stderr, "\n");
}

/* The ids of every string, and that their bytes are the string again where nothing is normalised
 * or missing from the vocabulary. */
static void check_strings(const struct reel_tokenizer *tok, int family) {
    const unsigned char *expected = goldens.families + family * (4 * (long)goldens.n_strings + 8);
    const char *text = (const char *)goldens.texts;
    int32_t *ids = malloc(1 << 20);
    int wrong = 0;
    assert_non_null(ids);
    for (uint32_t i = 0; i < goldens.n_strings; i++) {
        struct reel_error err;
        size_t n = u32(goldens.lengths + 4 * (size_t)i), n_ids;
        if (reel_encode(tok, text, n, REEL_ENCODE_CONTROL, ids, (1 << 20) / 4, &n_ids, &err))
            fail_msg("string %u: %s", i, err.text);
        if (hash_ids(ids, n_ids) != u32(expected + 4 * (size_t)i) && wrong++ < 10)
            print_difference(i, text, n, ids, n_ids);
        text += n;
    }
    free(ids);
    assert_int_equal(wrong, 0);
}

static void check_token_bytes(const struct reel_tokenizer *tok, int family) {
    const unsigned char *expected = goldens.families + family * (4 * (long)goldens.n_strings + 8);
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int32_t id = 0; id < reel_tokenizer_size(tok); id++) {
        size_t n;
        const char *bytes = reel_token_bytes(tok, id, &n);
        assert_non_null(bytes);
        for (int k = 0; k < 32; k += 8)
            h = hash_byte(h, (unsigned)(n >> k & 0xff));
        for (size_t k = 0; k < n; k++)
            h = hash_byte(h, (unsigned char)bytes[k]);
        int32_t found = reel_token_find(tok, bytes, n);
        if (found != id) fail_msg("id %d is found as %d", id, found);
    }
    assert_int_equal(h, u64(expected + 4 * (size_t)goldens.n_strings));
}

static void check_and_close(struct reel_tokenizer *tok, int family, int size) {
    assert_non_null(tok);
    assert_int_equal(reel_tokenizer_size(tok), size);
    check_strings(tok, family);
    check_token_bytes(tok, family);
    reel_tokenizer_close(tok);
}

static void check_family(const char *path, int family, int size) {
    check_and_close(open_tokenizer(path), family, size);
}

static void the_file_holds_fifty_thousand_strings(void **state) {
    (void)state;
    assert_true(goldens.n_strings >= 50000);
}

static void qwen3_ids_and_bytes_are_those_of_hugging_face_tokenizers(void **state) {
    (void)state;
    check_family(fixture_tokenizer("qwen3"), 0, 151669);
}

static void smollm2_ids_and_bytes_are_those_of_hugging_face_tokenizers(void **state) {
    (void)state;
    check_family(fixture_tokenizer("smollm2"), 1, 49152);
}

static void qwen35_ids_and_bytes_are_those_of_hugging_face_tokenizers(void **state) {
    (void)state;
    check_family(fixture_tokenizer("qwen3.5"), 2, 248077);
}

static void a_gguf_file_holds_the_same_smollm2_tokenizer(void **state) {
    (void)state;
    const char *path = getenv("REEL_SMOLLM2");
    if (!path) {
        print_message("REEL_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf\n");
        skip();
    }
    check_family(path, 1, 49152);
}

/* tokenizer.json as metadata: what differs is how the names of pre-tokenizers are read. */
static void gguf_metadata_of_real_vocabularies_give_the_same_ids(void **state) {
    (void)state;
    const char *qwen3 = fixture_tokenizer("qwen3"), *smollm2 = fixture_tokenizer("smollm2");
    const char *qwen35 = fixture_tokenizer("qwen3.5");
    assert_true(qwen3 && smollm2 && qwen35);
    check_and_close(gguf_tokenizer(smollm2, "smollm", NULL, NULL), 1, 49152);
    if (sanitized_briefly()) return; /* larger vocabularies are read the same way */
    check_and_close(gguf_tokenizer(qwen3, "qwen2", NULL, NULL), 0, 151669);
    check_and_close(gguf_tokenizer(qwen35, "qwen35", NULL, NULL), 2, 248077);
}

/* One decoding with the bytes pushed in two parts. */
static void check_decoding(const unsigned char *bytes, size_t n, size_t split,
                           const unsigned char *text, size_t n_text) {
    struct detokenizer d = { 0 };
    char out[DETOKENIZER_ROOM(512)];
    size_t made = detokenizer_push(&d, (const char *)bytes, split, out);
    assert_true(made <= DETOKENIZER_ROOM(split));
    made += detokenizer_push(&d, (const char *)bytes + split, n - split, out + made);
    made += detokenizer_finish(&d, out + made);
    assert_int_equal(made, n_text);
    assert_memory_equal(out, text, n_text);
}

static void streamed_text_is_what_python_decodes_however_the_bytes_are_split(void **state) {
    (void)state;
    const unsigned char *p = goldens.decodings;
    uint32_t n_decodings = u32(p);
    p += 4;
    for (uint32_t i = 0; i < n_decodings; i++) {
        size_t n = u16(p), n_text = u16(p + 2);
        assert_true(n <= 256);
        for (size_t split = 0; split <= n; split++)
            check_decoding(p + 4, n, split, p + 4 + n, n_text);
        p += 4 + n + n_text;
    }
    assert_ptr_equal(p, goldens.file.bytes + goldens.file.size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_holds_fifty_thousand_strings),
        cmocka_unit_test(qwen3_ids_and_bytes_are_those_of_hugging_face_tokenizers),
        cmocka_unit_test(smollm2_ids_and_bytes_are_those_of_hugging_face_tokenizers),
        cmocka_unit_test(qwen35_ids_and_bytes_are_those_of_hugging_face_tokenizers),
        cmocka_unit_test(gguf_metadata_of_real_vocabularies_give_the_same_ids),
        cmocka_unit_test(a_gguf_file_holds_the_same_smollm2_tokenizer),
        cmocka_unit_test(streamed_text_is_what_python_decodes_however_the_bytes_are_split),
    };
    return cmocka_run_group_tests(tests, open_goldens, close_goldens);
}
