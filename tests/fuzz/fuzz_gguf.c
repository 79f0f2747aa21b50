/* A GGUF file: metadata, config, tensors, and the weights where all of it fits together. */
#include "model/gguf.h"
#include "model/model_config.h"
#include "model/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile unsigned seen; /* keeps the reads below */

static void read_values(const struct gguf *gguf) {
    for (int i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *v = &gguf->values[i];
        const unsigned char *cursor = v->bytes;
        const char *text = NULL;
        size_t n = 0;
        int64_t number = 0;
        if (v->n_bytes) seen += v->bytes[0] + v->bytes[v->n_bytes - 1];
        while (gguf_next_text(v, &cursor, &text, &n))
            if (n) seen += (unsigned)text[n - 1];
        if (v->count && gguf_value_int(v, v->count - 1, &number)) seen += (unsigned)number;
        if (gguf_value_int(v, v->count, &number)) abort();
    }
}

static void read_tensors(const struct tensor_file *file) {
    for (int i = 0; i < file->n_tensors; i++) {
        const struct tensor *t = &file->tensors[i];
        if (tensor_find(file, t->name) != t) abort();
        if (t->n_bytes) seen += t->data[0] + t->data[t->n_bytes - 1];
    }
}

static enum reel_status read_weights(const struct model_config *config,
                                     const struct tensor_file *file, struct reel_error *err) {
    struct weights weights;
    enum reel_status status = weights_map(&weights, config, file, true, err);
    if (status != REEL_OK) return status;
    float *row = malloc((size_t)config->hidden * sizeof *row);
    if (row) matrix_row_f32(&weights.layers[0].q, weights.layers[0].q.rows - 1, row);
    free(row);
    weights_release(&weights);
    return REEL_OK;
}

/* The same bytes as the beginning of a longer file. */
static void read_head(const uint8_t *data, size_t n) {
    const struct reel_memory_file one = { "fuzz.gguf", data, n };
    struct reel_error err = { 0 };
    bool complete = false;
    enum reel_status status = reel_model_check("fuzz", &one, 1, &complete, &err);
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    read_head(data, n);
    read_head(data, n / 2);
    struct reel_memory_file one = { "fuzz.gguf", data, n };
    struct model_source source;
    struct gguf gguf;
    struct tensor_file file;
    struct model_config config;
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", &one, 1, &err) != REEL_OK) return 0;
    enum reel_status status = gguf_open(&gguf, &file, &source, &err);
    if (status == REEL_OK) {
        read_values(&gguf);
        read_tensors(&file);
        status = model_config_from_gguf(&config, &gguf, &file, &err);
        if (status == REEL_OK) status = read_weights(&config, &file, &err);
    }
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    return 0;
}
