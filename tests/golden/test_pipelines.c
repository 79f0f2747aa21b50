/* The pipelines of families of tokenizers against Hugging Face tokenizers, with small vocabularies:
 * tools/make_pipeline_goldens.py says what the files hold. Where GGUF has a name for a pipeline,
 * the same ids must come from metadata with that name. A usual run takes a third of the strings of
 * each pipeline, REEL_SOAK=1 takes all. */
#include "model/tokenizer.h"
#include "tests/support/fixtures.h"
#include "tests/support/gguf_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In the order of the file. */
static const char *const names[] = {
    "bailing", "command-r",      "deepseek-coder", "deepseek-llm", "deepseek-v3", "exaone",
    "falcon",  "gpt-2",          "gpt-4o",         "llama-3",      "neox",        "phi",
    "prefix",  "qwen-embedding", "stages",         "tekken"
};
#define N_NAMES (sizeof names / sizeof names[0])
#define ROOM    (1 << 18)

struct goldens {
    struct file_map texts_file, file;
    uint32_t n_strings, per_block, n_blocks;
    const unsigned char *lengths, *texts, *pipelines;
};

static struct goldens goldens;

static uint32_t u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int open_goldens(void **state) {
    (void)state;
    struct goldens *g = &goldens;
    if (!fixture_map(&g->texts_file, "tokenizers/goldens.bin")) return -1;
    if (!fixture_map(&g->file, "tokenizers/pipelines.bin")) return -1;
    const unsigned char *p = g->file.bytes, *t = g->texts_file.bytes;
    if (memcmp(p, "RTOKPIPE", 8) != 0 || memcmp(t, "RTOKGOLD", 8) != 0) return -1;
    g->n_strings = u32(p + 8);
    g->per_block = u32(p + 12);
    g->n_blocks = (g->n_strings + g->per_block - 1) / g->per_block;
    g->pipelines = p + 20;
    g->lengths = t + 12;
    g->texts = g->lengths + 4 * (size_t)g->n_strings;
    const size_t each = 4 * (size_t)g->n_blocks + (g->n_strings + 7) / 8;
    return u32(t + 8) == g->n_strings && u32(p + 16) == N_NAMES &&
                   g->file.size == 20 + N_NAMES * each
               ? 0
               : -1;
}

static int close_goldens(void **state) {
    (void)state;
    file_map_close(&goldens.file);
    file_map_close(&goldens.texts_file);
    return 0;
}

static uint32_t hash_u32(uint32_t h, uint32_t x) {
    for (int k = 0; k < 32; k += 8)
        h = (h ^ (x >> k & 0xff)) * 0x01000193u;
    return h;
}

/* Whether the tokens' bytes, without what the post-processor added, are the text. */
static bool gives_back(const struct reel_tokenizer *tok, const int32_t *ids, size_t n_ids,
                       const char *text, size_t n) {
    const int32_t *before, *after;
    size_t n_before, n_after, at = 0;
    tokenizer_single(tok, &before, &n_before, &after, &n_after);
    for (size_t i = n_before; i < n_ids - n_after; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tok, ids[i], &n_bytes);
        if (!bytes || n_bytes > n - at || memcmp(bytes, text + at, n_bytes) != 0) return false;
        at += n_bytes;
    }
    return at == n;
}

static uint32_t check_block(const struct reel_tokenizer *tok, const char *name, uint32_t first,
                            const char *text, const unsigned char *back, int32_t *ids) {
    uint32_t h = 0x811c9dc5u;
    for (uint32_t i = first; i < first + goldens.per_block && i < goldens.n_strings; i++) {
        struct reel_error err;
        size_t n = u32(goldens.lengths + 4 * (size_t)i), n_ids;
        if (reel_encode(tok, text, n, REEL_ENCODE_CONTROL | REEL_ENCODE_SPECIAL, ids, ROOM, &n_ids,
                        &err))
            fail_msg("%s, string %u: %s", name, i, err.text);
        h = hash_u32(h, (uint32_t)n_ids);
        for (size_t k = 0; k < n_ids; k++)
            h = hash_u32(h, (uint32_t)ids[k]);
        if (back[i / 8] >> i % 8 & 1 && !gives_back(tok, ids, n_ids, text, n))
            fail_msg("%s, string %u is not decoded to itself", name, i);
        text += n;
    }
    return h;
}

/* All blocks of the pipeline of names[at]; `what` is for messages. Blocks that were wrong. */
static int check_pipeline(const struct reel_tokenizer *tok, const char *what, size_t at) {
    const size_t each = 4 * (size_t)goldens.n_blocks + (goldens.n_strings + 7) / 8;
    const unsigned char *hashes = goldens.pipelines + at * each;
    const unsigned char *back = hashes + 4 * (size_t)goldens.n_blocks;
    const uint32_t step = getenv("REEL_SOAK") ? 1 : 3;
    const char *text = (const char *)goldens.texts;
    int32_t *ids = malloc(ROOM * sizeof *ids);
    int wrong = 0;
    assert_non_null(ids);
    for (uint32_t block = 0; block < goldens.n_blocks; block++) {
        const uint32_t first = block * goldens.per_block;
        if ((block + at) % step == 0 &&
            check_block(tok, what, first, text, back, ids) != u32(hashes + 4 * (size_t)block) &&
            wrong++ < 10)
            fprintf(stderr, "%s: strings %u to %u\n", what, first, first + goldens.per_block - 1);
        for (uint32_t i = first; i < first + goldens.per_block && i < goldens.n_strings; i++)
            text += u32(goldens.lengths + 4 * (size_t)i);
    }
    free(ids);
    return wrong;
}

static const char *folder_of(const char *pipeline) {
    char folder[64];
    snprintf(folder, sizeof folder, "pipelines-%s", pipeline);
    const char *path = fixture_tokenizer(folder);
    assert_non_null(path);
    return path;
}

static void every_pipeline_gives_the_ids_of_hugging_face_tokenizers(void **state) {
    (void)state;
    int wrong = 0;
    assert_true(goldens.n_strings >= 50000);
    for (size_t i = 0; i < N_NAMES; i++) {
        struct reel_tokenizer *tok = NULL;
        struct reel_error err;
        if (reel_tokenizer_open(&tok, folder_of(names[i]), NULL, &err)) fail_msg("%s", err.text);
        wrong += check_pipeline(tok, names[i], i);
        reel_tokenizer_close(tok);
    }
    assert_int_equal(wrong, 0);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* Names of pre-tokenizers, and the pipelines that they stand for. Tokens that a tokenizer.json puts
 * around a text are two flags in GGUF; of Llama 3's and Mistral's names the first is a part. */
static const struct named {
    const char *pre, *pipeline, *before, *after;
} named[] = {
    { "bailingmoe", "bailing", NULL, NULL },
    { "bailingmoe2", "bailing", NULL, NULL },
    { "llada-moe", "bailing", NULL, NULL },
    { "command-r", "command-r", "<|im_start|>", NULL },
    { "deepseek-coder", "deepseek-coder", "<|im_start|>", NULL },
    { "deepseek-llm", "deepseek-llm", "<|im_start|>", NULL },
    { "deepseek-v3", "deepseek-v3", NULL, NULL },
    { "falcon", "falcon", NULL, NULL },
    { "gpt-2", "gpt-2", NULL, NULL },
    { "gpt-4o", "gpt-4o", NULL, NULL },
    { "llama4", "gpt-4o", NULL, NULL },
    { "llama-bpe", "llama-3", "", NULL },
    { "llama-v3", "llama-3", "", NULL },
    { "falcon3", "llama-3", "", NULL },
    { "olmo", "neox", NULL, NULL },
    { "qwen2", "qwen-embedding", NULL, "<|endoftext|>" },
    { "tekken", "tekken", "", NULL },
};

static int check_named(const struct named *it) {
    size_t at = 0;
    while (strcmp(names[at], it->pipeline) != 0)
        at++;
    struct reel_tokenizer *tok =
        gguf_tokenizer(folder_of(it->pipeline), it->pre, it->before, it->after);
    assert_non_null(tok);
    const int wrong = check_pipeline(tok, it->pre, at);
    tokenizer_close(tok);
    return wrong;
}

static void gguf_s_names_of_pipelines_give_the_same_ids(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        wrong += check_named(&named[i]);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pipeline_gives_the_ids_of_hugging_face_tokenizers),
        cmocka_unit_test(gguf_s_names_of_pipelines_give_the_same_ids),
    };
    return cmocka_run_group_tests(tests, open_goldens, close_goldens);
}
