/* Small models in every quantised format (tools/make_quantised.py): each weight is worth what the
 * format's own package says, bit for bit, and a model gives the logits and ids of its twin whose
 * weights were widened to f32 before. */
#include "base/json.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "runtime/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/golden/quantised/"

static const char *const folders[] = {
    "fp8",       "float-quantized", "int-quantized", "pack-quantized", "fp4-pack-quantized",
    "gptq-int4", "gptq-v2-int8",    "awq",           "modelopt",       "bitsandbytes"
};
#define N_FOLDERS ((int)(sizeof folders / sizeof folders[0]))

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s", err->text);
}

static void open_model(struct model *m, const char *folder) {
    char path[200];
    struct reel_error err = { 0 };
    *m = (struct model){ 0 };
    snprintf(path, sizeof path, "%s%s", FOLDER, folder);
    require(model_source_open(&m->source, path, &err), &err);
    require(model_config_read(&m->config, &m->source, &err), &err);
    require(safetensors_open(&m->tensors, &m->source, &err), &err);
    require(quant_config_read(&m->tensors.quant, &m->source, &err), &err);
    require(weights_map(&m->weights, &m->config, &m->tensors, false, &err), &err);
}

/* Every matrix of the model and its layer's name. */
struct named {
    const char *name;
    struct matrix *matrix;
};
enum { N_MATRICES = 9 };

static void list_matrices(struct weights *w, struct named all[N_MATRICES]) {
    struct layer_weights *l = &w->layers[0];
    const struct named list[N_MATRICES] = {
        { "model.layers.0.self_attn.q_proj", &l->q }, { "model.layers.0.self_attn.k_proj", &l->k },
        { "model.layers.0.self_attn.v_proj", &l->v }, { "model.layers.0.self_attn.o_proj", &l->o },
        { "model.layers.0.mlp.gate_proj", &l->gate }, { "model.layers.0.mlp.up_proj", &l->up },
        { "model.layers.0.mlp.down_proj", &l->down }, { "lm_head", &w->head },
        { "model.embed_tokens", &w->embedding },
    };
    memcpy(all, list, sizeof list);
}

static float *widened(const struct matrix *m) {
    float *values = malloc((size_t)m->rows * (size_t)m->columns * sizeof *values);
    assert_non_null(values);
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, values + (size_t)r * (size_t)m->columns);
    return values;
}

static uint64_t hash_of(const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static json_t *read_expected(const char *folder) {
    char path[200];
    struct file_map map = { 0 };
    struct reel_error err = { 0 };
    json_t *expected = NULL;
    snprintf(path, sizeof path, "%s%s/expected.json", FOLDER, folder);
    require(file_map_open(&map, path, &err), &err);
    require(json_read(&expected, path, map.bytes, map.size, &err), &err);
    file_map_close(&map);
    return expected;
}

static void expect_values(const char *folder, const struct named *named, const json_t *expected) {
    const struct matrix *m = named->matrix;
    float *values = widened(m);
    const json_t *first = json_object_get(expected, "first");
    for (size_t i = 0; i < 4; i++)
        if (values[i] != (float)json_real_value(json_array_get(first, i)))
            fail_msg("%s: %s: weight %zu is %.9g, expected %.9g", folder, named->name, i,
                     (double)values[i], json_real_value(json_array_get(first, i)));
    const uint64_t want = strtoull(json_string_value(json_object_get(expected, "hash")), NULL, 16);
    if (hash_of(values, (size_t)m->rows * (size_t)m->columns * sizeof *values) != want)
        fail_msg("%s: %s: some weight differs", folder, named->name);
    free(values);
}

static void every_weight_is_worth_what_the_format_says(void **state) {
    (void)state;
    for (int f = 0; f < N_FOLDERS; f++) {
        struct model m;
        struct named all[N_MATRICES];
        json_t *expected = read_expected(folders[f]);
        size_t n = 0;
        open_model(&m, folders[f]);
        list_matrices(&m.weights, all);
        for (int i = 0; i < N_MATRICES; i++) {
            const json_t *values = json_object_get(expected, all[i].name);
            assert_int_equal(values != NULL, all[i].matrix->planes != NULL);
            if (!values) continue;
            expect_values(folders[f], &all[i], values);
            n++;
        }
        assert_int_equal(n, json_object_size(expected));
        assert_true(n >= 7);
        json_decref(expected);
        model_release(&m);
    }
}

/* ---- logits ---- */

enum { N_IDS = 40, PROMPT = 33 };

static void evaluate(const struct model *m, const char *path, int n_prompt, float *logits) {
    struct backend *backend = NULL;
    struct backend_state *session = NULL;
    struct reel_error err = { 0 };
    struct backend_options options = { .cpu_path = path, .n_threads = 2 };
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = i * 7 % m->config.vocab;
    require(cpu_backend.open(&backend, m, &options, &err), &err);
    require(cpu_backend.state_open(&session, backend, N_IDS, &err), &err);
    for (int at = 0; at < N_IDS;) {
        const int n = at == 0 ? n_prompt : 1;
        struct backend_eval eval = {
            .position = at,
            .n = n,
            .ids = ids + at,
            .output = n == 1 ? REEL_OUTPUT_LAST_LOGITS : REEL_OUTPUT_ALL_LOGITS,
            .out = logits + (size_t)at * (size_t)m->config.vocab,
        };
        require(cpu_backend.eval(session, &eval, &err), &err);
        at += n;
    }
    cpu_backend.state_close(session);
    cpu_backend.close(backend);
}

/* What 30 steps of greedy decoding by the reference give. */
static void decode(const struct model *m, const char *path, int32_t *ids, int n) {
    struct backend *backend = NULL;
    struct backend_state *session = NULL;
    struct reel_error err = { 0 };
    struct backend_options options = { .cpu_path = path, .n_threads = 1 };
    float logits[64];
    assert_true(m->config.vocab <= 64);
    require(cpu_backend.open(&backend, m, &options, &err), &err);
    require(cpu_backend.state_open(&session, backend, n + 1, &err), &err);
    ids[0] = 3;
    for (int i = 0; i + 1 < n; i++) {
        struct backend_eval eval = {
            .position = i, .n = 1, .ids = ids + i, .output = REEL_OUTPUT_LAST_LOGITS, .out = logits
        };
        require(cpu_backend.eval(session, &eval, &err), &err);
        ids[i + 1] = 0;
        for (int id = 1; id < m->config.vocab; id++)
            if (logits[id] > logits[ids[i + 1]]) ids[i + 1] = id;
    }
    cpu_backend.state_close(session);
    cpu_backend.close(backend);
}

/* The same model, its matrices widened to f32. */
static void widen_all(struct model *m, float *owned[N_MATRICES]) {
    struct named all[N_MATRICES];
    list_matrices(&m->weights, all);
    for (int i = 0; i < N_MATRICES; i++) {
        struct matrix *matrix = all[i].matrix;
        owned[i] = widened(matrix);
        *matrix = (struct matrix){ .dtype = DTYPE_F32,
                                   .rows = matrix->rows,
                                   .columns = matrix->columns,
                                   .row_bytes = (size_t)matrix->columns * sizeof(float),
                                   .data = (const unsigned char *)owned[i] };
    }
}

static double difference(const float *got, const float *want, size_t n) {
    double d = 0, w = 0;
    for (size_t i = 0; i < n; i++) {
        d += pow((double)got[i] - (double)want[i], 2);
        w += pow((double)want[i], 2);
    }
    return sqrt(d / w);
}

static void a_model_gives_what_its_widened_twin_gives(void **state) {
    (void)state;
    for (int f = 0; f < N_FOLDERS; f++) {
        struct model narrow, wide;
        float *owned[N_MATRICES];
        int32_t ids[2][30];
        open_model(&narrow, folders[f]);
        open_model(&wide, folders[f]);
        widen_all(&wide, owned);
        const size_t n = (size_t)N_IDS * (size_t)narrow.config.vocab;
        float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
        assert_true(want && got);
        evaluate(&wide, "reference", PROMPT, want);
        evaluate(&narrow, "reference", PROMPT, got);
        if (memcmp(want, got, n * sizeof *want) != 0)
            fail_msg("%s: the reference's logits differ", folders[f]);
        decode(&wide, "reference", ids[0], 30);
        decode(&narrow, "reference", ids[1], 30);
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        /* the fast way: the prompt, and each position alone. Sums in another order, and
         * probabilities rounded, as test_cpu_backend has it. */
        for (int prompt = 1; prompt <= PROMPT; prompt += PROMPT - 1) {
            evaluate(&narrow, NULL, prompt, got);
            const double d = difference(got, want, n);
            if (!(d <= 1e-2)) fail_msg("%s, prompt of %d: %g", folders[f], prompt, d);
        }
        free(want), free(got);
        for (int i = 0; i < N_MATRICES; i++)
            free(owned[i]);
        model_release(&narrow);
        model_release(&wide);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_worth_what_the_format_says),
        cmocka_unit_test(a_model_gives_what_its_widened_twin_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
