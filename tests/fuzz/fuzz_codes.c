/* One layer of a quantised folder: two bytes say how many rows and columns the model wants (times
 * 8), two how long its config.json is, which follows; the rest is model.safetensors, with tensors
 * of a layer "x". What is found and read gives its last row. */
#include "model/coded.h"
#include "model/safetensors.h"

#include "base/memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile float seen; /* keeps the reads below */

static void read_row(const struct matrix *m) {
    float *row = malloc((size_t)m->columns * sizeof *row);
    if (!row) return;
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, row);
    seen = row[m->columns - 1];
    free(row);
}

static enum reel_status read_layer(const struct tensor_file *file, int rows, int columns,
                                   struct reel_error *err) {
    struct coded_layer layer;
    struct matrix m;
    void *owned = NULL;
    bool found = false;
    enum reel_status status = coded_find(&layer, file, "x", rows, columns, &found, err);
    if (status != REEL_OK || !found) return status;
    status = coded_read(&layer, file, &m, &owned, err);
    if (status == REEL_OK) read_row(&m);
    mem_free(owned);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 4) return 0;
    const size_t config = data[2] | (size_t)data[3] << 8;
    if (n - 4 < config) return 0;
    const struct reel_memory_file files[] = {
        { "config.json", data + 4, config },
        { "model.safetensors", data + 4 + config, n - 4 - config },
    };
    struct model_source source;
    struct tensor_file file;
    struct reel_error err = { 0 };
    if (model_source_open_memory(&source, "fuzz", files, 2, &err) != REEL_OK) return 0;
    enum reel_status status = safetensors_open(&file, &source, &err);
    if (status == REEL_OK) {
        status = quant_config_read(&file.quant, &source, &err);
        if (status == REEL_OK && file.quant)
            status = read_layer(&file, 8 * data[0] + 8, 8 * data[1] + 8, &err);
        tensor_file_release(&file);
    }
    if (status != REEL_OK && (err.status != status || !err.text[0])) abort();
    model_source_release(&source);
    return 0;
}
