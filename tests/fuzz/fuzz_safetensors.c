/* A safetensors file as the only shard of a folder; whatever opens is read through once. */
#include "model/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile unsigned seen; /* keeps the reads below */

static void read_all(const struct tensor_file *file) {
    for (int i = 0; i < file->n_tensors; i++) {
        const struct tensor *t = &file->tensors[i];
        if (tensor_find(file, t->name) != t) abort();
        if (t->n_bytes) seen += t->data[0] + t->data[t->n_bytes - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct reel_memory_file one = { "model.safetensors", data, n };
    struct model_source source;
    struct tensor_file file;
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", &one, 1, &err) != REEL_OK) return 0;
    enum reel_status status = safetensors_open(&file, &source, &err);
    if (status == REEL_OK) read_all(&file);
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    tensor_file_release(&file);
    model_source_release(&source);
    return 0;
}
