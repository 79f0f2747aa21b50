#include "tests/support/golden.h"

#include "cpu/reference_model.h"
#include "model/safetensors.h"
#include "reel_measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const char *const golden_ids[] = { "q3-a",  "q3-b",  "q3-c",  "q3-w",  "ll-a",
                                   "ll-b",  "ll-c",  "ll-d",  "mi-a",  "qw2-a",
                                   "qw2-b", "q35-a", "q35-b", "q35-c", NULL };

void golden_require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

static void *must_allocate(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

float *golden_floats(size_t n) { return must_allocate(n, sizeof(float)); }

/* ---- files ----------------------------------------------------------------------------------- */

void *golden_unpack(const char *path, size_t *n) {
    char command[300];
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t size = 0, capacity = 1 << 20, got = 0;
    char *bytes = must_allocate(capacity, 1);
    while ((got = fread(bytes + size, 1, capacity - size, f)) > 0) {
        size += got;
        if (size < capacity) continue;
        capacity *= 2;
        bytes = realloc(bytes, capacity);
        assert_non_null(bytes);
    }
    if (pclose(f) != 0) fail_msg("%s cannot be unpacked with xz", path);
    *n = size;
    return bytes;
}

void golden_open(struct golden *g, const char *name) {
    struct reel_error err = { 0 };
    char path[200];
    size_t n = 0;
    snprintf(path, sizeof path, "tests/golden/%s.safetensors.xz", name);
    *g = (struct golden){ .bytes = golden_unpack(path, &n) };
    struct reel_memory_file file = { "model.safetensors", g->bytes, n };
    struct model_source source = { 0 };
    golden_require(model_source_open_memory(&source, path, &file, 1, &err), &err);
    golden_require(safetensors_open(&g->file, &source, &err), &err);
    model_source_release(&source);
}

void golden_close(struct golden *g) {
    tensor_file_release(&g->file);
    free(g->bytes);
    *g = (struct golden){ 0 };
}

static int elements(const struct tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return (int)n;
}

int golden_count(const struct golden *g, const char *name) {
    const struct tensor *t = tensor_find(&g->file, name);
    return t ? elements(t) : 0;
}

float *golden_f32(const struct golden *g, const char *name) {
    const struct tensor *t = tensor_find(&g->file, name);
    if (!t) fail_msg("the golden has no \"%s\"", name);
    assert_non_null(t);
    float *out = must_allocate((size_t)elements(t), sizeof *out);
    dtype_to_f32(t->dtype, t->data, out, (size_t)elements(t));
    return out;
}

int32_t *golden_int(const struct golden *g, const char *name) {
    float *values = golden_f32(g, name);
    int n = golden_count(g, name);
    int32_t *out = must_allocate((size_t)n, sizeof *out);
    for (int i = 0; i < n; i++)
        out[i] = (int32_t)values[i];
    free(values);
    return out;
}

/* ---- models ---------------------------------------------------------------------------------- */

void golden_model_open(struct golden_model *m, const char *id) {
    char shape[100];
    snprintf(shape, sizeof shape, "tests/golden/models/%s.json", id);
    golden_model_open_shape(m, id, shape);
}

void golden_model_open_shape(struct golden_model *m, const char *id, const char *shape) {
    struct reel_error err = { 0 };
    char parent[] = "/tmp/reel-golden-XXXXXX";
    *m = (struct golden_model){ 0 };
    assert_non_null(mkdtemp(parent));
    snprintf(m->folder, sizeof m->folder, "%s/%s", parent, id);
    golden_require(reel_synthesize(m->folder, shape, GOLDEN_SEED, NULL, NULL, &err), &err);
    golden_require(model_source_open(&m->source, m->folder, &err), &err);
    golden_require(model_config_read(&m->config, &m->source, &err), &err);
    golden_require(safetensors_open(&m->tensors, &m->source, &err), &err);
    golden_require(weights_map(&m->weights, &m->config, &m->tensors, false, &err), &err);
}

void golden_model_close(struct golden_model *m) {
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
    char path[300];
    weights_release(&m->weights);
    tensor_file_release(&m->tensors);
    model_source_release(&m->source);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", m->folder, names[i]);
        unlink(path);
    }
    rmdir(m->folder);
    *strrchr(m->folder, '/') = '\0';
    rmdir(m->folder);
    *m = (struct golden_model){ 0 };
}

float *golden_exact_logits(const struct golden_model *m, const int32_t *ids, int n,
                           int rotation_offset) {
    struct ref_options options = { .mode = REF_EXACT,
                                   .max_positions = n,
                                   .rotation_offset = rotation_offset };
    struct ref_state *state = NULL;
    struct reel_error err = { 0 };
    float *out = must_allocate((size_t)n * (size_t)m->config.vocab, sizeof *out);
    golden_require(ref_state_open(&state, &m->config, &m->weights, &options, &err), &err);
    struct backend_eval eval = { .n = n, .ids = ids, .output = REEL_OUTPUT_ALL_LOGITS, .out = out };
    golden_require(ref_state_eval(state, &eval, &err), &err);
    ref_state_close(state);
    return out;
}

/* ---- logits ---------------------------------------------------------------------------------- */

void golden_logits_read(struct golden_logits *l, const struct golden *g, const char *prefix) {
    char name[5][60];
    const char *const parts[] = { "at", "logits", "logits_max", "bf16.rms", "bf16.max" };
    for (int i = 0; i < 5; i++)
        snprintf(name[i], sizeof name[i], "%s%s", prefix, parts[i]);
    *l = (struct golden_logits){ .n = golden_count(g, name[0]),
                                 .at = golden_int(g, name[0]),
                                 .logits = golden_f32(g, name[1]),
                                 .largest = golden_f32(g, name[2]),
                                 .rms = golden_f32(g, name[3]),
                                 .max = golden_f32(g, name[4]) };
    assert_int_equal(golden_count(g, name[1]), l->n * GOLDEN_COLUMNS);
    double squares = 0;
    for (int i = 0; i < l->n; i++)
        squares += (double)l->rms[i] * (double)l->rms[i];
    l->whole = sqrt(squares / l->n);
    if (golden_count(g, "bf16.whole")) {
        float *whole = golden_f32(g, "bf16.whole");
        l->whole = (double)whole[0];
        free(whole);
    }
    for (int i = 2; i < 5; i++)
        assert_int_equal(golden_count(g, name[i]), l->n);
}

void golden_logits_release(struct golden_logits *l) {
    free(l->at);
    free(l->logits);
    free(l->largest);
    free(l->rms);
    free(l->max);
    *l = (struct golden_logits){ 0 };
}

double golden_logits_error(const struct golden_logits *l, int i, const float *exact, int vocab) {
    double worst = 0;
    for (int j = 0; j < GOLDEN_COLUMNS; j++) {
        float made = exact[(l->at[i] * GOLDEN_COLUMNS + j) % vocab];
        double error = fabs((double)made - (double)l->logits[i * GOLDEN_COLUMNS + j]);
        if (!(error <= worst)) worst = error; /* NaN is worst of all */
    }
    return worst / (double)l->largest[i];
}

struct golden_ratio golden_logits_ratio(const struct golden_logits *l, int i, const float *made,
                                        const float *exact, int vocab) {
    double squares = 0, max = 0;
    for (int j = 0; j < vocab; j++) {
        double error = fabs((double)made[j] - (double)exact[j]);
        squares += error * error;
        if (!(error <= max)) max = error;
    }
    return (struct golden_ratio){ .rms = sqrt(squares / vocab) / (double)l->rms[i],
                                  .max = max / (double)l->max[i] };
}
