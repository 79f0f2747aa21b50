/* Vectors and scores over HTTP, on the miniatures of tests/golden/test_embed.c. */
#include "tests/support/asking.h"
#include "tests/support/fixtures.h"
#include "tests/support/http_client.h"
#include "tests/support/served.h"

#include "server/base64.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HIDDEN = 48 };

static struct served served;
static json_t *golden;
static char embedder[1024], reranker[1024];

static bool unpack(const char *model, const char *const *files, char folder[1024]) {
    char name[256];
    for (int i = 0; files[i]; i++) {
        snprintf(name, sizeof name, "embed/%s/%s", model, files[i]);
        const char *path = fixture_path(name);
        if (!path) return false;
        if (i == 0) snprintf(folder, 1024, "%.*s", (int)(strrchr(path, '/') - path), path);
    }
    return true;
}

static int set_up(void **state) {
    (void)state;
    static const char *const files[] = { "config.json",
                                         "model.safetensors",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "modules.json",
                                         "1_Pooling/config.json",
                                         "config_sentence_transformers.json",
                                         NULL };
    static const char *const fewer[] = { "config.json", "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json", NULL };
    golden = json_load_file("tests/golden/embed.json", 0, NULL);
    if (!golden || !unpack("qwen3-embedding", files, embedder) ||
        !unpack("qwen3-reranker", fewer, reranker))
        return -1;
    served.options.context = 512;
    served.options.sessions = 1;
    served.sources[0] = (struct served_source){ .name = "embedder", .folder = embedder };
    served.sources[1] = (struct served_source){ .name = "reranker", .folder = reranker };
    if (served_open(&served)) return 0;
    fprintf(stderr, "%s\n", served.err.text);
    return -1;
}

static int tear_down(void **state) {
    (void)state;
    served_close(&served);
    json_decref(golden);
    return 0;
}

/* ---- embeddings ---- */

#define EMBEDDINGS "/v1/embeddings"
#define RERANK     "/v1/rerank"

/* 1 - cosine */
static double away(const json_t *a, const json_t *b) {
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < json_array_size(a); i++) {
        const double p = json_number_value(json_array_get(a, i)),
                     q = json_number_value(json_array_get(b, i));
        dot += p * q;
        aa += p * p;
        bb += q * q;
    }
    return 1 - dot / sqrt(aa * bb);
}

/* A request of the golden's first texts, that have no prompt before them. */
static json_t *request_of(int n, json_t *wanted) {
    json_t *input = json_array();
    const json_t *t = NULL;
    size_t i = 0;
    json_array_foreach(json_object_get(golden, "texts"), i, t) {
        const size_t n_ids = json_array_size(json_object_get(t, "ids"));
        if (json_string_length(json_object_get(t, "prompt")) || n_ids > 512) continue;
        if (json_array_size(input) == (size_t)n) break;
        json_array_append(input, json_object_get(t, "text"));
        json_array_append(wanted, (json_t *)t);
    }
    return json_pack("{s:s,s:o}", "model", "embedder", "input", input);
}

static json_t *post(const char *path, json_t *body, int code) {
    char *text = json_dumps(body, 0);
    json_t *json = ask(served.port, path, text, code);
    free(text);
    return json;
}

static const json_t *vector_of(const json_t *answer, size_t i) {
    const json_t *one = json_array_get(json_object_get(answer, "data"), i);
    assert_int_equal(number_of(one, "index"), i);
    assert_string_equal(field_of(one, "object"), "embedding");
    return json_object_get(one, "embedding");
}

static void vectors_are_those_of_transformers(void **state) {
    (void)state;
    json_t *wanted = json_array(), *body = request_of(8, wanted);
    json_t *json = post(EMBEDDINGS, body, 200);
    size_t n_ids = 0;
    assert_int_equal(json_array_size(json_object_get(json, "data")), 8);
    for (size_t i = 0; i < 8; i++) {
        const json_t *want = json_array_get(wanted, i), *vector = vector_of(json, i);
        assert_int_equal(json_array_size(vector), HIDDEN);
        if (away(vector, json_object_get(want, "f32")) > 4e-4)
            fail_msg("text %zu is %g away", i, away(vector, json_object_get(want, "f32")));
        n_ids += json_array_size(json_object_get(want, "ids"));
    }
    assert_int_equal(number_of(json_object_get(json, "usage"), "prompt_tokens"), n_ids);
    json_decref(json);
    json_decref(body);
    json_decref(wanted);
}

static void base64_is_the_same_floats(void **state) {
    (void)state;
    json_t *wanted = json_array(), *body = request_of(2, wanted);
    json_object_set_new(body, "dimensions", json_integer(12));
    json_t *plain = post(EMBEDDINGS, body, 200);
    json_object_set_new(body, "encoding_format", json_string("base64"));
    json_t *packed = post(EMBEDDINGS, body, 200);
    for (size_t i = 0; i < 2; i++) {
        const char *text = json_string_value(vector_of(packed, i));
        struct buffer bytes = { 0 };
        assert_non_null(text);
        assert_int_equal(base64_read(&bytes, text, strlen(text), NULL), REEL_OK);
        assert_int_equal(bytes.size, 12 * 4);
        for (size_t j = 0; j < 12; j++) {
            const unsigned char *b = (const unsigned char *)bytes.bytes + 4 * j;
            const uint32_t bits =
                b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
            float value;
            memcpy(&value, &bits, sizeof value);
            assert_true((float)json_number_value(json_array_get(vector_of(plain, i), j)) == value);
        }
        buffer_release(&bytes);
    }
    json_decref(plain);
    json_decref(packed);
    json_decref(body);
    json_decref(wanted);
}

static void ids_are_embedded_as_given(void **state) {
    (void)state;
    json_t *wanted = json_array(), *body = request_of(1, wanted);
    json_t *json = post(EMBEDDINGS, body, 200);
    json_object_set(body, "input", json_object_get(json_array_get(wanted, 0), "ids"));
    json_t *same = post(EMBEDDINGS, body, 200);
    assert_true(json_equal(vector_of(json, 0), vector_of(same, 0)));
    json_decref(json);
    json_decref(same);
    json_decref(body);
    json_decref(wanted);
}

static void long_texts_are_refused_or_cut(void **state) {
    (void)state;
    char text[4000] = "", body[5000];
    for (int i = 0; i < 700; i++)
        strcat(text, "a b, ");
    snprintf(body, sizeof body, "{\"model\":\"embedder\",\"input\":\"%s\"}", text);
    assert_refused(served.port, EMBEDDINGS, body, "input");
    snprintf(body, sizeof body,
             "{\"model\":\"embedder\",\"input\":\"%s\",\"truncate_prompt_tokens\":-1}", text);
    json_t *json = ask(served.port, EMBEDDINGS, body, 200);
    assert_int_equal(number_of(json_object_get(json, "usage"), "prompt_tokens"), 512);
    json_decref(json);
    /* what is left of a text ends as a text does */
    json_t *whole =
        ask(served.port, "/tokenize", "{\"model\":\"embedder\",\"prompt\":\"a b, a b\"}", 200);
    json_t *ids = json_copy(json_object_get(whole, "tokens"));
    const size_t n = json_array_size(ids);
    json_array_remove(ids, n - 2);
    json_t *cut = json_pack("{s:s,s:s,s:i}", "model", "embedder", "input", "a b, a b",
                            "truncate_prompt_tokens", (int)n - 1);
    json_t *given = json_pack("{s:s,s:O}", "model", "embedder", "input", ids);
    json_t *one = post(EMBEDDINGS, cut, 200), *two = post(EMBEDDINGS, given, 200);
    assert_true(json_equal(vector_of(one, 0), vector_of(two, 0)));
    json_decref(whole);
    json_decref(ids);
    json_decref(cut);
    json_decref(given);
    json_decref(one);
    json_decref(two);
}

static void embeddings_refuse_by_name(void **state) {
    const int port = served.port;
    (void)state;
#define E "{\"model\":\"embedder\","
    assert_refused(port, EMBEDDINGS, "{\"input\":\"a\"}", "model");
    assert_refused(port, EMBEDDINGS, "{\"model\":\"reranker\",\"input\":\"a\"}", "model");
    assert_refused(port, EMBEDDINGS, E "\"input\":[]}", "input");
    assert_refused(port, EMBEDDINGS, E "\"input\":[[]]}", "input");
    assert_refused(port, EMBEDDINGS, E "\"input\":[null]}", "input");
    assert_refused(port, EMBEDDINGS, E "\"input\":\"a\",\"dimensions\":0}", "dimensions");
    assert_refused(port, EMBEDDINGS, E "\"input\":\"a\",\"dimensions\":49}", "dimensions");
    assert_refused(port, EMBEDDINGS, E "\"input\":\"a\",\"encoding_format\":\"f16\"}",
                   "encoding_format");
    assert_refused(port, EMBEDDINGS, E "\"input\":\"abc\",\"truncate_prompt_tokens\":1}",
                   "truncate_prompt_tokens");
}

/* ---- reranking ---- */

static void documents_come_best_first(void **state) {
    (void)state;
    const json_t *q = json_array_get(json_object_get(golden, "queries"), 0);
    const json_t *documents = json_object_get(q, "documents");
    json_t *few = json_array();
    double last = 2;
    for (size_t i = 0; i < 6; i++)
        json_array_append(few, json_array_get(documents, i));
    json_t *body = json_pack("{s:s,s:O,s:O,s:i}", "model", "reranker", "query",
                             json_object_get(q, "query"), "documents", few, "top_n", 4);
    json_t *json = post(RERANK, body, 200);
    const json_t *results = json_object_get(json, "results");
    assert_int_equal(json_array_size(results), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *r = json_array_get(results, i);
        const double score = json_number_value(json_object_get(r, "relevance_score"));
        const size_t index = (size_t)number_of(r, "index");
        const double want = json_number_value(json_array_get(json_object_get(q, "f32"), index));
        if (fabs(score - want) > 0.012) fail_msg("document %zu: %g, not %g", index, score, want);
        assert_true(score <= last);
        last = score;
        assert_string_equal(field_of(json_object_get(r, "document"), "text"),
                            json_string_value(json_array_get(few, index)));
    }
    json_object_set_new(body, "return_documents", json_false());
    json_t *bare = post("/rerank", body, 200);
    assert_null(json_object_get(json_array_get(json_object_get(bare, "results"), 0), "document"));
    json_decref(bare);
    json_decref(json);
    json_decref(body);
    json_decref(few);
}

static void rerank_refuses_by_name(void **state) {
    const int port = served.port;
    (void)state;
#define R "{\"model\":\"reranker\","
    assert_refused(port, RERANK, R "\"documents\":[\"a\"]}", "query");
    assert_refused(port, RERANK, R "\"query\":\"a\"}", "documents");
    assert_refused(port, RERANK, R "\"query\":\"a\",\"documents\":[]}", "documents");
    assert_refused(port, RERANK, R "\"query\":\"a\",\"documents\":[{}]}", "documents");
    assert_refused(port, RERANK, R "\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":0}", "top_n");
    assert_refused(port, RERANK,
                   R "\"query\":\"a\",\"documents\":[\"b\"],\"truncate_prompt_tokens\":1}",
                   "query");
    json_decref(ask(port, RERANK,
                    R "\"query\":\"a\",\"documents\":[\"b\",{\"text\":\"\"}],\"top_n\":99}", 200));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_are_those_of_transformers),
        cmocka_unit_test(base64_is_the_same_floats),
        cmocka_unit_test(ids_are_embedded_as_given),
        cmocka_unit_test(long_texts_are_refused_or_cut),
        cmocka_unit_test(embeddings_refuse_by_name),
        cmocka_unit_test(documents_come_best_first),
        cmocka_unit_test(rerank_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
